"""One sequence with a machine's trace: inputs, targets, outputs, and what happened inside.

Figures and the viewer read nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from nsm.checks import at_least
from nsm.machine import Machine, MachineState, Trace
from nsm.plots.heads import HeadTrace
from nsm.tasks import Batch, Task
from nsm.training.evaluation import TEST

Array = npt.NDArray[Any]
POOL = 50
"""The best and the worst sequence are picked from the first test sequences, this many."""
READING, ANSWERING = "reading the input", "answering"
"""The two phases of a sequence."""


@dataclass(frozen=True)
class Execution:
    """A machine's run on one sequence of T steps."""

    name: str
    """The name of the sequence, for people."""
    inputs: Array
    """(T, I)"""
    targets: Array
    """(T, O)"""
    answers: Array
    """(T, O) probabilities of a 1, or of each choice"""
    counted: Array
    """(T,) whether a step is scored"""
    decoding: int
    """The first step of the answer."""
    subtask: Array
    """(T,) index into `subtasks`, −1 for none"""
    subtasks: tuple[str, ...]
    heads: tuple[HeadTrace, ...]
    controller: Array
    """c_t (T, n)"""
    memory: Array | None
    """M_t (T, N, M), None if it was not recorded"""
    choice: bool = False
    """Whether an answer is one of O choices instead of O bits."""
    words: tuple[str, ...] = ()
    """The names of the choices and inputs, if they are words."""
    picture: int = 0
    """The side of the square picture at the start of an input."""
    task: Task | None = None
    """The task of the sequence; None for a user's own input."""
    parts: tuple[tuple[str, Array], ...] = ()
    """The programs (T, P) of the state network and the output layer, by name, where their weights are stored."""

    @property
    def steps(self) -> int:
        return len(self.inputs)

    @property
    def wrong(self) -> Array:
        """(T, O) whether an output is scored and wrong: a bit on the wrong side of one half, or a wrong choice."""
        if self.choice:
            taken, right = self.answers.argmax(axis=1), self.targets.argmax(axis=1)
            wrong = (np.arange(self.answers.shape[1]) == taken[:, None]) & (taken != right)[:, None]
        else:
            wrong = (self.answers > 0.5) != (self.targets > 0.5)
        counted: Array = wrong & self.counted[:, None]
        return counted

    @property
    def asked(self) -> int:
        """The number of scored outputs."""
        return int(self.counted.sum()) * self._answers_a_step

    @property
    def errors(self) -> int:
        """The number of wrong ones."""
        return int(self.wrong.sum())

    @property
    def unit(self) -> str:
        """The unit of these counts."""
        return "answers" if self.choice else "bits"

    @property
    def _answers_a_step(self) -> int:
        return 1 if self.choice else int(self.targets.shape[1])

    def heads_of(self, kind: str) -> list[HeadTrace]:
        """The read heads or the write heads."""
        return [head for head in self.heads if head.kind == kind]

    def errors_by_subtask(self) -> dict[str, tuple[int, int]]:
        """Wrong and scored outputs of every subtask; empty for a task without subtasks."""
        width = self._answers_a_step
        wrong = self.wrong.sum(axis=1)
        mine = {name: self.counted & (self.subtask == index) for index, name in enumerate(self.subtasks)}
        return {name: (int(wrong[steps].sum()), int(steps.sum()) * width) for name, steps in mine.items()}

    def doing(self) -> list[str]:
        """The phase at every step, with the subtask where there are several; empty outside any phase."""
        doing = [""] * self.steps
        for start, end, name in self.stretches() or [(0, self.decoding, ""), (self.decoding, self.steps, "")]:
            phase = ANSWERING if start >= self.decoding else READING
            doing[start:end] = [f"{name}, {phase}" if name else phase] * (end - start)
        return doing

    def stretches(self) -> list[tuple[int, int, str]]:
        """Consecutive steps of one subtask in one phase: first step, step after the last, name of the subtask."""
        keys = list(zip(self.subtask.tolist(), (np.arange(self.steps) >= self.decoding).tolist(), strict=True))
        starts = [t for t in range(self.steps) if t == 0 or keys[t] != keys[t - 1]]
        ends = [*starts[1:], self.steps]
        return [
            (start, end, self.subtasks[keys[start][0]])
            for start, end in zip(starts, ends, strict=True)
            if 0 <= keys[start][0] < len(self.subtasks)
        ]


def from_trace(trace: Trace, logits: Tensor, batch: Batch, task: Task, names: Sequence[str]) -> list[Execution]:
    """The executions of a batch, each cut to its own length; `names`: one per sequence."""
    found = _executions(trace, task.probabilities(logits), batch, names, task.choice)
    return [
        replace(each, subtasks=task.subtask_names, words=task.choices, picture=task.picture, task=task)
        for each in found
    ]


def from_input(trace: Trace, logits: Tensor, x: Tensor, batch_first: bool, choice: bool) -> list[Execution]:
    """Executions of inputs without targets: x and logits (T, B, …), (B, T, …) if batch first, or (T, …)."""
    if x.dim() == 2:
        x, logits, trace = x.unsqueeze(1), logits.unsqueeze(1), trace.batched()
    elif batch_first:
        x, logits = x.transpose(0, 1), logits.transpose(0, 1)
    steps, count = x.shape[:2]
    whole, answers = np.full(count, steps), logits.softmax(-1) if choice else logits.sigmoid()
    nothing = np.zeros((steps, count), np.float32)
    batch = Batch(_array(x), np.zeros(answers.shape, np.float32), nothing, whole, whole, np.full((steps, count), -1))
    return _executions(trace, answers, batch, [f"sequence {b + 1}" for b in range(count)], choice)


def _executions(trace: Trace, answers: Tensor, batch: Batch, names: Sequence[str], choice: bool) -> list[Execution]:
    probabilities = _array(answers)
    return [
        Execution(
            name=name,
            inputs=batch.inputs[:end, b],
            targets=batch.targets[:end, b],
            answers=probabilities[:end, b],
            counted=batch.mask[:end, b] > 0,
            decoding=int(batch.decoding[b]),
            subtask=batch.subtask[:end, b],
            subtasks=(),
            heads=trace.head_traces(b, end),
            controller=_array(trace.controller[:end, b]),
            memory=None if trace.memory is None else _array(trace.memory[:end, b]),
            choice=choice,
            parts=trace.part_programs(b, end),
        )
        for b, (name, end) in enumerate(zip(names, batch.lengths.tolist(), strict=True))
    ]


def _array(tensor: Tensor) -> Array:
    array: Array = tensor.detach().cpu().numpy()
    return array


@torch.no_grad()
def execute(
    machine: Machine,
    task: Task,
    samples: int,
    seed: int = 0,
    slots: int | None = None,
    memory: bool = True,
    extremes: bool = True,
    name: str = "",
) -> list[Execution]:
    """Run a machine on the first `samples` sequences of a task's test, and on the best and worst of its first `POOL`.

    `extremes=False` omits those two; `name` is put in front of the sequences' names.
    """
    at_least("samples", samples, 1)
    if len(parts := task.parts) > 1:
        return [
            execution
            for each, part in parts.items()
            for execution in execute(machine, part, samples, seed, slots, memory, extremes, f"{each}, ")
        ]
    pool = task.batch(seed, TEST, 0, max(POOL, samples) if extremes else samples)
    chosen = {b: f"{name}test sequence {b + 1}" for b in range(samples)}
    training = machine.training
    machine.eval()
    try:
        if extremes:
            logits, _ = machine(*_arguments(machine, pool, slots))
            best, worst = _extremes(_array(task.probabilities(logits)), pool)
            chosen = _named(chosen, best, f"{name}best of {POOL}")
            chosen = _named(chosen, worst, f"{name}worst of {POOL}")
        batch = select(pool, list(chosen))
        logits, _, trace = machine(*_arguments(machine, batch, slots), trace="memory" if memory else True)
    finally:
        machine.train(training)
    return from_trace(trace, logits, batch, task, list(chosen.values()))


def _arguments(machine: Machine, batch: Batch, slots: int | None) -> tuple[Tensor, MachineState, list[int]]:
    """x, state and lengths."""
    x = torch.from_numpy(batch.inputs).to(machine.initial_read.device)
    return x, machine.initial_state(batch.mask.shape[1], slots), batch.lengths.tolist()


def select(batch: Batch, chosen: list[int]) -> Batch:
    """Some sequences of a batch, padded no further than the longest of them needs."""
    end = int(batch.lengths[chosen].max())
    parts = ("inputs", "targets", "mask", "subtask")
    cut = {name: np.ascontiguousarray(getattr(batch, name)[:end, chosen]) for name in parts}
    return batch._replace(lengths=batch.lengths[chosen], decoding=batch.decoding[chosen], **cut)


def _extremes(answers: Array, batch: Batch) -> tuple[int, int]:
    """The sequences with the smallest and the largest share of wrong bits, ties broken by uncertainty."""
    counted = batch.mask[:, :, None] > 0
    distance = np.where(counted, np.abs(answers - batch.targets), 0.0)
    bits = np.maximum(batch.mask.sum(axis=0), 1) * batch.targets.shape[2]
    wrong, doubt = (distance > 0.5).sum(axis=(0, 2)) / bits, distance.sum(axis=(0, 2)) / bits
    order = np.lexsort((doubt, wrong))
    return int(order[0]), int(order[-1])


def _named(chosen: dict[int, str], index: int, name: str) -> dict[int, str]:
    """Add a sequence, or another name for one that is already chosen."""
    return {**chosen, index: f"{chosen[index]}, {name.split(', ')[-1]}" if index in chosen else name}
