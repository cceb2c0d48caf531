"""Where a step's time goes: a clock inside the kernels, that is compiled into nothing unless it is asked for.

`NSM_PROFILE=1` has the kernels compiled anew with it; scripts/profile_kernels.py prints what it tells. It adds a few
cycles to every place, and knows one thread only.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

PROFILING = bool(os.environ.get("NSM_PROFILE"))
cycles = np.zeros(64, np.int64)
"""By place; the first one is when the last lap ended."""

PLACES = {
    "": 0,
    "rows and states in and out": 1,
    "products outside the loop over time": 2,
    "controller: product": 3,
    "controller: activations": 4,
    "programs: product": 5,
    "programs: attention and mixing": 6,
    "memory: activated interface": 7,
    "memory: usage, allocation": 8,
    "memory: content": 9,
    "memory: softmax, shift, sharpen": 10,
    "memory: write and norms": 11,
    "memory: read": 12,
    "back: tapes written once more": 13,
    "back: memory, read": 14,
    "back: memory, address": 15,
    "back: memory, content": 16,
    "back: memory, write": 17,
    "back: memory, usage, allocation": 18,
    "back: programs": 19,
    "back: controller": 20,
    "back: weights' gradients": 21,
    "back: rows and states in and out": 22,
    "loss": 23,
}
(
    _, STATES, OUTSIDE, CONTROLLER, GATES, PROGRAMS, MIXING, ACTIVATE, USAGE, CONTENT, ADDRESS, WRITE, READ,
    REWRITE, READ_BACK, ADDRESS_BACK, CONTENT_BACK, WRITE_BACK, USAGE_BACK, PROGRAMS_BACK, CONTROLLER_BACK,
    GRADIENTS, STATES_BACK, LOSS,
) = range(len(PLACES))  # fmt: skip


@intrinsic
def lap(typingctx: Any, place: Any) -> Any:
    """What has passed since the last lap counts for a place."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if PROFILING:
            word = ir.IntType(64)
            clock = builder.module.declare_intrinsic("llvm.readcyclecounter", (), ir.FunctionType(word, ()))
            now = builder.call(clock, ())
            begin = builder.inttoptr(ir.Constant(word, cycles.ctypes.data), word.as_pointer())
            index = context.cast(builder, arguments[0], signature.args[0], types.intp)
            spent = builder.gep(begin, [index])
            builder.store(builder.add(builder.load(spent), builder.sub(now, builder.load(begin))), spent)
            builder.store(now, begin)
        return context.get_dummy_value()

    return types.void(place), codegen
