import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from nsm import ProgramMemory, Programs, StoredProgramLinear
from nsm.attention import ATTENTION, gumbel_noise, gumbel_weights, key_value_logits
from nsm.programs import annealing, key_similarity_loss
from nsm.programs import orthogonality_loss as l_p2
from oracles import programs as oracle

ROUNDING = {"rtol": 1e-12, "atol": 1e-12}


def layer(config, n=4, size=3, seed=0, bias=True):
    """A layer with programs that differ and biases that count."""
    made = StoredProgramLinear(n, size, config, bound=1.0, bias=bias, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(generator=generator)
    return made


def memory(config, n=4, size=3, seed=0):
    return layer(config, n, size, seed).memory


def programs_of(memory):
    """v_i as Eq. 5 has them: (P, in_features + 1, out_features), the bias, 0 if there is none, as the last row."""
    bias = torch.zeros_like(memory.weight[:, 0]) if memory.bias is None else memory.bias
    return torch.cat([memory.weight, bias.unsqueeze(1)], dim=1)


def numpy(tensor):
    return None if tensor is None else tensor.detach().numpy()


# --- Eqs. 3-5 against the oracle --------------------------------------------------------------------------------------


KEY_VALUE = {
    "one": Programs(1),
    "two": Programs(2),
    "wide keys": Programs(3, key_size=5),
    "narrow keys, no bias": Programs(4, key_size=2, query_bias=False),
    "tanh": Programs(3, bounded_keys=True),
    "scaled": Programs(3, strength_scale=1 / 3),
    "all at once": Programs(3, key_size=2, bounded_keys=True, strength_scale=0.5, query_bias=False),
}


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("name", KEY_VALUE)
def test_key_value_layer_follows_the_equations(name, bias, randn):
    config = KEY_VALUE[name]
    made = layer(config, bias=bias)
    c = 2 * randn(6, 4)
    out, weights = made(c), made.attend(c)
    for b in range(len(c)):
        expected, expected_weights = oracle.stored_program_linear(
            numpy(c[b]),
            numpy(made.query.weight),
            numpy(made.query.bias),
            numpy(made.strength.weight)[0],
            numpy(made.strength.bias),
            numpy(made.memory.key),
            numpy(programs_of(made.memory)),
            tanh=config.bounded_keys,
            scale=config.strength_scale,
        )
        np.testing.assert_allclose(numpy(weights[b]), expected_weights, rtol=1e-12)
        np.testing.assert_allclose(numpy(out[b]), expected, rtol=1e-11, atol=1e-12)


def queries(made, c):
    return made.query(c), F.softplus(made.strength(c))


def test_direct_layer_softmaxes_its_query(randn):
    made = layer(Programs(3, attention="direct"))
    c = randn(5, 4)
    query, strength = queries(made, c)
    for b in range(len(c)):
        expected = oracle.direct_weights(numpy(query[b]), strength[b].item())
        np.testing.assert_allclose(numpy(made.attend(c)[b]), expected, rtol=1e-12)
    assert made.memory.key is None


def test_uniform_layer_always_takes_the_mean_of_its_programs(randn):
    made = layer(Programs(3, key_size=5, attention="uniform"))
    c = randn(5, 4)
    np.testing.assert_array_equal(numpy(made.attend(c)), np.stack([oracle.uniform_weights(3)] * 5))
    mean = programs_of(made.memory).mean(dim=0)
    assert_close(made(c), c @ mean[:-1] + mean[-1], **ROUNDING)
    assert {name for name, _ in made.named_parameters()} == {"memory.weight", "memory.bias"}


@pytest.mark.parametrize("temperature", [0.3, 1.0, 10.0])
def test_gumbel_layer_takes_the_program_with_the_largest_noisy_logit(temperature, randn):
    made = layer(Programs(4, key_size=3, attention="gumbel", temperature=temperature))
    c, noise = randn(40, 4), randn(40, 4)
    logits = key_value_logits(*queries(made, c), made.memory.key)
    weights = made.attend(c, noise)
    for b in range(len(c)):
        hard = oracle.gumbel_hard_weights(numpy(logits[b]), numpy(noise[b]), temperature)
        np.testing.assert_array_equal(numpy(weights[b]), hard)
    assert len(weights.argmax(-1).unique()) == 4


@pytest.mark.parametrize("temperature", [0.3, 1.0, 10.0])
def test_noise_on_probabilities_is_the_published_codes(temperature, randn):
    made = layer(Programs(4, key_size=3, attention="gumbel-probabilities", temperature=temperature))
    c, noise = randn(40, 4), randn(40, 4)
    logits = key_value_logits(*queries(made, c), made.memory.key)
    for weights, drawn in ((made.attend(c, noise), noise), (made.eval().attend(c), torch.zeros_like(noise))):
        mixed = [
            oracle.gumbel_probability_weights(numpy(z), numpy(g), temperature)
            for z, g in zip(logits, drawn, strict=True)
        ]
        assert_close(weights, torch.from_numpy(np.stack(mixed)), **ROUNDING)


def test_any_leading_dimensions(randn):
    made = layer(Programs(3))
    c = randn(2, 5, 4)
    assert_close(made(c), torch.stack([made(c[0]), made(c[1])]), **ROUNDING)
    assert_close(made(c[0, 0]), made(c)[0, 0], **ROUNDING)


# --- answers one can say in words -------------------------------------------------------------------------------------


def test_a_strong_query_along_the_second_key_takes_the_second_program():
    stored = memory(Programs(3))
    with torch.no_grad():
        stored.key.copy_(torch.eye(3))
    weights = stored.attend(torch.tensor([[0.0, 2.0, 0.0]]).double(), torch.tensor([[100.0]]).double())
    assert_close(weights, torch.tensor([[0.0, 1.0, 0.0]]).double(), rtol=0, atol=1e-12)


def test_without_strength_all_programs_count_the_same(randn):
    weights = memory(Programs(4)).attend(randn(2, 4), torch.zeros(2, 1).double())
    assert_close(weights, torch.full((2, 4), 0.25).double(), **ROUNDING)


def test_the_last_row_of_a_program_is_its_bias(randn):
    stored = memory(Programs(2))
    with torch.no_grad():
        stored.weight.zero_()
        stored.bias.zero_()
        stored.bias[1] = torch.tensor([1.0, 2.0, 3.0])
    taken = torch.tensor([[0.0, 1.0]]).double()
    assert stored.execute(randn(1, 4), taken).tolist() == [[1.0, 2.0, 3.0]]


def test_only_the_direction_of_a_query_counts(randn):
    stored = memory(Programs(3))
    query, strength = randn(2, 3), randn(2, 1).exp()
    assert_close(stored.attend(query, strength), stored.attend(100 * query, strength), rtol=1e-7, atol=1e-7)


# --- equivalences -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("attention", ATTENTION)
def test_executing_equals_building_the_working_program(attention, bias, randn):
    made = layer(Programs(3, attention=attention), bias=bias).eval()
    c = randn(5, 4)
    weights = made.attend(c)
    program = made.memory.working_program(weights)
    rows = 4 + bias
    assert program.shape == (5, rows, 3)
    for b in range(5):
        expected = oracle.working_program(numpy(weights[b]), numpy(programs_of(made.memory)[:, :rows]))
        np.testing.assert_allclose(numpy(program[b]), expected, rtol=1e-12, atol=1e-14)
    materialised = torch.einsum("bn,bnl->bl", F.pad(c, (0, rows - 4), value=1.0), program)
    assert_close(made(c), materialised, **ROUNDING)


def test_orthonormal_keys_and_matching_strengths_make_key_value_attention_direct(randn):
    basis, _ = torch.linalg.qr(randn(4, 4))
    key_value, direct = memory(Programs(4)), memory(Programs(4, attention="direct"))
    with torch.no_grad():
        key_value.key.copy_(basis)
    query, strength = randn(6, 4), randn(6, 1).exp()
    epsilon = 1e-8
    length = (query.square().sum(-1, keepdim=True) + epsilon).sqrt() * math.sqrt(1 + epsilon)
    assert_close(key_value.attend(query @ basis, strength * length), direct.attend(query, strength), **ROUNDING)


# --- Gumbel attention -------------------------------------------------------------------------------------------------


def test_gumbel_is_greedy_in_evaluation(randn):
    made = layer(Programs(3, attention="gumbel")).eval()
    c = randn(20, 4)
    logits = key_value_logits(*queries(made, c), made.memory.key)
    assert_close(made.attend(c), F.one_hot(logits.argmax(-1), 3).double(), rtol=0, atol=0)
    assert_close(made(c), made.memory.execute(c, made.attend(c)), rtol=0, atol=0)
    assert_close(made(c), made(c), rtol=0, atol=0)


def test_gumbel_training_draws_from_the_layers_own_generator(randn):
    made = layer(Programs(3, attention="gumbel"))
    c = randn(200, 4)
    made.seed(7)
    first, second = made(c), made(c)
    assert not torch.equal(first, second)
    made.seed(7)
    assert_close(made(c), first, rtol=0, atol=0)
    made.seed(7)
    noise = gumbel_noise(200, 3, generator=torch.Generator().manual_seed(7), like=c)
    assert_close(made(c, noise), first, rtol=0, atol=0)


def test_layers_have_noise_of_their_own_that_the_seed_of_their_weights_decides(randn):
    def drawn(seed):
        torch.manual_seed(seed)
        layers = [StoredProgramLinear(4, 3, Programs(3, attention="gumbel")) for _ in range(2)]
        c = torch.ones(500, 4)
        return [made(c).detach() - made.eval()(c).detach() for made in layers]

    first, second = drawn(0)
    assert not torch.equal(first == 0, second == 0), "they choose otherwise at other times"
    assert all(torch.equal(a, b) for a, b in zip(drawn(0), (first, second), strict=True))
    assert not torch.equal(drawn(1)[0], first)


def test_gumbel_choices_follow_the_softmax_of_the_logits():
    """Gumbel-max samples the categorical distribution, whatever the temperature; other noise would not."""
    logits = torch.tensor([0.0, 1.0, -1.5]).double()
    draws = 40_000
    noise = gumbel_noise(draws, 3, generator=torch.Generator().manual_seed(0), like=logits)
    counted = gumbel_weights(logits.expand(draws, 3), noise, temperature=5.0).mean(dim=0)
    expected = torch.softmax(logits, dim=0)
    error = (expected * (1 - expected) / draws).sqrt()
    assert ((counted - expected).abs() < 4 * error).all()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_gumbel_gradient_is_that_of_the_soft_relaxation(temperature, randn):
    logits, noise, cotangent = randn(4), randn(4), randn(4)
    leaf = logits.clone().requires_grad_()
    weights = gumbel_weights(leaf, noise, temperature)
    weights.backward(cotangent)
    assert sorted(weights.tolist()) == [0.0, 0.0, 0.0, 1.0]
    step = 1e-6
    for i in range(4):
        up, down = logits.clone(), logits.clone()
        up[i] += step
        down[i] -= step
        above = oracle.gumbel_soft_weights(up.numpy(), noise.numpy(), temperature)
        below = oracle.gumbel_soft_weights(down.numpy(), noise.numpy(), temperature)
        assert leaf.grad[i].item() == pytest.approx(float(cotangent.numpy() @ (above - below)) / (2 * step), abs=1e-8)


# --- losses on the keys -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("programs", "width"), [(1, 3), (2, 2), (4, 3), (5, 7)])
def test_l_p_over_the_pairs(programs, width, randn):
    keys = randn(programs, width)
    total, mean = key_similarity_loss(keys).item(), key_similarity_loss(keys, "mean").item()
    assert total == pytest.approx(oracle.key_similarity_loss(keys.numpy()), rel=1e-12, abs=1e-15)
    assert mean == pytest.approx(oracle.key_similarity_loss(keys.numpy(), mean=True), rel=1e-12, abs=1e-15)


def test_l_p_counts_every_pair_of_equal_keys_once_and_orthogonal_ones_not_at_all():
    assert key_similarity_loss(torch.ones(4, 3).double()).item() == pytest.approx(6, abs=1e-6)
    assert key_similarity_loss(torch.eye(4).double()).item() == 0
    assert key_similarity_loss(torch.tensor([[1.0, 0.0], [-2.0, 0.0]]).double()).item() == pytest.approx(-1, abs=1e-6)


def test_l_p_of_a_layer_sees_the_keys_as_the_attention_does(randn):
    made = layer(Programs(3, bounded_keys=True, loss="mean"))
    keys = np.tanh(numpy(made.memory.key))
    assert made.loss().item() == pytest.approx(oracle.key_similarity_loss(keys, mean=True), rel=1e-12)
    plain = layer(Programs(3))
    assert plain.loss().item() == pytest.approx(oracle.key_similarity_loss(numpy(plain.memory.key)), rel=1e-12)


@pytest.mark.parametrize("attention", ["direct", "uniform"])
def test_l_p_is_zero_where_there_are_no_keys(attention):
    loss = layer(Programs(3, attention=attention)).loss()
    assert loss.item() == 0
    assert loss.dtype == torch.float64


def test_l_p2_is_the_distance_from_an_orthonormal_basis(randn):
    keys = randn(4, 4)
    assert l_p2(keys).item() == pytest.approx(oracle.orthogonality_loss(keys.numpy()), rel=1e-12)
    assert l_p2(torch.zeros(4, 4)).item() == 2.0


@pytest.mark.parametrize("basis", [torch.eye(3), torch.eye(3)[[2, 0, 1]]], ids=["identity", "permutation"])
def test_l_p2_has_a_finite_gradient_at_orthonormal_keys(basis):
    keys = basis.clone().requires_grad_()
    loss = l_p2(keys)
    loss.backward()
    assert loss.item() == 0
    assert keys.grad.isfinite().all()


def test_l_p2_wants_as_many_keys_as_they_are_wide():
    with pytest.raises(ValueError, match=r"keys must be square .* l_p2, were \(3, 2\)"):
        l_p2(torch.zeros(3, 2))


@pytest.mark.parametrize("step", [0, 1, 7, 300])
def test_annealing_decays_from_its_initial_value(step):
    assert annealing(step) == pytest.approx(oracle.annealing(step), rel=1e-9)
    assert annealing(step, 0.5, 0.99) == pytest.approx(oracle.annealing(step, 0.5, 0.99), rel=1e-9)


def test_annealing_starts_at_a_tenth():
    assert annealing(0) == 0.1
    assert annealing(2) == pytest.approx(0.081)


# --- initial values ---------------------------------------------------------------------------------------------------


def within(tensor, bound):
    """Uniform on ±bound: never outside, and reaching most of the way."""
    return tensor.abs().max() <= bound and tensor.abs().max() > 0.95 * bound


def test_a_layer_starts_like_a_linear_one_unless_told_otherwise():
    made = StoredProgramLinear(16, 9, 2, generator=torch.Generator().manual_seed(0))
    assert within(programs_of(made.memory), 1 / 4)
    told = StoredProgramLinear(16, 9, 2, bound=0.01, generator=torch.Generator().manual_seed(0))
    assert within(programs_of(told.memory), 0.01)
    assert told.memory.key.abs().max() <= 0.01


def test_query_networks_start_as_xavier_with_gain():
    made = StoredProgramLinear(400, 9, Programs(2, key_size=100), generator=torch.Generator().manual_seed(0))
    assert within(made.query.weight, 1.4 * math.sqrt(6 / 500))
    assert within(made.strength.weight, 1.4 * math.sqrt(6 / 401))
    assert 0.008 < made.query.bias.std() < 0.012


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_what_is_drawn_in_which_order(bias):
    """Seeds mean the same weights for ever: keys, programs with their biases in one draw, then the query network."""
    made = StoredProgramLinear(4, 3, Programs(2, key_size=5), bias=bias, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(0)
    key = torch.empty(2, 5).uniform_(-0.5, 0.5, generator=generator)
    programs = torch.empty(2, 4 + bias, 3).uniform_(-0.5, 0.5, generator=generator)
    query = torch.empty(5, 4).uniform_(-(limit := 1.4 * math.sqrt(6 / 9)), limit, generator=generator)
    assert torch.equal(made.memory.key, key)
    assert torch.equal(made.memory.weight, programs[:, :4])
    assert made.memory.bias is None if not bias else torch.equal(made.memory.bias, programs[:, 4])
    assert_close(made.query.weight.detach(), query)


@pytest.mark.parametrize("attention", ATTENTION)
def test_programs_without_a_bias(attention):
    config = Programs(3, key_size=3, attention=attention)
    made, plain = StoredProgramLinear(4, 2, config), StoredProgramLinear(4, 2, config, bias=False)
    assert set(dict(made.named_parameters())) - set(dict(plain.named_parameters())) == {"memory.bias"}
    counts = [sum(parameter.numel() for parameter in each.parameters()) for each in (made, plain)]
    assert counts[0] - counts[1] == 3 * 2
    assert "bias=False" in repr(plain.memory)
    assert "bias=False" not in repr(made.memory)
    assert plain.memory.bias is None
    assert (plain(torch.zeros(5, 4)) == 0).all()
    (plain(torch.ones(5, 4)).sum() + plain.loss()).backward()
    assert plain.memory.weight.grad.abs().sum() > 0
    with torch.no_grad():
        made.memory.bias.zero_()
    plain.load_state_dict({name: tensor for name, tensor in made.state_dict().items() if name != "memory.bias"})
    c = torch.ones(5, 4)
    assert_close(plain.eval()(c), made.eval()(c), rtol=0, atol=0)
    assert_close(plain.loss(), made.loss(), rtol=0, atol=0)


def test_a_drop_in_for_linear():
    made = torch.nn.Sequential(StoredProgramLinear(4, 8, 3), torch.nn.ReLU(), StoredProgramLinear(8, 2, 3))
    made(torch.ones(5, 4)).sum().backward()
    assert all(parameter.grad is not None for parameter in made.parameters())
    assert (made[0].in_features, made[0].out_features) == (4, 8)


def test_a_program_memory_of_its_own_can_be_used():
    stored = ProgramMemory(4, 3, Programs(2))
    stored.reset_parameters(0.5, torch.Generator().manual_seed(0))
    assert within(programs_of(stored), 0.5)
    assert stored.execute(torch.ones(2, 4), stored.attend(torch.ones(2, 2), torch.ones(2, 1))).shape == (2, 3)
