"""The command line: parses, calls, prints."""

from __future__ import annotations

import sys
from typing import Annotated, NoReturn

import tyro

from nsm import commands
from nsm.checks import UserError
from nsm.experiments.campaign import RunsFailed
from nsm.training.distribution import RankLost, place
from nsm.training.learner import Diverged
from nsm.training.signals import Interrupted

FAILED, MISTAKE, INTERRUPTED = 1, 2, 75
"""Exit codes: the run failed; the command was wrong; the run was stopped and goes on when started again."""

Command = (
    Annotated[commands.Demo, tyro.conf.subcommand("demo")]
    | Annotated[commands.Train, tyro.conf.subcommand("train")]
    | Annotated[commands.Eval, tyro.conf.subcommand("eval")]
    | Annotated[commands.Ask, tyro.conf.subcommand("ask")]
    | Annotated[commands.Reproduce, tyro.conf.subcommand("reproduce")]
    | Annotated[commands.Bench, tyro.conf.subcommand("bench")]
    | Annotated[commands.Data, tyro.conf.subcommand("data")]
)


def main(arguments: list[str] | None = None) -> None:
    """Run one command; a user's mistake is one sentence and exit code 2."""
    command = tyro.cli(Command, prog="nsm", description=__doc__, args=arguments)
    try:
        command.run()
    except UserError as error:
        _leave(MISTAKE, str(error))
    except (Diverged, RankLost, RunsFailed, OSError) as error:
        _leave(FAILED, str(error))
    except Interrupted:
        _leave(INTERRUPTED, "stopped; what was done is saved, and the same command goes on from there")
    except KeyboardInterrupt:
        _leave(130, "stopped")  # as a shell reports it


def _leave(code: int, sentence: str) -> NoReturn:
    sys.stdout.flush()
    if place()[0] == 0:  # of several ranks, all of which would say the same
        print(f"nsm: {sentence}", file=sys.stderr)
    raise SystemExit(code) from None
