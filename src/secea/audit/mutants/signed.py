"""Signatures that do not cover all that they should."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from secea.audit.mutants.derivations import replaced
from secea.audit.mutants.epochs import within
from secea.forms.keyed.masking import statement
from secea.party.phases import Agreement
from secea.wire.keys import Hello
from secea.wire.messages import NO_CONTEXT

_signed, _stated = Hello._signed, statement


def _without_key(self: Hello, sender: int) -> bytes:
    return _signed(replace(self, public=bytes(32)), sender)


def _without_incarnation(self: Hello, sender: int) -> bytes:
    return _signed(replace(self, incarnation=bytes(len(self.incarnation))), sender)


def _of_any_round(session: bytes, at: Agreement, noisy: Sequence[int]) -> bytes:
    return _stated(session, replace(at, context=NO_CONTEXT), noisy)


def _of_any_noise(session: bytes, at: Agreement, noisy: Sequence[int]) -> bytes:
    return _stated(session, at, ())


HELLO_WITHOUT_KEY = within(
    "hello-without-its-key", "The signature of a hello does not cover the key of its channels.", Hello, "_signed",
    _without_key,
)  # fmt: skip
HELLO_OF_ANY_LIFE = within(
    "hello-of-any-life", "The signature of a hello does not cover the life that it is for.", Hello, "_signed",
    _without_incarnation,
)  # fmt: skip
VOTES_OF_ANY_ROUND = replaced(
    "votes-without-context", "A vote does not cover the list L and the round q.", {statement: _of_any_round}
)
VOTES_FOR_ANY_NOISE = replaced(
    "votes-for-any-noise", "A vote does not say which noise clients are meant.", {statement: _of_any_noise}
)
