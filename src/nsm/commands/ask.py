"""nsm ask"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import Annotated

import tyro

from nsm.checks import UserError, at_least, choose, fits
from nsm.commands.plugins import Plugins, load_plugins
from nsm.commands.terminal import Integer, option
from nsm.screen import console

PATH_QUESTION = ("how", "do", "you", "go")


@dataclass(frozen=True)
class Ask:
    """Ask a machine that was trained on bAbI about a story.

    A story is a text file with a sentence a line. It may have numbers at the beginning of lines and questions with
    answers in the middle, as bAbI's own files do. Only the 159 words of bAbI are known.

    A machine has no word for the end of an answer: in bAbI, how many words are asked for is part of the question. Here
    it is one, two for the way from here to there ("How do you go from … to …?"), or what --words says, for lists.

    Example: nsm ask runs/babi story.txt "Where is Mary?"
    """

    directory: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A run's directory."""
    story: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="STORY")]
    """A text file with a sentence a line."""
    question: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="QUESTION")]
    """What to ask."""
    words: Annotated[Integer, option("INT", "1, or 2 for a way")] = None
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
        load_plugins(self.imports)
        from nsm.commands.answers import answer, ask_words, read_story
        from nsm.data.stories import BLANK, vocabulary
        from nsm.tasks import Babi
        from nsm.training.run import RunDirectory

        asked = ask_words(self.question)
        words = (2 if asked[: len(PATH_QUESTION)] == PATH_QUESTION else 1) if self.words is None else self.words
        # What the machine is shown and what it says are a number for every known word.
        fits(f"an answer of {words:,} words", 8 * len(vocabulary()) * at_least("words", words, 1))
        shown = [*read_story(self.story), *asked, *[BLANK] * words]
        run = RunDirectory(self.directory)
        task = run.experiment.task
        if not isinstance(task, Babi):
            raise UserError(f"{self.directory} was trained on {task.name}: only a run on babi answers questions")
        said = answer(run.machine(self.which), shown, words, self.runners_up)
        probability = prod(word.probability for word in said)
        if self.json:
            found = {"answer": [word.word for word in said], "probability": probability}
            print(json.dumps({**found, "words": [asdict(word) for word in said]}, indent=2))
            return
        say = console().print
        say(f"{', '.join(word.word for word in said)} ({probability:.1%})")
        for word in said:
            if word.runners_up:
                others = ", ".join(f"{other} {share:.1%}" for other, share in word.runners_up)
                say(f"  {'instead of ' + word.word if len(said) > 1 else 'then'}: {others}")
