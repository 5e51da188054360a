"""What a federation would cost, computed before it is set up: exact bytes, multiplications, precision, security."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from secea.engines.costs import TITLES, EngineCosts, EngineName, engine_costs
from secea.errors import ParamsError
from secea.forms import DEFAULT, FormName, QueriesName, form_of
from secea.forms.costs import round_costs, setup_costs
from secea.notebook import html_table, size
from secea.params import Params
from secea.party.form import Form


@dataclass(frozen=True)
class Plan:
    """The cost of one set-up and of one round in which all clients take part and nothing is retried.

    Bytes are what all parties send, including headers and seals. There is one entry for each hop, so what the server
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
    """The number of primes that are used together."""
    precision: int
    """Bits: a mean of inputs of full precision is exact to within max_abs * 2**-precision."""
    sigma: int
    """Statistical security of the whole session, in bits."""
    sigma_prime: int
    """The bits that each masked element needs for that."""
    numbers: Mapping[str, int] = field(default_factory=dict)
    """How numbers are encoded, if the form has a choice: f, s, w and so on (docs/protocol-keyed.md, K6)."""
    trust: tuple[str, ...] = ()
    """Who may conspire with whom, whether a deviating server is covered, and who must be present for new names."""
    engine: EngineCosts | None = None
    """What an engine adds, if one was named."""

    def __repr__(self) -> str:
        return f"Plan(set-up {size(self.setup_bytes)}, round {size(self.round_bytes)}, precision {self.precision} bits)"

    def _repr_html_(self) -> str:
        header = ["", "set-up", "round"]
        sent = self.sent_by_clients
        rows: list[tuple[object, ...]] = [
            ("bytes, all parties", self.setup_bytes, self.round_bytes),
            ("sent by clients", sent["setup"], sent["round"]),
            ("multiplications", self.setup_multiplications, self.round_multiplications),
        ]
        trust = html_table("Trust", [""], [(each,) for each in self.trust])
        return html_table("Plan", header, rows) + trust + (self._engine_html(self.engine) if self.engine else "")

    @staticmethod
    def _engine_html(engine: EngineCosts) -> str:
        rows: list[tuple[object, ...]] = [
            ("stages", *engine.stages.values()),
            ("waits, s", *engine.wait_seconds.values()),
        ]
        memory = [
            (party, process, size(count)) for party, each in engine.memory.items() for process, count in each.items()
        ]
        return html_table(f"On {TITLES[engine.name]}", ["", *engine.stages], rows) + html_table(
            "Memory", ["of each", "process", ""], memory
        )


def plan(
    params: Params,
    *,
    entities: int,
    form: FormName | Form = DEFAULT,
    queries: QueriesName | None = None,
    engine: EngineName | None = None,
) -> Plan:
    """The plan for a union of this number of entities. Bounds that `Params` leaves open are taken as `entities`.

    `form` and `queries` are as for `aggregate`. `engine`: what would carry the messages between the parties' machines.
    """
    if isinstance(entities, bool) or not isinstance(entities, int) or entities < 0:
        raise ParamsError(f"entities must be the size of the union, got {entities!r}")
    chosen = form_of(form, queries=queries)
    params = chosen.checked(params.with_bounds(max_entities=entities, max_union=entities))
    assert params.max_union is not None
    if entities > params.max_union:
        raise ParamsError(f"entities must be at most max_union={params.max_union}, got {entities}")
    setup, each = setup_costs(chosen, params, entities), round_costs(chosen, params, entities)
    added = None
    if engine is not None:
        added = engine_costs(engine, params, {"setup": setup, "round": each}, chosen.memory(params, entities))
    products, facts = chosen.products(params, entities), chosen.facts(params)
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
        trust=chosen.trust(params),
        engine=added,
    )
