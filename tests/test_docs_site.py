"""The documentation site builds without a warning, and has every page, public name and option."""

import html
import re
import subprocess
import sys

import pytest

import nsm
from pages import ROOT, read

PAGES = ROOT / "docs"
OPTIONS = (ROOT / "tests" / "cli" / "options.txt").read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built as README says, where warnings are errors."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", PAGES, out]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return out


def text_of(page):
    """Without tags, in which code is coloured letter by letter."""
    return html.unescape(re.sub(r"<[^>]+>", "", read(page)))


def test_every_page_is_on_the_site(site):
    made = {path.relative_to(site).with_suffix("").as_posix() for path in site.rglob("*.html")}
    assert {path.relative_to(PAGES).with_suffix("").as_posix() for path in PAGES.rglob("*.md")} <= made


def test_every_page_is_in_the_contents(site):
    contents = read(site / "index.html")
    for path in PAGES.rglob("*.md"):
        page = path.relative_to(PAGES).with_suffix(".html").as_posix()
        assert page == "index.html" or f'href="{page}"' in contents, page


def test_every_option_is_in_the_reference_of_commands(site):
    page = text_of(site / "reference" / "commands.html")
    options = {line.split(":")[0].split()[-1] for line in OPTIONS if ":" in line}
    options = {option for option in options if not re.match(r"--task\.(test|validation|subtasks|parts)\.", option)}
    assert len(options) > 100
    missing = [option for option in options if option.startswith("--") and option not in page]
    assert missing == []


def test_every_public_name_is_on_the_api_page(site):
    page = text_of(site / "reference" / "api.html")
    missing = [name for name in nsm.__all__ if not name.startswith("_") and not re.search(rf"\b{name}\b", page)]
    assert missing == []
