"""What a review found in the forms "reciprocal" and "paillier": each weakness shown on the real code, and one repaired.

The tests named `test_limit_...` succeed as attackers. docs/threat-model.md says what follows from each.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secea.arithmetic.field import RING61, Residues, Ring
from secea.audit import Objection
from secea.audit.attacks import counts, openings
from secea.audit.recorded import Hop, Recorded, random_tables
from secea.audit.registry import all_mutants
from secea.client import Client
from secea.engines.driver import Driver
from secea.engines.host import Host, Participant
from secea.engines.port import Order, Task
from secea.errors import SERVER, FederationError, ProtocolError
from secea.retrieval.paillier import Paillier
from secea.retrieval.reciprocal import Reciprocal, reciprocals
from secea.server import Phase
from secea.wire.keys import expand
from secea.wire.messages import Kind
from secea.wire.randomness import KeyStream
from test_driver import N, World

BOTH = ["reciprocal", "paillier"]


def dice() -> np.random.Generator:
    """From a seed that is shown where a test fails."""
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    return np.random.default_rng(seed)


def some_sets(rng: np.random.Generator, clients: int, entities: int, each: int) -> list[set[str]]:
    names = [f"e{i}" for i in range(entities)]
    return [{str(name) for name in rng.choice(names, each, replace=False)} for _ in range(clients)]


def owners(run: Recorded) -> dict[int, int]:
    """The number of owners of each row of the union."""
    rows = np.concatenate([client.rows for client in run.clients.values()])
    return dict(zip(*(x.tolist() for x in np.unique(rows, return_counts=True)), strict=True))


# ------------------------------------------------------------------------------------ the server and one client


@pytest.mark.parametrize(("clients", "collusion"), [(5, 1), (10, 1), (10, 2), (12, 3)])
def test_limit_the_server_and_one_client_read_every_query_and_every_count_where_t_is_at_most_k(
    clients: int, collusion: int
) -> None:
    rng = dice()
    run = Recorded(some_sets(rng, clients, 24, 8), dim=2, collusion=collusion).setup()
    assert run.params.T <= run.params.K
    loot = openings.read_queries(openings.view(run, int(rng.integers(clients))))
    asked = {(n, j): row for n, client in run.clients.items() for j, row in enumerate(client.placement.tolist())}
    assert loot.asked == asked, "all of them, dummies too"
    assert loot.counts == owners(run)


@pytest.mark.parametrize(("clients", "collusion"), [(10, 3), (5, 2)])
def test_that_program_reads_no_query_where_t_exceeds_k(clients: int, collusion: int) -> None:
    run = Recorded(some_sets(dice(), clients, 24, 8), dim=2, collusion=collusion).setup()
    assert run.params.T > run.params.K
    loot = openings.read_queries(openings.view(run))
    assert not loot.asked
    assert not loot.counts


@settings(deadline=None, max_examples=50, database=None)
@given(st.lists(st.tuples(st.integers(0, 2**90), st.integers(1, 6)), max_size=6), st.integers(2**90, 2**91))
def test_small_numbers_that_add_up_to_a_target_are_found(terms: list[tuple[int, int]], modulus: int) -> None:
    target = sum(weight * number for weight, number in terms)
    found = openings.small_sum(target, [weight for weight, _ in terms], 6, modulus)
    assert found is not None
    assert (sum(weight * number for (weight, _), number in zip(terms, found, strict=True)) - target) % modulus == 0


# -------------------------------------------------------------------------------------------------- two sessions


@pytest.mark.parametrize("kind", counts.GRIDS[:2], ids=lambda kind: kind.name)
def test_means_of_two_sessions_with_different_f_show_counts_no_better_than_chance(kind: counts.Grid) -> None:
    made, params, *seen = counts.two_sessions(kind)
    assert seen[0].f < seen[1].f, "one join is enough"
    for what, found in counts.guesses_from_two(params, kind.steps[0], *seen).items():
        counts.judge(what, found, made.counts)


@pytest.mark.parametrize("kind", counts.GRIDS[:2], ids=lambda kind: kind.name)
def test_where_the_fill_takes_the_low_bits_of_its_block_two_sessions_show_the_counts(kind: counts.Grid) -> None:
    with all_mutants()["low-bits-filled-from-below"].applied():
        made, params, *seen = counts.two_sessions(kind)
    found = counts.guesses_from_two(params, kind.steps[0], *seen)
    assert (found["the scaled difference"] == made.counts).mean() > 0.95
    counts.judge("one mean", found["one mean"], made.counts)
    with pytest.raises(Objection):
        counts.judge("two means", found["the scaled difference"], made.counts)


@pytest.mark.parametrize("kind", counts.GRIDS[:2], ids=lambda kind: kind.name)
def test_limit_two_rounds_show_counts_where_the_grid_of_all_tables_changes_and_values_do_not(kind: counts.Grid) -> None:
    assert counts.limit_of_changed_grids(kind) > 0.95


# ------------------------------------------------------------------------------------------ refusals are answers


def host_of(run: Recorded, n: int) -> Host:
    """What an engine's server talks to: client n behind its orders."""
    host = Host(run.session, n, run.identities[n], Participant(list, lambda means, number: {}))
    host.client = run.clients[n]
    return host


def refuses(host: Host, message: bytes) -> bool:
    """What a server is told."""
    return bool(host.obey(Order(Task.STEP, 0, [message])).fault)


def shifted(run: Recorded, hop: Hop, row: int, by: float) -> bytes:
    """A server's lie: client 0's means with `by` added to the first coordinate of one row (K is 1)."""
    session, form, payload = run.session, run.session.form, run.opened(hop)
    head = session.layout(Kind.MEAN, run.server.M, run.params.N).prefix
    assert run.params.K == 1
    if isinstance(form, Reciprocal):
        blocks = 1 + run.params.N - run.params.need
        found = form.ring.from_bytes(payload[head:], blocks, session.query_count, form.block_length)
        added = form.ring.zeros(*found.shape[1:])
        added[:, 0, row, 0] = form.ring.constant(run.params.C * round(by * 2**form.f))
        return run.resealed(hop, payload[:head] + bytes(form.ring.to_bytes(form.ring.add(found, added)))).message
    assert isinstance(form, Paillier)
    stage = run.server.mean_stage
    assert stage is not None
    key, rows = form.key_of(run.server.wire, 0), session.query_count
    r = KeyStream(expand(stage.seed, "noise", b"0")).lane(0).nonzero(RING61, rows)[0]
    added = np.zeros((rows, form.block_length), np.uint64)
    added[row, 0] = round(by * 2**run.params.fraction_bits) * int(r[row]) % RING61.primes[0]
    plain = list(form.packing.pack(added)) * run.params.N
    ciphertexts = key.ciphertexts_from_bytes(payload[head:], len(plain))
    moved = key.add(ciphertexts, key.encrypt(plain, key.full_blinds(len(plain), secrets.token_bytes)))
    return run.resealed(hop, payload[:head] + key.ciphertexts_to_bytes(moved)).message


def round_with(run: Recorded, tables: Any, lie: Callable[[Hop], None]) -> None:
    """A round in which the server does what it likes with client 0's means."""

    def hook(hop: Hop) -> Iterable[Hop]:
        if hop.receiver == 0 and hop.header.kind is Kind.MEAN:
            lie(hop)
            return []
        return [hop]

    run.round(tables, hook)


def small(form: str, rng: np.random.Generator) -> tuple[Recorded, Any]:
    sets = some_sets(rng, 4, 8, 4)
    return Recorded(sets, form=form, dim=2).setup(), random_tables(sets, 2, rng)


@pytest.mark.parametrize("form", BOTH)
def test_limit_refused_means_show_a_deviating_server_which_queries_are_dummies(form: str) -> None:
    run, tables = small(form, dice())
    host, dummy = host_of(run, 0), dict[int, bool]()

    def probe(hop: Hop) -> None:
        for row in range(run.session.query_count):
            if row not in dummy:
                dummy[row] = refuses(host, shifted(run, hop, row, 1.0))
                if not dummy[row]:
                    return  # it took these means: go on in the next round

    while len(dummy) < run.session.query_count:
        round_with(run, tables, probe)
    assert dummy == {row: asked < 0 for row, asked in enumerate(run.clients[0].placement.tolist())}
    assert run.server.round <= len(run.clients[0].names) + 1, "so many rounds tell how many entities it has"


def first_accepted(run: Recorded, tables: Any, row: int, most: float, step: float) -> float:
    """The server lowers a shift of one row until client 0 takes it, all in one round."""
    host, found = host_of(run, 0), []

    def probe(hop: Hop) -> None:
        shift = most
        while refuses(host, shifted(run, hop, row, shift)):
            shift -= step
        found.append(shift)

    round_with(run, tables, probe)
    return found[0]


def first_asked(run: Recorded, tables: Any) -> tuple[int, list[float]]:
    """A query of client 0 that is no dummy, as the test above finds it; and what the owners of its entity have."""
    client = run.clients[0]
    row = int(np.flatnonzero(client.placement >= 0)[0])
    name = client.names[int(np.searchsorted(client.rows, client.placement[row]))]
    return row, [table[name][0] for table in tables if name in table]


def test_limit_refused_means_show_a_deviating_server_a_single_mean_within_one_round() -> None:
    run, tables = small("reciprocal", dice())
    row, values = first_asked(run, tables)
    limit = run.params.max_abs * (1 + 2**-6)
    found = limit - first_accepted(run, tables, row, limit + 5.0, 0.05)
    assert abs(found - np.mean(values)) < 0.06


def test_limit_refused_means_show_a_deviating_server_sum_and_count_of_the_paillier_form_within_one_round() -> None:
    run, tables = small("paillier", dice())
    row, values = first_asked(run, tables)
    found = first_accepted(run, tables, row, 4 * run.params.max_abs + 20, 2.0)
    count = round(found / run.params.max_abs)
    assert count == len(values)
    assert abs(count * run.params.max_abs - found - sum(values)) < 2.1


def test_limit_refused_means_show_a_deviating_server_counts_by_weights_that_it_divides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = dice()
    sets = [*some_sets(rng, 4, 8, 5), {f"e{i}" for i in range(8)}]
    run, tables = Recorded(sets, dim=32).setup(), random_tables(sets, 32, rng)
    host, honest, lie = host_of(run, 0), reciprocals, {"row": 0, "by": 1}

    def divided(ring: Ring, o: Residues, C: int) -> Residues:
        t = honest(ring, o, C)
        part = np.ascontiguousarray(t[:, 0, lie["row"]])
        t[:, 0, lie["row"]] = ring.multiply(part, ring.inverse(ring.constant(lie["by"]).reshape(part.shape)))
        return t

    monkeypatch.setattr("secea.server.reciprocals", divided)
    told = dict[tuple[int, int], bool]()

    def listen(hop: Hop) -> None:
        told[lie["row"], lie["by"]] = refuses(host, hop.message)

    asked = np.flatnonzero(run.clients[0].placement >= 0).tolist()
    for row in asked:
        for by in (2, 3, 4, 5):
            lie.update(row=row, by=by)
            run.server.begin_weights(range(5))
            run.until(Phase.READY)
            round_with(run, tables, listen)
    truth = owners(run)
    for row in asked:  # C/c is still an integer, or it is not
        fits = [c for c in range(1, 6) if all((60 // c % by != 0) == told[row, by] for by in (2, 3, 4, 5))]
        assert fits == [truth[int(run.clients[0].placement[row])]]


@pytest.mark.parametrize("form", BOTH)
def test_limit_a_union_is_refused_exactly_where_it_lacks_a_tag_of_the_client(form: str) -> None:
    rng = dice()
    run = Recorded(some_sets(rng, 4, 12, 5), form=form, dim=2)
    run.until(Phase.TABLE)
    run.up()
    run.server.close()
    (message,) = run.server.drain()[0]
    tags, saved, hop = run.server.tags, run.clients[0].save(), Hop(SERVER, 0, bytes(message))

    def lacks(listed: Any) -> bool:
        run.back_to({0: saved})  # what another attempt would show
        return refuses(host_of(run, 0), run.resealed(hop, bytes(RING61.to_bytes(listed[None]))).message)

    owned = [lacks(np.delete(tags, i)) for i in range(tags.size)]
    run.back_to({0: saved})
    host = host_of(run, 0)
    prefixes = (run.resealed(hop, bytes(RING61.to_bytes(tags[None, :size]))).message for size in range(tags.size + 1))
    largest = next(size for size, message in enumerate(prefixes) if not refuses(host, message))
    own = np.sort(run.clients[0].rows)
    assert np.flatnonzero(owned).tolist() == own.tolist()
    assert largest == own.max() + 1, "all prefixes in one attempt: a refusal changes nothing"


# ------------------------------------------------------------------------------- orders, replies, wrong openings


@pytest.mark.parametrize("form", BOTH)
def test_limit_the_server_is_told_whose_entities_changed(tmp_path: Path, form: str) -> None:
    world = World(tmp_path, form)
    world.run(1)
    changed = int(dice().integers(N))
    world.sets[changed] = [*world.sets[changed][1:], "new"]
    replies = {n: host.obey(Order(Task.ROUND, 2)) for n, host in world.hosts.items()}
    assert {n for n, reply in replies.items() if reply.epoch == 0} == {changed}
    assert not replies[changed].messages
    assert not replies[changed].fault


def test_limit_one_wrong_element_of_one_opening_wedges_a_federation_on_an_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, honest, liar = World(tmp_path, "reciprocal"), Client._openings, int(dice().integers(N))

    def wrong(client: Client) -> Residues:
        found = honest(client)
        if client.number == liar:
            found[0, 0, 0] = (int(found[0, 0, 0]) + 1) % client.session.ring.primes[0]
        return found

    with monkeypatch.context() as patched:
        patched.setattr(Client, "_openings", wrong)
        with pytest.raises(ProtocolError, match="openings contradict"):
            world.driver.setup()
    tries: list[Callable[[], Driver | None]] = [world.driver.round, world.driver.setup, world.restarted]
    for again in tries:  # everybody is honest now, and it does not help
        with pytest.raises(ProtocolError, match="openings contradict"):
            (again() or world.driver).setup()
    assert world.driver.server.phase is Phase.OPENING


def sent_to_the_last_round(folder: Path, form: str, **params: Any) -> tuple[World, int]:
    """A federation after a round, and the client that then got one order that the server never gave."""
    world, victim = World(folder, form, **params), int(dice().integers(N))
    world.run(1)
    world.hosts[victim].obey(Order.parse(Order(Task.ROUND, 2**32 - 1).to_bytes(), SERVER))
    world.hosts[victim] = world.host(victim)  # a restart does not help
    return world, victim


def test_limit_one_order_of_anybody_silences_a_client_for_good(tmp_path: Path) -> None:
    world, victim = sent_to_the_last_round(tmp_path, "paillier", dropouts=1)
    for number in range(4):
        if number == 2:  # nor does a new epoch
            world.driver._call(range(N))
            world.driver._new_epoch()
        world.driver.round()
        assert set(world.driver.server.members) == set(range(N)) - {victim}
    assert world.hosts[victim].client.round == 2**32 - 1 > world.session.params.rounds


@pytest.mark.parametrize("form", BOTH)
def test_limit_without_drop_outs_one_order_of_anybody_to_one_client_ends_all_rounds(tmp_path: Path, form: str) -> None:
    world, _ = sent_to_the_last_round(tmp_path, form)
    for _ in range(3):
        with pytest.raises(FederationError, match="4 clients took part in the stage 'share'"):
            world.driver.round()


def test_limit_with_reciprocals_one_order_of_anybody_to_one_client_uses_up_all_rounds(tmp_path: Path) -> None:
    world, victim = sent_to_the_last_round(tmp_path, "reciprocal", dropouts=1, rounds=9)
    world.driver.round()
    assert set(world.driver.server.members) == set(range(N)) - {victim}
    with pytest.raises(FederationError, match="they are over"):  # it makes weights with the others, and never shares
        world.driver.round()
    assert world.driver.server.round == 9
    assert world.driver.server.done == 3


@pytest.mark.parametrize("form", BOTH)
def test_limit_one_order_of_anybody_deletes_the_state_of_a_client(tmp_path: Path, form: str) -> None:
    world = World(tmp_path, form)
    world.run(1)
    before = world.hosts[2].client.wire.hello.incarnation
    world.hosts[2].obey(Order(Task.END))
    assert not (tmp_path / "2").exists()
    assert world.host(2).client.wire.hello.incarnation != before
