"""The base class of table readers, and the readers for CSV, JSONL and Parquet files."""

import json
import re
import warnings
from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy.sparse

from ._kinds import is_id, kind_of, kinds_of, to_features, to_floats
from ._labels import LabelScan, convert_labels, is_written_number
from ._source import Batch, CellError, FormatError, ReadOptions, Source, files_of, first_line

_CELLS_IN_A_FRAME = 1 << 18
_ROWS_OF_NAMES = 1000


class TableSource(Source):
    """A table with named columns. One column has labels; the features are numbers, or the words of text columns."""

    has_types: ClassVar[bool] = True
    """Whether the file distinguishes the text "7" from the number 7."""

    def _scanned(self) -> ReadOptions:
        names = self._names()
        if not names:
            raise FormatError(self.path, "has no columns; choose a table with a header or named fields")
        label = self.options.label
        if label is None:
            label = names[-1] if self.options.with_labels and "label" not in names else "label"
        if self.options.with_labels and label not in names:
            raise FormatError(self.path, f"has no column {label!r} for the labels, but {_listed(names)}")
        columns = self._feature_columns(names, label)
        hashes_words = self.options.text and not self.options.as_text
        n_features = 2**self.options.n_bits if hashes_words else None
        options = replace(self.options, label=label, columns=columns, n_features=n_features)
        given = kinds_of(options.kinds or ())
        for name in given:
            if name not in columns:
                reason = f"kinds must name feature columns, which are {', '.join(map(repr, columns))}, got {name!r}"
                raise FormatError(self.path, reason)
        unknown = [] if options.kinds is None else [name for name in columns if name not in given]
        finds_labels = self._finds_labels()
        if not unknown and not finds_labels:
            return options
        labels = LabelScan(is_written_number, keeps_text=self.has_types)
        kinds: dict[str, str] = {}
        ids: set[str] = set()
        wanted = [*unknown, *([label] if finds_labels else [])]
        n_read = 0
        for frame in self._frames(wanted, max(1000, _CELLS_IN_A_FRAME // len(names)), {label}):
            for (
                name
            ) in unknown:  # the first frame decides about identifiers, and the first one without numbers the kind
                if n_read == 0 and is_id(name, frame[name]):
                    ids.add(name)
                if kinds.get(name, "number") == "number":
                    kinds[name] = kind_of(frame[name])
            with self._locating(n_read):
                labels.look_at(_cells(frame[label]) if finds_labels else ())
            n_read += len(frame)
        if options.kinds is not None:
            options = self._with_kinds(options, kinds | given, ids if len(ids) < len(columns) else set())
        with self._locating():
            return labels.completed(options) if finds_labels else options

    def _with_kinds(self, options: ReadOptions, kinds: dict[str, str], ids: set[str]) -> ReadOptions:
        """Return options with the kinds of columns except ``ids``, or without kinds if a column contains lists."""
        kept = tuple(name for name in options.columns or () if name not in ids)
        ignored = (*options.ignore, *(name for name in options.columns or () if name in ids))
        lists = [name for name, kind in kinds.items() if kind == "lists"]
        if lists and options.kinds:
            raise FormatError(self.path, f"column {lists[0]!r} contains lists; omit kinds, or ignore the column")
        found = None if lists else tuple(f"{name}={kinds[name]}" for name in kept)
        return replace(options, kinds=found, columns=kept, ignore=ignored)

    @abstractmethod
    def _names(self) -> list[str]:
        """Return the names of the columns."""

    @abstractmethod
    def _frames(self, columns: list[str], n_rows: int, as_text: Collection[str]) -> Iterator[Any]:
        """Yield frames of up to ``n_rows`` rows. The columns ``as_text`` are not parsed."""

    def _feature_columns(self, names: list[str], label: str) -> tuple[str, ...]:
        options = self.options
        ignored = options.ignore if options.columns is None else ()  # files to predict may lack ignored columns
        for name in (*options.text, *ignored, *(options.columns or ())):
            if name not in names:
                raise FormatError(self.path, f"has no column {name!r}, but {_listed(names)}")
        chosen = options.text or options.columns or tuple(one for one in names if one not in {label, *options.ignore})
        if not chosen:
            raise FormatError(self.path, f"has no feature columns, only {_listed(names)}")
        if options.with_labels and label in chosen:
            raise FormatError(self.path, f"column {label!r} contains the labels, not features; choose another label")
        if len(set(chosen)) < len(chosen):
            raise FormatError(self.path, f"the feature columns must be distinct, got {_listed(chosen)}")
        return chosen

    def _chunks(self, options: ReadOptions) -> Iterator[Batch]:
        from pandas import DataFrame

        columns, label = list(options.columns or ()), str(options.label)
        kinds = kinds_of(options.kinds or ())
        as_text = {label, *(name for name, kind in kinds.items() if kind != "number")}
        wanted = [*columns, *([label] if options.with_labels else [])]
        n_rows = max(1, min(self.rows_in_a_frame, _CELLS_IN_A_FRAME // len(wanted)))
        n_read = n_labels = 0
        for frame in self._frames(wanted, n_rows, as_text):
            if options.text:
                texts = _texts(frame[columns])
                X: Any = texts if options.as_text else _hashed_words(texts, options.n_bits)
            else:
                converted = {}
                for name in columns:
                    with self._locating(n_read, f"column {name!r} "):
                        converted[name] = _of_kind(frame[name], kinds.get(name))
                X = DataFrame(converted) if kinds else np.column_stack(list(converted.values()))
            y = None
            if options.with_labels:
                with self._locating(n_read):
                    y = convert_labels(_cells(frame[label]), options, n_labels)
                n_labels = y.shape[1] if options.task == "multilabel" else 0
            yield Batch(X, y)
            n_read += len(frame)

    @contextmanager
    def _locating(self, n_read: int = 0, prefix: str = "") -> Iterator[None]:
        """Add the file and, for errors in cells, the row to errors. ``n_read`` rows were read before the frame."""
        try:
            yield
        except FormatError:
            raise
        except ValueError as error:
            row = n_read + error.position + 1 if isinstance(error, CellError) else None
            raise FormatError(self.path, prefix + " ".join(str(error).split()), row=row) from error


class CsvSource(TableSource):
    """A table with a header. The header decides whether commas, semicolons or tabs separate values."""

    has_types = False

    format = "csv"
    suffixes = (".csv", ".tsv")

    def _separator(self) -> str:
        if ".tsv" in self.path.suffixes:
            return "\t"
        header = re.sub(b'"[^"]*"', b"", first_line(self.path))
        return max(",;\t", key=lambda separator: header.count(separator.encode()))

    def _read(self, file: Any, **options: Any) -> Any:
        from pandas import read_csv

        words = {"keep_default_na": False, "na_values": [""]}  # "NA" and "None" can be words or classes
        return read_csv(file, sep=self._separator(), index_col=False, low_memory=False, **words, **options)

    def _names(self) -> list[str]:
        for frame in self._frames(None, 1, ()):
            return [str(name) for name in frame.columns]
        raise FormatError(self.path, "has no rows")

    def _frames(self, columns: list[str] | None, n_rows: int, as_text: Collection[str]) -> Iterator[Any]:
        with (
            self._open() as file,
            self._locating(prefix="is not a valid table: "),
            self._read(file, dtype=dict.fromkeys(as_text, "object"), chunksize=n_rows) as frames,
        ):
            while (frame := _next_frame(frames)) is not None:
                yield frame if columns is None else frame[columns]


def _next_frame(frames: Iterator[Any]) -> Any:
    """Return the next frame of a CSV file, or None. Raise ValueError if rows have more values than the header."""
    from pandas.errors import ParserWarning

    with warnings.catch_warnings():
        warnings.simplefilter("error", ParserWarning)
        try:
            return next(frames, None)
        except ParserWarning as error:
            raise ValueError(str(error)) from error


class JsonlSource(TableSource):
    """A file with one JSON object per line. Its fields are columns of text, numbers or lists of numbers.

    The first 1,000 lines determine the columns. A field that is null or absent has no value.
    """

    format = "jsonl"
    suffixes = (".jsonl", ".ndjson")

    def _names(self) -> list[str]:
        with self._open() as file:
            rows = list(islice(self._rows(file), _ROWS_OF_NAMES))
        if not rows:
            raise FormatError(self.path, "has no rows")
        return list(dict.fromkeys(name for row in rows for name in row))

    def _frames(self, columns: list[str], n_rows: int, as_text: Collection[str]) -> Iterator[Any]:
        from pandas import DataFrame

        with self._open() as file:
            lines = self._rows(file)
            n_read = 0
            while rows := list(islice(lines, n_rows)):
                cells = [[row.get(name) for name in columns] for row in rows]
                for number, row in enumerate(cells, n_read + 1):
                    if any(type(cell) is dict for cell in row):
                        name = next(name for name, cell in zip(columns, row, strict=True) if type(cell) is dict)
                        reason = f"field {name!r} is an object; it must be text, a number or a list"
                        raise FormatError(self.path, reason, row=number)
                yield DataFrame(cells, columns=columns, dtype=object)
                n_read += len(rows)

    def _rows(self, lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                if rb"\ud" in line.lower():
                    json.dumps(row, ensure_ascii=False).encode()  # fails for lone surrogates
            except (ValueError, RecursionError) as error:
                raise FormatError(self.path, f"is not JSON: {error}", line=number) from None
            if type(row) is not dict:
                reason = f'must be a JSON object such as {{"text": "hello", "label": "a"}}, got {row!r:.50}'
                raise FormatError(self.path, reason, line=number)
            yield row


class ParquetSource(TableSource):
    """A Parquet file, or a folder of Parquet files with the same columns, read in alphabetical order.

    Columns with equally long lists of numbers are features too.
    """

    format = "parquet"
    suffixes = (".parquet", ".pq")

    def _names(self) -> list[str]:
        files = [(path, self._opened(path)) for path in files_of(self.path)]
        first, *_ = files
        names = first[1].schema_arrow.names
        for path, file in files:
            if set(file.schema_arrow.names) != set(names):
                reason = f"must have the same columns as {first[0].name}, got {_listed(file.schema_arrow.names)}"
                raise FormatError(path, reason)
        self._n_rows = sum(file.metadata.num_rows for _, file in files)
        return list(names)

    def _opened(self, path: Path) -> Any:
        from pyarrow import parquet

        try:
            return parquet.ParquetFile(path)
        except (ValueError, OSError) as error:  # the errors of pyarrow are ValueErrors
            raise FormatError(path, f"is not a Parquet file, or is damaged: {error}") from error

    def _frames(self, columns: list[str], n_rows: int, as_text: Collection[str]) -> Iterator[Any]:
        n_read = 0
        for path in files_of(self.path):
            try:
                with self._opened(path) as file:
                    for batch in file.iter_batches(batch_size=n_rows, columns=columns):
                        yield batch.to_pandas()
                        n_read += batch.num_rows
                        self.watch(self.extent * n_read // self._n_rows)
            except OSError as error:
                raise FormatError(path, f"is damaged: {error}") from error


def _cells(column: Any) -> list[Any]:
    """Return the cells of a column as a list, with None for missing values."""
    return column.astype(object).where(column.notna(), None).tolist()


def _of_kind(column: Any, kind: str | None) -> Any:
    """Return a column as float32 without a kind, as float64 if it is a number, or else as a list of str.

    Missing numbers become NaN, and other missing values the empty string.
    """
    if kind is None:
        return to_features(column)
    return to_floats(column) if kind == "number" else ["" if cell is None else str(cell) for cell in _cells(column)]


def _texts(frame: Any) -> np.ndarray:
    """Return the text of each row, joined from all columns."""
    columns = [_of_kind(frame[name], "text") for name in frame.columns]
    return np.array([" ".join(row) for row in zip(*columns, strict=True)], object)


def _hashed_words(texts: np.ndarray, n_bits: int) -> Any:
    from sklearn.feature_extraction.text import HashingVectorizer

    words = HashingVectorizer(n_features=2**n_bits, alternate_sign=False, norm=None, dtype=np.float32)
    return scipy.sparse.csr_array(words.transform(texts))


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:10]))
    return f"{shown} and {len(names) - 10} others" if len(names) > 10 else shown
