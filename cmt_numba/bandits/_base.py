"""The base class of policies."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from .. import persistence as files
from .._change import Lockable, reads
from .._jit import keeping_interpreter, keeps_interpreter
from .._kernels import NONE, require
from .._validation import Constrained, Integer, Optional, Seed, check_parameters
from ..journal import InFolder
from ..persistence import Contents, Saved
from . import _checks as checks
from ._folder import PolicyFolder, journaled
from ._kernels import ActionPairs
from ._models import Estimates, Means, RewardModels, blocks
from ._reward_kernels import find_slots
from ._rules import draw, rows_of, uniform_numbers

_MICROSECONDS_OF_A_PAIR = 1.0  # estimated time to score one action in one context


@dataclass(frozen=True, eq=False)
class Chosen:
    """Chosen actions with their propensities. ``actions, propensities = chosen`` unpacks these two arrays.

    Attributes
    ----------
    actions : ndarray of int64, shape (n,)
        The chosen actions. :class:`ArgmaxRegressor` returns names if its log has names.
    propensities : ndarray of float64, shape (n,)
        The probability of each choice.
    ids : ndarray of int64, shape (n,), or None
        Decision ids for :meth:`CMTBandit.reward`, or None for other policies.
    """

    __module__ = "cmt_numba.bandits"

    actions: np.ndarray
    propensities: np.ndarray
    ids: np.ndarray | None = None

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter((self.actions, self.propensities))


@dataclass(eq=False, repr=False)
class Policy(InFolder, Lockable, Saved, Constrained, ABC):
    """Base class of policies, which choose actions with known probabilities and learn from rewards.

    Policies are thread-safe. Two policies with the same seed and the same calls make the same choices.
    """

    FIELDS = files.FieldTable(
        _options=files.OptionsField(),
        _generator=files.GeneratorField(),
        _n_rewards=files.NumberField(0, 2**62),
        _ids=files.ArrayField(np.int64, bounds=(0, checks.MAX_ACTIONS)),
        _features=files.ArrayField(np.float64, n_axes=2, bounds=(-checks.LARGEST, checks.LARGEST)),
        n_features=files.OptionalField(files.NumberField(1, checks.MOST_FEATURES)),
        _model=files.NamedArraysField(),
    )
    _form = PolicyFolder
    _is_contextual: ClassVar[bool] = False
    _has_features: ClassVar[bool] = False  # whether actions may have features

    n_actions: Annotated[int | None, Optional(Integer(1, checks.MAX_ACTIONS))] = None
    _: KW_ONLY
    random_state: Seed = None

    def __post_init__(self) -> None:
        """Check the options, and initialize the models."""
        check_parameters(self, self._constraints)
        options = {name: getattr(self, name) for name in self._constraints}
        self._options = {name: value for name, value in options.items() if name != "random_state"}
        self._generator = checks.generator_of(options["random_state"], "choices")
        self._set_ids(np.empty(0, np.int64))
        self._n_rewards = 0
        self._features = np.empty((0, 0))  # action features by slot
        self._model: Means | RewardModels | None = None if self._is_contextual else Means()
        if options["n_actions"] is not None:
            self._enter(np.arange(options["n_actions"]), None)

    # Actions

    @property
    def actions(self) -> np.ndarray:
        """Known actions in ascending order: int64, shape (n_actions,)."""
        return self._ordered.copy()

    @property
    def n_rewards(self) -> int:
        """Number of learned rewards."""
        return self._n_rewards

    @property
    def n_features(self) -> int | None:
        """Number of context features, or None if the policy has seen no contexts or ignores them."""
        return self._model.n_features if isinstance(self._model, RewardModels) else None

    @journaled
    def add_actions(self, actions: Any, features: Any = None) -> Self:
        """Add distinct new actions. By default, ``act`` chooses among all actions that were added.

        ``features``, of shape (k, n_action_features), are for policies that use them. Either all actions have features
        or none has.
        """
        new = self._new(actions)
        self._enter(new, self._checked_features(features, new.size))
        return self

    def _checked_features(self, features: Any, n_actions: int) -> np.ndarray | None:
        width = self._features.shape[1]
        if features is None:
            if width > 0:
                raise ValueError(f"features must be given, because the other actions have {width} features each")
            return None
        may_start = self._has_features and self._ids.size == 0 and self._model is None
        if width == 0 and not may_start:
            raise ValueError("features must not be given, because the other actions have no features")
        array = checks.numbers("features", features, 2)
        if array.shape[0] != n_actions or array.shape[1] == 0 or width not in (0, array.shape[1]):
            columns = f"{width} columns" if width > 0 else "columns"
            raise ValueError(f"features must have {n_actions} rows, one per action, and {columns}, got {array.shape}")
        return array

    def _new(self, actions: Any) -> np.ndarray:
        new = checks.check_distinct_actions(actions)
        known = new[self._slots_of(new) != NONE]
        if known.size > 0:
            raise ValueError(f"actions must be new, but {known[0]} is already known")
        return new

    @journaled
    def remove_actions(self, actions: Any) -> Self:
        """Remove distinct known actions with their models and pending decisions.

        Models that all actions share do not change.
        """
        gone = checks.check_distinct_actions(actions)
        slots = self._slots_of(gone)
        if np.any(slots == NONE):
            raise KeyError(f"actions must be known, got {gone[slots == NONE][0]}: add it with add_actions")
        self._forget(gone, slots)
        return self

    def _forget(self, gone: np.ndarray, slots: np.ndarray) -> None:
        ids, features = self._ids.copy(), self._features.copy()
        for slot in np.sort(slots)[::-1]:
            last = ids.size - 1
            if self._model is not None:
                self._model.move(last, int(slot))
            ids[slot] = ids[last]
            ids = ids[:last]
            if features.size:
                features[slot] = features[last]
                features = features[:last]
        self._features = features
        self._set_ids(ids)

    def _slots_of(self, actions: np.ndarray) -> np.ndarray:
        slots = np.empty(actions.size, np.int64)
        find_slots(self._ordered, self._order, actions, slots)
        return slots

    def _enter(self, new: np.ndarray, features: np.ndarray | None) -> None:
        ids = np.concatenate([self._ids, new])
        if self._model is not None:
            self._model.reserve(ids.size)
        if features is not None:
            self._features = np.concatenate([self._features.reshape(-1, features.shape[1]), features])
        self._set_ids(ids)

    def _set_ids(self, ids: np.ndarray) -> None:
        self._order = np.argsort(ids)  # slots in ascending order of their actions
        self._ids, self._ordered = ids, ids[self._order]
        self._all = checks.all_of(self._ordered, 1)

    # Choosing

    @keeps_interpreter
    @journaled
    def act(self, contexts: Any = None, actions: Any = None) -> Chosen:
        """Choose an action in each context.

        Parameters
        ----------
        contexts : array-like or sparse matrix, shape (n, n_features)
            Contexts. A policy that ignores contexts accepts None for a single row.
        actions : array-like, optional
            Allowed actions. By default, all known actions are allowed. The argument is an integer array of shape (k,)
            for all rows, an integer array of shape (n, k) padded with -1, a boolean mask of shape (n, k) over actions 0
            to k - 1, or a list of n sequences. Unknown actions are treated as actions without rewards.
        """
        return self._act(contexts, actions)

    def _act(self, contexts: Any, actions: Any) -> Chosen:
        rows, choices, slots = self._checked_arguments(contexts, actions)
        n = len(rows)
        drawn_actions, propensities = np.empty(n, np.int64), np.empty(n)
        uniforms = uniform_numbers(self._generator, n)
        with keeping_interpreter(int(choices.offsets[-1]), _MICROSECONDS_OF_A_PAIR):
            for first, stop in blocks(choices.offsets):
                offsets, pairs = choices.between(first, stop)
                own = choices.actions[pairs]
                probabilities = self._of_choices(rows[first:stop], own, slots[pairs], offsets)
                drawn = draw(probabilities, offsets, uniforms[first:stop])
                drawn_actions[first:stop] = own[drawn]
                propensities[first:stop] = probabilities[drawn]
        return Chosen(drawn_actions, propensities)

    @reads
    def probabilities(self, contexts: Any = None, actions: Any = None) -> np.ndarray:
        """Return the probability with which :meth:`act` chooses each action: float64, shape (n, k).

        Columns correspond to ``actions``, by default the known actions in ascending order. Each row sums to 1. Actions
        that are not allowed have probability 0.
        """
        return self._probabilities(contexts, actions)

    def _probabilities(self, contexts: Any, actions: Any) -> np.ndarray:
        rows, choices, slots = self._checked_arguments(contexts, actions)
        answer = np.zeros(choices.shape)
        for first, stop in blocks(choices.offsets):
            offsets, pairs = choices.between(first, stop)
            probabilities = self._of_choices(rows[first:stop], choices.actions[pairs], slots[pairs], offsets)
            answer.reshape(-1)[choices.places[pairs]] = probabilities
        return answer

    def _checked_arguments(self, contexts: Any, actions: Any) -> tuple[np.ndarray, checks.Choices, np.ndarray]:
        """Return validated contexts, allowed actions, and the slots of these actions."""
        rows = self._checked(contexts)
        n = rows.shape[0]
        if actions is None:
            if self._ids.size == 0:
                raise ValueError("no actions are known: pass actions, or n_actions to the constructor")
            if n == 1:
                return rows, self._all, self._order
            return rows, checks.all_of(self._ordered, n), np.tile(self._order, n)
        choices = checks.check_choices(actions, n)
        return rows, choices, self._slots_of(choices.actions)

    def _checked(self, contexts: Any, n_rows: int = 1) -> np.ndarray:
        """Return validated contexts. A policy that ignores contexts gets rows without features."""
        if self._is_contextual:
            return checks.check_contexts(contexts, self.n_features)
        if contexts is not None:
            n_rows = next(iter(np.shape(contexts)), 0)
            if n_rows == 0:
                raise ValueError("contexts must have at least one row")
        return np.empty((n_rows, 0))

    def _of_choices(self, rows: np.ndarray, actions: np.ndarray, slots: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """Return the probability of each context-action pair."""
        return self._rule(self._estimates(rows, rows_of(offsets), actions, slots), offsets)

    def _estimates(self, rows: np.ndarray, of_pairs: np.ndarray, actions: np.ndarray, slots: np.ndarray) -> Estimates:
        shared = self._shared(rows, of_pairs, actions, slots)
        if self._model is None:
            slots = np.full_like(slots, NONE)
            return self._new_model(rows.shape[1]).estimate(ActionPairs(rows, of_pairs, slots, shared))
        return self._model.estimate(ActionPairs(rows, of_pairs, slots, shared))

    @abstractmethod
    def _rule(self, estimates: Any, offsets: np.ndarray) -> np.ndarray:
        """Convert estimated rewards to the choice probability of each context-action pair."""

    def _new_model(self, n_features: int) -> RewardModels:
        """Return an untrained model for contexts with ``n_features`` features."""
        return RewardModels(n_features, self._n_shared(n_features), float(self._options["regularization"]))

    def _n_shared(self, n_features: int) -> int:
        return 0

    def _shared(self, rows: np.ndarray, of_pairs: np.ndarray, actions: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """Return the shared features of each pair: float64, shape (pairs, n_shared)."""
        return np.empty((actions.size, 0))

    # Learning

    @keeps_interpreter
    @journaled
    def learn(self, contexts: Any, actions: Any, rewards: Any, propensities: Any = None) -> Self:
        """Learn the rewards of chosen actions, in row order.

        Parameters
        ----------
        contexts : array-like or sparse matrix, shape (n, n_features)
            Contexts. A policy that ignores contexts accepts None.
        actions : array-like of int, shape (n,)
            The action chosen in each context. Unknown actions are added.
        rewards : array-like, shape (n,)
            The reward of each chosen action.
        propensities : array-like, shape (n,), optional
            The probability of each choice. Propensities are validated but have no effect, because policies estimate the
            reward of each action separately.
        """
        rows = self._checked(contexts, np.size(actions))
        actions = checks.check_actions(np.atleast_1d(actions), rows.shape[0])
        rewards = checks.check_rewards(np.atleast_1d(rewards), rows.shape[0])
        if propensities is not None:
            checks.check_propensities(np.atleast_1d(propensities), rows.shape[0])
        slots, of_pairs = self._slots_of(actions), np.arange(rows.shape[0])
        self._check_featured(actions, slots)
        new = distinct(actions[slots == NONE])
        if self._model is None:
            model = self._new_model(rows.shape[1])
            model.reserve(self._ids.size + new.size)
            self._model = model
        if new.size > 0:
            self._enter(new, None)
            slots = self._slots_of(actions)
        for first in range(0, rows.shape[0], 4096):
            part = slice(first, first + 4096)
            shared = self._shared(rows, of_pairs[part], actions[part], slots[part])
            self._model.learn(ActionPairs(rows, of_pairs[part], slots[part], shared), rewards[part])
            self._n_rewards += rewards[part].size
        return self

    def _check_featured(self, actions: np.ndarray, slots: np.ndarray) -> None:
        """Raise ValueError for unknown actions if all actions must have features."""
        if self._features.shape[1] > 0 and np.any(slots == NONE):
            unknown = actions[slots == NONE][0]
            raise ValueError(f"actions must have features: add {unknown} and their features with add_actions")

    # Files, pickles and folders

    def _fingerprint(self) -> dict[str, int]:
        """Return numbers that identify the state in a folder."""
        drawn: int = self._generator.bit_generator.state["state"]["state"]
        return {"n_actions": self._ids.size, "n_rewards": self._n_rewards, "generator": drawn % 2**53}

    def _correct(self, decision: Chosen, actions: np.ndarray) -> None:
        """Change the actions of a repeated decision to those that were chosen at first."""

    save = reads(Saved.save)

    def _packed(self) -> Any:
        model = {} if self._model is None else self._model.arrays(self._ids.size)
        return SimpleNamespace(**vars(self) | {"n_features": self.n_features, "_model": model})

    @classmethod
    def _of_fields(cls, values: dict[str, Any]) -> Self:
        options, ids, features, n_features = (values[name] for name in ("_options", "_ids", "_features", "n_features"))
        require(options.get("action_features") is None, "action_features must be stored as an array")
        policy, n_actions = cls(**options | {"n_actions": None}), options.get("n_actions")
        cls._constraints["n_actions"].check("n_actions", n_actions)
        policy._options["n_actions"] = policy.n_actions = n_actions
        policy._generator, policy._n_rewards = values["_generator"], values["_n_rewards"]
        require(np.unique(ids).size == ids.size, "actions must be distinct")
        policy._set_ids(ids)
        n, width = features.shape
        fits = (n, width) == (0, 0) or (cls._has_features and n == ids.size and width > 0)
        require(fits, "features must have a row for each action")
        policy._features = features
        require(n_features is None or policy._model is None, "n_features must be None if contexts are ignored")
        if n_features is not None:
            n_shared, regularization = policy._n_shared(n_features), float(policy._options["regularization"])
            policy._model = RewardModels.read(values["_model"], ids.size, n_features, n_shared, regularization)
        elif isinstance(policy._model, Means):
            policy._model.restore(values["_model"], ids.size)
        return policy

    @reads
    def __getstate__(self) -> dict[str, Any]:
        return {"contents": copy.deepcopy(self._contents())._asdict()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(vars(self._made_of(Contents(**state["contents"]))))


def distinct(actions: np.ndarray) -> np.ndarray:
    """Return the distinct actions in ascending order, with a fast path for the common empty array."""
    return np.unique(actions) if actions.size > 0 else actions
