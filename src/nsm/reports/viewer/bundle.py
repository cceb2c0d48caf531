"""Joins ES modules into one script: a page is one file, while its sources stay modules that any tool can read."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from graphlib import TopologicalSorter
from importlib.resources.abc import Traversable

IMPORT = re.compile(r'^import \{\s*\w+(?:,\s*\w+)*,?\s*\} from "(\.\.?/[^"]+)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async function|function|class|const|let)\b)", re.MULTILINE)
DECLARED = re.compile(r"^(?:async )?(?:function\*?|class|const|let) (\w+)", re.MULTILINE)
UNKNOWN = re.compile(r"^(?:import|export|var|(?:const|let) [\[{]).*$", re.MULTILINE)
STRICT = '"use strict";\n'


def bundle(root: Traversable, entry: str) -> str:
    """The module `entry` of a directory and all it imports as one classic script, each after those it imports.

    Only `import { a, b } from "./x.js";` and `export` before a declaration are supported. The top-level names of all
    modules share the script's scope, so no two modules may declare the same name.
    """
    sources: dict[str, str] = {}
    imports: dict[str, list[str]] = {}

    def visit(name: str) -> None:
        text = (root / name).read_text(encoding="utf-8").removeprefix(STRICT)
        imports[name] = [posixpath.normpath(posixpath.join(posixpath.dirname(name), at)) for at in IMPORT.findall(text)]
        sources[name] = EXPORT.sub("", IMPORT.sub("", text))
        if unknown := UNKNOWN.search(sources[name]):
            raise ValueError(f"{name}: a page's script can't have {unknown[0]!r}")
        for other in imports[name]:
            if other not in imports:
                visit(other)

    visit(entry)
    declared = Counter(name for text in sources.values() for name in DECLARED.findall(text))
    if twice := [name for name, times in declared.items() if times > 1]:
        raise ValueError(f"declared by more than one module: {', '.join(twice)}")
    return STRICT + "".join(sources[name] for name in TopologicalSorter(imports).static_order())
