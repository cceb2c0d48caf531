"""The operators behave as torch's own do: graphs, transforms, compilers, processes. As `nn.LSTM` would, so do they."""

import copy
import io
import os
import pickle
import signal
import subprocess
import sys
from itertools import product

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.library import opcheck
from torch.utils.data import DataLoader

import nsm
from fused.compare import Case
from nsm import description
from nsm.checks import UserError
from nsm.description import parse
from nsm.fused import kernels, operators, threads

MEMORIES = {
    "ntm": nsm.NTM(slots=16, width=6),
    "lrua": nsm.LRUA(slots=16, width=6, read_heads=2),
    "dnc": nsm.DNC(slots=16, width=6, read_heads=2, links=True),
}


assert operators  # importing it registers them


COMPLETE = "interface", "state", "output"


def make(memory="ntm", controller="lstm", parts=("interface",), **options):
    generator, stored = torch.Generator().manual_seed(0), nsm.Programs(2, parts=parts)
    options = {"controller": nsm.Controller(controller, size=12), "backend": "fused", **options}
    return nsm.NUTM(5, 3, stored, memory=MEMORIES[memory], generator=generator, **options)


@pytest.fixture
def x():
    return torch.randn(5, 2, 5, generator=torch.Generator().manual_seed(1))


def arguments(machine, x, lengths=None, trace=0):
    """What an operator takes, every tensor a leaf of its own that wants a gradient."""
    state = machine.initial_state(x.shape[1])
    leaves = [*state.controller, *state.memory, state.read]
    leaves, weights = ([t.detach().clone().requires_grad_() for t in some] for some in (leaves, machine.operands()))
    return x.clone().requires_grad_(), leaves, weights, None, None, lengths, machine._description, trace


# --- torch.library ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lengths", [None, [5, 2]])
@pytest.mark.parametrize("trace", [0, 2])
@pytest.mark.parametrize(
    ("controller", "parts"), [*product(["lstm", "gru", "rnn", "feed-forward"], [("interface",)]), ("lstm", COMPLETE)]
)
@pytest.mark.parametrize("memory", MEMORIES)
def test_opcheck(memory, controller, parts, trace, lengths, x):
    given = arguments(make(memory, controller, parts), x, None if lengths is None else torch.tensor(lengths), trace)
    opcheck(getattr(torch.ops.nsm, memory).default, given)


def test_a_graph_kept_for_other_code_is_not_found(monkeypatch):
    """Inductor goes by the arguments of a call; one of them is a text that is different then."""
    known = str(parse(make()._description))
    assert known == make()._description
    monkeypatch.setattr(description, "stamp", lambda: "other")
    assert str(parse(known)) != known


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("parts", [("interface",), COMPLETE], ids="+".join)
@pytest.mark.parametrize("memory", MEMORIES)
def test_opcheck_of_the_way_back(memory, parts, ends, x):
    x, state, parameters, *rest = arguments(make(memory, parts=parts), x)
    given = (x.detach(), *([t.detach() for t in some] for some in (state, parameters)), *rest)
    out, final, _, kept = getattr(torch.ops.nsm, memory)(*given, True)
    d_final = [torch.randn_like(leaf) for leaf in final] if ends else []
    for asked in product((True, False), repeat=2):
        opcheck(getattr(torch.ops.nsm, f"{memory}_backward").default, (out, d_final, kept, *given, *asked))


# --- autograd ---------------------------------------------------------------------------------------------------------


def test_a_state_carried_on_without_detach_is_an_error_as_in_an_lstm(x):
    machine = make()
    out, state = machine(x)
    out.sum().backward()
    out, _ = machine(x, state)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        out.sum().backward()


def test_truncated_backpropagation_detaches_the_state(x):
    machine = make()
    optimiser = torch.optim.SGD(machine.parameters(), 0.01)
    state = None
    for _ in range(3):
        out, state = machine(x, state)
        optimiser.zero_grad()
        out.square().sum().backward()
        optimiser.step()
        state = state.detach()
    assert not any(leaf.requires_grad for part in state[:2] for leaf in part)


@pytest.mark.parametrize("what", ["weight", "input", "state"])
def test_what_is_changed_in_place_before_the_way_back_is_noticed(what, x):
    machine = make()
    x.requires_grad_()
    given, state = x * 1, machine.initial_state(2)
    out, _ = machine(given, state)
    with torch.no_grad():
        {"weight": machine.output.weight, "input": given, "state": state.memory.memory}[what].mul_(1.5)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_a_graph_that_is_retained_goes_back_twice(x):
    machine = make()
    out, _ = machine(x)
    out.square().sum().backward(retain_graph=True)
    once = [parameter.grad.clone() for parameter in machine.parameters()]
    out.square().sum().backward()
    for first, both in zip(once, machine.parameters(), strict=True):
        assert torch.equal(2 * first, both.grad)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        out.square().sum().backward()


def test_hooks_on_tensors_are_called(x):
    machine, seen = make(), []
    out, state = machine(x)
    out.register_hook(lambda gradient: seen.append("out"))
    state.read.register_hook(lambda gradient: gradient * 0)
    machine.output.bias.register_hook(lambda gradient: seen.append("bias"))
    (out.sum() + state.read.sum()).backward()
    assert sorted(seen) == ["bias", "out"]


def test_anomaly_mode_names_the_operator(x):
    machine = make()
    with torch.no_grad():
        machine.output.weight[0, 0] = float("nan")
    with (
        pytest.warns(UserWarning, match="Anomaly Detection has been enabled"),
        torch.autograd.detect_anomaly(),
        pytest.warns(UserWarning, match="Error detected in _Sequence"),
        pytest.raises(RuntimeError, match="_SequenceBackward' returned nan values"),
    ):
        machine(x)[0].sum().backward()


def test_a_second_derivative_is_refused_not_forgotten(x):
    machine = make()
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(machine(x)[0].sum(), x, create_graph=True)
    with pytest.raises(UserError, match="no second derivatives; backend 'reference' has"):
        (gradient**2).sum().backward()
    machine.backend = "reference"
    (gradient,) = torch.autograd.grad(machine(x)[0].sum(), x, create_graph=True)
    (gradient**2).sum().backward()
    assert machine.output.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("batch", [1, 2])
def test_gradients_are_their_owners_for_good(memory, batch):
    """The next pass does not write over them, and nothing else that was handed out."""
    machine, x = make(memory), torch.randn(4, batch, 5, requires_grad=True)
    state = machine.initial_state(batch).to(torch.float32).detach().clone()
    leaves = [*state.controller, *state.memory, state.read]
    for leaf in leaves:
        leaf.requires_grad_()
    out, final, trace = machine(x, state, trace="memory")
    gradients = torch.autograd.grad(out.sum() + final.read.sum(), [x, *leaves], allow_unused=True)
    handed = [out, *final.memory, *final.controller, *trace.interfaces, trace.memory, trace.read_addresses]
    handed += [gradient for gradient in gradients if gradient is not None]
    before = [tensor.detach().clone() for tensor in handed]
    for _ in range(3):
        machine(x)[0].sum().backward()
    for tensor, was in zip(handed, before, strict=True):
        assert torch.equal(tensor, was)


def test_a_frozen_part_gets_no_gradient(x):
    machine = make()
    machine.controller.requires_grad_(False)
    machine(x)[0].sum().backward()
    assert machine.controller.weight_ih.grad is None
    assert machine.output.weight.grad is not None


def test_strides_are_of_no_account(x):
    machine = make()
    wide = torch.stack([x, torch.zeros_like(x)], dim=-1)[..., 0]
    assert not wide.is_contiguous()
    assert torch.equal(machine(wide)[0], machine(x)[0])
    machine.output.weight = nn.Parameter(machine.output.weight.detach().T.contiguous().T)
    out = machine(x)[0]
    assert torch.equal(out, machine(wide)[0])
    out.sum().backward()
    assert machine.output.weight.grad.shape == machine.output.weight.shape


# --- torch.func -------------------------------------------------------------------------------------------------------


def parameters_of(machine):
    return {name: parameter.detach() for name, parameter in machine.named_parameters()}


def squares(machine):
    return lambda parameters, x: functional_call(machine, parameters, (x,))[0].square().sum()


@pytest.mark.parametrize("parts", [("interface",), COMPLETE], ids="+".join)
@pytest.mark.parametrize("memory", MEMORIES)
def test_functional_call_and_grad(memory, parts, x):
    machine = make(memory, parts=parts)
    found = grad(squares(machine))(parameters_of(machine), x)
    machine(x)[0].square().sum().backward()
    for name, parameter in machine.named_parameters():
        assert torch.equal(found[name], parameter.grad)
    others = {name: 1.1 * parameter for name, parameter in parameters_of(machine).items()}
    changed = copy.deepcopy(machine)
    changed.load_state_dict({**changed.state_dict(), **others})
    assert torch.equal(functional_call(machine, others, (x,))[0], changed(x)[0])


@pytest.mark.parametrize("memory", MEMORIES)
def test_gradients_per_sample(memory, x):
    machine = make(memory)
    parameters = parameters_of(machine)
    whole = grad(squares(machine))(parameters, x)
    each = vmap(grad(squares(machine)), in_dims=(None, 1))(parameters, x)
    together = grad(lambda p: vmap(lambda one: functional_call(machine, p, (one,))[0], 1)(x).square().sum())(parameters)
    for name, gradient in whole.items():
        assert each[name].shape == (2, *gradient.shape)
        for found in (each[name].sum(0), together[name]):
            torch.testing.assert_close(found, gradient, rtol=1e-4, atol=1e-5 * float(gradient.abs().max()))


def test_an_ensemble_of_machines(x):
    machines = [nsm.NUTM(5, 3, 2, memory=MEMORIES["ntm"], backend="fused") for _ in range(3)]
    parameters, buffers = stack_module_state(machines)
    one = machines[0]
    found = vmap(lambda p, b: functional_call(one, (p, b), (x,))[0])(parameters, buffers)
    for machine, out in zip(machines, found, strict=True):
        assert torch.equal(out, machine(x)[0])


# --- torch.compile and torch.export -----------------------------------------------------------------------------------


class Model(nn.Module):
    def __init__(self, memory="ntm", **options):
        super().__init__()
        self.first, self.machine, self.last = nn.Linear(7, 5), make(memory, **options), nn.Linear(3, 2)

    def forward(self, x, lengths=None):
        return self.last(self.machine(self.first(x), lengths=lengths)[0])


def nodes(graph):
    return [str(node.target) for node in graph.nodes if "nsm" in str(node.target)]


@pytest.mark.parametrize("memory", MEMORIES)
def test_compiled_it_is_one_node(memory):
    torch._dynamo.reset()
    model, graphs = Model(memory), []

    def collect(module, _):
        graphs.append(module.graph)
        return module

    compiled = torch.compile(model, fullgraph=True, backend=collect)
    y = torch.randn(4, 2, 7)
    assert torch.equal(compiled(y), model(y))
    assert [nodes(graph) for graph in graphs] == [[f"nsm.{memory}.default"]]


def test_other_lengths_compile_nothing_anew():
    torch._dynamo.reset()
    model, graphs = Model(), []

    def collect(module, _):
        graphs.append(module.graph)
        return module

    compiled, y = torch.compile(model, fullgraph=True, backend=collect), torch.randn(6, 3, 7)
    for lengths in ([6, 2, 3], [1, 6, 5], [4, 4, 4]):
        assert torch.equal(compiled(y, torch.tensor(lengths)), model(y, torch.tensor(lengths)))
    assert len(graphs) == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.thorough
def test_compiled_by_inductor_it_trains_the_same_also_on_other_lengths():
    torch._dynamo.reset()
    model = Model()
    compiled = torch.compile(model, fullgraph=True)
    for lengths in (None, torch.tensor([4, 2]), torch.tensor([1, 3])):
        y = torch.randn(4, 2, 7)
        found = []
        for call in (compiled, model):
            model.zero_grad()
            out = call(y, lengths)
            out.square().sum().backward()
            found.append([out.detach(), *(parameter.grad.clone() for parameter in model.parameters())])
        for ours, theirs in zip(*found, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("memory", MEMORIES)
def test_exported_it_runs_and_gives_the_same_numbers(memory):
    model = Model(memory)
    any_size = {0: torch.export.Dim("T", min=2, max=50), 1: torch.export.Dim("B", min=2, max=50)}
    exported = torch.export.export(model, (torch.randn(4, 2, 7),), dynamic_shapes=(any_size,))
    assert nodes(exported.graph) == [f"nsm.{memory}.default"]
    file = io.BytesIO()
    torch.export.save(exported, file)
    file.seek(0)
    for program in (exported, torch.export.load(file)):
        y = torch.randn(9, 3, 7)
        assert torch.equal(program.module()(y), model(y))


# --- copies, files, processes -----------------------------------------------------------------------------------------


def test_copies_are_machines_of_their_own(x):
    machine = make()
    out, state = machine(x)
    for again in (copy.deepcopy(machine), pickle.loads(pickle.dumps(machine))):
        assert torch.equal(again(x)[0], out)
        with torch.no_grad():
            again.output.weight.zero_()
        assert torch.equal(machine(x)[0], out)
    same = pickle.loads(pickle.dumps(state.detach()))
    assert torch.equal(machine(x, same)[0], machine(x, state)[0])


def test_a_forked_process_has_threads_of_its_own():
    case = Case(make(), 4, 9)
    case.fused(threads=2)
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        case.fused(threads=2)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


class Answers(torch.utils.data.Dataset):
    """A data set that a machine makes."""

    def __init__(self, machine, x):
        self.machine, self.x = machine, x

    def __len__(self):
        return self.x.shape[1]

    def __getitem__(self, i):
        torch.set_num_threads(2)
        with torch.no_grad():
            return self.machine(self.x[:, i : i + 1].expand(-1, 9, -1))[0]


def test_workers_of_a_data_loader_run_machines():
    machine, x = make(), torch.randn(5, 4, 5)
    Case(machine, 4, 9).fused(threads=2)
    loader = DataLoader(Answers(machine, x), batch_size=2, num_workers=2, multiprocessing_context="fork", timeout=60)
    found = torch.cat(list(loader))
    with torch.no_grad():
        expected = machine(x)[0]
    assert torch.equal(found[:, :, 0], expected.transpose(0, 1))


RANK = """
import os
import sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel
from fused.test_operators import make

def rank(number, address):
    dist.init_process_group("gloo", init_method=f"file://{address}", rank=number, world_size=2)
    machine, x = make(), torch.randn(5, 4, 5, generator=torch.Generator().manual_seed(2))
    wrapped = DistributedDataParallel(machine)
    for _ in range(2):
        machine.zero_grad()
        wrapped(x[:, 2 * number : 2 * number + 2])[0].square().mean().backward()
    alone = make()
    alone(x)[0].square().mean().backward()
    for ours, theirs in zip(machine.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-7)
    dist.destroy_process_group()
    os._exit(0)  # now and then a thread of torch's aborts while a rank ends, after its work

if __name__ == "__main__":
    mp.spawn(rank, args=(sys.argv[1],), nprocs=2)
"""


@pytest.mark.thorough
def test_two_processes_of_distributed_data_parallel_have_the_gradient_of_one(tmp_path):
    make()(torch.randn(2, 1, 5))  # so that neither has to compile
    script = tmp_path / "rank.py"
    script.write_text(RANK)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, script, tmp_path / "meet"], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr


# --- sizes ------------------------------------------------------------------------------------------------------------


def test_threads_are_torchs(monkeypatch):
    """As many as torch has, and never more than there are chunks of the batch."""
    machine, asked, run = make(), [], threads.run
    x = torch.randn(3, 12, 5)
    monkeypatch.setattr(threads, "run", lambda entry, address, count: asked.append(count) or run(entry, address, count))
    before = torch.get_num_threads()
    try:
        for count in (1, 2, 8):
            torch.set_num_threads(count)
            machine(x)
    finally:
        torch.set_num_threads(before)
    assert asked[1::2] == [1, 2, 3]  # after each packing of weights, which here is too little to share


@pytest.mark.parametrize("team", [threads._team(), threads._pythons])
def test_a_team_of_threads_does_all_the_work_once(team, monkeypatch):
    """Torch's own, and Python's where torch's are not to be found."""
    machine, x = make(), torch.randn(9, 23, 5)
    expected = machine(x)[0]
    monkeypatch.setattr(threads, "_team", lambda: team)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        for _ in range(20):
            assert torch.equal(machine(x)[0], expected)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("default", ["device", "precision"])
def test_neither_the_default_device_nor_precision_matter(x, default):
    machine = make()
    expected, _ = machine(x)
    expected.sum().backward()
    gradients = [parameter.grad.clone() for parameter in machine.parameters()]
    machine.zero_grad()
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64 if default == "precision" else before)
        torch.set_default_device("meta" if default == "device" else None)
        out, _ = machine(x)
        out.sum().backward()
        with torch.no_grad():
            again, _ = machine(x)
    finally:
        torch.set_default_dtype(before)
        torch.set_default_device(None)
    assert torch.equal(out, expected)
    assert torch.equal(again, expected)
    for parameter, gradient in zip(machine.parameters(), gradients, strict=True):
        assert torch.equal(parameter.grad, gradient)


@pytest.mark.parametrize("memory", MEMORIES)
def test_without_a_gradient_stretches_of_a_ragged_batch_follow_each_other(memory, monkeypatch):
    """A sequence stays with its thread from stretch to stretch, however many others have ended."""
    monkeypatch.setattr(kernels, "FORGOTTEN", 1 << 14)
    machine, x, lengths = make(memory), torch.randn(40, 24, 5), [40, 3, 24, 31, 1, 17] * 4
    expected, final = machine(x, lengths=lengths)
    before = torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            for _ in range(10):
                with torch.no_grad():
                    out, state = machine(x, lengths=lengths)
                torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)
                torch.testing.assert_close(state.read, final.read, rtol=1e-4, atol=1e-5)
    finally:
        torch.set_num_threads(before)
