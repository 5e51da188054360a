"""How names become keys: the key of the names is dealt, lists are blinded, confirmed, answered (section K2).

`Naming` is the part of client n from the phase "commit" to the phase "evaluate". Every client is a dealer, asks for its
own names, and may be one of the T+1 holders that answer.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.ristretto import Tick, valid
from secea.errors import SERVER, FaultyPeer, ProtocolError, TableError, party
from secea.forms.keyed.form import Keyed, Kind
from secea.params import Params
from secea.party.form import Got
from secea.party.phases import Agreement
from secea.steps import oprf
from secea.table import Name, canonical_names, name_bytes
from secea.wire.keys import expand
from secea.wire.messages import Buffer
from secea.wire.randomness import SEED_BYTES, Entropy, KeyStream


@dataclass(frozen=True, slots=True)
class Key:
    """The threshold key of the names: what this client dealt, and what it holds."""

    seed: bytes = field(default=b"", repr=False)
    """Of the polynomial that it deals; drawn for each attempt."""
    hashes: Mapping[int, bytes] = field(default_factory=dict)
    joint: bytes = b""
    """The commitments of all dealers together; empty until the key stands."""
    share: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Names:
    """Entities, and the PRF of each name that was ever asked for."""

    own: tuple[Name, ...] = field(repr=False)
    coming: tuple[Name, ...] | None = field(default=None, repr=False)
    """Other names, from the next epoch of names on."""
    prf: Mapping[Name, bytes] = field(default_factory=dict, repr=False)
    number: int = 0
    """The last epoch that was finished."""
    asked: int = 0
    """The last epoch that was begun, and its list: a repeated attempt sends the same bytes."""
    seed: bytes = field(default=b"", repr=False)
    """Of that list's blinds."""
    blinding: oprf.Blinding | None = field(default=None, repr=False)
    fresh: tuple[Name, ...] = field(default=(), repr=False)
    marks: Mapping[int, bytes] = field(default_factory=dict)
    """The hash of each client's list in this epoch: what was confirmed once is the only one that is ever confirmed."""
    lists: Mapping[int, NDArray[np.uint8]] = field(default_factory=dict, repr=False)


class Naming:
    """Client n as a dealer, as one who asks, and as a holder."""

    def __init__(
        self, form: Keyed, params: Params, session: bytes, number: int, names: Iterable[object], entropy: Entropy
    ) -> None:
        self.form, self.params, self.session, self.number, self._entropy = form, params, session, number, entropy
        self.key = Key()
        self.names = Names(self._bounded(names))
        self.tick: Tick | None = None
        """Called with the points that were worked on, for a progress bar."""

    def _bounded(self, names: Iterable[object]) -> tuple[Name, ...]:
        checked, most = canonical_names(names), self.params.max_entities
        assert most is not None
        if len(checked) > most:
            raise TableError(
                f"{party(self.number)} has {len(checked)} entities, more than the public bound max_entities={most}:"
                " raise it"
            )
        return checked

    @property
    def next_names(self) -> tuple[Name, ...]:
        """The names of its entities from the next epoch of names on."""
        return self.names.own if self.names.coming is None else self.names.coming

    def update(self, names: Iterable[object]) -> None:
        """Other entities from the next epoch of names on."""
        coming = self._bounded(names)
        room = self.form.list_size(self.params, self.names.asked + 1)
        known = {*self.names.prf, *self.names.fresh, *self.next_names}
        fresh = [name for name in coming if name not in known]
        if self.names.asked and len(fresh) > room:
            raise TableError(
                f"{party(self.number)} has {len(fresh)} new entities, and {room} may come at once:"
                " raise max_new_entities, or bring them in several updates"
            )
        self.names = replace(self.names, coming=coming)

    def check_begin(self, at: Agreement) -> None:
        """Refuse, with a `ValueError`, a key or an epoch of names that is not due."""
        form = self.form
        if at.phase == form.setup_phase:
            if self.names.number or at.names != 1:  # until names have their keys, another attempt costs nothing
                raise ValueError("announces a new key; that needs a new session")
        elif not self.key.joint:
            raise ValueError(f"announces the phase '{at.phase}' before there is a key")
        elif at.phase == form.names_phase:
            due = self.names.asked if self.pending else self.names.number + 1  # who was absent has missed epochs
            if not due <= at.names <= 1 + form.max_updates:
                raise ValueError(f"announces epoch {at.names} of names; it is not due")
        elif self.pending or not self.names.number <= at.names <= 1 + form.max_updates:
            raise ValueError(f"announces a union of the names of epoch {at.names}; ours are {self.names.asked}")

    def plain(self) -> dict[str, Any]:
        """What must survive a restart: the key's share, the PRF of names, lists that were made or confirmed."""
        names = self.names
        return {
            "joint": self.key.joint, "share": self.key.share, "own": names.own, "coming": names.coming,
            "known": tuple(names.prf), "prf": b"".join(names.prf.values()), "number": names.number,
            "asked": names.asked, "seed": names.seed, "fresh": names.fresh, "marks": dict(names.marks),
        }  # fmt: skip

    def restore(self, plain: dict[str, Any]) -> None:
        """From a saved state: a list is made again from its seed, and so with the same bytes."""
        self.key = Key(joint=plain["joint"], share=plain["share"])
        width, values = oprf.OUTPUT_BYTES, plain["prf"]
        prf = {name: values[i * width : (i + 1) * width] for i, name in enumerate(plain["known"])}
        number, asked, seed, fresh = plain["number"], plain["asked"], plain["seed"], plain["fresh"]
        blinding = self._blinded(fresh, asked, seed) if asked > number else None
        self.names = Names(
            plain["own"], plain["coming"], prf, number, asked, seed, blinding, fresh, dict(plain["marks"])
        )

    @property
    def pending(self) -> bool:
        """Whether a list was made whose answers have not come. All who made one refuse unions until then."""
        return self.names.asked > self.names.number

    def enter(self, at: Agreement) -> None:
        """Draw what a phase needs."""
        if at.phase == self.form.setup_phase:
            self.key = Key(self._entropy(SEED_BYTES))
            self.names = Names(self.next_names)
        elif at.phase == self.form.names_phase:
            self._ask(at)
        elif at.phase == self.form.union_phase:
            self.names = replace(self.names, number=at.names, asked=at.names)

    # ---------------------------------------------------------------------------------------------- the key of names

    def _polynomial(self) -> tuple[int, ...]:
        return oprf.polynomial(self.params.T, KeyStream(expand(self.key.seed, "polynomial")))

    def _dealing(self) -> bytes:
        """Commitments and proof."""
        polynomial = self._polynomial()
        commitments = oprf.commit(polynomial)
        stream = KeyStream(expand(self.key.seed, "proof"))
        return commitments + oprf.prove(polynomial, commitments, self.session, self.number, stream)

    def _own_hash(self) -> bytes:
        return oprf.commitments_hash(oprf.commit(self._polynomial()))

    def _got_dealings(self, at: Agreement, got: Got) -> Agreement:
        """Every dealing fits its hash and its proof, and the shares fit the dealings; or the dealer is named."""
        dealings = {v: got[Kind.DEALING, v] for v in at.members if v != self.number} | {self.number: self._dealing()}
        cut = 32 * (self.params.T + 1)
        for v, dealing in dealings.items():
            commitments, proof = dealing[:cut], dealing[cut:]
            if not hmac.compare_digest(oprf.commitments_hash(commitments), self.key.hashes[v]):
                raise FaultyPeer(v, "deals with other commitments than those whose hash it sent first")
            if v != self.number and not oprf.proven(proof, commitments, self.session, v):
                raise FaultyPeer(v, "does not prove that it knows what it committed to")
        shares = {v: got[Kind.SHARE, v] for v in at.members if v != self.number}
        shares[self.number] = oprf.share_for(self._polynomial(), self.number)
        try:
            share = oprf.key_share(list(shares.values()))
            joint = oprf.joint([dealings[v][:cut] for v in at.members])
            good = oprf.fits(share, joint, self.number)
        except ValueError:
            good = False
        if not good:
            wrong = [v for v in shares if not _fits(shares[v], dealings[v][:cut], self.number)]
            raise ProtocolError(wrong or (SERVER,), "dealt a share that does not fit its commitments")
        self.key = replace(self.key, joint=joint, share=share)
        after = at.bound(*(dealings[v] for v in at.members))
        return replace(after, base=after.context)

    # ------------------------------------------------------------------------------------------------------ names

    def _ask(self, at: Agreement) -> None:
        """The list of an epoch of names: blinded once, so that a repeated attempt sends the same bytes."""
        if self.names.asked == at.names:
            return
        own, seed = self.next_names, self._entropy(SEED_BYTES)
        fresh = tuple(name for name in own if name not in self.names.prf)
        blinding = self._blinded(fresh, at.names, seed)
        self.names = replace(
            self.names, asked=at.names, seed=seed, blinding=blinding, fresh=fresh, own=own, coming=None, marks={}
        )

    def _blinded(self, fresh: Sequence[Name], epoch: int, seed: bytes) -> oprf.Blinding:
        inputs = [oprf.input_of(name_bytes(name)) for name in fresh]
        return oprf.blind(inputs, self.form.list_size(self.params, epoch), seed)

    @property
    def _points(self) -> NDArray[np.uint8]:
        assert self.names.blinding is not None
        return self.names.blinding.points

    def _got_marks(self, at: Agreement, got: Got) -> Agreement:
        marks = {v: got[Kind.MARK, v] for v in at.members if v != self.number}
        marks[self.number] = oprf.list_hash(self._points)
        for v, mark in marks.items():  # two quorums have an honest client in common, and it confirms one list of each
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
        """Enough clients have seen the same lists; a holder then has lists that it may answer."""
        ours, need = self._confirmation(at), self.form.signatures(self.params)
        for v in at.members:
            if v != self.number and not hmac.compare_digest(got[Kind.CONFIRM, v], ours):
                raise ProtocolError((SERVER, v), "has seen other lists of blinded names than we have")
        if len(at.members) < need:
            raise FaultyPeer(SERVER, f"has lists confirmed by {len(at.members)} clients; {need} are needed")
        if self.number not in self.form.holders(self.params, at):
            return at
        layout = self.form.layout(Kind.LISTS, self.params, at, SERVER)
        every = np.frombuffer(got[Kind.LISTS, SERVER], np.uint8).reshape(layout.sections, layout.rows, 32)
        lists = {v: every[i] for i, v in enumerate(at.members)}
        for v, points in lists.items():
            if not hmac.compare_digest(oprf.list_hash(points), self.names.marks[v]):
                raise FaultyPeer(SERVER, f"hands us another list than the one that {party(v)} signed")
            if not valid(points).all():
                raise FaultyPeer(v, "lists something that is no blinded name")
        self._check_apart(lists)
        self.names = replace(self.names, lists=lists)
        return at

    def _check_apart(self, lists: Mapping[int, NDArray[np.uint8]]) -> None:
        """No point stands in two lists, or twice in one: nobody has another's names answered."""
        owner: dict[bytes, int] = {}
        for v, points in lists.items():
            for point in map(bytes, points):
                if owner.setdefault(point, v) != v:
                    raise ProtocolError((v, owner[point]), "lists have a blinded name in common")
            if len({bytes(point) for point in points}) != len(points):
                raise FaultyPeer(v, "lists a blinded name twice")

    def _evaluated(self, points: NDArray[np.uint8], at: Agreement) -> NDArray[np.uint8]:
        return oprf.evaluate(points, self.key.share, self.form.holders(self.params, at), self.number, tick=self.tick)

    def _got_evaluations(self, at: Agreement, got: Got) -> Agreement:
        holders = self.form.holders(self.params, at)
        answers = {
            v: np.frombuffer(got[Kind.EVALUATION, v], np.uint8).reshape(-1, 32) for v in holders if v != self.number
        }
        if self.number in holders:
            answers[self.number] = self._evaluated(self._points, at)
        assert self.names.blinding is not None
        try:
            found = oprf.finish(self.names.blinding, answers, self.key.joint, tick=self.tick)
        except oprf.WrongAnswer as wrong:
            raise ProtocolError(wrong.holders or (*holders, SERVER), "answered our blinded names wrongly") from None
        prf = dict(self.names.prf) | dict(zip(self.names.fresh, found, strict=True))
        self.names = replace(self.names, prf=prf, number=at.names, lists={}, blinding=None)
        return replace(at, named=at.names)

    # ------------------------------------------------------------------------------------------------------ phases

    def payload(self, kind: IntEnum, receiver: int, at: Agreement) -> Iterator[Sequence[Buffer]]:
        """What each kind of message says."""
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
                yield (oprf.list_hash(self._points),)
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
        """What each phase gives, once everything has come."""
        match at.phase:
            case "commit":
                hashes = {v: got[Kind.COMMITMENT, v] for v in at.members if v != self.number}
                hashes[self.number] = self._own_hash()
                self.key = replace(self.key, hashes=hashes)
                return at.bound(*(hashes[v] for v in at.members))
            case "deal":
                return self._got_dealings(at, got)
            case "list":
                return self._got_marks(at, got)
            case "confirm":
                return self._got_confirmations(at, got)
            case _:
                assert at.phase == "evaluate"
                return self._got_evaluations(at, got)


def _fits(share: bytes, commitments: bytes, client: int) -> bool:
    try:
        return oprf.fits(share, commitments, client)
    except ValueError:
        return False
