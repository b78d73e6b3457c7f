"""Linear scorers of a classifier's labels, and the search for labels to score.

A query scores all labels by matrix products, the labels in the nearest cluster lists, or candidates from trees and an
inverted index. The choice depends on the number of labels and on parameters, never on the other rows of a batch.
"""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import numpy as np
import scipy.sparse
from sklearn.utils import check_random_state

from .. import _forest as forests
from .. import _heads as heads
from .. import persistence as files
from .._change import share_rows, with_progress
from .._engine import Forest, insert_rows, roll_back, teach_rows
from .._index import DenseIndex
from .._validation import check_jobs, check_rows
from ..tree import ContextualMemoryTree, forest_of
from ._feature_scales import FeatureScales, add_rows, move_scorers, standardize
from ._feature_weights import FeatureWeights, weigh
from ._fields import FEATURE_WEIGHTS, TREE
from ._input import Factors, filled, taken, trim_weights
from ._neighbors import row_lengths

MOST_SCORED = 8192  # up to this number of labels, all are scored for each dense row
MOST_SCORED_SPARSE = 1024  # the same limit for sparse rows. With more labels, a search is cheaper.
# Up to this number of labels of one example each, scorers are trained. With more sparse ones, training does not help.
# A pass over more dense ones takes minutes, because each example searches all trees.
MOST_TRAINED_ALONE, MOST_TRAINED_ALONE_DENSE = 8192, 50_000
_RECALL = 0.999  # fraction of rows for which an index of very many dense scorers finds the best label
_ROWS_ASKED = 1024  # number of rows on which the effort of its searches is measured

# Limits on a row's candidates from leaves and from the inverted index.
_FEWEST_CANDIDATES = 16  # lower bound on the maximum number of candidates
_SHARE_OF_LABELS = 0.2  # maximum number of candidates as a fraction of the labels
_LABELS_PER_LEVEL = 400  # maximum number of candidates per level of a balanced tree
_FEWEST_LISTED = 16  # minimum number of labels from the index that are candidates
_SHARE_LISTED = 1 / 64  # labels from the index as a fraction of the maximum number of candidates, if that is more
_FURTHER_ENTRIES = 2  # entries read from posting lists per label after enough labels have been found; none in training
_MOST_RANKED = 16  # with more requested labels, trees are also searched
_WIDER_IN_TRAINING = 2  # factor for the numbers of leaves and listed labels in training, to find harder negatives

# The same limits for label sets, in addition to the common labels.
_LABELS_PER_LEVEL_OF_SETS = 256
_FEWEST_LISTED_OF_SETS = 48
_LISTED_FOR_A_LABEL = 12  # candidates from the index per label of an average row, if that is more than the minimum
_WIDER_LISTS_IN_TRAINING = 3

# Limits for updates of a head's inverted index and digest.
_LIGHTEST_LISTED_OF_SETS = 0.1  # weights below this fraction of a label's largest weight are not listed
_ROWS_WORTH_A_LAYOUT = 64  # break-even point: a layout takes about as long as scoring this many rows without one
_FARTHEST = 1000.0  # features with larger means, in deviations, lose too many digits unless they are centered first
_GROWTH_LISTED = 1.25  # growth of the number of labels that triggers an update of the index
_MANY_LABELS = 1000  # reading this many scorers takes a few milliseconds
_LABELS_LISTED_A_ROW = 16  # learning a row takes about as long as listing this many labels
_CELLS_LISTED_A_ROW = 20_000  # learning a row takes about as long as listing this many cells

# Defaults of trees and routers.
_CELLS_ROUTED = 20  # number of heaviest cells of a sparse row that routers use; lighter cells often mislead
_SURE_MARGIN = 0.2  # new rows have smaller margins than the rows that trained the routers
_DENSE_TREES = 8
# Dense classes get more trees if they have at least this many examples on average. Very many labels of one dense
# example each need only one tree, because cluster lists find them and their scorers are not trained.
_MORE_TREES, _MANY_EXAMPLES = 12, 16
_SPARSE_TREES = 2  # few, because sparse rows also use the inverted index
_DENSE_LEAVES, _SPARSE_LEAVES = 1.5, 1  # leaves searched per tree
_LABELS_BEFORE_MORE_LEAVES = 512  # each doubling of the labels beyond this number adds leaves for dense rows
_DENSE_MULTIPLIER, _SPARSE_MULTIPLIER = 2.0, 1.0  # default leaf multipliers
_MANY_CLASSES = 25  # minimum number of classes for `_SHARE_OF_A_LEAF`
_SHARE_OF_A_LEAF = 1 / 25  # maximum fraction of the classes in a leaf, so that a search scores few classes


class LabelOptions(Protocol):
    """Parameters of a classifier that the label index depends on."""

    n_trees: int | None
    n_probes: int | None
    n_candidates: int | None
    n_router_passes: int
    leaf_multiplier: float | None
    alpha: float
    n_reroutes: int
    n_jobs: int | None
    random_state: Any
    verbose: bool


class LabelIndex(files.WithFields):
    """Linear scorers of labels, with trees and indexes that find labels to score.

    Labels are numbered in the order of their insertion. Label ``l`` is memory ``l`` of the trees. A new index is empty,
    and suits rows like ``rows`` and about ``n_labels`` labels.
    """

    FIELDS = files.FieldTable(
        tree=TREE,  # trees over the labels
        head=files.StructureField(heads.Head, files.trim_models),  # scorers
        seed=files.NumberField(),  # seed of the forest and of ``orders``
        orders=files.GeneratorField(),  # generator of the order in which labels are inserted and rows are learned
        of_sets=files.FlagField(),  # whether a row has a set of labels instead of one
        # whether all labels are in one leaf, and only the inverted index finds candidates
        without_trees=files.FlagField(),
        # whether all labels are scored for answers and hard negatives. The trees are then empty.
        scores_all=files.FlagField(),
        n_of_label=files.ArrayField(np.int64),  # number of examples of each label
        # number of rows learned since the last example of each label; empty for label sets
        n_unseen=files.ArrayField(np.int64, bounds=(0, np.inf)),
        # total weight of each label's examples; None if all weights are 1
        weight_of_label=files.OptionalField(files.ArrayField(np.float64)),
        # number of rows learned with label sets, and their total weight; None if all weights are 1
        n_rows=files.NumberField(),
        weight_of_rows=files.OptionalField(files.RealField()),
        # number of cells of the head after the last pruning, and the number of rows learned since the inverted index
        # was last updated
        n_cells_pruned=files.NumberField(),
        n_unlisted=files.NumberField(),
        # stored examples of the labels
        examples=files.OptionalField(files.StructureField(heads.StoredExamples, files.trim_examples)),
        # length of each stored example before scaling, by slot, with spare capacity; None if all were 1
        example_lengths=files.OptionalField(files.ArrayField(np.float32, trim_weights)),
        feature_weights=files.OptionalField(FEATURE_WEIGHTS),  # weights of features of sparse rows
        # scales of features of dense rows. Methods that take ``Rows`` expect the result of :meth:`prepared`.
        scales=files.OptionalField(files.StructureField(FeatureScales, FeatureScales._make)),
    )
    _layout: tuple[heads.Digest, heads.AllScorers | DenseIndex | None] | None = None
    _unprepared: tuple[heads.Digest, heads.AllScorers | None] | None = None
    _bounds: tuple[heads.Digest, heads.LabelBounds] | None = None
    _n_asked: tuple[heads.Digest, int] | None = None
    _grown: tuple[heads.Digest, ContextualMemoryTree] | None = None

    def __init__(
        self, options: LabelOptions, rows: forests.Rows, n_labels: int, loss: int, rate: float, *, of_sets: bool
    ) -> None:
        n_trees, leaf_multiplier = options.n_trees, options.leaf_multiplier
        if n_trees is None:
            n_trees = _dense_trees(rows.n_rows, n_labels) if not rows.sparse else _SPARSE_TREES
        if leaf_multiplier is None:
            leaf_multiplier = _leaf_multiplier_for(n_labels, _SPARSE_MULTIPLIER if rows.sparse else _DENSE_MULTIPLIER)
        by_default = options.n_trees is options.n_probes is options.leaf_multiplier is None
        self.without_trees = of_sets and rows.sparse and by_default
        if self.without_trees:
            # all labels fit into one leaf
            needed = (n_labels + 1) / float(np.log2(max(2, n_labels)))
            n_trees, leaf_multiplier = 1, min(max(2.0, needed), 2.0**20)
        self.seed = check_random_state(options.random_state).randint(2**31)
        self.tree = _new_tree(options, n_trees, leaf_multiplier, self.seed)
        self.head = heads.new_head(heads.HeadParameters(rows.n_features, rows.sparse, loss, rate))
        self.orders, self.of_sets = np.random.default_rng(self.seed), of_sets
        self.scores_all = by_default and not of_sets and n_labels <= self.most_scored
        self.n_of_label: np.ndarray = np.empty(0, np.int64)
        self.n_unseen: np.ndarray = np.empty(0, np.int64)
        self.weight_of_label: np.ndarray | None = None
        self.n_rows = 0
        self.weight_of_rows: float | None = None
        self.n_cells_pruned = self.n_unlisted = 0
        self.examples: heads.StoredExamples | None = None
        self.example_lengths: np.ndarray | None = None
        self.feature_weights: FeatureWeights | None = None
        self.scales: FeatureScales | None = None

    def copied(self) -> "LabelIndex":
        other = copy.copy(self)
        other.tree = self.tree._twin()
        for name in ("head", "orders", "n_of_label", "weight_of_label", "examples", "feature_weights"):
            setattr(other, name, copy.deepcopy(getattr(self, name)))
        return other

    @property
    def forest(self) -> Forest:
        return forest_of(self.tree)

    @property
    def trees(self) -> ContextualMemoryTree | None:
        """The trees over the labels, or None if none have been grown."""
        if not self.scores_all:
            return self.tree if self.tree.n_memories > 0 else None
        return self._grown[1] if self._grown is not None and self._grown[0] is self.head.digest else None

    @property
    def n_labels(self) -> int:
        return int(self.head.counters[0, forests.NODES_END])

    @property
    def is_sparse(self) -> bool:
        return self.head.parameters.sparse

    @property
    def most_scored(self) -> int:
        """Maximum number of labels for which all labels are scored for each row."""
        return MOST_SCORED_SPARSE if self.is_sparse else MOST_SCORED

    @property
    def lightest_listed(self) -> float:
        """The inverted index omits weights below this fraction of a label's largest weight."""
        return _LIGHTEST_LISTED_OF_SETS if self.of_sets else 0.0

    @property
    def amounts(self) -> tuple[np.ndarray, float]:
        """The total weight of each label's examples and, for label sets, of all rows."""
        if self.weight_of_label is None:
            return self.n_of_label, self.n_rows
        return self.weight_of_label, self.n_rows if self.weight_of_rows is None else self.weight_of_rows

    @property
    def usual_label(self) -> int:
        """The label with the most examples."""
        return int(self.amounts[0].argmax())

    @property
    def is_standardized(self) -> bool:
        """Whether scorers expect standardised rows."""
        return self.scales is not None and self.scales.is_used

    def prepared(self, rows: forests.Rows, lengths: Factors) -> forests.Rows:
        """Return rows with weighted or standardised features; ``lengths`` are those before scaling, or None for 1."""
        if self.scales is not None and self.scales.is_used:
            return standardize(self.scales, rows, filled(lengths, rows.n_rows))
        return weigh(self.feature_weights, rows)

    def prepared_examples(self, slots: np.ndarray | None = None) -> tuple[forests.Rows, np.ndarray]:
        """Return the stored examples in some slots, by default all, as scorers expect them, and their labels."""
        assert self.examples is not None
        rows, labels = heads.all_examples(self.examples) if slots is None else heads.some_examples(self.examples, slots)
        lengths = taken(self.example_lengths, np.arange(rows.n_rows) if slots is None else slots)
        return self.prepared(rows, lengths), labels

    def prepared_matrix(self, X: Any) -> forests.Rows:
        """Return the rows of a matrix as scorers and trees expect them. ``X`` is an argument for :func:`check_rows`."""
        return self.prepared(check_rows(X, sparse=self.is_sparse), row_lengths(X) if self.is_standardized else None)

    def use_scales(self, scales: FeatureScales) -> None:
        """Replace the scales of features without changing any answer."""
        former = self.scales
        if former is not None and scales.is_used and scales.n_used != former.n_used:
            self.head = heads.without_digest(self.head)
            move_scorers(self.head, former, scales)
        self.scales = scales

    def measure_further(self, rows: forests.Rows, lengths: Factors, weights: Factors) -> None:
        """Measure the scales of features of rows in addition to earlier ones, if scales are measured."""
        if self.scales is not None and not self.scales.is_fixed:
            self.use_scales(add_rows(self.scales, rows, filled(lengths, rows.n_rows), weights))

    def empty_head(self, n_features: int) -> heads.Head:
        """Return a head without labels for examples with ``n_features`` features."""
        width = n_features + self.is_standardized
        return heads.new_head(self.head.parameters._replace(n_features=width))

    # Learning

    def insert_labels(
        self,
        rows: forests.Rows,
        of_labels: np.ndarray,
        of_rows: np.ndarray,
        n_new: int,
        weights: Factors,
        n_reroutes: int | None,
        options: LabelOptions,
    ) -> tuple[heads.Head, np.ndarray]:
        """Insert ``n_new`` labels, each with the mean of its rows; return the extended head and the new labels.

        Row ``of_rows[i]`` belongs to new label ``of_labels[i]``. ``weights`` are row weights, and ``n_reroutes``
        overrides the option of the forest. The caller must store the returned head in the index.
        """
        if self.scores_all and self.n_labels + n_new > self.most_scored:
            self.grow_trees(options)
        means, lengths = means_of(rows, of_labels, of_rows, n_new, weights)
        if self.learns_in_lists():
            head = heads.with_means_in_lists(self.head, means)
        else:
            head = heads.with_labels(heads.without_digest(self.head), means, lengths)
        if self.scores_all:
            return head, np.arange(self.n_labels, self.n_labels + n_new)
        n_reroutes = 0 if self.without_trees else n_reroutes
        return head, insert_rows(self.forest, forests.rescaled(routed(means)), options.verbose, n_reroutes)

    def learns_in_lists(self) -> bool:
        """Return whether new scorers learn in lists, as the first ones of sparse label sets do."""
        return self.of_sets and self.is_sparse and self.n_labels == 0

    def roll_back(self, n_labels: int) -> None:
        """After a failed change, remove all labels except the first ``n_labels``."""
        if not self.scores_all:
            roll_back(self.forest, n_labels)
        if self.is_sparse:
            # New labels may have used free tables, so rebuild the lists of free tables.
            self.head = forests.with_tables(self.head, forests.most_cells_in_use(self.head))

    def grow_trees(self, options: LabelOptions) -> None:
        """Grow trees over the labels, and make them part of the index."""
        self.tree = self.grown_tree(options)
        self.without_trees = self.scores_all = False

    def questions(self, rows: forests.Rows) -> heads.Questions:
        return heads.all_of(rows if self.scores_all else routed(rows), rows)

    def teach_routers(self, asked: forests.Rows, labels: np.ndarray, options: LabelOptions, *, afresh: bool) -> None:
        if options.n_router_passes > 0 and not self.scores_all:
            teach_rows(self.forest, asked, labels, options.n_router_passes, afresh, options.verbose)

    def train_in_passes(
        self, n_rows: int, n_passes: int, duals: heads.Duals, learn: Callable[..., heads.Head], verbose: bool
    ) -> None:
        """Call ``learn(n_pass, order)`` for each pass, with rows in random order, until the head has converged."""
        for n_pass in with_progress(range(n_passes), "pass", verbose):
            # Every second pass skips the rows that changed nothing in the pass before.
            takes_all = n_pass % 2 == 0
            order = np.arange(n_rows) if takes_all else np.flatnonzero(~duals.settled)
            self.orders.shuffle(order)
            self.head = learn(n_pass, order)
            if takes_all and heads.has_converged(self.head, duals):
                break
        self.prune()

    def hard_negatives(self, n_rows: int, options: LabelOptions) -> heads.CandidateSearch:
        """Return the settings of a search for the hard negatives of ``n_rows`` rows."""
        n_threads = self.forest.threads_for(n_rows)
        if self.scores_all:
            return heads.CandidateSearch(None, None, None, n_threads)
        state = self.forest.allocated()
        return heads.CandidateSearch(state.trees, state.models, self.effort(options, training=True), n_threads)

    def prune(self) -> None:
        """Drop negligible weights if the head has more than twice as many cells as after the last pruning."""
        if self.is_sparse and self.head.counters[0, forests.TABLES_END] > 2 * self.n_cells_pruned:
            self.head = heads.without_negligible_weights(self.head)
            self.n_cells_pruned = heads.cells_of_tables(self.head)

    def begin_training(self, *, in_lists: bool = False) -> None:
        """Prepare the head for learning, and update the inverted index if many labels are new."""
        if not in_lists:
            self.head = heads.without_digest(self.head)
        if self.n_labels > _GROWTH_LISTED * self.head.postings.n_labels and not self.scores_all:
            self.update_postings()

    def end_training(self, n_rows: int) -> None:
        """Prepare the head for queries if enough rows have been learned to justify the work."""
        if self.scores_all:
            return
        self.n_unlisted += n_rows
        if self.is_worth_listing(self.n_unlisted) or heads.is_in_lists(self.head):
            head = heads.with_index(heads.with_digest(self.head), self.lightest_listed)
            self.head = heads.without_tables(head) if self.of_sets else head
            self.n_unlisted = 0

    def update_postings(self) -> None:
        self.head = heads.with_index(self.head, self.lightest_listed)

    def is_worth_listing(self, n_rows: int) -> bool:
        """Return whether reading all scorers takes no longer than learning ``n_rows`` rows."""
        n_cells = self.head.counters[0, forests.TABLES_END]  # 0 for dense scorers
        most_cells = n_rows * _CELLS_LISTED_A_ROW
        return bool(n_rows * _LABELS_LISTED_A_ROW >= self.n_labels and most_cells >= n_cells)

    def has_much_due(self, n_rows: int) -> bool:
        """Return whether learning ``n_rows`` rows requires reading very many scorers."""
        return not self.scores_all and self.n_labels >= _MANY_LABELS and self.is_worth_listing(self.n_unlisted + n_rows)

    def is_untrained(self) -> bool:
        """Return whether scorers stay untrained, because very many labels have only one example each."""
        most = MOST_TRAINED_ALONE if self.is_sparse else MOST_TRAINED_ALONE_DENSE
        return bool(self.n_of_label.size > most and self.n_of_label.max() == 1)

    # Caches for queries, valid until the head learns again

    def all_scorers(self, options: LabelOptions, n_rows: int) -> heads.AllScorers | None:
        """Return the scorers of all labels for a query of ``n_rows`` rows, or None if only candidates are scored.

        A layout is made only after many queries, because making it takes longer than scoring a few rows without it.
        """
        head = self.head
        if self.of_sets:
            if not 0 < self.n_labels == head.common.labels.size:
                return None
        elif options.n_probes is not None or options.n_candidates is not None or self.n_labels > self.most_scored:
            return None
        if not head.parameters.sparse and n_rows > 1:
            return heads.all_scorers(head)
        if self._layout is None or self._layout[0] is not head.digest:
            before = self._n_asked[1] if self._n_asked is not None and self._n_asked[0] is head.digest else 0
            self._n_asked = head.digest, before + n_rows
            if before + n_rows < _ROWS_WORTH_A_LAYOUT:
                return heads.all_scorers(head, in_tables=True)
        return self._kept(partial(heads.all_scorers if head.parameters.sparse else _compact_scorers, head))

    def _for_unprepared(self, scorers: heads.AllScorers, n_rows: int) -> heads.AllScorers | None:
        """Return scorers for rows that are not prepared, or None if they are not worth making or not exact enough."""
        scales, digest = self.scales, self.head.digest
        if scales is None or not scales.is_used:
            return scorers
        if scorers.biases is not None:
            return None  # a bias is added to the score of a row of unit length
        if self._unprepared is None or self._unprepared[0] is not digest:
            is_worth = n_rows >= _ROWS_WORTH_A_LAYOUT or (self._layout is not None and self._layout[0] is digest)
            if not is_worth:
                return None
            made = heads.with_standardization(scorers, scales.center, scales.inverse, scales.constant)
            self._unprepared = digest, made if made.offset < _FARTHEST * scales.constant else None
        return self._unprepared[1]

    def dense_index(self, options: LabelOptions) -> DenseIndex | None:
        """Return the index of a dense head's scorers, or None if queries do not use it.

        Queries use it if there are many labels, search options have default values and the head has a current digest.
        """
        if self.of_sets or self.is_sparse or self.n_labels <= MOST_SCORED:
            return None
        is_by_default = options.n_probes is None and options.n_candidates is None
        is_current = self.head.digest.halves.shape[0] == self.n_labels
        return self._kept(self._new_dense_index) if is_by_default and is_current else None

    def _new_dense_index(self) -> DenseIndex:
        """Return an index of the scorers, calibrated on stored examples or, if there are none, on the scorers."""
        weights = heads.weights_of_labels(self.head, np.arange(self.n_labels))
        biases = self.head.nodes["bias"][0, : self.n_labels]
        if biases.any():  # the bias is the weight of another feature, whose value is 1
            weights = np.column_stack([weights, biases])
        index = DenseIndex(weights.shape[1], "inner_product", self.seed)
        index.insert(np.ascontiguousarray(weights))
        if self.examples is not None:
            n_examples = int(self.n_of_label.sum())
            some = np.random.default_rng(0).permutation(n_examples)[:_ROWS_ASKED]
            rows, labels = self.prepared_examples(np.sort(some))
            index.calibrate(_queries_of(index, rows), labels)
        return index

    def bounds(self) -> heads.LabelBounds:
        """Return bounds on the labels' scores. The head must be sparse, and its index must list all weights."""
        digest = self.head.digest
        if self._bounds is None or self._bounds[0] is not digest:
            biases = np.ascontiguousarray(self.head.nodes[0, : self.n_labels]["bias"])
            self._bounds = digest, heads.label_bounds(self.head.postings, biases)
        return self._bounds[1]

    def prepare_like(self, former: "LabelIndex", options: LabelOptions) -> None:
        """Fill the caches that ``former`` has filled, so that readers do not wait for them."""
        if former._layout is not None and self.n_labels > 0:
            self.all_scorers(options, _ROWS_WORTH_A_LAYOUT)
            self.dense_index(options)
        if former._bounds is not None and self.n_labels > 0 and self.lists_best(1, options):
            self.bounds()

    def _kept(self, lay_out: Callable[[], Any]) -> Any:
        """Return the cached layout, or make a new one if the digest of the head has changed."""
        digest, kept = self.head.digest, self._layout
        if kept is None or kept[0] is not digest:
            kept = self._layout = digest, lay_out()
        return kept[1]

    def grown_tree(self, options: LabelOptions) -> ContextualMemoryTree:
        """Return the trees, grown and cached until the index learns again if it has none."""
        if not (self.scores_all or self.without_trees):
            return self.tree
        if self._grown is None or self._grown[0] is not self.head.digest:
            self._grown = self.head.digest, self._new_trees(options)
        return self._grown[1]

    def _new_trees(self, options: LabelOptions) -> ContextualMemoryTree:
        n_labels = self.n_labels
        if self.without_trees:
            grown = _new_tree(options, _SPARSE_TREES, _leaf_multiplier_for(n_labels, _SPARSE_MULTIPLIER), self.seed)
            if n_labels > 0:
                rows = forests.stored_rows(self.forest.allocated(), np.arange(n_labels))
                insert_rows(forest_of(grown), rows, options.verbose)
            return grown
        grown = _new_tree(options, self.forest.n_trees, self.forest.options["leaf_multiplier"], self.seed)
        if self.examples is None:
            keys = check_rows(heads.weights_of_labels(self.head, np.arange(n_labels)))
            insert_rows(forest_of(grown), forests.rescaled(routed(keys)), options.verbose)
            return grown
        rows, labels = self.prepared_examples()
        keys, _ = means_of(rows, labels, np.arange(rows.n_rows), n_labels)
        insert_rows(forest_of(grown), forests.rescaled(routed(keys)), options.verbose)
        if options.n_router_passes > 0:
            teach_rows(forest_of(grown), routed(rows), labels, options.n_router_passes, True, options.verbose)
        return grown

    # Queries

    def effort(self, options: LabelOptions, *, training: bool = False) -> heads.SearchEffort:
        """Return the effort of a search for candidates. The effort is larger in training than for queries."""
        n_trees, n_labels = self.forest.n_trees, self.n_labels
        width = _WIDER_IN_TRAINING if training else 1
        if options.n_probes is not None:
            n_leaves = width * options.n_probes
        elif self.without_trees:
            n_leaves = 0
        elif self.is_sparse:
            n_leaves = width * _SPARSE_LEAVES * n_trees
        else:
            growth = max(1.0, float(np.log2(n_labels / _LABELS_BEFORE_MORE_LEAVES)))
            n_leaves = int(_DENSE_LEAVES * max(width, growth) * n_trees)
        most = max(_FEWEST_CANDIDATES, int(min(_SHARE_OF_LABELS * n_labels, _LABELS_PER_LEVEL * np.log2(n_labels + 1))))
        effort = heads.SearchEffort(n_leaves, most, width * max(_FEWEST_LISTED, int(_SHARE_LISTED * most)), most)
        by_index = options.n_probes is None and not self.of_sets
        if training:
            lists_all = self.head.postings.n_labels == n_labels > MOST_SCORED_SPARSE
            effort = effort._replace(leaves_last=by_index and lists_all)
        else:
            if options.n_candidates is not None:
                n_scored = options.n_candidates
                n_met = max(n_scored, min(most, int(n_scored / _SHARE_LISTED)))
                effort = effort._replace(n_labels=n_scored, n_listed=n_scored, n_met=n_met)
            suffices = by_index and self.is_listed()
            effort = effort._replace(n_further=_FURTHER_ENTRIES * effort.n_met, leaves_last=suffices)
        return self._effort_for_sets(effort, options, training=training) if self.of_sets else effort

    def _effort_for_sets(
        self, effort: heads.SearchEffort, options: LabelOptions, *, training: bool
    ) -> heads.SearchEffort:
        """Return the effort for label sets, whose common labels are always candidates."""
        n_labels, n_common = self.n_labels, self.head.common.labels.size
        most = min(n_labels, n_common + int(_LABELS_PER_LEVEL_OF_SETS * np.log2(n_labels + 1)))
        if options.n_candidates is not None and not training:
            n_scored = min(n_common + options.n_candidates, n_labels)
            return effort._replace(n_labels=n_scored, n_met=max(n_scored, min(most, n_common + effort.n_met)))
        of_labels, of_rows = self.amounts
        n_listed = max(_FEWEST_LISTED_OF_SETS, int(_LISTED_FOR_A_LABEL * of_labels.sum() / max(1, of_rows)))
        width = _WIDER_LISTS_IN_TRAINING if training else 1
        return effort._replace(n_labels=most, n_listed=width * n_listed, n_met=most)

    def is_listed(self) -> bool:
        return self.head.postings.n_labels == self.head.digest.n_labels == self.n_labels

    def in_threads(self, rows: forests.Rows, work: Callable[[int, int], None]) -> None:
        """Call ``work`` with spans of rows in the threads of the forest."""
        share_rows(work, rows.n_rows, self.forest.threads_for(rows.n_rows))

    def best_label(self, X: Any, options: LabelOptions) -> np.ndarray:
        """Return the best label of each row of a matrix for :func:`check_rows`, or NONE if none was reached."""
        scorers = self.all_scorers(options, X.shape[0])
        if scorers is None:
            return self.best_labels(self.prepared_matrix(X), 1, options).labels[:, 0]
        direct = self._for_unprepared(scorers, X.shape[0])
        unscaled = None if direct is None else heads.unscaled_rows(direct, X)
        if direct is None or unscaled is None:
            return self._best_prepared(scorers, X)
        rank_tied = partial(self._best_prepared, scorers, X) if self.is_standardized else None
        return heads.best_of_all(direct, *unscaled, rank_tied, self.usual_label)

    def best_label_of(self, rows: forests.Rows, options: LabelOptions) -> np.ndarray:
        """Return the best label of each prepared row, or NONE if none was reached."""
        scorers = self.all_scorers(options, rows.n_rows)
        if scorers is not None:
            return heads.best_of_all(scorers, rows, usual=self.usual_label)
        return self.best_labels(rows, 1, options).labels[:, 0]

    def _best_prepared(self, scorers: heads.AllScorers, X: Any, at: np.ndarray | None = None) -> np.ndarray:
        """Return the best label of the rows at some positions, by default all, after preparing them."""
        return heads.best_of_all(scorers, self.prepared_matrix(X if at is None else X[at]), usual=self.usual_label)

    def best_labels(self, rows: forests.Rows, k: int, options: LabelOptions) -> heads.LabelAnswers:
        """Return the ``k`` best labels of each row, padded with NONE and minus infinity."""
        scorers, index = self.all_scorers(options, rows.n_rows), self.dense_index(options)
        if scorers is not None:
            labels, scores = heads.top_of_all(scorers, rows, min(k, scorers.n_labels))
            self._put_usual_first(scorers, rows, labels, scores)
            n_scored = np.full(rows.n_rows, scorers.n_labels)
            missing = ((0, 0), (0, k - labels.shape[1]))
            labels = np.pad(labels, missing, constant_values=forests.NONE)
            scores = np.pad(scores, missing, constant_values=-np.inf)
            return heads.LabelAnswers(labels, scores, n_scored, n_scored)
        if index is not None:
            n_threads, n_scored = self.forest.threads_for(rows.n_rows), np.full(rows.n_rows, self.n_labels)
            labels, scores = index.search(_queries_of(index, rows), k, _RECALL, n_threads=n_threads)
            return heads.LabelAnswers(labels, scores.astype(np.float32), n_scored, n_scored)
        labels = np.full((rows.n_rows, k), forests.NONE, np.int64)
        scores = np.full((rows.n_rows, k), -np.inf, np.float32)
        answers = heads.LabelAnswers(labels, scores, np.zeros(rows.n_rows, np.int64), np.zeros(rows.n_rows, np.int64))
        if not self.lists_best(k, options):
            self.search_labels(rows, answers, options)
            return answers
        self._rank_listed(rows, answers)
        short = np.flatnonzero(labels[:, -1] == forests.NONE)  # too few labels have a feature of these rows
        if short.size > 0:
            found = heads.LabelAnswers(*(part[short] for part in answers))
            self.search_labels(rows.take(short), found, options)
            for part, of_short in zip(answers, found, strict=True):
                part[short] = of_short
        return answers

    def _put_usual_first(
        self, scorers: heads.AllScorers, rows: forests.Rows, labels: np.ndarray, scores: np.ndarray
    ) -> None:
        """Put the most frequent label first for rows whose scores are all 0, because no feature of theirs is known."""
        zero = np.flatnonzero(scores[:, 0] == 0.0)
        if zero.size == 0 or self.of_sets:
            return
        for row in zero[~heads.exact_scores_of_all(scorers, rows.take(zero)).any(axis=1)].tolist():
            others = labels[row][labels[row] != self.usual_label]
            labels[row] = np.append(self.usual_label, others)[: labels.shape[1]]

    def lists_best(self, k: int, options: LabelOptions) -> bool:
        """Return whether the inverted index alone finds the ``k`` best labels, because it lists all weights.

        For each feature, the index lists weights of one sign only. A trained head has weights of both signs.
        """
        by_default = options.n_probes is None and options.n_candidates is None and k <= _MOST_RANKED
        lists_all = self.head.postings.labels.size == self.head.digest.features.size
        return by_default and lists_all and self.is_listed()

    def _rank_listed(self, rows: forests.Rows, answers: heads.LabelAnswers) -> None:
        head, questions, bounds = self.head, heads.all_of(rows, rows), self.bounds()

        def answer(first: int, stop: int) -> None:
            some = questions._replace(first=first, stop=stop)
            heads.rank_listed(head.postings, head.digest, bounds, some, answers)

        self.in_threads(rows, answer)

    def searched(self, options: LabelOptions) -> forests.State:
        """Return the state of the trees to search, and grow them if needed."""
        grown = self.scores_all or options.n_probes is not None
        return forest_of(self.grown_tree(options) if grown else self.tree).allocated()

    def search_labels(self, rows: forests.Rows, answers: heads.LabelAnswers, options: LabelOptions) -> None:
        """Search for the candidates of each row, and write the best ones to ``answers``."""
        state, effort = self.searched(options), self.effort(options)
        questions, head = heads.all_of(routed(rows), rows), self.head.scorers
        trees, routers = state.trees, state.models

        def answer(first: int, stop: int) -> None:
            heads.score_labels(trees, routers, head, questions._replace(first=first, stop=stop), effort, answers)

        self.in_threads(rows, answer)


def _new_tree(options: LabelOptions, n_trees: int, leaf_multiplier: float, seed: int) -> ContextualMemoryTree:
    return ContextualMemoryTree(
        n_trees,
        options.alpha,
        leaf_multiplier,
        options.n_reroutes,
        sure_margin=_SURE_MARGIN,
        n_threads=check_jobs(options.n_jobs),
        random_state=seed,
    )


def _queries_of(index: DenseIndex, rows: forests.Rows) -> np.ndarray:
    """Return dense rows as queries to an index of scorers, with the feature for biases if the index has it."""
    Q = forests.as_matrix(rows)
    if Q.shape[1] < index.n_features:
        Q = np.column_stack([Q, np.ones(len(Q), np.float32)])
    return np.ascontiguousarray(Q)


def _compact_scorers(head: heads.Head) -> heads.AllScorers:
    scorers = heads.all_scorers(head)
    return scorers._replace(weights=np.ascontiguousarray(scorers.weights.T).T)


def _dense_trees(n_rows: int, n_labels: int) -> int:
    if n_rows == n_labels > MOST_TRAINED_ALONE_DENSE:
        return 1
    return _MORE_TREES if n_rows >= _MANY_EXAMPLES * n_labels else _DENSE_TREES


def _leaf_multiplier_for(n_classes: int, usual: float) -> float:
    """Return a leaf multiplier with which a leaf holds a small fraction of the classes."""
    if n_classes < _MANY_CLASSES:
        return usual
    return min(usual, _SHARE_OF_A_LEAF * n_classes / float(np.log2(n_classes)))


def routed(rows: forests.Rows) -> forests.Rows:
    """Return rows for routers. Sparse rows keep only their heaviest cells and are scaled to unit length again."""
    if not rows.sparse:
        return rows
    values, indices = np.empty_like(rows.values), np.empty_like(rows.indices)
    offsets = np.zeros_like(rows.offsets)
    end = forests.keep_heaviest(rows, _CELLS_ROUTED, values, indices, offsets)
    return forests.rescaled(forests.Rows(values[:end].copy(), indices[:end].copy(), offsets, rows.n_features, True))


def means_of(
    rows: forests.Rows, of_labels: np.ndarray, of_rows: np.ndarray, n_labels: int, weights: np.ndarray | None = None
) -> tuple[forests.Rows, np.ndarray]:
    """Return each label's weighted mean of rows, of unit length, and the length of its weighted sum: float32."""
    shares = np.ones(of_rows.size, np.float32) if weights is None else weights[of_rows]
    members = scipy.sparse.csr_array((shares, (of_labels, of_rows)), (n_labels, rows.n_rows))
    sums = members @ forests.as_matrix(rows)
    lengths = np.sqrt(np.asarray((sums * sums).sum(axis=1), np.float32))
    return check_rows(sums, sparse=rows.sparse), lengths
