"""The command line: `secea COMMAND`. Each command is a thin shell over a function of the package."""

from __future__ import annotations

import sys

import click

import secea
from secea.errors import SecEAError


class _Commands(click.Group):
    """Errors that were raised on purpose are messages for people, not tracebacks."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except SecEAError as error:
            click.secho(f"secea: {error}", fg="red", err=True)
            sys.exit(1)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(secea.__version__, prog_name="secea")
def main() -> None:
    """Secure embedding aggregation for federated representation learning.

    Organisations that hold overlapping entities get the mean embedding of each of their own entities over all owners;
    nobody learns who owns which entity, how many own it, or anyone's embedding. What that means exactly, and what is
    not protected, is in docs/threat-model.md.
    """


@main.command()
@click.option("--clients", default=5, show_default=True, help="Clients of the random federation.")
@click.option(
    "--collusion", default=1, show_default=True, help="So many clients together learn nothing (less than half)."
)
@click.option("--entities", default=400, show_default=True, help="Entities of all clients together.")
@click.option("--dim", default=32, show_default=True, help="Length of an embedding.")
@click.option(
    "--seed", default=None, type=int, help="Seed of the made-up embeddings; the protocol's randomness is secret."
)
def demo(clients: int, collusion: int, entities: int, dim: int, seed: int | None) -> None:
    r"""See it work: the paper's example, then a random federation, true and secure results side by side.

    \b
    Examples:
      secea demo
      secea demo --clients 10 --collusion 2 --entities 2000
    """
    from secea import demo as show

    show.paper_example()
    show.random_federation(clients=clients, collusion=collusion, entities=entities, dim=dim, seed=seed)


if __name__ == "__main__":
    main()
