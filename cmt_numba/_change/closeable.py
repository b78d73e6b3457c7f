"""``Closeable``, a mixin for objects that hold files or processes."""

from abc import abstractmethod
from typing import Self


class Closeable:
    """A context manager that closes the object."""

    @abstractmethod
    def close(self) -> None:
        """Close the object."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
