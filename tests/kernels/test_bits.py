"""Vector instructions for 1-bit codes give the same numbers as plain Python."""

from typing import Any

import numpy as np
import pytest
from conftest import needs_jit

from cmt_numba._jit import BITS_OF_A_WORD, FORM, TILE, bits


@needs_jit
@pytest.mark.parametrize("n_words", [1, 2, 7])
@pytest.mark.parametrize("kind", ["any", "all set", "none set"])
def test_scores_of_a_tile(kind: str, n_words: int):
    from numba import njit

    write_form, score_tile = bits.write_form, bits.score_tile

    @njit  # type: ignore[untyped-decorator]
    def compiled(codes: Any, values: Any, forms: Any, factors: Any, added: Any, least: Any, scores: Any) -> Any:
        numbers, n_words = (np.float32(0.5), np.float32(2.0), np.float32(-3.0)), codes.size // 64
        for w in range(n_words):
            write_form(values, 5 + 64 * w, forms, 3 + FORM * w)
        return score_tile(codes, 1, n_words, forms, 3, factors, added, *numbers, least, scores, 7)

    rng, most = np.random.default_rng(0), np.iinfo(np.uint64).max
    words = {"any": rng.integers(most, size=2 * n_words * TILE, dtype=np.uint64, endpoint=True)}
    words["all set"], words["none set"] = np.full(2 * n_words * TILE, most), np.zeros(2 * n_words * TILE, np.uint64)
    values = rng.integers(-7, 8, 5 + n_words * BITS_OF_A_WORD).astype(np.int8)
    values[5 : 5 + BITS_OF_A_WORD] = rng.choice([-7, 7])  # the largest sums
    forms = np.zeros((2, 3 + n_words * FORM), np.uint64)
    for w in range(n_words):
        bits.write_form_slowly(values, 5 + BITS_OF_A_WORD * w, forms[1], 3 + FORM * w)
    factors, added = rng.integers(-2, 3, size=(2, 2 * TILE)).astype(np.float32)  # whole numbers, so that sums are exact
    added[TILE + 4] = -np.inf
    scores = np.zeros((2, 50), np.float32)
    for least in (np.float32(0.0), np.float32(-np.inf)):
        marks = compiled(words[kind], values, forms[0], factors, added, least, scores[0])
        numbers = np.float32(0.5), np.float32(2.0), np.float32(-3.0)
        expected = bits.score_tile_slowly(
            words[kind], 1, n_words, forms[1], 3, factors, added, *numbers, least, scores[1], 7
        )
        np.testing.assert_array_equal(scores[0], scores[1])
        assert marks == expected
        assert not scores[0, :7].any()
        assert not scores[0, 7 + TILE :].any()


@needs_jit
def test_masks_and_transforms():
    from numba import njit

    signs_of, transform, add = bits.signs_of, bits.transform_block, bits.add_and_subtract

    @njit  # type: ignore[untyped-decorator]
    def compiled(x: Any, at: Any) -> Any:
        signs = signs_of(x, at)
        transform(x, at)
        add(x, at, 32)
        return signs

    rng = np.random.default_rng(0)
    x = rng.integers(-8, 9, 100).astype(np.float32)  # whole numbers, so that any order of additions is exact
    expected = x.copy()
    for at in (0, 7, 100 - BITS_OF_A_WORD):
        signs = bits.signs_of_slowly(expected, at)
        bits.transform_block_slowly(expected, at)
        bits.add_and_subtract_slowly(expected, at, 32)
        assert compiled(x, at) == signs
        np.testing.assert_array_equal(x, expected)


@needs_jit
def test_marks():
    from numba import njit

    marks_of, first_of = bits.marks_of, bits.first_of

    @njit  # type: ignore[untyped-decorator]
    def compiled(scores: Any, at: Any, least: Any) -> Any:
        marks = marks_of(scores, at, least)
        return marks, first_of(marks) if marks != 0 else -1

    scores = np.random.default_rng(0).normal(size=100).astype(np.float32)
    scores[40] = -np.inf
    for at in (0, 7, 40, 68):
        for least in (scores[at : at + TILE].max(), scores[at + TILE - 1], np.float32(0.5), np.float32(-np.inf)):
            marks = bits.marks_of_slowly(scores, at, least)
            above = [i for i in range(TILE) if scores[at + i] >= least]
            assert [i for i in range(64) if marks >> i & 1] == above
            assert compiled(scores, at, least) == (marks, above[0] if above else -1)
            assert not above or bits.first_of_slowly(marks) == above[0]


@needs_jit
def test_products():
    from numba import njit

    add_products, add_row_pairs = bits.add_products, bits.add_row_pairs

    @njit  # type: ignore[untyped-decorator]
    def compiled(shorts: Any, codes: Any, n_blocks: Any) -> Any:
        return add_products(shorts, codes, n_blocks)

    @njit  # type: ignore[untyped-decorator]
    def compiled_pairs(codes: Any, block: Any, pairs: Any, shorts: Any, n: Any, sums: Any) -> None:
        add_row_pairs(codes, block, pairs, shorts, n, sums)

    rng = np.random.default_rng(0)
    shorts, codes = (
        rng.integers(-4095, 4096, 101).astype(np.int16)[1:],
        rng.integers(-127, 128, 101).astype(np.int8)[1:],
    )
    for n_blocks in (1, 2, 3):
        assert compiled(shorts, codes, n_blocks) == bits.add_products_slowly(shorts, codes, n_blocks)
    matrix, pairs = rng.integers(-127, 128, (3, 9, 128)).astype(np.int8), np.array([3, 8, 0, 0, 5, 7, 1])
    for block, n in ((0, 1), (1, 6), (2, 7)):
        sums = np.zeros((2, 192), np.int32)
        compiled_pairs(matrix, block, pairs, shorts, n, sums[0])
        bits.add_row_pairs_slowly(matrix, block, pairs, shorts, n, sums[1])
        np.testing.assert_array_equal(sums[0], sums[1])
