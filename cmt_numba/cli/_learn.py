"""Training of models on the rows of a file, and their evaluation on held-out rows."""

from collections.abc import Callable
from typing import Any

from sklearn.model_selection import train_test_split

from ..evaluation import held_out_metrics
from ..formats import Batch, ReadOptions
from ._columns import keys_of_rows, new_vectorizer
from ._model_files import Model
from ._options import TextKeys, TrainingOptions
from ._streams import Stream

_FEWEST_HELD_OUT = 10
_SHOWN = {
    "error": "error on held-out rows",
    "constant_accuracy": "error of always predicting the most frequent class",
    "precision@1": "precision of the best label on held-out rows",
    "f1_samples": "mean F1 of held-out rows",
}


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


def learn_in_batches(estimator: Any, batches: Stream) -> Any:
    """Train an estimator on the batches of a file, one by one, and return it."""
    for X, y in batches.pairs():
        estimator.partial_fit(X, y)
    return estimator


def held_out_pairs(learn_rows: Callable[[Batch], Model], rows: Batch, share: float, seed: int) -> list[tuple[str, Any]]:
    """Train a model on some rows; return its metrics on the rest by name, or an empty list for too few rows."""
    n = rows.X.shape[0]
    if round(share * n) < _FEWEST_HELD_OUT:
        return []
    X, X_held, y, y_held = train_test_split(rows.X, rows.y, test_size=share, random_state=seed)
    model = learn_rows(Batch(X, y, n))
    X_held = model.rows(X_held)
    found = held_out_metrics(
        model.options.task or "multiclass", model.estimator, X_held, y_held, model.estimator.predict(X_held), y
    )
    if "constant_accuracy" in found:
        found["constant_accuracy"] = 1.0 - found["constant_accuracy"]  # as an error, like the model's result
    names = [name for name in _SHOWN if name in found]
    return [("held-out rows", y_held.shape[0]), *((_SHOWN[name], f"{found[name]:.4f}") for name in names)]
