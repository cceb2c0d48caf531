"""What can be wrong with a file: damage, things in its place, JSON, tensors and archives that lie.

Every mutation takes its choices from a `random.Random`, so that the same one makes the same file again, and says in a
few words what it did.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

SPARSE = (3 << 29, 1 << 40)
"""Bytes of a file with nothing in it: one that could be read whole, at a price, and one that can't."""
BOMB = 3 << 29
"""Bytes that a bomb has when it is unpacked: 1.5 GiB."""
NESTED = 5_000
Words = str
Content = bytes


# --- damage -----------------------------------------------------------------------------------------------------------


def damaged(content: Content, chance: random.Random) -> tuple[Words, Content]:
    """As a disk, a cable or a killed process leaves a file: nobody chose what is in it."""
    size = len(content)
    place = chance.randrange(size) if size else 0
    how = chance.choice(("a bit flipped", "bits flipped", "truncated", "extended", "zeroed", "emptied", "doubled"))
    changed = bytearray(content)
    if how == "a bit flipped" and size:
        changed[place] ^= 1 << chance.randrange(8)
        how = f"bit flipped in byte {place}"
    elif how == "bits flipped" and size:
        for _ in range(chance.randint(2, 40)):
            changed[chance.randrange(size)] ^= 1 << chance.randrange(8)
    elif how == "truncated":
        del changed[place:]
        how = f"truncated to {place} bytes"
    elif how == "extended":
        changed += chance.randbytes(chance.choice((1, 7, 4096)))
    elif how == "zeroed":
        length = min(size - place, chance.choice((1, 16, 512)))
        changed[place : place + length] = bytes(length)
        how = f"{length} bytes zeroed from {place}"
    elif how == "emptied":
        changed.clear()
    else:
        how = "doubled"
        changed += content
    return how, bytes(changed)


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)


def replaced(path: Path, chance: random.Random) -> Words:
    """Put something that is not an ordinary file in a file's place, or nothing."""
    how = chance.choice(
        ("deleted", "a directory", "a FIFO", "a link to nowhere", "a link to itself", "endless", "sparse")
    )
    _remove(path)
    if how == "a directory":
        path.mkdir()
    elif how == "a FIFO":
        os.mkfifo(path)
    elif how == "a link to nowhere":
        path.symlink_to("nothing-of-that-name")
    elif how == "a link to itself":
        path.symlink_to(path.name)
    elif how == "endless":
        path.symlink_to("/dev/zero")
        how = "a link to /dev/zero"
    elif how == "sparse":
        size = chance.choice(SPARSE)
        with path.open("wb") as file:
            file.truncate(size)
        how = f"a sparse file of {size:,} bytes"
    return how


# --- JSON -------------------------------------------------------------------------------------------------------------

RAW = "\N{WHITE FLAG}"
"""Stands for a text that json.dumps would not write."""
NUMBERS = ("0", "-1", "-0.0", "1", "2", "9223372036854775808", "1e12", "1000000000000", "1e999", "-1e999", "1e-999")
NUMBERS += ("NaN", "Infinity", "0.5", "4294967296", "7" * 400, "7" * 5_000)
OTHERS = ("null", "true", "false", "[]", "{}", '""', '"x"', "[[]]", '{"a": 1}', '[1, "2", null]', '"nan"', '"1"')
STRINGS = (r'"\u0000"', r'"\ud800"', r'"\"\\\n"', '"../../../../etc/passwd"', f'"{"x" * 100_000}"', '"\xff"', '"٣"')


def json_mutated(content: Content, chance: random.Random) -> tuple[Words, Content]:
    """A document that somebody wrote: one value, key or nesting of it is other than nsm writes."""
    document = json.loads(content)
    places = list(_places(document))
    holder, key = chance.choice(places)
    path = f"{key!r}"
    how = chance.choice(("number", "number", "other", "string", "delete", "duplicate", "rename", "nest", "bytes"))
    raw = b""
    if how in ("number", "other", "string"):
        text = chance.choice({"number": NUMBERS, "other": OTHERS, "string": STRINGS}[how])
        raw, holder[key] = text.encode("utf-8"), RAW
        how = f"{path} is {text if len(text) < 30 else f'{text[:10]}… of {len(text)} characters'}"
    elif how == "delete":
        del holder[key]
        how = f"{path} deleted"
    elif how in ("duplicate", "rename") and isinstance(holder, dict):
        value = holder[key] if how == "duplicate" else holder.pop(key)
        holder[key + RAW if how == "duplicate" else key + "x"] = chance.choice((value, None, 0))
        how = f"{path}: {how}d"
    elif how == "nest":
        opening, closing = chance.choice((("[", "]"), ('{"a":', "}")))
        raw, holder[key] = (opening * NESTED + "0" + closing * NESTED).encode(), RAW
        how = f"{path} nested {NESTED:,} deep"
    else:
        raw, holder[key] = chance.choice((b'"\xff\xfe"', b'"\x00"', b"\xed\xa0\x80", b"")), RAW
        how = f"{path} is the bytes {raw!r}"
    text = json.dumps(document, indent=2, ensure_ascii=False)
    changed = text.replace(f'"{RAW}"', "\0").encode("utf-8", "surrogatepass")
    return how, changed.replace(b"\0", raw).replace(RAW.encode(), b"")


def _places(document: Any) -> Iterator[tuple[Any, Any]]:
    """All values of a document: the object or list that holds each, and its key there."""
    pairs = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in list(pairs):
        yield document, key
        yield from _places(value)


def lines_mutated(content: Content, chance: random.Random) -> tuple[Words, Content]:
    """One line of a file of JSON lines."""
    lines = content.splitlines()
    number = chance.randrange(len(lines))
    how, line = json_mutated(lines[number], chance)
    lines[number] = b" ".join(line.split(b"\n"))
    return f"line {number + 1}: {how}", b"\n".join(lines) + b"\n"


# --- tensors ----------------------------------------------------------------------------------------------------------


def tensors_mutated(content: Content, chance: random.Random) -> tuple[Words, Content]:
    """A safetensors file whose header says something else than its bytes hold."""
    size = struct.unpack("<Q", content[:8])[0]
    header, data = json.loads(content[8 : 8 + size]), content[8 + size :]
    names = [name for name in header if name != "__metadata__"]
    entry = header[name := chance.choice(names)]
    how = chance.choice(("length", "shape", "dtype", "offsets", "swap", "rename", "delete", "add", "json", "metadata"))
    if how == "length":
        length = chance.choice((0, 1, size - 1, size + 1, 1 << 31, 1 << 40, (1 << 63) - 1, (1 << 64) - 1))
        return f"header of {length} bytes", struct.pack("<Q", length) + content[8:]
    if how == "json":
        how, text = json_mutated(content[8 : 8 + size], chance)
        return f"header: {how}", struct.pack("<Q", len(text)) + text + data
    if how == "shape":
        shape = entry["shape"]
        wrong = [shape[::-1], [*shape, 1], [-1], [], [0], [1 << 62, 1 << 62], [1 << 40], [1.5], shape[:-1]]
        entry["shape"] = chance.choice(wrong)
    elif how == "dtype":
        entry["dtype"] = chance.choice(("F64", "F16", "BF16", "I32", "U8", "BOOL", "I64", "F8_E4M3", "X", ""))
    elif how == "offsets":
        begin, end = entry["data_offsets"]
        wrong = [[end, begin], [begin, end + 4], [begin + 4, end], [0, 1 << 62], [-4, end], [begin], []]
        entry["data_offsets"] = chance.choice(wrong)
    elif how == "swap":
        other = header[chance.choice(names)]
        entry["data_offsets"], other["data_offsets"] = other["data_offsets"], entry["data_offsets"]
    elif how == "rename":
        header[f"{name}x"] = header.pop(name)
    elif how == "delete":
        del header[name]
    elif how == "add":
        header["extra"] = {"dtype": "F32", "shape": [1], "data_offsets": [len(data), len(data) + 4]}
        data += bytes(4)
    else:
        header["__metadata__"] = chance.choice(({"a": 1}, {"a": "x" * 100_000}, [], "x"))
    text = json.dumps(header).encode()
    return f"{name}: {how}", struct.pack("<Q", len(text)) + text + data


# --- archives ---------------------------------------------------------------------------------------------------------


@cache
def _zeros() -> bytes:
    """A piece of a deflate stream, 64 MiB of zeros, that others may follow."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(bytes(64 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)


def _deflated_zeros(size: int) -> bytes:
    """A whole deflate stream of zeros."""
    return _zeros() * (size // (64 << 20)) + zlib.compressobj(9, zlib.DEFLATED, -15).flush()


def _gzip_zeros(size: int) -> bytes:
    """Members of a gzip file, each of 64 MiB."""
    return gzip.compress(bytes(64 << 20), mtime=0) * (size // (64 << 20))


def tar_mutated(files: dict[str, bytes], folder: str, chance: random.Random) -> tuple[Words, Content]:
    """bAbI's archive, of files that are not the released ones, or not files."""
    names = list(files)
    name = chance.choice(names)
    how = chance.choice((*TAR, "bytes", "stream"))
    if how in TAR:
        raw = io.BytesIO()
        with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for other, content in files.items():
                TAR[how](tar, f"{folder}/{other}", content, other == name, chance)
        content, tail = raw.getvalue(), b""
        if how == "bomb":
            content, tail = content.rstrip(b"\0") + bytes(1024), _gzip_zeros(BOMB)
        return f"{name}: {how}", gzip.compress(content, 1, mtime=0) + tail
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for other, content in files.items():
            _member(tar, f"{folder}/{other}", content)
    if how == "bytes":
        how, content = damaged(gzip.compress(raw.getvalue(), 1, mtime=0), chance)
        return f"archive {how}", content
    how, content = damaged(raw.getvalue(), chance)
    return f"inside: {how}", gzip.compress(content, 1, mtime=0)


def _member(tar: tarfile.TarFile, name: str, content: bytes, **changes: Any) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    for field, value in changes.items():
        setattr(member, field, value)
    tar.addfile(member, io.BytesIO(content) if member.isreg() else None)


def _linked(tar: tarfile.TarFile, name: str, content: bytes, chosen: bool, chance: random.Random) -> None:
    if not chosen:
        return _member(tar, name, content)
    kind = chance.choice((tarfile.SYMTYPE, tarfile.LNKTYPE))
    return _member(tar, name, b"", type=kind, linkname=chance.choice((name, "/etc/passwd", "/dev/zero", "../../../x")))


def _device(tar: tarfile.TarFile, name: str, content: bytes, chosen: bool, chance: random.Random) -> None:
    kind = chance.choice((tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE))
    _member(tar, name, b"", type=kind) if chosen else _member(tar, name, content)


def _astray(tar: tarfile.TarFile, name: str, content: bytes, chosen: bool, chance: random.Random) -> None:
    begin = chance.choice(("../../../../tmp/", "/tmp/", "./", "a/../../", "\\", "x" * 5_000 + "/"))
    _member(tar, begin + name if chosen else name, content)


def _lying(tar: tarfile.TarFile, name: str, content: bytes, chosen: bool, chance: random.Random) -> None:
    """A header that promises other bytes than follow."""
    if not chosen:
        return _member(tar, name, content)
    member = tarfile.TarInfo(name)
    member.size = chance.choice((1 << 26, 1 << 31, 1 << 40, 1 << 62, 1, 0, len(content) + 1))
    tar.fileobj.write(member.tobuf(tarfile.GNU_FORMAT) + content)  # type: ignore[union-attr]
    tar.offset += 512 + len(content)
    return None


def _headers(tar: tarfile.TarFile, name: str, content: bytes, chosen: bool, chance: random.Random) -> None:
    wrong = ({"size": "9" * 400}, {"size": "-1"}, {"size": "x"}, {"path": "\0"}, {"GNU.sparse.major": "1"})
    wrong += ({"GNU.sparse.map": "0,x"}, {"GNU.sparse.size": "9" * 5_000}, {"mtime": "nan"}, {"path": "x" * 1_000_000})
    _member(tar, name, content, **({"pax_headers": chance.choice(wrong)} if chosen else {}))


def _text(tar: tarfile.TarFile, name: str, content: bytes, chosen: bool, chance: random.Random) -> None:
    _member(tar, name, story_mutated(content, chance)[1] if chosen else content)


def _crowd(tar: tarfile.TarFile, name: str, content: bytes, chosen: bool, chance: random.Random) -> None:
    for number in range(5_000 if chosen else 0):
        _member(tar, f"{number}", b"")
    _member(tar, name, content)


def _twice(tar: tarfile.TarFile, name: str, content: bytes, chosen: bool, chance: random.Random) -> None:
    for _ in range(3 if chosen else 1):
        _member(tar, name, content)


def _huge(tar: tarfile.TarFile, name: str, content: bytes, chosen: bool, chance: random.Random) -> None:
    _member(tar, name, b"1 Mary went to the kitchen.\n" * 200_000 if chosen else content)


def _plain(tar: tarfile.TarFile, name: str, content: bytes, chosen: bool, chance: random.Random) -> None:
    _member(tar, name, content)


TAR: dict[str, Callable[[tarfile.TarFile, str, bytes, bool, random.Random], None]] = {
    "a link": _linked,
    "a device": _device,
    "a name that leads out": _astray,
    "a size that lies": _lying,
    "a header": _headers,
    "text": _text,
    "text again": _text,
    "many members": _crowd,
    "a member twice": _twice,
    "a large file": _huge,
    "bomb": _plain,
}


def story_mutated(content: bytes, chance: random.Random) -> tuple[Words, Content]:
    """A text of stories that is none."""
    lines = content.splitlines()
    number = chance.randrange(len(lines)) if lines else 0
    wrong = (b"", b"\0", b"\xff\xfe\xfd", "1 Ünïcode went.".encode(), "٣ Mary went.".encode(), b"7" * 400, b"7" * 5_000)
    wrong += (b"7" * 5_000 + b" Mary went to the kitchen.", b"x" * 1_000_000, b"1 Where is Mary?\t\t", b"\t\t\t\t")
    wrong += (b"1 Where is Mary?\tnowhere\t99999999999999999999", b"-1 Mary went to the kitchen.", b"0 .", b"1 ?", b"?")
    wrong += (
        b"1 " + b"Mary " * 20_000,
        b"1 Where is Mary?\t" + b"kitchen," * 5_000 + b"\t1",
        b"\r\r\r",
        b"\x1b[2J",
        b"1",
    )
    if chance.random() < 0.4:
        return damaged(content, chance)
    line = chance.choice(wrong)
    lines[number : number + chance.randint(0, 1)] = [line]
    return f"line {number + 1} is {line[:20]!r}", b"\n".join(lines) + b"\n"


def zip_mutated(files: dict[str, bytes], chance: random.Random) -> tuple[Words, Content]:
    """One of Omniglot's archives, with entries that lie."""
    names = list(files)
    name = chance.choice(names)
    how = chance.choice((*ENTRY, "bytes", "bytes", "drawing", "bomb", "names", "format"))
    if how == "bytes":
        how, content = damaged(_zip(files), chance)
        return f"archive {how}", content
    if how in ENTRY:
        return f"{name}: {how}", _entry_changed(_zip(files), name, *chance.choice(ENTRY[how]))
    if how == "drawing":
        how, content = damaged(files[name], chance)
        return f"{name} {how}", _zip(files | {name: content})
    if how == "format":
        return f"{name}: another picture", _zip(files | {name: chance.choice(_pictures())})
    if how == "names":
        wrong = chance.choice(
            ("../../x.png", "/tmp/x.png", "x" * 60_000, "a\0b.png", "\\\\x.png", name + "/", "", "é.png")
        )
        return f"also {wrong[:20]!r}", _zip(files | {wrong: b"x"})
    packed = _entry_changed(_zip(files | {name: _deflated_zeros(BOMB)}), name, "method", zipfile.ZIP_DEFLATED)
    return f"{name}: bomb", _entry_changed(packed, name, "size", chance.choice((BOMB, 1000, 0xFFFFFFFE)))


ENTRY: dict[str, tuple[tuple[str, int], ...]] = {
    "encrypted": (("flags", 1), ("flags", 65), ("flags", 0x2001)),
    "an odd method": (("method", 99), ("method", 12), ("method", 14), ("method", 1), ("method", 93), ("method", 8)),
    "sizes that lie": (("size", 0), ("size", 0xFFFFFFFE), ("size", 1), ("packed", 0), ("packed", 0x7FFFFFFF)),
    "another place": (("offset", 0), ("offset", 0xFFFFFFF0), ("offset", 17)),
    "patched data": (("flags", 32), ("version", 99), ("crc", 0)),
}
FIELDS = {"version": (4, 6, "H"), "flags": (6, 8, "H"), "method": (8, 10, "H"), "crc": (14, 16, "I")}
FIELDS |= {"packed": (18, 20, "I"), "size": (22, 24, "I"), "offset": (None, 42, "I")}
"""Where a field is in an entry's local header, and in the central directory."""


def _zip(files: dict[str, bytes]) -> bytes:
    """An archive that stores files as they are, under whatever names."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo("x")
            entry.filename = name
            archive.writestr(entry, data)
    return content.getvalue()


def _entry_changed(content: bytes, name: str, field: str, value: int) -> bytes:
    """Write something else into a field of both headers of an entry."""
    changed, (local, central, kind) = bytearray(content), FIELDS[field]
    first, last = content.index(name.encode()) - 30, content.rindex(name.encode()) - 46
    if local is not None:
        struct.pack_into(f"<{kind}", changed, first + local, value)
    struct.pack_into(f"<{kind}", changed, last + central, value)
    return bytes(changed)


@cache
def _pictures() -> tuple[bytes, ...]:
    """Files that are called .png: very large ones, and such as a library of images would hand on to other programs."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    def png(width: int, height: int, data: bytes, *more: bytes) -> bytes:
        header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0))
        return b"\x89PNG\r\n\x1a\n" + header + b"".join(more) + chunk(b"IDAT", data) + chunk(b"IEND", b"")

    zeros = zlib.compress(bytes(64 << 20), 9)
    eps = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 105 105\n%%EndComments\n(x) (w) file\nshowpage\n%%EOF\n"
    return (
        png(105, 105, zeros),
        png(60_000, 60_000, zeros),
        png(0x7FFFFFFF, 0x7FFFFFFF, zeros),
        png(12_000, 12_000, zeros),
        png(0, 0, b""),
        png(105, 105, b"", chunk(b"zTXt", b"a\0\0" + zeros)),
        eps,
        b"GIF89a" + struct.pack("<HH", 65535, 65535) + bytes(20),
        b"BM" + bytes(12) + struct.pack("<IiiHHIIiiII", 40, 30_000, 30_000, 1, 1, 0, 0, 0, 0, 0, 0),
    )


# --- arguments --------------------------------------------------------------------------------------------------------

INTEGERS = ("0", "-1", "1", "2", "2147483648", "4294967296", "9223372036854775808", "-9223372036854775809", "")
INTEGERS += ("1000000000000", "1000000000000000000", "7" * 400, "7" * 5_000, "nan", "inf", "1e3", "1.5", " ", "--")
INTEGERS += ("１２", "٣", "²", "0x10", "1_0")
REALS = (*INTEGERS, "-inf", "1e308", "1e-320", "1e999", "-0.0", "infinity", "NaN")
RANGES = (*INTEGERS, "3-", "-3", "5-3", "0-0", "1-1000000000000", "٣-٤", "1-" + "7" * 5_000, "3–4")
TEXTS = ("", " ", "x", "x" * 5_000, "\udcff", "copy+copy", "../..", "/dev/null", "/dev/zero", "٣", "-")
TEXTS += ("cuda", "meta", "cpu:99", "copy/nutm", "seed")
TASKS = (*TEXTS, "omniglot-0", "omniglot-1000000000000", "omniglot-٣", "babi-1,4", "babi-0", "babi-1,1", "babi-x")
TASKS += ("copy+ngrams", "copy+", "+", "sequence", ":", "os:", "os:path", "os:system", ".:x", "nsm.tasks:Task", "-h")
SWITCHES = ("True", "False", "x", "")
PATHS = ("", ".", "..", "/dev/null", "/proc/self/mem", "nowhere/at/all", "x" * 5_000, "\udcff", "run", "~")
PATHS += ("run/config.json",)
