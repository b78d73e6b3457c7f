"""Kernels: replacement of keys.

In every tree, a memory with a new key leaves its leaf as in REMOVE (Algorithm 6) and moves down from the root as in
INSERT (Algorithm 4). It keeps its id and slot. Callers write all keys first, so a failure during the moves leaves each
memory in its old or its new leaf, both of which are valid.
"""

import numpy as np

from .._jit import by_reference, kernel, release
from .insert_remove import begin_move, finish_step, forget_above
from .key_store import longest_key, overwrite_key
from .linear_model import new_workspace
from .state import DONE, REROUTES_LEFT
from .topology import add_to_counts, take_member


@kernel
def overwrite_keys(view, slots, rows):
    """Replace the keys in ``slots`` by unit-length rows. The key store must have room."""
    keys = by_reference(view).keys
    for row in range(slots.size):
        overwrite_key(keys, slots[row], rows, row)


@kernel
def reinsert_slots(view, some, turn, slots):
    """Move the memories in ``slots`` to the leaves of their new keys in the trees ``some``, with reroutes after each.

    Returns DONE, or the status of a full array; the next call then resumes. Advances ``turn.at``, and writes the shape
    and the routers of these trees.
    """
    forest = by_reference(view)
    trees, routers, keys = forest.trees, forest.routers, forest.keys
    counters, at, status = trees.counters, turn.at, DONE
    work = new_workspace(longest_key(keys))
    for t in range(some.first, some.stop):
        while True:
            status = finish_step(turn.finisher, view, t, work)
            if status != DONE or at[t] == turn.stop:
                break
            slot = slots[at[t]]
            at[t] += 1
            leaf = np.int64(trees.leaf_of[t, slot])
            take_member(trees, t, leaf, slot)
            add_to_counts(trees, t, ~leaf, -1)
            forget_above(trees, routers, keys, t, ~leaf)
            begin_move(trees, keys, t, slot, leaf)
            counters[t, REROUTES_LEFT] = forest.parameters.n_reroutes
        if status != DONE:
            break
    release(work)
    return status
