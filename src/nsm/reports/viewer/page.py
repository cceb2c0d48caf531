"""Puts the page together: markup, style, script and data in one file."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Sequence
from importlib.resources import files

from nsm.checks import UserError
from nsm.reports.execution import Execution
from nsm.reports.viewer import pack


def page(executions: Sequence[Execution], title: str, facts: Sequence[str] = ()) -> str:
    """The viewer of some executions of one machine as HTML; `facts` are said below the title."""
    if not executions:
        raise UserError("there is no execution to show")
    here = files("nsm.reports.viewer")
    style = (here / "viewer.css").read_text(encoding="utf-8")
    script = (here / "viewer.js").read_text(encoding="utf-8")
    document = {"title": title, "facts": list(facts), "executions": [pack.execution(run) for run in executions]}
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


def policy(script: str, style: str) -> str:
    """A content security policy that lets a page run and wear what it was made with, and reach nothing else."""
    script, style = (
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in (script, style)
    )
    allowed = f"script-src {script}; style-src {style}; img-src data:"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


def embedded(document: object) -> str:
    """JSON that can stand inside a script element: nothing in it can end the element or begin another."""
    return json.dumps(document, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
