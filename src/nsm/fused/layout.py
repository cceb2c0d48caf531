"""Where everything lies: the sizes of a machine, its weights packed for the kernels, its gradients unpacked again.

Parameters come as tensors of their own, each by its address. The kernels want each matrix with its long axis along the
lanes, padded to 16, and both ways round: one for the forward product, one for the backward. A table of places says
which part of which parameter lies where: packing reads it one way, unpacking the other.

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

from nsm.controllers import NETWORKS
from nsm.description import Description
from nsm.fused.algebra import fill
from nsm.fused.cache import compiled, compiled_long, kernel
from nsm.fused.lanes import floats_at, load, store, transpose_block, unfold
from nsm.programs import ATTENTION as STRATEGIES
from nsm.similarity import EPSILON

Array = Any
"""A float32 array. Any, because states are the reference's named tuples, holding arrays in place of tensors."""
Order = Any
"""An int32 array."""
Words = Any
"""An int64 array."""

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


# --- sizes ------------------------------------------------------------------------------------------------------------

# Columns of the table of heads.
RAW, QUERY, XI, LENGTH, LENGTH_P = range(5)


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


def sizes_of(description: Description, inputs: int, outputs: int) -> tuple[Sizes, Scales, Array]:
    """The integers of a machine, its floats, and the table of its heads."""
    d, memory = description, description.memory
    n, stored, kind = d.controller.size, d.programs, CONTROLLERS[d.controller.kind]
    # Rows of gates a multiple of 4,096 bytes apart would push each other out of the nearest cache.
    size_p = padded(n) + (16 if padded(n) % 256 == 0 else 0)
    programs, keys = (stored.count, stored.keys) if stored else (1, 0)
    queried = stored is not None and stored.attention != "uniform"
    table = np.zeros((len(memory.heads), 5), np.int64)
    raw = interface = 0
    for h, head in enumerate(memory.heads):
        length_p = padded(head.size)
        table[h] = raw, 0, interface, head.size, length_p
        raw += programs * length_p
        interface += length_p
    for h in range(len(memory.heads)):
        table[h, QUERY] = raw
        raw += padded(keys + 1) if queried else 0
    found = Sizes(
        inputs=inputs,
        inputs_p=padded(inputs),
        outputs=outputs,
        outputs_p=padded(outputs),
        size=n,
        size_p=size_p,
        reads=memory.read_size,
        reads_p=padded(memory.read_size),
        gates=(4 if kind in (GRU, LSTM) else 1) * size_p,
        controller=kind,
        controller_norm=int(d.controller.layer_norm),
        interface_norm=int(d.interface_norm),
        heads=len(memory.heads),
        programs=programs,
        keys=keys,
        attention=ATTENTION[stored.attention if stored else None],
        bounded=int(stored is not None and stored.bounded_keys),
        raw=raw,
        interface=interface,
    )
    return found, Scales(stored.temperature if stored else 1.0, stored.strength_scale if stored else 1.0), table


# --- weights ----------------------------------------------------------------------------------------------------------


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


def weights(take: Callable[[int], Any], sizes: Sizes) -> Weights:
    """What `take` gives for the size of each. Their padding must be zero."""
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


# --- parameters -------------------------------------------------------------------------------------------------------

# Columns of the table of places: a part of a parameter, ROWS × COLUMNS numbers from SOURCE on, and where it lies.
PARAMETER, SOURCE, STRIDE, ROWS, COLUMNS, TARGET, TARGET_STRIDE, TURNED, ROLE = range(9)
# COPY: for the kernels to read. ADDED: to what lies there. A GRADIENT is also unpacked from there.
COPY, ADDED, GRADIENT = range(3)


class Parameters:
    """The parameters of a machine in the order an operator takes them: their shapes, and where their parts lie."""

    def __init__(self, described: Description, sizes: Sizes, table: Array, spans: Weights) -> None:
        self.shapes: list[tuple[int, ...]] = []
        self._places: list[tuple[int, ...]] = []
        self.sizes, self.at = sizes, Weights(*(span.start for span in spans))
        self._controller(described)
        for h, head in enumerate(described.memory.heads):
            self._interface(described, table[h], h, head.size)
        self._output()
        self.places = np.array(self._places, np.int64)

    def _take(self, *shape: int) -> None:
        self.shapes.append(shape)

    def _place(
        self,
        source: int,
        stride: int,
        rows: int,
        columns: int,
        target: int,
        ld: int,
        turned: bool = False,
        role: int = COPY,
    ) -> None:
        self._places.append((len(self.shapes) - 1, source, stride, rows, columns, target, ld, int(turned), role))

    def _vector(self, target: int, source: int = 0, size: int | None = None, role: int = GRADIENT) -> None:
        self._place(source, 0, 1, self.shapes[-1][0] if size is None else size, target, 0, role=role)

    def _controller(self, d: Description) -> None:
        s, at, n, n_p, j, width = (
            self.sizes,
            self.at,
            self.sizes.size,
            self.sizes.size_p,
            self.sizes.gates,
            self.sizes.row,
        )
        gates, inputs, kind = NETWORKS[d.controller.kind].gates, s.inputs + s.reads, s.controller
        self._take(gates * n, inputs)
        for gate in range(gates):
            rows, place = gate * n * inputs, gate * n_p
            self._place(rows, inputs, n, s.inputs, at.gates_x + place, j, turned=True)
            self._place(rows, inputs, n, s.inputs, at.gates_x_back + place * s.inputs_p, s.inputs_p, role=GRADIENT)
            rows += s.inputs
            self._place(rows, inputs, n, s.reads, at.gates_s + n_p * j + place, j, turned=True)
            self._place(rows, inputs, n, s.reads, at.gates_s_back + place * width + n_p, width, role=GRADIENT)
        self._take(gates * n)
        for gate in range(gates):
            self._vector(at.gates_bias + gate * n_p, gate * n, n)
        if kind != FEED_FORWARD:
            # A GRU keeps the recurrent part of its candidate apart, to multiply it by r.
            own = [3 * n_p if kind == GRU and gate == 2 else gate * n_p for gate in range(gates)]
            self._take(gates * n, n)
            for gate, place in enumerate(own):
                self._place(gate * n * n, n, n, n, at.gates_s + place, j, turned=True)
                self._place(gate * n * n, n, n, n, at.gates_s_back + place * width, width, role=GRADIENT)
            if d.controller.biases == 2:
                self._take(gates * n)
                for gate, place in enumerate(own):
                    self._vector(at.gates_bias + place, gate * n, n, ADDED)
        if d.controller.layer_norm:
            for target in (*(at.gate_norm + i * n_p + half * j for i in range(gates) for half in (0, 1)),
                           at.cell_norm, at.cell_norm + n_p):  # fmt: skip
                self._take(n)
                self._vector(target)

    def _interface(self, d: Description, head: Array, h: int, size: int) -> None:
        s, at, n, n_p, q, stored = self.sizes, self.at, self.sizes.size, self.sizes.size_p, self.sizes.raw, d.programs
        column = int(head[RAW])
        if stored is None:
            self._take(size, n)
            self._linear(size, column)
            self._take(size)
            self._vector(at.raw_bias + column)
        else:
            columns = [column + p * int(head[LENGTH_P]) for p in range(s.programs)]
            self._take(s.programs, n, size)
            for p, column in enumerate(columns):
                self._place(p * n * size, size, n, size, at.raw + column, q, role=GRADIENT)
                self._place(p * n * size, size, n, size, at.raw_back + column * n_p, n_p, turned=True)
            self._take(s.programs, size)
            for p, column in enumerate(columns):
                self._vector(at.raw_bias + column, p * size, size)
            strategy = STRATEGIES[stored.attention]
            if strategy.has_keys:
                self._take(s.programs, s.keys)
                self._vector(at.keys + h * s.programs * s.keys, 0, s.programs * s.keys)
            if strategy.logits is not None:
                query = int(head[QUERY])
                for width, column in ((s.keys, query), (1, query + s.keys)):
                    self._take(width, n)
                    self._linear(width, column)
                    if stored.query_bias:
                        self._take(width)
                        self._vector(at.raw_bias + column)
        if d.interface_norm:
            for half in (0, 1):
                self._take(size)
                self._vector(at.interface_norm + half * s.interface + int(head[XI]))

    def _linear(self, width: int, column: int) -> None:
        """The weight of a plain linear layer among the interfaces, (width, n)."""
        n, n_p, q = self.sizes.size, self.sizes.size_p, self.sizes.raw
        self._place(0, n, width, n, self.at.raw + column, q, turned=True, role=GRADIENT)
        self._place(0, n, width, n, self.at.raw_back + column * n_p, n_p)

    def _output(self) -> None:
        s, at, n_p = self.sizes, self.at, self.sizes.size_p
        width = s.size + s.reads
        self._take(s.outputs, width)
        for source, columns, place in ((0, s.size, 0), (s.size, s.reads, n_p)):
            self._place(source, width, s.outputs, columns, at.out + place * s.outputs_p, s.outputs_p, turned=True)
            self._place(source, width, s.outputs, columns, at.out_back + place, s.row, role=GRADIENT)
        self._take(s.outputs)
        self._vector(at.out_bias)


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


@compiled_long
def pack(where, places, integers, block, record):
    """Lay the parameters at the addresses `where` out in a block, whose parts are in `record`, for the kernels."""
    sizes, w = unfold(Sizes, integers), unfold(Weights, record)
    fill(block, 0, block.size // 16 * 16, np.float32(0.0))
    for row in range(places.shape[0]):
        place = places[row]
        a, a0, lda, rows, columns = (
            floats_at(where[place[PARAMETER]]),
            place[SOURCE],
            place[STRIDE],
            place[ROWS],
            place[COLUMNS],
        )
        if place[ROLE] == ADDED:
            _add(a, a0, lda, rows, columns, block, place[TARGET], place[TARGET_STRIDE])
        elif place[TURNED]:
            _transpose(a, a0, lda, rows, columns, block, place[TARGET], place[TARGET_STRIDE])
        else:
            _copy(a, a0, lda, rows, columns, block, place[TARGET], place[TARGET_STRIDE])
    if sizes.attention == KEY_VALUE or sizes.attention == GUMBEL:
        for p in range(sizes.heads * sizes.programs):
            squares = EPSILON
            for k in range(p * sizes.keys, (p + 1) * sizes.keys):
                if sizes.bounded:
                    w.keys[k] = np.tanh(w.keys[k])
                squares += float(w.keys[k]) ** 2
            w.key_inverses[p] = 1.0 / np.sqrt(squares)


@compiled_long
def unpack(block, gradients, weights, where, places, integers):
    """Add the gradients that the kernels left in a block to those at the addresses `where`."""
    sizes, g, w = unfold(Sizes, integers), unfold(Weights, gradients), unfold(Weights, weights)
    if sizes.bounded and (sizes.attention == KEY_VALUE or sizes.attention == GUMBEL):
        for k in range(sizes.heads * sizes.programs * sizes.keys):
            g.keys[k] *= np.float32(1.0) - w.keys[k] * w.keys[k]
    for row in range(places.shape[0]):
        place = places[row]
        c, c0, ldc, rows, columns = (
            floats_at(where[place[PARAMETER]]),
            place[SOURCE],
            place[STRIDE],
            place[ROWS],
            place[COLUMNS],
        )
        if place[ROLE] != COPY and place[TURNED]:
            _add_transposed(block, place[TARGET], place[TARGET_STRIDE], columns, rows, c, c0, ldc)
        elif place[ROLE] != COPY:
            _add(block, place[TARGET], place[TARGET_STRIDE], rows, columns, c, c0, ldc)


# --- rows and tapes ---------------------------------------------------------------------------------------------------


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
def place_states(integers, hidden, cell, read, rows, cells):
    """The state rows [h | r] and the cells of all samples. What a controller has not is an array of width 0."""
    sizes = unfold(Sizes, integers)
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
