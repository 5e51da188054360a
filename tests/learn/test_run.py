"""Whole runs: the folder, resuming at any point, and the command line."""

from __future__ import annotations

import json
import re
import shutil
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console

from graphs import Screen, a_run, write_triples
from secea.cli import main
from secea.errors import DataError, ParamsError
from secea.extras import installing
from secea.learn import methods, show
from secea.learn.folder import Folder
from secea.learn.methods import METHODS
from secea.learn.noise import Noise
from secea.learn.run import Run


def quiet(_method: str, _round: int) -> None:
    """Nobody watches."""


class KilledError(Exception):
    """Stands for the end of the process."""


def finished(folder: Path, source: Path, **settings: Any) -> dict[str, Any]:
    return a_run(folder, [source], **settings).go(quiet)


def numbers(folder: Path) -> list[tuple[str, int, Any]]:
    return [(line["method"], line["round"], line["metrics"]) for line in Folder(folder).lines("metrics.jsonl")]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_triples(tmp_path / "t.tsv", 200)


@pytest.mark.slow
def test_a_run_killed_after_any_round_continues_to_the_same_numbers(tmp_path: Path, source: Path) -> None:
    methods = ("local", "plain", "central")
    finished(tmp_path / "whole", source, methods=methods)
    truth = numbers(tmp_path / "whole")
    for stop in [(method, number) for method in methods for number in range(4)]:
        folder = tmp_path / f"{stop[0]}-{stop[1]}"
        run = a_run(folder, [source], methods=methods)

        def kill(method: str, round: int, stop: tuple[str, int] = stop) -> None:
            if (method, round) == stop:
                raise KilledError

        with pytest.raises(KilledError):
            run.go(kill)
        Run.resume(folder).go(quiet)
        assert numbers(folder) == truth
        for method in methods:
            for path in (tmp_path / "whole" / "embeddings" / method).iterdir():
                with np.load(path) as a, np.load(folder / "embeddings" / method / path.name) as b:
                    assert np.array_equal(a["matrix"], b["matrix"])
        assert not (folder / "checkpoint").exists()


@pytest.mark.parametrize("torn", ["line", "lines", "new checkpoint", "no result"])
def test_what_a_kill_leaves_half_written_is_written_again(tmp_path: Path, source: Path, torn: str) -> None:
    truth = finished(tmp_path / "whole", source, methods=("plain",))
    folder = tmp_path / "torn"
    run = a_run(folder, [source], methods=("plain",))

    def kill(method: str, round: int) -> None:
        if round == (3 if torn == "no result" else 2):
            raise KilledError

    with pytest.raises(KilledError):
        run.go(kill)
    with (folder / "metrics.jsonl").open("a", encoding="utf-8") as log:
        if torn == "line":
            log.write('{"method": "plain", "rou')
        if torn == "lines":
            log.write(json.dumps({"method": "plain", "round": 3, "metrics": {"mrr": 9.0}}) + "\n")
    if torn == "new checkpoint":
        (folder / "checkpoint" / "plain.npz.7.new").write_bytes(b"half of")
    result = Run.resume(folder).go(quiet)
    assert result["methods"] == truth["methods"]
    assert numbers(folder) == numbers(tmp_path / "whole")


def test_a_secure_run_that_was_killed_sets_up_again_and_gives_the_same_to_the_resolution(
    tmp_path: Path, source: Path
) -> None:
    truth = finished(tmp_path / "whole", source, methods=("secea", "plain"))
    run = a_run(tmp_path / "killed", [source], methods=("secea", "plain"))

    def kill(method: str, round: int) -> None:
        if round == 2:
            raise KilledError

    with pytest.raises(KilledError):
        run.go(kill)
    result = Run.resume(tmp_path / "killed").go(quiet)
    lines = Folder(tmp_path / "killed").lines("protocol.jsonl")
    assert [(line["round"], line.get("resumed")) for line in lines] == [(0, 0), (1, None), (2, None), (0, 2), (3, None)]
    for name in ("secea", "plain"):
        assert result["methods"][name] == pytest.approx(truth["methods"][name], abs=2e-3)
    assert result["methods"]["secea"] == pytest.approx(result["methods"]["plain"], abs=2e-3)


def test_a_terminal_shows_the_set_up_and_each_method(tmp_path: Path, source: Path) -> None:
    screen = Console(file=Screen(), force_terminal=True, width=80)
    run = a_run(tmp_path / "run", [source], methods=("secea", "plain"), rounds=1)
    with show.bars(run.config.methods, run.config.rounds, screen) as (watch, progress):
        run.go(watch, progress)
    shown = screen.file.getvalue()  # type: ignore[attr-defined]  # it is a StringIO
    assert all(re.search(rf"{name} .*{done}", shown) for name, done in (("set-up", "100/100"), ("secea", "1/1")))
    with show.bars(("local",), 1, Console(file=StringIO())) as (_, silent):
        assert silent is None


def test_embeddings_beyond_max_abs_stop_a_run_with_advice(tmp_path: Path, source: Path) -> None:
    words = ("kg", "--data", str(source), "--clients", "3", "--rounds", "1", "--methods", "secea", "--max-abs", "0.01")
    ran = invoke(*words, "--out", str(tmp_path / "run"))
    assert ran.exit_code == 3
    assert "beyond the range of the secure means, 0.01; begin a new run with --max-abs" in ran.output


def test_a_finished_run_is_not_run_again(tmp_path: Path, source: Path) -> None:
    result = finished(tmp_path / "run", source, methods=("local",))
    assert Run.resume(tmp_path / "run").go(lambda _method, _round: pytest.fail("it ran")) == result
    with pytest.raises(DataError, match="is not empty; continue its run with --resume"):
        a_run(tmp_path / "run", [source])


def test_resuming_with_other_data_or_no_run_is_refused(tmp_path: Path, source: Path) -> None:
    a_run(tmp_path / "run", [source])
    write_triples(source, 190)
    with pytest.raises(DataError, match=r"the data of .* has changed"):
        Run.resume(tmp_path / "run")
    with pytest.raises(DataError, match=r"is no run folder: it has no config\.json"):
        Run.resume(tmp_path)
    (tmp_path / "run" / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(DataError, match="does not hold the settings of a run"):
        Run.resume(tmp_path / "run")


def test_the_folder_holds_what_the_contract_says(tmp_path: Path, source: Path) -> None:
    result = finished(tmp_path / "run", source)
    folder = Folder(tmp_path / "run")
    assert folder.read_json("result.json") == json.loads(json.dumps(result))
    config, overlap = folder.read_json("config.json"), folder.read_json("overlap.json")
    assert config is not None
    assert overlap is not None
    assert config["methods"] == list(METHODS) == list(result["methods"])
    assert (config["metric"], config["better"], config["dp"], config["clients"]) == ("mrr", "higher", None, 4)
    assert sum(overlap["owners"].values()) == overlap["union"]
    assert sum(int(k) * v for k, v in overlap["owners"].items()) == sum(c["entities"] for c in overlap["clients"])
    lines = folder.lines("metrics.jsonl")
    assert [(x["method"], x["round"]) for x in lines] == [(m, r) for m in METHODS for r in range(4)]
    assert all(set(x["clients"]) == {f"client {n}" for n in range(4)} for x in lines)
    assert all(set(x["seconds"]) == {"training", "aggregation", "evaluation"} for x in lines)
    assert lines[0]["loss"] is None
    assert lines[1]["loss"] > 0
    protocol = folder.lines("protocol.jsonl")
    assert [x["round"] for x in protocol] == [0, 1, 2, 3]
    assert result["protection"]["round_bytes"] == sum(protocol[-1]["bytes"].values())
    assert result["protection"]["setup_bytes"] == sum(protocol[0]["bytes"].values())
    assert {path.name for path in (tmp_path / "run" / "embeddings").iterdir()} == set(METHODS)
    starts = {method: x["metrics"] for method in METHODS[:4] for x in lines if (x["method"], x["round"]) == (method, 0)}
    assert len({json.dumps(x) for x in starts.values()}) == 1, "methods start from different embeddings"


def test_clients_of_very_different_size_are_handled_and_told(tmp_path: Path) -> None:
    large = write_triples(tmp_path / "large.tsv", 150)
    (tmp_path / "single.tsv").write_text("n0\tr0\tn1\n", encoding="utf-8")
    (tmp_path / "other.tsv").write_text("a\tx\tb\nb\tx\tc\n", encoding="utf-8")
    files = [large, tmp_path / "single.tsv", tmp_path / "other.tsv"]
    run = a_run(tmp_path / "run", files, clients=None, rounds=2)
    result = run.go(quiet)
    assert "single has no test triples: it has no metrics, and counts in no mean" in result["messages"]
    last = Folder(tmp_path / "run").lines("metrics.jsonl")[-1]
    assert last["clients"]["single"] == {"mrr": None, "why": "no test triples"}
    assert all(values["mrr"] is not None for values in result["methods"].values())


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"split": "files"}, "--split files needs one file for each client"),
        ({"collusion": 4}, "leave the method secea out"),
        ({"device": "nonsense"}, "--device nonsense cannot be used"),
    ],
)
def test_settings_that_do_not_fit_the_data_are_refused(
    tmp_path: Path, source: Path, settings: dict[str, Any], error: str
) -> None:
    with pytest.raises(ParamsError, match=error):
        a_run(tmp_path / "run", [source], **settings)
    assert not (tmp_path / "run").exists()


def test_data_that_came_split_is_not_split_again(tmp_path: Path, source: Path) -> None:
    other = write_triples(tmp_path / "u.tsv", 30)
    for settings in ({"split": "own"}, {"clients": 3}):
        with pytest.raises(ParamsError, match="comes split among 2 clients"):
            a_run(tmp_path / "run", [source, other], methods=("local",), **({"clients": 2} | settings))


def test_noise_is_the_same_for_all_methods_and_the_epsilon_is_told(tmp_path: Path, source: Path) -> None:
    dp = {"epsilon": 50.0, "delta": 1e-5, "clip": 0.1, "shared": False}
    result = finished(tmp_path / "run", source, methods=("local", "secea", "plain"), dp=dp)
    silent = finished(tmp_path / "quiet", source, methods=("local", "plain"))
    assert result["epsilon"] == pytest.approx(50.0, rel=0.02)
    assert result["privacy"]["epsilon_table"] > result["epsilon"]
    assert result["methods"]["secea"] == pytest.approx(result["methods"]["plain"], abs=2e-3)
    assert result["methods"]["local"] == silent["methods"]["local"]
    with (
        np.load(tmp_path / "run/embeddings/plain/client 0.npz") as a,
        np.load(tmp_path / "quiet/embeddings/plain/client 0.npz") as b,
    ):
        assert np.abs(a["matrix"] - b["matrix"]).max() > 0.01
    assert not list((tmp_path / "run").rglob("*.key"))


def test_what_has_no_mean_goes_on_as_it_was_trained_and_changes_are_counted_from_what_others_know(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row below the minimum keeps what the client learned, without noise; what it uploads stays near a public row."""
    dp = {"epsilon": 8.0, "delta": 1e-5, "clip": 1e-3, "shared": False}
    seen: list[tuple[Any, Any, Any]] = []
    leaving = Noise.leaving

    def watched(self: Noise, public: Any, own: Any, client: int, round: int) -> Any:
        seen.append((round, public.copy(), own.copy()))
        return leaving(self, public, own, client, round)

    monkeypatch.setattr(Noise, "leaving", watched)
    run = a_run(tmp_path / "run", [source], methods=("plain",), dp=dp, min_owners=4, clients=4, share=0.3)
    first = [run.task.learner(n).table() for n in range(4)]
    result = run.go(quiet)
    owners = np.bincount(np.concatenate(run.task.ids))
    below = [owners[own] < 4 for own in run.task.ids]
    assert result["sharing"]["below_minimum"] == dict(zip(run.clients, map(int, map(sum, below)), strict=True))
    assert any(each.any() for each in below)
    for at, (number, public, own) in enumerate(seen):
        n = at % 4
        assert number == 1 + at // 4
        assert np.array_equal(public[below[n]], first[n][below[n]]), "nothing of the client's data is taken for public"
        if number == 3 and below[n].any():
            assert np.abs(own[below[n]] - first[n][below[n]]).max() > 0.01, "it has learned"
    with np.load(tmp_path / "run/embeddings/plain/client 0.npz") as final:
        kept = final["matrix"][below[0]]
    assert np.array_equal(kept, seen[8][2][below[0]].astype(np.float32)), "no noise on what was not shared"


def test_a_run_with_noise_that_was_killed_goes_on_from_the_same_public_rows(tmp_path: Path, source: Path) -> None:
    dp = {"epsilon": 8.0, "delta": 1e-5, "clip": 0.01, "shared": False}
    run = a_run(tmp_path / "run", [source], methods=("plain",), dp=dp, min_owners=4, share=0.3)

    def kill(method: str, round: int) -> None:
        if round == 2:
            raise KilledError

    with pytest.raises(KilledError):
        run.go(kill)
    saved = Folder(tmp_path / "run").saved("plain")
    assert saved is not None
    below = np.bincount(np.concatenate(run.task.ids))[run.task.ids[0]] < 4
    state = saved[1][0]
    assert np.array_equal(state["public"][~below], state["shared"][~below])
    assert not np.array_equal(state["public"][below], state["shared"][below])
    shutil.copytree(tmp_path / "run", tmp_path / "again")
    finals = []
    for folder in ("run", "again"):
        Run.resume(tmp_path / folder).go(quiet)
        with np.load(tmp_path / folder / "embeddings/plain/client 0.npz") as final:
            finals.append(final["matrix"])
    assert np.array_equal(*finals)


def test_with_all_options_secea_is_plain_and_the_result_says_what_was_asked_for(tmp_path: Path, source: Path) -> None:
    dp = {"epsilon": 200.0, "delta": 1e-5, "clip": 0.05, "shared": False}
    asked = {"methods": ("secea", "plain"), "min_owners": 3, "weights": True}
    bare = finished(tmp_path / "bare", source, **asked)
    result = finished(tmp_path / "run", source, dp=dp, **asked)
    for each in (bare, result):
        # Weights are blurred by half a unit (K11): of a few dozen examples that is a hundredth of a row.
        assert each["methods"]["secea"]["mrr"] == pytest.approx(each["methods"]["plain"]["mrr"], abs=0.05)
        assert each["sharing"]["weights"]
        assert each["sharing"]["min_owners"] == 3
        assert each["sharing"]["max_weight"] > 10
        assert set(each["sharing"]["below_minimum"]) == {f"client {n}" for n in range(4)}
    assert bare["epsilon"] is None
    about = result["privacy"]
    assert about["unit"] == "one row of one client, its weight taken as known"
    assert about["rounds"][-1] == [3, result["epsilon"], about["epsilon_table"]]
    assert [r for r, _, _ in about["rounds"]] == [1, 2, 3]
    assert sorted(about["rounds"]) == about["rounds"], "epsilon grows from round to round"
    assert max(about["clients"].values()) == about["epsilon_table"]


def test_noise_of_all_together_is_told_with_who_must_be_trusted(tmp_path: Path, source: Path) -> None:
    dp = {"epsilon": 50.0, "delta": 1e-5, "clip": 0.05, "shared": True}
    run = a_run(tmp_path / "run", [source], methods=("secea", "plain"), dp=dp, collusion=1, rounds=2)
    result = run.go(quiet)
    assert result["epsilon"] == pytest.approx(50.0, rel=0.02)
    assert result["privacy"]["noise_of"] == "all clients together, on every sum"
    assert "all but 1 are honest" in result["privacy"]["trusted"][0]
    alone = finished(tmp_path / "alone", source, methods=("plain",), dp=dp | {"shared": False}, rounds=2)
    assert result["privacy"]["noise"] == pytest.approx(alone["privacy"]["noise"] * (4 / 3) ** 0.5, rel=0.01)
    with pytest.raises(ParamsError, match="noise does not go together with partial or max_weight"):
        a_run(tmp_path / "both", [source], methods=("plain",), dp=dp, weights=True)


def test_strong_noise_widens_the_range_of_the_secure_means(tmp_path: Path, source: Path) -> None:
    dp = {"epsilon": 0.5, "delta": 1e-5, "clip": 1.0, "shared": False}
    run = a_run(tmp_path / "run", [source], methods=("secea", "plain"), dp=dp)
    result = run.go(quiet)
    with np.load(tmp_path / "run/embeddings/plain/client 0.npz") as final:
        assert methods.MAX_ABS < np.abs(final["matrix"]).max() < run.params.max_abs
    assert result["methods"]["secea"]["mrr"] == pytest.approx(result["methods"]["plain"]["mrr"], abs=2e-3)


def test_the_secret_of_the_noise_is_for_its_owner_alone_and_kept_over_a_restart(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    assert folder.secret(b"a" * 32) == folder.secret(b"b" * 32) == b"a" * 32
    assert (tmp_path / "checkpoint" / "noise.key").stat().st_mode & 0o077 == 0


# ------------------------------------------------------------------------------------------------- the command line


def invoke(*words: str) -> Any:
    return CliRunner().invoke(main, ["train", *words])


def test_nations_end_to_end_prints_json(tmp_path: Path) -> None:
    out = tmp_path / "run"
    ran = invoke(
        "kg", "--data", "nations", "--clients", "3", "--rounds", "2", "--dim", "8", "--out", str(out), "--json"
    )
    assert ran.exit_code == 0, ran.output
    result = json.loads(ran.stdout)
    assert set(result["methods"]) == set(METHODS)
    for values in result["methods"].values():
        assert 0 < values["hits@1"] <= values["mrr"] <= 1
    assert result["methods"]["secea"] == pytest.approx(result["methods"]["plain"], abs=2e-3)
    assert result["run"] == str(out)
    again = invoke("--resume", str(out), "--json")
    assert json.loads(again.stdout) == result
    shown = invoke("--resume", str(out))
    assert "protection:" in shown.output
    assert all(method in shown.output for method in METHODS)


def test_ratings_and_edges_end_to_end(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    ratings = "\n".join(f"u{rng.integers(30)},i{rng.integers(15)},{rng.integers(1, 6)}" for _ in range(300))
    (tmp_path / "r.csv").write_text("user,item,rating\n" + ratings, encoding="utf-8")
    (tmp_path / "e.csv").write_text(
        "\n".join(f"{a},{(a + b) % 40}" for a in range(40) for b in (1, 2, 5)), encoding="utf-8"
    )
    for task, name, metric in (("recommend", "r.csv", "rmse"), ("social", "e.csv", "auc")):
        words = (task, "--data", str(tmp_path / name), "--clients", "3", "--rounds", "2", "--json")
        ran = invoke(*words, "--out", str(tmp_path / task))
        assert ran.exit_code == 0, ran.output
        result = json.loads(ran.stdout)
        assert result["metric"] == metric
        assert result["methods"]["secea"][metric] == pytest.approx(result["methods"]["plain"][metric], abs=2e-3)


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("kg", "--data", "no-such-thing"), 3, "no data set and no file"),
        (("kg", "--methods", "secea,magic"), 2, "there is no method 'magic'"),
        (("recommend",), 2, "Missing option '--data'"),
        ((), 2, "kg, recommend or social"),
        (("--json", "kg"), 2, "--json goes behind the task: secea train kg --json"),
        (("--resume", "nowhere"), 3, "is no run folder"),
        (("kg", "--rounds", "0"), 2, "Invalid value"),
    ],
)
def test_mistakes_are_explained_with_their_exit_code(words: tuple[str, ...], code: int, text: str) -> None:
    ran = invoke(*words)
    assert (ran.exit_code, text in ran.output) == (code, True), ran.output


def test_without_the_extra_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: None)
    ran = invoke("kg")
    assert ran.exit_code == 4
    assert ran.output == f"secea: secea train needs PyTorch and what goes with it: {installing('learn')}\n"


def test_an_interrupt_leaves_a_folder_to_go_on_with(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Folder.save

    def interrupted(self: Folder, method: str, round: int, *rest: Any) -> None:
        if round == 2:
            raise KeyboardInterrupt
        real(self, method, round, *rest)

    words = ("kg", "--data", str(source), "--clients", "3", "--rounds", "3", "--methods", "plain", "--dim", "8")
    with monkeypatch.context() as patched:
        patched.setattr(Folder, "save", interrupted)
        ran = invoke(*words, "--out", str(tmp_path / "run"))
    assert ran.exit_code == 130
    assert f"secea train --resume {tmp_path / 'run'}" in ran.output
    resumed = json.loads(invoke("--resume", str(tmp_path / "run"), "--json").stdout)
    shutil.rmtree(tmp_path / "run")
    whole = json.loads(invoke(*words, "--out", str(tmp_path / "run"), "--json").stdout)
    assert resumed["methods"] == whole["methods"]


def test_a_full_disk_leaves_a_folder_to_go_on_with(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Folder, *rest: Any) -> None:
        raise OSError(28, "No space left on device", "local.npz")

    monkeypatch.setattr(Folder, "save", full)
    words = ("kg", "--data", str(source), "--clients", "3", "--rounds", "1", "--methods", "plain", "--dim", "8")
    ran = invoke(*words, "--out", str(tmp_path / "run"))
    assert ran.exit_code == 4
    assert f"continue with: secea train --resume {tmp_path / 'run'}" in ran.output
    assert "local.npz: no space left on device; make room" in ran.output


def test_options_of_the_means_on_the_command_line(tmp_path: Path, source: Path) -> None:
    words = ("kg", "--data", str(source), "--clients", "4", "--rounds", "2", "--dim", "8", "--methods", "secea,plain")
    ran = invoke(*words, "--min-owners", "3", "--weights", "--dp-epsilon", "8", "--out", str(tmp_path / "run"))
    assert ran.exit_code == 0, ran.output
    said = " ".join(ran.output.split())
    for part in (
        "weights: training examples that touch an entity, 0 to ", "minimum: 3 owners; entities below it, without a",
        "privacy: epsilon 8 at delta 1e-05 for one row of one client, its weight taken as known", "for a client's",
    ):  # fmt: skip
        assert part in said, part
    shared = (*words, "--collusion", "1", "--dp-epsilon", "8", "--dp-shared", "--out", str(tmp_path / "shared"))
    ran = invoke(*shared)
    assert ran.exit_code == 0, ran.output
    assert "all but 1 are honest" in " ".join(ran.output.split())


@pytest.mark.parametrize(
    ("more", "error"),
    [
        (("--dp-shared",), "say how much with --dp-epsilon"),
        (("--min-owners", "5"), "min_owners must be from 1 to 4 for 4 clients, got 5"),
        (("--dp-shared", "--dp-epsilon", "8", "--weights"), "noise does not go together with partial or max_weight"),
    ],
)
@pytest.mark.parametrize("method", ["secea", "plain"])
def test_options_that_do_not_go_together_are_refused_before_anything_is_written(
    tmp_path: Path, source: Path, more: tuple[str, ...], error: str, method: str
) -> None:
    words = ("kg", "--data", str(source), "--clients", "4", "--methods", method, "--out", str(tmp_path / "run"))
    ran = invoke(*words, *more)
    assert ran.exit_code != 0
    assert error in " ".join(ran.output.split())
    assert not (tmp_path / "run").exists()
