"""A claim about names in the form "keyed": how a user writes them shows nowhere but to that user."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from secea.audit import KEYED, Objection, Subject, claim
from secea.audit.mutants import spelling as mutants
from secea.forms.keyed.form import Kind
from secea.params import Params
from secea.table import Name
from secea.testing import Parties, Recorder, Sealed, Watch, insecure_seeded
from secea.wire import snapshot

Row = Callable[[Name], Any]


def _swapped(name: Name) -> Name:
    return str(name).swapcase()


def _blanks(name: Name) -> Name:
    return f"\t {name}\N{NO-BREAK SPACE}"


def _apart(name: Name) -> Name:
    return str(name).replace("\N{LATIN SMALL LETTER E WITH ACUTE}", "e\N{COMBINING ACUTE ACCENT}")


def _number(name: Name) -> Name:
    return int(name) if str(name).isdecimal() and str(int(name)) == name else name


def _all(name: Name) -> Name:
    return _blanks(_apart(_swapped(name)))


def _first_word(text: str) -> str:
    return text.split()[0]


ME: Final = 0
NAMES: Final = (
    ("ad\N{LATIN SMALL LETTER E WITH ACUTE}", "bo", "7", "012", "c"),
    ("bo", "7", "d", "c"),
    ("ad\N{LATIN SMALL LETTER E WITH ACUTE}", "c"),
)
"""What clients have, as `normalize` leaves it."""
RULES: Final[Mapping[Any, Row]] = {
    (): _number, "nfc": _apart, "strip": _blanks, "casefold": _swapped,
    ("nfc", "strip", "casefold"): _all, _first_word: lambda name: f"{name} and more",
}  # fmt: skip
"""Another spelling for each rule."""
OF_UNIONS: Final = (Kind.PART, Kind.TABLE, Kind.READY, Kind.UPLOAD)
"""What clients send once names have their keys: blinds belong to names in their order."""


@dataclass
class Life:
    """What left a client and what it saved, in two rounds, an epoch of names between them, and perhaps a restart."""

    passed: list[bytes] = field(default_factory=list)
    """All messages on all hops, to the bit. Clients send at the same time: their order is nobody's."""
    said: list[tuple[str, bytes]] = field(default_factory=list)
    """What clients sealed for unions and rounds."""
    saved: list[bytes] = field(default_factory=list)
    """States of client 0, without its user's spelling."""


def _saved(parties: Parties) -> bytes:
    content = snapshot.loads(parties.clients[ME].save())
    assert content["part"].pop("spelled") is not None
    content["part"]["naming"] = {
        key: sorted(map(str, value)) if isinstance(value, tuple) else value
        for key, value in content["part"]["naming"].items()
    }
    return snapshot.checksum(snapshot.dumps(content))


def _is_shown(parties: Parties, rule: Any, written: Sequence[Name]) -> None:
    """The user sees its own spelling."""
    part = parties.clients[ME].part
    for shown in (part.next_names, part.without_mean):
        if not set(map(repr, shown)) <= set(map(repr, written)):
            raise Objection(f"normalize={rule!r}: a user who wrote {written} is shown {shown}")


def _life(subject: Subject, rule: Any, spelt: Sequence[Row], *, turned: bool = False, restarts: bool = False) -> Life:
    """A federation whose client 0 writes its names in these ways: in its set-up, and in each of two rounds."""
    watch, tap, found = Watch(), Recorder(Kind), Life()
    first = [spelt[0](name) for name in NAMES[ME]]
    names: list[Sequence[Name]] = [first[::-1] if turned else first, *NAMES[1:]]
    params = Params(len(NAMES), dim=2, collusion=1, max_entities=6, max_union=9, normalize=rule)
    parties = Parties(
        params, subject.form, names, tap=tap, watch=watch, entropy=insecure_seeded(6),
        session=subject.session, client=subject.client,
    )  # fmt: skip
    parties.setup()
    rng = np.random.default_rng(6)
    rows = {name: rng.normal(size=2).astype(np.float32) for own in NAMES for name in [*own, "new"]}
    own = list(NAMES[ME])
    for q in (1, 2):
        if q == 2:
            own = [*own[1:], "new"]
            part = parties.clients[ME].part
            part.update([spelt[q](name) for name in (own[::-1] if turned else own)])
            parties.exchange.run(subject.form.names_phase, range(len(NAMES)))
        if q == 2 and restarts:
            parties.restart(ME)
            parties.exchange.greet()
            _is_shown(parties, rule, [spelt[q](name) for name in own])
        since = len(watch.heard)
        parties.union(range(len(NAMES)))  # one that is not bound to lists of names
        mine = {spelt[q](name): rows[name] for name in (own[::-1] if turned else own)}
        given = [mine, *({name: rows[name] for name in NAMES[n]} for n in range(1, len(NAMES)))]
        parties.round(given)
        _is_shown(parties, rule, [*mine])
        found.saved.append(_saved(parties))
        found.said += [
            (each.header.kind.name, each.payload) for each in watch.heard[since:]
            if isinstance(each, Sealed) and each.header.kind in OF_UNIONS
        ]  # fmt: skip
    found.said.sort()
    found.passed = sorted(hop.message for hop in tap.hops)
    return found


@claim(
    "record",
    KEYED,
    mutants=(mutants.FILL_AS_SPELT, mutants.FILL_BY_PLACE, mutants.SAVED_AS_SPELT, mutants.SPELLING_LOST),
)
def spelling(subject: Subject) -> int:
    """Keyed: how a user spells and orders names changes no byte that leaves or is saved; only that user sees it.

    For each step of `normalize`, integers against texts, other spellings from round to round and over a restart. With
    names in another order, tables of unions and uploads are the same.
    """
    cases = 0
    for rule, other in RULES.items():

        def plain(name: Name, rule: Any = rule) -> Name:
            return f"{name} as it is" if rule is _first_word else name

        whole = rule in ((), ("nfc", "strip", "casefold"))
        for restarts in (False, True) if whole else (True,):
            right = _life(subject, rule, [plain] * 3, restarts=restarts)
            found = _life(
                subject, rule, [plain, other, other] if restarts else [other, plain, other], restarts=restarts
            )
            if found.passed != right.passed:
                others = len({*found.passed} - {*right.passed})
                raise Objection(f"normalize={rule!r}: {others} messages are others where names are spelt otherwise")
            if found.saved != right.saved:
                raise Objection(f"normalize={rule!r}: another state is saved where names are spelt otherwise")
            cases += len(found.passed) + len(found.saved)
            if not whole:
                continue
            found = _life(subject, rule, [other] * 3, turned=True, restarts=restarts)
            for (kind, payload), (_, due) in zip(found.said, right.said, strict=True):
                if payload != due:
                    raise Objection(f"normalize={rule!r}: {kind} is another one where names come in another order")
            cases += len(found.said)
    return cases
