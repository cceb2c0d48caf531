"""What every machine can do with itself: be saved, and be uploaded."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from nsm import hub, pretrained
from nsm.config import MachineConfig


class Saved(nn.Module):
    """A module that its configuration and its tensors describe; `Machine.from_pretrained` reads it."""

    config: MachineConfig

    def save_pretrained(self, directory: str | Path) -> None:
        """Write the machine to a directory as `config.json` and `model.safetensors`, which hold data only, no code."""
        kind = "MANN" if self.config.programs is None else "NUTM"
        pretrained.save(Path(directory), kind, self.config, self.state_dict())

    def push_to_hub(self, name: str, *, task: str = "", licence: str = "mit", private: bool | None = None) -> str:
        """Upload the machine and a card to the Hugging Face Hub as "user/name"; returns the address of the commit."""
        parameters = sum(parameter.numel() for parameter in self.parameters())
        card = hub.Card(name, type(self).__name__, self.config, parameters, task, licence)
        return hub.push(self.save_pretrained, card, private)
