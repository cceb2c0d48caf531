"""A preset is a handful of values of a configuration, and nothing else."""

import dataclasses

import pytest

from nsm import DNC, MANN, NTM, NUTM, Controller, Interface, Machine, MachineConfig, Memory, Programs
from nsm.experiments.choice import Choice, as_in_the_paper, as_the_authors
from nsm.memories import MEMORIES


def flat(config, prefix=""):
    """Every value of a configuration by its dotted name."""
    found = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            found |= flat(value, f"{prefix}{field.name}.")
        else:
            found[prefix + field.name] = value
    return found


def changes(config, preset):
    before, after = flat(config), flat(preset(config))
    assert before.keys() == after.keys()
    return {name: value for name, value in after.items() if before[name] != value}


def configuration(memory, programs=None, **interface):
    return MachineConfig(3, 2, Controller("gru", size=5), memory, programs, Interface(**interface), True)


KINDS = {"plain": None, "stored": Programs(4, key_size=5)}


def chosen(preset, config):
    """The machine of a recipe that asks for what `config` has."""
    parts = config.controller, config.memory, config.programs, config.interface
    return Choice(preset=preset).machine(config.input_size, config.output_size, *parts)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("memory", MEMORIES.values(), ids=MEMORIES)
def test_a_recipe_starts_its_machine_as_the_preset_says(memory, kind):
    config = dataclasses.replace(configuration(memory(slots=7), KINDS[kind], gain=2.0), batch_first=False)
    assert chosen("default", config) == config
    assert chosen("paper", config) == as_in_the_paper(config)
    assert chosen("authors", config) == as_the_authors(config)


@pytest.mark.parametrize("memory", MEMORIES.values(), ids=MEMORIES)
def test_paper_changes_the_start_of_the_interfaces(memory):
    assert changes(configuration(memory(slots=7)), as_in_the_paper) == {"interface.fan": "head"}
    assert changes(configuration(memory(slots=7), KINDS["stored"]), as_in_the_paper) == {}
    by_head = configuration(memory(slots=7), KINDS["stored"], fan="head")
    assert changes(by_head, as_in_the_paper) == {"interface.fan": "memory"}


@pytest.mark.parametrize("memory", MEMORIES.values(), ids=MEMORIES)
def test_authors_is_paper_with_their_start_of_the_tape_and_their_deviations_in_the_programs(memory):
    start = {"memory.initial_memory": "random"}
    if memory is NTM:
        start["memory.initial_address"] = "zeros"
    config = configuration(memory(slots=7), KINDS["stored"])
    deviations = {"programs.bounded_keys": True, "programs.strength_scale": 1 / 5, "programs.loss": "mean"}
    assert changes(config, as_the_authors) == {**changes(config, as_in_the_paper), **start, **deviations}
    plain = configuration(memory(slots=7))
    assert changes(plain, as_the_authors) == {**changes(plain, as_in_the_paper), **start}


def test_the_scale_of_the_authors_is_one_over_the_number_of_programs_by_default():
    assert as_the_authors(configuration(NTM(), Programs(4))).programs.strength_scale == 0.25


def test_a_preset_acts_on_the_machine():
    made = Machine.from_config(as_the_authors(MachineConfig(3, 2, memory=NTM(7, 3), programs=Programs(3))))
    state = made.initial_state(1)
    assert not state.memory.read_addresses.any()
    assert len(state.memory.memory[0, :, 0].unique()) == 7
    assert all(network.memory.config.bounded_keys for network in made.interfaces)


def test_a_machine_is_what_its_configuration_says():
    config = as_the_authors(configuration(DNC(7, 3), KINDS["stored"]))
    made = Machine.from_config(config)
    assert isinstance(made, NUTM)
    assert made.config == config
    plain = Machine.from_config(configuration(DNC(7, 3)))
    assert isinstance(plain, MANN)
    assert isinstance(plain.memory, Memory)
