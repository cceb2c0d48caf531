"""Compiled kernels on disk, under a key of all that goes into them: an edited source is never served stale.

Numba's own cache looks at the file of the cached function only, while a kernel is made of many files, and keeps what it
finds apart by where that file lies. Here the cache's directory is named after a hash of every source: an edit anywhere
means a new directory, and two checkouts of the same sources share one.
"""

from __future__ import annotations

import hashlib
import io
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import numba
from llvmlite import binding as llvm
from numba import njit, types
from numba.core import config as _config
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile, _CacheLocator
from numba.core.ccallback import CFunc
from numba.core.codegen import get_host_cpu_features

import nsm.memories.dnc
import nsm.memories.memory
import nsm.memories.ntm
import nsm.similarity
from nsm import system
from nsm.files import PRIVATE, cache_directory, cannot_keep, keep
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


_full = False
"""Whether something could not be kept."""
_WHAT = "compiled kernels"


def directory() -> Path | None:
    """Where compiled kernels lie, safe to load; None if that is nowhere, so that every process compiles them."""
    return None if _full else _directory()


@cache
def _directory() -> Path | None:
    return cache_directory(f"kernels/{key(_sources())}")


def _go_without() -> None:
    """From here on nothing is kept."""
    global _full
    _full = True


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
    """Tells Numba where a function's compiled code lies, and what has to be the same for it to be good. The directory
    is there."""

    def __init__(self, function: Callable[..., Any], file: str) -> None:
        self._line, self._file = function.__code__.co_firstlineno, Path(file)

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> _Locator:
        return cls(function, file)

    def get_cache_path(self) -> str:
        return str(_directory())

    def ensure_cache_path(self) -> None:
        """Numba would make one that is not for us alone."""

    def get_source_stamp(self) -> str:
        """The directory stands for the sources of kernels; a function elsewhere is made of its own file as well."""
        return key([self._file])

    def get_disambiguator(self) -> str:
        return f"{self._file.parent.name}-{self._line}"


class _Implementation(CompileResultCacheImpl):
    _locator_classes: Any = [_Locator]  # noqa: RUF012


class _Files(IndexDataCacheFile):
    """Written for us alone, and not at all where the disk is full or may not be written."""

    @contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[io.BytesIO]:
        content = io.BytesIO()
        yield content
        if directory() is not None and not keep(Path(filepath), content.getvalue(), _WHAT):
            _go_without()


class _Cache(FunctionCache):
    _impl_class = _Implementation

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        stamp = self._impl.locator.get_source_stamp()
        self._cache_file = _Files(self.cache_path, self._impl.filename_base, stamp)

    def load_overload(self, *arguments: Any) -> Any:
        """None, so that it is compiled again, if what lies there is damaged: a file that a power cut emptied, say."""
        try:
            return super().load_overload(*arguments)
        except Exception as error:  # whatever pickle and LLVM make of it
            logger.warning("nsm: a compiled kernel in %s is damaged (%s): compiling it again", self.cache_path, error)
            self.flush()
            return None


def compiled(function: Callable[..., Any]) -> Any:
    """A kernel that Python calls with arrays: compiled on its first call, loaded from the cache ever after."""
    dispatcher = njit(**_OPTIONS)(function)
    if directory() is not None:
        dispatcher._cache = _Cache(function)
    return dispatcher


def entry(function: Callable[[int], None]) -> Any:
    """An entry point that takes the address of a record: C to whoever calls it, Python and torch's threads alike."""
    made: Any = CFunc(function, (types.void(types.int64).args, types.void), {}, {"_nrt": False})
    if directory() is not None and not PROFILING:  # where the clock is, is another place in every process
        made._cache = _Cache(function)
    return made


def once(name: str, use: Callable[[], None]) -> None:
    """Compile all kernels of a name by using them, unless that was ever done; says so, as it takes its time.

    Of several processes that start at the same time one compiles, and the others wait for what it leaves in the cache.
    Without a cache each of them does.
    """
    if PROFILING or _is_compiled(name):
        return
    with _turn(name):
        if not _is_compiled(name):
            with _countdown(name):
                use()
            place = directory()
            if place is not None:
                keep(place / f"{name}.compiled", b"", _WHAT)


def _is_compiled(name: str) -> bool:
    place = directory()
    return place is not None and (place / f"{name}.compiled").exists()


def _turn(name: str) -> AbstractContextManager[object]:
    """Wait until no other process compiles these kernels; until it is left, others wait."""
    place = directory()
    if place is None:
        return nullcontext()
    try:
        with ExitStack() as held:
            handle = os.open(place / f"{name}.lock", os.O_WRONLY | os.O_CREAT, PRIVATE)
            held.callback(os.close, handle)
            try:
                system.lock(handle, wait=False)
            except BlockingIOError:
                logger.warning("nsm: another process is compiling the fused kernels for %s; waiting for it …", name)
                system.lock(handle, wait=True)
            return held.pop_all()
    except OSError as error:
        cannot_keep(_WHAT, place, error)
        _go_without()
        return nullcontext()


EXPECTED = 15
"""About how many seconds a memory takes, on a processor of today; twice that without a cache, in which two processes
share the work."""


@contextmanager
def _countdown(name: str) -> Iterator[None]:
    """Say that something is compiled, and every few seconds how long it will still take."""
    done, began = threading.Event(), time.monotonic()
    once, expected = (", once", EXPECTED) if directory() is not None else ("", 2 * EXPECTED)

    def tell() -> None:
        while not done.wait(EVERY):
            left = expected - (time.monotonic() - began)
            if left > 1:
                logger.warning("nsm: about %.0f s left", left)
            else:
                logger.warning("nsm: %.0f s so far; this processor takes longer than most", expected - left)

    logger.warning("nsm: compiling the fused kernels for %s%s; this takes about %d s …", name, once, expected)
    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()


EVERY = 5
