"""A machine in a directory: back bit by bit, and one clear error for anything that isn't one."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from typing import NamedTuple

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.testing import assert_close

from nsm import (
    DNC,
    LRUA,
    MANN,
    NTM,
    NUTM,
    Addresses,
    Controller,
    Head,
    Interface,
    Machine,
    Memory,
    Programs,
    documents,
    pretrained,
)
from nsm.attention import ATTENTION
from nsm.checks import UserError
from nsm.controllers import NETWORKS
from nsm.memories import MemoryConfig
from nsm.tree import from_json, to_json

EXACT = {"rtol": 0.0, "atol": 0.0}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def same(first, second, dtype=torch.float32):
    """Both machines say the same, bit by bit."""
    for made in (first, second):
        made.eval()
        made.backend = "reference"
    x = torch.randn(4, 2, first.config.input_size, generator=generator(), dtype=dtype)
    assert_close(first(x, trace=True), second(x, trace=True), **EXACT)


def files(directory):
    return sorted(path.name for path in directory.iterdir())


# --- there and back ---------------------------------------------------------------------------------------------------


def test_every_memory_and_model_comes_back_bit_by_bit(machine, tmp_path):
    made = machine.float()
    made.save_pretrained(tmp_path / "machine")
    back = type(made).from_pretrained(tmp_path / "machine")
    assert type(back) is type(made)
    assert back.config == made.config
    assert {name: tensor.numpy().tobytes() for name, tensor in back.state_dict().items()} == {
        name: tensor.numpy().tobytes() for name, tensor in made.state_dict().items()
    }
    same(made, back)


@pytest.mark.parametrize("attention", ATTENTION)
@pytest.mark.parametrize("kind", NETWORKS)
def test_every_controller_and_attention(kind, attention, tmp_path):
    made = NUTM(
        3,
        2,
        Programs(3, attention=attention, temperature=2, query_bias=False, bounded_keys=True, strength_scale=0.5),
        controller=Controller(kind, size=4, biases=1, layer_norm=kind == "lstm"),
        memory=NTM(5, 3, initial_memory="random", initial_address="zeros"),
        interface=Interface(norm=True, fan="head"),
        batch_first=True,
    )
    made.save_pretrained(tmp_path)
    back = Machine.from_pretrained(tmp_path)
    assert back.config == made.config
    same(made, back)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_precision_of_a_machine_is_kept(dtype, tmp_path):
    made = NUTM(3, 2, memory=NTM(5, 3)).to(dtype)
    made.save_pretrained(tmp_path)
    back = NUTM.from_pretrained(tmp_path)
    assert {tensor.dtype for tensor in back.state_dict().values()} == {dtype}
    same(made, back, dtype)


def test_what_comes_back_can_be_trained_and_saved_again(tmp_path):
    made = NUTM(3, 2, memory=NTM(5, 3))
    made.save_pretrained(tmp_path / "first")
    back = NUTM.from_pretrained(tmp_path / "first", backend="reference")
    back(torch.ones(3, 2, 3))[0].sum().backward()
    used = {name for name, parameter in back.named_parameters() if parameter.grad is not None}
    assert used == {name for name, _ in made.named_parameters()}
    back.save_pretrained(tmp_path / "second")
    for name in files(tmp_path / "first"):
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()


def test_loading_leaves_the_global_random_numbers_alone(machine, tmp_path):
    machine.save_pretrained(tmp_path)
    before = torch.get_rng_state()
    type(machine).from_pretrained(tmp_path)
    assert torch.equal(torch.get_rng_state(), before)


def test_saving_over_another_machine_replaces_it_and_leaves_no_stray_files(tmp_path):
    MANN(3, 2, memory=DNC(5, 3)).save_pretrained(tmp_path)
    made = NUTM(4, 1, memory=NTM(6, 2))
    made.save_pretrained(str(tmp_path))
    assert files(tmp_path) == ["config.json", "model.safetensors"]
    same(made, NUTM.from_pretrained(str(tmp_path)))


def test_a_class_of_ones_own_comes_back_as_itself_or_as_what_it_is_made_from(tmp_path):
    class Mine(NUTM):
        pass

    machine = Mine(3, 2, controller=Controller(size=4), memory=NTM(slots=5, width=3))
    machine.save_pretrained(tmp_path)
    for kind in (Mine, NUTM, Machine):
        found = kind.from_pretrained(tmp_path)
        assert type(found) is (Mine if kind is Mine else NUTM)
        assert all(torch.equal(weight, found.state_dict()[name]) for name, weight in machine.state_dict().items())
    with pytest.raises(UserError, match="contains a machine of kind 'NUTM', not a MANN"):
        MANN.from_pretrained(tmp_path)


@dataclass(frozen=True)
class Wider(NTM):
    """A configuration of one's own."""

    more: int = 0


def test_a_memory_whose_configuration_is_ones_own_comes_back_by_its_module_and_name(tmp_path):
    made = NUTM(3, 2, controller=Controller(size=4), memory=Wider(slots=5, width=3, more=7))
    made.save_pretrained(tmp_path)
    document = json.loads((tmp_path / "config.json").read_text())
    assert document["config"]["memory"]["kind"] == f"{__name__}:Wider"
    back = NUTM.from_pretrained(tmp_path)
    assert back.config.memory == made.config.memory
    same(made, back)


def test_a_memory_whose_configuration_is_not_found_again_can_not_be_saved(tmp_path):
    @dataclass(frozen=True)
    class Local(NTM):
        pass

    machine = NUTM(3, 2, controller=Controller(size=4), memory=Local(slots=5, width=3))
    with pytest.raises(UserError, match="Local is defined inside a function: define it at the top level of a module"):
        machine.save_pretrained(tmp_path / "there")
    assert not list(tmp_path.rglob("*.json"))


def test_saving_makes_the_directories_above(tmp_path):
    MANN(3, 2, memory=NTM(5, 3)).save_pretrained(tmp_path / "a" / "b")
    assert files(tmp_path / "a" / "b") == ["config.json", "model.safetensors"]


def test_a_failed_save_leaves_the_old_machine_and_no_stray_files(tmp_path, monkeypatch):
    made = MANN(3, 2, memory=NTM(5, 3))
    made.save_pretrained(tmp_path)

    def broken(source, target):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", broken)
    with pytest.raises(OSError, match="disk full"):
        MANN(3, 2, memory=NTM(5, 3)).save_pretrained(tmp_path)
    monkeypatch.undo()
    assert files(tmp_path) == ["config.json", "model.safetensors"]
    same(made, MANN.from_pretrained(tmp_path))


def test_the_directory_holds_data_only(tmp_path):
    NUTM(3, 2, memory=NTM(5, 3)).save_pretrained(tmp_path)
    assert files(tmp_path) == ["config.json", "model.safetensors"]
    document = json.loads((tmp_path / "config.json").read_text())
    assert document["machine"] == "NUTM"
    assert document["config"]["memory"]["kind"] == "NTM"
    # A pickle starts with its protocol byte, and torch.save's zip with PK.
    assert (tmp_path / "model.safetensors").read_bytes()[8:9] == b"{"
    assert set(load_file(tmp_path / "model.safetensors")) == set(NUTM(3, 2, memory=NTM(5, 3)).state_dict())


# --- damage -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path):
    NUTM(3, 2, Programs(2), controller=Controller(size=4), memory=NTM(5, 3)).save_pretrained(tmp_path)
    return tmp_path


def refuses(directory, match, kind=NUTM, **options):
    with pytest.raises(ValueError, match=match):
        kind.from_pretrained(directory, **options)


def edit(directory, change=lambda document: None, change_tensors=lambda tensors: None):
    """Change what is on disk, and seal it anew as somebody would who means no good."""
    document = documents.read_sealed(directory / "config.json")
    tensors = load_file(directory / "model.safetensors")
    change(document)
    change_tensors(tensors)
    documents.write(directory / "config.json", document)
    (directory / "model.safetensors").write_bytes(pretrained.sealed_tensors(tensors, document))


def edit_tensors(directory, change):
    edit(directory, change_tensors=change)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_missing_file(saved, name):
    (saved / name).unlink()
    refuses(saved, f"is not a saved machine: it has no {name}")


def test_no_directory_at_all(tmp_path):
    refuses(tmp_path / "nowhere", r"nowhere is not a saved machine: it has no config\.json")


@pytest.mark.parametrize("kept", [0, 4, 8, 100, -1])
def test_truncated_tensors(saved, kept):
    path = saved / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    refuses(saved, r"model\.safetensors is damaged")


def test_tensors_with_a_flipped_header(saved):
    path = saved / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[8] ^= 0xFF
    path.write_bytes(bytes(content))
    refuses(saved, r"model\.safetensors is damaged")


@pytest.mark.parametrize("content", [b"", b'{"format": "nsm-machine"', b"\xff\xfe\x00", b"{]"], ids=repr)
def test_broken_json(saved, content):
    (saved / "config.json").write_bytes(content)
    refuses(saved, r"config\.json is damaged: not JSON")


@pytest.mark.parametrize("content", ["[]", "null", "3", "{}", '{"format": "other"}'])
def test_json_of_something_else(saved, content):
    (saved / "config.json").write_text(content)
    refuses(saved, r"config\.json does not describe an nsm machine")


@pytest.mark.parametrize("version", [1, 3, 0, None, "2"])
def test_another_version(saved, version):
    edit(saved, lambda document: document.update(version=version))
    refuses(saved, f"has format version {version!r}; this nsm reads version 2")


@pytest.mark.parametrize("part", [Controller(), Interface(), Programs(), NTM(), LRUA(), DNC()], ids=repr)
def test_a_file_without_an_option_that_came_later_means_its_default(part):
    base = MemoryConfig if isinstance(part, MemoryConfig) else type(part)
    for field in fields(part):
        document = to_json(part)
        del document[field.name]
        assert from_json(base, document) == part


def test_a_saved_machine_without_options_that_came_later(saved):
    edit(saved, lambda document: (document["config"]["controller"].pop("gain"), document["config"].pop("interface")))
    config = NUTM.from_pretrained(saved).config
    assert config.controller == Controller(size=4)
    assert config.interface == Interface()


DAMAGES = {
    "unknown field": (
        lambda c: c.update(inputsize=3),
        r"a field of config must be .* was 'inputsize'; did you mean 'input_size'\?",
    ),
    "unknown nested field": (
        lambda c: c["memory"].update(slot=3),
        r"a field of config\.memory .* was 'slot'; did you mean 'slots'\?",
    ),
    "missing field": (lambda c: c.pop("output_size"), r"config\.output_size is missing"),
    "text for a number": (lambda c: c["memory"].update(slots="5"), r"config\.memory\.slots must be int, was '5'"),
    "fraction for an integer": (lambda c: c.update(input_size=3.5), r"config\.input_size must be int, was 3\.5"),
    "truth for an integer": (lambda c: c.update(input_size=True), r"config\.input_size must be int, was True"),
    "number for a truth": (lambda c: c.update(batch_first=1), r"config\.batch_first must be bool, was 1"),
    "null": (lambda c: c.update(output_size=None), r"config\.output_size must be int, was None"),
    "list for a part": (lambda c: c.update(controller=[]), r"config\.controller must be an object, was \[\]"),
    "unknown memory": (
        lambda c: c["memory"].update(kind="NMT"),
        r"config\.memory\.kind must be one of .* was 'NMT'; did you mean 'NTM'\?",
    ),
    "memory without a kind": (lambda c: c["memory"].pop("kind"), r"config\.memory\.kind must be one of"),
    "memory of a module that is not there": (
        lambda c: c["memory"].update(kind="this:Memory"),
        r"config\.memory is a this:Memory, which is not part of nsm: import this first",
    ),
    "memory that its module has not": (
        lambda c: c["memory"].update(kind="os:path.Memory"),
        r"config\.memory is a os:path\.Memory, .*: os has no such MemoryConfig",
    ),
    "memory that is none": (lambda c: c["memory"].update(kind="os:system"), r"os has no such MemoryConfig"),
    "memory of no name": (lambda c: c["memory"].update(kind=[]), r"config\.memory\.kind must be one of .* was '\[\]'"),
    "unknown controller": (
        lambda c: c["controller"].update(kind="lsm"),
        r"controller must be .* was 'lsm'; did you mean 'lstm'\?",
    ),
    "out of range": (lambda c: c["programs"].update(count=0), r"programs must be an integer of at least 1, was 0"),
    "too many heads": (
        lambda c: c["memory"].update(read_heads=100_000_000),
        r"read_heads must be at most 1,024, was 100,000,000",
    ),
    "a long text": (lambda c: c["memory"].update(slots="5" * 9_999), r"slots must be int, was '5{12}\.\.\.5{13}'$"),
    "no configuration": (lambda c: c.clear(), r"config\.input_size is missing"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_configuration(saved, damage):
    change, match = DAMAGES[damage]
    edit(saved, lambda document: change(document["config"]))
    refuses(saved, r"config\.json is damaged: .*" + match)
    assert "this" not in sys.modules, "a file has nothing imported"


def test_no_configuration_at_all(saved):
    edit(saved, lambda document: document.pop("config"))
    refuses(saved, r"config\.json is damaged: config must be an object, was None")


def test_an_integer_where_a_number_is_due_is_fine(saved):
    edit(saved, lambda document: document["config"]["controller"].update(gain=5))
    assert NUTM.from_pretrained(saved).config.controller.gain == 5.0


@pytest.mark.parametrize("size", [10**12, 10**18, 10**30])
def test_sizes_beyond_any_memory(saved, size):
    edit(saved, lambda document: document["config"]["memory"].update(slots=size))
    refuses(saved, r"initial_memory must have shape|can't be loaded")


def test_a_tensor_of_another_shape(saved):
    edit_tensors(saved, lambda tensors: tensors.update({"output.bias": torch.zeros(3)}))
    refuses(saved, r"output\.bias must have shape \(2,\), was \(3,\)")


def test_a_configuration_of_another_size(saved):
    edit(saved, lambda document: document["config"]["controller"].update(size=5))
    refuses(saved, r"must have shape \(20, 6\), was \(16, 6\)")


def test_a_missing_tensor(saved):
    edit_tensors(saved, lambda tensors: tensors.pop("output.bias"))
    refuses(saved, r"has no tensor 'output\.bias'")


def test_an_extra_tensor(saved):
    edit_tensors(saved, lambda tensors: tensors.update(extra=torch.zeros(1)))
    refuses(saved, r"has an unknown tensor 'extra'")


@pytest.mark.parametrize("dtype", [torch.float64, torch.int32])
def test_a_tensor_of_another_type(saved, dtype):
    edit_tensors(saved, lambda tensors: tensors.update({"output.bias": torch.zeros(2, dtype=dtype)}))
    refuses(saved, rf"of one floating-point type, were .*{dtype}")


def test_whole_numbers_for_all_tensors(saved):
    edit_tensors(saved, lambda tensors: tensors.update({name: value.int() for name, value in tensors.items()}))
    refuses(saved, r"of one floating-point type, were torch\.int32")


# --- what anybody may have written ------------------------------------------------------------------------------------


def test_damage_that_leaves_tensors_and_a_configuration_is_noticed(saved):
    """One bit of many a byte of both files, one at a time."""
    for name in ("config.json", "model.safetensors"):
        content = (saved / name).read_bytes()
        for place in range(0, len(content), 23):
            changed = bytearray(content)
            changed[place] ^= 1 << place % 8
            (saved / name).write_bytes(changed)
            refuses(saved, "damaged|does not describe an nsm machine|has format version|was not saved together with")
        (saved / name).write_bytes(content)
    NUTM.from_pretrained(saved)


def test_tensors_beside_the_configuration_of_another_machine(saved, tmp_path):
    NUTM(3, 2, Programs(2), controller=Controller(size=4), memory=NTM(5, 3, initial_address="zeros")).save_pretrained(
        tmp_path / "other"
    )
    (saved / "config.json").write_bytes((tmp_path / "other" / "config.json").read_bytes())
    refuses(saved, r"model\.safetensors was not saved together with the config\.json beside it: save the machine again")


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        ("NaN", "NaN is not a number"),
        ("-Infinity", "-Infinity is not a number"),
        ("1e999", "the number 1e999 is too large"),
        ("1" * 400, "a number of 400 digits"),
        ("1" * 5_000, "a number of 5,000 digits"),
        ("[" * 5_000 + "]" * 5_000, "nested more than 32 deep"),
        ('"\xff"', "not JSON"),
    ],
    ids=lambda value: value[:9],
)
def test_a_number_that_nsm_does_not_write(saved, number, reason):
    path = saved / "config.json"
    path.write_bytes(path.read_text().replace('"gain": 5.0', f'"gain": {number}').encode("latin-1"))
    refuses(saved, rf"config\.json is damaged: {reason}")


def test_brackets_within_texts_are_no_depth(saved):
    text = "[{" * 100 + '\\"]'
    edit(saved, lambda document: document.update(note=text))
    NUTM.from_pretrained(saved)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_huge_file_is_not_read(saved, name):
    with (saved / name).open("r+b") as file:
        file.truncate(1 << 43)  # without taking any room on the disk
    why = "has 8,796,093,022,208 bytes; it should have at most" if name == "config.json" else "file not fully covered"
    refuses(saved, rf"{name} .*{why}")


def test_a_pipe_is_not_waited_for(saved):
    (saved / "config.json").unlink()
    os.mkfifo(saved / "config.json")
    refuses(saved, r"is not a saved machine: it has no config\.json")
    with pytest.raises(UserError, match="not a file"):
        documents.read_any(saved / "config.json")


# --- several at once --------------------------------------------------------------------------------------------------


def test_machines_that_are_saved_at_once_leave_one_of_them(tmp_path):
    machines = [NUTM(3, 2, Programs(n), controller=Controller(size=4), memory=NTM(5, 3)) for n in range(1, 5)]
    with ThreadPoolExecutor(4) as threads:
        for _ in range(20):
            list(threads.map(lambda machine: machine.save_pretrained(tmp_path), machines))
            found = NUTM.from_pretrained(tmp_path)
            same(machines[found.config.programs.count - 1], found)
    assert files(tmp_path) == ["config.json", "model.safetensors"]


def test_what_a_killed_save_left_is_swept_by_the_next_and_nothing_else(tmp_path):
    mine = [".thesis.2024", ".git.1", ".config.json.1", ".nsm-notes-1.tmp", f".nsm-{'0' * 16}-{os.getpid()}.tmp"]
    for name in (*mine, f".nsm-{'a' * 16}-999999999.tmp"):
        (tmp_path / name).write_text("mine")
    MANN(3, 2, memory=NTM(5, 3)).save_pretrained(tmp_path)
    assert files(tmp_path) == sorted([*mine, "config.json", "model.safetensors"])


def test_a_full_disk_is_named(tmp_path):
    """Not injected: the system refuses to write more than 100 bytes into any file."""
    code = """
import resource, signal, sys
from nsm import MANN, NTM
machine = MANN(3, 2, memory=NTM(5, 3))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    machine.save_pretrained(sys.argv[1])
except OSError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == f"[Errno 27] File too large: '{tmp_path / 'model.safetensors'}'\n"
    assert files(tmp_path) == []


# --- the wrong kind ---------------------------------------------------------------------------------------------------


def test_a_nutm_opened_as_a_mann_and_the_other_way_round(saved, tmp_path):
    refuses(saved, "contains a machine of kind 'NUTM', not a MANN", kind=MANN)
    MANN(3, 2, memory=NTM(5, 3)).save_pretrained(tmp_path / "plain")
    refuses(tmp_path / "plain", "contains a machine of kind 'MANN', not a NUTM")


@pytest.mark.parametrize("name", [None, "Transformer", 3])
def test_a_machine_of_an_unknown_kind(saved, name):
    edit(saved, lambda document: document.update(machine=name))
    refuses(saved, f"contains a machine of kind '{name}', not a NUTM")


def test_a_kind_that_its_configuration_belies(saved):
    edit(saved, lambda document: document.update(machine="MANN"))
    refuses(saved, "is damaged: a MANN with programs", kind=MANN)
    edit(saved, lambda document: (document.update(machine="NUTM"), document["config"].update(programs=None)))
    refuses(saved, "is damaged: a NUTM with programs None")


# --- a memory of one's own --------------------------------------------------------------------------------------------


class RegisterState(NamedTuple):
    memory: torch.Tensor


class Register(Memory):
    """One slot that is overwritten with what its single head puts out, scaled by a weight of its own."""

    def __init__(self, width=3):
        super().__init__()
        self.slots = 1
        self.read_size = width
        self.heads = (Head("set", "write", width),)
        self.scale = nn.Parameter(torch.randn(width))

    def initial_state(self, batch, slots=None):
        return RegisterState(self.scale.new_zeros(batch, 1, self.read_size))

    def forward(self, interfaces, state):
        everywhere = self.scale.new_ones(len(interfaces[0]), 1, 1)
        written = (interfaces[0] * self.scale).unsqueeze(1)
        return state.memory.flatten(1), RegisterState(written), Addresses(everywhere, everywhere)


@pytest.mark.parametrize("kind", [MANN, NUTM])
def test_a_memory_of_ones_own_is_handed_in_again(kind, tmp_path):
    made = kind(3, 2, memory=Register(), controller=Controller(size=4))
    made.save_pretrained(tmp_path)
    back = kind.from_pretrained(tmp_path, memory=Register())
    same(made, back)
    assert torch.equal(back.memory.scale, made.memory.scale)


def test_a_memory_of_ones_own_that_is_not_handed_in(tmp_path):
    MANN(3, 2, memory=Register()).save_pretrained(tmp_path)
    refuses(tmp_path, r"needs its own memory module: pass memory=…", kind=MANN)


def test_a_memory_handed_in_where_there_is_one(saved):
    refuses(saved, "has a memory already", memory=Register())


def test_a_refused_memory_is_not_touched(tmp_path):
    made = MANN(3, 2, memory=Register(), controller=Controller(size=4)).double()
    made.save_pretrained(tmp_path)
    edit_tensors(tmp_path, lambda tensors: tensors.pop("output.bias"))
    mine = Register()
    before = mine.scale.detach().clone()
    refuses(tmp_path, r"has no tensor 'output\.bias'", kind=MANN, memory=mine)
    assert torch.equal(mine.scale, before)
    assert mine.scale.dtype == torch.float32
    other = Register(width=4)
    refuses(tmp_path, "must have shape|has no tensor", kind=MANN, memory=other)
