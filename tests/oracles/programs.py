"""Scalar-loop reference of the program memory (Eqs. 3-6) and the small functions that every oracle shares."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

EPS = 1e-8
TINY = 1e-16


def sigmoid(x: float) -> float:
    """Logistic function 1 / (1 + e^-x), without overflow on either side."""
    if x >= 0.0:
        return 1.0 / (1.0 + math.exp(-x))
    return math.exp(x) / (1.0 + math.exp(x))


def softplus(x: float) -> float:
    """log(1 + e^x), without overflow."""
    return max(float(x), 0.0) + math.log1p(math.exp(-abs(x)))


def softmax(scores: Sequence[float] | Array) -> Array:
    """e^score_i / Σ_j e^score_j, shifted by the largest score."""
    largest = max(float(score) for score in scores)
    powers = [math.exp(float(score) - largest) for score in scores]
    total = math.fsum(powers)
    return np.array([power / total for power in powers], dtype=np.float64)


def cosine(a: Array, b: Array) -> float:
    """Eq. 3: a·b / (√(Σa²+EPS) · √(Σb²+EPS))."""
    if len(a) != len(b):
        raise ValueError("cosine of two vectors of different length")
    dot = 0.0
    square_a = 0.0
    square_b = 0.0
    for i in range(len(a)):
        dot += float(a[i]) * float(b[i])
        square_a += float(a[i]) * float(a[i])
        square_b += float(b[i]) * float(b[i])
    return dot / (math.sqrt(square_a + EPS) * math.sqrt(square_b + EPS))


def key_value_weights(query: Array, strength: float, keys: Array, tanh: bool = False, scale: float = 1.0) -> Array:
    """Eq. 4: softmax over the programs of scale · strength · cos(query, key_i)."""
    if tanh:
        query = np.array([math.tanh(float(x)) for x in query], dtype=np.float64)
        keys = np.array([[math.tanh(float(x)) for x in key] for key in keys], dtype=np.float64)
    scores = []
    for i in range(len(keys)):
        scores.append(scale * strength * cosine(query, keys[i]))
    return softmax(scores)


def direct_weights(query: Array, strength: float) -> Array:
    """Direct attention (DA) in place of Eq. 4: softmax(strength · query)."""
    return softmax([strength * float(x) for x in query])


def uniform_weights(programs: int) -> Array:
    """Uniform programs (UP) in place of Eq. 4: 1 / P each."""
    return np.array([1.0 / programs for _ in range(programs)], dtype=np.float64)


def gumbel_soft_weights(logits: Array, noise: Array, temperature: float) -> Array:
    """Gumbel-softmax in place of Eq. 4, relaxed: softmax((logits + noise) / temperature)."""
    return softmax([(float(logits[i]) + float(noise[i])) / temperature for i in range(len(logits))])


def gumbel_probability_weights(logits: Array, noise: Array, temperature: float) -> Array:
    """The published code's Gumbel-softmax: softmax((softmax(logits) + noise) / temperature)."""
    weights = softmax([float(logit) for logit in logits])
    return softmax([(float(weights[i]) + float(noise[i])) / temperature for i in range(len(weights))])


def gumbel_hard_weights(logits: Array, noise: Array, temperature: float) -> Array:
    """Gumbel-softmax in place of Eq. 4, hard: one-hot of argmax(logits + noise); no temperature > 0 changes it."""
    if temperature <= 0.0:
        raise ValueError("the temperature must be positive")
    best = 0
    for i in range(len(logits)):
        if float(logits[i]) + float(noise[i]) > float(logits[best]) + float(noise[best]):
            best = i
    weights = np.zeros(len(logits), dtype=np.float64)
    weights[best] = 1.0
    return weights


def working_program(weights: Array, values: Array) -> Array:
    """Eq. 5: p = Σ_i w(i) · v_i, of values (P, n+1, L) to (n+1, L)."""
    programs, rows, columns = values.shape
    program = np.zeros((rows, columns), dtype=np.float64)
    for i in range(programs):
        for row in range(rows):
            for column in range(columns):
                program[row, column] += weights[i] * values[i, row, column]
    return program


def stored_program_linear(
    c: Array,
    query_weight: Array,
    query_bias: Array | None,
    strength_weight: Array,
    strength_bias: float | Array | None,
    keys: Array,
    values: Array,
    tanh: bool = False,
    scale: float = 1.0,
) -> tuple[Array, Array]:
    """Eqs. 2-5: ξ = [c, 1] · W^c with W^c drawn from the programs by a query made of c; returns (ξ, weights)."""
    n = len(c)
    query = np.zeros(len(query_weight), dtype=np.float64)
    for k in range(len(query_weight)):
        if query_bias is not None:
            query[k] = query_bias[k]
        for i in range(n):
            query[k] += query_weight[k, i] * c[i]

    raw_strength = 0.0
    if strength_bias is not None:
        raw_strength = float(np.asarray(strength_bias, dtype=np.float64).reshape(1)[0])
    for i in range(n):
        raw_strength += float(strength_weight[i]) * float(c[i])

    weights = key_value_weights(query, softplus(raw_strength), keys, tanh=tanh, scale=scale)
    program = working_program(weights, values)
    if len(program) != n + 1:
        raise ValueError("a program has one row per entry of c and a last row for the bias")

    output = np.zeros(program.shape[1], dtype=np.float64)
    for column in range(program.shape[1]):
        for i in range(n):
            output[column] += c[i] * program[i, column]
        output[column] += program[n, column]
    return output, weights


def key_similarity_loss(keys: Array, mean: bool = False) -> float:
    """Eq. 6: Σ_{i<j} cos(key_i, key_j); with mean, divided by the number of pairs (0 if there are none)."""
    total = 0.0
    pairs = 0
    for i in range(len(keys)):
        for j in range(i + 1, len(keys)):
            total += cosine(keys[i], keys[j])
            pairs += 1
    if mean and pairs > 0:
        return total / pairs
    return total


def orthogonality_loss(keys: Array) -> float:
    """Appendix "Others", l_p2: Frobenius norm of K Kᵀ − I."""
    total = 0.0
    for i in range(len(keys)):
        for j in range(len(keys)):
            entry = 0.0
            for k in range(keys.shape[1]):
                entry += float(keys[i, k]) * float(keys[j, k])
            if i == j:
                entry -= 1.0
            total += entry * entry
    return math.sqrt(total)


def annealing(step: int, initial: float = 0.1, decay: float = 0.9) -> float:
    """Eq. 7, η_t: initial · decay^step, so that step 0 gives the initial factor."""
    factor = initial
    for _ in range(step):
        factor *= decay
    return factor
