"""Dynamic N-grams: the layout, the source, and the Bayes optimum."""

from math import log, log2

import numpy as np
import pytest
import torch

from nsm.tasks import NGrams, Padded


def sequence_of(batch, index: int) -> list[int]:
    """The bits of a sequence, read off one by one: those shown, and the last one, only asked for."""
    shown = [int(batch.inputs[step, index, 0]) for step in range(0, len(batch.inputs), 2)]
    return [*shown, int(batch.targets[-1, index, 0])]


def predict(bits: list[int], order: int) -> list[float]:
    """The Krichevsky–Trofimov probability of a one at every bit with a full context, counted as it goes."""
    ones: dict[tuple[int, ...], int] = {}
    seen: dict[tuple[int, ...], int] = {}
    predictions = []
    for place in range(order - 1, len(bits)):
        context = tuple(bits[place - order + 1 : place])
        predictions.append((ones.get(context, 0) + 0.5) / (seen.get(context, 0) + 1))
        ones[context] = ones.get(context, 0) + bits[place]
        seen[context] = seen.get(context, 0) + 1
    return predictions


@pytest.mark.parametrize(("order", "length"), [(6, 50), (6, 200), (2, 2), (3, 7)])
def test_a_bit_then_a_question(order, length):
    task = NGrams(order=order, length=length)
    batch = task.batch(0, 0, 0, 3)
    assert batch.inputs.shape == (2 * (length - 1), 3, 1)
    assert (batch.lengths == 2 * (length - 1)).all()
    assert (batch.decoding == 2 * order - 3).all()
    assert (batch.subtask == 0).all()
    for index in range(3):
        for step in range(2 * (length - 1)):
            value, answer = batch.inputs[step, index, 0], batch.targets[step, index, 0]
            bit = step // 2 + 1  # counted from 1
            if step % 2 == 0:
                assert value in (0.0, 1.0)
                assert batch.mask[step, index] == answer == 0
            else:
                assert value == 0
                counts = bit + 1 >= order
                assert batch.mask[step, index] == counts
                if not counts:
                    assert answer == 0
                elif step + 1 < len(batch.inputs):
                    assert answer == batch.inputs[step + 1, index, 0]
        assert batch.mask[:, index].sum() == length - order + 1


def test_the_optimum_is_that_of_counting_as_one_goes():
    task = NGrams(order=4, length=60)
    batch = task.batch(3, 0, 0, 20)
    logits = torch.full(batch.targets.shape, torch.nan)
    for index, optimum in enumerate(task.optimum_bits(batch)):
        bits = sequence_of(batch, index)
        predictions = predict(bits, 4)
        cost = sum(-log2(p if bit else 1 - p) for p, bit in zip(predictions, bits[3:], strict=True))
        assert optimum == pytest.approx(cost, rel=1e-9)
        logits[batch.mask[:, index] > 0, index, 0] = torch.tensor([log(p / (1 - p)) for p in predictions])
    # A model that answers like the optimal predictor reaches the optimum.
    averages = task.metrics(logits, batch).averages()
    assert averages["cross_entropy_bits"] == pytest.approx(averages["optimum_bits"], rel=1e-5)


def test_the_optimum_at_length_200_is_about_128_bits():
    """Measured on 120,000 sequences: 128.09 ± 0.10; with NumPy's own generators and a plain loop: 128.09 ± 0.10.

    These 10,000 give 127.3 ± 0.4, the first 1,000 of them 126.3 ± 1.2.
    """
    task = NGrams(order=6, length=200)
    optimum = np.concatenate([task.optimum_bits(batch) for batch in task.block(0, 0, 0, 10, 1000)])
    assert optimum[:1000].mean() == pytest.approx(128.09, abs=4 * 1.15)
    assert optimum.mean() == pytest.approx(128.09, abs=4 * 0.36)


def test_padding_leaves_the_optimum_alone():
    task = NGrams()
    padded = Padded(task, 4, 3)
    batch, wide = task.batch(0, 0, 0, 3), padded.batch(0, 0, 0, 3)
    ours = task.metrics(torch.zeros(batch.targets.shape), batch)
    theirs = padded.metrics(torch.zeros(wide.targets.shape), wide)
    assert ours.optimum_bits == theirs.optimum_bits
    assert (ours + ours).averages()["optimum_bits"] == ours.averages()["optimum_bits"]


def test_the_first_bits_are_fair_and_the_others_have_a_source():
    batch = NGrams(order=6, length=40).batch(1, 0, 0, 4000)
    bits = np.array([batch.inputs[2 * place, :, 0] for place in range(39)])
    assert np.abs(bits[:5].mean(axis=1) - 0.5).max() < 4 * 0.5 / np.sqrt(4000)
    pairs = np.unique(bits[:5].T, axis=0, return_counts=True)[1]
    assert len(pairs) == 32
    assert pairs.min() > 125 - 5 * np.sqrt(125)


def test_a_bit_depends_on_the_context_and_on_nothing_older():
    order, length = 3, 6000
    batch = NGrams(order=order, length=length).batch(2, 0, 0, 8)
    gaps = []
    for index in range(8):
        bits = np.array(sequence_of(batch, index))
        history = 4 * bits[:-3] + 2 * bits[1:-2] + bits[2:-1]  # the oldest bit lies outside the context
        shares = {}
        for key in range(8):
            follows = bits[3:][history == key]
            if follows.size >= 200:
                shares[key] = (follows.mean(), follows.size)
        for context in range(4):
            if context in shares and context + 4 in shares:
                (share, count), (older_share, older_count) = shares[context], shares[context + 4]
                assert abs(share - older_share) < 4 * 0.5 * np.sqrt(1 / count + 1 / older_count)
        known = [share for share, _ in shares.values()]
        gaps.append(max(known) - min(known))
    assert max(gaps) > 0.5


def test_every_sequence_has_a_source_of_its_own():
    batch = NGrams(order=2, length=2000).batch(0, 0, 0, 30)
    after_a_one = []
    for index in range(30):
        bits = np.array(sequence_of(batch, index))
        after_a_one.append(bits[1:][bits[:-1] == 1].mean())
    # Beta(½, ½) has a standard deviation of √⅛ ≈ 0.354 and piles up at both ends.
    assert 0.25 < np.std(after_a_one) < 0.45
    assert min(after_a_one) < 0.1
    assert max(after_a_one) > 0.9
