"""A machine that its user changed, hooked or wrapped: the kernels leave it to the reference, or say that they can't."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import prune
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

import nsm
from fused.compare import Case
from nsm import nested
from nsm.checks import UserError
from nsm.fused.engine import Engine
from nsm.fused.function import unsupported


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
    "tied": tied,
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("when", ["at once", "after a pass"])
def test_a_changed_machine_is_left_to_the_reference(x, change, when):
    machine = make()
    if when == "after a pass":
        machine(x)
    CHANGES[change](machine)
    assert unsupported(machine, x).startswith(("a changed ", "hooks on "))
    found = machine(x)[0]
    machine.backend = "reference"
    assert torch.equal(found, machine(x)[0])
    machine.backend = "fused"
    with pytest.raises(UserError, match=r"backend 'fused' doesn't cover (a changed|hooks on)"):
        machine(x)


def test_hooks_are_called(x):
    machine, called = make(), []
    machine(x)
    handle = machine.controller.register_forward_hook(lambda *_: called.append(1))
    assert unsupported(machine, x) == "hooks on controller"
    machine(x)
    assert len(called) == len(x)
    handle.remove()
    assert unsupported(machine, x) is None


def test_steps_of_ones_own_are_made(x):
    class Doubled(nsm.NUTM):
        def _step(self, x, state, noise):
            y, state, trace = super()._step(x, state, noise)
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
    assert unsupported(machine, x) is None
    found = {}
    for backend in ("fused", "reference"):
        machine.backend = backend
        machine.zero_grad()
        out = machine(x)[0]
        out.square().sum().backward()
        found[backend] = [out.detach(), *(parameter.grad.clone() for parameter in machine.parameters())]
    for ours, theirs in zip(found["fused"], found["reference"], strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5 * max(1, float(theirs.abs().max())))


def test_a_second_derivative_is_refused_not_forgotten(x):
    machine = make(backend="fused")
    x.requires_grad_()
    with pytest.raises(UserError, match="no second derivatives; backend 'reference' has"):
        torch.autograd.grad(machine(x)[0].sum(), x, create_graph=True)
    machine.backend = "reference"
    (gradient,) = torch.autograd.grad(machine(x)[0].sum(), x, create_graph=True)
    (gradient**2).sum().backward()
    assert machine.output.weight.grad.abs().sum() > 0


def test_noise_with_a_gradient_is_left_to_the_reference(x):
    machine = make()
    noise = machine.draw_noise(5, 2, generator=torch.Generator(), cell=0.1)
    noise.cell.requires_grad_()
    assert unsupported(machine, x, noise) == "noise with a gradient"
    machine(x, noise=noise)[0].sum().backward()
    assert noise.cell.grad.abs().sum() > 0


@pytest.mark.filterwarnings("ignore")
def test_a_compiled_machine_equals_one_that_is_not(x):
    machine = make()
    compiled = torch.compile(machine, backend="eager")
    assert torch.allclose(compiled(x)[0], machine(x)[0], atol=1e-6)


def test_an_input_overwritten_after_a_long_pass_does_not_change_its_gradient():
    """Above the limit of memory a pass is made in stretches, which are run again on the way back."""
    case = Case(make(), 9, 2, cell_noise=0.1)
    engine = Engine(case.machine)
    engine.memory_limit = 2_000
    flat = torch.cat([parameter.detach().reshape(-1) for parameter in case.machine.parameters()]).numpy()
    state = nested.apply(lambda t: t.numpy(), case.state)
    d_final = nested.apply(lambda t: t.numpy(), case.d_final)
    found = []
    for spoil in (False, True):
        x, noise = case.x.numpy().copy(), nested.apply(lambda t: t.numpy().copy(), case.noise)
        run = engine.run(flat, x, case.lengths, state, noise, input_gradient=True)
        if spoil:
            x[:] = 7
            noise.cell[:] = 7
        gradient = np.zeros(engine.size, np.float32)
        run.backward(case.d_out.numpy(), d_final, gradient)
        found.append(gradient)
    assert np.array_equal(*found)


def test_a_forked_process_has_threads_of_its_own():
    case = Case(make(), 4, 9)
    case.fused(threads=2)
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        case.fused(threads=2)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# --- compiled code on the disk ----------------------------------------------------------------------------------------

DOUBLED = """
import numpy as np
from nsm.fused.cache import compiled

@compiled
def doubled(a):
    for i in range(a.size):
        a[i] *= 2

a = np.ones(3, np.float32)
doubled(a)
print(a.sum())
"""


@pytest.mark.parametrize("harm", ["emptied", "halved", "flipped"])
@pytest.mark.parametrize("kind", ["nbi", "nbc"])
def test_a_damaged_kernel_is_compiled_again(tmp_path, harm, kind):
    script = tmp_path / "script.py"
    script.write_text(DOUBLED)
    environment = {**os.environ, "NSM_CACHE": str(tmp_path / "cache")}

    def run():
        return subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=True)

    assert run().stdout == "6.0\n"
    (file,) = (tmp_path / "cache").rglob(f"*.{kind}")
    content = file.read_bytes()
    half = len(content) // 2
    flipped = content[:half] + bytes(byte ^ 0xFF for byte in content[half : half + 64]) + content[half + 64 :]
    file.write_bytes({"emptied": b"", "halved": content[:half], "flipped": flipped}[harm])
    again = run()
    assert again.stdout == "6.0\n"
    assert "is damaged" in again.stderr
    assert run().stderr == ""
