"""Scores of all labels by matrix products of rows and scorers.

For many rows, a product takes a tenth of the time of a kernel that scores single pairs. With up to a few thousand
labels, it is therefore faster to score all labels than to search for candidates.

Products of dense rows are in float32, and their last bits depend on the shape of the block. Labels with nearly equal
scores are therefore compared by sums in a fixed order, so that a row's answer does not depend on other rows. Sums over
sparse rows always follow the order of the row's cells, for scorers in a matrix, in lists and in hash tables.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from .._jit import TILE, by_reference, first_of, inner, kernel, marks_of
from .._kernels import NONE, Rows, as_matrix, row_of, top_k
from .._linear import ONLY_GROUP, LinearModels, find_cell
from .label_scorers import Head, dense_parts, is_in_lists, with_digest

_SCORES_AT_ONCE = 1 << 22  # scores in a block, 16 MB; smaller products spend much of their time packing the scorers
_SPARSE_SCORES_AT_ONCE = 1 << 18  # scores in a block of sparse rows, whose products are faster in the cache
_VALUES_AT_ONCE = 1 << 18  # number of values of rows or scorers copied in one batch
_MAX_SPREAD = 1 << 22  # maximum size of a dense matrix of sparse scorers, in weights: 16 MB
_MAX_SPREAD_EACH = 8  # maximum size per nonzero weight, if this limit is higher: four times the memory of a digest
_ROUNDING = 2.0**-22  # relative error per term when two float32 sums are compared
_SHORTEST, _LONGEST = 1e-12, 1e12  # range of row lengths whose products neither overflow nor underflow


class ScorersByFeature(NamedTuple):
    """Sparse scorers by feature: feature ``f`` has weights at ``offsets[f]:offsets[f + 1]``."""

    offsets: np.ndarray  # int64 (n_features + 1,)
    labels: np.ndarray  # int32
    weights: np.ndarray  # float32


class AllScorers(NamedTuple):
    """The scorers of all labels, laid out for products with rows."""

    n_labels: int
    weights: np.ndarray  # float32 (n_features, n_labels); for sparse scorers only features with weights, or empty
    biases: np.ndarray | None  # float32 (n_labels,), None if all are 0
    places: np.ndarray | None = None  # int32 (n_features,): each sparse feature's row in ``weights``, or NONE
    lists: ScorersByFeature | None = None  # sparse scorers whose matrix would be mostly zeros
    models: LinearModels | None = None  # sparse scorers in hash tables
    scores_at_once: int = _SCORES_AT_ONCE
    values_at_once: int = _VALUES_AT_ONCE

    @property
    def sparse(self) -> bool:
        """Whether the scorers are sparse."""
        return self.places is not None or self.lists is not None or self.models is not None

    @property
    def rows_at_once(self) -> int:
        """The number of rows whose pairs with all labels fit into a buffer."""
        return max(1, self.values_at_once // self.n_labels)


def all_scorers(head: Head, *, in_tables: bool = False) -> AllScorers:
    """Return the scorers of a head: views of a dense head, or a copy of a sparse head's scorers by feature.

    The copy is a dense matrix or, if that would be mostly zeros, lists. With ``in_tables``, which is faster for few
    rows, sparse scorers stay in hash tables if the head has them.
    """
    n_labels, d = head.n_labels, head.parameters.n_features
    biases: np.ndarray | None = head.labels["bias"][0, :n_labels]
    if biases is not None and not biases.any():
        biases = None
    if not head.parameters.sparse:
        return AllScorers(n_labels, dense_parts(head)[0].T, biases)
    scorers = AllScorers(n_labels, np.empty((0, 0), np.float32), biases, scores_at_once=_SPARSE_SCORES_AT_ONCE)
    if in_tables and not is_in_lists(head):
        return scorers._replace(models=head.models)
    digest = head.digest if head.digest.n_labels == n_labels else with_digest(head).digest
    used = np.unique(digest.features)
    if max(d, used.size * n_labels) > max(_MAX_SPREAD, _MAX_SPREAD_EACH * digest.weights.size):
        by_label = scipy.sparse.csr_array((digest.weights, digest.features, digest.offsets), (n_labels, d))
        lists = by_label.tocsc()
        offsets, labels = lists.indptr.astype(np.int64, copy=False), lists.indices.astype(np.int32, copy=False)
        return scorers._replace(lists=ScorersByFeature(offsets, labels, lists.data))
    places = np.full(d, NONE, np.int32)
    places[used] = np.arange(used.size, dtype=np.int32)
    weights = np.zeros((used.size, n_labels), np.float32)
    weights[places[digest.features], np.repeat(np.arange(n_labels), np.diff(digest.offsets))] = digest.weights
    return scorers._replace(weights=weights, places=places)


@inner
def _sum_laid_out(weights, places, x, scores):
    """Write the scores of all labels for a sparse row, summed in the order of its cells."""
    scores[:] = np.float32(0.0)
    for i in range(x.a, x.b):
        place = places[x.indices[i]]
        if place != NONE:
            of_feature, value = weights[place], x.values[i]
            for label in range(scores.size):
                scores[label] += value * of_feature[label]


@kernel
def score_laid_out(weights, places, rows, first, scores):
    """Write the scores of all labels for ``len(scores)`` sparse rows from row ``first`` on."""
    for i in range(scores.shape[0]):
        _sum_laid_out(weights, places, row_of(rows, first + i), scores[i])


@kernel
def score_in_lists(lists, rows, first, scores):
    """Write the same scores as :func:`score_laid_out`, from scorers in lists by feature."""
    scores[:] = np.float32(0.0)
    for i in range(scores.shape[0]):
        x = row_of(rows, first + i)
        for j in range(x.a, x.b):
            feature, value = x.indices[j], x.values[j]
            for entry in range(lists.offsets[feature], lists.offsets[feature + 1]):
                scores[i, lists.labels[entry]] += value * lists.weights[entry]


@kernel
def score_in_tables(models, rows, first, scores):
    """Write the same scores as :func:`score_laid_out`, from scorers in hash tables."""
    models = by_reference(models)
    for label in range(scores.shape[1]):
        for i in range(scores.shape[0]):
            x, total = row_of(rows, first + i), np.float32(0.0)
            if models.records[0, label]["table_bits"] > 0:
                for j in range(x.a, x.b):
                    cell = find_cell(models, ONLY_GROUP, label, x.indices[j])
                    if cell >= 0:
                        total += x.values[j] * models.table[0, cell]["weight"]
            scores[i, label] = total


def unscaled_rows(scorers: AllScorers, X: Any) -> tuple[Rows, np.ndarray] | None:
    """Return dense rows and their lengths if labels can be ranked without scaling the rows, otherwise None.

    Without biases, the best label does not depend on a row's length.
    """
    if scorers.sparse or scorers.biases is not None:
        return None
    if type(X) is not np.ndarray or X.dtype != np.float32 or not X.flags.c_contiguous:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        # The second form is faster for one row.
        lengths = np.sqrt(np.einsum("ij,ij->i", X, X) if len(X) > 1 else X.dot(X[0]))
    shortest, longest = (lengths.min(), lengths.max()) if len(X) > 1 else (lengths[0], lengths[0])
    if not (shortest > _SHORTEST and longest < _LONGEST):  # false for NaN
        return None
    offsets = np.arange(0, X.size + 1, X.shape[1], dtype=np.int64)
    return Rows(X.reshape(-1), np.empty(0, np.int32), offsets, X.shape[1], False), lengths


def blocks_of_scores(scorers: AllScorers, rows: Rows) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the first row of each block of rows, and the scores of all labels (float32) for the block.

    They are valid until the next block, and the caller may overwrite them.
    """
    n_rows, n_labels = rows.n_rows, scorers.n_labels
    length = max(1, min(n_rows, scorers.scores_at_once // max(1, n_labels)))
    room = np.empty((length, n_labels), np.float32)
    for first in range(0, n_rows, length):
        scores = room[: min(length, n_rows - first)]
        if scorers.places is not None:
            score_laid_out(scorers.weights, scorers.places, rows, first, scores)
        elif scorers.lists is not None:
            score_in_lists(scorers.lists, rows, first, scores)
        elif scorers.models is not None:
            score_in_tables(scorers.models, rows, first, scores)
        else:
            np.matmul(as_matrix(rows)[first : first + length], scorers.weights, out=scores)
        if scorers.biases is not None:
            scores += scorers.biases
        yield first, scores


def exact_scores_of_all(scorers: AllScorers, rows: Rows) -> np.ndarray:
    """Return the scores of all labels as float64, shape (n_rows, n_labels), summed in float64 for dense rows."""
    values = np.empty((rows.n_rows, scorers.n_labels))
    if scorers.sparse:
        for first, scores in blocks_of_scores(scorers, rows):
            values[first : first + scores.shape[0]] = scores
        return values
    X = as_matrix(rows).astype(np.float64)
    length = max(1, scorers.values_at_once // rows.n_features)
    for first in range(0, scorers.n_labels, length):
        part = scorers.weights[:, first : first + length].astype(np.float64)
        np.matmul(X, part, out=values[:, first : first + length])
    return values if scorers.biases is None else values + scorers.biases


def _scores_of_pairs(scorers: AllScorers, rows: Rows, of_rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the scores of pairs of a dense row and a label as float32, summed in a fixed order."""
    X, weights = as_matrix(rows), scorers.weights.T
    scores = np.empty(labels.size, np.float32)
    length = max(1, scorers.values_at_once // X.shape[1])
    for first in range(0, labels.size, length):
        span = slice(first, first + length)
        np.einsum("ij,ij->i", X[of_rows[span]], weights[labels[span]], out=scores[span])
    return scores if scorers.biases is None else scores + scorers.biases[labels]


def _rounding(rows: Rows, scores: Any, lengths: Any = 1.0) -> Any:
    """Return the difference below which rounding may reverse the order of scores, for rows of these lengths."""
    terms = 0.0 if rows.sparse else rows.n_features
    return np.maximum(np.abs(scores), lengths) * np.float32(terms * _ROUNDING)


@kernel
def best_two(scores, biases, best, largest, second):
    """Add ``biases``, if any, to each row of scores. Write the first largest column and the two largest scores."""
    # Few scores exceed the second largest so far. Comparing it with tiles takes a third of the time of ``top_k``.
    n_labels = scores.shape[1]
    n_in_tiles = n_labels - n_labels % TILE
    for i in range(scores.shape[0]):
        of_row, at, highest, runner_up = scores[i], np.int64(0), -np.float32(np.inf), -np.float32(np.inf)
        for j in range(biases.size):
            of_row[j] += biases[j]
        for first in range(0, n_in_tiles, TILE):
            marks = marks_of(of_row, first, runner_up)
            while marks != 0:
                j = first + first_of(marks)
                marks &= marks - 1
                if of_row[j] > highest:
                    at, highest, runner_up = j, of_row[j], highest
                else:
                    runner_up = max(runner_up, of_row[j])
        for j in range(n_in_tiles, n_labels):
            if of_row[j] > highest:
                at, highest, runner_up = np.int64(j), of_row[j], highest
            else:
                runner_up = max(runner_up, of_row[j])
        best[i], largest[i], second[i] = at, highest, runner_up


def best_of_all(scorers: AllScorers, rows: Rows, lengths: np.ndarray | None = None, usual: int = 0) -> np.ndarray:
    """Return the best label of each row, as int64. Ties go to the lowest label.

    ``lengths`` are the lengths of unscaled rows. ``usual`` is the label of rows that have no score.
    """
    labels = np.empty(rows.n_rows, np.int64)
    if rows.n_rows == 1 and not scorers.sparse and scorers.n_labels > 1:
        alone = _clearly_best(scorers, rows, 1.0 if lengths is None else float(lengths[0]))
        if alone is not None:
            labels[0] = alone
            return labels
    unbiased, biases = scorers, np.empty(0, np.float32)
    if not scorers.sparse and scorers.biases is not None:
        unbiased, biases = scorers._replace(biases=None), scorers.biases  # adding them in the kernel is faster
    for first, scores in blocks_of_scores(unbiased, rows):
        best = labels[first : first + scores.shape[0]]
        if scorers.sparse:
            if rows.n_rows == 1:
                best[0], _ = _first_largest(scores[0])
            else:
                scores.argmax(axis=1, out=best)
            _set_usual(best, scores, usual)
            continue
        largest, second = np.empty((2, best.size), np.float32)
        best_two(scores, biases, best, largest, second)
        near_best = largest - _rounding(rows, largest, 1.0 if lengths is None else lengths[first : first + best.size])
        tied = np.flatnonzero(second >= near_best)
        n_rows = scorers.rows_at_once
        for start in range(0, tied.size, n_rows):
            some = tied[start : start + n_rows]
            row, near = np.nonzero(scores[some] >= near_best[some, None])
            best[some] = _ranked(near, _scores_of_pairs(scorers, rows, first + some[row], near), row, 1)[0][:, 0]
        if biases.size == 0:
            _set_usual(best, scores, usual)
    return labels


def _set_usual(best: np.ndarray, scores: np.ndarray, usual: int) -> None:
    """Replace the best label of rows whose scores are all 0. It is the first of equal labels, which says nothing."""
    first = np.flatnonzero(best == 0)
    first = first[scores[first, 0] == 0.0]
    if first.size > 0:
        best[first[~scores[first].any(axis=1)]] = usual


def _first_largest(scores: np.ndarray) -> tuple[int, float]:
    """Return the position of the first largest score, and the score. Unlike ``argmax``, keep the interpreter lock."""
    largest = np.maximum.reduce(scores)
    return (scores == largest).tobytes().index(1), float(largest)


def _clearly_best(scorers: AllScorers, rows: Rows, length: float) -> int | None:
    """Return the best label of a single dense row, or None if another label is nearly as good."""
    scores = scorers.weights.T @ rows.values
    if scorers.biases is not None:
        scores += scorers.biases
    best, largest = _first_largest(scores)
    scores[best] = -np.inf
    margin = max(abs(largest), length) * rows.n_features * _ROUNDING
    return best if np.maximum.reduce(scores) < largest - margin else None


def top_of_all(scorers: AllScorers, rows: Rows, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the ``k`` best labels of each row (int64) and their scores (float32). Ties go to the lowest label."""
    labels, found = np.empty((rows.n_rows, k), np.int64), np.empty((rows.n_rows, k), np.float32)
    for first, scores in blocks_of_scores(scorers, rows):
        for start in range(0, scores.shape[0], scorers.rows_at_once):
            some = scores[start : start + scorers.rows_at_once]
            worst = top_k(some, k)[1][:, -1]
            row, near = np.nonzero(some >= (worst - _rounding(rows, worst))[:, None])
            span = slice(first + start, first + start + some.shape[0])
            exact = some[row, near] if rows.sparse else _scores_of_pairs(scorers, rows, span.start + row, near)
            labels[span], found[span] = _ranked(near, exact, row, k)
    return labels, found


def best_of_others(scorers: AllScorers, rows: Rows, k: int, common: np.ndarray) -> np.ndarray:
    """Return the ``k`` best dense labels of each row that are not in ``common``, or all if there are fewer: int32."""
    others = np.setdiff1d(np.arange(scorers.n_labels), common)
    biases = None if scorers.biases is None else scorers.biases[others]
    some = scorers._replace(n_labels=others.size, weights=scorers.weights[:, others], biases=biases)
    found = np.empty((rows.n_rows, min(k, others.size)), np.int32)
    for first, scores in blocks_of_scores(some, rows):
        found[first : first + scores.shape[0]] = others[top_k(scores, found.shape[1])[0]]
    return found


def all_above(scorers: AllScorers, rows: Rows, lowest: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows, labels and scores of all pairs with a score above ``lowest`` (int64, int64, float32)."""
    found = []
    near_best = lowest - float(_rounding(rows, lowest))
    for first, scores in blocks_of_scores(scorers, rows):
        row, labels = np.divmod(np.flatnonzero(scores > near_best), scorers.n_labels)
        exact = scores[row, labels] if rows.sparse else _scores_of_pairs(scorers, rows, first + row, labels)
        kept = exact > lowest
        found.append((first + row[kept], labels[kept], exact[kept]))
    of_rows, labels, above = (np.concatenate(part) for part in zip(*found, strict=True))
    return of_rows, labels, above


def _ranked(labels: np.ndarray, scores: np.ndarray, of_rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the ``k`` best labels of each row and their scores, from pairs sorted by row."""
    starts = np.flatnonzero(np.diff(of_rows, prepend=-1))
    best = np.lexsort((labels, -scores, of_rows))[starts[:, None] + np.arange(k)]
    return labels[best], scores[best]
