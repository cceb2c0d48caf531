"""The description of a machine that its operator takes, as text, beside the tensors."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from pathlib import Path

from nsm.controllers import Controller
from nsm.memories import MEMORIES, MemoryConfig
from nsm.programs import Programs


@dataclass(frozen=True)
class Description:
    """A machine without its weights, and without the widths of its input and output."""

    controller: Controller
    memory: MemoryConfig
    programs: Programs | None
    interface_norm: bool

    def __str__(self) -> str:
        """JSON for `parse`; equal descriptions are equal texts."""
        fields = {"kind": operator(self.memory), **asdict(self), "stamp": stamp()}
        return json.dumps(fields, separators=(",", ":"))


@cache
def stamp() -> str:
    """A digest of the operators' code.

    Compilers cache graphs on disk by the arguments of operators. With this among them, a graph for other code is not
    found.
    """
    sources = sorted(Path(__file__).with_name("fused").glob("*.py"))
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:8]


def operator(memory: MemoryConfig | None) -> str | None:
    """The name of a memory's operator, as in `torch.ops.nsm.ntm`; None for a memory of the user's own."""
    return next((name for name, kind in MEMORIES.items() if kind is type(memory)), None)


@lru_cache(maxsize=256)
def parse(text: str) -> Description:
    """The description from its text."""
    fields = json.loads(text)
    programs = fields["programs"]
    return Description(
        Controller(**fields["controller"]),
        MEMORIES[fields["kind"]](**fields["memory"]),
        None if programs is None else Programs(**{**programs, "parts": tuple(programs["parts"])}),
        fields["interface_norm"],
    )
