"""Vowpal Wabbit's Contextual Memory Tree and Eigen Memory Tree. They answer with labels, not with rows."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy.sparse

from .contract import NONE, Options, Peer, Shape

EQUAL_SETTINGS: list[Options] = [
    {"passes": 1, "alpha": 0.9, "c": 4, "d": 5},
    {"passes": 1, "alpha": 0.9, "c": 10, "d": 5},
    {"passes": 3, "alpha": 0.9, "c": 4, "d": 5},
    {"passes": 3, "alpha": 0.9, "c": 10, "d": 3},
    {"passes": 3, "alpha": 0.9, "c": 40, "d": 5},
]
"""Passes, and the paper's symbols: alpha, how strongly routers are balanced; c, the leaf multiplier; d, the reroutes.

Vowpal Wabbit's option of the name alpha weighs the router and not the balance, so it is 1 - alpha here.
"""

SHARED_OPTIONS = ("passes", "alpha", "c", "d")
"""Options that its memory tree and ours both have."""

TUNED: list[Options] = [
    {**EQUAL_SETTINGS[3], "more": "--dream_at_update 1"},
    {**EQUAL_SETTINGS[4], "more": "-l 0.01"},
    {**EQUAL_SETTINGS[1], "more": "-l 0.1"},
    {"passes": 1, "alpha": 0.9, "c": 40, "d": 5, "more": "-l 0.1"},
]
"""Settings with options that ours have not, for its best errors."""

SCORERS = ("self_consistent_rank", "distance")
"""Of the Eigen Memory Tree: its learned scorer, which is its default, and plain distance."""

_BITS = 22  # of hashed features


class _Vowpal(Peer):
    package = "vowpalwabbit"
    sparse: ClassVar[bool] = True
    finds_rows: ClassVar[bool] = False
    classifies: ClassVar[bool] = True
    heavy: ClassVar[bool] = True

    _workspace: Any = None

    def prepare(self, X: Any, y: np.ndarray) -> None:
        super().prepare(X, y)
        self._rows = self.folder / f"vowpal-{y.size}.txt"
        if not self._rows.exists():
            with tempfile.NamedTemporaryFile("w", dir=self.folder, delete=False) as file:
                file.writelines(f"{line}\n" for line in _lines(X, y))
            Path(file.name).rename(self._rows)

    def _learn_all(self, options: str, n_passes: int) -> None:
        from vowpalwabbit import Workspace

        cache = ""
        if n_passes > 1:
            self._scratch = Path(tempfile.mkdtemp(dir=self.folder))
            cache = f"--cache_file {self._scratch / 'cache'} -k --passes {n_passes} --holdout_off"
        self._workspace = Workspace(f"{options} -b {_BITS} -d {self._rows} {cache} --quiet")
        self._workspace.run_parser()
        if n_passes > 1:
            shutil.rmtree(self._scratch)

    def _learn_row_by_row(self, options: str) -> None:
        from vowpalwabbit import Workspace

        self._workspace = Workspace(f"{options} -b {_BITS} --quiet")
        with self._rows.open() as lines:
            for line in lines:
                self._workspace.learn(line)

    def ready(self, queries: Any) -> Any:
        labels = np.zeros(queries.shape[0], np.int64)
        return [self._workspace.parse(line) for line in _lines(queries, labels)]

    def classify(self, queries: Any) -> np.ndarray:
        predict = self._workspace.predict
        labels = np.array([predict(query) for query in queries], np.int64) - 1
        return np.where(labels < self.shape.n_classes, labels, NONE)

    def ready_rows(self, X: Any, y: np.ndarray) -> Any:
        return [self._workspace.parse(line) for line in _lines(X, y)]

    def insert(self, rows: Any) -> None:
        for row in rows:
            self._workspace.learn(row)


class VowpalCMT(_Vowpal):
    """The Contextual Memory Tree."""

    name = "VW CMT"

    @classmethod
    def builds(cls, shape: Shape, quick: bool) -> list[Options]:
        return EQUAL_SETTINGS[:1] if quick else [*EQUAL_SETTINGS, *TUNED]

    @classmethod
    def streams(cls, shape: Shape) -> list[tuple[Options, Options]]:
        return [({**EQUAL_SETTINGS[0], "row_by_row": True}, {})]

    def build(self, **options: Any) -> None:
        words = (
            f"--memory_tree {self.y.size} --max_number_of_labels {self.shape.n_classes} "
            f"--alpha {1.0 - options['alpha']:.3g} --leaf_example_multiplier {options['c']} "
            f"--dream_repeats {options['d']} {options.get('more', '')}"
        )
        if options.get("row_by_row"):
            self._learn_row_by_row(words)
        else:
            self._learn_all(words, options["passes"])


class VowpalEMT(_Vowpal):
    """The Eigen Memory Tree."""

    name = "VW EMT"

    @classmethod
    def builds(cls, shape: Shape, quick: bool) -> list[Options]:
        builds = [{"leaf": leaf, "scorer": scorer} for leaf in (50, 200) for scorer in SCORERS]
        return builds[:1] if quick else builds

    def build(self, **options: Any) -> None:
        words = f"--emt --emt_leaf {options['leaf']} --emt_scorer {options['scorer']}"
        if options.get("row_by_row"):
            self._learn_row_by_row(words)
        else:
            self._learn_all(words, 1)

    @classmethod
    def streams(cls, shape: Shape) -> list[tuple[Options, Options]]:
        return [({"leaf": 50, "scorer": SCORERS[0], "row_by_row": True}, {})]


def _lines(X: Any, labels: np.ndarray) -> list[str]:
    rows = scipy.sparse.csr_array(X)
    return [
        f"{label + 1} | " + " ".join(f"{i}:{v:.5g}" for i, v in zip(rows.indices[a:b], rows.data[a:b], strict=True))
        for label, a, b in zip(labels, rows.indptr[:-1], rows.indptr[1:], strict=True)
    ]
