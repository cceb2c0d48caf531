"""A stored-program layer among torch's own tools: what works with `nn.Linear` works with it."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn.utils import parametrize, prune
from torch.nn.utils.parametrizations import orthogonal, spectral_norm, weight_norm
from torch.testing import assert_close

from nsm import NUTM, Controller, Programs, StoredProgramLinear
from nsm.attention import ATTENTION, gumbel_noise
from nsm.checks import UserError
from nsm.memories import NTM


@pytest.fixture
def layer():
    torch.manual_seed(0)
    return StoredProgramLinear(4, 3, 2)


@pytest.fixture
def c():
    return torch.randn(6, 4, generator=torch.Generator().manual_seed(1))


def learn(module, c, steps=3):
    """A few steps of training; returns the loss before each and after the last."""
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        loss = module(c).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return [*losses, module(c).square().mean().item()]


# --- names ------------------------------------------------------------------------------------------------------------


def test_parameters_are_called_as_those_of_other_layers_are(layer):
    shapes = {name: tuple(parameter.shape) for name, parameter in layer.memory.named_parameters()}
    assert shapes == {"key": (2, 2), "weight": (2, 4, 3), "bias": (2, 3)}


def test_a_usual_split_for_weight_decay_finds_the_biases():
    machine = NUTM(3, 2, controller=Controller(size=5), memory=NTM(slots=6, width=3))
    undecayed = {name for name, _ in machine.named_parameters() if name.endswith("bias")}
    assert {"interfaces.0.memory.bias", "interfaces.1.memory.bias", "output.bias"} <= undecayed
    assert not {"interfaces.0.memory.weight", "interfaces.0.memory.key"} & undecayed


def test_a_split_for_weight_decay_by_dimensions_alone_takes_the_biases_of_programs_for_weights(layer):
    """Which the documentation says: they are (P, out_features)."""
    by_both = {name for name, p in layer.named_parameters() if p.ndim < 2 or name.endswith("bias")}
    by_dimensions = {name for name, p in layer.named_parameters() if p.ndim < 2}
    assert by_both == {"memory.bias", "query.bias", "strength.bias"}
    assert by_both - by_dimensions == {"memory.bias"}
    assert {name for name, _ in layer.named_parameters()} - by_both == {
        "memory.key",
        "memory.weight",
        "query.weight",
        "strength.weight",
    }


# --- arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attention", ATTENTION)
def test_dtype_and_device_are_those_of_all_parameters(attention):
    programs = Programs(3, attention=attention)
    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        made = StoredProgramLinear(4, 3, programs, dtype=dtype)
        assert {parameter.dtype for parameter in made.parameters()} == {dtype}
        assert all(parameter.isfinite().all() for parameter in made.parameters())
        assert made(torch.ones(2, 4, dtype=dtype)).dtype == dtype
    nowhere = StoredProgramLinear(4, 3, programs, device="meta")
    assert {parameter.device.type for parameter in nowhere.parameters()} == {"meta"}
    assert nowhere(torch.ones(2, 4, device="meta")).shape == (2, 3)


def test_a_given_device_comes_before_the_default_one():
    with torch.device("meta"):
        made = StoredProgramLinear(4, 3, 2, device="cpu")
    assert {parameter.device.type for parameter in made.parameters()} == {"cpu"}


def test_a_layer_made_without_memory_can_be_drawn_later():
    made = StoredProgramLinear(4, 3, 2, device="meta").to_empty(device="cpu")
    # As torch's tools for large models do: each module that has parameters by itself.
    for module in made.modules():
        module.reset_parameters()
    assert all(parameter.isfinite().all() for parameter in made.parameters())
    assert made.memory.weight.abs().max() <= 1 / 2


# --- autocast ---------------------------------------------------------------------------------------------------------


def differs(found, expected):
    """How far two tensors are apart, beside the length of the second. Rounding to bfloat16 makes up to 2⁻⁸ = 0.004."""
    return (torch.dist(found.double(), expected.double()) / expected.double().norm()).item()


def passed(network, c, autocast):
    """Output and gradients of a network, inside autocast and outside."""
    c = c.clone().requires_grad_()
    network.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        out = network(c)
    # As is usual, back through it outside of autocast.
    out.float().square().sum().backward()
    gradients = {name: parameter.grad.clone() for name, parameter in network.named_parameters()}
    return out.detach(), {"c": c.grad, **gradients}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("attention", ATTENTION)
@pytest.mark.parametrize("first", [False, True], ids=["after a linear layer", "first"])
def test_autocast_computes_as_with_linear_layers(attention, first, bias):
    """Outputs within 1 %, gradients within 4 %: those of the query network are small differences of large numbers."""
    torch.manual_seed(0)
    layer = StoredProgramLinear(8, 5, Programs(3, attention=attention), bias=bias)
    network = (layer if first else nn.Sequential(nn.Linear(8, 8), layer)).eval()
    c = torch.randn(16, 8)
    expected, expected_gradients = passed(network, c, autocast=False)
    found, gradients = passed(network, c, autocast=True)
    with torch.autocast("cpu", torch.bfloat16):
        assert found.dtype == nn.Linear(8, 5)(c).dtype == torch.bfloat16
    assert 0 < differs(found, expected) < 0.01
    for name, gradient in expected_gradients.items():
        assert gradients[name].dtype == torch.float32
        assert differs(gradients[name], gradient) < 0.04, name


@pytest.mark.parametrize("attention", ATTENTION)
def test_autocast_chooses_programs_in_float32(attention):
    torch.manual_seed(0)
    layer = StoredProgramLinear(8, 5, Programs(3, attention=attention)).eval()
    c = torch.randn(16, 8)
    with torch.autocast("cpu", torch.bfloat16):
        query, _ = layer.ask(c)
        weights = layer.attend(c.bfloat16())
        assert query.dtype == (torch.float32 if attention == "uniform" else torch.bfloat16)
        assert layer.memory.working_program(weights).dtype == torch.bfloat16
    assert weights.dtype == torch.float32
    # In bfloat16 thirds would add up to 1.002.
    assert_close(weights.sum(dim=-1), torch.ones(16), rtol=0, atol=1e-6)
    assert (weights - weights.bfloat16()).any() == (attention != "gumbel")
    assert differs(weights, layer.attend(c)) < 0.01


def test_autocast_draws_noise_in_float32():
    torch.manual_seed(0)
    layer = StoredProgramLinear(8, 5, Programs(3, attention="gumbel"))
    c = torch.randn(40, 8)
    layer.seed(0)
    with torch.autocast("cpu", torch.bfloat16):
        found = layer(c.bfloat16())
        noise = gumbel_noise(40, 3, generator=torch.Generator().manual_seed(0), like=c)
        assert torch.equal(layer(c.bfloat16(), noise), found)


def test_autocast_leaves_float64_alone():
    layer = StoredProgramLinear(4, 3, 2, dtype=torch.float64)
    c = torch.ones(2, 4, dtype=torch.float64)
    expected = layer(c)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(layer(c), expected)
        with pytest.raises(UserError, match=r"c must be torch\.float64 like the weights, was torch\.float32"):
            layer(c.float())


@pytest.mark.parametrize("attention", ATTENTION)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_layers_of_half_precision(attention, dtype):
    torch.manual_seed(0)
    layer = StoredProgramLinear(8, 5, Programs(3, attention=attention)).eval()
    c = torch.randn(16, 8)
    expected, expected_gradients = passed(layer, c, autocast=False)
    found, gradients = passed(layer.to(dtype), c.to(dtype), autocast=False)
    assert found.dtype == dtype
    assert differs(found, expected) < 0.02
    for name, gradient in expected_gradients.items():
        assert gradients[name].dtype == dtype
        assert differs(gradients[name], gradient) < 0.1, name
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(c).dtype == torch.bfloat16


@pytest.mark.parametrize("attention", ATTENTION)
@pytest.mark.parametrize("wrong", [torch.float64, torch.bfloat16, torch.int64])
def test_an_input_of_another_precision(attention, wrong):
    layer, c = StoredProgramLinear(4, 3, Programs(2, attention=attention)), torch.ones(2, 4).to(wrong)
    for attempt in (layer, layer.attend):
        with pytest.raises(UserError, match=rf"^c must be torch\.float32 like the weights, was {wrong}$"):
            attempt(c)


# --- inside torch's own modules ---------------------------------------------------------------------------------------


def encoder_layer(attention="key-value", replaced=("linear1", "linear2"), **options):
    torch.manual_seed(0)
    made = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True, **options)
    for name in replaced:
        sizes = (8, 12) if name == "linear1" else (12, 8)
        setattr(made, name, StoredProgramLinear(*sizes, Programs(3, attention=attention)))
    return made


@pytest.mark.parametrize("replaced", [("linear1",), ("linear2",), ("linear1", "linear2")], ids="+".join)
@pytest.mark.parametrize("attention", ["key-value", "direct", "uniform"])
@pytest.mark.parametrize("norm_first", [False, True])
def test_a_transformer_layer_is_the_same_in_evaluation(attention, replaced, norm_first):
    """Where it would compute by itself with the weights of plain layers, past their forward."""
    made = encoder_layer(attention, replaced, norm_first=norm_first)
    x = torch.randn(3, 5, 8)
    expected = made(x).detach()
    made.eval()
    for recording in (True, False):
        with torch.set_grad_enabled(recording):
            assert_close(made(x), expected, rtol=1e-5, atol=1e-6)
    with torch.inference_mode():
        assert_close(made(x), expected, rtol=1e-5, atol=1e-6)


def test_a_transformer_without_stored_programs_still_computes_by_itself(monkeypatch):
    """So the test above can fail: this is the way that would be taken."""
    called = []
    monkeypatch.setattr(torch, "_transformer_encoder_layer_fwd", lambda *given: called.append(1) or given[0])
    with torch.no_grad():
        encoder_layer(replaced=()).eval()(torch.randn(3, 5, 8))
        assert called
        called.clear()
        encoder_layer().eval()(torch.randn(3, 5, 8))
        assert not called


def test_a_padded_batch_in_a_whole_encoder():
    made = nn.TransformerEncoder(encoder_layer(), 2)
    x, padding = torch.randn(3, 5, 8), torch.zeros(3, 5, dtype=torch.bool)
    padding[0, 3:] = padding[1, 1:] = True
    expected = made(x, src_key_padding_mask=padding).detach()
    with torch.no_grad():
        found = made.eval()(x, src_key_padding_mask=padding)
    assert_close(found[~padding], expected[~padding], rtol=1e-5, atol=1e-6)


def test_a_transformer_learns_under_autocast():
    made = encoder_layer()
    with torch.autocast("cpu", torch.bfloat16):
        out = made(torch.randn(3, 5, 8))
    out.float().square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in made.parameters())


@pytest.mark.parametrize("training", [True, False])
def test_attention_that_wants_the_weight_of_its_output_is_told(training):
    made = nn.MultiheadAttention(8, 2, batch_first=True).train(training)
    made.out_proj = StoredProgramLinear(8, 8, 2)
    x = torch.randn(3, 5, 8)
    match = "multi_head_attention_forward is not possible: a StoredProgramLinear has no weight and bias of its own"
    for recording in (True, False):
        with torch.set_grad_enabled(recording), pytest.raises(UserError, match=match):
            made(x, x, x)


def test_whoever_computes_with_the_weight_that_is_not_there_is_told(layer):
    match = r"a StoredProgramLinear has no weight and bias of its own; .* from memory\.weight and memory\.bias"
    with pytest.raises(UserError, match=match):
        nn.init.uniform_(layer.weight)
    with pytest.raises(UserError, match=match):
        nn.functional.linear(torch.ones(2, 4), layer.weight, layer.bias)
    with pytest.raises(AttributeError, match=match):
        layer.bias.data.zero_()
    with pytest.raises(KeyError, match="attribute 'weight' already exists"):
        layer.weight = nn.Parameter(torch.ones(3, 4))  # it would be ignored
    assert {name for name, _ in layer.named_parameters()} & {"weight", "bias"} == set()
    assert StoredProgramLinear(4, 3, 2, bias=False).bias is None


# --- copies, functions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attention", ATTENTION)
@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))], ids=["deepcopy", "pickle"]
)
def test_a_copy_is_equal_and_apart(attention, copied, c):
    made = StoredProgramLinear(4, 3, Programs(2, attention=attention))
    made(c)
    twin = copied(made)
    assert_close(twin(c), made(c), rtol=0, atol=0)
    before = made.eval()(c)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.add_(1.0)
    assert_close(made(c), before, rtol=0, atol=0)


def test_a_copy_of_a_parametrised_layer(layer, c):
    weight_norm(layer.memory, "weight")
    twin = copy.deepcopy(layer)
    assert_close(twin(c), layer(c), rtol=0, atol=0)
    losses = learn(twin, c)
    assert losses == sorted(losses, reverse=True)
    other = StoredProgramLinear(4, 3, 2)
    weight_norm(other.memory, "weight")
    other.load_state_dict(layer.state_dict())
    assert_close(other(c), layer(c), rtol=0, atol=0)


@pytest.mark.parametrize("attention", ATTENTION)
def test_a_call_with_other_weights(attention, c):
    made, other = (StoredProgramLinear(4, 3, Programs(2, attention=attention)).eval() for _ in range(2))
    found = functional_call(made, dict(other.named_parameters()), c)
    assert_close(found, other(c), rtol=0, atol=0)
    assert not torch.equal(found, made(c))


def given_noise(attention, c):
    """Noise for every sample: vmap has no way to draw it."""
    noise = gumbel_noise(len(c), 2, generator=torch.Generator().manual_seed(3), like=c)
    return noise if attention == "gumbel" else torch.zeros_like(noise)


@pytest.mark.parametrize("attention", ATTENTION)
def test_gradients_of_every_sample(attention, c):
    made, noise = StoredProgramLinear(4, 3, Programs(2, attention=attention)), given_noise(attention, c)
    parameters = dict(made.named_parameters())

    def loss(parameters, c, noise):
        return functional_call(made, parameters, (c, noise)).square().sum()

    found = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, c, noise)
    for n in range(len(c)):
        expected = torch.autograd.grad(made(c[n], noise[n]).square().sum(), list(parameters.values()))
        for name, gradient in zip(parameters, expected, strict=True):
            assert_close(found[name][n], gradient, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("attention", ATTENTION)
def test_an_ensemble_in_one_call(attention, c):
    layers = [StoredProgramLinear(4, 3, Programs(2, attention=attention)).eval() for _ in range(3)]
    parameters, buffers = stack_module_state(layers)

    def one(parameters, buffers, c):
        return functional_call(layers[0], (parameters, buffers), c)

    found = vmap(one, in_dims=(0, 0, None))(parameters, buffers, c)
    assert_close(found, torch.stack([made(c) for made in layers]), rtol=1e-5, atol=1e-6)


# --- parametrisations, pruning, norms ---------------------------------------------------------------------------------


class Doubled(nn.Module):
    def forward(self, weight):
        return 2 * weight


@pytest.mark.parametrize("name", ["key", "weight", "bias"])
def test_a_parametrisation_of_the_program_memory(layer, c, name):
    original = getattr(layer.memory, name).detach().clone()
    parametrize.register_parametrization(layer.memory, name, Doubled())
    found = layer(c)
    assert_close(getattr(layer.memory, name), 2 * original)
    parametrize.remove_parametrizations(layer.memory, name)
    assert_close(layer(c), found)


@pytest.mark.parametrize("norm", [weight_norm, spectral_norm])
def test_norms_of_the_programs(layer, c, norm):
    before = layer(c)
    norm(layer.memory, "weight")
    if norm is weight_norm:
        assert_close(layer(c), before)
    assert set(layer.state_dict()) >= {"memory.parametrizations.weight.original" + ("0" if norm is weight_norm else "")}
    losses = learn(layer, c)
    assert losses == sorted(losses, reverse=True)


@pytest.mark.parametrize("count", [2, 4])
def test_orthogonal_keys(count, c):
    torch.manual_seed(0)
    layer = StoredProgramLinear(4, 3, Programs(count, key_size=3))
    orthogonal(layer.memory, "key")
    losses = learn(layer, c)
    assert losses == sorted(losses, reverse=True)
    key = layer.memory.key
    gram = key @ key.T if count < 3 else key.T @ key
    assert_close(gram, torch.eye(len(gram)), rtol=0, atol=1e-5)
    if count == 2:
        assert_close(layer.loss(), torch.tensor(0.0), rtol=0, atol=1e-5)


def test_a_parametrisation_is_computed_once_a_call(layer, c):
    class Counted(nn.Module):
        calls = 0

        def forward(self, weight):
            self.calls += 1
            return weight

    for name in ("key", "weight", "bias"):
        parametrize.register_parametrization(layer.memory, name, Counted())
    counted = [layer.memory.parametrizations[name][0] for name in ("key", "weight", "bias")]
    before = [each.calls for each in counted]
    layer(c)
    assert [each.calls - earlier for each, earlier in zip(counted, before, strict=True)] == [1, 1, 1]


@pytest.mark.parametrize("name", ["key", "weight", "bias"])
def test_pruning_of_every_part(layer, c, name):
    prune.l1_unstructured(layer.memory, name, amount=1)
    losses = learn(layer, c)
    assert losses == sorted(losses, reverse=True)
    assert (getattr(layer.memory, name) == 0).sum() == 1


def test_a_pruned_program_stays_pruned_while_it_learns(layer, c):
    prune.random_unstructured(layer.memory, "weight", amount=0.5)
    mask = layer.memory.weight_mask
    losses = learn(layer, c)
    assert losses == sorted(losses, reverse=True)
    assert losses[0] > losses[-1]
    assert (layer.memory.weight[mask == 0] == 0).all()
    assert_close(layer.memory.weight, layer.memory.weight_orig * mask)
    prune.remove(layer.memory, "weight")
    assert_close(layer(c).square().mean().item(), losses[-1])


def test_a_pruned_program_of_a_machine_learns_on():
    torch.manual_seed(0)
    machine = NUTM(4, 3, controller=Controller(size=5), memory=NTM(slots=6, width=3))
    prune.random_unstructured(machine.interfaces[0].memory, "weight", amount=0.5)
    x = torch.randn(5, 2, 4, generator=torch.Generator().manual_seed(1))
    losses = learn(output_of(machine), x)
    assert losses[0] > losses[-1]


def output_of(machine):
    """A machine's output alone."""

    class Output(nn.Module):
        def __init__(self):
            super().__init__()
            self.machine = machine

        def forward(self, x):
            return self.machine(x)[0]

    return Output()


@pytest.mark.parametrize("attention", ATTENTION)
def test_hooks_of_the_program_memory_are_called(attention, c):
    layer, called = StoredProgramLinear(4, 3, Programs(2, attention=attention)), []
    layer.memory.register_forward_hook(lambda module, given, result: called.append(result))
    out = layer(c)
    assert_close(called[0][0], out)
    assert called[0][1].shape == (6, 2)
