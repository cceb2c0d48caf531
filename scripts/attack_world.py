"""The files that are mutated, unharmed, and the commands that read them."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

import nsm
from data import glyphs, small_babi
from nsm import documents
from nsm.cli import main as command_line
from nsm.experiments.engines import Engine, Job, Status
from nsm.experiments.paper import cells
from nsm.training.loop import train

TINY = ("--controller.size", "8", "--memory.slots", "16", "--memory.width", "4", "--iterations", "6")
TINY += ("--log-every", "2", "--validation-sequences", "4", "--test-sequences", "4")
OFTEN = ("--evaluate-every", "2", "--checkpoint-every", "2", "--keep-checkpoints", "3")
TRAIN = ("train", "copy", *TINY, *OFTEN, "--json", "--out")
STORY = "Mary went to the kitchen.\nJohn went to the garden.\n1 Where is Mary?\tkitchen\t1\nSandra got the milk.\n"


class Attempt(NamedTuple):
    """What a command is to meet."""

    words: str
    """What was done."""
    command: tuple[str, ...]
    """Arguments of nsm; or load and a directory, which is nsm.load."""
    unharmed: str = ""
    """What of the world it would be without the mutation, if other numbers than that gives are a failure."""
    endless: bool = False
    """Whether it asks for work that may never end."""


class NotRun(Engine):
    """Trains nothing: what a campaign reads is attacked here, not how it trains."""

    def __init__(self, capacity: int, backend: str) -> None:
        super().__init__(capacity)
        self.begun: list[Job] = []

    def begin(self, job: Job) -> None:
        self.begun.append(job)

    def ended(self, seconds: float) -> dict[Job, Status]:
        done, self.begun = dict.fromkeys(self.begun, Status("failed", "it is not run here")), []
        return done

    def stop(self) -> None:
        pass

    def close(self) -> None:
        pass


KEPT = Path("single", "paper-2", "copy", "nutm")
REPRODUCE = ("reproduce", "single", "--only", "copy/nutm", "--budget", "2", "--seeds", "1", "--json")
REPRODUCE += ("--results", "kept", "--out", "out")


class World:
    """The unharmed files, and what commands say of them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        small_babi.write(path / "data")
        glyphs.write(path / "data")
        os.environ["NSM_DATA"] = str(path / "data")
        torch.set_num_threads(1)
        self._run("run")
        self._run("other", "--seed", "1")
        self._run("babi", task=("babi", "--tasks", "1"))
        _copy(path / "run", path / "half")
        shutil.rmtree(path / "half" / "checkpoints" / "00000006")
        (path / "half" / "result.json").unlink()
        nsm.load(path / "run").save_pretrained(path / "machine")
        campaign = path / "runs" / KEPT / "seed-0"
        train(replace(cells("single", "paper", "copy/nutm", 2)[0].experiment, seed=0), campaign)
        _without_times(campaign)
        _quietly("collect", "--runs", str(path / "runs"), "--out", str(path / "kept"))
        (path / "story.txt").write_text(STORY)
        self.stories = small_babi.contents()
        self.drawings = glyphs.files()

    def _run(self, name: str, *options: str, task: tuple[str, ...] = ("copy",)) -> None:
        _quietly("train", *task, *TINY, *OFTEN, "--out", str(self.path / name), *options)
        _without_times(self.path / name)

    def copy(self, name: str, place: Path, to: str | None = None) -> Path:
        """A part of it for a case of its own."""
        return _copy(self.path / name, place / (to or name))


def _copy(source: Path, target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copyfile(source, target)
    return target


def _quietly(*arguments: str) -> None:
    with open(os.devnull, "w") as nowhere:
        out, err, sys.stdout, sys.stderr = sys.stdout, sys.stderr, nowhere, nowhere
        try:
            command_line(list(arguments))
        finally:
            sys.stdout, sys.stderr = out, err


def _without_times(run: Path) -> None:
    """The same bytes whenever it is made."""
    (run / "lock").write_text("1")
    for name in ("result.json", "clock.json"):
        document = documents.read_sealed(run / name)
        times = {key: 1.5 for key, value in document.items() if "seconds" in key and value is not None}
        documents.write(run / name, document | times)
