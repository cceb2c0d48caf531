"""Parameters on their way into a block as kernels read them, and gradients out of several; see `layout.Parameters`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsm.fused.algebra import PANEL, copy_block, nothing, transpose
from nsm.fused.cache import entry, kernel
from nsm.fused.lanes import load, store
from nsm.fused.layout import (
    BASE,
    COLUMNS,
    HEIGHT,
    KEY_VALUE,
    PARAMETER,
    ROLE,
    ROWS,
    SOURCE,
    STRIDE,
    SUMMED,
    TARGET,
    TARGET_STRIDE,
    TURNED,
    Sizes,
    Words,
)
from nsm.fused.records import claim, floats_at, rows_at, unfold
from nsm.similarity import EPSILON


@kernel
def _add(a, a0, lda, rows, columns, c, c0, ldc):
    """C += A, sixteen numbers at a time as far as they go."""
    whole = columns // 16 * 16
    for i in range(rows):
        source, target = a0 + i * lda, c0 + i * ldc
        for j in range(0, whole, 16):
            store(c, target + j, load(c, target + j) + load(a, source + j))
        for j in range(whole, columns):
            c[target + j] += a[source + j]


@kernel
def _add_transposed(a, a0, lda, rows, columns, c, c0, ldc):
    """C += Aᵀ"""
    for first in range(0, columns, 16):
        last = min(first + 16, columns)
        for i in range(rows):
            for j in range(first, last):
                c[c0 + j * ldc + i] += a[a0 + i * lda + j]


class Packing(NamedTuple):
    """Parameters on their way into a block, or gradients out of several."""

    turn: int
    """how many places have been claimed"""
    places: int
    """the address of the table"""
    place_count: int
    where: Words
    """the parameters' addresses"""
    blocks: Words
    """the blocks' addresses"""
    fresh: int
    """1 if gradients take the place of what is there; else they are added to it"""
    sizes: int
    """the address of the record"""
    keys: int
    key_inverses: int
    gates_x: int
    nothing: int
    """where in the block they are"""


PLACE = 11
places_at = rows_at(PLACE)


@kernel
def _to_panels(a, place, c):
    """A part of a parameter, or its transpose, to its place in a matrix that lies in panels (`multiply_panels`)."""
    base, height, width = place[BASE], place[HEIGHT], place[TARGET_STRIDE]
    row, column = (place[TARGET] - base) // width, (place[TARGET] - base) % width
    columns, done = place[ROWS] if place[TURNED] else place[COLUMNS], 0
    while done < columns:
        begin = (column + done) // PANEL * PANEL
        wide = min(PANEL, width - begin)
        some = min(begin + wide - column - done, columns - done)
        target = base + begin * height + row * wide + column + done - begin
        if place[TURNED]:
            source = place[SOURCE] + done * place[STRIDE]
            transpose(a, source, place[STRIDE], some, place[COLUMNS], c, target, wide)
        else:
            copy_block(a, place[SOURCE] + done, place[STRIDE], place[ROWS], some, c, target, wide)
        done += some


@entry
def pack(address):
    """Lay parameters out in a block, for `finish` to finish. Threads share the work place by place."""
    call = unfold(Packing, address)
    places, block = places_at(call.places), floats_at(call.blocks[0])
    row = claim(address)
    while row < call.place_count:
        place = places[row]
        a, a0, lda, rows, columns = (
            floats_at(call.where[place[PARAMETER]]),
            place[SOURCE],
            place[STRIDE],
            place[ROWS],
            place[COLUMNS],
        )
        if place[HEIGHT]:
            _to_panels(a, place, block)
        elif place[ROLE] != SUMMED and place[TURNED]:
            transpose(a, a0, lda, rows, columns, block, place[TARGET], place[TARGET_STRIDE])
        elif place[ROLE] != SUMMED:
            copy_block(a, a0, lda, rows, columns, block, place[TARGET], place[TARGET_STRIDE])
        row = claim(address)


@entry
def finish(address):
    """What depends on more than one place: sums of parameters, and what is computed from keys and weights of inputs."""
    call = unfold(Packing, address)
    sizes, places, block = unfold(Sizes, call.sizes), places_at(call.places), floats_at(call.blocks[0])
    for row in range(call.place_count):
        place = places[row]
        if place[ROLE] == SUMMED:
            _add(
                floats_at(call.where[place[PARAMETER]]), place[SOURCE], 0, 1, place[COLUMNS],
                block, place[TARGET], 0,
            )  # fmt: skip
    block[call.nothing] = nothing(block, call.gates_x, sizes.inputs * sizes.raw_gates)
    if sizes.attention >= KEY_VALUE:
        for p in range(sizes.choices * sizes.programs):
            squares, first = EPSILON, call.keys + p * sizes.keys
            for k in range(first, first + sizes.keys):
                if sizes.bounded:
                    block[k] = np.tanh(block[k])
                squares += float(block[k]) ** 2
            block[call.key_inverses + p] = 1.0 / np.sqrt(squares)


@entry
def unpack(address):
    """Gradients from where the kernels left them, block after block, to where the parameters have theirs."""
    call = unfold(Packing, address)
    places = places_at(call.places)
    row = claim(address)
    while row < call.place_count:
        place = places[row]
        c, c0, ldc, rows, columns = (
            floats_at(call.where[place[PARAMETER]]),
            place[SOURCE],
            place[STRIDE],
            place[ROWS],
            place[COLUMNS],
        )
        for k in range(call.blocks.size):
            block = floats_at(call.blocks[k])
            if k == 0 and call.fresh:
                if place[TURNED]:
                    transpose(block, place[TARGET], place[TARGET_STRIDE], columns, rows, c, c0, ldc)
                else:
                    copy_block(block, place[TARGET], place[TARGET_STRIDE], rows, columns, c, c0, ldc)
            elif place[TURNED]:
                _add_transposed(block, place[TARGET], place[TARGET_STRIDE], columns, rows, c, c0, ldc)
            else:
                _add(block, place[TARGET], place[TARGET_STRIDE], rows, columns, c, c0, ldc)
        row = claim(address)


@kernel
def bound_keys_back(sizes, w, g):
    """From the gradients of bounded keys, k = tanh(κ), to those of the keys as they are."""
    if sizes.bounded and sizes.attention >= KEY_VALUE:
        for k in range(sizes.choices * sizes.programs * sizes.keys):
            g.keys[k] *= np.float32(1.0) - w.keys[k] * w.keys[k]
