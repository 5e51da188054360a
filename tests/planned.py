"""Small federations of each form, as plans are made for them."""

from __future__ import annotations

from secea.forms import form_of
from secea.params import Params
from secea.party.form import Form

SHAPES = [("keyed", 5, 2, 0), ("keyed", 5, 1, 2), ("keyed", 2, 1, 0), ("keyed", 40, 9, 3), ("paillier", 4, 1, 0)]
"""Form, clients, colluding clients, drop-outs."""


def shaped(name: str, clients: int, collusion: int, dropouts: int, entities: int) -> tuple[Form, Params]:
    """The form and its parameters, for a union of so many entities."""
    params = Params(
        clients=clients, collusion=collusion, dropouts=dropouts, dim=3, max_entities=max(1, entities // 2),
        max_union=entities, key_bits=256, insecure_small_keys=True,
    )  # fmt: skip
    form = form_of(name)
    return form, form.checked(params)
