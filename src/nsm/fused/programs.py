"""The interface networks as a kernel: stored programs under any attention, or one static matrix; see nsm.programs.

All programs of all heads are one product, c·[V_1 … V_P | queries]; the mixing Σ_p w_p (c·V_p) comes after it.
"""

from __future__ import annotations

from nsm.fused.algebra import accumulate, add_into, copy, multiply_panels
from nsm.fused.attention import mixed, mixed_back
from nsm.fused.cache import kernel
from nsm.fused.clock import MIXING, PROGRAMS, lap
from nsm.fused.controller import normalise, normalise_back
from nsm.fused.lanes import fma, load, store
from nsm.fused.layout import LENGTH, LENGTH_P, QUERY, RAW, XI


@kernel
def forward(sizes, scales, table, w, work, first, count):
    """ξ of every head for the `count` samples whose rows begin at `first`, from h_t in `after`."""
    q_, d = sizes.raw, sizes.size_p + sizes.reads_p
    for row in range(first, first + count):
        copy(w.raw_bias, 0, work.raw, row * q_, q_)
    multiply_panels(work.after, first * d, d, w.raw, sizes.size, work.raw, first * q_, q_, count, sizes.size, q_)
    lap(PROGRAMS)
    for row in range(first, first + count):
        for h in range(sizes.heads):
            each, query = row * q_ + table[h, RAW], row * q_ + table[h, QUERY]
            target, width = row * sizes.interface + table[h, XI], table[h, LENGTH_P]
            mixed(sizes, scales, w, work, h, row, work.raw, each, width, query, work.interface, target)
            if sizes.interface_norm:
                xi, length = table[h, XI], table[h, LENGTH]
                work.interface_scales[row * sizes.heads + h] = normalise(
                    work.interface, target, work.head_masks[xi:], length, width, work.interface_hats, target
                )
                for i in range(0, width, 16):
                    weight, bias = load(w.interface_norm, xi + i), load(w.interface_norm, sizes.interface + xi + i)
                    store(work.interface, target + i, fma(load(work.interface_hats, target + i), weight, bias))
    lap(MIXING)


@kernel
def backward(sizes, scales, table, w, g, work, first, count):
    """From dξ (in `d_interface`, by sample) to the programs' gradients, and on to dh, which is added to `d_state`.

    ξ = Σ_p w_p ξ_p with ξ_p = c·V_p:   dc = Σ_p dξ_p V_pᵀ
    """
    q_, d = sizes.raw, sizes.size_p + sizes.reads_p
    for b in range(count):
        row = first + b
        for h in range(sizes.heads):
            xi, width = table[h, XI], table[h, LENGTH_P]
            source = b * sizes.interface + xi
            if sizes.interface_norm:
                normalise_back(
                    work.d_interface, source, work.interface_hats, row * sizes.interface + xi,
                    work.interface_scales[row * sizes.heads + h], w.interface_norm, xi,
                    g.interface_norm, xi, g.interface_norm, sizes.interface + xi,
                    work.head_masks[xi:], table[h, LENGTH], width,
                )  # fmt: skip
            each, query = row * q_ + table[h, RAW], row * q_ + table[h, QUERY]
            mixed_back(
                sizes, scales, w, g, work, h, row, work.raw, work.d_raw, each, width, query, work.d_interface, source
            )
    multiply_panels(work.d_raw, first * q_, q_, w.raw_back, q_, work.d_state, 0, d, count, q_, sizes.size_p)


@kernel
def gradients(sizes, g, work, rows):
    """The programs' gradients from all rows at once: dV = Σ cᵀ dξ_p, and the bias row's Σ dξ_p."""
    q_, d = sizes.raw, sizes.size_p + sizes.reads_p
    accumulate(work.after, 0, d, work.d_raw, 0, q_, g.raw, 0, q_, rows, sizes.size, q_)
    for row in range(rows):
        add_into(work.d_raw, row * q_, g.raw_bias, 0, q_)
