"""The page people share: it opens playing and stays still, is reached into, linked, saved and watched anywhere."""

import io
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image, ImageSequence

from nsm import DNC, NTM, NUTM, Controller, ForbidProgram, ForceProgram, Programs
from nsm.machine import MANN
from nsm.reports.execution import execute
from nsm.reports.viewer import Page
from nsm.reports.viewer import page as viewer
from nsm.tasks import Copy

TASK = Copy(width=4, length=(4, 6))


def made(kind=NUTM, memory=NTM(slots=12, width=5), seed=1, **shape):  # noqa: B008 — frozen
    generator = torch.Generator().manual_seed(seed)
    shape = {
        "controller": Controller(size=6),
        "memory": memory,
        "backend": "reference",
        "generator": generator,
        **shape,
    }
    programs = (shape.pop("programs", 3),) if kind is NUTM else ()
    return kind(TASK.input_size, TASK.output_size, *programs, **shape)


@pytest.fixture(scope="module")
def text():
    """A page of a machine that copies, badly."""
    machine = made()
    return viewer(execute(machine, TASK, 2, seed=3, extremes=False), "a machine", ["seed 0"], {"NUTM": machine})


@pytest.fixture(scope="module")
def complete():
    """A machine whose state network and output layer are stored programs, its execution and its page."""
    machine = made(programs=Programs(3, parts=("interface", "state", "output")))
    (run,) = execute(machine, TASK, 1, seed=3, extremes=False)
    return machine, run, viewer([run], "complete", (), {"NUTM": machine})


@pytest.fixture
def opened(open_page):
    def opened(text, fragment="", **options):
        page = open_page(text, fragment, **options)
        page.wait_for_selector("body[data-ready]")
        return page

    return opened


def until(page, holds):
    """Wait for an expression to hold; a page's policy lets it evaluate no text by itself."""
    for _ in range(100):
        if page.evaluate(holds):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"it never came to {holds}")


SHIFTS = """
window.shifts = [];
new PerformanceObserver((list) => window.shifts.push(...list.getEntries().map((e) => e.value)))
    .observe({ type: "layout-shift", buffered: true });
"""
BOXES = """() => [...document.querySelectorAll("main > section, .card, #story p, #rows, #slider, .bar")]
    .map((e) => e.getBoundingClientRect())
    .map(({ x, y, width, height }) => [x, y + scrollY, width, height].map(Math.round))"""


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("kind", ["interfaces", "complete"])
def test_it_opens_playing_and_nothing_moves(opened, text, complete, kind, width):
    page = opened(
        text if kind == "interfaces" else complete[-1],
        reduced_motion="no-preference",
        viewport={"width": width, "height": 800},
    )
    assert page.evaluate("document.body.dataset.playing") == "true"
    page.evaluate(SHIFTS)
    page.evaluate("go(0)")
    boxes = page.evaluate(BOXES)
    page.evaluate("state.speed = 60")
    page.wait_for_selector("body[data-playing='false']")
    assert page.evaluate("state.step === state.run.steps - 1")
    assert page.evaluate(BOXES) == boxes
    assert page.evaluate("shifts.reduce((sum, each) => sum + each, 0)") == 0


def test_a_step_of_every_kind_takes_the_same_room(opened, text):
    page = opened(text)
    boxes = []
    for key in ("Home", "d", "End"):
        page.keyboard.press(key)
        boxes.append(page.evaluate(BOXES))
    assert boxes[0] == boxes[1] == boxes[2]


def test_it_says_what_the_task_and_a_program_are(opened, text):
    page = opened(text)
    words = page.locator("#about").inner_text()
    assert "list of random bit vectors" in words
    assert "A program is a set of weights" in words
    assert "stores 3 of them" in words


def test_the_heads_in_front_are_those_that_work(opened):
    machine = made(memory=NTM(slots=12, width=5, read_heads=3, write_heads=3))
    run = execute(machine, TASK, 1, seed=3, extremes=False)[0]
    page = opened(viewer([run], "three", (), {"NUTM": machine}))

    def busy(head, steps):
        best = head.address[steps].argmax(axis=1)
        weight = head.address[steps].max(axis=1)
        return (weight.sum() + 4 * weight[1:][best[1:] != best[:-1]].sum()) / len(weight)

    reads = {head.name: busy(head, slice(run.decoding, None)) for head in run.heads_of("read")}
    writes = {head.name: busy(head, slice(0, run.decoding)) for head in run.heads_of("write")}
    expected = [max(reads, key=reads.get), max(writes, key=writes.get)]
    assert page.locator("#heads button[aria-pressed=true]").all_inner_texts() == expected


@pytest.mark.parametrize("width", [1280, 390])
def test_a_complete_machine_shows_which_programs_its_parts_run(opened, complete, width):
    _, run, text = complete
    page = opened(text, viewport={"width": width, "height": 800})
    assert [name for name, _ in run.parts] == ["state", "output"]
    assert "So do the state network and the output layer." in page.locator("#about").inner_text()
    for t in (0, 3, run.steps - 1):
        page.evaluate(f"go({t})")
        said = page.locator("#story-heads").inner_text().splitlines()[-1]
        named = []
        for name, mix in run.parts:
            for p, share in enumerate(mix[t]):
                value = page.locator(f"[data-mix='{name}/{p + 1}']").inner_text()
                assert float(value) == pytest.approx(share, abs=0.0006)
            named.append(f"{mix[t].argmax() + 1} ({mix[t].max():.2f})")
        assert said == "State with program {}, output with {}.".format(*named)
    for name, _ in run.parts:
        assert page.locator(f"canvas[data-row='{name}: programs']").is_visible()
    place, last = page.locator("#story-heads").bounding_box(), page.locator("#story-heads .line").last.bounding_box()
    assert last["y"] + last["height"] <= place["y"] + place["height"]
    assert page.locator("#story-heads .line").last.evaluate("(line) => line.scrollWidth <= line.clientWidth")


# --- reaching in ------------------------------------------------------------------------------------------------------


def test_a_program_is_forced_and_set_beside_the_undisturbed_run(opened, text):
    page = opened(text)
    page.evaluate("go(3)")
    before = page.evaluate("[...state.run.answers.data]")
    page.get_by_label("Force program 2 on read 1 from this step on").click()
    mix = np.array(page.evaluate("[...state.run.mixes[0].data]")).reshape(-1, 3)
    calm = np.array(page.evaluate("[...state.other.mixes[0].data]")).reshape(-1, 3)
    assert np.array_equal(mix[3:], np.tile([0, 1, 0], (len(mix) - 3, 1)))
    assert np.array_equal(mix[:3], calm[:3])
    assert page.evaluate("[...state.other.answers.data]") == before
    assert page.evaluate("[...state.run.answers.data]") != before
    assert page.locator("#reach-list li").inner_text().startswith("from step 4 read 1 uses only program 2")
    assert re.match(r"(\d+ of \d+ output bits change|No output changes)", page.locator("#reach-found").inner_text())
    assert page.locator("#other-name").inner_text() == "original"
    assert page.locator("canvas[data-row='output · original']").is_visible()
    page.get_by_label("Undo: from step 4 read 1 uses only program 2").click()
    assert page.evaluate("[state.other, [...state.run.answers.data]]") == [None, before]
    assert page.locator("#other-tape").is_hidden()


def test_a_program_of_the_state_network_or_the_output_layer_is_forced(opened, complete):
    machine, run, text = complete
    page = opened(text)
    page.evaluate("go(3)")
    page.get_by_label("Force program 2 on state from this step on").click()
    rows = page.locator("#rows canvas").evaluate_all("(all) => all.map((canvas) => canvas.dataset.row)")
    assert [row for row in rows if row.startswith("state: programs")] == [
        "state: programs",
        "state: programs · original",
    ]
    page.get_by_label("What to do").select_option("ForbidProgram")
    page.get_by_label("Which head").select_option("output")
    page.get_by_label("Which program").select_option("0")
    page.get_by_role("button", name="Apply").click()
    assert page.locator("#reach-list li").all_inner_texts()[1].startswith("from step 4 output never uses program 1")
    found = page.evaluate("state.run.parts.map(({ mix }) => [...state.run.mixes[mix].data])")
    acts = [ForceProgram("state", 1, start=3), ForbidProgram("output", 0, start=3)]
    _, _, trace = machine.run(torch.from_numpy(run.inputs), acts)
    for (_, expected), mix in zip(trace.part_programs(), found, strict=True):
        assert np.allclose(np.array(mix).reshape(-1, 3), expected, atol=1e-4)
    page.get_by_label("What to do").select_option("MoveHead")
    assert page.get_by_label("Which head").locator("option").all_inner_texts() == ["read 1", "write 1"]


@pytest.mark.parametrize(
    ("kind", "fields", "words"),
    [
        ("EraseSlot", {"slot": 2}, "before step 6 slot 2 is erased"),
        ("SwapSlots", {"first": 1, "second": 4}, "before step 6 slots 1 and 4 are swapped"),
        ("MoveHead", {"by": -3}, "at step 6 read 1 is moved by −3"),
        ("PlaceHead", {"slot": 7}, "at step 6 read 1 is placed on slot 7"),
    ],
)
def test_every_deed_of_the_form_is_done(opened, text, kind, fields, words):
    page = opened(text)
    page.evaluate("go(5)")
    page.get_by_label("What to do").select_option(kind)
    for name, value in fields.items():
        page.locator(f"#reach-form input[data-field={name}]").fill(str(value))
    page.get_by_role("button", name="Apply").click()
    assert page.locator("#reach-list li").inner_text().startswith(words)
    addresses = "({ heads }) => heads.map(({ address }) => [...address.data])"
    touched, calm = (np.array(page.evaluate(f"({addresses})(state.{name})")) for name in ("run", "other"))
    assert np.array_equal(touched[:, : 5 * 12], calm[:, : 5 * 12])
    assert not np.array_equal(touched, calm)


def test_a_click_into_the_tape_names_the_slot(opened, text):
    page = opened(text)
    page.get_by_label("What to do").select_option("EraseSlot")
    page.evaluate("actions.narrow(false)")
    tape = page.locator("#tape")
    box = tape.bounding_box()
    tape.click(position={"x": box["width"] * 5.5 / 12, "y": box["height"] / 2})
    assert page.locator("#reach-form input[data-field=slot]").input_value() == "5"


def test_two_machines_are_watched_beside_each_other(opened):
    one, other = made(), made(MANN, memory=DNC(slots=12, width=5, read_heads=2), seed=2)
    run = execute(one, TASK, 1, seed=3, extremes=False)[0]
    page = opened(viewer([run], "two", (), {"NUTM": one, "DNC": other}))
    assert page.locator("#tape-name").inner_text() == "NUTM"
    assert page.locator("#other-name").inner_text() == "DNC"
    theirs = execute(other, TASK, 1, seed=3, extremes=False)[0]
    assert np.allclose(page.evaluate("[...state.other.answers.data]"), theirs.answers.ravel(), atol=1e-4)
    assert page.locator("canvas[data-row='output · DNC']").count() == 1


# --- sharing ----------------------------------------------------------------------------------------------------------

SEEN = """[state.example, state.step, state.spec, state.slots, state.interventions, state.heads, state.onlyUsed,
    [...state.run.answers.data]]"""


def test_a_link_opens_what_was_seen(opened, text):
    page = opened(text)
    page.keyboard.press("]")
    page.locator("#editor .bit").nth(3).click()
    page.get_by_label("tape slots", exact=True).fill("9")
    page.keyboard.press("Enter")
    until(page, "state.run.slots === 9")
    page.evaluate("go(4)")
    page.get_by_label("Force program 1 on read 1 from this step on").click()
    page.get_by_role("button", name="write 1", exact=True).click()
    page.evaluate("actions.narrow(false)")
    until(page, "location.hash.includes('tape=')")
    again = opened(text, page.evaluate("location.hash"))
    assert again.evaluate(SEEN) == page.evaluate(SEEN)
    assert again.evaluate("state.step") == 4
    assert again.evaluate("document.body.dataset.playing") != "true"


HOSTILE = [
    "#step=<img src=x onerror=alert(1)>",
    "#step=999999&sequence=999999&slots=99999999",
    "#input=not*base64&do=%00",
    "#input=" + "A" * 3000,
    "#do=W3sia2luZCI6ImNvbnN0cnVjdG9yIn1d",  # [{"kind": "constructor"}]
    "#input=eyJ2ZWN0b3JzIjpbIjxiPiJdfQ",  # {"vectors": ["<b>"]}
    "#input=bnVsbA&do=bnVsbA&step=",  # null
]


@pytest.mark.parametrize("fragment", HOSTILE)
def test_a_link_that_makes_no_sense_opens_the_page(opened, text, fragment):
    page = opened(text, fragment)
    assert page.evaluate("[state.spec, state.interventions]") == [None, []]
    assert page.evaluate("state.run.steps > 0")


@pytest.mark.parametrize("markup", ["<img src=x onerror=alert(1)>", "</script><script>alert(1)</script>"])
def test_names_of_a_hostile_run_execute_nothing(opened, markup):
    machine = made()
    run = execute(machine, TASK, 1, seed=3, extremes=False, name=markup)[0]
    page = opened(viewer([run], markup, [markup], {markup: machine, f"{markup} 2": made(seed=2)}))
    assert page.locator("h1").inner_text() == markup
    assert page.locator("#tape-name").inner_text() == markup
    assert page.locator("img").count() == 0


def test_a_step_is_saved_as_a_picture_and_a_run_as_a_film(opened, text, tmp_path):
    page = opened(text)
    page.evaluate("go(6)")
    with page.expect_download() as picture:
        page.locator("#save-png").click()
    image = Image.open(picture.value.path())
    assert (image.format, image.width) == ("PNG", 960)
    assert picture.value.suggested_filename == "a-machine.png"
    with page.expect_download() as film:
        page.locator("#save-gif").click()
    frames = Image.open(io.BytesIO(film.value.path().read_bytes()))
    assert (frames.format, frames.size) == ("GIF", image.size)
    steps = page.evaluate("state.run.steps")
    shown = [frame.convert("RGB").copy() for frame in ImageSequence.Iterator(frames)]
    assert len(shown) == steps
    assert page.evaluate("state.step") == 6, "it is where it was"
    difference = np.abs(np.asarray(shown[6], int) - np.asarray(image.convert("RGB"), int))
    assert difference.mean() < 2, "the film's frame is the picture, in fewer colours"
    page.requests[:] = [request for request in page.requests if not request.startswith("blob:")]


def test_in_a_notebook_it_runs_in_a_closed_frame(open_page, text):
    page = open_page(f"<!doctype html><title>a notebook</title>{Page(text)._repr_html_()}")
    frame = page.frame_locator("iframe")
    frame.locator("body[data-ready]").wait_for()
    frame.locator("#editor .bit").first.click()
    # The browser does not always tell a closed frame that motion is to be reduced, and then the page plays as it opens.
    frame.locator("#first").click()
    frame.locator("#forward").click()
    assert frame.locator("#story-step").inner_text().startswith("Step 2 of")
    assert frame.locator("#link").is_hidden()
    page.requests[:] = [request for request in page.requests if request != "about:srcdoc"]


# --- anywhere ---------------------------------------------------------------------------------------------------------


def test_on_a_phone_the_narration_stays_in_sight(opened, text):
    page = opened(text, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    assert page.locator("#help-button").is_hidden()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for place in (0, 400, 10_000):
        page.evaluate("y => scrollTo(0, y)", place)
        box = page.locator("#story").bounding_box()
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= 844


def cost(page):
    """Milliseconds that the page's thread works until all is there, whatever else this machine does meanwhile."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(page.own)
    page.wait_for_selector("body[data-ready]")
    metrics = session.send("Performance.getMetrics")["metrics"]
    return next(1000 * metric["value"] for metric in metrics if metric["name"] == "TaskDuration")


def test_the_first_frame_comes_soon(opened, text):
    assert cost(opened(text)) < 1000


def test_a_question_answerer_of_800_000_weights_is_there_within_three_seconds(opened):
    words, steps = 159, 80
    machine = MANN(words, words, memory=DNC(slots=64, width=64, read_heads=4), controller=Controller(size=256))
    random = np.random.default_rng(0)
    run = execute(made(), TASK, 1, seed=3, extremes=False)[0]
    shown = np.eye(words, dtype=np.float32)[random.integers(words, size=steps)]
    fields = {"inputs": shown, "targets": shown, "counted": np.arange(steps) == 79, "decoding": 79, "task": None}
    names = {"choice": True, "words": tuple(f"w{n}" for n in range(words)), "subtask": np.full(steps, -1)}
    run = replace(run, **fields, **names)
    text = viewer([run], "babi", (), {"DNC": machine})
    assert sum(parameter.numel() for parameter in machine.parameters()) > 700_000
    assert cost(opened(text)) < 3000
