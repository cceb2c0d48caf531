"""exp, log and what is made of them, sixteen lanes at a time; each is within a few units in the last place.

Numba calls the C library once per number for these; the polynomials below stay in vector registers.
"""

from __future__ import annotations

import math

import numpy as np

from nsm.fused.cache import kernel
from nsm.fused.lanes import (
    add_int,
    and_int,
    as_floats,
    as_ints,
    choose_smaller,
    fma,
    if_finite_and_positive,
    maximum,
    minimum,
    or_bits,
    rounded,
    shift_left,
    shift_right,
    splat,
    to_floats,
    to_ints,
)

_LOG2_E = np.float32(1 / math.log(2))
# ln 2 in two parts: the first has few enough bits that n·part is exact for every exponent n.
_LN2_HIGH = np.float32(0.693359375)
_LN2_LOW = np.float32(math.log(2) - 0.693359375)


@kernel
def exp(x):
    """e^x = 2^n e^r with |r| ≤ ½ ln 2, e^r by its Taylor polynomial of degree 7 (error 5e-9). x is held in ±87."""
    x = maximum(minimum(x, splat(np.float32(87.0))), splat(np.float32(-87.0)))
    n = rounded(x * splat(_LOG2_E))
    r = fma(n, splat(-_LN2_HIGH), x)
    r = fma(n, splat(-_LN2_LOW), r)
    p = splat(np.float32(1 / 5040))
    p = fma(p, r, splat(np.float32(1 / 720)))
    p = fma(p, r, splat(np.float32(1 / 120)))
    p = fma(p, r, splat(np.float32(1 / 24)))
    p = fma(p, r, splat(np.float32(1 / 6)))
    p = fma(p, r, splat(np.float32(0.5)))
    p = fma(p, r, splat(np.float32(1.0)))
    p = fma(p, r, splat(np.float32(1.0)))
    return p * as_floats(shift_left(add_int(to_ints(n), 127), 23))


@kernel
def log(x):
    """log x of positive normal numbers: x = 2^n m with m in [√½, √2), log m = 2 artanh((m−1)/(m+1)) by its series.

    NaN of what is none of them, infinity included: its bits would pass for those of a number.
    """
    # Taking the bits of √½ off first rounds the exponent so that m lands around 1.
    shifted = add_int(as_ints(x), -0x3F3504F3)
    n = to_floats(shift_right(shifted, 23))
    m = as_floats(add_int(and_int(shifted, 0x007FFFFF), 0x3F3504F3))
    s = (m - splat(np.float32(1.0))) / (m + splat(np.float32(1.0)))
    z = s * s
    p = splat(np.float32(2 / 9))
    p = fma(p, z, splat(np.float32(2 / 7)))
    p = fma(p, z, splat(np.float32(2 / 5)))
    p = fma(p, z, splat(np.float32(2 / 3)))
    p = fma(p, z, splat(np.float32(2.0)))
    return if_finite_and_positive(x, fma(n, splat(_LN2_HIGH), fma(p, s, n * splat(_LN2_LOW))))


@kernel
def sigmoid(x):
    """1 / (1 + e^−x)"""
    one = splat(np.float32(1.0))
    return one / (one + exp(-x))


@kernel
def tanh(x):
    """Near zero a Padé fraction, x (945 + 105 x² + x⁴) / (945 + 420 x² + 15 x⁴); elsewhere ±(1 − 2 / (e^2|x| + 1))."""
    one = splat(np.float32(1.0))
    size = as_floats(and_int(as_ints(x), 0x7FFFFFFF))
    z = x * x
    top = fma(z + splat(np.float32(105.0)), z, splat(np.float32(945.0)))
    bottom = fma(fma(splat(np.float32(15.0)), z, splat(np.float32(420.0))), z, splat(np.float32(945.0)))
    near = x * (top / bottom)
    far = one - splat(np.float32(2.0)) / (exp(size + size) + one)
    # The sign of x, moved onto `far` by its bits.
    signed = as_floats(or_bits(as_ints(far), and_int(as_ints(x), -0x80000000)))
    return choose_smaller(size, splat(np.float32(0.6)), near, signed)


@kernel
def softplus(x):
    """log(1 + e^x) = max(x, 0) + log(1 + u) with u = e^−|x| in (0, 1].

    log(1 + u) = 2 artanh(u / (2 + u)) by its series, which is as exact for tiny u as for large ones.
    """
    u = exp(-as_floats(and_int(as_ints(x), 0x7FFFFFFF)))
    s = u / (u + splat(np.float32(2.0)))
    z = s * s
    p = splat(np.float32(2 / 17))
    p = fma(p, z, splat(np.float32(2 / 15)))
    p = fma(p, z, splat(np.float32(2 / 13)))
    p = fma(p, z, splat(np.float32(2 / 11)))
    p = fma(p, z, splat(np.float32(2 / 9)))
    p = fma(p, z, splat(np.float32(2 / 7)))
    p = fma(p, z, splat(np.float32(2 / 5)))
    p = fma(p, z, splat(np.float32(2 / 3)))
    p = fma(p, z, splat(np.float32(2.0)))
    return fma(p, s, maximum(x, splat(np.float32(0.0))))
