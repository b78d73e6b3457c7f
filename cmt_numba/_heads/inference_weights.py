"""Kernels: the digest of a head, whose sparse scorers are lists without gaps there, for fast scoring."""

from typing import Annotated, NamedTuple

import numpy as np
import scipy.sparse

from .. import _kernels as kernels
from .. import _linear as linear
from .._jit import by_reference, empty, inner, kernel, release
from .._postings import Digest, offsets_of

_EMPTY = Digest(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32))


def new_digest(n_cells: np.ndarray) -> Digest:
    """Return an uninitialised digest for sparse scorers with these numbers of cells."""
    offsets = offsets_of(n_cells)
    features, weights = np.empty(offsets[-1], np.int32), np.empty(offsets[-1], np.float32)
    return Digest(offsets, features, weights)


class Common(NamedTuple):
    """Labels that are candidates for every row, and their sparse scorers grouped by feature.

    Feature ``f`` has the entries ``offsets[f]:offsets[f + 1]``. Common labels are scored together, which reads only the
    weights of the row's features.
    """

    labels: Annotated[np.ndarray, kernels.kind_of(np.int64, "common labels")]
    # a single entry if the scorers are not laid out
    offsets: Annotated[np.ndarray, kernels.kind_of(np.int64, "offsets of common labels")]
    # the position in ``labels`` of each entry's label
    places: Annotated[np.ndarray, kernels.kind_of(np.int32, "entries of common labels")]
    weights: Annotated[np.ndarray, kernels.kind_of(np.float32, "entries of common labels")]


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
        if models.records[0, label]["table_bits"] > 0:
            start = linear.table_start(models, linear.ONLY_GROUP, label)
            for cell in range(start, start + (1 << np.int64(models.records[0, label]["table_bits"]))):
                if table[0, cell]["feature"] != kernels.NONE:
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
            row = kernels.Row(digest.weights, digest.features, a, b, kernels.UNSCALED)
            linear.locate_or_insert_cells(models, linear.ONLY_GROUP, label, row, cells)
            for i in range(b - a):
                models.table[0, cells[i]]["weight"] = digest.weights[a + i]
    release(cells)


@inner
def digested_margin(digest, label, probe):
    """Return a label's score, without its bias, for the row for which ``probe`` was prepared."""
    a, b = digest.offsets[label], digest.offsets[label + 1]
    if probe.features.size > 0:
        total = np.float32(0.0)
        for i in range(a, b):
            total += kernels.value_of(probe, np.int64(digest.features[i])) * digest.weights[i]
        return total
    return kernels.gathered_dot(probe.values, digest.features[a:b], digest.weights[a:b])
