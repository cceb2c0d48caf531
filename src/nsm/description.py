"""What a machine is, as far as its operator is concerned: a text that goes beside the tensors."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import lru_cache

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
        """Everything that `parse` needs; equal descriptions are equal texts."""
        return json.dumps({"kind": operator(self.memory), **asdict(self)}, separators=(",", ":"))


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
