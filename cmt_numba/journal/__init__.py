"""Durable objects: snapshots, and a journal of the changes since the last one.

A :class:`DurableTree` is a :class:`~cmt_numba.ContextualMemoryTree` that is stored in a folder. Each change is made in
memory, written to the journal and synced to disk before the call returns. Opening the folder loads the last snapshot
and replays the changes since; the same calls give the same trees. If a change fails or is interrupted, its entry is
undone and the tree is restored in the same way.

Estimators and stores have folders of the same kind. Each has a ``Journal`` and a ``DurableForm``, which defines how the
object is written to a snapshot, restored and compared, and which operations its entries name.

The folder contains

==========================  ======================================================================================
``tree-N.cmt``              the snapshot: the tree after ``N`` changes, a file as ``save`` writes it
``journal.sqlite``          an SQLite database (with its log, ``journal.sqlite-wal``): one numbered entry for the
                            snapshot and for each change since. An entry has the form of a file of a tree
                            (:mod:`cmt_numba.persistence`): arrays and JSON with checksums. It holds the name and the
                            version of an operation, its arguments, the memories that were evicted, and the number of
                            memories afterwards
``acknowledged``            the number of the last change known to be on disk (uint64), the identity of the journal
                            (16 bytes), and the CRC-32 of these 24 bytes (uint32), little-endian
==========================  ======================================================================================

A random identity ties the files together. It is stored in the snapshot, in each entry and in ``acknowledged``, and
files of another folder are rejected. The names of operations and arguments are part of the format and independent of
the names of methods.

A tree is created only in an empty folder, and only its own files are written or deleted. Symbolic links in the folder
are not followed. A new folder and its files are accessible only to their owner. New files get the permissions of
``journal.sqlite``: users who may read that file may also read later snapshots.

SQLite commits each change completely or not at all (write-ahead log), so a process that is killed loses none, and locks
out other processes while the folder is open, also after a crash. With ``sync_every`` above 1, commits do not wait for
the disk (``synchronous=NORMAL``), and the log is synced after that number of changes. SQLite treats a damaged log as
one that ends early. To detect this, the number of the last synced change is written then, without waiting for the disk.

A snapshot is taken when replaying the journal would take too long. The previous snapshot is deleted only when the new
one is complete, on disk and entered in the journal. Files left by a crash are deleted when the folder is opened.

If the disk is full or cannot be written, ``DurableTree(path, read_only=True)`` opens the tree for queries.

Arguments in entries and snapshots are validated like those of users: any folder either opens as a valid tree or raises
:class:`~cmt_numba.persistence.FileFormatError`.

Another kind of processor, or another version of the library, may round differently and therefore build different trees
from the same changes. All memories are still present under their ids, but the models trained since the snapshot may
differ slightly; a warning reports this. Take a :meth:`~DurableTree.snapshot` before moving a folder.

Journals of version 1 have no identity and name operations by methods. They are upgraded to version 2 by the next change
and get an identity at the next snapshot. In version 1, a bounded tree that evicts the least recently returned memories
did not count replaced memories as returned, but did so when it replayed them, so it could evict other memories. Such a
journal is replayed as the changes were made and, if the result does not match the entries, as version 1 replayed it.

The lock is a file lock, which network file systems may not support. Opening and closing ``journal.sqlite`` elsewhere in
the same process, even to copy it, releases the lock: to copy an open tree, call ``save``.
"""

from ._database import ExtraTables, SchemaRow, SharedConnection, is_blank
from ._durable_tree import DurableTree, fingerprint, set_tree_scorer
from ._entries import CURRENT, Arguments, Entry, Operation, count_argument_bytes, find_operation, plain_arguments
from ._files import AlreadyOpenError, JournalError
from ._journal import Durability, DurableForm, Journal

__all__ = ["AlreadyOpenError", "DurableTree", "JournalError"]
