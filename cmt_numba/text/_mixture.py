"""Weights of the scores of a text classifier, and its confidence, learned from held-out texts."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize, minimize_scalar

from ._class_model import log_softmax

FIRST_WEIGHTS = {"sums": 12.0, "vectors": 1.0, "dense": 4.0}
"""Initial weights: the logit of one unit of each score."""

_RATIOS = 2.0 ** np.arange(-6, 7)  # tried, of two weights, relative to these
_CAUTION = 0.05  # added to the error for each doubling of a ratio, over the root of the number of texts
_LIMITS = (-4.0, 4.0)  # limits of the logarithm of the scale of all weights
_LEAST = 1e-9  # probability of an error
_MOST_HELD_OUT = 2_000
_UNKNOWN = 0.75  # quantile of the best score without the right class: a text of no class scores about as high
NO_CONFIDENCE = np.array([-30.0, 1.0, 0.0])
"""Without held-out texts, the confidence is the probability."""


def folds_of(labels: np.ndarray, generator: np.random.Generator) -> list[np.ndarray]:
    """Return sets of texts to hold out.

    Every class keeps a training text. Few texts are all held out in turn, in five folds; of many, a fifth.
    """
    order = generator.permutation(labels.size)
    order = order[np.argsort(labels[order], kind="stable")]
    counts = np.bincount(labels)
    ends = np.cumsum(counts)
    rank = np.arange(labels.size) - np.repeat(ends - counts, counts)
    possible, part = np.repeat(counts, counts) > 1, rank % 5
    n_folds = 5 if labels.size <= 600 else 2 if labels.size <= 3_000 else 1
    folds = [order[possible & (part == fold)] for fold in range(n_folds)]
    return [generator.permutation(fold)[:_MOST_HELD_OUT] for fold in folds if fold.size]


def learn_weights_of_scores(scores: list[np.ndarray], labels: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Return the weights for a sum of several scores with few errors and reliable probabilities.

    The ratio of two scores is the one with the fewest errors, because the likelihood prefers smooth scores to accurate
    ones. Then the scale of the sum is learned. Few texts change it little.

    Parameters
    ----------
    scores : list of ndarray, shape (n_texts, n_classes)
        The scores of each kind for texts that were held out.
    labels : ndarray of int64, shape (n_texts,)
        The positions of the right classes.
    first : ndarray of float64, shape (n_kinds,)
        Weights without any evidence.
    """
    if labels.size == 0:
        return first
    weights, total = first[:1], scores[0] * first[0]
    for part, own in zip(scores[1:], first[1:], strict=True):
        errors = np.array([np.mean((total + part * own * ratio).argmax(axis=1) != labels) for ratio in _RATIOS])
        smooth = np.convolve(np.pad(errors, 1, "edge"), [0.25, 0.5, 0.25], "valid")
        ratio = _RATIOS[np.argmin(smooth + _CAUTION / np.sqrt(labels.size) * np.abs(np.log2(_RATIOS)))]
        weights, total = np.append(weights, own * ratio), total + part * own * ratio
    return weights * _scale(total, labels)


def _scale(logits: np.ndarray, labels: np.ndarray) -> float:
    """Return the factor with which the highest probability best predicts whether the answer is correct.

    The likelihood of the correct class would be dominated by the few texts whose class has a very low score.
    """
    is_right = logits.argmax(axis=1) == labels
    behind = logits - logits.max(axis=1, keepdims=True)

    def loss(log: float) -> float:
        sums = np.exp(behind * np.exp(log)).sum(axis=1)
        chances = np.where(is_right, 1.0 / sums, np.maximum(1.0 - 1.0 / sums, _LEAST))
        return float(0.5 * log * log / labels.size - np.log(chances).mean())

    return float(np.exp(minimize_scalar(loss, bounds=_LIMITS, method="bounded").x))


def weighted_sum(scores: list[np.ndarray], weights: np.ndarray) -> np.ndarray:
    """Return the sum of scores of several kinds: float64."""
    total = scores[0] * weights[0]
    for part, weight in zip(scores[1:], weights[1:], strict=True):
        total = total + part * weight
    return total


def _log_odds(logits: np.ndarray, background: float) -> np.ndarray:
    """Return the log-odds of the best class against the others and an unknown class with the logit ``background``."""
    best = logits.max(axis=1)
    with_background = np.exp(logits - best[:, None]).sum(axis=1) - 1.0 + np.exp(np.minimum(background - best, 500.0))
    odds: np.ndarray = -np.log(np.maximum(with_background, _LEAST))
    return odds


def learn_confidence(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Learn the probability that the best class is right; return its parameters: float64, shape (3,).

    They are the logit of an unknown class, and the slope and shift of the log-odds. Without an unknown class, a text
    that resembles no class would get a high probability if it resembles one class slightly more than others.
    """
    if labels.size == 0 or logits.shape[1] < 2:
        return NO_CONFIDENCE
    others = logits.copy()
    others[np.arange(labels.size), labels] = -np.inf
    background = float(np.quantile(others.max(axis=1), _UNKNOWN))
    odds, is_right = _log_odds(logits, background), logits.argmax(axis=1) == labels

    def loss(values: np.ndarray) -> float:
        signs = np.where(is_right, 1.0, -1.0)
        surprise = np.logaddexp(0.0, -signs * (np.exp(values[0]) * odds + values[1])).sum()
        return float(surprise + 0.5 * values @ values)

    slope, shift = minimize(loss, np.zeros(2), bounds=[_LIMITS, (-20.0, 20.0)]).x
    return np.array([background, np.exp(slope), shift])


def probabilities_of(logits: np.ndarray, confidence: np.ndarray) -> np.ndarray:
    """Return the probability of each class, with the parameters that :func:`learn_confidence` returns.

    The softmax of the logits is mixed with the uniform distribution, or with certainty of the best class, until the
    best class has the probability that it is right. The order of classes stays the same.
    """
    chances = np.exp(log_softmax(logits))
    n_classes, rows, best = logits.shape[1], np.arange(len(logits)), logits.argmax(axis=1)
    if n_classes < 2:
        return chances
    background, slope, shift = confidence
    wanted = 1.0 / (1.0 + np.exp(-np.clip(slope * _log_odds(logits, background) + shift, -500.0, 500.0)))
    wanted = np.clip(wanted, 1.0 / n_classes, 1.0)
    highest = chances[rows, best]
    flattened = np.clip((highest - wanted) / np.maximum(highest - 1.0 / n_classes, _LEAST), 0.0, 1.0)
    sharpened = np.clip((wanted - highest) / np.maximum(1.0 - highest, _LEAST), 0.0, 1.0)
    chances = chances * ((1.0 - flattened) * (1.0 - sharpened))[:, None] + (flattened / n_classes)[:, None]
    chances[rows, best] += sharpened
    return chances
