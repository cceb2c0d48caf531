import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """What a test keeps is its own."""
    monkeypatch.setenv("NSM_CACHE", str(tmp_path / "cache"))
