"""The record: hashes of every step of the lives that were lived by the code that was examined."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from secea.audit import KEYED, PAILLIER, Objection, Subject
from secea.audit.conduct import HASH_BYTES, Life
from secea.audit.conduct.figures import Figures
from secea.audit.conduct.parties import Turmoil
from secea.audit.conduct.sites import Sites

FILE: Final = Path(__file__).with_name("record.json")
ENDS: Final = "it ends with"


def _turmoil(subject: Subject, seed: int) -> Life:
    return _lived(Turmoil(subject, seed))


def _at_sites(subject: Subject, seed: int) -> Life:
    with TemporaryDirectory() as folder:
        return _lived(Sites(subject, seed, Path(folder) / "life"))


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


LIVES: Final[Mapping[str, tuple[Callable[[Subject, int], Life], Mapping[str, int]]]] = {
    "parties": (_turmoil, {KEYED: 108, PAILLIER: 32}),
    "sites": (_at_sites, {KEYED: 24, PAILLIER: 8}),
    "figures": (_figures, {KEYED: 40, PAILLIER: 20}),
}
"""How a life is lived, and how many there are of each form."""


@lru_cache
def recorded() -> Mapping[str, Mapping[str, list[str]]]:
    """The hashes of the steps of all lives, by form and kind."""
    read: Mapping[str, Mapping[str, list[str]]] = json.loads(FILE.read_text(encoding="utf-8"))
    return read


def steps(hashes: str) -> list[str]:
    """The hashes of a life one by one."""
    return [hashes[at : at + 2 * HASH_BYTES] for at in range(0, len(hashes), 2 * HASH_BYTES)]


def differing(subject: Subject, kind: str, seed: int) -> str | None:
    """Where a life is not as recorded, in words."""
    right, life = steps(recorded()[subject.form.name][kind][seed]), LIVES[kind][0](subject, seed)
    for i, (what, came, now) in enumerate(zip(life.done, life.came, life.hashes, strict=True)):
        if i >= len(right) or now != right[i]:
            happened = "; ".join(dict.fromkeys(came)) or "nothing"
            return f"life {seed}, step {i + 1}, {what.strip()}: not as recorded. What came: {happened[:400]}"
    if len(right) != len(life.hashes):
        return f"life {seed} ends after {len(life.hashes)} steps of {len(right)}"
    return None


def compared(subject: Subject, kind: str) -> int:
    """How many steps were as recorded. An `Objection` at the first that is not."""
    lives = recorded()[subject.form.name][kind]
    for seed in range(len(lives)):
        if found := differing(subject, kind, seed):
            raise Objection(found)
    return sum(len(steps(hashes)) for hashes in lives)


def _whole(life: Life) -> str:
    """The hashes of a life that came to its end."""
    assert not life.came[-1][-1].startswith(ENDS), life.came[-1][-1]
    return "".join(life.hashes)


def main() -> None:
    """Write the file."""
    from secea.audit.registry import product

    written = {
        form: {
            kind: [_whole(live(subject, seed)) for seed in range(many[form])] for kind, (live, many) in LIVES.items()
        }
        for form, subject in product().items()
    }
    FILE.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
