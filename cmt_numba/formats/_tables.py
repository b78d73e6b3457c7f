"""Readers for tables: the base class, and CSV, JSONL and Parquet files."""

import json
import re
import warnings
from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy.sparse

from ._columns import cells_of, convert_column, is_id, kind_of, kinds_of
from ._files import FormatError, files_of, first_line, open_text
from ._labels import LabelScan
from ._options import ReadOptions
from ._source import Source

_CELLS_IN_A_FRAME = 1 << 18
_ROWS_OF_NAMES = 1000


class TableSource(Source):
    """A table with named columns. One column has labels; the features are numbers, or the words of text columns."""

    _unit = "row"
    has_types: ClassVar[bool] = True
    """Whether the file distinguishes the text "7" from the number 7."""

    @abstractmethod
    def _names(self) -> list[str]:
        """Return the names of the columns."""

    @abstractmethod
    def _frames(self, columns: list[str], n_rows: int, as_text: Collection[str]) -> Iterator[Any]:
        """Yield frames of ``n_rows`` rows, indexed by row or line number. The columns ``as_text`` are not parsed."""

    def _scanned(self) -> ReadOptions:
        options = self._with_columns()
        columns, given = options.columns or (), kinds_of(options.kinds or ())
        for name in given:
            if name not in columns:
                reason = f"kinds must name feature columns, which are {', '.join(map(repr, columns))}, got {name!r}"
                raise FormatError(self.path, reason)
        unknown = [] if options.kinds is None else [name for name in columns if name not in given]
        # Labels are scanned for the task, for the type of labels, and for new names.
        is_known = options.named_labels is not None and (options.task == "multiclass" or not options.named_labels)
        finds_labels = options.with_labels and (options.task is None or not is_known)
        wanted = [*unknown, *([str(options.label)] if finds_labels else [])]
        if not wanted:
            return options
        labels, kinds, ids = LabelScan(keeps_text=self.has_types), dict[str, str](), set[str]()

        def look_at(frame: Any) -> None:
            for name in unknown:  # the first frame with other values than numbers decides
                if kinds.get(name, "number") == "number":
                    kinds[name] = kind_of(frame[name])
            if finds_labels:
                labels.look_at(self._labels(frame, options))

        n_rows = max(1000, _CELLS_IN_A_FRAME // (len(columns) + 1))
        for frame in self._frames(wanted, n_rows, {str(options.label)}):
            ids = ids if kinds else {name for name in unknown if is_id(name, frame[name])}
            self._converted(look_at, frame.index, frame)
        if options.kinds is not None:
            options = self._with_kinds(options, kinds | given, ids if len(ids) < len(columns) else set())
        try:
            return labels.completed(options) if finds_labels else options
        except ValueError as error:
            raise FormatError(self.path, str(error)) from error

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

    def _blocks(self, options: ReadOptions) -> Iterator[tuple[Any, Any]]:
        kinds, label = kinds_of(options.kinds or ()), str(options.label)
        wanted = [*(options.columns or ()), *([label] if options.with_labels else [])]
        as_text = {label, *(name for name, kind in kinds.items() if kind != "number")}
        n_rows = max(1, min(self.rows_in_a_frame, _CELLS_IN_A_FRAME // len(wanted)))
        for frame in self._frames(wanted, n_rows, as_text):
            yield frame.index, frame

    def _labels(self, rows: Any, options: ReadOptions) -> Sequence[Any]:
        return cells_of(rows[str(options.label)])

    def _features(self, rows: Any, options: ReadOptions) -> Any:
        kinds = dict.fromkeys(options.text, "text") or kinds_of(options.kinds or ())
        converted = {name: convert_column(rows[name], kinds.get(name)) for name in options.columns or ()}
        if options.text:
            texts = np.array([" ".join(row) for row in zip(*converted.values(), strict=True)], object)
            return texts if options.n_bits is None else _hashed_words(texts, options.n_bits)
        from pandas import DataFrame

        return DataFrame(converted) if kinds else np.column_stack(list(converted.values()))


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
        from pandas.errors import ParserWarning

        words = {"keep_default_na": False, "na_values": [""]}  # "NA" and "None" can be words or classes
        types = dict.fromkeys(as_text, "object")
        options: Any = {"index_col": False, "low_memory": False, "dtype": types, "chunksize": n_rows, **words}
        with open_text(self.path) as (file, stored):
            try:
                with read_csv(file, sep=self._separator(), **options) as frames:
                    while True:
                        with warnings.catch_warnings():
                            warnings.simplefilter("error", ParserWarning)  # rows have more values than the header
                            frame = next(frames, None)
                        if frame is None:
                            break
                        self.watch(stored.tell())
                        frame.index += 1
                        yield frame if columns is None else frame[columns]
            except (ValueError, ParserWarning) as error:
                reason = " ".join(str(error).split())
                raise FormatError(self.path, f"is not a valid table: {reason}") from error


class JsonlSource(TableSource):
    """A file with one JSON object per line. Its fields are columns of text, numbers or lists of numbers.

    The first 1,000 lines determine the columns. A field that is null or absent has no value.
    """

    format = "jsonl"
    suffixes = (".jsonl", ".ndjson")
    _unit = "line"

    def _names(self) -> list[str]:
        rows = list(islice(self._rows(), _ROWS_OF_NAMES))
        if not rows:
            raise FormatError(self.path, "has no rows")
        return list(dict.fromkeys(name for _, row in rows for name in row))

    def _frames(self, columns: list[str], n_rows: int, as_text: Collection[str]) -> Iterator[Any]:
        from pandas import DataFrame

        rows = self._rows()
        while taken := list(islice(rows, n_rows)):
            numbers, objects = zip(*taken, strict=True)
            yield DataFrame(list(objects), numbers, columns, dtype=object)

    def _rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for numbers, lines in self._lines():
            yield from zip(numbers, self._converted(_parse_objects, numbers, lines), strict=True)


def _parse_objects(lines: Sequence[bytes]) -> list[dict[str, Any]]:
    try:
        rows = [json.loads(line) for line in lines]
        if any(rb"\ud" in line.lower() for line in lines):
            json.dumps(rows, ensure_ascii=False).encode()  # fails for lone surrogates
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not JSON: {error}") from None
    for row in rows:
        if type(row) is not dict:
            raise ValueError(f'must be a JSON object such as {{"text": "hello", "label": "a"}}, got {row!r:.50}')
    return rows


class ParquetSource(TableSource):
    """A Parquet file, or a folder of Parquet files with the same columns, read in alphabetical order.

    Columns with equally long lists of numbers are features too.
    """

    format = "parquet"
    suffixes = (".parquet", ".pq")

    def _names(self) -> list[str]:
        from pyarrow.parquet import read_schema

        first, *others = files_of(self.path)
        with _naming_damage(first):
            names = list(read_schema(first).names)
        for path in others:
            with _naming_damage(path):
                found = read_schema(path).names
            if set(found) != set(names):
                raise FormatError(path, f"must have the same columns as {first.name}, got {_listed(found)}")
        return names

    def _frames(self, columns: list[str], n_rows: int, as_text: Collection[str]) -> Iterator[Any]:
        from pyarrow.parquet import ParquetFile

        n_before = n_bytes = 0
        for path in files_of(self.path):
            with _naming_damage(path), ParquetFile(path) as file:
                n_read, n_rows_in_file = 0, file.metadata.num_rows
                for batch in file.iter_batches(n_rows, columns=columns):
                    frame = batch.to_pandas()
                    first = n_before + n_read + 1
                    frame.index = range(first, first + len(frame))
                    yield frame
                    n_read += len(frame)
                    self.watch(n_bytes + path.stat().st_size * n_read // n_rows_in_file)
            n_before += n_read
            n_bytes += path.stat().st_size


@contextmanager
def _naming_damage(path: Path) -> Iterator[None]:
    try:
        yield
    except (ValueError, OSError) as error:  # the errors of pyarrow are ValueErrors
        raise FormatError(path, f"is not a Parquet file, or is damaged: {error}") from error


def _hashed_words(texts: np.ndarray, n_bits: int) -> Any:
    from sklearn.feature_extraction.text import HashingVectorizer

    words = HashingVectorizer(n_features=2**n_bits, alternate_sign=False, norm=None, dtype=np.float32)
    return scipy.sparse.csr_array(words.transform(texts))


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:10]))
    return f"{shown} and {len(names) - 10} others" if len(names) > 10 else shown
