"""Policies in folders, which journal every decision and every reward.

``OPERATIONS`` is part of the file format. Never change the arguments or the meaning of an existing name and version.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from functools import cache, partial, wraps
from typing import Any, Self, TypeVar, cast

import numpy as np
import scipy.sparse

from .. import journal as journals
from .._change import changes_in_one_step
from ..persistence import Contents
from ._checks import padded

Method = TypeVar("Method", bound=Callable[..., Any])

_LEARN = ("contexts", "actions", "rewards")
_ARGUMENTS: dict[tuple[str, int], tuple[str, ...]] = {
    ("act", 1): ("contexts", "actions"),
    ("learn", 1): _LEARN,
    ("reward", 1): ("ids", "rewards"),
    ("add_actions", 1): ("actions", "features"),
    ("remove_actions", 1): ("actions",),
}
OPERATIONS = {
    (name, version): journals.Operation(name, dict(zip(arguments, arguments, strict=True)))
    for (name, version), arguments in _ARGUMENTS.items()
}
_CHOSEN = "chosen"  # the chosen actions in the entry of a decision, which another processor might not choose


def journaled(method: Method) -> Method:
    """Run a method of a policy as a change in one step, and journal it if the policy is in a folder."""
    in_one_step = changes_in_one_step(method)

    @wraps(method)
    def changing(self: Any, *args: Any, **kwargs: Any) -> Any:
        folder = vars(self).get("_folder")
        if folder is None:
            return in_one_step(self, *args, **kwargs)
        return folder.change(in_one_step, args, kwargs)

    return cast(Method, changing)


class PolicyFolder(journals.DurableForm):
    """Adapter between a policy and its journal.

    Parameters
    ----------
    policy : Policy
        A new policy with the options passed to ``open``.
    options : dict of str to object
        These options.
    """

    def __init__(self, policy: Any, options: dict[str, Any]) -> None:
        self.policy, self._options, self.kind = policy, options, type(policy).__name__
        self.lock = policy._lock

    def open(self, path: str | os.PathLike[str], durability: journals.Durability) -> None:
        """Open or create the folder."""
        self.journal = journals.Journal(path, self, durability)
        self._options = {}
        self.policy._folder = self

    def change(self, method: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call a method of the policy, and append its entry to the journal."""
        given = _signature(method).bind(self.policy, *args, **kwargs).arguments
        given = {name: _plain(name, value) for name, value in given.items() if name != "self"}

        def make() -> Any:
            answer = method(self.policy, **given)
            names = _ARGUMENTS[method.__name__, journals.CURRENT]
            arguments = {name: given.get(name) for name in names}
            if "keys" in given:  # keys are the features of actions of a CMTBandit
                arguments["features"] = given["keys"]
            if method.__name__ == "act":
                arguments[_CHOSEN] = answer.actions
            self.journal.append(journals.Entry(method.__name__, arguments, self.fingerprint()))
            return answer

        return self.journal.change(make)

    # The interface of the journal

    def contents(self) -> Contents:
        """Return the contents for a snapshot."""
        contents: Contents = self.policy._contents()
        return contents

    def made_of(self, contents: Contents, *, values: bool) -> Any:
        """Return the policy in a snapshot."""
        return type(self.policy)._made_of(contents)

    def fingerprint(self, made: Any = None) -> dict[str, int]:
        """Return numbers that identify the state of ``made`` (default: the policy in use)."""
        found: dict[str, int] = (self.policy if made is None else made)._fingerprint()
        return found

    def has_fingerprint(self, made: Any, after: dict[str, int]) -> bool:
        """Return whether ``made`` has the fingerprint ``after``. Raise ValueError if decisions or rewards are lost."""
        found = self.fingerprint(made)
        if found["n_rewards"] != after.get("n_rewards") or found.get("next_id") != after.get("next_id"):
            raise ValueError("replaying the journal did not reproduce the decisions and rewards")
        return found == after

    def replay(self, made: Any, entry: journals.Entry, exact: bool) -> None:
        """Repeat the change that an entry records."""
        arguments = dict(entry.arguments)
        chosen = arguments.pop(_CHOSEN, None)
        operation = journals.find_operation(OPERATIONS, entry.name, entry.version)
        called = operation.called(arguments)
        if entry.name == "add_actions":
            features = called.pop("features")
            answer = made.add_actions(called["actions"], features)
        else:
            answer = operation.call(made, called)
        if entry.name == "act" and not np.array_equal(answer.actions, chosen):
            made._correct(answer, np.asarray(chosen))

    def mark(self) -> Any:
        """Return the fingerprint: methods check their arguments within a step."""
        return self.fingerprint()

    def is_changed(self, mark: Any, error: BaseException) -> bool:
        """Return whether a failed change may have changed the policy. Invalid arguments change nothing."""
        return not isinstance(error, LookupError | TypeError | ValueError) or mark != self.mark()

    def twin(self) -> Any:
        """Return a policy in memory that shares the state and the lock of the current one."""
        twin = object.__new__(type(self.policy))
        vars(twin).update(vars(self.policy) | {"_folder": None, "_own_lock": self.lock})
        return twin

    def use(self, made: Any) -> None:
        """Replace the state of the policy by the state of ``made``."""
        for name, value in self._options.items():
            kept = made._options.get(name, value)
            if name not in ("random_state", "action_features") and value != kept:
                raise ValueError(f"{name} must be {kept!r}, as for the policy in the folder, or omitted, got {value!r}")
        state = {name: value for name, value in vars(made).items() if name not in ("_folder", "_own_lock")}
        self.lock.change(partial(self.lock.step, partial(vars(self.policy).update, state)))


class InFolders(journals.InFolder):
    """A policy that can be opened in a folder, where decisions and rewards survive a crash."""

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        sync_every: int = 1,
        snapshot_bytes: int = 1 << 26,
        snapshot_seconds: float = 10.0,
        read_only: bool = False,
        refresh_every: float | None = None,
        timeout: float = 0.0,
        **options: Any,
    ) -> Self:
        """Open a policy in a folder, where its decisions and rewards survive a crash.

        Every change is on disk before its method returns: ``act``, ``reward``, ``learn``, ``add_actions`` and
        ``remove_actions``. A change that fails or is interrupted has no effect. The policy is a context manager. Copies
        of it live in memory only.

        Parameters
        ----------
        path : path-like
            The folder of a policy of this class, or an empty folder. A missing folder is created with access for its
            owner only; its parent must exist.
        sync_every : int, default 1
            Number of changes between syncs to disk. With a value above 1, a machine crash may lose the last
            ``sync_every - 1`` changes; a process crash loses none.
        snapshot_bytes, snapshot_seconds : int, float
            Size of the journal and total time of its changes above which a snapshot replaces it, as for
            :class:`~cmt_numba.DurableTree`.
        read_only : bool, default False
            Whether to open an existing policy for probabilities only and write nothing. This or another process may
            change it meanwhile; :meth:`refresh` makes the changes visible.
        refresh_every : float, optional
            With ``read_only``, the maximum age in seconds of the state that answers.
        timeout : float, default 0.0
            Time to wait for another process that has the folder open for changes, in seconds.
        **options
            Options of a new policy. For a policy in the folder, omit them or pass the same values; ``random_state`` and
            ``action_features`` are then ignored.

        Returns
        -------
        policy
            The open policy.

        Examples
        --------
        >>> import tempfile
        >>> from cmt_numba.bandits import CMTBandit
        >>> folder = tempfile.TemporaryDirectory()
        >>> with CMTBandit.open(folder.name, n_actions=3, n_bits=10, random_state=0) as bandit:
        ...     decision = bandit.act([[1.0, 0.0]])
        >>> with CMTBandit.open(folder.name) as bandit:  # for example after a crash
        ...     bandit.reward(decision.ids, [1.0]).n_rewards
        1
        >>> folder.cleanup()
        """
        when = journals.Durability(sync_every, snapshot_bytes, snapshot_seconds, read_only, refresh_every, timeout)
        policy = cls(**options)
        PolicyFolder(policy, options).open(path, when)
        return policy


@cache
def _signature(method: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(method)


def _plain(name: str, value: Any) -> Any:
    """Return an argument as it is journaled and passed to the method."""
    if value is None:
        return None
    if scipy.sparse.issparse(value):
        return scipy.sparse.csr_array(value)
    return journals.plain_arguments({name: padded(value) if name == "actions" else value})[name]
