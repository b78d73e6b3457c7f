"""Records of a store: an SQLite table of keys and payloads, and a table of keys in memory for queries."""

import json
import re
import sqlite3
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .._kernels import GrowingColumns
from ..journal import Entry, ExtraTables, SchemaRow, SharedConnection
from ..persistence import FileFormatError
from ._checks import Key
from ._where import Condition, extract, field_path

_RECORDS = (
    "CREATE TABLE records "
    "(id INTEGER PRIMARY KEY, key NOT NULL UNIQUE, payload TEXT, text TEXT, expires REAL, changed INTEGER, "
    "checksum INTEGER)"
)
_EXPIRIES = "CREATE INDEX expiries ON records (expires) WHERE expires IS NOT NULL"
_FACTS = "CREATE TABLE facts (name TEXT PRIMARY KEY, value)"
_INDEX = "field "  # indexes on fields are named by this prefix and the path
_PATH = re.compile(r'\$(\."[^"\\]+")+')
_FIXED = {
    ("table", "records", "records", _RECORDS),
    ("index", "sqlite_autoindex_records_1", "records", None),
    ("index", "expiries", "records", _EXPIRIES),
    ("table", "facts", "facts", _FACTS),
    ("index", "sqlite_autoindex_facts_1", "facts", None),
}
_AT_ONCE = 10_000  # number of rows per fetch
_FEW = 64  # break-even point: up to this many ids, one SQL parameter per id is faster than a JSON list
_MOST_FOUND = 1024  # number of keys of recent results whose ids are kept
_AS_LONG = 8  # a lookup takes about as long as reading this many records


def _create_index(path: str) -> str:
    """Return the statement that creates an index on a field. The path must be quoted as an SQL string."""
    name = (_INDEX + path[1:-1].replace("''", "'")).replace('"', '""')
    return f'CREATE INDEX "{name}" ON records ({extract(path)})'


def _are_ours(schema: list[SchemaRow]) -> bool:
    rows = set(schema)
    for row in rows - _FIXED:
        kind, name, table, statement = row
        if kind != "index" or table != "records" or not isinstance(name, str) or not name.startswith(_INDEX):
            return False
        path = name.removeprefix(_INDEX)
        if not _PATH.fullmatch(path) or statement != _create_index("'" + path.replace("'", "''") + "'"):
            return False
    return rows >= _FIXED


def _checksum(memory_id: int, key: Any, payload: str | None, text: str | None, expires: float | None) -> int:
    """Return a checksum of a record."""
    return zlib.crc32(f"{memory_id} {key!r} {expires}\0{payload}\0{text}".encode("utf-8", "surrogatepass"))


CHANGES_OF_RECORDS = ("replace", "remove", "update")
"""Operations of the state with the ids of the records that change with it."""

_FUNCTIONS = {"checksum_of": _checksum}
_CHECKSUM = "checksum_of(id, key, payload, text, expires)"
_INSERT = "INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?)"


class ExpiredIds(NamedTuple):
    """The expired records between two times."""

    ids: np.ndarray  # int64, ascending
    since: float  # the time at which the last of them expired. The clock may step back behind it.
    until: float  # the time at which the next record expires


_NO_IDS = np.empty(0, np.int64)
_UNKNOWN = ExpiredIds(_NO_IDS, np.inf, -np.inf)


def _changed_ids(entry: Entry) -> np.ndarray:
    """Return the ids of the records that an operation has changed."""
    arguments, after = entry.arguments, entry.after
    if entry.name == "insert" and after is not None:
        X = arguments["words"] if arguments["X"] is None else arguments["X"]
        return np.arange(after["next_id"] - X.shape[0], after["next_id"])
    ids: np.ndarray = arguments["ids"] if entry.name in CHANGES_OF_RECORDS else np.empty(0, np.int64)
    return ids


_UNCHANGED = "SELECT count(*) FROM json_each(?) AS j CROSS JOIN records AS r ON r.id = j.value WHERE r.changed <= ?"
TABLES = ExtraTables((_RECORDS, _EXPIRIES, _FACTS), _are_ours, _FUNCTIONS, _UNCHANGED)
"""The tables of a store, in the database of a journal or in a database in memory."""


class MemoryDatabase:
    """A database in memory, with bytes from :meth:`Records.packed`, or with empty tables."""

    path = None  # it has no file

    def __init__(self, contents: bytes | None = None) -> None:
        options: Any = {"isolation_level": None, "check_same_thread": False}
        self._connection = sqlite3.connect(":memory:", factory=SharedConnection, **options)
        for name, function in _FUNCTIONS.items():
            self._connection.create_function(name, -1, function, deterministic=True)
        if contents is None:
            for statement in TABLES.statements:
                self.execute(statement)
            return
        given = sqlite3.connect(":memory:", isolation_level=None)
        try:
            given.deserialize(contents)
            given.execute("PRAGMA cell_size_check = ON")
            if not _are_ours(given.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema").fetchall()):
                raise ValueError("its database does not have the tables of a store")
            if given.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",):
                raise ValueError("its database is damaged")
            given.backup(self._connection)  # a deserialized database cannot grow beyond 1 GiB
        except sqlite3.Error as error:
            raise ValueError(f"its database is damaged: {error}") from error
        finally:
            given.close()

    def execute(self, statement: str, values: SchemaRow = (), ids: Any = None) -> list[SchemaRow]:
        """Execute a statement, and return all rows of its result. Only readers use ``ids``."""
        with self._connection.turn:
            return self._connection.execute(statement, values).fetchall()

    def execute_many(self, statement: str, rows: Iterable[SchemaRow]) -> None:
        """Execute a statement once for each row of values, in a transaction, which the first one begins."""
        if not self._connection.in_transaction:
            self._connection.execute("BEGIN")
        self._connection.executemany(statement, rows)

    def commit(self) -> None:
        """Commit the transaction, if there is one."""
        self._connection.commit()

    def roll_back(self) -> None:
        """Roll back the transaction, if there is one."""
        if self._connection.in_transaction:
            self._connection.rollback()

    def serialized(self) -> bytes:
        """Return the database as bytes."""
        return self._connection.serialize()

    def close(self) -> None:
        """Close the database and free its memory."""
        self._connection.close()


GONE, WITHOUT, WITH = 0, 1, 2
"""Kinds of records: deleted, without a payload, with a payload."""

_KIND = f"iif(payload IS NULL, {WITHOUT}, {WITH})"


class NamedMemories(NamedTuple):
    """The records found for some ids, as arrays of the same shape."""

    ids: np.ndarray  # int64
    keys: np.ndarray  # int64 or object; arbitrary where there is no record
    ids_found: np.ndarray  # int64; differs from ``ids`` where there is no record
    kinds: np.ndarray  # int8; GONE, WITHOUT or WITH

    @property
    def are_there(self) -> np.ndarray:
        """Whether each id has a record."""
        return (self.ids_found == self.ids) & (self.kinds != GONE)

    # Each query calls the next two methods. For short arrays, comparing bytes is several times faster than comparing
    # arrays.

    def are_all_there(self) -> bool:
        """Return whether all ids have records."""
        return self.ids_found.tobytes() == self.ids.tobytes() and GONE not in self.kinds.tobytes()

    def may_have_payloads(self) -> bool:
        """Return False if no record has a payload."""
        return WITH in self.kinds.tobytes()


class KeyTable:
    """The key and the kind of each record, by id.

    Threads may read while one thread changes the table: new columns are swapped in atomically, and existing arrays do
    not change, except for kinds. A record takes 17 bytes, plus the key if it is a string.

    A new table is empty. Until ``is_complete`` is set, it has the records up to some id, and ignores later ones.
    """

    def __init__(self) -> None:
        # int64: ids in ascending order; int64 or object: their keys; int8: WITH or WITHOUT, GONE after a deletion
        self._columns = GrowingColumns(np.empty(0, np.int64), as_array([]), np.empty(0, np.int8))
        self._n_gone = 0
        self.is_complete = False
        self._forget_found()

    @property
    def last_id(self) -> int:
        """The last id in the table, or -1 if it is empty."""
        ids = self._columns.columns[0]
        return int(ids[-1]) if ids.size > 0 else -1

    @property
    def kind(self) -> type | None:
        """The type of the keys, or None if there are none."""
        if len(self._columns) == self._n_gone:
            return None
        return str if self._columns.columns[1].dtype == object else int

    def _forget_found(self) -> None:
        # Recent results of ``find``, and the ids by key of those before, until a record is deleted
        self._found: deque[NamedMemories] = deque(maxlen=_FEW)
        self._ids_found: dict[Any, int] = {}

    def find(self, ids: np.ndarray) -> NamedMemories:
        """Return the records for an array of ids of any shape."""
        all_ids, keys, kinds = self._columns.columns
        n = all_ids.size
        if n == 0:
            nothing = np.full(ids.shape, None, object)
            return NamedMemories(ids, nothing, ids, np.full(ids.shape, GONE, np.int8))
        first = all_ids.item(0)
        if all_ids.item(n - 1) - first < n:  # ids are contiguous
            at = (ids - first if first > 0 else ids) % n  # indexing, unlike take, keeps the interpreter lock
            ids_found = at + first if first > 0 else at
        else:
            at = all_ids.searchsorted(ids) % n
            ids_found = all_ids[at]
        found = NamedMemories(ids, keys[at], ids_found, kinds[at])
        if ids.size <= _FEW:
            self._found.append(found)
        return found

    def recent_ids(self) -> dict[Any, int]:
        """Return the ids in recent small results of :meth:`find` by key. Only one thread at a time may call this."""
        while self._found:
            found = self._found.popleft()
            if not found.are_all_there():
                continue
            if len(self._ids_found) > _MOST_FOUND:
                self._ids_found = {}
            self._ids_found.update(zip(found.keys.reshape(-1).tolist(), found.ids.reshape(-1).tolist(), strict=True))
        return self._ids_found

    def append(self, ids: np.ndarray, keys: Sequence[Key], kinds: np.ndarray) -> None:
        """Add records. Their ids must exceed all others, and their keys must be of one type."""
        if len(self._columns) == self._n_gone:  # an empty table takes keys of either type
            self._columns, self._n_gone = GrowingColumns(ids, as_array(keys), kinds), 0
        else:
            self._columns = self._columns.appended(ids, as_array(keys), kinds)

    def mark(self, ids: np.ndarray, new_kinds: np.ndarray) -> None:
        """Update which memories have payloads."""
        all_ids, _, kinds = self._columns.columns
        at = all_ids.searchsorted(ids)
        is_known = at < all_ids.size
        kinds[at[is_known]] = new_kinds[is_known]

    def follow(self, changed: np.ndarray, rows: list[SchemaRow]) -> None:
        """Apply changes that a writer has made: the ids that may have changed, and the rows of those that are stored.

        A row has the id, the key and the kind.
        """
        last = self.last_id
        ids, kinds = (np.array([row[i] for row in rows], np.int64) for i in (0, 2))
        self.delete(np.setdiff1d(changed, ids))
        are_old = ids <= last
        self.mark(ids[are_old], kinds[are_old].astype(np.int8))
        if self.is_complete and not are_old.all():
            keys: Any = [row[1] for row in rows if row[0] > last]  # type: ignore[operator]
            self.append(ids[~are_old], keys, kinds[~are_old].astype(np.int8))

    def delete(self, ids: np.ndarray) -> None:
        """Delete records."""
        self._forget_found()
        all_ids, keys, kinds = self._columns.columns
        n = all_ids.size
        if n == 0 or ids.size == 0:
            return
        at = np.minimum(all_ids.searchsorted(ids), n - 1)
        at = at[(all_ids[at] == ids) & (kinds[at] != GONE)]
        kinds[at] = GONE
        self._n_gone += at.size
        if 2 * self._n_gone > n:
            left = np.flatnonzero(kinds != GONE)
            self._columns = GrowingColumns(all_ids[left], keys[left], kinds[left])
            self._n_gone = 0


def as_array(keys: Sequence[Key | None]) -> np.ndarray:
    """Return keys of one type as an array of int64, or of objects for strings."""
    if len(keys) > 0 and isinstance(keys[0], int):
        return np.array(keys, np.int64)
    array = np.empty(len(keys), object)
    array[:] = keys
    return array


class Records:
    """The records of a store by memory id, in the tables of ``database``.

    - ``next_change``: returns the number of the next change, which is stored in the rows that it writes.
    """

    def __init__(self, database: Any) -> None:
        self._database = database
        self.next_change: Callable[[], int] = int
        self._table = KeyTable()
        self._reading = threading.Lock()
        self._expired = _UNKNOWN
        self._now: float | None = None

    # Expiry

    def expired(self) -> np.ndarray:
        """Return the ids of expired records, ascending: the same array until another record expires.

        Methods that find or list records leave these out.
        """
        now, found = self._time(), self._expired
        if not found.since <= now < found.until:
            # Without INDEXED BY, SQLite reads all records in the order of ids.
            statement = "SELECT id, expires FROM records INDEXED BY expiries WHERE expires <= ? ORDER BY id"
            rows: Any = self._database.execute(statement, (now,))
            until: Any = self._database.execute("SELECT min(expires) FROM records WHERE expires > ?", (now,))
            found = ExpiredIds(
                np.array([memory_id for memory_id, _ in rows], np.int64) if rows else _NO_IDS,
                max((at for _, at in rows), default=-np.inf),
                np.inf if until[0][0] is None else until[0][0],
            )
            self._expired = found
        return found.ids

    def freeze_time(self) -> None:
        """Let no record expire until :meth:`resume_time`, so that a change sees the same records throughout."""
        self._now = time.time()

    def resume_time(self) -> None:
        """Let records expire again."""
        self._now = None

    def _time(self) -> float:
        return time.time() if self._now is None else self._now

    def _none_expires(self) -> bool:
        return self.expired().size == 0 and self._expired.until == np.inf

    def _is_live(self) -> Condition:
        """Return the condition that a record has not expired."""
        if self._none_expires():
            return Condition("1")
        return Condition("(expires IS NULL OR expires > ?)", (self._time(),))

    # Reading

    def named(self, ids: np.ndarray) -> NamedMemories:
        """Return the records for an array of ids of any shape.

        The first lookups read the database. Each of them also reads some keys into the table, until it is complete.
        """
        if not self._table.is_complete:
            self._read_keys(_AS_LONG * ids.size)
        table = self._table
        return table.find(ids) if table.is_complete else self._look_up(ids)

    def _look_up(self, ids: np.ndarray) -> NamedMemories:
        listed = ids.reshape(-1).tolist()
        found = {row[0]: row[1:] for row in self._named_rows(listed)}
        nothing = next(iter(found.values()), (None, 0))[0], GONE
        all_rows: Any = [found.get(memory_id, nothing) for memory_id in listed]
        keys, kinds = as_array([row[0] for row in all_rows]), np.array([row[1] for row in all_rows], np.int8)
        return NamedMemories(ids, keys.reshape(ids.shape), ids, kinds.reshape(ids.shape))

    def _named_rows(self, ids: list[int]) -> list[SchemaRow]:
        """Return the id, the key and the kind of the existing records among ids, in any order."""
        columns = f"SELECT r.id, r.key, {_KIND} FROM"
        if len(ids) <= _FEW:
            rows = self._database.execute(f"{columns} records AS r WHERE id IN {_places(ids)}", tuple(ids), ids)
        else:
            statement = f"{columns} json_each(?) AS j CROSS JOIN records AS r ON r.id = j.value"
            rows = self._database.execute(statement, (json.dumps(list(set(ids))),), ids)
        return list(rows)

    def keep_keys(self) -> KeyTable:
        """Return the table of all keys. The first call reads it from the database."""
        while not self._table.is_complete:
            self._read_keys(_AT_ONCE)
        return self._table

    def _read_keys(self, n: int) -> None:
        """Read the next keys into the table: ``n`` of them, or more in several steps."""
        # Fetching columns as JSON takes a third of the time of fetching rows of objects.
        rows = f"SELECT id, key, {_KIND} AS kind FROM records WHERE id > ? ORDER BY id LIMIT ?"
        statement = f"SELECT json_group_array(id), json_group_array(key), json_group_array(kind) FROM ({rows})"
        while n > 0 and not self._table.is_complete:
            with self._reading:
                table, most = self._table, min(n, _AT_ONCE)
                found: Any = self._database.execute(statement, (table.last_id, most))
                ids, keys, kinds = map(json.loads, found[0])
                if ids:
                    table.append(np.array(ids, np.int64), keys, np.array(kinds, np.int8))
                table.is_complete = len(ids) < most
            n -= most

    def forget(self, database: Any = None) -> None:
        """Drop the table of keys, because a change was rolled back or for another database."""
        with self._reading:
            self._table = KeyTable()
            self._expired = _UNKNOWN
            if database is not None:
                self._database = database

    def follow(self, entries: Iterable[Entry]) -> None:
        """Follow the changes that a writer has made with some entries."""
        with self._reading:
            ids = np.unique(np.concatenate([_changed_ids(entry) for entry in entries]))
            self._table.follow(ids, sorted(self._named_rows(ids.tolist())))
            self._expired = _UNKNOWN
        self.expired()

    def find(self, keys: Sequence[Key]) -> np.ndarray:
        """Return the id of each key as int64, or -1 if it is not stored."""
        ids, expired = self._find(keys), self.expired()
        return ids if expired.size == 0 else np.where(np.isin(ids, expired), -1, ids)

    def _find(self, keys: Sequence[Key]) -> np.ndarray:
        if len(keys) <= _FEW:
            with self._reading:
                known = self._table.recent_ids()
                few = [known.get(key, -1) for key in keys]
            if -1 in few:
                statement = f"SELECT key, id FROM records WHERE key IN {_places(keys)}"
                known = dict(self._database.execute(statement, tuple(keys)))
                few = [known.get(key, -1) for key in keys]
            return np.array(few, np.int64)
        ids = np.full(len(keys), -1, np.int64)
        statement = "SELECT j.key, r.id FROM json_each(?) AS j CROSS JOIN records AS r ON r.key = j.value"
        found = self._database.execute(statement, (json.dumps(keys, ensure_ascii=False),))
        if found:
            positions, there = np.array(found, np.int64).T
            ids[positions] = there
        return ids

    def payloads(self, ids: list[int]) -> dict[int, str]:
        """Return a dict of the existing payloads by id, as JSON texts."""
        return self._column("payload", "NOT json_valid(payload)", ids)

    def texts(self, ids: list[int]) -> dict[int, str]:
        """Return a dict of the existing texts by id."""
        return self._column("text", "typeof(text) != 'text'", ids)

    def expiries(self, ids: list[int]) -> dict[int, float]:
        """Return a dict of the existing times of expiry by id, in seconds since 1970."""
        return {} if self._none_expires() else self._column("expires", "typeof(expires) != 'real'", ids)

    def values(self, order: str, ids: list[int]) -> dict[int, Any]:
        """Return a dict of the existing values of a field by id; ``order`` is its SQL expression."""
        return self._column(order, "0", ids)

    def _column(self, name: str, is_damaged: str, ids: list[int]) -> dict[int, Any]:
        """Return the existing values of a column by id, unless one satisfies the condition ``is_damaged``."""
        columns = f"SELECT r.id, {name}, {is_damaged} FROM"
        statement = f"{columns} json_each(?) AS j CROSS JOIN records AS r ON r.id = j.value WHERE {name} IS NOT NULL"
        if len(ids) <= _FEW:
            statement = f"{columns} records AS r WHERE {name} IS NOT NULL AND id IN {_places(ids)}"
        found: Any = self._database.execute(statement, tuple(ids) if len(ids) <= _FEW else (json.dumps(ids),), ids)
        if any(row[2] for row in found):
            self._refuse(f"has a damaged {name}")
        return {memory_id: value for memory_id, value, _ in found}

    def _refuse(self, reason: str) -> None:
        path = self._database.path
        raise ValueError(f"the store {reason}") if path is None else FileFormatError(path, reason)

    def ids_of_texts(self) -> np.ndarray:
        """Return the ids of all records with a text, in ascending order."""
        found: Any = self._database.execute("SELECT id FROM records WHERE text IS NOT NULL ORDER BY id")
        return np.array([memory_id for (memory_id,) in found], np.int64)

    def kind(self) -> type | None:
        """Return the type of the keys, or None if there are none."""
        if self._table.is_complete:
            return self._table.kind
        found = self._database.execute("SELECT key FROM records LIMIT 1")
        return type(found[0][0]) if found else None

    def summary(self) -> tuple[int, int]:
        """Return the number of records and the sum of their ids. This reads the index of keys, but no payloads."""
        found: Any = self._database.execute(
            "SELECT count(*), coalesce(sum(id), 0), min(typeof(key)), max(typeof(key)) FROM records"
        )
        n, sum_of_ids, *kinds = found[0]
        if kinds not in ([None, None], ["text", "text"], ["integer", "integer"]):
            raise ValueError("its keys are not all strings or all integers")
        return n, sum_of_ids

    def ids(self, condition: Condition = Condition("1")) -> np.ndarray:  # noqa: B008 - immutable
        """Return the ids of records that match a condition, in ascending order."""
        live = self._is_live()
        return self._select(Condition(f"({condition.sql}) AND {live.sql}", (*condition.values, *live.values)))

    def all_ids(self) -> np.ndarray:
        """Return the ids of all records, also of expired ones, in ascending order."""
        return self._select(Condition("1"))

    def _select(self, condition: Condition) -> np.ndarray:
        # Fetching one JSON text takes two thirds of the time of fetching rows of objects.
        statement = f"SELECT json_group_array(id) FROM records WHERE {condition.sql}"
        found: Any = self._database.execute(statement, condition.values)
        return np.sort(np.array(json.loads(found[0][0]), np.int64))

    def ordered(
        self, ids: np.ndarray | None, order: str, descending: bool, limit: int | None, offset: int
    ) -> np.ndarray:
        """Return some of all ids, or of given ones, ordered by an SQL expression. Rows where it is null come last."""
        among = self._is_live()
        if ids is not None:
            among = Condition("id IN (SELECT value FROM json_each(?))", (json.dumps(ids.tolist()),))
        direction = "DESC" if descending else "ASC"
        statement = (
            f"SELECT id FROM records WHERE {among.sql} ORDER BY {order} {direction} NULLS LAST, id {direction} "
            "LIMIT ? OFFSET ?"
        )
        found: Any = self._database.execute(statement, (*among.values, -1 if limit is None else limit, offset))
        return np.array([memory_id for (memory_id,) in found], np.int64)

    def keys(self, ids: np.ndarray) -> list[Key]:
        """Return the keys of stored ids, in their order."""
        named = self.keep_keys().find(ids) if ids.size > _AT_ONCE else self._look_up(ids)
        keys: list[Key] = named.keys.tolist()
        return keys

    def kind_of_field(self, path: str) -> str | None:
        """Return the JSON type of a field in the first payload that has it, or None if no payload does."""
        kind = f"json_type(payload, {path})"
        found: Any = self._database.execute(f"SELECT {kind} FROM records WHERE {kind} IS NOT NULL LIMIT 1")
        return found[0][0] if found else None

    def ends_of_field(self, path: str) -> list[Any]:
        """Return a field of the first and of the last payload that has it."""
        value = f"json_extract(payload, {path})"
        found: list[Any] = []
        for order in ("ASC", "DESC"):
            statement = f"SELECT {value} FROM records WHERE {value} IS NOT NULL ORDER BY id {order} LIMIT 1"
            found += self._database.execute(statement)
        return [one for (one,) in found]

    def names_of_fields(self) -> list[str]:
        """Return the names of the fields of some payloads."""
        some = f"SELECT payload FROM records WHERE json_type(payload) = 'object' LIMIT {_FEW}"
        statement = f"SELECT DISTINCT e.key FROM ({some}) AS r, json_each(r.payload) AS e ORDER BY e.key LIMIT {_FEW}"
        return [str(name) for (name,) in self._database.execute(statement)]

    def after(self, memory_id: int, n: int = _AT_ONCE) -> list[tuple[int, Key, str | None]]:
        """Return the id, key and payload of the next ``n`` records after an id, or fewer at the end."""
        live = self._is_live()
        statement = f"SELECT id, key, payload FROM records WHERE id > ? AND {live.sql} ORDER BY id LIMIT ?"
        found: Any = self._database.execute(statement, (memory_id, *live.values, n))
        return list(found)

    def check(self) -> None:
        """Raise FileFormatError, or in memory ValueError, if a record or an index of the database is damaged."""
        if self._database.execute("PRAGMA integrity_check(1)") != [("ok",)]:
            self._refuse("is damaged: its indexes do not match its rows")
        if self._database.execute(f"SELECT EXISTS (SELECT 1 FROM records WHERE checksum IS NOT {_CHECKSUM})") != [(0,)]:
            self._refuse("has a damaged key, payload or text")

    # Changes, in a transaction

    def insert(
        self,
        ids: np.ndarray,
        keys: Sequence[Key],
        payloads: Sequence[str | None],
        texts: Sequence[str | None],
        expires: Sequence[float | None],
    ) -> None:
        """Write new records."""
        rows, number = zip(ids.tolist(), keys, payloads, texts, expires, strict=True), self.next_change()
        with self._reading:
            self._database.execute_many(_INSERT, ((*row, number, _checksum(*row)) for row in rows))
            if self._table.is_complete:
                self._table.append(ids, keys, _kinds_of(payloads))
        self._note_times(expires)

    def replace(
        self,
        ids: np.ndarray,
        payloads: Sequence[str | None],
        texts: Sequence[str | None],
        expires: Sequence[float | None],
    ) -> None:
        """Replace everything but the keys of records."""
        rows, number = zip(ids.tolist(), payloads, texts, expires, strict=True), self.next_change()
        named = ({"id": i, "payload": p, "text": t, "expires": e, "number": number} for i, p, t, e in rows)
        statement = (
            "UPDATE records SET payload = :payload, text = :text, expires = :expires, changed = :number, "
            "checksum = checksum_of(id, key, :payload, :text, :expires) "
            "WHERE id = :id AND (payload IS NOT :payload OR text IS NOT :text OR expires IS NOT :expires)"
        )
        with self._reading:
            self._database.execute_many(statement, named)
            self._table.mark(ids, _kinds_of(payloads))
        self._note_times(expires)

    def _note_times(self, expires: Sequence[float | None]) -> None:
        if any(one is not None for one in expires):
            self._expired = _UNKNOWN

    def set_payloads(self, ids: np.ndarray, payloads: Sequence[str | None]) -> None:
        """Replace the payloads of records."""
        rows, number = zip(ids.tolist(), payloads, strict=True), self.next_change()
        checksum = _CHECKSUM.replace("payload", ":payload")
        statement = f"UPDATE records SET payload = :payload, checksum = {checksum}, changed = :number WHERE id = :id"
        with self._reading:
            named = ({"id": memory_id, "payload": payload, "number": number} for memory_id, payload in rows)
            self._database.execute_many(statement, named)
            self._table.mark(ids, _kinds_of(payloads))

    def delete(self, ids: np.ndarray) -> None:
        """Delete records."""
        rows = [(memory_id,) for memory_id in ids.tolist()]
        with self._reading:
            self._database.execute_many("DELETE FROM records WHERE id = ?", rows)
            self._table.delete(ids)
        if self._expired.ids.size > 0:
            self._expired = _UNKNOWN

    # Facts about the store

    def facts(self) -> dict[str, Any]:
        """Return all facts by name."""
        found: Any = self._database.execute("SELECT name, value FROM facts")
        return dict(found)

    def set_facts(self, facts: dict[str, Any]) -> None:
        """Write facts."""
        self._database.execute_many("INSERT OR REPLACE INTO facts VALUES (?, ?)", list(facts.items()))

    def delete_facts(self, names: Iterable[str]) -> None:
        """Delete facts."""
        self._database.execute_many("DELETE FROM facts WHERE name = ?", ((name,) for name in names))

    # Indexes

    def fields(self) -> list[str]:
        """Return the paths of the indexed fields."""
        found: Any = self._database.execute("SELECT name FROM sqlite_schema WHERE type = 'index' ORDER BY name")
        return [name.removeprefix(_INDEX) for (name,) in found if name.startswith(_INDEX)]

    def create_index(self, field: Any) -> None:
        """Create an index on a field, unless it exists."""
        path = field_path(field)
        if path[1:-1].replace("''", "'") not in self.fields():
            self._database.execute(_create_index(path))

    def packed(self) -> bytes:
        """Return records and facts as the bytes of a database."""
        copy, own = MemoryDatabase(), self._database
        copy.execute("BEGIN")
        copy.execute_many("INSERT INTO facts VALUES (?, ?)", list(self.facts().items()))
        for path in self.fields():
            copy.execute(_create_index("'" + path.replace("'", "''") + "'"))
        last: Any = -1
        columns = "id, key, payload, text, expires, 0, checksum"
        while rows := own.execute(f"SELECT {columns} FROM records WHERE id > ? ORDER BY id LIMIT {_AT_ONCE}", (last,)):
            copy.execute_many(_INSERT, rows)
            last = rows[-1][0]
        copy.execute("COMMIT")
        contents = copy.serialized()
        copy.close()
        return contents


def _places(values: Sequence[Any]) -> str:
    """Return the parameters of a statement for these values."""
    return f"({','.join('?' * len(values))})"


def _kinds_of(payloads: Sequence[str | None]) -> np.ndarray:
    return np.array([WITHOUT if payload is None else WITH for payload in payloads], np.int8)
