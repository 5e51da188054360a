"""A claim about sessions that keep a key, in the form "keyed": no two quorums of honest members serve both of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import combinations, product
from typing import Final

from secea.arithmetic.ristretto import multiply_base, scalar_rows
from secea.audit import KEYED, Objection, Subject, claim
from secea.audit import specification as spec
from secea.audit.attacks.names import Next, following
from secea.audit.attacks.stage import announcement
from secea.audit.begins import believes
from secea.audit.claims.counts import form_of
from secea.audit.claims.names import parties_of
from secea.audit.mutants import quorums as mutants
from secea.forms.keyed.form import Keyed
from secea.forms.keyed.handover import Following, Handover
from secea.params import Params

FEW: Final = range(2, 8)
JOINED: Final = range(4)


@cache
def _points(count: int) -> bytes:
    return multiply_base(scalar_rows(range(1, count + 1))).tobytes()


def _regroupings() -> Iterator[tuple[int, int, int, int, int, int]]:
    """All N and T before, who left, who joined, T and D afterwards, with which a key may be kept (K2)."""
    for N, left, joined in product(FEW, FEW, JOINED):
        left -= FEW[0]
        after = N - left + joined
        for T_old, T, D in product(range(1, N), range(1, after), range(after)):
            if spec.allowed(N, T_old, 0) and spec.allowed(after, T, D) and T + left <= T_old:
                yield N, T_old, left, joined, T, D


def _both(stay: int, left: int, joined: int, need: tuple[int, int], most: tuple[int, int]) -> bool:
    """Whether two sets without an honest client in common can be enough, one in each session, whoever conspires.

    `need`: how many take part in an epoch of the session before, and of the new one; `most`: how many may conspire.
    """
    for inside, gone in product(range(min(stay, *most) + 1), range(left + 1)):
        come = min(joined, most[1] - inside)
        if inside + gone > most[0]:
            continue
        before = max(0, need[0] - inside - left)  # those who left, conspiring or not, may serve the old session alone
        now = max(0, need[1] - inside - joined)  # and newcomers, conspiring or not, the new one alone
        if come >= 0 and before + now <= stay - inside:
            return True
    return False


def _rules(subject: Subject) -> int:
    """How many clients take part in what, over all regroupings."""
    form, cases = form_of(subject), 0
    options = {name: getattr(form, name) for name in ("min_participants", "max_new_entities", "max_updates", "batch")}
    for N, T_old, left, joined, T, D in _regroupings():
        stay = N - left
        numbers = (*range(stay), *[None] * joined, *range(stay, N))
        record = Handover(bytes(32), _points(T_old + 1), numbers, left)
        then = Following(**options, before=record)
        params = Params(stay + joined, dim=1, collusion=T, dropouts=D, max_entities=4, max_union=4)
        where = f"N={N}, T={T_old}, then {left} leave and {joined} join, T={T}, D={D}"
        everybody, Z = stay + joined, spec.signatures(stay + joined, T)
        asked = {
            ("commit", 1): everybody + left, ("list", 1): everybody, ("list", 2): max(T + 1, Z),
        }  # fmt: skip
        for (phase, names), due in asked.items():
            found = then.fewest(params, phase, names)
            if found != due:
                raise Objection(
                    f"{where}: '{phase}' in epoch {names} goes with {found}, and the specification asks for {due}"
                )
        first = then.fewest(params, "list", 1 if joined else 2)
        old = Keyed(**options).fewest(Params(N, dim=1, collusion=T_old, max_entities=4, max_union=4), "list", 2)
        if _both(stay, left, joined, (old, first), (T_old, T)):
            raise Objection(
                f"{where}: {old} serve the session before, {first} the new one, and no honest one serves both"
            )
        cases += len(asked) + 1
    return cases


def _refusals(subject: Subject) -> int:
    """Members refuse a newcomers' epoch unless everybody is there: of all large sets of members, one is enough."""
    cases, old = 0, parties_of(subject, 4, 1)
    old.setup()
    form = following(old, (*range(4), None, None), 1)
    assert form is not None
    session = Next(old, form, 1)
    session.exchange.greet()
    session.exchange.run("commit", session.clients, until="list")
    everyone = range(6)
    for size, names in product(range(4, 7), (1, 2)):
        for members in combinations(everyone, size):
            for n in members:
                at = session.clients[n].at
                said = announcement(session, "list", members, n, epoch=at.union + 1, attempt=0, weights=names)  # type: ignore[arg-type]
                taken = believes(session.clients[n], said)
                if names == 1 and taken != (size == 6):
                    raise Objection(
                        f"client {n} {'takes' if taken else 'has no'} part in the newcomers' epoch with {members}"
                    )
                cases += 1
    return cases


@claim("record", KEYED, mutants=(mutants.NEWCOMERS_QUORUM, mutants.AS_MANY_AS_BEFORE))
def newcomers(subject: Subject) -> int:
    """Keyed: no honest clients serve newcomers' names while others serve the session before: everybody has to be there.

    Over all N, T, who left, who joined, and the new T and D: one honest client at least would have to serve both
    sessions, whoever conspires. Else a conspirator's lists would be answered in both, and its guesses would double.
    """
    return _rules(subject) + _refusals(subject)
