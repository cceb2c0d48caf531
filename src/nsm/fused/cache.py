"""Compiled kernels on disk, under a key of all that goes into them: an edited source is never served stale.

Numba's own cache looks at the file of the cached function only, while a kernel is made of many files, and keeps what it
finds apart by where that file lies. Here the cache's directory is named after a hash of every source: an edit anywhere
means a new directory, and two checkouts of the same sources share one.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numba
from llvmlite import binding as llvm
from numba import njit, types
from numba.core import config as _config
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator
from numba.core.ccallback import CFunc
from numba.core.codegen import get_host_cpu_features

import nsm.memories.dnc
import nsm.memories.memory
import nsm.memories.ntm
import nsm.similarity
from nsm.files import cache_directory
from nsm.fused.clock import PROFILING

logger = logging.getLogger("nsm")
settings: Any = _config
PLAIN = ("operators.py", "workspace.py")
"""Files of this package that no kernel is made of."""
_OPTIONS: dict[str, Any] = {"_nrt": False, "no_cfunc_wrapper": True}
_INNER: dict[str, Any] = {**_OPTIONS, "no_cpython_wrapper": True}


def _sources() -> list[Path]:
    """All files that go into a kernel: the kernels, and the modules of the reference whose constants they take."""
    reference = (nsm.similarity, nsm.memories.memory, nsm.memories.ntm, nsm.memories.dnc)
    kernels = sorted(path for path in Path(__file__).parent.glob("*.py") if path.name not in PLAIN)
    return [*kernels, *(Path(module.__file__ or "") for module in reference)]


@cache
def target() -> tuple[str, str]:
    """The processor that Numba compiles for, and its features: this one, or what NUMBA_CPU_NAME and
    NUMBA_CPU_FEATURES say."""
    name = llvm.get_host_cpu_name() if settings.CPU_NAME is None else settings.CPU_NAME
    return name, get_host_cpu_features() if settings.CPU_FEATURES is None else settings.CPU_FEATURES


def has(feature: str) -> bool:
    """Whether that processor has a feature, by LLVM's name for it."""
    return f"+{feature}" in target()[1].split(",")


def key(sources: list[Path]) -> str:
    """A name for what these sources, this Numba and this processor compile to."""
    digest = hashlib.sha256(f"{numba.__version__} {' '.join(target())}".encode())
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


def glue(function: Callable[..., Any]) -> Any:
    """A kernel that is called from one place and calls many: part of its caller. LLVM would optimise all that it calls
    once more for every function on the way."""
    return njit(**_INNER, inline="always")(function)


class _Locator(_CacheLocator):
    """Tells Numba where a function's compiled code lies, and what has to be the same for it to be good."""

    def __init__(self, function: Callable[..., Any], file: str) -> None:
        self._line, self._file = function.__code__.co_firstlineno, Path(file)

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> _Locator:
        return cls(function, file)

    def get_cache_path(self) -> str:
        return str(directory())

    def get_source_stamp(self) -> str:
        """The directory stands for the sources of kernels; a function elsewhere is made of its own file as well."""
        return key([self._file])

    def get_disambiguator(self) -> str:
        return f"{self._file.parent.name}-{self._line}"


class _Implementation(CompileResultCacheImpl):
    _locator_classes: Any = [_Locator]  # noqa: RUF012


class _Cache(FunctionCache):
    _impl_class = _Implementation

    def load_overload(self, *arguments: Any) -> Any:
        """None, so that it is compiled again, if what lies there is damaged: a file that a power cut emptied, say."""
        try:
            return super().load_overload(*arguments)
        except Exception as error:  # whatever pickle and LLVM make of it
            logger.warning("nsm: a compiled kernel in %s is damaged (%s): compiling it again", directory(), error)
            self.flush()
            return None


def compiled(function: Callable[..., Any]) -> Any:
    """A kernel that Python calls with arrays: compiled on its first call, loaded from the cache ever after."""
    dispatcher = njit(**_OPTIONS)(function)
    dispatcher._cache = _Cache(function)
    return dispatcher


def entry(function: Callable[[int], None]) -> Any:
    """An entry point that takes the address of a record: C to whoever calls it, Python and torch's threads alike."""
    made: Any = CFunc(function, (types.void(types.int64).args, types.void), {}, {"_nrt": False})
    if not PROFILING:  # where the clock is, is another place in every process
        made._cache = _Cache(function)
    return made


def once(name: str, use: Callable[[], None]) -> None:
    """Compile all kernels of a name by using them, unless that was ever done; says so, as it takes its time.

    Of several processes that start at the same time one compiles, and the others wait for what it leaves in the cache.
    """
    marker = directory() / f"{name}.compiled"
    if marker.exists() or PROFILING:
        return
    with (directory() / f"{name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logger.warning("nsm: another process is compiling the fused kernels for %s; waiting for it …", name)
            fcntl.flock(file, fcntl.LOCK_EX)
        if not marker.exists():
            with _countdown(name):
                use()
            marker.touch()


EXPECTED = 15
"""About how many seconds a memory takes, on a processor of today."""


@contextmanager
def _countdown(name: str) -> Iterator[None]:
    """Say that something is compiled, and every few seconds how long it will still take."""
    done, began = threading.Event(), time.monotonic()

    def tell() -> None:
        while not done.wait(EVERY):
            left = EXPECTED - (time.monotonic() - began)
            if left > 1:
                logger.warning("nsm: about %.0f s left", left)
            else:
                logger.warning("nsm: %.0f s so far; this processor takes longer than most", EXPECTED - left)

    logger.warning("nsm: compiling the fused kernels for %s, once; this takes about %d s …", name, EXPECTED)
    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()


EVERY = 5
