"""Invariants of heads, stored examples and dual variables."""

import numpy as np

from .. import _kernels as kernels
from .. import _linear as linear
from .._kernels import NONE, all_finite, all_within, are_offsets, require
from .examples import StoredExamples
from .label_scorers import HEAD_LOSSES, Head, HeadLoss
from .multiclass_svm import StoredDuals


def check_head_frame(head: Head, n_labels: int) -> None:
    """Raise InvariantError unless a head's arrays fit ``n_labels``; read only ``counters`` and a few entries."""
    d, sparse = head.parameters.n_features, head.parameters.sparse
    require(head.parameters.loss in HEAD_LOSSES.values(), "the loss of the head is unknown")
    require(0.0 < head.parameters.learning_rate <= 1e6, "the head's learning rate is out of range")
    kernels.check_layout(head, {"groups": 1})
    linear.check_model_frame(head.models)
    require(head.n_labels == n_labels, f"the head must have {n_labels} scorers, one per label")
    digest, postings, common = head.digest, head.postings, head.common
    listed = digest.features.size > 0
    require(digest.offsets.size == (n_labels + 1 if listed else digest.offsets.size), "the digest lacks a label")
    require(sparse or not listed, "a dense head must not have a digest")
    require(are_ends(digest.offsets, digest.features.size), "the digest is truncated")
    indexed = postings.n_labels > 0
    require(0 <= postings.n_labels <= n_labels, "the index has labels that do not exist")
    require(sparse or not indexed, "a dense head must not have an index")
    require(postings.offsets.size == (d + 1 if indexed else 1), "the index must have one list per feature")
    require(are_ends(postings.offsets, postings.labels.size), "the index is truncated")
    require(common.labels.size <= n_labels, "the number of common labels exceeds the limit")
    lengths = (1, d + 1) if sparse else (1,)
    require(common.offsets.size in lengths, "common labels must have a list for each feature, or none if dense")
    require(are_ends(common.offsets, common.places.size), "the lists of common labels are truncated")


def are_ends(offsets: np.ndarray, n_entries: int) -> bool:
    """Return whether offsets begin with 0 and end with ``n_entries``."""
    return bool(offsets.size > 0 and offsets[0] == 0 and offsets[-1] == n_entries)


def check_head(head: Head, n_labels: int) -> None:
    """Raise InvariantError unless a head for ``n_labels`` labels is valid."""
    check_head_frame(head, n_labels)
    used = np.arange(n_labels)
    linear.check_models(head.models, 0, used, "the head", sums=head.parameters.loss == HeadLoss.MIRA)
    squares = head.labels["sum_square"]
    require(all_finite(squares) and bool(np.all(squares >= 0)), "a label's sum of examples has an invalid length")
    digest, postings, common, gaps = head.digest, head.postings, head.common, head.gaps
    require(are_offsets(digest.offsets, digest.features.size), "the digest's lists overlap")
    exist = all_within(digest.features, 0, head.parameters.n_features - 1)
    require(exist, "the digest has a feature that does not exist")
    require(all_finite(digest.weights), "the digest has a weight that is not finite")
    require(are_offsets(postings.offsets, postings.labels.size), "the index's lists overlap")
    require(all_within(postings.labels, 0, postings.n_labels - 1), "the index has a label that does not exist")
    require(all_finite(postings.weights), "the index has a weight that is not finite")
    require(all_within(common.labels, 0, n_labels - 1), "a common label does not exist")
    require(np.unique(common.labels).size == common.labels.size, "a common label is listed more than once")
    require(are_offsets(common.offsets, common.places.size), "the lists of common labels overlap")
    are_common = all_within(common.places, 0, common.labels.size - 1)
    require(are_common, "a list of common labels contains a label that is not common")
    require(all_finite(common.weights), "a common label has a weight that is not finite")
    require(all_finite(gaps) and bool(np.all(gaps >= 0)), "a gap is negative")
    require(gaps[0] > 0 or gaps[1] == 0, "gaps must not exist without examples")


def check_example_frame(examples: StoredExamples) -> None:
    """Raise InvariantError unless the arrays of stored examples have the expected dtypes and sizes."""
    kernels.check_layout(examples)
    kernels.check_key_frame(examples.parameters, examples.keys)
    require(examples.label_of.size >= examples.keys.totals[kernels.N_MEMORIES], "every example must have a label")


def check_examples(examples: StoredExamples, n_labels: int) -> None:
    """Raise InvariantError unless stored examples of ``n_labels`` labels are valid."""
    check_example_frame(examples)
    kernels.check_keys(examples.parameters, examples.keys)
    n = int(examples.keys.totals[kernels.N_MEMORIES])
    require(np.unique(examples.keys.ids[:n]).size == n, "two examples have the same id")
    label_of, next_of, first_of = examples.label_of[:n], examples.next_of[:n], examples.first_of
    require(all_within(label_of, 0, n_labels - 1), "an example has a label that does not exist")
    require(n == 0 or int(label_of.max()) < first_of.size, "a label has no list of examples")
    # Lists lead from newer examples to older ones, so they terminate.
    require(bool(np.all((next_of >= NONE) & (next_of < np.arange(n)))), "a list of examples is invalid")
    require(all_within(first_of, int(NONE), n - 1), "a list of examples is invalid")
    labels = np.flatnonzero(first_of != NONE)
    are_alike = np.array_equal(label_of[first_of[labels]], labels)
    require(are_alike, "the list of a label begins with an example of another label")
    followed = np.flatnonzero(next_of != NONE)
    are_alike = np.array_equal(label_of[next_of[followed]], label_of[followed])
    require(are_alike, "the list of a label continues with an example of another label")
    listed = np.bincount(np.concatenate([first_of[labels], next_of[followed]]), minlength=n)
    require(bool(np.all(listed == 1)), "an example must be in exactly one list")


def check_duals(duals: StoredDuals, n_examples: int, n_labels: int, *, thorough: bool) -> None:
    """Raise InvariantError unless all stored dual variables belong to existing examples and labels."""
    kernels.check_layout(duals, {})
    if thorough:
        n = duals.weights.shape[0]
        require(not duals.weights[min(n, n_examples) :].any(), "a dual variable belongs to no stored example")
        exist = all_within(duals.competitors, int(NONE), n_labels - 1)
        require(exist, "an example competes with a label that does not exist")
        require(all_finite(duals.weights) and bool(np.all(duals.weights >= 0)), "a dual variable is negative")
