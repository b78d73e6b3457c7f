"""The Contextual Memory Tree: its state as named tuples of arrays, and the kernels that read and change it.

``invariants`` contains the checks that arrays must pass before kernels may use them.
"""

from . import invariants
from .allocation import check_trimmed, compacted, trimmed, trimmed_state, with_more, with_room_for_keys, with_spare_room
from .eviction import EVICTIONS, Eviction, new_eviction
from .evidence import MEANS, N_GROUPS, N_SUMS, Evidence, weigh_rewards
from .exploration import add_explored, explore_rows
from .filtering import UNRESTRICTED, Restriction, are_few, restriction_to, score_slots
from .insert_remove import (
    Turn,
    begin_reroutes,
    insert_slots,
    overwrite_keys,
    reinsert_slots,
    remove_memories,
    undo_moves,
    withdraw_slots,
)
from .invariants import Leaves
from .partition import with_tree, without_trees
from .routers import RouterLoss
from .scorer import ScorerLoss
from .search import query_rows
from .state import (
    COUNT,
    LEAF,
    NODE,
    NODES_END,
    SHAPE,
    Parameters,
    Scorer,
    State,
    TreeRange,
    count_bytes,
    new_state,
)
from .update import RouterLesson, forget_routes, teach_trees, update_scorer, update_trees
