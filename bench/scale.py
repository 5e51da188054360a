"""`python -m bench.scale`: past a hundred clients, by formula and by counted operations (docs/scale.md).

The simulator's figures are compared with the real thing where that can be run: at 10, 50 and 100 clients.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import click
from rich.console import Console

from bench import show, units
from bench.__main__ import FILE, WIDTH
from bench.figures import Figure, Grid, Run, Section
from bench.measure import PEERS, by_kind, machine, timed
from bench.model import (
    CLIENT,
    COMMITTEE,
    Setting,
    cpu,
    parties,
    prices,
    round_messages,
    round_work,
    setup_messages,
    setup_work,
)
from bench.model import by_kind as by_kind_of
from bench.model import total as bytes_of
from bench.shapes import FB15K, Scale, Shape
from secea import Federation
from secea.arithmetic.field import keep_freed_memory

Cells = dict[str, Figure]
Rows = Iterator[tuple[str, Cells]]

REAL: Final = {
    "10 clients": (FB15K.but(entities=6_000, own=2_000), 0),
    "10 clients, D = 1": (FB15K.but(entities=6_000, own=2_000), 1),
    "50 clients": (Scale().fifty, Scale().fifty_dropouts),
    "100 clients": (Scale().hundred, Scale().hundred_dropouts),
}
"""What is run beside its simulation."""
ITEMS: Final = Shape(clients=10, collusion=1, entities=10_000, own=100, dim=64, bound=400)
"""A catalogue of 10,000 items, of which a client has 100: the federation that grows here."""
DRAWN: Final = 1_000
"""Contributors to a round, where they are drawn."""
MOST: Final = 20
"""Counts that stay hidden, in the design."""
HUGE: Final = Shape(clients=10, collusion=2, entities=10_000, own=10_000, dim=32)
"""Small entity sets in a union that grows (docs/decisions/0018)."""
WILLOW: Final = {1_000: (12, 56, 76, 80, 1), 100_000: (13, 168, 200, 96, 1), 10_000_000: (14, 224, 244, 96, 2)}
"""By length: log2 of its ring; bits of plaintext and modulus; for the encrypted key, bits of modulus and ciphertexts.

For inputs of 32 bits and 10^7 clients: willow/src/shell/parameters.rs in github.com/google/secure-aggregation, 194d5b0.
"""


def _b(amount: float) -> Figure:
    return Figure.of(amount, "B")


def _s(amount: float) -> Figure:
    return Figure.of(amount, "s")


def agreement(beside: units.Units) -> Rows:
    """Real rounds and set-ups, and what the simulator says of them. Bytes must be the same to the last one."""
    for name, (shape, dropouts) in REAL.items():
        s, tables = Setting.of(shape, dropouts), shape.tables()
        price = prices(s, beside)
        fed = Federation(shape.params(dropouts=dropouts))
        _, setup = timed(partial(fed.setup, [table.names for table in tables]))
        sizes, hops = [sum(by_kind(fed).values())], len(fed.traffic)
        shape.check(fed.round(tables), fed.params.resolution)
        sizes.append(sum(by_kind(fed, hops).values()))
        rounds = [timed(partial(fed.round, tables))[1].cpu for _ in range(5)]
        said = [bytes_of(setup_messages(s)), bytes_of(round_messages(s))]
        assert said == sizes, f"{name}: {said} bytes were foreseen, {sizes} were sent"
        each, first = cpu(round_work(s), price), cpu(setup_work(s), price)
        measured = Figure.of(rounds, "s")
        yield name, {
            "round: bytes, foreseen and sent": _b(said[1]),
            "CPU, foreseen": _s(each), "measured": measured, "ratio": Figure.of(each / measured.median, "x"),
            "set-up: bytes, foreseen and sent": _b(said[0]),
            "set-up: CPU, foreseen": _s(first), "set-up: measured": _s(setup.cpu),
            "set-up: ratio": Figure.of(first / setup.cpu, "x"),
        }  # fmt: skip


def _round(s: Setting, price: units.Units) -> Cells:
    """What a round costs each party."""
    sent, work = round_messages(s), round_work(s)
    cells = {
        "client: sends": _b(bytes_of(sent, up=CLIENT) / s.clients),
        "client: gets": _b(bytes_of(sent, down=CLIENT) / s.clients),
        "client: CPU": _s(cpu(work, price, CLIENT)),
        "noise client: CPU": _s(cpu(work, price, CLIENT, "noise client")),
        "all hops": _b(bytes_of(sent)),
        "server: CPU": _s(cpu(work, price, "server")),
    }
    if not s.built:
        held = (bytes_of(sent, up=COMMITTEE) + bytes_of(sent, down=COMMITTEE)) / s.params.clients
        cells["committee: bytes"], cells["committee: CPU"] = _b(held), _s(cpu(work, price, COMMITTEE))
    return cells


def built(beside: units.Units) -> Rows:
    """The form as it is, with more and more clients: T and D are a tenth of them."""
    for N in (10, 30, 100, 200, 300):
        s = Setting.of(ITEMS.but(clients=N, collusion=N // 10, bound=ITEMS.entities // N + 400), N // 10)
        price, sent, work = prices(s, beside), setup_messages(s), setup_work(s)
        bits = {"element": _b(s.element), "log2 C": Figure.of(math.log2(s.numbers.C), "")}
        later = {
            "set-up: client sends and gets": _b((bytes_of(sent, up=CLIENT, down=CLIENT)) / N),
            "set-up: client, CPU": _s(cpu(work, price, CLIENT, COMMITTEE)),
        }
        yield f"{N} clients", bits | _round(s, price) | later


def steps(beside: units.Units) -> Rows:
    """The steps of the design for 300 clients; then for more, of whom all contribute, or some that are drawn."""
    few = ITEMS.but(clients=300, collusion=30)
    settings = {
        "300, as built": Setting.of(few, 30),
        f"300, counts hidden to {MOST}": Setting.of(few, 30, MOST),
        "300, and a committee": Setting.wide(few, 300, MOST),
    }
    for N in (1_000, 10_000, 100_000, 1_000_000):
        settings |= {
            f"{N:,}{'' if drawn == N else f', {drawn:,} drawn'}": Setting.wide(ITEMS.but(clients=N), drawn, MOST)
            for drawn in dict.fromkeys((N, DRAWN))
        }
    for name, s in settings.items():
        yield name, {"element": _b(s.element), "masks": Figure.of(s.masks, "")} | _round(s, prices(s, beside))


def names(beside: units.Units) -> Rows:
    """The design's set-up, once."""
    for N in (1_000, 10_000, 100_000, 1_000_000):
        s = Setting.wide(ITEMS.but(clients=N), DRAWN, MOST)
        price, sent, work = prices(s, beside), setup_messages(s, N), setup_work(s, N)
        held = bytes_of(sent, up=COMMITTEE) + bytes_of(sent, down=COMMITTEE)
        yield (
            f"{N:,} clients",
            {
                "client: sends and gets": _b(bytes_of(sent, up=CLIENT, down=CLIENT) / N),
                "client: CPU": _s(cpu(work, price, CLIENT)),
                "committee: bytes of a member": _b(held / s.params.clients),
                "committee: CPU of a holder": _s(cpu(work, price, COMMITTEE, "holder")),
                "all hops": _b(bytes_of(sent)),
                "server: CPU": _s(cpu(work, price, "server")),
            },
        )


def willow(beside: units.Units) -> Rows:
    """An upload of as many numbers in Willow, by its published parameters, and in the design."""
    del beside
    for length, (log_n, plain, modulus, other, ciphertexts) in WILLOW.items():
        rows = max(1, length // ITEMS.dim)
        packed = plain // 56  # sums of 10^7 numbers of 32 bits have 56
        coefficients = -(-length // packed)
        polynomials = -(-coefficients // (1 << log_n))
        theirs = polynomials * (1 << log_n) * modulus / 8 + ciphertexts * 2 * (1 << 12) * other / 8
        s = Setting.wide(ITEMS.but(clients=1_000_000, entities=rows, own=1, bound=max(1, rows // 8)), DRAWN, MOST)
        ours = bytes_of(round_messages(s), up=CLIENT) / s.clients
        yield f"{length:,} numbers", {
            "Willow": _b(theirs), "the design": _b(ours), "design / Willow": Figure.of(ours / theirs, "x")
        }  # fmt: skip


def huge(beside: units.Units) -> Rows:
    """Ten clients with 10,000 entities each in a union that grows; one with more must then be among them."""
    for M in (10_000, 100_000, 1_000_000, 10_000_000):
        bound = max(HUGE.own, -(-M // HUGE.clients))
        s = Setting.of(HUGE.but(entities=M, bound=bound), 0)
        price, table = prices(s, beside, setup=False), setup_messages(s)
        cells = _round(s, price)
        useful, sent = 2 * 4 * HUGE.own * HUGE.dim, cells["client: sends"].median + cells["client: gets"].median
        yield f"{M:,}", {
            "own / M": Figure.of(100 * HUGE.own / M, "%"),
            **{column: cells[column] for column in ("client: sends", "client: gets", "client: CPU", "server: CPU")},
            "bytes / own rows in float32": Figure.of(sent / useful, "x"),
            "at 100 Mbit/s": _s(8 * sent / 1e8),
            "each union": _b(sum(by_kind_of(table)[kind] for kind in ("table", "tags")) / s.clients),
            "names, once: CPU": _s(bound * (price["blind"] + price["finish"])),
        }  # fmt: skip


GRIDS: Final[dict[str, tuple[str, Callable[[units.Units], Rows]]]] = {
    "agreement": ("The simulator beside the real thing", agreement),
    "built": ("As it is built", built),
    "steps": ("The design: a round", steps),
    "names": ("The design: the set-up, once", names),
    "willow": ("Bytes of one upload", willow),
    "huge": ("10,000 entities of each client in a union of M", huge),
}


@click.command()
@click.argument("grids", nargs=-1, type=click.Choice(list(GRIDS)), metavar="[TABLE]...")
@click.option("--json", "as_json", is_flag=True, help="Print the run as JSON.")
@click.option("--markdown", "pages", multiple=True, metavar="PAGE", type=FILE, help="Fill the marked blocks of a page.")
def main(grids: Sequence[str], as_json: bool, pages: Sequence[Path]) -> None:
    """Simulate what federations of up to a million clients would cost.

    `agreement` runs real federations beside their simulation, in some minutes. The other tables take seconds.
    A page has blocks named `steps/table` and so on; those that were not made stay as they are.
    """
    keep_freed_memory()  # as in the processes that an engine starts
    console = Console(quiet=as_json, width=None if Console().is_terminal else WIDTH)
    beside = parties()
    known = {name: fact for name, fact in machine().items() if name not in PEERS}  # no peer runs here
    run = Run(known, False)
    for name in grids or GRIDS:
        title, rows = GRIDS[name]
        run.sections[name] = Section(title, {"table": Grid("", dict(rows(beside)))})
        show.print_section(console, name, run.sections[name])
    for page in pages:
        page.write_text(show.fill(page.read_text(encoding="utf-8"), run), encoding="utf-8")
        console.print(f"filled {page}")
    if as_json:
        click.echo(json.dumps(run.to_json(), indent=1))


if __name__ == "__main__":
    main(prog_name="python -m bench.scale")
