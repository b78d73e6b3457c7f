"""Options for reading a data file."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ReadOptions:
    """Options for reading a file."""

    format: str | None = None
    """A key of :data:`cmt_numba.formats.FORMATS`. By default, detected from the file's suffix or first line."""
    task: str | None = None
    """"multiclass" (one class per row) or "multilabel". By default, detected from the labels."""
    n_features: int | None = None
    """The number of features of sparse rows. By default, read from the header or counted in a pass over the file."""
    named_labels: bool | None = None
    """Whether classes or labels are text rather than integers. By default, detected from the labels."""
    label_names: tuple[str, ...] = ()
    """The names of labels 0, 1, 2, ..., if each row has any number of named labels. New names are appended."""
    label: str | None = "label"
    """The label column of a table. If None, the column "label" or, if the table has no such column, the last one."""
    text: tuple[str, ...] = ()
    """Columns of a table to read as text, one text per row. If empty, all other columns are features."""
    n_bits: int | None = None
    """Hash words of text columns, or feature names of Vowpal Wabbit, into ``2**n_bits`` features. By default, rows of
    text columns are texts, and feature names are hashed with 18 bits."""
    ignore: tuple[str, ...] = ()
    """Columns of a table to ignore."""
    columns: tuple[str, ...] | None = None
    """The feature columns of a table, in order. By default, all columns except ``label`` and ``ignore``."""
    kinds: tuple[str, ...] | None = None
    """Kinds of a table's columns, such as ``("age=number", "city=category", "body=text")``. The kinds of other columns
    are detected, and identifiers of rows are ignored. Rows are then data frames, with NaN for missing numbers and an
    empty string for other missing values. By default, and in tables with lists of numbers, rows are arrays."""
    labels_file: str | None = None
    """A second file, with the labels of a SciPy sparse matrix."""
    with_labels: bool = True
    """Whether to read labels."""
