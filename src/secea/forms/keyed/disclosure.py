"""What people sign who agree on the keyed form: docs/threat-model.md and section K11, with a federation's numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from secea.forms.keyed import planning
from secea.forms.keyed.numbers import honest
from secea.forms.keyed.tables import weighing_error
from secea.params import Params
from secea.party.disclosure import Disclosure, Statement

if TYPE_CHECKING:
    from secea.forms.keyed.form import Keyed

FOLLOWS: Final = "follows the protocol, and looks at whatever it gets"


def disclosure(form: Keyed, params: Params) -> Disclosure:
    """All of it."""
    return Disclosure(tuple(_parties(form, params)), tuple(_options(params)), _limits(params), accuracy(params))


# ------------------------------------------------------------------------------------------------------ who learns what


def _parties(form: Keyed, params: Params) -> Iterator[Statement]:
    N, T, D = params.clients, params.T, params.dropouts
    seen = _seen_by_all(params)
    yield Statement("a client", FOLLOWS, (
        "The means of its own entities, the size of the union, who takes part, and that somebody's names changed. It"
        " cannot test guessed names.",
        *(("With two clients: which entities both have, and the other's rows of these, by subtraction.",) * (N == 2)),
        *seen,
    ))  # fmt: skip
    yield Statement("the server", FOLLOWS, (
        "The size of the union, who takes part, that names changed, sizes and times of messages. No name, no number, no"
        " count.",
        *seen,
    ))  # fmt: skip
    yield _together(params)
    yield Statement("a server that deviates", "does what it likes", tuple(_deviating_server(params)))
    first, later = (form.list_size(params, epoch) + 1 for epoch in (1, 2))
    yield Statement("clients that deviate", f"up to {T}, without the server", (
        "They can give wrong numbers, and spoil a round without being named. They can find out how many own a slot,"
        " without its name.",
        f"They can list names that they do not have, and get their means: each {first:,} at first, and {later:,} in"
        f" each of {form.max_updates} epochs of new names. They cannot read a row whose name they did not list.",
        *_deviating_clients(params),
        *((
            f"{T + 1} clients together have the key of the names, and can test any number of guesses: more than"
            f" collusion={T} allows for.",
        ) * (T < N - 1)),
    ))  # fmt: skip
    yield Statement("the engine and the network", "have no key", (
        "They see sealed messages, their sizes and times, and who is connected. They can delay and drop. What they"
        " change, repeat or make up is refused.",
        "Whoever may put code onto a site can do there what it likes.",
    ))  # fmt: skip
    yield Statement("clients that are missing", f"at most {D} in the middle of a round" if D else "in a round", (
        "Everybody sees who, and which slots, without names, have no owner left. Means are over the others."
        if D
        else "If a client vanishes in the middle of a round, the round is lost, and the next one works.",
        f"A round needs {form.fewest(params)} of {N} clients. {planning.needed(form, params)}",
    ))  # fmt: skip


def _seen_by_all(params: Params) -> tuple[str, ...]:
    """What options show to everybody."""
    below = "Which slots, without names, have too few owners for a mean, and not how many."
    empty = "Which slots, without names, nobody contributed to in a round."
    return (below,) * (params.min_owners > 1) + (empty,) * params.partial


def _together(params: Params) -> Statement:
    N, T, D = params.clients, params.T, params.dropouts
    weighed = ", each times its weight, and the sum of these weights, blurred" if params.max_weight else ""
    weight = ", and its weight, blurred" if params.max_weight else ""
    noise = ", under the noise of those who are honest" if params.noise else ""
    if T == N - 1:
        others = "the other client" if N == 2 else f"all {N - 1} other clients"
        about = f"the server and {others} together, against you"
        says = [
            f"Of an entity that one of them has: whether you have it too, and your row{weight}{noise}.",
            "Of an entity that only you have: neither the name nor a number. They do learn how many entities you have.",
        ]
    else:
        clients = "any one client" if T == 1 else f"any {T} clients"
        about = f"the server and {clients} together"
        says = [
            "Of an entity that one of these clients has: how many of the others have it, and the sum of their rows"
            f"{weighed}{noise}. With one other owner the sum is its row.",
            "Of all other entities: how many clients own each, without names.",
        ]
    if D:
        says.append("When a client drops out: which slots it owned, from two rounds of one union.")
    if params.partial:
        says.append("How many contribute to each slot, without its name, in each round.")
    says.append("They cannot test guessed names.")
    return Statement(about, "follow the protocol, and put together all that they have", tuple(says))


def _deviating_server(params: Params) -> Iterator[str]:
    N, T, D = params.clients, params.T, params.dropouts
    if 2 * D + T < N:
        friends = "the other client" if N == 2 else "any one client" if T == 1 else f"any {T} clients"
        yield (
            "It learns no more than one that follows the protocol and chooses who drops out, also together with"
            f" {friends} that follow{'s' if T == 1 else ''} it (2D + T < N holds: 2 x {D} + {T} < {N})."
        )
    else:
        yield (
            f"THIS IS NOT COVERED: 2D + T < N does not hold (2 x {D} + {T}, and {N} clients); it would with"
            f" {planning.cure(N, T, D)}. Such a server can show two groups of clients two sets of drop-outs, and read"
            " the upload of one client: which slots it owns, and its rows of those that a client in league owns too."
        )
    yield (
        "It cannot make a client accept a wrong mean by itself, but with a client's help it can, and ask for as many"
        " names as that client may list. It can always stop the federation."
    )
    if params.min_owners > 1:
        yield "It can give out means that are below the minimum of owners."


def _deviating_clients(params: Params) -> Iterator[str]:
    """What they can do about options."""
    if params.min_owners > 1:
        yield "They can count themselves as owners of slots that they do not own, and so undo the minimum of owners."
    if params.max_weight is not None:
        yield f"They can claim any weight up to {params.max_weight:,}."
    if params.noise:
        yield "They can leave out their own noise."


def _limits(params: Params) -> tuple[str, ...]:
    enough = params.min_owners > 2 and params.max_weight is None  # rows of weight 0 count for the minimum
    two = "" if enough else " With two owners, each can subtract its own part."
    return (
        f"What a mean itself tells.{two} A mean with and without a client gives that client's part to whoever can"
        " compare, up to what others changed meanwhile.",
        "The number of owners, from an owner that knows the others' values because nobody changed them, or where"
        " numbers are coarse in certain ways (docs/threat-model.md, limits of the fill).",
        "Timing and other side channels, and attacks by somebody who controls your machine.",
        "Wrong keys in the federation file: compare its fingerprint over another channel.",
        "The software is young, and nobody outside the project has audited it.",
    )


# ------------------------------------------------------------------------------------------------- what options change


def _options(params: Params) -> Iterator[Statement]:
    if params.min_owners > 1:
        yield Statement("minimum of owners", f"min_owners = {params.min_owners}", tuple(_minimum(params)))
    if params.max_weight is not None:
        quiet = " It counts for the minimum of owners: a mean may be of fewer rows." if params.min_owners > 1 else ""
        yield Statement("weights", f"max_weight = {params.max_weight:,}", (
            f"A row counts by its weight, a whole number from 0 to {params.max_weight:,}.",
            "Owners also learn the mean weight of their entity, and with two owners the other's weight. Each weight is"
            " blurred by up to half a unit first, so that whole numbers do not show how many owners there are. That"
            " changes the mean a little: see accuracy.",
            "Where weights are unknown and alike in size, the mean weight shows no count. An owner whose weight is far"
            " above the others', or who claims such a weight, sees how many owners there are.",
            "Weights that others know name their owners: if all rows of a client weigh the same, and that is known, the"
            " mean weight tells who owns an entity.",
            "The mean weight tells how many own an entity if all weights are multiples of a number above 1, such as"
            " 10, or if an owner's weight changed while those of the others did not.",
            "A row of weight 0 is left out quietly: no slot looks empty by it. Owners see that the mean weight is"
            f" lower, and, if they know the others' weights, which part of the owners gave nothing.{quiet}",
        ))  # fmt: skip
    if params.partial:
        alone = (
            "The minimum of owners counts those who contribute. Owners that left out their rows read the mean, too."
            if params.min_owners > 1
            else "A mean may be of one row alone, and owners that left out theirs read it."
        )
        yield Statement("rows left out openly", "partial = true", (
            "A client may leave rows out of a round, and still reads their means.",
            "Everybody, the server too, sees which slots, without names, nobody contributed to. A slot keeps its place"
            " within a union, so that it can be followed from round to round.",
            alone,
        ))  # fmt: skip
    if params.noise:
        yield Statement("noise", f"noise = {params.noise:g}", tuple(_noise(params)))


def _minimum(params: Params) -> Iterator[str]:
    m, N, T = params.min_owners, params.clients, params.T
    yield (
        f"No mean for an entity that fewer than {m} clients contribute to. Its owners keep their own rows, and learn"
        " just that."
    )
    yield (
        "It is a policy that the server enforces: one that does not withhold such a mean breaks it, and nobody notices."
        " It does not change what the server and clients learn together."
    )
    yield (
        "It is for clients that follow the protocol. One that deviates can count itself several times, or into slots"
        " that are not its own: it undoes the minimum alone, sees numbers of owners without names, and nobody notices."
    )
    if m > T + 1:
        yield (
            f"Conspiring owners count as owners, too. Here {m} is above T + 1 = {T + 1}: at least two owners of every"
            " mean are not among those who conspire."
        )
    else:
        cure = f"it would be with {T + 2}" if T + 2 <= N else f"no minimum is, with T = {T} of {N} clients"
        yield (
            f"Conspiring owners count as owners, too. Here {m} is not above T + 1 = {T + 1} ({cure}):"
            f" {_number(m - 1)} that {'conspires reaches' if m == 2 else 'conspire reach'} the minimum with one other"
            f" owner, and can subtract {'its own part' if m == 2 else 'their own parts'} from the mean."
        )
    if params.dropouts:
        yield "In each round one client, in turn, is needed for the minimum: without it the round is lost."


def _number(count: int) -> str:
    return "one client" if count == 1 else f"{count} clients"


def total_noise(params: Params) -> float:
    """The standard deviation of what all clients add to the sum of an entity's rows, if all take part."""
    return params.noise * math.sqrt(params.clients / honest(params, params.clients))


def _noise(params: Params) -> Iterator[str]:
    N, T, D = params.clients, params.T, params.dropouts
    s = "s" if T == 1 else ""
    yield (
        "Every client that takes part adds noise to every slot. What the honest ones add to the sum of an entity's"
        f" rows has a standard deviation of at least {params.noise:g}, whatever {_number(T)} that conspire{s} leave{s}"
        f" out or tell{s}{f', and with {D} dropped out' if D else ''}."
    )
    if honest(params, N) == 1:
        yield "You have to trust nobody else's noise: your own is enough."
    else:
        yield (
            f"You have to trust that, of the clients in the sum of a round, all but {T} draw noise as agreed on, and"
            f" tell nobody.{'' if D else ' The fewer take part, the more each of them adds.'}"
        )
    yield (
        "This is a basis for differential privacy, and no figure for it: epsilon depends on how rows are clipped and"
        " on the number of rounds. secea.privacy and `secea plan --policy --clip` compute it."
        " The noise covers the numbers of rows, and not who owns"
        " what."
    )


def accuracy(params: Params) -> tuple[str, ...]:
    """How far a mean may be off."""
    exact = f"exact to within {params.resolution:.2g} (max_abs {params.max_abs:g}, {params.precision} bits)"
    lines = [f"A mean is {exact}{' but for the noise below' if params.noise else ''}."]
    if (W := params.max_weight) is not None:
        at = [(w, weighing_error(params, [w], 0.0)) for w in dict.fromkeys((W, -(-W // 10)))]
        shown = "; ".join(f"at w = {w:,} that is {error:.2g} plus {_percent(1 / (2 * w - 1))}" for w, error in at)
        lines = [
            f"Sums are {exact}. A weighted mean is exact to within {3 * params.resolution:.2g} * {W + 1:,} / (w - 1/2),"
            " plus 1 / (2w - 1) of the largest distance of an owner's number from the mean, where w is the mean"
            f" weight of the owners: {shown}. The second part comes from the blur."
        ]
    lines.append("Where numbers are coarser (bf16, a few decimals), the error grows by up to half of their last digit.")
    if params.noise:
        lines.append(
            f"Noise: all {params.clients} clients together add a standard deviation of {total_noise(params):.3g} to a"
            " sum. A mean over c owners is off by that, divided by c."
        )
    return tuple(lines)


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"
