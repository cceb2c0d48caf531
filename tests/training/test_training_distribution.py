"""Several ranks are one run: the whole batch's gradient, one set of files, one end. Under a real torchrun."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from nsm.checks import UserError
from nsm.training.distribution import ALONE, Ranks
from nsm.training.loop import TRAIN, build, train
from nsm.training.result import Failure
from nsm.training.run import RunDirectory
from training.ranks import DRAWS, RUNS, gumbel, on_two
from training.small_runs import contents, small, strays

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


# --- parts of a batch, without other processes ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "experiment", [small(**DRAWS, batch_size=7), gumbel(small(batch_size=7))], ids=["cell", "gumbel"]
)
@pytest.mark.parametrize("size", [2, 3, 7])
def test_parts_are_the_batch(experiment, size):
    learner, task = build(experiment, "fused"), experiment.task
    batch = task.batch(0, TRAIN, 5, 7)
    _, noise = learner._draw(task, batch, 5)
    parts = [Ranks(rank, size).part(batch, noise) for rank in range(size)]
    assert sum(part.weight for part in parts) == pytest.approx(1)
    counts = [part.batch.lengths.size for part in parts]
    assert max(counts) - min(counts) <= 1
    start = 0
    for part in parts:
        mine = slice(start, start + part.batch.lengths.size)
        start = mine.stop
        longest = batch.lengths[mine].max()
        for name in ("inputs", "targets", "mask", "subtask"):
            array = getattr(part.batch, name)
            assert (array == getattr(batch, name)[:longest, mine]).all()
            assert array.flags.c_contiguous
            assert array.ctypes.data % 64 == 0, "arithmetic may depend on it, and resumed must equal uninterrupted"
        for name in ("lengths", "decoding"):
            assert (getattr(part.batch, name) == getattr(batch, name)[mine]).all()
        for mine_drawn, drawn in zip(part.noise, noise, strict=True):
            assert (mine_drawn is None) == (drawn is None)
            assert drawn is None or (mine_drawn == drawn[:longest, mine]).all()
    assert start == 7


@pytest.mark.parametrize("backend", ["fused", "reference"])
@pytest.mark.parametrize("size", [2, 3, 7])
def test_weighted_gradients_of_the_parts_add_up_to_that_of_the_batch(backend, size):
    experiment = small(**DRAWS, batch_size=7)
    learner, task = build(experiment, backend), experiment.task
    batch = task.batch(0, TRAIN, 5, 7)
    assert len(set(batch.lengths)) > 1
    slots, noise = learner._draw(task, batch, 5)

    def gradient(part):
        learner.gradient.zero_()
        loss = learner._gradients(task, part.batch, slots, part.noise)
        return part.weight * learner.gradient.double(), part.weight * loss

    whole, loss = gradient(ALONE.part(batch, noise))
    parts = [gradient(Ranks(rank, size).part(batch, noise)) for rank in range(size)]
    assert sum(part[1] for part in parts) == pytest.approx(loss, rel=1e-6)
    difference = sum(part[0] for part in parts) - whole
    assert difference.abs().max() < 1e-5 * whole.abs().max()


def test_a_part_whose_steps_do_not_count_weighs_nothing():
    experiment = small(batch_size=2)
    batch = experiment.task.batch(0, TRAIN, 0, 2)
    mask = batch.mask.copy()
    mask[:, 1] = 0
    _, noise = build(experiment, "fused")._draw(None, batch, 0)
    parts = [Ranks(rank, 2).part(batch._replace(mask=mask), noise) for rank in (0, 1)]
    assert [part.weight for part in parts] == [1, 0]


def test_more_processes_than_sequences_are_a_mistake():
    with pytest.raises(UserError, match="batch_size must be at least 1 for each of the 3 processes, was 2"):
        small(batch_size=2, processes=3)


# --- torchrun ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """All runs of `training.ranks` on two ranks: where they lie, and what each rank was told. Not to be changed.

    They take a while: when tests run in several processes, the first that comes here makes them for all.
    """
    base = tmp_path_factory.getbasetemp()
    root = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "ranks"
    root.mkdir(exist_ok=True)
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (root / "said-0.json").exists():
            script = str(Path(__file__).with_name("ranks.py"))
            done = subprocess.run([*TORCHRUN, script, str(root)], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            assert "Warning" not in done.stderr
    return root, [json.loads((root / f"said-{rank}.json").read_text()) for rank in (0, 1)]


@pytest.mark.parametrize("name", RUNS)
def test_two_ranks_learn_what_one_process_does(two, tmp_path, name):
    root, said = two
    assert [rank[name] for rank in said] == ["done", "done"]
    backend, experiment = RUNS[name]
    train(experiment, tmp_path, backend)
    start = build(experiment, backend).machine.state_dict()
    one, other = (RunDirectory(directory).checkpoint("last") for directory in (tmp_path, root / name))
    assert one.step == other.step
    # Rounding, grown over 50 updates: compared with how far the weights have come.
    moved = max((one.model[key] - start[key]).abs().max() for key in start)
    assert max((one.model[key] - other.model[key]).abs().max() for key in start) < 1e-4 * moved
    for key, mine in one.optimiser.items():
        torch.testing.assert_close(other.optimiser[key], mine, rtol=1e-2, atol=1e-4 * float(mine.abs().max()))
    lines = [RunDirectory(directory).lines() for directory in (tmp_path, root / name)]
    assert [line["step"] for line in lines[0]] == [line["step"] for line in lines[1]]
    assert [line["loss"] for line in lines[1]] == pytest.approx([line["loss"] for line in lines[0]], rel=1e-4)


def test_the_ranks_stop_together_when_solved(two):
    root, _ = two
    outcome = RunDirectory(root / "solved").outcome()
    assert (outcome.steps, outcome.solved_step) == (40, 20)


@pytest.mark.parametrize("who", [0, 1])
@pytest.mark.parametrize("backend", ["fused", "reference"])
def test_a_signal_to_any_rank_stops_all_and_resumed_equals_straight(two, backend, who):
    root, said = two
    name = f"{backend}-stopped-{who}"
    assert [rank[name] for rank in said] == ["Interrupted: "] * 2
    assert [rank[f"{backend}-resumed-{who}"] for rank in said] == ["done", "done"]
    assert contents(root / name) == contents(root / backend)
    assert strays(root / name) == []
    # Asked in the report of step 17, told with the gradient of the next, saved after that.
    assert [rank[f"{name}-at"] for rank in said] == [18, 18]


def test_a_gradient_that_is_no_number_on_one_rank_ends_the_run_on_all(two):
    root, said = two
    message = "a gradient is not finite at iteration 6; the first bad tensor is gradient of output.bias"
    assert [rank["diverged"] for rank in said] == [f"Diverged: {message}"] * 2
    assert RunDirectory(root / "diverged").failure() == Failure(message, 5, diverged=True)


@pytest.mark.parametrize(
    ("name", "mistake"),
    [
        ("strange", "is not empty and holds no run; choose another directory"),
        ("device", "the machine can't be built on device 'cuda:90'"),
        ("size", "this run is for 1 processes and was started with 2"),
    ],
)
def test_a_mistake_is_told_to_all_ranks(two, name, mistake):
    _, said = two
    assert said[0][name] == said[1][name]
    assert mistake in said[0][name]


def test_a_run_of_two_processes_is_refused_by_one_with_the_difference_listed(two):
    root, _ = two
    backend, experiment = RUNS["fused"]
    with pytest.raises(UserError, match=r"holds a run of another configuration: processes was 2, is 1$"):
        train(experiment, root / "fused", backend)
    with pytest.raises(UserError, match="this run is for 2 processes and was started with 1"):
        train(on_two(experiment), root / "fused", backend)


def test_callbacks_are_the_leaders_alone(two):
    _, said = two
    assert [rank["watched"] for rank in said] == ["done", "done"]
    assert [rank["watched-calls"] for rank in said] == [50, 0]


# --- the command ------------------------------------------------------------------------------------------------------

TRAIN_COPY = ["train", "copy", "--controller.size", "8", "--memory.slots", "16", "--memory.width", "4"]
TRAIN_COPY += ["--batch-size", "3"]
TRAIN_COPY += ["--iterations", "400", "--log-every", "5", "--evaluate-every", "100", "--checkpoint-every", "20"]
TRAIN_COPY += ["--validation-sequences", "4", "--test-sequences", "4"]


class Torchrun:
    """The command on two ranks, under way."""

    def __init__(self, out, program=("-m", "nsm")):
        command = [*TORCHRUN, *program, *TRAIN_COPY, "--out", str(out)]
        self.run, self.metrics = RunDirectory(out), len(RunDirectory(out).lines())
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def under_way(self):
        """Wait until it has trained for a while; returns the ids of both ranks, in order."""
        while len(self.run.lines()) < self.metrics + 3:
            assert self.process.poll() is None, self.process.communicate()[1]
            time.sleep(0.02)
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        leader = int((self.run.path / "lock").read_text())
        (other,) = {int(child) for child in children} - {leader}
        return leader, other

    def ended(self):
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


@pytest.mark.thorough
def test_the_command_survives_signals_kills_and_a_rank_that_hangs(tmp_path):
    straight = Torchrun(tmp_path / "straight").ended()
    assert straight[0] == 0, straight[2]
    assert straight[1].count("The run is in") == 1, "one rank speaks for all"

    # A signal to the launcher, which passes it on.
    stopped = Torchrun(tmp_path / "run")
    stopped.under_way()
    stopped.process.send_signal(signal.SIGTERM)
    err = stopped.ended()[2]
    assert err.count("nsm: stopped and saved") == 1
    assert stopped.run.checkpoint("last").step >= stopped.run.lines()[-1]["step"]

    # A signal to one rank: the launcher is told the code of both.
    stopped = Torchrun(tmp_path / "run")
    os.kill(stopped.under_way()[1], signal.SIGTERM)
    code, _, err = stopped.ended()
    assert code != 0
    assert "exitcode  : 75" in err
    assert err.count("nsm: stopped and saved") == 1
    assert stopped.run.failure() is None

    # A rank that is killed: the other one notices.
    killed = Torchrun(tmp_path / "run")
    os.kill(killed.under_way()[1], signal.SIGKILL)
    code, _, err = killed.ended()
    assert code != 0
    assert err.count("nsm: another rank died or did not answer for 0:30:00: ") == 1
    assert "another rank died" in killed.run.failure().reason

    # A rank that hangs: the other one waits no longer than it was told to.
    impatient = tmp_path / "impatient.py"
    impatient.write_text(
        "from datetime import timedelta\nfrom nsm import cli\nfrom nsm.training import distribution\n"
        "distribution.TIMEOUT = timedelta(seconds=3)\ncli.main()\n"
    )
    hanging = Torchrun(tmp_path / "run", [str(impatient)])
    leader, other = hanging.under_way()
    os.kill(other, signal.SIGSTOP)
    while Path(f"/proc/{leader}").exists():
        time.sleep(0.05)
    os.kill(other, signal.SIGKILL)
    code, _, err = hanging.ended()
    assert code != 0
    assert err.count("nsm: another rank died or did not answer for 0:00:03: ") == 1

    done = Torchrun(tmp_path / "run").ended()
    assert done[0] == 0, done[2]
    assert contents(tmp_path / "run") == contents(tmp_path / "straight")
    assert strays(tmp_path / "run") == []
