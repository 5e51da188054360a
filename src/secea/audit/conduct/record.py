"""The record: hashes of every step of the lives that were lived by the code that was examined."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from secea.audit import FORMS, Objection, Subject
from secea.audit.conduct import HASH_BYTES, Life
from secea.audit.conduct.figures import Figures
from secea.audit.conduct.parties import Turmoil
from secea.audit.conduct.sites import Sites

FILE: Final = Path(__file__).with_name("record.json")
ENDS: Final = "it ends with"


def _at_sites(subject: Subject, seed: int) -> Life:
    with TemporaryDirectory() as folder:
        made = Sites(subject, seed, Path(folder) / "life")
        _lived(made)
    return made


def _turmoil(subject: Subject, seed: int) -> Life:
    return _lived(Turmoil(subject, seed))


def _figures(subject: Subject, seed: int) -> Life:
    return _lived(Figures(subject, seed))


def _lived(life: Any) -> Life:
    """The whole life, or as much of it as there is."""
    try:
        life.live()
    except Exception as error:  # on record lives come to their end: this one differs, and it is said where
        life.note(f"{ENDS} {type(error).__name__}: {error}")
        life.over()
    made: Life = life
    return made


LIVES: Final[Mapping[str, tuple[Callable[[Subject, int], Life], tuple[int, int]]]] = {
    "parties": (_turmoil, (108, 10)),
    "sites": (_at_sites, (24, 4)),
    "figures": (_figures, (40, 20)),
}
"""How a life is lived, and how many there are of each form."""


def lives(subject: Subject, kind: str) -> Iterator[tuple[int, Life]]:
    """All lives of a kind, with their numbers."""
    live, many = LIVES[kind]
    for seed in range(many[FORMS.index(subject.form.name)]):
        yield seed, live(subject, seed)


def compared(subject: Subject, kind: str) -> int:
    """How many steps were as recorded. An `Objection` at the first that is not."""
    recorded, cases = json.loads(FILE.read_text(encoding="utf-8"))[subject.form.name][kind], 0
    width = 2 * HASH_BYTES
    for seed, life in lives(subject, kind):
        right = [recorded[seed][at : at + width] for at in range(0, len(recorded[seed]), width)]
        for i, (what, came, now) in enumerate(zip(life.done, life.came, life.hashes, strict=True)):
            if i >= len(right) or now != right[i]:
                happened = "; ".join(dict.fromkeys(came)) or "nothing"
                raise Objection(f"life {seed}, step {i + 1}, {what.strip()}: not as recorded. What came: {happened[:400]}")
        if len(right) != len(life.hashes):
            raise Objection(f"life {seed} ends after {len(life.hashes)} steps of {len(right)}")
        cases += len(right)
    return cases


def _whole(life: Life) -> str:
    """The hashes of a life that came to its end."""
    assert not life.came[-1][-1].startswith(ENDS), life.came[-1][-1]
    return "".join(life.hashes)


def main() -> None:
    """Write the file."""
    from secea.audit.registry import product

    written = {
        form: {kind: [_whole(life) for _, life in lives(subject, kind)] for kind in LIVES}
        for form, subject in product().items()
    }
    FILE.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
