"""Checks of the invariants of forests that kernels rely on."""

from typing import Any, NamedTuple

import numpy as np

from .._jit import as_python
from .._kernels import N_MEMORIES, NONE, all_finite, all_within, check_key_frame, check_keys, check_layout, require
from .._linear import check_model_frame, check_models
from .state import (
    COUNT,
    FREE_LEAF,
    FREE_NODE,
    LEAVES_END,
    MOVING_SLOT,
    NODES_END,
    REROUTES_LEFT,
    ROOT,
    State,
    leaf_limit,
)

_leaf_limit = as_python(leaf_limit)


def _check_scorer(parameters: Any, scorer: Any) -> None:
    """Raise InvariantError if a scorer is invalid."""
    require(scorer.theta.size in (0, parameters.n_features), "the scorer must have one weight per feature or none")
    require(all_finite(scorer.theta), "the scorer has a weight that is not finite")
    squares = scorer.squares
    require(all_finite(squares) and np.all(squares >= 0), "a sum of squares of the scorer is negative")


# Trees


def levels(state: State, t: int) -> list[np.ndarray]:
    """Return the places of tree ``t``: one array for each level, from the root down."""
    counters, nodes, leaves = state.counters[t], state.nodes[t], state.leaves[t]
    level = counters[ROOT : ROOT + 1]
    parents = np.array([NONE])
    result = []
    n_left = int(counters[NODES_END] + counters[LEAVES_END])
    while level.size:
        n_left -= level.size
        require(n_left >= 0, f"tree {t}: a node or leaf is reachable more than once")
        internal, leaf = level[level >= 0], ~level[level < 0]
        require(np.all(internal < counters[NODES_END]), f"tree {t}: a link refers to a node that does not exist")
        require(np.all(leaf < counters[LEAVES_END]), f"tree {t}: a link refers to a leaf that does not exist")
        named = np.empty(level.size, np.int64)
        named[level >= 0] = nodes["parent"][internal]
        named[level < 0] = leaves["parent"][leaf]
        require(np.array_equal(named, parents), f"tree {t}: a node or leaf has the wrong parent")
        result.append(level.astype(np.int64))
        level = nodes["child"][internal].reshape(-1)
        parents = np.repeat(internal, 2)
    return result


def depth(state: State) -> int:
    """Return the maximum number of internal nodes between a root and a leaf."""
    return max(len(levels(state, t)) - 1 for t in range(state.parameters.n_trees))


class Leaves(NamedTuple):
    """All leaves of a forest, ordered by tree and depth."""

    tree: np.ndarray
    """The tree of each leaf (int64, shape (n_leaves,))."""
    depth: np.ndarray
    """The number of internal nodes above each leaf (int64, shape (n_leaves,))."""
    size: np.ndarray
    """The number of memories in each leaf (int64, shape (n_leaves,))."""


Leaves.__module__ = "cmt_numba"  # the module from which pickles import the class


def leaves(state: State) -> Leaves:
    """Return the tree, the depth and the size of each leaf."""
    parts = [
        (t, depth, state.leaves["size"][t, ~level[level < 0]])
        for t in range(state.parameters.n_trees)
        for depth, level in enumerate(levels(state, t))
    ]
    n_each = [sizes.size for _, _, sizes in parts]
    return Leaves(
        tree=np.repeat(np.array([t for t, _, _ in parts], np.int64), n_each),
        depth=np.repeat(np.array([depth for _, depth, _ in parts], np.int64), n_each),
        size=np.concatenate([sizes for _, _, sizes in parts]).astype(np.int64),
    )


def check(state: State, *, values: bool = True) -> None:
    """Raise InvariantError if the state is invalid.

    If ``values`` is False, skip the values of keys and dense routers, which are never used as indices.
    """
    check_frame(state)
    check_keys(state.parameters, state.keys, values=values)
    _check_scorer(state.parameters, state.scorer)
    for t in range(state.parameters.n_trees):
        places = levels(state, t)
        _check_leaves(state, t, places)
        _check_counts(state, t, places)
        _check_free_lists(state, t, places)
        _check_routers(state, t, places, values)


def check_frame(state: State) -> None:
    """Raise InvariantError unless all arrays have the expected dtypes and lengths.

    The check reads only the counters and totals, so its time does not depend on the size of the forest.
    """
    parameters, counters, keys = state.parameters, state.counters, state.keys
    n_trees = parameters.n_trees
    check_layout(state, {"trees": n_trees, "groups": n_trees, "streams": n_trees + 1})
    check_key_frame(parameters, keys)
    check_model_frame(state.models, n_trees)
    n = int(keys.totals[N_MEMORIES])
    require(state.leaf_of.shape[1] >= n, "every memory must have a leaf")
    require(all_within(counters[:, LEAVES_END], 1, state.leaves.shape[1]), "the end of the leaves is out of range")
    width = state.members.shape[2]
    require(width >= _leaf_limit(parameters.leaf_multiplier, n), f"leaves have no room for c log2({n}) memories")
    for t in range(n_trees):
        require(counters[t, COUNT] == n, f"tree {t}: contains {counters[t, COUNT]} of {n} memories")
        at_rest = counters[t, MOVING_SLOT] == NONE and counters[t, REROUTES_LEFT] == 0
        require(at_rest, f"tree {t}: an insert is unfinished")


def _check_leaves(state: State, t: int, places: list[np.ndarray]) -> None:
    n = int(state.keys.totals[N_MEMORIES])
    everywhere = np.concatenate(places)
    leaf = ~everywhere[everywhere < 0]
    size = state.leaves["size"][t, leaf]
    width = state.members.shape[2]
    require(all_within(size, 0, width), f"tree {t}: a leaf holds more than c log2(n) = {width} memories")
    require(leaf.size == 1 or np.all(size > 0), f"tree {t}: a leaf below the root is empty")
    taken = np.arange(width) < size[:, None]
    members = state.members[t, leaf][taken]
    known = members.size == n and all_within(members, 0, n - 1)
    require(known and np.all(np.bincount(members) == 1), f"tree {t}: not every memory is in exactly one leaf")
    holder = np.repeat(leaf, size)
    require(np.array_equal(state.leaf_of[t, members], holder), f"tree {t}: a memory has the wrong leaf")


def _check_counts(state: State, t: int, places: list[np.ndarray]) -> None:
    nodes, leaves = state.nodes[t], state.leaves[t]
    below = np.zeros(state.counters[t, NODES_END], np.int64)
    for level in reversed(places):
        internal = level[level >= 0]
        child = nodes["child"][internal]
        count = np.where(child >= 0, below[np.maximum(child, 0)], leaves["size"][np.maximum(~child, 0)])
        require(np.array_equal(nodes["below"][internal], count), f"tree {t}: a node's counts are wrong")
        below[internal] = count.sum(axis=1)


def _check_free_lists(state: State, t: int, places: list[np.ndarray]) -> None:
    everywhere = np.concatenate(places)
    for name, live, links, head, end in (
        ("node", everywhere[everywhere >= 0], state.nodes["parent"][t], FREE_NODE, NODES_END),
        ("leaf", ~everywhere[everywhere < 0], state.leaves["parent"][t], FREE_LEAF, LEAVES_END),
    ):
        end = int(state.counters[t, end])
        free = _linked(links, int(state.counters[t, head]), end, f"tree {t}: the {name} free list")
        rows = np.concatenate([live, free])
        require(np.array_equal(np.sort(rows), np.arange(end)), f"tree {t}: a {name} is missing or used twice")


def _linked(links: np.ndarray, head: int, most: int, what: str) -> np.ndarray:
    rows: list[int] = []
    while head != NONE:
        require(0 <= head < most and len(rows) < most, f"{what} is invalid")
        rows.append(head)
        head = int(links[head])
    return np.array(rows, np.int64)


def _check_routers(state: State, t: int, places: list[np.ndarray], values: bool) -> None:
    everywhere = np.concatenate(places)
    internal = everywhere[everywhere >= 0]
    nodes = state.nodes[t]
    unused = np.ones(nodes.size, np.bool_)
    unused[internal] = False
    require(not nodes["table_bits"][unused].any(), f"tree {t}: an unused node has a table")
    examples, mistakes = nodes["examples"][internal], nodes["mistakes"][internal]
    counted = np.all(mistakes <= examples) and not np.any(mistakes < 0)
    require(counted, f"tree {t}: the count of router mistakes of a node is wrong")
    require(not np.any(nodes["departed"][internal] < 0), f"tree {t}: the count of removed memories of a node is wrong")
    if values or state.parameters.sparse:
        check_models(state.models, t, internal, f"tree {t}")
