"""Other ways to run the same training iteration: eager PyTorch, its compiler, and JAX.

Each takes the weights of our machine and is checked on the same batch before it is timed. All of them have to step
through the padding of a ragged batch.
"""

from __future__ import annotations

import os
import shutil
from typing import NamedTuple

import torch

from nsm.bench.equality import Absent, Peer
from nsm.bench.torch_peers import Compiled, Torch
from nsm.bench.work import Work
from nsm.checks import choose


class Kind(NamedTuple):
    title: str
    version: str


NAMES = ("eager", "compiled", "jax")


def chosen(names: str) -> list[str]:
    """The peers in a list like "eager,jax", the slowest last; empty for "none"."""
    wanted = [] if names in ("", "none") else [choose("peers", name.strip(), NAMES) for name in names.split(",")]
    return [name for name in ("compiled", "jax", "eager") if name in wanted]


def kind(name: str) -> Kind:
    """The title and version of a peer.

    Raises:
        Absent: something it needs is not installed.
    """
    if name == "jax":
        version = jax_version()
        if version is None:
            raise Absent("jax is not installed: pip install 'stored-programs[bench]'")
        return Kind("JAX scan", f"JAX {version}, lax.scan under jit")
    if name == "eager":
        return Kind("eager", f"PyTorch {torch.__version__}, eager")
    if not any(shutil.which(compiler) for compiler in (os.environ.get("CXX", ""), "c++", "g++", "clang++")):
        raise Absent("torch.compile needs a C++ compiler, and none is on the PATH")
    return Kind("torch.compile", f"PyTorch {torch.__version__}, steps compiled by inductor")


def jax_version() -> str | None:
    """None if it is not installed."""
    try:
        import jax
    except ImportError:
        return None
    return str(jax.__version__)


def build(name: str, work: Work, threads: int) -> Peer:
    """A peer with the work's batch and weights."""
    if name == "eager":
        return Torch(work, "reference")
    if name == "compiled":
        return Compiled(work)
    from nsm.bench.jax_peer import Jax

    return Jax(work, threads)
