"""Model of ``CMTClassifier(method="tree")``, the paper's classifier: examples are the memories of a tree.

A row gets the class of its best memory. The tree learns from rewards: a memory earns 1 for a row of its class.
"""

from __future__ import annotations

import copy
from typing import Any, Protocol

import numpy as np
from sklearn.utils import check_random_state

from .. import persistence as files
from .._engine import query_forest
from .._kernels import NONE, ShownHits, all_within, require
from ..rewards import LabelEquality
from ..tree import ContextualMemoryTree, forest_of, options_of
from ._fields import TREE
from ._labels import ClassPlaces

_PASSES = 2  # default number of passes of rewards
_REWARDED = 10  # number of memories that are rewarded for each example
_EPSILON = 0.1  # fraction of examples that explore


class TreeOptions(Protocol):
    """Parameters of a classifier that the model depends on."""

    tree: ContextualMemoryTree | None
    n_head_passes: int | None
    random_state: Any
    verbose: bool


def check_tree(tree: ContextualMemoryTree | None) -> ContextualMemoryTree | None:
    """Check and return a tree whose options are used, or None for the default options."""
    if tree is not None and not isinstance(tree, ContextualMemoryTree):
        raise TypeError(f"tree must be a ContextualMemoryTree or None, got {tree!r:.50}")
    if tree is not None and tree.n_memories > 0:
        raise ValueError(f"tree must be empty, because only its options are used, got {tree.n_memories} memories")
    return tree


class TreeModel(files.WithFields):
    """Classes, and a tree whose memories are examples. A new model is empty."""

    FIELDS = files.FieldTable(
        tree=TREE,
        classes=files.LabelsField(),  # all classes, sorted
        # position in ``classes`` of the class of each id; NONE for an example of a removed class
        class_of_id=files.ArrayField(np.int64),
    )

    def __init__(self, options: TreeOptions) -> None:
        seed = check_random_state(options.random_state).randint(2**31)
        given = {} if options.tree is None else options_of(options.tree)
        self.tree = ContextualMemoryTree(**given, random_state=seed)
        self.classes: np.ndarray = np.empty(0, np.int64)
        self.class_of_id: np.ndarray = np.empty(0, np.int64)

    def copied(self) -> TreeModel:
        other = copy.copy(self)
        other.tree = self.tree._twin()
        return other

    def roll_back(self) -> None:
        """Do nothing: the tree undoes a failed insert."""

    def prepare_like(self, _former: TreeModel, _options: TreeOptions) -> None:
        """Do nothing: queries need no caches."""

    def has_much_due(self, _n_rows: int, _options: TreeOptions) -> bool:
        """Return False: learning rows never entails much additional work."""
        return False

    def learn(self, X: Any, of_rows: np.ndarray, places: ClassPlaces, options: TreeOptions, *, online: bool) -> None:
        """Learn examples of the classes ``places.of_batch[of_rows]``.

        If ``online``, query with the examples, update with the rewards, and then insert the examples. Otherwise insert
        them, and then query and update in passes (section 4.2 of the paper).
        """
        y, verbose = places.of_batch[of_rows], options.verbose
        self.class_of_id = self._moved(np.searchsorted(places.added, np.arange(self.classes.size), side="right"))
        self.classes = places.classes
        if online:
            self._learn_rewards(X, y, None, 1, verbose)
        ids = self.tree.insert(X, progress=verbose)
        self.class_of_id = np.concatenate([self.class_of_id, y])
        n_passes = _PASSES if options.n_head_passes is None else options.n_head_passes
        if n_passes > 0 and not online:
            own = np.where(np.bincount(y)[y] > 1, ids, NONE)  # the only example of a class may find itself
            self._learn_rewards(X, y, own, n_passes, verbose)

    def _learn_rewards(self, X: Any, y: np.ndarray, own_ids: Any, n_passes: int, verbose: bool) -> None:
        self.tree.learn(
            X,
            LabelEquality(self.class_of_id, y),
            own_ids=own_ids,
            k=_REWARDED,
            epsilon=_EPSILON,
            key_learning_rate=0.0,
            n_passes=n_passes,
            progress=verbose,
        )

    def _moved(self, shifts: np.ndarray) -> np.ndarray:
        """Return ``class_of_id`` after the position of each class has grown by ``shifts``."""
        if shifts.size == 0:
            return self.class_of_id
        return np.where(self.class_of_id == NONE, NONE, self.class_of_id + shifts[self.class_of_id])

    # Forgetting

    def without(self, ids: np.ndarray, classes: np.ndarray | None = None) -> TreeModel:
        """Return a model without some examples and classes, by default those that lose all their examples."""
        other = self.copied()
        other.tree.remove(ids)
        left = np.unique(self.class_of_id[other.tree.ids])
        if left.size == 0:
            raise ValueError("all examples would be removed: call fit to replace them")
        if classes is None:
            classes = np.setdiff1d(self.class_of_id[ids], left)
        place = np.full(self.classes.size, NONE)
        kept = np.delete(np.arange(self.classes.size), classes)
        place[kept] = np.arange(kept.size)
        other.classes = self.classes[kept]
        other.class_of_id = np.where(self.class_of_id == NONE, NONE, place[self.class_of_id])
        return other

    def ids_of(self, classes: np.ndarray) -> np.ndarray:
        """Return the ids of all examples of some classes."""
        ids = self.tree.ids
        return ids[np.isin(self.class_of_id[ids], classes)]

    # Queries

    def nearest(self, X: Any, k: int) -> ShownHits:
        """Return the best memories of each row, without notifying the eviction policy."""
        forest = forest_of(self.tree)
        return query_forest(forest, forest.check_rows(X), k)

    def best_class(self, X: Any) -> np.ndarray:
        """Return the class of the best memory of each row."""
        return self.classes[self.class_of_id[self.nearest(X, 1).ids[:, 0]]]

    def class_scores(self, X: Any, k: int) -> np.ndarray:
        """Return the highest score of a memory of each class among the best ``k``, or minus infinity if none is."""
        hits = self.nearest(X, k)
        row, rank = np.nonzero(hits.ids != NONE)
        scores = np.full((len(hits.ids), self.classes.size), -np.inf)
        np.maximum.at(scores, (row, self.class_of_id[hits.ids[row, rank]]), hits.scores[row, rank])
        return scores

    def check(self, d: int, *, thorough: bool) -> None:
        """Raise InvariantError if the tree, the classes and rows of ``d`` features do not fit together."""
        require(self.tree.n_features == d, "the memories must have the same number of features as the examples")
        require(forest_of(self.tree).next_id == self.class_of_id.size, "every memory must have a class")
        if thorough:
            self.tree.check_invariants()
            require(bool(np.all(self.classes[:-1] < self.classes[1:])), "classes must be sorted")
            ids, n_classes = self.tree.ids, self.classes.size
            require(all_within(self.class_of_id, int(NONE), n_classes - 1), "an example has an unknown class")
            require(all_within(self.class_of_id[ids], 0, n_classes - 1), "an example has no class")
