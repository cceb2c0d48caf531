"""The vector type, the functions made of it, and the matrix products."""

from types import FunctionType

import numpy as np
import pytest
from numba import njit

from nsm.fused import algebra, functions, workspace
from nsm.fused.lanes import flush_denormals, largest, load, restore_denormals, store, total, transpose_block


def over(function):
    """A lane function over a whole array."""

    @njit
    def run(x, y):
        for i in range(0, x.size, 16):
            store(y, i, function(load(x, i)))

    def apply(x):
        y = np.empty_like(x)
        run(x, y)
        return y

    return apply


def softplus(x):
    return np.logaddexp(0.0, x)


@pytest.mark.parametrize(
    ("function", "exact", "low", "high", "error"),
    [
        (functions.exp, np.exp, -86.0, 86.0, 1e-7),
        (functions.sigmoid, lambda x: 1 / (1 + np.exp(-x)), -40.0, 40.0, 2e-7),
        (functions.tanh, np.tanh, -12.0, 12.0, 2e-7),
        (functions.tanh, np.tanh, -1e-3, 1e-3, 1e-7),
        (functions.softplus, softplus, -40.0, 40.0, 2.5e-7),
    ],
)
def test_functions_are_exact_to_a_few_units_in_the_last_place(function, exact, low, high, error):
    x = np.random.default_rng(0).uniform(low, high, 160_000).astype(np.float32)
    expected = exact(x.astype(np.float64))
    assert np.max(np.abs(over(function)(x) - expected) / np.abs(expected)) < error


def test_log_is_exact_over_all_normal_numbers():
    x = np.exp(np.random.default_rng(0).uniform(-80, 80, 160_000)).astype(np.float32)
    expected = np.log(x.astype(np.float64))
    # Near 1 the logarithm is near 0, so the error counts against 1 there.
    assert np.max(np.abs(over(functions.log)(x) - expected) / np.maximum(np.abs(expected), 1)) < 2e-7


@pytest.mark.parametrize("function", ["exp", "log", "sigmoid", "tanh", "softplus"])
def test_what_is_no_number_stays_none(function):
    x = np.full(16, np.nan, np.float32)
    assert np.isnan(over(getattr(functions, function))(x)).all()


@pytest.mark.parametrize("value", [np.inf, -np.inf, -1.0])
def test_nothing_but_positive_numbers_has_a_logarithm(value):
    assert not np.isfinite(over(functions.log)(np.full(16, value, np.float32))).any()


@pytest.mark.parametrize("value", [-1e30, -1e5, -88.0, 88.0, 1e5, 1e30])
def test_functions_are_finite_and_right_at_the_ends(value):
    x = np.full(16, value, np.float32)
    assert np.isfinite(over(functions.exp)(x)).all()
    assert over(functions.tanh)(x)[0] == np.sign(value)
    assert over(functions.sigmoid)(x)[0] == pytest.approx(float(value > 0), abs=1e-30)
    assert over(functions.softplus)(x)[0] == pytest.approx(max(value, 0), rel=1e-6, abs=1e-30)


def test_sums_and_maxima_take_all_lanes():
    @njit
    def both(x):
        return total(load(x, 0)), largest(load(x, 0))

    for place in range(16):
        x = np.arange(16, dtype=np.float32)
        x[place] = 100
        assert both(x) == (x.sum(), 100)


def test_a_block_is_transposed():
    @njit
    def run(a, c):
        transpose_block(a, 3, 20, c, 5, 17)

    a, c = np.random.default_rng(0).random(400, np.float32), np.zeros(400, np.float32)
    run(a, c)
    for i in range(16):
        for j in range(16):
            assert c[5 + j * 17 + i] == a[3 + i * 20 + j]


@njit
def multiply(a, a0, lda, w, w0, ldw, c, c0, ldc, rows, inner, width):
    algebra.multiply(a, a0, lda, w, w0, ldw, c, c0, ldc, rows, inner, width)


@njit
def accumulate(a, d, c, rows, height, width):
    algebra.accumulate(a, 0, height, d, 0, width, c, 0, width, rows, height, width)


@njit
def dots(a, w, c, rows, width):
    algebra.dots(a, 0, w, 0, width, c, 0, rows, width)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 8, 11])
@pytest.mark.parametrize(("inner", "width"), [(1, 16), (3, 48), (7, 64), (20, 80), (33, 112), (100, 160)])
def test_products_equal_numpy(rows, inner, width):
    rng = np.random.default_rng(rows * 1000 + width)

    def normal(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    # Starts and strides that are no multiples of anything, and columns beyond the width that must not change.
    a, w, c = normal(rows, inner + 3), normal(inner, width + 16), normal(rows, width + 32)
    starts = (2, 5, 1)
    flat_a, flat_w, flat_c = (
        np.concatenate([np.zeros(start, np.float32), matrix.ravel(), np.zeros(16, np.float32)])
        for start, matrix in zip(starts, (a, w, c), strict=True)
    )
    multiply(flat_a, 2, inner + 3, flat_w, 5, width + 16, flat_c, 1, width + 32, rows, inner, width)
    expected = c.astype(np.float64)
    expected[:, :width] += a[:, :inner].astype(np.float64) @ w[:, :width]
    np.testing.assert_allclose(flat_c[1 : 1 + c.size].reshape(c.shape), expected, rtol=0, atol=2e-5)

    a, d, c = normal(rows, inner), normal(rows, width), np.zeros((inner, width), np.float32)
    accumulate(a.ravel(), d.ravel(), c.reshape(-1), rows, inner, width)
    np.testing.assert_allclose(c, a.T.astype(np.float64) @ d, rtol=0, atol=2e-5)

    vector, w, sums = normal(width), normal(rows, width), np.zeros(rows, np.float32)
    dots(vector, w.ravel(), sums, rows, width)
    np.testing.assert_allclose(sums, w.astype(np.float64) @ vector, rtol=0, atol=2e-5)


def tiled(product, many_registers):
    """A product as it is compiled where registers are few or many, called from Python."""
    names = {**product.py_func.__globals__, "MANY_REGISTERS": many_registers}
    return njit(FunctionType(product.py_func.__code__, names))


@pytest.mark.parametrize("product", [algebra.multiply, algebra.accumulate], ids=["multiply", "accumulate"])
@pytest.mark.parametrize(("rows", "inner", "width"), [(4, 9, 80), (7, 8, 64), (1, 5, 32)])
def test_the_size_of_tiles_changes_no_bit(product, rows, inner, width):
    """So the same seed gives the same bytes whatever processor compiled the kernels."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(inner * 80).astype(np.float32) for _ in range(2))
    start = rng.standard_normal(inner * 80).astype(np.float32)
    results = []
    for many_registers in (False, True):
        c = start.copy()
        tiled(product, many_registers)(a, 0, inner, b, 0, width, c, 0, width, rows, inner, width)
        results.append(c)
    assert not np.array_equal(results[0], start)
    assert results[0].tobytes() == results[1].tobytes()


def test_denormals_are_flushed_and_the_setting_is_put_back():
    @njit
    def product(a, b):
        before = flush_denormals()
        inside = a[0] * b[0]
        restore_denormals(before)
        return inside, a[0] * b[0]

    a, b = np.array([1e-30], np.float32), np.array([1e-10], np.float32)
    assert product(a, b)[1] != 0
    # Only x86 has the switch; elsewhere both are the same small number.
    assert product(a, b)[0] in (0, product(a, b)[1])


def test_buffers_begin_at_a_cache_line():
    for size in (1, 17, 1000):
        assert workspace.zeros(size).ctypes.data % 64 == 0
