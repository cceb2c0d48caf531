"""Archives in the layout of bAbI's, of a few short stories a task."""

import io
import random
import tarfile
from pathlib import Path

from nsm.data import babi

PEOPLE, PLACES = ("Mary", "John", "Daniel", "Sandra"), ("kitchen", "garden", "office", "hallway")
THINGS = ("apple", "milk", "football")


def story(task: int, draw: random.Random) -> list[str]:
    """The lines of a story, without numbers. Answers of tasks 8 (lists) and 19 (paths) may have several words."""
    if task == 19:
        a, b, c = draw.sample(PLACES, 3)
        ways = {"north": "n", "south": "s", "east": "e", "west": "w"}
        first, second = draw.choices(list(ways), k=2)
        facts = [f"The {b} is {first} of the {a}.", f"The {c} is {second} of the {b}."]
        return [*facts, f"How do you go from the {a} to the {c}?\t{ways[first]},{ways[second]}\t1 2"]
    lines, carried, at = [], {who: [] for who in PEOPLE}, {}
    for _ in range(draw.randint(2, 5)):
        for _ in range(draw.randint(1, 3)):
            who, where = draw.choice(PEOPLE), draw.choice(PLACES)
            at[who] = where
            lines.append(f"{who} went to the {where}.")
        if task == 8:
            left = [thing for thing in THINGS if not any(thing in held for held in carried.values())]
            if left:
                carried[who].append(left[0])
                lines.append(f"{who} got the {left[0]} there.")
            lines.append(f"What is {who} carrying? \t{','.join(carried[who]) or 'nothing'}\t1 {len(lines)}")
        else:
            lines.append(f"Where is {who}? \t{at[who]}\t{len(lines)}")
    return lines


def contents(stories: int = 20, seed: int = 0) -> dict[str, bytes]:
    """The files of all twenty tasks: `stories` training stories each, half as many test stories."""
    draw = random.Random(seed)
    files = {}
    for task in babi.TASKS:
        for split, count in (("train", stories), ("test", stories // 2)):
            told = [story(task, draw) for _ in range(count)]
            numbered = [f"{number} {line}\n" for lines in told for number, line in enumerate(lines, start=1)]
            files[babi.file_name(task, split)] = "".join(numbered).encode()
    return files


def archive(files: dict[str, bytes], path: Path) -> Path:
    """Write the files as the official archive has them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{babi.FOLDER}/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def write(root: Path) -> None:
    """A data directory with the archive, twenty training stories a task."""
    archive(contents(), root / babi.NAME / babi.ARCHIVE)


def unpacked(files: dict[str, bytes], directory: Path) -> Path:
    """Write the files as the archive unpacks."""
    for name, content in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(content)
    return directory
