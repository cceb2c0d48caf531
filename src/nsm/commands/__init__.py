"""One file per command of `nsm`."""

from nsm.commands.demo import Demo
from nsm.commands.eval import Eval
from nsm.commands.reproduce import Reproduce
from nsm.commands.train import Train

__all__ = ["Demo", "Eval", "Reproduce", "Train"]
