"""Validation and conversion of contexts, actions, rewards and propensities."""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from .._validation import check_entries, check_seed, unmasked

LARGEST = 1e30  # maximum absolute value of contexts, features and rewards. Squares of such values are finite.
MAX_ACTIONS = 2**31 - 1

MOST_FEATURES = 10_000
"""Maximum number of context features. Linear policies store a square matrix of this size for each action."""


def generator_of(random_state: Any, use: str) -> np.random.Generator:
    """Return a random number generator that depends on a seed and its use.

    The generator differs from ``numpy.random.default_rng(seed)``, with which the caller may have drawn contexts or
    logged actions. If choices used the same random numbers, their propensities would be wrong.
    """
    seed = check_seed(random_state)
    return np.random.default_rng(np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, *use.encode())))


class Choices(NamedTuple):
    """Allowed actions. Row ``i`` allows ``actions[offsets[i]:offsets[i + 1]]``."""

    offsets: np.ndarray  # int64 (rows + 1,)
    actions: np.ndarray  # int64 (pairs,)
    shape: tuple[int, int]  # shape of the array that ``probabilities`` returns
    places: np.ndarray  # int64 (pairs,), flat positions of the pairs in this array

    @property
    def sizes(self) -> np.ndarray:
        """Number of allowed actions per row: int64, shape (rows,)."""
        return self.offsets[1:] - self.offsets[:-1]

    def part(self, first: int, stop: int) -> "Choices":
        """Return the choices of rows ``first:stop``."""
        offsets, pairs = self.between(first, stop)
        return Choices(offsets, self.actions[pairs], (stop - first, self.shape[1]), self.places[pairs])

    def between(self, first: int, stop: int) -> tuple[np.ndarray, slice]:
        """Return the offsets of rows ``first:stop``, shifted to start at 0, and the slice of their pairs."""
        pairs = slice(int(self.offsets[first]), int(self.offsets[stop]))
        return self.offsets[first : stop + 1] - self.offsets[first], pairs


def numbers(name: str, values: Any, n_axes: int) -> np.ndarray:
    """Convert an array-like or sparse matrix of finite real numbers to float64 in C order."""
    array = values
    if type(values) is not np.ndarray:
        unmasked(name, values)
        try:
            array = np.asarray(values.toarray() if scipy.sparse.issparse(values) else values)
        except (TypeError, ValueError) as error:
            raise TypeError(f"{name} must be an array of real numbers: {error}") from error
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must contain real numbers, got {array.dtype}")
    if array.ndim != n_axes:
        hint = f"; write {name}.reshape(1, -1) for a single row" if (n_axes, array.ndim) == (2, 1) else ""
        raise ValueError(f"{name} must have {n_axes} dimension{'s' if n_axes > 1 else ''}, got {array.ndim}{hint}")
    array = np.ascontiguousarray(array, np.float64)
    if array.size > 0 and not (array.max() <= LARGEST and array.min() >= -LARGEST):  # also true for NaN
        raise ValueError(f"{name} must be finite and at most {LARGEST:g} in absolute value")
    return array if array.flags.writeable else array.copy()


def check_contexts(contexts: Any, n_features: int | None) -> np.ndarray:
    """Convert contexts to float64 of shape (n, n_features)."""
    width = np.shape(contexts)[-1] if hasattr(contexts, "shape") and np.ndim(contexts) == 2 else 0
    if width > MOST_FEATURES and n_features is None:
        raise ValueError(
            f"contexts must have at most {MOST_FEATURES} features, got {width}, because linear policies store a square "
            "matrix of this size for each action: reduce them, for example with sklearn.decomposition.TruncatedSVD"
        )
    array = numbers("contexts", contexts, 2)
    if array.shape[0] == 0 or array.shape[1] == 0:
        raise ValueError(f"contexts must have at least one row and one feature, got shape {array.shape}")
    if n_features is not None and array.shape[1] != n_features:
        raise ValueError(f"contexts must have {n_features} features like earlier contexts, got {array.shape[1]}")
    return array


def check_actions(actions: Any, n_rows: int | None = None) -> np.ndarray:
    """Convert actions to int64. If ``n_rows`` is given, require one action per row."""
    array = _integers("actions", actions)
    if array.ndim != 1:
        raise ValueError(f"actions must be one-dimensional, got shape {array.shape}")
    if array.size == 0 or (n_rows is not None and array.size != n_rows):
        wanted = "contain at least one action" if n_rows is None else f"have one entry for each of the {n_rows} rows"
        raise ValueError(f"actions must {wanted}, got {array.size}")
    if array.min() < 0 or array.max() > MAX_ACTIONS:
        raise ValueError(f"actions must be between 0 and {MAX_ACTIONS}")
    return array


def check_distinct_actions(actions: Any) -> np.ndarray:
    """Convert distinct actions to int64."""
    array = check_actions(np.atleast_1d(np.asarray(actions)))
    if np.unique(array).size < array.size:
        raise ValueError("actions must be distinct")
    return array


def all_of(actions: np.ndarray, n_rows: int) -> Choices:
    """Return choices that allow the same actions in every row."""
    offsets = np.arange(n_rows + 1) * actions.size
    return Choices(offsets, np.tile(actions, n_rows), (n_rows, actions.size), np.arange(n_rows * actions.size))


def check_choices(actions: Any, n_rows: int) -> Choices:
    """Convert allowed actions to the choices of ``n_rows`` rows.

    - ``actions``: an integer array of shape (k,) for all rows, an integer array of shape (n_rows, k) padded with -1, a
      boolean mask of shape (n_rows, k) over actions 0 to k - 1, or a list of ``n_rows`` sequences of actions.
    """
    array = padded(actions)
    if array.ndim == 1:
        return all_of(check_distinct_actions(array), n_rows)
    if array.ndim != 2 or array.shape[0] != n_rows:
        raise ValueError(
            f"actions must be a list of actions, or have one row for each of the {n_rows} contexts, "
            f"got shape {array.shape}"
        )
    if array.dtype == np.bool_:
        array = np.where(array, np.arange(array.shape[1]), -1)
    allowed = array >= 0
    if array.size and (array.min() < -1 or array.max() > MAX_ACTIONS):
        raise ValueError(f"actions must be between 0 and {MAX_ACTIONS}, or -1 for none")
    sizes = allowed.sum(axis=1)
    if not np.all(sizes > 0):
        raise ValueError(f"actions must contain at least one action in each row, but row {np.argmin(sizes)} has none")
    ordered = np.sort(array, axis=1)
    if np.any((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)):
        raise ValueError("actions must be distinct in each row")
    return Choices(np.concatenate([[0], np.cumsum(sizes)]), array[allowed], array.shape, np.flatnonzero(allowed))


def check_rewards(rewards: Any, n_rows: int) -> np.ndarray:
    """Convert rewards to float64 and require one per row."""
    array = numbers("rewards", rewards, 1)
    check_entries("rewards", array.size, n_rows, "rows")
    return array


def check_propensities(propensities: Any, n_rows: int) -> np.ndarray:
    """Convert propensities to float64 and require one per row."""
    array = numbers("propensities", propensities, 1)
    check_entries("propensities", array.size, n_rows, "rows")
    if not np.all((array > 0.0) & (array <= 1.0)):
        raise ValueError(
            f"propensities must be above 0 and at most 1, got {array[~((array > 0.0) & (array <= 1.0))][0]}"
        )
    return array


def padded(actions: Any) -> np.ndarray:
    """Return allowed actions as an array, with shorter rows padded with -1."""
    if isinstance(actions, list | tuple) and actions and all(np.ndim(row) == 1 for row in actions):
        rows = [np.asarray(row) for row in actions]
        if len({row.size for row in rows}) > 1:
            for row in rows:
                if row.size and row.dtype.kind not in "iu":
                    raise TypeError(f"actions must be integers, got {row.dtype}")
            padded = np.full((len(rows), max(row.size for row in rows)), -1, np.int64)
            for i, row in enumerate(rows):
                if row.size and row.min() < 0:
                    raise ValueError(f"actions must be between 0 and {MAX_ACTIONS}")
                padded[i, : row.size] = row
            return padded
    return _integers("actions", actions, booleans=True)


def _integers(name: str, values: Any, *, booleans: bool = False) -> np.ndarray:
    unmasked(name, values)
    try:
        array = np.asarray(values)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be an array of integers: {error}") from error
    if booleans and array.dtype == np.bool_:
        return array
    if array.dtype.kind not in "iu" and array.size > 0:
        raise TypeError(f"{name} must be integers, got {array.dtype}")
    if array.dtype == np.uint64 and array.size > 0 and array.max() > MAX_ACTIONS:
        raise ValueError(f"{name} must be between 0 and {MAX_ACTIONS}")
    return np.ascontiguousarray(array, np.int64)
