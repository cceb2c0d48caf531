"""Scalar-loop reference of the NTM memory (appendix "Example of memory operation function in NTM")."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .programs import TINY, Array, cosine, sigmoid, softmax, softplus


def address(
    memory: Array, previous: Array, key: Array, strength: float, gate: float, shifts: Array, gamma: float
) -> Array:
    """NTM addressing of activated values: content, interpolation, circular shift, sharpening."""
    slots = len(memory)

    content = softmax([strength * cosine(key, memory[i]) for i in range(slots)])

    interpolated = np.zeros(slots, dtype=np.float64)
    for i in range(slots):
        interpolated[i] = gate * content[i] + (1.0 - gate) * previous[i]

    if len(shifts) % 2 != 1:
        raise ValueError("shifts go from -s to s: their number is odd")
    reach = len(shifts) // 2
    shifted = np.zeros(slots, dtype=np.float64)
    for i in range(slots):
        for j in range(len(shifts)):
            offset = j - reach
            shifted[(i + offset) % slots] += interpolated[i] * shifts[j]

    return softmax([gamma * math.log(shifted[i] + TINY) for i in range(slots)])


def activate_read(raw: Array, width: int) -> dict[str, Any]:
    """NTM read head: raw [key M, strength, gate, shifts 2s+1, gamma] of memory width M, made into addressing values."""
    number_of_shifts = len(raw) - width - 3
    if number_of_shifts < 1 or number_of_shifts % 2 != 1:
        raise ValueError("a read head's raw values are M + 3 and an odd number of shifts")
    after_shifts = width + 2 + number_of_shifts
    return {
        "key": np.array([float(raw[i]) for i in range(width)], dtype=np.float64),
        "strength": softplus(raw[width]),
        "gate": sigmoid(raw[width + 1]),
        "shifts": softmax([float(raw[i]) for i in range(width + 2, after_shifts)]),
        "gamma": 1.0 + softplus(raw[after_shifts]),
    }


def activate_write(raw: Array, width: int) -> dict[str, Any]:
    """NTM write head: the raw values of a read head, then [erase M, add M]."""
    head = len(raw) - 2 * width
    activated = activate_read(raw[:head], width)
    activated["erase"] = np.array([sigmoid(raw[head + i]) for i in range(width)], dtype=np.float64)
    activated["add"] = np.array([float(raw[head + width + i]) for i in range(width)], dtype=np.float64)
    return activated


def read(memory: Array, weights: Array) -> Array:
    """NTM read: r = Σ_i w(i) M(i)."""
    slots, width = memory.shape
    result = np.zeros(width, dtype=np.float64)
    for i in range(slots):
        for m in range(width):
            result[m] += weights[i] * memory[i, m]
    return result


def write(memory: Array, weights: Array, erase: Array, add: Array) -> Array:
    """NTM write: M(i) = M(i)·(1 − w(i)·e) + w(i)·v."""
    slots, width = memory.shape
    result = np.zeros((slots, width), dtype=np.float64)
    for i in range(slots):
        for m in range(width):
            result[i, m] = memory[i, m] * (1.0 - weights[i] * erase[m]) + weights[i] * add[m]
    return result


def step(interfaces: Sequence[tuple[str, Array]], state: dict[str, Any]) -> tuple[list[Array], dict[str, Any]]:
    """Algorithm 1, lines 4-9: the heads one after the other, each on the memory as the one before left it."""
    memory = np.array(state["memory"], dtype=np.float64)
    width = memory.shape[1]
    reads: list[Array] = []
    read_addresses: list[Array] = []
    write_addresses: list[Array] = []
    for kind, raw in interfaces:
        if kind == "read":
            head = activate_read(raw, width)
            previous = state["read_addresses"][len(read_addresses)]
        elif kind == "write":
            head = activate_write(raw, width)
            previous = state["write_addresses"][len(write_addresses)]
        else:
            raise ValueError(f"a head reads or writes, it does not {kind!r}")
        weights = address(memory, previous, head["key"], head["strength"], head["gate"], head["shifts"], head["gamma"])
        if kind == "read":
            read_addresses.append(weights)
            reads.append(read(memory, weights))
        else:
            write_addresses.append(weights)
            memory = write(memory, weights, head["erase"], head["add"])
    return reads, {"memory": memory, "read_addresses": read_addresses, "write_addresses": write_addresses}
