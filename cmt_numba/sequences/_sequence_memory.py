"""``SequenceMemory``: sequences that trees find by their n-grams, and an edit distance ranks."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import scipy.sparse

from .._forest import WORTH_KEEPING
from .._validation import check_ids, check_integer, check_known, check_memory_ids, check_seed, check_wanted
from ..estimators import CMTRetriever, estimator_contents, estimator_of
from ..persistence import Contents, Saved, as_part, of_part, read_array, take
from ._costs import ASKED, STORED, Costs
from ._edit_distance import EditDistance
from ._encoding import Alphabet, Sequences
from ._files import read_sequences
from ._point_store import PointStore
from ._vantage import distances_between
from ._vp_tree import Neighbors

_MOST_TREES = 2**10
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # of the golden ratio: products of it spread over all bits
_SHIFT = np.uint64(64)


class SequenceMemory(Saved):
    """Sequences that are found in logarithmic time, ranked by an edit distance, and learned from feedback.

    Trees find candidates: a :class:`~cmt_numba.CMTRetriever` over hashed runs of symbols (n-grams). The edit distance
    ranks them. So a query computes as many distances as it has candidates, however many sequences are stored.
    :class:`VPTree` is exact, and computes more distances the more sequences there are.

    A rewarded query becomes a further form of its sequence, so that one correction is enough.

    Parameters
    ----------
    distance : EditDistance
        The distance. It may be learned, also later, and need not be symmetric.
    n_candidates : int, default 64
        Sequences compared with a query.
    n_trees : int, default 8
        Trees over the sequences, at most 1,024.
    n_probes : int, default 32
        Leaves searched in all trees together. More find more and take longer.
    longest_run : int, default 2
        Runs of 1 to this number of symbols are the parts that sequences are found by; at most 8.
    n_bits : int, default 16
        Runs are hashed to ``2**n_bits`` features; 8 to 24.
    random_state : int, optional
        Seed.

    Examples
    --------
    >>> from cmt_numba.sequences import EditDistance
    >>> memory = SequenceMemory(EditDistance("abcdefghijklmnopqrstuvwxyz"), random_state=0)
    >>> memory.insert(["separate", "receive", "definite"])
    array([0, 1, 2])
    >>> memory.query(["recieve", "seperate"]).ids.ravel()
    array([1, 0])
    """

    def __init__(
        self,
        distance: EditDistance,
        *,
        n_candidates: int = 64,
        n_trees: int = 8,
        n_probes: int = 32,
        longest_run: int = 2,
        n_bits: int = 16,
        random_state: int | None = None,
    ) -> None:
        if not isinstance(distance, EditDistance):
            raise TypeError(f"distance must be an EditDistance, not {type(distance).__name__}")
        self.distance = distance
        self.n_candidates = check_integer("n_candidates", n_candidates, 1, 10**6)
        self.longest_run = check_integer("longest_run", longest_run, 1, 8)
        self.n_bits = check_integer("n_bits", n_bits, 8, 24)
        check_seed(random_state)
        n_trees = check_integer("n_trees", n_trees, 1, _MOST_TREES)
        n_probes = check_integer("n_probes", n_probes, 1)
        self._retriever = CMTRetriever("key", n_trees, n_probes, random_state=random_state)
        self._alphabet: Alphabet | None = None  # of the sequences in the store
        self._forms: PointStore | None = None  # sequences, and further forms of them
        self._costs: Costs  # of the forms
        self._place_of = np.empty(0, np.int64)  # in the store, by id; -1 for what is not there
        self._further: dict[int, list[int]] = {}  # places of further forms, by id
        self._has_further = np.empty(0, bool)  # by id
        self._n = 0

    # What it holds

    def __len__(self) -> int:
        return self._n

    def __contains__(self, sequence_id: object) -> bool:
        if not isinstance(sequence_id, int | np.integer) or isinstance(sequence_id, bool):
            return False
        return bool(0 <= sequence_id < self._place_of.size and self._place_of[sequence_id] >= 0)

    @property
    def ids(self) -> np.ndarray:
        """The ids of all sequences, in ascending order: int64, shape (n,)."""
        return np.flatnonzero(self._place_of >= 0)

    # Changes

    def insert(self, X: Any) -> np.ndarray:
        """Insert sequences.

        Parameters
        ----------
        X : list of sequences
            Sequences of the alphabet of the distance.

        Returns
        -------
        ndarray of int64, shape (n,)
            Their ids, in rising order from 0 on, never used again.

        Raises
        ------
        TypeError, ValueError
            If they cannot be used; nothing has changed then.
        """
        sequences = self._encoded("X", X)
        self._retriever.partial_fit(self._keys(sequences))
        stop = self._retriever._model.memories.next_id
        ids = np.arange(stop - sequences.n, stop)
        n_more = stop - self._place_of.size
        place_of = np.append(self._place_of, np.full(n_more, -1))
        place_of[ids] = self._append(sequences)
        self._has_further = np.append(self._has_further, np.zeros(n_more, bool))
        self._place_of, self._n = place_of, self._n + sequences.n
        return ids

    def remove(self, ids: Any) -> None:
        """Remove sequences, with their further forms. Their ids are not used again.

        Parameters
        ----------
        ids : int or array-like of int, shape (n,)
            Ids of stored sequences, each named once.

        Raises
        ------
        KeyError
            If an id is not stored; nothing has been removed then.
        TypeError, ValueError
            If ``ids`` are not distinct integers.
        """
        ids = check_ids(ids)
        check_known(ids, self._places(ids))
        if ids.size == 0:
            return
        self._retriever.remove(ids)
        self._place_of[ids], self._has_further[ids] = -1, False
        self._n -= ids.size
        for sequence_id in ids.tolist():
            self._further.pop(sequence_id, None)
        self._free_space()

    def feedback(self, X: Any, ids: Any, rewards: Any) -> None:
        """Learn from the rewards of sequences that were shown for queries.

        A query with a reward of 0.5 or more becomes a further form of the sequence, and is removed with it. Rewards for
        several sequences of a query also teach the scorer of the trees.

        Parameters
        ----------
        X : list of sequences
            Queries.
        ids : array-like of int, shape (n,) or (n, k)
            Sequences that were shown; -1 for none.
        rewards : array-like, same shape
            Rewards in [0, 1].

        Raises
        ------
        KeyError
            If a sequence is not stored; nothing has changed then.
        TypeError, ValueError
            If an argument cannot be used; nothing has changed then.
        """
        asked = self._encoded("X", X)
        shown = check_memory_ids(np.ravel(ids), np.size(ids))
        check_known(shown[shown >= 0], self._places(shown[shown >= 0]))
        self._retriever.feedback(self._keys(asked), ids, rewards)
        shown, worth = shown.reshape(asked.n, -1), np.asarray(rewards, float).reshape(asked.n, -1)
        worth = np.where(shown >= 0, worth, 0.0)
        best = worth.argmax(axis=1)
        kept = np.flatnonzero(worth[np.arange(asked.n), best] >= WORTH_KEEPING)
        if kept.size == 0:
            return
        owners = shown[kept, best[kept]]
        for owner, place in zip(owners.tolist(), self._append(asked.take(kept)).tolist(), strict=True):
            self._further.setdefault(owner, []).append(place)
        self._has_further[owners] = True

    # Answers

    def query(self, X: Any, k: int = 1) -> Neighbors:
        """Return the nearest of the candidates for each sequence asked.

        Parameters
        ----------
        X : list of sequences
            Queries.
        k : int, default 1
            Sequences wanted for each, at most ``n_candidates``.

        Returns
        -------
        Neighbors
            Ids, distances (of the nearest form of a sequence), and how many distances were computed.

        Raises
        ------
        TypeError, ValueError
            If an argument cannot be used.
        """
        asked, k = self._encoded("X", X), check_wanted("k", k, self.n_candidates)
        if k > self.n_candidates:
            raise ValueError(f"k must be at most n_candidates, which is {self.n_candidates}, not {k}")
        ids, lengths = np.full((asked.n, k), -1, np.int64), np.full((asked.n, k), np.inf, np.float32)
        if len(self) == 0:
            return Neighbors(ids, lengths, np.zeros(asked.n, np.int64))
        rows, owners, places = self._candidates(asked)
        distances = self._distances(asked, rows, places)
        order = np.lexsort((owners, distances, rows))
        rows, owners, distances = rows[order], owners[order], distances[order]
        nearest = np.sort(np.unique(rows * self._place_of.size + owners, return_index=True)[1])  # form of each
        of_row = rows[nearest]
        rank = np.arange(of_row.size) - np.searchsorted(of_row, of_row)
        shown = rank < k
        ids[of_row[shown], rank[shown]] = owners[nearest[shown]]
        lengths[of_row[shown], rank[shown]] = distances[nearest[shown]]
        return Neighbors(ids, lengths, np.bincount(rows, minlength=asked.n))

    def _candidates(self, asked: Sequences) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the rows, the ids and the places of all forms of the candidates."""
        found = self._retriever.query(self._keys(asked), self.n_candidates).ids
        found[found >= self._place_of.size] = -1  # of an insertion that was broken off
        rows, columns = np.nonzero(found >= 0)
        owners = found[rows, columns]
        places = self._place_of[owners]
        there = places >= 0
        rows, owners, places = rows[there], owners[there], places[there]
        several = np.flatnonzero(self._has_further[owners])
        further = [(rows[i], owners[i], place) for i in several for place in self._further[int(owners[i])]]
        if not further:
            return rows, owners, places
        more = np.array(further, np.int64).T
        return np.append(rows, more[0]), np.append(owners, more[1]), np.append(places, more[2])

    # Sequences

    def _encoded(self, name: str, X: Any) -> Sequences:
        points = self.distance._as_points(name, X, stored=self._alphabet)
        return Sequences(points.symbols, points.offsets)

    def _keys(self, sequences: Sequences) -> Any:
        return ngram_keys(sequences, self.longest_run, self.n_bits)

    def _places(self, ids: np.ndarray) -> np.ndarray:
        """Return the places of sequences, -1 for those that are not there."""
        places = np.full(ids.size, -1, np.int64)
        inside = (ids >= 0) & (ids < self._place_of.size)
        places[inside] = self._place_of[ids[inside]]
        return places

    def _append(self, sequences: Sequences) -> np.ndarray:
        """Store sequences, and return their places."""
        alphabet, costs = self.distance._prepared(self._alphabet)
        points = costs.points(sequences, STORED)
        if self._forms is None:
            self._forms, self._alphabet, self._costs = PointStore(points), alphabet, costs
        else:
            self._up_to_date(costs).append(points)
        return np.arange(self._forms.n - sequences.n, self._forms.n)

    def _up_to_date(self, costs: Costs) -> PointStore:
        """Return the forms under these costs."""
        assert self._forms is not None
        if costs is not self._costs:
            self._forms, self._costs = self._forms.with_costs(costs), costs
        return self._forms

    def _free_space(self) -> None:
        """Free the space of removed sequences if they are more than half."""
        assert self._forms is not None
        further = [place for places in self._further.values() for place in places]
        ids = self.ids
        kept = np.concatenate([self._place_of[ids], np.array(further, np.int64)])
        if 2 * kept.size >= self._forms.n:
            return
        self._forms = self._forms.taken(kept)
        self._place_of[ids] = np.arange(ids.size)
        numbers = iter(range(ids.size, kept.size))
        self._further = {owner: [next(numbers) for _ in places] for owner, places in self._further.items()}

    def _distances(self, asked: Sequences, of_asked: np.ndarray, places: np.ndarray) -> np.ndarray:
        costs = self.distance._prepared(self._alphabet)[1]
        points, forms = costs.points(asked, ASKED), self._up_to_date(costs)
        return distances_between(points, forms.view(), of_asked, places)

    # Files

    def _contents(self) -> Contents:
        distance, retriever = self.distance._contents(), estimator_contents(self._retriever)
        options = {name: getattr(self, name) for name in ("n_candidates", "longest_run", "n_bits")}
        fields = {"options": options, "distance": distance.fields, "retriever": retriever.fields}
        arrays = as_part("distance", distance.arrays) | as_part("retriever", retriever.arrays)
        if self._forms is not None:
            forms = self._forms.view()
            further = [(owner, place) for owner, places in self._further.items() for place in places]
            arrays |= {"symbols": forms.symbols, "offsets": forms.offsets, "place_of": self._place_of}
            arrays["further"] = np.array(further, np.int64).reshape(-1, 2)
        return Contents(type(self).__name__, fields, arrays)

    @classmethod
    def _made_of(cls, contents: Contents) -> Self:
        fields, arrays = contents.fields, contents.arrays
        parts = {
            name: contents._replace(kind=kind, fields=take(fields, name, dict), arrays=of_part(name, arrays))
            for name, kind in (("distance", "EditDistance"), ("retriever", "CMTRetriever"))
        }
        made = cls(EditDistance._made_of(parts["distance"]), **take(fields, "options", dict))
        made._retriever = estimator_of(CMTRetriever, parts["retriever"], thorough=True)
        if getattr(made._retriever, "n_features_in_", 1 << made.n_bits) != 1 << made.n_bits:
            raise ValueError(f"the trees must have keys of 2**n_bits features, where n_bits is {made.n_bits}")
        if "place_of" not in arrays:
            return made
        alphabet, costs = made.distance._prepared()
        sequences = read_sequences(arrays, len(alphabet.symbols))
        place_of, further = read_array("place_of", arrays, np.int64), read_array("further", arrays, np.int64, n_axes=2)
        made._place_of, ids = place_of, np.flatnonzero(place_of >= 0)
        owners, places = further.T if further.shape[1] == 2 else (further, further)
        if owners.ndim != 1 or not np.isin(owners, ids).all():
            raise ValueError("further forms must belong to sequences")
        used = np.concatenate([place_of[ids], places])
        if used.size and (used.min() < 0 or used.max() >= sequences.n or np.unique(used).size < used.size):
            raise ValueError("each form must have a place of its own")
        memories = made._retriever._model.memories if hasattr(made._retriever, "forest_") else None
        if memories is None or place_of.size > memories.next_id or not np.isin(ids, memories.ids).all():
            raise ValueError("the trees must hold the sequences")
        for owner, place in zip(owners.tolist(), places.tolist(), strict=True):
            made._further.setdefault(owner, []).append(place)
        made._has_further = np.isin(np.arange(place_of.size), owners)
        made._forms, made._alphabet, made._costs = PointStore(costs.points(sequences, STORED)), alphabet, costs
        made._n = ids.size
        return made


def ngram_keys(sequences: Sequences, longest: int, n_bits: int) -> scipy.sparse.csr_array:
    """Return how often each sequence has each run of 1 to ``longest`` symbols, weighted by the root of its length.

    A symbol before the first and one after the last mark the ends. Runs are hashed to ``2**n_bits`` columns.

    Returns
    -------
    scipy.sparse.csr_array of float32, shape (n, 2**n_bits)
    """
    lengths = np.diff(sequences.offsets) + 2
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    symbols = np.full(offsets[-1], 1, np.uint64)  # the ends
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
