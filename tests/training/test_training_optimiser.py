"""RMSprop and Adam on one flat buffer do what torch's do on many tensors."""

import pytest
import torch
from torch import nn

from nsm.training.experiment import Optimiser
from nsm.training.loop import TRAIN, build
from nsm.training.optimiser import FlatOptimiser, flatten
from training.small_runs import small

STEPS, CLIP = 200, 0.5


def theirs(config, parameters):
    if config.kind == "rmsprop":
        return torch.optim.RMSprop(
            parameters, config.learning_rate, config.alpha, config.epsilon, momentum=config.momentum
        )
    return torch.optim.Adam(parameters, config.learning_rate, (config.momentum, config.beta2), config.epsilon)


def network(dtype):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).to(dtype)


def gradients(step, parameters):
    """Gradients of very different sizes, many beyond the clip, some exactly zero."""
    generator = torch.Generator().manual_seed(step)
    for parameter in parameters:
        scale = 10 ** (3 * torch.rand(parameter.shape, generator=generator) - 2)
        gradient = scale * torch.randn(parameter.shape, generator=generator)
        yield (gradient * (torch.rand(parameter.shape, generator=generator) > 0.1)).to(parameter.dtype)


@pytest.mark.parametrize("path", ["kernel", "torch", "double"])
@pytest.mark.parametrize("kind", ["rmsprop", "adam"])
def test_many_updates_equal_those_of_torch(kind, path):
    config = Optimiser(kind, learning_rate=3e-3, alpha=0.9, momentum=0.8, beta2=0.98, epsilon=1e-6, clip=CLIP)
    dtype = torch.float64 if path == "double" else torch.float32
    ours, other = network(dtype), network(dtype)
    optimiser = FlatOptimiser(config, *flatten(ours))
    assert optimiser._kernel == (path != "double")
    if path == "torch":
        optimiser._kernel = False
    expected = theirs(config, other.parameters())
    start = [parameter.clone() for parameter in other.parameters()]
    for step in range(STEPS):
        rate = config.learning_rate * (1 - step / (2 * STEPS))
        drawn = list(gradients(step, other.parameters()))
        for mine, their, gradient in zip(ours.parameters(), other.parameters(), drawn, strict=True):
            mine.grad.copy_(gradient)
            their.grad = gradient.clone()
        nn.utils.clip_grad_value_(other.parameters(), CLIP)
        expected.param_groups[0]["lr"] = rate
        expected.step()
        optimiser.step(rate)
    tolerance = 1e-14 if path == "double" else 5e-7
    for mine, their, before in zip(ours.parameters(), other.parameters(), start, strict=True):
        assert (their - before).abs().min() > 100 * tolerance, "nothing has moved"
        torch.testing.assert_close(mine, their, rtol=0, atol=tolerance)


@pytest.mark.parametrize("kind", ["rmsprop", "adam"])
def test_a_state_that_was_saved_goes_on_to_the_bit(kind):
    config = Optimiser(kind, learning_rate=0.01)
    straight, resumed = (FlatOptimiser(config, *flatten(network(torch.float32))) for _ in range(2))

    def update(optimiser, step):
        generator = torch.Generator().manual_seed(step)
        optimiser.gradient.copy_(torch.randn(optimiser.gradient.shape, generator=generator))
        optimiser.step(0.01)

    for step in range(5):
        update(straight, step)
    resumed.flat.copy_(straight.flat)
    resumed.restore({name: tensor.clone() for name, tensor in straight.state().items()})
    for step in range(5, 10):
        for optimiser in (straight, resumed):
            update(optimiser, step)
    assert torch.equal(straight.flat, resumed.flat)
    assert all(torch.equal(a, b) for a, b in zip(straight.state().values(), resumed.state().values(), strict=True))


# --- the flat buffer --------------------------------------------------------------------------------------------------


def test_parameters_and_gradients_are_views_of_the_flat_buffers():
    module = network(torch.float32)
    before = [parameter.detach().clone() for parameter in module.parameters()]
    flat, gradient = flatten(module)
    assert flat.numel() % 16 == 0
    start = 0
    for parameter, values in zip(module.parameters(), before, strict=True):
        end = start + parameter.numel()
        assert torch.equal(parameter, values), "flattening changed a weight"
        assert parameter.data_ptr() == flat[start:].data_ptr()
        assert parameter.grad.data_ptr() == gradient[start:].data_ptr()
        flat[start:end] += 1
        assert torch.equal(parameter, values + 1), "a change of the buffer is not one of the parameter"
        start = end
    assert torch.equal(flat[start:], torch.zeros(flat.numel() - start))
    module(torch.ones(2, 5)).sum().backward()
    assert module[0].weight.grad.data_ptr() == gradient.data_ptr(), "backward replaced the view"
    assert gradient[: module[0].weight.numel()].any()


@pytest.mark.parametrize("backend", ["fused", "reference"])
def test_a_learners_weights_stay_views_after_loading(backend):
    learner = build(small(), backend)
    saved = {name: tensor.clone() for name, tensor in learner.machine.state_dict().items()}
    learner.flat.zero_()
    assert all(not parameter.any() for parameter in learner.machine.parameters())
    learner.machine.load_state_dict(saved)
    joined = torch.cat([parameter.detach().reshape(-1) for parameter in learner.machine.parameters()])
    assert torch.equal(learner.flat[: joined.numel()], joined)
    assert learner.flat.any()


def test_padding_stays_zero():
    experiment = small(size=9)
    learner, task = build(experiment, "fused"), experiment.task
    used = learner.machine.parameter_count
    assert learner.flat.numel() > used, "this machine needs no padding: choose another size"
    for step, batch in enumerate(task.block(0, TRAIN, 0, 5, 2)):
        learner.step(task, batch, step)
    assert not learner.flat[used:].any()


# --- the learning rate ------------------------------------------------------------------------------------------------


def test_the_learning_rate_falls_linearly_to_its_final_share():
    experiment = small(optimiser=Optimiser(learning_rate=0.4, final_rate=0.25), iterations=100)
    assert experiment.rate(0) == 0.4
    assert experiment.rate(50) == pytest.approx(0.4 * 0.625)
    assert experiment.rate(100) == pytest.approx(0.1)
    falls = [experiment.rate(step) - experiment.rate(step + 1) for step in range(100)]
    assert falls == pytest.approx([0.003] * 100)
    constant = small(optimiser=Optimiser(learning_rate=0.4))
    assert {constant.rate(step) for step in range(12)} == {0.4}


@pytest.mark.parametrize("backend", ["fused", "reference"])
def test_the_falling_rate_reaches_the_updates(monkeypatch, backend):
    experiment = small(optimiser=Optimiser(learning_rate=0.4, final_rate=0.0))
    learner, task, rates = build(experiment, backend), experiment.task, []
    monkeypatch.setattr(learner.optimiser, "step", rates.append)
    for step, batch in enumerate(task.block(0, TRAIN, 0, 12, 2)):
        learner.step(task, batch, step)
    assert rates == pytest.approx([0.4 * (1 - step / 12) for step in range(12)])
