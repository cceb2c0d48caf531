"""Scalar-loop reference of one step of each state network (Eq. 1), weights laid out as torch does."""

import math
from collections.abc import Mapping

import numpy as np

from .programs import Array, sigmoid

LAYER_NORM_EPS = 1e-5


def affine(weight: Array, x: Array, bias: Array) -> Array:
    """W x + b."""
    result = np.zeros(len(weight), dtype=np.float64)
    for row in range(len(weight)):
        result[row] = bias[row]
        for column in range(len(x)):
            result[row] += weight[row, column] * x[column]
    return result


def layer_normalise(x: Array, weight: Array, bias: Array) -> Array:
    """Layer norm: (x − mean) / √(biased variance + 1e-5) · weight + bias."""
    n = len(x)
    mean = 0.0
    for i in range(n):
        mean += float(x[i]) / n
    variance = 0.0
    for i in range(n):
        variance += (float(x[i]) - mean) ** 2 / n
    result = np.zeros(n, dtype=np.float64)
    for i in range(n):
        result[i] = (float(x[i]) - mean) / math.sqrt(variance + LAYER_NORM_EPS) * weight[i] + bias[i]
    return result


def lstm(
    x: Array,
    h: Array,
    c: Array,
    weight_ih: Array,
    weight_hh: Array,
    bias: Array,
    layer_norm: Mapping[str, Array] | None = None,
    noise: Array | None = None,
) -> tuple[Array, Array]:
    """Eq. 1 with an LSTM, gates i, f, g, o: returns (h, c), where c is not normalised but carries the noise."""
    n = len(h)
    from_input = affine(weight_ih, x, bias)
    from_state = affine(weight_hh, h, np.zeros(4 * n, dtype=np.float64))
    gates = np.zeros(4 * n, dtype=np.float64)
    for row in range(4 * n):
        gates[row] = from_input[row] + from_state[row]

    if layer_norm is not None:
        for gate in range(4):
            rows = slice(gate * n, (gate + 1) * n)
            gates[rows] = layer_normalise(gates[rows], layer_norm["gates_weight"][rows], layer_norm["gates_bias"][rows])

    new_c = np.zeros(n, dtype=np.float64)
    for k in range(n):
        input_gate = sigmoid(gates[k])
        forget_gate = sigmoid(gates[n + k])
        candidate = math.tanh(gates[2 * n + k])
        new_c[k] = forget_gate * c[k] + input_gate * candidate
        if noise is not None:
            new_c[k] += noise[k]

    shown = new_c
    if layer_norm is not None:
        shown = layer_normalise(new_c, layer_norm["cell_weight"], layer_norm["cell_bias"])

    new_h = np.zeros(n, dtype=np.float64)
    for k in range(n):
        new_h[k] = sigmoid(gates[3 * n + k]) * math.tanh(shown[k])
    return new_h, new_c


def gru(x: Array, h: Array, weight_ih: Array, weight_hh: Array, bias_ih: Array, bias_hh: Array) -> Array:
    """Eq. 1 with a GRU, gates r, z, n: n = tanh(W x + b + r·(U h + d)), h = (1 − z)·n + z·h."""
    n = len(h)
    from_input = affine(weight_ih, x, bias_ih)
    from_state = affine(weight_hh, h, bias_hh)
    new_h = np.zeros(n, dtype=np.float64)
    for k in range(n):
        reset = sigmoid(from_input[k] + from_state[k])
        update = sigmoid(from_input[n + k] + from_state[n + k])
        candidate = math.tanh(from_input[2 * n + k] + reset * from_state[2 * n + k])
        new_h[k] = (1.0 - update) * candidate + update * h[k]
    return new_h


def rnn(x: Array, h: Array, weight_ih: Array, weight_hh: Array, bias_ih: Array, bias_hh: Array) -> Array:
    """Eq. 1 with a plain RNN: h = tanh(W x + b + U h + d)."""
    from_input = affine(weight_ih, x, bias_ih)
    from_state = affine(weight_hh, h, bias_hh)
    new_h = np.zeros(len(h), dtype=np.float64)
    for k in range(len(h)):
        new_h[k] = math.tanh(from_input[k] + from_state[k])
    return new_h


def feed_forward(x: Array, weight: Array, bias: Array) -> Array:
    """Eq. 1 without a state: tanh(W x + b)."""
    return np.array([math.tanh(value) for value in affine(weight, x, bias)], dtype=np.float64)
