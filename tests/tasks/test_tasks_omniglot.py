"""Few-shot episodes: what is shown, when it is named, and how answers to it are counted."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from paper_tasks import get

from nsm import LRUA, MANN, Controller
from nsm.checks import UserError
from nsm.data import omniglot, source
from nsm.data.warp import turn_and_move
from nsm.tasks import EpisodeShare, Omniglot
from nsm.tasks.randomness import Draws
from nsm.training.evaluation import evaluate

PLAIN = Omniglot(quarters=False, angle=0.0, shift=0.0)


def images():
    return omniglot.load(source.root()).images


def small_images():
    """The 20 × 20 image of every drawing: bytes → (character, drawing)."""
    found = {}
    for character, drawings in enumerate(images()):
        for drawing, image in enumerate(drawings):
            found[(image[1::2, 1::2].astype(np.float32) / 255).tobytes()] = character, drawing
    return found


def shown(batch, t, b):
    """What is seen at a step, as small_images has it."""
    pixels = batch.inputs[t, b, :400]
    return (np.rint(pixels * 255).astype(np.uint8).astype(np.float32) / 255).tobytes()


def labels_of(batch):
    return batch.targets.argmax(-1)


# --- what is shown ----------------------------------------------------------------------------------------------------


def test_the_settings_of_the_paper():
    for name, classes, length in (("omniglot-5", 5, 50), ("omniglot-10", 10, 75)):
        train = get(name)
        test = train.tested
        for task, purpose in ((train, "train"), (test, "test")):
            assert (task.classes, task.length, task.purpose) == (classes, length, purpose)
            assert (task.input_size, task.output_size, task.max_length) == (400 + classes, classes, length)
        assert train.quarters
        assert (train.angle, train.shift) > (0, 0)
        assert (test.quarters, test.angle, test.shift) == (False, 0, 0)


def test_a_label_is_told_a_step_after_it_was_asked_for():
    batch = Omniglot().batch(0, 0, 0, 8)
    assert not batch.inputs[0, :, 400:].any()
    np.testing.assert_array_equal(batch.inputs[1:, :, 400:], batch.targets[:-1])
    assert (batch.targets.sum(-1) == 1).all()
    assert (batch.mask == 1).all()


def test_other_names_for_the_same_drawings_change_nothing_that_is_seen_before_they_are_told(monkeypatch):
    """The label of step t is nowhere in what is seen up to t."""
    before = Omniglot().batch(0, 0, 0, 8)
    rename = np.array([3, 0, 4, 1, 2])
    names = Draws.permutations
    monkeypatch.setattr(Draws, "permutations", lambda self, *arguments: rename[names(self, *arguments)])
    after = Omniglot().batch(0, 0, 0, 8)
    np.testing.assert_array_equal(labels_of(after), rename[labels_of(before)])
    np.testing.assert_array_equal(after.inputs[..., :400], before.inputs[..., :400])
    np.testing.assert_array_equal(after.inputs[1:, ..., 400:].argmax(-1), rename[labels_of(before)][:-1])


@pytest.mark.parametrize("purpose", ["train", "test"])
def test_a_label_stands_for_one_character_of_those_that_may_be_shown(purpose):
    known, data = small_images(), omniglot.load(source.root())
    usable = set((data.train if purpose == "train" else data.test).tolist())
    episodes = set()
    for batch in replace(PLAIN, purpose=purpose).block(1, 0, 0, 4, 3):
        for b in range(3):
            seen = [known[shown(batch, t, b)] for t in range(50)]
            meaning = {}
            for (character, _), label in zip(seen, labels_of(batch)[:, b].tolist(), strict=True):
                assert meaning.setdefault(label, character) == character
            assert len(set(meaning.values())) == len(meaning) == 5, "two labels for one character"
            assert set(meaning.values()) <= usable
            assert len(set(seen)) == len(seen) or max(np.bincount(labels_of(batch)[:, b])) > 20, "a drawing twice"
            episodes.add(tuple(meaning[label] for label in range(5)))
    assert len(episodes) == 12, "classes are drawn anew for every sequence"


def test_train_and_test_characters_are_disjoint(real_omniglot):
    data = omniglot.load(real_omniglot)
    assert len(set(data.train.tolist()) & set(data.test.tolist())) == 0
    assert (len(data.train), len(data.test)) == (1200, 423)


def test_a_class_that_is_shown_more_often_than_it_has_drawings_begins_again():
    batch = replace(PLAIN, classes=2, length=100).batch(0, 0, 0, 1)
    known = small_images()
    for label in range(2):
        at = np.flatnonzero(labels_of(batch)[:, 0] == label)
        drawings = [known[shown(batch, t, 0)][1] for t in at]
        assert sorted(drawings[:20]) == list(range(20))
        assert drawings[20:40] == drawings[: len(drawings[20:40])]


def test_labels_and_classes_are_even():
    labels = labels_of(Omniglot().batch(0, 0, 0, 400))
    assert np.bincount(labels.ravel(), minlength=5) / labels.size == pytest.approx(np.full(5, 0.2), abs=0.01)


def test_easy_episodes_have_fewer_classes_with_any_of_the_labels_and_one_drawing_of_each():
    task = Omniglot(easy_steps=100)
    batch = task.batch(0, 0, 0, 600)
    labels = labels_of(batch)
    counts = [len(set(labels[:, b].tolist())) for b in range(600)]
    assert np.bincount(counts, minlength=6)[2:] / 600 == pytest.approx(np.full(4, 0.25), abs=0.07)
    assert np.bincount(labels.ravel(), minlength=5) / labels.size == pytest.approx(np.full(5, 0.2), abs=0.03)
    for b in range(20):
        for label in set(labels[:, b].tolist()):
            drawings = batch.inputs[labels[:, b] == label, b, :400]
            assert (drawings == drawings[0]).all()


def test_easy_episodes_become_fewer_until_there_are_none():
    task, plain = Omniglot(easy_steps=100), Omniglot()
    shares = []
    for step in (0, 50, 90, 100, 10_000):
        mixed, pure = task.batch(0, 0, step, 200), plain.batch(0, 0, step, 200)
        shares.append(float((mixed.inputs != pure.inputs).any((0, 2)).mean()))
    assert shares == pytest.approx([1, 0.5, 0.1, 0, 0], abs=0.08)
    assert shares[3:] == [0, 0]
    # A block of many steps knows where each of them is.
    block = task.block(0, 0, 98, 4, 50)
    for step, batch in enumerate(block):
        np.testing.assert_array_equal(batch.inputs, task.batch(0, 0, 98 + step, 50).inputs)


def test_progress_is_judged_without_easy_episodes():
    assert Omniglot(easy_steps=100).like_training() == Omniglot()


# --- turned and moved -------------------------------------------------------------------------------------------------


def test_a_class_is_turned_as_a_whole():
    known = {}
    for pixels, place in small_images().items():
        for quarter in range(4):
            turned = np.ascontiguousarray(np.rot90(np.frombuffer(pixels, np.float32).reshape(20, 20), quarter))
            known[turned.tobytes()] = (place[0], quarter)
    quarters = set()
    for batch in replace(PLAIN, quarters=True).block(0, 0, 0, 3, 2):
        for b in range(2):
            turns = {(label, known[shown(batch, t, b)]) for t, label in enumerate(labels_of(batch)[:, b].tolist())}
            assert len(turns) == len({label for label, _ in turns}), "one turn for a class in an episode"
            quarters |= {quarter for _, (_, quarter) in turns}
    assert quarters == {0, 1, 2, 3}


def warped(image, angle, down, right):
    """(20, 20), one point after the other."""
    out, c, s = np.zeros((20, 20)), np.cos(angle), np.sin(angle)
    padded = np.pad(image.astype(float), 1)  # beyond the edge is paper
    for i in range(20):
        for j in range(20):
            y, x = i - 9.5 - down, j - 9.5 - right
            v, u = 21 + 2 * (c * y + s * x), 21 + 2 * (c * x - s * y)
            if not (0 <= v < 42 and 0 <= u < 42):
                continue
            top, left = int(v), int(u)
            block = padded[top : top + 2, left : left + 2]
            out[i, j] = np.array([1 - (v - top), v - top]) @ block @ np.array([1 - (u - left), u - left])
    return out / 255


def turned(image, c, s, down=0.0, right=0.0):
    return turn_and_move(image[None], *(np.array([float(value)]) for value in (c, s, down, right)))[0]


@pytest.mark.parametrize(
    ("angle", "down", "right"),
    [(0, 0, 0), (0.2, 0, 0), (-0.1, 0, 0), (0, 2, 0), (0, 0, -1.5), (2.3, 0.7, -1.9), (0.1, 9, 0), (0, -400, 0)],
)
def test_drawings_are_turned_and_moved(angle, down, right):
    noise = np.random.default_rng(0).integers(0, 256, (41, 41), dtype=np.uint8)  # ink at the very edge, too
    for image in (images()[4, 7], noise):
        expected = warped(image, angle, down, right)
        assert expected.any() == (abs(down) < 100)
        np.testing.assert_allclose(turned(image, np.cos(angle), np.sin(angle), down, right), expected, atol=2e-5)


@pytest.mark.parametrize("quarter", range(4))
def test_nothing_is_interpolated_in_quarter_turns(quarter):
    c, s = ((1, 0), (0, 1), (-1, 0), (0, -1))[quarter]
    noise = np.random.default_rng(0).integers(0, 256, (41, 41), dtype=np.uint8)
    for image in (noise, np.where(noise < 128, 0, 255).astype(np.uint8)):
        kept = np.rot90(image[1::2, 1::2], quarter)
        np.testing.assert_array_equal(turned(image, c, s), kept * np.float32(1 / 255))


def test_an_image_is_the_same_bits_among_others_and_on_more_threads():
    random = np.random.default_rng(0)
    points = random.integers(0, 256, (300, 41, 41), dtype=np.uint8)
    turn = [random.uniform(-1, 1, 300) for _ in range(4)]
    together = turn_and_move(points, *turn)
    assert (together.dtype, together.shape) == (np.float32, (300, 20, 20))
    assert (together.min(), together.max()) >= (0, 0.9)
    assert together.max() <= 1
    for index in (0, 7, 299):
        alone = turn_and_move(points[[index]], *(each[[index]] for each in turn))
        np.testing.assert_array_equal(alone[0], together[index])
    torch.set_num_threads(2)
    try:
        np.testing.assert_array_equal(turn_and_move(points, *turn), together)
    finally:
        torch.set_num_threads(1)


def test_turning_goes_one_way_and_moving_another():
    image = np.zeros((41, 41), np.uint8)
    image[9:12, 29:32] = 255  # above and right of the middle

    def centre(*turn):
        out = turned(image, *turn)
        return [float((out * axis).sum() / out.sum()) for axis in np.mgrid[:20, :20]]

    y, x = centre(1, 0, 0, 0)
    assert (y < 9, x > 11) == (True, True)
    assert centre(1, 0, 3, 0) == pytest.approx([y + 3, x], abs=0.01)
    assert centre(1, 0, 0, -3) == pytest.approx([y, x - 3], abs=0.01)
    assert centre(0, 1, 0, 0) == pytest.approx([19 - x, y], abs=0.01), "counterclockwise, as np.rot90"


def test_drawings_differ_by_a_little_in_training():
    plain, moved = PLAIN.batch(0, 0, 0, 4), replace(PLAIN, angle=11.25, shift=2.0).batch(0, 0, 0, 4)
    np.testing.assert_array_equal(plain.targets, moved.targets)
    assert (plain.inputs != moved.inputs).any(-1).all(), "every drawing"
    ink = plain.inputs[..., :400].sum(-1)
    assert moved.inputs[..., :400].sum(-1) == pytest.approx(ink, rel=0.2)


# --- how answers are counted ------------------------------------------------------------------------------------------


def test_accuracy_is_counted_by_presentation():
    """An oracle that goes through an episode and counts on its fingers."""
    task = get("omniglot-5").tested
    batch = task.batch(0, 2, 0, 7)
    logits = torch.randn(batch.targets.shape, generator=torch.Generator().manual_seed(0))
    logits += 1.5 * torch.from_numpy(batch.targets)
    right, asked = [0] * 60, [0] * 60
    for b in range(7):
        times = dict.fromkeys(range(5), 0)
        for t in range(50):
            label = int(batch.targets[t, b].argmax())
            asked[times[label]] += 1
            right[times[label]] += int(logits[t, b].argmax()) == label
            times[label] += 1
    tally = task.metrics(logits, batch)
    averages = tally.averages()
    for k in range(10):
        assert averages[f"accuracy/{k + 1}"] == right[k] / asked[k]
        assert tally.shares[f"accuracy/{k + 1}"][:2] == (right[k], asked[k])
    assert averages["error"] == pytest.approx(1 - sum(right) / sum(asked))
    assert "accuracy/11" not in averages
    assert asked[0] == 35, "each class has one first presentation"


def test_shares_of_batches_add_up():
    task = PLAIN
    whole = task.batch(0, 0, 0, 6)
    logits = torch.randn(whole.targets.shape, generator=torch.Generator().manual_seed(1))

    def part(rows):
        arrays = [array[:, rows] for array in (whole.inputs, whole.targets, whole.mask)]
        batch = whole._replace(
            inputs=arrays[0],
            targets=np.ascontiguousarray(arrays[1]),
            mask=np.ascontiguousarray(arrays[2]),
            subtask=whole.subtask[:, rows],
        )
        return task.metrics(logits[:, rows], batch)

    together, added = task.metrics(logits, whole), part(slice(0, 2)) + part(slice(2, 6))
    assert added.shares == together.shares
    assert added.averages() == pytest.approx(together.averages())


def test_the_interval_is_that_of_episodes_drawn_again():
    """Against resampling whole episodes whose answers hang together: of a class either all are right or none."""
    random = np.random.default_rng(0)
    wholes = random.integers(3, 6, 300)
    parts = wholes * (random.random(300) < 0.7)
    again = random.integers(0, 300, (4000, 300))
    resampled = parts[again].sum(1) / wholes[again].sum(1)
    share = EpisodeShare.of(parts, wholes)
    assert share.interval == pytest.approx(1.96 * resampled.std(), rel=0.05)
    alone = 1.96 * np.sqrt(0.7 * 0.3 / wholes.sum())
    assert share.interval > 1.5 * alone, "wider than if answers were independent"
    halves = EpisodeShare.of(parts[:100], wholes[:100]) + EpisodeShare.of(parts[100:], wholes[100:])
    assert halves == share


def test_an_untrained_machine_answers_by_chance():
    generator = torch.Generator().manual_seed(0)
    machine = MANN(405, 5, controller=Controller(size=16), memory=LRUA(slots=64, width=8), generator=generator)
    averages = evaluate(machine, get("omniglot-5").tested, 200).averages()
    for k in range(1, 9):
        assert averages[f"accuracy/{k}"] == pytest.approx(0.2, abs=0.06)
    assert averages["error"] == pytest.approx(0.8, abs=0.02)


def test_every_drawing_may_need_a_slot():
    task = Omniglot(length=30)
    assert task.min_slots(task.batch(0, 0, 0, 2)) == 30


# --- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [{"classes": 1}, {"length": 0}, {"purpose": "validation"}, {"easy_steps": -1}])
def test_a_task_that_makes_no_sense_is_refused(fields):
    with pytest.raises(UserError):
        Omniglot(**fields)


def test_more_classes_than_there_are_characters():
    with pytest.raises(UserError, match="classes is 13: there are only 12 test characters"):
        Omniglot(classes=13, purpose="test").require()


def test_without_its_data_a_task_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setenv("NSM_DATA", str(tmp_path))
    with pytest.raises(UserError, match="nsm data fetch omniglot"):
        Omniglot().require()
