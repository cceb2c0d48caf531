"""The training path makes every tensor on the machine's device.

No accelerator is needed for that: the default device is set to meta, whose tensors have no numbers, while the machine
is on the CPU. A tensor made without saying where would land on meta, and show.
"""

from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from nsm import DNC, LRUA, Controller, Programs
from nsm.training.evaluation import evaluate
from nsm.training.learner import ReferenceLearner
from nsm.training.loop import TRAIN, build, train
from training.small_runs import contents, small


class OnlyOn(TorchDispatchMode):
    """Fails when an operation gives a tensor on another device."""

    def __init__(self, device):
        super().__init__()
        self.device, self.seen = device, 0

    def __torch_dispatch__(self, operation, types, arguments=(), options=None):
        out = operation(*arguments, **(options or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self.seen += 1
                assert leaf.device.type == self.device, f"{operation} made a tensor on {leaf.device}"
        return out


def with_machine(**changes):
    experiment = small(random_slots=True)
    return replace(experiment, machine=replace(experiment.machine, **changes))


CONFIGS = {
    "ntm": small(random_slots=True, cell_noise=0.3),
    "adam": small(optimiser="adam"),
    "gumbel": with_machine(programs=Programs(3, attention="gumbel")),
    "gru": with_machine(controller=Controller("gru", 8)),
    "feed-forward": with_machine(controller=Controller("feed-forward", 8)),
    "lrua": with_machine(memory=LRUA(slots=8, width=4)),
    "dnc": with_machine(memory=DNC(slots=8, width=4, links=True)),
    "mann": small(programs=None),
}


def test_the_guard_sees_a_tensor_on_the_default_device():
    with torch.device("meta"), OnlyOn("cpu"), pytest.raises(AssertionError, match="made a tensor on meta"):
        torch.zeros(2)


@pytest.mark.parametrize("name", CONFIGS)
def test_steps_and_evaluation_of_the_reference_stay_on_its_device(name):
    experiment = CONFIGS[name]
    task = experiment.task
    found = []
    for default in ("cpu", "meta"):
        learner = build(experiment, "reference")
        assert isinstance(learner, ReferenceLearner)
        batches = task.block(0, TRAIN, 0, 3, experiment.schedule.batch_size)
        with torch.device(default), OnlyOn("cpu") as guard:
            learner.prepare(task)
            losses = [learner.step(task, batch, step) for step, batch in enumerate(batches)]
            learner.check(3)
            found.append((losses, evaluate(learner.machine, task, 4)))
        assert guard.seen > 100
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", ["rmsprop", "adam"])
def test_the_optimiser_of_other_devices_stays_there(kind):
    """On meta itself: there the update is made by torch, not by a kernel."""
    from nsm.training.optimiser import FlatOptimiser, flatten

    machine = build(small(), "reference").machine.to("meta")
    flat, gradient = flatten(machine)
    with OnlyOn("meta") as guard:
        optimiser = FlatOptimiser(small(optimiser=kind).optimiser, flat, gradient)
        optimiser.step(1e-3)
    assert guard.seen >= 5
    assert all(tensor.is_meta for tensor in (flat, gradient, optimiser.square, optimiser.velocity))


@pytest.mark.parametrize("backend", ["fused", "reference"])
def test_a_whole_run_does_not_care_for_the_default_device(tmp_path, backend):
    """Building, training, saving, resuming and testing."""
    train(small(cell_noise=0.1), tmp_path / "plain", backend)
    with torch.device("meta"):
        train(small(cell_noise=0.1), tmp_path / "elsewhere", backend)
    assert contents(tmp_path / "elsewhere") == contents(tmp_path / "plain")
