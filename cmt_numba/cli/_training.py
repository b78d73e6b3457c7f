"""Training and evaluation of a classifier on data files."""

import ast
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import scipy.sparse
from sklearn.model_selection import train_test_split

from .. import CMTClassifier, CMTMultilabelClassifier, evaluation
from ..formats import Batch, ReadOptions, Source, open_data
from ..text import TextClassifier
from ._data import open_source, read_all, read_batches, scan, show_kinds
from ._features import has_texts, texts_of, to_features
from ._models import Model, distinct_words, save_model
from ._options import Options

_FEWEST_HELD_OUT = 10
_SHOWN = {
    "error": "error on held-out rows",
    "constant_accuracy": "error of always predicting the most frequent class",
    "precision@1": "precision of the best label on held-out rows",
    "f1_samples": "mean F1 of held-out rows",
}


def fit(given: Options) -> list[tuple[str, Any]]:
    """Train a model on all rows, save it, and return its properties by name."""
    source = _open(given)
    options = source.resolved()
    new_estimator(given, options)  # checks the options
    rows = read_all(source, given.progress)
    quality = _held_out_pairs(given, options, rows)
    model = _learn(given, options, rows, verbose=_shows_progress(given))
    save_model(given.model, model)
    return [("classes", int(model.estimator.classes_.size)), *quality]


def fit_in_batches(given: Options) -> list[tuple[str, Any]]:
    """Train a model in one pass over the file, save it, and return its properties by name."""
    source = open_source(given, in_batches=True)
    options = scan(source, given.progress)
    estimator = new_estimator(given, options, store_examples=False)
    for batch in read_batches(source, given.batch_size, "learning", given.progress):
        estimator.partial_fit(batch.X, batch.y)
    save_model(given.model, Model(estimator, options))
    return [("classes", int(estimator.classes_.size))]


def evaluate_progressively(given: Options) -> evaluation.ProgressiveResult:
    """Predict each row before learning it, in one pass over the file."""
    source = open_source(given, in_batches=True)
    estimator = new_estimator(given, scan(source, given.progress), store_examples=False)
    measures: dict[str, str] = {}

    def pairs() -> Iterator[tuple[Any, Any]]:
        sizes = partial(evaluation.next_batch_size, max_rows=given.batch_size)
        for batch in read_batches(source, sizes, "predicting and learning", given.progress, measures):
            yield batch.X, batch.y

    def show(metrics: dict[str, float]) -> None:
        name = next(name for name in metrics if name != "n_examples")
        measures[name] = f"{metrics[name]:.4f}"

    return evaluation.progressive_validation(estimator, pairs(), callback=show)


def evaluate_in_batches(given: Options) -> evaluation.BatchResult:
    """Train on a file and test on another one or, by default, on a random part of the rows, for each seed."""
    source = _open(given)
    options = source.resolved()
    estimator = new_estimator(given, options)
    if given.test is None:
        train, test = read_all(source, given.progress), None
    else:
        train, test = _read_both(given, source)
    X, features = to_features(train.X, options)
    examples = [X, train.y]
    if test is not None:
        examples += [test.X if features is None else features.transform(test.X), test.y]
    texts = texts_of(train.X, options)
    applicable = [name for name in evaluation.RIVALS if name != "bm25" or texts is not None]
    evaluated = evaluation.batch_evaluation if given.ray is None else partial(_on_ray, given.ray)
    return evaluated(
        estimator,
        *examples,
        holdout=given.holdout,
        seeds=range(given.seed, given.seed + given.seeds),
        rivals=[name for name in applicable if name not in given.without],
        texts=texts,
        texts_test=None if test is None else texts_of(test.X, options),
        details=True,
        progress=_shows_progress(given),
    )


def _open(given: Options) -> Source:
    """Open a data file, resolve its options, and print the kinds of its columns.

    Texts with several labels become hashed words, because a TextClassifier learns one class per text.
    """
    source = open_source(given, in_batches=False)
    options = scan(source, given.progress)
    if has_texts(options) and options.task == "multilabel":
        return open_data(given.data, replace(options, n_bits=given.bits))
    if options.kinds:
        show_kinds(options)
    return source


def _read_both(given: Options, source: Source) -> tuple[Batch, Batch]:
    """Read the training file and the test file. Sparse rows of both get the larger number of features."""
    labels_file = None if given.test_labels is None else str(given.test_labels)
    alike = replace(source.resolved(), format=given.format, n_features=given.features, labels_file=labels_file)
    train = read_all(source, given.progress)
    test = read_all(open_data(given.test, alike), given.progress)
    if scipy.sparse.issparse(train.X) and scipy.sparse.issparse(test.X):
        n_features = max(train.X.shape[1], test.X.shape[1])
        for X in (train.X, test.X):
            X.resize(X.shape[0], n_features)
    return train, test


def new_estimator(given: Options, options: ReadOptions, *, store_examples: bool = True) -> Any:
    """Return an unfitted estimator for data that is read with ``options``.

    Tables with numbers or categories get the logistic loss: their classes overlap more than classes of texts.
    """
    if has_texts(options):
        for name in ("passes", "set"):
            if getattr(given, name):
                raise ValueError(f"--{name} cannot be combined with --text; omit it")
        return TextClassifier(random_state=given.seed)
    estimator: Any = CMTMultilabelClassifier()
    if options.task != "multilabel":
        mixed = any(not column.endswith("=text") for column in options.kinds or ())
        estimator = CMTClassifier(loss="logistic") if mixed else CMTClassifier()
    estimator.set_params(store_examples=store_examples, n_jobs=given.jobs, random_state=given.seed)
    if given.passes is not None:
        estimator.set_params(n_head_passes=given.passes)
    known = estimator.get_params()
    for setting in given.set:
        name, equals, text = setting.partition("=")
        if name not in known or not equals:
            raise ValueError(f"--set must be NAME=VALUE, got {setting!r}, NAME one of {', '.join(sorted(known))}")
        estimator.set_params(**{name: _value(text)})
    return estimator


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def _learn(given: Options, options: ReadOptions, rows: Batch, *, verbose: bool = False) -> Model:
    """Train an estimator and, if needed, a conversion to features, on rows that are read with ``options``."""
    estimator = new_estimator(given, options)
    X, features = to_features(rows.X, options)
    if hasattr(estimator, "verbose"):
        estimator.set_params(verbose=verbose)
    estimator.fit(X, rows.y)
    if hasattr(estimator, "verbose"):
        estimator.set_params(verbose=False)  # the saved model must not depend on the terminal
    return Model(estimator, options, features, distinct_words(rows.X, options))


def _held_out_pairs(given: Options, options: ReadOptions, rows: Batch) -> list[tuple[str, Any]]:
    """Train a model on some rows; return its metrics on the rest by name, or an empty list for too few rows."""
    size = 0.1 if given.holdout is None else given.holdout
    if round(size * rows.X.shape[0]) < _FEWEST_HELD_OUT:
        return []
    X, X_held, y, y_held = train_test_split(rows.X, rows.y, test_size=size, random_state=given.seed)
    model = _learn(given, options, Batch(X, y))
    X_held = model.rows(X_held)
    task = options.task or "multiclass"
    found = evaluation.held_out_metrics(task, model.estimator, X_held, y_held, model.estimator.predict(X_held), y)
    if "constant_accuracy" in found:
        found["constant_accuracy"] = 1.0 - found["constant_accuracy"]  # as an error, like the model's result
    names = [name for name in _SHOWN if name in found]
    return [("held-out rows", y_held.shape[0]), *((_SHOWN[name], f"{found[name]:.4f}") for name in names)]


def _on_ray(address: str, estimator: Any, *examples: Any, **options: Any) -> evaluation.BatchResult:
    from ..distributed import evaluate

    return evaluate({"": estimator}, *examples, address=address, **options)[""]


def _shows_progress(given: Options) -> bool:
    return sys.stderr.isatty() if given.progress is None else given.progress
