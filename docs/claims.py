"""Write all claims and mutants of the audit into docs/audit.md, or say with --check whether the page has them.

python docs/claims.py
python docs/claims.py --check
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from secea.audit import FORMS
from secea.audit.registry import all_mutants, caught_by, gathered

PAGE: Final = Path(__file__).parent / "audit.md"
BEGIN: Final = "<!-- python docs/claims.py: what follows is made by it -->\n"
TITLES: Final = {("keyed",): "The keyed form", FORMS: "Both forms", ("paillier",): "The paper's form"}


def _table(*columns: str, rows: Iterable[tuple[str, ...]]) -> str:
    lines = [columns, tuple("---" for _ in columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _named(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _sentence(claim: str) -> str:
    """Without the form, which the title names."""
    said = claim.partition(": ")[2]
    return said[:1].upper() + said[1:]


def tables() -> str:
    """The part of the page that is made."""
    parts = []
    for forms, title in TITLES.items():
        claims = [claim for claim in gathered().values() if claim.forms == forms]
        rows = ((f"`{c.name}`", _sentence(c.claim), c.method, _named(m.name for m in c.mutants)) for c in claims)
        parts.append(f"## {title}\n\n{_table('claim', 'what it says', 'method', 'objects without', rows=rows)}")
    caught = caught_by()
    taken = ((f"`{m.name}`", m.missing, _named(caught[m.name])) for m in all_mutants().values())
    parts.append(f"## Mutants\n\n{_table('mutant', 'what is taken away', 'objected to by', rows=taken)}")
    return "\n".join(parts)


def main() -> int:
    """Write the page, or compare it."""
    text = PAGE.read_text(encoding="utf-8")
    made = text.partition(BEGIN)[0] + BEGIN + "\n" + tables()
    if "--check" in sys.argv[1:]:
        return int(made != text)
    PAGE.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
