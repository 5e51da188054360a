"""What takes time in the paper's form, as samples for `secea plan`: keys, ciphertexts, field arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from secea.arithmetic.field import RING61
from secea.arithmetic.paillier import PrivateKey
from secea.forms.paillier import planning
from secea.forms.paillier.numbers import Numbers
from secea.forms.paillier.retrieval import Encrypter, Scrambler
from secea.params import Params
from secea.party.form import Chore
from secea.wire.randomness import KeyStream

if TYPE_CHECKING:
    from secea.forms.paillier.form import Paillier

Work = Callable[[], object]
SEED: Final = bytes(range(32))
SIDE: Final = 8
"""The matrix of a sample of field arithmetic, and some more columns."""
COLUMNS: Final = 1000


@lru_cache(maxsize=1)
def _key(bits: int) -> PrivateKey:
    """A key that protects nothing: it is always the same."""
    return PrivateKey.generate(bits, KeyStream(SEED).bytes)


def chores(form: Paillier, params: Params, entities: int) -> dict[str, Chore]:
    """Every client answers every query, the server masks all answers, and each client decrypts those to its own."""
    n, N, bits = form.numbers(params), params.N, params.key_bits
    rows = N * n.count
    products = [each / (SIDE * SIDE * COLUMNS) / N for each in planning.products(form, params, entities)]
    client, server = ("round", "client"), ("round", "server")
    return {
        f"key, {bits}": Chore(lambda: lambda: PrivateKey.generate(bits), {("setup", "client"): 1}),
        f"encrypt, {n.plaintexts} of {bits}": Chore(lambda: _encrypt(n), {client: rows}),
        f"mask, {n.plaintexts} of {bits}": Chore(lambda: _mask(n), {server: N * rows}),
        f"decrypt, {n.plaintexts} of {bits}": Chore(lambda: _decrypt(n), {client: rows}),
        "field": Chore(_field, {("setup", "client"): products[0], client: products[1]}),
    }


def _row(n: Numbers) -> bytes:
    return Encrypter(n, _key(n.params.key_bits).public, KeyStream(SEED)).cover(0, RING61.zeros(1, n.block_length))


def _encrypt(n: Numbers) -> Work:
    encrypter, answers = Encrypter(n, _key(n.params.key_bits).public, KeyStream(SEED)), RING61.zeros(1, n.block_length)
    return lambda: encrypter.cover(0, answers)


def _mask(n: Numbers) -> Work:
    key, answer = _key(n.params.key_bits).public, _row(n)
    scrambler = Scrambler(n, key, KeyStream(SEED))

    def work() -> object:
        key.ciphertexts_from_bytes(answer, n.plaintexts)
        return scrambler.mask(0, {0: answer}, 1)

    return work


def _decrypt(n: Numbers) -> Work:
    key, answer = _key(n.params.key_bits), _row(n)
    return lambda: n.packing.unpack(
        key.decrypt(key.public.ciphertexts_from_bytes(answer, n.plaintexts)), n.block_length
    )


def _field() -> Work:
    stream = KeyStream(SEED)
    matrix, x = stream.elements(RING61, SIDE, SIDE), stream.elements(RING61, SIDE, COLUMNS)
    return lambda: RING61.combine(matrix, x)
