"""The whole state of a forest as arrays, and their meaning.

Every array has one owner and one meaning; together they are a :class:`State`. Kernels receive the arrays that they use
as a few named tuples: :class:`Trees`, :class:`LinearModels`, :class:`KeyStore`, :class:`CodeStore`. Arrays of trees
have the tree as their first axis, so several trees can grow at the same time without sharing memory.

A *slot* is a memory's row in the key store: slots are always ``0 .. n_memories - 1``, because a removal moves the
last memory into the gap. A *place* is an internal node (``place >= 0``) or a leaf (``place < 0``, leaf ``~place``).
"""

from typing import Annotated, Any, NamedTuple

import numpy as np

from .._jit import Known, held, inner_exported, known
from .structures import kind_of

# Typed, because Numba would compile a function for every Python integer that it is called with.
NONE = np.int64(-1)
"""No node, no leaf, no memory: the end of every list."""

LEFT = np.int64(0)
RIGHT = np.int64(1)

ONLY_TREE = np.int64(0)
"""The tree of a head, whose labels are stored like the nodes of a forest of one tree."""

MOST_FEATURES = 2**31 - 1
"""Feature indices are int32."""

MOST_MEMORIES = 2**31 - 1
"""Slots are int32."""

# Columns of ``State.counters``, which has a row for each tree.
ROOT = 0  # place of the root
COUNT = 1  # memories in the tree: exactly the slots 0 .. COUNT - 1
NODES_END = 2  # internal nodes ever used: rows below it are live or on the free list
FREE_NODE = 3  # head of the list of freed nodes, linked through their parents
LEAVES_END = 4
FREE_LEAF = 5  # head of the list of freed leaves, linked through their parents
TABLES_END = 6  # router storage ever used, in cells
CELLS_WANTED = 7  # with TABLES_FULL: router storage, in cells, that must be free to continue
REROUTES_LEFT = 8  # the current step, see ``insert_remove.py``
MOVING_SLOT = 9
MOVING_PLACE = 10
MOVED_FROM = 11
FREE_TABLES = 14  # and the columns after it: heads of the lists of freed router tables of 1, 2, 4, ... cells
N_TABLE_SIZES = 32
N_COUNTERS = FREE_TABLES + N_TABLE_SIZES

UNUSED_COUNTERS = {12: 0, 13: -1}
"""Columns of the counters that former versions used, with their values in files."""

# Entries of ``KeyArrays.totals``.
N_MEMORIES = 0
NEXT_ID = 1
VALUES_END = 2  # cells of ``KeyArrays.values`` ever used (sparse keys)
VALUES_LIVE = 3  # cells of ``KeyArrays.values`` that belong to a memory (sparse keys)
LONGEST = 4  # largest number of cells of any key so far
N_TOTALS = 5

# The status of a kernel. Except for DONE, it names the array that must grow.
DONE = 0
NODES_FULL = 1
LEAVES_FULL = 2
TABLES_FULL = 3

SMALLEST_TABLE_BITS = 4


class Parameters(NamedTuple):
    """The fixed parameters of a forest, passed to kernels by value."""

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
    coded: bool = False  # whether only the codes of dense keys are stored


class KeyArrays(NamedTuple):
    """The key store: unit-length float32 keys by slot, and the map from ids to slots.

    ``values`` is empty if only codes are stored.

    A dense key is ``values[slot * n_features : (slot + 1) * n_features]``; ``indices`` and ``spans`` are empty.
    A sparse key is the cells ``spans[slot, 0] .. spans[slot, 1]`` of ``values`` and ``indices``.
    """

    values: Annotated[np.ndarray, kind_of(np.float32, "cells")]
    indices: Annotated[np.ndarray, kind_of(np.int32, "cells of sparse keys")]
    spans: Annotated[np.ndarray, kind_of(np.int64, "sparse keys", 2)]
    ids: Annotated[np.ndarray, kind_of(np.int64, "keys")]
    # open addressing by id, NONE where empty
    slot_table: Annotated[np.ndarray, kind_of(np.int32, "cells of the slot table")]
    totals: Annotated[np.ndarray, kind_of(np.int64, N_TOTALS)]


NODE = np.dtype(
    [
        ("child", np.int32, (2,)),  # places
        ("below", np.int32, (2,)),  # memories below each child
        ("parent", np.int32),
        ("generation", np.int32),  # how often the row has been freed
        ("examples", np.int64),  # memories that INSERT has trained the router on
        ("mistakes", np.int64),  # of these, routed against their label after training
        ("bias", np.float32),  # of the router
        ("bias_square", np.float32),
        ("departed", np.int32),  # memories removed below the node since its router last forgot features
        ("table_start", np.int32),  # a sparse router's table, see ``sparse_weights.py``
        ("table_bits", np.int32),  # 0 without a table, as in all unused rows
        ("table_used", np.int32),
    ],
    align=True,
)
"""An internal node: 64 bytes, a single cache line for everything but the router's weights."""

LEAF = np.dtype([("size", np.int32), ("parent", np.int32), ("packed", np.int32)])
"""A leaf without its members. ``packed`` is the start of its codes in ``State.packed``, or NONE."""

WEIGHT_CELL = np.dtype([("feature", np.int32), ("weight", np.float32), ("square", np.float32)])
"""A sparse router's weight for one feature and its AdaGrad accumulator, in one cache line."""


class Routers(NamedTuple):
    """Weights of the routers and their AdaGrad accumulators, the sums of squared gradients.

    Dense: the weights of node ``v`` are ``n_features`` cells of ``weights`` from ``v * 2 * n_features``, and the
    accumulators the cells after these. Sparse: an open-addressing table of ``2 ** table_bits`` cells of ``table``,
    which holds only features that the node has seen.
    """

    weights: Annotated[np.ndarray, kind_of(np.float32, "trees", "cells of dense models")]  # dense only
    table: Annotated[np.ndarray, kind_of(WEIGHT_CELL, "trees", "cells of sparse models")]  # sparse only


class Scorer(NamedTuple):
    """The global scorer's weights; both arrays are empty until the first reward."""

    theta: Annotated[np.ndarray, kind_of(np.float32, "weights of the scorer")]
    squares: Annotated[np.ndarray, kind_of(np.float32, "weights of the scorer")]


CODE_MARKS = np.dtype([("scale", np.float32), ("error", np.float32)])
"""The scale of a code, and its distance from the key; see ``quantization.py``."""


_NO_MARKS = np.empty(0, CODE_MARKS)


class Codes(NamedTuple):
    """8-bit codes of dense keys. Both arrays are empty if keys are sparse."""

    values: Annotated[np.ndarray, kind_of(np.int8, "cells of codes")]
    marks: Annotated[np.ndarray, kind_of(CODE_MARKS, "codes")]


class Packed(NamedTuple):
    """Copies of the codes in the order of each tree's leaves, for leaves that have not changed since packing.

    The first tree needs none: memories are stored in its order, see ``compaction.py``.
    """

    values: Annotated[np.ndarray, kind_of(np.int8, "further trees", "cells of packed codes")]
    marks: Annotated[np.ndarray, kind_of(CODE_MARKS, "further trees", "packed codes")]


class Trees(NamedTuple):
    """The shape of all trees: arrays of a :class:`State`, and the margin that searches use."""

    nodes: np.ndarray  # NODE (trees, nodes): links and counts; :class:`LinearModels` owns the other fields
    leaves: np.ndarray  # LEAF (trees, leaves)
    members: np.ndarray  # int32 (trees, leaves, width)
    leaf_of: np.ndarray  # int32 (trees, capacity)
    counters: np.ndarray  # int64 (trees, N_COUNTERS)
    streams: np.ndarray  # uint64 (trees + 1,)
    sure_margin: float  # the margin from which a router counts as sure


class LinearModels(NamedTuple):
    """Linear models that learn online: the routers of a forest, or the scorers of a head's labels.

    They own ``bias``, ``bias_square`` and the fields of the table in node records, and the counters of tables.
    """

    n_features: int
    sparse: Known
    nodes: np.ndarray  # NODE (trees, nodes)
    weights: np.ndarray  # float32 (trees, cells): dense only, see :class:`Routers`
    table: np.ndarray  # WEIGHT_CELL (trees, cells): sparse only
    counters: np.ndarray  # int64 (trees, N_COUNTERS)


class KeyStore(NamedTuple):
    """A key store with the form of its keys; the arrays are those of :class:`KeyArrays`.

    If keys are ``coded``, ``values`` and ``marks`` are those of :class:`Codes`.
    """

    n_features: int
    sparse: Known
    coded: Known
    values: np.ndarray
    indices: np.ndarray
    spans: np.ndarray
    ids: np.ndarray
    slot_table: np.ndarray
    totals: np.ndarray
    marks: np.ndarray  # CODE_MARKS: empty unless keys are coded


class CodeStore(NamedTuple):
    """The codes of dense keys; the arrays are those of :class:`Codes` and :class:`Packed`."""

    n_features: int
    values: np.ndarray
    marks: np.ndarray
    packed_values: np.ndarray
    packed_marks: np.ndarray


class ForestView(NamedTuple):
    """A forest in the form that kernels receive."""

    parameters: Parameters
    trees: Trees
    routers: LinearModels
    keys: KeyStore
    codes: CodeStore
    scorer: Scorer


class TreeRange(NamedTuple):
    """The trees ``first`` up to ``stop`` of a forest."""

    first: int
    stop: int


class State(NamedTuple):
    """All arrays of a forest. Kernels receive the parts that they use."""

    parameters: Parameters
    keys: KeyArrays
    codes: Codes
    packed: Packed
    nodes: Annotated[np.ndarray, kind_of(NODE, "trees", "nodes")]
    leaves: Annotated[np.ndarray, kind_of(LEAF, "trees", "leaves")]
    members: Annotated[np.ndarray, kind_of(np.int32, "trees", "leaves", "members of a leaf")]  # the slots in each leaf
    leaf_of: Annotated[np.ndarray, kind_of(np.int32, "trees", "places of keys")]  # the leaf that holds each slot
    routers: Routers
    scorer: Scorer
    counters: Annotated[np.ndarray, kind_of(np.int64, "trees", N_COUNTERS)]
    streams: Annotated[
        np.ndarray, kind_of(np.uint64, "streams")
    ]  # a random stream for each tree, and the last for queries

    @property
    def trees(self) -> Trees:
        """The shape of the trees."""
        counters, streams = self.counters, self.streams
        sure_margin = self.parameters.sure_margin
        return Trees(self.nodes, self.leaves, self.members, self.leaf_of, counters, streams, sure_margin)

    @property
    def models(self) -> LinearModels:
        """The routers."""
        return linear_models(self)

    def view(self) -> Any:
        """Return the forest in the form that kernels receive. It is valid for this state only."""
        parameters, codes = self.parameters, self.codes
        keys = key_store(parameters, self.keys, codes if parameters.coded else None)
        code_store = CodeStore(parameters.n_features, *codes, *self.packed)
        return held(ForestView(parameters, self.trees, self.models, keys, code_store, self.scorer))


def key_store(parameters: Any, keys: KeyArrays, codes: Codes | None = None) -> KeyStore:
    """Return the key store of a forest or of examples. Pass ``codes`` if only codes are stored."""
    if codes is not None:
        keys = keys._replace(values=codes.values)
    form = parameters.n_features, known(parameters.sparse), known(codes is not None)
    return KeyStore(*form, *keys, _NO_MARKS if codes is None else codes.marks)


def linear_models(state: Any) -> LinearModels:
    """Return the linear models of a forest or of a head."""
    parameters, routers = state.parameters, state.routers
    return LinearModels(
        parameters.n_features, known(parameters.sparse), state.nodes, routers.weights, routers.table, state.counters
    )


@inner_exported
def leaf_limit(leaf_multiplier, n):
    """Return the largest number of memories in a leaf of a tree of ``n``: c log2(n), at least 1."""
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


def new_scorer() -> Scorer:
    """Return an untrained scorer, the cosine."""
    return Scorer(theta=np.empty(0, np.float32), squares=np.empty(0, np.float32))


def no_packed(trees: int) -> Packed:
    """Return empty packed codes."""
    return Packed(values=np.empty((trees - 1, 0), np.int8), marks=np.empty((trees - 1, 0), CODE_MARKS))


def new_state(parameters: Parameters, streams: np.ndarray) -> State:
    """Return the state of an empty forest with these random streams: each tree is one empty leaf."""
    trees = parameters.n_trees
    counters = np.full((trees, N_COUNTERS), NONE, np.int64)
    counters[:, [COUNT, NODES_END, TABLES_END, CELLS_WANTED, REROUTES_LEFT]] = 0
    counters[:, ROOT] = ~0
    counters[:, LEAVES_END] = 1
    return State(
        parameters=parameters,
        keys=new_keys(),
        codes=Codes(values=np.empty(0, np.int8), marks=np.empty(0, CODE_MARKS)),
        packed=no_packed(trees),
        nodes=np.empty((trees, 0), NODE),
        leaves=np.array([[(0, NONE, NONE)]] * trees, LEAF),
        members=np.empty((trees, 1, 1), np.int32),
        leaf_of=np.empty((trees, 0), np.int32),
        routers=Routers(
            weights=np.empty((trees, 0), np.float32),
            table=np.empty((trees, 0), WEIGHT_CELL),
        ),
        scorer=new_scorer(),
        counters=counters,
        streams=streams.copy(),
    )


def count_bytes(state: State) -> int:
    """Return the allocated bytes of the state's arrays."""
    total = 0
    for part in state:
        arrays = part if isinstance(part, tuple) else (part,)
        total += sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))
    return total
