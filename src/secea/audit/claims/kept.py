"""Claims about what clients keep to: bounds that were agreed on, the range of numbers, their own state."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from secea import privacy
from secea.audit import KEYED, PAILLIER, Objection, Subject, claim
from secea.audit import specification as spec
from secea.audit.attacks.stage import announcement, broadcast
from secea.audit.begins import believes
from secea.audit.claims.agreed import OF_MEANS, OPTIONS, PARAMS
from secea.audit.claims.common import SETS, made_tables
from secea.audit.claims.counts import form_of
from secea.audit.mutants import kept as mutants
from secea.audit.standing import attributes_stand_in, standing_in
from secea.engines.store import Store
from secea.errors import ParamsError, ProtocolError, SnapshotError, TableError, Uncovered
from secea.forms.keyed.client import KeyedClient
from secea.forms.keyed.form import Kind
from secea.params import Params
from secea.party.client import Client
from secea.party.server import Server
from secea.party.session import Session
from secea.table import Name, Table
from secea.wire.keys import Identity, Roster
from secea.wire.messages import TAG_BYTES

EVERYBODY: Final = range(len(SETS))
ROUNDS: Final = 2
EDGES: Final = 100
"""So many numbers are at an edge: what is below their grid is filled by chance."""
BOUNDS: Final = (0.1, 0.7, 1 / 3, 2.3, 7.7, 64.0)
"""Of most of them the nearest number is above them, of one type or another."""


def _of_rounds(subject: Subject) -> int:
    """Nobody trains or uploads for a round beyond the last one."""
    tables = made_tables(SETS)
    parties = subject.parties(tables, collusion=1, rounds=ROUNDS)
    parties.setup()
    parties.round(tables)
    parties.contribute(tables)
    for n, round_ in product(EVERYBODY, (ROUNDS, ROUNDS + 1, ROUNDS + 1000)):
        said = announcement(parties, "upload", EVERYBODY, n, round=round_)
        if believes(parties.clients[n], said) != (round_ <= ROUNDS):
            raise Objection(f"a client {'refuses' if round_ <= ROUNDS else 'takes part in'} round {round_} of {ROUNDS}")
    parties.exchange.run("upload", EVERYBODY)
    for n in EVERYBODY:
        if believes(parties.clients[n], announcement(parties, "ready", EVERYBODY, n)):
            raise Objection(f"a client trains for a round after the last of {ROUNDS}")
    return 4 * len(EVERYBODY)


def _of_unions(subject: Subject) -> int:
    """Nobody takes a union that is larger than agreed."""
    most = 9
    for size in (most, most + 1, 2 * most, 1 << 40):
        parties = subject.parties(made_tables(SETS), collusion=1, max_union=most, max_entities=4)
        parties.exchange.greet()
        parties.exchange.run(subject.form.setup_phase, EVERYBODY, until="table")
        for n in EVERYBODY:
            key = broadcast(parties, n, Kind.TAGS, bytes(8), size=size)[0]
            taken = False
            with suppress(ProtocolError):
                parties.clients[n].receive(key)
                taken = True
            if taken != (size <= most):
                raise Objection(f"a client {'takes' if taken else 'refuses'} a union of {size}, where {most} may be")
    return 4 * len(EVERYBODY)


@claim("attack", KEYED, mutants=(mutants.BATCH_WITHOUT_END,))
def batches_end(subject: Subject) -> int:
    """Keyed: mask keys of a batch serve each of its rounds once, and no round after it, whatever a server announces.

    Else both shares of one key could be asked for, in two rounds.
    """
    cases, tables = 0, made_tables(SETS)
    for size in (1, 2, 3):
        some = replace(subject, form=replace(form_of(subject), batch=size))
        parties = some.parties(tables, collusion=1, dropouts=1)
        parties.setup()
        for done in range(size + 1):
            parties.contribute(tables)
            for n, q in product(EVERYBODY, range(3 * size + 2)):
                taken = believes(parties.clients[n], announcement(parties, "upload", EVERYBODY, n, round=q))
                if taken != (done < q <= size):
                    what = "uploads for" if taken else "refuses"
                    raise Objection(f"a client {what} round {q} after {done} rounds of a batch of {size}")
                cases += 1
            if done < size:
                parties.exchange.run("upload", EVERYBODY)
    return cases


@claim("attack", KEYED, mutants=(mutants.ANY_ROUND, mutants.ANY_UNION))
def bounds_are_kept(subject: Subject) -> int:
    """Keyed: clients themselves keep to the numbers of rounds and of entities in a union that were agreed on.

    Whatever a server announces: sigma and epsilon are for so many rounds, and memory is for so many entities.
    """
    return _of_rounds(subject) + _of_unions(subject)


# --------------------------------------------------------------------------------------------------------------- tables


def _odd_places() -> Iterator[tuple[NDArray[Any], tuple[int, int]]]:
    """Tables, small and large, and a place in each that a look at a part of it would miss."""
    for dtype in (np.float64, np.float32):
        yield from ((np.zeros((13, 3), dtype), (row, column)) for row in range(13) for column in range(3))
        large = np.zeros((3, 1 << 16), dtype)
        yield from ((large, (row, column)) for row in range(3) for column in (0, 1 << 15, -1))


ONE_ENTITY: Final[Sequence[tuple[str, tuple[Name, Name]]]] = (
    ("", (7, "7")), ("casefold", ("Ada", "ADA")), ("strip", ("ada", " ada")), ("nfc", ("\u00e9", "e\u0301")),
    ("casefold", ("\u00df", "ss")), ("nfc,strip,casefold", (" E\u0301", "\u00e9")), ("", ("ada", "ada")),
)  # fmt: skip
"""Names that are one, after these steps."""


def _twice(subject: Subject) -> int:
    """No client has one entity under two names: one's row would go out for the other."""
    for steps, (one, other) in ONE_ENTITY:
        parties = subject.parties([{one: [1.0]}, {"eve": [1.0]}], collusion=1, max_entities=4, normalize=steps)
        for what in ("has", "comes to have"):
            with suppress(TableError):
                if what == "has":
                    parties.client(0, [one, other])
                else:
                    parties.clients[0].part.update([one, other])
                raise Objection(f"a client {what} {one!r} and {other!r}, which are one after normalize={steps!r}")
    return 2 * len(ONE_ENTITY)


@claim("record", KEYED, mutants=(mutants.RANGE_OF_THE_BEGINNING, mutants.ANY_WEIGHT, mutants.NAMES_TWICE))
def tables_in_range(subject: Subject) -> int:
    """Keyed: no table goes out with a number, or a weight, beyond what was agreed on, or with an entity twice.

    It would wrap around modulo the primes, and spoil a mean in silence; a weight beyond the bound would outweigh all.
    """
    cases = 0
    for options in ({}, {"max_weight": 9}, {"partial": True}):
        parties = subject.parties(made_tables(SETS), dim=3, collusion=1, max_abs=6.0, **options)
        part = parties.clients[0].part
        assert isinstance(part, KeyedClient)

        def taken(matrix: NDArray[Any], weights: NDArray[np.int64] | None, part: KeyedClient = part) -> bool:
            names = tuple(range(len(matrix)))
            part.tables._params = replace(part.params, dim=matrix.shape[1])
            try:
                part.tables.checked(Table.trusted(names, matrix, weights), names)
            except TableError:
                return False
            return True

        for matrix, place in _odd_places():
            most = matrix.dtype.type(6)
            beyond = np.nextafter(most, matrix.dtype.type(7))
            weights = np.ones(len(matrix), np.int64) if options else None
            for x in (most, -most, beyond, -beyond, np.inf, -np.inf, np.nan):
                matrix[place] = x
                if taken(matrix, weights) != (abs(x) <= 6):
                    raise Objection(f"a table with {x} in row {place[0]}, column {place[1]} is taken, or not")
                cases += 1
            matrix[place] = 0
            for weight in (0, 1, 9, 10, 1 << 40) if weights is not None else ():
                weights[place[0]] = weight  # type: ignore[index]
                if taken(matrix, weights) != (weight <= int(options.get("max_weight", 1))):
                    raise Objection(f"a row of weight {weight} is taken, or not, with {options}")
                cases += 1
    return cases + _twice(subject)


@claim("attack", KEYED, PAILLIER, mutants=(mutants.EDGE_ROUNDED, mutants.NOT_CLIPPED))
def means_in_range(subject: Subject) -> int:
    """Both forms: a mean is within the range of an input, in its float type: what a client got it can contribute.

    Where the bound is no number of that type, the next one may be above it, and a mean is less exact than that.
    """
    cases, types = 0, (np.float32, np.float64)
    for most, dtype in product(BOUNDS, types):
        edge = np.nextafter(np.asarray(most, dtype), np.zeros((), dtype))
        tables: list[Any] = [{"all": np.repeat([edge, -edge], EDGES)} for _ in range(3)]
        parties = subject.parties(tables, collusion=1, max_abs=most)
        parties.setup()
        for _ in range(2):
            try:
                found = parties.round(tables)
            except TableError as error:
                raise Objection(f"a mean cannot be contributed again, with max_abs={most}: {error}") from None
            if any(matrix.dtype != dtype or (abs(matrix.astype(np.float64)) > most).any() for matrix in found.values()):
                raise Objection(f"a mean of {np.dtype(dtype)} is beyond the bound {most}")
            tables = [{"all": matrix[0]} for _, matrix in sorted(found.items())]
            cases += 1
    return cases


# ---------------------------------------------------------------------------------------------------------------- state


@claim("record", KEYED, mutants=(mutants.ANY_STATE, mutants.ANY_SESSION))
def state_of_a_session(subject: Subject) -> int:
    """Keyed: saved state, and hellos, count in their own session alone, and state for its own client.

    Else a share of a key for few conspirators would serve where many may conspire, and budgets would begin anew.
    """
    identities = [Identity(bytes([n]) * 32) for n in range(7)]
    keys = tuple(each.public for each in identities)

    def made(options: dict[str, Any] | None = None, clients: tuple[bytes, ...] = keys[:5], **more: Any) -> Session:
        given: dict[str, Any] = {"clients": 5, "dim": 4, "collusion": 1, "max_entities": 10, "max_union": 30}
        form = replace(form_of(subject), **options or {})
        return subject.session(Params(**given | more), Roster(clients, keys[6]), form)

    mine = made()
    client = subject.client(mine, 0, identities[0], ("a", "b")).save()
    server = Server(mine, identities[6]).save()
    others = {
        **{name: made(**{name: value}) for name, value in {**PARAMS, **OF_MEANS}.items() if name != "key_bits"},
        **{name: made({name: value}) for name, value in OPTIONS[KEYED].items()},
        "a client": made(clients=(*keys[:4], keys[5])), "the order of clients": made(clients=(keys[0], *keys[4:0:-1])),
    }  # fmt: skip
    for what, session in others.items():
        for whose in ("client", "server"):
            try:
                if whose == "client":
                    subject.client.restore(session, identities[0], client)
                else:
                    Server.restore(session, identities[6], server)
            except SnapshotError:
                continue
            raise Objection(f"state of a {whose} is taken in a session that differs in {what}")
    for what, session in {**others, "nothing": mine}.items():
        if session.roster.key(1) != keys[1]:
            continue
        hello = subject.client(session, 1, identities[1], ()).link.hello_message()
        for who in (subject.client(mine, 0, identities[0], ()), Server(mine, identities[6])):
            with suppress(ProtocolError):
                who.receive(hello) if isinstance(who, Client) else who.receive(1, hello)
            if (who.link.incarnation(1) != b"") != (what == "nothing"):
                raise Objection(f"a hello is taken, or not, in a session that differs in {what}")
    with suppress(SnapshotError):
        subject.client.restore(mine, identities[1], client)
        raise Objection("state of a client is taken by another one")
    subject.client.restore(mine, identities[0], client)
    return 4 * len(others) + 3


PART: Final = 64
"""Bytes of a part of a file: elsewhere they are sixteen million."""


def _spoilt(text: bytes, sizes: Sequence[int]) -> Iterator[tuple[str, bytes]]:
    """A file that somebody has changed: cut, with parts in another order, one twice, one missing, one other bit."""
    at, head = len(text) - sum(sizes), text[: len(text) - sum(sizes)]
    parts = [text[at + sum(sizes[:i]) :][:size] for i, size in enumerate(sizes)]
    for i in range(len(parts)):
        yield f"cut before part {i}", head + b"".join(parts[:i])
        yield f"without part {i}", head + b"".join(parts[:i] + parts[i + 1 :])
        yield f"with part {i} twice", head + b"".join([*parts[: i + 1], *parts[i:]])
        changed = bytes([parts[i][0] ^ 1]) + parts[i][1:]
        yield f"with another bit in part {i}", head + b"".join([*parts[:i], changed, *parts[i + 1 :]])
    if len(parts) > 1:
        yield "with two parts changed round", head + b"".join([parts[1], parts[0], *parts[2:]])


@claim("attack", KEYED, mutants=(mutants.LAST_UNMARKED, mutants.NAME_UNMARKED))
def state_in_parts(subject: Subject) -> int:
    """Keyed: large state is saved in parts, and loads as it was or not at all: not cut, and with no part of another."""
    cases, identity = 0, Identity(bytes(range(32)))
    with TemporaryDirectory() as folder, standing_in({}, _PART_BYTES=PART):
        store = Store(folder, identity, bytes(32))
        for size in (0, 1, PART - 1, PART, PART + 1, 3 * PART, 3 * PART + 5):
            data = bytes(i % 251 for i in range(size))
            store.save("client", iter([data[:7], data[7:]]))
            (file,) = Path(folder).iterdir()
            text = file.read_bytes()
            if store.load("client") != data:
                raise Objection(f"state of {size} bytes is not what was saved")
            file.with_name(file.name.replace("client", "table")).write_bytes(text)
            whole = max(0, size - 1) // PART
            sizes = [*[PART + TAG_BYTES] * whole, size - whole * PART + TAG_BYTES]
            odd = [*_spoilt(text, sizes), ("saved under another name", b"")]
            for what, other in odd:
                file.write_bytes(other)
                with suppress(SnapshotError):
                    store.load("client" if other else "table")
                    raise Objection(f"state of {size} bytes {what} is taken")
                cases += 1
            store.forget("client")
            store.forget("table")
    return cases


# ----------------------------------------------------------------------------------------------------- what people read


def _as_it_is(asked: Params, subject: Subject) -> None:
    """What is said of a server that deviates."""
    form = form_of(subject)
    params = form.checked(asked)
    N, T, D = params.clients, params.T, params.dropouts
    right = spec.covered(N, T, D)
    said = " ".join(form.trust(params))
    if ("is not covered" in said) == right or ("(2D + T < N holds)" in said) != right:
        raise Objection(f"N={N}, T={T}, D={D}: it is said that a server that deviates is {'not ' * right}covered")
    warned = any(isinstance(each, Uncovered) for each in form.cautions(asked))
    if warned != (asked.collusion is None and not right):
        raise Objection(f"N={N}, T={T}, D={D}: there is {'a' if warned else 'no'} warning about a server that deviates")


def _of_whole_tables() -> int:
    """Noise for so many rows at once is larger by the root of their number; and it is computed for all rounds."""
    cases = 0
    for rows, clip, rounds in product((1, 4, 900), (None, 0.5), (1, 70)):
        asked: list[tuple[float, float, int]] = []

        def least(epsilon: float, delta: float, rounds: int, asked: list[Any] = asked) -> float:
            asked.append((epsilon, delta, rounds))
            return 3.0

        params = Params(5, dim=8, collusion=2, rounds=rounds, max_abs=2.0, precision=40)
        with attributes_stand_in((privacy, "_calibrated", least)):
            found = privacy.with_noise(params, 2.0, 1e-6, clip, rows=rows).noise
        due = math.sqrt(rows) * 3.0 * 2 * min(clip or math.inf, 2.0 * math.sqrt(8))
        if found < due or asked != [(2.0, 1e-6, rounds)]:
            raise Objection(f"noise for {rows} rows, {clip=}, {rounds} rounds: {found:g}, where {due:g} is due")
        cases += 1
    return cases


@claim("record", KEYED, mutants=(mutants.COVERED_AT_THE_EDGE, mutants.NOISE_OF_ONE_ROW))
def said_as_it_is(subject: Subject) -> int:
    """Keyed: what users are told is what holds: who is covered, and for how many rows and rounds noise is."""
    cases = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for N, D in product(range(2, 9), range(6)):
            for T in (None, *range(1, N)):
                with suppress(ParamsError):
                    _as_it_is(Params(N, dim=1, collusion=T, dropouts=D, max_entities=2, max_union=2), subject)
                    cases += 1
    return cases + _of_whole_tables()
