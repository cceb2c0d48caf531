"""One file per command of `nsm`: its options, and what it does in which order.

All of them are imported to print any help. So none imports anything slow, above all torch, before it runs, and each
checks its options first.
"""

from typing import Annotated, Any, Union

import tyro

from nsm.commands.ask import Ask
from nsm.commands.bench import Bench
from nsm.commands.collect import Collect
from nsm.commands.data import Data
from nsm.commands.demo import Demo
from nsm.commands.eval import Eval
from nsm.commands.gallery import Gallery
from nsm.commands.report import Report
from nsm.commands.reproduce import Reproduce
from nsm.commands.train import Train
from nsm.commands.view import View

COMMANDS: dict[str, type] = {
    command.__name__.lower(): command
    for command in (Demo, Train, Eval, Ask, Reproduce, Collect, Report, View, Gallery, Bench, Data)
}
Command: Any = Union[  # noqa: UP007 — made of a table
    tuple(Annotated[command, tyro.conf.subcommand(name)] for name, command in COMMANDS.items())
]
