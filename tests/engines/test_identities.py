"""Who is who: keys that change, keys that are revoked, and what a server cannot talk the clients into."""

from __future__ import annotations

import hmac
from dataclasses import replace
from pathlib import Path

import pytest

from cores import PATIENCE, cores, run
from secea.engines.driver import Driver
from secea.engines.files import read_session, write_identity, write_session
from secea.engines.port import Reply, Task, Terms
from secea.engines.progress import State
from secea.engines.site import Site
from secea.errors import FederationError, ProtocolError
from secea.forms.paillier import Paillier
from secea.params import Params
from secea.party.server import Server
from secea.party.session import Session
from secea.wire.keys import Identity, Roster
from sites import Sites

PARAMS = Params(4, dim=2, max_entities=20, max_union=30, key_bits=256, insecure_small_keys=True)
EVERYONE = [0, 1, 2, 3]


@pytest.fixture
def sites(tmp_path: Path) -> Sites:
    return Sites(tmp_path / "sites", PARAMS, form="paillier")


def rotate(sites: Sites, name: str) -> None:
    """A party makes a new key, and everybody gets a federation file with it."""
    sites.identities[name] = Identity.generate()
    write_identity(sites.identities[name], sites.folder / name / "new.pem")
    sites.agree("federation.json", sites.params)


def reasons(state: State) -> dict[str, str]:
    """Why clients were left out at the end."""
    return {name: each.why for name, each in state.clients.items() if each.why}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["site-2", "server"])
def test_after_a_rotation_the_new_key_counts_and_the_old_one_is_refused_by_name(sites: Sites, name: str) -> None:
    with cores(sites) as port:  # a run that is not over: there is state of the old session everywhere
        site = Site.read(sites.file("server"))
        server = site.server()
        Driver(server, port, patience=PATIENCE, save=lambda data: site.store.save("server", data)).setup()
    left = set(sites.folder.glob("*/state/*.state"))
    rotate(sites, name)
    if name == "server":
        with pytest.raises(FederationError, match="the identity is not the one that the roster pins for the server"):
            run(sites, 1)
    else:
        assert reasons(run(sites, 1)) == {"site-2": "the identity is not the one that the roster pins for site-2"}
        sites.argue(name, claims=sites.identities[name].public.hex())  # it does not look at the roster itself
        unsigned = "site-2: hello is not signed by the identity that the roster pins"
        assert reasons(run(sites, 1)) == {"site-2": unsigned}
        assert [line["clients"] for line in sites.rounds()] == [[0, 2, 3]] * 2
        sites.argue(name, claims="")
        sites.forget_the_past()
    sites.write(name, identity="new.pem")
    run(sites, 2)
    assert [line["clients"] for line in sites.rounds()] == [EVERYONE] * 2
    sites.check_means()
    assert left <= set(sites.folder.glob("*/state/*.state"))  # of the old session: its operator deletes it


@pytest.mark.slow
def test_after_a_revocation_nobody_answers_to_the_key_that_is_gone(sites: Sites) -> None:
    before = read_session(sites.folder / "federation.json")
    roster = Roster(before.roster.clients[:3], before.roster.server, sites.names[:3])
    after = Session(replace(PARAMS, clients=3), roster, Paillier())
    write_session(before, sites.folder / "old.json")
    write_session(after, sites.folder / "federation.json")
    sites.write("site-4", federation="../old.json")
    with cores(sites) as port:
        ((_, reply),) = port.exchange({3: Task.HELLO}, 0, dict, Terms(30))
    assert isinstance(reply, Reply)
    (hello,) = reply.messages
    server = Server(after, sites.identities["server"])
    with pytest.raises(ProtocolError, match="there is no client 3 in this federation"):
        server.receive(3, hello)
    with pytest.raises(ProtocolError, match="client 2: a message from the unknown party 3"):
        server.receive(2, hello)
    sites.write("site-3", identity="../site-4/identity.pem")  # what it knows of the new federation does not help it
    sites.argue("site-3", claims=sites.identities["site-3"].public.hex())
    sites.params, sites.names = after.params, sites.names[:3]
    with pytest.raises(FederationError, match="site-3: hello is not signed by the identity"):
        run(sites, 1)
    sites.write("site-3", identity="identity.pem")
    sites.argue("site-3", claims="")
    run(sites, 1)
    assert [line["clients"] for line in sites.rounds()] == [[0, 1, 2]]
    sites.check_means()


def test_a_party_that_the_server_lets_in_is_refused_by_the_other_clients_by_name(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server says that a stranger's key is client 1's, and does not mind that client 2 has other parameters."""
    stranger, agreed = Identity.generate(), read_session(sites.folder / "federation.json")
    write_identity(stranger, sites.folder / "stranger.pem")
    sites.write("site-2", identity="../stranger.pem")
    sites.argue("site-2", claims=agreed.roster.clients[1].hex())
    sites.agree("precise.json", replace(PARAMS, precision=20))
    sites.write("site-3", federation="../precise.json")
    keys = (agreed.roster.clients[0], stranger.public, *agreed.roster.clients[2:])
    lying = Session(PARAMS, Roster(keys, agreed.roster.server, sites.names), Paillier())
    lying.__dict__["hash"] = agreed.hash
    monkeypatch.setattr(hmac, "compare_digest", lambda *_: True)
    with cores(sites) as port:
        driver = Driver(Server(lying, sites.identities["server"]), port, patience=PATIENCE)
        with pytest.raises(FederationError):
            driver.setup()
    assert driver.failures[0] == driver.failures[3] == "it refuses what came from client 1 or the server"
    for name in ("site-1", "site-4"):
        first = sites.log(name, event="refused")[0]
        assert first["suspects"] == ["site-2", "the server"]
        assert first["why"] == "hello is not signed by the identity that the roster pins"
    first = sites.log("site-3", event="refused")[0]  # the server's own
    assert first["suspects"] == ["the server"]
    assert first["why"].startswith("hello is for another session: its roster, parameters or version differ")
