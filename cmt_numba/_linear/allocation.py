"""Functions that enlarge the arrays of linear models, and store tables contiguously.

All new arrays are complete before they replace the old ones, so nothing changes if memory runs out.
"""

from typing import TypeVar

import numpy as np

from .._jit import by_reference, kernel
from .._kernels import NONE, require, resized
from .models import (
    CELLS_WANTED,
    FREE_TABLES,
    MODELS_END,
    N_MODEL_COUNTERS,
    SMALLEST_TABLE_BITS,
    TABLES_END,
    WEIGHT_CELL,
    HasModels,
    LinearModels,
)
from .sparse_weights import table_start

SPARE = 1.1  # maximum ratio of allocated to expected size of an array after a large insert

MAX_CELLS = 2 ** (31 + SMALLEST_TABLE_BITS)
"""Maximum number of table cells in one group, because table starts are int32; see ``sparse_weights.py``."""

Owner = TypeVar("Owner", bound=HasModels)


def with_room_for_models(owner: Owner, size: int) -> Owner:
    """Return a forest or a head with room for ``size`` models in each group. New records are zeros."""
    models = owner.models
    weights = models.weights if models.sparse else resized(models.weights, size * 2 * models.n_features, 1)
    return owner.with_models(models._replace(records=resized(models.records, size, 1, fill=0), weights=weights))


def max_cells_in_use(models: LinearModels) -> int:
    """Return the number of table cells in use in the group that uses the most."""
    bits = models.records["table_bits"].astype(np.int64)
    return int(np.where(bits > 0, 1 << bits, 0).sum(axis=1).max())


def with_tables(owner: Owner, size: int) -> Owner:
    """Return a forest or a head with contiguous tables and room for ``size`` table cells in each group."""
    if size > MAX_CELLS:
        raise MemoryError(f"a group of models cannot have more than {MAX_CELLS} cells, but {size} are needed")
    old = owner.models
    table = np.empty((len(old.records), size), WEIGHT_CELL)
    models = old._replace(records=old.records.copy(), counters=old.counters.copy(), table=table)
    copy_tables(models, old.table)
    models.counters[:, CELLS_WANTED] = 0
    return owner.with_models(models)


@kernel
def copy_tables(models, source):
    """Copy tables, their starts and their counters to contiguous cells of ``models``, which must have room."""
    models = by_reference(models)
    for t in range(models.counters.shape[0]):
        end = np.int64(0)
        for node in range(models.counters[t, MODELS_END]):
            record = models.records[t, node]
            if record["table_bits"] > 0:
                start, size = table_start(models, t, node), 1 << np.int64(record["table_bits"])
                for i in range(size):
                    models.table[t, end + i] = source[t, start + i]
                record["table_start"] = end >> SMALLEST_TABLE_BITS
                end += size
        models.counters[t, TABLES_END] = end
        models.counters[t, FREE_TABLES:N_MODEL_COUNTERS] = NONE


# Files: saving drops spare capacity and zeroes unused entries. Files therefore have minimum size, equal states produce
# equal files, and removed memories leave no trace. A loaded state behaves exactly like the saved one.


def trimmed_models(owner: Owner) -> Owner:
    """Return a forest or a head without spare capacity of models. It may share arrays with ``owner``."""
    models = owner.models
    ends = models.counters[:, MODELS_END]
    models = models._replace(records=used_part(models.records, ends), counters=models.counters.copy())
    if models.sparse:
        models = with_tables(owner.with_models(models), max_cells_in_use(models)).models
        models.records["table_start"][models.records["table_bits"] == 0] = 0  # freed records keep stale values
        models.table[models.table["feature"] == NONE] = (NONE, 0.0, 0.0)
        for group, end in enumerate(models.counters[:, TABLES_END]):  # ``with_tables`` has copied the table
            models.table[group, int(end) :] = 0
    else:
        models = models._replace(weights=used_part(models.weights, ends * 2 * models.n_features))
    models.counters[:, CELLS_WANTED] = 0
    return owner.with_models(models)


def check_trimmed_models(owner: HasModels) -> None:
    """Raise InvariantError if models were saved during a step."""
    require(not owner.models.counters[:, CELLS_WANTED].any(), "an insert is unfinished")


def used_part(array: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return the used entries of all groups, shape (groups, max(ends), ...), padded with zeros.

    The result is a copy, except for the weights of a single dense group, which may be large and need no padding.
    """
    used: np.ndarray = array[:, : int(ends.max())]
    if len(ends) == 1 and array.ndim == 2 and not array.dtype.names:
        return used
    used = used.copy()
    for group, end in enumerate(ends):
        used[group, int(end) :] = 0
    return used
