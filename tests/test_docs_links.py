"""Links lead somewhere, and so do the names of files; the README fits a screen and a half; words are the field's."""

import re

import pytest

from pages import DOCUMENTS, ROOT, name, prose, read

PLACES = (ROOT, ROOT / "src", ROOT / "src" / "nsm")


def anchors(document):
    """The anchors of a page's headings, as GitHub and MyST make them."""
    found = set()
    for heading in re.findall(r"^#{1,6} (.+)$", prose(document), flags=re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", words).strip().replace(" ", "-")
        found.add(slug)
    return found


def broken(document, text):
    """The links of a text that lead nowhere, seen from a document."""
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?://", target):
            continue
        path, _, anchor = target.partition("#")
        page = (document.parent / path).resolve() if path else document
        if not page.exists() or (anchor and anchor not in anchors(page)):
            yield target


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_links_lead_somewhere(document):
    assert list(broken(document, prose(document))) == []


def test_a_broken_link_is_found():
    page = ROOT / "docs" / "howto" / "layer.md"
    text = "[a](module.md) [b](modul.md) [c](module.md#is-it-worth-it) [d](module.md#is-it) [e](#nowhere)"
    assert list(broken(page, text)) == ["modul.md", "module.md#is-it", "#nowhere"]


def test_there_are_links_to_check():
    found = [target for document in DOCUMENTS for target in re.findall(r"\]\(([^)\s]+)\)", prose(document))]
    assert len(found) > 100


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_files_that_are_named_exist(document):
    for file in re.findall(r"`((?:[\w-]+/)+[\w.-]*\.(?:py|md|txt|ipynb|js))`", read(document)):
        if not file.startswith(("runs/", "site/")):
            assert any((place / file).exists() for place in PLACES), file


def test_the_table_of_equations_names_code_that_exists():
    rows = re.findall(r"\| [^|]+ \| `([\w/]+\.py)`(?:: ([^|]*))? \|", read(ROOT / "docs/concepts/equations.md"))
    assert len(rows) > 15
    for file, names in rows:
        source = (ROOT / "src" / "nsm" / file).read_text(encoding="utf-8")
        for found in re.findall(r"`([A-Za-z_]+(?:\.[A-Za-z_]+)?)`", names or ""):
            last = found.split(".")[-1]
            assert re.search(rf"(class|def) {last}\b|\b{last}:", source), f"{file} has no {found}"


def test_the_readme_is_a_screen_and_a_half():
    assert len(read(ROOT / "README.md").split()) <= 700


OURS = {
    "back end": "backend",
    "held-out": "validation",
    "listening": "while reading the input",
    "thrown off": "diverges",
    "by heart": "overfits",
    "found again": "reproduced",
    "in a row were": "in sequence",
    "goes on on": "resumes on",
    "came below": "falls below",
    "off guessing": "above chance level",
    "hyperparameter": "hyper-parameter",
}
"""What the field has another word for."""


@pytest.mark.parametrize("document", [page for page in DOCUMENTS if page.name != "results.md"], ids=name)
def test_one_word_for_one_thing(document):
    """docs/results.md is written by `nsm report`."""
    text = " ".join(prose(document).lower().split())
    assert {phrase: word for phrase, word in OURS.items() if phrase in text} == {}
