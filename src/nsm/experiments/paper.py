"""The experiments as data: the runs behind every table and figure, and the published numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from nsm.checks import UserError, choose
from nsm.experiments import recipes
from nsm.experiments.choice import Model, Preset
from nsm.memories import NTM
from nsm.tasks import Measure
from nsm.training.experiment import Experiment

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
"""Bit errors per test sequence, best of five runs, NTM and NUTM; for N-grams they can only be bits of entropy."""
PUBLISHED_FEW_SHOT: dict[tuple[str, Model, bool], tuple[float, float, float]] = {
    ("omniglot-5", "mann", False): (82.3, 88.7, 92.3),
    ("omniglot-5", "nutm", False): (85.7, 91.3, 95.5),
    ("omniglot-10", "mann", False): (52.7, 60.6, 64.7),
    ("omniglot-10", "nutm", False): (68.0, 78.1, 82.8),
    ("omniglot-5", "mann", True): (66.2, 73.4, 81.0),
    ("omniglot-5", "nutm", True): (77.8, 85.8, 89.8),
    ("omniglot-10", "mann", True): (51.3, 59.2, 63.3),
    ("omniglot-10", "nutm", True): (69.0, 77.9, 82.7),
}
"""Accuracy in per cent at the second, third and fifth presentation of a class; True: persistent memory."""

PUBLISHED_BABI = {1: 9.7, 2: 7.5, 4: 5.6}
"""Mean error over the 20 tasks in per cent, by number of programs; mean of ten runs."""
PUBLISHED_BABI_DEVIATION = {1: 3.5, 2: 1.6, 4: 1.9}
"""Standard deviation of that mean over the ten runs."""
PUBLISHED_BABI_ELSEWHERE = {"DNC": (16.7, 7.6), "SDNC": (6.4, 2.5), "ADNC": (6.3, 2.7), "DNC-MD": (9.5, 1.6)}
"""Results of others that the paper quotes: mean error and standard deviation."""
PUBLISHED_BABI_TASKS = (
    ("1 supporting fact", 0.0, 0.0),
    ("2 supporting facts", 0.2, 0.6),
    ("3 supporting facts", 4.0, 7.6),
    ("2 argument relations", 0.0, 0.0),
    ("3 argument relations", 0.4, 1.0),
    ("yes/no questions", 0.0, 0.0),
    ("counting", 1.9, 1.5),
    ("lists/sets", 0.6, 0.3),
    ("simple negation", 0.0, 0.0),
    ("indefinite knowledge", 0.1, 0.1),
    ("basic coreference", 0.0, 0.0),
    ("conjunction", 0.0, 0.0),
    ("compound coreference", 0.1, 0.0),
    ("time reasoning", 0.3, 1.6),
    ("basic deduction", 0.0, 2.6),
    ("basic induction", 49.3, 52.0),
    ("positional reasoning", 4.7, 18.4),
    ("size reasoning", 0.4, 1.6),
    ("path finding", 4.3, 23.7),
    ("agent's motivations", 0.0, 0.0),
)
"""Four programs, task by task: error in per cent of the best run, and mean of ten."""
PUBLISHED_BABI_TASK_DEVIATIONS = (
    *(0.0, 0.3, 3.9, 0.0, 0.4, 0.0, 0.8, 0.2, 0.0, 0.0),
    *(0.0, 0.0, 0.0, 2.2, 8.3, 1.7, 12.7, 1.1, 32.2, 0.0),
)
"""Standard deviations of these means."""
PUBLISHED_BABI_MEAN = (3.3, 5.6)
"""Mean over all tasks: of the best run, and on average."""
PUBLISHED_BABI_FAILED = (1, 3)
"""Tasks above 5 %: of the best run, and on average."""


@dataclass(frozen=True)
class Cell:
    """A cell of a table: row, model, the experiment but for its seed, and the published number."""

    row: str
    model: str
    experiment: Experiment
    published: float | None = None
    beside: tuple[tuple[str, float], ...] = ()
    """Published numbers of other figures."""

    @property
    def name(self) -> str:
        """For paths and for --only."""
        return f"{self.row}/{self.model}"

    @property
    def measure(self) -> Measure:
        """The figure that is compared."""
        return self.experiment.task.measures[0]


CONSOLIDATION = 10_000.0
"""λ of elastic weight consolidation in the comparison of continual learning (docs/howto/continual-learning.md)."""
COMPLETE = {"associative-recall": 56, SEQUENCING[1]: 87, SEQUENCING[3]: 109}
"""Units with which a complete machine has as many weights as NUTM has in the paper, within 1 %."""

STATIC_AND_STORED: tuple[Model, Model] = ("ntm", "nutm")


def _single(preset: Preset) -> Iterator[Cell]:
    for task in SINGLE:
        for model, published in zip(STATIC_AND_STORED, PUBLISHED_SINGLE[task], strict=True):
            yield Cell(task, model, recipes.find(task)(model, preset), published)


def _ablation(preset: Preset) -> Iterator[Cell]:
    """Associative Recall under every variant of the figure; direct attention and uniform programs have no keys."""
    task = "associative-recall"
    nutm, ntm = (recipes.associative_recall(model, preset) for model in ("nutm", "ntm"))
    programs, memory = nutm.machine.programs, ntm.machine.memory
    assert programs is not None
    assert isinstance(memory, NTM)

    def attending(attention: str) -> Experiment:
        return replace(nutm, machine=replace(nutm.machine, programs=replace(programs, attention=attention)))

    two_heads = replace(memory, read_heads=2, write_heads=2)
    yield Cell(task, "nutm", nutm)
    yield Cell(task, "direct", attending("direct"))
    yield Cell(task, "key-value", replace(nutm, schedule=replace(nutm.schedule, key_loss=0.0)))
    yield Cell(task, "uniform", attending("uniform"))
    yield Cell(task, "ntm", ntm)
    yield Cell(task, "ntm-2-heads", replace(ntm, machine=replace(ntm.machine, memory=two_heads)))


def _sequencing(preset: Preset) -> Iterator[Cell]:
    for task in SEQUENCING:
        for model in STATIC_AND_STORED:
            yield Cell(task, model, recipes.find(task)(model, preset))


def _continual(preset: Preset) -> Iterator[Cell]:
    """Three readings: as in the text; with the LSTM of the paper's parameter counts; and with programs chosen as in the
    published code, which makes no difference to NTM."""
    for model in STATIC_AND_STORED:
        run = recipes.continual(model, preset)
        yield Cell("continual", model, run)
        lstm = replace(run.machine, controller=replace(run.machine.controller, kind="lstm"))
        yield Cell("continual-lstm", model, replace(run, machine=lstm))
        if run.machine.programs is not None:
            yield Cell("continual-noisy", model, replace(run, machine=recipes.with_noisy_probabilities(run.machine)))
        else:  # not in the paper: whole machines as programs, without labels and with, and a penalty against forgetting
            growing = recipes.continual(model, preset, growing=True)
            yield Cell("continual-growing", model, growing)
            assert growing.machine.repertoire is not None
            labelled = replace(growing.machine, repertoire=replace(growing.machine.repertoire, labels=True))
            yield Cell("continual-labels", model, replace(growing, machine=labelled))
            held = replace(run.schedule, consolidation=CONSOLIDATION)
            yield Cell("continual-ewc", model, replace(run, schedule=held))


def _factorial(preset: Preset) -> Iterator[Cell]:
    """Not in the paper: how much of NUTM's advantage comes from programs, how much from smaller initial weights?

    The published code starts NTM's interfaces with large weights and NUTM's with small ones; here both models have
    both. Copy + Repeat Copy is trained like single tasks, one sequence at a time, which takes at most a quarter of the
    time that batches of sixteen take.
    """
    for task in ("associative-recall", "repeat-copy", "copy+repeat-copy"):
        for model in STATIC_AND_STORED:
            run = recipes.find(task)(model, preset)
            if preset != "default" and "+" in task:
                run = replace(run, schedule=replace(run.schedule, batch_size=1, iterations=100_000))
            for scale, fan in (("large", "head"), ("small", "memory")):
                machine = replace(run.machine, interface=replace(run.machine.interface, fan=fan))
                yield Cell(task, f"{model}-{scale}", replace(run, machine=machine))


def _complete(preset: Preset) -> Iterator[Cell]:
    """Not in the paper: machines that also store controller and output layer, beside NUTM with as many weights."""
    for task, size in COMPLETE.items():
        nutm = recipes.find(task)("nutm", preset)
        yield Cell(task, "nutm", nutm)
        machine = nutm.machine
        assert machine.programs is not None
        programs = replace(machine.programs, parts=("interface", "state", "output"))
        machine = replace(machine, programs=programs, controller=replace(machine.controller, size=size))
        yield Cell(task, "nutm-complete", replace(nutm, machine=machine))


def _few_shot(preset: Preset) -> Iterator[Cell]:
    for (task, model, persistent), published in PUBLISHED_FEW_SHOT.items():
        second, third, fifth = (percent / 100 for percent in published)
        row = f"{task}-persistent" if persistent else task
        run = recipes.find(task)(model, preset, wiped=not persistent)
        yield Cell(row, model, run, second, (("accuracy/3", third), ("accuracy/5", fifth)))


def _question_answering(preset: Preset) -> Iterator[Cell]:
    for programs, percent in PUBLISHED_BABI.items():
        name = "dnc" if programs == 1 else f"nutm-{programs}"
        means = [(f"word_error/qa{n}", mean / 100) for n, (_, _, mean) in enumerate(PUBLISHED_BABI_TASKS, start=1)]
        beside = (*means, ("failed_tasks", float(PUBLISHED_BABI_FAILED[1]))) if programs == 4 else ()
        yield Cell("babi", name, recipes.babi(preset=preset, programs=programs), percent / 100, beside)


def _question_answering_singly(preset: Preset) -> Iterator[Cell]:
    """Not in the paper: every task of bAbI by itself, with four programs."""
    for number in range(1, len(PUBLISHED_BABI_TASKS) + 1):
        yield Cell(f"babi-{number}", "nutm-4", recipes.babi(preset=preset, programs=4, tasks=(number,)))


EXPERIMENTS = {
    "single": _single,
    "ablation": _ablation,
    "sequencing": _sequencing,
    "continual": _continual,
    "factorial": _factorial,
    "complete": _complete,
    "fewshot": _few_shot,
    "babi": _question_answering,
    "babi-tasks": _question_answering_singly,
}


def cells(experiment: str, preset: Preset = "paper", only: str | None = None, budget: int | None = None) -> list[Cell]:
    """The cells of an experiment; `budget` limits the iterations of a run.

    `only` keeps cells whose name contains one of its comma-separated parts; a part that is a whole name or row selects
    just that.
    """
    found = list(EXPERIMENTS[choose("experiment", experiment, EXPERIMENTS)](preset))
    if only is not None:
        names = [cell.name for cell in found]
        whole = {*names, *(cell.row for cell in found)}
        parts = only.split(",")
        found = [c for c in found if any(p in (c.name, c.row) or (p in c.name and p not in whole) for p in parts)]
        if not found:
            raise UserError(f"no cell of {experiment} has {only!r} in its name; the cells are {', '.join(names)}")
    if budget is not None:
        found = [replace(cell, experiment=_within(cell.experiment, budget)) for cell in found]
    return found


def _within(experiment: Experiment, budget: int) -> Experiment:
    """A run cut to a budget: evaluated a few times, on no more sequences than it has iterations."""
    schedule = experiment.schedule
    iterations = min(schedule.iterations, budget)
    often = max(1, iterations // 5)
    cut = replace(
        schedule,
        iterations=iterations,
        log_every=min(schedule.log_every, often),
        evaluate_every=min(schedule.evaluate_every, often),
        validation_sequences=min(schedule.validation_sequences, iterations),
        test_sequences=min(schedule.test_sequences, iterations),
        checkpoint_every=min(schedule.checkpoint_every, iterations),
    )
    return replace(experiment, schedule=cut)
