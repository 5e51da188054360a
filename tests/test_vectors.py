"""The vectors are what the code makes; and what they say holds by arithmetic that is not the code's own.

Everything below "consumed" is computed anew: HKDF from HMAC, key streams and seals from `cryptography`, polynomials and
Paillier from the oracle's plain integers.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import struct
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from secea import errors
from secea.errors import SERVER, ProtocolError
from secea.forms.paillier.form import Kind
from secea.oracles import paillier as oracle
from secea.params import Params
from secea.party.client import Client
from secea.party.phases import STOPPED
from secea.testing import Hop, Parties
from secea.wire.keys import Hello
from secea.wire.messages import HEADER_BYTES, Buffer

FOLDER: Final = Path(__file__).parent.parent / "vectors"
sys.path.insert(0, str(FOLDER))

import recorded  # noqa: E402

M61: Final = 2**61 - 1


def load(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.json").read_text())


def unhex(x: Any) -> bytes:
    return bytes.fromhex(x)


def floats(x: Iterable[str]) -> list[float]:
    return [float.fromhex(each) for each in x]


# ------------------------------------------------------------------------------------------------------- made anew


def make(*arguments: str, folder: Path = FOLDER) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(folder / "make.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)  # noqa: S603  # our own


def test_the_vectors_are_what_the_code_makes_byte_for_byte() -> None:
    ran = make("--check")
    assert ran.stdout == ""
    assert ran.returncode == 0, ran.stderr


def test_the_check_notices_a_changed_a_missing_and_a_strange_file(tmp_path: Path) -> None:
    (tmp_path / "vectors").mkdir()
    for path in FOLDER.iterdir():
        if path.suffix in (".json", ".py"):
            (tmp_path / "vectors" / path.name).write_bytes(path.read_bytes())
    changed = tmp_path / "vectors" / "keys.json"
    changed.write_text(changed.read_text().replace("0", "1", 1))
    (tmp_path / "vectors" / "pads.json").unlink()
    (tmp_path / "vectors" / "old.json").write_text("{}")
    ran = make("--check", folder=tmp_path / "vectors")
    assert ran.returncode == 1
    assert {"vectors/keys.json", "vectors/pads.json", "vectors/old.json"} <= set(ran.stdout.split())
    assert make("--chekc").returncode == 2


# ---------------------------------------------------------------------------------------------- consumed: encodings

HEADER_FIELDS: Final = (
    ("kind", 1, 1), ("sender", 2, 2), ("receiver", 4, 2), ("attempt", 6, 2), ("epoch", 8, 4), ("weights", 12, 4),
    ("round", 16, 4), ("sequence", 20, 4), ("chunk", 24, 4), ("chunks", 28, 4),
)  # fmt: skip
"""The table in docs/protocol.md, section 3: name, first byte, bytes."""


def test_headers_are_as_the_table_of_the_specification_says() -> None:
    for header in load("encodings")["header"]:
        packed = unhex(header["bytes"])
        assert len(packed) == 64
        assert packed[0] == 1
        for name, at, size in HEADER_FIELDS:
            assert int.from_bytes(packed[at : at + size], "little") == header[name], name
        assert packed[32:] == unhex(header["context"]) + unhex(header["salt"])
        assert unhex(header["label"]) == packed[:24] + bytes(4) + packed[28:]


def test_announcements_are_a_step_and_members_of_18_bytes() -> None:
    for announcement in load("encodings")["announcement"]:
        members = b"".join(struct.pack("<H", m["client"]) + unhex(m["salt"]) for m in announcement["members"])
        assert unhex(announcement["bytes"]) == bytes([announcement["step"]]) + members


def spec_digest(*parts: bytes) -> bytes:
    data = b"".join(struct.pack("<Q", len(part)) + part for part in parts)
    return hashlib.blake2b(data, digest_size=16, person=b"secea digest").digest()


def test_digests_and_names_are_as_specified() -> None:
    vectors = load("encodings")
    for vector in vectors["digest"]:
        assert unhex(vector["digest"]) == spec_digest(*map(unhex, vector["parts"]))
    for vector in vectors["name"]:
        name = vector["name"]
        assert unhex(vector["bytes"]).decode() == f"s{name}"
    assert len({vector["bytes"] for vector in vectors["name"]}) == len(
        {str(vector["name"]) for vector in vectors["name"]}
    )


def test_elements_are_residues_of_fixed_width() -> None:
    for vector in load("encodings")["elements"]:
        width = {M61: 8, 2**56 - 5: 7}.get(vector["primes"][0], 4)
        assert vector["residues"] == [[x % p for x in vector["integers"]] for p in vector["primes"]]
        data = b"".join(x.to_bytes(width, "little") for row in vector["residues"] for x in row)
        assert unhex(vector["bytes"]) == data


def test_fixed_point_rounds_half_to_even() -> None:
    for vector in load("encodings")["fixed_point"]:
        params = Params(3, dim=1, max_abs=float.fromhex(vector["max_abs"]), precision=vector["precision"])
        f = vector["fraction_bits"]
        assert Fraction(2) ** -f <= Fraction(params.resolution) < Fraction(2) ** (1 - f)
        assert vector["integers"] == [oracle.fixed(x, f) for x in floats(vector["floats"])]


# --------------------------------------------------------------------------------------------------- consumed: keys


def hkdf_expand(secret: bytes, info: bytes) -> bytes:
    """RFC 5869, for 32 bytes with SHA-256: the first block."""
    return hmac.digest(secret, info + b"\1", "sha256")


def spec_expand(secret: bytes, purpose: str, *label: bytes) -> bytes:
    return hkdf_expand(secret, f"secea {purpose}\n".encode() + spec_digest(*label))


def aes_stream(key: bytes, lane: int, size: int) -> bytes:
    """AES-256 of the counter blocks, one after the other."""
    cipher = Cipher(algorithms.AES256(key), modes.ECB()).encryptor()  # noqa: S305  # counter mode by hand
    blocks = b"".join(struct.pack(">QQ", lane, i) for i in range(-(-size // 16)))
    return cipher.update(blocks)[:size]


def test_the_roster_and_the_session_are_hashed_as_specified() -> None:
    vectors = load("keys")
    roster, session = vectors["roster"], vectors["session"]
    text = {"clients": [list(pair) for pair in zip(roster["names"], roster["clients"], strict=True)]}
    canonical = json.dumps(text | {"server": roster["server"]}).encode()
    assert unhex(roster["canonical"]) == canonical
    assert roster["fingerprint"].replace(" ", "") == hashlib.sha256(b"secea roster\n" + canonical).hexdigest()[:40]
    head = f"secea session 1\n{session['params']}\n{session['retrieval']} {session['queries']}\n".encode()
    assert unhex(session["hash"]) == hashlib.sha256(head + canonical).digest()


def test_hellos_are_signed_over_everything() -> None:
    vectors = load("keys")
    for party in vectors["party"]:
        hello = unhex(party["hello"])
        session, incarnation, public, signature = hello[:32], hello[32:48], hello[48:80], hello[80:]
        assert (session.hex(), incarnation.hex()) == (vectors["session"]["hash"], party["incarnation"])
        own = X25519PrivateKey.from_private_bytes(unhex(party["x25519"])).public_key().public_bytes_raw()
        assert public == own == unhex(party["x25519_public"])
        parts = (session, struct.pack("<H", party["number"]), incarnation, public, b"")
        signed = b"secea hello 1\n" + b"".join(struct.pack("<I", len(part)) + part for part in parts)
        Ed25519PublicKey.from_public_bytes(unhex(party["identity_public"])).verify(signature, signed)


def test_a_channel_follows_from_two_hellos() -> None:
    vectors = load("keys")
    party = {each["number"]: each for each in vectors["party"]}
    for channel in vectors["channel"]:
        me, peer, context = channel["me"], channel["peer"], unhex(channel["context"])
        theirs = X25519PublicKey.from_public_bytes(unhex(party[peer]["x25519_public"]))
        agreed = X25519PrivateKey.from_private_bytes(unhex(party[me]["x25519"])).exchange(theirs)
        extracted = hmac.digest(unhex(vectors["session"]["hash"]), agreed, "sha256")
        transcript = b"".join(hashlib.sha256(unhex(party[n]["hello"])).digest() for n in sorted((me, peer)))
        pair = hkdf_expand(extracted, b"secea pair" + transcript)
        assert unhex(channel["pair_key"]) == pair
        assert (
            unhex(channel["confirmation"])
            == hkdf_expand(pair, b"secea confirm\n" + context + struct.pack("<H", me))[:16]
        )
        assert unhex(channel["mask"]) == aes_stream(spec_expand(pair, "mask", context), 0, 32)
        for chunk, (payload, message) in enumerate(zip(channel["payloads"], channel["messages"], strict=True)):
            head, body = unhex(message)[:64], unhex(message)[64:]
            key = hkdf_expand(pair, b"secea seal\n" + head[:24] + bytes(4) + head[28:])
            assert int.from_bytes(head[24:28], "little") == chunk
            assert AESGCM(key).decrypt(chunk.to_bytes(12, "little"), body, head) == unhex(payload)


def test_secrets_expand_to_keys_and_keys_to_streams() -> None:
    vectors = load("keys")
    shared = vectors["shared_secret"]
    parts = b"".join(struct.pack("<H", n) + unhex(part) for n, part in enumerate(shared["parts"]))
    assert unhex(shared["secret"]) == hashlib.sha256(b"secea shared secret" + parts).digest()
    for vector in vectors["expand"]:
        expected = spec_expand(unhex(vector["secret"]), vector["purpose"], *map(unhex, vector["label"]))
        assert unhex(vector["key"]) == expected
    for vector in vectors["stream"]:
        data = unhex(vector["bytes"])
        assert data == aes_stream(unhex(vector["key"]), vector["lane"], len(data))


# ------------------------------------------------------------------------------------------- consumed: pads, shares


class Words:
    """Field elements by rejection from a key stream, in plain integers."""

    def __init__(self, key: bytes, lane: int = 0) -> None:
        self._data, self._at = aes_stream(key, lane, 1 << 14), 0

    def draw(self, p: int, size: int) -> list[int]:
        width = 8 if p == M61 else 4
        found: list[int] = []
        while len(found) < size:
            word = int.from_bytes(self._data[self._at : self._at + width], "little")
            self._at += width
            if (x := word >> (8 * width - p.bit_length())) < p:
                found.append(x)
        return found

    def rows(self, primes: Iterable[int], size: int) -> list[list[int]]:
        return [self.draw(p, size) for p in primes]


def test_pads_are_the_words_of_a_stream_that_are_below_the_prime() -> None:
    for vector in load("pads")["stream"]:
        words, size = Words(unhex(vector["key"]), vector["lane"]), math.prod(vector["shape"])
        rows = words.rows(vector["primes"], size)
        while vector["nonzero"] and (
            zeros := [(i, j) for i, row in enumerate(rows) for j in range(size) if not row[j]]
        ):
            fresh = words.rows(vector["primes"], len(zeros))
            for at, (i, j) in enumerate(zeros):
                rows[i][j] = fresh[i][at]
        assert rows == np.array(vector["elements"]).reshape(len(vector["primes"]), size).tolist()


def columns(points: Iterable[int], values: Iterable[Iterable[int]], p: int) -> oracle.Polynomial:
    return oracle.Polynomial(tuple(points), tuple(tuple(row) for row in values), p)


def test_shares_are_values_of_the_polynomial_through_data_and_noise() -> None:
    for vector in load("shares")["code"]:
        K, beta, alpha = vector["K"], vector["beta"], vector["alpha"]
        assert len(beta) == K + vector["collusion"]
        assert vector["need"] == 2 * len(beta) - 1
        streams = {seed["client"]: Words(unhex(seed["seed"])) for seed in vector["seeds"]}
        for i, p in enumerate(vector["primes"]):
            data = vector["data"][i]
            phi = columns(beta, [*data, *vector["noise"][i]], p)
            assert vector["shares"][i] == [list(phi(x)) for x in alpha]
            # T of the shares are drawn from seeds: the polynomial is the one through the data and those shares.
            drawn = {v: words.draw(p, 2) for v, words in streams.items()}
            seeded = columns([*beta[:K], *(alpha[v] for v in drawn)], [*data, *drawn.values()], p)
            assert vector["receivers"] == [v for v in range(vector["clients"]) if v not in drawn]
            assert vector["shares_beside_seeds"][i] == [list(seeded(alpha[v])) for v in vector["receivers"]]
            assert vector["squares"][i] == [[x * x % p for x in row] for row in data]


def test_the_clients_that_get_seeds_move_on() -> None:
    for vector in load("shares")["seeded_clients"]:
        N, T, turn = (
            vector["clients"],
            vector["collusion"],
            sum(vector[x] for x in ("kind", "epoch", "weights", "round")),
        )
        others = [(vector["sender"] + 1 + i) % N for i in range(N - 1)]
        assert vector["seeded"] == sorted(others[(turn * T + i) % (N - 1)] for i in range(T))


# --------------------------------------------------------------------------------------- consumed: union and buckets

W64: Final = 2**64 - 1


def mixed(x: int, key: int) -> int:
    """SplitMix64's finaliser (Steele, Lea, Flood 2014)."""
    z = ((x ^ key) + 0x9E3779B97F4A7C15) & W64
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & W64
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & W64
    return z ^ z >> 31


def cells_of(tag: int, keys: list[int], third: int) -> list[int]:
    return [(mixed(tag, keys[h]) >> 32) * third // 2**32 + h * third for h in range(3)]


def hash_keys(seed: bytes, person: bytes) -> list[int]:
    return list(struct.unpack("<4Q", hashlib.blake2b(seed, digest_size=32, person=person).digest()))


def test_a_union_is_the_sum_of_masked_tables_and_peels_to_the_tags() -> None:
    vector = load("union")
    keys, third = hash_keys(unhex(vector["seed"]), b"secea union"), vector["third"]
    cells = math.ceil(1.4 * vector["max_union"]) + 900
    assert third == math.ceil((cells + cells * vector["attempt"] // 4) / 3)
    assert vector["keys"] == keys
    streams = {(m["low"], m["high"]): element_stream(unhex(m["key"]), 9 * third) for m in vector["masks"]}
    assert streams.keys() == {(0, 1), (0, 2), (1, 2)}
    total: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
    every = set()
    for n, client in enumerate(vector["client"]):
        table: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
        weights = Words(unhex(client["weight_key"])).draw(M61, len(client["names"]))
        for i, name in enumerate(client["names"]):
            named = b"s" + name.encode()
            hashed = hashlib.blake2b(named, digest_size=8, key=unhex(vector["tag_key"])).digest()
            tag = (int.from_bytes(hashed, "little") >> 3) % M61
            check = (mixed(tag, keys[3]) >> 3) % M61
            assert (client["tags"][i], client["checks"][i]) == (tag, check)
            assert client["positions"][i] == cells_of(tag, keys, third)
            every.add(tag)
            for cell in client["positions"][i]:
                for column, factor in enumerate((1, tag, check)):
                    table[cell][column] = (table[cell][column] + weights[i] * factor) % M61
                    total[cell][column] = (total[cell][column] + weights[i] * factor) % M61
        assert {c["cell"]: c["values"] for c in client["table"]} == table
        masked = [table[i // 3][i % 3] if i // 3 in table else 0 for i in range(9 * third)]
        for (low, high), stream in streams.items():
            if n in (low, high):
                sign = 1 if n == low else -1
                masked = [(x + sign * s) % M61 for x, s in zip(masked, stream, strict=True)]
        assert hashlib.sha256(struct.pack(f"<{9 * third}Q", *masked)).hexdigest() == client["masked_sha256"]
    assert {c["cell"]: c["values"] for c in vector["total"]} == total
    assert vector["peeled"] == sorted(every)


def element_stream(key: bytes, size: int) -> list[int]:
    words = struct.unpack(f"<{size + 8}Q", aes_stream(key, 0, 8 * (size + 8)))
    return [x for word in words if (x := word >> 3) < M61][:size]


def test_every_tag_stands_in_a_bucket_of_each_third_and_every_row_is_asked_for_once() -> None:
    vector = load("buckets")
    keys, third = hash_keys(unhex(vector["seed"]), b"secea buckets"), vector["buckets"] // 3
    starts, members = vector["starts"], vector["members"]
    homes = [cells_of(tag, keys, third) for tag in vector["tags"]]
    for b in range(vector["buckets"]):
        assert members[starts[b] : starts[b + 1]] == [row for row, at in enumerate(homes) if b in at]
    placed = {row: b for b, row in enumerate(vector["placement"]) if row != -1}
    assert sorted(placed) == vector["rows"]
    assert all(b in homes[row] for row, b in placed.items())
    assert vector["wanted"] == sorted(
        starts[b] + members[starts[b] : starts[b + 1]].index(row) for row, b in placed.items()
    )
    full = vector["full"]
    order = struct.unpack("<7Q", aes_stream(unhex(vector["stream"]), 0, 56))
    queries = sorted(range(7), key=lambda j: order[j])[: len(vector["rows"])]
    assert full["placement"] == [vector["rows"][queries.index(j)] if j in queries else -1 for j in range(7)]
    assert full["wanted"] == sorted(j * 14 + row for j, row in enumerate(full["placement"]) if row != -1)
    for each in vector["bucket_count"]:
        most = each["max_entities"]
        assert each["buckets"] == (3 if most <= 3 else 3 * (math.ceil(most / 2) + 5))


# ------------------------------------------------------------------------------------------------ consumed: Paillier


def chunks_of(data: bytes, size: int) -> list[int]:
    return [int.from_bytes(data[i : i + size], "little") for i in range(0, len(data), size)]


def test_an_answer_goes_through_paillier_as_textbook_arithmetic_says() -> None:
    vector = load("paillier")
    p, q, field = vector["p"], vector["q"], vector["field"]
    n, n2 = p * q, (p * q) ** 2
    assert unhex(vector["n"]) == n.to_bytes(64, "little")
    x = int.from_bytes(hashlib.shake_256(b"secea paillier h" + unhex(vector["n"])).digest((512 + 128) // 8), "little")
    assert vector["h_n"] == pow(-x * x, n, n2)
    width, slots = vector["width"], vector["slots"]
    assert width == (field * (field + (field << vector["sigma"]))).bit_length()
    assert slots == 511 // width

    def packed(rows: list[list[int]]) -> list[int]:
        return [
            sum(x << (width * i) for i, x in enumerate(row[at : at + slots]))
            for row in rows
            for at in range(0, len(row), slots)
        ]

    assert vector["plaintexts"] == packed(vector["answers"])
    count, each = len(vector["plaintexts"]), len(vector["plaintexts"]) // len(vector["r"])
    short = chunks_of(unhex(vector["short_exponents"]), len(vector["short_exponents"]) // 2 // count)
    full = chunks_of(unhex(vector["full_exponents"]), len(vector["full_exponents"]) // 2 // count)
    sent = [(1 + m * n) * pow(vector["h_n"], x, n2) % n2 for m, x in zip(vector["plaintexts"], short, strict=True)]
    assert chunks_of(unhex(vector["encrypted"]), 128) == sent
    masked = [
        oracle.add(oracle.times(c, vector["r"][i // each], n), (1 + m * n) * pow(vector["h_n"], x, n2), n)
        for i, (c, m, x) in enumerate(zip(sent, vector["noise"], full, strict=True))
    ]
    assert chunks_of(unhex(vector["masked"]), 128) == masked
    lam = math.lcm(p - 1, q - 1)
    secret = oracle.SecretKey(n, lam, pow(lam, -1, n))
    assert vector["decrypted"] == [oracle.decrypt(c, secret) for c in masked]
    # Over the integers, slot by slot: r*A + psi + field*R, and R stays in its range.
    for i, row in enumerate(vector["answers"]):
        for j, answer in enumerate(row):
            plaintext = vector["decrypted"][i * each + j // slots]
            slot = plaintext >> (width * (j % slots)) & ((1 << width) - 1)
            R, rest = divmod(slot - vector["r"][i] * answer - vector["psi"][i][j], field)
            assert rest == 0
            assert 0 <= R < field << vector["sigma"]
            expected = (vector["r"][i] * answer + vector["psi"][i][j]) % field
            assert vector["unpacked"][i][j] == expected
    stated = {(w["bits"], w["sigma"]): (w["width"], w["slots"]) for w in vector["widths"]}
    assert stated == {(2048, 40): (163, 12), (3072, 40): (163, 18), (2048, 64): (186, 11), (3072, 64): (186, 16)}


# --------------------------------------------------------------------------------------------- consumed: transcripts


def test_the_means_of_the_transcript_are_the_means_of_its_tables() -> None:
    vector = load("transcript-paillier")
    tables: list[dict[Any, list[float]]] = [{}, {}, {}]
    for row in vector["table"]:
        tables[row["client"]][row["name"]] = floats(row["embedding"])
    exact = oracle.mean(tables)
    assert len(vector["tags"]) == len(exact)
    found = {(m["client"], m["name"]): floats(m["mean"]) for m in vector["mean"]}
    assert found.keys() == {(n, name) for n, table in enumerate(tables) for name in table}
    for (_, name), mean in found.items():
        assert max(abs(a - b) for a, b in zip(mean, exact[name], strict=True)) <= 64 * 2**-24


def test_the_transcript_relays_what_clients_sent_and_nothing_else() -> None:
    messages = load("transcript-paillier")["message"]
    up = {message["sha256"]: message for message in messages if message["taken_by"] == SERVER}
    for message in messages:
        assert message["carrier"] == (message["sender"] if message["taken_by"] == SERVER else SERVER)
        if message["taken_by"] != SERVER and message["sender"] != SERVER:
            assert {k: v for k, v in up[message["sha256"]].items() if k not in ("place", "carrier", "taken_by")} == {
                k: v for k, v in message.items() if k not in ("place", "carrier", "taken_by")
            }
    sealed = [m for m in messages if m["carrier"] == m["sender"] and not (m["kind"] == Kind.HELLO and m["epoch"] == 0)]
    labels = [(m["sender"], m["receiver"], m["kind"], m["sequence"], m["salt"], m["chunk"]) for m in sealed]
    assert len(set(labels)) == len(labels)


def test_todays_parties_say_all_of_the_transcript_and_only_hellos_at_another_time() -> None:
    """The first announcement follows the hellos of those whom it names; answers of several clients take turns."""
    messages = load("transcript-paillier")["message"]
    places = {(m["carrier"], m["taken_by"], m["sha256"]): m["place"] for m in messages}
    said: list[tuple[int, int, str]] = []

    def tap(sender: int, receiver: int, message: Buffer) -> Iterable[Buffer]:
        said.append((sender, receiver, hashlib.sha256(message).hexdigest()))
        return (message,)

    parties = recorded.federation(tap)
    parties.setup()
    parties.round(recorded.tables())
    moved = ("greeting announcement to a client", "answer to the server", "mean to a client")
    assert sorted(said) == sorted(places)
    assert [each for each in said if places[each] not in moved] == [x for x in places if places[x] not in moved]
    for n in (0, 1, 2):
        assert [each for each in said if each[0] == n] == [each for each in places if each[0] == n]
        got = [places[each] for each in said if each[1] == n]
        assert got[:4] == ["server's hello to a client", "hello to a client", "hello to a client", moved[0]]
    assert [places[each] for each in said[-12:]] == [moved[1]] * 9 + [moved[2]] * 3


# ------------------------------------------------------------------------------------------------- negative vectors


def changed(parties: Parties, hop: Hop, how: str, what: Any) -> Hop:
    """The change of a negative vector, carried out (vectors/negative.py lists them)."""
    message, hops = hop.message, recorded.recorded()[1]
    match how, what:
        case "xor", [at, bits]:
            at %= len(message)
            return replace(hop, message=message[:at] + bytes([message[at] ^ bits]) + message[at + 1 :])
        case "put", [at, hexed]:
            return replace(hop, message=put(message, at, unhex(hexed)))
        case "truncate", size:
            assert size < len(message)
            return replace(hop, message=message[:size])
        case "append", hexed:
            return replace(hop, message=message + unhex(hexed))
        case "header", fields:
            return replace(hop, message=replace(hop.header, **label(fields)).pack() + message[HEADER_BYTES:])
        case "body_of", number:
            return replace(hop, message=message[:HEADER_BYTES] + hops[number].message[HEADER_BYTES:])
        case "replay", number:
            return hops[int(number)]
        case "carrier", number:
            return replace(hop, sender=number)
        case "taken_by", number:
            return replace(hop, receiver=number)
        case "again", True:
            return hop
        case "sign", fields:
            link = (parties.server if hop.header.sender == SERVER else parties.clients[hop.header.sender]).link
            given = {"extra" if name == "paillier" else name: unhex(value) for name, value in fields.items()}
            hello = replace(link.hello, **given)
            hello = Hello.make(link.identity, link.number, hello.session, hello.incarnation, hello.public, hello.extra)
            return replace(hop, message=replace(hop.header, salt=hello.incarnation).pack() + hello.to_bytes())
        case "reseal", fields:
            return recorded.resealed(parties, hop, **label(fields))
        case "payload", [at, hexed]:
            payload = recorded.opened(parties, hop)
            return recorded.resealed(parties, hop, put(payload, at % len(payload), unhex(hexed)))
        case "payload_size", size:
            payload = recorded.opened(parties, hop)
            size = size if size >= 0 else len(payload) + size
            return recorded.resealed(parties, hop, payload[:size].ljust(size, b"\0"))
        case _:
            raise AssertionError(f"no such change: {how} {what}")


def put(data: bytes, at: int, new: bytes) -> bytes:
    assert at + len(new) <= len(data)
    assert data[at : at + len(new)] != new, "the change changes nothing"
    return data[:at] + new + data[at + len(new) :]


def label(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields of a header, as JSON has them."""
    kinds = {"kind": Kind, "context": unhex, "salt": unhex}
    return {name: kinds.get(name, int)(value) for name, value in fields.items()}


Case = dict[str, Any]


class Spoiled(Exception):
    """A party has stopped: what is left is tried in another run."""


def tried(parties: Parties, case: Case) -> list[str]:
    """Hand over what a case says; what went otherwise."""
    ((how, what),) = case["change"].items()
    hop = changed(parties, recorded.recorded()[1][case["message"]], how, what)
    party = parties.server if hop.receiver == SERVER else parties.clients[hop.receiver]
    before = party.at, party.save()
    receive = party.receive if isinstance(party, Client) else partial(party.receive, hop.sender)
    with pytest.raises(ProtocolError) as caught:
        receive(hop.message)
    error, wrong = caught.value, []
    if (type(error).__name__, list(error.suspects)) != (case["error"], case["suspects"]):
        wrong.append(f"{type(error).__name__} {list(error.suspects)}: {error}")
    if case["stops"] != (isinstance(party, Client) and party.vouched):
        wrong.append("whether it stops")
    if party.at.phase == STOPPED:
        assert case["stops"], wrong
    elif (party.at, party.save()) != before:
        wrong.append(f"the state {party}")
    return [f"{case['place']}, {case['fault']}: {each}" for each in wrong]


def replayed(cases: Iterable[Case]) -> list[str]:
    """The recorded federation once more, with the faults tried where they belong; what went otherwise.

    It runs to its end with the right means, and once more for each fault at which a party stops by itself.
    """
    left, wrong = list(cases), list[str]()
    numbers = {(hop.sender, hop.receiver, hop.message): n for n, hop in enumerate(recorded.recorded()[1])}

    def attempt() -> None:
        before = -1  # the message that was taken last

        def tap(sender: int, receiver: int, message: Buffer) -> Iterable[Buffer]:
            nonlocal before
            number = numbers[sender, receiver, bytes(message)]
            for case in [each for each in left if each["message"] == (before if "again" in each["change"] else number)]:
                wrong.extend(tried(parties, case))
                left.remove(case)
                if any(client.at.phase == STOPPED for client in parties.clients.values()):
                    raise Spoiled
            before = number
            return (message,)

        parties = recorded.federation(tap)
        parties.setup()
        parties.round(recorded.tables())
        means = {(m["client"], m["name"]): floats(m["mean"]) for m in load("transcript-paillier")["mean"]}
        assert {(n, name): row.tolist() for n in (0, 1, 2) for name, row in recorded.means(parties, n)} == means

    while True:
        with suppress(Spoiled):
            attempt()
            assert not left
            return wrong


def test_every_fault_is_refused_with_the_stated_error_and_blame_and_changes_nothing() -> None:
    wrong = replayed(load("negative")["case"])
    assert not wrong, "\n".join(wrong)


def test_negative_vectors_name_every_place_that_can_be_wrong_and_no_fault_twice() -> None:
    cases = load("negative")["case"]
    names = [(case["place"], case["fault"]) for case in cases]
    assert len(set(names)) == len(names)
    seeds = {place for place in recorded.PLACES if "seed" in place}  # the same code as for shares
    assert {case["place"] for case in cases} | seeds == set(recorded.PLACES)
    assert {case["error"] for case in cases} == {"ProtocolError", "FaultyPeer", "FaultyPeerOrRelay", "Stale"}
    assert all(issubclass(getattr(errors, case["error"]), ProtocolError) for case in cases)
    assert {case["stops"] for case in cases if case["place"].endswith("to the server")} == {False}


def test_the_replay_notices_a_wrong_blame_and_a_fault_that_is_none() -> None:
    case = next(c for c in load("negative")["case"] if c["fault"] == "unsigned")
    assert not replayed([case])
    assert replayed([case | {"suspects": [2]}])
    assert replayed([case | {"error": "FaultyPeerOrRelay"}])
    assert replayed([case | {"stops": True}])
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        replayed([case | {"change": {"taken_by": SERVER}}])  # the honest message, and no fault
