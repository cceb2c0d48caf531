"""What lies at an address: arrays, and records of addresses and sizes, which are one address to hand on."""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import NativeValue, intrinsic, lower_getattr_generic, models, register_model, unbox
from numba.np.arrayobj import populate_array


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
