"""The viewer in a real browser: it opens offline, is driven by hand and by keys, and shows what the trace has."""

import base64
import re
import zlib
from dataclasses import replace

import numpy as np
import pytest

from nsm.checks import UserError
from nsm.plots.heads import HeadTrace, used_slots
from nsm.reports.execution import Execution
from nsm.reports.viewer import pack
from nsm.reports.viewer import page as viewer


@pytest.fixture
def watch(open_page):
    """Open the viewer of some executions and wait until it is ready."""

    def opened(executions, title="copy, NUTM", **options):
        page = open_page(viewer(executions, title, ["seed 0"]), **options)
        page.wait_for_selector("body[data-ready]")
        return page

    return opened


def step(page):
    return int(page.evaluate("document.body.dataset.step"))


def hover(page, row, x, y=0.5):
    """What the page says of a point of a row, given as shares of its width and height."""
    canvas = page.locator(f"canvas[data-row='{row}']")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])
    return page.locator("#tip").inner_text()


def pixel(page, row, x, y):
    """The colour of a point of a row, given as shares."""
    return colour(page.locator(f"canvas[data-row='{row}']"), x, y)


def colour(canvas, x, y):
    """Of a point of a canvas; read from a copy: the page's own canvas stays as it is."""
    return canvas.evaluate(
        """(canvas, [x, y]) => {
            const copy = Object.assign(document.createElement("canvas"), { width: 1, height: 1 });
            const context = copy.getContext("2d", { willReadFrequently: true });
            context.drawImage(canvas, -Math.floor(x * canvas.width), -Math.floor(y * canvas.height));
            return [...context.getImageData(0, 0, 1, 1).data.slice(0, 3)];
        }""",
        [x, y],
    )


def test_an_input_that_begins_with_a_picture_is_shown_as_one(watch, known):
    """Step 1 has a picture of 2 × 2 points, dark at the lower left, before its two numbers."""
    picture = np.zeros((6, 4), np.float32)
    picture[0, 2] = 1
    page = watch([replace(known, inputs=np.hstack([picture, known.inputs]), picture=2)])
    canvas = page.locator("#vectors")
    box = canvas.bounding_box()

    def at(x, y):
        return sum(colour(canvas, x / box["width"], y / box["height"]))

    upper, lower = 16 + 2, 16 + 5 + 2
    assert at(2, lower) < 200 < 600 < at(2, upper)
    assert at(7, lower) > 600
    row = 16 + 2 * 5 + 6 + 11
    assert at(13, row) < 200 < 600 < at(26 + 13, row), "the numbers after it are a row of cells, as ever"


# --- packing ----------------------------------------------------------------------------------------------------------


def unpacked(packed):
    """What the page makes of a packed array."""
    raw = np.frombuffer(zlib.decompress(base64.b64decode(packed["data"])), packed["type"]).reshape(packed["shape"])
    if packed.get("differences"):
        raw = np.cumsum(raw, axis=0, dtype=raw.dtype)
    return packed["low"] + packed["unit"] * raw.astype(float)


def test_packing_loses_next_to_nothing():
    random = np.random.default_rng(0)
    shares = random.random((40, 9))
    assert np.abs(unpacked(pack.shares(shares)) - shares).max() <= 0.5 / 65_535 + 1e-12
    numbers = random.normal(size=(40, 9)).astype(np.float32)
    assert np.array_equal(unpacked(pack.exact(numbers)), numbers)
    tape = random.normal(size=(30, 8, 5))
    fine = pack.contents(tape)
    assert fine["type"] == "u2"
    assert np.abs(unpacked(fine) - tape).max() <= np.abs(tape).max() / 65_535 + 1e-12


def test_a_tape_of_very_many_numbers_is_packed_in_one_byte_each(monkeypatch):
    monkeypatch.setattr(pack, "FINE", 100)
    tape = np.random.default_rng(0).normal(size=(30, 8, 5))
    coarse = pack.contents(tape)
    assert coarse["type"] == "u1"
    assert np.abs(unpacked(coarse) - tape).max() <= np.abs(tape).max() / 255 + 1e-12


def test_an_empty_tape_can_be_packed():
    assert np.abs(unpacked(pack.contents(np.zeros((3, 2, 2))))).max() < 1e-4


# --- loading ----------------------------------------------------------------------------------------------------------


def test_the_page_loads_in_silence_and_asks_for_nothing(watch, known):
    page = watch([known])
    assert page.title() == "copy, NUTM"
    assert page.locator("h1").inner_text() == "copy, NUTM"
    assert "seed 0" in page.locator("#facts").inner_text()
    assert page.locator("#message").is_hidden()
    # The fixture checks that nothing was said on the console and that no other file was asked for.


def test_the_policy_forbids_the_network(watch, known):
    page = watch([known])
    refused = page.evaluate("fetch('http://127.0.0.1:9/').then(() => 'answered', error => 'refused')")
    assert refused == "refused"
    assert any("Content Security Policy" in words for words in page.complaints)
    page.complaints.clear()
    page.requests[:] = [page.own]


@pytest.mark.parametrize(
    "markup", ["<img src=x onerror=alert(1)>", "</script><script>alert(1)</script>", "{{DATA}} & <b>"]
)
def test_names_with_markup_are_shown_as_they_are(watch, known, markup):
    named = replace(known, name=markup, subtasks=(markup, "two"))
    page = watch([named], title=markup)
    assert page.locator("h1").inner_text() == markup
    assert page.title() == markup
    assert page.locator("#sample option").inner_text().startswith(markup)
    assert page.locator("img, #story i").count() == 0


def test_nothing_to_show_is_one_sentence():
    with pytest.raises(UserError, match="no execution"):
        viewer([], "nothing")


# --- moving -----------------------------------------------------------------------------------------------------------


def test_keys_move_through_time(watch, known):
    page = watch([known])
    seen = []
    for key in [
        "ArrowRight",
        "ArrowRight",
        "ArrowLeft",
        "End",
        "Home",
        "d",
        "Shift+ArrowRight",
        "Shift+ArrowLeft",
        "e",
    ]:
        page.keyboard.press(key)
        seen.append(step(page))
    assert seen == [1, 2, 1, 5, 0, 3, 5, 0, 4]
    assert page.locator("#story-step").inner_text() == "Step 5 of 6"


def test_keys_on_the_slider_move_once(watch, known):
    page = watch([known])
    page.locator("#slider").focus()
    page.keyboard.press("ArrowRight")
    assert step(page) == 1


def test_the_slider_and_the_buttons_move_through_time(watch, known):
    page = watch([known])
    page.locator("#slider").fill("4")
    assert step(page) == 4
    assert "Step 5" in page.locator("#story").inner_text()
    for button, expected in (("back", 3), ("forward", 4), ("last", 5), ("first", 0)):
        page.locator(f"#{button}").click()
        assert step(page) == expected


def test_playing_goes_on_to_the_end_and_space_pauses(watch, known):
    page = watch([known])
    page.select_option("#speed", "60")
    page.keyboard.press(" ")
    page.wait_for_selector("body[data-step='5']")
    page.wait_for_selector("body[data-playing='false']")
    page.select_option("#speed", "2")
    page.locator("#title").click()
    page.keyboard.press(" ")
    assert page.evaluate("document.body.dataset.playing") == "true"
    assert page.locator("#play").get_attribute("aria-label") == "Pause"
    page.keyboard.press(" ")
    assert page.evaluate("document.body.dataset.playing") == "false"
    assert step(page) < 5


def test_a_click_into_the_sequence_goes_there(watch, known):
    page = watch([known])
    canvas = page.locator("canvas[data-row='input']")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    page.mouse.click(box["x"] + box["width"] * 4.5 / 6, box["y"] + 5)
    assert step(page) == 4
    head = page.locator("#playhead").bounding_box()
    assert abs(head["x"] + head["width"] / 2 - (box["x"] + box["width"] * 4.5 / 6)) < 2


def test_a_link_opens_at_a_step(watch, known):
    page = watch([known])
    for wanted, expected in (("#4", 3), ("#99", 5), ("#<b>", 0)):
        page.goto("about:blank")
        page.goto(page.own + wanted)
        page.wait_for_selector("body[data-ready]")
        assert step(page) == expected
    page.requests[:] = [page.own]


def test_sequences_and_heads_can_be_chosen(watch, traced):
    page = watch(traced.executions)
    page.keyboard.press("]")
    page.wait_for_selector("body[data-sample='1']")
    assert page.locator("#sample").input_value() == "1"
    page.select_option("#sample", "0")
    page.wait_for_selector("body[data-sample='0']")
    heads = traced.executions[0].heads
    chips = page.locator("#heads button")
    assert chips.all_inner_texts() == [head.name for head in heads]
    for n in range(len(heads)):
        if chips.nth(n).get_attribute("aria-pressed") == "false":
            chips.nth(n).click()
    for head in heads:
        assert page.locator(f"canvas[data-row='{head.name}: slots']").count() == 1
    for n in range(len(heads)):
        chips.nth(n).click()
    assert page.locator("canvas[data-row$=': slots']").count() == 0


def test_the_next_pair_of_heads(watch, traced):
    page = watch(traced.executions)
    names = [head.name for head in traced.executions[0].heads]
    pressed = page.locator("#heads button[aria-pressed=true]")
    seen = set()
    for _ in range(2):
        page.keyboard.press("h")
        assert [name.split()[0] for name in pressed.all_inner_texts()] == ["read", "write"]
        seen |= set(pressed.all_inner_texts())
    assert seen == set(names)


# --- values -----------------------------------------------------------------------------------------------------------


def test_the_program_bars_are_those_of_the_step(watch, known):
    page = watch([known])
    for t in (0, 2, 5):
        page.locator("#slider").fill(str(t))
        for head in known.heads:
            for p, share in enumerate(head.programs[t]):
                value = page.locator(f"[data-mix='{head.name}/{p + 1}']").inner_text()
                assert value == f"{share:.3f}"


@pytest.mark.parametrize("t", [0, 3, 4])
def test_hovering_tells_the_values_of_the_trace(watch, known, t):
    page = watch([known])
    x = (t + 0.5) / known.steps
    for slot in range(8):
        words = hover(page, "read 1: slots", x, (slot + 0.5) / 8)
        assert words == f"step {t + 1}, slot {slot}: read 1 {known.heads[0].address[t, slot]:.0f}"
    words = hover(page, "write 1: slots", x, 1.5 / 8)
    assert float(words.split()[-1]) == pytest.approx(0.75, abs=1e-4)
    for c in range(2):
        assert hover(page, "input", x, (c + 0.5) / 2) == f"step {t + 1}, input {c + 1}: {known.inputs[t, c]:.0f}"
    words = hover(page, "output", x, 0.75)
    if t < known.decoding:
        assert "not scored" in words
    else:
        value = re.search(r"output 2: ([\d.]+)", words)
        assert float(value[1]) == pytest.approx(known.answers[t, 1], abs=1e-4)
        assert ("wrong: target 1" in words) == bool(known.wrong[t, 1])
    shares = [float(share) for share in re.findall(r": ([\d.]+)", hover(page, "read 1: programs", x))]
    assert shares == pytest.approx(known.heads[0].programs[t], abs=1e-4)


def test_hovering_over_the_tape_tells_its_contents(watch, known):
    page = watch([known])
    page.keyboard.press("ArrowRight")
    box = page.locator("#tape").bounding_box()
    lane, contents = 44, 150  # a read head above, and what a tape of three numbers a slot is given
    for slot, m in ((0, 0), (5, 2)):
        page.mouse.move(box["x"] + (slot + 0.5) / 8 * box["width"], box["y"] + lane + (m + 0.5) / 3 * contents)
        lines = page.locator("#tip").inner_text().splitlines()
        assert lines[0] == f"slot {slot}"
        number = re.fullmatch(rf"number {m + 1}: (-?[\d.]+)", lines[1])
        assert float(number[1]) == pytest.approx(known.memory[1, slot, m], abs=2e-3)
        assert lines[2] == f"read 1: {known.heads[0].address[1, slot]:.0f}"


def test_values_of_every_memory_match_its_trace(watch, traced):
    page = watch(traced.executions)
    run = traced.executions[0]
    page.keyboard.press("d")
    first, count = used_slots(run.heads)
    for chip in page.locator("#heads button").all():
        if chip.get_attribute("aria-pressed") == "false":
            chip.click()
    for head in run.heads:
        for place in range(0, count, 3):
            slot = (first + place) % 8
            words = hover(page, f"{head.name}: slots", (run.decoding + 0.5) / run.steps, (place + 0.5) / count)
            assert f"slot {slot}:" in words
            assert float(words.split()[-1]) == pytest.approx(head.address[run.decoding, slot], abs=1e-4)
    for p, share in enumerate(run.heads[0].programs[run.decoding]):
        value = page.locator(f"[data-mix='read 1/{p + 1}']").inner_text()
        assert float(value) == pytest.approx(share, abs=6e-4)


def test_the_story_says_what_happens(watch, known):
    page = watch([known])
    page.locator("#slider").fill("4")
    words = page.locator("#story").inner_text()
    assert "Step 5 of 6" in words
    assert "It is answering (repeat-copy)." in words
    assert "Reads slot 2 with program 2 (0.90)." in words
    assert "Writes slot 1 (0.75) with program 1 (0.90)." in words
    assert "00: 1 bit wrong." in words
    page.locator("#slider").fill("3")
    assert "10: correct." in page.locator("#story").inner_text()
    page.locator("#slider").fill("0")
    assert "It is reading the input (copy)." in page.locator("#story").inner_text()
    assert "answers" not in page.locator("#story").inner_text()


def test_a_recording_has_the_programs_of_state_network_and_output_layer(watch, known):
    mix = known.heads[0].programs
    page = watch([replace(known, parts=(("state", mix), ("output", 1 - mix)))])
    page.locator("#slider").fill("4")
    assert "State with program 2 (0.90), output with 1 (0.90)." in page.locator("#story").inner_text()
    words = hover(page, "output: programs", 1.5 / known.steps)
    shares = [float(share) for share in re.findall(r": ([\d.]+)", words)]
    assert words.startswith("step 2, output")
    assert shares == pytest.approx(1 - mix[1], abs=1e-4)


def test_words_are_told_where_numbers_stand_for_them(watch, known):
    run = replace(known, choice=True, words=("mary", "<b>"))
    page = watch([run])
    assert "the word is “mary”" in page.locator("#story").inner_text()
    assert hover(page, "input", 0.5 / 6, 0.75) == "step 1, input: mary"
    assert hover(page, "output", 4.5 / 6) == "step 5, output: <b> (30.0 %)"
    page.locator("#slider").fill("5")  # targets are equal there: the first counts as right, and is chosen
    assert "mary (80 %): correct." in page.locator("#story").inner_text()
    page.locator("#slider").fill("4")
    page.wait_for_selector("body[data-step='4']")
    assert "<b> (30 %): correct." in page.locator("#story").inner_text()


def test_pictures_have_the_colours_of_what_they_show(watch, known):
    page = watch([known], color_scheme="light")
    for t in range(3):
        for c in range(2):
            colour = pixel(page, "input", (t + 0.3) / 6, (c + 0.5) / 2)
            assert (sum(colour) < 200) == (known.inputs[t, c] == 1)
    red = pixel(page, "output", 4.08 / 6, 1.5 / 2)
    assert red == [0xC1, 0x12, 0x1F]
    dark = pixel(page, "read 1: slots", 1.5 / 6, 7.5 / 8)
    assert dark == [0x00, 0x56, 0x4D]
    assert pixel(page, "read 1: slots", 1.5 / 6, 3.5 / 8) == [255, 255, 255]
    assert pixel(page, "read 1: programs", 2.5 / 6, 0.9) == [0x00, 0x72, 0xB2]
    assert pixel(page, "read 1: programs", 2.5 / 6, 0.1) == [0xE6, 0x9F, 0x00]


def test_the_phases_are_told(watch, known):
    page = watch([known])
    assert hover(page, "phase", 0.5 / 6) == "step 1: copy, reading the input"
    assert hover(page, "phase", 5.5 / 6) == "step 6: repeat-copy, answering"
    page.mouse.move(5, 5)
    green = pixel(page, "input", 3 / 6, 0.5)
    assert green == [0x23, 0x88, 0x3F]


def test_a_machine_without_programs_says_so(watch, plain):
    page = watch(plain)
    assert "stores no programs" in page.locator("#mix").inner_text()
    assert page.locator("canvas[data-row$=': programs']").count() == 0
    assert "program" not in page.locator("#story").inner_text()


def test_a_trace_without_the_tape_can_be_watched(watch, known):
    page = watch([replace(known, memory=None)])
    page.keyboard.press("ArrowRight")
    assert "8 slots;" in page.locator("#tape-hint").inner_text()


# --- looks ------------------------------------------------------------------------------------------------------------


def test_light_and_dark_follow_the_system_and_the_button(watch, known):
    page = watch([known], color_scheme="dark")
    background = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(background)
    page.locator("#theme").click()
    assert page.evaluate(background) != dark
    assert pixel(page, "input", 3.5 / 6, 0.5) == [255, 255, 255], "pictures are drawn anew"


def contrast(one, other):
    def luminance(colour):
        light = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        light = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in light]
        return 0.2126 * light[0] + 0.7152 * light[1] + 0.0722 * light[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_can_be_read(watch, known, scheme):
    page = watch([known], color_scheme=scheme)
    page.locator("#slider").fill("4")
    found = page.evaluate("""() => {
        const paper = (e) => getComputedStyle(e).backgroundColor;
        const seen = [...document.querySelectorAll("h1, h2, p, label, button, select, b, span, output")]
            .filter((e) => e.offsetParent && e.textContent.trim());
        return seen.map((e) => {
            let behind = e;
            while (behind && paper(behind) === "rgba(0, 0, 0, 0)") behind = behind.parentElement;
            return [e.textContent.trim().slice(0, 30), getComputedStyle(e).color, paper(behind)];
        });
    }""")
    assert len(found) > 20
    for text, ink, paper in found:
        assert contrast(ink, paper) >= 4.5, f"{text!r}: {ink} on {paper}"


def test_everything_that_can_be_used_has_a_name(watch, known):
    page = watch([known])
    unnamed = page.evaluate("""() => {
        const named = (e) => e.getAttribute("aria-label") || e.textContent.trim() || (e.labels && e.labels.length);
        const used = [...document.querySelectorAll("button, select, input, canvas")];
        return used.filter((e) => !named(e)).map((e) => e.id);
    }""")
    assert unnamed == []
    page.locator("#help-button").click()
    assert page.locator("#help").is_visible()
    page.keyboard.press("Escape")
    assert page.locator("#help").is_hidden()
    page.wait_for_selector("#help-button[aria-expanded='false']")  # a dialog tells of its closing a moment later


def test_the_keyboard_reaches_everything(watch, known):
    page = watch([known])
    reached = set()
    for _ in range(20):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.textContent"))
    assert {"sample", "theme", "help-button", "play", "slider", "speed", "read 1", "write 1"} <= reached


@pytest.mark.parametrize("width", [360, 768, 1920])
def test_nothing_sticks_out_at_any_width(watch, known, width):
    page = watch([known])
    page.set_viewport_size({"width": width, "height": 800})
    page.wait_for_timeout(100)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    canvas = page.locator("canvas[data-row='input']")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    page.mouse.click(box["x"] + box["width"] * 5.5 / 6, box["y"] + 3)
    assert step(page) == 5


# --- long sequences ---------------------------------------------------------------------------------------------------


def test_a_thousand_steps_on_128_slots_play_smoothly(watch):
    steps, slots, width = 1_000, 128, 20
    random = np.random.default_rng(0)
    address = np.zeros((steps, slots), np.float32)
    address[np.arange(steps), np.arange(steps) % slots] = 0.9
    mix = random.dirichlet((1, 1, 1), steps).astype(np.float32)
    bits = (random.random((steps, 8)) < 0.5).astype(np.float32)
    tape = np.cumsum(random.normal(size=(steps, slots, width)).astype(np.float32) * address[:, :, None], axis=0)
    run = Execution(
        "long", bits, bits, np.abs(bits - 0.2), np.arange(steps) >= 500, 500, np.full(steps, -1), (),
        (HeadTrace("read 1", "read", address, mix), HeadTrace("write 1", "write", address, mix)), tape[:, 0], tape,
    )  # fmt: skip
    text = viewer([run], "long")
    assert len(text) < 4_000_000
    page = watch([run], title="long")
    took = page.evaluate("""async () => {
        const times = [];
        for (let t = 0; t < 200; t++) {
            const began = performance.now();
            go(t * 5);
            times.push(performance.now() - began);
        }
        times.sort((a, b) => a - b);
        return times[100];
    }""")
    assert took < 16, f"a step takes {took:.1f} ms to draw: less than 60 a second"
    words = hover(page, "read 1: slots", 777.5 / steps, (777 % slots + 0.5) / slots)
    assert words.startswith(f"step 778, slot {777 % slots}: read 1 0.9")
