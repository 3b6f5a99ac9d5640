"""``Consumer`` against a peer: where it begins, order, tags, positions, lost connections."""

from __future__ import annotations

import threading
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from ledgermq.client.blocking.consumer import Consumer
from ledgermq.client.blocking.producer import Producer
from ledgermq.client.core.read_traces import Reader
from ledgermq.client.core.received import MessageBatch
from ledgermq.client.reading.pull_pipeline import ConsumerOptions, OffsetReset
from ledgermq.model.errors import ConfigError, NotLeaderError, TopicUnknownError
from tests.suite.intruders import IN_USE, refused
from tests.suite.patience import PATIENCE_S
from tests.unit.client.known_cluster import MakeCluster
from tests.unit.client.peer import Peer


def fill(peer: Peer, count: int = 10, *, queues: int = 2, tags: tuple[str, ...] = ("A",)) -> None:
    """``count`` messages in each queue; the body names queue and number."""
    with Producer(peer.address, one_group=True) as producer:
        for queue in range(queues):
            for number in range(count):
                tag = tags[number % len(tags)]
                producer.send("T", b"%d/%d" % (queue, number), queue_id=queue, tag=tag)


def bodies(consumer: Consumer, count: int) -> list[bytes]:
    """Bodies of the next ``count`` messages."""
    found: list[bytes] = []
    until = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < until, found
        found += [bytes(message.body) for message in consumer.poll(0.1)]
    return found


def test_every_queue_is_read_in_its_order(peer: Peer) -> None:
    fill(peer)
    options = ConsumerOptions(messages_max=3)
    with Consumer(peer.address, topic="T", options=options) as consumer:
        found = bodies(consumer, 20)

    for queue in (b"0", b"1"):
        mine = [body for body in found if body.startswith(queue)]
        assert mine == [b"%b/%d" % (queue, number) for number in range(10)]


class Intruded:
    """Lets another thread use the consumer when messages are given to this one."""

    def __init__(self) -> None:
        self.consumer: Consumer | None = None
        self.told: list[str] = []

    def received(self, batch: MessageBatch, reader: Reader, since_ns: int) -> None:
        if (one := self.consumer) is not None and not self.told:
            self.told += refused(lambda: one.poll(0), one.close)

    def processing(self, *_: object) -> AbstractContextManager[None]:
        return nullcontext()

    def settling(self, *_: object) -> AbstractContextManager[None]:
        return nullcontext()


def test_a_thread_is_refused_what_another_one_uses(peer: Peer, make_cluster: MakeCluster) -> None:
    fill(peer)
    peers = make_cluster("ab")
    fill(peers["a"], 1)
    for address in (peer.address, peers["a"].address):
        tracing = Intruded()
        with Consumer(address, topic="T", group="g", start="first", tracing=tracing) as consumer:
            tracing.consumer = consumer
            bodies(consumer, 1)
            assert refused(lambda: consumer.poll(0)) == [""]

        assert tracing.told[:2] == [IN_USE] * 2


@pytest.mark.parametrize(
    ("start", "first"),
    [("first", 0), ("last", 4), ("stored", 2), (1_700_000_000_000, 1), ({0: 3}, 3)],
)
def test_a_consumer_begins_where_it_is_told(peer: Peer, start: Any, first: int) -> None:
    fill(peer, 4, queues=1)
    peer.commits["g", "T"] = {"0": 2}
    with Consumer(peer.address, topic="T", group="g", queues=[0], start=start) as consumer:
        offsets = consumer.offsets()

    assert offsets == {0: first}


def test_without_a_stored_offset_a_queue_begins_at_its_first_message(peer: Peer) -> None:
    fill(peer, 2)
    peer.commits["g", "T"] = {"1": 1}
    with Consumer(peer.address, topic="T", group="g") as consumer:
        found = bodies(consumer, 3)

    assert sorted(found) == [b"0/0", b"0/1", b"1/1"]


def test_a_message_that_comes_later_is_given_at_once(peer: Peer) -> None:
    fill(peer, 1, queues=1)
    with Consumer(peer.address, topic="T") as consumer, Producer(peer.address) as producer:
        assert bodies(consumer, 1) == [b"0/0"]
        late = threading.Thread(target=lambda: producer.send("T", b"late", queue_id=3).result())
        late.start()
        batch = consumer.poll(PATIENCE_S)
        late.join()

    assert [bytes(message.body) for message in batch] == [b"late"]
    assert batch.queue_id == 3


def test_poll_gives_an_empty_batch_when_there_is_nothing(peer: Peer) -> None:
    with Consumer(peer.address, topic="T") as consumer:
        batch = consumer.poll(0.01)

    assert (len(batch), list(batch)) == (0, [])


def test_tags_are_compared_as_text_and_positions_pass_what_is_left_out(peer: Peer) -> None:
    # "Aa" and "BB" have the same Java hash.
    fill(peer, 9, queues=1, tags=("Aa", "BB", "C"))
    with Consumer(peer.address, topic="T", tag="Aa || D", queues=[0]) as consumer:
        found = bodies(consumer, 3)
        consumer.poll(0.01)
        offsets = consumer.offsets()

    assert found == [b"0/0", b"0/3", b"0/6"]
    assert offsets == {0: 9}


def test_commit_notes_what_was_polled(peer: Peer) -> None:
    fill(peer, 5, queues=1)
    options = ConsumerOptions(messages_max=2)
    with Consumer(peer.address, topic="T", group="g", queues=[0], options=options) as consumer:
        consumer.poll()
        consumer.commit()

        assert consumer.committed() == {0: 2}
    with Consumer(peer.address, topic="T", group="g", queues=[0]) as consumer:
        assert bodies(consumer, 3) == [b"0/2", b"0/3", b"0/4"]


def test_commit_within_an_iteration_notes_the_message_at_hand(peer: Peer) -> None:
    fill(peer, 5, queues=1)
    with Consumer(peer.address, topic="T", group="g", queues=[0]) as consumer:
        for message in consumer:
            if message.queue_offset == 2:
                consumer.commit()
                break

    assert peer.commits["g", "T"] == {"0": 3}


def test_a_group_is_needed_to_commit(peer: Peer) -> None:
    with Consumer(peer.address, topic="T") as consumer, pytest.raises(ConfigError, match="group"):
        consumer.commit()


def test_seek_goes_back_and_forth(peer: Peer) -> None:
    fill(peer, 6, queues=1)
    with Consumer(peer.address, topic="T", queues=[0]) as consumer:
        bodies(consumer, 6)
        consumer.seek(0, 4)

        assert bodies(consumer, 2) == [b"0/4", b"0/5"]
        with pytest.raises(TopicUnknownError):
            consumer.seek(1, 0)


def test_seek_within_an_iteration_goes_on_there(peer: Peer) -> None:
    fill(peer, 6, queues=1)
    found: list[int] = []
    with Consumer(peer.address, topic="T", queues=[0]) as consumer:
        for message in consumer:
            found.append(message.queue_offset)
            if len(found) == 2:
                consumer.seek(0, 4)
            if message.queue_offset == 5:
                break

    assert found == [0, 1, 4, 5]


def test_an_offset_behind_the_queue_goes_on_at_its_end_and_is_told(peer: Peer) -> None:
    fill(peer, 3, queues=1)
    with Consumer(peer.address, topic="T", queues=[0], start={0: 50}) as consumer:
        consumer.poll(0.05)

        assert consumer.resets == [OffsetReset(0, 50, 0, 3, 3)]
        assert consumer.offsets() == {0: 3}


def test_pull_reads_apart_from_poll(peer: Peer) -> None:
    fill(peer, 6, queues=1)
    with Consumer(peer.address, topic="T", queues=[0]) as consumer:
        batch = consumer.pull(0, 4, messages_max=1)

        assert [bytes(message.body) for message in batch] == [b"0/4"]
        assert (batch.begin, batch.end, batch.next_offset) == (0, 6, 5)
        assert consumer.offsets() == {0: 0}


def test_after_a_lost_connection_reading_goes_on_without_gap_or_repetition(peer: Peer) -> None:
    fill(peer, 5, queues=1)
    options = ConsumerOptions(messages_max=2, prefetch=1)
    with Consumer(peer.address, topic="T", queues=[0], options=options) as consumer:
        found = bodies(consumer, 2)
        peer.restart()
        found += bodies(consumer, 3)
        peer.forget_sessions()
        with Producer(peer.address) as producer:
            producer.send("T", b"0/5", queue_id=0).result()
        found += bodies(consumer, 1)

    assert found == [b"0/%d" % number for number in range(6)]


def test_queues_are_those_of_the_topic(peer: Peer) -> None:
    with Consumer(peer.address, topic="T") as consumer:
        assert sorted(consumer.offsets()) == [0, 1, 2, 3]
    with (
        Consumer(peer.address, topic="T", queues=[1, 4]) as consumer,
        pytest.raises(TopicUnknownError) as caught,
    ):
        consumer.offsets()
    assert caught.value.details["queue_id"] == 4
    with Consumer(peer.address, topic="other") as consumer, pytest.raises(TopicUnknownError):
        consumer.poll()


@pytest.mark.slow
def test_a_broker_that_is_away_for_long_is_told(peer: Peer) -> None:
    options = ConsumerOptions(hold_ms=50, timeout_s=0.2)
    with Consumer(peer.address, topic="T", options=options) as consumer:
        consumer.offsets()
        peer.stop_listening()

        with pytest.raises(NotLeaderError, match="is it running"):
            consumer.poll(PATIENCE_S)
        peer.restart()
        fill(peer, 1, queues=1)
        assert bodies(consumer, 1) == [b"0/0"]


@pytest.mark.parametrize("start", ["begin", -1, True, {0: -1}, None])
def test_a_start_that_is_none_is_refused(start: Any) -> None:
    with pytest.raises(ConfigError):
        Consumer("ipc:///nowhere", topic="T", start=start)


@pytest.mark.parametrize("options", [{"messages_max": 0}, {"bytes_max": 0}, {"prefetch": 0}])
def test_options_behind_their_limits_are_refused_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        ConsumerOptions(**options)
