"""`secea plan --policy`: the federation file as one page, which says what the threat model says and no more."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

import secea
from secea import privacy
from secea.cli import main
from secea.commands import policy
from secea.commands.estimate import Machine
from secea.engines.files import key_fingerprint, read_session, session_json, write_session
from secea.forms import form_of
from secea.params import Params
from secea.party.disclosure import Disclosure
from secea.party.session import Session
from secea.wire.keys import Identity, Roster
from terminal import ROOT

KEYS = [Identity(hashlib.sha256(b"%d" % i).digest()).public for i in range(11)]
NAMES = ("north", "south", "west", "east", "far", "near", "high", "low", "old", "new")


def session(clients: int = 4, form: str = "keyed", names: tuple[str, ...] = NAMES, **params: Any) -> Session:
    roster = Roster(tuple(KEYS[1 : clients + 1]), KEYS[0], names[:clients])
    return Session(
        Params(**({"clients": clients, "dim": 4, "max_entities": 40, "max_union": 75} | params)), roster, form_of(form)
    )


@pytest.fixture(autouse=True)
def no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times are tested with `secea plan`."""
    found = {phase: {"client": 1.0, "server": 2.0} for phase in ("setup", "round")}
    monkeypatch.setattr(Machine, "seconds", lambda *_: found)


def run(tmp_path: Path, chosen: Session, *more: str) -> Result:
    write_session(chosen, tmp_path / "federation.toml")
    return CliRunner().invoke(main, ["plan", "--policy", str(tmp_path / "federation.toml"), *more])


def said(chosen: Session) -> Disclosure:
    return chosen.form.disclosure(chosen.params)


def sentences(chosen: Session) -> str:
    everything = said(chosen)
    parts = [*everything.parties, *everything.options]
    return " ".join(words for part in parts for words in (part.about, part.assumed, *part.says))


def test_the_page_names_all_parties_their_keys_and_the_fingerprint(tmp_path: Path) -> None:
    chosen = session(min_owners=3, collusion=1)
    ran = run(tmp_path, chosen)
    assert ran.exit_code == 0, ran.output
    for words in (*NAMES[:4], *map(key_fingerprint, KEYS[:5]), chosen.fingerprint, "Who learns what", "signature"):
        assert words in ran.output
    assert ran.output.count(chosen.fingerprint) == 1


def test_json_has_the_plan_the_fingerprints_and_every_sentence(tmp_path: Path) -> None:
    chosen = session(collusion=2, min_owners=4, max_weight=50)
    found = json.loads(run(tmp_path, chosen, "--json").stdout)
    plan = secea.plan(chosen.params, entities=75)
    assert (found["setup_bytes"], found["round_bytes"]) == (plan.setup_bytes, plan.round_bytes)
    assert found["fingerprint"] == chosen.fingerprint
    assert [client["fingerprint"] for client in found["clients"]] == [key_fingerprint(key) for key in KEYS[1:5]]
    told = json.dumps(found["page"])
    for part in (*said(chosen).parties, *said(chosen).options):
        assert all(json.dumps(words)[1:-1] in told for words in part.says)
    assert [row["options"] for row in found["options_cost"]] == [
        {}, {"min_owners": 4}, {"max_weight": 50}, {"min_owners": 4, "max_weight": 50},
    ]  # fmt: skip
    assert found["options_cost"][-1]["round_bytes"] == found["round_bytes"]


def test_the_page_says_whether_it_is_practical_within_the_limits(tmp_path: Path) -> None:
    ran = " ".join(run(tmp_path, session()).output.split())
    assert "is it practical? Fits: a round takes 3.0 s (limit 10 min)" in ran
    found = json.loads(run(tmp_path, session(), "--round-minutes", "0.01", "--json").stdout)
    assert found["verdict"]["sentence"] == "Not practical, because a round takes 3.0 s (limit 0.6 s)."
    assert found["verdict"]["sentence"] in json.dumps(found["page"])


def test_json_files_have_the_same_page(tmp_path: Path) -> None:
    chosen = session()
    first = json.loads(run(tmp_path, chosen, "--json").stdout)
    (tmp_path / "federation.toml").write_text(session_json(chosen))
    ran = CliRunner().invoke(main, ["plan", "--policy", str(tmp_path / "federation.toml"), "--json"])
    assert json.loads(ran.stdout)["page"] == first["page"]


# ------------------------------------------------------------------------------------------- what the threat model says


def words_of(path: str) -> str:
    return " ".join(re.sub(r"[>*`]", " ", (ROOT / path).read_text(encoding="utf-8")).split())


SAID = (
    "sizes and times of messages. No name, no number, no count",
    "how many others have it, and the sum of their rows",
    "It cannot test guessed names",
    "learns no more than one that follows the protocol and chooses who drops out",
    "but with a client's help it can",
    "It can always stop the federation",
    "can give wrong numbers, and spoil a round without being named",
    "They can list names that they do not have",
    "They can find out how many own a slot, without its name",
    "whose name they did not list",
    "from two rounds of one union",
    "Timing and other side channels, and attacks by somebody who controls your machine",
    "The software is young, and nobody outside the project has audited it",
)
"""Sentences of README.md or docs/threat-model.md that the page repeats."""


@pytest.mark.parametrize("sentence", SAID)
def test_the_page_says_what_the_threat_model_says(sentence: str) -> None:
    chosen = session(5, dropouts=1, collusion=2)
    told = " ".join((sentences(chosen), *said(chosen).limits)).replace(
        "how many of the others have", "how many others have"
    )
    assert sentence in told
    assert sentence in f"{words_of('README.md')} {words_of('docs/threat-model.md')}"


@given(st.integers(2, 10), st.data())
def test_a_server_that_deviates_is_covered_where_2d_plus_t_is_below_n_and_the_page_says_so(
    clients: int, data: st.DataObject
) -> None:
    D = data.draw(st.integers(0, clients - 2))
    T = data.draw(st.integers(1, clients - 1 - D))
    told = sentences(session(clients, collusion=T, dropouts=D))
    assert ("THIS IS NOT COVERED" in told) == (clients <= 2 * D + T)
    assert ("2D + T < N holds" in told) == (clients > 2 * D + T)
    assert ("against you" in told) == (clients - 1 == T)
    assert ("have the key of the names" in told) == (clients - 1 > T)
    assert ("With two clients" in told) == (clients == 2)


@given(st.integers(3, 10), st.data())
def test_a_minimum_protects_against_conspiring_owners_only_above_t_plus_1(clients: int, data: st.DataObject) -> None:
    T = data.draw(st.integers(1, clients - 1))
    m = data.draw(st.integers(2, clients))
    told = sentences(session(clients, collusion=T, min_owners=m))
    assert ("at least two owners of every mean are not among those who conspire" in told) == (m > T + 1)
    assert bool(re.search("can subtract (its|their) own parts? from the mean", told)) == (m <= T + 1)
    for words in ("a policy that the server enforces", "It does not change what the server and clients learn together"):
        assert words in told
    assert "It can give out means that are below the minimum of owners" in told


def test_each_option_is_explained_where_it_is_used_and_only_there() -> None:
    marks = {
        "min_owners": "have too few owners for a mean, and not how many",
        "max_weight": "blurred by up to half a unit",
        "partial": "A mean may be of one row alone",
        "noise": "no figure for it: epsilon depends on",
    }
    values: dict[str, Any] = {"min_owners": 2, "max_weight": 9, "partial": True, "noise": 0.25}
    for name, value in values.items():
        told = sentences(session(collusion=1, **{name: value}))
        assert [each for each, mark in marks.items() if mark in told] == [name]
    both = sentences(session(collusion=1, min_owners=2, max_weight=9))
    assert "It counts for the minimum of owners: a mean may be of fewer rows" in both
    both = sentences(session(collusion=1, min_owners=2, partial=True))
    assert "The minimum of owners counts those who contribute" in both
    assert "one row alone" not in both


DEVIATES: dict[str, tuple[Any, str]] = {
    "min_owners": (3, "and so undo the minimum of owners"),
    "max_weight": (9, "They can claim any weight up to 9"),
    "noise": (0.5, "They can leave out their own noise"),
}


@pytest.mark.parametrize("option", DEVIATES)
def test_the_page_says_what_clients_that_deviate_do_about_an_option(option: str) -> None:
    value, words = DEVIATES[option]
    deviate = {each.about: " ".join(each.says) for each in said(session(**{option: value})).parties}
    assert words in deviate["clients that deviate"]
    assert not any(words in told for told in deviate.values() if told != deviate["clients that deviate"])
    assert words not in sentences(session())


def test_a_minimum_keeps_two_owners_from_subtracting_only_if_every_owner_gives_a_row() -> None:
    two = "With two owners, each can subtract its own part"
    assert two not in " ".join(said(session(min_owners=3)).limits)
    assert two in " ".join(said(session(min_owners=2)).limits)
    assert two in " ".join(said(session(min_owners=3, max_weight=9)).limits)  # some may have the weight 0


def test_fewer_participants_add_more_noise_each_where_nobody_may_drop_out() -> None:
    more = "The fewer take part, the more each of them adds"
    assert more in sentences(session(collusion=1, noise=0.5))
    assert more not in sentences(session(collusion=1, dropouts=1, noise=0.5))  # then it is as for the fewest


def test_steps_that_make_names_alike_are_said_in_words() -> None:
    chosen = session(normalize="nfc,casefold")
    told = policy.chapters(chosen, _found(chosen), Path("federation.toml"))
    names = " ".join(line.says[0] for chapter in told for line in chapter.lines if line.about == "names")
    assert "capital and small letters are the same (casefold)" in names
    assert "strip" not in names


@pytest.mark.parametrize(
    ("T", "D", "honest"), [(1, 0, "all but 1 draw noise"), (2, 1, "nobody else"), (3, 0, "nobody else")]
)
def test_with_noise_the_page_says_who_must_be_trusted(T: int, D: int, honest: str) -> None:
    told = sentences(session(collusion=T, dropouts=D, noise=0.5))
    trusted = next(words for words in told.split(". ") if "have to trust" in words)
    assert honest in trusted
    accuracy = " ".join(said(session(collusion=T, dropouts=D, noise=0.5)).accuracy)
    assert f"standard deviation of {0.5 * (4 / (4 - T - D)) ** 0.5:.3g} to a sum" in accuracy


def test_the_paper_s_form_says_what_it_does_not_cover(tmp_path: Path) -> None:
    told = sentences(session(form="paillier"))
    assert told.count("THIS IS NOT COVERED") == 3
    assert "whose entities changed" in told
    disclosed = said(session(form="paillier"))
    assert "attacks by somebody who controls your machine" in " ".join(disclosed.limits)
    assert [line.startswith("A mean is exact to within") for line in disclosed.accuracy] == [True]
    assert run(tmp_path, session(form="paillier")).exit_code == 0


# --------------------------------------------------------------------------------------------------------------- pages


def test_the_page_is_one_file_that_loads_nothing_and_in_which_names_are_text(tmp_path: Path) -> None:
    harm = ("<script>alert(1)</script>", "a\x1b[2J\u202eb", *NAMES[2:])
    chosen = session(names=harm)
    ran = run(tmp_path, chosen, "--html", str(tmp_path / "policy.html"))
    assert (ran.exit_code, ran.output) == (0, f"wrote {tmp_path / 'policy.html'}\n")
    page = (tmp_path / "policy.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert not re.search(r"(src|href)=", page)
    assert "default-src &#x27;none&#x27;" in page
    assert "&lt;script&gt;alert(1)" in page
    assert chosen.fingerprint in page
    for text in (page, run(tmp_path, chosen).output):
        assert "\x1b" not in text
        assert "\u202e" not in text


def test_a_page_for_every_party_to_sign(tmp_path: Path) -> None:
    run(tmp_path, session(), "--html", str(tmp_path / "policy.html"))
    page = (tmp_path / "policy.html").read_text(encoding="utf-8")
    rows = page[page.index("Signatures") :].count("<tr>") - 1
    assert rows == 5
    ran = run(tmp_path, session(), "--html", str(tmp_path / "no" / "policy.html"))
    assert (ran.exit_code, "cannot be written" in ran.output) == (3, True)


def test_an_edited_policy_is_refused_before_anything_is_said(tmp_path: Path) -> None:
    path = tmp_path / "federation.toml"
    write_session(session(min_owners=3), path)
    path.write_text(path.read_text().replace("min_owners = 3", "min_owners = 2"))
    ran = CliRunner().invoke(main, ["plan", "--policy", str(path), "--html", str(tmp_path / "page.html")])
    assert ran.exit_code == 3
    assert "was changed after it was made" in ran.output
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--policy", "f.toml", "--clients", "3"], "--policy says it all: leave out --clients"),
        (["--policy", "f.toml", "--min-owners", "1"], "--policy says it all: leave out --min-owners"),
        (["--html", "x.html", "--clients", "3", "--entities", "9", "--dim", "2"], "--html needs --policy"),
        (["--clients", "3", "--dim", "2"], "--entities is missing; or give a federation file with --policy"),
    ],
)
def test_what_does_not_go_together_is_told(words: list[str], says: str) -> None:
    ran = CliRunner().invoke(main, ["plan", *words])
    assert (ran.exit_code, says in " ".join(ran.output.split())) == (2, True), ran.output


def test_a_roster_writes_toml_and_says_what_the_options_are(tmp_path: Path) -> None:
    for name in ("server", *NAMES[:3]):
        CliRunner().invoke(main, ["keygen", str(tmp_path / name)])
    words = [f"--client={name}={tmp_path / name}.pub" for name in NAMES[:3]]
    words += [f"--server={tmp_path / 'server'}.pub", "--param=dim=4", "--param=max_entities=5", "--param=max_union=9"]
    for options in (["min_owners=2", "max_weight=10"], ["partial=True"], ["noise=0.5", "min_owners=3"]):
        more = [f"--param={option}" for option in options]
        ran = CliRunner().invoke(main, ["roster", str(tmp_path / "federation.toml"), *words, *more])
        assert ran.exit_code == 0, ran.output
        assert all(option in ran.output for option in options)
        again = read_session(tmp_path / "federation.toml")
        assert again.fingerprint in ran.output
        assert set(again.params.options) == {option.partition("=")[0] for option in options}
        shown = CliRunner().invoke(main, ["roster", str(tmp_path / "federation.toml")]).output
        assert shown == ran.output
    for said_so, meant in (("true", True), ("false", False)):  # as the file spells it
        more = [f"--param=partial={said_so}"]
        ran = CliRunner().invoke(main, ["roster", str(tmp_path / "federation.toml"), *words, *more])
        assert (ran.exit_code, read_session(tmp_path / "federation.toml").params.partial) == (0, meant), ran.output


def test_sentences_are_whole() -> None:
    """They end with a full stop, and no number of one is plural."""
    for clients, form in ((2, "keyed"), (3, "keyed"), (7, "keyed"), (5, "paillier")):
        everything = policy.chapters(session(clients, form), _found(session(clients, form)), Path("federation.toml"))
        for chapter in everything:
            for line in chapter.lines:
                for words in line.says if not line.literal else ():
                    assert words.endswith((".", ")")), words
                    assert not re.search(r"\b1 clients\b|\(\)|  ", words), words


def _found(chosen: Session) -> dict[str, Any]:
    from secea.commands.plan import report

    return report(chosen.params, chosen.form, 1000.0)


def test_with_a_clip_the_page_has_an_epsilon_for_a_row_and_for_a_client(tmp_path: Path) -> None:
    made, file = session(collusion=1, noise=2.0), tmp_path / "federation.toml"
    write_session(made, file)
    ran = CliRunner().invoke(main, ["plan", "--policy", str(file), "--clip", "0.1", "--delta", "1e-6", "--json"])
    assert ran.exit_code == 0, ran.output
    row, client = (privacy.epsilon_of(made.params, 1e-6, 0.1, rows=rows) for rows in (1, made.params.max_entities or 0))
    assert f"{row:.3g} for one row of one client" in ran.output
    assert f"{client:.3g} for all {made.params.max_entities:,} rows" in ran.output
    assert all(words in " ".join(ran.output.split()) for words in privacy.assumptions(made.params, 0.1))
    write_session(session(collusion=1), file)
    none = CliRunner().invoke(main, ["plan", "--policy", str(file), "--clip", "0.1"])
    assert none.exit_code == 3
    assert "this policy has none" in none.output
    assert "--clip needs --policy" in CliRunner().invoke(main, ["plan", "--clip", "1"]).output
