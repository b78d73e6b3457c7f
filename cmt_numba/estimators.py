"""scikit-learn estimators."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from ._candidates import Effort, Questions, score_labels
from ._examples import ExampleParameters, nearest_rows, new_examples, with_examples
from ._head import (
    HEAD_LOSSES,
    HeadParameters,
    new_head,
    with_digest,
    with_labels,
    with_more_cells,
    with_postings,
    without_digest,
    without_negligible_weights,
)
from ._hits import no_hits
from ._keys import Rows, as_matrix, keep_heaviest, normalize_rows
from ._parallel import map_threads, spans
from ._rivalry import learn_labels, margin_wanted, measure_gaps, new_duals
from ._state import DONE, N_MEMORIES, NEXT_ROW, NONE, TABLES_END
from ._validation import check_choice, check_integer, check_real, check_rows
from .tree import ContextualMemoryTree

VOTES = ("uniform", "score")

# Labels that are looked at for a row.
_FEWEST_CANDIDATES = 16  # with fewer labels in all, every one that is reached
_SHARE_OF_LABELS = 0.2  # at most, where there are many
_LABELS_PER_LEVEL = 400  # at most, for each level that a balanced tree of them would have, where there are very many
_FEWEST_LISTED = 16  # of those from the head's index that are scored in full
_SHARE_LISTED = 1 / 64  # of those looked at, if that is more
_WIDER_IN_TRAINING = 2  # leaves and listed labels, so that the head learns of more rivals than it will be asked about

_LABELS_SCANNED = 8  # whose examples may be a row's neighbours; the nearest seldom belongs to one the head ranks lower
_LOGITS_PER_MARGIN = 4.0  # a lead of a whole margin is worth odds of 55 to 1

# The head's index and digest.
_GROWTH_LISTED = 1.25  # the head may have so many times the labels listed before it lists them anew
_LABELS_LISTED_A_ROW = 16  # takes about as long as learning the row

# Routers.
_CELLS_ROUTED = 20  # of a sparse row: lighter ones cost time and memory, and make answers worse more often than better
_SURE_MARGIN = 0.2  # taught routers answer new rows with less than what they were taught
_DENSE_TREES = 8
_MORE_TREES, _MANY_EXAMPLES = 12, 16  # where classes have so many on average: routers and head are then worth more
_SPARSE_TREES = 2  # sparse rows have the head's index as well
_DENSE_LEAVES, _SPARSE_LEAVES = 1.5, 1  # searched for each tree
_LABELS_BEFORE_MORE_LEAVES = 512  # dense rows search as many leaves again for each time that labels are twice as many
_DENSE_MULTIPLIER, _SPARSE_MULTIPLIER = 2.0, 1.0  # c
_MANY_CLASSES = 25  # from here on, a leaf
_SHARE_OF_A_LEAF = 1 / 25  # of the classes, or what c allows if that is less: so a few leaves are few of the classes


class CMTClassifier(ClassifierMixin, BaseEstimator):
    """A classifier over very many classes: a forest of Contextual Memory Trees with a one-against-some head.

    The forest's memories are the classes, each under the mean of its first examples. Routers are taught the way to
    each example's class, so that a new example reaches, in time logarithmic in the number of classes, a few leaves
    with the classes that come into question; among these a linear scorer for each class decides. Both learn online:
    ``partial_fit`` takes new examples, and new classes, at any time.

    Parameters
    ----------
    n_trees : int, optional
        Trees of the forest. More trees find the right class more often and take longer. By default 2 for sparse
        examples, whose classes are also found by their rare features, 8 for dense ones, and 12 where the classes have
        16 dense examples or more on average.
    n_probes : int, optional
        Leaves searched in all trees together; by default one for each tree with sparse examples, three for
        two trees with dense ones, and as many again for each time that there are twice as many classes as a thousand.
    n_router_passes : int, default 2
        How often each example teaches the routers. With 0 the trees are unsupervised.
    n_head_passes : int, default 5
        How often each example trains the head. With 0 classes are told apart by their mean examples.
    loss : {"mira", "softmax", "logistic", "squared"}, default "mira"
        What the head learns by. "mira" is Crammer and Singer's multiclass support vector machine with squared slack,
        solved in the dual one example at a time; the others are minimised by AdaGrad.
    aggressiveness : float, default 1.0
        Of "mira": how hard the margin is (``C``). The larger, the more an example that falls short of it counts.
    learning_rate : float, default 5.0
        AdaGrad step of the other losses, relative to the sum of an example's absolute values.
    method : {"head", "neighbors"}, default "head"
        Whether ``predict`` answers with the head's best class, or lets the nearest memories vote.
    n_neighbors : int, default 5
        How many memories vote.
    weights : {"uniform", "score"}, default "uniform"
        Whether each memory has one vote, or as much as its score.
    leaf_multiplier : float, optional
        ``c``: a leaf of a tree of ``n`` classes holds at most ``c * log2(n)``. By default 2 for dense examples and 1
        for sparse ones, less where ``fit`` sees few classes.
    alpha : float in (0, 1], default 0.9
        How strongly routers keep the two sides of a node equal in number while classes are inserted.
    n_reroutes : int, default 5
        How many classes each tree reroutes after each class inserted.
    n_jobs : int, optional
        Threads; by default one, with -1 as many as numba uses. Answers do not depend on it.
    random_state : int, numpy.random.RandomState or None
        Seed.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes known, sorted.
    n_features_in_ : int
        Width of the examples.
    forest_ : ContextualMemoryTree
        The trees over the classes.
    """

    def __init__(
        self,
        n_trees: int | None = None,
        n_probes: int | None = None,
        *,
        n_router_passes: int = 2,
        n_head_passes: int = 5,
        loss: str = "mira",
        aggressiveness: float = 1.0,
        learning_rate: float = 5.0,
        method: str = "head",
        n_neighbors: int = 5,
        weights: str = "uniform",
        leaf_multiplier: float | None = None,
        alpha: float = 0.9,
        n_reroutes: int = 5,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_trees = n_trees
        self.n_probes = n_probes
        self.n_router_passes = n_router_passes
        self.n_head_passes = n_head_passes
        self.loss = loss
        self.aggressiveness = aggressiveness
        self.learning_rate = learning_rate
        self.method = method
        self.n_neighbors = n_neighbors
        self.weights = weights
        self.leaf_multiplier = leaf_multiplier
        self.alpha = alpha
        self.n_reroutes = n_reroutes
        self.n_jobs = n_jobs
        self.random_state = random_state

    # Learning

    def fit(self, X: Any, y: Any) -> CMTClassifier:
        """Learn from examples, forgetting earlier ones.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, n_features)
            Examples.
        y : array-like, shape (n,)
            Their classes, of any type that sorts.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If an argument or a parameter cannot be used.
        """
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=[np.float32, np.float64])
        _check_classes(y)
        self._check_parameters()
        classes, y = np.unique(y, return_inverse=True)
        rows = check_rows(X)
        self._start(rows, classes)
        return self._learn(rows, y, afresh=True)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> CMTClassifier:
        """Learn from further examples, of known classes or new ones.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, n_features)
            Examples.
        y : array-like, shape (n,)
            Their classes.
        classes : array-like, optional
            Classes that may come. Not needed, because new ones may come at any time.

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
        started = hasattr(self, "forest_")
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=[np.float32, np.float64], reset=not started)
        _check_classes(y)
        self._check_parameters()
        expected = np.asarray(y if classes is None else classes)
        if classes is not None and not np.all(np.isin(y, expected)):
            raise ValueError("y must hold only classes that are named in classes")
        rows = check_rows(X, sparse=self.head_.parameters.sparse) if started else check_rows(X)
        if started:
            self._extend_classes(np.setdiff1d(expected, self.classes_))
        else:
            self._start(rows, np.unique(expected))
        return self._learn(rows, np.searchsorted(self.classes_, y), afresh=False)

    def _check_parameters(self) -> None:
        check_integer("n_router_passes", self.n_router_passes, 0)
        check_integer("n_head_passes", self.n_head_passes, 0)
        check_choice("loss", self.loss, HEAD_LOSSES)
        check_real("aggressiveness", self.aggressiveness, 0.0, 1e6, above=True)
        check_real("learning_rate", self.learning_rate, 0.0, 1e6, above=True)
        check_choice("method", self.method, ("head", "neighbors"))
        check_choice("weights", self.weights, VOTES)
        check_integer("n_neighbors", self.n_neighbors, 1)
        if self.n_probes is not None:
            check_integer("n_probes", self.n_probes, 1)

    def _start(self, rows: Rows, classes: np.ndarray) -> None:
        n_trees, leaf_multiplier = self.n_trees, self.leaf_multiplier
        if n_trees is None:
            many = rows.n_rows >= _MANY_EXAMPLES * classes.size
            n_trees = _SPARSE_TREES if rows.sparse else _MORE_TREES if many else _DENSE_TREES
        if leaf_multiplier is None:
            usual = _SPARSE_MULTIPLIER if rows.sparse else _DENSE_MULTIPLIER
            leaf_multiplier = _leaf_multiplier_for(classes.size, usual)
        seed = check_random_state(self.random_state).randint(2**31)
        self.forest_ = ContextualMemoryTree(
            n_trees,
            self.alpha,
            leaf_multiplier,
            self.n_reroutes,
            sure_margin=_SURE_MARGIN,
            n_threads=self._n_threads(),
            random_state=seed,
        )
        self._orders = np.random.default_rng(seed)
        self.head_ = new_head(
            HeadParameters(
                n_trees=1,
                n_features=rows.n_features,
                sparse=rows.sparse,
                loss=HEAD_LOSSES.index(self.loss),
                learning_rate=float(self.learning_rate),
            )
        )
        self.examples_ = new_examples(ExampleParameters(n_features=rows.n_features, sparse=rows.sparse))
        self._cells_pruned = 0
        self._n_unlisted = 0
        self.classes_ = classes
        self._label_of_class = np.full(classes.size, NONE, np.int64)  # a label is a memory of the forest
        self._class_of_label = np.empty(0, np.int64)

    def _extend_classes(self, new: np.ndarray) -> None:
        if new.size == 0:
            return
        classes = np.concatenate([self.classes_, new])
        order = np.argsort(classes, kind="stable")
        position = np.empty(order.size, np.int64)
        position[order] = np.arange(order.size)
        labels = np.concatenate([self._label_of_class, np.full(new.size, NONE, np.int64)])
        self.classes_ = classes[order]
        self._label_of_class = labels[order]
        self._class_of_label = position[self._class_of_label]

    def _n_threads(self) -> int | None:
        if self.n_jobs is None:
            return 1
        return None if self.n_jobs == -1 else check_integer("n_jobs", self.n_jobs, 1)

    def _learn(self, rows: Rows, y: np.ndarray, *, afresh: bool) -> CMTClassifier:
        """Insert the new classes among ``y``, positions in ``classes_``, then teach routers and head."""
        questions = Questions(_routed(rows), rows)
        self.head_ = without_digest(self.head_)
        self._insert_classes(rows, y)
        labels = self._label_of_class[y]
        self.examples_ = with_examples(self.examples_, rows, labels, self.forest_.n_memories)
        if self.n_router_passes > 0:
            self.forest_._teach_rows(questions.routed, labels, self.n_router_passes, afresh, progress=False)
        if self.head_.parameters.sparse and self.forest_.n_memories > _GROWTH_LISTED * self.head_.postings.n_labels:
            self.head_ = with_postings(self.head_)
        if self.n_head_passes > 0:
            self._train_head(questions, labels)
        self._n_unlisted += rows.n_rows
        if self._n_unlisted * _LABELS_LISTED_A_ROW >= self.forest_.n_memories:  # too much work after every few rows
            self.head_ = with_digest(self.head_)
            if self.head_.parameters.sparse:
                self.head_ = with_postings(self.head_)
            self._n_unlisted = 0
        return self

    def _insert_classes(self, rows: Rows, y: np.ndarray) -> None:
        """Insert the classes among ``y`` that have no memory yet, in random order, each under its mean example."""
        new = np.unique(y[self._label_of_class[y] == NONE])
        if new.size == 0:
            return
        self._orders.shuffle(new)
        labels = np.full(self.classes_.size, NONE, np.int64)
        labels[new] = np.arange(new.size)
        of_new = np.flatnonzero(labels[y] != NONE)
        ones = np.ones(of_new.size, np.float32)
        members = scipy.sparse.csr_array((ones, (labels[y[of_new]], of_new)), (new.size, rows.n_rows))
        means = check_rows(members @ as_matrix(rows), sparse=rows.sparse)
        head = with_labels(self.head_, means)
        ids = self.forest_.insert(as_matrix(_routed(means)))
        self.head_ = head
        self._label_of_class[new] = ids
        self._class_of_label = np.concatenate([self._class_of_label, new])

    def _train_head(self, questions: Questions, labels: np.ndarray) -> None:
        state = self.forest_._allocated()
        effort = self._effort(training=True)
        n_rows = questions.rows.n_rows
        measure_gaps(state, self.head_, questions, self._orders.permutation(n_rows), labels, effort)
        n_examples = np.bincount(self.examples_.label_of[: self.examples_.keys.totals[N_MEMORIES]])
        duals = new_duals(self.aggressiveness, n_examples[labels])
        for n_pass in range(self.n_head_passes):
            # Rows that changed nothing the last time are looked at only every other time.
            order = np.arange(n_rows) if n_pass % 2 == 0 else np.flatnonzero(~duals.settled)
            self._orders.shuffle(order)
            self.head_.counters[0, NEXT_ROW] = 0
            while learn_labels(state, self.head_, questions, order, labels, order.size, effort, duals) != DONE:
                self.head_ = with_more_cells(self.head_)
        if self.head_.parameters.sparse and self.head_.counters[0, TABLES_END] > 2 * self._cells_pruned:
            self.head_ = without_negligible_weights(self.head_)
            self._cells_pruned = int(self.head_.counters[0, TABLES_END])

    # Answering

    def _effort(self, *, training: bool = False) -> Effort:
        """Return how far to search for candidates; for training farther than for answers."""
        parameters, n_labels = self.forest_._allocated().parameters, self.forest_.n_memories
        width = _WIDER_IN_TRAINING if training else 1
        if self.n_probes is not None:
            n_leaves = width * self.n_probes
        elif parameters.sparse:
            n_leaves = width * _SPARSE_LEAVES * parameters.n_trees
        else:
            growth = max(1.0, float(np.log2(n_labels / _LABELS_BEFORE_MORE_LEAVES)))
            n_leaves = int(_DENSE_LEAVES * max(width, growth) * parameters.n_trees)
        most = max(_FEWEST_CANDIDATES, int(min(_SHARE_OF_LABELS * n_labels, _LABELS_PER_LEVEL * np.log2(n_labels + 1))))
        return Effort(n_leaves, most, width * max(_FEWEST_LISTED, int(_SHARE_LISTED * most)))

    def _checked(self, X: Any) -> Rows:
        check_is_fitted(self, "forest_")
        self._check_parameters()  # they may have been set since
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float32, np.float64], reset=False)
        return check_rows(X, sparse=self.head_.parameters.sparse)

    def _in_threads(self, rows: Rows, work: Any) -> None:
        n_threads = self.forest_._threads_for(rows.n_rows)
        map_threads(lambda span: work(*span), spans(rows.n_rows, -(-rows.n_rows // n_threads)), n_threads)

    def _best_labels(self, rows: Rows, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the ``k`` best labels of each row, NONE where fewer were reached, their scores, and how many were."""
        labels = np.full((rows.n_rows, k), NONE, np.int64)
        scores = np.full((rows.n_rows, k), -np.inf, np.float32)
        touched = np.zeros(rows.n_rows, np.int64)
        state, effort = self.forest_._allocated(), self._effort()
        questions = Questions(_routed(rows), rows)

        def answer(first: int, stop: int) -> None:
            score_labels(state, self.head_, questions, first, stop, effort, labels, scores, touched)

        self._in_threads(rows, answer)
        return labels, scores, touched

    def predict(self, X: Any) -> np.ndarray:
        """Return the class of each row.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, n_features)
            Queries.

        Returns
        -------
        ndarray of shape (n,)
            One of ``classes_`` for each row.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before the first example.
        TypeError, ValueError
            If ``X`` cannot be used.
        """
        rows = self._checked(X)
        if self.method == "neighbors":
            return self.classes_[self._votes(rows).argmax(axis=1)]
        labels, _, _ = self._best_labels(rows, 1)
        return self.classes_[self._class_of_label[labels[:, 0]]]

    def count_candidates(self, X: Any) -> np.ndarray:
        """Return how many classes the head scores for each row: int64, shape (n,)."""
        return self._best_labels(self._checked(X), 1)[2]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each class for each row.

        With ``method="head"`` the softmax of the scores of the classes reached, with ``method="neighbors"`` the share
        of the votes. Classes not reached have probability 0.

        Returns
        -------
        ndarray of float64, shape (n, n_classes)
            Rows sum to 1.
        """
        rows = self._checked(X)
        if self.method == "neighbors":
            votes = self._votes(rows)
            return votes / votes.sum(axis=1, keepdims=True)
        labels, scores, _ = self._best_labels(rows, self._effort().n_labels)
        logits = scores.astype(np.float64) * (_LOGITS_PER_MARGIN / margin_wanted(self.head_))
        odds = np.exp(logits - logits[:, :1])
        proba = np.zeros((rows.n_rows, self.classes_.size))
        row, rank = np.nonzero(labels != NONE)
        proba[row, self._class_of_label[labels[row, rank]]] = odds[row, rank]
        return proba / proba.sum(axis=1, keepdims=True)

    def kneighbors(self, X: Any, n_neighbors: int | None = None, return_distance: bool = True) -> Any:
        """Return the nearest memories of each row, by their cosine and by what the head says of their class.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, n_features)
            Queries.
        n_neighbors : int, optional
            Memories wanted for each row; by default the parameter of this name.
        return_distance : bool, default True
            Whether to return distances too.

        Returns
        -------
        neigh_dist : ndarray of float32, shape (n, n_neighbors)
            Learned distances: 1 minus the mean of the cosine and the score of the memory's class. Infinite where
            fewer memories were reached. Only with ``return_distance``.
        neigh_ind : ndarray of int64, shape (n, n_neighbors)
            The memories' positions among all examples ever given to ``fit`` and ``partial_fit``, -1 for none.
        """
        k = check_integer("n_neighbors", self.n_neighbors if n_neighbors is None else n_neighbors, 1)
        ids, scores = self._neighbors(self._checked(X), k)
        return (1.0 - scores, ids) if return_distance else ids

    def _neighbors(self, rows: Rows, k: int) -> tuple[np.ndarray, np.ndarray]:
        hits = no_hits(rows.n_rows, k)
        state, effort = self.forest_._allocated(), self._effort()
        questions = Questions(_routed(rows), rows)

        def answer(first: int, stop: int) -> None:
            nearest_rows(state, self.head_, self.examples_, questions, first, stop, effort, _LABELS_SCANNED, hits)

        self._in_threads(rows, answer)
        return hits.ids, hits.scores

    def _votes(self, rows: Rows) -> np.ndarray:
        ids, scores = self._neighbors(rows, self.n_neighbors)
        votes = np.zeros((rows.n_rows, self.classes_.size))
        row, rank = np.nonzero(ids != NONE)
        classes = self._class_of_label[self.examples_.label_of[ids[row, rank]]]
        weight = np.maximum(scores[row, rank], 1e-6) if self.weights == "score" else 1.0
        np.add.at(votes, (row, classes), weight)
        return votes

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.poor_score = True
        return tags


def _leaf_multiplier_for(n_classes: int, usual: float) -> float:
    """Return ``c`` for trees over so many classes: leaves that hold a small share of them, but some."""
    if n_classes < _MANY_CLASSES:
        return usual
    return min(usual, _SHARE_OF_A_LEAF * n_classes / float(np.log2(n_classes)))


def _check_classes(y: np.ndarray) -> None:
    """Raise ValueError unless ``y`` can be classes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # many classes of few examples each are what this is for
        check_classification_targets(y)


def _routed(rows: Rows) -> Rows:
    """Return rows as routers see them: the heaviest cells of each, scaled to length 1 again."""
    if not rows.sparse:
        return rows
    values, indices = np.empty_like(rows.values), np.empty_like(rows.indices)
    offsets = np.zeros_like(rows.offsets)
    end = keep_heaviest(rows, _CELLS_ROUTED, values, indices, offsets)
    values = values[:end].copy()
    unit = np.empty_like(values)
    normalize_rows(values, offsets, unit)
    return Rows(unit, indices[:end].copy(), offsets, rows.n_features, True)
