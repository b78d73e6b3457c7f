"""Trees whose changes survive a killed process: a journal of changes beside snapshots.

A :class:`DurableTree` is a :class:`~cmt_numba.ContextualMemoryTree` that lives in a folder. Whatever changes it is done
in memory first, then written to the journal and brought to the disk, and only then does the call return. When the
folder is opened again, the changes since the last snapshot are done once more: the same calls give the same trees.

In the folder are

==========================  ======================================================================================
``tree-N.cmt``              the snapshot: the tree after ``N`` changes, a file as ``save`` writes it
``journal.sqlite``          an SQLite database (and its log, ``journal.sqlite-wal``): the entry of the snapshot and one
                            for each change since, under its number. An entry is what is in a file of a tree
                            (:mod:`cmt_numba.persistence`): plain arrays and JSON, each with a checksum. It holds the
                            name and the version of an operation, its arguments, which memories were forgotten to make
                            room, and how many there were afterwards
``acknowledged``            the number of the last change known to be on the disk (uint64), the identity of the journal
                            (16 bytes), and the CRC-32 of these 24 bytes (uint32), little-endian
==========================  ======================================================================================

A random identity binds the files to each other: it is in the snapshot, in each entry and in ``acknowledged``, and files
of another folder are refused. What operations and their arguments are called is part of the format, and does not depend
on the names that methods have.

Only an empty folder becomes a tree's, and only files of the tree's own are written or deleted. Symbolic links in the
folder are not followed. The folder, if it is made, and all files are for their owner alone; new files get the
permissions of ``journal.sqlite``, so whoever lets others read that file lets them read the next snapshots.

SQLite gives each change whole or not at all (write-ahead log, ``synchronous=FULL``) and keeps other processes out for
as long as the folder is open, also after a crash. A damaged log it takes for one that ends early; that is what the
number of the last change is for, which is written after each change without waiting for the disk.

A snapshot is taken when to go through the journal would take too long. It is complete, on the disk and entered in the
journal before the one before it is deleted; what a crash leaves besides is deleted when the folder is opened.

Where the disk is full, or nothing may be written, ``DurableTree(path, read_only=True)`` opens the tree to be asked.

Arguments are checked as if a user had passed them, and snapshots as files are: a folder from anywhere opens as a valid
tree, or raises :class:`~cmt_numba.persistence.FileFormatError`.

Another kind of processor, or another version of the library, may round differently and so grow other trees from the
same changes. Every memory is there then, under its id, but what was learned since the snapshot may differ a little; a
warning says so. Take a :meth:`~DurableTree.snapshot` before a folder moves.

Journals of version 1 had no identity, and entries by the names of methods. They open, and are of version 2 from the
next change on; they get an identity at the next snapshot. A bounded tree of version 1 that forgets what was least
recently returned did not count a replaced memory as returned, but did so when its folder was opened: it could then hold
other memories than before. Such a journal opens as the changes were made; if this does not fit what it says of the
trees, as the earlier version would have opened it.

The lock is one of the file system: network file systems may not keep it. And whatever opens ``journal.sqlite`` and
closes it again in the same process, if only to copy it, gives it up: to copy an open tree, ``save`` it.
"""

from ._errors import AlreadyOpenError, JournalError
from ._tree import DurableTree

__all__ = ["AlreadyOpenError", "DurableTree", "JournalError"]
