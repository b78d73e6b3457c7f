"""Vector instructions for codes: sums over bits, products, bit masks of numbers and scores, and Hadamard transforms.

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
FORM = 32  # number of words in which a query keeps 64 values for ``score_tile``
PRODUCTS = 32  # number of products that ``add_products`` adds at a time
COLUMNS = 64  # number of columns that ``add_row_pairs`` adds
BLOCK = 16  # number of values that ``transform_block`` and ``add_and_subtract`` change
_LANES = 8
_WEIGHTS = (1, 2, 4, -8)  # of the bit planes of a query: its values are 4-bit numbers in two's complement
_PLANES = len(_WEIGHTS)
_BYTES = 8  # number of bytes in a word
_TOGETHER = 4  # number of values whose sums are in a table
_BYTE, _SHORT, _INT, _WORD, _FLOAT = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()

_OF_PAIRS = (
    ("avx512bw", 32, "llvm.x86.avx512.pmaddw.d.512"),
    ("avx2", 16, "llvm.x86.avx2.pmadd.wd"),
    ("sse2", 8, "llvm.x86.sse2.pmadd.wd"),
)
"""Instructions that multiply int16 numbers and add adjacent products: processor feature, number of lanes, and name."""


def write_form_slowly(numbers, at, forms, first):
    """Write the form in which :func:`score_tile` needs ``numbers[at : at + 64]``, int8 from -7 to 7.

    It takes up to 32 words from ``forms[first]`` on. In plain Python and on most processors, it consists of four bit
    planes: bit ``i`` of word ``p`` is bit ``p`` of number ``i``. With AVX2 and without an instruction that counts the
    bits of vectors, it consists of tables with the sums of all subsets of each four numbers, which takes half the time.
    """
    some = numbers[at : at + BITS_OF_A_WORD]
    for p in range(_PLANES):
        is_set = ((some >> np.int8(p)) & np.int8(1)).astype(np.bool_)
        forms[first + p] = np.packbits(is_set, bitorder="little").view(np.uint64)[0]


def score_tile_slowly(bits, tile, n_words, forms, first, factors, added, base, step, less, least, scores, at):
    """Write ``base + added + factors * (step * sums + less)`` of a tile's 32 codes to ``scores[at : at + 32]``.

    ``sums`` are the sums of a query's values over the set bits of each code. Word ``w`` of code ``i`` is
    ``bits[(tile * n_words + w) * 32 + i]``, and the form of the query's values for word ``w`` begins at
    ``forms[first + 32 * w]``. ``n_words`` must be at least 1. Return an int64 whose bit ``i`` is set if
    ``scores[at + i] >= least``.
    """
    codes = bits[tile * n_words * TILE : (tile + 1) * n_words * TILE].reshape(n_words, 1, TILE)
    masks = forms[first : first + n_words * FORM].reshape(n_words, FORM, 1)[:, :_PLANES]
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


def _features(context, builder):
    """Return the features of an x86 processor."""
    return context.codegen()._tm_features.split(",") if "x86" in builder.module.triple else []


def _has_tables(context, builder):
    features = _features(context, builder)
    return "+avx2" in features and "+avx512vpopcntdq" not in features


def _vector_of_bytes(n):
    return ir.VectorType(_BYTE, n)


@instruction(write_form_slowly)
def write_form(_context, numbers, at, forms, first):
    def lower(context, builder, signature, arguments):
        numbers, forms = (array_data(context, builder, signature, arguments, i) for i in (0, 2))
        values = read_vector(builder, numbers, arguments[1], _vector_of_bytes(BITS_OF_A_WORD), 1)
        put = _put_tables if _has_tables(context, builder) else _put_planes
        put(builder, values, builder.gep(forms, [arguments[3]]))
        return context.get_dummy_value()

    return types.void(numbers, types.int64, forms, types.int64), lower


def _put_planes(builder, values, form):
    for p in range(_PLANES):
        masks = ir.Constant(values.type, [1 << p] * BITS_OF_A_WORD)
        are_set = builder.icmp_unsigned("!=", builder.and_(values, masks), ir.Constant(values.type, None))
        builder.store(builder.bitcast(are_set, _WORD), builder.gep(form, [_WORD(p)]))


def _put_tables(builder, values, form):
    """Generate a table for each four values. Entry ``i`` is the sum of the values at the set bits of ``i``."""
    n = 1 << _TOGETHER
    kind = _vector_of_bytes(2 * n)
    for pair in range(BITS_OF_A_WORD // (2 * _TOGETHER)):
        sums = ir.Constant(kind, None)
        for j in range(_TOGETHER):
            chosen = [_TOGETHER * (2 * pair + i // n) + j for i in range(2 * n)]
            own = _shuffled(builder, values, values, chosen)
            masks = ir.Constant(kind, [-(i >> j & 1) for i in range(2 * n)])
            sums = builder.add(sums, builder.and_(own, masks))
        place = builder.bitcast(builder.gep(form, [_WORD(pair * 2 * n // _BYTES)]), kind.as_pointer())
        builder.store(sums, place).align = _BYTES


def _shuffled(builder, x, y, order):
    return builder.shuffle_vector(x, y, ir.Constant(ir.VectorType(_INT, len(order)), order))


def _interleaved(builder, both, size, half):
    """Interleave units of ``size`` bytes of two vectors, from the first or second half of each 16 bytes of them."""
    order = []
    for lane in range(0, TILE, 16):
        for unit in range(lane + 8 * half, lane + 8 * (half + 1), size):
            order += [unit + i for i in range(size)] + [TILE + unit + i for i in range(size)]
    return _shuffled(builder, both[0], both[1], order)


_TRANSPOSED = [4 * (i % 8) + 2 * (i // 16) + i // 8 % 2 for i in range(TILE)]  # the code at each place


def _by_byte(builder, rows):
    """Return bytes 0 to 7 of 32 words, each in the order of ``_TRANSPOSED``. Each of the rows has four of the words."""
    pairs = [_interleaved(builder, rows[i : i + 2], 1, half) for half in range(2) for i in range(0, len(rows), 2)]
    parts = {0: pairs}  # the first of the bytes in each of these vectors
    for size in (2, 4, 8):
        parts = {
            first + half * 8 // size: [
                _interleaved(builder, some[i : i + 2], size, half) for i in range(0, len(some), 2)
            ]
            for first, some in parts.items()
            for half in range(2)
        }
    return [parts[i][0] for i in range(_BYTES)]


def _add_by_tables(builder, codes, form, totals):
    """Generate the sums of a query's 64 values over the set bits of 32 words, in the order of ``_TRANSPOSED``."""
    kind, wide = _vector_of_bytes(TILE), ir.VectorType(ir.IntType(16), TILE)
    low, shift = ir.Constant(kind, [15] * TILE), ir.Constant(kind, [_TOGETHER] * TILE)
    name, of_look_up = "llvm.x86.avx2.pshuf.b", ir.FunctionType(kind, [kind, kind])
    look_up = cgutils.get_or_insert_function(builder.module, of_look_up, name)
    rows = [read_vector(builder, codes, _WORD(4 * i), kind, _BYTES) for i in range(TILE // 4)]
    found, sums = [], ir.Constant(wide, None)
    for i, own in enumerate(_by_byte(builder, rows)):
        for half, entries in enumerate((builder.and_(own, low), builder.lshr(own, shift))):
            table = read_vector(builder, form, _WORD(2 * (2 * i + half)), _vector_of_bytes(16), _BYTES)
            found.append(builder.call(look_up, [_shuffled(builder, table, table, 2 * list(range(16))), entries]))
        if len(found) == 4:  # their sum is at most 4 * 4 * 7, which fits into a byte
            first, second = builder.add(found[0], found[1]), builder.add(found[2], found[3])
            sums, found = builder.add(sums, builder.sext(builder.add(first, second), wide)), []
    return [builder.add(totals[0], builder.sext(sums, totals[0].type))]


def _sums_by_tables(builder, totals):
    """Return the sums of 32 codes, eight in a vector, in the order of the codes."""
    places = sorted(range(TILE), key=_TRANSPOSED.__getitem__)
    return [_shuffled(builder, totals[0], totals[0], places[i : i + _LANES]) for i in range(0, TILE, _LANES)]


def _add_by_planes(builder, codes, form, totals):
    """Generate the number of the set bits of 32 words in each plane, for each eight words."""
    kind, more = totals[0].type, []
    count = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind]), f"llvm.ctpop.v{_LANES}i64")
    masks = [everywhere(builder, builder.load(builder.gep(form, [_WORD(p)])), _LANES) for p in range(_PLANES)]
    for i in range(0, TILE, _LANES):
        own = read_vector(builder, codes, _WORD(i), kind, _BYTES)
        more += [builder.call(count, [builder.and_(own, mask)]) for mask in masks]
    return [builder.add(total, counts) for total, counts in zip(totals, more, strict=True)]


def _sums_by_planes(builder, totals):
    """Return the sums of 32 codes, eight in a vector, from the numbers of set bits in each plane."""
    kind, sums = totals[0].type, []
    for i in range(0, len(totals), _PLANES):
        total = ir.Constant(kind, None)
        for counts, weight in zip(totals[i : i + _PLANES], _WEIGHTS, strict=True):
            total = builder.add(total, builder.mul(counts, ir.Constant(kind, [weight] * _LANES)))
        sums.append(builder.trunc(total, ir.VectorType(_INT, _LANES)))
    return sums


@instruction(score_tile_slowly)
def score_tile(_context, bits, tile, n_words, forms, first, factors, added, base, step, less, least, scores, at):
    def lower(context, builder, signature, arguments):
        bits, forms, factors, added, scores = (
            array_data(context, builder, signature, arguments, i) for i in (0, 3, 5, 6, 11)
        )
        tile, n_words, first, at = (arguments[i] for i in (1, 2, 4, 12))
        has_tables, own = _has_tables(context, builder), builder.mul(tile, _WORD(TILE))
        kinds = (
            [ir.VectorType(_INT, TILE)] if has_tables else [ir.VectorType(_WORD, _LANES)] * (TILE // _LANES * _PLANES)
        )
        begin = builder.mul(own, n_words)
        before, loop, end = builder.block, builder.append_basic_block("words"), builder.append_basic_block("counted")
        builder.branch(loop)
        builder.position_at_end(loop)
        word, totals = builder.phi(_WORD), [builder.phi(kind) for kind in kinds]
        codes = builder.gep(bits, [builder.add(begin, builder.mul(word, _WORD(TILE)))])
        form = builder.gep(forms, [builder.add(first, builder.mul(word, _WORD(FORM)))])
        more = (_add_by_tables if has_tables else _add_by_planes)(builder, codes, form, totals)
        following = builder.add(word, _WORD(1))
        starts = [_WORD(0), *(ir.Constant(kind, None) for kind in kinds)]
        for phi, start, last in zip([word, *totals], starts, [following, *more], strict=True):
            phi.add_incoming(start, before)
            phi.add_incoming(last, loop)
        builder.cbranch(builder.icmp_signed("<", following, n_words), loop, end)
        builder.position_at_end(end)
        floats, marks = ir.VectorType(_FLOAT, _LANES), _WORD(0)
        base, step, less, least = (everywhere(builder, arguments[i], _LANES) for i in (7, 8, 9, 10))
        for group, total in enumerate((_sums_by_tables if has_tables else _sums_by_planes)(builder, more)):
            sums, offset = builder.sitofp(total, floats), _WORD(group * _LANES)
            place = builder.add(own, offset)
            value = builder.fadd(builder.fmul(sums, step), less)
            value = builder.fmul(read_vector(builder, factors, place, floats, 4), value)
            value = builder.fadd(builder.fadd(base, read_vector(builder, added, place, floats, 4)), value)
            builder.store(value, pointer_at(builder, scores, builder.add(at, offset), floats)).align = 4
            above = builder.bitcast(builder.fcmp_ordered(">=", value, least), ir.IntType(_LANES))
            marks = builder.or_(marks, builder.shl(builder.zext(above, _WORD), offset))
        return marks

    i8, f4 = types.int64, types.float32
    return i8(bits, i8, i8, forms, i8, factors, added, f4, f4, f4, f4, scores, i8), lower


def _pair_instruction(context, builder):
    """Return the number of lanes and the name of the instruction that adds pairs of products, "" for none."""
    features = _features(context, builder)
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
