"""Tasks: sequences to learn from, and the judgement of answers to them.

Only the judgement takes torch, which is imported there: a task's name and its sizes are known without it.
"""

from nsm.tasks.associative_recall import AssociativeRecall
from nsm.tasks.babi import Babi
from nsm.tasks.batch import Batch
from nsm.tasks.classification import Classification, EpisodeShare, Share, Tally
from nsm.tasks.continual import Continual
from nsm.tasks.copy import Copy
from nsm.tasks.metrics import Metrics, Sums
from nsm.tasks.ngrams import NGrams
from nsm.tasks.omniglot import Omniglot
from nsm.tasks.padded import Padded
from nsm.tasks.priority_sort import PrioritySort
from nsm.tasks.randomness import Draws
from nsm.tasks.ranges import with_ranges
from nsm.tasks.registry import SUBTASKS, TASKS, Protocol, TaskPair, get
from nsm.tasks.repeat_copy import RepeatCopy
from nsm.tasks.sequencing import Sequencing
from nsm.tasks.task import PhasedTask, Task

__all__ = [
    "SUBTASKS",
    "TASKS",
    "AssociativeRecall",
    "Babi",
    "Batch",
    "Classification",
    "Continual",
    "Copy",
    "Draws",
    "EpisodeShare",
    "Metrics",
    "NGrams",
    "Omniglot",
    "Padded",
    "PhasedTask",
    "PrioritySort",
    "Protocol",
    "RepeatCopy",
    "Sequencing",
    "Share",
    "Sums",
    "Tally",
    "Task",
    "TaskPair",
    "get",
    "with_ranges",
]
