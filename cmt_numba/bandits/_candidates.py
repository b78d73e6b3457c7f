"""What a bandit over any number of actions does with rows that are validated: candidates, their model, and files."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np

from .._forest.invariants.errors import require
from .._forest.rows import Rows
from .._forest.state import MOST_FEATURES, NONE
from .._validation import check_rows
from ..persistence._container import Contents
from ..persistence._trees import take
from ..tree import ContextualMemoryTree
from ._base import Policy
from ._checks import Choices, check_choices
from ._hashed_weights import Table, expect_rewards, learn_rewards, new_table
from ._kernels import Pairs
from ._memory import ActionMemory, Proposals
from ._models import Arrays, LinearModels, Means, checked
from ._pending import N_SCORES, Pending
from ._rules import greedy, rows_of, thompson

_N_FEATURES = 6
_ROWS_AT_ONCE = 2048
_ALLOWED_AT_ONCE = 1 << 20
_LARGEST_BLOCK = 256  # of rows that learn from the same state
_SHARE_OF_BLOCK = 20  # blocks are at most this part of the rewards before
_WORTH_KEEPING = 0.5  # reward from which on a context becomes a key of the action
_KNOWN = 0.95  # score of an action by its rewarded contexts from which on another one tells nothing


class Candidates(NamedTuple):
    """The candidates of rows. Those of a row lie side by side."""

    offsets: np.ndarray  # int64 (rows + 1,)
    actions: np.ndarray  # int64 (pairs,)
    scores: np.ndarray  # float64 (pairs, N_SCORES), by keys and by rewarded contexts; 0 where not proposed
    sizes: np.ndarray  # int64 (rows,), allowed actions


class CandidateModel(Policy):
    """A policy that estimates the rewards of candidates, which trees propose."""

    def _begin(self) -> None:
        """Begin without rewards, with the options that are set."""
        options = self._options
        self._means = Means()
        self._means.reserve(self._ids.size)
        self._model = self._means
        self._table: Table = new_table(options["n_bits"], float(options["regularization"]))
        self._shared_model = LinearModels(0, _N_FEATURES, 1.0)
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

    def _rows(self, X: Any) -> Rows:
        """Return contexts or keys as rows, in the form of those before."""
        if self._width is None:
            return check_rows(X)
        return check_rows(X, sparse=self._sparse, n_features=self._width)

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
        widest = 1 if choices is None else int(np.diff(choices.offsets).max())
        step = max(1, min(_ROWS_AT_ONCE, _ALLOWED_AT_ONCE // widest))
        return [(first, min(first + step, n_rows)) for first in range(0, n_rows, step)]

    def _candidates(self, rows: Rows, allowed: np.ndarray | None, starts: np.ndarray | None) -> Candidates:
        """Return the candidates of rows, among the actions allowed: those of row ``i`` begin at ``starts[i]``."""
        n, most = rows.n_rows, self._options["n_candidates"]
        if allowed is None or starts is None:
            sizes = np.full(n, self._ids.size)
            if self._ids.size <= most:
                allowed, starts = np.tile(self._ordered, n), np.arange(n + 1) * self._ids.size
        else:
            sizes = np.diff(starts)
        proposed = self._proposals(rows)
        codes = [codes_of(part.rows, part.actions) for part in proposed]
        if allowed is not None and starts is not None and sizes.max() <= most:
            all_codes = codes_of(rows_of(starts), allowed)
            found = np.sort(all_codes)
        else:
            tried = self._tried(n, allowed, starts, sizes)
            found = np.unique(np.concatenate([tried, *codes]))
            if allowed is not None and starts is not None:
                found = found[np.isin(found, codes_of(rows_of(starts), allowed))]
        scores = np.zeros((found.size, N_SCORES))
        for j, (part, code) in enumerate(zip(proposed, codes, strict=True)):
            places = np.minimum(np.searchsorted(found, code), found.size - 1)
            same = found[places] == code
            np.maximum.at(scores[:, j], places[same], part.scores[same])
        of_rows = found >> 32
        offsets = np.searchsorted(of_rows, np.arange(n + 1))
        return Candidates(offsets, found & 0xFFFFFFFF, scores, sizes)

    def _proposals(self, rows: Rows) -> list[Proposals]:
        """Return what both trees propose."""
        k = -(-self._options["n_candidates"] // 2)
        return [memory.propose(rows, k, self._options["n_probes"]) for memory in (self._by_key, self._by_context)]

    def _tried(self, n: int, allowed: np.ndarray | None, starts: np.ndarray | None, sizes: np.ndarray) -> np.ndarray:
        """Return the actions whose turn it is, at least one for each row."""
        turns = self._turn + np.arange(max(1, self._options["n_tried"]))
        places = turns[None, :] % sizes[:, None]
        of_all = allowed is None or starts is None
        actions = self._ordered[places] if of_all else allowed[starts[:-1, None] + places]  # type: ignore[index]
        return codes_of(np.repeat(np.arange(n), turns.size), actions.reshape(-1))

    def _described(self, rows: Rows, of_pairs: np.ndarray, actions: np.ndarray, scores: np.ndarray) -> Any:
        """Return the shared features of pairs, and the variances of the linear models of their actions."""
        means, variances = np.empty(actions.size), np.empty(actions.size)
        expect_rewards(self._table, rows, of_pairs, actions, means, variances)
        slots = self._slots_of(actions)
        slots = np.where(slots == NONE, self._ids.size, slots)  # as an action without rewards
        counts, sums = self._means.counts[slots], self._means.sums[slots]
        shared = np.column_stack([means, sums / (1 + counts), 1 / np.sqrt(1 + counts), scores, np.ones(actions.size)])
        return np.ascontiguousarray(shared), variances

    def _of_candidates(self, rows: Rows, candidates: Candidates) -> np.ndarray:
        """Return the probability of each candidate, without the uniform choice."""
        of_pairs = rows_of(candidates.offsets)
        shared, variances = self._described(rows, of_pairs, candidates.actions, candidates.scores)
        means, shared_variances = self._shared_model.estimate(_shared_pairs(shared))
        alpha, beta = self._options["alpha"], self._options["beta"]
        if self._options["exploration"] == "ucb":
            bounds = means + alpha * np.sqrt(shared_variances) + beta * np.sqrt(variances)
            return greedy(bounds, candidates.offsets)
        deviations = np.sqrt(alpha**2 * shared_variances + beta**2 * variances)
        return thompson(means, deviations, candidates.offsets)

    # Learning

    def _learn(self, rows: Rows, actions: np.ndarray, scores: np.ndarray, rewards: np.ndarray) -> None:
        new = np.unique(actions[self._slots_of(actions) == NONE])
        if new.size > 0:
            self._enter(new, None)
        slots, first = self._slots_of(actions), 0
        while first < rows.n_rows:
            stop = min(rows.n_rows, first + max(1, min(_LARGEST_BLOCK, self.n_rewards // _SHARE_OF_BLOCK)))
            span, of_pairs = slice(first, stop), np.arange(first, stop)
            shared, _ = self._described(rows, of_pairs, actions[span], scores[span])
            self._shared_model.learn(_shared_pairs(shared), rewards[span])
            learn_rewards(self._table, rows, of_pairs, actions[span], rewards[span])
            self._means.learn(Pairs(shared, of_pairs, slots[span], shared), rewards[span])
            self._n_rewards += stop - first
            first = stop
        best = np.flatnonzero(rewards >= _WORTH_KEEPING)
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
        arrays |= {"table.weights": self._table.weights, "table.squares": self._table.squares}
        arrays |= {f"shared.{name}": array for name, array in self._shared_model.arrays(0).items()}
        return Contents(plain.kind, fields, arrays)

    @classmethod
    def _made_of(cls, contents: Contents) -> Self:
        bandit = super()._made_of(contents)
        fields, arrays = contents.fields, contents.arrays
        width = take(fields, "width", int, type(None))
        require(width is None or 1 <= width <= MOST_FEATURES, "width must be that of contexts")
        bandit._width, bandit._sparse = width, take(fields, "sparse", bool)
        for memory, name in ((bandit._by_key, "by_key"), (bandit._by_context, "by_context")):
            memory.restore(name, fields.get(name), arrays)
            require(memory.tree.n_features in (None, width), f"keys of {name} must be as wide as contexts")
        for name in ("next_id", "turn"):
            require(0 <= take(fields, name, int) < 2**62, f"{name} must not be negative")
        bandit._turn = fields["turn"]
        bandit._pending.restore(fields["next_id"], arrays, width or 0, bandit._sparse)
        table: Arrays = {name: getattr(bandit._table, name) for name in ("weights", "squares")}
        for name, own in table.items():
            own[:] = checked(arrays, f"table.{name}", own.shape, own.dtype)
        require(bool(np.all(bandit._table.squares >= 0)), "squares must not be negative")
        shared = {name.removeprefix("shared."): array for name, array in arrays.items() if name.startswith("shared.")}
        bandit._shared_model.restore(shared, 0)
        return bandit


def codes_of(rows: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """Return a number for each pair of a row and an action, in the order of rows."""
    codes: np.ndarray = (rows.astype(np.int64) << 32) | actions
    return codes


def _shared_pairs(shared: np.ndarray) -> Pairs:
    """Return pairs for a model that has shared features only."""
    n = shared.shape[0]
    return Pairs(np.empty((1, 0)), np.zeros(n, np.int64), np.zeros(n, np.int64), shared)
