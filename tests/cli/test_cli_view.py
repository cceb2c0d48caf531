"""`nsm view`: one page of a trained machine's executions, and one sentence where there is nothing to watch."""

import http.client
import json
import os
import resource
import shutil
import socket
import struct
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from matplotlib.figure import Figure

from cli.conftest import MACHINE
from nsm import documents
from nsm.commands import serve
from nsm.reports import figures
from nsm.reports.execution import execute
from nsm.tasks import with_ranges
from nsm.training.run import RunDirectory


def data(path):
    """What a page has to show."""
    text = path.read_text(encoding="utf-8")
    return json.loads(text.split('id="data">')[1].split("</script>")[0])


def test_the_page_lies_in_the_run_and_has_what_was_asked_for(trained, tmp_path, nsm):
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    said = nsm("view", run, "--length", "7", "--samples", 2, "--slots", 20)
    assert said.code == 0, said.err
    assert said.out == f"The page is {run / 'view.html'}: open it in a browser.\n"
    shown = data(run / "view.html")
    assert shown["title"] == "copy, NUTM"
    facts = {"2 stored programs per head, key-value", "length 7", "seed 0, sequences from seed 0"}
    assert facts <= set(shown["facts"])
    assert [e["inputs"]["shape"][0] for e in shown["sequences"]] == [16] * len(shown["sequences"])
    assert (shown["slots"], [machine["name"] for machine in shown["machines"]]) == (20, ["NUTM"])
    machine = RunDirectory(trained).machine()
    task = with_ranges(RunDirectory(trained).experiment.task.tested, length=7)
    assert [e["name"] for e in shown["sequences"]] == [e.name for e in execute(machine, task, 2, 0, 20)]
    assert [e["name"].split(",")[0] for e in shown["sequences"][:2]] == ["test sequence 1", "test sequence 2"]


def test_sequences_like_those_of_training_can_be_watched(trained, tmp_path, nsm):
    page = tmp_path / "page.html"
    assert nsm("view", trained, "--like", "training", "--samples", 9, "--out", page).code == 0
    shown = data(page)
    assert "length 1–20" in shown["facts"]
    assert len({sequence["inputs"]["shape"][0] for sequence in shown["sequences"]}) > 1


def test_the_figure_and_the_page_go_where_they_are_wanted(trained, tmp_path, nsm):
    page, figure = tmp_path / "new" / "page.html", tmp_path / "other" / "figure.svg"
    said = nsm("view", trained, "--length", "3", "--out", page, "--figure", figure)
    assert said.code == 0, said.err
    assert str(page) in said.out
    assert str(figure) in said.out
    assert "bits wrong" in figure.read_text()
    assert data(page)["sequences"]


def test_the_same_command_writes_the_same_page(trained, tmp_path, nsm):
    for name in ("a.html", "b.html"):
        assert nsm("view", trained, "--length", "3", "--out", tmp_path / name).code == 0
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_every_phase_of_continual_learning_can_be_watched(tmp_path, nsm):
    options = [*MACHINE, "--validation-sequences", "2", "--test-sequences", "2"]
    assert nsm("train", "continual", *options, "--iterations", 4, "--out", tmp_path / "run").code == 0
    said = nsm("view", tmp_path / "run", "--samples", 1)
    assert said.code == 0, said.err
    names = {e["name"].split(",")[0] for e in data(tmp_path / "run" / "view.html")["sequences"]}
    assert names == {"copy", "repeat-copy", "associative-recall", "priority-sort"}


def test_two_runs_are_watched_beside_each_other(trained, tmp_path, nsm):
    page = tmp_path / "page.html"
    assert nsm("view", trained, "--beside", trained, "--length", "3", "--out", page).code == 0
    assert [machine["name"] for machine in data(page)["machines"]] == ["NUTM", f"{trained.name}, NUTM"]
    assert data(page)["title"] == "copy, NUTM beside NUTM"


def test_machines_of_other_sizes_are_not_watched_beside_each_other(trained, tmp_path, nsm):
    other = tmp_path / "other"
    assert nsm("train", "ngrams", *MACHINE, "--iterations", 2, "--out", other).code == 0
    said = nsm("view", trained, "--beside", other)
    assert said.code == 2
    assert said.err == (
        f"nsm: {other} can't be shown beside this run: the input and output size of its machine are "
        "1 and 1, those of this one 10 and 8\n"
    )


def test_a_gallery_has_the_machines_that_are_there(trained, tmp_path, nsm):
    place = tmp_path / "models" / "single" / "default" / "copy"
    place.mkdir(parents=True)
    shutil.copytree(trained, place / "nutm")
    out = tmp_path / "site"
    said = nsm("gallery", "--models", tmp_path / "models", "--out", out)
    assert said.code == 0, said.err
    assert {path.name for path in out.iterdir()} == {"index.html", "copy.html"}
    index = (out / "index.html").read_text()
    assert 'href="copy.html"' in index
    assert f"{(out / 'copy.html').stat().st_size / 1e3:.0f} kB" in index
    assert data(out / "copy.html")["title"] == "Copy"
    assert "Repeat Copy left out" in said.out


def test_a_gallery_of_nothing_is_one_sentence(tmp_path, nsm):
    said = nsm("gallery", "--models", tmp_path / "nowhere")
    assert said.code == 2
    assert f"there is no directory {tmp_path / 'nowhere'}" in said.err
    assert "--models" in said.err
    (tmp_path / "empty").mkdir()
    assert nsm("gallery", "--models", tmp_path / "empty", "--out", tmp_path / "site").code == 2


@pytest.mark.parametrize("broken", ["empty", "no memory", "not JSON"])
def test_a_run_with_nothing_to_watch_is_one_sentence(trained, tmp_path, nsm, broken):
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    if broken == "empty":
        shutil.rmtree(run / "checkpoints")
        words = "has no checkpoint yet: train it first"
    elif broken == "no memory":
        document = documents.read_sealed(run / "config.json")
        document["experiment"]["machine"]["memory"] = None
        documents.write(run / "config.json", document)
        words = "can't be loaded: memory must be"
    else:
        (run / "config.json").write_text("{")
        words = "is damaged: not JSON"
    said = nsm("view", run)
    assert said.code == 2
    assert words in said.err
    assert said.err.count("\n") == 1
    assert not (run / "view.html").exists()


def test_a_place_that_cannot_be_written_is_one_sentence(trained, tmp_path, nsm):
    (tmp_path / "file").write_text("")
    for option in ("--out", "--figure"):
        said = nsm("view", trained, "--length", "3", "--out", tmp_path / "x.html", option, tmp_path / "file" / "x.svg")
        assert said.code == 2
        assert "can't be written" in said.err
        assert said.err.count("\n") == 1


@contextmanager
def a_full_disk():
    """No file of this process gets longer than a few bytes, which is what a disk without room looks like."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_page_that_does_not_fit_leaves_the_earlier_one(trained, tmp_path, nsm):
    earlier = "an earlier page"
    pages = {
        tmp_path / "view" / "page.html": ["view", trained, "--length", "3", "--out"],
        tmp_path / "report" / "page.html": ["report", trained, "--out"],
    }
    for page, command in pages.items():
        page.parent.mkdir()
        page.write_text(earlier)
        with a_full_disk():
            said = nsm(*command, page)
        assert (said.code, said.err) == (2, f"nsm: {page} can't be written: File too large\n")
        assert page.read_text() == earlier
        assert list(page.parent.iterdir()) == [page]


@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_a_picture_that_does_not_fit_leaves_the_earlier_one(tmp_path, suffix):
    picture = tmp_path / f"figure{suffix}"
    picture.write_text("an earlier picture")
    with a_full_disk(), pytest.raises(ValueError, match="can't be written: File too large"):
        figures.save(Figure(), picture)
    assert picture.read_text() == "an earlier picture"
    assert list(tmp_path.iterdir()) == [picture]


def test_a_page_goes_where_a_link_leads_and_into_a_pipe(trained, tmp_path, nsm):
    page, link, pipe = tmp_path / "page.html", tmp_path / "link.html", tmp_path / "pipe.html"
    link.symlink_to(page)
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as elsewhere:
        heard = elsewhere.submit(pipe.read_bytes)
        for out in (link, pipe):
            assert nsm("view", trained, "--length", "3", "--out", out).code == 0
    assert link.is_symlink()
    assert pipe.is_fifo()
    assert heard.result() == page.read_bytes()


@pytest.fixture
def serving():
    """A large page, served; returns the port."""
    with serve.server("x" * (64 << 20), 0) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def asked(port, method, **headers):
    """How the server answers a request for the page: the status, what is said of its length, and its length."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request(method, "/", headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, answer.headers["Content-Length"], len(body)


def test_the_head_of_the_page_can_be_asked_for(serving):
    assert asked(serving, "HEAD") == (200, str(64 << 20), 0)
    assert asked(serving, "GET") == (200, str(64 << 20), 64 << 20)


def test_the_page_is_served_under_names_of_this_machine_only(serving):
    for host in ("127.0.0.1", "localhost", "LocalHost", "[::1]"):
        assert asked(serving, "HEAD", Host=f"{host}:{serving}")[0] == 200
    for host in (
        f"example.org:{serving}",
        "localhost",
        f"localhost:{serving + 1}",
        f"localhost.example.org:{serving}",
        "",
    ):
        for method in ("HEAD", "GET"):
            assert asked(serving, method, Host=host)[0] == 421
    with socket.create_connection(("127.0.0.1", serving)) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert b" 421 " in connection.makefile("rb").readline()


def test_who_leaves_in_the_middle_of_the_page_is_no_news(serving, capsys):
    others = set(threading.enumerate())
    with socket.create_connection(("127.0.0.1", serving)) as connection:
        connection.sendall(f"GET / HTTP/1.1\r\nHost: localhost:{serving}\r\n\r\n".encode())
        assert connection.recv(12) == b"HTTP/1.0 200"
        handlers = set(threading.enumerate()) - others
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # leave at once
    assert len(handlers) == 1
    for handler in handlers:
        handler.join()
    assert capsys.readouterr() == ("", "")


def test_the_page_is_served_to_this_machine_only():
    with serve.server("<p>Grüße</p>", 0) as server:
        assert server.server_address[0] == "127.0.0.1"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        with urllib.request.urlopen(f"{address}/") as answer:
            assert answer.read().decode() == "<p>Grüße</p>"
            assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{address}/../etc/passwd")
        refused.value.close()
        assert refused.value.code == 404
        with pytest.raises(ValueError, match="can't be used"):
            serve.server("", server.server_address[1])
        server.shutdown()
        thread.join()
