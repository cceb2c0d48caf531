"""One file per command of `nsm`."""

from nsm.commands.ask import Ask
from nsm.commands.bench import Bench
from nsm.commands.data import Data
from nsm.commands.demo import Demo
from nsm.commands.eval import Eval
from nsm.commands.reproduce import Reproduce
from nsm.commands.train import Train

__all__ = ["Ask", "Bench", "Data", "Demo", "Eval", "Reproduce", "Train"]
