"""Where everything lies: the sizes of a machine, its weights packed for the kernels, its gradients unpacked again.

Parameters come as tensors of their own, each by its address. The kernels want each matrix with its long axis along the
lanes, padded to 16, and both ways round: one for the forward product, one for the backward.

    state row   [h (padded) | r (padded)]                     what a step hands on, D wide
    gates       [i | f | g | o], each padded                  J wide (GRU: [r | z | n of x and r | n of h]; others: one)
    raw         per head and program ξ_p (padded), then per head [query, strength] (padded)      Q wide
    interface   per head ξ (padded)                           X wide
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numba.extending import register_jitable

from nsm.fused.algebra import fill
from nsm.fused.cache import compiled, compiled_long, kernel
from nsm.fused.lanes import floats_at, load, store, transpose_block
from nsm.similarity import EPSILON

Array = Any
"""A float32 array. Any, because states are the reference's named tuples, holding arrays in place of tensors."""

FEED_FORWARD, RNN, GRU, LSTM = range(4)
CONTROLLERS = {"feed-forward": FEED_FORWARD, "rnn": RNN, "gru": GRU, "lstm": LSTM}
STATIC, KEY_VALUE, DIRECT, UNIFORM, GUMBEL = range(5)
ATTENTION = {None: STATIC, "key-value": KEY_VALUE, "direct": DIRECT, "uniform": UNIFORM, "gumbel": GUMBEL}


@register_jitable
def padded(width: int) -> int:
    """The next multiple of 16."""
    return (width + 15) // 16 * 16


@lru_cache(maxsize=256)
def mask(width: int, whole: int) -> Array:
    """1 for the first `width` of `whole` numbers, 0 for the others, which are padding."""
    return (np.arange(whole) < width).astype(np.float32)


class Sizes(NamedTuple):
    """The integers of a machine; `p` stands for padded."""

    inputs: int
    inputs_p: int
    outputs: int
    outputs_p: int
    size: int
    size_p: int
    reads: int
    reads_p: int
    gates: int
    controller: int
    controller_norm: int
    interface_norm: int
    heads: int
    programs: int
    keys: int
    attention: int
    bounded: int
    raw: int
    interface: int

    @property
    def row(self) -> int:
        """D, the width of a state row."""
        return self.size_p + self.reads_p


class Scales(NamedTuple):
    """The floats of a machine."""

    temperature: float
    strength: float


# Columns of the table of heads.
RAW, QUERY, XI, LENGTH, LENGTH_P = range(5)
# Rows of the table of parameters' addresses: the machine's, then per head. 0 where a machine has no such parameter.
WEIGHT_IH, BIAS_IH, WEIGHT_HH, BIAS_HH, CELL_NORM_W, CELL_NORM_B, OUT_W, OUT_B, HIDDEN, CELL, GATE_NORM = range(11)
HEAD = GATE_NORM + 8
"""A weight and a bias for the norm of each gate come before."""
WEIGHT, BIAS, KEY, QUERY_W, QUERY_B, STRENGTH_W, STRENGTH_B, NORM_W, NORM_B = range(9)
HEAD_FIELDS = 9


class Weights(NamedTuple):
    """The weights as the kernels read them, and in the same layout their gradients as the kernels leave them."""

    gates_x: Array
    """(I, J)"""
    gates_s: Array
    """(D, J)"""
    gates_bias: Array
    """(J)"""
    gates_x_back: Array
    """(J, I padded)"""
    gates_s_back: Array
    """(J, D)"""
    raw: Array
    """(n, Q)"""
    raw_bias: Array
    """(Q)"""
    raw_back: Array
    """(Q, n padded)"""
    keys: Array
    """(heads, P, K)"""
    key_inverses: Array
    """(heads, P): 1/|k_p|"""
    out: Array
    """(D, O padded)"""
    out_bias: Array
    """(O padded)"""
    out_back: Array
    """(O padded, D)"""
    gate_norm: Array
    """(2, J): weight, bias"""
    cell_norm: Array
    """(2, n padded)"""
    interface_norm: Array
    """(2, X)"""
    start: Array
    """(2, n padded): of the learned initial state, h_0 and the cell, the gradient only"""


def weights(take: Callable[[int], Array], sizes: Sizes) -> Weights:
    """Buffers of the right sizes. Their padding must be zero: whoever makes them fills them with zeros first."""
    s, j, d = sizes, sizes.gates, sizes.row
    return Weights(
        gates_x=take(s.inputs * j),
        gates_s=take(d * j),
        gates_bias=take(j),
        gates_x_back=take(j * s.inputs_p),
        gates_s_back=take(j * d),
        raw=take(s.size * s.raw),
        raw_bias=take(s.raw),
        raw_back=take(s.raw * s.size_p),
        keys=take(s.heads * s.programs * max(1, s.keys)),
        key_inverses=take(s.heads * s.programs),
        out=take(d * s.outputs_p),
        out_bias=take(s.outputs_p),
        out_back=take(s.outputs_p * d),
        gate_norm=take(2 * j),
        cell_norm=take(2 * s.size_p),
        interface_norm=take(2 * s.interface),
        start=take(2 * s.size_p),
    )


@kernel
def _copy(a, a0, lda, rows, columns, c, c0, ldc):
    """C = A, sixteen numbers at a time as far as they go."""
    whole = columns // 16 * 16
    for i in range(rows):
        source, target = a0 + i * lda, c0 + i * ldc
        for j in range(0, whole, 16):
            store(c, target + j, load(a, source + j))
        for j in range(whole, columns):
            c[target + j] = a[source + j]


@kernel
def _transpose(a, a0, lda, rows, columns, c, c0, ldc):
    """C = Aᵀ, in whole blocks as far as they go."""
    whole, wide = rows // 16 * 16, columns // 16 * 16
    for i in range(0, whole, 16):
        for j in range(0, wide, 16):
            transpose_block(a, a0 + i * lda + j, lda, c, c0 + j * ldc + i, ldc)
    for i in range(rows):
        for j in range(wide if i < whole else 0, columns):
            c[c0 + j * ldc + i] = a[a0 + i * lda + j]


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


@kernel
def _gates(sizes):
    """How many gates the controller's parameters have."""
    return 3 if sizes.controller == GRU else sizes.gates // sizes.size_p


@kernel
def _recurrent(sizes, gate):
    """Where a gate's recurrent part goes: a GRU keeps that of its candidate apart, to multiply it by r."""
    return 3 if sizes.controller == GRU and gate == 2 else gate


@compiled_long
def pack(where, table, sizes, w):
    """Lay the parameters at the addresses `where` out for the kernels."""
    n, n_p, j_, q_, d = sizes.size, sizes.size_p, sizes.gates, sizes.raw, sizes.size_p + sizes.reads_p
    inputs, i_p, o_p = sizes.inputs + sizes.reads, sizes.inputs_p, sizes.outputs_p
    for gate in range(_gates(sizes)):
        place, rows, weight = gate * n_p, gate * n * inputs, floats_at(where[WEIGHT_IH])
        _transpose(weight, rows, inputs, n, sizes.inputs, w.gates_x, place, j_)
        _copy(weight, rows, inputs, n, sizes.inputs, w.gates_x_back, place * i_p, i_p)
        _transpose(weight, rows + sizes.inputs, inputs, n, sizes.reads, w.gates_s, n_p * j_ + place, j_)
        _copy(weight, rows + sizes.inputs, inputs, n, sizes.reads, w.gates_s_back, place * d + n_p, d)
        _copy(floats_at(where[BIAS_IH]), gate * n, 0, 1, n, w.gates_bias, place, 0)
        if sizes.controller != FEED_FORWARD:
            rows, weight, own = gate * n * n, floats_at(where[WEIGHT_HH]), _recurrent(sizes, gate) * n_p
            _transpose(weight, rows, n, n, n, w.gates_s, own, j_)
            _copy(weight, rows, n, n, n, w.gates_s_back, own * d, d)
            if where[BIAS_HH]:
                _add(floats_at(where[BIAS_HH]), gate * n, 0, 1, n, w.gates_bias, own, 0)
        if sizes.controller_norm:
            _copy(floats_at(where[GATE_NORM + 2 * gate]), 0, 0, 1, n, w.gate_norm, place, 0)
            _copy(floats_at(where[GATE_NORM + 2 * gate + 1]), 0, 0, 1, n, w.gate_norm, j_ + place, 0)
    if sizes.controller_norm:
        _copy(floats_at(where[CELL_NORM_W]), 0, 0, 1, n, w.cell_norm, 0, 0)
        _copy(floats_at(where[CELL_NORM_B]), 0, 0, 1, n, w.cell_norm, n_p, 0)

    for h in range(sizes.heads):
        at, length, column = HEAD + h * HEAD_FIELDS, table[h, LENGTH], table[h, RAW]
        weight, bias = floats_at(where[at + WEIGHT]), floats_at(where[at + BIAS])
        if sizes.attention == STATIC:
            _transpose(weight, 0, n, length, n, w.raw, column, q_)
            _copy(weight, 0, n, length, n, w.raw_back, column * n_p, n_p)
            _copy(bias, 0, 0, 1, length, w.raw_bias, column, 0)
        else:
            for p in range(sizes.programs):
                _copy(weight, p * n * length, length, n, length, w.raw, column, q_)
                _transpose(weight, p * n * length, length, n, length, w.raw_back, column * n_p, n_p)
                _copy(bias, p * length, 0, 1, length, w.raw_bias, column, 0)
                column += table[h, LENGTH_P]
        if sizes.interface_norm:
            _copy(floats_at(where[at + NORM_W]), 0, 0, 1, length, w.interface_norm, table[h, XI], 0)
            _copy(floats_at(where[at + NORM_B]), 0, 0, 1, length, w.interface_norm, sizes.interface + table[h, XI], 0)
        if sizes.attention == STATIC or sizes.attention == UNIFORM:
            continue
        query, strength = table[h, QUERY], table[h, QUERY] + sizes.keys
        weight = floats_at(where[at + QUERY_W])
        _transpose(weight, 0, n, sizes.keys, n, w.raw, query, q_)
        _copy(weight, 0, n, sizes.keys, n, w.raw_back, query * n_p, n_p)
        weight = floats_at(where[at + STRENGTH_W])
        _transpose(weight, 0, n, 1, n, w.raw, strength, q_)
        _copy(weight, 0, n, 1, n, w.raw_back, strength * n_p, n_p)
        if where[at + QUERY_B]:
            _copy(floats_at(where[at + QUERY_B]), 0, 0, 1, sizes.keys, w.raw_bias, query, 0)
            _copy(floats_at(where[at + STRENGTH_B]), 0, 0, 1, 1, w.raw_bias, strength, 0)
        if sizes.attention != DIRECT:
            count = sizes.programs * sizes.keys
            _copy(floats_at(where[at + KEY]), 0, 0, 1, count, w.keys, h * count, 0)
            if sizes.bounded:
                for i in range(h * count, (h + 1) * count):
                    w.keys[i] = np.tanh(w.keys[i])
            for p in range(h * sizes.programs, (h + 1) * sizes.programs):
                squares = EPSILON
                for k in range(p * sizes.keys, (p + 1) * sizes.keys):
                    squares += float(w.keys[k]) ** 2
                w.key_inverses[p] = 1.0 / np.sqrt(squares)

    width, weight = n + sizes.reads, floats_at(where[OUT_W])
    _transpose(weight, 0, width, sizes.outputs, n, w.out, 0, o_p)
    _transpose(weight, n, width, sizes.outputs, sizes.reads, w.out, n_p * o_p, o_p)
    _copy(weight, 0, width, sizes.outputs, n, w.out_back, 0, d)
    _copy(weight, n, width, sizes.outputs, sizes.reads, w.out_back, n_p, d)
    _copy(floats_at(where[OUT_B]), 0, 0, 1, sizes.outputs, w.out_bias, 0, 0)


@compiled_long
def unpack(g, w, where, table, sizes):
    """Add the gradients the kernels left to those at the addresses `where`: `pack` the other way.

    HIDDEN and CELL are those of a learned initial state, for who has no other way to it than this.
    """
    n, n_p, j_, q_, d = sizes.size, sizes.size_p, sizes.gates, sizes.raw, sizes.size_p + sizes.reads_p
    inputs, i_p = sizes.inputs + sizes.reads, sizes.inputs_p
    for gate in range(_gates(sizes)):
        place, rows, weight = gate * n_p, gate * n * inputs, floats_at(where[WEIGHT_IH])
        _add(g.gates_x_back, place * i_p, i_p, n, sizes.inputs, weight, rows, inputs)
        _add(g.gates_s_back, place * d + n_p, d, n, sizes.reads, weight, rows + sizes.inputs, inputs)
        _add(g.gates_bias, place, 0, 1, n, floats_at(where[BIAS_IH]), gate * n, 0)
        if sizes.controller != FEED_FORWARD:
            own = _recurrent(sizes, gate) * n_p
            _add(g.gates_s_back, own * d, d, n, n, floats_at(where[WEIGHT_HH]), gate * n * n, n)
            if where[BIAS_HH]:
                _add(g.gates_bias, own, 0, 1, n, floats_at(where[BIAS_HH]), gate * n, 0)
        if sizes.controller_norm:
            _add(g.gate_norm, place, 0, 1, n, floats_at(where[GATE_NORM + 2 * gate]), 0, 0)
            _add(g.gate_norm, j_ + place, 0, 1, n, floats_at(where[GATE_NORM + 2 * gate + 1]), 0, 0)
    if sizes.controller_norm:
        _add(g.cell_norm, 0, 0, 1, n, floats_at(where[CELL_NORM_W]), 0, 0)
        _add(g.cell_norm, n_p, 0, 1, n, floats_at(where[CELL_NORM_B]), 0, 0)

    for h in range(sizes.heads):
        at, length, column = HEAD + h * HEAD_FIELDS, table[h, LENGTH], table[h, RAW]
        weight, bias = floats_at(where[at + WEIGHT]), floats_at(where[at + BIAS])
        if sizes.attention == STATIC:
            _add_transposed(g.raw, column, q_, n, length, weight, 0, n)
            _add(g.raw_bias, column, 0, 1, length, bias, 0, 0)
        else:
            for p in range(sizes.programs):
                _add(g.raw, column, q_, n, length, weight, p * n * length, length)
                _add(g.raw_bias, column, 0, 1, length, bias, p * length, 0)
                column += table[h, LENGTH_P]
        if sizes.interface_norm:
            _add(g.interface_norm, table[h, XI], 0, 1, length, floats_at(where[at + NORM_W]), 0, 0)
            _add(g.interface_norm, sizes.interface + table[h, XI], 0, 1, length, floats_at(where[at + NORM_B]), 0, 0)
        if sizes.attention == STATIC or sizes.attention == UNIFORM:
            continue
        query, strength = table[h, QUERY], table[h, QUERY] + sizes.keys
        _add_transposed(g.raw, query, q_, n, sizes.keys, floats_at(where[at + QUERY_W]), 0, n)
        _add_transposed(g.raw, strength, q_, n, 1, floats_at(where[at + STRENGTH_W]), 0, n)
        if where[at + QUERY_B]:
            _add(g.raw_bias, query, 0, 1, sizes.keys, floats_at(where[at + QUERY_B]), 0, 0)
            _add(g.raw_bias, strength, 0, 1, 1, floats_at(where[at + STRENGTH_B]), 0, 0)
        if sizes.attention != DIRECT:
            key = floats_at(where[at + KEY])
            for i in range(sizes.programs * sizes.keys):
                place = h * sizes.programs * sizes.keys + i
                slope = 1 - w.keys[place] * w.keys[place] if sizes.bounded else np.float32(1.0)
                key[i] += slope * g.keys[place]

    width, weight = n + sizes.reads, floats_at(where[OUT_W])
    _add(g.out_back, 0, d, sizes.outputs, n, weight, 0, width)
    _add(g.out_back, n_p, d, sizes.outputs, sizes.reads, weight, n, width)
    _add(g.out_bias, 0, 0, 1, sizes.outputs, floats_at(where[OUT_B]), 0, 0)
    if where[HIDDEN]:
        _add(g.start, 0, 0, 1, n, floats_at(where[HIDDEN]), 0, 0)
    if where[CELL]:
        _add(g.start, n_p, 0, 1, n, floats_at(where[CELL]), 0, 0)


@compiled
def gather_rows(source, steps, owners, target, stride):
    """Rows (step, owner) of a (T, B, width) array, one after another and padded with zeros to `stride`."""
    width = source.shape[2]
    for row in range(steps.size):
        t, b, at = steps[row], owners[row], row * stride
        for i in range(width):
            target[at + i] = source[t, b, i]
        for i in range(width, stride):
            target[at + i] = 0


@compiled
def scatter_rows(source, stride, steps, owners, target):
    """The rows of `gather_rows` back to where they were, as far as `target` (T, B, width) is wide."""
    for row in range(steps.size):
        t, b, at = steps[row], owners[row], row * stride
        for i in range(target.shape[2]):
            target[t, b, i] = source[at + i]


@compiled
def place_states(sizes, hidden, cell, read, rows, cells):
    """The state rows [h | r] and the cells of all samples. What a controller has not is an array of width 0."""
    n_p = sizes.size_p
    d = n_p + sizes.reads_p
    for b in range(read.shape[0]):
        fill(rows, b * d, d, np.float32(0.0))
        for i in range(hidden.shape[1]):
            rows[b * d + i] = hidden[b, i]
        for i in range(read.shape[1]):
            rows[b * d + n_p + i] = read[b, i]
        fill(cells, b * n_p, n_p, np.float32(0.0))
        for i in range(cell.shape[1]):
            cells[b * n_p + i] = cell[b, i]


@compiled
def place_tapes(source, n_p, target):
    """Tapes (B, N, M) as the kernels have them: (B, M, N), and each line padded with zeros."""
    batch, slots, width = source.shape
    for b in range(batch):
        for k in range(width):
            at = (b * width + k) * n_p
            for i in range(slots):
                target[at + i] = source[b, i, k]
            for i in range(slots, n_p):
                target[at + i] = 0


@compiled
def place_lines(source, lines, count, n_p, target):
    """Lines (B, some, N) as the kernels have them, padded with zeros: number `lines[…]` of `count` of each sample."""
    batch, some, slots = source.shape
    for b in range(batch):
        for h in range(some):
            at = (b * count + lines[h]) * n_p
            for i in range(slots):
                target[at + i] = source[b, h, i]
            for i in range(slots, n_p):
                target[at + i] = 0
