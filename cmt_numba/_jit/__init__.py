"""Decorators that compile kernels, functions for use in kernels, and the settings of Numba."""

from .arrays import empty, prefetch, zeros
from .bits import (
    BITS_OF_A_WORD,
    BLOCK,
    COLUMNS,
    FORM,
    LARGEST_CODE,
    PRODUCTS,
    TILE,
    add_and_subtract,
    add_products,
    add_row_pairs,
    array_data,
    everywhere,
    first_of,
    marks_of,
    pointer_at,
    read_vector,
    score_tile,
    signs_of,
    transform_block,
    write_form,
)
from .decorators import (
    as_python,
    inner,
    inner_allocating,
    inner_called,
    inner_exported,
    inner_fastmath,
    kernel,
    quick_kernel,
)
from .held import held
from .inlining import Known, known
from .interpreter_lock import keeping_interpreter, keeps_interpreter, switching_soon
from .references import by_reference, release
