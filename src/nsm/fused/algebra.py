"""The three matrix products everything is made of, on flat float32 arrays with explicit starts and strides.

Operands are (array, start, stride): row i begins at start + i·stride. Widths along the lanes are multiples of 16; what
is padded holds zeros. Each product has a fixed order of additions, so the same numbers give the same bits.
"""

from __future__ import annotations

import numpy as np

from nsm.fused.cache import kernel
from nsm.fused.lanes import MANY_REGISTERS, choose_smaller, fma, load, splat, spread, store, total


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
