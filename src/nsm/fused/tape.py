"""What the tapes share: lines of slots along the lanes, and content addressing of several heads at once.

A tape is stored as (M, N): the slots lie along the lanes, so that every operation on an address is a run of lanes. Each
kernel's work has the sizes `slots`, `slots_p`, `width` and the buffers `mask`, `memory`, `inverse`; those that address
by `content` also have `similarity`, `d_memory` and `scratch`.

A step back needs the tape as it was. To keep it after every write is to stream it out of the caches and in again, so
where that would be much, a tape is kept at the beginning of every stretch of `keep` steps, and those of one stretch lie
in a ring that the next one uses again. On the way back, a stretch at a time, the ring is written once more from the
tape kept: the addresses and what was written are known, so this takes one pass over the tape where the step took a
dozen, and gives the same bits. Where all tapes come to little, there is one stretch, and its ring is what is kept.
Without a way back there is one tape, and every write goes to where it came from.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np

from nsm.fused.algebra import accumulate, copy, copy_block, dots, fill, multiply, transpose
from nsm.fused.cache import kernel
from nsm.fused.functions import exp
from nsm.fused.lanes import choose_smaller, fma, largest, load, maximum, root, splat, spread, store, total
from nsm.fused.layout import Array, Words
from nsm.fused.workspace import Room, Span
from nsm.similarity import EPSILON

NEAR = 1 << 19
"""How many bytes of the tapes of one sample are little."""


@kernel
def version(m, b, t, writes):
    """Where in `memory` the tape of sample b is after `writes` writes of step t."""
    return (t % m.keep * m.writes + writes) * m.apart + b


@kernel
def turn(m, t, count):
    """Before step t of the first `count` samples: where a stretch begins, its first tape is the last one's last."""
    if t % m.keep != 0:
        return
    size = m.batch * m.width * m.slots_p
    running = count * m.width * m.slots_p
    if t > 0:
        copy(m.memory, m.keep * m.writes * size, m.memory, 0, running)
    if m.kept_tapes.size:
        copy(m.memory, 0, m.kept_tapes, t // m.keep * size, running)


@kernel
def turn_back(m, t, count):
    """Before the ring is written once more for the stretch that begins with step t."""
    size = m.batch * m.width * m.slots_p
    copy(m.kept_tapes, t // m.keep * size, m.memory, 0, count * m.width * m.slots_p)


@kernel
def norms(m, tape, line):
    """1/√(Σ_m M(i)² + ε) of every slot of a tape, to line `line` of `inverse`."""
    start = tape * m.width * m.slots_p
    for i in range(0, m.slots_p, 16):
        squares = splat(np.float32(EPSILON))
        for k in range(m.width):
            x = load(m.memory, start + k * m.slots_p + i)
            squares = fma(x, x, squares)
        store(m.inverse, line * m.slots_p + i, splat(np.float32(1.0)) / root(squares))


@kernel
def softmax(z, z0, mask, out, o0, n_p):
    """softmax of the unmasked numbers; the masked ones, whatever they are, become 0.

    The peak passes over a NaN, the sum does not; and where the peak is infinite, its distance from itself is NaN.
    """
    half, zero, least = splat(np.float32(0.5)), splat(np.float32(0.0)), splat(np.float32(-np.inf))
    top = least
    for i in range(0, n_p, 16):
        top = maximum(top, choose_smaller(half, load(mask, i), load(z, z0 + i), least))
    peak, sums = splat(largest(top)), zero
    for i in range(0, n_p, 16):
        e = choose_smaller(half, load(mask, i), exp(load(z, z0 + i) - peak), zero)
        sums = sums + e
        store(out, o0 + i, e)
    share = splat(np.float32(1.0) / total(sums))
    for i in range(0, n_p, 16):
        store(out, o0 + i, load(out, o0 + i) * share)


@kernel
def gather(a, a0, lda, w, w0, ldw, c, c0, ldc, rows, height, inner):
    """C[i, k] += Σ_j A[i, j] W[k, j]: what `rows` lines of weights over slots gather from a tape of `height` rows.

    Tiles of 4 × 4 sums stay in registers while j runs, `inner` a multiple of 16.
    """
    i = 0
    while i + 4 <= rows:
        r0, r1, r2, r3 = a0 + i * lda, a0 + (i + 1) * lda, a0 + (i + 2) * lda, a0 + (i + 3) * lda
        o0, o1, o2, o3 = c0 + i * ldc, c0 + (i + 1) * ldc, c0 + (i + 2) * ldc, c0 + (i + 3) * ldc
        zero = splat(np.float32(0.0))
        for k in range(0, height - 3, 4):
            x00, x01, x02, x03 = zero, zero, zero, zero
            x10, x11, x12, x13 = zero, zero, zero, zero
            x20, x21, x22, x23 = zero, zero, zero, zero
            x30, x31, x32, x33 = zero, zero, zero, zero
            p = w0 + k * ldw
            for j in range(0, inner, 16):
                a_0, a_1, a_2, a_3 = load(a, r0 + j), load(a, r1 + j), load(a, r2 + j), load(a, r3 + j)
                v = load(w, p + j)
                x00, x10, x20, x30 = fma(a_0, v, x00), fma(a_1, v, x10), fma(a_2, v, x20), fma(a_3, v, x30)
                v = load(w, p + ldw + j)
                x01, x11, x21, x31 = fma(a_0, v, x01), fma(a_1, v, x11), fma(a_2, v, x21), fma(a_3, v, x31)
                v = load(w, p + 2 * ldw + j)
                x02, x12, x22, x32 = fma(a_0, v, x02), fma(a_1, v, x12), fma(a_2, v, x22), fma(a_3, v, x32)
                v = load(w, p + 3 * ldw + j)
                x03, x13, x23, x33 = fma(a_0, v, x03), fma(a_1, v, x13), fma(a_2, v, x23), fma(a_3, v, x33)
            c[o0 + k] += total(x00)
            c[o0 + k + 1] += total(x01)
            c[o0 + k + 2] += total(x02)
            c[o0 + k + 3] += total(x03)
            c[o1 + k] += total(x10)
            c[o1 + k + 1] += total(x11)
            c[o1 + k + 2] += total(x12)
            c[o1 + k + 3] += total(x13)
            c[o2 + k] += total(x20)
            c[o2 + k + 1] += total(x21)
            c[o2 + k + 2] += total(x22)
            c[o2 + k + 3] += total(x23)
            c[o3 + k] += total(x30)
            c[o3 + k + 1] += total(x31)
            c[o3 + k + 2] += total(x32)
            c[o3 + k + 3] += total(x33)
        rest = height // 4 * 4
        for row in range(i, i + 4):
            target = c0 + row * ldc + rest
            dots(a, a0 + row * lda, w, w0 + rest * ldw, ldw, c, target, height - rest, inner)
        i += 4
    while i < rows:
        dots(a, a0 + i * lda, w, w0, ldw, c, c0 + i * ldc, height, inner)
        i += 1


@kernel
def key_inverse(xi, x, width):
    """1/√(Σ k² + ε) of a key at xi[x …]."""
    sums, whole = splat(np.float32(0.0)), width // 16 * 16
    for k in range(x, x + whole, 16):
        v = load(xi, k)
        sums = fma(v, v, sums)
    squares = float(total(sums)) + EPSILON
    for k in range(x + whole, x + width):
        squares += float(xi[k]) ** 2
    return np.float32(1.0 / math.sqrt(squares))


@kernel
def compare(m, tape, xi, x, line):
    """k·M(i) of every slot for a key at xi[x …], to similarity[line …].

    Every slot's sum runs in the same order, whichever block of lanes it falls into: what is equal stays equal to the
    last bit, so that ties between slots, such as all blank ones, are decided by position and not by rounding.
    """
    n_p, width, i = m.slots_p, m.width, 0
    zero = splat(np.float32(0.0))
    while i < n_p:
        x0, x1, x2, x3 = zero, zero, zero, zero
        p = tape * width * n_p + i
        if i + 64 <= n_p:
            for k in range(x, x + width):
                key = spread(xi, k)
                x0, x1 = fma(key, load(m.memory, p), x0), fma(key, load(m.memory, p + 16), x1)
                x2, x3 = fma(key, load(m.memory, p + 32), x2), fma(key, load(m.memory, p + 48), x3)
                p += n_p
            store(m.similarity, line + i, x0), store(m.similarity, line + i + 16, x1)
            store(m.similarity, line + i + 32, x2), store(m.similarity, line + i + 48, x3)
            i += 64
        else:
            for k in range(x, x + width):
                x0 = fma(spread(xi, k), load(m.memory, p), x0)
                p += n_p
            store(m.similarity, line + i, x0)
            i += 16


@kernel
def content(m, tape, norm, xi, x, stride, heads, acts, a, line, out, o):
    """w_h = softmax(β_h D(k_h, M)) for `heads` heads, their keys at xi[x + h·stride …], their strengths at acts[a …].

    The norms of the tape are line `norm` of `inverse`. Leaves 1/|k_h| in acts[a + heads …]; D from similarity[line] and
    w from out[o] on, a line of slots for each head.
    """
    n_p, width, fours = m.slots_p, m.width, heads // 4 * 4
    # Rows by fours keep to one order of additions as well; `multiply` alone would not for what is left of them.
    fill(m.similarity, line, fours * n_p, np.float32(0.0))
    multiply(xi, x, stride, m.memory, tape * width * n_p, n_p, m.similarity, line, n_p, fours, width, n_p)
    for h in range(fours, heads):
        compare(m, tape, xi, x + h * stride, line + h * n_p)
    for h in range(heads):
        inverse = key_inverse(xi, x + h * stride, width)
        acts[a + heads + h] = inverse
        for i in range(0, n_p, 16):
            d = load(m.similarity, line + h * n_p + i) * splat(inverse) * load(m.inverse, norm * n_p + i)
            store(m.similarity, line + h * n_p + i, d)
            store(out, o + h * n_p + i, d * spread(acts, a + h))
        softmax(out, o + h * n_p, m.mask, out, o + h * n_p, n_p)


@kernel
def deposit(m, tape, mine, xi, x, stride, heads, lines):
    """dM += Σ_h u_h k_h − M p, with u_h and then p in scratch[lines …]. Four heads take four rows of a tape at once."""
    n_p, width, pull = m.slots_p, m.width, lines + heads * m.slots_p
    l1, l2, l3 = lines + n_p, lines + 2 * n_p, lines + 3 * n_p
    k = 0
    while heads == 4 and k + 4 <= width:
        x0, x1, x2, x3 = x + k, x + k + stride, x + k + 2 * stride, x + k + 3 * stride
        a0, a1, a2, a3 = spread(xi, x0), spread(xi, x1), spread(xi, x2), spread(xi, x3)
        b0, b1, b2, b3 = spread(xi, x0 + 1), spread(xi, x1 + 1), spread(xi, x2 + 1), spread(xi, x3 + 1)
        c0, c1, c2, c3 = spread(xi, x0 + 2), spread(xi, x1 + 2), spread(xi, x2 + 2), spread(xi, x3 + 2)
        d0, d1, d2, d3 = spread(xi, x0 + 3), spread(xi, x1 + 3), spread(xi, x2 + 3), spread(xi, x3 + 3)
        for i in range(0, n_p, 16):
            u0, u1 = load(m.scratch, lines + i), load(m.scratch, l1 + i)
            u2, u3 = load(m.scratch, l2 + i), load(m.scratch, l3 + i)
            p, source, target = -load(m.scratch, pull + i), tape + k * n_p + i, mine + k * n_p + i
            d = fma(p, load(m.memory, source), load(m.d_memory, target))
            store(m.d_memory, target, fma(a0, u0, fma(a1, u1, fma(a2, u2, fma(a3, u3, d)))))
            source, target = source + n_p, target + n_p
            d = fma(p, load(m.memory, source), load(m.d_memory, target))
            store(m.d_memory, target, fma(b0, u0, fma(b1, u1, fma(b2, u2, fma(b3, u3, d)))))
            source, target = source + n_p, target + n_p
            d = fma(p, load(m.memory, source), load(m.d_memory, target))
            store(m.d_memory, target, fma(c0, u0, fma(c1, u1, fma(c2, u2, fma(c3, u3, d)))))
            source, target = source + n_p, target + n_p
            d = fma(p, load(m.memory, source), load(m.d_memory, target))
            store(m.d_memory, target, fma(d0, u0, fma(d1, u1, fma(d2, u2, fma(d3, u3, d)))))
        k += 4
    while k < width:
        for i in range(0, n_p, 16):
            source, target = tape + k * n_p + i, mine + k * n_p + i
            d = fma(-load(m.scratch, pull + i), load(m.memory, source), load(m.d_memory, target))
            for h in range(heads):
                d = fma(spread(xi, x + h * stride + k), load(m.scratch, lines + h * n_p + i), d)
            store(m.d_memory, target, d)
        k += 1


@kernel
def content_back(m, tape, norm, b, xi, x, stride, heads, acts, a, line, w, w0, dw, d_xi, dx, ds):
    """From dw (scratch[dw …]) of addresses that `content` made to their keys, their strengths and the tape.

        w = softmax(β D)         dz = w (dw − Σ w dw),  dβ = Σ dz D,  dD = β dz
        D = k·M / (|k| |M|)      dk = Σ_i u M − k/|k|² Σ_i dD D      with u = dD / (|k| |M|)
                                 dM = Σ_h u k − M/|M|² Σ_h dD D

    dk is added to d_xi[dx + h·stride …], dβ to d_xi[ds + h] unless ds < 0. u takes the place of dw; the line after the
    last becomes Σ_h dD D/|M|².
    """
    n_p, width = m.slots_p, m.width
    zero, pull = splat(np.float32(0.0)), dw + heads * n_p
    fill(m.scratch, pull, n_p, np.float32(0.0))
    for h in range(heads):
        beta, k_inverse = splat(acts[a + h]), acts[a + heads + h]
        sums, d_beta, along = zero, zero, zero
        for i in range(h * n_p, (h + 1) * n_p, 16):
            sums = fma(load(w, w0 + i), load(m.scratch, dw + i), sums)
        inner = splat(total(sums))
        for i in range(0, n_p, 16):
            dz = load(w, w0 + h * n_p + i) * (load(m.scratch, dw + h * n_p + i) - inner)
            d = load(m.similarity, line + h * n_p + i)
            inverse = load(m.inverse, norm * n_p + i)
            d_beta = fma(dz, d, d_beta)
            dd = dz * beta
            along = fma(dd, d, along)
            store(m.scratch, dw + h * n_p + i, dd * inverse * splat(k_inverse))
            store(m.scratch, pull + i, fma(dd * d, inverse * inverse, load(m.scratch, pull + i)))
        if ds >= 0:
            d_xi[ds + h] += total(d_beta)
        lost = total(along) * k_inverse * k_inverse
        for k in range(width):
            d_xi[dx + h * stride + k] -= xi[x + h * stride + k] * lost
    source, mine = tape * width * n_p, b * width * n_p
    gather(m.scratch, dw, n_p, m.memory, source, n_p, d_xi, dx, stride, heads, width, n_p)
    deposit(m, source, mine, xi, x, stride, heads, dw)


@kernel
def read_back(m, tape, b, heads, w, w0, dw, d_read, reads):
    """From dr (d_read[reads …], M per head) of what addresses at w[w0 …] read to the tape and to dw (scratch[dw …]).

    r = Σ_i w(i) M(i)        dw(i) += dr·M(i),  dM(i) += w(i) dr
    """
    n_p, width, mine = m.slots_p, m.width, b * m.width * m.slots_p
    multiply(d_read, reads, width, m.memory, tape * width * n_p, n_p, m.scratch, dw, n_p, heads, width, n_p)
    accumulate(d_read, reads, width, w, w0, n_p, m.d_memory, mine, n_p, heads, width, n_p)


# --- states in and out ------------------------------------------------------------------------------------------------


class Leaf(NamedTuple):
    """A part of a memory's state, and where a chunk has it."""

    array: Array
    """(versions, height, N padded)"""
    gradient: Array
    """(B, height, N padded)"""
    height: int
    """lines of a version"""
    lines: Words
    """which of them are the part's"""
    ring: int
    """1 if versions are those of the ring, as a tape's are; else the initial ones come first, then one a row"""
    turned: int
    """1 if slots come first in a state, as in a tape, (B, N, M)"""


LEAF = 9
"""Words of a leaf's record."""


@kernel
def bring(m, leaf, source, sample, target, b):
    """A sample's part of a state, from where a tensor has it to version b of the leaf's array or gradient."""
    n, n_p, lines = m.slots, m.slots_p, leaf.lines.size
    at, start, zero = b * leaf.height * n_p, sample * lines * n, np.float32(0.0)
    if leaf.turned:
        fill(target, at, lines * n_p, zero)
        transpose(source, start, lines, n, lines, target, at, n_p)
    else:
        for i in range(lines):
            line = at + leaf.lines[i] * n_p
            fill(target, line + n_p - 16, 16, zero)
            copy_block(source, start + i * n, 0, 1, n, target, line, 0)


@kernel
def give(m, leaf, source, version, target, sample):
    """And back: a version of the leaf's array or gradient to where a tensor has the sample's part."""
    n, n_p, lines = m.slots, m.slots_p, leaf.lines.size
    at, start = version * leaf.height * n_p, sample * lines * n
    if leaf.turned:
        transpose(source, at, n_p, lines, n, target, start, lines)
    else:
        for i in range(lines):
            copy_block(source, at + leaf.lines[i] * n_p, 0, 1, n, target, start + i * n, 0)


@kernel
def final_version(m, leaf, b, length, last):
    """Which version of a leaf is the last of sample b, after `length` steps, its row `last`."""
    if leaf.ring:
        return ((length - 1) % m.keep + 1) * m.writes * m.apart + b
    return m.batch + last


# --- for Python -------------------------------------------------------------------------------------------------------


STILL, SOME, ALL = range(3)
"""What is kept of the tapes: one, that every write changes in place; as many as the way back needs; all."""


def stretch(steps: int, writes: int, bytes_each: int, keeps: int) -> int:
    """How many steps the ring holds: all if asked for or if that is little, else as many as there are stretches."""
    if keeps != SOME or steps * writes * bytes_each <= NEAR:
        return steps
    return max(1, round(math.sqrt(steps / writes)))


def tapes(room: Room, batch: int, steps: int, writes: int, size: int, keep: int, keeps: int) -> tuple[Span, Span]:
    """The ring, and the tapes at the beginnings of stretches, each `size` numbers: if there is but one, the ring itself
    is what is kept."""
    ring = (keep * writes + 1 if keeps != STILL else 1) * batch * size
    if keep >= steps:
        return room.keep(ring), room.keep(0)
    return room.use(ring), room.keep(-(-steps // keep) * batch * size)


def versions(array: Array, height: int, work: Any) -> Array:
    """A flat buffer as (versions, height, N padded)."""
    count = array.size // (height * work.slots_p)
    return array[: count * height * work.slots_p].reshape(count, height, work.slots_p)


def tape_leaf(work: Any) -> Leaf:
    """The tape itself."""
    return Leaf(work.memory, work.d_memory, work.width, np.arange(work.width), ring=1, turned=1)


def lines_leaf(array: Array, gradient: Array, height: int, lines: Words, ring: int = 0) -> Leaf:
    """Lines of slots."""
    return Leaf(array, gradient, height, lines, ring, turned=0)


class TapeSide(ABC):
    """The Python side of a memory's kernel: buffers for a chunk, and where a state is in them."""

    State: type[Any]
    Work: type[Any]

    def __init__(self, config: Any) -> None:
        self.config = config

    @abstractmethod
    def work(self, room: Room, batch: int, steps: int, rows: int, slots: int, keeps: int) -> Any:
        """The sizes of a chunk, and where its arrays are."""

    @abstractmethod
    def leaves(self, work: Any) -> list[Leaf]:
        """Where the parts of a state are, as far as they are not empty."""

    @abstractmethod
    def shapes(self, batch: int, slots: int) -> tuple[tuple[int, ...], ...]:
        """Of the parts of a state."""

    @abstractmethod
    def addresses(self, work: Any, rows: int) -> tuple[Array, Array]:
        """Per row where it read (R, N), and where it wrote (W, N)."""

    @property
    def counts(self) -> tuple[int, int]:
        """How many addresses are read, and how many written."""
        kinds = [head.kind for head in self.config.heads]
        return kinds.count("read"), kinds.count("write")


def traced_tapes(work: Any, steps: Array, samples: Array) -> Array:
    """(rows, N, M) of a pass whose ring holds all steps."""
    which = (steps + 1) * work.writes * work.batch + samples
    return versions(work.memory, work.width, work)[which, :, : work.slots].transpose(0, 2, 1)
