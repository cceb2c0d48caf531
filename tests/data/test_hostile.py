"""Data sets with random damage: what is read is a sentence or the same data, in little memory, never another error."""

import gzip
import random
import struct
import zlib

import numpy as np
import pytest

from data import glyphs
from data.small_babi import archive, contents
from nsm.checks import UserError
from nsm.data import babi, omniglot, stories
from nsm.data.archive import Zip

ODD = (
    *(
        b"",
        b"\0",
        b"\xff\xfe",
        b"\n",
        b"\t",
        b" ",
        b"?",
        b"9" * 5000,
        b"\xc3\xa9",
        b"..",
        b"/",
        b"\x1f\x8b",
        b"PK\x01\x02",
    ),
    *(b"\xff" * 4, b"\0" * 8, b"\x80" + b"\0" * 11, b"\x7f\xff\xff\xff"),
)


def damaged(content: bytes, draw: random.Random) -> bytes:
    """With a few bytes changed, taken out, put in or repeated, or without its end."""
    changed = bytearray(content)
    for _ in range(draw.choice((1, 1, 1, 2, 5))):
        place = draw.randrange(len(changed) + 1)
        kind = draw.randrange(6)
        if kind == 0:
            changed[place : place + 1] = bytes([draw.randrange(256)])
        elif kind == 1:
            changed[place : place + 1] = bytes(
                [(changed[place] if place < len(changed) else 0) ^ 1 << draw.randrange(8)]
            )
        elif kind == 2:
            odd = draw.choice(ODD)
            changed[place : place + len(odd)] = odd
        elif kind == 3:
            changed[place:place] = draw.choice(ODD)
        elif kind == 4:
            del changed[place : place + draw.choice((1, 8, 512))]
        else:
            del changed[place:]
    return bytes(changed)


def outcome(read, *arguments):
    """What was read, or None if a sentence was said."""
    try:
        return read(*arguments)
    except UserError as error:
        sentence = str(error)
        assert sentence
        assert "\n" not in sentence
        assert len(sentence) < 1000
        return None


def test_story_files(peak):
    draw = random.Random(0)
    text = contents(stories=3)[babi.file_name(8, "train")]
    kept = 0
    with peak(30):
        for _ in range(400):
            name = babi.file_name(1, "train")
            corpus = outcome(babi.build, {name: damaged(text, draw)}, "paper")
            if corpus is not None:
                kept += 1
                assert corpus.train.lengths.min() > 0
                assert corpus.train.shown.max() < len(stories.vocabulary())
    assert 0 < kept < 400


def test_packed_stories(tmp_path, peak):
    """A checksum covers all of it but the header's notes."""
    draw = random.Random(1)
    path = archive(contents(stories=2), tmp_path / babi.ARCHIVE)
    content, whole = path.read_bytes(), babi.Archive(path).read()
    with peak(30):
        for _ in range(200):
            path.write_bytes(damaged(content, draw))
            assert outcome(babi.Archive(path).read) in (None, whole)


def test_archives_of_odd_members(tmp_path, peak):
    """Damaged, then packed: nothing but the sums of headers tells."""
    draw = random.Random(2)
    path = archive(contents(stories=2), tmp_path / babi.ARCHIVE)
    unpacked = gzip.decompress(path.read_bytes())
    blocks = [place for place in range(0, len(unpacked), 512) if unpacked[place + 257 : place + 262] == b"ustar"]
    kept = 0
    with peak(30):
        for _ in range(200):
            changed = bytearray(unpacked)
            for start in draw.sample(blocks, 2):
                header = bytearray(damaged(unpacked[start : start + 512], draw)[:512].ljust(512, b"\0"))
                header[148:156] = b" " * 8
                header[148:156] = b"%06o\0 " % sum(header)
                changed[start : start + 512] = header
            path.write_bytes(gzip.compress(bytes(changed), 1))
            kept += outcome(babi.Archive(path).read) is not None
    assert 0 < kept < 200


@pytest.fixture
def few(tmp_path):
    """A data directory with two characters."""
    names = [name for name in glyphs.files() if "Arrows/character01/" in name or "Waves/character01/" in name]
    directory = glyphs.write(tmp_path, {name: glyphs.files()[name] for name in names})
    train, test = dict.fromkeys(name.rsplit("/", 1)[0] for name in names)
    (directory / "split.txt").write_text(f"train {train}\ntest {test}\n")
    return directory


def drawings(directory):
    parts = [omniglot._open(directory / f"{part}.zip") for part in glyphs.ALPHABETS]
    return np.stack(list(omniglot._read(parts, omniglot._split(directory))))


def test_packed_drawings(few, peak):
    draw = random.Random(3)
    path = few / "images_background.zip"
    content, whole = path.read_bytes(), drawings(few)
    listed = content.index(b"PK\x01\x02")
    kept = 0
    with peak(30):
        for number in range(200):
            # Every other time in the list of members, and in its end, by which the rest is found.
            begin = listed if number % 2 else 0
            path.write_bytes(content[:begin] + damaged(content[begin:], draw))
            found = outcome(drawings, few)
            if found is not None:
                kept += 1
                np.testing.assert_array_equal(found, whole)
    assert 0 < kept < 200


def chunks(png: bytes) -> list[tuple[bytes, bytes]]:
    found, place = [], 8
    while place < len(png):
        (size,) = struct.unpack(">I", png[place : place + 4])
        found.append((png[place + 4 : place + 8], png[place + 8 : place + 8 + size]))
        place += 12 + size
    return found


def joined(parts: list[tuple[bytes, bytes]]) -> bytes:
    checked = [(len(data), kind + data, zlib.crc32(kind + data)) for kind, data in parts]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", n) + data + struct.pack(">I", crc) for n, data, crc in checked
    )


def test_odd_drawings(tmp_path, peak):
    """With right checksums, so that what is wrong is found by the decoder, and texts that unpack to megabytes."""
    draw = random.Random(4)
    parts = chunks(next(iter(glyphs.files().values())))
    text = b"a\0\0" + zlib.compress(bytes(8 << 20))
    kinds = [b"IHDR", b"PLTE", b"tRNS", b"pHYs", b"zTXt", b"iTXt", b"iCCP", b"eXIf", b"acTL", b"fcTL", b"fdAT", b"IDAT"]
    kept = 0
    with peak(60):
        for _ in range(300):
            changed = list(parts)
            if draw.random() < 0.5:
                content = draw.choice((text, b"", bytes(draw.randbytes(draw.randrange(30)))))
                changed.insert(draw.randrange(len(changed) + 1), (draw.choice(kinds), content))
            else:
                place = draw.randrange(len(changed))
                changed[place] = (changed[place][0], damaged(changed[place][1], draw))
            png = joined(changed)
            part = omniglot._Part(tmp_path, {}, lambda _, png=png: png)
            ink = outcome(omniglot._drawing, part, "drawing")
            if ink is not None:
                kept += 1
                assert ink.shape == (105, 105)
    assert 0 < kept < 300


def test_splits(few):
    draw = random.Random(5)
    content, whole = (few / "split.txt").read_bytes(), omniglot._split(few)
    found = []
    for _ in range(300):
        (few / "split.txt").write_bytes(damaged(content, draw))
        found.append(outcome(omniglot._split, few))
    assert whole in found
    assert None in found


def test_names_of_members_are_short_in_sentences(tmp_path):
    glyphs.pack(tmp_path / "a.zip", {"/" + "x" * 60_000: b""})
    assert outcome(Zip, tmp_path / "a.zip", omniglot.LIMITS) is None
