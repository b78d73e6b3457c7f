"""Kernels: replace the keys of memories.

A memory with a new key leaves its leaf as in REMOVE (Algorithm 6) and moves down from the root as in INSERT (Algorithm
4), in every tree, but keeps its id and slot. All keys are written first. A failure after that leaves each memory in a
valid leaf, its old one or its new one.
"""

import numpy as np

from .._jit import by_reference, kernel, release
from .insert_remove import begin_move, finish_step, forget_above
from .key_store import longest_key, overwrite_key
from .linear_model import new_workspace
from .quantization import encode_key
from .state import DONE, NONE, REROUTES_LEFT
from .topology import add_to_counts, take_member


@kernel
def overwrite_keys(view, slots, rows):
    """Store unit-length rows as the keys of some slots; the caller has made room.

    Writes the keys, the codes, and the leaves, whose copies of codes become void.
    """
    forest = by_reference(view)
    trees, keys, codes = forest.trees, forest.keys, forest.codes
    for row in range(slots.size):
        slot = slots[row]
        overwrite_key(keys, slot, rows, row)
        if not keys.sparse and not keys.coded:
            encode_key(keys, codes, slot)
        for t in range(trees.counters.shape[0]):
            trees.leaves[t, trees.leaf_of[t, slot]]["packed"] = NONE


@kernel
def reinsert_slots(view, some, turn, slots):
    """REMOVE and INSERT memories in ``some`` trees, and reroute after each.

    Advances ``turn.at``. Reads the keys; writes these trees and their routers. Returns DONE, or which array is full; it
    can then be called again.
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
