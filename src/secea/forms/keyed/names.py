"""How names become keys in the keyed form: the client's side of the threshold PRF of names (section K2).

First the clients deal shares of a joint key, the key of the names. Then each client sends a list of its blinded names.
Clients confirm that all have seen the same lists, and T+1 *holders* of the key answer them. In this way all owners of
an entity arrive at the same PRF value, and nobody else learns it.

`Naming` is what client n does from the phase "commit" to the phase "evaluate". `KeyedClient` holds one. Every client is
a dealer, asks for its own names, and may be one of the holders. In a session that takes over the key of another one,
some members of the previous session deal, and newcomers ask first (`secea.forms.keyed.handover`).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.ristretto import Tick, valid
from secea.errors import SERVER, CallError, FaultyPeer, ProtocolError, TableError, party
from secea.forms.keyed.form import Keyed, Kind
from secea.forms.keyed.values import Values
from secea.params import Params
from secea.party.form import Got
from secea.party.phases import Agreement
from secea.party.session import Session
from secea.steps import oprf
from secea.table import Name, name_bytes
from secea.wire.keys import Roster, expand
from secea.wire.messages import Buffer
from secea.wire.randomness import SEED_BYTES, Entropy, KeyStream

NO_LIST: Final = oprf.list_hash(np.zeros((0, 32), np.uint8))
"""The hash that clients sign who send no list, because the epoch of names is for newcomers."""


@dataclass(frozen=True, slots=True)
class Key:
    """The threshold key of the names: what this client dealt, and what it holds."""

    seed: bytes = field(default=b"", repr=False)
    """The seed of the polynomial that it deals. Drawn for each attempt."""
    hashes: Mapping[int, bytes] = field(default_factory=dict)
    joint: bytes = b""
    """The joint commitments of all dealers. Empty until the key is complete."""
    share: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Names:
    """A client's entities by their keys (`secea.names`), and the PRF value of each that was ever asked for."""

    own: tuple[Name, ...] = field(repr=False)
    coming: tuple[Name, ...] | None = field(default=None, repr=False)
    """The names from the next epoch of names on, if they change."""
    due: bool = False
    """Whether they changed since the last list, or that list has no answers yet. Only this makes an epoch due."""
    waiting: tuple[Name, ...] = field(default=(), repr=False)
    """The names that found no room in the last list. They go into the next one, whoever it is made for."""
    prf: Values = field(default_factory=Values, repr=False)
    number: int = 0
    """The last epoch of names that was finished."""
    asked: int = 0
    """The last epoch of names that was begun. A repeated attempt sends the same list, byte for byte."""
    seed: bytes = field(default=b"", repr=False)
    """The seed of that list's blinds."""
    blinding: oprf.Blinding | None = field(default=None, repr=False)
    fresh: tuple[Name, ...] = field(default=(), repr=False)
    marks: Mapping[int, bytes] = field(default_factory=dict)
    """The hash of each client's list in this epoch. Once a list was confirmed, no other list of that client will be."""
    lists: Mapping[int, NDArray[np.uint8]] = field(default_factory=dict, repr=False)
    listed: int = 0
    """The epoch to which seed, new names and hashes belong. Its list stays the same, however often it is requested."""


class Naming:
    """What client n does to get the PRF values of its names: as a dealer, as one who asks, and as a holder."""

    def __init__(
        self, form: Keyed, params: Params, session: bytes, number: int, names: tuple[Name, ...], entropy: Entropy
    ) -> None:
        self.form, self.params, self.session, self.number, self._entropy = form, params, session, number, entropy
        self.key = Key()
        self.names = Names(self._bounded(names))
        self.past = b""
        """Its share of the key that this session takes over, kept until names or a union depend on the new shares."""
        self.successor = b""
        """The session that takes over this one's key, if any. All further epochs of names belong to that session."""
        self._predecessor: Naming | None = None
        self.tick: Tick | None = None
        """Called with the number of points that were processed, for a progress bar."""

    def _bounded(self, names: tuple[Name, ...]) -> tuple[Name, ...]:
        most = self.params.max_entities
        assert most is not None
        if len(names) > most:
            raise TableError(
                f"{party(self.number)} has {len(names)} entities, more than the public bound max_entities={most}:"
                " begin a new session with a larger one"
            )
        return names

    @property
    def next_names(self) -> tuple[Name, ...]:
        """The names of its entities, from the next epoch of names on."""
        return self.names.own if self.names.coming is None else self.names.coming

    def update(self, names: tuple[Name, ...], *, at_once: bool = True) -> None:
        """Change the entities from the next epoch of names on.

        With `at_once` all new ones must fit into one epoch. Otherwise those that do not fit wait for another one.
        """
        coming = self._bounded(names)
        known = {*self.names.prf, *self.names.fresh}
        fresh = [name for name in coming if name not in known]
        if self.names.asked and at_once:
            self._check_room(len(fresh), self.names.asked + 1)
        self.names = replace(self.names, coming=None if set(coming) == set(self.names.own) else coming)
        self.names = replace(self.names, due=self._changed or (self.pending and self.names.due))

    @property
    def _changed(self) -> bool:
        """Whether its entities changed since the last list. How many of them had room in it makes no difference."""
        return set(self.next_names) != {*self.names.own, *self.names.waiting}

    def _check_room(self, fresh: int, epoch: int) -> None:
        room = self.form.list_size(self.params, epoch)
        if fresh > room:
            raise TableError(
                f"{party(self.number)} has {fresh} new entities, but only {room} may come at once:"
                " raise max_new_entities, or bring them in several updates"
            )

    def check_begin(self, at: Agreement) -> None:
        """Refuse a key or an epoch of names that is not due, with a `ValueError`."""
        form = self.form
        if at.phase == form.setup_phase:
            # Until names have their keys, another attempt does no harm. With a key that was taken over it would:
            # a client whose list was answered could send another list for the same key.
            begun = self.begun if form.taken_over else self.names.number
            if begun or at.names != 1:
                raise ValueError("announces a new key; that needs a new session")
            if self._hands_over and not self.past:
                raise ValueError("announces the key of the previous session, but we were not given our share of it")
        elif not self.key.joint:
            raise ValueError(f"announces the phase '{at.phase}' before there is a key")
        elif at.phase == form.names_phase:
            due = max(1, self.names.asked)  # the last epoch again, for those who missed its answers, or a later one
            if not due <= at.names <= form.last_epoch or not form.senders(Kind.LIST, self.params, at):
                raise ValueError(f"announces epoch {at.names} of names; it is not due")
            if at.names > 1 and not self.names.number and not self._hands_over:
                # Later lists are short: the number of epochs that we would need would show how many names we have.
                raise ValueError(f"announces epoch {at.names} of names before the first one was answered")
            if self.successor:
                raise ValueError("announces new names in a session whose key was handed over to another one")
        elif self.pending or not self.names.number <= at.names <= form.last_epoch:
            raise ValueError(f"announces a union of the names of epoch {at.names}; ours are {self.names.asked}")
        elif not self.names.number and (not self._hands_over or at.names != 1):
            raise ValueError("announces a union before names have their keys")

    # ---------------------------------------------------------------------------------------- from session to session

    @property
    def _hands_over(self) -> bool:
        """Whether this client was a member of the session whose key is taken over."""
        return self.form.taken_over is not None and self.number in self.form.taken_over.members

    @property
    def updates(self) -> int:
        """How many epochs with new names the key has seen, in this session and the previous ones."""
        before = self.form.taken_over
        return max(0, self.names.asked - 1) + (before.updates if before else 0)

    @property
    def begun(self) -> bool:
        """Whether names were asked for, or confirmed, or have their keys."""
        return bool(self.names.number or self.names.asked or self.names.marks)

    def inherit(self, roster: Roster, before: Session, old: Naming) -> None:
        """Take over the key and the names from the previous session. The old part takes no new names from now on."""
        record = self.form.taken_over
        if record is None or not self._hands_over:
            raise CallError(f"{party(self.number)} has nothing to take over: its session does not follow another one")
        record.check(roster, before, old, self.number)
        if old.successor not in (b"", self.session):
            raise CallError(f"{party(self.number)} has handed over the key of its names to another session")
        wanted, prf = self.next_names, old.names.prf
        there = set(prf)
        known = tuple(name for name in wanted if name in there)
        waiting = tuple(name for name in wanted if name not in there and name in {*old.names.waiting})
        self._check_room(len(wanted) - len(known) - len(waiting), 2)
        self.past, self._predecessor = old.key.share, old
        self.names = Names(known, None if known == wanted else wanted, old.names.due, waiting, prf)
        old.successor = self.session

    def renounce(self) -> None:
        """The session failed to start. The previous one continues, unless names were already asked for in this one."""
        if self._predecessor is not None and not self.begun:
            self._predecessor.successor = b""
            self._predecessor, self.key, self.past = None, Key(), b""

    def plain(self) -> dict[str, Any]:
        """What must survive a restart: the share of the key, the PRF values, and lists that were made or confirmed."""
        names = self.names
        return {
            "joint": self.key.joint, "share": self.key.share, "own": names.own, "coming": names.coming,
            "due": names.due, "waiting": names.waiting,
            "known": names.prf.names, "prf": names.prf.rows.tobytes(), "number": names.number,
            "asked": names.asked, "listed": names.listed, "seed": names.seed, "fresh": names.fresh,
            "marks": dict(names.marks), "past": self.past, "successor": self.successor,
        }  # fmt: skip

    def restore(self, plain: dict[str, Any]) -> None:
        """Load a saved state. A list is made again from its seed when its epoch begins again, with the same bytes."""
        self.key = Key(joint=plain["joint"], share=plain["share"])
        self.past, self.successor = plain["past"], plain["successor"]
        prf = Values.made(plain["known"], plain["prf"])
        self.names = Names(
            plain["own"], plain["coming"], plain["due"], plain["waiting"], prf, plain["number"], plain["asked"],
            plain["seed"], fresh=plain["fresh"], marks=dict(plain["marks"]), listed=plain["listed"],
        )  # fmt: skip

    @property
    def pending(self) -> bool:
        """Whether a list was made that has no answers yet. A client with such a list refuses unions until they come."""
        return self.names.asked > self.names.number

    def enter(self, at: Agreement) -> None:
        """Draw the randomness that a phase needs."""
        if at.phase == self.form.setup_phase:
            self.key = Key(self._entropy(SEED_BYTES))
            if self.form.taken_over is None:
                self.names = Names(self.next_names)
        elif at.phase == self.form.names_phase:
            self._ask(at)
        elif at.phase == self.form.union_phase:
            self.names, self.past = replace(self.names, number=at.names, asked=at.names, lists={}), b""

    # ---------------------------------------------------------------------------------------------- the key of names

    def _polynomial(self) -> tuple[int, ...]:
        before = self.form.taken_over
        constant = before.part(self.past, self.number) if before else None
        return oprf.polynomial(self.params.T, KeyStream(expand(self.key.seed, "polynomial")), constant)

    def _dealing(self) -> bytes:
        """The commitments to its polynomial, and the proof that it knows it."""
        polynomial = self._polynomial()
        commitments = oprf.commit(polynomial)
        stream = KeyStream(expand(self.key.seed, "proof"))
        return commitments + oprf.prove(polynomial, commitments, self.session, self.number, stream)

    @property
    def _deals(self) -> bool:
        return self.form.taken_over is None or self.number in self.form.taken_over.dealers

    def _own_hash(self) -> bytes:
        """The hash of its commitments. A client that hands over a key without dealing signs the hash of nothing."""
        return oprf.commitments_hash(oprf.commit(self._polynomial()) if self._deals else b"")

    def _got_hashes(self, at: Agreement, got: Got) -> Agreement:
        signers = self.form.senders(Kind.COMMITMENT, self.params, at)
        hashes = {v: got[Kind.COMMITMENT, v] for v in signers if v != self.number}
        if self.number in signers:
            hashes[self.number] = self._own_hash()
        self.key = replace(self.key, hashes=hashes)
        return at.bound(*(hashes[v] for v in signers))

    def _check_hash(self, dealer: int, commitments: bytes) -> None:
        """Check that a dealer chose its commitments before it saw anybody else's."""
        if not hmac.compare_digest(oprf.commitments_hash(commitments), self.key.hashes[dealer]):
            raise FaultyPeer(dealer, "deals with other commitments than those whose hash it sent first")

    def _check_proof(self, dealer: int, commitments: bytes, proof: bytes) -> None:
        """Check that another dealer knows what it committed to."""
        if dealer != self.number and not oprf.proven(proof, commitments, self.session, dealer):
            raise FaultyPeer(dealer, "does not prove that it knows what it committed to")

    def _check_part(self, dealer: int, commitments: bytes) -> None:
        """If a key is handed over, check a dealer's commitments against the public commitment to its part of it."""
        before = self.form.taken_over
        if before and not hmac.compare_digest(oprf.public_key(commitments), before.public_part(dealer)):
            raise FaultyPeer(dealer, "deals something other than its part of the previous session's key")

    def _got_dealings(self, at: Agreement, got: Got) -> Agreement:
        """Check each dealing against its hash and proof, and shares against dealings. Errors name the dealer."""
        dealers, me = self.form.senders(Kind.DEALING, self.params, at), self.number
        dealings = {v: got[Kind.DEALING, v] for v in dealers if v != me}
        if self._deals:
            dealings[me] = self._dealing()
        cut = 32 * (self.params.T + 1)
        for v, dealing in dealings.items():
            self._check_hash(v, dealing[:cut])
            self._check_proof(v, dealing[:cut], dealing[cut:])
            self._check_part(v, dealing[:cut])
        if me in self.form.receivers(Kind.SHARE, self.params, at):
            shares = {v: got[Kind.SHARE, v] for v in dealers if v != me}
            if self._deals:
                shares[me] = oprf.share_for(self._polynomial(), me)
            self._take_shares(shares, {v: dealings[v][:cut] for v in dealers})
        after = at.bound(*(dealings[v] for v in dealers))
        ask = self.form.senders(Kind.LIST, self.params, at)  # nobody asks if a key is handed over and nobody has joined
        return replace(after, base=after.context, named=at.named if ask else at.names)

    def _take_shares(self, shares: Mapping[int, bytes], commitments: Mapping[int, bytes]) -> None:
        try:
            share = oprf.key_share(list(shares.values()))
            joint = oprf.joint(list(commitments.values()))
            good = oprf.fits(share, joint, self.number)
        except ValueError:
            good = False
        if not good:
            wrong = [v for v in shares if not oprf.fits(shares[v], commitments[v], self.number)]
            raise ProtocolError(wrong or (SERVER,), "dealt a share that does not fit its commitments")
        self.key = replace(self.key, joint=joint, share=share)

    # ------------------------------------------------------------------------------------------------------ names

    def _ask(self, at: Agreement) -> None:
        """Make the list of an epoch of names. It is blinded once, so that a repeated attempt sends the same bytes."""
        self.past = b""
        if not self._asks(at):
            return
        if self.names.listed == at.names:
            again = self._blinded(self.names.fresh, at.names, self.names.seed)
            self.names = replace(self.names, blinding=again)
            return
        wanted, there, seed = self.next_names, set(self.names.prf), self._entropy(SEED_BYTES)
        room = self.form.list_size(self.params, at.names)
        new = tuple(name for name in wanted if name not in there)
        fresh, waiting = new[:room], new[room:]  # an epoch for the rest would show how many there are
        there |= set(fresh)
        own = tuple(name for name in wanted if name in there)
        own = wanted if own == wanted else own  # millions of names are kept once
        fresh = own if fresh == own else fresh
        blinding = self._blinded(fresh, at.names, seed)
        self.names = replace(
            self.names,
            asked=at.names,
            listed=at.names,
            seed=seed,
            blinding=blinding,
            fresh=fresh,
            own=own,
            coming=wanted if waiting else None,
            waiting=waiting,
            marks={},
        )

    def _blinded(self, fresh: Sequence[Name], epoch: int, seed: bytes) -> oprf.Blinding:
        inputs = [oprf.input_of(name_bytes(name)) for name in fresh]
        return oprf.blind(inputs, self.form.list_size(self.params, epoch), seed)

    def _asks(self, at: Agreement) -> bool:
        return self.number in self.form.senders(Kind.LIST, self.params, at)

    def _mark(self, at: Agreement) -> bytes:
        return oprf.list_hash(self._points) if self._asks(at) else NO_LIST

    @property
    def _points(self) -> NDArray[np.uint8]:
        assert self.names.blinding is not None
        return self.names.blinding.points

    def _got_marks(self, at: Agreement, got: Got) -> Agreement:
        marks = {v: got[Kind.MARK, v] for v in at.members if v != self.number}
        marks[self.number] = self._mark(at)
        askers = self.form.senders(Kind.LIST, self.params, at)
        for v, mark in marks.items():  # two quorums share an honest client, which confirms only one list of each
            if v not in askers and mark != NO_LIST:
                raise FaultyPeer(v, f"signs a list of blinded names in epoch {at.names}, which is for newcomers")
            if self.names.marks.get(v, mark) != mark:
                raise FaultyPeer(v, f"sends another list of blinded names in epoch {at.names} than it sent before")
        self.names = replace(self.names, marks={**self.names.marks, **marks})
        return at.bound(*(marks[v] for v in at.members))

    def _confirmation(self, at: Agreement) -> bytes:
        """The hash of all marks of an epoch of names."""
        state = hashlib.sha256(b"secea lists of an epoch\n%d\n" % at.names)
        for v in at.members:
            state.update(v.to_bytes(2, "little") + self.names.marks[v])
        return state.digest()

    def _got_confirmations(self, at: Agreement, got: Got) -> Agreement:
        """Check that enough clients have seen the same lists. A holder then stores the lists that it may answer."""
        ours, need = self._confirmation(at), self.form.signatures(self.params)
        for v in at.members:
            if v != self.number and not hmac.compare_digest(got[Kind.CONFIRM, v], ours):
                raise ProtocolError((SERVER, v), "has seen other lists of blinded names than we have")
        if len(at.members) < need:
            raise FaultyPeer(SERVER, f"has lists confirmed by {len(at.members)} clients; {need} are needed")
        if not self._asks(at):
            at = replace(at, named=at.names)  # the newcomers' epoch is over for clients that wait for no answers
        if self.number not in self.form.holders(self.params, at):
            return at
        layout = self.form.layout(Kind.LISTS, self.params, at, SERVER)
        every = np.frombuffer(got[Kind.LISTS, SERVER], np.uint8).reshape(layout.sections, layout.rows, 32)
        lists = {v: every[i] for i, v in enumerate(self.form.senders(Kind.LIST, self.params, at))}
        for v, points in lists.items():
            if not hmac.compare_digest(oprf.list_hash(points), self.names.marks[v]):
                raise FaultyPeer(SERVER, f"hands us another list than the one that {party(v)} signed")
            if not valid(points).all():
                raise FaultyPeer(v, "lists something that is not a blinded name")
        self._check_apart(lists)
        self.names = replace(self.names, lists=lists)
        return at

    def _check_apart(self, lists: Mapping[int, NDArray[np.uint8]]) -> None:
        """Check that no point is in two lists, or twice in one. So nobody can have another client's names answered."""
        pair = oprf.repeated(np.concatenate([np.zeros((0, 32), np.uint8), *lists.values()]))
        if pair is None:
            return
        owners = np.repeat(list(lists), [len(points) for points in lists.values()])
        one, other = (int(owners[place]) for place in pair)
        if one == other:
            raise FaultyPeer(one, "lists a blinded name twice")
        raise ProtocolError((other, one), "lists have a blinded name in common")

    def _evaluated(self, points: NDArray[np.uint8], at: Agreement) -> NDArray[np.uint8]:
        return oprf.evaluate(points, self.key.share, self.form.holders(self.params, at), self.number, tick=self.tick)

    def _got_evaluations(self, at: Agreement, got: Got) -> Agreement:
        if not self._asks(at):
            return at
        holders = self.form.holders(self.params, at)
        answers = {
            v: np.frombuffer(got[Kind.EVALUATION, v], np.uint8).reshape(-1, 32) for v in holders if v != self.number
        }
        if self.number in holders:
            answers[self.number] = self._evaluated(self._points, at)
        try:
            found = self._unblinded(answers)
        except oprf.WrongAnswer as wrong:
            raise ProtocolError(wrong.holders or (*holders, SERVER), "answered our blinded names wrongly") from None
        names = replace(self.names, prf=self._answered(found), number=at.names, blinding=None)
        self.names = replace(names, due=self._changed)
        return replace(at, named=at.names)

    def _answered(self, found: Sequence[bytes]) -> Values:
        """What it knows with the values of its new names. An epoch may be answered twice."""
        there = set(self.names.prf)
        fresh = [i for i, name in enumerate(self.names.fresh) if name not in there]
        if len(fresh) == len(self.names.fresh):
            return self.names.prf.plus(self.names.fresh, found)
        return self.names.prf.plus([self.names.fresh[i] for i in fresh], [found[i] for i in fresh])

    def _unblinded(self, answers: Mapping[int, NDArray[np.uint8]]) -> list[bytes]:
        """The PRF values of the names in our list, from the answers of all holders."""
        assert self.names.blinding is not None
        return oprf.finish(self.names.blinding, answers, self.key.joint, tick=self.tick)

    # ------------------------------------------------------------------------------------------------------ phases

    def payload(self, kind: IntEnum, receiver: int, at: Agreement) -> Iterator[Sequence[Buffer]]:
        """The payload of each kind of message."""
        match kind:
            case Kind.COMMITMENT:
                yield (self._own_hash(),)
            case Kind.DEALING:
                yield (self._dealing(),)
            case Kind.SHARE:
                yield (oprf.share_for(self._polynomial(), receiver),)
            case Kind.LIST:
                yield from self._chunks(self._points, kind, at)
            case Kind.MARK:
                yield (self._mark(at),)
            case Kind.CONFIRM:
                yield (self._confirmation(at),)
            case _:
                assert kind is Kind.EVALUATION
                yield from self._chunks(self._evaluated(self.names.lists[receiver], at), kind, at)

    def _chunks(self, rows: NDArray[np.uint8], kind: IntEnum, at: Agreement) -> Iterator[Sequence[Buffer]]:
        layout = self.form.layout(kind, self.params, at, self.number)
        for chunk in range(layout.chunks):
            yield (np.ascontiguousarray(rows[layout.span(chunk)]).reshape(-1).data,)

    def finish(self, at: Agreement, got: Got) -> Agreement:
        """The result of each phase, once everything has arrived."""
        match at.phase:
            case "commit":
                return self._got_hashes(at, got)
            case "deal":
                return self._got_dealings(at, got)
            case "list":
                return self._got_marks(at, got)
            case "confirm":
                return self._got_confirmations(at, got)
            case _:
                assert at.phase == "evaluate"
                return self._got_evaluations(at, got)
