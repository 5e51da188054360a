"""What a server that deviates tries against the keyed form alone: sums, means, unions, votes, openings, and lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.field import M61, Residues, Ring
from secea.audit import Subject
from secea.audit.attacks.deviating import (
    PLAIN,
    PUBLISHED,
    RANDOM_STEPS,
    SMALL,
    SMALLEST,
    TOLERANT,
    Deviation,
    Lie,
    Play,
    kind_of,
    seeds,
)
from secea.audit.attacks.stage import DIM, Stage, Tap, untouched
from secea.errors import FederationError
from secea.forms.keyed.form import Kind
from secea.forms.keyed.masking import statement
from secea.forms.keyed.numbers import Numbers
from secea.forms.keyed.server import KeyedServer
from secea.party.phases import REST
from secea.wire.messages import Buffer

RELAYED: Final = SMALL
SETTINGS: Final = (SMALL, SMALLEST)
WORDS: Final = 6
"""The server's words in a change of names and a round with drop-outs."""
SEALED: Final = (("KEY", ("table", "agree", "open")), ("DIGEST", ("table", "open")), ("BEGIN", ("rest", "ready")))


def without(*kinds: str, phases: Sequence[str]) -> Callable[[Stage], Tap]:
    """Messages of these kinds do not come, in these phases."""

    def of(st: Stage) -> Tap:
        def tap(n: int, message: Buffer) -> Iterable[Buffer]:
            return () if kind_of(st, message) in kinds and st.at(n).phase in phases else (message,)

        return tap

    return of


# ---------------------------------------------------------------------------------------------------------------- means

Change = Callable[[Ring, Any], None]
"""Changes sums, noise seeds or noise columns."""
Rewrite = Callable[[Stage, bytes], bytes]
"""Changes the text of a broadcast."""


def scaled(ring: Ring, come: Any) -> None:
    """Twice the sums and their checks."""
    some = np.ascontiguousarray(come.total[:, :, :-2])
    come.total[:, :, :-2] = ring.add(some, some)


def scaled_count(ring: Ring, come: Any) -> None:
    """Twice the counts."""
    some = np.ascontiguousarray(come.total[:, :, -2])
    come.total[:, :, -2] = ring.add(some, some)


def other_slot(ring: Ring, come: Any) -> None:
    """One slot's sum in place of another's."""
    come.total[:, 0] = come.total[:, 1]


def one_unit(ring: Ring, come: Any) -> None:
    """One more in one number."""
    come.total[0, 1, 1] = (int(come.total[0, 1, 1]) + 1) % ring.primes[0]


def no_count(ring: Ring, come: Any) -> None:
    """A slot without a count: it looks as if nobody had it."""
    come.total[:, 1, -2] = 0


def no_noise(ring: Ring, come: Any) -> None:
    """Nobody's noise."""
    come.seeds.clear()


def less_noise(ring: Ring, come: Any) -> None:
    """The noise of one client less."""
    come.seeds.pop(min(come.seeds))


def own_noise(ring: Ring, come: Any) -> None:
    """Noise of the server's choice."""
    come.seeds.update(dict.fromkeys(come.seeds, bytes(32)))


def other_columns(ring: Ring, come: Any) -> None:
    """Noise columns twice."""
    come.columns = ring.add(come.columns, come.columns)


SUMS: Final[tuple[tuple[str, Change], ...]] = (
    ("sums changed or scaled", scaled),
    ("sums changed or scaled", scaled_count),
    ("sums changed or scaled", other_slot),
    ("sums changed or scaled", one_unit),
    ("a slot called empty", no_count),
    ("noise left out or replaced", no_noise),
    ("noise left out or replaced", less_noise),
    ("noise left out or replaced", own_noise),
    ("noise left out or replaced", other_columns),
)


Redraw = Callable[[Numbers, Residues, NDArray[np.uint8]], None]


def rewritten(change: Redraw) -> Rewrite:
    """A change of the rows and the marks of a broadcast."""

    def rewrite(st: Stage, text: bytes) -> bytes:
        n, size = st.part.numbers, st.server.at.size
        rows = n.ring.from_bytes(text[:-size], size, DIM + n.checks).copy()
        marks = np.frombuffer(text[-size:], np.uint8).copy()
        change(n, rows, marks)
        return bytes(n.ring.to_bytes(rows)) + marks.tobytes()

    return rewrite


def element(slot: int, column: int) -> Redraw:
    """One number is larger by 1: whoever took it would have a wrong mean that is in range."""

    def change(n: Numbers, rows: Residues, marks: NDArray[np.uint8]) -> None:
        for k, p in enumerate(n.ring.primes):
            rows[k, slot, column] = (int(rows[k, slot, column]) + (n.C << n.f)) % p

    return change


def swapped(n: Numbers, rows: Residues, marks: NDArray[np.uint8]) -> None:
    """Two slots change places."""
    rows[:, [0, 1]] = rows[:, [1, 0]]


def doubled(n: Numbers, rows: Residues, marks: NDArray[np.uint8]) -> None:
    """Twice everything, noise and checks too."""
    rows[...] = n.ring.add(rows, rows)


def called_empty(n: Numbers, rows: Residues, marks: NDArray[np.uint8]) -> None:
    """Zeros, and the mark of an empty slot."""
    rows[:, 2], marks[2] = 0, 1


def all_empty(n: Numbers, rows: Residues, marks: NDArray[np.uint8]) -> None:
    """The same for all slots."""
    rows[...], marks[...] = 0, 1


def strange(n: Numbers, rows: Residues, marks: NDArray[np.uint8]) -> None:
    """A mark that is none."""
    marks[2] = 7


def no_element(n: Numbers, rows: Residues, marks: NDArray[np.uint8]) -> None:
    """A number that is not in the field."""
    rows[0, 0, 0] = n.ring.primes[0]


TEXTS: Final[tuple[tuple[str, Rewrite], ...]] = (
    ("means changed, swapped or truncated", rewritten(element(1, 1))),
    ("means changed, swapped or truncated", rewritten(element(1, -1))),
    ("means changed, swapped or truncated", rewritten(swapped)),
    ("means changed, swapped or truncated", rewritten(doubled)),
    ("means changed, swapped or truncated", rewritten(no_element)),
    ("means changed, swapped or truncated", lambda _, text: text[:-5]),
    ("means changed, swapped or truncated", lambda _, text: text + b"\0"),
    ("means changed, swapped or truncated", lambda _, text: bytes(len(text))),
    ("a slot called empty", rewritten(called_empty)),
    ("a slot called empty", rewritten(all_empty)),
    ("a slot called empty", rewritten(strange)),
)


def divided(st: Stage, change: Change | None = None) -> bytes:
    """What the server would broadcast, if the sums were these."""
    come = deepcopy(st.part.summed)
    if change is not None:
        change(st.part.numbers.ring, come)
    return b"".join(map(bytes, KeyedServer._means(st.part, 0, come)))


def summed(st: Stage) -> bool:
    """A round up to the broadcast of the means, which the server keeps to itself."""
    if not st.upload():
        return False
    st.tap = without("KEY", "MEANS", "DIGEST", phases=("upload", "open"))(st)
    fine = st.run_on()
    st.tap = untouched
    return fine


def texts(st: Stage, old: bytes) -> list[tuple[str, bytes]]:
    """Every wrong broadcast of a round."""
    right = divided(st)
    made = [(kind, divided(st, change)) for kind, change in SUMS]
    made += [(kind, rewrite(st, right)) for kind, rewrite in TEXTS]
    return [*made, ("means of an earlier round", old)]


def wrong_means(turn: int) -> Lie:
    """A wrong broadcast for each client, another one for each; and the right one after that."""

    def lie(play: Play) -> None:
        st = play.stage
        if not st.round():
            return
        old = divided(st)
        summed(st)
        every = texts(st, old)
        for i, n in enumerate(st.everyone):
            kind, text = every[(turn * len(st.everyone) + i) % len(every)]
            play.note(kind, n, st.show(n, Kind.MEANS, text))
        for n in st.everyone:
            play.note("a second broadcast in one round", n, st.show(n, Kind.MEANS, divided(st)))

    return lie


def wrong_slot(slot: int) -> Lie:
    """One slot is wrong, for everybody: those who own it and those who do not."""

    def lie(play: Play) -> None:
        st = play.stage
        summed(st)
        text = rewritten(element(slot, 0))(st, divided(st))
        for n in st.everyone:
            play.note("one slot wrong, for everybody", n, st.show(n, Kind.MEANS, text))

    return lie


def two_answers(play: Play) -> None:
    """Right means for all but one client."""
    st = play.stage
    summed(st)
    right = divided(st)
    for n in st.everyone:
        text = rewritten(element(0, 0))(st, right) if n == 2 else right
        play.note("two answers to two clients", n, st.show(n, Kind.MEANS, text))


# --------------------------------------------------------------------------------------------------------------- unions

Tags = NDArray[np.uint64]


def union_with(st: Stage, lists: Callable[[int, Tags], Tags]) -> dict[int, bool]:
    """A union whose tags are others for each client: who goes on."""
    st.server.begin("secret", st.everyone)
    st.deliver()
    while st.server.at.phase != "table":
        if not st.step():
            return {}
    st.tap = without("KEY", "TAGS", "DIGEST", phases=("table",))(st)
    st.step()
    st.tap = untouched
    tags = st.part.tags
    shown = {n: lists(n, tags) for n in st.everyone}
    taken = {n: st.show(n, Kind.TAGS, mine.astype("<u8").tobytes(), size=mine.size) for n, mine in shown.items()}
    st.part.tags = shown[0]
    st.server.at = replace(st.server.at, size=int(shown[0].size))
    return taken


def tag_left_out(place: int) -> Lie:
    """A tag is left out, for everybody; the round goes on as if it were not in the union."""

    def lie(play: Play) -> None:
        st, before = play.stage, play.refusals()
        union_with(st, lambda _, tags: np.delete(tags, place % tags.size))
        st.run_on()
        st.round()
        play.outcome("a tag left out", before)

    return lie


def tags_added(play: Play) -> None:
    """Tags that nobody has."""
    st, before = play.stage, play.refusals()
    more = np.array([3, M61 - 3], np.uint64)
    union_with(st, lambda _, tags: np.unique(np.concatenate([tags, more])))
    st.run_on()
    st.round()
    play.outcome("tags added", before)


def no_lists(play: Play) -> None:
    """Lists that are none, another one for each client."""
    lies: list[Callable[[Tags], Tags]] = [
        lambda tags: tags[::-1].copy(),
        lambda tags: np.repeat(tags[:4], 2),
        lambda tags: np.append(tags, np.uint64(1 << 63)),
        lambda tags: np.arange(1, 12, dtype=np.uint64),
        lambda tags: np.append(tags, tags[-1:]),
    ]
    st = play.stage
    for n, taken in union_with(st, lambda n, tags: lies[n % len(lies)](tags)).items():
        play.note("tags out of order, twice or too many", n, taken)


def two_lists(play: Play) -> None:
    """Client 0 has other tags than the others; the server goes on with each in its own union."""
    st = play.stage

    def lists(n: int, tags: Tags) -> Tags:
        return tags if n else np.sort(np.append(tags[1:], tags[-1] + np.uint64(1)))

    union_with(st, lists)
    st.run_on()
    st.train()
    before = play.refusals()
    if st.ask():  # all say that they have the same union
        st.run("upload", st.everyone)
        play.outcome("two lists of tags", before)
        return
    at, part = st.server.at, st.part
    begun = replace(at, phase="upload", round=st.at(0).round + 1, members=st.everyone)
    part.enter(begun)
    for n in st.everyone:
        if st.say("upload", st.everyone, n, round=begun.round) and (rows := st.sent(n, Kind.UPLOAD)):
            part.stream(Kind.UPLOAD, n, 0, memoryview(rows), begun)
    for _, parts in list(part.ready(Kind.MEANS, begun)):
        for n in st.everyone:
            st.show(n, Kind.MEANS, b"".join(map(bytes, parts)))
    play.outcome("two lists of tags", before)


def union_again(play: Play) -> None:
    """A union is begun, left, and begun again; once more after it was made; and as another attempt."""
    st, before = play.stage, play.refusals()
    for stop in ("table", REST, REST):
        st.run("secret", st.everyone, until=stop)
        st.server.give_up()
        st.server.drain()
    st.server.begin("secret", st.everyone, again=True)
    st.deliver()
    st.run_on()
    st.round()
    play.outcome("a union made again", before)


def few_members(play: Play) -> None:
    """A union and a round of fewer clients than must take part."""
    st, before = play.stage, play.refusals()
    for members in ((0, 1, 2), (3, 4)):
        try:
            if st.union(members):
                st.round()
        except FederationError:  # the server's own program refuses, so it writes the announcement by hand
            for n in members:
                st.say("secret", members, n, epoch=st.at(n).union + 1)
    play.outcome("too few members", before)


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


LEFT_OUT: Final = {0: (2, 4), 2: (4, 5), 3: (2, 5), 4: (2, 5), 5: (2, 4)}
"""The published attack, N=6, D=2, T=1: whom each client is told to leave out. Client 1 helps the server."""


def different_sets(play: Play) -> None:
    """The published attack: each hears of another U, and client 1 signs whatever is needed."""
    st, before = play.stage, play.refusals()
    st.upload()
    for n, out in LEFT_OUT.items():
        U = set(st.everyone) - {*out}
        mine = st.votes(U, [n])
        if n not in mine:
            continue
        helped = st.parties.identities[1].sign(stated(st, n))
        others = [(v, mine[n]) for v in sorted(U - {1, n})]
        st.shown(n, [(n, mine[n]), (1, helped), *others])
        st.sent(n, Kind.OPENING)
    play.outcome("different U to different clients", before, LEFT_OUT)


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


def openings_at_random(steps: int) -> Lie:
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


# ---------------------------------------------------------------------------------------------------------------- lists


def lists_kept(st: Stage) -> dict[int, bytes]:
    """An epoch of names up to the point at which holders get all lists; the server has kept them to itself."""
    st.run(st.form.names_phase, st.everyone, until="confirm")
    st.tap = without("KEY", "LISTS", "DIGEST", phases=("confirm",))(st)
    st.step()
    st.tap = untouched
    return dict(st.part._lists)


def other_lists(play: Play) -> None:
    """Holders get lists that nobody signed, another one for each."""
    st, before = play.stage, play.refusals()
    play.rename()
    lists = lists_kept(st)
    for n in range(st.params.T + 1):
        changed = dict(lists)
        changed[n + 1] = changed[n + 1][32:] + changed[n + 1][:32]
        if n == 0:
            changed[1] = changed[2]
        if st.show(n, Kind.LISTS, *(changed[v] for v in st.everyone), size=0):
            st.sends(n)
    play.outcome("lists of names that nobody signed", before, range(st.params.T + 1))


def points_copied(play: Play) -> None:
    """Client 4 is the server's friend: it lists a blinded name of client 0's."""
    st, before, friend = play.stage, play.refusals(), 4
    play.rename()
    st.server.begin(st.form.names_phase, st.everyone)
    st.deliver()
    whole, naming = st.keyed(0).naming._points, st.keyed(friend).naming
    assert naming.names.blinding is not None
    points = np.concatenate([whole[:1], naming.names.blinding.points[1:]])
    naming.names = replace(naming.names, blinding=replace(naming.names.blinding, points=points))
    while st.server.at.phase in ("list", "confirm"):
        if not st.step():
            break
    for n in st.everyone:
        st.sends(n)
    play.outcome("a blinded name in two lists", before, (0, 1, 2, 3))


def lists_changed(play: Play) -> None:
    """Client 4 is the server's friend: it has another list in each attempt at one epoch of names."""
    st, before, friend = play.stage, play.refusals(), 4
    play.rename()
    st.run(st.form.names_phase, st.everyone, until="evaluate")
    for n in st.everyone:
        st.sends(n)
    epoch = st.server.at.names
    st.server.give_up()
    st.server.drain()
    naming = st.keyed(friend).naming
    naming.names = replace(naming.names, listed=0)
    st.server.begin(st.form.names_phase, st.everyone, names=epoch)
    st.deliver()
    while st.server.at.phase != "secret":
        if not st.step():
            break
    for n in st.everyone:
        st.sends(n)
    play.outcome("two lists of one client in one epoch", before, (0, 1, 2, 3))


def deviations(subject: Subject) -> Iterator[Deviation]:
    """All of them; the random ones with more seeds if it is to be thorough."""
    turns = -(-(len(SUMS) + len(TEXTS) + 1) // PLAIN.clients)
    for turn in range(turns):
        yield Deviation(f"wrong means {turn + 1}", wrong_means(turn), PLAIN)
    yield Deviation("wrong means after drop-outs", wrong_means(0), TOLERANT)
    for slot in (0, -1):
        yield Deviation(f"wrong slot {slot}", wrong_slot(slot), PLAIN)
    yield Deviation("two answers", two_answers, PLAIN)
    for place in range(6 if subject.thorough else 3):
        yield Deviation(f"tag {place + 1} left out", tag_left_out(place), PLAIN)
    yield Deviation("tags added", tags_added, PLAIN)
    yield Deviation("no lists", no_lists, PLAIN)
    yield Deviation("two lists of tags", two_lists, PLAIN)
    yield Deviation("a union made again", union_again, PLAIN)
    yield Deviation("a round again", round_again, PLAIN)
    yield Deviation("few members", few_members, PLAIN)
    yield Deviation("sent again", sent_again, PLAIN)
    yield Deviation("other lists", other_lists, PLAIN)
    yield Deviation("points copied", points_copied, PLAIN, fresh=True, last=True)
    yield Deviation("lists changed", lists_changed, PLAIN, fresh=True, last=True)
    yield Deviation("opened again", sent_again, TOLERANT)
    yield Deviation("slots kept", slots_kept, TOLERANT)
    yield Deviation("left out", left_out, TOLERANT)
    yield Deviation("too few", too_few, TOLERANT)
    yield Deviation("opened twice", opened_twice, TOLERANT)
    yield Deviation("two groups", two_groups, TOLERANT)
    yield Deviation("wrong votes", wrong_votes, TOLERANT)
    for what in ("nothing", "a union", "mask keys"):
        yield Deviation(f"opened after {what}", too_late(what), TOLERANT)
    yield Deviation("different sets", different_sets, PUBLISHED)
    yield Deviation("old votes", old_votes, PUBLISHED)
    for seed in seeds(subject):
        yield Deviation(f"openings at random, seed {seed}", openings_at_random(RANDOM_STEPS), SMALL)
