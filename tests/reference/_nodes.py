"""Memories, leaves, and nodes with their routers."""

import math
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse

from ._random import SplitMix64

LEFT = 0
RIGHT = 1

TINY = 1e-20

Key = dict[int, float]


def keys_of(X: object) -> list[Key]:
    """Return each row as a dict from feature to value, scaled to length 1 and rounded to float32 as keys are."""
    rows = X.toarray() if scipy.sparse.issparse(X) else np.asarray(X)
    keys = []
    for row in rows.astype(np.float32).astype(np.float64):
        length = np.linalg.norm(row) or 1.0
        keys.append({int(i): float(np.float32(row[i] / length)) for i in np.flatnonzero(row)})
    return keys


def squared_length(key: Key) -> float:
    """Return the sum of the squares of a key's values."""
    return sum(x**2 for x in key.values())


@dataclass(eq=False)
class Memory:
    """A stored key and the id that it was given."""

    id: int
    key: Key


@dataclass(eq=False)
class Leaf:
    """A leaf: the memories that it holds, in the order of their arrival save for gaps that the last one filled."""

    parent: "Node | None" = None
    members: list[Memory] = field(default_factory=list)


@dataclass(eq=False)
class Node:
    """An internal node: two children, the memories below each, and a linear router with AdaGrad accumulators."""

    parent: "Node | None" = None
    children: "list[Place | None]" = field(default_factory=lambda: [None, None])
    below: list[int] = field(default_factory=lambda: [0, 0])
    examples: int = 0
    mistakes: int = 0
    departed: int = 0
    gone: bool = False
    bias: float = 0.0
    bias_square: float = 0.0
    weights: dict[int, float] = field(default_factory=dict)
    squares: dict[int, float] = field(default_factory=dict)

    def margin(self, key: Key) -> float:
        """Return g(x), right if positive."""
        return self.bias + sum(self.weights.get(feature, 0.0) * x for feature, x in key.items())

    def side_of(self, key: Key) -> int:
        """Return the side that the router sends a key to."""
        return RIGHT if self.margin(key) > 0.0 else LEFT

    def balance(self) -> float:
        """Return log n_left - log n_right, with one added to each so that an empty side is finite."""
        return math.log((self.below[LEFT] + 1) / (self.below[RIGHT] + 1))


Place = Node | Leaf


def memories_below(place: Place) -> list[Memory]:
    """Return the memories in all leaves below a place."""
    if isinstance(place, Leaf):
        return place.members
    return [memory for child in place.children for memory in memories_below(child)]


def draw_members(leaf: Leaf, k: int, stream: SplitMix64) -> list[Memory]:
    """Draw ``k`` memories of a leaf uniformly without replacement, in one pass (selection sampling)."""
    drawn: list[Memory] = []
    wanted = min(k, len(leaf.members))
    for i, memory in enumerate(leaf.members):
        if stream.below(len(leaf.members) - i) < wanted - len(drawn):
            drawn.append(memory)
    return drawn
