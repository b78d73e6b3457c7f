"""The Contextual Memory Tree: a learned, online key-value memory."""

from __future__ import annotations

import os
from typing import Any, Self

import numpy as np

from ._change import ReadWriteLock, changes
from ._engine import (
    OPTIONS,
    Filter,
    Forest,
    Supervision,
    compact_memories,
    contents_of,
    draw_seed,
    enter_returned,
    insert_rows,
    learn_in_passes,
    note_returned,
    plot_forest,
    query_forest,
    rebuild_trees,
    remove_ids,
    replace_rows,
    reroute_memories,
    restore,
    restore_pickled,
    teach_rows,
    update_rows,
    warn_if_in_vain,
)
from ._forest import Hits, Leaves, ShownHits
from ._jit import keeps_interpreter
from ._validation import (
    MOST_WANTED,
    check_among,
    check_groups,
    check_hits,
    check_ids,
    check_integer,
    check_memory_ids,
    check_passes,
    check_real,
    check_rewards,
    check_seed,
    check_wanted,
)
from .persistence import Contents, read_object, refusing, take, write_object
from .rewards import Reward

__all__ = ["KIND", "OPTIONS", "ContextualMemoryTree"]

KIND = "ContextualMemoryTree"
"""The kind of object that files of trees hold."""

_LEAVES_OF_EACH = 4  # leaves of each tree that ``learn`` searches by default


class ContextualMemoryTree:
    """A Contextual Memory Tree, or a forest of them over one store of memories.

    A memory is a key (a feature vector) with an id; the caller decides what the id stands for. Keys are scaled to unit
    length, so only their direction counts. Each memory is inserted, found, removed or moved in time logarithmic in the
    number of memories. Rewards for the memories returned teach the trees where to search and the scorer what to return
    (Sun et al., Contextual Memory Trees, ICML 2019).

    Any number of threads may use a tree at the same time. Changes (inserts, removals, moves, learning) are made one
    after another, in the order of their calls, in steps of a few milliseconds. Other threads read between two steps.
    They see the effect of all steps so far, so the last rows of a large batch of queries may see more steps than the
    first. A tree may be pickled or saved while it is used. It may be used on both sides of a fork, which waits for the
    current change.

    Parameters
    ----------
    n_trees : int, default 1
        Number of trees over the same memories, each with its own random draws. The paper uses one tree. The time of an
        insert is proportional to the number of trees; each tree finds much of what the others miss.
    alpha : float in (0, 1], default 0.9
        How strongly routers balance the two sides of a node.
    leaf_multiplier : float, default 4.0
        ``c``: a leaf of a tree of ``n`` memories holds at most ``c * log2(n)``.
    n_reroutes : int, default 5
        ``d``: number of memories that each tree reroutes after each memory inserted and each row of an update, at most
        10,000.
    router_loss : {"squared", "logistic", "mira"}, default "squared"
        Loss that routers minimise, by AdaGrad steps (Duchi et al., 2011). With "mira" each row makes the smallest
        change of a router that gives the row a margin of 1 on the right side: the passive-aggressive step.
    router_learning_rate : float, default 2.0
        AdaGrad step of the routers, relative to the sum of a key's absolute values. With "mira" the cap on a step
        (``C``): the largest factor by which a row is added to a router.
    sure_margin : float, default 0.75
        Margin above which searches follow a router without considering the other side. Routers learn margins of -1 or 1
        for keys, and have smaller ones for queries that share only some features with a key. With a larger value
        searches find more and take longer.
    scorer_loss : {"ranking", "mira", "regression", "contrast"}, default "contrast"
        Loss that the scorer minimises. All except "regression" compare two memories of a row: the one with the highest
        reward, and the one with the highest score of those with a lower reward.

        - "contrast" is "ranking" that also learns from the reward of a single memory for each row: the memory is
          compared with the best other memory, as if that had reward 0. If its reward is 1, routers learn to lead to it.
        - "ranking" takes AdaGrad steps on a logistic loss of the score difference, weighted by the reward difference.
          It learns nothing from the reward of a single memory; a warning says so once.
        - "mira" makes the smallest change of the scorer that ranks the two by a small margin; otherwise like "ranking".
        - "regression", the loss of the paper, takes AdaGrad steps on the squared difference between score and reward.
    scorer_learning_rate : float, default 0.1
        AdaGrad step of the scorer. With "mira" the cap on a step is proportional to it.
    max_memories : int, optional
        Largest number of memories; unlimited by default. An insert that would exceed it evicts memories first.
        Batches larger than an eighth of it are inserted in parts.
    eviction : {"least_recently_returned", "oldest", "random"}, default "least_recently_returned"
        Which memories are evicted:

        - "least_recently_returned": those that queries, including those of :meth:`learn`, have not returned for
          the longest time. Rows count in order, and within a row the worst memory counts first. An insert or a
          replacement counts as a return. This policy takes 8 bytes for each memory.
        - "oldest": those inserted first; "random": any.
    n_links : int, default 0
        Number of links from each dense memory to near ones, at most 512. Queries with a ``breadth`` follow the links (a
        navigable graph; Malkov and Yashunin, 2018) and soon find nearly all of the nearest memories. 24 is usually
        enough. Links take ``4 * n_links`` bytes for each memory, and 50 to 200 microseconds for each insert. Sparse
        keys have none.
    keep : {"all", "codes"}, default "all"
        What is stored of dense keys. "codes" stores only 8-bit codes, in a fifth of the memory. Decoded keys differ
        slightly from the inserted ones, and trees, scores and learning use them. Sparse keys are always stored in full.
    n_threads : int, optional
        Number of threads for batches; by default as many as Numba uses (``NUMBA_NUM_THREADS``, or the number of
        processors). Answers and trees do not depend on it.
    random_state : int or numpy.random.SeedSequence, optional
        Seed. The same seed and calls give the same trees and answers, bit for bit, with any number of threads. A
        processor with other vector instructions adds numbers in another order: scores and weights may then differ in
        their last digits, and trees may differ where a router is almost undecided.

    Attributes
    ----------
    n_memories, n_features, depth, nbytes
        See the properties of these names.

    Examples
    --------
    >>> import numpy as np
    >>> tree = ContextualMemoryTree(random_state=0)
    >>> tree.insert(np.eye(3))
    array([0, 1, 2])
    >>> tree.query([[0.1, 0.9, 0.0]]).ids
    array([[1]])
    """

    def __init__(
        self,
        n_trees: int = 1,
        alpha: float = 0.9,
        leaf_multiplier: float = 4.0,
        n_reroutes: int = 5,
        *,
        router_loss: str = "squared",
        router_learning_rate: float = 2.0,
        sure_margin: float = 0.75,
        scorer_loss: str = "contrast",
        scorer_learning_rate: float = 0.1,
        max_memories: int | None = None,
        eviction: str = "least_recently_returned",
        n_links: int = 0,
        keep: str = "all",
        n_threads: int | None = None,
        random_state: int | np.random.SeedSequence | None = None,
    ) -> None:
        given = locals()
        options = {name: constraint.check(name, given[name]) for name, constraint in OPTIONS.items()}
        n_threads, seed = options.pop("n_threads"), check_seed(options.pop("random_state"))
        self._forest = Forest(options, n_threads, seed.generate_state(n_trees + 1, np.uint64))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self._forest.options.items())
        return f"{type(self).__name__}({shown}) with {self.n_memories} memories"

    @property
    def _lock(self) -> ReadWriteLock:
        return self._forest.lock

    # Contents

    @property
    def n_memories(self) -> int:
        """Number of memories stored."""
        return self._forest.n_memories

    @property
    def n_features(self) -> int | None:
        """Width of the keys, set by the first insert; None before."""
        state = self._forest.state
        return None if state is None else state.parameters.n_features

    @property
    def depth(self) -> int:
        """Maximum number of internal nodes between a root and a leaf; 0 while every tree is a single leaf."""
        return self._forest.depth()

    @property
    def nbytes(self) -> int:
        """Bytes allocated for keys, trees, routers, the scorer, links and the eviction policy."""
        return self._forest.nbytes

    @property
    def ids(self) -> np.ndarray:
        """The ids of all memories, in no particular order: int64, shape (n_memories,)."""
        return self._forest.ids()

    def __len__(self) -> int:
        return self.n_memories

    def __contains__(self, memory_id: object) -> bool:
        if not isinstance(memory_id, (int, np.integer)) or isinstance(memory_id, bool):
            return False
        forest = self._forest
        if not 0 <= memory_id < forest.next_id:
            return False
        return bool(forest.lock.read(lambda: forest.slots_of(np.array([memory_id], np.int64)))[0] >= 0)

    def leaves(self) -> Leaves:
        """Return the tree, the depth and the size of every leaf; an empty tree is a single leaf.

        Returns
        -------
        Leaves
            ``tree``, ``depth`` and ``size``: int64, one entry for each leaf.
        """
        return self._forest.leaves()

    def plot(self) -> Any:
        """Return a figure of the shape of the trees. Requires matplotlib.

        Its panels are the depths of all leaves, their sizes, and the accuracy of the routers at each depth: the share
        of inserted memories that a router, once trained on them, sent to the side of their label.

        Returns
        -------
        matplotlib.figure.Figure
            The figure, for example for ``figure.savefig("tree.svg")``. A notebook displays it.

        Raises
        ------
        ImportError
            If matplotlib is missing.
        """
        return plot_forest(self._forest)

    @changes  # read-only, but excludes other changes
    def check_invariants(self) -> None:
        """Check all invariants of the trees, the key store, the links and the eviction policy.

        Raises
        ------
        InvariantError
            If an invariant is violated. This is a bug, unless other code has overwritten memory.
        """
        self._forest.check()

    # Operations

    @keeps_interpreter
    def insert(self, X: Any, *, progress: bool = False) -> np.ndarray:
        """Insert memories (INSERT, Algorithm 4), in the order of the rows.

        Other threads see a large insert step by step.

        Parameters
        ----------
        X : array-like or scipy.sparse matrix or array, shape (n, n_features)
            Keys: real, finite numbers. The form of the first keys, dense or sparse, is that of all stored keys; later
            keys are converted.
        progress : bool, default False
            Show a progress bar.

        Returns
        -------
        ndarray of int64, shape (n,)
            The ids of the new memories: 0, 1, 2, ... in order of insertion, never reused. If there are more rows than
            ``max_memories``, the first ones have been evicted already.

        Raises
        ------
        TypeError, ValueError
            If ``X`` cannot be used as keys; nothing has changed then.
        MemoryError
            If memory runs out. None of ``X`` is stored then; earlier memories are, except evicted ones.
        """
        return insert_rows(self._forest, self._forest.check_rows(X), progress)

    @keeps_interpreter
    def query(
        self,
        X: Any,
        k: int = 1,
        n_probes: int | None = None,
        epsilon: float = 0.0,
        *,
        breadth: int | None = None,
        among: Any = None,
        progress: bool = False,
    ) -> ShownHits:
        """Return the best memories for each row (QUERY, Algorithm 2).

        Parameters
        ----------
        X : array-like or scipy.sparse matrix or array, shape (n, n_features)
            Queries.
        k : int, default 1
            Memories to return for each row: at most 1,000,000, or ``n_memories`` if that is more.
        n_probes : int, optional
            Number of leaves to search in all trees together, those on the surest paths first. With at least
            ``n_trees``, the best leaf of each tree is among them. By default one leaf in each tree. More leaves find
            more and take longer.
        epsilon : float in [0, 1], default 0.0
            Probability with which a row explores: it draws a tree and a place on its path, and either takes a random
            side of that node or draws random memories of the leaf.
        breadth : int, optional
            Number of candidates to keep while following links from the memories of the leaves, at least ``k``. More
            candidates find more and take longer. The tree must have links, see ``n_links``; with sparse keys this has
            no effect. By default no links are followed.
        among : array-like of int, or of bool, optional
            Filter: the ids of the candidates, or a mask whose entry ``i`` says whether id ``i`` is a candidate. Ids
            beyond the end of a mask and removed ids are not candidates. The search skips subtrees without candidates,
            and continues beyond ``n_probes`` leaves until it has found ``k``. With fewer than about a hundred
            candidates for each of ``n_probes``, all of them are scored. With a ``breadth`` links are followed first: a
            filter that a tenth of the memories pass needs ten times the ``breadth``. Rows for which links lead to fewer
            candidates than chance would are compared with all candidates. An array that is passed again is prepared
            once, until it or the tree changes. Changes by other threads wait until all rows are answered.
        progress : bool, default False
            Show a progress bar.

        Returns
        -------
        ShownHits
            Ids, scores, the record of exploration, and ``propensities``, the probabilities that memories are shown.
            Equal scores are ordered at random, differently after each reroute.

        Raises
        ------
        KeyError
            If ``among`` has an id that is not stored.
        TypeError, ValueError
            If an argument cannot be used; if ``among`` or ``breadth`` is given with an ``epsilon`` above 0, since
            exploration ignores both; or ``breadth`` for a tree without links.
        """
        forest = self._forest
        rows = forest.check_rows(X)
        k = check_wanted("k", k, forest.n_memories)
        n_leaves = None if n_probes is None else check_integer("n_probes", n_probes, 1)
        epsilon = check_real("epsilon", epsilon, 0.0, 1.0)
        if breadth is not None:
            breadth = check_integer("breadth", breadth, 1, MOST_WANTED)
            if forest.options["n_links"] == 0:
                raise ValueError("breadth needs links: create the tree with n_links=24, or omit breadth")
            if epsilon > 0.0:
                raise ValueError(
                    "breadth needs epsilon=0.0, since exploration follows no links: omit breadth or epsilon"
                )
        if among is not None and epsilon > 0.0:
            raise ValueError("epsilon must be 0 with among, since exploration ignores filters: pass epsilon=0.0")
        candidates = None
        if among is not None:
            candidates = forest.filters.of(among, None, lambda: Filter(*check_among(among)))
        hits = query_forest(
            forest,
            rows,
            k,
            n_leaves,
            epsilon=epsilon,
            among=candidates,
            breadth=breadth or 0,
            progress=progress,
        )
        note_returned(forest, hits.ids)
        return hits

    @keeps_interpreter
    @changes
    def update(
        self, X: Any, hits: Hits, rewards: Any, *, key_learning_rate: float = 0.0, progress: bool = False
    ) -> None:
        """Learn from the rewards of a query's answers (UPDATE, Algorithm 3).

        A row that explored an internal node trains that node's router; any other row trains the scorer. For rewards of
        only the first memory of each row, see ``scorer_loss``. After each row every tree reroutes ``n_reroutes``
        memories. At the end dense keys may be moved, which is not in the paper.

        Parameters
        ----------
        X : array-like or scipy.sparse matrix or array, shape (n, n_features)
            The queries.
        hits : Hits
            The return value of :meth:`query`. Memories and nodes that were removed since are skipped.
        rewards : array-like, shape (n,) or (n, k)
            Rewards in [0, 1] of each row's first memory, or of each memory. They are ignored where ``hits.ids`` is -1.
        key_learning_rate : float in [0, 1], default 0.0
            The longest step of a dense key, which has length 1, for each sixteen rows. Rows that explored no internal
            node move keys of memories with a high reward towards them, and the other keys away (relevance feedback on
            stored vectors: Brauen, 1971; neighbourhood components analysis: Goldberger et al., 2005). Keys keep unit
            length, and the inserted keys are lost. Memories stay in their leaves until they are rerouted. With 0 keys
            do not move; sparse keys never do.
        progress : bool, default False
            Show a progress bar.

        Raises
        ------
        TypeError, ValueError
            If an argument cannot be used; nothing has changed then.
        MemoryError
            If memory runs out. The trees are valid and hold every memory, but some rows may not have been learned.
        """
        forest = self._forest
        rows = forest.check_rows(X)
        hits = check_hits(hits, rows.n_rows, forest.state)
        rewards = check_rewards(rewards, hits.ids)
        rate = check_real("key_learning_rate", key_learning_rate, 0.0, 1.0)
        warn_if_in_vain(forest, hits, rewards)
        update_rows(forest, rows, hits, rewards, progress, rate)

    @keeps_interpreter
    @changes
    def teach(self, X: Any, ids: Any, *, n_passes: int = 1, afresh: bool = False, progress: bool = False) -> None:
        """Teach the routers which memory each row belongs to (UPDATE, Algorithm 3, where the right memory is known).

        In every tree, each router above a row's memory learns to send the row to the memory's side. So rows find the
        memories that they belong to, even if they are not similar to their keys.

        Parameters
        ----------
        X : array-like or scipy.sparse matrix or array, shape (n, n_features)
            Rows that are similar to later queries.
        ids : array-like of int, shape (n,)
            Ids of the stored memories that the rows belong to.
        n_passes : int, default 1
            Number of passes over the rows, each in a new random order; at most 10,000.
        afresh : bool, default False
            Reset the routers first, if the rows cover all memories. Memories stay in their leaves.
        progress : bool, default False
            Show a progress bar.

        Raises
        ------
        KeyError
            If an id is not stored; nothing has changed then.
        TypeError, ValueError
            If an argument cannot be used; nothing has changed then.
        MemoryError
            If memory runs out. The trees are valid and hold every memory, but some rows may not have been learned.
        """
        rows = self._forest.check_rows(X)
        ids = check_memory_ids(ids, rows.n_rows)
        teach_rows(self._forest, rows, ids, check_passes("n_passes", n_passes, 1), afresh, progress)

    def learn(
        self,
        X: Any,
        reward: Reward,
        *,
        own_ids: Any = None,
        k: int = 10,
        n_probes: int | None = None,
        epsilon: float = 0.1,
        key_learning_rate: float = 0.3,
        n_passes: int = 1,
        progress: bool = False,
    ) -> float:
        """Query, reward and update repeatedly: the supervised protocol of the paper (section 4).

        Each pass visits the rows in a new random order, in blocks: query a block of rows, reward the memories found,
        update the trees and the scorer, and :meth:`teach` the routers to lead to memories of reward 1.

        Rewards also move dense keys, see ``key_learning_rate``, towards rows that found the right memories, so that
        similar rows find them more easily. As a rule, a memory is still found by its original key.

        Memories that had reward 1 for the same row, and the row's own, form a group. Once this call has joined a third
        of all memories into groups, each pass ends with :meth:`rebuild` around the groups. A group of more than half of
        the memories does not count.

        Parameters
        ----------
        X : array-like or scipy.sparse matrix or array, shape (n, n_features)
            Rows that are similar to later queries, or the stored keys themselves.
        reward : callable
            One of :mod:`cmt_numba.rewards`, or a function ``reward(rows, ids)`` of the positions of some rows of ``X``,
            int64 (n,), and the ids found for them, int64 (n, k), -1 for none. It returns rewards in [0, 1], (n, k).
        own_ids : array-like of int, shape (n,), optional
            The ids of rows that are stored themselves, which are left out of their answers, since a row that finds
            itself learns nothing. -1 for a row that is not stored.
        k : int, default 10
            Number of memories to reward for each row, below 1,000,000.
        n_probes : int, optional
            Number of leaves to search; by default four for each tree, and at least eight.
        epsilon : float in [0, 1], default 0.1
            Probability with which a row explores, and so trains a router.
        key_learning_rate : float in [0, 1], default 0.3
            The longest step of dense keys, see :meth:`update`. With 0 keys do not move.
        n_passes : int, default 1
            Number of passes over the rows, at most 10,000.
        progress : bool, default False
            Show a progress bar.

        Returns
        -------
        float
            The mean reward of the first memories in the last pass, before learning from them; 0.0 for rows without a
            memory.

        Raises
        ------
        TypeError, ValueError
            If an argument or a reward cannot be used. The current block has changed nothing then.
        MemoryError
            If memory runs out. The trees are valid and hold every memory, but some rows may not have been learned.
        """
        rows = self._forest.check_rows(X)
        how = Supervision(
            reward,
            None if own_ids is None else check_memory_ids(own_ids, rows.n_rows),
            check_integer("k", k, 1, MOST_WANTED - 1),  # one more than requested, for the row's own memory
            max(8, _LEAVES_OF_EACH * self._forest.n_trees) if n_probes is None else n_probes,
            epsilon,
            check_real("key_learning_rate", key_learning_rate, 0.0, 1.0),
            check_passes("n_passes", n_passes, 1),
        )
        if not callable(reward):
            raise TypeError(f"reward must be a function of rows and ids, got {type(reward).__name__}")
        if self.n_memories == 0:
            return 0.0
        orders = np.random.Generator(np.random.PCG64(draw_seed(self._forest)))
        return learn_in_passes(self, rows, how, orders, progress)

    @keeps_interpreter
    def remove(self, ids: Any) -> None:
        """Remove memories (REMOVE, Algorithm 6). Their space is reused, their ids are not.

        Parameters
        ----------
        ids : int or array-like of int, shape (n,)
            Distinct ids of stored memories.

        Raises
        ------
        KeyError
            If an id is not stored; nothing has been removed then.
        TypeError, ValueError
            If ``ids`` are not distinct integers.
        """
        remove_ids(self._forest, check_ids(ids))

    @keeps_interpreter
    @changes
    def replace(self, ids: Any, X: Any, *, progress: bool = False) -> None:
        """Replace the keys of memories: REMOVE and INSERT (Algorithms 6 and 4) in every tree. Ids stay.

        Parameters
        ----------
        ids : int or array-like of int, shape (n,)
            Distinct ids of stored memories.
        X : array-like or scipy.sparse matrix or array, shape (n, n_features)
            Their new keys.
        progress : bool, default False
            Show a progress bar.

        Raises
        ------
        KeyError
            If an id is not stored; nothing has changed then.
        TypeError, ValueError
            If ``ids`` are not distinct integers, one for each row, or ``X`` cannot be used as keys; nothing has changed
            then.
        MemoryError
            If memory runs out. The trees are valid and hold every memory, all with their old keys or all with the new
            ones. In the second case some memories may remain in their old leaves until they are rerouted.
        """
        rows = self._forest.check_rows(X)
        ids = check_ids(check_memory_ids(ids, rows.n_rows))
        replace_rows(self._forest, ids, rows, progress)
        enter_returned(self._forest, ids[:, None])

    def reroute(self, n: int, *, progress: bool = False) -> None:
        """Reroute ``n`` memories of each tree, each drawn uniformly (REROUTE, Algorithm 7).

        Parameters
        ----------
        n : int
            Memories to reroute, at least 0.
        progress : bool, default False
            Show a progress bar.
        """
        reroute_memories(self._forest, check_integer("n", n, 0), progress)

    def rebuild(self, ids: Any, groups: Any, *, progress: bool = False) -> None:
        """Rebuild the trees from the root down, so that groups of memories stay together.

        Balanced 2-means over the mean keys of the groups halves the memories of a node, its router is trained to
        separate the halves, and each memory follows the router, until leaves are small enough (like label trees:
        Prabhu et al., 2018, Parabel; Yu et al., 2022, XR-Linear). A group is divided only if it is alone in a node, or
        if a router errs. Later inserts, updates and reroutes continue with these trees.

        Keys, ids, scorer and links do not change. Queries use the old trees until all new ones are complete, and an
        interrupt keeps the old ones. This takes about as long as inserting all memories. It needs memory for a second
        set of trees, and for full keys if keys are sparse or stored as codes.

        Parameters
        ----------
        ids : array-like of int, shape (n,)
            Distinct ids of stored memories. All other memories are groups of their own.
        groups : array-like of int, shape (n,)
            The number of each memory's group, for example its class.
        progress : bool, default False
            Show a progress bar.

        Raises
        ------
        KeyError
            If an id is not stored; nothing has changed then.
        TypeError, ValueError
            If ``ids`` are not distinct integers, or ``groups`` not an integer for each; nothing has changed then.
        MemoryError
            If memory runs out; nothing has changed then.
        """
        ids = check_ids(ids)
        rebuild_trees(self._forest, ids, check_groups(groups, ids.size), progress)

    def compact(self, *, copies: bool = True) -> None:
        """Store memories in the order in which searches read them, for faster queries. Answers do not change.

        Use this after many inserts and before many queries. Later changes gradually disturb the order.

        Parameters
        ----------
        copies : bool, default True
            Give each tree except the first its own copy of the 8-bit codes of dense keys, in the order of its leaves.
            This takes ``n_features + 8`` bytes for each memory and copy. Leaves that change no longer use it.

        Raises
        ------
        MemoryError
            If memory runs out; nothing has changed then. Compaction needs memory for a second copy of the keys.
        """
        compact_memories(self._forest, bool(copies))

    # Files, pickles and copies

    @changes  # read-only, but excludes other changes
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the trees, their memories and everything learned to a file.

        An existing file is replaced when the new one is complete, so a crash leaves either the old or the new file. See
        :mod:`cmt_numba.persistence` for the format.

        Parameters
        ----------
        path : path-like
            The file. A symbolic link is followed.

        Raises
        ------
        InvariantError
            If an invariant of the trees is violated, which is a bug. Nothing has been written then.
        OSError
            If the file cannot be written, or ``path`` is not a regular file: a folder, a device, a named pipe.
        """
        write_object(
            path,
            lambda: Contents(KIND, *self._contents()),
            lambda read: type(self)._made_of(read.fields, read.arrays, thorough=True),
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str], mmap: bool = False) -> Self:
        """Return the tree that :meth:`save` has written. It continues exactly as the saved tree would.

        Parameters
        ----------
        path : path-like
            The file.
        mmap : bool, default False
            Map the file into memory instead of reading it. This takes milliseconds for any size of file, and processes
            that map the same file share its memory. Changed pages are copied and never reach the file. Only the header
            is checked for damage. Map only files that you trust, and do not modify them in place.

        Raises
        ------
        cmt_numba.persistence.FileFormatError
            If the file is damaged, of a later version, or not a tree's. The message states the reason.
        OSError
            If the file cannot be read.
        """
        contents = read_object(path, (KIND,), mmap=mmap)
        with refusing(path):
            return cls._made_of(contents.fields, contents.arrays, thorough=not mmap)

    @classmethod
    def _made_of(
        cls, fields: dict[str, Any], arrays: dict[str, np.ndarray], *, thorough: bool, values: bool = True
    ) -> Self:
        """Return the tree with the contents of a file, see :func:`~cmt_numba._engine.restore`."""
        tree = cls.__new__(cls)
        tree._set_up(fields)
        restore(tree._forest, fields, arrays, thorough=thorough, values=values)
        return tree

    def _set_up(self, fields: dict[str, Any]) -> None:
        """Initialise an empty tree with the options in a file."""
        n_threads = take(fields, "n_threads", int, type(None))
        ContextualMemoryTree.__init__(self, **take(fields, "options", dict), n_threads=n_threads, random_state=0)

    def _contents(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        return contents_of(self._forest)

    @changes  # read-only, but excludes other changes
    def __getstate__(self) -> dict[str, Any]:
        fields, arrays = self._contents()
        return {"fields": fields, "arrays": {name: array.copy() for name, array in arrays.items()}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._set_up(state["fields"])
        restore_pickled(self._forest, state["fields"], state["arrays"])

    @changes  # read-only, but excludes other changes
    def _twin(self) -> ContextualMemoryTree:
        """Return an independent copy, which continues exactly as this tree would."""
        twin = ContextualMemoryTree.__new__(ContextualMemoryTree)
        twin._forest = self._forest.copy()
        return twin
