"""Flower as an engine (flwr 1.41): a `Port` on its messages, and a ready-made ServerApp and ClientApp.

In a Flower app's pyproject.toml:

    [tool.flwr.app.components]
    serverapp = "secea.engines.flower:server"
    clientapp = "secea.engines.flower:client"

    [tool.flwr.app.config]
    rounds = 10

Each party's own operator says where its key, federation file, state and functions are, in a TOML file
(`secea.engines.site`); nobody else can. The SuperLink finds the path of its file in the environment variable
SECEA_SERVER. A SuperNode finds it in `secea-site` of its --node-config, or in SECEA_SITE. In a simulation,
"{partition-id}" in that path is replaced by the number of the node. docs/deploy-flower.md shows all of it.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Final

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid, ServerApp

from secea.engines.core import CoreError
from secea.engines.costs import FLOWER_MESSAGE_BYTES as MESSAGE_BYTES
from secea.engines.driver import Patience
from secea.engines.host import told
from secea.engines.lasting import LastingCore
from secea.engines.log import Log
from secea.engines.port import Alive, Cause, Failure, Order, Reply, Task, Terms, asked, orders
from secea.engines.run import serve
from secea.engines.site import Site
from secea.errors import SERVER, FederationError, ParamsError, ProtocolError
from secea.wire.messages import Buffer

_ACTION: Final = "secea"
_BYTES: Final = "secea.bytes"
_POLL_SECONDS: Final = 0.2
_LOOK_SECONDS: Final = 1.0
BEAT_SECONDS: Final = 5.0
"""How often the SuperLink is asked who is online."""
STAGE_SECONDS: Final = 120.0
"""Time for one stage. Each stage starts a process at every client, and Flower needs a minute to notice a lost node."""

_EXPIRED: Final = (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE)
"""The SuperLink has dropped a message, or the reply to it, since their time was over."""

_log = logging.getLogger("flwr")


# ------------------------------------------------------------------------------------------------- what travels


def _array(data: bytes) -> Array:
    """Bytes as an array, which suits Flower best: it cuts arrays into chunks, and identifies them by their hash."""
    return Array("uint8", (len(data),), _BYTES, data)


def _packed(arrays: Sequence[Array], name: str = "") -> RecordDict:
    """Arrays, in order. From a client, also the sender's name."""
    record = ArrayRecord({str(i): array for i, array in enumerate(arrays)})
    return RecordDict({"secea": record, "who": ConfigRecord({"name": name})})


def _unpacked(content: RecordDict) -> tuple[list[bytes], str]:
    """The bytes of the arrays, and the name that the sender claims. A `ProtocolError` if the message is not ours."""
    record, who = content.array_records.get("secea"), content.config_records.get("who")
    arrays = [record.get(str(i)) for i in range(len(record))] if record else []
    name = who.get("name") if who else None
    if not arrays or not isinstance(name, str):
        raise ProtocolError((SERVER,), "a message that is not secea's")
    if any(array is None or array.stype != _BYTES for array in arrays):
        raise ProtocolError((SERVER,), "a message that is not secea's")
    return [array.data for array in arrays if array is not None], name


class _Pieces:
    """Orders cut into pieces. A piece is an order with some of the messages; clients with equal pieces share an array.

    A SuperLink identifies arrays by their hash, and a ServerApp sends it only those that it does not have yet.
    """

    def __init__(self, given: Mapping[int, Order]) -> None:
        self._given = given  # kept, so that an id belongs to one message
        self._receivers: dict[int, list[int]] = {}
        for n, order in given.items():
            for message in order.messages:
                self._receivers.setdefault(id(message), []).append(n)
        self._common: dict[tuple[int, ...], Array] = {}

    def of(self, n: int) -> list[Array]:
        """The pieces of client n's order."""
        order = self._given[n]
        runs = [list(run) for _, run in groupby(order.messages, key=lambda message: self._receivers[id(message)])]
        return [self._piece(order, run) for run in runs or [[]]]

    def groups(self, clients: Iterable[int]) -> list[list[int]]:
        """Clients whose orders are sent together: those that share a piece form one group, the others one each."""
        common = [n for n in clients if not all(len(self._receivers[id(m)]) == 1 for m in self._given[n].messages)]
        return [common] * bool(common) + [[n] for n in clients if n not in common]

    def _piece(self, order: Order, run: list[Buffer]) -> Array:
        if not run or len(self._receivers[id(run[0])]) == 1:
            return _array(replace(order, messages=run).to_bytes())
        key = (order.task, order.round, *map(id, run))
        if key not in self._common:
            self._common[key] = _array(replace(order, messages=run).to_bytes())
        return self._common[key]


def _joined(pieces: Iterable[Buffer]) -> Order:
    """The order that came in these pieces. A `ProtocolError` if they belong to different orders."""
    first, *more = (Order.parse(piece, SERVER) for piece in pieces)
    if any((each.task, each.round) != (first.task, first.round) for each in more):
        raise ProtocolError((SERVER,), "pieces of different orders")
    return replace(first, messages=[message for each in (first, *more) for message in each.messages])


# ------------------------------------------------------------------------------------------------ the server's side


@dataclass
class _Exchange:
    """The state of one exchange: who has not replied yet, and which messages were sent to them."""

    waiting: dict[int, Order]
    pieces: _Pieces
    terms: Terms
    deadline: float
    sent: dict[str, int] = field(default_factory=dict)  # the client that each message went to
    tried: set[int] = field(default_factory=set)  # nodes that were called, and did not name a client
    parts: dict[int, int] = field(default_factory=dict)  # how many parts of a client's reply have come


class FlowerPort:
    """A `Port` on a Flower grid. It calls nodes (HELLO) to learn which client each is; the core verifies the claim."""

    def __init__(self, grid: Grid, names: Sequence[str]) -> None:
        self._grid, self._names = grid, names
        self._nodes: dict[int, int] = {}  # client: node
        self._calls: dict[str, int] = {}  # open calls of this or an earlier exchange: the node of each
        self._nameless: dict[int, str] = {}  # what nodes said that are not clients
        self.sent = self.received = 0
        """Bytes of orders and of replies."""

    def exchange(
        self, tasks: Mapping[int, Task], round: int, inboxes: Callable[[], Mapping[int, list[Buffer]]], terms: Terms
    ) -> Iterator[tuple[int, Reply | Failure | Alive]]:
        """See `secea.engines.port.Port`."""
        given = orders(tasks, round, inboxes(), terms.said)
        now = _Exchange(dict(given), _Pieces(given), terms, time.monotonic() + terms.seconds)
        self._give(now, [n for n, order in given.items() if order.task is not Task.HELLO and n in self._nodes])
        started = time.monotonic()
        now.deadline = started + terms.seconds  # counted from when everyone has its order
        look, beat = 0.0, started + BEAT_SECONDS
        while now.waiting and time.monotonic() < now.deadline:
            away = {n for n, order in now.waiting.items() if order.task is Task.HELLO or n not in self._nodes}
            if away and time.monotonic() >= look:
                self._call(now, away)
                look = time.monotonic() + _LOOK_SECONDS
            if time.monotonic() >= beat:
                yield from self._beat(now, time.monotonic() - started)
                beat = time.monotonic() + BEAT_SECONDS
            # A late reply to a call is not fetched until somebody asks for it.
            replies = list(self._grid.pull_messages([*now.sent, *(self._calls if away else ())]))
            # Replies to calls come first: nobody waits for a lost client, so it must be heard before the others end.
            replies.sort(key=lambda message: message.metadata.reply_to_message_id in self._calls)
            if not replies:
                time.sleep(_POLL_SECONDS)
            while replies:
                yield from self._take(now, replies.pop())
        for n in now.waiting:
            yield n, self._silent(n, terms.seconds)

    def _beat(self, now: _Exchange, seconds: float) -> Iterator[tuple[int, Alive | Failure]]:
        """Who of those that work is online, as the SuperLink says; a node that is not is dead."""
        online = set(self._grid.get_node_ids())
        for number, n in list(now.sent.items()):
            if self._nodes.get(n) in online:
                yield n, Alive(seconds)
            elif n in self._nodes:
                del now.sent[number], now.waiting[n]
                yield n, Failure(f"its node {self._nodes.pop(n)} is not online any more", Cause.UNREACHABLE)

    def _push(self, orders: Mapping[int, Sequence[Array]], deadline: float) -> dict[int, str]:
        """Send orders to nodes. Returns the message ids by node, without nodes that the SuperLink no longer has."""
        ttl = max(deadline - time.monotonic(), 1.0)
        kind = f"query.{_ACTION}"
        messages = {node: Message(_packed(arrays), node, kind, ttl=ttl) for node, arrays in orders.items()}
        self.sent += sum(len(array.data) for arrays in orders.values() for array in arrays)
        taken = set(self._grid.push_messages(list(messages.values())))
        numbers = {node: message.metadata.message_id for node, message in messages.items()}
        return {node: number for node, number in numbers.items() if number in taken}

    def _give(self, now: _Exchange, clients: Sequence[int]) -> None:
        for group in now.pieces.groups(clients):
            self._send(now, {n: now.pieces.of(n) for n in group})
            for n in group:
                now.parts.pop(n, None)

    def _send(self, now: _Exchange, arrays: Mapping[int, Sequence[Array]]) -> None:
        taken = self._push({self._nodes[n]: own for n, own in arrays.items()}, now.deadline)
        for n in arrays:
            if number := taken.get(self._nodes[n]):
                now.sent[number] = n
            else:
                del self._nodes[n]  # it is looked for again

    def _call(self, now: _Exchange, away: set[int]) -> None:
        """Call the nodes of clients that are to say hello. If a client's node is not known, call all unknown nodes."""
        online = set(self._grid.get_node_ids())
        called = {self._nodes[n] for n in away if n in self._nodes}
        if any(self._nodes.get(n) not in online for n in away):
            called |= online - set(self._nodes.values())
        clients = {node: n for n, node in self._nodes.items()}
        deadline = min(now.deadline, time.monotonic() + now.terms.brief)  # nobody trains for a hello
        for node in sorted(called & online - set(self._calls.values()) - now.tried):
            said = now.terms.said.get(clients.get(node, -1), "")
            taken = self._push({node: [_array(Order(Task.HELLO, said=said).to_bytes())]}, deadline)
            self._calls |= {number: called for called, number in taken.items()}

    def _take(self, now: _Exchange, message: Message) -> Iterator[tuple[int, Reply | Failure]]:
        """Take a reply or an error. An error comes from the SuperLink, so both are matched by what they reply to."""
        number = message.metadata.reply_to_message_id
        if number in self._calls:
            yield from self._hear(now, self._calls.pop(number), message)
        elif number in now.sent:
            n = now.sent.pop(number)
            parts, _ = self._read(message, n)
            if message.has_error() and message.error.code in _EXPIRED:
                parts = [self._silent(n, now.terms.seconds)]
            if isinstance(parts[-1], Reply) and parts[-1].more:
                now.parts[n] = now.parts.get(n, 0) + len(parts)
                self._send(now, {n: [_array(Order(Task.MORE, now.parts[n]).to_bytes())]})
            else:
                del now.waiting[n]
            for part in parts:
                yield n, part

    def _hear(self, now: _Exchange, node: int, message: Message) -> Iterator[tuple[int, Reply | Failure]]:
        """Take the reply of a node that was called to say who it is."""
        (reply, *_), name = self._read(message, SERVER)
        known = next((n for n, where in self._nodes.items() if where == node), None)
        if known is None and name not in self._names:
            now.tried.add(node)
            self._nameless[node] = reply.reason if isinstance(reply, Failure) else reply.fault or f"it is {name!r}"
            _log.warning("node %d is not a client: %s", node, self._nameless[node])
            return
        n = self._names.index(name) if name in self._names else known
        assert n is not None
        if n != known:
            self._settle(n, node)
        if n not in now.waiting or n in now.sent.values():
            return
        if now.waiting[n].task is Task.HELLO:
            del now.waiting[n]
            yield n, reply
        else:  # a server that was restarted did not know where this client is
            self._give(now, [n])

    def _settle(self, n: int, node: int) -> None:
        """Note that client n is at this node. If two nodes claim it, an operator has to fix that."""
        before = self._nodes.get(n)
        if before is not None and before in set(self._grid.get_node_ids()):
            first, second = sorted((before, node))
            raise FederationError(f"nodes {first} and {second} both say that they are {self._names[n]!r}")
        self._nodes = {m: where for m, where in self._nodes.items() if where != node} | {n: node}
        self._nameless.pop(node, None)
        _log.info("%s (client %d) is node %d", self._names[n], n, node)

    def _read(self, message: Message, n: int) -> tuple[list[Reply | Failure], str]:
        if message.has_error():
            return [_failure(message.error)], ""
        try:
            parts, name = _unpacked(message.content)
            self.received += sum(map(len, parts))
            return [Reply.parse(data, n) for data in parts], name
        except ProtocolError as error:
            return [Failure(error.fault)], ""

    def _silent(self, n: int, timeout: float) -> Failure:
        if self._nodes.get(n) in set(self._grid.get_node_ids()):
            return Failure(f"it did not reply within {timeout:.0f} s", Cause.SLOW)
        if n in self._nodes:
            return Failure(f"its node {self._nodes[n]} is not online", Cause.UNREACHABLE)
        others = "".join(f"; node {node}: {why}" for node, why in self._nameless.items())
        return Failure(f"no node said in {timeout:.0f} s that it is {self._names[n]!r}{others}", Cause.UNREACHABLE)


def _failure(error: Error) -> Failure:
    """What it means that Flower gives an error in place of a reply."""
    if error.code == ErrorCode.NODE_UNAVAILABLE:
        return Failure("its node is not online any more", Cause.UNREACHABLE)
    if error.code in _EXPIRED:
        return Failure("it did not reply in time", Cause.SLOW)
    if error.code == ErrorCode.CLIENT_APP_CRASHED:
        return Failure("Flower's ClientApp at its site was killed, or stopped responding")
    return Failure(f"Flower's error {error.code} at its site: {error.reason}")


def serve_run(grid: Grid, context: Context) -> None:
    """The main function of `server`. The run's settings come from its configuration, all else from SECEA_SERVER."""
    path = os.environ.get("SECEA_SERVER")
    if path is None:
        raise ParamsError("SECEA_SERVER is not set where the SuperLink runs: it is the path of the server's TOML file")
    config = context.run_config
    patience = Patience(
        stage=float(config.get("stage-seconds", STAGE_SECONDS)),
        training=float(config.get("training-seconds", Patience.training)),
    )
    site = Site.read(path)
    port = FlowerPort(grid, site.session.roster.names)
    serve(site, port, int(config["rounds"]), patience, _log, run=str(context.run_id))


server = ServerApp()
server.main()(serve_run)


# ------------------------------------------------------------------------------------------------ a client's side


def _site_of(context: Context) -> Path:
    """The file that this node's own operator named."""
    path = context.node_config.get("secea-site", os.environ.get("SECEA_SITE"))
    if not isinstance(path, str):
        raise ParamsError("this node has no secea-site in its --node-config: it is the path of the client's TOML file")
    return Path(path.replace("{partition-id}", str(context.node_config.get("partition-id"))))


def obey(message: Message, context: Context) -> Message:
    """The client's side: hand one order to this site's core. The core keeps running when this process ends."""
    name, log = "", Log()
    try:
        path = _site_of(context)
        site = Site.read(path)
        name, log = site.name, Log(site.log)
        order = _joined(_unpacked(message.content)[0])
        parts = _obeyed(LastingCore(path, run=str(context.run_id)), order, message.metadata.ttl)
    except Exception as error:  # Flower would send the text of any error to the server
        if not isinstance(error, CoreError):  # those are in the log already
            log.noted("stopped", why=f"{type(error).__name__}: {error}")
        fault = str(error) if isinstance(error, CoreError) else told(error)  # the core's texts are safe to pass on
        parts = [Reply(fault=fault).to_bytes()]
    return Message(_packed([_array(part) for part in parts], name), reply_to=message)


def _obeyed(core: LastingCore, order: Order, timeout: float) -> list[bytes]:
    """The parts of a core's reply: all, or as many as one message should carry."""
    end = time.monotonic() + timeout

    def ask(part: Order) -> Reply:
        if (left := end - time.monotonic()) <= 0:
            raise CoreError(f"it did not reply within {timeout:.1f} s")
        return Reply.parse(core.obey(part.to_bytes(), left), SERVER)

    parts = list[bytes]()
    for reply in asked(order, ask):
        parts.append(reply.to_bytes())
        if sum(map(len, parts)) >= MESSAGE_BYTES:
            break
    return parts


client = ClientApp()
client.query(_ACTION)(obey)
