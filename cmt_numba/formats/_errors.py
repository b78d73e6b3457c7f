"""The one error of all readers."""

from os import PathLike


class FormatError(ValueError):
    """A data file that cannot be read: missing, empty, cut off, or not what its format says.

    Parameters
    ----------
    path : path-like
        The file.
    reason : str
        What is wrong with it.
    line : int, optional
        The line of a text file, counted from 1.
    row : int, optional
        The row of a table, counted from 1 and without the header.
    """

    def __init__(
        self, path: str | PathLike[str], reason: str, *, line: int | None = None, row: int | None = None
    ) -> None:
        place = f", line {line}" if line is not None else f", row {row}" if row is not None else ""
        super().__init__(f"{path}{place}: {reason}")
        self.path = path
        self.line = line
        self.row = row
