"""What the paper publishes of few-shot learning and of question answering."""

from __future__ import annotations

PRESENTATIONS = (2, 3, 5)
FEW_SHOT: dict[tuple[str, str], tuple[float, float, float]] = {
    ("omniglot-5", "mann"): (82.3, 88.7, 92.3),
    ("omniglot-5", "nutm"): (85.7, 91.3, 95.5),
    ("omniglot-10", "mann"): (52.7, 60.6, 64.7),
    ("omniglot-10", "nutm"): (68.0, 78.1, 82.8),
    ("omniglot-5-persistent", "mann"): (66.2, 73.4, 81.0),
    ("omniglot-5-persistent", "nutm"): (77.8, 85.8, 89.8),
    ("omniglot-10-persistent", "mann"): (51.3, 59.2, 63.3),
    ("omniglot-10-persistent", "nutm"): (69.0, 77.9, 82.7),
}
"""Per cent right at the second, third and fifth presentation of a class, by row and model."""

BABI: dict[str, tuple[float, float]] = {"dnc": (9.7, 3.5), "nutm-2": (7.5, 1.6), "nutm-4": (5.6, 1.9)}
"""Mean error in per cent over the 20 tasks, and its deviation over ten runs: one, two and four programs."""
BABI_NAMES = {"dnc": "NUTM (DNC core), p = 1", "nutm-2": "NUTM (DNC core), p = 2", "nutm-4": "NUTM (DNC core), p = 4"}
"""What the paper calls them."""
BABI_ELSEWHERE: dict[str, tuple[float, float]] = {
    "DNC": (16.7, 7.6),
    "SDNC": (6.4, 2.5),
    "ADNC": (6.3, 2.7),
    "DNC-MD": (9.5, 1.6),
}
"""What the paper quotes from others."""
BABI_TASKS: tuple[tuple[str, float, float, float], ...] = (
    ("1 supporting fact", 0.0, 0.0, 0.0),
    ("2 supporting facts", 0.2, 0.6, 0.3),
    ("3 supporting facts", 4.0, 7.6, 3.9),
    ("2 argument relations", 0.0, 0.0, 0.0),
    ("3 argument relations", 0.4, 1.0, 0.4),
    ("yes/no questions", 0.0, 0.0, 0.0),
    ("counting", 1.9, 1.5, 0.8),
    ("lists/sets", 0.6, 0.3, 0.2),
    ("simple negation", 0.0, 0.0, 0.0),
    ("indefinite knowledge", 0.1, 0.1, 0.0),
    ("basic coreference", 0.0, 0.0, 0.0),
    ("conjunction", 0.0, 0.0, 0.0),
    ("compound coreference", 0.1, 0.0, 0.0),
    ("time reasoning", 0.3, 1.6, 2.2),
    ("basic deduction", 0.0, 2.6, 8.3),
    ("basic induction", 49.3, 52.0, 1.7),
    ("positional reasoning", 4.7, 18.4, 12.7),
    ("size reasoning", 0.4, 1.6, 1.1),
    ("path finding", 4.3, 23.7, 32.2),
    ("agent's motivation", 0.0, 0.0, 0.0),
)
"""Four programs, task by task: error in per cent of the best run, mean of ten, its deviation."""
BABI_FAILED = 5.0
"""A task with a larger error counts as failed."""
