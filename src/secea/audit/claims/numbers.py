"""Claims about both forms: numbers that protect something are what the specification asks for.

Its formulas are written a second time in `audit.specification`. The walk goes over parameters at which no two rules
coincide: everything that is allowed for few clients, and some for many.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.ristretto import ORDER
from secea.audit import KEYED, PAILLIER, Objection, Subject, claim
from secea.audit import specification as spec
from secea.audit.claims.counts import form_of
from secea.audit.mutants import keyed as keyed_mutants
from secea.audit.mutants import names, options, views
from secea.audit.mutants import numbers as mutants
from secea.audit.tails import kolmogorov
from secea.errors import ParamsError
from secea.forms.keyed import Keyed
from secea.forms.keyed.client import KeyedClient
from secea.forms.keyed.form import Kind
from secea.forms.keyed.numbers import honest
from secea.forms.paillier import Paillier
from secea.params import Params
from secea.party.form import Form
from secea.party.phases import Agreement
from secea.table import as_table
from secea.testing import Parties, Watch
from secea.wire.randomness import SEED_BYTES

FEW: Final = range(2, 13)
MANY: Final = (13, 15, 20, 31, 41, 60, 100)


def _of(params: Params) -> str:
    return f"N={params.clients}, T={params.T}, D={params.dropouts}"


def at_least(what: str, params: Params, found: float, asked: float) -> None:
    """Object if a number is below what the specification asks for."""
    if found < asked:
        raise Objection(f"{_of(params)}: {what} is {found:g}, and the specification asks for {asked:g}")


def at_most(what: str, params: Params, found: float, allowed: float) -> None:
    """Object if a number is above what the specification allows."""
    if found > allowed:
        raise Objection(f"{_of(params)}: {what} is {found:g}, and the specification allows {allowed:g}")


def triples(clients: Iterable[int]) -> Iterator[tuple[int, int, int]]:
    """All N, T and D, allowed or not; for many clients those at the edges and in the middle."""
    for N in clients:
        some = range(N + 1) if N in FEW else sorted({0, 1, 2, N // 3, N // 2 - 1, N // 2, N - 2, N - 1})
        yield from ((N, T, D) for T in some for D in some)


def refused(form: Form, N: int, T: int | None, D: int) -> bool:
    """Whether a form refuses these."""
    try:
        form.checked(Params(N, dim=2, collusion=T, dropouts=D))
    except ParamsError:
        return True
    return False


# ---------------------------------------------------------------------------------------------------------------- rules


@claim(
    "record",
    KEYED,
    PAILLIER,
    mutants=(
        mutants.QUORUM_OF_NEED, mutants.THRESHOLD_OF_PARTICIPANTS, mutants.SIGNATURES_ONE_LESS, views.NEIGHBOUR_LESS,
        mutants.NOISE_OF_T, views.FEWER_NOISE, names.LATER_LISTS, options.FIRST_DESIGNATED,
    ),
)  # fmt: skip
def rules(subject: Subject) -> int:
    """Both forms: quorums, thresholds and the sizes of groups are at least what the specification asks for."""
    check = _keyed_rules if isinstance(subject.form, Keyed) else _paper_rules
    allowed = spec.allowed if isinstance(subject.form, Keyed) else spec.paper_allowed
    cases = 0
    for N, T, D in triples((*FEW, *MANY) if subject.thorough else (*FEW, *MANY[:3])):
        if allowed(N, T, D) == refused(subject.form, N, T, D):
            raise Objection(f"N={N}, T={T}, D={D} is {'refused' if allowed(N, T, D) else 'allowed'}")
        if allowed(N, T, D):
            check(subject.form, subject.form.checked(Params(N, dim=2, collusion=T, dropouts=D)))
            cases += 1
    return cases


def _keyed_rules(form: Form, params: Params) -> None:
    assert isinstance(form, Keyed)
    N, T, D = params.clients, params.T, params.dropouts
    everyone, t = tuple(range(N)), spec.threshold(N, D)
    chosen = form.checked(Params(N, dim=2, dropouts=D)).T
    if chosen != spec.colluders(N, D):
        raise Objection(f"N={N}, D={D}: T={chosen} is chosen, and the specification chooses {spec.colluders(N, D)}")
    at_least("t", params, form.threshold(params), t)
    at_least("the degree of the graph of masks", params, form.degree(params), spec.neighbours(T, D))
    at_least("Z", params, form.signatures(params), spec.signatures(N, T))
    at_least("the number of holders", params, len(form.holders(params, Agreement(members=everyone))), spec.holders(T))
    fewest = spec.fewest_participants(N, T, D)
    for phase in ("secret", "table", "ready", "upload", "batch"):
        at_least(f"the fewest in {phase}", params, form.fewest(params, phase), fewest)
    at_least("the fewest in commit", params, form.fewest(params, "commit"), N)
    at_least("the fewest in the first list", params, form.fewest(params, "list", 1), N)
    at_least("the fewest in a list", params, form.fewest(params, "list", 2), max(T + 1, spec.signatures(N, T)))
    for absent in range(N - fewest + 1):
        participants = everyone[absent:]
        for q in (1, N - 1):
            at = Agreement(participants=participants, members=participants, round=q)
            asked = spec.noise_clients(participants, q, T, D)
            if missing := asked - set(form.noise_clients(params, at)):
                raise Objection(f"N={N}, T={T}, D={D}, round {q}: clients {sorted(missing)} add no noise")
        for phase in ("upload", "agree", "open") if D else ():
            at = Agreement(phase, participants, participants)
            at_least(f"the quorum of {phase}", params, form.quorum(params, at), t)
            at_least(f"the fewest in {phase}", params, form.fewest(params, phase), t)
    _rules_of_options(form, params)
    if spec.confirmed(N, T, D) and "agree" not in {row.phase for row in form.table(params)}:
        raise Objection(f"N={N}, T={T}, D={D}: a sum is opened without votes")
    for most in (1, 15, 16, 100, 170, 5000):
        bounded = params.with_bounds(max_entities=most, max_union=most)
        for epoch in (1, 2, 3):
            found, asked_for = form.list_size(bounded, epoch), spec.list_size(most, epoch)
            at_most(f"the list of epoch {epoch}", params, found, asked_for)
    at_most("the last epoch of names", params, form.last_epoch, 1 + 16)


def _rules_of_options(form: Keyed, params: Params) -> None:
    """Who subtracts a minimum, and without whom there is no sum."""
    N, fewest = params.clients, spec.fewest_participants(params.clients, params.T, params.dropouts)
    for m, absent, q in product((2, N), {0, N - fewest}, (1, N - 1, N)):
        participants, least = tuple(range(absent, N)), replace(params, min_owners=m)
        turn = spec.designated(participants, q)
        at = Agreement("upload", participants, participants, round=q)
        if form.designated(least, at) != turn or turn not in form.needed(least, at):
            raise Objection(f"{_of(params)}, round {q}: client {turn} does not subtract the minimum, or is not needed")


def _paper_rules(form: Form, params: Params) -> None:
    assert isinstance(form, Paillier)
    N, T, D = params.clients, params.T, params.dropouts
    asked = spec.quorum(N, T, D)
    everyone = tuple(range(N))
    at_least("need", params, params.need, spec.need(N, T, D))
    at_most("need", params, params.need, N - D)
    at_least("the quorum", params, form.quorum(params, Agreement("answer", everyone, everyone)), asked)
    for phase in ("secret", "table", "query", "share", "answer"):
        at_least(f"the fewest in {phase}", params, form.fewest(params, phase), max(asked, spec.contributors(T)))
    if len({*params.alpha, *params.beta}) != N + spec.blocks(N, T, D) + T:
        raise Objection(f"N={N}, T={T}, D={D}: two points of the code are the same")


# --------------------------------------------------------------------------------------------------------------- bounds


def bounded(subject: Subject) -> Iterator[Params]:
    """Parameters for numbers: clients, colluders, drop-outs, precision, sigma, sizes."""
    shapes = ((1, 1, 1), (128, 14541, 1000), (33, 700, 10**6)) if subject.thorough else ((128, 14541, 1000),)
    bits = ((24, 40), (8, 20), (30, 60), (40, 80)) if subject.thorough else ((24, 40), (8, 20), (30, 60))
    for N in (*FEW, *MANY):
        for T, D in {(1, 0), (N - 1, 0), (max(1, N // 3), 0), (1, min(2, max(0, N - 2))), (N // 2, 1)}:
            for precision, sigma in bits:
                for (d, most, rounds), max_abs in zip(shapes, (64.0, 3.0, 1e-3), strict=False):
                    given = Params(N, d, T, D, max_abs, precision, sigma, rounds, max_entities=most, max_union=most)
                    try:
                        yield subject.form.checked(given)
                    except ParamsError:  # refused: too much for its field, or not a rule of this form
                        continue
        if isinstance(subject.form, Keyed):
            yield from _with_options(subject.form, N)


def _with_options(form: Keyed, N: int) -> Iterator[Params]:
    """Little noise, much noise, weights, and a minimum."""
    some: tuple[dict[str, Any], ...] = (
        {"noise": 1e-6}, {"noise": 0.5, "min_owners": N}, {"noise": 3e4}, {"max_weight": 1000, "min_owners": 2},
    )  # fmt: skip
    for (T, D), more in product({(1, 0), (N - 1, 0), (1, min(2, N - 2)), (max(1, N // 2 - 1), 1)}, some):
        try:
            yield form.checked(Params(N, 128, T, D, precision=30, max_entities=14541, max_union=14541, **more))
        except ParamsError:
            continue


@claim(
    "record",
    KEYED,
    PAILLIER,
    mutants=(
        mutants.SIGMA_OF_THREE, mutants.ONE_CHECK, mutants.FIELD_HALVED, mutants.UNSCALED, mutants.FEW_UNITS,
        mutants.SMALL_MULTIPLE, options.TOO_LITTLE, options.NOT_COUNTED,
    ),
)  # fmt: skip
def bounds(subject: Subject) -> int:
    """Both forms: fields, noise, fill and slots are as large as the specification asks for.

    The statistical security of every element, and what must fit into a field or a plaintext.
    """
    check, cases = _keyed_bounds if isinstance(subject.form, Keyed) else _paper_bounds, 0
    for params in bounded(subject):
        check(subject.form, params)
        cases += 1
    if isinstance(subject.form, Paillier) and not _small_keys_are_refused():
        raise Objection("keys of less than 2048 bits are allowed without saying that they are insecure")
    return cases


def _keyed_bounds(form: Form, params: Params) -> None:
    assert isinstance(form, Keyed)
    assert params.max_entities is not None
    N, T, D = params.clients, params.T, params.dropouts
    n, most = form.numbers(params), min(N, spec.neighbours(T, D))
    primes, C, unit = n.ring.primes, spec.common_multiple(N), Fraction(params.resolution) * 2**n.f
    weighted = params.max_weight is not None
    sigma = spec.sigma_prime(params.sigma, T, params.max_entities, params.dim + weighted, params.rounds)
    for present in range(spec.fewest_participants(N, T, D), N + 1):
        each = math.ldexp(spec.honest_deviation(params.noise, N, T, D, present), n.f)
        at_least("the noise on every slot", params, n.spread_of(honest(params, present)), each * (1 - 1e-12))
    width = spec.upload_columns(params.dim, n.checks, params.min_owners, weighted=weighted)
    at_least("the width of an upload", params, form.width(params), width)
    everywhere = spec.largest_noise_everywhere(params.noise, N, T, D, n.f)
    if len(set(primes)) != len(primes) or any(pow(3, p - 1, p) != 1 for p in primes):
        raise Objection(f"N={N}: the field is not made of different primes")
    at_least("check columns", params, n.checks, spec.check_columns(primes))
    at_most("the narrow fill in resolutions", params, float(n.s * n.w / unit), float(spec.FILL))
    for noisy in {1, min(2, most), most}:
        law = n.noise_of(noisy)
        if law.scale != C or n.C != C:
            raise Objection(f"N={N}: narrow noise is below {law.scale}, and not below {C}")
        at_least("bits per element", params, spec.leftover_bits(min(n.s, law.s), n.w, law.digits), sigma)
        wide = spec.wide_number(params.resolution, n.f, noisy)
        at_least("the wide number", params, law.wide, wide)
        at_most("the error of a mean in resolutions", params, float(spec.off(law.s, n.w, law.wide, noisy) / unit), 1.0)
        inputs = C * (spec.largest_input(params.max_abs, n.f, n.s, n.w) + everywhere)
        if 2 * (inputs + spec.largest_noise(C, law.s, law.wide, noisy)) >= n.ring.modulus:
            raise Objection(f"N={N}, T={T}, D={D}: means with noise do not fit into the field, f={n.f}")


def _paper_bounds(form: Form, params: Params) -> None:
    assert isinstance(form, Paillier)
    assert params.max_entities is not None
    N, T, D = params.clients, params.T, params.dropouts
    n = form.numbers(params)
    sigma = spec.paper_sigma_prime(params.sigma, N, T, D, params.dim, params.max_entities, params.rounds)
    at_least("sigma'", params, n.packing.sigma, sigma)
    at_least("the bits of a slot", params, n.packing.width, spec.slot_bits(sigma))
    at_most("the bits of a plaintext", params, n.packing.slots * n.packing.width, params.key_bits - 1)
    at_least("the queries of a client", params, n.count, spec.queries(params.max_entities))
    at_least("the bits of a key", params, params.key_bits, spec.SECURE_KEY_BITS)
    if not spec.mean_is_unique(N, params.max_abs, params.precision):
        raise Objection(f"N={N}, precision {params.precision}: two means share a residue")


def _small_keys_are_refused() -> bool:
    try:
        Params(3, 1, key_bits=spec.SECURE_KEY_BITS - 64)
    except ParamsError:
        return True
    return False


# ------------------------------------------------------------------------------------------------------- in federations


def _part(parties: Parties, n: int) -> KeyedClient:
    part = parties.clients[n].part
    assert isinstance(part, KeyedClient)
    return part


def upload_seeds(parties: Parties, watch: Watch, q: int) -> dict[int, bytes]:
    """The noise seeds that came with the uploads of round q, by their length: whatever a form says about who sends."""
    form, params = parties.session.form, parties.session.params
    assert isinstance(form, Keyed)
    n = form.numbers(params)
    body = parties.server.M * (params.dim + n.checks + 2) * n.ring.element_bytes
    uploads = [each for each in watch.sealed(Kind.UPLOAD) if each.header.round == q]
    return {each.header.sender: each.payload[-SEED_BYTES:] for each in uploads if len(each.payload) > body}


@claim("record", KEYED, mutants=(mutants.ONE_SEED, views.SAME_NOISE, mutants.NOISE_OF_T, views.FEWER_NOISE))
def noise_seeds(subject: Subject) -> int:
    """Keyed: at least T+1 clients add noise to a round, each with a seed of its own that no other round has."""
    cases = 0
    for N, T, D in ((5, 2, 0), (6, 2, 1)):
        tables, watch = [{f"{e}": np.ones(2) for e in range(n, n + 3)} for n in range(N)], Watch()
        parties = subject.parties(tables, collusion=T, dropouts=D, watch=watch)
        parties.setup()
        seen: dict[bytes, tuple[int, int]] = {}
        for q in range(1, N + 2):
            if q == 3:
                parties.union(range(N))
            parties.round(tables)
            seeds = upload_seeds(parties, watch, parties.server.at.round)
            if missing := spec.noise_clients(range(N), parties.server.at.round, T, D) - set(seeds):
                raise Objection(f"N={N}, T={T}, D={D}, round {q}: clients {sorted(missing)} add no noise")
            for v, drawn in seeds.items():
                other, before = seen.setdefault(drawn, (v, q))
                if (other, before) != (v, q):
                    raise Objection(f"client {v} has in round {q} the noise of client {other} in round {before}")
        cases += len(seen)
    return cases


def law_of_sum(x: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """The chance that the sum of so many uniform numbers on [0, 1) is at most x (Irwin and Hall)."""
    total = sum((-1) ** k * math.comb(count, k) * np.maximum(x - k, 0) ** count for k in range(count + 1))
    return np.asarray(np.clip(total / math.factorial(count), 0, 1), np.float64)


@claim("statistics", KEYED, mutants=(keyed_mutants.NO_WIDE, mutants.FEW_UNITS, mutants.UNSCALED))
def noise_of_means(subject: Subject) -> int:
    """Keyed: the noise in the means that clients read spans as much as the specification asks for.

    With everybody's inputs, what a mean is off is noise. Its wide numbers have a known law; all else is far smaller.
    """
    form, rng, cases = form_of(subject), np.random.default_rng(9), 0
    for N, T in ((5, 1), (4, 2)):
        tables = [{f"{e}": rng.normal(size=64) for e in range(80)} for _ in range(N)]
        parties = subject.parties(tables, collusion=T)
        parties.setup()
        parties.round(tables)
        params, parts = parties.session.params, [_part(parties, v) for v in range(N)]
        n, noisy = form.numbers(params), len(spec.noise_clients(range(N), 1, T, 0))
        given = [part.spelling.table(as_table(table)) for part, table in zip(parts, tables, strict=True)]
        encoded = [part.tables.encoded(table, part.names) for part, table in zip(parts, given, strict=True)]
        result = parts[0].result
        assert result is not None
        assert result.matrix is not None
        off = np.ldexp(result.matrix, n.f) - np.sum(encoded, axis=0) / N
        span = spec.wide_number(params.resolution, n.f, noisy)
        kolmogorov(f"N={N}, T={T}: noise in resolutions", law_of_sum(off.reshape(-1) / span + noisy / 2, noisy))
        cases += off.size
    return cases


def leading(shares: dict[int, int]) -> int:
    """The coefficient of x^(n-1) of the polynomial through n shares. Client v has the value at v + 1."""
    total = 0
    for v, share in shares.items():
        below = 1
        for u in shares:
            if u != v:
                below = below * (v - u) % ORDER
        total += share * pow(below, -1, ORDER)
    return total % ORDER


@claim("record", KEYED, mutants=(mutants.THRESHOLD_OF_PARTICIPANTS, mutants.ONE_POLYNOMIAL))
def groups(subject: Subject) -> int:
    """Keyed: if a client is absent, holders and shares of mask keys are still as many as the roster asks for.

    Each mask key and each self seed has a polynomial of its own: with one for all, an opening would show both.
    """
    form, N, T, D = form_of(subject), 8, 2, 1
    tables, watch = [{f"{e}": np.ones(2) for e in range(n, n + 3)} for n in range(N)], Watch()
    parties = subject.parties(tables, collusion=T, dropouts=D, watch=watch)
    parties.setup()
    members = tuple(range(N - 1))  # the last one is absent, and uses up D
    parties.union(members)
    parties.round([*tables[:-1], None])
    t = spec.threshold(N, D)
    answering = {each.header.sender for each in watch.sealed(Kind.EVALUATION)}
    at_least("the number of holders", parties.session.params, len(answering), spec.holders(T))
    seen = set()
    for v in members:
        for index in range(2 * form.batch):
            last = leading({u: _share(parties, u, v, index) for u in members})
            if not last:
                raise Objection(f"N={N}, D={D}: fewer than {t} shares open a mask key of client {v}")
            if last in seen:
                raise Objection(f"N={N}, D={D}: two mask keys are shared with one polynomial")
            seen.add(last)
    return len(members) * 2 * form.batch


def _share(parties: Parties, holder: int, of: int, index: int) -> int:
    """A share that a client holds, of a mask key or a self seed of another."""
    part = _part(parties, holder)
    assert part.masking.batch is not None
    return int.from_bytes(part.masking.batch.shares[of][32 * index : 32 * index + 32], "little")
