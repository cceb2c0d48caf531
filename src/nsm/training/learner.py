"""One training iteration: forward, loss, backward, update. A learner per back end, the same numbers up to rounding."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch

from nsm import nested
from nsm.fused.function import engine
from nsm.fused.optimiser import squares
from nsm.machine import Machine, MachineState, Noise
from nsm.programs import annealing
from nsm.tasks import Batch, Task
from nsm.tasks.arrays import Floats, Ints
from nsm.training.config import RunConfig
from nsm.training.distribution import ALONE, Distribution
from nsm.training.optimiser import Optimiser, flatten

KEPT = "kept."
"""Begins the names of persistent memory in a checkpoint."""


class Diverged(Exception):
    """The loss or a weight is no longer a finite number."""


def kept_memory(machine: Machine, saved: dict[str, torch.Tensor]) -> Any:
    """The memory's state among the tensors of a checkpoint, where the machine is; None if memory is not persistent."""
    kept = {name: leaf.to(machine.initial_read.device) for name, leaf in saved.items() if name.startswith(KEPT)}
    if not kept:
        return None
    blank = machine.memory.initial_state(1)
    return type(blank)(*(kept.get(f"{KEPT}{name}") for name in blank._fields))


class Learner(ABC):
    """A machine that learns: its weights in one flat buffer, with an optimiser on it."""

    def __init__(self, machine: Machine, config: RunConfig) -> None:
        self.machine, self.config = machine, config
        self.flat, self.gradient = flatten(machine)
        self.optimiser = Optimiser(config.optimiser, self.flat, self.gradient)
        self.ranks: Distribution = ALONE
        self.kept: Any = None
        """The memory's state after the last batch, in tensors, if memory is persistent."""

    def step(self, task: Task, batch: Batch, step: int) -> float:
        """Learn from a batch; returns its loss, without l_p. Everything random follows from the seed and the step."""
        slots, noise = self._draw(task, batch, step)
        if step < self.config.wiped_steps:
            self.kept = None
        part = self.ranks.part(batch, noise)
        self.gradient.fill_(0)
        loss = self._gradients(task, part.batch, slots, part.noise)
        loss = self.ranks.total(self.gradient, loss, part.weight)
        eta = annealing(step, self.config.key_loss, self.config.key_loss_decay)
        # After some hundred iterations η is nothing: l_p is left out when it can't move a float any more.
        penalty = eta * self.machine.program_loss() if eta > 1e-12 else None
        if penalty is not None and penalty.requires_grad:  # without keys, in a MANN say, it is a constant 0
            penalty.backward()
        # Before the update: weights stay what they were when all was well.
        if not math.isfinite(loss):
            raise Diverged(f"the loss became {loss} at iteration {step + 1}; the first bad tensor is {self._bad()}")
        if not _finite(self.gradient):
            raise Diverged(f"a gradient is not finite at iteration {step + 1}; the first bad tensor is {self._bad()}")
        self.optimiser.step(self.config.rate(step))
        return loss

    def check(self, step: int) -> None:
        """Raise Diverged if the update of iteration `step` left a weight that is not finite."""
        if not _finite(self.flat):
            raise Diverged(f"a weight is not finite after iteration {step}; the first bad tensor is {self._bad()}")

    def prepare(self, task: Task) -> None:
        """Do what only the first iteration has to, compile that is, before time is taken; nothing else changes."""
        batch = task.batch(self.config.seed, 0, 0, 1)
        self._gradients(task, batch, *self._draw(task, batch, 0))
        self.kept = None
        spare = [torch.zeros_like(self.flat[:16]) for _ in range(2)]
        Optimiser(self.config.optimiser, *spare).step(0.0)

    def state(self) -> dict[str, torch.Tensor]:
        """What must be saved beside the weights to go on later."""
        kept = {} if self.kept is None else self.kept._asdict()
        return self.optimiser.state() | {f"{KEPT}{name}": leaf for name, leaf in kept.items() if leaf is not None}

    def restore(self, state: dict[str, torch.Tensor]) -> None:
        """Take over a saved state."""
        self.optimiser.restore(state)
        self.kept = kept_memory(self.machine, state)

    @abstractmethod
    def _gradients(self, task: Task, batch: Batch, slots: int | None, noise: Noise) -> float:
        """Add the loss's gradient to the flat gradient; returns the loss."""

    def _draw(self, task: Task, batch: Batch, step: int) -> tuple[int | None, Noise]:
        """The tape's size and the noise of an iteration, as arrays."""
        config, machine = self.config, self.machine.config
        gumbel = machine.programs is not None and machine.programs.attention == "gumbel"
        if not (config.random_slots or config.cell_noise or gumbel):
            return None, Noise()
        generator = np.random.Generator(np.random.Philox(key=[config.seed, step]))
        slots, cell, programs = None, None, None
        if config.random_slots:
            most = self.machine.memory.slots
            least = min(task.min_slots(batch), most)
            slots = round(least * (most / least) ** generator.random())
        shape = batch.mask.shape
        if config.cell_noise:
            cell = generator.standard_normal((*shape, machine.controller.size), dtype=np.float32)
            cell *= np.float32(config.cell_noise)
        if gumbel:
            assert machine.programs is not None
            size = (*shape, len(self.machine.interfaces), machine.programs.count)
            exponential = generator.standard_exponential(size, dtype=np.float32)
            programs = -np.log(np.maximum(exponential, np.finfo(np.float32).tiny))
        return slots, Noise(cell, programs)  # type: ignore[arg-type]

    def _bad(self) -> str:
        """The first parameter that is not finite, or the first whose gradient is not."""
        for kind in ("", "gradient of "):
            for name, parameter in self.machine.named_parameters():
                tensor = parameter.grad if kind else parameter
                if tensor is not None and not torch.isfinite(tensor).all():
                    return f"{kind}{name}"
        return "the loss itself"


def _finite(flat: torch.Tensor) -> bool:
    """Whether all numbers are finite: one product, and a look at each only if that overflows."""
    # Not torch on the CPU: for a vector this long it would wake its threads and wait for them.
    plain = flat.device.type == "cpu" and flat.dtype == torch.float32
    total = squares(flat.numpy()) if plain else float(torch.dot(flat, flat))
    return math.isfinite(total) or bool(torch.isfinite(flat).all())


class ReferenceLearner(Learner):
    """Autograd through the reference, on any device."""

    def _gradients(self, task: Task, batch: Batch, slots: int | None, noise: Noise) -> float:
        device = self.flat.device
        drawn = Noise(*(None if n is None else torch.from_numpy(n).to(device) for n in noise))
        state = self.machine.initial_state(batch.mask.shape[1], slots)
        if self.kept is not None:
            state = state._replace(memory=self.kept)
        x = torch.from_numpy(batch.inputs).to(device)
        logits, final = self.machine(x, state, lengths=batch.lengths.tolist(), noise=drawn)
        if self.config.persistent:
            self.kept = nested.apply(torch.detach, final.memory)
        loss = task.loss(logits, batch)
        loss.backward()
        return loss.item()


class FusedLearner(Learner):
    """The kernels, without autograd in between."""

    def __init__(self, machine: Machine, config: RunConfig, threads: int = 1) -> None:
        super().__init__(machine, config)
        self.engine = engine(machine)  # that of `machine(x)` too: an evaluation has the same threads and buffers
        self.engine.threads = threads
        self._weights, self._gradient = self.flat.numpy(), self.gradient.numpy()
        self._starts = dict(machine.controller.initial.items())
        self._states: dict[tuple[int, int | None], MachineState] = {}

    def _gradients(self, task: Task, batch: Batch, slots: int | None, noise: Noise) -> float:
        state, counted = self._initial_state(batch.mask.shape[1], slots), int(np.count_nonzero(batch.mask))
        ends = batch.lengths.tolist()
        if self.config.persistent:
            return self._persistent_gradients(task, batch, ends, state, noise)

        def loss(outputs: Floats, samples: Ints | None) -> tuple[float, Floats]:
            """A mean over counted steps: the mean over those of some sequences, times the share they have of all."""
            if samples is None:
                return task.loss_and_gradient(outputs, batch)
            part = batch.part(samples)
            mean, d_outputs = task.loss_and_gradient(outputs, part)
            share = int(np.count_nonzero(part.mask)) / max(counted, 1)
            return mean * share, d_outputs * np.float32(share)

        return self.engine.learn(self._weights, batch.inputs, ends, state, noise, loss, self._gradient)

    def _persistent_gradients(
        self, task: Task, batch: Batch, ends: list[int], state: MachineState, noise: Noise
    ) -> float:
        """As `_gradients`, with the whole batch at once: its final memory is where the next one begins."""
        if self.kept is not None:
            state = state._replace(memory=nested.apply(torch.Tensor.numpy, self.kept))
        run = self.engine.run(self._weights, batch.inputs, ends, state, noise)
        loss, d_outputs = task.loss_and_gradient(run.outputs(), batch)
        self.kept = nested.apply(torch.from_numpy, run.final().memory)
        run.back(d_outputs, None)
        run.collect(self._gradient, start=True)
        return loss

    def _initial_state(self, batch: int, slots: int | None) -> MachineState:
        """As the machine's, in arrays that are kept: only the learned part changes from step to step."""
        key = batch, slots
        if key not in self._states:
            if len(self._states) > 256:
                self._states.clear()
            initial = self.machine.initial_state(batch, slots)
            self._states[key] = nested.apply(lambda t: np.ascontiguousarray(t.detach().numpy()), initial)
        state = self._states[key]
        for name, start in self._starts.items():
            getattr(state.controller, name)[:] = start.detach().numpy()
        return state
