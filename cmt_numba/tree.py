"""The Contextual Memory Tree: a learned, online key-value memory."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from ._concurrency.rwlock import changes
from ._concurrency.workers import progress_bar, spans
from ._engine.filters import Filter
from ._engine.options import KEEP, ROUTER_LOSSES, SCORER_LOSSES
from ._engine.options import OPTIONS as OPTIONS
from ._engine.taught import TaughtForest
from ._forest.hits import ShownHits, joined, rewarded_memories, rewarded_pairs, without_own
from ._forest.rows import as_matrix
from ._forest.state import NONE
from ._validation import (
    MOST_WANTED,
    check_among,
    check_ids,
    check_integer,
    check_memory_ids,
    check_passes,
    check_real,
    check_rewards,
    check_seed,
    check_wanted,
)
from .rewards import Reward

_APART = "max_memories", "eviction", "n_links", "n_threads", "random_state"  # not handed to kernels
_ROWS_IN_A_BLOCK, _LEAVES_OF_EACH = 256, 4  # of ``learn``: rows that see the same trees; leaves of each tree searched
_WORTH_REBUILDING = 1 / 3  # of the memories that rewards must have joined before ``learn`` builds the trees anew


class ContextualMemoryTree(TaughtForest):
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
        checked = {name: constraint.check(name, given[name]) for name, constraint in OPTIONS.items()}
        apart = {name: checked.pop(name) for name in _APART}
        checked["coded"] = checked.pop("keep") == "codes"
        losses = {"router_loss": ROUTER_LOSSES.index(router_loss), "scorer_loss": SCORER_LOSSES.index(scorer_loss)}
        super().__init__(checked | losses, seed=check_seed(apart.pop("random_state")), **apart)

    def _set_up(self, options: dict[str, Any], n_threads: int | None) -> None:
        ContextualMemoryTree.__init__(self, **options, n_threads=n_threads, random_state=0)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self._named_options().items())
        return f"{type(self).__name__}({shown}) with {self.n_memories} memories"

    # What it does

    @changes
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
        return self._insert_rows(self._check_rows(X), progress)

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
        rows = self._check_rows(X)
        k = check_wanted("k", k, self.n_memories)
        n_leaves = None if n_probes is None else check_integer("n_probes", n_probes, 1)
        epsilon = check_real("epsilon", epsilon, 0.0, 1.0)
        if breadth is not None:
            breadth = check_integer("breadth", breadth, 1, MOST_WANTED)
            if self._n_links == 0:
                raise ValueError("breadth needs links: create the tree with n_links=24, or leave breadth out")
            if epsilon > 0.0:
                raise ValueError("breadth must be left out with an epsilon above 0: exploration follows no links")
        if among is not None and epsilon > 0.0:
            raise ValueError("epsilon must be 0 with among, since exploration ignores filters: pass epsilon=0.0")
        candidates = None
        if among is not None:
            candidates = self._filters.of(among, None, lambda: Filter(*check_among(among)))
        return self._query_rows(rows, k, n_leaves, epsilon, candidates, progress, breadth or 0)

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
        rows = self._check_rows(X)
        k = check_integer("k", k, 1, MOST_WANTED - 1)  # with its own memory a row asks for one more
        n_passes = check_passes("n_passes", n_passes, 1)
        if not callable(reward):
            raise TypeError(f"reward must be a function of rows and ids, not {type(reward).__name__}")
        rate = check_real("key_learning_rate", key_learning_rate, 0.0, 1.0)
        own = np.full(rows.n_rows, NONE, np.int64) if own_ids is None else check_memory_ids(own_ids, rows.n_rows)
        if self.n_memories == 0:
            return 0.0
        n_probes = max(8, _LEAVES_OF_EACH * self._options["n_trees"]) if n_probes is None else n_probes
        matrix = as_matrix(rows)  # blocks take the public way, so that subclasses can note each query and update
        orders = self._new_generator()
        total, pairs = 0.0, np.empty((0, 2), np.int64)
        with progress_bar(n_passes * rows.n_rows, "learn", progress) as report:
            for _ in range(n_passes):
                order, total, found_together = orders.permutation(rows.n_rows), 0.0, [pairs]
                for first, stop in spans(rows.n_rows, _ROWS_IN_A_BLOCK):
                    block = order[first:stop]
                    asked = matrix[block]
                    found = self.query(asked, k + (own_ids is not None), n_probes, epsilon)
                    hits = without_own(found, own[block], k)
                    rewards = check_rewards(reward(block, hits.ids), hits.ids)
                    self.update(asked, hits, rewards, key_learning_rate=rate)
                    taught, best = rewarded_memories(hits, own[block], rewards)
                    with suppress(KeyError):  # a memory has been removed meanwhile
                        if taught.size > 0:
                            self.teach(asked[taught], best)
                    found_together.append(rewarded_pairs(hits, own[block], rewards))
                    total += float(np.sum(rewards[:, 0], where=hits.ids[:, 0] != NONE))
                    report(stop - first)
                ids, groups = joined(np.concatenate(found_together))
                pairs = np.column_stack([ids, groups])
                with suppress(KeyError):
                    self._rebuild_if_worthwhile(ids, groups)
        return total / rows.n_rows

    def _rebuild_if_worthwhile(self, ids: np.ndarray, groups: np.ndarray) -> None:
        """Build the trees anew if enough memories have been joined into groups.

        A group of more than half of the memories, of which rewards say too little, does not count.
        """
        there = self._lock.read(lambda: self._slots(ids)) != NONE
        ids, groups = ids[there], groups[there]
        _, group, sizes = np.unique(groups, return_inverse=True, return_counts=True)
        n, size = self.n_memories, sizes[group]
        if np.count_nonzero((size > 1) & (2 * size <= n)) >= max(1.0, _WORTH_REBUILDING * n):
            self.rebuild(ids, groups)

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
        self._remove_ids(check_ids(ids))

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
        rows = self._check_rows(X)
        ids = check_ids(check_memory_ids(ids, rows.n_rows))
        self._replace_rows(ids, rows, progress)

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
        self._reroute(check_integer("n", n, 0), progress)

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
        self._compact(bool(copies))

    def _named_options(self) -> dict[str, Any]:
        """Return the options as the constructor takes them."""
        names = {"router_loss": ROUTER_LOSSES, "scorer_loss": SCORER_LOSSES}
        options = self._options | {loss: of[self._options[loss]] for loss, of in names.items()}
        options["keep"] = KEEP[options.pop("coded")]
        return options | self._bound | {"n_links": self._n_links}
