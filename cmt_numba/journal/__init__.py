"""Durable objects in folders: a snapshot, and a journal of the changes after it.

The method ``open`` of a class opens an object in a folder. Each change is made in memory, written to the journal and
synced to disk before the call returns. Opening the folder loads the last snapshot and replays the changes in the
journal, which makes the same object again. If a change fails or is interrupted, its entry is undone and the object is
restored by the same replay.

An object in a folder has a ``Journal`` and a ``DurableForm``. The form defines how the object is saved, restored and
compared, and lists the operations of its entries.

The folder contains

==========================  ======================================================================================
``tree-N.cmt``              The snapshot: the object after ``N`` changes, in the format of ``save``.
``journal.sqlite``          An SQLite database (with its log and the log's index, ``journal.sqlite-wal`` and ``-shm``).
                            It contains a numbered entry for the snapshot and for each later change. An entry has the
                            same format as a saved tree (:mod:`cmt_numba.persistence`): arrays and JSON with checksums.
                            It contains the name and version of the operation, the arguments, the ids of evicted
                            memories, and the number of memories after the change.
``acknowledged``            The number of the last change known to be on disk (uint64), the identity of the journal
                            (16 bytes), and the CRC-32 of these 24 bytes (uint32), little-endian. A writer locks it.
==========================  ======================================================================================

The journal has a random identity, which is stored in the snapshot, in each entry and in ``acknowledged``. Files with
another identity are rejected. Names of operations and arguments are part of the format and independent of method names.

A tree is created only in an empty folder, and only the tree's own files are written or deleted. Symbolic links in the
folder are not followed. A new folder and its files are accessible only to their owner. New files get the permissions of
``journal.sqlite``, so users who can read the journal can also read later snapshots.

A folder has one writer. The lock of ``acknowledged`` keeps other writers out until the folder is closed or the process
ends. A forked child does not keep it. The folder may be renamed while it is open, but then no snapshots are taken.
If the journal is deleted or replaced, changes raise :class:`JournalError`.

SQLite's write-ahead log makes each change atomic, so a killed process loses no acknowledged change. With
``sync_every`` above 1, commits do not wait for the disk (``synchronous=NORMAL``), and the log is synced once per
``sync_every`` changes. SQLite silently ignores the damaged end of a log. The number in ``acknowledged``, which is
written at each sync without waiting for the disk, detects this loss.

A snapshot is taken when the journal takes long to replay. The previous snapshot is deleted only after the new one is
complete, synced to disk and recorded in the journal. Opening the folder deletes files left by a crash.

Any number of processes, and the writer's process itself, can read a folder with ``read_only=True``. ``refresh`` reads
the entries after the last one that the reader knows, as they are between two commits, and replays them. Additional
tables are read in place, in transactions as short as a query, so that the writer can truncate its log. Rows carry the
number of the change that wrote them. If a later change than the reader's last one wrote what a query needs, the reader
refreshes first.

Each entry has a random mark, which the entry of a snapshot takes over. If the folder has no entry with the mark that
the reader knows, a snapshot has replaced the entries, or the folder has another history: a backup was restored, or the
folder was replaced. The reader then loads the folder again.

Arguments in entries and snapshots are validated like a caller's arguments. Every folder either opens as a valid tree or
raises :class:`~cmt_numba.persistence.FileFormatError`.

Other processors and other library versions may round differently and therefore build different trees from the same
changes. All memories are then still present under their ids, but models trained since the snapshot may differ slightly,
and a warning is issued. Call ``checkpoint`` before moving a folder to another machine.

Folders of versions before 0.4 are rejected. Later versions of the library read the folders of version 0.4.

Network file systems may not support the locks. To copy an open tree, call ``save``.
"""

from ._database import EntryDatabase, ExtraTables, SchemaRow, SharedConnection
from ._entries import CURRENT, Arguments, Entry, Operation, find_operation, plain_arguments, unpack_entry
from ._files import AlreadyOpenError, JournalError
from ._in_folder import InFolder, ObjectForm, check_same_option, journaled
from ._journal import Durability, DurableForm, FolderOptions, Journal

__all__ = ["AlreadyOpenError", "JournalError"]
