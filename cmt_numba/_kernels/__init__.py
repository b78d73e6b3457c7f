"""Building blocks of kernels: rows, keys, hash tables, random numbers, sorted results, and checks of arrays."""

from .best import Best, answer, best_at, new_best, new_bests, offer
from .columns import SMALLEST, GrowingColumns, larger_capacity, resized, with_room
from .constants import LEFT, MAX_MEMORIES, MOST_FEATURES, NONE, RIGHT
from .hash_table import belongs_before, enter_place, find_feature, find_place, hash_feature, hash_number
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
from .invariants import (
    InvariantError,
    all_finite,
    all_within,
    are_offsets,
    check_key_frame,
    check_keys,
    check_layout,
    check_runs,
    require,
)
from .key_allocation import (
    fill_slot_table,
    keys_with_room,
    slot_table_size,
    trimmed_keys,
    with_cells,
    with_ids,
    with_room_for_cells,
)
from .key_store import (
    LONGEST,
    N_MEMORIES,
    NEXT_ID,
    VALUES_END,
    VALUES_LIVE,
    KeyArrays,
    KeyStore,
    append_keys,
    drop_key,
    enter_slot,
    erase_id,
    find_slot,
    find_slots,
    key_of,
    key_store,
    longest_key,
    new_keys,
    overwrite_key,
    prefetch_key,
    prefetch_span,
    store_keys,
    stored_rows,
)
from .moved_keys import move_keys, moves_of
from .probes import (
    Probe,
    aim_probe,
    cell_for,
    clear_probe,
    gathered_dot,
    new_probe,
    new_probes,
    probe_at,
    probed_dot,
    room_for_probe,
    score,
    value_of,
)
from .rng import draw_word, mix, next_word, peek_below, random_below, unit_of
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
    square_of_row,
    squared_length,
    standardize_rows,
)
from .structures import arrays_of, kind_of, numbers_of, put_together, writeable
from .top_k import keep_best, lower_bound, new_held_scores, select_few, sort_best_first, top_k
