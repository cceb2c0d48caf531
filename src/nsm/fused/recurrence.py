"""Algorithm 1 over whole sequences, forward and backward, for one chunk of a batch; see nsm.machine.

Sequences of a chunk are sorted, longest first, and only steps that happen are stored: the rows of step t are
first[t] … first[t] + count[t] − 1, and sample b is the b-th of them. What no step depends on (input projection, output
layer, all weights' gradients) is done for all rows at once, outside the loop over time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from nsm.fused import answer, clock, controller, dnc, lrua, ntm, programs
from nsm.fused.algebra import add_into, copy, few, fill, multiply, multiply_few
from nsm.fused.cache import glue
from nsm.fused.clock import lap
from nsm.fused.layout import Array
from nsm.fused.tape import turn, turn_back


class Work(NamedTuple):
    """Everything a chunk's forward pass leaves for its backward pass, and what the backward pass works on."""

    noise: Array
    """(rows, n padded) noise on the cell, or empty"""
    gumbel: Array
    """(rows, choices, P) Gumbel noise, or empty"""
    probabilities: Array
    """(rows, choices, P, padded) what noise is added to if not to logits, or empty"""
    inputs: Array
    """(rows, I padded)"""
    before: Array
    """(rows, D): [h_{t−1} | r_{t−1}]"""
    after: Array
    """(rows, D): [h_t | r_t]"""
    raw_gates: Array
    """(rows, what each program makes of the gates and the query), or the gates themselves"""
    gates: Array
    """(rows, J)"""
    cells: Array
    """(B + rows, n padded): the initial ones first"""
    raw: Array
    """(rows, Q)"""
    mix: Array
    """(rows, choices, P padded): w^p"""
    soft: Array
    """(rows, choices, P padded): the softmax behind w^p"""
    kept: Array
    """(rows, choices, 3 + P): strength, its slope, 1/|q|, similarities"""
    query: Array
    """(K)"""
    scratch: Array
    """(32)"""
    interface: Array
    """(rows, X)"""
    raw_outputs: Array
    """(rows, what each program makes of the outputs and the query), or the outputs themselves"""
    outputs: Array
    """(rows, O padded)"""
    mask: Array
    """(n padded): 1 on units, 0 on padding"""
    head_masks: Array
    """(X)"""
    hats: Array
    cell_hats: Array
    shown: Array
    scales: Array
    interface_hats: Array
    interface_scales: Array
    d_outputs: Array
    """(rows, O padded)"""
    d_raw_outputs: Array
    """(rows, as `raw_outputs`)"""
    d_after: Array
    """(rows, D): from the output layer"""
    d_raw_gates: Array
    """(rows, as `raw_gates`)"""
    d_gates: Array
    """(rows, J)"""
    d_raw: Array
    """(rows, Q)"""
    d_inputs: Array
    """(rows, I padded), or empty if nobody asks"""
    d_state: Array
    """(B, D): handed from step to step"""
    d_cell: Array
    """(B, n padded)"""
    d_shown: Array
    d_interface: Array
    """(B, X)"""
    d_mix: Array


def memory_start(memory: Any) -> None:
    """What a memory computes from its initial state; the memory's type picks the kernel."""


def memory_forward(
    memory: Any, sizes: Any, table: Any, t: int, b: int, row: int, previous: int, xi: Any, after: Any, reads: int
) -> None:
    """Step t of sample b on the tape."""


def memory_rewrite(memory: Any, sizes: Any, table: Any, t: int, b: int, row: int, previous: int, xi: Any) -> None:
    """What the step wrote to the tape once more."""


def memory_backward(
    memory: Any, sizes: Any, table: Any, t: int, b: int, row: int, previous: int, xi: Any,
    d_read: Any, reads: int, d_xi: Any,
) -> None:  # fmt: skip
    """The step back."""


KERNELS: dict[type, Any] = {ntm.NTMWork: ntm, lrua.LRUAWork: lrua, dnc.DNCWork: dnc}


@overload(memory_start, inline="always")
def _start(memory):
    kernel = KERNELS[memory.instance_class].start
    return lambda memory: kernel(memory)


@overload(memory_forward, inline="always")
def _forward(memory, sizes, table, t, b, row, previous, xi, after, reads):
    kernel = KERNELS[memory.instance_class].forward

    def implementation(memory, sizes, table, t, b, row, previous, xi, after, reads):
        kernel(memory, sizes, table, t, b, row, previous, xi, after, reads)

    return implementation


@overload(memory_rewrite, inline="always")
def _rewrite(memory, sizes, table, t, b, row, previous, xi):
    kernel = KERNELS[memory.instance_class].rewrite

    def implementation(memory, sizes, table, t, b, row, previous, xi):
        kernel(memory, sizes, table, t, b, row, previous, xi)

    return implementation


@overload(memory_backward, inline="always")
def _backward(memory, sizes, table, t, b, row, previous, xi, d_read, reads, d_xi):
    kernel = KERNELS[memory.instance_class].backward

    def implementation(memory, sizes, table, t, b, row, previous, xi, d_read, reads, d_xi):
        kernel(memory, sizes, table, t, b, row, previous, xi, d_read, reads, d_xi)

    return implementation


@glue
def forward(sizes, scales, table, w, work, memory, first, count):
    """Run a chunk: `inputs`, the first step's `before` and the memory's initial state in, `outputs` and states out."""
    steps, batch, rows = count.size, count[0], first[count.size]
    i_p, n_p, wide = sizes.inputs_p, sizes.size_p, sizes.raw_gates
    d = n_p + sizes.reads_p
    for row in range(rows):
        copy(w.gates_bias, 0, work.raw_gates, row * wide, wide)
    # Zero times what is no number is none: then zeros are not passed over.
    if few(work.inputs, rows * i_p) and w.nothing[0] == 0:
        multiply_few(work.inputs, i_p, w.gates_x, wide, work.raw_gates, wide, rows, sizes.inputs, wide)
    else:
        multiply(work.inputs, 0, i_p, w.gates_x, 0, wide, work.raw_gates, 0, wide, rows, sizes.inputs, wide)
    memory_start(memory)
    lap(clock.OUTSIDE)
    for t in range(steps):
        previous = first[t - 1] if t > 0 else -1
        turn(memory, t, count[t])
        controller.forward(sizes, scales, w, work, first[t], count[t], previous, batch)
        programs.forward(sizes, scales, table, w, work, first[t], count[t])
        for b in range(count[t]):
            row = first[t] + b
            reads = row * d + n_p
            last = previous + b if t > 0 else -1
            # The padding of r is part of a row that products run over.
            fill(work.after, reads + sizes.reads_p - 16, 16, np.float32(0.0))
            memory_forward(memory, sizes, table, t, b, row, last, work.interface, work.after, reads)
        if t + 1 < steps:
            copy(work.after, first[t] * d, work.before, first[t + 1] * d, count[t + 1] * d)
        lap(clock.READ)
    answer.forward(sizes, scales, w, work, rows)
    lap(clock.OUTSIDE)


@glue
def backward(sizes, scales, table, w, g, work, memory, first, count):
    """Run a chunk back: `d_outputs` in, gradients added to `g`, to `d_inputs` and to the initial state out.

    On entry d_state, d_cell and the memory's own d_… hold the gradient of each sample's final state. A step touches the
    first count[t] samples only, so a shorter one's waits untouched until time has come down to its last step.
    """
    steps, batch, rows = count.size, count[0], first[count.size]
    i_p, n_p, wide = sizes.inputs_p, sizes.size_p, sizes.raw_gates
    d = n_p + sizes.reads_p
    answer.backward(sizes, scales, w, g, work, rows)
    lap(clock.GRADIENTS)
    for t in range(steps - 1, -1, -1):
        previous = first[t - 1] if t > 0 else -1
        if steps > memory.keep and ((t + 1) % memory.keep == 0 or t == steps - 1):
            begin = t - t % memory.keep
            turn_back(memory, begin, count[begin])
            for s in range(begin, t + 1):
                for b in range(count[s]):
                    last = first[s - 1] + b if s > 0 else -1
                    memory_rewrite(memory, sizes, table, s, b, first[s] + b, last, work.interface)
        lap(clock.REWRITE)
        add_into(work.d_after, first[t] * d, work.d_state, 0, count[t] * d)
        fill(work.d_interface, 0, count[t] * sizes.interface, np.float32(0.0))
        for b in range(count[t]):
            last = previous + b if t > 0 else -1
            memory_backward(
                memory, sizes, table, t, b, first[t] + b, last, work.interface,
                work.d_state, b * d + n_p, work.d_interface,
            )  # fmt: skip
        programs.backward(sizes, scales, table, w, g, work, first[t], count[t])
        lap(clock.PROGRAMS_BACK)
        controller.backward(sizes, scales, w, g, work, first[t], count[t], previous, batch)
        lap(clock.CONTROLLER_BACK)
    for b in range(batch):
        add_into(work.d_state, b * d, g.start, 0, n_p)
        add_into(work.d_cell, b * n_p, g.start, n_p, n_p)
    controller.gradients(sizes, g, work, rows)
    programs.gradients(sizes, g, work, rows)
    if work.d_inputs.size:
        fill(work.d_inputs, 0, rows * i_p, np.float32(0.0))
        multiply(work.d_raw_gates, 0, wide, w.gates_x_back, 0, i_p, work.d_inputs, 0, i_p, rows, wide, i_p)
