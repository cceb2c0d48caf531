"""The measurement: for every shape equality first, then times, one after another, in one process."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numba
import numpy as np
import torch

from nsm.bench import peers
from nsm.bench.equality import TOLERANCE, Absent, Answer, Unequal, check, check_most, exact, gradients
from nsm.bench.timing import fastest, gemm_gflops, torch_threads
from nsm.bench.torch_peers import Torch
from nsm.bench.work import Shape, Work, operations
from nsm.experiments import recipes
from nsm.fused.layout import Array
from nsm.fused.workspace import pool
from nsm.tasks import Copy
from nsm.training.experiment import Experiment, Schedule
from nsm.training.learner import FusedLearner


def loop(work: Work, threads: int) -> FusedLearner:
    """Our own training loop's learner, with RMSprop and without the loss on keys."""
    experiment = Experiment(Copy(), work.shape.machine, schedule=Schedule(batch_size=work.shape.batch, key_loss=0.0))
    return FusedLearner(work.machine("reference"), experiment, threads)


def measure(shape: Shape, threads: int, seconds: float = 2.0, others: Iterable[str] = ("eager",)) -> dict[str, Any]:
    """One row: nsm, and each of the other systems.

    A system that computes something else has a "failure" instead of times.
    """
    work = Work(shape)
    row: dict[str, Any] = {
        "shape": shape.name,
        "batch": shape.batch,
        "threads": threads,
        "steps": shape.steps,
        "words": shape.words,
        "stories": shape.stories,
        "compared_steps": work.opening.shape.steps,
        "tolerance": TOLERANCE,
        "failure": None,
        "peers": [],
    }
    with torch_threads(threads):
        ours = Torch(work.opening, "fused").answer()
        public = Torch(work, "fused")
        try:
            row["error"] = _equal(work, threads, ours)
        except Unequal as reason:
            return row | {"failure": str(reason)}
        with torch.no_grad():
            outputs = public.forward().numpy()
        row |= _times(work, threads, seconds, public)
        for name in others:
            row["peers"].append(_peer(name, work, threads, seconds, (ours, outputs), row["loop_us"]))
    return row


def _equal(work: Work, threads: int, ours: Answer) -> float:
    """The worst error of the kernels and the public API against the reference in float64."""
    opening = work.opening
    right, learner, machine = exact(opening), loop(opening, threads), work.machine("fused")
    learner.step(opening.task, opening.batch, 0)
    with torch.no_grad():
        forward, _ = machine(opening.x, lengths=opening.lengths)
        first, _ = machine.step(opening.x[0], machine.initial_state(work.shape.batch))
        whole, _ = machine(work.x, lengths=work.lengths)
    if opening is not work:
        check_most(whole.numpy(), exact(work, learning=False).outputs)
    assert right.outputs is not None
    return max(
        check(ours, right),
        # The update leaves the gradient unchanged.
        check(Answer(None, gradients(learner.machine)), right),
        check(Answer(forward.numpy(), {}), right),
        check(Answer(first.numpy()[None], {}), Answer(right.outputs[:1], {})),
    )


def _times(work: Work, threads: int, seconds: float, public: Torch) -> dict[str, Any]:
    """The times of nsm: the loop, the public API, a sequence without gradients, one step of it."""
    gemm, learner, machine = gemm_gflops(), loop(work, threads), public.machine
    training = fastest(lambda: learner.step(work.task, work.batch, 0), seconds)
    buffers = pool.bytes / 2**20
    written = fastest(public.iterate, seconds)
    with torch.no_grad():
        forward = fastest(public.forward, seconds)
        state, x = machine.initial_state(work.shape.batch), work.x[0]
        step = fastest(lambda: machine.step(x, state), min(seconds, 1.0))
    gemm = max(gemm, gemm_gflops())  # so that a busy moment does not lower the reference speed
    arithmetic = operations(work.shape.machine) * work.shape.words / 1e9
    return {
        "loop_us": work.per_step(training),
        "loop_gflops": arithmetic / training,
        "gemm_gflops": gemm,
        "share": arithmetic / training / gemm,
        "limit_us": work.per_step(arithmetic / gemm),
        "public_us": work.per_step(written),
        "public_to_loop": written / training,
        "inference_us": work.per_step(forward),
        "loop_to_inference": training / forward,
        "step_us": step * 1e6,
        "loop_words_per_second": work.shape.words / training,
        "public_words_per_second": work.shape.words / written,
        "inference_words_per_second": work.shape.words / forward,
        "buffers_mib": buffers,
    }


def _peer(
    name: str, work: Work, threads: int, seconds: float, ours: tuple[Answer, Array], loop_us: float
) -> dict[str, Any]:
    """The time of a training iteration in another system, if its results equal `ours` on the opening and the whole."""
    found: dict[str, Any] = {"name": name, "failure": None, "absent": None, "error": None, "us": None, "to_loop": None}
    try:
        found |= peers.kind(name)._asdict()
        peer = peers.build(name, work.opening, threads)
        found["error"] = check(peer.answer(), ours[0])
        if work.opening is not work:
            peer = peers.build(name, work, threads)
            check_most(peer.answer().outputs, ours[1])
    except Absent as reason:
        return found | {"absent": str(reason)}
    except Unequal as reason:
        return found | {"failure": str(reason)}
    peer.iterate()  # compilation happens here
    took = work.per_step(fastest(peer.iterate, seconds))
    return found | {"us": took, "to_loop": took / loop_us}


def facts(others: Iterable[str] = ()) -> dict[str, Any]:
    """The hardware and versions that the times were measured with."""
    versions: dict[str, str | None] = {"python": platform.python_version(), "numpy": np.__version__}
    versions |= {"torch": torch.__version__, "numba": numba.__version__}
    if "jax" in others:
        versions["jax"] = peers.jax_version()
    return {"cpu": _cpu(), "cores": os.cpu_count(), "versions": versions}


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()


def growth(seconds: float = 0.5) -> list[dict[str, Any]]:
    """How the time of an iteration grows with T, N, B and P, one at a time, for Copy, NUTM, batch 4."""
    base = Shape("copy nutm", recipes.copy(preset="paper").machine, 40, 4)
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
            work = Work(shape)
            learner = loop(work, 1)
            took = fastest(lambda one=learner, of=work: one.step(of.task, of.batch, 0), seconds)  # type: ignore[misc]
            first = first or took
            rows.append({"grows": what, "value": value, "iteration_us": took * 1e6, "times_first": took / first})
    return rows
