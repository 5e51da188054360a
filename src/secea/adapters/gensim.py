"""Word vectors of gensim: the keys are the entities."""

from __future__ import annotations

from typing import TYPE_CHECKING

from secea.adapters.numpy import NumpyRows
from secea.errors import TableTypeError
from secea.table import Name, Table, TableLike

if TYPE_CHECKING:
    from gensim.models import KeyedVectors


class GensimRows:
    """All keys of `KeyedVectors` (`model.wv` of a Word2Vec model). Means go into its vectors, and its norms follow.

    What a model has beside them stays at its site: the output layer (`syn1neg`), counts, and its rate of learning.
    """

    def __init__(self, vectors: KeyedVectors) -> None:
        if not hasattr(vectors, "index_to_key"):
            hint = "; give its `wv`" if hasattr(vectors, "wv") else ""
            raise TableTypeError(f"expected gensim's KeyedVectors, got {type(vectors).__name__}{hint}")
        if hasattr(vectors, "vectors_ngrams"):
            raise TableTypeError(
                "FastText makes the vectors of words from n-grams: means of words would be overwritten"
            )
        self._vectors = vectors
        _ = self._rows  # it can be used, or we say why not

    @property
    def _rows(self) -> NumpyRows:
        """The vectors as they are now: gensim makes a new matrix when words are added."""
        return NumpyRows(self._vectors.index_to_key, self._vectors.vectors)

    @property
    def names(self) -> tuple[Name, ...]:
        """The keys; new ones of a vocabulary that grows are there at once."""
        return self._rows.names

    @property
    def width(self) -> int:
        """Numbers per key."""
        return self._rows.width

    def table(self) -> Table:
        """A copy of the vectors."""
        return self._rows.table()

    def load(self, means: TableLike) -> None:
        """The means into the vectors."""
        self._rows.load(means)
        self._vectors.fill_norms(force=True)
