"""Wrong unions of the keyed form, and wrong lists of blinded names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.field import M61
from secea.audit.attacks.lies import Lie, Play, without
from secea.audit.attacks.stage import Stage, untouched
from secea.errors import FederationError
from secea.forms.keyed.form import Kind
from secea.party.phases import REST

Tags = NDArray[np.uint64]


def union_with(st: Stage, lists: Callable[[int, Tags], Tags]) -> dict[int, bool]:
    """A union whose tags are others for each client: who goes on."""
    st.server.begin("secret", st.everyone)
    st.deliver()
    while st.server.at.phase != "table":
        if not st.step():
            return {}
    st.tap = without(st, "KEY", "TAGS", "DIGEST", phases=("table",))
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


# ---------------------------------------------------------------------------------------------------------------- lists


def lists_kept(st: Stage) -> dict[int, bytes]:
    """An epoch of names up to the point at which holders get all lists; the server has kept them to itself."""
    st.run(st.form.names_phase, st.everyone, until="confirm")
    st.tap = without(st, "KEY", "LISTS", "DIGEST", phases=("confirm",))
    st.step()
    st.tap = untouched
    return dict(st.part._lists)


def other_lists(play: Play) -> None:
    """Holders get lists that nobody signed, another one for each."""
    st, before = play.stage, play.refusals()
    play.other_names()
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
    play.other_names()
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
    play.other_names()
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
