"""What a classifier of one class for each example answers: classes, scores, probabilities and neighbors."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from .._forest.hits import no_hits
from .._forest.rows import Rows
from .._forest.state import NONE
from .._heads.candidates import all_of
from .._heads.examples import Examples, all_examples, nearest_rows, rows_of_labels, slots_of_examples
from .._heads.multiclass_svm import margin_wanted
from .._heads.products import exact_scores_of_all
from .._validation import check_integer, check_real, check_wanted, label_array
from ._base import reads
from ._calibration import MOST_RANKED, learn_logits, logits_per_margin, positions_in
from ._durable import journal_of
from ._explanations import Explanation, explanations
from ._label_forest import LabelForest, routed
from ._labels import in_one_type
from ._votes import weights_of_votes

_LABELS_SCANNED = 8  # whose examples may be a row's neighbours; the nearest seldom belongs to one the head ranks lower


class ClassAnswers(ClassifierMixin, LabelForest):
    """The methods of a classifier that has learned, which change nothing."""

    classes_: np.ndarray
    examples_: Examples | None
    method: str
    n_neighbors: int
    weights: str
    _class_of_label: np.ndarray
    _label_of_class: np.ndarray

    @reads
    def predict(self, X: Any, reject_below: float | None = None, reject_label: Any = None) -> np.ndarray:
        """Return the class of each row.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, n_features)
            Queries.
        reject_below : float in [0, 1], optional
            Rows whose highest probability (:meth:`predict_proba`) is below it are rejected: they may be of no class
            that is known.
        reject_label : object, optional
            What is returned for rejected rows: no class, but of a type that goes with ``classes_``. By default -1 where
            classes are numbers, and "" where they are strings.

        Returns
        -------
        ndarray of shape (n,)
            One of ``classes_`` for each row, or ``reject_label``.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before the first example.
        TypeError, ValueError
            If ``X`` cannot be used.
        """
        if reject_below is not None:
            return self._predict_or_reject(X, check_real("reject_below", reject_below, 0.0, 1.0), reject_label)
        if self.method == "neighbors":
            votes = self._votes(self._checked(X))
            return self.classes_[votes.argmax(axis=1)]
        labels = self._best_label(self._in_form(X))
        return self.classes_[self._class_of_label[labels]]

    def _predict_or_reject(self, X: Any, lowest: float, reject_label: Any) -> np.ndarray:
        proba = self.predict_proba(X)
        if reject_label is None and self.classes_.dtype.kind in "iufUO":
            reject_label = -1 if self.classes_.dtype.kind in "iuf" else ""
        if reject_label is None:
            raise ValueError(f"reject_label must be given for classes of type {self.classes_.dtype}")
        classes, rejected = in_one_type("reject_label", self.classes_, label_array("reject_label", [reject_label]))
        if np.isin(rejected, classes).any():
            raise ValueError(f"reject_label must be no class, but {reject_label!r} is one: choose another")
        best = np.where(proba.max(axis=1) < lowest, classes.size, proba.argmax(axis=1))
        answers: np.ndarray = np.concatenate([classes, rejected])[best]
        return answers

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
        labels, scores, *_ = self._best_labels(rows, check_wanted("k", k, self.classes_.size))
        return np.where(labels == NONE, NONE, self._class_of_label[labels]), scores

    @reads
    def count_candidates(self, X: Any) -> np.ndarray:
        """Return how many classes the head scores for each row, with all of their weights: int64, shape (n,).

        Classes that are only met in a list of the head's index are not counted: for these an entry of the list is
        added up, which takes a small part of the time.
        """
        return self._best_labels(self._checked(X), 1).n_scored

    @reads
    def decision_function(self, X: Any) -> np.ndarray:
        """Return the score of each class for each row; :meth:`predict` answers with the highest.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, n_features)
            Queries.

        Returns
        -------
        ndarray of float64, shape (n, n_classes), or (n,) if there are two classes
            Scores of the head, or votes with ``method="neighbors"``. Classes that were no candidates get 1 less than
            the lowest score of any that was. Of two classes, by how much the second is ahead.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before the first example.
        TypeError, ValueError
            If ``X`` cannot be used.
        """
        rows = self._checked(X)
        if self.method == "neighbors":
            scores = self._votes(rows)
        else:
            scores = self._class_scores(rows)
            reached = np.isfinite(scores)
            scores[~reached] = min(float(scores[reached].min(initial=0.0)), 0.0) - 1.0
        return scores[:, 1] - scores[:, 0] if self.classes_.size == 2 else scores

    @reads
    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each class for each row.

        With ``method="head"`` the softmax of the scores of the classes reached, times a number that says what they are
        worth (temperature scaling; Guo et al., 2017). That is learned by :meth:`calibrate` when it is first needed, if
        examples are stored and their classes have more than one. With ``method="neighbors"`` the share of the votes.
        Classes not reached have probability 0.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, n_features)
            Queries.

        Returns
        -------
        ndarray of float64, shape (n, n_classes)
            Rows sum to 1.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before the first example.
        TypeError, ValueError
            If ``X`` cannot be used.
        """
        rows = self._checked(X)
        if self.method == "neighbors":
            votes = self._votes(rows)
            return votes / votes.sum(axis=1, keepdims=True)
        return self._proba(self._class_scores(rows))

    def calibrate(self, X: Any = None, y: Any = None) -> ClassAnswers:
        """Learn how sure the classifier is: what its scores are worth as probabilities.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, n_features), optional
            Examples that the classifier has not learned from. By default some of the stored examples are held out, at
            most 2,000, and scorers like the classifier's own are trained on the others, which takes about as long as
            ``fit``. :meth:`predict_proba` does that by itself when it is first needed; it is done anew once a quarter
            of the examples is new.
        y : array-like, shape (n,), optional
            Their classes. Those that are unknown count as answers that are wrong.

        Returns
        -------
        self

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before the first example.
        TypeError, ValueError
            If only one of ``X`` and ``y`` is given, or they cannot be used.
        """
        journal = journal_of(self)
        if journal is not None:
            journal.check_changeable()
        self._calibrate(X, y)
        if journal is not None:
            journal.sync()
        return self

    @reads
    def _calibrate(self, X: Any, y: Any) -> None:
        if (X is None) != (y is None):
            raise ValueError("X and y must be given together, or neither")
        if X is None:
            check_is_fitted(self, "forest_")
            value = learn_logits(self)
        else:
            rows, y = self._checked(X), np.ravel(label_array("y", y))
            if y.size != rows.n_rows:
                raise ValueError(f"y must be one class for each of the {rows.n_rows} rows of X, not {y.size}")
            known, y = in_one_type("y", self.classes_, y)
            labels = np.full(y.size, NONE - 1, np.int64)
            is_known = np.isin(y, known)
            labels[is_known] = self._label_of_class[np.searchsorted(known, y[is_known])]
            found, scores, *_ = self._best_labels(rows, min(MOST_RANKED, self.forest_.n_memories))
            value = logits_per_margin(scores, positions_in(found, labels), margin_wanted(self.head_))
        self._calibrated()[0] = value

    def _calibrated(self) -> np.ndarray:
        """Return what a margin is worth, in an array of its own; NaN as long as it has not been learned."""
        kept: np.ndarray = self.__dict__.setdefault("_calibration", np.full(1, np.nan))  # earlier versions have none
        return kept

    def _proba(self, scores: np.ndarray) -> np.ndarray:
        """Return probabilities in place of scores, the best of which is in every row that of some class."""
        kept = self._calibrated()
        if np.isnan(kept[0]):
            kept[0] = learn_logits(self)
        scores -= scores.max(axis=1, keepdims=True)
        proba: np.ndarray = np.exp(float(kept[0]) / margin_wanted(self.head_) * scores)
        proba /= proba.sum(axis=1, keepdims=True)
        return proba

    def _class_scores(self, rows: Rows) -> np.ndarray:
        """Return the head's score of each class for each row, minus infinity where it is no candidate: float64."""
        scores = np.full((rows.n_rows, self.classes_.size), -np.inf)
        scorers = self._all_scorers()
        if scorers is not None:
            scores[:, self._class_of_label] = exact_scores_of_all(scorers, rows)
        else:
            labels, found, *_ = self._best_labels(rows, self._effort().n_labels)
            row, rank = np.nonzero(labels != NONE)
            scores[row, self._class_of_label[labels[row, rank]]] = found[row, rank]
        return scores

    @reads
    def explain(self, X: Any, n_examples: int = 3, n_features: int = 5) -> list[Explanation]:
        """Return, for each row, its class, what speaks for it, and what would have to change for the runner-up to win.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, n_features)
            Queries.
        n_examples : int, default 3
            Stored examples to name for each row at most; none if examples are not stored.
        n_features : int, default 5
            Features to name at most.

        Returns
        -------
        list of Explanation
            One for each row. It can be printed. The head is explained, whatever ``method`` is.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before the first example.
        TypeError, ValueError
            If an argument cannot be used.

        Examples
        --------
        >>> import numpy as np
        >>> from cmt_numba import CMTClassifier
        >>> X = np.array([[1.0, 0.2, 0.0], [0.9, 0.0, 0.1], [0.0, 1.0, 0.3]])
        >>> classifier = CMTClassifier(random_state=0).fit(X, ["cat", "cat", "dog"])
        >>> why = classifier.explain(X[:1])[0]
        >>> why.label, why.examples.tolist(), why.features[0][0], why.runner_up
        ('cat', [0, 1], 0, 'dog')
        """
        rows = self._checked(X)
        most = check_integer("n_examples", n_examples, 0), check_integer("n_features", n_features, 0)
        return explanations(self, rows, self._proba, *most)

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
            The memories' ids, -1 for none: their positions among all examples ever given to ``fit`` and
            ``partial_fit``, or the ``example_ids`` that were given for them.

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
            raise ValueError("examples are not stored: pass store_examples=True and fit again")
        return self.examples_

    def _neighbors(self, rows: Rows, k: int) -> tuple[np.ndarray, np.ndarray]:
        hits, examples, in_lists = no_hits(rows.n_rows, k), self._stored().lists, self._lists()
        if in_lists is not None:
            best = self._best_listed(in_lists, rows, min(self.forest_.n_memories, k + _LABELS_SCANNED))
            self._in_threads(rows, partial(rows_of_labels, examples, rows, best, _LABELS_SCANNED, hits))
            return hits.ids, hits.scores
        questions, head, state = all_of(routed(rows), rows), self.head_.scorers, self.forest_._forest.allocated()
        effort = self._effort()._replace(leaves_last=False)

        def answer(first: int, stop: int) -> None:
            asked = questions._replace(first=first, stop=stop)
            nearest_rows(state.trees, state.models, head, examples, asked, effort, _LABELS_SCANNED, hits)

        self._in_threads(rows, answer)
        return hits.ids, hits.scores

    def _votes(self, rows: Rows) -> np.ndarray:
        ids, scores = self._neighbors(rows, self.n_neighbors)
        votes, examples = np.zeros((rows.n_rows, self.classes_.size)), self._stored()
        row, rank = np.nonzero(ids != NONE)
        slots = np.full(ids.shape, NONE)
        slots[row, rank] = slots_of_examples(examples, ids[row, rank])
        classes = self._class_of_label[examples.label_of[slots[row, rank]]]
        weights = weights_of_votes(self.weights, scores, rows, all_examples(examples)[0], slots)
        np.add.at(votes, (row, classes), weights[row, rank])
        return votes
