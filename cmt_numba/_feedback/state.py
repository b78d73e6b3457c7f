"""The arrays of a feedback model, and the parts of its scores."""

from typing import NamedTuple

import numpy as np

from .._jit import COLUMNS

(SIMILAR, SHARE, MAPPED, DIAGONAL, MOVED, LINEAR, REPEATED, CLICKS, NEAR, CONSTANT, FRESH, LEAD) = range(12)
"""The parts of a score, see :mod:`cmt_numba._feedback.parts`."""

PART_NAMES = (
    "similarity",
    "share of similarity",
    "query map",
    "feature weights",
    "moved key",
    "weights of the memory",
    "repeated queries",
    "clicks",
    "rewarded queries",
    "constant",
    "fresh",
    "fresh: lead",
)
N_PARTS = len(PART_NAMES)

N_REGRESSED = CONSTANT + 1
"""Number of parts whose weights are learned by logistic regression: all but those of fresh memories."""

WIDEST = 1024
"""Largest number of features of dense keys that are not hashed, and of the map of queries."""

HASHED = 2 * WIDEST
"""Number of features of hashed keys. The map adds those that are ``WIDEST`` apart."""

MOST_PAST = 16
"""Number of past queries that a memory keeps."""

N_RECENT = 32
"""Number of steps of the map that are added to it together; a multiple of 4."""

FIRST_WEIGHTS = np.array([10.0, 0.0, 10.0, 0.5, 10.0, 0.5, 2.0, 1.0, 3.0, -5.0, 0.0, 1.0])
_RIDGE = 4.0  # precision of the first weights, in units of their squared size

SHOWN, EXPECTED, REWARDED, SQUARES, N_FIGURES = range(5)
"""Figures of a memory: its number of rewards, the sum that the other parts predicted, and their sum. Both sums fade."""

PAST, RECENT, N_ENDS = range(3)
"""The place of the next past query, and the number of recent steps of the map."""

ALL_SHOWN, ALL_REWARDED, SLOPE, INTERCEPT, OFFSET_SQUARES, TRIALS, GAIN, SQUARED_GAIN, N_TOTALS = range(9)
"""Totals: of all rewards; a logistic regression of rewards on the similarity; the gain over static ranking."""


class Learned(NamedTuple):
    """The learned state.

    A memory has a row in the arrays from ``ids`` to ``n_past`` once it was rewarded or unrewarded.
    """

    map: np.ndarray  # float32 (folded, folded): the map of queries; rows are features of the query, folded
    map_codes: np.ndarray  # int8 (blocks of 64 columns, pairs of rows, 128): its codes, see ``add_row_pairs``
    map_scales: np.ndarray  # float32 (folded,): the factors of the rows of codes
    recent_queries: np.ndarray  # float32 (N_RECENT, folded): the recent steps of the map, which it does not include yet
    recent_keys: np.ndarray  # float32 (N_RECENT, folded)
    diagonal: np.ndarray  # float32 (2, width): weights of features, and sums of squared gradients
    weights: np.ndarray  # float64 (N_PARTS,): the weights of the parts
    precision: np.ndarray  # float64 (N_REGRESSED, N_REGRESSED): the precision of ``weights``
    totals: np.ndarray  # float64 (N_TOTALS,)
    ids: np.ndarray  # int64 (rows,): the id of each memory
    moved: np.ndarray  # float32 (rows, width): the moved key of each memory
    linear: np.ndarray  # float32 (rows, width): the weights of each memory
    figures: np.ndarray  # float64 (rows, N_FIGURES)
    past_of: np.ndarray  # int32 (rows, MOST_PAST): places of past queries in ``past``, or -1
    n_past: np.ndarray  # int64 (rows,): the number of past queries so far
    past: np.ndarray  # int8 (places, width): codes of past queries
    past_scales: np.ndarray  # float32 (places,): their factors
    past_rewards: np.ndarray  # float32 (places,)
    past_rows: np.ndarray  # int32 (places,): the row of the memory of each past query, or -1
    ends: np.ndarray  # int64 (N_ENDS,)


def first_precision() -> np.ndarray:
    """Return the precision of the first weights."""
    return np.diag(_RIDGE / np.maximum(np.abs(FIRST_WEIGHTS[:N_REGRESSED]), 1.0) ** 2)


def new_state(width: int) -> Learned:
    """Return the state before the first reward."""
    totals = np.zeros(N_TOTALS)
    totals[[ALL_SHOWN, ALL_REWARDED, SLOPE, INTERCEPT, OFFSET_SQUARES]] = 2.0, 1.0, 10.0, -5.0, 1.0
    diagonal = np.zeros((2, width), np.float32)
    diagonal[1] = 1e-6
    folded = min(width, WIDEST)
    return Learned(
        np.zeros((folded, folded), np.float32),
        np.zeros((-(-folded // COLUMNS), -(-folded // 2), 2 * COLUMNS), np.int8),
        np.zeros(folded, np.float32),
        np.zeros((N_RECENT, folded), np.float32),
        np.zeros((N_RECENT, folded), np.float32),
        diagonal,
        FIRST_WEIGHTS.copy(),
        first_precision(),
        totals,
        np.empty(0, np.int64),
        np.empty((0, width), np.float32),
        np.empty((0, width), np.float32),
        np.empty((0, N_FIGURES)),
        np.empty((0, MOST_PAST), np.int32),
        np.empty(0, np.int64),
        np.empty((0, width), np.int8),
        np.empty(0, np.float32),
        np.empty(0, np.float32),
        np.empty(0, np.int32),
        np.zeros(N_ENDS, np.int64),
    )
