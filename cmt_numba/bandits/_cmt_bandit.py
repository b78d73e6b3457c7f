"""A bandit over any number of actions."""

from __future__ import annotations

from typing import Any, ClassVar, Self, cast

import numpy as np

from .._forest import Rows
from .._validation import Constraint, Integer, OneOf, Optional, Real
from ..tree import OPTIONS
from ._base import OF_ALL, Chosen, changes
from ._candidates import CandidateModel, codes_of
from ._checks import Choices, check_actions, check_choices, check_propensities, check_rewards
from ._policies import RIDGE, SCALE
from ._rules import draw, rows_of


class Decisions(Chosen):
    """What a bandit chose: actions and propensities, with ``ids`` under which rewards may come later.

    Attributes
    ----------
    actions : ndarray of int64, shape (n,)
        The actions.
    propensities : ndarray of float64, shape (n,)
        The probability with which each was chosen.
    ids : ndarray of int64, shape (n,)
        For :meth:`CMTBandit.reward`.
    """

    ids: np.ndarray

    def __new__(cls, actions: np.ndarray, propensities: np.ndarray, ids: np.ndarray) -> Self:
        """Return decisions, which unpack into actions and propensities."""
        decisions = super().__new__(cls, actions, propensities)
        decisions.ids = ids
        return decisions

    def __reduce__(self) -> Any:
        return type(self), (self.actions, self.propensities, self.ids)


class CMTBandit(CandidateModel):
    """Choose among any number of actions, in time logarithmic in their number.

    Two trees propose candidates: one over the keys of actions, if they have keys, and one over contexts in which
    actions were rewarded. Some actions that are tried in turn join them. If there are no more actions than
    ``n_candidates``, all are candidates. A model then estimates the reward of each candidate from

    - a linear model of the context for each action, all of them in one table (``_hashed_weights.py``),
    - the mean reward of the action, and how often it was tried,
    - the scores of the two trees.

    It is a ridge regression on these shared features, as in LinUCB; the candidate with the largest upper confidence
    bound is chosen, or one by Thompson sampling. With probability ``epsilon`` the choice is uniform over all actions
    allowed. The candidates depend on the past alone, so the propensities are exact.

    A reward of 0.5 or more stores the context as a further key of the action and trains the routers to lead there.

    Parameters
    ----------
    n_actions : int, optional
        The actions 0 .. n_actions - 1 are known at first, without keys; by default none are.
    n_candidates : int, default 64
        Candidates for each decision, half of them from each tree.
    n_tried : int, default 4
        Further candidates for each decision, all actions in turn.
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
        Rewarded contexts that are kept; of more the oldest are forgotten.
    max_pending : int, default 100000
        Decisions that may wait for a reward; of more the oldest are forgotten.
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
        self._begin()

    # Actions

    @property
    def n_features(self) -> int | None:
        """Features of contexts and keys, or None if there have been none."""
        return self._width

    @property
    def n_pending(self) -> int:
        """Decisions without a reward."""
        return len(self._pending)

    @changes
    def add_actions(self, actions: Any, keys: Any = None) -> Self:
        """Make actions known.

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

    def act(self, contexts: Any = None, actions: Any = None) -> Decisions:
        """Choose an action in each context, and remember the decision until its reward comes.

        Parameters
        ----------
        contexts : array-like or sparse matrix, shape (n, n_features)
            Contexts, which are scaled to unit length.
        actions : array-like, optional
            The actions allowed, as of :meth:`Policy.act`; by default all that are known.

        Returns
        -------
        Decisions
            ``actions`` and ``propensities``, as of :meth:`Policy.act`, and ``ids`` for :meth:`reward`.

        Raises
        ------
        TypeError, ValueError
            If an argument cannot be used; nothing has changed then.
        """
        return cast(Decisions, super().act(contexts, actions))

    def _act(self, contexts: Any, actions: Any) -> Decisions:
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
        return Decisions(chosen, propensities, self._pending.enter(rows, chosen, scores))

    def _drawn(
        self, rows: Rows, choices: Choices | None, uniforms: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return an action for each row, its probability, and the scores that memories gave to it.

        The three numbers in [0, 1) of each row draw a candidate, whether the choice is uniform, and the action then.
        """
        candidates = self._candidates(rows, choices)
        probabilities = self._of_candidates(candidates)
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
            probabilities[order[np.searchsorted(codes, known, sorter=order)]] = self._of_candidates(candidates)
            answer.reshape(-1)[part.places] = self._mixed(probabilities, part.sizes[rows_of(part.offsets)])
        return answer

    # Learning

    @changes
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
            If a decision has been rewarded already, was forgotten or never made; nothing has changed then.
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

    @changes
    def learn(self, contexts: Any, actions: Any, rewards: Any, propensities: Any = None) -> Self:
        """Learn from the rewards of actions that were chosen elsewhere, as in a log.

        Do not pass decisions of :meth:`act` whose rewards go to :meth:`reward`.

        Parameters
        ----------
        contexts : array-like or sparse matrix, shape (n, n_features)
            Contexts.
        actions : array-like of int, shape (n,)
            The action chosen in each. Those that are not known become known, without keys.
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


def _unit_rewards(rewards: Any, n_rows: int) -> np.ndarray:
    values = check_rewards(rewards, n_rows)
    if not np.all((values >= 0.0) & (values <= 1.0)):
        raise ValueError("rewards must lie in [0, 1]")
    return values
