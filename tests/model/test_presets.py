"""A preset is a handful of values of a configuration, and nothing else."""

import dataclasses

import pytest

from nsm import DNC, LRUA, MANN, NTM, NUTM, Controller, Interface, Machine, MachineConfig, Memory, Programs
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
    before, after = flat(config), flat(config.preset(preset))
    assert before.keys() == after.keys()
    return {name: value for name, value in after.items() if before[name] != value}


def configuration(memory, programs=None, **interface):
    return MachineConfig(3, 2, Controller("gru", size=5), memory, programs, Interface(**interface), True)


KINDS = {"plain": None, "stored": Programs(4, key_size=5)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("memory", MEMORIES.values(), ids=MEMORIES)
def test_default_changes_nothing(memory, kind):
    config = configuration(memory(slots=7), KINDS[kind])
    assert config.preset("default") == config


@pytest.mark.parametrize("memory", MEMORIES.values(), ids=MEMORIES)
def test_paper_changes_the_start_of_the_interfaces(memory):
    assert changes(configuration(memory(slots=7)), "paper") == {"interface.fan": "head"}
    assert changes(configuration(memory(slots=7), KINDS["stored"]), "paper") == {}
    by_head = configuration(memory(slots=7), KINDS["stored"], fan="head")
    assert changes(by_head, "paper") == {"interface.fan": "memory"}


@pytest.mark.parametrize("memory", MEMORIES.values(), ids=MEMORIES)
def test_authors_is_paper_with_their_start_of_the_tape_and_their_deviations_in_the_programs(memory):
    start = {"memory.initial_memory": "random"}
    if memory is NTM:
        start["memory.initial_address"] = "zeros"
    config = configuration(memory(slots=7), KINDS["stored"])
    deviations = {"programs.bounded_keys": True, "programs.strength_scale": 1 / 5, "programs.loss": "mean"}
    assert changes(config, "authors") == {**changes(config, "paper"), **start, **deviations}
    plain = configuration(memory(slots=7))
    assert changes(plain, "authors") == {**changes(plain, "paper"), **start}


def test_the_scale_of_the_authors_is_one_over_the_number_of_programs_by_default():
    assert configuration(NTM(), Programs(4)).preset("authors").programs.strength_scale == 0.25


@pytest.mark.parametrize("preset", ["default", "paper", "authors"])
def test_a_machine_built_with_a_preset_has_the_presets_configuration(preset):
    made = NUTM(3, 2, 2, memory=NTM(7), preset=preset)
    assert made.config == MachineConfig(3, 2, memory=NTM(7), programs=Programs(2)).preset(preset)
    plain = MANN(3, 2, memory="lrua", preset=preset)
    assert plain.config == MachineConfig(3, 2, memory=LRUA()).preset(preset)


def test_a_preset_acts_on_the_machine():
    made = NUTM(3, 2, 3, memory=NTM(7, 3), preset="authors")
    state = made.initial_state(1)
    assert not state.memory.read_addresses.any()
    assert len(state.memory.memory[0, :, 0].unique()) == 7
    assert all(network.memory.config.bounded_keys for network in made.interfaces)


def test_a_machine_is_what_its_configuration_says():
    config = configuration(DNC(7, 3), KINDS["stored"]).preset("authors")
    made = Machine.from_config(config)
    assert isinstance(made, NUTM)
    assert made.config == config
    plain = Machine.from_config(configuration(DNC(7, 3)))
    assert isinstance(plain, MANN)
    assert isinstance(plain.memory, Memory)
