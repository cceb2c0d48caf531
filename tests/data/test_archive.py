"""Archives within limits: what is too large, odd or damaged is refused in a sentence, before it is held."""

import gzip
import struct
import tarfile
import zipfile
from pathlib import Path

import pytest

from nsm.checks import UserError
from nsm.data.archive import Limits, Zip, read_file, read_tar

LIMITS = Limits(packed=100_000, members=10, member=20_000, unpacked=60_000)


def tar(path, *members, end=bytes(1024)):
    """Members are a name and a content, or a header and a content."""
    blocks = []
    for name, content in members:
        info = tarfile.TarInfo(name) if isinstance(name, str) else name
        info.size = info.size or len(content)
        blocks.append(info.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-len(content) % 512))
    path.write_bytes(gzip.compress(b"".join(blocks) + end))
    return path


def of_kind(kind, name="member", size=0):
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    return info


def taken(path):
    return dict(read_tar(path, LIMITS, lambda name: not name.startswith("other")))


def zipped(path, members, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def patched(path, central, local, size, value):
    """Overwrite a field of the first member in both its headers."""
    content = bytearray(path.read_bytes())
    for place in (content.index(b"PK\x01\x02") + central, content.index(b"PK\x03\x04") + local):
        content[place : place + size] = value.to_bytes(size, "little")
    path.write_bytes(content)
    return path


# --- tar --------------------------------------------------------------------------------------------------------------


def test_wanted_members_are_read(tmp_path):
    path = tar(tmp_path / "a", ("one", b"1" * 700), ("other", b"2"), (of_kind(tarfile.DIRTYPE), b""), ("three", b""))
    assert taken(path) == {"one": b"1" * 700, "three": b""}


def test_what_tarfile_writes_is_read(tmp_path):
    (tmp_path / "one").write_bytes(b"1" * 700)
    for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):  # the last, with dates in more headers
        with tarfile.open(tmp_path / "a", "w:gz", format=form) as archive:
            archive.add(tmp_path / "one", "one")
        assert taken(tmp_path / "a") == {"one": b"1" * 700}


@pytest.mark.parametrize(
    ("members", "sentence"),
    [
        ([("large", bytes(20_001))], "'large' has 20,001 bytes; it should have at most 20,000"),
        ([("other", bytes(20_000))] * 4, "unpacks to more than 60,000 bytes"),
        ([("other", b"")] * 11, "has more than 10 members"),
        ([(of_kind(tarfile.REGTYPE, size=19_000), b"")], "is damaged: it ends early"),
        ([("/one", b"")], "'/one' is not a safe name"),
        ([("here/../../one", b"")], "'here/../../one' is not a safe name"),
        ([(of_kind(tarfile.XHDTYPE), b"21 path=another name\n"), ("one", b"")], "a sparse file or a long name"),
        ([(of_kind(tarfile.XHDTYPE), b"22 GNU.sparse.major=1\n"), ("one", b"")], "a sparse file or a long name"),
        ([(of_kind(tarfile.GNUTYPE_LONGNAME), b"name")] * 9, "'member' is neither a file nor a directory"),
        *[
            ([(of_kind(kind), b"")], "'member' is neither a file nor a directory")
            for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE)
        ],
        ([(of_kind(tarfile.GNUTYPE_SPARSE), b"")], "'member' is neither a file nor a directory"),
    ],
)
def test_a_tar_that_is_not_taken(tmp_path, members, sentence):
    path = tar(tmp_path / "a.tar.gz", *members)
    with pytest.raises(UserError) as caught:
        taken(path)
    assert str(caught.value).startswith(str(path))
    assert sentence in str(caught.value)


def test_a_size_below_zero_is_none(tmp_path):
    """Going on at an earlier place, one might never end."""
    header = bytearray(tarfile.TarInfo("one").tobuf(tarfile.USTAR_FORMAT))
    header[124:136] = b"\xff" * 11 + b"\x00"
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    (tmp_path / "a").write_bytes(gzip.compress(bytes(header) + bytes(1024)))
    with pytest.raises(UserError, match="'one' has -256 bytes"):
        taken(tmp_path / "a")


def test_zeros_behind_the_end_count(tmp_path, peak):
    path = tar(tmp_path / "a", ("one", b"1"), end=bytes(50 << 20))
    with pytest.raises(UserError, match="unpacks to more than 60,000 bytes"), peak(5):
        taken(path)


@pytest.mark.parametrize("left", [0, 5, 60, -1])
def test_a_truncated_tar_is_damaged(tmp_path, left):
    path = tar(tmp_path / "a", ("one", b"1" * 700))
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(UserError, match="is damaged"):
        taken(path)


# --- zip --------------------------------------------------------------------------------------------------------------


def test_members_are_read(tmp_path):
    members = {"one": b"1" * 700, "empty": b"", "directory/": b""}
    archive = Zip(zipped(tmp_path / "a", members), LIMITS)
    assert {name: archive.read(name) for name in archive.names} == members


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_is_compressed_as_usual(tmp_path, method):
    path = zipped(tmp_path / "a", {"one": b"1" * 700}, method)
    with pytest.raises(UserError, match=f"'one' is compressed by method {method}, not by deflate"):
        Zip(path, LIMITS)


@pytest.mark.parametrize(
    ("members", "sentence"),
    [
        ({"large": bytes(20_001)}, "'large' has 20,001 bytes; it should have at most 20,000"),
        ({name: bytes(20_000) for name in "abcd"}, "unpacks to 80,000 bytes; it should have at most 60,000"),
        ({name: b"" for name in "abcdefghijk"}, "has more than 10 members"),
        ({"../one": b""}, "'../one' is not a safe name"),
        ({"/one": b""}, "'/one' is not a safe name"),
    ],
)
def test_a_zip_that_is_not_taken(tmp_path, members, sentence):
    path = zipped(tmp_path / "a.zip", members)
    with pytest.raises(UserError) as caught:
        Zip(path, LIMITS)
    assert str(caught.value).startswith(str(path))
    assert sentence in str(caught.value)


def test_an_encrypted_member_a_later_method_and_a_null_byte_are_said(tmp_path):
    path = tmp_path / "a"
    for place, value, sentence in (
        ((8, 6, 2), 1, "'one' is encrypted"),
        ((10, 8, 2), 97, "'one' is compressed by method 97, not by deflate"),
        ((6, 4, 2), 99, "is damaged: zip file version 9.9"),
    ):
        with pytest.raises(UserError, match=sentence):
            Zip(patched(zipped(path, {"one": b"1"}), *place, value), LIMITS)
    path.write_bytes(zipped(path, {"one": b"1"}).read_bytes().replace(b"one", b"o\0e"))
    with pytest.raises(UserError, match=r"'o\\x00e' is not a safe name"):
        Zip(path, LIMITS)


def test_what_a_header_says_is_the_most_that_is_decompressed(tmp_path, peak):
    path = patched(zipped(tmp_path / "a", {"one": bytes(50 << 20)}), 24, 22, 4, 100)
    archive = Zip(path, LIMITS)
    with pytest.raises(UserError, match="is damaged: one can't be read: Bad CRC"), peak(5):
        archive.read("one")


def test_many_members_are_not_even_listed(tmp_path, peak):
    """Whatever the end of the archive says how many there are."""
    entry = struct.pack("<4s42x", b"PK\x01\x02")
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, 46 * 100_000, 0, 0)
    (tmp_path / "a").write_bytes(entry * 100_000 + end)
    with pytest.raises(UserError, match="has more than 1,000 members"), peak(12):
        Zip(tmp_path / "a", Limits(10 << 20, 1000, 1000, 1000))


def test_a_damaged_zip_is_said(tmp_path):
    content = zipped(tmp_path / "a", {"one": b"1" * 700}).read_bytes()
    for left in (0, 30, len(content) - 5):
        (tmp_path / "a").write_bytes(content[:left])
        with pytest.raises(UserError, match="is damaged: File is not a zip file"):
            Zip(tmp_path / "a", LIMITS)


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_file_is_read_up_to_its_limit(tmp_path):
    (tmp_path / "a").write_bytes(b"1234")
    assert read_file(tmp_path / "a", 4) == b"1234"
    with pytest.raises(UserError, match=r"a has 4 bytes; it should have at most 3$"):
        read_file(tmp_path / "a", 3)


def test_a_device_is_no_file():
    with pytest.raises(UserError, match=r"^/dev/null is a device, not a file$"):
        read_file(Path("/dev/null"), 4)
