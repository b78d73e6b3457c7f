"""Which stored examples are learned again, and when all are."""

import math

import numpy as np

from .._heads import StoredExamples, draw_replayed

_REPLAYED = 8  # number of stored examples to replay with each new example
_GROWTH = 0.25  # fraction of new examples that triggers retraining; each example is learned five times on average
_FEWEST = 16  # number of new examples below which no retraining is due


def is_due(n_examples: int, n_learned: int) -> bool:
    """Return whether enough examples are new to retrain on all of them. False before the first fit."""
    return n_learned > 0 and n_examples - n_learned >= max(_FEWEST, _GROWTH * n_learned)


def has_grown(n_examples: int, n_new: int) -> bool:
    """Return whether the number of examples, at least 1, has grown by another quarter with the newest ones."""
    scale, n_before = math.log(1.0 + _GROWTH), max(1, n_examples - n_new)
    return int(math.log(n_examples) / scale) > int(math.log(n_before) / scale)


def replayed(
    examples: StoredExamples, n_new: int, competing: np.ndarray, generator: np.random.Generator, n_swept: int = 0
) -> tuple[np.ndarray, int]:
    """Draw stored examples to learn with the newest ``n_new``; return all slots and the number of swept examples.

    Half of the replayed examples are drawn from all earlier examples. For the other half, a label is drawn from
    ``competing``, and then one of its examples. The newest examples follow, and finally up to ``n_swept`` swept
    examples, drawn from all. The time hardly depends on the number of stored examples.
    """
    numbers = generator.random((_REPLAYED * n_new // 2, 3))
    slots, ends = np.empty(2 * numbers.shape[0] + n_new + n_swept, np.int64), np.empty(2, np.int64)
    draw_replayed(examples.lists, np.sort(competing), numbers, generator.random(n_swept), n_new, slots, ends)
    return slots[: ends[1]], int(ends[1] - ends[0])
