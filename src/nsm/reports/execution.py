"""One sequence as a machine worked through it: the trace beside what was shown, asked and answered.

Figures and the viewer read this and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from nsm import nested
from nsm.checks import UserError, at_least
from nsm.machine import Machine, Trace
from nsm.memories.memory import Head
from nsm.tasks import Batch, Classification, Continual, Sequencing, Task
from nsm.training.evaluation import TEST

Array = npt.NDArray[Any]
POOL = 50
"""The best and the worst are looked for among this many sequences: the first of the test."""
USED = 0.1
"""A slot counts as used if a head was ever on it to this degree."""
MARGIN = 2
"""Slots shown on either side of those in use."""


@dataclass(frozen=True)
class HeadTrace:
    """Where one head was at every step, and the programs that steered it."""

    name: str
    """read 1, write 1, …"""
    kind: str
    """read or write"""
    address: Array
    """(T, N)"""
    programs: Array | None
    """(T, P), None in a MANN"""


@dataclass(frozen=True)
class Execution:
    """What one machine did with one sequence of T steps."""

    name: str
    """Which sequence this is, for people."""
    inputs: Array
    """(T, I)"""
    targets: Array
    """(T, O)"""
    answers: Array
    """(T, O) probabilities of a 1, or of each choice"""
    counted: Array
    """(T,) whether a step's answer counts"""
    decoding: int
    """The first step whose answer counts."""
    subtask: Array
    """(T,) index into `subtasks`, −1 for none"""
    subtasks: tuple[str, ...]
    heads: tuple[HeadTrace, ...]
    controller: Array
    """c_t (T, n)"""
    memory: Array | None
    """M_t (T, N, M), None if it was not asked for"""
    choice: bool = False
    """Whether an answer is one of O choices, and not O bits."""
    words: tuple[str, ...] = ()
    """What the choices and inputs are called, where they are words."""
    picture: int = 0
    """The side of the square picture an input begins with."""

    @property
    def steps(self) -> int:
        return len(self.inputs)

    @property
    def wrong(self) -> Array:
        """(T, O) answers that count and are wrong: bits on the wrong side of one half, or the wrong choice taken."""
        if self.choice:
            taken, right = self.answers.argmax(axis=1), self.targets.argmax(axis=1)
            wrong = (np.arange(self.answers.shape[1]) == taken[:, None]) & (taken != right)[:, None]
        else:
            wrong = (self.answers > 0.5) != (self.targets > 0.5)
        counted: Array = wrong & self.counted[:, None]
        return counted

    @property
    def asked(self) -> int:
        """How many answers count."""
        return int(self.counted.sum()) * self._answers_a_step

    @property
    def errors(self) -> int:
        """How many of them are wrong."""
        return int(self.wrong.sum())

    @property
    def unit(self) -> str:
        """What is counted."""
        return "answers" if self.choice else "bits"

    @property
    def _answers_a_step(self) -> int:
        return 1 if self.choice else int(self.targets.shape[1])

    def heads_of(self, kind: str) -> list[HeadTrace]:
        """The read heads or the write heads."""
        return [head for head in self.heads if head.kind == kind]

    def errors_by_subtask(self) -> dict[str, tuple[int, int]]:
        """Wrong answers and answers that count of every subtask; empty for a task that has none."""
        width = self._answers_a_step
        wrong = self.wrong.sum(axis=1)
        mine = {name: self.counted & (self.subtask == index) for index, name in enumerate(self.subtasks)}
        return {name: (int(wrong[steps].sum()), int(steps.sum()) * width) for name, steps in mine.items()}

    def used_slots(self) -> tuple[int, int]:
        """The stretch of the tape to look at, a little more than the heads used: its first slot, and how many.

        The tape of an NTM is a ring: a stretch may go past the last slot to the first, and its first be negative.
        """
        slots = int(self.heads[0].address.shape[1])
        used = np.flatnonzero(np.max([head.address.max(axis=0) for head in self.heads], axis=0) > USED)
        if used.size == 0:
            return 0, slots
        gaps = np.diff(np.append(used, used[0] + slots))  # from each used slot to the next, once around
        widest = int(gaps.argmax())
        first, count = int(used[(widest + 1) % used.size]), slots - int(gaps[widest]) + 1
        return (first - MARGIN, count + 2 * MARGIN) if count + 2 * MARGIN < slots else (0, slots)

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


def from_trace(
    trace: Trace, logits: Tensor, batch: Batch, task: Task, control: Sequence[Head], names: Sequence[str]
) -> list[Execution]:
    """The executions of a batch, each cut to its own length; `control`: the memory's heads, `names`: one a sequence."""
    subtasks = task.subtask_names if isinstance(task, Sequencing) else ()
    answers = probabilities(logits, task)
    happened: Any = nested.apply(lambda part: part.detach().cpu().numpy(), trace)
    return [
        Execution(
            name=name,
            inputs=batch.inputs[:end, b],
            targets=batch.targets[:end, b],
            answers=answers[:end, b],
            counted=batch.mask[:end, b] > 0,
            decoding=int(batch.decoding[b]),
            subtask=batch.subtask[:end, b],
            subtasks=subtasks,
            heads=_heads(happened, control, b, end),
            controller=happened.controller[:end, b],
            memory=None if happened.memory is None else happened.memory[:end, b],
            choice=isinstance(task, Classification),
            words=task.choices if isinstance(task, Classification) else (),
            picture=task.picture if isinstance(task, Classification) else 0,
        )
        for b, (name, end) in enumerate(zip(names, batch.lengths.tolist(), strict=True))
    ]


def probabilities(logits: Tensor, task: Task) -> Array:
    """What the answers to a task mean: the probability of a 1, or of each choice."""
    choice = isinstance(task, Classification)
    answers: Array = (torch.softmax(logits, -1) if choice else torch.sigmoid(logits)).detach().cpu().numpy()
    return answers


def _heads(trace: Any, control: Sequence[Head], b: int, end: int) -> tuple[HeadTrace, ...]:
    """Heads by kind, numbered from 1; those that share a control head, as a DNC's read heads do, share its programs."""
    mixes = None if trace.programs is None else [trace.programs[:end, b, n] for n in range(len(control))]
    heads = []
    for kind, addresses in (("read", trace.read_addresses), ("write", trace.write_addresses)):
        places = [n for n, head in enumerate(control) if head.kind == kind]
        for k in range(addresses.shape[2]):
            programs = mixes[places[min(k, len(places) - 1)]] if mixes and places else None
            heads.append(HeadTrace(f"{kind} {k + 1}", kind, addresses[:end, b, k], programs))
    return tuple(heads)


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

    `extremes=False` leaves those two out; `name` goes in front of the sequences' own names.
    """
    at_least("samples", samples, 1)
    if isinstance(task, Continual):
        return [
            execution
            for phase, part in task.tasks.items()
            for execution in execute(machine, part, samples, seed, slots, memory, extremes, f"{phase}, ")
        ]
    pool = task.batch(seed, TEST, 0, max(POOL, samples) if extremes else samples)
    chosen = {b: f"{name}test sequence {b + 1}" for b in range(samples)}
    training = machine.training
    machine.eval()
    try:
        if extremes:
            best, worst = _extremes(probabilities(_run(machine, pool, slots, False)[0], task), pool)
            chosen = _named(chosen, best, f"{name}best of {POOL}")
            chosen = _named(chosen, worst, f"{name}worst of {POOL}")
        batch = select(pool, list(chosen))
        logits, trace = _run(machine, batch, slots, "memory" if memory else True)
    finally:
        machine.train(training)
    return from_trace(trace, logits, batch, task, machine.memory.heads, list(chosen.values()))


def _run(machine: Machine, batch: Batch, slots: int | None, trace: bool | str) -> tuple[Tensor, Any]:
    x = torch.from_numpy(batch.inputs).to(machine.initial_read.device)
    state = machine.initial_state(batch.mask.shape[1], slots)
    logits, _, *happened = machine(x, state, lengths=batch.lengths.tolist(), trace=trace)
    if not trace:
        return logits, None
    if happened[0].read_addresses.numel() == 0 and happened[0].write_addresses.numel() == 0:
        raise UserError("this machine has no memory heads: there is no execution to show")
    return logits, happened[0]


def select(batch: Batch, chosen: list[int]) -> Batch:
    """Some sequences of a batch, padded no further than the longest of them needs."""
    end = int(batch.lengths[chosen].max())
    parts = ("inputs", "targets", "mask", "subtask")
    cut = {name: np.ascontiguousarray(getattr(batch, name)[:end, chosen]) for name in parts}
    return batch._replace(lengths=batch.lengths[chosen], decoding=batch.decoding[chosen], **cut)


def _extremes(answers: Array, batch: Batch) -> tuple[int, int]:
    """The sequences with the smallest and with the largest share of wrong bits, by their doubt among equals."""
    counted = batch.mask[:, :, None] > 0
    distance = np.where(counted, np.abs(answers - batch.targets), 0.0)
    bits = np.maximum(batch.mask.sum(axis=0), 1) * batch.targets.shape[2]
    wrong, doubt = (distance > 0.5).sum(axis=(0, 2)) / bits, distance.sum(axis=(0, 2)) / bits
    order = np.lexsort((doubt, wrong))
    return int(order[0]), int(order[-1])


def _named(chosen: dict[int, str], index: int, name: str) -> dict[int, str]:
    """With one more sequence, or with one more name for a sequence that is there."""
    return {**chosen, index: f"{chosen[index]}, {name.split(', ')[-1]}" if index in chosen else name}
