"""Half of a character, which JSON may name, is a question mark wherever it comes from."""

from __future__ import annotations

from ledgermq.remoting.command import decode_command
from ledgermq.remoting.fastjson import decode_body
from ledgermq.remoting.whole_text import may_be_cut, whole


def test_a_half_becomes_a_question_mark_and_a_pair_stays_a_character() -> None:
    assert whole({"a\ud800": ["\udfff", "\U0001f600"]}) == {"a?": ["?", "\U0001f600"]}


def test_headers_and_bodies_have_no_halves() -> None:
    fields = b'{"topic":"t\\ud83d","k\\udfff":"\\ud83d\\ude00"}'
    header = b'{"code":1,"remark":"\\uD800","extFields":' + fields + b"}"
    frame = len(header).to_bytes(4, "big") + header
    command = decode_command(memoryview(frame))
    fast = decode_body(b'{{"topic":"\\ud800"}:"\\udfff",1:"x"}')

    assert command.remark == "?"
    assert command.fields == {"topic": "t?", "k?": "\U0001f600"}
    assert decode_body(b'{"a":"\\uDBFF"}') == {"a": "?"}
    assert list(fast.values()) == ["?", "x"]
    assert "".join(fast).isascii()


def test_texts_without_such_an_escape_are_left_alone() -> None:
    assert not may_be_cut('{"a":"\\u00e4 \\\\n"}')
    assert may_be_cut('"\\uD83D\\uDE00"')
