"""Where things are kept that can be made again; compiled code among them, which nobody else may have put there."""

import logging
import os
import shutil
from pathlib import Path

import pytest

from nsm import files
from nsm.files import cache_directory, keep

NOBODY = 65534


@pytest.fixture
def root(tmp_path, monkeypatch, caplog):
    """The directory that is chosen. What was said about another one is forgotten."""
    monkeypatch.setenv("NSM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(files, "_told", set())
    caplog.set_level(logging.WARNING, logger="nsm")
    return tmp_path / "cache"


@pytest.fixture
def fallback(root, tmp_path, monkeypatch):
    """The directory that is taken when the chosen one can't be written."""
    monkeypatch.setenv("NSM_CACHE", "/proc/none")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / f"nsm-{os.getuid()}"


def test_the_chosen_one_is_taken(root):
    assert cache_directory("kernels/a") == root / "kernels" / "a"


def test_without_it_one_of_our_own_is_made(fallback):
    assert cache_directory("kernels") == fallback / "kernels"
    assert cache_directory("kernels") == fallback / "kernels"


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_all_that_is_made_is_for_us_alone_whatever_the_umask(root, monkeypatch):
    monkeypatch.setenv("NSM_CACHE", str(root / "a" / "b"))
    before = os.umask(0)
    try:
        directory = cache_directory("kernels/key")
        assert keep(directory / "file", b"content", "it")
    finally:
        os.umask(before)
    made = [root, *root.rglob("*")]
    assert {path.relative_to(root).as_posix(): mode(path) for path in made} == {
        **dict.fromkeys([".", "a", "a/b", "a/b/kernels", "a/b/kernels/key"], 0o700),
        "a/b/kernels/key/file": 0o600,
    }
    assert cache_directory("kernels/key") == directory


# --- what others could have filled ------------------------------------------------------------------------------------


def give_away(path: Path, monkeypatch) -> None:
    """Make it somebody else's: where that is not allowed, we are somebody else."""
    if os.getuid() == 0:
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    else:
        other = os.getuid() + 1
        monkeypatch.setattr(os, "getuid", lambda: other)


def assert_refused(reason: str, caplog) -> None:
    """In one sentence, once, whatever is to be kept."""
    assert cache_directory("kernels/key") is None
    assert cache_directory("kernels/key") is None
    (record,) = caplog.records
    assert reason in record.getMessage()
    assert record.getMessage().count("NSM_CACHE") == 1


@pytest.mark.parametrize("rights", [0o770, 0o707, 0o1777])
@pytest.mark.parametrize("place", [".", "kernels/key", "kernels/key/f.nbi"])
def test_what_others_can_write_is_not_used(root, caplog, place, rights):
    directory = cache_directory("kernels/key")
    (directory / "f.nbi").touch(0o600)
    (root / place).chmod(rights)
    assert_refused(f"other users can write to {root / place};", caplog)


@pytest.mark.parametrize("place", [".", "kernels", "kernels/key", "kernels/key/f.nbi"])
def test_what_is_somebody_elses_is_not_used(root, caplog, place, monkeypatch):
    directory = cache_directory("kernels/key")
    (directory / "f.nbi").touch(0o600)
    give_away(root / place, monkeypatch)
    assert_refused(" belongs to another user;", caplog)


def test_a_link_in_it_is_not_used(root, caplog, tmp_path):
    (tmp_path / "f.nbi").touch(0o600)
    (cache_directory("kernels/key") / "f.nbi").symlink_to(tmp_path / "f.nbi")
    assert_refused("kernels/key/f.nbi", caplog)


def test_one_that_others_can_put_another_in_place_of_is_not_used(root, caplog):
    cache_directory("kernels/key")
    root.parent.chmod(0o777)
    assert_refused(f"other users can write to {root.parent};", caplog)
    root.parent.chmod(0o1777)  # as /tmp is: there only who owns a name can take it away
    assert cache_directory("kernels/key") == root / "kernels" / "key"


def test_nothing_is_made_in_one_that_is_not_used(root, caplog):
    root.mkdir()
    root.chmod(0o777)
    assert_refused(f"other users can write to {root};", caplog)
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("whose", ["ours", "somebody else's", "ours, to what others can write", "round and round"])
def test_a_link_is_as_good_as_who_made_it_and_where_it_leads(root, caplog, tmp_path, whose, monkeypatch):
    (tmp_path / "there").mkdir(0o700)
    root.symlink_to("there")
    if whose == "ours":
        assert cache_directory("kernels/key") == root / "kernels" / "key"
    elif whose == "somebody else's":
        give_away(root, monkeypatch)
        assert_refused(" belongs to another user;", caplog)
    elif whose == "round and round":
        monkeypatch.setattr("tempfile.tempdir", "/proc/none")
        (tmp_path / "there").rmdir()
        (tmp_path / "there").symlink_to("cache")
        assert_refused(str(root), caplog)
    else:
        (tmp_path / "there").chmod(0o777)
        assert_refused(f"other users can write to {tmp_path / 'there'};", caplog)


@pytest.mark.parametrize("whose", ["ours, which others can write", "somebody else's"])
def test_nor_is_one_in_the_temporary_directory(fallback, caplog, whose, monkeypatch):
    fallback.mkdir(0o700)
    if whose == "somebody else's":
        give_away(fallback, monkeypatch)
        shutil.move(fallback, fallback.with_name(f"nsm-{os.getuid()}"))
        assert_refused(" belongs to another user;", caplog)
    else:
        fallback.chmod(0o777)
        assert_refused(f"other users can write to {fallback};", caplog)


# --- none -------------------------------------------------------------------------------------------------------------


def test_where_none_can_be_written_none_is_used(root, caplog, monkeypatch):
    monkeypatch.setenv("NSM_CACHE", "/proc/none")
    monkeypatch.setattr("tempfile.tempdir", "/proc/none")
    assert_refused("/proc/none", caplog)


def test_without_a_home_it_is_a_temporary_one(fallback, monkeypatch):
    monkeypatch.delenv("NSM_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

    def nowhere():
        raise RuntimeError("Could not determine home directory.")  # as pathlib does for a user that has none

    monkeypatch.setattr(Path, "home", nowhere)
    assert cache_directory("kernels") == fallback / "kernels"


def test_what_cannot_be_kept_is_said_once(root, caplog):
    directory = cache_directory("kernels")
    shutil.rmtree(directory)
    for _ in range(2):
        assert not keep(directory / "file", b"content", "it")
    assert [record.getMessage() for record in caplog.records] == [
        f"nsm: it can't be cached in {directory}: No such file or directory"
    ]
