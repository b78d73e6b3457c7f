"""Models, which are an estimator and the options for reading its data, and their files.

A model file is an estimator's file with additional arrays, so the estimator's ``load`` can also read it.
"""

from dataclasses import asdict, fields
from pathlib import Path
from types import UnionType
from typing import Any, NamedTuple, get_args, get_origin

import numpy as np

from .. import persistence as files
from .._kernels import require
from .._version import __version__
from .._words import words_of
from ..estimators import CMTClassifier, CMTMultilabelClassifier
from ..formats import Batch, ReadOptions
from ..text import TextClassifier
from ._features import TableFeatures, TableFeaturesField, has_texts, texts_of

_OPTIONS, _FEATURES, _WORDS = "read_options", "keys", "read_words"


class Model(NamedTuple):
    """The contents of a model file."""

    estimator: Any  # fitted :class:`CMTClassifier`, :class:`CMTMultilabelClassifier` or :class:`TextClassifier`
    options: ReadOptions  # options for reading data for the estimator
    features: TableFeatures | None = None  # conversion of table rows, or None if the rows are features already
    words: frozenset[str] = frozenset()  # the words of the training texts
    version: str = __version__  # library version that wrote the file

    def label_names(self) -> np.ndarray:
        """Return the classes or labels of the estimator, by name if they have names."""
        classes: np.ndarray = self.estimator.classes_
        return np.array(self.options.label_names)[classes] if self.options.label_names else classes

    def rows(self, X: Any) -> Any:
        """Convert rows of a file to features, or to texts for a text classifier."""
        return X if self.features is None else self.features.transform(X)

    def train_further(self, rows: Batch, options: ReadOptions) -> "Model":
        """Train the estimator further, and return the model with the words and names of the new rows."""
        self.estimator.partial_fit(self.rows(rows.X), rows.y)
        return self._replace(options=options, words=self.words | distinct_words(rows.X, options))


def distinct_words(X: Any, options: ReadOptions) -> frozenset[str]:
    """Return the words of the texts of rows."""
    return frozenset(word for text in texts_of(X, options) or () for word in words_of(text))


def save_model(path: Path, model: Model) -> None:
    """Save a model to a file. An existing file is replaced atomically."""

    def contents() -> files.Contents:
        gathered: files.Contents = model.estimator._contents()
        gathered.arrays[_OPTIONS] = files.document(asdict(model.options))
        gathered.arrays[_WORDS] = files.document(sorted(model.words))
        if model.features is not None:
            gathered.fields[_FEATURES] = TableFeaturesField().put(_FEATURES, model.features, gathered.arrays)
        return gathered

    files.write_object(path, contents, lambda read: _model_of(type(model.estimator), read))


def load_model(path: Path) -> Model:
    """Load a model from a file."""
    kinds = {kind.__name__: kind for kind in (CMTClassifier, CMTMultilabelClassifier, TextClassifier)}
    contents = files.read_object(path, tuple(kinds), mmap=False)
    if _OPTIONS not in contents.arrays:
        raise files.FileFormatError(path, "contains no options for reading data; use a model saved by cmt-numba fit")
    with files.refusing(path):
        return _model_of(kinds[contents.kind], contents)


def _model_of(kind: Any, contents: files.Contents) -> Model:
    options = _options_of(files.read_document(contents.arrays, _OPTIONS))
    words = files.TextsField().get(_WORDS, None, contents.arrays, thorough=True)
    model = Model(kind._made_of(contents), options, words=frozenset(words), version=contents.library)
    require((kind is TextClassifier) == has_texts(options), "a text classifier must read texts")
    if options.label_names:
        require(model.estimator.classes_.max(initial=0) < len(options.label_names), "every label must have a name")
    if not options.kinds:
        return model
    features = TableFeaturesField().get(_FEATURES, contents.fields.get(_FEATURES), contents.arrays, thorough=True)
    n_features = features.get_feature_names_out().size
    require(n_features == model.estimator.n_features_in_, "the columns must match the estimator's features")
    return model._replace(features=features)


def _options_of(given: Any) -> ReadOptions:
    """Return options that were read as JSON. Raise ValueError if they are invalid."""
    require(type(given) is dict, f"{_OPTIONS} must be a mapping")
    types = {field.name: _json_types(field.type) for field in fields(ReadOptions)}
    for name, value in given.items():
        sound = name in types and type(value) in types[name]
        sound = sound and not (type(value) is list and any(type(entry) is not str for entry in value))
        require(sound, f"{_OPTIONS} has an invalid {name!r:.50}: {value!r:.50}")
    known: dict[str, Any] = {name: tuple(value) if type(value) is list else value for name, value in given.items()}
    return ReadOptions(**known)


def _json_types(annotation: Any) -> tuple[Any, ...]:
    """Return the JSON types of the values that an annotation of :class:`ReadOptions` allows."""
    kinds = get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
    return tuple(list if get_origin(kind) is tuple else kind for kind in kinds)


def describe_model(model: Model) -> dict[str, dict[str, Any]]:
    """Return a description of a model and its parameters."""
    estimator = model.estimator
    described = {
        "estimator": type(estimator).__name__,
        "version": model.version,
        "task": model.options.task,
        "data format": model.options.format,
        "features": getattr(estimator, "n_features_in_", None),
        "classes": int(estimator.classes_.size),
    }
    known = {name: value for name, value in described.items() if value is not None}
    return {"model": known, "parameters": estimator.get_params()}
