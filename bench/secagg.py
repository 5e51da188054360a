"""Flower's SecAgg+ with its own client and server functions, all parties in this process and no network between them.

Its workflow runs all four stages: key agreement, shares of the keys, masked vectors, unmasking. The vector is the dense
union: M embeddings and M counts. What passes between the parties is counted by Flower's own count of a record's bytes.

As it ships, a mask comes from numpy's Mersenne Twister with a seed of 32 bits. With `aes` one function is replaced, for
clients and server: `pseudo_rand_gen` is `aes_masks`. Everything else is Flower's code.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.client.mod.secure_aggregation.secaggplus_mod import secaggplus_mod
from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.compat.common import recorddict_compat as compat
from flwr.server import LegacyContext
from flwr.server.client_manager import SimpleClientManager
from flwr.server.strategy import FedAvg
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD, Key
from flwr.supercore.task_identity import TaskIdentity

Arrays = Sequence[NDArray[Any]]
SIDES = [  # by name: the package has a function that is called like the module
    import_module(name)
    for name in (
        "flwr.client.mod.secure_aggregation.secaggplus_mod",
        "flwr.server.workflow.secure_aggregation.secaggplus_workflow",
    )
]


def aes_masks(seed: bytes, num_range: int, dimensions_list: list[tuple[int, ...]]) -> list[NDArray[np.int64]]:
    """As many integers as Flower's `pseudo_rand_gen` draws, of the same type, from AES-256 in counter mode.

    The key is the hash of the whole seed. Flower's range is 2^32: four bytes are one integer, and none is refused.
    """
    assert num_range == 2**32
    cipher = Cipher(algorithms.AES256(hashlib.sha256(seed).digest()), modes.CTR(bytes(16))).encryptor()
    output = []
    for dimension in dimensions_list:
        zeros = np.zeros(dimension, np.uint32)
        stream = np.frombuffer(cipher.update(zeros.data.cast("B") if zeros.ndim else bytes(4)), np.uint32)
        output.append(stream.astype(np.int64).reshape(dimension))
    return output


class Lean(FedAvg):  # type: ignore[misc]  # Flower's types are not followed
    """FedAvg averages equal copies of the sum and sends float64 back: here it is one of them, in float32."""

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> tuple[Any, dict[str, Any]]:
        """The first of the copies."""
        arrays = parameters_to_ndarrays(results[0][1].parameters)
        return ndarrays_to_parameters([array.astype(np.float32) for array in arrays]), {}


class SecAgg:
    """A federation of Flower's that sums its clients' arrays, round after round."""

    def __init__(self, vectors: Sequence[Arrays], *, lean: bool = False, aes: bool = False) -> None:
        count = len(vectors)
        self._aes = aes
        self._vectors, self._count = vectors, count
        every = {"min_fit_clients": count, "min_available_clients": count}
        strategy = (Lean if lean else FedAvg)(fraction_fit=1.0, fit_metrics_aggregation_fn=lambda _: {}, **every)
        manager = SimpleClientManager()
        for n in range(count):
            manager.register(SimpleNamespace(cid=str(n + 1), node_id=n + 1))
        self._clients = {n + 1: _context(n + 1) for n in range(count)}
        self._server = LegacyContext(_context(0), strategy=strategy, client_manager=manager)
        blank = [np.zeros(array.shape, np.float32 if lean else np.float64) for array in vectors[0]]
        start = compat.parameters_to_arrayrecord(ndarrays_to_parameters(blank), keep_input=True)
        self._server.state.array_records[MAIN_PARAMS_RECORD] = start
        self._workflow = SecAggPlusWorkflow(num_shares=1.0, reconstruction_threshold=0.5, max_weight=1.0)
        self._round = 0
        self.bytes = 0
        """Of the last round, from and to the server."""

    def round(self) -> list[NDArray[np.float64]]:
        """The sum of all clients' arrays, as the server sees it."""
        self._round, self.bytes = self._round + 1, 0
        self._server.state.config_records[MAIN_CONFIGS_RECORD] = ConfigRecord({Key.CURRENT_ROUND: self._round})
        with _within_a_task(), ExitStack() as stack:
            for side in SIDES if self._aes else ():
                stack.enter_context(patch.object(side, "pseudo_rand_gen", aes_masks))
            self._workflow(self, self._server)
        record = self._server.state.array_records[MAIN_PARAMS_RECORD]
        means = parameters_to_ndarrays(compat.arrayrecord_to_parameters(record, keep_input=True))
        return [mean.astype(np.float64, copy=False) * self._count for mean in means]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """What Flower's grid does: each message to its client, and the replies."""
        del timeout
        return [self._client(message) for message in messages]

    def _client(self, sent: Message) -> Message:
        content = RecordDict(dict(sent.content))
        for name, record in sent.content.config_records.items():
            content[name] = ConfigRecord(dict(record))  # a client changes what it got
        number = sent.metadata.dst_node_id
        message = Message(
            content, dst_node_id=number, message_type=sent.metadata.message_type, group_id=sent.metadata.group_id
        )
        self.bytes += _size(content)
        reply = secaggplus_mod(message, self._clients[number], self._train)
        self.bytes += _size(reply.content)
        return reply

    def _train(self, message: Message, _context: Context) -> Message:
        """A client's training: its arrays, with weight 1."""
        arrays = self._vectors[message.metadata.dst_node_id - 1]
        result = FitRes(Status(Code.OK, ""), ndarrays_to_parameters(list(arrays)), 1, {})
        return Message(compat.fitres_to_recorddict(result, keep_input=False), reply_to=message)


def _context(node: int) -> Context:
    return Context(run_id=1, node_id=node, node_config={}, state=RecordDict(), run_config={})


def _size(content: RecordDict) -> int:
    """Bytes of all records, empty lists left out: Flower's count fails on them."""
    total = 0
    for record in content.values():
        if isinstance(record, ConfigRecord):
            record = ConfigRecord({key: value for key, value in record.items() if value not in ([], "", b"")})
        total += record.count_bytes()
    return total


@contextmanager
def _within_a_task() -> Iterator[None]:
    """As in a process that Flower started for a run, but without its messages."""
    logger, names = logging.getLogger("flwr"), ("_run_id", "_task_id", "_node_id")
    level, before = logger.level, [getattr(TaskIdentity, name) for name in names]
    logger.setLevel(logging.CRITICAL)
    try:
        for name in names:
            setattr(TaskIdentity, name, 1)
        yield
    finally:
        logger.setLevel(level)
        for name, value in zip(names, before, strict=True):
            setattr(TaskIdentity, name, value)
