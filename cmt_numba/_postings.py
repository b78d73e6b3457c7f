"""Kernels: an inverted index of the head's sparse scorers: which labels weigh a feature most.

Routers follow the features that many labels share. What tells a short text apart is often a word or two that hardly any
other label has, and no router above it need have met them. The index finds these labels at once: it lists, for every
feature, the labels that weigh it, the heaviest first, and a row goes through the lists of its rarest heavy features
until it has met as many labels as it may. Rivals see to it that scorers have negative weights too; those say little
about a row, so a list holds only weights of the sign that the feature's weights have on the whole.
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse

from ._jit import inner, inner_allocating
from ._scan import Best, new_best, offer
from ._seen import is_new
from ._state import NONE

_MOST_LISTS = 32  # that a row goes through


class Postings(NamedTuple):
    """The weights of sparse scorers by feature; feature ``f`` has the entries ``offsets[f] .. offsets[f + 1]``.

    It may be older than the scorers: labels and weights that are new are not listed.
    """

    offsets: np.ndarray  # int64 (features + 1,), or (1,) where there is no index
    labels: np.ndarray  # int32
    weights: np.ndarray  # float32
    n_labels: int  # that the head had


class Walk(NamedTuple):
    """Room for going through lists."""

    priorities: np.ndarray  # float32 (longest row,): of a row's cells, 0 where done with
    sums: np.ndarray  # float32 (labels,): what the lists say of a label so far; 0 between walks
    best: Best


def no_postings() -> Postings:
    """Return an index that lists nothing."""
    return Postings(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), 0)


def list_by_feature(offsets: np.ndarray, features: np.ndarray, weights: np.ndarray, n_features: int) -> Postings:
    """Return the index of scorers, of which label ``l`` has the cells ``offsets[l] .. offsets[l + 1]``."""
    n_labels = offsets.size - 1
    upright = np.bincount(features, weights, minlength=n_features) >= 0.0
    kept = np.flatnonzero((weights != 0.0) & (upright[features] == (weights > 0.0)))
    kept = kept[np.argsort(-np.abs(weights[kept]), kind="stable")]
    labels = np.repeat(np.arange(n_labels, dtype=np.int32), np.diff(offsets))
    # Conversion to rows by feature keeps the order of the entries within a row.
    entries = scipy.sparse.coo_array((np.arange(kept.size), (features[kept], labels[kept])), (n_features, n_labels))
    by_feature = entries.tocsr()
    ranked = kept[by_feature.data]
    return Postings(by_feature.indptr.astype(np.int64), labels[ranked], weights[ranked], n_labels)


@inner_allocating
def new_walk(n_labels, longest, n_best):
    """Return room for walks of rows of up to ``longest`` cells, each of which may end with ``n_best`` labels."""
    return Walk(np.empty(longest, np.float32), np.zeros(n_labels, np.float32), new_best(n_best, 0))


@inner
def _set_priorities(postings, walk, x):
    """Let heavy cells come before light ones, and short lists before long ones."""
    for i in range(x.b - x.a):
        feature, value = x.indices[x.a + i], x.values[x.a + i]
        first = postings.offsets[feature]
        length = postings.offsets[feature + 1] - first
        fits = length > 0 and value * postings.weights[first] > 0.0
        walk.priorities[i] = value * value / np.float32(length) if fits else np.float32(0.0)


@inner
def _next_list(walk, n_cells):
    """Return the cell whose list comes next, NONE after the last one."""
    next_cell, highest = NONE, np.float32(0.0)
    for i in range(n_cells):
        if walk.priorities[i] > highest:
            next_cell, highest = np.int64(i), walk.priorities[i]
    return next_cell


@inner
def meet_labels(postings, walk, x, seen, search, labels, n_found):
    """Append the labels that row ``x`` meets to the ``n_found`` there are, until ``labels`` is full.

    Labels that this search has seen are left out. Returns how many labels there are then.
    """
    _set_priorities(postings, walk, x)
    most = labels.size
    for _ in range(_MOST_LISTS):
        i = _next_list(walk, x.b - x.a)
        if i == NONE or n_found == most:
            break
        walk.priorities[i] = 0.0
        feature, value = x.indices[x.a + i], x.values[x.a + i]
        for entry in range(postings.offsets[feature], postings.offsets[feature + 1]):
            label = np.int64(postings.labels[entry])
            if walk.sums[label] == 0.0:
                if n_found == most:
                    break
                if not is_new(seen, search, label):
                    continue
                labels[n_found] = label
                n_found += 1
            walk.sums[label] += value * postings.weights[entry]
    return n_found


@inner
def keep_best(walk, labels, first, end):
    """Keep those of the labels met, ``first .. end``, of which the lists say most; return where they end then."""
    best = walk.best
    best.n_found[0] = 0
    for i in range(first, end):
        label = labels[i]
        value = walk.sums[label]
        walk.sums[label] = 0.0
        if best.n_found[0] < best.scores.size or value >= best.scores[best.scores.size - 1]:
            offer(best, value, ~np.uint64(label), label)
    for i in range(best.n_found[0]):
        labels[first + i] = best.slots[i]
    return first + best.n_found[0]
