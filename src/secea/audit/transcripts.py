"""Federations whose draws are given, and the hashes of everything that their parties send.

The hashes stand in `transcripts.json`. They were taken from the code of which `vectors/` holds known answers, made with
arithmetic of their own. `python -m secea.audit.transcripts` writes them after a change of what is sent, and only then.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from secea.audit import KEYED, PAILLIER, Subject
from secea.audit.attacks.names import Next, following
from secea.audit.claims.counts import form_of
from secea.audit.standing import standing_in
from secea.table import as_table
from secea.testing import Parties, insecure_seeded
from secea.wire.messages import Buffer, Header

FILE: Final = Path(__file__).with_name("transcripts.json")
SEED: Final = 7
Tables = list[dict[str, NDArray[np.float64]]]


class Hashes:
    """A tap that hashes what each party sends to each other one, kind by kind."""

    def __init__(self, subject: Subject) -> None:
        self.kinds = subject.form.kinds
        self.running: dict[tuple[str, int, int], Any] = {}

    def __call__(self, sender: int, receiver: int, message: Buffer) -> Iterable[Buffer]:
        """It passes."""
        kind = Header.parse(message, sender, self.kinds).kind.name
        self.running.setdefault((kind, sender, receiver), hashlib.sha256()).update(message)
        return (message,)

    def found(self) -> dict[str, str]:
        """A hash for each kind."""
        found: dict[str, Any] = {}
        for (kind, *ends), each in sorted(self.running.items()):
            found.setdefault(kind, hashlib.sha256()).update(repr(ends).encode() + each.digest())
        return {kind: each.hexdigest()[:32] for kind, each in found.items()}


def tables_of(clients: int, names: int, dim: int) -> Tables:
    """Made-up embeddings: each name belongs to some of the clients."""

    def value(*of: int) -> float:
        return 8 * int.from_bytes(hashlib.sha256(repr(of).encode()).digest()[:6], "little") / 2**48 - 4

    return [
        {
            f"entity {i}": np.array([value(n, i, j) for j in range(dim)])
            for i in range(names)
            if i % clients == n or (i * i + n) % 3 == 0
        }
        for n in range(clients)
    ]


def plain(subject: Subject, tap: Hashes) -> None:
    """Rounds, other names, an absent client, a restart, and rounds with large numbers."""
    tables = tables_of(5, 23, 3)
    with standing_in({}, CHUNK_BYTES=300):
        parties = _parties(subject, tables, tap, collusion=2, max_union=40, rounds=1 << 20)
        parties.setup()
        parties.round(tables)
        tables[0]["another"] = tables[0].pop(next(iter(tables[0])))
        parties.clients[0].part.update(list(tables[0]))
        parties.exchange.run(parties.session.form.names_phase, range(5))
        parties.round(tables)
        parties.restart(2)
        parties.exchange.greet()
        parties.union((0, 1, 2, 4))
        parties.server.at = replace(parties.server.at, round=70_000)
        parties.union((0, 1, 2, 4))
        for _ in range(2):
            parties.round([*tables[:3], None, tables[4]])


def with_drop_outs(subject: Subject, tap: Hashes) -> None:
    """Two batches of mask keys, losses, and a new union after them."""
    tables = tables_of(6, 17, 2)
    form = replace(form_of(subject), batch=2)
    with standing_in({}, CHUNK_BYTES=300):
        parties = _parties(replace(subject, form=form), tables, tap, collusion=1, dropouts=2, max_union=30)
        parties.setup()
        for gone in ((), (1, 4)):
            parties.exchange.losses = dict.fromkeys(gone, form.round_phase)
            parties.contribute(tables)
            parties.exchange.run(form.round_phase, parties.clients)
        parties.exchange.losses, parties.exchange.here = {}, set(parties.clients)
        parties.union(range(6))
        parties.round(tables)


def with_small_primes(subject: Subject, tap: Hashes) -> None:
    """A field of several primes."""
    tables = tables_of(4, 9, 3)
    parties = _parties(subject, tables, tap, collusion=3, precision=40)
    parties.setup()
    parties.round(tables)


def with_a_large_prime(subject: Subject, tap: Hashes) -> None:
    """A field of one prime whose elements have eight bytes."""
    tables = tables_of(3, 9, 3)
    parties = _parties(subject, tables, tap, collusion=1, precision=38)
    parties.setup()
    parties.round(tables)


def with_many_names(subject: Subject, tap: Hashes) -> None:
    """More names and chunks than fit into a byte."""
    tables = tables_of(2, 300, 1)
    with standing_in({}, CHUNK_BYTES=64):
        parties = _parties(subject, tables, tap, collusion=1)
        parties.setup()
        parties.round(tables)


def with_a_minimum(subject: Subject, tap: Hashes) -> None:
    """A minimum of owners and noise on every slot, without drop-outs and with one."""
    for dropouts in (0, 1):
        tables = tables_of(5, 11, 2)
        options = {"min_owners": 3, "noise": 0.25, "dropouts": dropouts}
        with standing_in({}, CHUNK_BYTES=300):
            parties = _parties(subject, tables, tap, collusion=1, max_union=30, **options)
            parties.setup()
            parties.exchange.losses = dict.fromkeys((4,) * dropouts, parties.session.form.round_phase)
            parties.contribute(tables)
            parties.exchange.run(parties.session.form.round_phase, parties.clients)


def with_weights(subject: Subject, tap: Hashes) -> None:
    """Weighted means, and rows that are left out openly."""
    tables = [as_table(table) for table in tables_of(4, 9, 2)]
    for options, most in (({"max_weight": 50}, 50), ({"partial": True}, 1)):
        parties = _parties(subject, tables_of(4, 9, 2), tap, collusion=2, **options)
        parties.setup()
        for _ in range(2):
            parties.round([each.weighing(7 * np.arange(len(each)) % (most + 1)) for each in tables])


def with_newcomers(subject: Subject, tap: Hashes) -> None:
    """A session that takes over the key of another one: somebody comes, and somebody leaves."""
    tables = tables_of(4, 7, 2)
    old = _parties(subject, tables, tap, collusion=2, max_union=20)
    old.setup()
    form = following(old, (0, 2, 3, None), 1)
    assert form is not None
    then = Next(old, form, 1, insecure_seeded(SEED + 1))
    then.exchange.tap = tap
    then.setup()


def paper(subject: Subject, tap: Hashes) -> None:
    """The paper's form: a round, other names, another round."""
    tables = tables_of(3, 7, 2)
    parties = _parties(subject, tables, tap, collusion=1, max_union=12)
    parties.setup()
    parties.round(tables)
    tables[0]["another"] = tables[0].pop(next(iter(tables[0])))
    parties.clients[0].part.update(list(tables[0]))
    parties.union(range(3))
    parties.round(tables)


def _parties(subject: Subject, tables: Tables, tap: Hashes, **params: Any) -> Parties:
    return subject.parties(tables, tap=tap, entropy=insecure_seeded(SEED), **params)


Story = Callable[[Subject, Hashes], None]
STORIES: Final[Mapping[str, tuple[Story, ...]]] = {
    KEYED: (
        plain,
        with_drop_outs,
        with_small_primes,
        with_a_large_prime,
        with_many_names,
        with_a_minimum,
        with_weights,
        with_newcomers,
    ),
    PAILLIER: (paper,),
}


def told(subject: Subject, story: Story) -> dict[str, str]:
    """The hashes of a story, by kind of message."""
    tap = Hashes(subject)
    story(subject, tap)
    return tap.found()


def main() -> None:
    """Write the file."""
    from secea.audit.registry import product

    written = {story.__name__: told(subject, story) for form, subject in product().items() for story in STORIES[form]}
    FILE.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
