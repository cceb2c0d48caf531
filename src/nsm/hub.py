"""Machines on the Hugging Face Hub: the two files of `save_pretrained`, and a card. Needs the extra `hub`.

Anybody can have written what comes from there. Its size is asked for before it is downloaded; it is read and checked as
any saved machine is, and nothing in it is executed. The mixin uploads only: it would read a configuration unchecked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from nsm.checks import UserError, brief, free_memory
from nsm.documents import LARGEST
from nsm.network import Network
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
machine = nsm.Machine.from_pretrained("{{ name }}").eval()
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
    """The directory of a machine: `place`, or what "user/name" is on the Hub if there is no such directory.

    Args:
        revision: a branch, tag or commit of the Hub, where the machine is then looked for.
    """
    there = isinstance(place, str) and NAME.fullmatch(place) is not None
    if revision is not None and not there:
        raise UserError(f'only a machine of {WHERE}, "user/name", has a revision; {place} is none')
    return _downloaded(str(place), revision) if there and (revision or not Path(place).exists()) else Path(place)


def _downloaded(name: str, revision: str | None) -> Path:
    with _errors(name, f"{name} is no directory here, and is looked for on {WHERE}"):
        from huggingface_hub import hf_hub_download

        for file, most in ((CONFIG, LARGEST), (TENSORS, free_memory())):
            told = hf_hub_download(name, file, revision=revision, dry_run=True)
            if told.file_size is None or told.file_size > most:
                said = "is of unknown size" if told.file_size is None else f"has {told.file_size:,} bytes"
                raise UserError(f"{file} of {name} on {WHERE} {said}; it should have at most {most:,}")
            path = Path(hf_hub_download(name, file, revision=revision))
            revision = told.commit_hash  # the second file is of the same commit as the first
    return path.parent


def push(
    machine: Network, save: Callable[[Path], None], name: str, task: str, licence: str, private: bool | None
) -> str:
    """Upload a machine, as it is saved, in one commit, whose address is returned. A card that is there stays."""
    if not NAME.fullmatch(name):
        raise UserError(f'the name of a machine on {WHERE} is "user/name", was {name!r}')
    with _errors(name, f"{name} is to be uploaded to {WHERE}"):
        from huggingface_hub import HfApi, ModelHubMixin

        class Pushed(ModelHubMixin, model_card_template=CARD, library_name="stored-programs", license=licence):
            def _save_pretrained(self, save_directory: Path) -> None:
                save(save_directory)

        card = {
            "name": name,
            "kind": type(machine).__name__,
            "task": task or "not told",
            "config": machine.config,
            "memory": type(machine.memory if machine.config.memory is None else machine.config.memory).__name__,
            "parameters": f"{machine.parameter_count:,}",
            "licence": licence,
        }
        kept = "README.md" if HfApi().file_exists(name, "README.md") else None
        made = Pushed().push_to_hub(
            name,
            commit_message="A machine of nsm",
            private=private,
            ignore_patterns=kept,
            model_card_kwargs=card,
        )
    return str(made)


@contextmanager
def _errors(name: str, why: str) -> Iterator[None]:
    """What can go wrong with the Hub, in a sentence."""
    try:
        from huggingface_hub import errors
    except ImportError:
        raise UserError(f'{why}, which needs huggingface_hub: pip install "stored-programs[hub]"') from None
    try:
        yield
    except errors.RepositoryNotFoundError:
        raise UserError(f"{name} is neither a directory here nor a repository on {WHERE} that is open to you") from None
    except errors.RevisionNotFoundError:
        raise UserError(f"{name} on {WHERE} has no such revision") from None
    except errors.RemoteEntryNotFoundError:
        raise UserError(f"{name} on {WHERE} is not a saved machine: it needs {CONFIG} and {TENSORS}") from None
    except (errors.HfHubHTTPError, errors.LocalEntryNotFoundError, errors.HFValidationError, OSError) as error:
        raise UserError(f"{why}, which failed: {brief(str(error))}") from None
