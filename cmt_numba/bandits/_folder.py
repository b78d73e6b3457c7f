"""Policies in folders, which journal every decision and every reward.

``OPERATIONS`` is part of the file format. Never change the arguments or the meaning of an existing name and version.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import numpy as np
import scipy.sparse

from .. import journal as journals
from .._change import changes_in_one_step
from ._checks import padded

Method = TypeVar("Method", bound=Callable[..., Any])

_ARGUMENTS: dict[tuple[str, int], tuple[str, ...]] = {
    ("act", 1): ("contexts", "actions"),
    ("learn", 1): ("contexts", "actions", "rewards"),
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
    return journals.journaled(method, changes_in_one_step)


class PolicyFolder(journals.ObjectForm):
    """Adapter between a policy and its journal."""

    essential = "n_rewards", "next_id"

    def make(self, method: Callable[..., Any], given: journals.Arguments) -> Any:
        """Call a method of the policy in one step, and append its entry to the journal."""
        given = {name: _plain(name, value) for name, value in given.items() if name != "self"}
        answer = self.lock.step(partial(method, self.owner, **given))
        arguments = {name: given.get(name) for name in _ARGUMENTS[method.__name__, journals.CURRENT]}
        if "keys" in given:  # keys are the features of actions of a CMTBandit
            arguments["features"] = given["keys"]
        if method.__name__ == "act":
            arguments[_CHOSEN] = answer.actions
        self.journal.append(journals.Entry(method.__name__, arguments, self.fingerprint()))
        return answer

    # The interface of the journal

    def fingerprint(self, made: Any = None) -> dict[str, int]:
        return (self.owner if made is None else made)._fingerprint()

    def replay(self, made: Any, entry: journals.Entry, exact: bool) -> None:
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

    def follow(self, apply: Callable[[], None]) -> None:
        """Call ``apply`` in one step: it changes some parts of the policy in place and replaces others at the end."""
        self.lock.step(apply)

    def use(self, made: Any) -> None:
        """Replace the state of the policy by the state of ``made``."""
        for name, value in ({} if self.is_open else self.options).items():
            kept = made._options.get(name, value)
            if name not in ("random_state", "action_features"):
                journals.check_same_option(name, value, kept, "policy")
        state = {name: value for name, value in vars(made).items() if name not in ("_folder", "_own_lock")}
        self.lock.step(partial(vars(self.owner).update, state))


def _plain(name: str, value: Any) -> Any:
    """Return an argument as it is journaled and passed to the method."""
    if value is None:
        return None
    if scipy.sparse.issparse(value):
        return scipy.sparse.csr_array(value)
    return journals.plain_arguments({name: padded(value) if name == "actions" else value})[name]
