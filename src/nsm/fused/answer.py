"""The output layer as a kernel, for all rows at once: no step depends on what was put out. See nsm.machine.

y = [c, r] W_out        or, of stored programs, y = Σ_p w_p ([c, r] W_p)
"""

from __future__ import annotations

import numpy as np

from nsm.fused.algebra import accumulate, accumulate_few, add_into, copy, few, fill, multiply, multiply_few
from nsm.fused.attention import mixed, mixed_back
from nsm.fused.cache import kernel


@kernel
def forward(sizes, scales, w, work, rows):
    """`outputs` of `after`."""
    wide, o_p, d = sizes.raw_outputs, sizes.outputs_p, sizes.size_p + sizes.reads_p
    for row in range(rows):
        copy(w.out_bias, 0, work.raw_outputs, row * wide, wide)
    multiply(work.after, 0, d, w.out, 0, wide, work.raw_outputs, 0, wide, rows, sizes.size_p + sizes.reads, wide)
    if sizes.output_choice >= 0:
        for row in range(rows):
            each, query, target = row * wide, row * wide + sizes.programs * o_p, row * o_p
            mixed(
                sizes, scales, w, work, sizes.output_choice, row, work.raw_outputs, each, o_p, query,
                work.outputs, target,
            )  # fmt: skip


@kernel
def backward(sizes, scales, w, g, work, rows):
    """From `d_outputs` to `d_after` and the weights' gradients."""
    wide, o_p, d = sizes.raw_outputs, sizes.outputs_p, sizes.size_p + sizes.reads_p
    used = sizes.outputs
    if sizes.output_choice >= 0:
        used = wide
        for row in range(rows):
            each, query, source = row * wide, row * wide + sizes.programs * o_p, row * o_p
            mixed_back(
                sizes, scales, w, g, work, sizes.output_choice, row, work.raw_outputs, work.d_raw_outputs, each, o_p,
                query, work.d_outputs, source,
            )  # fmt: skip
    fill(work.d_after, 0, rows * d, np.float32(0.0))
    # Where few steps have an answer, most rows of the gradient are zero.
    if few(work.d_raw_outputs, rows * wide):
        multiply_few(work.d_raw_outputs, wide, w.out_back, d, work.d_after, d, rows, used, d)
        accumulate_few(work.d_raw_outputs, wide, work.after, d, g.out_back, d, rows, used, d)
    else:
        multiply(work.d_raw_outputs, 0, wide, w.out_back, 0, d, work.d_after, 0, d, rows, used, d)
        accumulate(work.d_raw_outputs, 0, wide, work.after, 0, d, g.out_back, 0, d, rows, used, d)
    for row in range(rows):
        add_into(work.d_raw_outputs, row * wide, g.out_bias, 0, wide)
