"""The paper's experiments as data: which runs fill which table or figure, and what was published."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from nsm.checks import UserError, choose
from nsm.experiments.recipes import recipe
from nsm.memories import NTM
from nsm.training.config import RunConfig

SINGLE = ("copy", "repeat-copy", "associative-recall", "ngrams", "priority-sort", "long-copy")
SEQUENCING = (
    "copy+repeat-copy",
    "copy+associative-recall",
    "copy+priority-sort",
    "copy+repeat-copy+associative-recall+priority-sort",
)
PUBLISHED_SINGLE = {
    "copy": (0.00, 0.00),
    "repeat-copy": (405.10, 366.69),
    "associative-recall": (7.66, 1.35),
    "ngrams": (132.59, 127.68),
    "priority-sort": (24.41, 20.00),
    "long-copy": (16.04, 0.02),
}
"""Bit errors per test sequence of the best of five runs, NTM and NUTM; for N-grams they can only be bits of entropy."""
PUBLISHED_FEW_SHOT = {
    ("omniglot-5", "mann", False): (82.3, 88.7, 92.3),
    ("omniglot-5", "nutm", False): (85.7, 91.3, 95.5),
    ("omniglot-10", "mann", False): (52.7, 60.6, 64.7),
    ("omniglot-10", "nutm", False): (68.0, 78.1, 82.8),
    ("omniglot-5", "mann", True): (66.2, 73.4, 81.0),
    ("omniglot-5", "nutm", True): (77.8, 85.8, 89.8),
    ("omniglot-10", "mann", True): (51.3, 59.2, 63.3),
    ("omniglot-10", "nutm", True): (69.0, 77.9, 82.7),
}
"""Per cent right at the second, third and fifth presentation of a class; True for persistent memory."""


@dataclass(frozen=True)
class Cell:
    """One cell of a table: a row, a model, the run that fills it for one seed, and what was published."""

    row: str
    model: str
    config: RunConfig
    metric: str = "bit_errors"
    published: float | None = None
    beside: tuple[tuple[str, float], ...] = ()
    """What was published of other metrics."""

    @property
    def name(self) -> str:
        """For paths and for --only."""
        return f"{self.row}/{self.model}"


def _single(preset: str) -> Iterator[Cell]:
    for task in SINGLE:
        for model, published in zip(("ntm", "nutm"), PUBLISHED_SINGLE[task], strict=True):
            metric = "cross_entropy_bits" if task == "ngrams" else "bit_errors"
            yield Cell(task, model, recipe(task, model, preset), metric, published)


def _ablation(preset: str) -> Iterator[Cell]:
    """Associative Recall under every variant of the figure; direct attention and uniform programs have no keys."""
    task = "associative-recall"
    nutm, ntm = recipe(task, "nutm", preset), recipe(task, "ntm", preset)
    programs = nutm.machine.programs
    assert programs is not None

    def attending(attention: str) -> RunConfig:
        return replace(nutm, machine=replace(nutm.machine, programs=replace(programs, attention=attention)))

    memory = ntm.machine.memory
    assert isinstance(memory, NTM)
    two_heads = replace(memory, read_heads=2, write_heads=2)
    yield Cell(task, "nutm", nutm)
    yield Cell(task, "direct", attending("direct"))
    yield Cell(task, "key-value", replace(nutm, key_loss=0.0))
    yield Cell(task, "uniform", attending("uniform"))
    yield Cell(task, "ntm", ntm)
    yield Cell(task, "ntm-2-heads", replace(ntm, machine=replace(ntm.machine, memory=two_heads)))


def _sequencing(preset: str) -> Iterator[Cell]:
    for task in SEQUENCING:
        for model in ("ntm", "nutm"):
            yield Cell(task, model, recipe(task, model, preset))


def _continual(preset: str) -> Iterator[Cell]:
    for model in ("ntm", "nutm"):
        yield Cell("continual", model, recipe("continual", model, preset), "bit_accuracy")


def _few_shot(preset: str) -> Iterator[Cell]:
    for (task, model, persistent), published in PUBLISHED_FEW_SHOT.items():
        second, third, fifth = (percent / 100 for percent in published)
        row = f"{task}-persistent" if persistent else task
        config = recipe(task, model, preset, persistent=persistent)
        yield Cell(row, model, config, "accuracy/2", second, (("accuracy/3", third), ("accuracy/5", fifth)))


EXPERIMENTS = {
    "single": _single,
    "ablation": _ablation,
    "sequencing": _sequencing,
    "continual": _continual,
    "fewshot": _few_shot,
}


def cells(experiment: str, preset: str = "paper", only: str | None = None, budget: int | None = None) -> list[Cell]:
    """The cells of an experiment; `only` keeps those whose name contains it, `budget` caps the iterations of a run."""
    found = list(EXPERIMENTS[choose("experiment", experiment, EXPERIMENTS)](preset))
    if only is not None:
        names = [cell.name for cell in found]
        found = [cell for cell in found if only in cell.name]
        if not found:
            raise UserError(f"no cell of {experiment} has {only!r} in its name; the cells are {', '.join(names)}")
    if budget is not None:
        found = [replace(cell, config=_within(cell.config, budget)) for cell in found]
    return found


def _within(config: RunConfig, budget: int) -> RunConfig:
    """A run cut to a budget: looked at a few times on the way, on no more sequences than it has iterations."""
    iterations = min(config.iterations, budget)
    often = max(1, iterations // 5)
    return replace(
        config,
        iterations=iterations,
        log_every=min(config.log_every, often),
        evaluate_every=min(config.evaluate_every, often),
        evaluate_sequences=min(config.evaluate_sequences, iterations),
        test_sequences=min(config.test_sequences, iterations),
        checkpoint_every=min(config.checkpoint_every, iterations),
    )
