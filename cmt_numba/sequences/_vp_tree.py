"""Vantage-point trees for nearest-neighbour search in metric spaces."""

from types import SimpleNamespace
from typing import Any, Self

import numpy as np

from .. import persistence as files
from .._change import uninterrupted
from .._validation import check_ids, check_integer, check_known, check_matrix, check_real, check_seed, check_wanted
from ._costs import COSTS, QUERIED, STORED, Costs, checked_costs
from ._edit_distance import EditDistance
from ._encoding import SEQUENCES, Alphabet, Sequences, check_saved
from ._point_store import PointStore, number_of_points, space_of_rows
from ._search import Neighbors, nothing_found
from ._spaces import Space, SpaceKind, distances_between
from ._vp_search import Nodes, search_nodes

_LARGEST = float(np.finfo(np.float32).max)
_SHARE_GONE = 0.5  # maximum fraction of removed points before the tree is rebuilt
_GROWTH = 2.0  # maximum growth factor before the tree is rebuilt, because inserts unbalance the tree
_CANDIDATES, _SAMPLE = 6, 48  # number of vantage points to try, and sample size for the variance of their distances

# The search for a power of distances that satisfies the triangle inequality.
_POINTS, _OTHERS = 150, 300  # sample sizes for triples of points
_LEAST, _MOST = 2.0**-6, 2.0**4
_STEPS = 24  # number of bisection steps


class VPTree(files.Saved):
    """Vantage-point tree for nearest-neighbour search in a metric space.

    Each node splits its points at the median distance from one of them, the vantage point. With the triangle
    inequality, a search skips subtrees that cannot contain a nearer point (Yianilos, Data structures and algorithms for
    nearest neighbor search in general metric spaces, 1993). Points can be inserted and removed at any time.

    Parameters
    ----------
    metric : EditDistance or {"euclidean", "angular"}, default "euclidean"
        Metric for sequences or for rows of numbers. An edit distance must have ``symmetric=True``. "angular" is the
        angle between two rows in radians, from 0 to pi.
    leaf_size : int, default 8
        Maximum number of points in a leaf.
    tau : float in [0, 1), default 0.0
        Search tolerance. A search skips subtrees without points closer than ``1 - tau`` times the distance of the
        current ``k``-th result. Larger values reduce the number of computed distances, but nearer points may be missed.
    tolerance : float in [0, 1], optional
        Fraction of sampled triples of points that may violate the triangle inequality. The tree applies the inequality
        to the largest power of distances that respects this tolerance (``power_``; Skopal's TriGen, 2007). For a
        metric, the power is above 1, which reduces the number of computed distances, but nearer points may be missed.
        By default, distances of a metric are not raised to a power, and results are exact. Edit distances with
        ``transposition`` or ``normalized`` are not metrics. Their default is 0, and results are nearly always exact.
    random_state : int or numpy.random.SeedSequence, optional
        Random seed.

    Examples
    --------
    >>> from cmt_numba.sequences import EditDistance
    >>> words = ["apple", "maple", "ample", "table"]
    >>> tree = VPTree(EditDistance("abcdefghijklmnopqrstuvwxyz"), random_state=0)
    >>> tree.insert(words)
    array([0, 1, 2, 3])
    >>> found = tree.query(["appel"], k=1)
    >>> found.ids, found.distances
    (array([[0]]), array([[1.]], dtype=float32))
    """

    FIELDS = files.FieldTable(
        metric=files.OptionalField(files.NameField("euclidean", "angular")),
        distance=files.OptionalField(files.PartField(EditDistance)),
        leaf_size=files.NumberField(),
        tau=files.RealField(),
        tolerance=files.OptionalField(files.RealField()),
        random=files.GeneratorField(),
        next_id=files.NumberField(),
        ids=files.ArrayField(np.int64),
        sequences=files.OptionalField(SEQUENCES),
        costs=files.OptionalField(COSTS),
        rows=files.OptionalField(files.ArrayField(np.float32, n_axes=2, bounds=(-_LARGEST, _LARGEST))),
    )

    def __init__(
        self,
        metric: EditDistance | str = "euclidean",
        *,
        leaf_size: int = 8,
        tau: float = 0.0,
        tolerance: float | None = None,
        random_state: int | np.random.SeedSequence | None = None,
    ) -> None:
        if not isinstance(metric, EditDistance) and metric not in ("euclidean", "angular"):
            raise ValueError(f"metric must be an EditDistance, 'euclidean' or 'angular', got {metric!r:.50}")
        if isinstance(metric, EditDistance):
            _check_metric(metric)
        self.metric = metric
        self.tolerance = None if tolerance is None else check_real("tolerance", tolerance, 0.0, 1.0)
        self.leaf_size = check_integer("leaf_size", leaf_size, 1, 2**15)
        self.tau = check_real("tau", tau, 0.0, 1.0)
        if self.tau == 1.0:
            raise ValueError(f"tau must be below 1, got {self.tau}")
        self._random = np.random.default_rng(check_seed(random_state))
        self._store: PointStore | None = None
        self._alphabet: Alphabet | None = None  # alphabet of the stored sequences
        self._costs: Costs  # costs with which the tree was built
        self._ids = np.empty(0, np.int64)  # ids of the stored points, ascending
        self._there = np.empty(0, bool)
        self._next_id = 0
        self._nodes: Nodes | None = None  # None if the tree must be rebuilt
        self._n_nodes = self._depth = self._n_built = 0
        self._power = 1.0

    # Contents

    def __len__(self) -> int:
        return int(np.count_nonzero(self._there))

    def __contains__(self, point_id: object) -> bool:
        if not isinstance(point_id, int | np.integer) or isinstance(point_id, bool):
            return False
        return bool(self._places(np.array([point_id]))[0] >= 0)

    @property
    def ids(self) -> np.ndarray:
        """Ids of all points in ascending order: int64, shape (n,)."""
        return self._ids[self._there]

    @property
    def power_(self) -> float:
        """Power of distances to which the tree applies the triangle inequality."""
        if self._nodes is None and len(self) > 0:
            self._build_anew()
        return self._power

    # Changes

    def insert(self, X: Any) -> np.ndarray:
        """Insert points and return their new ids, which ascend and are never reused.

        ``X`` is a list of sequences, or an array-like of shape (n, n_features), depending on the metric.
        """
        added = self._as_points("X", X, STORED)
        n_new, first, first_id = number_of_points(added), self._ids.size, self._next_id
        ids = np.arange(first_id, first_id + n_new)
        try:
            uninterrupted(self._append, added, ids)
            nodes = self._nodes
            if nodes is None or first + n_new > _GROWTH * self._n_built:
                self._build_anew()
            else:
                for point in range(first, first + n_new):
                    self._insert_point(point)
        except BaseException:
            self._nodes = None
            self._there[self._ids >= first_id] = False  # a rebuild may have moved them
            raise
        return ids

    def _append(self, added: Space, ids: np.ndarray) -> None:
        of_all, there = np.concatenate([self._ids, ids]), np.concatenate([self._there, np.ones(ids.size, bool)])
        if self._store is None:
            self._store = PointStore(added)
            if isinstance(self.metric, EditDistance):
                self._alphabet, self._costs = self.metric._prepared()
        else:
            self._store.append(added)
        self._ids, self._there, self._next_id = of_all, there, self._next_id + ids.size

    def remove(self, ids: Any) -> None:
        """Remove points by their distinct ids, which are never reused."""
        ids = check_ids(ids)
        found = self._places(ids)
        check_known(ids, found)
        self._there[found] = False
        if np.count_nonzero(~self._there) > _SHARE_GONE * self._there.size:
            self._nodes = None

    def _places(self, ids: np.ndarray) -> np.ndarray:
        places = np.searchsorted(self._ids, ids)
        found = np.where(places < self._ids.size, places, -1)
        if self._ids.size > 0:
            found[(self._ids[found] != ids) | ~self._there[found]] = -1
        return found

    def rebuild(self) -> None:
        """Rebuild the tree with the current costs of the edit distance, and free the memory of removed points.

        If the distance is fitted again, call this method to use the new costs.
        """
        if self._store is not None and isinstance(self.metric, EditDistance):
            _check_metric(self.metric)
            costs = self.metric._prepared(self._alphabet)[1]
            self._store, self._costs = self._store.with_costs(costs), costs
        self._nodes = None

    # Queries

    def query(self, X: Any, k: int = 1) -> Neighbors:
        """Return the ``k`` nearest points of each query. Ties go to the point that was inserted first."""
        queries = self._as_points("X", X, QUERIED)
        found = nothing_found(number_of_points(queries), check_wanted("k", k, len(self)), np.float64)
        if len(self) > 0:
            nodes = self._nodes or self._build_anew()
            share, nodes = 1.0 - self.tau, nodes._replace(depth=self._depth, power=self._power)
            search_nodes(nodes, queries, self._stored(), self._there, share, found)
            found = found._replace(ids=np.where(found.ids >= 0, self._ids[found.ids], -1))
        if isinstance(self.metric, EditDistance):
            found = found._replace(distances=found.distances.astype(np.float32))
        return found

    # Points

    def _as_points(self, name: str, X: Any, side: int) -> Space:
        if isinstance(self.metric, EditDistance):
            points = self.metric._as_points(name, X, side, self._alphabet)
            if self._store is None:
                return points
            return self._costs.points(Sequences(points.symbols, points.offsets), side)
        X = check_matrix(X, n_features=None if self._store is None else self._stored().rows.shape[1])
        rows = np.ascontiguousarray(X.toarray() if hasattr(X, "toarray") else X, np.float32)
        if not np.isfinite(rows).all():
            raise ValueError(f"{name} must be finite in float32")
        if self.metric == "euclidean":
            return space_of_rows(SpaceKind.EUCLIDEAN, rows)
        lengths = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
        if not lengths.all():
            raise ValueError(f"{name} must not have rows of zeros, because their direction is undefined: remove them")
        return space_of_rows(SpaceKind.ANGULAR, (rows / lengths).astype(np.float32))

    def _stored(self) -> Space:
        assert self._store is not None
        return self._store.view()

    # Nodes

    def _grow(self, n_nodes: int) -> Nodes:
        """Allocate room for ``n_nodes`` nodes, and return the nodes."""
        before, n = self._nodes, self._n_nodes
        self._nodes = Nodes(
            np.full(n_nodes, -1, np.int64),
            np.full((n_nodes, 2), -1, np.int64),
            np.zeros((n_nodes, 2)),
            np.zeros((n_nodes, 2)),
            np.zeros((n_nodes, self.leaf_size), np.int64),
            np.zeros(n_nodes, np.int64),
            0,
            1.0,
        )
        if before is not None:
            for array, old in zip(self._nodes[:-2], before[:-2], strict=True):
                array[:n] = old[:n]
        return self._nodes

    def _new_node(self) -> int:
        assert self._nodes is not None
        if self._n_nodes == self._nodes.vantage.size:
            self._grow(2 * self._n_nodes)
        self._n_nodes += 1
        return self._n_nodes - 1

    def _build_anew(self) -> Nodes:
        """Drop removed points, build a new tree, and return its nodes."""
        if self._store is not None and not self._there.all():
            kept = np.flatnonzero(self._there)
            self._store, self._ids, self._there = self._store.taken(kept), self._ids[kept], np.ones(kept.size, bool)
        self._nodes, self._n_nodes, self._depth, self._n_built = None, 0, 0, self._ids.size
        tolerance = self.tolerance
        if tolerance is None and isinstance(self.metric, EditDistance) and not self.metric._is_metric():
            tolerance = 0.0
        if tolerance is not None and self._ids.size > 0:
            self._power = power_for(self._stored(), tolerance, self._random)
        try:
            self._grow(max(16, 4 * self._ids.size // self.leaf_size))
            self._build(self._new_node(), np.arange(self._ids.size), 1)
        except BaseException:
            self._nodes = None
            raise
        assert self._nodes is not None
        return self._nodes

    def _build(self, node: int, points: np.ndarray, depth: int) -> None:
        waiting = [(node, points, depth)]
        while waiting:
            node, points, depth = waiting.pop()
            self._depth = max(self._depth, depth)
            assert self._nodes is not None
            if points.size <= self.leaf_size:
                self._nodes.members[node, : points.size], self._nodes.n_members[node] = points, points.size
                continue
            vantage, points, distances = sorted_by_distance(self._stored(), points, self._random)
            half = (points.size + 1) // 2
            children = self._new_node(), self._new_node()
            nodes = self._nodes
            nodes.vantage[node], nodes.n_members[node], nodes.children[node] = vantage, 0, children
            for child, lengths in enumerate((distances[:half], distances[half:])):
                nodes.nearest[node, child] = lengths.min(initial=np.inf)
                nodes.farthest[node, child] = lengths.max(initial=-np.inf)
            waiting += [(children[0], points[:half], depth + 1), (children[1], points[half:], depth + 1)]

    def _insert_point(self, point: int) -> None:
        nodes, node, depth = self._nodes, 0, 1
        assert nodes is not None
        while nodes.vantage[node] >= 0:
            length = distances_from(self._stored(), int(nodes.vantage[node]), np.array([point]))[0]
            child = int(length > 0.5 * (nodes.farthest[node, 0] + nodes.nearest[node, 1]))
            nodes.nearest[node, child] = min(nodes.nearest[node, child], length)
            nodes.farthest[node, child] = max(nodes.farthest[node, child], length)
            node, depth = int(nodes.children[node, child]), depth + 1
        members = nodes.members[node, : nodes.n_members[node]]
        self._build(node, np.append(members[self._there[members]], point), depth)

    # Files contain points but no nodes. A loaded tree is rebuilt on first use.

    def _packed(self) -> Any:
        metric, points, sequences, costs, rows = self.metric, None, None, None, None
        if self._store is not None:
            points = self._store.taken(np.flatnonzero(self._there)).view()
            if isinstance(metric, EditDistance):
                sequences, costs = Sequences(points.symbols, points.offsets), self._costs
            else:
                rows = points.rows
        name, distance = (None, metric) if isinstance(metric, EditDistance) else (metric, None)
        options = {"leaf_size": self.leaf_size, "tau": self.tau, "tolerance": self.tolerance}
        state = {"ids": self.ids, "random": self._random, "next_id": self._next_id}
        return SimpleNamespace(
            **options, **state, metric=name, distance=distance, sequences=sequences, costs=costs, rows=rows
        )

    @classmethod
    def _of_fields(cls, values: dict[str, Any]) -> Self:
        metric, distance = values["metric"], values["distance"]
        options = {name: values[name] for name in ("leaf_size", "tau", "tolerance")}
        made = cls(metric if distance is None else distance, **options)
        made._random, made._next_id = values["random"], values["next_id"]
        ids, sequences, costs, rows = (values[name] for name in ("ids", "sequences", "costs", "rows"))
        if (ids < 0).any() or (ids >= made._next_id).any() or (ids[1:] <= ids[:-1]).any():
            raise ValueError(f"ids must be in ascending order and between 0 and {made._next_id - 1}")
        if distance is not None and sequences is not None and costs is not None:
            made._alphabet = distance._prepared()[0]
            n_symbols = len(made._alphabet.symbols)
            check_saved(sequences, n_symbols)
            made._costs = checked_costs(costs, n_symbols, normalized=distance.normalized)
            points = made._costs.points(sequences, STORED)
        elif metric is not None and rows is not None:
            points = space_of_rows(SpaceKind.EUCLIDEAN if metric == "euclidean" else SpaceKind.ANGULAR, rows)
        elif ids.size == 0:
            return made
        else:
            raise ValueError("points must be those of the metric")
        if number_of_points(points) != ids.size:
            raise ValueError("each id must have one point")
        made._store, made._ids, made._there = PointStore(points), ids, np.ones(ids.size, bool)
        return made


def _check_metric(metric: EditDistance) -> None:
    if not metric.symmetric:
        raise ValueError("metric must be symmetric: pass EditDistance(symmetric=True)")


def distances_from(space: Space, point: int, others: np.ndarray) -> np.ndarray:
    """Return the distances between a stored point and other stored points: float64."""
    return distances_between(space, space, np.full(others.size, point), others)


def sorted_by_distance(
    space: Space, points: np.ndarray, random: np.random.Generator
) -> tuple[int, np.ndarray, np.ndarray]:
    """Return a vantage point, and the other points and their distances (float64) from it, nearest first.

    The vantage point is the random candidate whose distances have the largest variance.
    """
    candidates = random.choice(points, min(_CANDIDATES, points.size), replace=False)
    sample = random.choice(points, min(_SAMPLE, points.size), replace=False)
    vantage = int(candidates[np.argmax([distances_from(space, point, sample).var() for point in candidates])])
    others = points[points != vantage]
    distances = distances_from(space, vantage, others)
    order = np.argsort(distances, kind="stable")
    return vantage, others[order], distances[order]


def power_for(space: Space, tolerance: float, random: np.random.Generator) -> float:
    """Return the largest power with which few triples of points violate the triangle inequality.

    Powers are one family of distance modifiers (Skopal, Unified framework for fast exact and approximate search in
    dissimilarity spaces, 2007). Raised to a small enough power below 1, almost any dissimilarity satisfies the
    inequality, but the bounds become weaker. A power above 1 tightens the bounds of a metric, but some become wrong.

    At most a fraction ``tolerance`` of sampled triples may violate the inequality. A triple consists of a point, its
    nearest neighbour in a sample, and another point.
    """
    n = max(space.offsets.size - 1, space.rows.shape[0])
    others = random.choice(n, min(_OTHERS, n), replace=False)
    points = others[:_POINTS]
    distances = np.array([distances_from(space, point, others) for point in points], float)
    alone = np.where(distances > 0.0, distances, np.inf)
    near = alone.argmin(axis=1)
    between = np.array([distances_from(space, others[i], others) for i in near], float)
    sides = np.stack([np.broadcast_to(alone[np.arange(near.size), near, None], between.shape), distances, between])
    return greatest_power(sides[:, np.isfinite(sides).all(axis=0) & (sides > 0.0).all(axis=0)], tolerance)


def greatest_power(sides: np.ndarray, tolerance: float) -> float:
    """Return the largest power with which at most a fraction ``tolerance`` of triangles violates the inequality."""
    if sides.shape[1] == 0:
        return 1.0
    sides = np.sort(sides, axis=0)
    shorter, longest = np.log(sides[:2] / sides[2]), sides[2]
    n_most = int(tolerance * longest.size)
    low, high = np.log(_LEAST), np.log(_MOST)
    for _ in range(_STEPS):
        middle = 0.5 * (low + high)
        broken = np.exp(np.exp(middle) * shorter).sum(axis=0) < 1.0 - 1e-6
        low, high = (low, middle) if np.count_nonzero(broken) > n_most else (middle, high)
    return float(np.exp(low))
