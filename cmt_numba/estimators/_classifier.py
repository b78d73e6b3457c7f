"""Classifier with one class per example."""

from dataclasses import KW_ONLY, dataclass, field
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from .. import _validation as checks
from .._arrays import WeightedRows
from .._change import reads
from .._heads import HEAD_LOSSES, StoredExamples, all_examples
from .._jit import keeps_interpreter
from .._kernels import NEXT_ID, NONE, Rows
from ..journal import journaled
from ..tree import ContextualMemoryTree
from . import _input as inputs
from ._base import PASSES, SEED, MemoryEstimator, queries_model
from ._calibration import logits_per_margin
from ._choice import AUTO, METHODS, Choice, check_n_neighbors, resolved
from ._classification_model import ClassificationModel
from ._explanations import Explanation, explanations
from ._feature_weights import FEATURE_WEIGHTS
from ._fields import ModelField, fields_of_estimator
from ._labels import check_classes, in_one_type, place_classes, positions_of, with_reject_label
from ._neighbors import NEIGHBOR_METRICS, VOTES, lengths_unless_unit, row_lengths
from ._tree_model import TreeModel, check_tree


def fixed_scales_of(classifier: "CMTClassifier") -> np.ndarray | None:
    """Return the given means and standard deviations that standardise rows, or None if none were given."""
    scales = classifier._model.index.scales
    return None if scales is None or not scales.is_fixed else np.stack([scales.center, np.sqrt(scales.squares)])


class ClassifiedExamples(NamedTuple):
    """The stored examples of a classifier."""

    rows: Rows
    classes: np.ndarray  # int64: position of each example's class in ``classes_``
    ids: np.ndarray  # int64: id of each example
    next_id: int


def classified_examples(classifier: "CMTClassifier") -> ClassifiedExamples | None:
    """Return views of the stored examples of a classifier, or None if it is not fitted."""
    model = vars(classifier).get("_model")
    if model is None:
        return None
    keys, (rows, labels) = model.stored().keys, all_examples(model.stored())
    return ClassifiedExamples(rows, model.class_of_label[labels], keys.ids[: labels.size], int(keys.totals[NEXT_ID]))


_TREE = "tree"  # method of classification
_SCORED = 5  # default number of memories that are scored for a row with "tree"


def _has_scorers(classifier: "CMTClassifier") -> bool:
    if classifier.method == _TREE:
        raise AttributeError("method='tree' has no linear scorers, which this method needs: use another method")
    return True


@dataclass(eq=False, repr=False)
class CMTClassifier(ClassifierMixin, MemoryEstimator):
    """A classifier over very many classes: a linear scorer for each class, and indexes that find classes to score.

    The scorer of a class starts as the mean of its examples, and is trained against the competing classes with the
    highest scores (one against some). ``partial_fit`` accepts new examples and new classes at any time.

    With up to 8,192 dense or 1,024 sparse classes, all classes are scored, by matrix products. If there are more dense
    classes, they are grouped into cluster lists, and a row is compared with the nearest lists. If there are more sparse
    classes, candidates come from an inverted index of their scorers.

    Parameters
    ----------
    n_candidates : int, optional
        Maximum number of candidates: classes that are scored for a row with all of their weights. Fewer candidates are
        faster and less accurate. It matters only for sparse rows of more than 1,024 classes. By default, a search finds
        up to a fifth of all classes and at most ``400 * log2(n_classes + 1)`` in posting lists, and the best 16 of
        them are candidates, or 1 in 64 if that is more. New classes are candidates of every row until the posting
        lists are updated, which is when more than 256 classes, or 1 in 64, are new. Learning does not depend on this
        parameter, so it can be set at any time.
    n_head_passes : int, optional
        Maximum number of passes over the examples that train the head, at most 10,000. "mira" stops earlier if its
        duality gap is small. By default, "mira" takes up to 50 passes, "softmax" 50 passes over up to 1,000 examples
        and 5 over 10,000 or more, and "logistic" 5. With 0, a class is scored by the mean of its examples. The head is
        never trained for more than 8,192 classes of one sparse example each.
    feature_weights : {"auto", "idf", "scale", "none"}, default "auto"
        Weights of features for the head. "idf" multiplies each feature of sparse rows by its inverse document frequency
        among the examples, so that rare features count more. "scale" subtracts the mean of each feature of dense rows,
        divides by the standard deviation, and adds an intercept. Rows are then scaled to unit length. Frequencies,
        means and deviations are updated at each retraining or, if examples are not stored, as examples come. "auto"
        means "idf" for sparse rows such as word counts, but not if more than a tenth of the cells are nonzero, or if
        the values are weighted already, for example by ``TfidfVectorizer``. It means "scale" for tables: dense rows of
        different lengths with up to 100 features, if there are 16 rows and 5 for each class. If 100 examples and no
        more than 1,024 classes allow a comparison, "auto" compares "scale" and "none" on held-out examples, also for
        more features. Missing values (NaN) are refused; impute them first.
    class_weight : dict or "balanced", optional
        Class weights, which multiply ``sample_weight``. A dict maps classes to numbers from 0 to 1,000,000; missing
        classes have weight 1. "balanced" gives all classes the same total weight. ``partial_fit`` rejects "balanced",
        because it does not see all examples. By default all classes have weight 1.
    loss : {"auto", "softmax", "logistic", "mira"}, default "auto"
        Loss that trains the head. "mira" is the multiclass support vector machine of Crammer and Singer (2001) with
        squared slack, solved in the dual one example at a time (Keerthi et al., 2008). AdaGrad (Duchi et al., 2011)
        minimises "softmax" and "logistic". "auto" is "mira", except that a table (see ``feature_weights``) of at most
        50 classes gets a multinomial logistic regression on standardised rows if that has a lower log loss on held-out
        examples. It needs stored examples. With each batch of ``partial_fit``, it is fitted again to all of them or, if
        there are more than 5,000, when a quarter of them is new. A new class brings "mira" back, which finds classes
        of few examples.
    aggressiveness : float, default 1.0
        Penalty ``C`` of "mira" for margin violations: a larger value means a harder margin. The scorer of a class with
        few examples stays close to their mean. With 50 or more examples per class, the mean counts for less, and the
        margin is softer.
    learning_rate : float, default 5.0
        AdaGrad step size for the other losses, relative to the sum of an example's absolute values.
    method : {"auto", "head", "neighbors", "scored_neighbors", "tree"}, default "head"
        Method of classification. "head" returns the class with the highest score. "neighbors" takes a vote among the
        nearest stored examples, like scikit-learn's ``KNeighborsClassifier``. "scored_neighbors" takes a vote
        among the stored examples with the highest mean of their cosine and their class's score. "auto" chooses between
        "head" and "neighbors" by the error on held-out examples, in ``fit`` and at each retraining. It considers
        "neighbors" only for dense rows of at most 1,024 classes. "tree", which takes effect in ``fit``, is the
        classifier of the paper: examples are the memories of a :class:`ContextualMemoryTree`, and a row gets the class
        of its best memory. ``fit`` inserts the examples, and then learns from rewards in ``n_head_passes`` passes, by
        default 2; a memory earns 1 for an example of its class. ``partial_fit`` learns from the rewards of new examples
        and then inserts them. Probabilities, explanations and the parameters of scorers do not apply.
    tree : ContextualMemoryTree or None, default None
        An empty tree, whose options ``method="tree"`` uses. The classifier grows a tree of its own with these options
        and the seed ``random_state``.
    n_neighbors : int or "auto", default 5
        Number of examples that vote, at most 1,000,000. "auto" chooses the number by the error on held-out examples.
    metric : {"auto", "euclidean", "seuclidean", "cosine"}, default "euclidean"
        Distance for ``method="neighbors"``, and for :meth:`kneighbors` unless the method is "scored_neighbors".
        "seuclidean" is the Euclidean distance of features divided by their standard deviations. "auto" chooses the
        distance by the error on held-out examples. ``method="auto"`` chooses between "euclidean" and "seuclidean".
    weights : {"uniform", "distance", "score", "cosine", "gaussian", "laplacian"}, default "uniform"
        Weight of each example's vote. "uniform" gives weight 1, "distance" the inverse of the distance, and "score" the
        example's score (only with "scored_neighbors"). The other options compare the example with the row, both scaled
        to unit length: "cosine" is their cosine, "gaussian" is ``exp(-d**2 / (2 * h**2))`` of the Euclidean distance
        ``d``, and "laplacian" is ``exp(-d / h)`` of the city block distance ``d``. ``h`` is the median of ``d`` over
        the examples that vote for the row.
    store_examples : bool, default True
        Whether to store all examples. ``kneighbors`` and ``method="neighbors"`` need them. ``partial_fit`` learns some
        stored examples again with each new example. For large batches, it also retrains on all examples when a quarter
        of them are new. The result is close to that of ``fit`` on all examples, and classes without new examples do not
        fade. Without stored examples, memory grows only with the classes and their features, so streams may have any
        length. Dense classes without new examples then hardly fade, because their means are learned again. The
        parameter takes effect at ``fit`` or the first ``partial_fit``.
    max_examples : int, optional
        Maximum number of stored examples. When it is exceeded, the oldest examples are removed as by :meth:`remove`,
        together with classes that lose all their examples. To save time, a sixteenth of the maximum is removed each
        time.
    n_jobs : int, optional
        Number of threads (default: 1); -1 means as many as Numba uses. Results do not depend on it. Matrix products use
        as many threads as NumPy's linear algebra library is set to.
    random_state : int, numpy.random.RandomState or None
        Seed.
    verbose : bool, default False
        Whether to show progress bars while learning.

    Attributes
    ----------
    n_features_in_ : int
        Width of the examples.
    """

    _kind = "CMTClassifier"
    FIELDS = fields_of_estimator(ModelField(ClassificationModel, TreeModel))
    _model: Any = field(init=False)  # a ClassificationModel or a TreeModel

    n_candidates: Annotated[int | None, checks.Optional(checks.Integer(1))] = None
    _: KW_ONLY
    n_head_passes: Annotated[int | None, checks.Optional(PASSES)] = None
    feature_weights: Annotated[str, checks.OneOf(FEATURE_WEIGHTS)] = "auto"
    loss: Annotated[str, checks.OneOf((AUTO, *HEAD_LOSSES))] = AUTO
    aggressiveness: Annotated[float, checks.Real(0.0, 1e6, above=True)] = 1.0
    learning_rate: Annotated[float, checks.Real(0.0, 1e6, above=True)] = 5.0
    method: Annotated[str, checks.OneOf((AUTO, *METHODS, _TREE))] = "head"
    tree: Annotated[ContextualMemoryTree | None, checks.Checked(check_tree, "ContextualMemoryTree or None")] = None
    n_neighbors: Annotated[int | str, checks.Checked(check_n_neighbors, 'int or "auto"')] = 5
    metric: Annotated[str, checks.OneOf((AUTO, *NEIGHBOR_METRICS))] = "euclidean"
    weights: Annotated[str, checks.OneOf(VOTES)] = "uniform"
    store_examples: Annotated[bool, checks.Flag()] = True
    max_examples: Annotated[int | None, checks.Optional(checks.Integer(1))] = None
    class_weight: Annotated[Any, checks.Checked(inputs.check_class_weight, 'dict or "balanced"')] = None
    n_jobs: checks.Jobs = None
    random_state: Annotated[Any, SEED] = None
    verbose: Annotated[bool, checks.Flag()] = False

    # Learning

    @journaled
    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, example_ids: Any = None, scales: Any = None) -> Self:
        """Fit the classifier to examples, and discard earlier examples.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, n_features)
            Examples.
        y : array-like, shape (n,)
            Class of each example: numbers, strings, or any other NumPy type that can be sorted.
        sample_weight : array-like, shape (n,), optional
            Weight of each example, from 0 to 1,000,000; by default 1. A weight of 2 has the same effect as repeating
            the row, in the means and as a factor of ``C``. Rows of weight 0 are ignored. Positive weights below 1e-9
            count as 1e-9.
        example_ids : array-like of int or str, shape (n,), optional
            Distinct ids for the examples: either nonnegative integers or strings. :meth:`kneighbors` and
            :meth:`explain` return them, and :meth:`remove` takes them. By default, an id is the example's position
            among all examples passed to the classifier.
        scales : array-like, shape (2, n_features), optional
            Means and standard deviations of the features, with which dense rows are standardised from now on. By
            default, ``feature_weights`` determines whether they are measured.
        """
        return self._learn_anew(X, y, None, sample_weight, example_ids, scales, in_parts=False)

    def _learn_anew(
        self, X: Any, y: Any, classes: Any, sample_weight: Any, example_ids: Any, scales: Any, *, in_parts: bool
    ) -> Self:
        """Fit the classifier to examples, and discard earlier examples. ``in_parts`` says whether more may come."""
        fresh, are_weighted = self._unfitted(), isinstance(X, WeightedRows)
        y, expected = check_classes(y, classes)
        X, y = fresh._validated(X, y, reset=True)
        self._check_parameters()
        rows = checks.check_rows(X)
        if scales is not None and rows.sparse:
            raise ValueError("scales must be omitted for sparse X")
        if in_parts:
            self._check_weights_in_parts()
        y = np.asarray(y)
        if self.method == _TREE:
            X, y = self._examples_of_tree(X, y, sample_weight, example_ids, scales)
            places, of_rows = place_classes(None, y, expected)
            fresh._model = TreeModel(self)
            fresh._model.learn(X, of_rows, places, self, online=in_parts)
            return self._become(fresh)
        weights = inputs.check_weights(sample_weight, self.class_weight, y)
        ids = inputs.check_example_ids(example_ids, rows.n_rows, None, None, stored=self.store_examples)
        batch = inputs.present(inputs.ExampleBatch(rows, y, ids, weights, lengths_unless_unit(X), are_weighted))
        places, of_rows = place_classes(None, batch.y, expected)
        model = ClassificationModel(self, batch, places.classes.size, scales)
        model.learn(batch._replace(y=of_rows), places, self)
        fresh._model = model.without_oldest(self)
        return self._become(fresh)

    @keeps_interpreter
    @journaled
    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: Any = None,
        sample_weight: Any = None,
        *,
        example_ids: Any = None,
        scales: Any = None,
    ) -> Self:
        """Learn from more examples of known or new classes.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, n_features)
            Examples.
        y : array-like, shape (n,)
            Class of each example, of a type that can be combined with the known classes without changing any label.
        classes : array-like, optional
            All classes that ``y`` may contain, as in scikit-learn. Not required: any call may contain new classes.
        sample_weight, example_ids, scales : array-like, optional
            As for :meth:`fit`. Ids must be new and of the same type as the stored ids; by default, they continue from
            the largest id so far. ``scales`` can only be given in the first call.

        Raises
        ------
        MemoryError
            If memory runs out. The classifier remains usable, but may not have learned all rows.
        """
        if "_model" not in vars(self):
            return self._learn_anew(X, y, classes, sample_weight, example_ids, scales, in_parts=True)
        if scales is not None:
            raise ValueError("scales must be omitted after the first examples")
        are_weighted = isinstance(X, WeightedRows)
        y, expected = check_classes(y, classes)
        X, y = self._validated(X, y)
        self._check_parameters()
        self._check_weights_in_parts()
        known, y = self._model, np.asarray(y)
        if self._grows_tree():
            X, y = self._examples_of_tree(X, y, sample_weight, example_ids, scales)
            places, of_rows = place_classes(known.classes, y, expected)
            return self._change_model(
                "partial_fit", y.size, lambda model: model.learn(X, of_rows, places, self, online=True)
            )
        rows = checks.check_rows(X, sparse=known.index.is_sparse)
        weights = inputs.check_weights(sample_weight, self.class_weight, y)
        stored = known.index.examples
        ids = inputs.check_example_ids(example_ids, y.size, stored, known.example_names, stored=stored is not None)
        batch = inputs.present(inputs.ExampleBatch(rows, y, ids, weights, lengths_unless_unit(X), are_weighted))
        places, of_rows = place_classes(known.classes, batch.y, expected)

        def learn(model: ClassificationModel) -> ClassificationModel:
            model.learn(batch._replace(y=of_rows), places, self)
            return model.without_oldest(self)

        return self._change_model("partial_fit", rows.n_rows, learn)

    def _examples_of_tree(
        self, X: Any, y: np.ndarray, sample_weight: Any, example_ids: Any, scales: Any
    ) -> tuple[Any, np.ndarray]:
        """Return the examples whose weight is not 0. Raise ValueError for arguments that a tree cannot use."""
        for name, value in (("example_ids", example_ids), ("scales", scales), ("class_weight", self.class_weight)):
            if value is not None:
                raise ValueError(f"{name} must be omitted with method='tree'")
        weights = inputs.check_sample_weight(sample_weight, y.size)
        if weights is None:
            return X, y
        if not np.isin(weights, (0.0, 1.0)).all() or not weights.any():
            raise ValueError("sample_weight must be 0 or 1 with method='tree', and not always 0")
        return X[weights > 0.0], y[weights > 0.0]

    def _grows_tree(self) -> bool:
        """Return whether the fitted model is a tree. Raise ValueError if ``method`` has changed since ``fit``."""
        is_tree = isinstance(self._model, TreeModel)
        if is_tree != (self.method == _TREE):
            raise ValueError(f"method={self.method!r} needs another model: call fit again to change to or from 'tree'")
        return is_tree

    def _check_weights_in_parts(self) -> None:
        if self.class_weight == "balanced":
            raise ValueError(
                "class_weight='balanced' needs all examples in one call: call fit, or pass a dict to use partial_fit"
            )

    def _check_combinations(self) -> None:
        if self.method in ("neighbors", "scored_neighbors") and not self.store_examples:
            raise ValueError(f"method={self.method!r} needs stored examples: pass store_examples=True or method='head'")
        if self.weights == "score" and self.method in ("neighbors", "auto"):
            raise ValueError(
                f"weights='score' needs method='scored_neighbors', but method={self.method!r} does not score examples"
            )
        if self.tree is not None and self.method != _TREE:
            raise ValueError(f"tree needs method='tree', but method={self.method!r}")
        if self.max_examples is not None and self.method == _TREE:
            raise ValueError("max_examples must be omitted with method='tree': pass a tree with max_memories")
        if self.max_examples is not None and not self.store_examples:
            raise ValueError("max_examples needs stored examples: pass store_examples=True, or max_examples=None")

    @keeps_interpreter
    @journaled
    def remove(self, ids: Any) -> Self:
        """Remove examples, and classes that lose all their examples.

        With ``loss="mira"``, the examples are subtracted from the means in the scorers. Their remaining effect on
        scorers disappears at the next retraining, which is due when a quarter of the examples has been
        added or removed. The time is proportional to the size of the whole classifier, so remove many in one call.

        Parameters
        ----------
        ids : int, str, or array-like of them, shape (n,)
            Distinct ids of stored examples: their ``example_ids`` if given, otherwise their positions among all
            examples passed to ``fit`` and ``partial_fit``.

        Examples
        --------
        >>> import numpy as np
        >>> from cmt_numba import CMTClassifier
        >>> classifier = CMTClassifier(random_state=0).fit(np.eye(4), ["a", "a", "b", "c"])
        >>> classifier.remove([1, 2]).classes_.tolist()
        ['a', 'c']
        """
        check_is_fitted(self)
        if self._grows_tree():
            ids = checks.check_ids(ids)
            return self._change_model("remove", ids.size, lambda model: model.without(ids), replaces=True)
        slots = inputs.known_slots(self._model.stored(), ids, self._model.example_names)
        return self._change_model(
            "remove", slots.size, lambda model: model.without_examples(slots, self), replaces=True
        )

    @journaled
    def remove_classes(self, labels: Any) -> Self:
        """Remove classes, with their examples and scorers.

        The effect of removed classes on the remaining scorers disappears as described for :meth:`remove`. The time is
        proportional to the size of the whole classifier, so remove many in one call.

        Parameters
        ----------
        labels : array-like, shape (n,)
            Classes to remove, but not all of ``classes_``.

        Examples
        --------
        >>> import numpy as np
        >>> from cmt_numba import CMTClassifier
        >>> classifier = CMTClassifier(random_state=0).fit(np.eye(3), ["a", "b", "c"])
        >>> classifier.remove_classes(["b"]).predict(np.eye(3)[[0, 2]]).tolist()
        ['a', 'c']
        """
        check_is_fitted(self)
        positions = positions_of(labels, self._model.classes)
        if positions.size == 0:
            return self
        if self._grows_tree():
            ids = self._model.ids_of(positions)
            return self._change_model(
                "remove_classes", ids.size, lambda model: model.without(ids, positions), replaces=True
            )
        if np.isin(self._model.class_of_label, positions).all():
            raise ValueError("labels must not include all classes with examples: call fit to replace them")

        def forget(model: ClassificationModel) -> ClassificationModel:
            return model.without(positions, np.empty(0, np.int64), self)

        return self._change_model("remove_classes", positions.size, forget, replaces=True)

    # Queries

    @queries_model
    def predict(self, X: Any, reject_below: float | None = None, reject_label: Any = None) -> np.ndarray:
        """Return the class of each row.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, n_features)
            Queries.
        reject_below : float in [0, 1], optional
            Reject rows whose highest probability (:meth:`predict_proba`) is below this value, because they may belong
            to an unknown class.
        reject_label : object, optional
            Value to return for rejected rows. It must not be a class, and its type must be compatible with
            ``classes_``. By default -1 for numbers and booleans, which become integers, and "" for strings.

        Returns
        -------
        ndarray of shape (n,)
            One of ``classes_`` for each row, or ``reject_label``.
        """
        if reject_below is not None:
            return self._predict_or_reject(X, checks.check_real("reject_below", reject_below, 0.0, 1.0), reject_label)
        X, model = self._checked_matrix(X), self._model
        if self._grows_tree():
            return model.best_class(X)
        if self._votes_decide():
            return model.classes[self._votes(X).argmax(axis=1)]
        labels = model.index.best_label(X, self)
        return model.classes[model.class_of_label[labels]]

    def _predict_or_reject(self, X: Any, lowest: float, reject_label: Any) -> np.ndarray:
        proba = self.predict_proba(X)
        answers = with_reject_label(self.classes_, reject_label)
        return answers[np.where(proba.max(axis=1) < lowest, answers.size - 1, proba.argmax(axis=1))]

    @available_if(_has_scorers)
    @queries_model
    def top_classes(self, X: Any, k: int = 5) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions in ``classes_`` and the scores of the ``k`` best classes of each row.

        Classes are ranked by the head's scores, regardless of ``method``, best first. Both arrays, int64 and float32,
        have shape (n, k). If there are fewer candidates, they are padded with -1 and minus infinity.
        """
        rows, k = self._prepared(X), checks.check_wanted("k", k, self.classes_.size)
        labels, scores, *_ = self._model.index.best_labels(rows, k, self)
        return np.where(labels == NONE, NONE, self._model.class_of_label[labels]), scores

    @available_if(_has_scorers)
    @reads
    def count_candidates(self, X: Any) -> np.ndarray:
        """Return the number of classes that the head scores for each row with all of their weights: int64, shape (n,).

        Classes that are found only in posting lists do not count, because scoring their listed weights takes little
        time. Dense classes all count.
        """
        return self._model.index.best_labels(self._prepared(X), 1, self).n_scored

    @queries_model
    def decision_function(self, X: Any) -> np.ndarray:
        """Return the score of each class for each row: float64, shape (n, n_classes), or (n,) if there are two classes.

        Scores are those of the head, or votes if neighbors decide; :meth:`predict` returns the class with the highest
        one. Classes that are not candidates get 1 less than the lowest score of a candidate. With two classes, the
        result is the second score minus the first.
        """
        X = self._checked_matrix(X)
        if not self._grows_tree() and self._votes_decide():
            scores = self._votes(X)
        else:
            if self._grows_tree():
                scores = self._model.class_scores(X, _SCORED if self.n_neighbors == AUTO else self.n_neighbors)
            else:
                scores = self._model.class_scores(self._model.index.prepared_matrix(X), self)
            reached = np.isfinite(scores)
            scores[~reached] = min(float(scores[reached].min(initial=0.0)), 0.0) - 1.0
        return scores[:, 1] - scores[:, 0] if self._model.classes.size == 2 else scores

    @available_if(_has_scorers)
    @queries_model
    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each class for each row: float64, shape (n, n_classes). Rows sum to 1.

        With ``method="head"``, probabilities are the softmax of the candidates' scores times a learned factor
        (temperature scaling; Guo et al., 2017). The first call learns the factor as :meth:`calibrate` does, if examples
        are stored and some class has more than one example. Classes that are not candidates have probability 0. If
        neighbors decide, probabilities are fractions of the votes, mixed with equal probabilities of all classes: the
        first call learns in which proportion from up to 1,000 examples, each without its own vote.
        """
        X = self._checked_matrix(X)
        if self._votes_decide():
            rows = checks.check_rows(X, sparse=self._model.index.is_sparse)
            return self._model.probabilities_of_votes(rows, row_lengths(X), self)
        return self._model.probabilities(self._model.class_scores(self._model.index.prepared_matrix(X), self), self)

    @available_if(_has_scorers)
    def calibrate(self, X: Any = None, y: Any = None) -> Self:
        """Learn the temperature that turns scores into probabilities.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, n_features), optional
            Examples that the classifier has not learned from. By default, up to 2,000 stored examples are held out and
            a second head is trained on the rest, which takes about as long as ``fit``. :meth:`predict_proba` does this
            on its first call, and again when a quarter of the examples is new.
        y : array-like, shape (n,), optional
            Class of each example. Rows of an unknown class count as wrong predictions.
        """
        folder = self._folder
        if folder is not None:
            folder.journal.check_changeable()
        self._calibrate(X, y)
        if folder is not None:
            folder.journal.sync()
        return self

    @reads
    def _calibrate(self, X: Any, y: Any) -> None:
        if (X is None) != (y is None):
            raise ValueError("X and y must be given together, or both be omitted")
        if X is None:
            check_is_fitted(self)
            value = self._model.learned_logits(self)
        else:
            rows, y = self._prepared(X), np.ravel(checks.label_array("y", y))
            checks.check_entries("y", y.size, rows.n_rows)
            known, y = in_one_type("y", self._model.classes, y)
            labels = np.full(y.size, NONE - 1, np.int64)
            is_known = np.isin(y, known)
            labels[is_known] = self._model.label_of_class[np.searchsorted(known, y[is_known])]
            value = logits_per_margin(*self._model.margins_for(rows, labels, self))
        self._model.calibration[0] = value

    @available_if(_has_scorers)
    @queries_model
    def explain(self, X: Any, n_examples: int = 3, n_features: int = 5) -> list[Explanation]:
        """Explain the predicted class of each row by examples and features, compared with the runner-up.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, n_features)
            Queries.
        n_examples : int, default 3
            Maximum number of stored examples to return for each row; none if examples are not stored.
        n_features : int, default 5
            Maximum number of features to return for each row.

        Returns
        -------
        list of Explanation
            One printable explanation for each row, based on the head's scores regardless of ``method``.

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
        X = self._checked_matrix(X)
        limits = checks.check_integer("n_examples", n_examples, 0), checks.check_integer("n_features", n_features, 0)
        return explanations(self._model, X, self, getattr(self, "feature_names_in_", None), *limits)

    @queries_model
    def kneighbors(self, X: Any, n_neighbors: int | None = None, return_distance: bool = True) -> Any:
        """Return the nearest stored examples of each row, by ``metric``.

        The search is exact until many rows have been compared with more than 8,192 dense examples. Then an index finds
        99 % of the nearest ones in less time. With ``method="scored_neighbors"``, examples are ranked instead by the
        mean of their cosine and the score of their class.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, n_features)
            Queries.
        n_neighbors : int, optional
            Number of examples for each row, at most 1,000,000. By default, the ``n_neighbors`` of the classifier.
        return_distance : bool, default True
            Whether to return the distances as well.

        Returns
        -------
        neigh_dist : ndarray of float64, shape (n, n_neighbors)
            Distances, nearest first: Euclidean, 1 minus the cosine, or 1 minus the score. Infinity if there are fewer
            examples. Only with ``return_distance``.
        neigh_ind : ndarray of int64 or str, shape (n, n_neighbors)
            Ids of the examples: their ``example_ids`` if given, otherwise their positions among all examples passed to
            ``fit`` and ``partial_fit``. A missing example has the id -1 or an empty string.
        """
        X = self._checked_matrix(X)
        if self._grows_tree():
            k = checks.check_wanted("n_neighbors", n_neighbors or _SCORED, 0)
            hits = self._model.nearest(X, k)
            return (1.0 - hits.scores.astype(np.float64), hits.ids) if return_distance else hits.ids
        wanted = self._choice().n_neighbors if n_neighbors is None else n_neighbors
        model, k = self._model, checks.check_wanted("n_neighbors", wanted, 0)
        rows = checks.check_rows(X, sparse=model.index.is_sparse)
        slots, distances = model.nearest_slots(rows, row_lengths(X), k, self)
        ids = model.shown_ids(np.where(slots == NONE, NONE, model.stored().keys.ids[slots]))
        return (distances, ids) if return_distance else ids

    def _choice(self) -> Choice:
        """Return the method, metric and number of neighbors, with chosen values for "auto" parameters."""
        return resolved(self, self._model.choice)

    def _votes_decide(self) -> bool:
        """Return whether neighbors decide the class, rather than the head."""
        return self.method != "head" and self._choice().method != "head"

    def _votes(self, X: Any) -> np.ndarray:
        """Return the votes for each class. ``X`` must have been checked."""
        return self._model.votes(checks.check_rows(X, sparse=self._model.index.is_sparse), row_lengths(X), self)

    @property
    def tree_(self) -> ContextualMemoryTree:
        """The tree of ``method="tree"``, whose memories are the examples."""
        check_is_fitted(self)
        if not self._grows_tree():
            raise AttributeError("tree_ exists only with method='tree'")
        return self._model.tree

    @property
    def classes_(self) -> np.ndarray:
        """The known classes, sorted."""
        return self._model.classes

    @property
    def examples_(self) -> StoredExamples | None:
        """The stored examples."""
        return None if isinstance(self._model, TreeModel) else self._model.index.examples

    def _prepared(self, X: Any) -> Rows:
        """Return rows as the scorers of a fitted classifier expect them."""
        X = self._checked_matrix(X)
        return self._model.index.prepared_matrix(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.poor_score = True
        return tags
