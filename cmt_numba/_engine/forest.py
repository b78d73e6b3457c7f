"""``Forest``: a forest's state and lock, its random streams, and the division of work into steps and threads."""

import copy
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numba
import numpy as np

from .. import _forest as forests
from .. import _kernels as kernels
from .. import _linear as linear
from .. import _validation as checks
from .._change import Pace, ReadWriteLock, TimedSteps, Workers, in_own_thread, progress_bar, workers
from .evidence import RewardEvidence, SavedEvidence
from .filters import ArrayCache

# The first step of a change has about 128 inserts into trees, each of about 20 us, divided evenly among the trees.
_FIRST_ROWS, _FIRST_INSERTS = 16, 128
_ROWS_WORTH_A_THREAD = 64  # break-even point: with fewer rows, starting a thread takes longer than the time it saves

ROUTER_LOSSES = tuple(loss.name.lower() for loss in forests.RouterLoss)
SCORER_LOSSES = tuple(loss.name.lower() for loss in forests.ScorerLoss)

# The constraints on the options of a tree.
OPTIONS: dict[str, checks.Constraint] = {
    "n_trees": checks.Integer(1, 2**15),
    "alpha": checks.Real(0.0, 1.0, above=True),
    "leaf_multiplier": checks.Real(0.0, 2.0**20, above=True),
    "n_reroutes": checks.Integer(0, checks.MAX_REROUTES),
    "router_loss": checks.OneOf(ROUTER_LOSSES),
    "router_learning_rate": checks.Real(0.0, 1e6, above=True),
    "sure_margin": checks.Real(0.0, 1e6),
    "scorer_loss": checks.OneOf(SCORER_LOSSES),
    "scorer_learning_rate": checks.Real(0.0, 1e6, above=True),
    "max_memories": checks.Optional(checks.Integer(1, kernels.MAX_MEMORIES)),
    "eviction": checks.OneOf(forests.EVICTIONS),
    "n_threads": checks.Optional(checks.Integer(1, 2**15)),
    "random_state": checks.Checked(checks.check_seed, "int or numpy.random.SeedSequence"),
}


class Forest:
    """A forest of trees over one store of memories.

    The functions of this package expect unit-length rows that are dense or sparse like the stored keys, and as wide.

    - ``options``: the validated options of a tree, except ``n_threads`` and ``random_state``.
    - ``n_threads``: the number of threads for batches, or None to use Numba's number.
    - ``streams`` (uint64 (n_trees + 1,)): the initial random streams: one for each tree, and one for queries.
    - ``state``: all arrays, or None before the first insert, which determines the width of keys and whether they are
      sparse. Replace it with :meth:`put`.
    """

    def __init__(self, options: dict[str, Any], n_threads: int | None, streams: np.ndarray) -> None:
        self.options, self.n_threads, self.streams = options, n_threads, streams
        self.n_trees = int(options["n_trees"])
        self.lock = self._lock = ReadWriteLock()
        self.filters = ArrayCache()
        self.pace = Pace(max(_FIRST_ROWS, _FIRST_INSERTS // self.n_trees))
        self.journal: Any = None  # in a folder, an object that journals draws and returned memories of queries
        self.last_evicted = np.empty(0, np.int64)  # ids of the memories that the last insert evicted
        self.evicts: np.ndarray | None = None  # during replay, ids of memories to evict; None if the policy chooses
        self.clear()

    def clear(self) -> None:
        """Return to the state before the first insert: forget all memories and everything learned."""
        self.state: forests.State | None = None
        self._view: tuple[forests.State, Any] | None = None
        self.eviction = forests.new_eviction(self.options["eviction"], bounded=self.options["max_memories"] is not None)
        self.evidence = RewardEvidence()

    # Contents

    @property
    def teaches(self) -> bool:
        """Whether updates also teach routers the paths to rewarded memories, unlike the algorithm of the paper."""
        return bool(self.options["scorer_loss"] == forests.ScorerLoss.CONTRAST.name.lower())

    @property
    def n_memories(self) -> int:
        state = self.state
        return 0 if state is None else state.keys.totals.item(kernels.N_MEMORIES)

    @property
    def next_id(self) -> int:
        state = self.state
        return 0 if state is None else state.keys.totals.item(kernels.NEXT_ID)

    @property
    def nbytes(self) -> int:
        return (
            0 if self.state is None else forests.count_bytes(self.state) + self.eviction.nbytes + self.evidence.nbytes
        )

    def ids(self) -> np.ndarray:
        return self.lock.read(
            lambda: np.empty(0, np.int64) if self.state is None else self.state.keys.ids[: self.n_memories].copy()
        )

    def depth(self) -> int:
        """Return the maximum number of internal nodes between a root and a leaf."""
        return self.lock.read(lambda: 0 if self.state is None else forests.invariants.depth(self.state))

    def leaves(self) -> forests.Leaves:
        """Return the tree, the depth and the size of every leaf."""
        if self.state is None:
            zeros = np.zeros(self.n_trees, np.int64)
            return forests.Leaves(np.arange(self.n_trees, dtype=np.int64), zeros, zeros.copy())
        return self.lock.read(lambda: forests.invariants.leaves(self.allocated()))

    def slots_of(self, ids: np.ndarray) -> np.ndarray:
        """Return the slot of each id, or -1 if it is not stored."""
        slots, state = np.empty(ids.size, np.int64), self.state
        slots.fill(-1)
        if state is not None:
            kernels.find_slots(
                state.keys, np.ascontiguousarray(ids), slots
            )  # a kernel is compiled again for strided arrays
        return slots

    def known_slots(self, ids: np.ndarray) -> np.ndarray:
        """Return the slot of each id. Raises KeyError if an id is not stored."""
        slots = self.slots_of(ids)
        if slots.size > 0:
            checks.check_known(ids, slots)
        return slots

    def check(self) -> None:
        """Raise InvariantError if an invariant of the trees, the keys or the policy is violated."""
        if self.state is not None:
            forests.invariants.check(self.state)
            with self.lock.instant:
                self.eviction.check(self.state)
            self.check_bound()

    def check_bound(self) -> None:
        """Raise InvariantError if there are more memories than ``max_memories``."""
        most, n = self.options["max_memories"], self.n_memories
        kernels.require(most is None or n <= most, f"the number of memories, {n}, exceeds max_memories={most}")

    # Rows

    def check_rows(self, X: Any) -> kernels.Rows:
        """Convert ``X`` to rows, dense or sparse like the stored keys. Raises TypeError or ValueError."""
        X = checks.as_rows(X)
        if self.state is None:
            return checks.check_rows(X, n_threads=self.max_threads())
        parameters = self.state.parameters
        return checks.check_rows(
            X, sparse=parameters.sparse, n_features=parameters.n_features, n_threads=self.max_threads()
        )

    def fitting_state(self, rows: kernels.Rows) -> forests.State | None:
        """Return the state if its keys have the same type and width as the rows, else None.

        The match can fail if another thread completed or undid the first insert after the rows were validated.
        """
        state = self.state
        if state is None:
            return None
        parameters = state.parameters
        return state if parameters.n_features == rows.n_features and parameters.sparse == rows.sparse else None

    # The state

    def allocated(self) -> forests.State:
        """Return the state, which exists after the first insert."""
        assert self.state is not None
        return self.state

    def put(self, state: forests.State, eviction: forests.Eviction | None = None) -> None:
        """Replace the state and, if memories have moved to other slots, the policy."""
        if state is not self.state:
            self.state, self.eviction = state, eviction or self.eviction
            self._view = None  # the cached view refers to the old arrays

    def view(self, state: forests.State | None = None) -> Any:
        """Return a state, by default the current one, as an argument for kernels. The last result is cached."""
        state = state or self.state
        known = self._view
        if known is None or known[0] is not state:
            assert state is not None
            known = self._view = state, state.view()
        return known[1]

    def packed(self) -> SimpleNamespace:
        """Return what a file needs. No other thread may change the forest meanwhile."""
        parts: dict[str, Any] = {"options": self.options, "n_threads": self.n_threads}
        if self.state is None:
            return SimpleNamespace(**parts, streams=self.streams, state=None, order=None, evidence=None)
        with self.lock.instant:  # exclude queries that draw random numbers or notify the policy
            state = self.state._replace(streams=self.state.streams.copy())
            order, evidence = self.eviction.order(state), self.evidence.saved()
            return SimpleNamespace(**parts, streams=None, state=state, order=order, evidence=evidence)

    def restore(
        self,
        streams: np.ndarray | None,
        state: forests.State | None,
        order: np.ndarray | None,
        evidence: SavedEvidence | None,
    ) -> None:
        """Fill an empty forest with the contents of a file. Raises InvariantError if they do not fit together."""
        if state is None:
            if streams is None or streams.shape != self.streams.shape:
                raise kernels.InvariantError("every tree must have a random stream")
            self.streams = streams
            return
        parameters = state.parameters
        like = kernel_parameters(self.options, parameters.n_features, parameters.sparse)
        kernels.require(parameters == like, "the trees must have the parameters that the options say")
        forests.invariants.check_frame(state)
        self.state, self.streams = state, state.streams
        self.check_bound()
        self.eviction.restore(order, state)
        if evidence is not None:
            self.evidence.restore(evidence, parameters)

    def copy(self) -> "Forest":
        """Return an independent copy with the same future results. No other thread may change the forest meanwhile."""
        with self.lock.instant:  # exclude queries that draw random numbers
            twin = Forest(self.options, self.n_threads, self.streams.copy())
            twin.state, twin.eviction, twin.evidence = copy.deepcopy((self.state, self.eviction, self.evidence))
        twin.pace = self.pace
        return twin

    # Random numbers

    def draw_word(self) -> int:
        """Draw 64 bits from the random stream for queries."""
        with self.lock.instant:
            streams = self.allocated().streams
            return int(kernels.draw_word(streams, streams.size - 1))

    # Threads and steps

    def max_threads(self) -> int:
        """Return the maximum number of threads for a batch."""
        return self.n_threads or int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]

    def threads_for(self, n_rows: int) -> int:
        """Return the number of threads for a batch of ``n_rows`` rows."""
        return max(1, min(self.max_threads(), n_rows // _ROWS_WORTH_A_THREAD))

    def is_one_step(self, n_rows: int, progress: bool) -> bool:
        """Return whether :meth:`in_steps` takes all rows in its first step."""
        return n_rows <= self.pace.first and not progress

    def _make_spare_room(self, n_rows: int, n_memories: int) -> None:
        assert self.state is not None
        self.put(forests.with_spare_room(self.state, n_rows, n_memories))

    def in_steps(
        self, n: int, unit: str, progress: bool, step: Callable[[Workers, int, int], None], most: int | None = None
    ) -> None:
        """Call ``step(run, start, stop)`` for parts of ``n`` rows. In between, others read and arrays are enlarged.

        Arrays get capacity for ``most`` memories, by default for the stored ones.
        """
        n_memories = self.n_memories if most is None else most
        if self.is_one_step(n, progress):
            self._make_spare_room(n, n_memories)
            self.lock.step(partial(step, in_own_thread, 0, n))
            return
        steps = TimedSteps(0, n, self.pace)
        with progress_bar(n, unit, progress) as report, workers(self.threads_for(n)) as run:
            work = partial(step, run)
            for start, stop in steps:
                self._make_spare_room(stop - start, n_memories)
                self.lock.step(partial(steps.take, work, start, stop))
                report(stop - start)

    def on_each_tree(
        self, run: Workers, kernel: Callable[..., int], *arguments: Any, n_memories: int | None = None
    ) -> None:
        """Run ``kernel(view, trees, *arguments)`` on all trees, and enlarge arrays that become full.

        If an array is full, the kernel returns its status instead of DONE, and resumes when it is called again. Each
        tree writes only its own part of the arrays, so threads run the kernel for different trees in parallel. Arrays
        grow while no kernel runs, with capacity for ``n_memories`` if given. On a failure, unfinished moves are undone,
        so readers find every memory.
        """
        waiting = [forests.TreeRange(t, t + 1) for t in range(self.n_trees)]
        if run is in_own_thread:
            waiting = [forests.TreeRange(0, self.n_trees)]
        try:
            while True:
                view = self.view()
                if run is in_own_thread:
                    statuses = [kernel(view, waiting[0], *arguments)]
                else:
                    statuses = run(lambda trees: kernel(view, trees, *arguments), waiting)  # noqa: B023
                if not any(statuses):
                    return
                waiting = [trees for trees, status in zip(waiting, statuses, strict=True) if status != linear.DONE]
                for status in sorted(set(statuses) - {linear.DONE}):
                    self.put(forests.with_more(self.allocated(), status, n_memories or self.n_memories))
        except BaseException:
            self.undo_moves()
            raise

    def undo_moves(self) -> None:
        """Undo moves that a failure has interrupted."""
        forests.undo_moves(self.view())


def kernel_parameters(options: dict[str, Any], n_features: int, sparse: bool) -> forests.Parameters:
    """Return the options of a forest as an argument for kernels."""
    named = {name: value for name, value in options.items() if name in forests.Parameters._fields}
    named["router_loss"] = ROUTER_LOSSES.index(options["router_loss"])
    named["scorer_loss"] = SCORER_LOSSES.index(options["scorer_loss"])
    return forests.Parameters(**named | {"n_features": n_features, "sparse": sparse})
