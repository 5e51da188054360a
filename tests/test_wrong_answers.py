"""Wrong answers in whole federations: noticed with one answer more than needed, found and left out with two.

And what the checks without redundancy let pass: each such limit is a test of its own, named so.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from federation import SMALL, Hop, Parties, Tables, entropy, random_tables, true_means
from secea import correction
from secea.arithmetic.field import Residues, Ring
from secea.client import Client
from secea.client import Phase as ClientPhase
from secea.engines.local import Federation
from secea.errors import SERVER, FaultyPeer, FaultyPeerOrRelay, FederationError, ProtocolError
from secea.params import Params
from secea.retrieval import Answerer
from secea.server import Phase
from secea.sharing import Deal, ones_at
from secea.table import Name
from secea.wire.endpoint import Stage
from secea.wire.messages import Buffer, Kind

BOTH = ["reciprocal", "paillier"]
both = pytest.mark.parametrize("form", BOTH)
SETS: Sequence[Sequence[Name]] = (["a", "b"], ["b", "c"], ["a", "c"], ["c", "d"], ["d", "a"], ["b"], ["e", "a"])

# -------------------------------------------------------------------------------------------------- clients that lie

Lie = Callable[[Ring, int, int, Residues], Residues]
"""(ring, who asked, chunk, right answers [P, rows, L]) -> the error that is added to them."""


@dataclass
class Lying:
    """A form whose answers are wrong."""

    form: Any
    lie: Lie

    def __getattr__(self, name: str) -> Any:
        return getattr(self.form, name)

    def answerer(self, wire: Any, stage: Any, n: int) -> Answerer:
        return LyingAnswerer(self.form.answerer(wire, stage, n), n, self)


@dataclass
class LyingAnswerer:
    real: Answerer
    asker: int
    lying: Lying
    stored_bytes: int = 0

    def prepare(self, chunk: int, rows: int) -> None:
        self.real.prepare(chunk, rows)

    def begin(self, chunk: int, rows: int) -> Residues:
        return self.real.begin(chunk, rows)

    def cover(self, chunk: int, answers: Residues) -> Buffer:
        ring = self.lying.form.ring
        return self.real.cover(chunk, ring.add(answers, self.lying.lie(ring, self.asker, chunk, answers)))


def lie(client: Client, how: Lie) -> None:
    """From now on the client's answers are wrong."""
    lying = copy.copy(client.session)
    lying.__dict__["form"] = Lying(client.session.form, how)
    client.session = lying


def repent(client: Client) -> None:
    form = client.session.form
    if isinstance(form, Lying):
        honest = copy.copy(client.session)
        honest.__dict__["form"] = form.form
        client.session = honest


def everything(ring: Ring, n: int, chunk: int, answers: Residues) -> Residues:
    rng = np.random.default_rng(n)
    return ring.constant(rng.integers(1, 2**62, answers.shape[1:]))


def one_element(ring: Ring, n: int, chunk: int, answers: Residues) -> Residues:
    error = ring.zeros(*answers.shape[1:])
    error[:, -1, 0] = 1
    return error


def one_prime(ring: Ring, n: int, chunk: int, answers: Residues) -> Residues:
    error = ring.zeros(*answers.shape[1:])
    error[-1, 0, -1] = 1
    return error


def only_to(asker: int, how: Lie) -> Lie:
    return lambda ring, n, chunk, answers: (
        how(ring, n, chunk, answers) if n == asker else ring.zeros(*answers.shape[1:])
    )


LIES = {"everything": everything, "one element": one_element, "one prime of one element": one_prime}

# ------------------------------------------------------------------------------------------------------- federations


@dataclass
class Whole:
    """A federation in one process, and what is checked of it."""

    fed: Federation
    seed: object
    rounds: int = 0

    @property
    def N(self) -> int:
        return self.fed.params.N

    def tables(self) -> Tables:
        self.rounds += 1
        return random_tables(SETS[: self.N], 3, (self.seed, self.rounds))

    def round(self, vanish: Iterable[int] = ()) -> list[ProtocolError]:
        """A round with the right means for all who stay; gives the faults that were named in it."""
        tables, before = self.tables(), len(self.fed.faults)
        vanish = tuple(vanish)
        found, expected = self.fed.round(tables, vanish=vanish), true_means(tables)
        for n, table in enumerate(found):
            if n in vanish:
                assert table is None
                continue
            assert set(table) == set(SETS[n])
            for name, row in table.items():
                assert np.abs(row - expected[name]).max() <= self.fed.params.resolution
        return self.fed.faults[before:]

    def fails(self) -> ProtocolError:
        """A round that gives no result to anyone."""
        with pytest.raises(ProtocolError) as caught:
            self.fed.round(self.tables())
        for client in self.fed.clients.values():
            assert client.means is None
            assert client.phase is ClientPhase.READY
        return caught.value

    def honest(self) -> None:
        """Nobody lies any more, and the next round is right."""
        for client in self.fed.clients.values():
            repent(client)
        assert self.round() == []


def federation(form: str, N: int, T: int, D: int) -> Whole:
    params = Params(N, 3, collusion=T, dropouts=D, **SMALL)
    seed = (form, N, T, D)
    fed = Federation(params, form, entropy=entropy(seed))
    fed.setup(SETS[:N])
    return Whole(fed, seed)


def surplus(N: int, T: int, D: int) -> int:
    return N - Params(N, 3, collusion=T, dropouts=D).need


NOTICED = [(4, 1, 0), (6, 1, 0), (6, 2, 1)]
FOUND = [(5, 1, 1), (6, 1, 2), (7, 1, 2), (7, 2, 2), (7, 1, 3)]
BARE = [(3, 1, 0), (5, 1, 0), (5, 2, 0), (7, 1, 0), (7, 2, 0)]


def test_the_federations_here_have_the_surplus_that_their_lists_say() -> None:
    assert [surplus(*each) for each in NOTICED] == [1, 1, 1]
    assert [surplus(*each) for each in FOUND] == [2, 3, 2, 2, 4]
    assert [surplus(*each) for each in BARE] == [0] * 5


# ------------------------------------------------------------------------------------------------ two extra: found


def check_blame(faults: Sequence[ProtocolError], liar: int, askers: Iterable[int]) -> None:
    """Each asker names the liar or the server; the liar, who knows that its answer was right, the server alone."""
    expected = [(SERVER,) if n == liar else (liar, SERVER) for n in askers]
    assert sorted(fault.suspects for fault in faults) == sorted(expected)
    for fault in faults:
        assert type(fault) is (FaultyPeer if fault.suspects == (SERVER,) else FaultyPeerOrRelay)


@both
@pytest.mark.parametrize("size", FOUND)
def test_with_two_extra_answers_a_wrong_one_is_found_and_the_means_are_right_without_it(
    form: str, size: tuple[int, int, int]
) -> None:
    whole = federation(form, *size)
    for liar in range(whole.N):
        kind = list(LIES)[liar % 3]
        lie(whole.fed.clients[liar], LIES[kind])
        check_blame(whole.round(), liar, range(whole.N))
        repent(whole.fed.clients[liar])
    whole.honest()


@both
@pytest.mark.parametrize("kind", LIES)
def test_an_answer_that_is_wrong_towards_one_client_alone_is_found_by_that_client_alone(form: str, kind: str) -> None:
    whole = federation(form, 5, 1, 1)
    for liar, asker in [(0, 4), (4, 0), (2, 1), (3, 3)]:
        lie(whole.fed.clients[liar], only_to(asker, LIES[kind]))
        check_blame(whole.round(), liar, [asker])
        repent(whole.fed.clients[liar])
    whole.honest()


@both
def test_with_four_extra_answers_two_wrong_ones_are_found_whatever_they_agree_on(form: str) -> None:
    whole = federation(form, 7, 1, 3)
    for pair in [(0, 1), (0, 6), (3, 5)]:
        for liar in pair:
            lie(whole.fed.clients[liar], everything)
        faults = whole.round()
        expected = [(SERVER,) if n == liar else (liar, SERVER) for n in range(7) for liar in pair]
        assert sorted(fault.suspects for fault in faults) == sorted(expected)
        for liar in pair:
            repent(whole.fed.clients[liar])
    whole.honest()


# --------------------------------------------------------------------------------------------- one extra: noticed


@both
@pytest.mark.parametrize("size", NOTICED)
def test_with_one_extra_answer_a_wrong_one_is_noticed_and_no_mean_is_released(
    form: str, size: tuple[int, int, int]
) -> None:
    whole = federation(form, *size)
    for liar in range(whole.N):
        lie(whole.fed.clients[liar], list(LIES.values())[liar % 3])
        error = whole.fails()
        assert error.suspects[0] == SERVER
        assert len(error.suspects) == whole.N  # the server, and all who answered but the client that says so
        repent(whole.fed.clients[liar])
    whole.honest()


@both
def test_everyone_who_notices_suspects_the_server_and_those_who_answered_and_never_itself(form: str) -> None:
    parties = Parties(SETS[:4], form=form)
    parties.setup()
    tables = parties.tables()
    parties.begin(tables)
    parties.until(Phase.ANSWER)
    lie(parties.clients[2], one_element)
    parties.up()
    parties.server.close()
    means = [Hop(SERVER, n, bytes(message)) for n, message in parties.server.outbox()]
    for hop in means:
        assert parties.refused(hop).suspects == (SERVER, *(v for v in range(4) if v != hop.receiver))
    for client in parties.clients.values():
        with pytest.raises(FederationError):
            client.means_like(client.checked(tables[client.number]))
        assert client.faults == []
        client.abandon()
        assert client.means is None
    repent(parties.clients[2])
    parties.goes_on()


# ---------------------------------------------------------------------------- together with clients that are lost


@both
def test_lost_clients_use_up_the_surplus_that_finds_and_notices_wrong_answers(form: str) -> None:
    parties = Parties(SETS[:6], form=form, dropouts=3)
    assert parties.params.need == 3
    parties.setup()

    def answered_by(*clients: int) -> list[Hop]:
        """A round in which client 1 lies and these clients answer; client 0 does not."""
        parties.present = set(range(6))
        parties.begin(tables)
        parties.until(Phase.ANSWER)
        lie(parties.clients[1], everything)
        parties.present = set(clients)
        parties.up()
        repent(parties.clients[1])
        parties.server.close()
        return [hop for hop in means_of(parties) if hop.receiver in clients]

    tables = parties.tables()
    for hop in answered_by(1, 2, 3, 4, 5):  # two extra: found
        parties.deliver(hop)
        (fault,) = parties.clients[hop.receiver].faults
        assert fault.suspects == ((SERVER,) if hop.receiver == 1 else (1, SERVER))
    parties.check(tables, range(6))
    for hop in answered_by(1, 2, 4, 5):  # one extra: noticed
        assert set(parties.refused(hop).suspects) == {SERVER, 1, 2, 4, 5} - {hop.receiver}
    for hop in answered_by(1, 2, 5):  # none: out of range
        assert set(parties.refused(hop).suspects) == {SERVER, 1, 2, 5} - {hop.receiver}
    for hop in answered_by(2, 4, 5):  # the liar is lost before it has answered
        parties.deliver(hop)
        assert parties.clients[hop.receiver].faults == []
    parties.check(tables, range(6))
    parties.present = set(range(6))
    parties.goes_on()


def test_a_liar_in_a_federation_that_loses_clients_while_they_answer_is_found_or_noticed() -> None:
    whole = federation("reciprocal", 7, 1, 3)  # those who are lost have answered all but the last client's queries
    lie(whole.fed.clients[3], everything)
    check_blame(whole.round(vanish=[0, 1]), 3, [2, 3, 4, 5, 6])
    with pytest.raises(ProtocolError) as caught:
        whole.fed.round(whole.tables(), vanish=[0, 1, 2])
    assert caught.value.suspects == (SERVER, 3, 4, 5)  # says client 6: three of its seven answers are missing
    assert whole.fed.clients[6].means is None
    whole.honest()


# ------------------------------------------------------------------------------------- no extra: what the checks catch


@both
@pytest.mark.parametrize("size", BARE)
def test_without_redundancy_answers_that_are_random_are_out_of_range_or_in_the_padding(
    form: str, size: tuple[int, int, int]
) -> None:
    whole = federation(form, *size)
    for liar in range(whole.N):
        lie(whole.fed.clients[liar], everything)
        error = whole.fails()
        assert error.suspects[0] == SERVER
        assert len(error.suspects) == whole.N
        repent(whole.fed.clients[liar])
    whole.honest()


def shift(parties: Parties, liar: int, by: int, rows: Callable[[int], Sequence[int]]) -> Lie:
    """An error that moves the first column of each block by a small multiple of `by`, in the given rows of an asker.

    The interpolation's coefficients are fractions with small denominators: times all of those they are integers. They
    are public, and the same in every prime.
    """
    code, everyone = parties.session.code, range(parties.params.need)
    known, scale = code.at(everyone), 1
    for at in code.data_points:
        others = [k for k in known if k != known[liar]]
        weight = Fraction(1)
        for k in others:
            weight *= Fraction(at - k, known[liar] - k)
        scale = scale * weight.denominator

    def how(ring: Ring, n: int, chunk: int, answers: Residues) -> Residues:
        error = np.zeros(answers.shape[1:], object)
        error[list(rows(n)), 0] = by * scale
        return ring.constant(error)

    return how


def real_rows(parties: Parties) -> Callable[[int], Sequence[int]]:
    """What a liar cannot know: in which queries of each client there is an entity of its own."""
    return lambda n: np.flatnonzero(parties.clients[n].placement >= 0).tolist()


def step_of(parties: Parties) -> int:
    """Of the integers that stand for a result: what moves a mean by a hundred times the resolution, or more."""
    if parties.session.form.name == "paillier":
        return 100 * parties.params.N
    return int(parties.params.C * 2**parties.session.form.f * parties.params.resolution * 100)  # type: ignore[attr-defined]


@both
@pytest.mark.parametrize("N", [3, 5])
def test_limit_without_redundancy_a_small_shift_of_the_right_queries_passes(form: str, N: int) -> None:
    """The liar must know, or guess, which queries are no dummies: everything else that it needs is public."""
    parties = Parties(SETS[:N], form=form, dim=4)
    parties.setup()
    tables = [{name: row / 8 for name, row in table.items()} for table in parties.tables()]
    parties.begin(tables)
    parties.until(Phase.ANSWER)
    lie(parties.clients[1], shift(parties, 1, step_of(parties), real_rows(parties)))
    parties.until(Phase.READY)
    expected = true_means(tables)
    for client in parties.clients.values():
        assert client.means is not None
        assert client.faults == []
        for name, mean in zip(client.names, client.means, strict=True):
            assert np.abs(mean - expected[name]).max() > 10 * parties.params.resolution
            assert np.abs(mean - expected[name]).max() < 1


@both
@pytest.mark.parametrize("N", [3, 5])
def test_without_redundancy_the_same_shift_of_all_queries_is_caught_by_the_dummies(form: str, N: int) -> None:
    parties = Parties(SETS[:N], form=form, dim=4)
    parties.setup()
    tables = [{name: row / 8 for name, row in table.items()} for table in parties.tables()]
    parties.begin(tables)
    parties.until(Phase.ANSWER)
    queries = parties.session.query_count
    assert all((client.placement < 0).any() for client in parties.clients.values())
    lie(parties.clients[1], shift(parties, 1, step_of(parties), lambda n: range(queries)))
    parties.up()
    parties.server.close()
    for n, message in list(parties.server.outbox()):
        error = parties.refused(Hop(SERVER, n, bytes(message)))
        assert set(error.suspects) == {SERVER, *range(N)} - {n}


@both
def test_with_one_extra_answer_the_shift_that_passes_without_it_is_noticed(form: str) -> None:
    parties = Parties(SETS[:4], form=form, dim=4)
    parties.setup()
    parties.begin(parties.tables())
    parties.until(Phase.ANSWER)
    lie(parties.clients[1], shift(parties, 1, step_of(parties), real_rows(parties)))
    parties.up()
    parties.server.close()
    for n, message in list(parties.server.outbox()):
        assert SERVER in parties.refused(Hop(SERVER, n, bytes(message))).suspects


# ---------------------------------------------------------------------------------------------------- wrong openings


def open_wrongly(client: Client, error: Callable[[Residues], Residues]) -> None:
    right = client._openings
    ring = client.session.ring

    def wrong() -> Residues:
        openings = right()
        return ring.add(openings, error(openings))

    client._openings = wrong  # type: ignore[method-assign]


def one_opening(openings: Residues) -> Residues:
    error = np.zeros_like(openings)
    error[0, -1, 0] = 1
    return error


@pytest.mark.parametrize("size", [(5, 1, 1), (7, 1, 2), (7, 2, 2)])
def test_with_two_extra_openings_a_wrong_one_is_found_and_the_weights_are_right(size: tuple[int, int, int]) -> None:
    N, T, D = size
    for liar in range(N):
        parties = Parties(SETS[:N], collusion=T, dropouts=D)
        open_wrongly(parties.clients[liar], one_opening)
        parties.setup()
        assert [fault.suspects for fault in parties.server.faults] == [(liar,)]
        parties.goes_on()


@pytest.mark.parametrize("size", [(4, 1, 0), (6, 1, 0), (5, 1, 0), (7, 2, 0), (7, 1, 0)])
def test_one_extra_opening_or_more_than_one_block_notices_a_wrong_one(size: tuple[int, int, int]) -> None:
    N, T, D = size
    assert surplus(*size) == 1 or Params(N, 3, collusion=T, dropouts=D).K > 1
    for liar in range(N):
        parties = Parties(SETS[:N], collusion=T, dropouts=D)
        parties.until(Phase.OPENING)
        open_wrongly(parties.clients[liar], one_opening)
        parties.up()
        with pytest.raises(ProtocolError, match="contradict") as caught:
            parties.server.close()
        assert caught.value.suspects == tuple(range(N))


def test_after_openings_that_contradict_each_other_the_federation_goes_on_without_the_lie() -> None:
    whole = federation("reciprocal", 6, 2, 1)  # one extra; with five clients none, and one block
    fed, tables = whole.fed, whole.tables()
    client = fed.clients[3]
    absent: list[Any] = [*tables[:5], None]
    fed.round(absent)  # the weights are for five now
    open_wrongly(client, one_opening)
    with pytest.raises(ProtocolError, match="contradict"):
        fed.round(tables)
    assert all(c.means is None or c.phase is ClientPhase.READY for c in fed.clients.values())
    del client._openings
    whole.honest()


def test_limit_with_one_block_and_no_extra_opening_a_client_can_change_any_count() -> None:
    """It knows rho, so it can add 1 to the count of a query: the mean S/c becomes S/(c+1)."""
    parties = Parties(SETS[:3])
    assert (parties.params.K, parties.params.need) == (1, 3)
    parties.until(Phase.OPENING)
    client, ring, code = parties.clients[2], parties.session.ring, parties.session.code
    weight = code.matrix(code.at(range(3)), code.data_points)[:, 0, 2]
    inverse = ring.inverse(np.ascontiguousarray(weight[:, None]))

    def one_more(openings: Residues) -> Residues:
        scale = np.ascontiguousarray(np.broadcast_to(inverse[:, :, None], openings.shape))
        error = ring.multiply(client._rho(), scale)
        error[:, 1:] = 0  # for the queries of client 0 alone
        return error

    open_wrongly(client, one_more)
    parties.setup()
    tables = parties.tables()
    parties.round(tables)
    owners = {name: sum(name in s for s in SETS[:3]) for s in SETS[:3] for name in s}
    means = parties.clients[0].means
    assert means is not None
    for name, mean in zip(parties.clients[0].names, means, strict=True):
        wrong = true_means(tables)[name] * owners[name] / (owners[name] + 1)
        assert np.abs(mean - wrong).max() <= parties.params.resolution


# ------------------------------------------------------------------------------------------------ a server that lies


def means_of(parties: Parties) -> list[Hop]:
    return [Hop(SERVER, n, bytes(message)) for n, message in parties.server.outbox()]


def at_the_means(form: str = "reciprocal", N: int = 5, D: int = 1) -> tuple[Parties, Tables]:
    """A round whose means are made and not delivered."""
    parties = Parties(SETS[:N], form=form, dropouts=D)
    parties.setup()
    tables = parties.tables()
    parties.begin(tables)
    parties.until(Phase.ANSWER)
    parties.up()
    parties.server.close()
    return parties, tables


def altered(parties: Parties, hop: Hop, part: str, error: Callable[[Residues], Residues]) -> Hop:
    """The mean of 7b with an error in its blocks, or in its syndromes."""
    ring, form, answered, K = parties.session.ring, parties.session.form, parties.params.N, parties.params.K
    payload = parties.opened(hop)
    prefix = parties.session.layout(Kind.MEAN, parties.server.M, answered).prefix
    rows = parties.session.query_count
    found = ring.from_bytes(payload[prefix:], K + answered - parties.params.need, rows, form.block_length).copy()
    altered = found[:, :K] if part == "blocks" else found[:, K:]
    ring.add_into(altered, error(altered))
    return parties.resealed(hop, payload[:prefix] + bytes(ring.to_bytes(found)))


def test_a_server_that_sends_wrong_syndromes_can_only_make_itself_or_a_client_a_suspect() -> None:
    parties, tables = at_the_means()
    beyond = list(range(parties.params.need, 5))

    def framing(i: int) -> Callable[[Residues], Residues]:
        def error(found: Residues) -> Residues:
            wrong = np.zeros_like(found)
            wrong[:, i] = 1
            return wrong

        return error

    for hop in means_of(parties):
        framed = beyond[hop.receiver % 2]
        parties.deliver(altered(parties, hop, "syndromes", framing(hop.receiver % 2)))
        (fault,) = parties.clients[hop.receiver].faults
        assert fault.suspects == ((SERVER,) if framed == hop.receiver else (framed, SERVER))
    parties.check(tables)  # and the means are right: the answers were
    parties.goes_on()


def test_syndromes_that_no_single_wrong_answer_explains_give_no_result() -> None:
    parties, tables = at_the_means()
    rng = np.random.default_rng(0)
    ring = parties.session.ring
    for hop in means_of(parties):
        forged = altered(
            parties, hop, "syndromes", lambda found: ring.constant(rng.integers(1, 2**32, found.shape[1:]))
        )
        assert set(parties.refused(forged).suspects) == {SERVER, *range(5)} - {hop.receiver}
        parties.deliver(hop)
    parties.check(tables)


@both
def test_a_server_that_changes_a_clients_answer_is_as_suspect_as_that_client(form: str) -> None:
    whole = federation(form, 5, 1, 1)
    for framed in (0, 4):
        lie(whole.fed.clients[framed], one_element)  # what the server decrypts, or adds to under the pad
        faults = whole.round()
        repent(whole.fed.clients[framed])
        assert all(SERVER in fault.suspects for fault in faults)
        own = [fault for fault in faults if framed not in fault.suspects]
        assert [fault.suspects for fault in own] == [(SERVER,)]  # the framed client's own: it knows better


def test_limit_the_server_can_move_a_mean_of_7b_whatever_is_extra_since_it_adds_the_noise() -> None:
    parties, tables = at_the_means()
    ring, by = parties.session.ring, step_of(parties)
    rows = real_rows(parties)

    def moving(n: int) -> Callable[[Residues], Residues]:
        def error(found: Residues) -> Residues:
            moved = np.zeros(found.shape[1:], object)
            moved[0, list(rows(n)), 0] = by
            return ring.constant(moved)

        return error

    expected = true_means(tables)
    for hop in means_of(parties):
        client = parties.clients[hop.receiver]
        forged = altered(parties, hop, "blocks", moving(hop.receiver))
        inside = all(abs(expected[name][0]) < 63 for name in client.names)
        if not inside:
            parties.deliver(hop)
            continue
        parties.deliver(forged)
        assert client.means is not None
        assert client.faults == []
        for name, mean in zip(client.names, client.means, strict=True):
            assert mean[0] - expected[name][0] > 90 * parties.params.resolution


# --------------------------------------------------------------------------- what they show to a client that deviates
# Outside the model, and bounded: whatever a client deals wrongly, the answers are functions of sums over all
# contributors and of counts. These tests say what it gains from syndromes, and what not.


def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Residues]:
    """What is found in syndromes, by the server (of openings) and by clients under the pads; nobody minds it."""
    seen: list[Residues] = []

    def correct(code: Any, clients: Any, blocks: Residues, found: Residues) -> tuple[Residues, tuple[int, ...]]:
        seen.append(found.copy())
        return blocks, ()

    monkeypatch.setattr(correction, "correct", correct)
    return seen


def redealt(parties: Parties, kind: Kind, dealer: int, change: Callable[[int, int, Residues], Residues]) -> Any:
    """A hook: what the dealer deals to client v (but for seeds) is moved by change(section, v, share)."""
    ring = parties.session.ring

    def hook(hop: Hop) -> Iterable[Hop]:
        header = hop.header
        if hop.carrier != dealer or header.kind is not kind or hop.is_seed:
            return [hop]
        share = ring.from_bytes(parties.opened(hop), len(parties.opened(hop)) // ring.element_bytes)
        layout = parties.session.layout(kind, parties.server.M, len(parties.server.contributors))
        moved = ring.add(share, change(layout.section(header.chunk), header.receiver, share))
        return [parties.resealed(hop, bytes(ring.to_bytes(moved)))]

    return hook


def test_inconsistent_shares_of_a_query_leave_no_trace_in_the_syndromes_of_7b(monkeypatch: pytest.MonkeyPatch) -> None:
    """Re-sharing puts whatever the re-sharers hold on a polynomial of the right degree: the deviation is gone."""
    parties, seen = Parties(SETS[:5], dropouts=2), recorded(monkeypatch)
    rng = np.random.default_rng(3)
    ring = parties.session.ring
    monkeypatch.setattr(
        correction, "decode", lambda code, clients, values: (code.decode(clients, values, degree=code.need - 1), ())
    )  # the server does not mind wrong openings
    parties.setup(
        redealt(
            parties, Kind.QUERY, 0, lambda section, v, share: ring.constant(rng.integers(0, 2**62, share.shape[1:]))
        )
    )
    parties.begin(parties.tables())
    parties.until(Phase.ANSWER)
    parties.up()
    parties.server.close()
    for hop in means_of(parties):
        if hop.receiver:
            parties.deliver(hop)
        else:
            assert "impossible" in parties.refused(hop).fault
    assert len(seen) == 5
    assert not any(found.any() for found in seen)


def test_inconsistent_shares_of_a_query_show_in_the_points_of_7a(monkeypatch: pytest.MonkeyPatch) -> None:
    parties = Parties(SETS[:5], form="paillier", dropouts=2)
    rng, ring = np.random.default_rng(3), parties.session.ring
    parties.setup(
        redealt(
            parties, Kind.QUERY, 0, lambda section, v, share: ring.constant(rng.integers(0, 2**61, share.shape[1:]))
        )
    )
    parties.begin(parties.tables())
    parties.until(Phase.ANSWER)
    parties.up()
    parties.server.close()
    for hop in means_of(parties):
        if hop.receiver == 0:
            assert "do not fit together" in parties.refused(hop).fault
        else:
            parties.deliver(hop)
            assert parties.clients[hop.receiver].faults == []


def test_limit_a_re_sharer_that_deals_inconsistent_shares_reads_exact_sums_of_others_entities_from_its_syndromes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two syndromes, of which one becomes the sum of "d", an entity that client 0 does not own, without any noise."""
    parties, seen = Parties(SETS[:5], dropouts=2), recorded(monkeypatch)
    ring, code, form = parties.session.ring, parties.session.code, parties.session.form
    assert (code.K, code.T, code.need) == (1, 1, 3)
    checks = correction._checks(ring.primes, code.at(range(5)), code.need)
    parties.until(Phase.RESHARE)
    client = parties.clients[0]
    row = int(np.searchsorted(parties.server.tags, tag_of(parties, 4, "d")))
    position = int(np.flatnonzero(client.shape.members == row)[0])
    query = int(client.shape.query_of(slice(position, position + 1))[0])
    sent = [Hop(0, SERVER, bytes(message)) for message in client.outbox()]
    used = sorted({hop.header.receiver for hop in sent if not hop.is_seed})[
        :2
    ]  # shares have degree 1: two of them give the data
    takes = code.matrix(code.at(used), code.data_points)[:, 0]

    def delta(section: int, v: int, share: Residues) -> Residues:
        error = np.zeros_like(share)
        if section == 0 and v in used:
            inverse = ring.inverse(np.ascontiguousarray(checks[:, 0, v][:, None]))
            error[:, position] = ring.multiply(np.ascontiguousarray(takes[:, used.index(v)][:, None]), inverse)[:, 0]
        return error

    parties.exchange(redealt(parties, Kind.RESHARE, 0, delta))
    tables = parties.tables()
    parties.begin(tables)
    parties.until(Phase.ANSWER)
    parties.up()
    parties.server.close()
    own = next(hop for hop in means_of(parties) if hop.receiver == 0)
    parties.refused(own)  # as an honest client would; but it has seen enough
    scale = 2.0**-form.f  # type: ignore[attr-defined]
    read = ring.join(np.ascontiguousarray(seen[-1][:, 0, query]), scale)
    owners = [table["d"] for table in tables if "d" in table]
    assert len(owners) == 2
    assert np.abs(read - sum(owners)).max() <= parties.params.resolution / 4


def tag_of(parties: Parties, n: int, name: Name) -> int:
    client = parties.clients[n]
    return int(client.tags[client.rows[client.names.index(name)]])


@both
def test_limit_a_client_that_deals_a_wrong_share_makes_its_receiver_a_suspect(form: str) -> None:
    """The receiver's answer does not fit, though it computed rightly: nobody can tell whose fault that is."""
    parties = Parties(SETS[:5], form=form, dropouts=2)
    parties.setup()
    tables = parties.tables()
    parties.begin(tables)
    ring, receivers = parties.session.ring, []

    def one(section: int, v: int, share: Residues) -> Residues:
        receivers.append(v)
        error = np.zeros_like(share)
        if v == receivers[0]:
            error[:] = 1
        return error

    parties.until(Phase.ANSWER, hook=redealt(parties, Kind.SHARE, 0, one))
    assert ring.size
    parties.until(Phase.READY)
    parties.check(tables)
    for n, client in parties.clients.items():
        (fault,) = client.faults
        assert fault.suspects == ((SERVER,) if n == receivers[0] else (receivers[0], SERVER))


def test_limit_a_client_that_deals_a_wrong_indicator_makes_its_receiver_a_suspect_of_the_server() -> None:
    parties, receivers = Parties(SETS[:5], dropouts=2), list[int]()

    def one(section: int, v: int, share: Residues) -> Residues:
        receivers.append(v)
        return np.full_like(share, int(v == receivers[0]))

    parties.setup(redealt(parties, Kind.INDICATOR, 0, one))
    assert [fault.suspects for fault in parties.server.faults] == [(receivers[0],)]
    parties.goes_on()


def test_limit_wrong_re_sharing_makes_wrong_weights_that_no_extra_answer_notices() -> None:
    """Exactly `need` clients re-share. What they share is a polynomial of the right degree, whatever it is.

    Client 1 adds 1 to the weighted queries of client 0 where they are not 0 (it must guess where): C/c becomes C/c + 1,
    and the mean m becomes m * (1 + c/C).
    """
    parties = Parties(SETS[:5], dropouts=1)
    assert parties.params.N - parties.params.need == 2
    parties.until(Phase.RESHARE)
    asker, liar = parties.clients[0], parties.clients[1]
    right, wanted = liar._deal, asker.shape.wanted(asker.placement)

    def wrong(stage: Stage) -> Deal:
        deal, ring = right(stage), parties.session.ring
        if stage.kind is not Kind.RESHARE:
            return deal

        def data(chunk: int) -> Residues:
            assert chunk == 0
            assert deal.along is not None
            products = ring.combine(deal.along[:, :, None], deal.data(chunk))
            error = np.zeros_like(products)
            error[:, :, wanted] = 1  # at every beta
            return ring.add(products, error)

        return replace(deal, data=data, along=None)

    liar._deal = wrong  # type: ignore[method-assign]
    parties.setup()
    tables = [{name: row / 2 for name, row in table.items()} for table in parties.tables()]
    parties.round(tables)
    assert asker.means is not None
    assert asker.faults == []
    for name, mean in zip(asker.names, asker.means, strict=True):
        count = sum(name in names for names in SETS[:5])
        moved = true_means(tables)[name] * (1 + count / parties.params.C)
        assert np.abs(mean - moved).max() <= parties.params.resolution


def test_limit_without_any_syndrome_a_client_that_marks_a_query_as_a_dummy_too_reads_the_count() -> None:
    """The count behind such a query is c + 1: S/c and S/(c+1) show c. Against counts too there is but the model."""
    parties = Parties(SETS[:3])
    assert parties.params.need == parties.params.N
    tables = parties.tables()
    parties.setup()
    parties.round(tables)
    client = parties.clients[0]
    assert client.means is not None
    before = dict(zip(client.names, client.means, strict=True))
    deal = client._deal

    def both_at_once(stage: Any) -> Any:
        dealt = deal(stage)
        if stage.kind is not Kind.QUERY:
            return dealt
        marks = client.shape.positions + np.arange(client.shape.count)
        ones = np.concatenate([client.shape.wanted(client.placement), marks])
        span = dealt.layout.span
        return Deal(dealt.layout, 1, lambda chunk: ones_at(client.session.ring, ones, span(chunk)))

    client._deal = both_at_once  # type: ignore[method-assign]
    parties.another_epoch()
    parties.round(tables)
    for name, mean in zip(client.names, client.means, strict=True):
        count = sum(name in names for names in SETS[:3])
        ratio = mean / before[name]  # c / (c + 1)
        assert np.rint(ratio / (1 - ratio)).tolist() == [count] * 3


def test_a_round_that_cannot_begin_reports_no_faults_of_the_round_before() -> None:
    whole = federation("reciprocal", 5, 1, 1)
    lie(whole.fed.clients[2], everything)
    assert len(whole.round()) == 5
    before = list(whole.fed.faults)
    alone: list[Any] = [whole.tables()[0], None, None, None, None]
    with pytest.raises(FederationError):
        whole.fed.round(alone)
    assert whole.fed.faults == before
    whole.honest()
