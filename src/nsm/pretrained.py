"""A machine in a directory: `config.json` and `model.safetensors`. Data only, nothing executable.

The metadata of the tensors' file has their digest, and that of the configuration they were saved with. So an
interrupted save can't leave a mixture of two machines unnoticed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError, safe_open
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from nsm import documents
from nsm.checks import UserError, brief, free_memory
from nsm.files import Damaged, alone, opened, read, sweep, write_atomically
from nsm.tree import from_json, to_json

FORMAT = "nsm-machine"
VERSION = 2
CONFIG = "config.json"
TENSORS = "model.safetensors"

C = TypeVar("C")


def save(directory: Path, kind: str, config: Any, tensors: dict[str, Tensor]) -> None:
    """Write both files atomically, the configuration last: a reader never finds a half-written file."""
    document = {"format": FORMAT, "version": VERSION, "machine": kind, "config": to_json(config)}
    content = sealed_tensors({name: tensor.detach().cpu() for name, tensor in tensors.items()}, document)
    directory.mkdir(parents=True, exist_ok=True)
    with alone(directory):  # two machines saved at once must not leave a file of each
        sweep(directory)
        write_atomically(directory / TENSORS, content)
        documents.write(directory / CONFIG, document)


def sealed_tensors(tensors: dict[str, Tensor], document: dict[str, Any]) -> bytes:
    """A file of tensors, sealed with its own digest and that of its configuration."""
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    _, digest = _seal(save_tensors(tensors))
    # In one entry: safetensors writes several in random order, and the same machine must give the same bytes.
    return save_tensors(tensors, metadata={"sha256": f"{digest} {documents.digest_of(document)}"})


def _seal(content: bytes) -> tuple[list[str], str]:
    """The digests in the metadata of a file of tensors, and the digest of all the rest of it."""
    start = 8 + int.from_bytes(content[:8], "little")
    header = documents.parse(content[8:start])
    said = header.pop("__metadata__", {}).get("sha256", "")
    return said.split(), documents.digest(json.dumps(header, sort_keys=True).encode() + content[start:])


def load(directory: Path, cls: type[C]) -> tuple[str, C, dict[str, Tensor]]:
    """The machine's kind, configuration and tensors, checked before anything is built from them."""
    for name in (CONFIG, TENSORS):
        if not (directory / name).is_file():
            hint = "; nsm.load also reads runs and checkpoints" if directory.is_dir() else ""
            raise UserError(f"{directory} is not a saved machine: it has no {name}{hint}")
    document = documents.read_any(directory / CONFIG)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise UserError(f"{directory / CONFIG} does not describe an nsm machine")
    if document.get("version") != VERSION:
        raise UserError(f"{directory} has format version {document.get('version')!r}; this nsm reads version {VERSION}")
    document = documents.unsealed(directory / CONFIG, document)
    try:
        config = from_json(cls, document.get("config"))
    except ValueError as error:
        raise UserError(f"{directory / CONFIG} is damaged: {error}") from None
    return str(document.get("machine")), config, _load_tensors(directory / TENSORS, documents.digest_of(document))


def read_tensors(path: Path) -> bytes:
    """The content of a file of tensors, after a check that it is as long as its header says."""
    with opened(path):
        pass
    try:
        with safe_open(path, framework="pt"):
            pass
    except SafetensorError as error:
        raise Damaged(f"{path} is damaged: {brief(str(error))}") from None
    return read(path, free_memory())


def _load_tensors(path: Path, beside: str) -> dict[str, Tensor]:
    content = read_tensors(path)
    try:
        tensors, (said, digest) = load_tensors(content), _seal(content)
    except (SafetensorError, ValueError) as error:
        raise Damaged(f"{path} is damaged: {error}") from None
    if said[:1] != [digest]:
        raise Damaged(f"{path} is damaged: its sha256 is not the one it was written with")
    if said[1:] != [beside]:
        raise Damaged(f"{path} was not saved together with the {CONFIG} beside it: save the machine again")
    return tensors


def check(path: Path, found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    """Raise a UserError unless the tensors have the expected names and shapes, and one precision."""
    for name in sorted(found.keys() ^ expected.keys()):
        raise UserError(f"{path} {'has no' if name in expected else 'has an unknown'} tensor {name!r}")
    for name, tensor in expected.items():
        if found[name].shape != tensor.shape:
            raise UserError(f"{path}: {name} must have shape {tuple(tensor.shape)}, was {tuple(found[name].shape)}")
        if found[name].dtype != tensor.dtype and not tensor.is_floating_point():
            raise UserError(f"{path}: {name} must be of type {tensor.dtype}, was {found[name].dtype}")
    kinds = {found[name].dtype for name, tensor in expected.items() if tensor.is_floating_point()}
    if len(kinds) != 1 or not next(iter(kinds)).is_floating_point:
        names = ", ".join(sorted(map(str, kinds)))
        raise UserError(f"{path}: the tensors must be of one floating-point type, were {names}")
