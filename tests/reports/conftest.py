"""Executions known by heart, and a real browser."""

import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from nsm import DNC, LRUA, NTM, NUTM, Controller
from nsm.machine import MANN
from nsm.plots.heads import HeadTrace
from nsm.reports.execution import Execution, execute
from nsm.tasks import Copy, Padded

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture
def known():
    """A hand-made execution: 6 steps, 2 in, 2 out, 8 slots; decoding at step 3; one wrong bit, at step 4, output 1.

    The read head walks over slots 6, 7, 0, 1, 2, 3, around the end of the tape; the write head stays on slot 1.
    """
    inputs = np.array([[1, 0], [0, 1], [1, 1], [0, 0], [0, 0], [0, 0]], np.float32)
    targets = np.array([[0, 0], [0, 0], [0, 0], [1, 0], [0, 1], [1, 1]], np.float32)
    answers = np.array([[0.5, 0.5], [0.5, 0.5], [0.5, 0.5], [0.9, 0.1], [0.2, 0.3], [0.8, 0.7]], np.float32)
    read, write = np.zeros((6, 8), np.float32), np.zeros((6, 8), np.float32)
    read[np.arange(6), [6, 7, 0, 1, 2, 3]] = 1
    write[:, 1] = 0.75
    mix = np.array([[1, 0], [0.9, 0.1], [0.75, 0.25], [0.2, 0.8], [0.1, 0.9], [0, 1]], np.float32)
    return Execution(
        name="known",
        inputs=inputs,
        targets=targets,
        answers=answers,
        counted=np.array([0, 0, 0, 1, 1, 1], bool),
        decoding=3,
        subtask=np.array([0, 1, 1, 0, 1, 1]),
        subtasks=("copy", "repeat-copy"),
        heads=(HeadTrace("read 1", "read", read, mix), HeadTrace("write 1", "write", write, mix[::-1].copy())),
        controller=np.arange(18, dtype=np.float32).reshape(6, 3),
        memory=np.linspace(-2, 2, 6 * 8 * 3, dtype=np.float32).reshape(6, 8, 3),
    )


KINDS = {
    "ntm": NTM(slots=8, width=3),
    "ntm, 2 heads": NTM(slots=8, width=3, read_heads=2, write_heads=2),
    "lrua": LRUA(slots=8, width=3, read_heads=2),
    "dnc": DNC(slots=8, width=3, read_heads=2),
}


@pytest.fixture(params=KINDS)
def traced(request):
    """A NUTM over every memory, a task it can be shown, and its executions."""
    generator = torch.Generator().manual_seed(1)
    task = Padded(Copy(width=2, length=(2, 6)), 5, 3)
    shape = {"controller": Controller(size=6), "memory": KINDS[request.param], "backend": "reference"}
    machine = NUTM(5, 3, 3, **shape, generator=generator)
    return SimpleNamespace(machine=machine, task=task, executions=execute(machine, task, samples=3, seed=4))


@pytest.fixture(scope="session")
def plain():
    """Executions of a machine that stores no programs."""
    generator = torch.Generator().manual_seed(1)
    shape = {"controller": Controller(size=6), "memory": NTM(slots=8, width=3), "backend": "reference"}
    machine = MANN(5, 3, **shape, generator=generator)
    return execute(machine, Padded(Copy(width=2, length=(2, 6)), 5, 3), samples=2)


@pytest.fixture(scope="session")
def browser():
    """A headless Chromium; tests that need one say so when there is none."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="needs playwright: pip install 'stored-programs[dev]'"
    )
    if CHROMIUM is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser, tmp_path):
    """Open HTML as a file, as a double click does; nothing may go to the console or ask for anything.

    Motion is reduced if nothing else is said, so that a page does not begin to play.
    """
    contexts = []

    def opened(text, fragment="", **options):
        options = {"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce", **options}
        path = tmp_path / f"page-{len(contexts)}.html"
        path.write_text(text, encoding="utf-8")
        context = browser.new_context(offline=True, **options)
        contexts.append(context)
        page = context.new_page()
        page.complaints, page.requests = [], []
        page.on("console", lambda message: page.complaints.append(message.text))
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("dialog", lambda dialog: (page.complaints.append(f"dialog {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: page.requests.append(request.url))
        page.goto(path.as_uri() + fragment)
        page.own = path.as_uri()
        return page

    yield opened
    for context in contexts:
        pages = context.pages
        for page in pages:
            assert page.complaints == []
            assert {request.partition("#")[0] for request in page.requests} == {page.own}
        context.close()
