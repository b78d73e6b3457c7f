"""Weights of a text classifier's scorers, and its confidence, learned from held-out texts."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize, minimize_scalar

from ._class_model import log_softmax

FIRST_WEIGHTS = {"sums": 12.0, "vectors": 1.0, "dense": 4.0}
"""Weights that turn scores into logits, before any evidence."""

_RATIOS = 2.0 ** np.arange(-6, 7)  # candidate factors of each weight
_CAUTION = 0.05  # penalty for each factor of 2 in a ratio: this error rate over the square root of the number of texts
_LIMITS = (-4.0, 4.0)  # bounds of the logarithm of the common scale
_LEAST = 1e-9  # minimum probability of an error
_MOST_HELD_OUT = 2_000
_UNKNOWN = 0.75  # scores of out-of-scope texts are about this quantile of the highest scores of wrong classes
NO_CONFIDENCE = np.array([-30.0, 1.0, 0.0])
"""Parameters without held-out texts: the confidence equals the softmax probability."""


def folds_of(labels: np.ndarray, generator: np.random.Generator) -> list[np.ndarray]:
    """Return the positions of the texts to hold out in each fold.

    A fold is a fifth of each class, and each class keeps at least one training text. There are five folds for up to 600
    texts, two for up to 3,000 texts, and one for more texts.
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
    """Return scorer weights whose weighted sum has few errors and reliable probabilities.

    Ratios of weights are chosen by the number of errors, because the likelihood prefers smooth scores to accurate ones.
    Then a common scale is learned. With few texts, the result stays near ``first``.

    Parameters
    ----------
    scores : list of ndarray, shape (n_texts, n_classes)
        Each scorer's scores for held-out texts.
    labels : ndarray of int64, shape (n_texts,)
        The correct labels.
    first : ndarray of float64, shape (n_scorers,)
        Initial weights.
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
    """Return the scale of the logits at which the highest probability best predicts whether the best class is correct.

    Maximising the likelihood of the correct class instead would mainly fit the few texts whose class scores very low.
    """
    is_right = logits.argmax(axis=1) == labels
    behind = logits - logits.max(axis=1, keepdims=True)

    def loss(log: float) -> float:
        sums = np.exp(behind * np.exp(log)).sum(axis=1)
        chances = np.where(is_right, 1.0 / sums, np.maximum(1.0 - 1.0 / sums, _LEAST))
        return float(0.5 * log * log / labels.size - np.log(chances).mean())

    return float(np.exp(minimize_scalar(loss, bounds=_LIMITS, method="bounded").x))


def weighted_sum(scores: list[np.ndarray], weights: np.ndarray) -> np.ndarray:
    """Return the weighted sum of the scorers' scores: float64."""
    total = scores[0] * weights[0]
    for part, weight in zip(scores[1:], weights[1:], strict=True):
        total = total + part * weight
    return total


def _log_odds(logits: np.ndarray, background: float) -> np.ndarray:
    """Return the log-odds of the best class against all other classes and an unknown one with logit ``background``."""
    best = logits.max(axis=1)
    with_background = np.exp(logits - best[:, None]).sum(axis=1) - 1.0 + np.exp(np.minimum(background - best, 500.0))
    odds: np.ndarray = -np.log(np.maximum(with_background, _LEAST))
    return odds


def learn_confidence(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Learn the probability that the best class is correct. Return the three parameters of this probability.

    The parameters are the logit of an unknown class, and the slope and shift of the log-odds. The unknown class keeps
    the probability low for a text that resembles no class but is slightly more similar to one than to the others.
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
    """Return the probability of each class, given the parameters from :func:`learn_confidence`.

    The softmax of the logits is flattened or sharpened until the best class has the learned probability. The order of
    the classes stays the same.
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
