"""The documents of the repository, and what stands in them."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
CODE = re.compile(r"^```(.*?)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def name(document):
    return document.relative_to(ROOT).as_posix()


def read(document):
    return document.read_text(encoding="utf-8")


def prose(document):
    """Without blocks of code."""
    return CODE.sub("", read(document))


def blocks(kind):
    """All fenced blocks of a kind, by their document and their place in it."""
    return [
        pytest.param(block, id=f"{name(document)}-{n}")
        for document in DOCUMENTS
        for n, block in enumerate(code for label, code in CODE.findall(read(document)) if label == kind)
    ]
