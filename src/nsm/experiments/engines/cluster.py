"""Runs on a Ray cluster, whose nodes need not share a file system.

On a node, an actor trains one run at a time in a scratch directory, in a process of its own as the local engine does.
It receives the current state of the run and sends changes every second; the directory on the driver is at most that far
behind. When a node dies, another one resumes from the last checkpoint that arrived.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from nsm.checks import UserError
from nsm.experiments.engines import Engine, Job, Status, mirror
from nsm.experiments.engines.local import Local
from nsm.experiments.engines.mirror import Changes, Watch
from nsm.training.run import RunDirectory, versions

ATTEMPTS = 3
"""Attempts at a run before the deaths of its nodes count as its own failure."""
LOOK = 1.0
"""Seconds an actor waits for its run to end before it sends changes."""
HERE = "127.0.0.1"
CLUSTERS_BEYOND_HERE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
FIRST_WITH_TOKENS = (2, 52)
INSTEAD = 'pip install "ray>=2.52", or give --address of a cluster you trust'
QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}


class Node:
    """The actor: one run at a time, in a scratch directory."""

    def __init__(self, backend: str) -> None:
        self._engine = Local(1, backend)
        self._scratch: tempfile.TemporaryDirectory[str] | None = None

    def begin(self, job: Job, changes: Changes, expected: dict[str, str]) -> str:
        """Start or resume a run from its current state; returns the place it is trained at."""
        place = f"process {os.getpid()} on {socket.gethostname()}"
        differing = [f"{name} {version}" for name, version in versions().items() if expected[name] != version]
        if differing:
            raise UserError(
                f"{place} has {', '.join(differing)}, other versions than the driver: install the same ones"
            )
        self._scratch = tempfile.TemporaryDirectory(prefix="nsm-run-", ignore_cleanup_errors=True)
        directory = Path(self._scratch.name)
        mirror.apply(directory, changes)
        self._watch = Watch(directory)
        self._watch.changes()
        self._engine.begin(job._replace(directory=directory))
        return place

    def look(self) -> tuple[Status | None, Changes]:
        """How the run ended, if it has, and its changes."""
        ended = list(self._engine.ended(LOOK).values())
        changes = self._watch.changes()
        if ended and self._scratch is not None:
            self._scratch.cleanup()
        return (ended[0] if ended else None), changes

    def stop(self) -> None:
        self._engine.stop()


@dataclass(eq=False)
class _Flight:
    """A run under way: its actor, and the last call to it."""

    job: Job
    held: ExitStack
    attempts: int = 0
    actor: Any = None
    answer: Any = None
    place: str | None = None
    """Where it is trained; None until its actor has started."""
    told_to_stop: bool = False
    reused: bool = False
    """Whether the actor had a run before, and waited since."""


class RayCluster(Engine):
    """An existing cluster, by its address, or one on this machine that ends with the campaign."""

    def __init__(self, capacity: int, backend: str = "auto", address: str | None = None) -> None:
        super().__init__(capacity)
        with ExitStack() as held:
            self._ray = _started(capacity, held) if address is None else _joined(address, held)
            self._held = held.pop_all()
        self._actor = self._ray.remote(num_cpus=1)(Node)
        self._backend, self._stopped = backend, False
        self._idle: list[Any] = []
        self._flights: list[_Flight] = []
        self._refused: dict[Job, Status] = {}

    def begin(self, job: Job) -> None:
        held = ExitStack()
        try:
            held.enter_context(RunDirectory(job.directory).opened(job.experiment))
        except UserError as error:
            self._refused[job] = Status("failed", str(error))
            return
        flight = _Flight(job, held)
        self._flights.append(flight)
        self._begin(flight)

    def _begin(self, flight: _Flight) -> None:
        flight.attempts += 1
        flight.place, flight.told_to_stop = None, False
        flight.reused = bool(self._idle)
        flight.actor = self._idle.pop() if self._idle else self._actor.remote(self._backend)
        flight.answer = flight.actor.begin.remote(flight.job, Watch(flight.job.directory).changes(), versions())

    def ended(self, seconds: float) -> dict[Job, Status]:
        found, self._refused = self._refused, {}
        if self._stopped:
            self._pass_on()
        answers = [flight.answer for flight in self._flights]
        if not answers:
            return found
        self._ray.wait(answers, num_returns=1, timeout=0 if found else seconds)
        ready, _ = self._ray.wait(answers, num_returns=len(answers), timeout=0)
        for flight in [flight for flight in self._flights if flight.answer in ready]:
            outcome = self._heard(flight)
            if outcome is not None:
                self._flights.remove(flight)
                flight.held.close()
                found[flight.job] = outcome
        return found

    def _heard(self, flight: _Flight) -> Status | None:
        """Take an actor's answer; returns how the run ended, if it has."""
        exceptions = self._ray.exceptions
        try:
            answer = self._ray.get(flight.answer)
        except exceptions.RayTaskError as error:
            self._end(flight.actor)
            return self._failed(flight, str(error.cause))
        except exceptions.RayError as error:
            return self._died(flight, error)
        if flight.place is None:
            flight.place = answer
            flight.answer = flight.actor.look.remote()
            return None
        outcome: Status | None
        outcome, changes = answer
        try:
            mirror.apply(flight.job.directory, changes)
        except OSError as error:
            self._end(flight.actor)
            return self._failed(flight, str(error))
        if outcome is None:
            flight.answer = flight.actor.look.remote()
        else:
            self._idle.append(flight.actor)
        return outcome

    def _died(self, flight: _Flight, error: Exception) -> Status | None:
        """Resume on another actor from what arrived; this one is gone or out of reach."""
        self._end(flight.actor)
        if self._stopped:
            return Status("interrupted")
        if flight.reused and flight.place is None:
            flight.attempts -= 1  # it died idle, maybe long ago: that says nothing about this run
        if flight.attempts < ATTEMPTS:
            self._begin(flight)
            return None
        where = flight.place or "not yet started"
        died = f"its worker died {flight.attempts} times, the last time {where}"
        return self._failed(flight, f"{died}: {_first_line(error)}")

    def _failed(self, flight: _Flight, reason: str) -> Status:
        with suppress(OSError):
            RunDirectory(flight.job.directory).fail(reason, None)
        return Status("failed", reason)

    def stop(self) -> None:
        self._stopped = True  # passed on by `ended`: a signal may come in the middle of anything

    def _pass_on(self) -> None:
        """Tell every actor once; one that has not started, because the cluster is busy, is killed."""
        for flight in [flight for flight in self._flights if not flight.told_to_stop]:
            flight.told_to_stop = True
            if flight.place is not None:
                flight.actor.stop.remote()
            else:
                self._end(flight.actor)

    def _end(self, actor: Any) -> None:
        with suppress(Exception):  # gone already
            self._ray.kill(actor)

    def close(self) -> None:
        for flight in self._flights:
            flight.held.close()
        for actor in [*self._idle, *(flight.actor for flight in self._flights)]:
            self._end(actor)
        self._held.close()


def _started(capacity: int, held: ExitStack) -> Any:
    """Ray's module, with a private cluster: a token, the loopback interface and a directory of its own.

    Anybody with access to a Ray cluster can run code as the user who started it.
    """
    _refuse_without_tokens()
    # Ray reads these when it is imported. Without the last one, which is meant for macOS, it would use an address of
    # the machine instead of 127.0.0.1, and listen on all of them.
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), CLUSTERS_BEYOND_HERE: "0"}
    ray = _imported()
    # Everybody can write to Ray's directory of sockets, so it is inside one that nobody else can enter. Paths must be
    # short: not in TMPDIR.
    closed = held.enter_context(tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True))
    limits = {"num_cpus": capacity, "object_store_memory": 100 << 20}
    try:
        ray.init("local", **QUIET, **limits, include_dashboard=False, _node_ip_address=HERE, _temp_dir=f"{closed}/ray")
    except (ConnectionError, RuntimeError, TimeoutError, ValueError) as error:
        raise UserError(f"Ray can't start a cluster on this machine: {_first_line(error)}") from None
    held.callback(ray.shutdown)
    listens = ray.get_runtime_context().gcs_address
    if not listens.startswith(f"{HERE}:"):
        raise UserError(f"Ray {ray.__version__} listens at {listens}, not only on this machine: {INSTEAD}")
    return ray


def _refuse_without_tokens() -> None:
    """Raise a UserError for a version of Ray without tokens."""
    with suppress(PackageNotFoundError):
        installed = version("ray")
        if tuple(map(int, installed.split(".")[:2])) < FIRST_WITH_TOKENS:
            raise UserError(f"with Ray {installed} everybody who reaches the cluster can run code as you: {INSTEAD}")


def _joined(address: str, held: ExitStack) -> Any:
    """Ray's module, connected to an existing cluster."""
    ray = _imported()
    if address != "auto":
        _reach(address)
    try:
        ray.init(address, **QUIET)
    except (ConnectionError, RuntimeError, TimeoutError, ValueError, ray.exceptions.RayError) as error:
        raise UserError(f"no Ray cluster at address {address!r}: {_first_line(error)}") from None
    held.callback(ray.shutdown)
    return ray


def _imported() -> Any:
    """Ray's module, without usage reports."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    try:
        import ray
    except ImportError:
        raise UserError('Ray is not installed: pip install "stored-programs[ray]"') from None
    return ray


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _reach(address: str) -> None:
    """Raise a UserError if nothing listens at an address: Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        raise UserError(f"address must be host:port or auto, was {address!r}")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UserError(f"no Ray cluster at address {address!r}: {why}") from None
