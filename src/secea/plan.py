"""What a federation costs, before it is set up: bytes to the last one, multiplications, precision, security."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from secea.errors import ParamsError
from secea.forms import DEFAULT, form_of, is_new
from secea.forms.costs import round_costs, setup_costs
from secea.params import Params
from secea.party.form import Form
from secea.retrieval import check_paper
from secea.session import Scheme, check_choice
from secea.sharing import SEED_LAYOUT
from secea.wire.keys import HELLO_BYTES
from secea.wire.messages import HEADER_BYTES, Kind, Layout, announcement_bytes

UP: Final = (Kind.TABLE, Kind.OPENING)
"""Kinds of the set-up that end at the server."""
DEALT: Final = (Kind.QUERY, Kind.INDICATOR, Kind.RESHARE)
"""Kinds that go from client to client: up, and down."""


@dataclass(frozen=True)
class Plan:
    """The cost of one set-up and of one round in which all clients take part and nothing is retried.

    Bytes are those that all parties send, headers and seals included: one entry for each hop, so what the server
    relays counts twice. `Federation.traffic` records the same.
    """

    setup_bytes: int
    round_bytes: int
    by_kind: Mapping[str, int]
    """Set-up and one round together, by kind of message."""
    sent_by_clients: Mapping[str, int]
    """What all clients send in the `setup` and in the `round`; the rest is what the server sends to them."""
    setup_multiplications: int
    """Field multiplications (one prime each) of all parties in the set-up."""
    round_multiplications: int
    primes: int
    """The number of primes side by side."""
    precision: int
    """Bits: a mean of inputs of full precision is exact to within max_abs * 2**-precision."""
    sigma: int
    """Statistical security of the whole session, in bits."""
    sigma_prime: int
    """What each masked element must have for that."""
    numbers: Mapping[str, int] = field(default_factory=dict)
    """How numbers are encoded, where a form has a choice: f, s, w and the like (docs/protocol-keyed.md, K6)."""
    trust: tuple[str, ...] = ()
    """Who may conspire with whom, whether a server that deviates is covered, and who must be there for new names."""


def plan(params: Params, *, entities: int, form: str | Form = DEFAULT, queries: str = "buckets") -> Plan:
    """The plan for a union of so many entities. Bounds that `Params` leaves open are taken as `entities`."""
    if isinstance(entities, bool) or not isinstance(entities, int) or entities < 0:
        raise ParamsError(f"entities must be the size of the union, got {entities!r}")
    if is_new(form):
        return _plan_of(form_of(form), params, entities)
    return _plan_of_paper(params, entities, check_choice(form, queries), queries)


def _plan_of(form: Form, params: Params, entities: int) -> Plan:
    """A form of the new core: its table of phases says what is sent."""
    params = form.checked(params.with_bounds(max_entities=entities, max_union=entities))
    _check_size(params, entities)
    setup, each = setup_costs(form, params, entities), round_costs(form, params, entities)
    products, facts = form.products(params, entities), form.facts(params)
    return Plan(
        setup_bytes=setup.bytes.total(),
        round_bytes=each.bytes.total(),
        by_kind=dict(sorted((setup.bytes + each.bytes).items())),
        sent_by_clients={"setup": setup.sent_by_clients, "round": each.sent_by_clients},
        setup_multiplications=products[0],
        round_multiplications=products[1],
        primes=facts.pop("primes"),
        precision=params.precision,
        sigma=params.sigma,
        sigma_prime=facts.pop("sigma_prime"),
        numbers=facts,
        trust=form.trust(params),
    )


def _check_size(params: Params, entities: int) -> None:
    assert params.max_union is not None
    if entities > params.max_union:
        raise ParamsError(f"entities must be at most max_union={params.max_union}, got {entities}")


def _plan_of_paper(params: Params, entities: int, form: str, queries: str) -> Plan:
    params = check_paper(params).with_bounds(max_entities=entities, max_union=entities)
    _check_size(params, entities)
    scheme = Scheme(params, form, queries)
    N, T, K, M, need = params.N, params.T, params.K, entities, params.need
    chosen = scheme.form

    def whole(kind: Kind, clients: int = N) -> int:
        return scheme.layout(kind, M, clients).wire_bytes

    def dealt(kind: Kind, senders: int = N) -> int:
        """Shares from each sender to all others, T of them as seeds; each travels two hops."""
        return 2 * senders * ((N - 1 - T) * whole(kind) + T * SEED_LAYOUT.wire_bytes)

    def announced(members: int) -> int:
        return N * Layout(1, announcement_bytes(members)).wire_bytes

    hello = HEADER_BYTES + HELLO_BYTES
    setup: Counter[Kind] = Counter()
    # To the server, to the others; the server's.
    setup[Kind.HELLO] = N * N * (hello + chosen.paillier_bytes) + N * hello
    setup[Kind.HELLO] += 2 * N * (N - 1) * SEED_LAYOUT.wire_bytes  # parts of the shared secret
    setup[Kind.TABLE] = N * whole(Kind.TABLE)
    setup[Kind.TAGS] = N * whole(Kind.TAGS)
    setup[Kind.QUERY] = dealt(Kind.QUERY)
    setup[Kind.CONTRIBUTORS] = 3 * announced(N)
    if chosen.weighted:
        setup[Kind.INDICATOR] = dealt(Kind.INDICATOR)
        setup[Kind.OPENING] = N * whole(Kind.OPENING)
        setup[Kind.RECIPROCAL] = N * whole(Kind.RECIPROCAL)
        setup[Kind.RESHARE] = dealt(Kind.RESHARE, need)
        setup[Kind.CONTRIBUTORS] += announced(N) + 2 * announced(need)
    each: Counter[Kind] = Counter()
    each[Kind.SHARE] = dealt(Kind.SHARE)
    each[Kind.CONTRIBUTORS] = announced(N)
    each[Kind.ANSWER] = N * whole(Kind.ANSWER)
    each[Kind.MEAN] = N * whole(Kind.MEAN)

    up = sum(setup[kind] for kind in UP) + sum(setup[kind] for kind in DEALT) // 2
    greetings = N * (hello + chosen.paillier_bytes) + N * (N - 1) * SEED_LAYOUT.wire_bytes
    sent = {"setup": up + greetings, "round": each[Kind.SHARE] // 2 + each[Kind.ANSWER]}

    P, J, L = scheme.ring.size, scheme.query_count, chosen.block_length
    positions = scheme.query_positions(M)
    encode = (N - T) * (K + T)  # of one element of each of the K blocks, by one sender
    spread = (N - T) * (1 + T)  # of one element that stands at every beta
    setup_products = N * spread * (positions + (J + M if chosen.weighted else 0)) * P
    if chosen.weighted:
        setup_products += N * N * (positions + J * (need - K + 1)) * P  # openings
        setup_products += N * J * (need + N * (1 + T)) * P + need * N * positions * (1 + spread) * P
    round_products = N * encode * M * L * P + N * N * positions * L * P  # sharing, answering
    # Interpolation and syndromes, of the pads too.
    round_products += N * J * L * (K * need + (N - need) * N) * P * (2 if chosen.weighted else 1)
    return Plan(
        setup_bytes=sum(setup.values()),
        round_bytes=sum(each.values()),
        by_kind={kind.name.lower(): count for kind, count in sorted((setup + each).items())},
        sent_by_clients=sent,
        setup_multiplications=setup_products,
        round_multiplications=round_products,
        primes=P,
        precision=params.precision,
        sigma=params.sigma,
        sigma_prime=chosen.sigma_prime,
        trust=(
            f"The server, or {T} of {N} clients together, may be curious; the server must not conspire with a client.",
            "A server that deviates from the protocol is not covered.",
        ),
    )
