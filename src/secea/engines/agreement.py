"""The federation file as TOML: a policy that people can read, with a word on each line, and who takes part."""

from __future__ import annotations

import json
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from typing import Any, Final, cast

from secea.errors import ParamsError
from secea.forms import FORMS, options_of
from secea.params import Params
from secea.party.session import Session

ABOUT: Final = {
    "form": "the protocol: keyed, or paillier, which is the paper's",
    "collusion": "T: so many clients may conspire; with the server too, in the form keyed",
    "dropouts": "D: so many clients may vanish in the middle of a round",
    "min_owners": "no mean for an entity that fewer clients contribute to; 1: no minimum",
    "max_weight": "the largest weight of a row; without this line all rows weigh the same",
    "partial": "if true, rows may be left out of a round, and all see which slots nobody gave",
    "noise": "standard deviation of the noise on the sum of an entity's rows; 0: none",
    "rounds": "the most rounds of a session, for which sigma is promised",
    "sigma": "statistical security of all rounds together, in bits",
    "dim": "numbers in an embedding",
    "max_abs": "every number lies between minus this and this",
    "precision": "bits: a mean is exact to within max_abs / 2^precision",
    "max_entities": "the most entities of one client",
    "max_union": "the most entities of all clients together",
    "normalize": "how names are made alike before they are compared: nfc, strip, casefold; []: not at all",
    "min_participants": "no round with fewer clients; without this line the form chooses",
    "max_new_entities": "the most new names of a client at one time; without this line a tenth of max_entities",
    "max_updates": "how often new names may come in a session",
    "batch": "rounds for which masks are made ahead; without drop-outs it has no effect",
    "key_bits": "the length of keys in the form paillier",
    "insecure_small_keys": "if true, such keys may be short: for tests alone",
    "queries": "how clients ask: buckets, or full, as in the paper",
}
"""What each line of the policy means. The order is that of the file; what is missing here comes last."""
VERSION: Final = 1
HEAD: Final = """\
# The federation file: what all parties agree on. Nothing in it is secret, and all have the same.
#
# Compare the fingerprint with the others over another channel, such as a telephone call, before you start.
# It covers every line below, but no comment. `secea plan --policy` with this file says what the policy means.
# Do not edit a line: the file is refused then. `secea roster` makes a new one.
"""


def as_toml(session: Session, fingerprints: Mapping[bytes, str]) -> str:
    """The content of the file. `fingerprints` has that of each key, for people."""
    roster = session.roster
    lines = [HEAD, f"secea = {VERSION}", f"fingerprint = {written(session.fingerprint)}", "", "[policy]"]
    lines += _policy(session)
    lines += ["", "[server]", _key(roster.server, fingerprints)]
    for name, key in zip(roster.names, roster.clients, strict=True):
        lines += ["", "[[clients]]", f"name = {written(name)}", _key(key, fingerprints)]
    return "\n".join(lines) + "\n"


def _key(key: bytes, fingerprints: Mapping[bytes, str]) -> str:
    return f"# fingerprint: {fingerprints[key]}\nkey = {written(key.hex())}"


def policy_lines(session: Session) -> list[str]:
    """The policy as the file has it: a line for each value, with its meaning."""
    return list(_policy(session))


def _policy(session: Session) -> Iterator[str]:
    """A line for each choice. What is not chosen is a comment."""
    values = {"form": session.form.name} | asdict(session.params) | asdict(cast(Any, session.form))
    del values["clients"]  # so many are listed
    lines = [(name, values.pop(name)) for name in ABOUT if name in values] + list(values.items())
    width = max(len(f"{name} = {written(value)}") for name, value in lines if value is not None)
    for name, value in lines:
        about = ABOUT.get(name, "")
        if value is None:
            yield from textwrap.wrap(f"{name}: {about}", 110, initial_indent="# ", subsequent_indent="# ")
        else:
            yield f"{f'{name} = {written(value)}':<{width}}  # {about}" if about else f"{name} = {written(value)}"


def written(value: object) -> str:
    """A value in TOML: a truth value, a number, texts in which everything that cannot be seen is spelled out."""
    match value:
        case bool():
            return str(value).lower()
        case int() | float():
            return repr(value)
        case str():
            return f'"{"".join(map(_character, value))}"'
        case list() | tuple():
            return f"[{', '.join(map(written, value))}]"
    raise ParamsError(f"{value!r} cannot be written into a federation file: choose a number, a text or texts")


def _character(c: str) -> str:
    if 0xD800 <= ord(c) < 0xE000:
        raise ParamsError(f"a name holds the lone surrogate {c!r}, which is no text: choose another name")
    if c in '"\\':
        return f"\\{c}"
    return c if c.isprintable() else f"\\U{ord(c):08x}"


def from_toml(data: bytes) -> dict[str, Any]:
    """What the file says, as JSON would have it: `params`, `form`, `options`, `server`, `clients`, `fingerprint`."""
    text = tomllib.loads(data.decode())
    _only(text, "the file", ("secea", "fingerprint", "policy", "server", "clients"))
    if text["secea"] != VERSION:
        raise ValueError(f"it is of version {text['secea']!r}, and this secea reads version {VERSION}")
    _only(text["server"], "the server", ("key",))
    for client in text["clients"]:
        _only(client, "a client", ("name", "key"))
    policy = dict(text["policy"])
    form = policy.pop("form")
    options = options_of(form) if form in FORMS else tuple(policy)
    known = [each.name for each in fields(Params) if each.name != "clients"]
    _only(policy, "the policy", (*known, *options), optional=True)
    if missing := {"dim", "max_entities", "max_union"} - policy.keys():
        raise ValueError(f"the policy lacks {min(missing)}")
    chosen = {name: policy.pop(name) for name in options if name in policy}
    params = {"clients": len(text["clients"])} | policy
    return {
        "params": params, "form": form, "options": chosen, "server": text["server"]["key"],
        "clients": text["clients"], "fingerprint": text["fingerprint"],
    }  # fmt: skip


def from_json(data: bytes) -> dict[str, Any]:
    """The same from JSON. No line may come twice or have no use: a reader would take it for what was agreed on."""
    text = json.loads(data, object_pairs_hook=_once)
    older = ("retrieval", "queries")  # 0.1.0 had them in place of form and options
    known = ("secea", "params", "form", "options", "server", "clients", "fingerprint", *older)
    _only(text, "the file", known, optional=True)
    for now, before in zip(("form", "options"), older, strict=True):
        if now in text and before in text:
            raise ValueError(f"it has both {now} and {before}, its older name")
    for client in text["clients"]:
        _only(client, "a client", ("name", "key"))
    return cast(dict[str, Any], text)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"it has the line {max(names, key=names.count)!r} twice")
    return found


def _only(table: Mapping[str, Any], what: str, known: tuple[str, ...], *, optional: bool = False) -> None:
    """Whether a table has these lines, and no others."""
    if unknown := sorted(set(table) - set(known)):
        raise ValueError(f"{what} has no line {unknown[0]!r}; it may have {', '.join(known)}")
    if not optional and (missing := [name for name in known if name not in table]):
        raise ValueError(f"{what} lacks {missing[0]}")
