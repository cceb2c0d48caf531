"""Downloads: whole and verified or not at all; what is in place stays; every failure says what to do."""

import hashlib
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from nsm.checks import UserError
from nsm.data import babi, omniglot, source
from nsm.data.source import RemoteFile, fetch, look_in, root

CONTENT = b"some letters"
MD5 = f"md5:{hashlib.md5(CONTENT).hexdigest()}"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def site(tmp_path):
    """The address of a server on this machine that has one file, letters.zip."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "letters.zip").write_bytes(CONTENT)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path / "site"))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def letters(*addresses, checksum=MD5, unpacked=None):
    return RemoteFile("letters.zip", addresses, checksum, unpacked)


def test_a_file_is_downloaded_once(site, tmp_path):
    place = tmp_path / "data" / "letters"
    assert fetch([letters(f"{site}/letters.zip")], place) == [place / "letters.zip"]
    assert (place / "letters.zip").read_bytes() == CONTENT
    assert fetch([letters("http://127.0.0.1:1/nowhere")], place) == []


def test_what_is_in_place_is_not_judged_by_the_checksum(tmp_path):
    (tmp_path / "letters.zip").write_bytes(b"packed again")
    assert fetch([letters("http://127.0.0.1:1/nowhere")], tmp_path) == []
    assert (tmp_path / "letters.zip").read_bytes() == b"packed again"


def test_an_archive_is_not_needed_where_it_is_unpacked(tmp_path):
    (tmp_path / "letters").mkdir()
    assert fetch([letters("http://127.0.0.1:1/nowhere", unpacked="letters")], tmp_path) == []


def test_the_second_address_is_tried(site, tmp_path):
    fetch([letters(f"{site}/gone.zip", f"{site}/letters.zip")], tmp_path / "here")
    assert (tmp_path / "here" / "letters.zip").read_bytes() == CONTENT


def test_a_wrong_checksum_leaves_nothing(site, tmp_path):
    address = f"{site}/letters.zip"
    with pytest.raises(UserError) as caught:
        fetch([letters(address, checksum="md5:" + "0" * 32)], tmp_path / "here")
    for words in (address, "checksum", "letters.zip", str(tmp_path / "here")):
        assert words in str(caught.value)
    assert list((tmp_path / "here").iterdir()) == []


def test_what_has_no_checksum_comes_by_https():
    with pytest.raises(ValueError, match="must come by https"):
        letters("https://somewhere.invalid/letters.zip", "http://somewhere.invalid/letters.zip", checksum=None)
    for file in (*babi.FILES, *omniglot.FILES):
        assert file.checksum or all(address.startswith("https://") for address in file.addresses)


@pytest.mark.parametrize("address", ["http://127.0.0.1:1/letters.zip", "http://nowhere.invalid/letters.zip"])
def test_without_a_network_the_error_says_what_to_do(address, tmp_path):
    with pytest.raises(UserError) as caught:
        fetch([letters(address)], tmp_path / "here")
    message = str(caught.value)
    assert "\n" not in message
    for words in (address, "can't be downloaded", "download letters.zip by hand", str(tmp_path / "here")):
        assert words in message


def test_a_directory_that_cannot_be_written_is_said(site, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="can't be downloaded"):
        fetch([letters(f"{site}/letters.zip")], tmp_path / "file")


def test_where_data_is_looked_for(monkeypatch, tmp_path):
    monkeypatch.setenv("NSM_DATA", "/from/the/variable")
    assert root(tmp_path) == tmp_path
    assert root() == Path("/from/the/variable")
    monkeypatch.delenv("NSM_DATA")
    monkeypatch.setenv("XDG_DATA_HOME", "/home/of/data")
    assert root() == Path("/home/of/data/nsm")
    monkeypatch.delenv("XDG_DATA_HOME")
    assert root() == Path.home() / ".local" / "share" / "nsm"


def test_look_in_is_for_processes_that_are_started_too(monkeypatch, tmp_path):
    monkeypatch.setenv(source.VARIABLE, "/elsewhere")
    look_in(None)
    assert root() == Path("/elsewhere")
    monkeypatch.chdir(tmp_path)
    look_in(Path("."))
    assert root() == tmp_path, "absolute, whatever directory the other process is in"
    with pytest.raises(UserError, match="does not exist"):
        look_in(tmp_path / "nothing")
