"""Opening of data files, and detection of their formats."""

import re
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from ._arrays import ArraysSource
from ._files import FormatError, check_file, files_of, first_line
from ._lines import ExtremeSource, SvmlightSource
from ._options import ReadOptions
from ._source import Source
from ._tables import CsvSource, JsonlSource, ParquetSource, TableSource
from ._vowpal import VowpalSource

FORMATS: dict[str, type[Source]] = {
    reader.format: reader
    for reader in (SvmlightSource, ExtremeSource, VowpalSource, CsvSource, JsonlSource, ParquetSource, ArraysSource)
}
"""The readers by format name."""

_FIRST_LINES = {
    "xc": rb"\s*\d+\s+\d+\s+\d+\s*$",
    "jsonl": rb"\s*{",
    "vw": rb".*\|",
    "svmlight": rb"\s*[-+.,\deE]*(\s+qid:\d+)?(\s+\d+:\S+)+\s*(#.*)?$",
}
_TASKS = ("multiclass", "multilabel")


def open_data(path: str | PathLike[str], options: ReadOptions | None = None, **changes: Any) -> Source:
    r"""Return a reader for a data file.

    ``path`` is a file, or a folder of Parquet files. Text files may be compressed by gzip, with or without the suffix
    ``.gz``. ``changes`` are fields of :class:`ReadOptions` that differ from ``options``.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "two.svm"
    ...     _ = path.write_text("3 0:1 4:0.5\n7 1:2\n")
    ...     batch = open_data(path).read()
    >>> batch.X.shape, batch.y
    ((2, 5), array([3, 7]))
    """
    path = Path(path)
    options = replace(options or ReadOptions(), **changes)
    for name, choices in (("format", FORMATS), ("task", _TASKS)):
        if getattr(options, name) not in (None, *choices):
            raise ValueError(f"{name} must be one of {', '.join(choices)}, got {getattr(options, name)!r}")
    for name, most in (("n_bits", 30), ("n_features", 2**31 - 1)):
        value = getattr(options, name)
        if value is not None and not 1 <= value <= most:
            raise ValueError(f"{name} must be between 1 and {most}, got {value}")
    files = files_of(path) if options.format in (None, ParquetSource.format) else [path]
    for file in files or [path]:
        check_file(file)
    source = FORMATS[options.format or _format_of(path)](path, options)
    for name in ("text", "kinds"):
        if getattr(options, name) and not isinstance(source, TableSource):
            raise ValueError(f"{name} names columns, but {path} has the format {source.format}; omit {name}")
    if options.labels_file is not None and options.with_labels and source.format != ArraysSource.format:
        raise ValueError(
            f"{options.labels_file} cannot be used as a labels file: {path} has the format {source.format}, which "
            f"contains labels; only the format {ArraysSource.format} allows a labels file"
        )
    return source


def _format_of(path: Path) -> str:
    """Return the format of a file, detected from its suffix or else from its first line."""
    if path.is_dir():
        return ParquetSource.format
    suffix = path.with_suffix("").suffix if path.suffix.lower() == ".gz" else path.suffix
    for reader in FORMATS.values():
        if suffix.lower() in reader.suffixes:
            return reader.format
    line = first_line(path)
    for name, pattern in _FIRST_LINES.items():
        if re.match(pattern, line):
            return name
    reason = f"has an unknown suffix and an ambiguous first line; set the format to one of {', '.join(FORMATS)}"
    raise FormatError(path, reason)
