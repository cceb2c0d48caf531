"""bAbI's files: read from an archive or a directory, compared with the released ones, kept encoded."""

import os
import tarfile
import time

import numpy as np
import pytest

from data.small_babi import archive, contents, unpacked
from nsm.checks import UserError
from nsm.data import babi
from nsm.data.babi import blob_hash, build, check, load, released

FIRST = "en-10k/qa1_single-supporting-fact_train.txt"


@pytest.fixture(scope="module")
def files():
    return contents()


def same(one, other):
    return all(
        np.array_equal(getattr(getattr(one, split), field), getattr(getattr(other, split), field))
        for split in babi.SPLITS
        for field in ("shown", "answers", "starts", "task")
    )


def test_an_archive_and_what_it_unpacks_to_hold_the_same(files, tmp_path):
    archive(files, tmp_path / "a" / babi.NAME / babi.ARCHIVE)
    unpacked(files, tmp_path / "b" / babi.NAME / babi.FOLDER)
    unpacked(files, tmp_path / "c" / babi.NAME)
    corpora = [load(tmp_path / name) for name in "abc"]
    assert same(corpora[0], corpora[1])
    assert same(corpora[0], corpora[2])
    assert len(corpora[0].train) == 400
    assert len(corpora[0].test) == 200


def test_there_is_a_sentence_where_there_is_no_data(tmp_path):
    with pytest.raises(UserError, match=r"bAbI is not in .*: run nsm data fetch babi, or put tasks_1-20"):
        load(tmp_path)


def test_a_damaged_archive_is_named(files, tmp_path):
    path = archive(files, tmp_path / babi.NAME / babi.ARCHIVE)
    path.write_bytes(path.read_bytes()[:-3000])
    with pytest.raises(UserError, match=r"tasks_1-20_v1-2.tar.gz is damaged"):
        load(tmp_path)


def test_damage_anywhere_in_an_archive_is_named(files, tmp_path):
    """It is compressed: what a few bytes do to it is anything from an error of zlib to an early end."""
    path = archive(files, tmp_path / babi.NAME / babi.ARCHIVE)
    content = path.read_bytes()
    for place in np.random.default_rng(0).integers(20, len(content) - 20, 12):
        path.write_bytes(
            content[:place] + bytes(byte ^ 0x5A for byte in content[place : place + 8]) + content[place + 8 :]
        )
        with pytest.raises(UserError, match=r"tasks_1-20_v1-2.tar.gz is damaged"):
            load(tmp_path)


def test_a_malformed_file_is_named_with_its_line(files, tmp_path):
    archive({**files, FIRST: b"1 Mary went to the office.\n2 Where is Mary?\n"}, tmp_path / babi.NAME / babi.ARCHIVE)
    with pytest.raises(
        UserError, match=r"^en-10k/qa1_single-supporting-fact_train.txt, line 2: it is a question without"
    ):
        load(tmp_path)


def test_bytes_that_are_no_text_are_named_with_their_line(files):
    with pytest.raises(UserError, match=r"^en-10k/qa1_.*_train.txt, line 2: it contains a byte"):
        build({**files, FIRST: b"1 Mary went to the office.\n2 \xff\n"}, "paper")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (f"../../{FIRST}", tarfile.REGTYPE),
        (f"/{FIRST}", tarfile.REGTYPE),
        (FIRST, tarfile.SYMTYPE),
        (FIRST, tarfile.LNKTYPE),
        (FIRST, tarfile.FIFOTYPE),
    ],
)
def test_nothing_an_archive_names_is_written_or_followed(files, tmp_path, name, kind):
    secret = tmp_path / "secret.txt"
    secret.write_bytes(files[FIRST])
    path = tmp_path / "root" / babi.NAME / babi.ARCHIVE
    path.parent.mkdir(parents=True)
    with tarfile.open(path, "w:gz") as tar:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, str(secret)
        tar.addfile(member)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError, match=r"tasks_1-20_v1-2.tar.gz: '.*qa1_.*' is (not a safe name|neither a file)"):
        babi.Archive(path).read()
    assert sorted(tmp_path.rglob("*")) == before


def test_a_file_too_large_to_be_one_of_bAbIs_is_not_read(files, tmp_path, peak):
    archive({**files, "other.txt": bytes(200 << 20)}, tmp_path / babi.NAME / babi.ARCHIVE)
    with (
        pytest.raises(UserError, match=r"other.txt' has 209,715,200 bytes; it should have at most 16,777,216"),
        peak(60),
    ):
        load(tmp_path)


def test_more_text_than_bAbI_has_is_not_kept(files, tmp_path, peak):
    names = [name for name in released() if name.startswith("en-10k/")]
    large = b"1 Mary went there.\n" + bytes(12 << 20)
    archive({name: large for name in names}, tmp_path / babi.NAME / babi.ARCHIVE)
    sentence = r"more than 83,886,080 bytes or 3,000,000 lines"
    with pytest.raises(UserError, match=sentence), peak(130):
        load(tmp_path)
    archive({name: b"1 n\n" * 100_000 for name in names}, tmp_path / babi.NAME / babi.ARCHIVE)
    with pytest.raises(UserError, match=sentence):
        load(tmp_path)


def test_a_file_that_is_there_twice_is_named(tmp_path):
    archive({FIRST: b"1 n\n", f"copy/{FIRST}": b"1 n\n"}, tmp_path / babi.NAME / babi.ARCHIVE)
    with pytest.raises(UserError, match=f"{FIRST} twice"):
        load(tmp_path)


@pytest.mark.parametrize("content", [b"", b"\n \n"])
def test_a_file_without_a_story_is_named(files, tmp_path, content):
    unpacked({**files, FIRST: content}, tmp_path / babi.NAME)
    for read in (load, check):
        with pytest.raises(UserError, match=f"^{FIRST} contains no story"):
            read(tmp_path)


def test_only_regular_files_are_read(files, tmp_path):
    """To open a pipe is to wait until somebody writes to it; a file of holes is as large as it says."""
    directory = unpacked(files, tmp_path / "a" / babi.NAME)
    path = directory / FIRST
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(UserError, match=f"{FIRST} is a pipe, not a file"):
        load(tmp_path / "a")
    path.unlink()
    path.mkdir()
    with pytest.raises(UserError, match=f"{FIRST} is a directory, not a file"):
        load(tmp_path / "a")
    path.rmdir()
    path.touch()
    os.truncate(path, 1 << 40)
    with pytest.raises(UserError, match=f"{FIRST} has 1,099,511,627,776 bytes"):
        load(tmp_path / "a")
    (tmp_path / "b" / babi.NAME / babi.ARCHIVE).mkdir(parents=True)
    with pytest.raises(UserError, match=f"{babi.ARCHIVE} is a directory, not a file"):
        load(tmp_path / "b")


def test_encoded_stories_are_kept_and_read_again(files, tmp_path, monkeypatch):
    archive(files, tmp_path / babi.NAME / babi.ARCHIVE)
    made = load(tmp_path)
    load.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(babi, "build", None)  # whoever parses again fails
        kept = load(tmp_path)
    assert kept is not made
    assert same(kept, made)
    assert (kept.missing, kept.notes) == (made.missing, made.notes)
    assert kept.train.shown.dtype == np.int16


def test_other_files_and_other_protocols_are_not_served_from_the_cache(files, tmp_path):
    archive(files, tmp_path / "a" / babi.NAME / babi.ARCHIVE)
    archive(contents(seed=1), tmp_path / "b" / babi.NAME / babi.ARCHIVE)
    assert not same(load(tmp_path / "a"), load(tmp_path / "b"))
    assert not same(load(tmp_path / "a"), load(tmp_path / "a", "authors"))


def test_a_damaged_cache_is_made_again(files, tmp_path):
    archive(files, tmp_path / babi.NAME / babi.ARCHIVE)
    made = load(tmp_path)
    (path,) = (tmp_path / "cache" / "babi").iterdir()
    for damage in (path.read_bytes()[:500], b"", b"nonsense"):
        path.write_bytes(damage)
        load.cache_clear()
        assert same(load(tmp_path), made)


def test_without_a_cache_stories_are_read_every_time(files, tmp_path):
    archive(files, tmp_path / babi.NAME / babi.ARCHIVE)
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    made = load(tmp_path)
    assert list((tmp_path / "cache").iterdir()) == []
    load.cache_clear()
    assert same(load(tmp_path), made)


def test_the_hash_is_gits():
    assert blob_hash(b"hello\n") == "ce013625030ba8dba906f756967f9e9ca394464a"  # git hash-object


def test_a_file_that_is_not_the_released_one_is_noted(files, monkeypatch):
    hashes = {name: blob_hash(content) for name, content in files.items()}
    monkeypatch.setattr(babi, "released", lambda: hashes)
    assert not any(build(files, "paper").notes.values())
    changed = {**files, FIRST: files[FIRST].replace(b"kitchen", b"garden")}
    notes = build(changed, "paper").notes
    assert notes.pop(1) == ("the training file of task 1 is not the released one",)
    assert not any(notes.values())


def test_check_names_what_is_missing_and_what_differs(files, tmp_path, monkeypatch):
    hashes = {name: blob_hash(content) for name, content in files.items()}
    monkeypatch.setattr(babi, "released", lambda: hashes)
    unpacked(files, tmp_path / babi.NAME)
    finding = check(tmp_path)
    assert finding.problems == []
    assert "en-10k: 40 of 40 files are the released ones, byte for byte" in finding.lines
    assert any(line.startswith("train: 400 stories") for line in finding.lines)
    (tmp_path / babi.NAME / FIRST).write_bytes(files[FIRST][:-1])
    os.remove(tmp_path / babi.NAME / "en-10k/qa4_two-arg-relations_test.txt")
    finding = check(tmp_path)
    assert finding.problems == [
        f"{FIRST} is not the released file; results that use it carry a note",
        "en-10k/qa4_two-arg-relations_test.txt is missing",
    ]


def test_what_the_authors_leave_out_is_counted(files):
    told = b"1 Mary went there.\n2 Where is Mary?\toffice\t1\n"
    repeated = (
        told + b"3 Where is Mary?\toffice\t1\n4 Where is Mary?\toffice\t1\n5 Mary went there.\n6 Mary went there.\n"
    )
    long = b"".join(b"%d %s went there.\n" % (number, (b"Mary", b"John")[number % 2]) for number in range(1, 202))
    test = FIRST.replace("train", "test")
    changed = {**files, FIRST: told + repeated + long, test: long}
    corpus = build(changed, "authors")
    assert corpus.notes[1] == (
        "the training file of task 1 is not the released one",
        "task 1, train: 3 repeated lines omitted, including 2 questions",
        "task 1, train: 1 stories of more than 800 words omitted",
        "the test file of task 1 is not the released one",
    )
    assert corpus.train.select(corpus.train.task == 1).lengths.tolist() == [4 + 5, 4 + 5 + 4]
    assert corpus.test.select(corpus.test.task == 1).lengths.tolist() == [201 * 4]  # what is tested is never too long
    whole = build(changed, "paper")
    assert whole.train.select(whole.train.task == 1).lengths.tolist() == [9, 4 + 3 * 5 + 2 * 4, 201 * 4]


# --- the real files ---------------------------------------------------------------------------------------------------


def test_the_released_files_have_the_known_numbers(real_babi):
    corpus = load(real_babi)
    assert [int((corpus.train.task == task).sum()) for task in babi.TASKS] == list(babi.TRAINING_STORIES)
    assert (len(corpus.train), len(corpus.test)) == (62_661, 6_267)
    assert (corpus.train.questions, corpus.test.questions) == (200_000, 20_000)
    assert set(np.unique(corpus.train.shown)) | set(np.unique(corpus.train.answers)) - {-1} == set(range(159))
    assert int(corpus.test.lengths.max()) == 1_393


def test_every_file_but_those_that_differ_is_the_released_one(real_babi):
    content = babi.locate(real_babi).read()
    different = {name for name in released() if blob_hash(content[name]) != released()[name]}
    assert different <= {"en-10k/qa3_three-supporting-facts_train.txt"}
    assert bool(different) == bool(load(real_babi).notes[3])


def test_the_authors_score_fewer_questions(real_babi):
    corpus = load(real_babi, "authors")
    questions = {task: corpus.test.select(corpus.test.task == task).questions for task in babi.TASKS}
    assert {task: count for task, count in questions.items() if count != 1_000} == {15: 810, 17: 890, 18: 802}
    assert corpus.train.lengths.max() <= 800
    assert any("stories of more than 800 words omitted" in note for note in corpus.notes[3])


def test_the_kept_stories_are_there_within_a_second(real_babi):
    load.cache_clear()
    load(real_babi)
    load.cache_clear()
    began = time.process_time()
    load(real_babi)
    assert time.process_time() - began < 1
