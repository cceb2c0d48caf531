"""Algorithm 1 over whole sequences, forward and backward, for one chunk of a batch; see nsm.machine.

Sequences of a chunk are sorted, longest first, and only steps that happen are stored: the rows of step t are
first[t] … first[t] + count[t] − 1, and sample b is the b-th of them. What no step depends on (input projection, output
layer, all weights' gradients) is done for all rows at once, outside the loop over time.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from nsm.fused import clock, controller, dnc, lrua, ntm, programs
from nsm.fused.algebra import accumulate, accumulate_few, add_into, copy, few, fill, multiply, multiply_few
from nsm.fused.cache import entry, glue, kernel
from nsm.fused.clock import lap
from nsm.fused.lanes import (
    claim,
    floats_at,
    flush_denormals,
    invoke,
    restore_denormals,
    rows_at,
    sums_at,
    unfold,
    words_at,
)
from nsm.fused.layout import (
    Array,
    Scales,
    Sizes,
    Weights,
    Words,
    bound_keys_back,
    copy_block,
    gather_rows,
    scatter_rows,
)
from nsm.fused.loss import binary_cross_entropy, softmax_cross_entropy
from nsm.fused.tape import LEAF, Leaf, bring, final_version, give, turn, turn_back


class Work(NamedTuple):
    """Everything a chunk's forward pass leaves for its backward pass, and what the backward pass works on."""

    noise: Array
    """(rows, n padded) noise on the cell, or empty"""
    gumbel: Array
    """(rows, heads, P) Gumbel noise, or empty"""
    inputs: Array
    """(rows, I padded)"""
    before: Array
    """(rows, D): [h_{t−1} | r_{t−1}]"""
    after: Array
    """(rows, D): [h_t | r_t]"""
    gates: Array
    """(rows, J)"""
    cells: Array
    """(B + rows, n padded): the initial ones first"""
    raw: Array
    """(rows, Q)"""
    mix: Array
    """(rows, heads, P padded): w^p"""
    soft: Array
    """(rows, heads, P padded): the softmax behind w^p"""
    kept: Array
    """(rows, heads, 3 + P): strength, its slope, 1/|q|, similarities"""
    query: Array
    """(K)"""
    scratch: Array
    """(32)"""
    interface: Array
    """(rows, X)"""
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
    d_after: Array
    """(rows, D): from the output layer"""
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
    i_p, n_p, j_, o_p = sizes.inputs_p, sizes.size_p, sizes.gates, sizes.outputs_p
    d = n_p + sizes.reads_p
    for row in range(rows):
        copy(w.gates_bias, 0, work.gates, row * j_, j_)
        copy(w.out_bias, 0, work.outputs, row * o_p, o_p)
    # Zero times what is no number is none: then zeros are not passed over.
    if few(work.inputs, rows * i_p) and w.nothing[0] == 0:
        multiply_few(work.inputs, i_p, w.gates_x, j_, work.gates, j_, rows, sizes.inputs, j_)
    else:
        multiply(work.inputs, 0, i_p, w.gates_x, 0, j_, work.gates, 0, j_, rows, sizes.inputs, j_)
    memory_start(memory)
    lap(clock.OUTSIDE)
    for t in range(steps):
        previous = first[t - 1] if t > 0 else -1
        turn(memory, t, count[t])
        controller.forward(sizes, w, work, first[t], count[t], previous, batch)
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
    multiply(work.after, 0, d, w.out, 0, o_p, work.outputs, 0, o_p, rows, n_p + sizes.reads, o_p)
    lap(clock.OUTSIDE)


@glue
def backward(sizes, scales, table, w, g, work, memory, first, count):
    """Run a chunk back: `d_outputs` in, gradients added to `g`, to `d_inputs` and to the initial state out.

    On entry d_state, d_cell and the memory's own d_… hold the gradient of each sample's final state. A step touches the
    first count[t] samples only, so a shorter one's waits untouched until time has come down to its last step.
    """
    steps, batch, rows = count.size, count[0], first[count.size]
    i_p, n_p, j_, o_p = sizes.inputs_p, sizes.size_p, sizes.gates, sizes.outputs_p
    d = n_p + sizes.reads_p
    fill(work.d_after, 0, rows * d, np.float32(0.0))
    # Where few steps have an answer, most rows of the gradient are zero.
    if few(work.d_outputs, rows * o_p):
        multiply_few(work.d_outputs, o_p, w.out_back, d, work.d_after, d, rows, sizes.outputs, d)
        accumulate_few(work.d_outputs, o_p, work.after, d, g.out_back, d, rows, sizes.outputs, d)
    else:
        multiply(work.d_outputs, 0, o_p, w.out_back, 0, d, work.d_after, 0, d, rows, sizes.outputs, d)
        accumulate(work.d_outputs, 0, o_p, work.after, 0, d, g.out_back, 0, d, rows, sizes.outputs, d)
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
        controller.backward(sizes, w, g, work, first[t], count[t], previous, batch)
        lap(clock.CONTROLLER_BACK)
    for b in range(batch):
        add_into(work.d_state, b * d, g.start, 0, n_p)
        add_into(work.d_cell, b * n_p, g.start, n_p, n_p)
    controller.gradients(sizes, g, work, rows)
    programs.gradients(sizes, g, work, rows)
    for row in range(rows):
        add_into(work.d_outputs, row * o_p, g.out_bias, 0, o_p)
    if work.d_inputs.size:
        fill(work.d_inputs, 0, rows * i_p, np.float32(0.0))
        multiply(work.d_gates, 0, j_, w.gates_x_back, 0, i_p, work.d_inputs, 0, i_p, rows, j_, i_p)


# --- a batch, chunk by chunk ------------------------------------------------------------------------------------------

THERE, LOSS, BACK = 1, 2, 4
"""What a call does with its chunks."""
BINARY, SOFTMAX = range(2)
"""Losses."""


class Plan(NamedTuple):
    """Which steps of which samples a chunk has: samples sorted longest first, rows packed step by step."""

    samples: Words
    """(B of the chunk): which samples of the batch"""
    lengths: Words
    """(B of the chunk): how many steps of each"""
    first: Words
    """(T + 1): where each step's rows begin"""
    counts: Words
    """(T): how many samples each step has"""
    start: int
    """the step of the batch that is its first"""
    rows: int


class Chunk(NamedTuple):
    """A plan and the room it has: addresses of records."""

    lane: int
    """chunks of a lane go one after another"""
    call: int
    plan: int
    work: int
    memory: int
    leaves: int
    gradients: int
    initial: int
    """the table of the state it begins with: the addresses of the leaves"""
    final: int
    """and of the one it ends with; 0 if nobody asks"""


class Call(NamedTuple):
    """A batch: how much of it there is, and the addresses of everything. What is not wanted is 0."""

    turn: int
    """how many lanes have been claimed"""
    lanes: int
    chunks: int
    chunk_count: int
    there: int
    back: int
    """the memory's entry points"""
    what: int
    batch: int
    leaves: int
    """how many parts the memory's state has, as far as they are not empty"""
    read: int
    """the place of r in the table of a state, its last"""
    clear: int
    """how many numbers of a block, from `gates_x` on, are those of gradients"""
    sizes: int
    scales: int
    table: int
    weights: int
    x: int
    """(T, B, I)"""
    cell_noise: int
    """(T, B, n)"""
    program_noise: int
    """(T, B, heads, P)"""
    out: int = 0
    """(T, B, O)"""
    d_out: int = 0
    d_x: int = 0
    d_final: int = 0
    """the table of a state, of gradients"""
    d_initial: int = 0
    targets: int = 0
    """(T, B, O)"""
    mask: int = 0
    """(T, B): 1 where a step counts"""
    loss: int = 0
    """which"""
    sums: int = 0
    """float64: 1 divided by how many steps, or numbers, count; then the loss of each chunk"""


CHUNK = len(Chunk._fields)
table_at = rows_at(5)


@kernel
def place_state(sizes, where, read, sample, rows, cells, b):
    """What a state, or its gradient, has beside the memory: the state row [h | r] and the cell of sample b."""
    n, n_p, reads, states = sizes.size, sizes.size_p, sizes.reads, controller.states(sizes)
    row = b * (n_p + sizes.reads_p)
    fill(rows, row, n_p + sizes.reads_p, np.float32(0.0))
    fill(cells, b * n_p, n_p, np.float32(0.0))
    if states > 0:
        copy_block(floats_at(where[0]), sample * n, 0, 1, n, rows, row, 0)
    if states > 1:
        copy_block(floats_at(where[1]), sample * n, 0, 1, n, cells, b * n_p, 0)
    copy_block(floats_at(where[read]), sample * reads, 0, 1, reads, rows, row + n_p, 0)


@kernel
def hand_state(sizes, where, read, sample, rows, row, cells, cell):
    """And back, from rows[row …] and cells[cell …]."""
    n, reads, states = sizes.size, sizes.reads, controller.states(sizes)
    if states > 0:
        copy_block(rows, row, 0, 1, n, floats_at(where[0]), sample * n, 0)
    if states > 1:
        copy_block(cells, cell, 0, 1, n, floats_at(where[1]), sample * n, 0)
    copy_block(rows, row + sizes.size_p, 0, 1, reads, floats_at(where[read]), sample * reads, 0)


@glue
def there(call, sizes, scales, table, w, plan, chunk, work, memory):
    """A chunk from its initial state to its outputs and its final state."""
    n_p, d, states = sizes.size_p, sizes.size_p + sizes.reads_p, controller.states(sizes)
    gather_rows(plan, floats_at(call.x), call.batch, sizes.inputs, work.inputs, sizes.inputs_p)
    if call.cell_noise:
        gather_rows(plan, floats_at(call.cell_noise), call.batch, sizes.size, work.noise, n_p)
    if call.program_noise:
        width = sizes.heads * sizes.programs
        gather_rows(plan, floats_at(call.program_noise), call.batch, width, work.gumbel, width)
    fill(memory.scratch, 0, memory.scratch.size, np.float32(0.0))  # lanes of padding read the margins of its lines
    where = words_at(chunk.initial)
    for b in range(plan.samples.size):
        place_state(sizes, where, call.read, plan.samples[b], work.before, work.cells, b)
        for i in range(call.leaves):
            leaf = unfold(Leaf, chunk.leaves + 8 * LEAF * i)
            bring(memory, leaf, floats_at(where[states + i]), plan.samples[b], leaf.array, b)
    lap(clock.STATES)
    forward(sizes, scales, table, w, work, memory, plan.first, plan.counts)
    if call.out:
        scatter_rows(plan, work.outputs, sizes.outputs_p, floats_at(call.out), call.batch, sizes.outputs)
    if chunk.final:
        where = words_at(chunk.final)
        for b in range(plan.samples.size):
            sample, last = plan.samples[b], plan.first[plan.lengths[b] - 1] + b
            cell = (plan.samples.size + last) * n_p
            hand_state(sizes, where, call.read, sample, work.after, last * d, work.cells, cell)
            for i in range(call.leaves):
                leaf = unfold(Leaf, chunk.leaves + 8 * LEAF * i)
                version = final_version(memory, leaf, b, plan.lengths[b], last)
                give(memory, leaf, leaf.array, version, floats_at(where[states + i]), sample)
    lap(clock.STATES)


@kernel
def lose(call, sizes, plan, work):
    """The chunk's part of the loss; its gradient goes to `d_outputs`."""
    o, o_p, loss = sizes.outputs, sizes.outputs_p, 0.0
    targets, mask, share = floats_at(call.targets), floats_at(call.mask), sums_at(call.sums)[0]
    fill(work.d_outputs, 0, plan.rows * o_p, np.float32(0.0))
    for t in range(plan.counts.size):
        for b in range(plan.counts[t]):
            step, row = (plan.start + t) * call.batch + plan.samples[b], (plan.first[t] + b) * o_p
            if mask[step] > 0:
                if call.loss == BINARY:
                    loss += binary_cross_entropy(work.outputs, row, targets, step * o, o, share, work.d_outputs)
                else:
                    loss += softmax_cross_entropy(work.outputs, row, targets, step * o, o, share, work.d_outputs)
    lap(clock.LOSS)
    return loss * share


@glue
def back(call, sizes, scales, table, w, plan, chunk, work, memory):
    """A chunk from the gradients of its outputs and final state to those of weights, inputs and initial state."""
    n_p, d, states = sizes.size_p, sizes.size_p + sizes.reads_p, controller.states(sizes)
    g = unfold(Weights, chunk.gradients)
    fill(g.gates_x, 0, call.clear, np.float32(0.0))
    if call.d_out:
        gather_rows(plan, floats_at(call.d_out), call.batch, sizes.outputs, work.d_outputs, sizes.outputs_p)
    fill(memory.scratch, 0, memory.scratch.size, np.float32(0.0))
    if call.d_final:
        where = words_at(call.d_final)
        for b in range(plan.samples.size):
            place_state(sizes, where, call.read, plan.samples[b], work.d_state, work.d_cell, b)
            for i in range(call.leaves):
                leaf = unfold(Leaf, chunk.leaves + 8 * LEAF * i)
                bring(memory, leaf, floats_at(where[states + i]), plan.samples[b], leaf.gradient, b)
    else:
        fill(work.d_state, 0, work.d_state.size, np.float32(0.0))
        fill(work.d_cell, 0, work.d_cell.size, np.float32(0.0))
        for i in range(call.leaves):
            leaf = unfold(Leaf, chunk.leaves + 8 * LEAF * i)
            fill(leaf.gradient, 0, leaf.gradient.size, np.float32(0.0))
    lap(clock.STATES_BACK)
    backward(sizes, scales, table, w, g, work, memory, plan.first, plan.counts)
    lap(clock.GRADIENTS)
    bound_keys_back(sizes, w, g)
    if call.d_x:
        scatter_rows(plan, work.d_inputs, sizes.inputs_p, floats_at(call.d_x), call.batch, sizes.inputs)
    if call.d_initial:
        where = words_at(call.d_initial)
        for b in range(plan.samples.size):
            sample = plan.samples[b]
            hand_state(sizes, where, call.read, sample, work.d_state, b * d, work.d_cell, b * n_p)
            for i in range(call.leaves):
                leaf = unfold(Leaf, chunk.leaves + 8 * LEAF * i)
                give(memory, leaf, leaf.gradient, b, floats_at(where[states + i]), sample)
    lap(clock.STATES_BACK)


class Entries(NamedTuple):
    """The entry points for a memory: a chunk there, and a chunk back. They are compiled apart, on two cores."""

    there: Any
    back: Any


@cache
def entries(kind: type) -> Entries:
    """Those of a memory, by the class of its work."""

    def chunk_there(address):
        chunk = unfold(Chunk, address)
        call = unfold(Call, chunk.call)
        sizes, scales, w = unfold(Sizes, call.sizes), unfold(Scales, call.scales), unfold(Weights, call.weights)
        work, memory = unfold(Work, chunk.work), unfold(kind, chunk.memory)
        there(call, sizes, scales, table_at(call.table), w, unfold(Plan, chunk.plan), chunk, work, memory)

    def chunk_back(address):
        chunk = unfold(Chunk, address)
        call = unfold(Call, chunk.call)
        sizes, scales, w = unfold(Sizes, call.sizes), unfold(Scales, call.scales), unfold(Weights, call.weights)
        work, memory = unfold(Work, chunk.work), unfold(kind, chunk.memory)
        back(call, sizes, scales, table_at(call.table), w, unfold(Plan, chunk.plan), chunk, work, memory)

    # A name, and so a file of the cache, for each: processes that compile for two memories at the same time would take
    # each other's place in one.
    for function in (chunk_there, chunk_back):
        function.__qualname__ = f"{kind.__name__}.{function.__name__}"
    return Entries(entry(chunk_there), entry(chunk_back))


@entry
def run(address):
    """Run a call's chunks, those of a lane in order, lanes as threads come for them."""
    call = unfold(Call, address)
    sizes = unfold(Sizes, call.sizes)
    denormals = flush_denormals()
    lap(0)
    lane = claim(address)
    while lane < call.lanes:
        for c in range(call.chunk_count):
            place = call.chunks + 8 * CHUNK * c
            chunk = unfold(Chunk, place)
            if chunk.lane == lane:
                if call.what & THERE:
                    invoke(call.there, place)
                if call.what & LOSS:
                    sums_at(call.sums)[1 + c] = lose(call, sizes, unfold(Plan, chunk.plan), unfold(Work, chunk.work))
                if call.what & BACK:
                    invoke(call.back, place)
        lane = claim(address)
    restore_denormals(denormals)
