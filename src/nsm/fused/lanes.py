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
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import (
    NativeValue,
    intrinsic,
    lower_builtin,
    lower_getattr_generic,
    models,
    register_model,
    type_callable,
    unbox,
)
from numba.np.arrayobj import populate_array

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


def _at(dtype: Any, *shape: int) -> Any:
    """An array of what lies at an address, as in a tensor handed in; nobody asks how long its first axis is."""
    array_type = types.Array(dtype, 1 + len(shape), "C")
    width = dtype.bitwidth // 8
    strides = [width * math.prod(shape[i:]) for i in range(len(shape) + 1)]

    @intrinsic
    def at(typingctx: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            def numbers(values: Any) -> Any:
                return [context.get_constant(types.intp, value) for value in values]

            array = context.make_array(array_type)(context, builder)
            data = builder.inttoptr(arguments[0], array.data.type)
            (itemsize,) = numbers([width])
            populate_array(
                array, data=data, shape=numbers([1, *shape]), strides=numbers(strides), itemsize=itemsize, meminfo=None
            )
            return array._getvalue()

        return array_type(types.int64), codegen

    return at


floats_at = _at(types.float32)
words_at = _at(types.int64)
sums_at = _at(types.float64)


def rows_at(width: int) -> Any:
    """As `words_at`, in rows of `width`."""
    return _at(types.int64, width)


@intrinsic
def claim(typingctx: Any, address: Any) -> Any:
    """What the word at an address was before this thread, and no other, added one to it."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        return builder.atomic_rmw("add", place, ir.Constant(ir.IntType(64), 1), "monotonic")

    return types.int64(address), codegen


@intrinsic
def invoke(typingctx: Any, function: Any, argument: Any) -> Any:
    """Call the entry point at an address."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(64)])
        builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), [arguments[1]])
        return context.get_dummy_value()

    return types.void(function, argument), codegen


_FIELDS = {
    "int": types.int64,
    "float": types.float64,
    "Array": types.Array(types.float32, 1, "C"),
    "Order": types.Array(types.int32, 1, "C"),
    "Words": types.Array(types.int64, 1, "C"),
}
"""What a field of a record may be, by its annotation."""


@unbox(types.NamedTupleClass)
def _unbox_class(kind: Any, value: Any, c: Any) -> Any:
    """A class as an argument is its type alone, which picks what is compiled."""
    return NativeValue(c.context.get_dummy_value())


class Record(types.Type):
    """A named tuple in memory, by its address: a word for a number, two for an array, address and size.

    To hand it on is to hand on one address, where a named tuple is some hundred numbers. What a field is never changes
    while kernels run, and LLVM is told so: a field that is used in a loop is loaded before it.
    """

    def __init__(self, cls: Any) -> None:
        super().__init__(name=f"record({cls.__module__}.{cls.__qualname__})")
        self.instance_class = cls

    def field(self, name: str) -> tuple[Any, int] | None:
        """The type of a field, and where its words begin."""
        place = 0
        for known, annotation in self.instance_class.__annotations__.items():
            kind = _FIELDS[getattr(annotation, "__forward_arg__", annotation)]
            if known == name:
                return kind, place
            place += 2 if isinstance(kind, types.Array) else 1
        return None


@register_model(Record)
class _RecordModel(models.PrimitiveModel):
    def __init__(self, manager: Any, fe_type: Record) -> None:
        super().__init__(manager, fe_type, ir.IntType(64).as_pointer())


@infer_getattr
class _RecordFields(AttributeTemplate):
    key = Record

    def generic_resolve(self, record: Record, name: str) -> Any:  # type: ignore[override]
        found = record.field(name)
        return None if found is None else found[0]


@lower_getattr_generic(Record)
def _load_field(context: Any, builder: Any, record: Record, words: Any, name: str) -> Any:
    found = record.field(name)
    assert found is not None
    kind, place = found

    def word(i: int) -> Any:
        value = builder.load(builder.gep(words, [ir.Constant(ir.IntType(64), place + i)]))
        value.set_metadata("invariant.load", builder.module.add_metadata([]))
        return value

    if kind == types.float64:
        return builder.bitcast(word(0), ir.DoubleType())
    if not isinstance(kind, types.Array):
        return word(0)
    array = context.make_array(kind)(context, builder)
    width = context.get_constant(types.intp, kind.dtype.bitwidth // 8)
    data = builder.inttoptr(word(0), array.data.type)
    populate_array(array, data=data, shape=[word(1)], strides=[width], itemsize=width, meminfo=None)
    return array._getvalue()


@intrinsic
def unfold(typingctx: Any, cls: Any, words: Any) -> Any:
    """The record of a class that an array of words is, or what lies at an address."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if isinstance(signature.args[1], types.Array):
            return context.make_array(signature.args[1])(context, builder, arguments[1]).data
        return builder.inttoptr(arguments[1], ir.IntType(64).as_pointer())

    return Record(cls.instance_class)(cls, words), codegen


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
