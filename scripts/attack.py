"""Give `nsm` thousands of invalid files and arguments, and count what must never happen.

Everything that nsm reads is mutated: run directories, kept results, saved machines, archives of data sets, stories and
command lines. A case is a mutation and a command that meets it, run by `nsm.cli.main` in a process of its own, which is
forked from one that has all of nsm loaded and so starts in milliseconds. Case N of a seed is the same case whatever
other cases are run, and `--case N` runs it alone and shows what was said.

Four things are counted, and each must be 0:

- **tracebacks**: an exception that leaves `main`, a traceback on standard error, an exit code that
  docs/reference/commands.md does not list, or a process that dies. (`nsm.load` may raise a UserError.)
- **hangs**: a command that takes longer than `--seconds`. Work that the case asks for in so many words, say 10¹² test
  sequences, may run forever, but must end when Ctrl-C is pressed once or twice.
- **over memory**: a process that has grown by more than `--memory` MiB at its peak.
- **changed outputs**: exit code 0, and other numbers than the unharmed file gives.

What counts as changed: whatever is done to a file that nsm wrote, be it damage, an edit or another run's file in its
place, the numbers must be those of the unharmed files, or, of a run, those of another of its checkpoints if standard
error says that it took another. Not counted are mutations whose author also made the digest anew: that vouches for the
bytes and not for who wrote them. These, and stories, archives and arguments, which are the input itself, may give any
numbers, but no traceback. Times that a run took are left out of comparisons.

Example: python scripts/attack.py --cases 5000
"""

from __future__ import annotations

import collections
import gc
import itertools
import random
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, NamedTuple

import tyro

from nsm.cli import FAILED, INTERRUPTED, MISTAKE, STOPPED, UNREAD
from nsm.training import checkpoints

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests")]

from attack_cases import EVAL, KINDS, TURNS  # noqa: E402
from attack_child import Child, Ending, run  # noqa: E402
from attack_world import Attempt, World  # noqa: E402

EXITS = (0, FAILED, MISTAKE, UNREAD)
EXITS_IF_STOPPED = (*EXITS, INTERRUPTED, STOPPED)
INSTEAD = ("trying the checkpoint before it", "instead of the best")
"""What nsm says when it takes another checkpoint than the one that is damaged."""


class Failure(NamedTuple):
    """What must never happen."""

    what: str
    number: int
    attempt: Attempt
    reason: str


# --- verdicts ---------------------------------------------------------------------------------------------------------

TIMES = re.compile(r'"[a-z_]*seconds": [^,\n}]*')


class Attack:
    """Runs cases, and keeps the failures."""

    def __init__(
        self, scratch: Path, seed: int = 0, seconds: float = 60.0, memory: int = 1024, keep: bool = False
    ) -> None:
        self.scratch, self.seed, self.seconds, self.memory, self.keep = scratch, seed, seconds, memory << 20, keep
        self.world = World(scratch / "world")
        self.refused = self.accepted = self.count = 0
        self.failures: list[Failure] = []
        self.numbers: dict[tuple[tuple[str, ...], str], list[str]] = {}
        gc.collect()
        self.base = self.unharmed(EVAL, "run").peak

    def prepare(self, number: int) -> Child:
        """Make the files of a case."""
        place = self.scratch / f"case-{number}"
        (place / "work").mkdir(parents=True)
        kind = KINDS[TURNS[number % len(TURNS)]]
        return Child(
            number, kind(self.world, place / "work", random.Random(f"{self.seed}/{number}")), place, self.seconds
        )

    def unharmed(self, command: tuple[str, ...], source: str, without: int | None = None) -> Ending:
        """How a command ends that meets what nobody harmed, `without` a checkpoint or with all."""
        place = Path(tempfile.mkdtemp(dir=self.scratch))
        copy = self.world.copy(source, place / "work", "run" if source == "half" else source)
        if without is not None:
            shutil.rmtree(checkpoints.path(copy / "checkpoints", without))
        child = Child(-1, Attempt("unharmed", command), place, 10 * self.seconds)
        (ending,) = (ending for _, ending in run([child], 1))
        shutil.rmtree(place)
        if ending.code != 0:
            raise RuntimeError(f"nsm {' '.join(command)} fails by itself: {ending.err}")
        return ending

    def run(self, children: Iterable[Child], workers: int = 2) -> None:
        """Run cases, and judge how they end."""
        for child, ending in run(children, workers):
            self.judge(child, ending)

    def judge(self, child: Child, ending: Ending) -> None:
        """Note what must never happen."""
        attempt, found = child.attempt, []
        exits = EXITS_IF_STOPPED if child.stopped else EXITS
        if child.late:
            found.append(("hang", f"{' '.join(attempt.command)[:60]} took longer than {child.seconds:g} s"))
        elif ending.error is not None and not child.killed:
            found.append(("traceback", f"{ending.where}: {ending.error}"))
        elif (not child.killed and ending.code not in exits) or "Traceback (most recent call last)" in ending.err:
            found.append(("traceback", f"exit code {ending.code}: {ending.err[-200:].strip()}"))
        if (grown := ending.peak - self.base) > self.memory:
            found.append(("memory", f"{attempt.command[0]} grew by {grown >> 20:,} MiB"))
        if attempt.unharmed and ending.code == 0 and self.changed(attempt, ending):
            found.append(("changed", f"{attempt.command[0]} gave other numbers"))
        self.failures += [Failure(what, child.number, attempt, why) for what, why in found]
        self.count += 1
        self.accepted += ending.code == 0
        self.refused += ending.code in (FAILED, MISTAKE)
        if not self.keep:
            shutil.rmtree(child.place)

    def changed(self, attempt: Attempt, ending: Ending) -> bool:
        """Whether these are other numbers than the unharmed files give, or than it says it gives."""
        key = (attempt.command, attempt.unharmed)
        if key not in self.numbers:
            steps = checkpoints.steps(self.world.path / attempt.unharmed / "checkpoints")
            self.numbers[key] = [_numbers(self.unharmed(*key, without)) for without in (None, *steps)]
        same, *others = self.numbers[key]
        numbers = _numbers(ending)
        told = any(words in ending.err for words in INSTEAD)
        return numbers != same and not (told and numbers in others)

    def summary(self) -> str:
        """One line."""
        counts = collections.Counter(failure.what for failure in self.failures)
        return (
            f"{self.count:,} mutations of seed {self.seed}, {self.refused:,} refused and {self.accepted:,} harmless: "
            f"{counts['traceback']} tracebacks, {counts['hang']} hangs, "
            f"{counts['memory']} over {self.memory >> 20:,} MiB, {counts['changed']} changed outputs"
        )

    def weaknesses(self) -> list[str]:
        """The failures, those of one cause in one line, with the first case of each."""
        causes: dict[tuple[str, str, str], list[Failure]] = {}
        for failure in self.failures:
            reason = failure.reason.split(":")[:3] if failure.what == "traceback" else failure.attempt.command[0]
            causes.setdefault((failure.what, TURNS[failure.number % len(TURNS)], str(reason)), []).append(failure)
        lines = []
        for (what, kind, _), found in causes.items():
            first = found[0]
            numbers = ", ".join(str(failure.number) for failure in found[:5]) + (" …" if len(found) > 5 else "")
            told = " ".join(f"{len(found)} × {what}, {kind}: {first.reason} ({first.attempt.words})".split())
            lines.append(f"{told}; --seed {self.seed} --case {numbers}")
        return lines


def _numbers(ending: Ending) -> str:
    """What is compared: all but the times."""
    return TIMES.sub("", ending.out)


def main(
    cases: Annotated[int, tyro.conf.arg(help="How many.")] = 5_000,
    seed: Annotated[int, tyro.conf.arg(help="Of the mutations.")] = 0,
    case: Annotated[int | None, tyro.conf.arg(help="Run this one alone, and show what happens.")] = None,
    only: Annotated[
        str | None, tyro.conf.arg(help=f"Only cases of this kind: {', '.join(KINDS)}; several with commas.")
    ] = None,
    keep: Annotated[Path | None, tyro.conf.arg(help="Keep the files of all cases there.")] = None,
    seconds: Annotated[
        float, tyro.conf.arg(help="What a case may take: a report of a run takes five by itself.")
    ] = 60.0,
    memory: Annotated[int, tyro.conf.arg(help="MiB by which a process may grow.")] = 1024,
    workers: Annotated[int, tyro.conf.arg(help="Cases at a time.")] = 2,
) -> None:
    kinds = set(KINDS if only is None else only.split(","))
    if unknown := kinds - set(KINDS):
        sys.exit(f"attack.py: there is no kind {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")
    if keep is not None:
        if keep.exists():
            sys.exit(f"attack.py: {keep} is there already")
        keep.mkdir(parents=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="nsm-attack-") as temporary:
        attack = Attack((keep or Path(temporary)).resolve(), seed, seconds, memory, keep is not None)
        if case is not None:
            ((child, ending),) = run([attack.prepare(case)], 1)
            print(f"{TURNS[case % len(TURNS)]}: {child.attempt.words}\n$ nsm {' '.join(child.attempt.command)[:2_000]}")
            print(f"{ending.out}{ending.err}exit code {ending.code}, {ending.peak - attack.base >> 20:,} MiB more")
            attack.judge(child, ending)
        else:
            chosen = (number for number in itertools.count() if TURNS[number % len(TURNS)] in kinds)
            attack.run(map(attack.prepare, itertools.islice(chosen, cases)), workers)
    for line in attack.weaknesses():
        print(line, file=sys.stderr)
    print(f"{attack.summary()}; {time.monotonic() - began:.0f} s.")
    sys.exit(1 if attack.failures else 0)


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
