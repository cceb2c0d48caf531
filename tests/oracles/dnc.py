"""Scalar-loop reference of the DNC memory, the core of the question-answering models."""

from typing import Any

import numpy as np

from .programs import Array, cosine, sigmoid, softmax, softplus

ALLOCATION_EPS = 1e-6
STEPS_OF_USAGE = 1024


def content_address(memory: Array, key: Array, strength: float) -> Array:
    """DNC content weighting: softmax over the slots of strength · cos(key, M(i))."""
    return softmax([strength * cosine(key, memory[i]) for i in range(len(memory))])


def masked_content_address(memory: Array, key: Array, strength: float, mask: Array) -> Array:
    """Content weighting of which a mask says what counts: softmax of strength · cos(key ⊙ mask, M(i) ⊙ mask)."""
    seen = np.zeros_like(memory, dtype=np.float64)
    masked_key = np.zeros(len(key), dtype=np.float64)
    for m in range(len(key)):
        masked_key[m] = key[m] * mask[m]
        for n in range(len(memory)):
            seen[n, m] = memory[n, m] * mask[m]
    return content_address(seen, masked_key, strength)


def activate_read(raw: Array, width: int, read_heads: int, links: bool, masked: bool = False) -> dict[str, Any]:
    """DNC read interface: raw [R keys, R strengths, R free gates, with links R × (backward, content, forward), and R
    masks if content addressing is masked]."""
    first_mask = read_heads * (width + 2 + (3 if links else 0))
    expected = first_mask + (read_heads * width if masked else 0)
    if len(raw) != expected:
        raise ValueError(f"the read interface has {len(raw)} values instead of {expected}")
    keys = np.zeros((read_heads, width), dtype=np.float64)
    strengths = np.zeros(read_heads, dtype=np.float64)
    free_gates = np.zeros(read_heads, dtype=np.float64)
    modes = np.zeros((read_heads, 3), dtype=np.float64)
    masks = np.ones((read_heads, width), dtype=np.float64)
    for head in range(read_heads):
        for m in range(width):
            keys[head, m] = raw[head * width + m]
            if masked:
                masks[head, m] = sigmoid(raw[first_mask + head * width + m])
        strengths[head] = 1.0 + softplus(raw[read_heads * width + head])
        free_gates[head] = sigmoid(raw[read_heads * width + read_heads + head])
        if links:
            first = read_heads * (width + 2) + 3 * head
            modes[head] = softmax([raw[first], raw[first + 1], raw[first + 2]])
    return {"keys": keys, "strengths": strengths, "free_gates": free_gates, "modes": modes, "masks": masks}


def activate_write(raw: Array, width: int, masked: bool = False) -> dict[str, Any]:
    """DNC write interface: raw [key M, strength, erase M, add M, allocation gate, write gate, perhaps a mask M]."""
    if len(raw) != 3 * width + 3 + (width if masked else 0):
        raise ValueError(f"the write interface has {len(raw)} values instead of {3 * width + 3}")
    return {
        "key": np.array([float(raw[m]) for m in range(width)], dtype=np.float64),
        "strength": 1.0 + softplus(raw[width]),
        "erase": np.array([sigmoid(raw[width + 1 + m]) for m in range(width)], dtype=np.float64),
        "add": np.array([float(raw[2 * width + 1 + m]) for m in range(width)], dtype=np.float64),
        "allocation_gate": sigmoid(raw[3 * width + 1]),
        "write_gate": sigmoid(raw[3 * width + 2]),
        "mask": np.array([sigmoid(raw[3 * width + 3 + m]) if masked else 1.0 for m in range(width)], dtype=np.float64),
    }


def retention(read_addresses: Array, free_gates: Array, n: int) -> float:
    """ψ = Π_i (1 − f_i·w_r,i) of slot n, all addresses of step t−1."""
    kept = 1.0
    for head in range(len(free_gates)):
        kept *= 1.0 - free_gates[head] * read_addresses[head][n]
    return kept


def updated_usage(usage: Array, write_address: Array, read_addresses: Array, free_gates: Array) -> Array:
    """DNC usage: u_t = (u + w_w − u·w_w) · ψ with the retention ψ."""
    result = np.zeros(len(usage), dtype=np.float64)
    for n in range(len(usage)):
        kept = retention(read_addresses, free_gates, n)
        result[n] = (usage[n] + write_address[n] - usage[n] * write_address[n]) * kept
    return result


def allocation(usage: Array) -> Array:
    """DNC allocation: a[φ_j] = (1 − u'[φ_j]) · Π_{i<j} u'[φ_i], φ from free to used, u' = ε + (1−ε)·u.

    Slots of which usage rounds to the same 1024th are equally used, and go by position.
    """
    slots = len(usage)
    padded = [ALLOCATION_EPS + (1.0 - ALLOCATION_EPS) * float(usage[n]) for n in range(slots)]
    free_list = sorted(range(slots), key=lambda n: (round(STEPS_OF_USAGE * float(usage[n])), n))
    result = np.zeros(slots, dtype=np.float64)
    for j in range(slots):
        product = 1.0
        for i in range(j):
            product *= padded[free_list[i]]
        result[free_list[j]] = (1.0 - padded[free_list[j]]) * product
    return result


def updated_links(links: Array, write_address: Array, precedence: Array) -> Array:
    """DNC temporal links: L[i,j] = (1 − w_w[i] − w_w[j])·L[i,j] + w_w[i]·p(t−1)[j], and L[i,i] = 0."""
    slots = len(write_address)
    result = np.zeros((slots, slots), dtype=np.float64)
    for i in range(slots):
        for j in range(slots):
            if i != j:
                kept = (1.0 - write_address[i] - write_address[j]) * links[i, j]
                result[i, j] = kept + write_address[i] * precedence[j]
    return result


def updated_precedence(precedence: Array, write_address: Array) -> Array:
    """DNC precedence: p_t = (1 − Σ w_w)·p(t−1) + w_w."""
    slots = len(write_address)
    total = 0.0
    for n in range(slots):
        total += float(write_address[n])
    result = np.zeros(slots, dtype=np.float64)
    for n in range(slots):
        result[n] = (1.0 - total) * precedence[n] + write_address[n]
    return result


def step(
    read_raw: Array,
    write_raw: Array,
    state: dict[str, Any],
    read_heads: int,
    links: bool = False,
    masked: bool = False,
    erase_freed: bool = False,
) -> tuple[list[Array], dict[str, Any]]:
    """DNC step: usage and allocation, freed slots erased if asked for, one write, temporal links if asked for, then the
    reads of the new memory."""
    old_memory = np.array(state["memory"], dtype=np.float64)
    slots, width = old_memory.shape
    old_read_addresses = state["read_addresses"]
    reading = activate_read(read_raw, width, read_heads, links, masked)
    writing = activate_write(write_raw, width, masked)

    usage = updated_usage(state["usage"], state["write_address"], old_read_addresses, reading["free_gates"])
    free = allocation(usage)

    matching = masked_content_address(old_memory, writing["key"], writing["strength"], writing["mask"])
    write_address = np.zeros(slots, dtype=np.float64)
    for n in range(slots):
        mixed = writing["allocation_gate"] * free[n] + (1.0 - writing["allocation_gate"]) * matching[n]
        write_address[n] = writing["write_gate"] * mixed

    memory = np.zeros((slots, width), dtype=np.float64)
    for n in range(slots):
        for m in range(width):
            left = retention(old_read_addresses, reading["free_gates"], n) if erase_freed else 1.0
            kept = left * old_memory[n, m] * (1.0 - write_address[n] * writing["erase"][m])
            memory[n, m] = kept + write_address[n] * writing["add"][m]

    new_state: dict[str, Any] = {"memory": memory, "usage": usage, "write_address": write_address}
    if links:
        new_state["links"] = updated_links(state["links"], write_address, state["precedence"])
        new_state["precedence"] = updated_precedence(state["precedence"], write_address)

    reads: list[Array] = []
    read_addresses = np.zeros((read_heads, slots), dtype=np.float64)
    for head in range(read_heads):
        content = masked_content_address(
            memory, reading["keys"][head], reading["strengths"][head], reading["masks"][head]
        )
        for n in range(slots):
            if not links:
                read_addresses[head, n] = content[n]
                continue
            forward = 0.0
            backward = 0.0
            for other in range(slots):
                forward += new_state["links"][n, other] * old_read_addresses[head][other]
                backward += new_state["links"][other, n] * old_read_addresses[head][other]
            mode = reading["modes"][head]
            read_addresses[head, n] = mode[0] * backward + mode[1] * content[n] + mode[2] * forward
        result = np.zeros(width, dtype=np.float64)
        for n in range(slots):
            for m in range(width):
                result[m] += read_addresses[head, n] * memory[n, m]
        reads.append(result)
    new_state["read_addresses"] = read_addresses
    return reads, new_state
