"""What a classifier of one class for each example answers: classes, scores, probabilities and neighbors."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin

from .._forest.hits import no_hits
from .._forest.rows import Rows
from .._forest.state import NONE
from .._heads.candidates import all_of
from .._heads.examples import Examples, nearest_rows, slots_of_examples
from .._heads.multiclass_svm import margin_wanted
from .._heads.products import exact_scores_of_all
from .._validation import check_wanted
from ._base import reads
from ._label_forest import LOGITS_PER_MARGIN, LabelForest, routed

_LABELS_SCANNED = 8  # whose examples may be a row's neighbours; the nearest seldom belongs to one the head ranks lower


class ClassAnswers(ClassifierMixin, LabelForest):
    """The methods of a classifier that has learned, which change nothing."""

    classes_: np.ndarray
    examples_: Examples | None
    method: str
    n_neighbors: int
    weights: str
    _class_of_label: np.ndarray

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
        examples = self._stored()
        classes = self._class_of_label[examples.label_of[slots_of_examples(examples, ids[row, rank])]]
        weight = np.maximum(scores[row, rank], 1e-6) if self.weights == "score" else 1.0
        np.add.at(votes, (row, classes), weight)
        return votes
