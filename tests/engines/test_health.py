"""`secea check` of a site: every check fails when what it looks at is broken, and only then."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from collections import namedtuple
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import secea
from secea.engines.files import write_identity, write_session
from secea.engines.health import Finding, Level, Machine, examine
from secea.engines.health import place as places
from secea.engines.store import Store
from secea.forms import NAMES, FormName, form_of
from secea.params import Params
from secea.party.client import Client
from secea.party.server import Server
from secea.party.session import Session
from secea.wire import snapshot
from secea.wire.keys import Identity, Roster
from test_sight import held

PARAMS = Params(clients=3, dim=4, max_entities=5, max_union=9)
PARTIES = ("north", "south", "west", "server")
VERSIONS = {"numpy": "2.4.6", "cryptography": "50.0.2", "nvflare": "2.9.0", "flwr": "1.41.0"}
MACHINE = Machine(
    memory=16e9,
    available=8e9,
    python=(3, 12, 1),
    slow="",
    versions=VERSIONS,
)
CODE = """
from secea.engines.host import Participant
def made():
    return Participant(lambda: {names}, lambda means, number: {{}}, dim={dim})
"""


class Party:
    """A folder with all that a party has; each test breaks one thing."""

    def __init__(self, folder: Path, name: str, module: str) -> None:
        self.folder, self.name, self._module = folder / name, name, module
        keys = {each: Identity.generate() for each in PARTIES}
        self.session = self.agreed(PARAMS, keys)
        self.identity = keys[name]
        self.folder.mkdir(parents=True)
        write_session(self.session, self.folder / "federation.toml")
        write_identity(self.identity, self.folder / "identity.pem")
        self.state = self.folder / "state"
        self.state.mkdir(mode=0o700)
        self.write()
        self.code()

    @staticmethod
    def roster(keys: dict[str, Identity] | None = None) -> Roster:
        keys, clients = keys or {each: Identity.generate() for each in PARTIES}, PARTIES[:3]
        return Roster(tuple(keys[each].public for each in clients), keys["server"].public, clients)

    @staticmethod
    def agreed(params: Params, keys: dict[str, Identity]) -> Session:
        return Session(params, Party.roster(keys), form_of("keyed"))

    @property
    def path(self) -> Path:
        return self.folder / "site.toml"

    def write(self, **more: str) -> None:
        lines = {"federation": "federation.toml", "identity": "identity.pem", "state": "state", "log": "audit.jsonl"}
        if self.name != "server":
            lines |= {"name": self.name, "participant": f"{self._module}:made"}
        text = (f"{key} = {json.dumps(value)}" for key, value in (lines | more).items() if value)
        self.path.write_text("\n".join(text) + "\n")

    def code(self, names: str = "['aspirin', 'codeine']", dim: int | None = 4, text: str | None = None) -> None:
        (self.folder / f"{self._module}.py").write_text(CODE.format(names=names, dim=dim) if text is None else text)

    def save(self, session: Session | None = None, identity: Identity | None = None) -> None:
        """State as a run leaves it."""
        session, identity = session or self.session, identity or self.identity
        store = Store(self.state, identity, session.hash)
        if self.name == "server":
            store.save("server", Server(session, identity).save())
        else:
            store.save("client", Client(session, 0, identity, ["aspirin"]).save())

    def found(self, machine: Machine = MACHINE) -> list[Finding]:
        return list(examine(self.path, None, replace(machine, now=time.time())))

    def troubles(self, machine: Machine = MACHINE) -> dict[str, str]:
        """What is not as it should be: the level and the words of each."""
        return {
            each.about: f"{each.level}: {each.says} -> {each.do}"
            for each in self.found(machine)
            if each.level is not Level.OK
        }


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A name of a module that no other test uses."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    return f"mine_{abs(hash(str(tmp_path)))}"


@pytest.fixture
def site(tmp_path: Path, module: str) -> Party:
    return Party(tmp_path, "north", module)


@pytest.fixture
def server(tmp_path: Path, module: str) -> Party:
    return Party(tmp_path, "server", module)


def test_nothing_is_wrong_with_a_site_and_a_server_that_are_as_they_should_be(site: Party, server: Party) -> None:
    assert site.troubles() == server.troubles() == {}
    assert {each.about for each in site.found()} == {
        "site file", "state", "log", "federation", "disk", "temporary files", "memory", "key", "saved state",
        "participant", "names", "dim", "versions", "kernels", "clock",
    }  # fmt: skip
    assert {each.about for each in server.found()} < {each.about for each in site.found()}


def test_nothing_is_left_behind_changed_or_locked(site: Party, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    site.save()
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def state() -> dict[Path, tuple[int, int]]:
        return {path: (path.stat().st_mode, path.stat().st_mtime_ns) for path in site.folder.rglob("*")}

    def taken(*_: object) -> None:
        raise AssertionError("a lock was taken")

    before = state()
    monkeypatch.setattr(fcntl, "flock", taken)
    assert site.troubles() == {}
    assert {path: mode for path, (mode, _) in state().items()} == {path: mode for path, (mode, _) in before.items()}
    files = [path for path in before if path.is_file()]
    assert [state()[path] for path in files] == [before[path] for path in files]


def test_a_state_folder_that_is_missing_is_not_made(site: Party) -> None:
    site.state.rmdir()
    assert site.troubles() == {}
    assert not site.state.exists()


# ------------------------------------------------------------------------------------------------- each thing, broken


def gone(site: Party) -> None:
    (site.folder / "federation.toml").unlink()


def edited(site: Party) -> None:
    path = site.folder / "federation.toml"
    path.write_text(path.read_text().replace("dim = 4", "dim = 5"))


def other_key(site: Party) -> None:
    (site.folder / "identity.pem").unlink()
    (site.folder / "identity.pem.pub").unlink()
    write_identity(Identity.generate(), site.folder / "identity.pem")


def open_key(site: Party) -> None:
    (site.folder / "identity.pem").chmod(0o640)


def open_state(site: Party) -> None:
    site.state.chmod(0o755)


def no_folder(site: Party) -> None:
    site.state.rmdir()
    site.state.write_text("")


def nowhere(site: Party) -> None:
    site.state.rmdir()
    (site.folder / "file").write_text("")
    site.write(state="file/state", log="file/log")


def open_log(site: Party) -> None:
    (site.folder / "audit.jsonl").write_text("")
    (site.folder / "audit.jsonl").chmod(0o644)


def log_folder(site: Party) -> None:
    (site.folder / "audit.jsonl").mkdir()


def damaged(site: Party) -> None:
    site.save()
    (path,) = site.state.glob("client.*")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def of_another_session(site: Party) -> None:
    keys = {each: Identity.generate() for each in PARTIES} | {"north": site.identity}
    site.save(site.agreed(replace(PARAMS, dim=7), keys))


def of_another_key(site: Party) -> None:
    keys = {each: Identity.generate() for each in PARTIES}
    site.save(site.agreed(PARAMS, keys), keys["north"])


def later(site: Party) -> None:
    path = site.folder / "audit.jsonl"
    path.touch(mode=0o600)
    os.utime(path, (time.time() + 3600,) * 2)


BROKEN: list[tuple[Callable[[Party], object], str, str]] = [
    (lambda site: site.path.write_text("name = "), "site file", "wrong: .* is not TOML"),
    (lambda site: site.write(colour="red"), "site file", "wrong: .* has no use for 'colour'"),
    (gone, "federation", "wrong: .*federation.toml cannot be read"),
    (edited, "federation", "wrong: .*was changed after it was made"),
    (lambda site: site.write(name="east"), "name", "wrong: 'east' is not in .*'north', 'south', 'west'"),
    (lambda site: site.write(participant=""), "participant", "wrong: 'north' is a client, .* names no function"),
    (other_key, "key", "wrong: .* has the fingerprint .*; the federation file pins .* for 'north'"),
    (lambda site: site.write(identity="none.pem"), "key", "wrong: .*none.pem cannot be read"),
    (open_key, "key", "wrong: .*can be read by others.*chmod 600"),
    (open_state, "state", "warning: .*can be read by others; it is encrypted -> chmod 700"),
    (no_folder, "state", "wrong: .* is no folder"),
    (log_folder, "log", "wrong: .* is a folder"),
    (open_log, "log", "warning: .* can be read by others -> chmod 600"),
    (lambda site: site.write(log=""), "log", "warning: there is none"),
    (damaged, "saved state", "wrong: .* is damaged"),
    (of_another_session, "saved state", "warning: .* 1 file of another session or key, and nothing of this one"),
    (of_another_key, "saved state", "warning: .* 1 file of another session or key, and nothing of this one"),
    (later, "clock", "wrong: it shows .*audit.jsonl was written at .*: it has gone back"),
    (lambda site: site.write(participant="none:made"), "participant", "wrong: participant = 'none:made'"),
    (lambda site: site.code(text="def made(): return 3"), "participant", "wrong: .* gives a int"),
    (lambda site: site.code(text="import sys\nsys.exit(3)"), "participant", "wrong: .* raised SystemExit: 3"),
    (
        lambda site: site.code(text="def made():\n    raise RuntimeError('no data')"),
        "participant",
        r"wrong: .* raised RuntimeError: no data \(.*, line 2\)",
    ),
    (lambda site: site.code(names="list('abcdef')"), "names", "wrong: too many: 6, and max_entities is 5"),
    (lambda site: site.code(names="[]"), "names", "warning: there are none"),
    (lambda site: site.code(names="['a', 'a']"), "names", "wrong: .*'a'"),
    (lambda site: site.code(names="['a', None]"), "names", "wrong: the entity name None"),
    (lambda site: site.code(names="['a', 'A ']"), "spelling", "warning: .*: 'a' and 'A '"),
    (lambda site: site.code(dim=3), "dim", "wrong: rows have 3 numbers, and the federation file says dim = 4"),
]


@pytest.mark.parametrize(("break_it", "about", "says"), BROKEN, ids=[f"{about}: {says}" for _, about, says in BROKEN])
def test_what_is_broken_is_found_and_nothing_else(
    site: Party, break_it: Callable[[Party], object], about: str, says: str
) -> None:
    break_it(site)
    troubles = site.troubles()
    assert list(troubles) == [about]
    assert re.match(says, troubles[about]), troubles


def test_a_state_and_a_log_that_cannot_be_made_are_two_findings(site: Party) -> None:
    nowhere(site)
    troubles = site.troubles()
    assert list(troubles) == ["state", "log"]
    assert "cannot be made" in troubles["state"]
    assert "cannot be written: its folder is missing" in troubles["log"]


def test_a_rule_of_names_is_the_federations(tmp_path: Path, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "PARAMS", replace(PARAMS, normalize=("strip", "casefold")))
    site = Party(tmp_path, "north", module)
    site.code(names="['a', 'A ']")
    assert "are one after normalize=strip,casefold" in site.troubles()["names"]


def test_saved_state_of_this_session_and_key_is_fine(site: Party, server: Party) -> None:
    for party in (site, server):
        party.save()
        (found,) = [each.says for each in party.found() if each.about == "saved state"]
        assert found == "it is of this session and key, and can be read"


def test_while_a_run_goes_on_the_function_is_left_alone(site: Party) -> None:
    site.save()
    site.code(text="raise RuntimeError('called twice')")
    with held(site.state):
        assert site.troubles() == {}
        says = {each.about: each.says for each in site.found()}
    assert says["saved state"].endswith("and a run uses it now")
    assert "is not called a second time" in says["participant"]


def test_what_the_function_prints_is_not_part_of_the_output(site: Party, capsys: pytest.CaptureFixture[str]) -> None:
    site.code(text="print('loading')\n" + CODE.format(names="['a']", dim=4))
    assert site.troubles() == {}
    out, err = capsys.readouterr()
    assert (out, err) == ("", "loading\n")


def test_a_server_needs_no_function_and_its_own_key(server: Party) -> None:
    other_key(server)
    assert list(server.troubles()) == ["key"]
    assert "for the server" in server.troubles()["key"]


# --------------------------------------------------------------------------------------------------------- the machine


@pytest.mark.parametrize(
    ("change", "about", "says"),
    [
        ({"memory": 50e6, "available": 40e6}, "memory", "wrong: this machine has 50 MB; this party may need 6"),
        ({"available": 50e6}, "memory", "warning: 50 MB of 16 GB are free; this party may need 6"),
        ({"slow": "no compiler"}, "kernels", "warning: the compiled loops are missing: no compiler"),
        ({"python": (3, 10, 9)}, "versions", "wrong: Python 3.10.9 is older than 3.11"),
        ({"versions": {"cryptography": "48.1", "nvflare": "2.9.1"}}, "versions", "wrong: numpy is not installed"),
        (
            {"versions": VERSIONS | {"numpy": "1.26.4"}},
            "versions",
            "wrong: numpy 1.26.4 is older than 2.0 -> install secea again",
        ),
        (
            {"versions": {"numpy": "2.0", "cryptography": "48.0"}},
            "versions",
            "warning: no engine is installed -> pip install 'nvflare==2.9.0', or for Flower: pip install",
        ),
        (
            {"versions": {"numpy": "2.0", "cryptography": "48.0", "nvflare": "2.10.0"}},
            "versions",
            "wrong: NVFlare 2.10.0 is installed; secea was tried on 2.9 alone",
        ),
        (
            {"versions": VERSIONS | {"flwr": "1.42.0"}},
            "versions",
            r"warning: Flower \(flwr\) 1.42.0 is installed; secea was tried on 1.41 alone",
        ),
    ],
)
def test_a_machine_that_does_not_do_is_found(site: Party, change: dict[str, object], about: str, says: str) -> None:
    troubles = site.troubles(replace(MACHINE, **change))  # type: ignore[arg-type]
    assert list(troubles) == [about]
    assert re.match(says, troubles[about]), troubles


def test_without_knowledge_of_the_memory_nothing_is_said_of_it(site: Party) -> None:
    found = site.found(replace(MACHINE, memory=None, available=None))
    assert "memory" not in {each.about for each in found}


def test_this_machine_knows_itself() -> None:
    this = Machine()
    assert this.memory is not None
    assert this.available is not None
    assert this.available <= this.memory
    assert {"numpy", "cryptography"} <= this.versions.keys()


@pytest.mark.parametrize(("party", "about"), [("north", "disk"), ("server", "temporary files")])
def test_a_full_disk_is_found(
    tmp_path: Path, module: str, monkeypatch: pytest.MonkeyPatch, party: str, about: str
) -> None:
    usage = namedtuple("usage", "total used free")
    one = Party(tmp_path, party, module)
    need = places.Needs.of(one.session, server=party == "server")
    assert need is not None
    least = need.saved if about == "disk" else need.passing
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(0, 0, least))
    assert one.troubles() == {}
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(0, 0, least - 1))
    assert one.troubles()[about].startswith("wrong: ")


@pytest.mark.parametrize("form", NAMES)
def test_a_site_saves_no_more_than_is_predicted(form: FormName) -> None:
    small: dict[str, Any] = {"key_bits": 256, "insecure_small_keys": True} if form == "paillier" else {}
    params = Params(clients=3, dim=16, max_entities=400, max_union=800, **small)
    needs = places.Needs.of(Session(params, Party.roster(), form_of(form)), server=False)
    fed = secea.Federation(params, form)
    names = [[f"the entity number {i}" for i in range(200 * n, 200 * n + 400)] for n in range(3)]
    fed.setup(names)
    tables = [secea.Table(tuple(each), np.ones((400, 16))) for each in names]
    fed.round(tables)
    assert fed._exchange is not None
    table = snapshot.dumps({"names": tuple(tables[0].names), "matrix": tables[0].matrix, "round": 1})
    saved = max(len(client.save()) for client in fed._exchange.clients.values()) + len(table)
    assert needs is not None
    assert saved <= needs.saved / 2 <= 4 * saved
