"""Routing without labels: who answers, who learns, when a program is claimed; by what has been heard alone."""

from dataclasses import replace

import pytest
import torch

import nsm
from nsm import Repertoire, familiarity, pretrained
from nsm.experiments import recipes
from nsm.familiarity import Familiarity
from nsm.machine import Machine
from nsm.repertoire import RepertoireMachine
from nsm.training.evaluation import evaluate

TASK = recipes.continual("ntm").task
COPY, REPEAT, RECALL, SORT = range(4)


def machine(count=5, batch_first=False, **options) -> RepertoireMachine:
    config = nsm.MachineConfig(
        *(10, 8, nsm.Controller(size=8), nsm.NTM(slots=32, width=4)),
        repertoire=Repertoire(count, **options),
        batch_first=batch_first,
    )
    return Machine.from_config(config, generator=torch.Generator().manual_seed(0)).eval()


def batches(part, number, first=0, ragged=False):
    """Training batches of one of the four tasks, as (inputs, lengths)."""
    task = replace(TASK, ragged=ragged).weighted(tuple(float(index == part) for index in range(4)))
    for batch in task.batches(0, 0, first, first + number, 16):
        yield torch.from_numpy(batch.inputs), torch.from_numpy(batch.lengths)


def listened(parts, count=5, number=80, **options) -> tuple[RepertoireMachine, list[int]]:
    """A repertoire that has heard batches of one task after another, and how many programs it had after each."""
    found = machine(count, **{"youth": 40, "patience": 5} | options)
    claimed = []
    for phase, part in enumerate(parts):
        for batch in batches(part, number, number * phase):
            found.listen(*batch)
        claimed.append(int(found.claimed))
    return found, claimed


# --- counting ---------------------------------------------------------------------------------------------------------


def test_counts_of_a_sequence_worked_out_by_hand():
    familiarity = Familiarity(programs=1, channels=1)  # channel 0, and silence
    x = torch.tensor([1.0, 0.0, 0.5]).view(3, 1, 1)
    events, active = familiarity.events(x, familiarity.silence(1))
    assert active[:, 0].tolist() == [[1, 0], [1, 1], [2, 1]]
    familiarity.hear(0, events)
    counts = familiarity.counts.view(2, 2, 2, 4, 5)  # c, d, another channel is on, how often d was on, kind
    assert familiarity.counts.sum() == 3 * 2 * 2
    # Channel 0 by itself: a 1 after none, then a 0 and 0.5 after one.
    assert counts[0, 0, 0, 0].tolist() == [0, 0, 0, 1, 0]
    assert counts[0, 0, 0, 1].tolist() == [0, 1, 1, 0, 0]
    # Silence by channel 0: no after none, yes and no after one.
    assert counts[1, 0, 0, 0].tolist() == [0, 1, 0, 0, 0]
    assert counts[1, 0, 0, 1].tolist() == [0, 1, 0, 1, 0]


def test_what_was_heard_often_is_expected_and_what_was_never_heard_is_not():
    familiarity = Familiarity(programs=2, channels=2)
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).unsqueeze(1)
    events, _ = familiarity.events(x, familiarity.silence(1))
    assert torch.allclose(familiarity.surprise(0, events), torch.tensor(5.0, dtype=torch.float64).log()), (
        "nothing heard: all are alike"
    )
    for _ in range(100):
        familiarity.hear(0, events)
    assert familiarity.surprise(0, events).max() < 0.01
    other, _ = familiarity.events(x / 2, familiarity.silence(1))
    assert familiarity.surprise(0, other).max() > 5
    assert torch.allclose(familiarity.surprise(1, events), torch.tensor(5.0, dtype=torch.float64).log())


# --- claiming ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [(COPY, REPEAT, RECALL, SORT), (SORT, RECALL, COPY, REPEAT)])
def test_a_program_is_claimed_for_every_new_task_and_for_nothing_else(order):
    _, claimed = listened(order, count=6, number=150)
    assert claimed == [1, 2, 3, 4]


def test_a_task_that_comes_back_is_known_and_nobody_learns_from_it():
    repertoire, claimed = listened((COPY, RECALL, COPY))
    assert claimed == [1, 2, 2]
    before = repertoire.familiarity.counts.clone()
    assert not any(len(repertoire.listen(*batch)) for batch in batches(COPY, 10, 1000))
    assert torch.equal(repertoire.familiarity.counts, before)


def test_before_a_program_is_claimed_nobody_learns_from_what_is_new():
    repertoire, _ = listened((COPY,))
    learned = [len(repertoire.listen(*batch)) for batch in batches(SORT, 6, 1000)]
    assert learned == [0, 0, 0, 0, 16, 16], "patience is 5"
    assert int(repertoire.claimed) == 2


def test_a_single_strange_batch_claims_nothing():
    repertoire, _ = listened((COPY,), patience=3)
    for first in range(1000, 1010):
        for part in (SORT, COPY, COPY):
            for batch in batches(part, 1, first):
                repertoire.listen(*batch)
    assert int(repertoire.claimed) == 1


def test_when_all_are_claimed_the_last_takes_what_is_new():
    repertoire, claimed = listened((COPY, RECALL, SORT), count=2)
    assert claimed == [1, 2, 2]
    assert all(len(repertoire.listen(*batch)) == 16 for batch in batches(SORT, 3, 1000))


# --- routing ----------------------------------------------------------------------------------------------------------


def test_every_task_is_answered_by_the_program_that_heard_it():
    repertoire, _ = listened((COPY, REPEAT, RECALL, SORT), number=300)
    for number, part in enumerate(TASK.parts.values()):
        right = total = 0
        for batch in part.examination(0, 1, 200):
            answered = batch.mask > 0
            route = repertoire.route(torch.from_numpy(batch.inputs)).numpy()
            right += (route == number)[answered].sum()
            total += answered.sum()
        assert right > 0.97 * total, part.name


def test_the_answer_is_that_of_the_program_that_the_route_says():
    repertoire, _ = listened((COPY, SORT))
    x = torch.cat([next(batches(part, 1, 500))[0][:6, :3] for part in (COPY, SORT)], dim=1)
    out, _ = repertoire(x)
    route = repertoire.route(x)
    assert set(route[-1].tolist()) == {0, 1}
    each = torch.stack([program(x)[0] for program in repertoire.programs])
    for t in range(6):
        for b in range(6):
            assert torch.equal(out[t, b], each[route[t, b], t, b])


def test_a_route_depends_on_the_past_alone():
    repertoire, _ = listened((COPY, REPEAT, SORT))
    x = next(batches(REPEAT, 1, 500))[0]
    changed = x.clone()
    changed[4:] = torch.rand_like(changed[4:])
    assert torch.equal(repertoire.route(x)[:4], repertoire.route(changed)[:4])


def test_step_by_step_equals_one_call():
    repertoire, _ = listened((COPY, REPEAT, SORT))
    x = next(batches(SORT, 1, 500))[0][:9, :4]
    whole, final = repertoire(x)
    state, outputs = None, []
    for t in range(len(x)):
        out, state = repertoire(x[t : t + 1], state)
        outputs.append(out[0])
    assert torch.allclose(torch.stack(outputs), whole, atol=1e-6)
    assert torch.equal(state.active, final.active)
    assert torch.allclose(state.surprise, final.surprise)


def test_padding_changes_no_answer_and_no_state():
    repertoire, _ = listened((COPY, SORT))
    x = next(batches(COPY, 1, 500))[0][:5, :2]
    out, state = repertoire(x)
    padded, after = repertoire(torch.cat([x, torch.rand(3, 2, 10)]), lengths=[5, 5])
    assert torch.equal(padded[:5], out)
    assert not padded[5:].any()
    assert torch.equal(after.surprise, state.surprise)
    assert torch.equal(after.active, state.active)


def test_padding_is_not_heard():
    x, lengths = next(batches(COPY, 1, ragged=True))
    assert lengths.min() < len(x)
    one, other = machine(), machine()
    one.listen(x, lengths)
    blank = torch.arange(len(x))[:, None] >= lengths
    other.listen(x.masked_fill(blank[..., None], 7.0), lengths)
    assert torch.equal(one.familiarity.counts, other.familiarity.counts)


# --- as any machine ---------------------------------------------------------------------------------------------------


def test_it_is_saved_and_loaded_with_what_it_has_heard(tmp_path):
    repertoire, _ = listened((COPY, SORT))
    repertoire.save_pretrained(tmp_path)
    loaded = nsm.load(tmp_path)
    assert isinstance(loaded, RepertoireMachine)
    assert int(loaded.claimed) == 2
    x = next(batches(SORT, 1, 500))[0]
    assert torch.equal(loaded(x)[0], repertoire(x)[0])


@pytest.mark.parametrize(
    ("name", "tensor"),
    [("claimed", torch.tensor(float("nan"))), ("familiarity.counts", torch.zeros(5, 4840, dtype=torch.complex64))],
)
def test_counts_of_another_type_are_refused(name, tensor, tmp_path):
    repertoire = machine()
    tensors = repertoire.state_dict()
    assert name in tensors
    pretrained.save(tmp_path, "MANN", repertoire.config, {**tensors, name: tensor.reshape(tensors[name].shape)})
    with pytest.raises(nsm.UserError, match=rf"{name} must be of type torch.int64, was"):
        nsm.load(tmp_path)


def test_long_sequences_are_heard_piece_by_piece(monkeypatch):
    repertoire, _ = listened((COPY, SORT), number=60)
    again = machine(youth=40, patience=5)
    x = next(batches(SORT, 1, 500))[0]
    state = repertoire.initial_state(x.shape[1])
    whole = repertoire._heard(x, state)
    monkeypatch.setattr(familiarity, "LARGEST", 3 * x.shape[1] * 11**2)  # three steps
    assert len(repertoire.familiarity.pieces(x)) > 5
    for ours, theirs in zip(repertoire._heard(x, state), whole, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=0)
    for phase, part in enumerate((COPY, SORT)):
        for batch in batches(part, 60, 60 * phase):
            again.listen(*batch)
    assert torch.equal(again.familiarity.counts, repertoire.familiarity.counts)
    assert torch.equal(again.claimed, repertoire.claimed)


def test_a_memory_of_ones_own_is_not_shared():
    memory = nsm.NTM(slots=8, width=4).build(None)
    config = nsm.MachineConfig(10, 8, nsm.Controller(size=8), None, repertoire=Repertoire(2))
    first, second = Machine.from_config(config, memory).programs
    assert first.memory is not second.memory


@pytest.mark.parametrize("said", [0, -3, 7])
def test_a_number_of_programs_that_there_can_not_be_is_one_that_there_can(said):
    repertoire, x = machine(count=2), torch.zeros(3, 1, 10)
    repertoire.claimed.fill_(said)
    assert repertoire(x)[0].shape == (3, 1, 8)
    assert repertoire.newest == (0 if said < 1 else 1)


def test_batch_first():
    x = next(batches(COPY, 1, 500))[0]
    one, other = machine(), machine(batch_first=True)
    assert torch.equal(other(x.transpose(0, 1))[0].transpose(0, 1), one(x)[0])


def test_programs_start_different():
    first, second, *_ = (program.output.weight for program in machine().programs)
    assert not torch.equal(first, second)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"count": 0}, "repertoire count must be an integer of at least 1"),
        ({"count": 10**9}, "repertoire count must be at most 64, was 1,000,000,000"),
        ({"patience": 0}, "repertoire patience must be an integer of at least 1"),
        ({"youth": 0}, "repertoire youth must be an integer of at least 1"),
        ({"rare": 1.0}, "repertoire rare must be between 0 and 1"),
    ],
)
def test_mistakes_are_named(options, message):
    with pytest.raises(nsm.UserError, match=message):
        Repertoire(**options)


def test_what_it_can_not_take_is_said():
    with pytest.raises(nsm.UserError, match="no trace of its own: ask one of its programs"):
        machine()(torch.zeros(3, 1, 10), trace=True)
    with pytest.raises(nsm.UserError, match=r"x must have shape \(T, B, 10\), was \(3, 10\); add a batch dimension"):
        machine()(torch.zeros(3, 10))
    with pytest.raises(nsm.UserError, match="state must be of a batch of 2 here, was of 1"):
        machine()(torch.zeros(3, 2, 10), machine().initial_state(1))
    with pytest.raises(nsm.UserError, match="can't be intervened on as a whole"):
        machine().run(torch.zeros(3, 1, 10))
    with pytest.raises(nsm.UserError, match="a repertoire has no persistent memory"):
        evaluate(machine(), TASK, 4, persistent=True)
