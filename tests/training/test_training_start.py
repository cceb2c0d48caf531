"""A run that begins with a trained machine: with exactly its weights, once, and only with that one."""

from dataclasses import replace

import pytest
import torch

from nsm.checks import UserError
from nsm.training.experiment import Optimiser
from nsm.training.loop import Stop, train
from nsm.training.run import RunDirectory
from nsm.training.signals import Interrupted
from nsm.training.start import read
from training.small_runs import At, contents, overshooting, small

STANDING = Optimiser(learning_rate=1e-30)
"""Too small a rate to move any weight."""


@pytest.fixture
def earlier(tmp_path_factory):
    """A run whose best machine is not its last."""
    directory = tmp_path_factory.mktemp("earlier") / "run"
    outcome = train(overshooting(), directory)
    assert outcome.best_step < outcome.steps
    return directory


@pytest.mark.parametrize("backend", ["fused", "reference"])
def test_it_begins_with_the_best_machine(earlier, tmp_path, backend):
    outcome = train(small(seed=1, optimiser=STANDING), tmp_path / "run", backend, start=read(earlier))
    best = RunDirectory(earlier).checkpoint("best").model
    for name, weights in RunDirectory(tmp_path / "run").checkpoint("last").model.items():
        assert torch.equal(weights, best[name]), name
    assert outcome.steps == 12


def test_it_begins_with_a_machine_that_was_saved(earlier, tmp_path):
    machine = RunDirectory(earlier).machine("last")
    machine.config = replace(machine.config, batch_first=True)  # which is a matter of how it is called
    machine.save_pretrained(tmp_path / "saved")
    start = read(tmp_path / "saved")
    assert start.machine == small().machine
    train(small(optimiser=STANDING), tmp_path / "run", start=start)
    for name, weights in RunDirectory(tmp_path / "run").checkpoint("last").model.items():
        assert torch.equal(weights, machine.state_dict()[name]), name


def test_the_same_weights_are_the_same_start_wherever_they_lie(earlier, tmp_path):
    RunDirectory(earlier).machine("best").save_pretrained(tmp_path / "best")
    RunDirectory(earlier).machine("last").save_pretrained(tmp_path / "last")
    assert read(tmp_path / "best").digest == read(earlier).digest != read(tmp_path / "last").digest


def test_it_goes_on_where_it_was_stopped(earlier, tmp_path):
    """The weights it began with are taken once; later it needs them no more, if it is told their digest."""
    start, experiment = read(earlier), small(seed=1)
    train(experiment, tmp_path / "straight", start=start)

    for name, again in (("same", {"start": start}), ("without", {})):
        with pytest.raises(Interrupted):
            train(experiment, tmp_path / name, callbacks=[At(5, stop := Stop())], start=start, stop=stop)
        train(RunDirectory(tmp_path / name).experiment, tmp_path / name, **again)
        assert contents(tmp_path / name) == contents(tmp_path / "straight")


def test_a_run_is_that_of_its_start(earlier, tmp_path):
    start = read(earlier)
    train(small(), tmp_path / "run", start=start)
    RunDirectory(earlier).machine("last").save_pretrained(tmp_path / "other")
    with pytest.raises(UserError, match="holds a run of another configuration: start was"):
        train(small(), tmp_path / "run", start=read(tmp_path / "other"))
    with pytest.raises(UserError, match="holds a run of another configuration: start was"):
        train(small(), tmp_path / "run")
    with pytest.raises(UserError, match="starts from a trained machine: name it with --start"):
        train(small(start=start.digest), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_machine_of_another_shape_is_refused(earlier, tmp_path):
    wrong = r"the machine of .* has another shape than this run's: controller.bias_hh is \(32,\) there and \(36,\) here"
    with pytest.raises(UserError, match=wrong):
        train(small(size=9), tmp_path / "run", start=read(earlier))
    with pytest.raises(UserError, match=r"missing (there|here)"):
        train(small(programs=None), tmp_path / "run", start=read(earlier))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("more", [-2, 5])
def test_the_tape_may_have_another_size(earlier, tmp_path, more):
    """No weight depends on it; what it begins with is taken as far as it goes."""
    experiment = small(optimiser=STANDING)
    slots = experiment.machine.memory.slots + more
    machine = replace(experiment.machine, memory=replace(experiment.machine.memory, slots=slots))
    train(replace(experiment, machine=machine), tmp_path, start=read(earlier))
    best = RunDirectory(earlier).checkpoint("best").model
    for name, weights in RunDirectory(tmp_path).checkpoint("last").model.items():
        if name == "memory.initial_memory":
            assert len(weights) == slots
            weights, best[name] = weights[: slots - max(more, 0)], best[name][:slots]
        assert torch.equal(weights, best[name]), name
