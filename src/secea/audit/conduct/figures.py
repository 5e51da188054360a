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
from secea.names import STEPS, joining, keys_of, near, spellings, text_of
from secea.params import Params
from secea.party.form import Form
from secea.party.phases import Agreement, Begin, Standing
from secea.party.session import Session
from secea.table import Table, as_table, canonical_name, name_bytes
from secea.testing import insecure_seeded
from secea.wire import snapshot
from secea.wire.keys import Hello, Identity, Roster
from secea.wire.messages import ALL, Header

ENTITIES: Final = ("a", " a", "A", "ß", "SS", "ss", "é", "é", "1", 1, 1.0, -7, "", "x" * 70_000, "x" * 70_001, b"a", None, True)
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

    def told(self, what: str, of: Callable[[], object]) -> Any:
        """What it gives, or that it does not."""
        try:
            found = of()
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
        drawn = {
            "min_participants": dice.one((None, None, 2, 3, 5)), "max_new_entities": dice.one((None, 0, 1, 7, 50)),
            "max_updates": dice.one((0, 1, 16, 99)), "batch": dice.one((1, 4, 64, 0, 1 << 15)),
        }  # fmt: skip
        made = self.told("options", lambda: type(form)(**drawn))
        return form if made is None else made

    def _params(self) -> Params | None:
        dice, clients = self.dice, 2 + self.dice.below(self.dice.one((4, 9, 30)))
        drawn = {
            "collusion": dice.one((None, None, 1, 2, clients - 1, clients)), "dropouts": dice.one((0, 0, 1, 2, 5)),
            "max_abs": dice.one((64.0, 1.0, 2.5, 2.0**20, 0.0, -1.0)), "precision": dice.one((24, 24, 16, 30, 40, 52, 53)),
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
            params = self.told(
                "checked", lambda f=form, p=drawn, m=most: f.checked(p.with_bounds(max_entities=m, max_union=m + m // 2))
            )
            if params is None:
                continue
            for what in ("canonical", "trust", "facts", "table", "cautions", "introduction_bytes"):
                self.told(what, lambda f=form, w=what, p=params: getattr(f, w)(p))
            self.told("derived", lambda p=params: (p.columns, p.resolution, p.fraction_bits, p.T, p.need))
            if isinstance(form, Keyed):
                self.told("said to people", lambda f=form, p=params: f.disclosure(p))
                self.told("numbers", lambda f=form, p=params: _chosen(f.numbers(p)))
                self.told("privacy", lambda p=params: (privacy.honest(p), privacy.sensitivity(p, 0.5)))
                self.told("assumptions", lambda p=params: (privacy.assumptions(p), privacy._gap(p)))
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
            self.told("quorum", lambda a=at: (form.quorum(params, a), form.needed(params, a)))
            for phase in {row.phase: row for row in form.table(params)}:
                self.told("fewest", lambda p=phase, a=at: form.fewest(params, p, a.names))
                self.told("next", lambda p=phase, a=at: form.next_numbers(p, a, again=bool(a.attempt)))
            if isinstance(form, Keyed):
                self.told("noise", lambda a=at: (form.noise_clients(params, a), form.designated(params, a)))
                self.told("names", lambda a=at: (form.holders(params, a), form.list_size(params, a.names)))
                self.told("rest", lambda a=at: (form.signatures(params), form.width(params), form.geometry(params, a)))
                self.told("noise of", lambda a=at: form.numbers(params).noise_of(len(a.participants)))
            for kind in form.kinds:
                with suppress(KeyError, AssertionError):
                    sender = dice.one(members)
                    self.told("senders", lambda k=kind, a=at: (form.senders(k, params, a), form.receivers(k, params, a)))
                    layout = form.layout(kind, params, at, sender, dice.one((ALL, members[-1])))
                    self.note("layout", layout, layout.chunks, layout.payload_bytes(0), layout.wire_bytes)

    # ---------------------------------------------------------------------------------------------- tables and names

    def tables(self) -> None:
        """How a client encodes, recognises and reads tables, in blocks as for large ones."""
        dice = self.dice
        for _ in range(6):
            self.step("a table")
            names: list[Any] = [f"e{i}" for i in range(1 + dice.below(40))]
            more = dice.one(({}, {}, {"max_weight": 9}, {"partial": True}, {"noise": 0.5}, {"precision": 40}))
            params = Params(3, dim=1 + dice.below(3), max_entities=50, max_union=60, max_abs=dice.one((8.0, 64.0)), **more)
            form = Keyed()
            params = form.checked(params)
            own = Tables(params, form.numbers(params), dice.below(3), self.identities[0])
            with standing_in({}, BLOCK=64):
                for _ in range(2):
                    given = self._table(names, params)
                    checked = self.told("checked", lambda g=given: own.checked(g, tuple(names)) and "fine")
                    if checked is None:
                        continue
                    rows = own.where(given, tuple(names))
                    self.told("encoded", lambda g=given: own.encoded(g, tuple(names)).tobytes())
                    self.told("grid", lambda g=given: (own.grid, grid.grid_of(g.matrix, g.dtype)))
                    self.told("recognised", lambda g=given, r=rows: own.fingerprint(g, r, 3))
                    read = np.array([[dice.value() for _ in range(params.columns)] for _ in names])
                    means, there = own.read(read)
                    self.note("read", means.tobytes(), there.tobytes())
                    written = own.written(np.resize(means, given.matrix.shape), given.dtype)
                    result = Result(tuple(given.names), written, there)
                    self.told("like", lambda g=given, r=result: own.like(Table(g.names[::-1], g.matrix), r).tobytes())

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
            self.told("name", lambda n=name: (canonical_name(n), name_bytes(canonical_name(n))[:40]))
        names = [name for name in ENTITIES if isinstance(name, str | int) and name not in ("", True)]
        for _ in range(8):
            some = dice.some(names, 2 + dice.below(6))
            rule = tuple(dice.some(STEPS, dice.below(4)))
            self.told("keys", lambda s=some, r=rule: keys_of(tuple(s), r))
            self.told("texts", lambda s=some, r=rule: [text_of(n, r)[:40] for n in s])
            others = dice.some(names, 4)
            self.told("near", lambda s=some, o=others, r=rule: (near(s, o, r), spellings([*s, *o]), joining(s)))

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
            clients, more = 3 + dice.below(3), SMALL_KEYS
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
                self.told("read", lambda t=changed: files.parse_session(t.encode(), "file").hash)

    def bytes(self) -> None:
        """Bytes that come from others, right and damaged."""
        self.step("bytes")
        dice, kinds = self.dice, self.subject.form.kinds
        kind = dice.one(list(kinds))
        header = Header(kind, 1, 2, 3, 4, 5, 6, 7, 8, dice.bytes(16), dice.bytes(16), dice.below(8))
        begin = Begin(dice.below(9), tuple((n, dice.bytes(16)) for n in range(dice.below(5))))
        standing = Standing(3, 3, 2, 1, dice.below(6), dice.bytes(16))
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
            self.told(what, lambda r=read, d=data: r(d))
            for _ in range(8):
                at = dice.below(len(data))
                flipped = data[:at] + bytes([data[at] ^ (1 << dice.below(8))]) + data[at + 1 :]
                changed = dice.one((flipped, flipped, data[:at], data + dice.bytes(1), data[at:] + data[:at]))
                self.told(what, lambda r=read, d=changed: r(d))

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
                state.take(event, 6.0, {"why": "why", "run": "1", "rounds": 3, "session": "s", **(found[2] if found else {})})
        self.told("state", lambda: (state.text(), state.left_out(), state.as_json()))


def _chosen(n: Numbers) -> tuple[object, ...]:
    """All that was chosen, the field by its primes."""
    rest = [getattr(n, each.name) for each in fields(n) if each.name != "ring"]
    return n.ring.primes, n.ring.element_bytes, n.s, n.checks, n.cap, *rest
