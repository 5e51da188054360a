"""No key stream covers two things: chunks, rounds, unions and clients have their own, also with drop-outs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from secea.arithmetic import streams
from secea.arithmetic.field import insecure_ring
from secea.errors import SERVER
from secea.forms.keyed import Keyed
from secea.forms.keyed import form as form_module
from secea.forms.keyed.shared import RoundSecrets
from secea.testing import Parties
from secea.wire import messages

TABLES = [{f"e{i}": np.array([1.0 * n, 0.5 * i]) for i in range(n, n + 9)} for n in range(4)]


def parties(dropouts: int, **more: Any) -> Parties:
    made = Parties.of(TABLES, Keyed(batch=3), collusion=1, dropouts=dropouts, **more)
    made.setup()
    return made


@pytest.mark.parametrize("dropouts", [0, 1])
def test_every_mask_of_an_upload_has_a_lane_of_its_own(dropouts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (form_module, messages):
        monkeypatch.setattr(module, "CHUNK_BYTES", 100)
    made, seen = parties(dropouts), dict[tuple[bytes, int], int]()
    add = streams.add_streams

    def counted(ring: Any, acc: Any, keys: Sequence[bytes], signs: Sequence[int], lane: int) -> None:
        for key in keys:
            seen[key, lane] = seen.get((key, lane), 0) + 1
        add(ring, acc, keys, signs, lane)

    monkeypatch.setattr(streams, "add_streams", counted)
    for _ in range(2):
        made.contribute(TABLES)
        seen.clear()
        client = made.clients[0]
        made.server.begin("upload", made.server.at.members)
        made.exchange.deliver()
        list(client.outbox())
        assert made.session.form.layout(form_module.Kind.UPLOAD, made.session.params, client.at, 0, SERVER).chunks > 2
        assert seen
        assert set(seen.values()) == {1}
        lanes = {key: {lane for other, lane in seen if other == key} for key, _ in seen}
        assert all(len(each) == len(next(iter(lanes.values()))) > 2 for each in lanes.values())
        while made.server.at.phase != "rest":
            made.exchange.step()


def test_mask_keys_and_secrets_are_drawn_anew_for_each_union() -> None:
    made, seen = parties(0), list[bytes]()
    for _ in range(4):
        for client in made.clients.values():
            union = client.part.union  # type: ignore[attr-defined]
            seen += [union.mask_key, union.part, *union.pairs.values()]
        seen.append(made.clients[0].part.union.secret)  # type: ignore[attr-defined]
        made.union(range(4))
    pairs = 4 * 3 * 4  # each pair is seen from both ends
    assert len(set(seen)) == len(seen) - pairs // 2


@pytest.mark.parametrize("dropouts", [0, 1])
def test_a_noise_seed_is_its_clients_own_draw_and_nobody_elses_to_compute(dropouts: int) -> None:
    made = parties(dropouts)
    for _ in range(3):
        made.contribute(TABLES)
        drawn: dict[int, list[bytes]] = {}
        for n, client in made.clients.items():
            part: Any = client.part
            drawn[n] = []

            def entropy(size: int, own: list[bytes] = drawn[n], real: Any = made.entropy[n]) -> bytes:
                own.append(real(size))
                return own[-1]

            part._entropy = entropy
        made.server.begin("upload", made.server.at.members)
        made.exchange.deliver()
        seeds = [(n, client.part.round.noise_seed) for n, client in made.clients.items()]  # type: ignore[attr-defined]
        noisy = [(n, seed) for n, seed in seeds if seed]
        assert len(noisy) == 2 + dropouts
        assert all(seed in drawn[n] for n, seed in noisy)
        while made.server.at.phase != "rest":
            made.exchange.step()


def test_what_blinds_a_slot_is_never_0_and_everything_else_takes_every_value() -> None:
    """In a tiny field, where it shows: a row under rho = 0 would be empty, and its count would be gone."""
    ring = insecure_ring(5)
    drawn = RoundSecrets(ring, 400, 2, bytes(32), bytes(16), 1).of(3, 400, (0, 2))
    assert set(drawn.rho.ravel().tolist()) == {1, 2, 3, 4}
    others = [drawn.theta, drawn.beta, *drawn.alpha, *drawn.J, *drawn.H]
    assert [set(each.ravel().tolist()) for each in others] == [{0, 1, 2, 3, 4}] * 8
    assert len({each.tobytes() for each in others}) == 8
