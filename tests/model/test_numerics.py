"""float32 at the edges: blank and equal slots, one slot, sharp and flat heads, huge and tiny inputs."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import nn
from torch.testing import assert_close
from torch.utils._pytree import tree_leaves

from nsm import DNC, LRUA, MANN, NTM, NUTM, Controller, Interface, Programs, StoredProgramLinear
from nsm.memories.dnc import allocation
from nsm.memories.memory import content_address
from nsm.memories.ntm import sharpen
from nsm.programs import key_similarity_loss
from nsm.similarity import cosine_similarity

STEPS, BATCH, WIDTH = 3, 2, 3

TAPES = {
    "zero": lambda shape, generator: torch.zeros(shape),
    "constant": lambda shape, generator: torch.full(shape, 1e-6),
    "equal rows": lambda shape, generator: torch.randn(shape[-1], generator=generator).expand(shape).clone(),
    "random": lambda shape, generator: torch.randn(shape, generator=generator),
    "tiny": lambda shape, generator: 1e-20 * torch.randn(shape, generator=generator),
    "huge": lambda shape, generator: 1e6 * torch.randn(shape, generator=generator),
}
slots = st.sampled_from([1, 2, 5, 128])
seeds = st.integers(0, 2**20)


def values(*choices):
    return st.sampled_from(choices)


content = values(0.0, 1e-30, -1e-6, 1.0, -1.0, 1e3, -1e6)
gate = values(-1e4, -1.0, 0.0, 1.0, 1e4)
strength = values(-1e4, 0.0, 1.0, 50.0, 1e4)
sharpening = values(-1e4, 0.0, 1.0, 49.0)


def raw(data, parts):
    """Raw numbers of one head for all steps, drawn part by part: [(how many, what they may be), …]."""
    drawn = [data.draw(arrays("float32", (STEPS, BATCH, count), elements=element)) for count, element in parts]
    return torch.cat([torch.from_numpy(part) for part in drawn], dim=-1).requires_grad_()


def run(memory, heads, tape):
    """Three steps from a tape; everything along the way and every gradient has to be finite."""
    state = memory.initial_state(BATCH, tape.shape[1])
    tape = tape.requires_grad_()
    state = state._replace(memory=tape)
    results, visited = [], []
    for t in range(STEPS):
        read, state, addresses = memory([head[t] for head in heads], state)
        results += [read, *tree_leaves(state)]
        visited.append(addresses)
    for tensor in results:
        assert tensor.isfinite().all()
    gradients = torch.autograd.grad(sum(tensor.sum() for tensor in results), [tape, *heads], materialize_grads=True)
    for gradient in gradients:
        assert gradient.isfinite().all()
    return visited


def is_distribution(address):
    assert address.min() >= 0
    assert_close(address.sum(-1), torch.ones(address.shape[:-1]), rtol=0, atol=2e-5)


def tape_of(kind, count, seed):
    return TAPES[kind]((BATCH, count, WIDTH), torch.Generator().manual_seed(seed))


@given(data=st.data(), kind=st.sampled_from(sorted(TAPES)), count=slots, seed=seeds, start=values("zeros", "one-hot"))
@settings(max_examples=80)
def test_ntm_heads_stay_distributions(data, kind, count, seed, start):
    memory = NTM(count, WIDTH, initial_address=start).build()
    address = [(WIDTH, content), (1, strength), (1, gate), (3, gate), (1, sharpening)]
    heads = [raw(data, address), raw(data, [*address, (WIDTH, gate), (WIDTH, content)])]
    for read, write in run(memory, heads, tape_of(kind, count, seed)):
        is_distribution(read)
        is_distribution(write)


@given(data=st.data(), kind=st.sampled_from(sorted(TAPES)), count=slots, seed=seeds)
def test_lrua_reads_stay_distributions(data, kind, count, seed):
    memory = LRUA(count, WIDTH, read_heads=2).build()
    heads = [raw(data, [(WIDTH, content)]), raw(data, [(WIDTH, content)]), raw(data, [(WIDTH, content), (1, gate)])]
    for read, write in run(memory, heads, tape_of(kind, count, seed)):
        is_distribution(read)
        assert write.min() >= 0


@given(data=st.data(), kind=st.sampled_from(sorted(TAPES)), count=slots, seed=seeds, links=st.booleans())
@settings(max_examples=80)
def test_dnc_reads_stay_distributions_and_writes_below_one(data, kind, count, seed, links):
    memory = DNC(count, WIDTH, read_heads=2, links=links).build()
    reading = raw(data, [(2 * WIDTH, content), (2, strength), (2, gate), *([(6, gate)] if links else [])])
    writing = raw(data, [(WIDTH, content), (1, strength), (WIDTH, gate), (WIDTH, content), (2, gate)])
    for read, write in run(memory, [reading, writing], tape_of(kind, count, seed)):
        assert read.min() >= 0
        assert write.min() >= 0
        assert write.sum(-1).max() <= 1 + 2e-5
        if links:
            assert read.sum(-1).max() <= 1 + 2e-5
        else:
            is_distribution(read)


# --- the pieces -------------------------------------------------------------------------------------------------------


@given(
    count=st.sampled_from([1, 3, 128]),
    gamma=st.floats(1, 50, width=32),
    seed=seeds,
    spread=values(0.0, 1.0, 10.0, 100.0),
)
def test_sharpening_sums_to_one_where_powers_underflow(count, gamma, seed, spread):
    generator = torch.Generator().manual_seed(seed)
    w = torch.softmax(spread * torch.randn(1, count, generator=generator), dim=-1).requires_grad_()
    strength = torch.tensor([[gamma]]).requires_grad_()
    sharp = sharpen(w, strength)
    is_distribution(sharp)
    exact = w.detach().double() ** gamma
    # A float32 logarithm is good to 1e-6 or so, and γ multiplies that.
    assert_close(sharp.double(), exact / exact.sum(), rtol=0, atol=1e-4)
    for gradient in torch.autograd.grad((sharp * torch.arange(count)).sum(), [w, strength]):
        assert gradient.isfinite().all()


def test_a_uniform_address_over_128_slots_survives_sharpening():
    w = torch.full((1, 128), 1 / 128)
    assert_close(sharpen(w, torch.tensor([[50.0]])), w, rtol=1e-5, atol=0)


@given(kind=st.sampled_from(sorted(TAPES)), count=slots, seed=seeds, beta=st.floats(0, 1e4, width=32))
def test_content_addressing_at_any_strength(kind, count, seed, beta):
    tape = tape_of(kind, count, seed).requires_grad_()
    key = torch.randn(BATCH, 1, WIDTH, generator=torch.Generator().manual_seed(seed)).requires_grad_()
    beta = torch.full((BATCH, 1, 1), beta).requires_grad_()
    w = content_address(key, tape, beta)
    is_distribution(w)
    if kind in ("zero", "constant", "equal rows"):
        assert_close(w, torch.full_like(w, 1 / count), rtol=1e-4, atol=0)
    for gradient in torch.autograd.grad((w * torch.arange(count)).sum(), [tape, key, beta]):
        assert gradient.isfinite().all()


@given(
    a=arrays("float32", 4, elements=values(0.0, 1e-38, 1e-20, -1.0, 3.0, 1e9)),
    b=arrays("float32", 4, elements=values(0.0, -1e-38, 1e-4, 1.0, -3.0, 1e9)),
)
def test_cosine_stays_between_minus_one_and_one(a, b):
    a, b = torch.from_numpy(a).requires_grad_(), torch.from_numpy(b).requires_grad_()
    similarity = cosine_similarity(a, b)
    assert abs(similarity.item()) <= 1 + 1e-6
    for gradient in torch.autograd.grad(similarity, [a, b]):
        assert gradient.isfinite().all()


def test_cosine_with_a_zero_vector_is_zero_and_pulls_towards_the_other_one():
    zero, other = torch.zeros(3, requires_grad=True), torch.tensor([1.0, 2.0, -2.0])
    similarity = cosine_similarity(zero, other)
    similarity.backward()
    assert similarity.item() == 0
    # d cos / d zero = other / (|other| √ε)
    assert_close(zero.grad, other / 3 * 1e4, rtol=1e-5, atol=0)


@given(usage=arrays("float32", (1, 6), elements=values(0.0, 1e-30, 1e-7, 0.5, 0.9999999, 1.0)))
def test_allocation_is_at_most_one_whole_slot(usage):
    usage = torch.from_numpy(usage).requires_grad_()
    a = allocation(usage)
    assert a.min() >= 0
    assert a.sum() <= 1 + 1e-5
    (gradient,) = torch.autograd.grad((a * torch.arange(6)).sum(), usage)
    assert gradient.isfinite().all()


@given(
    c=arrays("float32", (2, 4), elements=values(0.0, 1e-30, -1.0, 1.0, 1e4, -1e6)),
    scale=values(0.0, 1e-20, 1.0, 1e4),
    attention=values("key-value", "direct", "gumbel", "uniform"),
    programs=values(1, 3),
)
def test_program_weights_stay_distributions(c, scale, attention, programs):
    made = StoredProgramLinear(
        4, 5, Programs(programs, attention=attention), generator=torch.Generator().manual_seed(0)
    )
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if name not in ("memory.weight", "memory.bias"):
                parameter *= scale
    c = torch.from_numpy(c).requires_grad_()
    is_distribution(made.attend(c))
    out = made(c)
    assert out.isfinite().all()
    for gradient in torch.autograd.grad(out.sum() + made.loss(), [c, *made.parameters()], materialize_grads=True):
        assert gradient.isfinite().all()


def test_l_p_of_zero_keys_is_zero_with_a_finite_gradient():
    keys = torch.zeros(3, 3, requires_grad=True)
    loss = key_similarity_loss(keys)
    loss.backward()
    assert loss.item() == 0
    assert keys.grad.isfinite().all()


# --- whole machines ---------------------------------------------------------------------------------------------------

MACHINES = {
    "ntm": NTM(7, WIDTH),
    "ntm-zeros": NTM(7, WIDTH, initial_address="zeros", initial_memory="random"),
    "lrua": LRUA(7, WIDTH, read_heads=2),
    "dnc": DNC(7, WIDTH, read_heads=2),
    "dnc-links": DNC(7, WIDTH, read_heads=2, links=True),
}


@given(
    x=arrays("float32", (4, BATCH, 2), elements=values(0.0, 1e-38, 1.0, -1.0, 1e4, -1e15, 1e30)),
    count=slots,
    gain=values(1e-3, 1.4, 100.0, 1e4),
    kind=values(MANN, NUTM),
    memory=st.sampled_from(sorted(MACHINES)),
    controller=values("lstm", "gru", "rnn", "feed-forward"),
)
@settings(max_examples=120)
def test_any_input_gives_finite_outputs_and_gradients(x, count, gain, kind, memory, controller):
    generator = torch.Generator().manual_seed(0)
    made = kind(
        2,
        2,
        controller=Controller(controller, size=4),
        memory=MACHINES[memory],
        interface=Interface(gain=gain, fan="head"),
        backend="reference",
        generator=generator,
    )
    x = torch.from_numpy(x).requires_grad_()
    out, state = made(x, made.initial_state(BATCH, slots=count))
    assert all(leaf.isfinite().all() for leaf in (out, *tree_leaves(state)))
    gradients = torch.autograd.grad(
        out.tanh().sum() + made.program_loss(), [x, *made.parameters()], materialize_grads=True
    )
    for gradient in gradients:
        assert gradient.isfinite().all()


@given(
    x=arrays("float32", (4, BATCH, 2), elements=values(0.0, 1e-38, 1.0, -1.0, 1e4, -1e15)),
    count=slots,
    memory=st.sampled_from(sorted(MACHINES)),
)
def test_layer_norms_stay_finite(x, count, memory):
    """Up to where a square still is a float32."""
    made = NUTM(
        2,
        2,
        controller=Controller(size=4, layer_norm=True),
        memory=MACHINES[memory],
        interface=Interface(norm=True),
        backend="reference",
        generator=torch.Generator().manual_seed(0),
    )
    x = torch.from_numpy(x).requires_grad_()
    out, _ = made(x, made.initial_state(BATCH, slots=count))
    assert out.isfinite().all()
    for gradient in torch.autograd.grad(out.tanh().sum(), [x, *made.parameters()], materialize_grads=True):
        assert gradient.isfinite().all()


@pytest.mark.parametrize("memory", sorted(MACHINES))
def test_long_sequences_stay_finite(memory):
    options = {"memory": MACHINES[memory], "controller": Controller(size=8), "backend": "reference"}
    made = NUTM(2, 2, **options, generator=torch.Generator().manual_seed(0))
    x = torch.randn(150, 1, 2, generator=torch.Generator().manual_seed(1))
    out, _ = made(x)
    out.tanh().sum().backward()
    assert out.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in made.parameters())


# --- other precisions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("start", ["constant", "random"])
@pytest.mark.parametrize("kind", [NTM, LRUA, DNC])
def test_half_precision_is_finite_there_and_back(kind, start, dtype):
    torch.manual_seed(0)
    memory = kind(slots=6, width=4, initial_memory=start)
    machine = NUTM(3, 2, controller=Controller(size=5), memory=memory, backend="reference").to(dtype)
    out, _ = machine(torch.randn(6, 2, 3).to(dtype))
    out.sum().backward()
    assert out.dtype == dtype
    assert out.isfinite().all()
    for name, parameter in machine.named_parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("backend", ["reference", "fused"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_is_cast_at_the_door_and_back(backend, dtype):
    """As in an `nn.LSTM` the output is autocast's; inside, and in the state, the machine keeps its own precision."""
    torch.manual_seed(0)
    machine = NUTM(3, 2, controller=Controller(size=5), memory=NTM(slots=6, width=4), backend=backend)
    before, x = nn.Linear(4, 3), torch.randn(4, 2, 4)
    with torch.autocast("cpu", dtype=dtype):
        given = before(x)
        out, state = machine(given)
        y, after = machine.step(given[0], state)
        loss = out.float().square().sum()
    loss.backward()
    assert given.dtype == out.dtype == y.dtype == dtype
    assert state.read.dtype == after.memory.memory.dtype == torch.float32
    expected, end = machine(given.detach().float())
    assert torch.equal(out, expected.to(dtype))
    assert torch.equal(state.memory.memory, end.memory.memory)
    assert torch.equal(y, machine.step(given[0].detach().float(), end)[0].to(dtype))
    assert before.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("backend", ["reference", "fused"])
def test_what_stands_after_the_end_of_a_sequence_reaches_no_gradient(backend):
    torch.manual_seed(0)
    machine = NUTM(3, 2, controller=Controller(size=5), memory=NTM(slots=6, width=4), backend=backend)
    found = []
    for filling in (0.0, float("nan")):
        x = torch.randn(5, 2, 3, generator=torch.Generator().manual_seed(0))
        x[3:, 0] = filling
        machine.zero_grad()
        out, _ = machine(x, lengths=[3, 5])
        out.square().sum().backward()
        found.append([out.detach(), *(parameter.grad.clone() for parameter in machine.parameters())])
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))
