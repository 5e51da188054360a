"""What follows from parameters, names, tables, files and bytes alone: drawn ones, right and wrong, at random."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import fields
from typing import Any, Final

import numpy as np

from secea import privacy
from secea.arithmetic import grid
from secea.audit import KEYED, SMALL_KEYS, Subject
from secea.audit.conduct import Dice, Life
from secea.audit.standing import standing_in
from secea.engines import files, meters
from secea.engines.port import Order, Reply, Task
from secea.engines.progress import ClientState, State
from secea.errors import SecEAError
from secea.forms.keyed.form import Keyed
from secea.forms.keyed.numbers import Numbers
from secea.forms.keyed.tables import Result, Tables
from secea.names import joining, keys_of, near, spellings, text_of
from secea.params import STEPS, Params
from secea.party.form import Form
from secea.party.phases import Agreement, Begin, Standing
from secea.party.session import Session
from secea.table import Table, as_table, canonical_name, name_bytes
from secea.testing import insecure_seeded
from secea.wire import snapshot
from secea.wire.keys import Hello, Identity, Roster
from secea.wire.messages import ALL, Header

ENTITIES: Final = (
    "a", " a", "A", "ß", "SS", "ss", "é", "é", "1", 1, 1.0, -7, "", "x" * 70_000, "x" * 70_001, b"a", None, True,
)  # fmt: skip
KINDS: Final = (np.float64, np.float32, np.float16, np.int32)


class Figures(Life):
    """Some of everything, drawn from a number."""

    def __init__(self, subject: Subject, seed: int) -> None:
        super().__init__()
        self.subject, self.seed = subject, seed
        self.dice = Dice("figures", subject.form.name, seed)
        self.identities = [Identity.generate(insecure_seeded(seed)(n)) for n in range(9)]

    def live(self) -> str:
        """All of it."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.parameters()
            if self.subject.form.name == KEYED:
                self.tables()
                self.spelled()
                self.lines()
            self.federation_files()
            self.bytes()
        return self.over()

    def told(self, what: str, of: Callable[..., object], *given: object) -> Any:
        """What it gives, or that it does not."""
        try:
            found = of(*given)
        except (SecEAError, ValueError, TypeError, OverflowError) as error:
            self.note(f"{what}: {type(error).__name__}")
            return None
        self.note(what, found)
        return found

    # ----------------------------------------------------------------------------------------------------- parameters

    def _form(self) -> Form:
        form, dice = self.subject.form, self.dice
        if not isinstance(form, Keyed):
            return form
        drawn: dict[str, Any] = {
            "min_participants": dice.one((None, None, 2, 3, 5)), "max_new_entities": dice.one((None, 0, 1, 7, 50)),
            "max_updates": dice.one((0, 1, 16, 99)), "batch": dice.one((1, 4, 64, 0, 1 << 15)),
        }  # fmt: skip
        made = self.told("options", lambda: type(form)(**drawn))
        return form if made is None else made

    def _params(self) -> Params | None:
        dice, clients = self.dice, 2 + self.dice.below(self.dice.one((4, 9, 30)))
        drawn = {
            "collusion": dice.one((None, None, 1, 2, clients - 1, clients)), "dropouts": dice.one((0, 0, 1, 2, 5)),
            "max_abs": dice.one((64.0, 1.0, 2.5, 2.0**20, 0.0, -1.0)),
            "precision": dice.one((24, 24, 16, 30, 40, 52, 53)),
            "sigma": dice.one((40, 40, 20, 64, 0)), "rounds": dice.one((1000, 1, 1 << 20, 1 << 31)),
            "max_entities": dice.one((None, 1, 30, 100_000)), "max_union": dice.one((None, 40, 40, 200_000)),
            "min_owners": dice.one((1, 1, 1, 2, 3, clients)), "max_weight": dice.one((None, None, 1, 1000, 1 << 24)),
            "partial": dice.chance(15), "noise": dice.one((0.0, 0.0, 0.0, 0.5, 8.0, 1e-9)),
            "normalize": dice.one(((), (), "nfc", ("casefold", "strip"), "upper")),
        }  # fmt: skip
        for name in dice.some(list(drawn), 6):
            del drawn[name]  # most have their defaults, or hardly any would go together
        small = {} if self.subject.form.name == KEYED else SMALL_KEYS
        made = self.told("parameters", lambda: Params(clients, dim=dice.one((1, 3, 128)), **{**drawn, **small}))
        return made if isinstance(made, Params) else None

    def parameters(self) -> None:
        """What a form makes of them."""
        for _ in range(12):
            self.step("parameters and a form")
            form, drawn = self._form(), self._params()
            if drawn is None:
                continue
            most = drawn.max_entities or 20
            bounded = drawn.with_bounds(max_entities=most, max_union=most + most // 2)
            params = self.told("checked", form.checked, bounded)
            if params is None:
                continue
            for what in ("canonical", "trust", "facts", "table", "cautions", "introduction_bytes"):
                self.told(what, getattr(form, what), params)
            self.told("derived", lambda p: (p.columns, p.resolution, p.fraction_bits, p.T, p.need), params)
            if isinstance(form, Keyed):
                self.told("said to people", form.disclosure, params)
                self.told("numbers", lambda f, p: _chosen(f.numbers(p)), form, params)
                self.told("privacy", lambda p: (privacy.honest(p), privacy.sensitivity(p, 0.5)), params)
                self.told("assumptions", lambda p: (privacy.assumptions(p), privacy._gap(p)), params)
            self._at(form, params)

    def _at(self, form: Form, params: Params) -> None:
        """Who does what, and how large messages are, at some points of a session."""
        dice, everyone = self.dice, range(params.clients)
        for _ in range(2):
            participants = tuple(dice.some(everyone, max(1, params.clients - dice.below(3))))
            members = tuple(dice.some(participants, max(1, len(participants) - dice.below(2))))
            at = Agreement(
                dice.one([row.phase for row in form.table(params)]), members, participants, 1 + dice.below(9),
                dice.below(3), 1 + dice.below(3), 1, dice.below(40), size=dice.below(41),
            )  # fmt: skip
            self.told("quorum", lambda a: (form.quorum(params, a), form.needed(params, a)), at)
            for phase in {row.phase: row for row in form.table(params)}:
                self.told("fewest", lambda p, a: form.fewest(params, p, a.names), phase, at)
                self.told("next", lambda p, a: form.next_numbers(p, a, again=bool(a.attempt)), phase, at)
            if isinstance(form, Keyed):
                self.told("noise", lambda a: (form.noise_clients(params, a), form.designated(params, a)), at)
                self.told("names", lambda a: (form.holders(params, a), form.list_size(params, a.names)), at)
                self.told("rest", lambda a: (form.signatures(params), form.width(params), form.geometry(params, a)), at)
                self.told("noise of", lambda a: form.numbers(params).noise_of(len(a.participants)), at)
            for kind in form.kinds:
                with suppress(KeyError, AssertionError):
                    sender = dice.one(members)
                    self.told(
                        "senders", lambda k, a: (form.senders(k, params, a), form.receivers(k, params, a)), kind, at
                    )
                    layout = form.layout(kind, params, at, sender, dice.one((ALL, members[-1])))
                    self.note("layout", layout, layout.chunks, layout.payload_bytes(0), layout.wire_bytes)

    # ---------------------------------------------------------------------------------------------- tables and names

    def tables(self) -> None:
        """How a client encodes, recognises and reads tables, in blocks as for large ones."""
        dice = self.dice
        for _ in range(6):
            self.step("a table")
            names = tuple(f"e{i}" for i in range(1 + dice.below(40)))
            some: Sequence[dict[str, Any]] = (
                {}, {}, {"max_weight": 9}, {"partial": True}, {"noise": 0.5}, {"precision": 40},
            )  # fmt: skip
            more, form, dim = dice.one(some), Keyed(), 1 + dice.below(3)
            drawn = Params(3, dim=dim, max_entities=50, max_union=60, max_abs=dice.one((8.0, 64.0)), **more)
            params = form.checked(drawn)
            own = Tables(params, form.numbers(params), dice.below(3), self.identities[0])
            with standing_in({}, BLOCK=64):
                for _ in range(2):
                    self._encoded(own, params, names)

    def _encoded(self, own: Tables, params: Params, names: tuple[str, ...]) -> None:
        """A table on its way out, and means on their way back."""
        dice, given = self.dice, self._table(names, params)
        if self.told("checked", lambda: own.checked(given, names) and "fine") is None:
            return
        rows = own.where(given, names)
        self.told("encoded", lambda: own.encoded(given, names).tobytes())
        self.told("grid", lambda: (own.grid, grid.grid_of(given.matrix, given.dtype)))
        self.told("recognised", own.fingerprint, given, rows, 3)
        read = np.array([[dice.value() for _ in range(params.columns)] for _ in names])
        means, there = own.read(read)
        self.note("read", means.tobytes(), there.tobytes())
        written = own.written(np.resize(means, given.matrix.shape), given.dtype)
        result = Result(tuple(given.names), written, there)
        self.told("like", lambda: own.like(Table(given.names[::-1], given.matrix), result).tobytes())

    def _table(self, names: Sequence[Any], params: Params) -> Table:
        dice = self.dice
        kind = dice.one(KINDS)
        matrix = np.array([[dice.value() for _ in range(params.dim)] for _ in names])
        match dice.below(8):
            case 0:
                matrix = np.ldexp(np.rint(matrix * 4), -2)
            case 1:
                matrix = matrix.round(2)
            case 2:
                matrix = matrix * 0.0109
            case 3:
                matrix[0, 0] = dice.one((np.nan, np.inf, 65.0, 64.0, -0.0, 2.0**-70))
            case 4:
                matrix = np.ldexp(matrix, -dice.below(30))
            case 5:
                matrix[:] = 0
        some = list(names) if dice.chance(70) else list(reversed(names))
        table = as_table(Table(tuple(some), matrix.astype(kind)))
        most = params.max_weight or (1 if params.partial else 0)
        return table.weighing(np.array([dice.below(most + 1 + dice.below(2)) for _ in some])) if most else table

    def spelled(self) -> None:
        """Which names are one."""
        self.step("names")
        dice = self.dice
        for name in ENTITIES:
            self.told("name", lambda n: (canonical_name(n), name_bytes(canonical_name(n))[:40]), name)
        names = [name for name in ENTITIES if isinstance(name, str | int) and name not in ("", True)]
        for _ in range(8):
            some = dice.some(names, 2 + dice.below(6))
            rule = tuple(dice.some(STEPS, dice.below(4)))
            self.told("keys", lambda s, r: keys_of(tuple(s), r), some, rule)
            self.told("texts", lambda s, r: [text_of(n, r)[:40] for n in s], some, rule)
            others = dice.some(names, 4)
            self.told("near", lambda s, o, r: (near(s, o, r), spellings([*s, *o]), joining(s)), some, others, rule)

    # ----------------------------------------------------------------------------------------------- files and bytes

    def federation_files(self) -> None:
        """What is written into a federation file, and what is read of one that was changed."""
        self.step("a federation file")
        dice, clients = self.dice, 2 + self.dice.below(4)
        form: Form = self.subject.form  # without what the audit adds to it
        if isinstance(form, Keyed):
            form = Keyed(max_updates=dice.below(9), max_new_entities=dice.one((None, 3)), batch=1 + dice.below(9))
        more: dict[str, Any] = dice.one(({}, {"noise": 0.5, "min_owners": 2}, {"max_weight": 7, "normalize": "nfc"}))
        if not isinstance(form, Keyed):
            clients, more = 3 + dice.below(3), dict(SMALL_KEYS)
        keys = [each.public for each in self.identities]
        roster = Roster(tuple(keys[:clients]), keys[-1], tuple(f"site-{n}" for n in range(clients)))
        made = self.told(
            "session", lambda: Session(Params(clients, 2, max_entities=9, max_union=12, **more), roster, form)
        )
        if made is None:
            return
        self.note("fingerprint", made.fingerprint, made.hash)
        for text in (files.session_toml(made), files.session_json(made)):
            self.note("text", text)
            for _ in range(20):
                at, lines = dice.below(len(text)), text.splitlines()
                i = dice.below(len(lines))
                changed = dice.one((
                    text[:at] + chr(33 + dice.below(90)) + text[at + 1 :],
                    "\n".join([*lines[:i], *lines[i + 1 :]]),
                    "\n".join([*lines[: i + 1], *lines[i:]]),
                    text[:at],
                ))  # fmt: skip
                self.told("read", lambda t: files.parse_session(t.encode(), "file").hash, changed)

    def bytes(self) -> None:
        """Bytes that come from others, right and damaged."""
        self.step("bytes")
        dice, kinds = self.dice, self.subject.form.kinds
        kind = dice.one(list(kinds))
        header = Header(kind, 1, 2, 3, 4, 5, 6, 7, 8, dice.bytes(16), dice.bytes(16), dice.below(8))
        begin = Begin(dice.below(9), tuple((n, dice.bytes(16)) for n in range(dice.below(5))))
        standing = Standing(3, 3, 2, 1, dice.below(8), dice.bytes(16))
        order = Order(dice.one(tuple(Task)), dice.below(9), [dice.bytes(dice.below(30)) for _ in range(3)], "why")
        reply = Reply([dice.bytes(9)], "fault", dice.chance(50), standing.to_bytes())
        kept = {"a": 1, "b": (2, b"3", None), "c": np.arange(4.0), "d": [1.5, "x", True], "e": {"f": -(1 << 70)}}
        roster = Roster(tuple(each.public for each in self.identities[:3]), self.identities[-1].public)
        hello = Hello.make(self.identities[1], 1, bytes(32), dice.bytes(16), dice.bytes(32), b"")
        every: Sequence[tuple[str, bytes, Callable[[bytes], object]]] = (
            ("header", header.pack(), lambda data: Header.parse(data, 1, kinds)),
            ("begin", begin.to_bytes(), lambda data: Begin.parse(data, 4)),
            ("standing", standing.to_bytes(), lambda data: Standing.parse(data, 5, 2)),
            ("order", order.to_bytes(), lambda data: Order.parse(data, 1).to_bytes()),
            ("reply", reply.to_bytes(), lambda data: Reply.parse(data, 1).to_bytes()),
            ("snapshot", snapshot.dumps(kept), snapshot.loads),
            ("hello", hello.to_bytes(), lambda data: Hello.verify(data, 1, roster, bytes(32), 0, relayed=True)),
        )
        for what, data, read in every:
            self.note(what, data)
            self.told(what, read, data)
            for _ in range(8):
                at = dice.below(len(data))
                flipped = data[:at] + bytes([data[at] ^ (1 << dice.below(8))]) + data[at + 1 :]
                changed = dice.one((flipped, flipped, data[:at], data + dice.bytes(1), data[at:] + data[:at]))
                self.told(what, read, changed)

    def lines(self) -> None:
        """What becomes of lines of a log: whether they count, and what people are told."""
        self.step("lines of logs")
        dice, names = self.dice, ("north", "south")
        state = State({name: ClientState() for name in names})
        values: Sequence[object] = ("north", "south", 3, -1, 2.5, True, None, ["north"], "x" * 9, {"a": 1})
        for _ in range(60):
            event = dice.one((*meters.EVENTS, "names wait", "other"))
            fields = {name: dice.one(values) for name in (*meters.EVENTS.get(event, {}), "count", "why")}
            for name, right in meters.EVENTS.get(event, {}).items():
                if dice.chance(80):
                    fields[name] = next(v for v in (dice.one(values), "north", 3, True, ["south"]) if right(v))
            line = json.dumps({"time": dice.one((5, 7.5, -1, "x")) if dice.chance(20) else 6, "event": event, **fields})
            found = meters.allowed(line.encode())
            self.note("a line counts" if found else "a line does not count", line, found)
            with suppress(KeyError):  # it is of a client that there is not
                state.take(
                    event, 6.0, {"why": "why", "run": "1", "rounds": 3, "session": "s", **(found[2] if found else {})}
                )
        self.told("state", lambda: (state.text(), state.left_out(), state.as_json()))


def _chosen(n: Numbers) -> tuple[object, ...]:
    """All that was chosen, the field by its primes."""
    rest = [getattr(n, each.name) for each in fields(n) if each.name != "ring"]
    return n.ring.primes, n.ring.element_bytes, n.s, n.checks, n.cap, *rest
