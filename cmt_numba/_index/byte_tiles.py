"""The 32 scores of a tile for eight rows at once, by 8-bit codes and vector instructions.

A tile is transposed so that the codes of four features of all members are adjacent. Each lane of a register then adds
up the product of one member, and the loaded codes serve eight rows. Members are unsigned bytes, ``code + 128``, and
rows are signed numbers from -64 to 64. x86 processors multiply them in one instruction (VNNI), or in two without
overflow of the 16-bit sums in between. All processors compute the same numbers. The functions whose names end with
``_slowly`` are the same in plain Python.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

from .._jit import TILE, array_data, everywhere, pointer_at, read_vector

ROWS = 8
"""Number of rows that :func:`score_rows` scores together."""

LARGEST_OF_ROWS = 64
"""The largest code of a row. The smallest is -64."""

FEATURES = 4
"""Number of features whose codes share a lane."""

BLOCK_MEMBERS, BLOCK_BYTES = 16, 64
"""Number of members, and of codes of each, that :func:`transpose_block` transposes."""

OFFSET = 128
"""Number added to the codes of members, so that they are unsigned."""

_BYTES_OF_A_GROUP = TILE * FEATURES
_BYTE, _SHORT, _INT, _WORD, _FLOAT = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()
_LANES_OF_A_SUM = {16: 16}  # number of registers for sums, by the number of lanes; otherwise 8


def transpose_block_slowly(source, at, stride, target, to):
    """Transpose the codes of 16 members in groups of four, and add 128.

    The 64 codes of member ``i`` begin at the flat index ``at + i * stride``. Group ``g`` of all members is written from
    ``target[to + 128 * g]`` on.
    """
    flat = source.reshape(-1)
    block = np.stack([flat[at + i * stride :][:BLOCK_BYTES] for i in range(BLOCK_MEMBERS)])
    groups = block.reshape(BLOCK_MEMBERS, -1, FEATURES).transpose(1, 0, 2).reshape(-1, BLOCK_BYTES)
    for g, group in enumerate(groups):
        target[to + g * _BYTES_OF_A_GROUP :][:BLOCK_BYTES] = group ^ np.int8(-OFFSET)


def score_rows_slowly(codes, at, numbers, of, n_groups, of_rows, shifts, factors, bars, rows, scores):
    """Write scores of a tile's members for eight rows to ``scores[32 * i : 32 * i + 32]``.

    The codes of the tile begin at ``codes[at]``, and its scales and numbers to add at ``numbers[of]``. The score for
    row ``r = rows[i]`` is ``(factors[r] * scale) * (product - shifts[r]) + added``. Return an int64 whose bit ``i`` is
    set if a score is at least ``bars[i]``. ``n_groups`` must be at least 1.
    """
    members = codes[at : at + n_groups * _BYTES_OF_A_GROUP].view(np.uint8).reshape(n_groups, TILE, FEATURES)
    scales, added = numbers[of : of + 2 * TILE].reshape(2, TILE)
    marks = 0
    for i, row in enumerate(rows[:ROWS]):
        products = (members.astype(np.int64) * of_rows[row].reshape(n_groups, 1, FEATURES)).sum(axis=(0, 2))
        own = (factors[row] * scales) * (products - shifts[row]).astype(np.float32) + added
        scores[i * TILE : (i + 1) * TILE] = own
        marks |= int((own >= bars[i]).any()) << i
    return marks


def _called(builder, name, result, *arguments):
    takes = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, takes, name), arguments)


def _in_one_step(name: str) -> Callable[..., Any]:
    def add(builder, total, members, row):
        return _called(builder, name, total.type, total, members, row)

    return add


def _in_two_steps(multiply_bytes: str, add_shorts: str) -> Callable[..., Any]:
    def add(builder, total, members, row):
        n = total.type.count
        of_bytes, of_shorts = ir.VectorType(_BYTE, 4 * n), ir.VectorType(_SHORT, 2 * n)
        both = (builder.bitcast(it, of_bytes) for it in (members, row))
        pairs = _called(builder, multiply_bytes, of_shorts, *both)
        ones = ir.Constant(of_shorts, [1] * (2 * n))
        return builder.add(total, _called(builder, add_shorts, total.type, pairs, ones))

    return add


def _in_many_steps(builder, total, members, row):
    shorts = ir.VectorType(_SHORT, 2 * total.type.count)

    def halves(values, bits, shift_down):
        width = ir.Constant(values.type, [bits] * values.type.count)
        return shift_down(builder.shl(values, width), width), shift_down(values, width)

    both = (
        halves(builder.bitcast(members, shorts), 8, builder.lshr),
        halves(builder.bitcast(row, shorts), 8, builder.ashr),
    )
    pairs = builder.add(*(builder.mul(member, of_row) for member, of_row in zip(*both, strict=True)))
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


def _instruction(context, builder):
    features = context.codegen()._tm_features.split(",") if "x86" in builder.module.triple else []
    return next(((lanes, add) for feature, lanes, add in _INSTRUCTIONS if f"+{feature}" in features), _WITHOUT)


@intrinsic
def _transpose_block(_context, source, at, stride, target, to):
    def lower(context, builder, signature, arguments):
        source, target = (array_data(context, builder, signature, arguments, i) for i in (0, 3))
        at, stride, to = (arguments[i] for i in (1, 2, 4))
        n, words = BLOCK_MEMBERS, ir.VectorType(_INT, BLOCK_MEMBERS)
        flipped = ir.Constant(words, [-0x7F7F7F80] * n)
        rows = []
        for _ in range(n):
            rows.append(builder.xor(read_vector(builder, source, at, words, 1), flipped))
            at = builder.add(at, stride)
        for h in (8, 4, 2, 1):  # swap blocks of h x h words
            for i in range(n):
                if not i & h:
                    a, b = rows[i], rows[i + h]
                    first = [n + lane - h if lane & h else lane for lane in range(n)]
                    second = [n + lane if lane & h else lane + h for lane in range(n)]
                    for row, order in ((i, first), (i + h, second)):
                        rows[row] = builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_INT, n), order))
        for row in rows:
            builder.store(row, pointer_at(builder, target, to, words)).align = 1
            to = builder.add(to, _WORD(_BYTES_OF_A_GROUP))
        return context.get_dummy_value()

    i8 = types.int64
    return types.void(source, i8, i8, target, i8), lower


def _add_products(builder, add, sums, codes, rows, n_groups):
    """Generate the loop that adds the products of all groups of features to ``sums``; return the new sums.

    ``sums[i]`` is a list of registers for row ``i``. ``codes(group, j)`` generates register ``j`` of a group's codes,
    and ``rows[i](group)`` the codes of row ``i`` in 32 bits.
    """
    before, loop, end = builder.block, builder.append_basic_block("groups"), builder.append_basic_block("summed")
    builder.branch(loop)
    builder.position_at_end(loop)
    group = builder.phi(_WORD)
    totals = [[builder.phi(first.type) for first in of_row] for of_row in sums]
    registers, more = [codes(group, i) for i in range(len(sums[0]))], []
    for word, of_row in zip(rows, totals, strict=True):
        words = everywhere(builder, word(group), of_row[0].type.count)
        more.append([add(builder, total, it, words) for total, it in zip(of_row, registers, strict=True)])
    following = builder.add(group, _WORD(1))
    group.add_incoming(_WORD(0), before)
    group.add_incoming(following, loop)
    for of_row, begun, ended in zip(totals, sums, more, strict=True):
        for total, first, last in zip(of_row, begun, ended, strict=True):
            total.add_incoming(first, before)
            total.add_incoming(last, loop)
    builder.cbranch(builder.icmp_signed("<", following, n_groups), loop, end)
    builder.position_at_end(end)
    return more


@intrinsic
def _score_rows(_context, codes, at, numbers, of, n_groups, of_rows, shifts, factors, bars, rows, scores):
    def lower(context, builder, signature, arguments):
        codes, numbers, of_rows, shifts, factors, bars, rows, scores = (
            array_data(context, builder, signature, arguments, i) for i in (0, 2, 5, 6, 7, 8, 9, 10)
        )
        at, of, n_groups = (arguments[i] for i in (1, 3, 4))
        lanes, add = _instruction(context, builder)
        of_sums, floats = ir.VectorType(_INT, lanes), ir.VectorType(_FLOAT, lanes)
        n_registers = min(TILE // lanes, max(1, _LANES_OF_A_SUM.get(lanes, 8) // ROWS))
        places = [builder.load(builder.gep(rows, [_WORD(i)])) for i in range(ROWS)]
        begins = [builder.mul(place, builder.mul(n_groups, _WORD(FEATURES))) for place in places]

        def one_of(data, i):
            return everywhere(builder, builder.load(builder.gep(data, [i])), lanes)

        def word_at(begin):
            def word(group):
                return read_vector(builder, of_rows, builder.add(begin, builder.mul(group, _WORD(FEATURES))), _INT, 1)

            return word

        words, is_above = [word_at(begin) for begin in begins], [ir.IntType(lanes)(0)] * ROWS
        begun = [builder.neg(one_of(shifts, place)) for place in places]
        for first in range(0, TILE, lanes * n_registers):
            offsets = [first + lanes * j for j in range(n_registers)]

            def codes_of(group, j, offsets=offsets):
                place = builder.add(builder.mul(group, _WORD(_BYTES_OF_A_GROUP)), _WORD(FEATURES * offsets[j]))
                return read_vector(builder, codes, builder.add(at, place), of_sums, 1)

            sums = _add_products(builder, add, [[total] * n_registers for total in begun], codes_of, words, n_groups)
            for j, offset in enumerate(offsets):
                scale, added = (
                    read_vector(builder, numbers, builder.add(of, _WORD(k * TILE + offset)), floats, 4)
                    for k in range(2)
                )
                for i, place in enumerate(places):
                    factor = builder.fmul(one_of(factors, place), scale)
                    score = builder.fadd(builder.fmul(factor, builder.sitofp(sums[i][j], floats)), added)
                    builder.store(score, pointer_at(builder, scores, _WORD(i * TILE + offset), floats)).align = 4
                    above = builder.fcmp_ordered(">=", score, one_of(bars, _WORD(i)))
                    is_above[i] = builder.or_(is_above[i], builder.bitcast(above, ir.IntType(lanes)))
        marks = _WORD(0)
        for i, above in enumerate(is_above):
            some = builder.icmp_unsigned("!=", above, above.type(0))
            marks = builder.or_(marks, builder.shl(builder.zext(some, _WORD), _WORD(i)))
        return marks

    i8 = types.int64
    return i8(codes, i8, numbers, i8, i8, of_rows, shifts, factors, bars, rows, scores), lower


transpose_block: Any = transpose_block_slowly if config.DISABLE_JIT else _transpose_block  # type: ignore[attr-defined]
score_rows: Any = score_rows_slowly if config.DISABLE_JIT else _score_rows  # type: ignore[attr-defined]
