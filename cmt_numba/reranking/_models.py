"""Training, validation and storage of reward models."""

from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.utils.validation import has_fit_parameter

from .._forest import require
from ._log import RewardLog

_FOLDS = 3


def default_model(random_state: Any) -> Any:
    """Return an unfitted gradient boosting regressor."""
    return HistGradientBoostingRegressor(max_leaf_nodes=15, early_stopping=False, random_state=random_state)


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


def improvement(model: Any, log: RewardLog, seed: int = 0) -> tuple[float, float]:
    """Return the mean gain of reranking in the reward of first results, by cross-validation, and its error."""
    of_query = np.repeat(np.arange(log.sizes.size), log.sizes)
    firsts = np.cumsum(log.sizes) - log.sizes
    fold_of = np.random.default_rng(seed).permutation(log.sizes.size) % _FOLDS
    expected = np.zeros(of_query.size)
    for fold in range(min(_FOLDS, log.sizes.size)):
        held = np.flatnonzero(fold_of[of_query] == fold)
        expected[held] = fitted_model(model, log.of_queries(fold_of != fold)).predict(log.X[held])
    best = np.lexsort((np.arange(of_query.size), -expected, of_query))[firsts]
    gains = log.rewards[best].astype(np.float64) - log.rewards[firsts]
    if log.weights is not None:
        gains = gains * (log.weights / log.weights.mean())
    return float(gains.mean()), float(gains.std() / np.sqrt(gains.size))


def model_arrays(model: Any) -> dict[str, np.ndarray]:
    """Return the JSON of a fitted XGBoost model as an array to save. Other models are not saved."""
    if not hasattr(model, "get_booster"):
        return {}
    return {"booster": np.frombuffer(bytes(model.get_booster().save_raw("json")), np.uint8)}


def read_model(model: Any, log: RewardLog, arrays: dict[str, np.ndarray]) -> Any:
    """Return a saved XGBoost model, or fit any other model to the log again."""
    if "booster" not in arrays or not hasattr(model, "load_model"):
        return fitted_model(model, log)
    require(arrays["booster"].dtype == np.uint8 and arrays["booster"].ndim == 1, "the booster must be bytes")
    model = clone(model)
    try:
        model.load_model(bytearray(arrays["booster"].tobytes()))
    except Exception as error:  # XGBoost raises its own exceptions
        raise ValueError(f"XGBoost cannot read the booster: {error}") from error
    return model
