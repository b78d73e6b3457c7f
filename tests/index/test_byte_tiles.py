"""Vector instructions for 8-bit codes give the same numbers as plain Python."""

from typing import Any

import numpy as np
import pytest
from conftest import needs_jit
from internals import index_room

from cmt_numba._index import byte_tiles
from cmt_numba._jit import TILE


@needs_jit
@pytest.mark.parametrize(
    "way", [*byte_tiles._INSTRUCTIONS, ("", *byte_tiles._WITHOUT)], ids=lambda way: way[0] or "any"
)
def test_scores_of_a_tile_for_rows(way: Any, monkeypatch: pytest.MonkeyPatch):
    from numba import njit
    from numba.core.registry import cpu_target

    if way[0] and f"+{way[0]}" not in cpu_target.target_context.codegen()._tm_features.split(","):
        pytest.skip("kernels are compiled for a processor without the instructions")
    monkeypatch.setattr(byte_tiles, "_instruction", lambda *_: way[1:])
    score_rows = byte_tiles.score_rows

    @njit  # type: ignore[untyped-decorator]
    def compiled(a: Any, at: Any, b: Any, of: Any, n: Any, c: Any, d: Any, e: Any, f: Any, g: Any, scores: Any) -> Any:
        return score_rows(a, at, b, of, n, c, d, e, f, g, scores)

    rng = np.random.default_rng(0)
    for n_groups, values in ((1, [-64, 64, 5]), (9, [-64, 64]), (1024, [64]), (1024, [-64, 0, 63])):
        codes = rng.choice(np.array([-128, 127, 126, 0], np.int8), 256 + n_groups * TILE * 4)  # 0, 255, 254 and 128
        of_rows = rng.choice(np.array(values, np.int8), (12, 4 * n_groups))
        shifts = rng.integers(-1000, 1000, 12).astype(np.int32)
        numbers, factors = (rng.integers(-2, 3, n).astype(np.float32) for n in (3 * TILE, 12))
        numbers[2 * TILE + 5] = -np.inf
        bars, rows = (
            (1e6 * rng.normal(size=index_room.byte_tiles.ROWS)).astype(np.float32),
            rng.integers(0, 12, index_room.byte_tiles.ROWS),
        )
        given = codes, 256, numbers, TILE, n_groups, of_rows, shifts, factors, bars, rows
        scores = np.zeros((2, index_room.byte_tiles.ROWS * TILE + 3), np.float32)
        assert compiled(*given, scores[0]) == byte_tiles.score_rows_slowly(*given, scores[1])
        np.testing.assert_array_equal(scores[0], scores[1])


@needs_jit
def test_transposed_blocks():
    from numba import njit

    transpose_block = byte_tiles.transpose_block

    @njit  # type: ignore[untyped-decorator]
    def compiled(source: Any, at: Any, stride: Any, target: Any, to: Any) -> None:
        transpose_block(source, at, stride, target, to)

    source = np.random.default_rng(0).integers(-127, 128, (32, 100)).astype(np.int8)
    found, expected = np.zeros((2, 3000), np.int8)
    for at, stride, to in ((0, 100, 0), (16 * 100 + 7, 100, 64), (0, 64, 900)):
        compiled(source, at, stride, found, to)
        byte_tiles.transpose_block_slowly(source, at, stride, expected, to)
        np.testing.assert_array_equal(found, expected)
