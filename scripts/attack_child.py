"""A case in a process of its own."""

from __future__ import annotations

import gc
import itertools
import json
import logging
import os
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from attack_world import Attempt, NotRun

import nsm
from nsm.checks import UserError
from nsm.cli import MISTAKE, STOPPED
from nsm.cli import main as command_line
from nsm.experiments.engines import local

PATIENCE = 3.0
"""Seconds before Ctrl-C is pressed where a case asks for endless work."""
TOO_MUCH = 3 << 30
"""Bytes in memory at which a case is ended, to spare the machine."""
LARGEST_FILE = 2 << 30


class Ending(NamedTuple):
    """How a case ended."""

    code: int | None
    """None if it was killed."""
    out: str
    err: str
    error: str | None
    """The exception that left the command."""
    where: str | None
    """The innermost line of nsm it passed."""
    peak: int
    """Bytes in memory at most."""


@dataclass
class Child:
    """A case under way."""

    number: int
    attempt: Attempt
    place: Path
    seconds: float
    """What it may take."""
    began: float = 0.0
    stopped: int = 0
    """How often Ctrl-C was pressed."""
    killed: bool = False
    late: bool = False

    def begin(self) -> None:
        self.began = time.monotonic()
        self.pid = os.fork()
        if not self.pid:
            _become(self.attempt, self.place)
        self.handle = os.pidfd_open(self.pid)

    def look(self) -> None:
        """Press Ctrl-C, or end it, if it is time to."""
        spent = time.monotonic() - self.began
        if self.attempt.endless and spent > (1 + self.stopped) * PATIENCE and self.stopped < 2:
            self.stopped += 1
            os.kill(self.pid, signal.SIGINT)
        self.late = self.late or spent > self.seconds
        if not self.killed and (self.late or self._in_memory() > TOO_MUCH):
            self.killed = True
            os.killpg(self.pid, signal.SIGKILL)

    def _in_memory(self) -> int:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * resource.getpagesize()

    def end(self) -> Ending:
        _, status, used = os.wait4(self.pid, 0)
        os.close(self.handle)
        outcome, died = _said(self.place, "outcome.json"), os.waitstatus_to_exitcode(status)
        if outcome:
            found = json.loads(outcome)
        elif self.stopped and died == STOPPED:  # at once, as in the middle of an import
            found = {"code": STOPPED}
        else:
            found = {"error": f"the process died with {died}", "where": self.attempt.command[0]}
        out, err = _said(self.place, "stdout"), _said(self.place, "stderr")
        out += _said(self.place / "work", "report.md")
        code = None if self.killed else found.get("code")
        return Ending(code, out, err, found.get("error"), found.get("where"), used.ru_maxrss << 10)


def _said(place: Path, name: str) -> str:
    """The beginning of what a case wrote."""
    path = place / name
    if not path.is_file():
        return ""
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.read(1_000_000)


def _become(attempt: Attempt, place: Path) -> None:
    """Become the case: run its command, leave a note of how that ended, and end."""
    code = 70
    try:
        os.setpgid(0, 0)
        gc.freeze()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        logging.getLogger().handlers.clear()  # a test's: warnings belong on standard error
        _redirect(place)
        os.chdir(place / "work")
        if attempt.command[0] == "data" or "omniglot-5" in attempt.command:
            os.environ["NSM_CACHE"] = str(place / "cache")  # not the user's
        local.Local = NotRun  # type: ignore[assignment, misc]
        resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE,) * 2)
        outcome = _outcome(attempt.command)
        sys.stdout.flush()
        sys.stderr.flush()
        (place / "outcome.json").write_text(json.dumps(outcome))
        code = 0
    finally:
        os._exit(code)


def _redirect(place: Path) -> None:
    for number, name in ((0, os.devnull), (1, place / "stdout"), (2, place / "stderr")):
        file = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
        os.dup2(file, number)
        os.close(file)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))


def _outcome(command: tuple[str, ...]) -> dict[str, Any]:
    try:
        if command[0] == "load":
            print(_answers(nsm.load(command[1])))
        else:
            command_line(list(command))
    except SystemExit as leaving:
        return {"code": leaving.code or 0}
    except UserError as error:
        if command[0] == "load":
            print(error, file=sys.stderr)
            return {"code": MISTAKE}
        return _traced(error)
    except BaseException as error:
        return _traced(error)
    return {"code": 0}


def _traced(error: BaseException) -> dict[str, Any]:
    print("".join(traceback.format_exception(error)[-40:])[-20_000:], file=sys.stderr)
    home = str(Path(nsm.__file__).parent)
    ours = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(home)]
    where = f"{Path(ours[-1].filename).relative_to(home)}:{ours[-1].lineno} {ours[-1].name}" if ours else "elsewhere"
    return {"code": None, "error": f"{type(error).__name__}: {str(error)[:120]}", "where": where}


@torch.no_grad()
def _answers(machine: nsm.Machine) -> str:
    """What a machine says to an input that is always the same."""
    x = torch.linspace(-1, 1, 4 * machine.config.input_size, dtype=torch.float32).reshape(4, 1, -1)
    answers, _ = machine(x.to(machine.initial_read.dtype))
    return repr(answers.double().flatten().tolist())


def run(children: Iterable[Child], workers: int) -> Iterator[tuple[Child, Ending]]:
    """Run cases, a few at a time; each as it ends."""
    waiting, under_way, poll = iter(children), dict[int, Child](), select.poll()
    while True:
        for child in itertools.islice(waiting, workers - len(under_way)):
            child.begin()
            under_way[child.handle] = child
            poll.register(child.handle, select.POLLIN)
        if not under_way:
            return
        for handle, _ in poll.poll(50):
            poll.unregister(handle)
            child = under_way.pop(handle)
            yield child, child.end()
        for child in under_way.values():
            child.look()
