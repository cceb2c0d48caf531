"""Runs on this machine: a few processes with one thread each."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
from contextlib import suppress
from multiprocessing import connection
from multiprocessing.connection import Connection

from nsm import system
from nsm.checks import UserError
from nsm.experiments.engines import Engine, Job, Status
from nsm.training.experiment import Experiment
from nsm.training.run import RunDirectory
from nsm.tree import from_json, to_json


class Local(Engine):
    """Spawned processes, each of which trains one run after another."""

    def __init__(self, capacity: int, backend: str = "auto") -> None:
        super().__init__(capacity)
        self._backend, self._stopped = backend, False
        self._idle: list[_Worker] = []
        self._busy: dict[_Worker, Job] = {}

    def begin(self, job: Job) -> None:
        self._idle = [worker for worker in self._idle if worker.process.is_alive()]
        worker = self._idle.pop() if self._idle else _Worker()
        self._busy[worker] = job
        worker.begin(job, self._backend)
        if self._stopped:  # a signal came while it was starting
            worker.process.terminate()

    def ended(self, seconds: float) -> dict[Job, Status]:
        ready = connection.wait([worker.pipe for worker in self._busy], timeout=seconds)
        found = {}
        for worker in [worker for worker in self._busy if worker.pipe in ready]:
            job = self._busy.pop(worker)
            found[job] = worker.outcome(self._stopped)
            if worker.process.is_alive():
                self._idle.append(worker)
        return found

    def stop(self) -> None:
        self._stopped = True
        for worker in self._busy:
            worker.process.terminate()

    def close(self) -> None:
        for worker in [*self._idle, *self._busy]:
            worker.process.kill()


class _Worker:
    """A spawned process that trains one run after another."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs,), daemon=True)
        with system.unheard_by_children():  # Ctrl-C is for the campaign, which passes it on once
            self.process.start()
        theirs.close()

    def begin(self, job: Job, backend: str) -> None:
        with suppress(OSError):  # a dead process is noticed by its end of the pipe
            self.pipe.send((json.dumps(to_json(job.experiment)), str(job.directory), backend))
        self.directory = job.directory

    def outcome(self, stopped: bool) -> Status:
        """How the job ended; a process that died fails its own run only."""
        try:
            return Status(*self.pipe.recv())
        except (EOFError, OSError):
            self.process.join()
        if stopped:
            return Status("interrupted")
        reason = f"its process died with exit code {self.process.exitcode}"
        with suppress(OSError):
            RunDirectory(self.directory).fail(reason, None)
        return Status("failed", reason)


def _work(pipe: Connection) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch

    torch.set_num_threads(1)
    threading.Thread(target=_follow_parent, daemon=True).start()
    with suppress(EOFError, OSError):
        while True:
            pipe.send(_train(*pipe.recv()))


def _follow_parent() -> None:
    """When the campaign is killed, its runs save and stop."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


def _train(experiment: str, directory: str, backend: str) -> Status:
    from nsm.training.learner import Diverged
    from nsm.training.loop import Stop, train
    from nsm.training.signals import Interrupted, asked_by_signal

    try:
        stop = Stop()
        with asked_by_signal(stop):
            train(from_json(Experiment, json.loads(experiment)), directory, backend, threads=1, stop=stop)
    except Interrupted:
        return Status("interrupted")
    except (Diverged, UserError, OSError) as error:
        return Status("failed", str(error))
    except Exception as error:  # a bug in one run must not stop the others
        return Status("failed", f"{type(error).__name__}: {error}")
    return Status("done")
