"""`secea permit`: let startup kits of NVFlare run secea's jobs, and close them."""

from __future__ import annotations

from pathlib import Path

import click

from secea.commands import shell
from secea.errors import ParamsError


@click.command(short_help="Let startup kits of NVFlare run secea's jobs, and nothing else.")
@click.argument(
    "kits", nargs=-1, required=True, metavar="KIT...", type=click.Path(file_okay=False, exists=True, path_type=Path)
)
@shell.json_option
def permit(kits: tuple[Path, ...], as_json: bool) -> None:
    """Let the startup kits KIT run secea's jobs, and close what an administrator of NVFlare could do there.

    Each operator does this once, with the kit that the provisioning made, before the kit is started. The jobs carry no
    code: the kit gets the names of the four classes that they use. From then on no role may bring code in a job, which
    could read the identity key, or read files by shell commands (cat, grep, tail), and the logs of a site are not
    streamed to the server.

    A server's kit keeps its jobs in a folder of its own, in place of one that all servers of a machine share. Its
    server gives a client up that is silent for 30 seconds, so that a job that did without it ends as completed.

    A kit that was changed before is left as it is.

    \b
    Examples:
      secea permit kits/kg/prod_00/north        a site, on its own machine
      secea permit kits/kg/prod_00/*            all kits, where somebody rehearses with all of them
    """  # noqa: D301
    from secea.engines import kits as startup

    changes = dict[str, tuple[str, ...]]()
    for kit in kits:
        if not (kit / "startup").is_dir():
            raise ParamsError(f"{kit} is no startup kit of NVFlare: it has no folder 'startup'")
    for kit in kits:
        changes[str(kit)] = startup.permit(kit)
    if as_json:
        shell.echo_json(changes)
        return
    for name, changed in changes.items():
        click.echo(f"{name}{'' if changed else '  is as it should be'}")
        for change in changed:
            click.echo(f"  {change}")
