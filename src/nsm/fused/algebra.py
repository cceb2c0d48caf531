"""The three matrix products everything is made of, on flat float32 arrays with explicit starts and strides.

Operands are (array, start, stride): row i begins at start + i·stride. Widths along the lanes are multiples of 16; what
is padded holds zeros. Each product has a fixed order of additions, so the same numbers give the same bits.
"""

from __future__ import annotations

import numpy as np

from nsm.fused.cache import kernel
from nsm.fused.lanes import MANY_REGISTERS, choose_smaller, fma, load, splat, spread, store, total, transpose_block


@kernel
def multiply(a, a0, lda, w, w0, ldw, c, c0, ldc, rows, inner, width):
    """C[i, :] += Σ_k A[i, k] W[k, :] for `rows` rows, k < `inner`, `width` columns (a multiple of 16).

    Tiles of 4 × 16 outputs stay in registers while k runs, of 4 × 32 where there are enough of them: each load of W
    serves four rows. All rows take their turn on a panel of W before the next one: what is too large for the nearest
    caches comes from afar once, not once a tile. An output is one sum over k in order, whatever the tiles.
    """
    fours, j = rows // 4 * 4, 0
    while MANY_REGISTERS and j + 32 <= width:
        for i in range(0, fours, 4):
            r0, r1, r2, r3 = a0 + i * lda, a0 + (i + 1) * lda, a0 + (i + 2) * lda, a0 + (i + 3) * lda
            o0, o1 = c0 + i * ldc + j, c0 + (i + 1) * ldc + j
            o2, o3 = c0 + (i + 2) * ldc + j, c0 + (i + 3) * ldc + j
            c00, c01, c10, c11 = load(c, o0), load(c, o0 + 16), load(c, o1), load(c, o1 + 16)
            c20, c21, c30, c31 = load(c, o2), load(c, o2 + 16), load(c, o3), load(c, o3 + 16)
            p = w0 + j
            for k in range(inner):
                left, right = load(w, p), load(w, p + 16)
                x = spread(a, r0 + k)
                c00, c01 = fma(x, left, c00), fma(x, right, c01)
                x = spread(a, r1 + k)
                c10, c11 = fma(x, left, c10), fma(x, right, c11)
                x = spread(a, r2 + k)
                c20, c21 = fma(x, left, c20), fma(x, right, c21)
                x = spread(a, r3 + k)
                c30, c31 = fma(x, left, c30), fma(x, right, c31)
                p += ldw
            store(c, o0, c00), store(c, o0 + 16, c01), store(c, o1, c10), store(c, o1 + 16, c11)
            store(c, o2, c20), store(c, o2 + 16, c21), store(c, o3, c30), store(c, o3 + 16, c31)
        j += 32
    while j < width:
        for i in range(0, fours, 4):
            r0, r1, r2, r3 = a0 + i * lda, a0 + (i + 1) * lda, a0 + (i + 2) * lda, a0 + (i + 3) * lda
            o0, o1 = c0 + i * ldc + j, c0 + (i + 1) * ldc + j
            o2, o3 = c0 + (i + 2) * ldc + j, c0 + (i + 3) * ldc + j
            x0, x1, x2, x3 = load(c, o0), load(c, o1), load(c, o2), load(c, o3)
            p = w0 + j
            for k in range(inner):
                v = load(w, p)
                x0, x1 = fma(spread(a, r0 + k), v, x0), fma(spread(a, r1 + k), v, x1)
                x2, x3 = fma(spread(a, r2 + k), v, x2), fma(spread(a, r3 + k), v, x3)
                p += ldw
            store(c, o0, x0), store(c, o1, x1), store(c, o2, x2), store(c, o3, x3)
        j += 16
    for i in range(fours, rows):
        _multiply_row(a, a0 + i * lda, w, w0, ldw, c, c0 + i * ldc, inner, width)


@kernel
def _multiply_row(a, a0, w, w0, ldw, c, c0, inner, width):
    """One row of `multiply`: four sums at a time, of four column blocks or of four k where fewer columns are left.

    A sum waits four cycles for its last addition; four of them side by side keep the arithmetic busy.
    """
    j = 0
    while j + 64 <= width:
        x0, x1 = load(c, c0 + j), load(c, c0 + j + 16)
        x2, x3 = load(c, c0 + j + 32), load(c, c0 + j + 48)
        p = w0 + j
        for k in range(inner):
            x = spread(a, a0 + k)
            x0, x1 = fma(x, load(w, p), x0), fma(x, load(w, p + 16), x1)
            x2, x3 = fma(x, load(w, p + 32), x2), fma(x, load(w, p + 48), x3)
            p += ldw
        store(c, c0 + j, x0), store(c, c0 + j + 16, x1)
        store(c, c0 + j + 32, x2), store(c, c0 + j + 48, x3)
        j += 64
    while j < width:
        zero = splat(np.float32(0.0))
        x0, x1, x2, x3 = load(c, c0 + j), zero, zero, zero
        p, k = w0 + j, 0
        while k + 4 <= inner:
            x0 = fma(spread(a, a0 + k), load(w, p), x0)
            x1 = fma(spread(a, a0 + k + 1), load(w, p + ldw), x1)
            x2 = fma(spread(a, a0 + k + 2), load(w, p + 2 * ldw), x2)
            x3 = fma(spread(a, a0 + k + 3), load(w, p + 3 * ldw), x3)
            p += 4 * ldw
            k += 4
        while k < inner:
            x0 = fma(spread(a, a0 + k), load(w, p), x0)
            p += ldw
            k += 1
        store(c, c0 + j, (x0 + x1) + (x2 + x3))
        j += 16


PANEL = 32
"""Columns of a panel. A matrix in panels is read from its first byte to its last by `multiply_panels`: panel after
panel, each row after row. In rows, the next number of a column is often on another page, where no processor looks
ahead."""


@kernel
def multiply_panels(a, a0, lda, w, height, c, c0, ldc, rows, inner, width):
    """C[i, :] += Σ_k A[i, k] W[k, :] as `multiply` does, for a W of `height` rows, at least `inner`, in panels.

    An output is one sum over k in order, unless it is in one of the last panels of one of the last rows.
    """
    j, eights, fours = 0, (rows // 8 * 8 if MANY_REGISTERS else 0), rows // 4 * 4
    while j + PANEL <= width:
        p = j * height
        for i in range(0, eights, 8):
            _panel_by_eight(a, a0 + i * lda, lda, w, p, c, c0 + i * ldc + j, ldc, inner)
        for i in range(eights, fours, 4):
            _panel_by_four(a, a0 + i * lda, lda, w, p, PANEL, c, c0 + i * ldc + j, ldc, inner)
            if not MANY_REGISTERS:
                _half_by_four(a, a0 + i * lda, lda, w, p + 16, PANEL, c, c0 + i * ldc + j + 16, ldc, inner)
        j += PANEL
    if j < width:  # half a panel
        for i in range(0, fours, 4):
            _half_by_four(a, a0 + i * lda, lda, w, j * height, 16, c, c0 + i * ldc + j, ldc, inner)
    for i in range(fours, rows):
        _row_by_panels(a, a0 + i * lda, w, height, c, c0 + i * ldc, inner, width)


@kernel
def _panel_by_eight(a, r0, lda, w, p, c, o0, ldc, inner):
    r1, r2, r3 = r0 + lda, r0 + 2 * lda, r0 + 3 * lda
    r4, r5, r6, r7 = r0 + 4 * lda, r0 + 5 * lda, r0 + 6 * lda, r0 + 7 * lda
    o1, o2, o3 = o0 + ldc, o0 + 2 * ldc, o0 + 3 * ldc
    o4, o5, o6, o7 = o0 + 4 * ldc, o0 + 5 * ldc, o0 + 6 * ldc, o0 + 7 * ldc
    x0, y0, x1, y1 = load(c, o0), load(c, o0 + 16), load(c, o1), load(c, o1 + 16)
    x2, y2, x3, y3 = load(c, o2), load(c, o2 + 16), load(c, o3), load(c, o3 + 16)
    x4, y4, x5, y5 = load(c, o4), load(c, o4 + 16), load(c, o5), load(c, o5 + 16)
    x6, y6, x7, y7 = load(c, o6), load(c, o6 + 16), load(c, o7), load(c, o7 + 16)
    for k in range(inner):
        left, right = load(w, p), load(w, p + 16)
        v = spread(a, r0 + k)
        x0, y0 = fma(v, left, x0), fma(v, right, y0)
        v = spread(a, r1 + k)
        x1, y1 = fma(v, left, x1), fma(v, right, y1)
        v = spread(a, r2 + k)
        x2, y2 = fma(v, left, x2), fma(v, right, y2)
        v = spread(a, r3 + k)
        x3, y3 = fma(v, left, x3), fma(v, right, y3)
        v = spread(a, r4 + k)
        x4, y4 = fma(v, left, x4), fma(v, right, y4)
        v = spread(a, r5 + k)
        x5, y5 = fma(v, left, x5), fma(v, right, y5)
        v = spread(a, r6 + k)
        x6, y6 = fma(v, left, x6), fma(v, right, y6)
        v = spread(a, r7 + k)
        x7, y7 = fma(v, left, x7), fma(v, right, y7)
        p += PANEL
    store(c, o0, x0), store(c, o0 + 16, y0), store(c, o1, x1), store(c, o1 + 16, y1)
    store(c, o2, x2), store(c, o2 + 16, y2), store(c, o3, x3), store(c, o3 + 16, y3)
    store(c, o4, x4), store(c, o4 + 16, y4), store(c, o5, x5), store(c, o5 + 16, y5)
    store(c, o6, x6), store(c, o6 + 16, y6), store(c, o7, x7), store(c, o7 + 16, y7)


@kernel
def _panel_by_four(a, r0, lda, w, p, ldw, c, o0, ldc, inner):
    if not MANY_REGISTERS:
        _half_by_four(a, r0, lda, w, p, ldw, c, o0, ldc, inner)
        return
    r1, r2, r3 = r0 + lda, r0 + 2 * lda, r0 + 3 * lda
    o1, o2, o3 = o0 + ldc, o0 + 2 * ldc, o0 + 3 * ldc
    x0, y0, x1, y1 = load(c, o0), load(c, o0 + 16), load(c, o1), load(c, o1 + 16)
    x2, y2, x3, y3 = load(c, o2), load(c, o2 + 16), load(c, o3), load(c, o3 + 16)
    for k in range(inner):
        left, right = load(w, p), load(w, p + 16)
        v = spread(a, r0 + k)
        x0, y0 = fma(v, left, x0), fma(v, right, y0)
        v = spread(a, r1 + k)
        x1, y1 = fma(v, left, x1), fma(v, right, y1)
        v = spread(a, r2 + k)
        x2, y2 = fma(v, left, x2), fma(v, right, y2)
        v = spread(a, r3 + k)
        x3, y3 = fma(v, left, x3), fma(v, right, y3)
        p += ldw
    store(c, o0, x0), store(c, o0 + 16, y0), store(c, o1, x1), store(c, o1 + 16, y1)
    store(c, o2, x2), store(c, o2 + 16, y2), store(c, o3, x3), store(c, o3 + 16, y3)


@kernel
def _half_by_four(a, r0, lda, w, p, ldw, c, o0, ldc, inner):
    r1, r2, r3 = r0 + lda, r0 + 2 * lda, r0 + 3 * lda
    o1, o2, o3 = o0 + ldc, o0 + 2 * ldc, o0 + 3 * ldc
    x0, x1, x2, x3 = load(c, o0), load(c, o1), load(c, o2), load(c, o3)
    for k in range(inner):
        v = load(w, p)
        x0, x1 = fma(spread(a, r0 + k), v, x0), fma(spread(a, r1 + k), v, x1)
        x2, x3 = fma(spread(a, r2 + k), v, x2), fma(spread(a, r3 + k), v, x3)
        p += ldw
    store(c, o0, x0), store(c, o1, x1), store(c, o2, x2), store(c, o3, x3)


@kernel
def _row_by_panels(a, a0, w, height, c, c0, inner, width):
    """One row: as many sums side by side as registers hold, of several panels, or of several k in the last ones."""
    j, zero = 0, splat(np.float32(0.0))
    while MANY_REGISTERS and j + 4 * PANEL <= width:
        p0, o = j * height, c0 + j
        p1, p2, p3 = p0 + PANEL * height, p0 + 2 * PANEL * height, p0 + 3 * PANEL * height
        x0, x1, x2, x3 = load(c, o), load(c, o + 16), load(c, o + 32), load(c, o + 48)
        x4, x5, x6, x7 = load(c, o + 64), load(c, o + 80), load(c, o + 96), load(c, o + 112)
        for k in range(inner):
            v, q = spread(a, a0 + k), k * PANEL
            x0, x1 = fma(v, load(w, p0 + q), x0), fma(v, load(w, p0 + q + 16), x1)
            x2, x3 = fma(v, load(w, p1 + q), x2), fma(v, load(w, p1 + q + 16), x3)
            x4, x5 = fma(v, load(w, p2 + q), x4), fma(v, load(w, p2 + q + 16), x5)
            x6, x7 = fma(v, load(w, p3 + q), x6), fma(v, load(w, p3 + q + 16), x7)
        store(c, o, x0), store(c, o + 16, x1), store(c, o + 32, x2), store(c, o + 48, x3)
        store(c, o + 64, x4), store(c, o + 80, x5), store(c, o + 96, x6), store(c, o + 112, x7)
        j += 4 * PANEL
    while j + PANEL <= width:
        p, o, k = j * height, c0 + j, 0
        x0, x1, x2, x3 = load(c, o), load(c, o + 16), zero, zero
        if MANY_REGISTERS:
            x4, x5, x6, x7 = zero, zero, zero, zero
            while k + 4 <= inner:
                v = spread(a, a0 + k)
                x0, x1 = fma(v, load(w, p), x0), fma(v, load(w, p + 16), x1)
                v = spread(a, a0 + k + 1)
                x2, x3 = fma(v, load(w, p + 32), x2), fma(v, load(w, p + 48), x3)
                v = spread(a, a0 + k + 2)
                x4, x5 = fma(v, load(w, p + 64), x4), fma(v, load(w, p + 80), x5)
                v = spread(a, a0 + k + 3)
                x6, x7 = fma(v, load(w, p + 96), x6), fma(v, load(w, p + 112), x7)
                p += 4 * PANEL
                k += 4
            x0, x1, x2, x3 = x0 + x4, x1 + x5, x2 + x6, x3 + x7
        while k + 2 <= inner:
            v = spread(a, a0 + k)
            x0, x1 = fma(v, load(w, p), x0), fma(v, load(w, p + 16), x1)
            v = spread(a, a0 + k + 1)
            x2, x3 = fma(v, load(w, p + 32), x2), fma(v, load(w, p + 48), x3)
            p += 2 * PANEL
            k += 2
        if k < inner:
            v = spread(a, a0 + k)
            x0, x1 = fma(v, load(w, p), x0), fma(v, load(w, p + 16), x1)
        store(c, o, x0 + x2), store(c, o + 16, x1 + x3)
        j += PANEL
    if j < width:
        _multiply_row(a, a0, w, j * height, 16, c, c0 + j, inner, 16)


@kernel
def accumulate(a, a0, lda, d, d0, ldd, c, c0, ldc, rows, height, width):
    """C[k, :] += Σ_i A[i, k] D[i, :]: a weight's gradient from all rows at once; k < `height`, `width` columns.

    Tiles and panels as in `multiply`: a panel of D serves all k.
    """
    fours, j = height // 4 * 4, 0
    while MANY_REGISTERS and j + 32 <= width:
        for k in range(0, fours, 4):
            o0, o1 = c0 + k * ldc + j, c0 + (k + 1) * ldc + j
            o2, o3 = c0 + (k + 2) * ldc + j, c0 + (k + 3) * ldc + j
            c00, c01, c10, c11 = load(c, o0), load(c, o0 + 16), load(c, o1), load(c, o1 + 16)
            c20, c21, c30, c31 = load(c, o2), load(c, o2 + 16), load(c, o3), load(c, o3 + 16)
            p, q = a0 + k, d0 + j
            for _ in range(rows):
                left, right = load(d, q), load(d, q + 16)
                x = spread(a, p)
                c00, c01 = fma(x, left, c00), fma(x, right, c01)
                x = spread(a, p + 1)
                c10, c11 = fma(x, left, c10), fma(x, right, c11)
                x = spread(a, p + 2)
                c20, c21 = fma(x, left, c20), fma(x, right, c21)
                x = spread(a, p + 3)
                c30, c31 = fma(x, left, c30), fma(x, right, c31)
                p += lda
                q += ldd
            store(c, o0, c00), store(c, o0 + 16, c01), store(c, o1, c10), store(c, o1 + 16, c11)
            store(c, o2, c20), store(c, o2 + 16, c21), store(c, o3, c30), store(c, o3 + 16, c31)
        j += 32
    while j < width:
        for k in range(0, fours, 4):
            o0, o1 = c0 + k * ldc + j, c0 + (k + 1) * ldc + j
            o2, o3 = c0 + (k + 2) * ldc + j, c0 + (k + 3) * ldc + j
            x0, x1, x2, x3 = load(c, o0), load(c, o1), load(c, o2), load(c, o3)
            p, q = a0 + k, d0 + j
            for _ in range(rows):
                v = load(d, q)
                x0, x1 = fma(spread(a, p), v, x0), fma(spread(a, p + 1), v, x1)
                x2, x3 = fma(spread(a, p + 2), v, x2), fma(spread(a, p + 3), v, x3)
                p += lda
                q += ldd
            store(c, o0, x0), store(c, o1, x1), store(c, o2, x2), store(c, o3, x3)
        j += 16
    for k in range(fours, height):
        for j in range(0, width, 16):
            x0 = load(c, c0 + k * ldc + j)
            p, q = a0 + k, d0 + j
            for _ in range(rows):
                x0 = fma(spread(a, p), load(d, q), x0)
                p += lda
                q += ldd
            store(c, c0 + k * ldc + j, x0)


@kernel
def few(a, count):
    """Whether not one in sixteen of the first `count` numbers is other than zero, as where inputs are one-hot."""
    zero, one = splat(np.float32(0.0)), splat(np.float32(1.0))
    sums = zero
    for i in range(0, count, 16):
        x = load(a, i)
        sums = sums + choose_smaller(zero, x * x, one, zero)
    return total(sums) * np.float32(16.0) < np.float32(count)


@kernel
def nothing(a, a0, count):
    """What zeros take from `count` numbers, a multiple of 16: zero, or NaN if one of them is infinite or none."""
    zero = splat(np.float32(0.0))
    sums = zero
    for i in range(a0, a0 + count, 16):
        sums = fma(load(a, i), zero, sums)
    return total(sums)


@kernel
def multiply_few(a, lda, w, ldw, c, ldc, rows, inner, width):
    """`multiply`, all from the start of their arrays, where `few` of A are not zero: the others are passed over."""
    for i in range(rows):
        for k in range(inner):
            if a[i * lda + k] != 0:
                x = spread(a, i * lda + k)
                for j in range(0, width, 16):
                    store(c, i * ldc + j, fma(x, load(w, k * ldw + j), load(c, i * ldc + j)))


@kernel
def accumulate_few(a, lda, d, ldd, c, ldc, rows, height, width):
    """`accumulate`, all from the start of their arrays, where `few` of A are not zero: the others are passed over."""
    for i in range(rows):
        for k in range(height):
            if a[i * lda + k] != 0:
                x = spread(a, i * lda + k)
                for j in range(0, width, 16):
                    store(c, k * ldc + j, fma(x, load(d, i * ldd + j), load(c, k * ldc + j)))


@kernel
def dots(a, a0, w, w0, ldw, c, c0, rows, inner):
    """c[m] += Σ_i a[i] W[m, i] for `rows` rows of W, `inner` a multiple of 16."""
    m = 0
    while m + 4 <= rows:
        p0 = w0 + m * ldw
        p1, p2, p3 = p0 + ldw, p0 + 2 * ldw, p0 + 3 * ldw
        zero = splat(np.float32(0.0))
        x0, x1, x2, x3 = zero, zero, zero, zero
        for i in range(0, inner, 16):
            v = load(a, a0 + i)
            x0, x1 = fma(v, load(w, p0 + i), x0), fma(v, load(w, p1 + i), x1)
            x2, x3 = fma(v, load(w, p2 + i), x2), fma(v, load(w, p3 + i), x3)
        c[c0 + m] += total(x0)
        c[c0 + m + 1] += total(x1)
        c[c0 + m + 2] += total(x2)
        c[c0 + m + 3] += total(x3)
        m += 4
    while m < rows:
        x0 = splat(np.float32(0.0))
        for i in range(0, inner, 16):
            x0 = fma(load(a, a0 + i), load(w, w0 + m * ldw + i), x0)
        c[c0 + m] += total(x0)
        m += 1


@kernel
def fill(a, start, width, value):
    """`width` numbers from `start` on, a multiple of 16, become `value`."""
    v = splat(value)
    for i in range(start, start + width, 16):
        store(a, i, v)


@kernel
def copy(a, a0, c, c0, width):
    """`width` numbers, a multiple of 16, from a to c."""
    for i in range(0, width, 16):
        store(c, c0 + i, load(a, a0 + i))


@kernel
def add_into(a, a0, c, c0, width):
    """c += a over `width` numbers, a multiple of 16."""
    for i in range(0, width, 16):
        store(c, c0 + i, load(c, c0 + i) + load(a, a0 + i))


@kernel
def copy_block(a, a0, lda, rows, columns, c, c0, ldc):
    """C = A, sixteen numbers at a time as far as they go."""
    whole = columns // 16 * 16
    for i in range(rows):
        source, target = a0 + i * lda, c0 + i * ldc
        for j in range(0, whole, 16):
            store(c, target + j, load(a, source + j))
        for j in range(whole, columns):
            c[target + j] = a[source + j]


@kernel
def transpose(a, a0, lda, rows, columns, c, c0, ldc):
    """C = Aᵀ, in whole blocks as far as they go."""
    whole, wide = rows // 16 * 16, columns // 16 * 16
    for i in range(0, whole, 16):
        for j in range(0, wide, 16):
            transpose_block(a, a0 + i * lda + j, lda, c, c0 + j * ldc + i, ldc)
    for i in range(rows):
        for j in range(wide if i < whole else 0, columns):
            c[c0 + j * ldc + i] = a[a0 + i * lda + j]
