"""A forest over labels, one memory for each, and a one-against-some head: what the classifiers share."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from .._change import share_rows, with_progress
from .._engine import insert_rows, roll_back, teach_rows
from .._forest import (
    NONE,
    TABLES_END,
    Rows,
    State,
    keep_heaviest,
    most_cells_in_use,
    rescaled,
    stored_rows,
    with_tables,
)
from .._heads import (
    AllScorers,
    Head,
    HeadParameters,
    LabelAnswers,
    ScorerLists,
    SearchEffort,
    all_of,
    best_listed,
    best_of_all,
    cells_of_tables,
    dense_scorers,
    is_in_lists,
    new_head,
    rank_listed,
    score_labels,
    top_of_all,
    unscaled_rows,
    with_digest,
    with_index,
    with_labels,
    with_means_in_lists,
    without_digest,
    without_negligible_weights,
    without_tables,
)
from .._validation import Constraint, Flag, Integer, Optional, Real, check_jobs, check_rows
from ..tree import OPTIONS, ContextualMemoryTree
from ._base import SavableEstimator
from ._durable import KeptInFolder
from ._input import checked_matrix
from ._options import FIT_ONLY, OF_ALL, PASSES
from ._plans import (
    MOST_SCORED,
    MOST_SCORED_SPARSE,
    bounds_laid_out,
    hand_over,
    lay_out_like,
    lists_laid_out,
    scorers_laid_out,
    trees_laid_out,
)
from ._relearning import means_of

# Labels that are found for a row, in leaves and in lists of the head's index.
_FEWEST_CANDIDATES = 16  # with fewer labels in all, every one that is reached
_SHARE_OF_LABELS = 0.2  # at most, where there are many
_LABELS_PER_LEVEL = 400  # at most, for each level that a balanced tree of them would have, where there are very many
_FEWEST_LISTED = 16  # of those from the head's index that are scored with all their weights
_SHARE_LISTED = 1 / 64  # of those found, if that is more
_FURTHER_ENTRIES = 2  # of the lists for each label found, that add to those found; none in training
_MOST_RANKED = 16  # labels wanted that the index alone is asked for
# Leaves and listed labels, so that the head learns of more hard negatives than it has candidates to score.
_WIDER_IN_TRAINING = 2

LOGITS_PER_MARGIN = 4.0
"""A lead of a whole margin is worth odds of 55 to 1."""

MOST_TRAINED_ALONE = 8192
"""Labels of one sparse example each that a head is trained for. For more, passes over the examples lower no error."""

MOST_TRAINED_ALONE_DENSE = 50_000
"""The same of dense examples: a pass over more takes minutes, for each example is searched for in all trees."""

# The head's index and digest.
_GROWTH_LISTED = 1.25  # growth of the number of labels after which the index is rebuilt
_MANY_LABELS = 1000  # of which going through all scorers once takes some milliseconds
_LABELS_LISTED_A_ROW = 16  # takes about as long as learning the row
_CELLS_LISTED_A_ROW = 20_000  # of the tables of sparse scorers: the same where labels have learned very many features

# Routers.
_CELLS_ROUTED = 20  # of a sparse row: lighter ones cost time and memory, and make answers worse more often than better
_SURE_MARGIN = 0.2  # taught routers answer new rows with less than what they were taught
_DENSE_TREES = 8
# Where classes have at least this number of examples on average, routers and head are worth more. Very many labels of
# one dense example each need one tree: lists of similar scorers answer, and nothing is trained.
_MORE_TREES, _MANY_EXAMPLES = 12, 16
_SPARSE_TREES = 2  # sparse rows have the head's index as well
_DENSE_LEAVES, _SPARSE_LEAVES = 1.5, 1  # searched for each tree
_LABELS_BEFORE_MORE_LEAVES = 512  # dense rows search as many leaves again for each time that labels are twice as many
_DENSE_MULTIPLIER, _SPARSE_MULTIPLIER = 2.0, 1.0  # c
_MANY_CLASSES = 25  # from here on, a leaf
_SHARE_OF_A_LEAF = 1 / 25  # of the classes, or what c allows if that is less: so a few leaves are few of the classes


class LabelForest(KeptInFolder, SavableEstimator, BaseEstimator):
    """What estimators over many labels have in common. Labels are numbers, in the order of their insertion.

    Once started it has a ``forest_`` whose memory ``l`` is label ``l``, and a ``head_`` with a scorer for each. The
    head's index lists no weights below ``_lightest_listed`` times the largest of the same label.
    """

    _lightest_listed = 0.0
    _trees_add_to_index = True  # labels that are better than those of the index alone
    _keeps_tables = True  # of sparse scorers while nothing is learned
    _trees_on_request = False  # for sparse rows, whose labels the index finds
    _without_trees = False  # all labels are in one leaf; files of earlier versions do not say
    _fit_only = FIT_ONLY | {"n_trees"}
    _constraints: ClassVar[dict[str, Constraint]] = {
        **OF_ALL,
        "n_candidates": Optional(Integer(1)),
        "n_router_passes": PASSES,
        "n_head_passes": PASSES,
        "aggressiveness": Real(0.0, 1e6, above=True),
        "leaf_multiplier": Optional(OPTIONS["leaf_multiplier"]),
        "store_examples": Flag(),
    }

    # Parameters, which each estimator lists in a signature of its own.
    n_trees: int | None
    n_probes: int | None
    n_candidates: int | None
    n_router_passes: int
    n_head_passes: int
    aggressiveness: float
    leaf_multiplier: float | None
    alpha: float
    n_reroutes: int
    store_examples: bool
    n_jobs: int | None
    random_state: Any
    verbose: bool

    _n_of_label: np.ndarray  # int64: examples of each

    def _new_forest(self, n_trees: int, leaf_multiplier: float, seed: int) -> ContextualMemoryTree:
        return ContextualMemoryTree(
            n_trees,
            self.alpha,
            leaf_multiplier,
            self.n_reroutes,
            sure_margin=_SURE_MARGIN,
            n_threads=check_jobs(self.n_jobs),
            random_state=seed,
        )

    def _start_forest(self, rows: Rows, n_labels: int, loss: int, learning_rate: float) -> None:
        """Make an empty forest and head for rows like these, with this number of labels."""
        n_trees, leaf_multiplier = self.n_trees, self.leaf_multiplier
        if n_trees is None:
            n_trees = _dense_trees(rows.n_rows, n_labels) if not rows.sparse else _SPARSE_TREES
        if leaf_multiplier is None:
            leaf_multiplier = _leaf_multiplier_for(n_labels, _SPARSE_MULTIPLIER if rows.sparse else _DENSE_MULTIPLIER)
        by_default = self.n_trees is self.n_probes is self.leaf_multiplier is None
        self._without_trees = self._trees_on_request and rows.sparse and by_default
        if self._without_trees:
            n_trees, leaf_multiplier = 1, _multiplier_of_one_leaf(n_labels)
        seed = check_random_state(self.random_state).randint(2**31)
        self.forest_ = self._new_forest(n_trees, leaf_multiplier, seed)
        self.head_ = new_head(HeadParameters(rows.n_features, rows.sparse, loss, learning_rate))
        self._seed = seed
        self._orders = np.random.default_rng(seed)
        self._cells_pruned = 0
        self._n_unlisted = 0

    def _grown_forest(self) -> ContextualMemoryTree:
        """Return trees over the labels of a forest without trees, grown from their keys alone."""
        n_labels = self.forest_.n_memories
        grown = self._new_forest(_SPARSE_TREES, _leaf_multiplier_for(n_labels, _SPARSE_MULTIPLIER), self._seed)
        if n_labels > 0:
            insert_rows(grown._forest, stored_rows(self.forest_._forest.allocated(), np.arange(n_labels)), self.verbose)
        return grown

    def _searched(self) -> State:
        """Return the trees that are searched for candidates, grown if there are none and leaves are wanted."""
        forest = trees_laid_out(self) if self._without_trees and self.n_probes is not None else self.forest_
        return forest._forest.allocated()

    # Learning

    def _insert_labels(
        self,
        rows: Rows,
        of_labels: np.ndarray,
        of_rows: np.ndarray,
        n_new: int,
        n_reroutes: int | None = None,
        weights: np.ndarray | None = None,
    ) -> tuple[Head, np.ndarray]:
        """Insert ``n_new`` labels into the forest, each under the mean of its rows.

        The entries of ``of_labels`` and ``of_rows`` say which row belongs to which of the new labels. ``n_reroutes``
        replaces the forest's own, and ``weights`` are those of the rows. Returns a head for all labels, and the new
        ones. They are there when the estimator has this head and its tables name them.
        """
        means, lengths = means_of(rows, of_labels, of_rows, n_new, weights)
        if self._learns_in_lists():
            head = with_means_in_lists(self.head_, means)
        else:
            head = with_labels(without_digest(self.head_), means, lengths)
        n_reroutes = 0 if self._without_trees else n_reroutes
        return head, insert_rows(self.forest_._forest, rescaled(routed(means)), self.verbose, n_reroutes)

    def _learns_in_lists(self) -> bool:
        """Return whether the scorers of the labels to come are to lie in lists: as long as there is no label."""
        return self.head_.parameters.sparse and not self._keeps_tables and self.forest_.n_memories == 0

    def _recover_labels(self, n_labels: int) -> None:
        """Let there be no labels but the first ones, after a change that was broken off."""
        roll_back(self.forest_._forest, n_labels)
        if self.head_.parameters.sparse:
            # New labels may have been given tables that were free: lists of these are begun anew.
            self.head_ = with_tables(self.head_, most_cells_in_use(self.head_))

    def _teach_routers(self, routed_rows: Rows, labels: np.ndarray, *, afresh: bool) -> None:
        if self.n_router_passes > 0:
            teach_rows(self.forest_._forest, routed_rows, labels, self.n_router_passes, afresh, self.verbose)

    def _train_in_passes(
        self, n_rows: int, n_passes: int, settled: np.ndarray, learn: Callable[[int, np.ndarray], Head]
    ) -> None:
        """Have ``learn`` train the head on rows in random order; it is told the number of the pass."""
        for n_pass in with_progress(range(n_passes), "pass", self.verbose):
            # Rows that changed nothing the last time are looked at only every other time.
            order = np.arange(n_rows) if n_pass % 2 == 0 else np.flatnonzero(~settled)
            self._orders.shuffle(order)
            self.head_ = learn(n_pass, order)
        self._prune()

    def _prune(self) -> None:
        """Let the head forget what makes no difference, once there is much of it."""
        if self.head_.parameters.sparse and self.head_.counters[0, TABLES_END] > 2 * self._cells_pruned:
            self.head_ = without_negligible_weights(self.head_)
            self._note_pruned()

    def _note_pruned(self) -> None:
        self._cells_pruned = cells_of_tables(self.head_)

    def _begin_training(self, *, in_lists: bool = False) -> None:
        """Make the head ready to learn, in lists or else in tables, and its index fit for finding hard negatives."""
        if not in_lists:
            self.head_ = without_digest(self.head_)
        if self.forest_.n_memories > _GROWTH_LISTED * self.head_.postings.n_labels:
            self.head_ = with_index(self.head_, self._lightest_listed)

    def _end_training(self, n_rows: int) -> None:
        """Make the head ready to be read, unless this is too much work for so few rows."""
        self._n_unlisted += n_rows
        if self._worth_listing(self._n_unlisted) or is_in_lists(self.head_):
            head = with_index(with_digest(self.head_), self._lightest_listed)
            self.head_ = head if self._keeps_tables else without_tables(head)
            self._n_unlisted = 0

    def _worth_listing(self, n_rows: int) -> bool:
        """Return whether learning this number of rows takes as long as going through all scorers once."""
        n_cells = self.head_.counters[0, TABLES_END]  # 0 for dense scorers
        most_cells = n_rows * _CELLS_LISTED_A_ROW
        return bool(n_rows * _LABELS_LISTED_A_ROW >= self.forest_.n_memories and most_cells >= n_cells)

    def _get_ready(self, former: Any) -> None:
        lay_out_like(former, self)

    def _become(self, other: Any) -> None:
        super()._become(other)
        hand_over(other, self)

    def _has_much_due(self, n_rows: int) -> bool:
        return self.forest_.n_memories >= _MANY_LABELS and self._worth_listing(self._n_unlisted + n_rows)

    # Answering

    def _effort(self, *, training: bool = False) -> SearchEffort:
        """Return how far to search for candidates; for training farther than for answers."""
        parameters, n_labels = self.forest_._forest.allocated().parameters, self.forest_.n_memories
        width = _WIDER_IN_TRAINING if training else 1
        if self.n_probes is not None:
            n_leaves = width * self.n_probes
        elif self._without_trees:
            n_leaves = 0
        elif parameters.sparse:
            n_leaves = width * _SPARSE_LEAVES * parameters.n_trees
        else:
            growth = max(1.0, float(np.log2(n_labels / _LABELS_BEFORE_MORE_LEAVES)))
            n_leaves = int(_DENSE_LEAVES * max(width, growth) * parameters.n_trees)
        most = max(_FEWEST_CANDIDATES, int(min(_SHARE_OF_LABELS * n_labels, _LABELS_PER_LEVEL * np.log2(n_labels + 1))))
        effort = SearchEffort(n_leaves, most, width * max(_FEWEST_LISTED, int(_SHARE_LISTED * most)), most)
        by_index = self.n_probes is None and not self._trees_add_to_index
        if training:
            lists_all = self.head_.postings.n_labels == n_labels > MOST_SCORED_SPARSE
            return effort._replace(leaves_last=by_index and lists_all)
        if self.n_candidates is not None:
            n_scored = self.n_candidates
            n_met = max(n_scored, min(most, int(n_scored / _SHARE_LISTED)))
            effort = effort._replace(n_labels=n_scored, n_listed=n_scored, n_met=n_met)
        suffices = by_index and self._is_index_up_to_date()
        return effort._replace(n_further=_FURTHER_ENTRIES * effort.n_met, leaves_last=suffices)

    def _is_index_up_to_date(self) -> bool:
        """Return whether the head has learned nothing since its index was made."""
        return self.head_.postings.n_labels == self.head_.digest.n_labels == self.forest_.n_memories

    def _all_scorers(self, n_rows: int = 0) -> AllScorers | None:
        """Return the scorers of all labels if all are scored for each row, in the form that suits ``n_rows``."""
        most = MOST_SCORED_SPARSE if self.head_.parameters.sparse else MOST_SCORED
        if self.n_probes is None and self.n_candidates is None and self.forest_.n_memories <= most:
            return scorers_laid_out(self, for_one=n_rows == 1)
        return None

    def _is_untrained(self) -> bool:
        """Return whether labels have one example each, and are so many that the head is not trained with passes."""
        most = MOST_TRAINED_ALONE if self.head_.parameters.sparse else MOST_TRAINED_ALONE_DENSE
        return bool(self._n_of_label.size > most and self._n_of_label.max() == 1)

    def _lists(self) -> ScorerLists | None:
        """Return scorers in lists if there are too many dense ones to score all."""
        many = not self.head_.parameters.sparse and self.forest_.n_memories > MOST_SCORED
        return lists_laid_out(self) if many and self.n_probes is None and self.n_candidates is None else None

    def _best_listed(self, lists: ScorerLists, rows: Rows, k: int) -> LabelAnswers:
        return best_listed(lists, dense_scorers(self.head_, lists.biases), rows, k, partial(self._in_threads, rows))

    def _in_form(self, X: Any) -> Any:
        X = checked_matrix(self, X)
        self._check_parameters()  # they may have been set since
        return X

    def _checked(self, X: Any) -> Rows:
        return check_rows(self._in_form(X), sparse=self.head_.parameters.sparse)

    def _in_threads(self, rows: Rows, work: Any) -> None:
        share_rows(work, rows.n_rows, self.forest_._forest.threads_for(rows.n_rows))

    def _best_label(self, X: Any) -> np.ndarray:
        """Return the best label of each row of a matrix in form, NONE where none was reached."""
        scorers, lists = self._all_scorers(X.shape[0]), self._lists()
        unscaled = None if scorers is None else unscaled_rows(scorers, X)
        if scorers is not None and unscaled is not None:
            return best_of_all(scorers, *unscaled)
        rows = check_rows(X, sparse=self.head_.parameters.sparse)
        if scorers is not None:
            return best_of_all(scorers, rows)
        found = self._best_labels(rows, 1) if lists is None else self._best_listed(lists, rows, 1)
        best: np.ndarray = found.labels[:, 0]
        return best

    def _best_labels(self, rows: Rows, k: int) -> LabelAnswers:
        """Return the ``k`` best labels of each row, NONE and minus infinity where fewer were reached."""
        scorers, lists = self._all_scorers(), self._lists()
        if scorers is not None:
            labels, scores = top_of_all(scorers, rows, min(k, scorers.n_labels))
            n_scored = np.full(rows.n_rows, scorers.n_labels)
            return LabelAnswers(*_widened(labels, scores, k), n_scored, n_scored)
        if lists is not None:
            return self._best_listed(lists, rows, k)
        labels = np.full((rows.n_rows, k), NONE, np.int64)
        scores = np.full((rows.n_rows, k), -np.inf, np.float32)
        answers = LabelAnswers(labels, scores, np.zeros(rows.n_rows, np.int64), np.zeros(rows.n_rows, np.int64))
        if not self._lists_best(k):
            self._search_labels(rows, answers)
            return answers
        self._rank_listed_labels(rows, answers)
        short = np.flatnonzero(labels[:, -1] == NONE)  # too few labels have a feature of these rows
        if short.size > 0:
            found = LabelAnswers(*(part[short] for part in answers))
            self._search_labels(rows.take(short), found)
            for part, of_short in zip(answers, found, strict=True):
                part[short] = of_short
        return answers

    def _lists_best(self, k: int) -> bool:
        """Return whether the head's index alone finds the ``k`` best of all labels: where it lists all weights.

        It does before the head has learned from passes, which give features weights of the other sign.
        """
        by_default = self.n_probes is None and self.n_candidates is None and k <= _MOST_RANKED
        lists_all = self.head_.postings.labels.size == self.head_.digest.features.size
        return by_default and lists_all and self._is_index_up_to_date()

    def _rank_listed_labels(self, rows: Rows, answers: LabelAnswers) -> None:
        head, questions, of_labels = self.head_, all_of(rows, rows), bounds_laid_out(self)

        def answer(first: int, stop: int) -> None:
            asked = questions._replace(first=first, stop=stop)
            rank_listed(head.postings, head.digest, of_labels, asked, answers)

        self._in_threads(rows, answer)

    def _search_labels(self, rows: Rows, answers: LabelAnswers) -> None:
        """Write the best labels that are candidates for the rows."""
        state, effort = self._searched(), self._effort()
        questions, head = all_of(routed(rows), rows), self.head_.scorers
        trees, routers = state.trees, state.models

        def answer(first: int, stop: int) -> None:
            score_labels(trees, routers, head, questions._replace(first=first, stop=stop), effort, answers)

        self._in_threads(rows, answer)


def _widened(labels: np.ndarray, scores: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return labels and scores of ``k`` columns, where there are none NONE and minus infinity."""
    missing = ((0, 0), (0, k - labels.shape[1]))
    return np.pad(labels, missing, constant_values=NONE), np.pad(scores, missing, constant_values=-np.inf)


def _multiplier_of_one_leaf(n_labels: int) -> float:
    """Return ``c`` for trees whose root stays a leaf while this number of labels is inserted."""
    return min(max(2.0, (n_labels + 1) / float(np.log2(max(2, n_labels)))), 2.0**20)


def _dense_trees(n_rows: int, n_labels: int) -> int:
    """Return how many trees suit dense examples."""
    if n_rows == n_labels > MOST_TRAINED_ALONE_DENSE:
        return 1
    return _MORE_TREES if n_rows >= _MANY_EXAMPLES * n_labels else _DENSE_TREES


def _leaf_multiplier_for(n_classes: int, usual: float) -> float:
    """Return ``c`` for trees over a number of classes: leaves that hold a small share of them, but some."""
    if n_classes < _MANY_CLASSES:
        return usual
    return min(usual, _SHARE_OF_A_LEAF * n_classes / float(np.log2(n_classes)))


def routed(rows: Rows) -> Rows:
    """Return rows as routers see them: the heaviest cells of each, scaled to length 1 again."""
    if not rows.sparse:
        return rows
    values, indices = np.empty_like(rows.values), np.empty_like(rows.indices)
    offsets = np.zeros_like(rows.offsets)
    end = keep_heaviest(rows, _CELLS_ROUTED, values, indices, offsets)
    return rescaled(Rows(values[:end].copy(), indices[:end].copy(), offsets, rows.n_features, True))
