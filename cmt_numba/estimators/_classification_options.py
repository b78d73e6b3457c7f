"""The parameters of a classifier that its model depends on."""

from typing import Protocol

from .._heads import HEAD_LOSSES, HeadLoss
from ._label_index import LabelOptions

_PASSES_OF_MIRA = 50  # default maximum number of passes; few sets need more than 15
_PASSES_OF_ADAGRAD = 5  # default number of passes with other losses


class ClassificationOptions(LabelOptions, Protocol):
    """Parameters of a classifier that the model depends on."""

    n_head_passes: int | None
    loss: str
    aggressiveness: float
    learning_rate: float
    store_examples: bool
    max_examples: int | None
    method: str
    metric: str
    n_neighbors: int | str
    weights: str
    feature_weights: str


def n_passes_of(options: ClassificationOptions) -> int:
    """Return the maximum number of passes that train the head."""
    if options.n_head_passes is not None:
        return options.n_head_passes
    return _PASSES_OF_MIRA if HEAD_LOSSES[options.loss] == HeadLoss.MIRA else _PASSES_OF_ADAGRAD
