"""nsm demo"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nsm.checks import at_least
from nsm.commands.terminal import console, progress_of

if TYPE_CHECKING:
    from nsm.machine import Trace
    from nsm.training.run import RunDirectory

ITERATIONS = 12_000
WATCHED = 30
"""The length at which the machine is watched: longer than it was trained on, and still easy to follow."""


@dataclass(frozen=True)
class Demo:
    """Train a neural universal Turing machine to copy, then test it at six times the length it was trained on.

    A minute or two. Ends with two pages: a report, and the machine at work.

    Example: nsm demo
    """

    seed: int = 0
    """Of the weights and of the sequences."""
    out: Path = Path("runs/demo")
    """The run's directory; a demo that was stopped goes on there."""

    def run(self) -> None:
        at_least("seed", self.seed, 0)
        import torch

        from nsm.experiments.recipes import recipe
        from nsm.tasks import with_ranges
        from nsm.training.evaluation import TEST, evaluate
        from nsm.training.loop import task_pair, train
        from nsm.training.run import RunDirectory

        torch.set_num_threads(1)
        say = console().print
        config = recipe("copy", "nutm", iterations=ITERATIONS, seed=self.seed)
        RunDirectory(self.out).check(config)
        machine = config.machine
        assert machine.memory is not None
        assert machine.programs is not None
        say(
            f"A controller of {machine.controller.size} units, a tape of {machine.memory.slots} slots, "
            f"{machine.programs.count} stored programs for each head.\n"
            "It sees sequences of 1 to 20 random bytes and learns to say them again from memory, from its errors alone."
        )
        with progress_of("copy", config.iterations) as report:
            result = train(config, self.out, report=report)
        trained = RunDirectory(self.out).machine()
        test = task_pair(config).test
        say(f"Trained: {result['steps']:,} iterations in {result['seconds']:.0f} s.")
        for length in (20, 120):
            figures = evaluate(trained, with_ranges(test, length=length), 200, self.seed).averages()
            bits = 8 * length
            say(
                f"Length {length:3}: {figures['bit_errors']:.2f} of {bits} bits wrong on average, "
                f"{figures['perfect']:.1%} of sequences without a single error."
            )
        batch = test.batch(self.seed, TEST, 0, 1)
        with torch.no_grad():
            _, _, trace = trained.eval()(torch.from_numpy(batch.inputs), trace=True)
        say(_in_words(trace, int(batch.decoding[0])))
        say(f"The run is in {self.out}; test it at any length with: nsm eval {self.out} --length 240 --slots 512")
        for words, path in _pages(RunDirectory(self.out)).items():
            say(f"{words}: {path}")


def _pages(run: RunDirectory) -> dict[str, Path]:
    """Write what was learned and what is done with it as pages, in the run's directory."""
    # Here, because figures take half a second to import, and training need not wait for that.
    from nsm.commands.pages import watch
    from nsm.reports.document import to_html
    from nsm.reports.output import write
    from nsm.reports.run_report import run_report

    pages = {"What it learned": run.path / "report.html", "Watch it work": run.path / "view.html"}
    write(pages["What it learned"], to_html(run_report(run, watch(run, samples=1)[0])).encode())
    write(pages["Watch it work"], watch(run, samples=2, ranges={"length": WATCHED})[1].encode())
    return pages


def _in_words(trace: Trace, decoding: int) -> str:
    """What the machine does at length 120, read off its trace."""
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
        # From step to step it may change a lot while its mean does not, so both are said.
        parts = mix[:decoding, 0], mix[decoding:, 0]
        phases = [f"{100 * part.mean():.0f} ± {100 * part.std():.0f} %" for part in parts]
        lines.append(
            f"While it {kind}, its head moves by {direction:+d} slot in {share:.0%} of {count} steps; "
            f"its {kind[:-1]} head takes program 1 to {phases[0]} while listening and to {phases[1]} while answering."
        )
    return "\n".join(lines)
