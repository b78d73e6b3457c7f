"""Query-document pairs, and the features of these pairs on which models are trained."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from .._kernels import NONE, Hits
from .._validation import check_entries
from .._words import words_of
from ..sequences import EditDistance
from ..text import BM25Vectorizer

_OTHER = "\ufffd"  # replaces characters outside the alphabet
_ALPHABET = " abcdefghijklmnopqrstuvwxyz0123456789" + _OTHER
_MOST_CHARACTERS = 256  # the edit distance compares this many characters of each text


class DocumentPairs(NamedTuple):
    """Pairs of queries and retrieved documents, sorted by query and rank."""

    queries: list[Any]
    documents: list[Any]  # distinct retrieved documents
    of_query: np.ndarray  # int64 (n_pairs,), position of the query
    of_document: np.ndarray  # int64 (n_pairs,), position of the document
    rank: np.ndarray  # int64 (n_pairs,)
    scores: np.ndarray  # float32 (n_pairs,)

    @property
    def sizes(self) -> np.ndarray:
        """Number of pairs of each query: int64, shape (n_queries,)."""
        return np.bincount(self.of_query, minlength=len(self.queries))

    def of_both(self, function: Callable[[Any], Any]) -> tuple[list[Any], list[Any]]:
        """Apply a function once to each text; return the results for the query and for the document of each pair."""
        asked, stored = ([function(text) for text in texts] for texts in (self.queries, self.documents))
        return [asked[place] for place in self.of_query], [stored[place] for place in self.of_document]


class Tools(NamedTuple):
    """Vectorizer and edit distance used by features."""

    vectorizer: BM25Vectorizer | None
    distance: EditDistance | None


def ids_and_scores(hits: Any) -> tuple[Any, Any]:
    """Return the ids and the scores of hits without validating them."""
    if isinstance(hits, Hits):
        return hits.ids, hits.scores
    if not isinstance(hits, Sequence) or len(hits) < 2:
        kind = type(hits).__name__
        raise TypeError(f"hits must be the return value of query, or a pair of ids and scores, got {kind}")
    return hits[0], hits[1]


def check_hits(hits: Any, n_queries: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids of hits as int64 and their scores as float32."""
    ids, scores = map(np.asarray, ids_and_scores(hits))
    if ids.ndim != 2 or ids.shape != scores.shape or ids.shape[0] != n_queries:
        shapes = f"{ids.shape} and {scores.shape}"
        raise ValueError(
            f"hits must have one row of ids and one row of scores for each of the {n_queries} queries, got {shapes}"
        )
    if ids.dtype.kind not in "iu" or scores.dtype.kind not in "fiu":
        raise TypeError(f"hits must have integer ids and numeric scores, got {ids.dtype} and {scores.dtype}")
    there = ids != NONE
    if not np.isfinite(scores[there]).all():
        raise ValueError("hits must have a finite score for each id")
    return ids.astype(np.int64), scores.astype(np.float32)


def pairs_of(queries: list[Any], documents: Any, hits: Hits | Any) -> DocumentPairs:
    """Return the pairs of queries and retrieved documents."""
    ids, scores = check_hits(hits, len(queries))
    of_query, rank = np.nonzero(ids != NONE)
    found, of_document = np.unique(ids[of_query, rank], return_inverse=True)
    return DocumentPairs(queries, _documents_of(documents, found), of_query, of_document, rank, scores[of_query, rank])


def _documents_of(documents: Any, ids: np.ndarray) -> list[Any]:
    if ids.size == 0:
        return []
    if callable(documents):
        listed = list(documents(ids))
        check_entries("the result of documents", len(listed), ids.size, "ids")
        return listed
    if isinstance(documents, str | bytes) or not isinstance(documents, Mapping | Sequence | np.ndarray):
        raise TypeError(f"documents must be a list, an array, a mapping or a function, got {type(documents).__name__}")
    found: list[Any] = []
    try:
        if not isinstance(documents, Mapping) and ids[0] < 0:
            raise IndexError
        found.extend(documents[i] for i in ids.tolist())
    except (KeyError, IndexError):
        missing = ids[len(found)]
        raise KeyError(f"documents must contain every id in hits, but no document has id {missing}") from None
    return found


# Features


def _vectors(pairs: DocumentPairs, tools: Tools) -> tuple[Any, Any]:
    assert tools.vectorizer is not None
    asked = tools.vectorizer.transform(pairs.queries)
    stored = tools.vectorizer.transform_documents(pairs.documents)
    return asked[pairs.of_query], stored[pairs.of_document]


def _bm25(pairs: DocumentPairs, tools: Tools) -> Any:
    asked, stored = _vectors(pairs, tools)
    return asked.multiply(stored).sum(axis=1)


def _terms(pairs: DocumentPairs, tools: Tools) -> Any:
    asked, stored = _vectors(pairs, tools)
    return scipy.sparse.csr_array(asked.multiply(stored))


def _trigrams(text: str) -> set[str]:
    joined = f" {' '.join(words_of(text))} "
    return {joined[i : i + 3] for i in range(len(joined) - 2)}


def _overlap(pairs: DocumentPairs, tools: Tools) -> Any:
    shares = np.zeros((pairs.of_query.size, 3), np.float32)
    words = pairs.of_both(lambda text: set(words_of(text)))
    for i, (asked, stored) in enumerate(zip(*words, strict=True)):
        common = len(asked & stored)
        shares[i, 0], shares[i, 1] = common / max(1, len(asked)), common / max(1, len(stored))
    for i, (asked, stored) in enumerate(zip(*pairs.of_both(_trigrams), strict=True)):
        common = len(asked & stored)
        shares[i, 2] = common / max(1, len(asked) + len(stored) - common)
    return shares


def _edit(pairs: DocumentPairs, tools: Tools) -> Any:
    assert tools.distance is not None
    known = set(tools.distance.symbols_)
    other = _OTHER if _OTHER in known else ""

    def spelt(text: str) -> str:
        return "".join(c if c in known else other for c in text.lower()[:_MOST_CHARACTERS])

    asked, stored = pairs.of_both(spelt)
    longest = [max(len(one), len(other), 1) for one, other in zip(asked, stored, strict=True)]
    return 1.0 - tools.distance.paired(asked, stored) / np.array(longest)


def _lengths(pairs: DocumentPairs, tools: Tools) -> Any:
    return np.column_stack(pairs.of_both(lambda text: len(words_of(text))))


class Feature(NamedTuple):
    """Definition of a feature."""

    compute: Callable[[DocumentPairs, Tools], Any]
    columns: tuple[str, ...]
    compared: bool  # whether values are compared with the query's other documents
    needs_texts: bool = True


FEATURES = {
    "score": Feature(lambda pairs, _: pairs.scores, ("score",), True, False),
    "rank": Feature(lambda pairs, _: pairs.rank, ("rank",), False, False),
    "bm25": Feature(_bm25, ("bm25",), True),
    "overlap": Feature(_overlap, ("query words found", "document words asked", "trigrams shared"), True),
    "edit": Feature(_edit, ("edit similarity",), True),
    "lengths": Feature(_lengths, ("query words", "document words"), False),
    "terms": Feature(_terms, (), False),
}
NEEDS_VECTORIZER = ("bm25", "terms")


def new_tools(
    features: Sequence[Any], vectorizer: BM25Vectorizer | None, distance: EditDistance | None, texts: list[Any]
) -> Tools:
    """Return the vectorizer and distance that features need. By default, the vectorizer is fitted to ``texts``."""
    if not any(name in features for name in NEEDS_VECTORIZER if isinstance(name, str)):
        vectorizer = None
    elif vectorizer is None:
        vectorizer = BM25Vectorizer(norm=None).fit(texts)
    if "edit" not in [name for name in features if isinstance(name, str)]:
        distance = None
    elif distance is None:
        distance = EditDistance(_ALPHABET)
    return Tools(vectorizer, distance)


def pair_features(
    pairs: DocumentPairs, features: Sequence[Any], tools: Tools, *, compare: bool
) -> tuple[Any, list[str]]:
    """Return the features of pairs as float32, in CSR format if a feature is sparse, and the names of columns."""
    blocks: list[Any] = []
    names: list[str] = []
    for i, feature in enumerate(features):
        block, columns, compared = _block_of(pairs, feature, tools, i)
        blocks.append(block)
        names += columns
        if compare and compared and not scipy.sparse.issparse(block):
            blocks.append(leads_of(block, pairs.of_query))
            names += [f"{column}, lead" for column in columns]
    if any(scipy.sparse.issparse(block) for block in blocks):
        return scipy.sparse.csr_matrix(scipy.sparse.hstack(blocks, "csr", dtype=np.float32)), names
    return np.hstack(blocks), names


def _block_of(pairs: DocumentPairs, feature: Any, tools: Tools, i: int) -> tuple[Any, list[str], bool]:
    if isinstance(feature, str):
        known = FEATURES[feature]
        block, columns, compared, what = known.compute(pairs, tools), list(known.columns), known.compared, feature
    else:
        what = getattr(feature, "__name__", f"function{i}")
        block, columns, compared = feature(*pairs.of_both(lambda text: text)), [], True
    n = pairs.of_query.size
    if scipy.sparse.issparse(block):
        block = scipy.sparse.csr_array(block, dtype=np.float32)
        numbers = block.data
    else:
        try:
            block = numbers = np.asarray(block, np.float32)
        except (TypeError, ValueError) as error:
            raise type(error)(f"the feature {what} must be an array of numbers: {error}") from error
        block = block[:, None] if block.ndim == 1 else block
    if block.ndim != 2 or block.shape[0] != n:
        raise ValueError(f"the feature {what} must have one row for each of the {n} pairs, got shape {block.shape}")
    if not np.isfinite(numbers).all():
        raise ValueError(f"the feature {what} must be finite")
    return block, columns or [f"{what}{column}" for column in range(block.shape[1])], compared


def names_of(features: Sequence[str], vectorizer: BM25Vectorizer | None, *, compare: bool) -> list[str]:
    """Return the column names of features, none of which may be a function."""
    names: list[str] = []
    for feature in features:
        known = FEATURES[feature]
        names += known.columns
        if feature == "terms":
            assert vectorizer is not None
            names += [f"terms{column}" for column in range(len(vectorizer.get_feature_names_out()))]
        elif compare and known.compared:
            names += [f"{column}, lead" for column in known.columns]
    return names


def leads_of(block: np.ndarray, of_query: np.ndarray) -> np.ndarray:
    """Return each value minus the largest value among the query's other pairs, or 0 for a single pair."""
    n_groups = int(of_query.max(initial=-1)) + 1
    alone = np.bincount(of_query, minlength=n_groups)[of_query] == 1
    leads = np.zeros_like(block)
    for column, values in enumerate(block.T):
        order = np.lexsort((-values, of_query))
        firsts = np.searchsorted(of_query, np.arange(n_groups))
        best = order[np.minimum(firsts, max(0, of_query.size - 1))]  # pair with the largest value of each query
        second = order[np.minimum(firsts + 1, max(0, of_query.size - 1))]
        is_best = best[of_query] == np.arange(of_query.size)
        others = np.where(is_best, values[second][of_query], values[best][of_query])
        leads[:, column] = np.where(alone, 0.0, values - others)
    return leads
