"""READY of the keyed form: the server learns that somebody's entities changed, never whose; and what they upload then.

The law of what a coalition sees is exact: the client's own code runs over every value of every mask and of every draw,
in a field of three elements.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import combinations, product
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from secea.arithmetic.field import M61
from secea.errors import SERVER, FederationError
from secea.forms.keyed import Keyed, Kind
from secea.forms.keyed import client as client_module
from secea.forms.keyed.client import KeyedClient, Union
from secea.party.phases import Agreement
from secea.table import TableLike
from secea.testing import Parties, Recorder
from secea.wire.keys import Opener, expand
from secea.wire.messages import Buffer, Header

P: Final = 3
Label = tuple[Any, ...]
Ask = tuple[bytes, int, frozenset[int]]
"""Under which L and before which round clients are asked, and whose entities have changed by then."""
Law = Counter[tuple[int, ...]]

# ------------------------------------------------------------------------------------------------ what a coalition sees


class Circle:
    """Clients that say whether their entities changed, in a tiny field; masks and draws are given."""

    def __init__(self, clients: int, monkeypatch: pytest.MonkeyPatch, relabel: Callable[[Label], Label]) -> None:
        self.clients, self.relabel = clients, relabel
        self.masks: dict[Label, int] = {}
        self.draws: dict[tuple[int, int], int] = {}
        self.labels: set[Label] = set()
        monkeypatch.setattr(client_module, "M61", P)
        monkeypatch.setattr(client_module, "expand", self._expand)

    def _expand(self, secret: bytes, purpose: str, *label: bytes) -> bytes:
        labelled = self.relabel((secret, purpose, *label))
        self.labels.add(labelled)
        return self.masks.get(labelled, 0).to_bytes(1, "little")

    def says(self, asks: Sequence[Ask], *, anew: bool = False) -> list[tuple[int, ...]]:
        """What each client sends when it is asked again and again; a client's draws are a list of its own."""
        said = []
        for n in range(self.clients):
            left = iter([self.draws.get((n, k), 0) for k in range(len(asks))])
            pairs = {v: b"%d %d" % (min(n, v), max(n, v)) for v in range(self.clients) if v != n}
            stub: Any = SimpleNamespace(
                number=n, union=None, renamed=False, _entropy=lambda _, left=left: bytes([next(left)])
            )
            heard = []
            for L, q, changed in asks:
                if stub.union is None or stub.union.L != L or anew:
                    stub.union = Union(b"", b"", L=L, pairs=pairs)
                stub.renamed = n in changed
                KeyedClient._say(stub, Agreement(round=q))
                heard.append(int.from_bytes(stub.union.said[1], "little"))
            said.append(tuple(heard))
        return said


def law(circle: Circle, asks: Sequence[Ask], coalition: Iterable[int], *, anew: bool = False) -> Law:
    """Of everything that honest clients say, over all their masks and draws.

    Masks that a member of the coalition has are known to it: they stay as they are.
    """
    honest = [n for n in range(circle.clients) if n not in set(coalition)]
    hidden = {b"%d %d" % pair for pair in combinations(honest, 2)}
    circle.masks, circle.draws, circle.labels = {}, {}, set()
    circle.says(asks, anew=anew)
    masked = sorted((label for label in circle.labels if label[0] in hidden), key=repr)
    drawn = [(n, k) for n in honest for k, (_, _, changed) in enumerate(asks) if n in changed]
    seen: Law = Counter()
    for values in product(range(P), repeat=len(masked)):
        circle.masks = dict(zip(masked, values, strict=True))
        for draws in product(range(P - 1), repeat=len(drawn)):
            circle.draws = dict(zip(drawn, draws, strict=True))
            said = circle.says(asks, anew=anew)
            seen[tuple(x for n in honest for x in said[n])] += 1
    return seen


def distance(one: Law, other: Law) -> Fraction:
    """Half the sum of the differences of two laws."""
    total, others = one.total(), other.total()
    return sum((abs(Fraction(one[x], total) - Fraction(other[x], others)) for x in one | other), Fraction()) / 2


def worlds(honest: Sequence[int]) -> list[frozenset[int]]:
    """Every set of honest clients whose entities changed."""
    return [frozenset(some) for size in range(len(honest) + 1) for some in combinations(honest, size)]


def as_it_is(label: Label) -> Label:
    return label


def no_mask(label: Label) -> Label:
    return b"nobody", *label[1:]


COALITIONS: Final = [(3, ()), (3, (1,)), (4, (0, 2)), (4, (3,))]


@pytest.mark.parametrize(("clients", "coalition"), COALITIONS)
def test_a_coalition_sees_whether_an_honest_client_changed_and_not_which(
    clients: int, coalition: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    circle = Circle(clients, monkeypatch, as_it_is)
    honest = [n for n in range(clients) if n not in coalition]
    laws = {changed: law(circle, [(b"L", 0, changed)], coalition) for changed in worlds(honest)}
    for one, other in combinations(laws, 2):
        apart = distance(laws[one], laws[other])
        if len(one) == len(other):
            assert apart == 0, (one, other)
        elif one:  # two that changed may cancel by chance: of 2^61 draws, one
            assert apart <= Fraction(1, P - 1), (one, other)
        else:
            assert apart >= 1 - Fraction(1, P - 1)
    with_them = law(circle, [(b"L", 0, frozenset({*coalition, honest[0]}))], coalition)
    assert with_them == laws[frozenset({honest[0]})]  # whether one of their own changed makes no difference


def spread(asks: Sequence[tuple[bytes, int]], honest: Sequence[int]) -> list[list[Ask]]:
    """Nobody changed when they were first asked; then one of the honest clients did."""
    return [[(*asks[0], frozenset()), *((L, q, frozenset({changed})) for L, q in asks[1:])] for changed in honest]


TWICE: Final = {
    "a later round": [(b"L", 0), (b"L", 1)],
    "another union of the same pairs": [(b"L", 0), (b"M", 0)],
    "the same round again": [(b"L", 0), (b"L", 0)],
}


@pytest.mark.parametrize("asks", TWICE.values(), ids=TWICE)
@pytest.mark.parametrize("coalition", [(), (1,)])
def test_who_changed_between_two_questions_is_not_seen_either(
    asks: list[tuple[bytes, int]], coalition: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = [n for n in range(3) if n not in coalition]
    circle = Circle(3, monkeypatch, as_it_is)
    laws = [law(circle, world, coalition) for world in spread(asks, honest)]
    assert all(distance(each, laws[0]) == 0 for each in laws)
    unchanged = law(circle, [(L, q, frozenset()) for L, q in asks], coalition)
    assert distance(unchanged, laws[0]) == (asks[0] != asks[1])  # under one mask it says what it said


@pytest.mark.parametrize(
    ("relabel", "asks"),
    [
        (no_mask, TWICE["a later round"]),
        (lambda label: label[:-1], TWICE["a later round"]),
        (lambda label: (*label[:2], *label[3:]), TWICE["another union of the same pairs"]),
    ],
    ids=["no mask", "a mask without the round", "a mask without L"],
)
def test_without_a_mask_of_its_own_each_question_tells_who_changed(
    relabel: Callable[[Label], Label], asks: list[tuple[bytes, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    circle = Circle(3, monkeypatch, relabel)
    first, second = (law(circle, world, [1]) for world in spread(asks, [0, 2]))
    assert distance(first, second) == 1  # the two worlds have no view in common


def test_a_client_that_draws_anew_when_it_is_asked_again_tells_that_it_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    worlds = [[(b"L", 0, frozenset({n}))] * 2 for n in (0, 2)]
    circle = Circle(3, monkeypatch, as_it_is)
    assert law(circle, worlds[0], [1]) == law(circle, worlds[1], [1])
    anew = [law(circle, world, [1], anew=True) for world in worlds]
    assert distance(*anew) == 1 - Fraction(1, P - 1)  # but for two draws that are the same


# ------------------------------------------------------------------------------------------------------- real parties

Tables = list[dict[str, NDArray[np.float64]]]
DIM: Final = 2


def tables_of(owned: Sequence[Iterable[str]], seed: int) -> Tables:
    rng = np.random.default_rng(seed)
    return [{name: rng.normal(size=DIM) for name in sorted(names)} for names in owned]


def founded(tables: Tables, dropouts: int = 0, **more: Any) -> Parties:
    """Three clients or more, with room for new names, after their set-up."""
    parties = Parties.of(
        tables, Keyed(batch=4, max_new_entities=4), collusion=1, dropouts=dropouts, dim=DIM, max_entities=8,
        max_union=16, **more,
    )  # fmt: skip
    parties.setup()
    return parties


def elements(hops: Iterable[Any], parties: Parties) -> dict[int, int]:
    """What the server got last from each client."""
    found = {}
    for hop in hops:
        if hop.header.kind is Kind.READY:
            key = parties.clients[hop.sender].link.channels[SERVER].derive("seal", hop.header.label())
            payload = bytes(Opener(key, hop.header).open(hop.header, hop.message))
            found[hop.sender] = int.from_bytes(payload[16:], "little")
    return found


def part_of(parties: Parties, n: int) -> KeyedClient:
    part = parties.clients[n].part
    assert isinstance(part, KeyedClient)
    return part


def mask_of(parties: Parties, n: int, q: int) -> int:
    """What lies over the word of client n, from the keys of its pairs."""
    union = part_of(parties, n).union
    assert union is not None
    over = {v: int.from_bytes(expand(pair, "ready", union.L, b"%d" % q), "little") for v, pair in union.pairs.items()}
    return sum(mask if n < v else -mask for v, mask in over.items()) % M61


@pytest.mark.parametrize("dropouts", [0, 1])
@pytest.mark.parametrize("changed", [(), (0,), (3,), (1, 2), (0, 1, 2, 3)], ids=str)
def test_what_real_clients_say_is_under_masks_that_cancel_and_the_server_hears_whether(
    dropouts: int, changed: tuple[int, ...]
) -> None:
    recorder = Recorder(Kind)
    tables = tables_of(["abc", "bc", "ac", "cd"], 1)
    parties = founded(tables, dropouts, tap=recorder)
    for q in (0, 1):
        for n in changed:
            tables[n] = {name: row for name, row in tables[n].items() if name != "c"} | {f"new {q}": np.ones(DIM)}
            part_of(parties, n).update(tables[n])
        parties.contribute(tables)
        said = elements(recorder.hops, parties)
        bare = {n: (said[n] - mask_of(parties, n, q)) % M61 for n in range(4)}
        assert {n for n, word in bare.items() if word} == set(changed)
        assert sum(mask_of(parties, n, q) for n in range(4)) % M61 == 0
        assert all(said.values())
        assert parties.server.part.renamed == bool(changed)
        parties.exchange.run("upload", range(4))
    if changed:
        parties.exchange.run("list", range(4))
        if dropouts and not parties.server.part.prepared(parties.server.at):
            parties.exchange.run("batch", range(4))
    parties.round(tables)
    assert not parties.server.part.renamed


def test_a_client_that_is_asked_again_before_a_round_says_the_same_whatever_changed_since() -> None:
    recorder = Recorder(Kind)
    tables = tables_of(["ab", "b", "ab"], 2)
    parties = founded(tables, tap=recorder)
    parties.contribute(tables)
    first = elements(recorder.hops, parties)
    part_of(parties, 1).update(["a"])
    tables[1] = {"a": np.zeros(DIM)}
    parties.contribute(tables)  # the server gave up what it had begun, say
    assert elements(recorder.hops, parties) == first
    assert not parties.server.part.renamed
    parties.exchange.run("upload", range(3))
    parties.contribute(tables)
    assert parties.server.part.renamed


def test_unions_of_other_members_tell_whether_who_was_left_out_had_changed() -> None:
    """It stays visible (K8): the sum is over the members, and the server chooses who they are."""
    tables = tables_of(["ab", "b", "ab", "a"], 4)
    heard = {}
    for changed in (2, 3):
        parties, tables_now = founded(tables), [dict(table) for table in tables]
        part_of(parties, changed).update(["b"])
        tables_now[changed] = {"b": np.zeros(DIM)}
        words = []
        for members in ((0, 1, 2, 3), (0, 1, 2)):
            parties.union(members)
            parties.contribute([table if n in members else None for n, table in enumerate(tables_now)])
            words.append(parties.server.part.renamed)
        heard[changed] = words
    assert heard == {2: [True, True], 3: [True, False]}


# ------------------------------------------------------------------------------------------ the upload of who changed


def traced(changes: int | None) -> list[tuple[int, int, str, int]]:
    """A round in which a client gave up an entity and took up another one: who sent what to whom, with its size."""
    trace = []

    def tap(sender: int, receiver: int, message: Buffer) -> Iterable[Buffer]:
        if sender != SERVER:
            trace.append((sender, receiver, Header.parse(message, sender, Kind).kind.name, len(message)))
        return (message,)

    tables = tables_of(["ab", "ab", "ab"], 3)
    parties = founded(tables, tap=tap)
    if changes is not None:
        part_of(parties, changes).update(["b", "c"])
        tables[changes] = {"b": np.zeros(DIM), "c": np.ones(DIM)}
    try:
        parties.round(tables)
    except FederationError as error:
        trace.append((SERVER, SERVER, str(error).replace(str(changes), "?"), 0))
    return trace


def test_what_is_sent_in_a_round_does_not_depend_on_who_changed() -> None:
    assert traced(0) == traced(1) == traced(2) == traced(None)


def test_a_changed_client_that_refuses_to_upload_tells_that_it_is_the_one(monkeypatch: pytest.MonkeyPatch) -> None:
    contribute = KeyedClient.contribute

    def refusing(self: KeyedClient, table: TableLike, round: int, at: Agreement) -> None:
        if self.renamed:
            raise FederationError(f"client {self.number} cannot begin a round: its entities changed")
        contribute(self, table, round, at)

    monkeypatch.setattr(KeyedClient, "contribute", refusing)
    assert traced(0) != traced(None)


def owned(rng: np.random.Generator, clients: int, names: str) -> list[set[str]]:
    return [{name for name in names if rng.integers(2)} for _ in range(clients)]


@pytest.mark.parametrize("dropouts", [0, 1])
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32 - 1))
def test_who_gave_up_an_entity_is_no_owner_of_it_and_the_other_means_are_right(dropouts: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    before = owned(rng, 4, "abcdef")
    parties = founded(tables_of(before, seed), dropouts)
    after = [set(names) for names in before]
    for n in range(4):
        if rng.integers(2):
            after[n] = {name for name in before[n] if rng.integers(3)} | {name for name in "fgh" if rng.integers(2)}
            part_of(parties, n).update(after[n])
    tables = tables_of(after, seed + 1)
    found = parties.round(tables)
    assert parties.server.part.renamed == (after != before)
    close = parties.session.params.resolution
    for n, table in enumerate(tables):
        for name, row in zip(table, found[n], strict=True):
            if name not in before[n]:  # it has no key for it yet
                assert row.tolist() == table[name].tolist()
                continue
            rows = [tables[v][name] for v in range(4) if name in before[v] & after[v]]
            assert np.abs(row - np.mean(rows, axis=0)).max() < close
