import os

import pytest

from nsm.training import run


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    """What a process wrote survives its death without fsync; only a machine that dies needs it, and none does here."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture(autouse=True)
def no_asking_git(monkeypatch):
    """Two processes per run that is begun, hundreds of times; `test_the_commit_of_a_checkout` asks once."""
    monkeypatch.setattr(run, "commit", lambda: None)
