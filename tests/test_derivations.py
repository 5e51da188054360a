"""What a trace hears, what an adversary derives from it, and how one object stands for another."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secea.arithmetic import field, streams
from secea.audit import Objection
from secea.audit.derivations import CHUNK_BYTES, Trace, traced
from secea.audit.registry import product
from secea.audit.standing import standing_in
from secea.errors import SERVER
from secea.forms.keyed.form import Kind
from secea.steps import masks
from secea.wire import keys, link, messages
from secea.wire.randomness import KeyStream

TABLES = [{"a": np.ones(61), "b": np.ones(61)}, {"b": np.ones(61), "c": np.ones(61)}, {"a": np.ones(61)}]


def drawn(trace: Trace, party: int, count: int = 32) -> bytes:
    return trace.draw(party)(count)


def one_round() -> Trace:
    with traced(product()["keyed"], TABLES, collusion=1) as (trace, parties):
        parties.setup()
        parties.round(TABLES)
    return trace


# ------------------------------------------------------------------------------------------------------- derivations


def test_who_has_all_inputs_has_the_output_and_who_lacks_one_has_not() -> None:
    trace = Trace()
    one, two = drawn(trace, 1), drawn(trace, 2)
    out = trace.derived(os.urandom(32), b"label" + one + b"between" + two)
    further = trace.derived(os.urandom(32), out)
    assert further in trace.derivable({1, 2})
    assert not {out, further} & trace.derivable({1})
    assert trace.origins(further) == {one, two}


def test_what_is_sealed_is_for_who_has_the_key_and_what_is_shown_for_everybody() -> None:
    trace = Trace()
    key, inside, shown = drawn(trace, 1), drawn(trace, 2), drawn(trace, 2)
    header = messages.Header(Kind.PART, 2, 1, 0, 0, 0, 0, 0, 1, bytes(16), bytes(16))
    trace.sends(key, header, b"before" + inside)
    trace.shown.append(b"signed " + shown)
    assert inside in trace.derivable({1})
    assert inside not in trace.derivable({3})
    assert shown in trace.derivable(())


@given(st.integers(1, 5), st.integers(0, 5))
def test_so_many_shares_as_needed_give_the_secret(need: int, have: int) -> None:
    trace = Trace()
    shares = [drawn(trace, n) for n in range(5)]
    secret = trace.derived(os.urandom(32), *shares, need=need)
    assert (secret in trace.derivable(range(have))) == (have >= need)


def test_a_value_that_is_known_in_two_ways_is_counted_once() -> None:
    trace = Trace()
    public, secret = trace.derived(os.urandom(32)), drawn(trace, 1)
    for _ in range(3):
        trace.derived(public)
        trace.shown.append(public)
    assert trace.derived(os.urandom(32), public, secret) not in trace.derivable({2})


def test_the_beginning_of_a_long_value_comes_from_all_of_it() -> None:
    trace = Trace()
    long = trace.derived(os.urandom(64), drawn(trace, 1))
    assert trace.known(long[:32])
    assert long[:32] in trace.derivable({1})
    assert long[:32] not in trace.derivable({2})


def test_a_trace_hears_parties_and_says_whose_chunk_each_key_went_into() -> None:
    trace = one_round()
    kinds = {use.covers.kind for use in trace.uses if use.covers is not None and use.party != SERVER}
    assert {Kind.UPLOAD, Kind.TABLE, Kind.SHARE} <= kinds
    for use in trace.uses:
        if use.covers is not None and use.party in range(3):
            assert use.covers.sender == use.party
    assert {use.how for use in trace.uses} == {
        "masks",
        "vector",
        "rows",
        "noise",
        "fill",
        "stream",
        "hash",
        "derived",
        "point",
    }
    everything = trace.derivable({SERVER, 0, 1, 2})
    assert all(use.key in everything for use in trace.uses)
    uploads = [header for _, header, payload in trace.sealed if header.kind is Kind.UPLOAD and len(payload) > 1000]
    assert uploads
    assert all(len(payload) <= 2 * CHUNK_BYTES for _, _, payload in trace.sealed)


def test_a_key_that_no_primitive_made_is_objected_to() -> None:
    def from_nowhere(pair_key: bytes, context: bytes, q: int) -> bytes:
        return bytes(x ^ 1 for x in pair_key)

    with standing_in({masks.pair_seed: from_nowhere}), pytest.raises(Objection, match="comes from nowhere"):
        one_round()


def primitives() -> list[object]:
    of_classes = [KeyStream.fill, KeyStream.bytes, keys.Sealer.seal, keys.Hello.to_bytes, link.Signer.seal]
    return [*of_classes, streams.stream, messages.CHUNK_BYTES, vars(keys)["hashlib"]]


def test_after_a_trace_everything_is_as_before() -> None:
    before, during = primitives(), list[object]()

    def broken() -> None:
        with traced(product()["keyed"], TABLES, collusion=1):
            during.extend(primitives())
            raise KeyError

    with pytest.raises(KeyError):
        broken()
    assert primitives() == before
    assert not any(one is other for one, other in zip(before, during, strict=True))


# ------------------------------------------------------------------------------------------------------- standing in


def test_what_stands_in_is_found_under_every_name_and_leaves_again() -> None:
    real = keys.expand

    def other(secret: bytes, purpose: str, *label: bytes) -> bytes:
        return bytes(32)

    with standing_in({real: other}, M61=5):
        assert vars(masks)["expand"](b"x", "y") == bytes(32)
        assert vars(field)["M61"] == 5
    assert vars(masks)["expand"] is real
    assert vars(field)["M61"] == 2**61 - 1
