"""Names of options' values, known without importing what they stand for."""

PRESETS = ("default", "paper", "authors")
BACKENDS = ("auto", "reference", "fused")
RECIPES = (
    *("copy", "long-copy", "repeat-copy", "associative-recall", "ngrams", "priority-sort"),
    *("sequence", "continual", "omniglot", "babi"),
)
SUBTASKS = ("copy", "repeat-copy", "associative-recall", "priority-sort")
"""Tasks that can be joined by +."""
ENGINES = ("local", "ray")
EXPERIMENTS = (
    "single",
    "ablation",
    "sequencing",
    "continual",
    "factorial",
    "complete",
    "fewshot",
    "babi",
    "babi-tasks",
)
