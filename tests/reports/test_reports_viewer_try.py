"""The machine in the page: sequences are laid out as Python lays them out, and what a person puts in is answered."""

import numpy as np
import pytest
import torch

from nsm import NTM, NUTM, Controller
from nsm.reports.execution import execute
from nsm.reports.viewer import page as viewer
from nsm.tasks import AssociativeRecall, Babi, Copy, NGrams, Omniglot, Padded, PrioritySort, RepeatCopy, Sequencing

SEQUENCING = Sequencing(
    (
        Copy(width=4, length=(1, 3)),
        RepeatCopy(width=4, length=(1, 3), repeats=(1, 3)),
        PrioritySort(width=4, items=4, sorted_items=3),
        AssociativeRecall(width=4, items=(2, 3)),
    )
)
TASKS = {
    "copy": Copy(width=4, length=(2, 5)),
    "repeat-copy": RepeatCopy(width=4, length=(1, 4), repeats=(1, 4), normalise=(1, 7)),
    "recall": AssociativeRecall(width=4, items=(2, 5)),
    "sort": PrioritySort(width=4, items=6, sorted_items=4),
    "ngrams": NGrams(order=3, length=12),
    "four in a row": SEQUENCING,
    "padded": Padded(Sequencing((Copy(width=4, length=(1, 3)), AssociativeRecall(width=4))), 9, 7),
}


def machine_for(task, memory=NTM(slots=12, width=5)):  # noqa: B008 — frozen
    generator = torch.Generator().manual_seed(1)
    shape = {"controller": Controller(size=6), "memory": memory, "backend": "reference"}
    return NUTM(task.input_size, task.output_size, 3, **shape, generator=generator)


@pytest.fixture
def running(open_page):
    """Open a page with a machine at work on a task; returns it, and what Python makes of the sequences."""

    def opened(task, samples=3, fragment="", machine=None, **options):
        machine = machine or machine_for(task)
        executions = execute(machine, task, samples, seed=3, extremes=False)
        page = open_page(viewer(executions, "a machine", ["seed 0"], {"NUTM": machine}), fragment, **options)
        page.wait_for_selector("body[data-ready]")
        return page, executions

    return opened


@pytest.mark.parametrize("name", TASKS)
def test_sequences_are_laid_out_and_answered_as_in_python(running, name):
    page, executions = running(TASKS[name])
    for index, run in enumerate(executions):
        page.evaluate("index => choose(index)", index)
        found = page.evaluate("""() => {
            const laid = state.laying.lay(state.original);
            const plain = ({ inputs, targets, counted, subtask, decoding }) =>
                ({ inputs: [...inputs.data], targets: [...targets.data], counted: [...counted], subtask, decoding });
            return { laid: plain(laid), answers: [...state.run.answers.data], errors: state.run.errors };
        }""")
        laid = found["laid"]
        assert np.array_equal(np.float32(laid["inputs"]), run.inputs.ravel())
        assert np.array_equal(np.float32(laid["targets"]), run.targets.ravel())
        assert (laid["counted"], laid["decoding"]) == (run.counted.tolist(), run.decoding)
        assert laid["subtask"] == run.subtask.tolist()
        assert np.abs(np.array(found["answers"]) - run.answers.ravel()).max() < 1e-4
        assert found["errors"] == run.errors


def test_a_bit_is_clicked_and_answered(running):
    page, _ = running(TASKS["copy"])
    before = page.evaluate("[...state.run.answers.data]")
    bit = page.locator("#editor .bit").nth(5)
    was = bit.get_attribute("aria-pressed")
    bit.click()
    assert bit.get_attribute("aria-pressed") != was
    vectors = page.evaluate("state.spec.vectors")
    assert vectors[1][1] == ("0" if was == "true" else "1")
    row = page.evaluate("[...state.run.inputs.row(2)]")
    assert row[:4] == [float(bit) for bit in vectors[1]]
    assert page.evaluate("[...state.run.answers.data]") != before
    page.locator("#as-it-was").click()
    assert page.evaluate("[...state.run.answers.data]") == before


def test_a_finger_flips_a_bit_and_a_stroke_of_the_mouse_several(running):
    page, _ = running(TASKS["copy"], has_touch=True)
    original = page.evaluate("state.original.vectors")
    page.locator("#editor .bit").nth(2).tap()
    assert page.evaluate("state.spec.vectors[0]") == original[0][:2] + "10"[int(original[0][2])] + original[0][3]
    page.locator("#as-it-was").click()
    first, last = (page.locator("#editor .bit").nth(n).bounding_box() for n in (0, 3))
    page.mouse.move(first["x"] + 4, first["y"] + 4)
    page.mouse.down()
    page.mouse.move(last["x"] + 4, last["y"] + 4, steps=12)
    page.mouse.up()
    assert page.evaluate("state.spec.vectors[0]") == "10"[int(original[0][0])] * 4


def test_bits_can_be_reached_and_flipped_by_keys(running):
    page, _ = running(TASKS["copy"])
    first = page.locator("#editor .bit").first
    first.focus()
    for key in ("ArrowRight", "ArrowDown", " "):
        page.keyboard.press(key)
    original, spec = page.evaluate("[state.original.vectors, state.spec.vectors]")
    assert original[1][1] != spec[1][1]
    assert page.evaluate("state.step") == 0, "arrows move among the bits there"


def test_it_can_be_longer_and_drawn_anew_and_the_tape_another(running):
    page, _ = running(TASKS["copy"])
    length = len(page.evaluate("state.original.vectors"))
    page.get_by_label("more: vectors").click()
    assert page.evaluate("state.run.decoding") == length + 3
    spec = page.evaluate("state.spec")
    page.locator("#draw-anew").click()
    assert page.evaluate("state.spec") != spec
    page.get_by_label("tape slots", exact=True).fill("9")
    page.keyboard.press("Enter")
    assert page.evaluate("state.run.slots") == 9
    assert page.evaluate("state.run.heads[0].address.columns") == 9


def test_priorities_are_moved(running):
    page, _ = running(TASKS["sort"])
    slider = page.get_by_role("slider", name="priority of vector 1")
    slider.scroll_into_view_if_needed()
    box = slider.bounding_box()
    page.mouse.move(box["x"] + 5, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + 5, box["y"] + 1)
    page.mouse.up()
    assert page.evaluate("state.spec.items[0][1]") > 0.9
    ranked = page.evaluate("[...state.run.targets.row(state.run.decoding)].map(String).join('')")
    assert ranked == page.evaluate("state.spec.items[0][0]")
    slider.focus()
    page.keyboard.press("PageDown")
    assert 0.6 < page.evaluate("state.spec.items[0][1]") < 0.8


def test_the_query_is_chosen(running):
    page, _ = running(TASKS["recall"])
    asked = page.evaluate("state.original.query")
    other = 0 if asked else 1
    if page.evaluate("state.original.items.length") < 3:
        page.get_by_label("more: items").click()
    page.get_by_label(f"Ask for the item after item {other + 1}").click()
    items = page.evaluate("state.spec.items")
    answer = page.evaluate("[...state.run.targets.row(state.run.decoding)].join('')")
    assert answer == items[other + 1][0]


def test_subtasks_change_places(running):
    page, _ = running(SEQUENCING)
    order = page.evaluate("state.original.order")
    page.get_by_role("button", name="earlier").first.click()
    assert page.evaluate("state.spec.order") == [order[1], order[0], *order[2:]]
    assert page.evaluate("state.run.errors >= 0")


# --- stories ----------------------------------------------------------------------------------------------------------

STORY = """\
1 mary moved to the bathroom.
2 john went to the hallway.
3 where is mary? \tbathroom\t1
4 how do you go from the kitchen to the garden?\tn,w\t1 2
"""


@pytest.fixture
def babi(tmp_path, monkeypatch):
    place = tmp_path / "babi" / "en-10k"
    place.mkdir(parents=True)
    for split in ("train", "test"):
        (place / f"qa1_single-supporting-fact_{split}.txt").write_text(STORY * 20)
    monkeypatch.setenv("NSM_DATA", str(tmp_path))
    return Babi(tasks=(1,), split="test")


def test_a_story_is_typed_and_answered(running, babi):
    page, executions = running(babi, samples=1)
    assert page.locator("#editor input").input_value() == "how do you go from the kitchen to the garden? n, w"
    found = page.evaluate("""() => {
        const laid = state.laying.lay(state.original);
        return [[...laid.inputs.data], [...laid.targets.data], [...laid.counted]];
    }""")
    run = executions[0]
    for laid, array in zip(found, (run.inputs, run.targets, run.counted), strict=True):
        assert np.array_equal(np.float32(laid), array.astype(np.float32).ravel())
    assert page.locator(".word.said").count() == 3
    page.locator("#editor textarea").fill("Sandra went to the kitchen")
    page.locator("#editor input").fill("where is sandra")
    assert page.locator(".story-words p").first.inner_text().strip() == "sandra went to the kitchen."
    assert page.locator(".word.said").count() == 1
    assert "the word is “sandra”" in page.locator("#story").inner_text()
    page.keyboard.press("Tab")
    page.locator("#editor textarea").fill("sandra went to the kitchin")
    assert "“kitchin” is not a word" in page.locator("#refusal").inner_text()
    page.locator("#editor textarea").fill("sandra went to the ki")
    assert page.locator("#refusal").inner_text() == "", "a word that is being typed may become one"
    assert page.locator(".story-words p").first.inner_text().strip() == "sandra went to the."
    page.locator("#editor textarea").press("Tab")
    assert page.locator("#editor textarea").input_value() == "sandra went to the kitchen"
    assert page.locator("#refusal").inner_text() == ""


def test_words_that_are_markup_are_named_and_no_more(running, babi):
    page, _ = running(babi, samples=1)
    page.locator("#editor textarea").fill("<img src=x onerror=alert(1)> went to the kitchen.")
    assert "are not words" in page.locator("#refusal").inner_text()
    assert page.locator("img").count() == 0


# --- drawings ---------------------------------------------------------------------------------------------------------


def test_drawings_are_chosen_and_drawn(running, monkeypatch):
    random = np.random.default_rng(0)
    images = (random.random((4, 20, 41, 41)) < 0.3).astype(np.uint8) * 255
    monkeypatch.setattr(Omniglot, "_characters", lambda self: (images, np.arange(4)))
    task = Omniglot(classes=3, length=8, purpose="test", quarters=False, angle=0.0, shift=0.0)
    page, executions = running(task)
    for index, run in enumerate(executions):
        page.evaluate("index => choose(index)", index)
        laid = page.evaluate("""() => {
            const { inputs, targets, subtask } = state.laying.lay(state.original);
            return [[...inputs.data], [...targets.data], subtask];
        }""")
        assert np.array_equal(np.float32(laid[0]), run.inputs.ravel())
        assert np.array_equal(np.float32(laid[1]), run.targets.ravel())
        assert laid[2] == run.subtask.tolist()
    page.locator(".palette .drawing").first.click()
    assert page.evaluate("state.run.steps") == 9
    pad = page.locator(".pad")
    pad.scroll_into_view_if_needed()
    box = pad.bounding_box()
    page.mouse.move(box["x"] + 10, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + 95, box["y"] + 50, steps=5)
    page.mouse.up()
    page.get_by_role("button", name="add it").click()
    points = np.array(page.evaluate("[...state.run.inputs.row(9)]"))[:400].reshape(20, 20)
    assert points.sum() >= 12, "there is a line"
    assert set(np.flatnonzero(points.sum(axis=1))) <= {8, 9, 10}, "and it lies across the middle"
