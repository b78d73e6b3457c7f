"""Checks of the codes of dense keys."""

import numpy as np

from ..._change import spans
from ..state import N_MEMORIES, NONE, State
from .errors import require
from .numbers import all_small, all_within

_LARGEST_MARK = 2.0  # generous upper bound on scales and errors of unit-length keys
_CELLS_AT_ONCE = 1 << 20


def check_code_frame(state: State) -> None:
    """Raise InvariantError unless the arrays of codes have the expected lengths. Call :func:`check_layout` first."""
    codes, packed, d = state.codes, state.packed, state.parameters.n_features
    n_packed = packed.marks.shape[1]
    if state.parameters.sparse:
        require(codes.marks.size == 0 and n_packed == 0, "sparse keys must not have codes")
    else:
        capacity = state.keys.ids.size
        enough = codes.marks.size >= capacity and codes.values.size >= capacity * d
        require(enough, "every dense key must have a code")
    require(packed.values.shape[1] == n_packed * d, "every packed code must have a mark")


def check_codes(state: State) -> None:
    """Raise InvariantError if the distance of a decoded key from its key exceeds the stored error."""
    n, d = int(state.keys.totals[N_MEMORIES]), state.parameters.n_features
    if state.parameters.sparse:
        return
    codes, marks = state.codes.values[: n * d].reshape(n, d), state.codes.marks[:n]
    sensible = all_small(marks["scale"], _LARGEST_MARK) and all_small(marks["error"], _LARGEST_MARK)
    require(sensible, "the scale or the error of a code is out of range")
    for first, stop in spans(n, max(1, _CELLS_AT_ONCE // d)):
        keys = marks["scale"][first:stop, None] * codes[first:stop]
        difference = state.keys.values[first * d : stop * d].reshape(-1, d) - keys
        distance = np.linalg.norm(difference, axis=1)
        require(bool(np.all(distance <= marks["error"][first:stop])), "a code is too far from its key")


def check_packed(state: State, t: int, leaf: np.ndarray, *, values: bool = True) -> None:
    """Raise InvariantError unless the packed codes of leaves equal the codes of their memories.

    If ``values`` is False, check only that the packed codes exist.
    """
    n_packed, d = state.packed.marks.shape[1], state.parameters.n_features
    leaf = leaf[state.leaves["packed"][t, leaf] != NONE]
    if leaf.size == 0:
        return
    require(t > 0 and not state.parameters.sparse, f"tree {t}: a leaf must not refer to packed codes")
    first, size = state.leaves["packed"][t, leaf].astype(np.int64), state.leaves["size"][t, leaf]
    there = all_within(first, 0, n_packed) and all_within(first + size, 0, n_packed)
    require(there, f"tree {t}: the packed codes of a leaf are missing")
    packed, codes = state.packed.values[t - 1].reshape(n_packed, d), state.codes.values.reshape(-1, d)
    for i in range(leaf.size if values else 0):
        at, slots = slice(first[i], first[i] + size[i]), state.members[t, leaf[i], : size[i]]
        same = np.array_equal(packed[at], codes[slots])
        same = same and np.array_equal(state.packed.marks[t - 1, at], state.codes.marks[slots])
        require(same, f"tree {t}: a packed code differs from the code of its memory")
