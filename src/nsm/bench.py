"""Speed and memory of the fused back end against the reference: equality first, then times, all in one process.

A time is that of a whole training iteration (forward, loss, backward, clip, update) divided by its time steps. The
fastest of many rounds counts: on a noisy machine disturbances only ever add. Arithmetic is counted once for all: two
operations per multiply-add of the forward pass's matrix products and passes over the tape, three times that for forward
and backward together.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from nsm.experiments.machines import SYNTHETIC, few_shot, question_answering
from nsm.fused.layout import Array
from nsm.fused.workspace import pool
from nsm.machine import Machine, MachineConfig
from nsm.memories import DNC, LRUA, NTM
from nsm.tasks import Batch, Copy, Task
from nsm.training.config import RunConfig
from nsm.training.learner import FusedLearner, Learner, ReferenceLearner


@dataclass(frozen=True)
class Shape:
    """A machine of the paper, with the length and batch it is trained at."""

    name: str
    machine: MachineConfig
    steps: int
    batch: int


def shapes() -> list[Shape]:
    """What is measured: the paper's machines, and the batch sizes they are trained with."""
    copying, sorting = SYNTHETIC["copy"], SYNTHETIC["priority-sort"]
    found = []
    for batch in (1, 16):
        found += [Shape(f"copy {model}", copying.machine(model), 42, batch) for model in ("ntm", "nutm")]
        found += [Shape(f"priority-sort {model}", sorting.machine(model), 36, batch) for model in ("ntm", "nutm")]
    found.append(Shape("omniglot lrua p=3", few_shot(10, 3), 75, 16))
    found.append(Shape("babi dnc p=4", question_answering(4), 80, 32))
    return found


def operations(config: MachineConfig) -> int:
    """Floating-point operations of one time step of one sample, forward and backward."""
    machine = Machine.from_config(config)
    n, reads = config.controller.size, machine.memory.read_size
    gates = 4 if config.controller.kind == "lstm" else 1
    state = n if config.controller.kind == "lstm" else 0
    products = gates * n * (config.input_size + reads + state) + (n + reads) * config.output_size
    programs, keys = (config.programs.count, config.programs.keys + 1) if config.programs else (1, 0)
    products += sum((n + 1) * (programs * head.size + keys) for head in machine.memory.heads)
    memory = config.memory
    assert memory is not None
    cells = memory.slots * memory.width
    passes = 0
    if isinstance(memory, NTM):  # content and read; content, erase and add
        passes = 2 * memory.read_heads + 3 * memory.write_heads
    elif isinstance(memory, LRUA):  # content and read; add
        passes = 2 * memory.read_heads + memory.write_heads
    elif isinstance(memory, DNC):  # content and read; content, erase and add
        passes = 2 * memory.read_heads + 3
    return 3 * 2 * (products + passes * cells)


def random_batch(shape: Shape, seed: int = 0) -> Batch:
    """Random inputs and targets: what a step costs does not depend on what it is about."""
    rng = np.random.default_rng(seed)
    t, b = shape.steps, shape.batch
    inputs = rng.integers(0, 2, (t, b, shape.machine.input_size)).astype(np.float32)
    targets = rng.integers(0, 2, (t, b, shape.machine.output_size)).astype(np.float32)
    every = np.full(b, t, np.int64)
    return Batch(inputs, targets, np.ones((t, b), np.float32), every, np.zeros(b, np.int64), np.zeros((t, b), np.int64))


def gradient_error(config: MachineConfig, batch: Batch, task: Task) -> float:
    """The kernels' worst error against the reference in float64, as a share of each tensor's largest entry."""
    machine = Machine.from_config(config, generator=torch.Generator().manual_seed(0))
    exact = copy.deepcopy(machine).double()
    logits, _ = exact(torch.from_numpy(batch.inputs).double(), lengths=batch.lengths.tolist())
    task.loss(logits, batch._replace(targets=batch.targets.astype(np.float64))).backward()
    machine.backend = "fused"
    outputs, _ = machine(torch.from_numpy(batch.inputs), lengths=batch.lengths.tolist())
    task.loss(outputs, batch).backward()
    worst = _relative(outputs.detach().numpy(), logits.detach().numpy())
    for ours, theirs in zip(machine.parameters(), exact.parameters(), strict=True):
        if ours.grad is not None and theirs.grad is not None:
            worst = max(worst, _relative(ours.grad.numpy(), theirs.grad.numpy()))
    return worst


def _relative(found: Array, exact: Array) -> float:
    return float(np.abs(found - exact).max() / max(np.abs(exact).max(), 1e-30))


def learner(config: MachineConfig, batch_size: int, kind: type[Learner], threads: int) -> Learner:
    """A fresh learner with RMSprop."""
    machine = Machine.from_config(config, backend="reference", generator=torch.Generator().manual_seed(0))
    built = kind(machine, RunConfig("copy", config, batch_size=batch_size, key_loss=0.0))
    if isinstance(built, FusedLearner):
        built.threads = threads
    return built


def fastest(actions: list[Callable[[], Any]], seconds: float) -> list[float]:
    """The shortest time of each action, in seconds; they take turns for about `seconds` each, at least three times."""
    best = [float("inf")] * len(actions)
    spent = [0.0] * len(actions)
    rounds = 0
    while rounds < 3 or any(time < seconds for time in spent):
        for i, action in enumerate(actions):
            if rounds >= 3 and spent[i] >= seconds:
                continue
            began = time.perf_counter()
            action()
            took = time.perf_counter() - began
            best[i], spent[i] = min(best[i], took), spent[i] + took
        rounds += 1
    return best


def gemm_gflops(seconds: float = 0.5) -> float:
    """What a large matrix product reaches with torch's current number of threads."""
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    (took,) = fastest([lambda: a @ b], seconds)
    return 2 * 1024**3 / took / 1e9


def measure(shape: Shape, threads: int, seconds: float = 2.0) -> dict[str, Any]:
    """One row of the table."""
    task, batch = Copy(), random_batch(shape)
    error = gradient_error(shape.machine, batch, task)
    slow = learner(shape.machine, shape.batch, ReferenceLearner, threads)
    fast = learner(shape.machine, shape.batch, FusedLearner, threads)
    assert isinstance(fast, FusedLearner)
    x = torch.from_numpy(batch.inputs)
    fast.machine.backend = "fused"
    # Torch's threads spin while they wait, on the cores the kernels' threads need: it has them only for its own part.
    torch.set_num_threads(threads)
    gemm = gemm_gflops()
    with torch.no_grad():
        slow_forward, reference = fastest(
            [lambda: slow.machine(x), torch.enable_grad()(lambda: slow.step(task, batch, 0))], seconds
        )
    torch.set_num_threads(1)
    # One after the other: in training no other pass comes between two steps, and takes the caches for itself.
    (fast_forward,) = fastest([torch.no_grad()(lambda: fast.machine(x))], seconds)
    (fused,) = fastest([lambda: fast.step(task, batch, 0)], seconds)
    work = operations(shape.machine) * shape.steps * shape.batch
    gflops = work / fused / 1e9
    return {
        "shape": shape.name,
        "batch": shape.batch,
        "threads": threads,
        "reference_us": reference / shape.steps * 1e6,
        "fused_us": fused / shape.steps * 1e6,
        "ratio": reference / fused,
        "forward_reference_us": slow_forward / shape.steps * 1e6,
        "forward_fused_us": fast_forward / shape.steps * 1e6,
        "forward_ratio": slow_forward / fast_forward,
        "gflops": gflops,
        "gemm_gflops": gemm,
        "share": gflops / gemm,
        "worst_gradient_error": error,
        "peak_mib": pool.bytes / 2**20,
    }


def growth(seconds: float = 0.5) -> list[dict[str, Any]]:
    """How an iteration's time grows with T, N, B and P, one at a time, from Copy, NUTM, batch 4."""
    base = Shape("copy nutm", SYNTHETIC["copy"].machine("nutm"), 40, 4)
    memory, programs = base.machine.memory, base.machine.programs
    assert memory is not None
    assert programs is not None
    variants = {
        "T": [(t, replace(base, steps=t)) for t in (40, 80, 160)],
        "N": [
            (n, replace(base, machine=replace(base.machine, memory=replace(memory, slots=n)))) for n in (64, 128, 256)
        ],
        "B": [(b, replace(base, batch=b)) for b in (4, 8, 16)],
        "P": [
            (p, replace(base, machine=replace(base.machine, programs=replace(programs, count=p)))) for p in (1, 2, 4)
        ],
    }
    rows = []
    for what, cases in variants.items():
        first = None
        for value, shape in cases:
            fast = learner(shape.machine, shape.batch, FusedLearner, 1)
            batch, task = random_batch(shape), Copy()
            (took,) = fastest([lambda f=fast, b=batch, t=task: f.step(t, b, 0)], seconds)  # type: ignore[misc]
            first = first or took
            rows.append({"grows": what, "value": value, "iteration_us": took * 1e6, "times_first": took / first})
    return rows
