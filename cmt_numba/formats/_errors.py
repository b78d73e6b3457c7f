"""The error raised by all readers."""

from os import PathLike


class FormatError(ValueError):
    """A data file cannot be read: it is missing, empty, truncated, or does not follow its format.

    Parameters
    ----------
    path : path-like
        The file.
    reason : str
        The problem.
    line : int, optional
        The line of a text file, counted from 1.
    row : int, optional
        The row of a table, counted from 1, without the header.
    """

    def __init__(
        self, path: str | PathLike[str], reason: str, *, line: int | None = None, row: int | None = None
    ) -> None:
        place = f", line {line}" if line is not None else f", row {row}" if row is not None else ""
        super().__init__(f"{path}{place}: {reason}")
        self.path = path
        self.line = line
        self.row = row
