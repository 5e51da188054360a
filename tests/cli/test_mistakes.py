"""Each of ten likely mistakes, made with the real command: the answer says what to do, and is the page's."""

from __future__ import annotations

from pathlib import Path

import pytest

from mistakes import MISTAKES, PAGE, Mistake, made, section
from tiers import always


@pytest.mark.parametrize("mistake", always(MISTAKES[:3], MISTAKES), ids=[each.title for each in MISTAKES])
def test_a_mistake_is_answered_with_what_to_do(tmp_path: Path, mistake: Mistake) -> None:
    work = tmp_path / "work"
    work.mkdir()
    transcript, codes = made(mistake, work)
    assert codes == mistake.codes, transcript
    assert "Traceback" not in transcript
    for words in mistake.says:
        assert words in transcript, transcript
    assert section(mistake, transcript) in PAGE.read_text(encoding="utf-8")
    left = {path.name for path in work.rglob("*") if path.name.startswith(".secea-") or path.name.endswith(".new")}
    assert not left


def test_there_are_ten() -> None:
    assert len(MISTAKES) == 10
