"""Mutual information of phases and programs: on traces whose own is known, and against a count by hand."""

from dataclasses import replace

import numpy as np
import pytest

from nsm.plots.heads import HeadTrace
from nsm.reports.association import association_of, associations, by_phase, information

PHASES = ["encoding"] * 8 + ["decoding"] * 8


def one_hot(chosen, programs=2):
    return np.eye(programs)[np.asarray(chosen)]


def lengths(random, count=40):
    return [(int(random.integers(5, 20)), int(random.integers(5, 20))) for _ in range(count)]


@pytest.mark.parametrize(
    ("joint", "bits"),
    [
        ([[0.5, 0.0], [0.0, 0.5]], 1.0),
        ([[0.25, 0.25], [0.25, 0.25]], 0.0),
        ([[3.0, 1.0], [1.0, 3.0]], 1 - (-(0.75 * np.log2(0.75) + 0.25 * np.log2(0.25)))),
        (np.eye(4), 2.0),
        ([[0.5, 0.25], [0.0, 0.25]], 0.311278),  # by hand: H(¾, ¼) + H(½, ½) − H(½, ¼, ¼)
    ],
)
def test_mutual_information_is_that_of_its_definition(joint, bits):
    assert information(np.array(joint, float)) == pytest.approx(bits, abs=1e-6)


def test_of_many_distributions_at_once_each_has_its_own():
    both = np.array([np.eye(2), np.ones((2, 2))])
    assert information(both) == pytest.approx([1, 0])


def test_a_head_that_changes_programs_with_the_phase_tells_all_of_it_and_one_that_does_not_nothing():
    switching, staying = one_hot([0] * 8 + [1] * 8), one_hot([0] * 16)
    mixed = np.full((16, 2), 0.5)
    count = 30
    heads = {"read 1": [switching] * count, "read 2": [staying] * count, "write 1": [mixed] * count}
    first, *others = associations([PHASES] * count, heads)
    assert (first.head, first.bits, first.possible) == ("read 1", pytest.approx(1), pytest.approx(1))
    assert first.found
    assert first.p == pytest.approx(1 / 1001)
    assert [other.bits for other in others] == pytest.approx([0, 0])
    assert not any(other.found for other in others)


def test_soft_weights_count_as_much_as_they_weigh():
    """¾ to ¼ while listening and the other way round while answering: 1 − H(¾, ¼) bits."""
    weights = np.array([[0.75, 0.25]] * 8 + [[0.25, 0.75]] * 8)
    (found,) = associations([PHASES] * 20, {"read 1": [weights] * 20})
    assert found.bits == pytest.approx(0.188722, abs=1e-6)


def test_no_more_can_be_told_than_the_programs_or_the_phases_have():
    four = [f"phase {n}" for n in range(4) for _ in range(4)]
    (found,) = associations([four] * 20, {"read 1": [one_hot([n // 8 for n in range(16)])] * 20})
    assert (found.bits, found.possible) == (pytest.approx(1), pytest.approx(1)), "two programs for four phases"
    (found,) = associations([PHASES] * 20, {"read 1": [one_hot([n // 4 for n in range(16)], 4)] * 20})
    assert (found.bits, found.possible) == (pytest.approx(1), pytest.approx(1)), "two phases for four programs"


def test_a_program_that_lasts_long_wherever_it_is_is_no_more_than_chance():
    """It changes once, somewhere: pooled over sequences that tells nothing, and step by step it would seem to."""
    random = np.random.default_rng(3)
    phases, mixes = [], []
    for encoding, decoding in lengths(random):
        phases.append(["encoding"] * encoding + ["decoding"] * decoding)
        mixes.append(np.roll(one_hot([0] * encoding + [1] * decoding), random.integers(encoding + decoding), axis=0))
    (found,) = associations(phases, {"read 1": mixes})
    assert not found.found
    assert found.p > 0.05
    assert found.bits < found.chance


def test_chance_is_found_as_often_as_it_says():
    """Of 60 machines whose programs know nothing of phases, about one in twenty passes for one that does."""
    random = np.random.default_rng(5)
    passed = 0
    for _ in range(60):
        shape = lengths(random, 20)
        phases = [["encoding"] * e + ["decoding"] * d for e, d in shape]
        heads = {
            name: [np.roll(one_hot([0] * e + [1] * d), random.integers(e + d), axis=0) for e, d in shape]
            for name in ("read 1", "write 1")
        }
        passed += associations(phases, heads)[0].found
    assert passed <= 8


def test_shifts_around_the_end_are_those_of_rolling_phases():
    random = np.random.default_rng(1)
    for steps in (6, 7):
        mark, weights = one_hot(random.integers(0, 3, steps), 3), random.dirichlet(np.ones(2), steps)
        by_hand = [np.einsum("tk,tp->kp", np.roll(mark, shift, axis=0), weights) for shift in range(steps)]
        assert np.allclose(association_of(mark, weights), by_hand)


def test_of_executions_it_is_taken_by_phase_and_subtask_and_head(known):
    """Its two subtasks make four phases, one step or two each."""
    found = {association.head: association for association in by_phase([known] * 10)}
    assert set(found) == {"read 1", "write 1"}
    mix = known.heads[0].programs
    joint = np.array([mix[0], mix[1] + mix[2], mix[3], mix[4] + mix[5]])
    assert found["read 1"].bits == pytest.approx(float(information(joint)))
    assert found["read 1"].possible == 1.0, "four phases, but two programs"


def test_a_machine_without_programs_has_none(known):
    plain = replace(known, heads=tuple(HeadTrace(head.name, head.kind, head.address, None) for head in known.heads))
    assert by_phase([plain]) == []
