"""Commands and their frames: Java's own bytes, and whatever else may come over a connection."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.model.errors import ProtocolError
from ledgermq.remoting.codes import Language, RequestCode, ResponseCode
from ledgermq.remoting.command import (
    HEADER_SIZE_MAX,
    ONEWAY,
    Command,
    HeaderKind,
    decode_command,
    encode_command,
)

JAVA_BINARY = bytes.fromhex(
    "00000024 0100001e 0136 00 0191 00000007 00000000 00000000 00000009 0001 61 00000002 7067 6869"
)
"""Written by RocketMQ 4.9.4: code 310, number 7, the field a=pg, the body "hi"."""

INT32 = st.integers(-(2**31), 2**31 - 1)
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)


def frame_of(command: Command) -> memoryview:
    return memoryview(b"".join(encode_command(command)))[4:]


def json_frame(header: object, body: bytes = b"") -> memoryview:
    content = header if isinstance(header, bytes) else json.dumps(header).encode()
    return memoryview(len(content).to_bytes(4, "big") + content + body)


COMMANDS = st.builds(
    Command,
    code=st.integers(-(2**15), 2**15 - 1),
    opaque=INT32,
    fields=st.dictionaries(NAMES, NAMES, max_size=4),
    body=st.binary(max_size=32),
    flag=st.integers(0, 3),
    remark=st.none() | NAMES,
    language=st.sampled_from(Language),
    version=st.integers(0, 2**15 - 1),
    kind=st.sampled_from(HeaderKind),
)


@given(COMMANDS)
def test_a_command_comes_back(sent: Command) -> None:
    parts = encode_command(sent)
    found = decode_command(memoryview(b"".join(parts))[4:])

    assert int.from_bytes(parts[0][:4], "big") == sum(map(len, parts)) - 4
    assert bytes(found.body) == sent.body
    found.body = sent.body
    assert found == sent


def test_a_binary_header_is_javas_to_the_byte() -> None:
    found = decode_command(memoryview(JAVA_BINARY)[4:])

    assert (found.code, found.opaque, found.version) == (RequestCode.SEND_MESSAGE_V2, 7, 401)
    assert (found.fields, bytes(found.body), found.kind) == ({"a": "pg"}, b"hi", HeaderKind.BINARY)
    assert b"".join(encode_command(found)) == JAVA_BINARY


def test_numbers_and_truth_values_of_fields_become_the_texts_that_java_makes_of_them() -> None:
    fields = {"queueId": 3, "offset": -1, "batch": True, "unitMode": False, "none": None, "s": "x"}

    found = decode_command(json_frame({"code": 10, "extFields": fields}))

    assert found.fields == {
        "queueId": "3",
        "offset": "-1",
        "batch": "true",
        "unitMode": "false",
        "s": "x",
    }


def test_what_is_sent_has_texts_alone_and_no_blanks() -> None:
    command = Command(0, 7, {"offset": "0"}, flag=1)

    (head,) = encode_command(command)

    assert bytes(head[8:]) == (
        b'{"code":0,"flag":1,"language":"JAVA","opaque":7,"serializeTypeCurrentRPC":"JSON",'
        b'"version":401,"extFields":{"offset":"0"}}'
    )


@pytest.mark.parametrize(
    ("language", "number"), [("GO", 9), (12, 12), ("KLINGON", -1), (None, -1), (17, 17), (True, -1)]
)
def test_a_language_that_nobody_knows_is_no_reason_to_refuse(language: object, number: int) -> None:
    found = decode_command(json_frame({"code": 1, "language": language}))

    assert found.language == number
    assert decode_command(frame_of(found)).language in (number, Language.OTHER)


@pytest.mark.parametrize(("kind", "flag"), [(HeaderKind.JSON, 0), (HeaderKind.BINARY, ONEWAY)])
def test_a_reply_has_number_and_header_of_its_request(kind: HeaderKind, flag: int) -> None:
    request = Command(RequestCode.GET_MAX_OFFSET, 42, {"topic": "t"}, flag=flag, kind=kind)

    reply = request.reply(ResponseCode.TOPIC_NOT_EXIST, remark="no such topic")

    assert (reply.opaque, reply.kind, reply.is_reply, reply.is_oneway) == (42, kind, True, False)
    assert request.is_oneway == (flag == ONEWAY)
    assert decode_command(frame_of(reply)).remark == "no such topic"


def test_a_code_of_rocketmq_5_cannot_be_written_in_a_binary_header() -> None:
    with pytest.raises(ProtocolError, match="16 bits") as refused:
        encode_command(Command(200_050, kind=HeaderKind.BINARY))

    assert refused.value.details["code"] == 200_050


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (b"", "without a header"),
        (b"\0\0\0", "without a header"),
        (b"\0\0\0\x05abcd", "larger than its frame"),
        (b"\2\0\0\0", "unknown kind"),
        (b"\0\0\0\x02hi", "not JSON"),
        (b"\0\0\0\x02[]", "not a JSON object"),
        (b"\1\0\0\x04abcd", "cut"),
        (bytes(json_frame({"code": "10"})), "not a 32-bit number"),
        (bytes(json_frame({"code": 2**31})), "not a 32-bit number"),
        (bytes(json_frame({"opaque": True})), "not a 32-bit number"),
        (bytes(json_frame({"extFields": [1]})), "extFields is not"),
        (bytes(json_frame(b"[" * 100_000)), "not JSON"),
    ],
)
def test_what_is_no_command_is_refused_with_the_reason(frame: bytes, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        decode_command(memoryview(frame))


def test_a_header_has_a_limit() -> None:
    header = b'{"remark":"' + b"x" * HEADER_SIZE_MAX + b'"}'

    with pytest.raises(ProtocolError) as refused:
        decode_command(json_frame(header))

    assert refused.value.details["limit"] == HEADER_SIZE_MAX


@given(st.binary(max_size=64), st.integers(0, len(JAVA_BINARY) - 5), st.integers(0, 255))
def test_no_bytes_do_more_than_be_refused(noise: bytes, at: int, byte: int) -> None:
    changed = bytearray(JAVA_BINARY[4:])
    changed[at] = byte
    for frame in (noise, bytes(changed), bytes(changed[: at + 1]), b"\1\0\0\x1e" + noise):
        try:
            found = decode_command(memoryview(frame))
        except ProtocolError:
            continue
        assert isinstance(found.code, int)
        assert len(found.body) <= len(frame)


def test_a_name_that_a_binary_header_cannot_hold_is_refused_with_its_size() -> None:
    command = Command(1, fields={"n" * 2**15: "v"}, kind=HeaderKind.BINARY)

    with pytest.raises(ProtocolError, match="size=32768, limit=32767"):
        encode_command(command)
