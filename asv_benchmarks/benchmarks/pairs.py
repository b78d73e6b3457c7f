"""Error and predictions of each pair of vectorizer and estimator in the docs, with default parameters."""

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[2] / "tests" / "helpers"))

from documented_pairs import PAIRS, checksums_of, error_of, predictions_of, stored


class Pairs:
    """Learn texts or vectors that are made here, and predict others."""

    params = (list(PAIRS),)
    param_names = ("pair",)

    def setup_cache(self) -> dict[str, np.ndarray]:
        """Return the predictions of all pairs."""
        return {pair: predictions_of(pair) for pair in PAIRS}

    def track_error(self, predictions: dict[str, np.ndarray], pair: str) -> float:
        """Return the fraction of wrong predictions."""
        return error_of(pair, predictions[pair])

    def track_changed_predictions(self, predictions: dict[str, np.ndarray], pair: str) -> float:
        """Return the fraction of a few predictions that differ from those that the repository stores."""
        before = np.frombuffer(bytes.fromhex(stored()[pair]["checksums"]), np.uint8)
        return float(np.mean(before != np.frombuffer(checksums_of(predictions[pair]), np.uint8)))
