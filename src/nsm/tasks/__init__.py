"""Tasks: sequences to learn from, and how outputs are scored.

Only scoring needs torch, which is imported there: a task's name and sizes are known without it.
"""

from nsm.tasks.associative_recall import AssociativeRecall
from nsm.tasks.babi import Babi
from nsm.tasks.batch import Batch
from nsm.tasks.classification import Classification, EpisodeShare, Share, Tally
from nsm.tasks.copy import Copy
from nsm.tasks.dataset import DatasetTask
from nsm.tasks.measures import Breakdown, Figures, Measure
from nsm.tasks.metrics import Metrics, Sums
from nsm.tasks.mixture import Mixture
from nsm.tasks.ngrams import NGrams
from nsm.tasks.omniglot import Omniglot
from nsm.tasks.padded import Padded
from nsm.tasks.priority_sort import PrioritySort
from nsm.tasks.randomness import Draws
from nsm.tasks.ranges import with_ranges
from nsm.tasks.repeat_copy import RepeatCopy
from nsm.tasks.sequencing import Sequencing
from nsm.tasks.task import PhasedTask, Task

__all__ = [
    "AssociativeRecall",
    "Babi",
    "Batch",
    "Breakdown",
    "Classification",
    "Copy",
    "DatasetTask",
    "Draws",
    "EpisodeShare",
    "Figures",
    "Measure",
    "Metrics",
    "Mixture",
    "NGrams",
    "Omniglot",
    "Padded",
    "PhasedTask",
    "PrioritySort",
    "RepeatCopy",
    "Sequencing",
    "Share",
    "Sums",
    "Tally",
    "Task",
    "with_ranges",
]
