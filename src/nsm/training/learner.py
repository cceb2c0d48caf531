"""One training iteration: forward pass, loss, backward pass, update. One learner per backend, equal up to rounding."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nsm.checks import Failed, UserError
from nsm.fused.compiling import compile_for
from nsm.fused.kernels import kernels
from nsm.fused.optimiser import squares
from nsm.fused.passes import Given, Pass
from nsm.fused.workspace import address, addresses, pool, zeros
from nsm.machine import Machine, Noise
from nsm.pretrained import check
from nsm.programs import annealing
from nsm.pytree import tree_map
from nsm.tasks import Batch, Task
from nsm.training import checkpoints
from nsm.training.checkpoints import Checkpoint
from nsm.training.consolidation import FISHER, SEQUENCES, Consolidation
from nsm.training.distribution import ALONE, Distribution
from nsm.training.experiment import Experiment
from nsm.training.losses import counted, known, loss_and_gradient
from nsm.training.optimiser import FlatOptimiser, flatten


class Diverged(Failed):
    """The loss or a weight is no longer a finite number."""


def memory_state(machine: Machine, saved: dict[str, torch.Tensor]) -> Any:
    """Persistent memory from the tensors of a checkpoint, on the machine's device; None without one."""
    if not saved:
        return None
    found = {name: leaf.to(machine.initial_read.device) for name, leaf in saved.items()}
    blank: Any = machine.memory.initial_state(1)  # a named tuple of the memory's own
    first = next(iter(found.values()))
    sequences = len(first) if first.dim() else 0
    like = {name: (sequences, *leaf.shape[1:]) for name, leaf in blank._asdict().items() if leaf is not None}
    if not sequences or {name: tuple(leaf.shape) for name, leaf in found.items()} != like:
        raise UserError("the checkpoint is damaged: its memory does not fit this machine")
    return type(blank)(*(found.get(name) for name in blank._fields))


class Learner(ABC):
    """A machine in training, as the loop sees it."""

    def __init__(self, machine: Machine, experiment: Experiment) -> None:
        self.machine, self.experiment, self.schedule = machine, experiment, experiment.schedule
        self.ranks: Distribution = ALONE
        self.noisy = True
        """Whether the schedule's cell noise is on."""
        self.part = 0
        """The number of the part of the task that is drawn most now: a task label."""
        self.memory: Any = None
        """The memory's state after the last batch, in tensors, if memory is persistent."""

    @abstractmethod
    def step(self, task: Task, batch: Batch, step: int) -> float:
        """Make an update; returns the batch's loss without l_p. All randomness follows from the seed and the step."""

    @abstractmethod
    def check(self, step: int) -> None:
        """Raise Diverged if the update of iteration `step` left a weight that is not finite."""

    @abstractmethod
    def prepare(self, task: Task) -> None:
        """Compile, so that the first iteration takes no longer than the others; nothing else changes."""

    @abstractmethod
    def optimiser_tensors(self) -> dict[str, torch.Tensor]:
        """All that updates depend on besides the weights, for checkpoints."""

    @abstractmethod
    def restore(self, tensors: dict[str, torch.Tensor]) -> None:
        """Load what `optimiser_tensors` returned."""

    @abstractmethod
    def consolidate(self, task: Task, step: int) -> None:
        """A task ends with iteration `step`: hold the weights that it needs, as strongly as the schedule says."""

    def told(self, part: int) -> Machine:
        """The machine that is evaluated on the part of this number: always the same one, unless it uses task labels."""
        return self.machine

    def memory_tensors(self) -> dict[str, torch.Tensor]:
        """Persistent memory as a checkpoint has it."""
        found = {} if self.memory is None else self.memory._asdict()
        return {name: leaf for name, leaf in found.items() if leaf is not None}

    def resume(self, path: Path, checkpoint: Checkpoint) -> None:
        """Load the checkpoint read from `path`; all of it is checked first."""
        check(path / checkpoints.MODEL, checkpoint.model, self.machine.state_dict())
        check(path / checkpoints.OPTIMISER, checkpoint.optimiser, self.optimiser_tensors())
        memory = memory_state(self.machine, checkpoint.memory)
        if memory is not None and not (self.schedule.persistent and len(memory[0]) == self.schedule.batch_size):
            raise UserError(f"{path / checkpoints.MEMORY} is damaged: it does not fit the batches of this run")
        self.machine.load_state_dict(checkpoint.model)
        self.restore(checkpoint.optimiser)
        self.memory = memory


class GradientLearner(Learner):
    """All weights in one flat buffer, an optimiser on it, and a gradient from either backend."""

    def __init__(self, machine: Machine, experiment: Experiment) -> None:
        super().__init__(machine, experiment)
        self.flat, self.gradient = flatten(machine)
        self.optimiser = FlatOptimiser(experiment.optimiser, self.flat, self.gradient)
        self.began = 0
        """The first iteration that these weights learn in: l_p counts less and less from there on."""
        strength = self.schedule.consolidation
        self.consolidation = Consolidation(strength, self.flat) if strength else None

    def step(self, task: Task, batch: Batch, step: int) -> float:
        slots, noise = self._draw(task, batch, step)
        if step < self.schedule.wiped_steps:
            self.memory = None
        if self.memory is not None and len(self.memory[0]) != (size := batch.mask.shape[1]):
            raise UserError(
                f"persistent memory needs batches of one size: it has {len(self.memory[0])} sequences, and batch "
                f"{step + 1} has {size}"
            )
        batch = batch.checked(self.machine.config.input_size, self.machine.config.output_size)
        part = self.ranks.part(batch, noise)
        self.gradient.fill_(0)
        loss = self._gradients(task, part.batch, slots, part.noise)
        loss = self.ranks.total(self.gradient, loss, part.weight)
        eta = annealing(step - self.began, self.schedule.key_loss, self.schedule.key_loss_decay)
        # After some hundred iterations η is too small for l_p to change a float.
        penalty = eta * self.machine.program_loss() if eta > 1e-12 else None
        if penalty is not None and penalty.requires_grad:  # a constant 0 without keys, as in a MANN
            penalty.backward()
        if self.consolidation is not None:
            self.consolidation.pull(self.gradient)
        # Before the update, so that the weights stay finite.
        if not math.isfinite(loss):
            raise Diverged(f"the loss became {loss} at iteration {step + 1}; the first bad tensor is {self._bad()}")
        if not _finite(self.gradient):
            raise Diverged(f"a gradient is not finite at iteration {step + 1}; the first bad tensor is {self._bad()}")
        self.optimiser.step(self.experiment.rate(step))
        return loss

    def check(self, step: int) -> None:
        if not _finite(self.flat):
            raise Diverged(f"a weight is not finite after iteration {step}; the first bad tensor is {self._bad()}")

    def prepare(self, task: Task) -> None:
        batch = task.batch(self.experiment.seed, 0, 0, 1)
        self._gradients(task, batch, *self._draw(task, batch, 0))
        self.memory = None
        spare = [torch.zeros_like(self.flat[:16]) for _ in range(2)]
        FlatOptimiser(self.experiment.optimiser, *spare).step(0.0)

    def optimiser_tensors(self) -> dict[str, torch.Tensor]:
        held = {} if self.consolidation is None else self.consolidation.state()
        return {**self.optimiser.state(), **held}

    def restore(self, tensors: dict[str, torch.Tensor]) -> None:
        self.optimiser.restore(tensors)
        if self.consolidation is not None:
            self.consolidation.restore(tensors)

    def consolidate(self, task: Task, step: int) -> None:
        if self.consolidation is None:
            return
        fisher = torch.zeros_like(self.flat)
        for batch in task.batches(self.experiment.seed, FISHER, step, step + SEQUENCES, 1):
            self.gradient.fill_(0)
            self._gradients(task, batch, *self._draw(task, batch, step))
            fisher.addcmul_(self.gradient, self.gradient, value=1 / SEQUENCES)
        self.consolidation.hold(fisher)

    @abstractmethod
    def _gradients(self, task: Task, batch: Batch, slots: int | None, noise: Noise) -> float:
        """Add the loss's gradient to the flat gradient; returns the loss."""

    def _draw(self, task: Task, batch: Batch, step: int) -> tuple[int | None, Noise]:
        """The size of the tape and the noise of an iteration."""
        schedule, machine = self.schedule, self.machine.config
        gumbel = machine.programs is not None and machine.programs.strategy.noisy
        cell_noise = schedule.cell_noise if self.noisy else 0.0
        if not (schedule.random_slots or cell_noise or gumbel):
            return None, Noise()
        generator = np.random.Generator(np.random.Philox(key=[self.experiment.seed, step]))
        slots, cell, programs = None, None, None
        if schedule.random_slots:
            most = self.machine.memory.slots
            least = min(task.min_slots(batch), most)
            slots = round(least * (most / least) ** generator.random())
        shape = batch.mask.shape
        if cell_noise:
            cell = generator.standard_normal((*shape, machine.controller.size), dtype=np.float32)
            cell *= np.float32(cell_noise)
        if gumbel:
            assert machine.programs is not None
            size = (*shape, self.machine._choices, machine.programs.count)
            exponential = generator.standard_exponential(size, dtype=np.float32)
            programs = -np.log(np.maximum(exponential, np.finfo(np.float32).tiny))
        return slots, Noise(cell, programs)  # type: ignore[arg-type]

    def _bad(self) -> str:
        """The first parameter that is not finite, or whose gradient is not."""
        for kind in ("", "gradient of "):
            for name, parameter in self.machine.named_parameters():
                tensor = parameter.grad if kind else parameter
                if tensor is not None and not torch.isfinite(tensor).all():
                    return f"{kind}{name}"
        return "the loss itself"


def _finite(flat: torch.Tensor) -> bool:
    """Whether all numbers are finite: one product, and each number only if that overflows."""
    # Not torch on the CPU, which would use threads for a vector this long.
    plain = flat.device.type == "cpu" and flat.dtype == torch.float32
    total = squares(flat.numpy()) if plain else float(torch.dot(flat, flat))
    return math.isfinite(total) or bool(torch.isfinite(flat).all())


class ReferenceLearner(GradientLearner):
    """The reference backend with autograd, on any device."""

    def _gradients(self, task: Task, batch: Batch, slots: int | None, noise: Noise) -> float:
        device = self.flat.device
        drawn = Noise(*(None if n is None else torch.from_numpy(n).to(device) for n in noise))
        state = self.machine.initial_state(batch.mask.shape[1], slots)
        if self.memory is not None:
            state = state._replace(memory=self.memory)
        x = torch.from_numpy(batch.inputs).to(device)
        logits, final = self.machine(x, state, lengths=batch.lengths.tolist(), noise=drawn)
        if self.schedule.persistent:
            self.memory = tree_map(torch.detach, final.memory)
        loss = task.loss(logits, batch)
        loss.backward()
        return loss.item()


class FusedLearner(GradientLearner):
    """The kernels without autograd: forward pass, loss and backward pass, chunk by chunk of the batch, so that what the
    backward pass needs is still in the cache."""

    def __init__(self, machine: Machine, experiment: Experiment, threads: int | None = None) -> None:
        super().__init__(machine, experiment)
        self.threads = torch.get_num_threads() if threads is None else threads
        weights, inputs = machine.operands(), machine.config.input_size
        self.kernels = kernels(machine._description, inputs, machine.config.output_size)
        compile_for(self.kernels.tape.config)
        self._where = addresses(weights)
        network = machine.state_network
        initial = network.initial
        self._starts = [initial[name] for name in network.State._fields if name in initial]
        # A fixed initial state is zero, and its gradient goes nowhere.
        nowhere = [torch.zeros_like(self.flat[: self.kernels.sizes.size]) for _ in range(2 - len(self._starts))]
        self._nowhere = nowhere
        self._gradients_at = addresses([*map(_gradient, (*weights, *self._starts)), *nowhere])
        self._block = zeros(self.kernels.weights_size)
        self._weights = address(self._block)
        self._states: dict[tuple[int, int | None], list[torch.Tensor]] = {}

    def _gradients(self, task: Task, batch: Batch, slots: int | None, noise: Noise) -> float:
        k, kind, (steps, size) = self.kernels, known(task), batch.mask.shape
        state = self._initial_state(size, slots)
        if self.memory is not None:
            state[k.states : -1] = self.memory
        drawn = [0 if n is None else address(n) for n in noise]
        ends, slots = tuple(batch.lengths.tolist()), int(state[k.states].shape[1])
        run = Pass(k, Given(steps, size, ends, slots, addresses(state), address(batch.inputs), *drawn), self.threads)
        k.pack(self._where, self._weights, self.threads)
        final = [torch.empty_like(leaf) for leaf in state] if self.schedule.persistent else []
        if kind is not None and k.fits(ends, slots):
            share, where = 1.0 / counted(task, batch), (address(batch.targets), address(batch.mask))
            loss = run.learn(self._weights, *where, kind, share, addresses(final) if final else None, self._collect)
        else:
            loss = self._apart(task, batch, run, state, final)
        if final:
            self.memory = type(self.machine.memory.initial_state(1))(*final[k.states : -1])
        return loss

    def _apart(
        self, task: Task, batch: Batch, run: Pass, state: list[torch.Tensor], final: list[torch.Tensor]
    ) -> float:
        """The whole batch forward, its loss, and the whole batch backward."""
        k, given = self.kernels, run.given
        final = final or [torch.empty_like(leaf) for leaf in state]
        kept = pool.take(k.kept_size(given.lengths, given.slots))
        logits = np.zeros((given.steps, given.batch, k.sizes.outputs), np.float32)
        run.forward(self._weights, address(logits), addresses(final), address(kept))
        loss, d_out = loss_and_gradient(task, logits, batch)
        d_out = np.ascontiguousarray(d_out)
        run.backward(self._weights, address(kept), address(d_out), None, 0, None, self._collect)
        return loss

    def _collect(self, blocks: list[Any]) -> None:
        self.kernels.unpack(blocks, self._gradients_at, False, self.threads, start=True)

    def _initial_state(self, batch: int, slots: int | None) -> list[torch.Tensor]:
        """The leaves of the machine's initial state; they are kept, because only the learned ones change."""
        key = batch, slots
        if key not in self._states:
            if len(self._states) > 16:
                self._states.clear()
            leaves: list[torch.Tensor] = []
            initial = self.machine.initial_state(batch, slots)
            tree_map(lambda leaf: leaves.append(leaf.detach().clone(memory_format=torch.contiguous_format)), initial)
            self._states[key] = leaves
        state = list(self._states[key])
        for leaf, learned in zip(state, self._starts, strict=False):
            leaf.copy_(learned.detach())
        return state


def _gradient(weight: torch.Tensor) -> torch.Tensor:
    assert weight.grad is not None
    return weight.grad
