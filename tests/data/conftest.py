import tracemalloc
from contextlib import contextmanager

import pytest


@pytest.fixture
def peak():
    """Fails what takes more memory than so many MB."""

    @contextmanager
    def below(megabytes):
        tracemalloc.start()
        try:
            yield
        finally:
            _, most = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert most < megabytes << 20, f"{most >> 20} MB"

    return below


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """What a test keeps is its own."""
    monkeypatch.setenv("NSM_CACHE", str(tmp_path / "cache"))
