"""Points in arrays that grow by doubling."""

from __future__ import annotations

import numpy as np

from ._costs import STORED, Costs
from ._encoding import Sequences
from ._spaces import Kind, Space


def space_of_rows(kind: Kind, rows: np.ndarray) -> Space:
    """Return a space of dense rows."""
    sequences = np.empty(0, np.int32), np.zeros(1, np.int64), np.empty(0, np.float32)
    return Space(int(kind), 0, *sequences, np.zeros((1, 1), np.float32), np.empty((0, 0), np.float32), rows)


def number_of_points(space: Space) -> int:
    """Return how many points there are."""
    return space.offsets.size - 1 if space.kind == Kind.EDIT else space.rows.shape[0]


class PointStore:
    """Points of one space, in the order in which they came."""

    def __init__(self, space: Space) -> None:
        self._space, self.n = space, number_of_points(space)

    def view(self) -> Space:
        """Return the points that there are."""
        space = self._space
        if space.kind != Kind.EDIT:
            return space._replace(rows=space.rows[: self.n])
        offsets = space.offsets[: self.n + 1]
        return space._replace(symbols=space.symbols[: offsets[-1]], gaps=space.gaps[: offsets[-1]], offsets=offsets)

    def append(self, others: Space) -> None:
        """Store further points of the same space."""
        n_new, space = number_of_points(others), self._space
        if space.kind != Kind.EDIT:
            rows = _with_room(space.rows, self.n, n_new)
            rows[self.n : self.n + n_new] = others.rows
            self._space = space._replace(rows=rows)
        else:
            end = int(space.offsets[self.n])
            symbols = _with_room(space.symbols, end, others.symbols.size)
            offsets = _with_room(space.offsets, self.n + 1, n_new)
            gaps = _with_room(space.gaps, end, others.symbols.size)
            symbols[end : end + others.symbols.size] = others.symbols
            gaps[end : end + others.symbols.size] = others.gaps
            offsets[self.n + 1 : self.n + 1 + n_new] = end + others.offsets[1:]
            longest = max(space.longest, others.longest)
            self._space = space._replace(longest=longest, symbols=symbols, gaps=gaps, offsets=offsets)
        self.n += n_new

    def taken(self, places: np.ndarray) -> PointStore:
        """Return a store of some of the points, in this order."""
        space = self.view()
        if space.kind != Kind.EDIT:
            return PointStore(space._replace(rows=space.rows[places]))
        sequences = Sequences(space.symbols, space.offsets)
        entries, kept = sequences.entries(places), sequences.take(places)
        return PointStore(space._replace(symbols=kept.symbols, gaps=space.gaps[entries], offsets=kept.offsets))

    def with_costs(self, costs: Costs) -> PointStore:
        """Return a store of the same points with other costs of edits."""
        space = self.view()
        return PointStore(costs.points(Sequences(space.symbols, space.offsets), STORED))


def _with_room(array: np.ndarray, n: int, n_more: int) -> np.ndarray:
    """Return an array of the first ``n`` entries that has room for more."""
    if n + n_more <= array.shape[0]:
        return array
    grown = np.empty((max(2 * array.shape[0], n + n_more), *array.shape[1:]), array.dtype)
    grown[:n] = array[:n]
    return grown
