"""Exceptions of sharded stores and classifiers."""

from collections.abc import Sequence
from typing import Any

from ..store import Key


class ClusterError(RuntimeError):
    """The connection to the cluster, or a shard with its memories or classes, has been lost."""


class NoAnswerError(TimeoutError):
    """Shards did not answer in time. ``shards`` are their names."""

    def __init__(self, shards: Sequence[str], what: str) -> None:
        super().__init__(f"no answer in time from {', '.join(shards)}: {what}")
        self.shards, self._what = tuple(shards), what

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.shards, self._what)


class ShardConflictError(RuntimeError):
    """Shards contain incompatible memories, such as vectors of different widths."""

    def __init__(self, found: str) -> None:
        super().__init__(
            f"the shards are incompatible: {found}; before adding memories, delete the memories of all kinds but one, "
            "and remove empty shards with another width or metric with remove_shard"
        )
        self._found = found

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._found,)


class MoveError(RuntimeError):
    """A shard cannot move memories to another shard, which rejects them."""

    def __init__(self, giver: str, receiver: str, reason: str) -> None:
        super().__init__(
            f"memories cannot be moved from {giver} to {receiver}: {reason}; call finish_move to try again, or "
            "undo_move to undo the move"
        )
        self._arguments = giver, receiver, reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._arguments


class PartialChangeError(RuntimeError):
    """A change was made in some shards, but possibly not in all.

    The lists ``made`` and ``not_made`` contain the keys for which the change was made and was not, and ``unknown`` the
    keys of shards that did not answer in time. Ray keeps trying, so it may still be made for these. ``reasons`` are the
    errors by shard name.
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
