"""Validation and conversion of arguments.

Kernels have no bounds checks, so every array must pass these functions first.
"""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, NamedTuple, NoReturn, Protocol

import numpy as np
import scipy.sparse

from . import _forest as forest
from . import _kernels as kernels
from ._arrays import WeightedRows, unmasked
from ._arrays import label_array as label_array
from ._change import map_threads, spans

MOST_WANTED = 1_000_000
"""Maximum ``k`` of a query, unless more memories or labels are stored. The limit bounds the size of the results."""

MAX_REROUTES = 10_000
"""Maximum number of reroutes after each insert. All of them run in one step, for which readers wait."""

MAX_PASSES = 10_000  # maximum number of passes over examples
MAX_COMPONENTS = 2**16

_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
_CSR = (scipy.sparse.csr_array, scipy.sparse.csr_matrix, WeightedRows)

_DTYPES_OF_HITS = tuple(map(np.dtype, ("i8", "f4", "i4", "i4", "i4", "i1", "f4")))

_EMPTY_INDICES = np.empty(0, np.int32)
_INTEGERS = (int, np.integer)
_REALS = (int, float, np.integer, np.floating)

_SCALED_ROWS_WORTH_A_THREAD = 4096  # scaling fewer rows takes less time than starting a thread


def check_rows(
    X: Any, *, sparse: bool | None = None, n_features: int | None = None, n_threads: int = 1
) -> kernels.Rows:
    """Convert keys or queries to unit-length float32 rows.

    By default, rows are sparse if ``X`` is. ``n_features`` is the required width, and ``n_threads`` the most threads.
    """
    form = _form_of(X, n_features)
    if form != kernels.INVALID_CELLS:
        if type(X) is np.ndarray:
            if not sparse:
                return _dense_rows(X if X.dtype == np.float32 else as_float32(X), n_threads)
        elif sparse is not False:
            values, indices, offsets = as_float32(X.data), X.indices, X.indptr
            if form != kernels.SORTED_CELLS:
                values, indices = values.copy(), indices.copy()
            if form == kernels.SORTED_CELLS or kernels.sort_cells(values, indices, offsets):
                return _sparse_rows(values, indices, offsets, X.shape[1], n_threads)
    return unit_rows(check_matrix(X, n_features=n_features), sparse=sparse, n_threads=n_threads)


def is_plain(X: Any, n_features: int | None = None) -> bool:
    """Return whether rows need no conversion by NumPy or SciPy before :func:`check_rows`.

    Plain rows are C-contiguous arrays, or valid CSR matrices with int32 indices, of float32 or float64 with at least
    one row. The check takes about a microsecond. Other rows may also be valid; the full checks convert or reject them.
    """
    return _form_of(X, n_features) != kernels.INVALID_CELLS


def _form_of(X: Any, n_features: int | None) -> int:
    """Return SORTED_CELLS or UNSORTED_CELLS for plain rows, and INVALID_CELLS for other rows."""
    kind = type(X)
    if kind is not np.ndarray and kind not in _CSR:
        return kernels.INVALID_CELLS
    shape = X.shape
    if (
        len(shape) != 2
        or shape[0] == 0
        or not 0 < shape[1] <= kernels.MOST_FEATURES
        or n_features not in (None, shape[1])
    ):
        return kernels.INVALID_CELLS
    if kind is np.ndarray:
        return kernels.SORTED_CELLS if X.dtype in _FLOATS and X.flags.carray else kernels.INVALID_CELLS
    values, indices, offsets = X.data, X.indices, X.indptr
    if not type(values) is type(indices) is type(offsets) is np.ndarray:
        return kernels.INVALID_CELLS
    is_plain = (
        values.flags.carray
        and indices.flags.carray
        and offsets.flags.carray
        and values.ndim == indices.ndim == offsets.ndim == 1
        and values.dtype in _FLOATS
        and indices.dtype == offsets.dtype == np.int32
        and values.size == indices.size
        and offsets.size == shape[0] + 1
    )
    return kernels.check_cells(indices, offsets, shape[1]) if is_plain else kernels.INVALID_CELLS


def unit_rows(X: Any, *, sparse: bool | None = None, n_threads: int = 1) -> kernels.Rows:
    """Convert the result of :func:`check_matrix` to unit-length rows. Raises ValueError if a value is not finite."""
    is_sparse = not isinstance(X, np.ndarray)
    if sparse if sparse is not None else is_sparse:
        X = X if is_sparse else scipy.sparse.csr_array(X)
        return _sparse_rows(X.data, X.indices, X.indptr, X.shape[1], n_threads)
    if is_sparse:
        X = X.toarray()
    return _dense_rows(X, n_threads)


def as_rows(X: Any) -> Any:
    """Return a one-dimensional array or list of numbers as a single row, and anything else unchanged."""
    if isinstance(X, np.ndarray):
        return X.reshape(1, -1) if X.ndim == 1 and X.dtype.kind in "fiub" else X
    if scipy.sparse.issparse(X) and X.ndim == 1:
        cells = X.tocoo()
        return scipy.sparse.coo_array((cells.data, (np.zeros(cells.nnz, np.int32), *cells.coords)), (1, X.shape[0]))
    is_vector = isinstance(X, list | tuple) and len(X) > 0 and isinstance(X[0], int | float | np.number)
    return [X] if is_vector else X


def check_matrix(X: Any, *, n_features: int | None = None) -> Any:
    """Convert keys or queries to a float32 array or, if they are sparse, to a canonical CSR array."""
    if type(X) is np.ndarray and is_plain(X, n_features):
        return as_float32(X)
    if not scipy.sparse.issparse(X):
        X = _as_array("X", X)
    elif not hasattr(getattr(X, "data", X), "dtype"):
        raise ValueError("X must be a valid sparse matrix: its data must be an array")
    if X.ndim != 2:
        raise ValueError(
            f"X must have two dimensions (rows, features), got {X.ndim}; write X.reshape(1, -1) for a single row"
        )
    if X.dtype.kind not in "fiub":
        raise TypeError(f"X must contain real numbers, got {X.dtype}")
    n_rows, width = X.shape
    if n_rows == 0 or width == 0:
        raise ValueError(f"X must have at least one row and one feature, got shape {X.shape}")
    if width > kernels.MOST_FEATURES:
        raise ValueError(f"X must have at most {kernels.MOST_FEATURES} features, got {width}")
    if n_features is not None and width != n_features:
        raise ValueError(f"X must have {n_features} features like the keys inserted first, got {width}")
    if not scipy.sparse.issparse(X):
        return as_float32(X)
    X = _as_csr(X)
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    values = as_float32(X.data)
    return X if values is X.data else scipy.sparse.csr_array((values, X.indices, X.indptr), X.shape)


def check_encoded(vectors: Any, n_texts: int, n_features: int | None = None) -> Any:
    """Convert the vectors that an encoder returned for texts like :func:`check_matrix`. Errors name the encoder."""
    try:
        shape = np.shape(vectors)
    except ValueError as error:
        raise ValueError(f"encoder must return vectors of equal length: {error}") from error
    if len(shape) != 2 or shape[0] != n_texts or shape[1] != (n_features or max(shape[1], 1)):
        raise ValueError(f"encoder must return an array of shape ({n_texts}, {n_features or 'd'}), got {shape}")
    try:
        X = check_matrix(vectors)
    except (TypeError, ValueError) as error:
        raise type(error)(f"encoder must return real numbers: {error}") from error
    if not np.isfinite(X if isinstance(X, np.ndarray) else X.data).all():
        raise ValueError("encoder must return numbers that are finite in float32")
    return X


def sound(X: Any) -> Any:
    """Return a sparse ``X`` as a CSR array with valid indices, and any other ``X`` unchanged."""
    unmasked("X", X)
    return _as_csr(X) if scipy.sparse.issparse(X) else X


def _dense_rows(X: np.ndarray, n_threads: int) -> kernels.Rows:
    n_rows, width = X.shape
    offsets = np.arange(0, (n_rows + 1) * width, width, dtype=np.int64)
    return kernels.Rows(
        _normalized(X.reshape(-1), _EMPTY_INDICES, offsets, n_threads), _EMPTY_INDICES, offsets, width, False
    )


def _sparse_rows(
    values: np.ndarray, indices: np.ndarray, offsets: np.ndarray, width: int, n_threads: int
) -> kernels.Rows:
    if np.count_nonzero(values) < values.size:
        X = scipy.sparse.csr_array((values, indices, offsets), (offsets.size - 1, width), copy=True)
        X.eliminate_zeros()
        values, indices, offsets = X.data, X.indices, X.indptr
    offsets = offsets.astype(np.int64)
    return kernels.Rows(
        _normalized(values, indices, offsets, n_threads), indices.astype(np.int32), offsets, width, True
    )


def _as_csr(X: Any) -> scipy.sparse.csr_array:
    """Convert a sparse matrix of any format to CSR. Raises ValueError if an index is invalid.

    SciPy checks indices only on request, and out-of-range indices could make it access invalid memory.
    """
    try:
        checked = X.format in ("csr", "csc", "bsr")
        if checked:
            if X.indices.dtype.kind != "i" or X.indptr.dtype.kind != "i":
                raise ValueError("its indices must be signed integers")
            X = type(X)(X)  # check_format may modify its matrix
            X.check_format(full_check=True)
        elif X.format == "coo":
            X = scipy.sparse.coo_array((X.data, X.coords), X.shape)  # the constructor checks the indices
        elif X.format == "dia":
            X = scipy.sparse.dia_array((X.data, X.offsets), X.shape)  # the constructor checks the offsets
        elif X.format == "lil" and list(map(len, X.rows)) != list(map(len, X.data)):
            raise ValueError("each row must have equal numbers of indices and values")
        if X.format != "lil" and X.dtype.kind in "iub":
            X = X.astype(np.float64)  # sums of duplicates could overflow the integer type
        X = scipy.sparse.csr_array(X)
        if not checked:
            X.check_format(full_check=True)
        return X
    except (AttributeError, IndexError, OverflowError, TypeError, ValueError) as error:
        raise ValueError(f"X must be a valid sparse matrix: {error}") from error


def as_float32(values: np.ndarray) -> np.ndarray:
    if values.dtype == np.float32:
        return _for_kernels(values, np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        return _for_kernels(values, np.float32)


def _for_kernels(array: Any, dtype: type) -> np.ndarray:
    """Return a C-contiguous, writeable version of an array, as kernels require."""
    ready: np.ndarray = np.asarray(array, dtype=dtype, order="C")
    return ready if ready.flags.writeable else ready.copy()


def _normalized(values: np.ndarray, indices: np.ndarray, offsets: np.ndarray, n_threads: int) -> np.ndarray:
    unit, n_rows = np.empty(values.size, np.float32), offsets.size - 1
    length = max(_SCALED_ROWS_WORTH_A_THREAD, -(-n_rows // n_threads))
    if n_rows <= length:
        bad_rows = [kernels.normalize_rows(values, offsets, 0, n_rows, unit)]
    else:
        parts = spans(n_rows, length)
        bad_rows = map_threads(lambda part: kernels.normalize_rows(values, offsets, *part, unit), parts, n_threads)
    for bad_row in bad_rows:
        if bad_row >= 0:
            cells = slice(offsets[bad_row], offsets[bad_row + 1])
            refuse_row(bad_row, values[cells], indices[cells])
    return unit


def refuse_row(row: int, values: np.ndarray, indices: np.ndarray) -> NoReturn:
    """Raise ValueError for a row with a value that is not finite. A dense row has empty ``indices``."""
    missing = np.flatnonzero(np.isnan(values))
    if missing.size > 0:
        column = missing[0] if indices.size == 0 else indices[missing[0]]
        raise ValueError(
            f"X must be finite in float32: row {row} holds NaN, first in column {column}; fill in missing values, "
            "for example with sklearn.impute.SimpleImputer"
        )
    raise ValueError(f"X must be finite in float32: row {row} holds infinity or a value too large")


def check_ids(ids: Any) -> np.ndarray:
    """Return distinct memory ids as a one-dimensional int64 array."""
    given = _as_ids(ids)
    if given.size > 1:
        unique, counts = np.unique(given, return_counts=True)
        if unique.size < given.size:
            raise ValueError(f"ids must be distinct, but {unique[counts > 1][0]} occurs twice")
    return given


def check_memory_ids(ids: Any, n_rows: int, name: str = "ids", of: str = "rows of X") -> np.ndarray:
    """Return memory ids or group numbers, one for each of ``n_rows`` rows or ids, as int64."""
    given = _as_ids(ids, name)
    check_entries(name, given.size, n_rows, of)
    return given


def check_entries(name: str, n_found: int, n_rows: int, of: str = "rows of X") -> None:
    """Raise ValueError unless ``n_found``, the length of the argument ``name``, equals ``n_rows``."""
    if n_found != n_rows:
        raise ValueError(f"{name} must have one entry for each of the {n_rows} {of}, got {n_found}")


def check_range(name: str, values: np.ndarray, least: float, most: float) -> None:
    """Raise ValueError unless all numbers are between ``least`` and ``most``."""
    inside = (values >= least) & (values <= most)  # false for NaN
    if not inside.all():
        raise ValueError(f"{name} must be between {least} and {most}, got {values[~inside][0]}")


def _as_ids(ids: Any, name: str = "ids") -> np.ndarray:
    unmasked(name, ids)
    try:
        given = np.atleast_1d(np.asarray(ids))
    except ValueError as error:
        raise ValueError(f"{name} must be one-dimensional: {error}") from error
    if given.size == 0:
        raise ValueError(f"{name} must contain at least one id")
    if given.dtype.kind not in "iu":
        raise TypeError(f"{name} must be integers, got {given.dtype}")
    if given.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got shape {given.shape}")
    if given.dtype == np.uint64 and given.max() > np.iinfo(np.int64).max:
        raise KeyError(f"{name} must refer to stored memories, but no memory has id {given.max()}")
    return _for_kernels(given, np.int64)


def check_known(ids: np.ndarray, slots: np.ndarray, name: str = "ids") -> None:
    """Raise KeyError if an id has no slot."""
    if slots.min() < 0:
        raise KeyError(f"{name} must refer to stored memories, but no memory has id {ids[slots < 0][0]}")


def check_among(among: Any) -> tuple[np.ndarray, bool]:
    """Return the ids in an array of ids or a mask, as int64, and whether ids may be missing, as those of a mask may."""
    given = _as_array("among", among)
    if given.ndim != 1:
        raise ValueError(f"among must be one-dimensional, got shape {given.shape}")
    if given.dtype == np.bool_:
        return np.flatnonzero(given), True
    if given.dtype.kind not in "iu" and given.size > 0:  # NumPy converts an empty list to float64
        raise TypeError(f"among must be integers or booleans, got {given.dtype}")
    if given.dtype == np.uint64 and given.size > 0 and given.max() > np.iinfo(np.int64).max:
        raise KeyError(f"among must refer to stored memories, but no memory has id {given.max()}")
    return _for_kernels(given, np.int64), False


def check_rewards(rewards: Any, ids: np.ndarray, *, may_be_unknown: bool = False) -> np.ndarray:
    """Return rewards as float32 of shape (n, 1) or, if every hit has a reward, (n, k). NaN may stand for unknown."""
    rewards = _as_array("rewards", rewards)
    if rewards.dtype.kind not in "fiub":
        raise TypeError(f"rewards must be real numbers, got {rewards.dtype}")
    if rewards.shape not in ((ids.shape[0],), ids.shape):
        raise ValueError(f"rewards must have shape {(ids.shape[0],)} or {ids.shape} like the hits, got {rewards.shape}")
    # a few rewards without NaN are checked several times as fast
    if rewards.size == 0 or not (rewards.min() >= 0 and rewards.max() <= 1):
        check_range("rewards", rewards[~np.isnan(rewards)] if may_be_unknown else rewards, 0, 1)
    return np.ascontiguousarray(rewards.reshape(ids.shape[0], -1), dtype=np.float32)


def check_hits(hits: Any, n_rows: int, state: forest.State | None) -> kernels.Hits:
    """Return validated hits of a query of ``n_rows`` rows."""
    if not isinstance(hits, kernels.Hits) or not isinstance(hits.exploration, kernels.Exploration):
        raise TypeError(f"hits must be the return value of query, got {type(hits).__name__}")
    checked = kernels.Hits(hits.ids, hits.scores, hits.exploration)
    if not _are_as_returned(hits, n_rows):
        checked = _converted_hits(hits, n_rows)
    if state is not None and not _could_be(state, checked.exploration):
        raise ValueError("hits.exploration must come from this forest: pass the unchanged hits that query returned")
    return checked


def _converted_hits(hits: kernels.Hits, n_rows: int) -> kernels.Hits:
    ids = _as_integers("hits.ids", hits.ids, np.int64)
    if ids.ndim != 2 or ids.shape[0] != n_rows or ids.shape[1] == 0:
        raise ValueError(f"hits must have one row for each of the {n_rows} rows of X, got shape {ids.shape}")
    scores = _as_numbers("hits.scores", hits.scores)
    if scores.shape != ids.shape:
        raise ValueError(f"hits.scores must have shape {ids.shape} like hits.ids, got {scores.shape}")
    dtypes = {"tree": np.int32, "node": np.int32, "generation": np.int32, "side": np.int8}
    columns = {n: _as_integers(f"hits.exploration.{n}", getattr(hits.exploration, n), dtypes[n]) for n in dtypes}
    columns["probability"] = _as_numbers("hits.exploration.probability", hits.exploration.probability)
    for name, column in columns.items():
        if column.shape != (n_rows,):
            raise ValueError(f"hits.exploration.{name} must have shape {(n_rows,)}, got {column.shape}")
    return kernels.Hits(ids, scores, kernels.Exploration(**columns))


def _are_as_returned(hits: kernels.Hits, n_rows: int) -> bool:
    """Return whether all arrays have the dtypes and shapes of a query's result for ``n_rows`` rows."""
    ids, shape = hits.ids, (n_rows,)
    if type(ids) is not np.ndarray or ids.ndim != 2 or ids.shape[0] != n_rows or ids.shape[1] == 0:
        return False
    shapes = (ids.shape, ids.shape, shape, shape, shape, shape, shape)
    for array, dtype, expected in zip((ids, hits.scores, *hits.exploration), _DTYPES_OF_HITS, shapes, strict=True):
        if type(array) is not np.ndarray or array.dtype != dtype or array.shape != expected or not array.flags.carray:
            return False
    return True


def _as_integers(name: str, values: Any, dtype: type) -> np.ndarray:
    """Return an array of integers of ``dtype``. Whole floats are valid: pandas uses them where values are missing."""
    given = _as_array(name, values)
    if given.dtype == dtype:
        return _for_kernels(given, dtype)
    if given.dtype.kind not in "iuf":
        raise TypeError(f"{name} must be integers, got {given.dtype}")
    with np.errstate(invalid="ignore"):
        cast = _for_kernels(given, dtype)
    changed = cast != given  # also true for NaN
    if changed.any():
        raise ValueError(f"{name} must be integers that fit into {np.dtype(dtype)}, got {given[changed][0]}")
    return cast


def _as_numbers(name: str, values: Any) -> np.ndarray:
    given = _as_array(name, values)
    if given.dtype.kind not in "fiu":
        raise TypeError(f"{name} must be real numbers, got {given.dtype}")
    return _for_kernels(given, np.float32) if given.dtype == np.float32 else as_float32(given)


def _as_array(name: str, values: Any) -> np.ndarray:
    unmasked(name, values)
    try:
        return np.asarray(values)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be an array of real numbers: {error}") from error


def _could_be(state: forest.State, exploration: kernels.Exploration) -> bool:
    """Return whether a query of the forest can return this exploration. Kernels use its fields as indices."""
    tree, node = exploration.tree, exploration.node
    if not ((~tree).any() or (~node).any()):  # NONE everywhere
        return True
    if tree.min() < kernels.NONE or tree.max() >= state.parameters.n_trees or node.min() < kernels.NONE:
        return False
    nodes_end = np.where(tree == kernels.NONE, 0, state.counters[tree, forest.NODES_END])
    explored = node != kernels.NONE
    side, probability = exploration.side[explored], exploration.probability[explored]
    return bool(
        np.all(node < nodes_end)
        and np.all((side == kernels.LEFT) | (side == kernels.RIGHT))
        and np.all((probability > 0) & (probability <= 1))
    )


def check_integer(name: str, value: Any, least: int, most: int = 2**31 - 1) -> int:
    """Return an integer argument between ``least`` and ``most``. Raises TypeError or ValueError."""
    if not isinstance(value, _INTEGERS) or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if not least <= value <= most:
        raise ValueError(f"{name} must be between {least} and {most}, got {value}")
    return int(value)


def check_wanted(name: str, value: Any, n_stored: int) -> int:
    """Return an argument such as ``k``, the number of memories or labels to return per row."""
    return check_integer(name, value, 1, max(MOST_WANTED, n_stored))


def check_real(name: str, value: Any, least: float, most: float, *, above: bool = False) -> float:
    """Return a real argument between ``least`` and ``most``, excluding ``least`` if ``above`` is True."""
    if not isinstance(value, _REALS) or isinstance(value, bool):
        raise TypeError(f"{name} must be a real number, got {value!r}")
    if not least <= value <= most or (above and value == least) or not np.isfinite(value):
        bound = f"above {least} and at most {most}" if above else f"between {least} and {most}"
        raise ValueError(f"{name} must be {bound}, got {value}")
    return float(value)


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> int:
    """Return the index of a string argument in ``choices``."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return choices.index(value)


class Constraint(Protocol):
    """The valid values of an option. ``str`` returns their type in numpydoc notation."""

    def check(self, name: str, value: Any) -> Any:
        """Return the value of the option ``name``. Raises TypeError or ValueError if it is invalid."""


class Constrained:
    """A class whose fields state their constraints, as in ``n: Annotated[int, Integer(1)] = 5``."""

    _constraints: ClassVar[dict[str, Constraint]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        fields = inspect.get_annotations(cls, eval_str=True)
        constrained = {name: field for name, field in fields.items() if hasattr(field, "__metadata__")}
        cls._constraints = cls._constraints | {name: field.__metadata__[0] for name, field in constrained.items()}
        # Signatures and help show the plain types.
        cls.__annotations__ = fields | {name: field.__origin__ for name, field in constrained.items()}


def check_parameters(owner: Any, constraints: dict[str, Constraint]) -> None:
    """Check the attributes of ``owner`` that have constraints. Raises TypeError or ValueError."""
    for name, constraint in constraints.items():
        constraint.check(name, getattr(owner, name))


class Integer(NamedTuple):
    """Integers from ``least`` to ``most``."""

    least: int
    most: int = 2**31 - 1

    def check(self, name: str, value: Any) -> int:
        """Return the value of an option, as an int."""
        return check_integer(name, value, self.least, self.most)

    def __str__(self) -> str:
        return "int"


class Real(NamedTuple):
    """Real numbers from ``least`` to ``most``, excluding ``least`` if ``above`` is True."""

    least: float
    most: float
    above: bool = False

    def check(self, name: str, value: Any) -> float:
        """Return the value of an option, as a float."""
        return check_real(name, value, self.least, self.most, above=self.above)

    def __str__(self) -> str:
        return f"float in {'(' if self.above else '['}{self.least:g}, {self.most:g}]" if self.most <= 1 else "float"


class OneOf(NamedTuple):
    """One of several strings."""

    choices: tuple[str, ...]

    def check(self, name: str, value: Any) -> str:
        """Return the value of an option."""
        return self.choices[check_choice(name, value, self.choices)]

    def __str__(self) -> str:
        return "{" + ", ".join(f'"{choice}"' for choice in self.choices) + "}"


class Flag(NamedTuple):
    """True and False."""

    def check(self, name: str, value: Any) -> bool:
        """Return the value of an option, as a bool."""
        if not isinstance(value, bool | np.bool_):
            raise TypeError(f"{name} must be True or False, got {value!r}")
        return bool(value)

    def __str__(self) -> str:
        return "bool"


class Optional(NamedTuple):
    """None, and the values that another constraint allows."""

    other: Constraint

    def check(self, name: str, value: Any) -> Any:
        """Return the value of an option."""
        return None if value is None else self.other.check(name, value)

    def __str__(self) -> str:
        return str(self.other)


class Checked(NamedTuple):
    """The values for which a function raises no exception."""

    function: Callable[[Any], Any]
    type: str

    def check(self, name: str, value: Any) -> Any:
        """Return the value of an option unchanged."""
        self.function(value)
        return value

    def __str__(self) -> str:
        return self.type


def check_jobs(n_jobs: Any) -> int | None:
    """Convert scikit-learn's ``n_jobs`` to a number of threads, or to None for Numba's number of threads."""
    if n_jobs is None:
        return 1
    return None if n_jobs == -1 else check_integer("n_jobs", n_jobs, 1)


def check_seed(random_state: Any) -> np.random.SeedSequence:
    """Convert ``random_state``, which is None, a non-negative integer or a NumPy SeedSequence, to a SeedSequence."""
    if isinstance(random_state, np.random.SeedSequence):
        return random_state
    if random_state is None:
        return np.random.SeedSequence()
    return np.random.SeedSequence(check_integer("random_state", random_state, 0, 2**64 - 1))


Jobs = Annotated[int | None, Checked(check_jobs, "int")]
Seed = Annotated[int | np.random.SeedSequence | None, Checked(check_seed, "int or numpy.random.SeedSequence")]
