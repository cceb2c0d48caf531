"""The same machine in JAX: one `lax.scan` over time, a whole training iteration under one `jit`.

Written for speed: what does not depend on the previous step is outside the loop (the input projection, the output
layer), all programs of all heads are one matrix product, programs are mixed after it, and heads that see the same tape
are processed together. Parameters are those of the torch machine, by name.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from nsm.bench.equality import Absent, Answer
from nsm.bench.work import OPTIMISER, Work
from nsm.machine import Machine, MachineConfig
from nsm.memories import DNC, LRUA, NTM
from nsm.memories.dnc import USAGE_EPSILON
from nsm.memories.memory import RESOLUTION, Head
from nsm.memories.ntm import TINY
from nsm.operands import NORM_EPSILON
from nsm.similarity import EPSILON

Weights = dict[str, Any]
"""Arrays by the parameter names of the torch machine."""


class Jax:
    """The peer: compiled once for a batch, with weights and optimiser buffers donated."""

    def __init__(self, work: Work, threads: int) -> None:
        self.device = jax.devices("cpu")[0]
        machine = work.machine("reference")
        model = _Model(machine)
        with jax.default_device(self.device):
            self.weights = {name: jnp.array(weight.detach().numpy()) for name, weight in machine.named_parameters()}
            self.square, self.velocity = (jax.tree.map(jnp.zeros_like, self.weights) for _ in range(2))
            batch = work.batch
            lengths = None if work.lengths is None else jnp.array(batch.lengths, jnp.int32)
            where, right = (jnp.array(tensor.numpy()) for tensor in work.answers)
            inputs = jnp.array(batch.inputs)

            def loss(weights: Weights) -> Any:
                out = model(weights, inputs, lengths)
                given = out.reshape(-1, out.shape[-1])[where]
                if work.shape.stories:
                    return -jnp.take_along_axis(jax.nn.log_softmax(given), right[:, None], 1).mean(), out
                return (jnp.maximum(given, 0) - given * right + jnp.log1p(jnp.exp(-jnp.abs(given)))).mean(), out

            def iterate(weights: Weights, square: Weights, velocity: Weights) -> Any:
                (_, _), gradient = jax.value_and_grad(loss, has_aux=True)(weights)
                return _rmsprop(weights, square, velocity, gradient)

            # XLA has a pool with one thread per core, which it may use or not.
            options = {"xla_cpu_multi_thread_eigen": threads > 1}
            self._gradient = jax.jit(jax.value_and_grad(loss, has_aux=True), compiler_options=options)
            self._iterate = jax.jit(iterate, donate_argnums=(0, 1, 2), compiler_options=options)

    def answer(self) -> Answer:
        with jax.default_device(self.device):
            (_, out), gradient = self._gradient(self.weights)
        return Answer(np.asarray(out), {name: np.asarray(value) for name, value in gradient.items()})

    def iterate(self) -> None:
        with jax.default_device(self.device):
            state = self._iterate(self.weights, self.square, self.velocity)
            self.weights, self.square, self.velocity = jax.block_until_ready(state)


def _rmsprop(weights: Weights, square: Weights, velocity: Weights, gradient: Weights) -> Any:
    c = OPTIMISER
    square = jax.tree.map(lambda v, g: c.alpha * v + (1 - c.alpha) * g * g, square, gradient)
    velocity = jax.tree.map(lambda b, g, v: c.momentum * b + g / (jnp.sqrt(v) + c.epsilon), velocity, gradient, square)
    return jax.tree.map(lambda w, b: w - c.learning_rate * b, weights, velocity), square, velocity


class _Model:
    """Algorithm 1 as a function of the weights."""

    def __init__(self, machine: Machine) -> None:
        config = machine.config
        reason = _uncovered(config)
        if reason is not None:
            raise Absent(f"the JAX machine has no {reason}")
        self.config, self.heads = config, machine.memory.heads
        self.initial_read = machine.initial_read.numpy()
        tape = machine.memory.initial_memory.numpy()  # type: ignore[operator]
        memories: dict[type, Any] = {NTM: _NTM, LRUA: _LRUA, DNC: _DNC}
        self.memory = memories[type(config.memory)](config.memory, tape)

    def __call__(self, w: Weights, x: Any, lengths: Any) -> Any:
        """x (T, B, I) → out (T, B, O); outputs are 0 after the end of a sequence."""
        steps, batch, inputs = x.shape
        n = self.config.controller.size
        into = w["controller.weight_ih"]
        bias = w["controller.bias_ih"]
        if "controller.bias_hh" in w:
            bias = bias + w["controller.bias_hh"]
        projected = x.reshape(-1, inputs) @ into[:, :inputs].T + bias
        recurrent = jnp.concatenate([into[:, inputs:], w["controller.weight_hh"]], 1).T
        interface, interface_bias = self._interface_weights(w)

        def step(state: Any, given: Any) -> Any:
            hidden, cell, read, memory = state
            projection, running = given
            gates = projection + jnp.concatenate([read, hidden], -1) @ recurrent
            h, c = self._lstm(w, gates.reshape(batch, 4, n), cell)
            xi = self._interfaces(w, h @ interface + interface_bias)
            r, m = self.memory.step(xi, memory)
            after = (h, c, r, m)
            if running is not None:
                after = jax.tree.map(lambda a, b: jnp.where(_along(running, a), a, b), after, state)
            return after, jnp.concatenate([h, r], -1)

        start = tuple(
            jnp.broadcast_to(w.get(f"controller.initial.{name}", jnp.zeros(n)), (batch, n))
            for name in ("hidden", "cell")
        )
        read = jnp.broadcast_to(self.initial_read, (batch, len(self.initial_read)))
        running = None if lengths is None else jnp.arange(steps)[:, None] < lengths
        given = projected.reshape(steps, batch, 4 * n), running
        # Most of what the backward pass needs, above all tapes, is faster to recompute than to store and load.
        policy = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
        _, seen = lax.scan(jax.checkpoint(step, policy=policy), (*start, read, self.memory.start(batch)), given)
        out = seen @ w["output.weight"].T + w["output.bias"]
        return out if running is None else jnp.where(running[..., None], out, 0)

    def _lstm(self, w: Weights, gates: Any, cell: Any) -> tuple[Any, Any]:
        """gates (B, 4, n) → hidden, cell."""
        normed = self.config.controller.layer_norm
        if normed:
            scales, shifts = (
                jnp.stack([w[f"controller.gate_norms.{i}.{part}"] for i in range(4)]) for part in ("weight", "bias")
            )
            gates = _layer_norm(gates, scales, shifts)
        i, f, g, o = (gates[:, k] for k in range(4))
        cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
        shown = cell
        if normed:
            shown = _layer_norm(cell, w["controller.cell_norm.weight"], w["controller.cell_norm.bias"])
        return jax.nn.sigmoid(o) * jnp.tanh(shown), cell

    def _interface_weights(self, w: Weights) -> tuple[Any, Any]:
        """One matrix for all heads: every program of every head, then all queries, then all strengths."""
        columns, biases = [], []
        for h in range(len(self.heads)):
            if self.config.programs is None:
                columns.append(w[f"interfaces.{h}.weight"].T)
                biases.append(w[f"interfaces.{h}.bias"])
                continue
            programs = w[f"interfaces.{h}.memory.weight"]
            columns.append(programs.swapaxes(0, 1).reshape(programs.shape[1], -1))
            biases.append(w[f"interfaces.{h}.memory.bias"].reshape(-1))
        if self.config.programs is not None:
            for part in ("query", "strength"):
                for h in range(len(self.heads)):
                    weight = w[f"interfaces.{h}.{part}.weight"]
                    columns.append(weight.T)
                    biases.append(w.get(f"interfaces.{h}.{part}.bias", jnp.zeros(len(weight))))
        return jnp.concatenate(columns, 1), jnp.concatenate(biases)

    def _interfaces(self, w: Weights, product: Any) -> Any:
        """ξ of every head (B, L) from the one product."""
        programs, count, batch = self.config.programs, len(self.heads), len(product)
        ends = np.cumsum([head.size * (programs.count if programs else 1) for head in self.heads]).tolist()
        *parts, asked = jnp.split(product, ends, 1)
        if programs is not None:
            query, strength = asked[:, : count * programs.keys], asked[:, count * programs.keys :]
            query = query.reshape(batch, count, 1, programs.keys)
            keys = jnp.stack([w[f"interfaces.{h}.memory.key"] for h in range(count)])
            similarity = (query * keys).sum(-1) / (_norm(query) * _norm(keys))
            mix = jax.nn.softmax(programs.strength_scale * jax.nn.softplus(strength)[..., None] * similarity)
            parts = [
                (mix[:, h, :, None] * part.reshape(batch, programs.count, -1)).sum(1) for h, part in enumerate(parts)
            ]
        if self.config.interface.norm:
            parts = [_layer_norm(xi, w[f"norms.{h}.weight"], w[f"norms.{h}.bias"]) for h, xi in enumerate(parts)]
        return parts


def _uncovered(config: MachineConfig) -> str | None:
    """What this peer lacks for a machine: it covers only the shapes that are measured."""
    memory, programs = config.memory, config.programs
    if config.controller.kind != "lstm":
        return f"{config.controller.kind} controller"
    if type(memory) not in (NTM, LRUA, DNC):
        return f"{type(memory).__name__}"
    if isinstance(memory, DNC) and memory.links:
        return "temporal links"
    if programs is not None and (programs.attention != "key-value" or programs.bounded_keys):
        return f"{programs.attention} attention, or none with bounded keys"
    return None


class _NTM:
    """State: tape (B, N, M), addresses of the heads in their order (B, N) each."""

    def __init__(self, config: NTM, tape: Any) -> None:
        self.config, self.tape = config, tape
        # Heads that see the same tape are grouped: all up to the next one that writes.
        self.groups: list[list[tuple[int, Head]]] = [[]]
        for index, head in enumerate(config.heads):
            self.groups[-1].append((index, head))
            if head.kind == "write":
                self.groups.append([])

    def start(self, batch: int) -> Any:
        n = len(self.tape)
        address = {"one-hot": jnp.zeros(n).at[0].set(1), "zeros": jnp.zeros(n), "uniform": jnp.full(n, 1 / n)}
        first = jnp.broadcast_to(address[self.config.initial_address], (batch, len(self.config.heads), n))
        return jnp.broadcast_to(self.tape, (batch, *self.tape.shape)), first

    def step(self, xi: list[Any], state: Any) -> tuple[Any, Any]:
        tape, previous = state
        size, width, moved, reads = self.config.address_size, self.config.width, [], []
        for group in filter(None, self.groups):
            first, last = group[0][0], group[-1][0] + 1
            interface = jnp.stack([xi[index][:, :size] for index, _ in group], 1)
            w = self._address(interface, tape, previous[:, first:last])
            moved.append(w)
            seeing = [k for k, (_, head) in enumerate(group) if head.kind == "read"]
            if seeing:
                reads.append((w[:, seeing[0] : seeing[-1] + 1] @ tape).reshape(len(w), -1))
            if group[-1][1].kind == "write":
                erase, add = jax.nn.sigmoid(xi[last - 1][:, size : size + width]), xi[last - 1][:, size + width :]
                tape = _written(tape, w[:, -1], erase, add)
        return jnp.concatenate(reads, -1), (tape, jnp.concatenate(moved, 1))

    def _address(self, xi: Any, tape: Any, previous: Any) -> Any:
        """xi (B, H, size), tape (B, N, M), previous (B, H, N) → (B, H, N)."""
        width, reach = self.config.width, self.config.shift_range
        key, strength, gate = xi[..., :width], xi[..., width, None], xi[..., width + 1, None]
        shifts, gamma = jax.nn.softmax(xi[..., width + 2 : -1]), 1 + jax.nn.softplus(xi[..., -1:])
        g = jax.nn.sigmoid(gate)
        w = g * _content(key, tape, jax.nn.softplus(strength)) + (1 - g) * previous
        w = sum(jnp.roll(w, j - reach, -1) * shifts[..., j, None] for j in range(self.config.shifts))
        return jax.nn.softmax(gamma * jnp.log(w + TINY))


class _LRUA:
    """State: tape (B, N, M), usage (B, N), read addresses (B, R, N)."""

    def __init__(self, config: LRUA, tape: Any) -> None:
        self.config, self.tape = config, tape
        self.least_used = config.read_heads if config.least_used is None else config.least_used

    def start(self, batch: int) -> Any:
        n = len(self.tape)
        tape = jnp.broadcast_to(self.tape, (batch, *self.tape.shape))
        return tape, jnp.zeros((batch, n)), jnp.zeros((batch, self.config.read_heads, n))

    def step(self, xi: list[Any], state: Any) -> tuple[Any, Any]:
        tape, usage, w_read = state
        heads, width = self.config.read_heads, self.config.width
        keys, writes = jnp.stack(xi[:heads], 1), jnp.stack(xi[heads:], 1)
        add, gate = writes[..., :width], jax.nn.sigmoid(writes[..., width:])
        # Of equal usages the first are taken.
        _, order = lax.top_k(-jnp.round(lax.stop_gradient(usage) / RESOLUTION), self.least_used)
        least = jax.nn.one_hot(order, len(self.tape))
        w_write = gate * w_read.mean(1, keepdims=True) + (1 - gate) * least.sum(1, keepdims=True)
        written = tape * (1 - least[:, 0])[..., None] + w_write.swapaxes(1, 2) @ add
        seen = written if self.config.order == "write-first" else tape
        w_read = _content(keys, seen, self.config.strength)
        usage = self.config.decay * usage + w_read.sum(1) + w_write.sum(1)
        return (w_read @ seen).reshape(len(tape), -1), (written, usage, w_read)


class _DNC:
    """State: tape (B, N, M), usage (B, N), read addresses (B, R, N), write address (B, N)."""

    def __init__(self, config: DNC, tape: Any) -> None:
        self.config, self.tape = config, tape

    def start(self, batch: int) -> Any:
        n = len(self.tape)
        tape = jnp.broadcast_to(self.tape, (batch, *self.tape.shape))
        return tape, jnp.zeros((batch, n)), jnp.zeros((batch, self.config.read_heads, n)), jnp.zeros((batch, n))

    def step(self, xi: list[Any], state: Any) -> tuple[Any, Any]:
        tape, usage, w_read, w_write = state
        keys, strengths, free = jnp.split(xi[0], np.cumsum(self.config.read_parts)[:2].tolist(), 1)
        parts = jnp.split(xi[1], np.cumsum(self.config.write_parts)[:-1].tolist(), 1)
        key, strength, erase, add, allocation_gate, write_gate = parts
        freed = 1 - jax.nn.sigmoid(free)[..., None] * w_read
        retention = freed[:, 0]
        for head in range(1, self.config.read_heads):  # not `prod`, whose gradient is a scan of its own
            retention = retention * freed[:, head]
        usage = (usage + w_write - usage * w_write) * retention
        content = _content(key[:, None], tape, (1 + jax.nn.softplus(strength))[:, None])[:, 0]
        g = jax.nn.sigmoid(allocation_gate)
        w_write = jax.nn.sigmoid(write_gate) * (g * _allocation(usage) + (1 - g) * content)
        tape = _written(tape, w_write, jax.nn.sigmoid(erase), add)
        keys = keys.reshape(len(tape), self.config.read_heads, -1)
        w_read = _content(keys, tape, (1 + jax.nn.softplus(strengths))[..., None])
        return (w_read @ tape).reshape(len(tape), -1), (tape, usage, w_read, w_write)


def _allocation(usage: Any) -> Any:
    """a[φ_j] = (1 − u[φ_j]) Π_{i<j} u[φ_i], φ the slots from least to most used."""
    order = jnp.argsort(jnp.round(lax.stop_gradient(usage) / RESOLUTION), stable=True)
    ascending = jnp.take_along_axis(USAGE_EPSILON + (1 - USAGE_EPSILON) * usage, order, 1)
    before = jnp.cumprod(jnp.concatenate([jnp.ones_like(ascending[:, :1]), ascending[:, :-1]], 1), 1)
    return jnp.take_along_axis((1 - ascending) * before, jnp.argsort(order), 1)


def _content(key: Any, tape: Any, strength: Any) -> Any:
    """softmax over slots of β cos(k, M(i)). key (B, H, M), tape (B, N, M), strength (B, H, 1) → (B, H, N)."""
    similarity = key @ tape.swapaxes(1, 2) / (_norm(key)[..., None] * _norm(tape)[:, None])
    return jax.nn.softmax(strength * similarity)


def _written(tape: Any, w: Any, erase: Any, add: Any) -> Any:
    w = w[..., None]
    return tape * (1 - w * erase[:, None]) + w * add[:, None]


def _norm(x: Any) -> Any:
    return jnp.sqrt((x * x).sum(-1) + EPSILON)


def _layer_norm(x: Any, scale: Any, shift: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * lax.rsqrt((centred * centred).mean(-1, keepdims=True) + NORM_EPSILON) * scale + shift


def _along(running: Any, leaf: Any) -> Any:
    return running.reshape(-1, *[1] * (leaf.ndim - 1))
