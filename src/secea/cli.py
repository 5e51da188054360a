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
    """See it work: the paper's example, then a random federation, true and secure results side by side.

    \b
    Examples:
      secea demo
      secea demo --clients 10 --collusion 2 --entities 2000
    """  # noqa: D301 - click takes the character itself: it keeps the lines that follow as they are
    from secea import demo as show

    show.paper_example()
    show.random_federation(clients=clients, collusion=collusion, entities=entities, dim=dim, seed=seed)


@main.command()
@click.option("--mutant", metavar="NAME", help="Take one protection away first: the audit must then object.")
@click.option("--claim", "names", multiple=True, metavar="NAME", help="Check this claim alone; may be repeated.")
@click.option("--list", "listed", is_flag=True, help="List all claims and mutants, and check nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print a list of {name, claim, method, cases, ok, objection}.")
def audit(mutant: str | None, names: tuple[str, ...], listed: bool, as_json: bool) -> None:
    """Check every privacy claim on this installation, with the code that runs in a federation.

    A claim is a sentence about what a party can see. It is checked by computing the exact law of a view over a tiny
    field, by carrying out an attack, by statistics, or by recording what the parties do. A mutant is the product with
    one protection taken away: if the audit does not object to it, the audit is worth nothing. So try one.

    The exit code is 0 if every claim holds, 1 if one does not (as on a mutant), and 2 for a name that does not exist.

    \b
    Examples:
      secea audit                                 about a minute
      secea audit --list                          what is claimed, and what can be taken away
      secea audit --claim openings --claim keys   two claims
      secea audit --mutant no-zeta                objections, and exit code 1
      secea audit --json > findings.json          for other programs
    """  # noqa: D301
    from secea.audit import report

    if listed:
        report.show_list(as_json=as_json)
        return
    try:
        claims, broken = report.chosen(names, mutant)
    except KeyError as error:
        raise click.UsageError(str(error.args[0])) from None
    sys.exit(0 if report.run(claims, broken, as_json=as_json) else 1)


if __name__ == "__main__":
    main()
