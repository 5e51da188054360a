"""Completion of knowledge graphs: entities are shared, relations stay local; filtered ranks, on both sides.

A rank is among the client's own entities (for `central` too, so that all methods face the same question), without those
that any client's triples name as right answers. Equal scores share the mean of their ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import logsigmoid

from secea.learn.data import Dataset, Part, Rows
from secea.learn.learner import Learner, Score, Training, first_rows
from secea.learn.models import Model

HITS: Final = (1, 3, 5, 10)
FLOATS_AT_ONCE: Final = {"cpu": 1 << 24, "cuda": 1 << 27}
"""So many are in memory while evaluation computes scores."""
TABLE_BYTES: Final = {"cpu": 1 << 26, "cuda": 1 << 32}
"""So large may the table of right answers be."""


class Known:
    """The right answers to each question (head, relation, ?) and (?, relation, tail) of some triples."""

    def __init__(self, triples: Rows, entities: int, relations: int) -> None:
        self.entities, self.relations = entities, relations
        ends = np.concatenate([triples[:, [0, 1, 2]], triples[:, [2, 1, 0]]])
        side = np.repeat([0, 1], len(triples))
        keys = (side * relations + ends[:, 1]) * entities + ends[:, 0]
        self.keys, group = np.unique(keys, return_inverse=True)
        pairs = np.unique(group * entities + ends[:, 2])
        self.answers = pairs % entities
        self.starts = np.searchsorted(pairs // entities, np.arange(len(self.keys) + 1))

    def questions(self, triples: Rows) -> NDArray[np.int64]:
        """The places in `keys` of the questions of these triples: those for tails, then those for heads."""
        tails = triples[:, 1] * self.entities + triples[:, 0]
        heads = (self.relations + triples[:, 1]) * self.entities + triples[:, 2]
        return np.searchsorted(self.keys, np.concatenate([tails, heads]))


def placed(triples: Rows, ids: NDArray[np.int64], relations: NDArray[np.int64]) -> Rows:
    """The same triples, by places in these lists."""
    return np.stack([np.searchsorted(of, triples[:, c]) for c, of in enumerate((ids, relations, ids))], axis=1)


class KgLearner(Learner):
    """Self-adversarial negatives; those of a batch are shared, and known triples are no negatives."""

    def __init__(
        self, number: int, ids: NDArray[np.int64], relations: NDArray[np.int64], data: Dataset, triples: Rows,
        model: Model, temperature: float, how: Training,
    ) -> None:  # fmt: skip
        names = [data.entities[i] for i in ids]
        shared = first_rows(names, model.width, model.spread, how.seed, "entity")
        inner = [data.others[i] for i in relations]
        own = first_rows(inner, model.relation_width, model.spread, how.seed, "relation")
        super().__init__(number, ids, shared, {"relation": own}, how)
        self.relations, self.model, self.temperature = relations, model, temperature
        local = placed(triples, ids, relations)
        known = Known(local, len(ids), len(relations))
        tensors = (local, known.questions(local).reshape(2, -1).T.copy())
        self._triples, self._questions = (torch.tensor(each, device=how.device) for each in tensors)
        self._answers = Answers(known, how.device)
        # Compiled, the differences of all pairs are never in memory. Only for full batches, which all have one shape.
        self._compiled = torch.compile(model.scores) if how.device.type == "cuda" else model.scores

    @property
    def examples(self) -> int:
        """Its training triples."""
        return len(self._triples)

    def draw(self, random: torch.Generator) -> Tensor:
        """Negatives: entities, the same for all examples of a batch."""
        return torch.randperm(len(self.ids), generator=random, device=self.how.device)[: self.how.negatives]

    def loss(self, picked: Tensor, drawn: Tensor) -> Tensor:
        """log-sigmoid of the right score, and of wrong ones weighted by how right they seem."""
        model = self.model
        h, r, t = self._triples.index_select(0, picked).unbind(1)
        rows = self.shared.index_select(0, torch.cat([h, t, drawn])).float()
        head, tail, others = torch.split(rows, [len(h), len(t), len(drawn)])
        relation = self.own["relation"].index_select(0, r)
        queries = torch.cat([model.tail_query(head, relation), model.head_query(relation, tail)])
        wrong = (self._compiled if len(picked) == self.how.batch else model.scores)(queries, others)
        known = self._answers.among(self._questions.index_select(0, picked).T.reshape(-1), drawn)
        weights = (self.temperature * wrong.detach()).masked_fill_(known, -torch.inf).softmax(-1).nan_to_num_(0.0)
        right = logsigmoid(model.pairs(queries[: len(picked)], tail)).sum()
        loss = ((weights * logsigmoid(-wrong)).sum() / 2 + right) / (-2 * len(picked))
        return loss + model.shrink * (head.square().sum() + tail.square().sum()) / len(picked) if model.shrink else loss


class Answers:
    """Which entities are right answers to which questions: a table of bits if it is small enough, otherwise lists."""

    def __init__(self, known: Known, device: torch.device) -> None:
        self._starts, self._answers = (torch.tensor(each, device=device) for each in (known.starts, known.answers))
        self._counts, self._entities = self._starts.diff(), known.entities
        self._table: Tensor | None = None
        if len(known.keys) * known.entities <= TABLE_BYTES.get(device.type, 0):
            self._table = torch.zeros((len(known.keys), known.entities), dtype=torch.bool, device=device)
            self._table[torch.repeat_interleave(self._counts), self._answers] = True

    def among(self, questions: Tensor, entities: Tensor) -> Tensor:
        """Which of the entities, all different, are right: [questions, entities]."""
        if self._table is not None:
            return self._table[questions[:, None], entities]
        count, device = len(entities), entities.device
        place = torch.full((self._entities,), count, device=device)
        place[entities] = torch.arange(count, device=device)
        counts = self._counts.index_select(0, questions)
        first = self._starts.index_select(0, questions) - counts.cumsum(0) + counts
        rows = torch.repeat_interleave(counts)
        answers = self._answers.index_select(0, torch.arange(len(rows), device=device) + first.index_select(0, rows))
        known = torch.zeros(len(questions) * (count + 1), dtype=torch.bool, device=device)
        known[rows * (count + 1) + place.index_select(0, answers)] = True
        return known.view(-1, count + 1)[:, :-1]


@dataclass(frozen=True)
class Exam:
    """A client's test triples, as places among its own entities and relations, and the answers to be ignored."""

    triples: Tensor
    ignored: Tensor
    """Rows of (question, entity), sorted by question; questions are as in `Known.questions`."""
    first: NDArray[np.int64]
    """Where the ignored answers of each question begin."""


class Knowledge:
    """The task: who has which triples, and the filter over all of them."""

    metric, better = "mrr", "higher"

    def __init__(
        self,
        data: Dataset,
        parts: Sequence[Part],
        clients: Sequence[str],
        model: Model,
        temperature: float,
        how: Training,
    ) -> None:
        self.data, self.parts, self.clients, self.model, self.how = data, parts, clients, model, how
        self.width, self.temperature = model.width, temperature
        self.ids = [np.unique(part.all[:, [0, 2]]) for part in parts]
        self.relations = [np.unique(part.all[:, 1]) for part in parts]
        self._known = Known(np.concatenate([part.all for part in parts]), len(data.entities), len(data.others))
        self._exams: dict[tuple[int, str], Exam] = {}

    def learner(self, client: int | None) -> Learner:
        """The learner of a client, or (None) of all triples together."""
        some = range(len(self.parts)) if client is None else [client]
        ids = np.unique(np.concatenate([self.ids[n] for n in some]))
        relations = np.unique(np.concatenate([self.relations[n] for n in some]))
        train = np.concatenate([self.parts[n].train for n in some])
        number = len(self.parts) if client is None else client
        return KgLearner(number, ids, relations, self.data, train, self.model, self.temperature, self.how)

    def _exam(self, client: int, stage: str) -> Exam:
        if (client, stage) not in self._exams:
            triples, ids = getattr(self.parts[client], stage), self.ids[client]
            question = self._known.questions(triples)
            counts = np.diff(self._known.starts)[question]
            rows = np.repeat(np.arange(len(question)), counts)
            offset = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
            answers = self._known.answers[self._known.starts[question][rows] + offset]
            place = np.minimum(np.searchsorted(ids, answers), max(0, len(ids) - 1))
            there = ids[place] == answers if len(ids) else np.zeros(0, bool)
            rows, place = rows[there], place[there]
            local = placed(triples, ids, self.relations[client])
            first = np.searchsorted(rows, np.arange(len(question) + 1))
            ignored = np.stack([rows, place], axis=1)
            on = self.how.device
            exam = Exam(torch.tensor(local, device=on), torch.tensor(ignored, device=on), first)
            self._exams[client, stage] = exam
        return self._exams[client, stage]

    @torch.no_grad()
    def ranks(self, learner: Learner, client: int, stage: str) -> Tensor:
        """Filtered ranks of the right tails, then of the right heads."""
        assert isinstance(learner, KgLearner)
        exam, device = self._exam(client, stage), self.how.device
        mine = torch.tensor(np.searchsorted(learner.ids, self.ids[client]), device=device)
        inner = torch.tensor(np.searchsorted(learner.relations, self.relations[client]), device=device)
        entities, relations = learner.shared[mine].float(), learner.own["relation"][inner]
        h, r, t = exam.triples.unbind(1)
        queries = torch.cat(
            [self.model.tail_query(entities[h], relations[r]), self.model.head_query(relations[r], entities[t])]
        )
        answers = torch.cat([t, h])
        step = max(1, FLOATS_AT_ONCE.get(device.type, 1 << 24) // max(1, len(entities) * self.model.floats))
        ranks = []
        for start in range(0, len(queries), step):
            scores = self.model.scores(queries[start : start + step], entities)
            right = scores.gather(1, answers[start : start + step, None])
            a, b = (int(exam.first[min(len(queries), at)]) for at in (start, start + step))
            rows, places = exam.ignored[a:b].unbind(1)
            scores[rows - start, places] = -torch.inf
            # What is not a number comes last: training that went astray must not look like success.
            ranks.append(1 + (~(scores <= right)).sum(1) + (scores == right).sum(1) / 2)
        return torch.cat(ranks) if ranks else torch.zeros(0, device=device)

    def evaluate(self, learner: Learner, client: int, stage: str) -> Score:
        """Reciprocal ranks and hits; two cases for each triple, one for each end."""
        if not len(getattr(self.parts[client], stage)):
            return Score(why=f"no {stage} triples")
        ranks = self.ranks(learner, client, stage).double()
        tails = ranks[: len(ranks) // 2]
        totals = {"mrr": (1 / ranks).sum().item(), "tail mrr": 2 * (1 / tails).sum().item()}
        totals |= {f"hits@{k}": (ranks <= k).sum().item() for k in HITS}
        return Score(len(ranks), totals)

    def metrics(self, score: Score) -> dict[str, float | None]:
        """Means over the cases."""
        names = ("mrr", *(f"hits@{k}" for k in HITS), "tail mrr")
        return {name: score.totals[name] / score.cases if score.cases else None for name in names}

    def messages(self) -> list[str]:
        """Clients without training or test triples, and what only their test triples name."""
        found = []
        for name, part, relations in zip(self.clients, self.parts, self.relations, strict=True):
            if not len(part.train):
                found.append(f"{name} has no training triples: its embeddings come only from the others")
            if not len(part.test):
                found.append(f"{name} has no test triples: it has no metrics, and counts in no mean")
            new = np.setdiff1d(np.unique(part.test[:, [0, 2]]), part.train[:, [0, 2]])
            if len(part.train) and len(new):
                what = "entities of its test triples are" if len(new) > 1 else "entity of its test triples is"
                found.append(f"{name}: {len(new)} {what} in none of its training triples")
            kinds = np.setdiff1d(relations, part.train[:, 1])
            if len(part.train) and len(kinds):
                what = "relations are" if len(kinds) > 1 else "relation is"
                found.append(f"{name}: {len(kinds)} {what} in none of its training triples")
        return found
