"""The roll call: a federation file that every site's operator has compared, whatever the server shows to whom."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from secea.engines import roll
from secea.engines.files import agreed_session, read_session, session_toml, write_identity
from secea.engines.roll import Answer, Draft, Newcomer, decide, offered
from secea.engines.site import Site
from secea.errors import FederationError, ParamsError
from secea.party.session import Session
from secea.wire.keys import Identity

NAMES = ("north", "south")
DRAFT = Draft(NAMES, ("dim=2", "max_entities=10", "max_union=20"), "keyed")


def site(folder: Path, name: str = "") -> Site:
    """A party's folder, without a federation file."""
    folder.mkdir()
    write_identity(Identity.generate(), folder / "identity.pem")
    who = f'name = "{name}"\n' if name else ""
    lines = 'federation = "federation.toml"\nidentity = "identity.pem"\nstate = "state"\nlog = "audit.jsonl"\n'
    (folder / "site.toml").write_text(who + lines)
    return Site.read(folder / "site.toml")


@pytest.fixture
def sites(tmp_path: Path) -> dict[str, Site]:
    return {"": site(tmp_path / "server")} | {name: site(tmp_path / name, name) for name in NAMES}


def events(party: Site) -> list[str]:
    assert party.log is not None
    return [json.loads(line)["event"] for line in party.log.read_text().splitlines()] if party.log.exists() else []


def shown(party: Site) -> Session:
    """What the operator of a site is shown."""
    return Newcomer(party).fitting(offered(party.federation).read_bytes())


def when_asked(sites: dict[str, Site], *answers: Callable[[], object]) -> Callable[[float], object]:
    """What people do while the server waits: one of these at a time."""
    left = list(answers)

    def sleep(seconds: float) -> None:
        assert seconds == roll.LOOK_SECONDS
        assert left, "the server still waits"
        left.pop(0)()

    return sleep


def agree(party: Site, *, agreed: bool = True) -> Callable[[], object]:
    return lambda: decide(party, offered(party.federation).read_bytes(), agreed=agreed)


def break_off() -> None:
    raise ConnectionError


def called(sites: dict[str, Site], *answers: Callable[[], object], draft: Draft = DRAFT, **more: Any) -> None:
    newcomers = {name: Newcomer(party) for name, party in sites.items() if name}
    roll.call(draft, sites[""], newcomers, sleep=when_asked(sites, *answers), **more)


def test_all_parties_have_the_same_file_when_all_agreed(sites: dict[str, Site]) -> None:
    called(sites, agree(sites["south"]), agree(sites["north"]))
    sessions = [read_session(party.federation) for party in sites.values()]
    assert len({session.hash for session in sessions}) == 1
    keys = [sites[name].key.public for name in NAMES]
    assert sessions[0].roster.clients == tuple(keys)
    assert sessions[0].roster.server == sites[""].key.public
    assert sessions[0].params.dim == 2
    assert events(sites["north"]) == ["agreed"]
    assert events(sites[""]) == ["offered", "agrees", "agrees", "agreed"]
    assert not offered(sites["north"].federation).exists()


def test_nothing_begins_before_the_last_one_agreed(sites: dict[str, Site]) -> None:
    def not_yet() -> None:
        assert not sites[""].federation.exists()

    called(sites, not_yet, agree(sites["north"]), not_yet, agree(sites["south"]))
    assert sites[""].federation.exists()


def test_one_who_declines_ends_it_for_all(sites: dict[str, Site]) -> None:
    with pytest.raises(FederationError, match="south did not agree"):
        called(sites, agree(sites["south"], agreed=False))
    assert not any(party.federation.exists() for party in sites.values())
    assert events(sites["south"]) == ["declined"]
    assert events(sites[""])[-1] == "failed"


@pytest.mark.parametrize("said", ["0000 1111", "yes", "", None, True, b"waits"])
def test_an_answer_that_is_not_the_fingerprint_of_this_file_is_no_agreement(
    sites: dict[str, Site], said: object
) -> None:
    class Other(Newcomer):
        def answer(self) -> Any:
            return said

    newcomers = {"north": Newcomer(sites["north"]), "south": Other(sites["south"])}
    with pytest.raises(FederationError, match="south agreed on another federation file"):
        roll.call(DRAFT, sites[""], newcomers, patience=0.0)
    assert not sites[""].federation.exists()


def test_who_does_not_answer_is_named(sites: dict[str, Site]) -> None:
    with pytest.raises(FederationError, match="north, south: no answer on the fingerprint within 0 s"):
        called(sites, patience=0.0)


def test_a_roll_call_that_broke_off_goes_on_with_the_same_file(sites: dict[str, Site]) -> None:
    with pytest.raises(ConnectionError):
        called(sites, agree(sites["north"]), break_off)
    before = sites["north"].federation.read_bytes()
    called(sites, agree(sites["south"]))
    assert {party.federation.read_bytes() for party in sites.values()} == {before}


def test_somebody_who_is_not_there_is_named(sites: dict[str, Site]) -> None:
    with pytest.raises(FederationError, match="west: not connected"):
        called(sites, draft=replace(DRAFT, names=(*NAMES, "west")))


@pytest.mark.parametrize("given", ["it has none", b"short", b"x" * 33, None, 7.5, ["x"] * 32])
def test_what_is_no_key_is_refused_with_its_name(sites: dict[str, Site], given: object) -> None:
    class Liar(Newcomer):
        def introduce(self) -> Any:
            return given

    newcomers = {"north": Newcomer(sites["north"]), "south": Liar(sites["south"])}
    with pytest.raises(FederationError, match="south did not give a public key"):
        roll.call(DRAFT, sites[""], newcomers)
    assert not offered(sites["north"].federation).exists()


# ----------------------------------------------------------------------------------------------- a server that deviates


def other(sites: dict[str, Site], **keys: bytes) -> bytes:
    """A federation file with other keys for some clients."""
    right = {name: sites[name].key.public for name in NAMES}
    return session_toml(agreed_session(right | keys, sites[""].key.public, DRAFT.params, DRAFT.form)).encode()


def test_a_file_without_this_site_or_with_another_key_for_it_is_not_even_shown(sites: dict[str, Site]) -> None:
    stranger = Identity.generate().public
    north = Newcomer(sites["north"])
    assert north.offer(other(sites, north=stranger)) == "the federation file has another key for north"
    names = {"east": Identity.generate().public, "south": Identity.generate().public}
    without = session_toml(agreed_session(names, stranger, DRAFT.params, DRAFT.form)).encode()
    assert north.offer(without) == "the federation file does not have north"
    assert "no federation file" in north.offer(b"x = 1")
    assert "nested too deeply" in north.offer(b"x = " + b"[" * 5000 + b"]" * 5000)
    assert north.offer(b"\0" * (roll.MOST_BYTES + 1)) == "the federation file is too large"
    assert not offered(sites["north"].federation).exists()
    assert north.answer() is Answer.WAITS


def test_two_sites_that_are_shown_other_keys_are_shown_other_fingerprints(sites: dict[str, Site]) -> None:
    spy = Identity.generate().public
    assert Newcomer(sites["north"]).offer(other(sites, south=spy)) == ""
    assert Newcomer(sites["south"]).offer(other(sites)) == ""
    assert shown(sites["north"]).fingerprint != shown(sites["south"]).fingerprint


def test_what_is_offered_while_the_operator_looks_is_not_what_was_agreed_on(sites: dict[str, Site]) -> None:
    """The file under the operator's eyes is the one that is kept."""
    north, seen = sites["north"], other(sites)
    Newcomer(north).offer(seen)
    Newcomer(north).offer(other(sites, south=Identity.generate().public))
    decide(north, seen, agreed=True)
    assert north.federation.read_bytes() == seen
    assert not offered(north.federation).exists()


def test_what_was_agreed_on_is_never_replaced(sites: dict[str, Site]) -> None:
    north, seen = sites["north"], other(sites)
    decide(north, seen, agreed=True)
    for _ in range(2):
        said = Newcomer(Site.read(north.folder / "site.toml")).offer(other(sites, south=Identity.generate().public))
        assert said.startswith("it has agreed on another federation file before")
        assert Newcomer(Site.read(north.folder / "site.toml")).offer(seen) == ""
    assert north.federation.read_bytes() == seen
    assert not offered(north.federation).exists()


def test_nobody_agrees_to_a_file_with_another_key_for_him(sites: dict[str, Site]) -> None:
    with pytest.raises(ParamsError, match="another key for north"):
        decide(sites["north"], other(sites, north=Identity.generate().public), agreed=True)
    assert not sites["north"].federation.exists()


def test_only_the_public_half_of_a_key_is_shown(sites: dict[str, Site]) -> None:
    (sites["north"].identity).unlink()  # the private half is not needed
    assert Newcomer(sites["north"]).introduce() == Newcomer(Site.read(sites["north"].folder / "site.toml")).introduce()
    assert len(Newcomer(sites["north"]).introduce()) == 32


@pytest.mark.parametrize(
    "name", ["", "a\x1b[2Jb", "a\nb", "a\rb", "\u202ehtron", "a\u200bb", "x" * 64, "fingerprint     b575"]
)
def test_no_name_in_a_file_changes_what_its_reader_sees(sites: dict[str, Site], name: str) -> None:
    """Escape sequences of a terminal could show another fingerprint than the file has."""
    keys = {"north": sites["north"].key.public, name: sites["south"].key.public}
    text = session_toml(agreed_session(keys, sites[""].key.public, DRAFT.params, DRAFT.form))
    said = Newcomer(sites["north"]).offer(text.encode())
    assert "a name on NVFlare has letters, digits, - and _" in said
    assert not offered(sites["north"].federation).exists()


def test_a_draft_is_checked_before_anybody_is_asked() -> None:
    for wrong, said in (
        (replace(DRAFT, params=("dim=2",)), "the parameter max_entities is missing"),
        (replace(DRAFT, names=("north",)), "clients"),
        (replace(DRAFT, params=(*DRAFT.params, "dim=0")), "dim"),
    ):
        with pytest.raises(ParamsError, match=said):
            wrong.checked()
    assert Draft.of(json.loads(json.dumps(DRAFT.as_arguments()))) == DRAFT
    assert DRAFT.checked().roster.names == NAMES
