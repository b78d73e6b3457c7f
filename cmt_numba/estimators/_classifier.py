"""The classifier: one class for each example."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.utils.validation import validate_data

from .._forest import N_MEMORIES, NEXT_ID, NONE, Rows, rescaled
from .._heads import (
    HEAD_LOSSES,
    N_COMPETITORS,
    CandidateSearch,
    ExampleParameters,
    Head,
    HeadLesson,
    LabelAnswers,
    Questions,
    StoredDuals,
    all_examples,
    all_of,
    all_slots,
    append_examples,
    count_in_means,
    give_ids,
    lacks_gaps,
    learn_labels,
    measure_gaps,
    new_duals,
    new_examples,
    new_shortlists,
    no_stored_duals,
    resume,
    with_duals,
    with_room_for_examples,
)
from .._validation import MOST_WANTED, Constraint, Integer, OneOf, Optional, Real, check_rows, sound, unmasked
from ._base import changes_at_once
from ._forgetting import Forgetting, check_example_ids
from ._input import DTYPES, warn_of_scales
from ._label_forest import MOST_TRAINED_ALONE_DENSE, LabelForest, routed
from ._labels import are_among, check_classes, check_expected, distinct_classes, in_one_type
from ._relearning import PASSES_ONLINE, former_head_on_failure, head_of_means, is_due, replayed
from ._votes import VOTES
from ._weights import Batch, check_sample_weight, count, joined, present, taken, weighted

METHODS = ("head", "neighbors")


class ClassPlaces(NamedTuple):
    """Where the classes of a batch are among all."""

    classes: np.ndarray  # all there are from now on, sorted
    added: np.ndarray  # int64: where those not known before go among those that are, as :func:`numpy.insert` has it
    of_batch: np.ndarray  # int64: where the distinct classes of the batch are among all, rising


class CMTClassifier(Forgetting):
    """A classifier over very many classes: a forest of Contextual Memory Trees with a one-against-some head.

    The forest's memories are the classes, each under the mean of its first examples. Routers are taught the way to
    each example's class, so that a new example reaches, in time logarithmic in the number of classes, a few leaves
    with the candidate classes; a linear scorer for each of these decides. Both learn online:
    ``partial_fit`` takes new examples, and new classes, at any time.

    Up to 8,192 classes of dense examples, and 1,024 of sparse ones if they have few features, are all scored by matrix
    products: that errs least, and for batches of rows it is faster than any search. More classes of dense examples are
    kept in lists of similar ones, and a row is scored against the lists nearest to it. Trees are searched for sparse
    examples of more classes, for neighbors, and whenever ``n_probes`` or ``n_candidates`` is set.

    Parameters
    ----------
    n_trees : int, optional
        Trees of the forest. More trees find the right class more often and take longer. By default 2 for sparse
        examples, whose classes are also found by their rare features, 8 for dense ones, 12 where the classes have 16
        dense examples or more on average, and 1 for more than 50,000 classes of one dense example each, for which it is
        not searched.
    n_probes : int, optional
        Leaves searched in all trees together. Where trees are searched, by default one for each tree with sparse
        examples, three for two trees with dense ones, and as many again for each time that there are twice as many
        classes as a thousand. Once ``fit`` has listed all classes of sparse examples in the head's index, trees are by
        default searched only for rows that have no feature listed, or after examples that are not listed yet.
    n_candidates : int, optional
        Maximum number of candidates: classes that are scored for a row, with all of their weights. Fewer are faster and
        less accurate. Where trees are searched, by default those of the leaves reached, at most a fifth of all and less
        where there are thousands, and for sparse rows the best 16, or 1 in 64, of as many that are met in the lists of
        the head's index, which has the classes by feature. Where this index finds the best of all by itself, those that
        may be the best. It can be set at any time, for learning does not depend on it.
    n_router_passes : int, default 2
        Number of passes over the examples that teach the routers, at most 10,000. With 0 the trees are unsupervised,
        as they are where ``fit`` gets one sparse example of each class.
    n_head_passes : int, default 5
        Number of passes over the examples that train the head, at most 10,000. With 0 a class is scored by its mean
        example. So it is, without any pass, where more than 8,192 classes have one sparse example each.
    loss : {"softmax", "logistic", "mira"}, default "mira"
        What the head learns by. "mira" is the multiclass support vector machine of Crammer and Singer (2001) with
        squared slack, solved in the dual one example at a time (Keerthi et al., 2008). The other losses are minimised
        by AdaGrad (Duchi et al., 2011).
    aggressiveness : float, default 1.0
        Of "mira": a factor of how hard the margin is (``C``). The larger, the more an example that falls short of it
        counts. A class of few examples starts from their mean and stays close to it; from 50 examples per class on
        the mean counts for less, and the margin is softer.
    learning_rate : float, default 5.0
        AdaGrad step of the other losses, relative to the sum of an example's absolute values.
    method : {"head", "neighbors"}, default "head"
        Whether ``predict`` answers with the head's best class, or lets the nearest memories vote.
    n_neighbors : int, default 5
        Number of memories that vote, at most 1,000,000.
    weights : {"uniform", "score", "cosine", "gaussian", "laplacian"}, default "uniform"
        Whether each memory has one vote, or as much as its score, which is learned, or as a similarity of its key and
        the row, both of unit length: "gaussian" is ``exp(-d**2 / (2 * h**2))`` of the Euclidean distance ``d``, and
        "laplacian" ``exp(-d / h)`` of the city block distance; ``h`` is the median of the distances of the memories
        that vote for the row. Memories are found by their scores in any case.
    leaf_multiplier : float, optional
        ``c``: a leaf of a tree of ``n`` classes holds at most ``c * log2(n)``. By default 2 for dense examples and 1
        for sparse ones, less where ``fit`` sees few classes.
    alpha : float in (0, 1], default 0.9
        How strongly routers keep the two sides of a node equal in number while classes are inserted.
    n_reroutes : int, default 5
        How many classes each tree reroutes after each class inserted: at most 10,000. None where ``fit`` gets one
        sparse example of each class.
    store_examples : bool, default True
        Whether to keep all examples. ``kneighbors`` and ``method="neighbors"`` need them, and ``partial_fit`` learns
        some of them again beside new ones, and all once there are a quarter more: so it ends near ``fit`` on all, and
        classes without new examples do not fade. Without them memory grows with the classes and their features, not
        with the examples, and a stream may be of any length. What counts is the value when the first are learned.
    max_examples : int, optional
        Maximum number of stored examples. When there would be more, the oldest are forgotten as by :meth:`remove`, and
        with them classes that have no others: a sixteenth of the maximum at once, so that each costs little time.
    n_jobs : int, optional
        Threads; by default one, with -1 as many as numba uses. Answers do not depend on it. Matrix products run on as
        many threads as NumPy's linear algebra library is set to.
    random_state : int, numpy.random.RandomState or None
        Seed.
    verbose : bool, default False
        Show progress bars while it learns.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes known, sorted.
    n_features_in_ : int
        Width of the examples.
    forest_ : ContextualMemoryTree
        The trees over the classes.
    """

    _kind = "CMTClassifier"  # of what is in a file
    _trees_add_to_index = False
    _n_relearned = 0  # examples there were when all were learned last; files of earlier versions do not say
    _weight_of_label: np.ndarray | None = None  # float64; None as long as all examples weigh 1
    _example_weights: np.ndarray | None = None  # float32, by slots of stored examples, and some room
    _duals: StoredDuals | None = None  # of stored examples; None as long as none have been learned with MIRA
    _constraints: ClassVar[dict[str, Constraint]] = {
        **LabelForest._constraints,
        "loss": OneOf(tuple(HEAD_LOSSES)),
        "learning_rate": Real(0.0, 1e6, above=True),
        "method": OneOf(METHODS),
        "n_neighbors": Integer(1, MOST_WANTED),
        "weights": OneOf(VOTES),
        "max_examples": Optional(Integer(1)),
    }

    def __init__(
        self,
        n_trees: int | None = None,
        n_probes: int | None = None,
        n_candidates: int | None = None,
        *,
        n_router_passes: int = 2,
        n_head_passes: int = 5,
        loss: str = "mira",
        aggressiveness: float = 1.0,
        learning_rate: float = 5.0,
        method: str = "head",
        n_neighbors: int = 5,
        weights: str = "uniform",
        leaf_multiplier: float | None = None,
        alpha: float = 0.9,
        n_reroutes: int = 5,
        store_examples: bool = True,
        max_examples: int | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.n_trees = n_trees
        self.n_probes = n_probes
        self.n_candidates = n_candidates
        self.n_router_passes = n_router_passes
        self.n_head_passes = n_head_passes
        self.aggressiveness = aggressiveness
        self.leaf_multiplier = leaf_multiplier
        self.alpha = alpha
        self.n_reroutes = n_reroutes
        self.store_examples = store_examples
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.loss = loss
        self.learning_rate = learning_rate
        self.method = method
        self.n_neighbors = n_neighbors
        self.weights = weights
        self.max_examples = max_examples

    # Learning

    @changes_at_once
    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, example_ids: Any = None) -> CMTClassifier:
        """Learn from examples, forgetting earlier ones.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, n_features)
            Examples.
        y : array-like, shape (n,)
            Their classes: numbers, strings, or of any other type of NumPy's that sorts.
        sample_weight : array-like, shape (n,), optional
            How much each example counts, from 0 to a million; by default 1. A weight of 2 counts like the same row
            twice, in the means and as a factor of ``C``; one of 0 like no row. Positive weights below 1e-9 count as
            1e-9. Routers do not depend on weights.
        example_ids : array-like of int, shape (n,), optional
            Numbers of your own for the examples, from 0 on, each given once: :meth:`kneighbors` and :meth:`explain`
            return them, and :meth:`remove` takes them. By default the position among all examples ever given.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If an argument or a parameter cannot be used.
        """
        return self._begin_anew(lambda anew: anew._fit(X, y, None, sample_weight, example_ids, afresh=True))

    def _fit(self, X: Any, y: Any, classes: Any, sample_weight: Any, example_ids: Any, *, afresh: bool) -> None:
        """Learn from the first examples."""
        y, expected = check_classes(y, classes)
        X, y = validate_data(self, sound(X), unmasked("y", y), accept_sparse="csr", dtype=DTYPES)
        self._check_all_parameters()
        rows = check_rows(X)
        warn_of_scales(X)
        weights = check_sample_weight(sample_weight, rows.n_rows)
        ids = check_example_ids(example_ids, rows.n_rows, None, stored=self.store_examples)
        batch = present(Batch(rows, np.asarray(y), ids, weights))
        found, of_rows = distinct_classes(batch.y)
        if expected is None:
            expected = found
        else:
            expected, found = in_one_type("y", expected, found)
            expected = np.unique(expected)
            check_expected(found, expected)
        self._start(batch.rows, expected)
        places = ClassPlaces(expected, np.empty(0, np.int64), np.searchsorted(expected, found))
        self._learn(batch._replace(y=of_rows), places, afresh=afresh)
        self._evict()

    @changes_at_once
    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None, *, example_ids: Any = None
    ) -> CMTClassifier:
        """Learn from further examples, of known classes or new ones.

        Parameters
        ----------
        X : array-like or sparse matrix, shape (n, n_features)
            Examples.
        y : array-like, shape (n,)
            Their classes, of a type that goes with those before: a label stays what it is.
        classes : array-like, optional
            Classes that may come. Not needed, because new ones may come at any time.
        sample_weight : array-like, shape (n,), optional
            As for :meth:`fit`.
        example_ids : array-like of int, shape (n,), optional
            Numbers of your own for the examples, from 0 on, of which none is stored: :meth:`kneighbors` and
            :meth:`explain` return them, and :meth:`remove` takes them. By default they go on from the largest so far.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If an argument or a parameter cannot be used; nothing has changed then.
        MemoryError
            If memory runs out. The classifier works on, but may not have learned all rows.
        """
        if not hasattr(self, "forest_"):
            return self._begin_anew(lambda anew: anew._fit(X, y, classes, sample_weight, example_ids, afresh=False))
        y, expected = check_classes(y, classes)
        X, y = validate_data(self, sound(X), unmasked("y", y), accept_sparse="csr", dtype=DTYPES, reset=False)
        self._check_parameters()
        rows = check_rows(X, sparse=self.head_.parameters.sparse)
        weights = check_sample_weight(sample_weight, rows.n_rows)
        ids = check_example_ids(example_ids, rows.n_rows, self.examples_, stored=self.examples_ is not None)
        batch = present(Batch(rows, np.asarray(y), ids, weights))
        found, of_rows = distinct_classes(batch.y)
        if expected is None:
            known, found = in_one_type("y", self.classes_, found)
            expected = found
        else:
            known, found, expected = in_one_type("y", self.classes_, found, expected)
            expected = np.unique(expected)
            check_expected(found, expected)
        new = expected[~are_among(known, expected)]
        added = np.searchsorted(known, new)
        classes = np.insert(known, added, new) if new.size > 0 else known
        places = ClassPlaces(classes, added, np.searchsorted(classes, found))
        self._learn(batch._replace(y=of_rows), places, afresh=False)
        self._evict()
        return self

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.method == "neighbors" and not self.store_examples:
            raise ValueError("method='neighbors' needs stored examples: pass store_examples=True, or method='head'")
        if self.max_examples is not None and not self.store_examples:
            raise ValueError("max_examples is of stored examples: pass store_examples=True, or max_examples=None")

    def _start(self, rows: Rows, classes: np.ndarray) -> None:
        self._start_forest(rows, classes.size, HEAD_LOSSES[self.loss], float(self.learning_rate))
        parameters = ExampleParameters(n_features=rows.n_features, sparse=rows.sparse)
        self.examples_ = new_examples(parameters) if self.store_examples else None
        self.classes_ = classes
        self._calibration = np.full(1, np.nan)
        self._n_of_label = np.empty(0, np.int64)
        self._weight_of_label = self._example_weights = self._duals = None
        self._n_measured = self._n_relearned = 0  # examples there were when half of the gaps were last forgotten
        self._label_of_class = np.full(classes.size, NONE, np.int64)
        self._class_of_label = np.empty(0, np.int64)

    def _learn(self, batch: Batch, places: ClassPlaces, *, afresh: bool) -> None:
        """Make classes known and learn examples, of which ``batch.y`` says where their classes are in the batch's."""
        rows, _, ids, weights = batch
        # Sparse classes of one example each are found by their features, and very many dense ones by lists of similar
        # scorers: routers have nothing to learn for them.
        many = rows.sparse or rows.n_rows > MOST_TRAINED_ALONE_DENSE
        listed = afresh and many and places.of_batch.size == rows.n_rows
        labels, known = self._make_known(batch, places, 0 if listed else None)
        n_rows, n_passes, slots = rows.n_rows, self.n_head_passes, None
        if self.examples_ is not None:
            self.examples_ = with_room_for_examples(self.examples_, rows, self.forest_.n_memories)
            n_stored, next_id = (int(self.examples_.keys.totals[total]) for total in (N_MEMORIES, NEXT_ID))
            slots = np.arange(n_stored, n_stored + n_rows)
            self._example_weights = joined(self._example_weights, n_stored, weights, n_rows)
            append_examples(self.examples_.lists, rows, labels)
            if ids is not None:
                give_ids(self.examples_.lists, ids, max(next_id, int(ids.max(initial=-1)) + 1))
            if self._learn_again_if_due():
                return
        self._begin_training()
        if self.loss == "mira" and known.any():
            counted = weighted(rescaled(rows.take(known)), taken(weights, known))
            self.head_ = count_in_means(self.head_, counted, labels[known])
        if not listed:
            self._teach_routers(routed(rows), labels, afresh=afresh)
        if self.examples_ is not None and n_passes > 0 and self._n_relearned > 0:
            competing = self._competing(rows, labels)
            rows, labels, slots = replayed(self.examples_, n_rows, competing, self._orders)
            n_passes, weights = min(n_passes, PASSES_ONLINE), taken(self._example_weights, slots)
        if n_passes > 0:
            self._train_head(all_of(routed(rows), rows), labels, n_passes, weights, slots)
        self._end_training(n_rows)
        self._n_relearned = self._n_relearned or n_rows

    def _learn_again_if_due(self) -> bool:
        """Learn all examples stored, starting from their means, if many have come or gone; return whether it was so.

        If that fails the head is what it was.
        """
        if self.examples_ is None or self.n_head_passes == 0 or not is_due(self._n_stored(), self._n_relearned):
            return False
        rows, labels = all_examples(self.examples_)
        slots = all_slots(self.examples_)
        with former_head_on_failure(self):
            self._duals = None
            self._train_from_means(rows, labels, taken(self._example_weights, slots), slots)
        self._n_relearned = rows.n_rows
        self._calibration = np.full(1, np.nan)
        return True

    def _has_much_due(self, n_rows: int) -> bool:
        n_examples = self._n_stored() + n_rows
        learns_again = self.n_head_passes > 0 and self.examples_ is not None and is_due(n_examples, self._n_relearned)
        evicts = self.max_examples is not None and n_examples > self.max_examples
        return learns_again or evicts or super()._has_much_due(n_rows)

    def _train_from_means(
        self, rows: Rows, labels: np.ndarray, weights: np.ndarray | None, slots: np.ndarray | None = None
    ) -> None:
        """Start the head again from the means of these examples, and train it on them, which are all there are.

        If their ``slots`` are given they are the classifier's own, and routers are taught as well.
        """
        self.head_ = head_of_means(self.head_, rows, labels, weights)
        self._begin_training()
        if slots is not None:
            self._teach_routers(routed(rows), labels, afresh=False)
        if self.n_head_passes > 0:
            self._train_head(all_of(routed(rows), rows), labels, self.n_head_passes, weights, slots)
        self._end_training(rows.n_rows)

    def _make_known(self, batch: Batch, places: ClassPlaces, n_reroutes: int | None) -> tuple[np.ndarray, np.ndarray]:
        """Make classes known; return the label of each row, and which rows had one.

        Classes of rows that have no memory yet are inserted in random order, each under its mean example.
        """
        (rows, y, _, weights), (classes, added, found) = batch, places
        label_of_class, class_of_label = self._label_of_class, self._class_of_label
        if added.size > 0:
            label_of_class = np.insert(label_of_class, added, NONE)
            class_of_label = class_of_label + np.searchsorted(added, class_of_label, side="right")
        is_new, head = label_of_class[found] == NONE, self.head_
        new = found[is_new]
        if new.size > 0:
            self._orders.shuffle(new)
            place = np.full(found.size, NONE, np.int64)
            place[np.searchsorted(found, new)] = np.arange(new.size)
            of_new = np.flatnonzero(place[y] != NONE)
            head, inserted = self._insert_labels(rows, place[y[of_new]], of_new, new.size, n_reroutes, weights)
            label_of_class = label_of_class.copy()
            label_of_class[new] = inserted
            class_of_label = np.concatenate([class_of_label, new])
        labels, known = label_of_class[found][y], ~is_new[y]
        n_of_label, weight_of_label = self._n_of_label, self._weight_of_label
        if weight_of_label is None and weights is not None:
            weight_of_label = n_of_label.astype(np.float64)
        if new.size > 0:
            n_of_label = np.pad(n_of_label, (0, new.size))
            weight_of_label = None if weight_of_label is None else np.pad(weight_of_label, (0, new.size))
        count(labels, weights, n_of_label, weight_of_label)
        self.__dict__.update(
            classes_=classes,
            head_=head,
            _label_of_class=label_of_class,
            _class_of_label=class_of_label,
            _n_of_label=n_of_label,
            _weight_of_label=weight_of_label,
        )
        return labels, known

    def _recover(self) -> None:
        self._recover_labels(self._class_of_label.size)

    def _competing(self, rows: Rows, labels: np.ndarray) -> np.ndarray:
        """Return the labels that compete for these rows, which have these labels: one as often as for rows."""
        shape = rows.n_rows, N_COMPETITORS
        best, scores = np.full(shape, NONE, np.int64), np.full(shape, -np.inf, np.float32)
        self._search_labels(rows, LabelAnswers(best, scores, *np.zeros((2, rows.n_rows), np.int64)))
        return best[(best != NONE) & (best != labels[:, None])]

    def _train_head(
        self,
        questions: Questions,
        labels: np.ndarray,
        n_passes: int,
        weights: np.ndarray | None,
        slots: np.ndarray | None,
    ) -> None:
        """Train the head in passes over rows; ``slots`` are those of the stored examples that they are, if they are."""
        state, effort, n_rows = self.forest_._forest.allocated(), self._effort(training=True), labels.size
        n_examples = int(self._n_of_label.sum()) if slots is None else self._n_stored()
        if n_examples > 2 * self._n_measured:
            self.head_.gaps[:] *= 0.5  # which become smaller as classes get further examples: make room for new ones
            self._n_measured = n_examples
        of_labels = self._n_of_label if self._weight_of_label is None else self._weight_of_label
        duals = new_duals(self.aggressiveness, of_labels[labels], weights)
        if slots is not None and self._duals is not None:
            resume(self._duals, slots, duals)
        shortlists = new_shortlists(labels)
        lesson = HeadLesson(questions, self._orders.permutation(n_rows), labels, shortlists, True)
        search = CandidateSearch(state.trees, state.models, effort, self.forest_._forest.threads_for(n_rows))
        if lacks_gaps(self.head_):
            measure_gaps(search, self.head_, lesson, duals, float(of_labels.mean()))
        if self._is_untrained():
            return

        def learn(n_pass: int, order: np.ndarray) -> Head:
            return learn_labels(
                search, self.head_, HeadLesson(questions, order, labels, shortlists, n_pass == 0), duals
            )

        self._train_in_passes(n_rows, n_passes, duals.settled, learn)
        if slots is not None and self.loss == "mira":
            self._duals = with_duals(self._duals or no_stored_duals(), slots, duals)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.poor_score = True
        return tags
