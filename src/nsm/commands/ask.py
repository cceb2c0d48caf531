"""nsm ask"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from nsm.checks import UserError, at_least, choose
from nsm.commands.plugins import Plugins, load_plugins
from nsm.commands.terminal import Integer, option
from nsm.screen import console

if TYPE_CHECKING:
    from nsm.machine import Machine

SHIPPED = Path("results", "models", "babi", "staged", "babi", "nutm-4")
"""The best machine there is of all twenty tasks, in a checkout (docs/babi.md)."""


@dataclass(frozen=True)
class Ask:
    """Ask a machine that was trained on bAbI about a story.

    Without a story it is a conversation: type sentences, and end with a question. A story in a file has a sentence a
    line; it may have numbers at the beginning of lines and questions with answers in the middle, as bAbI's own files
    do. Only the 159 words of bAbI are known.

    A machine has no word for the end of an answer: in bAbI, how many words are asked for is part of the question. Here
    it is one, two for a path ("How do you go from … to …?"), or what --words says, for lists.

    Example: nsm ask
    Example: nsm ask runs/babi story.txt "Where is Mary?"
    """

    directory: Annotated[Path | None, tyro.conf.Positional, option("RUN", "the machine that is shipped")] = None
    """A run's directory."""
    story: Annotated[Path | None, tyro.conf.Positional, option("STORY", "a conversation")] = None
    """A text file with a sentence a line."""
    question: Annotated[str | None, tyro.conf.Positional, option("QUESTION", "a conversation")] = None
    """What to ask."""
    words: Annotated[Integer, option("INT", "1, or 2 for a path")] = None
    """Of how many words the answer is."""
    which: str = "best"
    """best (lowest validation loss) or last."""
    runners_up: int = 3
    """How many other words to show."""
    imports: Plugins = ()
    """Modules with memories of your own, to import first."""
    json: bool = False
    """Print JSON."""

    def run(self) -> None:
        choose("which", self.which, ("best", "last"))
        at_least("runners_up", self.runners_up, 0)
        if self.words is not None:
            at_least("words", self.words, 1)
        if self.story is not None and self.question is None:
            raise UserError("a story without a question: put it last, in quotes")
        if self.json and self.question is None:
            raise UserError("--json is for one answer: give a story and a question")
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
            raise UserError(f"{directory} was trained on {task.name}: only a run on babi answers questions")
        return run.machine(self.which)


def _shipped() -> Path:
    checkout = Path(__file__).parents[3]
    if not (checkout / SHIPPED).exists():
        raise UserError("this installation comes without a machine: name a run on babi, as in nsm ask runs/babi")
    return checkout / SHIPPED
