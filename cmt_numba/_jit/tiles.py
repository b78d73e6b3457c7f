"""Scores of a tile of 32 coded vectors for one or eight rows, computed with vector instructions.

Scoring one vector at a time sums over the lanes of a register for every dot product, and loads all codes again for each
row. A tile interleaves the codes of 32 vectors, four features at a time. Each lane then computes the dot product of one
vector, and loaded codes are used for eight rows. The codes of rows are unsigned 7-bit integers. x86 processors multiply
them with signed bytes and add four products in one instruction (VNNI) or in three, without overflow of the 16-bit
intermediate sums. On other processors LLVM selects the instructions. The results are identical.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import lower_builtin, type_callable

TILE = 32
"""Number of vectors in a tile."""

ROWS_OF_A_TILE = 8
"""Number of rows that :func:`score_tile` scores together."""

FEATURES_OF_A_WORD = 4
"""Number of features whose codes share a 32-bit integer."""

LARGEST_CODE = 127
"""The largest code. The smallest is 0 for rows and -127 for vectors."""

_BYTE, _SHORT, _INT, _WORD, _FLOAT = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()
_BYTES_OF_A_GROUP = TILE * FEATURES_OF_A_WORD
_MOST_SUMS = {16: 16}  # number of registers to use for sums, by the number of lanes of a register
_FEWER_SUMS = 8  # number of registers for all other numbers of lanes


class Tiles(NamedTuple):
    """Coded vectors in tiles of 32."""

    codes: np.ndarray  # int8, flat, of shape (n_tiles, n_groups of four features, 32 vectors, 4)
    starts: np.ndarray  # int32 (n_tiles * 32,): the initial value of each vector's sum of products
    scales: np.ndarray  # float32 (n_tiles * 32,): the factor of each vector's sum
    added: np.ndarray  # float32 (n_tiles * 32,): the number added to each vector's score


class TileQueries(NamedTuple):
    """Coded queries."""

    codes: np.ndarray  # int32: the codes of four features in each integer
    places: np.ndarray  # int64 (n_rows,): the index of each row's first code
    scales: np.ndarray  # float32 (n_rows,): the factor of each row's codes
    bars: np.ndarray  # float32 (n_rows,): the score above which a tile is reported for the row


def score_tile(tiles: Any, tile: Any, asked: Any, first: Any, n_groups: Any, scores: Any, at: Any, width: Any) -> Any:
    """Write the scores of a tile for the eight rows from ``first`` on; return a bit mask of rows.

    Bit ``i`` of the mask is set if row ``first + i`` has a score above its threshold. The scores of this row start at
    ``scores[at + i * width]``. ``n_groups``, the number of groups of four features, must be at least 1.
    """
    return _score(ROWS_OF_A_TILE, tiles, tile, asked, first, n_groups, scores, at, width)


def score_tile_for_one(
    tiles: Any, tile: Any, asked: Any, first: Any, n_groups: Any, scores: Any, at: Any, width: Any
) -> Any:
    """Score a tile like :func:`score_tile`, for a single row."""
    return _score(1, tiles, tile, asked, first, n_groups, scores, at, width)


def _score(n_rows: int, tiles: Any, tile: Any, asked: Any, first: Any, n_groups: Any, *written: Any) -> int:
    scores, at, width = written
    span, n_codes, above = slice(tile * TILE, (tile + 1) * TILE), n_groups * _BYTES_OF_A_GROUP, 0
    codes = tiles.codes[tile * n_codes : (tile + 1) * n_codes].reshape(n_groups, TILE, -1).astype(np.int64)
    for i in range(n_rows):
        place, scale, bar = (of_rows[first + i] for of_rows in asked[1:])
        words = asked.codes[place : place + n_groups]
        row = words.view(np.uint8).reshape(n_groups, 1, -1)
        sums = (tiles.starts[span] + (codes * row).sum(axis=(0, 2))).astype(np.float32)
        values = sums * (tiles.scales[span] * scale) + tiles.added[span]
        scores[at + i * width : at + i * width + TILE] = values
        above |= int((values > bar).any()) << i
    return above


def marks_of(scores: Any, at: Any, least: Any) -> Any:
    """Return an int64 whose bit ``i`` is set if ``scores[at + i] >= least``, for ``i`` below 32."""
    return sum(1 << int(i) for i in np.flatnonzero(scores[at : at + TILE] >= least))


def first_of(marks: Any) -> Any:
    """Return the position of the lowest set bit of a nonzero int64."""
    return (int(marks) & -int(marks)).bit_length() - 1


def _type_of_score(context: Any) -> Any:
    def returns(tiles: Any, tile: Any, asked: Any, first: Any, n_groups: Any, scores: Any, at: Any, width: Any) -> Any:
        numbers = (tile, first, n_groups, at, width)
        fit = isinstance(scores, types.Array) and all(isinstance(number, types.Integer) for number in numbers)
        is_known = (
            getattr(tiles, "instance_class", None) is Tiles and getattr(asked, "instance_class", None) is TileQueries
        )
        return types.int64 if fit and is_known else None

    return returns


def _called(builder: Any, name: str, result: Any, *arguments: Any) -> Any:
    takes = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, takes, name), arguments)


def _in_one_step(name: str) -> Callable[..., Any]:
    def add(builder: Any, total: Any, codes: Any, words: Any) -> Any:
        return _called(builder, name, total.type, total, words, codes)

    return add


def _in_two_steps(multiply_bytes: str, add_shorts: str) -> Callable[..., Any]:
    def add(builder: Any, total: Any, codes: Any, words: Any) -> Any:
        n = total.type.count
        of_bytes, of_shorts = ir.VectorType(_BYTE, 4 * n), ir.VectorType(_SHORT, 2 * n)
        both = (builder.bitcast(it, of_bytes) for it in (words, codes))
        pairs = _called(builder, multiply_bytes, of_shorts, *both)
        ones = ir.Constant(of_shorts, [1] * (2 * n))
        return builder.add(total, _called(builder, add_shorts, total.type, pairs, ones))

    return add


def _in_many_steps(builder: Any, total: Any, codes: Any, words: Any) -> Any:
    shorts = ir.VectorType(_SHORT, 2 * total.type.count)

    def halves(values: Any, bits: int, shift_down: Any) -> tuple[Any, Any]:
        width = ir.Constant(values.type, [bits] * values.type.count)
        return shift_down(builder.shl(values, width), width), shift_down(values, width)

    both = (
        halves(builder.bitcast(codes, shorts), 8, builder.ashr),
        halves(builder.bitcast(words, shorts), 8, builder.lshr),
    )
    pairs = builder.add(*(builder.mul(code, word) for code, word in zip(*both, strict=True)))
    return builder.add(total, builder.add(*halves(builder.bitcast(pairs, total.type), 16, builder.ashr)))


_INSTRUCTIONS = (
    ("avx512vnni", 16, _in_one_step("llvm.x86.avx512.vpdpbusd.512")),
    ("avx512bw", 16, _in_two_steps("llvm.x86.avx512.pmaddubs.w.512", "llvm.x86.avx512.pmaddw.d.512")),
    ("avxvnni", 8, _in_one_step("llvm.x86.avx512.vpdpbusd.256")),
    ("avx2", 8, _in_two_steps("llvm.x86.avx2.pmadd.ub.sw", "llvm.x86.avx2.pmadd.wd")),
    ("ssse3", 4, _in_two_steps("llvm.x86.ssse3.pmadd.ub.sw.128", "llvm.x86.sse2.pmadd.wd")),
)
"""For each processor feature, best first: the number of lanes and the function that adds products to sums."""

_WITHOUT = (4, _in_many_steps)


def _instruction(context: Any, builder: Any) -> tuple[int, Callable[..., Any]]:
    features = context.codegen()._tm_features.split(",") if "x86" in builder.module.triple else []
    return next(((lanes, add) for feature, lanes, add in _INSTRUCTIONS if f"+{feature}" in features), _WITHOUT)


def _pointers(context: Any, builder: Any, of_type: Any, arrays: Any) -> list[Any]:
    """Generate pointers to the data of the arrays in a tuple."""
    parts = cgutils.unpack_tuple(builder, arrays, len(of_type))
    return [context.make_array(it)(context, builder, part).data for it, part in zip(of_type, parts, strict=True)]


def _read(builder: Any, pointer: Any, at: Any, of_type: Any) -> Any:
    """Generate a load of a vector register from an array."""
    value = builder.load(builder.bitcast(builder.gep(pointer, [at]), of_type.as_pointer()))
    value.align = pointer.type.pointee.width // 8 if isinstance(pointer.type.pointee, ir.IntType) else 4
    return value


def _everywhere(builder: Any, value: Any, lanes: int) -> Any:
    """Generate a vector register with ``value`` in every lane."""
    kind = ir.VectorType(value.type, lanes)
    alone = builder.insert_element(ir.Constant(kind, ir.Undefined), value, _INT(0))
    return builder.shuffle_vector(alone, ir.Constant(kind, ir.Undefined), _nothing(ir.VectorType(_INT, lanes)))


def _nothing(kind: Any) -> Any:
    return ir.Constant(kind, [0] * kind.count)


def _add_products(builder: Any, add: Any, sums: list[list[Any]], codes: Any, rows: list[Any], n_groups: Any) -> Any:
    """Generate the loop that adds the products of all groups of features to ``sums``; return the new sums.

    ``sums[i]`` is a list of registers for row ``i``. ``codes(group, j)`` generates register ``j`` of a group's codes,
    and ``rows[i](group)`` the word of row ``i``.
    """
    before, loop, end = builder.block, builder.append_basic_block("groups"), builder.append_basic_block("summed")
    builder.branch(loop)
    builder.position_at_end(loop)
    group = builder.phi(_WORD)
    totals = [[builder.phi(first.type) for first in of_row] for of_row in sums]
    registers, more = [codes(group, i) for i in range(len(sums[0]))], []
    for word, of_row in zip(rows, totals, strict=True):
        words = _everywhere(builder, word(group), of_row[0].type.count)
        more.append([add(builder, total, it, words) for total, it in zip(of_row, registers, strict=True)])
    following = builder.add(group, _WORD(1))
    group.add_incoming(_WORD(0), before)
    group.add_incoming(following, loop)
    for i, of_row in enumerate(totals):
        for j, total in enumerate(of_row):
            total.add_incoming(sums[i][j], before)
            total.add_incoming(more[i][j], loop)
    builder.cbranch(builder.icmp_signed("<", following, n_groups), loop, end)
    builder.position_at_end(end)
    return more


def _lowered(n_rows: int) -> Any:
    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        of_type = signature.args
        codes, starts, scales, added = _pointers(context, builder, of_type[0], arguments[0])
        asked, places, of_rows, bars = _pointers(context, builder, of_type[2], arguments[2])
        scores = context.make_array(of_type[5])(context, builder, arguments[5]).data
        tile, row, n_groups, at, width = (
            context.cast(builder, arguments[i], of_type[i], types.int64) for i in (1, 3, 4, 6, 7)
        )
        places, of_rows, bars = (builder.gep(it, [row]) for it in (places, of_rows, bars))
        lanes, add = _instruction(context, builder)
        of_sums, of_scores = ir.VectorType(_INT, lanes), ir.VectorType(_FLOAT, lanes)
        n_registers = min(TILE // lanes, max(1, _MOST_SUMS.get(lanes, _FEWER_SUMS) // n_rows))
        begins = [builder.load(builder.gep(places, [_WORD(i)])) for i in range(n_rows)]
        start = builder.mul(tile, builder.mul(n_groups, _WORD(_BYTES_OF_A_GROUP)))
        is_above = [_nothing(ir.VectorType(ir.IntType(1), lanes)) for _ in range(n_rows)]

        def words_of(begin: Any) -> Any:
            return lambda group: builder.load(builder.gep(asked, [builder.add(begin, group)]))

        rows = [words_of(begin) for begin in begins]
        for first in range(0, TILE, lanes * n_registers):
            of_registers = [first + lanes * i for i in range(n_registers)]

            def codes_of(group: Any, i: int, of_registers: list[int] = of_registers) -> Any:
                offset = builder.mul(group, _WORD(_BYTES_OF_A_GROUP))
                offset = builder.add(builder.add(start, offset), _WORD(FEATURES_OF_A_WORD * of_registers[i]))
                return _read(builder, codes, offset, of_sums)

            places_of = [builder.add(builder.mul(tile, _WORD(TILE)), _WORD(it)) for it in of_registers]
            begun = [_read(builder, starts, place, of_sums) for place in places_of]
            sums = _add_products(builder, add, [begun] * n_rows, codes_of, rows, n_groups)
            for j, place in enumerate(places_of):
                scale, more = (_read(builder, it, place, of_scores) for it in (scales, added))
                for i in range(n_rows):
                    of_row, bar = (builder.load(builder.gep(it, [_WORD(i)])) for it in (of_rows, bars))
                    factor = builder.fmul(scale, _everywhere(builder, of_row, lanes))
                    score = builder.fadd(builder.fmul(builder.sitofp(sums[i][j], of_scores), factor), more)
                    target = builder.add(builder.add(at, builder.mul(width, _WORD(i))), _WORD(of_registers[j]))
                    address = builder.bitcast(builder.gep(scores, [target]), of_scores.as_pointer())
                    builder.store(score, address).align = 4
                    more_than = builder.fcmp_ordered(">", score, _everywhere(builder, bar, lanes))
                    is_above[i] = builder.or_(is_above[i], more_than)
        marks = _WORD(0)
        for i, of_row in enumerate(is_above):
            some = builder.icmp_unsigned("!=", builder.bitcast(of_row, ir.IntType(lanes)), ir.IntType(lanes)(0))
            marks = builder.or_(marks, builder.shl(builder.zext(some, _WORD), _WORD(i)))
        return marks

    return lower


for _function, _n_rows in ((score_tile, ROWS_OF_A_TILE), (score_tile_for_one, 1)):
    type_callable(_function)(_type_of_score)
    _number = types.Integer
    lower_builtin(
        _function, types.BaseTuple, _number, types.BaseTuple, _number, _number, types.Array, _number, _number
    )(_lowered(_n_rows))


@type_callable(marks_of)
def _type_of_marks(context: Any) -> Any:
    def returns(scores: Any, at: Any, least: Any) -> Any:
        is_known = isinstance(scores, types.Array) and isinstance(at, types.Integer) and least == types.float32
        return types.int64 if is_known else None

    return returns


@lower_builtin(marks_of, types.Array, types.Integer, types.Float)
def _lower_marks(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
    some = _read(builder, data, arguments[1], ir.VectorType(_FLOAT, TILE))
    marks = builder.fcmp_ordered(">=", some, _everywhere(builder, arguments[2], TILE))
    return builder.zext(builder.bitcast(marks, ir.IntType(TILE)), _WORD)


@type_callable(first_of)
def _type_of_first(context: Any) -> Any:
    return lambda marks: types.int64 if marks == types.int64 else None


@lower_builtin(first_of, types.int64)
def _lower_first(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return builder.cttz(arguments[0], ir.IntType(1)(1))
