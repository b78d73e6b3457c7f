"""Invariants of the map from keys to expected values."""

from ..._forest import MOST_FEATURES, all_finite, all_within, check_layout, check_number_table, require
from ..ridge import Expectation


def check_expectation_frame(expectation: Expectation) -> None:
    """Raise InvariantError unless the arrays of a map have the expected dtypes and sizes."""
    check_layout(expectation)
    (sparse, d), capacity = (expectation.parameters.sparse, expectation.parameters.n_features), len(expectation.weights)
    require(1 <= d <= MOST_FEATURES, f"keys must have 1 to {MOST_FEATURES} features, got {d}")
    n = int(expectation.n_places[0])
    require(0 <= n <= capacity, "the number of used positions exceeds the weights")
    require(sparse or n == capacity == d, "a dense map must have one position for each feature")
    require(
        expectation.features.size == (capacity if sparse else 0), "every position of a sparse map must have a feature"
    )
    require(n < expectation.table.size if sparse else expectation.table.size == 0, "the table of features is too small")


def check_expectation(expectation: Expectation) -> None:
    """Raise InvariantError unless a map is valid."""
    check_expectation_frame(expectation)
    n = int(expectation.n_places[0])
    require(all_finite(expectation.weights[:n]), "a weight of the expectation is not finite")
    require(all_finite(expectation.bias), "the bias of the expectation is not finite")
    if expectation.parameters.sparse:
        features = expectation.features[:n]
        known = all_within(features, 0, expectation.parameters.n_features - 1)
        require(known, "the expectation has a feature that does not exist")
        check_number_table(expectation.table, features, "the table of features", features=True)
