"""``Producer`` against a peer: frames, window, refusals, lost connections, limits of time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from ledgermq.client.blocking.producer import Producer
from ledgermq.client.core.results import SendResult
from ledgermq.client.sending.message_options import half_outgoing
from ledgermq.client.sending.outgoing import OutgoingMessage
from ledgermq.client.sending.send_future import SendFuture
from ledgermq.client.sending.send_pipeline import ProducerOptions
from ledgermq.formats.records.message import decode_message
from ledgermq.formats.records.message_id import decode_offset_id
from ledgermq.model.config.settings import AckMode
from ledgermq.model.errors import (
    BusyError,
    ConfigError,
    LedgerError,
    MessageIllegalError,
    NotLeaderError,
    OutcomeUnknownError,
    QuotaError,
    StorageError,
    TimedOutError,
    TopicUnknownError,
)
from tests.suite.patience import PATIENCE_S
from tests.unit.client.peer import STORE_HOST, Peer


def wait_until(condition: Callable[[], Any]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.001)


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_a_result_tells_where_the_message_is(peer: Peer) -> None:
    with Producer(peer.address) as producer:
        producer.send("T", b"a", queue_id=1).result()
        result = producer.send("T", b"b", queue_id=1).result()

    stored = peer.queues["T", 1][1]
    host, port = STORE_HOST.split(":")
    assert (result.topic, result.queue_id, result.queue_offset) == ("T", 1, 1)
    assert result.physical_offset == stored.physical_offset
    assert result.ack is AckMode.MAJORITY_MEMORY
    assert decode_offset_id(result.offset_message_id) == ((host, int(port)), stored.physical_offset)
    assert result.unique_id == peer.seen[1].unique_ids[0]


def test_a_batch_is_one_frame_and_its_results_are_in_order(peer: Peer) -> None:
    messages = [OutgoingMessage(b"x" * size, tag=f"t{size}", keys=["k"]) for size in (5, 0, 900)]
    with Producer(peer.address) as producer:
        batch = producer.send_batch("T", messages).result()

    rows = peer.queues["T", batch[0].queue_id]
    assert len(peer.seen) == 1
    assert [one.queue_offset for one in batch] == [0, 1, 2]
    assert [one.physical_offset for one in batch] == [row.physical_offset for row in rows]
    assert [one.unique_id for one in batch] == peer.seen[0].unique_ids
    assert [row.tag for row in rows] == ["t5", "t0", "t900"]


def test_queues_take_turns_a_frame_each(peer: Peer) -> None:
    with Producer(peer.address) as producer:
        queues = [producer.send_batch("T", [b"a", b"b"]).result()[1].queue_id for _ in range(5)]

    assert queues == [0, 1, 2, 3, 0]


def test_messages_of_one_key_go_to_one_queue(peer: Peer) -> None:
    with Producer(peer.address) as producer:
        queues = {producer.send("T", b"x", queue_key="order-7").result().queue_id for _ in range(4)}

    assert len(queues) == 1


def test_messages_of_one_group_go_to_one_queue_and_say_which(peer: Peer) -> None:
    with Producer(peer.address) as producer:
        sent = [
            producer.send("T", b"x", message_group="ann", properties={"n": "1"}).result(),
            producer.send("T", b"x", queue_key="ann").result(),
            producer.send("T", b"x", message_group="ann", queue_id=3).result(),
        ]

    assert sent[0].queue_id == sent[1].queue_id
    assert sent[2].queue_id == 3
    told = [
        decode_message(memoryview(row.record)).parsed_properties()
        for rows in peer.queues.values()
        for row in rows
    ]
    assert sorted(one.get("__SHARDINGKEY", "") for one in told) == ["", "ann", "ann"]
    assert [one["n"] for one in told if "n" in one] == ["1"]


def test_messages_gather_while_a_frame_is_under_way(peer: Peer) -> None:
    with Producer(peer.address) as producer:
        producer.send("T", b"first", queue_id=0).result()
        peer.silent = True
        producer.send("T", b"under way", queue_id=0)
        gathered = [producer.send("T", body, queue_id=0) for body in numbers(100)]
        wait_until(lambda: len(peer.seen) == 2)
        peer.silent = False
        peer.restart()
        results = [future.result() for future in gathered]

    assert len(peer.seen) == 4
    assert peer.stored() == [b"first", b"under way", *numbers(100)]
    assert [result.queue_offset for result in results] == list(range(2, 102))


@pytest.mark.slow
def test_lingering_messages_share_a_frame(peer: Peer) -> None:
    options = ProducerOptions(linger_ms=200)
    with Producer(peer.address, options=options) as producer:
        futures = [producer.send("T", body, queue_id=2) for body in numbers(50)]
        assert not futures[0].done()
        futures[-1].result()

    assert [len(seen.unique_ids) for seen in peer.seen] == [50]


def test_flush_does_not_wait_for_the_linger(peer: Peer) -> None:
    with Producer(peer.address, options=ProducerOptions(linger_ms=60_000)) as producer:
        future = producer.send("T", b"x")
        producer.flush(PATIENCE_S)

        assert future.done()


def test_a_frame_is_closed_at_its_size(peer: Peer) -> None:
    options = ProducerOptions(linger_ms=60_000, batch_bytes=4_000)
    with Producer(peer.address, options=options) as producer:
        for body in numbers(60):
            producer.send("T", body, queue_id=0)
        producer.flush(PATIENCE_S)

    sizes = [len(seen.unique_ids) for seen in peer.seen]
    assert sum(sizes) == 60
    assert len(sizes) > 2
    assert peer.stored() == numbers(60)


def test_frames_of_several_queues_are_stored_by_queue(peer: Peer) -> None:
    with Producer(peer.address, options=ProducerOptions(linger_ms=60_000)) as producer:
        futures = [producer.send("T", body, queue_id=n % 3) for n, body in enumerate(numbers(9))]
        producer.flush(PATIENCE_S)

    assert len(peer.seen) == 1
    assert [one.result().queue_id for one in futures] == [0, 1, 2] * 3
    assert [one.result().queue_offset for one in futures] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    for number, future in enumerate(futures):
        row = peer.queues["T", number % 3][number // 3]
        assert future.result().physical_offset == row.physical_offset


def test_a_full_window_refuses_who_will_not_wait(peer: Peer) -> None:
    options = ProducerOptions(window_bytes=10_000, timeout_s=PATIENCE_S)
    with Producer(peer.address, options=options) as producer:
        producer.send("T", b"x", queue_id=0).result()
        peer.silent = True
        waiting = [producer.send("T", b"x" * 4_000, queue_id=0) for _ in range(2)]
        with pytest.raises(BusyError) as caught:
            producer.send("T", b"x" * 4_000, queue_id=0, block=False)
        peer.silent = False
        peer.restart()
        last = producer.send("T", b"last", queue_id=0)

        assert last.result().queue_offset == 3
        assert all(future.done() for future in waiting)
    assert caught.value.details["limit"] == 10_000
    assert caught.value.details["setting"] == "window_bytes"


def test_a_sender_behind_a_full_window_goes_on_when_there_is_room(peer: Peer) -> None:
    options = ProducerOptions(window_bytes=10_000)
    with Producer(peer.address, options=options) as producer:
        for body in numbers(200):
            producer.send("T", body.ljust(500), queue_id=0)
        producer.flush(PATIENCE_S)

    assert [body.rstrip() for body in peer.stored()] == numbers(200)


def test_refused_frames_are_sent_again_in_their_order(peer: Peer) -> None:
    with Producer(peer.address) as producer:
        producer.send_batch("T", [b"begin"], queue_id=0).result()
        peer.refusals = [BusyError("window full") for _ in range(6)]
        futures = [producer.send_batch("T", [body], queue_id=0) for body in numbers(4)]
        offsets = [future.result()[0].queue_offset for future in futures]

    assert peer.stored() == [b"begin", *numbers(4)]
    assert offsets == [1, 2, 3, 4]
    assert not any(seen.is_retry for seen in peer.seen)


def test_a_refusal_for_good_fails_its_frame_alone(peer: Peer) -> None:
    with Producer(peer.address) as producer:
        producer.send("T", b"begin").result()
        peer.refusals = [StorageError("disk full", errno=28)]
        refused = producer.send_batch("T", [b"refused"])
        stored = producer.send_batch("T", [b"stored"])

        assert stored.result()[0].topic == "T"
        with pytest.raises(StorageError, match="disk full"):
            refused.result()
    assert peer.stored() == [b"begin", b"stored"]


def test_who_does_not_wait_for_a_quota_is_told_at_once(peer: Peer) -> None:
    options = ProducerOptions(waits_for_quota=False, timeout_s=PATIENCE_S)
    with Producer(peer.address, options=options) as producer:
        producer.send("T", b"begin").result()
        peer.refusals = [QuotaError("used up", retry_after_ms=50_000)]
        refused = producer.send_batch("T", [b"refused"])
        stored = producer.send_batch("T", [b"stored"])

        assert stored.result()[0].topic == "T"
        with pytest.raises(QuotaError, match="used up"):
            refused.result()
    assert peer.stored() == [b"begin", b"stored"]


def test_an_unknown_outcome_is_sent_again_as_a_retry(peer: Peer) -> None:
    with Producer(peer.address) as producer:
        producer.send("T", b"begin").result()
        peer.refusals = [OutcomeUnknownError("node stops")]
        producer.send("T", b"again").result()

    assert [seen.is_retry for seen in peer.seen] == [False, False, True]
    assert peer.stored() == [b"begin", b"again"]


def test_after_a_lost_connection_all_unanswered_go_again_once_and_in_order(peer: Peer) -> None:
    with Producer(peer.address) as producer:
        producer.send_batch("T", [b"begin"], queue_id=0).result()
        peer.silent = True
        futures = [producer.send_batch("T", [body], queue_id=0) for body in numbers(5)]
        wait_until(lambda: len(peer.seen) == 6)
        peer.silent = False
        peer.restart()
        offsets = [future.result()[0].queue_offset for future in futures]

    first, second = peer.seen[1:6], peer.seen[6:]
    assert peer.stored() == [b"begin", *numbers(5)]
    assert offsets == [1, 2, 3, 4, 5]
    assert [seen.unique_ids for seen in second] == [seen.unique_ids for seen in first]
    assert [seen.is_retry for seen in peer.seen] == [False] * 6 + [True] * 5
    assert {seen.connection for seen in first}.isdisjoint(seen.connection for seen in second)


def test_a_node_that_forgot_the_session_is_greeted_again(peer: Peer) -> None:
    with Producer(peer.address) as producer:
        producer.send("T", b"begin").result()
        peer.forget_sessions()
        producer.send("T", b"again").result()

    assert peer.stored() == [b"begin", b"again"]


def test_a_node_that_comes_late_gets_what_waited(peer: Peer) -> None:
    with Producer(peer.address) as producer:
        producer.send("T", b"begin").result()
        peer.stop_listening()
        future = producer.send("T", b"late")
        assert not future.done()
        peer.restart()

        assert future.result(PATIENCE_S).topic == "T"
    assert peer.stored() == [b"begin", b"late"]


@pytest.mark.slow
def test_an_answer_that_does_not_come_is_never_a_success(peer: Peer) -> None:
    with Producer(peer.address, options=ProducerOptions(timeout_s=0.3)) as producer:
        producer.send("T", b"begin").result()
        peer.silent = True
        future = producer.send("T", b"x")

        with pytest.raises(TimedOutError):
            future.result(0.01)
        assert not future.done()
        with pytest.raises(TimedOutError, match=r"timeout_s=0\.3"):
            future.result()


@pytest.mark.slow
def test_a_message_that_never_left_is_not_of_unknown_outcome(peer: Peer) -> None:
    with Producer(peer.address, options=ProducerOptions(timeout_s=0.3)) as producer:
        producer.send("T", b"begin").result()
        peer.stop_listening()
        future = producer.send("T", b"x")

        with pytest.raises(LedgerError) as caught:
            future.result()
        assert isinstance(caught.value, NotLeaderError | OutcomeUnknownError)


def test_after_all_retries_the_last_refusal_is_told(peer: Peer) -> None:
    with Producer(peer.address, options=ProducerOptions(retries=2)) as producer:
        producer.send("T", b"begin").result()
        peer.refusals = [BusyError("no room", setting="limits.total_window_bytes")] * 3

        with pytest.raises(BusyError, match=r"limits\.total_window_bytes"):
            producer.send("T", b"x").result()
    assert peer.stored() == [b"begin"]


def test_after_retries_of_what_may_be_stored_the_outcome_is_unknown(peer: Peer) -> None:
    with Producer(peer.address, options=ProducerOptions(retries=1)) as producer:
        producer.send("T", b"begin").result()
        peer.refusals = [OutcomeUnknownError("stopping"), BusyError("no room")]

        with pytest.raises(OutcomeUnknownError, match="no room"):
            producer.send("T", b"x").result()


def test_a_callback_comes_without_anybody_waiting(peer: Peer) -> None:
    called = threading.Event()
    results: list[SendResult] = []

    def note(future: SendFuture[SendResult]) -> None:
        results.append(future.result())
        called.set()

    with Producer(peer.address) as producer:
        producer.send("T", b"x", callback=note)

        assert called.wait(PATIENCE_S)
    assert results[0].queue_offset == 0


def test_a_callback_that_fails_stops_no_other(peer: Peer) -> None:
    called = threading.Event()

    def fail(future: SendFuture[SendResult]) -> None:
        raise ValueError(future.unique_id)

    with Producer(peer.address) as producer:
        producer.send("T", b"x", callback=fail).result()
        producer.send("T", b"x", callback=lambda future: called.set()).result()

        assert called.wait(PATIENCE_S)


@pytest.mark.slow
def test_many_threads_share_a_producer(peer: Peer) -> None:
    failures: list[BaseException] = []
    offsets: list[list[int]] = [[] for _ in range(4)]

    def send(queue_id: int) -> None:
        try:
            for body in numbers(100):
                result = producer.send("T", body, queue_id=queue_id).result(PATIENCE_S)
                offsets[queue_id].append(result.queue_offset)
        except BaseException as error:
            failures.append(error)

    with Producer(peer.address) as producer:
        threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert failures == []
    assert offsets == [list(range(100))] * 4


def test_several_threads_may_wait_for_one_message(peer: Peer) -> None:
    found: list[int] = []
    with Producer(peer.address) as producer:
        producer.send("T", b"begin", queue_id=0).result()
        peer.silent = True
        future = producer.send("T", b"x", queue_id=0)
        threads = [
            threading.Thread(target=lambda: found.append(future.result().queue_offset))
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        peer.silent = False
        peer.restart()
        for thread in threads:
            thread.join(PATIENCE_S)

    assert found == [1, 1, 1]


@pytest.mark.parametrize(
    ("arguments", "detail"),
    [
        ({"body": b"x" * 4_194_305}, "store.max_message_size"),
        ({"topic": "no spaces"}, "no spaces"),
        ({"topic": "T" * 128}, 127),
        ({"tag": "a\x01b"}, "TAGS"),
        ({"tag": "a\x02b"}, "TAGS"),
        ({"keys": ["a b"]}, "a b"),
        ({"properties": {"a\x01": "b"}}, "a\x01"),
        ({"properties": {"a": ""}}, "a"),
        ({"properties": {"UNIQ_KEY": "x"}}, "UNIQ_KEY"),
        ({"properties": {"a": "x" * 32_768}}, 32_767),
        ({"flag": 2**31}, 2**31),
    ],
)
def test_an_illegal_message_is_refused_before_it_is_sent(
    peer: Peer, arguments: dict[str, Any], detail: object
) -> None:
    with Producer(peer.address) as producer, pytest.raises(MessageIllegalError) as caught:
        producer.send(**({"topic": "T", "body": b"x"} | arguments))

    assert detail in caught.value.details.values()
    assert peer.seen == []


@pytest.mark.parametrize("messages_before", [0, 1])
def test_an_illegal_message_leaves_no_empty_frame(peer: Peer, messages_before: int) -> None:
    options = ProducerOptions(linger_ms=60_000)
    with Producer(peer.address, options=options) as producer:
        sent = [producer.send("T", body) for body in numbers(messages_before)]
        with pytest.raises(MessageIllegalError, match="too large"):
            producer.send("T", bytes(5 * 1024 * 1024))
        producer.flush()
        sent.append(producer.send("T", b"legal"))
        producer.flush()
        assert [one.result().queue_offset for one in sent] == [0] * len(sent)

    assert peer.stored() == [*numbers(messages_before), b"legal"]
    assert peer.refused == []


def test_a_batch_that_no_frame_can_hold_is_refused_with_the_limit(peer: Peer) -> None:
    with Producer(peer.address, options=ProducerOptions(compress_above=None)) as producer:
        with pytest.raises(MessageIllegalError) as by_size:
            producer.send_batch("T", [b"x" * 1_000_000] * 9)
        with pytest.raises(MessageIllegalError) as by_count:
            producer.send_batch("T", [])

    assert by_size.value.details["limit"] == 8_388_608
    assert by_count.value.details["limit"] == 65_536


def test_unknown_topics_and_queues_are_refused(peer: Peer) -> None:
    with Producer(peer.address) as producer:
        with pytest.raises(TopicUnknownError):
            producer.send("forbidden", b"x")
        with pytest.raises(TopicUnknownError) as caught:
            producer.send("T", b"x", queue_id=4)

    assert caught.value.details["limit"] == 3


def test_an_application_may_change_its_buffer_after_sending(peer: Peer) -> None:
    body = bytearray(b"before")
    with Producer(peer.address, options=ProducerOptions(linger_ms=60_000)) as producer:
        producer.send("T", body)
        body[:] = b"after!"
        producer.flush(PATIENCE_S)

    assert peer.stored() == [b"before"]


def test_what_has_no_outcome_when_the_producer_closes_fails(peer: Peer) -> None:
    producer = Producer(peer.address)
    producer.send("T", b"begin").result()
    peer.silent = True
    future = producer.send("T", b"x")
    wait_until(lambda: len(peer.seen) == 2)
    producer.close(0.01)

    with pytest.raises(OutcomeUnknownError):
        future.result()
    with pytest.raises(LedgerError, match="closed"):
        producer.send("T", b"x")


@pytest.mark.parametrize(
    "options",
    [{"linger_ms": -1}, {"max_in_flight": 0}, {"window_bytes": 0}, {"timeout_s": 0}],
)
def test_options_behind_their_limits_are_refused_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        ProducerOptions(**options)


def test_messages_that_nobody_waits_for_are_taken_after_a_wait(peer: Peer) -> None:
    called = threading.Semaphore(0)
    with Producer(peer.address) as producer:
        producer.send("T", b"waited for").result()
        for number in range(3):
            producer.send_batch("T", numbers(number + 1), callback=lambda _: called.release())

        assert all(called.acquire(timeout=PATIENCE_S) for _ in range(3))


def test_who_waits_takes_over_from_the_background_and_gives_back(peer: Peer) -> None:
    called = []
    with Producer(peer.address) as producer:
        for _ in range(200):
            left = [producer.send_batch("T", [b"x"], callback=called.append) for _ in range(4)]
            left[0].result(PATIENCE_S)
        wait_until(lambda: len(called) == 800)

    assert len(peer.seen) == 800


def test_an_option_that_no_message_has_is_refused_and_nothing_is_sent(peer: Peer) -> None:
    with Producer(peer.address) as producer:
        with pytest.raises(TypeError, match="unexpected keyword argument 'tga'"):
            producer.send("T", b"a", tga="b")  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="'unique_id'"):
            producer.send_batch("T", [b"a", b"b"], unique_id="u")  # type: ignore[call-arg]

    assert peer.seen == []


def test_a_message_of_a_transaction_has_no_time_of_its_own() -> None:
    with pytest.raises(TypeError, match="'delay'"):
        half_outgoing("T", b"a", delay=5)  # type: ignore[call-arg]
