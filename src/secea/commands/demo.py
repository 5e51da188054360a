"""`secea demo`: the options. What it does is in `secea.demo`."""

from __future__ import annotations

import click

from secea.commands import shell


@click.command(short_help="See it work on real data, step by step.")
@click.option(
    "--data", type=click.Choice(["umls", "borders"]),
    help="A network of medical concepts, or the borders of US states.  [umls if pykeen is installed]",
)  # fmt: skip
@click.option("--clients", metavar="N", default=5, show_default=True, help="Organisations.")
@shell.collusion_option
@click.option(
    "--entities", metavar="N", type=click.IntRange(min=1), help="So many made-up entities, in place of real data."
)
@click.option(
    "--dim", metavar="N", default=32, show_default=True, type=click.IntRange(min=1), help="Length of an embedding."
)
@click.option(
    "--seed", metavar="N", default=None, type=click.IntRange(min=0),
    help="Of who knows what; the protocol's randomness is secret in any case.",
)  # fmt: skip
@shell.json_option
def demo(
    data: str | None, clients: int, collusion: int, entities: int | None, dim: int, seed: int | None, as_json: bool
) -> None:
    """See it work: a whole federation on real data, in a few seconds.

    It shows the organisations and what they have in common; what each party sees of one entity in each phase, beside
    the truth; the means that come out, beside the true ones; attacks that fail, and that succeed when a protection is
    taken away; time and bytes. With --entities the data is made up, of any size, and only means and costs are shown.

    \b
    Examples:
      secea demo
      secea demo --data borders --clients 7 --collusion 2
      secea demo --clients 10 --collusion 2 --entities 2000
      secea demo --json
    """  # noqa: D301 - click takes the character itself: it keeps the lines that follow as they are
    if data is not None and entities is not None:
        raise click.UsageError("--entities makes data up: leave --data out, or --entities")
    from secea.demo import guide

    with shell.working("running a federation"):
        if entities is None:
            found = guide.guided(data, clients=clients, collusion=collusion, dim=dim, seed=seed)
        else:
            found = guide.made_up(clients=clients, collusion=collusion, entities=entities, dim=dim, seed=seed)
    if as_json:
        shell.echo_json(found)
    else:
        guide.show(found, shell.console())
    if any(attack["found"] for attack in found.get("attacks", ())):
        shell.fail("an attack succeeded: this is a bug, please report it (SECURITY.md says how)", shell.FAILED)
