"""`secea stop`: end what `secea host` or `secea join` runs."""

from __future__ import annotations

from pathlib import Path

import click

from secea.commands import shell


@click.command(short_help="End what host or join runs.")
@click.argument("where", default=".", type=click.Path(file_okay=False, exists=True, path_type=Path))
@click.option("--now", is_flag=True, help="At once, and not after the round that is running.")
@click.option(
    "--wait", metavar="SECONDS", type=click.FloatRange(0), default=60.0, show_default=True, help="How long to wait."
)
@shell.json_option
def stop(where: Path, now: bool, wait: float, as_json: bool) -> None:
    """End the federation that is hosted in the folder WHERE, or the site that joined from there.

    A federation ends after the round that is running, and its sites with it; the same `secea host` goes on with the
    rounds that are left. With --now that round is lost. A site leaves at once. Without WHERE it is this folder.

    \b
    Examples:
      secea stop kg              the federation whose file is kg/federation.toml
      secea stop kg --now
      secea stop north           the site in the folder north
    """  # noqa: D301
    from secea.engines import running

    ended = running.stop(where, now=now, patience=wait)
    if as_json:
        shell.echo_json({"where": str(where), "ended": ended})
    else:
        later = f"it goes on until its round is over, and then ends; at once: secea stop {where} --now"
        click.echo(f"{where}: ended" if ended else f"{where}: {later}")
    if not ended:
        raise SystemExit(shell.FAILED)
