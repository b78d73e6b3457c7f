"""Scores of the codes of 32 vectors at a time for a few rows, in whole registers.

One vector after the other, every dot product ends with adding up the lanes of a register, and the next one reads its
codes again. Here the codes of 32 vectors lie side by side, two features of each at a time, so each lane of a register
adds up one product, and codes that have been read serve all rows. Processors of the x86 kind multiply and add pairs of
16-bit integers in one instruction; others do it in the steps that the code generator finds.
"""

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import lower_builtin, type_callable

TILE = 32
"""Vectors whose codes lie side by side."""

ROWS_OF_A_TILE = 8
"""Rows that are multiplied with them together."""

_LANES = 16  # products of a register
_HALVES = TILE // _LANES
_BYTE, _SHORT, _INT, _WORD = (ir.IntType(bits) for bits in (8, 16, 32, 64))
_SUMS, _SCORES = ir.VectorType(_INT, _LANES), ir.VectorType(ir.FloatType(), _LANES)
_CODES, _PAIRS = ir.VectorType(_BYTE, 2 * _LANES), ir.VectorType(_SHORT, 2 * _LANES)
_NOTHING = ir.Constant(_SUMS, [0] * _LANES)
_MULTIPLY_ADD = {
    "avx512bw": (2 * _LANES, "llvm.x86.avx512.pmaddw.d.512"),
    "avx2": (_LANES, "llvm.x86.avx2.pmadd.wd"),
    "sse2": (_LANES // 2, "llvm.x86.sse2.pmadd.wd"),
}
"""Features of processors, the best first: how many integers an instruction takes, and its name."""


class Tiles(NamedTuple):
    """Codes of vectors, 32 to a tile: for each pair of features the two codes of each of them."""

    codes: np.ndarray  # int8 (n_tiles * pairs of features * 64,)
    scales: np.ndarray  # float32 (n_tiles * 32,): what the codes of each are to be multiplied by
    added: np.ndarray  # float32 (n_tiles * 32,): to the score of each


class Asked(NamedTuple):
    """Up to eight rows that are asked together, of all those that are there."""

    codes: np.ndarray  # int32 (rows * pairs of features,): two 16-bit integers in each
    places: np.ndarray  # int64 (8,): where the codes of each begin
    scales: np.ndarray  # float32 (8,), of the codes
    bars: np.ndarray  # float32 (8,): scores above it are noted


def score_tile(tiles: Any, tile: Any, asked: Any, n_pairs: Any, scores: Any, at: Any, width: Any) -> Any:
    """Write the scores of a tile for eight rows, and return whether one of them is above its row's bar.

    Parameters
    ----------
    tiles : Tiles
    tile : int
    asked : Asked
    n_pairs : int
        Pairs of features, at least 1.
    scores : ndarray of float32
    at, width : int
        Those of row ``i`` are written from ``at + i * width`` on.
    """
    return _score(ROWS_OF_A_TILE, tiles, tile, asked, n_pairs, scores, at, width)


def score_tile_for_one(tiles: Any, tile: Any, asked: Any, n_pairs: Any, scores: Any, at: Any, width: Any) -> Any:
    """Do what :func:`score_tile` does, for the first of the eight rows alone."""
    return _score(1, tiles, tile, asked, n_pairs, scores, at, width)


def _score(n_rows: int, tiles: Any, tile: Any, asked: Any, n_pairs: Any, scores: Any, at: Any, width: Any) -> bool:
    span, n_codes, above = slice(tile * TILE, (tile + 1) * TILE), n_pairs * 2 * TILE, False
    codes = tiles.codes[tile * n_codes : (tile + 1) * n_codes].reshape(n_pairs, TILE, 2).astype(np.int32)
    for i in range(n_rows):
        row = asked.codes[asked.places[i] : asked.places[i] + n_pairs].view(np.int16).reshape(n_pairs, 1, 2)
        sums = (codes * row).sum(axis=(0, 2)).astype(np.float32)
        values = sums * (tiles.scales[span] * asked.scales[i]) + tiles.added[span]
        scores[at + i * width : at + i * width + TILE] = values
        above |= bool((values > asked.bars[i]).any())
    return above


def _type_of(context: Any) -> Any:
    def returns(tiles: Any, tile: Any, asked: Any, n_pairs: Any, scores: Any, at: Any, width: Any) -> Any:
        numbers = (tile, n_pairs, at, width)
        fit = isinstance(scores, types.Array) and all(isinstance(number, types.Integer) for number in numbers)
        is_known = getattr(tiles, "instance_class", None) is Tiles and getattr(asked, "instance_class", None) is Asked
        return types.boolean if fit and is_known else None

    return returns


def _multiplied(context: Any, builder: Any, codes: Any, pairs: Any) -> Any:
    """Return the sums of the products of neighbours in two registers of 16-bit integers."""
    features = context.codegen()._tm_features.split(",") if "x86" in builder.module.triple else []
    for feature, (width, name) in _MULTIPLY_ADD.items():
        if f"+{feature}" in features:
            part, halved = ir.VectorType(_SHORT, width), ir.VectorType(_INT, width // 2)
            function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(halved, [part, part]), name)
            both = [_divided(builder, it, width) for it in (codes, pairs)]
            return _joined(builder, [builder.call(function, part) for part in zip(*both, strict=True)])
    total = None
    for first in (0, 1):
        every_other = _mask(range(first, 2 * _LANES, 2))
        factors = [builder.shuffle_vector(it, ir.Constant(_PAIRS, ir.Undefined), every_other) for it in (codes, pairs)]
        product = builder.mul(*(builder.sext(it, _SUMS) for it in factors))
        total = product if total is None else builder.add(total, product)
    return total


def _mask(places: Any) -> Any:
    return ir.Constant(ir.VectorType(_INT, len(places)), list(places))


def _divided(builder: Any, vector: Any, width: int) -> list[Any]:
    nothing = ir.Constant(vector.type, ir.Undefined)
    starts = range(0, vector.type.count, width)
    return [builder.shuffle_vector(vector, nothing, _mask(range(first, first + width))) for first in starts]


def _joined(builder: Any, parts: list[Any]) -> Any:
    while len(parts) > 1:
        both = _mask(range(2 * parts[0].type.count))
        parts = [builder.shuffle_vector(*pair, both) for pair in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def _pointers(context: Any, builder: Any, of_type: Any, arrays: Any) -> list[Any]:
    """Return where the data of each array of a tuple is."""
    parts = cgutils.unpack_tuple(builder, arrays, len(of_type))
    return [context.make_array(it)(context, builder, part).data for it, part in zip(of_type, parts, strict=True)]


def _read(builder: Any, pointer: Any, at: Any, of_type: Any) -> Any:
    """Return a register that is read from an array."""
    value = builder.load(builder.bitcast(builder.gep(pointer, [at]), of_type.as_pointer()))
    value.align = pointer.type.pointee.width // 8 if isinstance(pointer.type.pointee, ir.IntType) else 4
    return value


def _everywhere(builder: Any, value: Any) -> Any:
    """Return a register that holds a number in each lane."""
    kind = ir.VectorType(value.type, _LANES)
    alone = builder.insert_element(ir.Constant(kind, ir.Undefined), value, _INT(0))
    return builder.shuffle_vector(alone, ir.Constant(kind, ir.Undefined), _mask([0] * _LANES))


def _lowered(n_rows: int) -> Any:
    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        of_type = signature.args
        codes, scales, added = _pointers(context, builder, of_type[0], arguments[0])
        asked, places, of_rows, bars = _pointers(context, builder, of_type[2], arguments[2])
        scores = context.make_array(of_type[4])(context, builder, arguments[4]).data
        tile, n_pairs, at, width = (context.cast(builder, arguments[i], of_type[i], types.int64) for i in (1, 3, 5, 6))
        rows = [builder.load(builder.gep(places, [_WORD(i)])) for i in range(n_rows)]
        start = builder.mul(tile, builder.mul(n_pairs, _WORD(2 * TILE)))
        before, loop, end = builder.block, builder.append_basic_block("pairs"), builder.append_basic_block("summed")
        builder.branch(loop)
        builder.position_at_end(loop)
        pair = builder.phi(_WORD)
        totals = [builder.phi(_SUMS) for _ in range(n_rows * _HALVES)]
        here = builder.add(start, builder.mul(pair, _WORD(2 * TILE)))
        halves = []
        for half in range(_HALVES):
            read = _read(builder, codes, builder.add(here, _WORD(half * 2 * _LANES)), _CODES)
            halves.append(builder.sext(read, _PAIRS))
        more = []
        for row in rows:
            both = _everywhere(builder, builder.load(builder.gep(asked, [builder.add(row, pair)])))
            more += [_multiplied(context, builder, half, builder.bitcast(both, _PAIRS)) for half in halves]
        sums = [builder.add(total, value) for total, value in zip(totals, more, strict=True)]
        following = builder.add(pair, _WORD(1))
        for phi, first, then in [
            (pair, _WORD(0), following),
            *((t, _NOTHING, s) for t, s in zip(totals, sums, strict=True)),
        ]:
            phi.add_incoming(first, before)
            phi.add_incoming(then, loop)
        builder.cbranch(builder.icmp_signed("<", following, n_pairs), loop, end)
        builder.position_at_end(end)
        of_tile = builder.mul(tile, _WORD(TILE))
        is_above = ir.Constant(ir.VectorType(ir.IntType(1), _LANES), [0] * _LANES)
        for half in range(_HALVES):
            place = builder.add(of_tile, _WORD(half * _LANES))
            scale, more_of_each = (_read(builder, it, place, _SCORES) for it in (scales, added))
            for i in range(n_rows):
                of_row, bar = (builder.load(builder.gep(it, [_WORD(i)])) for it in (of_rows, bars))
                factor = builder.fmul(scale, _everywhere(builder, of_row))
                score = builder.fmul(builder.sitofp(sums[i * _HALVES + half], _SCORES), factor)
                score = builder.fadd(score, more_of_each)
                target = builder.add(builder.add(at, builder.mul(width, _WORD(i))), _WORD(half * _LANES))
                address = builder.bitcast(builder.gep(scores, [target]), _SCORES.as_pointer())
                builder.store(score, address).align = 4
                is_above = builder.or_(is_above, builder.fcmp_ordered(">", score, _everywhere(builder, bar)))
        bits = ir.IntType(_LANES)
        return builder.icmp_unsigned("!=", builder.bitcast(is_above, bits), bits(0))

    return lower


for _function, _n_rows in ((score_tile, ROWS_OF_A_TILE), (score_tile_for_one, 1)):
    type_callable(_function)(_type_of)
    _number = types.Integer
    lower_builtin(_function, types.BaseTuple, _number, types.BaseTuple, _number, types.Array, _number, _number)(
        _lowered(_n_rows)
    )
