"""What docs/adapters.md shows is what happens."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "adapters.md"


def test_the_page_about_adapters_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 11
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, PAGE.name, "exec"), names)  # noqa: S102
