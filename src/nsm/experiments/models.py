"""Which models a task is trained with, by the paper's names: known without torch, as tasks are."""

from __future__ import annotations

from nsm import tasks

MODELS = ("ntm", "nutm")
FEW_SHOT_MODELS = ("mann", "nutm")
QUESTION_ANSWERING_MODELS = ("dnc", "nutm")


def models(task: str) -> tuple[str, ...]:
    """The models of a task; a UserError if there is no such task."""
    trained = tasks.get(task).train
    if isinstance(trained, tasks.Babi):
        return QUESTION_ANSWERING_MODELS
    return FEW_SHOT_MODELS if isinstance(trained, tasks.Omniglot) else MODELS
