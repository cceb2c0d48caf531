"""Recipes: names, the paper's settings, models and memories by what they are, presets, and mistakes in a sentence."""

from dataclasses import replace
from itertools import permutations

import pytest

from nsm import names
from nsm.checks import UserError
from nsm.experiments import recipes
from nsm.experiments.choice import MODELS, Choice, as_in_the_paper, as_the_authors
from nsm.experiments.recipes import RECIPES, SUBTASKS, find
from nsm.memories import DNC, LRUA, NTM
from nsm.tasks import AssociativeRecall, Babi, Copy, Mixture, NGrams, Omniglot, PrioritySort, RepeatCopy, Sequencing
from nsm.training.curriculum import InStages, OneByOne
from nsm.training.experiment import Experiment, Optimiser
from nsm.tree import from_json, to_json

# Channels as they follow from the paper's parameter counts.
SIZES = {
    "copy": (10, 8),
    "long-copy": (10, 8),
    "repeat-copy": (10, 9),
    "associative-recall": (8, 6),
    "ngrams": (1, 1),
    "priority-sort": (9, 8),
    "copy+repeat-copy": (10, 9),
    "copy+associative-recall": (10, 8),
    "copy+priority-sort": (10, 8),
    "copy+repeat-copy+associative-recall+priority-sort": (10, 9),
    "continual": (10, 8),
    "omniglot-5": (405, 5),
    "omniglot-10": (410, 10),
    "babi": (159, 159),
    "babi-4,1": (159, 159),
}
MEMORIES = {"ntm": NTM, "lrua": LRUA, "dnc": DNC}
OF_THE_TASK = {"omniglot": LRUA, "babi": DNC}
"""The paper's memory; NTM for every other task."""
PRESETS = ["default", "paper", "authors"]


def task_of(name, preset="paper"):
    """A recipe's task, but with lengths drawn for every sequence."""
    return replace(find(name)(preset=preset).task, ragged=True)


# --- names ------------------------------------------------------------------------------------------------------------


def test_the_command_line_knows_the_names_without_the_recipes():
    assert tuple(RECIPES) == names.RECIPES
    assert set(MODELS) == {"nutm", "ntm", "mann", "dnc"}
    for name, recipe in RECIPES.items():
        assert recipe.name == name
        assert find(name) is recipe
        assert len(recipe.__doc__.splitlines()[0]) > 20


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("preset", PRESETS)
def test_every_recipe_is_a_complete_experiment_with_the_channels_of_the_paper(name, preset):
    recipe = find(name)
    assert recipe.name == name
    experiment = recipe("nutm", preset, seed=3)
    for task in (experiment.task, experiment.task.tested):
        assert (task.input_size, task.output_size) == SIZES[name]
    experiment.check()
    assert experiment.seed == 3
    assert from_json(Experiment, to_json(experiment)) == experiment


def test_a_name_with_arguments_is_the_recipe_with_them():
    assert find("omniglot-10")() == recipes.omniglot(classes=10)
    assert find("babi-4,1")("dnc", "paper") == recipes.babi("dnc", "paper", tasks=(1, 4))
    assert find("priority-sort+copy")() == recipes.sequence(tasks=("priority-sort", "copy"))
    assert find("copy+repeat-copy")() == recipes.sequence()
    assert find("omniglot")() == find("omniglot-5")() == recipes.omniglot(classes=5)
    assert [find(name)().task.name for name in ("copy+priority-sort", "omniglot-10", "babi-4,1", "babi")] == [
        *("copy+priority-sort", "omniglot-10", "babi-1,4", "babi")
    ]


def test_the_arguments_that_only_one_recipe_has_are_known_with_what_they_are():
    own = {name: {argument: default for argument, _, _, default in recipe.own} for name, recipe in RECIPES.items()}
    assert own["copy"] == {}
    assert own["continual"] == {"growing": False}
    assert own["omniglot"] == {"classes": 5, "wiped": True}
    assert own["babi"] == {"tasks": tuple(range(1, 21)), "stages": True}
    assert own["sequence"] == {"tasks": ("copy", "repeat-copy")}
    # A name's own arguments are the defaults then.
    assert next(default for argument, _, _, default in find("omniglot-10").own if argument == "classes") == 10
    assert all(len(words) > 10 for recipe in RECIPES.values() for _, _, words, _ in recipe.own)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("coppy", r"^task must be one of 'copy', 'long-copy',.* was 'coppy'; did you mean 'copy'\?"),
        ("n-grams", r"did you mean 'ngrams'"),
        ("prioritysort", r"did you mean 'priority-sort'"),
        ("", r"^task must be one of .* was ''"),
        ("copy+repeatcopy", r"^subtask must be one of 'copy', 'repeat-copy',.*did you mean 'repeat-copy'"),
        ("copy+", r"^subtask must be one of .* was ''"),
        ("long-copy+priority-sort", r"'long-copy'; did you mean 'copy'"),
        ("copy+copy", r"^'copy\+copy' names a subtask twice"),
        ("copy+ngrams", "^ngrams can't be part of a sequence"),
        ("omniglot-1", r"classes is 1: it must be a whole number of at least 2"),
        ("omniglot-", r"did you mean 'omniglot'"),
        ("omniglot-5,6", r"did you mean 'omniglot'"),
        ("omniglot-٥", r"did you mean 'omniglot'"),
        ("copy-3", r"did you mean 'copy'"),
        ("babi-21", r"bAbI has no task 21"),
    ],
)
def test_unknown_names(name, message):
    with pytest.raises(UserError, match=message):
        find(name)()


def test_one_task_is_no_sequence():
    with pytest.raises(UserError, match="at least 2"):
        recipes.sequence(tasks=("copy",))


# --- the paper's settings ---------------------------------------------------------------------------------------------


def test_the_settings_of_single_tasks():
    assert task_of("copy") == Copy(8, (1, 20), test=Copy(8, (120, 120)))
    assert task_of("long-copy") == Copy(8, (1, 40), test=Copy(8, (200, 200)))
    assert task_of("repeat-copy") == RepeatCopy(
        *(8, (1, 10), (1, 10)), normalise=(1, 10), test=RepeatCopy(8, (10, 20), (10, 20), normalise=(1, 10))
    )
    assert task_of("associative-recall") == AssociativeRecall(6, (2, 6), 3, test=AssociativeRecall(6, (6, 20), 3))
    assert task_of("ngrams") == NGrams(6, 50, test=NGrams(6, 200))
    assert task_of("priority-sort") == PrioritySort(8, 20, 16, test=PrioritySort(8, 20, 20))


def test_the_settings_of_sequencing_tasks():
    copy, longer = Copy(8, (1, 10)), Copy(8, (10, 20))
    assert task_of("copy+repeat-copy") == Sequencing(
        (copy, RepeatCopy(8, (1, 10), (1, 10), (1, 10))),
        test=Sequencing((longer, RepeatCopy(8, (10, 20), (10, 15), (1, 10)))),
    )
    assert task_of("copy+associative-recall") == Sequencing(
        (copy, AssociativeRecall(8, (2, 4), 8)), test=Sequencing((longer, AssociativeRecall(8, (4, 6), 8)))
    )
    assert task_of("copy+priority-sort") == Sequencing(
        (copy, PrioritySort(8, 10, 8)), test=Sequencing((longer, PrioritySort(8, 10, 10)))
    )
    assert task_of("copy+repeat-copy+associative-recall+priority-sort") == Sequencing(
        (copy, RepeatCopy(8, (1, 10), (1, 5), (1, 5)), AssociativeRecall(8, (2, 4), 6), PrioritySort(8, 10, 8)),
        test=Sequencing(
            (longer, RepeatCopy(8, (10, 20), (6, 6), (1, 5)), AssociativeRecall(8, (5, 5), 6), PrioritySort(8, 10, 10))
        ),
    )


def test_the_settings_of_continual_learning():
    experiment = recipes.continual("ntm", "paper")
    task = replace(experiment.task, ragged=True)
    assert (
        task
        == task.tested
        == Mixture(
            (
                Copy(8, (1, 10)),
                RepeatCopy(8, (1, 5), (1, 5), (1, 5), end_marker=False),
                AssociativeRecall(8, (2, 3), 3),
                PrioritySort(8, 10, 8),
            )
        )
    )
    assert (experiment.schedule.curriculum, experiment.schedule.iterations) == (OneByOne(), 80_000)
    assert recipes.continual("nutm").machine.programs.attention == "gumbel"
    assert {recipes.continual(model).machine.controller.kind for model in MODELS} == {"feed-forward"}


def test_the_settings_of_few_shots_and_of_question_answering():
    for classes, length in ((5, 50), (10, 75)):
        task = recipes.omniglot(preset="paper", classes=classes).task
        test = Omniglot(classes, length, "test", quarters=False, angle=0.0, shift=0.0)
        assert task == Omniglot(classes, length, test=test)
    assert recipes.babi(preset="paper").task == Babi(test=Babi(split="test"))
    assert recipes.babi(preset="authors", tasks=(4,)).task == Babi(
        (4,), protocol="authors", test=Babi((4,), "test", "authors")
    )


def test_any_subset_in_any_order_can_be_sequenced():
    for size in (2, 3, 4):
        for subtasks in permutations(SUBTASKS, size):
            task = task_of("+".join(subtasks))
            for form in (task, task.tested):
                assert isinstance(form, Sequencing)
                assert form.subtask_names == subtasks
                assert all(subtask.test is None for subtask in form.subtasks)


def test_another_order_keeps_the_settings_of_the_table():
    table, turned = task_of("copy+repeat-copy"), task_of("repeat-copy+copy")
    assert turned.singles() == table.singles()[::-1]
    assert turned.tested.singles() == table.tested.singles()[::-1]
    assert turned.tested.singles() != task_of("repeat-copy+copy+priority-sort").tested.singles()[:2]


def test_the_authors_preset_changes_only_how_counts_are_shown():
    task = task_of("repeat-copy", "authors")
    assert replace(task, test=None) == RepeatCopy(8, (1, 10), (1, 10), normalise=(1, 10), count_mean="authors")
    assert task.test == RepeatCopy(8, (10, 20), (10, 20), normalise=(10, 20), count_mean="authors")
    assert task_of("copy", "authors") == task_of("copy")
    sequence = task_of("copy+repeat-copy", "authors").tested.singles()
    assert sequence == (Copy(8, (10, 20)), RepeatCopy(8, (10, 20), (10, 15), (10, 15), count_mean="authors"))
    phase = task_of("continual", "authors").singles()[1]
    assert phase == RepeatCopy(8, (1, 5), (1, 5), (1, 5), count_mean="authors", end_marker=False)


# --- models, memories, presets ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["copy", "copy+priority-sort", "continual", "omniglot", "babi"])
@pytest.mark.parametrize("model", MODELS)
def test_a_model_means_the_same_for_every_task(name, model):
    machine = find(name)(model).machine
    assert machine.model == model
    stored = model == "nutm"
    assert (machine.programs is not None) == stored
    assert type(machine.memory) is (OF_THE_TASK.get(name, NTM) if stored else MEMORIES[MODELS[model]])


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("name", ["copy", "omniglot", "babi-1", "continual"])
@pytest.mark.parametrize("preset", PRESETS)
def test_stored_programs_go_with_any_memory(memory, name, preset):
    usual = find(name)(preset=preset).machine
    machine = find(name)(preset=preset, memory=memory).machine
    assert type(machine.memory) is MEMORIES[memory]
    assert (machine.memory.slots, machine.memory.width) == (usual.memory.slots, usual.memory.width)
    assert machine.programs.count == usual.programs.count


def test_the_number_of_programs_is_the_papers_unless_it_is_given():
    counts = {"copy": 2, "copy+repeat-copy": 3, "copy+repeat-copy+priority-sort": 4, "continual": 6, "babi": 4}
    assert {name: find(name)().machine.programs.count for name in counts} == counts
    assert [find(name)().machine.programs.count for name in ("omniglot-5", "omniglot-10")] == [2, 3]
    assert recipes.copy(programs=7).machine.programs.count == 7
    assert recipes.copy(programs=0).machine == recipes.copy("ntm").machine
    assert recipes.copy(memory="dnc", programs=0).machine == recipes.copy("dnc").machine


@pytest.mark.parametrize("name", ["copy", "omniglot", "babi-1"])
@pytest.mark.parametrize("model", ["nutm", "ntm"])
def test_presets_are_values_of_ordinary_options(name, model):
    """`paper` has the published code's interface weights, `authors` its deviations from the equations, too."""
    paper, authors = (find(name)(model, preset) for preset in ("paper", "authors"))
    assert paper.machine == as_in_the_paper(paper.machine)
    assert authors.machine == as_the_authors(paper.machine) == as_the_authors(authors.machine)
    assert paper.machine.memory.initial_memory != "random"
    assert authors.machine.memory.initial_memory == "random"
    assert paper.machine.interface.fan == ("memory" if model == "nutm" else "head")
    if model == "nutm":
        programs = authors.machine.programs
        assert (programs.bounded_keys, programs.strength_scale, programs.loss) == (True, 1 / programs.keys, "mean")
        assert not paper.machine.programs.bounded_keys
    assert (paper.optimiser, paper.schedule) == (authors.optimiser, authors.schedule)
    assert paper.optimiser == Optimiser()
    assert (paper.schedule.cell_noise, paper.schedule.random_slots) == (0, False)


def test_published_settings_have_one_length_a_batch():
    for preset in ("paper", "authors"):
        for name in ("copy", "copy+repeat-copy", "continual"):
            assert not find(name)(preset=preset).task.ragged
    assert [find(name)(preset="paper").schedule.iterations for name in ("copy", "long-copy", "copy+priority-sort")] == [
        *(100_000, 50_000, 50_000)
    ]
    assert [find(name)(preset="paper").schedule.batch_size for name in ("copy", "copy+repeat-copy", "continual")] == [
        *(1, 16, 16)
    ]


def test_memory_that_persists_is_wiped_at_first_by_default():
    assert not recipes.omniglot().schedule.persistent
    default, paper = (recipes.omniglot(preset=preset, wiped=False) for preset in ("default", "paper"))
    assert default.schedule.persistent
    assert paper.schedule.persistent
    assert (default.schedule.wiped_steps, default.task.easy_steps) == (4_000, 1_500)
    assert (paper.schedule.wiped_steps, paper.task.easy_steps) == (0, 0)
    assert recipes.omniglot().task.easy_steps == 0
    assert recipes.omniglot(classes=10).task.easy_steps == 1_500


def test_several_stories_are_learned_with_a_curriculum_by_default():
    default = recipes.babi()
    assert isinstance(default.schedule.curriculum, InStages)
    assert default.schedule.curriculum.start(default.task) == (1.0, *[0.0] * 19)
    assert default.task.exchange
    assert not recipes.babi(preset="paper").task.exchange
    assert recipes.babi(stages=False).schedule.curriculum is None
    assert recipes.babi(tasks=(3,)).schedule.curriculum is None
    assert recipes.babi(preset="paper").schedule.curriculum is None
    assert recipes.babi(tasks=(4, 1)).task.tasks == (1, 4)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model": "nutmm"}, r"^model must be one of .* did you mean 'nutm'"),
        ({"model": "lrua"}, r"^model must be one of"),
        ({"preset": "papers"}, r"^preset must be one of .* did you mean 'paper'"),
        ({"memory": "stack"}, r"^memory must be one of 'ntm', 'lrua', 'dnc'"),
        ({"programs": -1}, r"^programs must be an integer of at least 0"),
        ({"programs": True}, r"^programs must be an integer of at least 0"),
        ({"model": "ntm", "programs": 2}, r"^model 'ntm' is a memory and no programs"),
        ({"model": "dnc", "memory": "ntm"}, r"^model 'dnc' is a memory and no programs"),
    ],
)
def test_choices_that_cannot_be(fields, message):
    with pytest.raises(UserError, match=message):
        Choice(**fields)
    with pytest.raises(UserError, match=message):
        recipes.copy(**fields)


def test_a_seed_that_cannot_be_and_an_argument_that_no_recipe_has():
    with pytest.raises(UserError, match="seed must be an integer of at least 0"):
        recipes.copy(seed=-1)
    with pytest.raises(TypeError, match="classes"):
        recipes.copy(classes=5)
