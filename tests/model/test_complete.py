"""Complete machines: state network and output layer are stored programs, too."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import nsm
from nsm import DNC, LRUA, NTM, NUTM, Controller, Interface, Noise, Programs
from nsm.attention import ATTENTION
from nsm.controllers import NETWORKS
from nsm.programs import key_similarity_loss
from nsm.tree import from_json, to_json
from oracles import complete

ALL = ("interface", "state", "output")
PARTS = [ALL, ("interface", "state"), ("output", "interface")]
P, STEPS, BATCH = 3, 5, 3


def make(kind="lstm", parts=ALL, memory=None, programs=P, attention="key-value", **options):
    """A small complete machine in float64 whose parameters all matter."""
    memory = memory or NTM(slots=6, width=3, initial_memory="random")
    options = {"interface": Interface(gain=3, fan="head"), "backend": "reference", **options}
    generator = torch.Generator().manual_seed(0)
    stored = Programs(programs, attention=attention, parts=parts)
    return NUTM(
        3, 2, stored, controller=Controller(kind, size=5), memory=memory, generator=generator, **options
    ).double()


def randomise(machine):
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in machine.parameters():
            parameter.normal_(generator=generator)
    return machine


# --- equations --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("parts", PARTS, ids="+".join)
@pytest.mark.parametrize("kind", NETWORKS)
def test_a_machine_is_the_paper_s_with_all_of_its_controller_stored(kind, parts, randn):
    """By scalar loops: outputs, controller states and the weights of all programs, with weights built for each step."""
    machine, x = randomise(make(kind, parts)), randn(STEPS, BATCH, 3)
    out, _, trace = machine(x, trace=True)
    arrays = {name: tensor.detach().numpy() for name, tensor in machine.state_dict().items()}
    for b in range(BATCH):
        found = complete.run(kind, parts, arrays, x[:, b].numpy(), machine.initial_state(1))
        for ours, theirs in ((out, "out"), (trace.controller, "controller"), (trace.reads, "reads")):
            np.testing.assert_allclose(ours[:, b].detach().numpy(), found[theirs], rtol=1e-9, atol=1e-11)
        for ours, theirs in ((trace.state_programs, "state"), (trace.output_programs, "output")):
            assert (ours is None) == (theirs not in parts)
            if ours is not None:
                np.testing.assert_allclose(ours[:, b].detach().numpy(), found[theirs], rtol=1e-9, atol=1e-11)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("memory", [LRUA(slots=6, width=3, read_heads=2), DNC(slots=6, width=3, read_heads=2)])
@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize("attention", ATTENTION)
def test_one_program_is_the_machine_without(attention, kind, memory, randn):
    plain = NUTM(3, 2, Programs(1), controller=Controller(kind, size=5), memory=memory, backend="reference").double()
    machine = make(kind, memory=memory, programs=1, attention=attention)
    given = plain.state_dict()
    tensors = machine.state_dict()
    for name, tensor in given.items():
        if name.startswith("controller."):
            inner = name.removeprefix("controller.")
            tensors[f"controller.memory.network.{inner}"] = tensor if "initial" in name else tensor.unsqueeze(0)
        elif name == "output.weight":
            tensors["output.memory.weight"] = tensor.T.unsqueeze(0)
        elif name == "output.bias":
            tensors["output.memory.bias"] = tensor.unsqueeze(0)
        elif name in tensors:
            tensors[name] = tensor
    machine.load_state_dict(tensors)
    x = randn(STEPS, BATCH, 3)
    assert_close(machine.eval()(x), plain(x), rtol=1e-10, atol=1e-12)


@pytest.mark.usefixtures("backend")
def test_equal_programs_are_one_program(randn):
    single, machine = make(programs=1), make()
    tensors = {name: tensor for name, tensor in machine.state_dict().items()}
    for name, tensor in single.state_dict().items():
        if tensor.shape == tensors[name].shape:
            tensors[name] = tensor
        elif ".query." not in name and not name.endswith(".key"):
            tensors[name] = tensor.expand_as(tensors[name])
    machine.load_state_dict(tensors)
    x = randn(STEPS, BATCH, 3)
    assert_close(machine(x), single(x), rtol=1e-10, atol=1e-12)


@pytest.mark.usefixtures("backend")
def test_the_state_network_s_choice_is_causal(randn):
    """It is made of x_t, r_{t−1} and h_{t−1}: an input changes the choice of its own step and of none before."""
    machine, x = randomise(make()), randn(STEPS, BATCH, 3)
    before = machine(x, trace=True)[2]
    changed = x.clone()
    changed[3] += 1
    after = machine(changed, trace=True)[2]
    for ours, theirs in (
        (after.state_programs, before.state_programs),
        (after.output_programs, before.output_programs),
    ):
        assert torch.equal(ours[:3], theirs[:3])
        assert (ours[3] != theirs[3]).any()
    state = machine.initial_state(BATCH)
    seen = torch.cat([x[0], state.read, state.controller.hidden], dim=-1)
    query, strength = machine.controller.ask(seen)
    assert_close(before.state_programs[0], machine.controller.memory.attend(query, strength))


@pytest.mark.parametrize("memory", ["ntm", "lrua", "dnc"])
@pytest.mark.parametrize("kind", NETWORKS)
def test_gradients_are_those_of_finite_differences(kind, memory, randn):
    memories = {"ntm": NTM, "lrua": LRUA, "dnc": DNC}
    machine = make(kind, memory=memories[memory](slots=4, width=2, initial_memory="random"))
    parameters, x = dict(machine.named_parameters()), randn(3, 2, 3).requires_grad_()

    def outputs(x, *given):
        named = dict(zip(parameters, given, strict=True))
        return torch.func.functional_call(machine, named, x)[0]

    assert torch.autograd.gradcheck(outputs, (x, *parameters.values()), fast_mode=True)
    out = machine(x)[0]
    (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum().backward()
    for name, parameter in machine.named_parameters():
        assert parameter.grad.abs().sum() > 0, name


# --- as every machine -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("backend")
def test_a_loop_of_steps_is_a_forward_pass(randn):
    machine, x = make(), randn(STEPS, BATCH, 3)
    state, outputs = machine.initial_state(BATCH), []
    for t in range(STEPS):
        out, state = machine.step(x[t], state)
        outputs.append(out)
    assert_close((torch.stack(outputs), state), machine(x), rtol=0, atol=0)


@pytest.mark.usefixtures("backend")
def test_sequences_of_a_ragged_batch_are_those_alone(randn):
    machine, x, lengths = make(), randn(STEPS, BATCH, 3), [5, 2, 3]
    out, state, trace = machine(x, lengths=lengths, trace=True)
    for b, length in enumerate(lengths):
        alone, end, happened = machine(x[:length, b], trace=True)
        assert_close(out[:length, b], alone)
        assert_close(state.read[b], end.read)
        assert_close(trace.state_programs[:length, b], happened.state_programs)
        assert trace.output_programs[length:, b].eq(0).all()


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("parts", PARTS, ids="+".join)
def test_gumbel_noise_of_every_choice(parts, randn):
    """In the order of control heads, state network, output layer: each part heeds its own and no other's."""
    machine, x = make(parts=parts, attention="gumbel"), randn(STEPS, BATCH, 3)
    noise = machine.draw_noise(STEPS, BATCH, generator=torch.Generator().manual_seed(0))
    assert noise.programs.shape == (STEPS, BATCH, 2 + len(parts) - 1, P)
    extra = [part for part in ALL[1:] if part in parts]
    for place, part in enumerate(extra, start=2):
        for chosen in range(P):
            drawn = noise.programs.clone().double()
            drawn[:, :, place] = 100 * torch.eye(P)[chosen]
            trace = machine(x, trace=True, noise=Noise(programs=drawn))[2]
            assert getattr(trace, f"{part}_programs")[..., chosen].eq(1).all()
    machine.seed(0)
    first = machine.train()(x)[0]
    machine.seed(0)
    assert torch.equal(machine(x)[0], first)
    with pytest.raises(nsm.UserError, match=r"noise\.programs must have shape"):
        machine(x, noise=Noise(programs=noise.programs[:, :, :2].double()))


def test_what_a_machine_without_has_it_does_not(randn):
    machine = make(parts=("interface",))
    trace = machine(randn(STEPS, BATCH, 3), trace=True)[2]
    assert trace.state_programs is None
    assert trace.output_programs is None
    assert isinstance(machine.output, torch.nn.Linear)
    assert machine.controller is machine.state_network


# --- size, start, loss ------------------------------------------------------------------------------------------------


def documented(row):
    """The formulas of a row of docs/concepts/equations.md, as Python."""
    text = (Path(__file__).parents[2] / "docs/concepts/equations.md").read_text()
    (line,) = (
        line for line in text.splitlines() if line.startswith("| ") and row in line.split("|")[1].strip().split(", ")
    )
    cells = [cell.strip() for cell in line.split("|")[2:-1]]
    return [re.sub(r"(?<=[\w)]) (?=[\w(])", " * ", cell) for cell in cells]


@pytest.mark.parametrize("attention", ATTENTION)
@pytest.mark.parametrize("kind", NETWORKS)
def test_how_many_parameters(kind, attention):
    """As docs/concepts/equations.md says: of a stored network its programs, keys and query network, instead of one."""
    keys = P if attention == "direct" else 4
    known = {"n": 5, "I": 3, "O": 2, "R": 2, "M": 3, "P": P, "K": keys}

    def count(parts):
        stored = Programs(P, keys, attention, parts=parts)
        memory = NTM(slots=6, width=3, read_heads=2)
        return NUTM(3, 2, stored, controller=Controller(kind, size=5), memory=memory).parameter_count

    plain, more = count(("interface",)), 0
    (total,) = documented(attention)
    for part, row in (("state", kind), ("output", "output layer")):
        size, seen = (eval(formula, {}, known) for formula in documented(row))
        expected = eval(total, {}, {**known, "Q": size, "q": seen}) - size
        assert count(("interface", part)) - plain == expected
        more += expected
    assert count(ALL) == plain + more


def test_how_many_parameters_the_documented_example_has():
    text = (Path(__file__).parents[2] / "docs/concepts/equations.md").read_text()
    ((plain, complete_),) = re.findall(r"has ([\d,]+) parameters with stored\s+interfaces and ([\d,]+) as a", text)
    machine = nsm.recipes.copy(model="nutm", preset="paper").machine
    whole = replace(machine, programs=replace(machine.programs, parts=ALL))
    for config, said in ((machine, plain), (whole, complete_)):
        assert f"{nsm.Machine.from_config(config).parameter_count:,}" == said


@pytest.mark.parametrize("kind", NETWORKS)
def test_programs_start_as_networks_of_their_own(kind):
    generator = torch.Generator().manual_seed(0)
    config = Controller(kind, size=40, gain=2.0, input_gain=3.0)
    machine = NUTM(30, 20, Programs(P, parts=ALL), controller=config, memory=NTM(width=20), generator=generator)
    weight = machine.state_network.weight_ih
    bound = 2.0 / (50 + 40) ** 0.5
    assert_close(weight[..., 30:].abs().amax(dim=(1, 2)), torch.full((P,), bound), rtol=0.01, atol=0)
    assert_close(weight[..., :30].abs().amax(dim=(1, 2)), torch.full((P,), 3 * bound), rtol=0.01, atol=0)
    correlations = torch.corrcoef(weight.flatten(1)) - torch.eye(P)
    assert correlations.abs().max() < 0.1
    assert_close(machine.output.memory.weight.abs().max(), torch.tensor((6 / 80) ** 0.5), rtol=0.01, atol=0)
    again = NUTM(
        30, 20, Programs(P, parts=ALL), controller=config, memory=NTM(width=20), generator=generator.manual_seed(0)
    )
    for ours, theirs in zip(machine.parameters(), again.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("loss", ["sum", "mean"])
def test_the_loss_on_keys_is_of_all_program_memories(loss):
    machine = make()
    config = replace(machine.config.programs, loss=loss)
    machine = NUTM(3, 2, config, controller=Controller(size=5), memory=NTM(slots=6, width=3))
    memories = [*(network.memory for network in machine.interfaces), machine.controller.memory, machine.output.memory]
    expected = sum(key_similarity_loss(memory.key, loss) for memory in memories)
    assert_close(machine.program_loss(), expected / (4 if loss == "mean" else 1))


def test_a_plot_shows_which_programs_ran(randn, tmp_path):
    trace = randomise(make())(randn(STEPS, BATCH, 3), trace=True)[2]
    plot = trace.plot(sample=1)
    labels = [ax.get_ylabel().split("\n")[0] for ax in plot.axes]
    assert labels == ["read 1", "read 1", "write 1", "write 1", "state", "output"]
    first = plot.axes[4].collections[0].get_paths()[0].vertices  # the area of program 1
    assert_close(first[:, 1].max(), trace.state_programs[:, 1, 0].max().item(), rtol=1e-5, atol=0)
    alone = make()(randn(STEPS, 3), trace=True)[2].plot(length=3)
    assert len(alone.axes) == 6


# --- kept, configured, run --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", PARTS, ids="+".join)
def test_a_saved_machine_is_the_same(parts, tmp_path, randn):
    machine, x = make(parts=parts).float(), randn(STEPS, BATCH, 3).float()
    machine.save_pretrained(tmp_path)
    again = nsm.load(tmp_path)
    assert again.config == machine.config
    again.backend = machine.backend
    assert_close(again(x)[0], machine(x)[0], rtol=0, atol=0)
    assert from_json(Programs, to_json(machine.config.programs)) == machine.config.programs


@pytest.mark.parametrize("attention", ["key-value", "gumbel"])
def test_it_trains_as_other_machines_do(attention, tmp_path):
    """On both back ends alike, noise of every choice included."""
    schedule, trained = nsm.Schedule(6, 4, log_every=2, evaluate_every=3, validation_sequences=6, test_sequences=6), {}
    for backend in ("reference", "fused"):
        stored = Programs(2, parts=ALL, attention=attention)
        generator, memory = torch.Generator().manual_seed(0), NTM(slots=8, width=4)
        machine = NUTM(6, 4, stored, controller=Controller(size=8), memory=memory, generator=generator)
        task = nsm.tasks.Copy(width=4, length=(1, 3))
        run = nsm.train(task, machine, schedule=schedule, out=tmp_path / backend, backend=backend)
        assert run.outcome().parameters == machine.parameter_count
        assert run.machine().config.programs.parts == ALL
        trained[backend] = run.machine().state_dict()
    for name, ours in trained["fused"].items():
        assert_close(ours, trained["reference"][name], rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize("parts", PARTS, ids="+".join)
@pytest.mark.parametrize("kind", NETWORKS)
def test_the_fused_back_end_runs_it(kind, parts):
    assert make(kind, parts).float().uncovered() is None


@pytest.mark.parametrize("part", ["controller", "controller.memory", "controller.query", "output", "output.memory"])
def test_a_hook_on_a_stored_part_is_left_to_the_reference(part):
    machine = make().float()
    machine.get_submodule(part).register_forward_hook(lambda *_: None)
    assert machine.uncovered().startswith("hooks on a ")


@pytest.mark.parametrize(
    ("parts", "match"),
    [
        (
            ("interface", "stat"),
            "parts must be one of 'interface', 'state', 'output', was 'stat'; did you mean 'state'",
        ),
        (("state",), "parts must be distinct and include interface, were state"),
        (("interface", "interface"), "parts must be distinct"),
    ],
)
def test_a_mistake_is_a_sentence(parts, match):
    with pytest.raises(nsm.UserError, match=match):
        Programs(2, parts=parts)
