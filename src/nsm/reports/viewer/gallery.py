"""A gallery: pages of trained machines in one folder, and an index that says what to look for."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files

import numpy as np

from nsm.plots.heads import HeadTrace, used_slots
from nsm.reports.execution import Execution
from nsm.reports.viewer.page import policy

Chosen = Mapping[str, int | str]
SINGLE, SEQUENCING = "single/default", "sequencing"


@dataclass(frozen=True)
class Exhibit:
    """One page of the gallery."""

    name: str
    """Of its file, without .html."""
    title: str
    run: str
    """The run's path under results/models."""
    look_for: str
    """What to look for, in a sentence or two."""
    beside: str | None = None
    chosen: Chosen = field(default_factory=dict)
    """Which sequences: `length` and the like."""


EXHIBITS = (
    Exhibit(
        "copy",
        "Copy",
        f"{SINGLE}/copy/nutm",
        "While the machine reads the input, the write head moves along the tape slot by slot and the read head waits "
        "at the start. Then the read head follows the same path. Compare the programs on either side of the green "
        "line.",
        chosen={"length": 24},
    ),
    Exhibit(
        "copy-beside-ntm",
        "Copy: NUTM beside NTM",
        f"{SINGLE}/copy/nutm",
        "The same input in a machine with stored programs and in one without. Both learned the same use of the tape.",
        beside=f"{SINGLE}/copy/ntm",
        chosen={"length": 20},
    ),
    Exhibit(
        "repeat-copy",
        "Repeat Copy",
        f"{SINGLE}/repeat-copy/nutm",
        "At the end of each repetition the read head jumps back: look for the program that does it. The machine was "
        "trained on up to ten repetitions: see how far it generalises.",
        chosen={"length": 6, "repeats": 5},
    ),
    Exhibit(
        "associative-recall",
        "Associative Recall",
        f"{SINGLE}/associative-recall/nutm",
        "The list is written in order. While the query is shown, the read head finds its place on the tape and then "
        "reads on from there. Choose another query and watch where it goes.",
        chosen={"items": 8},
    ),
    Exhibit(
        "associative-recall-beside-ntm",
        "Associative Recall: NUTM beside NTM",
        f"{SINGLE}/associative-recall/nutm",
        "Two machines, one list: compare where their heads go while reading the input and while answering.",
        beside=f"{SINGLE}/associative-recall/ntm",
        chosen={"items": 6},
    ),
    Exhibit(
        "priority-sort",
        "Priority Sort",
        f"{SINGLE}/priority-sort/nutm",
        "Five pairs of heads spread the vectors over the tape. Drag a priority and see where its vector goes; drag two "
        "close together and see whether the machine still tells them apart.",
    ),
    Exhibit(
        "n-grams",
        "Dynamic N-grams",
        f"{SINGLE}/ngrams/nutm",
        "The write head moves slowly while the read head keeps returning to earlier slots. No prediction is certain "
        "here: grey is a probability.",
        chosen={"length": 60},
    ),
    Exhibit(
        "copy-and-associative-recall",
        "Copy + Associative Recall",
        f"{SEQUENCING}/default/copy+associative-recall/nutm",
        "One program is used while reading the input, another moves the read head to the next slot, a third is used "
        "only for the step at which the task changes. Force one of them to see what it is for.",
    ),
    Exhibit(
        "copy-and-repeat-copy",
        "Copy + Repeat Copy",
        f"{SEQUENCING}/default/copy+repeat-copy/nutm",
        "Two lists on one tape: see where the second begins and which program returns the read head.",
        chosen={"length": 8, "repeats": 3},
    ),
    Exhibit(
        "copy-and-priority-sort",
        "Copy + Priority Sort",
        f"{SEQUENCING}/longer/copy+priority-sort/nutm",
        "Three pairs of heads share the work. Swap the two tasks and see what each pair does then.",
    ),
    Exhibit(
        "all-four",
        "Four tasks in a row",
        f"{SEQUENCING}/longer/copy+repeat-copy+associative-recall+priority-sort/nutm",
        "One machine, four programs, four tasks in any order. Watch the programs change where the tasks do.",
        chosen={"like": "training"},
    ),
    Exhibit(
        "omniglot",
        "Few-shot learning",
        "fewshot/default/omniglot-5/nutm",
        "The first time it sees a character it can only guess; from the second on it is mostly correct. Draw a "
        "character of your own twice and see whether it recognises it.",
    ),
    Exhibit(
        "babi",
        "Question answering",
        "babi/staged/babi/nutm-4",
        "One machine for twenty kinds of questions. Type a story of your own: where somebody is, who gave what to "
        "whom, what somebody is afraid of.",
    ),
)


@dataclass(frozen=True)
class Hung:
    """An exhibit with its picture, a line of facts, and the size of its page."""

    exhibit: Exhibit
    picture: str
    facts: str
    size: int


def index(hung: Sequence[Hung]) -> str:
    """The index as HTML."""
    style = (files("nsm.reports.viewer") / "gallery.css").read_text(encoding="utf-8")
    items = "\n".join(_item(each) for each in hung)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy("", style)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Machines that learned to program themselves</title>
<style>{style}</style>
</head>
<body>
<header>
<h1>Machines that learned to program themselves</h1>
<p>Each page holds a trained neural network with a memory tape, and runs it in your browser. Nobody told
it how to do its task: it learned from examples how to use the tape, and when to use which of its stored programs. Play
it, give it another input, or intervene and change what it does.</p>
</header>
<main>
{items}
</main>
</body>
</html>
"""


def _item(hung: Hung) -> str:
    exhibit = hung.exhibit
    title, look_for, facts = (html.escape(text) for text in (exhibit.title, exhibit.look_for, hung.facts))
    return f"""<a class="exhibit" href="{html.escape(exhibit.name)}.html">
{hung.picture}
<h2>{title}</h2>
<p>{look_for}</p>
<p class="facts">{facts} · {_megabytes(hung.size)}</p>
</a>"""


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.0f} kB"


def portrait(run: Execution) -> str:
    """The heads' addresses over time, as a small picture."""
    first, count = used_slots(run.heads)
    slots = run.heads[0].address.shape[1]
    marks = [mark for kind in ("read", "write") for mark in _marks(run, kind, first, count, slots)]
    box = f'viewBox="0 0 {run.steps} {count}" preserveAspectRatio="none" aria-hidden="true"'
    return f"<svg {box}>{''.join(marks)}</svg>"


def _marks(run: Execution, kind: str, first: int, count: int, slots: int) -> list[str]:
    """A point for every step at which the busiest head of a kind was on a slot."""
    heads = run.heads_of(kind)
    if not heads:
        return []
    head = max(heads, key=lambda each: _busy(each))
    best = head.address.argmax(axis=1)
    marks = []
    for t, slot in enumerate(best.tolist()):
        weight = float(head.address[t, slot])
        place = (slot - first) % slots
        if weight > 0.2 and place < count:
            marks.append(
                f'<rect class="{kind}" x="{t}" y="{place}" width="1" height="1" fill-opacity="{min(weight, 1):.2f}"/>'
            )
    return marks


def _busy(head: HeadTrace) -> float:
    """How concentrated a head is, and how often it moves."""
    moved = np.diff(head.address.argmax(axis=1)) != 0
    return float(head.address.max(axis=1).mean() * (0.2 + moved.mean() if moved.size else 0.2))
