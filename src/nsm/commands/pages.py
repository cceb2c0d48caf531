"""Pages that commands write: first of all a machine at work."""

from __future__ import annotations

from nsm.checks import UserError, at_least
from nsm.commands.ranges import Ranges, shown
from nsm.commands.sequences import check_room, sequences, settings_of
from nsm.reports.execution import POOL, Execution, execute
from nsm.reports.viewer import page
from nsm.tasks import Continual
from nsm.training.loop import model_name
from nsm.training.run import RunDirectory


def watch(
    run: RunDirectory,
    which: str = "best",
    samples: int = 3,
    seed: int | None = None,
    ranges: Ranges | None = None,
    slots: int | None = None,
    like: str = "test",
) -> tuple[list[Execution], str]:
    """Executions of a run's machine, and the page that shows them."""
    config = run.config()
    if config.machine.memory is None:
        raise UserError(f"the machine of {run.path} has no memory of a known kind: there is nothing to watch")
    test = sequences(config, like, ranges)
    machine, step = run.machine(which), run.checkpoint(which).step
    check_room(config.machine, test, max(POOL, samples), slots, samples)
    seed = config.seed if seed is None else at_least("seed", seed, 0)
    executions = execute(machine, test, samples, seed, slots)
    programs = config.machine.programs
    settings = [] if isinstance(test, Continual) else [shown(settings_of(test)).replace("_", " ")]
    facts = [
        "no stored programs" if programs is None else f"{programs.count} stored programs a head, {programs.attention}",
        f"{config.machine.controller.size} units ({config.machine.controller.kind})",
        f"{machine.parameter_count:,} parameters",
        f"{which} weights, iteration {step:,} of {config.iterations:,}",
        f"seed {config.seed}, tested with {seed}",
        *filter(None, settings),
    ]
    return executions, page(executions, f"{config.task}, {model_name(config.machine).upper()}", facts)
