"""Callbacks are told what happens, in order, however a run ends; and nothing they do changes its bytes."""

import random
from contextlib import suppress
from dataclasses import fields

import numpy as np
import pytest
import torch

from nsm.checks import UserError
from nsm.files import cache_directory
from nsm.training import callbacks, loop
from nsm.training.callbacks import Callback, TensorBoard, WeightsAndBiases, scalars
from nsm.training.learner import Diverged, GradientLearner
from nsm.training.loop import Stop, train
from nsm.training.progress import Progress
from nsm.training.run import RunDirectory
from nsm.training.signals import Interrupted
from training.small_runs import At, contents, continual, in_another_process, overshooting, small


class Log(Callback):
    """Notes every call, with what is known by then."""

    def __init__(self, log=None, name=""):
        self.log, self.name = [] if log is None else log, name

    def note(self, event, *known):
        self.log.append((f"{self.name}{event}", *known))

    def on_start(self, run, progress):
        self.note("start", run.path, progress.step)

    def on_step(self, progress, line):
        self.note("step", progress.step, None if line is None else set(line))

    def on_evaluation(self, progress, line):
        self.note("evaluation", progress.step, line["validation"]["loss"])

    def on_end(self, run, outcome):
        self.note("end", run.outcome() == outcome)

    def on_stop(self):
        self.note("stop")

    @property
    def events(self):
        return [event for event, *_ in self.log]


# --- order and arguments ----------------------------------------------------------------------------------------------


def test_what_is_told_and_when(tmp_path):
    log = Log()
    train(small(iterations=4), tmp_path, "fused", callbacks=[log])
    logged = {"step", "loss"}
    (line,) = [line for line in RunDirectory(tmp_path).lines() if "validation" in line]
    assert log.log == [
        ("start", tmp_path, 0),
        ("step", 1, None),
        ("step", 2, logged),
        ("step", 3, None),
        ("step", 4, {*logged, "validation"}),
        ("evaluation", 4, line["validation"]["loss"]),
        ("end", True),
        ("stop",),
    ]


def test_a_line_is_the_one_in_the_metrics_and_there_by_then(tmp_path):
    class Reader(Callback):
        lines: list = []  # noqa: RUF012

        def on_start(self, run, progress):
            self.run = run

        def on_step(self, progress, line):
            if line is not None:
                assert self.run.lines()[-1] == line
                self.lines.append(line)

    train(continual(8), tmp_path, "fused", callbacks=[reader := Reader()])
    assert reader.lines == RunDirectory(tmp_path).lines()
    assert any("accuracies" in line for line in reader.lines)


def test_several_are_called_in_their_order(tmp_path):
    log = []
    train(small(iterations=4), tmp_path, "fused", callbacks=[Log(log, "a "), Log(log, "b ")])
    events = [event for event, *_ in log]
    assert events[::2] == [event.replace("b ", "a ") for event in events[1::2]]
    assert all(event.startswith("b ") for event in events[1::2])


def test_a_resumed_run_starts_at_its_step(tmp_path):
    with pytest.raises(Interrupted):
        train(small(), tmp_path, callbacks=[At(5, stop := Stop())], stop=stop)
    train(small(), tmp_path, callbacks=[log := Log()])
    assert log.log[:2] == [("start", tmp_path, 5), ("step", 6, {"step", "loss"})]
    assert log.log[-2:] == [("end", True), ("stop",)]


def test_a_run_that_has_ended_tells_nothing(tmp_path):
    train(small(), tmp_path)
    train(small(), tmp_path, callbacks=[log := Log()])
    assert log.log == []


def test_a_run_whose_result_is_lost_ends_once_more(tmp_path):
    train(small(), tmp_path)
    (tmp_path / "result.json").unlink()
    train(small(), tmp_path, callbacks=[log := Log()])
    assert log.log == [("start", tmp_path, 12), ("end", True), ("stop",)]


# --- however it ends --------------------------------------------------------------------------------------------------


def test_on_stop_comes_after_an_interruption(tmp_path):
    log, stop = Log(), Stop()
    with pytest.raises(Interrupted):
        train(small(), tmp_path, callbacks=[log, At(3, stop)], stop=stop)
    assert log.events == ["start", "step", "step", "step", "stop"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, Diverged, RuntimeError])
def test_on_stop_comes_after_an_error(tmp_path, monkeypatch, error):
    def failing(*_):
        raise error("it")

    monkeypatch.setattr(GradientLearner, "check", failing)  # the first checkpoint, of step 3
    log = Log()
    with pytest.raises(error):
        train(small(), tmp_path, callbacks=[log])
    assert log.events == ["start", "step", "step", "step", "stop"]


def test_on_stop_comes_after_a_start_that_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "restore", lambda *_: (_ for _ in ()).throw(UserError("damaged")))
    with pytest.raises(UserError, match="damaged"):
        train(small(), tmp_path, callbacks=[log := Log()])
    assert log.events == ["stop"]


def test_a_callback_that_fails_fails_the_run_which_then_resumes(tmp_path):
    def fail():
        raise RuntimeError("no network")

    first, last = Log(), Log()
    with pytest.raises(RuntimeError, match="no network"):
        train(small(), tmp_path / "run", callbacks=[first, At(5, fail), last])
    failure = RunDirectory(tmp_path / "run").failure()
    assert (failure.reason, failure.diverged) == ("no network", False)
    assert first.events[-1] == last.events[-1] == "stop"
    for name in ("run", "straight"):
        train(small(), tmp_path / name)
    assert contents(tmp_path / "run") == contents(tmp_path / "straight")


def test_one_that_fails_to_stop_keeps_no_other_from_it(tmp_path):
    class Bad(Callback):
        def on_stop(self):
            raise RuntimeError("again")

    first, last = Log(), Log()
    with pytest.raises(RuntimeError, match="again"):
        train(small(), tmp_path, callbacks=[first, Bad(), last])
    assert first.events[-1] == last.events[-1] == "stop"
    assert RunDirectory(tmp_path).outcome() is not None


@pytest.mark.parametrize("what", [print, Log, "tensorboard", None])
def test_what_is_no_callback_is_a_mistake_and_nothing_is_written(tmp_path, what):
    with pytest.raises(UserError, match=r"callbacks must be nsm\.Callback objects, one was"):
        train(small(), tmp_path / "run", callbacks=[what])
    assert not (tmp_path / "run").exists()


# --- what they can't do -----------------------------------------------------------------------------------------------


class Meddling(Callback):
    """Changes whatever it gets hold of."""

    def spoil(self, progress, line=None):
        for field in fields(Progress):
            value = getattr(progress, field.name)
            if isinstance(value, list):
                value += [{"copy": 9.0}] if field.name == "phases" else [9.0]
                with suppress(AttributeError):
                    value[0].clear()
            setattr(progress, field.name, 9)
        if line is not None:
            for part in line.values():
                if isinstance(part, dict):
                    part.clear()
            line.clear()
        torch.manual_seed(random.randrange(1 << 30))
        np.random.seed(random.randrange(1 << 30))  # noqa: NPY002
        torch.randn(3)

    def on_start(self, run, progress):
        self.run = run
        self.spoil(progress)

    def on_step(self, progress, line):
        if progress.step > 3:
            machine = self.run.machine("last")
            with torch.no_grad():
                for weight in machine.parameters():
                    weight.zero_()
        self.spoil(progress, line)

    def on_evaluation(self, progress, line):
        self.spoil(progress, line)

    def on_end(self, run, outcome):
        for score in (outcome.best, outcome.last):
            if score is not None:
                score.figures.clear()


@pytest.mark.parametrize(
    "experiment", [small(cell_noise=0.1, random_slots=True), continual(8)], ids=["copy", "continual"]
)
def test_a_callback_can_not_change_a_runs_bytes(tmp_path, experiment):
    for name, watching in (("alone", []), ("watched", [Meddling(), Log()])):
        train(experiment, tmp_path / name, "fused", callbacks=watching)
    assert contents(tmp_path / "watched") == contents(tmp_path / "alone")


def test_lines_as_flat_scalars():
    line = {"step": 4, "loss": 0.5, "validation": {"loss": 0.25, "bit_errors": 2.0}, "rewinds": 1}
    assert scalars(line) == {"loss": 0.5, "validation/loss": 0.25, "validation/bit_errors": 2.0, "rewinds": 1}


# --- TensorBoard ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "name"), [(TensorBoard, "TensorBoard"), (WeightsAndBiases, "Weights & Biases")])
def test_without_the_package_one_sentence_says_how_to_get_it(monkeypatch, kind, name):
    monkeypatch.setattr(callbacks, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=f"{name} is not installed: pip install "):
        kind()


def events(directory):
    """What TensorBoard would show: {name: [(step, value)]}."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(directory / "tensorboard"))
    found.Reload()
    return {name: [(e.step, pytest.approx(e.value)) for e in found.Scalars(name)] for name in found.Tags()["scalars"]}


def of_lines(lines):
    """The same from lines of metrics."""
    found = {}
    for line in lines:
        for name, value in scalars(line).items():
            found.setdefault(name, []).append((line["step"], value))
    return found


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_events_are_those_of_the_metrics_and_there_while_it_trains(tmp_path):
    class Looking(Callback):
        """Comes after TensorBoard, and looks into its files at every evaluation."""

        def __init__(self):
            self.seen = []

        def on_start(self, run, progress):
            self.run = run

        def on_evaluation(self, progress, line):
            assert self.run.outcome() is None
            assert of_lines(self.run.lines()) == events(tmp_path)
            self.seen.append(progress.step)

    train(overshooting(rewind=1e-6), tmp_path, "fused", callbacks=[TensorBoard(), looking := Looking()])
    assert looking.seen == [4, 8, 12]
    found = events(tmp_path)
    assert of_lines(RunDirectory(tmp_path).lines()) == found
    assert {"loss", "validation/bit_errors", "rewinds"} <= found.keys()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_resumed_run_purges_what_it_writes_again(tmp_path):
    """Ended without a checkpoint after step 9, it resumes from that; what was logged of step 10 comes anew."""

    def fail():
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        train(small(log_every=1), tmp_path, "fused", callbacks=[TensorBoard(), At(11, fail)])
    before = events(tmp_path)["loss"]
    assert [step for step, _ in before] == list(range(1, 12))
    log = Log()
    train(small(log_every=1), tmp_path, "fused", callbacks=[TensorBoard(), log])
    assert log.log[0] == ("start", tmp_path, 9)
    assert len(list((tmp_path / "tensorboard").iterdir())) == 2
    assert of_lines(RunDirectory(tmp_path).lines()) == events(tmp_path)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_changes_nothing_else(tmp_path):
    train(small(), tmp_path / "alone", "fused")
    train(small(), tmp_path / "watched", "fused", callbacks=[TensorBoard()])
    assert contents(tmp_path / "watched") == contents(tmp_path / "alone")


# --- Weights & Biases -------------------------------------------------------------------------------------------------

OFFLINE = """
import wandb
from nsm.training.callbacks import WeightsAndBiases

out, scratch = sys.argv[1:]
settings = wandb.Settings(silent=True)
watching = WeightsAndBiases(project="tiny", mode="offline", dir=scratch, settings=settings)
train(small(), out, "fused", callbacks=[watching])
"""


def with_a_home_of_its_own(code, home):
    """Weights & Biases starts services and writes settings; kernels are compiled already."""
    kernels = cache_directory("kernels")
    variables = {"HOME": str(home)} | ({} if kernels is None else {"NSM_CACHE": str(kernels.parent)})
    (home / "wandb").mkdir()
    return in_another_process(code, str(home / "run"), str(home / "wandb"), **variables)


@pytest.mark.thorough
def test_weights_and_biases_has_the_figures(tmp_path):
    done = with_a_home_of_its_own(OFFLINE, tmp_path)
    assert done.returncode == 0, done.stderr
    (file,) = (tmp_path / "wandb").rglob("*.wandb")
    written, run = file.read_bytes(), RunDirectory(tmp_path / "run")
    for line in run.lines():
        for name, value in scalars(line).items():
            assert name.encode() in written
            assert repr(value).encode() in written, f"{name} of step {line['step']}"
    for name, value in run.outcome().best.figures.items():
        assert f"best/{name}".encode() in written
        assert repr(value).removesuffix(".0").encode() in written
    assert b'"kind":"Copy"' in written.replace(b" ", b"")
    train(small(), tmp_path / "alone", "fused")
    assert contents(tmp_path / "run") == contents(tmp_path / "alone")


@pytest.mark.thorough
def test_weights_and_biases_without_a_login_is_one_sentence_and_the_run_begins_later(tmp_path):
    done = with_a_home_of_its_own(OFFLINE.replace('mode="offline", ', ""), tmp_path)
    assert done.returncode == 1
    assert "UserError: Weights & Biases can't be used: " in done.stderr
    assert RunDirectory(tmp_path / "run").failure() is None
    train(small(), tmp_path / "run", "fused")
