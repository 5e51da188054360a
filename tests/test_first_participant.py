"""The first function that the tutorial for operators has a site write: it keeps what comes of a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from secea.engines.host import Means, Participant
from secea.table import as_table
from test_docs import examples


def test_the_tutorials_first_participant_keeps_the_last_means(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (written,) = [each.text for each in examples("docs/operators.md") if each.title == "mine.py"]
    names: dict[str, object] = {}
    exec(compile(written, "mine.py", "exec"), names)  # noqa: S102  # the page's own
    made = names["participant"]
    assert callable(made)
    site = made()
    assert isinstance(site, Participant)
    given = tuple(map(str, site.names()))
    assert len(given) == len(as_table(site.train(None, 1), 2).names)
    last = Means(given, np.arange(2.0 * len(given), dtype=np.float32).reshape(-1, 2))
    site.done(last)
    with np.load("means.npz") as kept:
        assert tuple(kept["names"].tolist()) == given
        assert (kept["matrix"] == last.matrix).all()
