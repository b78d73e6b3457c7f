"""What a tree is told of its answers: rewards, the right memories, and which memories belong together."""

from __future__ import annotations

from typing import Any

from .._concurrency.rwlock import changes
from .._forest.hits import Hits
from .._forest.rows import Rows
from .._validation import (
    check_groups,
    check_hits,
    check_ids,
    check_matrix,
    check_memory_ids,
    check_passes,
    check_real,
    check_rewards,
    unit_rows,
)
from .files import StoredForest


class TaughtForest(StoredForest):
    """A forest that is told what answers were worth, or what is right: see :class:`~cmt_numba.ContextualMemoryTree`."""

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
        rows = self._check_rows(X)
        hits = check_hits(hits, rows.n_rows, self._state)
        rate = check_real("key_learning_rate", key_learning_rate, 0.0, 1.0)
        self._warn_if_in_vain(hits, checked := check_rewards(rewards, hits.ids))
        self._update_rows(rows, hits, checked, progress, rate)

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
        rows = self._check_rows(X)
        ids = check_memory_ids(ids, rows.n_rows)
        n_passes = check_passes("n_passes", n_passes, 1)
        self._teach_rows(rows, ids, n_passes, afresh, progress)

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
        self._rebuild(ids, check_groups(groups, ids.size), progress)

    def _check_rows(self, X: Any) -> Rows:
        """Return rows of the form and the width of the keys stored, if there are any."""
        return self._unit_rows(check_matrix(X, n_features=self.n_features))

    def _unit_rows(self, X: Any) -> Rows:
        """Return what ``check_matrix`` has returned as rows of the form of the keys stored, if there are any."""
        state = self._the_state
        sparse = None if state is None else state.parameters.sparse
        return unit_rows(X, sparse=sparse, n_threads=self._most_threads())
