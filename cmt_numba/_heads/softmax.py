"""Kernels: training of heads by AdaGrad, one example at a time, with a softmax or logistic loss."""

import numpy as np

from .. import _kernels as kernels
from .. import _linear as linear
from .._jit import by_reference, empty, inner, kernel, release
from .candidates import best_of, new_candidates, score_with_right
from .label_scorers import Head, HeadLoss
from .lessons import CandidateSearch, HeadLesson, learn_in_turn
from .search import FoundLabels

_STEEPNESS = 12.0  # difference of logits for scores that differ by the margin
_NEGLIGIBLE = 0.01  # labels with smaller slopes are not trained, to save memory


@inner
def _find_slopes(head, candidates, right, margin, slopes):
    """Write the derivative of the loss with respect to each candidate's score."""
    loss, n, scores = head.loss, candidates.n_found[0], candidates.scores
    steepness = np.float32(_STEEPNESS / margin)
    if loss == HeadLoss.SOFTMAX:
        highest = scores[best_of(candidates, kernels.NONE)]
        total = np.float32(0.0)
        for i in range(n):
            slopes[i] = np.exp(steepness * (scores[i] - highest))
            total += slopes[i]
        for i in range(n):
            slopes[i] /= total
    elif loss == HeadLoss.LOGISTIC:
        for i in range(n):
            slopes[i] = np.float32(1.0) / (np.float32(1.0) + np.exp(-steepness * (scores[i] - np.float32(0.5))))
    else:
        raise ValueError("descend_on has no rule for this loss")
    slopes[right] -= np.float32(1.0)


@inner
def _descend(head, candidates, x, right, margin, importance, slopes, work):
    """Take an AdaGrad step for steep candidates. Return DONE, or TABLES_FULL without changes if tables lack room."""
    _find_slopes(head, candidates, right, margin, slopes)
    for i in range(candidates.n_found[0]):
        if np.abs(slopes[i]) >= _NEGLIGIBLE:
            label = candidates.labels[i]
            if linear.locate_or_insert(head.models, linear.ONLY_GROUP, label, x, work) != linear.DONE:
                return linear.TABLES_FULL
    rate = head.learning_rate * margin / _STEEPNESS
    for i in range(candidates.n_found[0]):
        if np.abs(slopes[i]) >= _NEGLIGIBLE:
            linear.locate_or_insert(head.models, linear.ONLY_GROUP, candidates.labels[i], x, work)
            slope = importance * slopes[i]
            linear.adagrad_step(head.models, linear.ONLY_GROUP, candidates.labels[i], x, work, slope, rate, np.inf)
    return linear.DONE


@kernel
def descend_on(head, rows, labels, found, importance, margin, at):
    """Train the head on rows with candidates, and increment ``at[0]`` after each row.

    The slope of each row is multiplied by its ``importance``; scores are divided by ``margin``. Writes the scores of
    ``found`` and the models of ``head``. Returns DONE, or TABLES_FULL after learning ``at[0]`` rows.
    """
    head = by_reference(head)
    candidates = new_candidates(rows, found.max_labels, 1)
    work = linear.new_workspace(kernels.longest_row(rows, 0, rows.offsets.size - 1))
    slopes, status = empty(found.max_labels + 1, np.float32), linear.DONE
    for i in range(found.rows.size):
        row, x = found.rows[i], kernels.row_of(rows, found.rows[i])
        right = score_with_right(head, candidates, found, i, x, labels[row])
        status = _descend(head, candidates, x, right, margin, importance[row], slopes, work)
        if status != linear.DONE:
            break
        at[0] += 1
    release((candidates, work, slopes))
    return status


def descend(search: CandidateSearch, head: Head, lesson: HeadLesson, importance: np.ndarray, margin: float) -> Head:
    """Train a head with sample weights ``importance``; return the head, or a larger head if tables were full."""

    def learn(head: Head, found: FoundLabels, at: np.ndarray) -> int:
        return int(descend_on(head.scorers, lesson.questions.rows, lesson.labels, found, importance, margin, at))

    return learn_in_turn(search, head, lesson, learn)
