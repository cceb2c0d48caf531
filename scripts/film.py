"""The animation in README.md: the page of `nsm view`, step by step, in a real Chromium.

    python scripts/film.py results/models/single/default/copy/nutm docs/images/viewer.gif --length 16

Needs Chromium and the extra `dev`. What is shown is the page itself, from the input down to the tape.
"""

from __future__ import annotations

import argparse
import io
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image
from playwright.sync_api import FloatRect, Page, sync_playwright

import nsm

COLOURS = 160
FRAME, LAST = 160, 2500
"""Milliseconds for which a frame and the last one stay."""


def frames(page: Page) -> list[Image.Image]:
    """A picture of the page at every step."""
    top, bottom = page.locator("#try").bounding_box(), page.locator(".card:has(#tape)").bounding_box()
    assert top is not None
    assert bottom is not None
    clip: FloatRect = {
        "x": top["x"] - 8,
        "y": top["y"] - 8,
        "width": top["width"] + 16,
        "height": bottom["y"] + bottom["height"] + 16 - top["y"],
    }
    found = []
    for step in range(page.evaluate("state.run.steps")):
        page.evaluate(f"go({step})")
        found.append(Image.open(io.BytesIO(page.screenshot(clip=clip, full_page=True))).convert("RGB"))
    return found


def film(html: Path, out: Path) -> None:
    """All steps in one palette, so that what stays the same is not stored again."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("google-chrome"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 1080, "height": 900}, reduced_motion="reduce")
        page.goto(html.as_uri())
        page.wait_for_selector("body[data-ready]")
        found = frames(page)
        browser.close()
    few = found[:: max(1, len(found) // 4)]
    together = Image.new("RGB", (found[0].width, found[0].height * len(few)))
    for place, each in enumerate(few):
        together.paste(each, (0, place * each.height))
    palette = together.quantize(COLOURS)
    drawn = [each.quantize(palette=palette, dither=Image.Dither.NONE) for each in found]
    times = [FRAME] * (len(drawn) - 1) + [LAST]
    drawn[0].save(out, save_all=True, append_images=drawn[1:], duration=times, loop=0, optimize=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--length", type=int, default=16)
    given = parser.parse_args()
    with TemporaryDirectory() as directory:
        html = Path(directory, "view.html")
        nsm.open(given.run).view(length=given.length, samples=1, out=html)
        film(html, given.out)
    print(f"{given.out}: {given.out.stat().st_size / 1000:.0f} kB")
