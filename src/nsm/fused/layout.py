"""Where everything lies: the sizes of a machine, its weights packed for the kernels, its gradients unpacked again.

A machine's parameters are one flat buffer in the order of `machine.parameters()`. The kernels want each matrix with its
long axis along the lanes, padded to 16, and both ways round: one for the forward product, one for the backward.

    state row   [h (padded) | r (padded)]                     what a step hands on, D wide
    gates       [i | f | g | o], each padded                  J wide (feed-forward: one block)
    raw         per head and program ξ_p (padded), then per head [query, strength] (padded)      Q wide
    interface   per head ξ (padded)                           X wide
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsm.fused.cache import compiled

STATIC, KEY_VALUE, DIRECT, UNIFORM, GUMBEL = range(5)
ATTENTION = {None: STATIC, "key-value": KEY_VALUE, "direct": DIRECT, "uniform": UNIFORM, "gumbel": GUMBEL}


def padded(width: int) -> int:
    """The next multiple of 16."""
    return (width + 15) // 16 * 16


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
    lstm: int
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
# Rows of the table of parameter positions: the machine's, then per head. −1 where a machine has no such parameter.
WEIGHT_IH, BIAS_IH, WEIGHT_HH, BIAS_HH, GATE_NORM_W, GATE_NORM_B, CELL_NORM_W, CELL_NORM_B, OUT_W, OUT_B = range(10)
HEAD = 10
VALUES, BIAS, KEYS, QUERY_W, QUERY_B, STRENGTH_W, STRENGTH_B, NORM_W, NORM_B = range(9)
HEAD_FIELDS = 9


class Weights(NamedTuple):
    """The weights as the kernels read them, and in the same layout their gradients as the kernels leave them."""

    gates_x: np.ndarray
    """(I, J)"""
    gates_s: np.ndarray
    """(D, J)"""
    gates_bias: np.ndarray
    """(J)"""
    gates_x_back: np.ndarray
    """(J, I padded)"""
    gates_s_back: np.ndarray
    """(J, D)"""
    raw: np.ndarray
    """(n, Q)"""
    raw_bias: np.ndarray
    """(Q)"""
    raw_back: np.ndarray
    """(Q, n padded)"""
    keys: np.ndarray
    """(heads, P, K)"""
    out: np.ndarray
    """(D, O padded)"""
    out_bias: np.ndarray
    """(O padded)"""
    out_back: np.ndarray
    """(O padded, D)"""
    gate_norm: np.ndarray
    """(2, J): weight, bias"""
    cell_norm: np.ndarray
    """(2, n padded)"""
    interface_norm: np.ndarray
    """(2, X)"""


def weights(sizes: Sizes) -> Weights:
    """Zeroed buffers of the right sizes; what is padding stays zero."""
    s, j, d = sizes, sizes.gates, sizes.row
    shapes = Weights(
        gates_x=s.inputs * j,
        gates_s=d * j,
        gates_bias=j,
        gates_x_back=j * s.inputs_p,
        gates_s_back=j * d,
        raw=s.size * s.raw,
        raw_bias=s.raw,
        raw_back=s.raw * s.size_p,
        keys=s.heads * s.programs * max(1, s.keys),
        out=d * s.outputs_p,
        out_bias=s.outputs_p,
        out_back=s.outputs_p * d,
        gate_norm=2 * j,
        cell_norm=2 * s.size_p,
        interface_norm=2 * s.interface,
    )
    return Weights(*(np.zeros(max(16, size), np.float32) for size in shapes))


@compiled
def pack(flat, where, table, sizes, w):
    """Lay the flat parameters out for the kernels."""
    n, n_p, j_, d = sizes.size, sizes.size_p, sizes.gates, sizes.size_p + sizes.reads_p
    inputs = sizes.inputs + sizes.reads
    for gate in range(j_ // n_p):
        for unit in range(n):
            j = gate * n_p + unit
            row = where[WEIGHT_IH] + (gate * n + unit) * inputs
            for k in range(sizes.inputs):
                w.gates_x[k * j_ + j] = flat[row + k]
                w.gates_x_back[j * sizes.inputs_p + k] = flat[row + k]
            for k in range(sizes.reads):
                w.gates_s[(n_p + k) * j_ + j] = flat[row + sizes.inputs + k]
                w.gates_s_back[j * d + n_p + k] = flat[row + sizes.inputs + k]
            bias = flat[where[BIAS_IH] + gate * n + unit]
            if sizes.lstm:
                row = where[WEIGHT_HH] + (gate * n + unit) * n
                for k in range(n):
                    w.gates_s[k * j_ + j] = flat[row + k]
                    w.gates_s_back[j * d + k] = flat[row + k]
                if where[BIAS_HH] >= 0:
                    bias += flat[where[BIAS_HH] + gate * n + unit]
            w.gates_bias[j] = bias
            if sizes.controller_norm:
                w.gate_norm[j] = flat[where[GATE_NORM_W] + 2 * gate * n + unit]
                w.gate_norm[j_ + j] = flat[where[GATE_NORM_W] + 2 * gate * n + n + unit]
    if sizes.controller_norm:
        for unit in range(n):
            w.cell_norm[unit] = flat[where[CELL_NORM_W] + unit]
            w.cell_norm[n_p + unit] = flat[where[CELL_NORM_B] + unit]

    for h in range(sizes.heads):
        at = HEAD + h * HEAD_FIELDS
        length, length_p, values = table[h, LENGTH], table[h, LENGTH_P], where[at + VALUES]
        for p in range(sizes.programs):
            column = table[h, RAW] + p * length_p
            for k in range(n + 1):
                for i in range(length):
                    if sizes.attention != STATIC:
                        value = flat[values + (p * (n + 1) + k) * length + i]
                    elif k < n:
                        value = flat[values + i * n + k]
                    else:
                        value = flat[where[at + BIAS] + i]
                    if k < n:
                        w.raw[k * sizes.raw + column + i] = value
                        w.raw_back[(column + i) * n_p + k] = value
                    else:
                        w.raw_bias[column + i] = value
        if sizes.interface_norm:
            for i in range(length):
                w.interface_norm[table[h, XI] + i] = flat[where[at + NORM_W] + i]
                w.interface_norm[sizes.interface + table[h, XI] + i] = flat[where[at + NORM_B] + i]
        if sizes.attention == STATIC or sizes.attention == UNIFORM:
            continue
        for q in range(sizes.keys + 1):
            column = table[h, QUERY] + q
            source = where[at + QUERY_W] + q * n if q < sizes.keys else where[at + STRENGTH_W]
            for k in range(n):
                w.raw[k * sizes.raw + column] = flat[source + k]
                w.raw_back[column * n_p + k] = flat[source + k]
            if where[at + QUERY_B] >= 0:
                w.raw_bias[column] = flat[where[at + QUERY_B] + q] if q < sizes.keys else flat[where[at + STRENGTH_B]]
        if sizes.attention != DIRECT:
            for i in range(sizes.programs * sizes.keys):
                key = flat[where[at + KEYS] + i]
                w.keys[h * sizes.programs * sizes.keys + i] = np.tanh(key) if sizes.bounded else key

    width = n + sizes.reads
    for o in range(sizes.outputs):
        for k in range(width):
            place = k if k < n else n_p + k - n
            value = flat[where[OUT_W] + o * width + k]
            w.out[place * sizes.outputs_p + o] = value
            w.out_back[o * d + place] = value
        w.out_bias[o] = flat[where[OUT_B] + o]


@compiled
def unpack(g, w, where, table, sizes, flat):
    """Add the gradients the kernels left to the flat buffer; the inverse of `pack`."""
    n, n_p, j_, d = sizes.size, sizes.size_p, sizes.gates, sizes.size_p + sizes.reads_p
    inputs = sizes.inputs + sizes.reads
    for gate in range(j_ // n_p):
        for unit in range(n):
            j = gate * n_p + unit
            row = where[WEIGHT_IH] + (gate * n + unit) * inputs
            for k in range(sizes.inputs):
                flat[row + k] += g.gates_x_back[j * sizes.inputs_p + k]
            for k in range(sizes.reads):
                flat[row + sizes.inputs + k] += g.gates_s_back[j * d + n_p + k]
            flat[where[BIAS_IH] + gate * n + unit] += g.gates_bias[j]
            if sizes.lstm:
                row = where[WEIGHT_HH] + (gate * n + unit) * n
                for k in range(n):
                    flat[row + k] += g.gates_s_back[j * d + k]
                if where[BIAS_HH] >= 0:
                    flat[where[BIAS_HH] + gate * n + unit] += g.gates_bias[j]
            if sizes.controller_norm:
                flat[where[GATE_NORM_W] + 2 * gate * n + unit] += g.gate_norm[j]
                flat[where[GATE_NORM_W] + 2 * gate * n + n + unit] += g.gate_norm[j_ + j]
    if sizes.controller_norm:
        for unit in range(n):
            flat[where[CELL_NORM_W] + unit] += g.cell_norm[unit]
            flat[where[CELL_NORM_B] + unit] += g.cell_norm[n_p + unit]

    for h in range(sizes.heads):
        at = HEAD + h * HEAD_FIELDS
        length, length_p, values = table[h, LENGTH], table[h, LENGTH_P], where[at + VALUES]
        for p in range(sizes.programs):
            column = table[h, RAW] + p * length_p
            for k in range(n + 1):
                for i in range(length):
                    value = g.raw[k * sizes.raw + column + i] if k < n else g.raw_bias[column + i]
                    if sizes.attention != STATIC:
                        flat[values + (p * (n + 1) + k) * length + i] += value
                    elif k < n:
                        flat[values + i * n + k] += value
                    else:
                        flat[where[at + BIAS] + i] += value
        if sizes.interface_norm:
            for i in range(length):
                flat[where[at + NORM_W] + i] += g.interface_norm[table[h, XI] + i]
                flat[where[at + NORM_B] + i] += g.interface_norm[sizes.interface + table[h, XI] + i]
        if sizes.attention == STATIC or sizes.attention == UNIFORM:
            continue
        for q in range(sizes.keys + 1):
            column = table[h, QUERY] + q
            target = where[at + QUERY_W] + q * n if q < sizes.keys else where[at + STRENGTH_W]
            for k in range(n):
                flat[target + k] += g.raw[k * sizes.raw + column]
            if where[at + QUERY_B] >= 0:
                bias = where[at + QUERY_B] + q if q < sizes.keys else where[at + STRENGTH_B]
                flat[bias] += g.raw_bias[column]
        if sizes.attention != DIRECT:
            for i in range(sizes.programs * sizes.keys):
                place = h * sizes.programs * sizes.keys + i
                slope = 1 - w.keys[place] * w.keys[place] if sizes.bounded else np.float32(1.0)
                flat[where[at + KEYS] + i] += slope * g.keys[place]

    width = n + sizes.reads
    for o in range(sizes.outputs):
        for k in range(width):
            flat[where[OUT_W] + o * width + k] += g.out_back[o * d + (k if k < n else n_p + k - n)]
        flat[where[OUT_B] + o] += g.out_bias[o]
