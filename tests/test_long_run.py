"""Long runs: losses, absences, returns, other entities, joins, leaves, restarts, wrong answers; every mean is right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from secea import FederationError
from secea.client import Client
from secea.errors import SERVER
from secea.table import Name
from secea.wire.endpoint import Stage
from secea.wire.messages import Buffer
from world import BOTH, Ledger, World

ROUND_STAGES: Final = {"reciprocal": ("opening", "reshare", "share", "answer"), "paillier": ("share", "answer")}
EPOCH_STAGES: Final = {
    "reciprocal": ("secret", "table", "query", "opening", "reshare"),
    "paillier": ("secret", "table", "query"),
}
NAMES: Final[tuple[Name, ...]] = ("a", "b", "c", "d", 1, "1", 2, 3)
FEWEST, MOST = 5, 7
BOUNDS: Final = {"max_entities": 3, "max_union": 8, "dropouts": 2}


class Life(World):
    """A federation to which things happen; each of its methods checks everything that can be checked."""

    def __init__(self, form: str, seed: int, clients: int = 5) -> None:
        sets = [list(NAMES[n % 4 : n % 4 + n % 4]) for n in range(clients)]
        super().__init__(sets, form, seed=seed, dim=1 if form == "paillier" else 2, **BOUNDS)
        self.setup()
        self.away: set[int] = set()
        self.wrong = 0

    @property
    def clients(self) -> int:
        return self.fed.params.clients

    @property
    def spare(self) -> int:
        """How many more than those who are away may be lost."""
        return self.clients - self.fed.server.fewest - len(self.away)

    def some(self, count: int) -> list[int]:
        """Some of those who are there."""
        there = sorted(set(range(self.clients)) - self.away)
        return [int(n) for n in self.rng.choice(there, min(count, len(there)), replace=False)]

    def one_round(self, lost: dict[int, str]) -> None:
        """A round; where weights are kept nobody can be lost while they are made."""
        faults = len(self.fed.faults)
        weighted = self.fed.session.form.weighted
        there = set(range(self.clients)) - self.away
        renewed = weighted and set(self.fed.server.contributors) != there
        if not renewed and not any(stage == "share" for stage in lost.values()):  # nobody makes weights in this round
            lost = {n: stage for n, stage in lost.items() if stage not in ("opening", "reshare")}
        number = self.fed.server.round
        self.checked_round(lost)
        assert self.fed.server.round > number, "numbers only grow"
        assert len(self.fed.faults) == faults

    def checked_round(self, lost: dict[int, str]) -> None:
        tables = self.tables()
        given: list[Any] = [None if n in self.away else table for n, table in enumerate(tables)]
        means = self.fed.round(given, vanish=lost)
        self.rounds += 1
        among = set(self.fed.server.contributors)
        gone = {n for n, stage in lost.items() if stage == "answer"}
        assert among >= set(range(self.clients)) - self.away - set(lost)
        if (
            not self.fed.session.form.weighted and self.away
        ):  # the share that was not sent may be that of one who is away
            gone |= {n for n, stage in lost.items() if stage == "share"}
        assert among - gone <= set(range(self.clients)) - self.away - (set(lost) - gone)
        self.check(tables, means, among, self.away | set(lost))

    def too_many_lost(self, stage: str) -> None:
        lost = dict.fromkeys(self.some(self.spare + 1), stage)
        with pytest.raises(FederationError, match=f"{self.fed.server.fewest} are needed"):
            self.checked_round(lost)
        assert all(client.means is None for n, client in self.fed.clients.items() if n not in self.away)

    def leave_for_a_while(self) -> None:
        self.away |= set(self.some(1))

    def change(self, lost: dict[int, str]) -> None:
        """Someone who is there has other entities from now on."""
        (who,) = self.some(1)
        names = [NAMES[int(i)] for i in self.rng.choice(len(NAMES), int(self.rng.integers(4)), replace=False)]
        self.fed.update(who, names, absent=self.away, vanish=lost)
        self.sets[who] = names

    def change_too_much(self) -> None:
        (who,) = self.some(1)
        before = self.fed.clients[who].names
        with pytest.raises(ValueError, match="more than the public bound max_entities=3"):
            self.fed.update(who, NAMES[:4], absent=self.away)
        assert self.fed.clients[who].names == before

    def join(self) -> None:
        names = [NAMES[int(self.rng.integers(len(NAMES)))]]
        self.sets.append(names)
        assert self.fed.join(names) == self.clients - 1
        self.enough_come_back()

    def leave(self) -> None:
        who = int(self.rng.integers(self.clients))
        self.fed.leave(who)
        del self.sets[who]
        self.away = {n - (n > who) for n in self.away if n != who}
        self.enough_come_back()

    def enough_come_back(self) -> None:
        """In a larger federation more answers are needed, and in a smaller one fewer may be away."""
        while self.spare < 0:
            self.away.remove(min(self.away))

    def restart(self) -> None:
        everyone = [*range(self.clients), SERVER]
        self.fed.restart(*(int(n) for n in self.rng.choice(everyone, int(self.rng.integers(1, 4)), replace=False)))

    def wrong_answers(self) -> None:
        """One client answers wrongly; there are at least two more answers than needed."""
        (who,) = self.some(1)
        before = len(self.fed.faults)
        with broken(who):
            self.checked_round({})
        found = self.fed.faults[before:]
        assert found
        for fault in found:
            changed = "our own answer" in fault.fault
            assert fault.suspects == ((SERVER,) if changed else (who, SERVER))
        self.wrong += 1


class broken:  # noqa: N801 - reads as what it is: with broken(client)
    """While this lasts, a client adds a constant to its sums before it answers."""

    def __init__(self, who: int) -> None:
        self.who, self.patch = who, pytest.MonkeyPatch()

    def __enter__(self) -> None:
        answers, who = Client._answers, self.who

        def wrongly(client: Client, stage: Stage) -> Iterator[tuple[int, bytes, Buffer]]:
            if client.number == who and client.sums is not None:
                ring = client.session.ring
                client.sums = ring.add(client.sums, np.ones_like(client.sums))
            return answers(client, stage)

        self.patch.setattr(Client, "_answers", wrongly)

    def __exit__(self, *_: object) -> None:
        self.patch.undo()


@pytest.mark.parametrize("form", BOTH)
@pytest.mark.parametrize("who", range(7))
def test_a_wrong_answer_is_left_out_and_its_client_is_named(form: str, who: int) -> None:
    sets: list[list[Name]] = [["a"], ["a", "b"], ["b", "c"], ["c"], ["a", "c"], ["d", "b"], ["d"]]
    there = World(sets, form, dropouts=4, dim=1).setup()
    assert there.fed.params.clients - there.fed.params.need >= 2
    with broken(who):
        there.round()
    suspects = {fault.suspects for fault in there.fed.faults}
    assert suspects <= {(who, SERVER), (SERVER,)}
    assert (who, SERVER) in suspects
    assert [f.fault for f in there.fed.clients[who].faults] == [
        f"our own answer, as it has it, does not fit the others' in round {there.fed.server.round};"
        " the means are made without it"
    ]
    there.fed.faults.clear()
    there.round()
    assert not there.fed.faults


@pytest.mark.parametrize("form", BOTH)
def test_a_wrong_answer_that_nobody_can_find_gives_no_result_and_the_next_round_is_right(form: str) -> None:
    there = World([["a"], ["a", "b"], ["b", "c"], ["c"]], form, dropouts=1).setup()
    assert there.fed.params.need == 3
    with broken(1), pytest.raises(Exception, match="do not fit together") as caught:
        there.round()
    assert 1 in caught.value.suspects  # type: ignore[attr-defined]
    assert all(client.means is None for client in there.fed.clients.values())
    there.round()


# ------------------------------------------------------------------------------------------------- one long random life


def live(life: Life, rounds: int, rng: np.random.Generator) -> dict[str, int]:
    """So many rounds, with things that happen between and in them; how often each happened."""
    happened: dict[str, int] = {}
    form = life.fed.session.form.name
    while life.rounds < rounds:
        weights = {"round": 10, "lost": 6, "too many": 1, "away": 2, "back": 2, "change": 2, "change, lost": 1,
                   "too much": 1, "join": 0.3, "leave": 0.3, "restart": 3, "wrong": 4}  # fmt: skip
        p = np.array(list(weights.values()))
        event = str(rng.choice(list(weights), p=p / p.sum()))
        match event:
            case "round":
                life.one_round({})
            case "lost" if life.spare > 0:
                lost = life.some(int(rng.integers(1, life.spare + 1)))
                life.one_round({n: str(rng.choice(ROUND_STAGES[form])) for n in lost})
            case "too many":
                life.too_many_lost(str(rng.choice(("share", "answer"))))
            case "away" if life.spare > 0:
                life.leave_for_a_while()
            case "back" if life.away:
                life.away.discard(int(rng.choice(sorted(life.away))))
            case "change":
                life.change({})
            case "change, lost" if life.spare > 0:
                life.change({life.some(1)[0]: str(rng.choice(EPOCH_STAGES[form]))})
            case "too much":
                life.change_too_much()
            case "join" if life.clients < MOST:
                life.join()
            case "leave" if life.clients > FEWEST:
                life.leave()
            case "restart":
                life.restart()
            case "wrong" if life.spare >= 2:
                life.wrong_answers()
            case _:
                continue
        happened[event] = happened.get(event, 0) + 1
    return happened


@pytest.mark.parametrize(("form", "rounds"), [("reciprocal", 60), ("paillier", 40)])
def test_in_a_long_life_every_mean_is_right_and_no_key_serves_twice(
    form: str, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, seed = Ledger(monkeypatch), 20220609
    life = Life(form, seed)
    happened = live(life, rounds, np.random.default_rng([seed, rounds]))
    print(happened)
    assert life.rounds >= rounds
    assert set(happened) >= {"round", "lost", "too many", "away", "back", "change", "restart", "wrong"}
    ledger.check()


# ------------------------------------------------------------------------------------------------------ state machines


class Lives(RuleBasedStateMachine):
    """Hypothesis decides what happens."""

    form = "reciprocal"

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.ledger = Ledger(self.patch)

    @initialize(seed=st.integers(0, 2**32), clients=st.integers(FEWEST, MOST))
    def begin(self, seed: int, clients: int) -> None:
        self.life = Life(self.form, seed, clients)

    @rule()
    def round(self) -> None:
        self.life.one_round({})

    @rule(data=st.data())
    @precondition(lambda self: self.life.spare > 0)
    def round_with_losses(self, data: st.DataObject) -> None:
        lost = self.life.some(data.draw(st.integers(1, self.life.spare)))
        self.life.one_round({n: data.draw(st.sampled_from(ROUND_STAGES[self.form])) for n in lost})

    @rule(stage=st.sampled_from(["share", "answer"]))
    def round_with_too_many_losses(self, stage: str) -> None:
        self.life.too_many_lost(stage)

    @rule()
    @precondition(lambda self: self.life.spare > 0)
    def someone_goes_away(self) -> None:
        self.life.leave_for_a_while()

    @rule(data=st.data())
    @precondition(lambda self: self.life.away)
    def someone_comes_back(self, data: st.DataObject) -> None:
        self.life.away.discard(data.draw(st.sampled_from(sorted(self.life.away))))

    @rule()
    def someone_changes(self) -> None:
        self.life.change({})

    @rule(data=st.data())
    @precondition(lambda self: self.life.spare > 0)
    def someone_changes_and_someone_is_lost(self, data: st.DataObject) -> None:
        self.life.change({self.life.some(1)[0]: data.draw(st.sampled_from(EPOCH_STAGES[self.form]))})

    @rule()
    def someone_changes_too_much(self) -> None:
        self.life.change_too_much()

    @rule()
    @precondition(lambda self: self.life.clients < MOST)
    def someone_joins(self) -> None:
        self.life.join()

    @rule()
    @precondition(lambda self: self.life.clients > FEWEST)
    def someone_leaves(self) -> None:
        self.life.leave()

    @rule()
    def some_are_restarted(self) -> None:
        self.life.restart()

    @rule()
    @precondition(lambda self: self.life.spare >= 2)
    def someone_answers_wrongly(self) -> None:
        self.life.wrong_answers()

    def teardown(self) -> None:
        self.patch.undo()
        self.ledger.check()


class PaillierLives(Lives):
    """The same, with Paillier."""

    form = "paillier"


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=6, stateful_step_count=30, deadline=None)
TestPaillierLives = PaillierLives.TestCase
TestPaillierLives.settings = settings(max_examples=3, stateful_step_count=20, deadline=None)
