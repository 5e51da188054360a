"""The page of `secea audit --html`: what it says, of which code, and what it must not hide."""

from __future__ import annotations

import hashlib
import re
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import pytest
from click.testing import CliRunner

import secea
from secea.audit import Finding
from secea.audit.installation import Installation, digest_of, installation
from secea.audit.report import TITLES, unasked
from secea.cli import main
from secea.report.certificate import COMMAND, Certificate, page

FOLDER = Path(secea.__file__).parent
HELD = Finding("names", "keyed", "Form keyed: nobody can test <names>.", "attack", cases=1_234)
TABLE: list[dict[str, str | int]] = [{"what it tried": "a wrong sum", "cases": 1_500, "accepted": "no"}]


def certificate(*findings: Finding, left_out: int = 0, here: Installation | None = None) -> Certificate:
    when = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
    return Certificate(here or installation(), findings, TITLES, left_out, False, when, 75.0)


def test_the_page_has_version_digest_and_every_claim_with_its_figure() -> None:
    shown = page(certificate(HELD, replace(HELD, name="lies", title="What a server tried", table=TABLE)))
    assert f"secea {secea.__version__}" in shown
    assert installation().digest in shown
    assert "All 2 claims hold." in shown
    assert "Nobody can test &lt;names&gt;." in shown  # under its form's title, escaped
    assert "1,234" in shown
    assert "What a server tried" in shown
    assert "1,500" in shown


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"ok": False, "objection": "row 3 was read"}, "1 of 2 claims does not hold."),
        ({"ok": False, "broke_off": "RoundLost: gone"}, "1 of 2 claims could not be checked."),
    ],
)
def test_an_objection_is_the_headline_and_its_text_stands_above_the_claims(fault: dict[str, object], said: str) -> None:
    found = certificate(HELD, replace(HELD, name="rows", **fault))  # type: ignore[arg-type]
    shown = page(found)
    assert not found.holds
    assert re.search(f"<h1>{re.escape(said)}</h1>", shown)
    assert shown.index(str(fault.get("objection") or fault.get("broke_off"))) < shown.index("What was audited")


def test_claims_that_were_left_out_are_counted_in_the_headline() -> None:
    found = certificate(HELD, left_out=158)
    assert not found.holds
    assert "1 claim was checked, and holds. 158 were left out." in page(found)
    every = unasked([])
    assert every > 150
    assert unasked([HELD]) == every - 1


def test_the_digest_is_that_of_the_files_by_other_tools() -> None:
    made = subprocess.run(["bash", "-c", COMMAND], cwd=FOLDER, capture_output=True, text=True, check=True)  # noqa: S603, S607
    assert made.stdout.split()[0] == installation().digest
    assert COMMAND.replace("'", "&#x27;") in page(certificate(HELD))


def test_the_digest_changes_with_every_byte_and_every_name_and_with_no_compiled_module() -> None:
    files = dict(installation().files)
    assert digest_of(files) == installation().digest
    assert digest_of({**files, "params.py": hashlib.sha256(b"other").hexdigest()}) != digest_of(files)
    assert digest_of({(f"x{name}" if name == "params.py" else name): it for name, it in files.items()}) != digest_of(
        files
    )
    assert not any(name.endswith(".so") for name in files)
    here = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.py")}
    assert here <= files.keys()


class _Record(metadata.Distribution):
    """An installed wheel, with the record that it left."""

    def __init__(self, text: str) -> None:
        self._text = text

    def read_text(self, filename: str) -> str | None:
        return self._text if filename == "RECORD" else None

    def locate_file(self, path: object) -> Path:
        return FOLDER.parent / str(path)


def _recorded(monkeypatch: pytest.MonkeyPatch, changed: str | None = None) -> str:
    import base64

    lines = []
    for path in FOLDER.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            name = path.relative_to(FOLDER).as_posix()
            content = b"other" if name == changed else path.read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            lines.append(f"secea/{name},sha256={digest},{len(content)}")
    monkeypatch.setattr(metadata, "distribution", lambda name: _Record("\n".join(lines)))
    return installation().origin


def test_files_of_a_wheel_are_compared_with_its_record(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _recorded(monkeypatch).startswith("installed from a wheel; all ")
    changed = _recorded(monkeypatch, "params.py")
    assert changed == "NOT AS INSTALLED: params.py changed since the package was installed"
    here = replace(installation(), origin=changed)
    shown = page(certificate(HELD, here=here))
    assert shown.index(changed) < shown.index("What was audited")


def test_the_command_writes_the_page_and_says_where(tmp_path: Path) -> None:
    out = tmp_path / "audit.html"
    result = CliRunner().invoke(main, ["audit", "--claim", "rules", "--html", str(out)])
    assert result.exit_code == 0, result.output
    assert f"wrote {out}" in result.output
    shown = out.read_text()
    assert "were left out." in shown
    assert "rules" in shown
    assert str(tmp_path) not in shown  # nobody learns where it was made


@pytest.mark.parametrize("option", [["--mutant", "fewer-masks"], ["--list"], ["--counts"]])
def test_a_page_is_about_the_code_as_it_is_installed(tmp_path: Path, option: list[str]) -> None:
    out = tmp_path / "audit.html"
    result = CliRunner().invoke(main, ["audit", "--html", str(out), *option])
    assert result.exit_code == 2
    assert "leave out --mutant, --list and --counts" in result.output
    assert not out.exists()


def test_a_page_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["audit", "--claim", "rules", "--html", str(tmp_path / "no" / "a.html")])
    assert result.exit_code == 3
    assert "a.html cannot be written: no such file or directory" in result.output
