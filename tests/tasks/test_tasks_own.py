"""A task of one's own with nothing but `sample`: sizes, a name, batches by position, and mistakes in one sentence."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch

import nsm
from nsm.checks import UserError
from nsm.tasks import Copy, Draws, Mixture, Padded, with_ranges


class Reverse(nsm.Task):
    """Bits backwards."""

    def sample(self, random):
        n = random.integers(1, 9)
        shown = random.integers(0, 2, (n, 4))
        inputs, targets = np.zeros((2 * n + 1, 5)), np.zeros((2 * n + 1, 4))
        inputs[:n, :4] = shown
        inputs[n, 4] = 1
        targets[n + 1 :] = shown[::-1]
        return inputs, targets, np.arange(2 * n + 1) > n


class NameIt(nsm.Classification):
    """Which channel was on at the first step? Every step counts."""

    def sample(self, random):
        choice = random.integers(3)
        inputs = np.zeros((4, 3))
        inputs[0, choice] = 1
        return inputs, np.eye(3)[[choice] * 4]


@dataclass(frozen=True)
class Sized(nsm.Task):
    """With fields, which make it adjustable."""

    ranges = ("length",)
    width: int = 3
    length: tuple[int, int] = (2, 5)

    def sample(self, random):
        bits = random.integers(0, 2, (random.integers(*self.length, endpoint=True), self.width))
        return bits, bits


def returns(found):
    """A task whose sample is this."""

    class Wrong(nsm.Task):
        def sample(self, random):
            return found

    return Wrong()


def test_sizes_and_name_come_from_samples():
    task = Reverse()
    assert (task.input_size, task.output_size, task.max_length, task.name) == (5, 4, 17, "reverse")
    assert NameIt().name == "name-it"
    assert (task.tested, task.part_names, task.singles()) == (task, (), (task,))
    assert (Sized(7).input_size, Sized(7).output_size, Sized(7).max_length) == (7, 7, 5)


def test_a_batch_is_its_samples_padded_side_by_side():
    batch = Reverse().batch(0, 0, 0, 30)
    longest = int(batch.lengths.max())
    assert batch.inputs.shape == (longest, 30, 5)
    assert batch.targets.shape == (longest, 30, 4)
    assert {array.dtype for array in batch[:3]} == {np.dtype(np.float32)}
    assert len(set(batch.lengths.tolist())) > 4
    padding = np.arange(longest)[:, None] >= batch.lengths
    for array in batch[:3]:
        assert not array[padding].any()
        assert array.flags.c_contiguous
        assert array.ctypes.data % 64 == 0
    assert (batch.subtask == np.where(padding, -1, 0)).all()
    for b, length in enumerate(batch.lengths.tolist()):
        n = (length - 1) // 2
        assert batch.decoding[b] == n + 1
        assert batch.mask[:, b].tolist() == [float(n < step < length) for step in range(longest)]
        np.testing.assert_array_equal(batch.targets[n + 1 : length, b], batch.inputs[:n, b, :4][::-1])
    assert Reverse().min_slots(batch) == batch.decoding.max()


def test_without_a_mask_all_steps_count():
    batch = NameIt().batch(0, 0, 0, 5)
    assert (batch.mask == 1).all()
    assert (batch.decoding == 0).all()


def test_a_batch_is_a_function_of_seed_stream_and_step():
    task = Reverse()

    def bits(seed, stream, step, size=4):
        return [array.tobytes() for array in task.batch(seed, stream, step, size)]

    assert bits(1, 2, 3) == bits(1, 2, 3)
    positions = [(1, 2, 3), (2, 2, 3), (1, 1, 3), (1, 2, 4), (2, 1, 3)]
    assert len({tuple(bits(*position)) for position in positions}) == len(positions)
    for offset, batch in enumerate(task.block(1, 2, 3, 4, 4)):
        assert [array.tobytes() for array in batch] == bits(1, 2, 3 + offset)
    for offset, batch in enumerate(task.batches(1, 2, 3, 3 + 300, 2)):
        if offset % 50 == 0:
            assert [array.tobytes() for array in batch] == bits(1, 2, 3 + offset, 2)
    small, large = task.batch(1, 2, 3, 3), task.batch(1, 2, 3, 7)
    for b in range(3):
        length = small.lengths[b]
        assert length == large.lengths[b]
        np.testing.assert_array_equal(small.inputs[:length, b], large.inputs[:length, b])


def test_it_is_judged_by_as_many_sequences_as_are_asked_for():
    sizes = [batch.mask.shape[1] for batch in Reverse().examination(0, 1, 120, filling=1)]
    assert sizes == [50, 50, 50, 20]


def test_it_answers_bit_by_bit_and_a_classification_by_choice():
    batch = Reverse().batch(0, 0, 0, 6)
    logits = torch.from_numpy(np.where(batch.targets > 0, 9.0, -9.0))
    assert Reverse().metrics(logits, batch).averages()["perfect"] == 1
    assert Reverse().loss(logits, batch) < 0.001
    torch.testing.assert_close(Reverse().probabilities(logits), logits.sigmoid())
    assert (Reverse().choice, NameIt().choice) == (False, True)
    batch = NameIt().batch(0, 0, 0, 6)
    logits = torch.from_numpy(9 * np.roll(batch.targets, 1, axis=2))
    tally = NameIt().metrics(logits, batch)
    assert (tally.averages()["error"], tally.answers) == (1, 24)
    torch.testing.assert_close(NameIt().probabilities(logits).sum(-1), torch.ones(4, 6))
    assert (NameIt().input_size, NameIt().output_size, NameIt().max_length) == (3, 3, 4)


def test_fields_and_ranges_change_it_as_any_other():
    task = with_ranges(Sized(test=Sized(length=(9, 9))), length=4)
    assert (task.length, task.max_length) == ((4, 4), 4)
    assert set(task.batch(0, 0, 0, 9).lengths.tolist()) == {4}
    assert task.tested.max_length == 9
    assert replace(task, width=2).input_size == 2


def test_it_can_be_mixed_and_padded():
    mixture = Mixture((Reverse(), Sized(), Copy(width=2, length=(1, 2))))
    assert mixture.part_names == ("reverse", "sized", "copy")
    assert (mixture.input_size, mixture.output_size) == (5, 4)
    assert all(batch.inputs.shape[2] == 5 and batch.targets.shape[2] == 4 for batch in mixture.block(0, 0, 0, 20, 2))
    padded, plain = Padded(Sized(), 6, 7), Sized()
    assert padded.name == "sized"
    for wide, narrow in zip(padded.examination(3, 1, 60), plain.examination(3, 1, 60), strict=True):
        np.testing.assert_array_equal(wide.inputs[..., :3], narrow.inputs)
        np.testing.assert_array_equal(wide.targets[..., :3], narrow.targets)
        assert (wide.inputs.shape[2], wide.targets.shape[2]) == (6, 7)
        assert not wide.inputs[..., 3:].any()
        assert not wide.targets[..., 3:].any()


def test_its_sizes_and_its_loss_may_be_its_own():
    class Regression(nsm.Task):
        input_size = output_size = 2
        max_length = 4

        def sample(self, random):
            return (values := random.normal(size=(4, 2))), values

        def loss(self, logits, batch):
            return (logits - torch.from_numpy(batch.targets)).square().mean()

    batch = Regression().batch(0, 0, 0, 3)
    assert Regression().loss(torch.from_numpy(batch.targets), batch) == 0


ONES = np.ones((3, 2))


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (None, r"^a sample of Wrong must be \(inputs, targets\) or \(inputs, targets, mask\), was of type NoneType"),
        (ONES, r"must be \(inputs, targets\) or"),
        ((ONES,), r"must be .* was a tuple of 1$"),
        ((ONES,) * 4, r"must be \(inputs, targets\) or"),
        ((ONES[0], ONES), r"must be arrays of shape \(T, I\), \(T, O\) and \(T,\), were \(2,\), \(3, 2\), \(2,\)"),
        ((ONES, ONES[:2]), r"were \(3, 2\), \(2, 2\), \(3,\)"),
        ((ONES, ONES, ONES), r"were \(3, 2\), \(3, 2\), \(3, 2\)"),
        ((ONES, ONES, 1), r"were \(3, 2\), \(3, 2\), \(\)"),
        ((ONES, 1), r"must be arrays of shape"),
        ((ONES, ONES, np.zeros(3)), r"must have at least one scored step"),
        ((ONES[:0], ONES[:0]), r"must have at least one scored step"),
        ((ONES[:, :0], ONES), r"must have at least one scored step, and a channel"),
        ((ONES * np.nan, ONES), r"must have finite numbers"),
        ((ONES, ONES * np.inf), r"must have finite numbers"),
        (([[1, 2], [3]], ONES), r"must be arrays of numbers"),
        ((np.full((3, 2), "x"), ONES), r"must be arrays of numbers"),
        ((ONES, -ONES), r"must have targets of zeros and ones"),
        ((ONES, ONES / 2), r"must have targets of zeros and ones"),
    ],
)
def test_what_is_wrong_with_a_sample_is_said_in_a_sentence(found, message):
    for ask in (lambda: returns(found).input_size, lambda: returns(found).lay_out(Draws(0, 0, 0, 1, 1), 2, 2)):
        with pytest.raises(UserError, match=message) as refused:
            ask()
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("targets", [np.ones((4, 3)), np.zeros((4, 3)), np.eye(3)[[0, 1, 2, 0]] * 2])
def test_a_choice_is_one_hot_where_it_counts(targets):
    class Wrong(nsm.Classification):
        def sample(self, random):
            return np.ones((4, 1)), targets

    with pytest.raises(UserError, match="a sample of Wrong must have one-hot targets at the scored steps"):
        Wrong().batch(0, 0, 0, 1)


def test_where_it_does_not_count_nothing_need_be_chosen():
    class Last(nsm.Classification):
        def sample(self, random):
            targets = np.zeros((4, 3))
            targets[-1, 1] = 1
            return np.ones((4, 1)), targets, [0, 0, 0, 1]

    assert Last().batch(0, 0, 0, 2).mask.sum() == 2


@pytest.mark.parametrize("other", [(5, 2), (3, 2), (4, 1), (4, 3)])
def test_every_sample_has_as_many_channels(other):
    class Wrong(nsm.Task):
        def sample(self, random):
            inputs, outputs = (4, 2) if random.random() < 0.5 else other
            return np.ones((2, inputs)), np.ones((2, outputs))

    with pytest.raises(UserError, match=r"a sample of Wrong must have as many .* channels as the others"):
        Wrong().batch(0, 0, 0, 50)


def test_a_task_without_a_sample_says_so():
    class Nothing(nsm.Task):
        pass

    with pytest.raises(UserError, match=r"Nothing has no method sample\(random\)"):
        Nothing().batch(0, 0, 0, 1)
    with pytest.raises(UserError, match=r"Nothing has no method sample\(random\)"):
        Nothing().input_size  # noqa: B018


@dataclass(frozen=True)
class Listed(nsm.Task):
    names: list[str] = field(default_factory=list)

    def sample(self, random):
        return np.ones((1, 1)), np.ones((1, 1))


def test_fields_that_can_change_are_refused_in_a_sentence():
    with pytest.raises(UserError, match="Listed must have hashable fields, for example a tuple instead of a list"):
        Listed().input_size  # noqa: B018
