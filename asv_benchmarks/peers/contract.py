"""The interface of peers: indexes built over labelled rows that return the nearest rows or a label."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

Options = dict[str, Any]
"""Options of a build, or of the queries after it. They stand in result files, so they are what JSON can hold."""

NONE = -1
"""The id of no row, and the label of no class."""


class Shape(NamedTuple):
    """What a peer knows of the data when it names its settings."""

    n_rows: int
    n_features: int
    n_classes: int
    sparse: bool


class Peer(ABC):
    """One peer in one process.

    The worker calls, in this order: the constructor, ``prepare``, ``build``; then, for each of ``settings``, ``set``
    followed by any number of ``ask`` and ``classify``. ``build`` may be called again and starts afresh.

    Attributes
    ----------
    name : str
        What tables and the command line call it.
    package : str
        The package it needs, as it is imported.
    dense, sparse : bool
        Whether it takes rows of the kind.
    exact : bool
        Whether its answers are the true nearest rows.
    ours : bool
        Whether it belongs to this project.
    finds_rows : bool
        Whether it answers with rows; otherwise with labels only.
    classifies : bool
        Whether its labels are more than those of the first row found.
    heavy : bool
        Whether it takes so much memory that its process must end after the measurement.
    compiles : bool
        Whether it has to be tried on a few rows first, because it compiles what it needs when it is called.
    """

    name: ClassVar[str]
    package: ClassVar[str]
    dense: ClassVar[bool] = True
    sparse: ClassVar[bool] = False
    exact: ClassVar[bool] = False
    ours: ClassVar[bool] = False
    finds_rows: ClassVar[bool] = True
    classifies: ClassVar[bool] = False
    heavy: ClassVar[bool] = False
    compiles: ClassVar[bool] = False

    def __init__(self, shape: Shape, n_threads: int, folder: Path) -> None:
        self.shape = shape
        self.n_threads = n_threads
        self.folder = folder
        self.X: Any = None
        self.y = np.empty(0, np.int64)

    @classmethod
    def builds(cls, shape: Shape, quick: bool) -> list[Options]:
        """Return the options of the builds to measure. Each build gets its own process."""
        return [{}]

    @classmethod
    def streams(cls, shape: Shape) -> list[tuple[Options, Options]]:
        """Return pairs of options, of a build and of queries, to measure inserting with; none if it cannot insert."""
        return []

    def settings(self, build: Options, quick: bool) -> list[Options]:
        """Return the options of queries to measure on a build."""
        return [{}]

    def prepare(self, X: Any, y: np.ndarray) -> None:
        """Take the rows and bring them into the form that the peer reads. Nobody counts the time or the memory."""
        importlib.import_module(self.package)  # not while the build is timed
        self.X, self.y = X, y

    @abstractmethod
    def build(self, **options: Any) -> None:
        """Build over the prepared rows. This is timed."""

    def set(self, **options: Any) -> None:  # noqa: B027
        """Set the options of the queries that follow."""

    def ready(self, queries: Any) -> Any:
        """Return queries in the form that the peer reads. Nobody counts the time."""
        return queries

    def ask(self, queries: Any, k: int) -> np.ndarray:
        """Return the positions of the ``k`` nearest rows of each query, -1 for none: shape (n, k). This is timed."""
        raise NotImplementedError(f"{self.name} does not answer with rows")

    def classify(self, queries: Any) -> np.ndarray:
        """Return the label of each query, -1 for none: shape (n,). This is timed."""
        return labels_of(self.y, self.ask(queries, 1)[:, 0])

    def ready_rows(self, X: Any, y: np.ndarray) -> Any:
        """Return rows to insert in the form that the peer reads. Nobody counts the time."""
        return X, y

    def insert(self, rows: Any) -> None:
        """Insert what ``ready_rows`` returned. This is timed."""
        raise NotImplementedError(f"{self.name} cannot insert")

    def close(self) -> None:  # noqa: B027
        """Leave nothing behind."""


def labels_of(y: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Return the labels of rows, -1 for the row -1."""
    return np.where(ids == NONE, NONE, y[ids])


def described(options: Options) -> str:
    """Return options in a few words."""
    return ", ".join(f"{name}={value}" for name, value in options.items() if value != "") or "-"
