"""The one-against-some head: a linear scorer for each label, trained against the candidates of an example.

A label's scorer starts as the mean of its examples, scaled to length 1, so the head begins as the cosine to that mean,
and learns from there. With MIRA, which needs no accumulators, their place is taken by the sums of the labels' examples:
so as further examples come the mean in a scorer can follow them, whatever else the scorer has learned.

Sparse scorers that nothing is learned from for a while can do without what they learn in: they lie in the lists of the
digest alone, which take a third of the memory of tables, and tables are made of these when they learn again. The sums
of examples are lost with the tables.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, NamedTuple

import numpy as np
import scipy.sparse

from .._forest import (
    CELLS_WANTED,
    DONE,
    FREE_TABLES,
    N_COUNTERS,
    NODE,
    NODES_END,
    NONE,
    ONLY_TREE,
    SMALLEST_TABLE_BITS,
    SPARE,
    TABLES_END,
    TABLES_FULL,
    WEIGHT_CELL,
    LinearModels,
    Routers,
    Rows,
    add_row,
    add_sum,
    add_to_sum,
    copy_heavy_cells,
    kind_of,
    linear_models,
    locate_or_insert,
    located_sum,
    longest_row,
    margin_of,
    most_cells_in_use,
    new_workspace,
    probed_margin,
    release_model,
    reset_model,
    row_of,
    squared_length,
    with_nodes,
    with_tables,
)
from .._jit import by_reference, inner, kernel, release
from .inference_weights import (
    Common,
    Digest,
    common_labels,
    digest_of,
    digested_margin,
    enter_lists,
    laid_out,
    list_cells,
    new_digest,
    no_digest,
)
from .inverted_index import Postings, heavy_cells, list_by_feature, no_postings


class HeadLoss(IntEnum):
    """What a head learns from its candidates, by number in files. 2 was the squared loss, which is no longer there."""

    SOFTMAX = 0
    LOGISTIC = 1
    MIRA = 3


NEGLIGIBLE = 0.04
"""Share of the largest weight of a rare label: smaller ones are forgotten."""

_SHORTEST = np.float32(1e-6)  # squared, relative to what was added: a shorter sum of examples is rounding errors
_CELLS_IN_A_LOOKUP = 12  # so many cells of a digest can be gone through in the time of one look-up in a table

HEAD_LOSSES = {loss.name.lower(): int(loss) for loss in HeadLoss}


class HeadParameters(NamedTuple):
    """What is fixed for a head's life."""

    n_features: int
    sparse: bool
    loss: int
    learning_rate: float


class LabelScorers(NamedTuple):
    """A head as kernels are handed it, to find labels for rows, to score them and to learn from them."""

    models: LinearModels
    digest: Digest
    postings: Postings
    common: Common
    gaps: np.ndarray
    loss: int
    learning_rate: float


class Head(NamedTuple):
    """All labels' scorers, laid out like the routers of one tree whose node ``l`` is label ``l``."""

    parameters: HeadParameters
    nodes: Annotated[np.ndarray, kind_of(NODE, "trees", "labels")]
    routers: Routers
    counters: Annotated[np.ndarray, kind_of(np.int64, "trees", N_COUNTERS)]
    digest: Digest
    postings: Postings
    common: Common
    # examples measured, and the sum of their gaps, see ``multiclass_svm.py``
    gaps: Annotated[np.ndarray, kind_of(np.float64, 2)]

    @property
    def models(self) -> LinearModels:
        """The scorers as linear models."""
        return linear_models(self)

    @property
    def scorers(self) -> LabelScorers:
        """What kernels are handed that score candidates."""
        parameters = self.parameters
        return LabelScorers(
            self.models, self.digest, self.postings, self.common, self.gaps, parameters.loss, parameters.learning_rate
        )


def new_head(parameters: HeadParameters) -> Head:
    """Return a head without labels."""
    counters = np.full((1, N_COUNTERS), NONE, np.int64)
    counters[:, [NODES_END, TABLES_END, CELLS_WANTED]] = 0
    return Head(
        parameters=parameters,
        nodes=np.zeros((1, 0), NODE),
        routers=Routers(weights=np.empty((1, 0), np.float32), table=np.empty((1, 0), WEIGHT_CELL)),
        counters=counters,
        digest=no_digest(),
        postings=no_postings(),
        common=common_labels(np.empty(0, np.int64)),
        gaps=np.zeros(2),
    )


def with_labels(head: Head, rows: Rows, lengths: np.ndarray | None = None) -> Head:
    """Return a head with a scorer for one more label for each of the rows, which it starts as.

    The rows are means, scaled to length 1; ``lengths``, float32, are those of the sums of examples that they came from,
    by default of single ones. The head given stays as it is, should the new labels come to nothing.
    """
    head = head._replace(counters=head.counters.copy())
    lengths = np.ones(rows.n_rows, np.float32) if lengths is None else lengths
    first = int(head.counters[0, NODES_END])
    n_labels = first + rows.n_rows
    if n_labels > head.nodes.shape[1]:
        head = with_nodes(head, max(n_labels, 2 * head.nodes.shape[1]))
    while start_labels(head.models, head.parameters.loss == HeadLoss.MIRA, rows, lengths, first) != DONE:
        head = with_more_cells(head)
    return head


def with_more_cells(head: Head) -> Head:
    """Return a head with twice as many cells for sparse scorers, and as many as are wanted."""
    used, wanted = int(head.counters[0, TABLES_END]), int(head.counters[0, CELLS_WANTED])
    return with_tables(head, max(2 * used, used + wanted))


def without_room(models: LinearModels) -> LinearModels:
    """Return models that learn as those given do, in the same arrays, except that they cannot be given larger tables.

    So threads can train different labels at once.
    """
    counters = models.counters.copy()
    counters[:, TABLES_END] = models.table.shape[1]
    counters[:, FREE_TABLES:] = NONE
    return models._replace(counters=counters)


def count_in_means(head: Head, rows: Rows, labels: np.ndarray) -> Head:
    """Count rows, of these labels, among the examples of the means that scorers start from; return the head.

    It is the head given, unless that had to grow. Only with MIRA.
    """
    at = np.zeros(1, np.int64)
    while move_means(head.models, rows, labels, at) != DONE:
        head = with_more_cells(head)
    return head


def without_negligible_weights(head: Head) -> Head:
    """Return a sparse head whose scorers have lost the weights that make no difference.

    What a label has learned from its competitors is spread thinly over many features, which makes its table several
    times larger, and slower to go through, than what decides. Common labels lose none: they have learned from all rows,
    and many small weights together tell where they are.
    """
    size = int(head.counters[0, TABLES_END])
    pruned = head._replace(
        nodes=head.nodes.copy(),
        counters=head.counters.copy(),
        routers=head.routers._replace(table=np.empty((1, size), WEIGHT_CELL)),
    )
    pruned.nodes["table_bits"] = 0
    pruned.counters[0, TABLES_END] = 0
    pruned.counters[0, FREE_TABLES:] = NONE
    shares = np.full(pruned.nodes.shape[1], NEGLIGIBLE, np.float32)
    shares[head.common.labels] = 0.0
    copy_labels(pruned.models, head.models, shares)
    # In place: a copy would need the memory of a third table beside the two there are.
    room = min(int(SPARE * pruned.counters[0, TABLES_END]), head.routers.table.shape[1])
    pruned.routers.table.resize((1, room), refcheck=False)
    return pruned


def with_only(head: Head, labels: np.ndarray) -> Head:
    """Return a head of some of a head's labels, numbered in this order, which shares no memory with it.

    It may learn, and has no index.
    """
    n_labels, d = int(head.counters[0, NODES_END]), head.parameters.n_features
    counters, routers = head.counters.copy(), head.routers
    counters[0, NODES_END] = labels.size
    number = np.full(n_labels, NONE, np.int64)
    number[labels] = np.arange(labels.size)
    common = number[head.common.labels]
    if not head.parameters.sparse:
        weights = routers.weights[0, : n_labels * 2 * d].reshape(n_labels, 2 * d)
        routers = routers._replace(weights=weights[labels].reshape(1, -1))
    fewer = head._replace(
        nodes=head.nodes[:, labels],
        counters=counters,
        routers=routers,
        digest=no_digest(),
        postings=no_postings(),
        common=common_labels(common[common != NONE]),
        gaps=head.gaps.copy(),
    )
    return with_tables(fewer, most_cells_in_use(fewer)) if head.parameters.sparse else fewer


def as_ready_as(head: Head, other: Head, lightest: float) -> Head:
    """Return a head with an index, and ready to be read, where another one is so."""
    if other.digest.n_labels > 0:
        head = with_digest(head)
    return with_index(head, lightest) if other.postings.n_labels > 0 else head


def weights_of_labels(head: Head, labels: np.ndarray) -> np.ndarray | scipy.sparse.csr_array:
    """Return the scorers of some labels as rows of a matrix, sparse like the head. Their biases are not in it."""
    n_labels, d = int(head.counters[0, NODES_END]), head.parameters.n_features
    if not head.parameters.sparse:
        weights: np.ndarray = head.routers.weights[0, : n_labels * 2 * d].reshape(n_labels, 2 * d)[labels, :d]
        return weights
    digest = head.digest if head.digest.n_labels == n_labels else with_digest(head).digest
    return scipy.sparse.csr_array((digest.weights, digest.features, digest.offsets), (n_labels, d))[labels]


def is_in_lists(head: Head) -> bool:
    """Return whether the scorers of a sparse head lie in the lists of its digest alone."""
    return head.digest.features.size > 0 and head.counters[0, TABLES_END] == 0


def with_lists(head: Head, digest: Digest) -> Head:
    """Return a sparse head of so many labels whose scorers lie in these lists alone."""
    nodes, counters = head.nodes.copy(), head.counters.copy()
    nodes["table_bits"], nodes["table_used"] = 0, 0
    counters[0, [TABLES_END, CELLS_WANTED]] = 0
    counters[0, FREE_TABLES:] = NONE
    routers = head.routers._replace(table=np.empty((1, 0), WEIGHT_CELL))
    return head._replace(nodes=nodes, counters=counters, routers=routers, digest=digest)


def with_means_in_lists(head: Head, means: Rows) -> Head:
    """Return a sparse head without labels with a scorer for each of the rows, in lists alone."""
    head = with_nodes(head, means.n_rows)
    head.counters[0, NODES_END] = means.n_rows
    return with_lists(head, no_digest()._replace(offsets=means.offsets, features=means.indices, weights=means.values))


def with_lists_of(head: Head, labels: np.ndarray) -> Head:
    """Return a sparse head whose scorers lie in lists alone, of which all but those of some labels are empty."""
    n_cells = np.zeros(int(head.counters[0, NODES_END]), np.int64)
    n_cells[labels] = np.diff(head.digest.offsets)[labels]
    digest = new_digest(n_cells)
    for label in labels:
        old, new = (slice(offsets[label], offsets[label + 1]) for offsets in (head.digest.offsets, digest.offsets))
        digest.features[new], digest.weights[new] = head.digest.features[old], head.digest.weights[old]
    return with_lists(head, digest)


def without_tables(head: Head) -> Head:
    """Return a head without the tables of its scorers, which lie in the lists of its digest; a dense one as it is."""
    return with_lists(head, head.digest) if head.digest.features.size > 0 and not is_in_lists(head) else head


def cells_of_tables(head: Head) -> int:
    """Return how many cells the tables of a sparse head take, or will take when it learns again."""
    return int(_sizes_of_tables(head.digest).sum() if is_in_lists(head) else head.counters[0, TABLES_END])


def _sizes_of_tables(digest: Digest) -> np.ndarray:
    n_cells = np.diff(digest.offsets)
    sizes = np.where(n_cells > 0, np.int64(1) << SMALLEST_TABLE_BITS, 0)
    while (short := 3 * sizes < 4 * n_cells).any():  # as ``sparse_weights.table_bits`` says
        sizes[short] *= 2
    return sizes


def without_digest(head: Head) -> Head:
    """Return a head that may learn."""
    if is_in_lists(head):
        size = int(SPARE * cells_of_tables(head))
        head = head._replace(
            nodes=head.nodes.copy(),
            counters=head.counters.copy(),
            routers=head.routers._replace(table=np.empty((1, size), WEIGHT_CELL)),
        )
        enter_lists(head.models, head.digest)
    return head._replace(digest=no_digest(), common=common_labels(head.common.labels))


def with_digest(head: Head) -> Head:
    """Return a head with a digest, which holds until it learns again."""
    n_labels, d = int(head.counters[0, NODES_END]), head.parameters.n_features
    if not head.parameters.sparse:
        weights = head.routers.weights[0, : n_labels * 2 * d].reshape(n_labels, 2 * d)
        return head._replace(digest=digest_of(weights[:, :d]))
    if is_in_lists(head):
        digest = head.digest
    else:
        digest = new_digest(head.nodes[0, :n_labels]["table_used"])
        list_cells(head.models, digest)
    common = laid_out(head.common, digest, d) if head.common.labels.size > 0 else head.common
    return head._replace(digest=digest, common=common)


def with_index(head: Head, lightest: float = 0.0) -> Head:
    """Return a head whose index of all but the common labels is up to date; dense heads have none.

    Weights below ``lightest`` times the largest of the same label are not listed.
    """
    if not head.parameters.sparse:
        return head
    digest = head.digest if head.digest.features.size > 0 else with_digest(head).digest
    listed = heavy_cells(digest, lightest, head.common.labels)
    return head._replace(postings=list_by_feature(digest, listed, head.parameters.n_features))


@inner
def score_label(head, label, probe, x):
    """Return what the head says of a label for row ``x``, at which ``probe`` has been aimed."""
    digest, in_tables = head.digest, head.models.table.size > 0
    if (digest.features.size == 0 and digest.halves.size == 0) or (probe.features.size > 0 and in_tables):
        return probed_margin(head.models, ONLY_TREE, label, probe, x)
    if head.models.sparse and in_tables:
        n_cells = digest.offsets[label + 1] - digest.offsets[label]
        if n_cells > _CELLS_IN_A_LOOKUP * (x.b - x.a):
            return margin_of(head.models, ONLY_TREE, label, x)
    return head.models.nodes[0, label]["bias"] + digested_margin(digest, label, probe)


@inner
def score_common(head, x, scores):
    """Write what the head says of the common labels for row ``x``, if this can be said of all at once.

    Returns of how many it has been.
    """
    common = head.common
    if not head.models.sparse or common.offsets.size == 1:
        return 0
    for i in range(scores.size):
        scores[i] = head.models.nodes[0, common.labels[i]]["bias"]
    for i in range(x.a, x.b):
        feature, value = x.indices[i], x.values[i]
        for entry in range(common.offsets[feature], common.offsets[feature + 1]):
            scores[common.places[entry]] += value * common.weights[entry]
    return scores.size


@kernel
def copy_labels(target, source, shares):
    """Copy all labels' scorers but for weights below a label's share of its largest.

    Reads ``source``; writes the models of ``target``, which must have room.
    """
    target = by_reference(target)
    source = by_reference(source)
    for label in range(source.counters[0, NODES_END]):
        if source.nodes[0, label]["table_bits"] > 0:
            copy_heavy_cells(target, source, ONLY_TREE, label, shares[label])


@inner
def _start_label(models, sums, rows, lengths, row, label, work):
    x = row_of(rows, row)
    reset_model(models, ONLY_TREE, label)
    models.nodes[0, label]["table_bits"] = 0  # whatever an attempt that was given up has left there
    models.nodes[0, label]["table_used"] = 0
    if locate_or_insert(models, ONLY_TREE, label, x, work) != DONE:
        return TABLES_FULL
    add_row(models, ONLY_TREE, label, x, work, np.float32(1.0))
    if sums:
        add_to_sum(models, ONLY_TREE, label, x, work, lengths[row])
        models.nodes[0, label]["bias_square"] = lengths[row] * lengths[row]
    return DONE


@kernel
def start_labels(models, sums, rows, lengths, first):
    """Start the scorers of the labels from ``first`` on, except those that have been.

    ``sums`` says whether they keep the sums of their examples. Returns DONE, or TABLES_FULL; it can then be called
    again.
    Writes the models.
    """
    models = by_reference(models)
    n_rows = rows.offsets.size - 1
    work, status = new_workspace(longest_row(rows, 0, n_rows)), DONE
    while models.counters[0, NODES_END] < first + n_rows:
        label = models.counters[0, NODES_END]
        status = _start_label(models, sums, rows, lengths, label - first, label, work)
        if status != DONE:
            break
        models.counters[0, NODES_END] += 1
    release(work)
    return status


@inner
def _move_mean(models, rows, row, label, work):
    """Count one more example in the mean that a scorer starts from.

    The squared length of the sum of examples is kept where an accumulator of the bias would be. Returns DONE, or
    TABLES_FULL, with nothing changed, if there is no room for the features of the row.
    """
    x = row_of(rows, row)
    if locate_or_insert(models, ONLY_TREE, label, x, work) != DONE:
        return TABLES_FULL
    old, size = models.nodes[0, label]["bias_square"], squared_length(x)
    new = old + np.float32(2.0) * located_sum(models, ONLY_TREE, label, x, work) + size
    if new <= _SHORTEST * max(old, size):
        new = np.float32(0.0)  # examples that cancel out have no mean
    if new > 0.0:
        scale = np.float32(1.0) / np.sqrt(new)
        shrunk = scale - np.float32(1.0) / np.sqrt(old) if old > 0.0 else scale
        add_sum(models, ONLY_TREE, label, shrunk)
        add_row(models, ONLY_TREE, label, x, work, scale)
    elif old > 0.0:
        add_sum(models, ONLY_TREE, label, np.float32(-1.0) / np.sqrt(old))
    add_to_sum(models, ONLY_TREE, label, x, work, np.float32(1.0))
    models.nodes[0, label]["bias_square"] = new
    return DONE


@kernel
def move_means(models, rows, labels, at):
    """Count the rows in the means of their labels, going on from row ``at[0]``, which it moves on.

    Returns DONE, or TABLES_FULL; it can then be called again.
    Writes the models.
    """
    models = by_reference(models)
    n_rows = rows.offsets.size - 1
    work, status = new_workspace(longest_row(rows, 0, n_rows)), DONE
    while at[0] < n_rows:
        row = at[0]
        status = _move_mean(models, rows, row, labels[row], work)
        if status != DONE:
            break
        at[0] += 1
    release(work)
    return status


@kernel
def forget_labels(models, first):
    """Let the scorers of the labels from ``first`` on answer 0 everywhere, and give up their tables.

    Writes the models.
    """
    models = by_reference(models)
    for label in range(first, models.counters[0, NODES_END]):
        release_model(models, ONLY_TREE, label)
        reset_model(models, ONLY_TREE, label)
