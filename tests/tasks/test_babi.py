"""bAbI as a task: what is shown and asked for, epochs, weights of tasks, errors by task."""

import numpy as np
import pytest
import torch
from paper_tasks import get

from data.small_babi import archive, contents
from nsm import DNC, Controller, MachineConfig, Programs
from nsm.checks import UserError
from nsm.data import babi as files
from nsm.data import source
from nsm.data.stories import BLANK, vocabulary
from nsm.machine import Machine
from nsm.tasks import Babi
from nsm.tasks import babi as module
from nsm.tasks.babi import Answers, epoch
from nsm.tasks.classification import Share
from nsm.training.evaluation import VALIDATION

TRAIN = 0


def words(hot):
    return [list(vocabulary())[row.argmax()] if row.any() else None for row in hot]


def stories_of(batch):
    """Each sequence of a batch as its numbers, for comparison."""
    shown = batch.inputs.argmax(-1)
    return [tuple(shown[:end, i]) for i, end in enumerate(batch.lengths)]


def test_what_a_batch_shows_and_asks_for():
    batch = Babi((8, 19)).batch(0, TRAIN, 0, 4)
    for i, end in enumerate(batch.lengths):
        shown, asked = words(batch.inputs[:end, i]), words(batch.targets[:end, i])
        assert None not in shown
        assert [word == BLANK for word in shown] == [word is not None for word in asked]
        assert np.array_equal(batch.mask[:end, i] > 0, [word is not None for word in asked])
        assert BLANK not in asked
        assert batch.decoding[i] == shown.index(BLANK)
        assert not batch.inputs[end:, i].any()
        assert not batch.mask[end:, i].any()
        assert set(batch.subtask[end:, i]) <= {-1}
        path = shown[:2] == ["the", shown[1]] and "how" in shown
        assert set(batch.subtask[:end, i]) == {1 if path else 0}


def test_an_answer_is_not_visible_in_its_input(tmp_path, monkeypatch):
    """Other answers to the same stories change what is asked for, and nothing of what is shown."""
    before = Babi((1,), "test").batch(0, TRAIN, 0, 10)
    told = contents()
    name = files.file_name(1, "test")
    lines = told[name].decode().split("\n")
    changed = ["\t".join([*line.split("\t")[:1], "bathroom", "1"]) if "\t" in line else line for line in lines]
    archive({**told, name: "\n".join(changed).encode()}, tmp_path / "other" / files.NAME / files.ARCHIVE)
    monkeypatch.setenv(source.VARIABLE, str(tmp_path / "other"))
    after = Babi((1,), "test").batch(0, TRAIN, 0, 10)
    assert np.array_equal(before.inputs, after.inputs)
    assert np.array_equal(before.mask, after.mask)
    assert {word for i in range(10) for word in words(after.targets[:, i])} == {None, "bathroom"}


def test_weights_share_out_words_and_a_batch_is_a_function_of_its_step():
    task = Babi((1, 2, 19), weights=(3.0, 0.0, 1.0))
    batches = task.block(7, TRAIN, 0, 250, 8)
    drawn = np.bincount(np.concatenate([batch.subtask[0] for batch in batches]), minlength=3)
    assert drawn[1] == 0
    stories = task.stories("train")
    first, third = (stories.lengths[stories.task == number].mean() for number in (1, 19))
    assert first != third
    assert abs(drawn[0] / 2000 - 3 / first / (3 / first + 1 / third)) < 0.045  # four standard deviations
    again = task.batch(7, TRAIN, 249, 8)
    assert np.array_equal(again.inputs, batches[-1].inputs)
    known = set(stories_of(Babi((1, 19)).batch(7, TRAIN, 0, 36)))
    assert {story for batch in batches for story in stories_of(batch)} == known
    assert np.array_equal(task.batch(7, VALIDATION, 0, 6).inputs, Babi((1, 2, 19)).batch(7, VALIDATION, 0, 6).inputs)


@pytest.mark.parametrize("weights", [(1.0,), (1.0, -1.0), (0.0, 0.0)])
def test_wrong_weights_are_refused(weights):
    with pytest.raises(UserError, match="weights must be one for each of the 2 tasks"):
        Babi((1, 2), weights=weights)


def test_an_epoch_has_every_training_story_once_in_its_own_order():
    task = Babi((1, 2, 19))
    train = task.stories("train")
    assert len(train) == 54
    everything = sorted(tuple(train.shown[a:b]) for a, b in zip(train.starts, train.starts[1:], strict=False))
    epochs = [[task.batch(7, TRAIN, e * 7 + step, 8) for step in range(7)] for e in range(2)]
    assert sorted(batch.mask.shape[1] for batch in epochs[0]) == [6, 8, 8, 8, 8, 8, 8]
    told = [[story for batch in batches for story in stories_of(batch)] for batches in epochs]
    assert sorted(told[0]) == sorted(told[1]) == everything
    assert told[0] != told[1]
    assert told[0] != [story for step in range(7) for story in stories_of(task.batch(8, TRAIN, step, 8))]


def test_a_block_is_its_batches_one_by_one():
    task = Babi((2, 8))
    for step, batch in enumerate(task.block(3, TRAIN, 4, 5, 8), start=4):
        for ours, theirs in zip(batch, task.batch(3, TRAIN, step, 8), strict=True):
            assert np.array_equal(ours, theirs)


def test_validation_stories_are_fixed_and_never_trained_on():
    task = Babi((1, 2))
    validation = task.stories("validation")
    assert len(validation) == 4  # of 2 × 20, every tenth
    corpus = files.load(source.root())
    of_first = corpus.train.select(corpus.train.task == 1)
    tenth = of_first.shown[of_first.starts[9] : of_first.starts[10]]
    assert np.array_equal(validation.shown[: len(tenth)], tenth)
    for seed in (0, 1):
        held = [story for batch in task.examination(seed, VALIDATION, 100) for story in stories_of(batch)]
        assert len(held) == 4
    trained = {story for step in range(10) for story in stories_of(task.batch(0, TRAIN, step, 8))}
    assert trained.isdisjoint(held)


def test_a_test_has_all_stories_once_or_a_share_of_each_task(monkeypatch):
    monkeypatch.setattr(module, "EXAMINED", 16)
    task = Babi((1, 4, 8), "test")
    batches = list(task.examination(0, 2, 1_000))
    assert sum(batch.mask.shape[1] for batch in batches) == 30
    assert [batch.mask.shape[1] for batch in batches] == [16, 14]
    some = list(task.examination(0, 2, 6))
    assert sum(batch.mask.shape[1] for batch in some) == 6
    assert sorted(some[0].subtask[0]) == [0, 0, 1, 1, 2, 2]


def test_a_fixed_order_goes_round():
    task = Babi((1,), "test")
    first, again = task.batch(0, 2, 0, 4), task.batch(5, 1, 5, 4)  # 10 stories: the 20th is the 0th again
    assert stories_of(first) == stories_of(again)


def machine():
    config = MachineConfig(159, 159, Controller(size=8, layer_norm=True), DNC(8, 4, read_heads=2), Programs(2))
    return Machine.from_config(config, backend="reference", generator=torch.Generator().manual_seed(0)).double()


def test_the_loss_does_not_depend_on_padding_or_company():
    task, model = Babi((1, 8, 19)), machine()
    stories = task.stories("train")
    chosen = np.array([0, 20, 40, 41])  # of different lengths

    def loss_and_gradient(indices):
        model.zero_grad()
        batch = task._batch(stories, indices, 159, 159)
        batch = batch._replace(targets=batch.targets.astype(np.float64))
        logits, _ = model(torch.from_numpy(batch.inputs).double(), lengths=batch.lengths.tolist())
        loss = task.loss(logits, batch)
        loss.backward()
        answers = float(batch.mask.sum())
        return answers, loss.item(), torch.cat([p.grad.reshape(-1) for p in model.parameters() if p.grad is not None])

    answers, loss, gradient = loss_and_gradient(chosen)
    parts = [loss_and_gradient(chosen[i : i + 1]) for i in range(4)]
    assert sum(part[0] for part in parts) == answers
    assert loss == pytest.approx(sum(part[0] * part[1] for part in parts) / answers, rel=1e-10)
    torch.testing.assert_close(gradient, sum(part[0] * part[2] for part in parts) / answers)
    reversed_order = loss_and_gradient(chosen[::-1])
    assert reversed_order[1] == pytest.approx(loss, rel=1e-10)


def test_errors_are_counted_by_task_per_word_and_per_question():
    task = Babi((8, 19), "test")
    batch = next(task.examination(0, 2, 100))
    answers = batch.targets.copy()
    paths = np.flatnonzero(batch.subtask[0] == 1)
    for i in paths[:3]:  # one of the two words of three paths
        answers[np.flatnonzero(batch.mask[:, i])[1], i] = np.roll(answers[np.flatnonzero(batch.mask[:, i])[1], i], 1)
    tally = task.metrics(torch.from_numpy(answers) * 9, batch)
    assert tally.shares["word_error/qa19"] == Share(3, 20)
    assert tally.shares["question_error/qa19"] == Share(3, 10)
    lists = batch.mask[:, batch.subtask[0] == 0]
    questions = int((np.diff(lists, axis=0, prepend=0) > 0).sum())
    assert tally.shares["word_error/qa8"] == Share(0, int(lists.sum()))
    assert tally.shares["question_error/qa8"] == Share(0, questions)
    assert lists.sum() > questions  # some lists have several words


def test_a_question_is_wrong_if_any_of_its_words_is():
    task = Babi((8,), "test")
    batch = next(task.examination(0, 2, 100))
    tally = task.metrics(torch.from_numpy(np.roll(batch.targets, 1, axis=-1)), batch)
    assert tally.averages()["question_error/qa8"] == tally.averages()["word_error/qa8"] == 1.0


def test_the_error_is_the_mean_over_tasks():
    shares = {
        "error": Share(5, 110),
        "word_error/qa1": Share(0, 100),
        "word_error/qa19": Share(5, 10),
        "question_error/qa1": Share(0, 100),
        "question_error/qa19": Share(4, 5),
    }
    averages = (Answers(1, 55, 1.0, shares) + Answers(1, 55, 1.0, {})).averages()
    assert averages["error"] == 0.25
    assert averages["question_error"] == 0.4
    assert averages["failed_tasks"] == 1
    assert averages["sequences"] == 2


def test_names_of_tasks():
    assert get("babi") == Babi(test=Babi(split="test"))
    assert get("babi-4,1") == Babi((1, 4), test=Babi((1, 4), "test"))
    assert get("babi-4", "authors") == Babi((4,), protocol="authors", test=Babi((4,), "test", "authors"))
    assert [get(name).name for name in ("babi", "babi-4,1")] == ["babi", "babi-1,4"]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("babi-0", "bAbI has no task 0: tasks are numbered from 1 to 20"),
        ("babi-3,21", "bAbI has no task 21"),
        ("babi-x", "task must be one of"),
        ("babi-", "task must be one of"),
        ("babi-3,3", "none twice"),
        ("babbi", "did you mean 'babi'"),
    ],
)
def test_unknown_tasks_are_refused(name, sentence):
    with pytest.raises(UserError, match=sentence):
        get(name)


def test_a_missing_file_is_named_when_it_is_needed(tmp_path, monkeypatch):
    told = contents()
    del told[files.file_name(5, "test")]
    archive(told, tmp_path / "other" / files.NAME / files.ARCHIVE)
    monkeypatch.setenv(source.VARIABLE, str(tmp_path / "other"))
    assert len(Babi((4, 5)).stories("train")) == 36
    with pytest.raises(UserError, match=r"qa5_three-arg-relations_test.txt is missing from the bAbI files in"):
        Babi((4, 5), "test").stories("test")


def test_notes_are_those_of_the_tasks_that_are_used():
    assert Babi((4,)).notes == (
        "the training file of task 4 is not the released one",
        "the test file of task 4 is not the released one",
    )


@pytest.mark.usefixtures("real_babi")
def test_batches_of_the_real_stories_are_mixed():
    task = Babi()
    assert len(task.stories("train")) + len(task.stories("validation")) == 62_661
    assert epoch(task.tasks, 32) == 1_763 == -(-len(task.stories("train")) // 32)
    kinds = [len(set(task.batch(0, TRAIN, step, 32).subtask[0])) for step in range(100)]
    assert min(kinds) > 8  # of twenty: sorted by length, half of all batches would have one
    assert task.notes in ((), ("the training file of task 3 is not the released one",))
