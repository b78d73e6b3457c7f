"""Linear models that learn online: the routers of trees and the label scorers of heads."""

from .allocation import (
    MAX_CELLS,
    SPARE,
    check_trimmed_models,
    max_cells_in_use,
    trimmed_models,
    used_part,
    with_room_for_models,
    with_tables,
)
from .invariants import check_model_frame, check_models
from .linear_model import (
    adagrad_step,
    add_row,
    add_squares,
    add_sum,
    add_to_sum,
    dense_start,
    descend,
    locate_or_insert,
    located_margin,
    located_sum,
    margin_of,
    new_workspace,
    prefetch_weights,
    probed_margin,
    release_model,
    reset_model,
    reset_sum,
    reset_weights,
    scale_weights,
)
from .models import (
    CELLS_WANTED,
    DONE,
    FREE_TABLES,
    MODEL,
    MODEL_FIELDS,
    MODELS_END,
    N_MODEL_COUNTERS,
    ONLY_GROUP,
    SMALLEST_TABLE_BITS,
    TABLES_END,
    TABLES_FULL,
    WEIGHT_CELL,
    LinearModels,
    ModelWeights,
)
from .sparse_weights import (
    copy_heavy_cells,
    erase_cell,
    find_cell,
    locate_or_insert_cells,
    request_cells,
    table_bits,
    table_start,
)
