"""The base class of table readers, and the readers for CSV, JSONL and Parquet files."""

import json
import re
import warnings
from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from .._arrays import label_array
from ._source import Batch, ReadOptions, Source
from ._text import (
    FormatError,
    check_labels,
    first_line,
    indicator,
    is_name,
    is_written_number,
    label_list,
    open_text,
    read_blocks,
    whole_number,
)

KINDS = ("number", "category", "text")

_ID_NAME = re.compile(r"(.*[\W_])?(id|uuid|guid|key|index|row|nr|no|unnamed: 0)", re.IGNORECASE)
_MOST_WORDS = 5  # maximum mean number of words per value of a category column
_NO_NUMBER = ("NaN", "nan", "NA", "N/A", "#N/A", "n/a", "NULL", "null", "None", "<NA>")  # missing values as text


def kinds_of(given: Sequence[str]) -> dict[str, str]:
    """Return a dictionary of column kinds from entries of the form ``column=kind``."""
    kinds = {}
    for entry in given:
        name, equals, kind = entry.rpartition("=")
        if not equals or kind not in KINDS:
            raise ValueError(f"a column kind must be COLUMN=KIND, with one of {', '.join(KINDS)}, got {entry!r}")
        kinds[name] = kind
    return kinds


class KindsOfColumns:
    """Detection of column kinds. Kinds given by the caller take precedence.

    A column of numbers has the kind ``number``; missing values may be words such as "NA". The first frame that contains
    another value decides the kind of any other column: ``category`` if values have on average at most five words and at
    least two occurrences in this frame, or else ``text``. Columns such as "id" with a different value in each row are
    identifiers, not features.

    - ``given``: known kinds as ``column=kind``.
    - ``unknown``: the columns without a given kind.
    """

    def __init__(self, path: Path, columns: Sequence[str], given: Sequence[str]) -> None:
        self._path, self._columns, self._kinds = path, columns, kinds_of(given)
        self._any_given = bool(given)
        self._are_ids: dict[str, bool] = {}  # by column, decided by the first frame
        for name in self._kinds:
            if name not in columns:
                shown = ", ".join(map(repr, columns))
                raise FormatError(path, f"kinds must name feature columns, which are {shown}, got {name!r}")
        self.unknown = [name for name in columns if name not in self._kinds]

    def look_at(self, frame: Any) -> None:
        """Update the kinds of the unknown columns from more rows."""
        for name in self.unknown:
            if name not in self._are_ids:
                self._are_ids[name] = _is_id(name, frame[name])
            if self._kinds.get(name, "number") == "number":
                self._kinds[name] = _kind_of(frame[name])

    def ids(self) -> tuple[str, ...]:
        """Return the columns without a given kind that seem to identify rows, unless there are no other columns."""
        ids = tuple(name for name, is_id in self._are_ids.items() if is_id)
        return ids if len(ids) < len(self._columns) else ()

    def found(self) -> tuple[str, ...] | None:
        """Return the kinds of all columns as ``column=kind``, or None if a column contains lists of numbers."""
        lists = [name for name in self._columns if self._kinds[name] == "lists"]
        if lists and self._any_given:
            raise FormatError(self._path, f"column {lists[0]!r} contains lists; omit kinds, or ignore the column")
        ids = self.ids()
        return None if lists else tuple(f"{name}={self._kinds[name]}" for name in self._columns if name not in ids)


def _is_id(name: str, column: Any) -> bool:
    """Return whether a column has the name of an identifier, and a different integer or word in each row."""
    values = column.dropna()
    if not _ID_NAME.fullmatch(name.strip()) or len(values) < 2 or isinstance(values.iloc[0], np.ndarray):
        return False
    texts = values.map(str)
    is_word = values.dtype.kind in "iu" or bool((texts.str.split().str.len() == 1).all() and values.dtype.kind != "f")
    return is_word and texts.nunique() == len(column)


def _kind_of(column: Any) -> str:
    values = column.dropna()
    if len(values) > 0 and isinstance(values.iloc[0], np.ndarray):
        return "lists"
    if values[np.isnan(as_numbers(values))].isin(_NO_NUMBER).all():
        return "number"
    texts = values.map(str)
    repeated = 2 * texts.nunique() <= len(texts)
    return "category" if repeated and texts.str.split().str.len().mean() <= _MOST_WORDS else "text"


def as_numbers(column: Any) -> np.ndarray:
    """Return a column as float64. Values that are not numbers become NaN."""
    if column.dtype.kind not in "fiub":
        to_numeric = partial(import_module("pandas").to_numeric, errors="coerce")
        try:
            column = to_numeric(column)
        except OverflowError:  # an integer is too large for float64; as text it converts to infinity
            column = to_numeric(column.map(str))
    return column.to_numpy(np.float64, na_value=np.nan)


_CELLS_IN_A_CHUNK = 1 << 18
_CELLS_IN_A_SCAN = 1 << 18


class LabelScan:
    """Detection of the task, and of labels that are names rather than numbers.

    Text in a file with types is a name. Text in a CSV file is a number if the number is written in the same way.

    - ``are_typed``: whether the file distinguishes the text "7" from the number 7.
    """

    def __init__(self, path: Path, label: str, *, are_typed: bool) -> None:
        self._path, self._label, self._are_typed = path, label, are_typed
        self._has_lists = self._has_commas = False
        self._are_numbers = True  # whether all cells are numbers, or numbers separated by commas
        self._has_named_classes = self._has_named_labels = False
        self._by_type: dict[bool, Any] = {}  # by whether it is a str, the first label
        self._labels: set[str] = set()  # the labels of lists, or separated by commas

    def look_at(self, column: Any) -> None:
        """Look at the labels of more rows."""
        for cell in column.unique() if _is_flat(column) else column:
            if isinstance(cell, np.ndarray | list | tuple):
                self._has_lists = True
                for label in np.asarray(cell).tolist():
                    self._by_type.setdefault(isinstance(label, str), label)
                    if isinstance(label, str):
                        self._has_named_labels = True
                        self._labels.add(label)
            elif not _is_missing(cell):
                self._look_at_cell(cell)

    def _look_at_cell(self, cell: Any) -> None:
        self._by_type.setdefault(isinstance(cell, str), cell)
        if not isinstance(cell, str):
            self._has_named_classes |= is_name(str(cell))
            return
        self._has_named_classes |= self._are_typed or not is_written_number(cell)
        self._has_commas |= "," in cell
        labels = split_labels(cell)
        self._are_numbers &= all(map(is_written_number, labels))
        self._labels.update(labels)

    def completed(self, options: ReadOptions) -> ReadOptions:
        """Return options with the task and the type of labels, unless they are given, and with all names of labels."""
        several = self._has_lists or (self._has_commas and self._are_numbers)
        task = options.task or ("multilabel" if several else "multiclass")
        named = self._has_named_labels or not self._are_numbers if task == "multilabel" else self._has_named_classes
        if named and len(self._by_type) == 2:
            mixed = f"text such as {self._by_type[True]!r:.50} with numbers such as {self._by_type[False]!r:.50}"
            raise FormatError(
                self._path, f"column {self._label!r} mixes {mixed}: write all labels as text or as numbers"
            )
        named = named if options.named_labels is None else options.named_labels
        names: tuple[str, ...] = ()
        if named and task == "multilabel":
            names = tuple(dict.fromkeys([*options.label_names, *sorted(self._labels)]))
        return replace(options, task=task, named_labels=named, label_names=names)


def split_labels(cell: str) -> list[str]:
    """Return the labels of a cell, which are separated by commas."""
    return [part.strip() for part in cell.split(",")] if cell.strip() else []


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
        columns = self._feature_columns(names, label)
        options = replace(
            self.options,
            label=label,
            columns=columns,
            n_features=2**self.options.n_bits if self.options.text and not self.options.as_text else None,
        )
        if options.with_labels and label not in names:
            raise FormatError(self.path, f"has no column {label!r} for the labels, but {_listed(names)}")
        kinds = None if options.kinds is None else KindsOfColumns(self.path, columns, options.kinds)
        are_known = options.task == "multiclass" or options.named_labels is False  # else, new names are appended
        scans_labels = options.with_labels and (options.task is None or options.named_labels is None or not are_known)
        wanted = [*([label] if scans_labels else []), *([] if kinds is None else kinds.unknown)]
        if not wanted:
            return options
        labels = LabelScan(self.path, label, are_typed=self.has_types)
        for frame, position in self._frames(wanted, max(1000, _CELLS_IN_A_SCAN // len(wanted)), {label}):
            self._watch(position)
            if kinds is not None:
                kinds.look_at(frame)
            if scans_labels:
                labels.look_at(frame[label])
        if kinds is not None:
            ids = kinds.ids()
            kept = tuple(name for name in columns if name not in ids)
            options = replace(options, kinds=kinds.found(), columns=kept, ignore=(*options.ignore, *ids))
        return labels.completed(options) if scans_labels else options

    @abstractmethod
    def _names(self) -> list[str]:
        """Return the names of the columns."""

    @abstractmethod
    def _frames(self, columns: list[str], n_rows: int, unparsed: Collection[str]) -> Iterator[tuple[Any, int]]:
        """Yield frames of up to ``n_rows`` rows with their positions. Columns ``unparsed`` stay text."""

    def _feature_columns(self, names: list[str], label: str) -> tuple[str, ...]:
        options = self.options
        ignored = options.ignore if options.columns is None else ()  # files to predict may lack ignored columns
        for name in (*options.text, *ignored, *(options.columns or ())):
            if name not in names:
                raise FormatError(self.path, f"has no column {name!r}, but {_listed(names)}")
        chosen = options.text or options.columns
        if chosen is not None:
            if options.with_labels and label in chosen:
                reason = f"column {label!r} contains the labels, not features; set label to another column"
                raise FormatError(self.path, reason)
            if len(set(chosen)) < len(chosen):
                raise FormatError(self.path, f"the feature columns must be distinct, got {_listed(chosen)}")
            return chosen
        left_out = {label, *options.ignore}
        columns = tuple(name for name in names if name not in left_out)
        if not columns:
            raise FormatError(self.path, f"has no feature columns, only {_listed(names)}")
        return columns

    def _chunks(self, options: ReadOptions) -> Iterator[Batch]:
        columns, label = list(options.columns or ()), str(options.label)
        kinds = kinds_of(options.kinds or ())
        unparsed = {label, *(name for name, kind in kinds.items() if kind != "number")}
        wanted = [*columns, *([label] if options.with_labels else [])]
        n_rows = max(1, min(self.rows_in_a_chunk, _CELLS_IN_A_CHUNK // len(wanted)))
        first_row, n_labels = 1, 0
        for frame, position in self._frames(wanted, n_rows, unparsed):
            if len(frame) == 0:
                continue
            if kinds:
                X = _pandas().DataFrame({name: self._cells(frame[name], kinds[name], first_row) for name in columns})
            elif options.text:
                texts = _texts(frame[columns])
                X = np.array(texts, object) if options.as_text else _words(texts, options.n_bits)
            else:
                X = np.column_stack([self._numbers(frame[name], name, first_row) for name in columns])
            y = self._labels(frame[label], options, first_row, n_labels) if options.with_labels else None
            if options.task == "multilabel" and y is not None:
                n_labels = y.shape[1]
            yield Batch(X, y, position)
            first_row += len(frame)

    def _cells(self, column: Any, kind: str, first_row: int) -> Any:
        """Return a column as float64 or as a list of str. Missing values become NaN or the empty string."""
        if kind == "number":
            return self._floats(column, first_row)
        return column.astype(object).where(column.notna(), "").map(str).tolist()

    def _floats(self, column: Any, first_row: int) -> np.ndarray:
        """Return a column as float64, with NaN for missing values. All other values must be finite in float32."""
        numbers = as_numbers(column)
        with np.errstate(over="ignore"):
            bad = np.flatnonzero(~np.isfinite(numbers.astype(np.float32)) & column.notna().to_numpy())
        bad = bad[~column.iloc[bad].isin(_NO_NUMBER).to_numpy()]
        if bad.size > 0:
            value = column.iloc[bad[0]]
            what = "a value that is not finite in float32"
            if numbers[bad[0]] != numbers[bad[0]]:
                what = f"{value!r}, which is not a number"
            raise FormatError(self.path, f"column {column.name!r} contains {what}", row=first_row + int(bad[0]))
        return numbers

    def _numbers(self, column: Any, name: str, first_row: int) -> np.ndarray:
        """Return a column as float32, of shape (n,) or, if it contains lists of numbers, (n, width)."""
        if len(column) > 0 and isinstance(column.iloc[0], np.ndarray):
            return self._lists_of_numbers(column, name, first_row)
        numbers = self._floats(column, first_row).astype(np.float32)
        missing = np.flatnonzero(np.isnan(numbers))
        if missing.size > 0:
            raise FormatError(
                self.path,
                f"column {name!r} has no value; fill in the value, or exclude the row",
                row=first_row + int(missing[0]),
            )
        return numbers

    def _lists_of_numbers(self, column: Any, name: str, first_row: int) -> np.ndarray:
        lists = list(column)
        for row, numbers in enumerate(lists, first_row):
            if not isinstance(numbers, np.ndarray) or numbers.size != lists[0].size or numbers.dtype.kind not in "fiu":
                reason = f"column {name!r} must contain a list of {lists[0].size} numbers in every row"
                raise FormatError(self.path, reason, row=row)
            if not np.isfinite(numbers.astype(np.float32)).all():
                raise FormatError(self.path, f"column {name!r} contains a value that is not finite in float32", row=row)
        return np.stack(lists).astype(np.float32)

    def _labels(self, column: Any, options: ReadOptions, first_row: int, n_labels: int) -> Any:
        labels = list(column)
        if options.task == "multilabel" and options.named_labels:
            places = {name: i for i, name in enumerate(options.label_names)}
            lists = [[places[name] for name in _named_labels(cell)] for cell in labels]
            return indicator(lists, len(places))
        if options.task == "multilabel":
            return indicator([self._label_list(one, row) for row, one in enumerate(labels, first_row)], n_labels)
        for row, label in enumerate(labels, first_row):
            if _is_missing(label):
                raise FormatError(self.path, f"has no label in column {options.label!r}", row=row)
        if options.named_labels:
            return label_array("labels", [str(label) for label in labels])
        numbers = [self._number(label, row) for row, label in enumerate(labels, first_row)]
        return np.array(numbers, np.int64)

    def _number(self, label: Any, row: int) -> int:
        number = whole_number(str(label))
        if number is None:
            raise FormatError(self.path, f"label {label!r} is not an integer", row=row)
        return number

    def _label_list(self, cell: Any, row: int) -> list[int]:
        if isinstance(cell, np.ndarray | list | tuple):
            labels: list[int] | None = [self._number(label, row) for label in np.asarray(cell).tolist()]
        else:
            labels = [] if _is_missing(cell) else label_list(str(cell))
        if labels is None:
            raise FormatError(self.path, f"labels must be integers separated by commas, got {cell!r}", row=row)
        try:
            check_labels(labels)
        except ValueError as error:
            raise FormatError(self.path, str(error), row=row) from None
        return labels


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

    def _names(self) -> list[str]:
        for frame, _ in self._frames(None, 1, ()):
            return [str(name) for name in frame.columns]
        raise FormatError(self.path, "has no rows")

    def _frames(self, columns: list[str] | None, n_rows: int, unparsed: Collection[str]) -> Iterator[tuple[Any, int]]:
        pandas = _pandas()
        with open_text(self.path) as file:
            try:
                frames = pandas.read_csv(
                    file.lines,
                    sep=self._separator(),
                    dtype=dict.fromkeys(unparsed, "object"),
                    keep_default_na=False,  # "NA" and "None" can be words or classes
                    na_values=[""],
                    chunksize=n_rows,
                    index_col=False,
                    low_memory=False,
                )
                while True:
                    with warnings.catch_warnings():
                        warnings.simplefilter("error", pandas.errors.ParserWarning)  # rows with too many values
                        frame = next(frames, None)
                    if frame is None:
                        break
                    yield frame if columns is None else frame[columns], file.stored.tell()
            except (ValueError, pandas.errors.ParserWarning) as error:  # the errors of pandas are ValueErrors
                raise FormatError(self.path, f"is not a valid table: {_one_line(error)}") from error


class ParquetSource(TableSource):
    """A Parquet file, or a folder of Parquet files with the same columns, read in alphabetical order.

    Columns with equally long lists of numbers are features too.
    """

    format = "parquet"
    suffixes = (".parquet", ".pq")
    unit = "row"

    def _names(self) -> list[str]:
        files = [(path, self._opened(path)) for path in parquet_files(self.path)]
        names = files[0][1].schema_arrow.names
        for path, file in files:
            if set(file.schema_arrow.names) != set(names):
                raise FormatError(
                    path, f"must have the same columns as {files[0][0].name}, got {_listed(file.schema_arrow.names)}"
                )
        self.extent = sum(file.metadata.num_rows for _, file in files)
        return list(names)

    def _opened(self, path: Path) -> Any:
        arrow, parquet = _imported("pyarrow", "Parquet files"), _imported("pyarrow.parquet", "Parquet files")
        try:
            return parquet.ParquetFile(path)
        except (arrow.ArrowInvalid, OSError) as error:
            raise FormatError(path, f"is not a Parquet file, or is damaged: {_one_line(error)}") from error

    def _frames(self, columns: list[str], n_rows: int, unparsed: Collection[str]) -> Iterator[tuple[Any, int]]:
        _pandas()
        position = 0
        for path in parquet_files(self.path):
            try:
                with self._opened(path) as file:
                    for batch in file.iter_batches(batch_size=n_rows, columns=columns):
                        position += batch.num_rows
                        yield batch.to_pandas(), position
            except OSError as error:
                raise FormatError(path, f"is damaged: {_one_line(error)}") from error


def parquet_files(path: Path) -> list[Path]:
    """Return the Parquet files in a folder, in alphabetical order. For a file, return a list of this file."""
    return sorted([*path.glob("*.parquet"), *path.glob("*.pq")]) if path.is_dir() else [path]


def _texts(frame: Any) -> list[str]:
    columns = [frame[name].fillna("").astype(str) for name in frame.columns]
    return [" ".join(row) for row in zip(*columns, strict=True)]


def _words(texts: list[str], n_bits: int) -> Any:
    from scipy.sparse import csr_array
    from sklearn.feature_extraction.text import HashingVectorizer

    words = HashingVectorizer(n_features=2**n_bits, alternate_sign=False, norm=None, dtype=np.float32)
    return csr_array(words.transform(texts))


def _is_flat(column: Any) -> bool:
    return not any(isinstance(label, np.ndarray) for label in column)


def _named_labels(cell: Any) -> list[str]:
    if isinstance(cell, np.ndarray | list | tuple):
        return [str(name) for name in cell]
    return [] if _is_missing(cell) else split_labels(str(cell))


def _is_missing(value: Any) -> bool:
    return value is None or value != value or value is _pandas().NA


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:10]))
    return f"{shown} and {len(names) - 10} others" if len(names) > 10 else shown


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _pandas() -> Any:
    return _imported("pandas", "tables")


def _imported(module: str, what: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(f"reading {what} needs {package}: pip install 'cmt-numba[cli]'") from error


_ROWS_OF_NAMES = 1000


class JsonlSource(TableSource):
    """A file with one JSON object per line. Its fields are columns of text, numbers or lists of numbers.

    The first 1,000 lines determine the columns. A field that is null or absent has no value.
    """

    format = "jsonl"
    suffixes = (".jsonl", ".ndjson")

    def _names(self) -> list[str]:
        for rows, _ in self._rows(_ROWS_OF_NAMES):
            return list(dict.fromkeys(name for row in rows for name in row))
        raise FormatError(self.path, "has no rows")

    def _frames(self, columns: list[str], n_rows: int, unparsed: Collection[str]) -> Iterator[tuple[Any, int]]:
        pandas = _pandas()
        first_row = 1
        for rows, position in self._rows(n_rows):
            fields = {name: self._column([row.get(name) for row in rows], name, first_row) for name in columns}
            yield (
                pandas.DataFrame({name: pandas.Series(values, dtype=object) for name, values in fields.items()}),
                position,
            )
            first_row += len(rows)

    def _column(self, values: list[Any], name: str, first_row: int) -> list[Any]:
        kinds = set(map(type, values))
        if dict in kinds:
            row = first_row + next(place for place, value in enumerate(values) if type(value) is dict)
            raise FormatError(self.path, f"field {name!r} is an object; it must be text, a number or a list", row=row)
        if list not in kinds:
            return values
        return [self._array(value, name, row) for row, value in enumerate(values, first_row)]

    def _array(self, value: Any, name: str, row: int) -> Any:
        if type(value) is not list:
            return value
        try:
            array = np.asarray(value)
        except (ValueError, OverflowError):  # ragged nested lists, or integers that are too large
            array = np.zeros((0, 0))
        if array.ndim != 1 or array.dtype.kind == "O" or len({isinstance(entry, str) for entry in value}) > 1:
            raise FormatError(self.path, f"field {name!r} must be a list of numbers or a list of text", row=row)
        return array

    def _rows(self, n_rows: int) -> Iterator[tuple[list[dict[str, Any]], int]]:
        """Yield lists of up to ``n_rows`` objects, each with the position in the file."""
        rows: list[dict[str, Any]] = []
        position = 0
        for block in read_blocks(self.path, self.block_bytes):
            for number, line in enumerate(block.data.split(b"\n"), block.first_line):
                if not line.strip():
                    continue
                rows.append(self._row(line, number))
                if len(rows) == n_rows:
                    yield rows, position
                    rows = []
            position = block.position
        if rows:
            yield rows, position

    def _row(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            row = json.loads(line)
            if rb"\ud" in line.lower():
                json.dumps(row, ensure_ascii=False).encode()  # fails for lone surrogates
        except (ValueError, RecursionError) as error:
            raise FormatError(self.path, f"is not JSON: {' '.join(str(error).split())}", line=number) from None
        if type(row) is not dict:
            reason = 'must be a JSON object such as {"text": "hello", "label": "a"}'
            raise FormatError(self.path, f"{reason}, got {line.decode('utf-8', 'replace').strip():.50}", line=number)
        return row
