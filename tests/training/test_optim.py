"""nsm.optim: the numbers of torch.optim, its state dictionaries, schedulers and errors."""

import copy

import pytest
import torch

import nsm
from nsm.checks import UserError
from nsm.optim import Adam, RMSprop

CASES = [
    (RMSprop, torch.optim.RMSprop, {"lr": 1e-2}),
    (RMSprop, torch.optim.RMSprop, {"lr": 1e-2, "momentum": 0.9, "alpha": 0.95, "eps": 1e-4, "weight_decay": 0.1}),
    (Adam, torch.optim.Adam, {"lr": 1e-2}),
    (Adam, torch.optim.Adam, {"lr": 1e-2, "betas": (0.8, 0.99), "eps": 1e-4, "weight_decay": 0.1}),
]


def pair():
    machine = nsm.NUTM(5, 3, programs=2, controller=nsm.Controller(size=12), memory=nsm.NTM(slots=8, width=5))
    return machine, copy.deepcopy(machine)


def train(machine, optimiser, steps, seed=0):
    """With gradients that do not depend on the weights: what is compared is the update alone."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        for parameter in machine.parameters():
            if parameter.requires_grad:
                parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimiser.step()


def assert_same(ours, theirs):
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("ours", "theirs", "options"), CASES)
def test_same_numbers_as_torch(ours, theirs, options):
    first, second = pair()
    train(first, ours(first.parameters(), **options), 5)
    train(second, theirs(second.parameters(), **options), 5)
    assert_same(first, second)


@pytest.mark.parametrize(("ours", "theirs", "options"), CASES)
def test_a_state_dictionary_goes_on_where_it_was(ours, theirs, options):
    first, second = pair()
    whole = ours(first.parameters(), **options)
    train(first, whole, 3)
    train(first, whole, 3, seed=1)
    half = ours(second.parameters(), **options)
    train(second, half, 3)
    resumed = ours(second.parameters(), **options)
    resumed.load_state_dict(half.state_dict())
    train(second, resumed, 3, seed=1)
    for mine, other in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(mine, other)


def test_groups_schedulers_and_closures_are_torchs():
    first, second = pair()
    optimisers = []
    for machine, kind in ((first, RMSprop), (second, torch.optim.RMSprop)):
        groups = [{"params": list(machine.controller.parameters()), "lr": 1e-3}]
        groups.append({"params": [p for name, p in machine.named_parameters() if not name.startswith("controller")]})
        optimiser = kind(groups, lr=1e-2)
        schedule = torch.optim.lr_scheduler.StepLR(optimiser, 1, gamma=0.5)
        for _ in range(3):

            def closure(machine=machine, optimiser=optimiser):
                optimiser.zero_grad()
                loss = sum(parameter.sin().sum() for parameter in machine.parameters())
                loss.backward()
                return loss

            optimiser.step(closure)
            schedule.step()
        optimisers.append(optimiser)
    assert_same(first, second)


def test_what_is_updated_is_noticed_by_autograd():
    machine, _ = pair()
    optimiser = RMSprop(machine.parameters())
    out = machine(torch.randn(3, 2, 5))[0].sum()
    out.backward(retain_graph=True)
    optimiser.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.backward()


def test_a_parameter_without_a_gradient_stays():
    machine, _ = pair()
    machine.output.bias.requires_grad_(False)
    before = machine.output.bias.clone()
    train(machine, RMSprop(machine.parameters()), 2)
    assert torch.equal(machine.output.bias, before)


def test_other_precisions_are_refused_with_what_to_do():
    layer = torch.nn.Linear(3, 3).double()
    layer(torch.ones(1, 3, dtype=torch.float64)).sum().backward()
    with pytest.raises(UserError, match=r"use torch\.optim"):
        RMSprop(layer.parameters()).step()
