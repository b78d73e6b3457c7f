"""A bandit over any number of actions."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from .._change import changes_in_one_step
from .._forest import MOST_FEATURES, NONE, WORTH_KEEPING, Rows, require, room_for_probe
from .._jit import keeps_interpreter
from .._validation import Constraint, Integer, OneOf, Optional, Real
from ..persistence import Contents, as_part, of_part, take
from ..tree import OPTIONS, ContextualMemoryTree
from ._base import OF_ALL, Chosen, Policy, distinct
from ._candidate_kernels import (
    N_DESCRIBED,
    N_SCORES,
    ActionCandidates,
    KnownActions,
    OfferedActions,
    ProposedMemories,
    RidgeWeights,
    WeightTable,
    describe_pairs,
    find_candidates,
    learn_rewards,
    new_table,
)
from ._checks import Choices, check_actions, check_choices, check_propensities, check_rewards, check_unit_rows
from ._kernels import ActionPairs
from ._memory import ActionMemory, Pending
from ._models import Means, RewardModels, checked
from ._policies import RIDGE, SCALE
from ._rules import draw, greedy, rows_of, thompson

_ALL = np.empty(0, np.int64)  # in place of the actions that are allowed
_OF_CELLS = ("weights", "squares")  # the columns of the table, by their names in files
_ROWS_AT_ONCE = 2048
_ALLOWED_AT_ONCE = 1 << 20
_LARGEST_BLOCK = 256  # of rows that learn from the same state
_SHARE_OF_BLOCK = 20  # blocks are at most this part of the rewards before
_LARGEST_CELL = 1e9  # in files; rewards lie in [0, 1] and contexts have length 1
_KNOWN = 0.95  # score of an action by its rewarded contexts from which on another one tells nothing


class CMTBandit(Policy):
    """Choose among any number of actions, in time logarithmic in their number.

    Two trees propose candidates: one over the keys of actions, if they have keys, and one over contexts in which
    actions were rewarded. Some actions that are tried in turn join them. If there are no more actions than
    ``n_candidates``, all are candidates. A model then estimates the reward of each candidate from

    - a linear model of the context for each action, all of them in one table (``_hashed_weights.py``),
    - the mean reward of the action, and the number of its rewards,
    - the scores of the two trees.

    It is a ridge regression on these shared features, as in LinUCB; the candidate with the largest upper confidence
    bound is chosen, or one by Thompson sampling. With probability ``epsilon`` the choice is uniform over all actions
    allowed. The candidates depend on the past alone, so the propensities are exact.

    A reward of 0.5 or more stores the context as a further key of the action and trains the routers to lead there.

    Parameters
    ----------
    n_actions : int, optional
        The actions 0 .. n_actions - 1 are known from the start, without keys. By default there are none.
    n_candidates : int, default 64
        ActionCandidates for each decision, half of them from each tree.
    n_tried : int, default 4
        Further candidates for each decision, taken in turn from all actions.
    exploration : {"ucb", "thompson"}, default "ucb"
        Choose by upper confidence bounds, or with the probability of being best.
    alpha : float, default 0.1
        How much the uncertainty of the ridge regression counts.
    beta : float, default 0.3
        How much the uncertainty of the linear model of the action counts.
    epsilon : float in [0, 1], default 0.0
        Probability of choosing uniformly. Logs for off-policy evaluation need a value above 0.
    regularization : float, default 0.3
        The ridge of the linear models of actions. Contexts have length 1.
    n_bits : int, default 20
        The table of these models has ``2 ** n_bits`` cells of 8 bytes.
    n_trees : int, default 4
        Trees over the same keys.
    n_probes : int, optional
        Leaves searched in all trees together; by default 1 for each tree.
    max_memories : int, default 100000
        Rewarded contexts kept. Beyond this number the oldest are forgotten.
    max_pending : int, default 100000
        Decisions kept until their reward comes. Beyond this number the oldest are forgotten.
    random_state : int or numpy.random.SeedSequence, optional
        Seed.

    Attributes
    ----------
    n_pending : int
        Decisions without a reward.

    Examples
    --------
    >>> from sklearn.feature_extraction.text import HashingVectorizer
    >>> from cmt_numba.bandits import CMTBandit
    >>> words = HashingVectorizer(n_features=2**16, alternate_sign=False)
    >>> names = ["play some music", "what is the weather", "set an alarm"]
    >>> bandit = CMTBandit(random_state=0).add_actions([0, 1, 2], words.transform(names))
    >>> decision = bandit.act(words.transform(["will the weather be fine"]))
    >>> bandit = bandit.reward(decision.ids, (decision.actions == 1).astype(float))
    >>> bandit.n_rewards
    1
    """

    _constraints: ClassVar[dict[str, Constraint]] = {
        **OF_ALL,
        "n_candidates": Integer(1, 100_000),
        "n_tried": Integer(0, 100_000),
        "exploration": OneOf(("ucb", "thompson")),
        "alpha": SCALE,
        "beta": SCALE,
        "epsilon": Real(0.0, 1.0),
        "regularization": RIDGE,
        "n_bits": Integer(4, 30),
        "n_trees": OPTIONS["n_trees"],
        "n_probes": Optional(Integer(1)),
        "max_memories": Integer(1),
        "max_pending": Integer(1),
    }

    def __init__(
        self,
        n_actions: int | None = None,
        *,
        n_candidates: int = 64,
        n_tried: int = 4,
        exploration: str = "ucb",
        alpha: float = 0.1,
        beta: float = 0.3,
        epsilon: float = 0.0,
        regularization: float = 0.3,
        n_bits: int = 20,
        n_trees: int = 4,
        n_probes: int | None = None,
        max_memories: int = 100_000,
        max_pending: int = 100_000,
        random_state: Any = None,
    ) -> None:
        self._start(
            n_actions=n_actions,
            n_candidates=n_candidates,
            n_tried=n_tried,
            exploration=exploration,
            alpha=alpha,
            beta=beta,
            epsilon=epsilon,
            regularization=regularization,
            n_bits=n_bits,
            n_trees=n_trees,
            n_probes=n_probes,
            max_memories=max_memories,
            max_pending=max_pending,
            random_state=random_state,
        )
        options = self._options
        self._means = Means()
        self._means.reserve(self._ids.size)
        self._model = self._means
        self._table: WeightTable = new_table(options["n_bits"], float(options["regularization"]))
        self._shared_model = RewardModels(0, N_DESCRIBED, 1.0)
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

    # Actions

    @property
    def n_features(self) -> int | None:
        """Features of contexts and keys, or None if there have been none."""
        return self._width

    @property
    def n_pending(self) -> int:
        """Decisions without a reward."""
        return len(self._pending)

    @changes_in_one_step
    def add_actions(self, actions: Any, keys: Any = None) -> Self:
        """Add actions.

        Parameters
        ----------
        actions : int or array-like of int, shape (k,)
            Distinct actions, not known yet: integers from 0 on.
        keys : array-like or sparse matrix, shape (k, n_features), optional
            A key of each, in the space of contexts: an action is proposed in contexts that are similar to its key.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If they are not new, distinct actions, or keys cannot be used; nothing has changed then.
        """
        new = self._new(actions)
        if keys is not None:
            rows = self._rows(keys)
            if rows.n_rows != new.size:
                raise ValueError(f"keys must be one for each of the {new.size} actions, not {rows.n_rows}")
            self._see(rows)
            self._by_key.store(rows, new)
        self._enter(new, None)
        return self

    def _forget(self, gone: np.ndarray, slots: np.ndarray) -> None:
        super()._forget(gone, slots)
        for memory in self._memories:
            memory.forget(gone)
        self._pending.forget(gone)

    # Choosing

    def act(self, contexts: Any = None, actions: Any = None) -> Chosen:
        """Choose an action in each context, and remember the decision until its reward comes.

        Parameters
        ----------
        contexts : array-like or sparse matrix, shape (n, n_features)
            Contexts, which are scaled to unit length.
        actions : array-like, optional
            The actions allowed, as of :meth:`Policy.act`; by default all that are known.

        Returns
        -------
        Chosen
            ``actions`` and ``propensities``, as of :meth:`Policy.act`, and ``ids`` for :meth:`reward`.

        Raises
        ------
        TypeError, ValueError
            If an argument cannot be used; nothing has changed then.
        """
        return super().act(contexts, actions)

    def _act(self, contexts: Any, actions: Any) -> Chosen:
        rows = self._rows(contexts)
        choices = self._checked_choices(actions, rows.n_rows)
        uniforms, blocks = self._generator.random((3, rows.n_rows)), self._blocks(rows.n_rows, choices)
        if len(blocks) == 1:
            chosen, propensities, scores = self._drawn(rows, choices, uniforms)
        else:
            parts = [
                self._drawn(rows.between(a, b), None if choices is None else choices.part(a, b), uniforms[:, a:b])
                for a, b in blocks
            ]
            chosen, propensities, scores = (np.concatenate(column) for column in zip(*parts, strict=True))
        # An interrupt here leaves nothing worse than decisions that are never rewarded.
        self._see(rows)
        self._turn += rows.n_rows * self._options["n_tried"]
        return Chosen(chosen, propensities, self._pending.enter(rows, chosen, scores))

    def _drawn(
        self, rows: Rows, choices: Choices | None, uniforms: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return an action for each row, its probability, and the scores that memories gave to it.

        The three numbers in [0, 1) of each row draw a candidate, whether the choice is uniform, and the action then.
        """
        candidates = self._candidates(rows, choices)
        probabilities = self._rule(candidates, candidates.offsets)
        drawn = draw(probabilities, candidates.offsets, uniforms[0])
        actions, propensities, scores = candidates.actions[drawn], probabilities[drawn], candidates.scores[drawn]
        epsilon = self._options["epsilon"]
        if epsilon > 0.0:
            propensities = self._mixed(propensities, self._ids.size if choices is None else choices.sizes)
            for i in np.flatnonzero(uniforms[1] < epsilon):
                own = self._ordered if choices is None else choices.actions[slice(*choices.offsets[i : i + 2])]
                actions[i] = own[int(uniforms[2, i] * own.size)]
                span = slice(*candidates.offsets[i : i + 2])
                same = np.flatnonzero(candidates.actions[span] == actions[i])
                propensities[i] = self._mixed(probabilities[span][same].sum(), own.size)
                scores[i] = candidates.scores[span][same[0]] if same.size else 0.0
        return actions, propensities, scores

    def _probabilities(self, contexts: Any, actions: Any) -> np.ndarray:
        rows = self._rows(contexts)
        restricted = self._checked_choices(actions, rows.n_rows)
        choices = check_choices(self._ordered, rows.n_rows) if restricted is None else restricted
        answer = np.zeros(choices.shape)
        for first, stop in self._blocks(rows.n_rows, choices):
            part = choices.part(first, stop)
            candidates = self._candidates(rows.between(first, stop), None if restricted is None else part)
            probabilities = np.zeros(part.actions.size)
            codes = codes_of(rows_of(part.offsets), part.actions)
            known = codes_of(rows_of(candidates.offsets), candidates.actions)
            order = np.argsort(codes)
            probabilities[order[np.searchsorted(codes, known, sorter=order)]] = self._rule(
                candidates, candidates.offsets
            )
            answer.reshape(-1)[part.places] = self._mixed(probabilities, part.sizes[rows_of(part.offsets)])
        return answer

    @property
    def _memories(self) -> tuple[ActionMemory, ActionMemory]:
        return self._by_key, self._by_context

    def _rows(self, X: Any) -> Rows:
        """Return contexts or keys as rows of the form of earlier ones."""
        return check_unit_rows(X, self._width, None if self._width is None else self._sparse)

    def _see(self, rows: Rows) -> None:
        """Remember the width of rows, and whether they are sparse."""
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
        """Return spans of rows that are processed at a time."""
        if choices is None and n_rows <= _ROWS_AT_ONCE:
            return [(0, n_rows)]
        widest = 1 if choices is None else int(choices.sizes.max())
        step = max(1, min(_ROWS_AT_ONCE, _ALLOWED_AT_ONCE // widest))
        return [(first, min(first + step, n_rows)) for first in range(0, n_rows, step)]

    def _candidates(self, rows: Rows, choices: Choices | None) -> ActionCandidates:
        """Return the candidates of rows, among the choices of each or, by default, among all actions known."""
        proposed = self._proposed(rows)
        offered, most = self._offered(rows.n_rows, choices)
        for part in proposed:
            most += part.hits.size
        room = np.empty((3 + N_SCORES, most))
        found = ActionCandidates(
            np.empty(rows.n_rows + 1, np.int64), np.empty(most, np.int64), room[3:].reshape(most, N_SCORES), *room[:3]
        )
        linear, options = self._shared_model.linear, self._options
        ridge = RidgeWeights(linear.shared, linear.shared_inverse, float(options["alpha"]), float(options["beta"]))
        n = find_candidates(self._table, rows, self._known(), ridge, offered, *proposed, found)
        return ActionCandidates(found.offsets, *(column[:n] for column in found[1:]))

    def _proposed(self, rows: Rows) -> list[ProposedMemories]:
        """Return the memories that both trees propose for rows."""
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
        """Number of memories that each tree proposes."""
        return -(-int(self._options["n_candidates"]) // 2)

    def _offered(self, n_rows: int, choices: Choices | None) -> tuple[OfferedActions, int]:
        """Return the actions offered to rows, and the number of candidates among them."""
        most, n_tried = self._options["n_candidates"], max(1, self._options["n_tried"])
        if choices is None:
            size = self._ids.size
            return OfferedActions(most, self._turn, n_tried, _ALL, _ALL, _ALL), n_rows * (
                size if size <= most else n_tried
            )
        offsets, sizes = choices.offsets, choices.sizes
        ascending = np.sort(codes_of(rows_of(offsets), choices.actions)) & 0xFFFFFFFF
        n_offered = int(np.where(sizes <= most, sizes, n_tried).sum())
        return OfferedActions(most, self._turn, n_tried, offsets, choices.actions, ascending), n_offered

    def _known(self) -> KnownActions:
        return KnownActions(self._ordered, self._order, self._means.counts, self._means.sums)

    def _rule(self, estimates: ActionCandidates, offsets: np.ndarray) -> np.ndarray:
        """Return the probability of each candidate, without the uniform choice."""
        if self._options["exploration"] == "ucb":
            return greedy(estimates.bounds, offsets)
        return thompson(estimates.means, estimates.deviations, offsets)

    # Learning

    @keeps_interpreter
    @changes_in_one_step
    def reward(self, ids: Any, rewards: Any) -> Self:
        """Learn from the rewards of decisions, which may come late and in any order.

        Parameters
        ----------
        ids : int or array-like of int, shape (n,)
            Ids of decisions, each named once.
        rewards : array-like, shape (n,)
            Their rewards in [0, 1].

        Returns
        -------
        self

        Raises
        ------
        KeyError
            If a decision has been rewarded already, was forgotten or was never made; nothing changes then.
        TypeError, ValueError
            If an argument cannot be used; nothing has changed then.
        """
        given = np.atleast_1d(ids)
        if given.dtype.kind not in "iu" or given.ndim != 1 or given.size == 0:
            raise TypeError("ids must be integers: the ids of decisions")
        if np.unique(given).size < given.size:
            raise ValueError("ids must be distinct")
        values = _unit_rewards(np.atleast_1d(rewards), given.size)
        unknown = self._pending.unknown(given)
        if unknown:
            raise KeyError(f"ids must be of decisions without a reward: {unknown[0]} is none")
        assert self._width is not None
        rows, actions, scores = self._pending.take(given, self._width, self._sparse)
        self._learn(rows, actions, scores, values)
        self._pending.drop(given)
        return self

    @keeps_interpreter
    @changes_in_one_step
    def learn(self, contexts: Any, actions: Any, rewards: Any, propensities: Any = None) -> Self:
        """Learn from the rewards of actions that were chosen elsewhere, as in a log.

        Do not pass decisions of :meth:`act` whose rewards go to :meth:`reward`.

        Parameters
        ----------
        contexts : array-like or sparse matrix, shape (n, n_features)
            Contexts.
        actions : array-like of int, shape (n,)
            The action chosen in each. Unknown actions are added, without keys.
        rewards : array-like, shape (n,)
            Their rewards in [0, 1].
        propensities : array-like, shape (n,), optional
            The probabilities with which they were chosen; checked, but without effect.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If an argument cannot be used; nothing has changed then.
        """
        rows = self._rows(contexts)
        chosen = check_actions(np.atleast_1d(actions), rows.n_rows)
        values = _unit_rewards(np.atleast_1d(rewards), rows.n_rows)
        if propensities is not None:
            check_propensities(np.atleast_1d(propensities), rows.n_rows)
        self._see(rows)
        k, n_probes = self._n_proposed, self._options["n_probes"]
        scores = np.column_stack([memory.scores_of(rows, chosen, k, n_probes) for memory in self._memories])
        self._learn(rows, chosen, scores, values)
        return self

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
            self._means.learn(ActionPairs(shared, of_pairs, slots[span], shared), rewards[span])
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
        bandit._shared_model = RewardModels.read(of_part("shared", arrays), 0, 0, N_DESCRIBED, 1.0)
        return bandit


def codes_of(rows: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """Return a number for each pair of a row and an action, in the order of rows."""
    codes: np.ndarray = (rows.astype(np.int64) << 32) | actions
    return codes


def _shared_pairs(shared: np.ndarray) -> ActionPairs:
    """Return pairs for a model that has shared features only."""
    n = shared.shape[0]
    return ActionPairs(np.empty((1, 0)), np.zeros(n, np.int64), np.zeros(n, np.int64), shared)


def _unit_rewards(rewards: Any, n_rows: int) -> np.ndarray:
    values = check_rewards(rewards, n_rows)
    if not np.all((values >= 0.0) & (values <= 1.0)):
        raise ValueError("rewards must lie in [0, 1]")
    return values
