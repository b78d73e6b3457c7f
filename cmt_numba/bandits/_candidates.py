"""What a bandit over any number of actions does with rows that are validated: candidates, their model, and files."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from .._forest.hits import WORTH_KEEPING
from .._forest.invariants.errors import require
from .._forest.rows import Rows
from .._forest.scorer import room_for_probe
from .._forest.state import MOST_FEATURES, NONE
from ..persistence._container import Contents
from ..persistence._saved import as_part, of_part
from ..persistence._trees import take
from ..tree import ContextualMemoryTree
from ._base import Policy, distinct
from ._checks import Choices, check_choices, check_unit_rows
from ._choosing import (
    N_DESCRIBED,
    N_SCORES,
    Candidates,
    Known,
    Offered,
    Proposed,
    Ridge,
    describe_pairs,
    find_candidates,
)
from ._hashed_weights import Table, learn_rewards, new_table
from ._kernels import Pairs
from ._memory import ActionMemory
from ._models import LinearModels, Means, checked
from ._pending import Pending
from ._rules import greedy, rows_of, thompson

_ALL = np.empty(0, np.int64)  # in place of the actions that are allowed
_OF_CELLS = ("weights", "squares")  # the columns of the table, by their names in files
_ROWS_AT_ONCE = 2048
_ALLOWED_AT_ONCE = 1 << 20
_LARGEST_BLOCK = 256  # of rows that learn from the same state
_SHARE_OF_BLOCK = 20  # blocks are at most this part of the rewards before
_LARGEST_CELL = 1e9  # in files; rewards lie in [0, 1] and contexts have length 1
_KNOWN = 0.95  # score of an action by its rewarded contexts from which on another one tells nothing


class CandidateModel(Policy):
    """A policy that estimates the rewards of candidates, which trees propose."""

    def _begin(self) -> None:
        """Begin without rewards, with the options that are set."""
        options = self._options
        self._means = Means()
        self._means.reserve(self._ids.size)
        self._model = self._means
        self._table: Table = new_table(options["n_bits"], float(options["regularization"]))
        self._shared_model = LinearModels(0, N_DESCRIBED, 1.0)
        seeds = self._generator.integers(0, 2**63, 2).tolist()
        self._by_key, self._by_context = (
            ActionMemory(
                ContextualMemoryTree(
                    options["n_trees"], max_memories=most, eviction="oldest", n_threads=1, random_state=seed
                )
            )
            for seed, most in zip(seeds, (None, options["max_memories"]), strict=True)
        )
        self._pending = Pending(options["max_pending"])
        self._width: int | None = None
        self._sparse = False
        self._turn = 0  # of the actions that are tried in turn
        self._rooms: list[np.ndarray] = []  # for searches of one row, those that no thread uses

    @property
    def _memories(self) -> tuple[ActionMemory, ActionMemory]:
        return self._by_key, self._by_context

    def _rows(self, X: Any) -> Rows:
        """Return contexts or keys as rows, in the form of those before."""
        return check_unit_rows(X, self._width, None if self._width is None else self._sparse)

    def _see(self, rows: Rows) -> None:
        """Remember the form of rows."""
        self._width, self._sparse = rows.n_features, rows.sparse

    def _mixed(self, probabilities: Any, sizes: Any) -> Any:
        """Return probabilities after mixing with the uniform choice."""
        epsilon = self._options["epsilon"]
        return (1.0 - epsilon) * probabilities + epsilon / sizes if epsilon > 0.0 else probabilities

    def _checked_choices(self, actions: Any, n_rows: int) -> Choices | None:
        if actions is not None:
            return check_choices(actions, n_rows)
        if self._ids.size == 0:
            raise ValueError("no actions are known: call add_actions, or pass actions")
        return None

    def _blocks(self, n_rows: int, choices: Choices | None) -> list[tuple[int, int]]:
        """Return spans of rows that are handled at a time."""
        if choices is None and n_rows <= _ROWS_AT_ONCE:
            return [(0, n_rows)]
        widest = 1 if choices is None else int(choices.sizes.max())
        step = max(1, min(_ROWS_AT_ONCE, _ALLOWED_AT_ONCE // widest))
        return [(first, min(first + step, n_rows)) for first in range(0, n_rows, step)]

    def _candidates(self, rows: Rows, choices: Choices | None) -> Candidates:
        """Return the candidates of rows, among the choices of each or, by default, among all actions known."""
        proposed = self._proposed(rows)
        offered, most = self._offered(rows.n_rows, choices)
        for part in proposed:
            most += part.hits.size
        room = np.empty((3 + N_SCORES, most))
        found = Candidates(
            np.empty(rows.n_rows + 1, np.int64), np.empty(most, np.int64), room[3:].reshape(most, N_SCORES), *room[:3]
        )
        linear, options = self._shared_model.linear, self._options
        ridge = Ridge(linear.shared, linear.shared_inverse, float(options["alpha"]), float(options["beta"]))
        n = find_candidates(self._table, rows, self._known(), ridge, offered, *proposed, found)
        return Candidates(found.offsets, *(column[:n] for column in found[1:]))

    def _proposed(self, rows: Rows) -> list[Proposed]:
        """Return what the memories propose for rows."""
        k, n_probes = self._n_proposed, self._options["n_probes"]
        if rows.n_rows > 1 or self._width is None:  # from then on all rows are as wide
            return [memory.propose(rows, k, n_probes) for memory in self._memories]
        try:
            room = self._rooms.pop()
        except IndexError:
            room = room_for_probe(rows)
        proposed = [memory.propose(rows, k, n_probes, room) for memory in self._memories]
        self._rooms.append(room)
        return proposed

    @property
    def _n_proposed(self) -> int:
        """How many memories each tree proposes."""
        return -(-int(self._options["n_candidates"]) // 2)

    def _offered(self, n_rows: int, choices: Choices | None) -> tuple[Offered, int]:
        """Return what is offered, and how many candidates that makes."""
        most, n_tried = self._options["n_candidates"], max(1, self._options["n_tried"])
        if choices is None:
            size = self._ids.size
            return Offered(most, self._turn, n_tried, _ALL, _ALL, _ALL), n_rows * (size if size <= most else n_tried)
        offsets, sizes = choices.offsets, choices.sizes
        ascending = np.sort(codes_of(rows_of(offsets), choices.actions)) & 0xFFFFFFFF
        n_offered = int(np.where(sizes <= most, sizes, n_tried).sum())
        return Offered(most, self._turn, n_tried, offsets, choices.actions, ascending), n_offered

    def _known(self) -> Known:
        return Known(self._ordered, self._order, self._means.counts, self._means.sums)

    def _of_candidates(self, candidates: Candidates) -> np.ndarray:
        """Return the probability of each candidate, without the uniform choice."""
        if self._options["exploration"] == "ucb":
            return greedy(candidates.bounds, candidates.offsets)
        return thompson(candidates.means, candidates.deviations, candidates.offsets)

    # Learning

    def _learn(self, rows: Rows, actions: np.ndarray, scores: np.ndarray, rewards: np.ndarray) -> None:
        slots, first = self._slots_of(actions), 0
        new = distinct(actions[slots == NONE])
        if new.size > 0:
            self._enter(new, None)
            slots = self._slots_of(actions)
        while first < rows.n_rows:
            stop = min(rows.n_rows, first + max(1, min(_LARGEST_BLOCK, self.n_rewards // _SHARE_OF_BLOCK)))
            span, of_pairs = slice(first, stop), np.arange(first, stop)
            shared = np.empty((stop - first, N_DESCRIBED))
            describe_pairs(self._table, rows, self._known(), of_pairs, actions[span], scores[span], shared)
            self._shared_model.learn(_shared_pairs(shared), rewards[span])
            learn_rewards(self._table, rows, of_pairs, actions[span], rewards[span])
            self._means.learn(Pairs(shared, of_pairs, slots[span], shared), rewards[span])
            self._n_rewards += stop - first
            first = stop
        best = np.flatnonzero(rewards >= WORTH_KEEPING)
        if best.size > 0:
            self._by_key.teach(rows.take(best), actions[best])
        best = best[scores[best, 1] < _KNOWN]
        if best.size > 0:
            self._by_context.store(rows.take(best), actions[best])

    # Files and pickles

    def _contents(self) -> Contents:
        plain = super()._contents()
        by_key, key_arrays = self._by_key.put("by_key")
        by_context, context_arrays = self._by_context.put("by_context")
        next_id, pending_arrays = self._pending.put()
        fields = plain.fields | {
            "by_key": by_key,
            "by_context": by_context,
            "next_id": next_id,
            "sparse": self._sparse,
            "width": self._width,
            "turn": self._turn,
            "n_features": None,
        }
        arrays = plain.arrays | key_arrays | context_arrays | pending_arrays
        arrays |= as_part("table", {name: self._table.cells[:, i] for i, name in enumerate(_OF_CELLS)})
        return Contents(plain.kind, fields, arrays | as_part("shared", self._shared_model.arrays(0)))

    @classmethod
    def _made_of(cls, contents: Contents) -> Self:
        fields, arrays = contents.fields, contents.arrays
        n_bits = take(fields, "options", dict).get("n_bits")
        cls._constraints["n_bits"].check("n_bits", n_bits)
        for name in _OF_CELLS:  # before room is made
            checked(arrays, f"table.{name}", (1 << n_bits,), np.dtype(np.float32), _LARGEST_CELL)
        bandit = super()._made_of(contents)
        width = take(fields, "width", int, type(None))
        require(width is None or 1 <= width <= MOST_FEATURES, "width must be that of contexts")
        bandit._width, bandit._sparse = width, take(fields, "sparse", bool)
        for memory, name in ((bandit._by_key, "by_key"), (bandit._by_context, "by_context")):
            memory.restore(name, fields.get(name), arrays, bandit._ids)
            form = memory.tree.n_features, fields[name].get("sparse")
            require(form in ((None, None), (width, bandit._sparse)), f"keys of {name} must have the form of contexts")
        for name in ("next_id", "turn"):
            require(0 <= take(fields, name, int) < 2**62, f"{name} must not be negative")
        bandit._turn = fields["turn"]
        bandit._pending.restore(fields["next_id"], arrays, width or 0, bandit._sparse)
        cells = bandit._table.cells
        for i, name in enumerate(_OF_CELLS):
            cells[:, i] = arrays[f"table.{name}"]
        require(bool(np.all(cells[:, 1] >= 0)), "squares must not be negative")
        bandit._shared_model = LinearModels.read(of_part("shared", arrays), 0, 0, N_DESCRIBED, 1.0)
        return bandit


def codes_of(rows: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """Return a number for each pair of a row and an action, in the order of rows."""
    codes: np.ndarray = (rows.astype(np.int64) << 32) | actions
    return codes


def _shared_pairs(shared: np.ndarray) -> Pairs:
    """Return pairs for a model that has shared features only."""
    n = shared.shape[0]
    return Pairs(np.empty((1, 0)), np.zeros(n, np.int64), np.zeros(n, np.int64), shared)
