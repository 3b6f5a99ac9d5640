"""What a stored message does ends no process: a log that others wrote, and services with bugs."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from ledgermq.client import Consumer, Decision, Producer, ProducerOptions, TransactionalProducer
from ledgermq.formats.records.host_address import encode_host
from ledgermq.formats.records.message import Message, encode_message
from ledgermq.model.ids import Index, Position, QueueOffset, Term
from ledgermq.model.limits import DELAY_TOPIC, STAGED_TOPIC, SYSTEM_TOPIC, TIMER_TOPIC
from ledgermq.rules.messages.transactions import HALF_QUEUE, OP_QUEUE
from ledgermq.store.files.append_files import AppendFiles
from ledgermq.store.log.log_writer import LogEnd, LogWriter, StampedRun
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, wait_until
from tests.unit.store.records import BROKER, frame_of

pytestmark = pytest.mark.slow

PATIENCE_S = 60.0
PROGRAM = Path(__file__).with_name("faulty_node.py")
SERVICES = ("dead letters", "delays", "moves", "sinks", "timers", "transactions")
FILE_SIZE = 1_048_576
NAMES = ("a/b", "../../../x", "x" * 200, "x" * 3_000, "\ufffd", "nul\0", SYSTEM_TOPIC, TIMER_TOPIC)
NUMBERS = ("x", "-1", "9" * 18, "9" * 5_000)


def properties(**pairs: str) -> bytes:
    return "\x02".join(f"{name}\x01{value}" for name, value in pairs.items()).encode()


def poison() -> list[Message]:
    """Messages that somebody stored under the names of the broker's own topics."""

    def message(topic: str, data: bytes, queue_id: int = 0, body: bytes = b"m") -> Message:
        return Message(topic=topic, queue_id=queue_id, body=body, properties=data)

    real = [
        *(properties(REAL_TOPIC=name, REAL_QID="0") for name in NAMES),
        *(properties(REAL_TOPIC="orders", REAL_QID=number) for number in NUMBERS),
        b"",
        b"\x01\x02\x01",
    ]
    commands = (b"", b"null", b"[" * 50_000, b'{"id":' + b"9" * 5_000 + b"}", b"\xff")
    found = [message(DELAY_TOPIC, properties(DELAY="1") + b"\x02" + one) for one in real]
    due = [*("0" * 13, "9" * 13), *NUMBERS]
    found += [message(TIMER_TOPIC, properties(DELIVER_AT="0" * 13) + b"\x02" + one) for one in real]
    found += [message(TIMER_TOPIC, properties(DELIVER_AT=one)) for one in due]
    found += [message(TIMER_TOPIC, properties(CANCELS_AT=one)) for one in due]
    for number in (*NUMBERS, *NAMES):
        half = properties(
            TRAN_MSG="true",
            PGROUP=number,
            UNIQ_KEY=number,
            __transactionId__=number,
            REAL_TOPIC=number,
            REAL_QID=number,
            DELAY=number,
            TRANSACTION_CHECK_TIMES=number,
        )
        found.append(message(HALF_QUEUE.topic, half))
        found.append(message(OP_QUEUE.topic, properties(TAGS="d"), body=number.encode()))
    for tag in ("state", "snapshot", "membership"):
        for body in commands:
            for queue_id in (0, 1):
                found.append(
                    message(SYSTEM_TOPIC, properties(TAGS=tag, PART="1/1"), queue_id, body)
                )
    found += [message(STAGED_TOPIC, properties(STAGE=one), body=b"\xff" * 30) for one in NUMBERS]
    found += [message("%DLQ%g", properties(RETRY_TOPIC=name)) for name in NAMES]
    return found


def write_log(root: Path, messages: list[Message]) -> int:
    """A plain log as somebody else left it, who checked nothing; how many are in it."""
    data = AppendFiles(root / "commitlog", file_size=FILE_SIZE, position=0)
    end = LogEnd(Position(0), Index(0), Term(0), 0)
    writer = LogWriter(data, None, end=end, store_host=encode_host(BROKER))
    ends: dict[tuple[str, int], int] = {}
    written = 0
    for one in messages:
        if len(one.properties) > 32_767:
            continue
        queue = (one.topic, one.queue_id)
        offset = ends.get(queue, 0)
        ends[queue] = offset + 1
        payload, sizes = frame_of([encode_message(one)])
        writer.put(
            payload,
            sizes,
            [StampedRun(1, QueueOffset(offset))],
            term=Term(0),
            store_timestamp=1_600_000_000_000 + written,
        )
        written += 1
    writer.publish()
    writer.close()
    return written


def use_services(address: str) -> list[bytes]:
    """Have a message delayed by level and by time, and a transaction committed."""
    options = ProducerOptions(timeout_s=PATIENCE_S)
    with Producer(address, options=options) as producer:
        producer.send("orders", b"level", queue_id=0, delay_level=1).result()
        later = timedelta(milliseconds=50)
        producer.send("orders", b"timer", queue_id=0, delay=later).result()
    with TransactionalProducer(address, group="till", options=options) as till:
        till.send("orders", b"half", lambda _: Decision.COMMIT)
    found: list[bytes] = []
    until = time.monotonic() + PATIENCE_S
    with Consumer(address, topic="orders", start="first") as consumer:
        while len(found) < 3 and time.monotonic() < until:
            found += [bytes(one.body) for one in consumer.poll(1.0)]
    return sorted(found)


def poisoned(node: Node) -> int:
    counters: dict[str, int] = node.status()["counters"]["broker"]
    return counters["poison_messages"]


def test_a_log_full_of_poison_ends_no_process_and_stops_no_service(
    make_node: Callable[[], Node],
) -> None:
    node = make_node()
    write_log(node.root, poison())
    start_client_node(node, log="commitlog", file_size=FILE_SIZE)
    wait_until(lambda: poisoned(node) > 0, "poison met")
    pids = node.pids()

    assert use_services(f"ipc://{node.runtime}") == [b"half", b"level", b"timer"]
    assert node.pids() == pids
    assert not node.logged("process failed")
    assert node.logged("stored message is passed over: at=SCHEDULE_TOPIC_XXXX/0/0")
    assert not (node.root.parent / "x").exists()
    assert node.stop() == 0


def test_services_that_meet_bugs_begin_anew_and_end_no_process(
    make_node: Callable[[], Node],
) -> None:
    node = make_node()
    node.configure(ack={"mode": "majority-memory"})
    node.launch([str(PROGRAM), "serve", "--config", str(node.config)])
    node.wait_ready()
    pids = node.pids()

    assert use_services(f"ipc://{node.runtime}") == [b"half", b"level", b"timer"]
    for name in SERVICES:
        rests = f"service rests, and begins anew: {name} pause_ms=2000"
        wait_until(partial(node.logged, rests), rests)

    assert node.pids() == pids
    assert node.status()["counters"]["broker"]["requests_failed"] == 2 * len(SERVICES)
    assert node.stop() == 0
