"""Codes of vectors side by side: what compiled functions say, with each instruction, and what plain Python says."""

from typing import Any

import numpy as np
import pytest
from conftest import needs_jit

from cmt_numba._jit import tiles
from cmt_numba._jit.tiles import FEATURES_OF_A_WORD, LARGEST_CODE, ROWS_OF_A_TILE, TILE, TileQueries, Tiles

N_TILES, N_ROWS = 3, 11
ANY = "none of them"
INSTRUCTIONS = [feature for feature, _, _ in tiles._INSTRUCTIONS]


def codes_of(kind: str, n_groups: int) -> tuple[np.ndarray, np.ndarray]:
    """Return codes of vectors and of rows: any, or the largest that there are."""
    rng, n = np.random.default_rng(0), n_groups * FEATURES_OF_A_WORD
    if kind == "any":
        vectors = rng.integers(-LARGEST_CODE, LARGEST_CODE + 1, size=N_TILES * n * TILE)
        return vectors.astype(np.int8), rng.integers(0, LARGEST_CODE + 1, size=N_ROWS * n).astype(np.uint8)
    sign = -1 if kind == "least" else 1
    return np.full(N_TILES * n * TILE, sign * LARGEST_CODE, np.int8), np.full(N_ROWS * n, LARGEST_CODE, np.uint8)


def tiles_and_rows(kind: str, n_groups: int) -> tuple[Tiles, TileQueries]:
    rng = np.random.default_rng(1)
    vectors, rows = codes_of(kind, n_groups)
    begun = rng.integers(-1000, 1000, size=N_TILES * TILE).astype(np.int32)
    scales, added = rng.normal(size=(2, N_TILES * TILE)).astype(np.float32)
    added[-5:] = -np.inf
    bars = 20_000.0 * rng.normal(size=N_ROWS).astype(np.float32)
    places = n_groups * rng.permutation(N_ROWS)
    return Tiles(vectors, begun, scales, added), TileQueries(
        rows.view(np.int32), places, rng.random(N_ROWS, np.float32), bars
    )


@needs_jit
@pytest.mark.parametrize("feature", [*INSTRUCTIONS, ANY])
def test_every_instruction_gives_the_same_scores(feature: str, monkeypatch: pytest.MonkeyPatch):
    from numba import njit
    from numba.core.registry import cpu_target

    if feature != ANY and f"+{feature}" not in cpu_target.target_context.codegen()._tm_features.split(","):
        pytest.skip("not an instruction of this processor")
    monkeypatch.setattr(tiles, "_INSTRUCTIONS", [it for it in tiles._INSTRUCTIONS if it[0] == feature])
    score_tile, score_tile_for_one = tiles.score_tile, tiles.score_tile_for_one

    @njit  # type: ignore[untyped-decorator]
    def compiled(vectors: Any, tile: Any, asked: Any, n_groups: Any, scores: Any) -> Any:
        marks = score_tile(vectors, tile, asked, 2, n_groups, scores, 5, 40)
        return marks, score_tile_for_one(vectors, tile, asked, 1, n_groups, scores, 400, TILE)

    for kind in ("any", "most", "least"):
        for n_groups in (1, 2, 9):
            vectors, asked = tiles_and_rows(kind, n_groups)
            for tile in range(N_TILES):
                ours, expected = np.zeros((2, 500), np.float32)
                marks = compiled(vectors, tile, asked, n_groups, ours)
                assert marks[0] == score_tile(vectors, tile, asked, 2, n_groups, expected, 5, 40)
                assert marks[1] == score_tile_for_one(vectors, tile, asked, 1, n_groups, expected, 400, TILE)
                np.testing.assert_array_equal(ours, expected)


def test_scores_are_products_of_decoded_keys():
    vectors, asked = tiles_and_rows("any", 6)
    codes = (
        vectors.codes.reshape(N_TILES, 6, TILE, FEATURES_OF_A_WORD).transpose(0, 2, 1, 3).reshape(-1, 24).astype(int)
    )
    rows = asked.codes.view(np.uint8).reshape(N_ROWS, 24)[asked.places // 6].astype(int)
    scores = np.zeros(ROWS_OF_A_TILE * TILE, np.float32)
    marks = tiles.score_tile(vectors, 1, asked, 3, 6, scores, 0, TILE)
    span = slice(TILE, 2 * TILE)
    sums = rows[3:] @ codes[span].T + vectors.starts[span]
    expected = sums * vectors.scales[span] * asked.scales[3:, None] + vectors.added[span]
    np.testing.assert_allclose(scores.reshape(-1, TILE), expected, rtol=1e-5)
    above = (scores.reshape(-1, TILE) > asked.bars[3:, None]).any(axis=1)
    assert 0 < above.sum() < ROWS_OF_A_TILE
    assert [bool(marks >> i & 1) for i in range(ROWS_OF_A_TILE)] == above.tolist()


@needs_jit
def test_marks():
    from numba import njit

    marks_of, first_of = tiles.marks_of, tiles.first_of

    @njit  # type: ignore[untyped-decorator]
    def compiled(scores: Any, at: Any, least: Any) -> Any:
        marks = marks_of(scores, at, least)
        return marks, first_of(marks) if marks != 0 else -1

    scores = np.random.default_rng(0).normal(size=100).astype(np.float32)
    scores[40] = -np.inf
    for at in (0, 7, 40, 68):
        for least in (scores[at : at + TILE].max(), scores[at + TILE - 1], np.float32(0.5), np.float32(-np.inf)):
            marks = marks_of(scores, at, least)
            above = [i for i in range(TILE) if scores[at + i] >= least]
            assert [i for i in range(64) if marks >> i & 1] == above
            assert compiled(scores, at, least) == (marks, above[0] if above else -1)
            assert not above or first_of(marks) == above[0]
