"""Kernels: the digest, a read-only copy of the head's scorers for fast scoring.

Sparse scorers become lists without gaps. Dense scorers are stored as bfloat16, which halves the memory traffic at a
relative error of at most 1/500.
"""

from typing import Annotated, NamedTuple

import numpy as np
import scipy.sparse

from .. import _forest as forests
from .._jit import by_reference, empty, inner, inner_fastmath, kernel, release

_ROUNDED_AT_ONCE = 1 << 20  # number of weights rounded in one batch


class Digest(NamedTuple):
    """A read-only copy of all scorers of a head, or empty arrays.

    Label ``l`` has the sparse entries ``offsets[l]:offsets[l + 1]``. Dense scorers are the rows of ``halves``.
    """

    offsets: Annotated[np.ndarray, forests.kind_of(np.int64, "offsets of the digest")]
    features: Annotated[np.ndarray, forests.kind_of(np.int32, "entries of the digest")]
    weights: Annotated[np.ndarray, forests.kind_of(np.float32, "entries of the digest")]
    halves: Annotated[
        np.ndarray, forests.kind_of(np.uint16, "labels of the dense digest", "features of the dense digest")
    ]

    @property
    def n_labels(self) -> int:
        """The number of labels with sparse scorers."""
        return self.offsets.size - 1


_EMPTY = Digest(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), np.empty((0, 0), np.uint16))


def offsets_of(counts: np.ndarray) -> np.ndarray:
    """Return the starts of consecutive lists with these lengths, and the end of the last list."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])


def new_digest(n_cells: np.ndarray) -> Digest:
    """Return an uninitialised digest for sparse scorers with these numbers of cells."""
    offsets = offsets_of(n_cells)
    features, weights = np.empty(offsets[-1], np.int32), np.empty(offsets[-1], np.float32)
    return Digest(offsets, features, weights, np.empty((0, 0), np.uint16))


def digest_of(weights: np.ndarray) -> Digest:
    """Return the digest of dense scorers, which are float32 of shape (labels, features)."""
    halves, length = np.empty(weights.shape, np.uint16), max(1, _ROUNDED_AT_ONCE // weights.shape[1])
    for first in range(0, weights.shape[0], length):
        bits = np.ascontiguousarray(weights[first : first + length]).view(np.uint32)
        halves[first : first + length] = (bits + np.uint32(0x8000)) >> np.uint32(16)
    return no_digest()._replace(halves=halves)


class Common(NamedTuple):
    """Labels that are candidates for every row, and their sparse scorers grouped by feature.

    Feature ``f`` has the entries ``offsets[f]:offsets[f + 1]``. Common labels are scored together, which reads only the
    weights of the row's features.
    """

    labels: Annotated[np.ndarray, forests.kind_of(np.int64, "common labels")]
    # a single entry if the scorers are not laid out
    offsets: Annotated[np.ndarray, forests.kind_of(np.int64, "offsets of common labels")]
    # the position in ``labels`` of each entry's label
    places: Annotated[np.ndarray, forests.kind_of(np.int32, "entries of common labels")]
    weights: Annotated[np.ndarray, forests.kind_of(np.float32, "entries of common labels")]


def common_labels(labels: np.ndarray) -> Common:
    """Return common labels whose scorers are not laid out."""
    return Common(labels, np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32))


def laid_out(common: Common, digest: Digest, n_features: int) -> Common:
    """Return common labels with their scorers from ``digest``, grouped by feature."""
    scorers = scipy.sparse.csr_array((digest.weights, digest.features, digest.offsets), (digest.n_labels, n_features))
    columns = scorers[common.labels].tocsc()
    return Common(common.labels, columns.indptr.astype(np.int64), columns.indices.astype(np.int32), columns.data)


def no_digest() -> Digest:
    """Return an empty digest. All empty digests share their arrays."""
    return Digest(*_EMPTY)


@kernel
def list_cells(models, digest):
    """Write the features and the weights of sparse models to a digest."""
    models = by_reference(models)
    table = models.table
    for label in range(digest.offsets.size - 1):
        end = digest.offsets[label]
        if models.nodes[0, label]["table_bits"] > 0:
            start = forests.table_start(models, forests.ONLY_TREE, label)
            for cell in range(start, start + (1 << np.int64(models.nodes[0, label]["table_bits"]))):
                if table[0, cell]["feature"] != forests.NONE:
                    digest.features[end] = table[0, cell]["feature"]
                    digest.weights[end] = table[0, cell]["weight"]
                    end += 1


@kernel
def enter_lists(models, digest):
    """Write the weights of a digest to models that have room and no tables yet."""
    models = by_reference(models)
    longest = 0
    for label in range(digest.offsets.size - 1):
        longest = max(longest, digest.offsets[label + 1] - digest.offsets[label])
    cells = empty(longest, np.int64)
    for label in range(digest.offsets.size - 1):
        a, b = digest.offsets[label], digest.offsets[label + 1]
        if a < b:
            row = forests.Row(digest.weights, digest.features, a, b, forests.UNSCALED)
            forests.locate_or_insert_cells(models, forests.ONLY_TREE, label, row, cells)
            for i in range(b - a):
                models.table[0, cells[i]]["weight"] = digest.weights[a + i]
    release(cells)


@inner_fastmath
def _halved_dot(values, halves):
    total = np.float32(0.0)
    for i in range(values.size):
        total += values[i] * np.uint32(np.uint32(halves[i]) << np.uint32(16)).view(np.float32)
    return total


@inner
def digested_margin(digest, label, probe):
    """Return a label's score, without its bias, for the row for which ``probe`` was prepared."""
    if digest.halves.size > 0:
        return _halved_dot(probe.values, digest.halves[label])
    a, b = digest.offsets[label], digest.offsets[label + 1]
    if probe.features.size > 0:
        total = np.float32(0.0)
        for i in range(a, b):
            total += forests.value_of(probe, np.int64(digest.features[i])) * digest.weights[i]
        return total
    return forests.gathered_dot(probe.values, digest.features[a:b], digest.weights[a:b])
