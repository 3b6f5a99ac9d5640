"""Headers and bodies of POP, as Java writes and reads them."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.model.errors import ProtocolError
from ledgermq.remoting.pop_messages import (
    PoppedMessage,
    PopReply,
    PopRequest,
    decode_acks,
    decode_pop,
    decode_popped,
    revive_queue,
)

WANTED = {
    "consumerGroup": "g", "topic": "t", "queueId": "-1", "maxMsgNums": "32",
    "invisibleTime": "60000", "pollTime": "15000", "bornTime": "1796064627165", "initMode": "1",
    "expType": "TAG", "exp": "a || b", "order": "false", "bname": "broker-a",
}  # fmt: skip
NAMED = {
    "consumerGroup": "g", "topic": "t", "queueId": "1", "offset": "12",
    "extraInfo": "10 1796064627165 60000 -7 0 broker-a 1 12",
}  # fmt: skip
WORDS = NAMED["extraInfo"].split(" ")
MARKS = st.integers(1, 2**32 - 1)


def test_a_pop_of_javas_client_is_read() -> None:
    assert decode_pop(WANTED) == PopRequest(
        "g", "t", -1, 32, 60_000, 15_000, True, "a || b", "TAG", False
    )


@pytest.mark.parametrize(
    "name", ["consumerGroup", "topic", "queueId", "maxMsgNums", "invisibleTime", "pollTime"]
)
def test_a_pop_without_a_field_is_refused(name: str) -> None:
    with pytest.raises(ProtocolError, match="missing") as caught:
        decode_pop({key: text for key, text in WANTED.items() if key != name})

    assert caught.value.details["field"] == name


def test_a_reply_says_where_each_message_stands() -> None:
    told = PopReply(1_000, 60_000, 2**32 - 7, 5, {1: [12, 10], 3: [0]})

    assert told.fields == {
        "popTime": "1000",
        "invisibleTime": "60000",
        "reviveQid": "-7",
        "restNum": "5",
        "startOffsetInfo": "0 1 10;0 3 0",
        "msgOffsetInfo": "0 1 12,10;0 3 0",
    }
    assert set(told.fields) - set(PopReply(0, 0, offsets=None).fields) == {
        "startOffsetInfo",
        "msgOffsetInfo",
    }


@given(MARKS)
def test_a_mark_goes_through_a_client_unchanged(mark: int) -> None:
    told = revive_queue(mark)
    text = " ".join((*WORDS[:3], str(told), *WORDS[4:]))

    assert -(2**31) <= told < 2**31
    assert decode_popped({**NAMED, "extraInfo": text}) == PoppedMessage("g", "t", 1, 12, mark)
    body = json.dumps({"acks": [{**row(1), "rq": told}]}).encode()
    assert {one.mark for one in decode_acks(body, count_max=9)} == {mark}


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "garbage", " ".join(WORDS[:6]), f"{NAMED['extraInfo']} 1",
        " ".join((*WORDS[:3], "x", *WORDS[4:])), " ".join((*WORDS[:3], str(2**31), *WORDS[4:])),
        " ".join((*WORDS[:4], "1", *WORDS[5:])), " ".join((*WORDS[:6], "2", "12")),
        " ".join((*WORDS[:7], "13")), " ".join((*WORDS[:7], "\u0661\u0662")),
        NAMED["extraInfo"].replace(" ", "  "), NAMED["extraInfo"] + "0" * 600,
    ],
)  # fmt: skip
def test_a_text_that_is_none_of_this_message_names_nothing(text: str) -> None:
    assert decode_popped({**NAMED, "extraInfo": text}) is None


def row(bits: int, **more: object) -> dict[str, object]:
    """One of a batch, as fastjson writes it."""
    data = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
    return {
        "c": "g", "t": "t", "r": "0", "so": 10, "q": 1, "rq": 7, "pt": 1, "it": 1,
        "b": base64.b64encode(data).decode(), **more,
    }  # fmt: skip


@given(st.sets(st.integers(0, 3_000), max_size=50))
def test_the_bits_of_a_batch_are_its_offsets(offsets: set[int]) -> None:
    body = json.dumps({"acks": [row(sum(1 << at for at in offsets))]}).encode()

    found = decode_acks(body, count_max=50)

    assert [one.offset - 10 for one in found] == sorted(offsets)


def test_a_batch_may_have_long_names_and_what_comes_of_retry_topics_has_no_mark() -> None:
    long = {
        "consumerGroup": "g", "topic": "t", "retry": "1", "startOffset": 0, "queueId": 2,
        "reviveQueueId": 7, "bitSet": "AQ==",
    }  # fmt: skip
    found = decode_acks(json.dumps({"acks": [long]}).encode(), count_max=1)

    assert found == [PoppedMessage("g", "t", 2, 0, 0)]


@pytest.mark.parametrize(
    "rows",
    [
        [row(1, b="*")], [row(1, b=7)], [row(1, so="x")], [row(1, c=None)], [{}], ["x"], "x",
        [row(7), row(7)],
    ],
)  # fmt: skip
def test_a_batch_that_is_none_or_too_large_is_refused(rows: object) -> None:
    with pytest.raises(ProtocolError):
        decode_acks(json.dumps({"acks": rows}).encode(), count_max=5)
