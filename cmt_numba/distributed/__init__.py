"""Stores and classifiers on several machines, with Ray (the extra ``ray``).

A :class:`ShardedStore` has the interface of a :class:`~cmt_numba.MemoryStore`. Its memories are divided among *shards*:
each is a Ray actor, a process that owns a :class:`~cmt_numba.MemoryStore`, in a folder of its own if the store has a
path. Ray starts the processes, restarts those that die and moves the arrays between them.

Keys belong to shards by consistent hashing. Changes go to the owners of their keys. A query goes to all shards, and the
best of their results are merged. A shard writes the name of each request in the transaction of the change, so a change
is made once even if the shard is killed before it can answer. Shards can be added and removed while the store is used,
and can have replicas that answer queries.

A :class:`ShardedClassifier` divides its classes in the same way among actors that own a
:class:`~cmt_numba.CMTClassifier` each.

:func:`evaluate`, :func:`evaluate_files` and :func:`validate_files` measure estimators in tasks.

:func:`start` starts Ray on this machine, reachable from this machine only, or connects to a cluster.
"""

from ._cluster import start
from ._errors import ClusterError, MoveError, NoAnswerError, PartialChangeError, ShardConflictError
from ._evaluation import evaluate, evaluate_files, validate_files
from ._results import ShardedResults
from ._sharded_classifier import ShardedClassifier
from ._sharded_store import ShardedStore

__all__ = [
    "ClusterError",
    "MoveError",
    "NoAnswerError",
    "PartialChangeError",
    "ShardConflictError",
    "ShardedClassifier",
    "ShardedResults",
    "ShardedStore",
    "evaluate",
    "evaluate_files",
    "start",
    "validate_files",
]
