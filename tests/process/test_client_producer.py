"""``Producer`` against the real node: results, order, deaths of processes, limits of time."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ledgermq.client import Admin
from ledgermq.client.blocking.producer import Producer
from ledgermq.client.core.results import SendResult
from ledgermq.client.sending.outgoing import OutgoingMessage
from ledgermq.client.sending.send_future import SendFuture
from ledgermq.client.sending.send_pipeline import ProducerOptions
from ledgermq.formats.dledger_entry import HEADER_SIZE
from ledgermq.formats.records.message import MAGIC, Message, decode_message
from ledgermq.model.errors import (
    BusyError,
    LedgerError,
    MessageIllegalError,
    NotLeaderError,
    OutcomeUnknownError,
    TopicUnknownError,
)
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, nodes_made, wait_until
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

FILE_SIZE = 4_194_304


LOGS = ("dledger", "commitlog")


@pytest.fixture(scope="module", params=LOGS)
def node(request: pytest.FixtureRequest) -> Iterator[Node]:
    """One for all tests that leave it as it is."""
    with nodes_made() as make:
        made = make()
        start_client_node(made, log=request.param, file_size=FILE_SIZE)
        yield made


@pytest.fixture(params=LOGS)
def own_node(make_node: Callable[[], Node], request: pytest.FixtureRequest) -> Node:
    """One whose processes are stopped and killed."""
    made = make_node()
    start_client_node(made, log=request.param, file_size=FILE_SIZE)
    return made


@pytest.fixture
def producer(node: Node) -> Iterator[Producer]:
    # Messages are as large on disk as they were sent.
    options = ProducerOptions(compress_above=None)
    with Producer(f"ipc://{node.runtime}", options=options) as made:
        yield made


def stored(node: Node, *topics: str) -> list[Message]:
    """All messages of these topics in the log files, in their order."""
    found = []
    is_dledger = 'log = "dledger"' in node.config.read_text()
    folder = node.root / ("dledger-n7/data" if is_dledger else "commitlog")
    hole = HEADER_SIZE if is_dledger else 0
    for file in sorted(folder.iterdir()):
        view = memoryview(file.read_bytes())
        at = 0
        while at + hole + 8 <= len(view):
            start = at + hole
            if int.from_bytes(view[start + 4 : start + 8], "big") != MAGIC:
                break
            message = decode_message(view, start)
            assert message.physical_offset == int(file.name) + start
            at = start + message.size
            if message.topic in topics:
                found.append(message)
    return found


def place(message: Message) -> tuple[str, int, int, int, str]:
    return (
        message.topic,
        message.queue_id,
        message.queue_offset,
        message.physical_offset,
        message.unique_id,
    )


def told(result: SendResult) -> tuple[str, int, int, int, str]:
    return (
        result.topic,
        result.queue_id,
        result.queue_offset,
        result.physical_offset,
        result.unique_id,
    )


def test_results_name_where_the_messages_are(node: Node, topic: str, producer: Producer) -> None:
    other = f"{topic}_too"
    with Admin(f"ipc://{node.runtime}", timeout_s=PATIENCE_S) as admin:
        admin.create_topic(other, queues=4)
    one = producer.send(topic, b"one", tag="A", keys=["k1"], queue_id=2, flag=9).result(PATIENCE_S)
    many = producer.send_batch(other, [b"two", b"three"], queue_id=1).result(PATIENCE_S)
    own = producer.send_batch(
        topic, [OutgoingMessage(b"four", tag="B"), OutgoingMessage(b"five")], queue_id=2
    ).result(PATIENCE_S)
    messages = stored(node, topic, other)

    assert [place(message) for message in messages] == [told(r) for r in (one, *many, *own)]
    assert [bytes(m.body) for m in messages] == [b"one", b"two", b"three", b"four", b"five"]
    assert [message.tags for message in messages] == ["A", "", "", "B", ""]
    assert (messages[0].keys, messages[0].flag) == (("k1",), 9)
    assert one.offset_message_id.endswith(f"{one.physical_offset:016X}")
    assert one.store_timestamp == messages[0].store_timestamp


def test_batches_over_the_end_of_a_file_are_told_message_by_message(
    node: Node, topic: str, producer: Producer
) -> None:
    futures = [
        producer.send_batch(topic, [bytes([number]) * 40_000] * 7, queue_id=0)
        for number in range(40)
    ]
    results = [result for future in futures for result in future.result(PATIENCE_S)]
    messages = stored(node, topic)

    assert messages[-1].physical_offset > 2 * FILE_SIZE
    assert [place(message) for message in messages] == [told(result) for result in results]


def test_queues_take_turns_and_a_key_keeps_its_queue(topic: str, producer: Producer) -> None:
    turns = [producer.send_batch(topic, [b"x"]).result(PATIENCE_S)[0].queue_id for _ in range(8)]
    keyed = {
        producer.send(topic, b"x", queue_key="user-7").result(PATIENCE_S).queue_id for _ in "1234"
    }

    assert sorted(turns) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert len(keyed) == 1


def test_messages_of_many_threads_are_all_stored_once(
    node: Node, topic: str, producer: Producer
) -> None:
    futures: list[SendFuture[SendResult]] = []

    def work(number: int) -> None:
        for row in range(200):
            future = producer.send(topic, b"%d-%d" % (number, row), queue_id=number)
            if row % 3 == 0:
                future.result(PATIENCE_S)
            futures.append(future)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    results = [future.result(PATIENCE_S) for future in futures]
    by_queue: dict[int, list[bytes]] = {}
    for message in stored(node, topic):
        by_queue.setdefault(message.queue_id, []).append(bytes(message.body))

    assert len({result.unique_id for result in results}) == 800
    assert by_queue == {n: [b"%d-%d" % (n, row) for row in range(200)] for n in range(4)}


def test_a_callback_gets_every_outcome_without_anybody_waiting(
    topic: str, producer: Producer
) -> None:
    done = threading.Event()
    outcomes: list[int] = []

    def note(future: SendFuture[SendResult]) -> None:
        outcomes.append(future.result(0).queue_offset)
        if len(outcomes) == 50:
            done.set()

    for _ in range(50):
        producer.send(topic, b"x", queue_id=0, callback=note)

    assert done.wait(PATIENCE_S)
    assert outcomes == list(range(50))


def test_lingering_messages_share_a_frame_and_flush_does_not_wait_for_them(
    node: Node, topic: str
) -> None:
    options = ProducerOptions(linger_ms=60_000)
    with Producer(f"ipc://{node.runtime}", options=options) as producer:
        futures = [producer.send(topic, b"%d" % number) for number in range(20)]
        producer.flush(options.linger_ms / 2_000)
        results = [future.result(0) for future in futures]

    assert len({result.store_timestamp for result in results}) == 1
    assert [result.queue_offset for result in results] == list(range(20))


@pytest.mark.parametrize("victim", ["writer", "raft"])
def test_a_death_under_way_loses_and_repeats_nothing(own_node: Node, victim: str) -> None:
    options = ProducerOptions(timeout_s=PATIENCE_S)
    with Producer(f"ipc://{own_node.runtime}", options=options) as producer:
        producer.send("orders", b"first", queue_id=3).result(PATIENCE_S)
        futures = []
        deaths = 0
        number = 0
        while deaths < 3 or number % 50:
            futures.append(
                producer.send_batch("orders", [b"%d" % row for row in range(5)], queue_id=1)
            )
            number += 1
            if number % 50 == 0 and deaths < 3:
                deaths += 1
                os.kill(own_node.pid(victim), signal.SIGKILL)
                wait_until(
                    lambda count=deaths: own_node.child(victim)["restarts"] == count, "restart"
                )
        results = [result for future in futures for result in future.result(PATIENCE_S)]
    messages = [message for message in stored(own_node, "orders") if message.queue_id == 1]

    assert [message.queue_offset for message in messages] == list(range(len(messages)))
    assert [place(message) for message in messages] == [told(result) for result in results]


def test_a_dead_broker_is_not_missed_by_messages_to_known_topics(own_node: Node) -> None:
    with Producer(f"ipc://{own_node.runtime}") as producer:
        first = producer.send("orders", b"x", queue_id=0).result(PATIENCE_S)
        os.kill(own_node.pid("broker"), signal.SIGSTOP)
        second = producer.send("orders", b"y", queue_id=0).result(PATIENCE_S)
        os.kill(own_node.pid("broker"), signal.SIGCONT)

    assert second.queue_offset == first.queue_offset + 1


def test_what_cannot_be_stored_is_refused_and_says_why(topic: str, producer: Producer) -> None:
    with pytest.raises(MessageIllegalError) as too_large:
        producer.send(topic, bytes(4 * 1024 * 1024 + 1))
    with pytest.raises(TopicUnknownError) as no_queue:
        producer.send(topic, b"x", queue_id=4)
    with pytest.raises(MessageIllegalError):
        producer.send_batch(topic, [])
    with pytest.raises(MessageIllegalError) as mixed:
        producer.send_batch(topic, [OutgoingMessage(b"x"), b"y"])  # type: ignore[list-item]
    with pytest.raises(LedgerError) as system:
        producer.send("LEDGERMQ_SYSTEM", b"x").result(PATIENCE_S)
    after = producer.send(topic, b"x").result(PATIENCE_S)

    assert too_large.value.details["setting"] == "store.max_message_size"
    assert no_queue.value.details["limit"] == 3
    assert mixed.value.details == {"messages": 2, "outgoing_messages": 1}
    assert not system.value.retriable
    assert after.topic == topic


def test_a_window_that_is_full_refuses_who_will_not_wait_and_fails_in_time(own_node: Node) -> None:
    options = ProducerOptions(compress_above=None, window_bytes=10_000, timeout_s=1.0)
    with Producer(f"ipc://{own_node.runtime}", options=options) as producer:
        producer.send("orders", b"first").result(PATIENCE_S)
        os.kill(own_node.pid("writer"), signal.SIGSTOP)
        stuck = producer.send("orders", bytes(9_000))
        with pytest.raises(BusyError) as full:
            producer.send("orders", bytes(9_000), block=False)
        with pytest.raises(OutcomeUnknownError):
            stuck.result(PATIENCE_S)
        os.kill(own_node.pid("writer"), signal.SIGCONT)
        after = producer.send("orders", b"after").result(PATIENCE_S)

    assert full.value.details["setting"] == "window_bytes"
    assert after.topic == "orders"


def test_without_a_node_nothing_is_sent_and_the_error_says_so(tmp_path: Path) -> None:
    options = ProducerOptions(timeout_s=0.3)
    with (
        Producer("ipc:///tmp/no-such-node", options=options) as producer,
        pytest.raises(NotLeaderError) as nobody,
    ):
        producer.send("orders", b"x")

    assert "no-such-node" in str(nobody.value)


def test_over_tcp_the_broker_names_the_writer(make_node: Callable[[], Node]) -> None:
    ports = (free_port(), free_port())
    node = make_node()
    node.configure(
        store={"mapped_file_size_commit_log": FILE_SIZE},
        listen={
            "produce": f"tcp://127.0.0.1:{ports[0]}",
            "consume": f"tcp://127.0.0.1:{ports[1]}",
        },
        ack={"mode": "majority-memory"},
    )
    node.serve()
    with Producer(f"tcp://127.0.0.1:{ports[1]}") as producer:
        result = producer.send("orders", b"x", queue_id=0).result(PATIENCE_S)

    assert (result.topic, result.queue_offset) == ("orders", 0)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
