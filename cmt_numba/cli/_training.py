"""Training and evaluation of a classifier on data files."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from .. import evaluation
from ..formats import Batch, ReadOptions, Source, open_data
from ._data import show_kinds
from ._features import texts_of, to_features
from ._models import Model, held_out_pairs, learn, save_model
from ._options import EvaluateOptions, FitOptions, TrainingOptions
from ._output import read_all, read_batches, scan


def _open(data: Path, given: TrainingOptions) -> Source:
    """Open a data file, resolve its options, and print the kinds of its columns. Texts with one class stay texts."""
    source = given.open(data, with_kinds=True)
    known = scan(source, given.progress)
    show_kinds(known)
    has_keys = isinstance(given, FitOptions) and given.keys is not None
    if given.text and (has_keys or known.task == "multiclass"):
        source = open_data(data, replace(known, as_text=True, n_features=None))
    return source


def fit(data: Path, given: FitOptions) -> list[tuple[str, Any]]:
    """Train a model on all rows, save it, and return its properties by name."""
    source = _open(data, given)
    options = source.resolved()
    given.estimator(options, keys=given.keys)  # checks the options
    rows = read_all(source, given.progress)
    learn_rows = partial(learn, given, options)
    share = 0.1 if given.holdout is None else given.holdout
    quality = held_out_pairs(learn_rows, rows, share, given.seed) if share > 0 else []
    made = learn_rows(rows, progress=_shows_progress(given.progress))
    save_model(given.model, made)
    return [("classes", int(made.estimator.classes_.size)), *quality]


def fit_in_batches(data: Path, given: FitOptions) -> list[tuple[str, Any]]:
    """Train a model in one pass over the file, save it, and return its properties by name."""
    source = given.open(data, with_kinds=False)
    options = scan(source, given.progress)
    estimator = given.estimator(options, streaming=True)
    for batch in read_batches(source, given.batch_size, "learning", given.progress):
        estimator.partial_fit(batch.X, batch.y)
    save_model(given.model, Model(estimator, options))
    return [("classes", int(estimator.classes_.size))]


def evaluate_progressively(data: Path, given: EvaluateOptions) -> evaluation.ProgressiveResult:
    """Predict each row before learning it, in one pass over the file."""
    source = given.open(data, with_kinds=False)
    estimator = given.estimator(scan(source, given.progress), streaming=True)
    measures: dict[str, str] = {}

    def pairs() -> Iterator[tuple[Any, Any]]:
        sizes = partial(evaluation.next_batch_size, most=given.batch_size)
        for batch in read_batches(source, sizes, "predicting and learning", given.progress, measures):
            yield batch.X, batch.y

    def show(metrics: dict[str, float]) -> None:
        name = next(name for name in metrics if name != "n_examples")
        measures[name] = f"{metrics[name]:.4f}"

    return evaluation.progressive_validation(estimator, pairs(), callback=show)


def evaluate_on_held_out_rows(data: Path, given: EvaluateOptions) -> evaluation.BatchResult:
    """Train on a random part of the rows and test on the others, for each seed."""
    source = _open(data, given)
    options = source.resolved()
    estimator = given.estimator(options)
    return _evaluated(estimator, read_all(source, given.progress), None, options, given)


def evaluate_on_test_file(data: Path, test: Path, given: EvaluateOptions) -> evaluation.BatchResult:
    """Train on a file and test on another, for each seed."""
    source = _open(data, given)
    options = source.resolved()
    estimator = given.estimator(options)
    labels_file = None if given.test_labels is None else str(given.test_labels)
    alike = replace(options, format=given.format, n_features=given.features, labels_file=labels_file)
    tested = open_data(test, alike)
    width = tested.resolved().n_features
    if width is not None and options.n_features is not None:  # the wider file decides
        width = max(width, options.n_features)
        source = open_data(data, replace(options, n_features=width))
        tested = open_data(test, replace(alike, n_features=width))
    train = read_all(source, given.progress)
    return _evaluated(estimator, train, read_all(tested, given.progress), options, given)


def _evaluated(
    estimator: Any, train: Batch, test: Batch | None, options: ReadOptions, given: EvaluateOptions
) -> evaluation.BatchResult:
    texts = texts_of(train.X, options)
    X, features = to_features(train.X, options)
    examples = [X, train.y]
    if test is not None:
        examples += [test.X if features is None else features.transform(test.X), test.y]
    applicable = [name for name in evaluation.RIVALS if name != "bm25" or texts is not None]
    evaluated = evaluation.batch_evaluation if given.ray is None else partial(_on_ray, given.ray)
    return evaluated(
        estimator,
        *examples,
        holdout=given.holdout,
        seeds=range(given.seed, given.seed + given.seeds),
        rivals=[name for name in applicable if name not in (given.without or ())],
        texts=texts,
        texts_test=None if test is None else texts_of(test.X, options),
        details=True,
        progress=_shows_progress(given.progress),
    )


def _on_ray(address: str, estimator: Any, *examples: Any, **options: Any) -> evaluation.BatchResult:
    from ..distributed import evaluate

    return evaluate({"": estimator}, *examples, address=address, **options)[""]


def _shows_progress(progress: bool | None) -> bool:
    return sys.stderr.isatty() if progress is None else progress
