"""The multi-label classifier: any number of labels for each example."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import validate_data

from ._candidates import Questions
from ._head import HEAD_LOSSES, forget_labels
from ._keys import Rows, as_matrix
from ._label_forest import LOGITS_PER_MARGIN, LabelForest, routed
from ._membership import Answers, learn_memberships, new_memberships
from ._state import NONE
from ._validation import check_integer, check_rows

_MOST_COMMON = 16  # labels that come into question for every row


class CMTMultilabelClassifier(ClassifierMixin, LabelForest):
    """A classifier that gives each example any number of very many labels, with the forest of :class:`CMTClassifier`.

    For an example the labels come into question that it reaches in the trees, and for sparse examples those that the
    head's index lists for its rare features. Of each a linear scorer says whether the example has it (one against
    some, section 4.2 of the paper). Everything learns online: ``partial_fit`` takes new examples at any time, and new
    labels as further columns.

    Parameters
    ----------
    n_trees, n_probes, n_router_passes, n_head_passes, leaf_multiplier, alpha, n_reroutes, n_jobs, random_state
        As for :class:`CMTClassifier`.
    aggressiveness : float, default 1.0
        How hard the margin of the scorers is (``C``).

    Notes
    -----
    The most frequent labels come into question for every example. With ``n_head_passes=0`` labels are ranked by their
    cosine, and those of a positive one predicted.

    Attributes
    ----------
    n_labels_ : int
        Columns of the matrices of labels.
    classes_ : ndarray of shape (n_labels,)
        The numbers of the columns.
    n_features_in_ : int
        Width of the examples.
    forest_ : ContextualMemoryTree
        The trees over the labels.
    """

    # Learning

    def fit(self, X: Any, Y: Any) -> CMTMultilabelClassifier:
        """Learn from examples, forgetting earlier ones.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, n_features)
            Examples.
        Y : array-like or sparse matrix, shape (n, n_labels)
            Not 0 where an example has a label.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If an argument or a parameter cannot be used.
        """
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float32, np.float64])
        answers = _label_lists(Y, X.shape[0])
        self._check_parameters()
        rows = check_rows(X)
        self._start_forest(rows, max(1, np.unique(answers.indices).size), HEAD_LOSSES.index("mira"), 1.0)
        self.n_labels_ = 0
        self._sparse_output = scipy.sparse.issparse(Y)
        self._label_of_column = np.empty(0, np.int64)
        self._column_of_label = np.empty(0, np.int64)
        self._n_of_label = np.empty(0, np.int64)
        return self._learn(rows, answers, afresh=True)

    def partial_fit(self, X: Any, Y: Any, classes: Any = None) -> CMTMultilabelClassifier:
        """Learn from further examples, whose labels may have more columns than those before.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, n_features)
            Examples.
        Y : array-like or sparse matrix, shape (n, n_labels)
            Not 0 where an example has a label; at least as many columns as before.
        classes : ignored
            Taken because whatever calls classifiers of scikit-learn may give it. New columns may come at any time.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If an argument or a parameter cannot be used; nothing has changed then.
        MemoryError
            If memory runs out. The classifier works on, but may not have learned all rows.
        """
        if not hasattr(self, "forest_"):
            return self.fit(X, Y)
        rows = self._checked(X)
        answers = _label_lists(Y, rows.n_rows)
        if answers.shape[1] < self.n_labels_:
            raise ValueError(f"Y must have at least the {self.n_labels_} columns of before, not {answers.shape[1]}")
        return self._learn(rows, answers, afresh=False)

    def _learn(self, rows: Rows, answers: scipy.sparse.csr_array, *, afresh: bool) -> CMTMultilabelClassifier:
        n_new, n_known = answers.shape[1] - self.n_labels_, self.forest_.n_memories
        self._label_of_column = np.concatenate([self._label_of_column, np.full(n_new, NONE, np.int64)])
        self.n_labels_, self.classes_ = answers.shape[1], np.arange(answers.shape[1])
        of_rows = np.repeat(np.arange(rows.n_rows), np.diff(answers.indptr))
        new = np.unique(answers.indices[self._label_of_column[answers.indices] == NONE])
        if new.size > 0:
            self._orders.shuffle(new)
            place = np.full(self.n_labels_, NONE, np.int64)
            place[new] = np.arange(new.size)
            members = place[answers.indices]
            known = members == NONE
            self._label_of_column[new] = self._insert_labels(rows, members[~known], of_rows[~known], new.size)
            self._column_of_label = np.concatenate([self._column_of_label, new])
        if self.forest_.n_memories == 0:
            return self  # no example has a label yet
        labels = self._label_of_column[answers.indices]
        unseen = np.zeros(self.forest_.n_memories - self._n_of_label.size, np.int64)
        self._n_of_label = np.concatenate([self._n_of_label, unseen])
        np.add.at(self._n_of_label, labels, 1)
        common = np.argsort(-self._n_of_label, kind="stable")[: min(_MOST_COMMON, self._effort().n_labels // 2)]
        self.head_ = self.head_._replace(common=common)
        questions = Questions(routed(rows), rows)
        self._begin_training()
        if labels.size > 0:
            self._teach_routers(check_rows(as_matrix(questions.routed)[of_rows]), labels, afresh=afresh)
        if self.n_head_passes > 0:
            self._train_head(questions, Answers(answers.indptr.astype(np.int64), labels), n_known)
        self._end_training(rows.n_rows)
        return self

    def _train_head(self, questions: Questions, answers: Answers, n_known: int) -> None:
        forget_labels(self.head_, n_known)  # they started as their means, which the index lists
        state, effort, n_rows = self.forest_._allocated(), self._effort(training=True), questions.rows.n_rows
        duals = new_memberships(self.aggressiveness, answers)

        def learn(order: np.ndarray) -> int:
            return int(learn_memberships(state, self.head_, questions, order, answers, order.size, effort, duals))

        self._train_in_passes(n_rows, duals.settled, learn, renew_index=True)

    # Answering

    def top_labels(self, X: Any, k: int = 5) -> tuple[np.ndarray, np.ndarray]:
        """Return the ``k`` labels that fit each row best.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, n_features)
            Queries.
        k : int, default 5
            Labels wanted.

        Returns
        -------
        labels : ndarray of int64, shape (n, k)
            Columns, the best first; -1 where fewer came into question.
        decisions : ndarray of float32, shape (n, k)
            Their scores, positive where the row should have the label; minus infinity for none.
        """
        k = check_integer("k", k, 1)
        return self._scored_labels(self._checked(X), k)

    def _scored_labels(self, rows: Rows, k: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the columns and the scores of the ``k`` best labels of each row, or of all that were scored."""
        if self.forest_.n_memories == 0:
            return np.full((rows.n_rows, k or 1), NONE, np.int64), np.full((rows.n_rows, k or 1), -np.inf, np.float32)
        labels, scores, _ = self._best_labels(rows, self._effort().n_labels if k is None else k)
        return np.where(labels == NONE, NONE, self._column_of_label[labels]), scores

    def predict(self, X: Any) -> Any:
        """Return which labels each row has: an indicator matrix, sparse if the labels were when ``fit`` saw them."""
        columns, decisions = self._scored_labels(self._checked(X))
        row, rank = np.nonzero(decisions > 0.0)
        ones = np.ones(row.size, np.int64)
        shape = (columns.shape[0], self.n_labels_)
        indicator = scipy.sparse.csr_array((ones, (row, columns[row, rank])), shape)
        return indicator if self._sparse_output else indicator.toarray()

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the score of each label for each row, positive where the row should have it: float64, (n, n_labels).

        Labels that did not come into question are given 1 less than the lowest score of any that did.
        """
        columns, decisions = self._scored_labels(self._checked(X))
        found = columns != NONE
        lowest = decisions[found].min() if found.any() else 0.0
        values = np.full((columns.shape[0], self.n_labels_), min(float(lowest), 0.0) - 1.0)
        row, rank = np.nonzero(found)
        values[row, columns[row, rank]] = decisions[row, rank]
        return values

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each label for each row by itself: float64, shape (n, n_labels)."""
        return 1.0 / (1.0 + np.exp(-LOGITS_PER_MARGIN * self.decision_function(X)))

    def count_candidates(self, X: Any) -> np.ndarray:
        """Return how many labels are looked at for each row: int64, shape (n,)."""
        rows = self._checked(X)
        return self._best_labels(rows, 1)[2] if self.forest_.n_memories > 0 else np.zeros(rows.n_rows, np.int64)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.multi_label = True
        tags.target_tags.two_d_labels = True
        tags.target_tags.single_output = False
        tags.target_tags.multi_output = True
        tags.classifier_tags.poor_score = True
        return tags


def _label_lists(Y: Any, n_rows: int) -> scipy.sparse.csr_array:
    """Return an indicator matrix of labels in CSR form, checked.

    The errors contain the words by which scikit-learn's checks of estimators know them.
    """
    if Y is None:
        raise ValueError("Y must be given: a classifier requires y to be passed, but the target y is None")
    try:
        Y = Y if scipy.sparse.issparse(Y) else np.asarray(Y)
        lists = scipy.sparse.csr_array(Y)
    except (TypeError, ValueError) as error:
        raise TypeError(f"Unknown label type: Y must be an indicator matrix of labels: {error}") from error
    if Y.ndim != 2 or lists.dtype.kind not in "fiub":
        raise ValueError(
            "Unknown label type: Y must be an indicator matrix of labels, of two dimensions, not 0 where a row has a "
            "label. Only binary classification is supported. (For each label; CMTClassifier takes vectors of classes.)"
        )
    if lists.shape[0] != n_rows:
        raise ValueError(f"Y must have one row for each of the {n_rows} rows of X, not {lists.shape[0]}")
    if not np.isfinite(lists.data).all():
        raise ValueError("Y must be finite")
    lists = lists.copy()
    lists.sum_duplicates()
    lists.eliminate_zeros()
    return lists
