"""Messages of several queues in one frame: in which order they leave, and whose result is whose."""

from __future__ import annotations

import pytest

from ledgermq.client.core.results import FrameResult, SendResult
from ledgermq.client.sending.frames import Frame, OpenFrame, lone_frame
from ledgermq.client.sending.outgoing import OutgoingMessage
from ledgermq.client.sending.record_encoder import Form, RecordEncoder
from ledgermq.client.sending.send_future import SendFuture
from ledgermq.formats.records.message_id import UniqueIdMaker
from ledgermq.wire.send_frame import SendRun, Sent, SentSpan

FORM = Form(entry_header_size=48, store_host_size=8, body_size_max=1024)


class Nobody:
    """Results are there before anybody waits."""

    def wait_for(self, future: SendFuture[object], timeout: float | None) -> None:
        raise AssertionError("waited for a result")


def frame_of(topics: list[str]) -> tuple[Frame, list[SendFuture[SendResult]]]:
    """A frame of one message for each name, whose body is its number."""
    encoder = RecordEncoder(FORM, born_host=("127.0.0.1", 1), ids=UniqueIdMaker("127.0.0.1"))
    frame = OpenFrame(FORM, opened_at=0.0)
    futures = []
    for number, topic in enumerate(topics):
        name = topic.encode()
        body = b"<%d>" % number * (number + 1)
        record = encoder.encode_one(name, 0, OutgoingMessage(body), b"")
        futures.append(frame.add(name, 0, record, Nobody(), None))
    return frame.close(), futures


def spans_of(frame: Frame) -> list[SentSpan]:
    """As a node would store it: each queue at its own offset, records one behind the other."""
    spans, first, position = [], 0, 0
    for number, run in enumerate(frame.runs):
        spans.append(SentSpan(first, run.records, position, 100 * number))
        position += sum(frame.sizes[first : first + run.records])
        first += run.records
    return spans


@pytest.mark.parametrize(
    ("topics", "runs"),
    [
        (["a", "a", "a"], [("a", 3)]),
        (["a", "b", "c"], [("a", 1), ("b", 1), ("c", 1)]),
        (["a", "b", "a", "c", "b", "a"], [("a", 3), ("b", 2), ("c", 1)]),
    ],
    ids=["one queue", "each its own", "mixed"],
)
def test_each_message_gets_the_place_of_its_own_record(
    topics: list[str], runs: list[tuple[str, int]]
) -> None:
    frame, futures = frame_of(topics)
    payload = frame.encode(1, is_resumed=False)[1]
    sent = Sent(1, 1, 0, 1, spans_of(frame))

    answer = FrameResult(sent, frame.sizes, frame.runs, None)
    for future in frame.futures:
        future.settle(answer)

    assert frame.runs == [SendRun(count, 0, topic.encode()) for topic, count in runs]
    numbers: dict[str, int] = {}
    for number, (topic, future) in enumerate(zip(topics, futures, strict=True)):
        place = future.result()
        record = payload[place.physical_offset :]
        size = int.from_bytes(record[48:52], "big") + 48
        assert b"<%d>" % number * (number + 1) in record[:size]
        assert place.unique_id.encode() in record[:size]
        assert (place.topic, place.unique_id) == (topic, future.unique_id)
        assert place.queue_offset % 100 == numbers.get(topic, 0)
        numbers[topic] = place.queue_offset % 100 + 1


def test_a_frame_of_one_message_is_what_a_frame_that_waited_for_others_is() -> None:
    encoder = RecordEncoder(FORM, born_host=("127.0.0.1", 1), ids=UniqueIdMaker("127.0.0.1"))
    record = encoder.encode_one(b"orders", 3, OutgoingMessage(b"body"), b"TAGS\x01a\x02")
    opened = OpenFrame(FORM, opened_at=0.0)
    waited = opened.add(b"orders", 3, record, Nobody(), None)
    gathered = opened.close()
    frame, future = lone_frame(FORM, SendRun(1, 3, b"orders"), record, Nobody(), None)
    sent = Sent(7, 1, 1_700_000_000_000, 1, [SentSpan(0, 1, 4_096, 12)])
    for one in (frame, gathered):
        for waiting in one.futures:
            waiting.settle(FrameResult(sent, one.sizes, one.runs, ("127.0.0.1", 10_911)))

    assert gathered.encode(7, is_resumed=True) == frame.encode(7, is_resumed=True)
    assert waited.result() == future.result()
    assert future.result().queue_id == 3
    assert future.result().unique_id == record[2]
