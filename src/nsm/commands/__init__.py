"""One file per command of `nsm`."""

from nsm.commands.bench import Bench
from nsm.commands.collect import Collect
from nsm.commands.demo import Demo
from nsm.commands.eval import Eval
from nsm.commands.report import Report
from nsm.commands.reproduce import Reproduce
from nsm.commands.train import Train
from nsm.commands.view import View

__all__ = ["Bench", "Collect", "Demo", "Eval", "Report", "Reproduce", "Train", "View"]
