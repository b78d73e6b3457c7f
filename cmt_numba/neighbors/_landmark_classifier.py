"""Classification by votes of approximate nearest neighbors."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from .._jit import keeps_interpreter
from .._validation import Constraint, Integer, OneOf, check_entries, check_parameters, is_plain, label_array
from ..estimators import check_unmixed
from ._landmark_index import LandmarkIndex, weights_of

_DTYPES = (np.float32, np.float64)


@dataclass(eq=False, repr=False)
class LandmarkClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classifier by votes of approximate nearest neighbors.

    Examples are stored in a :class:`LandmarkIndex`. The classifier suits large data sets, because unlike
    scikit-learn's KNeighborsClassifier it compares a query with only some of the examples.

    Parameters
    ----------
    n_neighbors : int, default 5
        Number of examples that vote.
    weights : {"uniform", "score"}, default "uniform"
        Weights of votes. "uniform" gives each vote the weight 1. "score" uses the similarity, or the inverse distance
        for "euclidean".
    metric : str, default "euclidean"
        As for :class:`LandmarkIndex`. Columns with other units have the same influence after scaling.
    target_recall, bandwidth, random_state
        As for :class:`LandmarkIndex`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes in ascending order.
    index_ : LandmarkIndex
        Index of the examples. An id is the position of an example.

    Examples
    --------
    >>> X, y = [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]], ["across", "across", "up"]
    >>> classifier = LandmarkClassifier(n_neighbors=1, random_state=0).fit(X, y)
    >>> classifier.predict([[0.2, 1.0], [1.0, 0.2]])
    array(['up', 'across'], dtype='<U6')
    """

    _constraints: ClassVar[dict[str, Constraint]] = {
        "n_neighbors": Integer(1, 10**6),
        "weights": OneOf(("uniform", "score")),
    }

    n_neighbors: int = 5
    _: KW_ONLY
    weights: str = "uniform"
    metric: str = "euclidean"
    target_recall: float = 0.95
    bandwidth: float | None = None
    random_state: int | np.random.SeedSequence | None = None

    def fit(self, X: Any, y: Any) -> Self:
        """Store dense training examples and their classes. Earlier examples are discarded."""
        check_parameters(self, self._constraints)
        options = {name: getattr(self, name) for name in LandmarkIndex._constraints}
        index = LandmarkIndex(**options, random_state=self.random_state)
        checked = clone(self)  # receives the number and the names of the features
        X = validate_data(checked, X, dtype=_DTYPES)
        check_unmixed("y", y)
        labels = None if y is None else label_array("y", y)
        check_classification_targets(labels)  # refuses None
        classes, of_examples = np.unique(column_or_1d(labels, warn=True), return_inverse=True)
        check_entries("y", of_examples.size, X.shape[0])
        index.insert(X)
        features = {name: value for name, value in vars(checked).items() if name.endswith("_in_")}
        self.__dict__.pop("feature_names_in_", None)
        self.__dict__.update(features, index_=index, classes_=classes, _classes_of=of_examples)
        return self

    @keeps_interpreter
    def kneighbors(self, X: Any, n_neighbors: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the similarities (distances for "euclidean") and positions of the nearest examples of each row.

        Both have shape (n, n_neighbors), nearest first, float32 and int64. Positions are padded with -1.
        """
        check_is_fitted(self)
        if not is_plain(X, self.n_features_in_) or hasattr(self, "feature_names_in_"):
            X = validate_data(self, X, dtype=_DTYPES, reset=False)
        found = self.index_.query(X, self.n_neighbors if n_neighbors is None else n_neighbors)
        return found.values, found.ids

    @keeps_interpreter
    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the fraction of votes for each class: float64, shape (n, n_classes)."""
        values, positions = self.kneighbors(X)
        row, rank = np.nonzero(positions >= 0)
        voters = row, self._classes_of[positions[row, rank]]
        votes = np.zeros((positions.shape[0], self.classes_.size))
        np.add.at(votes, voters, 1.0 if self.weights == "uniform" else weights_of(self.metric, values[row, rank]))
        return votes / votes.sum(axis=1, keepdims=True)

    @keeps_interpreter
    def predict(self, X: Any) -> np.ndarray:
        """Return the class with the most votes for each row. Ties go to the class that comes first in ``classes_``."""
        shares = self.predict_proba(X)
        return self.classes_[shares.argmax(axis=1)]
