"""Topics with a window of de-duplication: a message of a unique id is stored once."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from ledgermq.cli.main import main
from ledgermq.client import Admin, Consumer, OutgoingMessage, Producer
from ledgermq.client.aio import AsyncProducer
from ledgermq.client.blocking.transactions import TransactionalProducer
from ledgermq.client.core.received import ReceivedMessage
from ledgermq.client.core.results import SendResult
from ledgermq.client.sending.known_transactions import TransactionError
from ledgermq.formats.records.delayed_message import RealQueue, timer_properties
from ledgermq.model.limits import TIMER_TOPIC
from ledgermq.store.queues.derived_files import clear_incomplete, mark_incomplete
from ledgermq.wire.header import Kind, encode_header
from ledgermq.wire.send_frame import Sent
from ledgermq.wire.session import Refusal, decode_welcome, encode_body
from ledgermq.writer.duplicates.unique_ids import RETRY_MS
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import Group, Member, make_group
from tests.process.node_start import run_python
from tests.process.raw_producer import RawProducer
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

TOPIC = "orders"
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "store_once.py"
WINDOW_MS = 600_000
SHORT_MS = 8_000
IDS = 600
BATCH = 20

NODE = {}
"""One node for all tests, with the settings of the kit."""


@pytest.fixture
def topic(node: Node, request: pytest.FixtureRequest) -> str:
    """A topic with a window, of the test alone."""
    name = re.sub("[^a-z0-9_]", "", request.node.name)
    with Admin(node.address) as admin:
        admin.create_topic(name, queues=4, deduplication_window_ms=WINDOW_MS)
    return name


def place(result: SendResult) -> tuple[str, int, int, int]:
    """Where a message stands, and since when."""
    return result.topic, result.queue_id, result.queue_offset, result.store_timestamp


def stored(addresses: str | Sequence[str], topic: str, count: int) -> list[str]:
    """Unique ids of the topic's messages, at least so many."""
    with Consumer(addresses, topic=topic) as consumer:
        found: list[str] = []

        def has_all() -> bool:
            found.extend(message.unique_id for message in consumer.poll(0.5))
            return len(found) >= count

        wait_until(has_all, f"{count} messages")
        # What was stored twice comes, too.
        found += [message.unique_id for message in consumer.poll(0.5)]
    return found


@pytest.mark.long
def test_what_came_while_a_window_was_off_counts_when_it_is_on_again(
    node: Node, topic: str
) -> None:
    """Also where memory is older than the window, and the index is not asked for it."""
    with Admin(node.address) as admin, Producer(node.address) as producer:
        admin.alter_topic(topic, deduplication_window_ms=SHORT_MS)
        first = producer.send(topic, b"first", unique_id="X").result()
        wait_until(
            lambda: time.time_ns() // 1_000_000 > first.store_timestamp + SHORT_MS, "the window"
        )
        admin.alter_topic(topic, deduplication_window_ms=0)
        between = producer.send(topic, b"between", unique_id="Y").result()
        admin.alter_topic(topic, deduplication_window_ms=SHORT_MS)
        again = producer.send(topic, b"again", unique_id="Y").result()

    assert again.is_duplicate
    assert place(again) == place(between)


def test_an_id_counts_in_all_queues_of_its_topic_alone(node: Node, topic: str) -> None:
    with Producer(node.address) as producer:
        first = producer.send(topic, b"first", unique_id="order-17", queue_id=1).result()
        again = producer.send(topic, b"other", unique_id="order-17", queue_id=2).result()
        with Producer(node.address) as another:
            third = another.send(topic, b"third", unique_id="order-17").result()
        drawn = [producer.send(topic, b"x").result() for _ in range(2)]
        elsewhere = [producer.send("other", b"x", unique_id="order-17").result() for _ in range(2)]

    assert (first.is_duplicate, first.unique_id) == (False, "order-17")
    assert again.is_duplicate
    assert third.is_duplicate
    assert place(again) == place(third) == place(first)
    assert again.offset_message_id == first.offset_message_id
    assert not any(one.is_duplicate for one in [*drawn, *elsewhere])
    assert Counter(stored(node.address, topic, 3)) == Counter(
        ["order-17", *(one.unique_id for one in drawn)]
    )


def test_of_a_batch_what_is_new_is_stored_together(node: Node, topic: str) -> None:
    def batch(*ids: str) -> list[OutgoingMessage]:
        return [OutgoingMessage(id_.encode(), unique_id=id_) for id_ in ids]

    with Producer(node.address) as producer:
        before = producer.send_batch(topic, batch("a", "b"), queue_id=0).result()
        mixed = producer.send_batch(topic, batch("c", "a", "d", "d", "b", "e"), queue_id=3).result()
        known = producer.send_batch(topic, batch("e", "d"), queue_id=2).result()

    assert [one.is_duplicate for one in mixed] == [False, True, False, True, True, False]
    assert [one.queue_offset for one in mixed if not one.is_duplicate] == [0, 1, 2]
    assert {one.queue_id for one in mixed if not one.is_duplicate} == {3}
    assert (place(mixed[1]), place(mixed[4])) == (place(before[0]), place(before[1]))
    assert place(mixed[3]) == place(mixed[2])
    assert [place(one) for one in known] == [place(mixed[5]), place(mixed[2])]
    assert sorted(stored(node.address, topic, 5)) == ["a", "b", "c", "d", "e"]


def test_an_id_is_free_again_when_its_window_is_over(node: Node, topic: str) -> None:
    with Admin(node.address) as admin:
        admin.alter_topic(topic, deduplication_window_ms=1_000)
    with Producer(node.address) as producer:
        first = producer.send(topic, b"x", unique_id="a").result()
        second: SendResult | None = None

        def is_stored() -> bool:
            nonlocal second
            second = producer.send(topic, b"x", unique_id="a").result()
            return not second.is_duplicate

        wait_until(is_stored, "a second message of the id")
        with Admin(node.address) as admin:
            admin.alter_topic(topic, deduplication_window_ms=0)
        third = producer.send(topic, b"x", unique_id="a").result()

    assert second is not None
    assert second.store_timestamp > first.store_timestamp + 1_000
    assert not third.is_duplicate
    assert stored(node.address, topic, 3) == ["a", "a", "a"]


def test_a_delayed_message_counts_while_it_waits(node: Node, topic: str) -> None:
    with Producer(node.address) as producer:
        timer = producer.send(topic, b"x", unique_id="a", delay=3_600_000).result()
        level = producer.send(topic, b"x", unique_id="b", delay_level=18).result()
        plain = [producer.send(topic, b"x", unique_id=id_).result() for id_ in ("a", "b")]
        again = [producer.send(topic, b"x", unique_id=id_, delay=1).result() for id_ in ("a", "b")]

    assert not timer.is_duplicate
    assert not level.is_duplicate
    assert all(one.is_duplicate for one in [*plain, *again])
    assert [place(one) for one in plain] == [place(timer), place(level)]
    assert [place(one) for one in again] == [place(timer), place(level)]


def test_a_delayed_message_counts_from_its_delivery(node: Node, topic: str) -> None:
    with Producer(node.address) as producer, Consumer(node.address, topic=topic) as consumer:
        waiting = producer.send(topic, b"x", unique_id="a", delay=1).result()
        found: list[ReceivedMessage] = []

        def is_delivered() -> bool:
            found.extend(consumer.poll(0.5))
            return bool(found)

        wait_until(is_delivered, "the delayed message")
        after = producer.send(topic, b"x", unique_id="a").result()
        again = producer.send(topic, b"x", unique_id="a", delay=1).result()

    assert (waiting.is_duplicate, after.is_duplicate, again.is_duplicate) == (False, True, True)
    assert (after.topic, after.queue_id, after.queue_offset) == (
        topic, found[0].queue_id, found[0].queue_offset,
    )  # fmt: skip
    assert stored(node.address, topic, 1) == ["a"]


def test_a_topic_that_was_deleted_and_made_again_begins_without_ids(node: Node, topic: str) -> None:
    with Producer(node.address) as producer, Admin(node.address) as admin:
        for queue in range(4):
            producer.send(topic, b"old", unique_id=f"id-{queue}", queue_id=queue).result()
        admin.delete_topic(topic)
        admin.create_topic(topic, queues=4, deduplication_window_ms=WINDOW_MS)
        again = [
            producer.send(topic, b"new", unique_id=f"id-{queue}", queue_id=queue).result()
            for queue in range(4)
        ]
        twice = producer.send(topic, b"new", unique_id="id-0", queue_id=3).result()

    assert not any(one.is_duplicate for one in again)
    assert place(twice) == place(again[0])


def test_a_transaction_counts_once_it_is_committed(node: Node, topic: str) -> None:
    with (
        Producer(node.address) as producer,
        TransactionalProducer(node.address, group="shop") as shop,
    ):
        first = shop.transaction()
        first.send(topic, b"x", unique_id="a").result()
        first.send(topic, b"x", unique_id="b").result()
        first.rollback()
        second = shop.transaction()
        is_free = not second.send(topic, b"x", unique_id="a").result().is_duplicate
        second.commit()
        plain = producer.send(topic, b"x", unique_id="a").result()
        third = shop.transaction()
        third.send(topic, b"x", unique_id="new").result()
        third.send(topic, b"x", unique_id="a").result()
        with pytest.raises(TransactionError) as caught:
            third.commit()
        new = producer.send(topic, b"x", unique_id="new").result()

    assert is_free
    assert plain.is_duplicate
    assert caught.value.details["duplicates"] == ("a",)
    assert not new.is_duplicate
    assert sorted(stored(node.address, topic, 2)) == ["a", "new"]


@pytest.mark.parametrize("log", ["dledger", "commitlog"])
def test_a_writer_that_was_killed_knows_all_ids_again(
    make_node: Callable[[], Node], log: str
) -> None:
    node, topic = make_node(), TOPIC
    start_client_node(node, log=log)
    with Admin(node.address) as admin:
        admin.alter_topic(topic, deduplication_window_ms=WINDOW_MS)
    ids = [f"id-{number}" for number in range(IDS)]
    with Producer(node.address) as producer:
        results = [producer.send(topic, b"x", unique_id=id_) for id_ in ids]
        first = [one.result() for one in results]
        waiting = producer.send(topic, b"x", unique_id="later", delay=3_600_000).result()
        os.kill(node.pid("writer"), signal.SIGKILL)
        again = [producer.send(topic, b"x", unique_id=id_) for id_ in ids]
        second = [one.result() for one in again]
        twice = producer.send(topic, b"x", unique_id="later").result()
        new = producer.send(topic, b"x", unique_id="new").result()

    assert not any(one.is_duplicate for one in [*first, waiting, new])
    assert all(one.is_duplicate for one in [*second, twice])
    assert [place(one) for one in second] == [place(one) for one in first]
    assert place(twice) == place(waiting)
    assert sorted(stored(node.address, topic, IDS + 1)) == sorted([*ids, "new"])


class Sender(threading.Thread):
    """Sends all ids in batches; another one sends the same."""

    def __init__(self, addresses: str | Sequence[str], topic: str, name: str) -> None:
        super().__init__()
        self._topic = topic
        self.results: list[SendResult] = []
        self.failures: list[Exception] = []
        self._addresses = addresses
        self._name = name

    def run(self) -> None:
        try:
            with Producer(self._addresses, name=self._name) as producer:
                for begin in range(0, IDS, BATCH):
                    batch = [
                        OutgoingMessage(self._name.encode(), unique_id=f"id-{number}")
                        for number in range(begin, begin + BATCH)
                    ]
                    self.results += producer.send_batch(self._topic, batch).result()
        except Exception as error:
            self.failures.append(error)
            raise


def send_twice(
    addresses: str | Sequence[str], topic: str, kill: Callable[[], None]
) -> list[Sender]:
    """Two producers send the same ids; in the middle of it something is killed."""
    senders = [Sender(addresses, topic, name) for name in ("one", "two")]
    for sender in senders:
        sender.start()
    wait_until(lambda: all(len(one.results) >= IDS // 4 for one in senders), "some results")
    kill()
    for sender in senders:
        sender.join()
    return senders


def assert_stored_once(senders: list[Sender], found: list[str]) -> None:
    one, two = senders
    assert one.failures == two.failures == []
    assert [place(result)[:3] for result in one.results] == [
        place(result)[:3] for result in two.results
    ]
    assert not any(
        first.is_duplicate and second.is_duplicate
        for first, second in zip(one.results, two.results, strict=True)
    )
    assert Counter(found) == Counter({f"id-{number}": 1 for number in range(IDS)})


def test_two_producers_store_each_id_once_while_the_writer_is_killed(
    node: Node, topic: str
) -> None:
    def kill() -> None:
        os.kill(node.pid("writer"), signal.SIGKILL)

    senders = send_twice(node.address, topic, kill)

    assert_stored_once(senders, stored(node.address, topic, IDS))


def test_the_next_leader_of_a_group_stores_each_id_once(make_node: Callable[[], Node]) -> None:
    group: Group = make_group(make_node, ack="majority-memory")
    leader: Member = group.leader()
    with Admin(group.addresses) as admin:
        admin.alter_topic(TOPIC, deduplication_window_ms=WINDOW_MS)

    senders = send_twice(group.addresses, TOPIC, leader.kill)

    assert_stored_once(senders, stored(group.addresses, TOPIC, IDS))
    group.stop()


def test_the_example_stores_its_payments_once(node: Node) -> None:
    done = run_python(EXAMPLE, node.address)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "invoice-4711: stored",
        "invoice-4711: a duplicate",
        "invoice-4712: stored",
        "its place is that of the first: True",
    ]


def test_an_asyncio_producer_is_told_of_duplicates(node: Node, topic: str) -> None:
    async def steps() -> None:
        async with AsyncProducer(node.address) as producer:
            first = await producer.send(topic, b"x", unique_id="a")
            again = await producer.send(topic, b"x", unique_id="a")
            batch = await producer.send_batch(
                topic, [OutgoingMessage(b"y", unique_id=id_) for id_ in ("b", "a")]
            )

        assert (first.is_duplicate, again.is_duplicate) == (False, True)
        assert place(again) == place(first)
        assert [one.is_duplicate for one in batch] == [False, True]

    asyncio.run(asyncio.wait_for(steps(), PATIENCE_S))


def test_the_command_line_sets_windows_and_sends_ids(
    node: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    def command(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main([*words, "--address", node.address, "--timeout", "60"])
        told = capsys.readouterr()
        return status, told.out, told.err

    def told(*words: str) -> dict[str, object]:
        status, out, err = command(*words, "--json")
        assert (status, err) == (0, "")
        answer: dict[str, object] = json.loads(out)
        return answer

    created = told("topic", "create", "paid", "--deduplication-window", "10m")
    altered = told("topic", "alter", "paid", "--deduplication-window", "90s")
    shown = told("topic", "show", "paid")
    first = told("send", "paid", "body", "--unique-id", "a")
    again = told("send", "paid", "body", "--unique-id", "a")
    text = command("send", "paid", "body", "--unique-id", "a")[1]
    rows = told("topic", "list")["topics"]
    off = told("topic", "alter", "paid", "--deduplication-window", "off")
    refused = command("topic", "alter", "paid", "--deduplication-window", "8d")
    wrong = command("topic", "alter", "paid", "--deduplication-window", "soon")

    assert isinstance(rows, list)
    windows = {row["topic"]: row["deduplication_window_ms"] for row in rows}
    assert [one["deduplication_window_ms"] for one in (created, altered, shown, off)] == [
        600_000, 90_000, 90_000, 0,
    ]  # fmt: skip
    assert (windows["paid"], windows["orders"]) == (90_000, 0)
    assert (first["duplicate"], again["duplicate"]) == (False, True)
    assert (again["queue"], again["queueOffset"]) == (first["queue"], first["queueOffset"])
    assert text == f"paid/{first['queue']} 0 a duplicate\n"
    assert refused[0] != 0
    assert "604800000" in refused[2]
    assert wrong[0] != 0
    assert "soon" in wrong[2]


@pytest.fixture
def raw(node: Node) -> Iterator[RawProducer]:
    made = RawProducer(node.runtime, hello=False)
    yield made
    made.close()


def greet(raw: RawProducer, version: int) -> None:
    """Say HELLO as a client of an older library, or of a newer one."""
    body = {"client": "raw", "library": "raw", "version": 1, "version_max": version}
    raw.socket.send_multipart([encode_header(Kind.HELLO, 0), encode_body(body)])
    raw.welcome = decode_welcome(raw.receive()[1])


def exchange(raw: RawProducer, records: list[bytes], topic: str, *, retry: bool = False) -> Sent:
    raw.socket.send_multipart(raw.frame(records, topic=topic, retry=retry))
    sent = raw.answer()
    assert isinstance(sent, Sent), sent
    return sent


def test_a_client_of_an_older_version_is_told_of_places_alone(raw: RawProducer, topic: str) -> None:
    greet(raw, 3)
    first = exchange(raw, [raw.record(b"x", topic=topic, unique_id="a")], topic)
    batch = [raw.record(b"y", topic=topic, unique_id=id_) for id_ in ("b", "a")]
    again = exchange(raw, batch, topic)

    assert first.duplicates == again.duplicates == ()
    assert again.spans[1] == first.spans[0]._replace(first=1)
    assert [span.first for span in again.spans] == [0, 1]


def test_what_a_frame_has_stored_before_is_no_duplicate_of_it(raw: RawProducer, topic: str) -> None:
    greet(raw, 4)
    other = exchange(raw, [raw.record(b"other", topic=topic, unique_id="a")], topic)
    frame = [raw.record(b"mine", topic=topic, unique_id=id_) for id_ in ("b", "a", "c")]
    first = exchange(raw, frame, topic)
    again = exchange(raw, frame, topic, retry=True)
    more = [raw.record(b"mine", topic=topic, unique_id="d")]
    partly = exchange(raw, frame + more, topic, retry=True)

    assert [one.record for one in first.duplicates] == [1]
    assert [one.record for one in again.duplicates] == [1]
    assert [one.record for one in partly.duplicates] == [1]
    queue_offsets = {span.first: span.queue_offset for span in first.spans}
    assert queue_offsets == {0: 1, 1: other.spans[0].queue_offset, 2: 2}
    assert {span.first: span.queue_offset for span in again.spans} == queue_offsets
    assert {span.first: span.queue_offset for span in partly.spans} == {**queue_offsets, 3: 3}


@pytest.mark.parametrize("ends", ["off", pytest.param("over", marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("kind", "left_out"), [("plain", 0), ("plain", 1), ("timer", 1), ("of a timer", 0)]
)
def test_what_stands_behind_a_message_that_was_left_out_is_not_stored_again(  # noqa: PLR0917
    node: Node, raw: RawProducer, topic: str, kind: str, ends: str, left_out: int
) -> None:
    """Its window is off when the frame is sent again, or over, and its earlier attempt further back
    than is looked for it by the window.
    """
    greet(raw, 4)
    with Admin(node.address) as admin:
        admin.alter_topic(topic, deduplication_window_ms=SHORT_MS)
        at_ms = time.time_ns() // 1_000_000 + 3_600_000
        waiting = TIMER_TOPIC, timer_properties(at_ms, RealQueue(topic, 0))
        others, to = {"of a timer": waiting}.get(kind, (topic, {}))
        other = exchange(
            raw, [raw.record(b"other", topic=others, unique_id="a", properties=to)], others
        )
        ids = ["b", "c", "d"]
        ids.insert(left_out, "a")
        place, to = {"timer": waiting}.get(kind, (topic, {}))
        frame = [raw.record(b"mine", topic=place, unique_id=id_, properties=to) for id_ in ids]
        first = exchange(raw, frame, place)
        if ends == "off":
            admin.alter_topic(topic, deduplication_window_ms=0)
        free = other.store_timestamp + SHORT_MS + RETRY_MS if ends == "over" else 0
        wait_until(lambda: time.time_ns() // 1_000_000 > free, "the window", timeout_s=90)
    again = exchange(raw, frame, place, retry=True)

    assert [one.record for one in first.duplicates] == [left_out]
    before, after = (
        {row: span.queue_offset + row - span.first
         for span in sent.spans for row in range(span.first, span.first + span.records)}
        for sent in (first, again)
    )  # fmt: skip
    kept = [row for row in range(len(ids)) if row != left_out]
    assert [after[row] for row in kept] == [before[row] for row in kept]


def test_what_cannot_be_looked_up_is_refused_until_it_can(
    node: Node, raw: RawProducer, topic: str
) -> None:
    greet(raw, 4)
    frame = [raw.record(b"x", topic=topic, unique_id="a")]
    mark_incomplete(node.root)
    try:
        raw.socket.send_multipart(raw.frame(frame, topic=topic))
        refused = raw.answer()
    finally:
        clear_incomplete(node.root)
    stored_now = exchange(raw, frame, topic)

    assert isinstance(refused, Refusal)
    assert (refused.status, refused.retriable, refused.stored) == ("IDS_UNKNOWN", True, "no")
    assert stored_now.spans[0].queue_offset == 0
