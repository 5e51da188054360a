"""Clients that do not keep to what was agreed on, and texts that say more than what holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from secea import privacy
from secea.arithmetic import fixedpoint
from secea.arithmetic.fixedpoint import Floats, check_range
from secea.audit import KEYED, Mutant, Subject
from secea.audit.attacks.keyed import Overheard
from secea.audit.mutants.common import both
from secea.audit.mutants.derivations import replaced
from secea.audit.mutants.epochs import within
from secea.engines.store import Store
from secea.forms.keyed import planning
from secea.forms.keyed.client import KeyedClient
from secea.forms.keyed.form import Keyed
from secea.forms.keyed.masking import Batch
from secea.forms.keyed.tables import Tables
from secea.params import Params
from secea.party.client import Client
from secea.party.session import Session
from secea.table import Name, Table, same_twice
from secea.wire import snapshot
from secea.wire.keys import Hello, Roster
from secea.wire.link import Opened

_begin, _got_key, _restore = Client._begin, Client._got_key, Client.restore.__func__  # type: ignore[attr-defined]
_check_begin, _check_weights, _with_noise = KeyedClient.check_begin, Tables._check_weights, privacy.with_noise
_trust, _verify = planning.trust, Hello.verify.__func__  # type: ignore[attr-defined]


def _without_end(session: Session) -> Session:
    longer = object.__new__(type(session))
    for name, value in vars(session).items():
        object.__setattr__(longer, name, value)
    object.__setattr__(longer, "params", replace(session.params, rounds=(1 << 32) - 1))
    return longer


def _any_round(self: Client, opened: Opened) -> None:
    own, params = self.session, self.part.params  # type: ignore[attr-defined]
    self.session = _without_end(own)
    self.part.params = self.session.params  # type: ignore[attr-defined]
    try:
        _begin(self, opened)
    finally:
        self.session, self.part.params = own, params  # type: ignore[attr-defined]


def _any_union(self: Client, opened: Opened) -> None:
    own = self.session
    larger = _without_end(own)
    object.__setattr__(larger, "params", replace(own.params, max_union=None))
    object.__setattr__(larger.params, "max_union", 1 << 50)
    self.session = larger
    try:
        _got_key(self, opened)
    finally:
        self.session = own


def _beginning(matrix: Floats, names: Sequence[object], max_abs: float) -> None:
    check_range(matrix[: 1 + 8192 // max(1, matrix.shape[1])], names, max_abs)


def _any_weight(self: Tables, table: Table) -> None:
    if table.weights is None or not self._params.max_weight:
        _check_weights(self, table)


def _any_state(cls: type[Client], session: Session, identity: Any, data: bytes, *entropy: Any) -> Client:
    content = snapshot.loads(data)
    return _restore(cls, session, identity, snapshot.dumps(content | {"session": session.hash}), *entropy)  # type: ignore[no-any-return]


def _at_the_edge(form: Keyed, params: Params) -> tuple[str, ...]:
    N, T, D = params.clients, params.T, params.dropouts
    if 2 * D + T == N and T > 1:
        return _trust(form, replace(params, collusion=T - 1))
    return _trust(form, params)


def _of_one_row(params: Params, *given: Any, rows: int = 1) -> Params:
    return _with_noise(params, *given, rows=1)


def _without_last(self: Store, name: str, *, last: bool) -> bytes:
    return self._session + name.encode()


def _without_name(self: Store, name: str, *, last: bool) -> bytes:
    return self._session + bytes([last])


def _none_twice(names: Sequence[Name], found: Sequence[Name]) -> None:
    return None


def _any_session(
    cls: type[Hello], /, data: bytes, sender: int, roster: Roster, session: bytes, extra_bytes: int, **how: Any
) -> Hello:
    return _verify(cls, data, sender, roster, bytes(data[: len(session)]), extra_bytes, **how)  # type: ignore[no-any-return]


def _never_ends(self: Batch, q: int) -> bool:
    return bool(self.public) and self.first <= q


BATCH_WITHOUT_END = within(
    "batch-without-end", "Mask keys of a batch serve rounds after it, too.", Batch, "__contains__", _never_ends
)
NAMES_TWICE = replaced("names-twice", "One entity may have two names.", {same_twice: _none_twice})
ANY_SESSION = within("any-session", "Hellos of other sessions are taken.", Hello, "verify", classmethod(_any_session))
LAST_UNMARKED = within(
    "last-part-unmarked", "A file of state does not say which of its parts is the last.", Store, "_label", _without_last
)
NAME_UNMARKED = within(
    "state-without-a-name", "What is saved under one name loads under another.", Store, "_label", _without_name
)
ANY_ROUND = within(
    "any-round", "Clients take part in as many rounds as the server likes.", Client, "_begin", _any_round
)
ANY_UNION = within("any-union", "Clients take a union of any size.", Client, "_got_key", _any_union)
RANGE_OF_THE_BEGINNING = replaced(
    "range-of-the-beginning", "Only the first numbers of a table are looked at, whether they are in range.",
    {check_range: _beginning},
)  # fmt: skip
ANY_WEIGHT = within("any-weight", "Rows may weigh more than agreed.", Tables, "_check_weights", _any_weight)
ANY_STATE = within("any-state", "Saved state of another session is taken.", Client, "restore", classmethod(_any_state))
COVERED_AT_THE_EDGE = replaced(
    "covered-at-the-edge", "It is said that a server that deviates is covered where 2D + T = N.",
    {_trust: _at_the_edge},
)  # fmt: skip
NOISE_OF_ONE_ROW = Mutant(
    "noise-of-one-row", "Noise for a whole table is that for one row.",
    {KEYED: Subject(Overheard(), within=((privacy, "with_noise", _of_one_row),))},
)  # fmt: skip


def _clipped(matrix: Floats, max_abs: float) -> Floats:
    """As near to the bound as the type has a number."""
    return np.clip(matrix, -matrix.dtype.type(max_abs), matrix.dtype.type(max_abs))


EDGE_ROUNDED = within("edge-rounded", "A mean may be just beyond the range of inputs.", fixedpoint, "clip", _clipped)


def _as_it_is(matrix: Floats, max_abs: float) -> Floats:
    """Whatever the sum says."""
    return matrix


NOT_CLIPPED = both(
    "not-clipped", "A mean may be beyond the range of inputs.", within=((fixedpoint, "clip", _as_it_is),)
)
