"""Retriever: a memory that maps keys to values of any type."""

from dataclasses import KW_ONLY, dataclass, field
from typing import Annotated, Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from .. import _validation as checks
from .._change import reads
from .._feedback import ExplainedResult, LearnedSummary
from .._jit import keeps_interpreter
from .._kernels import NONE, Hits, Rows
from ..journal import journaled
from ._base import PASSES, SEED, MemoryEstimator, queries_model
from ._fields import fields_of_estimator
from ._input import check_sample_weight, present_values
from ._retrieval_model import RetrievalModel
from ._values import as_values, cosines, equalities


@dataclass(eq=False, repr=False)
class CMTRetriever(MemoryEstimator):
    """A memory that maps keys to values: vectors, or objects of any type.

    A query returns one of the stored values (section 4.3 of the paper retrieves images by their captions). There are
    two ways to search:

    - By key: find the memory whose key is most similar to the query.
    - By value, if values are vectors: predict a value for the query, and find the memory with the most similar value. A
      linear map from keys to values, learned from all memories by ridge regression, predicts the value. The score of a
      memory is its expected reward: the cosine of its value and the correct value for the query.

    Both learn online: ``partial_fit`` takes new memories, and ``feedback`` takes rewards, at any time. Keys and values
    are in the indexes of :class:`~cmt_numba.MemoryStore`; searches of sparse keys are exact.

    Parameters
    ----------
    search : {"key", "value"}, optional
        Whether to search by key or by value. The default is "value" if values are vectors, otherwise "key".
    target_recall : float in (0, 1], default 0.95
        Fraction of the best memories that searches of dense keys or of values should find. With 1, searches are exact.
    n_components : int, default 64
        Search by value: number of components of values that are compared, at most 65,536.
    regularization : float, default 3.0
        Search by value: the ridge penalty. Keys have length 1, so the penalty has the weight of this many examples of a
        feature.
    n_value_passes : int, default 10
        Search by value: number of passes over the memories that train the map from keys to values, at most 10,000.
    n_jobs, random_state, verbose
        As for :class:`CMTClassifier`.

    Attributes
    ----------
    n_features_in_ : int
        Width of the keys.

    Examples
    --------
    >>> import numpy as np
    >>> retriever = CMTRetriever(random_state=0).fit(np.eye(3), ["red", "green", "blue"])
    >>> retriever.predict([[0.1, 0.9, 0.0]]).tolist()
    ['green']
    """

    _kind = "CMTRetriever"
    FIELDS = fields_of_estimator(RetrievalModel)
    _fit_only = frozenset({"n_components"})
    _model: RetrievalModel = field(init=False)

    search: Annotated[str | None, checks.Optional(checks.OneOf(("key", "value")))] = None
    _: KW_ONLY
    target_recall: Annotated[float, checks.Real(0.0, 1.0, above=True)] = 0.95
    n_components: Annotated[int, checks.Integer(1, checks.MAX_COMPONENTS)] = 64
    regularization: Annotated[float, checks.Real(0.0, 1e9, above=True)] = 3.0
    n_value_passes: Annotated[int, PASSES] = 10
    n_jobs: checks.Jobs = None
    random_state: Annotated[Any, SEED] = None
    verbose: Annotated[bool, checks.Flag()] = False

    # Learning

    @journaled
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Store memories, and discard earlier memories.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, n_features)
            Keys.
        y : array-like or sparse matrix of shape (n, width), or sequence of n objects, optional
            Value of each key: vectors, or objects of any type. By default, the positions 0 to n - 1.
        sample_weight : array-like, shape (n,), optional
            Weight of each memory in the ridge regression, from 0 to 1,000,000; by default 1. A weight of 2 has the same
            effect as repeating the row, but only one memory is stored. Rows of weight 0 are ignored: they are not
            stored and get no ids. With ``search="key"`` all positive weights have the same effect.
        """
        return self._store_anew(X, y, sample_weight)

    def _store_anew(self, X: Any, y: Any, sample_weight: Any) -> Self:
        fresh = self._unfitted()
        X = fresh._validated(X, reset=True)
        values = as_values(np.arange(X.shape[0]) if y is None else y, X.shape[0])
        self._check_parameters()
        if self.search == "value" and values.ndim != 2:
            raise ValueError('y must contain vectors for search="value": pass search="key" for other values')
        rows, weights = checks.check_rows(X), check_sample_weight(sample_weight, X.shape[0])
        rows, values, weights = present_values(rows, values, weights, numbered=y is None)
        model = fresh._model = RetrievalModel(self, rows, values)
        model.store(rows, values, weights, self)
        return self._become(fresh)

    @keeps_interpreter
    @journaled
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Store more memories.

        Parameters
        ----------
        X, sample_weight
            As for :meth:`fit`.
        y : array-like, sparse matrix or sequence, optional
            Value of each key, of the same type and width as the stored values. By default, the next positions.
        """
        if not self.__sklearn_is_fitted__():
            return self._store_anew(X, y, sample_weight)
        rows, memories = self._checked(X), self._model.memories
        weights = check_sample_weight(sample_weight, rows.n_rows)
        following = np.arange(memories.next_id, memories.next_id + rows.n_rows)
        values = memories.values.accept(following if y is None else y, rows.n_rows)
        rows, values, weights = present_values(rows, values, weights, numbered=y is None)
        return self._change_model("partial_fit", rows.n_rows, lambda model: model.store(rows, values, weights, self))

    @keeps_interpreter
    @journaled
    def feedback(self, X: Any, ids: Any, rewards: Any) -> Self:
        """Learn from the rewards of retrieved memories.

        In a search by value, the map from keys to values learns to predict the rewards. In a search by key, later
        queries rank memories that earn rewards higher, also for similar queries. Removing a memory or replacing its key
        forgets its rewards. A memory with the very key of the query comes first.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, n_features)
            Queries.
        ids : array-like of int, shape (n,) or (n, k)
            Ids of the retrieved memories, as returned by :meth:`query` or :meth:`kneighbors`; -1 for a missing memory.
        rewards : array-like, shape (n,) or the shape of ``ids``
            Rewards in [0, 1], or NaN if unknown. One reward for several memories is their common outcome, which counts
            once.
        """
        rows = self._checked(X)
        flat = checks.check_memory_ids(np.ravel(checks.unmasked("ids", ids)), np.size(ids))
        if np.ndim(ids) not in (1, 2) or np.shape(ids)[0] != rows.n_rows:
            n = rows.n_rows
            raise ValueError(f"ids must have one row for each of the {n} rows of X, got shape {np.shape(ids)}")
        ids = flat.reshape(rows.n_rows, -1)
        rewards = np.asarray(checks.unmasked("rewards", rewards))
        rewards = rewards.reshape(ids.shape) if rewards.size == ids.size else rewards
        rewards = checks.check_rewards(rewards, ids, may_be_unknown=True)
        self._model.memories.rows_of(flat[flat != NONE])
        return self._change_model("feedback", rows.n_rows, lambda model: model.learn_rewards(rows, ids, rewards, self))

    @keeps_interpreter
    @journaled
    def remove(self, ids: Any) -> Self:
        """Remove memories by their distinct ids, with all their keys and values.

        Ids are never reused. Weights learned from the memories do not change.
        """
        ids = self._known(ids)
        return self._change_model("remove", ids.size, lambda model: model.remove(ids))

    @keeps_interpreter
    @journaled
    def replace(self, ids: Any, X: Any) -> Self:
        """Replace the keys of memories by their distinct ids, in a search by key. Ids and values do not change."""
        rows = self._checked(X)
        if self.search_ == "value":
            raise ValueError('keys are not stored with search="value": pass search="key" and fit again to replace keys')
        ids = self._known(checks.check_memory_ids(ids, rows.n_rows))
        return self._change_model("replace", ids.size, lambda model: model.replace(ids, rows))

    @journaled
    def set_values(self, ids: Any, y: Any) -> Self:
        """Replace the values of memories by their distinct ids.

        Ids, keys, and weights learned from the old values do not change. The new values ``y`` must have the type and
        width of the stored values.
        """
        ids = self._known(ids)
        values = self._model.memories.values.accept(y, ids.size)
        return self._change_model("set_values", ids.size, lambda model: model.set_values(ids, values))

    def _known(self, ids: Any) -> np.ndarray:
        """Return distinct ids of stored memories."""
        check_is_fitted(self)
        ids = checks.check_ids(ids)
        self._model.memories.rows_of(ids)
        return ids

    # Queries

    @queries_model
    def query(self, X: Any, k: int = 1) -> Hits:
        """Return the ids and scores of the ``k`` best memories for each row, with an id of -1 for a missing memory.

        A search by value scores memories by expected reward, and returns only one of several memories with equal
        values.
        """
        return self._best(self._checked(X), checks.check_wanted("k", k, self.n_memories_))

    @reads
    def learned(self) -> LearnedSummary | None:
        """Return what a search by key has learned from rewards, or None if there were none.

        The result has the weight of each part of a score, and the gain in reward over ranking by similarity.
        """
        check_is_fitted(self)
        return None if self._model.learned is None else self._model.learned.model.learned()

    @reads
    def explain(self, X: Any, k: int = 5) -> list[ExplainedResult]:
        """Explain the best ``k`` results of one query by the parts of their scores."""
        rows = self._checked(np.atleast_2d(X) if isinstance(X, np.ndarray | list) else X)
        if rows.n_rows != 1:
            raise ValueError(f"explain takes a single query, got {rows.n_rows} rows")
        hits = self._best(rows, checks.check_wanted("k", k, self.n_memories_))
        there = hits.ids[0] != NONE
        ids, scores = hits.ids[0][there], hits.scores[0][there]
        parts = self._model.explain(rows, ids, scores, self.target_recall)
        return [ExplainedResult(*each) for each in zip(ids.tolist(), scores.tolist(), parts, strict=True)]

    @queries_model
    def predict(self, X: Any) -> Any:
        """Return the value of the best memory for each row: an array or sparse matrix like ``y``.

        Raises
        ------
        LookupError
            If all memories have been removed.
        """
        ids = self._best(self._checked(X), 1).ids[:, 0]
        if np.any(ids == NONE):
            raise LookupError("all memories have been removed: call partial_fit with new memories before predict")
        return self._model.memories.values_of(ids)

    @queries_model
    def kneighbors(self, X: Any, n_neighbors: int = 5, return_distance: bool = True) -> Any:
        """Return the best ``n_neighbors`` memories of each row, like :meth:`CMTClassifier.kneighbors`.

        The distances are 1 minus the scores (float32). The ids (int64) are positions among all memories ever stored.
        """
        hits = self._best(self._checked(X), checks.check_wanted("n_neighbors", n_neighbors, self.n_memories_))
        return (np.maximum(1.0 - hits.scores, 0.0), hits.ids) if return_distance else hits.ids

    @reads
    def values(self, ids: Any) -> Any:
        """Return the values of stored memories: an array or sparse matrix like ``y``."""
        check_is_fitted(self)
        return self._model.memories.values_of(checks.check_memory_ids(ids, np.size(ids)))

    @queries_model
    def reward(self, X: Any, y: Any) -> np.ndarray:
        """Return the reward of the best memory for each row, given the correct values ``y``: float64, shape (n,).

        The reward is the cosine of the retrieved and the correct value, or 0 if it is negative. For objects, it is 1 if
        the two are equal, otherwise 0.
        """
        found = self.predict(X)
        store = self._model.memories.values
        values = store.accept(y, found.shape[0])
        return cosines(found, values) if store.are_vectors else equalities(found, values)

    def score(self, X: Any, y: Any) -> float:
        """Return the mean of :meth:`reward`."""
        return float(np.mean(self.reward(X, y)))

    @property
    def n_memories_(self) -> int:
        """Number of stored memories."""
        return int(self._model.memories.ids.size)

    @property
    def search_(self) -> str:
        """How the retriever searches: "key" or "value"."""
        return "key" if self._model.by_value is None else "value"

    def _best(self, rows: Rows, k: int) -> Hits:
        return self._model.best_memories(rows, k, self)

    def _checked(self, X: Any) -> Rows:
        return checks.check_rows(self._checked_matrix(X), sparse=self._model.sparse)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
