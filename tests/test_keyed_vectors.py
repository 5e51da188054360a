"""The keyed form's vectors say what holds by arithmetic that is not the code's own, and real parties play them again.

Streams, keys and numbers are computed anew with AES, HMAC and plain integers; of the group ristretto255 only its
operations are the code's. `test_vectors.py` compares the files with what the code makes, byte for byte.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from fractions import Fraction
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from secea import errors
from secea.arithmetic import ristretto
from secea.errors import SERVER, ProtocolError
from secea.forms.keyed import Keyed, Kind
from secea.params import Params
from secea.party.phases import STOPPED
from secea.steps import oprf
from secea.testing import Parties, Recorder, insecure_seeded
from secea.wire.messages import Buffer

FOLDER: Final = Path(__file__).parent.parent / "vectors"
M61: Final = 2**61 - 1
ORDER: Final = 2**252 + 27742317777372353535851937790883648493


def load(name: str) -> Any:
    return json.loads((FOLDER / f"keyed-{name}.json").read_text())


def unhex(x: str) -> bytes:
    return bytes.fromhex(x)


STRICT: Final = set(Kind) - {Kind.BATCH, Kind.SECRETS, Kind.VOTE, Kind.VOTES, Kind.OPENING}
"""What is sent where no client may drop out: the vectors have no other rounds."""


def floats(x: Iterable[str]) -> list[float]:
    return [float.fromhex(each) for each in x]


# ------------------------------------------------------------------------------------------ the specification, anew


@lru_cache(1 << 16)
def aes(key: bytes, block: bytes) -> bytes:
    return Cipher(algorithms.AES256(key), modes.ECB()).encryptor().update(block)  # noqa: S305 - one block


def block(key: bytes, lane: int, prime: int, retry: int, number: int) -> bytes:
    return aes(key, struct.pack(">IBBHQ", lane, prime, retry, 0, number))


def element(primes: Sequence[int], b: int, key: bytes, lane: int, i: int, least: int = 0) -> int:
    """Element i of a stream modulo the prime number b: the top bits of its own word, drawn again in place."""
    width, p = 8 if list(primes) == [M61] else 4, primes[b]
    each = 16 // width
    for retry in range(256):
        word = block(key, lane, b, retry, i // each)[i % each * width :][:width]
        x = int.from_bytes(word, "little") >> (8 * width - p.bit_length())
        if least <= x < p:
            return x
    raise AssertionError("a word that is rejected 256 times")


def words_of(data: bytes) -> list[int]:
    return [word for (word,) in struct.iter_unpack("<I", data)]


def noise_of(seed: bytes, lane: int, i: int, s: int, digits: Sequence[int], wide: int) -> int:
    """The noise of element i: s numbers in a mixed radix, and C times a wide one from the last two words."""
    used = s * len(digits) + 2
    blocks = -(-used // 4)
    words = words_of(b"".join(block(seed, lane, 0, 0, i * blocks + k) for k in range(blocks)))
    total = math.prod(digits) * ((words[used - 2] + (words[used - 1] << 32)) * wide >> 64)
    for number in range(s):
        scale = 1
        for part, digit in enumerate(digits):
            total += scale * (words[number * len(digits) + part] * digit >> 32)
            scale *= digit
    return total


def digest(*parts: bytes) -> bytes:
    data = b"".join(struct.pack("<Q", len(part)) + part for part in parts)
    return hashlib.blake2b(data, digest_size=16, person=b"secea digest").digest()


def expand(secret: bytes, purpose: str, *label: bytes) -> bytes:
    """HKDF-Expand for one block, from HMAC."""
    info = f"secea {purpose}\n".encode() + digest(*label)
    return hmac.new(secret, info + b"\x01", hashlib.sha256).digest()


def ctr(key: bytes, count: int, lane: int = 0) -> bytes:
    return b"".join(aes(key, struct.pack(">QQ", lane, i)) for i in range(-(-count // 16)))[:count]


def flat(nested: Any) -> list[Any]:
    return list(chain.from_iterable(map(flat, nested))) if isinstance(nested, list) else [nested]


# ---------------------------------------------------------------------------------------------------------- streams


def test_a_block_is_aes_of_lane_prime_retry_and_number() -> None:
    for vector in load("streams")["block"]:
        made = block(unhex(vector["key"]), vector["lane"], vector["prime"], 0, vector["number"])
        assert made.hex() == vector["block"]


def test_elements_are_the_top_bits_of_their_words_and_rejected_ones_are_replaced_in_place() -> None:
    retried = 0
    for vector in load("streams")["stream"]:
        key, lane, primes, least = unhex(vector["key"]), vector["lane"], vector["primes"], int(vector["nonzero"])
        for b, row in enumerate(vector["elements"]):
            assert row == [element(primes, b, key, lane, i, least) for i in range(len(row))], vector["name"]
            each, width = (2, 8) if primes == [M61] else (4, 4)
            first = b"".join(block(key, lane, b, 0, i) for i in range(-(-len(row) // each)))
            spare = 8 * width - primes[b].bit_length()
            words = [int.from_bytes(first[width * i :][:width], "little") >> spare for i in range(len(row))]
            retried += sum(word != x for word, x in zip(words, row, strict=True))
    assert retried > 20


def test_masks_are_added_and_subtracted_modulo_each_prime() -> None:
    for vector in load("streams")["masks"]:
        primes, lane, keys = vector["primes"], vector["lane"], list(map(unhex, vector["keys"]))
        for b, p in enumerate(primes):
            for i, (start, total) in enumerate(zip(flat(vector["start"][b]), flat(vector["total"][b]), strict=True)):
                signed = zip(keys, vector["signs"], strict=True)
                assert total == (start + sum(sign * element(primes, b, key, lane, i) for key, sign in signed)) % p


def test_each_row_is_the_stream_of_its_own_key_with_q_as_its_lane() -> None:
    for vector in load("streams")["rows"]:
        for b, rows in enumerate(vector["elements"]):
            for key, row in zip(map(unhex, vector["keys"]), rows, strict=True):
                assert row == [element(vector["primes"], b, key, vector["q"], j) for j in range(len(row))]


def test_noise_is_one_integer_modulo_every_prime() -> None:
    largest = 0
    for vector in load("streams")["noise"]:
        seed, shape = unhex(vector["seed"]), (vector["s"], vector["digits"], vector["wide"])
        for b, p in enumerate(vector["primes"]):
            for i, x in enumerate(flat(vector["elements"][b])):
                exact = noise_of(seed, vector["lane"], i, *shape)
                assert x == exact % p, vector["name"]
                largest = max(largest, exact)
    assert largest > 2**64


def filled(vector: Any, entity: int, column: int, x: float, used: int, step: float) -> int:
    """x * 2^f, half to even, with its fill: narrow numbers, and one as wide as the grid where that is wider."""
    f, s, w, keys = vector["f"], vector["s"], vector["w"], list(map(unhex, vector["keys"]))
    bits = struct.pack("<d", x + 0.0)
    first = (entity + column) % 2**64
    fields = list(chain.from_iterable(words_of(aes(key, struct.pack("<Q", first) + bits)) for key in keys[:-1]))
    fill = sum(field * w >> 32 for field in fields[:s]) - s * (w - 1) // 2
    own = math.ldexp(1.0, math.frexp(x)[1] - 1 - used) if x else 0.0
    grid = min(max(own, step), *floats([vector["cap"]]))
    units = math.floor(Fraction(grid) * 2**f)
    if units > w:
        moved = (first + struct.unpack("<Q", struct.pack("<d", grid))[0]) % 2**64
        drawn = int.from_bytes(aes(keys[-1], struct.pack("<Q", moved) + bits)[:8], "little")
        fill += (drawn * units >> 64) - units // 2
    return int(round(Fraction(x) * 2**f) + fill)


def test_values_are_filled_by_a_keyed_function_of_entity_column_and_value() -> None:
    vectors = load("streams")["encode"]
    for vector in vectors:
        rows = zip(
            *(vector[of] for of in ("entities", "floats", "integers", "used")), floats(vector["step"]), strict=True
        )
        for entity, values, found, *of_row in rows:
            assert found == [filled(vector, entity, j, x, *of_row) for j, x in enumerate(floats(values))], vector[
                "name"
            ]
    assert any(x == "-0x0.0p+0" for vector in vectors for x in flat(vector["floats"]))


def test_masks_are_between_neighbours_and_each_has_enough_of_them() -> None:
    for vector in load("streams")["neighbours"]:
        members, near = vector["members"], dict(zip(vector["members"], vector["of"], strict=True))
        for n in members:
            assert len(near[n]) >= min(vector["degree"], len(members) - 1)
            assert all(n in near[v] and v != n for v in near[n])
        assert sum(map(len, near.values())) <= len(members) * vector["degree"] + 1


def test_the_chosen_numbers_hold_the_bound() -> None:
    for vector in load("streams")["numbers"]:
        N, C, s, w, W = (vector[name] for name in ("clients", "C", "s", "w", "noise_clients"))
        assert C == math.lcm(*range(1, N + 1)) == math.prod(vector["digits"])
        assert min(N, vector["collusion"] + 1) == W
        params = Params(N, dim=vector["dim"], precision=vector["precision"])
        value = Fraction(params.max_abs) * 2 ** vector["f"] * (1 + Fraction(1, 128)) + s * w
        assert vector["wide"] == vector["wides"][W - 1]
        for noisy, wide in enumerate(vector["wides"], 1):
            assert wide == int(1.7 * params.resolution * 2 ** vector["f"]) // noisy
            assert 2 * (C * value + noisy * (s * (C - 1) + C * (wide - 1))) < math.prod(vector["primes"])
        harmonic = 1 / (math.pi * w) + max(vector["digits"]) / 2**32
        assert -s * math.log2(harmonic) >= vector["sigma"]
        assert math.prod(vector["primes"]).bit_length() * vector["checks"] >= 60
        seen = vector["collusion"] * vector["max_entities"] * vector["dim"] * params.rounds
        assert vector["sigma"] == params.sigma + math.ceil(math.log2(seen))


# ----------------------------------------------------------------------------------------------------- keys of a union


def tag_of(F: bytes, key: bytes) -> int:
    return (int.from_bytes(hashlib.blake2b(F, digest_size=8, key=key).digest(), "little") >> 3) % M61


def spelling(name: str | int) -> bytes:
    return (f"i{name:x}" if isinstance(name, int) else f"s{name}").encode()


def test_tags_and_hashes_of_names_are_keyed_hashes() -> None:
    vectors = load("streams")
    key = unhex(vectors["tags"]["key"])
    assert vectors["tags"]["tags"] == [tag_of(unhex(F), key) for F in vectors["tags"]["prf"]]
    named = vectors["entities"]
    for name, found in zip(named["names"], named["hashes"], strict=True):
        spelled = hashlib.blake2b(spelling(name), digest_size=8, key=unhex(named["key"])).digest()
        assert found == int.from_bytes(spelled, "little")


def test_the_keys_of_a_union_follow_from_its_parts() -> None:
    union = load("streams")["union"]
    session, context, L = (unhex(union[name]) for name in ("session", "context", "L"))
    clients = union["client"]
    parts = b"".join(struct.pack("<H", each["client"]) + unhex(each["part"]) for each in clients)
    secret = hashlib.sha256(b"secea shared secret" + parts).digest()
    assert union["secret"] == secret.hex()
    tag_key = expand(secret, "tags", context)
    assert union["tag_key"] == tag_key.hex()
    tags = b"".join(struct.pack("<Q", tag) for tag in union["tags"])
    assert digest(b"L", context, tags, digest(b"L of a secret", secret)) == L

    mine = X25519PrivateKey.from_private_bytes(unhex(clients[0]["mask_key"]))
    assert clients[0]["mask_public"] == mine.public_key().public_bytes_raw().hex()
    for pair in union["pairs"]:
        theirs = X25519PrivateKey.from_private_bytes(unhex(clients[pair["peer"]]["mask_key"])).public_key()
        assert clients[pair["peer"]]["mask_public"] == theirs.public_bytes_raw().hex()
        shared = mine.exchange(X25519PublicKey.from_public_bytes(unhex(clients[pair["peer"]]["mask_public"])))
        made = expand(shared, "pair of masks", session, context)
        assert pair["pair"] == made.hex()
        assert pair["seed"] == expand(made, "mask", L, b"%d" % pair["q"]).hex()

    row_key = expand(secret, "rows", L)
    fill_keys = [unhex(key) for key in clients[0]["fill_keys"]]
    for client in clients:
        narrow = len(client["fill_keys"]) - 2
        labels = [*(b"%d" % number for number in range(narrow)), b"grid", b"names"]
        identity = unhex(client["identity"])
        assert client["fill_keys"] == [expand(identity, "fill of the keyed form", label).hex() for label in labels]
    for own in union["own"]:
        F = unhex(own["prf"])
        kappa = hashlib.blake2b(F, digest_size=32, key=session, person=b"secea entity").digest()
        assert own["kappa"] == kappa.hex()
        assert own["row_key"] == hashlib.blake2b(kappa, digest_size=32, key=row_key).hexdigest()
        assert own["tag"] == union["tags"][own["slot"]] == tag_of(F, tag_key)
        assert unhex(own["input"]) == spelling(own["name"])
        named = hashlib.blake2b(spelling(own["name"]), digest_size=8, key=fill_keys[-1]).digest()
        assert own["entity"] == int.from_bytes(named, "little")
    for vector in union["round_keys"]:
        numbers = (b"%d" % number for number in (vector["q"], *vector["of"]))
        assert vector["key"] == expand(secret, vector["purpose"], L, *numbers).hex()


# -------------------------------------------------------------------------------------------------------------- the PRF


def rows_of(*encoded: bytes) -> ristretto.Rows:
    return np.frombuffer(b"".join(encoded), np.uint8).reshape(-1, 32)


def times(scalar: int, point: bytes | None = None) -> bytes:
    """scalar * point, or scalar * G; the identity for 0."""
    if scalar % ORDER == 0:
        return bytes(32)
    factor = rows_of((scalar % ORDER).to_bytes(32, "little"))
    product = ristretto.multiply_base(factor) if point is None else ristretto.multiply(rows_of(point), factor)
    return product.tobytes()


def plus(*points: bytes) -> bytes:
    return ristretto.total(rows_of(*points)).tobytes()


def hashed(domain: str, *parts: bytes) -> bytes:
    data = b"".join(struct.pack(">Q", len(part)) + part for part in parts)
    return hashlib.sha512(f"secea oprf {domain}\n".encode() + data).digest()


def to_group(message: bytes) -> bytes:
    """hash_to_ristretto255 of RFC 9380 with the domain of RFC 9497."""
    domain = b"HashToGroup-OPRFV1-\x00-ristretto255-SHA512"
    domain += bytes([len(domain)])
    first = hashlib.sha512(bytes(128) + message + struct.pack(">HB", 64, 0) + domain).digest()
    uniform = hashlib.sha512(first + b"\x01" + domain).digest()
    return ristretto.from_uniform(np.frombuffer(uniform, np.uint8).reshape(1, 64)).tobytes()


def output(message: bytes, evaluated: bytes) -> bytes:
    sized = struct.pack(">H", len(message)) + message + struct.pack(">H", 32) + evaluated
    return hashlib.sha512(sized + b"Finalize").digest()


def scalar(encoded: str) -> int:
    value = int.from_bytes(unhex(encoded), "little")
    assert value < ORDER
    return value


def nonzero(data: bytes) -> list[int]:
    return [int.from_bytes(data[i : i + 64], "little") % (ORDER - 1) + 1 for i in range(0, len(data), 64)]


def test_the_vectors_of_rfc_9497_hold_for_the_code_and_for_this_files_own_arithmetic() -> None:
    vector = load("prf")["rfc9497"]
    k, b = scalar(vector["secret_key"]), scalar(vector["blind"])
    for each in vector["evaluation"]:
        message = unhex(each["input"])
        blinded = times(b, to_group(message))
        assert each["blinded"] == blinded.hex()
        assert each["evaluated"] == times(k, blinded).hex()
        assert each["output"] == output(message, times(pow(b, -1, ORDER) * k, blinded)).hex()
        assert oprf.hash_to_group([message]).tobytes() == to_group(message)
        assert oprf.finalize([message], rows_of(times(k, to_group(message))))[0].hex() == each["output"]


def value_at(polynomial: Sequence[int], client: int) -> int:
    return int(sum(c * (client + 1) ** e for e, c in enumerate(polynomial)) % ORDER)


def test_a_dealing_is_polynomials_commitments_proofs_and_shares() -> None:
    vectors = load("prf")
    session, N = unhex(vectors["session"]), vectors["clients"]
    polynomials = []
    for dealer in vectors["dealer"]:
        seed, number = unhex(dealer["seed"]), struct.pack(">Q", dealer["dealer"])
        drawn = nonzero(ctr(expand(seed, "polynomial"), 64 * (vectors["collusion"] + 1)))
        assert [scalar(c) for c in dealer["polynomial"]] == drawn
        commitments = b"".join(times(c) for c in drawn)
        assert dealer["commitments"] == commitments.hex()
        assert dealer["commitments_hash"] == hashed("commitments", commitments)[:32].hex()
        secret = drawn[0].to_bytes(32, "little")
        uniform = hashed("nonce", ctr(expand(seed, "proof"), 32), secret, session, number, commitments)
        nonce = int.from_bytes(uniform, "little") % ORDER
        point = times(nonce)
        challenge = int.from_bytes(hashed("proof of knowledge", session, number, commitments, point), "little")
        assert dealer["proof"] == (point + ((nonce + challenge * drawn[0]) % ORDER).to_bytes(32, "little")).hex()
        response = scalar(dealer["proof"][64:])
        assert times(response) == plus(point, times(challenge, commitments[:32]))
        assert [scalar(share) for share in dealer["shares"]] == [value_at(drawn, j) for j in range(N)]
        polynomials.append(drawn)
    total = [sum(column) % ORDER for column in zip(*polynomials, strict=True)]
    assert vectors["joint"] == b"".join(map(times, total)).hex()
    assert vectors["public_key"] == times(total[0]).hex()
    assert [scalar(share) for share in vectors["key_shares"]] == [value_at(total, j) for j in range(N)]
    assert vectors["public_shares"] == [times(value_at(total, j)).hex() for j in range(N)]
    for vector in vectors["signatures"]:
        Z, both = vector["needed"], vector["clients"] + vector["collusion"]
        assert 2 * (Z - 1) <= both < 2 * Z


def input_of(name: bytes) -> bytes:
    marked = b"secea long name\n"
    return marked + hashlib.sha512(name).digest() if len(name) > 65_535 or name.startswith(marked) else name


def lagrange(holders: Sequence[int], j: int) -> int:
    weight = Fraction(math.prod(m + 1 for m in holders if m != j), math.prod(m - j for m in holders if m != j))
    return weight.numerator * pow(weight.denominator, -1, ORDER) % ORDER


@pytest.mark.parametrize("which", range(3))
def test_a_list_its_answers_and_F_follow_from_a_seed_and_the_key(which: int) -> None:
    vectors = load("prf")
    vector = vectors["list"][which]
    key = sum(scalar(dealer["polynomial"][0]) for dealer in vectors["dealer"]) % ORDER
    shares = [scalar(share) for share in vectors["key_shares"]]
    inputs = [input_of(unhex(each["pattern"]) * each["times"]) for each in vector["output"]]
    for each, x in zip(vector["output"], inputs, strict=True):
        assert each["input_sha256"] == hashlib.sha256(x).hexdigest()
        assert each["F"] == output(x, times(key, to_group(x))).hex()

    size = vector["size"]
    stream = hashed("blinding", unhex(vector["seed"]), struct.pack(">Q", size), *inputs)[:32]
    scalars = nonzero(ctr(stream, 64 * (size + 1)))
    d = ctr(stream, 16 * size, lane=1)
    weights = [int.from_bytes(d[16 * i : 16 * i + 16], "little") for i in range(size)]
    points = [times(b, to_group(x)) for b, x in zip(scalars, inputs, strict=False)]
    points += [times(b) for b in scalars[len(inputs) : size]]
    points.append(plus(times(scalars[size]), *(times(w, B) for w, B in zip(weights, points, strict=True))))
    random = [word for (word,) in struct.iter_unpack("<Q", ctr(stream, 16 * (size + 1), lane=2))]
    order = sorted(range(size + 1), key=lambda i: (random[size + 1 + i], random[i]))
    assert vector["points"] == [points[i].hex() for i in order]
    assert vector["places"] == [order.index(i) for i in range(size + 1)]
    assert vector["list_hash"] == hashed("list", b"".join(map(unhex, vector["points"])))[:32].hex()

    holders = [answer["holder"] for answer in vector["answer"]]
    for answer in vector["answer"]:
        j = answer["holder"]
        assert scalar(answer["weight"]) == lagrange(holders, j)
        factor = lagrange(holders, j) * shares[j]
        assert answer["points"] == [times(factor, unhex(point)).hex() for point in vector["points"]]


# ------------------------------------------------------------------------------------------------------- the transcript

Tables = list[dict[Any, list[float]]]


@lru_cache
def rounds() -> tuple[Tables, ...]:
    """What the clients of the transcript hold in each round."""
    vectors = load("transcript")["round"]
    tables: dict[int, Tables] = {}
    for entry in vectors:
        here = tables.setdefault(entry["round"], [{}, {}, {}])
        here[entry["client"]][entry["name"]] = floats(entry["embedding"])
    return tuple(tables[number] for number in sorted(tables))


def federation(tables: Tables, tap: Any, **params: Any) -> Parties:
    seeded = insecure_seeded(load("transcript")["seed"])
    return Parties.of(tables, Keyed(), collusion=1, dim=2, entropy=seeded, tap=tap, **params)


def plain(x: Any) -> Any:
    """As JSON has it."""
    return x.hex() if isinstance(x, bytes | float) else x


def test_real_parties_say_the_transcript_again_byte_for_byte() -> None:
    vectors = load("transcript")
    recorder = Recorder(Kind)
    parties = federation(rounds()[0], recorder)
    parties.setup()
    assert vectors["params"] == parties.session.params.canonical()
    assert unhex(vectors["session_hash"]) == parties.session.hash
    for number, tables in enumerate(rounds(), 1):
        found = parties.round(tables)
        means = [[n, *map(float.hex, row)] for n in found for row in found[n].tolist()]
        assert means == [[e["client"], *e["mean"]] for e in vectors["round"] if e["round"] == number]
    for party in (0, 1, 2, SERVER):  # clients take theirs side by side: each has an order of its own
        ours = [hop for hop in recorder.hops if hop.receiver == party]
        theirs = [message for message in vectors["message"] if message["taken_by"] == party]
        assert len(ours) == len(theirs)
        for hop, message in zip(ours, theirs, strict=True):
            header = {name: plain(value) for name, value in asdict(hop.header).items()}
            assert {name: message[name] for name in header} == header
            assert (message["carrier"], message["size"]) == (hop.sender, len(hop.message))
            assert message["sha256"] == hashlib.sha256(hop.message).hexdigest()


def test_a_transcript_relays_what_clients_sent_and_labels_nothing_twice() -> None:
    messages = load("transcript")["message"]
    sent = {m["sha256"]: m for m in messages if m["taken_by"] == SERVER}
    for message in messages:
        if message["taken_by"] != SERVER and message["sender"] != SERVER:
            assert sent[message["sha256"]]["salt"] == message["salt"]
    own = {(m["sender"], m["receiver"], m["kind"], m["salt"], m["chunk"]) for m in messages if m["kind"] != Kind.HELLO}
    sealed = {m["sha256"] for m in messages if m["kind"] != Kind.HELLO}
    assert len(own) == len(sealed)
    assert {m["kind"] for m in messages} == STRICT


def test_the_session_hash_is_of_version_parameters_and_roster() -> None:
    vectors = load("transcript")

    def public(party: int) -> str:
        key = hashlib.sha256(b"secea test entropy %d %d" % (vectors["seed"], party)).digest()
        return Ed25519PrivateKey.from_private_bytes(ctr(key, 32)).public_key().public_bytes_raw().hex()

    roster = {"clients": [[f"client {n}", public(n)] for n in range(3)], "server": public(SERVER)}
    text = f"secea session 1\n{vectors['form']}\n" + json.dumps(roster)
    assert vectors["session_hash"] == hashlib.sha256(text.encode()).hexdigest()


def payloads(kind: Kind, *, taken_by: int | None = None) -> dict[int, list[bytes]]:
    """By sender; of what is relayed, what somebody takes."""
    found: dict[int, dict[str, bytes]] = {}
    for m in load("transcript")["message"]:
        if m["kind"] == kind and "payload" in m and taken_by in (None, m["taken_by"]):
            found.setdefault(m["sender"], {})[m["sha256"]] = unhex(m["payload"])
    return {sender: list(each.values()) for sender, each in sorted(found.items())}


def contexts(kind: Kind) -> list[str]:
    """In order, each once."""
    return list(dict.fromkeys(m["context"] for m in load("transcript")["message"] if m["kind"] == kind))


def test_contexts_bind_everything_public_that_came_before() -> None:
    begins = [m for m in load("transcript")["message"] if m["kind"] == Kind.BEGIN and m["taken_by"] == 0]

    def begun(which: int, phase: bytes) -> bytes:
        begin = begins[which]
        numbers = " ".join(str(begin[name]) for name in ("epoch", "attempt", "weights", "round")).encode()
        return digest(b"begin", unhex(begin["context"]), phase, numbers, unhex(begin["payload"]))

    def bound(context: bytes, phase: bytes, kind: Kind) -> bytes:
        return digest(b"bound", context, phase, *(each[0] for each in payloads(kind).values()))

    commit = begun(0, b"commit")
    deal = bound(commit, b"commit", Kind.COMMITMENT)
    named = bound(deal, b"deal", Kind.DEALING)
    confirmed = bound(named, b"list", Kind.MARK)
    for kinds, context in (
        ((Kind.COMMITMENT,), commit),
        ((Kind.DEALING, Kind.SHARE), deal),
        ((Kind.LIST, Kind.MARK), named),
        ((Kind.CONFIRM, Kind.LISTS, Kind.EVALUATION, Kind.PART, Kind.TABLE, Kind.TAGS, Kind.READY), confirmed),
    ):
        for kind in kinds:
            assert contexts(kind) == [context.hex()], kind
    L = unhex(load("streams")["union"]["L"])
    assert load("streams")["union"]["context"] == confirmed.hex()
    assert {each for said in payloads(Kind.READY).values() for each in said} == {L}
    assert [begin["context"] for begin in begins[1:]] == [L.hex()] * 2
    assert contexts(Kind.UPLOAD) == contexts(Kind.MEANS) == [begun(q, b"upload").hex() for q in (1, 2)]
    marks = b"".join(struct.pack("<H", v) + each[0] for v, each in payloads(Kind.MARK).items())
    confirmation = hashlib.sha256(b"secea lists of an epoch\n1\n" + marks).digest()
    assert {each for said in payloads(Kind.CONFIRM).values() for each in said} == {confirmation}
    parts = {each["client"]: each for each in load("streams")["union"]["client"]}
    for v, part in payloads(Kind.PART).items():
        assert set(part) == {unhex(parts[v]["part"]) + unhex(parts[v]["mask_public"])}


class Secrets:
    """The shared key streams of one round, for chunk 0."""

    def __init__(self, primes: Sequence[int], secret: bytes, L: bytes, q: int) -> None:
        self.primes, self.secret, self.L, self.q = primes, secret, L, q

    def __call__(self, b: int, i: int, name: str, *of: int) -> int:
        numbers = (b"%d" % number for number in (self.q, *of))
        key = expand(self.secret, name, self.L, *numbers)
        return element(self.primes, b, key, 0, i, int(name == "rho"))


def residues(data: bytes, primes: Sequence[int], rows: int, columns: int) -> list[list[list[int]]]:
    width = 8 if list(primes) == [M61] else 4
    numbers = [int.from_bytes(data[i : i + width], "little") for i in range(0, len(data), width)]
    assert len(numbers) == len(primes) * rows * columns
    return [
        [numbers[(b * rows + i) * columns : (b * rows + i + 1) * columns] for i in range(rows)]
        for b in range(len(primes))
    ]


@pytest.mark.parametrize("q", [1, 2])
def test_the_means_of_the_transcript_are_what_the_uploads_add_up_to(q: int) -> None:
    union, vectors = load("streams")["union"], load("transcript")
    M, members, noisy = len(vectors["tags"]), 3, sorted((q + i) % 3 for i in range(2))
    drawn = Secrets([M61], unhex(union["secret"]), unhex(union["L"]), q)
    C, f, noise = vectors["C"], vectors["f"], vectors["noise"]
    shape = noise["s"], noise["digits"], noise["wide"]
    reach = 2 * (noise["s"] * (C - 1) + C * (noise["wide"] - 1))
    rows, seeds, columns = [[0] * 5 for _ in range(M)], [], [0] * M
    for sender, sent in payloads(Kind.UPLOAD).items():
        payload, body = sent[q - 1], M * 5 * 8
        for i, row in enumerate(residues(payload[:body], [M61], M, 5)[0]):
            rows[i] = [(a + b) % M61 for a, b in zip(rows[i], row, strict=True)]
        assert (len(payload) > body) == (sender in noisy)
        if sender in noisy:
            own = residues(payload[body:-32], [M61], M, 1)[0]
            columns = [(a + b) % M61 for a, (b,) in zip(columns, own, strict=True)]
            seeds.append(payload[-32:])
    (means,) = {each[q - 1] for each in payloads(Kind.MEANS).values()}
    R, marks = residues(means[: M * 3 * 8], [M61], M, 3)[0], means[M * 3 * 8 :]
    assert marks == bytes(M)
    alpha = [drawn(0, j, "alpha", 0) for j in range(2)]
    owners = [0] * M
    for i in range(M):
        *data, check, K, mark = rows[i]
        rho = drawn(0, i, "rho")
        owners[i] = K * pow(rho, -1, M61) % M61
        assert mark == (members * drawn(0, i, "theta") + drawn(0, i, "beta") * K) % M61
        e = [sum(noise_of(seed, 0, 2 * i + j, *shape) for seed in seeds) for j in range(2)]
        divided = [(x * pow(K, -1, M61) + y) % M61 for x, y in zip(data, e, strict=True)]
        assert R[i] == [*divided, (check * pow(K, -1, M61) + columns[i]) % M61]
        pads = drawn(0, i, "J", 0) + sum(drawn(0, i, "H", w, 0) for w in noisy)
        assert R[i][2] == (sum(a * x for a, x in zip(alpha, R[i], strict=False)) + pads) % M61

    tables = rounds()[q - 1]
    named = {own["name"]: own for own in union["own"]}
    entries = {e["name"]: e for e in vectors["round"] if (e["round"], e["client"]) == (q, 0)}
    for name, own in named.items():
        holders = [table[name] for table in tables if name in table]
        assert owners[own["slot"]] == len(holders)
        exact = [sum(map(Fraction, column), Fraction()) / len(holders) for column in zip(*holders, strict=True)]
        for j, mean in enumerate(floats(entries[name]["mean"])):
            x = (R[own["slot"]][j] - element([M61], 0, unhex(own["row_key"]), q, j)) % M61
            x = (x - reach // 2) % M61
            read = Fraction(x if x <= M61 // 2 else x - M61, C * 2**f)
            assert mean == pytest.approx(max(-64.0, min(64.0, float(read))), rel=1e-15)
            assert abs(read - exact[j]) < Fraction(64, 2**24)


# --------------------------------------------------------------------------------------------------- thirteen clients


def test_thirteen_clients_send_the_stated_upload_and_get_the_stated_means() -> None:
    vectors = load("transcript")["many"]
    tables: Tables = [{name: floats(row) for name, row in each["table"]} for each in vectors["embedding"]]
    recorder = Recorder(Kind)
    parties = federation(tables, recorder, precision=25)
    parties.setup()
    found = parties.round(tables)
    assert vectors["params"] == parties.session.params.canonical()
    assert [floats(row) for row in vectors["mean"]] == found[0].tolist()
    sums = {hashlib.sha256(hop.message).hexdigest() for hop in recorder.hops}
    assert {each["message_sha256"] for each in vectors["payload"]} <= sums

    primes, noise, M = vectors["primes"], vectors["noise"], 3
    modulus, columns = math.prod(primes), 4
    means = unhex(next(each["payload"] for each in vectors["payload"] if each["kind"] == Kind.MEANS))
    assert means[-M:] == bytes(M)
    R = residues(means[:-M], primes, M, columns)
    drawn = Secrets(primes, unhex(vectors["secret"]), unhex(vectors["L"]), vectors["q"])
    for b, p in enumerate(primes):
        for i in range(M):
            for k in range(2):
                pads = drawn(b, i, "J", k) + sum(drawn(b, i, "H", w, k) for w in noise["clients"])
                weighted = sum(drawn(b, j, "alpha", k) * R[b][i][j] for j in range(2))
                assert R[b][i][2 + k] == (weighted + pads) % p
    C, f = vectors["C"], vectors["f"]
    reach = len(noise["clients"]) * (noise["s"] * (C - 1) + C * (noise["wide"] - 1))
    place = {name: i for i, name in enumerate(tables[0])}
    for own in vectors["own"]:
        holders = [table[own["name"]] for table in tables if own["name"] in table]
        for j in range(2):
            G = [element(primes, b, unhex(own["row_key"]), vectors["q"], j) for b in range(len(primes))]
            x = sum(
                (R[b][own["slot"]][j] - G[b]) * (modulus // p) * pow(modulus // p, -1, p) for b, p in enumerate(primes)
            )
            x = (x - reach // 2) % modulus
            read = Fraction(x if x <= modulus // 2 else x - modulus, C * 2**f)
            assert float.fromhex(vectors["mean"][place[own["name"]]][j]) == pytest.approx(float(read), rel=1e-14)
            exact = sum((Fraction(row[j]) for row in holders), Fraction()) / len(holders)
            assert abs(read - exact) < Fraction(64, 2**25)


# -------------------------------------------------------------------------------------------------------------- faults


class Reached(Exception):
    """The party has taken as many messages as it should."""


def play(hook: Callable[[Parties, int, int], None]) -> Parties:
    """The federation of the transcript; `hook` runs before each message, with who takes it as its how manieth."""
    taken = dict.fromkeys((0, 1, 2, SERVER), 0)

    def tap(sender: int, receiver: int, message: Buffer) -> Iterable[Buffer]:
        hook(parties, receiver, taken[receiver])
        taken[receiver] += 1
        return (message,)

    parties = federation(rounds()[0], tap)
    parties.setup()
    for tables in rounds():
        parties.round(tables)
    assert sum(taken.values()) == len(load("transcript")["message"])
    return parties


def tried(parties: Parties, case: Any) -> list[str]:
    """Hand over the messages of a case; what went otherwise than it says."""
    party = case["party"]
    here: Any = parties.server if party == SERVER else parties.clients[party]
    *first, last = map(unhex, case["messages"])

    def hand(message: bytes) -> None:
        if party == SERVER:
            here.receive(case["carrier"], message)
        else:
            here.receive(message)

    def refusal() -> None:
        if case["on"] == "receive":
            hand(last)
        else:
            assert case["on"] == "close"
            here.close()

    for message in first:
        hand(message)
    if case["on"] != "receive":
        hand(last)
    before = here.at
    with pytest.raises(ProtocolError) as caught:
        refusal()
    error = caught.value
    wrong = []
    if (type(error).__name__, list(error.suspects)) != (case["error"], case["suspects"]):
        wrong.append(f"{type(error).__name__} {error.suspects}")
    if case["text"] not in str(error):
        wrong.append(f"the text {error}")
    if before.phase != case["phase"]:
        wrong.append(f"the phase {before.phase}")
    if case["stops"] != (here.at.phase == STOPPED) or not (case["stops"] or here.at == before):
        wrong.append(f"the state {here.at.phase}")
    return [f"{case['fault']}: {each}" for each in wrong]


def harmless(case: Any) -> bool:
    """Whether the party can go on as if nothing had come."""
    return len(case["messages"]) == 1 and case["on"] == "receive" and not case["stops"]


def test_what_is_refused_at_once_changes_nothing_and_the_federation_goes_on() -> None:
    cases, wrong = [case for case in load("negative")["case"] if harmless(case)], list[str]()
    done = []

    def hook(parties: Parties, party: int, after: int) -> None:
        for case in cases:
            if (case["party"], case["after"]) == (party, after):
                wrong.extend(tried(parties, case))
                done.append(case["fault"])

    parties = play(hook)
    assert not wrong, "\n".join(wrong)
    assert len(done) == len(cases) > 40
    last = [entry for entry in load("transcript")["round"] if entry["round"] == 2 and entry["client"] == 0]
    assert parties.means(0, rounds()[1][0]).tolist() == [floats(entry["mean"]) for entry in last]


def stand(party: int, after: int) -> Parties:
    """The federation before a party takes its message number `after`."""
    found: list[Parties] = []

    def hook(parties: Parties, receiver: int, taken: int) -> None:
        if (receiver, taken) == (party, after):
            found.append(parties)
            raise Reached

    with pytest.raises(Reached):
        play(hook)
    return found[0]


def test_what_ends_an_attempt_is_refused_with_the_stated_error_and_blame() -> None:
    cases = [case for case in load("negative")["case"] if not harmless(case)]
    wrong = [line for case in cases for line in tried(stand(case["party"], case["after"]), case)]
    assert not wrong, "\n".join(wrong)
    assert len(cases) > 30


def test_negative_vectors_name_each_fault_once_and_cover_every_phase_and_error() -> None:
    cases = load("negative")["case"]
    assert len({case["fault"] for case in cases}) == len(cases)
    assert {case["phase"] for case in cases} == {row.phase for row in Keyed.rows} | {"greeting", "rest"}
    assert {case["error"] for case in cases} == {"ProtocolError", "FaultyPeer", "FaultyPeerOrRelay", "Stale"}
    assert all(issubclass(getattr(errors, case["error"]), ProtocolError) for case in cases)
    assert {unhex(message)[1] for case in cases for message in case["messages"]} >= STRICT


def test_the_replay_notices_a_wrong_blame_and_a_fault_that_is_none() -> None:
    case = next(c for c in load("negative")["case"] if c["fault"] == "a wrong signature")
    parties = stand(case["party"], case["after"])
    assert not tried(parties, case)
    assert tried(parties, case | {"suspects": [2]})
    assert tried(parties, case | {"error": "Stale"})
    assert tried(parties, case | {"text": "something else"})
    assert tried(parties, case | {"phase": "deal"})
    honest = next(m for m in load("negative")["case"] if m["fault"] == "repeated, at the server")["messages"]
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        tried(parties, case | {"messages": honest})
