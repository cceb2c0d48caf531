"""Where things are kept that can be made again; compiled code among them, which nobody else may have put there."""

import os

import pytest

from nsm.files import cache_directory


@pytest.fixture
def fallback(tmp_path, monkeypatch):
    """The directory that is taken when the chosen one can't be written."""
    monkeypatch.setenv("NSM_CACHE", "/proc/none")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / f"nsm-{os.getuid()}"


def test_the_chosen_one_is_taken(tmp_path, monkeypatch):
    monkeypatch.setenv("NSM_CACHE", str(tmp_path))
    assert cache_directory("kernels/a") == tmp_path / "kernels" / "a"


def test_without_it_one_of_our_own_is_made(fallback):
    assert cache_directory("kernels") == fallback / "kernels"
    assert fallback.stat().st_mode & 0o777 == 0o700
    assert cache_directory("kernels") == fallback / "kernels"


@pytest.mark.parametrize("how", ["writable by others", "a link", "somebody else's"])
def test_one_that_others_could_have_filled_is_not(fallback, tmp_path, how, monkeypatch):
    if how == "a link":
        (tmp_path / "elsewhere").mkdir()
        fallback.symlink_to(tmp_path / "elsewhere")
    else:
        fallback.mkdir()
        fallback.chmod(0o777 if how == "writable by others" else 0o700)
    if how == "somebody else's":
        monkeypatch.setattr(os, "getuid", lambda: os.stat(tmp_path).st_uid + 1)
        fallback.rename(tmp_path / f"nsm-{os.getuid()}")
    with pytest.raises(OSError, match="no directory for kernels"):
        cache_directory("kernels")
