"""A wrong argument gets a ValueError that names it, says what it was and what it should be."""

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence

from nsm import DNC, LRUA, MANN, NTM, NUTM, Controller, Interface, Noise, Programs, StoredProgramLinear
from nsm.programs import ProgramMemory

STEPS, BATCH = 4, 2


def refuses(match):
    return pytest.raises(ValueError, match=match)


@pytest.fixture
def small():
    return NUTM(3, 2, 2, controller=Controller(size=5), memory=NTM(6, 4))


@pytest.fixture
def x():
    return torch.zeros(STEPS, BATCH, 3)


# --- input ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shape", [(STEPS, BATCH, 4), (STEPS, 4), (3,), (1, STEPS, BATCH, 3), (0, BATCH, 3), (STEPS, 0, 3)], ids=str
)
def test_input_of_another_shape(small, shape):
    found = str(shape).replace("(", r"\(").replace(")", r"\)")
    with refuses(rf"x must have shape \(T, B, 3\) or \(T, 3\), was {found}"):
        small(torch.zeros(shape))


def test_a_missing_dimension_says_how_to_add_it(small):
    with refuses(r"was \(3,\); add a time dimension with x.unsqueeze\(0\)"):
        small(torch.zeros(3))
    with refuses("no dimension may be 0"):
        small(torch.zeros(STEPS, 0, 3))


def test_input_of_another_shape_batch_first():
    small = NUTM(3, 2, memory=NTM(6, 4), batch_first=True)
    with refuses(r"x must have shape \(B, T, 3\) or \(T, 3\), was \(2, 4, 5\)"):
        small(torch.zeros(2, 4, 5))


@pytest.mark.parametrize("shape", [(BATCH, 4), (4,), (1, BATCH, 3), (0, 3)], ids=str)
def test_input_of_a_step_of_another_shape(small, shape):
    with refuses(r"x must have shape \(B, 3\) or \(3,\), was \("):
        small.step(torch.zeros(shape), small.initial_state(BATCH))


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64, torch.bool])
def test_input_of_another_type(small, x, dtype):
    with refuses(rf"x must be torch\.float32 like the weights, was {dtype}"):
        small(x.to(dtype))
    with refuses(rf"x must be torch\.float32 like the weights, was {dtype}"):
        small.step(x[0].to(dtype), small.initial_state(BATCH))


def test_float32_input_to_a_float64_machine(small, x):
    with refuses(r"x must be torch\.float64 like the weights, was torch\.float32"):
        small.double()(x)


def test_input_that_is_no_tensor(small, x):
    with refuses(r"x must be a tensor of shape \(T, B, 3\) or \(T, 3\), was list"):
        small(x.tolist())
    with refuses(r"x must be a tensor of shape \(T, B, 3\) or \(T, 3\), was ndarray"):
        small(x.numpy())


@pytest.mark.parametrize("trace", ["tape", None, 2])
def test_an_unknown_trace(small, x, trace):
    with refuses(f"trace must be True, False or 'memory', was {trace!r}"):
        small(x, trace=trace)


# --- lengths ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lengths", [np.array([4, 2]), [np.int64(4), np.int32(2)], torch.tensor([4, 2]), (4, 2)])
def test_lengths_of_any_kind_of_integer(small, x, lengths):
    assert torch.equal(small(x, lengths=lengths)[0], small(x, lengths=[4, 2])[0])


@pytest.mark.parametrize("wrong", [5, 0, -1, 2.0, True, "3"])
@pytest.mark.parametrize("place", [0, 1])
def test_a_length_that_is_none(small, x, wrong, place):
    lengths = [4, 4]
    lengths[place] = wrong
    with refuses(rf"lengths must be integers from 1 to T = 4, one was {wrong!r}"):
        small(x, lengths=lengths)


@pytest.mark.parametrize("wrong", [5, 0])
def test_a_length_that_is_none_in_a_tensor(small, x, wrong):
    with refuses(rf"lengths must be integers from 1 to T = 4, one was {wrong}"):
        small(x, lengths=torch.tensor([4, wrong]))
    with refuses(r"lengths must be integers from 1 to T = 4, one was 4\.0"):
        small(x, lengths=torch.tensor([4.0, 3.0]))
    with refuses(r"lengths must be integers from 1 to T = 4, one was \[4\]"):
        small(x, lengths=torch.tensor([[4], [3]]))


@pytest.mark.parametrize("lengths", [[4], [4, 4, 4], []], ids=str)
def test_another_number_of_lengths(small, x, lengths):
    with refuses(f"lengths must have one entry per sequence, 2, had {len(lengths)}"):
        small(x, lengths=lengths)
    with refuses(f"lengths must have one entry per sequence, 2, had {len(lengths)}"):
        small(x, lengths=torch.tensor(lengths, dtype=torch.int64))


@pytest.mark.parametrize("lengths", [3, torch.tensor(3)], ids=["number", "scalar"])
def test_lengths_that_are_one_number(small, x, lengths):
    with refuses(r"lengths must have one entry per sequence, 2, was .*3"):
        small(x, lengths=lengths)


def test_lengths_where_there_is_no_batch(small, x):
    with refuses(r"lengths need a batch; leave them out for an unbatched x \(T, I\)"):
        small(x[:, 0], lengths=[4])
    with refuses(r"a PackedSequence x has its own lengths; leave out lengths"):
        small(pack_padded_sequence(x, [4, 3]), lengths=[4, 3])


# --- states -----------------------------------------------------------------------------------------------------------


def hand_in(small, x, state):
    """Try a state with both ways of running a machine."""
    yield lambda: small(x, state)
    yield lambda: small.step(x[0], state)


def check_state(small, x, state, match):
    for attempt in hand_in(small, x, state):
        with refuses(match):
            attempt()


def test_a_state_of_another_batch(small, x):
    match = r"state\.controller\.hidden must have shape \(2, 5\) here, had \(3, 5\)"
    check_state(small, x, small.initial_state(3), match)


def test_a_state_of_another_memory(small, x):
    for config, name in ((LRUA(6, 4), "LRUAState"), (DNC(6, 4), "DNCState")):
        other = MANN(3, 2, controller=Controller(size=5), memory=config)
        match = f"state.memory must be a NTMState for this machine, was {name}"
        check_state(small, x, other.initial_state(BATCH), match)


def test_a_state_of_another_width(small, x):
    other = MANN(3, 2, controller=Controller(size=5), memory=NTM(6, 3))
    match = r"state\.memory\.memory must have shape \(2, 6, 4\) here, had \(2, 6, 3\)"
    check_state(small, x, other.initial_state(BATCH), match)


def test_a_state_of_more_heads(small, x):
    other = MANN(3, 2, controller=Controller(size=5), memory=NTM(6, 4, read_heads=2))
    match = r"state\.memory\.read_addresses must have shape \(2, 1, 6\) here, had \(2, 2, 6\)"
    check_state(small, x, other.initial_state(BATCH), match)


def test_a_state_with_links(x):
    small = MANN(3, 2, memory=DNC(6, 4))
    other = MANN(3, 2, memory=DNC(6, 4, links=True))
    match = r"state\.memory\.precedence must have shape \(2, 0\) here, had \(2, 6\)"
    check_state(small, x, other.initial_state(BATCH), match)


def test_a_state_of_another_controller(small, x):
    for controller, match in (
        (Controller("gru", size=5), r"state\.controller must be a LSTMState for this machine, was HiddenState"),
        (Controller("feed-forward", size=5), r"state\.controller must be a LSTMState for this machine, was NoState"),
        (Controller(size=6), r"state\.controller\.hidden must have shape \(2, 5\) here, had \(2, 6\)"),
    ):
        other = MANN(3, 2, controller=controller, memory=NTM(6, 4))
        check_state(small, x, other.initial_state(BATCH), match)


def test_a_state_of_another_type(small, x):
    match = r"state\.controller\.hidden must be torch\.float32 like the weights, was torch\.float64"
    state = small.double().initial_state(BATCH)
    check_state(small.float(), x, state, match)


def test_a_state_with_a_hole(small, x):
    state = small.initial_state(BATCH)
    check_state(small, x, state._replace(read=None), r"state\.read must be a tensor of shape \(2, 4\), was NoneType")
    mixed = state._replace(memory=state.memory._replace(write_addresses=torch.zeros(BATCH, 1, 7)))
    check_state(small, x, mixed, r"state\.memory\.write_addresses must have shape \(2, 1, 6\) here, had \(2, 1, 7\)")


def test_a_state_that_is_none(small, x):
    state = small.initial_state(BATCH)
    check_state(small, x, tuple(state), r"state must be a MachineState, as from initial_state\(\), was tuple")
    with refuses(r"state must be a MachineState, as from initial_state\(\), was NoneType"):
        small.step(x[0], None)


@pytest.mark.parametrize("batch", [0, -1, 2.0, True])
def test_an_initial_state_for_no_batch(small, batch):
    with refuses(f"batch must be an integer of at least 1, was {batch!r}"):
        small.initial_state(batch)


@pytest.mark.parametrize("slots", [0, -3, 2.5])
def test_an_initial_state_on_no_tape(small, slots):
    with refuses(f"slots must be an integer of at least 1, was {slots!r}"):
        small.initial_state(2, slots=slots)


# --- noise ------------------------------------------------------------------------------------------------------------


def test_noise_of_another_shape(small, x):
    with refuses(r"noise\.cell must have shape \(4, 2, 5\), was \(4, 2, 6\)"):
        small(x, noise=Noise(cell=torch.zeros(4, 2, 6)))
    with refuses(r"noise\.cell must have shape \(2, 5\), was \(4, 2, 5\)"):
        small.step(x[0], small.initial_state(BATCH), Noise(cell=torch.zeros(4, 2, 5)))
    with refuses(r"noise\.programs must have shape \(4, 2, 2, 2\), was \(4, 2, 2, 3\)"):
        small(x, noise=Noise(programs=torch.zeros(4, 2, 2, 3)))
    with refuses(r"noise\.programs must have shape \(2, 2, 2\), was \(4, 2, 2, 2\)"):
        small.step(x[0], small.initial_state(BATCH), Noise(programs=torch.zeros(4, 2, 2, 2)))


@pytest.mark.parametrize("kind", ["gru", "rnn", "feed-forward"])
def test_noise_on_a_cell_there_is_not(kind, x):
    small = MANN(3, 2, controller=Controller(kind, size=5), memory=NTM(6, 4))
    with refuses(f"noise.cell needs an lstm controller, was '{kind}'"):
        small(x, noise=Noise(cell=torch.zeros(STEPS, BATCH, 5)))
    with refuses(f"noise on the cell needs an lstm controller, was '{kind}'"):
        small.draw_noise(STEPS, BATCH, generator=torch.Generator(), cell=0.3)


def test_program_noise_for_a_machine_without_programs(x):
    with refuses(r"noise\.programs must have shape \(4, 2, 2, 0\), was \(4, 2, 2, 3\)"):
        MANN(3, 2, memory=NTM(6, 4))(x, noise=Noise(programs=torch.zeros(4, 2, 2, 3)))


# --- configurations ---------------------------------------------------------------------------------------------------

UNKNOWN = {
    "controller": (
        lambda: NUTM(3, 2, controller="lsmt"),
        r"controller must be one of 'lstm', 'gru', 'rnn', 'feed-forward', was 'lsmt'; did you mean 'lstm'\?",
    ),
    "controller, nested": (
        lambda: Controller("feedforward"),
        r"controller must be .* was 'feedforward'; did you mean 'feed-forward'\?",
    ),
    "memory": (
        lambda: NUTM(3, 2, memory="lru"),
        r"memory must be one of 'ntm', 'lrua', 'dnc', was 'lru'; did you mean 'lrua'\?",
    ),
    "attention": (
        lambda: Programs(2, attention="keyvalue"),
        r"attention must be one of .* was 'keyvalue'; did you mean 'key-value'\?",
    ),
    "loss": (
        lambda: Programs(2, loss="meann"),
        r"loss must be one of 'sum', 'mean', was 'meann'; did you mean 'mean'\?",
    ),
    "order, ntm": (
        lambda: NTM(order="read_first"),
        r"order must be one of 'read-first', 'write-first', was 'read_first'; did you mean 'read-first'\?",
    ),
    "order, lrua": (
        lambda: LRUA(order="writefirst"),
        r"order must be .* was 'writefirst'; did you mean 'write-first'\?",
    ),
    "initial address": (
        lambda: NTM(initial_address="onehot"),
        r"initial_address must be one of .* was 'onehot'; did you mean 'one-hot'\?",
    ),
    "initial memory": (
        lambda: DNC(initial_memory="const"),
        r"initial_memory must be one of .* was 'const'; did you mean 'constant'\?",
    ),
    "backend": (
        lambda: NUTM(3, 2, backend="refrence"),
        r"backend must be one of 'auto', 'reference', 'fused', was 'refrence'; did you mean 'reference'\?",
    ),
    "fan": (
        lambda: Interface(fan="heads"),
        r"interface fan must be one of 'head', 'memory', was 'heads'; did you mean 'head'\?",
    ),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_unknown_name_and_the_nearest_one(name):
    build, match = UNKNOWN[name]
    with refuses(match):
        build()


def test_a_name_that_is_near_to_none_gets_no_suggestion():
    with pytest.raises(ValueError, match=r"memory must be one of .* was 'transformer'$"):
        NUTM(3, 2, memory="transformer")


NUMBERS = {
    "programs": (lambda n: NUTM(3, 2, n), "programs must be an integer of at least 1", [0, -1, 1.5, True]),
    "key_size": (lambda n: Programs(2, key_size=n), "key_size must be an integer of at least 1", [0, 1.5]),
    "temperature": (
        lambda n: Programs(2, temperature=n),
        "temperature must be a finite number above 0",
        [0, -1.0, float("inf"), float("nan"), "1"],
    ),
    "strength_scale": (
        lambda n: Programs(2, strength_scale=n),
        "strength_scale must be a finite number above 0",
        [0.0, -1],
    ),
    "input_size": (lambda n: MANN(n, 2), "input_size must be an integer of at least 1", [0, 2.0, "3"]),
    "output_size": (lambda n: MANN(3, n), "output_size must be an integer of at least 1", [0, None]),
    "controller size": (lambda n: Controller(size=n), "controller size must be an integer of at least 1", [0, 5.0]),
    "controller gain": (lambda n: Controller(gain=n), "gain must be a finite number above 0", [0, -5, True]),
    "biases": (lambda n: Controller(biases=n), "biases must be 1 or 2", [0, 3]),
    "slots": (lambda n: NTM(slots=n), "slots must be an integer of at least 1", [0, 1.0]),
    "width": (lambda n: DNC(width=n), "width must be an integer of at least 1", [0, -2]),
    "ntm read heads": (lambda n: NTM(read_heads=n), "read_heads must be an integer of at least 1", [0]),
    "ntm write heads": (lambda n: NTM(write_heads=n), "write_heads must be an integer of at least 1", [0]),
    "lrua read heads": (lambda n: LRUA(read_heads=n), "read_heads must be an integer of at least 1", [0]),
    "lrua write heads": (lambda n: LRUA(write_heads=n), "write_heads must be an integer of at least 1", [0]),
    "dnc read heads": (lambda n: DNC(read_heads=n), "read_heads must be an integer of at least 1", [0]),
    "shift_range": (lambda n: NTM(shift_range=n), "shift_range must be an integer of at least 0", [-1, 1.0]),
    "least_used": (lambda n: LRUA(least_used=n), "least_used must be an integer of at least 1", [0]),
    "strength": (lambda n: LRUA(strength=n), "strength must be a finite number above 0", [0.0, -1.0, float("nan")]),
    "decay": (lambda n: LRUA(decay=n), "decay must be at least 0 and below 1", [1.0, -0.1, float("nan")]),
    "interface gain": (lambda n: Interface(gain=n), "interface gain must be a finite number above 0", [0]),
    "in_features": (lambda n: ProgramMemory(n, 2, Programs()), "in_features must be an integer of at least 1", [0]),
    "out_features": (lambda n: ProgramMemory(2, n, Programs()), "out_features must be an integer of at least 1", [0]),
}


@pytest.mark.parametrize(
    ("name", "wrong"), [(name, wrong) for name, (_, _, values) in NUMBERS.items() for wrong in values]
)
def test_a_number_out_of_range(name, wrong):
    build, match, _ = NUMBERS[name]
    with refuses(f"{match}, was {wrong!r}"):
        build(wrong)


def test_direct_attention_needs_a_query_as_wide_as_there_are_programs():
    with refuses("key_size must equal the number of programs, 3, for direct attention, was 5"):
        Programs(3, key_size=5, attention="direct")
    assert Programs(3, key_size=3, attention="direct").keys == 3


@pytest.mark.parametrize("kind", ["gru", "rnn", "feed-forward"])
def test_layer_norm_needs_an_lstm(kind):
    with refuses(f"layer_norm needs an lstm controller, was '{kind}'"):
        Controller(kind, layer_norm=True)


@pytest.mark.parametrize("wrong", [None, 3, NTM], ids=str)
def test_a_memory_that_is_none(wrong):
    with refuses("memory must be a name, a memory's configuration or a Memory, was"):
        NUTM(3, 2, memory=wrong)


@pytest.mark.parametrize("wrong", [None, 3, Controller], ids=str)
def test_a_controller_that_is_none(wrong):
    with refuses("controller must be a name or a Controller, was"):
        NUTM(3, 2, controller=wrong)


def test_a_layer_with_another_width():
    layer = StoredProgramLinear(4, 2, 2)
    with refuses(r"c must have 4 features in its last dimension, was \(2, 3\)"):
        layer(torch.zeros(2, 3))
