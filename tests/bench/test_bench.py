"""The benchmark on tiny sizes: peers compute what they should, and figures come out as they went in."""

from __future__ import annotations

import json
import platform
import re
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console

import secea.cli
from bench import rounds, shapes
from bench.__main__ import SHORT, main
from bench.aims import AIMS, judged, verdict
from bench.contest import averaged, dense, limit, numbers, stream_bytes
from bench.figures import Figure, Grid, Run, Section, ratios
from bench.growth import exponent, off_a_line, series
from bench.measure import machine, point
from bench.paper import Literal
from bench.parts import parts
from bench.plots import pictures
from bench.secagg import SIDES, SecAgg, aes_masks
from bench.shapes import QUICK, Scale, Shape, sums
from bench.show import compared, describe, fill, markdown, print_section
from secea import Federation
from secea.arithmetic import field
from secea.errors import DataError
from secea.oracles import paillier as oracle

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SMALL = Shape(clients=4, collusion=1, entities=30, own=12, dim=5)
TINY = replace(
    QUICK,
    peers=SMALL,
    repetitions=2,
    narrow=SMALL.but(clients=3),
    slices=1,
    rounds=2,
    packed=Shape(clients=3, collusion=1, entities=3, own=2, dim=3),
    key_bits=512,
    kernel_bytes=1 << 12,
    kernel_seconds=0.001,
    growth=Shape(clients=6, collusion=1, entities=24, own=12, dim=4),
    growth_rounds=1,
    million=SMALL,
    ten_million=SMALL,
)


# --------------------------------------------------------------------------------------------------------- the peers


@pytest.mark.parametrize(("lean", "aes"), [(False, False), (True, False), (False, True)])
def test_secagg_plus_yields_the_sum_of_all_clients_in_every_round(lean: bool, aes: bool) -> None:
    tables = SMALL.tables()
    total, count = sums(tables, SMALL.entities)
    peer = SecAgg(dense(tables, SMALL.entities), lean=lean, aes=aes)
    for _ in range(2):
        found, owners = peer.round()
        assert np.abs(found - total).max() < SMALL.clients * 16 * 2**-22
        assert np.abs(owners - count[:, 0]).max() < 1e-6
        numbers = SMALL.clients * SMALL.entities * (SMALL.dim + 1)
        keys = SMALL.clients**2 * 3000
        assert numbers * (12 if lean else 16) < peer.bytes < numbers * (12 if lean else 16) + keys


def test_aes_masks_are_as_many_integers_of_the_same_type_as_flowers_and_need_the_whole_seed() -> None:
    shapes_of = [(3, 4), (5,), ()]
    flowers = SIDES[0].pseudo_rand_gen
    seed = bytes(range(32))
    twin = bytes(4) + seed[4:8] + bytes(a ^ b for a, b in zip(seed[8:12], seed[:4], strict=True)) + seed[12:]
    ours, theirs = aes_masks(seed, 2**32, shapes_of), flowers(seed, 2**32, shapes_of)
    assert [(x.shape, x.dtype) for x in ours] == [(x.shape, x.dtype) for x in theirs]
    assert all(0 <= x.min() <= x.max() < 2**32 for x in ours)
    assert all(np.array_equal(x, y) for x, y in zip(theirs, flowers(twin, 2**32, shapes_of), strict=True))
    assert not np.array_equal(ours[0], aes_masks(twin, 2**32, shapes_of)[0])
    assert all(np.array_equal(x, y) for x, y in zip(ours, aes_masks(seed, 2**32, shapes_of), strict=True))


def test_aes_masks_are_in_use_during_the_round_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    flowers = [side.pseudo_rand_gen for side in SIDES]

    def counted(seed: bytes, num_range: int, dimensions: list[tuple[int, ...]]) -> list[Any]:
        calls.append(seed)
        return aes_masks(seed, num_range, dimensions)

    monkeypatch.setattr("bench.secagg.aes_masks", counted)
    SecAgg(dense(SMALL.tables(), SMALL.entities)).round()
    assert not calls
    SecAgg(dense(SMALL.tables(), SMALL.entities), aes=True).round()
    N = SMALL.clients
    assert len(calls) == N * N + N  # each client its own and those with all others; the server each client's own
    assert [side.pseudo_rand_gen for side in SIDES] == flowers


def test_plain_averaging_yields_the_means() -> None:
    SMALL.check(averaged(SMALL.tables(), SMALL.entities), 1e-5)
    wrong = averaged(SMALL.tables(), SMALL.entities)
    wrong[0].matrix[0, 0] += 1
    with pytest.raises(AssertionError, match="off by"):
        SMALL.check(wrong, 1e-5)


def test_means_are_checked_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = SMALL.tables()
    monkeypatch.setattr(shapes, "BLOCK", 7)
    SMALL.check(averaged(tables, SMALL.entities), 1e-5, tables)
    wrong = averaged(tables, SMALL.entities)
    wrong[-1].matrix[-1, -1] += 1
    with pytest.raises(AssertionError, match="off by"):
        SMALL.check(wrong, 1e-5, tables)


def test_the_limit_counts_the_key_streams_of_masks_rows_and_noise() -> None:
    n, (N, M, d) = numbers(SMALL), (SMALL.clients, SMALL.entities, SMALL.dim)
    assert n.ring.dtype.itemsize == 8  # a word of the stream for each element
    masks = N * 2 * M * (d + n.checks + 2) * 8  # T + 1 neighbours
    rows = 2 * N * SMALL.own * d * 8
    assert stream_bytes(SMALL) == masks + rows + 2 * 2 * M * d * n.noise.blocks * 16
    assert limit(SMALL)().cpu > 0


@dataclass(frozen=True)
class Ciphertext:
    """The oracle's textbook Paillier with the operators that `phe` has."""

    value: int
    n: int

    def __mul__(self, factor: int) -> Ciphertext:
        return Ciphertext(oracle.times(self.value, factor, self.n), self.n)

    def __add__(self, other: Ciphertext) -> Ciphertext:
        return Ciphertext(oracle.add(self.value, other.value, self.n), self.n)


@dataclass(frozen=True)
class Textbook:
    key: oracle.SecretKey

    def encrypt(self, m: int) -> Ciphertext:
        return Ciphertext(oracle.encrypt(m, self.key.n, oracle.SYSTEM), self.key.n)

    def decrypt(self, c: Ciphertext) -> int:
        return oracle.decrypt(c.value, self.key)


def textbook(bits: int) -> tuple[Textbook, Textbook]:
    both = Textbook(oracle.keygen(bits, oracle.SYSTEM))
    return both, both


def test_the_literal_protocol_yields_the_means_and_counts_its_elements() -> None:
    shape = Shape(clients=3, collusion=1, entities=4, own=2, dim=3)
    literal = Literal(shape, 256, textbook)
    offline, online = literal.round()  # checks the means
    assert min(offline.cpu, online.cpu) > 0
    assert literal.elements == 3 * 3 * 2 * 4
    assert literal.bytes == 2 * literal.elements * 64


def test_the_clock_around_kernels_and_ciphers_changes_no_result_and_leaves_nothing_behind() -> None:
    tables, fed = SMALL.tables(), Federation(SMALL.params())
    fed.setup([table.names for table in tables])
    before = vars(field)["lib"]
    means: list[Any] = []
    spent = parts(lambda: means.extend(fed.round(tables)))
    SMALL.check(means, fed.params.resolution)
    assert {"seal (AES-GCM)", "open (AES-GCM)", "Python, numpy, copies"} <= spent.keys()
    assert any(name.startswith("kernel add_streams") for name in spent)
    assert min(spent.values()) >= 0
    assert vars(field)["lib"] is before


# ------------------------------------------------------------------------------------------------------ what is said


def test_every_union_has_owners_for_all_its_entities() -> None:
    for scale in (Scale(), QUICK, TINY):
        for name, points in series(scale.growth, scale.growth_steps):
            assert len(points) >= 2, name
            for _, shape in points:
                assert shape.params().bounded
                assert shape.own * shape.clients >= shape.entities
    owned = {name for table in SMALL.tables() for name in table.names}
    assert owned == set(range(SMALL.entities))


def test_exponents_and_lines_are_found() -> None:
    xs = [1.0, 2.0, 4.0, 8.0]
    assert exponent(xs, [3 * x**1.5 for x in xs]) == pytest.approx(1.5)
    assert exponent(xs, [7.0] * 4) == pytest.approx(0)
    assert off_a_line(xs, [5 + 2 * x for x in xs]) == pytest.approx(0, abs=1e-9)
    assert off_a_line(xs, [x * x for x in xs]) > 0.05


@pytest.mark.parametrize(
    ("values", "unit", "shown"),
    [
        ([0.0123], "s", "12.3 ms"),
        ([1.0, 2.0, 4.0], "s", "2.00 s (1.00 to 4.00)"),
        ([800_000.0], "s", "9.26 days"),
        ([2_645_000_000.0], "B", "2.65 GB"),
        ([17.0], "B", "17.0 B"),
        ([3.5, 3.5], "x", "3.50 x"),
        ([65_380.2], "x", "65,380 x"),
        ([-1e-9], "", "0"),
    ],
)
def test_figures_have_three_digits_a_unit_and_their_spread(values: list[float], unit: str, shown: str) -> None:
    assert str(Figure.of(values, unit)) == shown


def test_ratios_are_taken_repetition_by_repetition() -> None:
    assert ratios([2.0, 4.0, 30.0], [1.0, 2.0, 10.0]) == Figure(2.0, 2.0, 3.0, "x", 3)


def test_the_machine_is_described_without_its_name() -> None:
    facts = machine()
    assert {"processor", "cores", "memory", "python", "openssl", "secea", "flwr", "phe"} <= facts.keys()
    assert all(platform.node() not in value and "/" not in value for value in facts.values())


def test_a_machine_that_was_busy_is_said_to_be_so() -> None:
    facts = machine()
    assert "BUSY WITH OTHER WORK (load 7.5)" in describe(facts | {"load": "7.5"})
    assert "BUSY" not in describe(facts | {"load": "0.2"})


# -------------------------------------------------------------------------------------------------------- the command


def bench(*arguments: str) -> str:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run on tiny sizes."""
    out = tmp_path_factory.mktemp("bench")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shapes, "QUICK", TINY)
        patch.setattr(rounds, "in_child", point)  # starting takes time
        printed = bench("--quick", "--out", str(out))
        bench("large", "--quick", "--out", str(out / "large"))
    for section in ("peers", "names", "round", "clients", "growth", "paper", "kernels", "plan", "learning"):
        assert re.search(rf"^{section}: ", printed, re.MULTILINE), section
    lines = printed.splitlines()
    assert "SecAgg+" in lines[0]
    assert "aims are met" in lines[4]
    assert lines[6].split() == ["what", "(form", "keyed)", "aim", "measured", "met"]
    return out


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    return Run.from_json(json.loads((folder / "bench.json").read_text(encoding="utf-8")))


def test_a_run_measures_everything_and_every_figure_lies_within_its_spread(run: Run) -> None:
    found = run.figures()
    assert len(found) > 200
    for name, figure in found.items():
        assert figure.low <= figure.median <= figure.high, name
        assert figure.unit in ("s", "B", "x", "M/s", "%", ""), name
    for name in (
        ("peers", "ratios", "secea over SecAgg+ (Flower)", "CPU"),
        ("peers", "ratios", "secea over SecAgg+, AES masks", "bytes"),
        ("peers", "ratios", "secea over the limit", "CPU"),
        ("peers", "narrow", "SecAgg+, float32 back", "secea over it"),
        ("names", "point", "T = 3", "CPU"),
        ("round", "parts", "seal (AES-GCM)", "share"),
        ("clients", "hundred", "set-up", "bytes, all hops"),
        ("paper", "scale", "keyed form, measured", "CPU"),
        ("kernels", "one", "masks with three neighbours", "AES alone / ours"),
        ("growth", "exponents", "secea: bytes", "d"),
        ("plan", "plan", f"a round: {QUICK.plans[0][0]}, D=1", "predicted / measured"),
        ("plan", "plan", f"a set-up: {QUICK.plans[0][0]}, D=1", "CPU, predicted"),
        ("learning", "share", "share of CPU", "measured"),
        ("learning", "share", "share of wall", "measured"),
    ):
        assert found[name].median > 0, name


def test_bytes_are_flat_in_the_real_entities_and_in_clients_but_for_the_element(run: Run) -> None:
    fits = run.sections["growth"].grids["exponents"].rows
    assert fits["secea: bytes"]["entities"].median == pytest.approx(0, abs=1e-9)
    sizes = run.sections["growth"].grids["N"].rows
    for value, figure in sizes["secea: bytes of a client"].items():
        element = sizes["secea: element"][value].median
        assert figure.median / element == pytest.approx(sizes["secea: bytes of a client / element"][value].median)


def test_memory_of_large_tables_is_beyond_them_and_beyond_results(folder: Path) -> None:
    large = Run.from_json(json.loads((folder / "large" / "bench.json").read_text(encoding="utf-8")))
    for row in large.sections["large"].grids["memory"].rows.values():
        assert row["tables"].median == 4 * SMALL.clients * SMALL.own * SMALL.dim
        assert row["round, beyond results too"].median <= row["round"].median


def test_every_aim_is_judged_in_order_and_named_in_the_verdict_where_it_is_missed() -> None:
    grids: dict[str, dict[str, Grid]] = {}
    for aim in AIMS:
        for section, grid, row, column in aim.paths:
            cells = grids.setdefault(section, {}).setdefault(grid, Grid(grid)).rows.setdefault(row, {})
            cells[column] = Figure.of(1e12, "")
    made = Run({}, False, {name: Section("", parts) for name, parts in grids.items()})
    found = judged(made, whole=True)
    assert [each.aim for each in found] == list(AIMS)
    assert [each.met for each in found] == [each.aim.short == "100 clients" for each in found]  # that one has no number
    *_, last = verdict(made)
    assert f"1 of {len(AIMS)} aims are met" in last
    assert all(aim.short in last for aim in AIMS if aim.short != "100 clients")
    nothing = Run({}, False, {})
    assert len(verdict(nothing)) == 5
    assert judged(nothing, whole=False) == []
    assert {each.measured for each in judged(nothing, whole=True)} == {"make bench-large", "not measured"}


def test_sections_of_several_runs_are_put_together(folder: Path) -> None:
    both = [str(folder / "bench.json"), str(folder / "large" / "bench.json")]
    run = json.loads(bench("--read", both[0], "--read", both[1], "--json"))
    assert list(run["sections"]) == [*SHORT, "large"]


def test_a_peer_that_is_missing_is_named(run: Run) -> None:
    for section, name, row in (
        ("peers", "tenseal", "CKKS (TenSEAL)"),
        ("peers", "flwr", "SecAgg+, AES masks"),
        ("paper", "phe", "the paper literally (phe), online"),
    ):
        grid = run.sections[section].grids["round" if section == "peers" else "forms"]
        missing = run.machine[name] == "not installed"
        assert (row not in grid.rows) == missing
        assert any(f"{name} is not installed" in note for note in run.sections[section].notes) == missing


def test_a_note_says_what_to_install(capsys: pytest.CaptureFixture[str]) -> None:
    print_section(Console(width=100), "a", Section("b", {}, ["phe is not installed: pip install '.[bench]'"]))
    assert "phe is not installed: pip install '.[bench]'\n" in capsys.readouterr().out


def test_pictures_are_well_formed(run: Run) -> None:
    from xml.etree import ElementTree

    drawn = pictures(run)
    assert drawn.keys() == {"growth.svg", "peers.svg"}
    for picture in drawn.values():
        assert ElementTree.fromstring(picture).tag == "{http://www.w3.org/2000/svg}svg"  # noqa: S314 - it is our own
        assert "nan" not in picture


def test_a_run_is_read_shown_and_compared_with_itself(folder: Path, run: Run) -> None:
    path = str(folder / "bench.json")
    assert json.loads(bench("--read", path, "--json")) == run.to_json()
    shown = bench("--read", path, "peers")
    assert "SecAgg+ (Flower)" in shown
    assert not re.search("^growth:", shown, re.MULTILINE)
    assert "peers / ratios / secea over plain averaging / bytes" in bench("--read", path, "--compare", path)
    assert all(ratio == 1 for _, _, _, ratio in compared(run, run))


def test_a_figure_that_doubled_has_ratio_two() -> None:
    def made(value: float) -> Run:
        return Run({}, True, {"a": Section("", {"b": Grid("", {"c": {"d": Figure.of(value, "s")}})})})

    ((name, accepted, new, ratio),) = compared(made(6.0), made(3.0))
    assert (name, accepted.median, new.median, ratio) == ("a / b / c / d", 3.0, 6.0, 2.0)


@pytest.mark.parametrize("data", [[], {}, {"schema": 0}, {"schema": 1, "machine": {}, "quick": True, "sections": [1]}])
def test_what_is_no_run_is_refused(data: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError):
        Run.from_json(data)
    path = tmp_path / "other.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    result = CliRunner().invoke(main, ["--read", str(path)])
    assert (result.exit_code, result.output[:7]) == (1, "Error: ")


def test_a_file_that_is_missing_is_told_before_anything_is_measured(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["round", "--compare", str(tmp_path / "none.json")])
    assert (result.exit_code, "none.json" in result.output) == (1, True)


# ------------------------------------------------------------------------------------------------------------ the page


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "Makefile", "docs/performance.md"])
def test_commands_that_are_shown_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    shown = re.findall(r"python -m bench\b(?!\.)([^`#$\n]*)", text)
    assert shown
    for module in re.findall(r"python -m bench\.(\w+)", text):
        assert (ROOT / "bench" / f"{module}.py").exists()
    for words in shown:
        main.make_context("bench", [word for word in shlex.split(words) if word != "--help"])  # an error where not


def test_the_package_has_no_benchmarks() -> None:
    assert "bench" not in secea.cli.main.commands
    assert not (Path(secea.__file__).parent / "bench").exists()


def test_marked_blocks_are_filled_and_the_rest_stays(run: Run) -> None:
    page = "a\n<!-- bench: peers/ratios -->\nold\n<!-- /bench -->\nb\n<!-- bench: large -->\nkept\n<!-- /bench -->\n"
    filled = fill(page, run)
    assert markdown(run.sections["peers"].grids["ratios"]) in filled
    assert "old" not in filled
    assert "kept" in filled
    assert fill(filled, run) == filled
    with pytest.raises(DataError, match="peers/none"):
        fill(page.replace("peers/ratios", "peers/none"), run)


def test_the_page_on_performance_shows_the_accepted_run() -> None:
    accepted = Run.from_json(json.loads((ROOT / "bench" / "accepted.json").read_text(encoding="utf-8")))
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert not accepted.quick
    assert {"peers", "names", "round", "clients", "growth", "paper", "kernels"} <= accepted.sections.keys()
    assert page.count("<!-- bench: ") > 10
    assert fill(page, accepted) == page, "run: make accept"
    for name, picture in pictures(accepted).items():
        assert (ROOT / "docs" / "images" / f"bench-{name}").read_text(encoding="utf-8") == picture
