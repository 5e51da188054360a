"""Coverage-guided fuzzing of everything that comes over the network: see fuzz/README.md.

    python fuzz/fuzz_messages.py fuzz/corpus -max_total_time=300     # with atheris
    python fuzz/fuzz_messages.py --random 10000                      # without: seeded random inputs
    python fuzz/fuzz_messages.py --lies                              # all lies of lies.py at all places
    python fuzz/fuzz_messages.py --coverage --lies --random 10000    # and which lines they reach

Before all of these, `--chunk-bytes 100` cuts messages into many small chunks.

An input chooses a place of a recorded federation of either form and says how its message is changed: as anyone on the
network can, or behind the seal, with the true sender's keys, at random or by a lie that has a shape. The law is that of
places.py; what breaks it goes through.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "src"))

try:
    import atheris  # type: ignore[import-untyped,import-not-found,unused-ignore]  # no dependency: see fuzz/README.md
except ImportError:
    atheris = None

if atheris is None:
    from covered import Covered
    from lies import lies
    from places import NUMBERS, Place, every_place, may_be_taken, taken
    from secea.errors import SERVER
    from secea.forms.keyed import form as keyed_form
    from secea.wire import messages
else:
    with atheris.instrument_imports(include=["secea"]):
        from covered import Covered
        from lies import lies
        from places import NUMBERS, Place, every_place, may_be_taken, taken
        from secea.errors import SERVER
        from secea.forms.keyed import form as keyed_form
    from secea.wire import messages


class Choices:
    """The bytes of an input, as small numbers first and raw bytes last."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def below(self, bound: int) -> int:
        """A number in [0, bound); 0 when the input is at its end."""
        taken_bytes = self._data[self._at : self._at + 2]
        self._at += 2
        return int.from_bytes(taken_bytes, "little") % bound

    def rest(self) -> bytes:
        """What is left."""
        return self._data[self._at :]


def overlaid(true: bytes, choices: Choices) -> bytes:
    """The true bytes with some replaced, some missing or some more."""
    start, how = choices.below(len(true) + 1), choices.below(4)
    new = choices.rest()
    match how:
        case 0:
            return true[:start] + new + true[start + len(new) :]
        case 1:
            return true[:start]
        case 2:
            return true + new
        case _:
            return new


def one_input(data: bytes) -> None:
    """What one input says is tried, and the law checked."""
    choices, everywhere = Choices(data), every_place()
    place = everywhere[choices.below(len(everywhere))]
    way = choices.below(4)
    if way == 0 or not place.sealed:
        message = overlaid(place.hop.message, choices)
        if taken(place, message):
            assert may_be_taken(place, message), f"taken at the place {place.name}: {message.hex()}"
    elif way == 1:
        known = all_lies(place)
        taken(place, known[choices.below(len(known))])
    else:
        taken(place, behind_the_seal(place, choices))


@lru_cache(64)
def all_lies(place: Place) -> tuple[bytes, ...]:
    """Those of lies.py."""
    return tuple(message for _, message in lies(place))


def behind_the_seal(place: Place, choices: Choices) -> bytes:
    """An authentic message: one field of the header changed or none, and another payload."""
    names = (*NUMBERS, "kind", "context", "salt")
    change: dict[str, Any] = {}
    if (field := choices.below(2 * len(names))) < len(names):
        name, value = names[field], choices.below(1 << 16)
        if name == "kind":
            change[name] = place.kinds[value % len(place.kinds)]
        elif name in ("context", "salt"):
            change[name] = value.to_bytes(16, "little")
        else:
            change[name] = max(value, name == "chunks")
    return place.resealed(place.header(**change), overlaid(place.payload(), choices))


def seeds(folder: Path) -> None:
    """A corpus to begin with: each place, untouched, in both ways."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(len(every_place())):
        for way in (0, 2):
            whole = (number, way, 65535, 0, 0) if way else (number, way, 0, 0)
            data = b"".join((x & 0xFFFF).to_bytes(2, "little") for x in whole)
            (folder / f"{number}-{way}").write_bytes(data)


def tried_at_random(count: int, seed: int) -> None:
    """So many inputs."""
    import random  # public inputs: nothing here is secret

    rng = random.Random(seed)  # noqa: S311
    for _ in range(count):
        one_input(rng.randbytes(rng.choice((4, 8, 10, 12, 20, 80, 300))))
    print(f"{count} inputs at {len(every_place())} places: no law was broken (seed {seed})")


def tried_lies(step: int) -> None:
    """All lies at all places; or every second, third, ..."""
    count = 0
    for number, place in enumerate(every_place()):
        for message in all_lies(place)[number % step :: step] if place.sealed else ():
            taken(place, message)
            count += 1
        for carrier in (0, 1, 1000) if place.hop.receiver == SERVER else ():
            taken(place, place.hop.message, carrier)
    print(f"{count} lies at {len(every_place())} places: no law was broken")


def main(arguments: Sequence[str]) -> int:
    """Run what the options say; without one of ours, the fuzzer."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--chunk-bytes", type=int)
    parser.add_argument("--random", type=int, nargs="+", metavar=("COUNT", "SEED"))
    parser.add_argument("--lies", type=int, nargs="?", const=1, metavar="STEP")
    parser.add_argument("--coverage", action="store_true")
    chosen, rest = parser.parse_known_args(arguments)
    if chosen.chunk_bytes:
        for module in (messages, keyed_form):
            module.CHUNK_BYTES = chosen.chunk_bytes  # type: ignore[attr-defined]  # for this process
    every_place()
    if chosen.random or chosen.lies:
        covered = Covered()
        with covered.watching() if chosen.coverage else nullcontext():
            if chosen.lies:
                tried_lies(chosen.lies)
            if chosen.random:
                tried_at_random(chosen.random[0], chosen.random[1] if len(chosen.random) > 1 else 0)
        for line in covered.report() if chosen.coverage else ():
            print(line)
        return 0
    if atheris is None:
        print("atheris is not installed: pip install atheris; or run with --random 10000", file=sys.stderr)
        return 2
    if rest and not rest[0].startswith("-"):
        seeds(Path(rest[0]))
    atheris.Setup([sys.argv[0], *rest], one_input)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
