"""A memory of sequences that is searched by edit distance and learns from feedback."""

import copy
from dataclasses import KW_ONLY, dataclass
from types import SimpleNamespace
from typing import Annotated, Any, Self

import numpy as np
import scipy.sparse

from .. import _validation as checks
from .. import persistence as files
from .._change import Lockable, changes_in_one_step, reads
from .._kernels import WORTH_KEEPING
from .._words import WORD
from ..estimators import CMTRetriever
from ._bits import Blocks
from ._costs import QUERIED, STORED, Costs
from ._edit_distance import EditDistance
from ._encoding import SEQUENCES, Alphabet, Sequences, check_saved
from ._point_store import PointStore
from ._search import Neighbors, blocks_of, nothing_found, search
from ._spaces import distances_between

_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # multiplier of Fibonacci hashing
_SHIFT = np.uint64(64)


class GramIndex:
    """A retriever over hashed n-grams. ``ids[i]`` is the sequence of memory ``i``, or -1 after a failed insert."""

    def __init__(self, retriever: CMTRetriever, longest_run: int, n_bits: int, ids: Any = ()) -> None:
        self.retriever, self.ids = retriever, np.asarray(ids, np.int64)
        self._longest_run, self._n_bits = longest_run, n_bits

    def insert(self, sequences: Sequences, ids: np.ndarray) -> None:
        """Insert sequences. Their ids must ascend and exceed all earlier ids."""
        self.retriever.partial_fit(self._keys(sequences))
        known = np.full(self.retriever._model.memories.next_id - ids.size, -1, np.int64)
        known[: self.ids.size] = np.where(self.ids < ids[0], self.ids, -1)  # larger ids are from failed insertions
        self.ids = np.append(known, ids)

    def remove(self, ids: np.ndarray) -> None:
        """Remove sequences by id."""
        self.retriever.remove(self._memories(ids))

    def feedback(self, queries: Sequences, shown: np.ndarray, rewards: Any) -> None:
        """Learn the rewards of sequence ids ``shown``, which are padded with -1."""
        memories = np.where(shown >= 0, self._memories(shown), -1)
        self.retriever.feedback(self._keys(queries), memories, rewards)

    def candidates(self, queries: Sequences, n: int) -> np.ndarray:
        """Return candidate ids for each query, padded with -1: int64, shape (queries, n)."""
        found = self.retriever.query(self._keys(queries), n).ids
        return np.where((found >= 0) & (found < self.ids.size), self.ids[np.minimum(found, self.ids.size - 1)], -1)

    def _memories(self, ids: np.ndarray) -> np.ndarray:
        known = np.flatnonzero(self.ids >= 0)
        places = np.searchsorted(self.ids[known], ids)
        return known[np.minimum(places, known.size - 1)]

    def _keys(self, sequences: Sequences) -> scipy.sparse.csr_array:
        return ngram_keys(sequences, self._longest_run, self._n_bits)


def ngram_keys(sequences: Sequences, longest: int, n_bits: int) -> scipy.sparse.csr_array:
    """Return the weighted counts of n-grams of up to ``longest`` symbols.

    An n-gram of ``n`` symbols has weight ``sqrt(n)``. Special symbols mark the ends of sequences. N-grams are hashed to
    ``2**n_bits`` columns of a CSR array.
    """
    lengths = np.diff(sequences.offsets) + 2
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    symbols = np.full(offsets[-1], 1, np.uint64)  # symbol 1 marks the ends of sequences
    inner = np.ones(offsets[-1], bool)
    inner[offsets[:-1]] = inner[offsets[1:] - 1] = False
    symbols[inner] = sequences.symbols.astype(np.uint64) + np.uint64(2)
    owners = np.repeat(np.arange(sequences.n), lengths)
    hashes, rows, columns, weights = np.zeros(offsets[-1], np.uint64), [], [], []
    for n in range(1, longest + 1):
        n_runs = max(0, symbols.size - n + 1)
        hashes = (hashes[:n_runs] + symbols[n - 1 :]) * _FACTOR
        hashes ^= hashes >> np.uint64(29)
        whole = owners[:n_runs] == owners[n - 1 :]
        rows.append(owners[:n_runs][whole])
        columns.append((hashes[whole] >> (_SHIFT - np.uint64(n_bits))).astype(np.int64))
        weights.append(np.full(rows[-1].size, np.sqrt(n), np.float32))
    cells = np.concatenate(weights), (np.concatenate(rows), np.concatenate(columns))
    keys = scipy.sparse.coo_array(cells, (sequences.n, 1 << n_bits)).tocsr()
    keys.sum_duplicates()
    return keys


_TAIL = 256  # maximum number of forms that are not yet in blocks
_OPTIONS = ("n_candidates", "longest_run", "n_bits", "random_state")


@dataclass(eq=False, repr=False)
class SequenceMemory(Lockable, files.Saved, checks.Constrained):
    """Memory of sequences that is searched by edit distance and learns from feedback.

    The candidates of a query are the sequences with the fewest edits, counted by bit-parallel kernels. A trainable edit
    distance ranks the candidates. If all edits have the same cost, results are exact. With sequences of more than 64
    symbols, an inverted index of n-grams finds the candidates (:class:`~cmt_numba.CMTRetriever`).

    A rewarded query is stored as an additional form of its sequence, so a single reward corrects an error.

    Any number of threads may query a memory while other threads change it.

    Parameters
    ----------
    distance : EditDistance
        The distance. It need not be symmetric, and may be trained after sequences have been inserted.
    n_candidates : int, default 64
        Number of candidates of a query.
    longest_run : int, default 2
        Maximum length of n-grams, at most 8.
    n_bits : int, default 16
        N-grams are hashed to ``2**n_bits`` features. Must be between 8 and 24.
    random_state : int, optional
        Random seed.

    Examples
    --------
    >>> from cmt_numba.sequences import EditDistance
    >>> memory = SequenceMemory(EditDistance("abcdefghijklmnopqrstuvwxyz"), random_state=0)
    >>> memory.insert(["separate", "receive", "definite"])
    array([0, 1, 2])
    >>> memory.query(["recieve", "seperate"]).ids.ravel()
    array([1, 0])
    """

    FIELDS = files.FieldTable(
        options=files.OptionsField(),
        distance=files.PartField(EditDistance),
        retriever=files.OptionalField(files.PartField(CMTRetriever)),
        gram_ids=files.OptionalField(files.ArrayField(np.int64)),
        forms=files.OptionalField(SEQUENCES),
        owners=files.ArrayField(np.int64),
        stored=files.ArrayField(np.bool_),
    )

    _lock_level = 2  # a change also changes the retriever of n-grams

    distance: EditDistance
    _: KW_ONLY
    n_candidates: Annotated[int, checks.Integer(1, 10**6)] = 64
    longest_run: Annotated[int, checks.Integer(1, 8)] = 2
    n_bits: Annotated[int, checks.Integer(8, 24)] = 16
    random_state: checks.Seed = None

    def __post_init__(self) -> None:
        if not isinstance(self.distance, EditDistance):
            raise TypeError(f"distance must be an EditDistance, got {type(self.distance).__name__}")
        checks.check_parameters(self, self._constraints)
        self._alphabet: Alphabet | None = None  # alphabet of the stored sequences
        self._forms: PointStore | None = None  # all forms of all sequences
        self._costs: Costs  # costs with which the forms are stored
        self._owners = np.empty(0, np.int64)  # sequence id of each form, or -1 if the sequence was removed
        self._stored = np.empty(0, bool)  # whether each id is stored
        self._blocks: Blocks | None = None  # blocks of all but the newest forms
        self._grams: GramIndex | None = None

    # Contents

    def __len__(self) -> int:
        return int(np.count_nonzero(self._stored))

    def __contains__(self, sequence_id: object) -> bool:
        if not isinstance(sequence_id, int | np.integer) or isinstance(sequence_id, bool):
            return False
        return bool(self._places(np.array([sequence_id]))[0] >= 0)

    @property
    def ids(self) -> np.ndarray:
        """Ids of all sequences in ascending order: int64, shape (n,)."""
        return np.flatnonzero(self._stored)

    # Changes

    @changes_in_one_step
    def insert(self, X: Any) -> np.ndarray:
        """Insert a list of sequences and return their new ids, which ascend and are never reused."""
        sequences = self._encoded("X", X)
        ids = np.arange(self._stored.size, self._stored.size + sequences.n)
        stored = np.append(self._stored, np.ones(ids.size, bool))
        if self._grams is not None:
            self._grams.insert(sequences, ids)
        self._append(sequences, ids)
        self._stored = stored
        return ids

    @changes_in_one_step
    def remove(self, ids: Any) -> None:
        """Remove sequences by their distinct ids, with all their forms. Ids are never reused."""
        ids = checks.check_ids(ids)
        checks.check_known(ids, self._places(ids))
        if ids.size == 0:
            return
        stored, forms, blocks = self._stored.copy(), self._forms, self._blocks
        stored[ids] = False
        owners = np.where(np.isin(self._owners, ids), -1, self._owners)
        kept = np.flatnonzero(owners >= 0)
        if forms is not None and 2 * kept.size < forms.n:
            forms, owners, blocks = forms.taken(kept), owners[kept], None
        if self._grams is not None:
            self._grams.remove(ids)
        self._stored, self._forms, self._owners, self._blocks = stored, forms, owners, blocks

    @changes_in_one_step
    def feedback(self, X: Any, ids: Any, rewards: Any) -> None:
        """Learn from the rewards, in [0, 1], of sequences that were returned for queries.

        ``ids``, of shape (n,) or (n, k) and padded with -1, and ``rewards`` have the same shape. A query with a reward
        of at least 0.5 becomes an additional form of the sequence, and is removed together with the sequence. If an
        index of n-grams finds the candidates, it learns from the rewards too.
        """
        queries = self._encoded("X", X)
        shown = checks.check_memory_ids(np.ravel(ids), np.size(ids))
        if np.ndim(ids) not in (1, 2) or len(ids) != queries.n:
            raise ValueError(f"ids must have one row for each of the {queries.n} queries, got shape {np.shape(ids)}")
        known = shown[shown >= 0]
        shown = shown.reshape(queries.n, -1)
        worth = checks.check_rewards(rewards, shown)
        if known.size == 0:
            return
        checks.check_known(known, self._places(known))
        if self._grams is not None:
            self._grams.feedback(queries, shown, worth)
        worth = np.where(shown >= 0, worth, 0.0)
        best = worth.argmax(axis=1)
        kept = np.flatnonzero(worth[np.arange(queries.n), best] >= WORTH_KEEPING)
        if kept.size > 0:
            self._append(queries.take(kept), shown[kept, best[kept]])

    # Queries

    @reads
    def query(self, X: Any, k: int = 1) -> Neighbors:
        """Return the ids and distances of the ``k`` nearest sequences of each query, and numbers of computed distances.

        ``k`` must be at most ``n_candidates``.
        """
        queries, k = self._encoded("X", X), checks.check_wanted("k", k, self.n_candidates)
        if k > self.n_candidates:
            raise ValueError(f"k must be at most n_candidates={self.n_candidates}, got {k}")
        costs = self.distance._prepared(self._alphabet)[1]
        points = costs.points(queries, QUERIED)
        found = nothing_found(queries.n, k)
        if len(self) == 0:
            return found
        forms = self._up_to_date(costs)
        if self._uses_grams(forms):
            return self._among_candidates(queries, points, forms, k)
        excluded = np.full(queries.n, -1, np.int64)
        search(points, forms.view(), self._current_blocks(forms), self._owners, excluded, self.n_candidates, found)
        return found

    def _uses_grams(self, forms: PointStore) -> bool:
        """Build or drop the index of n-grams depending on the longest sequence. Return whether it is used."""
        view = forms.view()
        if view.longest <= WORD:
            self._grams = None
        elif self._grams is None:
            retriever = CMTRetriever("key", random_state=self.random_state)
            grams = GramIndex(retriever, self.longest_run, self.n_bits)
            kept = np.flatnonzero(self._owners >= 0)
            owners, first = np.unique(self._owners[kept], return_index=True)
            grams.insert(Sequences(view.symbols, view.offsets).take(kept[first]), owners)
            self._grams = grams
        return self._grams is not None

    def _current_blocks(self, forms: PointStore) -> Blocks:
        """Return the blocks of all forms. The newest forms may be listed without blocks."""
        if self._blocks is None or forms.n > self._blocks.order.size + _TAIL:
            self._blocks = blocks_of(forms.view())
        tail = np.arange(self._blocks.order.size, forms.n)
        if tail.size == 0:
            return self._blocks
        lengths = np.diff(forms.view().offsets)[tail]
        order, lengths = np.append(self._blocks.order, tail), np.append(self._blocks.lengths, lengths)
        return self._blocks._replace(order=order, lengths=lengths)

    def _among_candidates(self, queries: Sequences, points: Any, forms: PointStore, k: int) -> Neighbors:
        """Return the nearest of the candidates that the index of n-grams has found."""
        assert self._grams is not None
        ids, lengths = np.full((queries.n, k), -1, np.int64), np.full((queries.n, k), np.inf, np.float32)
        found = self._grams.candidates(queries, self.n_candidates)
        rows, columns = np.nonzero(found >= 0)
        of_owner = np.argsort(self._owners, kind="stable")  # forms sorted by owner
        owners = self._owners[of_owner]
        starts = np.searchsorted(owners, found[rows, columns])
        counts = np.searchsorted(owners, found[rows, columns], side="right") - starts
        rows = np.repeat(rows, counts)
        places = of_owner[np.arange(rows.size) + np.repeat(starts - (np.cumsum(counts) - counts), counts)]
        owners, distances = self._owners[places], distances_between(points, forms.view(), rows, places)
        order = np.lexsort((owners, distances, rows))
        rows, owners, distances = rows[order], owners[order], distances[order]
        # The first entry of each owner in a row is its nearest form.
        nearest = np.sort(np.unique(rows * self._stored.size + owners, return_index=True)[1])
        of_row = rows[nearest]
        rank = np.arange(of_row.size) - np.searchsorted(of_row, of_row)
        shown = rank < k
        ids[of_row[shown], rank[shown]] = owners[nearest[shown]]
        lengths[of_row[shown], rank[shown]] = distances[nearest[shown]]
        return Neighbors(ids, lengths, np.bincount(rows, minlength=queries.n))

    # Sequences

    def _encoded(self, name: str, X: Any) -> Sequences:
        return self.distance._encoded(name, X, self._alphabet)

    def _places(self, ids: np.ndarray) -> np.ndarray:
        inside = (ids >= 0) & (ids < self._stored.size)
        inside[inside] = self._stored[ids[inside]]
        return np.where(inside, ids, -1)

    def _append(self, sequences: Sequences, owners: np.ndarray) -> None:
        alphabet, costs = self.distance._prepared(self._alphabet)
        points, owners = costs.points(sequences, STORED), np.append(self._owners, owners)
        if self._forms is None:
            self._forms, self._alphabet, self._costs = PointStore(points), alphabet, costs
        else:
            self._up_to_date(costs).append(points)
        self._owners = owners

    def _up_to_date(self, costs: Costs) -> PointStore:
        """Update the stored forms to ``costs`` and return them."""
        assert self._forms is not None
        if costs is not self._costs:
            self._forms, self._costs = self._forms.with_costs(costs), costs
        return self._forms

    # Files and copies

    save = reads(files.Saved.save)

    @reads
    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in vars(self).items() if name != "_own_lock"}
        return state | copy.deepcopy({"_forms": self._forms, "_grams": self._grams})  # changed in place

    def _packed(self) -> Any:
        grams, forms = self._grams, None if self._forms is None else self._forms.view()
        return SimpleNamespace(
            options={name: getattr(self, name) for name in _OPTIONS},
            distance=self.distance,
            retriever=None if grams is None else grams.retriever,
            gram_ids=None if grams is None else grams.ids,
            forms=None if forms is None else Sequences(forms.symbols, forms.offsets),
            owners=self._owners,
            stored=self._stored,
        )

    @classmethod
    def _of_fields(cls, values: dict[str, Any]) -> Self:
        made = cls(values["distance"], **values["options"])
        retriever, ids, sequences = (values[name] for name in ("retriever", "gram_ids", "forms"))
        if getattr(retriever, "n_features_in_", 1 << made.n_bits) != 1 << made.n_bits:
            raise ValueError(f"the n-grams must have keys with 2**{made.n_bits} features")
        if sequences is None:
            return made
        alphabet, costs = made.distance._prepared()
        check_saved(sequences, len(alphabet.symbols))
        owners, stored = values["owners"], values["stored"]
        if owners.size != sequences.n or owners.min(initial=-1) < -1:
            raise ValueError("owners must contain one id or -1 for each representation")
        if not np.array_equal(np.flatnonzero(stored), np.unique(owners[owners >= 0])):
            raise ValueError("owners must contain all stored ids and no others")
        made._owners, made._stored = owners, stored
        if retriever is not None:
            memories = retriever._model.memories if retriever.__sklearn_is_fitted__() else None
            if ids is None or memories is None or ids.size > memories.next_id or (np.diff(ids[ids >= 0]) <= 0).any():
                raise ValueError("the n-grams must contain the sequences in the order of their ids")
            if not np.isin(made.ids, ids[memories.ids[memories.ids < ids.size]]).all():
                raise ValueError("the n-grams must contain all sequences")
            made._grams = GramIndex(retriever, made.longest_run, made.n_bits, ids)
        made._forms, made._alphabet, made._costs = PointStore(costs.points(sequences, STORED)), alphabet, costs
        return made
