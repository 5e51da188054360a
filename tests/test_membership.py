"""Clients that join, leave, change their entities, or were not there at the beginning."""

from __future__ import annotations

from typing import Any

import pytest

from secea import CallError, Federation, FederationError, ParamsError, TableError
from secea.errors import SERVER
from secea.table import Name
from world import BOTH, Ledger, World, few_each


def public(fed: Federation) -> dict[int, tuple[bytes, bytes, bytes]]:
    """Of each party: its identity, its Paillier modulus, its X25519 key of this session."""
    hellos = {n: client.wire.hello for n, client in fed.clients.items()} | {SERVER: fed.server.wire.hello}
    return {n: (fed.session.roster.key(n), hello.paillier, hello.public) for n, hello in hellos.items()}


def fresh(before: dict[int, tuple[bytes, bytes, bytes]], after: dict[int, tuple[bytes, bytes, bytes]]) -> bool:
    """Whether no session key, nor any that is not meant to stay, is among those before."""
    return not {key for *_, key in before.values()} & {key for *_, key in after.values()}


@pytest.mark.parametrize("form", BOTH)
def test_a_client_joins_and_the_others_keep_their_identities_and_paillier_keys_and_nothing_else(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(monkeypatch)
    there = World(few_each(5), form, dropouts=1).setup()
    there.round()
    keys, session, tags = public(there.fed), there.fed.session.hash, set(there.fed.server.tags.tolist())
    names: list[Name] = ["all", "new"]
    assert there.fed.join(names) == 5
    there.sets.append(names)
    assert there.fed.params.clients == 6
    after = public(there.fed)
    assert {n: after[n][:2] for n in keys} == {n: kept[:2] for n, kept in keys.items()}
    assert after[5][0] not in {identity for identity, *_ in keys.values()}
    assert fresh(keys, after)
    assert there.fed.session.hash != session
    assert not tags & set(there.fed.server.tags.tolist())
    there.round()
    there.round(vanish=[5])
    there.round(absent=[5])
    there.round()
    ledger.check()


@pytest.mark.parametrize("who", [0, 2, 4])
@pytest.mark.parametrize("form", BOTH)
def test_a_client_leaves_and_the_others_move_up_with_their_identities_and_paillier_keys(form: str, who: int) -> None:
    there = World(few_each(5), form).setup()
    there.round()
    keys, session, tags = public(there.fed), there.fed.session.hash, set(there.fed.server.tags.tolist())
    there.fed.leave(who)
    del there.sets[who]
    assert there.fed.params.clients == 4
    stayed = [keys[n][:2] for n in range(5) if n != who]
    after = public(there.fed)
    assert [after[n][:2] for n in range(4)] == stayed
    assert after[SERVER][:2] == keys[SERVER][:2]
    assert fresh(keys, after)
    assert there.fed.session.hash != session
    assert not tags & set(there.fed.server.tags.tolist())
    there.round()
    there.round(absent=[0]) if there.fed.server.fewest < 4 else there.round()


@pytest.mark.parametrize("form", BOTH)
def test_an_entity_that_only_the_one_who_left_owned_is_gone(form: str) -> None:
    there = World([["a", "mine"], ["a"], ["b"], ["a", "b"]], form).setup()
    assert there.fed.server.M == 3
    there.fed.leave(0)
    del there.sets[0]
    assert there.fed.server.M == 2
    there.round()


@pytest.mark.parametrize("form", BOTH)
def test_so_many_cannot_leave_that_the_rest_would_be_exposed_and_the_federation_stays_as_it_was(form: str) -> None:
    there = World(few_each(5), form, collusion=2).setup()
    keys, session = public(there.fed), there.fed.session.hash
    with pytest.raises(ParamsError, match="collusion must be"):
        there.fed.leave(1)
    assert (public(there.fed), there.fed.session.hash) == (keys, session)
    there.round()
    three = World(few_each(5)[:3], form).setup()
    with pytest.raises(ParamsError, match="clients must be 3"):
        three.fed.leave(2)
    three.round()


def test_dropouts_that_the_rest_cannot_bear_are_refused_and_the_federation_stays_as_it_was() -> None:
    there = World(few_each(5), "reciprocal", dropouts=2).setup()
    with pytest.raises(ParamsError, match="dropouts must be"):
        there.fed.leave(0)
    there.round(vanish=[1, 3])
    there.round()


@pytest.mark.parametrize("form", BOTH)
def test_joining_with_more_entities_than_the_public_bound_is_refused_and_the_federation_stays_as_it_was(
    form: str,
) -> None:
    there = World(few_each(5)[:4], form, max_entities=3, max_union=12).setup()
    keys = public(there.fed)
    with pytest.raises(TableError, match="more than the public bound max_entities=3"):
        there.fed.join(range(4))
    assert public(there.fed) == keys
    assert there.fed.params.clients == 4
    there.round()
    assert there.fed.join(["all"]) == 4
    there.sets.append(["all"])
    there.round()


@pytest.mark.parametrize("form", BOTH)
def test_whoever_was_absent_at_the_set_up_comes_in_by_an_update(form: str) -> None:
    there = World(few_each(5), form, dropouts=2, max_entities=3, max_union=12)
    there.fed.setup([None if n in (1, 2) else names for n, names in enumerate(there.sets)])
    there.round(absent=[1, 2])
    with pytest.raises(CallError, match=r"client 1 was absent from the set-up; call update\(1, names\) first"):
        there.round(absent=[2])
    there.fed.update(1, there.sets[1])
    there.round(absent=[2])
    there.fed.update(2, there.sets[2], absent=[0])
    there.round(absent=[0])
    there.round()


@pytest.mark.parametrize("form", BOTH)
def test_a_join_and_a_leave_with_someone_who_never_came_keep_him_absent(form: str) -> None:
    there = World(few_each(5), form, dropouts=1, max_entities=3, max_union=12)
    there.fed.setup([None if n == 1 else names for n, names in enumerate(there.sets)])
    there.fed.join(["all"])
    there.sets.append(["all"])
    there.round(absent=[1])
    there.fed.update(1, there.sets[1])
    there.round()
    there.fed.leave(0)
    del there.sets[0]
    there.round()


@pytest.mark.parametrize("form", BOTH)
def test_an_update_that_fails_leaves_the_entities_as_they_were(form: str) -> None:
    there = World([["a", "b"], ["a"], ["b", "c"], ["c"]], form, max_entities=3, max_union=4).setup()
    there.round()
    with pytest.raises(TableError, match="client 1 has 4 entities, more than the public bound max_entities=3"):
        there.fed.update(1, ["a", "b", "c", "d"])
    there.round()
    with pytest.raises(FederationError, match="max_union=4"):
        there.fed.update(1, ["d", "e"])
    there.round()
    with pytest.raises(TableError, match="occurs more than once"):
        there.fed.update(1, ["d", "d"])
    there.round()
    there.fed.update(1, ["d", "a"])
    there.sets[1] = ["d", "a"]
    there.round()


@pytest.mark.parametrize("form", BOTH)
def test_an_update_that_fails_for_a_newcomer_leaves_him_out(form: str) -> None:
    names: list[Any] = [["a", "b"], ["a"], ["b", "c"], None]
    there = World([["a", "b"], ["a"], ["b", "c"], []], form, dropouts=1, max_entities=3, max_union=4)
    there.fed.setup(names)
    for own, message in ((["a", "b", "c", "d"], "max_entities=3"), (["d", "e"], "max_union=4")):
        with pytest.raises((TableError, FederationError), match=message):
            there.fed.update(3, own)
        assert set(there.fed.clients) == {0, 1, 2}
        there.round(absent=[3])
    there.fed.update(3, ["d"])
    there.sets[3] = ["d"]
    there.round()


@pytest.mark.parametrize("call", [lambda fed: fed.leave(5), lambda fed: fed.update(5, []), lambda fed: fed.leave(-1)])
def test_there_is_no_client_beyond_the_last(call: Any) -> None:
    there = World(few_each(5), "reciprocal").setup()
    with pytest.raises(CallError, match="there is no client"):
        call(there.fed)
    there.round()


@pytest.mark.parametrize("call", [lambda fed: fed.leave(0), lambda fed: fed.join([]), lambda fed: fed.update(0, [])])
def test_nobody_joins_leaves_or_changes_before_the_set_up(call: Any) -> None:
    with pytest.raises(CallError, match=r"call setup\(names\) first"):
        call(World(few_each(5), "reciprocal").fed)
