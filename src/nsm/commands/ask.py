"""nsm ask"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from nsm.checks import UserError, at_least, choose
from nsm.commands.options import Integer, Plugins, load_plugins, option
from nsm.screen import console

if TYPE_CHECKING:
    from nsm.machine import Machine

SHIPPED = Path("results", "models", "babi", "staged", "babi", "nutm-4")
"""The best machine for all twenty tasks in a checkout (docs/results/babi.md)."""


@dataclass(frozen=True)
class Ask:
    """Ask a machine trained on bAbI a question about a story.

    Without a story file, a conversation starts: type sentences, then a question. A story file has one sentence per
    line. As in bAbI's own files, lines may be numbered, and questions with answers may be among them. The machine knows
    only the 159 words of bAbI.

    The question determines how many words the answer has: one, or two for a path ("How do you go from … to …?"). Set
    --words for questions whose answer is a list.

    Example: nsm ask

    Example: nsm ask runs/babi story.txt "Where is Mary?"
    """

    directory: Annotated[Path | None, tyro.conf.Positional, option("RUN", "the published machine")] = None
    """Directory of the run."""
    story: Annotated[Path | None, tyro.conf.Positional, option("STORY", "a conversation")] = None
    """Text file with one sentence per line."""
    question: Annotated[str | None, tyro.conf.Positional, option("QUESTION", "a conversation")] = None
    """The question."""
    words: Annotated[Integer, option("INT", "1, or 2 for a path")] = None
    """Words in the answer."""
    which: str = "best"
    """Checkpoint: best (lowest validation loss) or last."""
    runners_up: int = 3
    """Number of alternatives to show for each word."""
    imports: Plugins = ()
    """Modules with your own memories, imported first."""
    json: bool = False
    """Print JSON."""

    def run(self) -> None:
        choose("which", self.which, ("best", "last"))
        at_least("runners_up", self.runners_up, 0)
        if self.words is not None:
            at_least("words", self.words, 1)
        if self.story is not None and self.question is None:
            raise UserError("a story needs a question: add it as the last argument, in quotes")
        if self.json and self.question is None:
            raise UserError("--json needs a story and a question")
        load_plugins(self.imports)
        from nsm.commands.answers import answer, question, read_story
        from nsm.commands.conversation import converse, in_words

        if self.story is None or self.question is None:
            machine = self._machine()
            converse(lambda story, asked: answer(machine, story, asked, self.runners_up), self.words)
            return
        asked, story = question(self.question, self.words), read_story(self.story)
        found = answer(self._machine(), story, asked, self.runners_up)
        if not self.json:
            console().print(in_words(found, story))
            return
        looked_at = [{"sentence": " ".join(story[n]), "share": share} for n, share in found.looked_at]
        said = {"answer": [word.word for word in found.words], "probability": found.probability}
        print(json.dumps({**said, "words": [asdict(word) for word in found.words], "looked_at": looked_at}, indent=2))

    def _machine(self) -> Machine:
        from nsm.tasks import Babi
        from nsm.training.run import RunDirectory

        directory = self.directory or _shipped()
        run = RunDirectory(directory)
        task = run.experiment.task
        if not isinstance(task, Babi):
            raise UserError(f"{directory} was trained on {task.name}: give a run trained on babi")
        return run.machine(self.which)


def _shipped() -> Path:
    checkout = Path(__file__).parents[3]
    if not (checkout / SHIPPED).exists():
        raise UserError("this installation has no published machine: give a run on babi, as in nsm ask runs/babi")
    return checkout / SHIPPED
