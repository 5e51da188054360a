"""What people sign who agree on the paper's form: the second half of docs/threat-model.md, with their numbers."""

from __future__ import annotations

from typing import Final

from secea.params import Params
from secea.party.disclosure import Disclosure, Statement

FOLLOWS: Final = "follows the protocol, and looks at whatever it gets"


def disclosure(params: Params) -> Disclosure:
    """All of it."""
    T = params.T
    parties = (
        Statement("a client", FOLLOWS, (
            "The means of its own entities, the size of the union, who takes part. The number of owners of its"
            " entities: treat it as known to each of them. Whether a name that it guesses is in the union, and not who"
            " owns it.",
        )),
        Statement("the server", "follows the protocol, and shares its view with no client", (
            "The size of the union, who takes part, whose entities changed, sizes and times of messages. It cannot test"
            " names.",
        )),
        Statement(f"up to {T} of the clients together", "follow the protocol, without the server", (
            f"What each of them learns. {T + 1} clients that pool their shares read what others ask for.",
        )),
        Statement("the server and a client together", "outside of the model", (
            "THIS IS NOT COVERED. They learn counts and sums, also of entities that the client does not have, and which"
            " guessed names are in the union. If you cannot rule this out, do not use this form.",
        )),
        Statement("a server that deviates", "outside of the model", (
            "THIS IS NOT COVERED. Much is noticed, but it can move a mean within the range unnoticed. If you cannot"
            " rule this out, do not use this form.",
        )),
        Statement("clients that deviate", "outside of the model", (
            "THIS IS NOT COVERED. They can give wrong numbers, claim entities that they do not have, and get their"
            " means unnoticed.",
        )),
        Statement("the engine and the network", "do not forge orders to train", (
            "They see sealed messages, their sizes and times, and who is connected. What they change, repeat or make up"
            " is refused.",
        )),
    )  # fmt: skip
    limits = (
        "What a mean itself tells. With two owners, each can subtract its own part. A mean with and without a client"
        " gives that client's part to whoever can compare, up to what others changed meanwhile.",
        "Timing and other side channels, and attacks by somebody who controls your machine.",
        "Wrong keys in the federation file: compare its fingerprint over another channel.",
        "The software is young, and nobody outside the project has audited it.",
    )
    accuracy = (
        f"A mean is exact to within {params.resolution:.2g} (max_abs {params.max_abs:g}, {params.precision} bits).",
    )
    return Disclosure(parties, (), limits, accuracy)
