"""Conversion of forests to and from the fields and arrays of files and pickles."""

from typing import Any

import numpy as np

from .._forest import writeable
from ..persistence import check_state, state_of, tree_contents
from .forest import Forest, kernel_parameters


def contents_of(forest: Forest) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the fields and arrays of a forest for a file. No other thread may change the forest during the call."""
    options, state = forest.options, forest.state
    if state is None:
        return tree_contents(options, forest.n_threads, forest.streams, None)
    with forest.lock.instant:  # exclude queries that draw random numbers or notify the policy
        state = state._replace(streams=state.streams.copy())
        noted = forest.eviction.contents(state)
    fields, arrays = tree_contents(options, forest.n_threads, forest.streams, state)
    return fields, arrays | noted


def restore(
    forest: Forest, fields: dict[str, Any], arrays: dict[str, np.ndarray], *, thorough: bool, values: bool = True
) -> None:
    """Fill an empty forest with the contents of a file. See :func:`check_state` for ``thorough`` and ``values``."""
    _take_state(forest, fields, arrays)
    if forest.state is not None:
        check_state(forest.state, thorough=thorough, values=values)
        forest.check_bound()
        forest.eviction.restore(arrays, forest.state)


def restore_pickled(forest: Forest, fields: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Fill an empty forest with the contents of a trusted pickle."""
    arrays = {name: writeable(array) for name, array in arrays.items()}
    _take_state(forest, fields, arrays)
    if forest.state is not None:
        forest.eviction.restore(arrays, forest.state)


def _take_state(forest: Forest, fields: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    of_kernels = kernel_parameters(forest.options, n_features=1, sparse=False)._asdict()
    forest.streams, forest.state = state_of(fields, arrays, of_kernels)
