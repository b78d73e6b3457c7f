"""Access to private state for tests, with one function for each path through private attributes."""

from typing import Any


def state_of(tree: Any) -> Any:
    """Return the arrays of a tree, or None before its first memories."""
    return tree._forest.state


def trained_head(estimator: Any) -> Any:
    """Return the scorers of the labels of a classifier."""
    return estimator._model.index.head


def candidates_of(bandit: Any, X: Any, choices: Any = None) -> Any:
    """Return the actions that a bandit compares in some contexts, with their estimates."""
    return bandit._candidates(bandit._rows(X), choices)


def contents_of(store: Any) -> Any:
    """Return the index, the records and the journal of a store."""
    return store._contents
