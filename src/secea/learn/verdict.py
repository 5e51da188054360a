"""What a run says about sharing, in a sentence that holds: for the terminal, for JSON, and for the report.

Seeds are compared in pairs: `secea` against `local` with the same seed, hence the same data and the same batches. The
spread of these differences gives an interval (Student's t, 95 %), and only what lies outside of it is called a gain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, stdev
from typing import Any, Final

from secea.learn.metrics import amount, base_of, both, metric_name

ALONE, POOLED = "local", "central"
SHARED: Final = ("secea", "plain")
"""Which of them is compared with `local`: the first one that there is."""
STUDENT: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""Student's t for 95 %, both sides, from one degree of freedom to thirty. More take the last: hardly too wide."""
APART: Final = 0.02
"""secea and plain differ by less than this part of the metric, since both have the same means to the resolution."""
APART_AT_LEAST: Final = 0.005
"""What counts as a difference where more is better, however small the metric: a few answers of a small test."""


@dataclass(frozen=True)
class Seen:
    """What one seed gave: the main metric of each method, of all clients together and of each."""

    seed: int
    finals: Mapping[str, float]
    clients: Mapping[str, Mapping[str, float]]
    round: int | None = None
    """The round that methods are compared in; None: the end; 0: there is none yet."""
    why: str = ""
    """Why there are no numbers, where there are none."""


@dataclass(frozen=True)
class About:
    """What the runs of all seeds have in common."""

    metric: str
    higher: bool
    methods: Sequence[str]
    rounds: int | None = None
    same_clients: bool = False
    """Whether a client of one seed is that of another, because the data came split."""
    epsilon: float | None = None
    alike: bool = True
    """Whether secea and plain have the same means: not with weights, nor with noise of all together."""

    @staticmethod
    def of(config: Mapping[str, Any], metric: str, methods: Sequence[str], *, higher: bool) -> About:
        """From the settings of a run, as config.json holds them."""
        rounds, dp = config.get("rounds"), config.get("dp")
        dp = dp if isinstance(dp, dict) else {}
        epsilon = dp.get("epsilon")
        return About(
            metric, higher, methods, rounds if isinstance(rounds, int) else None,
            same_clients=config.get("split") == "files",
            epsilon=float(epsilon) if isinstance(epsilon, int | float) and abs(epsilon) < 1e300 else None,
            alike=not config.get("weights") and not dp.get("shared"),
        )  # fmt: skip


@dataclass(frozen=True)
class Clients:
    """For how many clients sharing is better, and who lost the most."""

    gain: int = 0
    lose: int = 0
    same: int = 0
    most_lost: str | None = None
    alone: float | None = None
    shared: float | None = None


@dataclass(frozen=True)
class Verdict:
    """What sharing does, and the numbers that this rests on."""

    outcome: str
    """gain, loss, chance (the seeds cannot tell), same (nothing changed), or none (there is nothing to compare)."""
    headline: str
    detail: str = ""
    much: str = ""
    """The size of the difference, as it stands in the headline."""
    short: str = "has no verdict"
    """What sharing does, in a few words that begin with a verb: for a table, or a list."""
    warnings: tuple[str, ...] = ()
    measured: bool = True
    """Whether any method has a number."""
    metric: str = ""
    seeds: tuple[int, ...] = ()
    method: str = ""
    """What is compared with `local`."""
    alone: float | None = None
    shared: float | None = None
    pooled: float | None = None
    gain: float | None = None
    """The mean of the paired differences; positive is better."""
    margin: float | None = None
    """Half of the 95 % interval of that mean. None with one seed."""
    relative: float | None = None
    """The gain as a part of `alone`, where that says something."""
    by_seed: Mapping[str, float] = field(default_factory=dict)
    clients: Clients = Clients()
    epsilon: float | None = None
    round: int | None = None
    """Of runs that are not finished: where they are compared."""

    @property
    def sentence(self) -> str:
        """All of it."""
        return " ".join(filter(None, (*self.warnings, self.headline, self.detail)))

    def to_json(self) -> dict[str, Any]:
        """For other programs."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in ("much", "short")}
        named = {"sentence": self.sentence, **plain}
        return named | {"clients": dict(vars(self.clients)), "warnings": list(self.warnings), "seeds": list(self.seeds)}


def seen_of(result: Mapping[str, Any], lines: Iterable[Mapping[str, Any]]) -> Seen:
    """What a finished run gave: from its result, and from the lines of metrics.jsonl."""
    metric, last = result["metric"], {line["method"]: line["clients"] for line in lines}
    reasons = (client["why"] for clients in last.values() for client in clients.values() if client.get("why"))
    return Seen(
        result["config"]["seed"],
        {method: values[metric] for method, values in result["methods"].items() if values[metric] is not None},
        {
            method: {name: own[metric] for name, own in clients.items() if own[metric] is not None}
            for method, clients in last.items()
        },
        why=nobody(next(reasons, "")),
    )


def nobody(why: str) -> str:
    """Why nothing was measured, from why one client has no number: all have the same reason, or there would be one."""
    return f"no client has {why.removeprefix('no ')}" if why.startswith("no ") else why


def judged(about: About, seeds: Iterable[Seen]) -> Verdict:
    """The verdict of all seeds. A seed that is there twice counts once: its numbers are the same."""
    known = list({each.seed: each for each in seeds}.values())
    done = [each for each in known if each.round is None]
    left_out = [each for each in known if each not in done] if done else []
    seen = done or known
    method = next((name for name in SHARED if any(name in each.finals for each in seen)), "")
    pairs = [each for each in seen if each.round != 0 and method in each.finals and ALONE in each.finals]
    warnings = tuple(_warnings(about, seen))
    if not pairs:
        measured = any(each.finals for each in seen)
        none = Verdict("none", _nothing(about, seen), warnings=warnings, measured=measured)
        return replace(none, metric=about.metric, epsilon=about.epsilon)
    return _compared(about, pairs, method, warnings, [each.seed for each in left_out])


def _nothing(about: About, seen: Sequence[Seen]) -> str:
    """Why there is no verdict, and what it takes."""
    begun = not seen or any(each.round is not None for each in seen)
    if not any(each.finals for each in seen):
        why = next((each.why for each in seen if each.why), "training gave numbers that are not finite")
        return "Nothing was evaluated yet." if begun else f"Nothing could be measured: {why}."
    wanted = [ALONE, next((name for name in SHARED if name in about.methods), SHARED[0])]
    if missing := [name for name in wanted if name not in about.methods]:
        return (
            f"No verdict about sharing: that compares {' with '.join(wanted)}, and this run has only"
            f" {', '.join(about.methods)}. Add {' and '.join(missing)} to --methods."
        )
    without = next((name for name in wanted if not any(name in each.finals for each in seen)), wanted[1])
    if begun:
        return f"No verdict about sharing yet: {without} was not evaluated so far."
    return f"No verdict about sharing: {without} has no number for {metric_name(about.metric)} in the end."


def _compared(
    about: About, pairs: Sequence[Seen], method: str, warnings: tuple[str, ...], left_out: Sequence[int]
) -> Verdict:
    sign = 1 if about.higher else -1
    by_seed = {str(each.seed): sign * (each.finals[method] - each.finals[ALONE]) for each in pairs}
    alone, shared = (fmean(each.finals[name] for each in pairs) for name in (ALONE, method))
    pooled = [each.finals[POOLED] for each in pairs if POOLED in each.finals]
    gain, margin = interval([*by_seed.values()])
    base = base_of(about.metric, gain, alone)
    found = Verdict(
        _outcome(gain, margin, [*by_seed.values()]), "", warnings=warnings, metric=about.metric,
        seeds=tuple(each.seed for each in pairs), method=method, alone=alone, shared=shared,
        pooled=fmean(pooled) if len(pooled) == len(pairs) else None, gain=gain, margin=margin,
        relative=gain / base if base else None, by_seed=by_seed,
        clients=_clients(about, pairs, method), epsilon=about.epsilon,
        round=min((each.round for each in pairs if each.round is not None), default=None),
    )  # fmt: skip
    much = amount(about.metric, gain, base)
    said = {"gain": f"gains {much}", "loss": f"does not help, {much} worse", "same": "changes nothing"}
    short = said.get(found.outcome, f"makes no difference to tell from chance, {_signed(found, much)}")
    headline, detail = _headline(found, about, much, base), _detail(found, about, pairs, left_out)
    return replace(found, headline=headline, detail=detail, much=much, short=short)


def interval(differences: Sequence[float]) -> tuple[float, float | None]:
    """The mean of paired differences, and half of its 95 % interval; None for one alone, whose spread is unknown."""
    count = len(differences)
    if count == 1:
        return differences[0], None
    return fmean(differences), STUDENT[min(count - 1, len(STUDENT)) - 1] * stdev(differences) / count**0.5


def _outcome(gain: float, margin: float | None, differences: Sequence[float]) -> str:
    if not any(differences):
        return "same"
    if margin is not None and abs(gain) <= margin:
        return "chance"
    return "gain" if gain > 0 else "loss" if gain else "same"


def _clients(about: About, pairs: Sequence[Seen], method: str) -> Clients:
    """Each client alone and with sharing: its mean over the seeds where it is the same client, or each seed's."""
    values: dict[str, list[tuple[float, float]]] = {}
    for each in pairs:
        alone, shared = each.clients.get(ALONE, {}), each.clients.get(method, {})
        for client in alone.keys() & shared.keys():
            name = client if about.same_clients or len(pairs) == 1 else f"{client} of seed {each.seed}"
            values.setdefault(name, []).append((alone[client], shared[client]))
    means = {name: (fmean(a for a, _ in both_), fmean(b for _, b in both_)) for name, both_ in values.items()}
    gains = {name: (b - a) * (1 if about.higher else -1) for name, (a, b) in sorted(means.items())}
    lost = min(gains, key=lambda name: gains[name], default=None)
    signs = [(each > 0) - (each < 0) for each in gains.values()]
    counts = Clients(signs.count(1), signs.count(-1), signs.count(0))
    if lost is None or gains[lost] >= 0:
        return counts
    return replace(counts, most_lost=lost, alone=means[lost][0], shared=means[lost][1])


def _warnings(about: About, seen: Sequence[Seen]) -> Iterator[str]:
    """secea is plain with protection: where they learn differently, something is wrong."""
    a, b = SHARED
    for each in seen:
        if each.round == 0 or a not in each.finals or b not in each.finals or not about.alike:
            continue
        most = max(APART * abs(each.finals[b]), APART_AT_LEAST if about.higher else 0.0)
        if abs(each.finals[a] - each.finals[b]) > most:
            first, second = both(each.finals[a], each.finals[b])
            yield (
                f"SECEA AND PLAIN DIFFER, AND SHOULD NOT: {metric_name(about.metric)} {first} and {second} with seed"
                f" {each.seed}. Do not rely on these numbers, and please report them."
            )


# --------------------------------------------------------------------------------------------------------------- words


def _signed(found: Verdict, much: str) -> str:
    assert found.gain is not None
    return f"{'+' if found.gain >= 0 else '-'}{much}".replace("-less than ", "less than -").replace(
        "+less than ", "less than +"
    )


def _headline(found: Verdict, about: About, much: str, base: float | None) -> str:
    """One sentence."""
    begins = [] if found.round is None else [f"so far, in round {found.round}{_of(about.rounds)}"]
    begins += [] if about.epsilon is None else [f"with epsilon {about.epsilon:g}"]
    count = len(found.seeds)
    if found.margin is None:
        rests = "one seed; --seeds 3 tells chance from gain"
    else:
        rests = f"{count} seeds, +-{amount(about.metric, found.margin, base)}"
    match found.outcome:
        case "gain":
            says = f"sharing gains {much} ({rests})."
        case "loss":
            says = f"sharing {'does' if begins else 'did'} not help{'' if begins else ' here'}: {much} worse ({rests})."
        case "same":
            says = f"sharing changes nothing: all numbers are as without it ({rests.partition(',')[0]})."
        case _:
            says = f"sharing makes no difference that {count} seeds can tell from chance ({_signed(found, much)},"
            says += f" {rests.partition(', ')[2]})."
    text = ", ".join([*begins, says])
    return text[0].upper() + text[1:]


def _of(rounds: int | None) -> str:
    return f" of {rounds}" if rounds else ""


def _detail(found: Verdict, about: About, pairs: Sequence[Seen], left_out: Sequence[int]) -> str:
    """The numbers, the clients, and what was left out."""
    assert found.alone is not None
    assert found.shared is not None
    alone, shared = both(found.alone, found.shared)
    verb = "rises" if found.shared > found.alone else "falls"
    moves = f"stays at {alone}" if alone == shared else f"{verb} from {alone} alone to {shared}"
    direction = "" if about.higher else " (lower is better)"
    said = [f"{metric_name(about.metric)} {moves} with {found.method}{direction}"]
    if found.pooled is not None:
        said[0] += f"; with all data in one place it is {found.pooled:.{len(alone.partition('.')[2])}f}"
    said[0] += "."
    if found.method != SHARED[0]:
        said.append("plain stands for secea, which was not run.")
    if words := _clients_say(found, about, pairs):
        said.append(words)
    if found.outcome == "chance":
        said.append("More seeds may tell.")
    if left_out:
        seeds = ", ".join(map(str, left_out))
        said.append(f"Not counted, because unfinished: {'seed' if len(left_out) == 1 else 'seeds'} {seeds}.")
    return " ".join(said)


def _clients_say(found: Verdict, about: About, pairs: Sequence[Seen]) -> str:
    """Does it help me? For how many clients it does, and who loses the most."""
    each = found.clients
    count = each.gain + each.lose + each.same
    if not count or not any(found.by_seed.values()):
        return ""
    seeds = "" if about.same_clients or len(pairs) == 1 else f" (all {len(pairs)} seeds together)"
    every = "Both clients" if count == 2 else f"All {count} clients" if count > 1 else "The only client"
    if count in (each.gain, each.lose):
        verb = "gain" if each.gain else "lose"
        return f"{every} with test data {verb if count > 1 else f'{verb}s'}{seeds}."
    said = f"{each.gain} of {count} clients {'gains' if each.gain == 1 else 'gain'}{seeds}"
    if each.most_lost is None or each.alone is None or each.shared is None:
        return f"{said}."
    lost = abs(each.shared - each.alone)
    much = amount(about.metric, lost, base_of(about.metric, lost, each.alone))
    alone, shared = both(each.alone, each.shared)
    who = f"{each.most_lost} loses" if each.lose == 1 else f"{each.lose} lose, {each.most_lost} the most,"
    return f"{said}; {who} {much}: {alone} to {shared}."
