"""Omniglot's files: packed or unpacked, shrunk, split and cached; what is not whole is said in one sentence."""

import errno
import io
import os
import shutil
import struct
import time
import zipfile
import zlib
from collections import Counter
from importlib import resources

import numpy as np
import pytest
from PIL import Image

from data import glyphs
from nsm import files
from nsm.checks import UserError
from nsm.data import omniglot

DRAWN = glyphs.files()


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    """A cache of the test's own, on the disk and in this process."""
    monkeypatch.setenv("NSM_CACHE", str(tmp_path / "cache"))
    omniglot.load.cache_clear()
    yield
    omniglot.load.cache_clear()


def loaded(root):
    omniglot.load.cache_clear()
    return omniglot.load(root)


def ink_of(name):
    return ~np.asarray(Image.open(io.BytesIO(DRAWN[name])))


# --- reading ----------------------------------------------------------------------------------------------------------


def test_archives_and_directories_hold_the_same(tmp_path):
    glyphs.write(tmp_path / "packed", DRAWN)
    glyphs.write(tmp_path / "unpacked", DRAWN, unpacked=True)
    packed, unpacked = loaded(tmp_path / "packed"), loaded(tmp_path / "unpacked")
    for ours, theirs in zip(packed, unpacked, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert packed.images.shape == (glyphs.CHARACTERS, 20, 41, 41)


def test_images_are_in_the_order_of_the_split_and_of_their_names(tmp_path):
    directory = glyphs.write(tmp_path, DRAWN)
    characters = [line.split(" ")[1] for line in (directory / "split.txt").read_text().splitlines()]
    images = loaded(tmp_path).images
    for index in (0, 5, len(characters) - 1):
        names = sorted(name for name in DRAWN if name.startswith(f"{characters[index]}/"))
        np.testing.assert_array_equal(images[index], omniglot.shrink(np.stack([ink_of(name) for name in names])))


def test_a_small_pixel_is_the_share_of_ink_in_it():
    ink = np.random.default_rng(0).random((3, 105, 105)) < 0.3
    # 20 pixels of 5¼: quarters of the large ones are whole parts of the small ones.
    quarters = ink.repeat(4, axis=1).repeat(4, axis=2).reshape(3, 20, 21, 20, 21)
    expected = 255 * quarters.mean(axis=(2, 4))
    found = omniglot.shrink(ink)[:, 1::2, 1::2]
    assert found.shape == (3, 20, 20)
    np.testing.assert_allclose(found, expected, atol=0.501)


def test_points_between_are_shares_of_ink_around_them():
    ink = np.zeros((105, 105), dtype=bool)
    ink[:, 52] = True  # the middle column, of width 1 in pixels of 5¼
    assert set(np.unique(omniglot.shrink(ink)[1:-1, 20])) == {round(255 / 5.25)}
    assert not omniglot.shrink(ink)[:, [17, 23]].any()
    ink[:] = True
    full = omniglot.shrink(ink)
    assert (full[1:-1, 1:-1] == 255).all()
    assert (full[0, 1:-1] == 128).all(), "half of what is around an edge is outside, and blank"


def test_ink_is_bright(tmp_path):
    first, second = sorted(DRAWN)[:2]
    blank, black = np.zeros((105, 105), dtype=bool), np.ones((105, 105), dtype=bool)
    directory = glyphs.write(tmp_path, DRAWN | {first: glyphs.png(blank), second: glyphs.png(black)})
    characters = [line.split(" ")[1] for line in (directory / "split.txt").read_text().splitlines()]
    drawings = loaded(tmp_path).images[characters.index(first.rsplit("/", 1)[0])]
    assert not drawings[0].any()
    assert (drawings[1, 1:-1, 1:-1] == 255).all()


# --- the split --------------------------------------------------------------------------------------------------------


def committed_split():
    text = resources.files("nsm.data").joinpath("omniglot-split.txt").read_text()
    return [line.split(" ", 1) for line in text.splitlines()]


def test_the_committed_split_has_1200_and_423_characters():
    split = committed_split()
    assert Counter(purpose for purpose, _ in split) == {"train": 1200, "test": 423}
    assert len({name for _, name in split}) == 1623
    assert Counter(name.split("/")[0] for _, name in split) == {"images_background": 964, "images_evaluation": 659}


def test_characters_to_train_and_to_test_are_disjoint(tmp_path):
    glyphs.write(tmp_path, DRAWN)
    data = loaded(tmp_path)
    assert len(data.test) == glyphs.TEST
    assert sorted([*data.train, *data.test]) == list(range(glyphs.CHARACTERS))


def test_a_split_that_makes_no_sense_is_said(tmp_path):
    directory = glyphs.write(tmp_path, DRAWN)
    (directory / "split.txt").write_text("train a/b\nvalidate c/d\n")
    with pytest.raises(UserError, match=r"split.txt, line 2: .* was 'validate c/d'"):
        loaded(tmp_path)


@pytest.mark.parametrize("left", ["", "train", "test"])
def test_a_split_has_characters_for_both(tmp_path, left):
    directory = glyphs.write(tmp_path, DRAWN)
    lines = (directory / "split.txt").read_text().splitlines(keepends=True)
    (directory / "split.txt").write_text("".join(line for line in lines if left and line.startswith(left)))
    (problem,) = omniglot.check(tmp_path).problems
    assert f"split.txt has no {'test' if left == 'train' else 'train'} characters" in problem


# --- the cache --------------------------------------------------------------------------------------------------------


def test_images_are_made_once(tmp_path, monkeypatch):
    glyphs.write(tmp_path, DRAWN)
    made = np.array(loaded(tmp_path).images)
    monkeypatch.setattr(omniglot, "_open", None)  # reading an archive again would fail
    np.testing.assert_array_equal(loaded(tmp_path).images, made)


@pytest.mark.parametrize("unpacked", [False, True])
def test_other_content_is_another_cache(tmp_path, unpacked):
    directory = glyphs.write(tmp_path, DRAWN, unpacked=unpacked)
    before = np.array(loaded(tmp_path).images)
    content = dict(DRAWN)
    content[next(iter(content))] = glyphs.png(np.ones((105, 105), dtype=bool))
    shutil.rmtree(directory)
    glyphs.write(tmp_path, content, unpacked=unpacked)
    assert (loaded(tmp_path).images != before).any()


def test_a_damaged_cache_is_made_again(tmp_path):
    glyphs.write(tmp_path, DRAWN)
    made = np.array(loaded(tmp_path).images)
    (cached,) = (tmp_path / "cache" / "omniglot").iterdir()
    for left in (1000, 0):
        cached.write_bytes(cached.read_bytes()[:left])
        np.testing.assert_array_equal(loaded(tmp_path).images, made)


def test_a_cache_that_could_not_be_written_is_not_there(tmp_path, monkeypatch):
    glyphs.write(tmp_path, DRAWN)

    def fail(path, content, mode):
        path.write_bytes(content[:1000])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files, "write_durably", fail)
        images = loaded(tmp_path).images
    assert list((tmp_path / "cache" / "omniglot").iterdir()) == []
    np.testing.assert_array_equal(images, loaded(tmp_path).images)


def test_without_a_cache_images_are_made_every_time(tmp_path):
    glyphs.write(tmp_path, DRAWN)
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    images = loaded(tmp_path).images
    assert list((tmp_path / "cache").iterdir()) == []
    np.testing.assert_array_equal(images, loaded(tmp_path).images)


# --- what is not whole ------------------------------------------------------------------------------------------------


def refused(root, *words):
    """Both reading and checking say the same, in one sentence."""
    with pytest.raises(UserError) as caught:
        loaded(root)
    message = str(caught.value)
    assert "\n" not in message
    for expected in (*words, "nsm data fetch omniglot"):
        assert expected in message
    assert omniglot.check(root).problems == [message]


def test_a_missing_archive(tmp_path):
    refused(tmp_path, str(tmp_path / "omniglot" / "images_background.zip"), "is missing", "by hand")
    directory = glyphs.write(tmp_path, DRAWN)
    (directory / "images_evaluation.zip").unlink()
    refused(tmp_path, str(directory / "images_evaluation.zip"), "is missing")


def test_a_truncated_archive(tmp_path):
    directory = glyphs.write(tmp_path, DRAWN)
    archive = directory / "images_background.zip"
    archive.write_bytes(archive.read_bytes()[:-500])
    refused(tmp_path, str(archive), "is damaged")


def test_a_page_in_place_of_an_archive(tmp_path):
    directory = glyphs.write(tmp_path, DRAWN)
    (directory / "images_background.zip").write_text("<html>Not found</html>")
    refused(tmp_path, str(directory / "images_background.zip"), "is damaged")


def test_a_flipped_byte_in_a_drawing(tmp_path):
    directory = glyphs.write(tmp_path, DRAWN)
    archive = directory / "images_background.zip"
    content = bytearray(archive.read_bytes())
    name = sorted(DRAWN)[3]
    content[content.index(DRAWN[name]) + len(DRAWN[name]) // 2] ^= 0xFF
    archive.write_bytes(content)
    refused(tmp_path, str(archive), "is damaged", name)


def test_a_half_unpacked_archive(tmp_path):
    directory = glyphs.write(tmp_path, DRAWN, unpacked=True)
    (directory / sorted(DRAWN)[7]).unlink()
    refused(tmp_path, "is incomplete", sorted(DRAWN)[7].rsplit("/", 1)[0], "19 of 20 drawings")
    shutil.rmtree(directory / "images_background" / "Arrows" / "character02")
    refused(tmp_path, str(directory / "images_background"), "is incomplete", "Arrows/character")


def test_an_empty_file_among_the_unpacked(tmp_path):
    directory = glyphs.write(tmp_path, DRAWN, unpacked=True)
    (directory / sorted(DRAWN)[7]).write_bytes(b"")
    refused(tmp_path, "is damaged", sorted(DRAWN)[7])


def test_drawings_of_another_size(tmp_path):
    name = sorted(DRAWN)[0]
    glyphs.write(tmp_path, DRAWN | {name: glyphs.png(np.zeros((28, 28), dtype=bool))})
    with pytest.raises(UserError, match="28×28 pixels, not 105×105"):
        loaded(tmp_path)


@pytest.mark.parametrize("side", [12_000, 60_000])
def test_a_drawing_of_many_pixels_is_not_decoded(tmp_path, peak, side):
    name = sorted(DRAWN)[0]
    header = struct.pack(">4sIIBBBBB", b"IHDR", side, side, 1, 0, 0, 0, 0)
    large = DRAWN[name][:12] + header + struct.pack(">I", zlib.crc32(header)) + DRAWN[name][33:]
    directory = glyphs.write(tmp_path, DRAWN | {name: large})
    with peak(60):
        refused(tmp_path, str(directory), name, "pixels, not 105×105")


@pytest.mark.parametrize("name", ["../../evil.png", "/tmp/evil.png", "images_background/../../evil.png"])
def test_names_that_lead_out_of_an_archive_are_refused(tmp_path, name):
    directory = glyphs.write(tmp_path, DRAWN)
    background = {name: data for name, data in DRAWN.items() if name.startswith("images_background/")}
    glyphs.pack(directory / "images_background.zip", background | {name: b"evil"})
    refused(tmp_path, repr(name), "is not a safe name")
    assert list(tmp_path.rglob("evil*")) == []


def test_an_archive_that_unpacks_to_more_than_it_should(tmp_path, peak):
    directory = glyphs.write(tmp_path, DRAWN)
    path = directory / "images_background.zip"
    name = sorted(DRAWN)[0]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, bytes(200 << 20))
    with peak(60):
        refused(tmp_path, str(path), name, "has 209,715,200 bytes; it should have at most 65,536")


def test_only_regular_files_are_read(tmp_path):
    """To open a pipe is to wait until somebody writes to it."""
    directory = glyphs.write(tmp_path, DRAWN, unpacked=True)
    drawing, split = directory / sorted(DRAWN)[7], (directory / "split.txt").read_bytes()
    drawing.unlink()
    os.mkfifo(drawing)
    refused(tmp_path, str(drawing), "is a pipe, not a file")
    drawing.unlink()
    drawing.symlink_to(tmp_path / "nowhere")
    with pytest.raises(UserError, match="can't be read: No such file"):
        loaded(tmp_path)
    (directory / "images_background.zip").mkdir()
    refused(tmp_path, "images_background.zip is a directory, not a file")
    (directory / "split.txt").unlink()
    os.mkfifo(directory / "split.txt")
    with pytest.raises(UserError, match=r"split.txt is a pipe, not a file"):
        loaded(tmp_path)
    (directory / "split.txt").unlink()
    (directory / "split.txt").write_bytes(split + b"train \xff\n")
    with pytest.raises(UserError, match=r"split.txt is not a text"):
        loaded(tmp_path)


def test_check_counts_what_there_is(tmp_path):
    glyphs.write(tmp_path, DRAWN)
    assert omniglot.check(tmp_path).lines == [
        "images_background.zip: 2 alphabets, 18 characters, 360 drawings",
        "images_evaluation.zip: 2 alphabets, 18 characters, 360 drawings",
        "complete: 24 characters for training, 12 for testing",
    ]


# --- the real set -----------------------------------------------------------------------------------------------------


def test_the_real_set_is_whole_and_loads_within_a_second(real_omniglot):
    finding = omniglot.check(real_omniglot)
    assert finding.problems == []
    assert finding.lines == [
        "images_background.zip: 30 alphabets, 964 characters, 19,280 drawings",
        "images_evaluation.zip: 20 alphabets, 659 characters, 13,180 drawings",
        "complete: 1,200 characters for training, 423 for testing",
    ]
    data = loaded(real_omniglot)
    assert data.images.shape == (1623, 20, 41, 41)
    began = time.process_time()
    again = loaded(real_omniglot)
    assert time.process_time() - began < 1
    np.testing.assert_array_equal(again.images[::100], data.images[::100])
