"""The audit's attacks on the names' PRF work where they should, and every protection of it has a mutant."""

from __future__ import annotations

import pytest

from secea.arithmetic.ristretto import ORDER, multiply_base, scalar_rows
from secea.audit import KEYED
from secea.audit.attacks import names
from secea.audit.claims.names import N, T, parties_of
from secea.audit.mutants.names import ROGUE_DEALER
from secea.audit.registry import caught_by, product
from secea.steps import oprf

REQUIRED = """
    prf-without-check-point prf-check-of-a-plain-sum dealings-without-hash dealings-without-proof rogue-dealer
    shares-of-the-key-unchecked points-of-another-list points-twice-in-a-list two-lists-to-two-holders
    lists-confirmed-by-few second-list-confirmed lists-forgotten-by-restart longer-lists
    later-lists-as-long-as-the-first epochs-of-names-without-end blinds-of-names blinds-of-one-seed
    epochs-not-carried-over key-kept-whoever-left lists-without-padding names-without-key
"""


@pytest.mark.parametrize("name", REQUIRED.split())
def test_each_protection_of_the_names_has_a_mutant(name: str) -> None:
    assert caught_by()[name]


def test_no_two_rules_about_names_give_the_same_number() -> None:
    holders, signatures = T + 1, oprf.signatures_needed(N, T)
    assert len({T, holders, signatures, N}) == 4


def test_a_basis_of_polynomials_is_one_at_its_place_and_zero_at_the_others() -> None:
    xs = (0, 1, 3, 4)
    for j, row in enumerate(names._lagrange(xs)):
        values = [sum(c * x**e for e, c in enumerate(row)) % ORDER for x in xs]
        assert values == [int(k == j) for k in range(len(xs))]


def test_a_dealer_that_nobody_holds_back_has_the_key_that_it_chose() -> None:
    parties = parties_of(ROGUE_DEALER.subjects[KEYED], 4, 3)
    names.begun(parties)
    assert not names.driven(parties.server, parties.clients, "deal")
    names.chosen(parties, 1, 12345)
    assert not {n for n in names.driven(parties.server, parties.clients, "list") if n != 1}
    for n in (0, 2, 3):
        key = names.naming(parties.clients[n]).key
        assert oprf.public_key(key.joint) == multiply_base(scalar_rows([12345])).tobytes()
        assert oprf.fits(key.share, key.joint, n)  # and nobody can tell


def test_shares_of_enough_clients_give_the_key_and_of_fewer_something_else() -> None:
    parties = parties_of(product()[KEYED])
    parties.setup()
    shares = {n: names.naming(client).key.share for n, client in parties.clients.items()}
    public = oprf.public_key(names.naming(parties.clients[0]).key.joint)
    for some in ((0, 1, 2), (2, 3, 4), (0, 1, 2, 3, 4), (0, 1)):
        k = names.key_of({n: shares[n] for n in some})
        assert (multiply_base(scalar_rows([k])).tobytes() == public) == (len(some) > T)
    assert names.naming(parties.clients[0]).names.prf["a"] == names.prf_of("a", shares)


def test_a_server_that_is_lenient_has_the_same_session() -> None:
    parties = parties_of(product()[KEYED])
    names.lenient(parties.server)
    form, params = parties.server.session.form, parties.session.params
    assert form.fewest(params, "list", 2) == 1
    assert form.fewest(params, "secret", 2) == parties.session.form.fewest(params, "secret", 2) > 1
