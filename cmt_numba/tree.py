"""The Contextual Memory Tree: a learned, online key-value memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any, Self

import numba
import numpy as np

from ._concurrency.guard import Guard, changes
from ._concurrency.workers import Steps, Workers, map_threads, progress_bar, spans, workers
from ._forest import invariants as _invariants
from ._forest.allocation import trimmed, with_more, with_room_for_keys
from ._forest.compaction import compacted
from ._forest.eviction import EVICTIONS, Eviction, new_eviction
from ._forest.exploration import explore_rows
from ._forest.filtering import UNRESTRICTED, are_few, restriction_to, score_slots
from ._forest.hits import Feedback, Hits, Query, no_hits, without_own
from ._forest.insert_remove import insert_slots, remove_ids, remove_slots_from, reroute_tree, undo_move
from ._forest.invariants import Leaves
from ._forest.invariants.errors import require
from ._forest.key_store import append_keys, drop_keys_from, find_slots
from ._forest.quantization import encode_keys
from ._forest.replacement import overwrite_keys, reinsert_slots
from ._forest.rng import draw_word
from ._forest.routers import RouterLoss
from ._forest.rows import Rows, as_matrix
from ._forest.scorer import ScorerLoss
from ._forest.search import query_rows
from ._forest.state import (
    COUNT,
    DONE,
    MOST_MEMORIES,
    N_MEMORIES,
    NEXT_ID,
    NONE,
    Parameters,
    State,
    count_bytes,
    new_state,
)
from ._forest.structures import writeable
from ._forest.teaching import Lesson, forget_routes, teach_tree
from ._forest.update import update_scorer, update_tree
from ._validation import (
    MOST_REROUTES,
    MOST_WANTED,
    Among,
    check_among,
    check_choice,
    check_hits,
    check_ids,
    check_integer,
    check_known,
    check_memory_ids,
    check_passes,
    check_real,
    check_rewards,
    check_rows,
    check_seed,
    check_wanted,
)
from .persistence._container import Contents
from .persistence._trees import check_state, read_object, refusing, state_of, take, tree_contents, write_object
from .rewards import Reward

ROUTER_LOSSES = tuple(loss.name.lower() for loss in RouterLoss)
SCORER_LOSSES = tuple(loss.name.lower() for loss in ScorerLoss)

_KIND = "ContextualMemoryTree"  # of what is in a file

_ROWS_IN_A_BLOCK = 256  # of ``learn``: they all see the trees as the block before has left them
_INSERTS_TO_FILL = 8  # of a bounded tree, at least: what routers know would be lost if all memories went at once
_ROWS_WORTH_A_THREAD = 64  # below this, starting a thread costs more than it saves
_REMOVALS_IN_A_STEP = 1000


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
        How strongly routers are taught to keep the two sides of a node equal in number.
    leaf_multiplier : float, default 4.0
        ``c``: a leaf of a tree of ``n`` memories holds at most ``c * log2(n)``.
    n_reroutes : int, default 5
        ``d``: how many memories each tree reroutes after each memory inserted and each row of an update:
        at most 10,000.
    router_loss : {"squared", "logistic", "mira"}, default "squared"
        What routers minimise, by AdaGrad steps; or "mira", where each row changes a router as little as gives the row
        a margin of 1 on the right side (the passive-aggressive step).
    router_learning_rate : float, default 2.0
        AdaGrad step of the routers, relative to the sum of a key's absolute values. With "mira" the cap on a step
        (``C``): how often at most a row is added to a router.
    sure_margin : float, default 0.75
        From which margin on searches take a router at its word. Routers learn to answer -1 or 1 for keys, and less for
        queries that share only most of a key's features. With a small value searches leave the path of the routers
        seldom, which is faster; with a large one they look into more half-way paths, which finds more.
    scorer_loss : {"ranking", "mira", "regression"}, default "ranking"
        What the scorer learns from rewards. "ranking" and "mira" compare two memories of a row: the one with the
        highest reward, and of those with a lower reward the one with the highest score. A row with a reward for a
        single memory, or with equal rewards, teaches them nothing.

        - "ranking" minimises a logistic loss of the difference of the two scores, times that of the rewards, by AdaGrad
          steps.
        - "mira" changes the scorer as little as puts the two in order by a small margin.
        - "regression" is the paper's: scores shall be the rewards, by AdaGrad steps on the squared error. Where most
          rewards are 0 it can do worse than not to learn.
    scorer_learning_rate : float, default 0.1
        AdaGrad step of the scorer. With "mira" the cap on a step is proportional to it.
    max_memories : int, optional
        How many memories there may be at most; by default as many as are inserted. Before an insert that would exceed
        it, as many as needed are forgotten. Batches larger than an eighth of it are inserted in parts.
    eviction : {"least_recently_returned", "oldest", "random"}, default "least_recently_returned"
        Which memories are forgotten:

        - "least_recently_returned": those that no :meth:`query`, nor one that :meth:`learn` has made, has returned for
          the longest time. A query returns its rows one after another, and the worst memory of a row first. To be
          inserted or replaced counts as to be returned. This takes 8 bytes for each memory.
        - "oldest": those inserted first.
        - "random": any.
    n_threads : int, optional
        Threads for batches; by default as many as numba uses (``NUMBA_NUM_THREADS``, or one a processor). Answers
        and trees do not depend on it.
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
        scorer_loss: str = "ranking",
        scorer_learning_rate: float = 0.1,
        max_memories: int | None = None,
        eviction: str = "least_recently_returned",
        n_threads: int | None = None,
        random_state: int | np.random.SeedSequence | None = None,
    ) -> None:
        self._options: dict[str, Any] = {
            "n_trees": check_integer("n_trees", n_trees, 1, 2**15),
            "alpha": check_real("alpha", alpha, 0.0, 1.0, above=True),
            "leaf_multiplier": check_real("leaf_multiplier", leaf_multiplier, 0.0, 2.0**20, above=True),
            "n_reroutes": check_integer("n_reroutes", n_reroutes, 0, MOST_REROUTES),
            "router_loss": check_choice("router_loss", router_loss, ROUTER_LOSSES),
            "router_learning_rate": check_real("router_learning_rate", router_learning_rate, 0.0, 1e6, above=True),
            "sure_margin": check_real("sure_margin", sure_margin, 0.0, 1e6),
            "scorer_loss": check_choice("scorer_loss", scorer_loss, SCORER_LOSSES),
            "scorer_learning_rate": check_real("scorer_learning_rate", scorer_learning_rate, 0.0, 1e6, above=True),
        }
        if max_memories is not None:
            max_memories = check_integer("max_memories", max_memories, 1, MOST_MEMORIES)
        self._bound: dict[str, Any] = {
            "max_memories": max_memories,
            "eviction": EVICTIONS[check_choice("eviction", eviction, EVICTIONS)],
        }
        self._eviction = self._new_eviction()
        self._n_threads = None if n_threads is None else check_integer("n_threads", n_threads, 1, 2**15)
        # What the trees draw from first, one random stream each and one more for queries.
        self._streams = check_seed(random_state).generate_state(self._options["n_trees"] + 1, np.uint64)
        self._state: State | None = None  # allocated when the first insert says how wide keys are
        self._guard = Guard()

    # What it holds

    @property
    def n_memories(self) -> int:
        """Memories stored."""
        state = self._state
        return 0 if state is None else int(state.keys.totals[N_MEMORIES])

    @property
    def n_features(self) -> int | None:
        """Width of the keys, fixed by the first insert; None before."""
        state = self._state
        return None if state is None else state.parameters.n_features

    @property
    def depth(self) -> int:
        """The most internal nodes between a root and a leaf; 0 while every tree is a single leaf."""
        return self._guard.read(lambda: 0 if self._state is None else _invariants.depth(self._state))

    @property
    def nbytes(self) -> int:
        """Bytes of memory allocated for keys, trees, routers and scorer, and to know what to forget."""
        state = self._state
        return 0 if state is None else count_bytes(state) + self._eviction.nbytes

    @property
    def ids(self) -> np.ndarray:
        """The ids of all memories, in no particular order: int64, shape (n_memories,)."""
        return self._guard.read(
            lambda: np.empty(0, np.int64) if self._state is None else self._state.keys.ids[: self.n_memories].copy()
        )

    def __len__(self) -> int:
        return self.n_memories

    def __contains__(self, memory_id: object) -> bool:
        state = self._state
        if state is None or not isinstance(memory_id, (int, np.integer)) or isinstance(memory_id, bool):
            return False
        if not 0 <= memory_id < state.keys.totals[NEXT_ID]:
            return False
        return bool(self._guard.read(lambda: self._slots(np.array([memory_id], np.int64)))[0] >= 0)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self._named_options().items())
        return f"{type(self).__name__}({shown}) with {self.n_memories} memories"

    def leaves(self) -> Leaves:
        """Return the tree, the depth and the size of every leaf; an empty tree is a single leaf.

        Returns
        -------
        Leaves
            ``tree``, ``depth`` and ``size``: int64, one entry for each leaf.
        """
        if self._state is None:
            n_trees = int(self._options["n_trees"])
            return Leaves(np.arange(n_trees, dtype=np.int64), np.zeros(n_trees, np.int64), np.zeros(n_trees, np.int64))
        return self._guard.read(lambda: _invariants.leaves(self._allocated()))

    @changes  # of which there are none, but others must wait
    def check_invariants(self) -> None:
        """Check everything that must hold of the trees and the key store.

        Raises
        ------
        InvariantError
            Saying what is wrong. Unless memory was overwritten from outside, this is a bug.
        """
        if self._state is not None:
            _invariants.check(self._state)
            with self._guard.instant:
                self._eviction.check(self._state)
            self._check_bound()

    def _check_bound(self) -> None:
        most = self._bound["max_memories"]
        require(most is None or self.n_memories <= most, f"there are {self.n_memories} memories, more than {most}")

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
        rows = self._check_rows(X)
        most = self._bound["max_memories"]
        if most is None or self.n_memories + rows.n_rows <= most:
            return self._insert_rows(rows, progress)
        first_id = 0 if self._state is None else int(self._state.keys.totals[NEXT_ID])
        try:
            with progress_bar(rows.n_rows, "insert", progress) as report:
                for start, stop in spans(rows.n_rows, max(1, most // _INSERTS_TO_FILL)):
                    self._make_room(stop - start, most)
                    self._insert_rows(rows.between(start, stop), False)
                    report(stop - start)
        except BaseException:
            self._forget(self.ids[self.ids >= first_id])
            raise
        return np.arange(first_id, first_id + rows.n_rows)

    def _insert_rows(self, rows: Rows, progress: bool) -> np.ndarray:
        state = before = self._state
        if state is None:
            state = new_state(
                Parameters(n_features=rows.n_features, sparse=rows.sparse, **self._options), self._streams
            )
        first = int(state.keys.totals[N_MEMORIES])
        if first + rows.n_rows > MOST_MEMORIES:
            raise ValueError(f"X has {rows.n_rows} rows, but there is room for {MOST_MEMORIES - first} more memories")
        try:
            self._state = with_room_for_keys(state, rows.n_rows, rows.values.size)
            self._insert_in_steps(rows, first, progress)
            if rows.n_rows > first:  # seldom enough for the copying not to count
                self._state = trimmed(self._state)
        except BaseException:
            if before is None:
                self._state, self._eviction = None, self._new_eviction()
            else:
                self._take_back(first)
            raise
        return self._state.keys.ids[first : first + rows.n_rows].copy()

    def _make_room(self, n_rows: int, most: int) -> None:
        """Forget so many memories that there is room for some more rows."""
        n = self.n_memories + n_rows - most
        if n > 0:
            self._forget(self._choose_to_forget(n))

    def _choose_to_forget(self, n: int) -> np.ndarray:
        """Return the ids of so many memories that are to make room."""
        with self._guard.instant:
            return self._eviction.choose(self._allocated(), n)

    def _insert_in_steps(self, rows: Rows, slot: int, progress: bool) -> None:
        """Store rows from a slot on, for which there is room, and insert them into the trees."""

        def insert_rows(state: State, t: int, stop: int) -> int:
            return int(insert_slots(state.parameters, state.trees, state.models, state.key_store, t, stop))

        def insert(start: int, stop: int, run: Workers) -> None:
            state = self._allocated()
            append_keys(state.key_store, rows.between(start, stop))
            if not rows.sparse:
                encode_keys(state.key_store, state.code_store, slot + start, slot + stop)
            self._on_each_tree(insert_rows, slot + stop, run, slot + rows.n_rows)
            self._eviction.inserted(self._allocated(), slot + start)

        self._in_steps(rows.n_rows, "insert", progress, insert)

    def query(
        self,
        X: Any,
        k: int = 1,
        n_probes: int | None = None,
        epsilon: float = 0.0,
        *,
        among: Any = None,
        progress: bool = False,
    ) -> Hits:
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
        among : array-like of int, or of bool, optional
            Which memories come into question: their ids, or a mask whose entry ``i`` speaks for id ``i`` (ids beyond
            its end, and those of memories that have gone, do not come into question). The search passes by what
            holds none of them, and goes on beyond ``n_probes`` leaves until it has found ``k``. Where they are fewer
            than about a hundred for each of ``n_probes`` all of them are scored. Preparing the search takes time in
            proportion to how many they are, so ask for many rows at once; changes by other threads wait until all of
            them have been answered.
        progress : bool, default False
            Show a progress bar.

        Returns
        -------
        Hits
            Ids, scores and the record of exploration. Equal scores are ordered at random, anew after every reroute.

        Raises
        ------
        KeyError
            If ``among`` names an id of which there is no memory.
        TypeError, ValueError
            If an argument cannot be used; or if ``among`` is given with an ``epsilon`` above 0, since what explores
            goes anywhere.
        """
        before = self._state  # whatever changes meanwhile, kernels get only rows of the form and width of their state
        rows = self._rows_for(before, X)
        k = check_wanted("k", k, self.n_memories)
        n_leaves = self._options["n_trees"] if n_probes is None else check_integer("n_probes", n_probes, 1)
        epsilon = check_real("epsilon", epsilon, 0.0, 1.0)
        hits = no_hits(rows.n_rows, k)
        if among is not None:
            if epsilon > 0.0:
                raise ValueError("epsilon must be 0 where among says which memories come into question")
            self._guard.read(partial(self._answer_among, before, rows, n_leaves, check_among(among), progress, hits))
        elif before is not None and self.n_memories > 0:
            self._answer(before, rows, n_leaves, epsilon, progress, hits)
        self._note_returned(hits.ids)
        return hits

    def _answer(self, before: State, rows: Rows, n_leaves: int, epsilon: float, progress: bool, hits: Hits) -> None:
        """Write the answers to rows, letting changes in between."""
        seed = np.uint64(self._draw_word() if epsilon > 0.0 else 0)

        def answer(first: int, stop: int) -> None:
            state = self._state
            if state is None or state.parameters is not before.parameters:
                return  # the first insert of all has failed meanwhile, so there are no memories
            asked = Query(rows, first, stop, n_leaves, epsilon, seed)
            searched = state.trees, state.models, state.key_store, state.code_store, state.scorer
            query_rows(*searched, asked, UNRESTRICTED, hits)
            if epsilon > 0.0:
                explore_rows(*searched, asked, hits)

        n_threads = self._threads_for(rows.n_rows)
        with progress_bar(rows.n_rows, "query", progress) as report:

            def answer_in_steps(span: tuple[int, int]) -> None:
                steps = Steps(*span)
                for first, stop in steps:
                    self._guard.read(partial(steps.take, answer, first, stop))
                    report(stop - first)

            map_threads(answer_in_steps, spans(rows.n_rows, -(-rows.n_rows // n_threads)), n_threads)

    def _answer_among(
        self, before: State | None, rows: Rows, n_leaves: int, among: Among, progress: bool, hits: Hits
    ) -> None:
        """Write the answers to rows of those memories that come into question, while nothing changes."""
        chosen, state = self._slots_among(among), self._state
        if before is None or state is None or state.parameters is not before.parameters or chosen.size == 0:
            return
        few = are_few(chosen, n_leaves)
        trees, keys, scorer = state.trees, state.key_store, state.scorer
        restriction = UNRESTRICTED if few else restriction_to(state, chosen)
        n_threads = self._threads_for(rows.n_rows)
        with progress_bar(rows.n_rows, "query", progress) as report:

            def answer(span: tuple[int, int]) -> None:
                asked = Query(rows, span[0], span[1], n_leaves, 0.0, np.uint64(0))
                if few:
                    score_slots(trees, keys, scorer, asked, chosen, hits)
                else:
                    query_rows(trees, state.models, keys, state.code_store, scorer, asked, restriction, hits)
                report(span[1] - span[0])

            map_threads(answer, spans(rows.n_rows, -(-rows.n_rows // n_threads)), n_threads)

    def _slots_among(self, among: Among) -> np.ndarray:
        """Return the slots of the memories that a query is restricted to, each once, in rising order."""
        slots = self._slots(among.ids)
        if among.may_have_gone:
            slots = slots[slots != NONE]
        elif slots.size > 0:
            check_known(among.ids, slots, "among")
        return np.unique(slots)

    def _note_returned(self, ids: np.ndarray) -> None:
        """Take note of the memories that rows have got: all that a query may change."""
        if self._eviction.minds_queries:
            self._enter_returned(ids)

    def _enter_returned(self, ids: np.ndarray) -> None:
        def enter() -> None:
            if self._state is not None:
                with self._guard.instant:
                    self._eviction.returned(self._state, ids)

        self._guard.read(enter)

    @changes
    def update(self, X: Any, hits: Hits, rewards: Any, *, progress: bool = False) -> None:
        """Learn from the rewards of a query's answers (UPDATE, Algorithm 3).

        A row that explored an internal node teaches that node's router; any other teaches the scorer, which by default
        learns from rows with rewards for several memories only. After each row every tree reroutes ``n_reroutes``
        memories.

        Parameters
        ----------
        X : array-like or scipy.sparse matrix or array, shape (n, n_features)
            The queries.
        hits : Hits
            What :meth:`query` answered. Memories and nodes that have gone since are passed over.
        rewards : array-like, shape (n,) or (n, k)
            Rewards in [0, 1] of each row's first memory, or of each memory. Those where ``hits.ids`` is -1 do not
            count.
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
        rewards = check_rewards(rewards, hits.ids)
        if self._state is None:
            return
        state = self._state
        if state.scorer.theta.size == 0:
            theta, squares = np.zeros((2, rows.n_features), np.float32)
            state = self._state = state._replace(scorer=state.scorer._replace(theta=theta, squares=squares))
        at, feedback = np.zeros(state.parameters.n_trees, np.int64), Feedback(rows, hits, rewards)

        def learn_rows(state: State, t: int, stop: int) -> int:
            trees, routers, keys = state.trees, state.models, state.key_store
            return int(update_tree(state.parameters, trees, routers, keys, t, feedback, at, stop))

        def learn(start: int, stop: int, run: Workers) -> None:
            state = self._allocated()
            of_rows = Feedback(rows.between(start, stop), hits.between(start, stop), rewards[start:stop])
            update_scorer(state.parameters, state.key_store, state.scorer, of_rows)
            self._on_each_tree(learn_rows, stop, run)

        self._in_steps(rows.n_rows, "update", progress, learn)

    def learn(
        self,
        X: Any,
        reward: Reward,
        *,
        own_ids: Any = None,
        k: int = 10,
        n_probes: int | None = None,
        epsilon: float = 0.1,
        n_passes: int = 1,
        progress: bool = False,
    ) -> float:
        """Query, reward and update, over and over: the supervised protocol of the paper (section 4).

        In each pass the rows come in another random order, in blocks: a block of rows is asked for, the memories found
        are rewarded, and the trees and the scorer are updated, all of it compiled.

        Parameters
        ----------
        X : array-like or scipy.sparse matrix or array, shape (n, n_features)
            Rows like the queries to come; the stored keys themselves if there are no others.
        reward : callable
            One of :mod:`cmt_numba.rewards`, or a function of your own of the positions of some rows of ``X``, int64
            (n,), and the ids found for them, int64 (n, k), -1 for none. It returns rewards in [0, 1], (n, k).
        own_ids : array-like of int, shape (n,), optional
            Where rows are stored themselves: their memories' ids, which are left out of their answers. Otherwise every
            row would find itself, and learn nothing. Give -1 for a row that is not stored.
        k : int, default 10
            Memories rewarded for each row: fewer than 1,000,000.
        n_probes : int, optional
            Leaves to search, as in :meth:`query`.
        epsilon : float in [0, 1], default 0.1
            Share of the rows that explore, and so teach routers.
        n_passes : int, default 1
            How often to go through the rows: at most 10,000 times.
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
        own = np.full(rows.n_rows, NONE, np.int64) if own_ids is None else check_memory_ids(own_ids, rows.n_rows)
        if self.n_memories == 0:
            return 0.0
        matrix = as_matrix(rows)
        orders = self._new_generator()
        total = 0.0
        with progress_bar(n_passes * rows.n_rows, "learn", progress) as report:
            for _ in range(n_passes):
                order, total = orders.permutation(rows.n_rows), 0.0
                for first, stop in spans(rows.n_rows, _ROWS_IN_A_BLOCK):
                    block = order[first:stop]
                    asked = matrix[block]
                    hits = self.query(asked, k + (own_ids is not None), n_probes, epsilon)
                    hits = without_own(hits, own[block], k)
                    rewards = check_rewards(reward(block, hits.ids), hits.ids)
                    self.update(asked, hits, rewards)
                    total += float(np.sum(rewards[:, 0], where=hits.ids[:, 0] != NONE))
                    report(stop - first)
        return total / rows.n_rows

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
            How often to go through the rows, each time in another order: at most 10,000 times.
        afresh : bool, default False
            Let routers first forget what they have learned, for rows that show where every memory belongs. Memories
            stay where they are.
        progress : bool, default False
            Show a progress bar.

        Raises
        ------
        KeyError
            If there is no such memory; nothing has changed then.
        TypeError, ValueError
            If an argument cannot be used; nothing has changed then.
        MemoryError
            If memory runs out. The trees are valid and hold every memory, but some rows may not have been learned.
        """
        rows = self._check_rows(X)
        ids = check_memory_ids(ids, rows.n_rows)
        n_passes = check_passes("n_passes", n_passes, 1)
        check_known(ids, self._slots(ids))
        self._teach_rows(rows, ids, n_passes, afresh, progress)

    @changes
    def _teach_rows(self, rows: Rows, ids: np.ndarray, n_passes: int, afresh: bool, progress: bool) -> None:
        slots, state = self._slots(ids), self._allocated()
        if afresh:
            for t in range(state.parameters.n_trees):
                self._guard.step(partial(forget_routes, state.trees, state.models, t))
        orders = self._new_generator()
        for _ in range(n_passes):
            lesson = Lesson(rows, orders.permutation(rows.n_rows), slots)
            at = np.tile(np.array([0, NONE]), (state.parameters.n_trees, 1))

            def teach_rows(state: State, t: int, stop: int) -> int:
                return int(teach_tree(state.parameters, state.trees, state.models, t, lesson, at, stop))  # noqa: B023

            self._in_steps(rows.n_rows, "teach", progress, self._on_trees(teach_rows))

    @changes
    def remove(self, ids: Any) -> None:
        """Remove memories (REMOVE, Algorithm 6). Their room is used again, their ids are not.

        Parameters
        ----------
        ids : int or array-like of int, shape (n,)
            Ids of stored memories, each named once.

        Raises
        ------
        KeyError
            If there is no such memory; nothing has been removed then.
        TypeError, ValueError
            If ``ids`` are not distinct integers.
        """
        ids = check_ids(ids)
        check_known(ids, self._slots(ids))
        self._forget(ids)

    def _forget(self, ids: np.ndarray) -> None:
        """Remove stored memories."""

        def remove(start: int, stop: int) -> None:
            state = self._allocated()
            stores = state.key_store, state.code_store
            remove_ids(state.trees, state.models, *stores, self._eviction.recency, ids[start:stop])

        steps = Steps(0, ids.size)
        for start, stop in steps:
            self._guard.step(partial(steps.take, remove, start, stop))

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
            If there is no such memory; nothing has changed then.
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
        slots = self._slots(ids)
        check_known(ids, slots)
        self._state = state = with_room_for_keys(self._allocated(), 0, rows.values.size)
        self._guard.step(lambda: overwrite_keys(state.trees, state.key_store, state.code_store, slots, rows))
        at = np.zeros(state.parameters.n_trees, np.int64)

        def reinsert(state: State, t: int, stop: int) -> int:
            trees, routers, keys = state.trees, state.models, state.key_store
            return int(reinsert_slots(state.parameters, trees, routers, keys, t, slots, at, stop))

        self._in_steps(rows.n_rows, "replace", progress, self._on_trees(reinsert))
        self._note_returned(ids[:, None])

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
        n = check_integer("n", n, 0)
        if self.n_memories == 0:
            return
        at = np.zeros(self._allocated().parameters.n_trees, np.int64)

        def reroute(state: State, t: int, stop: int) -> int:
            trees, routers, keys = state.trees, state.models, state.key_store
            return int(reroute_tree(state.parameters, trees, routers, keys, t, at, stop))

        self._in_steps(n, "reroute", progress, self._on_trees(reroute))

    @changes
    def compact(self, *, copies: bool = True) -> None:
        """Lay the memories out in the order in which searches read them, for faster queries. Answers do not change.

        Worthwhile after many inserts and before many queries. Later changes disturb the order little by little.

        Parameters
        ----------
        copies : bool, default True
            Whether each tree but the first gets a copy, in its own order, of the 8-bit codes by which searches weigh
            dense keys: ``n_features + 8`` bytes more for each memory. A leaf that changes makes no use of it any more.

        Raises
        ------
        MemoryError
            If memory runs out, of which this takes as much again as the keys do; nothing has changed then.
        """
        if self.n_memories > 0:
            before = self._allocated()
            state = compacted(before, copies=copies)

            def put_in_place() -> None:
                # Both at once, whatever comes in between: the policy knows memories by their slots.
                self._state, self._eviction = state, self._eviction.moved(before, state)

            self._guard.step(put_in_place)

    # In files

    @changes  # of which there are none, but others must wait
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the trees, their memories and all that they have learned to a file.

        A file that is there already is replaced at once, when the new one is complete: a crash leaves one or the other.
        See :mod:`cmt_numba.persistence` for what is in it.

        Parameters
        ----------
        path : path-like
            The file. Of a symbolic link, what it points to is written.

        Raises
        ------
        InvariantError
            If the trees contradict themselves, which is a bug; nothing has been written then.
        OSError
            If the file cannot be written, or something is there that is no file: a folder, a device, a named pipe.
        """
        write_object(
            path,
            lambda: Contents(_KIND, *self._contents()),
            lambda of: ContextualMemoryTree._made_of(of.fields, of.arrays, thorough=True),
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str], mmap: bool = False) -> Self:
        """Return the tree that :meth:`save` has written. It goes on exactly as the one saved would.

        Parameters
        ----------
        path : path-like
            The file.
        mmap : bool, default False
            Map the file instead of reading it. That takes no time, whatever its size, and processes that map the same
            file share its memory; what one of them changes is its own, and does not reach the file. The file is not
            checked for damage then, except for its header: map only files that you trust, and do not change them in
            place. What has to grow is copied to memory.

        Raises
        ------
        cmt_numba.persistence.FileFormatError
            If the file is not a tree's, damaged, or of a later version; it says what is wrong.
        OSError
            If the file cannot be read.
        """
        contents = read_object(path, (_KIND,), mmap=mmap)
        with refusing(path):
            return cls._made_of(contents.fields, contents.arrays, thorough=not mmap)

    @classmethod
    def _made_of(cls, fields: dict[str, Any], arrays: dict[str, np.ndarray], *, thorough: bool) -> Self:
        """Return the tree that a file holds.

        Raises
        ------
        InvariantError, TypeError, ValueError
            If it does not hold one.
        """
        tree = cls.__new__(cls)
        tree._become(fields, arrays)
        if tree._state is not None:
            check_state(tree._state, thorough=thorough)
            tree._check_bound()
            tree._eviction.restore(arrays, tree._state)
        return tree

    def _become(self, fields: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        n_threads = take(fields, "n_threads", int, type(None))
        ContextualMemoryTree.__init__(self, **take(fields, "options", dict), n_threads=n_threads, random_state=0)
        self._streams, self._state = state_of(fields, arrays, self._options)

    def _contents(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        state = self._state
        if state is None:
            return tree_contents(self._named_options(), self._n_threads, self._streams, None)
        with self._guard.instant:  # exploring queries draw numbers, and others take note, while the tree is saved
            state = state._replace(streams=state.streams.copy())
            noted = self._eviction.contents(state)
        fields, arrays = tree_contents(self._named_options(), self._n_threads, self._streams, state)
        return fields, arrays | noted

    @changes  # of which there are none, but others must wait
    def __getstate__(self) -> dict[str, Any]:
        fields, arrays = self._contents()
        return {"fields": fields, "arrays": {name: array.copy() for name, array in arrays.items()}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        arrays = {name: writeable(array) for name, array in state["arrays"].items()}
        self._become(state["fields"], arrays)
        if self._state is not None:
            self._eviction.restore(arrays, self._state)

    # How

    def _named_options(self) -> dict[str, Any]:
        """Return the options as the constructor takes them."""
        losses = {
            "router_loss": ROUTER_LOSSES[self._options["router_loss"]],
            "scorer_loss": SCORER_LOSSES[self._options["scorer_loss"]],
        }
        return self._options | losses | self._bound

    def _allocated(self) -> State:
        assert self._state is not None
        return self._state

    def _new_generator(self) -> np.random.Generator:
        """Return a generator of random numbers that goes on from the trees' own randomness."""
        return np.random.Generator(np.random.PCG64(self._draw_word()))

    def _new_eviction(self) -> Eviction:
        return new_eviction(self._bound["eviction"], bounded=self._bound["max_memories"] is not None)

    def _draw_word(self) -> int:
        """Return 64 bits of the random stream that queries draw from."""
        with self._guard.instant:
            streams = self._allocated().streams
            return int(draw_word(streams, streams.size - 1))

    def _check_rows(self, X: Any) -> Rows:
        return self._rows_for(self._state, X)

    def _rows_for(self, state: State | None, X: Any) -> Rows:
        """Return rows of the form and width that a state has."""
        n_threads = self._most_threads()
        if state is None:
            return check_rows(X, n_threads=n_threads)
        sparse, n_features = state.parameters.sparse, state.parameters.n_features
        return check_rows(X, sparse=sparse, n_features=n_features, n_threads=n_threads)

    def _slots(self, ids: np.ndarray) -> np.ndarray:
        slots = np.full(ids.size, -1, np.int64)
        if self._state is not None:
            find_slots(self._state.keys, ids, slots)
        return slots

    def _most_threads(self) -> int:
        return self._n_threads or int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]

    def _threads_for(self, n_rows: int) -> int:
        return max(1, min(self._most_threads(), n_rows // _ROWS_WORTH_A_THREAD))

    def _in_steps(self, n: int, unit: str, progress: bool, work: Callable[[int, int, Workers], None]) -> None:
        """Have ``work`` done on the rows ``0 .. n``, step by step."""
        steps = Steps(0, n)
        with progress_bar(n, unit, progress) as report, workers(self._threads_for(n)) as run:

            def take_step(start: int, stop: int) -> None:
                work(start, stop, run)

            for start, stop in steps:
                self._guard.step(partial(steps.take, take_step, start, stop))
                report(stop - start)

    def _on_trees(self, work: Callable[[State, int, int], int]) -> Callable[[int, int, Workers], None]:
        return lambda start, stop, run: self._on_each_tree(work, stop, run)

    def _on_each_tree(
        self, work: Callable[[State, int, int], int], stop: int, run: Workers, n_memories: int | None = None
    ) -> None:
        """Have every tree do ``work`` up to row ``stop``, giving it room as often as it runs out.

        Trees write to no memory but their own, so they work side by side; arrays grow while none does. They may have to
        hold ``n_memories`` before long.
        """
        waiting = list(range(self._allocated().parameters.n_trees))
        try:
            while waiting:
                state = self._allocated()
                statuses = run(lambda t: work(state, t, stop), waiting)  # noqa: B023
                waiting = [t for t, status in zip(waiting, statuses, strict=True) if status != DONE]
                for status in sorted(set(statuses) - {DONE}):
                    self._state = with_more(self._allocated(), status, n_memories or self.n_memories)
        except BaseException:
            for t in range(self._allocated().parameters.n_trees):
                undo_move(self._allocated().trees, t)
            raise

    @changes
    def _put_right(self, first: int | None = None) -> None:
        """Undo what is left of changes that were broken off, even while they were being undone.

        Forget the memories from slot ``first`` on too, which were the last to come, and their ids.
        """
        if self._state is None:
            return
        for t in range(self._allocated().parameters.n_trees):
            undo_move(self._allocated().trees, t)
        placed = int(self._allocated().counters[:, COUNT].min())
        first = placed if first is None else min(first, placed)
        if first < self.n_memories:
            self._take_back(first)

    def _take_back(self, first: int) -> None:
        """Forget the memories from slot ``first`` on, and their ids; what routers learned from them stays."""
        state = self._allocated()

        def take_back(slot: int) -> None:
            for t in range(state.parameters.n_trees):
                remove_slots_from(state.trees, state.models, state.key_store, t, slot)
            drop_keys_from(state.key_store, slot)

        self._guard.step(partial(self._eviction.taken_back, first))
        for slot in reversed(range(first, self.n_memories, _REMOVALS_IN_A_STEP)):
            self._guard.step(partial(take_back, slot))
