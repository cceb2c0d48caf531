"""JSON files: read as untrusted input, and sealed with their own digest when nsm writes them.

Input is a regular file of bounded size, in UTF-8, with bounded nesting and numbers. A document that nsm wrote has in
`self` the sha256 of all the rest, so that damage is noticed. That vouches for the bytes, not for their author: types
are checked where a document is used (`nsm.tree.from_json`).
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nsm.files import Damaged, opened, read, write_atomically

LARGEST = 4 << 20
"""Maximum bytes of a document or of a line of metrics: a hundred times the largest ones."""
DEEPEST = 32
LONGEST = 32
"""Maximum characters of a number; nsm writes at most 25."""
SEAL = "self"
STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?+', re.DOTALL)
"""A string, possibly unterminated; possessive, so that each byte is read once."""
BRACKETS = b"[]{}"


def parse(content: bytes) -> Any:
    """The content of a JSON text; ValueError, with the reason, for one that nsm can't have written."""
    if content.count(b"{") + content.count(b"[") > DEEPEST and _depth(content) > DEEPEST:
        raise ValueError(f"nested more than {DEEPEST} deep")
    try:
        return json.loads(content.decode(), parse_int=_int, parse_float=_float, parse_constant=_constant)
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise ValueError("not JSON") from None


def _depth(content: bytes) -> int:
    depth = deepest = 0
    for bracket in STRING.sub(b"", content).translate(None, bytes(set(range(256)) - set(BRACKETS))):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _int(text: str) -> int:
    return int(_short(text))


def _float(text: str) -> float:
    value = float(_short(text))
    if not math.isfinite(value):
        raise ValueError(f"the number {text} is too large")
    return value


def _short(text: str) -> str:
    if len(text) > LONGEST:
        raise ValueError(f"a number of {len(text):,} digits")
    return text


def _constant(text: str) -> Any:
    raise ValueError(f"{text} is not a number")


def read_any(path: Path) -> Any:
    """The content of a JSON file, whoever wrote it; OSError if it is missing."""
    return parsed(path, read(path, LARGEST))


def parsed(path: Path, content: bytes) -> Any:
    """The parsed content of the JSON file at `path`, whoever wrote it."""
    try:
        return parse(content)
    except ValueError as error:
        raise Damaged(f"{path} is damaged: {error}") from None


def read_sealed(path: Path) -> dict[str, Any]:
    """A document that `write` wrote, without its seal; OSError if it is missing."""
    return unsealed(path, read_any(path))


def unsealed(path: Path, document: Any) -> dict[str, Any]:
    """A document without its seal, which must match."""
    if not isinstance(document, dict):
        raise Damaged(f"{path} is damaged: not a JSON object")
    content = {name: value for name, value in document.items() if name != SEAL}
    if document.get(SEAL) != digest_of(content):
        raise Damaged(f"{path} is damaged: its sha256 is not the one it was written with")
    return content


def read_lines(path: Path) -> Iterator[Any]:
    """The lines of a file, each a JSON text; an unterminated last line is still being written."""
    with opened(path) as file:
        number = 0
        while (line := file.readline(LARGEST)).endswith(b"\n"):
            number += 1
            try:
                yield parse(line)
            except ValueError as error:
                raise Damaged(f"{path} is damaged: line {number} is not a line of metrics: {error}") from None
        if len(line) == LARGEST:
            raise Damaged(f"{path} is damaged: line {number + 1} is not terminated")


def write(path: Path, document: dict[str, Any], indent: int | None = 2) -> None:
    """Write a document with its digest, atomically."""
    write_atomically(path, text(document, indent) + b"\n")


def text(document: dict[str, Any], indent: int | None = 2) -> bytes:
    """The bytes of a sealed document; without an `indent`, as short as possible."""
    separators = (",", ":") if indent is None else None
    sealed = {**document, SEAL: digest_of(document)}
    return json.dumps(sealed, indent=indent, separators=separators, allow_nan=False).encode()


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def digest_of(document: dict[str, Any]) -> str:
    """The digest of a document, whatever its spacing."""
    return digest(json.dumps(document, sort_keys=True).encode())
