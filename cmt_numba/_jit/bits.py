"""Vector instructions for codes: popcounts and products, bit masks of numbers and scores, and Hadamard transforms.

LLVM translates its generic operations on vectors to the best instructions of a processor (on x86, ``vpopcntq`` or
byte shuffles; on ARM, ``cnt``). The functions whose names end with ``_slowly`` are the same in plain Python.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from .arrays import instruction

TILE = 32  # number of codes in a tile
LARGEST_CODE = 127  # largest 8-bit code. The smallest is -127.
BITS_OF_A_WORD = 64  # number of signs in a word of a 1-bit code
PLANES = 4  # number of bit planes of a query: its values are 4-bit numbers in two's complement
PRODUCTS = 32  # number of products that ``add_products`` adds at a time
COLUMNS = 64  # number of columns that ``add_row_pairs`` adds
BLOCK = 16  # number of values that ``transform_block`` and ``add_and_subtract`` change
_LANES = 8
_WEIGHTS = (1, 2, 4, -8)
_BYTE, _SHORT, _INT, _WORD, _FLOAT = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()

_OF_PAIRS = (
    ("avx512bw", 32, "llvm.x86.avx512.pmaddw.d.512"),
    ("avx2", 16, "llvm.x86.avx2.pmadd.wd"),
    ("sse2", 8, "llvm.x86.sse2.pmadd.wd"),
)
"""Instructions that multiply int16 numbers and add adjacent products: processor feature, number of lanes, and name."""


def score_tile_slowly(bits, tile, n_words, planes, first, factors, added, base, step, less, least, scores, at):
    """Write ``base + added + factors * (step * sums + less)`` of a tile's 32 codes to ``scores[at : at + 32]``.

    ``sums`` are the sums of a query's 4-bit values over the set bits of each code. Word ``w`` of code ``i`` is
    ``bits[(tile * n_words + w) * 32 + i]``, and plane ``p`` of the query's word ``w`` is ``planes[first + 4 * w + p]``.
    ``n_words`` must be at least 1. Return an int64 whose bit ``i`` is set if ``scores[at + i] >= least``.
    """
    codes = bits[tile * n_words * TILE : (tile + 1) * n_words * TILE].reshape(n_words, 1, TILE)
    masks = planes[first : first + n_words * PLANES].reshape(n_words, PLANES, 1)
    counts = np.bitwise_count(codes & masks).astype(np.int64).sum(axis=0)
    sums, own = (np.array(_WEIGHTS) @ counts).astype(np.float32), slice(tile * TILE, (tile + 1) * TILE)
    scores[at : at + TILE] = base + added[own] + factors[own] * (step * sums + less)
    return marks_of_slowly(scores, at, least)


def add_products_slowly(shorts, codes, n_blocks):
    """Return the sum of the products of the first ``32 * n_blocks`` numbers, int16 and int8, as int32.

    ``n_blocks`` must be at least 1, and the sum must fit.
    """
    n = n_blocks * PRODUCTS
    return shorts[:n].astype(np.int32) @ codes[:n].astype(np.int32)


def add_row_pairs_slowly(codes, block, pairs, shorts, n, sums):
    """Write the sum of ``n`` pairs of rows, each times its two factors, for the 64 columns of a block of a matrix.

    Column ``j`` of the block has the int8 codes ``codes[block, pair, 2 * j : 2 * j + 2]`` for each pair, and its sum is
    the int32 ``sums[64 * block + j]``. The int16 factors of the i-th pair are ``shorts[2 * i : 2 * i + 2]``. ``n`` must
    be at least 1, and the sums must fit into int32.
    """
    own = codes[block, pairs[:n]].reshape(n, COLUMNS, 2).astype(np.int32)
    sums[block * COLUMNS :][:COLUMNS] = np.einsum("ijp,ip->j", own, shorts[: 2 * n].reshape(n, 2).astype(np.int32))


def signs_of_slowly(x, at):
    """Return a uint64 whose bit ``i`` is set if the float32 ``x[at + i]`` is positive, for ``i`` below 64."""
    return np.packbits(x[at : at + BITS_OF_A_WORD] > 0, bitorder="little").view(np.uint64)[0]


def plane_of_slowly(numbers, at, p):
    """Return a uint64 whose bit ``i`` is bit ``p`` of the int8 ``numbers[at + i]``, for ``i`` below 64."""
    some = (numbers[at : at + BITS_OF_A_WORD] >> np.int8(p)) & np.int8(1)
    return np.packbits(some.astype(np.bool_), bitorder="little").view(np.uint64)[0]


def add_and_subtract_slowly(x, i, h):
    """Replace blocks ``u = x[i : i + 16]`` and ``v = x[i + h : i + h + 16]`` by ``u + v`` and ``u - v``."""
    u, v = x[i : i + BLOCK].copy(), x[i + h : i + h + BLOCK].copy()
    x[i : i + BLOCK], x[i + h : i + h + BLOCK] = u + v, u - v


def transform_block_slowly(x, i):
    """Apply the Hadamard transform of 16 values to ``x[i : i + 16]``, without scaling."""
    for h in (8, 4, 2, 1):
        pairs = x[i : i + BLOCK].reshape(-1, 2, h).copy()
        x[i : i + BLOCK] = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).reshape(-1)


def marks_of_slowly(scores, at, least):
    """Return an int64 whose bit ``i`` is set if the float32 ``scores[at + i] >= least``, for ``i`` below 32."""
    return sum(1 << int(i) for i in np.flatnonzero(scores[at : at + TILE] >= least))


def first_of_slowly(marks):
    """Return the position of the lowest set bit of a nonzero int64."""
    return (int(marks) & -int(marks)).bit_length() - 1


def array_data(context, builder, signature, arguments, i):
    """Return a pointer to the first element of the array that is argument ``i``."""
    return context.make_array(signature.args[i])(context, builder, arguments[i]).data


def pointer_at(builder, data, i, kind):
    """Return a pointer of type ``kind`` to element ``i`` of an array."""
    return builder.bitcast(builder.gep(data, [i]), kind.as_pointer())


def read_vector(builder, data, i, kind, align):
    """Generate a load of type ``kind`` from element ``i`` of an array on."""
    value = builder.load(pointer_at(builder, data, i, kind))
    value.align = align
    return value


def everywhere(builder, value, lanes):
    """Generate a vector register with a value in every lane."""
    kind = ir.VectorType(value.type, lanes)
    alone = builder.insert_element(ir.Constant(kind, ir.Undefined), value, _INT(0))
    return builder.shuffle_vector(alone, ir.Constant(kind, ir.Undefined), ir.Constant(ir.VectorType(_INT, lanes), None))


@instruction(score_tile_slowly)
def score_tile(_context, bits, tile, n_words, planes, first, factors, added, base, step, less, least, scores, at):
    def lower(context, builder, signature, arguments):
        bits, planes, factors, added, scores = (
            array_data(context, builder, signature, arguments, i) for i in (0, 3, 5, 6, 11)
        )
        tile, n_words, first, at = (arguments[i] for i in (1, 2, 4, 12))
        kind, groups = ir.VectorType(_WORD, _LANES), TILE // _LANES
        count = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(kind, [kind]), f"llvm.ctpop.v{_LANES}i64"
        )
        own = builder.mul(tile, _WORD(TILE))
        start = builder.mul(own, n_words)
        before, loop, end = builder.block, builder.append_basic_block("words"), builder.append_basic_block("counted")
        builder.branch(loop)
        builder.position_at_end(loop)
        word = builder.phi(_WORD)
        word.add_incoming(_WORD(0), before)
        totals = [[builder.phi(kind) for _ in range(PLANES)] for _ in range(groups)]
        masks = []
        for p in range(PLANES):
            place = builder.add(first, builder.add(builder.mul(word, _WORD(PLANES)), _WORD(p)))
            masks.append(everywhere(builder, builder.load(builder.gep(planes, [place])), _LANES))
        begin = builder.add(start, builder.mul(word, _WORD(TILE)))
        more = []
        for group in range(groups):
            codes = read_vector(builder, bits, builder.add(begin, _WORD(group * _LANES)), kind, 8)
            more.append(
                [
                    builder.add(totals[group][p], builder.call(count, [builder.and_(codes, masks[p])]))
                    for p in range(PLANES)
                ]
            )
        following = builder.add(word, _WORD(1))
        word.add_incoming(following, loop)
        for group in range(groups):
            for p in range(PLANES):
                totals[group][p].add_incoming(ir.Constant(kind, None), before)
                totals[group][p].add_incoming(more[group][p], loop)
        builder.cbranch(builder.icmp_signed("<", following, n_words), loop, end)
        builder.position_at_end(end)
        floats, marks = ir.VectorType(_FLOAT, _LANES), _WORD(0)
        base, step, less, least = (everywhere(builder, arguments[i], _LANES) for i in (7, 8, 9, 10))
        for group in range(groups):
            total = ir.Constant(kind, None)
            for counts, weight in zip(more[group], _WEIGHTS, strict=True):
                total = builder.add(total, builder.mul(counts, ir.Constant(kind, [weight] * _LANES)))
            sums = builder.sitofp(builder.trunc(total, ir.VectorType(_INT, _LANES)), floats)
            place, offset = builder.add(own, _WORD(group * _LANES)), _WORD(group * _LANES)
            value = builder.fadd(builder.fmul(sums, step), less)
            value = builder.fmul(read_vector(builder, factors, place, floats, 4), value)
            value = builder.fadd(builder.fadd(base, read_vector(builder, added, place, floats, 4)), value)
            builder.store(value, pointer_at(builder, scores, builder.add(at, offset), floats)).align = 4
            above = builder.bitcast(builder.fcmp_ordered(">=", value, least), ir.IntType(_LANES))
            marks = builder.or_(marks, builder.shl(builder.zext(above, _WORD), offset))
        return marks

    i8, f4 = types.int64, types.float32
    return i8(bits, i8, i8, planes, i8, factors, added, f4, f4, f4, f4, scores, i8), lower


def _pair_instruction(context, builder):
    """Return the number of lanes and the name of the instruction that adds pairs of products, "" for none."""
    features = context.codegen()._tm_features.split(",") if "x86" in builder.module.triple else []
    return next((it[1:] for it in _OF_PAIRS if f"+{it[0]}" in features), (PRODUCTS, ""))


def _add_pairs(builder, name, x, y):
    """Generate the sums of the products of adjacent int16 numbers."""
    n = x.type.count
    sums = ir.VectorType(_INT, n // 2)
    if not name:
        wide = ir.VectorType(_INT, n)
        products = builder.mul(builder.sext(x, wide), builder.sext(y, wide))
        halves = (
            builder.shuffle_vector(products, products, ir.Constant(sums, list(range(first, n, 2)))) for first in (0, 1)
        )
        return builder.add(*halves)
    return builder.call(
        cgutils.get_or_insert_function(builder.module, ir.FunctionType(sums, [x.type] * 2), name), [x, y]
    )


@instruction(add_row_pairs_slowly)
def add_row_pairs(_context, codes, block, pairs, shorts, n, sums):
    def lower(context, builder, signature, arguments):
        lanes, name = _pair_instruction(context, builder)
        of_sums, size = ir.VectorType(_INT, lanes // 2), _WORD(2 * COLUMNS)
        codes, pairs, shorts, sums = (array_data(context, builder, signature, arguments, i) for i in (0, 2, 3, 5))
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        first = builder.mul(arguments[1], builder.extract_value(array.shape, 1))
        before, loop, end = builder.block, builder.append_basic_block("pairs"), builder.append_basic_block("added")
        builder.branch(loop)
        builder.position_at_end(loop)
        i, totals, more = builder.phi(_WORD), [builder.phi(of_sums) for _ in range(0, 2 * COLUMNS, lanes)], []
        begin = builder.mul(builder.add(first, builder.load(builder.gep(pairs, [i]))), size)
        both = read_vector(builder, shorts, builder.mul(i, _WORD(2)), _INT, 2)
        factors = builder.bitcast(everywhere(builder, both, lanes // 2), ir.VectorType(_SHORT, lanes))
        for at, total in zip(range(0, 2 * COLUMNS, lanes), totals, strict=True):
            own = read_vector(builder, codes, builder.add(begin, _WORD(at)), ir.VectorType(_BYTE, lanes), 1)
            products = _add_pairs(builder, name, builder.sext(own, factors.type), factors)
            more.append(builder.add(total, products))
        following = builder.add(i, _WORD(1))
        starts = [_WORD(0)] + [ir.Constant(of_sums, None)] * len(totals)
        for phi, start, last in zip([i, *totals], starts, [following, *more], strict=True):
            phi.add_incoming(start, before)
            phi.add_incoming(last, loop)
        builder.cbranch(builder.icmp_signed("<", following, arguments[4]), loop, end)
        builder.position_at_end(end)
        own = builder.mul(arguments[1], _WORD(COLUMNS))
        for at, total in zip(range(0, COLUMNS, lanes // 2), more, strict=True):
            builder.store(total, pointer_at(builder, sums, builder.add(own, _WORD(at)), of_sums)).align = 4
        return context.get_dummy_value()

    i8 = types.int64
    return types.void(codes, i8, pairs, shorts, i8, sums), lower


@instruction(add_products_slowly)
def add_products(_context, shorts, codes, n_blocks):
    def lower(context, builder, signature, arguments):
        lanes, name = _pair_instruction(context, builder)
        of_shorts, sums = ir.VectorType(_SHORT, lanes), ir.VectorType(_INT, lanes // 2)
        shorts, codes = (array_data(context, builder, signature, arguments, i) for i in (0, 1))
        before, loop, end = builder.block, builder.append_basic_block("products"), builder.append_basic_block("added")
        builder.branch(loop)
        builder.position_at_end(loop)
        block, total = builder.phi(_WORD), builder.phi(sums)
        more = total
        for i in range(0, PRODUCTS, lanes):
            at = builder.add(builder.mul(block, _WORD(PRODUCTS)), _WORD(i))
            x = read_vector(builder, shorts, at, of_shorts, 2)
            y = builder.sext(read_vector(builder, codes, at, ir.VectorType(_BYTE, lanes), 1), of_shorts)
            more = builder.add(more, _add_pairs(builder, name, x, y))
        following = builder.add(block, _WORD(1))
        for phi, first, last in ((block, _WORD(0), following), (total, ir.Constant(sums, None), more)):
            phi.add_incoming(first, before)
            phi.add_incoming(last, loop)
        builder.cbranch(builder.icmp_signed("<", following, arguments[2]), loop, end)
        builder.position_at_end(end)
        add = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(_INT, [sums]), f"llvm.vector.reduce.add.v{sums.count}i32"
        )
        return builder.call(add, [more])

    return types.int32(shorts, codes, types.int64), lower


@instruction(signs_of_slowly)
def signs_of(_context, x, at):
    def lower(context, builder, signature, arguments):
        kind = ir.VectorType(_FLOAT, BITS_OF_A_WORD)
        at = arguments[1]
        values = read_vector(builder, array_data(context, builder, signature, arguments, 0), at, kind, 4)
        return builder.bitcast(builder.fcmp_ordered(">", values, ir.Constant(kind, None)), _WORD)

    return types.uint64(x, types.int64), lower


@instruction(plane_of_slowly)
def plane_of(_context, numbers, at, p):
    def lower(context, builder, signature, arguments):
        kind = ir.VectorType(_BYTE, BITS_OF_A_WORD)
        at, p = (arguments[i] for i in (1, 2))
        values = read_vector(builder, array_data(context, builder, signature, arguments, 0), at, kind, 1)
        mask = everywhere(builder, builder.trunc(builder.shl(_WORD(1), p), _BYTE), BITS_OF_A_WORD)
        return builder.bitcast(builder.icmp_unsigned("!=", builder.and_(values, mask), ir.Constant(kind, None)), _WORD)

    return types.uint64(numbers, types.int64, types.int64), lower


@instruction(add_and_subtract_slowly)
def add_and_subtract(_context, x, i, h):
    def lower(context, builder, signature, arguments):
        kind, data = ir.VectorType(_FLOAT, BLOCK), array_data(context, builder, signature, arguments, 0)
        i, h = (arguments[n] for n in (1, 2))
        u, v = read_vector(builder, data, i, kind, 4), read_vector(builder, data, builder.add(i, h), kind, 4)
        builder.store(builder.fadd(u, v), pointer_at(builder, data, i, kind)).align = 4
        builder.store(builder.fsub(u, v), pointer_at(builder, data, builder.add(i, h), kind)).align = 4
        return context.get_dummy_value()

    return types.void(x, types.int64, types.int64), lower


@instruction(transform_block_slowly)
def transform_block(_context, x, i):
    def lower(context, builder, signature, arguments):
        kind, data = ir.VectorType(_FLOAT, BLOCK), array_data(context, builder, signature, arguments, 0)
        i = arguments[1]
        values = read_vector(builder, data, i, kind, 4)
        for h in (8, 4, 2, 1):
            order = ir.Constant(ir.VectorType(_INT, BLOCK), [j ^ h for j in range(BLOCK)])
            sign = ir.Constant(kind, [-1.0 if j & h else 1.0 for j in range(BLOCK)])
            values = builder.fadd(builder.shuffle_vector(values, values, order), builder.fmul(values, sign))
        builder.store(values, pointer_at(builder, data, i, kind)).align = 4
        return context.get_dummy_value()

    return types.void(x, types.int64), lower


@instruction(marks_of_slowly)
def marks_of(_context, scores, at, least):
    def lower(context, builder, signature, arguments):
        some = read_vector(
            builder, array_data(context, builder, signature, arguments, 0), arguments[1], ir.VectorType(_FLOAT, TILE), 4
        )
        marks = builder.fcmp_ordered(">=", some, everywhere(builder, arguments[2], TILE))
        return builder.zext(builder.bitcast(marks, ir.IntType(TILE)), _WORD)

    return types.int64(scores, types.int64, types.float32), lower


@instruction(first_of_slowly)
def first_of(_context, marks):
    def lower(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.IntType(1)(1))

    return types.int64(types.int64), lower
