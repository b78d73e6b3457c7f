"""The state of a forest as named tuples of arrays.

Every array has one owner and one meaning. A :class:`State` contains all arrays of a forest. Kernels receive them as a
few named tuples: :class:`Trees`, :class:`LinearModels` and :class:`KeyStore`. Arrays of trees have
the tree as their first axis, so threads can grow different trees at the same time.

A *slot* is a memory's row in the key store. Slots are contiguous from 0, because a removal moves the last memory into
the gap. A *place* is an internal node (``place >= 0``) or a leaf (``place < 0``, with the number ``~place``).
"""

from typing import Annotated, Any, NamedTuple, Self

import numpy as np

from .._jit import held, inner_exported, known
from .._kernels import NONE, KeyArrays, KeyStore, key_store, kind_of, new_keys
from .._linear import (
    CELLS_WANTED,
    MODEL_FIELDS,
    MODELS_END,
    N_MODEL_COUNTERS,
    TABLES_END,
    TABLES_FULL,
    WEIGHT_CELL,
    LinearModels,
    ModelWeights,
)

# Columns of ``State.counters``, which has a row for each tree. Those of its routers come first.
NODES_END = MODELS_END  # number of node rows ever used; each of them is live or on the free list
ROOT = N_MODEL_COUNTERS  # place of the root
COUNT = ROOT + 1  # number of memories in the tree, whose slots are 0:COUNT
FREE_NODE = ROOT + 2  # head of the free list of nodes, linked by the field ``parent``
LEAVES_END = ROOT + 3  # number of leaf rows ever used
FREE_LEAF = ROOT + 4  # head of the free list of leaves, linked by the field ``parent``
REROUTES_LEFT = ROOT + 5  # number of pending reroutes
MOVING_SLOT = ROOT + 6  # slot of the memory that is being moved, or NONE
MOVING_PLACE = ROOT + 7  # node or leaf at which the moving memory is
MOVED_FROM = ROOT + 8  # former leaf of the memory, NONE for a new one
N_COUNTERS = ROOT + 9
SHAPE = [ROOT, COUNT, NODES_END, FREE_NODE, LEAVES_END, FREE_LEAF]  # the columns that are equal in equal trees

# Further statuses of kernels: the array that must grow.
NODES_FULL = TABLES_FULL + 1
LEAVES_FULL = TABLES_FULL + 2


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


NODE = np.dtype(
    [
        ("child", np.int32, (2,)),  # places of the left and the right child
        ("below", np.int32, (2,)),  # number of memories below each child
        ("parent", np.int32),
        ("generation", np.int32),  # number of times that the row was freed
        ("examples", np.int64),  # number of memories that INSERT trained the router on
        ("mistakes", np.int64),  # number of these that the router, once trained, sends to the wrong side
        ("departed", np.int32),  # number of memories removed below the node since its router last forgot features
        *MODEL_FIELDS,  # the router
    ],
    align=True,
)
"""An internal node except for its router's weights. A record has 64 bytes, the size of a cache line."""
LEAF = np.dtype([("size", np.int32), ("parent", np.int32)])  # leaf without its members


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
        parameters, weights = self.parameters, self.weights
        return LinearModels(parameters.n_features, known(parameters.sparse), self.nodes, *weights, self.counters)

    def with_models(self, models: LinearModels) -> Self:
        """Return a copy with other routers, whose records are the nodes."""
        weights = ModelWeights(models.weights, models.table)
        return self._replace(nodes=models.records, weights=weights, counters=models.counters)

    def view(self) -> Any:
        """Return the state as kernels receive it."""
        keys = key_store(self.parameters, self.keys)
        return held(ForestView(self.parameters, self.trees, self.models, keys, self.scorer))


@inner_exported
def leaf_limit(leaf_multiplier, n):
    """Return the maximum number of memories in a leaf of a tree of ``n`` memories: ``c * log2(n)``, at least 1."""
    if n < 2:
        return 1
    return max(1, int(leaf_multiplier * np.log2(n)))


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
