"""Writing pages and figures to the paths that users choose."""

from __future__ import annotations

from pathlib import Path

from nsm.checks import UserError
from nsm.files import write_atomically


def write(path: Path, content: bytes) -> None:
    """Write a file atomically: an earlier one stays until the new one is complete."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():  # a pipe or a device can't be replaced
            path.write_bytes(content)
        else:
            write_atomically(path.resolve(), content)  # the target of a link, not the link
    except OSError as error:
        raise UserError(f"{path} can't be written: {error.strerror}") from None
