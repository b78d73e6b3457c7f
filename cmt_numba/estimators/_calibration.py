"""Calibration on held-out examples: the scale of probabilities, and the threshold for label sets.

Probabilities are the softmax of scaled scores (temperature scaling; Guo et al., 2017). The scale, in logits per margin,
maximises the likelihood of held-out examples.
"""

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize_scalar

from .._kernels import NONE
from .._validation import check_real

LOGITS_PER_MARGIN = 4.0  # default scale: a lead of one margin means odds of 55 to 1
MAX_RANKED = 256  # best classes per row used in calibration; the others have almost no probability
FEWEST_HELD_OUT = 20  # minimum number of held-out examples for calibration
_LARGEST_THRESHOLD = 1e6

F1 = "f1"

_SHARE, _MOST = 0.2, 2000  # limits on held-out examples: fraction of all examples, and number
_ENOUGH = 500  # with fewer held-out examples, learn probabilities from several splits
_MAX_SPLITS, _SHARE_OF_SPLITS = 8, 0.08  # number of these splits, and held-out fraction in each
_MIN_LOGITS, _MAX_LOGITS = 0.1, 1e3  # range of logits per margin
FEWEST_FOR_THRESHOLD = 10.0  # minimum weight of held-out rows for a threshold other than 0
_ROUNDING = 1e-12
_STEPS_OF_SHARE = 100
THRESHOLDS = np.linspace(-1.0, 1.0, 201)  # from which ``threshold="f1"`` chooses. Margins of labels end at -1 and 1.


def held_out(
    n_examples: int, seed: int, never: np.ndarray | None = None, share: float = _SHARE
) -> tuple[np.ndarray, np.ndarray]:
    """Hold out a ``share`` of examples, at most 2,000 and none in ``never``; return their positions and the rest."""
    positions = np.arange(n_examples)
    possible = positions if never is None else np.delete(positions, never)
    n = min(_MOST, int(share * n_examples), possible.size)
    tested = np.sort(np.random.default_rng(seed).choice(possible, n, replace=False))
    return tested, np.delete(positions, tested)


def logits_per_margin(scores: np.ndarray, right: np.ndarray) -> float:
    """Return the logits per margin that maximise the likelihood of the correct classes."""
    return min_loss(scores, right)[0]


def min_loss(scores: np.ndarray, right: np.ndarray, slope: float | None = None) -> tuple[float, float]:
    """Return logits per margin, by default those with the least log loss of the correct classes, and that loss.

    ``scores`` are those of the best classes of each row in margins, best first; minus infinity for a missing class.
    ``right`` is the position of the correct class among them, or -1. The last class found then counts as correct.
    """
    with np.errstate(invalid="ignore"):
        behind = (scores - scores[:, :1]).astype(np.float64)
    last = np.isfinite(behind).sum(axis=1) - 1
    of_right = behind[np.arange(right.size), np.where(right == NONE, last, right)]

    def loss(log_slope: float) -> float:
        slope = np.exp(log_slope)
        return float(np.mean(np.log(np.exp(slope * behind).sum(axis=1)) - slope * of_right))

    if slope is None:
        bounds = (np.log(_MIN_LOGITS), np.log(_MAX_LOGITS))
        slope = float(np.exp(minimize_scalar(loss, bounds=bounds, method="bounded").x))
    return slope, loss(np.log(slope))


def learned_logits(
    labels: np.ndarray, margins_of: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
) -> float:
    """Return logits per margin learned from examples, or the default if there are too few.

    Few examples are split several times, because one split is noisy, and less is held out each time. ``margins_of``
    takes the positions of training and of held-out examples, and returns the arguments of :func:`logits_per_margin`.
    """
    needed = np.unique(labels, return_index=True)[1]  # each label keeps one example for training
    n_apart = held_out(labels.size, 0, never=needed)[0].size
    if n_apart < FEWEST_HELD_OUT:
        return LOGITS_PER_MARGIN
    n_splits = min(_MAX_SPLITS, -(-_ENOUGH // n_apart))
    share = _SHARE if n_splits == 1 else _SHARE_OF_SPLITS
    used = [held_out(labels.size, seed, needed, share) for seed in range(n_splits)]
    scores, positions = zip(*(margins_of(seen, tested) for tested, seen in used), strict=True)
    return logits_per_margin(np.concatenate(scores), np.concatenate(positions))


def prior_share(votes: np.ndarray, n_classes: int) -> float:
    """Return the share of equal probabilities that, mixed with shares of votes, suits held-out rows.

    ``votes`` are the shares for the correct classes. The share maximises their likelihood by expectation maximisation,
    as if one more vote had been right and one wrong, so that it is neither 0 nor 1.
    """
    share = 0.5
    for _ in range(_STEPS_OF_SHARE):
        by_prior = share / n_classes / (share / n_classes + (1.0 - share) * votes)
        share = (1.0 + float(by_prior.sum())) / (2.0 + votes.size)
    return share


def positions_in(found: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return the position of ``wanted[i]`` in ``found[i]`` for each row ``i``, or NONE if it is missing."""
    there = found == wanted[:, None]
    return np.where(there.any(axis=1), there.argmax(axis=1), NONE)


def check_threshold(value: float | str) -> None:
    """Raise TypeError or ValueError unless ``value`` is a number or "f1"."""
    if not isinstance(value, str):
        check_real("threshold", value, -_LARGEST_THRESHOLD, _LARGEST_THRESHOLD)
    elif value != F1:
        raise ValueError(f'threshold must be a number or "{F1}", got {value!r:.50}')


def f1_by_threshold(
    row: np.ndarray, scores: np.ndarray, is_right: np.ndarray, n_wanted: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """Return the sum over rows of the F1 of their label sets for each of ``THRESHOLDS``, and the sum of the weights.

    ``row``, ``scores`` and ``is_right`` describe the row-label pairs with a score above the lowest threshold. A row
    without labels, for which ``n_wanted`` is 0, has an F1 of 1 if no label is predicted.
    """
    # Column i counts the pairs whose score is above exactly i thresholds.
    n_rows, n_bins = n_wanted.size, THRESHOLDS.size + 1
    cells = row * n_bins + np.searchsorted(THRESHOLDS, scores)
    n_predicted, n_right = (_counts_above(some, n_rows, n_bins) for some in (cells, cells[is_right]))
    total = n_predicted + n_wanted[:, None]
    found = np.where(total > 0, 2 * n_right / np.maximum(total, 1), 1.0)
    return np.append(weights @ found, weights.sum(dtype=np.float64))


def best_threshold(sums: np.ndarray) -> float:
    """Return the threshold with the highest mean F1, the nearest to 0 of several; 0 if few rows have been counted."""
    if sums[-1] < FEWEST_FOR_THRESHOLD:
        return 0.0
    best = THRESHOLDS[sums[:-1] >= sums[:-1].max() * (1.0 - _ROUNDING)]
    return float(best[np.argmin(np.abs(best))])


def _counts_above(cells: np.ndarray, n_rows: int, n_bins: int) -> np.ndarray:
    """Return the number of entries of ``cells`` beyond each bin of each row, except the last bin."""
    counts = np.bincount(cells, minlength=n_rows * n_bins).reshape(n_rows, n_bins)
    return counts[:, :0:-1].cumsum(axis=1)[:, ::-1]
