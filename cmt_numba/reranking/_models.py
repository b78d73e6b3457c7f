"""The log of a reranker, models that learn from it, and the estimated improvement."""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from sklearn.base import clone, is_classifier
from sklearn.utils.validation import has_fit_parameter

from .._kernels import require
from .._validation import check_rewards, unmasked
from ..persistence import ArrayField, MatrixField, OptionalField, TupleField

LARGEST_WEIGHT = 1e30  # maximum weight of a query. Sums of such weights are finite.
_FOLDS = 3


class RewardLog(NamedTuple):
    """Features and known rewards of query-document pairs, grouped by query."""

    X: Any  # float32 (n_pairs, n_features), an array or a CSR matrix
    rewards: np.ndarray  # float32 (n_pairs,)
    sizes: np.ndarray  # int64 (n_queries,), number of pairs of each query
    weights: np.ndarray | None  # float64 (n_queries,), or None for equal weights

    @classmethod
    def of(cls, X: Any, of_query: np.ndarray, rewards: np.ndarray, weights: np.ndarray | None) -> "RewardLog":
        """Return a log of the pairs whose reward is not NaN."""
        known = np.flatnonzero(~np.isnan(rewards))
        queries, sizes = np.unique(of_query[known], return_counts=True)
        return cls(X[known], rewards[known], sizes, None if weights is None else weights[queries])

    def followed_by(self, more: "RewardLog") -> "RewardLog":
        """Return this log followed by ``more``."""
        both = [self.X, more.X]
        if scipy.sparse.issparse(self.X):
            X: Any = scipy.sparse.csr_matrix(scipy.sparse.vstack(both, "csr"))
        else:
            X = np.concatenate(both)
        weights = None
        if self.weights is not None or more.weights is not None:
            both_weights = [np.ones(log.sizes.size) if log.weights is None else log.weights for log in (self, more)]
            weights = np.concatenate(both_weights)
        rewards = np.concatenate([self.rewards, more.rewards])
        return RewardLog(X, rewards, np.concatenate([self.sizes, more.sizes]), weights)

    def of_queries(self, kept: np.ndarray) -> "RewardLog":
        """Return the log of the queries selected by a boolean mask."""
        pairs = np.flatnonzero(np.repeat(kept, self.sizes))
        weights = None if self.weights is None else self.weights[kept]
        return RewardLog(self.X[pairs], self.rewards[pairs], self.sizes[kept], weights)


def _check_log(name: str, log: RewardLog) -> None:
    X, n_queries = log.X, log.sizes.size
    if scipy.sparse.issparse(X):
        X.has_canonical_format = False
        X.sum_duplicates()  # also sorts indices, as models require
    require(X.shape[0] == log.rewards.size, "X must have one row for each reward")
    require(np.isfinite(X.data if scipy.sparse.issparse(X) else X).all(), "features must be finite")
    fits = n_queries > 0 and int(log.sizes.sum()) == log.rewards.size
    require(fits, "sizes must add up to the number of rewards")
    require(log.weights is None or log.weights.size == n_queries, "weights must be one for each query")


LOG = TupleField(
    RewardLog,
    _check_log,
    X=MatrixField(np.float32),
    rewards=ArrayField(np.float32, bounds=(0.0, 1.0)),
    sizes=ArrayField(np.int64, bounds=(1, 2**53)),
    weights=OptionalField(ArrayField(np.float64, bounds=(0.0, LARGEST_WEIGHT))),
)


def check_known_rewards(rewards: Any, ids: np.ndarray) -> np.ndarray:
    """Convert rewards, one for each id, to float32. Unknown rewards are NaN."""
    given = check_rewards(rewards, ids, may_be_unknown=True)
    if given.shape != ids.shape:
        raise ValueError(f"rewards must have shape {ids.shape} like hits.ids, got {np.shape(rewards)}")
    if np.isnan(given).all():
        raise ValueError("rewards must contain at least one number that is not NaN")
    return given


def check_weights(weights: Any, n_queries: int) -> np.ndarray | None:
    """Convert the weights of queries to float64, or return None if there are no weights."""
    if weights is None:
        return None
    given = np.asarray(unmasked("weights", weights))
    if given.shape != (n_queries,) or given.dtype.kind not in "fiu":
        raise ValueError(f"weights must have one entry for each of the {n_queries} queries, got shape {given.shape}")
    if not np.all((given >= 0) & (given <= LARGEST_WEIGHT)) or not np.any(given > 0):
        raise ValueError(f"weights must be between 0 and {LARGEST_WEIGHT:g}, and at least one must be above 0")
    return given.astype(np.float64)


def check_model(model: Any) -> None:
    """Raise TypeError unless ``model`` is a regressor or a ranker."""
    if isinstance(model, type) or not all(callable(getattr(model, name, None)) for name in ("fit", "predict")):
        raise TypeError(f"model must be a regressor or a ranker, got {model!r:.80}")
    if is_classifier(model):
        raise TypeError(f"model must be a regressor or a ranker, got the classifier {model!r:.80}")


def fitted_model(model: Any, log: RewardLog) -> Any:
    """Fit a clone of a model to a log.

    Rankers receive the query of each pair by the parameter ``qid`` or ``group`` of ``fit``. Rankers with ``qid`` take
    one weight per query, as in XGBoost. Other models take one weight per pair.
    """
    model = clone(model)
    told: dict[str, Any] = {}
    by_query = has_fit_parameter(model, "qid")
    if by_query:
        told["qid"] = np.repeat(np.arange(log.sizes.size), log.sizes)
    elif has_fit_parameter(model, "group"):
        told["group"] = log.sizes
    if log.weights is not None:
        if not has_fit_parameter(model, "sample_weight"):
            raise TypeError(f"{type(model).__name__} takes no sample_weight: omit weights, or pass another model")
        told["sample_weight"] = log.weights if by_query else np.repeat(log.weights, log.sizes)
    return model.fit(log.X, log.rewards, **told)


def improvement(model: Any, log: RewardLog) -> tuple[float, float]:
    """Return the mean gain of reranking in the reward of first results, by cross-validation, and its error."""
    of_query = np.repeat(np.arange(log.sizes.size), log.sizes)
    firsts = np.cumsum(log.sizes) - log.sizes
    fold_of = np.random.default_rng(0).permutation(log.sizes.size) % _FOLDS
    expected = np.zeros(of_query.size)
    for fold in range(min(_FOLDS, log.sizes.size)):
        held = np.flatnonzero(fold_of[of_query] == fold)
        expected[held] = fitted_model(model, log.of_queries(fold_of != fold)).predict(log.X[held])
    best = np.lexsort((np.arange(of_query.size), -expected, of_query))[firsts]
    gains = log.rewards[best].astype(np.float64) - log.rewards[firsts]
    if log.weights is not None:
        gains = gains * (log.weights / log.weights.mean())
    return float(gains.mean()), float(gains.std() / np.sqrt(gains.size))


def booster_of(model: Any) -> np.ndarray | None:
    """Return the JSON of a fitted XGBoost model as bytes, or None for other models, which are not saved."""
    if not hasattr(model, "get_booster"):
        return None
    return np.frombuffer(bytes(model.get_booster().save_raw("json")), np.uint8)


def read_model(model: Any, log: RewardLog, booster: np.ndarray | None) -> Any:
    """Return a saved XGBoost model, or fit any other model to the log again."""
    if booster is None or not hasattr(model, "load_model"):
        return fitted_model(model, log)
    model = clone(model)
    try:
        model.load_model(bytearray(booster.tobytes()))
    except Exception as error:  # XGBoost raises its own exceptions
        raise ValueError(f"XGBoost cannot read the booster: {error}") from error
    return model
