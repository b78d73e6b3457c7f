"""The state of a forest as named tuples of arrays, and the kernels that read and change it.

``invariants`` contains the checks that arrays must pass before kernels may use them.
"""

from . import invariants
from .allocation import (
    SPARE,
    compacted,
    fill_slot_table,
    keys_with_room,
    most_cells_in_use,
    slot_table_size,
    trimmed,
    with_ids,
    with_more,
    with_nodes,
    with_room_for_cells,
    with_room_for_keys,
    with_spare_room,
    with_tables,
)
from .columns import GrowingColumns, resized, with_room
from .eviction import EVICTIONS, Eviction, new_eviction
from .exploration import add_explored, explore_rows
from .filtering import UNRESTRICTED, Restriction, are_few, restriction_to, score_slots
from .hash_table import enter_place, find_place, hash_feature, hash_number
from .hits import (
    NO_ROOM,
    WORTH_KEEPING,
    Exploration,
    Explored,
    Feedback,
    Hits,
    Query,
    ShownHits,
    are_among,
    certain,
    joined,
    no_hits,
    rewarded_memories,
    rewarded_pairs,
    unexplored,
    with_runners_up,
    without_own,
)
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
from .invariants import (
    InvariantError,
    Leaves,
    all_finite,
    all_within,
    are_offsets,
    check_key_frame,
    check_keys,
    check_layout,
    check_model_frame,
    check_models,
    check_number_table,
    require,
)
from .key_store import append_keys, enter_slot, erase_id, find_slot, find_slots, key_of, store_keys, stored_rows
from .leaf_scan import answer, new_best, offer
from .linear_model import (
    adagrad_step,
    add_row,
    add_sum,
    add_to_sum,
    dense_start,
    locate_or_insert,
    located_sum,
    margin_of,
    new_workspace,
    probed_margin,
    release_model,
    reset_model,
    reset_weights,
)
from .moved_keys import move_keys, moves_of
from .partition import with_tree, without_trees
from .rng import draw_word, mix, next_word, random_below, unit_of
from .routers import RouterLoss
from .rows import (
    INVALID_CELLS,
    SORTED_CELLS,
    UNSCALED,
    Row,
    Rows,
    as_matrix,
    check_cells,
    dot,
    longest_row,
    measure_rows,
    normalize_rows,
    rescaled,
    row_of,
    sort_cells,
    squared_length,
)
from .scorer import Probe, ScorerLoss, aim_probe, gathered_dot, new_probe, probed_dot, room_for_probe, score, value_of
from .search import query_rows
from .sparse_weights import copy_heavy_cells, find_cell, locate_or_insert_cells, request_cells, table_bits, table_start
from .state import (
    CELLS_WANTED,
    COUNT,
    DONE,
    FREE_LEAF,
    FREE_NODE,
    FREE_TABLES,
    LEAF,
    LEAVES_END,
    LEFT,
    LONGEST,
    MOST_FEATURES,
    MOST_MEMORIES,
    MOVED_FROM,
    MOVING_PLACE,
    N_COUNTERS,
    N_MEMORIES,
    NEXT_ID,
    NODE,
    NODES_END,
    NONE,
    ONLY_TREE,
    RIGHT,
    ROOT,
    SMALLEST_TABLE_BITS,
    TABLES_END,
    TABLES_FULL,
    VALUES_END,
    VALUES_LIVE,
    WEIGHT_CELL,
    KeyArrays,
    KeyStore,
    LinearModels,
    ModelWeights,
    Parameters,
    Scorer,
    State,
    TreeRange,
    count_bytes,
    key_store,
    leaf_limit,
    linear_models,
    new_keys,
    new_state,
)
from .structures import arrays_of, kind_of, numbers_of, put_together, writeable
from .top_k import keep_best, lower_bound, new_held_scores, select_few, sort_best_first, top_k
from .update import RouterLesson, forget_routes, teach_trees, update_scorer, update_trees
