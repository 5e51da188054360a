"""An adapter for gensim's word vectors. The keys (words) are the entities."""

from __future__ import annotations

from typing import TYPE_CHECKING

from secea.adapters.numpy import NumpyRows
from secea.adapters.weights import Weighing, Weights
from secea.errors import TableTypeError
from secea.table import Name, Table, TableLike

if TYPE_CHECKING:
    from gensim.models import KeyedVectors, Word2Vec


class GensimRows:
    """All words of a `Word2Vec` model, or all keys of `KeyedVectors`. Loading means also updates the vectors' norms.

    Of a `Doc2Vec` model give `model.dv`, the documents, or `model.wv`, the words. FastText makes the vectors of words
    from n-grams, so that means of words would be overwritten: it is refused.

    The rest of a model stays at its site: the output layer (`syn1neg`), counts, and the learning rate. `weights` are
    those of the rows, as for `NumpyRows`: with "trained", words that the last texts did not have weigh 0.
    """

    def __init__(self, vectors: KeyedVectors | Word2Vec, *, weights: Weights | None = None) -> None:
        kind = type(vectors).__name__
        if hasattr(vectors, "dv"):
            raise TableTypeError(
                f"a {kind} model has vectors of documents and of words: give its `dv`, the documents, or its `wv`"
            )
        vectors = getattr(vectors, "wv", vectors)
        if not hasattr(vectors, "index_to_key"):
            raise TableTypeError(f"expected a Word2Vec model of gensim or its KeyedVectors, got {kind}")
        if hasattr(vectors, "vectors_ngrams"):
            raise TableTypeError(
                "FastText makes the vectors of words from n-grams: means of words would be overwritten; train Word2Vec"
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
