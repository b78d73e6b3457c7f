"""``StoreContents``: the records and the vectors of a store, changed together in memory, in a folder or in a file."""

import os
from collections import Counter
from collections.abc import Callable, Sized
from contextlib import suppress
from functools import partial, wraps
from hashlib import blake2b
from typing import Any, NamedTuple, Self, TypeVar, cast

import numpy as np
import scipy.sparse

from .._change import ReadWriteLock, spans, uninterrupted
from .._index import DenseIndex
from .._jit import switching_soon
from .._kernels import NONE, InvariantError
from .._postings import WordStatistics
from .._validation import as_rows, check_entries, check_matrix, check_rewards
from .._words import Tokenizer, check_same_tokenizer, count_words
from ..journal import Durability, DurableForm, Entry, Journal, JournalError, check_same_option, unpack_entry
from ..persistence import Contents, FileFormatError, read_object, refusing, write_object
from . import _checks as checks
from ._hybrid_search import find_competitors, learn_weights, mark_passed
from ._records import TABLES, MemoryDatabase, Records
from ._results import UnreadColumns, read_payload
from ._spelling import NearWords, Spelling
from ._state import StoreOptions, StoreState, check_operation
from ._word_vectors import rows_of_words


class MemoriesOfOthers(NamedTuple):
    """Memories of other shards."""

    others: np.ndarray  # int64: their ids, below -1 and ascending
    vectors: Any  # their vectors

    @classmethod
    def of(cls, keys: list[checks.Key], vectors: Any) -> Self:
        """Return memories with distinct keys."""
        ids, first = np.unique(other_ids(keys), return_index=True)
        return cls(ids, vectors[first])


def other_ids(keys: list[checks.Key]) -> np.ndarray:
    """Return the ids of memories of other shards. They are derived from the keys."""
    digests = [blake2b(repr(key).encode(), digest_size=8).digest() for key in keys]
    numbers = np.array([int.from_bytes(digest, "little") >> 2 for digest in digests], np.int64)
    return -2 - numbers


T = TypeVar("T")
Method = TypeVar("Method", bound=Callable[..., Any])

ROWS_IN_A_STEP = 256  # number of dense rows to write in a few milliseconds, for which queries wait
ROWS_LEARNED_IN_A_STEP = 16  # number of rows with rewards to learn in a few milliseconds
_OPERATIONS: dict[str, Callable[..., object]] = {
    "insert": StoreState.insert,
    "replace": StoreState.replace,
    "remove": StoreState.remove,
    "update": StoreState.update,
    "forget": StoreState.forget,
    "learn": StoreState.learn,
    "note_returned": StoreState.note_returned,
}
"""The operations in entries of a journal. Their names and arguments are part of the format."""


def in_transaction(method: Method) -> Method:
    """Decorate a method of :class:`StoreContents` to run as one transaction."""

    @wraps(method)
    def changing(self: "StoreContents", *args: Any, **kwargs: Any) -> Any:
        return self.change(partial(method, self, *args, **kwargs))

    return cast(Method, changing)


class MemoryContent(NamedTuple):
    """New or replaced memories, without their keys."""

    X: Any  # vectors, or None if the memories have none
    words: Any  # the words of their texts, or None if they have no texts
    texts: list[str | None]
    payloads: list[str | None]
    expires: list[float | None]  # seconds since 1970

    def rows(self, rows: np.ndarray | slice) -> Self:
        """Return some of the memories."""
        if isinstance(rows, slice) and rows == slice(0, len(self.payloads)):
            return self
        X, words = (None if part is None else part[rows] for part in (self.X, self.words))
        numbers = range(len(self.texts))[rows] if isinstance(rows, slice) else rows
        texts, payloads = ([part[row] for row in numbers] for part in (self.texts, self.payloads))
        return type(self)(X, words, texts, payloads, [self.expires[row] for row in numbers])


class StoreContents(DurableForm):
    """The contents of a store. Each change is one transaction.

    In a folder, a journal records and repeats the operations of the state. A thread that holds ``lock`` for reading
    sees vectors and records that belong together. Data computed from the store is valid while ``stamp``, which is None
    during a change, is the same object.
    """

    kind = "MemoryStore"
    unread = frozenset({"index.vectors"})
    essential = "n_memories", "next_id"
    _database: MemoryDatabase | None  # of a store in memory
    _tokenizer: Tokenizer | None
    journal: Journal | None

    def __init__(self, path: str | os.PathLike[str] | None, given: dict[str, Any], durability: Durability) -> None:
        options = StoreOptions.of(given)
        self._begin(StoreState(options))
        self._given, self._tokenizer = given, given.get("tokenizer")
        if path is None:
            durability.checked()
            self._database = MemoryDatabase()
            self.records = Records(self._database)
            self.records.keep_keys()
        else:
            self.records = Records(None)
            self.journal = journal = Journal(path, self, durability, tables=TABLES)
            self.records.forget(journal.folder.database)
            self.records.next_change = lambda: journal.sequence + 1
            self._reads_in_place = not journal.is_writable
            try:
                with refusing(self.journal.path):
                    self._at_one_state(partial(self.check, thorough=False))
            except BaseException:
                self.close()
                raise

    def _begin(self, state: StoreState) -> None:
        self.lock = ReadWriteLock(level=1)
        self._database, self.journal = None, None
        self._reads_in_place = False  # whether the records are those of another writer
        self._tokenizer = None
        self.stamp: object | None = object()
        # The writer of a folder changes rows without notice to readers, which therefore read them at once.
        self.unread_columns = UnreadColumns(lambda: self.stamp is None or self._reads_in_place)
        self._is_closed = False
        self.state = state
        self._undo: list[Callable[[], object]] | None = None  # undoes the steps of a change; None between changes
        self._failed: list[Callable[[], object]] | None = None  # undoes what is left of a failed change
        self._put(state)

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer of texts. Raise ValueError if it is not the one of the stored texts."""
        check_same_tokenizer(self._tokenizer, self.state.options.tokenizer)
        return self._tokenizer

    def near_words(self, words: list[str]) -> NearWords:
        """Return the words of stored texts that are near to each word that no text has."""
        index = self.state.texts
        if index.spelling is None:
            index.spelling = Spelling(index.ids)
        near: NearWords = index.spelling.near(words, index, self.records, self.tokenizer)
        return near

    def _put(self, state: StoreState) -> None:
        if self.journal is not None and state is not self.state:
            self.records.forget()
        self.state, self.stamp = state, object()

    @classmethod
    def of_file(cls, path: str | os.PathLike[str], tokenizer: Any, *, mmap: bool) -> Self:
        """Read a file into contents in memory."""
        contents = read_object(path, (cls.kind,), mmap=mmap)
        with refusing(path):
            return cls.read(contents, tokenizer, thorough=not mmap)

    @classmethod
    def read(cls, contents: Contents, tokenizer: Any, *, thorough: bool) -> Self:
        """Return contents in memory from the contents of a file."""
        arrays = dict(contents.arrays)
        records = arrays.pop("records", None)
        if records is None or records.dtype != np.uint8 or records.ndim != 1:
            raise ValueError("the records are missing")
        self = cls.__new__(cls)
        self._begin(StoreState._made_of(contents._replace(arrays=arrays)))
        self._tokenizer = tokenizer
        check_same_tokenizer(tokenizer, self.state.options.tokenizer)
        self._database = MemoryDatabase(records.tobytes())
        self.records = Records(self._database)
        self.check(thorough=thorough)
        return self

    # Checks

    @property
    def path(self) -> str | None:
        """The folder, or None for a store in memory."""
        return None if self.journal is None else os.fspath(self.journal.path)

    @property
    def n_memories(self) -> int:
        """The number of memories that have not expired."""
        if self._is_closed:
            return len(self.state)
        return self._at_one_state(lambda: len(self.state) - self.records.expired().size)

    def check_open(self) -> None:
        """Raise JournalError if the store is closed."""
        self._check_not_closed()
        if self.journal is not None and self.journal.is_behind:
            self.journal.catch_up()
        if self._failed is not None:
            uninterrupted(self.lock.step, self._take_back)

    def _check_not_closed(self) -> None:
        if self._is_closed:
            raise JournalError(f"{self.path or 'the store in memory'}: the store is closed; open it again")

    def shared(self, work: Callable[[], T]) -> T:
        """Run ``work``, which only reads, while no step of a change runs and the store is open. Return its result."""
        self.check_open()

        def read() -> T:
            self._check_not_closed()
            if self._failed is not None:  # another thread has changed it since the check above
                raise MemoryError("a failed change has not been undone yet, because memory was short; try again")
            return work()

        return self._at_one_state(partial(self.lock.read, read))

    def _at_one_state(self, work: Callable[[], T]) -> T:
        """Call ``work``, which reads records, and return its result. A reader refreshes if they have changed."""
        if self.journal is None or not self._reads_in_place:
            return work()
        return self.journal.at_one_state(work)

    def check_vectors(self, X: Any, others: Sized | None = None) -> Any:
        """Return vectors or queries as float32, dense or sparse like the stored vectors.

        A single vector becomes a row. Raise TypeError or ValueError if a row is unusable, or if the number of rows is
        not that of ``others``, the words of texts.
        """
        index, X = self.state.index, as_rows(X)
        if not is_dense(X, index):
            X = check_matrix(X, n_features=None if index is None else index.n_features)
            if index is not None and (self.state.form == "dense") != isinstance(X, np.ndarray):
                X = X.toarray() if self.state.form == "dense" else scipy.sparse.csr_array(X)
        checks.check_values(X, self.state.options.metric)
        if others is not None:
            check_entries("texts", len(others), X.shape[0])
        return X

    def check(self, *, thorough: bool) -> None:
        """Raise ValueError unless vectors and records belong together.

        A check that is not ``thorough`` compares only the number and the sum of their ids.
        """
        ids, of_texts = self.state.ids, self.state.texts.ids
        same = not thorough or (
            np.array_equal(np.sort(ids), self.records.all_ids())
            and np.array_equal(np.sort(of_texts), self.records.ids_of_texts())
        )
        if self.records.summary() != (ids.size, int(ids.sum())) or not same:
            raise ValueError("its keys and texts do not match its memories")
        if thorough:
            self.records.check()

    def check_everything(self) -> None:
        """Raise an error if records and vectors contradict each other, or a file is damaged."""
        self.check_open()
        if self.journal is not None:
            self.journal.verify()
        if self.state.index is not None:
            self.state.index.check_invariants()
        self.state.texts.check_invariants()
        try:
            self.check(thorough=True)
        except FileFormatError:
            raise
        except ValueError as error:
            raise InvariantError(str(error)) from error

    # Changes

    def alone(self, work: Callable[[], T]) -> T:
        """Run ``work`` while no other thread can change the store, and return its result."""
        if self.journal is not None and self.journal.is_writable:
            return self.journal.alone(work)
        return self._at_one_state(partial(self.lock.change, work))

    def change(self, work: Callable[[], T]) -> T:
        """Run ``work`` as one transaction. A nested change is part of the outer one."""
        self.check_open()
        if self.journal is None:
            return self.lock.change(partial(self._attempt, work))
        try:
            if self._undo is None and self.records.expired().size > 0:
                self.journal.change(partial(self._attempt, _do_nothing))  # a failure of ``work`` keeps them deleted
            return self.journal.change(partial(self._attempt, work))
        except (OSError, FileFormatError) as error:
            raise JournalError(f"{self.path}: the change was not made: {error}") from error

    def _attempt(self, work: Callable[[], T]) -> T:
        if self._undo is not None:  # within another change
            return work()
        self._undo, self.stamp = [], None
        self.records.freeze_time()
        try:
            if self.unread_columns.waiting:
                self.unread_columns.read()
            with switching_soon():
                if (expired := self.records.expired()).size > 0:
                    self.lock.step(partial(self._remove, expired))
                if self.journal is not None:
                    return work()
                assert self._database is not None
                self._database.commit()  # expired memories stay removed if the change fails
                if self.state.results:
                    self.enter_notes()  # a journal does this itself
                answer = work()
                self._database.commit()
                return answer
        except BaseException:
            if self.journal is None:  # otherwise it restores the store itself, if anything has changed
                self._failed = self._undo
                with suppress(MemoryError):  # the next use of the store tries again
                    uninterrupted(self.lock.step, self._take_back)
            raise
        finally:
            self._undo, self.stamp = None, object()
            self.records.resume_time()

    def _take_back(self) -> None:
        assert self._database is not None
        while self._failed:
            self._failed[-1]()
            self._failed.pop()
        self._database.roll_back()
        self.records.forget()
        self._failed = None

    @in_transaction
    def write(self, keys: Any, X: Any, payloads: Any, texts: Any, expires: Any = None, *, replace: bool) -> None:
        """Add memories. With ``replace``, keys that are already stored get new contents."""
        own = checks.check_keys(keys)
        n = len(own)
        given, words = check_new_texts(n, X, texts, self.tokenizer)
        if X is not None:
            X = self.check_vectors(X)
            check_entries("keys", n, X.shape[0])
        content = MemoryContent(X, words, given, checks.check_payloads(payloads, n), checks.check_expiries(expires, n))
        ids = self.records.find(own)
        is_old = ids >= 0
        if not is_old.any():
            checks.check_kind(own, self.records.kind())
            self.insert(own, content)
            return
        if not replace:
            key = own[is_old.argmax()]
            message = f"keys must not be in the store yet, but {key!r:.100} is; use upsert to replace it"
            raise checks.DuplicateKeyError(message)
        old, new = is_old.nonzero()[0], (~is_old).nonzero()[0]

        def upsert() -> None:
            replaced = content if new.size == 0 else content.rows(old)
            self._in_steps(replaced, lambda rows: self._replace(ids[old][rows], replaced.rows(rows)))
            if new.size > 0:
                self.insert([own[i] for i in new], content.rows(new))
            if self.state.has_learned(ids[old]):
                self.lock.step(partial(self._forget, ids[old]), is_last=True)  # cannot be undone in memory

        if n <= ROWS_IN_A_STEP:
            self.lock.step(upsert, is_last=True)
        else:
            upsert()

    def _in_steps(self, content: MemoryContent, write: Callable[[slice], None]) -> None:
        """Call ``write`` for slices of some memories, each in a step, so that each memory changes as a whole.

        Indexes of words and of sparse vectors are rebuilt in proportion to their size, so all rows are one step.
        """
        n = len(content.payloads)
        is_dense = content.words is None and len(self.state.texts) == 0 and isinstance(content.X, np.ndarray)
        for first, stop in spans(n, ROWS_IN_A_STEP if is_dense else n):
            self.lock.step(partial(write, slice(first, stop)))

    def _journal(self, name: str, *, counts: bool = True, **arguments: Any) -> None:
        """Append the entry of an operation that has changed the state, if the store is in a folder."""
        if self.journal is not None:
            self.journal.append(Entry(name, arguments, self.fingerprint()), counts=counts)

    def insert(self, keys: list[checks.Key], content: MemoryContent) -> None:
        """Insert memories, within a change, and evict memories if there are more than ``max_items``."""
        state = self.state
        evicted, first, n, index = state.to_evict(len(keys)), state.next_id, len(state), state.index
        assert self._undo is not None
        self._undo.append(lambda: state.forget_from(first, n, index))
        self._in_steps(content, lambda rows: self._insert(keys[rows], content.rows(rows)))
        if evicted.size > 0:
            self.remove(evicted)

    def _insert(self, keys: list[checks.Key], content: MemoryContent) -> None:
        first = self.state.next_id
        ids = np.arange(first, first + len(keys))
        self.records.insert(ids, keys, content.payloads, content.texts, content.expires)
        self.state.insert(content.X, content.words)
        self._journal("insert", X=content.X, words=content.words)

    def _replace(self, ids: np.ndarray, content: MemoryContent) -> None:
        if self.journal is None:  # otherwise it restores the store
            assert self._undo is not None
            self._undo.append(partial(self.state.put_back, ids, self.state.index, *self.state.parts_of(ids)))
        self.records.replace(ids, content.payloads, content.texts, content.expires)
        self.state.replace(ids, content.X, content.words)
        self._journal("replace", ids=ids, X=content.X, words=content.words)

    def remove(self, ids: np.ndarray) -> None:
        """Remove memories, at the end of a change: this cannot be undone in memory."""
        self.lock.step(partial(self._remove, ids), is_last=True)

    def _remove(self, ids: np.ndarray) -> None:
        self.records.delete(ids)
        self.state.remove(ids)
        self._journal("remove", ids=ids)

    def _forget(self, ids: np.ndarray) -> None:
        self.state.forget(ids)
        self._journal("forget", ids=ids)

    @in_transaction
    def learn(
        self,
        X: Any,
        words: list[Counter[int]] | None,
        keys: Any,
        rewards: Any,
        target_recall: float,
        known: tuple[list[checks.Key], Any] | None = None,
        statistics: WordStatistics | None = None,
    ) -> None:
        """Learn from rewards of queries. In memory this cannot be undone, so that it must be the end of a change.

        In a shard, ``known`` are the keys and vectors of memories of all shards, or the keys and texts for queries
        without vectors. ``statistics`` are those of the texts in all shards.
        """
        state = self.state
        X = None if X is None else self.check_vectors(X, words)
        ids, others = self._find_rewarded(keys, len(words) if X is None else X.shape[0], X is None, known)  # type: ignore[arg-type]
        rewards = check_rewards(rewards, ids, may_be_unknown=True)
        given = np.where(ids == NONE, np.nan, rewards)
        is_empty = len(state.texts) == 0 if X is None else state.index is None
        if is_empty or np.isnan(given).all():
            return
        weighed = None if words is None else [state.texts.weigh(own, statistics) for own in words]
        queries, weights, firsts, is_shared = X, None, None, rewards.shape != ids.shape
        if X is None or weighed is None:
            queries = X if weighed is None else rows_of_words(weighed)
            index, learned = state.learner(X is None)
            ids = learned.with_competitors(index, queries, ids, target_recall)
        else:
            ids, parts, firsts = find_competitors(state, X, weighed, ids, target_recall)
        every = np.full(ids.shape, np.nan, np.float32)
        every[:, : given.shape[1]] = given
        if X is not None and weighed is not None:
            mark_passed(every, ids, given.shape[1])
            weights = state.part_weights if is_shared else learn_weights(state, parts, ids, every)
        others = others or MemoriesOfOthers(np.empty(0, np.int64), queries[:0])
        for first, stop in spans(len(ids), ROWS_LEARNED_IN_A_STEP):
            rows, is_last = slice(first, stop), stop == len(ids)
            new_weights = weights if is_last or weights is None else state.part_weights
            arguments = {"X": queries[rows], "ids": ids[rows], "rewards": every[rows], "is_shared": is_shared}
            own_firsts = None if firsts is None else firsts[rows]
            arguments |= others._asdict() | {"weights": new_weights, "firsts": own_firsts, "by_words": X is None}
            self.lock.step(partial(self._learn, **arguments), is_last=True)

    def _learn(self, **arguments: Any) -> None:
        self.state.learn(**arguments)
        self._journal("learn", **arguments)

    def _find_rewarded(
        self, keys: Any, n_rows: int, by_words: bool, known: tuple[list[checks.Key], Any] | None
    ) -> tuple[np.ndarray, MemoriesOfOthers | None]:
        """Return the ids of rewarded memories, shape (n_rows, k), and those of other shards; -1 for no memory."""
        state, given, others = self.state, checks.check_answers(keys, n_rows), None
        flat = given.reshape(-1).tolist()
        there = [key is not None for key in flat]
        if not any(there):
            return np.full(given.shape, NONE, np.int64), None
        checked = checks.check_keys([key for key in flat if key is not None], distinct=False)
        found = self.find_rewarded(checked, by_words, is_shard=known is not None)
        if known is not None and (missing := np.flatnonzero(self.records.find(checked) < 0)).size > 0:
            found[missing] = other_ids([checked[i] for i in missing])
            vectors = state.vectors_of_texts(known[1]) if by_words else self.check_vectors(known[1])
            others = MemoriesOfOthers.of(known[0], vectors)
        if len(checked) < len(flat):
            found, ids = np.full(len(flat), NONE, np.int64), found
            found[there] = ids
        return found.reshape(given.shape), others

    def find_rewarded(self, keys: list[checks.Key], by_words: bool, *, is_shard: bool = False) -> np.ndarray:
        """Return the ids of memories that can learn from rewards, and -1 for others.

        Raise KeyError if a key is not stored, unless the store is bounded, so that memories may have been evicted since
        the query, or is a shard, so that others may store them.
        """
        found = self.records.find(keys)
        if self.state.options.max_items is None and not is_shard:
            checks.check_stored(keys, found)
        if not by_words and len(self.state.texts) == 0:
            return found  # all memories have vectors
        can_learn = self.state.texts.contains(found) if by_words else self.state.have_vectors(found)
        return np.where(can_learn, found, NONE)

    @in_transaction
    def set_fields(self, keys: list[checks.Key], fields: list[dict[str, Any]]) -> None:
        """Set payload fields of memories."""
        ids, before = self.find_updatable(keys)
        after = checks.check_payloads([payload | own for payload, own in zip(before, fields, strict=True)], len(keys))

        def update() -> None:
            self.records.set_payloads(ids, after)
            self._journal("update", ids=ids)  # the state has no payloads

        self.lock.step(update)

    def find_updatable(self, keys: list[checks.Key]) -> tuple[np.ndarray, list[dict[str, Any]]]:
        """Return the ids and payloads of memories. Raise an error if one is not stored or its payload has no fields."""
        ids = self.records.find(keys)
        checks.check_stored(keys, ids)
        found = self.records.payloads(ids.tolist())
        payloads = [read_payload(found.get(memory_id, "{}")) for memory_id in ids.tolist()]
        for key, payload in zip(keys, payloads, strict=True):
            if not isinstance(payload, dict):
                raise TypeError(f"the payload of {key!r:.50} must be a dict to update its fields, got {payload!r:.50}")
        return ids, payloads

    # Files

    def sync(self) -> None:
        """Wait until all changes are on disk. A change under way is synced when it ends."""
        self.check_open()
        if self.journal is not None and self._undo is None:
            self.journal.sync()

    def close(self) -> None:
        """Write all changes to disk, and close the files."""
        uninterrupted(self.alone, self._close)

    def _close(self) -> None:
        if self._is_closed:
            return
        with suppress(OSError, FileFormatError, JournalError):
            self.unread_columns.read()
        self._is_closed, self.stamp = True, None  # queries under way read their payloads at once
        self.lock.step(self._close_files)

    def _close_files(self) -> None:
        if self._database is not None:
            self._database.close()
        if self.journal is not None:
            self.journal.close()

    def _written(self) -> Contents:
        """Return the contents for a file, which include the records and the results of queries."""
        if self.journal is None or self.journal.is_writable:
            self.enter_notes()
        contents, records = self.contents(), np.frombuffer(self.records.packed(), np.uint8)
        return contents._replace(arrays=contents.arrays | {"records": records})

    def copy(self) -> Contents:
        """Return copies of the contents for a file."""

        def copy() -> Contents:
            self.check_open()
            contents = self.lock.change(self._written)
            return contents._replace(arrays={name: array.copy() for name, array in contents.arrays.items()})

        return self.alone(copy)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file."""

        def save() -> None:
            self.check_open()
            self.lock.change(
                lambda: write_object(
                    path, self._written, lambda contents: self.read(contents, self._tokenizer, thorough=True)
                )
            )

        self.alone(save)

    # The interface of the journal

    def contents(self) -> Contents:
        """Return the contents for a snapshot."""
        return self.state._contents()

    def made_of(self, contents: Contents, *, values: bool) -> StoreState:
        """Return the state in a snapshot."""
        return StoreState._made_of(contents)

    def fingerprint(self, made: StoreState | None = None) -> dict[str, int]:
        """Return the number of memories and the next id of a state."""
        state = self.state if made is None else made
        return {"n_memories": len(state), "next_id": state.next_id}

    def enter_notes(self) -> None:
        """Apply the results of queries, on which the next eviction depends, and journal them in a folder."""
        if not self.state.results:
            return
        note = partial(self._note_returned, self.state.take_results())
        if self.journal is None:
            self.lock.step(note)
        else:
            self.journal.change(note, counts=False)

    def _note_returned(self, ids: np.ndarray) -> None:
        self.state.note_returned(ids)
        self._journal("note_returned", counts=False, ids=ids)

    def replay(self, made: StoreState, entry: Entry, exact: bool) -> None:
        """Repeat an operation."""
        if entry.name not in _OPERATIONS:
            raise ValueError(f"its operation {entry.name!r:.50} is unknown")
        check_operation(made, entry.name, entry.arguments)
        _OPERATIONS[entry.name](made, **entry.arguments)

    def twin(self) -> StoreState:
        """Return the state."""
        return self.state

    def follow(self, apply: Callable[[], None]) -> None:
        """Call ``apply``, which repeats changes of a writer in another process, while no thread reads."""
        self.stamp = None
        self.lock.step(apply)
        self.stamp = object()

    def follow_tables(self, entries: list[tuple[int, bytes]]) -> None:
        """Follow changes of records."""
        assert self.journal is not None
        path = self.journal.folder.journal_path
        with refusing(path):
            self.records.follow(unpack_entry(path, *entry) for entry in entries)

    def use(self, made: StoreState) -> None:
        """Replace the state. Raise ValueError if it has other options than the user has given."""
        options = StoreOptions.of(self._given)
        for name in ("metric", "max_items", "eviction", "measure_gain"):
            if self._given.get(name) is not None:
                check_same_option(name, getattr(options, name), getattr(made.options, name), "store")
        check_same_tokenizer(self._given.get("tokenizer"), made.options.tokenizer)
        self._put(made)


def _do_nothing() -> None:
    """Change nothing. A change also deletes expired memories."""


def is_dense(X: Any, index: Any) -> bool:
    """Return whether rows are of the form in which an index stores dense vectors, so that they need no conversion."""
    return (
        type(X) is np.ndarray
        and isinstance(index, DenseIndex)
        and X.dtype == np.float32
        and X.shape[1:] == (index.n_features,)
        and len(X) > 0
        and X.flags.carray
    )


def check_new_texts(n: int, X: Any, texts: Any, tokenizer: Tokenizer | None = None) -> tuple[list[str | None], Any]:
    """Return the texts of ``n`` new memories, with None for no text, and their words, or None if there are no texts."""
    if X is None and texts is None:
        raise TypeError("pass vectors X, texts, or both")
    if texts is None:
        return [None] * n, None
    given = checks.check_texts(texts, n, may_be_missing=X is not None)
    words = count_words(given, tokenizer)
    for i in np.flatnonzero(np.diff(words.indptr) == 0).tolist():
        if given[i] is not None:
            raise ValueError(f"texts must contain words, but texts[{i}] is {given[i]!r:.50}")
    return given, words


def check_fields(fields: Any, n: int) -> list[dict[str, Any]]:
    """Return the payload fields to set for each of ``n`` memories."""
    each = [fields] * n if isinstance(fields, dict) else fields
    given = [read_payload(text) for text in checks.check_payloads(each, n)]
    if not all(isinstance(own, dict) for own in given):
        raise TypeError(f"fields must be a dict, or one dict for each key, got {fields!r:.50}")
    return given
