"""The random numbers: known answers, coordinates that matter, distributions."""

from dataclasses import replace

import numpy as np
import pytest

from nsm.tasks import Draws
from nsm.tasks.arrays import Words
from nsm.tasks.randomness import philox

DRAWS = Draws(seed=1, stream=2, first_step=3, steps=4, batch_size=5)


@pytest.mark.parametrize(
    ("counter", "key", "answer"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_published_known_answers(counter, key, answer):
    lanes = np.array(counter, dtype=np.uint64)
    even, odd = philox(lanes[0::2], lanes[1::2], key)
    assert (even[0], odd[0], even[1], odd[1]) == answer


def test_a_word_is_philox_of_its_coordinates():
    words = DRAWS.words(purpose=7, count=6).reshape(4, 5, 6)
    for step, sample, index in ((0, 0, 0), (3, 4, 5), (1, 2, 3)):
        even, odd = philox(
            np.array([index // 2, sample], dtype=np.uint64), np.array([7, 3 + step], dtype=np.uint64), (1, 2)
        )
        assert int(words[step, sample, index]) == (int(even[index % 2]) << 32) + int(odd[index % 2])


def test_all_coordinates_matter_and_no_word_comes_twice():
    neighbours = [
        DRAWS,
        replace(DRAWS, seed=2),
        replace(DRAWS, stream=1),
        replace(DRAWS, first_step=7),  # steps 3 … 6 are taken
        DRAWS.subtask(0),
        DRAWS.subtask(1),
    ]
    words = np.concatenate([draws.words(purpose, 9) for draws in neighbours for purpose in (0, 1)])
    assert np.unique(words).size == words.size == 6 * 2 * 20 * 9


def test_a_number_does_not_depend_on_what_else_is_drawn():
    many = Draws(seed=1, stream=2, first_step=0, steps=9, batch_size=8).words(0, 11).reshape(9, 8, 11)
    few = DRAWS.words(0, 3).reshape(4, 5, 3)
    np.testing.assert_array_equal(few, many[3:7, :5, :3])
    for draw in (DRAWS.bits, DRAWS.uniform, DRAWS.arcsine):
        np.testing.assert_array_equal(draw(0, 3), draw(0, 70)[:, :3])


def test_shared_structure_repeats_the_first_sample_of_each_step_and_spares_the_rest():
    shared = replace(DRAWS, shared_structure=True)
    own = DRAWS.words(0, 2).reshape(4, 5, 2)
    np.testing.assert_array_equal(shared.structure.words(0, 2).reshape(4, 5, 2), np.broadcast_to(own[:, :1], (4, 5, 2)))
    np.testing.assert_array_equal(shared.words(0, 2), DRAWS.words(0, 2))
    np.testing.assert_array_equal(DRAWS.structure.words(0, 2), DRAWS.words(0, 2))
    subtask = shared.structure.subtask(1).words(0, 1).reshape(4, 5)
    assert (subtask == subtask[:, :1]).all()


def as_signs(words: Words) -> np.ndarray:
    """The bits of words as −1 and 1, one row per word."""
    return 2.0 * np.unpackbits(words.reshape(-1, 1).view(np.uint8), axis=1) - 1.0


def test_bits_are_fair_everywhere_in_a_word():
    signs = as_signs(Draws(0, 0, 0, 64, 16).words(0, 8))
    assert signs.size == 64 * 16 * 8 * 64
    assert abs(signs.mean()) < 4 / np.sqrt(signs.size)
    assert np.abs(signs.mean(axis=0)).max() < 5 / np.sqrt(len(signs))


@pytest.mark.parametrize("neighbour", ["step", "sample", "index", "purpose", "seed", "stream", "subtask"])
def test_neighbours_are_uncorrelated(neighbour):
    draws = Draws(10, 20, 0, 33, 17)
    here = draws.words(4, 9).reshape(33, 17, 9)
    there = {
        "step": here[1:],
        "sample": here[:, 1:],
        "index": here[:, :, 1:],
        "purpose": draws.words(5, 9).reshape(33, 17, 9),
        "seed": replace(draws, seed=11).words(4, 9).reshape(33, 17, 9),
        "stream": replace(draws, stream=21).words(4, 9).reshape(33, 17, 9),
        "subtask": draws.subtask(0).words(4, 9).reshape(33, 17, 9),
    }[neighbour]
    here = here[: there.shape[0], : there.shape[1], : there.shape[2]]
    # All 64 × 64 pairs of a bit here and a bit there.
    products = as_signs(here).T @ as_signs(np.ascontiguousarray(there)) / there.size
    assert np.abs(products).max() < 5.5 / np.sqrt(there.size)
    assert 0.8 < products.var() * there.size < 1.2


def test_bits_unpack_all_64_bits_of_a_word():
    words = DRAWS.words(0, 2)
    bits = DRAWS.bits(0, 10, 12)
    assert bits.shape == (20, 10, 12)
    expected = [int(word) >> place & 1 for word in words[7] for place in range(64)]
    assert bits[7].ravel().tolist() == expected[:120]


def distance(sample: np.ndarray, distribution) -> float:
    """Kolmogorov's distance times √n: above 2.2 once in ten thousand."""
    ordered = np.sort(sample.ravel())
    grid = np.arange(ordered.size + 1) / ordered.size
    cdf = distribution(ordered)
    return max(np.abs(cdf - grid[1:]).max(), np.abs(cdf - grid[:-1]).max()) * np.sqrt(ordered.size)


def test_distributions():
    draws = Draws(5, 0, 0, 100, 10)
    uniform = draws.uniform(0, 20)
    assert 0 <= uniform.min() < 1e-3
    assert 1 - 1e-3 < uniform.max() < 1
    assert distance(uniform, lambda x: x) < 2.2
    assert distance(draws.arcsine(0, 20), lambda x: 2 / np.pi * np.arcsin(np.sqrt(x))) < 2.2


def test_integers_reach_both_ends_evenly():
    counts = np.bincount(Draws(0, 0, 0, 1000, 6).integers(0, (3, 8)))
    assert counts[:3].sum() == 0
    assert len(counts) == 9
    assert ((counts[3:] - 1000) ** 2 / 1000).sum() < 5 + 4 * np.sqrt(2 * 5)


def test_integers_with_a_bound_for_each_sequence():
    high = np.arange(20)
    drawn = DRAWS.integers(0, (0, high))
    assert (drawn >= 0).all()
    assert (drawn <= high).all()
    assert drawn.max() > 9


def test_permutations_are_permutations_and_all_equally_likely():
    permutations = Draws(0, 0, 0, 600, 10).permutations(0, 3)
    assert (np.sort(permutations, axis=1) == np.arange(3)).all()
    kinds, counts = np.unique(permutations, axis=0, return_counts=True)
    assert len(kinds) == 6
    assert ((counts - 1000) ** 2 / 1000).sum() < 5 + 4 * np.sqrt(2 * 5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": -1}, r"^seed is -1: it must be from 0 to 4294967295\.$"),
        ({"seed": 1 << 32}, r"^seed is 4294967296"),
        ({"stream": -2}, r"^stream is -2"),
        ({"first_step": (1 << 32) - 3}, r"^first_step is 4294967293: it must be from 0 to 4294967292\.$"),
        ({"first_step": -1}, r"^first_step is -1"),
        ({"steps": 0}, r"^steps is 0"),
        ({"batch_size": 0}, r"^batch_size is 0"),
    ],
)
def test_coordinates_that_would_wrap_around_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        replace(DRAWS, **changes)


def test_the_last_step_is_usable():
    last = Draws(0, 0, (1 << 32) - 1, 1, 1)
    assert last.words(0, 1) != replace(last, first_step=0).words(0, 1)
