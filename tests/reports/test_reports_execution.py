"""An execution is the trace, cut to the sequence, beside what was asked and answered."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
import torch

from nsm import NTM, NUTM, Controller
from nsm.checks import UserError
from nsm.data.stories import vocabulary
from nsm.memories import Addresses, Memory
from nsm.memories.memory import Head
from nsm.plots.heads import used_slots
from nsm.reports.execution import POOL, execute
from nsm.tasks import Classification, Copy, Mixture, Omniglot, Padded, PrioritySort, RepeatCopy, Sequencing
from nsm.tasks.babi import Babi
from nsm.training.evaluation import TEST


def test_everything_is_as_in_the_trace(traced):
    machine, task = traced.machine.eval(), traced.task
    pool = task.batch(4, TEST, 0, POOL)
    with torch.no_grad():
        logits, _, trace = machine(torch.from_numpy(pool.inputs), lengths=pool.lengths.tolist(), trace="memory")
    for b, run in enumerate(traced.executions[:3]):
        end = int(pool.lengths[b])
        assert run.steps == end
        assert np.array_equal(run.inputs, pool.inputs[:end, b])
        assert np.array_equal(run.targets, pool.targets[:end, b])
        assert np.allclose(run.answers, torch.sigmoid(logits[:end, b]).numpy(), atol=1e-6)
        assert np.allclose(run.controller, trace.controller[:end, b], atol=1e-6)
        assert np.allclose(run.memory, trace.memory[:end, b], atol=1e-5)
        assert run.decoding == pool.decoding[b]
        for kind, addresses in (("read", trace.read_addresses), ("write", trace.write_addresses)):
            heads = run.heads_of(kind)
            assert [head.name for head in heads] == [f"{kind} {k + 1}" for k in range(addresses.shape[2])]
            for k, head in enumerate(heads):
                assert np.allclose(head.address, addresses[:end, b, k], atol=1e-6)


def test_the_programs_of_a_head_are_those_of_its_control_head(traced):
    machine = traced.machine.eval()
    pool = traced.task.batch(4, TEST, 0, POOL)
    with torch.no_grad():
        trace = machine(torch.from_numpy(pool.inputs), lengths=pool.lengths.tolist(), trace=True)[2]
    run = traced.executions[0]
    names = [head.name for head in machine.memory.heads]
    for head in run.heads:
        kind, number = head.name.split()
        own = f"{kind}{int(number) - 1}"
        control = names.index(own if own in names else kind)  # all read heads of a DNC have one
        assert np.allclose(head.programs, trace.programs[: run.steps, 0, control], atol=1e-6), head.name


def test_the_best_and_the_worst_are_the_extremes_of_the_first_fifty(traced):
    shares = [run.errors / run.asked for run in execute(traced.machine, traced.task, POOL, 4, extremes=False)]
    named = {word: run for run in traced.executions for word in ("best of 50", "worst of 50") if word in run.name}
    assert named["best of 50"].errors / named["best of 50"].asked == min(shares)
    assert named["worst of 50"].errors / named["worst of 50"].asked == max(shares)
    assert min(shares) < max(shares), "an untrained machine is better at some than at others"
    assert all(run.name.startswith(f"test sequence {n + 1}") for n, run in enumerate(traced.executions[:3]))


def test_wrong_bits_count_only_where_an_answer_does(known):
    assert known.asked == 6
    assert known.errors == 1
    assert np.argwhere(known.wrong).tolist() == [[4, 1]]
    assert known.errors_by_subtask() == {"copy": (0, 2), "repeat-copy": (1, 4)}


def test_of_choices_the_one_taken_is_wrong_or_right(known):
    """Steps 3, 4, 5: right; wrong, the first is taken; right, though neither is above one half."""
    answers = known.answers.copy()
    answers[3:] = [[0.9, 0.1], [0.6, 0.4], [0.45, 0.4]]
    targets = known.targets.copy()
    targets[3:] = [[1, 0], [0, 1], [1, 0]]
    run = replace(known, answers=answers, targets=targets, choice=True)
    assert np.argwhere(run.wrong).tolist() == [[4, 0]]
    assert (run.asked, run.errors, run.unit) == (3, 1, "answers")
    assert run.errors_by_subtask() == {"copy": (0, 1), "repeat-copy": (1, 2)}


def test_choices_are_answered_by_softmax():
    logits = torch.tensor([[[1.0, 2.0, 3.0]]])
    assert Choose().probabilities(logits).sum() == pytest.approx(1)
    assert Copy(width=3).probabilities(logits)[0, 0, 2] == pytest.approx(torch.sigmoid(torch.tensor(3.0)).item())


def test_the_words_of_question_answering_are_known():
    assert Babi((1,)).choices[:3] == tuple(vocabulary())[:3]
    assert len(Babi((1,)).choices) == Babi((1,)).output_size
    assert Choose().choices == ()


def test_the_pictures_of_few_shot_learning_are_known():
    assert Omniglot().picture ** 2 + 5 == Omniglot().input_size
    assert Choose().picture == Babi((1,)).picture == 0


def test_stretches_part_subtasks_and_phases(known):
    assert known.stretches() == [(0, 1, "copy"), (1, 3, "repeat-copy"), (3, 4, "copy"), (4, 6, "repeat-copy")]


def test_the_slots_in_use_go_around_the_end_of_the_tape(known):
    long = np.zeros((6, 40), np.float32)
    long[np.arange(6), [38, 39, 0, 1, 2, 3]] = 1
    reader = replace(known.heads[0], address=long)
    assert used_slots([reader]) == (36, 10)
    middle = replace(reader, address=np.roll(long, 10, axis=1))
    assert used_slots([middle]) == (6, 10)
    nowhere = replace(reader, address=np.full((6, 40), 1 / 40))
    assert used_slots([nowhere]) == (0, 40)
    assert used_slots(known.heads) == (0, 8), "a short tape is shown whole"


def test_subtasks_have_their_names():
    task = Sequencing((Copy(width=2, length=(1, 3)), RepeatCopy(width=2, length=(1, 3), repeats=(1, 2))))
    machine = NUTM(task.input_size, task.output_size, controller=Controller(size=4), memory=NTM(slots=8, width=3))
    run = execute(machine, task, 1)[0]
    assert run.subtasks == ("copy", "repeat-copy")
    assert run.subtask[0] == -1, "the order step belongs to none"
    assert {name for _, _, name in run.stretches()} == {"copy", "repeat-copy"}
    assert run.stretches()[0][0] == 1


def test_every_task_of_a_mixture_is_shown():
    task = Mixture((Copy(width=2, length=(1, 3)), PrioritySort(width=1, items=3, sorted_items=2)))
    machine = NUTM(4, 2, controller=Controller(size=4), memory=NTM(slots=8, width=3))
    names = [run.name for run in execute(machine, task, 1)]
    assert any(name.startswith("copy, test sequence 1") for name in names)
    assert any(name.startswith("priority-sort, test sequence 1") for name in names)


def test_a_longer_tape_is_traced_as_long_as_it_is(traced):
    run = execute(traced.machine, traced.task, 1, slots=20, memory=False)[0]
    assert run.heads[0].address.shape == (run.steps, 20)
    assert run.memory is None


def test_the_machine_is_left_in_the_mode_it_was_in(traced):
    traced.machine.train()
    execute(traced.machine, traced.task, 1)
    assert traced.machine.training


class Choose(Classification):
    """A task of three choices; no sequence is ever drawn of it."""

    input_size = output_size = max_length = 3

    def lay_out(self, draws, input_size, output_size):
        raise AssertionError("no sequence is drawn of this task")


class NothingState(NamedTuple):
    still: torch.Tensor


class Nothing(Memory):
    """A memory without addresses: there is nothing to watch."""

    heads, read_size, slots = (Head("none", "read", 1),), 1, 1

    def initial_state(self, batch, slots=None):
        return NothingState(torch.zeros(batch, 1))

    def forward(self, interfaces, state):
        empty = interfaces[0].new_zeros(len(interfaces[0]), 0, 0)
        return interfaces[0], state, Addresses(empty, empty)


def test_a_machine_without_heads_is_refused_in_one_sentence():
    machine = NUTM(5, 3, controller=Controller(size=4), memory=Nothing(), backend="reference")
    with pytest.raises(UserError, match="no memory heads"):
        execute(machine, Padded(Copy(width=2, length=(2, 6)), 5, 3), 1)
