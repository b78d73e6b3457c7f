"""``ContextualMemoryTree``, the public methods of a tree."""

import copy
import os
from collections.abc import Callable
from functools import partial
from typing import Any, Self, TypeVar

import numpy as np

from .. import _engine as engine
from .. import _validation as checks
from .. import persistence as files
from .._change import ReadWriteLock, changes
from .._forest import Leaves, State, check_trimmed, invariants, trimmed_state
from .._jit import keeps_interpreter
from .._kernels import Hits, ShownHits, writeable
from ..journal import InFolder, journaled
from ..rewards import Reward
from ._folder import TreeFolder

OPTIONS = engine.OPTIONS  # options of a tree with their default values
_LEAVES_OF_EACH = 4  # default number of leaves that ``learn`` searches in each tree


Method = TypeVar("Method", bound=Callable[..., Any])


def _journaled(method: Method) -> Method:
    """Journal a method in a folder. In memory, the method itself takes the lock."""
    return journaled(method, lambda method: method)


class ContextualMemoryTree(InFolder, files.Saved):
    """A Contextual Memory Tree, or a forest of such trees over one store of memories.

    A memory is a key (a feature vector) with an id. The caller decides what the id stands for. Keys are scaled to unit
    length, so only their direction matters. Insertion, search, removal and rerouting of a memory take time logarithmic
    in the number of memories. From rewards for returned memories, the trees learn where to search and the scorer learns
    what to return (Sun et al., Contextual Memory Trees, ICML 2019).

    Any number of threads may use a tree at the same time. Changes are made one at a time, in the order of the calls, in
    steps of a few milliseconds. Readers proceed between steps and see the effect of all completed steps. In a large
    batch of queries, later rows may therefore see the effect of more steps than earlier rows. A tree may be pickled or
    saved while other threads use it. After a fork, which waits for the current change, parent and child may both use
    the tree.

    If memory runs out, a change raises MemoryError. The trees are then valid and contain every memory, but may not have
    learned all rows.

    Parameters
    ----------
    n_trees : int, default 1
        Number of trees over the same memories, each with its own random draws. The paper uses one tree. More trees find
        more of the nearest memories, and the time of an insert is proportional to their number.
    alpha : float in (0, 1], default 0.4
        Weight of balance in the training of routers. With 1, a router only learns to balance the two sides of its node.
    leaf_multiplier : float, default 4.0
        Leaf size: a leaf of a tree of ``n`` memories contains at most ``leaf_multiplier * log2(n)`` memories. The paper
        calls it ``c``.
    n_reroutes : int, default 5
        Number of memories that each tree reroutes after each inserted memory and each row of an update, at most 10,000.
        The paper calls it ``d``.
    router_loss : {"squared", "logistic"}, default "squared"
        Loss function of the routers, which AdaGrad steps minimise (Duchi et al., 2011).
    router_learning_rate : float, default 2.0
        Learning rate of the routers, divided by the sum of a key's absolute values.
    sure_margin : float, default 0.75
        Margin at which a search considers a router certain. The smaller the margin, the earlier the search also tries
        the other side. Keys have margins near -1 or 1. Queries that have only some features in common with a key have
        margins nearer 0. With a larger ``sure_margin``, searches find more and take longer.
    scorer_loss : {"regression", "contrast"}, default "contrast"
        Loss function of the scorer, which AdaGrad steps minimise.

        - "contrast" compares two memories of a row: the memory with the highest reward, and the memory with the highest
          score among those with a lower reward. The loss is logistic in the difference of their scores and weighted by
          the difference of their rewards. A single rewarded memory is compared with the best other memory, which is
          assumed to earn half the mean reward. If a reward is 1, routers learn the path to the memory.
        - "regression", the loss of the paper, is the squared difference between score and reward.
    scorer_learning_rate : float, default 0.1
        Learning rate of the scorer.
    max_memories : int, optional
        Maximum number of memories; unlimited by default. An insert that would exceed it evicts memories first. Batches
        of more than an eighth of ``max_memories`` are inserted in parts.
    eviction : {"least_recently_returned", "oldest", "random"}, default "least_recently_returned"
        Policy that chooses the memories to evict:

        - "least_recently_returned": the memories returned longest ago. Within a query, later rows count as more recent
          and, within a row, better memories. Queries made by :meth:`learn` count. An insert or a replacement counts as
          a return. This policy takes 8 bytes per memory.
        - "oldest": the memories inserted first.
        - "random": random memories.
    n_threads : int, optional
        Number of threads for batches; by default Numba's number of threads (``NUMBA_NUM_THREADS``, or the number of
        processors). Answers and trees do not depend on it.
    random_state : int or numpy.random.SeedSequence, optional
        Seed. The same seed and calls give bit-identical trees and answers with any number of threads. On a processor
        with different vector instructions, sums are computed in a different order. Scores and weights may then differ
        in the last digits, and trees may differ where a router is nearly undecided.

    Examples
    --------
    >>> import numpy as np
    >>> tree = ContextualMemoryTree(random_state=0)
    >>> tree.insert(np.eye(3))
    array([0, 1, 2])
    >>> tree.query([[0.1, 0.9, 0.0]]).ids
    array([[1]])
    """

    _form = TreeFolder
    FIELDS = files.FieldTable(
        options=files.OptionsField(),
        n_threads=files.OptionalField(files.NumberField(1)),
        streams=files.OptionalField(files.ArrayField(np.uint64)),  # initial random streams; None after the first insert
        state=files.OptionalField(files.StructureField(State, trimmed_state, check_trimmed)),
        order=files.OptionalField(files.ArrayField(np.int32)),  # of eviction
        evidence=files.OptionalField(files.StructureField(engine.SavedEvidence)),
    )

    def __init__(
        self,
        n_trees: int = 1,
        alpha: float = 0.4,
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
        n_threads: int | None = None,
        random_state: int | np.random.SeedSequence | None = None,
    ) -> None:
        given = locals()
        options = {name: constraint.check(name, given[name]) for name, constraint in engine.OPTIONS.items()}
        n_threads, seed = options.pop("n_threads"), checks.check_seed(options.pop("random_state"))
        self._forest = engine.Forest(options, n_threads, seed.generate_state(n_trees + 1, np.uint64))

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
        """Number of features of the keys, or None before the first insert."""
        state = self._forest.state
        return None if state is None else state.parameters.n_features

    @property
    def depth(self) -> int:
        """Maximum number of internal nodes between a root and a leaf, or 0 if every tree is a single leaf."""
        return self._forest.depth()

    @property
    def nbytes(self) -> int:
        """Number of bytes allocated for keys, trees, routers, the scorer, links and the eviction policy."""
        return self._forest.nbytes

    @property
    def ids(self) -> np.ndarray:
        """The ids of all memories in no particular order: int64, shape (n_memories,)."""
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
        """Return the ``tree``, ``depth`` and ``size`` of every leaf. An empty tree is a single leaf."""
        return self._forest.leaves()

    def plot(self) -> Any:
        """Return a figure of the shape of the trees. Requires matplotlib.

        The panels show the depths of all leaves, the sizes of all leaves, and the accuracy of the routers at each
        depth. The accuracy is the fraction of inserted memories that routers, after training on them, sent to the side
        that they were trained to choose.
        """
        return engine.plot_forest(self._forest)

    @changes  # read-only, but blocks changes meanwhile
    def check_invariants(self) -> None:
        """Check all invariants of the trees, the key store, the links and the eviction policy.

        In a folder, also verify the keys in the last snapshot, which opening the folder maps without reading them.
        """
        if self._folder is not None:
            self._folder.journal.verify()
        self._forest.check()

    # Operations

    @keeps_interpreter
    @_journaled
    def insert(self, X: Any, *, progress: bool = False) -> np.ndarray:
        """Insert memories in the order of the rows (INSERT, Algorithm 4).

        Other threads see a large insert step by step.

        Parameters
        ----------
        X : array-like or scipy.sparse matrix or array, shape (n, n_features) or (n_features,)
            Keys: real, finite numbers. The first insert determines whether the tree stores dense or sparse keys; later
            keys are converted.
        progress : bool, default False
            Show a progress bar.

        Returns
        -------
        ndarray of int64, shape (n,)
            The ids of the new memories. Ids count up from 0 in order of insertion and are never reused. If there are
            more rows than ``max_memories``, the first rows have already been evicted.

        Raises
        ------
        MemoryError
            If memory runs out. No row of ``X`` is stored then, but evicted memories are lost.
        """
        forest, rows = self._forest, self._forest.check_rows(X)
        return forest.lock.change(partial(engine.insert_rows, forest, rows, progress))

    @keeps_interpreter
    def query(
        self,
        X: Any,
        k: int = 1,
        n_probes: int | None = None,
        epsilon: float = 0.0,
        *,
        among: Any = None,
        progress: bool = False,
    ) -> ShownHits:
        """Return the best memories for each row (QUERY, Algorithm 2).

        Parameters
        ----------
        X : array-like or scipy.sparse matrix or array, shape (n, n_features) or (n_features,)
            Queries.
        k : int, default 1
            Number of memories to return for each row, at most 1,000,000 or ``n_memories``, whichever is larger.
        n_probes : int, optional
            Number of leaves to search in all trees together, most promising first; by default ``n_trees``. If it is at
            least ``n_trees``, the best leaf of each tree is searched. With more leaves, queries find more and take
            longer.
        epsilon : float in [0, 1], default 0.0
            Probability that a row explores. An exploring row draws a tree and a position on its path through the tree:
            at an internal node, it takes a random side; at the leaf, it draws random memories.
        among : array-like of int, or of bool, optional
            Filter: the ids of the candidates, or a mask whose entry ``i`` is true if id ``i`` is a candidate. Removed
            ids and ids beyond the end of a mask are not candidates.

            The search skips subtrees without candidates, and continues beyond ``n_probes`` leaves until it has found
            ``k`` memories. If there are fewer than about a hundred candidates for each of ``n_probes`` leaves, all
            candidates are scored.

            The prepared filter is cached until the array or the tree changes. Other threads cannot change the tree
            before all rows are answered.
        progress : bool, default False
            Show a progress bar.

        Returns
        -------
        ShownHits
            Ids, scores, the exploration, and ``propensities``, the probability of each memory being shown. Equal scores
            are ordered at random; the order changes with each reroute.
        """
        forest = self._forest
        rows = forest.check_rows(X)
        k = checks.check_wanted("k", k, forest.n_memories)
        n_leaves = None if n_probes is None else checks.check_integer("n_probes", n_probes, 1)
        epsilon = checks.check_real("epsilon", epsilon, 0.0, 1.0)
        if among is not None and epsilon > 0.0:
            raise ValueError("epsilon must be 0 if among is given, as exploration ignores filters: pass epsilon=0.0")
        candidates = None
        if among is not None:
            candidates = forest.filters.of(among, lambda: engine.Filter(*checks.check_among(among)))
        hits = engine.query_forest(forest, rows, k, n_leaves, epsilon=epsilon, among=candidates, progress=progress)
        engine.note_returned(forest, hits.ids)
        return hits

    @keeps_interpreter
    @journaled
    def update(
        self, X: Any, hits: Hits, rewards: Any, *, key_learning_rate: float = 0.3, progress: bool = False
    ) -> None:
        """Learn from rewards for the answers to a query (UPDATE, Algorithm 3).

        A row that explored an internal node trains the router of that node; any other row trains the scorer. After each
        row, every tree reroutes ``n_reroutes`` memories. Unlike the algorithm of the paper, an update also moves dense
        keys, and with ``scorer_loss="contrast"``, :meth:`teach` follows for memories with a reward of 1.

        Rewards teach nothing until they seem to depend on the memories that receive them: constant or random rewards
        leave the tree as it is. The latest 1,024 rows wait, except for those that explored an internal node, and are
        learned once there is enough evidence.

        Parameters
        ----------
        X : array-like or scipy.sparse matrix or array, shape (n, n_features) or (n_features,)
            The queries.
        hits : Hits
            The return value of :meth:`query`. Memories and nodes that have been removed since the query are skipped.
        rewards : array-like, shape (n,) or (n, k)
            Rewards in [0, 1] of the first memory of each row, or of all memories. Ignored where ``hits.ids`` is -1.
        key_learning_rate : float in [0, 1], default 0.3
            Maximum step of a dense key per sixteen rows; keys have length 1. With 0, keys do not move. A row that
            explored no internal node moves the keys of memories with high rewards towards itself, and the keys of its
            other memories away (relevance feedback on stored vectors: Brauen, 1971; neighbourhood components analysis:
            Goldberger et al., 2005). If a row has a single reward, the best other memory is assumed to earn half the
            mean reward. Moved keys replace the inserted ones and keep unit length. Memories stay in their
            leaves until they are rerouted. Sparse keys and keys of zeros never move.
        progress : bool, default False
            Show a progress bar.
        """
        forest = self._forest
        rows = forest.check_rows(X)
        hits = checks.check_hits(hits, rows.n_rows, forest.state)
        rewards = checks.check_rewards(rewards, hits.ids)
        rate = checks.check_real("key_learning_rate", key_learning_rate, 0.0, 1.0)
        engine.update_rows(forest, rows, hits, rewards, progress, rate)

    @keeps_interpreter
    @journaled
    def teach(self, X: Any, ids: Any, *, n_passes: int = 1, afresh: bool = False, progress: bool = False) -> None:
        """Train the routers to route each row to its memory.

        In every tree, each router above a row's memory learns to send the row to the memory's side. Queries similar to
        the row then reach the memory, even if they are not similar to its key. This is UPDATE (Algorithm 3) for rows
        whose correct memory is known.

        Parameters
        ----------
        X : array-like or scipy.sparse matrix or array, shape (n, n_features)
            Rows that are similar to later queries.
        ids : array-like of int, shape (n,)
            The id of each row's memory.
        n_passes : int, default 1
            Number of passes over the rows, each in a new random order, at most 10,000.
        afresh : bool, default False
            Reset the routers first. Use this only if the rows cover all memories. Memories stay in their leaves.
        progress : bool, default False
            Show a progress bar.
        """
        rows = self._forest.check_rows(X)
        ids = checks.check_memory_ids(ids, rows.n_rows)
        n_passes = checks.check_integer("n_passes", n_passes, 1, checks.MAX_PASSES)
        engine.teach_rows(self._forest, rows, ids, n_passes, afresh, progress)

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
        """Learn from rewards in repeated queries and updates, the supervised protocol of the paper (section 4).

        Each pass processes the rows in a new random order, in blocks. For each block it queries the rows, rewards the
        memories found, updates the trees and the scorer, and calls :meth:`teach` for memories with a reward of 1. If
        ``reward`` returns an invalid reward, the tree keeps the effects of earlier blocks.

        Updates also move the dense keys of rewarded memories towards the rows (``key_learning_rate``), which helps
        similar rows to find them. A query with the original key usually still finds its memory.

        Memories with a reward of 1 for the same row form a group, together with the row's own memory. Once a third of
        all memories are in groups, each pass tries a :meth:`rebuild` of the trees around the groups, before it learns
        its last rows (one in eight, at most 512). These rows query a rebuilt copy without their own memories. The trees
        are rebuilt only if the copy earns more rewards. Groups of more than half of all memories do not count.

        Parameters
        ----------
        X : array-like or scipy.sparse matrix or array, shape (n, n_features)
            Rows that are similar to later queries, or the stored keys.
        reward : callable
            One of the rewards in :mod:`cmt_numba.rewards`, or a function ``reward(rows, ids)``. ``rows``, int64 of
            shape (m,), are positions of rows of ``X``. ``ids``, int64 of shape (m, k), are the ids found for these
            rows, padded with -1. The function returns rewards in [0, 1], shape (m, k).
        own_ids : array-like of int, shape (n,), optional
            For each row, the id of the memory that stores it, or -1 if it is not stored. A row's own memory is omitted
            from its answers, because a row that finds itself learns nothing.
        k : int, default 10
            Number of memories to reward for each row, below 1,000,000.
        n_probes : int, optional
            Number of leaves to search in all trees together; by default ``max(8, 4 * n_trees)``.
        epsilon : float in [0, 1], default 0.1
            Probability that a row explores, and so may train a router.
        key_learning_rate : float in [0, 1], default 0.3
            As for :meth:`update`. With 0, keys do not move.
        n_passes : int, default 1
            Number of passes over the rows, at most 10,000.
        progress : bool, default False
            Show a progress bar.

        Returns
        -------
        float
            The mean reward of each row's first memory in the last pass, measured before the update. A row without
            memories counts as 0.
        """
        rows, default = self._forest.check_rows(X), max(8, _LEAVES_OF_EACH * self._forest.n_trees)
        how = engine.Supervision(
            reward,
            None if own_ids is None else checks.check_memory_ids(own_ids, rows.n_rows),
            checks.check_integer("k", k, 1, checks.MOST_WANTED - 1),  # plus one, because a row may find itself
            checks.check_integer("n_probes", default if n_probes is None else n_probes, 1),
            checks.check_real("epsilon", epsilon, 0.0, 1.0),
            checks.check_real("key_learning_rate", key_learning_rate, 0.0, 1.0),
            checks.check_integer("n_passes", n_passes, 1, checks.MAX_PASSES),
            self._forest.teaches,
        )
        if not callable(reward):
            raise TypeError(f"reward must be a function of rows and ids, got {type(reward).__name__}")
        if self.n_memories == 0:
            return 0.0
        orders = np.random.Generator(np.random.PCG64(engine.draw_seed(self._forest)))
        return engine.learn_in_passes(self, rows, how, orders, progress)

    @keeps_interpreter
    @_journaled
    def remove(self, ids: Any) -> None:
        """Remove memories by their distinct ids (REMOVE, Algorithm 6). Their storage is reused; their ids are not."""
        engine.remove_ids(self._forest, checks.check_ids(ids))

    @keeps_interpreter
    @journaled
    def replace(self, ids: Any, X: Any, *, progress: bool = False) -> None:
        """Replace the keys of memories, and move them to the leaves of their new keys ``X``. Ids do not change.

        In every tree, this is REMOVE followed by INSERT (Algorithms 6 and 4).

        Raises
        ------
        MemoryError
            If memory runs out. The trees are valid and contain every memory, and either no key or every key has been
            replaced. Memories with new keys may stay in their old leaves until they are rerouted.
        """
        rows = self._forest.check_rows(X)
        ids = checks.check_ids(checks.check_memory_ids(ids, rows.n_rows))
        engine.replace_rows(self._forest, ids, rows, progress)
        engine.enter_returned(self._forest, ids[:, None])

    @_journaled
    def reroute(self, n: int, *, progress: bool = False) -> None:
        """Reroute ``n`` random memories of each tree (REROUTE, Algorithm 7), optionally with a progress bar."""
        engine.reroute_memories(self._forest, checks.check_integer("n", n, 0), progress)

    @_journaled
    def rebuild(self, ids: Any, groups: Any, *, progress: bool = False) -> None:
        """Rebuild the trees from the root down around groups of memories, such as classes.

        ``groups[i]`` is the group of memory ``ids[i]``. Every other memory is a group of its own.

        At each node, balanced 2-means over the mean keys of the groups divides the memories into halves, a router
        learns to separate the halves, and each memory follows the router (as in label trees: Prabhu et al., 2018,
        Parabel; Yu et al., 2022, XR-Linear). A group is divided only if it is alone in a node or if the router makes a
        mistake.

        Keys, ids, the scorer and the links do not change. Queries use the old trees until all new trees are complete,
        and an interrupt keeps the old trees. Rebuilding takes about as much time as inserting all memories. It needs
        memory for a second set of trees and, if keys are sparse, for a copy of all keys.
        """
        ids = checks.check_ids(ids)
        groups = checks.check_memory_ids(groups, ids.size, "groups", "ids")
        engine.rebuild_trees(self._forest, ids, groups, progress)

    @_journaled
    def compact(self) -> None:
        """Reorder the storage of memories for faster queries. Answers do not change.

        Memories are stored in the order of the leaves of the first tree. Call this after many inserts and before many
        queries. Later changes gradually disturb the order. This needs memory for a second copy of the keys.
        """
        engine.compact_memories(self._forest)

    # Files, pickles and copies

    @changes  # read-only, but blocks changes meanwhile
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the trees, their memories and everything learned to a file. Symbolic links are followed.

        An existing file is replaced when the new file is complete, so a crash leaves either the old or the new file.
        See :mod:`cmt_numba.persistence` for the format.
        """
        super().save(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], mmap: bool = False) -> Self:
        """Load a tree from a file that :meth:`save` has written. It gives the same results as the saved tree.

        With ``mmap``, the file is mapped into memory instead of read. This takes milliseconds regardless of the file's
        size, and processes that map the same file share its memory. Changes to the tree never reach the file. Only the
        header is checked for damage: map only files that you trust, and do not modify them in place.
        """
        return files.object_of((cls,), path, mmap=mmap, thorough=not mmap)

    def _packed(self) -> Any:
        return self._forest.packed()

    @classmethod
    def _of_fields(cls, values: dict[str, Any]) -> Self:
        tree = cls.__new__(cls)
        ContextualMemoryTree.__init__(tree, **values["options"], n_threads=values["n_threads"], random_state=0)
        tree._forest.restore(*(values[name] for name in ("streams", "state", "order", "evidence")))
        return tree

    def _check(self, *, thorough: bool, values: bool = True) -> None:
        if thorough and self._forest.state is not None:
            invariants.check(self._forest.state, values=values)

    @changes  # read-only, but blocks changes meanwhile
    def __getstate__(self) -> dict[str, Any]:
        return copy.deepcopy(self._contents())._asdict()

    def __setstate__(self, state: dict[str, Any]) -> None:
        arrays = {name: writeable(array) for name, array in state["arrays"].items()}
        self._forest = self._made_of(files.Contents(**state | {"arrays": arrays}), thorough=False)._forest

    @changes  # read-only, but blocks changes meanwhile
    def _twin(self) -> "ContextualMemoryTree":
        """Return an independent copy, which gives the same results as this tree for the same calls."""
        twin = ContextualMemoryTree.__new__(ContextualMemoryTree)
        twin._forest = self._forest.copy()
        return twin


def options_of(tree: ContextualMemoryTree) -> dict[str, Any]:
    """Return the options of a tree, except for its seed."""
    return tree._forest.options | {"n_threads": tree._forest.n_threads}


def forest_of(tree: ContextualMemoryTree) -> engine.Forest:
    """Return the forest of a tree. Its methods do not check their arguments."""
    return tree._forest
