"""What a member of a share group asks, of nodes of this version and of before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from ledgermq.client.core.requests import Request, Steps
from ledgermq.client.groups.share_buffer import ShareBuffer, ShareOptions
from ledgermq.formats.records.message import Message, encode_message
from ledgermq.model.errors import BusyError
from ledgermq.model.names.answer_keys import PAYLOAD
from ledgermq.wire.session import decode_call, encode_result

RECORD = encode_message(Message(topic="t", queue_id=0, body=b"x"))
Answer = Mapping[str, object] | BusyError


def rows(first: int, count: int) -> dict[str, object]:
    """As nodes tell messages that know no runs."""
    told = [
        {"handle": f"1:g:t:0:{at}:1:ab", "queue": 0, "offset": at, "delivery": 1, "until": 9,
         "size": len(RECORD)}
        for at in range(first, first + count)
    ]  # fmt: skip
    return {"topic": "t", "messages": told, PAYLOAD: record(first, count)}


def runs(*spans: tuple[int, int]) -> dict[str, object]:
    told = [
        {"before": "1:g:t:0:", "behind": f":1:{first:x}a", "queue": 0, "offset": first,
         "delivery": 1, "until": 9, "sizes": [len(RECORD)] * count}
        for first, count in spans
    ]  # fmt: skip
    payload = b"".join(record(*span) for span in spans)
    return {"topic": "t", "runs": told, "late": [], PAYLOAD: payload}


def record(first: int, count: int) -> bytes:
    return b"".join(
        encode_message(Message(topic="t", queue_id=0, body=b"x", queue_offset=at))
        for at in range(first, first + count)
    )


def settled(handles: list[str]) -> dict[str, object]:
    return {"handles": [{"handle": one, "outcome": "done", "until": 0} for one in handles]}


def asked(steps: Steps[Any], answers: Iterator[Answer]) -> list[tuple[str, dict[str, Any]]]:
    """What was asked, while it is answered so."""
    found: list[tuple[str, dict[str, Any]]] = []
    try:
        while True:
            request: Request = next(steps)
            verb, arguments = decode_call(request.encode(1)[1])
            found.append((verb, dict(arguments)))
            answer = next(answers)
            if isinstance(answer, BusyError):
                request.error = answer
            else:
                request.parts = list(encode_result(1, answer))
    except StopIteration:
        return found


def test_an_older_node_is_told_by_a_question_of_its_own() -> None:
    buffer = ShareBuffer("g", "t", ShareOptions(max_in_flight=4))
    asked(buffer.receive(0), iter([rows(0, 4)]))
    buffer.say("accept", buffer.give())
    assert not buffer.goes_along
    handles = [f"1:g:t:0:{at}:1:ab" for at in range(4)]
    told = asked(buffer.settle(), iter([settled(handles)]))
    assert [(verb, arguments["handles"]) for verb, arguments in told] == [("share_settle", handles)]
    ((_, arguments),) = asked(buffer.receive(0), iter([rows(4, 1)]))
    assert "accept" not in arguments


def test_what_an_older_leader_has_not_read_is_told_once_more() -> None:
    buffer = ShareBuffer("g", "t", ShareOptions(max_in_flight=4))
    asked(buffer.receive(0), iter([runs((0, 3))]))
    buffer.say("accept", buffer.give())
    assert buffer.goes_along
    ((_, arguments),) = asked(buffer.receive(0), iter([rows(3, 1)]))
    assert arguments["accept"] == ["1:g:t:0:0:1:0a*3"]
    assert not buffer.goes_along
    handles = [f"1:g:t:0:{at}:1:0a" for at in range(3)]
    ((verb, arguments),) = asked(buffer.settle(), iter([settled(handles)]))
    assert (verb, arguments["handles"]) == ("share_settle", handles)


def test_messages_that_follow_one_another_are_accepted_by_one_handle() -> None:
    buffer = ShareBuffer("g", "t", ShareOptions(max_in_flight=20))
    asked(buffer.receive(0), iter([runs((0, 4), (4, 2), (9, 3))]))
    messages = buffer.give()
    assert [one.queue_offset for one in messages] == [0, 1, 2, 3, 4, 5, 9, 10, 11]
    buffer.say("accept", messages[1:])
    buffer.say("accept", messages[:1])
    ((_, arguments),) = asked(buffer.receive(0), iter([runs()]))
    assert arguments["accept"] == [
        "1:g:t:0:1:1:0a*3", "1:g:t:0:4:1:4a*2", "1:g:t:0:9:1:9a*3", "1:g:t:0:0:1:0a"
    ]  # fmt: skip
    ((_, arguments),) = asked(buffer.receive(0), iter([runs()]))
    assert "accept" not in arguments


def test_what_cannot_be_received_is_settled_while_there_is_something_to_give() -> None:
    buffer = ShareBuffer("g", "t", ShareOptions(max_in_flight=4))
    asked(buffer.receive(0), iter([runs((0, 4))]))
    buffer.say("accept", buffer.give(2))
    busy = BusyError("too many")
    told = asked(buffer.receive(0), iter([busy, settled(["1:g:t:0:0:1:0a", "1:g:t:0:1:1:0a"])]))
    assert [verb for verb, _ in told] == ["share_receive", "share_settle"]
    buffer.say("accept", buffer.give())
    with pytest.raises(BusyError):
        asked(buffer.receive(0), iter([busy]))
    # It is told with the next question.
    ((_, arguments),) = asked(buffer.receive(0), iter([runs()]))
    assert arguments["accept"] == ["1:g:t:0:2:1:0a*2"]
