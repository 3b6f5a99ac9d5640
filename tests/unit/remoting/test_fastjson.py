"""fastjson's own JSON, which has keys that JSON has not."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.model.errors import ProtocolError
from ledgermq.remoting.fastjson import (
    JSON_SIZE_MAX,
    LOOSE_SIZE_MAX,
    decode_body,
    encode_body,
    encode_queue_table,
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ('{"a":1}', {"a": 1}),
        ('{0:"127.0.0.1:10911",1:"h:1"}', {"0": "127.0.0.1:10911", "1": "h:1"}),
        ('{"t@g":{0:5,-1:6}}', {"t@g": {"0": 5, "-1": 6}}),
        (
            '{"offsetTable":{{"brokerName":"b1","queueId":0,"topic":"t"}:7}}',
            {"offsetTable": {'{"brokerName":"b1","queueId":0,"topic":"t"}': 7}},
        ),
        (
            '{"offsetTable":{"{\\"queueId\\":0}":7}}',
            {"offsetTable": {'{"queueId":0}': 7}},
        ),
        ('{"a" : [ {1 : null} , true ] }', {"a": [{"1": None}, True]}),
        ('{"a":{"$ref":"$.b"},0:1}', {"a": {"$ref": "$.b"}, "0": 1}),
    ],
)
def test_what_fastjson_writes_is_read(text: str, found: dict[str, object]) -> None:
    assert decode_body(text.encode()) == found


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{",
        "{0}",
        "{0:1",
        "{0:1}x",
        "{0:1,}",
        "{,}",
        '{0:"',
        "{0:[1 2]}",
        "\ufeff{}",
        "{0:NaN",
    ],
)
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError):
        decode_body(text.encode())


@pytest.mark.parametrize(
    "text", ['{"a":' * 5_000, "{0:" * 5_000, "{" * 100_000, "{0:" + "[" * 9_000]
)
def test_depth_ends_in_a_refusal(text: str) -> None:
    with pytest.raises(ProtocolError):
        decode_body(text.encode())


def test_size_has_a_limit() -> None:
    with pytest.raises(ProtocolError) as refused:
        decode_body(b" " * (JSON_SIZE_MAX + 1))

    assert refused.value.details["limit"] == JSON_SIZE_MAX


@given(st.text(alphabet='{}[]:,"0a\\ -', max_size=30))
def test_no_text_does_more_than_be_refused(text: str) -> None:
    try:
        found = decode_body(text.encode())
    except ProtocolError:
        return
    assert isinstance(found, dict)


def test_tables_of_queues_have_raw_keys_in_the_order_that_go_wants() -> None:
    table = encode_queue_table([("b1", "t", 0, 7), ("b1", "t", 1, {"maxOffset": 9})])

    assert table == (
        b'{{"brokerName":"b1","queueId":0,"topic":"t"}:7,'
        b'{"brokerName":"b1","queueId":1,"topic":"t"}:{"maxOffset":9}}'
    )
    found = decode_body(table)
    assert [json.loads(key)["queueId"] for key in found] == [0, 1]


def test_what_is_written_has_no_blanks() -> None:
    assert encode_body({"a": {0: "x:1"}, "b": [1, 2]}) == b'{"a":{"0":"x:1"},"b":[1,2]}'


def test_what_is_read_character_by_character_is_bounded() -> None:
    """A microsecond each: 4 MiB of it held a broker up for four seconds."""
    many = b"{" + b"1:1," * (LOOSE_SIZE_MAX // 4) + b"2:2}"

    assert decode_body(b"{" + b"1:1," * 1_000 + b"2:2}") == {"1": 1, "2": 2}
    with pytest.raises(ProtocolError, match="not JSON"):
        decode_body(many)
    assert len(decode_body(json.dumps({"a": "x" * LOOSE_SIZE_MAX}).encode())["a"]) > 0  # type: ignore[arg-type]
