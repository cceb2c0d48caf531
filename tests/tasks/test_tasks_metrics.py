"""Loss and metrics: by hand, and blind to everything that does not count."""

from functools import reduce
from math import log, log2
from operator import add

import numpy as np
import pytest
import torch
from paper_tasks import TASKS, get
from torch.nn.functional import binary_cross_entropy_with_logits

from nsm.tasks import Batch, Copy, Metrics, Sequencing

# sigmoid(ln 3) = ¾, sigmoid(−ln 3) = ¼: probabilities to calculate with by hand.
YES, NO = log(3.0), -log(3.0)


def by_hand() -> tuple[torch.Tensor, Batch]:
    """Two sequences of two output channels; the first has two answers, the second one and then padding."""
    targets = np.zeros((3, 2, 2), dtype=np.float32)
    targets[1:, 0] = [[1, 0], [1, 1]]
    targets[1, 1] = [0, 1]
    batch = Batch(
        inputs=np.zeros((3, 2, 1), dtype=np.float32),
        targets=targets,
        mask=np.array([[0, 0], [1, 1], [1, 0]], dtype=np.float32),
        lengths=np.array([3, 2]),
        decoding=np.array([1, 1]),
        subtask=np.array([[-1, -1], [0, 1], [1, -1]]),
    )
    logits = torch.full((3, 2, 2), torch.nan)
    logits[1:, 0] = torch.tensor([[YES, NO], [NO, YES]])  # right, right; wrong, right
    logits[1, 1] = torch.tensor([NO, YES])  # right, right
    return logits, batch


def test_metrics_by_hand():
    logits, batch = by_hand()
    averages = get("copy+repeat-copy").metrics(logits, batch).averages()
    right, wrong = -log(0.75), -log(0.25)
    expected = {
        "sequences": 2.0,
        "loss": (5 * right + wrong) / 6,
        "bit_errors": 1 / 2,
        "l1_errors": (5 * 0.25 + 0.75) / 2,
        "perfect": 1 / 2,
        "bit_accuracy": 5 / 6,
        "cross_entropy_bits": (5 * -log2(0.75) + 2) / 2,
        "bit_errors/copy": 0.0,
        "bit_errors/repeat-copy": 1 / 2,
    }
    assert averages == pytest.approx(expected, rel=1e-6)
    assert Copy().loss(logits, batch).item() == pytest.approx(expected["loss"], rel=1e-6)


def test_a_single_task_has_no_subtask_and_no_optimum():
    logits, batch = by_hand()
    assert set(Copy().metrics(logits, batch).averages()) == {
        "sequences",
        "loss",
        "bit_errors",
        "l1_errors",
        "perfect",
        "bit_accuracy",
        "cross_entropy_bits",
    }


def test_a_logit_of_zero_answers_zero():
    logits, batch = by_hand()
    assert Copy().metrics(torch.zeros_like(logits), batch).bit_errors == int(batch.targets.sum())


def test_loss_and_gradient_are_those_of_torch_on_what_counts():
    task = get("copy+repeat-copy")
    batch = task.batch(0, 0, 0, 5)
    logits = torch.randn(batch.targets.shape, generator=torch.Generator().manual_seed(0), requires_grad=True)
    counted = torch.from_numpy(batch.mask) > 0
    expected = binary_cross_entropy_with_logits(logits[counted], torch.from_numpy(batch.targets)[counted])
    (expected_gradient,) = torch.autograd.grad(expected, logits)
    loss = task.loss(logits, batch)
    (gradient,) = torch.autograd.grad(loss, logits)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(gradient, expected_gradient)
    assert task.metrics(logits, batch).averages()["loss"] == pytest.approx(loss.item(), rel=1e-5)


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("garbage", [torch.nan, torch.inf, -torch.inf, 1e30])
def test_what_does_not_count_changes_nothing(name, garbage):
    task = TASKS[name]
    batch = task.batch(0, 0, 0, 4)
    clean = torch.randn(batch.targets.shape, generator=torch.Generator().manual_seed(0))
    dirty = clean.clone()
    dirty[torch.from_numpy(batch.mask) == 0] = garbage
    dirty.requires_grad_()
    loss = task.loss(dirty, batch)
    loss.backward()
    assert torch.equal(loss, task.loss(clean, batch))
    assert dirty.grad is not None
    assert torch.isfinite(dirty.grad).all()
    assert not dirty.grad[torch.from_numpy(batch.mask) == 0].any()
    assert task.metrics(dirty, batch) == task.metrics(clean, batch)


def test_what_counts_does_change_them():
    task = Copy()
    batch = task.batch(0, 0, 0, 4)
    logits = torch.zeros(batch.targets.shape)
    before = task.metrics(logits, batch)
    step = int(batch.decoding[2])
    logits[step, 2, 0] = 9.0 if batch.targets[step, 2, 0] == 0 else -9.0
    after = task.metrics(logits, batch)
    assert after.nats > before.nats
    assert task.loss(logits, batch) > task.loss(torch.zeros_like(logits), batch)


def test_a_batch_measures_like_its_sequences_one_by_one():
    task = get("copy+associative-recall")
    batch = task.batch(0, 0, 0, 6)
    logits = torch.randn(batch.targets.shape, generator=torch.Generator().manual_seed(1))
    singles = []
    for index, length in enumerate(batch.lengths.tolist()):
        single = Batch(
            *(array[:length, index : index + 1] for array in batch[:3]),
            batch.lengths[index : index + 1],
            batch.decoding[index : index + 1],
            batch.subtask[:length, index : index + 1],
        )
        singles.append(task.metrics(logits[:length, index : index + 1], single))
    together = task.metrics(logits, batch)
    assert reduce(add, singles).averages() == pytest.approx(together.averages())
    assert sum(together.subtask_bit_errors.values()) == together.bit_errors


def test_right_answers_are_perfect_even_at_infinity():
    task = get("copy+repeat-copy+associative-recall+priority-sort")
    batch = task.batch(0, 0, 0, 4)
    logits = torch.where(torch.from_numpy(batch.targets) > 0.5, torch.inf, -torch.inf)
    averages = task.metrics(logits, batch).averages()
    assert averages["perfect"] == averages["bit_accuracy"] == 1.0
    assert averages["bit_errors"] == averages["l1_errors"] == averages["cross_entropy_bits"] == 0.0
    averages = task.metrics(-logits, batch).averages()
    assert averages["perfect"] == averages["bit_accuracy"] == 0.0
    assert averages["bit_errors"] == averages["l1_errors"] == batch.mask.sum() * 9 / 4


def test_metrics_of_different_tasks_are_not_added():
    logits, batch = by_hand()
    single, sequence = Copy().metrics(logits, batch), get("copy+repeat-copy").metrics(logits, batch)
    with pytest.raises(ValueError, match=r"different subtasks cannot be added: \[\] and \['copy', 'repeat-copy'\]"):
        single + sequence
    with pytest.raises(ValueError, match="with and without optimum_bits"):
        single + Metrics(1, 1, 0, 1, 0.0, 0.0, optimum_bits=1.0)


def test_repeated_subtasks_are_told_apart():
    task = Sequencing((Copy(), Copy(), Copy()))
    assert task.subtask_names == ("copy", "copy-2", "copy-3")


def test_logits_of_another_shape_are_refused():
    logits, batch = by_hand()
    with pytest.raises(ValueError, match=r"logits are \(3, 2, 1\): .* shape \(3, 2, 2\)"):
        Copy().loss(logits[..., :1], batch)


def test_the_loss_has_the_device_of_the_logits_and_at_least_single_precision():
    logits, batch = by_hand()
    assert Copy().loss(logits.double(), batch).dtype == torch.float64
    assert Copy().loss(logits.bfloat16(), batch).dtype == torch.float32
    assert Copy().loss(logits.to("meta"), batch).device.type == "meta"
