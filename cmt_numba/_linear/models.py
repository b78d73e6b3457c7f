"""The arrays of many linear models that learn online.

Models form *groups*, the first axis of all arrays, so that threads can grow the models of different groups at the same
time. The routers of each tree of a forest are a group. All label scorers of a head are one group.
"""

from typing import Annotated, Any, NamedTuple, Protocol

import numpy as np

from .._jit import Known
from .._kernels import kind_of

ONLY_GROUP = 0  # the group of a head's models

# Columns of ``LinearModels.counters``. A forest has further columns.
MODELS_END = 0  # number of records ever used
TABLES_END = 1  # number of table cells ever used
CELLS_WANTED = 2  # after TABLES_FULL: the number of free cells that the kernel needs to continue
FREE_TABLES = 3  # FREE_TABLES + b: head of the free list of tables of 2**b cells
N_TABLE_SIZES = 32
N_MODEL_COUNTERS = FREE_TABLES + N_TABLE_SIZES

# The status of a kernel: DONE, or the array that must grow.
DONE = 0
TABLES_FULL = 1

SMALLEST_TABLE_BITS = 4

MODEL_FIELDS = [
    ("bias", np.float32),
    ("bias_square", np.float32),  # AdaGrad accumulator of the bias
    ("table_start", np.int32),  # start of a sparse model's table, see ``sparse_weights.py``
    ("table_bits", np.int32),  # log2 of the table's size; 0 without a table, as in all unused records
    ("table_used", np.int32),  # number of features in the table
]
"""The fields that a record must have to contain a model. A record may have further fields."""

MODEL = np.dtype([*MODEL_FIELDS, ("sum_square", np.float32)])
"""A model except for its weights, and the squared length of the sum of rows, if accumulators store one."""

WEIGHT_CELL = np.dtype([("feature", np.int32), ("weight", np.float32), ("square", np.float32)])
"""A cell of a sparse model's table: a feature, its weight, and the weight's AdaGrad accumulator."""


class ModelWeights(NamedTuple):
    """The weights of linear models and their AdaGrad accumulators, which are sums of squared gradients.

    The weights of a dense model ``v`` are ``n_features`` entries of ``dense`` from ``v * 2 * n_features`` on, and
    its accumulators are the next ``n_features`` entries. A sparse model has an open-addressing table of
    ``2 ** table_bits`` cells of ``table``, which contains only features that the model was trained on.
    """

    dense: Annotated[np.ndarray, kind_of(np.float32, "groups", "cells of dense models")]  # empty if sparse
    table: Annotated[np.ndarray, kind_of(WEIGHT_CELL, "groups", "cells of sparse models")]  # empty if dense


class LinearModels(NamedTuple):
    """Linear models as kernels receive them. They own the ``MODEL_FIELDS`` of records."""

    n_features: int
    sparse: Known
    records: np.ndarray  # (groups, records), with ``MODEL_FIELDS``
    weights: np.ndarray  # float32 (groups, cells): weights of dense models, see :class:`ModelWeights`
    table: np.ndarray  # WEIGHT_CELL (groups, cells): tables of sparse models
    counters: np.ndarray  # int64 (groups, N_MODEL_COUNTERS or more)


class HasModels(Protocol):
    """A forest or a head."""

    @property
    def models(self) -> LinearModels:
        """The models."""

    def with_models(self, models: LinearModels) -> Any:
        """Return a copy with other models."""
