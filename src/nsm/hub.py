"""Machines on the Hugging Face Hub: the two files of `save_pretrained`, and a card. Needs the extra `hub`.

Files from the Hub may come from anyone. Their size is checked before the download; they are read and checked like any
saved machine, and nothing in them is executed. The mixin only uploads: it would read a configuration unchecked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nsm.checks import UserError, brief, free_memory
from nsm.config import MachineConfig
from nsm.documents import LARGEST
from nsm.pretrained import CONFIG, TENSORS

NAME = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
WHERE = "the Hugging Face Hub"
CARD = """---
{{ card_data }}
---

# {{ name }}

A {{ kind }} of [Neural Stored-program Memory](https://arxiv.org/abs/1906.08862), trained with `nsm`.

| | |
|---|---|
| task | {{ task }} |
| inputs, outputs | {{ config.input_size }}, {{ config.output_size }} |
| controller | {{ config.controller.kind }}, {{ config.controller.size }} units |
| memory | {{ memory }} |
| programs | {{ config.programs.count if config.programs else "none" }} |
| parameters | {{ parameters }} |

## How to load it

```python
import nsm  # pip install "stored-programs[hub]"
machine = nsm.Machine.from_pretrained("{{ name }}"{{ own }}).eval()
out, state = machine(x)  # x: {{ "(batch, time, inputs)" if config.batch_first else "(time, batch, inputs)" }}
```

Both files are data; nothing in them is executed.

## Licence

{{ licence }}

## Citation

```bibtex
@inproceedings{le2020neural,
  title = {Neural Stored-program Memory},
  author = {Le, Hung and Tran, Truyen and Venkatesh, Svetha},
  booktitle = {International Conference on Learning Representations},
  year = {2020}
}
```
"""


def find(place: str | Path, revision: str | None = None) -> Path:
    """The directory of a machine: `place` if it exists, else the download of "user/name" from the Hub.

    Args:
        revision: a branch, tag or commit; if given, the machine is always taken from the Hub.
    """
    there = isinstance(place, str) and NAME.fullmatch(place) is not None
    if there and revision is None and not Path(place).exists() and Path(place).parent.is_dir():
        # A typing mistake in a path must not load a stranger's machine.
        raise UserError(
            f"{Path(place).parent} has no {Path(place).name!r}; for a machine on {WHERE} say which revision, as in "
            'revision="main"'
        )
    if revision is not None and not there:
        raise UserError(f'revision needs a machine on {WHERE}, "user/name", was given with {str(place)!r}')
    return _downloaded(str(place), revision) if there and (revision or not Path(place).exists()) else Path(place)


def _downloaded(name: str, revision: str | None) -> Path:
    with _errors(name, f"{name} is not a local directory, and downloading it from {WHERE}"):
        from huggingface_hub import hf_hub_download

        for file, most in ((CONFIG, LARGEST), (TENSORS, free_memory())):
            told = hf_hub_download(name, file, revision=revision, dry_run=True)
            if told.file_size is None or told.file_size > most:
                said = "is of unknown size" if told.file_size is None else f"has {told.file_size:,} bytes"
                raise UserError(f"{file} of {name} on {WHERE} {said}; it should have at most {most:,}")
            path = Path(hf_hub_download(name, file, revision=revision))
            if path.parent.name != told.commit_hash:
                raise UserError(f"{name} on {WHERE} was changed during the download: try again")
            revision = told.commit_hash  # the second file is of the same commit as the first
    return path.parent


@dataclass(frozen=True)
class Card:
    """What the card says of a machine."""

    name: str
    kind: str
    config: MachineConfig
    parameters: int
    task: str
    licence: str

    def fields(self) -> dict[str, object]:
        """What stands in the places of the template."""
        own = self.config.memory is None
        return {
            **vars(self),
            "memory": "its own module" if own else type(self.config.memory).__name__,
            "own": ", memory=…" if own else "",
            "parameters": f"{self.parameters:,}",
            "task": " ".join(self.task.split()).replace("|", "\\|") or "not specified",
        }


def push(save: Callable[[Path], None], card: Card, private: bool | None) -> str:
    """Upload a machine, as it is saved, in one commit and return its address. An existing card is kept."""
    name = card.name
    if not NAME.fullmatch(name):
        raise UserError(f'the name of a machine on {WHERE} must be "user/name", was {name!r}')
    with _errors(name, f"uploading {name} to {WHERE}"):
        from huggingface_hub import HfApi, ModelHubMixin

        class Pushed(ModelHubMixin, model_card_template=CARD, library_name="stored-programs", license=card.licence):
            def _save_pretrained(self, save_directory: Path) -> None:
                save(save_directory)

        kept = "README.md" if HfApi().file_exists(name, "README.md") else None
        made = Pushed().push_to_hub(
            name,
            commit_message="Upload an nsm machine",
            private=private,
            ignore_patterns=kept,
            model_card_kwargs=card.fields(),
        )
    return str(made)


@contextmanager
def _errors(name: str, why: str) -> Iterator[None]:
    """Turn the errors of the Hub into sentences; `why` is what was attempted."""
    try:
        from huggingface_hub import errors
    except ImportError:
        raise UserError(f'{why} needs huggingface_hub: pip install "stored-programs[hub]"') from None
    unreachable: type[Exception] = getattr(errors, "HTTPError", OSError)  # of the client, whichever it is built on
    try:
        yield
    except errors.RepositoryNotFoundError:
        raise UserError(f"{name} is neither a local directory nor a repository on {WHERE} that you can read") from None
    except errors.RevisionNotFoundError:
        raise UserError(f"{name} on {WHERE} has no such revision") from None
    except errors.RemoteEntryNotFoundError:
        raise UserError(f"{name} on {WHERE} is not a saved machine: it needs {CONFIG} and {TENSORS}") from None
    except (
        unreachable,
        errors.HfHubHTTPError,
        errors.LocalEntryNotFoundError,
        errors.HFValidationError,
        OSError,
    ) as error:
        raise UserError(f"{why} failed: {brief(str(error))}") from None
