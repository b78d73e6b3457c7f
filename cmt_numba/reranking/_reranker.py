"""Reranking of search results by predicted rewards."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from .. import persistence as files
from .._kernels import NONE, Hits, no_hits, require
from .._validation import Flag, check_wanted
from ..sequences import EditDistance
from ..text import BM25Vectorizer
from . import _models as models
from . import _pairs as pairing

_FIELDS = files.FieldTable(
    features=files.DocumentField(),  # names, or None for functions
    compare=files.FlagField(),
    feature_names_=files.TextsField(),
    improvement_=files.OptionalField(files.ArrayField(np.float64)),
    _log=models.LOG,
    vectorizer=files.OptionalField(files.PartField(BM25Vectorizer)),
    booster=files.OptionalField(files.ArrayField(np.uint8)),
)
_UNKNOWN = f"features must be among {', '.join(pairing.FEATURES)}"
_MIN_QUERIES = 3  # minimum number of queries for cross-validation
DEFAULT_FEATURES = ("score", "rank", "bm25", "overlap", "edit", "lengths")


@dataclass(eq=False, repr=False)
class Reranker(BaseEstimator):
    """Reranker of search results by predicted rewards.

    A regressor or ranker, such as gradient boosting (Chen and Guestrin, XGBoost: a scalable tree boosting system,
    2016), learns from a log of results and rewards. Features describe query-document pairs, so the model also ranks
    documents that have never been rewarded.

    Parameters
    ----------
    model : regressor or ranker, optional
        Model with ``fit(X, rewards)`` and ``predict(X)``. By default
        :class:`~sklearn.ensemble.HistGradientBoostingRegressor`. The model is cloned before it is fitted. If ``fit``
        has a parameter ``qid`` or ``group``, it receives the query of each pair.
    features : sequence of str or callable, optional
        Features of query-document pairs. By default, all features except "terms".

        - "score": Score of the search.
        - "rank": Rank among the retrieved documents, starting from 0.
        - "bm25": BM25 score of the document.
        - "overlap": Fraction of the query's words that are in the document, fraction of the document's words that are
          in the query, and Jaccard similarity of character trigrams.
        - "edit": 1 minus the edit distance divided by the greater length, for the first 256 characters of each text.
        - "lengths": Numbers of words in the query and in the document.
        - "terms": Product of each term's weights in query and document, as sparse columns. The model must support
          sparse matrices.
        - A function of two lists of the same length, queries and documents, that returns an array or sparse matrix with
          one row per pair.
    compare : bool, default True
        Whether to add, as features, the difference between each value and the largest value among the query's other
        documents. Ranks, lengths and sparse features are not compared.
    vectorizer : BM25Vectorizer, optional
        Fitted vectorizer for "bm25" and "terms". By default, :meth:`fit` fits a vectorizer with ``norm=None`` to the
        retrieved documents.
    distance : EditDistance, optional
        Edit distance for "edit". By default, all edits have the same cost. Characters outside its alphabet are ignored.
    validate : bool, default True
        Whether to check by cross-validation, with three additional fits, that reranking increases the rewards of first
        results by more than one standard error. If it does not, results keep the order of the search.
    random_state : int, numpy.random.RandomState or None
        Random seed of the default model.

    Attributes
    ----------
    improves_ : bool
        Whether results are reranked.
    improvement_ : tuple of float
        Gain in the mean reward of first results and its standard error, or None with ``validate=False``.
    model_ : regressor or ranker
        The fitted model.
    feature_names_ : list of str
        Column names of the features.
    n_queries_ : int
        Number of queries in the log.
    n_pairs_ : int
        Number of rewards in the log.

    Notes
    -----
    :meth:`fit` and :meth:`partial_fit` store the features and rewards of all pairs, with 4 bytes per number, and fit
    the model to all pairs.

    Examples
    --------
    >>> import numpy as np
    >>> from cmt_numba.reranking import Reranker
    >>> documents = ["a red fox", "red wine", "a blue whale", "blue cheese"]
    >>> hits = np.array([[0, 1], [2, 3]] * 20), np.full((40, 2), 0.5)
    >>> rewards = [[0.0, 1.0], [0.0, 1.0]] * 20  # short documents are preferred
    >>> reranker = Reranker(features=["lengths"], random_state=0).fit(["red", "blue"] * 20, documents, hits, rewards)
    >>> reranker.rerank(["red"], documents, ([[0, 1]], [[0.9, 0.8]])).ids.tolist()
    [[1, 0]]
    """

    _log: models.RewardLog = field(init=False)
    _tools: pairing.Tools = field(init=False)

    model: Any = None
    _: KW_ONLY
    features: Sequence[str | Callable[[list[Any], list[Any]], Any]] = DEFAULT_FEATURES
    compare: bool = True
    vectorizer: BM25Vectorizer | None = None
    distance: EditDistance | None = None
    validate: bool = True
    random_state: Any = None

    # Learning

    def fit(self, queries: Iterable[Any], documents: Any, hits: Any, rewards: Any, *, weights: Any = None) -> Self:
        """Fit the model to a log. Earlier logs are discarded.

        Parameters
        ----------
        queries : iterable of str, length n
            The queries. They may be any objects if no feature needs texts.
        documents : sequence, mapping or callable
            Documents by id: a sequence for ids 0, 1, 2, ..., a mapping, or a function that returns the documents for an
            array of ids, such as :meth:`CMTRetriever.values`.
        hits : Hits or pair of array-like, shape (n, k)
            Results of each query: the return value of a tree's or retriever's ``query``, or a pair of ids, padded with
            -1, and scores.
        rewards : array-like, shape (n, k)
            The reward of each result in [0, 1], or NaN if it is unknown.
        weights : array-like, shape (n,), optional
            The weight of each query.
        """
        return self._learn(None, queries, documents, hits, rewards, weights)

    def partial_fit(
        self, queries: Iterable[Any], documents: Any, hits: Any, rewards: Any, *, weights: Any = None
    ) -> Self:
        """Append to the log, and fit the model to the whole log.

        The arguments are those of :meth:`fit`. Queries without weights have weight 1.
        """
        return self._learn(getattr(self, "_log", None), queries, documents, hits, rewards, weights)

    def _learn(
        self, before: models.RewardLog | None, queries: Any, documents: Any, hits: Any, rewards: Any, weights: Any
    ) -> Self:
        self._check_parameters()
        pairs = self._pairs(queries, documents, hits)
        if pairs.rank.size == 0:
            raise ValueError("hits must contain at least one document")
        known = models.check_known_rewards(rewards, np.asarray(pairing.ids_and_scores(hits)[0]))
        weights = models.check_weights(weights, len(pairs.queries))
        if before is not None:
            tools = self._tools
        else:
            tools = pairing.new_tools(self.features, self.vectorizer, self.distance, pairs.documents)
        X, names = pairing.pair_features(pairs, self.features, tools, compare=self.compare)
        if before is not None and names != self.feature_names_:
            raise ValueError("features must be the same as in the log: call fit to start a new log")
        log = models.RewardLog.of(X, pairs.of_query, known[pairs.of_query, pairs.rank], weights)
        if log.sizes.size == 0:
            raise ValueError("rewards must contain at least one reward for a document in hits")
        log = log if before is None else before.followed_by(log)
        model, gain = self._new_model(), None
        if self.validate:
            gain = models.improvement(model, log) if log.sizes.size >= _MIN_QUERIES else (0.0, 0.0)
        return self._with(models.fitted_model(model, log), log, tools, names, gain)

    def _with(
        self, model: Any, log: models.RewardLog, tools: Any, names: list[str], gain: tuple[float, float] | None
    ) -> Self:
        learned: dict[str, Any] = {"model_": model, "feature_names_": names, "_log": log, "_tools": tools}
        learned |= {"n_queries_": int(log.sizes.size), "n_pairs_": int(log.rewards.size)}
        learned |= {"improvement_": gain, "improves_": gain is None or gain[0] > gain[1]}
        self.__dict__.update(learned)
        return self

    def _new_model(self) -> Any:
        if self.model is not None:
            return self.model
        return HistGradientBoostingRegressor(max_leaf_nodes=15, early_stopping=False, random_state=self.random_state)

    def _check_parameters(self) -> None:
        for name in ("compare", "validate"):
            Flag().check(name, getattr(self, name))
        if self.model is not None:
            models.check_model(self.model)
        features = self.features
        if isinstance(features, str) or not isinstance(features, Sequence) or len(features) == 0:
            raise TypeError(f"features must be a list of feature names and functions, got {features!r:.80}")
        for feature in features:
            if not callable(feature) and (not isinstance(feature, str) or feature not in pairing.FEATURES):
                names = ", ".join(pairing.FEATURES)
                raise ValueError(f"each feature must be a function or one of {names}, got {feature!r:.80}")
        if self.distance is not None and not isinstance(self.distance, EditDistance):
            raise TypeError(f"distance must be an EditDistance or None, got {type(self.distance).__name__}")
        if self.vectorizer is not None:
            if not isinstance(self.vectorizer, BM25Vectorizer):
                raise TypeError(f"vectorizer must be a BM25Vectorizer or None, got {type(self.vectorizer).__name__}")
            try:
                check_is_fitted(self.vectorizer, "document_frequency_")
            except NotFittedError as error:
                raise ValueError("vectorizer must be fitted: call its fit method first, or pass None") from error

    def _pairs(self, queries: Any, documents: Any, hits: Any) -> pairing.DocumentPairs:
        if isinstance(queries, str | bytes) or not isinstance(queries, Iterable):
            kind = type(queries).__name__
            raise TypeError(f"queries must be an iterable, got {kind}; pass [query] for a single query")
        pairs = pairing.pairs_of(list(queries), documents, hits)
        needy = [name for name in self.features if isinstance(name, str) and pairing.FEATURES[name].needs_texts]
        for what, texts in (("queries", pairs.queries), ("documents", pairs.documents)):
            strange = next((text for text in texts if not isinstance(text, str)), None) if needy else None
            if strange is not None:
                kind = type(strange).__name__
                raise TypeError(f"{what} must be texts for the feature {needy[0]!r}, got {kind}: choose other features")
        return pairs

    # Ranking

    def rerank(self, queries: Iterable[Any], documents: Any, hits: Any, k: int | None = None) -> Hits:
        """Return results in descending order of predicted rewards.

        Parameters
        ----------
        queries : iterable of str, length n
            The queries.
        documents : sequence, mapping or callable
            Documents by id, as in :meth:`fit`.
        hits : Hits or pair of array-like, shape (n, n_found)
            Results of each query, as in :meth:`fit`.
        k : int, optional
            Number of results per query. By default, all results.

        Returns
        -------
        Hits
            Ids, padded with -1, and predicted rewards, both of shape (n, k). Ties keep the order of the search. If
            ``improves_`` is False, results have the order and the scores of the search. Explorations are copied from
            ``hits``.
        """
        pairs = self._checked_pairs(queries, documents, hits)
        ids = np.asarray(pairing.ids_and_scores(hits)[0], np.int64)
        expected = np.full(ids.shape, -np.inf, np.float32)
        if not self.improves_:
            expected[pairs.of_query, pairs.rank] = pairs.scores
        elif pairs.rank.size > 0:
            expected[pairs.of_query, pairs.rank] = self.model_.predict(self._features(pairs))
        k = ids.shape[1] if k is None else min(check_wanted("k", k, ids.shape[1]), ids.shape[1])
        by = expected if self.improves_ else np.where(ids == NONE, -1, 0)  # keeps the order of the search
        order = np.argsort(-by, axis=1, kind="stable")[:, :k]
        best = hits if isinstance(hits, Hits) else no_hits(ids.shape[0], k)
        return best._replace(ids=np.take_along_axis(ids, order, 1), scores=np.take_along_axis(expected, order, 1))

    def transform(self, queries: Iterable[Any], documents: Any, hits: Any) -> Any:
        """Return the features of all pairs, sorted by query and rank: float32, shape (n_pairs, n_features).

        The arguments are those of :meth:`rerank`. The result is an array or a ``scipy.sparse.csr_matrix``. Column names
        are in ``feature_names_``.
        """
        return self._features(self._checked_pairs(queries, documents, hits))

    def _checked_pairs(self, queries: Any, documents: Any, hits: Any) -> pairing.DocumentPairs:
        check_is_fitted(self, "model_")
        self._check_parameters()
        return self._pairs(queries, documents, hits)

    def _features(self, pairs: pairing.DocumentPairs) -> Any:
        if pairs.rank.size == 0:
            return np.zeros((0, len(self.feature_names_)), np.float32)
        X, names = pairing.pair_features(pairs, self.features, self._tools, compare=self.compare)
        if names != self.feature_names_:
            raise ValueError("features must be the same as in fit: call fit again")
        return X

    def __sklearn_clone__(self) -> Self:
        """Return an unfitted clone that shares the vectorizer and the distance."""
        parameters = self.get_params(deep=False)
        return type(self)(**parameters | {"model": None if self.model is None else clone(self.model)})

    # Files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the log, the vectorizer and, for XGBoost, the fitted model to a file, which is replaced atomically.

        Other models, functions, seeds and edit distances are not saved. Pass them to :meth:`load`, which fits the model
        to the log again.
        """
        check_is_fitted(self, "model_")
        files.write_object(path, self._contents, _parts_of)

    def _contents(self) -> files.Contents:
        names = [feature if isinstance(feature, str) else None for feature in self.features]
        parts = {"features": names, "vectorizer": self._tools.vectorizer, "booster": models.booster_of(self.model_)}
        arrays: dict[str, np.ndarray] = {}
        fields = _FIELDS.put("", SimpleNamespace(**vars(self) | parts), arrays)
        return files.Contents(type(self).__name__, fields, arrays)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        model: Any = None,
        *,
        functions: Sequence[Callable[[list[Any], list[Any]], Any]] = (),
        distance: EditDistance | None = None,
        random_state: Any = None,
    ) -> Self:
        """Load a reranker from a file.

        Parameters
        ----------
        path : path-like
            A file written by :meth:`save`.
        model : regressor or ranker, optional
            The model. Fitted XGBoost models are restored from the file, and other models are fitted to the log.
        functions : sequence of callable
            All functions among the features, in their order.
        distance, random_state
            As in the constructor.
        """
        contents = files.read_object(path, (cls.__name__,), mmap=False)
        with files.refusing(path):
            found = _parts_of(contents)
        features = found["features"]
        if features.count(None) != len(functions):
            n = features.count(None)
            raise ValueError(f"functions must be the {n} functions of the saved features, in the same order")
        waiting = iter(functions)
        given = [next(waiting) if feature is None else feature for feature in features]
        options = {"vectorizer": found["vectorizer"], "distance": distance, "random_state": random_state}
        validate = found["improvement_"] is not None
        made = cls(model, features=given, compare=found["compare"], validate=validate, **options)
        made._check_parameters()
        with files.refusing(path):
            fitted = models.read_model(made._new_model(), found["_log"], found["booster"])
        tools = pairing.new_tools(given, found["vectorizer"], distance, [])
        return made._with(fitted, found["_log"], tools, found["feature_names_"], found["improvement_"])


def _parts_of(contents: files.Contents) -> dict[str, Any]:
    found = _FIELDS.get("", contents.fields, contents.arrays, thorough=True)
    parts = ("features", "feature_names_", "vectorizer", "improvement_")
    features, names, vectorizer, gain = (found[name] for name in parts)
    sound = type(features) is list and len(features) > 0
    require(sound and all(feature is None or feature in pairing.FEATURES for feature in features), _UNKNOWN)
    require(found["_log"].X.shape[1] == len(names), "X must have one column for each feature")
    require(gain is None or gain.shape == (2,), "the improvement must be two numbers")
    needs_vectorizer = any(name in features for name in pairing.NEEDS_VECTORIZER)
    require(vectorizer is not None or not needs_vectorizer, "the features need a vectorizer")
    if None not in features:
        expected = pairing.names_of(features, vectorizer, compare=found["compare"])
        require(names == expected, "columns must match the features")
    return found | {"improvement_": None if gain is None else (float(gain[0]), float(gain[1]))}
