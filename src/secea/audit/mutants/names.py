"""The form "keyed" with one protection of the names' PRF taken away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.ristretto import (
    ORDER,
    Rows,
    add,
    inverses,
    multiply,
    multiply_base,
    scalar_of,
    scalar_rows,
    total,
)
from secea.audit import KEYED, Mutant, Subject
from secea.audit.attacks.keyed import Overheard
from secea.audit.mutants.derivations import replaced
from secea.audit.mutants.keyed import named
from secea.errors import FaultyPeer, ProtocolError
from secea.forms.keyed.form import Keyed, Kind
from secea.forms.keyed.handover import Following, Handover
from secea.forms.keyed.names import Naming
from secea.params import Params
from secea.party.form import Got
from secea.party.phases import Agreement
from secea.steps import oprf
from secea.table import Name
from secea.wire.randomness import SEED_BYTES

Points = NDArray[np.uint8]


def mutant(name: str, missing: str, naming: type[Naming] = Naming, form: type[Overheard] = Overheard) -> Mutant:
    """A mutant whose clients ask for names in this way, or whose form has other rules for it."""
    return Mutant(name, missing, {KEYED: Subject(form(of_client=named(naming)))})


# -------------------------------------------------------------------------------------------------------------- dealing


class NoHash(Naming):
    """Does not look whether a dealer chose its commitments before it saw the others'."""

    def _check_hash(self, dealer: int, commitments: bytes) -> None:
        return


class NoProof(Naming):
    """Takes any commitments, whether or not the dealer knows what they hide."""

    def _check_proof(self, dealer: int, commitments: bytes, proof: bytes) -> None:
        return


class Neither(NoHash, NoProof):
    """Both."""


class AnyShare(Naming):
    """Takes any share."""

    def _take_shares(self, shares: Mapping[int, bytes], commitments: Mapping[int, bytes]) -> None:
        joint = oprf.joint(list(commitments.values()))
        self.key = replace(self.key, joint=joint, share=oprf.key_share(list(shares.values())))


NO_HASH = mutant("dealings-without-hash", "A dealer may choose its commitments when it has seen the others'.", NoHash)
NO_PROOF = mutant("dealings-without-proof", "A dealer does not prove that it knows what it committed to.", NoProof)
ROGUE_DEALER = mutant("rogue-dealer", "A dealer sends no hash and no proof: it can choose the key.", Neither)
ANY_SHARE = mutant("shares-of-the-key-unchecked", "Shares of the names' key are compared with nothing.", AnyShare)


# -------------------------------------------------------------------------------------------------------------- answers


class NoCheckPoint(Naming):
    """Believes the holders."""

    def _unblinded(self, answers: Mapping[int, Points]) -> list[bytes]:
        blinding = self.names.blinding
        assert blinding is not None
        own = reduce(add, answers.values())[blinding._places[: len(blinding._inputs)]]
        return oprf.finalize(blinding._inputs, multiply(own, scalar_rows(inverses(blinding._blinds))))


class EqualWeights(Naming):
    """The check point is the plain sum of the list, so that it does not depend on the order of answers."""

    def _blinded(self, fresh: Sequence[Name], epoch: int, seed: bytes) -> oprf.Blinding:
        made = super()._blinded(fresh, epoch, seed)
        points, check = made.points.copy(), made._places[-1]
        offset, others = multiply_base(scalar_rows([made._offset])), made._places[:-1]
        points[check] = total(np.concatenate([offset, points[others]]))
        return replace(made, points=points, _weights=scalar_rows([1] * len(others)))


NO_CHECK_POINT = mutant("prf-without-check-point", "Answers to blinded names are not checked.", NoCheckPoint)
EQUAL_WEIGHTS = mutant("prf-check-of-a-plain-sum", "All answers have the same weight in the check.", EqualWeights)


class KnownOffset(Naming):
    """The check point is moved by 1."""

    def _blinded(self, fresh: Sequence[Name], epoch: int, seed: bytes) -> oprf.Blinding:
        made = super()._blinded(fresh, epoch, seed)
        points, check = made.points.copy(), made._places[-1]
        back = multiply_base(scalar_rows([(1 - made._offset) % ORDER]))
        points[check] = total(np.concatenate([points[check : check + 1], back]))
        return replace(made, points=points, _offset=1)


OFFSET_OF_ONE = mutant("check-point-without-offset", "The check point is moved by a number that all know.", KnownOffset)


def _all_named(blinding: oprf.Blinding, answers: Mapping[int, Rows], *more: Any, **options: Any) -> list[bytes]:
    """Names all holders where one answers wrongly."""
    try:
        return _finish(blinding, answers, *more, **options)
    except oprf.WrongAnswer:
        raise oprf.WrongAnswer(answers) from None


_finish = oprf.finish
ALL_NAMED = replaced("all-holders-named", "All holders are named if one answers wrongly.", {oprf.finish: _all_named})


# ---------------------------------------------------------------------------------------------------------------- lists


class SharedPoints(Naming):
    """Answers a point that is in two lists."""

    def _check_apart(self, lists: Mapping[int, Points]) -> None:
        for v, points in lists.items():
            super()._check_apart({v: points})


class RepeatedPoints(Naming):
    """Answers a point that is in a list twice."""

    def _check_apart(self, lists: Mapping[int, Points]) -> None:
        super()._check_apart({v: np.unique(points, axis=0) for v, points in lists.items()})


class ForgetsLists(Naming):
    """Forgets which lists it confirmed when another attempt begins."""

    def _got_marks(self, at: Agreement, got: Got) -> Agreement:
        self.names = replace(self.names, marks={})
        return super()._got_marks(at, got)


class UnsavedLists(Naming):
    """Forgets them when it restarts."""

    def plain(self) -> dict[str, Any]:
        """Without marks."""
        return super().plain() | {"marks": {}}


class Unconfirmed(Naming):
    """Does not compare with others which lists they have seen."""

    def _got_marks(self, at: Agreement, got: Got) -> Agreement:
        super()._got_marks(at, got)
        return at

    def _got_confirmations(self, at: Agreement, got: Got) -> Agreement:
        ours = self._confirmation(at)
        return super()._got_confirmations(at, dict(got) | {(Kind.CONFIRM, v): ours for v in at.members})


class NamedBlinds(Naming):
    """A name is blinded in the same way in every list."""

    def _blinded(self, fresh: Sequence[Name], epoch: int, seed: bytes) -> oprf.Blinding:
        made = super()._blinded(fresh, epoch, seed)
        points, own = made.points.copy(), made._places[: len(fresh)]
        blinds = [scalar_of(oprf._hashed("a blind of a name", each)) for each in made._inputs]
        points[own] = multiply(oprf.hash_to_group(made._inputs), scalar_rows(blinds))
        return replace(made, points=points, _blinds=tuple(blinds))


class LaterConvicted(Naming):
    """Of two lists with a point in common the later one is at fault."""

    def _check_apart(self, lists: Mapping[int, NDArray[np.uint8]]) -> None:
        try:
            super()._check_apart(lists)
        except ProtocolError as error:
            raise FaultyPeer(max(error.suspects), "lists a blinded name of another client") from None


class OneSeed(Naming):
    """All lists are blinded with the same seed."""

    def _blinded(self, fresh: Sequence[Name], epoch: int, seed: bytes) -> oprf.Blinding:
        return super()._blinded(fresh, epoch, bytes(SEED_BYTES))


class FewSignatures(Overheard):
    """As many clients as answer have to see the same lists."""

    def signatures(self, params: Params) -> int:
        """T + 1."""
        return params.T + 1


class LongLists(Overheard):
    """Lists have room for twice as many names."""

    def list_size(self, params: Params, names: int) -> int:
        """Twice the bound."""
        return 2 * super().list_size(params, names)


class LaterLists(Overheard):
    """Later lists are as long as the first."""

    def list_size(self, params: Params, names: int) -> int:
        """The bound of the first epoch."""
        return super().list_size(params, 1)


class ManyEpochs(Overheard):
    """Epochs of names do not end."""

    @property
    def last_epoch(self) -> int:
        """Never."""
        return 1 << 16


SHARED_POINTS = mutant(
    "points-of-another-list", "Holders answer a point that is in another client's list, too.", SharedPoints
)
LATER_CONVICTED = mutant(
    "later-list-convicted", "Of two lists with a point in common only the later one is suspected.", LaterConvicted
)
REPEATED_POINTS = mutant("points-twice-in-a-list", "Holders answer a list with a point in it twice.", RepeatedPoints)
FORGETS_LISTS = mutant("second-list-confirmed", "Clients confirm a second list in an epoch of names.", ForgetsLists)
UNSAVED_LISTS = mutant(
    "lists-forgotten-by-restart", "A restarted client does not know which lists it confirmed.", UnsavedLists
)
FEW_SIGNATURES = mutant(
    "lists-confirmed-by-few", "T+1 clients are enough to confirm the lists of an epoch.", form=FewSignatures
)
UNCONFIRMED = mutant("two-lists-to-two-holders", "Holders do not compare the lists that they answer.", Unconfirmed)
LONG_LISTS = mutant("longer-lists", "Holders answer twice as many points as the bound says.", form=LongLists)
LATER_LISTS = mutant("later-lists-as-long-as-the-first", "Later epochs have room for max_entities.", form=LaterLists)
MANY_EPOCHS = mutant("epochs-of-names-without-end", "Epochs of names are not counted.", form=ManyEpochs)
NAMED_BLINDS = mutant("blinds-of-names", "A name is blinded in the same way in every list.", NamedBlinds)
ONE_SEED = mutant("blinds-of-one-seed", "All lists are blinded with the same seed.", OneSeed)


# ------------------------------------------------------------------------------------------------------------- sessions


@dataclass(frozen=True)
class Uncounted(Handover):
    """Members sign it without a look at how many epochs their key has seen."""

    def check(self, roster: Any, before: Any, naming: Naming, me: int) -> None:
        """With a true number of epochs."""
        counted = Handover(self.session, self.joint, self.numbers, self.left, max(self.updates, naming.updates))
        counted.check(roster, before, naming, me)


class HandsOverUncounted(Overheard):
    """A form whose clients sign such a handover."""

    def following(self, *args: Any) -> Keyed | None:
        """With another record."""
        form = super().following(*args)
        if not isinstance(form, Following):
            return None
        before = form.taken_over
        return replace(form, before=Uncounted(**{each.name: getattr(before, each.name) for each in fields(Handover)}))


@dataclass(frozen=True)
class Kept(Following):
    """The key is kept whoever left."""

    def checked(self, params: Params) -> Params:
        """As in any session."""
        return Keyed.checked(self, params)


class KeepsAnyKey(Overheard):
    """A form that keeps the key whoever left."""

    def following(self, params: Params, before: Any, parts: Mapping[int, Any], stay: Sequence[int | None]) -> Keyed:
        """Always."""
        left = tuple(n for n in range(before.params.clients) if n not in stay)
        updates = max(parts[n].naming.updates for n in parts)
        record = Handover(before.hash, parts[0].naming.key.joint, (*stay, *left), len(left), updates)
        return Kept(**{each.name: getattr(self, each.name) for each in fields(Keyed)}, before=record)


UNCOUNTED = mutant(
    "epochs-not-carried-over",
    "A session that keeps the key counts its epochs of names anew.",
    form=HandsOverUncounted,
)
KEPT = mutant("key-kept-whoever-left", "A key is kept where T and those who left could hold it.", form=KeepsAnyKey)
