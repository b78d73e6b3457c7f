"""Model of a multi-label classifier.

Each label has its own linear support vector machine (``_heads/binary_svm.py``). Common labels learn from all rows,
rarer labels from the rows for which they are candidates. In tables, the means of label sets that have stopped coming
are learned again with each batch, so that their labels do not fade.
"""

import copy
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse

from .. import _heads as heads
from .. import _postings as postings
from .. import persistence as files
from .._change import map_threads, share_rows, spans, with_progress
from .._index import DenseIndex
from .._kernels import NONE, Rows, as_matrix
from .._postings import SparseIndex
from .._validation import check_rows
from ._calibration import FEWEST_FOR_THRESHOLD, THRESHOLDS, best_threshold, f1_by_threshold, held_out
from ._feature_scales import is_table, measure_scales, original_rows
from ._fields import INDEX
from ._input import Factors, filled, taken, total_weights
from ._label_index import LabelIndex, LabelOptions, threads_for
from ._neighbors import lengths_unless_unit
from ._replay import SetMeans, no_means

_MAX_COMMON = 1024  # maximum number of common labels; up to this number of labels, all are common
_SHARE_OF_ROWS = 1 / 256  # a label is common if at least this fraction of rows has it

_SWEEPS = 4  # sweeps over the rows of a rarer label in each pass
_SWEEPS_AT_ONCE = 21  # sweeps over the rows of a common label, all in one pass
_MOST_REMEMBERED = 500.0  # maximum weight of all former rows in the choice of the threshold
_NEGLIGIBLE_IN_COMMON = 0.001  # weights of common labels below this fraction of the largest are dropped
_PAIRS_AT_ONCE = 1 << 22

_RECALL = 0.99  # fraction of the nearest examples that are found
_LABELS_LISTED = 1 << 16


class SetOptions(LabelOptions, Protocol):
    """Parameters of a multi-label classifier that the model depends on."""

    n_head_passes: int
    aggressiveness: float
    store_examples: bool


class LabelledRows(NamedTuple):
    """A batch of rows with labels."""

    rows: Rows
    answers: scipy.sparse.csr_array  # indicator matrix of the labels
    weights: np.ndarray | None  # float32, above 0; None if all are 1
    lengths: np.ndarray | None  # float32, lengths of the rows before scaling; None if all are 1

    def of_answers(self) -> np.ndarray:
        """Return the row of each entry of ``answers``."""
        return np.repeat(np.arange(self.rows.n_rows), np.diff(self.answers.indptr))

    def taken(self, at: np.ndarray) -> "LabelledRows":
        return LabelledRows(self.rows.take(at), self.answers[at], taken(self.weights, at), taken(self.lengths, at))


class TrainedPairs(NamedTuple):
    """The pairs on which a head has been trained, from which it can be trained again without some rows."""

    rows: np.ndarray  # int64: new number of each row; NONE for a row to leave out
    columns: np.ndarray  # int64: column of each label
    common: np.ndarray  # int64: labels that learned from all rows
    of_others: np.ndarray  # float32: for each label, the dual variable of the rows without features
    parts: list[tuple[heads.ExamplePairs, int, float]]  # pairs, with the last two fields of their :class:`LabelTask`


class MultilabelModel(files.WithFields):
    """Label columns, an index of the labels with examples, and an index of the stored examples.

    A new model is empty, and suits a first batch and about ``n_labels`` labels. It standardises dense tables.
    """

    FIELDS = files.FieldTable(
        index=files.PartField(LabelIndex),  # scorers of the labels, which are numbered in insertion order
        examples=files.OptionalField(INDEX),  # all examples
        n_columns=files.NumberField(),  # number of columns of label matrices
        # label of each column, NONE if no row has the label, and the column of each label
        label_of_column=files.ArrayField(np.int64),
        column_of_label=files.ArrayField(np.int64),
        names=files.OptionalField(files.LabelsField()),  # label names by column; None if labels have no names
        pair=files.OptionalField(files.LabelsField()),  # classes of a vector ``Y``; None for other formats of ``Y``
        is_output_sparse=files.FlagField(),  # whether labels were given in a sparse matrix
        # of the learned rows: the curvature of each label's slack, and the sum of the squares of each feature
        curvature=files.ArrayField(np.float32, bounds=(0, np.inf)),
        squares=files.ArrayField(np.float64, bounds=(0, np.inf)),
        # sums of the F1 by threshold; None if the threshold is not learned
        f1_sums=files.OptionalField(files.ArrayField(np.float64)),
        # means of label sets; None if rows are no table or have too many label sets
        means=files.OptionalField(files.StructureField(SetMeans, SetMeans._make)),
    )

    def __init__(
        self, options: SetOptions, batch: LabelledRows, n_labels: int, pair: Any, *, is_output_sparse: bool
    ) -> None:
        rows, _, weights, lengths = batch
        index = self.index = LabelIndex(options, rows, int(heads.HeadLoss.MIRA), 1.0, of_sets=True)
        self.examples: DenseIndex | SparseIndex | None = None
        if options.store_examples:
            self.examples = (SparseIndex if rows.sparse else DenseIndex)(rows.n_features, "cosine", index.seed)
        may_scale = not rows.sparse and options.n_head_passes > 0 and is_table(rows, n_labels, has_all=True)
        if lengths is not None and may_scale:
            index.scales = measure_scales(rows, lengths, weights, is_used=True)
            index.head = index.empty_head(rows.n_features)
        self.names: np.ndarray | None = None
        self.pair: np.ndarray | None = pair
        self.is_output_sparse, self.n_columns = is_output_sparse, 0
        self.label_of_column: np.ndarray = np.empty(0, np.int64)
        self.column_of_label: np.ndarray = np.empty(0, np.int64)
        self.curvature: np.ndarray = np.empty(0, np.float32)
        self.squares = np.zeros(index.head.parameters.n_features)
        self.f1_sums: np.ndarray | None = None
        self.means: SetMeans | None = no_means(rows.n_features) if index.is_standardized else None

    @property
    def classes(self) -> np.ndarray:
        """The classes of a vector, the names of the labels, or the numbers of the columns."""
        if self.pair is not None:
            return self.pair
        return np.arange(self.n_columns) if self.names is None else self.names

    @property
    def threshold(self) -> float | None:
        """The score above which labels are predicted, or None if it is not learned."""
        return None if self.f1_sums is None else best_threshold(self.f1_sums)

    def copied(self) -> "MultilabelModel":
        other = copy.copy(self)
        other.index = self.index.copied()
        other.examples = None if self.examples is None else self.examples.copy()
        return other

    def roll_back(self) -> None:
        """Undo a failed change."""
        self.index.roll_back()

    def prepare_like(self, former: "MultilabelModel", options: SetOptions) -> None:
        self.index.prepare_like(former.index, options)

    def has_much_due(self, n_rows: int, _options: SetOptions) -> bool:
        return self.index.has_much_due(n_rows)

    # Learning

    def learn(
        self, batch: LabelledRows, names: Any, options: SetOptions, *, afresh: bool, former: TrainedPairs | None = None
    ) -> TrainedPairs | None:
        """Learn rows. Their labels may have new columns; ``names`` are the names of all columns.

        Training starts from the pairs of ``former``. Without them, return the pairs on which scorers have been trained.
        """
        index, of_rows, known = self.index, batch.of_answers(), self._former_rows()
        if not afresh:
            index.measure_further(batch.rows, batch.lengths, batch.weights)
        rows = index.prepared(batch.rows, batch.lengths)
        in_lists = index.learns_in_lists()
        labels = self._add_labels(batch._replace(rows=rows), of_rows, names)
        means = self._further_means(batch)
        if self.examples is not None:
            self.examples.insert(as_matrix(batch.rows))
        self.squares = self.squares + _sums_of_squares(rows, batch.weights)
        if index.n_labels == 0:
            return None  # no example has a label yet
        self._choose_common()
        index.begin_training(in_lists=in_lists)
        trained = None
        if options.n_head_passes > 0 and former is not None:
            self._train_again(rows, batch.weights, former, options)
        elif options.n_head_passes > 0:
            weights = batch.weights
            if means is not None and not afresh:
                rows, of_rows, labels, weights = self._with_means(means, rows, of_rows, labels, weights)
            trained = self._train_head(rows, of_rows, labels, known, weights, options)
        self.means = means
        index.end_training(batch.rows.n_rows)
        return trained

    def _former_rows(self) -> heads.FormerRows:
        """Return the rows learned so far. They do not count in tables whose label sets are learned again."""
        n_of_label, n_rows = self.index.amounts
        squares = (self.squares / max(n_rows, 1e-9)).astype(np.float32)
        curvature = _padded(self.curvature, n_of_label.size) * np.float32(self.means is None)
        return heads.FormerRows(n_of_label.astype(np.float64), curvature, squares)

    def _further_means(self, labelled: LabelledRows) -> SetMeans | None:
        if self.means is None:
            return None
        rows, answers, weights, lengths = labelled
        X = original_rows(rows, filled(lengths, rows.n_rows), slice(0, rows.n_rows))
        return self.means.learned(X, answers.toarray() != 0, filled(weights, rows.n_rows).astype(np.float64))

    def _with_means(
        self, means: SetMeans, rows: Rows, of_rows: np.ndarray, labels: np.ndarray, weights: np.ndarray | None
    ) -> tuple[Rows, np.ndarray, np.ndarray, np.ndarray | None]:
        """Append means of label sets that stopped coming, with the same total weight, to rows with labels."""
        X, sets = means.stopped(n := rows.n_rows)
        if len(X) == 0:
            return rows, of_rows, labels, weights
        others, columns = np.nonzero(sets)
        added = self.index.prepared(check_rows(X), lengths_unless_unit(X))
        joined = check_rows(np.concatenate([as_matrix(rows), as_matrix(added)]))
        each = filled(weights, n)
        weights = np.append(each, np.full(len(X), each.sum() / len(X), np.float32))
        labels = np.append(labels, self.label_of_column[columns])
        return joined, np.append(of_rows, n + others), labels, weights

    def _add_labels(self, labelled: LabelledRows, of_rows: np.ndarray, names: np.ndarray | None) -> np.ndarray:
        """Add columns, insert new labels as means of rows, count, and return the label of each answer."""
        (rows, answers, weights, _), index = labelled, self.index
        n_columns, column_of_label, head = answers.shape[1], self.column_of_label, index.head
        n_new = n_columns - self.n_columns
        label_of_column = np.concatenate([self.label_of_column, np.full(n_new, NONE, np.int64)])
        new = np.unique(answers.indices[label_of_column[answers.indices] == NONE])
        if new.size > 0:
            place = np.full(n_columns, NONE, np.int64)
            place[new] = np.arange(new.size)
            members = place[answers.indices]
            of_new = members != NONE
            label_of_column[new] = np.arange(index.n_labels, index.n_labels + new.size)
            head = index.head_with_labels(rows, members[of_new], of_rows[of_new], new.size, weights)
            column_of_label = np.concatenate([column_of_label, new])
        labels = label_of_column[answers.indices]
        self.n_columns, self.names, index.head = n_columns, names, head
        self.label_of_column, self.column_of_label = label_of_column, column_of_label
        self._count(labels, rows.n_rows, of_rows, weights)
        return labels

    def _count(self, labels: np.ndarray, n_rows: int, of_rows: np.ndarray, weights: Factors) -> None:
        index, n_labels = self.index, self.column_of_label.size
        if index.weight_of_rows is not None or weights is not None:
            before, n_before = index.amounts
            weight_of_label = total_weights(labels, taken(weights, of_rows), n_labels)
            weight_of_label[: before.size] += before
            index.weight_of_label = weight_of_label
            index.weight_of_rows = n_before + (n_rows if weights is None else float(weights.sum(dtype=np.float64)))
        n_of_label = np.bincount(labels, minlength=n_labels)
        n_of_label[: index.n_of_label.size] += index.n_of_label
        index.n_of_label, index.n_rows = n_of_label, index.n_rows + n_rows

    def _choose_common(self) -> None:
        index = self.index
        former = index.head.common.labels
        common = most_common(*index.amounts, former)
        index.head = index.head._replace(common=heads.common_labels(common))
        if not np.isin(former, common).all():
            index.update_postings()  # the index omits common labels

    def _train_head(
        self,
        rows: Rows,
        of_rows: np.ndarray,
        labels: np.ndarray,
        former: heads.FormerRows,
        weights: Factors,
        options: SetOptions,
    ) -> TrainedPairs:
        """Train the head on rows: row ``of_rows[i]`` has the label ``labels[i]``. Return the pairs that count.

        Labels without ``former`` rows are new. ``weights`` are row weights.
        """
        index, n_rows, n_labels, n_known = self.index, rows.n_rows, self.index.n_labels, former.n_of_label.size
        common, orders, of_each = index.head.common.labels, index.orders, filled(weights, n_rows)
        # The index keeps the means of new labels, but dense scorers must find hard negatives before they are forgotten.
        found_before = None if index.is_sparse or n_labels == common.size else self._hard_negatives(rows, options)
        heads.forget_labels(index.head.models, n_known)  # new scorers start from 0
        in_lists = n_known == 0 and index.is_sparse
        if in_lists:
            index.head = heads.with_lists(index.head, heads.new_digest(np.zeros(n_labels, np.int64)))
        learn = heads.learn_afresh if in_lists else heads.learn_memberships
        in_hand, of_all = of_each.sum(dtype=np.float64), index.amounts[1]
        totals = np.where(np.arange(n_labels) < n_known, in_hand, of_all)
        n_of_label, curvature, squares = former
        former = heads.FormerRows(_padded(n_of_label, n_labels), _padded(curvature, n_labels), squares)
        duties = heads.new_duties(options.aggressiveness, of_each, totals, n_known, former)
        n_threads = threads_for(n_rows, options)
        trained = TrainedPairs(np.arange(n_rows), self.column_of_label, common, duties.of_others, [])

        def train(rows: Rows, of_each: np.ndarray, blocks: Any, n_sweeps: int, share: float) -> None:
            training = heads.Training(rows, duties._replace(weights=of_each), n_sweeps, share, n_threads)
            index.head = learn(index.head, blocks, training)

        # The solver needs rows in random order, but they may be sorted by label.
        order, place = orders.permutation(n_rows), np.empty(n_rows, np.int64)
        place[order] = np.arange(n_rows)
        shuffled, answers = rows.take(order), heads.pair_with_answers(place[of_rows], labels, n_labels)
        blocks = list(spans(common.size, max(1, _PAIRS_AT_ONCE // max(1, n_rows))))
        for first, stop in with_progress(blocks, "block of common labels", options.verbose):
            pairs = heads.pair_with_all(answers, common[first:stop], n_rows)
            train(shuffled, of_each[order], heads.one_block(pairs), _SWEEPS_AT_ONCE, _NEGLIGIBLE_IN_COMMON)
            if n_known == 0:
                counted = heads.pairs_that_count(pairs)
                counted = counted._replace(rows=order[counted.rows].astype(np.int32))
                trained.parts.append((counted, _SWEEPS_AT_ONCE, _NEGLIGIBLE_IN_COMMON))
        if n_labels == common.size:
            self.curvature = _padded(self.curvature, n_labels) + duties.curvature
            return trained
        del shuffled, answers  # frees copies of all rows
        others, share = ~np.isin(labels, common), heads.NEGLIGIBLE if n_known == 0 else 0.0
        pairs = heads.pair_with_answers(of_rows[others], labels[others], n_labels)
        for n_pass in with_progress(range(options.n_head_passes), "pass", options.verbose):
            if n_pass > 0 and index.is_worth_listing(n_rows):
                index.update_postings()  # candidates then include the errors of the last pass
            if in_lists:
                index.head = heads.with_lists_of(index.head, common)  # other scorers start from 0 in each pass
            candidates = self._hard_negatives(rows, options) if n_pass > 0 or found_before is None else found_before
            found = heads.group_by_label(candidates, orders.permutation(n_rows), n_labels)
            noted: list[heads.ExamplePairs] = []
            of_labels = _noting(heads.pair_with_hard_negatives(pairs, found, n_rows), noted)
            train(rows, of_each, of_labels, _SWEEPS, share)
            pairs = heads.joined(noted)
        trained.parts.append((pairs, _SWEEPS, share))
        self.curvature = _padded(self.curvature, n_labels) + duties.curvature
        if n_known > 0:
            index.prune()
        else:
            index.n_cells_pruned = heads.cells_of_tables(index.head)  # every pass has dropped negligible weights
        return trained

    def measure_threshold(self, labelled: LabelledRows, trained: TrainedPairs | None, options: SetOptions) -> None:
        """Measure the F1 by threshold on held-out rows of a first batch. ``trained`` is the result of :meth:`learn`."""
        tested, seen = held_out(labelled.rows.n_rows, self.index.seed)
        self.f1_sums = np.zeros(THRESHOLDS.size + 1)
        if self.pair is None and tested.size >= FEWEST_FOR_THRESHOLD and labelled.answers.nnz > 0:
            learner = self._trained_on(labelled, seen, trained, options)
            self.f1_sums = learner._f1_sums_of(labelled.taken(tested), options)

    def follow_threshold(self, labelled: LabelledRows, options: SetOptions) -> None:
        """Add the F1 by threshold of rows that the model has not learned yet. The latest rows count most."""
        if self.pair is None and self.f1_sums is not None:
            sums = self.f1_sums + self._f1_sums_of(labelled, options)
            self.f1_sums = sums * min(1.0, _MOST_REMEMBERED / max(sums[-1], 1.0))

    def _f1_sums_of(self, labelled: LabelledRows, options: SetOptions) -> np.ndarray:
        """Return sums for the rows without labels and those with a known label: no threshold finds new labels."""
        (rows, answers, weights, lengths), n_columns = labelled, labelled.answers.shape[1]
        row, column, scores = self.labels_above(self.index.prepared(rows, lengths), THRESHOLDS[0], options)
        of_rows, columns, n_wanted = labelled.of_answers(), answers.indices, np.diff(answers.indptr)
        is_right = np.isin(row * n_columns + column, of_rows * n_columns + columns)
        is_known = np.isin(columns, self.column_of_label)
        counts = (n_wanted == 0) | (np.bincount(of_rows[is_known], minlength=rows.n_rows) > 0)
        return f1_by_threshold(row, scores, is_right, n_wanted, filled(weights, rows.n_rows) * counts)

    @classmethod
    def _trained_on(
        cls, labelled: LabelledRows, seen: np.ndarray, trained: TrainedPairs | None, options: SetOptions
    ) -> "MultilabelModel":
        """Return a model that has learned only the rows ``seen`` of a first batch, from the result of :meth:`learn`."""
        rows, some = labelled.rows, labelled.taken(seen)
        n_labels = max(1, np.unique(some.answers.indices).size)
        learner = cls(options, some, n_labels, None, is_output_sparse=False)
        if trained is not None:
            trained = trained._replace(rows=np.full(rows.n_rows, NONE))
            trained.rows[seen] = np.arange(seen.size)
        learner.learn(some, None, options, afresh=True, former=trained)
        return learner

    def _train_again(self, rows: Rows, weights: Factors, former: TrainedPairs, options: SetOptions) -> None:
        """Train the head from the dual variables of some pairs, in a fraction of the time of :meth:`_train_head`."""
        index, n_labels, of_each = self.index, self.index.n_labels, filled(weights, rows.n_rows)
        labels = self.label_of_column[former.columns]
        totals, known = np.full(n_labels, of_each.sum(dtype=np.float64)), labels != NONE
        common = labels[former.common]
        totals[common[common != NONE]] = 0.0  # rows without a pair have no effect on a common label
        former_rows = heads.no_former_rows(n_labels, rows.n_features)
        duties = heads.new_duties(options.aggressiveness, of_each, totals, 0, former_rows)
        duties.of_others[labels[known]] = former.of_others[known]
        heads.forget_labels(index.head.models, 0)
        learn, n_threads = heads.learn_memberships, threads_for(rows.n_rows, options)
        if index.is_sparse:
            learn = heads.learn_afresh
            index.head = heads.with_lists(index.head, heads.new_digest(np.zeros(n_labels, np.int64)))
        for pairs, n_sweeps, share in former.parts:
            block = heads.one_block(heads.renumbered(pairs, former.rows, labels, n_labels))
            index.head = learn(index.head, block, heads.Training(rows, duties, n_sweeps, share, n_threads))

    def _hard_negatives(self, rows: Rows, options: SetOptions) -> np.ndarray:
        """Return each row's candidate labels, except common labels, padded with NONE: int32."""
        index, head = self.index, self.index.head
        effort = index.effort(options, training=True)
        if not index.is_sparse:
            return heads.best_of_others(heads.all_scorers(head), rows, effort.n_listed, head.common.labels)
        n_always = np.setdiff1d(heads.always_found(head.scorers), head.common.labels).size
        found = np.empty((rows.n_rows, n_always + effort.n_listed), np.int32)

        def find(first: int, stop: int) -> None:
            heads.list_hard_negatives(head.scorers, postings.Questions(rows, first, stop), effort, found)

        share_rows(find, rows.n_rows, threads_for(rows.n_rows, options))
        return found

    # Queries

    def labels_above(
        self, rows: Rows, lowest: float, options: SetOptions, n_listed: int = _LABELS_LISTED
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return rows, columns and scores of all labels above ``lowest``, in buffers for ``n_listed``."""
        index = self.index
        if index.n_labels == 0:
            return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32)
        scorers = index.all_scorers(rows.n_rows)
        if scorers is not None:
            row, labels, scores = heads.all_above(scorers, rows, lowest)
            return row, self.column_of_label[labels], scores
        effort, questions, head = index.effort(options), postings.all_of(rows), index.head.scorers

        def answer(span: tuple[int, int]) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
            found, ends = [], np.empty(rows.n_rows, np.int64)
            (first, stop), room = span, n_listed
            while first < stop:
                labels, scores = np.empty(room, np.int64), np.empty(room, np.float32)
                some = questions._replace(first=first, stop=stop)
                listing = heads.Listing(ends, labels, scores)
                done = heads.list_labels(head, some, effort, lowest, listing)
                if done > first:
                    of_rows = np.repeat(np.arange(first, done), np.diff(ends[first:done], prepend=0))
                    found.append((of_rows, labels[: ends[done - 1]], scores[: ends[done - 1]]))
                else:
                    room *= 2
                first = done
            return found

        n_threads = threads_for(rows.n_rows, options)
        parts = map_threads(answer, spans(rows.n_rows, -(-rows.n_rows // n_threads)), n_threads)
        row, labels, scores = (np.concatenate(part) for part in zip(*[f for part in parts for f in part], strict=True))
        return row, self.column_of_label[labels], scores

    def nearest_examples(self, rows: Rows, k: int, options: SetOptions) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of the ``k`` stored examples nearest to each row, and their cosines."""
        if self.examples is None:
            raise ValueError("examples are not stored: pass store_examples=True and fit again to find neighbors")
        ids, cosines = self.examples.search(as_matrix(rows), k, _RECALL, n_threads=threads_for(rows.n_rows, options))
        return ids, cosines.astype(np.float32)


def _padded(values: np.ndarray, size: int) -> np.ndarray:
    return np.pad(values, (0, size - values.size))


def _sums_of_squares(rows: Rows, weights: Factors) -> np.ndarray:
    """Return the weighted sum of the squares of each feature: float64."""
    squares, n = np.square(rows.values, dtype=np.float64), rows.n_features
    if weights is not None:
        squares *= np.repeat(weights, np.diff(rows.offsets))
    if rows.sparse:
        return np.bincount(rows.indices, squares, n)
    sums: np.ndarray = squares.reshape(-1, n).sum(axis=0)
    return sums


def _noting(blocks: Iterable[heads.LabelBlock], counted: list[heads.ExamplePairs]) -> Iterator[heads.LabelBlock]:
    """Yield each block, then append those of its pairs that the next pass needs to ``counted``."""
    for block in blocks:
        yield block
        counted.append(heads.pairs_that_count(block.pairs))


def most_common(n_of_label: np.ndarray, n_rows: float, former: np.ndarray) -> np.ndarray:
    """Return the common labels, the most frequent first, by numbers or weights of rows.

    Labels that have been common so far need only half as many rows, so that the index is seldom rebuilt.
    """
    if n_of_label.size <= _MAX_COMMON:
        return np.argsort(-n_of_label, kind="stable")
    frequent = np.flatnonzero(n_of_label >= _SHARE_OF_ROWS / 2 * n_rows)  # sorting only these is faster
    common = frequent[np.argsort(-n_of_label[frequent], kind="stable")[:_MAX_COMMON]]
    share = np.where(np.isin(common, former), _SHARE_OF_ROWS / 2, _SHARE_OF_ROWS)
    return common[n_of_label[common] >= share * n_rows]
