"""The softmax loss and the counts of tasks whose answers are one of several choices."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from nsm.checks import UserError
from nsm.tasks import Batch, Classification, Share, Tally
from nsm.tasks.classification import one_hot
from nsm.training.losses import loss_and_gradient


@dataclass(frozen=True)
class Choices(Classification):
    input_size = output_size = max_length = 5

    def lay_out(self, draws, input_size, output_size):
        raise AssertionError("no sequence is drawn of this task")


def batch_of(labels):
    """A batch whose answers count where a label is not negative."""
    steps, size = labels.shape
    return Batch(
        np.zeros((steps, size, 5), np.float32),
        one_hot(labels, 5),
        (labels >= 0).astype(np.float32),
        np.full(size, steps),
        np.zeros(size, np.int64),
        np.zeros(labels.shape, np.int64),
    )


LABELS = np.array([[0, -1, 4], [2, 3, -1], [-1, -1, -1], [1, 1, 1]])


def logits(seed=0):
    return torch.randn(*LABELS.shape, 5, generator=torch.Generator().manual_seed(seed))


def test_the_loss_is_torchs_cross_entropy_over_counted_steps():
    z, labels = logits(), torch.from_numpy(LABELS)
    expected = torch.nn.functional.cross_entropy(z[labels >= 0], labels[labels >= 0])
    torch.testing.assert_close(Choices().loss(z, batch_of(LABELS)), expected)


@pytest.mark.parametrize("scale", [1, 30, 1e4])
def test_loss_and_gradient_of_arrays_are_those_of_autograd(scale):
    z = (logits(1) * scale).double().requires_grad_()
    expected = Choices().loss(z, batch_of(LABELS))
    expected.backward()
    loss, gradient = loss_and_gradient(Choices(), z.detach().float().numpy(), batch_of(LABELS))
    assert loss == pytest.approx(expected.item(), rel=1e-6)
    np.testing.assert_allclose(gradient, z.grad.numpy(), rtol=1e-5, atol=1e-7)


def test_what_does_not_count_changes_nothing():
    z, batch = logits(2), batch_of(LABELS)
    spoilt = z.clone()
    spoilt[torch.from_numpy(batch.mask == 0)] = torch.nan
    assert Choices().loss(spoilt, batch) == Choices().loss(z, batch)
    assert Choices().metrics(spoilt, batch) == Choices().metrics(z, batch)
    (loss, gradient), (expected, _) = (loss_and_gradient(Choices(), a.numpy(), batch) for a in (spoilt, z))
    assert loss == expected
    assert np.all(gradient[batch.mask == 0] == 0)


def test_the_tally_counts_errors():
    answers = LABELS.copy()
    answers[0, 0], answers[3, 1] = 1, 0
    tally = Choices().metrics(torch.from_numpy(one_hot(answers, 5)) * 9, batch_of(LABELS))
    assert tally.shares["error"] == Share(2, 7)
    assert (tally.sequences, tally.answers) == (3, 7)
    assert tally.averages()["error"] == 2 / 7
    right, wrong = np.log(np.exp(9) + 4) - 9, np.log(np.exp(9) + 4)
    assert tally.averages()["loss"] == pytest.approx((5 * right + 2 * wrong) / 7)


def test_tallies_of_different_names_add_up():
    total = Tally(1, 2, 0.5, {"error": Share(1, 2), "a": Share(0, 2)}) + Tally(
        2, 3, 1.0, {"error": Share(0, 3), "b": Share(1, 3)}
    )
    assert total == Tally(3, 5, 1.5, {"error": Share(1, 5), "a": Share(0, 2), "b": Share(1, 3)})
    assert Tally(1, 0, 0.0, {"error": Share(0, 0)}).averages() == {"sequences": 1.0, "loss": 0.0}


def test_a_label_beyond_the_classes_is_refused():
    with pytest.raises(UserError, match="a label is 5: there are 5 classes"):
        one_hot(np.array([5]), 5)
