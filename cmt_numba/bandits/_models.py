"""Reward models of actions, indexed by slot: means and linear models.

The last slot of each array has no rewards and represents unknown actions, whose slot ``NONE`` is -1.
"""

from typing import Any, NamedTuple, Self

import numpy as np

from .._jit import held
from .._kernels import InvariantError, require, resized, with_room
from ._kernels import ActionPairs, Linear, learn_pairs, score_pairs

Arrays = dict[str, np.ndarray]

_PAIRS_AT_ONCE = 4096  # limits the memory for shared features
_TOLERANCE = 1e-9  # maximum relative error of an inverse before it is recomputed

_OF_ACTIONS = ("matrices", "inverses", "crossed", "regressed", "targets", "offsets", "counts")

# Limits of absolute values in files. Learned values are far smaller for contexts and rewards up to 1e30.
_LARGEST_INVERSE, _LARGEST_WEIGHT, _LARGEST_SUM = 1e30, 1e100, 1e200
_ROUNDING = 1e-8  # relative rounding error of a sum of products
MAX_REWARDS = 2**62


class Estimates(NamedTuple):
    """Estimated rewards of context-action pairs."""

    means: np.ndarray  # float64 (pairs,)
    variances: np.ndarray  # float64 (pairs,), in units of the reward variance; infinite if there are no rewards


class Means:
    """The mean reward of each action, regardless of the context."""

    def __init__(self) -> None:
        self.counts = np.zeros(1, np.int64)
        self.sums = np.zeros(1)

    def reserve(self, n_slots: int) -> None:
        """Allocate room for ``n_slots`` actions."""
        n = self.counts.size
        self.counts, self.sums = (with_room(array, n, n_slots + 1 - n, fill=0) for array in (self.counts, self.sums))

    def move(self, source: int, target: int) -> None:
        """Move an action to another slot and clear its old slot."""
        for array in (self.counts, self.sums):
            array[target] = array[source]
            array[source] = 0

    def estimate(self, pairs: ActionPairs) -> Estimates:
        """Estimate the rewards of pairs."""
        counts = self.counts[pairs.slots]
        means = self.sums[pairs.slots] / np.maximum(counts, 1)
        return Estimates(means, np.where(counts > 0, 1.0 / np.maximum(counts, 1), np.inf))

    def learn(self, pairs: ActionPairs, rewards: np.ndarray) -> None:
        """Learn the rewards of pairs."""
        np.add.at(self.counts, pairs.slots, 1)
        np.add.at(self.sums, pairs.slots, rewards)  # adds in order, so sums do not depend on batch sizes

    def arrays(self, n_slots: int) -> Arrays:
        """Return the arrays to save."""
        return {"counts": self.counts[:n_slots], "sums": self.sums[:n_slots]}

    def restore(self, arrays: Arrays, n_slots: int) -> None:
        """Restore saved arrays. Raise InvariantError if they are invalid."""
        self.reserve(n_slots)
        for name, own in (("counts", self.counts), ("sums", self.sums)):
            own[:n_slots] = checked(arrays, name, (n_slots,), own.dtype)
        require(np.all((self.counts >= 0) & (self.counts < MAX_REWARDS)), "counts must not be negative")
        require(np.all((self.counts > 0) | (self.sums == 0.0)), "the sums of actions without rewards must be 0")


class RewardModels:
    """Linear models of rewards, with weights of each action and shared ones; see ``_kernels.py``."""

    def __init__(self, n_features: int, n_shared: int, regularization: float) -> None:
        d, k = n_features, n_shared
        self.regularization = regularization
        n_packed, one = d * (d + 1) // 2, np.eye(k)
        self.linear = Linear(
            *(np.zeros((0, n_packed)), np.zeros((0, n_packed)), np.zeros((0, d, k)), np.zeros((0, d, k))),
            *(np.zeros((0, d)), np.zeros((0, d))),
            *(_packed(one * regularization), _packed(one / regularization), np.zeros(k), np.zeros(k)),
            np.zeros(0, np.int64),
        )
        self.reserve(0)

    @property
    def n_features(self) -> int:
        """Number of context features."""
        return int(self.linear.targets.shape[1])

    def reserve(self, n_slots: int) -> None:
        """Allocate room for ``n_slots`` actions."""
        capacity = self.linear.counts.size
        if n_slots < capacity:
            return
        size = max(2 * n_slots, 1)
        linear = self.linear._replace(**{name: resized(getattr(self.linear, name), size) for name in _OF_ACTIONS})
        _clear(linear, slice(capacity, size), self.regularization)
        self.linear, self._held = linear, held(linear)

    def move(self, source: int, target: int) -> None:
        """Move an action to another slot and clear its old slot."""
        for name in _OF_ACTIONS:
            array = getattr(self.linear, name)
            array[target] = array[source]
        _clear(self.linear, slice(source, source + 1), self.regularization)

    def estimate(self, pairs: ActionPairs) -> Estimates:
        """Estimate the rewards of pairs."""
        means, variances = np.empty(pairs.slots.size), np.empty(pairs.slots.size)
        score_pairs(self._held, pairs, means, variances)
        return Estimates(means, variances)

    def learn(self, pairs: ActionPairs, rewards: np.ndarray) -> None:
        """Learn the rewards of pairs in order."""
        first = learn_pairs(self._held, pairs, rewards, 0, _TOLERANCE, False)
        while first < rewards.size:
            self._refresh(pairs.slots[first])
            stop = learn_pairs(self._held, pairs, rewards, first, _TOLERANCE, True)
            if stop == first + 1:
                self._refresh(pairs.slots[first])
            first = stop

    def _refresh(self, slot: int) -> None:
        """Recompute the inverse of a slot, the shared inverse, and the weights that depend on them."""
        linear = self.linear
        inverse = _inverse(_unpacked(linear.matrices[slot]), self.regularization)
        shared_inverse = _inverse(_unpacked(linear.shared_matrix), self.regularization)
        linear.inverses[slot] = _packed(inverse)
        linear.regressed[slot] = inverse @ linear.crossed[slot]
        linear.offsets[slot] = inverse @ linear.targets[slot]
        linear.shared_inverse[:] = _packed(shared_inverse)
        linear.shared[:] = shared_inverse @ linear.shared_target

    def arrays(self, n_slots: int) -> Arrays:
        """Return the arrays to save."""
        arrays = self.linear._asdict()
        return {name: array[:n_slots] if name in _OF_ACTIONS else array for name, array in arrays.items()}

    @classmethod
    def read(cls, arrays: Arrays, n_slots: int, n_features: int, n_shared: int, regularization: float) -> Self:
        """Return models restored from saved arrays. Raise InvariantError if they are invalid."""
        limits = {"inverses": _LARGEST_INVERSE, "shared_inverse": _LARGEST_INVERSE, "counts": MAX_REWARDS}
        limits |= dict.fromkeys(("regressed", "offsets", "shared"), _LARGEST_WEIGHT)
        shapes = {"targets": (n_slots, n_features), "shared_matrix": (n_shared * (n_shared + 1) // 2,)}
        for name, shape in shapes.items():  # check before memory is allocated
            checked(arrays, name, shape, np.dtype(np.float64), _LARGEST_SUM)
        models = cls(n_features, n_shared, regularization)
        for name, own in models.linear._asdict().items():
            saved = (n_slots, *own.shape[1:]) if name in _OF_ACTIONS else own.shape
            checked(arrays, name, saved, own.dtype, limits.get(name, _LARGEST_SUM))
        require(np.all(arrays["counts"] >= 0), "counts must not be negative")
        check_definite("matrices", _unpacked(arrays["matrices"]))
        check_definite("shared_matrix", _unpacked(arrays["shared_matrix"][None]))
        models.reserve(n_slots)
        for name, own in models.linear._asdict().items():
            own[: n_slots if name in _OF_ACTIONS else None] = arrays[name]
        return models


def _clear(linear: Linear, slots: slice, regularization: float) -> None:
    """Reset slots to the state of actions without rewards."""
    for name in _OF_ACTIONS:
        getattr(linear, name)[slots] = 0
    diagonal = np.cumsum(np.arange(linear.targets.shape[1]) + 1) - 1
    linear.matrices[slots, diagonal] = regularization
    linear.inverses[slots, diagonal] = 1.0 / regularization


def _packed(matrices: np.ndarray) -> np.ndarray:
    return matrices[..., *np.tril_indices(matrices.shape[-1])]


def _unpacked(packed: np.ndarray) -> np.ndarray:
    d = round(np.sqrt(2 * packed.shape[-1] + 0.25) - 0.5)
    matrices, (rows, columns) = np.empty((*packed.shape[:-1], d, d)), np.tril_indices(d)
    matrices[..., rows, columns] = matrices[..., columns, rows] = packed
    return matrices


def _inverse(matrix: np.ndarray, smallest: float) -> np.ndarray:
    """Return the inverse of a symmetric matrix. Eigenvalues below ``smallest`` are treated as rounding errors."""
    try:
        root = np.linalg.inv(np.linalg.cholesky(matrix))
        inverse: np.ndarray = root.T @ root
        if np.diagonal(inverse).max(initial=0.0) <= (1.0 + _ROUNDING) / smallest:
            return inverse
    except np.linalg.LinAlgError:
        pass
    values, vectors = np.linalg.eigh(matrix)
    inverse = (vectors / np.maximum(values, smallest)) @ vectors.T
    return inverse


def check_definite(name: str, matrices: np.ndarray) -> None:
    """Raise InvariantError unless matrices are symmetric and positive definite, up to rounding."""
    if matrices.size == 0:
        return
    diagonals = np.diagonal(matrices, axis1=1, axis2=2)
    require(np.all(diagonals > 0.0), f"{name} must be positive on the diagonal")
    rounding = _ROUNDING * diagonals.max(axis=1)[:, None, None]
    turned = matrices.transpose(0, 2, 1)
    require(np.all(np.abs(matrices - turned) <= rounding), f"{name} must be symmetric")
    try:
        np.linalg.cholesky(matrices + rounding * np.eye(matrices.shape[1]))
    except np.linalg.LinAlgError:
        raise InvariantError(f"{name} must be positive definite") from None


def checked(
    arrays: Arrays, name: str, shape: tuple[int, ...], dtype: Any, largest: float = _LARGEST_WEIGHT
) -> np.ndarray:
    """Return a saved array. Raise InvariantError if its shape, dtype or values are invalid."""
    array = arrays.get(name)
    if array is None:
        raise InvariantError(f"the array {name} is missing")
    require(array.dtype == dtype and array.shape == shape, f"{name} must have dtype {dtype} and shape {shape}")
    sound = array.size == 0 or (array.max() <= largest and array.min() >= -largest)  # false for NaN
    require(sound, f"{name} must be finite and at most {largest:g} in absolute value")
    return array


def blocks(offsets: np.ndarray) -> list[tuple[int, int]]:
    """Return spans ``(first, stop)`` of rows with at most ``_PAIRS_AT_ONCE`` pairs, or of a single longer row."""
    spans, first, n_rows = [], 0, offsets.size - 1
    if offsets[-1] <= _PAIRS_AT_ONCE:
        return [(0, n_rows)]
    while first < n_rows:
        stop = int(np.searchsorted(offsets, offsets[first] + _PAIRS_AT_ONCE, side="right")) - 1
        stop = min(max(stop, first + 1), n_rows)
        spans.append((first, stop))
        first = stop
    return spans
