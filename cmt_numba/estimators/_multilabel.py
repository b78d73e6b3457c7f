"""Multi-label classifier: any number of labels per example."""

from dataclasses import KW_ONLY, dataclass, field
from typing import Annotated, Any, Self

import numpy as np
import scipy.sparse
from sklearn.base import ClassifierMixin, clone

from .._change import reads
from .._heads import exact_scores_of_all
from .._jit import keeps_interpreter
from .._kernels import NONE, Rows
from .._validation import Checked, Flag, Integer, Jobs, Optional, Real, check_entries, check_rows, check_wanted
from ..journal import journaled
from ._base import PASSES, SEED, MemoryEstimator, queries_model
from ._calibration import F1, LOGITS_PER_MARGIN, check_threshold
from ._fields import fields_of_estimator
from ._indicators import first_labels, further_labels, label_sets, labels_of, lists_of_names
from ._input import check_sample_weight
from ._multilabel_model import LabelledRows, MultilabelModel
from ._neighbors import lengths_unless_unit


@dataclass(eq=False, repr=False)
class CMTMultilabelClassifier(ClassifierMixin, MemoryEstimator):
    """A multi-label classifier over very many labels.

    Each label has a linear support vector machine, which decides whether an example has the label. The scorers of
    common labels learn from all examples (one against all). A rarer label's scorer learns only from examples for which
    the label is a candidate (one against some; section 4.2 of the paper). Candidates for a sparse example are labels
    that an inverted index lists for its rare features, and for a dense one those with the highest scores.
    ``partial_fit`` accepts new examples at any time, and new labels as additional columns.

    Dense tables of at most 100 features are standardised. ``kneighbors`` compares examples as they are.

    Parameters
    ----------
    n_candidates : int, optional
        Maximum number of labels from the inverted index that are scored for a sparse row. The notes give the default.
    n_jobs, random_state, verbose
        As for :class:`CMTClassifier`.
    n_head_passes : int, default 3
        Number of passes that train the scorers of rarer labels, each after a new search for hard negatives. With 0, all
        labels are ranked by their cosine, and labels with a positive cosine are predicted.
    store_examples : bool, default True
        Whether to store all examples, which only ``kneighbors`` needs. Without them, memory does not grow with the
        number of examples. The parameter takes effect at ``fit`` or the first ``partial_fit``.
    aggressiveness : float, default 1.0
        Penalty ``C`` for margin violations of the scorers: a larger value means a harder margin. If ``n > 20`` sparse
        rows have a label, it is multiplied by ``(20 / n) ** 0.4``, but at least by 1/4.
    threshold : float or "f1", default "f1"
        Labels with a score above the threshold are predicted. With "f1", ``fit`` and the first ``partial_fit`` choose
        the threshold between -1 and 1 that maximises the mean F1 of held-out examples, or 0 if there are fewer than 50
        examples. For this, they also train without these examples. Further calls of ``partial_fit`` adjust it to their
        examples, which they score before they learn them; the last 500 count most. For a vector of classes, the
        threshold is 0. With 0.0, labels are predicted that are more likely than not, which are few if there are many
        labels. A number can be set at any time.

    Notes
    -----
    With up to 1,024 labels, all are common: the classifier is one against all. With more, a label is common if at least
    1 example in 256 has it, up to 1,024 common labels. Dense rows are compared with all labels. For a sparse row, at
    most ``256 * log2(n_labels)`` more labels are found in posting lists. The best 48 of them are scored, or 12 times
    the mean number of labels per example if that is more. New labels are scored for every row until the posting lists
    are updated, which is when more than 256 labels, or 1 in 64, are new. :meth:`count_candidates` returns the number of
    scored labels.

    Attributes
    ----------
    n_features_in_ : int
        Width of the examples.
    """

    _kind = "CMTMultilabelClassifier"
    FIELDS = fields_of_estimator(MultilabelModel)
    _model: MultilabelModel = field(init=False)

    n_candidates: Annotated[int | None, Optional(Integer(1))] = None
    _: KW_ONLY
    n_head_passes: Annotated[int, PASSES] = 3
    aggressiveness: Annotated[float, Real(0.0, 1e6, above=True)] = 1.0
    store_examples: Annotated[bool, Flag()] = True
    threshold: Annotated[float | str, Checked(check_threshold, f'float or "{F1}"')] = F1
    n_jobs: Jobs = None
    random_state: Annotated[Any, SEED] = None
    verbose: Annotated[bool, Flag()] = False

    # Learning

    @journaled
    def fit(self, X: Any, Y: Any, sample_weight: Any = None) -> Self:
        """Fit the classifier to examples, and discard earlier examples.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, n_features)
            Examples.
        Y : array-like or sparse matrix, shape (n, n_labels)
            Labels in one of three formats: an indicator matrix; a list, tuple or set of label names (strings) for each
            example; or a vector of two classes, where the second class counts as the only label.
        sample_weight : array-like, shape (n,), optional
            As for :meth:`CMTClassifier.fit`. Weights also count in the choice of common labels and threshold, but not
            in the search for neighbors.
        """
        return self._learn_anew(X, Y, None, sample_weight)

    def _learn_anew(self, X: Any, Y: Any, classes: Any, sample_weight: Any) -> Self:
        """Fit the classifier to examples, and discard earlier examples."""
        fresh = self._unfitted()
        X = fresh._validated(X, reset=True)
        names, pair, answers = first_labels(Y, classes, X.shape[0])
        self._check_parameters()
        rows, weights = check_rows(X), check_sample_weight(sample_weight, X.shape[0])
        if weights is not None and not weights.all():
            kept = np.flatnonzero(weights)
            X, rows, weights = X[kept], rows.take(kept), weights[kept]
            names, pair, answers = first_labels(labels_of(Y, kept), classes, kept.size)
        n_labels, is_sparse = max(1, np.unique(answers.indices).size), scipy.sparse.issparse(Y)
        batch = LabelledRows(rows, answers, weights, lengths_unless_unit(X))
        model = fresh._model = MultilabelModel(self, batch, n_labels, pair, is_output_sparse=is_sparse)
        trained = model.learn(batch, names, self, afresh=True)
        if self.threshold == F1:
            without_examples = clone(self).set_params(store_examples=False)
            model.measure_threshold(batch, trained, without_examples)
        return self._become(fresh)

    @keeps_interpreter
    @journaled
    def partial_fit(self, X: Any, Y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learn from more examples, whose label matrix may have new columns.

        Parameters
        ----------
        X, sample_weight
            As for :meth:`fit`.
        Y : array-like or sparse matrix, shape (n, n_labels)
            Labels in the same format as in the first call. A matrix must have at least as many columns as before. Lists
            may contain new names.
        classes : array-like, optional
            Both classes, for a first call with a vector ``Y`` that may contain only one of them.

        Raises
        ------
        MemoryError
            If memory runs out. The classifier remains usable, but may not have learned all rows.
        """
        if not self.__sklearn_is_fitted__():
            return self._learn_anew(X, Y, classes, sample_weight)
        X, known = self._checked_matrix(X), self._model
        rows = check_rows(X, sparse=known.index.is_sparse)
        names, answers = further_labels(Y, known.names, known.pair, rows.n_rows)
        weights = check_sample_weight(sample_weight, rows.n_rows)
        if weights is not None and not weights.all():
            kept = np.flatnonzero(weights)
            X, rows, weights = X[kept], rows.take(kept), weights[kept]
            names, answers = further_labels(labels_of(Y, kept), known.names, known.pair, kept.size)
        if answers.shape[1] < known.n_columns:
            raise ValueError(f"Y must have at least {known.n_columns} columns like the first Y, got {answers.shape[1]}")

        batch = LabelledRows(rows, answers, weights, lengths_unless_unit(X))

        def learn(model: MultilabelModel) -> None:
            model.follow_threshold(batch, self)
            model.learn(batch, names, self, afresh=False)

        return self._change_model("partial_fit", rows.n_rows, learn)

    # Queries

    @queries_model
    def top_labels(self, X: Any, k: int = 5) -> tuple[np.ndarray, np.ndarray]:
        """Return the columns and the scores of the ``k`` labels with the highest scores for each row, best first.

        Both arrays, int64 and float32, have shape (n, k). If there are fewer candidates, they are padded with -1 and
        minus infinity. A score is positive if the row should have the label.
        """
        rows = self._checked(X)
        k, model = check_wanted("k", k, self.classes_.size), self._model
        if model.index.n_labels == 0:
            return np.full((rows.n_rows, k), NONE, np.int64), np.full((rows.n_rows, k), -np.inf, np.float32)
        labels, scores, *_ = model.index.best_labels(rows, k, self)
        return np.where(labels == NONE, NONE, model.column_of_label[labels]), scores

    def _lowest(self) -> float:
        if self.threshold != F1:
            return float(self.threshold)
        if self._model.threshold is None:
            raise ValueError('threshold="f1" takes effect only in fit: call fit again, or set threshold to a number')
        return self._model.threshold

    @queries_model
    def predict(self, X: Any) -> Any:
        """Return the labels of each row, in the same format as the ``Y`` of ``fit``.

        The result is a dense or sparse indicator matrix, a list of tuples of names, or a vector of classes.
        """
        rows, model = self._checked(X), self._model
        row, column, _ = model.labels_above(rows, self._lowest(), self)
        if model.pair is not None:
            return model.pair[np.isin(np.arange(rows.n_rows), row).astype(np.int64)]
        shape = rows.n_rows, model.n_columns
        return label_sets(row, column, shape, names=model.names, sparse=model.is_output_sparse)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the fraction of rows for which exactly the labels in ``y`` are predicted.

        ``y`` has the format of the ``Y`` of :meth:`fit`.
        """
        from sklearn.metrics import accuracy_score  # slow to import

        predicted = self.predict(X)
        lists = lists_of_names(y, expected=True) if isinstance(predicted, list) else None
        if lists is None:
            return float(accuracy_score(y, predicted, sample_weight=sample_weight))
        check_entries("y", len(lists), len(predicted))
        are_right = [set(names) == set(found) for names, found in zip(lists, predicted, strict=True)]
        return float(np.average(are_right, weights=sample_weight))

    @queries_model
    def decision_function(self, X: Any) -> np.ndarray:
        """Return the score of each label for each row: float64, shape (n, n_labels).

        A row has a label if its score is above ``threshold``. Labels that are not candidates get 1 less than the lowest
        score of a candidate. If ``fit`` received a vector, return the score of the second class, shape (n,).
        """
        rows, model = self._checked(X), self._model
        scorers = model.index.all_scorers(rows.n_rows)
        if scorers is not None:
            scores = exact_scores_of_all(scorers, rows)
            values = np.full((rows.n_rows, model.n_columns), min(float(scores.min()), 0.0) - 1.0)
            values[:, model.column_of_label] = scores
        else:
            row, column, scores = model.labels_above(rows, -np.inf, self)
            values = np.full((rows.n_rows, model.n_columns), min(float(scores.min(initial=0.0)), 0.0) - 1.0)
            values[row, column] = scores
        return values if model.pair is None else values[:, 0]

    @queries_model
    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the independent probability of each label for each row: float64, shape (n, n_labels).

        If ``fit`` received a vector, return the probability of each class, shape (n, n_classes).
        """
        proba, pair = 1.0 / (1.0 + np.exp(-LOGITS_PER_MARGIN * self.decision_function(X))), self._model.pair
        if pair is None:
            return proba
        return np.column_stack([1.0 - proba, proba]) if pair.size == 2 else np.ones((proba.size, 1))

    @queries_model
    def kneighbors(self, X: Any, n_neighbors: int = 5, return_distance: bool = True) -> Any:
        """Return the nearest stored examples of each row by cosine, like :meth:`CMTClassifier.kneighbors`.

        The distances are 1 minus the cosine (float32). The ids (int64) are positions among all examples passed to
        ``fit`` and ``partial_fit``.
        """
        X, k = self._checked_matrix(X), check_wanted("n_neighbors", n_neighbors, 0)
        ids, cosines = self._model.nearest_examples(check_rows(X, sparse=self._model.index.is_sparse), k, self)
        return (1.0 - cosines, ids) if return_distance else ids

    @reads
    def count_candidates(self, X: Any) -> np.ndarray:
        """Return the number of labels that are scored for each row with all of their weights: int64, shape (n,)."""
        rows, index = self._checked(X), self._model.index
        return index.best_labels(rows, 1, self).n_scored if index.n_labels > 0 else np.zeros(rows.n_rows, np.int64)

    @property
    def n_labels_(self) -> int:
        """Number of columns of the label matrices."""
        return self._model.n_columns

    @property
    def classes_(self) -> np.ndarray:
        """The column numbers or the label names."""
        return self._model.classes

    @property
    def threshold_(self) -> float:
        """The threshold chosen with ``threshold="f1"``."""
        if self._model.threshold is None:
            raise AttributeError('threshold_ exists only after fit with threshold="f1"')
        return self._model.threshold

    def _checked(self, X: Any) -> Rows:
        X = self._checked_matrix(X)
        return self._model.index.prepared_matrix(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.multi_label = True
        tags.target_tags.two_d_labels = True
        tags.target_tags.multi_output = True
        tags.classifier_tags.poor_score = True
        return tags
