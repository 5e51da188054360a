"""Differential privacy for a loop of your own, as in `secea train`: clipping, noise, and what it is worth.

Two ways, of which the first needs no trust in anybody:

* **Noise of each client** (`Mechanism`, `Private`). A client clips how far each of its rows moved, adds noise, and only
  then contributes. All that leaves the client is covered, whatever the others do.
* **Noise of all together** (`with_noise`, `epsilon_of`, `assumptions`). Clients only clip. Each adds a part of the
  noise to every sum, in the protocol (`Params(noise=...)`). There is less of it, and enough others must be honest.

The unit is one row of one client: whatever its data says about one entity, in all rounds, may be replaced by anything
else, and what others see changes by no more than (epsilon, delta). A clipped row lies within `clip` of a row that is
known, so a replaced one is at most 2 * clip away. Rows have independent noise, so a whole table of m rows costs what
one row with 1/sqrt(m) of the noise would (`rows=m`). Weights, and which entities a client has, are not covered.

Epsilon comes from the Renyi accountant of dp-accounting, which is imported when a number is asked for.

>>> import numpy as np
>>> import secea
>>> names = [["ada", "bob"], ["bob", "eve"], ["ada", "bob", "eve"]]
>>> federation = secea.Federation(secea.Params(clients=3, dim=4, rounds=3))
>>> federation.setup(names)
>>> mechanism = Mechanism.calibrated(epsilon=8, delta=1e-5, clip=0.5, rounds=3)
>>> private = [Private(mechanism, delta=1e-5, rounds=3) for _ in names]
>>> rows = [np.zeros((len(own), 4)) for own in names]  # where all begin is known to all
>>> for _ in range(3):
...     trained = [each + 0.1 for each in rows]  # here your training
...     leaves = [p.release(a, b) for p, a, b in zip(private, rows, trained, strict=True)]
...     means = federation.round([secea.Table(own, each) for own, each in zip(names, leaves, strict=True)])
...     rows = [mean.matrix for mean in means]
>>> private[2]
Private(3 of 3 releases, clip 0.5, deviation 1.1)
>>> print(f"{private[2].epsilon():.1f} for a row, {private[2].epsilon(rows=3):.1f} for the client")
8.0 for a row, 15.7 for the client
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.discrete import gaussian as discrete_gaussian
from secea.arithmetic.fixedpoint import Floats
from secea.errors import MissingExtra, ParamsError, TableError
from secea.extras import installing
from secea.forms import DEFAULT, form_of
from secea.params import Params
from secea.wire.randomness import SEED_BYTES, Entropy, KeyStream

Rows = NDArray[np.float64]
FINE: Final = 32
"""Discrete noise has at least 2^FINE steps in a standard deviation."""
BELOW: Final = 1 - 2.0**-40
"""Rows are scaled to this part of the clip, so that no rounding leads beyond it."""
FLOAT32_BITS: Final = 23


def clipped(before: Floats, after: Floats, clip: float) -> Rows:
    """The rows `after`, none of them farther than `clip` from its row in `before`, in the Euclidean norm."""
    return np.asarray(before, np.float64) + _change(before, after, clip)


def _change(before: Floats, after: Floats, clip: float) -> Rows:
    _check_clip(clip)
    before, after = np.asarray(before, np.float64), np.asarray(after, np.float64)
    if before.ndim != 2 or before.shape != after.shape:
        raise TableError(f"before and after must be matrices of one shape, got {before.shape} and {after.shape}")
    change: Rows = after - before
    wrong = ~np.isfinite(change).all(axis=1)
    if wrong.any():
        raise TableError(f"row {int(wrong.argmax())} is no finite number any more: it cannot be clipped")
    with np.errstate(over="ignore"):  # a norm may overflow: nothing is left of such a change
        norm = np.linalg.norm(change, axis=1, keepdims=True)
    change *= np.where(norm > BELOW * clip, BELOW * clip / np.maximum(norm, np.finfo(np.float64).tiny), 1.0)
    return change


# ------------------------------------------------------------------------------------------- the noise of each client


@dataclass(frozen=True)
class Mechanism:
    """Changes clipped to `clip` in the Euclidean norm, and noise of `multiplier` times what can differ."""

    clip: float
    multiplier: float
    """Standard deviation over sensitivity; two clipped rows are at most 2 * clip apart."""
    discrete: bool = True
    """Noise on a fine grid, as exact as the accountant takes it to be. False: the Gaussian in floating point.

    The low bits of floating-point noise can give away what it hides (Mironov 2012).
    """

    def __post_init__(self) -> None:
        if not (_positive(self.clip) and _positive(self.multiplier)):
            raise ParamsError(f"clip and multiplier must be positive numbers, got {self.clip} and {self.multiplier}")

    @classmethod
    def calibrated(
        cls, epsilon: float, delta: float, clip: float, rounds: int, *, rows: int = 1, discrete: bool = True
    ) -> Mechanism:
        """The least noise for (epsilon, delta) over this number of rounds: of one row, or of a client's `rows` rows."""
        _check_clip(clip)
        return cls(clip, _root(rows) * _calibrated(epsilon, delta, rounds), discrete)

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise on each coordinate."""
        return 2.0 * self.clip * self.multiplier

    @property
    def step(self) -> float:
        """The grid of discrete noise: a power of two."""
        return math.ldexp(1.0, math.frexp(self.deviation)[1] - 1 - FINE)

    def epsilon(self, delta: float, rounds: int, rows: int = 1) -> float:
        """What the rounds cost together, for a change of one row, or of `rows` rows of one client at once."""
        return _epsilon(self.multiplier / _root(rows), delta, rounds)

    def noised(self, before: Rows, after: Floats, stream: KeyStream) -> Rows:
        """A client's rows as they leave it. `before` must be known to those who may see them, `after` may be anything.

        No two calls may have the same stream; `Private` takes care of that.
        """
        change = _change(before, after, self.clip)
        if not self.discrete:
            return before + change + self.deviation * gaussian(stream, change.size).reshape(change.shape)
        # Towards zero: that makes no change longer. What is added to `before` is then noise on integers.
        steps = np.trunc(change / self.step)
        noise = discrete_gaussian(stream.bytes, change.size, self.deviation / self.step).reshape(change.shape)
        return before + self.step * (steps + noise)


class Private:
    """One client's rows under a mechanism, round by round: fresh noise each time, and no more rounds than agreed."""

    def __init__(
        self, mechanism: Mechanism, delta: float, rounds: int, *, releases: int = 0, entropy: Entropy = os.urandom
    ) -> None:
        _check_target(1.0, delta, rounds)
        self.mechanism, self.delta, self.rounds = mechanism, delta, rounds
        self.releases = releases
        """How often rows have left the client. Who restarts passes on what it was."""
        self._entropy = entropy

    def __repr__(self) -> str:
        about = f"clip {self.mechanism.clip:g}, deviation {self.mechanism.deviation:.3g}"
        return f"Private({self.releases} of {self.rounds} releases, {about})"

    def release(self, before: Floats, after: Floats) -> Rows:
        """The rows to contribute. Contribute them as they are: the same change released twice is paid for twice.

        `before` is what the others know: the means of the last round, and where there was none, any row that does not
        come from this client's data, such as the one before. A lost round counts.
        """
        if self.releases >= self.rounds:
            raise ParamsError(
                f"all {self.rounds} releases are spent, that is epsilon {self.epsilon():.3g} at delta {self.delta:g};"
                " calibrate for more rounds before the first one"
            )
        rows = self.mechanism.noised(np.asarray(before, np.float64), after, KeyStream(self._entropy(SEED_BYTES)))
        self.releases += 1
        return rows

    def epsilon(self, rows: int = 1) -> float:
        """What was spent so far, for one row, or for `rows` rows of this client."""
        return self.mechanism.epsilon(self.delta, self.releases, rows) if self.releases else 0.0


def gaussian(stream: KeyStream, count: int) -> Rows:
    """Independent standard normal numbers, by Box and Muller."""
    pairs = -(-count // 2)
    words = np.frombuffer(stream.bytes(16 * pairs), "<u8").reshape(2, pairs)
    uniform = ((words >> 11) + 1) * 2.0**-53  # in (0, 1]
    radius = np.sqrt(-2.0 * np.log(uniform[0]))
    angle = 2.0 * np.pi * uniform[1]
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]


# -------------------------------------------------------------------------------------------- the noise of all together


def with_noise(params: Params, epsilon: float, delta: float, clip: float | None = None, *, rows: int = 1) -> Params:
    """These parameters with the least `noise` for (epsilon, delta) over all their rounds (form "keyed").

    Every client clips its rows (`clipped`) to `clip`. None: there is only the range, `max_abs` for each coordinate.
    `rows=m` is for a client's whole table of m rows. `assumptions` says what must be trusted.
    """
    least = _calibrated(epsilon, delta, params.rounds)
    reach = _root(rows) * sensitivity(params, clip)
    first = replace(params, noise=reach * least)
    gap = _gap(first) * math.sqrt(params.dim * rows)
    if gap >= 1 / least:
        raise ParamsError(f"noise of {first.noise:.3g} is too small for precision={params.precision}: raise it")
    return replace(params, noise=reach / (1 / least - gap))


def epsilon_of(
    params: Params, delta: float, clip: float | None = None, *, rounds: int | None = None, rows: int = 1
) -> float:
    """The epsilon of `Params.noise` for a row of one client, or for `rows` rows of it; by default over all rounds.

    A sum of discrete Gaussians is not quite a discrete Gaussian. What is missing is counted as Kairouz, Liu and
    Steinke do (arXiv 2102.06387, proposition 14). Where each client adds ten units or more, it is no float at all.
    """
    _check_noise(params)
    each = sensitivity(params, clip) / params.noise
    worth = _root(rows) * each + _gap(params) * math.sqrt(params.dim * rows)
    return _epsilon(1 / worth, delta, params.rounds if rounds is None else rounds)


def sensitivity(params: Params, clip: float | None = None) -> float:
    """How far the sum of an entity's rows can move if one client's row is replaced, in the Euclidean norm.

    Rows are rounded and filled on their way (K6), which may move each coordinate by the resolution and the grid of a
    float32. Rows that were rounded to fewer bits than that are not covered.
    """
    if clip is not None:
        _check_clip(clip)
    widest = params.max_abs * math.sqrt(params.dim)
    grid = params.resolution + math.ldexp(params.max_abs, -FLOAT32_BITS)
    return 2 * (widest if clip is None else min(clip, widest)) + math.sqrt(params.dim) * grid


def honest(params: Params) -> int:
    """N-D-T: how many honest clients are in a sum, whoever drops out, if all begin the round.

    Without drop-outs fewer may take part. Each of them then adds more (K11).
    """
    checked = form_of(DEFAULT).checked(params)
    return checked.clients - checked.dropouts - checked.T


def assumptions(params: Params, clip: float | None = None) -> tuple[str, ...]:
    """What the noise of all together rests on, in plain words."""
    _check_noise(params)
    checked = form_of(DEFAULT).checked(params)
    N, D, T, enough = checked.clients, checked.dropouts, checked.T, honest(params)
    share, total = params.noise / math.sqrt(enough), params.noise * math.sqrt(N / enough)
    reach = f"change by at most {clip:g} since the last round" if clip is not None else f"lie within {params.max_abs:g}"
    more = "" if D or enough == 1 else " The fewer take part, the more each of them adds."
    return (
        f"Of the clients in a round all but {T} are honest: they draw their noise as they should, and keep it to"
        f" themselves. {T} may conspire with the server{f', and {D} more may drop out' if D else ''}: {enough} of {N}"
        " are left. Noise of those who conspire is not counted. With fewer honest clients there is less noise than"
        " there should be."
        if enough > 1
        else "You have to trust nobody else's noise: your own is enough.",
        f"Each client adds noise of deviation {share:.3g} to every entity's sum, its own or not.{more} Where all take"
        f" part, a sum has {total:.3g}, of which {params.noise:.3g} count.",
        "The server and those who conspire see the sum of the honest owners' rows, with the honest noise, for entities"
        " that one of them owns. The epsilon is for them. Other owners see less: the mean.",
        "The mean is the noisy sum divided by the number of owners, which nobody knows. So the noise on a mean is"
        f" smaller the more owners there are: {total:.3g} for one, {total / N:.3g} for {N}.",
        f"Every client clips its own rows: they {reach}. Nobody can check that for another client. Who does not clip"
        " harms its own privacy alone.",
        f"Every attempt at a round counts as one, and clients refuse more than the {params.rounds} agreed on."
        " A new session counts anew: what it spends comes on top.",
        "Which entities a client has, and whether an entity has too few owners, is not covered by the noise.",
    )


def _gap(params: Params) -> float:
    """tau: how far the honest clients' sum is from a discrete Gaussian (Kairouz, Liu, Steinke), for each coordinate."""
    parties = honest(params)
    sigma = math.ldexp(params.noise / math.sqrt(parties), params.fraction_bits)  # in units; the form's are finer
    if sigma < 0.5:
        raise ParamsError(f"noise of {params.noise:.3g} is too small for precision={params.precision}: raise either")
    return 10 * sum(math.exp(-2 * (math.pi * sigma) ** 2 * k / (k + 1)) for k in range(1, parties))


# ------------------------------------------------------------------------------------------------------- the accountant


def _positive(value: float) -> bool:
    return math.isfinite(value) and value > 0


def _root(rows: int) -> float:
    """What the noise for one row is multiplied by for so many of them."""
    if rows < 1:
        raise ParamsError(f"rows must be at least 1, got {rows}: how many rows of a client are covered at once")
    return math.sqrt(rows)


def _check_clip(clip: float) -> None:
    if not _positive(clip):
        raise ParamsError(f"clip must be a positive number, got {clip}")


def _check_noise(params: Params) -> None:
    if not params.noise:
        raise ParamsError("there is no noise: Params(noise=...), or secea.privacy.with_noise")


def _check_target(epsilon: float, delta: float, rounds: int) -> None:
    if not (_positive(epsilon) and 0 < delta < 1 and rounds >= 1):
        raise ParamsError(
            f"privacy needs epsilon > 0, 0 < delta < 1 and at least one round, got {epsilon}, {delta} and {rounds}"
        )


def _accounting() -> tuple[Any, Any]:
    try:
        import dp_accounting
        from dp_accounting import rdp
    except ImportError:
        raise MissingExtra(f"an epsilon needs the accountant: {installing('dp-accounting')}") from None
    return dp_accounting, rdp


def _calibrated(epsilon: float, delta: float, rounds: int) -> float:
    """The least noise for one row, in units of its sensitivity."""
    _check_target(epsilon, delta, rounds)
    accounting, rdp = _accounting()
    scale = math.sqrt(rounds)
    try:
        found = accounting.calibrate_dp_mechanism(
            rdp.RdpAccountant,
            lambda multiplier: _event(accounting, multiplier, rounds),
            epsilon,
            delta,
            accounting.ExplicitBracketInterval(1e-3 * scale, 1e4 * scale),
            tol=1e-4 * scale / max(1.0, epsilon),
        )
    except ValueError:  # no noise between the two is right
        raise ParamsError(f"epsilon {epsilon:g} is out of reach: choose one nearer to 1, such as 0.1 to 100") from None
    return float(found)


def _epsilon(multiplier: float, delta: float, rounds: int) -> float:
    _check_target(1.0, delta, rounds)
    accounting, rdp = _accounting()
    return float(rdp.RdpAccountant().compose(_event(accounting, multiplier, rounds)).get_epsilon(delta))


def _event(accounting: Any, multiplier: float, rounds: int) -> Any:
    """The Gaussian's bound. The discrete Gaussian's is the same (Canonne, Kamath, Steinke, arXiv 2004.00010)."""
    return accounting.SelfComposedDpEvent(accounting.GaussianDpEvent(multiplier), rounds)
