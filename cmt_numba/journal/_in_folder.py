"""``InFolder``, the public methods that all objects in folders share."""

from __future__ import annotations

from typing import Any, Self


class InFolder:
    """A mixin for objects that :meth:`open` puts in a folder.

    Attributes
    ----------
    _folder : object or None
        The object's form with its ``journal``; None for an object in memory.
    """

    _folder: Any = None

    def refresh(self) -> bool:
        """Bring a read-only object to the last change of its writer. Return whether it has changed."""
        return self._folder is not None and bool(self._folder.journal.refresh())

    def checkpoint(self) -> None:
        """Replace the journal with a snapshot, so that the folder opens faster.

        A long journal is replaced automatically. Call this method before the folder is opened with another library
        version or on another type of processor.
        """
        if self._folder is None:
            raise ValueError(f"the object is not in a folder: create it with {type(self).__name__}.open, or call save")
        self._folder.journal.snapshot()

    def close(self) -> None:
        """Write all changes to disk, and close the folder if there is one.

        A closed object still answers queries but rejects changes.
        """
        if self._folder is not None:
            self._folder.journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
