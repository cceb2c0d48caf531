"""One file per command of `nsm`: its options, and what it does in which order.

All of them are imported to print any help, so none imports what takes long, torch before all, until it runs; and it
looks for what can be wrong with its options first. The work of several steps is in files beside.
"""

from typing import Annotated

import tyro

from nsm.commands.ask import Ask
from nsm.commands.bench import Bench
from nsm.commands.collect import Collect
from nsm.commands.data import Data
from nsm.commands.demo import Demo
from nsm.commands.eval import Eval
from nsm.commands.report import Report
from nsm.commands.reproduce import Reproduce
from nsm.commands.train import Train
from nsm.commands.view import View

__all__ = ["Ask", "Bench", "Collect", "Command", "Data", "Demo", "Eval", "Report", "Reproduce", "Train", "View"]

Command = (
    Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Eval, tyro.conf.subcommand("eval")]
    | Annotated[Ask, tyro.conf.subcommand("ask")]
    | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
    | Annotated[Collect, tyro.conf.subcommand("collect")]
    | Annotated[Report, tyro.conf.subcommand("report")]
    | Annotated[View, tyro.conf.subcommand("view")]
    | Annotated[Bench, tyro.conf.subcommand("bench")]
    | Annotated[Data, tyro.conf.subcommand("data")]
)
