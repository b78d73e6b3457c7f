"""Kill processes while they change a tree in a folder, as many times as wanted, and see what is there afterwards.

Each process opens the folder, inserts, removes, replaces, updates and so on, and tells after each change how many
changes are acknowledged and which memories there are, until it is killed (SIGKILL) at a random moment: while it opens
the folder, changes the tree, writes the journal or takes a snapshot. The folder must then open, with nothing missing
that was acknowledged, and give exactly the tree that the same changes give elsewhere. POSIX only.

    python tests/scripts/kill_journal.py 1000 --form sparse --eviction oldest
"""

import argparse
import struct
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from killed import told_until_killed

from cmt_numba import ContextualMemoryTree
from cmt_numba._forest.eviction import EVICTIONS
from cmt_numba.journal import DurableTree

_LONGEST_LIFE = 0.3  # seconds; time to open the folder and for some snapshots, on a disk in memory at least
_MEMORIES = 300  # about which the trees stay
_FEATURES = 12
_MOST = 40  # memories of bounded trees
_TOLD = struct.Struct("<qI")

FORMS: dict[str, Callable[[np.ndarray], Any]] = {"dense": np.asarray, "sparse": scipy.sparse.csr_array}


def new_tree(path: Path | None = None, eviction: str | None = None) -> Any:
    """Return an empty tree, in a folder or not, bounded or not."""
    options: dict[str, Any] = {"n_trees": 2, "leaf_multiplier": 1.0, "random_state": 7, "n_threads": 1}
    if eviction is not None:
        options |= {"max_memories": _MOST, "eviction": eviction}
    if path is None:
        return ContextualMemoryTree(**options)
    return DurableTree(path, snapshot_bytes=0, snapshot_seconds=0.0, **options)  # as many snapshots as it will take


def change(tree: ContextualMemoryTree, form: str, number: int, most: int = 3) -> int:
    """Make the change of this number, or up to three, but no more than ``most``; return how many.

    Which one it is depends on the number and the tree alone.
    """
    random = np.random.default_rng([number, 5])
    rows = random.normal(size=(random.integers(1, 20), _FEATURES)) * (random.random(_FEATURES) < 0.5)
    X, ids = FORMS[form](rows.astype(np.float32)), np.sort(tree.ids)
    draw, noted = random.random(), int(tree._forest.eviction.minds_queries)
    if len(tree) < 20 or draw < 0.3 + 0.2 * (len(tree) < _MEMORIES):
        tree.insert(X)
    elif draw < 0.6:
        tree.remove(random.choice(ids, random.integers(1, 20), replace=False))
    elif draw < 0.7:
        tree.replace(random.choice(ids, X.shape[0], replace=False), X)
    elif draw < 0.8:
        if most == 1:  # a query draws first, and then takes note of what it returns
            tree._draw_word()
            return 1
        hits = tree.query(X, 3, epsilon=0.5)
        if most == 1 + noted:
            return 1 + noted
        tree.update(X, hits, random.random(hits.ids.shape))
        return 2 + noted
    elif draw < 0.85 and noted:
        tree.query(X, 2)
    elif draw < 0.9:
        tree.teach(X, random.choice(ids, X.shape[0]))
    elif draw < 0.95:
        tree.reroute(10)
    else:
        tree.compact()
    return 1


def digest_of_ids(tree: ContextualMemoryTree) -> int:
    """Return a number that tells which memories a tree has."""
    return zlib.crc32(np.sort(tree.ids).tobytes())


def kill_while_changing(path: Path, form: str, eviction: str | None, seconds: float) -> tuple[int, ...] | None:
    """Have a process change the tree, and kill it after some time; return what it has told last.

    It tells how many changes it has acknowledged, and which memories it has then.
    """

    def work(tell: Callable[..., None]) -> None:
        tree = new_tree(path, eviction)
        while True:
            tree.sync()
            assert tree.synced_sequence == tree.sequence
            tell(tree.sequence, digest_of_ids(tree))
            change(tree, form, tree.sequence)

    return told_until_killed(work, _TOLD, seconds)


def same(one: ContextualMemoryTree, other: ContextualMemoryTree) -> bool:
    """Return whether two trees are the same bit for bit, but for spare room."""
    (fields, arrays), (others_fields, others_arrays) = one._contents(), other._contents()
    return (
        fields == others_fields
        and arrays.keys() == others_arrays.keys()
        and all(arrays[name].tobytes() == others_arrays[name].tobytes() for name in arrays)
    )


def kill_changes(n: int, seed: int, form: str, eviction: str | None = None) -> Iterator[str]:
    """Kill ``n`` processes, check the tree after each, and yield what they have left lying about."""
    random = np.random.default_rng(seed)
    reference, number = new_tree(eviction=eviction), 0
    while number < 200:  # has all kernels compiled
        number += change(reference, form, number)
    reference, number = new_tree(eviction=eviction), 0
    digests = {0: digest_of_ids(reference)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tree"
        for _ in range(n):
            told = kill_while_changing(path, form, eviction, random.random() * _LONGEST_LIFE)
            names = [entry.name for entry in path.iterdir()] if path.exists() else []
            with new_tree(path, eviction) as tree:
                tree.check_invariants()
                acknowledged = 0 if told is None else told[0]
                assert tree.sequence >= max(acknowledged, number), f"{acknowledged} were acknowledged, not {number}"
                while number < tree.sequence:
                    number += change(reference, form, number, tree.sequence - number)
                    digests[number] = digest_of_ids(reference)
                assert number == tree.sequence
                assert told is None or digests[acknowledged] == told[1], "there were other memories before"
                assert digest_of_ids(tree) == digests[number], f"after change {number} there are other memories"
                assert same(tree, reference), f"after change {number} it is another tree"
            assert len(list(path.glob("*"))) == 3, list(path.glob("*"))
            yield "killed"
            if any(name.endswith(".part") for name in names):
                yield "while writing a snapshot"
            elif sum(name.endswith(".cmt") for name in names) > 1:
                yield "between a snapshot and its entry, or before the old one was deleted"
        yield from ["changes"] * number


def main() -> int:
    """Run the command line; an assertion fails if anything was lost."""
    parser = argparse.ArgumentParser(description="Kill processes while they change a tree in a folder.")
    parser.add_argument("number", type=int, help="how many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--form", choices=FORMS, default="dense")
    parser.add_argument("--eviction", choices=EVICTIONS, help="of a bounded tree; without a bound by default")
    given = parser.parse_args()
    counts = Counter(kill_changes(given.number, given.seed, given.form, given.eviction))
    print(", ".join(f"{count} {what}" for what, count in counts.items()) + "; nothing lost, every tree as it was")
    return 0


if __name__ == "__main__":
    sys.exit(main())
