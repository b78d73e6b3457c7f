"""What classifiers forget: examples, and classes with all that is known of them.

The forest, the head and the examples without what goes are made aside, and put in place by one assignment. Labels are
numbered anew, by the slots of their memories, so nothing is left of one that has gone. That takes time and memory in
proportion to the classifier, however little goes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from .._engine import remove_ids, renumber
from .._forest.rows import Rows, rescaled
from .._forest.state import N_MEMORIES, NONE
from .._heads.examples import StoredExamples, all_examples, slots_of_examples, with_only_examples
from .._heads.label_scorers import Head, as_ready_as, count_in_means, with_only
from .._heads.stored_duals import StoredDuals, duals_of_slots
from .._validation import check_ids, check_known, label_array
from ..tree import ContextualMemoryTree
from ._base import changes_at_once
from ._class_answers import ClassAnswers
from ._labels import in_one_type
from ._weights import taken, totals, weighted

_EVICTED_AT_ONCE = 1 / 16  # of the maximum number of examples: to forget takes time in proportion to all


def forest_without(forest: ContextualMemoryTree, labels: np.ndarray) -> tuple[ContextualMemoryTree, np.ndarray]:
    """Return a copy of a forest without some labels, and the labels left by their new numbers."""
    fewer = copy.deepcopy(forest)
    remove_ids(fewer._forest, labels)
    return fewer, renumber(fewer._forest)


def positions_of(labels: Any, classes: np.ndarray) -> np.ndarray:
    """Return the positions of labels among all classes, sorted.

    Raises
    ------
    TypeError, ValueError
        If one is unknown, or none would be left.
    """
    labels = np.ravel(label_array("labels", labels))
    if labels.size == 0:
        return np.empty(0, np.int64)
    in_common, labels = in_one_type("labels", classes, labels)
    unknown = np.setdiff1d(labels, in_common)
    if unknown.size > 0:
        raise ValueError(f"labels must be known classes, and {unknown.tolist()[0]!r} is none of the {classes.size}")
    positions = np.searchsorted(in_common, np.unique(labels))
    if positions.size == classes.size:
        raise ValueError("labels must not be all classes: call fit to learn others")
    return positions


def check_example_ids(ids: Any, n_rows: int, examples: StoredExamples | None, *, stored: bool) -> np.ndarray | None:
    """Return ids for examples beside those that are there, if there are any; None if no ids are given.

    Raises
    ------
    TypeError, ValueError
        If they are not distinct integers from 0 on, one for each row, or one is taken already.
    """
    if ids is None:
        return None
    if not stored:
        raise ValueError("example_ids are of stored examples: pass store_examples=True, or leave them out")
    ids = check_ids(ids)
    if ids.size != n_rows:
        raise ValueError(f"example_ids must be one for each of the {n_rows} rows, not {ids.size}")
    if ids.size > 0 and (ids.min() < 0 or ids.max() == np.iinfo(np.int64).max):
        raise ValueError(f"example_ids must be from 0 to {np.iinfo(np.int64).max - 1}")
    known = np.empty(0, np.int64) if examples is None else ids[slots_of_examples(examples, ids) != NONE]
    if known.size > 0:
        raise ValueError(f"example_ids must be new: {known[0]} is stored already; remove it first")
    return ids


def known_slots(examples: StoredExamples, ids: Any) -> np.ndarray:
    """Return the slots of stored examples, sorted.

    Raises
    ------
    KeyError
        If one is not stored.
    TypeError, ValueError
        If ``ids`` are not distinct integers.
    """
    ids = check_ids(ids)
    slots = slots_of_examples(examples, ids)
    check_known(ids, slots)
    return np.sort(slots)


def forget(classifier: Any, classes: np.ndarray, slots: np.ndarray) -> None:
    """Have a classifier forget classes, by their positions, and examples, by their slots."""
    examples: StoredExamples | None = classifier.examples_
    former: Head = classifier.head_
    labels = classifier._label_of_class[classes]
    forest, kept = forest_without(classifier.forest_, labels[labels != NONE])
    number = np.full(classifier._class_of_label.size, NONE, np.int64)
    number[kept] = np.arange(kept.size)
    n_of_label: np.ndarray = classifier._n_of_label[kept]
    weight_of_label = taken(classifier._weight_of_label, kept)
    weights: np.ndarray | None = classifier._example_weights
    duals: StoredDuals | None = classifier._duals
    unlearn: Callable[[Head], Head] = _no_change
    if examples is not None:
        rows, label_of = all_examples(examples)
        stays = number[label_of] != NONE
        stays[slots] = False
        gone = slots[number[label_of[slots]] != NONE]
        of_gone = number[label_of[gone]]
        n_of_label = n_of_label - np.bincount(of_gone, minlength=kept.size)
        if classifier.loss == "mira" and gone.size > 0:
            unlearn = _subtraction(weighted(rescaled(rows.take(gone)), taken(weights, gone)), of_gone)
        stays = np.flatnonzero(stays)
        if weight_of_label is not None:  # subtracting large weights would leave nothing of small ones
            weight_of_label = totals(number[label_of[stays]], taken(weights, stays), kept.size)
        weights = taken(weights, stays)
        duals = None if duals is None else duals_of_slots(duals, stays, number)
        examples = with_only_examples(examples, stays, number[label_of[stays]], kept.size)
    left = np.delete(np.arange(classifier.classes_.size), classes)
    position = np.full(classifier.classes_.size, NONE, np.int64)
    position[left] = np.arange(left.size)
    class_of_label = position[classifier._class_of_label[kept]]
    label_of_class = np.full(left.size, NONE, np.int64)
    label_of_class[class_of_label] = np.arange(kept.size)
    # What goes counts like what comes: with a number of either all is learned anew.
    n_gone = int(classifier._n_of_label.sum() - n_of_label.sum())
    vars(classifier).update(
        classes_=classifier.classes_[left],
        forest_=forest,
        head_=as_ready_as(unlearn(with_only(former, kept)), former, classifier._lightest_listed),
        examples_=examples,
        _n_of_label=n_of_label,
        _weight_of_label=weight_of_label,
        _example_weights=weights,
        _duals=duals,
        _n_measured=min(classifier._n_measured, int(n_of_label.sum())),
        _n_relearned=max(1, classifier._n_relearned - 2 * n_gone) if classifier._n_relearned > 0 else 0,
        _label_of_class=label_of_class,
        _class_of_label=class_of_label,
    )


class Forgetting(ClassAnswers):
    """The methods of a classifier by which it forgets."""

    max_examples: int | None
    _n_of_label: np.ndarray

    def _learn_again_if_due(self) -> bool:
        raise NotImplementedError

    def _n_stored(self) -> int:
        """Return how many examples are stored."""
        return 0 if self.examples_ is None else int(self.examples_.keys.totals[N_MEMORIES])

    @changes_at_once
    def remove(self, ids: Any) -> Self:
        """Forget examples, and classes that have no others.

        The examples leave the means that scorers start from (``loss="mira"``). What scorers and routers have learned
        from them otherwise fades when all examples left are learned again: once a quarter of them has come or gone.
        Takes time in proportion to the whole classifier, so remove many at once.

        Parameters
        ----------
        ids : int or array-like of int, shape (n,)
            Ids of stored examples, each named once: ``example_ids`` if these were given, otherwise positions among all
            examples ever given to ``fit`` and ``partial_fit``.

        Returns
        -------
        self

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before the first example.
        KeyError
            If there is no such example; nothing has been removed then.
        TypeError, ValueError
            If ``ids`` are not distinct integers, no example would be left, or examples are not stored.

        Examples
        --------
        >>> import numpy as np
        >>> from cmt_numba import CMTClassifier
        >>> classifier = CMTClassifier(random_state=0).fit(np.eye(4), ["a", "a", "b", "c"])
        >>> classifier.remove([1, 2]).classes_.tolist()
        ['a', 'c']
        """
        check_is_fitted(self, "forest_")
        examples = self._stored()
        slots = known_slots(examples, ids)
        n_left = self._n_of_label - np.bincount(examples.label_of[slots], minlength=self._n_of_label.size)
        if not n_left.any():
            raise ValueError("ids must not be all examples: call fit to learn others")
        forget(self, np.sort(self._class_of_label[n_left == 0]), slots)
        self._learn_again_if_due()
        return self

    @changes_at_once
    def remove_classes(self, labels: Any) -> Self:
        """Forget classes, with their examples, scorers and memories: they are predicted no more.

        What the scorers of other classes have learned against them fades as :meth:`remove` says. Takes time in
        proportion to the whole classifier, so remove many at once.

        Parameters
        ----------
        labels : array-like, shape (n,)
            Some of ``classes_``, but not all.

        Returns
        -------
        self

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before the first example.
        TypeError, ValueError
            If one is unknown, or no class would be left that has examples; nothing has been removed then.

        Examples
        --------
        >>> import numpy as np
        >>> from cmt_numba import CMTClassifier
        >>> classifier = CMTClassifier(random_state=0).fit(np.eye(3), ["a", "b", "c"])
        >>> classifier.remove_classes(["b"]).predict(np.eye(3)[[0, 2]]).tolist()
        ['a', 'c']
        """
        check_is_fitted(self, "forest_")
        positions = positions_of(labels, self.classes_)
        if positions.size == 0:
            return self
        if np.isin(self._class_of_label, positions).all():
            raise ValueError("labels must not be all classes with examples: call fit to learn others")
        forget(self, positions, np.empty(0, np.int64))
        self._learn_again_if_due()
        return self

    def _evict(self) -> None:
        """Forget the oldest examples if there are more than there may be."""
        n_stored = self._n_stored()
        if self.max_examples is None or n_stored <= self.max_examples:
            return
        examples = self._stored()
        n = min(n_stored - self.max_examples + int(_EVICTED_AT_ONCE * self.max_examples), n_stored - 1)
        oldest = np.arange(n)  # slots are in the order in which examples came
        n_left = self._n_of_label - np.bincount(examples.label_of[oldest], minlength=self._n_of_label.size)
        forget(self, np.sort(self._class_of_label[n_left == 0]), oldest)
        self._learn_again_if_due()


def _no_change(head: Head) -> Head:
    return head


def _subtraction(rows: Rows, labels: np.ndarray) -> Callable[[Head], Head]:
    """Return what takes rows out of the means that the scorers of their labels start from."""
    return lambda head: count_in_means(head, rows._replace(values=-rows.values), labels)
