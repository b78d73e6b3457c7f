"""Errors of sharded stores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..store import Key


class ClusterError(RuntimeError):
    """The cluster, or a shard with its memories or classes, has been lost."""


class NoAnswerError(TimeoutError):
    """Shards did not answer in time.

    Parameters
    ----------
    shards : sequence of str
        Their names.
    what : str
        The consequence for the call.
    """

    def __init__(self, shards: Sequence[str], what: str) -> None:
        super().__init__(f"no answer in time from {', '.join(shards)}: {what}")
        self.shards, self._what = tuple(shards), what

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.shards, self._what)


class ShardConflictError(RuntimeError):
    """Shards hold memories that do not fit into one store, such as vectors of different widths.

    Parameters
    ----------
    found : str
        Description of what the shards hold.
    """

    def __init__(self, found: str) -> None:
        super().__init__(
            f"the shards do not fit together: {found}; nothing can be added until the memories of all but one kind are "
            "deleted, and shards of another width or metric, once they are empty, removed with remove_shard"
        )
        self._found = found

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._found,)


class MoveError(RuntimeError):
    """A shard cannot give memories to another one.

    Parameters
    ----------
    giver, receiver : str
        The names of the shards.
    reason : str
        Why the receiver does not accept them.
    """

    def __init__(self, giver: str, receiver: str, reason: str) -> None:
        super().__init__(
            f"memories cannot be moved from {giver} to {receiver}: {reason}; finish_move tries again, and undo_move "
            "takes the move back"
        )
        self._arguments = giver, receiver, reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._arguments


class PartialChangeError(RuntimeError):
    """A change was made in some shards, but perhaps not in all.

    Parameters
    ----------
    made : list of str or int
        The keys for which the change was made.
    not_made : list of str or int
        The keys for which it was not made.
    unknown : list of str or int
        The keys of shards that did not answer in time. Ray keeps trying, so the change may still be made.
    reasons : dict of str to Exception
        The errors of shards, by name.
    """

    def __init__(self, made: list[Key], not_made: list[Key], unknown: list[Key], reasons: dict[str, Exception]) -> None:
        why = "; ".join(f"{name}: {error}" for name, error in reasons.items())
        super().__init__(
            f"the change was made for {len(made)} keys and not for {len(not_made)}; for {len(unknown)} it may still be "
            f"made (see the attributes made, not_made and unknown): {why}"
        )
        self.made, self.not_made, self.unknown, self.reasons = made, not_made, unknown, reasons

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.made, self.not_made, self.unknown, self.reasons)
