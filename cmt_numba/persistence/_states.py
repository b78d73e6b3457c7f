"""Conversion of forests and heads to the fields and arrays of a file, and back.

Saving drops spare capacity and zeroes unused entries. Files therefore have minimum size, equal states produce equal
files, and removed memories leave no trace. A loaded state behaves exactly like the saved one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _forest as forests

if TYPE_CHECKING:  # saved trees do not need the heads
    from .._heads import StoredExamples

VALUES = frozenset({"state.keys.values", "state.weights.dense"})
"""Names of the large arrays of trees. Kernels are safe with any values in them, if links lead to memories."""

AT_REST = {forests.CELLS_WANTED: 0, forests.MOVING_PLACE: forests.NONE, forests.MOVED_FROM: forests.NONE}
"""The counters that are used only during a step, with their values in files."""


def check_at_rest(counters: np.ndarray) -> None:
    """Raise InvariantError if the counters of a forest or a head were saved during a step."""
    for counter, value in AT_REST.items():
        forests.require(bool(np.all(counters[:, counter] == value)), "an insert is unfinished")


# Trimming


def trim_state(state: forests.State) -> forests.State:
    """Return a forest's state without spare capacity. It may share arrays with ``state``."""
    parameters = state.parameters
    state = trim_models(state)
    n = int(state.keys.totals[forests.N_MEMORIES])
    leaves_end = state.counters[:, forests.LEAVES_END]
    leaves = _used(state.leaves, leaves_end)
    limit = forests.leaf_limit(parameters.leaf_multiplier, n)  # after removals, a leaf may be larger
    width = max(limit, int(leaves["size"].max(initial=0)))
    members = _used(state.members[:, :, :width], leaves_end)
    members[np.arange(members.shape[2]) >= leaves["size"][:, :, None]] = 0
    return state._replace(
        keys=_trim_keys(parameters, state.keys),
        leaves=leaves,
        members=members,
        leaf_of=np.ascontiguousarray(state.leaf_of[:, :n]),
    )


def trim_models(state: Any) -> Any:
    """Return a forest or a head without spare capacity of nodes and routers. It may share arrays with ``state``."""
    nodes_end, d = state.counters[:, forests.NODES_END], state.parameters.n_features
    state = state._replace(nodes=_used(state.nodes, nodes_end), counters=state.counters.copy())
    if state.parameters.sparse:
        state = forests.with_tables(state, forests.most_cells_in_use(state))
        state.nodes["table_start"][state.nodes["table_bits"] == 0] = 0  # freed nodes keep stale values
        table = state.weights.table
        table[table["feature"] == forests.NONE] = (forests.NONE, 0.0, 0.0)
        for t, end in enumerate(state.counters[:, forests.TABLES_END]):  # ``with_tables`` has copied the table
            table[t, int(end) :] = 0
    else:
        weights = _used(state.weights.dense, nodes_end * 2 * d)
        state = state._replace(weights=state.weights._replace(dense=weights))
    for counter, value in AT_REST.items():
        state.counters[:, counter] = value
    return state


def trim_examples(examples: StoredExamples) -> StoredExamples:
    """Return stored examples without spare capacity. The result shares arrays with ``examples``."""
    n = int(examples.keys.totals[forests.N_MEMORIES])
    return examples._replace(
        keys=_trim_keys(examples.parameters, examples.keys),
        label_of=examples.label_of[:n],
        next_of=examples.next_of[:n],
    )


def _trim_keys(parameters: Any, keys: forests.KeyArrays) -> forests.KeyArrays:
    n, totals = int(keys.totals[forests.N_MEMORIES]), keys.totals
    if parameters.sparse:
        if totals[forests.VALUES_LIVE] < totals[forests.VALUES_END]:
            keys = forests.with_room_for_cells(keys, 0)
        totals = keys.totals.copy()
        totals[forests.LONGEST] = np.diff(keys.spans[:n], axis=1).max(initial=0)
    n_cells = int(totals[forests.VALUES_END]) if parameters.sparse else n * parameters.n_features
    return keys._replace(
        values=keys.values[:n_cells],
        indices=keys.indices[:n_cells],
        spans=keys.spans[:n],
        ids=keys.ids[:n],
        totals=totals,
    )


def _used(array: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return the used entries of all trees, shape (n_trees, max(ends), ...), padded with zeros.

    The result is a copy, except for the weights of a single dense tree, which may be large and need no padding.
    """
    used: np.ndarray = array[:, : int(ends.max())]
    if len(ends) == 1 and array.ndim == 2 and not array.dtype.names:
        return used
    used = used.copy()
    for t, end in enumerate(ends):
        used[t, int(end) :] = 0
    return used
