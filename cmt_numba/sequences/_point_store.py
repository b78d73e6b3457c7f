"""Growing storage for points."""

from typing import Any

import numpy as np

from .._kernels import with_room
from ._costs import STORED, Costs
from ._edits import Edits
from ._encoding import Sequences
from ._spaces import Space, SpaceKind

_OF_SYMBOLS = ("symbols", "gaps")  # arrays of a space with one entry per symbol


def space_of_rows(kind: SpaceKind, rows: np.ndarray) -> Space:
    """Return a space of dense rows."""
    symbols, offsets, none = np.empty(0, np.int32), np.zeros(1, np.int64), np.empty(0, np.float32)
    edits = Edits(np.zeros((1, 1), np.float32), np.empty((0, 0), np.float32), none, none, 0.0, 0.0, 0.0)
    return Space(int(kind), 0, symbols, offsets, none, False, edits, rows)


def number_of_points(space: Space) -> int:
    """Return the number of points in a space."""
    return space.offsets.size - 1 if space.kind == SpaceKind.EDIT else space.rows.shape[0]


class PointStore:
    """Points of one space in insertion order, in arrays with spare capacity."""

    def __init__(self, space: Space) -> None:
        self._space, self.n = space, number_of_points(space)

    def view(self) -> Space:
        """Return a space of all points, without copying them."""
        space = self._space
        if space.kind != SpaceKind.EDIT:
            return space._replace(rows=space.rows[: self.n])
        offsets = space.offsets[: self.n + 1]
        of_symbols: dict[str, Any] = {name: getattr(space, name)[: offsets[-1]] for name in _OF_SYMBOLS}
        return space._replace(offsets=offsets, **of_symbols)

    def append(self, others: Space) -> None:
        """Append points of the same space."""
        n_new, space = number_of_points(others), self._space
        if space.kind != SpaceKind.EDIT:
            rows = with_room(space.rows, self.n, n_new)
            rows[self.n : self.n + n_new] = others.rows
            self._space = space._replace(rows=rows)
        else:
            end = int(space.offsets[self.n])
            of_symbols: dict[str, Any] = {}
            for name in _OF_SYMBOLS:
                added = getattr(others, name)
                of_symbols[name] = with_room(getattr(space, name), end, added.size)
                of_symbols[name][end : end + added.size] = added
            offsets = with_room(space.offsets, self.n + 1, n_new)
            offsets[self.n + 1 : self.n + 1 + n_new] = end + others.offsets[1:]
            edits = space.edits._replace(unit=min(space.edits.unit, others.edits.unit))
            longest = max(space.longest, others.longest)
            self._space = space._replace(longest=longest, offsets=offsets, edits=edits, **of_symbols)
        self.n += n_new

    def taken(self, places: np.ndarray) -> "PointStore":
        """Return a store of the points at the given positions."""
        space = self.view()
        if space.kind != SpaceKind.EDIT:
            return PointStore(space._replace(rows=space.rows[places]))
        sequences = Sequences(space.symbols, space.offsets)
        entries, kept = sequences.entries(places), sequences.take(places)
        longest, gaps = int(np.diff(kept.offsets).max(initial=0)), space.gaps[entries]
        return PointStore(space._replace(longest=longest, gaps=gaps, symbols=kept.symbols, offsets=kept.offsets))

    def with_costs(self, costs: Costs) -> "PointStore":
        """Return a store of the same points with other edit costs."""
        space = self.view()
        return PointStore(costs.points(Sequences(space.symbols, space.offsets), STORED))
