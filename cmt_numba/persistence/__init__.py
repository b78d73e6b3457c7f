"""Files of trees and estimators: arrays and JSON, no code.

A file consists of these parts, little-endian throughout:

==========================  ======================================================================================
preamble, 32 bytes          a magic number (16 bytes), the version of the format (uint32), the CRC-32 of the header
                            (uint32), and the length of the header (uint64)
header                      JSON: the kind of object, the version of the library, the parameters, and for each array its
                            name, dtype, shape, offset, length in bytes and CRC-32
arrays                      in C order, each aligned to 64 bytes
==========================  ======================================================================================

Arrays are stored as in memory, rather than in an archive (zip, HDF5), so that they can be mapped: ``mmap=True`` reads
only the header, and processes that map the same file share its pages. Data that is not compressed also cannot expand
to a multiple of the file's size.

Checksums detect damage, but not forgery. Loading therefore validates everything that kernels rely on, with NumPy alone
and before any kernel runs: any file either loads as a valid object or raises :class:`FileFormatError`. With
``mmap=True`` checks that read whole arrays are skipped; only the header and the few numbers that say how much of each
array is in use are validated. Map only files that you trust, or call ``check_invariants`` afterwards. Mapped arrays are
private: changed pages are copied, and the file stays unchanged. Do not modify a mapped file in place. Saving a new file
under the same name is safe on POSIX systems; Windows refuses it.

A file is written under a temporary name (``.NAME.*.part``), synced to disk and then renamed, so a crash leaves either
the old or the new file, and possibly the temporary one, which can be deleted. If the name is a symbolic link, its
target is written. Anything but a regular file (a folder, a device, a named pipe, a socket) is neither read nor
replaced.

The version of the format increases when the contents of files change. Files of all earlier versions load.
"""

from ._columns import (
    column,
    document,
    read_array,
    read_column,
    read_document,
    read_sparse_matrix,
    sparse_matrix,
)
from ._container import (
    FORMAT_VERSION,
    NUMBERS,
    Contents,
    FileFormatError,
    bring_to_disk,
    file_to_write,
    pack_contents,
    read_fields,
    unpack_contents,
    verify_arrays,
)
from ._objects import (
    DTYPES,
    Saved,
    as_part,
    generator_fields,
    object_of,
    of_part,
    read_generator,
    read_object,
    refusing,
    take,
    write_object,
)
from ._states import (
    VALUES,
    check_at_rest,
    check_state,
    state_of,
    tree_contents,
    trim_examples,
    trim_expectation,
    trim_head,
)

__all__ = ["FORMAT_VERSION", "FileFormatError"]
