"""Which tasks of a mixture are drawn how often, as training goes on.

Twenty tasks at once keep a machine from learning to look anything up: each pulls at it, and all are answered a little
better by what was mentioned lately. So it learns to look up first, from one task alone. From then on tasks are drawn by
what is left to gain, because those that are solved have nothing more to teach. A task that no machine learns would be
drawn more and more; no task gets more than its limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

FIRST = 1
"""The task that comes alone: one supporting fact, a person's last place."""
ENOUGH = 0.25
"""Until its error is below this."""
FLOOR = 0.02
"""What is added to every task's error, so that solved ones are not forgotten."""
LIMIT = 0.3
"""The weight of an error is never more than this."""


def first_weights(tasks: Sequence[int]) -> tuple[float, ...]:
    """Before anything is learned."""
    if FIRST not in tasks:
        return (1.0,) * len(tasks)
    return tuple(float(task == FIRST) for task in tasks)


def next_weights(tasks: Sequence[int], weights: Sequence[float], figures: Mapping[str, float]) -> tuple[float, ...]:
    """After an evaluation, whose `word_error/qaN` is the error of task N."""
    errors = {task: figures[f"word_error/qa{task}"] for task in tasks}
    if len(tasks) > 1 and tuple(weights) == first_weights(tasks) and 0 in weights and errors[FIRST] > ENOUGH:
        return tuple(weights)
    return tuple(FLOOR + min(error, LIMIT) for error in errors.values())
