"""The retriever: values of any kind, found by keys."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from .._change import reads
from .._forest import NONE, Hits, Rows, ShownHits, as_matrix, certain, partly_drawn
from .._jit import keeps_interpreter
from .._validation import (
    MOST_COMPONENTS,
    Constraint,
    Integer,
    OneOf,
    Optional,
    Real,
    check_ids,
    check_integer,
    check_memory_ids,
    check_real,
    check_rewards,
    check_rows,
    check_wanted,
    unmasked,
)
from ..rewards import ValueCosine
from ..tree import OPTIONS, ContextualMemoryTree
from ._base import FIT_ONLY, OF_ALL, PASSES, MemoryEstimator, changes_model
from ._input import check_sample_weight, present_values
from ._retrieval_model import RetrievalModel
from ._values import as_values, cosines, equalities

SEARCHES = ("key", "value")
_LEAST_EXPLORED = 10  # best memories that a row which explores draws from


class CMTRetriever(MemoryEstimator):
    """A memory that answers keys with values: vectors, or objects of any kind.

    What is retrieved is one of the values stored (section 4.3 of the paper: images by their captions). There are two
    ways to search:

    - by key: the memory whose key is most like the query, in a forest over keys. This is the paper's way.
    - by value, where values are vectors: the memory whose value is most like what is to be expected of the query. The
      expectation is a linear map from keys to values, learned from all memories by ridge regression, and the forest is
      one over distinct values. Its routers are taught where expectations lead. Expected is the reward: the cosine of
      the value retrieved and of the one that belonged to the query.

    Both learn online: ``partial_fit`` takes new memories and ``feedback`` takes rewards, at any time.

    Parameters
    ----------
    search : {"key", "value"}, optional
        The way to search; by default by value where values are vectors, and by key where not.
    n_trees : int, optional
        Trees of the forest; by default 4 over keys, 1 over values.
    n_probes : int, optional
        Leaves searched in all trees together; by default 1 for each tree over keys, 4 over values.
    n_components : int, default 64
        Of the search by value: how many components of values are compared; at most 65,536.
    regularization : float, default 3.0
        Of the search by value: the ridge. Keys have length 1, so it counts like that number of examples of a feature.
    n_value_passes : int, default 10
        Of the search by value: how often the expectation learns from each memory; at most 10,000 times, as with all
        passes.
    n_router_passes : int, default 1
        Of the search by value: how often each memory teaches the routers.
    n_reward_passes : int, default 0
        Of the search by key, in ``fit`` and where values are vectors: passes of query, reward and update.
    leaf_multiplier : float, default 4.0
        ``c``: a leaf of a tree of ``n`` memories holds at most ``c * log2(n)``.
    alpha : float in (0, 1], default 0.9
        How strongly routers keep the two sides of a node equal in number.
    n_reroutes : int, default 5
        How many memories each tree reroutes after each insertion; at most 10,000.
    n_jobs : int, optional
        Threads; by default one, with -1 as many as numba uses. Answers do not depend on it.
    random_state : int, numpy.random.RandomState or None
        Seed.
    verbose : bool, default False
        Show progress bars while it learns.

    Attributes
    ----------
    n_features_in_ : int
        Width of the keys.
    n_memories_ : int
        Memories stored.
    search_ : str
        The way searched.
    forest_ : ContextualMemoryTree
        The trees, over keys or over distinct values.

    Examples
    --------
    >>> import numpy as np
    >>> retriever = CMTRetriever(random_state=0).fit(np.eye(3), ["red", "green", "blue"])
    >>> retriever.predict([[0.1, 0.9, 0.0]]).tolist()
    ['green']
    """

    _kind = "CMTRetriever"
    _fit_only = FIT_ONLY
    _constraints: ClassVar[dict[str, Constraint]] = {
        **OF_ALL,
        "search": Optional(OneOf(SEARCHES)),
        "n_components": Integer(1, MOST_COMPONENTS),
        "regularization": Real(0.0, 1e9, above=True),
        "n_value_passes": PASSES,
        "n_router_passes": PASSES,
        "n_reward_passes": PASSES,
        "leaf_multiplier": OPTIONS["leaf_multiplier"],
    }
    _model: RetrievalModel

    def __init__(
        self,
        search: str | None = None,
        n_trees: int | None = None,
        n_probes: int | None = None,
        *,
        n_components: int = 64,
        regularization: float = 3.0,
        n_value_passes: int = 10,
        n_router_passes: int = 1,
        n_reward_passes: int = 0,
        leaf_multiplier: float = 4.0,
        alpha: float = 0.9,
        n_reroutes: int = 5,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.search = search
        self.n_trees = n_trees
        self.n_probes = n_probes
        self.n_components = n_components
        self.regularization = regularization
        self.n_value_passes = n_value_passes
        self.n_router_passes = n_router_passes
        self.n_reward_passes = n_reward_passes
        self.leaf_multiplier = leaf_multiplier
        self.alpha = alpha
        self.n_reroutes = n_reroutes
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    # Learning

    @changes_model
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Store memories, forgetting earlier ones.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, n_features)
            Keys.
        y : array-like or sparse matrix of shape (n, width), or sequence of n objects, optional
            Their values: vectors, or objects of any kind. By default the positions 0 .. n - 1.
        sample_weight : array-like, shape (n,), optional
            How much each memory counts for what is expected of queries, from 0 to a million; by default 1. A weight of
            2 counts like the same row twice in the ridge regression, but is a single memory. A row of weight 0 is left
            out: it is not stored, and gets no id. Positive weights below 1e-9 count as 1e-9. Nothing else depends on
            weights: components and routers do not, and with ``search="key"``, where there is no regression, all
            weights above 0 are the same.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If an argument or a parameter cannot be used.
        """
        return self._store_anew(X, y, sample_weight)

    def _store_anew(self, X: Any, y: Any, sample_weight: Any) -> Self:
        """Store memories, forgetting earlier ones."""
        fresh = self._unfitted()
        X = fresh._validated(X, reset=True)
        values = as_values(np.arange(X.shape[0]) if y is None else y, X.shape[0])
        self._check_parameters()
        if self.search == "value" and values.ndim != 2:
            raise ValueError('y must hold vectors to be searched by value; with other objects use search="key"')
        rows, weights = check_rows(X), check_sample_weight(sample_weight, X.shape[0])
        rows, values, weights = present_values(rows, values, weights, numbered=y is None)
        model = fresh._model = RetrievalModel.new(self, rows, values)
        model.store(rows, values, weights, self, afresh=True)
        if model.search == "key" and values.ndim == 2 and self.n_reward_passes > 0:
            reward, n_leaves = ValueCosine(values, values), model.forest.n_trees
            bounds: dict[str, Any] = {"n_probes": n_leaves, "n_passes": self.n_reward_passes, "progress": self.verbose}
            model.tree.learn(as_matrix(rows), reward, own_ids=np.arange(rows.n_rows), **bounds)
        return self._become(fresh)

    @keeps_interpreter
    @changes_model
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Store further memories.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, n_features)
            Keys.
        y : array-like, sparse matrix or sequence, optional
            Their values, of the kind and width of those before. By default the positions that follow.
        sample_weight : array-like, shape (n,), optional
            As for :meth:`fit`.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If an argument or a parameter cannot be used; nothing has changed then.
        """
        if not self.__sklearn_is_fitted__():
            return self._store_anew(X, y, sample_weight)
        rows, memories = self._checked(X), self._model.memories
        weights = check_sample_weight(sample_weight, rows.n_rows)
        following = np.arange(memories.next_id, memories.next_id + rows.n_rows)
        values = memories.values.accept(following if y is None else y, rows.n_rows)
        rows, values, weights = present_values(rows, values, weights, numbered=y is None)
        return self._change(
            "partial_fit", rows.n_rows, lambda model: model.store(rows, values, weights, self, afresh=False)
        )

    @keeps_interpreter
    @changes_model
    def feedback(self, X: Any, ids: Any, rewards: Any) -> Self:
        """Learn from what memories were worth to queries.

        Searching by value, the expectation learns to predict the rewards. Searching by key, the scorer learns to rank
        memories of high reward above those of low reward, and a query that was rewarded with 0.5 or more is stored as
        a further key of its best memory, once however often it comes. How much it is worth to be like a further key is
        learned, too. Further keys go when their memory is removed.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, n_features)
            Queries.
        ids : array-like of int, shape (n,) or (n, k)
            Memories that they retrieved (:meth:`kneighbors`); -1 for none.
        rewards : array-like, same shape
            Rewards in [0, 1].

        Returns
        -------
        self

        Raises
        ------
        KeyError
            If there is no such memory; nothing has changed then.
        TypeError, ValueError
            If an argument cannot be used; nothing has changed then.
        """
        rows = self._checked(X)
        flat = check_memory_ids(np.ravel(unmasked("ids", ids)), np.size(ids))
        if np.ndim(ids) not in (1, 2) or np.shape(ids)[0] != rows.n_rows:
            raise ValueError(f"ids must hold one row for each of the {rows.n_rows} rows of X, not {np.shape(ids)}")
        ids = flat.reshape(rows.n_rows, -1)
        rewards = np.asarray(unmasked("rewards", rewards))
        rewards = check_rewards(rewards.reshape(ids.shape) if rewards.size == ids.size else rewards, ids)
        self._model.memories.rows_of(flat[flat != NONE])
        return self._change("feedback", rows.n_rows, lambda model: model.learn_rewards(rows, ids, rewards, self))

    @keeps_interpreter
    @changes_model
    def remove(self, ids: Any) -> Self:
        """Forget memories, with all their keys and values. Their ids are not used again; what was learned stays.

        Parameters
        ----------
        ids : int or array-like of int, shape (n,)
            Ids of stored memories, each named once.

        Returns
        -------
        self

        Raises
        ------
        KeyError
            If there is no such memory; nothing has been removed then.
        TypeError, ValueError
            If ``ids`` are not distinct integers.
        """
        check_is_fitted(self)
        ids = check_ids(ids)
        self._model.memories.rows_of(ids)
        return self._change("remove", ids.size, lambda model: model.remove(ids))

    @keeps_interpreter
    @changes_model
    def replace(self, ids: Any, X: Any) -> Self:
        """Give memories other keys, where search is by key. Their ids and values stay.

        So do queries that :meth:`feedback` has stored as further keys of theirs.

        Parameters
        ----------
        ids : int or array-like of int, shape (n,)
            Ids of stored memories, each named once.
        X : array-like or sparse matrix, shape (n, n_features)
            Their keys from now on.

        Returns
        -------
        self

        Raises
        ------
        KeyError
            If there is no such memory; nothing has changed then.
        TypeError, ValueError
            If an argument cannot be used, or search is by value, for which keys are learned from but not stored;
            nothing has changed then.
        """
        rows = self._checked(X)
        if self.search_ == "value":
            raise ValueError('keys are not stored with search="value": pass search="key" and fit again to replace keys')
        ids = check_ids(check_memory_ids(ids, rows.n_rows))
        self._model.memories.rows_of(ids)
        return self._change("replace", ids.size, lambda model: model.replace(ids, rows))

    @changes_model
    def set_values(self, ids: Any, y: Any) -> Self:
        """Give memories other values. Their ids and keys stay, and so does what was learned from the old values.

        Parameters
        ----------
        ids : int or array-like of int, shape (n,)
            Ids of stored memories, each named once.
        y : array-like, sparse matrix or sequence
            Their values from now on, of the kind and width of those before.

        Returns
        -------
        self

        Raises
        ------
        KeyError
            If there is no such memory; nothing has changed then.
        TypeError, ValueError
            If an argument cannot be used; nothing has changed then.
        """
        check_is_fitted(self)
        ids = check_ids(ids)
        memories = self._model.memories
        memories.rows_of(ids)
        values = memories.values.accept(y, ids.size)
        return self._change("set_values", ids.size, lambda model: model.set_values(ids, values))

    def _change(self, method: str, n_rows: int, change: Callable[[RetrievalModel], None]) -> Self:
        """Have ``change`` change the model; return the retriever."""

        def changed(model: RetrievalModel) -> RetrievalModel:
            change(model)
            return model

        return self._change_model(method, n_rows, changed)

    # Answering

    @keeps_interpreter
    @reads
    def query(self, X: Any, k: int = 1, epsilon: float = 0.0, *, n_explored: int | None = None) -> ShownHits:
        """Return the best memories for each row or, with probability ``epsilon``, some of the best at random.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, n_features)
            Queries.
        k : int, default 1
            Memories wanted: at most 1,000,000, or as many as are stored if that is more.
        epsilon : float in [0, 1], default 0.0
            Probability with which a row explores, so that :meth:`feedback` learns of others than the best.
        n_explored : int, optional
            From how many of the best memories a row that explores draws ``k``, all with the same probability; at least
            ``k``. By default twice ``k``, and at least 10.

        Returns
        -------
        ShownHits
            Their ids, -1 for none, and scores: the scorer's, or the rewards expected where search is by value. Of
            several memories of one value only one is named then. ``propensities`` are the exact probabilities with
            which each memory is among those of its row.

        Raises
        ------
        TypeError, ValueError
            If an argument cannot be used.
        """
        rows, k = self._checked(X), check_wanted("k", k, self.n_memories_)
        epsilon = check_real("epsilon", epsilon, 0.0, 1.0)
        n_explored = max(2 * k, _LEAST_EXPLORED) if n_explored is None else n_explored
        n_explored = check_integer("n_explored", n_explored, k)
        if epsilon == 0.0:
            hits = self._best(rows, k)
            return ShownHits.of(hits, partial(certain, hits.ids))
        pool = self._best(rows, check_wanted("n_explored", n_explored, max(self.n_memories_, n_explored)))
        return partly_drawn(pool, k, epsilon, self._model.forest.new_generator())

    @keeps_interpreter
    @reads
    def predict(self, X: Any) -> Any:
        """Return the value of the best memory for each row: an array or sparse matrix like ``y``.

        Raises
        ------
        LookupError
            If all memories have been removed.
        """
        ids = self._best(self._checked(X), 1).ids[:, 0]
        if np.any(ids == NONE):
            raise LookupError("all memories have been removed: call partial_fit with new ones before predict")
        return self._model.memories.values_of(ids)

    @keeps_interpreter
    @reads
    def kneighbors(self, X: Any, n_neighbors: int = 5, return_distance: bool = True) -> Any:
        """Return the best memories for each row.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, n_features)
            Queries.
        n_neighbors : int, default 5
            Memories wanted: at most 1,000,000, or as many as are stored if that is more.
        return_distance : bool, default True
            Whether to return distances too.

        Returns
        -------
        neigh_dist : ndarray of float32, shape (n, n_neighbors)
            1 minus the score; infinite where fewer memories were found. Only with ``return_distance``.
        neigh_ind : ndarray of int64, shape (n, n_neighbors)
            Ids: positions among all memories ever stored, -1 for none.
        """
        hits = self._best(self._checked(X), check_wanted("n_neighbors", n_neighbors, self.n_memories_))
        return (1.0 - hits.scores, hits.ids) if return_distance else hits.ids

    @reads
    def values(self, ids: Any) -> Any:
        """Return the values of stored memories: an array or sparse matrix like ``y``.

        Raises
        ------
        KeyError
            If there is no such memory.
        TypeError, ValueError
            If ``ids`` are not integers of one dimension.
        """
        check_is_fitted(self)
        return self._model.memories.values_of(check_memory_ids(ids, np.size(ids)))

    @keeps_interpreter
    @reads
    def reward(self, X: Any, y: Any) -> np.ndarray:
        """Return what the best memory is worth to each row whose right value is known.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, n_features)
            Queries.
        y : array-like, sparse matrix or sequence
            The values that belong to them.

        Returns
        -------
        ndarray of float64, shape (n,)
            The cosine of the value retrieved with the right one, 0 where it is negative; with objects 1 where they
            are equal.
        """
        found = self.predict(X)
        store = self._model.memories.values
        values = store.accept(y, found.shape[0])
        return cosines(found, values) if store.are_vectors else equalities(found, values)

    def score(self, X: Any, y: Any) -> float:
        """Return the mean reward of the memories retrieved, as of :meth:`reward`."""
        return float(np.mean(self.reward(X, y)))

    @property
    def n_memories_(self) -> int:
        """Memories stored."""
        return int(self._model.memories.ids.size)

    @property
    def search_(self) -> str:
        """The way searched."""
        return self._model.search

    @property
    def forest_(self) -> ContextualMemoryTree:
        """The trees, over keys or over distinct values."""
        return self._model.tree

    def _best(self, rows: Rows, k: int) -> Hits:
        return self._model.best_memories(rows, k, self)

    def _checked(self, X: Any) -> Rows:
        return check_rows(self._checked_matrix(X), sparse=self._model.sparse)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
