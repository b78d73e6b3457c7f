"""The one-against-some head: a linear scorer for each label, trained against the candidates of an example.

A scorer starts as the mean of its label's examples, scaled to length 1, so initial scores are cosines. MIRA needs no
AdaGrad accumulators, so their arrays hold the sums of each label's examples. Additional examples update the mean within
a scorer and keep its other changes.

Sparse scorers learn in hash tables. Between trainings, the lists of the digest can replace the tables, which saves two
thirds of the memory. Tables are rebuilt before the next training, but the sums of examples are lost.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, NamedTuple

import numpy as np
import scipy.sparse

from .. import _kernels as kernels
from .. import _linear as linear
from .._jit import by_reference, inner, kernel, known, release
from .._postings import Digest, Postings, heavy_cells, list_by_feature, no_postings
from . import inference_weights as digests


class HeadLoss(IntEnum):
    """Losses and their numbers in files."""

    SOFTMAX = 0
    LOGISTIC = 1
    MIRA = 2


NEGLIGIBLE = 0.04  # weights of a rare label below this fraction of its largest weight are dropped
_SHORTEST = np.float32(1e-6)  # relative squared length below which a sum of examples is only rounding error
_CELLS_IN_A_LOOKUP = 12  # break-even point: one table lookup takes about as long as reading this many cells of a digest

HEAD_LOSSES = {loss.name.lower(): int(loss) for loss in HeadLoss}


class HeadParameters(NamedTuple):
    n_features: int
    sparse: bool
    loss: int
    learning_rate: float


class LabelScorers(NamedTuple):
    """The parts of a head that kernels need to find and score labels."""

    models: linear.LinearModels
    digest: Digest
    postings: Postings
    common: digests.Common
    gaps: np.ndarray
    loss: int
    learning_rate: float


class Head(NamedTuple):
    """The scorers of all labels: a group of linear models, in which label ``l`` is model ``l``."""

    parameters: HeadParameters
    labels: Annotated[np.ndarray, kernels.kind_of(linear.MODEL, "groups", "labels")]
    weights: linear.ModelWeights
    counters: Annotated[np.ndarray, kernels.kind_of(np.int64, "groups", linear.N_MODEL_COUNTERS)]
    digest: Digest
    postings: Postings
    common: digests.Common
    # number of measured examples, and the sum of their gaps (see ``multiclass_svm.py``)
    gaps: Annotated[np.ndarray, kernels.kind_of(np.float64, 2)]

    @property
    def n_labels(self) -> int:
        return int(self.counters[0, linear.MODELS_END])

    @property
    def models(self) -> linear.LinearModels:
        (n_features, sparse, *_), (weights, table) = self.parameters, self.weights
        return linear.LinearModels(n_features, known(sparse), self.labels, weights, table, self.counters)

    def with_models(self, models: linear.LinearModels) -> Head:
        """Return a copy with other scorers, which are the models."""
        weights = linear.ModelWeights(models.weights, models.table)
        return self._replace(labels=models.records, weights=weights, counters=models.counters)

    @property
    def scorers(self) -> LabelScorers:
        """The parts of the head for kernels that score candidates."""
        parameters = self.parameters
        return LabelScorers(
            self.models, self.digest, self.postings, self.common, self.gaps, parameters.loss, parameters.learning_rate
        )


def new_head(parameters: HeadParameters) -> Head:
    """Return a head without labels."""
    counters = np.full((1, linear.N_MODEL_COUNTERS), kernels.NONE, np.int64)
    counters[:, [linear.MODELS_END, linear.TABLES_END, linear.CELLS_WANTED]] = 0
    return Head(
        parameters=parameters,
        labels=np.zeros((1, 0), linear.MODEL),
        weights=linear.ModelWeights(dense=np.empty((1, 0), np.float32), table=np.empty((1, 0), linear.WEIGHT_CELL)),
        counters=counters,
        digest=digests.no_digest(),
        postings=no_postings(),
        common=digests.common_labels(np.empty(0, np.int64)),
        gaps=np.zeros(2),
    )


def with_labels(head: Head, rows: kernels.Rows, lengths: np.ndarray | None = None) -> Head:
    """Return a head with a new label for each row, whose scorer starts as the row.

    Rows are means of unit length. ``lengths``, float32, are the lengths of the sums of examples (default: 1). The input
    head does not change, so a failed insertion can be undone.
    """
    head = head._replace(counters=head.counters.copy())
    lengths = np.ones(rows.n_rows, np.float32) if lengths is None else lengths
    first = head.n_labels
    n_labels = first + rows.n_rows
    if n_labels > head.labels.shape[1]:
        head = linear.with_room_for_models(head, max(n_labels, 2 * head.labels.shape[1]))
    while start_labels(head.models, head.parameters.loss == HeadLoss.MIRA, rows, lengths, first) != linear.DONE:
        head = with_more_cells(head)
    return head


def with_more_cells(head: Head) -> Head:
    """Return a head with twice as many cells for sparse scorers, or more if needed."""
    used, wanted = int(head.counters[0, linear.TABLES_END]), int(head.counters[0, linear.CELLS_WANTED])
    return linear.with_tables(head, max(2 * used, used + wanted))


def without_room(models: linear.LinearModels) -> linear.LinearModels:
    """Return models that share all arrays but cannot allocate tables, so that threads can train different labels."""
    counters = models.counters.copy()
    counters[:, linear.TABLES_END] = models.table.shape[1]
    counters[:, linear.FREE_TABLES :] = kernels.NONE
    return models._replace(counters=counters)


def count_in_means(head: Head, rows: kernels.Rows, labels: np.ndarray) -> Head:
    """Add rows to the means of their labels; return the head, or a larger head if tables were full. For MIRA only."""
    at = np.zeros(1, np.int64)
    while move_means(head.models, rows, labels, at) != linear.DONE:
        head = with_more_cells(head)
    return head


def without_negligible_weights(head: Head) -> Head:
    """Return a sparse head without negligible weights.

    Training against competitors gives a label many small weights, which make its table larger and slower without
    changing answers. Common labels keep all weights: they learn from all rows, and their many small weights matter
    together.
    """
    pruned = _with_new_table(head, int(head.counters[0, linear.TABLES_END]))
    pruned.labels["table_bits"] = 0
    pruned.counters[0, linear.TABLES_END] = 0
    pruned.counters[0, linear.FREE_TABLES :] = kernels.NONE
    shares = np.full(pruned.labels.shape[1], NEGLIGIBLE, np.float32)
    shares[head.common.labels] = 0.0
    copy_labels(pruned.models, head.models, shares)
    # Resize in place, because a copy would need the memory of a third table.
    room = min(int(linear.SPARE * pruned.counters[0, linear.TABLES_END]), head.weights.table.shape[1])
    pruned.weights.table.resize((1, room), refcheck=False)
    return pruned


def _with_new_table(head: Head, size: int) -> Head:
    weights = head.weights._replace(table=np.empty((1, size), linear.WEIGHT_CELL))
    return head._replace(labels=head.labels.copy(), counters=head.counters.copy(), weights=weights)


def with_only(head: Head, labels: np.ndarray) -> Head:
    """Return an independent copy of a head with only ``labels``, numbered in this order, without digest and index."""
    n_labels, d = head.n_labels, head.parameters.n_features
    counters, weights = head.counters.copy(), head.weights
    counters[0, linear.MODELS_END] = labels.size
    number = np.full(n_labels, kernels.NONE, np.int64)
    number[labels] = np.arange(labels.size)
    common = number[head.common.labels]
    if not head.parameters.sparse:
        dense = weights.dense[0, : n_labels * 2 * d].reshape(n_labels, 2 * d)
        weights = weights._replace(dense=dense[labels].reshape(1, -1))
    fewer = head._replace(
        labels=head.labels[:, labels],
        counters=counters,
        weights=weights,
        digest=digests.no_digest(),
        postings=no_postings(),
        common=digests.common_labels(common[common != kernels.NONE]),
        gaps=head.gaps.copy(),
    )
    return linear.with_tables(fewer, linear.max_cells_in_use(fewer.models)) if head.parameters.sparse else fewer


def as_ready_as(head: Head, other: Head, lightest: float) -> Head:
    """Give a head a digest and an index if ``other`` has them; return the head."""
    if other.digest.n_labels > 0:
        head = with_digest(head)
    return with_index(head, lightest) if other.postings.n_labels > 0 else head


def weights_of_labels(head: Head, labels: np.ndarray) -> np.ndarray | scipy.sparse.csr_array:
    """Return the scorers of some labels, without biases, as rows of a matrix, which is sparse for a sparse head."""
    n_labels, d = head.n_labels, head.parameters.n_features
    if not head.parameters.sparse:
        return dense_parts(head)[0][labels]
    digest = head.digest if head.digest.n_labels == n_labels else with_digest(head).digest
    return scipy.sparse.csr_array((digest.weights, digest.features, digest.offsets), (n_labels, d))[labels]


def dense_parts(head: Head) -> tuple[np.ndarray, np.ndarray]:
    """Return views of the scorers of a dense head and, with MIRA, of the sums of examples: a row for each label."""
    n_labels, d = head.n_labels, head.parameters.n_features
    parts = head.weights.dense[0, : n_labels * 2 * d].reshape(n_labels, 2, d)
    return parts[:, 0], parts[:, 1]


def is_in_lists(head: Head) -> bool:
    """Return whether the scorers of a sparse head are only in the lists of its digest, without tables."""
    return head.digest.features.size > 0 and head.counters[0, linear.TABLES_END] == 0


def with_lists(head: Head, digest: Digest) -> Head:
    """Return a sparse head whose scorers are the lists of ``digest``, without tables."""
    labels, counters = head.labels.copy(), head.counters.copy()
    labels["table_bits"], labels["table_used"] = 0, 0
    counters[0, [linear.TABLES_END, linear.CELLS_WANTED]] = 0
    counters[0, linear.FREE_TABLES :] = kernels.NONE
    weights = head.weights._replace(table=np.empty((1, 0), linear.WEIGHT_CELL))
    return head._replace(labels=labels, counters=counters, weights=weights, digest=digest)


def with_means_in_lists(head: Head, means: kernels.Rows) -> Head:
    """Return a copy of an empty sparse head with a scorer for each row of ``means``, in lists without tables."""
    head = linear.with_room_for_models(head._replace(counters=head.counters.copy()), means.n_rows)
    head.counters[0, linear.MODELS_END] = means.n_rows
    lists = {"offsets": means.offsets, "features": means.indices, "weights": means.values}
    return with_lists(head, digests.no_digest()._replace(**lists))


def with_lists_of(head: Head, labels: np.ndarray) -> Head:
    """Return a sparse head without tables in which only ``labels`` keep their lists."""
    n_cells = np.zeros(head.n_labels, np.int64)
    n_cells[labels] = np.diff(head.digest.offsets)[labels]
    digest = digests.new_digest(n_cells)
    for label in labels:
        old, new = (slice(offsets[label], offsets[label + 1]) for offsets in (head.digest.offsets, digest.offsets))
        digest.features[new], digest.weights[new] = head.digest.features[old], head.digest.weights[old]
    return with_lists(head, digest)


def without_tables(head: Head) -> Head:
    """Return a sparse head without tables if its digest contains the scorers; otherwise return the head."""
    return with_lists(head, head.digest) if head.digest.features.size > 0 and not is_in_lists(head) else head


def cells_of_tables(head: Head) -> int:
    """Return the number of cells in the tables of a sparse head. If it has none, return the number to rebuild them."""
    if not is_in_lists(head):
        return int(head.counters[0, linear.TABLES_END])
    n_cells = np.diff(head.digest.offsets)
    sizes = np.where(n_cells > 0, np.int64(1) << linear.SMALLEST_TABLE_BITS, 0)
    while (short := 3 * sizes < 4 * n_cells).any():  # the rule of ``sparse_weights.table_bits``
        sizes[short] *= 2
    return int(sizes.sum())


def without_digest(head: Head) -> Head:
    """Return a head without a digest, which can be trained."""
    if is_in_lists(head):
        head = _with_new_table(head, int(linear.SPARE * cells_of_tables(head)))
        digests.enter_lists(head.models, head.digest)
    common = head.common if head.common.offsets.size == 1 else digests.common_labels(head.common.labels)
    return head._replace(digest=digests.no_digest(), common=common)


def with_digest(head: Head) -> Head:
    """Return a sparse head with a digest, which is valid until the next training; dense heads have none."""
    n_labels, d = head.n_labels, head.parameters.n_features
    if not head.parameters.sparse:
        return head
    if is_in_lists(head):
        digest = head.digest
    else:
        digest = digests.new_digest(head.labels[0, :n_labels]["table_used"])
        digests.list_cells(head.models, digest)
    common = digests.laid_out(head.common, digest, d) if head.common.labels.size > 0 else head.common
    return head._replace(digest=digest, common=common)


def with_index(head: Head, lightest: float = 0.0) -> Head:
    """Return a sparse head with a new index of the labels that are not common; dense heads have none.

    The index omits weights below ``lightest`` times the label's largest weight.
    """
    if not head.parameters.sparse:
        return head
    digest = head.digest if head.digest.features.size > 0 else with_digest(head).digest
    listed = heavy_cells(digest, lightest, head.common.labels)
    return head._replace(postings=list_by_feature(digest, listed, head.parameters.n_features))


@inner
def score_label(head, label, probe, x):
    """Return a label's score for row ``x``, for which ``probe`` was prepared."""
    digest, in_tables = head.digest, head.models.table.size > 0
    if digest.features.size == 0 or (probe.features.size > 0 and in_tables):
        return linear.probed_margin(head.models, linear.ONLY_GROUP, label, probe, x)
    if head.models.sparse and in_tables:
        n_cells = digest.offsets[label + 1] - digest.offsets[label]
        if n_cells > _CELLS_IN_A_LOOKUP * (x.b - x.a):
            return linear.margin_of(head.models, linear.ONLY_GROUP, label, x)
    return head.models.records[0, label]["bias"] + digests.digested_margin(digest, label, probe)


@inner
def score_common(head, x, scores):
    """Write the scores of the common labels for row ``x`` if they are laid out; return the number of scores."""
    common = head.common
    if not head.models.sparse or common.offsets.size == 1:
        return 0
    for i in range(scores.size):
        scores[i] = head.models.records[0, common.labels[i]]["bias"]
    for i in range(x.a, x.b):
        feature, value = x.indices[i], x.values[i]
        for entry in range(common.offsets[feature], common.offsets[feature + 1]):
            scores[common.places[entry]] += value * common.weights[entry]
    return scores.size


@kernel
def copy_labels(target, source, shares):
    """Copy scorers to ``target``, which must have room, without weights below ``shares[label]`` times the largest."""
    target = by_reference(target)
    source = by_reference(source)
    for label in range(source.counters[0, linear.MODELS_END]):
        if source.records[0, label]["table_bits"] > 0:
            linear.copy_heavy_cells(target, source, linear.ONLY_GROUP, label, shares[label])


@inner
def reset_label(models, label):
    """Set the bias, the dense weights and the sum of examples of a label to 0. A sparse label must have no table."""
    linear.reset_model(models, linear.ONLY_GROUP, label)
    models.records[0, label]["sum_square"] = 0.0


@inner
def _start_label(models, sums, rows, lengths, row, label, work):
    x = kernels.row_of(rows, row)
    reset_label(models, label)
    models.records[0, label]["table_bits"] = 0  # discard a failed attempt
    models.records[0, label]["table_used"] = 0
    if linear.locate_or_insert(models, linear.ONLY_GROUP, label, x, work) != linear.DONE:
        return linear.TABLES_FULL
    linear.add_row(models, linear.ONLY_GROUP, label, x, work, np.float32(1.0))
    if sums:
        linear.add_to_sum(models, linear.ONLY_GROUP, label, x, work, lengths[row])
        models.records[0, label]["sum_square"] = lengths[row] * lengths[row]
    return linear.DONE


@kernel
def start_labels(models, sums, rows, lengths, first):
    """Start the scorers of labels from ``first`` on, except those already started.

    If ``sums`` is True, also store the sums of examples. Returns DONE, or TABLES_FULL if the caller must repeat the
    call with larger tables. Writes the models.
    """
    models = by_reference(models)
    n_rows = rows.offsets.size - 1
    work, status = linear.new_workspace(kernels.longest_row(rows, 0, n_rows)), linear.DONE
    while models.counters[0, linear.MODELS_END] < first + n_rows:
        label = models.counters[0, linear.MODELS_END]
        status = _start_label(models, sums, rows, lengths, label - first, label, work)
        if status != linear.DONE:
            break
        models.counters[0, linear.MODELS_END] += 1
    release(work)
    return status


@inner
def _move_mean(models, rows, row, label, work):
    """Add an example to its label's mean. Return DONE, or TABLES_FULL without changes if the table has no room."""
    x = kernels.row_of(rows, row)
    if linear.locate_or_insert(models, linear.ONLY_GROUP, label, x, work) != linear.DONE:
        return linear.TABLES_FULL
    old, size = models.records[0, label]["sum_square"], kernels.squared_length(x)
    new = old + np.float32(2.0) * linear.located_sum(models, linear.ONLY_GROUP, label, x, work) + size
    if new <= _SHORTEST * max(old, size):
        new = np.float32(0.0)  # if the examples cancel each other, their mean has no direction
    if new > 0.0:
        scale = np.float32(1.0) / np.sqrt(new)
        shrunk = scale - np.float32(1.0) / np.sqrt(old) if old > 0.0 else scale
        linear.add_sum(models, linear.ONLY_GROUP, label, shrunk)
        linear.add_row(models, linear.ONLY_GROUP, label, x, work, scale)
    elif old > 0.0:
        linear.add_sum(models, linear.ONLY_GROUP, label, np.float32(-1.0) / np.sqrt(old))
    linear.add_to_sum(models, linear.ONLY_GROUP, label, x, work, np.float32(1.0))
    models.records[0, label]["sum_square"] = new
    return linear.DONE


@kernel
def move_means(models, rows, labels, at):
    """Add the rows from ``at[0]`` on to the means of their labels, and increment ``at[0]`` after each row.

    Returns DONE, or TABLES_FULL if the caller must repeat the call with larger tables. Writes the models.
    """
    models = by_reference(models)
    n_rows = rows.offsets.size - 1
    work, status = linear.new_workspace(kernels.longest_row(rows, 0, n_rows)), linear.DONE
    while at[0] < n_rows:
        row = at[0]
        status = _move_mean(models, rows, row, labels[row], work)
        if status != linear.DONE:
            break
        at[0] += 1
    release(work)
    return status


@kernel
def forget_labels(models, first):
    """Reset the scorers of the labels from ``first`` on to 0, and free their tables. Writes the models."""
    models = by_reference(models)
    for label in range(first, models.counters[0, linear.MODELS_END]):
        linear.release_model(models, linear.ONLY_GROUP, label)
        reset_label(models, label)
