"""One file per command of `nsm`."""

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

__all__ = ["Ask", "Bench", "Collect", "Data", "Demo", "Eval", "Report", "Reproduce", "Train", "View"]
