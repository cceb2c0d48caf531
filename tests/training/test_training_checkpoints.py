"""Checkpoints are complete or absent, verified when read, and the last good one is never lost."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from nsm import documents
from nsm.checks import UserError
from nsm.training import checkpoints, loop
from nsm.training.checkpoints import Checkpoint, Damaged
from nsm.training.loop import train
from nsm.training.run import RunDirectory
from training.small_runs import contents, overshooting, small
from training.test_training_resume import interrupted_at

FILES = ("model.safetensors", "optimiser.safetensors", "memory.safetensors", "state.json", "MANIFEST.json")


def checkpoint(step, value=0.0, best=None):
    tensor = torch.full((3,), value)
    optimiser = {"square": tensor, "updates": torch.tensor([step])}
    return Checkpoint(step, {"weight": tensor}, optimiser, {"memory": tensor}, {"best_step": best})


def test_what_is_saved_comes_back(tmp_path):
    saved = checkpoint(7, 1.5)
    path = checkpoints.save(tmp_path, saved)
    assert path == tmp_path / "00000007"
    assert sorted(file.name for file in path.iterdir()) == sorted(FILES)
    loaded = checkpoints.load(path)
    assert (loaded.step, loaded.state) == (7, {"best_step": None})
    assert torch.equal(loaded.model["weight"], saved.model["weight"])
    assert torch.equal(loaded.optimiser["updates"], torch.tensor([7]))
    assert torch.equal(loaded.memory["memory"], saved.memory["memory"])


def test_what_there_is_nothing_of_has_no_file(tmp_path):
    """A machine that is published has no optimiser, and few have a memory that persists."""
    path = checkpoints.save(tmp_path, checkpoint(7)._replace(optimiser={}, memory={}))
    assert sorted(file.name for file in path.iterdir()) == ["MANIFEST.json", "model.safetensors", "state.json"]
    loaded = checkpoints.load(path)
    assert (loaded.optimiser, loaded.memory) == ({}, {})


@pytest.mark.parametrize(
    "named",
    [{"model.safetensors"}, {"state.json"}, {*FILES[:4], "../other"}, set()],
    ids=lambda names: "+".join(sorted(names)),
)
def test_a_manifest_names_the_files_of_a_checkpoint_and_no_others(tmp_path, named):
    path = checkpoints.save(tmp_path, checkpoint(7))
    documents.write(path / "MANIFEST.json", {"version": checkpoints.VERSION, "sha256": dict.fromkeys(named, "")})
    with pytest.raises(Damaged, match=r"MANIFEST\.json is damaged: it does not name the files of a checkpoint"):
        checkpoints.load(path)


def test_saving_a_step_again_replaces_it(tmp_path):
    for value in (1.0, 2.0):
        checkpoints.save(tmp_path, checkpoint(7, value))
    assert checkpoints.load(tmp_path / "00000007").model["weight"][0] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["00000007"]


# --- damage -----------------------------------------------------------------------------------------------------------


def harm(file: Path, how: str, at: float = 0.5) -> None:
    content = file.read_bytes()
    if how == "deleted":
        file.unlink()
    elif how == "emptied":
        file.write_bytes(b"")
    elif how == "truncated":
        file.write_bytes(content[:-1])
    else:
        place = int(at * (len(content) - 1))
        file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])


HARM = ("deleted", "emptied", "truncated", "flipped")


@pytest.mark.parametrize("how", HARM)
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_taken(tmp_path, caplog, name, how):
    checkpoints.save(tmp_path, checkpoint(1, 1.0))
    checkpoints.save(tmp_path, checkpoint(2, 2.0))
    harm(tmp_path / "00000002" / name, how)
    found = checkpoints.latest(tmp_path)
    assert found is not None
    assert (found.step, found.model["weight"][0].item()) == (1, 1.0)
    assert str(tmp_path / "00000002" / name) in caplog.text
    with pytest.raises(Damaged, match=name):
        checkpoints.load(tmp_path / "00000002")


def test_no_flipped_bit_goes_unnoticed(tmp_path):
    """One bit of every byte of every file, one at a time."""
    path = checkpoints.save(tmp_path, checkpoint(1))
    for name in FILES:
        content = (path / name).read_bytes()
        for place in range(len(content)):
            changed = bytearray(content)
            changed[place] ^= 1 << place % 8
            (path / name).write_bytes(changed)
            with pytest.raises(Damaged):
                checkpoints.load(path)
        (path / name).write_bytes(content)
    checkpoints.load(path)


@pytest.mark.parametrize("digit", "013456789")
def test_a_version_made_up_by_damage_is_no_newer_version(tmp_path, digit):
    manifest = checkpoints.save(tmp_path, checkpoint(1)) / "MANIFEST.json"
    manifest.write_text(manifest.read_text().replace('"version": 2', f'"version": {digit}'))
    with pytest.raises(Damaged, match=r"MANIFEST\.json is damaged: its sha256 is not"):
        checkpoints.load(manifest.parent)


@pytest.mark.parametrize("how", HARM)
@pytest.mark.parametrize("name", FILES)
def test_a_run_goes_on_from_the_checkpoint_before_the_damaged_one(tmp_path, caplog, name, how):
    experiment = small(iterations=8, keep_checkpoints=1, persistent=True)
    train(experiment, tmp_path / "straight")
    interrupted_at(5, experiment, tmp_path / "run")
    shutil.copytree(tmp_path / "run" / "checkpoints" / "00000005", tmp_path / "older")
    interrupted_at(6, experiment, tmp_path / "run")
    shutil.copytree(tmp_path / "older", tmp_path / "run" / "checkpoints" / "00000005", dirs_exist_ok=True)
    harm(tmp_path / "run" / "checkpoints" / "00000006" / name, how)
    # Interrupted once more right after: with one checkpoint kept, it must be the new one, not the damaged.
    interrupted_at(6, experiment, tmp_path / "run")
    assert "00000006" in caplog.text
    train(experiment, tmp_path / "run")
    assert contents(tmp_path / "run") == contents(tmp_path / "straight")


def test_a_damaged_newest_checkpoint_never_displaces_a_good_one(tmp_path):
    checkpoints.save(tmp_path, checkpoint(9))
    harm(tmp_path / "00000009" / "state.json", "emptied")
    checkpoints.save(tmp_path, checkpoint(5))
    checkpoints.prune(tmp_path, keep=1, last=5)
    assert checkpoints.steps(tmp_path) == [5]


@pytest.mark.parametrize("how", ["damaged", "removed"])
def test_a_run_without_a_valid_checkpoint_stops_and_changes_nothing(tmp_path, how):
    interrupted_at(5, small(), tmp_path)
    for path in (tmp_path / "checkpoints").iterdir():
        harm(path / "model.safetensors", "emptied") if how == "damaged" else shutil.rmtree(path)
    before = (tmp_path / "metrics.jsonl").read_bytes()
    with pytest.raises(UserError, match=r"checkpoint is left in .*; move the run's directory away"):
        train(small(), tmp_path)
    assert (tmp_path / "metrics.jsonl").read_bytes() == before


def test_a_damaged_best_checkpoint_is_named_and_the_last_one_tested(tmp_path, caplog):
    train(overshooting(), tmp_path)
    run = RunDirectory(tmp_path)
    assert run.checkpoint("best").step == 4
    harm(run.checkpoints / "00000004" / "model.safetensors", "flipped")
    assert run.checkpoint("best").step == 12
    assert "model.safetensors is damaged" in caplog.text


def test_metrics_that_are_not_what_they_were_at_the_checkpoint_are_noticed(tmp_path):
    interrupted_at(5, small(), tmp_path)
    metrics = tmp_path / "metrics.jsonl"
    content = metrics.read_bytes()
    assert json.loads((tmp_path / "checkpoints" / "00000005" / "state.json").read_text())["metrics_position"] > 100
    for changed, words in (
        (content.replace(b"0.", b"1.", 1), "has changed since the last checkpoint was saved"),
        (content[:-1], "is shorter than when the last checkpoint was saved"),
        (None, "is shorter than when the last checkpoint was saved"),
    ):
        metrics.unlink(missing_ok=True)
        if changed is not None:
            metrics.write_bytes(changed)
        with pytest.raises(UserError, match=rf"metrics\.jsonl is damaged: it {words}"):
            train(small(), tmp_path)
        assert (metrics.read_bytes() if metrics.exists() else None) == changed
    metrics.write_bytes(content + b'{"step": 6, "lo')
    train(small(), tmp_path)
    train(small(), tmp_path / "straight")
    assert contents(tmp_path) == contents(tmp_path / "straight")


def reseal(path, state=None, **tensors):
    """Put other things into a checkpoint, with a manifest that vouches for them."""
    found = checkpoints.load(path)
    state = {name: value for name, value in (found.state | (state or {})).items() if value is not ...}
    checkpoints.save(path.parent, found._replace(state=state, **tensors))


def state(**changes):
    return {"state": changes}


FOREIGN = {
    "other weights": ({"model": {"weight": torch.zeros(3)}}, r"model\.safetensors has (no|an unknown) tensor"),
    "another optimiser": ({"optimiser": {"square": torch.zeros(3)}}, r"optimiser\.safetensors has no tensor 'updates'"),
    "no optimiser": ({"optimiser": {}}, r"optimiser\.safetensors has no tensor"),
    "another memory": ({"memory": {"memory": torch.zeros(3)}}, "its memory does not fit this machine"),
    "half a memory": ({"memory": {"memory": torch.zeros(2, 8, 4)}}, "its memory does not fit this machine"),
    "a text": (state(solved_step="never"), r"state\.json is damaged: state\.solved_step must be int, was 'never'"),
    "another field": (state(solved=3), r"state\.json is damaged: a field of state must be one of .*, was 'solved'"),
    "no phases": (state(phases=[3]), r"state\.json is damaged: state\.phases\[0\] must be dict.*, was 3"),
    "no back end": (state(backend=...), "was started on backend None"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_checkpoint_of_something_else_is_one_sentence(tmp_path, name):
    changes, words = FOREIGN[name]
    interrupted_at(5, small(), tmp_path)
    reseal(tmp_path / "checkpoints" / "00000005", **changes)
    with pytest.raises(UserError, match=words):
        train(small(), tmp_path)


@pytest.mark.parametrize("wrong", ["of another batch", "of another tape"])
def test_a_memory_that_does_not_fit_a_persistent_run_is_damage(tmp_path, wrong):
    experiment = small(persistent=True)
    interrupted_at(5, experiment, tmp_path)
    path = tmp_path / "checkpoints" / "00000005"
    memory = checkpoints.load(path).memory
    cut = slice(0, 1) if wrong == "of another batch" else (slice(None), slice(0, 5))
    reseal(path, memory={name: leaf[cut] for name, leaf in memory.items()})
    with pytest.raises(UserError, match=r"memory\.safetensors is damaged|its memory does not fit this machine"):
        train(experiment, tmp_path)


def test_a_field_that_a_checkpoint_does_not_have_is_as_it_begins(tmp_path):
    """So a later nsm, which counts more, reads what this one wrote."""
    train(small(), tmp_path / "straight")
    interrupted_at(5, small(), tmp_path / "run")
    reseal(tmp_path / "run" / "checkpoints" / "00000005", state={"rewinds": ..., "phases": ...})
    train(small(), tmp_path / "run")
    assert contents(tmp_path / "run") == contents(tmp_path / "straight")


@pytest.mark.parametrize("harmed", ["{", "[]", '{"seconds": 1, "hours": 2}'])
def test_a_damaged_clock_costs_the_time_only(tmp_path, caplog, harmed):
    experiment = small()
    train(experiment, tmp_path / "straight")
    interrupted_at(5, experiment, tmp_path / "run")
    (tmp_path / "run" / "clock.json").write_text(harmed)
    train(experiment, tmp_path / "run")
    assert contents(tmp_path / "run") == contents(tmp_path / "straight")
    assert "the time spent so far is unknown" in caplog.text


@pytest.mark.parametrize("nested", ["MANIFEST.json", "state.json"])
def test_a_checkpoint_that_is_nested_too_deep_does_not_hide_the_one_before_it(tmp_path, caplog, nested):
    for step in (1, 2):
        checkpoints.save(tmp_path, checkpoint(step))
    (tmp_path / "00000002" / nested).write_bytes(b"[" * 5_000)
    found = checkpoints.latest(tmp_path)
    assert found is not None
    assert found.step == 1
    assert str(tmp_path / "00000002" / nested) in caplog.text


@pytest.mark.parametrize("name", ["²", "٣", "0000000²", "7", "000000007", "9" * 200, ".0000007"])
def test_a_directory_that_is_named_by_no_step_is_no_checkpoint(tmp_path, name):
    checkpoints.save(tmp_path, checkpoint(7))
    (tmp_path / name).mkdir()
    assert checkpoints.steps(tmp_path) == [7]
    checkpoints.prune(tmp_path, keep=1, last=7)
    assert (tmp_path / name).is_dir()


# --- versions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 3, "2", None])
def test_another_version_is_refused_even_if_an_older_checkpoint_could_be_read(tmp_path, monkeypatch, version):
    checkpoints.save(tmp_path, checkpoint(1))
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "VERSION", version)
        checkpoints.save(tmp_path, checkpoint(2))
    with pytest.raises(UserError, match=f"00000002 has checkpoint version {version!r}; this nsm reads version 2"):
        checkpoints.latest(tmp_path)


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_the_newest_and_the_best_are_kept(tmp_path):
    for step, best in ((1, None), (2, 2), (3, 2), (4, 2), (5, 2)):
        checkpoints.save(tmp_path, checkpoint(step, best=best))
    checkpoints.prune(tmp_path, keep=2, last=5)
    assert checkpoints.steps(tmp_path) == [2, 4, 5]
    checkpoints.save(tmp_path, checkpoint(6, best=6))
    checkpoints.prune(tmp_path, keep=2, last=6)
    assert checkpoints.steps(tmp_path) == [2, 5, 6], "5 may have to go on, and its best is 2"
    checkpoints.prune(tmp_path, keep=1, last=6)
    assert checkpoints.steps(tmp_path) == [6]


def test_a_rewind_finds_the_best_machine_though_the_newest_checkpoint_is_damaged(tmp_path, monkeypatch, caplog):
    """The one before it is gone on from, whose best is another than the damaged one's, and thrown off again."""
    losses = {2: 0.5, 4: 0.6, 6: 0.7, 8: 2.0, 10: 0.4}
    validation = loop._Loop._validation

    def made_up(self, task):
        return {**validation(self, task), "loss": losses.get(self.progress.step, 0.45)}

    monkeypatch.setattr(loop._Loop, "_validation", made_up)
    experiment = small(iterations=14, evaluate_every=2, checkpoint_every=7, rewind=0.5)
    train(experiment, tmp_path / "straight")
    interrupted_at(10, experiment, tmp_path / "run")
    assert checkpoints.steps(tmp_path / "run" / "checkpoints") == [2, 7, 10]
    harm(tmp_path / "run" / "checkpoints" / "00000010" / "model.safetensors", "truncated")
    train(experiment, tmp_path / "run")
    assert "00000010" in caplog.text
    assert contents(tmp_path / "run") == contents(tmp_path / "straight")


def test_a_run_keeps_as_many_as_it_says(tmp_path):
    train(small(checkpoint_every=1, keep_checkpoints=3), tmp_path)
    run = RunDirectory(tmp_path)
    newest = {10, 11, 12}
    best = {checkpoints.load(checkpoints.path(run.checkpoints, step)).state["best_step"] for step in newest}
    assert checkpoints.steps(run.checkpoints) == sorted(newest | best)


def test_two_runs_of_one_configuration_have_the_same_checkpoints_to_the_byte(tmp_path):
    for name in ("one", "two"):
        train(small(), tmp_path / name)
    one, two = (
        {p.relative_to(d): p.read_bytes() for p in (d / "checkpoints").rglob("*.*")} for d in tmp_path.iterdir()
    )
    assert one == two
    assert len(one) >= 8


@pytest.mark.parametrize("best", [0.0, 2.0, "2", True, -1, 10**10])
def test_a_best_step_that_is_no_step_is_damage_whoever_sealed_it(tmp_path, best):
    place = checkpoints.save(tmp_path, checkpoint(7, best=best))
    with pytest.raises(Damaged, match="a step must be a whole number"):
        checkpoints.load(place)
