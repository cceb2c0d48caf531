"""Where everything lies: the sizes of a machine, its weights as kernels read them, and the places of its parameters.

Parameters come as tensors of their own, each by its address. The kernels want each matrix with its long axis along the
lanes, padded to 16, and both ways round: one for the forward product, one for the backward. A table of places says
which part of which parameter lies where: packing reads it one way, unpacking the other.

    state row   [h (padded) | r (padded)]                     what a step hands on, D wide
    gates       [i | f | g | o], each padded                  J wide (GRU: [r | z | n of x and r | n of h]; others: one)
    raw         per head and program ξ_p (padded), then per head [query, strength] (padded)      Q wide
    interface   per head ξ (padded)                           X wide
    raw gates, raw outputs      of stored programs: per program what it makes of them, then [query, strength] (padded);
                                of one network: they themselves
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numba.extending import register_jitable

from nsm.controllers import NETWORKS
from nsm.description import Description
from nsm.programs import Programs

Array = Any
"""A float32 array. Any, because states are the reference's named tuples, holding arrays in place of tensors."""
Order = Any
"""An int32 array."""
Words = Any
"""An int64 array."""

FEED_FORWARD, RNN, GRU, LSTM = range(4)
CONTROLLERS = {"feed-forward": FEED_FORWARD, "rnn": RNN, "gru": GRU, "lstm": LSTM}
# In this order: from KEY_VALUE on there are keys, from GUMBEL on there is noise.
STATIC, UNIFORM, DIRECT, KEY_VALUE, GUMBEL, GUMBEL_PROBABILITIES = range(6)
ATTENTION = {
    None: STATIC,
    "uniform": UNIFORM,
    "direct": DIRECT,
    "key-value": KEY_VALUE,
    "gumbel": GUMBEL,
    "gumbel-probabilities": GUMBEL_PROBABILITIES,
}


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
    raw_gates: int
    raw_outputs: int
    choices: int
    """how many networks choose programs: heads, state network, output layer"""
    state_choice: int
    """which of them is the state network, below 0 if its weights are not stored"""
    output_choice: int

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
    query_p = padded(keys + 1) if queried else 0
    parts = stored.parts if stored else ()
    table = np.zeros((len(memory.heads), 5), np.int64)
    raw = interface = 0
    for h, head in enumerate(memory.heads):
        length_p = padded(head.size)
        table[h] = raw, 0, interface, head.size, length_p
        raw += programs * length_p
        interface += length_p
    for h in range(len(memory.heads)):
        table[h, QUERY] = raw
        raw += query_p
    heads, outputs_p = len(memory.heads), padded(outputs)
    gates = (4 if kind in (GRU, LSTM) else 1) * size_p
    found = Sizes(
        inputs=inputs,
        inputs_p=padded(inputs),
        outputs=outputs,
        outputs_p=outputs_p,
        size=n,
        size_p=size_p,
        reads=memory.read_size,
        reads_p=padded(memory.read_size),
        gates=gates,
        controller=kind,
        controller_norm=int(d.controller.layer_norm),
        interface_norm=int(d.interface_norm),
        heads=heads,
        programs=programs,
        keys=keys,
        attention=ATTENTION[stored.attention if stored else None],
        bounded=int(stored is not None and stored.bounded_keys),
        raw=raw,
        interface=interface,
        raw_gates=programs * gates + query_p if "state" in parts else gates,
        raw_outputs=programs * outputs_p + query_p if "output" in parts else outputs_p,
        choices=heads + ("state" in parts) + ("output" in parts),
        state_choice=heads if "state" in parts else -1,
        output_choice=heads + ("state" in parts) if "output" in parts else -1,
    )
    return found, Scales(stored.temperature if stored else 1.0, stored.strength_scale if stored else 1.0), table


# --- weights ----------------------------------------------------------------------------------------------------------


class Weights(NamedTuple):
    """The weights as the kernels read them, and in the same layout, but all in rows, their gradients as the kernels
    leave them."""

    gates_x: Array
    """(I, G), where G is the width of raw gates"""
    gates_s: Array
    """(D, G), in panels"""
    gates_bias: Array
    """(G)"""
    gates_x_back: Array
    """(G, I padded)"""
    gates_s_back: Array
    """(G, D), in panels"""
    raw: Array
    """(n, Q), in panels"""
    raw_bias: Array
    """(Q)"""
    raw_back: Array
    """(Q, n padded), in panels"""
    keys: Array
    """(choices, P, K)"""
    key_inverses: Array
    """(choices, P): 1/|k_p|"""
    nothing: Array
    """(1): what zeros take from gates_x, zero or NaN"""
    out: Array
    """(D, A), where A is the width of raw outputs"""
    out_bias: Array
    """(A)"""
    out_back: Array
    """(A, D)"""
    gate_norm: Array
    """(2, J): weight, bias"""
    cell_norm: Array
    """(2, n padded)"""
    interface_norm: Array
    """(2, X)"""
    start: Array
    """(2, n padded): of the learned initial state, h_0 and the cell, the gradient only"""


def weights(take: Callable[[int], Any], sizes: Sizes) -> Weights:
    """What `take` gives for the size of each. Their padding must be zero.

    First what the way there needs, up to `interface_norm`. What has gradients lies side by side, `gates_x` to `start`.
    """
    s, g, a, d = sizes, sizes.raw_gates, sizes.raw_outputs, sizes.row
    return Weights(
        gates_s=take(d * g),
        out=take(d * a),
        nothing=take(1),
        gates_x=take(s.inputs * g),
        gates_bias=take(g),
        raw=take(s.size * s.raw),
        raw_bias=take(s.raw),
        keys=take(s.choices * s.programs * max(1, s.keys)),
        key_inverses=take(s.choices * s.programs),
        out_bias=take(a),
        gate_norm=take(2 * s.gates),
        cell_norm=take(2 * s.size_p),
        interface_norm=take(2 * s.interface),
        gates_x_back=take(g * s.inputs_p),
        gates_s_back=take(g * d),
        out_back=take(a * d),
        start=take(2 * s.size_p),
        raw_back=take(s.raw * s.size_p),
    )


# --- parameters -------------------------------------------------------------------------------------------------------

# Columns of the table of places: a part of a parameter, ROWS × COLUMNS numbers from SOURCE on, and where it lies.
PARAMETER, SOURCE, STRIDE, ROWS, COLUMNS, TARGET, TARGET_STRIDE, TURNED, ROLE, BASE, HEIGHT = range(11)
# BASE and HEIGHT: of a matrix in panels, where it begins and how many rows it has; 0 of one in rows.
# COPY: for the kernels to read. SUMMED: to what lies there. A GRADIENT is also unpacked from there.
COPY, SUMMED, GRADIENT = range(3)


class Parameters:
    """The parameters of a machine in the order an operator takes them: their shapes, and where their parts lie."""

    def __init__(self, described: Description, sizes: Sizes, table: Array, spans: Weights) -> None:
        self.shapes: list[tuple[int, ...]] = []
        self._places: list[tuple[int, ...]] = []
        self.sizes, self.at = sizes, Weights(*(span.start for span in spans))
        self._controller(described)
        for h, head in enumerate(described.memory.heads):
            self._interface(described, table[h], h, head.size)
        self._output(described)
        places = np.array(self._places, np.int64)
        self.places = places
        self.there = places[places[:, TARGET] < self.at.gates_x_back]
        """those that the way there needs"""
        learned = places[(places[:, ROLE] != COPY)]
        self.learned = learned
        """those that have gradients"""
        # A learned initial state is no operand: an operator has the gradient of the state that it is handed.
        n, n_p = sizes.size, sizes.size_p
        starts = [(len(self.shapes) + i, 0, 0, 1, n, self.at.start + i * n_p, 0, 0, GRADIENT, 0, 0) for i in range(2)]
        self.with_start = np.concatenate([learned, np.array(starts, np.int64)])
        """those, and h_0 and the cell, which come after all operands"""

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
        s, at = self.sizes, self.at
        panels = (
            (at.gates_s, s.row, s.raw_gates),
            (at.gates_s_back, s.raw_gates, s.row),
            (at.raw, s.size, s.raw),
            (at.raw_back, s.raw, s.size_p),
        )
        inside = [(base, height) for base, height, width in panels if base <= target < base + height * width]
        panel = inside[0] if inside else (0, 0)
        part = len(self.shapes) - 1, source, stride, rows, columns
        self._places.append((*part, target, ld, int(turned), role, *panel))

    def _vector(self, target: int, source: int = 0, size: int | None = None, role: int = GRADIENT) -> None:
        self._place(source, 0, 1, self.shapes[-1][0] if size is None else size, target, 0, role=role)

    def _controller(self, d: Description) -> None:
        s, at, n, n_p = self.sizes, self.at, self.sizes.size, self.sizes.size_p
        count, kind = NETWORKS[d.controller.kind].gates, s.controller
        stored = d.programs if s.state_choice >= 0 else None
        front, inputs, recurrent = () if stored is None else (s.programs,), s.inputs + s.reads, kind != FEED_FORWARD
        # Per program and gate, where in the parameter its rows begin, and its column.
        gates = [(n * (p * count + i), p * s.gates + i * n_p) for p in range(s.programs) for i in range(count)]
        gates = gates if stored is not None else gates[:count]
        self._take(*front, count * n, inputs)
        for row, column in gates:
            self._seen(row * inputs, inputs, n, column, s.inputs, s.reads)
        self._take(*front, count * n)
        for row, column in gates:
            self._vector(at.gates_bias + column, row, n)
        if recurrent:
            # A GRU keeps the recurrent part of its candidate apart, to multiply it by r.
            apart = [kind == GRU and i % count == 2 for i in range(len(gates))]
            own = [(row, column + n_p * alone) for (row, column), alone in zip(gates, apart, strict=True)]
            self._take(*front, count * n, n)
            for row, column in own:
                self._seen(row * n, n, n, column, size=n)
            if d.controller.biases == 2:
                self._take(*front, count * n)
                for (row, column), alone in zip(own, apart, strict=True):
                    # That of a part kept apart is alone there: added, it would grow each time a block is used again.
                    self._vector(at.gates_bias + column, row, n, GRADIENT if alone else SUMMED)
        if stored is not None:
            query, seen = s.programs * s.gates, inputs + n * recurrent
            self._choice(
                stored, s.state_choice, query, seen, at.gates_bias,
                lambda width, column: self._seen(0, seen, width, column, s.inputs, s.reads, n * recurrent),
            )  # fmt: skip
        if d.controller.layer_norm:
            for target in (*(at.gate_norm + i * n_p + half * s.gates for i in range(count) for half in (0, 1)),
                           at.cell_norm, at.cell_norm + n_p):  # fmt: skip
                self._take(n)
                self._vector(target)

    def _seen(
        self, source: int, stride: int, rows: int, column: int, inputs: int = 0, reads: int = 0, size: int = 0
    ) -> None:
        """Rows of a parameter over so many numbers of x, r and h, to the raw gates from a column on."""
        s, at, g, d = self.sizes, self.at, self.sizes.raw_gates, self.sizes.row
        if inputs:
            self._place(source, stride, rows, inputs, at.gates_x + column, g, turned=True)
            self._place(source, stride, rows, inputs, at.gates_x_back + column * s.inputs_p, s.inputs_p, role=GRADIENT)
        for first, columns, place in ((inputs, reads, s.size_p), (inputs + reads, size, 0)):
            if columns:
                self._place(source + first, stride, rows, columns, at.gates_s + place * g + column, g, turned=True)
                target = at.gates_s_back + column * d + place
                self._place(source + first, stride, rows, columns, target, d, role=GRADIENT)

    def _choice(
        self, stored: Programs, choice: int, query: int, seen: int, bias: int, linear: Callable[[int, int], None]
    ) -> None:
        """What chooses programs by `seen` numbers: keys, and queries to the columns from `query` on."""
        s = self.sizes
        if stored.strategy.has_keys:
            self._take(s.programs, s.keys)
            self._vector(self.at.keys + choice * s.programs * s.keys, 0, s.programs * s.keys)
        if stored.strategy.logits is not None:
            for width, column in ((s.keys, query), (1, query + s.keys)):
                self._take(width, seen)
                linear(width, column)
                if stored.query_bias:
                    self._take(width)
                    self._vector(bias + column)

    def _interface(self, d: Description, head: Array, h: int, size: int) -> None:
        s, at, n, n_p, q, stored = self.sizes, self.at, self.sizes.size, self.sizes.size_p, self.sizes.raw, d.programs
        column = int(head[RAW])
        if stored is None:
            self._take(size, n)
            self._linear(size, column)
            self._take(size)
            self._vector(at.raw_bias + column)
        else:
            self._choice(stored, h, int(head[QUERY]), n, at.raw_bias, self._linear)
            columns = [column + p * int(head[LENGTH_P]) for p in range(s.programs)]
            self._take(s.programs, n, size)
            for p, column in enumerate(columns):
                self._place(p * n * size, size, n, size, at.raw + column, q, role=GRADIENT)
                self._place(p * n * size, size, n, size, at.raw_back + column * n_p, n_p, turned=True)
            self._take(s.programs, size)
            for p, column in enumerate(columns):
                self._vector(at.raw_bias + column, p * size, size)
        if d.interface_norm:
            for half in (0, 1):
                self._take(size)
                self._vector(at.interface_norm + half * s.interface + int(head[XI]))

    def _linear(self, width: int, column: int) -> None:
        """The weight of a plain linear layer among the interfaces, (width, n)."""
        n, n_p, q = self.sizes.size, self.sizes.size_p, self.sizes.raw
        self._place(0, n, width, n, self.at.raw + column, q, turned=True, role=GRADIENT)
        self._place(0, n, width, n, self.at.raw_back + column * n_p, n_p)

    def _output(self, d: Description) -> None:
        s, at, width = self.sizes, self.at, self.sizes.size + self.sizes.reads
        if d.programs is None or s.output_choice < 0:
            self._take(s.outputs, width)
            self._answer(s.outputs, 0)
            self._take(s.outputs)
            self._vector(at.out_bias)
            return
        self._choice(d.programs, s.output_choice, s.programs * s.outputs_p, width, at.out_bias, self._answer)
        self._take(s.programs, width, s.outputs)
        for p in range(s.programs):
            for first, rows, place in ((0, s.size, 0), (s.size, s.reads, s.size_p)):
                source, column = (p * width + first) * s.outputs, p * s.outputs_p
                target, back = at.out + place * s.raw_outputs + column, at.out_back + column * s.row + place
                self._place(source, s.outputs, rows, s.outputs, target, s.raw_outputs)
                self._place(source, s.outputs, rows, s.outputs, back, s.row, turned=True, role=GRADIENT)
        self._take(s.programs, s.outputs)
        for p in range(s.programs):
            self._vector(at.out_bias + p * s.outputs_p, p * s.outputs, s.outputs)

    def _answer(self, rows: int, column: int) -> None:
        """The weight of a plain linear layer over [c, r], to the raw outputs from a column on."""
        s, at, width = self.sizes, self.at, self.sizes.size + self.sizes.reads
        for source, columns, place in ((0, s.size, 0), (s.size, s.reads, s.size_p)):
            target, back = at.out + place * s.raw_outputs + column, at.out_back + column * s.row + place
            self._place(source, width, rows, columns, target, s.raw_outputs, turned=True)
            self._place(source, width, rows, columns, back, s.row, role=GRADIENT)
