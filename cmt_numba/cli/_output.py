"""Output files and tables, and escaping of control characters in output."""

import errno
import json
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TextIO

from .._display import ResultTable
from .._version import __version__

_STANDARD_OUTPUT = Path("-")
_CONTROLS = [*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, *range(0xD800, 0xE000)]  # also separators, surrogates
_ESCAPES_IN_TEXT = {code: chr(code).encode("unicode_escape").decode() for code in _CONTROLS}
_ESCAPES_IN_JSON = {code: f"\\u{code:04x}" for code in _CONTROLS if code != ord("\n")}  # it separates indented lines


def check_files(*, inputs: Iterable[Path | None], outputs: Iterable[Path | None]) -> None:
    """Check that outputs can be written, and overwrite neither an input, a file in an input folder, nor each other."""
    read = [file for path in inputs if path is not None for file in [path, *(path.iterdir() if path.is_dir() else ())]]
    seen = {_identity(path): f"input {path}" for path in read}
    for path in outputs:
        if path is None:
            continue
        if path != _STANDARD_OUTPUT and (path.is_dir() or not path.absolute().parent.is_dir()):
            number = errno.EISDIR if path.is_dir() else errno.ENOENT
            raise OSError(number, os.strerror(number), str(path))
        identity = _identity(path)
        if identity is not None and identity in seen:
            raise ValueError(f"the output {path} is the same file as the {seen[identity]}; choose another output file")
        seen[identity] = f"output {path}"


def _identity(path: Path) -> Any:
    """Return a value that all paths of the same regular file share, or None for other files."""
    try:
        status = os.fstat(sys.stdout.fileno()) if path == _STANDARD_OUTPUT else path.stat()
    except (OSError, ValueError):  # the file is missing, or standard output is not a file
        return None if path == _STANDARD_OUTPUT else os.path.realpath(path)
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None


@contextmanager
def open_output(path: Path) -> Iterator[TextIO]:
    """Yield a file for writing, or the standard output if the path is ``-``.

    The new file replaces an existing one when the block succeeds.
    """
    from ..persistence import replacing

    target = Path(os.path.realpath(path))
    if path == _STANDARD_OUTPUT:
        yield sys.stdout
    elif (path.exists() and not path.is_file()) or not os.access(target.parent, os.W_OK):
        with path.open("w", encoding="utf-8", newline="") as file:  # for example a device or a named pipe
            yield file
    else:
        with replacing(target) as unfinished:
            file = TextIOWrapper(unfinished, encoding="utf-8", newline="")
            yield file
            file.detach()


def printable(value: object) -> str:
    """Return a value as text. Escape control characters as in Python literals."""
    return str(value).translate(_ESCAPES_IN_TEXT)


def to_json_text(value: Any, *, indent: int | None = None) -> str:
    """Return a value as JSON. Escape all control characters, including those that JSON allows."""
    return json.dumps(value, ensure_ascii=False, indent=indent).translate(_ESCAPES_IN_JSON)


def show_table(table: ResultTable, *, err: bool = False) -> None:
    """Print a table below its caption."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(stderr=err)
    drawn = Table(*table.header, show_header=len(table.header) > 0)
    for row in table.rows:
        drawn.add_row(*(Text(printable(cell)) for cell in row))
    console.print(printable(table.caption), style="bold", highlight=False, markup=False, soft_wrap=True)
    console.print(drawn)


def print_note(text: str) -> None:
    """Print a line to standard error."""
    print(printable(text), file=sys.stderr)


def write_result(contents: dict[str, Any], tables: Iterable[ResultTable], json_file: Path | None) -> None:
    """Write a result as JSON, if requested, and print its tables, unless JSON goes to the standard output."""
    if json_file is not None:
        from ..evaluation import to_json

        with open_output(json_file) as file:
            file.write(to_json_text(to_json({**contents, "version": __version__}), indent=2) + "\n")
    if json_file != _STANDARD_OUTPUT:
        for table in tables:
            show_table(table)
