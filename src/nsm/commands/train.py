"""nsm train: its options are the fields of the experiment that a task's recipe returns; nothing is written twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, make_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from nsm.checks import UserError, choose, thread_count
from nsm.commands.near import parse, parse_known
from nsm.commands.options import DataDir, Integer, Plugins, load_plugins, option
from nsm.data.source import look_in
from nsm.experiments.choice import Choice, MemoryName
from nsm.names import BACKENDS, RECIPES, SUBTASKS
from nsm.screen import console

if TYPE_CHECKING:
    from nsm.experiments.choice import Recipe
    from nsm.training.experiment import Experiment
    from nsm.training.result import Outcome
    from nsm.training.start import Start

MACHINE = ("controller", "memory", "programs", "interface", "repertoire")
"""The parts of a machine that have options; its input and output size follow from the task."""

CONFIG = (tyro.conf.AvoidSubcommands, tyro.conf.FlagCreatePairsOff)
"""The kind of memory is fixed by the tree, and a switch is `--json`, without `--no-json`."""


def _prefix(name: str) -> Any:
    """The prefix of a part's options; "": no prefix."""
    return tyro.conf.arg(name=name)


@dataclass(frozen=True)
class Asked(Choice):
    """The arguments of a recipe, with the defaults of two in words."""

    memory: Annotated[MemoryName | None, option("{ntm,lrua,dnc}", "as in the paper")] = None
    programs: Annotated[Integer, option("INT", "as in the paper")] = None


@dataclass(frozen=True)
class Running:
    """How and where a run is trained; nothing here changes its outcome."""

    out: Annotated[Path | None, option("PATH", "runs/TASK-MODEL-SEED")] = None
    """Directory of the run."""
    start: Annotated[Path | None, option("PATH", "random weights")] = None
    """Start from the best machine of this run, or from a saved machine; its options are kept unless given here."""
    dry_run: bool = False
    """Print the whole experiment as JSON without training."""
    data_dir: DataDir = None
    """Directory of the data sets; see nsm data."""
    backend: str = "auto"
    """auto, reference (plain PyTorch) or fused (CPU kernels)."""
    device: str = "cpu"
    """Any PyTorch device (reference backend); under torchrun, cuda means one GPU per process."""
    threads: int = 1
    """Threads: of the kernels (used for batches above 8), or of PyTorch in the reference."""
    tensorboard: bool = False
    """Write TensorBoard events to the directory of the run."""
    wandb: Annotated[str | None, option("PROJECT", "none")] = None
    """Send metrics to this Weights & Biases project."""
    imports: Plugins = ()
    """Modules with your own tasks or memories, imported first."""
    json: bool = False
    """Print the result as JSON."""

    def check(self) -> None:
        """Check all that can be checked without the tree."""
        thread_count(self.threads)
        choose("backend", self.backend, BACKENDS)
        look_in(self.data_dir)
        load_plugins(self.imports)

    def train(self, recipe: Recipe, experiment: Experiment, start: Start | None) -> None:
        from nsm.bar import ProgressBar
        from nsm.training import callbacks
        from nsm.training.distribution import joined
        from nsm.training.loop import Stop, train
        from nsm.training.signals import asked_by_signal
        from nsm.tree import to_json

        if self.dry_run:
            experiment.check()
            print(json.dumps(to_json(experiment), indent=2))
            return
        watching: list[callbacks.Callback] = [callbacks.TensorBoard()] if self.tensorboard else []
        watching += [callbacks.WeightsAndBiases(project=self.wandb)] if self.wandb is not None else []
        out = self.out or Path("runs", f"{recipe.name}-{experiment.machine.model}-{experiment.seed}")
        with joined(self.device) as ranks:
            experiment = replace(experiment, processes=ranks.size)
            stop = Stop(ranks)
            with asked_by_signal(stop):
                watching = watching if self.json else [ProgressBar(), *watching]
                outcome = train(experiment, out, self.backend, self.device, watching, self.threads, ranks, start, stop)
            if not ranks.leads:
                return
        if self.json:
            print(json.dumps(to_json(outcome), indent=2))
            return
        for line in describe(experiment, outcome):
            console().print(line)
        console().print(f"The run is in {out}.")


@dataclass(frozen=True)
class Train:
    """Train a machine on a task. The same command resumes a run that was stopped.

    nsm train TASK --help lists every option of that task's experiment with its default. After a few seconds an estimate
    of the training time is printed. Ends with code 1 if the loss or a weight is not finite, 75 if the run was stopped.

    copy+repeat-copy is a sequence of two tasks, omniglot-10 has 10 classes, babi-1,4 is tasks 1 and 4 of bAbI, and
    my_tasks:Reverse is a task of your own.

    Example: nsm train copy --model nutm --programs 2 --seed 0 --out runs/copy

    On two processes: torchrun --standalone --nproc-per-node 2 -m nsm train copy --batch-size 16 --out runs/copy-16
    """

    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")]
    """copy, long-copy, repeat-copy, associative-recall, ngrams, priority-sort, continual, omniglot or babi."""
    running: Annotated[Running, _prefix("")] = Running()


def main(arguments: list[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help"):
        parse(Train, "nsm train", arguments, None, *CONFIG)
    name, rest = arguments[0], arguments[1:]
    command = f"nsm train {name}"
    _check_name(name)
    # First the arguments of the recipe, which decide the tree; then all options, with the tree's values as defaults.
    asked = [argument for argument in rest if argument not in ("-h", "--help")]
    first, _ = parse_known(_options(), command, asked, None, *CONFIG)
    first.running.check()
    from nsm.experiments import recipes

    recipe = recipes.find(name)
    own = parse_known(_options(recipe), command, asked, None, *CONFIG)[0].own
    experiment, start = recipe(**vars(first.choice), **vars(own)), None
    if first.running.start is not None:
        from nsm.training.start import read

        start = read(first.running.start)
        experiment = _starting(experiment, start, first.choice)
    given = parse(_options(recipe, experiment), command, rest, recipe.__doc__, *CONFIG)
    first.running.train(recipe, _changed(experiment, given), start)


def _check_name(name: str) -> None:
    """Refuse an unknown task; a module that the user names is imported."""
    if name.startswith("-"):
        raise UserError("the task comes first: nsm train TASK …")
    if ":" in name:
        load_plugins((name.partition(":")[0],))
    elif "+" in name:
        for part in name.split("+"):
            if part != "ngrams":  # the recipe says why not
                choose("subtask", part, SUBTASKS)
    elif name.partition("-")[0] not in ("omniglot", "babi"):
        choose("task", name, RECIPES)


def _options(recipe: Recipe | None = None, experiment: Experiment | None = None) -> type[Any]:
    """A class with a field for each part that has options: of every recipe, of this one, and of the tree."""
    parts: list[tuple[str, Any, Any]] = [
        ("choice", Annotated[Asked, _prefix("")], Asked()),
        ("running", Annotated[Running, _prefix("")], Running()),
    ]
    if recipe is not None:
        own = [
            (parameter, Annotated[kind, tyro.conf.arg(help=words)], field(default=value))
            for parameter, kind, words, value in recipe.own
        ]
        kind = make_dataclass("own", own, frozen=True)
        parts.insert(1, ("own", Annotated[kind, _prefix(""), tyro.conf.FlagConversionOff], kind()))
    if experiment is not None:
        tree = {
            "schedule": (experiment.schedule, ""),
            "optimiser": (experiment.optimiser, "optimiser"),
            "task": (experiment.task, "task"),
        } | {part: (getattr(experiment.machine, part), part) for part in MACHINE}
        for part, (value, prefix) in tree.items():
            if value is not None:
                node: Any = Annotated[type(value), _prefix(prefix), tyro.conf.FlagConversionOff]
                parts.append((f"{part}_options", node, value))
    return make_dataclass("options", [(name, kind, field(default=value)) for name, kind, value in parts], frozen=True)


def _starting(experiment: Experiment, start: Start, choice: Choice) -> Experiment:
    """An experiment that starts from a trained machine, which keeps its own options."""
    ours, theirs = experiment.machine, start.machine
    differing = {
        "model": (ours.model, theirs.model),
        "memory": (type(ours.memory).__name__.lower(), type(theirs.memory).__name__.lower()),
        "programs": tuple(machine.programs.count if machine.programs else 0 for machine in (ours, theirs)),
    }
    for name, (here, there) in differing.items():
        if here != there and (name == "model" or getattr(choice, name) is not None):
            raise UserError(f"--{name} must be {there}, as in the machine of {start.path}, was {here}")
    if ours.repertoire is not None and theirs.repertoire is None:
        raise UserError(f"--growing must be False: {start.path} has a single machine, which can't grow")
    # The loss on keys would push the keys of a trained machine apart, and its programs would be lost.
    schedule = replace(experiment.schedule, key_loss=0.0)
    return replace(experiment, machine=start.machine, schedule=schedule, start=start.digest)


def _changed(experiment: Experiment, given: Any) -> Experiment:
    """The experiment with the given options; a new machine has as many channels as its task."""
    task = given.task_options
    parts: dict[str, Any] = {part: getattr(given, f"{part}_options", None) for part in MACHINE}
    if experiment.start is None:
        parts |= {"input_size": task.input_size, "output_size": task.output_size}
    return replace(
        experiment,
        task=task,
        machine=replace(experiment.machine, **parts),
        optimiser=given.optimiser_options,
        schedule=given.schedule_options,
    )


def describe(experiment: Experiment, outcome: Outcome) -> Iterator[str]:
    """How a run ended, in words."""
    from nsm.training.result import solves

    words = {True: f", solved at iteration {outcome.solved_step or 0:,}", False: ", not solved", None: ""}
    solved = words[solves(experiment.task, outcome, None)]
    yield f"{experiment.name}: {outcome.steps:,} iterations in {outcome.seconds:.0f} s{solved}."
    for phase in outcome.phases:
        yield "  " + ", ".join(f"{task} {accuracy:.1%}" for task, accuracy in phase.items())
    if outcome.best is not None:
        figures = outcome.best.figures
        yield f"On {figures['sequences']:,.0f} test sequences: {experiment.task.tested.sentence(figures)}."
    for note in outcome.notes:
        yield f"Note: {note}."
