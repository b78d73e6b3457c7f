"""Models, which are an estimator and the options for reading its data: their training and their files.

A model file is an estimator's file with additional arrays, so the estimator's ``load`` can also read it.
"""

from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from types import UnionType
from typing import Any, NamedTuple, get_args, get_origin

import numpy as np
from rich.console import Console
from sklearn.model_selection import train_test_split

from .. import persistence as files
from .. import report
from .._forest import require
from .._version import __version__
from ..estimators import trees_of
from ..evaluation import held_out_metrics, profile
from ..formats import Batch, ReadOptions
from ..text import BM25Vectorizer, SubwordVectors, TextClassifier, VectorizerField
from ._columns import ColumnsField, keys_of_rows, n_columns, new_vectorizer
from ._options import TextKeys, TrainingOptions
from ._tables import show_pairs, show_table

_OPTIONS, _KEYS = "read_options", "keys"
_FEWEST_HELD_OUT = 10
_SHOWN = {
    "error": "error on held-out rows",
    "constant_accuracy": "error of always predicting the most frequent class",
    "precision@1": "precision of the best label on held-out rows",
    "f1_samples": "mean F1 of held-out rows",
}


class Model(NamedTuple):
    """The contents of a model file."""

    estimator: Any  # fitted :class:`CMTClassifier`, :class:`CMTMultilabelClassifier` or :class:`TextClassifier`
    options: ReadOptions  # options for reading data for the estimator
    version: str = __version__  # library version that wrote the file
    # transformer of texts, or of columns with kinds, to keys. None if the rows are keys already.
    vectorizer: Any = None

    def label_names(self) -> np.ndarray:
        """Return the classes or labels of the estimator, by name if they have names."""
        classes: np.ndarray = self.estimator.classes_
        return np.array(self.options.label_names)[classes] if self.options.label_names else classes

    def rows(self, X: Any) -> Any:
        """Convert rows of a file to keys."""
        return X if self.vectorizer is None else self.vectorizer.transform(X)


def learn(
    training: TrainingOptions, options: ReadOptions, keys: TextKeys | None, rows: Batch, *, progress: bool = False
) -> Model:
    """Train an estimator and, if needed, a vectorizer on rows, and return both as a model."""
    if options.as_text and keys is None:
        return Model(training.text_classifier().fit(rows.X, rows.y), options)
    estimator = training.estimator(options, streaming=False)
    if keys is not None:
        vectorizer = new_vectorizer(keys, jobs=training.jobs, seed=training.seed)
        X = vectorizer.fit_transform(rows.X, rows.y)
    else:
        X, vectorizer = keys_of_rows(rows.X, options)
    verbose = estimator.verbose  # restored below: the saved model must not depend on the terminal
    estimator.set_params(verbose=verbose or progress).fit(X, rows.y).set_params(verbose=verbose)
    return Model(estimator, options, vectorizer=vectorizer)


def held_out_pairs(learn_rows: Callable[[Batch], Model], rows: Batch, share: float, seed: int) -> list[tuple[str, Any]]:
    """Train a model on some rows; return its metrics on the rest by name, or an empty list for too few rows."""
    n = rows.X.shape[0]
    if round(share * n) < _FEWEST_HELD_OUT:
        return []
    X, X_held, y, y_held = train_test_split(rows.X, rows.y, test_size=share, random_state=seed)
    model = learn_rows(Batch(X, y))
    X_held = model.rows(X_held)
    found = held_out_metrics(
        model.options.task or "multiclass", model.estimator, X_held, y_held, model.estimator.predict(X_held), y
    )
    if "constant_accuracy" in found:
        found["constant_accuracy"] = 1.0 - found["constant_accuracy"]  # as an error, like the model's result
    names = [name for name in _SHOWN if name in found]
    return [("held-out rows", y_held.shape[0]), *((_SHOWN[name], f"{found[name]:.4f}") for name in names)]


def save_model(path: Path, model: Model) -> None:
    """Save a model to a file. An existing file is replaced atomically."""

    def contents() -> files.Contents:
        gathered: files.Contents = model.estimator._contents()
        gathered.arrays[_OPTIONS] = files.document(asdict(model.options))
        if model.vectorizer is not None:
            gathered.fields[_KEYS] = _field_of(model.options).put(_KEYS, model.vectorizer, gathered.arrays)
        return gathered

    files.write_object(path, contents, lambda read: _model_of(type(model.estimator), read))


def load_model(path: Path) -> Model:
    """Load a model from a file."""
    from ..estimators import CMTClassifier, CMTMultilabelClassifier

    kinds = {kind.__name__: kind for kind in (CMTClassifier, CMTMultilabelClassifier, TextClassifier)}
    contents = files.read_object(path, tuple(kinds), mmap=False)
    if _OPTIONS not in contents.arrays:
        raise files.FileFormatError(path, "contains no options for reading data; use a model saved by cmt-numba fit")
    with files.refusing(path):
        return _model_of(kinds[contents.kind], contents)


def _model_of(kind: Any, contents: files.Contents) -> Model:
    options = _options_of(files.read_document(contents.arrays, _OPTIONS))
    estimator = kind._made_of(contents)
    if kind is TextClassifier:
        require(options.as_text, "a text classifier must read texts")
        return Model(estimator, options, contents.library)
    if options.label_names:
        require(estimator.classes_.max(initial=0) < len(options.label_names), "every label must have a name")
    vectorizer = None
    if options.as_text or options.kinds:
        vectorizer = _field_of(options).get(_KEYS, contents.fields.get(_KEYS), contents.arrays, thorough=True)
    if options.kinds:
        require(n_columns(vectorizer) == estimator.n_features_in_, "the columns must match the estimator's features")
    return Model(estimator, options, contents.library, vectorizer)


def _field_of(options: ReadOptions) -> files.Field:
    return ColumnsField() if options.kinds else VectorizerField(BM25Vectorizer, SubwordVectors)


def _json_types(annotation: Any) -> tuple[Any, ...]:
    """Return the JSON types of the values that an annotation of :class:`ReadOptions` allows."""
    kinds = get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
    return tuple(list if get_origin(kind) is tuple else kind for kind in kinds)


def _options_of(given: Any) -> ReadOptions:
    if type(given) is not dict:
        raise ValueError(f"{_OPTIONS} must be a mapping")
    types = {field.name: _json_types(field.type) for field in fields(ReadOptions)}
    for name, value in given.items():
        if name not in types or type(value) not in types[name]:
            raise ValueError(f"{_OPTIONS} has an invalid {name!r:.50}: {value!r:.50}")
        if type(value) is list and any(type(entry) is not str for entry in value):
            raise ValueError(f"{name} of {_OPTIONS} must be text")
    known: dict[str, Any] = {name: tuple(value) if type(value) is list else value for name, value in given.items()}
    return ReadOptions(**known)


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
