"""Vector instructions for 1-bit codes: the compiled functions and plain Python agree."""

from typing import Any

import numpy as np
from conftest import needs_jit

from cmt_numba._jit import bits as bit_codes
from cmt_numba._jit import kernel


@kernel
def _count(words: Any, at: Any, n_words: Any, planes: Any, first: Any, sums: Any) -> None:
    bit_codes.count_bits(words, at, n_words, planes, first, sums)


@kernel
def _mark(x: Any, numbers: Any, words: Any) -> None:
    words[0] = bit_codes.signs_of(x, 3)
    for p in range(4):
        words[1 + p] = bit_codes.plane_of(numbers, 5, p)


@kernel
def _transform(x: Any) -> None:
    bit_codes.add_and_subtract(x, 2, 20)
    bit_codes.transform_block(x, 1)


@needs_jit
def test_compiled_functions_do_as_plain_python():
    rng = np.random.default_rng(0)
    words = rng.integers(0, 2**64, size=300, dtype=np.uint64)
    planes = rng.integers(0, 2**64, size=20, dtype=np.uint64)
    ours, expected = np.zeros(32, np.int32), np.zeros(32, np.int32)
    for n_words in (1, 3):
        _count(words, 40, n_words, planes, 4, ours)
        bit_codes.count_bits_slowly(words, 40, n_words, planes, 4, expected)
        np.testing.assert_array_equal(ours, expected)
    x, numbers = rng.standard_normal(80).astype(np.float32), rng.integers(-8, 8, size=80).astype(np.int8)
    x[10] = 0.0
    marks = np.zeros(5, np.uint64)
    _mark(x, numbers, marks)
    assert marks[0] == bit_codes.signs_of_slowly(x, 3)
    assert [bit_codes.plane_of_slowly(numbers, 5, p) for p in range(4)] == marks[1:].tolist()
    twin = x.copy()
    _transform(x)
    bit_codes.add_and_subtract_slowly(twin, 2, 20)
    bit_codes.transform_block_slowly(twin, 1)
    np.testing.assert_allclose(x, twin, rtol=1e-5, atol=1e-5)


def test_sums_are_those_of_four_bit_numbers():
    rng = np.random.default_rng(1)
    signs, numbers = rng.random((32, 64)) < 0.5, rng.integers(-8, 8, size=64).astype(np.int8)
    words = np.packbits(signs, axis=1, bitorder="little").view(np.uint64)[:, 0]
    planes = np.array([bit_codes.plane_of_slowly(numbers, 0, p) for p in range(4)], np.uint64)
    sums = np.zeros(32, np.int32)
    bit_codes.count_bits_slowly(words, 0, 1, planes, 0, sums)
    np.testing.assert_array_equal(sums, signs @ numbers.astype(np.int64))
