"""Compiled kernels on disk, under a key of all that goes into them: an edited source is never served stale.

Numba's own cache looks at the file of the cached function only, while a kernel is made of many files. Here the cache's
directory is named after a hash of every source, so that an edit anywhere means a new directory.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numba
from llvmlite import binding as llvm
from numba import njit

import nsm.memories.dnc
import nsm.memories.ntm
import nsm.similarity
from nsm.files import cache_directory

logger = logging.getLogger("nsm")
_OPTIONS: dict[str, Any] = {"nogil": True, "_nrt": False, "no_cfunc_wrapper": True}
_INNER: dict[str, Any] = {**_OPTIONS, "no_cpython_wrapper": True}


def _sources() -> list[Path]:
    """All files that go into a kernel: the kernels, and the modules of the reference whose constants they take."""
    reference = (nsm.similarity, nsm.memories.ntm, nsm.memories.dnc)
    return [*sorted(Path(__file__).parent.glob("*.py")), *(Path(module.__file__ or "") for module in reference)]


def key(sources: list[Path]) -> str:
    """A name for what these sources, this Numba and this processor compile to."""
    digest = hashlib.sha256(f"{numba.__version__} {llvm.get_host_cpu_name()}".encode())
    for source in sources:
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


@cache
def directory() -> Path:
    """Where compiled kernels lie."""
    return cache_directory(f"kernels/{key(_sources())}")


def kernel(function: Callable[..., Any]) -> Any:
    """A function that kernels call. Python can't: the wrappers that would let it take longer to compile than the code.

    Buffers are owned by Python and outlive every call, so Numba need not count references to them, which in functions
    this small costs more than the arithmetic.
    """
    return njit(**_INNER)(function)


def compiled(function: Callable[..., Any]) -> Any:
    """An entry point of the kernels: compiled on its first call, loaded from the cache ever after."""
    settings: Any = numba.config
    before, settings.CACHE_DIR = settings.CACHE_DIR, str(directory())
    try:
        return njit(**_OPTIONS, cache=True)(function)
    finally:
        settings.CACHE_DIR = before


_announced: set[str] = set()


@contextmanager
def announced(name: str) -> Iterator[None]:
    """Around the first call of kernels: a line if they will have to be compiled."""
    if name in _announced:
        yield
        return
    marker = directory() / f"{name}.compiled"
    if not marker.exists():
        logger.warning("nsm: compiling the fused kernels for %s, once; this takes about half a minute …", name)
    yield
    marker.touch()
    _announced.add(name)
