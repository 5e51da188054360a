"""Every row goes to one client at most, by the rule of the split."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secea.errors import ParamsError
from secea.learn.data import Dataset, Part, Rows
from secea.learn.splits import Split, deal


def pooled(task: str, count: int, seed: int) -> Dataset:
    """Distinct rows, so that they can be followed."""
    rng = np.random.default_rng(seed)
    entities, others = 20, 5
    if task == "kg":
        every = np.stack(np.unravel_index(rng.permutation(20 * 5 * 20)[:count], (20, 5, 20)), 1).astype(np.int64)
    elif task == "social":
        every = np.stack(np.unravel_index(rng.permutation(400)[:count], (20, 20)), 1).astype(np.int64)
    else:
        pairs = np.stack(np.unravel_index(rng.permutation(100)[:count], (5, 20)), 1)
        every = np.concatenate([pairs, rng.integers(1, 6, size=(len(pairs), 1))], 1).astype(np.float64)
    names = tuple(range(entities)), tuple(range(others))
    return Dataset("made up", *names, (Part(every, every[:0], every[:0]),), ())


def counted(rows: Rows) -> Counter[tuple[float, ...]]:
    return Counter(map(tuple, rows.tolist()))


def dealt(split: Split) -> Counter[tuple[float, ...]]:
    return sum((counted(part.all) for part in split.parts), Counter())


@given(
    way=st.sampled_from([("kg", "own"), ("kg", "random"), ("kg", "relation"), ("social", "own"), ("social", "random"),
                         ("recommend", "own"), ("recommend", "random")]),
    count=st.integers(0, 100), clients=st.integers(1, 5), seed=st.integers(0, 99),
)  # fmt: skip
def test_a_split_deals_every_row_once_but_those_that_nobody_knows(
    way: tuple[str, str], count: int, clients: int, seed: int
) -> None:
    task, name = way
    data = pooled(task, count, seed)
    split = deal(task, data, name, clients=clients, seed=seed)
    found, every = dealt(split), counted(data.parts[0].all)
    assert found <= every
    lost = every.total() - found.total()
    assert split.messages == ((f"{lost} of {count} rows are left out: no client knows both ends",) if lost else ())
    if task == "recommend" or name != "own":
        assert not lost
    again = deal(task, data, name, clients=clients, seed=seed)
    assert all(np.array_equal(a.all, b.all) for a, b in zip(split.parts, again.parts, strict=True))


def test_each_relation_and_each_user_has_one_client() -> None:
    relations = [set(part.all[:, 1]) for part in deal("kg", pooled("kg", 300, 0), "relation", clients=3, seed=1).parts]
    users = [
        set(part.all[:, 0]) for part in deal("recommend", pooled("recommend", 100, 0), "own", clients=3, seed=1).parts
    ]
    for sets in (relations, users):
        assert sum(map(len, sets)) == len(set().union(*sets)) == 5


def test_a_client_sees_only_entities_that_it_knows() -> None:
    data = pooled("kg", 2000, 0)
    none = deal("kg", data, "own", clients=4, seed=0, share=0.0, core=0.0)
    assert not dealt(none)
    core = deal("kg", data, "own", clients=4, seed=0, share=0.0, core=0.5)
    known = set(np.concatenate([part.all[:, [0, 2]].ravel() for part in core.parts]))
    assert dealt(core).total() == sum(row[0] in known and row[2] in known for row in data.parts[0].all.tolist())
    assert not deal("kg", data, "own", clients=4, seed=0, share=1.0, core=0.0).messages


@pytest.mark.parametrize(("count", "sizes"), [(0, (0, 0, 0)), (1, (1, 0, 0)), (2, (1, 0, 1)), (50, (40, 5, 5))])
def test_one_in_ten_is_held_out_each_and_a_single_row_is_for_training(count: int, sizes: tuple[int, ...]) -> None:
    part = deal("kg", pooled("kg", count, 0), "random", clients=1, seed=0).parts[0]
    assert (len(part.train), len(part.valid), len(part.test)) == sizes


def test_splits_that_cannot_be_are_refused() -> None:
    with pytest.raises(ParamsError, match="5 relations cannot be dealt to 6 clients"):
        deal("kg", pooled("kg", 10, 0), "relation", clients=6, seed=0)
    with pytest.raises(ParamsError, match="social has none: use own or random"):
        deal("social", pooled("social", 10, 0), "relation", clients=2, seed=0)
