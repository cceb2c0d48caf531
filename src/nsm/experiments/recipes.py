"""How each task is trained, with every value in sight: the paper's settings, and ours that learn reliably.

A recipe returns a complete Experiment: `recipes.copy(model="ntm", preset="paper", seed=3)`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated

from nsm import tree
from nsm.checks import UserError, choose
from nsm.controllers import Controller
from nsm.data import babi as data
from nsm.experiments.choice import Choice, Recipe, random_tape
from nsm.machine import Interface, MachineConfig, Repertoire
from nsm.memories import DNC, LRUA, NTM
from nsm.programs import Programs
from nsm.tasks import (
    AssociativeRecall,
    Babi,
    Copy,
    Mixture,
    NGrams,
    Omniglot,
    PrioritySort,
    RepeatCopy,
    Sequencing,
    Task,
)
from nsm.tasks.babi import epoch
from nsm.training.curriculum import OTHERS, InStages, OneByOne
from nsm.training.experiment import Experiment, Optimiser, Schedule

FALLING = Optimiser(learning_rate=2e-4, final_rate=0.02)
"""Ours for most synthetic tasks: at a constant rate most runs diverge some time after they have learned the task."""


def _ntm(
    choice: Choice, task: Task, sizes: tuple[int, int], heads: int = 1, programs: int = 2, slots: int = 128
) -> MachineConfig:
    """A machine of the paper's tables for synthetic tasks; `sizes` are the controller sizes of NTM and NUTM."""
    stored = choice.stored(programs)
    return choice.machine(
        task.input_size,
        task.output_size,
        Controller(size=sizes[stored > 0]),
        NTM(slots=slots, width=20, read_heads=heads, write_heads=heads),
        Programs(stored) if stored else None,
    )


def _as_published(choice: Choice, task: Task, machine: MachineConfig, iterations: int, batch_size: int) -> Experiment:
    """The paper's training: RMSprop at 1e-4, no curriculum, one length per batch."""
    task = replace(_counted_as_the_authors(task) if choice.preset == "authors" else task, ragged=False)
    return Experiment(task, machine, Optimiser(), Schedule(iterations, batch_size), choice.seed)


def _counted_as_the_authors(task: Task) -> Task:
    """Repeat counts with the published code's mean, and in a test normalised by the test's own range, so that a count
    has another meaning than in training."""

    def train(single: Task) -> Task:
        return replace(single, count_mean="authors") if isinstance(single, RepeatCopy) else single

    def test(single: Task) -> Task:
        if not isinstance(single, RepeatCopy):
            return single
        return replace(single, count_mean="authors", normalise=single.repeats)

    return replace(task.mapped(train), test=None if task.test is None else task.test.mapped(test))


# --- single tasks -----------------------------------------------------------------------------------------------------


@Recipe
def copy(choice: Choice) -> Experiment:
    """Repeat a sequence of random bytes after it has ended."""
    task = Copy(length=(1, 20), test=Copy(length=(120, 120)))
    return _copy(choice, task, slots=128, iterations=12_000 if choice.defaults else 100_000)


@Recipe
def long_copy(choice: Choice) -> Experiment:
    """Copy at twice the length, on twice the tape."""
    task = Copy(length=(1, 40), test=Copy(length=(200, 200)))
    return _copy(choice, task, slots=256, iterations=20_000 if choice.defaults else 50_000)


def _copy(choice: Choice, task: Copy, slots: int, iterations: int) -> Experiment:
    machine = _ntm(choice, task, sizes=(100, 80), slots=slots)
    if not choice.defaults:
        return _as_published(choice, task, machine, iterations, batch_size=1)
    # Two blank vectors in a row, which random ones hardly show in training, made machines forget which phase they are
    # in; and a machine that is right at the lengths of training need not be at three times these
    # (docs/results/length-generalisation.md).
    longest = 3 * task.length[1]
    task = replace(task, ragged=False, blank=0.05, validation=Copy(length=(longest, longest), blank=0.05))
    # A gradient is tiny once the task is solved: with a smaller ε a machine would still move at full speed.
    optimiser = replace(FALLING, epsilon=1e-4)
    return Experiment(task, machine, optimiser, _longer(iterations), choice.seed)


def _longer(iterations: int) -> Schedule:
    """Settings for length generalisation: tapes that are sometimes full, which in a ragged batch only the longest
    sequence would see; noise; and enough validation sequences to choose the best machine by."""
    return Schedule(iterations, batch_size=4, random_slots=True, cell_noise=0.3, validation_sequences=256)


@Recipe
def repeat_copy(choice: Choice) -> Experiment:
    """Repeat a sequence of random bytes as often as a number says."""
    test = RepeatCopy(length=(10, 20), repeats=(10, 20), normalise=(1, 10))
    task = RepeatCopy(length=(1, 10), repeats=(1, 10), normalise=(1, 10), test=test)
    machine = _ntm(choice, task, sizes=(100, 80))
    if not choice.defaults:
        return _as_published(choice, task, machine, 100_000, batch_size=1)
    return Experiment(replace(task, ragged=False), machine, FALLING, _longer(50_000), choice.seed)


@Recipe
def associative_recall(choice: Choice) -> Experiment:
    """Given a list of items and one of them, return the next item."""
    task = AssociativeRecall(items=(2, 6), test=AssociativeRecall(items=(6, 20)))
    machine = _ntm(choice, task, sizes=(100, 80))
    if not choice.defaults:
        return _as_published(choice, task, machine, 100_000, batch_size=1)
    # Adam learns from fewer sequences where RMSprop lingers on plateaus.
    adam = Optimiser("adam", learning_rate=1e-3, final_rate=0.05)
    schedule = Schedule(15_000, batch_size=16, random_slots=True)
    return Experiment(replace(task, ragged=False), machine, adam, schedule, choice.seed)


@Recipe
def ngrams(choice: Choice) -> Experiment:
    """Predict a binary source whose next bit depends on the five before it."""
    task = NGrams(length=50, test=NGrams(length=200))
    machine = _ntm(choice, task, sizes=(100, 80))
    if not choice.defaults:
        return _as_published(choice, task, machine, 100_000, batch_size=1)
    adam = Optimiser("adam", learning_rate=1e-3, final_rate=0.02)
    schedule = Schedule(20_000, batch_size=16, random_slots=True)
    return Experiment(replace(task, ragged=False), _differing(machine), adam, schedule, choice.seed)


def _differing(machine: MachineConfig) -> MachineConfig:
    """For tasks where slots should differ at the start. On a blank tape machines take a new slot for every bit of
    N-grams, and run out of slots on long sequences; for sorting, slots that differ can be addressed by content before
    anything is written (docs/results/length-generalisation.md)."""
    return replace(machine, memory=random_tape(machine.memory)) if isinstance(machine.memory, NTM) else machine


@Recipe
def priority_sort(choice: Choice) -> Experiment:
    """Sort random bytes by their priorities."""
    task = PrioritySort(items=20, sorted_items=16, test=PrioritySort(items=20, sorted_items=20))
    machine = _ntm(choice, task, sizes=(200, 150), heads=5)
    if not choice.defaults:
        return _as_published(choice, task, machine, 100_000, batch_size=1)
    return Experiment(replace(task, ragged=False), _differing(machine), FALLING, _sorted(600_000), choice.seed)


def _sorted(iterations: int) -> Schedule:
    """Sorting needs many updates rather than many sequences, and so many that every run diverges at some time."""
    return Schedule(iterations, batch_size=1, validation_sequences=256, rewind=0.05)


# --- sequences of tasks -----------------------------------------------------------------------------------------------

COPIED = Copy(length=(1, 10), test=Copy(length=(10, 20)))
SORTED = PrioritySort(items=10, sorted_items=8, test=PrioritySort(items=10, sorted_items=10))
REPEATED = RepeatCopy(
    length=(1, 10), repeats=(1, 5), normalise=(1, 5), test=RepeatCopy(length=(10, 20), repeats=(6, 6), normalise=(1, 5))
)
RECALLED = AssociativeRecall(
    width=8, items=(2, 4), item_length=6, test=AssociativeRecall(width=8, items=(5, 5), item_length=6)
)
SUBTASKS: dict[str, Task] = {task.name: task for task in (COPIED, REPEATED, RECALLED, SORTED)}
"""As subtasks of all four, and of every combination without a row in the paper's table."""
REPEATED_MORE = RepeatCopy(
    length=(1, 10),
    repeats=(1, 10),
    normalise=(1, 10),
    test=RepeatCopy(length=(10, 20), repeats=(10, 15), normalise=(1, 10)),
)
RECALLED_LONGER = AssociativeRecall(
    width=8, items=(2, 4), item_length=8, test=AssociativeRecall(width=8, items=(4, 6), item_length=8)
)
PAIRED: dict[str, Task] = SUBTASKS | {"repeat-copy": REPEATED_MORE, "associative-recall": RECALLED_LONGER}
"""As the second subtask beside Copy."""


@Recipe
def sequence(
    choice: Choice,
    tasks: Annotated[tuple[str, ...], "Two or more of copy, repeat-copy, associative-recall and priority-sort."] = (
        "copy",
        "repeat-copy",
    ),
) -> Experiment:
    """Several tasks, in an order that is given at the start."""
    for name in tasks:
        if name == "ngrams":
            raise UserError("ngrams can't be part of a sequence: it has a target after every input")
        choose("subtask", name, SUBTASKS)
    if len(set(tasks)) < len(tasks):
        raise UserError(f"{'+'.join(tasks)!r} names a subtask twice: name each once.")
    pair = len(tasks) == 2 and "copy" in tasks
    parts = [(PAIRED if pair else SUBTASKS)[name] for name in tasks]
    task = Sequencing(
        tuple(replace(part, test=None) for part in parts), test=Sequencing(tuple(p.tested for p in parts))
    )
    sorting, recalling = "priority-sort" in tasks, "associative-recall" in tasks
    if pair:
        machine = _ntm(choice, task, sizes=(200, 150), heads=3 if sorting else 1, programs=3)
    else:
        machine = _ntm(choice, task, sizes=(250, 200), heads=3, programs=4)
    if not choice.defaults:
        return _as_published(choice, task, machine, 50_000, batch_size=16)
    task = replace(task, ragged=False)
    if pair and sorting:
        return Experiment(task, _differing(machine), FALLING, _sorted(800_000), choice.seed)
    if recalling:  # as in the paper: at a higher rate it is not learned
        return Experiment(task, machine, Optimiser(), Schedule(50_000, batch_size=16), choice.seed)
    # Three times that rate with a larger ε; which of the two it takes was not tried apart.
    optimiser = Optimiser(learning_rate=3e-4, final_rate=0.02, epsilon=1e-4)
    return Experiment(task, machine, optimiser, Schedule(20_000, batch_size=16, random_slots=True), choice.seed)


@Recipe
def continual(
    choice: Choice,
    growing: Annotated[bool, "Whole machines as programs, one claimed for every kind of sequence."] = False,
) -> Experiment:
    """Continual learning: four tasks one after another, 20,000 iterations each, with the accuracy on all after each."""
    task = Mixture(
        (
            Copy(length=(1, 10)),
            RepeatCopy(length=(1, 5), repeats=(1, 5), normalise=(1, 5), end_marker=False),
            AssociativeRecall(width=8, items=(2, 3), item_length=3),
            PrioritySort(items=10, sorted_items=8),
        )
    )
    machine = _ntm(choice, task, sizes=(200, 150), programs=6)
    # Feed-forward controllers "to ignore catastrophic forgetting in the state network", hard programs.
    machine = replace(machine, controller=replace(machine.controller, kind="feed-forward"))
    if machine.programs is not None:
        machine = replace(machine, programs=replace(machine.programs, attention="gumbel"))
        if choice.preset == "authors":
            machine = with_noisy_probabilities(machine)
    if growing:
        # Four LSTMs of 100 units and their heads have about as many weights as the single one of the paper's count.
        machine = replace(machine, controller=Controller("lstm", 100), repertoire=Repertoire())
    if not choice.defaults:
        published = _as_published(choice, task, machine, 80_000, batch_size=16)
        return replace(published, schedule=replace(published.schedule, curriculum=OneByOne()))
    return Experiment(task, machine, Optimiser(), Schedule(80_000, 16, OneByOne()), choice.seed)


def with_noisy_probabilities(machine: MachineConfig) -> MachineConfig:
    """Programs chosen as in the published code of continual learning, by noise on probabilities at temperature 10."""
    assert machine.programs is not None
    return replace(machine, programs=replace(machine.programs, attention="gumbel-probabilities", temperature=10.0))


# --- few-shot learning ------------------------------------------------------------------------------------------------


@Recipe
def omniglot(
    choice: Choice,
    classes: Annotated[int, "Characters in an episode: 50 drawings of 5, or 75 of 10."] = 5,
    wiped: Annotated[bool, "Wipe memory between episodes; False: it persists."] = True,
) -> Experiment:
    """Few-shot learning: name new characters after being told their names a few times."""
    persistent = not wiped
    length = {5: 50, 10: 75}.get(classes, 10 * classes)
    task = Omniglot(classes, length)
    # Tested on other characters, without augmentation.
    task = replace(task, test=replace(task, purpose="test", quarters=False, angle=0.0, shift=0.0))
    programs = choice.stored({5: 2, 10: 3}.get(classes, 3))
    machine = choice.machine(
        task.input_size,
        task.output_size,
        Controller(size={0: 200, 1: 200, 2: 180}.get(programs, 150)),
        LRUA(slots=128, width=40, read_heads=4, write_heads=1),
        Programs(programs) if programs > 1 else None,
    )
    schedule = Schedule(
        100_000, 16, persistent=persistent, evaluate_every=1_000, validation_sequences=100, follow_test=True
    )
    if not choice.defaults:
        return Experiment(task, machine, Optimiser(), schedule, choice.seed)
    # Sharp reads, large interface weights and keys that start like what is written take a machine off the plateau of
    # guessing within 2,000 iterations; with the equations' blurred reads it still guessed after 4,000. With ten classes
    # NUTM guesses for longer than 3,300 unless easy episodes are mixed in at first, and then for none. Where memory
    # persists it does for longer than 8,000 even so, unless memory is wiped while it learns what to do. Half the
    # paper's batch learns as much from an iteration.
    interface = replace(machine.interface, fan="head")
    if isinstance(machine.memory, LRUA):
        interface = replace(interface, keys="written")
        machine = replace(machine, memory=replace(machine.memory, strength=10.0))
    task = replace(task, easy_steps=1_500 if classes > 5 or persistent else 0)
    schedule = replace(schedule, iterations=30_000, batch_size=8, wiped_steps=4_000 if persistent else 0)
    adam = Optimiser("adam", learning_rate=1e-3, final_rate=0.05)
    return Experiment(task, replace(machine, interface=interface), adam, schedule, choice.seed)


# --- question answering -----------------------------------------------------------------------------------------------

ALL = 100_000
"""More stories than any part of bAbI has."""


@Recipe
def babi(
    choice: Choice,
    tasks: Annotated[tuple[int, ...], "Which of the twenty tasks."] = tuple(data.TASKS),
    stages: Annotated[
        bool, "Tasks that need a new skill first, one at a time, then all, by the error left on each (default preset)."
    ] = True,
) -> Experiment:
    """Answer questions about stories: all twenty bAbI tasks in one machine, or some of them."""
    numbers = tuple(sorted(tasks))
    protocol = "authors" if choice.preset == "authors" else "paper"
    task = Babi(numbers, protocol=protocol, test=Babi(numbers, "test", protocol))
    programs = choice.stored(4)
    machine = choice.machine(
        task.input_size,
        task.output_size,
        # The table's 200 for two programs is a slip for 240.
        Controller(size={0: 256, 1: 256, 2: 240}.get(programs, 172), biases=1, learned_start=False, layer_norm=True),
        DNC(slots=196, width=64, read_heads=4),
        Programs(programs, query_bias=False) if programs > 1 else None,
        Interface(norm=True),
    )
    if not choice.defaults:
        return Experiment(task, machine, Optimiser(), _epochs(numbers, 32, 50), choice.seed)
    # With the usual start a machine answers with some place that was mentioned lately, half of the time right, and then
    # learns its stories by heart. With this one states in which the same word was last are alike, what was written in
    # one is found in the other, and the error of the first task falls below 5 % in thirty epochs.
    machine = replace(machine, controller=replace(machine.controller, input_gain=4.0, forget_bias=1.0))
    if isinstance(machine.memory, DNC):
        machine = replace(machine, interface=replace(machine.interface, keys="written", sharpness=10.0))
    if len(numbers) == 1:
        # The stories are few: it takes updates more than it takes stories.
        schedule = replace(_epochs(numbers, 8, 50), solved_loss=0.03, stop_when_solved=2)
        return Experiment(task, machine, Optimiser(learning_rate=2e-4), schedule, choice.seed)
    # Tasks with few stories overfit: against that there is noise, and words that stand for each other change places
    # (path finding fell from 62 % to 7 % with the noise alone). Small batches, because skills take updates more than
    # stories; and three words in four for the task that needs a new one, or it is not found among the others. Look-up
    # (1) and deduction (15) come first, without noise and exchange, which hide them (docs/results/babi.md). An
    # evaluation decides what is drawn, on a sample of validation stories.
    task = replace(task, exchange=True)
    in_turn = InStages(("qa1", "qa15", OTHERS, "qa19", "qa17", "qa3+qa16"), focus=0.75)
    schedule = Schedule(
        140_000,
        batch_size=8,
        curriculum=in_turn if stages else None,
        cell_noise=0.3,
        evaluate_every=2_000,
        validation_sequences=1_000,
        test_sequences=ALL,
        checkpoint_every=500,
    )
    return Experiment(task, machine, Optimiser(learning_rate=2e-4, final_rate=0.1), schedule, choice.seed)


def _epochs(numbers: tuple[int, ...], batch_size: int, epochs: int) -> Schedule:
    """A number of epochs, with an evaluation on all validation stories after each."""
    each = epoch(numbers, batch_size)
    return Schedule(
        epochs * each,
        batch_size,
        log_every=min(100, each),
        evaluate_every=each,
        validation_sequences=ALL,
        test_sequences=ALL,
        checkpoint_every=min(500, each),
    )


# --- tasks of the user's own ------------------------------------------------------------------------------------------


def own(task: Task) -> Recipe:
    """A recipe for any other task: a machine as `nsm.NUTM` makes it, and Adam."""

    def make(choice: Choice) -> Experiment:
        stored = choice.stored(2)
        programs = Programs(stored) if stored else None
        machine = choice.machine(task.input_size, task.output_size, Controller(), NTM(), programs)
        adam = Optimiser("adam", learning_rate=1e-3, final_rate=0.05)
        return Experiment(task, machine, adam, Schedule(10_000, batch_size=16), choice.seed)

    make.__name__, make.__doc__ = task.name, f"{tree.kind_of(type(task))}, a task of your own."
    return Recipe(make)


# --- by name ----------------------------------------------------------------------------------------------------------

SINGLE = (copy, long_copy, repeat_copy, associative_recall, ngrams, priority_sort)
RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in (*SINGLE, sequence, continual, omniglot, babi)}


def find(name: str) -> Recipe:
    """The recipe of a name: one of `RECIPES`, or one with arguments in its name: copy+repeat-copy, omniglot-10,
    babi-1,4. A task of the user's own is module:Class, of an imported module."""
    if name in RECIPES:
        return RECIPES[name]
    if ":" in name:
        return own(_made(tree.find(Task, name, "the task")))
    if "+" in name:
        return _with(sequence, name, tasks=tuple(name.split("+")))
    kind, _, rest = name.partition("-")
    numbers = rest.split(",")
    if kind in ("omniglot", "babi") and all(number.isascii() and number.isdecimal() for number in numbers):
        values = tuple(map(int, numbers))
        if kind == "babi":
            return _with(babi, name, tasks=values)
        if len(values) == 1:
            return _with(omniglot, name, classes=values[0])
    choose("task", name, RECIPES)
    raise AssertionError


def _made(kind: type[Task]) -> Task:
    try:
        return kind()
    except TypeError as error:
        raise UserError(
            f"{tree.kind_of(kind)} can't be made without arguments, give its fields defaults: {error}"
        ) from None


def _with(recipe: Recipe, name: str, **own: object) -> Recipe:
    made = partial(recipe.make, **own)
    made.__name__, made.__doc__ = name, recipe.make.__doc__  # type: ignore[attr-defined]
    return Recipe(made)
