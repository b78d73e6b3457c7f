"""The multi-label classifier: any number of labels for each example."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import validate_data

from .._change import map_threads, spans
from .._engine import insert_rows, query_forest, roll_back
from .._forest import NONE, Rows, rescaled
from .._heads import (
    AllScorers,
    HeadLoss,
    Listing,
    SearchEffort,
    all_above,
    all_of,
    common_labels,
    exact_scores_of_all,
    list_labels,
    with_index,
)
from .._validation import Constraint, check_jobs, check_rows, check_wanted, sound
from ..tree import ContextualMemoryTree
from ._base import changes_at_once, reads
from ._common_labels import most_common
from ._indicators import first_labels, further_labels, label_sets, labels_of
from ._input import DTYPES, warn_of_scales
from ._label_forest import LOGITS_PER_MARGIN, LabelForest, routed
from ._memberships import LabelledRows, train_memberships
from ._plans import scorers_laid_out
from ._thresholds import F1, Threshold, best_threshold
from ._weights import check_sample_weight, taken, totals

_LABELS_PER_LEVEL = 256  # met besides, for each level that a balanced tree of all labels would have
_FEWEST_LISTED = 48  # of those from the head's index that are scored
_LISTED_FOR_A_LABEL = 12  # if that is more, for each label that a row has on average
_WIDER_IN_TRAINING = 3  # of them, so that labels meet the rows that they could be taken for
_EXAMPLE_TREES, _EXAMPLE_LEAVES = 2, 8
_LABELS_LISTED = 1 << 16


class CMTMultilabelClassifier(ClassifierMixin, LabelForest):
    """A classifier that gives each example any number of very many labels, with the forest of :class:`CMTClassifier`.

    The candidates for an example are the common labels, those that it reaches in the trees, and for sparse examples
    those that the head's inverted index lists for its rare features. A linear support vector machine for each label
    decides whether the example has it. Those of common labels learn from all examples (one against all), the others
    from the examples for which they are candidates (one against some, section 4.2 of the paper). Everything learns
    online: ``partial_fit`` takes new examples at any time, and new labels as further columns.

    Parameters
    ----------
    n_candidates : int, optional
        Maximum number of labels that are scored for a row, beside the common ones. By default see the notes.
    n_trees, n_probes, leaf_multiplier
        As for :class:`CMTClassifier`. As long as none of them is set, ``fit`` grows no trees for sparse examples, whose
        labels the index finds. Trees are grown when ``n_probes`` is set later and leaves are wanted, and by
        ``partial_fit`` after that, whose new labels are not in the index at once.
    alpha, n_reroutes, n_jobs, random_state, verbose
        As for :class:`CMTClassifier`.
    n_router_passes : int, default 1
        Passes over the examples in which the routers learn, where there are trees.
    n_head_passes : int, default 3
        Passes in which the scorers of labels that are not common learn, each after another search for hard negatives.
    store_examples : bool, default True
        Whether to keep all examples, in trees of their own, which only ``kneighbors`` needs. Without them memory does
        not grow with the number of examples. What counts is the value at ``fit`` or the first ``partial_fit``.
    aggressiveness : float, default 1.0
        How hard the margin of the scorers is (``C``).
    threshold : float or "f1", default 0.0
        Labels with a score above it are predicted. With "f1" ``fit`` chooses it, so that the mean F1 of the label sets
        of examples that it holds out is highest: it learns twice, and predicts more labels where few are certain. A
        number can be set at any time.

    Notes
    -----
    Up to 1,024 labels are all common: then the classifier is one against all, and no tree is searched. Of more, those
    are common that one example in 256 has, at most 1,024. Besides, at most ``256 * log2(n_labels)`` labels are met in
    leaves, if there are trees, and in the lists of the index. Those of the leaves are scored, and of those that the
    index lists the best 48, or 12 times the labels that an example has on average. :meth:`count_candidates` tells how
    many are scored.

    ``n_head_passes`` is the number of times that the head looks for hard negatives for labels that are not common.
    With 0, labels are ranked by their cosine, and those of a positive one are predicted.

    Attributes
    ----------
    n_labels_ : int
        Columns of the matrices of labels.
    classes_ : ndarray of shape (n_labels,)
        The numbers of the columns, or the names of the labels.
    n_features_in_ : int
        Width of the examples.
    forest_ : ContextualMemoryTree
        The trees over the labels; a single leaf with all of them where no trees have been grown.
    examples_ : ContextualMemoryTree or None
        Trees over the examples.
    threshold_ : float
        The threshold that was chosen, with ``threshold="f1"``.
    """

    _kind = "CMTMultilabelClassifier"  # of what is in a file
    _names: np.ndarray | None = None  # of columns; files of earlier versions have none
    _weight_of_label: np.ndarray | None = None  # float64; None as long as all examples weigh 1
    _weight_of_rows: float | None = None  # likewise
    _keeps_tables = False
    _trees_on_request = True
    _lightest_listed = 0.1  # weights from hard negatives are many and small, and find nothing
    _constraints: ClassVar[dict[str, Constraint]] = {**LabelForest._constraints, "threshold": Threshold()}

    def __init__(
        self,
        n_trees: int | None = None,
        n_probes: int | None = None,
        n_candidates: int | None = None,
        *,
        n_router_passes: int = 1,
        n_head_passes: int = 3,
        aggressiveness: float = 1.0,
        leaf_multiplier: float | None = None,
        alpha: float = 0.9,
        n_reroutes: int = 5,
        store_examples: bool = True,
        threshold: float | str = 0.0,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.n_trees = n_trees
        self.n_probes = n_probes
        self.n_candidates = n_candidates
        self.n_router_passes = n_router_passes
        self.n_head_passes = n_head_passes
        self.aggressiveness = aggressiveness
        self.leaf_multiplier = leaf_multiplier
        self.alpha = alpha
        self.n_reroutes = n_reroutes
        self.store_examples = store_examples
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.threshold = threshold

    # Learning

    @changes_at_once
    def fit(self, X: Any, Y: Any, sample_weight: Any = None) -> CMTMultilabelClassifier:
        """Learn from examples, forgetting earlier ones.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, n_features)
            Examples.
        Y : array-like or sparse matrix, shape (n, n_labels)
            Not 0 where an example has a label. Or for each example a list, tuple or set of the names of its labels,
            which are strings. Or a vector of two classes, which is a single label: whether an example is of the second.
        sample_weight : array-like, shape (n,), optional
            How much each example counts, from 0 to a million; by default 1. A weight of 2 counts like the same row
            twice: as a factor of ``C``, in the means, and when common labels and a threshold are chosen. One of 0
            counts like no row. Positive weights below 1e-9 count as 1e-9. Routers and the search for neighbors do not
            depend on weights.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If an argument or a parameter cannot be used.
        """
        return self._begin_anew(lambda anew: anew._fit(X, Y, None, sample_weight))

    def _fit(self, X: Any, Y: Any, classes: Any, sample_weight: Any) -> None:
        """Learn from the first examples."""
        X = validate_data(self, sound(X), accept_sparse="csr", dtype=DTYPES)
        names, pair, answers = first_labels(Y, classes, X.shape[0])
        self._check_all_parameters()
        rows, weights = check_rows(X), check_sample_weight(sample_weight, X.shape[0])
        warn_of_scales(X)
        if weights is not None and not weights.all():
            kept = np.flatnonzero(weights)
            rows, weights = rows.take(kept), weights[kept]
            names, pair, answers = first_labels(labels_of(Y, kept), classes, kept.size)
        self._pair = pair
        self._start_forest(rows, max(1, np.unique(answers.indices).size), int(HeadLoss.MIRA), 1.0)
        self.n_labels_ = 0
        self._sparse_output = scipy.sparse.issparse(Y)
        self._label_of_column = np.empty(0, np.int64)
        self._column_of_label = np.empty(0, np.int64)
        self._n_of_label = np.empty(0, np.int64)
        self._n_rows = 0
        self._weight_of_label = self._weight_of_rows = None
        self.examples_ = self._new_trees_of_examples() if self.store_examples else None
        self._learn(LabelledRows(rows, answers, weights), names, afresh=True)
        if self.threshold == F1:
            self.threshold_ = best_threshold(self, rows, answers, weights)

    @changes_at_once
    def partial_fit(self, X: Any, Y: Any, classes: Any = None, sample_weight: Any = None) -> CMTMultilabelClassifier:
        """Learn from further examples, whose labels may have more columns than those before.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, n_features)
            Examples.
        Y : array-like or sparse matrix, shape (n, n_labels)
            Not 0 where an example has a label; at least as many columns as before. Or lists of names, known or new
            ones, or a vector, if such came first.
        classes : array-like, optional
            For vectors, at the first call: both classes, if ``Y`` may hold only one of them.
        sample_weight : array-like, shape (n,), optional
            As for :meth:`fit`.

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
            return self._begin_anew(lambda anew: anew._fit(X, Y, classes, sample_weight))
        rows = self._checked(X)
        names, answers = further_labels(Y, self._names, self._pair, rows.n_rows)
        weights = check_sample_weight(sample_weight, rows.n_rows)
        if weights is not None and not weights.all():
            kept = np.flatnonzero(weights)
            rows, weights = rows.take(kept), weights[kept]
            names, answers = further_labels(labels_of(Y, kept), self._names, self._pair, kept.size)
        if answers.shape[1] < self.n_labels_:
            raise ValueError(f"Y must have at least the {self.n_labels_} columns of before, not {answers.shape[1]}")
        self._learn(LabelledRows(rows, answers, weights), names, afresh=False)
        return self

    def _new_trees_of_examples(self) -> ContextualMemoryTree:
        seed = np.random.SeedSequence([self._seed, 1])  # what is learned must not depend on whether examples are kept
        return ContextualMemoryTree(_EXAMPLE_TREES, n_threads=check_jobs(self.n_jobs), random_state=seed)

    def _learn(self, labelled: LabelledRows, names: np.ndarray | None, *, afresh: bool) -> None:
        rows, n_known, of_rows = labelled.rows, self.forest_.n_memories, labelled.of_answers()
        in_lists = self._learns_in_lists()
        if self._without_trees and not afresh:
            # The index is not made anew for every few labels, and those that it does not list yet are found in trees.
            self.__dict__.update(forest_=self._grown_forest(), _without_trees=False)
        labels = self._make_known(labelled, of_rows, names)
        if self.examples_ is not None:
            insert_rows(self.examples_._forest, rescaled(rows), self.verbose)
        if self.forest_.n_memories == 0:
            return  # no example has a label yet
        self._choose_common()
        questions = all_of(routed(rows), rows)
        self._begin_training(in_lists=in_lists)
        if labels.size > 0 and not self._without_trees:
            self._teach_routers(rescaled(questions.routed.take(of_rows)), labels, afresh=afresh)
        if self.n_head_passes > 0:
            train_memberships(self, questions, of_rows, labels, n_known, labelled.weights)
        self._end_training(rows.n_rows)

    def _make_known(self, labelled: LabelledRows, of_rows: np.ndarray, names: np.ndarray | None) -> np.ndarray:
        """Make all columns known, and count which labels rows have; return the label of each entry of ``answers``.

        Labels of rows that have no memory yet are inserted in random order, each under its mean example.
        """
        rows, answers, weights = labelled
        n_columns, column_of_label, head = answers.shape[1], self._column_of_label, self.head_
        n_new = n_columns - self.n_labels_
        label_of_column = np.concatenate([self._label_of_column, np.full(n_new, NONE, np.int64)])
        new = np.unique(answers.indices[label_of_column[answers.indices] == NONE])
        if new.size > 0:
            self._orders.shuffle(new)
            place = np.full(n_columns, NONE, np.int64)
            place[new] = np.arange(new.size)
            members = place[answers.indices]
            of_new = members != NONE
            head, label_of_column[new] = self._insert_labels(
                rows, members[of_new], of_rows[of_new], new.size, None, weights
            )
            column_of_label = np.concatenate([column_of_label, new])
        labels = label_of_column[answers.indices]
        n_of_label = np.bincount(labels, minlength=column_of_label.size)
        n_of_label[: self._n_of_label.size] += self._n_of_label
        weight_of_label, weight_of_rows = self._weight_of_label, self._weight_of_rows
        if weight_of_rows is not None or weights is not None:
            before, n_before = self._amounts()
            weight_of_label = totals(labels, taken(weights, of_rows), column_of_label.size)
            weight_of_label[: before.size] += before
            weight_of_rows = n_before + (rows.n_rows if weights is None else float(weights.sum(dtype=np.float64)))
        self.__dict__.update(
            n_labels_=n_columns,
            classes_=next(known for known in (self._pair, names, np.arange(n_columns)) if known is not None),
            _names=names,
            head_=head,
            _label_of_column=label_of_column,
            _column_of_label=column_of_label,
            _n_of_label=n_of_label,
            _n_rows=self._n_rows + rows.n_rows,
            _weight_of_label=weight_of_label,
            _weight_of_rows=weight_of_rows,
        )
        return labels

    def _amounts(self) -> tuple[np.ndarray, float]:
        """Return the total weight of the rows of each label, and of all rows."""
        if self._weight_of_label is None or self._weight_of_rows is None:
            return self._n_of_label, self._n_rows
        return self._weight_of_label, self._weight_of_rows

    def _recover(self) -> None:
        if self.examples_ is not None:
            roll_back(self.examples_._forest)
        self._recover_labels(self._column_of_label.size)

    def _choose_common(self) -> None:
        """Choose the labels that are candidates for every row."""
        former = self.head_.common.labels
        common = most_common(*self._amounts(), former)
        self.head_ = self.head_._replace(common=common_labels(common))
        if not np.isin(former, common).all():
            self.head_ = with_index(self.head_, self._lightest_listed)  # it has not listed them

    def _effort(self, *, training: bool = False) -> SearchEffort:
        n_labels, n_common = self.forest_.n_memories, self.head_.common.labels.size
        effort = super()._effort(training=training)
        most = min(n_labels, n_common + int(_LABELS_PER_LEVEL * np.log2(n_labels + 1)))
        if self.n_candidates is not None and not training:
            n_scored = min(n_common + self.n_candidates, n_labels)
            return effort._replace(n_labels=n_scored, n_met=max(n_scored, min(most, n_common + effort.n_met)))
        of_labels, of_rows = self._amounts()
        listed = max(_FEWEST_LISTED, int(_LISTED_FOR_A_LABEL * of_labels.sum() / max(1, of_rows)))
        width = _WIDER_IN_TRAINING if training else 1
        return effort._replace(n_labels=most, n_listed=width * listed, n_met=most)

    # Answering

    def _all_scorers(self, n_rows: int = 0) -> AllScorers | None:
        return scorers_laid_out(self) if 0 < self.forest_.n_memories == self.head_.common.labels.size else None

    def _lists(self) -> None:
        """Return None: rare labels have learned only from rows that they were candidates for."""

    @reads
    def top_labels(self, X: Any, k: int = 5) -> tuple[np.ndarray, np.ndarray]:
        """Return the ``k`` labels that fit each row best.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, n_features)
            Queries.
        k : int, default 5
            Labels wanted: at most 1,000,000, or as many as there are if that is more.

        Returns
        -------
        labels : ndarray of int64, shape (n, k)
            Columns, the best first; -1 where there were fewer candidates.
        decisions : ndarray of float32, shape (n, k)
            Their scores, positive where the row should have the label; minus infinity for none.
        """
        rows = self._checked(X)
        k = check_wanted("k", k, self.classes_.size)
        if self.forest_.n_memories == 0:
            return np.full((rows.n_rows, k), NONE, np.int64), np.full((rows.n_rows, k), -np.inf, np.float32)
        labels, scores, *_ = self._best_labels(rows, k)
        return np.where(labels == NONE, NONE, self._column_of_label[labels]), scores

    def _labels_above(
        self, rows: Rows, lowest: float, n_listed: int = _LABELS_LISTED
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the rows, the columns and the scores of all labels of a score above ``lowest``.

        Where a search finds them, ``n_listed`` are listed at a time, or those of one row.
        """
        if self.forest_.n_memories == 0:
            return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32)
        scorers = self._all_scorers()
        if scorers is not None:
            row, labels, scores = all_above(scorers, rows, lowest)
            return row, self._column_of_label[labels], scores
        state, effort, questions = self._searched(), self._effort(), all_of(routed(rows), rows)
        trees, routers, head = state.trees, state.models, self.head_.scorers

        def answer(span: tuple[int, int]) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
            found, ends = [], np.empty(rows.n_rows, np.int64)
            (first, stop), room = span, n_listed
            while first < stop:
                labels, scores = np.empty(room, np.int64), np.empty(room, np.float32)
                asked = questions._replace(first=first, stop=stop)
                done = list_labels(trees, routers, head, asked, effort, lowest, Listing(ends, labels, scores))
                if done > first:
                    of_rows = np.repeat(np.arange(first, done), np.diff(ends[first:done], prepend=0))
                    found.append((of_rows, labels[: ends[done - 1]], scores[: ends[done - 1]]))
                else:
                    room *= 2
                first = done
            return found

        n_threads = self.forest_._forest.threads_for(rows.n_rows)
        parts = map_threads(answer, spans(rows.n_rows, -(-rows.n_rows // n_threads)), n_threads)
        row, labels, scores = (np.concatenate(part) for part in zip(*[f for part in parts for f in part], strict=True))
        return row, self._column_of_label[labels], scores

    def _lowest(self) -> float:
        """Return the score above which labels are predicted."""
        if self.threshold != F1:
            return float(self.threshold)
        if not hasattr(self, "threshold_"):
            raise ValueError('threshold="f1" is learned by fit: fit again, or set a number')
        return self.threshold_

    @reads
    def predict(self, X: Any) -> Any:
        """Return which labels each row has: an indicator matrix, sparse if the labels were when ``fit`` saw them.

        If these were lists of names, a list of tuples of names; if they were a vector of classes, so is this.
        """
        rows = self._checked(X)
        row, column, _ = self._labels_above(rows, self._lowest())
        if self._pair is not None:
            return self._pair[np.isin(np.arange(rows.n_rows), row).astype(np.int64)]
        return label_sets(row, column, (rows.n_rows, self.n_labels_), names=self._names, sparse=self._sparse_output)

    @reads
    def decision_function(self, X: Any) -> np.ndarray:
        """Return the score of each label for each row, above ``threshold`` where it has it: float64, (n, n_labels).

        Labels that were no candidates get 1 less than the lowest score of any that was. If ``fit`` saw a
        vector, the score of the second class, shape (n,).
        """
        rows = self._checked(X)
        scorers = self._all_scorers()
        if scorers is not None:
            scores = exact_scores_of_all(scorers, rows)
            values = np.full((rows.n_rows, self.n_labels_), min(float(scores.min()), 0.0) - 1.0)
            values[:, self._column_of_label] = scores
        else:
            row, column, scores = self._labels_above(rows, -np.inf)
            values = np.full((rows.n_rows, self.n_labels_), min(float(scores.min(initial=0.0)), 0.0) - 1.0)
            values[row, column] = scores
        return values if self._pair is None else values[:, 0]

    @reads
    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each label for each row by itself: float64, shape (n, n_labels).

        If ``fit`` saw a vector, that of each class, shape (n, n_classes).
        """
        proba = 1.0 / (1.0 + np.exp(-LOGITS_PER_MARGIN * self.decision_function(X)))
        if self._pair is None:
            return proba
        return np.column_stack([1.0 - proba, proba]) if self._pair.size == 2 else np.ones((proba.size, 1))

    @reads
    def kneighbors(self, X: Any, n_neighbors: int = 5, return_distance: bool = True) -> Any:
        """Return the nearest examples of each row, by their cosine.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, n_features)
            Queries.
        n_neighbors : int, default 5
            Examples wanted for each row: at most 1,000,000.
        return_distance : bool, default True
            Whether to return distances too.

        Returns
        -------
        neigh_dist : ndarray of float32, shape (n, n_neighbors)
            1 minus the cosine; infinite where fewer examples were found. Only with ``return_distance``.
        neigh_ind : ndarray of int64, shape (n, n_neighbors)
            Positions among all examples ever given to ``fit`` and ``partial_fit``, -1 for none.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before the first example.
        TypeError, ValueError
            If an argument cannot be used, or examples were not stored.
        """
        rows, k = self._checked(X), check_wanted("n_neighbors", n_neighbors, 0)
        if self.examples_ is None:
            raise ValueError("examples are not stored: pass store_examples=True and fit again to find neighbors")
        hits = query_forest(self.examples_._forest, rescaled(rows), k, _EXAMPLE_LEAVES)
        return (1.0 - hits.scores, hits.ids) if return_distance else hits.ids

    @reads
    def count_candidates(self, X: Any) -> np.ndarray:
        """Return how many labels are scored for each row, not only met in a list of the index: int64, shape (n,)."""
        rows = self._checked(X)
        return self._best_labels(rows, 1).n_scored if self.forest_.n_memories > 0 else np.zeros(rows.n_rows, np.int64)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.multi_label = True
        tags.target_tags.two_d_labels = True
        tags.target_tags.multi_output = True
        tags.classifier_tags.poor_score = True
        return tags
