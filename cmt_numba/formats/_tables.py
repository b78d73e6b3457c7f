"""Readers for tables: the base class, and CSV, JSONL and Parquet files."""

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

from ._files import CellError, FormatError, files_of, first_line
from ._kinds import cells_of, convert_column, is_id, kind_of, kinds_of
from ._labels import LabelScan, convert_labels
from ._source import Batch, ReadOptions, Source

_CELLS_IN_A_FRAME = 1 << 18
_ROWS_OF_NAMES = 1000


class TableSource(Source):
    """A table with named columns. One column has labels; the features are numbers, or the words of text columns."""

    has_types: ClassVar[bool] = True
    """Whether the file distinguishes the text "7" from the number 7."""

    @abstractmethod
    def _names(self) -> list[str]:
        """Return the names of the columns."""

    @abstractmethod
    def _frames(self, columns: list[str], n_rows: int, as_text: Collection[str]) -> Iterator[Any]:
        """Yield frames of up to ``n_rows`` rows. The columns ``as_text`` are not parsed."""

    def _scanned(self) -> ReadOptions:
        options = self._with_columns()
        columns, label = options.columns or (), str(options.label)
        given = kinds_of(options.kinds or ())
        for name in given:
            if name not in columns:
                reason = f"kinds must name feature columns, which are {', '.join(map(repr, columns))}, got {name!r}"
                raise FormatError(self.path, reason)
        unknown = [] if options.kinds is None else [name for name in columns if name not in given]
        finds_labels = _finds_labels(options)
        wanted = [*unknown, *([label] if finds_labels else [])]
        if not wanted:
            return options
        labels = LabelScan(keeps_text=self.has_types)
        kinds: dict[str, str] = {}
        ids: set[str] = set()
        n_read = 0
        for frame in self._frames(wanted, max(1000, _CELLS_IN_A_FRAME // (len(columns) + 1)), {label}):
            if n_read == 0:
                ids = {name for name in unknown if is_id(name, frame[name])}
            for name in unknown:  # the first frame with other values than numbers decides
                if kinds.get(name, "number") == "number":
                    kinds[name] = kind_of(frame[name])
            with self._locating(n_read):
                labels.look_at(cells_of(frame[label]) if finds_labels else ())
            n_read += len(frame)
        if options.kinds is not None:
            options = self._with_kinds(options, kinds | given, ids if len(ids) < len(columns) else set())
        with self._locating():
            return labels.completed(options) if finds_labels else options

    def _with_columns(self) -> ReadOptions:
        """Return options with the label column and the feature columns."""
        options, names = self.options, self._names()
        if not names:
            raise FormatError(self.path, "has no columns; choose a table with a header or named fields")
        label = options.label
        if label is None:
            label = names[-1] if options.with_labels and "label" not in names else "label"
        if options.with_labels and label not in names:
            raise FormatError(self.path, f"has no column {label!r} for the labels, but {_listed(names)}")
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
        n_features = 2**options.n_bits if options.text and options.n_bits else None
        return replace(options, label=label, columns=chosen, n_features=n_features)

    def _with_kinds(self, options: ReadOptions, kinds: dict[str, str], ids: set[str]) -> ReadOptions:
        """Return options with the kinds of columns except ``ids``, or without kinds if a column contains lists."""
        kept = tuple(name for name in options.columns or () if name not in ids)
        ignored = (*options.ignore, *(name for name in options.columns or () if name in ids))
        lists = [name for name, kind in kinds.items() if kind == "lists"]
        if lists and options.kinds:
            raise FormatError(self.path, f"column {lists[0]!r} contains lists; omit kinds, or ignore the column")
        found = None if lists else tuple(f"{name}={kinds[name]}" for name in kept)
        return replace(options, kinds=found, columns=kept, ignore=ignored)

    def _chunks(self, options: ReadOptions) -> Iterator[Batch]:
        label, kinds = str(options.label), kinds_of(options.kinds or ())
        as_text = {label, *(name for name, kind in kinds.items() if kind != "number")}
        wanted = [*(options.columns or ()), *([label] if options.with_labels else [])]
        n_rows = max(1, min(self.rows_in_a_frame, _CELLS_IN_A_FRAME // len(wanted)))
        n_read = n_labels = 0
        for frame in self._frames(wanted, n_rows, as_text):
            X, y = self._features(frame, options, kinds, n_read), None
            if options.with_labels:
                with self._locating(n_read):
                    y = convert_labels(cells_of(frame[label]), options, n_labels)
                n_labels = y.shape[1] if options.task == "multilabel" else 0
            yield Batch(X, y)
            n_read += len(frame)

    def _features(self, frame: Any, options: ReadOptions, kinds: dict[str, str], n_read: int) -> Any:
        if options.text:
            columns = [convert_column(frame[name], "text") for name in options.columns or ()]
            texts = np.array([" ".join(row) for row in zip(*columns, strict=True)], object)
            return texts if options.n_bits is None else _hashed_words(texts, options.n_bits)
        from pandas import DataFrame

        converted = {}
        for name in options.columns or ():
            with self._locating(n_read, f"column {name!r} "):
                converted[name] = convert_column(frame[name], kinds.get(name))
        return DataFrame(converted) if kinds else np.column_stack(list(converted.values()))

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


def _finds_labels(options: ReadOptions) -> bool:
    """Return whether the labels must be scanned for the task, the type of labels, or new names."""
    is_known = options.named_labels is not None and (options.task == "multiclass" or not options.named_labels)
    return options.with_labels and (options.task is None or not is_known)


class CsvSource(TableSource):
    """A table with a header. The header decides whether commas, semicolons or tabs separate values."""

    has_types = False
    format = "csv"
    suffixes = (".csv", ".tsv")

    def _names(self) -> list[str]:
        for frame in self._frames(None, 1, ()):
            return [str(name) for name in frame.columns]
        raise FormatError(self.path, "has no rows")

    def _separator(self) -> str:
        if ".tsv" in self.path.suffixes:
            return "\t"
        header = re.sub(b'"[^"]*"', b"", first_line(self.path))
        return max(",;\t", key=lambda separator: header.count(separator.encode()))

    def _frames(self, columns: list[str] | None, n_rows: int, as_text: Collection[str]) -> Iterator[Any]:
        from pandas import read_csv

        words = {"keep_default_na": False, "na_values": [""]}  # "NA" and "None" can be words or classes
        types = dict.fromkeys(as_text, "object")
        options: Any = {"index_col": False, "low_memory": False, "dtype": types, "chunksize": n_rows, **words}
        with (
            self._open() as file,
            self._locating(prefix="is not a valid table: "),
            read_csv(file, sep=self._separator(), **options) as frames,
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
                for number, row in enumerate(rows, n_read + 1):
                    name = next((name for name in columns if type(row.get(name)) is dict), None)
                    if name is not None:
                        reason = f"field {name!r} is an object; it must be text, a number or a list"
                        raise FormatError(self.path, reason, row=number)
                cells = [[row.get(name) for name in columns] for row in rows]
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
        first, *others = files_of(self.path)
        names = self._opened(first).schema_arrow.names
        for path in others:
            if set(found := self._opened(path).schema_arrow.names) != set(names):
                raise FormatError(path, f"must have the same columns as {first.name}, got {_listed(found)}")
        return list(names)

    def _opened(self, path: Path) -> Any:
        from pyarrow import parquet

        try:
            return parquet.ParquetFile(path)
        except (ValueError, OSError) as error:  # the errors of pyarrow are ValueErrors
            raise FormatError(path, f"is not a Parquet file, or is damaged: {error}") from error

    def _frames(self, columns: list[str], n_rows: int, as_text: Collection[str]) -> Iterator[Any]:
        n_before = 0
        for path in files_of(self.path):
            try:
                with self._opened(path) as file:
                    n_read, n_bytes = 0, path.stat().st_size
                    for batch in file.iter_batches(batch_size=n_rows, columns=columns):
                        yield batch.to_pandas()
                        n_read += batch.num_rows
                        self.watch(n_before + n_bytes * n_read // file.metadata.num_rows)
            except OSError as error:
                raise FormatError(path, f"is damaged: {error}") from error
            n_before += n_bytes


def _hashed_words(texts: np.ndarray, n_bits: int) -> Any:
    from sklearn.feature_extraction.text import HashingVectorizer

    words = HashingVectorizer(n_features=2**n_bits, alternate_sign=False, norm=None, dtype=np.float32)
    return scipy.sparse.csr_array(words.transform(texts))


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:10]))
    return f"{shown} and {len(names) - 10} others" if len(names) > 10 else shown
