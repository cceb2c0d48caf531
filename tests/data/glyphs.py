"""A small set of made-up glyphs in the layout of Omniglot: what the pipeline is tested on where the data is not."""

import io
import zipfile
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
from PIL import Image

SIDE, DRAWINGS = 105, 20
ALPHABETS = {
    "images_background": {"Arrows": 8, "Knots_(made_up)": 10},
    "images_evaluation": {"Waves": 9, "Twigs": 9},
}
CHARACTERS = sum(sum(alphabets.values()) for alphabets in ALPHABETS.values())
TEST = 12
"""How many characters are for testing."""


def strokes(random: np.random.Generator) -> np.ndarray:
    """The corners (3, 4, 2) of a character's three strokes."""
    return random.uniform(15, 90, (3, 4, 2))


def draw(lines: np.ndarray) -> np.ndarray:
    """Ink (105, 105) of strokes, three pixels wide."""
    ink = np.zeros((SIDE, SIDE), dtype=bool)
    places = np.linspace(lines[:, :-1], lines[:, 1:], 120).reshape(-1, 2)
    for shift in product((-1, 0, 1), repeat=2):
        ink[tuple(np.clip(places + shift, 0, SIDE - 1).astype(int).T)] = True
    return ink


def png(ink: np.ndarray) -> bytes:
    """A one-bit image: ink is black, 0, as in the data set."""
    content = io.BytesIO()
    Image.fromarray(~ink).save(content, "PNG")
    return content.getvalue()


@cache
def files() -> dict[str, bytes]:
    """Every drawing by its name inside the archives; the same in every process."""
    random = np.random.Generator(np.random.Philox(7))
    found, number = {}, 0
    for part, alphabets in ALPHABETS.items():
        for alphabet, characters in alphabets.items():
            for character in range(1, characters + 1):
                number += 1
                lines = strokes(random)
                for drawing in range(1, DRAWINGS + 1):
                    shaken = lines + random.normal(0, 2, lines.shape)
                    name = f"{part}/{alphabet}/character{character:02d}/{number:04d}_{drawing:02d}.png"
                    found[name] = png(draw(shaken))
    return found


def pack(path: Path, content: dict[str, bytes]) -> None:
    """An archive whose bytes depend on nothing but its content."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in content.items():
            archive.writestr(zipfile.ZipInfo(name), data)


def split(names: list[str]) -> str:
    """A split of the characters: every third is for testing."""
    characters = list(dict.fromkeys(name.rsplit("/", 1)[0] for name in names))
    return "".join(f"{'test' if i % 3 == 2 else 'train'} {name}\n" for i, name in enumerate(characters))


def write(root: Path, content: dict[str, bytes] | None = None, unpacked: bool = False) -> Path:
    """The whole set under a data directory; returns the set's own directory."""
    content = files() if content is None else content
    directory = root / "omniglot"
    directory.mkdir(parents=True)
    (directory / "split.txt").write_text(split(list(content)))
    for part in ALPHABETS:
        inside = {name: data for name, data in content.items() if name.startswith(f"{part}/")}
        if not unpacked:
            pack(directory / f"{part}.zip", inside)
            continue
        for name, data in inside.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_bytes(data)
    return directory
