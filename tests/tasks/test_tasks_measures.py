"""What every task reports: figures that it really measures, a sentence of them, and the same part by part."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from paper_tasks import TASKS, get

import nsm
from nsm.tasks import (
    AssociativeRecall,
    Babi,
    Breakdown,
    Copy,
    Measure,
    Mixture,
    NGrams,
    Omniglot,
    Padded,
    PrioritySort,
    RepeatCopy,
    Sequencing,
    Task,
)
from nsm.training.result import Result


class Own(nsm.Task):
    def sample(self, random):
        return (bits := random.integers(0, 2, (3, 2))), bits


class OwnChoice(nsm.Classification):
    def sample(self, random):
        return (hot := np.eye(3)[random.integers(0, 3, 4)]), hot


EVERY: dict[str, Task] = {
    **{name: replace(task, test=None) for name, task in TASKS.items()},
    "a task of one's own": Own(),
    "a choice of one's own": OwnChoice(),
    "babi, some": Babi((1, 8, 19), "test"),
    "babi, one": Babi((1,), "test"),
    "padded": Padded(NGrams(length=9), 2, 2),
    "a padded sequence": Padded(Sequencing((Copy(), PrioritySort())), 11, 9),
}


def figures(task: Task, quality: float = 1.0, sequences: int = 12):
    """What a machine gets whose logits point the right way so strongly; 0 is guessing, −1 always wrong."""
    total = None
    for batch in task.examination(0, 2, sequences):
        signs = torch.from_numpy(2 * batch.targets - 1)
        sums = task.metrics(9 * quality * signs, batch)
        total = sums if total is None else total + sums
    return total.averages()


@pytest.mark.parametrize("name", EVERY)
def test_measures_are_among_the_figures_and_say_what_they_are(name):
    task = EVERY[name]
    found = figures(task)
    names = [measure.name for measure in task.measures]
    assert len(set(names)) == len(names) > 0
    assert set(names) <= set(found)
    assert {"loss", "sequences"} <= set(found)
    assert "loss" not in names
    for measure in task.measures:
        assert measure.words
        assert measure.better in ("lower", "higher", "neither")
        assert 0 <= found[measure.name] <= 1 or not measure.share
    assert task.measures[0].better != "neither"


@pytest.mark.parametrize("name", EVERY)
def test_better_is_what_right_answers_are(name):
    task = EVERY[name]
    right, wrong = figures(task, 1.0), figures(task, -1.0)
    for measure in task.measures:
        values = [wrong[measure.name], right[measure.name]]
        if measure.better == "neither":
            assert values[0] == values[1]
        else:
            assert values[0] != values[1]
            assert measure.best(values) == right[measure.name]
    if task.breakdown is not None:
        for part in task.breakdown.names.values():
            assert task.breakdown.measure.best([wrong[part], right[part]]) == right[part]


@pytest.mark.parametrize("name", EVERY)
def test_a_sentence_says_the_figure_a_task_is_judged_by(name):
    task = EVERY[name]
    for quality in (1.0, -1.0):
        found = figures(task, quality)
        words = task.sentence(found)
        assert "\n" not in words
        assert "nan" not in words
        first = found[task.measures[0].name]
        shown = re.findall(r"\d[\d,]*\.?\d*", words)
        as_text = {f"{first:.2f}", f"{first:.1%}"[:-1], f"{first:.2%}"[:-1]}
        assert as_text & set(shown), (words, first)


def test_sentences():
    assert EVERY["copy"].sentence(figures(Copy(length=(2, 2)))) == (
        "0.00 wrong bits per sequence (Σ|p−y| 0.00), 100.0% of sequences without any, bit accuracy 100.00%"
    )
    assert OwnChoice().sentence(figures(OwnChoice(), -1)) == "100.00% of answers wrong"
    assert re.match(r"[\d.]+ bits of cross-entropy per sequence, the best", NGrams().sentence(figures(NGrams())))
    assert "by presentation 1: 100.0% ± 0.0%, 2: 100.0%" in Omniglot().sentence(figures(Omniglot()))
    several, one = EVERY["babi, some"], EVERY["babi, one"]
    assert several.sentence(figures(several, -1)) == (
        "100.00% of answers wrong on average over tasks (3 of 3 above 5 %): qa1 100.0%, qa8 100.0%, qa19 100.0%"
    )
    assert one.sentence(figures(one)) == "0.00% of answers wrong"


@pytest.mark.parametrize("name", EVERY)
def test_a_breakdown_names_figures_of_every_part(name):
    task, found = EVERY[name], figures(EVERY[name], 0.5)
    if task.breakdown is None:
        return
    assert isinstance(task.breakdown, Breakdown)
    assert len(task.breakdown.names) > 0
    assert set(task.breakdown.names.values()) <= set(found)
    assert task.breakdown.measure == Measure("", task.breakdown.words, task.breakdown.better, task.breakdown.share)


def test_breakdowns_are_by_subtask_by_presentation_and_by_question():
    assert all(task.breakdown is None for task in (Copy(), NGrams(), Own(), OwnChoice(), TASKS["continual"]))
    sequence = get("copy+repeat-copy").breakdown
    assert sequence.names == {"copy": "bit_errors/copy", "repeat-copy": "bit_errors/repeat-copy"}
    assert (sequence.better, sequence.share) == ("lower", False)
    shots = Omniglot().breakdown
    assert list(shots.names) == [str(number) for number in range(1, 11)]
    assert (shots.better, shots.share) == ("higher", True)
    assert Babi((1, 19)).breakdown.names == {"qa1": "word_error/qa1", "qa19": "word_error/qa19"}
    assert tuple(Babi((1, 19)).breakdown.names) == Babi((1, 19)).part_names


def test_parts_of_a_breakdown_add_up():
    task = Sequencing((Copy(length=(1, 3)), PrioritySort(items=3, sorted_items=2)))
    found = figures(task, -1)
    assert sum(found[name] for name in task.breakdown.names.values()) == pytest.approx(found["bit_errors"])


def test_what_is_padded_reports_what_it_would_alone():
    task = NGrams(length=9)
    padded = Padded(task, 2, 2)
    assert (padded.measures, padded.solvable, padded.name) == (task.measures, False, "ngrams")
    assert padded.measures[0].name == "cross_entropy_bits"
    assert "best possible" in padded.sentence(figures(padded))
    sequence = Sequencing((Copy(), PrioritySort()))
    padded = Padded(sequence, 11, 9)
    assert (padded.breakdown, padded.subtask_names) == (sequence.breakdown, sequence.subtask_names)
    part = Mixture((Copy(width=2), task)).parts["ngrams"]
    assert part.measures == task.measures


@pytest.mark.parametrize(
    ("task", "first", "solvable", "chance"),
    [
        (Copy(), "bit_errors", True, np.log(2)),
        (RepeatCopy(), "bit_errors", True, np.log(2)),
        (AssociativeRecall(), "bit_errors", True, np.log(2)),
        (PrioritySort(), "bit_errors", True, np.log(2)),
        (Sequencing((Copy(), Copy())), "bit_errors", True, np.log(2)),
        (Own(), "bit_errors", True, np.log(2)),
        (NGrams(), "cross_entropy_bits", False, np.log(2)),
        (TASKS["continual"], "bit_accuracy", True, np.log(2)),
        (Omniglot(), "accuracy/2", True, None),
        (Babi((1,)), "error", True, None),
        (OwnChoice(), "error", True, None),
    ],
)
def test_what_a_task_is_judged_by(task, first, solvable, chance):
    assert task.measures[0].name == first
    assert task.solvable == solvable
    assert task.chance == chance
    if chance is not None:
        batch = task.batch(0, 0, 0, 2)
        assert task.loss(torch.zeros(batch.targets.shape), batch).item() == pytest.approx(chance)


def test_a_figure_as_text():
    errors, share = Measure("e", "errors"), Measure("s", "share", "higher", share=True)
    assert (errors.text(1234.567), errors.text(0.5, 1), errors.text(None), errors.text(float("nan"))) == (
        *("1,234.57", "0.5", "–", "–"),
    )
    assert (share.text(0.12345), share.text(1, 3), share.text(0.5, 1)) == ("12.3%", "100.00%", "50%")
    assert (errors.best([3, 1, 2]), share.best([3, 1, 2])) == (1, 3)


@pytest.mark.parametrize("name", EVERY)
def test_a_result_prints_and_shows_as_a_table(name):
    task = EVERY[name]
    result = Result(task, figures(task), {"slots": 8})
    said, shown = str(result), result._repr_html_()
    assert said.startswith(f"{task.name}, ")
    assert task.sentence(result.figures) in said
    for measure in task.measures:
        assert measure.words in shown
    assert shown.count("<tr>") == len(task.measures) + len(task.breakdown.names if task.breakdown else ())
    assert result[task.measures[0].name] == result.figures[task.measures[0].name]


def test_choices_have_names_where_they_are_words():
    assert len(Babi((1,)).choices) == Babi((1,)).output_size
    assert (Copy().choices, Omniglot().choices) == ((), ())
    assert (Omniglot().picture, Copy().picture) == (20, 0)
    assert [task.choice for task in (Copy(), Omniglot(), Babi((1,)), OwnChoice())] == [False, True, True, True]
