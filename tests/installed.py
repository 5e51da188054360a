"""Whether the package that is installed here works: a small federation, checked against plain means.

python tests/installed.py                # with compiled loops
python tests/installed.py --without      # where there was no compiler
"""

from __future__ import annotations

import platform
import sys
import warnings

import numpy as np

with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    import secea
from secea.arithmetic import _kernels, streams


def check(tables: list[dict[str, list[float]]], means: list[dict[str, object]], resolution: float) -> None:
    """Every client has the mean over all owners, for each of its own entities."""
    for table, mine in zip(tables, means, strict=True):
        assert mine.keys() == table.keys()
        for name, mean in mine.items():
            expected = np.mean([other[name] for other in tables if name in other], axis=0)
            assert np.abs(np.asarray(mean) - expected).max() <= resolution, name


def main() -> None:
    """All of it; prints what it ran on."""
    without = sys.argv[1:] == ["--without"]
    slow = [each for each in said if each.category is secea.SlowKernels]
    assert len(slow) == bool(_kernels.MISSING) == without, _kernels.MISSING or "there are compiled loops"
    rng = np.random.default_rng(7)
    tables = [{f"entity {i}": rng.uniform(-9, 9, 5).tolist() for i in range(40) if (i + n) % 3} for n in range(4)]
    check(tables, secea.aggregate(tables), secea.Params(clients=4, dim=5).resolution)
    params = secea.Params(clients=4, dim=5, collusion=1, dropouts=1, max_entities=40)
    fed = secea.Federation(params)
    fed.setup([table.keys() for table in tables])
    for _ in range(2):
        check(tables, fed.round(tables), params.resolution)
    loops = "numpy" if without else f"compiled, AES level {streams.BEST}"
    print(
        f"secea {secea.__version__}, Python {platform.python_version()}, numpy {np.__version__}, loops: {loops}: works"
    )


if __name__ == "__main__":
    main()
