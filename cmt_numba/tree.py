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

_LEAVES_OF_EACH = 4  # of each tree that ``learn`` searches by default


class ContextualMemoryTree:
    """A Contextual Memory Tree, or a forest of them over one store of memories.

    Memories are keys (feature vectors) with an id; what an id stands for is the caller's. Keys are scaled to unit
    length when they come in, so only their direction counts. They are inserted, found, removed and reorganised one by
    one in time logarithmic in their number, and rewards for the memories returned teach the trees where to look and
    the scorer what to return (Sun et al., Contextual Memory Trees, ICML 2019).

    Any number of threads may use a tree at once. Changes (all that inserts, removes, moves or learns) are made one
    after the other, in the order in which they were called for, and in steps of some milliseconds. Between two steps
    other threads read (query, count and so on): they see what the steps so far have made of the tree, and the last
    rows of a large batch may see more of them than the first. A tree may be pickled or saved while it is used, and
    used on both sides of a fork, which waits until changes under way are complete.

    Parameters
    ----------
    n_trees : int, default 1
        Trees over the same memories, each grown with its own random draws. One is the paper's tree; each further tree
        costs as much again to insert and finds much of what the others miss.
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
        Margin from which on searches follow a router without looking at the other side. Routers learn to answer -1 or
        1 for keys, and less for queries that share only some of a key's features. Large ones find more, more slowly.
    scorer_loss : {"ranking", "mira", "regression", "contrast"}, default "contrast"
        What the scorer learns from rewards. All but "regression" compare two memories of a row: the one with the
        highest reward, and of those with a lower reward the one with the highest score.

        - "contrast" is "ranking", and learns from rewards of a single memory for each row, too: the memory is compared
          with the best other one, as if that had reward 0, and if its reward is 1, routers are taught to lead to it.
        - "ranking" takes AdaGrad steps on a logistic loss of the difference of the scores, times that of the rewards.
          From rewards of a single memory it learns nothing; a warning says so once.
        - "mira" makes the smallest change of the scorer that orders the two by a small margin; else as "ranking".
        - "regression" is the paper's: AdaGrad steps on the squared difference between score and reward.
    scorer_learning_rate : float, default 0.1
        AdaGrad step of the scorer. With "mira" the cap on a step is proportional to it.
    max_memories : int, optional
        Maximum number of memories; unlimited by default. Before an insert that would exceed it, the excess is removed.
        Batches larger than an eighth of it are inserted in parts.
    eviction : {"least_recently_returned", "oldest", "random"}, default "least_recently_returned"
        Which memories are removed then:

        - "least_recently_returned": those that were not returned for the longest time, by :meth:`query` or by the
          queries of :meth:`learn`. Rows count one after the other, and the worst memory of a row counts first. An
          insert or a replacement counts as a return. This policy takes 8 bytes for each memory.
        - "oldest": those inserted first; "random": any.
    n_links : int, default 0
        Link each dense memory with up to so many near ones, at most 512: queries with a ``breadth`` follow the links (a
        navigable graph; Malkov and Yashunin, 2018) and soon find nearly all of the nearest memories. 24 is enough for
        most. Links take ``4 * n_links`` bytes, and 50 to 200 microseconds for each insert. Sparse keys have none.
    keep : {"all", "codes"}, default "all"
        "codes" keeps dense keys as 8-bit codes alone, in a fifth of the room. Codes stand for keys that differ a little
        from those inserted; trees, scores and learning go by them. Sparse keys are kept in full.
    n_threads : int, optional
        Number of threads for batches; by default as many as numba uses (``NUMBA_NUM_THREADS``, or one for each
        processor). Answers and trees do not depend on it.
    random_state : int or numpy.random.SeedSequence, optional
        Seed. The same seed and calls give the same trees and answers, bit for bit, on any number of threads. On a
        processor with other vector instructions sums are added up in another order: scores and weights may then differ
        in their last digits, and so may the tree, wherever a router is that undecided about a memory.

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

    # What it holds

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

    @changes  # nothing, but other changes must wait
    def check_invariants(self) -> None:
        """Check all invariants of the trees, the key store, the links and the eviction policy.

        Raises
        ------
        InvariantError
            If one is violated. Unless memory was overwritten from outside, this is a bug.
        """
        self._forest.check()

    # What it does

    @keeps_interpreter
    def insert(self, X: Any, *, progress: bool = False) -> np.ndarray:
        """Insert memories (INSERT, Algorithm 4), in the order of the rows.

        Other threads see the memories of a large insert come step by step.

        Parameters
        ----------
        X : array-like or scipy.sparse matrix or array, shape (n, n_features)
            Keys: real, finite numbers. Whether the first keys are dense or sparse decides how all keys are stored;
            later ones of the other form are converted.
        progress : bool, default False
            Show a progress bar.

        Returns
        -------
        ndarray of int64, shape (n,)
            The new memories' ids: 0, 1, 2, ... in order of insertion, never used again. If there are more rows than
            there may be memories, the first have gone already.

        Raises
        ------
        TypeError, ValueError
            If ``X`` cannot be used as keys; nothing has changed then.
        MemoryError
            If memory runs out; the memories stored before are still there, except those forgotten to make room. Those
            of ``X`` are not.
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
            Leaves to search in all trees together, those on the surest paths first; with at least ``n_trees``, each
            tree's best leaf among them. By default one leaf in each tree. More find more and take longer.
        epsilon : float in [0, 1], default 0.0
            Probability with which a row explores: it draws a tree and a place on its path there, and either takes a
            random side at that node or draws random memories in the leaf.
        breadth : int, optional
            Begin with the leaves and then follow the links between memories, keeping so many candidates, at least
            ``k``. More find more and take longer. The memories must be linked, see ``n_links``; where keys are sparse
            this changes nothing. By default no links are followed.
        among : array-like of int, or of bool, optional
            Filter: the ids of the candidate memories, or a mask whose entry ``i`` says whether id ``i`` is a candidate.
            Ids beyond the end of a mask, and those of removed memories, are no candidates. The search skips subtrees
            without candidates, and goes on beyond ``n_probes`` leaves until it has found ``k``. With fewer than about
            a hundred candidates for each of ``n_probes``, all of them are scored. With a ``breadth`` it follows the
            links first: a filter that leaves a tenth needs ten times the ``breadth``. Rows for which links lead to
            fewer candidates than chance would have it are compared with all of them. An array that comes again is
            prepared once, until it or the tree changes. Changes by other threads wait until all rows are answered.
        progress : bool, default False
            Show a progress bar.

        Returns
        -------
        ShownHits
            Ids, scores, the record of exploration, and as ``propensities`` how probable each was to be shown. Equal
            scores are ordered at random, anew after every reroute.

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
                raise ValueError("breadth needs links: create the tree with n_links=24, or leave breadth out")
            if epsilon > 0.0:
                raise ValueError("breadth must be left out with an epsilon above 0: exploration follows no links")
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

        A row that explored an internal node teaches that node's router; any other teaches the scorer. With a reward for
        only the first memory of each row, see ``scorer_loss``. Then every tree reroutes ``n_reroutes`` memories.
        At the end dense keys may be moved, which is not in the paper.

        Parameters
        ----------
        X : array-like or scipy.sparse matrix or array, shape (n, n_features)
            The queries.
        hits : Hits
            The return value of :meth:`query`. Memories and nodes that were removed since are skipped.
        rewards : array-like, shape (n,) or (n, k)
            Rewards in [0, 1] of each row's first memory, or of each memory. Those where ``hits.ids`` is -1 do not
            count.
        key_learning_rate : float in [0, 1], default 0.0
            How far a dense key, which has length 1, moves at most at a time, for a row that explored no internal node
            (sixteen rows are one time): keys of memories with a high reward towards the row, those of others away from
            it (relevance feedback on stored vectors: Brauen, 1971; neighbourhood components analysis: Goldberger et
            al., 2005). Keys keep unit length, and what was inserted is not kept beside them. Memories stay in their
            leaves until they are rerouted. With 0 keys stay as they are; sparse keys always do.
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

        At every node above a row's memory the router learns to send the row to the memory's side, in every tree. So
        a memory is found by what belongs to it even where it is little like its key.

        Parameters
        ----------
        X : array-like or scipy.sparse matrix or array, shape (n, n_features)
            Rows like the queries to come.
        ids : array-like of int, shape (n,)
            Ids of the stored memories that the rows belong to.
        n_passes : int, default 1
            Number of passes over the rows, each in another random order; at most 10,000.
        afresh : bool, default False
            Reset the routers first, for rows that cover all memories. Memories stay in their leaves.
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

        Each pass goes through the rows in a new random order, in blocks: query a block of rows, reward the memories
        found, update the trees and the scorer, and :meth:`teach` the routers the way to memories of reward 1.

        Rewards also move dense keys, see ``key_learning_rate``: towards rows that had found what they looked for, so
        that rows like these find it more easily. A memory is still found by the key that it came with, as a rule.

        Memories that had reward 1 for the same row, and the row's own, belong together. Once the passes of this call
        have joined a third of all memories into groups, each pass ends with :meth:`rebuild`, which builds the trees
        anew around the groups. A group of more than half of the memories does not count towards the third.

        Parameters
        ----------
        X : array-like or scipy.sparse matrix or array, shape (n, n_features)
            Rows like the queries to come; the stored keys themselves if there are no others.
        reward : callable
            One of :mod:`cmt_numba.rewards`, or a function of your own of the positions of some rows of ``X``, int64
            (n,), and the ids found for them, int64 (n, k), -1 for none. It returns rewards in [0, 1], (n, k).
        own_ids : array-like of int, shape (n,), optional
            Where rows are stored themselves: their memories' ids, which are left out of their answers, for a row that
            finds itself learns nothing. -1 for a row that is not stored.
        k : int, default 10
            Memories rewarded for each row: fewer than 1,000,000.
        n_probes : int, optional
            Leaves to search; by default four for each tree, and at least eight.
        epsilon : float in [0, 1], default 0.1
            Share of the rows that explore, and so teach routers.
        key_learning_rate : float in [0, 1], default 0.3
            How far rewards move dense keys, see :meth:`update`. With 0 all keys stay as they were inserted.
        n_passes : int, default 1
            Number of passes over the rows, at most 10,000.
        progress : bool, default False
            Show a progress bar.

        Returns
        -------
        float
            The mean reward of the first memories of the last pass, before what they taught; 0.0 for a row without.

        Raises
        ------
        TypeError, ValueError
            If an argument or a reward cannot be used; the block at hand has changed nothing then.
        MemoryError
            If memory runs out. The trees are valid and hold every memory, but some rows may not have been learned.
        """
        rows = self._forest.check_rows(X)
        how = Supervision(
            reward,
            None if own_ids is None else check_memory_ids(own_ids, rows.n_rows),
            check_integer("k", k, 1, MOST_WANTED - 1),  # with its own memory a row asks for one more
            max(8, _LEAVES_OF_EACH * self._forest.n_trees) if n_probes is None else n_probes,
            epsilon,
            check_real("key_learning_rate", key_learning_rate, 0.0, 1.0),
            check_passes("n_passes", n_passes, 1),
        )
        if not callable(reward):
            raise TypeError(f"reward must be a function of rows and ids, not {type(reward).__name__}")
        if self.n_memories == 0:
            return 0.0
        orders = np.random.Generator(np.random.PCG64(draw_seed(self._forest)))
        return learn_in_passes(self, rows, how, orders, progress)

    @keeps_interpreter
    @changes
    def remove(self, ids: Any) -> None:
        """Remove memories (REMOVE, Algorithm 6). Their space is reused, their ids are not.

        Parameters
        ----------
        ids : int or array-like of int, shape (n,)
            Ids of stored memories, each named once.

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
        """Give memories other keys: REMOVE and INSERT (Algorithms 6 and 4) in every tree, but their ids stay.

        Parameters
        ----------
        ids : int or array-like of int, shape (n,)
            Ids of stored memories, each named once.
        X : array-like or scipy.sparse matrix or array, shape (n, n_features)
            Their keys from now on.
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
            If memory runs out. The trees are valid and hold every memory, all with the old keys or all with the new
            ones. With the new ones some may still lie where the old ones belonged, until they are rerouted or replaced
            again.
        """
        rows = self._forest.check_rows(X)
        ids = check_ids(check_memory_ids(ids, rows.n_rows))
        replace_rows(self._forest, ids, rows, progress)
        enter_returned(self._forest, ids[:, None])

    @changes
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

    @changes
    def rebuild(self, ids: Any, groups: Any, *, progress: bool = False) -> None:
        """Build the trees anew, from the root down, so that memories which belong together lie together.

        Balanced 2-means over the mean keys of the groups halves the memories of a node, its router is trained to tell
        the halves apart, and each memory then goes where the router sends it, until leaves are small enough (as label
        trees are built: Prabhu et al., 2018, Parabel; Yu et al., 2022, XR-Linear). A group is divided only when it is
        alone in a node, or where a router errs. Later inserts, updates and reroutes go on from these trees.

        Keys, ids, scorer and links stay as they are. Until all trees are complete queries find the old ones, and an
        interrupt leaves those. This takes about as long as inserting all memories, and as much memory again as the
        trees, and as keys in full if they are sparse or kept as codes.

        Parameters
        ----------
        ids : array-like of int, shape (n,)
            Ids of stored memories, each named once. Those that are not named are each a group of their own.
        groups : array-like of int, shape (n,)
            The number of the group that each belongs to, for example its class.
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

    @changes
    def compact(self, *, copies: bool = True) -> None:
        """Store memories in the order in which searches read them, for faster queries. Answers do not change.

        Do so after many inserts and before many queries. Later changes disturb the order gradually.

        Parameters
        ----------
        copies : bool, default True
            Give each tree but the first a copy, in its own order, of the 8-bit codes of dense keys that searches read
            first. This takes ``n_features + 8`` bytes for each memory and copy. Leaves that change do not use it any
            more.

        Raises
        ------
        MemoryError
            If memory runs out; nothing has changed then. Compaction takes as much memory again as the keys do.
        """
        compact_memories(self._forest, bool(copies))

    # Files, pickles and copies

    @changes  # nothing, but other changes must wait
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the trees, their memories and all that they have learned to a file.

        An existing file is replaced when the new one is complete, so that a crash leaves one or the other. See
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
        """Return the tree that :meth:`save` has written. It goes on exactly as the saved one would.

        Parameters
        ----------
        path : path-like
            The file.
        mmap : bool, default False
            Map the file into memory instead of reading it. This takes no time, whatever the size of the file, and
            processes that map the same file share its memory. What a process changes is copied first, so it does not
            reach the file. Only the header is checked for damage. Map only files that you trust, and do not change
            them in place.

        Raises
        ------
        cmt_numba.persistence.FileFormatError
            If the file is damaged, of a later version, or not a tree's. The message says which.
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
        """Become an empty tree with the options in a file."""
        n_threads = take(fields, "n_threads", int, type(None))
        ContextualMemoryTree.__init__(self, **take(fields, "options", dict), n_threads=n_threads, random_state=0)

    def _contents(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        return contents_of(self._forest)

    @changes  # nothing, but other changes must wait
    def __getstate__(self) -> dict[str, Any]:
        fields, arrays = self._contents()
        return {"fields": fields, "arrays": {name: array.copy() for name, array in arrays.items()}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._set_up(state["fields"])
        restore_pickled(self._forest, state["fields"], state["arrays"])

    @changes  # nothing, but other changes must wait
    def _twin(self) -> ContextualMemoryTree:
        """Return a tree that continues exactly as this one would, and shares nothing with it."""
        twin = ContextualMemoryTree.__new__(ContextualMemoryTree)
        twin._forest = self._forest.copy()
        return twin
