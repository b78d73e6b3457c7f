"""Stores, classifiers and evaluation on several machines, with Ray (the extra ``ray``).

A :class:`ShardedStore` has the interface of a :class:`~cmt_numba.MemoryStore`. Its memories are divided among *shards*.
A shard is a Ray actor: a process that owns a :class:`~cmt_numba.MemoryStore`, which has its own folder if the sharded
store has a path. Ray starts the processes, restarts dead ones and transfers arrays between them.

A :class:`ShardedClassifier` divides its classes among actors, each of which owns a :class:`~cmt_numba.CMTClassifier`.

:func:`evaluate` evaluates estimators in Ray tasks.

:func:`start` starts Ray on this machine, without access from other machines, or connects to a cluster.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._cluster import start
from ._errors import ClusterError, MoveError, NoAnswerError, PartialChangeError, ShardConflictError
from ._results import ShardedResults
from ._sharded_store import ShardedStore

if TYPE_CHECKING:
    from ._evaluation import evaluate
    from ._sharded_classifier import ShardedClassifier

__all__ = [
    "ClusterError",
    "MoveError",
    "NoAnswerError",
    "PartialChangeError",
    "ShardConflictError",
    "ShardedClassifier",
    "ShardedStore",
    "evaluate",
    "start",
]

# These import scikit-learn, which would double the time in which a shard of a store starts.
_IMPORTED_WHEN_USED = {"ShardedClassifier": "_sharded_classifier", "evaluate": "_evaluation"}


def __getattr__(name: str) -> Any:
    if name in _IMPORTED_WHEN_USED:
        return getattr(import_module(f".{_IMPORTED_WHEN_USED[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
