"""One run: the methods one after the other, from the same seeds and initial embeddings, into one folder.

A killed run can continue from its folder. On one machine, without a GPU, all methods except `secea` then give the same
numbers bit for bit. `secea` draws fresh randomness for the protocol, and gives the same to within its resolution.
"""

from __future__ import annotations

import math
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from secea.engines.federation import Progress
from secea.errors import DataError, ParamsError
from secea.learn import config as settings
from secea.learn import data as files
from secea.learn import methods, splits
from secea.learn.config import Config
from secea.learn.folder import Folder, State
from secea.learn.kg import Knowledge
from secea.learn.learner import Learner, Score, Task, Training, touched
from secea.learn.lines import Columns
from secea.learn.models import MODELS, Dot, TransE
from secea.learn.noise import Noise, new_key
from secea.learn.recommend import Recommendation
from secea.learn.social import Links
from secea.learn.verdict import About, judged, seen_of
from secea.params import Params
from secea.table import Name

Watch = Callable[[str, int], None]
"""Called with the method and the round that is done."""
Seconds = defaultdict[str, float]
"""Seconds, by what they were spent on."""
CLIENTS: Final = 8
"""Where neither the user nor the data says how many."""
SHARING: Final = ("common", "secea", "plain")


class Run:
    """The run of a folder: new, or to be continued."""

    def __init__(self, folder: Path, config: Config) -> None:
        self.folder, self.config = Folder(folder), config
        data = files.read(config.task, config.sources, config.normalize, Columns(config.header, config.columns))
        split, number = _way(config, data)
        dealt = splits.deal(
            config.task, data, split, clients=number, seed=config.seed, share=config.share, core=config.core
        )
        self.clients, self.parts = dealt.clients, dealt.parts
        self.data, self.task = data, _task(config, data, dealt)
        options = self.options | ({"noise": 1.0} if config.dp and config.dp["shared"] else {})
        warned = methods.check(
            config.methods, len(self.clients), config.collusion, config.max_abs or methods.MAX_ABS, **options
        )
        self.split = split
        self.messages = [*data.assumed, *dealt.messages, *self.task.messages(), *warned]
        self._pool = ThreadPoolExecutor(min(os.cpu_count() or 1, len(self.clients)))

    @classmethod
    def begin(cls, folder: Path, config: Config) -> Run:
        """A new folder."""
        if folder.exists() and any(folder.iterdir()):
            raise DataError(f"{folder} is not empty; continue its run with --resume {folder}, or choose another --out")
        run = cls(folder, config)
        run.record()
        return run

    def record(self) -> None:
        """Write what a restart needs."""
        self.folder.write_json("config.json", self.settings)
        self.folder.write_json("overlap.json", self.overlap)

    @classmethod
    def resume(cls, folder: Path) -> Run:
        """A folder that was left unfinished."""
        run = cls(folder, settings.read(folder / "config.json"))
        if run.folder.read_json("overlap.json") not in (None, run.overlap):
            raise DataError(f"the data of {folder} has changed since the run was begun; begin a new one")
        return run

    @cached_property
    def settings(self) -> dict[str, Any]:
        """What config.json holds."""
        about = {"clients": len(self.clients), "split": self.split, "metric": self.task.metric}
        return self.config.to_json() | about | {"better": self.task.better}

    @cached_property
    def overlap(self) -> dict[str, Any]:
        """Who has how much, and how many own the same: a simulation sees it."""
        clients = [
            {"name": name, "entities": len(ids), **{stage: len(getattr(part, stage)) for stage in files.STAGES}}
            for name, ids, part in zip(self.clients, self.task.ids, self.parts, strict=True)
        ]
        owners = np.bincount(np.unique(np.concatenate(self.task.ids), return_counts=True)[1])
        return {
            "clients": clients,
            "union": int(owners.sum()),
            "owners": {str(count): int(many) for count, many in enumerate(owners) if many},
        }

    @cached_property
    def weights(self) -> list[NDArray[np.int64]] | None:
        """How many training examples of its client touch each entity; None where all rows weigh the same."""
        if not self.config.weights:
            return None
        columns = list(files.KINDS[self.config.task].entities)
        return [touched(ids, part.train[:, columns]) for ids, part in zip(self.task.ids, self.parts, strict=True)]

    @property
    def options(self) -> dict[str, Any]:
        """What means are asked for, in the words of `Params`."""
        found: dict[str, Any] = {"min_owners": self.config.min_owners}
        if self.weights is not None:
            found["max_weight"] = max([1, *(int(own.max(initial=0)) for own in self.weights)])
        return found

    # ---------------------------------------------------------------------------------------------------- the loop

    def go(self, watch: Watch, progress: Progress | None = None) -> dict[str, Any]:
        """Run all methods, from where they stopped. Returns what `--json` prints. `progress` is told of the set-up."""
        done = self.folder.read_json("result.json")
        if done is not None:
            return done | {"verdict": self._judged(done)}
        torch.set_num_threads(1)  # clients train side by side; sums do not depend on the number of cores
        stand = {name: saved[0] for name in self.config.methods if (saved := self.folder.saved(name))}
        self.folder.take_back(stand)
        _ = self._noise
        for name in self.config.methods:
            self._method(name, watch, progress)
        result = self._result()
        self.folder.write_json("result.json", result)
        self.folder.forget()
        return result

    def _method(self, name: str, watch: Watch, progress: Progress | None) -> None:
        central, config = name == "central", self.config
        learners = [self.task.learner(None)] if central else [self.task.learner(n) for n in range(len(self.clients))]
        seconds: Seconds = defaultdict(float)
        saved = self.folder.saved(name)
        begun = 0
        if saved is not None:
            begun, states, spent = saved
            seconds.update(spent)
            for learner, state in zip(learners, states, strict=True):
                learner.restore(state)
        public = self._public(learners, saved)
        watch(name, begun)
        if begun == config.rounds and saved is not None:
            return
        method = self._aggregation(name, begun, progress)
        if saved is None:
            self._evaluate(name, learners, 0, None, seconds)
            self.folder.save(name, 0, _states(learners, public), seconds)
        for number in range(begun + 1, config.rounds + 1):
            with _timed(seconds, "training"), _timed(seconds, "training CPU", time.process_time):
                losses = self._each(partial(_trained, number), learners)
            if method is not None:
                with _timed(seconds, "aggregation"):
                    self._share(method, learners, public, number)
                if isinstance(method, methods.Secure):
                    below = {"below_minimum": method.below_minimum} if config.min_owners > 1 else {}
                    self.folder.log("protocol.jsonl", {"round": number, **method.record, **below})
            if number == config.rounds:
                for n, learner in enumerate(learners):
                    names = [self.data.entities[i] for i in learner.ids]
                    client = "all" if central else self.clients[n]
                    self.folder.embeddings(name, client, names, learner.table())
            if number % config.every == 0 or number == config.rounds:
                cases = sum(count for _, count in losses)
                loss = sum(total for total, _ in losses) / cases if cases else None
                self._evaluate(name, learners, number, loss, seconds)
            self.folder.save(name, number, _states(learners, public), seconds)
            watch(name, number)

    def _share(
        self, method: methods.Method, learners: Sequence[Learner], public: list[methods.Matrix], round: int
    ) -> None:
        """Clients contribute, and go on with the means; where there is none, with their own rows."""
        own = [each.table() for each in learners]
        leaving, noise = own, self._noise
        if noise is not None:
            pairs = enumerate(zip(public, own, strict=True))
            leaving = [noise.leaving(known, rows, client, round) for client, (known, rows) in pairs]
        means = method.aggregate(leaving)
        for n, learner in enumerate(learners):
            there = method.there[n][:, None]
            learner.adopt(np.where(there, means[n], own[n]))
            if noise is not None:
                public[n] = np.where(there, means[n], public[n])

    def _each(self, work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """Clients side by side; a GPU takes them one after the other."""
        return [*map(work, items)] if self.config.device != "cpu" else [*self._pool.map(work, items)]

    def _aggregation(self, name: str, begun: int, progress: Progress | None) -> methods.Method | None:
        if name not in SHARING:
            return None
        if name != "secea":
            return methods.Mean(
                self.task.ids, common=name == "common", min_owners=self.config.min_owners, weights=self.weights,
                noise=self._noise.on_sums(begun) if self._noise else None,
            )  # fmt: skip
        params = self._noise.params if self._noise and self._noise.params else self.params
        secure = methods.Secure(self.names, params, weights=self.weights, progress=progress)
        self.folder.log("protocol.jsonl", {"round": 0, "resumed": begun, **secure.record})
        return secure

    def _evaluate(
        self, name: str, learners: Sequence[Learner], round: int, loss: float | None, seconds: Seconds
    ) -> None:
        """Every client's test rows, by its own learner or the central one; a line in the log."""
        numbers = range(len(self.clients))
        with _timed(seconds, "evaluation"):
            test, valid = (
                self._each(partial(self._evaluated, learners, stage), numbers) for stage in ("test", "valid")
            )
        main = self.task.metric
        clients: dict[str, Any] = {}
        for client, score in zip(self.clients, test, strict=True):
            clients[client] = self._numbers(score) if score.cases else {main: None, "why": score.why}
        line = {
            "method": name, "round": round, "metrics": self._numbers(sum(test, Score())), "clients": clients,
            "valid": self._numbers(sum(valid, Score()))[main], "loss": loss,
            "seconds": {what: seconds[what] for what in ("training", "aggregation", "evaluation")},
            "training_cpu": seconds["training CPU"],
        }  # fmt: skip
        self.folder.log("metrics.jsonl", line)
        seconds.clear()

    def _evaluated(self, learners: Sequence[Learner], stage: str, client: int) -> Score:
        return self.task.evaluate(learners[client % len(learners)], client, stage)

    def _numbers(self, score: Score) -> dict[str, float | None]:
        """Metrics; None for what is not a number."""
        found = self.task.metrics(score)
        return {name: value if value is not None and math.isfinite(value) else None for name, value in found.items()}

    # ------------------------------------------------------------------------------------------------------ privacy

    @cached_property
    def _noise(self) -> Noise | None:
        """The noise of the run: every method and every restart has the same."""
        if self.config.dp is None:
            return None
        return Noise(self.config.dp, self.config.rounds, lambda: self.params, self.folder.secret(new_key()))

    def _public(
        self, learners: Sequence[Learner], saved: tuple[int, Sequence[State], Any] | None
    ) -> list[methods.Matrix]:
        """With noise: the rows of each client that the others know of. Changes are counted from there."""
        if self._noise is None:
            return []
        return [state["public"] for state in saved[1]] if saved else [each.table() for each in learners]

    @cached_property
    def names(self) -> list[list[Name]]:
        """The entities of each client."""
        return [[self.data.entities[i] for i in own] for own in self.task.ids]

    @cached_property
    def params(self) -> Params:
        """Of the federation of `secea`, before noise is added. Its range is the user's word, or what training needs."""
        config, wide = self.config, self.config.max_abs or methods.MAX_ABS

        def within(max_abs: float) -> Params:
            return methods.params_of(
                self.names, self.task.width, collusion=config.collusion, rounds=config.rounds, max_abs=max_abs,
                **self.options,
            )  # fmt: skip

        if config.dp is not None and config.max_abs is None:  # what all rounds' noise adds
            wide += Noise(config.dp, config.rounds, lambda: within(wide), b"").drift
        return within(wide if config.max_abs else math.ldexp(1.0, math.ceil(math.log2(wide))))

    # ------------------------------------------------------------------------------------------------------- result

    def _result(self) -> dict[str, Any]:
        lines = self.folder.lines("metrics.jsonl")
        last, seconds, best = {}, {}, {}
        for name in self.config.methods:
            mine = [line for line in lines if line["method"] == name]
            last[name] = mine[-1]["metrics"]
            total: Seconds = defaultdict(float)
            for line in mine:
                for what, passed in line["seconds"].items():
                    total[what] += passed
            seconds[name] = dict(total)
            rated = [line for line in mine if line["valid"] is not None]
            if rated:
                sign = 1 if self.higher else -1
                top = max(rated, key=lambda line: sign * line["valid"])
                best[name] = {"round": top["round"], "valid": top["valid"], **top["metrics"]}
        result: dict[str, Any] = {"methods": last, "metric": self.task.metric, "better": self.task.better, "best": best}
        result |= {"config": self.settings, "seconds": seconds, "protection": self._protection(lines)}
        result |= {"sharing": self._sharing()} | self._epsilons()
        result |= {"messages": self.messages, "run": str(self.folder.path)}
        return {"verdict": self._judged(result), **result}

    def _judged(self, result: dict[str, Any]) -> dict[str, Any]:
        """What one seed says about sharing."""
        about = About.of(result["config"], result["metric"], result["config"]["methods"], higher=self.higher)
        return judged(about, [seen_of(result, self.folder.lines("metrics.jsonl"))]).to_json()

    @property
    def higher(self) -> bool:
        """Whether more of the metric is better."""
        return self.task.better == "higher"

    @property
    def rounds(self) -> int:
        """The rounds of a method."""
        return self.config.rounds

    @property
    def tested(self) -> bool:
        """Whether any client has test data."""
        return any(len(part.test) for part in self.parts)

    def _sharing(self) -> dict[str, Any]:
        """Which means were asked for, and how many entities of each client had too few owners for one."""
        found: dict[str, Any] = {**self.options, "weights": self.config.weights}
        rounds = [line for line in self.folder.lines("protocol.jsonl") if line["round"]]
        if self.config.min_owners > 1:
            owners = np.bincount(np.concatenate(self.task.ids))
            below = [int((owners[own] < self.config.min_owners).sum()) for own in self.task.ids]
            told = rounds[-1]["below_minimum"] if rounds else below
            found["below_minimum"] = dict(zip(self.clients, told, strict=True))
        return found

    def _protection(self, lines: Sequence[dict[str, Any]]) -> dict[str, float] | None:
        """What the protocol cost, and its share of the training: of the time, and of the CPU time."""
        protocol = self.folder.lines("protocol.jsonl")
        rounds = [line for line in protocol if line["round"]]
        if not rounds:
            return None
        wall, cpu = sum(line["wall"] for line in rounds), sum(sum(line["cpu"].values()) for line in rounds)
        setup = [line for line in protocol if not line["round"]][-1]
        mine = [line for line in lines if line["method"] == "secea"]
        training, work = sum(line["seconds"]["training"] for line in mine), sum(line["training_cpu"] for line in mine)
        return {
            "seconds_per_round": wall / len(rounds),
            "share_of_training": wall / training if training else 0.0,
            "cpu_seconds_per_round": cpu / len(rounds),
            "share_of_training_cpu": cpu / work if work else 0.0,
            "setup_seconds": setup["wall"],
            "round_bytes": sum(rounds[-1]["bytes"].values()),
            "setup_bytes": sum(setup["bytes"].values()),
        }

    def _epsilons(self) -> dict[str, Any]:
        """What was spent, for one row and for whole tables."""
        if self._noise is None:
            return {"epsilon": None}
        sizes = [*map(len, self.task.ids)]
        return self._noise.spent(self.clients, sizes, self.config.every, weighted=self.config.weights)


def _states(learners: Sequence[Learner], public: Sequence[methods.Matrix]) -> list[State]:
    """All that a restart needs."""
    known = [{"public": rows} for rows in public] or [{} for _ in learners]
    return [each.state() | more for each, more in zip(learners, known, strict=True)]


def _trained(number: int, learner: Learner) -> tuple[float, int]:
    return learner.train(number)


@contextmanager
def _timed(seconds: Seconds, what: str, clock: Callable[[], float] = time.perf_counter) -> Iterator[None]:
    started = clock()
    yield
    seconds[what] += clock() - started


def _way(config: Config, data: files.Dataset) -> tuple[str, int]:
    """The split and the number of clients: the user's word, unless the data came split."""
    if data.clients:
        if config.split not in (None, "files"):
            raise ParamsError(
                f"{config.data} comes split among {len(data.clients)} clients; leave --split {config.split} out"
            )
        if config.clients not in (None, len(data.clients)):
            raise ParamsError(f"{config.data} comes split among {len(data.clients)} clients, not {config.clients}")
        return "files", len(data.clients)
    if config.split == "files":
        raise ParamsError(
            "--split files needs one file for each client: several --data, a folder, or train_0, ... in .npz"
        )
    return config.split or "own", config.clients or CLIENTS


def _task(config: Config, data: files.Dataset, dealt: splits.Split) -> Task:
    try:
        device = torch.device(config.device)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ParamsError(f"--device {config.device} cannot be used: {str(error).splitlines()[0]}") from None
    how = Training(config.epochs, config.batch, config.lr, config.negatives, config.seed, device)
    match config.task:
        case "kg":
            model = MODELS[config.model](config.dim, config.margin)
            if isinstance(model, TransE):
                model = TransE(config.dim, config.margin, config.norm)
            return Knowledge(data, dealt.parts, dealt.clients, model, config.temperature, how)
        case "recommend":
            return Recommendation(data, dealt.parts, dealt.clients, config.dim, how)
        case _:
            return Links(data, dealt.parts, dealt.clients, Dot(config.dim, config.margin), config.temperature, how)
