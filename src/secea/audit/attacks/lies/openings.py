"""Uploads of the keyed form that are asked for again, and sums that must not be opened."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from secea.audit.attacks.lies import Lie, Play
from secea.audit.attacks.stage import Stage
from secea.forms.keyed.form import Kind
from secea.forms.keyed.masking import statement
from secea.party.phases import REST

# ---------------------------------------------------------------------------------------------------------- one release


def sent_again(play: Play) -> None:
    """All upload; the server says that somebody was lost, and asks the others for the same training round again."""
    st, before = play.stage, play.refusals()
    st.upload()
    if st.params.dropouts:
        st.openings(st.votes(st.everyone))
    st.server.give_up()
    st.server.drain()
    fewer = st.everyone[:-1]
    st.union(fewer)
    st.train(st.number)
    if st.ask(fewer):
        st.server.begin("upload", fewer)
        st.deliver()
        st.collect()
        if st.params.dropouts:
            st.openings(st.votes(fewer))
    play.outcome("a training round asked for again", before, fewer)


def uploaded(st: Stage, without: set[int]) -> None:
    """All upload, and the server keeps to itself what these sent."""
    st.train()
    st.ask()
    st.server.begin("upload", st.everyone)
    st.deliver()
    st.here -= without
    st.collect()
    for n in sorted(without):
        st.sends(n)


def round_again(play: Play) -> None:
    """A round is over, and the server asks for an upload with its number once more."""
    st, before = play.stage, play.refusals()
    st.round()
    q = st.server.at.round
    st.train()
    for n in st.everyone:
        if st.say("ready", st.everyone, n):
            st.contribute(n)
        if st.say("upload", st.everyone, n, round=q):
            st.sends(n)
    play.outcome("a round with an old number", before)


def fewer_in_a_round(play: Play) -> None:
    """All are ready, and the server asks for an upload without one of them."""
    st, before = play.stage, play.refusals()
    st.train()
    st.ask()
    fewer = st.everyone[:-1]
    for n in fewer:
        if st.say("upload", fewer, n, round=st.at(n).round + 1):
            st.sends(n)
    play.outcome("a round with fewer than the union has", before, fewer)


def slots_kept(play: Play) -> None:
    """After a round in which somebody dropped out, another one in the same union."""
    st, before = play.stage, play.refusals()
    st.union()
    uploaded(st, without={st.everyone[-1]})
    st.run_on()
    st.train()
    for members in (st.everyone[:-1], st.everyone):
        for n in members:
            if st.say("ready", members, n):
                st.contribute(n)
            if st.say("upload", members, n, round=st.at(n).round + 1):
                st.sends(n)
    play.outcome("a round in a spent union", before, st.everyone[:-1])


# ------------------------------------------------------------------------------------------------------------- openings


def left_out(play: Play) -> None:
    """All have uploaded, and the server leaves out two who add noise; it keeps what they sent."""
    st, before, size = play.stage, play.refusals(), len(play.stage.everyone)
    q = st.server.at.round + 1
    uploaded(st, without={q % size, (q + 1) % size})
    st.run_on()
    play.outcome("two clients left out, who are there", before)


def too_few(play: Play) -> None:
    """Six take part; sums over four, over three, and over those without noise."""
    st, before = play.stage, play.refusals()
    st.union(st.everyone[:-1])
    st.upload()
    for U in ((0, 1, 2, 3), (2, 3, 4, 5), (0, 2, 4), (0, 1)):
        st.openings(st.votes(U))
    play.outcome("a sum over too few", before, st.everyone[:-1])


def opened_twice(play: Play) -> None:
    """A sum is opened, and then another one of the same round."""
    st, before = play.stage, play.refusals()
    st.upload()
    st.openings(st.votes(st.everyone))
    for U in (st.everyone[:-1], st.everyone[1:], st.everyone):
        st.openings(st.votes(U))
    play.outcome("two openings of one round", before)


def signed_twice(play: Play) -> None:
    """The server asks for votes for one U, and for another one as long as nothing is opened."""
    st, before = play.stage, play.refusals()
    st.upload()
    for U in (st.everyone, st.everyone[:-1], st.everyone[1:]):
        st.votes(U)
    play.outcome("votes for two U of one round", before)


def next_round_at_once(play: Play) -> None:
    """A sum is opened, or not, and the server asks for the next upload without asking for training."""
    st, before = play.stage, play.refusals()
    for opened in (False, True):
        st.upload()
        votes = st.votes(st.everyone)
        if opened:
            st.openings(votes)
        for n in st.everyone:
            if st.say("upload", st.everyone, n, round=st.at(n).round + 1):
                st.sends(n)
        st.server.give_up()
        st.server.drain()
        st.union()
    play.outcome("a round without training", before)


LEFT_OUT: Final = {0: (2, 4), 2: (4, 5), 3: (2, 5), 4: (2, 5), 5: (2, 4)}
"""The published attack, N=6, D=2, T=1: whom each client is told to leave out. Client 1 helps the server."""


def different_sets(filled: str) -> Lie:
    """The published attack: each hears of another U. Client 1 signs them all, and other votes are made up."""

    def lie(play: Play) -> None:
        st, before = play.stage, play.refusals()
        st.upload()
        for n, out in LEFT_OUT.items():
            U = set(st.everyone) - {*out}
            if n not in (mine := st.votes(U, [n])):
                continue
            real = [(n, mine[n]), (1, st.parties.identities[1].sign(stated(st, n)))]
            others = [(v, mine[n]) for v in sorted(U - {1, n})]
            st.shown(n, [*real, *(others if filled == "under other names" else real * len(U))])
            st.sent(n, Kind.OPENING)
        play.outcome("different U to different clients", before, LEFT_OUT)

    return lie


def old_votes(play: Play) -> None:
    """The same with votes: those that all gave for each of these U in earlier rounds."""
    st, kept = play.stage, dict[tuple[int, ...], dict[int, bytes]]()
    for out in sorted({*LEFT_OUT.values()}):
        st.upload()
        kept[out] = st.votes({*st.everyone} - {*out})
        st.server.give_up()
        st.server.drain()
        st.union()
    st.upload()
    for n, out in LEFT_OUT.items():
        if n in st.votes({*st.everyone} - {*out}, [n]):
            play.note("votes of earlier rounds", n, st.shown(n, kept[out].items()))
            st.sent(n, Kind.OPENING)


def stated(st: Stage, n: int, **other: Any) -> bytes:
    """What client n signs."""
    noisy = st.part.form.noise_clients(st.params, st.at(n))
    return statement(st.parties.session.hash, replace(st.at(n), **other), noisy)


def two_groups(play: Play) -> None:
    """Two groups sign two U, and client 1 signs both: each is shown all votes that there are."""
    st, before = play.stage, play.refusals()
    st.upload()
    groups = {st.everyone[:-1]: (0, 2, 3), st.everyone: (4, 5, 6)}
    for U, voters in groups.items():
        votes = st.votes(U, voters)
        for n in votes:
            helped = {1: st.parties.identities[1].sign(stated(st, n))}
            st.shown(n, {**votes, **helped, **{v: bytes(64) for v in U if v not in {1, *votes}}}.items())
            st.sent(n, Kind.OPENING)
    play.outcome("two U to two groups", before, (0, 2, 3, 4, 5, 6))


Votes = list[tuple[int, bytes]]


def wrong_votes(play: Play) -> None:
    """Each client is shown other votes than those that it needs."""
    st = play.stage
    st.upload()
    U = st.everyone[:-1]
    votes = list(st.votes(U).items())[: st.t]
    if not votes:
        return
    sign, last = st.parties.identities[1].sign, votes[-1][0]
    outsider = st.everyone[-1], st.parties.identities[st.everyone[-1]].sign(stated(st, 0))
    lies: list[Votes] = [
        [*votes[:-1], votes[0]],
        [*votes[:-1], (last, bytes(64))],
        [*votes[:-1], (last, votes[0][1])],
        [*votes[:-1], outsider],
        [(1, sign(stated(st, 0, members=st.everyone))), *[v for v in votes if v[0] != 1][: st.t - 1]],
        votes[:-1],
    ]
    for n in U:
        taken = st.shown(n, lies[n % len(lies)])
        st.sent(n, Kind.OPENING)
        play.note("votes missing, forged or doubled", n, taken)


def too_late(what: str) -> Lie:
    """Something else has begun since the upload; or nothing was uploaded yet."""

    def lie(play: Play) -> None:
        st, before = play.stage, play.refusals()
        if what != "nothing":
            st.upload()
            st.server.give_up()
            st.server.drain()
        if what == "a union":
            st.union()
        elif what == "mask keys":
            for n in st.everyone:
                st.say("batch", st.everyone, n)
                st.sends(n)
        for U in (st.everyone, st.everyone[:-1]):
            for q in {st.at(0).round, max(0, st.at(0).round - 1)}:
                votes = {n: st.sent(n, Kind.VOTE) for n in U if st.say("agree", U, n, round=q)}
                st.openings({n: vote for n, vote in votes.items() if vote})
        play.outcome("an opening too early or too late", before)

    return lie


def at_random(steps: int) -> Lie:
    """Uploads, mask keys, any U to anybody, and any votes that there ever were."""

    def lie(play: Play) -> None:
        st, rng, kept = play.stage, play.rng, dict[int, list[bytes]]()

        def some(least: int) -> list[int]:
            size = int(rng.integers(least, len(st.everyone) + 1))
            return sorted(map(int, rng.choice(len(st.everyone), size, replace=False)))

        for _ in range(steps):
            match int(rng.integers(7)):
                case 0:
                    if st.server.at.phase != REST or any(st.at(n).phase != REST for n in st.everyone):
                        st.server.give_up()
                        st.server.drain()
                        st.union()
                    st.upload()
                case 1:
                    for n in some(1):
                        play.note("openings at random", n, st.say("batch", st.everyone, n))
                case 2 | 3:
                    U = some(st.t - 1)
                    for n in some(1):
                        if n in U and st.say("agree", U, n, round=max(0, st.at(n).round - int(rng.random() < 0.1))):
                            kept.setdefault(n, []).append(st.sent(n, Kind.VOTE) or b"")
                case 4:
                    for n in st.openings(st.votes(some(st.t))):
                        play.note("openings at random", n, True)
                case _:
                    for n in some(1):
                        voters = [v for v in kept if kept[v]][: st.t]
                        if st.at(n).phase == "agree" and len(voters) == st.t:
                            play.note("openings at random", n, st.shown(n, [(v, kept[v][-1]) for v in voters]))
                            st.sent(n, Kind.OPENING)

    return lie
