"""The public parameters of a federation. Rules that all forms share are checked here; each form adds its own.

Letters are the paper's (N, T, K). The specification is docs/protocol.md, section 1.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Final, Literal, TypeAlias

from secea.errors import ParamsError
from secea.notebook import html_table

MAX_CLIENTS = 1 << 10
MAX_PRECISION = 52
MAX_WEIGHT = 1 << 24
WEIGHT_BITS = 6
"""A weighted mean needs this many bits beyond its weights: N * max_weight is below 2^(precision - WEIGHT_BITS)."""
SECURE_KEY_BITS = 2048


def integer(name: str, value: object) -> int:
    """A whole number, which is no truth value; or a `ParamsError`."""
    if isinstance(value, bool):
        raise ParamsError(f"{name} must be an integer, got {value!r}")
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise ParamsError(f"{name} must be an integer, got {value!r}") from None


def _float(value: float) -> float:
    if isinstance(value, str | bytes | bool):
        raise TypeError
    return float(value)


def rule_of(value: object) -> tuple[Step, ...] | Callable[[str], str]:
    """What `Params.normalize` may be: steps, which are put in their order, or a function."""
    if callable(value):
        return value
    if isinstance(value, str):
        value = [step.strip() for step in value.split(",")] if value.strip() else ()
    if not isinstance(value, Iterable):
        raise ParamsError(f"normalize must be steps out of {', '.join(STEPS)}, or a function, got {value!r}")
    steps = tuple(value)
    if unknown := [step for step in steps if step not in STEPS]:
        raise ParamsError(f"normalize has no step {unknown[0]!r}; the steps are {', '.join(STEPS)}")
    return tuple(step for step in STEPS if step in steps)


def span(low: int, high: int) -> str:
    """A range as text: "1", or "from 1 to 3"."""
    return str(low) if low == high else f"from {low} to {high}"


def _within(name: str, value: int, low: int, high: int, why: str) -> None:
    if not low <= value <= high:
        raise ParamsError(f"{name} must be {span(low, high)}{why and f' {why}'}, got {value}")


Step: TypeAlias = Literal["nfc", "strip", "casefold"]
STEPS: Final[tuple[Step, ...]] = ("nfc", "strip", "casefold")
"""What `normalize` can do, in this order."""
Normalize: TypeAlias = Sequence[Step] | str | Callable[[str], str]
"""Steps, also as one text with commas; or a function."""


@dataclass(frozen=True)
class Params:
    """What all parties of a federation agree on before they start.

    >>> p = Params(clients=10, collusion=2, dim=128)
    >>> p.K, p.need
    (3, 9)

    Attributes:
        clients: N, at least 2; the form "paillier" needs 3.
        dim: d, the length of an embedding.
        collusion: T: the number of clients that may conspire; in the form "keyed", with the server too. None: the form
            chooses. "keyed" chooses N - 1, minus two for each drop-out. "paillier" needs less than N/2, and chooses 1.
        dropouts: D: the number of clients that may vanish in the middle of a round. Keep it below half of them.
        max_abs: Every coordinate lies in [-max_abs, max_abs].
        precision: Bits. A mean is exact to within max_abs * 2**-precision, plus half the grid of inputs that were
            rounded more.
        sigma: Statistical security of the whole session, in bits.
        rounds: The rounds over which `sigma` is promised.
        key_bits: Paillier's modulus (form="paillier" only).
        max_entities: Public bound on the entities of one client; in-process calls derive it from the tables.
        max_union: Public bound on the entities of all clients together; derived like `max_entities`.
        insecure_small_keys: Allow Paillier keys below 2048 bits: for tests only.
        min_owners: No mean for an entity that fewer clients contribute to: its owners keep their own rows (form "keyed"
            only).
        max_weight: Means are weighted, and a row's weight is an integer from 1 to this, or 0 (form "keyed" only). None:
            all rows weigh the same.
        partial: Rows of weight 0 are left out openly: everybody sees which slots, without names, nobody contributed to.
        noise: The standard deviation of noise that honest participants together add to the sum of an entity's rows.
            They add at least so much, whoever is absent or drops out: a basis for differential privacy (form "keyed"
            only).
        normalize: How names are made alike before they are compared: steps out of "nfc", "strip" and "casefold", in
            this order. All clients have the same. A function of a name's text is possible where all parties are in one
            process: sessions are told apart by its name alone.
    """

    clients: int
    dim: int
    collusion: int | None = None
    dropouts: int = 0
    max_abs: float = 64.0
    precision: int = 24
    sigma: int = 40
    rounds: int = 1000
    key_bits: int = 3072
    max_entities: int | None = None
    max_union: int | None = None
    insecure_small_keys: bool = False
    min_owners: int = 1
    max_weight: int | None = None
    partial: bool = False
    noise: float = 0.0
    normalize: Normalize = ()

    def __post_init__(self) -> None:
        for name in ("clients", "dim", "dropouts", "precision", "sigma", "rounds", "key_bits", "min_owners"):
            object.__setattr__(self, name, integer(name, getattr(self, name)))
        for name in ("collusion", "max_entities", "max_union", "max_weight"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, integer(name, getattr(self, name)))
        for name in ("max_abs", "noise"):
            try:
                object.__setattr__(self, name, _float(getattr(self, name)))
            except (TypeError, ValueError, OverflowError):
                raise ParamsError(f"{name} must be a number below 2**64, got {getattr(self, name)!r}") from None
        object.__setattr__(self, "insecure_small_keys", bool(self.insecure_small_keys))
        if not isinstance(self.partial, bool):
            raise ParamsError(f"partial must be True or False, got {self.partial!r}")
        object.__setattr__(self, "normalize", rule_of(self.normalize))

        n = self.clients
        _within("clients", n, 2, MAX_CLIENTS, "(a mean over one client is its own table)")
        if self.collusion is not None:
            _within("collusion", self.collusion, 1, n - 1, f"for {n} clients")
        _within("dropouts", self.dropouts, 0, n - 1, f"for {n} clients")
        _within("dim", self.dim, 1, 1 << 24, "")
        _within("precision", self.precision, 1, MAX_PRECISION, "bits")
        _within("sigma", self.sigma, 1, 128, "bits (40 is customary)")
        _within("rounds", self.rounds, 1, (1 << 32) - 1, "")
        if not (math.isfinite(self.max_abs) and 2.0**-64 <= self.max_abs <= 2.0**64):
            raise ParamsError(f"max_abs must be a positive number between 2**-64 and 2**64, got {self.max_abs}")
        self._check_options()
        if self.key_bits % 64 or not 256 <= self.key_bits <= 16384:
            raise ParamsError(f"key_bits must be a multiple of 64 from 256 to 16384, got {self.key_bits}")
        if self.key_bits < SECURE_KEY_BITS and not self.insecure_small_keys:
            raise ParamsError(
                f"key_bits must be at least {SECURE_KEY_BITS}, got {self.key_bits};"
                " tests may use smaller keys with insecure_small_keys=True"
            )
        for name in ("max_entities", "max_union"):
            bound = getattr(self, name)
            if bound is not None:
                _within(name, bound, 1, (1 << 31) - 1, "")
        if self.bounded and not self.max_entities <= self.max_union <= n * self.max_entities:  # type: ignore[operator]
            raise ParamsError(
                f"max_union must be from max_entities to clients * max_entities, here from {self.max_entities} to"
                f" {n * self.max_entities}, got {self.max_union}"  # type: ignore[operator]
            )

    def _check_options(self) -> None:
        """Which of minimum owners, weights, partial rounds and noise go together."""
        n, weight = self.clients, self.max_weight
        _within("min_owners", self.min_owners, 1, n, f"for {n} clients")
        if weight is not None:
            most = min(MAX_WEIGHT, (1 << max(0, self.precision - WEIGHT_BITS)) // n - 1)
            if most < 1:
                least = WEIGHT_BITS + (2 * n - 1).bit_length()
                raise ParamsError(f"weights of {n} clients need precision={least} or more, got {self.precision}")
            _within("max_weight", weight, 1, most, f"for {n} clients and precision={self.precision}")
        if not 0 <= self.noise <= self.max_abs * 2**10:
            raise ParamsError(f"noise must be from 0 to 1024 * max_abs, got {self.noise}")
        if self.partial and weight is not None:
            raise ParamsError("partial and max_weight do not go together: with weights, give rows the weight 0")
        if self.noise and (self.partial or weight is not None):
            raise ParamsError(
                "noise does not go together with partial or max_weight: it covers the numbers of rows, and neither"
                " their weights nor which of them are left out"
            )

    def _chosen(self) -> dict[str, object]:
        """The fields that are not as they are by default."""
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}

    def __repr__(self) -> str:
        return f"Params({', '.join(f'{name}={value!r}' for name, value in self._chosen().items())})"

    def _repr_html_(self) -> str:
        return html_table("Params", ["", ""], [(name, str(value)) for name, value in self._chosen().items()])

    @property
    def options(self) -> tuple[str, ...]:
        """Which of the form's options are used: `min_owners`, `max_weight`, `partial`, `noise`."""
        return tuple(f.name for f in fields(self) if f.name in OPTIONS and getattr(self, f.name) != f.default)

    @property
    def columns(self) -> int:
        """The numbers of a row as it travels: those of the embedding, and its weight where rows have one."""
        return self.dim + (self.max_weight is not None)

    @property
    def bounded(self) -> bool:
        """Whether both public bounds are set."""
        return self.max_entities is not None and self.max_union is not None

    def with_bounds(self, *, max_entities: int, max_union: int) -> Params:
        """A copy of these parameters, with open bounds filled in."""
        if self.max_entities is not None:
            most, union = self.max_entities, max(1, max_union, self.max_entities)
        elif self.max_union is not None:
            most = max(1, max_entities, -(-self.max_union // self.clients))
        else:
            most, union = max(1, max_entities), max(1, max_union)
        return replace(self, max_entities=most, max_union=union if self.max_union is None else self.max_union)

    @property
    def N(self) -> int:
        """The number of clients."""
        return self.clients

    @property
    def T(self) -> int:
        """The number of clients that may conspire."""
        if self.collusion is None:
            raise ParamsError("collusion is not chosen yet: give it, or take the params of a Federation or Session")
        return self.collusion

    @property
    def K(self) -> int:
        """The number of blocks packed in one polynomial (eq. 4, with room for drop-outs)."""
        return (self.N - self.dropouts + 1) // 2 - self.T

    @property
    def need(self) -> int:
        """The number of answers needed to decode: the degree of an answer, plus one."""
        return 2 * (self.K + self.T) - 1

    @property
    def quorum(self) -> int:
        """The number of answers needed for a result: enough to decode, and more than half of all clients.

        Two groups of this size have a client in common, and each client answers once per round. So nobody can be given
        means over a different set of contributors. This does not hold if `dropouts` is half of the clients or more.
        """
        return max(self.need, min(self.N // 2 + 1, self.N - self.dropouts))

    @property
    def fewest_contributors(self) -> int:
        """Clients do not answer for fewer contributors than this. T colluders must face two others."""
        return self.T + 2

    @property
    def beta(self) -> tuple[int, ...]:
        """The K + T points that carry data and noise."""
        return tuple(range(1, self.K + self.T + 1))

    @property
    def alpha(self) -> tuple[int, ...]:
        """The N points of the clients."""
        return tuple(range(self.K + self.T + 1, self.K + self.T + self.N + 1))

    @property
    def resolution(self) -> float:
        """A mean of full-precision inputs differs from the true mean by less than this (docs/threat-model.md)."""
        return math.ldexp(self.max_abs, -self.precision)

    @property
    def fraction_bits(self) -> int:
        """f of the exact fixed point: 2**-f is at most the resolution."""
        _, exponent = math.frexp(self.max_abs)  # max_abs lies in [2**(exponent-1), 2**exponent)
        return self.precision - (exponent - 1)

    @cached_property
    def C(self) -> int:
        """lcm(1..N): a multiple of every count that can occur."""
        return math.lcm(*range(1, self.N + 1))

    def canonical(self) -> str:
        """All fields in one line of text, for the session's hash. Options that are not used are left out."""
        said = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in OPTIONS or f.name in self.options}
        rule = said.pop("normalize")
        if callable(rule):
            called = getattr(rule, "__qualname__", type(rule).__qualname__)
            said["normalize"] = f"function {getattr(rule, '__module__', None)}.{called}"
        elif rule:
            said["normalize"] = rule
        return ";".join(f"{name}={value!r}" for name, value in said.items())


OPTIONS = ("min_owners", "max_weight", "partial", "noise")
"""What the form "keyed" can do beyond plain means of all rows."""
