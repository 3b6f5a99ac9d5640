"""A frame that is sent again is stored once, however much was stored since its first attempt."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing

import pytest

from ledgermq.client import Consumer, Producer, ProducerOptions
from ledgermq.ipc.cursor_page import CursorPage
from ledgermq.wire.send_frame import Sent
from ledgermq.wire.session import NOT_TOLD, Refusal
from tests.process.conftest import Node, nodes_made, wait_until
from tests.process.raw_producer import RawProducer
from tests.process.running import topics_document
from tests.process.stream_relay import StreamRelay

pytestmark = pytest.mark.slow

WINDOW = 8 * 1024 * 1024
"""The smallest that settings allow: so much of the log is looked at without an index."""

BATCH = [os.urandom(60_000)] * 15
BATCHES = 14


STOPPED = """
import sys
from ledgermq.client import Producer, ProducerOptions

with Producer(f"ipc://{sys.argv[1]}", options=ProducerOptions(timeout_s=600)) as producer:
    producer.send("orders", b"first", queue_id=0).result()
    print("stored", flush=True)
    sys.stdin.readline()
    result = producer.send("orders", b"second", queue_id=0).result()
    print(result.queue_offset, result.is_duplicate, flush=True)
"""


def start(node: Node, *, has_index: bool = True) -> None:
    """A node that looks no further back than ``WINDOW`` without its index."""
    node.configure(
        store={
            "mapped_file_size_commit_log": 4 * 1024 * 1024,
            "mapped_file_size_consume_queue": 20_000,
            "max_hash_slot_num": 500,
            "max_index_num": 100,
            "message_index_enable": has_index,
        },
        ack={"mode": "majority-memory"},
        limits={"total_window_bytes": WINDOW, "client_window_bytes": WINDOW},
    )
    config = node.root / "config"
    config.mkdir(parents=True)
    (config / "topics.json").write_text(topics_document("orders", "other"))
    node.serve()


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with nodes_made() as make:
        made = make()
        start(made)
        yield made


@pytest.fixture(scope="module")
def unindexed() -> Iterator[Node]:
    with nodes_made() as make:
        made = make()
        start(made, has_index=False)
        yield made


def others_store(node: Node) -> None:
    """More than ``WINDOW`` is stored by another client."""
    with Producer(f"ipc://{node.runtime}") as producer:
        for _ in range(BATCHES):
            producer.send_batch("other", BATCH, queue_id=1).result()
    end = committed(node)
    with closing(CursorPage.attach(node.runtime / "cursors")) as page:
        wait_until(lambda: page.read_dispatched().position >= end, "the dispatcher")


def committed(node: Node) -> int:
    """Where the log ends now."""
    with closing(CursorPage.attach(node.runtime / "cursors")) as page:
        return int(page.read_committed().position)


def bodies(node: Node, queue_id: int) -> list[bytes]:
    """What stands in one queue of ``orders``."""
    found: list[bytes] = []
    with Consumer(f"ipc://{node.runtime}", topic="orders", start="first") as consumer:
        at = 0
        while len(batch := consumer.pull(queue_id, at)):
            found += [bytes(message.body) for message in batch]
            at = batch.next_offset
    return found


def exchange(producer: RawProducer, frame: Sequence[bytes]) -> Sent | Refusal:
    producer.socket.send_multipart(list(frame))
    return producer.answer()


def sent(answer: Sent | Refusal) -> Sent:
    assert isinstance(answer, Sent), answer
    return answer


@pytest.fixture
def raw(node: Node) -> Iterator[RawProducer]:
    made = RawProducer(node.runtime)
    yield made
    made.close()


def test_a_producer_whose_answers_are_lost_while_others_go_on_stores_once(node: Node) -> None:
    options = ProducerOptions(timeout_s=600)
    with (
        StreamRelay(node.runtime) as relay,
        Producer(f"ipc://{relay.folder}", options=options) as producer,
    ):
        producer.send("orders", b"hello", queue_id=0).result()
        relay.swallows = True
        futures = [producer.send("orders", b"once", queue_id=0) for _ in range(3)]
        wait_until(lambda: len(bodies(node, 0)) >= 2, "what is sent is stored")
        others_store(node)
        relay.cut()
        results = [future.result() for future in futures]

    assert bodies(node, 0) == [b"hello", *[b"once"] * 3]
    assert [one.queue_offset for one in results] == [1, 2, 3]
    assert not any(one.is_duplicate for one in results)


def test_what_was_not_stored_at_first_is_stored_by_the_repetition(
    node: Node, raw: RawProducer
) -> None:
    assert raw.welcome is not None and raw.welcome.position > NOT_TOLD
    others_store(node)
    records = [raw.record(b"late", queue_id=1)]
    again = raw.frame(records, queue_id=1, retry=True, first_position=raw.welcome.position)
    answers = [sent(exchange(raw, again)) for _ in range(2)]
    # Queues are built behind the answer.
    wait_until(lambda: bodies(node, 1), "it is in its queue")

    assert bodies(node, 1) == [b"late"]
    assert answers[0].spans == answers[1].spans


def test_a_client_of_an_older_version_tells_no_position_and_is_answered_as_well(
    node: Node, raw: RawProducer
) -> None:
    records = [
        raw.record(body, queue_id=2, born_timestamp=time.time_ns() // 1_000_000)
        for body in (b"a", b"b")
    ]
    first = sent(exchange(raw, raw.frame(records, queue_id=2)))
    others_store(node)
    again = sent(exchange(raw, raw.frame(records, queue_id=2, retry=True)))

    assert again.spans == first.spans
    assert again.store_timestamp == first.store_timestamp
    assert bodies(node, 2) == [b"a", b"b"]


def test_another_message_of_the_same_id_does_not_hide_the_earlier_attempt(
    node: Node, raw: RawProducer
) -> None:
    def frame(body: bytes, **how: int) -> list[bytes]:
        record = raw.record(body, queue_id=3, unique_id="order-17")
        return raw.frame([record], queue_id=3, **how)

    position = sent(exchange(raw, frame(b"mine"))).spans[0].physical_offset
    sent(exchange(raw, frame(b"of another")))
    near = sent(exchange(raw, frame(b"mine", retry=True, first_position=position)))
    others_store(node)
    far = sent(exchange(raw, frame(b"mine", retry=True, first_position=position)))

    assert bodies(node, 3) == [b"mine", b"of another"]
    assert near.spans[0].physical_offset == far.spans[0].physical_offset == position


def test_what_has_no_unique_id_is_not_stored_by_a_repetition_that_nobody_can_look_for(
    node: Node, raw: RawProducer
) -> None:
    records = [raw.record(b"nameless", topic="other", queue_id=3, unique_id=None)]

    def repeated(**how: int) -> Refusal | Sent:
        return exchange(raw, raw.frame(records, topic="other", queue_id=3, retry=True, **how))

    (first,) = sent(exchange(raw, raw.frame(records, topic="other", queue_id=3))).spans
    refused = [repeated(first_position=first.physical_offset), repeated()]
    stored: list[Sent] = []

    def is_taken() -> bool:
        # Commands of the broker's may come meanwhile.
        answer = repeated(first_position=committed(node))
        stored.extend([answer] if isinstance(answer, Sent) else [])
        return bool(stored)

    wait_until(is_taken, "nothing stands behind that place")

    for one in refused:
        assert isinstance(one, Refusal)
        assert (one.status, one.stored, one.retriable) == ("ATTEMPT_UNKNOWN", "unknown", False)
        assert "without a unique id" in one.reason
    assert stored[0].spans[0].queue_offset == first.queue_offset + 1


def test_while_the_index_is_behind_a_repetition_is_refused_and_stored_once_later(
    make_node: Callable[[], Node],
) -> None:
    node = make_node()
    start(node)
    raw = RawProducer(node.runtime)
    try:
        records = [raw.record(b"once")]
        first = sent(exchange(raw, raw.frame(records)))
        position = first.spans[0].physical_offset
        os.kill(node.pid("dispatcher"), signal.SIGSTOP)
        with Producer(f"ipc://{node.runtime}") as producer:
            for _ in range(BATCHES):
                producer.send_batch("other", BATCH, queue_id=1).result()
        again = raw.frame(records, retry=True, first_position=position)
        refused = exchange(raw, again)
        os.kill(node.pid("dispatcher"), signal.SIGCONT)

        assert isinstance(refused, Refusal)
        assert (refused.status, refused.retriable) == ("IDS_UNKNOWN", True)
        answers: list[Sent] = []

        def is_taken() -> bool:
            answer = exchange(raw, raw.frame(records, retry=True, first_position=position))
            answers.extend([answer] if isinstance(answer, Sent) else [])
            return bool(answers)

        wait_until(is_taken, "the index knows it")
        assert answers[0].spans == first.spans
        assert bodies(node, 0) == [b"once"]
    finally:
        raw.close()


def test_without_an_index_a_repetition_from_far_back_is_unknown_and_not_stored_again(
    unindexed: Node,
) -> None:
    raw = RawProducer(unindexed.runtime)
    try:
        records = [raw.record(b"once", born_timestamp=time.time_ns() // 1_000_000)]
        position = sent(exchange(raw, raw.frame(records))).spans[0].physical_offset
        with Producer(f"ipc://{unindexed.runtime}") as producer:
            for _ in range(BATCHES):
                producer.send_batch("other", BATCH, queue_id=1).result()
        told = exchange(raw, raw.frame(records, retry=True, first_position=position))
        untold = exchange(raw, raw.frame(records, retry=True))
        near = committed(unindexed)
        fresh = [raw.record(b"fresh")]
        taken = exchange(raw, raw.frame(fresh, retry=True, first_position=near))
    finally:
        raw.close()

    for refused in (told, untold):
        assert isinstance(refused, Refusal)
        assert (refused.status, refused.stored) == ("ATTEMPT_UNKNOWN", "unknown")
        assert not refused.retriable
        assert "store.message_index_enable" in refused.reason
    assert isinstance(taken, Sent)
    wait_until(lambda: bodies(unindexed, 0) == [b"once", b"fresh"], "both, once each")


def test_a_producer_that_was_stopped_for_long_repeats_and_stores_once(node: Node) -> None:
    """A program that goes on when its time is over: what it sends then is looked for as well."""
    before = len(bodies(node, 0))
    with (
        StreamRelay(node.runtime) as relay,
        subprocess.Popen(
            [sys.executable, "-c", STOPPED, str(relay.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as program,
    ):
        assert program.stdout is not None and program.stdin is not None
        assert program.stdout.readline() == "stored\n"
        relay.swallows = True
        program.stdin.write("go on\n")
        program.stdin.flush()
        wait_until(lambda: len(bodies(node, 0)) >= before + 2, "both are stored")
        program.send_signal(signal.SIGSTOP)
        others_store(node)
        relay.cut()
        program.send_signal(signal.SIGCONT)
        answer = program.stdout.readline()

    assert answer == f"{before + 1} False\n"
    assert bodies(node, 0)[before:] == [b"first", b"second"]
