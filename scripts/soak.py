"""Kill a training run many times, at random moments, and show that nothing is lost.

Runs of one configuration are killed with SIGKILL again and again, each time a little further on, and resumed from what
they left on disk. Between a kill and the next start the newest checkpoint is sometimes damaged, if there is one
before it. Every run that finishes is compared with one that was never interrupted: the metrics, all files of
the last and of the best checkpoint, and the result, byte for byte.

Example: python scripts/soak.py --kills 200
"""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import tyro

from nsm.experiments import recipes
from nsm.training import checkpoints
from nsm.training.experiment import Experiment
from nsm.training.loop import train
from nsm.training.run import RunDirectory
from nsm.tree import to_json

HARMS = ("deleted", "emptied", "truncated", "a bit flipped")


def experiment() -> Experiment:
    """A small NUTM on Copy with every source of randomness, evaluated, saved and rewound often."""
    copy = recipes.copy("nutm")
    machine = replace(
        copy.machine,
        controller=replace(copy.machine.controller, size=16),
        memory=replace(copy.machine.memory, slots=32, width=8),  # type: ignore[type-var]
    )
    often = {"log_every": 10, "evaluate_every": 40, "checkpoint_every": 20, "keep_checkpoints": 3}
    few = {"iterations": 2000, "validation_sequences": 10, "test_sequences": 10}
    return replace(copy, machine=machine, schedule=replace(copy.schedule, **often, **few, rewind=1e-3))


@dataclass
class Soak:
    """What was done so far."""

    directory: Path
    backend: str
    chance: random.Random
    kills: int = 0
    corruptions: int = 0
    runs: int = 0
    differences: list[str] = field(default_factory=list)

    def forked(self, run: Path) -> int:
        """Start a process that trains; a fork, because it starts in milliseconds and dies as any other does."""
        child = os.fork()
        if child:
            return child
        code = 1
        try:
            logging.getLogger("nsm").setLevel(logging.ERROR)  # a damaged checkpoint is what we want here
            train(experiment(), run, self.backend, threads=1)
            code = 0
        except BaseException as error:
            print(f"{run.name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(code)

    def finish(self, run: Path, kills: int, window: float) -> bool:
        """Kill and resume a run until it is done, or until there were enough kills; returns whether it finished."""
        while True:
            child = self.forked(run)
            if self.kills < kills:
                time.sleep(self.chance.uniform(0, window))
                os.kill(child, signal.SIGKILL)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if code != -signal.SIGKILL:
                return code == 0
            self.kills += 1
            if self.chance.random() < 0.25:
                self.damage(run)

    def damage(self, run: Path) -> None:
        """Harm a file of the newest valid checkpoint, if there is another one before it."""
        valid = [path for path in sorted((run / "checkpoints").glob("[0-9]*")) if is_valid(path)]
        if len(valid) < 2:
            return
        file = self.chance.choice(sorted(valid[-1].iterdir()))
        harm, content = self.chance.choice(HARMS), file.read_bytes()
        if harm == "deleted":
            file.unlink()
        elif harm == "emptied":
            file.write_bytes(b"")
        elif harm == "truncated":
            file.write_bytes(content[: self.chance.randrange(len(content))])
        else:
            place = self.chance.randrange(len(content))
            flipped = content[place] ^ 1 << self.chance.randrange(8)
            file.write_bytes(content[:place] + bytes([flipped]) + content[place + 1 :])
        self.corruptions += 1

    def compare(self, run: Path, straight: Path) -> None:
        """Note every part of a run that is not as in the straight one."""
        ours, theirs = contents(run), contents(straight)
        names = sorted(ours.keys() | theirs.keys())
        self.differences += [f"{run.name}: {name}" for name in names if ours.get(name) != theirs.get(name)]


def is_valid(checkpoint: Path) -> bool:
    try:
        checkpoints.load(checkpoint)
    except checkpoints.Damaged:
        return False
    return True


def contents(directory: Path) -> dict[str, bytes]:
    """What must not depend on interruptions: all but times, and which older checkpoints are still there."""
    run = RunDirectory(directory)
    found = {"metrics.jsonl": run.metrics_path.read_bytes()}
    for which in ("best", "last"):
        checkpoint = checkpoints.path(run.checkpoints, run.checkpoint(which).step)
        found |= {f"{which} {file.name}": file.read_bytes() for file in sorted(checkpoint.iterdir())}
    outcome = to_json(run.outcome())
    found["result.json"] = json.dumps({k: v for k, v in outcome.items() if "seconds" not in k}).encode()
    return found


def main(
    kills: Annotated[int, tyro.conf.arg(help="How many.")] = 200,
    backend: Annotated[str, tyro.conf.arg(help="fused or reference.")] = "fused",
    seed: Annotated[int, tyro.conf.arg(help="Of the instants and the damage, not of the training.")] = 0,
) -> None:
    with tempfile.TemporaryDirectory(prefix="nsm-soak-") as scratch:
        soak = Soak(Path(scratch), backend, random.Random(seed))
        straight = soak.directory / "straight"
        # Also loads the kernels, which the forked processes then have; of threads they would have none.
        train(experiment(), straight, backend, threads=1)
        window = 2 * RunDirectory(straight).clock()["seconds"] / 25  # some 25 kills a run
        while soak.kills < kills and not soak.differences:
            soak.runs += 1
            run = soak.directory / f"run-{soak.runs}"
            if soak.finish(run, kills, window):
                soak.compare(run, straight)
            else:
                soak.differences.append(f"{run.name}: did not resume")
            print(f"{run.name}: {soak.kills} kills, {soak.corruptions} corruptions", file=sys.stderr, flush=True)
        if soak.differences:
            sys.exit(f"LOST after {soak.kills} kills: {'; '.join(soak.differences)}")
        print(
            f"{soak.kills} kills survived in {soak.runs} runs, {soak.corruptions} checkpoints damaged, nothing lost: "
            "weights, optimiser, metrics and results are those of an uninterrupted run, byte for byte."
        )


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
