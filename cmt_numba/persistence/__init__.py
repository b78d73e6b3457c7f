"""Trees and estimators in files: plain arrays and JSON, which load no code.

A file is, one behind the other and little-endian throughout:

==========================  ======================================================================================
32 bytes                    16 that no other kind of file begins with; the version of the format (uint32); the CRC-32
                            of the header (uint32); the length of the header (uint64)
the header                  JSON: what the file holds, the library's version, parameters, and of each array its name,
                            dtype, shape, offset, length in bytes and CRC-32
the arrays                  as they lie in memory, in C order, each at a multiple of 64 bytes
==========================  ======================================================================================

It is no archive (zip, HDF5), because what lies in the file as it does in memory can be mapped: ``mmap=True`` reads only
the header, whatever the size of the file, and processes that map the same file share its pages. And what is not
compressed cannot turn out to be a thousand times larger than the file.

Checksums tell of damage, not of malice. So loading also checks everything that kernels rely on, with NumPy alone and
before any kernel runs: a file from anywhere loads as a valid tree, or raises :class:`FileFormatError`. What reads
whole arrays is left out with ``mmap=True``, where only the header and the few numbers that say how much of each array
is in use are checked: map only files that you trust, or call ``check_invariants`` after. Mapped arrays are private:
what is changed is copied, page by page, and the file stays as it is. A file that is mapped must not be changed in
place; to save a new one under its name is safe on POSIX systems (Windows refuses it).

A file is written beside its final place under a name of its own (``.NAME.*.part``), brought to the disk (fsync) and
then renamed, so a crash leaves the old file or the new one. What a crash may leave besides is the unfinished file,
which can be deleted. Where the name is a symbolic link, the file that it points to is written. What is no regular file
(a folder, a device, a named pipe, a socket) is neither written to or replaced nor read.

The version of the format counts up when what is in a file changes. Files of all earlier versions load.
"""

from ._container import FORMAT_VERSION, FileFormatError

__all__ = ["FORMAT_VERSION", "FileFormatError"]
