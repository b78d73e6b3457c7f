"""Approximate nearest neighbors by vector quantisation."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from .._forest import GrowingColumns
from .._jit import keeps_interpreter
from .._validation import (
    Constraint,
    Integer,
    OneOf,
    Optional,
    Real,
    check_ids,
    check_integer,
    check_known,
    check_parameters,
    check_seed,
    check_wanted,
)
from ..persistence import Contents, Saved, generator_fields, read_array, read_generator, take
from ._lists import Lists, Part, assigned, held, search, trained, with_rows, without
from ._measures import METRICS, Measure, fits

_LISTS = 2.0  # default number of lists relative to the square root of the number of rows
_GROWTH = 4  # maximum growth factor before landmarks are trained again


class Found(NamedTuple):
    """Nearest rows of each query, nearest first."""

    ids: np.ndarray  # int64 (n, k), padded with -1
    values: np.ndarray  # float32 (n, k), similarities padded with -inf, or distances padded with inf
    n_computed: np.ndarray  # int64 (n,), number of computed similarities or distances


class _State(NamedTuple):
    """Mutable state of an index. Changes replace the whole state."""

    lists: Lists
    assignment: GrowingColumns  # int64, ascending ids, including removed rows; int32, list of each row
    n_trained: int  # number of rows on which landmarks were trained
    bandwidth: float


class LandmarkIndex(Saved):
    """Index of dense rows for approximate nearest-neighbor search.

    The index is an inverted file with vector quantisation (Sivic and Zisserman, Video Google, ICCV 2003). K-means
    divides the rows into lists, and a search scores the rows in the lists nearest to the query. The landmark of a list
    is its mean, computed by scikit-learn's MiniBatchKMeans. Queries are grouped by list, so that each list needs only
    one matrix product. Rows can be inserted and removed at any time. Landmarks are trained again when the number of
    rows has quadrupled.

    Parameters
    ----------
    metric : {"cosine", "inner_product", "euclidean", "gaussian", "laplacian"}, default "cosine"
        Similarity of rows, or their Euclidean distance. "gaussian" is ``exp(-d**2 / (2 * bandwidth**2))`` for the
        Euclidean distance ``d``. "laplacian" is ``exp(-d / bandwidth)`` for the city-block distance ``d``.
    n_lists : int, optional
        Number of lists. By default, twice the square root of the number of rows.
    n_probes : int, default 8
        Number of lists to search for each query. More lists increase recall and query time. A search of all lists is
        exact up to rounding errors. This attribute can be changed at any time.
    bandwidth : float, optional
        Bandwidth of "gaussian" and "laplacian". By default, the median distance between up to 1,000 rows, computed when
        landmarks are trained.
    random_state : int or numpy.random.SeedSequence, optional
        Random seed.

    Notes
    -----
    Several threads may query the index while one thread inserts or removes rows.

    Examples
    --------
    >>> index = LandmarkIndex("euclidean", random_state=0)
    >>> index.insert([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]])
    array([0, 1, 2])
    >>> found = index.query([[0.0, 0.0]], k=2)
    >>> found.ids, found.values
    (array([[0, 1]]), array([[0., 5.]], dtype=float32))
    """

    _constraints: ClassVar[dict[str, Constraint]] = {
        "metric": OneOf(METRICS),
        "n_lists": Optional(Integer(1, 2**20)),
        "n_probes": Integer(1),
        "bandwidth": Optional(Real(0.0, 1e30, above=True)),
    }

    def __init__(
        self,
        metric: str = "cosine",
        *,
        n_lists: int | None = None,
        n_probes: int = 8,
        bandwidth: float | None = None,
        random_state: int | np.random.SeedSequence | None = None,
    ) -> None:
        self.metric, self.n_lists, self.n_probes, self.bandwidth = metric, n_lists, n_probes, bandwidth
        check_parameters(self, self._constraints)
        self._measure = Measure(metric)
        self._random = np.random.default_rng(check_seed(random_state))
        self._next_id = 0
        self._state: _State | None = None  # None before the first insert

    # Contents

    def __len__(self) -> int:
        return 0 if self._state is None else self._state.lists.n

    def __contains__(self, row_id: object) -> bool:
        if not isinstance(row_id, int | np.integer) or isinstance(row_id, bool):
            return False
        return bool(self._lists_of(np.array([row_id]))[0] >= 0)

    @property
    def ids(self) -> np.ndarray:
        """Ids of all rows in ascending order: int64, shape (n,)."""
        if self._state is None:
            return np.empty(0, np.int64)
        return np.sort(np.concatenate([part.ids for part in self._state.lists.parts]))

    @property
    def n_lists_(self) -> int:
        """Number of lists."""
        return 0 if self._state is None else len(self._state.lists.parts)

    @property
    def bandwidth_(self) -> float:
        """Bandwidth of "gaussian" and "laplacian"."""
        return self._trained().bandwidth

    @property
    def landmarks_(self) -> np.ndarray:
        """Landmarks: float32, shape (n_lists_, n_features)."""
        lists = self._trained().lists
        landmarks: np.ndarray = lists.landmarks + lists.origin
        return landmarks

    def _trained(self) -> _State:
        if self._state is None:
            raise ValueError("landmarks exist only after the first insert")
        return self._state

    # Changes

    @keeps_interpreter
    def insert(self, X: Any) -> np.ndarray:
        """Insert rows.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Dense rows. The first call trains the landmarks, so pass many rows or call :meth:`rebuild` later.

        Returns
        -------
        ndarray of int64, shape (n,)
            New ids in ascending order. Ids are never reused.
        """
        rows, state = self._rows(X), self._state
        ids = np.arange(self._next_id, self._next_id + rows.shape[0])
        n_before = len(self)
        if state is None or n_before + ids.size > _GROWTH * state.n_trained:
            if state is None or n_before == 0:
                state = self._made(rows, ids)
            else:
                before, ids_before = state.lists.all_rows()
                state = self._made(np.concatenate([before, rows]), np.concatenate([ids_before, ids]))
        else:
            which = assigned(state.lists, rows)
            lists = with_rows(self._measure, state.lists, rows, ids, which)
            state = state._replace(lists=lists, assignment=state.assignment.appended(ids, which))
        self._next_id += ids.size  # these ids are not reused, even if the call is interrupted here
        self._state = state
        return ids

    @keeps_interpreter
    def remove(self, ids: Any) -> None:
        """Remove rows. Their ids are never reused.

        Parameters
        ----------
        ids : int or array-like of int, shape (n,)
            Distinct ids of stored rows.
        """
        ids = check_ids(ids)
        which = self._lists_of(ids)
        check_known(ids, which)
        assert self._state is not None
        state = self._state._replace(lists=without(self._state.lists, ids, which))
        if len(state.assignment) > 2 * state.lists.n + 1000:
            state = state._replace(assignment=_assignment_of(state.lists))
        self._state = state

    def rebuild(self) -> None:
        """Train the landmarks and the default bandwidth on all rows, and reassign rows to lists."""
        if self._state is not None and len(self) > 0:
            self._state = self._made(*self._state.lists.all_rows())

    def _made(self, rows: np.ndarray, ids: np.ndarray) -> _State:
        """Return a state with newly trained lists. Ids must ascend."""
        self._measure.check_spread(rows)
        n = rows.shape[0]
        n_lists = min(n, self.n_lists or max(1, round(_LISTS * np.sqrt(n))))
        lists = trained(self._measure, rows, n_lists, int(self._random.integers(2**31)))
        which = assigned(lists, rows)
        bandwidth = self.bandwidth or self._measure.bandwidth_of(rows, self._random)
        lists = with_rows(self._measure, lists, rows, ids, which)
        return _State(lists, GrowingColumns(ids, which.astype(np.int32)), n, bandwidth)

    def _lists_of(self, ids: np.ndarray) -> np.ndarray:
        """Return the list of each row, or -1 if its id is not stored."""
        if self._state is None:
            return np.full(ids.size, -1)
        known_ids, list_of = self._state.assignment.columns
        places = np.searchsorted(known_ids, ids)
        which = np.full(ids.size, -1)
        inside = np.flatnonzero(places < known_ids.size)
        known = inside[known_ids[places[inside]] == ids[inside]]
        which[known] = list_of[places[known]]
        return np.where(held(self._state.lists, ids, which), which, -1)

    # Queries

    @keeps_interpreter
    def query(self, X: Any, k: int = 1) -> Found:
        """Return the nearest rows of each query, from the nearest lists. Ties go to the row that was inserted first.

        Parameters
        ----------
        X : array-like of shape (n, n_features)
            Queries.
        k : int, default 1
            Number of rows for each query.

        Returns
        -------
        Found
            Ids, similarities or distances, and the number of rows that were compared.
        """
        n_probes = check_integer("n_probes", self.n_probes, 1)
        state, asked, k = self._state, self._rows(X), check_wanted("k", k, len(self))
        if state is None or state.lists.n == 0:
            ids, scores = np.full((asked.shape[0], k), -1, np.int64), np.full((asked.shape[0], k), -np.inf, np.float32)
            n_computed, bandwidth = np.zeros(asked.shape[0], np.int64), 1.0
        else:
            ids, scores, n_computed = search(self._measure, state.lists, asked, k, n_probes)
            bandwidth = state.bandwidth
        values = self._measure.values(scores, bandwidth)
        return Found(ids, np.where(ids >= 0, values, -np.inf if self.metric != "euclidean" else np.inf), n_computed)

    def _rows(self, X: Any) -> np.ndarray:
        return self._measure.rows(X, None if self._state is None else self._state.lists.landmarks.shape[1])

    # Files

    def _contents(self) -> Contents:
        options = {name: getattr(self, name) for name in self._constraints}
        options = {name: value.item() if isinstance(value, np.generic) else value for name, value in options.items()}
        fields = {"options": options, "next_id": self._next_id, "random": generator_fields(self._random)}
        state = self._state
        if state is None:
            return Contents(type(self).__name__, fields, {})
        parts = state.lists.parts
        fields |= {"n_trained": state.n_trained, "bandwidth": state.bandwidth}
        arrays = {
            "origin": state.lists.origin,
            "landmarks": state.lists.landmarks,
            "sizes": np.array([part.n for part in parts], np.int64),
            "rows": np.concatenate([part.rows for part in parts]),
            "ids": np.concatenate([part.ids for part in parts]),
        }
        return Contents(type(self).__name__, fields, arrays)

    @classmethod
    def _made_of(cls, contents: Contents) -> Self:
        fields, arrays = contents.fields, contents.arrays
        made = cls(**take(fields, "options", dict))
        made._random = read_generator("random", fields.get("random"))
        made._next_id = check_integer("next_id", take(fields, "next_id", int), 0, 2**62)
        if not arrays:
            return made
        n_trained = check_integer("n_trained", take(fields, "n_trained", int), 1, 2**62)
        bandwidth = Real(0.0, 1e30, above=True).check("bandwidth", take(fields, "bandwidth", float))
        origin = read_array("origin", arrays, np.float32)
        landmarks, rows = (read_array(name, arrays, np.float32, n_axes=2) for name in ("landmarks", "rows"))
        sizes, ids = (read_array(name, arrays, np.int64) for name in ("sizes", "ids"))
        lists = _lists_from(made._measure, origin, landmarks, rows, sizes, ids)
        if ids.size and (ids.min() < 0 or ids.max() >= made._next_id or np.unique(ids).size < ids.size):
            raise ValueError("ids must be distinct and below next_id")
        made._state = _State(lists, _assignment_of(lists), n_trained, bandwidth)
        return made


def _lists_from(
    measure: Measure, origin: np.ndarray, landmarks: np.ndarray, rows: np.ndarray, sizes: np.ndarray, ids: np.ndarray
) -> Lists:
    """Return lists from the arrays of a file. Raise ValueError if the arrays are invalid."""
    n_lists, n_features = landmarks.shape
    if n_lists == 0 or n_features == 0 or sizes.size != n_lists or origin.size != n_features:
        raise ValueError(
            f"sizes and origin must match landmarks of shape {landmarks.shape}, got {sizes.size} and {origin.size} "
            "entries"
        )
    if rows.shape != (ids.size, n_features) or sizes.min() < 0 or sizes.max() > ids.size or sizes.sum() != ids.size:
        raise ValueError(
            f"rows and sizes must match the {ids.size} ids, got rows of shape {rows.shape} and sizes that add up to "
            f"{sizes.sum()}"
        )
    if not all(map(fits, (origin, landmarks, rows))):
        raise ValueError("origin, landmarks and rows must be finite and at most 1e15 in absolute value")
    if measure.metric == "cosine" and (np.abs(np.einsum("ij,ij->i", rows, rows) - 1.0) > 1e-3).any():
        raise ValueError("rows must have unit length")
    stops = np.cumsum(sizes)
    rises = np.diff(ids, prepend=-1) > 0
    rises[(stops - sizes)[sizes > 0]] = True
    if not rises.all():
        raise ValueError("ids must be in ascending order in each list")
    halves = measure.halves(rows)
    spans = [slice(stop - size, stop) for stop, size in zip(stops.tolist(), sizes.tolist(), strict=True)]
    parts = (Part(GrowingColumns(rows[span].copy(), halves[span].copy(), ids[span].copy())) for span in spans)
    return Lists(origin, landmarks, measure.halves(landmarks), tuple(parts), ids.size)


def _assignment_of(lists: Lists) -> GrowingColumns:
    """Return the ids of all rows in ascending order, and the list of each row."""
    ids = np.concatenate([part.ids for part in lists.parts])
    which = np.repeat(np.arange(len(lists.parts)), [part.n for part in lists.parts])
    order = np.argsort(ids)
    return GrowingColumns(ids[order], which[order].astype(np.int32))
