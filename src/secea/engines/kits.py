"""Startup kits of NVFlare: let them run secea's jobs, and close what an administrator could read or bring there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from secea.engines.policy import without_code
from secea.errors import MissingExtra
from secea.extras import installing

SERVER_CLASSES: Final = ("nvflare.collab.runtime.controller.CollabController", "secea.engines.nvflare.Conductor")
SITE_CLASSES: Final = ("nvflare.collab.runtime.executor.CollabExecutor", "secea.engines.nvflare.Member")
CLASSES: Final = (*SERVER_CLASSES, *SITE_CLASSES)
"""The classes that a job names. A site that allows just these need not accept code from the server."""

STORAGE: Final = "storage"
"""A server keeps jobs in this folder of its kit; without it, in a folder that all servers of a machine share."""

SILENT_SECONDS: Final = 30
"""After so long without a heartbeat NVFlare's server gives a client up. By default it takes ten minutes, and calls a
job abnormal that ended meanwhile."""

_SHARED: Final = "/tmp/nvflare/"  # noqa: S108 - where NVFlare's kits have it
_SHELL: Final = "shell_commands"
"""The right to read files of a kit from afar, its logs among them: cat, tail, grep."""
_RIGHTS: Final = ("submit_job", "clone_job", "manage_job", "download_job", "view", "operate", _SHELL)
"""The rights of a role to which NVFlare's policy gives everything, without the right to bring code."""


def permit(folder: Path | str, *, alone: bool = False) -> tuple[str, ...]:
    """Let a startup kit, or a simulator's folder, run these jobs: add their classes to what it allows. What changed.

    With `alone` it allows no others: NVFlare's own list has some that run controllers at a site.
    From then on no role may bring code of its own, which could read the identity key, or read files of the site by
    shell commands; the site's logs are not streamed to the server. A server's kit keeps its jobs in its own folder.
    """
    kit = Path(folder).absolute()
    changes, files = _permitted(kit, alone=alone)
    (kit / "local").mkdir(parents=True, exist_ok=True)
    for path, policy in files.items():
        _write(path, policy)
    return changes


def lacking(folder: Path | str) -> tuple[str, ...]:
    """What `permit` would change in a kit."""
    return _permitted(Path(folder).absolute(), alone=False)[0]


def _permitted(kit: Path, *, alone: bool) -> tuple[tuple[str, ...], dict[Path, dict[str, Any]]]:
    """What a kit lacks, and the files with which it lacks nothing."""
    resources, authorization = kit / "local" / "resources.json", kit / "local" / "authorization.json"
    changes, files = _resources(kit, resources, alone=alone)
    if policy := _policy(authorization):
        before = json.dumps(policy)
        roles = without_code(policy["permissions"], _RIGHTS)
        policy["permissions"] = {role: {**given, _SHELL: "none"} for role, given in roles.items()}
        if json.dumps(policy) != before:
            files[authorization] = policy
            changes.append("no role may bring code in a job, or read files by shell commands")
    return tuple(changes), files


def is_site(kit: Path) -> bool:
    """Whether this is the startup kit of a site."""
    return (kit / "startup" / "fed_client.json").exists()


def is_server(kit: Path) -> bool:
    """Whether this is the startup kit of a server."""
    return (kit / "startup" / "fed_server.json").exists()


def _resources(kit: Path, path: Path, *, alone: bool) -> tuple[list[str], dict[Path, dict[str, Any]]]:
    """What a kit may run and where it keeps things: what is to change, and the file in which it has."""
    changes = list[str]()
    resources = _policy(path) or {"format_version": 2}
    before = json.dumps(resources)
    allowed = resources.setdefault("class_allow_list", _usual())
    wanted = SERVER_CLASSES if is_server(kit) else SITE_CLASSES if is_site(kit) else CLASSES
    if missing := [name for name in wanted if name not in allowed]:
        allowed += missing
        changes.append("jobs may use secea's classes")
    if alone and set(allowed) != set(wanted):
        allowed[:] = wanted
        changes.append("jobs may use no other classes")
    if is_server(kit):
        resources, moved = _kept_in(resources, f"{kit / STORAGE}/")
        if moved:
            changes.append(f"jobs are kept in {kit / STORAGE}")
        for server in resources.get("servers", []):
            if server.get("heart_beat_timeout") != SILENT_SECONDS:
                server["heart_beat_timeout"] = SILENT_SECONDS
                changes.append(f"a client that is silent for {SILENT_SECONDS} s is given up")
    elif resources.get("allow_log_streaming") is not False:
        resources["allow_log_streaming"] = False
        changes.append("logs stay at the site")
    return changes, {path: resources} if json.dumps(resources) != before else {}


def _kept_in(value: Any, folder: str) -> tuple[Any, bool]:
    """The same value with this folder in place of the shared one, and whether that changed anything."""
    text = json.dumps(value)
    changed = text.replace(json.dumps(_SHARED)[1:-1], json.dumps(folder)[1:-1])
    return json.loads(changed), changed != text


def _usual() -> list[str]:
    try:
        from nvflare.app_common.default_component_policy import DEFAULT_CLASS_ALLOW_LIST
    except ImportError:
        raise MissingExtra(f"NVFlare is not installed: {installing('nvflare')}") from None
    return list(DEFAULT_CLASS_ALLOW_LIST)


def _policy(path: Path) -> dict[str, Any]:
    """The site's own policy, or the one that came with its startup kit."""
    files = (path, path.with_name(f"{path.name}.default"))
    return next((json.loads(file.read_bytes()) for file in files if file.exists()), {})


def _write(path: Path, policy: dict[str, Any]) -> None:
    path.write_text(json.dumps(policy, indent=2) + "\n", encoding="utf-8")
