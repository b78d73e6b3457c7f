"""Kernels: other keys for memories that stay.

A memory with another key leaves its leaf as REMOVE (Algorithm 6) would have it and goes down from the root as INSERT
(Algorithm 4) would send it, in every tree, but keeps its id and its slot. It may stand in any leaf, so all keys are
written first, and what fails after that leaves each memory in a leaf, its old one or its new one.
"""

import numpy as np

from .._jit import by_reference, by_value, kernel
from .insert_remove import begin_move, finish_step, forget_above
from .key_store import longest_key, overwrite_key
from .linear_model import new_workspace
from .quantization import encode_key
from .state import DONE, NEXT_ROW, NONE, REROUTES_LEFT
from .topology import add_to_counts, take_member


@kernel
def overwrite_keys(state, slots, rows):
    """Store unit-length rows as the keys of some slots; the caller has made room."""
    state = by_reference(state)
    for row in range(slots.size):
        slot = slots[row]
        overwrite_key(state, slot, rows, row)
        if not state.parameters.sparse:
            encode_key(state, slot)
        for t in range(state.parameters.n_trees):
            state.leaves[t, state.leaf_of[t, slot]]["packed"] = NONE


@kernel
def reinsert_slots(state, t, slots, stop):
    """REMOVE and INSERT memories in tree ``t``, from the one in its counters up to ``stop``, and reroute after each."""
    state = by_reference(state)
    counters = state.counters
    work = new_workspace(longest_key(state))
    while True:
        status = finish_step(by_value(state), t, work)
        if status != DONE or counters[t, NEXT_ROW] == stop:
            return status
        slot = slots[counters[t, NEXT_ROW]]
        counters[t, NEXT_ROW] += 1
        leaf = np.int64(state.leaf_of[t, slot])
        take_member(state, t, leaf, slot)
        add_to_counts(state, t, ~leaf, -1)
        forget_above(state, t, ~leaf)
        begin_move(state, t, slot, leaf)
        counters[t, REROUTES_LEFT] = state.parameters.n_reroutes
