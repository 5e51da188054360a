"""What all commands have in common: help, JSON, exit codes, pipes, terminals, Ctrl-C, completion."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from secea import errors
from secea.cli import main
from secea.commands.shell import EXIT_CODES, exit_code, told
from terminal import ROOT, environment, heed_interrupts, shell, shim

HEAVY = (
    "torch",
    "pykeen",
    "pandas",
    "scipy",
    "pyarrow",
    "nvflare",
    "flwr",
    "rich",
    "secea.audit",
    "secea.commands.estimate",
)


def commands(group: click.Group = main, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in group.commands.items():
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


ALL = dict(commands())


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    return shim(tmp_path / "bin")


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_help_begins_with_a_sentence_has_an_example_and_explains_each_option(path: tuple[str, ...]) -> None:
    ran = CliRunner().invoke(main, [*path, "--help"])
    assert ran.exit_code == 0
    assert re.search(rf"^ +secea {' '.join(path)}", ran.output, re.MULTILINE), ran.output
    assert "Example" in ran.output
    first = (ALL[path].help or "").split("\n\n")[0]
    assert first.rstrip().endswith((".", ":")), first
    assert len(ALL[path].get_short_help_str(200)) < 120
    assert max(map(len, ran.output.splitlines())) <= 100
    for option in ALL[path].params:
        if isinstance(option, click.Option) and not option.hidden:
            assert option.help or isinstance(option.type, click.Choice), f"{path}: {option.name} is not explained"


def test_the_first_help_lists_all_commands_and_exit_codes() -> None:
    output = CliRunner().invoke(main, ["--help"]).output
    for name in main.commands:
        assert re.search(rf"^  {name} ", output, re.MULTILINE)
    for line in EXIT_CODES.splitlines()[2:]:
        assert line.strip() in output


@pytest.mark.parametrize("name", ["demo", "aggregate", "plan"])
def test_help_speaks_of_drop_outs_only_where_there_are_any(name: str) -> None:
    words = " ".join(CliRunner().invoke(main, [name, "--help"]).output.split()).replace("- ", "-")
    assert "--collusion T" in words
    assert "[all others" in words
    assert ("[all others, less 2 for each drop-out]" in words) is ("--dropouts" in words)


@pytest.mark.parametrize("name", ["demo", "train", "report", "aggregate", "plan", "audit", "keygen", "roster"])
def test_whatever_reports_has_json(name: str) -> None:
    assert "--json" in CliRunner().invoke(main, [name, "--help"]).output


def test_keys_and_rosters_as_json(tmp_path: Path) -> None:
    keys = {}
    for name in ("server", "north", "south", "west"):
        ran = CliRunner().invoke(main, ["keygen", str(tmp_path / name), "--json"])
        keys[name] = json.loads(ran.stdout)
        assert Path(keys[name]["public"]).exists()
    words = [f"--client={name}={keys[name]['public']}" for name in ("north", "south", "west")]
    words += ["--server", keys["server"]["public"], "--param=dim=4", "--param=max_entities=5", "--param=max_union=9"]
    ran = CliRunner().invoke(main, ["roster", str(tmp_path / "f.json"), *words, "--json"])
    assert ran.exit_code == 0, ran.output
    assert (
        json.loads(ran.stdout)["fingerprint"] in CliRunner().invoke(main, ["roster", str(tmp_path / "f.json")]).output
    )
    assert [path.name for path in tmp_path.glob("*.new")] == []
    fuller = ["--param=dropouts=1", "--param=batch=8", "--param=max_updates=3", "--param=min_participants=2"]
    ran = CliRunner().invoke(main, ["roster", str(tmp_path / "g.json"), *words, *fuller])
    assert ran.exit_code == 0, ran.output
    for part in ("keyed, min_participants=2", "max_updates=3, batch=8", "The server and any one client may conspire"):
        assert part in ran.output
    for form, trusted in (("paillier", "must not conspire with a client"), ("keyed", "both other clients may")):
        ran = CliRunner().invoke(main, ["roster", str(tmp_path / f"{form}.json"), *words, "--form", form])
        assert (ran.exit_code, trusted in ran.output) == (0, True), ran.output
    gone = tmp_path / "gone.json"
    gone.write_text((tmp_path / "paillier.json").read_text().replace('"paillier"', '"reciprocal"'))
    ran = CliRunner().invoke(main, ["roster", str(gone)])
    sentence = "gone.json is for the form 'reciprocal', which this version does not have: make a new one"
    assert sentence in str(ran.exception) + ran.output


def test_help_loads_nothing_heavy() -> None:
    script = f"""
import sys
import secea.cli
try:
    secea.cli.main(["train", "kg", "--help"])
except SystemExit:
    pass
loaded = [name for name in {HEAVY} if name in sys.modules]
sys.exit(", ".join(loaded) or 0)
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)  # noqa: S603
    assert ran.returncode == 0, ran.stderr


def test_exit_codes_tell_whose_turn_it_is() -> None:
    assert (
        exit_code(errors.ParamsError("x")) == exit_code(errors.TableError("x")) == exit_code(errors.DataError("x")) == 3
    )
    assert exit_code(errors.FederationError("x")) == exit_code(errors.FaultyPeer(0, "x")) == 1
    assert exit_code(errors.MissingExtra("x")) == 4
    forbidden = errors.DataError("x")
    forbidden.__context__ = PermissionError(13, "Permission denied")
    assert exit_code(forbidden) == 4


@pytest.mark.parametrize(
    ("number", "words"), [(28, "make room"), (13, "permissions"), (98, "choose another one"), (5, "a: ")]
)
def test_what_the_system_refuses_is_told_with_what_to_do(number: int, words: str) -> None:
    assert words in told(OSError(number, os.strerror(number), "a"))


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path, tools: Path) -> None:
    ran = shell("set -o pipefail; secea audit --list | head -1; echo ${PIPESTATUS[0]}", tmp_path, tools)
    assert ran.stderr == ""
    assert ran.stdout.splitlines()[-1] in ("0", "141")  # 0: all of it was written before the reader went


def test_a_pipe_gets_neither_colour_nor_progress(tmp_path: Path, tools: Path) -> None:
    ran = shell("secea demo --entities 20 --dim 3", tmp_path, tools, TERM="xterm-256color")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "\x1b" not in ran.stdout


def test_colour_that_is_forced_brings_no_progress_into_a_pipe(tmp_path: Path, tools: Path) -> None:
    ran = shell("secea demo --entities 20 --dim 3", tmp_path, tools, TERM="xterm-256color", FORCE_COLOR="1")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "\x1b[2K" not in ran.stdout  # a line that is drawn again


def on_a_terminal(tools: Path, *words: str, **more: str) -> str:
    master, slave = pty.openpty()
    env = environment(tools, TERM="xterm-256color", **more)
    process = subprocess.Popen([tools / "secea", *words], stdin=slave, stdout=slave, stderr=slave, env=env)  # noqa: S603
    os.close(slave)
    output = b""
    while True:
        try:
            part = os.read(master, 4096)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        output += part
    os.close(master)
    assert process.wait(timeout=60) == 0
    return output.decode()


def test_a_terminal_gets_colour_unless_it_is_not_wanted(tools: Path) -> None:
    colour = re.compile("\x1b\\[[0-9;]*3[0-7]m")
    words = ("demo", "--entities", "20", "--dim", "3")
    assert colour.search(on_a_terminal(tools, *words))
    assert not colour.search(on_a_terminal(tools, *words, NO_COLOR="1"))


def test_an_interrupt_is_one_line_and_130(tmp_path: Path, tools: Path) -> None:
    process = subprocess.Popen(  # noqa: S603
        [tools / "secea", "audit"], cwd=tmp_path, env=environment(tools), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, preexec_fn=heed_interrupts,
    )  # fmt: skip
    _wait_for_work(process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "secea: interrupted\n")


FOREVER = """
import sys, threading

if sys.argv[0] == "-m":  # the command, and nothing that it starts
    threading.Thread(target=threading.Event().wait).start()
"""


def test_an_interrupt_ends_the_command_though_a_thread_of_it_waits_for_ever(tmp_path: Path, tools: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(FOREVER, encoding="utf-8")
    env = environment(tools)
    env["PYTHONPATH"] = os.pathsep.join([str(tmp_path), env["PYTHONPATH"]])
    process = subprocess.Popen(  # noqa: S603
        [tools / "secea", "audit"], cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=heed_interrupts,
    )  # fmt: skip
    _wait_for_work(process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "secea: interrupted\n")


WATCH = """
import atexit, os, signal, sys

class Watch:
    count = None  # of the imports since the first one of the package

    def find_spec(self, name, path=None, target=None):
        if Watch.count is not None or name == "secea":
            Watch.count = (Watch.count or 0) + 1
            if Watch.count == int(os.environ["INTERRUPT_AT"]):
                os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Watch())
if os.environ["INTERRUPT_AT"] == "0":
    atexit.register(lambda: print(Watch.count, file=sys.stderr))
"""
"""Python runs it as it starts: the process interrupts itself as it begins one of its imports."""


def interrupted_at(
    number: int, tools: Path, *words: str, before: Callable[[], None] = heed_interrupts
) -> tuple[int, str, str]:
    (tools / "sitecustomize.py").write_text(WATCH, encoding="utf-8")
    path = os.pathsep.join([str(tools), str(ROOT / "src")])
    ran = subprocess.run(  # noqa: S603
        [tools / "secea", *words], env=environment(tools, PYTHONPATH=path, INTERRUPT_AT=str(number)),
        capture_output=True, text=True, preexec_fn=before, check=False, timeout=60,
    )  # fmt: skip
    return ran.returncode, ran.stdout, ran.stderr


PLAN = ("plan", "--clients", "3", "--entities", "10", "--dim", "2")


def test_an_interrupt_while_the_command_starts_is_one_line_and_130(tools: Path) -> None:
    code, out, imports = interrupted_at(0, tools, *PLAN)
    assert (code, out != "") == (0, True)
    total = int(imports)
    assert total > 100
    for number in (1, 2, *(total * part // 5 for part in range(1, 6))):
        assert interrupted_at(number, tools, *PLAN) == (130, "", "secea: interrupted\n"), number


def test_interrupts_that_are_ignored_stay_so(tools: Path) -> None:
    def ignore() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    code, out, _ = interrupted_at(20, tools, *PLAN, before=ignore)
    assert (code, "set-up" in out) == (0, True)


def test_an_interrupt_while_the_command_line_is_read_is_one_line_and_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(click.Group, "parse_args", interrupted)
    ran = CliRunner().invoke(main, ["plan"])
    assert (ran.exit_code, ran.output) == (130, "secea: interrupted\n")


def _wait_for_work(process: subprocess.Popen[str], seconds: float = 3.0) -> None:
    """Until the process has used so much CPU time: it has started long ago, and is not nearly done."""
    ticks = os.sysconf("SC_CLK_TCK")
    while True:
        assert process.poll() is None, process.communicate()
        fields = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        if (int(fields[11]) + int(fields[12])) / ticks > seconds:
            return
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("name", "word"), [("bash", "complete -o"), ("zsh", "#compdef secea"), ("fish", "complete --")]
)
def test_completion_prints_a_script(name: str, word: str) -> None:
    ran = CliRunner().invoke(main, ["completion", name])
    assert ran.exit_code == 0
    assert word in ran.stdout
    assert f"_SECEA_COMPLETE={name}_complete" in ran.stdout


def test_bash_completes_commands_and_options(tmp_path: Path, tools: Path) -> None:
    def completed(words: str) -> list[str]:
        count = len(words.split()) + words.endswith(" ") - 1
        ran = shell("secea", tmp_path, tools, COMP_WORDS=words, COMP_CWORD=str(count), _SECEA_COMPLETE="bash_complete")
        return [line.partition(",")[2] for line in ran.stdout.splitlines()]

    assert {"demo", "train", "aggregate", "plan"} <= set(completed("secea "))
    assert completed("secea agg") == ["aggregate"]
    assert "--per-client" in completed("secea plan --")
    assert completed("secea plan --form p") == ["paillier"]
