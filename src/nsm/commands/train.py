"""nsm train"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from nsm.checks import UserError, choose, thread_count
from nsm.commands.data import DataDir
from nsm.commands.terminal import by_presentation, by_task, console, option, progress_of
from nsm.data.source import look_in
from nsm.names import BACKENDS, PRESETS

if TYPE_CHECKING:
    from nsm.machine import MachineConfig
    from nsm.training.config import RunConfig
    from nsm.training.start import Start

MOST_HEADS = 32
MEMORY_OPTIONS = (
    *("slots", "width", "shift_range", "order", "initial_memory", "initial_address", "decay", "least_used"),
)

Int = Annotated[int | None, option("INT", "the recipe's")]
Str = Annotated[str | None, option("STR", "the recipe's")]
Float = Annotated[float | None, option("FLOAT", "the recipe's")]
Bool = Annotated[bool | None, option("{True,False}", "the recipe's")]
"""Options that only replace a value of the recipe when they are given."""


@dataclass(frozen=True)
class Train:
    """Train a machine on a task. A run that was stopped goes on when the same command is given again.

    What is not given comes from the recipe of the task, the model and the preset. Ends with code 1 if the loss or a
    weight is no longer a number, 75 if the run was stopped.

    Example: nsm train copy --model nutm --programs 2 --seed 0 --out runs/copy

    On two processes: torchrun --standalone --nproc-per-node 2 -m nsm train copy --batch-size 16 --out runs/copy-16
    """

    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")]
    """copy, long-copy, repeat-copy, associative-recall, ngrams, priority-sort, continual, omniglot-5, omniglot-10,
    babi, or several of the first ones joined by +."""
    tasks: Annotated[str | None, option("N,N,…", "all 20")] = None
    """babi: which of its tasks, like 1,4,11."""
    model: str = "nutm"
    """nutm (stored programs), or with a static interface ntm, which is mann for omniglot and dnc for babi."""
    preset: str = "default"
    """default (learns reliably), paper (its settings) or authors (the published code's)."""
    out: Annotated[Path | None, option("PATH", "runs/TASK-MODEL-SEED")] = None
    """The run's directory."""
    seed: int = 0
    """Of the weights, the batches and the noise."""
    start: Annotated[Path | None, option("PATH", "a new one")] = None
    """Begin with the best machine of this run, or with one that was saved; it keeps its options but for those given."""
    iterations: Int = None
    """Updates, one batch each."""
    batch_size: Int = None
    """Sequences per update."""
    programs: Int = None
    """P, stored programs per head (nutm)."""
    attention: Str = None
    """How programs are chosen: key-value, direct, uniform or gumbel (nutm)."""
    key_size: Int = None
    """K, the width of a program's key (nutm)."""
    temperature: Float = None
    """Temperature of gumbel attention (nutm)."""
    controller: Str = None
    """lstm, gru, rnn or feed-forward."""
    size: Int = None
    """n, the controller's size."""
    slots: Int = None
    """N, the number of memory slots."""
    width: Int = None
    """M, the width of a slot."""
    heads: Int = None
    """Pairs of read and write heads; of a DNC, which has one write head, read heads."""
    shift_range: Int = None
    """How far a head can move in a step."""
    order: Str = None
    """read-first or write-first."""
    initial_memory: Str = None
    """constant or random."""
    initial_address: Str = None
    """one-hot, zeros or uniform."""
    decay: Float = None
    """γ, how much of a slot's usage is left after a step (omniglot)."""
    least_used: Int = None
    """How many slots count as least used (omniglot)."""
    input_gain: Float = None
    """How many times larger the weights of the input start."""
    forget_bias: Float = None
    """What the forget gates of an LSTM start at."""
    interface_keys: Str = None
    """Initial weights of content keys: own, or written, those of what is written (LRUA, DNC)."""
    sharpness: Float = None
    """Added to the strengths of content addressing at the start (DNC)."""
    interface_fan: Str = None
    """Initial interface weights: head (large) or memory (small)."""
    optimiser: Str = None
    """rmsprop or adam."""
    learning_rate: Float = None
    """Of the first update."""
    final_rate: Float = None
    """The learning rate falls linearly to this share of itself."""
    alpha: Float = None
    """RMSprop: how much of the mean square is kept."""
    momentum: Float = None
    """RMSprop: momentum. Adam: β₁."""
    beta2: Float = None
    """Adam: β₂."""
    epsilon: Float = None
    """Added to the root of the mean square."""
    clip: Float = None
    """Gradients are clipped by value at ± this."""
    protocol: Str = None
    """paper, or authors for the published normalisation of repeat counts."""
    ragged: Bool = None
    """Lengths drawn per sequence (True) or once per batch (False)."""
    random_slots: Bool = None
    """Draw the tape's size afresh for every batch."""
    cell_noise: Float = None
    """Deviation of the noise on the LSTM's cell."""
    easy_steps: Int = None
    """For how many iterations easy episodes are mixed in (omniglot)."""
    curriculum: Bool = None
    """One look-up task first, then all, drawn by the error that is left on each (babi)."""
    persistent: Bool = None
    """Memory goes from each batch to the next."""
    wiped_steps: Int = None
    """For how many iterations persistent memory is wiped nevertheless."""
    key_loss: Float = None
    """η_0, the weight of the loss on keys; 0 with --start."""
    key_loss_decay: Float = None
    """η falls by this factor each iteration."""
    log_every: Int = None
    """Iterations between two lines of metrics."""
    evaluate_every: Int = None
    """Iterations between two looks at held-out sequences."""
    evaluate_sequences: Int = None
    """How many held-out sequences."""
    follow_test: Bool = None
    """Look at as many test sequences, too."""
    test_sequences: Int = None
    """How many test sequences at the end."""
    checkpoint_every: Int = None
    """Iterations between two checkpoints."""
    keep_checkpoints: Int = None
    """How many of the newest are kept, beside the best."""
    solved_loss: Float = None
    """A held-out loss below this counts as solved."""
    stop_when_solved: Int = None
    """Stop after this many solved evaluations in a row."""
    rewind: Float = None
    """When the held-out loss is this much above the best, go on from the best machine; 0: never."""
    data_dir: DataDir = None
    """Where data sets lie; see nsm data."""
    backend: str = "auto"
    """auto, reference or fused."""
    device: str = "cpu"
    """Any torch device, for the reference back end; under torchrun, cuda is one GPU for each process."""
    threads: int = 1
    """Threads of the kernels, for batches above 8; of torch in the reference."""
    tensorboard: bool = False
    """Also write TensorBoard events into the run's directory (needs nsm[tensorboard])."""
    json: bool = False
    """Print the result as JSON."""

    def check(self) -> None:
        """Raise a UserError for what can be known to be wrong without torch."""
        from nsm.experiments.models import models

        thread_count(self.threads)
        choose("preset", self.preset, PRESETS)
        choose("backend", self.backend, BACKENDS)
        choose("model", self.model, models(self._task))
        if self.heads is not None and self.heads > MOST_HEADS:
            raise UserError(f"heads must be at most {MOST_HEADS}, was {self.heads}")

    def config(self, start: Start | None = None) -> RunConfig:
        """The resolved configuration; the machine's is that of `start`, if there is one, but for what was given."""
        from nsm.experiments.recipes import recipe
        from nsm.training.config import RunConfig
        from nsm.training.loop import model_name

        config = recipe(self._task, self.model, self.preset, self.programs)
        if start is not None and (model := model_name(start.machine)) != model_name(config.machine):
            raise UserError(f"--model must be {model} like the machine of {start.place}, was {self.model}")
        machine = self._machine(config.machine if start is None else start.machine)
        others = {"task", "machine", "optimiser", "preset", "seed", "start", "world_size"}
        own = {f.name for f in fields(RunConfig)} - others
        given = self._given({name: name for name in own})
        if machine.controller.kind != "lstm":
            given.setdefault("cell_noise", 0.0)  # a recipe's noise is meant for its own controller
        if start is not None:
            # Keys of a trained machine are where its programs are looked for: to push them apart again is to lose it.
            given.setdefault("key_loss", 0.0)
        optimiser = self._given(
            {"optimiser": "kind"} | {f.name: f.name for f in fields(config.optimiser) if f.name != "kind"}
        )
        optimiser_config = replace(config.optimiser, **optimiser)
        return replace(config, seed=self.seed, machine=machine, optimiser=optimiser_config, **given)

    @property
    def _task(self) -> str:
        """The task's full name."""
        from nsm.tasks import babi

        if self.tasks is None:
            return self.task
        if self.task != babi.NAME:
            raise UserError(f"--tasks chooses from those of {babi.NAME}, the task was {self.task!r}")
        return f"{babi.NAME}-{self.tasks}"

    def _machine(self, machine: MachineConfig) -> MachineConfig:
        from nsm.memories import DNC

        names = {"controller": "kind", "size": "size", "input_gain": "input_gain", "forget_bias": "forget_bias"}
        controller = self._given(names)
        interface = self._given({"interface_fan": "fan", "interface_keys": "keys", "sharpness": "sharpness"})
        memory = self._given({name: name for name in MEMORY_OPTIONS})
        for name in memory.keys() - {f.name for f in fields(machine.memory)}:  # type: ignore[arg-type]
            kind = type(machine.memory).__name__
            article = "a" if kind == "DNC" else "an"
            raise UserError(
                f"--{name.replace('_', '-')} does not apply to {self.task}, whose memory is {article} {kind}"
            )
        if self.heads is not None:
            both = {"read_heads": self.heads, "write_heads": self.heads}
            memory |= {"read_heads": self.heads} if isinstance(machine.memory, DNC) else both
        names = {"programs": "count"} | {name: name for name in ("attention", "key_size", "temperature")}
        given = self._given(names)
        programs = machine.programs
        if given and programs is None:
            options = ", ".join(f"--{ours.replace('_', '-')}" for ours, theirs in names.items() if theirs in given)
            raise UserError(f"{options} needs --model nutm, was {self.model}")
        if programs is not None:
            scaled = programs.strength_scale != 1  # to 1/K, in the authors' preset
            programs = replace(programs, **given)
            programs = replace(programs, strength_scale=1 / programs.keys) if scaled else programs
        return replace(
            machine,
            controller=replace(machine.controller, **controller),
            memory=replace(machine.memory, **memory),  # type: ignore[type-var]
            programs=programs,
            interface=replace(machine.interface, **interface),
        )

    def _given(self, names: dict[str, str]) -> dict[str, Any]:
        """The options that were given, under the names their configuration has for them."""
        return {theirs: getattr(self, ours) for ours, theirs in names.items() if getattr(self, ours) is not None}

    def run(self) -> None:
        look_in(self.data_dir)
        self.check()
        from nsm.training import tensorboard as events
        from nsm.training.distribution import joined
        from nsm.training.loop import train
        from nsm.training.start import read

        start = None if self.start is None else read(self.start)
        config = self.config(start)
        if self.tensorboard:
            events.require()  # now, not when the training is done
        out = self.out or Path("runs") / f"{config.task}-{self.model}-{self.seed}"
        with joined(self.device) as ranks:
            config = replace(config, world_size=ranks.size)
            quiet = self.json or not ranks.leads
            with progress_of(f"{config.task} {self.model}", config.iterations, quiet) as report:
                result = train(config, out, self.backend, self.device, report, self.threads, ranks, start)
            if not ranks.leads:
                return
        if self.tensorboard:
            events.write_events(out)
        if self.json:
            print(json.dumps(result, indent=2))
            return
        describe(result, out)


def describe(result: dict[str, Any], out: Path) -> None:
    """A result in plain words."""
    from nsm.experiments.results import solves

    say = console().print
    words = {True: f", solved at iteration {result['solved_step'] or 0:,}", False: ", not solved", None: ""}
    solved = words[solves(result, None)]
    say(f"{result['task']}, {result['model']}: {result['steps']:,} iterations in {result['seconds']:.0f} s{solved}.")
    if "phases" in result:
        for phase in result["phases"]:
            say("  " + ", ".join(f"{task} {accuracy:.1%}" for task, accuracy in phase.items()))
    else:
        best = result["best"]
        if "optimum_bits" in best:
            bits, optimum = best["cross_entropy_bits"], best["optimum_bits"]
            figures = f"{bits:.2f} bits of cross-entropy per sequence, {optimum:.2f} being the best possible"
        elif "bit_errors" in best:
            figures = f"{best['bit_errors']:.2f} wrong bits per sequence, {best['perfect']:.1%} without any"
        else:
            figures = f"{best['error']:.2%} of answers wrong{by_presentation(best)}{by_task(best)}"
        say(f"On {best['sequences']:,.0f} test sequences: {figures}.")
    for note in result.get("notes", ()):
        say(f"Note: {note}.")
    say(f"The run is in {out}.")
