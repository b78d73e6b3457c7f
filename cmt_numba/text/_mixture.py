"""Weights of a text classifier's scorers, and its confidence, learned from held-out texts."""

import numpy as np
from scipy.optimize import minimize, minimize_scalar

from ._labelled import log_softmax

FIRST_WEIGHT = 12.0  # turns scores of class sums into logits, before any evidence
_FIRST_OF_BOTH = 28.0  # the same for the sum of both weights with an encoder
# The ratio of both weights, if cosines of vectors vary as much as those of features, and the usual variances of these
_RATIO, _VARIANCES = 8.0, (0.04**2, 0.12**2)
_LIMITS = (-4.0, 4.0)  # bounds of the logarithms of weights
_LEAST = 1e-9  # minimum probability of an error
_MOST_HELD_OUT = 2_000
_RELATED, _UNRELATED = 0.3, 0.12  # similarities to the best class: of a text of a known class, of another text
_DEVIATION = 0.5  # standard deviation of the logarithm of the similarity, before any evidence
_KNOWN = 3.0  # texts of known classes for each text of no known class, before any evidence
_N_PRIOR = 20  # number of held-out texts that count as much as these assumptions
_LEAST_SIMILARITY = 0.02
_FLATTEST = 1.0 - 1e-6  # below 1, to keep the order of the classes


def folds_of(labels: np.ndarray, generator: np.random.Generator) -> list[np.ndarray]:
    """Return the positions of the texts to hold out in each fold.

    A fold is a fifth of each class, and each class keeps at least one training text. There are three folds for up to
    600 texts, and one for more texts.
    """
    order = generator.permutation(labels.size)
    order = order[np.argsort(labels[order], kind="stable")]
    counts = np.bincount(labels)
    ends = np.cumsum(counts)
    rank = np.arange(labels.size) - np.repeat(ends - counts, counts)
    possible, part = np.repeat(counts, counts) > 1, rank % 5
    n_folds = 3 if labels.size <= 600 else 1
    folds = [order[possible & (part == fold)] for fold in range(n_folds)]
    return [generator.permutation(fold)[:_MOST_HELD_OUT] for fold in folds if fold.size]


def first_weights(of_features: np.ndarray, of_vectors: np.ndarray) -> np.ndarray:
    """Return the weights of the scorers before any evidence, given cosines of pairs of texts of different classes.

    These cosines are noise. As in linear discriminant analysis, weights are inversely proportional to its variance.
    """
    of_each = []
    for cosines, usual in zip((of_features, of_vectors), _VARIANCES, strict=True):
        squares = np.square(cosines - cosines.mean() if cosines.size else cosines).sum(dtype=np.float64)
        of_each.append((squares + _N_PRIOR * usual) / (cosines.size + _N_PRIOR))
    ratio = _RATIO * of_each[0] / of_each[1]
    return _FIRST_OF_BOTH / (1.0 + ratio) * np.array([1.0, ratio])


def learn_weights_of_scores(scores: list[np.ndarray], labels: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Return the most probable scorer weights, given held-out texts and a log-normal prior around ``first``.

    The ratios of the weights maximise the likelihood of the labels. Then a common scale is learned. ``scores`` are
    arrays of shape (n_texts, n_classes).
    """
    if labels.size == 0 or scores[0].shape[1] < 2:
        return first
    rows = np.arange(labels.size)
    parts = [part.astype(np.float64) for part in scores]
    leads = [part - part[rows, labels][:, None] for part in parts]

    def loss(logs: np.ndarray) -> tuple[float, np.ndarray]:
        weights = first * np.exp(logs[0] + np.append(0.0, logs[1:]))
        logits = weighted_sum(leads, weights)
        highest = logits.max(axis=1, keepdims=True)
        odds = np.exp(logits - highest)
        sums = odds.sum(axis=1, keepdims=True)
        slopes = np.array([w * np.sum(odds / sums * part) for w, part in zip(weights, leads, strict=True)])
        gradient = np.append(slopes.sum(), slopes[1:]) + logs
        return float(np.sum(np.log(sums) + highest) + 0.5 * logs @ logs), gradient

    logs = minimize(loss, np.zeros(len(parts)), jac=True, bounds=[_LIMITS] * len(parts), method="L-BFGS-B").x
    weights = first * np.exp(logs[0] + np.append(0.0, logs[1:]))
    return weights * _scale(weighted_sum(parts, weights), labels)


def difference_of_errors(logits: np.ndarray, others: np.ndarray, labels: np.ndarray) -> tuple[int, float]:
    """Return how many more errors ``logits`` make than ``others``, and the standard error of this difference."""
    is_wrong, are_wrong = (each.argmax(axis=1) != labels for each in (logits, others))
    more, fewer = np.count_nonzero(is_wrong & ~are_wrong), np.count_nonzero(are_wrong & ~is_wrong)
    return int(more - fewer), float(np.sqrt(more + fewer))


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


def _log_odds(logits: np.ndarray, unknown: float) -> np.ndarray:
    """Return the log-odds of the best class against all other classes and an unknown one with the logit ``unknown``."""
    best = logits.max(axis=1)
    others = np.exp(logits - best[:, None]).sum(axis=1) - 1.0 + np.exp(np.minimum(unknown - best, 500.0))
    return -np.log(np.maximum(others, _LEAST))


def learn_confidence(logits: np.ndarray, labels: np.ndarray, weight: float) -> np.ndarray:
    """Learn how probable it is that a text belongs to a known class, and that the best class is correct.

    Return the four parameters of these probabilities: the slope and shift of the log-odds that the best class is
    correct, and the slope of the log-odds that a text is known and the logit for which they are 0. The latter is also
    the logit of an unknown class, with which the best class competes. ``logits`` are the weighted sums of the scores of
    held-out texts, and ``weight`` is the sum of the scorers' weights.
    """
    slope, shift, known = 0.0, 0.0, _learn_known(logits, labels, weight)
    if labels.size > 0 and logits.shape[1] > 1:
        odds, signs = _log_odds(logits, known[1]), np.where(logits.argmax(axis=1) == labels, 1.0, -1.0)

        def loss(values: np.ndarray) -> float:
            surprise = np.logaddexp(0.0, -signs * (np.exp(values[0]) * odds + values[1])).sum()
            return float(surprise + 0.5 * values @ values)

        slope, shift = minimize(loss, np.zeros(2), bounds=[_LIMITS, (-20.0, 20.0)]).x
    return np.array([np.exp(slope), shift, *known])


def _learn_known(logits: np.ndarray, labels: np.ndarray, weight: float) -> tuple[float, float]:
    """Return the slope of the log-odds that a text belongs to a known class, and the logit for which they are 0.

    The logarithm of the highest logit is normally distributed, with another mean for texts of no known class. A
    held-out text is such a text if its class is left out. With two classes, too little is left.
    """
    n, n_labels = logits.shape
    related = np.log(np.maximum(logits.max(axis=1, initial=-np.inf) / weight, _LEAST_SIMILARITY))
    others, share = logits.copy(), max(0.0, 1.0 - 1.0 / max(1, n_labels - 1))
    others[np.arange(n), labels] = -np.inf
    unrelated = np.log(np.maximum(others.max(axis=1, initial=-np.inf) / weight, _LEAST_SIMILARITY))
    means, squares = [], 2 * _N_PRIOR * _DEVIATION**2
    for values, count, prior in ((related, n, _RELATED), (unrelated, share * n, _UNRELATED)):
        mean = float(values.mean()) if count > 0.0 else 0.0
        means.append((count * mean + _N_PRIOR * np.log(prior)) / (count + _N_PRIOR))
        squares += count * float(values.var()) if count > 0.0 else 0.0
    variance = squares / ((1.0 + share) * n + 2 * _N_PRIOR)
    slope = max(0.1, means[0] - means[1]) / variance
    return slope, weight * float(np.exp(np.mean(means) - np.log(_KNOWN) / slope))


def known_probability(logits: np.ndarray, confidence: np.ndarray) -> np.ndarray:
    """Return the probability that a text belongs to a known class."""
    slope, middle = confidence[2:]
    return _sigmoid(slope * np.log(np.maximum(logits.max(axis=1) / middle, _LEAST_SIMILARITY)))


def _sigmoid(odds: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-np.clip(odds, -500.0, 500.0)))


def probabilities_of(logits: np.ndarray, confidence: np.ndarray, n_texts: int, least: np.ndarray) -> np.ndarray:
    """Return the probability of each class if the text belongs to one of the classes.

    The softmax of the logits is flattened or sharpened until the best class has the learned probability. The order of
    the classes stays the same. However clear a text is, ``n_texts`` texts do not show that errors are rarer than half
    an error in ``n_texts + 1`` (the estimator of Krichevsky and Trofimov). Below this bound, the best class of each
    text has at least the probability in ``least``.
    """
    chances = np.exp(log_softmax(logits))
    n_classes, rows, best = logits.shape[1], np.arange(len(logits)), logits.argmax(axis=1)
    if n_classes < 2:
        return chances
    wanted = _sigmoid(confidence[0] * _log_odds(logits, confidence[3]) + confidence[1])
    wanted = np.minimum(np.maximum(wanted, least), (n_texts + 0.5) / (n_texts + 1.0))
    wanted = np.maximum(wanted, 1.0 / n_classes)
    highest = chances[rows, best]
    flattened = np.clip((highest - wanted) / np.maximum(highest - 1.0 / n_classes, _LEAST), 0.0, _FLATTEST)
    sharpened = np.clip((wanted - highest) / np.maximum(1.0 - highest, _LEAST), 0.0, 1.0)
    chances = chances * ((1.0 - flattened) * (1.0 - sharpened))[:, None] + (flattened / n_classes)[:, None]
    chances[rows, best] += sharpened
    return chances
