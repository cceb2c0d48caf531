"""nsm train"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
import tyro

from nsm.checks import UserError, at_least, choose
from nsm.commands.terminal import console, progress_of
from nsm.experiments.machines import MODELS
from nsm.experiments.recipes import recipe
from nsm.machine import BACKENDS, PRESETS, MachineConfig
from nsm.training.config import RunConfig
from nsm.training.loop import train

MOST_HEADS = 32


@dataclass(frozen=True)
class Train:
    """Train a machine on a task. A run that was stopped goes on when the same command is given again.

    What is not given comes from the recipe of the task, the model and the preset.
    Example: nsm train copy --model nutm --programs 2 --seed 0 --out runs/copy
    """

    task: tyro.conf.Positional[str]
    """copy, long-copy, repeat-copy, associative-recall, ngrams, priority-sort, continual, or several joined by +."""
    model: str = "nutm"
    """ntm (static interface) or nutm (stored programs)."""
    preset: str = "default"
    """default (learns reliably), paper (its settings) or authors (the published code's)."""
    out: Path | None = None
    """The run's directory; runs/TASK-MODEL-SEED if not given."""
    seed: int = 0
    iterations: int | None = None
    batch_size: int | None = None
    programs: int | None = None
    """P, stored programs per head (nutm)."""
    attention: str | None = None
    """How programs are chosen: key-value, direct, uniform or gumbel (nutm)."""
    key_size: int | None = None
    """K, the width of a program's key (nutm)."""
    temperature: float | None = None
    """Temperature of gumbel attention (nutm)."""
    controller: str | None = None
    """lstm, gru, rnn or feed-forward."""
    size: int | None = None
    """n, the controller's size."""
    slots: int | None = None
    """N, the number of memory slots."""
    width: int | None = None
    """M, the width of a slot."""
    heads: int | None = None
    """Pairs of read and write heads."""
    shift_range: int | None = None
    """How far a head can move in a step."""
    order: str | None = None
    """read-first or write-first."""
    initial_memory: str | None = None
    """constant or random."""
    initial_address: str | None = None
    """one-hot, zeros or uniform."""
    interface_fan: str | None = None
    """Initial interface weights: head (large) or memory (small)."""
    optimiser: str | None = None
    """rmsprop or adam."""
    learning_rate: float | None = None
    final_rate: float | None = None
    """The learning rate falls linearly to this share of itself."""
    alpha: float | None = None
    momentum: float | None = None
    beta2: float | None = None
    epsilon: float | None = None
    clip: float | None = None
    """Gradients are clipped by value at ± this."""
    protocol: str | None = None
    """paper, or authors for the published normalisation of repeat counts."""
    ragged: bool | None = None
    """Lengths drawn per sequence (True) or once per batch (False)."""
    random_slots: bool | None = None
    """Draw the tape's size afresh for every batch."""
    cell_noise: float | None = None
    """Deviation of the noise on the LSTM's cell."""
    key_loss: float | None = None
    """η_0, the weight of the loss on keys."""
    key_loss_decay: float | None = None
    log_every: int | None = None
    evaluate_every: int | None = None
    evaluate_sequences: int | None = None
    test_sequences: int | None = None
    checkpoint_every: int | None = None
    keep_checkpoints: int | None = None
    solved_loss: float | None = None
    stop_when_solved: int | None = None
    """Stop after this many solved evaluations in a row."""
    backend: str = "auto"
    """auto, reference or fused."""
    device: str = "cpu"
    """Any torch device, for the reference back end."""
    threads: int = 1
    """Threads of torch."""
    tensorboard: bool = False
    """Also write TensorBoard events into the run's directory (needs nsm[tensorboard])."""
    json: bool = False
    """Print the result as JSON."""

    def config(self) -> RunConfig:
        """The resolved configuration."""
        choose("model", self.model, MODELS)
        choose("preset", self.preset, PRESETS)
        choose("backend", self.backend, BACKENDS)
        if self.heads is not None and self.heads > MOST_HEADS:
            raise UserError(f"heads must be at most {MOST_HEADS}, was {self.heads}")
        config = recipe(self.task, self.model, self.preset)
        own = {f.name for f in fields(RunConfig)} - {"task", "machine", "optimiser", "preset", "seed"}
        optimiser = self._given(
            {"optimiser": "kind"} | {f.name: f.name for f in fields(config.optimiser) if f.name != "kind"}
        )
        return replace(
            config,
            seed=self.seed,
            machine=self._machine(config.machine),
            optimiser=replace(config.optimiser, **optimiser),
            **self._given({name: name for name in own}),
        )

    def _machine(self, machine: MachineConfig) -> MachineConfig:
        controller = self._given({"controller": "kind", "size": "size"})
        memory = self._given({n: n for n in ("slots", "width", "shift_range", "order", "initial_memory")})
        memory |= self._given({"initial_address": "initial_address"})
        if self.heads is not None:
            memory |= {"read_heads": self.heads, "write_heads": self.heads}
        programs = self._given({"programs": "count"} | {n: n for n in ("attention", "key_size", "temperature")})
        if programs and machine.programs is None:
            raise UserError(f"{', '.join(f'--{name}' for name in programs)} needs --model nutm, was {self.model}")
        if "count" in programs and machine.programs is not None and machine.programs.strength_scale != 1:
            programs.setdefault("strength_scale", 1 / (self.key_size or self.programs or 1))
        return replace(
            machine,
            controller=replace(machine.controller, **controller),
            memory=replace(machine.memory, **memory),  # type: ignore[type-var]
            programs=replace(machine.programs, **programs) if machine.programs else None,
            interface=replace(machine.interface, **self._given({"interface_fan": "fan"})),
        )

    def _given(self, names: dict[str, str]) -> dict[str, Any]:
        """The options that were given, under the names their configuration has for them."""
        return {theirs: getattr(self, ours) for ours, theirs in names.items() if getattr(self, ours) is not None}

    def run(self) -> None:
        torch.set_num_threads(at_least("threads", self.threads, 1))
        config = self.config()
        out = self.out or Path("runs") / f"{self.task}-{self.model}-{self.seed}"
        with progress_of(f"{self.task} {self.model}", config.iterations, quiet=self.json) as report:
            result = train(config, out, self.backend, self.device, report)
        if self.tensorboard:
            from nsm.training.tensorboard import write_events

            write_events(out)
        if self.json:
            print(json.dumps(result, indent=2))
            return
        describe(result, out)


def describe(result: dict[str, Any], out: Path) -> None:
    """A result in plain words."""
    say = console().print
    solved = "not solved" if result["solved_step"] is None else f"solved at iteration {result['solved_step']:,}"
    say(f"{result['task']}, {result['model']}: {result['steps']:,} iterations in {result['seconds']:.0f} s, {solved}.")
    if "phases" in result:
        for phase in result["phases"]:
            say("  " + ", ".join(f"{task} {accuracy:.1%}" for task, accuracy in phase.items()))
    else:
        best = result["best"]
        say(
            f"On {best['sequences']:,.0f} test sequences: {best['bit_errors']:.2f} wrong bits per sequence, "
            f"{best['perfect']:.1%} without any."
        )
    say(f"The run is in {out}.")
