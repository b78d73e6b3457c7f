"""Descriptions of models for the terminal."""

from typing import Any

from rich.console import Console

from .. import report
from ..estimators import trees_of
from ..evaluation import profile
from ._model_files import Model
from ._tables import show_pairs, show_table


def show_model(console: Console, name: str, model: Model) -> None:
    """Print a description of a model, its non-default parameters and, for large trees, their shape."""
    described = describe_model(model)
    show_pairs(console, f"{name}: model", described["model"].items())
    usual = type(model.estimator)().get_params()
    changed = {name: value for name, value in described["parameters"].items() if value != usual.get(name)}
    if changed:
        show_pairs(console, "Non-default parameters", changed.items())
    shape = report.shown_profile(None if trees_of(model.estimator) is None else profile(model.estimator))
    if shape is not None:
        show_table(console, report.profile_table(shape))


def describe_model(model: Model) -> dict[str, dict[str, Any]]:
    """Return a description of a model, its parameters, and the shape of its trees."""
    estimator = model.estimator
    return {
        "model": {
            "estimator": type(estimator).__name__,
            "version": model.version,
            "task": model.options.task,
            "data format": model.options.format,
            **({} if model.vectorizer is None else {"keys": type(model.vectorizer).__name__}),
            **({"features": int(estimator.n_features_in_)} if hasattr(estimator, "n_features_in_") else {}),
            "classes": int(estimator.classes_.size),
        },
        "parameters": estimator.get_params(),
        "trees": {} if trees_of(estimator) is None else profile(estimator).as_dict(),
    }
