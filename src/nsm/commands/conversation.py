"""A conversation with a machine: it takes sentences and answers questions."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator

from nsm import system
from nsm.checks import UserError
from nsm.commands.answers import Answer, Sentence, question, statement
from nsm.data.stories import BLANK, vocabulary
from nsm.screen import console

PROMPT = "> "
HELP = """Type sentences, then a question: Mary moved to the bathroom. Where is Mary?
  new         start a new story
  story       show the story so far
  words       show the words the machine knows; Tab completes them
  help        show this help
  Ctrl-D      quit"""
SHOWN = 0.05
"""Share of what was read; sentences with less are not shown."""


def converse(answer: Callable[[list[Sentence], Sentence], Answer], words: int | None) -> None:
    """Read lines until the input ends. A line with a mistake is reported and skipped."""
    say = console().print
    story: list[Sentence] = []
    if sys.stdin.isatty():
        say(HELP)
    for line in _lines():
        if line in ("new", "story", "words", "help"):
            if line == "new":
                story = []
            say({"new": "A new story.", "story": _text(story), "words": _known(), "help": HELP}[line])
            continue
        try:
            for part in _sentences(line):
                if not part.endswith("?"):
                    story.append(statement(part))
                elif story:
                    say(in_words(answer(story, question(part, words)), story))
                else:
                    say("There is no story yet: type a sentence first.")
        except UserError as error:
            say(f"{error}.")


def in_words(found: Answer, story: list[Sentence]) -> str:
    """An answer with its probability, the next most probable words, and the sentences that were read."""
    lines = [f"{found.text} ({found.probability:.1%})"]
    for word in found.words:
        if word.runners_up:
            others = ", ".join(f"{other} {share:.1%}" for other, share in word.runners_up)
            lines.append(f"  {'instead of ' + word.word if len(found.words) > 1 else 'next best'}: {others}")
    lines += [
        f"  {'looked at' if not rank else '      and'}: {_text([story[n]])} ({share:.0%} of what was read)"
        for rank, (n, share) in enumerate(found.looked_at[:3])
        if share >= SHOWN
    ]
    return "\n".join(lines)


def _text(story: list[Sentence]) -> str:
    lines = (" ".join(word for word in sentence if word != BLANK) for sentence in story)
    return "\n".join(line.replace(" .", ".").replace(" ?", "?").capitalize() for line in lines) or "The story is empty."


def _sentences(line: str) -> list[str]:
    """The sentences of a line; the last may lack its full stop."""
    return [part for found in re.findall(r"[^.?]*[.?]|[^.?]+", line) if (part := found.strip())]


def _lines() -> Iterator[str]:
    """Lines that are typed, with completion of known words, or piped in."""
    if not sys.stdin.isatty():
        yield from (stripped for line in sys.stdin if (stripped := line.strip()))
        return
    system.complete_lines(_complete)
    while True:
        try:
            line = input(PROMPT).strip()
        except EOFError:
            print()
            return
        if line:
            yield line


def _complete(begun: str, number: int) -> str | None:
    found = [word for word in sorted(vocabulary()) if word.startswith(begun.lower()) and word.isalpha()]
    return f"{found[number]} " if number < len(found) else None


def _known() -> str:
    return ", ".join(word for word in sorted(vocabulary()) if word.isalpha())
