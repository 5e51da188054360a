"""`secea check`: a verdict first, everything that is wrong, and what one may say about one's own table."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

from secea.cli import main
from secea.commands import estimate, examine
from site_files import make_site

NORTH = "name,x,y\naspirin,0.5,1.0\nibuprofen,2.0,-1.0\n01,2,2\n"
SOUTH = "name,x,y\nAspirin,1.5,3.0\ncodeine,0.0,4.0\n1,2,2\n"
WEST = "name,x,y\ncodeine,1.0,2.0\naspirin,1,1\n"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples for the times of a plan take seconds, and tests of plans take them."""
    monkeypatch.setattr(estimate, "timed", lambda _: 1e-3)


def check(*words: str | Path) -> Result:
    return CliRunner().invoke(main, ["check", *map(str, words)])


def found(*words: str | Path) -> Any:
    return json.loads(check(*words, "--json").stdout)


@pytest.fixture
def three(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"{name}.csv" for name in ("north", "south", "west")]
    for path, text in zip(paths, (NORTH, SOUTH, WEST), strict=True):
        path.write_text(text, encoding="utf-8")
    return paths


def decimals(path: Path, places: int, seed: int = 0) -> Path:
    rows = np.round(np.random.default_rng(seed).uniform(-3, 3, (60, 8)), places)
    lines = (f"e{i}," + ",".join(f"{x:.{places}f}" for x in row) for i, row in enumerate(rows))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


# ------------------------------------------------------------------------------------------------------------- verdict


def test_tables_that_fit_are_told_so_on_the_first_line_with_the_accuracy(three: list[Path]) -> None:
    ran = check(*three)
    assert ran.exit_code == 0, ran.output
    first = ran.stdout.splitlines()[0]
    assert first == "fits: 3 tables, 6 entities together, dim 2; means exact to within 3.8e-06"


def test_nothing_is_written(three: list[Path]) -> None:
    before = sorted(three[0].parent.iterdir())
    check(*three)
    assert sorted(three[0].parent.iterdir()) == before


def test_everything_that_is_wrong_is_listed_and_the_exit_code_is_that_of_what_cannot_be_used(
    tmp_path: Path, three: list[Path]
) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text("name,x,y,z\na,1,nan,3\na,1,2,99\nb,1,,2\nc,1,2\nd,1,two,3\n", encoding="utf-8")
    ran = check(three[0], bad, tmp_path / "none.csv", three[1])
    assert ran.exit_code == 3
    first, *lines = ran.stdout.splitlines()
    assert first == "does not fit: 8 reasons"
    for says in (
        f"{bad}, line 2: the embedding of 'a' holds nan",
        f"{bad}, line 3: the entity 'a' is in line 2 too",
        f"{bad}, line 4: a number is missing",
        f"{bad}, line 5: a name and 2 numbers; 3 were expected",
        f"{bad}, line 6: 'two' is not a number",
        f"{tmp_path / 'none.csv'} cannot be read: no such file",
        f"{bad} has embeddings of length 3, {three[0]} of length 2; all clients need the same",
        f"{bad}, line 3: 99 is outside of [-64, 64]; give --max-abs 128",
    ):
        assert any(says in line for line in lines[:8]), says
    assert found(three[0], bad, tmp_path / "none.csv", three[1])["tables"][1]["missing"] == 2


def test_many_faults_of_a_kind_are_counted(tmp_path: Path, three: list[Path]) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text("name,x,y\n" + "".join(f"e{i},inf,1\n" for i in range(500)), encoding="utf-8")
    reasons = found(*three, bad)["reasons"]
    assert len(reasons) == 4
    assert "497 more rows with numbers that are not finite" in reasons[-1]
    bad.write_text("name,x,y\n" + "".join(f"E{i},1,1\ne{i},1,1\n" for i in range(500)), encoding="utf-8")
    reasons = found(*three, bad, "--normalize", "casefold")["reasons"]
    assert len(reasons) == examine.MOST_FAULTS + 1
    assert "495 more like these" in reasons[-1]


def test_tables_without_an_entity_in_common_do_not_fit_and_near_names_are_the_hint(three: list[Path]) -> None:
    for path, text in zip(three, ("a,1,2\n", "A,1,2\n", "b,1,2\n"), strict=True):
        path.write_text(text, encoding="utf-8")
    assert found(*three)["reasons"] == [
        "no entity is in two tables, so there is nothing to average; some names nearly match: see below"
    ]
    assert found(*three, "--normalize", "casefold")["fits"]


def test_memory_that_this_machine_does_not_have_is_a_reason(three: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examine, "machine_memory", lambda: 10_000_000)
    (reason,) = found(*three)["reasons"]
    assert "need about 60.1 MB of memory, and this machine has 10.0 MB" in reason


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--min-owners", "4"], "min_owners must be from 1 to 3 for 3 clients, got 4"),
        (["--collusion", "3"], "collusion must be from 1 to 2 for 3 clients"),
        (["--max-abs", "1"], "2 is outside of [-1, 1]; give --max-abs "),
        (["--weights", "samples"], "has no column 'samples' for weights"),
        (["--precision", "99"], "precision must be from 1 to 52 bits, got 99"),
    ],
)
def test_options_that_do_not_fit_the_tables_are_reasons(three: list[Path], words: list[str], says: str) -> None:
    ran = check(*three, *words)
    assert ran.exit_code == 3
    assert says in ran.output


def test_weights_count_in_what_is_predicted(three: list[Path]) -> None:
    for path in three:
        lines = path.read_text().splitlines()
        path.write_text("\n".join([lines[0] + ",n", *(line + ",10" for line in lines[1:])]) + "\n", encoding="utf-8")
    assert found(*three, "--weights", "n")["bound"] > 10 * found(*three, "--columns", "x,y")["bound"]


# -------------------------------------------------------------------------------------------------------------- tables


def test_each_table_is_told_in_figures(tmp_path: Path, three: list[Path]) -> None:
    coarse = decimals(tmp_path / "coarse.csv", 3)
    np.savez(
        tmp_path / "half.npz", names=np.array(["e1", "e2"]), matrix=np.ones((2, 8), np.float16) * np.float16(1 / 3)
    )
    one, other, text = found(coarse, tmp_path / "half.npz", three[0])["tables"]
    assert (one["entities"], one["dim"], one["numbers"], one["heading"]) == (60, 8, "text", False)
    assert (one["decimals"], one["coarse_rows"], -3 <= one["low"] < one["high"] <= 3) == (3, 60, True)
    assert (other["numbers"], other["entities"]) == ("float16", 2)
    assert (text["heading"], text["decimals"], text["doubled"], text["missing"]) == (True, None, 0, 0)


def test_a_range_is_that_of_the_numbers_that_are_there(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("name,x,y\na,5,7\nb,6,\nc,nan,7\nd,inf,six\n", encoding="utf-8")
    pd.DataFrame({"x": [5.0, None, 7.0]}, index=list("abc")).to_parquet(tmp_path / "y.parquet")
    for table in found(tmp_path / "x.csv", tmp_path / "y.parquet")["tables"]:
        assert (table["low"], table["high"], table["missing"]) == (5, 7, 1 if "y" in table["table"][-9:] else 3)


def test_the_accuracy_is_that_of_aggregate_and_names_the_coarse_table(tmp_path: Path) -> None:
    given = [decimals(tmp_path / f"{n}.csv", 9 if n else 2, n) for n in range(3)]
    said = found(*given)
    ran = CliRunner().invoke(main, ["aggregate", *map(str, given), "--out", str(tmp_path / "m"), "--json"])
    done = json.loads(ran.stdout)
    assert said["bound"] == done["bound"] > 100 * done["resolution"]
    assert said["exact"] == done["exact"]
    assert f"{given[0]} has numbers with 2 decimals, in steps of 0.01" in said["exact"][1]
    assert len(said["exact"]) == 2
    assert check(*given).stdout.splitlines()[0].endswith(f"means exact to within {said['bound']:.1e}")
    assert said["cost"]["round_bytes"] == done["bytes"]["round"]


def test_overlap_is_counted_for_every_pair_under_the_rule(three: list[Path]) -> None:
    def common(*words: str) -> list[int]:
        return [pair["common"] for pair in found(*three, *words)["overlap"]]

    assert common() == [0, 1, 1]
    assert common("--normalize", "casefold") == [1, 1, 2]


def test_names_that_nearly_match_are_told_with_the_rule_that_joins_them(tmp_path: Path) -> None:
    one, other = tmp_path / "one.csv", tmp_path / "other.csv"
    one.write_text("Åspirin,1\nx,1\n01,1\nIbu ,1\n7,2\nbeta  blocker,1\n", encoding="utf-8")
    other.write_text("A\u030aspirin,1\nx,1\n1,1\nibu,1\n7.0,1\nbeta blocker,2\n", encoding="utf-8")
    said = found(one, other)
    rules = {tuple(group["names"]): group["normalize"] for group in said["near"]}
    assert rules == {
        ("Åspirin", "A\u030aspirin"): "nfc",
        ("01", "1"): None,
        ("Ibu ", "ibu"): "strip,casefold",
        ("7", "7.0"): None,
        ("beta  blocker", "beta blocker"): None,
    }
    assert said["remedy"] == {"normalize": "nfc,strip,casefold", "joins": 2, "apart": 3}
    assert said["near"][0]["tables"] == [[str(one)], [str(other)]]
    assert "'01' (one.csv), '1' (other.csv): stay apart" in check(one, other).stdout
    joined = found(one, other, "--normalize", "nfc,strip,casefold")
    assert len(joined["near"]) == 3
    assert joined["remedy"]["apart"] == 3


def test_what_was_assumed_is_a_note(tmp_path: Path, three: list[Path]) -> None:
    three[0].write_text("drug,0,1\naspirin,0.5,1.5\n", encoding="utf-8")
    ran = check(*three)
    assert f"note: {three[0]}: the first line was read as a heading" in ran.stderr
    assert check(*three, "--no-header").exit_code == 3


# ----------------------------------------------------------------------------------------------------------- one table


def test_of_one_s_own_table_no_name_and_no_count_is_told_unless_it_is_asked_for(tmp_path: Path) -> None:
    mine = decimals(tmp_path / "mine.csv", 3)
    ran = check(mine)
    assert ran.exit_code == 0, ran.output
    assert ran.stdout.startswith(f"fits: {mine} is in order\n")
    assert "60" not in ran.stdout.replace(str(mine), "")
    assert "e1" not in ran.stdout.replace(str(mine), "").split()
    tell = found(mine)["tell"]
    assert tell == {
        "numbers": "text", "dim": 8, "max_abs": 4.0, "decimals": 3, "coarse": True,
        "bound": pytest.approx(5e-4, rel=1e-2), "normalize_changes": [],
    }  # fmt: skip
    assert found(mine, "--counts")["tell"]["entities"] == 60
    assert "you have 60" in check(mine, "--counts").stdout


def test_a_range_that_is_still_to_be_agreed_on_is_no_fault_and_one_that_was_given_is(tmp_path: Path) -> None:
    mine = tmp_path / "mine.csv"
    mine.write_text("a,1\nb,99\n", encoding="utf-8")
    assert found(mine)["tell"]["max_abs"] == 128
    ran = check(mine, "--max-abs", "64")
    assert (ran.exit_code, "give --max-abs 128" in ran.output) == (3, True)


def test_spellings_within_one_table_and_what_normalize_would_change_are_told(tmp_path: Path) -> None:
    mine = tmp_path / "mine.csv"
    mine.write_text("Aspirin,1\naspirin,2\nx ,1\n", encoding="utf-8")
    said = found(mine)
    assert said["tell"]["normalize_changes"] == ["strip", "casefold"]
    assert said["near"][0]["normalize"] == "casefold"
    ran = check(mine, "--normalize", "casefold")
    assert (ran.exit_code, "'aspirin' is 'Aspirin' of line 1 after --normalize casefold" in ran.output) == (3, True)


def test_of_a_table_with_faults_nothing_is_told_to_others(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a;0,5\nb;1,5\n", encoding="utf-8")
    assert found(tmp_path / "x.csv")["tell"] is None
    assert "What you can tell" not in check(tmp_path / "x.csv").stdout


def test_one_table_that_cannot_be_used_says_so(tmp_path: Path) -> None:
    ran = check(tmp_path / "none.csv")
    assert (ran.exit_code, ran.stdout.splitlines()[0]) == (3, "does not fit: 1 reason")
    assert "cannot be read: no such file" in ran.stdout


def test_words_that_do_not_go_together_are_told(tmp_path: Path, three: list[Path]) -> None:
    for words in (["site.toml", *three], ["site.toml", "--counts"], ["site.toml", "--max-abs", "64"]):
        ran = check(*words)
        assert (ran.exit_code, "site" in ran.output) == (2, True)
    assert "--kit is for a site" in check(*three, "--kit", tmp_path).output
    assert check(*three, "--counts").exit_code == 2
    assert check("-", "-").exit_code == 2


# -------------------------------------------------------------------------------------------------------------- a site


def test_a_site_is_ready_or_not_by_the_first_line_the_exit_code_and_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.path", list(sys.path))
    make_site(tmp_path, "mine_to_check")
    for where in (tmp_path / "site.toml", tmp_path):
        ran = check(where)
        assert (ran.exit_code, ran.stdout.splitlines()[0].partition(";")[0]) == (0, "ready: nothing is wrong")
    (tmp_path / "north.pem").chmod(0o644)
    ran = check(tmp_path)
    assert (ran.exit_code, ran.stdout.splitlines()[0].partition(";")[0]) == (3, "not ready: 1 thing is wrong")
    result = json.loads(check(tmp_path, "--json").stdout)
    (wrong,) = [each for each in result["findings"] if each["level"] == "wrong"]
    assert (result["ready"], wrong["about"]) == (False, "key")
    assert "chmod 600" in wrong["says"]


def test_a_site_by_a_folder_or_a_file_that_is_none_says_what_to_give(tmp_path: Path) -> None:
    for where in (tmp_path, tmp_path / "none.toml"):
        ran = check(where)
        assert (ran.exit_code, "give a site's file, or the folder that it is in" in ran.output) == (3, True)


def test_a_sites_function_does_not_break_the_json_and_what_it_says_is_no_markup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.path", list(sys.path))
    make_site(tmp_path, "mine_that_speaks")
    (tmp_path / "mine_that_speaks.py").write_text("print('loading')\nraise ValueError('[red]\\x1b[31m no data')\n")
    assert json.loads(check(tmp_path, "--json").stdout)["ready"] is False
    output = check(tmp_path).stdout
    assert "\x1b" not in output
    assert "[red]" in output


# ------------------------------------------------------------------------------------------- what hardly anybody means


def test_columns_in_another_order_do_not_fit_and_columns_says_the_order(three: list[Path]) -> None:
    three[1].write_text("name,y,x\nAspirin,3.0,1.5\naspirin,4.0,0.0\n", encoding="utf-8")
    says = f"{three[1]} has the column 'y' where {three[0]} has 'x'; bring the columns into one order"
    assert any(says in reason for reason in found(*three)["reasons"])
    ran = CliRunner().invoke(main, ["aggregate", *map(str, three), "--out", str(three[0].parent / "m")])
    assert (ran.exit_code, says in ran.output) == (3, True), ran.output
    assert found(*three, "--columns", "x,y")["fits"]


def test_columns_of_other_names_are_a_note(three: list[Path]) -> None:
    three[1].write_text("name,u,v\naspirin,3.0,1.5\n", encoding="utf-8")
    says = f"{three[1]} has the column 'u' where {three[0]} has 'x': columns are averaged by place"
    result = found(*three)
    assert result["fits"]
    assert any(says in note for note in result["notes"])
    assert says in check(*three).stderr
    ran = CliRunner().invoke(main, ["aggregate", *map(str, three), "--out", str(three[0].parent / "m"), "--json"])
    assert any(says in note for note in json.loads(ran.stdout)["notes"])
    three[1].write_text("name,X, Y\naspirin,3.0,1.5\n", encoding="utf-8")
    assert not found(*three)["notes"]


def test_a_table_that_shares_nothing_is_a_note(three: list[Path]) -> None:
    three[1].write_text("name,x,y\nother,3.0,1.5\n", encoding="utf-8")
    says = f"{three[1]}: no entity in common with any other table, so that it gets its own rows back"
    assert says in found(*three)["notes"]
    three[2].write_text("name,x,y\nmore,3.0,1.5\n", encoding="utf-8")
    for n, more in enumerate(([], ["--form", "paillier"])):
        out = ["--out", str(three[0].parent / f"m{n}"), *more]
        ran = CliRunner().invoke(main, ["aggregate", *map(str, three), *out])
        assert "note: no entity is in two tables, so that each gets its own rows back" in ran.stderr


def test_the_range_that_is_asked_for_is_enough_for_all_tables(three: list[Path]) -> None:
    three[2].write_text("name,x,y\ncodeine,1.0,2097151.5\naspirin,1,1\n", encoding="utf-8")
    three[1].write_text("name,x,y\ncodeine,1.0,100\n", encoding="utf-8")
    reasons = found(*three)["reasons"]
    assert len(reasons) == 2
    assert all("give --max-abs 2097152, or scale" in reason for reason in reasons)
    assert found(*three, "--max-abs", "2097152")["fits"]
    assert check(*three, "--max-abs", "-1").output.startswith("secea: max_abs must be a positive number")
