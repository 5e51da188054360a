"""What a page says of its runs, whatever their folders hold; in a browser it is looked at next door."""

from __future__ import annotations

import html
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from made_up import ROUND, SETUP, make_run, write_json
from secea.cli import main
from secea.errors import DataError
from secea.report import charts, write
from secea.report.figures import GAP, percent, score, seconds, size, tick_label, ticks
from secea.report.markup import Markup, tag, text
from secea.report.picture import plane, turned
from secea.report.runs import grouped, read

LOADING = re.compile(r"""(?:src|href|action|data)\s*=|url\(|@import|https?:|//[a-z]|\son\w+\s*=""", re.IGNORECASE)
"""What could make a page load or run something."""


INLINE = {"b", "em", "i", "small", "tspan"}


class Elements(HTMLParser):
    """The elements of a page, and its text, with spaces between what does not stand in one line."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: set[str] = set()
        self.words = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self.words += "" if tag in INLINE else " "

    def handle_data(self, data: str) -> None:
        self.words += data


def page_of(*folders: Path, out: Path | None = None) -> str:
    return write(folders, out)[0].read_text(encoding="utf-8")


def words_of(*folders: Path, out: Path | None = None) -> str:
    return " ".join(Elements(page_of(*folders, out=out)).words.split())


def finals(folder: Path, **values: float) -> None:
    """Other final values of the main metric."""
    result = json.loads((folder / "result.json").read_text())
    metric = result["metric"]
    result["methods"] = {method: {metric: value} for method, value in values.items()}
    write_json(folder / "result.json", result)


# ---------------------------------------------------------------------------------------------------- what it says


def headline_of(page: str) -> str:
    return " ".join(Elements(re.findall(r"<h1.*?</h1>", page)[0]).words.split())


def test_the_first_sentence_is_the_verdict(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    finals(run, local=0.574, secea=0.702, central=0.769)
    assert headline_of(page_of(run)) == "Sharing gains 22 % (one seed; --seeds 3 tells chance from gain)."
    sentence = "MRR rises from 0.574 alone to 0.702 with secea; with all data in one place it is 0.769."
    assert sentence in words_of(run)
    assert "Protection costs 8 % of training time." in words_of(run)
    assert "+0.128 MRR against training alone (better, 22 %)" in words_of(run)
    assert "66 % of the way from training alone" in words_of(run)


def test_where_less_is_better_a_loss_is_a_gain(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", metric="rmse", better="lower")
    finals(run, local=1.1, secea=0.9, plain=0.9, central=0.8)
    words = words_of(run)
    assert "RMSE falls from 1.100 alone to 0.900 with secea (lower is better)" in words
    assert "\N{MINUS SIGN}0.200 RMSE against training alone (better, 18 %)" in words
    assert "67 % of the way" in words
    best = re.findall(r'<em class="s\d">(\w+)</em>(?:(?!</tr>).)*?class="best"', page_of(run))
    assert best == ["secea", "plain"]


def test_seeds_of_one_configuration_are_taken_together_and_others_stand_beside_them(tmp_path: Path) -> None:
    seeds = [make_run(tmp_path / str(seed), seed=seed) for seed in range(3)]
    other = make_run(tmp_path / "other", model="rotate", clients=12)
    for folder, value in zip(seeds, (0.6, 0.7, 0.74), strict=True):
        finals(folder, local=0.5, secea=value)
    groups = grouped([read(folder) for folder in (*seeds, other)])
    assert [(group.label, len(group.runs)) for group in groups] == [("transe", 3), ("rotate", 1)]
    words = words_of(*seeds)
    assert "mean of 3 runs (seeds 0, 1, 2)" in words
    assert headline_of(page_of(*seeds)) == "Sharing gains 36 % (3 seeds, \N{PLUS-MINUS SIGN}36 %)."
    assert "0.600 to 0.740" in words
    together = words_of(*seeds, other, out=tmp_path / "all.html")
    assert "Sharing gains 36 % (transe); gains 22 % (rotate)." in together
    assert "2 0.5000 0.7400 +0.2400 mean 0.5000 0.6800 +0.1800 \N{PLUS-MINUS SIGN} 0.1791" in words
    assert "clients 8 12" in together, "whatever else differs stands below"
    same_model = [make_run(tmp_path / f"lr {lr}", lr=lr, dp={"epsilon": 1 / lr}) for lr in (0.5, 0.25)]
    labels = [group.label for group in grouped([read(folder) for folder in same_model])]
    assert labels == ["epsilon 2", "epsilon 4"]


OPTIONS: list[dict[str, Any]] = [
    {}, {"min_owners": 3}, {"min_owners": 3, "weights": True},
    {"min_owners": 3, "weights": True, "dp": {"epsilon": 8.0, "clip": 0.1}},
]  # fmt: skip


def test_options_of_the_means_are_called_by_words_and_compared(tmp_path: Path) -> None:
    bare = {"min_owners": 1, "weights": False, "dp": None}
    runs = [make_run(tmp_path / str(n), **(bare | options)) for n, options in enumerate(OPTIONS)]
    for folder, value in zip(runs, (0.7, 0.65, 0.668, 0.1), strict=True):
        finals(folder, secea=value, plain=value)
    labels = [group.label for group in grouped([read(folder) for folder in runs])]
    few = "3 owners or more"
    assert labels == ["no options", few, f"{few}, weighted", f"{few}, weighted, epsilon 8"]
    words = words_of(*runs)
    assert "what weights gained \N{EN DASH} \N{EN DASH} +0.018 (secea) \N{EN DASH}" in words
    assert "entities below the minimum, all clients \N{EN DASH} 108 108 108" in words
    assert "epsilon of a row \N{EN DASH} \N{EN DASH} \N{EN DASH} 8" in words
    assert "epsilon of a client \N{EN DASH} \N{EN DASH} \N{EN DASH} 1,534" in words


def test_runs_that_differ_only_within_their_noise_are_told_apart(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / str(clip), dp={"epsilon": 8.0, "clip": clip}) for clip in (0.1, 0.5)]
    labels = [group.label for group in grouped([read(folder) for folder in runs])]
    assert labels == ["dp epsilon 8, clip 0.1", "dp epsilon 8, clip 0.5"]


def test_a_run_says_which_means_it_had_and_what_its_noise_is_worth(tmp_path: Path) -> None:
    words = words_of(make_run(tmp_path / "run", **OPTIONS[3]))
    for said in (
        "at most 812 times", "no mean for entities with fewer than 3 owners", "client 7 17",
        "Epsilon 8 at delta 1e-05 for one row of one client, all rounds together", "1 1.2 14.5", "40 8 1,534",
        "At least 3 are honest.",
    ):  # fmt: skip
        assert said in words, said
    bare = words_of(make_run(tmp_path / "bare"))
    assert "Which means" not in bare
    assert "Differential privacy" not in bare


def test_a_run_that_is_not_finished_is_reported_as_such(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", finished=False)
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"method": "secea", "rou')  # killed in the middle of a line
    words = words_of(run)
    assert "is unfinished (rounds: local 10 of 40, common 10 of 40, secea 10 of 40" in words
    assert "So far, in round 10 of 40, sharing gains" in words
    (run / "metrics.jsonl").unlink()
    assert "Nothing was evaluated yet." in words_of(run)


@pytest.mark.parametrize("missing", ["overlap.json", "metrics.jsonl", "protocol.jsonl", "embeddings"])
def test_what_a_run_does_not_have_is_left_out(tmp_path: Path, missing: str) -> None:
    run = make_run(tmp_path / "run")
    whole = set(re.findall(r"<h2>(.*?)</h2>", page_of(run)))
    (run / missing).rename(tmp_path / "elsewhere")
    there = set(re.findall(r"<h2>(.*?)</h2>", page_of(run)))
    gone = {
        "overlap.json": {"How many entities are owned by how many clients"},
        "metrics.jsonl": {"Learning"},
        "protocol.jsonl": {"Where the time of a round went", "Bytes by phase"},
        "embeddings": {"A picture of the embeddings"},
    }
    assert whole - there == gone[missing]


def test_small_kinds_of_messages_are_drawn_as_one_and_listed_each(tmp_path: Path) -> None:
    page = page_of(make_run(tmp_path / "run"))
    assert "4 small kinds" in page  # begin, key, digest and ready, of a round
    assert all(f"<td>{kind}</td>" in page for kind in (*ROUND, *SETUP))


def test_kinds_of_work_that_the_page_does_not_know_are_counted_as_other(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    log = run / "protocol.jsonl"
    log.write_text(log.read_text().replace('"clients":', '"juggling":'))
    spent = grouped([read(run)])[0].per_round()
    assert spent["clients"] == 0
    assert spent["other"] > spent["sealing"] > 0


def test_a_run_without_secea_says_what_the_others_reached(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", methods=("local", "central"))
    assert re.search(r"Add secea to --methods\. MRR: 0\.\d{3} with local, 0\.\d{3} with central\.", words_of(run))
    assert "Protection" not in words_of(run).split("Learning")[0]


def test_a_client_without_a_value_says_why(tmp_path: Path) -> None:
    assert "no test triples" in words_of(make_run(tmp_path / "run"))


def test_the_same_runs_give_the_same_page(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    assert page_of(run) == page_of(run)


# -------------------------------------------------------------------------------------------------- what is refused


def test_a_folder_that_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"is not the folder of a run: there is no such folder; `secea train` makes"):
        read(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"is not the folder of a run: it has no config\.json"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("file", "content", "why"),
    [
        ("config.json", "{", r"config\.json cannot be read"),
        ("config.json", "[]", r"config\.json holds no JSON object"),
        ("metrics.jsonl", '{"method": "secea"\n', r"metrics\.jsonl, line 1: Expecting"),
        ("metrics.jsonl", '{"method": "secea", "round": 1}\n{"round": 3}\n', "line 2: expected an object with"),
        ("protocol.jsonl", '{"round": "one"}\n', r"protocol\.jsonl, line 1: the round is 'one', and no number"),
        ("result.json", "\udc80", r"result\.json cannot be read"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_named_with_its_line(tmp_path: Path, file: str, content: str, why: str) -> None:
    run = make_run(tmp_path / "run")
    (run / file).write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(DataError, match=why):
        write([run])


@pytest.mark.parametrize(
    "arrays",
    [
        {"names": np.array([{}], object), "matrix": np.zeros((1, 2))},
        {"names": np.array(["a"])},
        {"names": np.array("a"), "matrix": np.zeros((1, 2))},
        {"names": np.array(["a"]), "matrix": np.zeros((2, 2))},
        {"names": np.array(["a"]), "matrix": np.zeros(1)},
        {"names": np.array(["a"]), "matrix": np.array([["x", "y"]])},
    ],
    ids=["code", "no matrix", "one name", "too many rows", "one dimension", "texts"],
)
def test_embeddings_that_are_none_are_refused(tmp_path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    run = make_run(tmp_path / "run")
    path = run / "embeddings" / "secea" / "client 0.npz"
    np.savez(path, **arrays)  # type: ignore[arg-type]  # numpy's types take no names from a mapping
    with pytest.raises(DataError, match=r"client 0\.npz (holds no|is not an) .*; remove it for a page without it"):
        write([run])
    path.unlink()
    assert write([run])[0].exists()


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    options: dict[str, Any] = {"min_owners": 3, "weights": True, "dp": {"epsilon": 8.0}}
    folder = tmp_path_factory.mktemp("runs") / "run"
    run = make_run(folder, rounds=2, clients=4, methods=("local", "secea"), **options)
    (run / "embeddings").rename(run / "no embeddings")
    return run


def changed(value: Any, data: st.DataObject) -> Any:
    """Some value somewhere within becomes another."""
    if isinstance(value, dict | list) and value and data.draw(st.integers(0, 3)):
        place = data.draw(st.sampled_from(sorted(value) if isinstance(value, dict) else range(len(value))))
        value[place] = changed(value[place], data)
        return value
    return data.draw(junk)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_the_values_are_there_is_a_page_or_a_clear_error(small_run: Path, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(small_run.glob("*.json*"))))
    before = path.read_text()
    lines = before.splitlines() if path.suffix == ".jsonl" else [before]
    at = data.draw(st.integers(0, len(lines) - 1))
    lines[at] = json.dumps(changed(json.loads(lines[at]), data))
    path.write_text("\n".join(lines))
    try:
        assert page_of(small_run).endswith("</html>\n")
    except DataError as error:
        if path.name not in str(error):
            raise
    finally:
        path.write_text(before)


# ----------------------------------------------------------------------------------------------------- what it loads


def test_a_page_has_nothing_that_loads_or_runs(tmp_path: Path) -> None:
    page = page_of(make_run(tmp_path / "run"))
    assert LOADING.search(page) is None
    for bad in ("<img src=x>", "<a href='x'>", "background:url(x)", "@import 'x'", "see http://x", "<p onclick=x>"):
        assert LOADING.search(bad), bad
    assert "default-src 'none'; style-src 'unsafe-inline'" in html.unescape(page)
    assert not {"script", "link", "img", "iframe", "object", "embed", "form", "a", "base"} & set(Elements(page).names)


BAD = "\"'><script>alert(1)</script><svg onload=x>&lt;\x00\u202e\ud800"


def test_text_from_a_run_never_becomes_markup(tmp_path: Path) -> None:
    """Entities, settings, methods, metrics, kinds of messages, reasons and messages: all of them hostile."""
    run = make_run(tmp_path / "run", names=[f"{BAD.encode(errors='replace').decode()}{i}" for i in range(135)])
    clean = Elements(page_of(run))
    for path in run.glob("*.json*"):
        content = path.read_text()
        for word in (
            "umls",
            "transe",
            "no test triples",
            "hits@1",
            "common",
            "client 1",
            "upload",
            "greeting",
            "its metrics",
        ):
            content = content.replace(word, json.dumps(BAD)[1:-1])
        path.write_text(content)
    found = Elements(page_of(run))
    assert set(found.names) == set(clean.names)
    assert found.attributes == clean.attributes
    assert "alert(1)" in found.words
    assert not re.search("[\x00\u202e\ud800]", found.words)


@given(st.text())
def test_what_is_escaped_comes_back_as_it_was(words: str) -> None:
    seen = Elements(f"<b>{text(words)}</b>")
    assert seen.names == ["b"]
    kept = re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", "\ufffd", words)
    assert seen.words == kept.encode(errors="replace").decode()


def test_markup_is_kept_and_attributes_are_escaped() -> None:
    assert tag("b", Markup("<i>x</i>"), "<", class_='"', title=None) == '<b class="&quot;"><i>x</i>&lt;</b>'


# ---------------------------------------------------------------------------------------------- numbers and drawings


def spaced(words: str) -> str:
    """With plain spaces: a number and its unit are never torn apart."""
    return words.replace(GAP, " ")


def test_numbers_are_written_for_people() -> None:
    assert [score(x) for x in (0.70249, -1.5, 123.45, None)] == ["0.702", "-1.500", "123.5", "\N{EN DASH}"]
    shares = [spaced(percent(x)) for x in (0.0823, 0.012, 0.0001, 12.0)]
    assert shares == ["8 %", "1.2 %", "less than 0.1 %", "1,200 %"]
    assert [spaced(seconds(x)) for x in (0.0, 0.004, 0.105, 1.31, 600.0, 7200.0)] == [
        "0 ms", "4 ms", "105 ms", "1.3 s", "10.0 min", "2.0 h",
    ]  # fmt: skip
    assert [spaced(size(x)) for x in (0, 999, 1800, 4_571_392, 2.5e9)] == ["0 B", "999 B", "1.8 kB", "4.6 MB", "2.5 GB"]


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6), st.integers(2, 9))
def test_ticks_are_round_distinct_and_within(low: float, span: float, about: int) -> None:
    marks = ticks(low, low + span, about)
    assert 1 <= len(marks) <= 2.5 * about + 1
    slack = 1e-6 * span + 4 * math.ulp(abs(low) + span)
    assert all(low - slack <= mark <= low + span + slack for mark in marks)
    if len(marks) > 1:
        assert len({tick_label(mark, marks[1] - marks[0]) for mark in marks}) == len(marks)


@given(st.lists(st.floats(0, 300), min_size=1, max_size=8))
def test_labels_keep_their_order_and_their_distance(wanted: list[float]) -> None:
    placed = charts._apart(wanted, 17, 0, 300)
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    steps = np.diff([placed[i] for i in order])
    assert (steps >= 17 - 1e-6).all()
    assert min(placed) >= -1e-6
    assert max(placed) <= 300 + 1e-6


def test_the_plane_is_that_of_the_largest_variance_and_turning_keeps_distances() -> None:
    rng = np.random.default_rng(1)
    flat = rng.normal(size=(50, 2)) * [5, 2]
    basis = np.linalg.qr(rng.normal(size=(9, 9)))[0][:2]
    points, kept = plane(flat @ basis + 3)
    assert kept == pytest.approx(1)
    centred = flat - flat.mean(axis=0)
    assert np.allclose(np.linalg.norm(points, axis=1), np.linalg.norm(centred, axis=1))
    assert np.allclose(turned(points, centred), centred)
    assert plane(np.ones((3, 4)))[1] == 0
    assert plane(np.zeros((2, 1)))[0].shape == (2, 2)
    assert plane(np.full((2, 3), np.nan))[0].tolist() == [[0, 0], [0, 0]]


def test_no_more_points_than_can_be_seen_and_the_same_ones_in_both_pictures(tmp_path: Path) -> None:
    page = page_of(make_run(tmp_path / "run", names=[f"e{i}" for i in range(3000)]))
    named = re.findall(r"<circle[^>]*point[^>]*><title>(e\d+)", page)
    assert len(named) == 800
    assert named[:400] == named[400:]


# --------------------------------------------------------------------------------------------------- the command line


def test_the_command_writes_into_the_run_or_where_it_is_told_and_opens_a_browser(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    run = make_run(tmp_path / "a run")
    result = CliRunner().invoke(main, ["report", str(run)])
    assert (result.exit_code, result.output) == (0, f"wrote {run / 'report.html'}\n")
    assert not opened
    out = tmp_path / "x.html"
    assert CliRunner().invoke(main, ["report", str(run), "--out", str(out), "--open"]).exit_code == 0
    assert opened == [out.as_uri()]
    assert out.read_text() == (run / "report.html").read_text()


def test_a_mistake_on_the_command_line_is_a_sentence(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["report", str(tmp_path)])
    assert result.exit_code == 3
    assert result.output.startswith(f"secea: {tmp_path} is not the folder of a run")
    run = make_run(tmp_path / "run")
    result = CliRunner().invoke(main, ["report", str(run), "--out", str(tmp_path / "no" / "where.html")])
    assert result.exit_code == 3
    assert "cannot be written" in result.output
