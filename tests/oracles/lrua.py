"""Scalar-loop reference of least recently used access (LRUA), the memory of the few-shot models."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .programs import Array, cosine, sigmoid, softmax

STEPS_OF_USAGE = 1024


def content_address(memory: Array, key: Array, strength: float) -> Array:
    """LRUA w_r: softmax over the slots of strength · cos(key, M(i)); the paper's has no strength, that is 1."""
    return softmax([strength * cosine(key, memory[i]) for i in range(len(memory))])


def read(memory: Array, weights: Array) -> Array:
    """LRUA read: r = Σ_i w_r(i) M(i)."""
    slots, width = memory.shape
    result = np.zeros(width, dtype=np.float64)
    for i in range(slots):
        for m in range(width):
            result[m] += weights[i] * memory[i, m]
    return result


def least_used_slots(usage: Array, count: int) -> list[int]:
    """LRUA w_lu: the slots of smallest usage, smallest first, the lower index first among equals.

    Equal are those of which usage rounds to the same 1024th.
    """
    steps = [round(STEPS_OF_USAGE * float(used)) for used in usage]
    chosen: list[int] = []
    for _ in range(count):
        best = -1
        for i in range(len(usage)):
            if i not in chosen and (best < 0 or steps[i] < steps[best]):
                best = i
        chosen.append(best)
    return chosen


def step(
    read_raws: Sequence[Array],
    write_raws: Sequence[Array],
    state: dict[str, Any],
    decay: float = 0.99,
    order: str = "write-first",
    least_used: int | None = None,
    strength: float = 1.0,
) -> tuple[list[Array], list[Array], dict[str, Any]]:
    """LRUA step: w_w = σ(α)·w_r(t−1) + (1−σ(α))·w_lu(t−1), M += w_w k, w_u = γ·w_u + Σw_r + Σw_w."""
    if order not in ("write-first", "read-first"):
        raise ValueError(f"unknown order {order!r}")
    if len(read_raws) == 0 or len(write_raws) == 0:
        raise ValueError("a step needs a read head and a write head")
    old_memory = np.array(state["memory"], dtype=np.float64)
    old_usage = state["usage"]
    old_read_addresses = state["read_addresses"]
    slots, width = old_memory.shape
    # One least-used slot per read head, unless told otherwise.
    count = len(read_raws) if least_used is None else least_used
    if not 1 <= count <= slots:
        raise ValueError("the number of least-used slots goes from 1 to the number of slots")
    unused = least_used_slots(old_usage, count)

    write_addresses: list[Array] = []
    for raw in write_raws:
        gate = sigmoid(raw[width])
        weights = np.zeros(slots, dtype=np.float64)
        for i in range(slots):
            last_read = 0.0
            for old in old_read_addresses:
                last_read += float(old[i]) / len(old_read_addresses)
            is_least_used = 1.0 if i in unused else 0.0
            weights[i] = gate * last_read + (1.0 - gate) * is_least_used
        write_addresses.append(weights)

    new_memory = old_memory.copy()
    for m in range(width):
        new_memory[unused[0], m] = 0.0
    for raw, weights in zip(write_raws, write_addresses, strict=True):
        for i in range(slots):
            for m in range(width):
                new_memory[i, m] += weights[i] * raw[m]

    seen = new_memory if order == "write-first" else old_memory
    reads: list[Array] = []
    read_addresses: list[Array] = []
    for key in read_raws:
        weights = content_address(seen, key, strength)
        read_addresses.append(weights)
        reads.append(read(seen, weights))

    usage = np.zeros(slots, dtype=np.float64)
    for i in range(slots):
        usage[i] = decay * old_usage[i]
        for weights in read_addresses:
            usage[i] += weights[i]
        for weights in write_addresses:
            usage[i] += weights[i]

    return reads, write_addresses, {"memory": new_memory, "usage": usage, "read_addresses": read_addresses}
