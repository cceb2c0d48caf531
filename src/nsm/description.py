"""What a machine is, as far as its operator is concerned: a text that goes beside the tensors, and what these are."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import lru_cache

from nsm.controllers import Controller
from nsm.memories import MEMORIES, MemoryConfig
from nsm.programs import Programs
from nsm.version import __version__

INPUTS = "Tensor x, Tensor[] state, Tensor[] parameters, Tensor? cell_noise, Tensor? program_noise, Tensor? lengths"
FORWARD = f"({INPUTS}, str description, int trace, bool keep=False) -> (Tensor, Tensor[], Tensor[], Tensor)"
BACKWARD = (
    f"(Tensor d_out, Tensor[] d_final, Tensor kept, {INPUTS}, str description, int trace, bool input_gradient,"
    " bool state_gradient) -> Tensor[]"
)
# Compilers keep graphs on disk, with calls of our operators in them, and find them again by the arguments only.
STAMP = hashlib.sha256(f"{__version__} {FORWARD} {BACKWARD}".encode()).hexdigest()[:8]
"""Of the operators as they are called: a text of another stamp is another argument."""


@dataclass(frozen=True)
class Description:
    """A machine without its weights, and without the widths of its input and output."""

    controller: Controller
    memory: MemoryConfig
    programs: Programs | None
    interface_norm: bool

    def __str__(self) -> str:
        """Everything that `parse` needs; equal descriptions are equal texts."""
        fields = {"kind": operator(self.memory), **asdict(self), "stamp": STAMP}
        return json.dumps(fields, separators=(",", ":"))


def operator(memory: MemoryConfig | None) -> str | None:
    """The name of the operator for a memory: `torch.ops.nsm.ntm` and so on; None for a memory of the user's own."""
    return next((name for name, kind in MEMORIES.items() if kind is type(memory)), None)


@lru_cache(maxsize=256)
def parse(text: str) -> Description:
    """The description that a text was made of."""
    fields = json.loads(text)
    programs = fields["programs"]
    return Description(
        Controller(**fields["controller"]),
        MEMORIES[fields["kind"]](**fields["memory"]),
        None if programs is None else Programs(**programs),
        fields["interface_norm"],
    )
