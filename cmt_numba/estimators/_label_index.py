"""Linear scorers of a classifier's labels, and the search for labels to score.

A query scores all labels by matrix products, the labels in the nearest cluster lists, or candidates from an inverted
index. The choice depends on the number of labels and on parameters, never on the other rows of a batch.
"""

import copy
from collections.abc import Callable
from typing import Any, Protocol

import numba
import numpy as np
import scipy.sparse
from sklearn.utils import check_random_state

from .. import _heads as heads
from .. import _kernels as kernels
from .. import _linear as linear
from .. import _postings as postings
from .. import persistence as files
from .._change import share_rows, with_progress
from .._index import DenseIndex
from .._validation import as_float32, check_jobs, check_rows
from ._feature_scales import FeatureScales, add_rows, move_scorers, standardize
from ._feature_weights import FeatureWeights, weigh
from ._fields import FEATURE_WEIGHTS
from ._input import Factors, filled, taken, trim_weights

MAX_SCORED = 8192  # up to this number of labels, all are scored for each dense row
MAX_SCORED_SPARSE = 1024  # the same limit for sparse rows. With more labels, a search is cheaper.
MAX_SCORED_IN_TRAINING = 1 << 15  # the same limit for dense rows in training, in which the labels' lists are soon old
# Up to this number of labels of one example each, scorers are trained. With more sparse ones, training does not help.
# A pass over more dense ones takes minutes.
MAX_TRAINED_ALONE, MAX_TRAINED_ALONE_DENSE = 8192, 50_000
_RECALL = 0.999  # fraction of rows for which an index of very many dense scorers finds the best label
_RECALL_IN_TRAINING = 0.9  # fraction of the hardest negatives that it finds
_ROWS_ASKED = 1024  # number of rows on which the effort of its searches is measured

# Limits on a sparse row's candidates from the inverted index.
_FEWEST_MET = 16  # lower bound on the number of labels to find
_SHARE_OF_LABELS = 0.2  # maximum number of labels to find as a fraction of all labels
_LABELS_PER_DOUBLING = 400  # maximum number of labels to find per doubling of the number of labels
_FEWEST_LISTED = 16  # minimum number of labels to score
_SHARE_LISTED = 1 / 64  # labels to score as a fraction of the labels to find, if that is more
_FURTHER_ENTRIES = 2  # entries read from posting lists per label after enough labels have been found; none in training
_MOST_RANKED = 16  # with more requested labels, bounds on their scores exclude few
_WIDER_IN_TRAINING = 2  # factor for the number of labels to score in training, to find harder negatives

# The same limits for label sets, in addition to the common labels.
_LABELS_PER_DOUBLING_OF_SETS = 256
_FEWEST_LISTED_OF_SETS = 48
_LISTED_FOR_A_LABEL = 12  # candidates from the index per label of an average row, if that is more than the minimum
_WIDER_LISTS_IN_TRAINING = 3

# Limits for updates of a head's inverted index and digest.
_LIGHTEST_LISTED_OF_SETS = 0.1  # weights below this fraction of a label's largest weight are not listed
_ROWS_WORTH_A_LAYOUT = 64  # break-even point: a layout takes about as long as scoring this many rows without one
# An update of the index is due if this number and share of the labels are not in it. Until then, each row scores them.
_MAX_UNLISTED, _SHARE_UNLISTED = 256, 1 / 64
_MANY_LABELS = 1000  # reading this many scorers takes a few milliseconds
_LABELS_LISTED_A_ROW = 16  # learning a row takes about as long as listing this many labels
_CELLS_LISTED_A_ROW = 20_000  # learning a row takes about as long as listing this many cells

_ROWS_WORTH_A_PRODUCT = 64  # break-even point: with fewer dense rows, scoring each row by itself is faster
_ROWS_WORTH_A_THREAD = 64  # break-even point: with fewer rows, starting a thread takes longer than the time it saves


class LabelOptions(Protocol):
    """Parameters of a classifier that the label index depends on."""

    n_candidates: int | None
    n_jobs: int | None
    random_state: Any
    verbose: bool


class LabelIndex(files.WithFields):
    """Linear scorers of labels, and indexes that find labels to score.

    Labels are numbered in the order of their insertion. A new index is empty, and suits rows like ``rows``.
    """

    FIELDS = files.FieldTable(
        head=files.StructureField(heads.Head, linear.trimmed_models, linear.check_trimmed_models),  # scorers
        seed=files.NumberField(),  # seed of ``orders``
        orders=files.GeneratorField(),  # generator of the order in which rows are learned
        of_sets=files.FlagField(),  # whether a row has a set of labels instead of one
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
        examples=files.OptionalField(files.StructureField(heads.StoredExamples, heads.trimmed_examples)),
        # length of each stored example before scaling, by slot, with spare capacity; None if all were 1
        example_lengths=files.OptionalField(files.ArrayField(np.float32, trim_weights)),
        feature_weights=files.OptionalField(FEATURE_WEIGHTS),  # weights of features of sparse rows
        # scales of features of dense rows. Methods that take ``Rows`` expect the result of :meth:`prepared`.
        scales=files.OptionalField(files.StructureField(FeatureScales, FeatureScales._make)),
    )
    _layout: tuple[postings.Digest, heads.AllScorers | DenseIndex] | None = None
    _bounds: tuple[postings.Digest, postings.LabelBounds] | None = None
    _n_asked: tuple[postings.Digest, int] | None = None

    def __init__(self, options: LabelOptions, rows: kernels.Rows, loss: int, rate: float, *, of_sets: bool) -> None:
        self.seed = check_random_state(options.random_state).randint(2**31)
        self.head = heads.new_head(heads.HeadParameters(rows.n_features, rows.sparse, loss, rate))
        self.orders, self.of_sets = np.random.default_rng(self.seed), of_sets
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
        for name in ("head", "orders", "n_of_label", "weight_of_label", "examples", "feature_weights"):
            setattr(other, name, copy.deepcopy(getattr(self, name)))
        return other

    @property
    def n_labels(self) -> int:
        return self.head.n_labels

    @property
    def is_sparse(self) -> bool:
        return self.head.parameters.sparse

    @property
    def scores_all(self) -> bool:
        """Whether all labels are scored in training. The head then has no inverted index."""
        return not self.is_sparse or (not self.of_sets and self.n_labels <= MAX_SCORED_SPARSE)

    @property
    def is_searched(self) -> bool:
        """Whether queries search for labels, because scoring all would take longer."""
        if self.is_sparse:
            return not self.scores_all
        return not self.of_sets and self.n_labels > MAX_SCORED

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

    @property
    def is_logistic(self) -> bool:
        """Whether scorers are those of a logistic regression, which scores rows of different lengths."""
        return self.is_standardized and self.scales is not None and self.scales.keeps_lengths

    def prepared(self, rows: kernels.Rows, lengths: Factors) -> kernels.Rows:
        """Return rows with weighted or standardised features; ``lengths`` are those before scaling, or None for 1."""
        if self.scales is not None and self.scales.is_used:
            return standardize(self.scales, kernels.as_matrix(rows), filled(lengths, rows.n_rows))
        return weigh(self.feature_weights, rows)

    def prepared_examples(self, slots: np.ndarray | None = None) -> tuple[kernels.Rows, np.ndarray]:
        """Return the stored examples in some slots, by default all, as scorers expect them, and their labels."""
        assert self.examples is not None
        rows, labels = heads.all_examples(self.examples) if slots is None else heads.some_examples(self.examples, slots)
        lengths = taken(self.example_lengths, np.arange(rows.n_rows) if slots is None else slots)
        return self.prepared(rows, lengths), labels

    def prepared_matrix(self, X: Any) -> kernels.Rows:
        """Return the rows of a matrix as scorers expect them. ``X`` is an argument for :func:`check_rows`."""
        if self.scales is not None and self.scales.is_used:
            X = as_float32(X if isinstance(X, np.ndarray) else X.toarray())
            return standardize(self.scales, X, filled(None, X.shape[0]))
        return weigh(self.feature_weights, check_rows(X, sparse=self.is_sparse))

    def use_scales(self, scales: FeatureScales) -> None:
        """Replace the scales of features without changing any answer."""
        former = self.scales
        if former is not None and scales.is_used and scales.n_used != former.n_used:
            self.head = heads.without_digest(self.head)
            move_scorers(self.head, former, scales)
        self.scales = scales

    def measure_further(self, rows: kernels.Rows, lengths: Factors, weights: Factors) -> None:
        """Measure the scales of features of rows in addition to earlier ones, if scales are measured."""
        if self.scales is not None and not self.scales.is_fixed:
            self.use_scales(add_rows(self.scales, rows, filled(lengths, rows.n_rows), weights))

    def empty_head(self, n_features: int) -> heads.Head:
        """Return a head without labels for examples with ``n_features`` features."""
        width = n_features + self.is_standardized
        return heads.new_head(self.head.parameters._replace(n_features=width))

    # Learning

    def head_with_labels(
        self, rows: kernels.Rows, of_labels: np.ndarray, of_rows: np.ndarray, n_new: int, weights: Factors
    ) -> heads.Head:
        """Return the head with ``n_new`` more labels, whose scorers start as the mean of their rows.

        Row ``of_rows[i]`` belongs to new label ``of_labels[i]``. ``weights`` are row weights.
        """
        means, lengths = means_of(rows, of_labels, of_rows, n_new, weights)
        if self.learns_in_lists():
            return heads.with_means_in_lists(self.head, means)
        return heads.with_labels(heads.without_digest(self.head), means, lengths)

    def learns_in_lists(self) -> bool:
        """Return whether new scorers learn in lists, as the first ones of sparse label sets do."""
        return self.of_sets and self.is_sparse and self.n_labels == 0

    def roll_back(self) -> None:
        """After a failed change, free the tables of labels that the head does not have."""
        if self.is_sparse:
            self.head = linear.with_tables(self.head, linear.max_cells_in_use(self.head.models))

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
        n_threads = threads_for(n_rows, options)
        if not self.scores_all:
            return heads.CandidateSearch(self.effort(options, training=True), n_threads=n_threads)
        if self.n_labels <= MAX_SCORED_IN_TRAINING or n_rows < self.n_labels:
            return heads.CandidateSearch(None, n_threads=n_threads)
        index = self._new_dense_index()

        def nearest(rows: kernels.Rows, k: int) -> np.ndarray:
            return index.search(_queries_of(index, rows), k, _RECALL_IN_TRAINING, n_threads=n_threads)[0]

        return heads.CandidateSearch(None, nearest, n_threads)

    def shortlist(self, rows: kernels.Rows, n_rows: int, shortlists: np.ndarray) -> None:
        """Write the best of all labels for the first ``n_rows`` rows to their shortlists."""
        if self.is_sparse or n_rows <= _ROWS_WORTH_A_PRODUCT:
            heads.shortlist_rows(self.head.models, rows, n_rows, shortlists)
        else:
            heads.shortlist_all(heads.all_scorers(self.head), rows.between(0, n_rows), np.arange(n_rows), shortlists)

    def prune(self) -> None:
        """Drop negligible weights if the head has more than twice as many cells as after the last pruning."""
        if self.is_sparse and self.head.counters[0, linear.TABLES_END] > 2 * self.n_cells_pruned:
            self.head = heads.without_negligible_weights(self.head)
            self.n_cells_pruned = heads.cells_of_tables(self.head)

    def begin_training(self, *, in_lists: bool = False) -> None:
        """Prepare the head for learning, and update the inverted index if many labels are new."""
        if not in_lists:
            self.head = heads.without_digest(self.head)
        if not self.scores_all and self.n_labels > self.max_listed():
            self.update_postings()

    def max_listed(self) -> float:
        """Return the number of labels above which the inverted index must be updated."""
        n_listed = self.head.postings.n_labels
        return n_listed + max(_MAX_UNLISTED, _SHARE_UNLISTED * n_listed) if n_listed > 0 else 0

    def end_training(self, n_rows: int) -> None:
        """Prepare the head for queries if enough rows have been learned to justify the work."""
        self.n_unlisted += n_rows
        if self.is_worth_listing(self.n_unlisted) or heads.is_in_lists(self.head):
            self.n_unlisted = 0
            if not self.scores_all:
                head = heads.with_index(heads.with_digest(self.head), self.lightest_listed)
                self.head = heads.without_tables(head) if self.of_sets else head

    def update_postings(self) -> None:
        self.head = heads.with_index(self.head, self.lightest_listed)

    def is_worth_listing(self, n_rows: int) -> bool:
        """Return whether reading all scorers takes no longer than learning ``n_rows`` rows."""
        n_cells = self.head.counters[0, linear.TABLES_END]  # 0 for dense scorers
        max_cells = n_rows * _CELLS_LISTED_A_ROW
        return bool(n_rows * _LABELS_LISTED_A_ROW >= self.n_labels and max_cells >= n_cells)

    def has_much_due(self, n_rows: int) -> bool:
        """Return whether learning ``n_rows`` rows requires reading very many scorers."""
        return self.is_searched and self.n_labels >= _MANY_LABELS and self.is_worth_listing(self.n_unlisted + n_rows)

    def is_untrained(self) -> bool:
        """Return whether scorers stay untrained, because very many labels have only one example each."""
        max_labels = MAX_TRAINED_ALONE if self.is_sparse else MAX_TRAINED_ALONE_DENSE
        return bool(self.n_of_label.size > max_labels and self.n_of_label.max() == 1)

    # Caches for queries, valid until the head learns again

    def all_scorers(self, n_rows: int) -> heads.AllScorers | None:
        """Return the scorers of all labels for a query of ``n_rows`` rows, or None if it searches for labels.

        A layout is made only after many queries, because making it takes longer than scoring a few rows without it.
        """
        head = self.head
        kept = self._layout
        if kept is not None and kept[0] is head.digest:
            return kept[1] if isinstance(kept[1], heads.AllScorers) else None
        are_all_common = self.of_sets and self.n_labels == head.common.labels.size
        if self.n_labels == 0 or (self.is_searched and not are_all_common and (self.is_sparse or self.has_lists())):
            return None
        if not self.is_sparse and n_rows > 1:
            return heads.all_scorers(head)
        before = self._n_asked[1] if self._n_asked is not None and self._n_asked[0] is head.digest else 0
        self._n_asked = head.digest, before + n_rows
        if before + n_rows < _ROWS_WORTH_A_LAYOUT:
            return heads.all_scorers(head, in_tables=True)
        scorers = heads.all_scorers(head)
        if not self.is_sparse:
            scorers = scorers._replace(weights=np.ascontiguousarray(scorers.weights.T).T)
        self._layout = head.digest, scorers
        return scorers

    def has_lists(self) -> bool:
        """Return whether queries search the lists of very many dense labels, which have been the same for long."""
        return not self.is_sparse and self.is_searched and self.n_unlisted == 0

    def dense_index(self) -> DenseIndex | None:
        """Return the index of a dense head's scorers, or None if queries do not use it."""
        if not self.has_lists():
            return None
        digest, kept = self.head.digest, self._layout
        if kept is None or kept[0] is not digest:
            kept = self._layout = digest, self._new_dense_index()
        assert isinstance(kept[1], DenseIndex)
        return kept[1]

    def _new_dense_index(self) -> DenseIndex:
        """Return an index of the scorers, calibrated on stored examples or, if there are none, on the scorers."""
        weights = heads.weights_of_labels(self.head, np.arange(self.n_labels))
        biases = self.head.labels["bias"][0, : self.n_labels]
        if biases.any():  # the bias is the weight of another feature, whose value is 1
            weights = np.column_stack([weights, biases])
        index = DenseIndex(weights.shape[1], "inner_product", self.seed)
        order = np.random.default_rng(0).permutation(self.n_labels)  # classes in order would make lists of like ones
        index.insert(np.ascontiguousarray(weights[order]), order)
        if self.examples is not None:
            n_examples = int(self.n_of_label.sum())
            some = np.random.default_rng(0).permutation(n_examples)[:_ROWS_ASKED]
            rows, labels = self.prepared_examples(np.sort(some))
            index.calibrate(_queries_of(index, rows), labels)
        return index

    def bounds(self) -> postings.LabelBounds:
        """Return bounds on the labels' scores. The head must be sparse, and its index must list all weights."""
        digest = self.head.digest
        if self._bounds is None or self._bounds[0] is not digest:
            biases = np.ascontiguousarray(self.head.labels[0, : self.n_labels]["bias"])
            self._bounds = digest, postings.label_bounds(self.head.postings, biases)
        return self._bounds[1]

    def prepare_like(self, former: "LabelIndex", options: LabelOptions) -> None:
        """Fill the caches that ``former`` has filled, so that readers do not wait for them."""
        if former._layout is not None:
            self.all_scorers(_ROWS_WORTH_A_LAYOUT)
            self.dense_index()
        if former._bounds is not None and self.n_labels > 0 and self.lists_best(1, options):
            self.bounds()

    # Queries

    def effort(self, options: LabelOptions, *, training: bool = False) -> heads.SearchEffort:
        """Return the effort of a search for candidates. The effort is larger in training than for queries."""
        n_labels = self.n_labels
        n_met = int(min(_SHARE_OF_LABELS * n_labels, _LABELS_PER_DOUBLING * np.log2(n_labels + 1)))
        n_listed, wider = max(_FEWEST_LISTED, int(_SHARE_LISTED * n_met)), _WIDER_IN_TRAINING
        if self.of_sets:
            of_labels, of_rows = self.amounts
            n_met = int(_LABELS_PER_DOUBLING_OF_SETS * np.log2(n_labels + 1))
            n_listed = max(_FEWEST_LISTED_OF_SETS, int(_LISTED_FOR_A_LABEL * of_labels.sum() / max(1, of_rows)))
            wider = _WIDER_LISTS_IN_TRAINING if self.is_sparse else _WIDER_IN_TRAINING
        n_met = max(_FEWEST_MET, n_met)
        if training:
            return heads.SearchEffort(wider * n_listed, n_met)
        if options.n_candidates is not None:
            n_listed = options.n_candidates
            n_met = max(n_listed, min(n_met, int(n_listed / _SHARE_LISTED)))
        return heads.SearchEffort(n_listed, n_met, _FURTHER_ENTRIES * n_met)

    def max_candidates(self, options: LabelOptions) -> int:
        """Return the maximum number of labels that a query scores for a row."""
        return min(self.n_labels, self.effort(options).n_listed + heads.always_found(self.head.scorers).size)

    def is_listed(self) -> bool:
        return self.head.postings.n_labels == self.head.digest.n_labels == self.n_labels

    def best_label(self, X: Any, options: LabelOptions) -> np.ndarray:
        """Return the best label of each row of a matrix for :func:`check_rows`, of those that are found."""
        scorers = self.all_scorers(X.shape[0])
        if scorers is None:
            return self.best_labels(self.prepared_matrix(X), 1, options).labels[:, 0]
        unscaled = None if self.is_standardized else heads.unscaled_rows(scorers, X)
        rows, lengths = (self.prepared_matrix(X), None) if unscaled is None else unscaled
        return heads.best_of_all(scorers, rows, lengths, self.usual_label)

    def best_label_of(self, rows: kernels.Rows, options: LabelOptions) -> np.ndarray:
        """Return the best label of each prepared row, of those that are found."""
        scorers = self.all_scorers(rows.n_rows)
        if scorers is not None:
            return heads.best_of_all(scorers, rows, usual=self.usual_label)
        return self.best_labels(rows, 1, options).labels[:, 0]

    def best_labels(self, rows: kernels.Rows, k: int, options: LabelOptions) -> postings.LabelAnswers:
        """Return the ``k`` best labels of each row, padded with NONE and minus infinity."""
        scorers, index = self.all_scorers(rows.n_rows), self.dense_index()
        if scorers is not None:
            labels, scores = heads.top_of_all(scorers, rows, min(k, scorers.n_labels))
            self._put_usual_first(scorers, rows, labels, scores)
            n_scored = np.full(rows.n_rows, scorers.n_labels)
            missing = ((0, 0), (0, k - labels.shape[1]))
            labels = np.pad(labels, missing, constant_values=kernels.NONE)
            scores = np.pad(scores, missing, constant_values=-np.inf)
            return postings.LabelAnswers(labels, scores, n_scored, n_scored)
        if index is not None:
            n_threads, n_scored = threads_for(rows.n_rows, options), np.full(rows.n_rows, self.n_labels)
            labels, scores = index.search(_queries_of(index, rows), k, _RECALL, n_threads=n_threads)
            return postings.LabelAnswers(labels, scores.astype(np.float32), n_scored, n_scored)
        labels = np.full((rows.n_rows, k), kernels.NONE, np.int64)
        scores = np.full((rows.n_rows, k), -np.inf, np.float32)
        answers = postings.LabelAnswers(labels, scores, *np.zeros((2, rows.n_rows), np.int64))
        if not self.lists_best(k, options):
            self.search_labels(rows, answers, options)
            self._fill_empty(answers)
            return answers
        self._rank_listed(rows, answers, options)
        short = np.flatnonzero(labels[:, -1] == kernels.NONE)  # too few labels have a feature of these rows
        if short.size > 0:
            found = postings.LabelAnswers(*(part[short] for part in answers))
            self.search_labels(rows.take(short), found, options)
            for part, of_short in zip(answers, found, strict=True):
                part[short] = of_short
        self._fill_empty(answers)
        return answers

    def _fill_empty(self, answers: postings.LabelAnswers) -> None:
        """Answer rows without candidates, which have no known feature, with the most frequent label and score 0."""
        if self.of_sets:
            return
        empty = answers.labels[:, 0] == kernels.NONE
        answers.labels[empty, 0], answers.scores[empty, 0] = self.usual_label, 0.0

    def _put_usual_first(
        self, scorers: heads.AllScorers, rows: kernels.Rows, labels: np.ndarray, scores: np.ndarray
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
        by_default = options.n_candidates is None and k <= _MOST_RANKED
        lists_all = self.head.postings.labels.size == self.head.digest.features.size
        return by_default and lists_all and self.is_listed()

    def _rank_listed(self, rows: kernels.Rows, answers: postings.LabelAnswers, options: LabelOptions) -> None:
        head, questions, bounds = self.head, postings.all_of(rows), self.bounds()

        def answer(first: int, stop: int) -> None:
            some = questions._replace(first=first, stop=stop)
            postings.rank_listed(head.postings, head.digest, bounds, some, answers)

        share_rows(answer, rows.n_rows, threads_for(rows.n_rows, options))

    def search_labels(self, rows: kernels.Rows, answers: postings.LabelAnswers, options: LabelOptions) -> None:
        """Search for the candidates of each row, and write the best ones to ``answers``."""
        effort, questions, head = self.effort(options), postings.all_of(rows), self.head.scorers

        def answer(first: int, stop: int) -> None:
            heads.score_labels(head, questions._replace(first=first, stop=stop), effort, answers)

        share_rows(answer, rows.n_rows, threads_for(rows.n_rows, options))


def threads_for(n_rows: int, options: Any) -> int:
    """Return the number of threads for a batch of ``n_rows`` rows."""
    n_threads = check_jobs(options.n_jobs) or int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
    return max(1, min(n_threads, n_rows // _ROWS_WORTH_A_THREAD))


def _queries_of(index: DenseIndex, rows: kernels.Rows) -> np.ndarray:
    """Return dense rows as queries to an index of scorers, with the feature for biases if the index has it."""
    Q = kernels.as_matrix(rows)
    if Q.shape[1] < index.n_features:
        Q = np.column_stack([Q, np.ones(len(Q), np.float32)])
    return np.ascontiguousarray(Q)


def means_of(
    rows: kernels.Rows, of_labels: np.ndarray, of_rows: np.ndarray, n_labels: int, weights: np.ndarray | None = None
) -> tuple[kernels.Rows, np.ndarray]:
    """Return each label's weighted mean of rows, of unit length, and the length of its weighted sum: float32."""
    shares = np.ones(of_rows.size, np.float32) if weights is None else weights[of_rows]
    members = scipy.sparse.csr_array((shares, (of_labels, of_rows)), (n_labels, rows.n_rows))
    sums = members @ kernels.as_matrix(rows)
    lengths = np.sqrt(np.asarray((sums * sums).sum(axis=1), np.float32))
    return check_rows(sums, sparse=rows.sparse), lengths
