"""scripts/sorting.py: gaps and wrong bits belong to the places they are said to."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from nsm.experiments import recipes
from nsm.tasks import PrioritySort

SCRIPT = Path(__file__).parents[2] / "scripts" / "sorting.py"
spec = importlib.util.spec_from_file_location("sorting", SCRIPT)
sorting = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sorting)


def test_gaps_are_those_to_the_nearest_priority():
    batch = PrioritySort(width=3, items=4, sorted_items=3).batch(0, 0, 0, 1)
    batch.inputs[:4, 0, 3] = [0.1, 0.5, -0.2, 0.45]  # ranked 0.5, 0.45, 0.1, −0.2
    wrong = np.zeros((7, 1, 3), bool)
    wrong[5, 0, :2] = True  # of the second place
    found = list(sorting.places(batch, wrong, 0, 3))
    assert [bits for _, bits in found] == [0, 2, 0]
    assert [gap for gap, _ in found] == pytest.approx([0.05, 0.05, 0.3])


def test_in_a_row_of_tasks_only_the_sort_is_looked_at():
    task = recipes.find("copy+priority-sort")().task
    batch = task.batch(0, 0, 0, 5)
    number = [isinstance(single, PrioritySort) for single in task.singles()].index(True)
    sort = task.singles()[number]
    wrong = np.broadcast_to((batch.subtask != number)[:, :, None], batch.targets.shape)
    found = list(sorting.places(batch, wrong, number, sort.width))
    assert len(found) == 5 * sort.sorted_items
    assert not any(bits for _, bits in found)
    assert all(0 < gap < 2 for gap, _ in found)
