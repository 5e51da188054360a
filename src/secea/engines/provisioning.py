"""NVFlare's provisioning: the kits of a server, its administrator and the sites, and a kit made of an invitation."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from secea.atomic import place, replace_files
from secea.engines.invitation import Invitation
from secea.engines.kits import permit
from secea.errors import MissingExtra, ParamsError
from secea.extras import installing

ADMINISTRATOR: Final = "host@secea.invalid"
SITE_FILE: Final = Path("local") / "secea.toml"
"""What leads from a kit to the file of its site."""

_ORGANISATION: Final = "secea"
_PROVISION_SECONDS: Final = 120
_BUILDERS: Final[Mapping[str, Mapping[str, object]]] = {
    "workspace.WorkspaceBuilder": {"template_file": ["master_template.yml"]},
    "static_file.StaticFileBuilder": {"config_folder": "config"},
    "cert.CertBuilder": {},
    "signature.SignatureBuilder": {},
}


@dataclass(frozen=True)
class Project:
    """Who takes part in a deployment, and where its server is."""

    name: str
    server: str
    port: int
    sites: tuple[str, ...]

    def text(self) -> str:
        """NVFlare's project file. It is JSON, which is YAML too."""
        participants: list[dict[str, object]] = [
            {"name": self.server, "type": "server", "fed_learn_port": self.port},
            {"name": ADMINISTRATOR, "type": "admin", "role": "project_admin"},
        ]
        participants += [{"name": name, "type": "client"} for name in self.sites]
        builders = [{"path": f"nvflare.lighter.impl.{name}", "args": args} for name, args in _BUILDERS.items()]
        all_in = [each | {"org": _ORGANISATION} for each in participants]
        return json.dumps({"api_version": 3, "name": self.name, "participants": all_in, "builders": builders}, indent=2)


def provision(project: Project, folder: Path) -> Path:
    """Make all kits below `folder`, which must not have any yet. The folder that they are in."""
    installed()
    folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    folder = folder.absolute()
    file = folder / "project.yml"
    replace_files({file: project.text().encode()})
    command = [sys.executable, "-m", "nvflare.cli", "provision", "-p", str(file), "-w", str(folder)]
    try:
        done = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, timeout=_PROVISION_SECONDS, stdin=subprocess.DEVNULL, check=False,
            env=_environment(), cwd=folder,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ParamsError(f"NVFlare's provisioning did not end within {_PROVISION_SECONDS} s") from None
    kits = folder / project.name / "prod_00"
    if done.returncode or not (kits / project.server / "startup").is_dir():
        said = (done.stderr or done.stdout).strip().splitlines()
        raise ParamsError(f"NVFlare's provisioning failed: {said[-1] if said else 'it said nothing'}")
    return kits


def invitation(project: Project, kits: Path, site: str, agreed: str = "") -> Invitation:
    """The invitation for a site of which a kit was made here."""
    startup = kits / site / "startup"
    root, certificate, key = ((startup / name).read_text() for name in ("rootCA.pem", "client.crt", "client.key"))
    return Invitation(project.name, site, project.server, project.port, root, certificate, key, agreed)


def kit_of(invited: Invitation, kit: Path, site_file: Path) -> tuple[str, ...]:
    """Make the kit of a site from its invitation and from the NVFlare that is installed here, and permit it.

    All scripts and settings are this machine's own. What was changed for secea is returned.
    """
    with tempfile.TemporaryDirectory(dir=kit.parent, prefix="kit-") as aside:
        project = Project(invited.federation, invited.server, invited.port, (invited.site,))
        made = provision(project, Path(aside)) / invited.site
        keys = {"rootCA.pem": invited.root, "client.crt": invited.certificate, "client.key": invited.key}
        for name in keys:  # those of an authority that nobody needs
            (made / "startup" / name).unlink()
        replace_files({made / "startup" / name: text.encode() for name, text in keys.items()}, mode=0o600)
        lead(made, site_file)
        changes = permit(made, alone=True)
        if kit.exists():  # it was being made when somebody interrupted it
            shutil.rmtree(kit)
        place(made, kit)
    return changes


def lead(kit: Path, site_file: Path) -> None:
    """Let a kit lead to the file of its site."""
    link = kit / SITE_FILE
    link.unlink(missing_ok=True)
    link.symlink_to(os.path.abspath(site_file))  # noqa: PTH100 - a link to it stays one


def start(kit: Path, output: Path) -> subprocess.Popen[bytes]:
    """Start the process of a kit, under a guard that ends it when this process ends. It is in a group of its own."""
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        return subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "secea.engines.guard", os.path.abspath(kit)],  # noqa: PTH100 - links stay
            stdin=subprocess.PIPE, stdout=descriptor, stderr=descriptor,
            env=_environment(), cwd=kit, start_new_session=True,
        )  # fmt: skip
    finally:
        os.close(descriptor)


def _environment() -> dict[str, str]:
    """The environment with this Python before any other, and no modules of the folder that somebody is in."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    kept = {name: value for name, value in os.environ.items() if name != "NVFL_WORKSPACE"}
    return kept | {"PATH": path, "PYTHONSAFEPATH": "1"}


def installed() -> None:
    """A `MissingExtra` if NVFlare is not there."""
    try:
        import nvflare  # noqa: F401
    except ImportError:
        raise MissingExtra(f"NVFlare is not installed: {installing('nvflare')}") from None


def described(folder: Path) -> str:
    """For which address and sites the kits below a folder are."""
    try:
        parties = json.loads((folder / "project.yml").read_text())["participants"]
        (server,) = [f"{each['name']}:{each['fed_learn_port']}" for each in parties if each["type"] == "server"]
        sites = [each["name"] for each in parties if each["type"] == "client"]
    except (OSError, ValueError, KeyError, TypeError):
        return "another federation"
    return f"{server}, with {', '.join(sites)}"


def same(project: Project, folder: Path) -> bool:
    """Whether the kits below this folder are those of this project."""
    try:
        return (folder / "project.yml").read_text() == project.text()
    except OSError:
        return False
