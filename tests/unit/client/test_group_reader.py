"""``GroupReader`` against a peer: no queue is left without a question."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import zmq

from ledgermq.client.blocking.producer import Producer
from ledgermq.client.core.address import parse_addresses
from ledgermq.client.core.link import Link
from ledgermq.client.core.requests import RequestPipeline
from ledgermq.client.groups.allocation import TopicQueue
from ledgermq.client.groups.group_reader import GroupReader
from ledgermq.client.reading.pull_pipeline import ConsumerOptions
from ledgermq.model.message_filter import EVERYTHING
from tests.suite.patience import PATIENCE_S
from tests.unit.client.peer import Peer


def until(condition: Callable[[], bool], step: Callable[[float], object]) -> None:
    """Take steps until the condition holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        step(time.monotonic())


def test_an_answer_that_another_topic_takes_is_followed_by_the_next_question(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (address,) = parse_addresses(peer.address)
    requests = RequestPipeline(Link(zmq.Context.instance(), address.consume, client="test"))
    reader = GroupReader(
        requests,
        {"T": EVERYTHING, "U": EVERYTHING},
        ConsumerOptions(),
        client="test",
        strategy="average",
        is_ordered=False,
    )
    reader.add({TopicQueue("T", 0): 0, TopicQueue("U", 0): 0}, {})

    def asked(topic: str) -> list[int]:
        return [pull.queue_offset for pull in peer.pulls if pull.topic == topic]

    until(lambda: asked("T") == asked("U") == [0], reader.advance)
    later = reader._pulls["U"]
    advance = later.advance

    def advance_late(now: float) -> None:
        # The answer for the first topic comes while the second one has its turn.
        until(lambda: reader.has_news, requests.advance)
        advance(now)

    monkeypatch.setattr(later, "advance", advance_late)
    with Producer(peer.address) as producer:
        before = reader._pulls["T"].advance
        monkeypatch.setattr(
            reader._pulls["T"],
            "advance",
            lambda now: (
                before(now),
                reader.has_news or producer.send("T", b"stored", queue_id=0).result(PATIENCE_S),
            ),
        )
        reader.advance(time.monotonic())
        until(lambda: 1 in asked("T"), lambda _now: time.sleep(0))
    requests.link.close()

    assert reader.has_news


def test_what_is_committed_beyond_the_end_of_a_queue_keeps_nothing_from_being_committed(
    peer: Peer,
) -> None:
    (address,) = parse_addresses(peer.address)
    requests = RequestPipeline(Link(zmq.Context.instance(), address.consume, client="test"))
    queue = TopicQueue("T", 0)
    reader = GroupReader(
        requests,
        {"T": EVERYTHING},
        ConsumerOptions(),
        client="test",
        strategy="average",
        is_ordered=False,
    )
    reader.add({queue: 5_000}, {queue: 5_000})
    until(lambda: bool(reader.resets), reader.advance)
    with Producer(peer.address) as producer:
        producer.send("T", b"stored", queue_id=0).result(PATIENCE_S)
    while reader.positions()[queue] != 1:
        until(lambda: reader.has_news, reader.advance)
        batch = reader.take()
        if batch is not None:
            reader.note_given(batch)
    due = reader.uncommitted()
    reader.note_committed(due)
    requests.link.close()

    assert due == {queue: 1}
    assert reader.uncommitted() == {}
