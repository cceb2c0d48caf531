"""Scalar-loop reference of a complete machine: Algorithm 1 with the weights of its whole controller from programs.

Working weights are built at every step, Σ_i w(i) v_i, and handed to the oracles of the plain networks.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from . import controllers, ntm
from .programs import Array, key_value_weights, softplus, stored_program_linear

Arrays = Mapping[str, Array]


def part(arrays: Arrays, prefix: str) -> dict[str, Array]:
    """The arrays below a name."""
    return {name[len(prefix) + 1 :]: array for name, array in arrays.items() if name.startswith(f"{prefix}.")}


def mixed(weights: Array, programs: Array) -> Array:
    """Σ_i w(i) v_i."""
    total = np.zeros(programs.shape[1:], dtype=np.float64)
    for i in range(len(programs)):
        total = total + weights[i] * programs[i]
    return total


def state_weights(network: Arrays, seen: Array) -> Array:
    """w^s of what the state network sees, [x_t, r_{t−1}, h_{t−1}]."""
    query = controllers.affine(network["query.weight"], seen, network["query.bias"])
    strength = controllers.affine(network["strength.weight"], seen, network["strength.bias"])[0]
    return key_value_weights(query, softplus(strength), network["memory.key"])


def advance(kind: str, w: Arrays, x: Array, state: tuple[Array, ...]) -> tuple[Array, tuple[Array, ...]]:
    """One step of a plain state network: c_t, and its state."""
    if kind == "feed-forward":
        return controllers.feed_forward(x, w["weight_ih"], w["bias_ih"]), ()
    if kind == "lstm":
        state = controllers.lstm(x, *state, w["weight_ih"], w["weight_hh"], w["bias_ih"] + w["bias_hh"])
        return state[0], state
    hidden = getattr(controllers, kind)(x, *state, w["weight_ih"], w["weight_hh"], w["bias_ih"], w["bias_hh"])
    return hidden, (hidden,)


def linear(network: Arrays, c: Array) -> tuple[Array, Array]:
    """A stored-program layer: its output, and the weights of its programs."""
    return stored_program_linear(
        c,
        network["query.weight"],
        network["query.bias"],
        network["strength.weight"][0],
        network["strength.bias"],
        network["memory.key"],
        np.concatenate([network["memory.weight"], network["memory.bias"][:, None]], axis=1),
    )


def run(
    kind: str, parts: Sequence[str], arrays: Arrays, x: Array, start: Any, heads: Sequence[str] = ("read", "write")
) -> dict[str, Array]:
    """One sequence x (T, I) through a machine over an NTM: what it did at every step."""
    controller = part(arrays, "controller")
    state = tuple(leaf[0].detach().numpy() for leaf in start.controller)
    memory = {name: leaf[0].detach().numpy() for name, leaf in start.memory._asdict().items()}
    read = start.read[0].detach().numpy()
    happened: dict[str, list[Array]] = {"out": [], "controller": [], "reads": [], "state": [], "output": []}
    for t in range(len(x)):
        inputs, w = np.concatenate([x[t], read]), controller
        if "state" in parts:
            chosen = state_weights(controller, np.concatenate([inputs, *state[:1]]))
            stacks = {n: array for n, array in part(controller, "memory.network").items() if "initial" not in n}
            w = {name: mixed(chosen, stack) for name, stack in stacks.items()}
            happened["state"].append(chosen)
        c, state = advance(kind, w, inputs, state)
        interfaces = [linear(part(arrays, f"interfaces.{n}"), c)[0] for n in range(len(heads))]
        reads, memory = ntm.step(list(zip(heads, interfaces, strict=True)), memory)
        read = np.concatenate(reads)
        seen = np.concatenate([c, read])
        if "output" in parts:
            y, chosen = linear(part(arrays, "output"), seen)
            happened["output"].append(chosen)
        else:
            y = controllers.affine(arrays["output.weight"], seen, arrays["output.bias"])
        for name, value in (("out", y), ("controller", c), ("reads", read)):
            happened[name].append(value)
    return {name: np.array(steps) for name, steps in happened.items()}
