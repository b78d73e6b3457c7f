"""Reader for tables with one JSON object per line."""

import json
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from ._tables import TableSource, _pandas
from ._text import FormatError, read_blocks

_ROWS_OF_NAMES = 1000


class JsonlSource(TableSource):
    """A file with one JSON object per line. Its fields are columns of text, numbers or lists of numbers.

    The first 1,000 lines determine the columns. A field that is null or absent has no value.
    """

    format = "jsonl"

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
        """Return the values of a field, with lists converted to arrays."""
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
        if array.ndim != 1 or array.dtype.kind == "O":
            raise FormatError(self.path, f"field {name!r} must be a list of numbers", row=row)
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
