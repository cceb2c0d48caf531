"""Puts the page together: markup, style, script and data in one file."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from os import PathLike
from pathlib import Path

from nsm.checks import UserError
from nsm.machine import Machine
from nsm.reports.execution import Execution
from nsm.reports.output import write
from nsm.reports.viewer import pack
from nsm.reports.viewer.bundle import bundle
from nsm.reports.viewer.weights import portable


def page(
    executions: Sequence[Execution],
    title: str,
    facts: Sequence[str] = (),
    machines: Mapping[str, Machine] | None = None,
    slots: int | None = None,
) -> str:
    """The viewer of some executions of one machine as HTML.

    Args:
        executions: what the machine did; if the page contains the machine, only their sequences are used.
        title: title of the page.
        facts: shown at its bottom.
        machines: the machine by name, and optionally another to compare with. The page runs them on these sequences and
            on the user's input. Without them, or if the page can't run the first of them (as with a user's own memory),
            it replays the executions.
        slots: the size of the tape, if not the machine's own.
    """
    if not executions:
        raise UserError("there is no execution to show: pass at least one")
    here = files("nsm.reports.viewer")
    style = (here / "viewer.css").read_text(encoding="utf-8")
    script = bundle(here, "viewer.js")
    packed = {name: portable(machine) for name, machine in (machines or {}).items()}
    runs = bool(packed) and all(packed.values())
    sequences = [pack.sequence(run) | ({} if runs else {"recording": pack.recording(run)}) for run in executions]
    carried = [{"name": name, **machine} for name, machine in packed.items() if machine] if runs else []
    document = {
        "title": title,
        "facts": list(facts),
        "machines": carried,
        "slots": slots,
        "programs": _programs(executions[0]),
        "parts": [name for name, _ in executions[0].parts],
        "sequences": sequences,
    }
    parts = {
        "POLICY": policy(script, style),
        "TITLE": html.escape(title),
        "STYLE": style,
        "SCRIPT": script,
        "DATA": embedded(document),
    }
    text = (here / "viewer.html").read_text(encoding="utf-8")
    # Every second piece is the name of a part; a mark inside a part stays what it is.
    pieces = re.split(r"\{\{([A-Z]+)\}\}", text)
    return "".join(parts[piece] if index % 2 else piece for index, piece in enumerate(pieces))


def _programs(run: Execution) -> int:
    """How many programs each head has."""
    return max((head.programs.shape[1] for head in run.heads if head.programs is not None), default=0)


class Page(PathLike[str]):
    """A page: the path of the file it was written to, and displayed by a notebook."""

    HEIGHT = 860

    def __init__(self, text: str, path: Path | None = None) -> None:
        self.text, self.path = text, path
        if path is not None:
            write(path, text.encode())

    def __fspath__(self) -> str:
        if self.path is None:
            raise UserError("this page was not written to a file: pass out=PATH")
        return str(self.path)

    def __str__(self) -> str:
        return "a page in a notebook" if self.path is None else str(self.path)

    def __repr__(self) -> str:
        return f"Page({str(self)!r})"

    def _repr_html_(self) -> str:
        """The page in its own frame, whose script can't access the notebook."""
        text = html.escape(self.text, quote=True)
        style = f"width:100%;height:{self.HEIGHT}px;border:0"
        return f'<iframe sandbox="allow-scripts allow-downloads" style="{style}" srcdoc="{text}"></iframe>'


def policy(script: str, style: str) -> str:
    """A content security policy: a page can use its own script and styles, and load nothing else."""
    script, style = (
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in (script, style)
    )
    allowed = f"script-src {script}; style-src {style}; img-src data:"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


def embedded(document: object) -> str:
    """JSON that can stand inside a script element: nothing in it can end the element or begin another."""
    return json.dumps(document, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
