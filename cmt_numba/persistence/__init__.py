"""Reading and writing of trees and estimators as files of arrays and JSON.

A file is little-endian throughout and consists of these parts:

==========================  ======================================================================================
preamble, 32 bytes          a magic number (16 bytes), the version of the format (uint32), the CRC-32 of the header
                            (uint32), and the length of the header (uint64)
header                      JSON: the type of object, the version of the library, the parameters, and for each array its
                            name, dtype, shape and CRC-32
arrays                      in the order of the header, in C order, each aligned to 64 bytes
==========================  ======================================================================================

Arrays have the same layout in the file as in memory, and can therefore be mapped. ``mmap=True`` reads only the header,
and processes that map the same file share its pages. Arrays are not compressed, so a small file cannot expand to a
large object.

Checksums detect damage, but not forgery. Loading therefore validates everything that kernels rely on, using only NumPy,
before any kernel runs. Every file either loads as a valid object or raises :class:`FileFormatError`.

``mmap=True`` skips the checks that read whole arrays. It validates only the header and the counts of used array
entries. Map only trusted files, or call ``check_invariants`` after loading. Mapped arrays are private: changed pages
are copied, and the file stays unchanged. Do not modify a mapped file in place. On POSIX systems a mapped file can be
replaced by saving to its path; Windows raises an error.

A new file is written under a temporary name (``.NAME.*.part``), synced to disk and renamed. A crash leaves the old or
the new file under the name, and possibly the temporary file, which can be deleted. If the path is a symbolic link, its
target is replaced. Only regular files are read or replaced, not folders, devices, named pipes or sockets.

The format version increases when the contents of files change. Files of versions before 0.4 do not load. Later
versions of the library load the files of version 0.4.
"""

from ._columns import (
    Arrays,
    document,
    put_column,
    put_sparse_matrix,
    read_array,
    read_column,
    read_document,
    read_sparse_matrix,
    take,
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
    replacing,
    unpack_contents,
    verify_arrays,
)
from ._fields import (
    ArrayField,
    DocumentField,
    Field,
    FieldTable,
    FlagField,
    GeneratorField,
    LabelsField,
    MatrixField,
    NamedArraysField,
    NameField,
    NumberField,
    OptionalField,
    OptionsField,
    PartField,
    PickledArrays,
    RealField,
    SparseArrayField,
    StructureField,
    TextField,
    TextsField,
    TupleField,
    VariantField,
    WithFields,
    as_mapping,
    generator_digest,
)
from ._objects import Saved, object_of, read_object, refusing, write_object

__all__ = ["FileFormatError"]
