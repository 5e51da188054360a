"""Flower as an engine (flwr 1.41): a `Port` on its messages, a ServerApp and a ClientApp that need no code of a user's.

In a Flower app's pyproject.toml:

    [tool.flwr.app.components]
    serverapp = "secea.engines.flower:server"
    clientapp = "secea.engines.flower:client"

    [tool.flwr.app.config]
    rounds = 10

Where a party's key, federation file, state and functions are, is told by its own operator alone (`secea.engines.site`):
the SuperLink has the path of its file in the environment variable SECEA_SERVER; a SuperNode has it in `secea-site` of
its --node-config, or in SECEA_SITE, where "{partition-id}" stands for the number of a node in a simulation.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from secea.engines.driver import Patience
from secea.engines.host import told
from secea.engines.log import Log
from secea.engines.port import Failure, Order, Reply, Task, orders
from secea.engines.run import serve
from secea.engines.site import BUSY_SECONDS, Site
from secea.errors import SERVER, FederationError, ParamsError, ProtocolError
from secea.wire.messages import Buffer

_ACTION: Final = "secea"
_BYTES: Final = "secea.bytes"
_POLL_SECONDS: Final = 0.2
_LOOK_SECONDS: Final = 1.0
STAGE_SECONDS: Final = 120.0
"""A stage starts a process at every client; and Flower itself notices after a minute that a node is gone."""

_log = logging.getLogger("flwr")


# ------------------------------------------------------------------------------------------------- what travels


def _packed(data: bytes, name: str = "") -> RecordDict:
    """Bytes as Flower carries them best: an array, which it cuts into chunks; and, from a client, who sends them."""
    array = Array("uint8", (len(data),), _BYTES, data)
    return RecordDict({"secea": ArrayRecord({"data": array}), "who": ConfigRecord({"name": name})})


def _unpacked(content: RecordDict) -> tuple[bytes, str]:
    """The bytes, and who says that it sent them; a `ProtocolError` if it is nothing of ours."""
    arrays, who = content.array_records.get("secea"), content.config_records.get("who")
    array = arrays.get("data") if arrays else None
    name = who.get("name") if who else None
    if array is None or array.stype != _BYTES or not isinstance(name, str):
        raise ProtocolError((SERVER,), "a message that is not secea's")
    return array.data, name


# ------------------------------------------------------------------------------------------------ the server's side


@dataclass
class _Exchange:
    """What is under way: who has not replied, and the messages on the way to them."""

    waiting: dict[int, Order]
    deadline: float
    sent: dict[str, int] = field(default_factory=dict)  # the client that each message went to
    tried: set[int] = field(default_factory=set)  # nodes that were called, and could not say who they are


class FlowerPort:
    """A `Port` on a Flower grid. Nodes are called (HELLO) to hear which client they are; the core checks the claim."""

    def __init__(self, grid: Grid, names: Sequence[str]) -> None:
        self._grid, self._names = grid, names
        self._nodes: dict[int, int] = {}  # client: node
        self._calls: dict[str, int] = {}  # calls on their way, in this exchange or an earlier one, and to which node
        self._nameless: dict[int, str] = {}  # what nodes said that are no client
        self.sent = self.received = 0
        """Bytes of orders and of replies."""

    def exchange(
        self, tasks: Mapping[int, Task], round: int, inboxes: Callable[[], Mapping[int, list[Buffer]]], timeout: float
    ) -> Iterator[tuple[int, Reply | Failure]]:
        """See `secea.engines.port.Port`."""
        now = _Exchange(orders(tasks, round, inboxes()), time.monotonic() + timeout)
        for n, order in now.waiting.items():
            if order.task is not Task.HELLO and n in self._nodes:
                self._give(now, n)
        now.deadline = time.monotonic() + timeout  # from when everyone has its order
        look = 0.0
        while now.waiting and time.monotonic() < now.deadline:
            away = {n for n, order in now.waiting.items() if order.task is Task.HELLO or n not in self._nodes}
            if away and time.monotonic() >= look:
                self._call(now, away)
                look = time.monotonic() + _LOOK_SECONDS
            # A reply to a call that comes late is left where it is until somebody asks for it.
            replies = list(self._grid.pull_messages([*now.sent, *(self._calls if away else ())]))
            # Calls come first: who was lost is not waited for, and must be heard before the last one of the others.
            replies.sort(key=lambda message: message.metadata.reply_to_message_id in self._calls)
            if not replies:
                time.sleep(_POLL_SECONDS)
            while replies:
                yield from self._take(now, replies.pop())
        for n in now.waiting:
            yield n, Failure(self._why_silent(n, timeout))

    def _push(self, order: Order, node: int, deadline: float) -> str:
        """Send an order: its number; or nothing, where the SuperLink has no such node any more."""
        ttl = max(deadline - time.monotonic(), 1.0)
        data = order.to_bytes()
        self.sent += len(data)
        message = Message(_packed(data), node, f"query.{_ACTION}", ttl=ttl)
        return "".join(number or "" for number in self._grid.push_messages([message]))

    def _give(self, now: _Exchange, n: int) -> None:
        if number := self._push(now.waiting[n], self._nodes[n], now.deadline):
            now.sent[number] = n
        else:
            del self._nodes[n]  # it is looked for again

    def _call(self, now: _Exchange, away: set[int]) -> None:
        """Call the nodes of clients that are to say hello; and, if it is not known where a client is, the strangers."""
        online = set(self._grid.get_node_ids())
        called = {self._nodes[n] for n in away if n in self._nodes}
        if any(self._nodes.get(n) not in online for n in away):
            called |= online - set(self._nodes.values())
        for node in sorted(called & online - set(self._calls.values()) - now.tried):
            if number := self._push(Order(Task.HELLO), node, now.deadline):
                self._calls[number] = node

    def _take(self, now: _Exchange, message: Message) -> Iterator[tuple[int, Reply | Failure]]:
        """A reply, or an error; an error carries the SuperLink's id, so both are known by what they reply to."""
        number = message.metadata.reply_to_message_id
        if number in self._calls:
            yield from self._hear(now, self._calls.pop(number), message)
        elif number in now.sent:
            n = now.sent.pop(number)
            del now.waiting[n]
            yield n, self._read(message, n)[0]

    def _hear(self, now: _Exchange, node: int, message: Message) -> Iterator[tuple[int, Reply | Failure]]:
        """A node that was called says who it is."""
        reply, name = self._read(message, SERVER)
        known = next((n for n, where in self._nodes.items() if where == node), None)
        if known is None and name not in self._names:
            now.tried.add(node)
            self._nameless[node] = reply.reason if isinstance(reply, Failure) else reply.fault or f"it is {name!r}"
            _log.warning("node %d is no client: %s", node, self._nameless[node])
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
            self._give(now, n)

    def _settle(self, n: int, node: int) -> None:
        """Client n is at this node; two nodes that say so are a mistake that somebody has to mend."""
        before = self._nodes.get(n)
        if before is not None and before in set(self._grid.get_node_ids()):
            first, second = sorted((before, node))
            raise FederationError(f"nodes {first} and {second} both say that they are {self._names[n]!r}")
        self._nodes = {m: where for m, where in self._nodes.items() if where != node} | {n: node}
        self._nameless.pop(node, None)
        _log.info("%s (client %d) is node %d", self._names[n], n, node)

    def _read(self, message: Message, n: int) -> tuple[Reply | Failure, str]:
        if message.has_error():
            return Failure(f"error {message.error.code}: {message.error.reason}"), ""
        try:
            data, name = _unpacked(message.content)
            self.received += len(data)
            return Reply.parse(data, n), name
        except ProtocolError as error:
            return Failure(error.fault), ""

    def _why_silent(self, n: int, timeout: float) -> str:
        if n in self._nodes:
            return f"no reply in {timeout:.0f} s"
        others = "".join(f"; node {node}: {why}" for node, why in self._nameless.items())
        return f"no node said in {timeout:.0f} s that it is {self._names[n]!r}{others}"


def serve_run(grid: Grid, context: Context) -> None:
    """The main function of `server`: settings of the run from its configuration, all else from SECEA_SERVER."""
    path = os.environ.get("SECEA_SERVER")
    if path is None:
        raise ParamsError("SECEA_SERVER is not set where the SuperLink runs: it is the path of the server's TOML file")
    config = context.run_config
    patience = Patience(
        stage=float(config.get("stage-seconds", STAGE_SECONDS)),
        training=float(config.get("training-seconds", Patience.training)),
    )
    site = Site.read(path)
    serve(site, FlowerPort(grid, site.session.roster.names), int(config["rounds"]), patience, _log)


server = ServerApp()
server.main()(serve_run)


# ------------------------------------------------------------------------------------------------ a client's side


def _site_of(context: Context) -> Site:
    """The file that this node's own operator named."""
    path = context.node_config.get("secea-site", os.environ.get("SECEA_SITE"))
    if not isinstance(path, str):
        raise ParamsError("this node has no secea-site in its --node-config: it is the path of the client's TOML file")
    return Site.read(path.replace("{partition-id}", str(context.node_config.get("partition-id"))))


def obey(message: Message, context: Context) -> Message:
    """A client: take one order. All that it remembers is in its state directory, since this process ends here."""
    name, log = "", Log()
    try:
        site = _site_of(context)
        name, log = site.name, Log(site.log)
        data, _ = _unpacked(message.content)
        with site.store.held(BUSY_SECONDS):
            reply = site.host().obey(Order.parse(data, SERVER))
    except Exception as error:  # the user's code may raise anything, and Flower would send its text to the server
        log.noted("stopped", why=f"{type(error).__name__}: {error}")
        reply = Reply(0, 0, 0, fault=told(error))
    return Message(_packed(reply.to_bytes(), name), reply_to=message)


client = ClientApp()
client.query(_ACTION)(obey)
