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
from secea.engines.exchange import untouched
from secea.errors import SERVER, ProtocolError
from secea.forms.keyed import Keyed, Kind
from secea.params import Params
from secea.party.client import Client
from secea.party.phases import STOPPED
from secea.party.server import Server
from secea.steps import oprf
from secea.testing import Hop, Parties, Recorder, insecure_seeded

FOLDER: Final = Path(__file__).parent.parent / "vectors"
M61: Final = 2**61 - 1
P: Final = 2**56 - 5
"""The field of so few clients, with elements of seven bytes."""
ORDER: Final = 2**252 + 27742317777372353535851937790883648493


def load(name: str) -> Any:
    return json.loads((FOLDER / f"keyed-{name}.json").read_text())


def unhex(x: str) -> bytes:
    return bytes.fromhex(x)


TOLERANT: Final = {Kind.BATCH, Kind.SECRETS, Kind.VOTE, Kind.VOTES, Kind.OPENING}
"""What is sent only where clients may drop out."""
STRICT: Final = set(Kind) - TOLERANT


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
    width, p = 8 if primes[b] >> 32 else 4, primes[b]
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
            each, width = (2, 8) if primes[b] >> 32 else (4, 4)
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
        assert math.prod(vector["primes"]).bit_length() * vector["checks"] >= 56
        seen = vector["collusion"] * vector["max_entities"] * vector["dim"] * params.rounds
        assert vector["sigma"] == params.sigma + math.ceil(math.log2(seen))


# ----------------------------------------------------------------------------------------------------- keys of a union


def tag_of(F: bytes, key: bytes) -> int:
    return (int.from_bytes(hashlib.blake2b(F, digest_size=8, key=key).digest(), "little") >> 3) % M61


def spelling(name: str | int) -> bytes:
    return f"s{name}".encode()


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
        here[entry["client"]][str(entry["name"])] = floats(entry["embedding"])
    return tuple(tables[number] for number in sorted(tables))


def federation(tables: Tables, tap: Any, form: Keyed | None = None, **params: Any) -> Parties:
    seeded = insecure_seeded(load("transcript")["seed"])
    return Parties.of(tables, form or Keyed(), collusion=1, dim=2, entropy=seeded, tap=tap, **params)


def end(parties: Parties) -> None:
    """The server says that the run is over."""
    parties.server.begin("end", parties.server.at.members)
    parties.exchange.deliver()


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
    end(parties)
    check_same(recorder.hops, vectors["message"])


def check_same(hops: Sequence[Hop], messages: Sequence[Any]) -> None:
    """The same messages, in the order of each party: clients take theirs side by side."""
    for party in (0, 1, 2, 3, SERVER):
        ours = [hop for hop in hops if hop.receiver == party]
        theirs = [message for message in messages if message["taken_by"] == party]
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
    for vectors, clients in ((load("transcript"), 3), (load("transcript")["dropouts"], 4)):
        keys = {n: identity(n).public_key().public_bytes_raw().hex() for n in (*range(clients), SERVER)}
        roster = {"clients": [[f"client {n}", keys[n]] for n in range(clients)], "server": keys[SERVER]}
        text = f"secea session 1\n{vectors['form']}\n" + json.dumps(roster)
        assert vectors["session_hash"] == hashlib.sha256(text.encode()).hexdigest()


def identity(party: int) -> Ed25519PrivateKey:
    """The first that a party draws."""
    key = hashlib.sha256(b"secea test entropy %d %d" % (load("transcript")["seed"], party)).digest()
    return Ed25519PrivateKey.from_private_bytes(ctr(key, 32))


def payloads(kind: Kind, *, taken_by: int | None = None, of: Any = None) -> dict[int, list[bytes]]:
    """By sender; of what is relayed, what somebody takes."""
    found: dict[int, dict[str, bytes]] = {}
    for m in (of or load("transcript"))["message"]:
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
        ((Kind.CONFIRM, Kind.LISTS, Kind.EVALUATION, Kind.PART, Kind.TABLE, Kind.TAGS), confirmed),
    ):
        for kind in kinds:
            assert contexts(kind) == [context.hex()], kind
    L = unhex(load("streams")["union"]["L"])
    assert load("streams")["union"]["context"] == confirmed.hex()
    assert {each[:16] for said in payloads(Kind.READY).values() for each in said} == {L}
    assert [begin["context"] for begin in begins[1:]] == [confirmed.hex(), L.hex()] * 2 + [confirmed.hex()]
    assert contexts(Kind.READY) == [begun(which, b"ready").hex() for which in (1, 3)]
    assert contexts(Kind.UPLOAD) == contexts(Kind.MEANS) == [begun(which, b"upload").hex() for which in (2, 4)]
    marks = b"".join(struct.pack("<H", v) + each[0] for v, each in payloads(Kind.MARK).items())
    confirmation = hashlib.sha256(b"secea lists of an epoch\n1\n" + marks).digest()
    assert {each for said in payloads(Kind.CONFIRM).values() for each in said} == {confirmation}
    parts = {each["client"]: each for each in load("streams")["union"]["client"]}
    for v, part in payloads(Kind.PART).items():
        assert set(part) == {unhex(parts[v]["part"]) + unhex(parts[v]["mask_public"])}


def test_whether_entities_changed_lies_under_masks_of_all_pairs_and_adds_up_to_nothing() -> None:
    union = load("streams")["union"]
    session, context, L = (unhex(union[name]) for name in ("session", "context", "L"))
    clients = {each["client"]: X25519PrivateKey.from_private_bytes(unhex(each["mask_key"])) for each in union["client"]}

    def mask(n: int, v: int, q: int) -> int:
        pair = expand(clients[n].exchange(clients[v].public_key()), "pair of masks", session, context)
        made = int.from_bytes(expand(pair, "ready", L, b"%d" % q), "little")
        return made if n < v else -made

    said = payloads(Kind.READY)
    for q in (0, 1):  # the number of the last round
        elements = {n: int.from_bytes(each[q][16:], "little") for n, each in said.items()}
        assert elements == {n: sum(mask(n, v, q) for v in clients if v != n) % M61 for n in clients}
        assert all(elements.values())
        assert sum(elements.values()) % M61 == 0
    for entry in union["ready"]:
        assert entry["round"] == 1
        assert unhex(entry["element"]) == said[entry["client"]][1][16:]


class Secrets:
    """The shared key streams of one round, for chunk 0."""

    def __init__(self, primes: Sequence[int], secret: bytes, L: bytes, q: int) -> None:
        self.primes, self.secret, self.L, self.q = primes, secret, L, q

    def __call__(self, b: int, i: int, name: str, *of: int) -> int:
        numbers = (b"%d" % number for number in (self.q, *of))
        key = expand(self.secret, name, self.L, *numbers)
        return element(self.primes, b, key, 0, i, int(name == "rho"))


def residues(data: bytes, primes: Sequence[int], rows: int, columns: int) -> list[list[list[int]]]:
    width = 7 if list(primes) == [P] else 8 if list(primes) == [M61] else 4
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
    drawn = Secrets([P], unhex(union["secret"]), unhex(union["L"]), q)
    C, f, noise = vectors["C"], vectors["f"], vectors["noise"]
    shape = noise["s"], noise["digits"], noise["wide"]
    reach = 2 * (noise["s"] * (C - 1) + C * (noise["wide"] - 1))
    rows, seeds, columns = [[0] * 5 for _ in range(M)], [], [0] * M
    for sender, sent in payloads(Kind.UPLOAD).items():
        payload, body = sent[q - 1], M * 5 * 7
        for i, row in enumerate(residues(payload[:body], [P], M, 5)[0]):
            rows[i] = [(a + b) % P for a, b in zip(rows[i], row, strict=True)]
        assert (len(payload) > body) == (sender in noisy)
        if sender in noisy:
            own = residues(payload[body:-32], [P], M, 1)[0]
            columns = [(a + b) % P for a, (b,) in zip(columns, own, strict=True)]
            seeds.append(payload[-32:])
    (means,) = {each[q - 1] for each in payloads(Kind.MEANS).values()}
    R, marks = residues(means[: M * 3 * 7], [P], M, 3)[0], means[M * 3 * 7 :]
    assert marks == bytes(M)
    alpha = [drawn(0, j, "alpha", 0) for j in range(2)]
    owners = [0] * M
    for i in range(M):
        *data, check, K, mark = rows[i]
        rho = drawn(0, i, "rho")
        owners[i] = K * pow(rho, -1, P) % P
        assert mark == (members * drawn(0, i, "theta") + drawn(0, i, "beta") * K) % P
        e = [sum(noise_of(seed, 0, 2 * i + j, *shape) for seed in seeds) for j in range(2)]
        divided = [(x * pow(K, -1, P) + y) % P for x, y in zip(data, e, strict=True)]
        assert R[i] == [*divided, (check * pow(K, -1, P) + columns[i]) % P]
        pads = drawn(0, i, "J", 0) + sum(drawn(0, i, "H", w, 0) for w in noisy)
        assert R[i][2] == (sum(a * x for a, x in zip(alpha, R[i], strict=False)) + pads) % P

    tables = rounds()[q - 1]
    named = {own["name"]: own for own in union["own"]}
    entries = {str(e["name"]): e for e in vectors["round"] if (e["round"], e["client"]) == (q, 0)}
    for name, own in named.items():
        holders = [table[name] for table in tables if name in table]
        assert owners[own["slot"]] == len(holders)
        exact = [sum(map(Fraction, column), Fraction()) / len(holders) for column in zip(*holders, strict=True)]
        for j, mean in enumerate(floats(entries[name]["mean"])):
            x = (R[own["slot"]][j] - element([P], 0, unhex(own["row_key"]), q, j)) % P
            x = (x - reach // 2) % P
            read = Fraction(x if x <= P // 2 else x - P, C * 2**f)
            assert mean == pytest.approx(max(-64.0, min(64.0, float(read))), rel=1e-15)
            assert abs(read - exact[j]) < Fraction(64, 2**24)


# ----------------------------------------------------------------------------------------------------------- drop-outs


def dropouts() -> Any:
    return load("transcript")["dropouts"]


def scalars(key: bytes, count: int) -> list[int]:
    """Of a key stream: 64 bytes for each."""
    data = ctr(key, 64 * count)
    return [int.from_bytes(data[64 * i : 64 * i + 64], "little") % ORDER for i in range(count)]


def four() -> Tables:
    tables: Tables = [{} for _ in range(4)]
    for entry in dropouts()["round"]:
        tables[entry["client"]][entry["name"]] = floats(entry["embedding"])
    return tables


def dropped_out(parties: Parties) -> None:
    """A round in the middle of which somebody vanishes."""
    parties.contribute(four())
    parties.exchange.losses = dict.fromkeys(dropouts()["lost"], "upload")
    parties.exchange.run("upload", range(4))


def test_real_parties_say_again_what_they_said_when_one_dropped_out() -> None:
    vectors, recorder = dropouts(), Recorder(Kind)
    parties = federation(four(), recorder, Keyed(batch=2), dropouts=1)
    parties.setup()
    dropped_out(parties)
    kinds = {message["kind"] for message in vectors["message"]}
    assert kinds >= TOLERANT
    check_same([hop for hop in recorder.hops if hop.header.kind in kinds], vectors["message"])
    for own in vectors["own"]:
        table = four()[own["client"]]
        assert parties.means(own["client"], table)[list(table).index(own["name"])].tolist() == floats(own["mean"])


def shares_of(client: Any, t: int, v: int) -> list[list[int]]:
    """Client v's shares of a and b of each round, as this client deals them."""
    pairs = list(zip(client["a"], client["b"], strict=True))
    further = scalars(unhex(client["polynomials_from"]), 2 * (t - 1) * len(pairs))
    dealt = []
    for secret in map(unhex, chain.from_iterable(pairs)):
        rest, further = further[: t - 1], further[t - 1 :]
        polynomial = [int.from_bytes(secret, "little"), *rest]
        dealt.append(sum(c * (v + 1) ** k for k, c in enumerate(polynomial)) % ORDER)
    return [dealt[i : i + 2] for i in range(0, len(dealt), 2)]


def test_mask_keys_and_self_seeds_are_published_and_shared() -> None:
    vectors = dropouts()
    batches = payloads(Kind.BATCH, of=vectors)
    sealed = {(m["sender"], m["taken_by"]): m["payload"] for m in vectors["message"]
              if m["kind"] == Kind.SECRETS and "payload" in m}  # fmt: skip
    for client in vectors["client"]:
        n, drawn = client["client"], scalars(unhex(client["scalars_from"]), 4)
        a, b = ([int.from_bytes(unhex(x), "little") for x in client[name]] for name in "ab")
        assert a + b == drawn
        published = b""
        for x, y in zip(client["a"], client["b"], strict=True):
            public = X25519PrivateKey.from_private_bytes(unhex(x)).public_key().public_bytes_raw()
            published += public + hashlib.sha256(b"secea self seed\n" + unhex(y)).digest()
        assert batches[n] == [published]
        for v in range(4):
            if v != n:
                dealt = b"".join(x.to_bytes(32, "little") for x in chain.from_iterable(shares_of(client, 3, v)))
                assert sealed[n, v] == dealt.hex()


def test_who_is_left_signs_the_sum_and_opens_one_of_two_secrets_of_each() -> None:
    vectors, left = dropouts(), (0, 1, 2)
    begins = [m for m in vectors["message"] if m["kind"] == Kind.BEGIN and m["taken_by"] == 0]
    anchors = [unhex(begin["context"]) for begin in begins]
    numbers = [" ".join(str(m[name]) for name in ("epoch", "attempt", "weights", "round")).encode() for m in begins]
    contexts = [
        digest(b"begin", anchor, phase, number, unhex(begin["payload"]))
        for anchor, phase, number, begin in zip(
            anchors, (b"commit", b"ready", b"upload", b"agree"), numbers, begins, strict=True
        )
    ]
    union, L = unhex(vectors["context"]), unhex(vectors["L"])
    assert anchors == [bytes(16), union, L, contexts[2]]
    assert {m["context"] for m in vectors["message"] if m["kind"] in (Kind.BATCH, Kind.SECRETS)} == {union.hex()}
    assert {m["context"] for m in vectors["message"] if m["kind"] in (Kind.VOTE, Kind.OPENING, Kind.MEANS)} == {
        contexts[3].hex()
    }
    noisy = " ".join(str(w) for w in vectors["noise"]["clients"] if w in left)
    said = b"secea vote 1\n" + unhex(vectors["session_hash"]) + contexts[3] + f"0 1 2 3\n0 1 2\n{noisy}".encode()
    votes = {n: vote for n, (vote,) in payloads(Kind.VOTE, of=vectors).items()}
    assert votes == {n: identity(n).sign(said) for n in left}
    (shown,) = {each for votes_of in payloads(Kind.VOTES, of=vectors).values() for each in votes_of}
    assert shown == b"".join(struct.pack("<H", n) + votes[n] for n in left)
    for n, (opening,) in payloads(Kind.OPENING, of=vectors).items():
        given = [shares_of(client, 3, n)[0][client["client"] in left] for client in vectors["client"]]
        assert opening == b"".join(x.to_bytes(32, "little") for x in given)


def test_the_means_of_who_is_left_are_what_their_uploads_add_up_to() -> None:
    vectors, left, (gone,) = dropouts(), (0, 1, 2), dropouts()["lost"]
    session, L, M, q = unhex(vectors["session_hash"]), unhex(vectors["L"]), len(vectors["tags"]), vectors["q"]
    clients = {each["client"]: each for each in vectors["client"]}
    noise, C, f = vectors["noise"], vectors["C"], vectors["f"]
    noisy = [w for w in noise["clients"] if w in left]
    rows, columns, seeds = [[0] * 5 for _ in range(M)], [0] * M, []
    for n, (upload,) in payloads(Kind.UPLOAD, of=vectors).items():
        body = M * 5 * 7
        own = expand(expand(unhex(clients[n]["b"][0]), "self seed"), "self mask", L, b"%d" % q)
        mine, theirs = (X25519PrivateKey.from_private_bytes(unhex(clients[v]["a"][0])) for v in (n, gone))
        pair = expand(mine.exchange(theirs.public_key()), "pair of a batch", session)
        with_gone = expand(pair, "mask", L, b"%d" % q)  # everybody masks with everybody: T + D + 1 = 3
        for i, row in enumerate(residues(upload[:body], [P], M, 5)[0]):
            for j, x in enumerate(row):
                over = element([P], 0, own, 0, 5 * i + j) + element([P], 0, with_gone, 0, 5 * i + j)
                rows[i][j] = (rows[i][j] + x - over) % P
        assert (len(upload) > body) == (n in noisy)
        if n in noisy:
            columns = [(a + b) % P for a, (b,) in zip(columns, residues(upload[body:-32], [P], M, 1)[0], strict=True)]
            seeds.append(upload[-32:])
    (means,) = {each for sent in payloads(Kind.MEANS, of=vectors).values() for each in sent}
    R, marks = residues(means[: M * 3 * 7], [P], M, 3)[0], means[M * 3 * 7 :]
    drawn = Secrets([P], unhex(vectors["secret"]), L, q)
    for i, (*data, check, K, mark) in enumerate(rows):
        assert marks[i] == (K == 0)
        if K == 0:  # whoever owned it has vanished
            assert R[i] == [mark, 0, 0] == [len(left) * drawn(0, i, "theta") % P, 0, 0]
            continue
        e = [
            sum(noise_of(s, 0, 2 * i + j, noise["s"], noise["digits"], noise["wide"]) for s in seeds) for j in range(2)
        ]
        divided = [(x * pow(K, -1, P) + y) % P for x, y in zip(data, e, strict=True)]
        assert R[i] == [*divided, (check * pow(K, -1, P) + columns[i]) % P]
        owners = K * pow(drawn(0, i, "rho"), -1, P) % P
        assert owners == sum(own["slot"] == i for own in vectors["own"])
    assert sum(marks) == 1
    reach = len(noisy) * (noise["s"] * (C - 1) + C * (noise["wide"] - 1))
    for own in vectors["own"]:
        holders = [four()[n][own["name"]] for n in left if own["name"] in four()[n]]
        for j, mean in enumerate(floats(own["mean"])):
            x = (R[own["slot"]][j] - element([P], 0, unhex(own["row_key"]), q, j) - reach // 2) % P
            read = Fraction(x if x <= P // 2 else x - P, C * 2**f)
            assert mean == pytest.approx(float(read), rel=1e-15)
            assert abs(read - sum((Fraction(row[j]) for row in holders), Fraction()) / len(holders)) < Fraction(
                64, 2**24
            )


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


def play(hook: Callable[[Parties, int, int], None], *, dropouts: bool = False) -> Parties:
    """The federation of the transcript; `hook` runs before each message, with who takes it as its how manieth.

    It runs once more for each party when all have come.
    """
    taken = dict.fromkeys((0, 1, 2, 3, SERVER), 0)
    strict = not dropouts
    parties = (
        federation(rounds()[0], untouched) if strict else federation(four(), untouched, Keyed(batch=2), dropouts=1)
    )

    def watched(party: int, receive: Callable[..., None]) -> Callable[..., None]:
        def watching(*message: Any) -> None:
            hook(parties, party, taken[party])
            taken[party] += 1
            receive(*message)

        return watching

    machines: dict[int, Any] = {**parties.clients, SERVER: parties.server}
    for party, machine in machines.items():
        machine.receive = watched(party, machine.receive)
    parties.setup()
    if strict:
        for tables in rounds():
            parties.round(tables)
        end(parties)
        assert sum(taken.values()) == len(load("transcript")["message"])
    else:
        dropped_out(parties)
    for party, messages in taken.items():
        hook(parties, party, messages)
    return parties


def tried(parties: Parties, case: Any) -> list[str]:
    """Hand over the messages of a case; what went otherwise than it says."""
    party = case["party"]
    here: Any = parties.server if party == SERVER else parties.clients[party]
    *first, last = map(unhex, case["messages"])

    def hand(message: bytes) -> None:  # past whoever watches
        if party == SERVER:
            Server.receive(here, case["carrier"], message)
        else:
            Client.receive(here, message)

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


@pytest.mark.parametrize("which", ["case", "dropouts"])
def test_what_is_refused_at_once_changes_nothing_and_the_federation_goes_on(which: str) -> None:
    cases, wrong = [case for case in load("negative")[which] if harmless(case)], list[str]()
    done = []

    def hook(parties: Parties, party: int, after: int) -> None:
        for case in cases:
            if (case["party"], case["after"]) == (party, after):
                wrong.extend(tried(parties, case))
                done.append(case["fault"])

    parties = play(hook, dropouts=which == "dropouts")
    assert not wrong, "\n".join(wrong)
    assert len(done) == len(cases) > (40 if which == "case" else 10)
    if which == "dropouts":
        for own in dropouts()["own"]:
            table = four()[own["client"]]
            found = parties.means(own["client"], table)[list(table).index(own["name"])]
            assert found.tolist() == floats(own["mean"])
        return
    last = [entry for entry in load("transcript")["round"] if entry["round"] == 2 and entry["client"] == 0]
    assert parties.means(0, rounds()[1][0]).tolist() == [floats(entry["mean"]) for entry in last]


def stand(party: int, after: int, *, dropouts: bool = False) -> Parties:
    """The federation before a party takes its message number `after`."""
    found: list[Parties] = []

    def hook(parties: Parties, receiver: int, taken: int) -> None:
        if (receiver, taken) == (party, after):
            found.append(parties)
            raise Reached

    with pytest.raises(Reached):
        play(hook, dropouts=dropouts)
    return found[0]


@pytest.mark.parametrize("which", ["case", "dropouts"])
def test_what_ends_an_attempt_is_refused_with_the_stated_error_and_blame(which: str) -> None:
    cases, strict = [case for case in load("negative")[which] if not harmless(case)], which == "case"
    wrong = [line for case in cases for line in tried(stand(case["party"], case["after"], dropouts=not strict), case)]
    assert not wrong, "\n".join(wrong)
    assert len(cases) > (30 if strict else 6)


def test_negative_vectors_name_each_fault_once_and_cover_every_phase_and_error() -> None:
    cases, dropouts = load("negative")["case"], load("negative")["dropouts"]
    assert len({case["fault"] for case in (*cases, *dropouts)}) == len(cases) + len(dropouts)
    assert {case["phase"] for case in cases} == {row.phase for row in Keyed.rows} | {"greeting", "rest"}
    assert {case["phase"] for case in dropouts} == {"ready", "batch", "upload", "agree", "open"}
    assert {unhex(message)[1] for case in dropouts for message in case["messages"]} >= TOLERANT
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
