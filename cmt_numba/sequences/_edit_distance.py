"""An edit distance with trainable costs."""

from collections.abc import Hashable, Iterable
from dataclasses import KW_ONLY, dataclass, field
from types import SimpleNamespace
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from .. import _validation as checks
from .. import persistence as files
from ._alignments import count_edits
from ._costs import COSTS, QUERIED, STORED, Costs, Learner, checked_costs, closed, learn, symbol_features
from ._encoding import Alphabet, AlphabetField, Sequences, Symbols, as_list, check_sequences
from ._search import all_distances, blocks_of, nothing_found, search
from ._spaces import Space, distances_between

_COST = checks.Real(0.0, 1e6, above=True)
_PRIOR = 5.0  # initial denominator of AdaGrad steps
_PRIOR_OF_GROUPS = 40.0  # initial denominator of AdaGrad steps for groups of edits
_PAIRS_AT_ONCE = 1 << 12  # number of pairs processed together, whose codes fit into the cache
_MOST_CELLS = 2**28  # maximum size of an alignment table: 1 GB


class Alignment(NamedTuple):
    """An optimal alignment of two sequences."""

    distance: float
    steps: list[tuple[Hashable | None, Hashable | None]]  # a symbol of each sequence, or None for a gap


@dataclass(eq=False, repr=False)
class EditDistance(files.Saved, checks.Constrained, BaseEstimator):
    """Edit distance between sequences of symbols, with trainable costs.

    The distance is the smallest cost of turning one sequence into another by substitutions, insertions, deletions and
    exchanges of neighbours. Each pair of symbols has its own costs of substitution and exchange, and each symbol has
    its own costs of insertion and deletion.

    :meth:`fit` learns costs from queries and their targets. Each round counts the edits in the best alignments of
    queries with their targets and with the nearest wrong targets. Costs follow the gradient of a logistic loss of the
    difference between the two distances (margin boosting; Parker, Fern and Tadepalli, Learning for efficient retrieval
    of structured data with noisy queries, ICML 2007, section 2.2).

    Replacing a symbol directly never costs more than replacing it in several steps. A symmetric distance with
    ``transposition=None`` is therefore a metric, unless it is ``normalized``, and :class:`VPTree` is
    exact for this distance.

    If all edits have the same cost, bit-parallel kernels compute distances several times faster (Myers, 1999; Hyyrö,
    2003).

    Parameters
    ----------
    alphabet : str or iterable of hashable, optional
        The symbols. By default, :meth:`fit` collects the symbols of its sequences.
    substitution, insertion, deletion : float, default 1.0
        Initial costs, above 0.
    transposition : float or None, default 1.0
        Initial cost of exchanging two neighbours, above 0, or None to disallow exchanges. Exchanged symbols take part
        in no other edit (optimal string alignment).
    gap_opening : float, optional
        Initial cost of each run of insertions or deletions, above 0, in addition to the costs of its symbols (affine
        gaps; Gotoh, An improved algorithm for matching biological sequences, 1982).
    local : float, optional
        Initial cost of skipping a symbol at either end of a query, above 0. Queries are then compared with the nearest
        part of a target, and the rest of the target costs nothing. If ``local`` exceeds the deletion costs, whole
        queries are matched. If ``local`` is smaller, parts of queries may be matched, as in the local alignment of
        Smith and Waterman (Identification of common molecular subsequences, 1981). Requires ``symmetric=False``.
    symmetric : bool, default True
        Whether costs are the same in both directions. If False, the distance is the cost of turning the query into the
        target.
    normalized : bool, default False
        Whether distances are divided by the length of the longer sequence, or with ``local`` by the length of the
        query.
    featured : bool, default False
        Whether similar edits are learned together, for large alphabets with few examples. Symbols must be numbers, or
        tuples of numbers of the same length. In each round, a regression tree groups edits by these numbers and their
        differences, and all edits of a group take the same step.
    n_rounds : int, default 30
        Number of rounds of :meth:`fit`.
    learning_rate : float, default 0.2
        The largest relative change of a cost in the first round. Steps shrink as in AdaGrad (Duchi et al., 2011).
    n_examples : int, default 2000
        Maximum number of queries in a round. Queries are drawn at random.
    verbose : bool, default False
        Whether :meth:`fit` shows a progress bar.
    random_state : int, numpy.random.RandomState or None
        Random seed.

    Attributes
    ----------
    errors_ : list of float
        Error rate of each round of :meth:`fit`: the fraction of queries that were closer to a wrong target.

    Examples
    --------
    >>> distance = EditDistance("abcdefghijklmnopqrstuvwxyz")
    >>> distance.pairwise(["kitten"], ["sitting", "mitten"])
    array([[3., 1.]], dtype=float32)
    >>> distance.align("ab", "b").steps
    [('a', None), ('b', 'b')]
    """

    FIELDS = files.FieldTable(
        parameters=files.OptionsField(),
        alphabet=AlphabetField(),
        costs=COSTS,
        errors=files.OptionalField(files.ArrayField(np.float64, bounds=(0, 1))),
    )
    alphabet: Iterable[Hashable] | None = None
    _: KW_ONLY
    substitution: Annotated[float, _COST] = 1.0
    insertion: Annotated[float, _COST] = 1.0
    deletion: Annotated[float, _COST] = 1.0
    transposition: Annotated[float | None, checks.Optional(_COST)] = 1.0
    gap_opening: Annotated[float | None, checks.Optional(_COST)] = None
    local: Annotated[float | None, checks.Optional(_COST)] = None
    symmetric: Annotated[bool, checks.Flag()] = True
    normalized: Annotated[bool, checks.Flag()] = False
    featured: Annotated[bool, checks.Flag()] = False
    n_rounds: Annotated[int, checks.Integer(0, 10_000)] = 30
    learning_rate: Annotated[float, checks.Real(0.0, 10.0, above=True)] = 0.2
    n_examples: Annotated[int, checks.Integer(1)] = 2000
    verbose: Annotated[bool, checks.Flag()] = False
    random_state: Any = None

    _alphabet: Alphabet = field(init=False)
    _costs: Costs = field(init=False)

    # Learning

    def fit(self, targets: Any, queries: Any, answers: Any) -> Self:
        """Learn costs from queries, which are noisy versions of targets. Earlier costs are discarded.

        ``answers[i]`` is the position in ``targets`` of the target of query ``i``. There must be at least two targets.
        """
        target_list, query_list = check_sequences("targets", targets), check_sequences("queries", queries)
        alphabet = self._new_alphabet() or Alphabet.of(target_list, query_list)
        meant = np.asarray(answers)
        if meant.ndim != 1 or meant.size != len(query_list) or meant.dtype.kind not in "iu":
            raise ValueError(f"answers must have one integer for each of the {len(query_list)} queries")
        if len(target_list) < 2:
            raise ValueError(f"targets must have at least two sequences, got {len(target_list)}")
        if meant.min() < 0 or meant.max() >= len(target_list):
            wrong = meant[(meant < 0) | (meant >= len(target_list))][0]
            raise ValueError(f"answers must be positions in targets, from 0 to {len(target_list) - 1}, got {wrong}")
        features = symbol_features(alphabet.symbols) if self.featured else None
        costs = self._first_costs(len(alphabet.symbols))
        prior = _PRIOR_OF_GROUPS if self.featured else _PRIOR
        learner = Learner(costs, bool(self.symmetric), self.learning_rate, prior, features)
        costs, errors = learn(
            learner,
            alphabet.encode("targets", target_list),
            alphabet.encode("queries", query_list),
            meant.astype(np.int64),
            self.n_rounds,
            self.n_examples,
            check_random_state(self.random_state),
            bool(self.verbose),
        )
        self.__dict__.update(_alphabet=alphabet, _costs=costs, errors_=errors)
        return self

    # Distances

    @property
    def symbols_(self) -> tuple[Hashable, ...]:
        """The alphabet."""
        return self._prepared()[0].symbols

    @property
    def costs_(self) -> np.ndarray:
        """Costs: ``costs_[i, j]`` replaces symbol ``i`` by ``j``. The last row inserts, the last column deletes.

        To set the costs, assign a matrix of finite, non-negative numbers with zeros on the diagonal. The matrix must be
        symmetric if the distance is symmetric. If a chain of replacements is cheaper than a direct replacement, the
        direct replacement gets the cost of the chain.
        """
        costs = self._prepared()[1].pairs.view()
        costs.flags.writeable = False
        return costs

    @costs_.setter
    def costs_(self, costs: Any) -> None:
        n = len(self._prepared()[0].symbols) + 1
        array = np.asarray(checks.unmasked("costs_", costs))
        if array.shape != (n, n) or array.dtype.kind not in "fiu":
            raise ValueError(f"costs_ must be numbers of shape {(n, n)}, got {array.dtype} of shape {array.shape}")
        if not np.isfinite(array).all() or array.min() < 0 or array.diagonal().any():
            raise ValueError("costs_ must be finite and non-negative, and 0 on the diagonal")
        if self.symmetric and not np.array_equal(array, array.T):
            raise ValueError("costs_ must be symmetric unless symmetric=False")
        costs = self._costs
        pairs = closed(array, costs.openings.size > 0)
        self._costs = Costs.of(pairs, *costs[1:-1])

    def pairwise(self, queries: Any, targets: Any) -> np.ndarray:
        """Return the distances between lists of sequences: float32, shape (n_queries, n_targets)."""
        query_points, stored = self._as_points("queries", queries), self._as_points("targets", targets, STORED)
        distances = np.empty((query_points.offsets.size - 1, stored.offsets.size - 1), np.float32)
        all_distances(query_points, stored, blocks_of(stored), distances)
        return distances

    def paired(self, queries: Any, targets: Any) -> np.ndarray:
        """Return the distance between each query and the target at the same position: float32, shape (n,)."""
        listed, others = as_list("queries", queries), as_list("targets", targets)
        checks.check_entries("targets", len(others), len(listed), "queries")
        distances = np.empty(len(listed), np.float32)
        for first in range(0, distances.size, _PAIRS_AT_ONCE):
            span = slice(first, first + _PAIRS_AT_ONCE)
            query_points = self._as_points("queries", listed[span])
            stored = self._as_points("targets", others[span], STORED)
            rows = np.arange(query_points.offsets.size - 1)
            distances[span] = distances_between(query_points, stored, rows, rows)
        return distances

    def nearest(self, queries: Any, targets: Any, k: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions (int64) and distances (float32) of the ``k`` nearest targets of each query.

        Both have shape (n_queries, k), nearest first, padded with -1 and infinity. Ties go to the smaller position.
        """
        query_points, stored = self._as_points("queries", queries), self._as_points("targets", targets, STORED)
        n_queries, n_stored = query_points.offsets.size - 1, stored.offsets.size - 1
        found = nothing_found(n_queries, checks.check_wanted("k", k, n_stored))
        search(query_points, stored, blocks_of(stored), np.arange(n_stored), np.full(n_queries, -1, np.int64), 0, found)
        return found.ids, found.distances

    def align(self, query: Symbols, target: Symbols) -> Alignment:
        """Return the distance of two sequences, and the pairs of symbols in an optimal alignment.

        A symbol that is inserted, deleted or skipped is paired with None. An exchange of neighbours is two pairs of
        equal symbols, in the order of the target.

        Raises
        ------
        ValueError
            If the sequences are too long: there may be at most 2**28 pairs of symbols, or a third of this number with
            ``gap_opening``.
        """
        query_points, stored = self._as_points("query", [query]), self._as_points("target", [target], STORED)
        n_tables = 3 if self._costs.openings.size > 0 else 1
        lengths = query_points.symbols.size, stored.symbols.size
        if n_tables * (lengths[0] + 1) * (lengths[1] + 1) > _MOST_CELLS:
            raise ValueError(
                f"sequences of {lengths[0]:,} and {lengths[1]:,} symbols are too long to align: use pairwise to get "
                "their distance"
            )
        first, steps = np.zeros(1, np.int64), np.empty((sum(lengths), 2), np.int64)
        codes = Sequences(query_points.symbols, query_points.offsets), Sequences(stored.symbols, stored.offsets)
        n = count_edits(query_points, stored, first, first, np.ones(1), self._costs.no_counts(*codes), steps)
        pairs: list[tuple[Hashable | None, Hashable | None]] = [
            (query[i] if i >= 0 else None, target[j] if j >= 0 else None) for i, j in steps[:n][::-1].tolist()
        ]
        return Alignment(float(distances_between(query_points, stored, first, first)[0]), pairs)

    def _is_metric(self) -> bool:
        return self.transposition is None and not self.normalized and bool(self.symmetric)

    # Preparation

    def _new_alphabet(self) -> Alphabet | None:
        checks.check_parameters(self, self._constraints)
        if self.symmetric and self.insertion != self.deletion:
            raise ValueError("insertion and deletion must cost the same with symmetric=True")
        if self.symmetric and self.local is not None:
            raise ValueError(
                "local requires symmetric=False, because it skips parts of targets, but not of queries, at no cost"
            )
        return None if self.alphabet is None else Alphabet(self.alphabet)

    def _first_costs(self, n: int) -> Costs:
        pairs = np.full((n + 1, n + 1), self.substitution, np.float64)
        pairs[-1], pairs[:, -1] = self.insertion, self.deletion
        np.fill_diagonal(pairs, 0.0)
        n_exchanged = 0 if self.transposition is None else n
        swaps = np.full((n_exchanged, n_exchanged), self.transposition or 0.0, np.float32)
        openings = np.full(0 if self.gap_opening is None else 2, self.gap_opening or 0.0, np.float32)
        ends = np.full(0 if self.local is None else 1, self.local or 0.0, np.float32)
        pairs = closed(pairs, openings.size > 0)
        return Costs.of(pairs, swaps, openings, ends, bool(self.normalized))

    def _prepared(self, stored: Alphabet | None = None) -> tuple[Alphabet, Costs]:
        """Return the alphabet and the costs. Raise ValueError if the alphabet differs from ``stored``."""
        if not hasattr(self, "_costs"):
            alphabet = self._new_alphabet()
            if alphabet is None:
                raise ValueError("the alphabet is not known: pass alphabet=... or call fit")
            self.__dict__.update(_alphabet=alphabet, _costs=self._first_costs(len(alphabet.symbols)))
        if stored is not None and stored.symbols != self._alphabet.symbols:
            raise ValueError("the alphabet of the distance has changed: store all sequences again")
        return self._alphabet, self._costs

    def _encoded(self, name: str, sequences: Any, stored: Alphabet | None = None) -> Sequences:
        """Return encoded sequences. Raise ValueError if the alphabet differs from ``stored``."""
        return self._prepared(stored)[0].encode(name, as_list(name, sequences))

    def _as_points(self, name: str, sequences: Any, side: int = QUERIED, stored: Alphabet | None = None) -> Space:
        return self._prepared(stored)[1].points(self._encoded(name, sequences, stored), side)

    # Files

    def _packed(self) -> Any:
        alphabet, costs = self._prepared()
        parameters = self.get_params(deep=False)
        del parameters["alphabet"], parameters["random_state"]
        errors = getattr(self, "errors_", None)
        return SimpleNamespace(parameters=parameters, alphabet=alphabet, costs=costs, errors=errors)

    @classmethod
    def _of_fields(cls, values: dict[str, Any]) -> Self:
        alphabet = values["alphabet"]
        made = cls(alphabet.symbols, **values["parameters"])
        made._new_alphabet()
        costs = checked_costs(values["costs"], len(alphabet.symbols), normalized=made.normalized)
        both_ways = *((part, part.T) for part in (costs.pairs, costs.swaps)), (costs.openings, costs.openings[::-1])
        if made.symmetric and not all(np.array_equal(*ways) for ways in both_ways):
            raise ValueError("costs must be symmetric, as symmetric=True requires")
        made.__dict__.update(_alphabet=alphabet, _costs=costs)
        if values["errors"] is not None:
            made.errors_ = values["errors"].tolist()
        return made
