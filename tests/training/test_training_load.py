"""nsm.load: the machine wherever one lies, and one sentence for anything else. What is read may be anything."""

import logging
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from safetensors.torch import save as save_tensors

import nsm
from nsm import NTM, NUTM, Machine, documents
from nsm.checks import UserError
from nsm.training import checkpoints
from nsm.training.checkpoints import Checkpoint
from nsm.training.loop import train
from nsm.training.run import RunDirectory
from training.small_runs import overshooting, small

PUBLISHED = Path(__file__).parents[2] / "results" / "models"
TAKEN = "; load takes a directory written by save_pretrained, a run's directory, or one of its checkpoints$"


def machine_of(experiment, seed):
    return Machine.from_config(experiment.machine, generator=torch.Generator().manual_seed(seed))


def begin(directory, experiment=None):
    """A run before its first checkpoint."""
    run = RunDirectory(directory)
    with run.opened(experiment or small()):
        return run


def save(run, step, best, **state):
    """A checkpoint whose weights are drawn with its step."""
    made = machine_of(run.experiment, step)
    other = {"square": torch.zeros(3)}, {"memory": torch.zeros(2, 8, 4)}
    checkpoints.save(run.checkpoints, Checkpoint(step, made.state_dict(), *other, {"best_step": best, **state}))


@pytest.fixture
def run(tmp_path):
    """A run whose best machine is not its last."""
    run = begin(tmp_path / "run")
    for step in (4, 8):
        save(run, step, best=4)
    return run


def is_of_step(machine, run, step):
    """Whether a machine is the one that was saved at a step, ready for use."""
    expected = machine_of(run.experiment, step).state_dict()
    assert machine.config == run.experiment.machine
    assert not machine.training
    return machine.state_dict().keys() == expected.keys() and all(
        torch.equal(tensor, expected[name]) for name, tensor in machine.state_dict().items()
    )


def refuses(path, match, **options):
    with pytest.raises(UserError, match=match) as raised:
        nsm.load(path, **options)
    assert "\n" not in str(raised.value)


# --- where machines lie -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [nsm.NUTM, nsm.MANN])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_save_pretrained_wrote(kind, dtype, tmp_path):
    made = kind(3, 2, memory=NTM(5, 3), batch_first=True).to(dtype)
    made.save_pretrained(tmp_path)
    found = nsm.load(tmp_path)
    assert type(found) is kind
    assert (found.config, found.training, found.backend) == (made.config, False, "auto")
    x = torch.randn(2, 4, 3, dtype=dtype)
    made.backend = found.backend = "reference"
    assert torch.equal(found(x)[0], made.eval()(x)[0])


@pytest.mark.parametrize("named", [str, Path])
def test_the_best_machine_of_a_run(run, named):
    found = nsm.load(named(run.path), backend="reference")
    assert is_of_step(found, run, 4)
    assert isinstance(found, NUTM)
    assert found.backend == "reference"


def test_it_is_the_machine_that_eval_takes(tmp_path):
    outcome = train(overshooting(), tmp_path, "reference")
    assert outcome.best_step < outcome.steps
    expected = RunDirectory(tmp_path).machine("best").state_dict()
    found = nsm.load(tmp_path).state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in found.items())


def test_a_run_that_was_not_evaluated_yet_gives_its_last_machine(tmp_path):
    run = begin(tmp_path)
    for step in (1, 2):
        save(run, step, best=None)
    assert is_of_step(nsm.load(tmp_path), run, 2)


def test_a_single_checkpoint(run, monkeypatch):
    for step in (4, 8):
        assert is_of_step(nsm.load(checkpoints.path(run.checkpoints, step)), run, step)
    monkeypatch.chdir(run.checkpoints / "00000008")
    assert is_of_step(nsm.load("."), run, 8)


def test_a_link_to_a_checkpoint(run, tmp_path):
    (tmp_path / "here").symlink_to(run.checkpoints / "00000008")
    assert is_of_step(nsm.load(tmp_path / "here"), run, 8)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name", sorted(str(path.parent.relative_to(PUBLISHED)) for path in PUBLISHED.rglob("config.json"))
)
def test_every_machine_that_is_published(name):
    expected = RunDirectory(PUBLISHED / name).machine().state_dict()
    (checkpoint,) = (PUBLISHED / name / "checkpoints").iterdir()
    for place in (PUBLISHED / name, checkpoint):
        found = nsm.load(place)
        assert type(found).__name__ == ("NUTM" if found.config.programs else "MANN")
        assert all(torch.equal(tensor, expected[key]) for key, tensor in found.state_dict().items())


def test_what_comes_back_can_be_trained_and_saved(run, tmp_path):
    found = nsm.load(run.path, backend="reference").train()
    found(torch.ones(3, 2, 4))[0].sum().backward()
    assert found.output.weight.grad.abs().sum() > 0
    found.save_pretrained(tmp_path / "saved")
    assert is_of_step(nsm.load(tmp_path / "saved"), run, 4)


def test_loading_leaves_the_files_and_the_global_random_numbers_alone(run):
    def files():
        return {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}

    before, state = files(), torch.get_rng_state()
    nsm.load(run.path)
    assert files() == before
    assert torch.equal(torch.get_rng_state(), state)


def test_machines_are_loaded_to_the_cpu_whatever_the_default(run, tmp_path):
    machine_of(run.experiment, 4).save_pretrained(tmp_path / "saved")
    with torch.device("meta"):
        for place in (run.path, tmp_path / "saved"):
            assert {tensor.device.type for tensor in nsm.load(place).state_dict().values()} == {"cpu"}


def test_importing_nsm_and_loading_a_saved_machine_need_no_training(tmp_path):
    NUTM(3, 2, memory=NTM(5, 3)).save_pretrained(tmp_path)
    code = "import sys, nsm; nsm.load(sys.argv[1]); print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    heavy = ("numba", "nsm.training", "nsm.tasks", "nsm.fused")
    assert not [name for name in ran.stdout.split() if name in heavy or name.startswith(tuple(f"{h}." for h in heavy))]


# --- what holds no machine --------------------------------------------------------------------------------------------


def test_nothing_at_all(tmp_path):
    refuses(tmp_path / "nowhere", f"nowhere contains no machine: it does not exist{TAKEN}")


def test_a_file(run):
    refuses(run.checkpoints / "00000004" / "model.safetensors", f"contains no machine: it is not a directory{TAKEN}")
    refuses(run.path / "config.json", f"contains no machine: it is not a directory{TAKEN}")


def test_a_directory_of_something_else(run, tmp_path):
    for place in (tmp_path, run.checkpoints):
        refuses(place, rf"contains no machine: it has no config\.json{TAKEN}")


@pytest.mark.parametrize("content", ["{}", "[]", "null", '{"format": "other"}', '{"format": ["nsm-run"]}'])
def test_a_configuration_of_something_else(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    refuses(tmp_path, rf"contains no machine: its config\.json is not one of nsm's{TAKEN}")


def test_a_run_that_has_just_begun(tmp_path):
    begin(tmp_path)
    refuses(tmp_path, "has no checkpoint yet: train it first")
    (tmp_path / "checkpoints").mkdir()
    refuses(tmp_path, "has no checkpoint yet: train it first")


def test_a_checkpoint_away_from_its_run(run, tmp_path):
    shutil.copytree(run.checkpoints / "00000004", tmp_path / "elsewhere" / "copy")
    refuses(tmp_path / "elsewhere" / "copy", f"it is a checkpoint, but .* is not its run{TAKEN}")


def test_a_saved_machine_without_its_tensors(tmp_path):
    NUTM(3, 2, memory=NTM(5, 3)).save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    refuses(tmp_path, rf"contains no machine: it has no model\.safetensors{TAKEN}")


def test_a_machine_with_a_memory_of_ones_own(tmp_path):
    NUTM(3, 2, memory=NTM(5, 3).build(None)).save_pretrained(tmp_path)
    refuses(tmp_path, r"needs its own memory module: pass memory=… to Machine\.from_pretrained")


def test_an_unknown_back_end(run):
    refuses(run.path, "^backend must be one of .* was 'fast'", backend="fast")


def test_from_pretrained_names_load_where_there_is_a_run(run, tmp_path):
    for place in (run.path, run.checkpoints / "00000004"):
        with pytest.raises(
            UserError, match=r"is not a saved machine: it has no .*; nsm\.load also reads runs and checkpoints"
        ):
            NUTM.from_pretrained(place)
    with pytest.raises(UserError, match=r"is not a saved machine: it has no config\.json$"):
        NUTM.from_pretrained(tmp_path / "nowhere")


# --- damage -----------------------------------------------------------------------------------------------------------

FILES = ("model.safetensors", "optimiser.safetensors", "memory.safetensors", "state.json", "MANIFEST.json")


@pytest.mark.parametrize("harmed", [None, b"", b"{}", b"\x80\x04."], ids=["missing", "empty", "other", "pickle"])
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_best_checkpoint_is_named_and_the_newest_taken(run, caplog, name, harmed):
    path = run.checkpoints / "00000004" / name
    path.unlink() if harmed is None else path.write_bytes(harmed)
    with caplog.at_level(logging.WARNING, "nsm"):
        assert is_of_step(nsm.load(run.path), run, 8)
    assert str(path) in caplog.text
    refuses(path.parent, f"{name} is (missing|damaged)")


def test_no_checkpoint_is_left(run):
    for path in run.checkpoints.rglob("model.safetensors"):
        path.write_bytes(path.read_bytes()[:-1])
    refuses(run.path, "no valid checkpoint is left in")


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000], ids=lambda content: repr(content[:2]))
def test_a_configuration_that_is_not_json(run, tmp_path, content):
    why = r"config\.json is damaged: (not JSON|nested more than 32 deep)$"
    (run.path / "config.json").write_bytes(content)
    for place in (run.path, run.checkpoints / "00000004"):
        refuses(place, why)
    machine_of(small(), 0).save_pretrained(tmp_path / "saved")
    (tmp_path / "saved" / "config.json").write_bytes(content)
    refuses(tmp_path / "saved", why)
    with pytest.raises(UserError, match=why):
        NUTM.from_pretrained(tmp_path / "saved")


def test_a_configuration_with_another_digest(run):
    path = run.path / "config.json"
    path.write_text(path.read_text().replace('"seed": 0', '"seed": 1'))
    refuses(run.path, r"config\.json is damaged: its sha256 is not the one it was written with")


def edit(run, change):
    """Change a configuration and seal it anew, as somebody would who means no good."""
    document = documents.read_sealed(run.path / "config.json")
    change(document)
    documents.write(run.path / "config.json", document)


CONFIGURATIONS = {
    "no configuration": (lambda d: d.pop("experiment"), "experiment must be an object, was None"),
    "another version": (lambda d: d.update(version=9), "has version 9; this nsm reads version 2"),
    "unknown field": (lambda d: d["experiment"].update(tsk=1), "a field of experiment must be .* was 'tsk'"),
    "no memory": (lambda d: d["experiment"]["machine"].update(memory=None), "can't be loaded: memory must be"),
    "another size": (
        lambda d: d["experiment"]["machine"]["controller"].update(size=9),
        r"00000004/model\.safetensors: controller\..* must have shape .*, was",
    ),
    "beyond any memory": (
        lambda d: d["experiment"]["machine"]["memory"].update(slots=10**12),
        r"must have shape \(1000000000000, |can't be loaded",
    ),
    "beyond any patience": (
        lambda d: d["experiment"]["machine"]["memory"].update(read_heads=10**8),
        "read_heads must be at most 1,024, was 100,000,000",
    ),
    "another class": (
        lambda d: d["experiment"]["task"].update(kind="antigravity:Copy"),
        "antigravity:Copy, which is not part of nsm: import antigravity first",
    ),
    "a function": (
        lambda d: d["experiment"]["machine"]["memory"].update(kind="os:system"),
        "os:system, which is not part of nsm: os has no such MemoryConfig",
    ),
    "other programs": (
        lambda d: d["experiment"]["machine"].update(programs=None),
        r"model\.safetensors has (no|an unknown) tensor",
    ),
}


@pytest.mark.parametrize("damage", CONFIGURATIONS)
def test_a_configuration_that_is_not_the_machines(run, damage):
    change, match = CONFIGURATIONS[damage]
    edit(run, change)
    refuses(run.path, match)
    refuses(run.checkpoints / "00000004", match)
    with pytest.raises(UserError, match=match):
        run.machine()


def forge(run, step, **contents):
    """Put anything into a checkpoint's files, with a manifest that vouches for it."""
    path = checkpoints.path(run.checkpoints, step)
    for name, content in contents.items():
        (path / (f"{name}.json" if name == "state" else f"{name}.safetensors")).write_bytes(content)
    manifest = documents.read_sealed(path / "MANIFEST.json")
    manifest["sha256"] = {name: documents.digest((path / name).read_bytes()) for name in FILES[:-1]}
    documents.write(path / "MANIFEST.json", manifest)


class Malicious:
    def __reduce__(self):
        return os._exit, (3,)


FORGED = {
    "a pickle": {"model": pickle.dumps(Malicious())},
    "a pickled optimiser": {"optimiser": pickle.dumps(Malicious())},
    "a pickled memory": {"memory": pickle.dumps(Malicious())},
    "no tensors": {"model": b""},
    "no step": {"state": b"{}"},
    "a list": {"state": b"[]"},
    "no JSON": {"state": b"{"},
    "nested": {"state": b"[" * 100_000},
    "a huge step": {"state": b'{"step": %s, "best_step": null}' % (b"1" * 5_000)},
    "a huge best step": {"state": b'{"step": 8, "best_step": %s}' % (b"1" * 30)},
    "no number": {"state": b'{"step": NaN, "best_step": null}'},
    "no text": {"state": b'{"step": 8, "best_step": null, "backend": "\xff"}'},
    "no best step": {"state": b'{"step": 8}'},
    "a best step elsewhere": {"state": b'{"step": 8, "best_step": "../../../secret"}'},
    "a step elsewhere": {"state": b'{"step": "../../secret", "best_step": null}'},
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_checkpoint_is_no_more_than_data_and_the_one_before_it_taken(run, caplog, name):
    forge(run, 8, **FORGED[name])
    refuses(run.checkpoints / "00000008", r"00000008/.* is damaged: ")
    with caplog.at_level(logging.WARNING, "nsm"):
        assert is_of_step(nsm.load(run.path), run, 4)
    assert "00000008" in caplog.text


@pytest.mark.parametrize("name", FILES)
def test_a_huge_file_of_a_checkpoint_is_not_read(run, name):
    with (run.checkpoints / "00000008" / name).open("r+b") as file:
        file.truncate(1 << 43)  # without taking any room on the disk
    why = "has 8,796,093,022,208 bytes" if name.endswith(".json") else "is damaged: .*file not fully covered"
    refuses(run.checkpoints / "00000008", rf"{name} {why}")
    assert is_of_step(nsm.load(run.path), run, 4)


def test_tensors_that_are_not_numbers_of_this_machine(run):
    tensors = load_file(run.checkpoints / "00000004" / "model.safetensors")
    for change, match in (
        ({"extra": torch.zeros(1)}, "has an unknown tensor 'extra'"),
        ({"output.bias": torch.zeros(99)}, r"output\.bias must have shape \(2,\), was \(99,\)"),
        ({"output.bias": torch.zeros(2, dtype=torch.int32)}, "must be of one floating-point type"),
    ):
        forge(run, 4, model=save_tensors({**tensors, **change}))
        refuses(run.path, match)


def test_a_directory_that_may_not_be_read(run, monkeypatch):
    def forbidden(path, *_):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "open", forbidden)
    refuses(run.path, "run can't be read: Permission denied")
