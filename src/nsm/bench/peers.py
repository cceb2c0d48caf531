"""Other ways to run the same training iteration: PyTorch as it comes, its compiler, and JAX.

Each takes the weights of our machine and answers for the same batch before its time is taken. All of them step through
the padding of a ragged batch, which is what they have to do.
"""

from __future__ import annotations

import os
import shutil
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from nsm.bench.equality import Answer, gradients
from nsm.bench.work import Work
from nsm.checks import choose
from nsm.machine import MachineState, Noise
from nsm.nested import scale, select
from nsm.training.config import OptimiserConfig

OPTIMISER = OptimiserConfig()


class Absent(Exception):
    """Why a peer can't be asked here."""


class Peer(Protocol):
    """A system that learns from one batch, over and over."""

    def answer(self) -> Answer:
        """Outputs and gradients at the weights it has now; it learns nothing from that."""

    def iterate(self) -> None:
        """A whole training iteration: forward, loss, backward, update."""


class Torch:
    """A training iteration as anybody would write it with a machine, on either back end."""

    def __init__(self, work: Work, backend: str) -> None:
        self.work, self.machine = work, work.machine(backend)
        self.optimiser = torch.optim.RMSprop(
            self.machine.parameters(),
            lr=OPTIMISER.learning_rate,
            alpha=OPTIMISER.alpha,
            eps=OPTIMISER.epsilon,
            momentum=OPTIMISER.momentum,
            foreach=True,
        )

    def forward(self) -> Tensor:
        out: Tensor = self.machine(self.work.x, lengths=self.work.lengths)[0]
        return out

    def answer(self) -> Answer:
        self.optimiser.zero_grad(set_to_none=True)
        out = self.forward()
        self.work.loss(out).backward()
        return Answer(out.detach().numpy(), gradients(self.machine))

    def iterate(self) -> None:
        self.optimiser.zero_grad(set_to_none=True)
        self.work.loss(self.forward()).backward()
        self.optimiser.step()


class Compiled(Torch):
    """The reference's step as one graph that inductor compiles there and back; Python goes over time.

    The whole loop as one graph would take minutes to compile for each length.
    """

    def __init__(self, work: Work) -> None:
        super().__init__(work, "reference")
        # One graph for each kind of step, and no more: what other shapes left counts towards a limit.
        torch._dynamo.reset()
        options: dict[str, Any] = {"fullgraph": True, "dynamic": False, "options": {"cpp_wrapper": True}}
        self.step = torch.compile(self._step, **options)
        self.last_step = torch.compile(self._last_step, **options)

    def _step(self, x: Tensor, state: MachineState) -> tuple[Tensor, MachineState]:
        y, after, _ = self.machine._step(x, state, Noise())
        return y, after

    def _last_step(self, x: Tensor, state: MachineState, running: Tensor) -> tuple[Tensor, MachineState]:
        """One that some sequences do not have any more."""
        y, after = self._step(x, state)
        kept: MachineState = select(running, after, state)
        return scale(y, running), kept

    def forward(self) -> Tensor:
        x, lengths = self.work.x, self.work.lengths
        state, outputs = self.machine.initial_state(x.shape[1]), []
        shortest = len(x) if lengths is None else int(lengths.min())
        for t in range(len(x)):
            if lengths is None or t < shortest:
                y, state = self.step(x[t], state)
            else:
                y, state = self.last_step(x[t], state, t < lengths)
            outputs.append(y)
        return torch.stack(outputs)


class Kind(NamedTuple):
    title: str
    version: str


NAMES = ("eager", "compiled", "jax")


def chosen(names: str) -> list[str]:
    """The peers that a list like "eager,jax" names, the slowest last; none for "none"."""
    wanted = [] if names in ("", "none") else [choose("peers", name.strip(), NAMES) for name in names.split(",")]
    return [name for name in ("compiled", "jax", "eager") if name in wanted]


def kind(name: str) -> Kind:
    """What a peer is called, and its version.

    Raises:
        Absent: something that it needs is not installed.
    """
    if name == "jax":
        version = jax_version()
        if version is None:
            raise Absent("jax is not installed: pip install 'nsm[bench]'")
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
    """A peer that has the work's batch and weights."""
    if name == "eager":
        return Torch(work, "reference")
    if name == "compiled":
        return Compiled(work)
    from nsm.bench.jax_peer import Jax

    return Jax(work, threads)
