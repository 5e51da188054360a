"""How often a client's entities find no place in the buckets: counted at the bound, beside a bound that is proved.

    python bench/cuckoo.py [ITEMS]

ITEMS (default 20,000,000) are placed for each size, in trials of `max_entities` each. Trials run side by side in one
table of many times the buckets, through the code that clients run.

The proved bound is for random hash functions. Placement is impossible only where some k+1 entities have k buckets in
all (Hall); in a smallest such set every bucket is hit at least twice (else the entity that hits it alone could be
left out). The expected number of such sets is summed over k: exactly for small k; for the rest with s = k+1 entities
in a buckets of each third, of which there are s! [z^s] (e^z - 1 - z)^a <= s! (e^z - 1 - z)^a / z^s, any z. With three
hash functions large tables work up to load 0.917; here it is 0.67.
"""

from __future__ import annotations

import math
import os
import sys
import time
from functools import cache

import numpy as np
from numpy.typing import NDArray

from secea.forms.paillier.buckets import FAILURE, ROUNDS, Buckets, bucket_count, evict, place
from secea.wire.randomness import SEED_BYTES, KeyStream

SIZES = (4, 10, 14, 100, 1_000, 10_000, 100_000)
BATCH = 200_000
EXACT = 70  # k up to which the proved bound is summed exactly


class Counting(KeyStream):
    """A key stream that counts how often it was asked: once in each round of evictions."""

    asked = 0

    def bytes(self, count: int) -> bytes:
        """Count, and pass on."""
        self.asked += 1
        return super().bytes(count)


def random_tags(count: int) -> NDArray[np.uint64]:
    """Tags as keyed hashes give them; sorted, or not, they are hashed alike."""
    return np.frombuffer(os.urandom(8 * count), np.uint64) >> np.uint64(3)


def failures(entities: int, count: int, trials: int) -> tuple[int, int]:
    """Count the trials of that many random tags that fail, and the most rounds that a batch without failure took."""
    buckets = Buckets(random_tags(entities * trials), count, os.urandom(SEED_BYTES))
    trial = np.repeat(np.arange(trials), entities)
    homes = buckets.homes(np.arange(trial.size)) + trial[:, None] * count
    stream = Counting(os.urandom(SEED_BYTES))
    _, homeless = evict(homes, count * trials, stream)
    return np.unique(trial[homeless]).size, stream.asked if not homeless.size else 0


@cache
def throws(balls: int, bins: int) -> int:
    """Count the ways to throw the balls into the bins with at least two in each."""
    if balls < 2 * bins or bins == 0:
        return int(balls == bins == 0)
    return bins * throws(balls - 1, bins) + bins * (balls - 1) * throws(balls - 2, bins - 1)


def proved(entities: int, count: int) -> float:
    """Bound the probability that some k+1 of the entities have only k buckets."""
    n, t = entities, count // 3
    total = 0.0
    for k in range(3, min(n, EXACT + 1)):
        s = k + 1
        one = [math.comb(t, a) * throws(s, a) for a in range(s // 2 + 1)]  # one third: a buckets, s entities
        two = np.convolve(np.array(one, object), np.array(one, object))
        sets = sum(int(two[k - a]) * one[a] for a in range(len(one)) if 0 <= k - a < len(two))
        total += math.comb(n, s) * sets / t ** (3 * s)
    if n > EXACT + 1:
        ks = np.arange(EXACT + 1, min(n, count + 1))
        log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, max(n, count) + 1)))])
        ss = ks + 1
        choices = log_factorial[n] - log_factorial[ss] - log_factorial[n - ss]
        choices += log_factorial[count] - log_factorial[ks] - log_factorial[count - ks]
        grid = [
            3 * (log_factorial[ss] - ss * math.log(t * z)) + ks * math.log(math.expm1(z) - z)
            for z in np.linspace(0.05, 4, 80)
        ]
        total += float(np.exp(np.minimum(choices + np.min(grid, axis=0), 0)).sum())
    return total


def main(items: int) -> None:
    """Print the table, the worst size, and what one large placement costs."""
    print(f"stated: at most {FAILURE:.1e}; given up after {ROUNDS} rounds")
    print(
        f"{'entities':>9}{'buckets':>9}{'load':>7}{'trials':>12}{'failures':>10}{'most rounds':>13}{'proved below':>14}"
    )
    for n in SIZES:
        count, at_once = bucket_count(n), max(1, BATCH // n)
        trials = max(1, items // n // at_once) * at_once
        results = [failures(n, count, at_once) for _ in range(trials // at_once)]
        failed, rounds = sum(f for f, _ in results), max(r for _, r in results)
        print(
            f"{n:>9}{count:>9}{n / count:>7.3f}{trials:>12}{failed:>10}{rounds:>13}{proved(n, count):>14.1e}",
            flush=True,
        )
    worst = max((proved(n, bucket_count(n)), n) for n in range(4, 1000))
    print(f"proved below {worst[0]:.2e} for all sizes to 1000 (worst: {worst[1]})")

    entities, union = 200_000, 1_000_000
    tags = np.sort(random_tags(union))
    start = time.perf_counter()
    np.sort(np.arange(3 * union)[::-1] ^ 0x155555)
    peer = time.perf_counter() - start
    start = time.perf_counter()
    buckets = Buckets(tags, bucket_count(entities), os.urandom(SEED_BYTES))
    layout = buckets.members.size
    laid = time.perf_counter()
    placement = place(np.arange(0, union, union // entities), buckets, KeyStream(os.urandom(SEED_BYTES)))
    assert placement is not None
    assert layout == buckets.positions
    placed = time.perf_counter()
    buckets.wanted(placement)
    wanted = time.perf_counter()
    print(f"{entities} entities in a union of {union}, against one sort of its {3 * union} positions ({peer:.3f} s):")
    costs = {"layout": laid - start, "placement": placed - laid, "wanted": wanted - placed}
    print("   ".join(f"{name} {seconds / peer:.2f}" for name, seconds in costs.items()))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000_000)
