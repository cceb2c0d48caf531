"""The state network as a kernel: LSTM (with layer norm and noise on the cell), GRU, RNN, feed-forward; see
nsm.controllers.

A step works on all running samples of a chunk: one product for the gates, then lane by lane.
"""

from __future__ import annotations

import numpy as np

from nsm.fused.algebra import accumulate, accumulate_few, add_into, few, fill, multiply_panels, transpose
from nsm.fused.attention import mixed, mixed_back
from nsm.fused.cache import kernel
from nsm.fused.clock import CONTROLLER, GATES, lap
from nsm.fused.functions import sigmoid, tanh
from nsm.fused.lanes import fma, load, splat, store, total
from nsm.fused.layout import FEED_FORWARD, GRU, LSTM

NORM_EPSILON = 1e-5


@kernel
def states(sizes):
    """How many vectors its state has: hidden and cell, hidden, or none."""
    if sizes.controller == FEED_FORWARD:
        return 0
    return 2 if sizes.controller == LSTM else 1


@kernel
def normalise(a, a0, mask, n, n_p, hat, hat0):
    """x̂ = (x − mean) / √(var + ε) over the first n of n_p numbers; returns 1/√(var + ε)."""
    sums = splat(np.float32(0.0))
    for i in range(0, n_p, 16):
        sums = fma(load(a, a0 + i), load(mask, i), sums)
    mean = total(sums) / np.float32(n)
    squares = splat(np.float32(0.0))
    for i in range(0, n_p, 16):
        x = (load(a, a0 + i) - splat(mean)) * load(mask, i)
        squares = fma(x, x, squares)
    variance = total(squares) / np.float32(n) + np.float32(NORM_EPSILON)
    # A variance beyond all numbers leaves none: ∞ − ∞ is NaN.
    scale = np.float32(1.0) / np.sqrt(variance) + (variance - variance)
    for i in range(0, n_p, 16):
        store(hat, hat0 + i, (load(a, a0 + i) - splat(mean)) * load(mask, i) * splat(scale))
    return scale


@kernel
def normalise_back(d, d0, hat, hat0, scale, w, w0, g_w, gw0, g_b, gb0, mask, n, n_p):
    """From dy (in place) to dx of y = w x̂ + b:  dx = scale (dx̂ − mean(dx̂) − x̂ mean(dx̂ x̂)),  dx̂ = w dy.

    x̂ has mean 0 and variance 1 whatever x is, so the part of dx̂ along those two directions is lost.
    """
    sums, along = splat(np.float32(0.0)), splat(np.float32(0.0))
    for i in range(0, n_p, 16):
        dy, x = load(d, d0 + i) * load(mask, i), load(hat, hat0 + i)
        store(g_w, gw0 + i, fma(dy, x, load(g_w, gw0 + i)))
        store(g_b, gb0 + i, load(g_b, gb0 + i) + dy)
        dx = dy * load(w, w0 + i)
        sums, along = sums + dx, fma(dx, x, along)
        store(d, d0 + i, dx)
    mean, slope = splat(total(sums) / np.float32(n)), splat(total(along) / np.float32(n))
    for i in range(0, n_p, 16):
        x = load(hat, hat0 + i)
        store(d, d0 + i, (load(d, d0 + i) - mean - x * slope) * load(mask, i) * splat(scale))


@kernel
def forward(sizes, scales, w, work, first, count, previous, batch):
    """h_t for `count` samples whose rows begin at `first`; `previous` is where their last rows began, −1 at the start.

    On entry `raw_gates` holds the projected input and `before` the state row [h_{t−1} | r_{t−1}]. One network makes the
    gates themselves, stored programs what is mixed into them.
    """
    n_p, j_, wide = sizes.size_p, sizes.gates, sizes.raw_gates
    d = n_p + sizes.reads_p
    # A feed-forward controller has no h_{t−1}, and zeros for its weights.
    multiply_panels(
        work.before, first * d, d, w.gates_s, d, work.raw_gates, first * wide, wide, count, n_p + sizes.reads, wide
    )  # fmt: skip
    lap(CONTROLLER)
    for b in range(count):
        row = first + b
        if sizes.state_choice >= 0:
            each, query = row * wide, row * wide + sizes.programs * j_
            mixed(
                sizes, scales, w, work, sizes.state_choice, row, work.raw_gates, each, j_, query, work.gates, row * j_
            )
        if sizes.controller == LSTM:
            lstm(sizes, w, work, row, (b if previous < 0 else batch + previous + b) * n_p, (batch + row) * n_p)
        elif sizes.controller == GRU:
            gru(sizes, work, row)
        else:
            for i in range(0, n_p, 16):
                store(work.after, row * d + i, tanh(load(work.gates, row * j_ + i)))
    lap(GATES)


@kernel
def lstm(sizes, w, work, row, last, now):
    """i, f, o = σ(…), g = tanh(…);  c = f c' + i g (+ noise);  h = o tanh(c), with c' at cells[last …], c to [now …].

    The activated gates take the place of what they were made of.
    """
    n_p, j_ = sizes.size_p, sizes.gates
    gate, out = row * j_, row * (n_p + sizes.reads_p)
    if sizes.controller_norm:
        for k in range(4):
            at = gate + k * n_p
            work.scales[row * 5 + k] = normalise(work.gates, at, work.mask, sizes.size, n_p, work.hats, at)
            for i in range(0, n_p, 16):
                weight, bias = load(w.gate_norm, k * n_p + i), load(w.gate_norm, j_ + k * n_p + i)
                store(work.gates, at + i, fma(load(work.hats, at + i), weight, bias))
    for u in range(0, n_p, 16):
        i = sigmoid(load(work.gates, gate + u))
        f = sigmoid(load(work.gates, gate + n_p + u))
        g = tanh(load(work.gates, gate + 2 * n_p + u))
        o = sigmoid(load(work.gates, gate + 3 * n_p + u))
        c = fma(f, load(work.cells, last + u), i * g)
        if work.noise.size:
            c = c + load(work.noise, row * n_p + u)
        store(work.gates, gate + u, i)
        store(work.gates, gate + n_p + u, f)
        store(work.gates, gate + 2 * n_p + u, g)
        store(work.gates, gate + 3 * n_p + u, o)
        store(work.cells, now + u, c)
    shown, at = work.cells, now
    if sizes.controller_norm:
        scale = normalise(work.cells, now, work.mask, sizes.size, n_p, work.cell_hats, row * n_p)
        work.scales[row * 5 + 4] = scale
        for u in range(0, n_p, 16):
            hat = load(work.cell_hats, row * n_p + u)
            store(work.shown, row * n_p + u, fma(hat, load(w.cell_norm, u), load(w.cell_norm, n_p + u)))
        shown, at = work.shown, row * n_p
    for u in range(0, n_p, 16):
        store(work.after, out + u, load(work.gates, gate + 3 * n_p + u) * tanh(load(shown, at + u)))


@kernel
def gru(sizes, work, row):
    """r, z = σ(…);  n = tanh(a + r m);  h = n + z (h' − n): a is what input and reads give, m what h' gives.

    r, z and n take the place of what they were made of; m stays where it is, in the fourth gate.
    """
    n_p = sizes.size_p
    gate, state = row * sizes.gates, row * (n_p + sizes.reads_p)
    for u in range(0, n_p, 16):
        r, z = sigmoid(load(work.gates, gate + u)), sigmoid(load(work.gates, gate + n_p + u))
        m = load(work.gates, gate + 3 * n_p + u)
        n = tanh(fma(r, m, load(work.gates, gate + 2 * n_p + u)))
        store(work.gates, gate + u, r)
        store(work.gates, gate + n_p + u, z)
        store(work.gates, gate + 2 * n_p + u, n)
        store(work.after, state + u, fma(z, load(work.before, state + u) - n, n))


@kernel
def backward(sizes, scales, w, g, work, first, count, previous, batch):
    """From dh_t (the first part of `d_state`) to the gates' gradient, on to d_state and d_cell of the step before."""
    n_p, j_, wide = sizes.size_p, sizes.gates, sizes.raw_gates
    d = n_p + sizes.reads_p
    one, zero = splat(np.float32(1.0)), np.float32(0.0)
    for b in range(count):
        row = first + b
        if sizes.controller == LSTM:
            lstm_back(sizes, w, g, work, b, row, (b if previous < 0 else batch + previous + b) * n_p, batch + row)
        elif sizes.controller == GRU:
            gru_back(sizes, work, b, row)
        else:
            for i in range(0, n_p, 16):
                h = load(work.after, row * d + i)
                store(work.d_gates, row * j_ + i, load(work.d_state, b * d + i) * (one - h * h))
        if sizes.state_choice >= 0:
            each, query = row * wide, row * wide + sizes.programs * j_
            mixed_back(
                sizes, scales, w, g, work, sizes.state_choice, row, work.raw_gates, work.d_raw_gates, each, j_,
                query, work.d_gates, row * j_,
            )  # fmt: skip
        # A GRU hands part of dh on as it is; all else reached [h_{t−1} | r_{t−1}] through one product.
        kept = n_p if sizes.controller == GRU else 0
        fill(work.d_state, b * d + kept, d - kept, zero)
    multiply_panels(work.d_raw_gates, first * wide, wide, w.gates_s_back, wide, work.d_state, 0, d, count, wide, d)


@kernel
def lstm_back(sizes, w, g, work, b, row, last, now):
    """With c = f c' + i g, h = o tanh(c):

        do = dh tanh(c)      dc = dh o (1 − tanh²c) + (dc from the step after)
        di = dc g            df = dc c'        dg = dc i        dc' = dc f
    and σ' = σ (1 − σ), tanh' = 1 − tanh² for what lies before the gates.
    """
    n_p, j_ = sizes.size_p, sizes.gates
    gate, out, one = row * j_, b * (n_p + sizes.reads_p), splat(np.float32(1.0))
    shown, at = work.cells, now * n_p
    if sizes.controller_norm:
        shown, at = work.shown, row * n_p
    for u in range(0, n_p, 16):
        dh, o = load(work.d_state, out + u), load(work.gates, gate + 3 * n_p + u)
        t = tanh(load(shown, at + u))
        store(work.d_gates, gate + 3 * n_p + u, dh * t * o * (one - o))
        store(work.d_shown, b * n_p + u, dh * o * (one - t * t))
    if sizes.controller_norm:
        normalise_back(
            work.d_shown, b * n_p, work.cell_hats, row * n_p, work.scales[row * 5 + 4],
            w.cell_norm, 0, g.cell_norm, 0, g.cell_norm, n_p, work.mask, sizes.size, n_p,
        )  # fmt: skip
    for u in range(0, n_p, 16):
        i, f = load(work.gates, gate + u), load(work.gates, gate + n_p + u)
        gg = load(work.gates, gate + 2 * n_p + u)
        dc = load(work.d_cell, b * n_p + u) + load(work.d_shown, b * n_p + u)
        store(work.d_gates, gate + u, dc * gg * i * (one - i))
        store(work.d_gates, gate + n_p + u, dc * load(work.cells, last + u) * f * (one - f))
        store(work.d_gates, gate + 2 * n_p + u, dc * i * (one - gg * gg))
        store(work.d_cell, b * n_p + u, dc * f)
    if sizes.controller_norm:
        for k in range(4):
            place = gate + k * n_p
            normalise_back(
                work.d_gates, place, work.hats, place, work.scales[row * 5 + k],
                w.gate_norm, k * n_p, g.gate_norm, k * n_p, g.gate_norm, j_ + k * n_p,
                work.mask, sizes.size, n_p,
            )  # fmt: skip


@kernel
def gru_back(sizes, work, b, row):
    """With n = tanh(a + r m), h = n + z (h' − n):

        dz = dh (h' − n)     da = dh (1 − z) (1 − n²)     dr = da m     dm = da r     dh' = dh z + (what gates give)

    dh z takes the place of dh.
    """
    n_p = sizes.size_p
    gate, state, out = row * sizes.gates, row * (n_p + sizes.reads_p), b * (n_p + sizes.reads_p)
    one = splat(np.float32(1.0))
    for u in range(0, n_p, 16):
        dh, r, z = load(work.d_state, out + u), load(work.gates, gate + u), load(work.gates, gate + n_p + u)
        n, m = load(work.gates, gate + 2 * n_p + u), load(work.gates, gate + 3 * n_p + u)
        da = dh * (one - z) * (one - n * n)
        store(work.d_gates, gate + u, da * m * r * (one - r))
        store(work.d_gates, gate + n_p + u, dh * (load(work.before, state + u) - n) * z * (one - z))
        store(work.d_gates, gate + 2 * n_p + u, da)
        store(work.d_gates, gate + 3 * n_p + u, da * r)
        store(work.d_state, out + u, dh * z)


@kernel
def gradients(sizes, g, work, rows):
    """The weights' gradients from all rows at once: dW = Σ dgatesᵀ [x | h | r], db = Σ dgates."""
    wide, d, i_p = sizes.raw_gates, sizes.size_p + sizes.reads_p, sizes.inputs_p
    if few(work.inputs, rows * i_p):
        accumulate_few(work.inputs, i_p, work.d_raw_gates, wide, g.gates_x, wide, rows, sizes.inputs, wide)
        transpose(g.gates_x, 0, wide, sizes.inputs, wide, g.gates_x_back, 0, i_p)
    else:
        accumulate(work.d_raw_gates, 0, wide, work.inputs, 0, i_p, g.gates_x_back, 0, i_p, rows, wide, i_p)
    accumulate(work.d_raw_gates, 0, wide, work.before, 0, d, g.gates_s_back, 0, d, rows, wide, d)
    for row in range(rows):
        add_into(work.d_raw_gates, row * wide, g.gates_bias, 0, wide)
