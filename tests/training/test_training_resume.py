"""A run that was interrupted and resumed has the same bytes as one that was not."""

import os
import random
import shutil
import signal
import time
from dataclasses import replace

import pytest

from nsm.checks import UserError
from nsm.programs import Programs
from nsm.training import checkpoints
from nsm.training.loop import train
from nsm.training.run import RunDirectory
from nsm.training.signals import Interrupted
from training.faults import Faults, ended, forked
from training.small_runs import At, commanded, contents, continual, in_another_process, overshooting, small, strays


def gumbel(experiment):
    return replace(experiment, machine=replace(experiment.machine, programs=Programs(3, attention="gumbel")))


def interrupted_at(step, experiment, directory, backend="fused"):
    """Train, with a signal during that step."""
    signalling = At(step, lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(Interrupted):
        commanded(experiment, directory, backend, callbacks=[signalling])


@pytest.mark.parametrize(
    ("backend", "experiment"),
    [
        ("fused", small(cell_noise=0.1, random_slots=True)),
        ("fused", small(optimiser="adam")),
        ("fused", small(programs=None, batch_size=9)),
        ("fused", gumbel(small())),
        ("fused", small(persistent=True)),
        ("fused", overshooting(rewind=1e-6)),
        ("reference", small(cell_noise=0.1, random_slots=True, iterations=8)),
        ("reference", small(persistent=True, iterations=8)),
        ("reference", small(optimiser="adam", iterations=8)),
    ],
    ids=[
        *("fused", "fused-adam", "fused-ntm", "fused-gumbel", "fused-persistent", "fused-rewinding"),
        *("reference", "reference-persistent", "reference-adam"),
    ],
)
def test_interrupted_at_every_step_equals_straight(tmp_path, backend, experiment):
    train(experiment, tmp_path / "straight", backend)
    expected = contents(tmp_path / "straight")
    for step in range(1, experiment.schedule.iterations + 1):
        directory = tmp_path / f"at-{step}"
        interrupted_at(step, experiment, directory, backend)
        assert checkpoints.steps(directory / "checkpoints")[-1] == step
        assert RunDirectory(directory).outcome() is None
        train(experiment, directory, backend)
        assert contents(directory) == expected, f"interrupted at step {step}"
        assert strays(directory) == []


def test_continual_learning_resumes_within_and_between_phases(tmp_path):
    experiment = continual(10)
    train(experiment, tmp_path / "straight", "fused")
    for step in (1, 2, 5, 9, 10):
        interrupted_at(step, experiment, tmp_path / f"at-{step}")
        train(experiment, tmp_path / f"at-{step}", "fused")
        assert contents(tmp_path / f"at-{step}") == contents(tmp_path / "straight")


@pytest.mark.parametrize("backend", ["fused", "reference"])
def test_another_process_goes_on_as_this_one_would(tmp_path, backend):
    experiment = small(cell_noise=0.1)
    train(experiment, tmp_path / "straight", backend)
    interrupted_at(5, experiment, tmp_path / "run", backend)
    # As many threads as here: sums of the reference round by how torch divides them.
    code = "train(small(cell_noise=0.1), *sys.argv[1:], threads=1)"
    done = in_another_process(code, str(tmp_path / "run"), backend)
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "run") == contents(tmp_path / "straight")


def test_lines_of_metrics_after_the_checkpoint_are_cut(tmp_path):
    experiment = small()
    train(experiment, tmp_path / "straight")
    interrupted_at(7, experiment, tmp_path / "run")
    metrics = tmp_path / "run" / "metrics.jsonl"
    before = metrics.read_bytes()
    # What a killed process may leave: whole lines, and one that was cut off.
    metrics.write_bytes(before + b'{"step": 8, "loss": 0.5}\n{"step": 10, "lo')
    assert [line["step"] for line in RunDirectory(tmp_path / "run").lines()][-1] == 8
    train(experiment, tmp_path / "run")
    assert contents(tmp_path / "run") == contents(tmp_path / "straight")


@pytest.mark.parametrize("harm", ["shortened", "deleted"])
def test_metrics_that_are_gone_are_an_error_not_a_gap(tmp_path, harm):
    interrupted_at(7, small(), tmp_path)
    metrics = tmp_path / "metrics.jsonl"
    metrics.unlink() if harm == "deleted" else os.truncate(metrics, 10)
    with pytest.raises(UserError, match=r"metrics\.jsonl is damaged: it is shorter than when the last"):
        train(small(), tmp_path)


def test_a_run_that_stopped_when_solved_is_not_trained_further_if_its_result_is_lost(tmp_path):
    experiment = small(solved_loss=1.0, stop_when_solved=2)
    train(experiment, tmp_path)
    before = contents(tmp_path)
    (tmp_path / "result.json").unlink()
    assert train(experiment, tmp_path).steps == 8
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"seed": 3}, "seed was 0, is 3"),
        ({"size": 9}, "machine.controller.size was 8, is 9"),
        ({"programs": 3, "batch_size": 4}, "machine.programs.count was 2, is 3; schedule.batch_size was 2, is 4"),
        ({"optimiser": "adam"}, "optimiser.kind was 'rmsprop', is 'adam'"),
        ({"processes": 2}, "processes was 1, is 2"),
    ],
    ids=str,
)
def test_a_changed_configuration_is_refused_with_every_difference(tmp_path, changes, difference):
    interrupted_at(5, small(), tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(UserError) as caught:
        RunDirectory(tmp_path).check(small(**changes))
    assert str(caught.value) == f"{tmp_path} holds a run of another configuration: {difference}"
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_finished_run_is_not_touched(tmp_path):
    first = train(small(), tmp_path)
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert train(small(), tmp_path) == first
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == stamps


def test_a_run_goes_on_on_the_back_end_it_was_begun_on(tmp_path):
    interrupted_at(5, small(), tmp_path, "reference")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match=r"started on backend 'reference' and can't resume on 'fused'; choose 'refer"):
        train(small(), tmp_path, "fused")
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert {path: content for path, content in after.items() if path.name != "lock"} == {
        path: content for path, content in before.items() if path.name != "lock"
    }
    assert train(small(), tmp_path, "reference").backend == "reference"


# --- kills ------------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_killed_at_every_operation_on_the_disk(tmp_path, monkeypatch):
    """At the k-th write, fsync, rename, mkdir or removal, for all k: the next start ends as the straight run does."""
    experiment = small(iterations=6, checkpoint_every=2, evaluate_every=3, keep_checkpoints=1, persistent=True)
    straight = tmp_path / "straight"
    with monkeypatch.context() as patch:
        counted = Faults(patch, None, lambda: None)
        train(experiment, straight, "fused")
    expected = contents(straight)
    assert counted.count > 60

    def die():
        os.kill(os.getpid(), signal.SIGKILL)

    def killed_run(at, directory):
        with monkeypatch.context() as patch:
            Faults(patch, at, die)
            train(experiment, directory, "fused")

    for at in range(1, counted.count + 1):
        directory = tmp_path / f"at-{at}"
        assert ended(forked(lambda: killed_run(at, directory))) == -signal.SIGKILL  # noqa: B023
        train(experiment, directory, "fused")
        assert contents(directory) == expected, f"killed at operation {at}"
        assert strays(directory) == []
        shutil.rmtree(directory)


@pytest.mark.thorough
def test_killed_at_random_instants(tmp_path):
    experiment = small(iterations=150, checkpoint_every=4, evaluate_every=12)
    train(experiment, tmp_path / "straight", "fused")
    expected = contents(tmp_path / "straight")
    instants, kills, runs = random.Random(0), 0, 0
    while kills < 60:
        runs += 1
        directory, code = tmp_path / f"run-{runs}", -signal.SIGKILL
        while code == -signal.SIGKILL and kills < 10 * runs:
            child = forked(lambda: train(experiment, directory, "fused"))  # noqa: B023
            time.sleep(instants.uniform(0, 0.15))
            os.kill(child, signal.SIGKILL)
            code = ended(child)
            kills += code == -signal.SIGKILL
        train(experiment, directory, "fused")
        assert contents(directory) == expected
        assert strays(directory) == []
