"""Approximate nearest neighbors by vector quantisation."""

from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from scipy.spatial.distance import cdist, pdist

from .. import _validation as checks
from .. import persistence as files
from .._change import Lockable, changes_in_one_step, reads, spans
from .._index import DenseIndex
from .._jit import keeps_interpreter
from .._kernels import require, top_k
from ..persistence import Saved

SIMILARITIES = ("cosine", "inner_product", "euclidean", "gaussian", "laplacian")
_KERNELS = ("gaussian", "laplacian")
_SAMPLE = 1000  # number of rows whose distances determine the bandwidth
_COMPARED_AT_ONCE = 1 << 22  # number of city-block distances computed together
_LARGEST = float(np.finfo(np.float32).max)


class Found(NamedTuple):
    """Nearest rows of each query, nearest first."""

    ids: np.ndarray  # int64 (n, k), padded with -1
    values: np.ndarray  # float32 (n, k), similarities padded with -inf, or distances padded with inf; others are finite


class LandmarkIndex(Lockable, Saved):
    """Index of dense rows for approximate nearest-neighbor search.

    The index is an inverted file with vector quantisation (Sivic and Zisserman, Video Google, ICCV 2003). Rows are in
    lists of about 100, and a search compares a query with the rows in the nearest lists. The landmark of a list is the
    mean of its rows. Lists are split, joined and refreshed as rows are inserted and removed, at any time.

    Parameters
    ----------
    metric : {"cosine", "inner_product", "euclidean", "gaussian", "laplacian"}, default "cosine"
        Similarity of rows, or their Euclidean distance. "gaussian" is ``exp(-d**2 / (2 * bandwidth**2))`` for the
        Euclidean distance ``d``. "laplacian" is ``exp(-d / bandwidth)`` for the city-block distance ``d``; it compares
        a query with all rows.
    target_recall : float in (0, 1], default 0.95
        The fraction of the nearest rows that a query finds on average. With 1, a query is compared with all rows. This
        attribute can be changed at any time.
    bandwidth : float, optional
        Bandwidth of "gaussian" and "laplacian". By default, the median distance between up to 1,000 rows, computed by
        the first insert and by :meth:`rebuild`.
    random_state : int or numpy.random.SeedSequence, optional
        Random seed.

    Notes
    -----
    Several threads may use the index. Changes run one at a time, and queries run between them.

    Examples
    --------
    >>> index = LandmarkIndex("euclidean", random_state=0)
    >>> index.insert([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]])
    array([0, 1, 2])
    >>> found = index.query([[0.0, 0.0]], k=2)
    >>> found.ids, found.values
    (array([[0, 1]]), array([[0., 5.]], dtype=float32))
    """

    FIELDS = files.FieldTable(
        options=files.OptionsField(),
        _seed=files.NumberField(0, 2**32 - 1),
        _bandwidth=files.RealField(0.0, 1e60),
        _index=files.OptionalField(files.VariantField(dense=DenseIndex)),
    )
    _constraints: ClassVar[dict[str, checks.Constraint]] = {
        "metric": checks.OneOf(SIMILARITIES),
        "target_recall": checks.Real(0.0, 1.0, above=True),
        "bandwidth": checks.Optional(checks.Real(0.0, 1e30, above=True)),
    }

    def __init__(
        self,
        metric: str = "cosine",
        *,
        target_recall: float = 0.95,
        bandwidth: float | None = None,
        random_state: int | np.random.SeedSequence | None = None,
    ) -> None:
        self.metric, self.target_recall, self.bandwidth = metric, target_recall, bandwidth
        checks.check_parameters(self, self._constraints)
        self._seed = int(checks.check_seed(random_state).generate_state(1)[0])
        self._index: DenseIndex | None = None  # None before the first insert
        self._bandwidth = bandwidth or 1.0

    # Contents

    def __len__(self) -> int:
        return 0 if self._index is None else len(self._index)

    def __contains__(self, row_id: object) -> bool:
        if not isinstance(row_id, int | np.integer) or isinstance(row_id, bool):
            return False
        index, ids = self._index, np.array([row_id])
        return index is not None and bool(self._lock.read(lambda: index.contains(ids))[0])

    @property
    def ids(self) -> np.ndarray:
        """Ids of all rows in ascending order: int64, shape (n,)."""
        index = self._index
        return np.empty(0, np.int64) if index is None else self._lock.read(lambda: np.sort(index.ids))

    @property
    def n_lists_(self) -> int:
        """Number of lists."""
        return 0 if self._index is None else self._index.n_lists

    @property
    def bandwidth_(self) -> float:
        """Bandwidth of "gaussian" and "laplacian"."""
        self._filled()
        return self._bandwidth

    @property
    def landmarks_(self) -> np.ndarray:
        """Landmarks: float32, shape (n_lists_, n_features)."""
        return self._lock.read(self._filled().list_means)

    def _filled(self) -> DenseIndex:
        if self._index is None:
            raise ValueError("landmarks exist only after the first insert")
        return self._index

    # Changes

    @keeps_interpreter
    def insert(self, X: Any) -> np.ndarray:
        """Insert dense rows and return their new ids, which ascend and are never reused."""
        return self._insert(self._rows(X))

    @changes_in_one_step
    def _insert(self, rows: np.ndarray) -> np.ndarray:
        if self._index is not None:
            return self._index.insert(rows)
        metric = "euclidean" if self.metric in _KERNELS else self.metric
        index = DenseIndex(rows.shape[1], metric, self._seed, needs_lists=True)
        ids = index.insert(rows)
        self._index, self._bandwidth = index, self._bandwidth_of(rows)
        return ids

    def _bandwidth_of(self, rows: np.ndarray) -> float:
        """Return the bandwidth for a sample of some rows, or 1.0 if all rows are equal."""
        if self.bandwidth is not None or self.metric not in _KERNELS or len(rows) < 2:
            return self.bandwidth or 1.0
        some = np.random.default_rng(self._seed).permutation(len(rows))[:_SAMPLE]
        apart = pdist(rows[some], "cityblock" if self.metric == "laplacian" else "euclidean")
        apart = apart[apart > 0]
        return float(np.median(apart)) if apart.size else 1.0

    @keeps_interpreter
    @changes_in_one_step
    def remove(self, ids: Any) -> None:
        """Remove rows by their distinct ids, which are never reused.

        Raises
        ------
        KeyError
            If an id is not stored. The index is unchanged in this case.
        """
        ids = checks.check_ids(ids)
        known = np.zeros(ids.size, np.bool_) if self._index is None else self._index.contains(ids)
        checks.check_known(ids, np.where(known, ids, -1))
        self._filled().remove(ids)

    @changes_in_one_step
    def rebuild(self) -> None:
        """Refresh all lists, and compute the default bandwidth again."""
        if len(self) > 0:
            index = self._filled()
            index.reroute(len(index))
            self._bandwidth = self._bandwidth_of(index.vectors(np.sort(index.ids)))

    # Queries

    @keeps_interpreter
    def query(self, X: Any, k: int = 1) -> Found:
        """Return the ``k`` nearest rows of each query. Ties go to the row that was inserted first."""
        target = checks.Real(0.0, 1.0, above=True).check("target_recall", self.target_recall)
        return self._search(self._rows(X), k, target)

    @reads
    def _search(self, Q: np.ndarray, k: int, target: float) -> Found:
        k = checks.check_wanted("k", k, len(self))
        if self._index is None:
            ids, scores = np.full((len(Q), k), -1, np.int64), np.full((len(Q), k), -np.inf)
        elif self.metric == "laplacian":
            ids, scores = self._nearest_by_blocks(self._index, Q, k)
        else:
            ids, scores = self._index.search(Q, k, target)
        scores = np.where(ids >= 0, np.clip(scores, -_LARGEST, _LARGEST), scores)  # only padding is infinite
        if self.metric == "euclidean":
            scores = np.where(ids >= 0, np.abs(scores), np.inf)
        elif self.metric in _KERNELS:
            with np.errstate(over="ignore"):  # a tiny bandwidth causes overflow
                apart = scores / np.float64(self._bandwidth)
                similar = np.exp(apart if self.metric == "laplacian" else -0.5 * apart**2)
            scores = np.where(ids >= 0, similar, -np.inf)
        return Found(ids, scores.astype(np.float32))

    @staticmethod
    def _nearest_by_blocks(index: DenseIndex, Q: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of the nearest rows by city-block distance, and the negative distances."""
        ids, scores = np.full((len(Q), k), -1, np.int64), np.full((len(Q), k), -np.inf)
        stored = np.sort(index.ids)
        n, rows = min(k, stored.size), index.vectors(stored)
        for first, stop in spans(len(Q), max(1, _COMPARED_AT_ONCE // max(1, stored.size))) if n > 0 else ():
            best, values = top_k(-cdist(Q[first:stop], rows, "cityblock").astype(np.float32), n)
            ids[first:stop, :n], scores[first:stop, :n] = stored[best], values
        return ids, scores

    def _rows(self, X: Any) -> np.ndarray:
        """Return rows as float32. Raise TypeError or ValueError if the metric cannot compare them."""
        if hasattr(X, "toarray"):
            raise TypeError("X must be dense: use CMTRetriever for sparse rows")
        n_features = None if self._index is None else self._index.n_features
        with np.errstate(over="ignore"):
            rows = np.ascontiguousarray(checks.check_matrix(X, n_features=n_features), np.float32)
        if not np.isfinite(rows).all():
            raise ValueError("X must be finite in float32, but contains NaN, infinity or a value too large")
        if self.metric == "cosine" and not rows.any(axis=1).all():
            raise ValueError("X must not have rows of zeros, because their cosine is undefined: remove them")
        return rows

    # Files

    @reads
    def _contents(self) -> files.Contents:
        contents = super()._contents()
        return contents._replace(arrays={name: array.copy() for name, array in contents.arrays.items()})

    def _packed(self) -> Any:
        return SimpleNamespace(**vars(self), options={name: getattr(self, name) for name in self._constraints})

    @classmethod
    def _of_fields(cls, values: dict[str, Any]) -> Self:
        made, index = cls(**values.pop("options")), values["_index"]
        require(values["_bandwidth"] > 0.0, "bandwidth must be positive")
        vars(made).update(values)
        if index is not None:
            metric = "euclidean" if made.metric in _KERNELS else made.metric
            require(index.metric == metric, "the index must have the metric of its options")
            require(np.isfinite(index.vectors(index.ids)).all(), "rows must be finite")
        return made

    def __getstate__(self) -> files.Contents:
        return self._contents()

    def __setstate__(self, contents: files.Contents) -> None:
        vars(self).update(vars(self._made_of(contents)))


def weights_of(metric: str, values: np.ndarray) -> np.ndarray:
    """Return positive weights of votes: similarities, or inverse distances."""
    shortest = np.float32(1e-30)
    weights = 1.0 / np.maximum(values, shortest) if metric == "euclidean" else np.maximum(values, shortest)
    return np.asarray(weights, np.float64)
