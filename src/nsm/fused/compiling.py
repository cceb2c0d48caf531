"""Kernels are compiled once for each memory, the two ways of a pass on two cores."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from nsm.fused import chunks, packing
from nsm.fused.cache import directory, once
from nsm.fused.kernels import TAPES
from nsm.memories import MemoryConfig

_compiled: set[type] = set()


def compile_for(memory: MemoryConfig) -> None:
    """Compile the kernels of a memory, unless that was ever done."""
    kind = type(memory)
    if kind not in _compiled:
        once(kind.__name__, lambda: _compile_apart(kind))
        compile_part(kind.__name__)
        _compiled.add(kind)


def compile_part(memory: str, part: str = "") -> None:
    """Compile, or find in the cache, the kernels of a memory by its name: those for the way there, for the way back, or
    all there are."""
    (tape,) = (TAPES[kind] for kind in TAPES if kind.__name__ == memory)
    entries = chunks.entries(tape.Work)
    shared = [packing.pack, packing.finish, packing.unpack, chunks.run]
    for made in {"there": [*shared, entries.there], "back": [entries.back]}.get(part, [*shared, *entries]):
        if made.address is None:
            made.compile()


def _compile_apart(kind: type[MemoryConfig]) -> None:
    """Both ways at once, one of them in another process, which hands it over in the cache: a compiler works on one
    core. What it does not hand over is compiled here."""
    with helper(f"from nsm.fused.compiling import compile_part; compile_part({kind.__name__!r}, 'back')") as other:
        compile_part(kind.__name__, "there")
        if other is not None:
            other.wait()
    compile_part(kind.__name__)


LEAVE = "import os, threading; threading.Thread(target=lambda: os._exit(len(os.read(0, 1))), daemon=True).start()"
"""A process that starts with this ends when nobody can write to it any more."""


@contextmanager
def helper(program: str) -> Iterator[subprocess.Popen[bytes] | None]:
    """Another process for a program, if there is a cache to leave something in, a core for it, and it can be started.

    It ends with the block, or with this process, however that ends. Ctrl-C is for this one alone.
    """
    if directory() is None or (os.cpu_count() or 1) < 2:
        yield None
        return
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
    try:
        other = subprocess.Popen(
            [sys.executable, "-P", "-c", f"{LEAVE}\n{program}"], env=environment, stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, process_group=0,
        )  # fmt: skip
    except OSError:  # it may not be allowed
        yield None
        return
    with other:  # in the end what it reads is closed
        yield other
