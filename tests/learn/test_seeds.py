"""Several seeds in one go, what a run says first, and runs that cannot be measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console

from graphs import Screen, a_run, write_triples
from secea.cli import main
from secea.errors import DataError
from secea.learn import show
from secea.learn.folder import Folder
from secea.learn.run import Run
from secea.learn.seeds import Seeds
from secea.report import write

SMALL = ("--clients", "3", "--rounds", "2", "--dim", "8", "--methods", "local,plain")


def invoke(*words: str) -> Any:
    return CliRunner().invoke(main, ["train", *words])


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_triples(tmp_path / "t.tsv", 200)


def kg(source: Path, out: Path, *more: str) -> Any:
    return invoke("kg", "--data", str(source), *SMALL, "--out", str(out), *more)


def test_seeds_are_the_runs_of_each_seed_with_means_and_one_verdict(tmp_path: Path, source: Path) -> None:
    ran = kg(source, tmp_path / "all", "--seeds", "4,7", "--json")
    assert ran.exit_code == 0, ran.output
    result = json.loads(ran.stdout)
    alone = {seed: json.loads(kg(source, tmp_path / seed, "--seed", seed, "--json").stdout) for seed in ("4", "7")}
    for method, metrics in result["methods"].items():
        for name, given in metrics.items():
            values = [each["methods"][method][name] for each in alone.values()]
            assert (given["low"], given["high"]) == (min(values), max(values))
            assert given["mean"] == pytest.approx(sum(values) / 2)
    by_seed = {seed: each["verdict"]["by_seed"][seed] for seed, each in alone.items()}
    assert result["verdict"]["by_seed"] == by_seed
    assert (result["seeds"], result["verdict"]["seeds"]) == ([4, 7], [4, 7])
    assert result["runs"] == [str(tmp_path / "all" / f"seed-{seed}") for seed in (4, 7)]
    assert "seed" not in result["config"]
    assert json.loads((tmp_path / "all" / "result.json").read_text()) == result


def test_the_first_line_is_the_verdict_of_all_seeds_and_the_table_has_their_range(tmp_path: Path, source: Path) -> None:
    lines = kg(source, tmp_path / "all", "--seeds", "3").stdout.splitlines()
    verdict = json.loads((tmp_path / "all" / "result.json").read_text())["verdict"]
    assert lines[:2] == [verdict["headline"], verdict["detail"]]
    heads = [line.split()[0] for line in lines if line.split()[1:] and line.split()[1].startswith("0.")]
    assert heads == ["local", "lowest", "highest", "plain", "lowest", "highest"]
    assert "3 seeds" in "".join(lines)
    one = kg(source, tmp_path / "one").stdout.splitlines()
    assert "(one seed; --seeds 3 tells chance from gain)" in one[0]


def test_seeds_that_were_interrupted_go_on_where_they_were(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = json.loads(kg(source, tmp_path / "whole", "--seeds", "2", "--json").stdout)
    real = Folder.save

    def interrupted(self: Folder, method: str, round: int, *rest: Any) -> None:
        if self.path.name == "seed-1" and (method, round) == ("plain", 1):
            raise KeyboardInterrupt
        real(self, method, round, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(Folder, "save", interrupted)
        ran = kg(source, tmp_path / "again", "--seeds", "2")
    assert ran.exit_code == 130
    assert f"secea train --resume {tmp_path / 'again'}" in ran.output
    done = (tmp_path / "again" / "seed-0" / "result.json").stat().st_mtime_ns
    resumed = json.loads(invoke("--resume", str(tmp_path / "again"), "--json").stdout)
    assert resumed["methods"] == whole["methods"]
    assert (tmp_path / "again" / "seed-0" / "result.json").stat().st_mtime_ns == done, "what is done is not done again"
    assert invoke("--resume", str(tmp_path / "again")).exit_code == 0


def test_a_report_takes_the_folder_of_all_seeds(tmp_path: Path, source: Path) -> None:
    kg(source, tmp_path / "all", "--seeds", "2,0")
    path, groups = write([tmp_path / "all"])
    assert path == tmp_path / "all" / "report.html"
    assert [[run.config["seed"] for run in group.runs] for group in groups] == [[0, 2]]
    page = path.read_text(encoding="utf-8")
    ran = CliRunner().invoke(main, ["report", str(tmp_path / "all"), "--json"])
    (said,) = json.loads(ran.stdout)["verdicts"]
    assert said["by_seed"] == json.loads((tmp_path / "all" / "result.json").read_text())["verdict"]["by_seed"]
    assert said["headline"].replace("+-", "\N{PLUS-MINUS SIGN}").split(" (")[0].replace(
        " %", "\N{NO-BREAK SPACE}%"
    ) in (page.replace("<b>", "").replace("</b>", ""))


def test_a_terminal_shows_one_bar_for_the_rounds_of_all_seeds(tmp_path: Path, source: Path) -> None:
    screen = Console(file=Screen(), force_terminal=True, width=80)
    config = a_run(tmp_path / "x", [source], methods=("plain",), rounds=2).config
    runs = Seeds.begin(tmp_path / "all", config, [0, 1, 2])
    with show.bars(config.methods, runs.rounds, screen) as (watch, progress):
        runs.go(watch, progress)
    assert "6/6" in screen.file.getvalue()  # type: ignore[attr-defined]  # it is a StringIO


def test_a_folder_of_seeds_is_not_begun_twice_nor_with_what_cannot_be_run(tmp_path: Path, source: Path) -> None:
    kg(source, tmp_path / "all", "--seeds", "2")
    again = kg(source, tmp_path / "all", "--seeds", "2")
    assert (again.exit_code, "is not empty; continue its runs with --resume" in again.output) == (3, True)
    bad = kg(source, tmp_path / "bad", "--seeds", "2", "--device", "nonsense")
    assert (bad.exit_code, (tmp_path / "bad").exists()) == (3, False)
    (tmp_path / "all" / "seeds.json").write_text('{"seeds": "many"}')
    with pytest.raises(DataError, match="does not hold the seeds of a run"):
        Seeds.resume(tmp_path / "all")


@pytest.mark.parametrize("words", ["1", "0", "x", "1,1", "3,", "2025"])
def test_seeds_are_a_number_or_a_list_of_different_ones(tmp_path: Path, source: Path, words: str) -> None:
    ran = kg(source, tmp_path / "run", "--seeds", words)
    assert (ran.exit_code, "Invalid value for '--seeds'" in ran.output) == (2, True), ran.output
    assert not (tmp_path / "run").exists()


def test_one_seed_and_several_do_not_go_together(tmp_path: Path, source: Path) -> None:
    ran = kg(source, tmp_path / "run", "--seeds", "2", "--seed", "1")
    assert (ran.exit_code, "leave out --seed" in ran.output) == (2, True)


# -------------------------------------------------------------------------------------------- what cannot be measured


@pytest.fixture
def untested(tmp_path: Path) -> Path:
    """Two clients, with training and validation triples, and none to test on."""
    rng = np.random.default_rng(0)

    def some(count: int) -> Any:
        return np.stack([rng.integers(0, 9, count), rng.integers(0, 2, count), rng.integers(0, 9, count)], 1)

    parts = {f"{stage}_{n}": some(count) for n in (0, 1) for stage, count in (("train", 30), ("valid", 5), ("test", 0))}
    np.savez(tmp_path / "untested.npz", **parts)
    return tmp_path / "untested.npz"


@pytest.mark.parametrize("more", [(), ("--seeds", "2"), ("--json",)])
def test_a_run_without_test_data_warns_and_has_an_exit_code_of_its_own(
    tmp_path: Path, untested: Path, more: tuple[str, ...]
) -> None:
    words = ("kg", "--data", str(untested), "--rounds", "1", "--dim", "4", "--methods", "local,plain")
    ran = invoke(*words, "--out", str(tmp_path / "run"), *more)
    assert ran.exit_code == 5, ran.output
    assert ran.stderr.startswith("warning: no client has test data, so that nothing can be measured; give test rows")
    assert f"{tmp_path / 'run'} is finished, but nothing could be measured; give test rows" in ran.stderr
    says = "Nothing could be measured: no client has test triples."
    if "--json" in more:
        assert json.loads(ran.stdout)["verdict"]["headline"] == says
    else:
        assert ran.stdout.startswith(f"{says}\n")
    again = invoke("--resume", str(tmp_path / "run"))
    assert again.exit_code == 5, "also when it is shown again"
    write([tmp_path / "run"])


def test_a_run_with_test_data_does_not_warn(tmp_path: Path, source: Path) -> None:
    ran = kg(source, tmp_path / "run")
    assert (ran.exit_code, ran.stderr) == (0, "")


def test_results_of_an_older_version_get_their_verdict_when_they_are_shown(tmp_path: Path, source: Path) -> None:
    kg(source, tmp_path / "run")
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    said = result.pop("verdict")
    (tmp_path / "run" / "result.json").write_text(json.dumps(result))
    assert Run.resume(tmp_path / "run").go(lambda _method, _round: None)["verdict"] == said
