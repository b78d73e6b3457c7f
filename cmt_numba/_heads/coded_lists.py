"""Lists of dense vectors as 8-bit codes, laid out for products with a few rows at a time.

A search computes upper bounds of scores from the codes (Cauchy-Schwarz inequality). It computes exact scores only of
vectors whose bounds show that they may be among the best. The results are therefore the same as without codes.
"""

from typing import NamedTuple

import numpy as np

from .._forest import NONE
from .._jit import FEATURES_OF_A_WORD, LARGEST_CODE, TILE, Tiles

_CODED_AT_ONCE = 1 << 22  # number of values to code in one batch
_LARGEST = np.float32(LARGEST_CODE)
_MIDDLE = 64
_ROUNDING, _ROUNDING_EACH = 1e-6, 1e-8  # rounding errors of a sum and of each product, relative to a vector's length
_LEAST = 1e-30  # smallest error bound of a score


class CodedLists(NamedTuple):
    """Lists of vectors in tiles of 32. A list is a chain of tiles, one of which may be padded."""

    heads: np.ndarray  # int64 (n_lists,): the first tile of each list, NONE if the list is empty
    nexts: np.ndarray  # int64 (n_tiles,): the next tile of the same list, NONE for its last tile
    labels: np.ndarray  # int64 (32 * n_tiles,): the label of each vector, NONE for padding
    tiles: Tiles  # codes, with error terms that turn scores into upper bounds; minus infinity for padding
    longest: float  # maximum length of a decoded vector
    zero: int  # the code for 0 in queries


def zero_for(rows: np.ndarray) -> int:
    """Return the code for 0 in rows like these. Codes are unsigned, but values may be negative."""
    return _MIDDLE if rows.min(initial=0.0) < 0.0 else 0


def coded_lists(
    vectors: np.ndarray, biases: np.ndarray | None, list_of: np.ndarray, n_lists: int, zero: int
) -> CodedLists:
    """Return coded lists of vectors.

    Parameters
    ----------
    vectors : ndarray of float32, shape (n, n_features)
        The vectors.
    biases : ndarray of float32, shape (n,), or None
        Biases to add to the scores.
    list_of : ndarray of int64, shape (n,)
        The list of each vector.
    n_lists : int
        The number of lists.
    zero : int
        The code for 0 in queries.
    """
    n, d = vectors.shape
    sizes = np.bincount(list_of, minlength=n_lists)
    starts = np.concatenate([[0], np.cumsum(-(-sizes // TILE))])
    order = np.argsort(list_of, kind="stable")
    first = np.cumsum(sizes) - sizes
    labels = np.full(starts[-1] * TILE, NONE)
    labels[np.arange(n) + np.repeat(starts[:-1] * TILE - first, sizes)] = order
    n_groups = -(-d // FEATURES_OF_A_WORD)
    width = FEATURES_OF_A_WORD * n_groups
    codes = np.zeros((starts[-1], n_groups, TILE, FEATURES_OF_A_WORD), np.int8)
    begun, scales, most = (
        np.zeros(labels.size, np.int32),
        np.zeros(labels.size, np.float32),
        np.full(labels.size, -np.inf, np.float32),
    )
    longest, length = 0.0, max(1, _CODED_AT_ONCE // (TILE * width))
    for tile in range(0, codes.shape[0], length):
        some = slice(tile * TILE, (tile + length) * TILE)
        taken = labels[some] != NONE
        of_labels = labels[some][taken]
        exact = vectors[of_labels]
        scale = np.maximum(np.abs(exact).max(axis=1) / _LARGEST, np.finfo(np.float32).tiny)
        code = np.rint(exact / scale[:, None])
        meant = code * scale[:, None]
        lengths = np.sqrt(np.einsum("ij,ij->i", meant, meant))
        left_out = np.sqrt(np.einsum("ij,ij->i", exact - meant, exact - meant))
        error = 1.001 * left_out + (_ROUNDING + _ROUNDING_EACH * d) * lengths + _LEAST
        if biases is not None:
            error += biases[of_labels] + _ROUNDING * np.abs(biases[of_labels])
        padded = np.zeros((taken.size, width), np.int8)
        padded[taken, :d] = code
        codes[tile : tile + length] = padded.reshape(-1, TILE, n_groups, FEATURES_OF_A_WORD).transpose(0, 2, 1, 3)
        begun[some] = -zero * padded.sum(axis=1, dtype=np.int32)
        scales[some][taken] = scale
        most[some][taken] = error
        longest = max(longest, float(lengths.max(initial=0.0)))
    tiles = Tiles(codes.reshape(-1), begun, scales, most)
    return CodedLists(*chained(starts), labels, tiles, longest, zero)


def chained(starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ``heads`` and ``nexts`` for consecutive tiles: list ``j`` has the tiles ``starts[j]:starts[j + 1]``."""
    nexts, some = np.arange(1, starts[-1] + 1), np.diff(starts) > 0
    nexts[starts[1:][some] - 1] = NONE
    return np.where(some, starts[:-1], NONE), nexts
