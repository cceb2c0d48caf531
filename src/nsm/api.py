"""`nsm.train`, `nsm.open`, `nsm.view`: train a machine, open its run, watch it compute."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from nsm.checks import UserError
from nsm.experiments import recipes
from nsm.machine import Machine, MachineConfig
from nsm.reports.execution import from_input
from nsm.reports.viewer import Page, page
from nsm.run import Run
from nsm.tasks import Task
from nsm.training.callbacks import Callback
from nsm.training.experiment import Experiment, Optimiser, Schedule
from nsm.training.loop import train as train_experiment
from nsm.training.start import read, start_of


def train(
    what: str | Task | Experiment,
    machine: Machine | MachineConfig | None = None,
    *,
    out: str | Path | None = None,
    optimiser: Optimiser | None = None,
    schedule: Schedule | None = None,
    seed: int | None = None,
    start: str | Path | Machine | None = None,
    callbacks: Sequence[Callback] = (),
    backend: str = "auto",
    device: str = "cpu",
) -> Run:
    """Train a machine. An unfinished run in `out` is resumed, a finished one is opened.

    Args:
        what: the name of a recipe ("copy"), a task (nsm's or your own), or a complete `Experiment`.
        machine: the machine to train. Only its configuration is used: weights are random unless you also pass it as
            `start`. By default an `nsm.NUTM` that fits the task.
        out: directory of the run; by default runs/TASK-MODEL-SEED.
        optimiser: replaces the experiment's; for your own task the default is Adam, 1e-3.
        schedule: iterations, batch size and so on; replaces the experiment's.
        seed: random seed for weights, data and noise; replaces the experiment's.
        start: the source of the initial weights: the directory of a run or of a saved machine, or a machine.
        callbacks: `nsm.ProgressBar()`, `nsm.TensorBoard()`, your own `nsm.Callback`.
        backend: "auto", "reference" (plain PyTorch) or "fused" (CPU kernels).
        device: any PyTorch device; the fused backend runs on "cpu" only.

    Returns:
        The finished run. After Ctrl-C the same call resumes from the last checkpoint.

    Raises:
        UserError: an argument is wrong, or `out` holds a different run.
    """
    experiment = _experiment(what, machine)
    experiment = replace(
        experiment,
        optimiser=optimiser or experiment.optimiser,
        schedule=schedule or experiment.schedule,
        seed=experiment.seed if seed is None else seed,
    )
    named = f"{experiment.task.name}-{experiment.machine.model}-{experiment.seed}"
    path = Path("runs", named) if out is None else Path(out)
    begin = None if start is None else start_of(start) if isinstance(start, Machine) else read(Path(start))
    train_experiment(experiment, path, backend, device, callbacks, start=begin)
    return Run(path)


def _experiment(what: object, machine: object) -> Experiment:
    if isinstance(what, str | Task):
        what = (recipes.find(what) if isinstance(what, str) else recipes.own(what))()
    if not isinstance(what, Experiment):
        raise UserError(f"train takes the name of a recipe, a Task or an Experiment, was {type(what).__name__}")
    return what if machine is None else replace(what, machine=_config(machine))


def _config(machine: object) -> MachineConfig:
    config = machine.config if isinstance(machine, Machine) else machine
    if not isinstance(config, MachineConfig):
        raise UserError(f"machine must be a Machine or a MachineConfig, was {type(machine).__name__}")
    return replace(config, batch_first=False)


def open(path: str | Path) -> Run:
    """Open a run directory, finished or not, or the directory of a published machine under results/models."""
    run = Run(path)
    run.experiment  # noqa: B018 — raises the error if it is not a run
    return run


@torch.no_grad()
def view(machine: nn.Module, x: Tensor, *, out: str | Path | None = None, title: str = "", bits: bool = True) -> Page:
    """Watch a machine compute on your own input.

    Args:
        machine: a machine, or a larger model with one machine in it.
        x: the machine's input: (T, B, I), (B, T, I) with `batch_first`, or (T, I) for one sequence. For a larger model,
            the input of that model.
        out: file to write the page to; by default view.html, or none in a notebook.
        title: title of the page.
        bits: whether each output is the logit of a bit (True), or all outputs together are the logits of one choice.

    Returns:
        The page; a notebook displays it.
    """
    inside, seen = _seen(machine, x)
    training = inside.training
    inside.eval()
    try:
        logits, _, trace = inside(seen, trace="memory")
    finally:
        inside.train(training)
    executions = from_input(trace, logits, seen, inside.config.batch_first, not bits)
    name = title or type(inside).__name__
    where = None if out is None and _in_a_notebook() else Path(out or "view.html")
    facts = [f"{inside.parameter_count:,} parameters"]
    return Page(page(executions, name, facts, {type(inside).__name__: inside}), where)


def _seen(model: nn.Module, x: Tensor) -> tuple[Machine, Tensor]:
    """The machine inside a model, and the input that it gets when the model is called with x."""
    if isinstance(model, Machine):
        return model, x
    inside = [module for module in model.modules() if isinstance(module, Machine)]
    if len(inside) != 1:
        raise UserError(
            f"view needs a model that contains one machine, this one contains {len(inside)}: pass the machine itself"
        )
    given: list[Tensor] = []
    hook = inside[0].register_forward_pre_hook(lambda _, inputs: given.append(inputs[0]))
    training = model.training
    model.eval()
    try:
        model(x)
    finally:
        hook.remove()
        model.train(training)
    if not given or not isinstance(given[0], Tensor):
        raise UserError("the model did not call its machine with a tensor: pass the machine itself")
    return inside[0], given[0]


def _in_a_notebook() -> bool:
    return "ipykernel" in sys.modules
