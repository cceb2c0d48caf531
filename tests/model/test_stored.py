"""Any module with stored programs, against P copies of it that are mixed by hand."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.testing import assert_close

from nsm import Programs, StoredModule, StoredProgramLinear, UserError, annealing, stored
from nsm.attention import ATTENTION, gumbel_noise
from nsm.programs import key_similarity_loss
from oracles.programs import key_value_weights, softplus

P = 3


class Block(nn.Module):
    """Nested, with a tied weight, a buffer, a norm, and a tuple and a dict that come out."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(4, 6), nn.Linear(6, 4)
        self.again = nn.Linear(4, 6)
        self.again.weight = self.up.weight
        self.norm = nn.LayerNorm(4)
        self.scale = nn.Parameter(torch.rand(4))
        self.register_buffer("offset", torch.ones(4))

    def forward(self, x, state=None, *, twice=False):
        hidden = torch.relu(self.up(x)) + self.again(x)
        out = self.norm(self.down(hidden)) * self.scale + self.offset
        if state is not None:
            out = out + state["more"][0]
        return (2 * out if twice else out), {"hidden": hidden, "twice": twice}


def randn(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


KINDS = {
    "linear": (lambda: nn.Linear(4, 3), (randn(5, 4),)),
    "linear over time": (lambda: nn.Linear(4, 3, bias=False), (randn(5, 2, 4),)),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, groups=2, padding=1, padding_mode="circular"), (randn(5, 4, 9),)),
    "conv2d": (lambda: nn.Conv2d(4, 6, 3, stride=2, bias=False), (randn(5, 4, 7, 6),)),
    "conv3d": (lambda: nn.Conv3d(2, 4, 2, groups=2), (randn(5, 2, 4, 3, 3),)),
    "transposed": (lambda: nn.ConvTranspose1d(4, 2, 3), (randn(5, 4, 6),)),
    "rnn cell": (lambda: nn.RNNCell(4, 6, nonlinearity="relu"), (randn(5, 4), randn(5, 6))),
    "gru cell": (lambda: nn.GRUCell(4, 6), (randn(5, 4), randn(5, 6))),
    "gru cell at rest": (lambda: nn.GRUCell(4, 6, bias=False), (randn(5, 4),)),
    "lstm cell": (lambda: nn.LSTMCell(4, 6), (randn(5, 4), (randn(5, 6), randn(6, 6)[1:]))),
    "attention": (
        lambda: nn.MultiheadAttention(4, 2, batch_first=True),
        (randn(5, 3, 4), randn(5, 2, 4), randn(5, 2, 4)),
    ),
    "transformer": (lambda: nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True), (randn(5, 3, 4),)),
    "mlp": (lambda: nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Sequential(nn.Linear(8, 2))), (randn(5, 4),)),
    "cnn": (
        lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(1), nn.Linear(16, 3)),
        (randn(5, 1, 6, 6),),
    ),
    "cnn with a norm": (
        lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(1), nn.Linear(64, 3)),
        (randn(5, 1, 6, 6),),
    ),
    "nested": (Block, (randn(5, 4), {"more": [randn(5, 4)]})),
    "a layer of programs": (lambda: nn.Sequential(StoredProgramLinear(4, 3, 2), nn.Tanh()), (randn(5, 4),)),
}


def make(kind, **options):
    """A module, one with its parameters stored, and inputs, in float64."""
    torch.manual_seed(0)
    build, inputs = KINDS[kind]
    module = build().double()
    made = stored(module, options.pop("programs", P), **{"features": 4 if kind == "nested" else None, **options})
    return module, made, inputs


def sample(tree, b):
    """Sample b of a tree, as a batch of one."""
    if isinstance(tree, torch.Tensor):
        return tree[b : b + 1]
    if isinstance(tree, dict):
        return {name: sample(branch, b) for name, branch in tree.items()}
    return type(tree)(sample(branch, b) for branch in tree) if isinstance(tree, tuple | list) else tree


def leaves(tree):
    """The tensors of a tree."""
    if isinstance(tree, torch.Tensor):
        return [tree]
    branches = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, tuple | list) else ()
    return [leaf for branch in branches for leaf in leaves(branch)]


def copies(module, made):
    """P modules of their own, each with the parameters of one program."""
    found = [copy.deepcopy(module) for _ in range(made.memory.config.count)]
    with torch.no_grad():
        for i, one in enumerate(found):
            for name, parameter in one.named_parameters():
                parameter.copy_(made.memory.module.get_parameter(name)[i])
    return found


def by_hand(module, programs, weights, inputs, **options):
    """Each sample alone, by a module whose parameters are Σ w(i) θ_i of the copies."""
    outputs = []
    for b, w in enumerate(weights):
        parameters = {}
        for name, _ in module.named_parameters():
            parameters[name] = sum(w[i] * one.get_parameter(name) for i, one in enumerate(programs))
        outputs.append(leaves(functional_call(module, parameters, sample(inputs, b), options)))
    return [torch.cat(parts) for parts in zip(*outputs, strict=True)]


# --- equality ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("training", [True, False])
def test_it_equals_copies_mixed_by_hand(kind, training):
    module, made, inputs = make(kind)
    module.train(training), made.train(training)
    weights = made.attend(*inputs)
    assert weights.shape == (5, P)
    assert weights.std(dim=0).max() > 0.01  # samples differ in what they take
    expected = by_hand(module, copies(module, made), weights, inputs)
    for recording in (True, False):
        with torch.set_grad_enabled(recording):
            found = leaves(made(*inputs))
        for ours, theirs in zip(found, expected, strict=True):
            assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_equal_those_of_copies_mixed_by_hand(kind):
    """Of every program, and of keys, query and input through the weights."""
    module, made, inputs = make(kind)
    programs = copies(module, made)
    asked = [parameter for name, parameter in made.named_parameters() if not name.startswith("memory.module")]
    tensors = leaves(inputs)
    for tensor in tensors:
        tensor.requires_grad_()
    try:
        loss = sum((out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum() for out in leaves(made(*inputs)))
        names = [name for name, _ in made.memory.module.named_parameters()]
        stacks = [made.memory.module.get_parameter(name) for name in names]
        found = torch.autograd.grad(loss, [*stacks, *asked, *tensors], allow_unused=True)
        mixture = by_hand(module, programs, made.attend(*inputs), inputs)
        loss = sum((out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum() for out in mixture)
        each = [one.get_parameter(name) for name in names for one in programs]
        expected = torch.autograd.grad(loss, [*each, *asked, *tensors], allow_unused=True)
    finally:
        for tensor in tensors:
            tensor.requires_grad_(False)
    for n, name in enumerate(names):
        stacked = torch.stack(expected[n * P : (n + 1) * P])
        if kind != "gru cell at rest" or name != "weight_hh":  # which multiplies a state of zeros
            assert stacked.flatten(1).abs().amax(dim=1).min() > 0, name
        assert_close(found[n], stacked, rtol=1e-9, atol=1e-11, msg=name)
    for ours, theirs in zip(found[len(names) :], expected[P * len(names) :], strict=True):
        assert_close(ours, theirs, rtol=1e-9, atol=1e-11)
        assert ours.abs().max() > 0


@pytest.mark.parametrize("kind", ["linear", "conv1d", "gru cell", "attention", "mlp"])
def test_gradients_are_those_of_finite_differences(kind):
    _, made, inputs = make(kind)
    parameters = dict(made.named_parameters())
    inputs = tuple(tensor.clone().requires_grad_() for tensor in inputs)

    def outputs(*given):
        named = dict(zip(parameters, given[len(inputs) :], strict=True))
        return tuple(leaves(functional_call(made, named, given[: len(inputs)])))

    assert torch.autograd.gradcheck(outputs, (*inputs, *parameters.values()))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("attention", ["key-value", "uniform", "direct"])
def test_a_single_program_is_the_module(kind, attention):
    module, made, inputs = make(kind, programs=Programs(1, attention=attention))
    for ours, theirs in zip(leaves(made(*inputs)), leaves(module(*inputs)), strict=True):
        assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_uniform_attention_is_the_mean_of_the_programs(kind):
    module, made, inputs = make(kind, programs=Programs(P, attention="uniform"))
    mean = {name: stack.mean(dim=0) for name, stack in made.memory.module.named_parameters()}
    expected = functional_call(module, mean, inputs)
    for ours, theirs in zip(leaves(made(*inputs)), leaves(expected), strict=True):
        assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
    assert made.loss() == 0


@pytest.mark.parametrize("kind", ["linear", "linear over time", "conv1d", "conv2d", "conv3d", "mlp", "cnn"])
def test_mixing_after_the_product_equals_parameters_for_each_sample(kind):
    _, made, inputs = make(kind)
    weights, expected = made.attend(*inputs), made(*inputs)
    found = made.memory._by_sample(weights, (inputs, {}), list(inputs), {})
    assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_hooks_inside_are_called():
    _, made, inputs = make("mlp")
    expected, called = made(*inputs), []
    made.memory.module[0].register_forward_hook(lambda layer, given, out: called.append(out.shape))
    assert_close(made(*inputs), expected)
    assert called == [(1, 8)]


# --- weights ----------------------------------------------------------------------------------------------------------


def test_weights_are_those_of_the_paper():
    """Eqs. 3–4 by scalar loops, with c the input averaged over time."""
    _, made, inputs = make("attention")
    queries, strengths = made.query(inputs[0].mean(dim=1)).detach(), made.strength(inputs[0].mean(dim=1)).detach()
    for b, found in enumerate(made.attend(*inputs).detach()):
        expected = key_value_weights(
            queries[b].numpy(), softplus(strengths[b].item()), made.memory.key.detach().numpy()
        )
        assert_close(found, torch.from_numpy(expected), rtol=1e-10, atol=1e-12)
    assert_close(made.loss(), key_similarity_loss(made.memory.key))


def test_the_query_of_an_image_is_its_mean_by_channel():
    _, made, inputs = make("conv2d")
    assert_close(made.attend(*inputs), made.attend(*inputs, query=inputs[0].mean(dim=(2, 3))))


def test_a_query_of_ones_own():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(1), nn.Linear(8, 2))
    made = stored(nn.Linear(4, 3), P, query=network, features=2)
    x = torch.randn(5, 2, 4)
    assert_close(made(x), made(x, query=network(x)))
    assert not torch.equal(made(x), made(x, query=torch.randn(5, 2)))
    made(x).square().sum().backward()
    assert all(parameter.grad.abs().max() > 0 for parameter in made.parameters())
    last = stored(nn.Linear(4, 3), P, query=lambda x: x[:, -1])
    changed = x.clone()
    changed[:, 0] += 1
    assert torch.equal(last.attend(x), last.attend(changed))


def test_every_position_has_a_mixture_of_its_own():
    torch.manual_seed(0)
    block = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
    made, x = stored(block, P, per="position"), torch.randn(5, 2, 3, 4)
    out = made(x)
    assert made.attend(x).shape == (5, 2, 3, P)
    assert out.shape == (5, 2, 3, 4)
    assert_close(out, made(x.flatten(0, 2)).unflatten(0, (5, 2, 3)))
    changed = x.clone()
    changed[:, :, 2] += 1
    assert_close(made(changed)[:, :, :2], out[:, :, :2])  # it sees no other position
    assert made(x[0, 0, 0].unsqueeze(0)).shape == (1, 4)


class Scaled(nn.Linear):
    def forward(self, x, *, by):
        return by * super().forward(x)


def test_positions_share_what_is_shared():
    torch.manual_seed(0)
    made, x, by = (
        stored(Scaled(4, 3), P, per="position", shared=("by",)),
        torch.randn(5, 2, 4),
        torch.tensor([1.0, 2, 3]),
    )
    assert_close(made(x, by=by), by * made(x, by=torch.ones(3)))


@pytest.mark.parametrize("attention", ATTENTION)
def test_every_attention_learns(attention):
    torch.manual_seed(0)
    made = stored(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)), Programs(P, attention=attention))
    x, y = torch.randn(40, 4), torch.randn(40, 3)
    optimiser, losses = torch.optim.Adam(made.parameters(), 0.01), []
    for step in range(60):
        loss = (made(x) - y).square().mean()
        losses.append(loss.item())
        optimiser.zero_grad()
        (loss + annealing(step) * made.loss()).backward()
        optimiser.step()
    assert losses[-1] < 0.9 * losses[0]


def test_gumbel_noise_is_its_own_and_can_be_handed_in():
    torch.manual_seed(0)
    made, x = stored(nn.GRUCell(4, 3), Programs(P, attention="gumbel")), torch.randn(40, 4)
    state = torch.random.get_rng_state()
    made.seed(0)
    out = made(x)
    assert torch.equal(torch.random.get_rng_state(), state)
    noise = gumbel_noise(40, P, generator=torch.Generator().manual_seed(0), like=x)
    assert torch.equal(made(x, noise=noise), out)
    assert set(made.attend(x, noise=noise).unique().tolist()) == {0.0, 1.0}
    assert torch.equal(made.eval()(x), made(x))


def test_dropout_differs_between_samples():
    torch.manual_seed(0)
    for made in (stored(nn.Sequential(nn.Linear(4, 20), nn.Dropout())), stored(WithDropout(), features=4)):
        out = made(torch.ones(6, 4))
        assert len({tuple((row == 0).tolist()) for row in out}) == 6


class WithDropout(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.dropout = nn.Linear(4, 20), nn.Dropout()

    def forward(self, x):
        return self.dropout(self.linear(x))


# --- how programs start -----------------------------------------------------------------------------------------------


def test_programs_start_as_far_apart_as_asked():
    torch.manual_seed(0)
    module = nn.Linear(400, 300)
    theta = module.weight.detach()
    for spread in (0.0, 0.1, 0.5, 1.0):
        weight = stored(module, P, spread=spread).memory.module.weight.detach()
        assert weight.shape == (P, 300, 400)
        for program in weight:
            assert_close(program.std(), theta.std(), rtol=0.01, atol=0)
        pairs = torch.corrcoef(torch.stack([theta.flatten(), *weight.flatten(1)]))
        share = (1 - spread**2) ** 0.5
        assert_close(pairs[0, 1:], torch.full((P,), share), rtol=0, atol=0.01)
        assert_close(pairs[1, 2], torch.tensor(share**2), rtol=0, atol=0.01)


def test_what_does_not_vary_is_copied_and_means_are_kept():
    made = stored(nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8)), P).memory.module
    assert torch.equal(made[1].weight, torch.ones(P, 8))
    assert torch.equal(made[1].bias, torch.zeros(P, 8))
    with torch.no_grad():
        module = nn.Linear(300, 300)
        module.weight += 7
    assert_close(stored(module, P).memory.module.weight.mean(), torch.tensor(7.0), rtol=0.001, atol=0)


def test_copies_equal_the_module_whatever_the_query():
    module, made, inputs = make("transformer", spread=0.0)
    assert_close(made(*inputs), module(*inputs))


def test_a_generator_decides_everything():
    module = nn.Linear(4, 3)
    state = torch.random.get_rng_state()
    one, two = (stored(module, P, generator=torch.Generator().manual_seed(5)) for _ in range(2))
    assert torch.equal(torch.random.get_rng_state(), state)
    for ours, theirs in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_keys_start_as_those_of_a_stored_program_layer():
    made = [
        stored(nn.Linear(4, 3), P, generator=torch.Generator().manual_seed(5)),
        StoredProgramLinear(4, 3, P, generator=torch.Generator().manual_seed(5)),
    ]
    assert all(layer.memory.key.shape == (P, P) and layer.memory.key.abs().max() <= 0.5 for layer in made)
    assert made[0].query.weight.shape == made[1].query.weight.shape


# --- a module like any other ------------------------------------------------------------------------------------------


def test_the_module_is_left_alone():
    module, made, inputs = make("nested")
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    leaves(made(*inputs))[0].sum().backward()
    for parameter in made.parameters():
        parameter.data.add_(1)
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())


def test_names_and_shapes():
    _, made, _ = make("nested")
    inner = {
        **{"up.weight": (P, 6, 4), "up.bias": (P, 6), "down.weight": (P, 4, 6), "down.bias": (P, 4)},
        **{"again.bias": (P, 6), "norm.weight": (P, 4), "norm.bias": (P, 4), "scale": (P, 4)},
    }
    asking = {"query.weight": (P, 4), "query.bias": (P,), "strength.weight": (1, 4), "strength.bias": (1,)}
    found = {name: tuple(parameter.shape) for name, parameter in made.named_parameters()}
    assert found == {
        "memory.key": (P, P),
        **{f"memory.module.{name}": shape for name, shape in inner.items()},
        **asking,
    }
    assert set(made.state_dict()) == {*found, "memory.module.again.weight", "memory.module.offset"}
    assert made.memory.module.again.weight is made.memory.module.up.weight


@pytest.mark.parametrize("kind", ["gru cell", "nested", "transformer"])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))])
def test_a_copy_is_equal_and_apart(kind, copied):
    _, made, inputs = make(kind)
    twin = copied(made)
    expected = leaves(made(*inputs))
    for ours, theirs in zip(leaves(twin(*inputs)), expected, strict=True):
        assert torch.equal(ours, theirs)
    other = make(kind, generator=torch.Generator().manual_seed(9))[1]
    assert not torch.equal(leaves(other(*inputs))[0], expected[0])
    other.load_state_dict(made.state_dict())
    assert torch.equal(leaves(other(*inputs))[0], expected[0])
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.add_(1.0)
    assert torch.equal(leaves(made(*inputs))[0], expected[0])


def test_precision_and_device_move_with_it():
    made = stored(nn.MultiheadAttention(4, 2, batch_first=True), P)
    x = torch.randn(5, 3, 4)
    assert made.double()(x.double(), x.double(), x.double())[0].dtype == torch.float64
    assert made.bfloat16()(x.bfloat16(), x.bfloat16(), x.bfloat16())[0].dtype == torch.bfloat16
    half = stored(nn.Linear(4, 3, dtype=torch.float16), P)
    assert {parameter.dtype for parameter in half.parameters()} == {torch.float16}
    nowhere = stored(nn.Linear(4, 3, device="meta"), P)
    assert {parameter.device.type for parameter in nowhere.parameters()} == {"meta"}
    assert nowhere(torch.ones(2, 4, device="meta")).shape == (2, 3)
    assert {parameter.device.type for parameter in made.to("meta").parameters()} == {"meta"}


@pytest.mark.parametrize("kind", ["linear", "conv2d", "gru cell", "attention", "mlp", "cnn with a norm"])
def test_autocast_computes_as_the_module_does(kind):
    module, made, inputs = make(kind)
    inputs = tuple(tensor.float() for tensor in inputs)
    module.float(), made.float()
    expected = leaves(made(*inputs))
    with torch.autocast("cpu", torch.bfloat16):
        found, plain = leaves(made(*inputs)), leaves(module(*inputs))
        assert made.attend(*inputs).dtype == torch.float32
    assert found[0].dtype == plain[0].dtype
    for ours, exact in zip(found, expected, strict=True):
        assert 0 < torch.dist(ours.float(), exact) < 0.03 * exact.norm()
    sum(out.float().square().sum() for out in found).backward()
    for name, parameter in made.named_parameters():
        assert parameter.grad.dtype == torch.float32
        assert parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("kind", ["linear", "conv1d", "gru cell", "attention", "nested", "cnn with a norm"])
def test_it_compiles_to_one_graph(kind):
    _, made, inputs = make(kind)
    compiled = torch.compile(made, backend="aot_eager", fullgraph=True)
    for ours, theirs in zip(leaves(compiled(*inputs)), leaves(made(*inputs)), strict=True):
        assert_close(ours, theirs)
    torch.compiler.reset()


def test_frozen_parameters_stay_frozen():
    module = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3))
    module[0].requires_grad_(False)
    made = stored(module, P)
    made(torch.randn(5, 4)).sum().backward()
    grads = {name: parameter.grad is not None for name, parameter in made.memory.module.named_parameters()}
    assert grads == {"0.weight": False, "0.bias": False, "1.weight": True, "1.bias": True}


def test_masks():
    """Of each sample, like any tensor; and one that all share."""
    torch.manual_seed(0)
    made, x = stored(nn.MultiheadAttention(4, 2, batch_first=True), P, shared=("attn_mask",)), torch.randn(5, 3, 4)
    padding = torch.zeros(5, 3, dtype=torch.bool)
    padding[1, 2] = True
    _, weights = made(x, x, x, key_padding_mask=padding)
    assert weights[1, :, 2].eq(0).all()
    assert weights[0, :, 2].gt(0).all()
    future = torch.ones(3, 3, dtype=torch.bool).triu(1)
    _, weights = made(x, x, x, attn_mask=future)
    assert weights.triu(1).eq(0).all()
    assert made(x, x, x, need_weights=False)[1] is None
    assert torch.backends.mha.get_fastpath_enabled()


def test_batch_norm_in_evaluation():
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(1), nn.Linear(16, 2))
    with pytest.raises(UserError, match=r"batch norm keeps statistics of whole batches.* use nn\.GroupNorm"):
        stored(module)
    module(torch.randn(8, 1, 4, 4))
    module.eval()
    made, x = stored(module, P, spread=0.0).eval(), torch.randn(5, 1, 4, 4)
    assert_close(made(x), module(x))
    with pytest.raises(UserError, match="keep it in evaluation mode"):
        made.train()(x)
    for norm in (nn.BatchNorm1d(4, track_running_stats=False).eval(), nn.InstanceNorm1d(4, track_running_stats=True)):
        with pytest.raises(UserError, match="batch norm keeps statistics"):
            stored(nn.Sequential(nn.Conv1d(1, 4, 3), norm))
    alone, x = nn.Sequential(nn.GroupNorm(2, 4), nn.Conv1d(4, 4, 3), nn.InstanceNorm1d(4)), torch.randn(5, 4, 6)
    assert_close(stored(alone, P, spread=0.0)(x), alone(x))


# --- mistakes ---------------------------------------------------------------------------------------------------------


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x):
        return (x * self.weight).sum()


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        (lambda: stored(nn.ReLU()), "a ReLU has no parameters to store"),
        (lambda: stored(nn.LazyLinear(3)), "a LazyLinear has uninitialised parameters"),
        (lambda: stored(torch.relu), r"nsm\.stored takes an nn\.Module, was builtin_function_or_method"),
        (lambda: stored(nn.LSTM(4, 3)), r"an nn\.LSTM can't be stored, an nn\.LSTMCell can"),
        (lambda: stored(nn.MultiheadAttention(4, 2)), "a MultiheadAttention must have batch_first=True"),
        (lambda: stored(Odd()), "unknown for a Odd: pass features="),
        (lambda: stored(nn.Linear(4, 3), 0), "programs must be an integer of at least 1, was 0"),
        (lambda: stored(nn.Linear(4, 3), spread=2), "spread must be a number from 0 to 1, was 2"),
        (lambda: stored(nn.Linear(4, 3), per="step"), "per must be one of 'sample', 'position'"),
        (lambda: stored(nn.Conv1d(4, 3, 1), per="position"), "needs a module whose features are last"),
        (lambda: stored(nn.Linear(4, 3), features=0), "features must be an integer of at least 1"),
        (lambda: stored(nn.Linear(4, 3))(torch.ones(4)), r"must have shape \(B, 4\), was \(4,\)"),
        (lambda: stored(nn.Linear(4, 3))(torch.ones(2, 5)), r"c must have 4 features .*, was \(2, 5\)"),
        (lambda: stored(nn.Linear(4, 3))(torch.ones(2, 4).double()), r"c must be torch\.float32 like the weights"),
        (
            lambda: stored(nn.Embedding(4, 3), features=2)(torch.tensor([1])),
            "not a floating-point tensor and can't be the query",
        ),
        (
            lambda: stored(nn.Linear(4, 3))(torch.ones(2, 4), query=torch.ones(3, 4)),
            "have the batch, 3, as its first dimension",
        ),
        (
            lambda: stored(nn.GRUCell(4, 3))(torch.ones(2, 4), torch.ones(1, 3)),
            "have the batch, 2, as its first dimension",
        ),
        (
            lambda: stored(Odd(), features=4)(torch.ones(2, 4)),
            r"outputs must have the batch as first dimension; .* was \(\)",
        ),
    ],
)
def test_a_mistake_is_a_sentence(wrong, match):
    with pytest.raises(UserError, match=match):
        wrong()


def test_an_embedding_by_a_query_of_ones_own():
    torch.manual_seed(0)
    made, words, c = stored(nn.Embedding(6, 3), P, features=2), torch.tensor([[1, 2], [5, 1]]), torch.randn(2, 2)
    out, weights = made(words, query=c), made.attend(words, query=c)
    assert isinstance(made, StoredModule)
    expected = torch.einsum("bp,pblf->blf", weights, made.memory.module.weight[:, words])
    assert_close(out, expected)
