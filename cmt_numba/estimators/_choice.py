"""The choice between head and neighbors, and of the neighbors' metric and number, by held-out error."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .._forest import NONE
from .._heads import all_examples
from .._validation import MOST_WANTED, check_integer
from ._calibration import FEWEST_HELD_OUT, held_out
from ._input import filled, taken
from ._neighbors import METRICS, nearest, new_table
from ._votes import count_votes, weights_of_votes

if TYPE_CHECKING:
    from ._classification_model import ClassificationModel, ClassificationOptions

AUTO = "auto"
METHODS = ("head", "neighbors", "scored_neighbors")

_NEIGHBORS_TRIED = (1, 3, 5, 10, 20)
_MOST_EXAMPLES = 10_000  # that the choice is made with
_MOST_LABELS = 1024  # with more, linear scorers are better and neighbors slower
_MOST_SPLITS = 5  # of the examples, until enough have been held out
_ENOUGH_HELD_OUT = 1500


class Choice(NamedTuple):
    """How a classifier answers."""

    method: str = "head"
    metric: str = "euclidean"
    n_neighbors: int = 5


def check_n_neighbors(value: int | str) -> int | str:
    """Return a number of neighbors, or "auto"."""
    if isinstance(value, str) and value == AUTO:
        return value
    return check_integer("n_neighbors", value, 1, MOST_WANTED)


def resolved(options: ClassificationOptions, chosen: Choice | None) -> Choice:
    """Return what the parameters say, and what was chosen where they say "auto"."""
    chosen = chosen or Choice()
    return Choice(
        chosen.method if options.method == AUTO else options.method,
        chosen.metric if options.metric == AUTO else options.metric,
        chosen.n_neighbors if isinstance(options.n_neighbors, str) else options.n_neighbors,
    )


def choose(model: ClassificationModel, options: ClassificationOptions) -> Choice:
    """Return the choice with the lowest error on stored examples that are held out.

    Without enough of them, it is what :class:`Choice` has by default. Of equal errors the head's wins.
    """
    methods = ("head", "neighbors") if options.method == AUTO else (options.method,)
    if model.index.examples is None or AUTO not in (options.method, options.metric, options.n_neighbors):
        return resolved(options, None)
    rows, labels = all_examples(model.index.examples)
    if options.method == AUTO and (rows.sparse or model.index.n_labels > _MOST_LABELS):
        return resolved(options, None)
    metrics = METRICS if options.metric == AUTO else (options.metric,)
    numbers = _NEIGHBORS_TRIED if isinstance(options.n_neighbors, str) else (options.n_neighbors,)
    needed = np.unique(labels, return_index=True)[1]  # a label needs one example to learn
    rng = np.random.default_rng(0)
    some = np.union1d(needed, rng.permutation(labels.size)[: max(0, _MOST_EXAMPLES - needed.size)])
    never = np.searchsorted(some, needed)
    lengths, n_held_out = filled(model.example_lengths, labels.size), 0
    errors: Counter[Choice] = Counter()
    for split in range(_MOST_SPLITS):
        apart, seen = (some[positions] for positions in held_out(some.size, split, never=never))
        if apart.size == 0:
            break
        right, asked, learned = labels[apart], rows.take(apart), rows.take(seen)
        if "head" in methods:
            learner = model.trained_on(learned, labels[seen], taken(model.example_weights, seen), options)
            wrong = learner.best_labels(asked, 1, options).labels[:, 0] != right
            errors[resolved(options, None)._replace(method="head")] += int(wrong.sum())
        for metric in metrics if methods != ("head",) else ():
            table = new_table(learned, lengths[seen], metric)
            found, distances = nearest(table, asked, lengths[apart], max(numbers))
            for k in numbers:
                first = found[:, :k]
                weights = weights_of_votes(options.weights, 1.0 - distances[:, :k], asked, learned, first)
                voters = np.where(first == NONE, NONE, labels[seen][first])
                wrong = count_votes(voters, weights, model.index.n_labels).argmax(axis=1) != right
                errors[Choice(methods[-1], metric, k)] += int(wrong.sum())
        n_held_out += apart.size
        if n_held_out >= _ENOUGH_HELD_OUT:
            break
    return resolved(options, None) if n_held_out < FEWEST_HELD_OUT else min(errors, key=errors.__getitem__)
