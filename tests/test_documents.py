"""JSON that anybody may have written is read within bounds, or refused with a reason."""

import json

import pytest

from nsm import documents
from nsm.files import Damaged


@pytest.mark.parametrize(
    "value",
    [
        None,
        -1.5e-300,
        2**63,
        1.7976931348623157e308,
        'brackets [[[[{{{{ and a quote " and a \\',
        [["[" * 100, '\\"]' * 100, {"{": "}"}]] * 100,
        {"a": {"b": [{"c": {}}] * 50}},
    ],
)
def test_what_nsm_writes_comes_back(value):
    assert documents.parse(json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b'"\xff"', "not JSON"),
        (b"NaN", "NaN is not a number"),
        (b"[1, -Infinity]", "-Infinity is not a number"),
        (b"1e999", "the number 1e999 is too large"),
        (b"-1" + b"0" * 400, "a number of 402 digits"),
        (b"0." + b"1" * 5000, "a number of 5,002 digits"),
        (b"[" * 33 + b"]" * 33, "nested more than 32 deep"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "nested more than 32 deep"),
        (b"[" * 4_000_000, "nested more than 32 deep"),
        (b'"' + b'\\"' * 2_000_000 + b"[" * 100, "not JSON"),  # texts without an end, each of which begins another
        (b'[[[["\\' * 100, "not JSON|nested more than 32 deep"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_what_nsm_does_not_write_is_refused_with_a_reason(content, reason):
    with pytest.raises(ValueError, match=f"^({reason})$"):
        documents.parse(content)


def test_a_document_is_sealed_by_its_content_and_not_by_its_spaces(tmp_path):
    path = tmp_path / "document.json"
    documents.write(path, {"b": 1, "a": [0.1, "ü"]})
    assert documents.read_sealed(path) == {"b": 1, "a": [0.1, "ü"]}
    path.write_text(json.dumps(json.loads(path.read_text()), indent=7, ensure_ascii=False), encoding="utf-8")
    assert documents.read_sealed(path) == {"b": 1, "a": [0.1, "ü"]}
    for harmed in (
        {"b": 1},
        {"b": 2, "self": documents.digest_of({"b": 1})},
        {"self": None},
        [],
        {"b": 1, "self": "0" * 64},
    ):
        path.write_text(json.dumps(harmed))
        with pytest.raises(Damaged, match=r"document\.json is damaged: "):
            documents.read_sealed(path)


def test_lines_end_where_the_last_is_still_being_written(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(b'{"step": 1}\n{"step": 2}\n{"st')
    assert list(documents.read_lines(path)) == [{"step": 1}, {"step": 2}]
    path.write_bytes(b'{"step": 1}\n{"step": NaN}\n')
    with pytest.raises(Damaged, match="line 2 is not a line of metrics: NaN is not a number"):
        list(documents.read_lines(path))
    with path.open("r+b") as file:
        file.truncate(0)
        file.truncate(1 << 40)  # without taking any room on the disk
    with pytest.raises(Damaged, match="line 1 is not terminated"):
        list(documents.read_lines(path))
