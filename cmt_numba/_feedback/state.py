"""The arrays of a feedback model, and the parts of its scores."""

from typing import NamedTuple

import numpy as np

from .._jit import COLUMNS

(CONSTANT, BEST, SIMILAR, QUERY, SECOND, THIRD, FOURTH, LATER) = range(8)
(MAPPED, DIAGONAL, VOTE, BROAD, VALUE, MOVED, FRESH) = range(8, 15)
"""The parts of a reward, see :mod:`cmt_numba._feedback.parts`."""

PART_NAMES = (
    "constant",
    "best similarity",
    "similarity",
    "similar queries",
    "second place",
    "third place",
    "fourth place",
    "later places",
    "query map",
    "feature weights",
    "votes",
    "broad votes",
    "value",
    "moved key",
    "fresh",
)
N_PARTS = len(PART_NAMES)

SHARP, N_SHARP, SHARP_PAIRS, WIDE, N_WIDE, WIDE_PAIRS, GENERAL, N_COLUMNS = range(N_PARTS, N_PARTS + 8)
"""Sums over the past queries of a memory, for a sharp kernel and a wide one: of advantages times the kernel, of the
kernel, and of its squares; and the reward by parts that need rewards, in which VOTE counts in proportion to its
uncertainty."""

N_REGRESSED = FRESH
"""Number of parts with learned weights. That of FRESH is 1."""

N_STATIC = MAPPED
"""Number of parts of the static model. The others are learned from rewards."""

WIDEST = 1024
"""Largest number of features of dense keys that are not hashed, and of the map of queries."""

HASHED = 2 * WIDEST
"""Number of features of hashed keys. The map adds those that are ``WIDEST`` apart."""

MOST_PAST = 16
"""Number of past queries that a memory keeps."""

N_PASSED = 3
"""A good reward is a known answer if each ranking in use puts at least this number of memories before it."""

N_RECENT = 32
"""Number of steps of the map that are added to it together; a multiple of 4."""

FIRST_WEIGHTS = np.array([0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.3, 0.3, 0.3, 0.0, 0.0, 0.0, 1.0])
FIRST_PRECISION = np.repeat([1.0, 3.0], [N_STATIC, N_PARTS - N_STATIC])

STATIC, LEARNED = range(2)
"""The regression on the parts of the static model, and that on all parts."""

SHOWN, REWARDED, TRIALS, ADVANTAGE, N_FIGURES = range(5)
"""Figures of a memory: the number and the sum of its rewards, and the same, fading, for rewards minus expected ones."""

PAST, RECENT, N_ENDS = range(3)
"""The place of the next past query, and the number of recent steps of the map."""

(OVER_STATIC, OVER_MEAN, WITHIN_STATIC, WITHIN_MEAN, REWARDS, N_REWARDS, SQUARES, N_SQUARES) = range(8)
(QUERIES, RECENT_QUERIES, APART, SQUARED_LIFT, LIFT, N_TOTALS) = range(8, 14)
"""Totals: the log-odds that the learned model predicts rewards better than the static one, and than their mean, and the
same for the differences between rewards of one query; the sum and the number of rewards; the squared errors of the
static model, and their number; the number of queries with rewards, all and recent, and of recent ones for which the
rankings disagree; and the sums for these of the squared lifts and of the lifts, the gains that the learned model
expects."""
EVIDENCE = slice(OVER_STATIC, REWARDS)

FIRST_EVIDENCE, MOST_EVIDENCE = -2.8, 20.0

PRODUCTS, PAIRS = range(2)
PAIRED_PARTS = (VOTE, BROAD, VALUE)
"""Sums over pairs of an advantage and an earlier one of the same memory, for the kernels of three parts: of the
products times the kernel, and of the squares of the kernel."""

WEIGHT, SQUARED_WEIGHT, SUM, SUM_OF_SQUARES, N_OUTCOMES = range(5)
"""Weighted sums over rewards of the first result of one ranking, for queries for which the rankings disagree: of the
weights, of their squares, of the errors of the expected reward, and of their squares. They fade."""


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
    weights: np.ndarray  # float64 (2, N_PARTS): the weights of the parts in the static and in the learned model
    precision: np.ndarray  # float64 (2, N_PARTS, N_PARTS): the precision of ``weights``
    totals: np.ndarray  # float64 (N_TOTALS,)
    pairs: np.ndarray  # float64 (3, 2): PRODUCTS and PAIRS for each of PAIRED_PARTS
    outcomes: np.ndarray  # float64 (2, N_OUTCOMES): of the static and of the learned ranking
    ids: np.ndarray  # int64 (rows,): the id of each memory
    moved: np.ndarray  # float32 (rows, width): the moved key of each memory
    figures: np.ndarray  # float64 (rows, N_FIGURES)
    past_of: np.ndarray  # int32 (rows, MOST_PAST): places of past queries in ``past``, or -1
    n_past: np.ndarray  # int64 (rows,): the number of past queries so far
    past: np.ndarray  # int8 (places, width): codes of past queries
    past_scales: np.ndarray  # float32 (places,): their factors
    past_advantages: np.ndarray  # float32 (places,): rewards minus expected rewards
    past_rows: np.ndarray  # int32 (places,): the row of the memory of each past query, or -1
    ends: np.ndarray  # int64 (N_ENDS,)


def new_state(width: int) -> Learned:
    """Return the state before the first reward."""
    totals = np.zeros(N_TOTALS)
    totals[EVIDENCE] = FIRST_EVIDENCE
    totals[[SQUARES, N_SQUARES, N_REWARDS]] = 0.25, 1.0, 1.0
    weights = np.tile(FIRST_WEIGHTS, (2, 1))
    weights[STATIC, N_STATIC:] = 0.0
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
        weights,
        np.tile(np.diag(FIRST_PRECISION), (2, 1, 1)),
        totals,
        np.zeros((len(PAIRED_PARTS), 2)),
        np.zeros((2, N_OUTCOMES)),
        np.empty(0, np.int64),
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
