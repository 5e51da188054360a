"""What metrics follow from a log, and what does not."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopback import N, World
from monitor import NAMES, Monitor, line, progress, session, stage
from secea.engines.meters import EVENTS, METRICS, OTHER
from secea.engines.port import Cause

ROOT = Path(__file__).parents[2]
KNOWN = {*NAMES, *map(str, Cause), OTHER, "completed", "failed", "lost", "transmit", "receive"}
START = line("start", run="7", session=session().fingerprint, rounds=3, party="the server")


def test_rounds_are_counted_with_who_took_part_and_how_long_they_took() -> None:
    seen = Monitor().take(
        START, progress(0, 5, 5, 9.0), line("round", number=1, clients=["north", "south"]), progress(1, 10, 20, 2.5),
        line("round lost", why="south: ..."), line("round", number=3, clients=["north"]), progress(2, 15, 30, 4.0),
    )  # fmt: skip
    assert (seen["secea.rounds", "completed"], seen["secea.rounds", "lost"]) == (2, 1)
    assert [seen["secea.client.rounds", name] for name in NAMES] == [2, 1, 0]
    assert seen["secea.round.duration",] == (2, 6.5), "the set-up is no round"
    assert (seen["secea.run.rounds.asked",], seen["secea.run.rounds.done",]) == (3, 2)


def test_a_stage_lasts_until_the_next_event_that_ends_it() -> None:
    seen = Monitor().take(
        START, stage(10.0), line("replied", 11.0, client="north"), line("lost", 12.0, client="west", cause="slow"),
        stage(13.0, "upload"), line("round", 13.5, number=1, clients=[]), stage(14.0), line("failed", 15.0, why="x"),
    )  # fmt: skip
    assert seen["secea.stage.duration", "ready"] == (2, 4.0)
    assert seen["secea.stage.duration", "upload"] == (1, 0.5)


def test_a_server_that_died_in_a_stage_ended_none() -> None:
    seen = Monitor().take(START, stage(10.0), START, stage(9000.0), line("end", 9001.0))
    assert seen["secea.stage.duration", "ready"] == (1, 1.0)
    assert (seen["secea.run.starts",], seen["secea.run.ends", "completed"]) == (2, 1)


def test_a_clock_that_is_put_back_makes_no_negative_time() -> None:
    assert Monitor().take(START, stage(10.0), line("end", 3.0))["secea.stage.duration", "ready"] == (1, 0.0)


def test_bytes_of_runs_add_up_although_each_run_counts_its_own() -> None:
    seen = Monitor().take(START, progress(0, 10, 1), progress(1, 25, 4), START, progress(0, 7, 2))
    assert (seen["secea.network.io", "transmit"], seen["secea.network.io", "receive"]) == (32, 6)


def test_losses_have_their_client_and_cause_and_refusals_their_kind() -> None:
    seen = Monitor().take(
        START, *(line("lost", client="west", cause=cause, why="...") for cause in Cause),
        line("refused", kind="upload", bytes=7, why="...", suspects=["west"]), line("refused", why="..."),
    )  # fmt: skip
    assert [seen["secea.losses", "west", cause] for cause in Cause] == [1] * len(Cause)
    assert (seen["secea.refusals", "upload"], seen["secea.refusals", OTHER]) == (1, 1)


def test_what_each_client_does_is_one_of_its_states() -> None:
    def doing() -> dict[str, list[str]]:
        seen = monitor.seen()
        return {name: [key[2] for key, value in seen.items() if key[:2] == (metric, name) and value] for name in NAMES}

    metric, monitor = "secea.client.status", Monitor()
    monitor.take(START, line("here", client="north"), line("here", client="south"))
    assert doing() == {"north": ["here"], "south": ["here"], "west": ["unknown"]}
    monitor.take(stage(1.0, clients=["north", "south"], training=True), line("replied", client="north"))
    monitor.take(line("lost", client="south", cause="slow", why="..."))
    assert doing() == {"north": ["here"], "south": ["lost"], "west": ["unknown"]}
    monitor.take(START)
    assert doing() == {key: ["unknown"] for key in NAMES}


def test_a_run_is_active_until_it_ends() -> None:
    monitor = Monitor()
    active = [
        monitor.take(*lines)["secea.run.active",] for lines in ([], [START], [line("end")], [START], [line("failed")])
    ]
    assert active == [0, 1, 0, 1, 0]


def test_at_a_site_messages_trainings_and_stops_are_counted() -> None:
    seen = Monitor(server=False).take(
        START, line("sent", bytes=10, kind="hello"), line("accepted", bytes=5, kind="begin"),
        line("ignored", bytes=1, kind="begin"), line("refused", bytes=2, kind="begin", why="..."),
        line("trained", round=1, seconds=3.5), line("stopped", why="...", trace="..."), line("left out", why="..."),
        line("end"),
    )  # fmt: skip
    assert (seen["secea.network.io", "transmit"], seen["secea.network.io", "receive"]) == (10, 8)
    assert seen["secea.training.duration",] == (1, 3.5)
    assert [seen[name,] for name in ("secea.core.starts", "secea.core.stops", "secea.exclusions")] == [1, 1, 1]
    assert seen["secea.run.ends", "completed"] == 1


def test_memory_of_the_server_is_as_it_is_and_that_of_a_site_is_rounded_up_to_a_power_of_two() -> None:
    more = {"memory": 300 << 20, "peak": 513 << 20}
    server = Monitor().take(progress(1, 1, 1, **more))
    site = Monitor(server=False).take(line("trained", round=1, seconds=1.0, **more))
    for seen, expected in ((server, (300 << 20, 513 << 20)), (site, (512 << 20, 1 << 30))):
        assert (seen["secea.memory.usage",], seen["secea.memory.peak",]) == expected


def test_labels_follow_the_federation_file_when_a_run_of_another_session_begins() -> None:
    monitor = Monitor()
    monitor.take(START, line("here", client="west"))
    monitor.now = session(("north", "south", "east"))
    seen = monitor.take(line("start", session=monitor.now.fingerprint, rounds=1), line("here", client="east"))
    assert seen["secea.client.status", "east", "here"] == 1
    assert not any(seen[key] for key in seen if key[:2] == ("secea.client.status", "west"))
    assert monitor.take(line("lost", client="west", cause="slow", why=""))["secea.losses", OTHER, "slow"] == 1


# ------------------------------------------------------------------------------------------------- what does not count

SECRETS = st.sampled_from(["aspirin", "client 65534", "x" * 300, 'a"b\n', "south\x00", "", "north "])
VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | SECRETS | st.sampled_from(NAMES),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SECRETS, inner, max_size=3),
    max_leaves=4,
)
FIELDS = sorted({field for fields in EVENTS.values() for field in fields} | {"why", "trace", "count", "suspects"})
WORDS = [*sorted(EVENTS), "names wait", "waiting", "training", "aspirin"]


@st.composite
def hostile(draw: st.DrawFn) -> bytes:
    """A line that is like one of ours, with anything in its fields."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=50) | st.sampled_from([b"[" * 100_000, b"1e999", b'{"time": 1', b"\xff\xfe"]))
    fields = draw(st.dictionaries(st.sampled_from(FIELDS), VALUES | st.integers(0, 10) | st.lists(SECRETS)))
    now = draw(st.floats() | st.integers() | st.just(5.0) | st.none())
    return json.dumps({"event": draw(st.sampled_from(WORDS) | VALUES), "time": now} | fields).encode()


@pytest.mark.parametrize("server", [True, False])
@given(lines=st.lists(hostile(), max_size=20))
def test_no_log_whatever_is_in_it_makes_a_label_a_negative_number_or_an_error(server: bool, lines: list[bytes]) -> None:
    monitor = Monitor(server=server)
    for _, *labels in monitor.take(*lines):
        phases = {row.phase for row in monitor.now.rows} | {"greeting", "rest", "stopped", monitor.now.form.end_phase}
        kinds = {kind.name.lower() for kind in monitor.now.form.kinds}
        assert set(labels) <= KNOWN | phases | kinds | {"unknown", "here", "works", "trains"}
    for value in monitor.seen().values():
        assert value >= 0 if not isinstance(value, tuple) else min(value) >= 0


def test_events_that_say_what_only_one_party_knows_change_nothing() -> None:
    for server in (True, False):
        monitor = Monitor(server=server)
        before = monitor.take(START)
        secrets = {"count": 17, "why": "aspirin", "bytes": 3, "seconds": 4, "client": "north", "rounds": 8}
        for event in ("names wait", "waiting", "training", "anything"):
            assert monitor.take(line(event, 5000.0, **secrets)) == before, event


def test_what_is_exported_is_what_the_tables_list(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(secea\.[\w.]+)` \| (.*) \|$", page, re.MULTILINE))
    assert rows.keys() == METRICS.keys()
    for name, metric in METRICS.items():
        kind, unit, at, labels, _ = (cell.strip() for cell in rows[name].split("|"))
        labelled = tuple(re.findall(r"`([\w.]+)`", labels))
        assert (kind, unit, at, labelled) == (metric.kind, f"`{metric.unit}`", metric.at, metric.labels), name


# --------------------------------------------------------------------------------------------------- real federations


def without_time(seen: dict[tuple[str, ...], object]) -> dict[tuple[str, ...], object]:
    timed = ("secea.log.last_event", "secea.stage.duration", "secea.training.duration", "secea.memory")
    return {key: value for key, value in seen.items() if not key[0].startswith(timed)}


def of_a_world(folder: Path, sizes: list[int]) -> list[dict[tuple[str, ...], object]]:
    """What the metrics of server and sites are after two rounds, where clients have so many entities of nine."""
    world = World(folder)
    world.sets = [[f"e{(i + n) % 9}" for i in range(sizes[n])] for n in range(N)]
    world.hosts = {n: world.host(n) for n in range(N)}
    world.driver.setup()
    world.round()
    world.round()
    found = []
    for name in ("server", *range(N)):
        monitor = Monitor(world.session, server=name == "server")
        found.append(without_time(monitor.take(*(folder / f"{name}.log").read_bytes().splitlines())))
    return found


def test_metrics_of_all_parties_are_the_same_whoever_owns_what(tmp_path: Path) -> None:
    """The union has nine entities in both; who has which, and how many of them, differs."""
    assert of_a_world(tmp_path / "a", [9, 1, 2, 3]) == of_a_world(tmp_path / "b", [3, 9, 9, 7])


def test_a_log_of_a_real_federation_has_what_metrics_need(tmp_path: Path) -> None:
    server, *sites = of_a_world(tmp_path, [9, 5, 4, 3])
    assert server["secea.rounds", "completed"] == 2
    assert all(server["secea.client.rounds", f"client {n}"] == 2 for n in range(N))
    for site in sites:
        assert isinstance(site["secea.network.io", "transmit"], int)
        assert site["secea.network.io", "transmit"] > 10_000
    text = (tmp_path / "0.log").read_text()
    assert all("memory" in json.loads(each) for each in text.splitlines() if '"trained"' in each)
