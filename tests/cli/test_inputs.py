"""What people bring, typed as a new user would: the answers are those of docs/inputs.md, and say what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from given import GROUPS, Given
from inputs import PAGE, answered, row
from tiers import always

EVERY = [given for _, group in GROUPS for given in group]
LINES = PAGE.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("given", always(EVERY[:6], EVERY), ids=[f"{i} {given.what}" for i, given in enumerate(EVERY)])
def test_an_input_is_answered_as_the_page_says(tmp_path: Path, given: Given) -> None:
    code, said = answered(given, tmp_path)
    assert code == given.code, said
    for words in given.says:
        assert words in " ".join(said)
    assert row(given, code, said) in LINES


def test_the_page_has_these_inputs_and_no_others() -> None:
    assert len(EVERY) > 60
    assert sum(line.startswith("| ") and not line.startswith(("| what", "|---")) for line in LINES) == len(EVERY)
