"""A claim about what nobody can set up: parameters that do not go together, and rosters in which two are one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product
from typing import Any, Final

from secea.audit import KEYED, PAILLIER, Objection, Subject, claim
from secea.audit import specification as spec
from secea.audit.mutants import refused as mutants
from secea.errors import ParamsError, SecEAError
from secea.forms.keyed.form import Keyed
from secea.params import Params
from secea.party.session import Session
from secea.wire.keys import Identity, Roster

CLIENTS: Final = 4
ODD: Final[dict[str, tuple[Any, ...]]] = {
    "max_abs": (0.0, -1.0, float("inf"), float("nan"), 2.0**65), "noise": (-1.0, float("inf"), float("nan"), 2.0**17),
    "min_owners": (0, CLIENTS + 1), "dropouts": (-1, CLIENTS), "collusion": (0, CLIENTS), "rounds": (0, 1 << 32),
    "sigma": (0, 129), "precision": (0, 53), "dim": (0,), "max_entities": (0,), "max_union": (0,),
}  # fmt: skip
"""What no parameter may be."""
OPTIONS_OF_THE_FORM: Final[dict[str, tuple[int, ...]]] = {
    "batch": (0, 1 + (1 << 15)), "min_participants": (0, 1, CLIENTS + 1), "max_updates": (-1,),
    "max_new_entities": (-1,),
}  # fmt: skip


def _refused(**given: Any) -> bool:
    try:
        Params(**{"clients": CLIENTS, "dim": 2, **given})
    except ParamsError:
        return True
    return False


def _options() -> int:
    """Every combination, and the weights around the largest one."""
    cases = 0
    for weighted, partial, noise, m in product((False, True), (False, True), (0.0, 0.5), (1, 2)):
        some = {"max_weight": 5 if weighted else None, "partial": partial, "noise": noise, "min_owners": m}
        if _refused(**some) == spec.go_together(weighted=weighted, partial=partial, noise=bool(noise)):
            raise Objection(f"{some} is {'allowed' if not _refused(**some) else 'refused'}")
        cases += 1
    for N, precision in product((2, 3, 7, 64), (8, 9, 16, 24, 40)):
        most = spec.largest_weight(N, precision)
        for weight in {0, 1, most - 1, most, most + 1, 2 * most, (1 << 24) + 1} - {-1}:
            if _refused(clients=N, precision=precision, max_weight=weight) == (1 <= weight <= most):
                raise Objection(f"{N} clients, precision {precision}: weights up to {weight}, and {most} is the most")
            cases += 1
    for name, values in ODD.items():
        for value in values:
            cases += 1
            if not _refused(**{name: value}):
                raise Objection(f"{name}={value} is allowed")
    return cases


def _rosters(subject: Subject) -> Iterator[tuple[str, Any]]:
    """Rosters that there must not be, each as a function that makes it and a session with it."""
    keys = [Identity(bytes([n]) * 32).public for n in range(CLIENTS + 2)]
    names = tuple("abcd")
    params = Params(CLIENTS, dim=2, collusion=1, max_entities=4, max_union=4)

    def made(parties: list[bytes], called: tuple[str, ...] = names) -> Any:
        return lambda: Session(params, Roster(tuple(parties[:-1]), parties[-1], called), subject.form)

    right = keys[: CLIENTS + 1]
    for one, other in combinations(range(CLIENTS + 1), 2):
        twice = list(right)
        twice[other] = twice[one]
        yield f"parties {one} and {other}, of whom the last is the server, are one", made(twice)
    for one, other in combinations(range(CLIENTS), 2):
        alike = list(names)
        alike[other] = alike[one]
        yield f"clients {one} and {other} have one name", made(right, tuple(alike))
    for n, size in product(range(CLIENTS + 1), (0, 31, 33)):
        odd = list(right)
        odd[n] = (odd[n] * 2)[:size]
        yield f"party {n} has a key of {size} bytes", made(odd)
    yield "a client is missing", made([*right[: CLIENTS - 1], right[-1]], names[:-1])
    yield "there is a client too many", made([*keys[: CLIENTS + 1], keys[-1]], (*names, "e"))


@claim(
    "record",
    KEYED,
    PAILLIER,
    mutants=(mutants.ANY_OPTIONS, mutants.SERVER_TAKES_PART, mutants.ANY_SIZE, mutants.ANY_BATCH),
)
def refused(subject: Subject) -> int:
    """Both forms: what does not go together cannot be set up: options, numbers out of range, and two parties in one.

    Noise goes neither with weights nor with rows that are left out, since it covers neither; a server that were one of
    the clients would have every secret of theirs.
    """
    cases = _options()
    for what, made in _rosters(subject):
        cases += 1
        try:
            made()
        except SecEAError:
            continue
        raise Objection(f"there may be a session in which {what}")
    for name, values in OPTIONS_OF_THE_FORM.items() if isinstance(subject.form, Keyed) else ():
        for value in values:
            cases += 1
            try:
                Keyed(**{name: value}).checked(Params(CLIENTS, dim=2))
            except ParamsError:
                continue
            raise Objection(f"{name}={value} is allowed")
    return cases
