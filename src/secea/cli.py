"""The command line: `secea COMMAND`. Each command is a thin shell over a function of the package."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

import secea
from secea.arithmetic.field import keep_freed_memory
from secea.commands import shell
from secea.commands.aggregate import aggregate
from secea.commands.agreed import session_lines
from secea.commands.check import check
from secea.commands.demo import demo
from secea.commands.host import host
from secea.commands.join import join
from secea.commands.metrics import metrics
from secea.commands.permit import permit
from secea.commands.plan import plan
from secea.commands.status import status
from secea.commands.stop import stop
from secea.commands.watch import watch
from secea.learn.command import train

if TYPE_CHECKING:
    from secea.audit import Finding


@click.group(
    cls=shell.Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=shell.EXIT_CODES,
)
@click.version_option(secea.__version__, prog_name="secea")
def main() -> None:
    """Secure embedding aggregation for federated representation learning.

    Organisations that hold overlapping entities get the mean embedding of each of their own entities over all owners.
    The server learns no name, no number and no count; a client learns only the means of its own entities. What
    conspirators learn together, and what else is not protected, is in docs/threat-model.md.

    \b
    Examples:
      secea demo                                          see it work, step by step
      secea train kg                                      what sharing gains, and what protection costs
      secea check a.npz b.csv c.vec                       do your own tables fit together?
      secea aggregate a.npz b.csv c.vec --out means/      their means
      secea plan --clients 10 --entities 14541 --dim 128  what a federation would cost
      secea COMMAND --help                                more examples
    """  # noqa: D301 - click takes the character itself: it keeps the lines that follow as they are
    keep_freed_memory()


@click.command(short_help="Check the privacy claims on this installation.")
@click.option("--form", type=click.Choice(["keyed", "paillier"]), help="Only claims about this form.  [both]")
@click.option("--claim", "names", multiple=True, metavar="NAME", help="Check only this claim; may be repeated.")
@click.option("--mutant", metavar="NAME", help="Take one protection away first: the audit must then object.")
@click.option("--thorough", is_flag=True, help="More federations, more inputs, more rounds: a few minutes.")
@click.option("--list", "listed", is_flag=True, help="List all claims and mutants, and check nothing.")
@click.option("--counts", is_flag=True, help="Show how often attacks find how many clients own an entity: minutes.")
@click.option(
    "--html",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write a page to send to others.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print a list of {name, form, claim, method, cases, ok, objection, broke_off, table}.",
)
def audit(
    form: str | None,
    names: tuple[str, ...],
    mutant: str | None,
    thorough: bool,
    listed: bool,
    counts: bool,
    html: Path | None,
    as_json: bool,
) -> None:
    """Check every privacy claim, first of form keyed and then of form paillier, with the code that is installed.

    A claim is a sentence about what somebody cannot learn. It is checked with real parties: by computing the exact
    distribution of what one of them sees, by carrying out an attack, by statistics, or by recording what they do. A
    mutant is the product with one protection taken away: if the audit does not object to it, the audit is worth
    nothing. So try one. A table says what a server that deviates tried on real clients, and what came of it.

    The exit code is 0 if every claim holds, 1 if one does not (as on a mutant), and 2 for a name that does not exist. A
    mutant whose federation stops early, without an objection, does not count as found: the exit code is 0.

    With --html it also writes a certificate: version and hashes of the installed files, and every claim with its
    figure. Send it to the other organisations: whoever runs the same code has the same digest.

    \b
    Examples:
      secea audit                                 two to three minutes
      secea audit --form keyed --thorough         a quarter of an hour
      secea audit --list                          what is claimed, and what can be taken away
      secea audit --counts                        what attacks on counts reach, beside chance
      secea audit --claim names --claim rows      two claims
      secea audit --mutant fewer-masks            objections, and exit code 1
      secea audit --html audit.html               a certificate for the other organisations
      secea audit --json > findings.json          for other programs
    """  # noqa: D301
    from secea.audit import FORMS, report

    if html is not None and (mutant or listed or counts):
        raise click.UsageError("--html is about the code as it is installed: leave out --mutant, --list and --counts")
    forms = FORMS if form is None else (form,)
    if listed:
        report.show_list(forms=forms, as_json=as_json)
        return
    try:
        claims, broken = report.chosen(names, mutant)
    except KeyError as error:
        raise click.UsageError(str(error.args[0])) from None
    if counts:
        from secea.audit import rates

        rates.show(rates.measured(rates.form_of(broken)), as_json=as_json)
        return
    started = time.monotonic()
    fine, findings = report.run(claims, broken, forms=forms, thorough=thorough, as_json=as_json)
    if html is not None:
        _certify(html, findings, thorough, time.monotonic() - started)
        if not as_json:
            click.echo(f"wrote {html}")
    sys.exit(0 if fine else 1)


def _certify(path: Path, findings: Sequence[Finding], thorough: bool, seconds: float) -> None:
    """Write what was found as a page."""
    from datetime import UTC, datetime

    from secea.audit import report
    from secea.audit.installation import installation
    from secea.report import save
    from secea.report.certificate import Certificate, page

    unasked, now = report.unasked(findings), datetime.now(UTC)
    save(page(Certificate(installation(), findings, report.TITLES, unasked, thorough, now, seconds)), path)


@click.command(short_help="Write one page about a run, or several.")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=click.Path(path_type=Path))
@click.option(
    "--out", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path), help="Where it goes.  [RUN/report.html]"
)
@click.option("--open", "opened", is_flag=True, help="Open the page in a browser.")
@shell.json_option
def report(runs: tuple[Path, ...], out: Path | None, opened: bool, as_json: bool) -> None:
    """Write one page about one run or several: what came out, and what it cost.

    RUN is a folder that `secea train` wrote, finished or not, of one seed or of several. The page begins with what
    sharing gains or costs. It has the learning curves of the methods, the final table, where the time of a round went,
    bytes by phase, how many clients own how many entities, and a picture of the embeddings. It is a single file that
    loads nothing and runs no script. It names entities and paths of the run, so show it only to people who may see the
    data.

    Runs that differ only in their seeds are taken together, as means with the lowest and the highest. Runs that differ
    in anything else are shown side by side.

    \b
    Examples:
      secea report runs/umls                             writes runs/umls/report.html
      secea report runs/umls --open                      and shows it
      secea report runs/umls-seed-* --out umls.html      seeds of one configuration
      secea report runs/transe runs/rotate --out two.html
    """  # noqa: D301
    from secea.report import write
    from secea.report.verdicts import verdict_of

    path, groups = write(runs, out)
    if as_json:
        listed = [[str(run.folder) for run in group.runs] for group in groups]
        verdicts = [verdict_of(group).to_json() for group in groups]
        shell.echo_json({"page": str(path), "runs": listed, "verdicts": verdicts})
    else:
        click.echo(f"wrote {path}")
    if opened:
        import webbrowser

        webbrowser.open(path.resolve().as_uri())


@click.command(short_help="Make a party's identity key.")
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path))
@shell.json_option
def keygen(path: Path, as_json: bool) -> None:
    """Make this party's identity key: PATH is private, PATH.pub goes into the roster.

    The private key signs this party's messages, and saved state is encrypted under it. It never leaves its owner. To
    rotate a key, make a new one, and let all parties begin a session with a new roster. To revoke one, make a roster
    without it: nobody answers to a key that is not in it.

    \b
    Example:
      secea keygen north.key           keep north.key; give north.key.pub to whoever makes the roster
    """  # noqa: D301
    from secea.engines import files
    from secea.wire.keys import Identity

    identity = Identity.generate()
    files.write_identity(identity, path)
    public, fingerprint = files.public_path(path), files.key_fingerprint(identity.public)
    if as_json:
        shell.echo_json({"private": str(path), "public": str(public), "fingerprint": fingerprint})
        return
    click.echo(f"private key  {path}  (keep it)")
    click.echo(f"public key   {public}  (for the roster)")
    click.echo(f"fingerprint  {fingerprint}")


@click.command(short_help="Write the federation file, or show it.")
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--server", metavar="FILE", help="The server's public key.")
@click.option("--client", "clients", multiple=True, metavar="NAME=FILE", help="A client's name and public key.")
@click.option("--param", "params", multiple=True, metavar="NAME=VALUE", help="A parameter: dim, max_entities, ...")
@shell.form_option
@shell.json_option
def roster(
    path: Path, server: str | None, clients: tuple[str, ...], params: tuple[str, ...], form: str, as_json: bool
) -> None:
    """Write the federation file PATH from public keys and parameters, or show an existing one.

    Every party gets the same file, compares the fingerprint with the others over another channel, and starts only if it
    is the same. It holds keys and the policy: nothing in it is secret. Parties with different files refuse each other,
    and a file that was edited is refused. It is TOML, with a word on each line; or JSON where PATH ends in .json. What
    it means for people who sign it is printed by `secea plan --policy`.

    dim, max_entities and max_union are needed. All others have defaults: collusion, dropouts, min_owners, max_weight,
    partial, noise, max_abs, precision, rounds and more (`secea.Params`); with form keyed also min_participants,
    max_new_entities, max_updates and batch (docs/protocol-keyed.md, K1). What they mean for trust is printed with the
    file.

    \b
    Examples:
      secea roster federation.toml --server server.key.pub \\
          --client north=north.key.pub --client south=south.key.pub --client west=west.key.pub \\
          --param dim=64 --param max_entities=10000 --param max_union=25000
      secea roster federation.toml                             show it, and its fingerprint
    """  # noqa: D301
    from secea.engines import files

    if server is None and not clients and not params:
        session = files.read_session(path)
    else:
        if server is None:
            raise click.UsageError("--server is missing: the server needs a key too")
        session = files.make_session(server, clients, params, form)
        files.write_session(session, path)
    if as_json:
        click.echo(files.session_json(session))
        return
    for line in session_lines(session):
        click.echo(line)
    click.secho(f"fingerprint     {session.fingerprint}", bold=True)
    click.echo("All parties compare this fingerprint before they start.")


@click.command(short_help="Print the script for completion in bash, zsh or fish.")
@click.argument("name", metavar="SHELL", type=click.Choice(["bash", "zsh", "fish"]))
def completion(name: str) -> None:
    """Print the script that lets a shell complete commands and options.

    \b
    Examples:
      eval "$(secea completion bash)"                                      in ~/.bashrc
      eval "$(secea completion zsh)"                                       in ~/.zshrc, after compinit
      secea completion fish > ~/.config/fish/completions/secea.fish
    """  # noqa: D301
    from click.shell_completion import get_completion_class

    script = get_completion_class(name)
    assert script is not None
    click.echo(script(main, {}, "secea", "_SECEA_COMPLETE").source())


LOCAL = (demo, train, report, aggregate, check, plan, audit)
BETWEEN = (keygen, roster, permit, host, join, status, watch, metrics, stop)
"""Between organisations."""
for command in (*LOCAL, *BETWEEN, completion):
    main.add_command(command)
