"""Ask a bAbI machine the fifty questions of `own_questions.txt`, which are in no data set, and print its wrong answers.

    .venv/bin/python scripts/own_questions.py results/models/babi/staged/babi/nutm-4

The file has stories in bAbI's own format, written for the kinds of questions the machine had learned. A story begins
with line 1.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nsm
from nsm.commands.answers import answer, question, statement


def main(machine: nsm.Machine, lines: list[str]) -> None:
    story, asked, right = [], 0, 0
    for line in lines:
        number, text = line.split(" ", 1)
        if number == "1":
            story = []
        sentence, _, wanted = text.partition("\t")
        if wanted:
            said = answer(machine, story, question(sentence), 0)
            asked, right = asked + 1, right + (said.text == wanted)
            if said.text != wanted:
                print(f"{sentence} {wanted}, not {said.text} ({said.probability:.0%})")
        story.append(statement(text))
    print(f"{right} of {asked} right")


if __name__ == "__main__":
    main(nsm.load(sys.argv[1]), Path(__file__).with_suffix(".txt").read_text("utf-8").splitlines())
