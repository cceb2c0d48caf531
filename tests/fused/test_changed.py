"""A machine that its user changed, hooked or wrapped: the operators take its weights, or leave it to the reference."""

import pytest
import torch
from torch import nn
from torch.nn.utils import prune
from torch.nn.utils import weight_norm as old_weight_norm
from torch.nn.utils.parametrizations import orthogonal, spectral_norm, weight_norm

import nsm
from nsm.checks import UserError


def make(kind=nsm.NUTM, **options):
    torch.manual_seed(0)
    return kind(5, 3, controller=nsm.Controller("lstm", size=12), memory=nsm.NTM(slots=16, width=6), **options)


@pytest.fixture
def x():
    return torch.randn(5, 2, 5, generator=torch.Generator().manual_seed(1))


def another_output(machine):
    machine.output = nn.Linear(machine.output.in_features, 7)


def pruned(machine):
    prune.l1_unstructured(machine.output, "weight", 0.2)


def tied(machine):
    machine.interfaces[1].query = machine.interfaces[0].query


CHANGES = {
    "output": another_output,
    "pruned": pruned,
    "spectral": lambda machine: spectral_norm(machine.eval().output),
    "normed": lambda machine: weight_norm(machine.interfaces[0].query),
    "normed by a hook": lambda machine: old_weight_norm(machine.interfaces[0].query),
    "orthogonal keys": lambda machine: orthogonal(machine.interfaces[0].memory, "key"),
    "normed programs": lambda machine: weight_norm(machine.interfaces[1].memory, "weight"),
    "tied": tied,
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("when", ["at once", "after a pass"])
@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
def test_a_changed_machine_runs_on_the_operators(x, change, when):
    """They take the weights they are handed, whatever makes these."""
    machine = make(backend="fused")
    if when == "after a pass":
        machine(x)
    CHANGES[change](machine)
    found = results(machine, x)
    machine.backend = "reference"
    for ours, theirs in zip(found, results(machine, x), strict=True):
        assert torch.allclose(ours, theirs, atol=2e-5 * max(1e-3, float(theirs.abs().max())))


def results(machine, x):
    """The output, and the gradients of all parameters."""
    machine.zero_grad()
    out = machine(x)[0]
    out.square().sum().backward()
    return [out.detach(), *(parameter.grad.clone() for parameter in machine.parameters())]


def test_hooks_are_called(x):
    """A module with a hook is called, so the reference runs."""
    machine, called = make(), []
    machine(x)
    handle = machine.controller.register_forward_hook(lambda *_: called.append(1))
    assert machine.uncovered() == "hooks on a LSTM"
    machine(x)
    assert len(called) == len(x)
    handle.remove()
    assert machine.uncovered() is None


def test_a_module_that_computes_something_else_is_called(x):
    class Doubled(nn.Linear):
        def forward(self, c):
            return 2 * super().forward(c)

    machine = make()
    machine.output = Doubled(machine.output.in_features, 3)
    assert machine.uncovered() == "a Doubled in place of a Linear"
    doubled = machine(x)[0]
    machine.output.__class__ = nn.Linear
    assert machine.uncovered() is None
    assert torch.allclose(doubled, 2 * machine(x)[0], atol=1e-5)


@pytest.mark.parametrize(
    ("part", "made", "reason"),
    [
        ("output", lambda old: nn.Linear(old.in_features, 3, bias=False), "a Linear without bias"),
        ("norm", lambda old: nn.LayerNorm(old.normalized_shape, eps=1e-3), "a LayerNorm with eps = 0.001"),
    ],
)
def test_modules_that_a_kernel_has_no_like_of_are_called(part, made, reason, x):
    machine = make(interface=nsm.Interface(norm=True))
    if part == "output":
        machine.output = made(machine.output)
    else:
        machine.norms[0] = made(machine.norms[0])
    assert machine.uncovered() == reason
    found = machine(x)[0]
    machine.backend = "reference"
    assert torch.equal(found, machine(x)[0])


def test_a_tensor_of_another_shape_is_refused_before_a_kernel_reads_it(x):
    machine = make(backend="fused")
    machine.output = nn.Linear(7, 3)
    with pytest.raises(
        UserError, match=r"parameters\[.*\] must have shape \(3, 18\) of torch.float32 here, was \(3, 7\)"
    ):
        machine(x)
    machine = make(backend="fused")
    machine.controller.bias_hh = None
    with pytest.raises(UserError, match="parameters must be 20 tensors for this description, were 19"):
        machine(x)


def test_steps_of_ones_own_are_made(x):
    class Doubled(nsm.NUTM):
        def _step(self, *arguments):
            y, state, trace = super()._step(*arguments)
            return 2 * y, state, trace

    found, plain = make(Doubled)(x)[0], make()(x)[0]
    assert torch.allclose(found, 2 * plain, atol=1e-6)


def test_parts_of_ones_own_beside_a_machines_do_not_keep_the_kernels_from_it(x):
    class Headed(nsm.NUTM):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            self.scale = nn.Parameter(torch.full((3,), 2.0))
            self.head = nn.Linear(3, 4)

        def forward(self, x, *rest, **options):
            out, state = super().forward(x, *rest, **options)
            return self.head(self.scale * out), state

    machine = make(Headed)
    assert machine.uncovered() is None
    found = results(machine, x)
    machine.backend = "reference"
    for ours, theirs in zip(found, results(machine, x), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5 * max(1, float(theirs.abs().max())))


def test_noise_with_a_gradient_is_left_to_the_reference(x):
    machine = make()
    noise = machine.draw_noise(5, 2, generator=torch.Generator(), cell=0.1)
    noise.cell.requires_grad_()
    with pytest.raises(UserError, match="backend 'fused' doesn't cover noise with a gradient"):
        make(backend="fused")(x, noise=noise)
    machine(x, noise=noise)[0].sum().backward()
    assert noise.cell.grad.abs().sum() > 0
