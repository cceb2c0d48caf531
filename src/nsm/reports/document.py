"""A report as a list of blocks, rendered as one HTML page or one Markdown file."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from pathlib import Path

from matplotlib.figure import Figure

from nsm.plots.style import rendered
from nsm.reports.figures.saving import save
from nsm.reports.output import write
from nsm.reports.viewer.page import policy


@dataclass(frozen=True)
class Heading:
    """Begins a section; level 2 or 3."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    text: str


@dataclass(frozen=True)
class Note:
    """A footnote: where numbers come from."""

    text: str


@dataclass(frozen=True)
class Table:
    """Text in columns; the first `words` are aligned left, the others, numbers, right."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1
    caption: str = ""


@dataclass(frozen=True)
class Picture:
    """A figure, drawn on demand; `name` is that of its file."""

    name: str
    draw: Callable[[], Figure]
    caption: str

    @cached_property
    def figure(self) -> Figure:
        return self.draw()

    @cached_property
    def svg(self) -> bytes:
        return rendered(self.figure, "svg")


@dataclass(frozen=True)
class Verdict:
    """Whether a result of the paper was reproduced, and the reason."""

    status: str
    """reproduced, partly, not reproduced, not yet run, or measured if it is not in the paper"""
    reason: str


Block = Heading | Paragraph | Note | Table | Picture | Verdict


@dataclass(frozen=True)
class Document:
    """A title and its blocks."""

    title: str
    blocks: list[Block] = field(default_factory=list)


# --- HTML -------------------------------------------------------------------------------------------------------------


def to_html(document: Document) -> str:
    """A self-contained page: figures are embedded as SVG, no script, no external resources."""
    style = (files("nsm.reports") / "document.css").read_text(encoding="utf-8")
    sections = [block.text for block in document.blocks if isinstance(block, Heading) and block.level == 2]
    links = "".join(f'<li><a href="#{anchor(text)}">{html.escape(text)}</a></li>' for text in sections)
    contents = f'<nav aria-label="Contents"><ul>{links}</ul></nav>' if len(sections) > 1 else ""
    body = "\n".join(_html(block) for block in document.blocks)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy("", style)}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="light dark">\n'
        f"<title>{html.escape(document.title)}</title>\n<style>{style}</style>\n</head>\n"
        f"<body>\n<h1>{html.escape(document.title)}</h1>\n{contents}\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def anchor(text: str) -> str:
    """The name of a section in links, the same as on GitHub."""
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


def _html(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f'<h{level} id="{anchor(text)}">{html.escape(text)}</h{level}>'
        case Paragraph(text):
            return f"<p>{html.escape(text)}</p>"
        case Note(text):
            return f'<p class="note">{html.escape(text)}</p>'
        case Verdict(status, reason):
            mark = f'<strong class="verdict {status.replace(" ", "-")}">{html.escape(status)}</strong>'
            return f"<p>{mark} {html.escape(reason)}</p>"
        case Table():
            return _html_table(block)
        case Picture(name, _, caption):
            drawn = base64.b64encode(block.svg).decode()
            words = html.escape(caption, quote=True)
            image = f'<img src="data:image/svg+xml;base64,{drawn}" alt="{words}">'
            return f'<figure id="{html.escape(name, quote=True)}">{image}<figcaption>{words}</figcaption></figure>'


def _html_table(table: Table) -> str:
    def row(cells: Sequence[str], tag: str) -> str:
        kinds = ["" if n < table.words else ' class="figure"' for n in range(len(cells))]
        return "".join(f"<{tag}{kind}>{html.escape(cell)}</{tag}>" for cell, kind in zip(cells, kinds, strict=True))

    caption = f"<caption>{html.escape(table.caption)}</caption>" if table.caption else ""
    head = f"<thead><tr>{row(table.columns, 'th')}</tr></thead>"
    body = "".join(f"<tr>{row(cells, 'td')}</tr>" for cells in table.rows)
    return f'<div class="table"><table>{caption}{head}<tbody>{body}</tbody></table></div>'


# --- Markdown ---------------------------------------------------------------------------------------------------------


def to_markdown(document: Document, pictures: str, drawings: bool = False) -> str:
    """The same as Markdown; `pictures` is the directory of its figures, with `drawings` as SVG, too."""
    blocks = [f"# {_plain(document.title)}", *(_markdown(block, pictures, drawings) for block in document.blocks)]
    return "\n\n".join(blocks) + "\n"


def _plain(text: str) -> str:
    """Text with everything escaped that has a meaning in Markdown."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", text).replace("\n", " ")


def _markdown(block: Block, pictures: str, drawings: bool) -> str:
    match block:
        case Heading(text, level):
            return f"{'#' * level} {_plain(text)}"
        case Paragraph(text):
            return _plain(text)
        case Note(text):
            return f"*{_plain(text)}*"
        case Verdict(status, reason):
            return f"**{_plain(status)}** {_plain(reason)}"
        case Table(columns, rows, words, caption):
            marks = ["---" if n < words else "---:" for n in range(len(columns))]
            lines = [columns, marks, *rows]
            cells = [[_plain(cell) for cell in line] if line is not marks else marks for line in lines]
            table = "\n".join(f"| {' | '.join(line)} |" for line in cells)
            return f"{_plain(caption)}\n\n{table}" if caption else table
        case Picture(name, _, caption):
            image = f"![{_plain(re.split('[.;] ', caption)[0])}]({pictures}/{name}.png)"
            return f"{f'[{image}]({pictures}/{name}.svg)' if drawings else image}\n\n{_plain(caption)}"


def save_pictures(document: Document, directory: Path, drawings: bool = False) -> None:
    """Write every figure of a document as PNG, and as SVG if `drawings` are wanted, too."""
    for block in document.blocks:
        if isinstance(block, Picture):
            save(block.figure, directory / f"{block.name}.png")
            if drawings:
                write(directory / f"{block.name}.svg", block.svg)
