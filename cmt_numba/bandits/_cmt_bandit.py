"""A contextual bandit for any number of actions, with or without keys."""

import zlib
from dataclasses import dataclass
from typing import Annotated, Any, Self

import numpy as np

from .. import persistence as files
from .._change import reads
from .._feedback import LearnedSearch, LearnedSummary
from .._jit import keeps_interpreter
from .._kernels import MOST_FEATURES, NO_ROOM, NONE, WORTH_KEEPING, Rows, as_matrix, require, room_for_probe
from .._validation import Integer, OneOf, Optional, Real, check_entries, check_range, check_rows
from ..estimators import LEARNED
from ..tree import OPTIONS, ContextualMemoryTree
from . import _reward_kernels as kernels
from ._base import Chosen, Policy, distinct
from ._checks import Choices, check_actions, check_choices, check_propensities, check_rewards
from ._folder import journaled
from ._memory import ActionKeys, ContextMemory, Pending
from ._models import Means, check_definite, checked
from ._policies import RIDGE, SCALE
from ._rules import draw, greedy, rows_of, thompson, uniform_numbers

_ALL = np.empty(0, np.int64)  # empty offsets: all known actions are allowed
_NOTHING = kernels.ProposedActions(_ALL, _ALL, np.empty((0, 0), np.int64))
_ROWS_AT_ONCE = 2048
_CANDIDATES_AT_ONCE = 1 << 20
_FEW = 4  # with at most ``_FEW * n_candidates`` known actions, all actions are candidates
_FEW_OFFERED = 2048  # if the caller passes at most this many actions, all of them are candidates
_LARGEST_CELL = 1e9  # limit of saved values; learned values are smaller because rewards and contexts are bounded
_KNOWN = 0.95  # a context is not stored if a stored context of the same action is at least this similar
_N_CELLS = 4  # numbers in a cell of the table of the linear models
_PARTS = ("_width", "_sparse", "_turn", "_state", "_keys", "_by_context", "_pending", "_feedback")  # saved as they are


@dataclass(eq=False, repr=False, kw_only=True)
class CMTBandit(Policy):
    """Contextual bandit for any number of actions.

    With at most ``4 * n_candidates`` actions, every action is a candidate in each decision. With more actions, the
    candidates are the actions whose keys best match the context, actions that were rewarded in similar contexts, and a
    few actions that are tried in turn.

    If keys have the features of contexts, the feedback model estimates the reward of each candidate, as for
    :class:`~cmt_numba.MemoryStore`. It combines the similarity of context and key with what was learned from rewards,
    and is used unless the most similar key earns more. An action without a key gets the first context with a reward of
    at least 0.5 as its key.

    Otherwise, a regression estimates the reward from

    - linear models of the context for each action,
    - a bilinear map from contexts to keys,
    - the mean reward of the action and the number of its rewards.

    Contexts are scaled to unit length. :meth:`act` remembers each decision under an id until :meth:`reward`.

    The bandit chooses the candidate with the largest upper confidence bound, or uses Thompson sampling. With
    probability ``epsilon`` it chooses uniformly among all allowed actions instead. Candidates depend only on earlier
    calls, so propensities are exact.

    The regression stores contexts with a reward of at least 0.5 in trees, which find similar contexts later.

    Parameters
    ----------
    n_actions : int, optional
        Number of initial actions, 0 to n_actions - 1, without keys. By default there are no initial actions.
    n_candidates : int, default 64
        Number of candidates in each decision. With the regression, keys propose one half and rewarded contexts the
        other half.
    n_tried : int, default 4
        Number of additional candidates in each decision, taken in turn from all actions. Not used if every action has a
        key with the features of contexts.
    exploration : {"ucb", "thompson"}, default "ucb"
        "ucb" chooses the largest upper confidence bound. "thompson" chooses each action with the probability that it is
        the best action.
    alpha : float, default 0.1
        Weight of the uncertainty of the ridge regression.
    beta : float, default 0.12
        Weight of the uncertainty of the linear models and the map, or of the feedback model.
    epsilon : float in [0, 1], default 0.0
        Probability of a uniform choice. Logs for off-policy evaluation need a value above 0.
    regularization : float, default 0.1
        Ridge penalty of the linear models and the map, for contexts and keys of unit length.
    n_bits : int, default 20
        The linear models share a table of ``2 ** n_bits`` cells of 16 bytes.
    n_trees : int, default 4
        Number of trees over the rewarded contexts.
    n_probes : int, optional
        Number of leaves to search, over all trees together. By default, one leaf per tree.
    max_memories : int, default 100000
        Maximum number of rewarded contexts. Beyond this number, the oldest are forgotten.
    max_pending : int, default 100000
        Maximum number of decisions that wait for a reward. Beyond this number, the oldest are forgotten.
    random_state : int or numpy.random.SeedSequence, optional
        Random seed.

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

    FIELDS = Policy.FIELDS.extended(
        _width=files.OptionalField(files.NumberField(1, MOST_FEATURES)),
        _sparse=files.FlagField(),
        _turn=files.NumberField(0, 2**62),
        _state=files.StructureField(kernels.RewardState),
        _keys=files.PartField(ActionKeys),
        _by_context=files.PartField(ContextMemory),
        _pending=files.PartField(Pending),
        _feedback=files.OptionalField(LEARNED),
    )

    n_candidates: Annotated[int, Integer(1, 100_000)] = 64
    n_tried: Annotated[int, Integer(0, 100_000)] = 4
    exploration: Annotated[str, OneOf(("ucb", "thompson"))] = "ucb"
    alpha: Annotated[float, SCALE] = 0.1
    beta: Annotated[float, SCALE] = 0.12
    epsilon: Annotated[float, Real(0.0, 1.0)] = 0.0
    regularization: Annotated[float, RIDGE] = 0.1
    n_bits: Annotated[int, Integer(4, 30)] = 20
    n_trees: Annotated[int, OPTIONS["n_trees"]] = 4
    n_probes: Annotated[int | None, Optional(Integer(1))] = None
    max_memories: Annotated[int, Integer(1)] = 100_000
    max_pending: Annotated[int, Integer(1)] = 100_000

    def __post_init__(self) -> None:
        super().__post_init__()
        options = self._options
        self._means = Means()
        self._means.reserve(self._ids.size)
        self._model = self._means
        self._state = kernels.RewardState(
            np.zeros((1 << options["n_bits"], _N_CELLS), np.float32),
            np.array([float(options["regularization"])]),
            np.array([kernels.FIRST_SCALE]),
            np.zeros((2, 0, 0), np.float32),
            np.eye(kernels.N_PREDICTIONS) * kernels.STACK_RIDGE,
            np.zeros(kernels.N_PREDICTIONS),
        )
        seed = self._generator.integers(0, 2**63, 2).tolist()[1]
        self._keys = ActionKeys()
        self._feedback: LearnedSearch | None = None
        max_memories = options["max_memories"]
        tree = ContextualMemoryTree(
            options["n_trees"], max_memories=max_memories, eviction="oldest", n_threads=1, random_state=seed
        )
        self._by_context = ContextMemory(tree, max_memories)
        self._pending = Pending(options["max_pending"])
        self._width: int | None = None
        self._sparse = False
        self._turn = 0  # position of the next action to try
        self._rooms: list[np.ndarray] = []  # scratch arrays for single rows that no thread is using

    # Actions

    @property
    def n_features(self) -> int | None:
        """Number of context features, or None before the first context."""
        return self._width

    @property
    def n_pending(self) -> int:
        """Number of decisions that wait for a reward."""
        return len(self._pending)

    @journaled
    def add_actions(self, actions: Any, keys: Any = None) -> Self:
        """Add distinct new actions, with or without a key for each.

        If keys and contexts have the same features, an action is proposed in contexts that are similar to its key, and
        rewards that were learned before the first key are not used any more. Otherwise a map that is learned from
        rewards relates contexts to keys.
        """
        new = self._new(actions)
        if keys is not None:
            rows = self._rows_of_keys(keys)
            check_entries("keys", rows.n_rows, new.size, "actions")
            self._keys.store(rows, new)
        self._enter(new, None)
        return self

    def _forget(self, gone: np.ndarray, slots: np.ndarray) -> None:
        super()._forget(gone, slots)
        self._keys.forget(gone)
        if self._feedback is not None:
            self._feedback.model.forget(gone)
        self._by_context.forget(gone)
        self._pending.forget(gone)

    @reads
    def learned(self) -> LearnedSummary | None:
        """Return the weights of the parts of estimates and the gain over the most similar key; None if not learned."""
        return None if self._feedback is None else self._feedback.model.learned()

    # Choosing

    def _act(self, contexts: Any, actions: Any) -> Chosen:
        rows = self._rows(contexts)
        choices = self._checked_choices(actions, rows.n_rows)
        uniforms, blocks = uniform_numbers(self._generator, 3, rows.n_rows), self._blocks(rows.n_rows, choices)
        if len(blocks) == 1:
            chosen, propensities = self._drawn(rows, choices, uniforms)
        else:
            parts = [
                self._drawn(rows.between(a, b), None if choices is None else choices.part(a, b), uniforms[:, a:b])
                for a, b in blocks
            ]
            chosen, propensities = (np.concatenate(column) for column in zip(*parts, strict=True))
        self._see(rows)
        self._turn += rows.n_rows * self._options["n_tried"]
        return Chosen(chosen, propensities, self._pending.enter(rows, chosen))

    def _drawn(self, rows: Rows, choices: Choices | None, uniforms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Draw an action for each row. Return the actions and their probabilities.

        ``uniforms`` has shape (3, n_rows). Its rows draw the candidate, decide whether the choice is uniform, and draw
        the uniform choice.
        """
        candidates = self._candidates(rows, choices)
        probabilities = self._rule(candidates, candidates.offsets)
        drawn = draw(probabilities, candidates.offsets, uniforms[0])
        actions, propensities = candidates.actions[drawn], probabilities[drawn]
        epsilon = self._options["epsilon"]
        if epsilon > 0.0:
            propensities = self._mixed(propensities, self._ids.size if choices is None else choices.sizes)
            for i in np.flatnonzero(uniforms[1] < epsilon):
                own = self._ordered if choices is None else choices.actions[slice(*choices.offsets[i : i + 2])]
                actions[i] = own[int(uniforms[2, i] * own.size)]
                span = slice(*candidates.offsets[i : i + 2])
                same = probabilities[span][candidates.actions[span] == actions[i]]
                propensities[i] = self._mixed(same.sum(), own.size)
        return actions, propensities

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

    def _rows(self, X: Any) -> Rows:
        """Convert contexts to rows that are dense or sparse like earlier contexts, or like keys of the same width."""
        if self._width is not None:
            return check_rows(X, sparse=self._sparse, n_features=self._width)
        rows, keys = check_rows(X), self._keys.rows
        if len(self._keys) > 0 and rows.n_features == keys.n_features and rows.sparse != keys.sparse:
            return check_rows(X, sparse=keys.sparse)
        return rows

    def _rows_of_keys(self, X: Any) -> Rows:
        """Convert keys to rows that are dense or sparse like earlier keys, or like contexts of the same width."""
        if len(self._keys) > 0:
            return check_rows(X, sparse=self._keys.rows.sparse, n_features=self._keys.rows.n_features)
        rows = check_rows(X)
        if rows.n_features == self._width and rows.sparse != self._sparse:
            return check_rows(X, sparse=self._sparse)
        return rows

    def _see(self, rows: Rows) -> None:
        """Record the width and sparsity of contexts, and allocate the models that depend on them."""
        if self._width is None:
            self._width, self._sparse = rows.n_features, rows.sparse
        self._state, self._feedback = self._fitted(rows)

    def _fitted(self, rows: Rows) -> tuple[kernels.RewardState, LearnedSearch | None]:
        """Return the regression and the feedback model (None if unused), allocated for the first contexts."""
        state, feedback = self._state, self._feedback
        if len(self._keys) == 0 or state.map.size > 0 or feedback is not None:
            return state, feedback
        if _share_features(rows, self._keys.rows):
            return state, LearnedSearch(self._keys, rows.sparse)
        shape = 2, min(rows.n_features, kernels.MAP_WIDTH), min(self._keys.n_features, kernels.MAP_WIDTH)
        return state._replace(map=np.zeros(shape, np.float32)), None

    def _mixed(self, probabilities: Any, sizes: Any) -> Any:
        """Mix probabilities with the uniform distribution, which has weight ``epsilon``."""
        epsilon = self._options["epsilon"]
        return (1.0 - epsilon) * probabilities + epsilon / sizes if epsilon > 0.0 else probabilities

    def _checked_choices(self, actions: Any, n_rows: int) -> Choices | None:
        if actions is not None:
            return check_choices(actions, n_rows)
        if self._ids.size == 0:
            raise ValueError("no actions are known: call add_actions, or pass actions")
        return None

    def _blocks(self, n_rows: int, choices: Choices | None) -> list[tuple[int, int]]:
        """Return spans ``(first, stop)`` of rows to process together."""
        step = max(1, min(_ROWS_AT_ONCE, _CANDIDATES_AT_ONCE // self._max_candidates(choices)))
        return [(first, min(first + step, n_rows)) for first in range(0, n_rows, step)]

    def _few(self, choices: Choices | None) -> int:
        """Return the largest number of allowed actions for which all of them are candidates."""
        few = _FEW * int(self._options["n_candidates"])
        return few if choices is None else max(few, _FEW_OFFERED)

    def _max_candidates(self, choices: Choices | None) -> int:
        few, widest = self._few(choices), self._widest(choices)
        return widest if widest <= few else max(few, int(self._options["n_tried"]) + 3 * self._n_proposed)

    def _widest(self, choices: Choices | None) -> int:
        return self._ids.size if choices is None else int(choices.sizes.max())

    @property
    def _n_proposed(self) -> int:
        """Number of candidates from each of the two searches, by keys and by rewarded contexts."""
        return -(-int(self._options["n_candidates"]) // 2)

    def _candidates(self, rows: Rows, choices: Choices | None) -> kernels.ActionCandidates:
        """Return candidates and their estimated rewards for each row. By default, all known actions are allowed."""
        state, feedback = self._fitted(rows)
        if feedback is not None:
            return self._compared(feedback, rows, choices)
        max_found = self._max_candidates(choices)
        found = kernels.ActionCandidates(
            np.empty(rows.n_rows + 1, np.int64),
            np.empty(rows.n_rows * max_found, np.int64),
            *np.empty((3, rows.n_rows * max_found)),
        )
        options = self._options
        offered, room = self._offered(choices), self._take_room(rows)
        proposed = self._proposed(state, rows, choices, room)
        model = kernels.RewardModel(state, self._keys.table, self._known())
        sources = kernels.CandidateSources(offered, *proposed[:2], max_found)
        n = kernels.find_candidates(model, rows, float(options["alpha"]), float(options["beta"]), sources, found)
        self._give_room(room)
        return kernels.ActionCandidates(found.offsets, *(column[:n] for column in found[1:]))

    def _compared(self, feedback: LearnedSearch, rows: Rows, choices: Choices | None) -> kernels.ActionCandidates:
        """Return the candidates of each row with the rewards that the feedback model estimates."""
        X = as_matrix(rows)
        actions = self._listed(feedback, X, choices)
        actions.sort(axis=1)
        actions[:, 1:][actions[:, 1:] == actions[:, :-1]] = NONE
        there = actions != NONE
        means = feedback.expected_rewards(self._keys, X, actions)[there]
        counts, chances = feedback.model.counts(actions[there]), np.clip(means, 0.0, 1.0)
        deviations = float(self._options["beta"]) * np.sqrt(chances * (1.0 - chances) / (1.0 + counts))
        offsets = np.append(0, there.sum(axis=1).cumsum())
        return kernels.ActionCandidates(offsets, actions[there], means, deviations, means + deviations)

    def _listed(self, feedback: LearnedSearch, X: Any, choices: Choices | None) -> np.ndarray:
        """Return the candidates of each row: int64, padded with NONE. They may repeat."""
        n, few = X.shape[0], self._few(choices)
        found = np.empty((n, 0), np.int64)
        if self._widest(choices) > few:
            found = feedback.candidates(self._keys, X, int(self._options["n_candidates"]))
        if choices is None:
            if found.size == 0:
                return np.tile(self._ordered, (n, 1))
            return np.concatenate([found, np.tile(self._in_turn(self._ordered), (n, 1))], axis=1)
        listed = []
        for i in range(n):
            own = choices.actions[slice(*choices.offsets[i : i + 2])]
            if own.size > few:
                closest = self._keys.search(X[[i]], found.shape[1], among=own)[0][0]
                own = np.concatenate([found[i, np.isin(found[i], own)], closest, self._in_turn(own)])
            listed.append(own)
        padded = np.full((n, max(own.size for own in listed)), NONE, np.int64)
        for row, own in zip(padded, listed, strict=True):
            row[: own.size] = own
        return padded

    def _in_turn(self, actions: np.ndarray) -> np.ndarray:
        """Return the actions that are tried in turn. There are none if every action has a key."""
        n = 0 if len(self._keys) == self._ids.size else self._options["n_tried"]
        return actions[(self._turn + np.arange(n)) % actions.size]

    def _take_room(self, rows: Rows) -> np.ndarray:
        """Return reusable scratch memory for a single row, because clearing new memory takes longer than the search."""
        if rows.n_rows > 1 or self._width is None:
            return NO_ROOM
        try:
            return self._rooms.pop()
        except IndexError:
            return room_for_probe(rows)

    def _give_room(self, room: np.ndarray) -> None:
        if room.size > 0:
            self._rooms.append(room)

    def _proposed(
        self, state: kernels.RewardState, rows: Rows, choices: Choices | None, room: np.ndarray
    ) -> tuple[kernels.ProposedActions, kernels.ProposedActions, np.ndarray | None]:
        """Return the proposals of keys, the proposals of rewarded contexts, and the scores of these contexts."""
        if self._widest(choices) <= self._few(choices):
            return _NOTHING, _NOTHING, None
        k = self._n_proposed
        by_context, scores = self._by_context.propose(rows, k, self._options["n_probes"], room)
        return self._keys.propose(state, rows, k), by_context, scores

    def _offered(self, choices: Choices | None) -> kernels.OfferedActions:
        """Return the actions that are candidates without a search."""
        n_tried = int(self._options["n_tried"])
        if choices is None:
            return kernels.OfferedActions(self._few(None), self._turn, n_tried, _ALL, _ALL, _ALL)
        offsets = choices.offsets
        ascending = np.sort(codes_of(rows_of(offsets), choices.actions)) & 0xFFFFFFFF
        return kernels.OfferedActions(self._few(choices), self._turn, n_tried, offsets, choices.actions, ascending)

    def _known(self) -> kernels.KnownActions:
        return kernels.KnownActions(self._ordered, self._order, self._means.counts, self._means.sums)

    def _rule(self, estimates: kernels.ActionCandidates, offsets: np.ndarray) -> np.ndarray:
        """Return the probability of each candidate before it is mixed with the uniform distribution."""
        if self._options["exploration"] == "ucb":
            return greedy(estimates.bounds, offsets)
        return thompson(estimates.means, estimates.deviations, offsets)

    # Learning

    @keeps_interpreter
    @journaled
    def reward(self, ids: Any, rewards: Any) -> Self:
        """Learn rewards in [0, 1] of pending decisions, in any order, by the distinct ids that :meth:`act` returned."""
        given = np.atleast_1d(ids)
        if given.dtype.kind not in "iu" or given.ndim != 1 or given.size == 0:
            raise TypeError("ids must be one or more integers returned by act")
        decisions = given.tolist()
        if len(set(decisions)) < len(decisions):
            raise ValueError("ids must be distinct")
        values = _unit_rewards(np.atleast_1d(rewards), len(decisions))
        unknown = self._pending.unknown(decisions)
        if unknown:
            raise KeyError(f"ids must refer to decisions that await a reward, but {unknown[0]} does not")
        rows, actions = self._pending.take(decisions)
        self._see(rows)
        self._learn(rows, actions, values)
        self._pending.drop(decisions)
        return self

    @keeps_interpreter
    @journaled
    def learn(self, contexts: Any, actions: Any, rewards: Any, propensities: Any = None) -> Self:
        """Learn the rewards, in [0, 1], of actions chosen by another policy, for example from a log.

        For decisions of this bandit, call :meth:`reward` instead. Unknown actions are added, without keys. Propensities
        are validated but have no effect.
        """
        rows = self._rows(contexts)
        chosen = check_actions(np.atleast_1d(actions), rows.n_rows)
        values = _unit_rewards(np.atleast_1d(rewards), rows.n_rows)
        if propensities is not None:
            check_propensities(np.atleast_1d(propensities), rows.n_rows)
        self._see(rows)
        self._learn(rows, chosen, values)
        return self

    def _learn(self, rows: Rows, actions: np.ndarray, rewards: np.ndarray) -> None:
        new = distinct(actions[self._slots_of(actions) == NONE])
        if new.size > 0:
            self._enter(new, None)
        if self._feedback is not None:
            self._learn_feedback(self._feedback, rows, actions, rewards)
        else:
            self._regress(rows, actions, rewards)
        self._n_rewards += rows.n_rows

    def _learn_feedback(self, feedback: LearnedSearch, rows: Rows, actions: np.ndarray, rewards: np.ndarray) -> None:
        if len(self._keys) < self._ids.size:
            kept = np.flatnonzero((rewards >= WORTH_KEEPING) & ~np.isin(actions, self._keys.actions))
            new, first = np.unique(actions[kept], return_index=True)
            if new.size > 0:
                self._keys.store(rows.take(kept[first]), new)
        X, shown, given = as_matrix(rows), actions[:, None], rewards[:, None]
        feedback.feedback(self._keys, X, shown, given, may_be_chosen=False)  # exploration chooses other actions

    def _regress(self, rows: Rows, actions: np.ndarray, rewards: np.ndarray) -> None:
        max_found, room = self._max_candidates(None), self._take_room(rows)
        known, best = self._known(), rewards >= WORTH_KEEPING
        for first in range(0, rows.n_rows, _ROWS_AT_ONCE):
            span = slice(first, min(first + _ROWS_AT_ONCE, rows.n_rows))
            some = rows if rows.n_rows <= _ROWS_AT_ONCE else rows.between(span.start, span.stop)
            by_key, by_context, scores = self._proposed(self._state, some, None, room)
            sources = kernels.CandidateSources(self._offered(None), by_key, by_context, max_found)
            model = kernels.RewardModel(self._state, self._keys.table, known)
            kernels.learn_chosen(model, some, actions[span], rewards[span], sources)
            if scores is not None and scores.size > 0:
                same = self._by_context.actions_of(by_context.hits) == actions[span, None]
                best[span] &= ~(same & (scores >= _KNOWN)).any(axis=1)
        self._give_room(room)
        if best.all():
            self._by_context.store(rows, actions)
        elif best.any():
            kept = np.flatnonzero(best)
            self._by_context.store(rows.take(kept), actions[kept])

    # Files, pickles and folders

    def _fingerprint(self) -> dict[str, int]:
        weights = b"" if self._feedback is None else self._feedback.model.weights.tobytes()
        learned = zlib.crc32(self._state.matrix.tobytes() + self._state.target.tobytes() + weights)
        waiting = {"next_id": self._pending.next_id, "n_pending": len(self._pending)}
        return super()._fingerprint() | waiting | {"turn": self._turn, "learned": learned}

    def _correct(self, decision: Chosen, actions: np.ndarray) -> None:
        assert decision.ids is not None
        self._pending.correct(decision.ids, actions)

    def _packed(self) -> Any:
        packed = super()._packed()
        packed.n_features = None  # the means do not depend on contexts
        return packed

    @classmethod
    def _of_fields(cls, values: dict[str, Any]) -> Self:
        n_bits, state = values["_options"].get("n_bits"), values["_state"]
        cls._constraints["n_bits"].check("n_bits", n_bits)
        arrays, f4 = state._asdict(), np.dtype(np.float32)
        # before a table of this size is allocated
        checked(arrays, "cells", (1 << n_bits, _N_CELLS), f4, _LARGEST_CELL)
        bandit = super()._of_fields(values)
        options, first, form = bandit._options, bandit._state._asdict(), (values["_width"], values["_sparse"])
        vars(bandit).update({name: values[name] for name in _PARTS})
        keys, by_context, pending, feedback = bandit._keys, bandit._by_context, bandit._pending, bandit._feedback
        limits = by_context.max_waiting, pending.max_decisions
        require(limits == (options["max_memories"], options["max_pending"]), "limits must be those of the options")
        actions = np.concatenate([keys.actions, by_context.actions])
        require(np.all(np.isin(actions, bandit._ids)), "the actions of keys and of rewarded contexts must be known")
        for name, found in (("rewarded", by_context.form), ("pending", pending.form)):
            require(found in (None, form), f"{name} contexts must have the same width and format as other contexts")
        same = feedback is None or feedback.form == form == (keys.n_features, keys.rows.sparse)
        require(same, "keys and feedback must have the width and format of contexts")
        shape = 2, *(min(width, kernels.MAP_WIDTH) for width in (form[0] or 0, keys.n_features))
        require(state.map.shape in ((2, 0, 0), shape), "the map must match the widths of contexts and keys")
        for name, own in (first | {"map": state.map.astype(f4, copy=False)}).items():
            checked(arrays, name, own.shape, own.dtype, _LARGEST_CELL)
        require(np.array_equal(state.ridge, first["ridge"]), "ridge must be that of the options")
        require(np.all(state.cells[:, 1::2] >= 0) and np.all(state.map[1:] >= 0), "squares must not be negative")
        require(np.all(state.scale >= 1.0), "scale must be at least 1")
        check_definite("matrix", state.matrix[None] - 0.5 * kernels.STACK_RIDGE * np.eye(kernels.N_PREDICTIONS))
        return bandit


def _share_features(rows: Rows, keys: Rows) -> bool:
    """Return whether keys can be compared with contexts: same width, and for sparse rows a common feature."""
    if (rows.n_features, rows.sparse) != (keys.n_features, keys.sparse):
        return False
    return not rows.sparse or bool(np.isin(rows.indices, keys.indices).any())


def codes_of(rows: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """Return integers that sort row-action pairs by row, then by action."""
    return (rows.astype(np.int64) << 32) | actions


def _unit_rewards(rewards: Any, n_rows: int) -> np.ndarray:
    values = check_rewards(rewards, n_rows)
    check_range("rewards", values, 0, 1)
    return values
