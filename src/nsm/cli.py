"""The command line: parses, calls, prints."""

from __future__ import annotations

import sys
from typing import Annotated

import tyro

from nsm import commands
from nsm.checks import UserError
from nsm.training.learner import Diverged
from nsm.training.loop import Interrupted

FAILED, MISTAKE, INTERRUPTED = 1, 2, 75
"""Exit codes: the run failed; the command was wrong; the run was stopped and goes on when started again."""

Command = (
    Annotated[commands.Demo, tyro.conf.subcommand("demo")]
    | Annotated[commands.Train, tyro.conf.subcommand("train")]
    | Annotated[commands.Eval, tyro.conf.subcommand("eval")]
    | Annotated[commands.Reproduce, tyro.conf.subcommand("reproduce")]
)


def main(arguments: list[str] | None = None) -> None:
    """Run one command; a user's mistake is one sentence and exit code 2."""
    command = tyro.cli(Command, prog="nsm", description=__doc__, args=arguments)  # type: ignore[call-overload]
    try:
        command.run()
    except UserError as error:
        sys.stdout.flush()
        print(f"nsm: {error}", file=sys.stderr)
        raise SystemExit(MISTAKE) from None
    except Diverged as error:
        print(f"nsm: {error}", file=sys.stderr)
        raise SystemExit(FAILED) from None
    except Interrupted:
        print("nsm: stopped and saved; the same command goes on from here", file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None
