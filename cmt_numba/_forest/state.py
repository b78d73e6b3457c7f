"""The state of a forest as named tuples of arrays.

Every array has one owner and one meaning. A :class:`State` contains all arrays of a forest. Kernels receive them as a
few named tuples: :class:`Trees`, :class:`LinearModels` and :class:`KeyStore`. Arrays of trees have
the tree as their first axis, so threads can grow different trees at the same time.

A *slot* is a memory's row in the key store. Slots are contiguous from 0, because a removal moves the last memory into
the gap. A *place* is an internal node (``place >= 0``) or a leaf (``place < 0``, with the number ``~place``).
"""

from typing import Annotated, Any, NamedTuple

import numpy as np

from .._jit import Known, held, inner_exported, known
from .structures import kind_of

NONE = np.int64(-1)  # no node, leaf or memory. Also terminates lists.
LEFT = 0
RIGHT = 1
ONLY_TREE = 0  # tree number of a head, which stores labels like the nodes of a forest with one tree
MOST_FEATURES = 2**31 - 1  # maximum number of features. Feature indices are int32.
MOST_MEMORIES = 2**31 - 1  # maximum number of memories. Slots are int32.

# Columns of ``State.counters``, which has a row for each tree.
ROOT = 0  # place of the root
COUNT = 1  # number of memories in the tree, whose slots are 0:COUNT
NODES_END = 2  # number of node rows ever used; each of them is live or on the free list
FREE_NODE = 3  # head of the free list of nodes, linked by the field ``parent``
LEAVES_END = 4  # number of leaf rows ever used
FREE_LEAF = 5  # head of the free list of leaves, linked by the field ``parent``
TABLES_END = 6  # number of table cells ever used
CELLS_WANTED = 7  # after TABLES_FULL: the number of free cells that the kernel needs to continue
REROUTES_LEFT = 8  # number of pending reroutes
MOVING_SLOT = 9  # slot of the memory that is being moved, or NONE
MOVING_PLACE = 10  # place that the memory has reached
MOVED_FROM = 11  # former leaf of the memory, NONE for a new one
FREE_TABLES = 12  # FREE_TABLES + b: head of the free list of tables of 2**b cells
N_TABLE_SIZES = 32
N_COUNTERS = FREE_TABLES + N_TABLE_SIZES

# Entries of ``KeyArrays.totals``.
N_MEMORIES = 0
NEXT_ID = 1
VALUES_END = 2  # sparse keys: number of cells of ``KeyArrays.values`` ever used
VALUES_LIVE = 3  # sparse keys: number of cells of ``KeyArrays.values`` that belong to a memory
LONGEST = 4  # largest number of cells of any key stored so far
N_TOTALS = 5

# The status of a kernel: DONE, or the array that must grow.
DONE = 0
NODES_FULL = 1
LEAVES_FULL = 2
TABLES_FULL = 3

SMALLEST_TABLE_BITS = 4


class Parameters(NamedTuple):
    """The fixed parameters of a forest."""

    n_trees: int
    n_features: int
    sparse: bool
    alpha: float
    leaf_multiplier: float
    n_reroutes: int
    router_loss: int
    router_learning_rate: float
    sure_margin: float
    scorer_loss: int
    scorer_learning_rate: float


class KeyArrays(NamedTuple):
    """The key store: unit-length float32 keys by slot, and the hash table from ids to slots.

    A dense key is ``values[slot * n_features : (slot + 1) * n_features]``; ``indices`` and ``spans`` are empty.
    A sparse key is the cells ``spans[slot, 0] : spans[slot, 1]`` of ``values`` and ``indices``.
    """

    values: Annotated[np.ndarray, kind_of(np.float32, "cells")]
    indices: Annotated[np.ndarray, kind_of(np.int32, "cells of sparse keys")]
    spans: Annotated[np.ndarray, kind_of(np.int64, "sparse keys", 2)]
    ids: Annotated[np.ndarray, kind_of(np.int64, "keys")]
    # open-addressing table: the slot in each cell, or NONE if the cell is empty
    slot_table: Annotated[np.ndarray, kind_of(np.int32, "cells of the slot table")]
    totals: Annotated[np.ndarray, kind_of(np.int64, N_TOTALS)]


NODE = np.dtype(
    [
        ("child", np.int32, (2,)),  # places of the left and the right child
        ("below", np.int32, (2,)),  # number of memories below each child
        ("parent", np.int32),
        ("generation", np.int32),  # number of times that the row was freed
        ("examples", np.int64),  # number of memories that INSERT trained the router on
        ("mistakes", np.int64),  # number of these that the router, once trained, sends to the wrong side
        ("bias", np.float32),  # bias of the router
        ("bias_square", np.float32),  # AdaGrad accumulator of the bias
        ("departed", np.int32),  # number of memories removed below the node since its router last forgot features
        ("table_start", np.int32),  # start of a sparse router's table, see ``sparse_weights.py``
        ("table_bits", np.int32),  # log2 of the table's size; 0 without a table, as in all unused rows
        ("table_used", np.int32),  # number of features in the table
    ],
    align=True,
)
"""An internal node except for its router's weights. A record has 64 bytes, the size of a cache line."""

LEAF = np.dtype([("size", np.int32), ("parent", np.int32)])  # leaf without its members
WEIGHT_CELL = np.dtype([("feature", np.int32), ("weight", np.float32), ("square", np.float32)])
"""A cell of a sparse router's table: a feature, its weight, and the weight's AdaGrad accumulator."""


class ModelWeights(NamedTuple):
    """The weights of linear models and their AdaGrad accumulators, which are sums of squared gradients.

    The weights of a dense model ``v`` are ``n_features`` entries of ``dense`` from ``v * 2 * n_features`` on, and
    its accumulators are the next ``n_features`` entries. A sparse model has an open-addressing table of
    ``2 ** table_bits`` cells of ``table``, which contains only features that the model was trained on.
    """

    dense: Annotated[np.ndarray, kind_of(np.float32, "trees", "cells of dense models")]  # empty if sparse
    table: Annotated[np.ndarray, kind_of(WEIGHT_CELL, "trees", "cells of sparse models")]  # empty if dense


class Scorer(NamedTuple):
    """The weights of the global scorer and their AdaGrad accumulators, which are empty before the first reward."""

    theta: Annotated[np.ndarray, kind_of(np.float32, "weights of the scorer")]
    squares: Annotated[np.ndarray, kind_of(np.float32, "weights of the scorer")]


class Trees(NamedTuple):
    """The shape of all trees: arrays of a :class:`State`, and the parameters that searches use."""

    nodes: np.ndarray  # NODE (trees, nodes): links and counts; :class:`LinearModels` owns the other fields
    leaves: np.ndarray  # LEAF (trees, leaves)
    members: np.ndarray  # int32 (trees, leaves, width): the slots in each leaf
    leaf_of: np.ndarray  # int32 (trees, capacity): the leaf of each slot
    counters: np.ndarray  # int64 (trees, N_COUNTERS)
    streams: np.ndarray  # uint64 (trees + 1,)
    sure_margin: float  # the margin at which searches consider a router certain
    leaf_multiplier: float  # see :func:`leaf_limit`


class LinearModels(NamedTuple):
    """Linear models that learn online: the routers of a forest, or the label scorers of a head.

    They own the fields ``bias``, ``bias_square`` and ``table_*`` of node records, and the table columns of counters.
    """

    n_features: int
    sparse: Known
    nodes: np.ndarray  # NODE (trees, nodes)
    weights: np.ndarray  # float32 (trees, cells): weights of dense models, see :class:`ModelWeights`
    table: np.ndarray  # WEIGHT_CELL (trees, cells): tables of sparse models
    counters: np.ndarray  # int64 (trees, N_COUNTERS)


class KeyStore(NamedTuple):
    """A key store as kernels receive it: the arrays of :class:`KeyArrays` and the type of the keys."""

    n_features: int
    sparse: Known
    values: np.ndarray
    indices: np.ndarray
    spans: np.ndarray
    ids: np.ndarray
    slot_table: np.ndarray
    totals: np.ndarray


class ForestView(NamedTuple):
    """A forest as kernels receive it."""

    parameters: Parameters
    trees: Trees
    routers: LinearModels
    keys: KeyStore
    scorer: Scorer


class TreeRange(NamedTuple):
    """The trees ``first:stop`` of a forest."""

    first: int
    stop: int


class State(NamedTuple):
    """All arrays of a forest."""

    parameters: Parameters
    keys: KeyArrays
    nodes: Annotated[np.ndarray, kind_of(NODE, "trees", "nodes")]
    leaves: Annotated[np.ndarray, kind_of(LEAF, "trees", "leaves")]
    members: Annotated[np.ndarray, kind_of(np.int32, "trees", "leaves", "members of a leaf")]  # the slots in each leaf
    leaf_of: Annotated[np.ndarray, kind_of(np.int32, "trees", "places of keys")]  # the leaf that holds each slot
    weights: ModelWeights
    scorer: Scorer
    counters: Annotated[np.ndarray, kind_of(np.int64, "trees", N_COUNTERS)]
    streams: Annotated[np.ndarray, kind_of(np.uint64, "streams")]  # one for each tree, and one for queries

    @property
    def trees(self) -> Trees:
        """The shape of the trees."""
        arrays = self.nodes, self.leaves, self.members, self.leaf_of, self.counters, self.streams
        return Trees(*arrays, self.parameters.sure_margin, self.parameters.leaf_multiplier)

    @property
    def models(self) -> LinearModels:
        """The routers."""
        return linear_models(self)

    def view(self) -> Any:
        """Return the state as kernels receive it."""
        keys = key_store(self.parameters, self.keys)
        return held(ForestView(self.parameters, self.trees, self.models, keys, self.scorer))


def key_store(parameters: Any, keys: KeyArrays) -> KeyStore:
    """Return the key store of a forest or of examples for kernels."""
    return KeyStore(parameters.n_features, known(parameters.sparse), *keys)


def linear_models(state: Any) -> LinearModels:
    """Return the linear models of a forest or of a head."""
    parameters, weights = state.parameters, state.weights
    return LinearModels(
        parameters.n_features, known(parameters.sparse), state.nodes, weights.dense, weights.table, state.counters
    )


@inner_exported
def leaf_limit(leaf_multiplier, n):
    """Return the maximum number of memories in a leaf of a tree of ``n`` memories: ``c * log2(n)``, at least 1."""
    if n < 2:
        return 1
    return max(1, int(leaf_multiplier * np.log2(n)))


def new_keys() -> KeyArrays:
    """Return an empty key store."""
    return KeyArrays(
        values=np.empty(0, np.float32),
        indices=np.empty(0, np.int32),
        spans=np.empty((0, 2), np.int64),
        ids=np.empty(0, np.int64),
        slot_table=np.full(1, NONE, np.int32),
        totals=np.zeros(N_TOTALS, np.int64),
    )


def new_state(parameters: Parameters, streams: np.ndarray) -> State:
    """Return the state of an empty forest, in which each tree is a single leaf."""
    trees = parameters.n_trees
    counters = np.full((trees, N_COUNTERS), NONE, np.int64)
    counters[:, [COUNT, NODES_END, TABLES_END, CELLS_WANTED, REROUTES_LEFT]] = 0
    counters[:, ROOT] = ~0
    counters[:, LEAVES_END] = 1
    return State(
        parameters=parameters,
        keys=new_keys(),
        nodes=np.empty((trees, 0), NODE),
        leaves=np.array([[(0, NONE)]] * trees, LEAF),
        members=np.empty((trees, 1, 1), np.int32),
        leaf_of=np.empty((trees, 0), np.int32),
        weights=ModelWeights(dense=np.empty((trees, 0), np.float32), table=np.empty((trees, 0), WEIGHT_CELL)),
        scorer=Scorer(theta=np.empty(0, np.float32), squares=np.empty(0, np.float32)),
        counters=counters,
        streams=streams.copy(),
    )


def count_bytes(state: State) -> int:
    """Return the number of allocated bytes of a state's arrays."""
    total = 0
    for part in state:
        arrays = part if isinstance(part, tuple) else (part,)
        total += sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))
    return total
