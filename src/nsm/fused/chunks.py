"""A batch, chunk by chunk: what a chunk takes from it, a pass over its steps there or back, and what it gives."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from nsm.fused import clock, controller
from nsm.fused.algebra import copy_block, fill
from nsm.fused.cache import entry, glue, kernel
from nsm.fused.clock import lap
from nsm.fused.lanes import flush_denormals, restore_denormals
from nsm.fused.layout import Scales, Sizes, Weights, Words
from nsm.fused.loss import BINARY, binary_cross_entropy, softmax_cross_entropy
from nsm.fused.packing import bound_keys_back
from nsm.fused.records import claim, floats_at, invoke, rows_at, sums_at, unfold, words_at
from nsm.fused.recurrence import Work, backward, forward
from nsm.fused.tape import LEAF, Leaf, bring, final_version, give

THERE, LOSS, BACK = 1, 2, 4
"""What a call does with its chunks."""


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
    """(T, B, choices, P)"""
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
def gather_rows(plan, source, batch, width, target, stride):
    """A (T, B, width) array row by row, one after another and padded with zeros to `stride`."""
    edge = width // 16 * 16 if width < stride else stride
    for t in range(plan.counts.size):
        for b in range(plan.counts[t]):
            start, at = ((plan.start + t) * batch + plan.samples[b]) * width, (plan.first[t] + b) * stride
            fill(target, at + edge, stride - edge, np.float32(0.0))
            copy_block(source, start, 0, 1, width, target, at, 0)


@kernel
def scatter_rows(plan, source, stride, target, batch, width):
    """The rows of `gather_rows` back to where they were."""
    for t in range(plan.counts.size):
        for b in range(plan.counts[t]):
            start, at = ((plan.start + t) * batch + plan.samples[b]) * width, (plan.first[t] + b) * stride
            copy_block(source, at, 0, 1, width, target, start, 0)


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
        width = sizes.choices * sizes.programs
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
