"""Machines that go to the Hugging Face Hub and come back, by its own client and a Hub on 127.0.0.1."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load, save
from torch.testing import assert_close

from model.hub_server import serving
from nsm import DNC, MANN, NTM, NUTM, Machine, UserError
from nsm.hub import Card

huggingface_hub = pytest.importorskip("huggingface_hub", reason="needs pip install 'stored-programs[hub]'")
from huggingface_hub import ModelCard, constants  # noqa: E402

EXACT = {"rtol": 0.0, "atol": 0.0}


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A Hub of this test's own, and a cache for what comes from there."""
    with serving() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.address)
        template = server.address + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("HF_TOKEN", "secret")
        yield server
        huggingface_hub.close_session()


@pytest.fixture
def made():
    return NUTM(3, 2, memory=NTM(5, 3), generator=torch.Generator().manual_seed(0))


def newest(hub, name="user/copier"):
    return list(hub.repositories[name].values())[-1]


def test_a_machine_comes_back_bit_by_bit(hub, made):
    address = made.push_to_hub("user/copier", task="copy")
    (commit,) = hub.repositories["user/copier"]
    assert address == f"{hub.address}/user/copier/commit/{commit}"
    assert set(newest(hub)) == {"config.json", "model.safetensors", "README.md"}
    back = Machine.from_pretrained("user/copier")
    assert (type(back), back.config) == (NUTM, made.config)
    assert_close(back.state_dict(), made.state_dict(), **EXACT)


def test_what_was_downloaded_is_not_downloaded_again_and_needs_no_network(hub, made, monkeypatch):
    made.push_to_hub("user/copier")
    for offline in (False, True):
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
        hub.heard.clear()
        assert_close(NUTM.from_pretrained("user/copier").state_dict(), made.state_dict(), **EXACT)
        assert sum(command == "GET" for command, _ in hub.heard) == (0 if offline else 2)
    with pytest.raises(
        UserError, match="user/other is not a local directory, and downloading it from the Hugging Face Hub f"
    ):
        NUTM.from_pretrained("user/other")


def test_a_revision_is_what_it_was(hub, made):
    made.push_to_hub("user/copier")
    other = MANN(4, 2, memory=DNC(5, 3, read_heads=1))
    other.push_to_hub("user/copier")
    first, _ = hub.repositories["user/copier"]
    assert_close(Machine.from_pretrained("user/copier", revision=first).state_dict(), made.state_dict(), **EXACT)
    assert_close(Machine.from_pretrained("user/copier").state_dict(), other.state_dict(), **EXACT)


def test_the_card_says_what_it_is_and_how_to_load_it(hub, made):
    made.push_to_hub("user/copier", task="copy", licence="apache-2.0")
    text = newest(hub)["README.md"].decode()
    card = ModelCard(text)
    assert (card.data.license, card.data.library_name) == ("apache-2.0", "stored-programs")
    assert f"| parameters | {made.parameter_count:,} |" in text
    assert "| task | copy |" in text
    assert "| memory | NTM |" in text
    assert "@inproceedings" in text
    lines = text.partition("```python\n")[2].partition("```")[0]
    assert len(lines.splitlines()) == 3
    found = {"x": torch.zeros(4, 1, 3)}
    exec(lines, found)
    assert found["out"].shape == (4, 1, 2)


def test_a_card_that_is_there_stays(hub, made):
    made.push_to_hub("user/copier")
    newest(hub)["README.md"] = b"mine"
    MANN(3, 2, memory=NTM(5, 3)).push_to_hub("user/copier")
    assert newest(hub)["README.md"] == b"mine"
    assert json.loads(newest(hub)["config.json"])["machine"] == "MANN"


def test_a_directory_comes_first(hub, made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made.save_pretrained("user/copier")
    assert_close(NUTM.from_pretrained("user/copier").state_dict(), made.state_dict(), **EXACT)
    assert hub.heard == []


# --- what comes from there is anybody's -------------------------------------------------------------------------------


def refused(sentence, **options):
    with pytest.raises(UserError, match=sentence):
        Machine.from_pretrained("user/copier", **options)


def damage_a_number(files):
    tensors = load(files["model.safetensors"])
    tensors["initial_read"] += 1
    files["model.safetensors"] = save(tensors)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda files: files.update({"config.json": b"{" * 99}), "config.json is damaged: nested more than 32 deep"),
        (lambda files: files.update({"config.json": b'{"model_type": "bert"}'}), "does not describe an nsm machine"),
        (lambda files: files.update({"model.safetensors": b"\x80\x04."}), "model.safetensors is damaged"),
        (damage_a_number, "its sha256 is not the one it was written with"),
        (lambda files: files.pop("model.safetensors"), "user/copier on the Hugging Face Hub is not a saved machine"),
    ],
)
def test_what_is_damaged_is_refused(hub, made, damage, sentence):
    made.push_to_hub("user/copier")
    damage(newest(hub))
    refused(sentence)


def test_what_else_lies_there_is_not_downloaded(hub, made, tmp_path):
    made.push_to_hub("user/copier")
    newest(hub).update({"modeling.py": b"raise SystemExit", "pytorch_model.bin": b"pickle"})
    Machine.from_pretrained("user/copier")
    assert {path.name for path in (tmp_path / "cache").rglob("snapshots/*/*")} == {"config.json", "model.safetensors"}


def test_a_file_that_is_too_large_is_not_downloaded(hub, made):
    made.push_to_hub("user/copier")
    hub.claimed = 10**15
    hub.heard.clear()
    refused(
        "config.json of user/copier on the Hugging Face Hub has 1,000,000,000,000,000 bytes; it should have at most"
    )
    assert {command for command, _ in hub.heard} == {"HEAD"}


def test_what_is_not_there_is_one_sentence(hub, made):
    refused("^user/copier is neither a local directory nor a repository on the Hugging Face Hub that you can read$")
    made.push_to_hub("user/copier")
    refused("^user/copier on the Hugging Face Hub has no such revision$", revision="later")


def test_mistakes_are_one_sentence(hub, made, monkeypatch):
    with pytest.raises(
        UserError, match=r'^revision needs a machine on the Hugging Face Hub, "user/name", was given with \'x\''
    ):
        Machine.from_pretrained("x", revision="main")
    with pytest.raises(
        UserError, match=r"^the name of a machine on the Hugging Face Hub must be \"user/name\", was 'me'$"
    ):
        made.push_to_hub("me")
    monkeypatch.setenv("HF_TOKEN", "wrong")
    with pytest.raises(UserError, match=r"^uploading user/copier to the Hugging Face Hub failed: .*401"):
        made.push_to_hub("user/copier")


def test_a_network_that_is_down_is_one_sentence(hub, made, monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(UserError, match=r"^uploading user/copier to the Hugging Face Hub failed: "):
        made.push_to_hub("user/copier")


def test_a_mistyped_path_does_not_go_to_the_internet(hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    with pytest.raises(
        UserError, match=r"^runs has no 'coppy'; for a machine on the Hugging Face Hub say which revision"
    ):
        Machine.from_pretrained("runs/coppy")
    assert hub.heard == []


def test_text_on_the_card_stays_in_its_place():
    config = NUTM(3, 2, memory=NTM(5, 3)).config
    fields = Card("user/copier", "NUTM", config, 1234, "a|b\n\n# heading", "mit").fields()
    assert fields["task"] == "a\\|b # heading"
    assert fields["own"] == ""
    assert Card("user/copier", "NUTM", replace(config, memory=None), 1, "", "mit").fields()["own"] == ", memory=…"


def test_nsm_does_without_the_client_until_it_is_asked_for(tmp_path):
    """A machine in a directory needs none; one of the Hub says what to install."""
    NUTM(3, 2, memory=NTM(5, 3)).save_pretrained(tmp_path / "machine")
    code = """
import sys
sys.modules["huggingface_hub"] = None
import nsm
nsm.Machine.from_pretrained("machine").save_pretrained("again")
try:
    nsm.Machine.from_pretrained("user/copier")
except nsm.UserError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == (
        "user/copier is not a local directory, and downloading it from the Hugging Face Hub "
        'needs huggingface_hub: pip install "stored-programs[hub]"\n'
    )
