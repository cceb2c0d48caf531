"""The tasks of the paper as its recipes have them, but with lengths drawn for every sequence."""

from dataclasses import replace

from nsm.experiments import recipes

NAMES = (
    *("copy", "long-copy", "repeat-copy", "associative-recall", "ngrams", "priority-sort"),
    *("copy+repeat-copy", "copy+associative-recall", "copy+priority-sort"),
    "copy+repeat-copy+associative-recall+priority-sort",
    *("continual", "omniglot-5", "omniglot-10"),
)


def get(name, preset="paper"):
    """The task of a recipe; `.tested` is its test."""
    return replace(recipes.find(name)(preset=preset).task, ragged=True)


TASKS = {name: get(name) for name in NAMES}
