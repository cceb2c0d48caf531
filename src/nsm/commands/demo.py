"""nsm demo"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from nsm.checks import at_least
from nsm.screen import called, console

if TYPE_CHECKING:
    from nsm.machine import Trace
    from nsm.run import Run

ITERATIONS = 12_000
WATCHED = 30
"""Length of the watched sequences: longer than in training, and still easy to follow."""


@dataclass(frozen=True)
class Demo:
    """Train a neural universal Turing machine to copy, then test it at six times its training length.

    Takes a minute or two and writes two pages: a report, and a viewer of the trained machine.

    Example: nsm demo
    """

    seed: int = 0
    """Random seed for weights, data and noise."""
    out: Path = Path("runs/demo")
    """Directory of the run; a stopped demo resumes from it."""

    def run(self) -> None:
        at_least("seed", self.seed, 0)
        import torch

        from nsm.bar import ProgressBar
        from nsm.experiments import recipes
        from nsm.run import Run
        from nsm.training.evaluation import TEST
        from nsm.training.loop import Stop, train
        from nsm.training.signals import asked_by_signal

        say, run = console().print, Run(self.out)
        experiment = recipes.copy(seed=self.seed)
        experiment = replace(experiment, schedule=replace(experiment.schedule, iterations=ITERATIONS))
        run.check(experiment)
        machine = experiment.machine
        assert machine.memory is not None
        assert machine.programs is not None
        say(
            f"A controller of {machine.controller.size} units, a tape of {machine.memory.slots} slots, "
            f"{machine.programs.count} stored programs per head.\n"
            "It sees sequences of 1 to 20 random bytes and learns to repeat them from memory.\n"
            "This takes a minute or two."
        )
        stop = Stop()
        with asked_by_signal(stop):
            outcome = train(experiment, self.out, callbacks=[ProgressBar()], threads=1, stop=stop)
        say(f"Trained: {outcome.steps:,} iterations in {outcome.seconds:.0f} s.")
        torch.set_num_threads(1)
        for length in (20, 120):
            result, bits = run.test(sequences=200, length=length), 8 * length
            say(
                f"Length {length:3}: {result['bit_errors']:.2f} of {bits} bits wrong on average, "
                f"{result['perfect']:.1%} of sequences without an error."
            )
        trained, test = run.machine(), experiment.task.tested
        batch = test.batch(self.seed, TEST, 0, 1)
        with torch.no_grad():
            _, _, trace = trained(torch.from_numpy(batch.inputs), trace=True)
        say(_in_words(trace, int(batch.decoding[0])))
        say(f"The run is in {self.out}; test any length: {called()} eval {self.out} --length 240 --slots 512")
        for words, path in _pages(run).items():
            say(f"{words}: {path}")


def _pages(run: Run) -> dict[str, Path]:
    """Write the report and the viewer into the run's directory."""
    # Not at the top: figures take half a second to import.
    from nsm.reports.document import to_html
    from nsm.reports.output import write
    from nsm.reports.run_report import run_report

    pages = {"What it learned": run.path / "report.html", "Watch it work": run.path / "view.html"}
    write(pages["What it learned"], to_html(run_report(run, run.watch(samples=1)[0])).encode())
    write(pages["Watch it work"], run.watch(samples=2, length=WATCHED)[1].encode())
    return pages


def _in_words(trace: Trace, decoding: int) -> str:
    """What the machine does at length 120, from its trace."""
    assert trace.programs is not None
    lines = []
    for kind, head, addresses, (start, end) in (
        ("writes", 1, trace.write_addresses, (1, decoding)),
        ("reads", 0, trace.read_addresses, (decoding, len(trace.programs))),
    ):
        places = addresses[start:end, 0, 0].argmax(-1)
        steps = (places[1:] - places[:-1]) % addresses.shape[-1]
        move, count = steps.mode().values.item(), len(steps)
        share = (steps == move).float().mean().item()
        direction = move if move <= addresses.shape[-1] // 2 else move - addresses.shape[-1]
        mix = trace.programs[:, 0, head]
        # Weights may change a lot from step to step while their mean does not, so both are shown.
        parts = mix[:decoding, 0], mix[decoding:, 0]
        phases = [f"{part.mean():.2f} ± {part.std():.2f}" for part in parts]
        lines.append(
            f"While it {kind}, its {kind[:-1]} head moves by {direction:+d} slot in {share:.0%} of {count} steps; "
            f"this head uses program 1 with weight {phases[0]} during the input and "
            f"{phases[1]} during the answer."
        )
    return "\n".join(lines)
