"""Selection of "auto" parameters by held-out error.

The parameters are the method (head or neighbors), the metric and the number of neighbors.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np

from .._heads import StoredExamples, all_examples
from .._kernels import NONE, Rows
from .._validation import MOST_WANTED, check_integer
from ._calibration import FEWEST_HELD_OUT, held_out
from ._feature_scales import MAX_LABELS_OF_A_TABLE
from ._input import Factors, filled
from ._neighbors import NEIGHBOR_METRICS, NeighborSearch, count_votes, weights_of_votes

AUTO = "auto"
METHODS = ("head", "neighbors", "scored_neighbors")

_NEIGHBORS_TRIED = (1, 3, 5, 10, 20)
_MAX_EXAMPLES = 10_000  # maximum number of examples used for the choice
_MAX_SPLITS = 5  # maximum number of random splits
_ENOUGH_HELD_OUT = 1500
_ENOUGH_OF_A_LABEL = 20


class Choice(NamedTuple):
    method: str = "head"
    metric: str = "euclidean"
    n_neighbors: int = 5


class ChoiceOptions(Protocol):
    method: str
    metric: str
    n_neighbors: int | str
    weights: str


def check_n_neighbors(value: int | str) -> int | str:
    """Check and return a number of neighbors or "auto"."""
    if isinstance(value, str) and value == AUTO:
        return value
    return check_integer("n_neighbors", value, 1, MOST_WANTED)


def resolved(options: ChoiceOptions, chosen: Choice | None) -> Choice:
    """Return the parameters with each "auto" replaced by the chosen value."""
    chosen = chosen or Choice(metric=Choice().metric if options.metric == AUTO else options.metric)
    return Choice(
        chosen.method if options.method == AUTO else options.method,
        chosen.metric if AUTO in (options.metric, options.method) else options.metric,
        chosen.n_neighbors if isinstance(options.n_neighbors, str) else options.n_neighbors,
    )


def choose(
    examples: StoredExamples | None,
    lengths: Factors,
    n_labels: int,
    options: ChoiceOptions,
    predict: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> Choice:
    """Return the choice with the lowest error on held-out stored examples, or the default if these are too few.

    Ties go to the head. ``lengths`` are the lengths of the examples before scaling, or None if all were 1. ``predict``
    takes training and held-out slots, and returns the labels of the latter by a head trained on the former.
    """
    by_default = resolved(options, None)
    if examples is None or AUTO not in (options.method, options.metric, options.n_neighbors):
        return by_default
    rows, labels = all_examples(examples)
    if options.method == AUTO and (rows.sparse or n_labels > MAX_LABELS_OF_A_TABLE):
        return by_default
    lengths = filled(lengths, labels.size)

    def errors_of(seen: np.ndarray, tested: np.ndarray) -> dict[Choice, int]:
        errors = {}
        if options.method == AUTO:
            errors[by_default] = int(np.count_nonzero(predict(seen, tested) != labels[tested]))
        return errors | _errors_of_neighbors(rows, labels, lengths, seen, tested, options)

    errors = held_out_errors(labels, errors_of)
    return min(errors, key=errors.__getitem__) if errors else by_default


def held_out_errors(
    labels: np.ndarray, errors_of: Callable[[np.ndarray, np.ndarray], dict[Any, Any]], enough: int = _ENOUGH_HELD_OUT
) -> Counter[Any]:
    """Return the errors, or another loss, of each candidate on held-out examples, empty if there are too few.

    ``errors_of`` takes training slots and held-out slots. It is called for several splits until ``enough`` examples
    have been held out.
    """
    errors, n_held_out = Counter[Any](), 0
    for seen, tested in _splits(labels):
        errors.update(errors_of(seen, tested))
        n_held_out += tested.size
        if n_held_out >= enough:
            break
    return errors if n_held_out >= FEWEST_HELD_OUT else Counter()


def examples_of_some_labels(labels: np.ndarray, max_examples: int) -> np.ndarray:
    """Return the positions of up to ``max_examples`` examples, in order: about 20 each of some labels.

    A few labels with all their examples are more like the whole set than all labels with a few examples each.
    """
    random = np.random.default_rng(0)
    n_each = np.minimum(np.bincount(labels), _ENOUGH_OF_A_LABEL)
    order = random.permutation(n_each.size)
    chosen = order[: 1 + int(np.searchsorted(np.cumsum(n_each[order]), max_examples))]
    of_these = np.flatnonzero(np.isin(labels, chosen))
    return np.sort(random.permutation(of_these)[:max_examples])


def _splits(labels: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield training slots and held-out slots of random splits of 10,000 examples, or one per label if more."""
    needed = np.unique(labels, return_index=True)[1]  # each label keeps one example for training
    order = np.random.default_rng(0).permutation(labels.size)
    some = np.union1d(needed, order[: max(0, _MAX_EXAMPLES - needed.size)])
    for seed in range(_MAX_SPLITS):
        tested, seen = held_out(some.size, seed, never=np.searchsorted(some, needed))
        if tested.size > 0:
            yield some[seen], some[tested]


def _errors_of_neighbors(
    rows: Rows, labels: np.ndarray, lengths: np.ndarray, seen: np.ndarray, tested: np.ndarray, options: ChoiceOptions
) -> dict[Choice, int]:
    """Return the number of errors on held-out examples for each metric and number of neighbors."""
    learned, asked, errors = rows.take(seen), rows.take(tested), {}
    method = "neighbors" if options.method == AUTO else options.method
    numbers = _NEIGHBORS_TRIED if isinstance(options.n_neighbors, str) else (options.n_neighbors,)
    metrics: tuple[str, ...] = (options.metric,)
    if options.metric == AUTO:
        metrics = NEIGHBOR_METRICS
    elif options.method == AUTO and options.metric == "euclidean":
        metrics = "euclidean", "seuclidean"  # the head has standardised features, too
    for metric in metrics:
        search = NeighborSearch(learned, lengths[seen], metric)
        found, distances = search.compared(asked, lengths[tested], max(numbers))
        for k in numbers:
            first = found[:, :k]
            weights = weights_of_votes(options.weights, 1.0 - distances[:, :k], asked, learned, first)
            voters = np.where(first == NONE, NONE, labels[seen][first])
            best = count_votes(voters, weights, int(labels.max()) + 1).argmax(axis=1)
            errors[Choice(method, metric, k)] = int(np.count_nonzero(best != labels[tested]))
    return errors
