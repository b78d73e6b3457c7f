"""Kernels: an inverted index of the head's sparse scorers.

A short text is often identified by one or two rare words. For each feature, the index lists the labels with a weight
for the feature, in descending order of weight. A search reads the lists of a row's rare, heavy features until it has
found enough labels.

Training against competitors also gives scorers weights of the opposite sign, which say little about a row. A list
therefore holds only weights with the sign of the feature's total weight.
"""

from typing import Annotated, NamedTuple

import numpy as np

from .._change import spans
from .._jit import inner
from .._kernels import NONE, kind_of

_MOST_LISTS = 32  # maximum number of lists read for a row
RUN = 128  # number of entries read between checks whether to continue
_ANY = np.float32(-np.inf)
_AT_ONCE = 1 << 20  # number of cells compared in one batch


class Digest(NamedTuple):
    """A read-only copy of all sparse scorers of a head, or empty arrays: label ``l`` has ``offsets[l]:offsets[l + 1]``.

    Each new digest, even an empty one, is a new object, which identifies a version of the scorers.
    """

    offsets: Annotated[np.ndarray, kind_of(np.int64, "offsets of the digest")]
    features: Annotated[np.ndarray, kind_of(np.int32, "entries of the digest")]
    weights: Annotated[np.ndarray, kind_of(np.float32, "entries of the digest")]

    @property
    def n_labels(self) -> int:
        """The number of labels with sparse scorers."""
        return self.offsets.size - 1


def offsets_of(counts: np.ndarray) -> np.ndarray:
    """Return the starts of consecutive lists with these lengths, and the end of the last list."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])


class Postings(NamedTuple):
    """Posting lists of sparse scorers, as of some earlier time: feature ``f`` has ``offsets[f]:offsets[f + 1]``."""

    # a single entry if there is no index
    offsets: Annotated[np.ndarray, kind_of(np.int64, "offsets of the index")]
    labels: Annotated[np.ndarray, kind_of(np.int32, "entries of the index")]
    weights: Annotated[np.ndarray, kind_of(np.float32, "entries of the index")]
    n_labels: int  # number of labels when the index was built


def no_postings() -> Postings:
    """Return an empty index."""
    return Postings(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), 0)


def heavy_cells(digest: Digest, lightest: float, excluded: np.ndarray, *, cells_at_once: int = _AT_ONCE) -> np.ndarray:
    """Return a mask of cells of at least ``lightest`` times their label's largest weight, but not of ``excluded``."""
    heavy, left_out = np.zeros(digest.weights.size, np.bool_), np.zeros(digest.n_labels, np.bool_)
    left_out[excluded] = True
    labels_at_once = max(1, cells_at_once * digest.n_labels // max(1, digest.features.size))
    for first, stop in spans(digest.n_labels, labels_at_once):
        offsets = digest.offsets[first : stop + 1]
        n_cells, magnitudes = np.diff(offsets), np.abs(digest.weights[offsets[0] : offsets[-1]])
        least = np.zeros(n_cells.size, np.float32)
        some = n_cells > 0
        if some.any():
            least[some] = np.float32(lightest) * np.maximum.reduceat(magnitudes, offsets[:-1][some] - offsets[0])
        least[left_out[first:stop]] = np.inf
        heavy[offsets[0] : offsets[-1]] = (magnitudes > 0.0) & (magnitudes >= np.repeat(least, n_cells))
    return heavy


def list_by_feature(digest: Digest, listed: np.ndarray, n_features: int, *, cells_at_once: int = _AT_ONCE) -> Postings:
    """Return an inverted index of the cells in the mask ``listed``, all of which must be nonzero.

    Leaves out cells whose sign differs from that of their feature's total weight, and clears ``listed`` for them.
    """
    parts = [slice(*span) for span in spans(listed.size, cells_at_once)]  # to limit memory
    totals = np.zeros(n_features)
    for part in parts:
        np.add.at(totals, digest.features[part][listed[part]], digest.weights[part][listed[part]].astype(np.float64))
    upright = totals >= 0.0
    for part in parts:
        listed[part] &= upright[digest.features[part]] == (digest.weights[part] > 0.0)
    cells = np.flatnonzero(listed)
    n_of_label = np.diff(np.searchsorted(cells, digest.offsets))
    features, weights = digest.features[cells], digest.weights[cells]
    del cells
    # Sort by feature, then by descending weight: nonnegative floats sort like their bits.
    keys = features.astype(np.uint64)
    keys <<= np.uint64(32)
    keys |= ~np.abs(weights).view(np.uint32)
    order = np.argsort(keys, kind="stable")
    del keys
    labels = np.repeat(np.arange(digest.n_labels, dtype=np.int32), n_of_label)
    offsets = offsets_of(np.bincount(features, minlength=n_features))
    return Postings(offsets, labels[order], weights[order], digest.n_labels)


@inner
def _set_priorities(postings, priorities, x):
    """Write the priority of each feature's list. Short lists and lists of heavy cells come first."""
    for i in range(x.b - x.a):
        feature, value = x.indices[x.a + i], x.values[x.a + i]
        first = postings.offsets[feature]
        length = postings.offsets[feature + 1] - first
        fits = length > 0 and value * postings.weights[first] > 0.0
        priorities[i] = value * value / np.float32(length) if fits else np.float32(0.0)


@inner
def next_list(priorities, n_cells):
    """Return the cell whose list has the highest priority, or NONE if all lists have been read."""
    next_cell, highest = NONE, np.float32(0.0)
    for i in range(n_cells):
        if priorities[i] > highest:
            next_cell, highest = np.int64(i), priorities[i]
    return next_cell


@inner
def meet_list(postings, entry, end, value, least, sums, labels, n_found):
    """Add ``value`` times a list's weights to the sums of their labels, until ``labels`` is full.

    Stops at a weight that adds at most ``least``. Returns the number of labels found, and the first unread entry.
    Entries are read in runs whose labels fit into ``labels``, so the loop over a run needs no check.
    """
    while entry < end and n_found < labels.size and value * postings.weights[entry] > least:
        run_end = min(end, entry + min(RUN, labels.size - n_found))
        for i in range(entry, run_end):
            label = np.int64(postings.labels[i])
            total = sums[label]
            labels[n_found] = label
            n_found += np.int64(total == 0.0)
            sums[label] = total + value * postings.weights[i]
        entry = run_end
    return n_found, entry


@inner
def add_to_met(postings, entry, end, value, sums):
    """Add a list's entries to the sums of labels that have already been found."""
    for i in range(entry, end):
        label = np.int64(postings.labels[i])
        met = np.float32(sums[label] != 0.0)  # branchless, because half of the branches would be mispredicted
        sums[label] += met * value * postings.weights[i]


@inner
def meet_labels(postings, priorities, x, sums, labels, n_found, n_further):
    """Append labels from the posting lists of row ``x`` to the first ``n_found`` labels, until ``labels`` is full.

    Then read up to ``n_further`` entries that only add to the sums of labels already found, so that the order of the
    lists matters less. A label has been found if its sum is not 0. ``priorities`` is a buffer with an entry for each
    cell of the row. Returns the number of labels, and leaves their partial scores in ``sums``.
    """
    _set_priorities(postings, priorities, x)
    for _ in range(_MOST_LISTS):
        i = next_list(priorities, x.b - x.a)
        if i == NONE or (n_found == labels.size and n_further == 0):
            break
        priorities[i] = 0.0
        feature, value = x.indices[x.a + i], x.values[x.a + i]
        start, end = postings.offsets[feature], postings.offsets[feature + 1]
        n_found, entry = meet_list(postings, start, end, value, _ANY, sums, labels, n_found)
        end = min(end, entry + n_further)
        add_to_met(postings, entry, end, value, sums)
        n_further -= end - entry
    return n_found


@inner
def _sift_down(heap, sums, i):
    """Restore the heap below position ``i``. The label with the smallest sum is at the top.

    Unlike the heap in ``_forest/search.py``, this heap holds labels and compares their sums in another array.
    """
    label = heap[i]
    while True:
        below = 2 * i + 1
        if below >= heap.size:
            break
        if below + 1 < heap.size and sums[heap[below + 1]] < sums[heap[below]]:
            below += 1
        if sums[heap[below]] >= sums[label]:
            break
        heap[i] = heap[below]
        i = below
    heap[i] = label


@inner
def keep_best_labels(labels, sums, n_kept):
    """Move the ``n_kept`` labels with the largest sums to the front; return their number."""
    if labels.size <= n_kept:
        return labels.size
    heap = labels[:n_kept]
    for i in range(n_kept // 2 - 1, -1, -1):
        _sift_down(heap, sums, i)
    for i in range(n_kept, labels.size):
        label = labels[i]
        if sums[label] > sums[heap[0]]:
            labels[i] = heap[0]
            heap[0] = label
            _sift_down(heap, sums, 0)
    return n_kept
