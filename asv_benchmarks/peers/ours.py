"""The entrants of this project: trees alone, a tree as the paper teaches it, and the classifier."""

from __future__ import annotations

from typing import Any

import numpy as np

from .contract import Options, Peer, Shape
from .vowpal import SHARED_OPTIONS, VowpalCMT

CHEAPER: list[Options] = [
    {"n_trees": 1, "n_probes": 1, "n_router_passes": 1, "n_head_passes": 0},
    {"n_trees": 2, "n_probes": 2, "n_router_passes": 1, "n_head_passes": 0},
    {"n_trees": 4, "n_probes": 4, "n_router_passes": 1, "n_head_passes": 0},
    {"n_trees": 4, "n_probes": 4, "n_router_passes": 1, "n_head_passes": 1},
    {"n_trees": 8, "n_probes": 8, "n_router_passes": 1, "n_head_passes": 1},
    {},
]
"""Settings of the classifier, the cheapest first, its defaults last."""

FAST: Options = {"n_reroutes": 1, "sure_margin": 0.25}
"""Options of trees that are grown and asked faster than by default. They find less, which more leaves make good."""

FEW_CANDIDATES = (4, 8, 20, 100, 400, 1600)
"""How many classes the classifier looks at, at most, beside its own choice: sparse rows find many in its index."""

LATER_PASSES = ("learn", "teach")
"""How passes after the first one go: by rewards, as in the paper, or by being told the right memory."""


class Trees(Peer):
    """A forest that rows were inserted into, and that learned nothing from rewards."""

    name = "trees"
    package = "cmt_numba"
    ours = True
    sparse = True
    compiles = True

    @classmethod
    def builds(cls, shape: Shape, quick: bool) -> list[Options]:
        counts = (1, 4) if quick else (1, 2, 4, 8)
        return [{"n_trees": n, **FAST} for n in counts] + ([] if quick else [{"n_trees": 1}, {"n_trees": 8}])

    def settings(self, build: Options, quick: bool) -> list[Options]:
        return [{"leaves_per_tree": n} for n in ((1, 4) if quick else (1, 2, 3, 4, 6, 8, 12))]

    @classmethod
    def streams(cls, shape: Shape) -> list[tuple[Options, Options]]:
        return [({"n_trees": n, **FAST}, {"leaves_per_tree": 1}) for n in (1, 4, 8)]

    def build(self, **options: Any) -> None:
        from cmt_numba import ContextualMemoryTree

        self._n_trees = options["n_trees"]
        self._tree = ContextualMemoryTree(n_threads=self.n_threads, random_state=0, **options)
        self._tree.insert(self.X)
        self._tree.compact()

    def set(self, **options: Any) -> None:
        self._n_probes = options["leaves_per_tree"] * self._n_trees

    def ask(self, queries: Any, k: int) -> np.ndarray:
        return self._tree.query(queries, k, self._n_probes).ids

    def insert(self, rows: Any) -> None:
        X, y = rows
        self._tree.insert(X)
        self.y = np.concatenate([self.y, y])


class PaperTree(Trees):
    """One tree with the options and the passes of Vowpal Wabbit's: the first inserts, the later ones learn."""

    name = "paper tree"
    heavy = True  # not by its memory: it goes side by side with Vowpal Wabbit's, which is

    @classmethod
    def builds(cls, shape: Shape, quick: bool) -> list[Options]:
        builds: list[Options] = []
        for theirs in VowpalCMT.builds(shape, quick):
            settings = {name: theirs[name] for name in SHARED_OPTIONS}
            for later in LATER_PASSES if settings["passes"] > 1 else ("",):
                if (build := {**settings, "later": later}) not in builds:
                    builds.append(build)
        return builds

    def settings(self, build: Options, quick: bool) -> list[Options]:
        return [{"leaves_per_tree": 1}]

    @classmethod
    def streams(cls, shape: Shape) -> list[tuple[Options, Options]]:
        return []  # as the trees do

    def build(self, **options: Any) -> None:
        from cmt_numba import ContextualMemoryTree
        from cmt_numba.rewards import LabelEquality

        self._n_trees = 1
        self._tree = ContextualMemoryTree(
            n_trees=1,
            alpha=options["alpha"],
            leaf_multiplier=options["c"],
            n_reroutes=options["d"],
            sure_margin=0.0,  # the paper's descent, which takes every router at its word
            n_threads=self.n_threads,
            random_state=0,
        )
        ids = self._tree.insert(self.X)
        n_passes = options["passes"] - 1
        if n_passes and options["later"] == "learn":
            self._tree.learn(self.X, LabelEquality(self.y, self.y), own_ids=ids, n_passes=n_passes)
        elif n_passes:
            self._tree.teach(self.X, ids, n_passes=n_passes)
        self._tree.compact()


class Classifier(Peer):
    """The classifier, from its cheapest settings to its defaults."""

    name = "CMTClassifier"
    package = "cmt_numba"
    ours = True
    sparse = True
    classifies = True
    compiles = True

    @classmethod
    def builds(cls, shape: Shape, quick: bool) -> list[Options]:
        return [CHEAPER[0], CHEAPER[2], CHEAPER[-1]] if quick else list(CHEAPER)

    def settings(self, build: Options, quick: bool) -> list[Options]:
        if quick:
            return [{}, *({"candidates": n} for n in FEW_CANDIDATES)]
        return [{}, *({"leaves_per_tree": n} for n in (1, 2, 4)), *({"candidates": n} for n in FEW_CANDIDATES)]

    @classmethod
    def streams(cls, shape: Shape) -> list[tuple[Options, Options]]:
        return [({}, {})]

    def build(self, **options: Any) -> None:
        from cmt_numba import CMTClassifier

        self._classifier = CMTClassifier(n_jobs=self.n_threads, random_state=0, **options)
        self._classifier.fit(self.X, self.y)
        self._n_probes = self._classifier.n_probes
        self._n_trees = int(self._classifier.forest_.leaves().tree.max()) + 1

    def set(self, **options: Any) -> None:
        leaves = options.get("leaves_per_tree")
        self._classifier.n_probes = leaves * self._n_trees if leaves else self._n_probes
        self._classifier.n_candidates = options.get("candidates")

    def ask(self, queries: Any, k: int) -> np.ndarray:
        return self._classifier.kneighbors(queries, k, return_distance=False)

    def classify(self, queries: Any) -> np.ndarray:
        return self._classifier.predict(queries)

    def insert(self, rows: Any) -> None:
        self._classifier.partial_fit(*rows)
