"""From a description to what the kernels count with: which parameters there are, how large everything is."""

from __future__ import annotations

import numpy as np

from nsm.controllers import NETWORKS
from nsm.description import Description
from nsm.fused import layout
from nsm.fused.layout import Array, Scales, Sizes, padded
from nsm.programs import ATTENTION, Programs


def parameters(description: Description, inputs: int, outputs: int) -> dict[int, tuple[int, ...]]:
    """Which parameters a machine has, in the order an operator takes them: their rows in the table of addresses, and
    their shapes."""
    d, stored, n = description, description.programs, description.controller.size
    rows = NETWORKS[d.controller.kind].gates * n
    found: dict[int, tuple[int, ...]] = {
        layout.WEIGHT_IH: (rows, inputs + d.memory.read_size),
        layout.BIAS_IH: (rows,),
    }
    if d.controller.kind != "feed-forward":
        found[layout.WEIGHT_HH] = (rows, n)
        if d.controller.biases == 2:
            found[layout.BIAS_HH] = (rows,)
    if d.controller.layer_norm:
        norms = (*range(layout.GATE_NORM, layout.HEAD), layout.CELL_NORM_W, layout.CELL_NORM_B)
        found |= dict.fromkeys(norms, (n,))
    for h, head in enumerate(d.memory.heads):
        inside = _interface(stored, n, head.size)
        if d.interface_norm:
            inside |= dict.fromkeys((layout.NORM_W, layout.NORM_B), (head.size,))
        found |= {layout.HEAD + layout.HEAD_FIELDS * h + row: shape for row, shape in inside.items()}
    return found | {layout.OUT_W: (outputs, n + d.memory.read_size), layout.OUT_B: (outputs,)}


def _interface(stored: Programs | None, n: int, size: int) -> dict[int, tuple[int, ...]]:
    """A head's own parameters and their shapes."""
    if stored is None:
        return {layout.WEIGHT: (size, n), layout.BIAS: (size,)}
    found: dict[int, tuple[int, ...]] = {layout.WEIGHT: (stored.count, n, size), layout.BIAS: (stored.count, size)}
    strategy = ATTENTION[stored.attention]
    if strategy.has_keys:
        found[layout.KEY] = (stored.count, stored.keys)
    if strategy.logits is not None:
        biases = {layout.QUERY_B: (stored.keys,), layout.STRENGTH_B: (1,)} if stored.query_bias else {}
        weights = {layout.QUERY_W: (stored.keys, n), layout.STRENGTH_W: (1, n)}
        found |= dict(sorted({**weights, **biases}.items()))
    return found


def sizes(description: Description, inputs: int, outputs: int) -> tuple[Sizes, Scales, Array]:
    """The integers of a machine, its floats, and the table of its heads."""
    d, memory = description, description.memory
    n, stored, kind = d.controller.size, d.programs, layout.CONTROLLERS[d.controller.kind]
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
        table[h, layout.QUERY] = raw
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
        gates=(4 if kind in (layout.GRU, layout.LSTM) else 1) * size_p,
        controller=kind,
        controller_norm=int(d.controller.layer_norm),
        interface_norm=int(d.interface_norm),
        heads=len(memory.heads),
        programs=programs,
        keys=keys,
        attention=layout.ATTENTION[stored.attention if stored else None],
        bounded=int(stored is not None and stored.bounded_keys),
        raw=raw,
        interface=interface,
    )
    return found, Scales(stored.temperature if stored else 1.0, stored.strength_scale if stored else 1.0), table
