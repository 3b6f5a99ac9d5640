from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.formats.config_json import (
    ROWS_PER_STEP,
    Rows,
    choose_document,
    decode_document,
    encode_document,
    encode_in_steps,
)
from ledgermq.model.errors import CorruptLogError

PRETTY = b'{\n\t"offsetTable":{1:2,3:7\n\t}\n}'
COMPACT = b'{"offsetTable":{1:2,3:7}}'
TABLE = {"offsetTable": {"1": 2, "3": 7}}

_TEXTS = st.text() | st.from_regex(r'[{,]\s?-?\d+\s?:|"\{1:2\}\\?"', fullmatch=True)
_DOCUMENTS = st.dictionaries(
    _TEXTS,
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | _TEXTS,
        lambda below: st.lists(below, max_size=3) | st.dictionaries(_TEXTS, below, max_size=3),
        max_leaves=10,
    ),
    max_size=4,
)


@pytest.mark.parametrize("data", [PRETTY, COMPACT, b'{"offsetTable":{ 1 :2,\t"3":7}}'])
def test_integer_keys_without_quotes_are_read(data: bytes) -> None:
    assert decode_document(data) == TABLE


def test_text_that_looks_like_a_key_is_left_alone() -> None:
    document = {"a@{1:2,3:4}": {"x\\": "{1:2", '"': '", 5:6'}, "-1": 1}

    assert decode_document(json.dumps(document).encode()) == document
    assert decode_document(b'{"t":{-1:5,0:6}}') == {"t": {"-1": 5, "0": 6}}


@pytest.mark.slow
@given(_DOCUMENTS)
def test_every_document_is_read_as_it_was_written(document: dict[str, object]) -> None:
    data = encode_document(document)

    assert decode_document(data) == document
    assert data.isascii()


@given(_DOCUMENTS)
def test_what_is_written_in_steps_says_the_same(document: dict[str, object]) -> None:
    assert decode_document(encode_in_steps(document, lambda: None)) == document


def test_rows_are_made_one_after_the_other_with_pauses() -> None:
    made: list[str] = []
    made_before: list[int] = []

    def row(number: int) -> tuple[str, object]:
        made.append(f"t{number}")
        return f"t{number}", {"perm": number, "name": "Ü"}

    count = 3 * ROWS_PER_STEP + 1
    document = {"version": {"counter": 1}, "table": Rows(map(row, range(count))), "applied": 7}
    before = len(made)
    content = encode_in_steps(document, lambda: made_before.append(len(made)))

    assert before == 0
    assert made_before == [ROWS_PER_STEP, 2 * ROWS_PER_STEP, 3 * ROWS_PER_STEP]
    assert content.splitlines()[5] == b'\t\t"t0": {"perm": 0, "name": "\\u00dc"},'
    assert decode_document(content) == {
        "version": {"counter": 1},
        "table": {f"t{number}": {"perm": number, "name": "Ü"} for number in range(count)},
        "applied": 7,
    }


def test_documents_are_written_with_quotes_and_tabs() -> None:
    assert encode_document(TABLE) == (b'{\n\t"offsetTable": {\n\t\t"1": 2,\n\t\t"3": 7\n\t}\n}')


@pytest.mark.parametrize("name", ["gd0", "g6"])
def test_documents_of_the_real_broker_are_read_and_kept_whole(golden: Any, name: str) -> None:
    files = sorted((golden(name) / "config").iterdir())
    documents = {file.name: decode_document(file.read_bytes(), file=file.name) for file in files}

    assert "SELF_TEST_TOPIC" in json.dumps(documents["topics.json"])
    assert set(documents["delayOffset.json"]) == {"offsetTable"}
    for document in documents.values():
        assert decode_document(encode_document(document)) == document


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[1]",
        b"{",
        b'{"a":NaN}',
        b'{"a":1e999}',
        b'{"a":' + b"9" * 5_000 + b"}",
        b'{"a":9223372036854775808}',
        b"{'a':9223372036854775808}",
        b'{"a":"\xff"}',
        b'{"a":' + b"[" * 100_000,
        b'{"a":' + b"[" * 100 + b"]" * 100 + b"}",
        # Read once for each quote, this would take hours.
        b'{"' + b'\\"' * 1_000_000,
        b'"' * 1_000_001,
        b"{'" + b"\\'" * 1_000_000,
        b"/*" * 1_000_000,
        b"{a:" * 100_000,
    ],
    ids=lambda data: repr(data[:12]),
)
def test_what_is_no_document_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptLogError) as caught:
        decode_document(data, file="topics.json")

    assert caught.value.details["file"] == "topics.json"


@given(st.binary(max_size=60) | st.text("{}[]\"':,\\-01eL. \n/*a").map(str.encode))
def test_any_bytes_are_a_document_or_corrupt(data: bytes) -> None:
    try:
        document = decode_document(data)
    except CorruptLogError:
        return

    assert decode_document(encode_document(document)) == document


def test_a_comment_may_be_in_any_encoding_and_a_name_may_not() -> None:
    comment = "/* 中文 */".encode("gbk")

    assert decode_document(b"{" + comment + COMPACT[1:]) == TABLE
    with pytest.raises(CorruptLogError, match="no UTF-8"):
        decode_document(b"{'\xff':1}")


@pytest.mark.parametrize(
    ("data", "at"),
    [(b"{a:1,b:}", 7), (b"{a:1,\n b:6x}", 9), (b"{a:1,b:'\\q'}", 7), (b"{a:[1,2}", 7)],
)
def test_the_place_is_told_that_cannot_be_read(data: bytes, at: int) -> None:
    with pytest.raises(CorruptLogError) as caught:
        decode_document(data)

    assert caught.value.details["offset"] == at


@pytest.mark.parametrize("size", range(len(PRETTY)))
def test_a_document_that_was_cut_off_falls_back_to_the_backup(size: int) -> None:
    assert choose_document(PRETTY[:size], COMPACT) == TABLE


def test_the_file_counts_before_its_backup() -> None:
    assert choose_document(b'{"a":1}', COMPACT) == {"a": 1}
    assert choose_document(b'{"a":1}', b"damaged") == {"a": 1}
    assert choose_document(None, COMPACT) == TABLE


@pytest.mark.parametrize("primary", [None, b""])
@pytest.mark.parametrize("backup", [None, b""])
def test_neither_file_nor_backup_is_no_document(
    primary: bytes | None, backup: bytes | None
) -> None:
    assert choose_document(primary, backup) is None


@pytest.mark.parametrize(
    ("primary", "backup", "file"),
    [
        (b"damaged", None, "topics.json"),
        (b"damaged", b"", "topics.json"),
        (b"damaged", b"damaged", "topics.json"),
        (None, b"damaged", "topics.json.bak"),
    ],
)
def test_damage_without_a_readable_backup_is_an_error(
    primary: bytes | None, backup: bytes | None, file: str
) -> None:
    with pytest.raises(CorruptLogError) as caught:
        choose_document(primary, backup, file="topics.json")

    assert caught.value.details["file"] == file


@pytest.mark.parametrize("quotes", ['"', "'"])
def test_half_a_character_is_a_question_mark_as_java_writes_it(quotes: str) -> None:
    text = r'{"a\ud800": ["x\uDC00y", "\ud83d\ude00", "\\ud800", {"\udfff": 1}]}'
    found = decode_document(text.replace('"', quotes).encode())

    assert found == {"a?": ["x?y", "\U0001f600", "\\ud800", {"?": 1}]}
