"""Sixteen floats at once: an explicit vector type for Numba.

The kernels say which additions happen in which order, lane by lane, instead of allowing the compiler to reassociate
(`fastmath`): reassociated code differs in the last bits from one compilation to the next, and a run that is resumed
with freshly compiled kernels would drift from one that was not. With explicit lanes nothing is left to choose, and the
code still runs at full width; where the hardware has narrower registers, LLVM splits a lane vector into several.

    v = load(a, i)              16 floats of the array a from flat position i
    store(a, i, v)
    v * w + splat(x), fma(v, w, u), …
"""

from __future__ import annotations

import math
import operator
import platform
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, lower_builtin, models, register_model, type_callable

from nsm.fused.cache import has

WIDTH = 16
"""Lanes in a vector: one AVX-512 register of 32-bit floats, two AVX ones, four NEON ones."""
MANY_REGISTERS = has("avx512f")
"""Whether eight vectors and what they are made from fit into registers. With two registers a vector they do not, and
would be stored and loaded again at every step of a sum."""

_FLOATS = ir.VectorType(ir.FloatType(), WIDTH)
_INTS = ir.VectorType(ir.IntType(32), WIDTH)


class _Lanes(types.Type):
    def __init__(self, name: str) -> None:
        super().__init__(name=name)


floats = _Lanes("floats16")
ints = _Lanes("ints16")


@register_model(_Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, fe_type: _Lanes) -> None:
        super().__init__(manager, fe_type, _FLOATS if fe_type is floats or fe_type.name == "floats16" else _INTS)


# --- arithmetic: v + w, v - w, v * w, v / w, -v on float lanes --------------------------------------------------------


def _binary(function: Any, instruction: str) -> None:
    @type_callable(function)
    def typing(context: Any) -> Any:
        def typer(a: types.Type, b: types.Type) -> types.Type | None:
            return floats if a == floats and b == floats else None

        return typer

    @lower_builtin(function, floats, floats)
    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return getattr(builder, instruction)(*arguments)


_binary(operator.add, "fadd")
_binary(operator.sub, "fsub")
_binary(operator.mul, "fmul")
_binary(operator.truediv, "fdiv")


@type_callable(operator.neg)
def _type_negative(context: Any) -> Any:
    return lambda a: floats if a == floats else None


@lower_builtin(operator.neg, floats)
def _lower_negative(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return builder.fneg(arguments[0])


# --- memory -----------------------------------------------------------------------------------------------------------


def _address(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), _FLOATS.as_pointer())


@intrinsic
def load(typingctx: Any, array: Any, index: Any) -> Any:
    """16 floats of a C-contiguous float32 array from flat position `index` on, whatever its shape."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        position = context.cast(builder, arguments[1], signature.args[1], types.intp)
        value = builder.load(_address(context, builder, signature.args[0], arguments[0], position))
        value.align = 4
        return value

    return floats(array, index), codegen


@intrinsic
def store(typingctx: Any, array: Any, index: Any, value: Any) -> Any:
    """Write 16 floats to a C-contiguous float32 array from flat position `index` on."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        position = context.cast(builder, arguments[1], signature.args[1], types.intp)
        instruction = builder.store(arguments[2], _address(context, builder, signature.args[0], arguments[0], position))
        instruction.align = 4
        return context.get_dummy_value()

    return types.void(array, index, floats), codegen


@intrinsic
def splat(typingctx: Any, value: Any) -> Any:
    """The same float in all lanes."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _broadcast(builder, context.cast(builder, arguments[0], signature.args[0], types.float32))

    return floats(value), codegen


@intrinsic
def numbers(typingctx: Any) -> Any:
    """0, 1, 2, … 15"""
    return floats(), lambda context, builder, signature, arguments: ir.Constant(
        _FLOATS, [float(i) for i in range(WIDTH)]
    )


def _broadcast(builder: Any, scalar: Any) -> Any:
    first = builder.insert_element(ir.Constant(_FLOATS, ir.Undefined), scalar, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH)
    return builder.shuffle_vector(first, ir.Constant(_FLOATS, ir.Undefined), zeros)


@intrinsic
def spread(typingctx: Any, array: Any, index: Any) -> Any:
    """The number at flat position `index` in all lanes; unlike array[index], no look whether the index is negative."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        position = context.cast(builder, arguments[1], signature.args[1], types.intp)
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return _broadcast(builder, builder.load(builder.gep(data, [position])))

    return floats(array, index), codegen


@intrinsic
def transpose_block(typingctx: Any, a: Any, a0: Any, lda: Any, c: Any, c0: Any, ldc: Any) -> Any:
    """C = Aᵀ for 16 × 16 numbers: row i of A begins at a0 + i·lda, row j of C at c0 + j·ldc.

    Four rounds of riffling the rows, as one riffles two halves of a deck, bring every number to its place.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = [context.cast(builder, arguments[k], signature.args[k], types.intp) for k in (1, 2, 4, 5)]

        def row(array: int, start: Any, stride: Any, i: int) -> Any:
            position = builder.add(start, builder.mul(stride, ir.Constant(stride.type, i)))
            return _address(context, builder, signature.args[array], arguments[array], position)

        rows = []
        for i in range(WIDTH):
            value = builder.load(row(0, place[0], place[1], i))
            value.align = 4
            rows.append(value)
        half = WIDTH // 2
        for _ in range(4):
            pairs = [(rows[i], rows[i + half]) for i in range(half)]
            rows = []
            for first, second in pairs:
                for start in (0, half):
                    picks = [x for k in range(start, start + half) for x in (k, WIDTH + k)]
                    indices = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), picks)
                    rows.append(builder.shuffle_vector(first, second, indices))
        for i, value in enumerate(rows):
            builder.store(value, row(3, place[2], place[3], i)).align = 4
        return context.get_dummy_value()

    return types.void(a, a0, lda, c, c0, ldc), codegen


def _llvm(name: str, arguments: int) -> Any:
    def call(builder: Any, values: Any) -> Any:
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(_FLOATS, [_FLOATS] * arguments), f"llvm.{name}.v{WIDTH}f32"
        )
        return builder.call(function, values)

    return call


_FUSED = has("fma") or platform.machine().lower() not in ("x86_64", "amd64")
"""Whether there is an instruction for it. Without one, LLVM would call the C library for every lane."""


@intrinsic
def fma(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """a·b + c, with one rounding where the processor can."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        a, b, c = arguments
        return _llvm("fma", 3)(builder, arguments) if _FUSED else builder.fadd(builder.fmul(a, b), c)

    return floats(a, b, c), codegen


@intrinsic
def maximum(typingctx: Any, a: Any, b: Any) -> Any:
    """The larger of each pair of lanes (a where b is not larger)."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        a, b = arguments
        return builder.select(builder.fcmp_ordered("<", a, b), b, a)

    return floats(a, b), codegen


@intrinsic
def minimum(typingctx: Any, a: Any, b: Any) -> Any:
    """The smaller of each pair of lanes (a where b is not smaller)."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        a, b = arguments
        return builder.select(builder.fcmp_ordered(">", a, b), b, a)

    return floats(a, b), codegen


@intrinsic
def choose_smaller(typingctx: Any, a: Any, b: Any, then: Any, otherwise: Any) -> Any:
    """`then` in the lanes where a < b, `otherwise` in the others."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        a, b, then, otherwise = arguments
        return builder.select(builder.fcmp_ordered("<", a, b), then, otherwise)

    return floats(a, b, then, otherwise), codegen


@intrinsic
def if_finite_and_positive(typingctx: Any, a: Any, then: Any) -> Any:
    """`then` in the lanes where a is zero or a number above it, NaN in the others: by their bits, in one comparison."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        infinity, nan = ir.Constant(_INTS, [0x7F800000] * WIDTH), ir.Constant(_FLOATS, [math.nan] * WIDTH)
        below = builder.icmp_unsigned("<", builder.bitcast(arguments[0], _INTS), infinity)
        return builder.select(below, arguments[1], nan)

    return floats(a, then), codegen


@intrinsic
def rounded(typingctx: Any, a: Any) -> Any:
    """The nearest whole number in each lane, the even one of two, of numbers below 2²² in size.

    Beside 1.5·2²³ a float has no room for a fraction: adding it rounds, on any processor.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        large = ir.Constant(_FLOATS, [1.5 * 2**23] * WIDTH)
        return builder.fsub(builder.fadd(arguments[0], large), large)

    return floats(a), codegen


@intrinsic
def root(typingctx: Any, a: Any) -> Any:
    """√ of each lane."""
    return floats(a), lambda context, builder, signature, arguments: _llvm("sqrt", 1)(builder, arguments)


@intrinsic
def total(typingctx: Any, a: Any) -> Any:
    """The sum of all lanes, by halves: (0+8)+(4+12)+… in a fixed order."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _halves(builder, arguments[0], builder.fadd)

    return types.float32(a), codegen


@intrinsic
def largest(typingctx: Any, a: Any) -> Any:
    """The largest lane."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def larger(x: Any, y: Any) -> Any:
            return builder.select(builder.fcmp_ordered("<", x, y), y, x)

        return _halves(builder, arguments[0], larger)

    return types.float32(a), codegen


def _halves(builder: Any, vector: Any, combine: Any) -> Any:
    width = WIDTH
    while width > 1:
        width //= 2
        undefined = ir.Constant(vector.type, ir.Undefined)

        def half(start: int, vector: Any = vector, undefined: Any = undefined, width: int = width) -> Any:
            picks = ir.Constant(ir.VectorType(ir.IntType(32), width), list(range(start, start + width)))
            return builder.shuffle_vector(vector, undefined, picks)

        vector = combine(half(0), half(width))
    return builder.extract_element(vector, ir.Constant(ir.IntType(32), 0))


@intrinsic
def as_ints(typingctx: Any, a: Any) -> Any:
    """The bit patterns of float lanes."""
    return ints(a), lambda context, builder, signature, arguments: builder.bitcast(arguments[0], _INTS)


@intrinsic
def as_floats(typingctx: Any, a: Any) -> Any:
    """Float lanes from bit patterns."""
    return floats(a), lambda context, builder, signature, arguments: builder.bitcast(arguments[0], _FLOATS)


@intrinsic
def to_ints(typingctx: Any, a: Any) -> Any:
    """Whole float lanes as integers."""
    return ints(a), lambda context, builder, signature, arguments: builder.fptosi(arguments[0], _INTS)


@intrinsic
def to_floats(typingctx: Any, a: Any) -> Any:
    """Integer lanes as floats."""
    return floats(a), lambda context, builder, signature, arguments: builder.sitofp(arguments[0], _FLOATS)


def _integer(instruction: str) -> Any:
    def make(typingctx: Any, a: Any, constant: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            number = ir.Constant(_INTS, [int(constant.literal_value)] * WIDTH)
            return getattr(builder, instruction)(arguments[0], number)

        return ints(a, constant), codegen

    return make


@intrinsic(prefer_literal=True)
def add_int(typingctx: Any, a: Any, constant: Any) -> Any:
    """a + constant on integer lanes."""
    return _integer("add")(typingctx, a, constant)


@intrinsic(prefer_literal=True)
def and_int(typingctx: Any, a: Any, constant: Any) -> Any:
    """a & constant on integer lanes."""
    return _integer("and_")(typingctx, a, constant)


@intrinsic
def or_bits(typingctx: Any, a: Any, b: Any) -> Any:
    """a | b on integer lanes."""
    return ints(a, b), lambda context, builder, signature, arguments: builder.or_(*arguments)


@intrinsic(prefer_literal=True)
def shift_left(typingctx: Any, a: Any, constant: Any) -> Any:
    """a << constant on integer lanes."""
    return _integer("shl")(typingctx, a, constant)


@intrinsic(prefer_literal=True)
def shift_right(typingctx: Any, a: Any, constant: Any) -> Any:
    """a >> constant (arithmetic) on integer lanes."""
    return _integer("ashr")(typingctx, a, constant)


# --- denormal numbers -------------------------------------------------------------------------------------------------

_X86 = platform.machine().lower() in ("x86_64", "amd64")


@intrinsic
def flush_denormals(typingctx: Any) -> Any:
    """From here on, numbers too small for full precision count as zero on this thread; returns what was set before.

    Sharpened addresses are full of such numbers, and each would cost a hundred cycles.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if not _X86:
            return ir.Constant(ir.IntType(32), 0)
        slot = cgutils.alloca_once(builder, ir.IntType(32))
        _control(builder, "stmxcsr", slot)
        before = builder.load(slot)
        builder.store(builder.or_(before, ir.Constant(ir.IntType(32), 0x8040)), slot)
        _control(builder, "ldmxcsr", slot)
        return before

    return types.int32(), codegen


@intrinsic
def restore_denormals(typingctx: Any, before: Any) -> Any:
    """Set back what `flush_denormals` changed."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if _X86:
            slot = cgutils.alloca_once(builder, ir.IntType(32))
            builder.store(arguments[0], slot)
            _control(builder, "ldmxcsr", slot)
        return context.get_dummy_value()

    return types.void(types.int32), codegen


def _control(builder: Any, name: str, slot: Any) -> None:
    kind = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer()])
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.x86.sse.{name}")
    builder.call(function, [builder.bitcast(slot, ir.IntType(8).as_pointer())])
