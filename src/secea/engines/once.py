"""A single aggregation: set-up and one round of a `Federation`, made for its tables."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict, TypeVar, Unpack, overload

from numpy.typing import NDArray

from secea.engines.federation import Federation, Weights, check_columns, client_means, client_table, each_weights
from secea.engines.members import Members
from secea.errors import NothingShared, TableError, TableTypeError
from secea.forms import DEFAULT, FormName, QueriesName
from secea.frames import Frame, is_frame
from secea.params import Normalize, Params
from secea.party.form import Form
from secea.table import Table, TableLike

Same = TypeVar("Same", bound=Table | Frame)
"""A table whose means come in one of the same type."""


class Options(TypedDict, total=False):
    """The keywords of `aggregate`, for its overloads."""

    weights: Weights
    form: FormName | Form
    queries: QueriesName | None
    clients: int | None
    dim: int | None
    collusion: int | None
    dropouts: int
    max_abs: float
    precision: int
    sigma: int
    rounds: int
    key_bits: int
    max_entities: int | None
    max_union: int | None
    insecure_small_keys: bool
    min_owners: int
    max_weight: int | None
    partial: bool
    noise: float
    normalize: Normalize


@overload
def aggregate(tables: Mapping[str, Same], **options: Unpack[Options]) -> dict[str, Same]: ...
@overload
def aggregate(
    tables: Mapping[str, Mapping[Any, Any]], **options: Unpack[Options]
) -> dict[str, dict[Any, NDArray[Any]]]: ...
@overload
def aggregate(tables: Mapping[str, TableLike], **options: Unpack[Options]) -> dict[str, Any]: ...
@overload
def aggregate(tables: Iterable[Same], **options: Unpack[Options]) -> list[Same]: ...
@overload
def aggregate(tables: Iterable[Mapping[Any, Any]], **options: Unpack[Options]) -> list[dict[Any, NDArray[Any]]]: ...
@overload
def aggregate(tables: Iterable[TableLike], **options: Unpack[Options]) -> list[Any]: ...


def aggregate(
    tables: Mapping[str, Any] | Iterable[Any],
    *,
    weights: Weights = None,
    form: FormName | Form = DEFAULT,
    queries: QueriesName | None = None,
    clients: int | None = None,
    dim: int | None = None,
    collusion: int | None = None,
    dropouts: int = 0,
    max_abs: float = 64.0,
    precision: int = 24,
    sigma: int = 40,
    rounds: int = 1000,
    key_bits: int = 3072,
    max_entities: int | None = None,
    max_union: int | None = None,
    insecure_small_keys: bool = False,
    min_owners: int = 1,
    max_weight: int | None = None,
    partial: bool = False,
    noise: float = 0.0,
    normalize: Normalize = (),
) -> dict[str, Any] | list[Any]:
    """The mean embedding of each client's own entities over all their owners: one table per client in, one out.

    `tables` is a list, or a mapping from the clients' names; the means come likewise, each in the form of its table. A
    table is a `Table`, a mapping of entities to embeddings, or a DataFrame of pandas, polars or Arrow.

    It is for a single aggregation. In a training loop use a `Federation`: its set-up is done once, and its fill of low
    bits stays the same in all rounds.

    `weights`: for each client a whole number for each row, in order or by name; or the name of a column that all
    DataFrames have, which then belongs to no embedding. Means are weighted then, and `max_weight`, unless it is given,
    is the largest of them.

    `form` is "keyed" or "paillier". "keyed" protects a client even if the server and all others conspire, and works for
    two clients or more. "paillier" is the paper's form; its option `queries` is "buckets", or "full" as in the paper.

    All other keywords are the fields of `Params`. Clients, dim and the bounds come from the tables.
    """
    if isinstance(tables, str | bytes | Table) or is_frame(tables) or not isinstance(tables, Iterable):
        raise TableTypeError(
            f"expected a list of tables, one per client, or a mapping from their names, got {type(tables).__name__}"
        )
    sources = tables if isinstance(tables, Mapping) else list(tables)
    members = Members.of(sources, len(sources))
    with members.speaking():
        listed, weighing = members.each(sources, "tables"), each_weights(members, weights)
        given = [client_table(n, each, None, w) for n, (each, w) in enumerate(zip(listed, weighing, strict=True))]
        check_columns(listed, weights)
        width = _width(given) or 1
    if weights is not None and not partial and max_weight is None:
        max_weight = max([1, *(int(t.weights.max()) for t in given if t.weights is not None and len(t))])
    params = Params(
        clients=len(given) if clients is None else clients,
        dim=width if dim is None else dim,
        collusion=collusion,
        dropouts=dropouts,
        max_abs=max_abs,
        precision=precision,
        sigma=sigma,
        rounds=rounds,
        key_bits=key_bits,
        max_entities=max_entities,
        max_union=max_union,
        insecure_small_keys=insecure_small_keys,
        min_owners=min_owners,
        max_weight=max_weight,
        partial=partial,
        noise=noise,
        normalize=normalize,
    )
    fed = Federation(params, form, queries)
    fed.setup(members.by_client([table.names for table in given]))
    filled = [len(table) for table in given if len(table)]
    if len(filled) > 1 and sum(filled) == fed.server.M:
        said = "no entity is in two tables, so that each client gets its own rows back"
        cure = "secea.names.near(one, other) lists spellings that nearly match"
        warnings.warn(f"{said}; {cure}", NothingShared, stacklevel=2)
    found = [mean.matrix for mean in fed.round(given)]
    with members.speaking():
        each = zip(listed, given, found, weighing, strict=True)
        return members.by_client([client_means(n, *of_client) for n, of_client in enumerate(each)])


def _width(tables: list[Table]) -> int:
    """The length of all embeddings; 0 if there are none."""
    filled = [(n, table.dim) for n, table in enumerate(tables) if len(table)]
    for n, dim in filled:
        if dim != filled[0][1]:
            first, width = filled[0]
            raise TableError(f"client {first} has embeddings of length {width}, client {n} of length {dim}")
    return filled[0][1] if filled else 0
