"""Torch's own threads, for kernels.

They wait for work without sleeping for a while, so a second team of threads would fight them for the cores. Torch gets
them from OpenMP, whose runtime is found in the process. Where there is none, Python's do.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

from nsm import system

_forked = False


def run(entry: Any, address: int, threads: int) -> None:
    """An entry point of the kernels on several threads, this one among them: it shares out the work itself."""
    if threads < 2 or _forked:
        entry.ctypes(address)
    else:
        _team()(entry, address, threads)


@cache
def _team() -> Callable[[Any, int, int], None]:
    try:
        # Part of the runtime's interface to compiled programs, so of every version: GNU's, and LLVM's and Intel's.
        parallel = ctypes.CDLL(None).GOMP_parallel
    except (AttributeError, OSError, TypeError):
        return _pythons
    parallel.argtypes, parallel.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint], None
    return lambda entry, address, threads: parallel(entry.address, address, threads, 0)


def _pythons(entry: Any, address: int, threads: int) -> None:
    futures = [_helpers(threads - 1).submit(entry.ctypes, address) for _ in range(threads - 1)]
    entry.ctypes(address)
    for future in futures:
        future.result()


@cache
def _helpers(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="nsm")


def _alone() -> None:
    """Threads stay behind when a process forks; work handed to them would wait for ever."""
    global _forked
    _forked = True


system.after_fork(_alone)
