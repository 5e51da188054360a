"""Habits that keep secrets secret, checked on the source and on running federations. Each rule is shown to object."""

from __future__ import annotations

import ast
import base64
import hashlib
import itertools
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

import secea
from secea import Client, Federation, Params, Server
from secea.audit.texts import Secrets, error_texts, reachable
from secea.errors import SERVER, ProtocolError, RoundLost, SecEAError
from secea.forms import NAMES, FormName, form_of
from secea.forms.paillier.client import Epoch, PaillierClient
from secea.steps import union as union_module
from secea.testing import Parties
from secea.wire import keys as keys_module
from secea.wire.keys import Channel, Identity, Sealer, SessionKey
from secea.wire.link import Link
from secea.wire.messages import ALL, HEADER_BYTES, Buffer, Header
from secea.wire.randomness import KeyStream

SOURCE: Final = Path(secea.__file__).parent
MODULES: Final = {path.relative_to(SOURCE).as_posix(): path.read_text() for path in sorted(SOURCE.rglob("*.py"))}
Rule = Callable[[ast.Module], Iterator[ast.AST]]


parsed = cache(ast.parse)


def findings(rule: Rule, modules: dict[str, str]) -> set[tuple[str, str]]:
    """(module, source) of everything that a rule objects to."""
    return {(name, ast.unparse(node)) for name, text in modules.items() for node in rule(parsed(text))}


def dotted(node: ast.AST) -> str:
    """`a.b.c` for a chain of attributes, "" for anything else."""
    match node:
        case ast.Name(name):
            return name
        case ast.Attribute(value, name):
            return f"{dotted(value)}.{name}"
        case _:
            return ""


def imported(tree: ast.Module, modules: Iterable[str]) -> Iterator[ast.AST]:
    """Imports of these modules, or from them."""
    wanted = re.compile("|".join(rf"{re.escape(name)}(\.|$)" for name in modules))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and any(wanted.match(alias.name) for alias in node.names):
            yield node
        if isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
            if any(map(wanted.match, names)):
                yield node


def mentioned(tree: ast.Module, pattern: str) -> Iterator[ast.AST]:
    """Names and attributes, with dots, that match a pattern."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and re.fullmatch(pattern, dotted(node)):
            yield node


# ------------------------------------------------------------------------------------------------------- randomness


def weak_randomness(tree: ast.Module) -> Iterator[ast.AST]:
    """Generators that are not for secrets."""
    yield from imported(tree, ["random", "numpy.random"])
    yield from mentioned(tree, r"(np|numpy)\.random(\.\w+)*|uuid\.\w+")


PUBLIC_INPUTS: Final = re.compile(r"demo/.*|commands/estimate\.py|audit/.*|learn/(splits|social)\.py")
"""Modules that make up embeddings, or deal out data: public, no secrets."""


def system_randomness(tree: ast.Module) -> Iterator[ast.AST]:
    """Randomness of the operating system: the state machines take it as an argument."""
    yield from imported(tree, ["secrets", "ssl"])
    yield from mentioned(tree, r"(os\.)?(urandom|getrandom)|secrets\.\w+|(random\.)?SystemRandom")


ENTROPY: Final = {
    "party/client.py", "party/server.py", "wire/keys.py", "arithmetic/paillier.py", "engines/federation.py",
    "engines/store.py", "demo/guide.py", "oracles/paillier.py", "privacy.py", "learn/noise.py", "testing.py",
}  # fmt: skip
"""Modules that name the default source; all but demo and oracle only as the default of an argument."""


TLS: Final = {"engines/health/reach.py"}
"""Modules that speak an engine's TLS, to see who answers: no secret of ours comes from there."""


def beside_defaults(tree: ast.Module) -> Iterator[ast.AST]:
    """System randomness anywhere but as the default of an argument."""
    defaults = {
        id(each)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        for default in (*node.args.defaults, *node.args.kw_defaults)
        if default is not None
        for each in ast.walk(default)
    }
    yield from (node for node in system_randomness(tree) if id(node) not in defaults)


def test_secrets_come_from_no_generator_that_is_not_for_them() -> None:
    assert {name for name, _ in findings(weak_randomness, MODULES) if not PUBLIC_INPUTS.fullmatch(name)} == set()
    for bad in ("import random", "from numpy import random", "import numpy as np\nx = np.random.default_rng(1)",
                "from numpy.random import Generator", "from random import randrange"):  # fmt: skip
        assert findings(weak_randomness, {"bad.py": bad}), bad


def test_the_systems_randomness_is_a_default_and_otherwise_passed_in() -> None:
    used = {name for name, _ in findings(system_randomness, MODULES)}
    assert {name for name in used if not name.startswith("audit/")} == ENTROPY | TLS
    aside = {name for name, _ in findings(beside_defaults, MODULES)}
    assert {name for name in aside if not name.startswith("audit/")} == {"demo/guide.py", "oracles/paillier.py"} | TLS
    for bad in ("import os\nx = os.urandom(8)", "from os import urandom\nurandom(3)", "import secrets"):
        assert findings(beside_defaults, {"bad.py": bad}), bad
    assert not findings(beside_defaults, {"good.py": "import os\ndef f(entropy=os.urandom): return entropy(3)"})


# ------------------------------------------------------------------------------------------- comparisons of secrets

SECRET_WORDS: Final = {
    "secret", "seed", "key", "proof", "confirmation", "tag", "part", "pad", "mask", "prime", "password", "mac",
    "identity", "stream", "paillier",
}  # fmt: skip
"""Words in names of what must not be compared byte by byte."""


def terminal(node: ast.AST) -> str:
    """The name by which a value goes: of a variable, a field, what is indexed, or what a call gives. No constants."""
    match node:
        case ast.Name(name) | ast.Attribute(_, name):
            return "" if name.isupper() else name
        case ast.Subscript(value, _) | ast.Call(value) | ast.Starred(value):
            return terminal(value)
        case _:
            return ""


def secret_comparisons(tree: ast.Module) -> Iterator[ast.AST]:
    """`==`, `!=` and `in` with a value on either side that sounds secret."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and any(
            isinstance(op, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for op in node.ops
        ):
            sides = [node.left, *node.comparators]
            sides += [each for side in sides if isinstance(side, ast.Tuple | ast.List | ast.Set) for each in side.elts]
            if SECRET_WORDS & {word for side in sides for word in terminal(side).lower().split("_")}:
                yield node


NOT_SECRET: Final = {
    ("wire/link.py", "identity.public != roster.key(number)"),  # public keys
    ("party/client.py", "identity.public != session.roster.key(number)"),
    ("forms/keyed/handover.py", "roster.key(i) != keys[n]"),
    ("forms/keyed/handover.py", "roster.key(i) in keys[:N]"),
    ("engines/flower.py", "key not in self._common"),  # which messages go to several
    ("report/sections.py", "part not in small"),  # names of parts of a chart
    ("report/runs.py", "part in cpu"),
    ("oracles/keyed.py", "secret in own"),  # the oracle knows everything
    ("testing.py", "key in more"),  # names of arguments
}
"""Comparisons of public values with names that sound otherwise."""


def test_secrets_are_compared_in_constant_time_only() -> None:
    parties = {name: text for name, text in MODULES.items() if not name.startswith("audit/")}  # it has all secrets
    assert findings(secret_comparisons, parties) == NOT_SECRET
    for bad in ("if proof == theirs: pass", "if opened.payload[1:] != self.wire.confirmation(1, 2, c): pass",
                "ok = stage.seed == seed", "ok = given in (self._pair_key, b'')", "a = x.secret != y"):  # fmt: skip
        assert findings(secret_comparisons, {"bad.py": bad}), bad
    for good in ("hmac.compare_digest(proof, theirs)", "len(key) == 32", "if header.kind == kind: pass"):
        assert not findings(secret_comparisons, {"good.py": good}), good
    # The product's own comparisons, made otherwise: the rule sees each of them.
    constant = re.compile(r"hmac\.compare_digest\((.+), (\w[\w.]*)\)")
    name = "forms/paillier/client.py"
    broken, count = constant.subn(r"(\1 == \2)", MODULES[name])
    assert count == len(findings(secret_comparisons, {name: broken})) > 1


# ---------------------------------------------------------------------------------------------- input and output

OUTSIDE: Final = (
    "socket", "selectors", "asyncio", "http", "urllib", "subprocess", "multiprocessing", "pathlib", "shutil",
    "tempfile", "io", "time", "datetime", "logging", "warnings", "pickle", "shelve", "sqlite3",
)  # fmt: skip
ENGINES: Final = re.compile(
    r"engines/.*|cli\.py|commands/.*|demo/.*|audit/.*|learn/.*|report/.*|adapters/torch\.py"
    r"|arithmetic/_kernels/build\.py|arrays\.py|atomic\.py"
    r"|__init__\.py|extras\.py"  # they warn of slow loops, and look where the package came from
)


def outside(tree: ast.Module) -> Iterator[ast.AST]:
    """Files, sockets, clocks, logs and standard streams."""
    yield from imported(tree, OUTSIDE)
    yield from mentioned(tree, r"print|open|input|eval|exec|breakpoint|sys\.(stdout|stderr|stdin)|os\.(environ|getenv)")


def test_only_engines_and_programs_touch_files_sockets_clocks_and_logs() -> None:
    assert {name for name, _ in findings(outside, MODULES) if not ENGINES.fullmatch(name)} == set()
    for bad in ("import time", "from time import time", "print(key)", "import logging", "with open('x') as f: pass",
                "import sys\nsys.stderr.write(secret)", "import asyncio.streams"):  # fmt: skip
        assert findings(outside, {"bad.py": bad}), bad


# ----------------------------------------------------------------------------------------- secrets in texts, running


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> Secrets:
    """Records keys where they are made, and the beginning of each key stream."""
    found, streams = Secrets(), itertools.count()

    class Derived:
        """Every key but the pair key comes from here."""

        def __init__(self, algorithm: Any, length: int, info: bytes) -> None:
            self._what, self._hkdf = info.split(b"\n")[0].decode(), original_hkdf(algorithm, length, info)

        def derive(self, key_material: bytes) -> bytes:
            key = self._hkdf.derive(key_material)
            found.add(f"key: {self._what}", key)
            return key

    def fill(self: KeyStream, out: memoryview) -> None:
        original_fill(self, out)
        if len(out) >= 64 and next(streams) < 500:  # more would take long to look for
            found.add("key stream", bytes(out[:16]))

    original_fill, original_hkdf = KeyStream.fill, HKDFExpand
    monkeypatch.setattr(keys_module, "HKDFExpand", Derived)
    monkeypatch.setattr(KeyStream, "fill", fill)
    return found


SMALL: Final[dict[str, Any]] = {"key_bits": 256, "insecure_small_keys": True}
TABLES: Final = [
    {f"entity {i}": np.array([i / 7, -n / 3]) for i in range(5) if (i + n) % 3} for n in range(4)
]  # fmt: skip


def parties_of(form: str, found: Secrets) -> Parties:
    return Parties.of(TABLES, form_of(form), entropy=found.drawn, collusion=1, dropouts=1, **SMALL)


def held(parties: Parties, found: Secrets) -> None:
    """The secrets that the parties hold now."""
    for n, identity in parties.identities.items():
        found.add("identity", identity.secret)
        link = (parties.server if n == SERVER else parties.clients[n]).link
        found.add("session key", link._key.secret)
        for channel in link.channels.values():
            found.add("pair key", channel._pair_key)
    for client in parties.clients.values():
        if isinstance(client.part, PaillierClient):
            if client.part.epoch is not None:
                found.add("shared secret", client.part.epoch.secret)
            for prime in (client.part.key.p, client.part.key.q):
                found.add("Paillier prime", int(prime).to_bytes(16, "little"))
                found.add("Paillier prime", int(prime).to_bytes(16, "big"))


def shown(parties: Parties, *more: object) -> Iterator[str]:
    """What a debugger, a log or a traceback shows of the parties."""
    for thing in reachable(
        parties.clients, parties.server, parties.session, parties.identities, *more, without=(Parties,)
    ):
        yield f"{thing!r} {thing!s} {thing:}"


def wrong_messages(parties: Parties, who: Client | Server, message: bytes) -> Iterator[bytes]:
    """A few faults: damaged, strange, and authentic with another label."""
    yield message[:40]
    yield message[:-1]
    yield b"\2" + message[1:]
    header = Header.parse(message, SERVER, parties.session.form.kinds)
    if header.receiver in (ALL, who.link.number):  # the server passes on what it cannot read
        yield message[:-1] + bytes([message[-1] ^ 1])
    sender = parties.server.link if header.sender == SERVER else parties.clients[header.sender].link
    if header.receiver != ALL and who.link.number in sender.channels:
        label = replace(header, epoch=9, receiver=who.link.number)
        yield bytes(sender.sealer(label, who.link.number, header.chunks).seal(0, message[HEADER_BYTES:]))


def texts_of_a_run(parties: Parties, found: Secrets) -> list[str]:
    """A set-up, a round and what goes wrong in them: everything that can be read without looking for it."""
    texts, seen = list[str](), set[tuple[object, bool]]()

    def tap(sender: int, receiver: int, message: Buffer) -> Iterable[Buffer]:
        place = Header.parse(message, sender, parties.session.form.kinds).kind, receiver == SERVER
        if place not in seen:
            seen.add(place)
            held(parties, found)
            texts.extend(shown(parties))
            who = parties.server if receiver == SERVER else parties.clients[receiver]
            for wrong in wrong_messages(parties, who, bytes(message)):
                with pytest.raises(ProtocolError) as caught:
                    who.receive(sender, wrong) if isinstance(who, Server) else who.receive(wrong)
                texts.extend(error_texts(caught.value))
        return (message,)

    parties.exchange.tap = tap
    parties.setup()
    parties.round(TABLES)
    assert len(seen) > 10
    for mistake in mistakes(parties):
        with pytest.raises(SecEAError) as caught:
            mistake()
        texts.extend(error_texts(caught.value))
    texts.extend(shown(parties))
    return texts


def mistakes(parties: Parties) -> Iterator[Callable[[], object]]:
    """Calls that are refused."""
    client, saved = parties.clients[0], parties.clients[0].save()
    yield lambda: client.contribute({}, 2)
    yield lambda: client.part.checked({"entity 1": [1.0, 2.0], "stranger": [0.0, 1.0]})
    yield lambda: Client.restore(parties.session, parties.identities[1], saved)
    yield lambda: Client.restore(parties.session, parties.identities[0], saved[:-1])
    yield lambda: Server.restore(parties.session, parties.identities[SERVER], saved)
    yield lambda: Client(parties.session, 1, parties.identities[0], [])
    yield lambda: parties.server.begin(parties.session.form.round_phase, [0])
    yield lambda: Identity(parties.identities[0].secret + b"\0")


KINDS_OF_SECRETS: Final = {
    "identity", "session key", "pair key", "drawn", "key stream", "key: secea seal", "key: secea mask",
}  # fmt: skip
OF_A_FORM: Final = {
    "paillier": {"shared secret", "Paillier prime", "key: secea confirm", "key: secea share", "key: secea tags"},
    "keyed": {"key: secea tags"},
}


@pytest.mark.parametrize("form", NAMES)
def test_no_text_shows_a_secret(
    form: str, secrets: Secrets, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    texts = texts_of_a_run(parties_of(form, secrets), secrets)
    assert set(secrets.seen.values()) >= KINDS_OF_SECRETS | OF_A_FORM[form]
    assert len(texts) > 500
    assert secrets.leaks(texts) == set()
    assert not caplog.records
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("form", NAMES)
def test_nothing_that_a_federation_in_one_process_shows_is_secret(form: FormName, secrets: Secrets) -> None:
    fed = eventful(form)
    for n, identity in fed._identities.items():
        secrets.add("identity", identity.secret)
        secrets.add("session key", (fed.server if n == SERVER else fed.clients[n]).link._key.secret)
    things = list(reachable(fed))
    assert {Federation, Client, Server, Identity, Channel} <= {type(thing) for thing in things}
    assert secrets.leaks(f"{thing!r} {thing!s}" for thing in things) == set()


def test_the_search_for_secrets_finds_them_in_every_form() -> None:
    secret, found = bytes(range(200, 232)), Secrets()
    found.add("it", secret)
    for text in (
        repr(secret), secret.hex(), secret.hex(" "), base64.b64encode(secret).decode(),
        base64.b64encode(b"x" + secret).decode(), base64.b64encode(b"xy" + secret + b"z").decode(),
        str(int.from_bytes(secret[:16], "little")), str(int.from_bytes(secret[:16], "big")), str(list(secret)),
        secret.decode("latin1").encode("latin1").decode(errors="surrogateescape"),
    ):  # fmt: skip
        assert found.leaks([f"<{text}>"]) == {"it"}, text
    assert not found.leaks(["nothing here", repr(secret[::-1])])


def confirmed(link: Link, n: int) -> str:
    return link.channels[n].derive("confirm", b"").hex() if n in link.channels else ""


MUTANTS: Final[dict[str, Callable[[pytest.MonkeyPatch], None]]] = {
    "identity": lambda patch: patch.setattr(Identity, "__repr__", lambda self: f"Identity({self.secret.hex()})"),
    "session key": lambda patch: patch.setattr(SessionKey, "__repr__", lambda self: f"SessionKey({self.secret!r})"),
    "pair key": lambda patch: patch.setattr(Channel, "__repr__", lambda self: str(list(self._pair_key))),
    "drawn": lambda patch: patch.setattr(Epoch, "__str__", lambda self: base64.b64encode(self.seed).decode()),
    "shared secret": lambda patch: patch.setattr(
        Epoch, "__repr__", lambda self: str(int.from_bytes(self.secret[:16], "big"))
    ),
    "key: secea confirm": lambda patch: patch.setattr(  # in an error, not in a repr
        Link, "unauthentic", lambda self, n, fault: ProtocolError((n,), f"{fault} {confirmed(self, n)}")
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", MUTANTS)
def test_the_search_objects_to_a_secret_that_is_shown(
    what: str, secrets: Secrets, monkeypatch: pytest.MonkeyPatch
) -> None:
    MUTANTS[what](monkeypatch)
    texts = texts_of_a_run(parties_of("paillier", secrets), secrets)
    assert what in secrets.leaks(texts)


# ----------------------------------------------------------------------------------------------- no key used twice


class Reuse(AssertionError):
    """A key hid two different things."""


@dataclass
class KeysUsed:
    """What each key hid: at one end of a channel, under one number of a chunk, always the same bytes."""

    hidden: dict[tuple[object, ...], bytes] = field(default_factory=dict)

    def hide(self, what: str, key: bytes, where: int, data: Buffer) -> None:
        seen = self.hidden.setdefault((what, key, where), hashlib.sha256(data).digest())
        if seen != hashlib.sha256(data).digest():
            raise Reuse(f"{what}: one key hid two different things")

    def count(self, what: str) -> int:
        return sum(1 for name, *_ in self.hidden if name == what)


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> KeysUsed:
    """Records what is sealed and masked with keys that two parties share."""
    record = KeysUsed()
    init, seal, mask = Sealer.__init__, Sealer.seal, union_module.mask
    keys_of: dict[int, bytes] = {}
    alive: list[Sealer] = []  # so that no number stands for two of them

    def sealer(self: Sealer, key: bytes, header: Header) -> None:
        init(self, key, header)
        alive.append(self)
        keys_of[id(self)] = key

    def sealed(self: Sealer, chunk: int, *payload: Buffer) -> memoryview:
        message = seal(self, chunk, *payload)
        record.hide("seal", keys_of[id(self)], chunk, message)
        return message

    def masked(table: Any, me: int, streams: Iterable[tuple[int, KeyStream]], *ring: Any) -> Any:
        listed = list(streams)
        result = mask(table, me, listed, *ring)
        for _, stream in listed:
            record.hide(f"mask of client {me}", stream._key, 0, np.ascontiguousarray(result).data.cast("B"))
        return result

    monkeypatch.setattr(Sealer, "__init__", sealer)
    monkeypatch.setattr(Sealer, "seal", sealed)
    monkeypatch.setattr(union_module, "mask", masked)
    return record


def eventful(form: FormName) -> Federation:
    """A federation with losses, restarts, a round that is lost, and changed entities."""
    sets = [[f"e{i}" for i in range(6) if (i + n) % 3] for n in range(4)]
    params = Params(4, dim=2, collusion=1, dropouts=1, max_entities=6, max_union=9, **SMALL)
    fed, rng = Federation(params, form), np.random.default_rng(7)

    def tables(*absent: int) -> list[dict[str, Any] | None]:
        return [None if n in absent else {name: rng.uniform(-1, 1, 2) for name in own} for n, own in enumerate(sets)]

    fed.setup(sets)
    fed.prepare()
    fed.round(tables())
    fed.round(tables(), vanish=[2])
    fed.round(tables(3))
    with pytest.raises(RoundLost):
        fed.round(tables(), vanish=[0, 1, 2])
    fed.restart()
    fed.round(tables())
    sets[1] = ["e0", "new"]
    fed.update(1, sets[1])
    fed.prepare()
    fed.restart(0, SERVER)
    fed.round(tables())
    return fed


@pytest.mark.parametrize("form", NAMES)
def test_no_key_hides_two_things_whoever_is_lost_restarted_or_changed(form: FormName, used: KeysUsed) -> None:
    eventful(form)
    assert used.count("seal") > 300
    masked = [used.count(f"mask of client {n}") > 8 for n in range(4)]
    assert masked == [form == "paillier"] * 4  # the keyed form's masks have a ledger of their own: test_keyed_lives.py
    by_purpose: dict[object, set[object]] = {}
    for what, key, _ in used.hidden:
        by_purpose.setdefault(str(what).split(" of ")[0], set()).add(key)
    assert sum(map(len, by_purpose.values())) == len(set().union(*by_purpose.values()))  # none serves two purposes


@pytest.mark.parametrize("purpose", ["seal", "mask"])
def test_the_record_objects_where_a_label_is_left_out_of_a_key(
    purpose: str, used: KeysUsed, monkeypatch: pytest.MonkeyPatch
) -> None:
    derive = Channel.derive

    def unlabelled(self: Channel, what: str, label: bytes) -> bytes:
        return derive(self, what, b"" if what == purpose else label)

    monkeypatch.setattr(Channel, "derive", unlabelled)
    with pytest.raises(Reuse, match=purpose):
        eventful("paillier")
