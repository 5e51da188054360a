"""Laws of the state machines: the means are right, whoever has what; and a restart at any point changes nothing."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federation import FORMS, PLACES, SETS, Hook, Hop, Parties, entropy, untouched
from secea import buckets
from secea import client as client_module
from secea.client import Client
from secea.client import Phase as ClientPhase
from secea.errors import SERVER, FederationError, SnapshotError, TableError
from secea.server import Phase, Server
from secea.session import Session
from secea.table import Name
from secea.wire import messages
from secea.wire.endpoint import Stage
from secea.wire.keys import Channel, Sealer
from secea.wire.messages import Buffer, Header, Kind

BOTH = ["reciprocal", "paillier"]


def sets_of(shape: str, clients: int) -> list[list[Name]]:
    """What each client owns: a mixture with an empty client, the same for all, nothing in common, or nothing at all."""
    match shape:
        case "mixed":
            return [[] if n == 1 else [f"e{i}" for i in range(12) if (i * 7 + n * i + n) % 3] for n in range(clients)]
        case "identical":
            return [["a", "b", 1, "1", -5, "\u00e9"] for _ in range(clients)]
        case "disjoint":
            return [[f"{n} {i}" for i in range(n % 6)] for n in range(clients)]
        case _:
            return [["only"] if n == clients - 1 else [] for n in range(clients)]


# ------------------------------------------------------------------------------------------------------- right means

LEGAL = [(N, T) for N in range(3, 8) for T in range(1, (N + 1) // 2)]


@pytest.mark.parametrize(("form", "queries"), FORMS)
@pytest.mark.parametrize(("clients", "collusion"), LEGAL)
def test_the_means_are_those_over_all_owners(clients: int, collusion: int, form: str, queries: str) -> None:
    shapes = ["mixed", "identical", "disjoint", "lonely"]
    for shape in shapes[(clients + collusion) % 2 :: 2] if form == "reciprocal" else shapes[clients % 3 :: 4]:
        parties = Parties(
            sets_of(shape, clients),
            seed=clients,
            form=form,
            queries=queries,
            collusion=collusion,
            dim=1 + clients % 4,
        )
        parties.setup()
        parties.goes_on()


@pytest.mark.parametrize(("form", "queries"), FORMS)
def test_every_round_has_the_means_of_its_own_tables(form: str, queries: str) -> None:
    parties = Parties(form=form, queries=queries)
    parties.setup()
    for number in range(4):
        parties.goes_on(number)
    assert parties.server.round == 4


@settings(deadline=None, max_examples=25)
@given(st.data(), st.integers(0, 2**32))
def test_the_means_of_random_federations_are_right(data: st.DataObject, seed: int) -> None:
    clients = data.draw(st.integers(3, 6))
    collusion = data.draw(st.integers(1, (clients + 1) // 2 - 1))
    dropouts = data.draw(st.integers(0, clients - 2 * collusion - 1))
    own = st.lists(st.integers(0, 9), max_size=7, unique=True)
    sets = data.draw(st.lists(own, min_size=clients, max_size=clients).filter(any))
    more: dict[str, Any] = {"collusion": collusion, "dropouts": dropouts, "dim": data.draw(st.integers(1, 7))}
    more["max_abs"] = data.draw(st.sampled_from([64.0, 1.0, 1000.0]))
    parties = Parties(sets, seed=seed, queries=data.draw(st.sampled_from(["buckets", "full"])), **more)
    parties.setup()
    parties.goes_on()


@pytest.mark.parametrize("form", BOTH)
def test_bounds_wider_than_the_data_change_no_mean(form: str) -> None:
    parties = Parties(form=form, max_entities=9, max_union=20)
    parties.setup()
    parties.goes_on()


@pytest.mark.parametrize(("form", "queries"), FORMS)
def test_messages_of_many_chunks_give_the_same_means(form: str, queries: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "CHUNK_BYTES", 100)
    parties = Parties(form=form, queries=queries)
    several = set()

    def watch(hop: Hop) -> Iterable[Hop]:
        if hop.header.chunks > 1:
            several.add(hop.header.kind)
        return [hop]

    parties.setup(watch)
    tables = parties.tables()
    parties.round(tables, watch)
    parties.check(tables)
    due = {Kind.TABLE, Kind.QUERY, Kind.SHARE, Kind.ANSWER, Kind.MEAN}
    assert several >= (due if form == "paillier" else due | {Kind.OPENING, Kind.RECIPROCAL, Kind.RESHARE})


@pytest.mark.parametrize("form", BOTH)
def test_a_federation_passes_every_place_where_messages_can_be_disturbed(form: str) -> None:
    parties, seen = Parties(form=form), set()

    def watch(hop: Hop) -> Iterable[Hop]:
        seen.add(parties.place(hop))
        return [hop]

    parties.setup(watch)
    parties.round(parties.tables(), watch)
    assert seen == set(PLACES[form])


@pytest.mark.parametrize("form", BOTH)
def test_another_epoch_sets_everything_up_anew(form: str) -> None:
    parties = Parties(form=form)
    parties.setup()
    parties.goes_on(1)
    tags, secret = parties.clients[0].tags, parties.clients[0].secret
    parties.another_epoch()
    assert parties.clients[0].epoch == 2
    assert parties.clients[0].secret != secret
    assert not set(tags.tolist()) & set(parties.clients[0].tags.tolist())  # tags are keyed anew
    parties.goes_on(2)


def test_the_servers_outbox_holds_nothing_old_when_an_epoch_or_weights_begin() -> None:
    parties = Parties()
    parties.setup()
    parties.goes_on()
    parties.server.begin_weights(range(3))
    parties.down()
    parties.setup()
    parties.goes_on()
    parties.server.begin_epoch(range(3))
    parties.down()
    parties.setup()
    parties.goes_on()


def test_where_a_client_cannot_place_its_entities_everyone_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    parties, failures = Parties(), [None]
    place = buckets.place
    monkeypatch.setattr(client_module, "place", lambda *args: failures.pop() if failures else place(*args))
    parties.setup()
    assert not failures
    assert (parties.server.epoch, parties.server.attempt) == (1, 1)
    parties.goes_on()


# ------------------------------------------------------------------------------------------------------------- unions


@settings(deadline=None, max_examples=25)
@given(st.data(), st.integers(0, 2**32))
def test_the_union_is_the_set_union(data: st.DataObject, seed: int) -> None:
    clients = data.draw(st.integers(3, 12))
    names = st.integers(0, 30) | st.integers(0, 30).map(str)
    some = st.lists(names, max_size=12, unique=True)
    match data.draw(st.sampled_from(["any", "equal", "disjoint"])):
        case "any":
            sets: list[list[Name]] = data.draw(st.lists(some, min_size=clients, max_size=clients))
        case "equal":
            sets = [data.draw(some)] * clients
        case _:
            sets = [[f"{n} {name!r}" for name in data.draw(some)] for n in range(clients)]
    parties = Parties(sets, seed=seed, dim=1)
    parties.until(Phase.QUERY)
    tag_of: dict[Name, int] = {}
    for n, client in parties.clients.items():
        assert client.phase is ClientPhase.QUERY
        assert np.array_equal(client.tags, parties.server.tags)
        assert set(client.names) == set(sets[n])
        for name, tag in zip(client.names, client.tags[client.rows].tolist(), strict=True):
            assert tag_of.setdefault(name, tag) == tag  # the same name, the same tag
    assert sorted(tag_of.values()) == parties.server.tags.tolist()
    assert len(set(tag_of.values())) == len({name for own in sets for name in own})


def test_a_union_beyond_its_public_bound_is_not_used() -> None:
    parties = Parties(sets_of("disjoint", 5), max_union=5, max_entities=4)
    with pytest.raises(FederationError, match="max_union"):
        parties.setup()


# --------------------------------------------------------------------------------------------------------- streaming


class Streaming(Parties):
    """The server announces early; every message is passed on as soon as it can be."""

    at_once = 16

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, early=True, **more)

    def exchange(self, hook: Hook = untouched) -> None:
        self.stream(self.at_once, hook)


@pytest.mark.parametrize(("form", "queries"), FORMS)
@pytest.mark.parametrize("chunk_bytes", [messages.CHUNK_BYTES, 100], ids=["whole", "in chunks"])
def test_messages_that_are_passed_on_at_once_give_the_same_means(
    form: str, queries: str, chunk_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "CHUNK_BYTES", chunk_bytes)
    parties = Streaming(form=form, queries=queries)
    parties.setup()
    parties.goes_on(1)
    parties.goes_on(2)


@pytest.mark.parametrize("form", BOTH)
def test_messages_that_are_passed_on_one_by_one_give_the_same_means(form: str) -> None:
    parties = Streaming(form=form)
    parties.at_once = 1
    parties.setup()
    parties.goes_on()


SETUP_STAGES = ["greeting", "secret", "table", "query", "opening", "reshare"]
STAGES = [(r, s) for r in BOTH for s in SETUP_STAGES if r == "reciprocal" or s not in ("opening", "reshare")]


@pytest.mark.parametrize(("form", "stage"), [(r, s) for r, s in STAGES if s != "greeting"])
def test_whoever_is_lost_in_the_middle_of_a_stage_that_was_announced_early_is_left_out(form: str, stage: str) -> None:
    parties, sent = Streaming(sets_of("mixed", 5), form=form, dropouts=2), 0

    def lose(hop: Hop) -> Iterable[Hop]:
        nonlocal sent
        if hop.carrier != 2:
            return [hop]
        sent += 1
        return [hop] if sent == 1 else []

    parties.until(Phase(stage))
    parties.exchange(lose)
    parties.present.discard(2)
    parties.setup()
    assert 2 not in parties.server.members
    parties.goes_on()


# ----------------------------------------------------------------------------------------------- made ahead of time


def prepare(parties: Parties) -> None:
    for n in parties.present:
        parties.clients[n].prepare()
    parties.server.prepare()


@pytest.mark.parametrize("form", BOTH)
def test_randomness_made_ahead_changes_no_mean_also_if_it_is_lost(form: str) -> None:
    parties = Parties(form=form)
    parties.setup()
    prepare(parties)
    parties.goes_on(1)
    prepare(parties)
    parties.restart()
    parties.goes_on(2)
    prepare(parties)
    prepare(parties)
    parties.goes_on(3)
    parties.goes_on(4)


def answers_of(parties: Parties) -> list[bytes]:
    return [bytes(message) for n in sorted(parties.present) for message in parties.clients[n].outbox()]


def test_answers_made_ahead_are_the_same_bytes_each_time() -> None:
    parties = Parties(sets_of("mixed", 5), form="paillier", dropouts=2)
    parties.setup()
    prepare(parties)
    parties.present.discard(4)
    tables = parties.tables(1)
    parties.begin(tables)
    parties.until(Phase.ANSWER)
    first = answers_of(parties)
    assert answers_of(parties) == first
    parties.until(Phase.READY)
    parties.check(tables)
    # What was made ahead for client 4 must not come up in a round for which nothing was made ahead.
    parties.present.add(4)
    tables = parties.tables(2)
    parties.begin(tables)
    parties.until(Phase.ANSWER)
    first = answers_of(parties)
    assert answers_of(parties) == first
    parties.restart()
    assert answers_of(parties) == first
    parties.until(Phase.READY)
    parties.check(tables)


# ---------------------------------------------------------------------------------------------------------- restarts


class Restarting(Parties):
    """Every party is saved and restored before and after everything that it does."""

    def deliver(self, hop: Hop) -> None:
        self.restart(hop.receiver)
        super().deliver(hop)
        self.restart(hop.receiver)

    def exchange(self, hook: Hook = untouched) -> None:
        self.restart()
        self.up(hook)
        self.restart()
        self.server.close()
        self.restart()
        self.down(hook)
        self.restart()


@pytest.mark.parametrize(("form", "queries"), FORMS)
@pytest.mark.parametrize("chunk_bytes", [messages.CHUNK_BYTES, 600], ids=["whole", "in chunks"])
def test_saving_and_restoring_everyone_between_every_two_steps_changes_no_mean(
    form: str, queries: str, chunk_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "CHUNK_BYTES", chunk_bytes)
    parties = Restarting(form=form, queries=queries)
    parties.setup()
    parties.goes_on(1)
    if chunk_bytes > 600:
        parties.goes_on(2)


@pytest.mark.parametrize("who", [0, 1, 2, SERVER])
@pytest.mark.parametrize("form", BOTH)
def test_one_party_that_restarts_among_others_that_do_not_changes_no_mean(form: str, who: int) -> None:
    parties = Parties(form=form)
    while parties.server.phase is not Phase.READY:
        parties.restart(who)
        parties.exchange()
    parties.restart(who)
    parties.goes_on(1)
    parties.restart(who)
    parties.goes_on(2)


def test_a_new_epoch_forgets_the_weights_of_the_one_before() -> None:
    parties = Parties()
    parties.setup()
    parties.goes_on()
    assert all(client.usable_weights == 1 for client in parties.clients.values())
    delivered = parties.waiting()
    parties.server.begin_epoch(parties.present)
    parties.down(lambda hop: () if hop.message in delivered else [hop])
    for client in parties.clients.values():
        assert (client.epoch, client.usable_weights, client.contributors, client.weighted) == (2, 0, (), None)


@pytest.mark.parametrize("form", BOTH)
def test_a_clients_own_share_counts_once_however_its_outbox_is_read(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "CHUNK_BYTES", 40)
    parties = Parties(form=form)
    while parties.server.phase is not Phase.READY:
        for n in range(3):
            list(islice(parties.clients[n].outbox(), n + 1))  # some of it, and again
            parties.restart(n)
            list(islice(parties.clients[n].outbox(), 2 * n))
        parties.exchange()
    parties.goes_on("first")
    for n, table in enumerate(parties.tables("given up")):
        parties.clients[n].contribute(table, 2)
    old = {n: parties.clients[n].outbox() for n in range(3)}
    begun = [bytes(next(outbox)) for outbox in old.values()]
    parties.server.round = 2  # which nobody finished
    parties.begin(tables := parties.tables("third"))
    for n, outbox in old.items():
        rest = list(outbox)  # of a round that is over: it is no part of this one
        assert {Header.parse(message, n).round for message in [begun[n], *rest]} == {2}
        list(islice(parties.clients[n].outbox(), 7))
    parties.setup()
    parties.check(tables)


@pytest.mark.parametrize(("form", "queries"), FORMS)
def test_an_outbox_gives_the_same_bytes_each_time_also_after_a_restore(form: str, queries: str) -> None:
    parties, kinds = Parties(form=form, queries=queries), set[Kind]()

    def sent(n: int) -> list[tuple[int, bytes]]:
        party = parties.party(n)
        if isinstance(party, Server):
            return [(v, bytes(message)) for v, message in party.outbox()]
        return [(SERVER, bytes(message)) for message in party.outbox()]

    def repeat() -> None:
        for n in (0, 1, 2, SERVER):
            first = sent(n)
            kinds.update(Header.parse(message, n).kind for _, message in first)
            assert sent(n) == first
            parties.restart(n)
            assert sent(n) == first

    def run_to_the_end() -> None:
        while parties.server.phase is not Phase.READY:
            repeat()
            parties.up()
            parties.server.close()
            repeat()
            parties.down()
        repeat()

    run_to_the_end()
    for number in range(2):
        tables = parties.tables(number)
        parties.begin(tables)
        run_to_the_end()
        parties.check(tables)
    unused = {Kind.INDICATOR, Kind.OPENING, Kind.RECIPROCAL, Kind.RESHARE} if form == "paillier" else set()
    assert kinds == set(Kind) - {Kind.ABORT} - unused


@pytest.mark.parametrize("form", BOTH)
def test_saved_state_belongs_to_one_party_of_one_session(form: str) -> None:
    parties = Parties(form=form)
    parties.setup()
    saved = {n: parties.party(n).save() for n in (0, 1, SERVER)}
    other = Session(parties.params, parties.session.roster, form, "full")
    for n, kind in ((0, Client), (SERVER, Server)):
        with pytest.raises(SnapshotError, match="another session"):
            kind.restore(other, parties.identities[n], saved[n], entropy(0))
        with pytest.raises(SnapshotError, match="another identity"):
            kind.restore(parties.session, parties.identities[1], saved[n], entropy(0))
    with pytest.raises(SnapshotError):
        Client.restore(parties.session, parties.identities[SERVER], saved[SERVER], entropy(0))
    with pytest.raises(SnapshotError):
        Server.restore(parties.session, parties.identities[0], saved[0], entropy(0))


# ------------------------------------------------------------------------------------------------- no label twice


@pytest.mark.parametrize(("form", "queries"), FORMS)
def test_no_label_is_used_twice_for_sealing_nor_for_a_stream_on_one_side(
    form: str, queries: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: Counter[tuple[int, int, str, bytes]] = Counter()
    derive = Channel.derive

    def recorded(self: Channel, purpose: str, label: bytes) -> bytes:
        if purpose in ("mask", "pad") or (purpose == "seal" and Header.parse(label, self.me).sender == self.me):
            used[self.me, self.peer, purpose, label] += 1
        return derive(self, purpose, label)

    parties = Parties(sets_of("mixed", 4), form=form, queries=queries)
    monkeypatch.setattr(Channel, "derive", recorded)
    parties.setup()
    for number in range(3):
        parties.goes_on(number)
    parties.another_epoch()
    parties.goes_on("last")
    assert {purpose for _, _, purpose, _ in used} == {"seal", "mask"} | ({"pad"} if form == "reciprocal" else set())
    twice = {(me, peer, purpose) for (me, peer, purpose, _), count in used.items() if count > 1}
    assert not twice, f"a label served twice on one side: {sorted(twice)}"


def test_two_clients_pad_their_answers_to_each_other_differently() -> None:
    parties = Parties()
    parties.setup()
    parties.begin(parties.tables())
    parties.until(Phase.ANSWER)
    form = parties.session.form
    answerers = [form.answerer(each.wire, each.pending[0], n) for each in parties.clients.values() for n in range(3)]
    pads = {bytes(answerer.cover(0, answerer.begin(0, 4))) for answerer in answerers}
    assert len(pads) == 9  # otherwise the server sees the difference of two answers


@pytest.mark.parametrize("form", BOTH)
def test_no_key_seals_two_different_chunks_not_even_across_restarts(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sealed: dict[tuple[bytes, int], bytes] = {}
    seal = Sealer.seal

    def recorded(self: Sealer, chunk: int, *payload: Buffer) -> Buffer:
        message = seal(self, chunk, *payload)
        assert sealed.setdefault((self.header.label(), chunk), bytes(message)) == message
        return message

    monkeypatch.setattr(Sealer, "seal", recorded)
    monkeypatch.setattr(messages, "CHUNK_BYTES", 400)
    parties = Parties(form=form, queries="full")
    for _ in range(3):
        while parties.server.phase is not Phase.READY:
            for n in parties.clients:
                list(parties.clients[n].outbox())  # and never delivered
            parties.restart()
            parties.exchange()
        parties.begin(parties.tables())
    assert len(sealed) > 100


def test_every_stage_of_a_party_has_a_number_a_salt_and_a_seed_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: dict[int, list[Stage]] = defaultdict(list)
    parties = Parties()
    for n in (0, 1, 2, SERVER):
        wire = parties.party(n).wire
        make = wire.stages

        def recorded(*args: Any, n: int = n, make: Any = make, **label: Any) -> tuple[Stage, ...]:
            stages: tuple[Stage, ...] = make(*args, **label)
            drawn[n] += stages
            return stages

        monkeypatch.setattr(wire, "stages", recorded)
    parties.setup()
    parties.goes_on(1)
    parties.goes_on(2)
    seeds = [stage.seed for stages in drawn.values() for stage in stages]
    assert len(set(seeds)) == len(seeds)
    for stages in drawn.values():
        numbers = [stage.sequence for stage in stages]
        assert numbers == sorted(set(numbers))
        labels = {(stage.kind, stage.epoch, stage.weights, stage.round, stage.salt) for stage in stages}
        assert len(labels) == len(stages)


# --------------------------------------------------------------------------------------------------------- drop-outs


@pytest.mark.parametrize(("form", "stage"), STAGES)
def test_whoever_is_lost_during_the_set_up_is_left_out_and_the_others_get_their_means(form: str, stage: str) -> None:
    parties = Parties(sets_of("mixed", 5), form=form, dropouts=2)
    parties.until(Phase(stage))
    parties.present.discard(2)
    parties.setup()
    assert 2 not in parties.server.members
    parties.goes_on()


def test_whoever_is_lost_before_its_shares_are_in_is_left_out_of_the_paillier_round() -> None:
    parties = Parties(sets_of("mixed", 5), form="paillier", dropouts=2)
    parties.setup()
    tables = parties.tables()
    parties.begin(tables)
    parties.present.discard(2)
    parties.until(Phase.READY)
    parties.check(tables)
    parties.goes_on()


def test_whoever_is_lost_before_its_shares_are_in_costs_the_reciprocal_round_and_new_weights() -> None:
    parties = Parties(sets_of("mixed", 5), dropouts=2)
    parties.setup()
    parties.begin(parties.tables())
    parties.present.discard(2)
    parties.until(Phase.READY)
    assert parties.server.weights == 2
    for n in parties.present:
        assert parties.clients[n].phase is ClientPhase.READY
        assert parties.clients[n].means is None
        assert "missing" in parties.clients[n].failure
    parties.goes_on()


@pytest.mark.parametrize("form", BOTH)
@pytest.mark.parametrize("lost", [{0}, {4}, {1, 3}])
def test_any_need_answers_give_the_means_over_all_contributors(form: str, lost: set[int]) -> None:
    parties = Parties(sets_of("mixed", 5), form=form, dropouts=2)
    parties.setup()
    tables = parties.tables()
    parties.begin(tables)
    parties.until(Phase.ANSWER)
    parties.present -= lost
    parties.until(Phase.READY)
    parties.check(tables, contributors=range(5))


@pytest.mark.parametrize("form", BOTH)
def test_a_client_that_skipped_a_round_comes_back(form: str) -> None:
    parties = Parties(sets_of("mixed", 5), form=form, dropouts=2)
    parties.setup()
    parties.present.discard(2)
    tables = parties.tables()
    parties.round(tables)
    if form == "reciprocal":  # the first round gives up and makes new weights
        parties.round(tables)
    parties.check(tables)
    parties.present.add(2)
    if form == "reciprocal":
        parties.other_weights(range(5))
    parties.goes_on()


@pytest.mark.parametrize("form", BOTH)
def test_a_client_that_lost_everything_comes_back_in_a_new_epoch(form: str) -> None:
    parties = Parties(form=form)
    parties.setup()
    parties.goes_on(1)
    parties.clients[1] = parties.new_client(1)
    for message in parties.clients[1].outbox():
        parties.server.receive(1, message)
    parties.another_epoch()
    parties.goes_on(2)


# ------------------------------------------------------------------------------------------------------- wrong calls


def test_a_round_begins_only_when_everything_is_set_up_and_never_with_a_number_that_is_past() -> None:
    parties = Parties()
    with pytest.raises(FederationError):
        parties.server.begin_round()
    with pytest.raises(FederationError):
        parties.clients[0].contribute(parties.tables()[0])
    parties.setup()
    parties.goes_on()
    for number in (0, 1):
        with pytest.raises(FederationError, match="past"):
            parties.clients[0].contribute(parties.tables()[0], number)
    parties.begin(parties.tables())
    with pytest.raises(FederationError):
        parties.server.begin_round()
    parties.until(Phase.READY)
    parties.check(parties.tables())


def test_a_client_with_more_entities_than_the_bound_is_refused() -> None:
    with pytest.raises(TableError, match="max_entities"):
        Parties(SETS, max_entities=3)
