"""The classifier: one class for each example."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import validate_data

from .._forest.hits import no_hits
from .._forest.rows import Rows, rescaled
from .._forest.state import NONE
from .._heads.candidates import Questions, all_of
from .._heads.examples import (
    ExampleParameters,
    Examples,
    append_examples,
    nearest_rows,
    new_examples,
    with_room_for_examples,
)
from .._heads.label_scorers import HEAD_LOSSES, count_in_means
from .._heads.multiclass_svm import Lesson, learn_labels, margin_wanted, measure_gaps, new_duals
from .._heads.products import exact_scores_of_all
from .._heads.shortlists import new_shortlists
from .._validation import MOST_WANTED, Constraint, Integer, OneOf, Real, check_rows, check_wanted, sound, unmasked
from ._base import changes_at_once, reads
from ._input import DTYPES
from ._label_forest import LOGITS_PER_MARGIN, MOST_TRAINED_ALONE, LabelForest, routed
from ._labels import check_classes, check_expected, check_targets, in_one_type
from ._relearning import PASSES_ONLINE, all_examples, former_head_on_failure, head_of_means, is_due, replayed

METHODS = ("head", "neighbors")
VOTES = ("uniform", "score")

_LABELS_SCANNED = 8  # whose examples may be a row's neighbours; the nearest seldom belongs to one the head ranks lower


class CMTClassifier(ClassifierMixin, LabelForest):
    """A classifier over very many classes: a forest of Contextual Memory Trees with a one-against-some head.

    The forest's memories are the classes, each under the mean of its first examples. Routers are taught the way to
    each example's class, so that a new example reaches, in time logarithmic in the number of classes, a few leaves
    with the candidate classes; a linear scorer for each of these decides. Both learn online:
    ``partial_fit`` takes new examples, and new classes, at any time.

    Up to 8,192 classes of dense examples, and 1,024 of sparse ones if they have few features, are all scored by matrix
    products: that errs least, and for batches of rows it is faster than any search. More classes of dense examples are
    kept in lists of similar ones, and a row is scored against the lists nearest to it. Trees are searched for sparse
    examples of more classes, for neighbors, and whenever ``n_probes`` or ``n_candidates`` is set.

    Parameters
    ----------
    n_trees : int, optional
        Trees of the forest. More trees find the right class more often and take longer. By default 2 for sparse
        examples, whose classes are also found by their rare features, 8 for dense ones, and 12 where the classes have
        16 dense examples or more on average.
    n_probes : int, optional
        Leaves searched in all trees together. Where trees are searched, by default one for each tree with sparse
        examples, three for two trees with dense ones, and as many again for each time that there are twice as many
        classes as a thousand.
    n_candidates : int, optional
        Maximum number of candidate classes for a row: fewer are faster and less accurate. Where trees are searched, by
        default a fifth of the classes, less where there are thousands; all of them for sparse rows where the head's
        index, which lists the classes by feature, finds the best of all. It can be set at any time, for learning does
        not depend on it.
    n_router_passes : int, default 2
        Number of passes over the examples that teach the routers, at most 10,000. With 0 the trees are unsupervised,
        as they are where ``fit`` gets one sparse example of each class.
    n_head_passes : int, default 5
        Number of passes over the examples that train the head, at most 10,000. With 0 a class is scored by its mean
        example. So it is, without any pass, where more than 8,192 classes have one sparse example each.
    loss : {"softmax", "logistic", "mira"}, default "mira"
        What the head learns by. "mira" is the multiclass support vector machine of Crammer and Singer (2001) with
        squared slack, solved in the dual one example at a time (Keerthi et al., 2008). The other losses are minimised
        by AdaGrad (Duchi et al., 2011).
    aggressiveness : float, default 1.0
        Of "mira": how hard the margin is (``C``). The larger, the more an example that falls short of it counts.
    learning_rate : float, default 5.0
        AdaGrad step of the other losses, relative to the sum of an example's absolute values.
    method : {"head", "neighbors"}, default "head"
        Whether ``predict`` answers with the head's best class, or lets the nearest memories vote.
    n_neighbors : int, default 5
        Number of memories that vote, at most 1,000,000.
    weights : {"uniform", "score"}, default "uniform"
        Whether each memory has one vote, or as much as its score.
    leaf_multiplier : float, optional
        ``c``: a leaf of a tree of ``n`` classes holds at most ``c * log2(n)``. By default 2 for dense examples and 1
        for sparse ones, less where ``fit`` sees few classes.
    alpha : float in (0, 1], default 0.9
        How strongly routers keep the two sides of a node equal in number while classes are inserted.
    n_reroutes : int, default 5
        How many classes each tree reroutes after each class inserted: at most 10,000. None where ``fit`` gets one
        sparse example of each class.
    store_examples : bool, default True
        Whether to keep all examples. ``kneighbors`` and ``method="neighbors"`` need them, and ``partial_fit`` learns
        some of them again beside new ones, and all once there are a quarter more: so it ends near ``fit`` on all, and
        classes without new examples do not fade. Without them memory grows with the classes and their features, not
        with the examples, and a stream may be of any length. What counts is the value when the first are learned.
    n_jobs : int, optional
        Threads; by default one, with -1 as many as numba uses. Answers do not depend on it. Matrix products run on as
        many threads as NumPy's linear algebra library is set to.
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

    _kind = "CMTClassifier"  # of what is in a file
    _n_relearned = 0  # examples there were when all were learned last; files of earlier versions do not say
    _constraints: ClassVar[dict[str, Constraint]] = {
        **LabelForest._constraints,
        "loss": OneOf(tuple(HEAD_LOSSES)),
        "learning_rate": Real(0.0, 1e6, above=True),
        "method": OneOf(METHODS),
        "n_neighbors": Integer(1, MOST_WANTED),
        "weights": OneOf(VOTES),
    }

    def __init__(
        self,
        n_trees: int | None = None,
        n_probes: int | None = None,
        n_candidates: int | None = None,
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
        store_examples: bool = True,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            n_trees,
            n_probes,
            n_candidates,
            n_router_passes=n_router_passes,
            n_head_passes=n_head_passes,
            aggressiveness=aggressiveness,
            leaf_multiplier=leaf_multiplier,
            alpha=alpha,
            n_reroutes=n_reroutes,
            store_examples=store_examples,
            n_jobs=n_jobs,
            random_state=random_state,
        )
        self.loss = loss
        self.learning_rate = learning_rate
        self.method = method
        self.n_neighbors = n_neighbors
        self.weights = weights

    # Learning

    @changes_at_once
    def fit(self, X: Any, y: Any) -> CMTClassifier:
        """Learn from examples, forgetting earlier ones.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, n_features)
            Examples.
        y : array-like, shape (n,)
            Their classes: numbers, strings, or of any other type of NumPy's that sorts.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If an argument or a parameter cannot be used.
        """
        return self._begin_anew(lambda anew: anew._fit(X, y, None, afresh=True))

    def _fit(self, X: Any, y: Any, classes: Any, *, afresh: bool) -> None:
        """Learn from the first examples."""
        y, expected = check_classes(y, classes)
        X, y = validate_data(self, sound(X), unmasked("y", y), accept_sparse="csr", dtype=DTYPES)
        check_targets(y)
        self._check_all_parameters()
        expected, y = in_one_type("y", np.asarray(y) if expected is None else expected, np.asarray(y))
        rows = check_rows(X)
        self._start(rows, np.unique(expected))
        check_expected(y, self.classes_)
        self._learn(rows, self.classes_, y, afresh=afresh)

    @changes_at_once
    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> CMTClassifier:
        """Learn from further examples, of known classes or new ones.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, n_features)
            Examples.
        y : array-like, shape (n,)
            Their classes, of a type that goes with those before: a label stays what it is.
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
        if not hasattr(self, "forest_"):
            return self._begin_anew(lambda anew: anew._fit(X, y, classes, afresh=False))
        y, expected = check_classes(y, classes)
        X, y = validate_data(self, sound(X), unmasked("y", y), accept_sparse="csr", dtype=DTYPES, reset=False)
        check_targets(y)
        self._check_parameters()
        y = np.asarray(y)
        known, y, expected = in_one_type("y", self.classes_, y, y if expected is None else expected)
        if classes is not None:
            check_expected(y, expected)
        rows = check_rows(X, sparse=self.head_.parameters.sparse)
        new = np.setdiff1d(expected, known)
        self._learn(rows, np.sort(np.concatenate([known, new])) if new.size > 0 else known, y, afresh=False)
        return self

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.method == "neighbors" and not self.store_examples:
            raise ValueError("method='neighbors' needs stored examples: pass store_examples=True, or method='head'")

    def _start(self, rows: Rows, classes: np.ndarray) -> None:
        self._start_forest(rows, classes.size, HEAD_LOSSES[self.loss], float(self.learning_rate))
        parameters = ExampleParameters(n_features=rows.n_features, sparse=rows.sparse)
        self.examples_ = new_examples(parameters) if self.store_examples else None
        self.classes_ = classes
        self._n_of_label = np.empty(0, np.int64)
        self._n_measured = self._n_relearned = 0  # examples there were when half of the gaps were last forgotten
        self._label_of_class = np.full(classes.size, NONE, np.int64)
        self._class_of_label = np.empty(0, np.int64)

    def _learn(self, rows: Rows, classes: np.ndarray, y: np.ndarray, *, afresh: bool) -> None:
        """Make classes known, which include those that are, and learn examples of some of them."""
        # Classes of one sparse example each are found by their features: routers have nothing to learn for them.
        listed = afresh and rows.sparse and np.unique(y).size == rows.n_rows
        labels, known = self._make_known(rows, classes, np.searchsorted(classes, y), 0 if listed else None)
        if self.examples_ is not None:
            self.examples_ = with_room_for_examples(self.examples_, rows, self.forest_.n_memories)
            append_examples(self.examples_.lists, rows, labels)
            if self.n_head_passes > 0 and is_due(int(self._n_of_label.sum()), self._n_relearned):
                self._learn_again()
                return
        self._begin_training()
        if self.loss == "mira" and known.any():
            self.head_ = count_in_means(self.head_, rescaled(rows.take(known)), labels[known])
        if not listed:
            self._teach_routers(routed(rows), labels, afresh=afresh)
        n_rows, n_passes = rows.n_rows, self.n_head_passes
        if self.examples_ is not None and self._n_relearned > 0:
            (rows, labels), n_passes = replayed(self.examples_, n_rows, self._orders), min(n_passes, PASSES_ONLINE)
        if n_passes > 0:
            self._train_head(all_of(routed(rows), rows), labels, n_passes)
        self._end_training(n_rows)
        self._n_relearned = self._n_relearned or n_rows

    def _learn_again(self) -> None:
        """Learn all examples stored, starting from their means. If that fails the head is what it was."""
        rows, labels = all_examples(self._stored())
        with former_head_on_failure(self):
            self.head_ = head_of_means(self.head_, rows, labels)
            self._begin_training()
            self._teach_routers(routed(rows), labels, afresh=False)
            self._train_head(all_of(routed(rows), rows), labels, self.n_head_passes)
            self._end_training(rows.n_rows)
        self._n_relearned = rows.n_rows

    def _make_known(
        self, rows: Rows, classes: np.ndarray, y: np.ndarray, n_reroutes: int | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Make classes known; return the label of each row, whose positions there are ``y``, and which had one.

        Classes of rows that have no memory yet are inserted in random order, each under its mean example.
        """
        label_of_class, class_of_label = self._label_of_class, self._class_of_label
        if classes.size > self.classes_.size:
            position = np.searchsorted(classes, self.classes_.astype(classes.dtype, copy=False))
            label_of_class = np.full(classes.size, NONE, np.int64)
            label_of_class[position] = self._label_of_class
            class_of_label = position[class_of_label]
        known = label_of_class[y] != NONE
        new, head = np.unique(y[~known]), self.head_
        if new.size > 0:
            self._orders.shuffle(new)
            place = np.full(classes.size, NONE, np.int64)
            place[new] = np.arange(new.size)
            of_new = np.flatnonzero(place[y] != NONE)
            head, inserted = self._insert_labels(rows, place[y[of_new]], of_new, new.size, n_reroutes)
            label_of_class = label_of_class.copy()
            label_of_class[new] = inserted
            class_of_label = np.concatenate([class_of_label, new])
        labels = label_of_class[y]
        n_of_label = np.bincount(labels, minlength=class_of_label.size)
        n_of_label[: self._n_of_label.size] += self._n_of_label
        self.__dict__.update(
            classes_=classes,
            head_=head,
            _label_of_class=label_of_class,
            _class_of_label=class_of_label,
            _n_of_label=n_of_label,
        )
        return labels, known

    def _recover(self) -> None:
        self._recover_labels(self._class_of_label.size)

    def _train_head(self, questions: Questions, labels: np.ndarray, n_passes: int) -> None:
        state, effort, n_rows = self.forest_._allocated(), self._effort(training=True), labels.size
        n_examples = int(self._n_of_label.sum())
        if n_examples > 2 * self._n_measured:
            self.head_.gaps[:] *= 0.5  # which become smaller as classes get further examples: make room for new ones
            self._n_measured = n_examples
        duals = new_duals(self.aggressiveness, self._n_of_label[labels])
        shortlists = new_shortlists(n_rows)
        lesson = Lesson(questions, self._orders.permutation(n_rows), labels, shortlists, True)
        measure_gaps(state.trees, state.models, self.head_.scorers, lesson, effort, duals)
        if questions.rows.sparse and n_examples > MOST_TRAINED_ALONE and self._n_of_label.max() == 1:
            return

        def learn(n_pass: int, order: np.ndarray, at: np.ndarray) -> int:
            lesson = Lesson(questions, order, labels, shortlists, n_pass == 0)
            return int(learn_labels(state.trees, state.models, self.head_.scorers, lesson, effort, duals, at))

        self._train_in_passes(n_rows, n_passes, duals.settled, learn)

    # Answering

    @reads
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
        if self.method == "neighbors":
            votes = self._votes(self._checked(X))
            return self.classes_[votes.argmax(axis=1)]
        labels = self._best_label(self._in_form(X))
        return self.classes_[self._class_of_label[labels]]

    @reads
    def top_classes(self, X: Any, k: int = 5) -> tuple[np.ndarray, np.ndarray]:
        """Return the ``k`` classes that fit each row best, as the head sees it whatever ``method`` is.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, n_features)
            Queries.
        k : int, default 5
            Classes wanted: at most 1,000,000, or as many as there are if that is more.

        Returns
        -------
        classes : ndarray of int64, shape (n, k)
            Positions in ``classes_``, the best first; -1 where there were fewer candidates.
        scores : ndarray of float32, shape (n, k)
            Their scores; minus infinity for none.
        """
        rows = self._checked(X)
        labels, scores, _ = self._best_labels(rows, check_wanted("k", k, self.classes_.size))
        return np.where(labels == NONE, NONE, self._class_of_label[labels]), scores

    @reads
    def count_candidates(self, X: Any) -> np.ndarray:
        """Return how many classes the head scores for each row: int64, shape (n,)."""
        return self._best_labels(self._checked(X), 1)[2]

    @reads
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
        proba = np.zeros((rows.n_rows, self.classes_.size))
        logits_per_score = LOGITS_PER_MARGIN / margin_wanted(self.head_)
        scorers = self._all_scorers()
        if scorers is not None:
            scores = exact_scores_of_all(scorers, rows)
            scores -= scores.max(axis=1, keepdims=True)
            proba[:, self._class_of_label] = np.exp(logits_per_score * scores)
        else:
            labels, scores, _ = self._best_labels(rows, self._effort().n_labels)
            logits = logits_per_score * scores.astype(np.float64)
            odds = np.exp(logits - logits[:, :1])
            row, rank = np.nonzero(labels != NONE)
            proba[row, self._class_of_label[labels[row, rank]]] = odds[row, rank]
        proba /= proba.sum(axis=1, keepdims=True)
        return proba

    @reads
    def kneighbors(self, X: Any, n_neighbors: int | None = None, return_distance: bool = True) -> Any:
        """Return the nearest memories of each row, by their cosine and by what the head says of their class.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, n_features)
            Queries.
        n_neighbors : int, optional
            Memories wanted for each row, at most 1,000,000; by default the parameter of this name.
        return_distance : bool, default True
            Whether to return distances too.

        Returns
        -------
        neigh_dist : ndarray of float32, shape (n, n_neighbors)
            Learned distances: 1 minus the mean of the cosine and the score of the memory's class. Infinite where
            fewer memories were reached. Only with ``return_distance``.
        neigh_ind : ndarray of int64, shape (n, n_neighbors)
            The memories' positions among all examples ever given to ``fit`` and ``partial_fit``, -1 for none.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before the first example.
        TypeError, ValueError
            If an argument cannot be used, or examples were not stored.
        """
        k = check_wanted("n_neighbors", self.n_neighbors if n_neighbors is None else n_neighbors, 0)
        ids, scores = self._neighbors(self._checked(X), k)
        return (1.0 - scores, ids) if return_distance else ids

    def _stored(self) -> Examples:
        if self.examples_ is None:
            raise ValueError("examples are not stored: pass store_examples=True and fit again to find neighbors")
        return self.examples_

    def _neighbors(self, rows: Rows, k: int) -> tuple[np.ndarray, np.ndarray]:
        hits, lists, state = no_hits(rows.n_rows, k), self._stored().lists, self.forest_._allocated()
        questions, head, effort = all_of(routed(rows), rows), self.head_.scorers, self._effort()

        def answer(first: int, stop: int) -> None:
            asked = questions._replace(first=first, stop=stop)
            nearest_rows(state.trees, state.models, head, lists, asked, effort, _LABELS_SCANNED, hits)

        self._in_threads(rows, answer)
        return hits.ids, hits.scores

    def _votes(self, rows: Rows) -> np.ndarray:
        ids, scores = self._neighbors(rows, self.n_neighbors)
        votes, (row, rank) = np.zeros((rows.n_rows, self.classes_.size)), np.nonzero(ids != NONE)
        classes = self._class_of_label[self._stored().label_of[ids[row, rank]]]
        weight = np.maximum(scores[row, rank], 1e-6) if self.weights == "score" else 1.0
        np.add.at(votes, (row, classes), weight)
        return votes

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.poor_score = True
        return tags
