"""An adapter for gensim's word vectors. The keys (words) are the entities."""

from __future__ import annotations

from typing import TYPE_CHECKING

from secea.adapters.numpy import NumpyRows
from secea.adapters.weights import Weighing, Weights
from secea.errors import TableTypeError
from secea.table import Name, Table, TableLike

if TYPE_CHECKING:
    from gensim.models import KeyedVectors


class GensimRows:
    """All keys of `KeyedVectors` (`model.wv` of a Word2Vec model). Loading means also updates the vectors' norms.

    The rest of a model stays at its site: the output layer (`syn1neg`), counts, and the learning rate. `weights` are
    those of the rows, as for `NumpyRows`: with "trained", words that the last texts did not have weigh 0.
    """

    def __init__(self, vectors: KeyedVectors, *, weights: Weights | None = None) -> None:
        if not hasattr(vectors, "index_to_key"):
            hint = "; give its `wv`" if hasattr(vectors, "wv") else ""
            raise TableTypeError(f"expected gensim's KeyedVectors, got {type(vectors).__name__}{hint}")
        if hasattr(vectors, "vectors_ngrams"):
            raise TableTypeError(
                "FastText makes the vectors of words from n-grams: means of words would be overwritten"
            )
        self._vectors, self._weighing = vectors, Weighing(weights)
        _ = self._rows  # raises an error if the vectors cannot be used

    @property
    def _rows(self) -> NumpyRows:
        """The vectors as they are now: gensim makes a new matrix when words are added."""
        return NumpyRows(self._vectors.index_to_key, self._vectors.vectors)

    @property
    def names(self) -> tuple[Name, ...]:
        """The keys. If the vocabulary grows, new keys appear at once."""
        return self._rows.names

    @property
    def width(self) -> int:
        """Numbers per key."""
        return self._rows.width

    def table(self) -> Table:
        """A copy of the vectors, with their weights if there are any."""
        return self._weighing.weighed(self._rows.table())

    def load(self, means: TableLike) -> None:
        """Write the means into the vectors."""
        with self._weighing.loading(lambda: self._rows.table()):
            self._rows.load(means)
        self._vectors.fill_norms(force=True)
