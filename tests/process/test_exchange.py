"""The short way of single messages against real nodes: what interrupts it loses nothing."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from ledgermq.client import Consumer, Producer, ProducerOptions
from ledgermq.client.aio import AsyncProducer
from ledgermq.client.core.results import SendResult
from ledgermq.client.sending.send_future import SendFuture
from ledgermq.client.stream_connection import StreamConnection
from ledgermq.formats.kernels import kernel
from ledgermq.model.errors import (
    ClosedError,
    ConfigError,
    LedgerError,
    OutcomeUnknownError,
    TimedOutError,
)
from tests.process.client_node import own_topic, start_client_node
from tests.process.conftest import Node, nodes_made, wait_until
from tests.process.group_nodes import TOPIC, make_group
from tests.process.stream_relay import StreamRelay
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

OPTIONS = ProducerOptions(timeout_s=PATIENCE_S)


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with nodes_made() as make:
        made = make()
        start_client_node(made)
        yield made


@pytest.fixture
def topic(node: Node, request: pytest.FixtureRequest) -> str:
    return own_topic(node, request)


@pytest.fixture
def relay(node: Node) -> Iterator[StreamRelay]:
    with StreamRelay(node.runtime) as made:
        yield made


class Ways:
    """A producer that counts which of its waits went on over the long way."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.long = 0
        self._wait_for = producer._driver.wait_for
        producer._driver.wait_for = self._count  # type: ignore[method-assign]

    def _count(
        self, future: SendFuture[object], timeout: float | None, since: float | None = None
    ) -> None:
        self.long += 1
        self._wait_for(future, timeout, since)

    def send(self, topic: str, body: bytes) -> SendResult:
        return self.producer.send(topic, body).result(PATIENCE_S)

    def warm(self, topic: str) -> None:
        """Have all queues of ``topic`` known, so that the next message goes the short way."""
        for _ in range(8):
            self.send(topic, b"warm")

    def goes_short(self, topic: str) -> bool:
        """Whether an answer is waited for on the short way now; a busy machine may be late."""

        def once() -> bool:
            before = self.long
            self.send(topic, b"short")
            assert self.producer._driver._poller != threading.get_ident()
            return self.long == before

        return bool(wait_until(once, "a message on the short way"))

    @property
    def stream(self) -> StreamConnection:
        stream = self.producer._pipeline.link.stream
        assert stream is not None
        return stream


@pytest.fixture
def ways(relay: StreamRelay) -> Iterator[Ways]:
    with Producer(f"ipc://{relay.folder}", options=OPTIONS) as producer:
        yield Ways(producer)


def places(node: Node, topic: str, count: int) -> dict[tuple[int, int], bytes]:
    """Bodies by queue and number, of a topic that has ``count`` of them."""
    found: dict[tuple[int, int], bytes] = {}
    with Consumer(f"ipc://{node.runtime}", topic=topic, start="first") as consumer:

        def read() -> bool:
            for one in consumer.poll(0.1):
                found[one.queue_id, one.queue_offset] = bytes(one.body)
            return len(found) >= count

        wait_until(read, f"{count} messages")
    return found


def bodies(node: Node, topic: str, count: int) -> Counter[bytes]:
    """How often each body is there."""
    return Counter(places(node, topic, count).values())


def test_most_messages_go_the_short_way_and_are_where_their_results_say(
    node: Node, topic: str
) -> None:
    with Producer(f"ipc://{node.runtime}", options=OPTIONS) as producer:
        ways = Ways(producer)
        ways.warm(topic)
        assert ways.goes_short(topic)
        sent = {b"%d" % number: ways.send(topic, b"%d" % number) for number in range(100)}
        sent[b"tagged"] = producer.send(topic, b"tagged", tag="A").result(PATIENCE_S)
    found = places(node, topic, 110)

    assert len({result.unique_id for result in sent.values()}) == 101
    assert {found[one.queue_id, one.queue_offset]: one for one in sent.values()} == sent
    assert Counter(result.queue_id for result in sent.values()) == {0: 25, 1: 25, 2: 25, 3: 25} | {
        sent[b"tagged"].queue_id: 26
    }


def test_both_ways_leave_a_pipeline_alike(node: Node, topic: str) -> None:
    found = []
    for is_short in (True, False):
        with Producer(f"ipc://{node.runtime}", options=OPTIONS) as producer:
            ways = Ways(producer)
            producer._exchange.is_open = is_short
            for _ in range(20):
                ways.send(topic, b"x")
            state = {
                name: value
                for name, value in vars(producer._pipeline).items()
                if isinstance(value, bool | int) or name in {"_ready", "_in_flight", "_refused"}
            }
            found.append((state, producer._sender.turns))

    assert found[0] == found[1]
    assert found[0][0]["_next_sequence"] == 20


@pytest.mark.parametrize("passed", [1, 8, 30, 71])
def test_an_answer_in_pieces_is_taken_when_all_of_it_is_there(
    ways: Ways, relay: StreamRelay, node: Node, topic: str, passed: int
) -> None:
    ways.warm(topic)
    relay.hold(passed)
    future = ways.producer.send(topic, b"in pieces")
    waiting = threading.Thread(target=future.result, args=(PATIENCE_S,))
    waiting.start()
    wait_until(lambda: ways.stream.reader.begun, "the first piece")
    assert not future.done()
    relay.go_on()
    waiting.join(PATIENCE_S)

    assert future.result(0).queue_offset >= 0
    assert ways.goes_short(topic)
    assert bodies(node, topic, 10)[b"in pieces"] == 1


@pytest.mark.parametrize("timeout", [0.004, 0.05])
def test_who_has_waited_long_enough_is_told_so_and_may_wait_again(
    ways: Ways, relay: StreamRelay, node: Node, topic: str, timeout: float
) -> None:
    ways.warm(topic)
    relay.hold()
    future = ways.producer.send(topic, b"late")
    with pytest.raises(TimedOutError) as late:
        future.result(timeout)
    relay.go_on()

    assert late.value.details["waited_s"] == timeout
    assert future.result(PATIENCE_S).queue_offset >= 0
    assert ways.goes_short(topic)
    assert bodies(node, topic, 10)[b"late"] == 1


def test_a_message_whose_own_time_is_over_fails(node: Node, topic: str) -> None:
    options = ProducerOptions(timeout_s=1.0)
    with (
        StreamRelay(node.runtime) as relay,
        Producer(f"ipc://{relay.folder}", options=options) as producer,
    ):
        Ways(producer).warm(topic)
        relay.hold()
        with pytest.raises(LedgerError) as over:
            producer.send(topic, b"over").result()
        relay.go_on()
        after = producer.send(topic, b"after").result(PATIENCE_S)

    assert isinstance(over.value, TimedOutError | OutcomeUnknownError)
    assert after.queue_offset >= 0


def test_an_answer_that_is_lost_with_its_connection_is_asked_for_again(
    ways: Ways, relay: StreamRelay, node: Node, topic: str
) -> None:
    ways.warm(topic)
    relay.swallows = True
    future = ways.producer.send(topic, b"lost")
    with pytest.raises(TimedOutError):
        future.result(0.01)
    relay.cut()

    assert future.result(PATIENCE_S).queue_offset >= 0
    ways.warm(topic)
    assert ways.goes_short(topic)
    assert bodies(node, topic, 18)[b"lost"] == 1


def test_a_refusal_is_told_and_the_next_message_goes_the_short_way(ways: Ways, topic: str) -> None:
    ways.warm(topic)
    refused = 0
    for _ in range(10):
        with pytest.raises(LedgerError) as error:
            ways.send("LEDGERMQ_SYSTEM", b"x")
        refused += not error.value.retriable

    assert refused == 10
    assert ways.goes_short(topic)


class AlarmError(Exception):
    """Raised by the handler of a signal."""


def ring(_number: int, _frame: FrameType | None) -> None:
    raise AlarmError


@pytest.fixture
def alarms() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, ring)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("alarms")
@pytest.mark.parametrize("passed", [0, 30])
def test_a_handler_that_raises_ends_the_wait_and_nothing_else(
    ways: Ways, relay: StreamRelay, node: Node, topic: str, passed: int
) -> None:
    ways.warm(topic)
    relay.hold(passed)
    future = ways.producer.send(topic, b"interrupted")
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    with pytest.raises(AlarmError):
        future.result(PATIENCE_S)
    relay.go_on()

    assert future.result(PATIENCE_S).queue_offset >= 0
    assert ways.goes_short(topic)
    assert bodies(node, topic, 10)[b"interrupted"] == 1


def test_ctrl_c_ends_the_wait_and_nothing_else(
    ways: Ways, relay: StreamRelay, node: Node, topic: str
) -> None:
    ways.warm(topic)
    relay.hold()
    future = ways.producer.send(topic, b"interrupted")
    threading.Timer(
        0.01, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)
    ).start()
    with pytest.raises(KeyboardInterrupt):
        future.result(PATIENCE_S)
    relay.go_on()

    assert future.result(PATIENCE_S).queue_offset >= 0
    assert bodies(node, topic, 9)[b"interrupted"] == 1


def in_long_way(frame: FrameType | None) -> bool:
    """Whether a frame is of what the short way leaves to others."""
    while frame is not None:
        if frame.f_code.co_filename.endswith(
            ("send_driver.py", "send_pipeline.py", "threading.py")
        ):
            return True
        frame = frame.f_back
    return False


@pytest.mark.skipif(not kernel.compiled, reason="plain, a handler may run between two of its lines")
@pytest.mark.usefixtures("alarms")
def test_alarms_at_any_moment_of_the_short_way_lose_and_double_nothing(
    node: Node, topic: str
) -> None:
    rung = 0

    def ring_in_short_way(_number: int, frame: FrameType | None) -> None:
        nonlocal rung
        if not in_long_way(frame):
            rung += 1
            raise AlarmError

    signal.signal(signal.SIGALRM, ring_in_short_way)
    moments = random.Random(7)
    known: list[bytes] = []
    unknown: set[bytes] = set()
    with Producer(f"ipc://{node.runtime}", options=OPTIONS) as producer:
        Ways(producer).warm(topic)
        number = 0
        while rung < 200:
            body = b"%d" % number
            number += 1
            future: SendFuture[SendResult] | None = None
            try:
                signal.setitimer(signal.ITIMER_REAL, moments.uniform(1e-5, 4e-4))
                future = producer.send(topic, body)
                future.result(PATIENCE_S)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except AlarmError:
                signal.setitimer(signal.ITIMER_REAL, 0)
            if future is None:
                unknown.add(body)
            else:
                future.result(PATIENCE_S)
                known.append(body)
        producer.flush(PATIENCE_S)
        last = producer.send(topic, b"last").result(PATIENCE_S)
    # Of those whose sending was interrupted any may be there, too: then more are to be read.
    found: Counter[bytes] = Counter()
    count = 8 + len(known) + 1
    while not all(found[body] for body in [*known, b"last"]):
        found = bodies(node, topic, count)
        count += 1

    assert last.queue_offset > 0
    assert [found[body] for body in known] == [1] * len(known)
    assert all(found[body] <= 1 for body in unknown)


def test_threads_that_send_at_once_have_each_their_own_answer(
    ways: Ways, node: Node, topic: str
) -> None:
    ways.warm(topic)
    sent: dict[bytes, SendResult] = {}

    def send(name: int) -> None:
        for number in range(150):
            body = b"%d-%d" % (name, number)
            sent[body] = ways.send(topic, body)

    threads = [threading.Thread(target=send, args=(name,)) for name in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    found = places(node, topic, 458)

    assert len(sent) == 450
    assert len(found) == 458
    assert {found[one.queue_id, one.queue_offset]: one for one in sent.values()} == sent
    assert ways.goes_short(topic)


def test_a_child_forked_in_a_wait_refuses_and_its_parent_gets_the_answer(
    ways: Ways, relay: StreamRelay, node: Node, topic: str
) -> None:
    ways.warm(topic)
    relay.hold(30)
    future = ways.producer.send(topic, b"parent's")
    waiting = threading.Thread(target=future.result, args=(PATIENCE_S,))
    waiting.start()
    wait_until(lambda: ways.producer._driver._poller == waiting.ident, "the wait")
    pid = os.fork()
    if not pid:
        status = 1
        try:
            told = 0
            for use in (future.result, lambda: ways.producer.send(topic, b"child's")):
                try:
                    use()
                except (ClosedError, OutcomeUnknownError):
                    told += 1
            status = 2 - told
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    relay.go_on()
    waiting.join(PATIENCE_S)

    assert future.result(0).queue_offset >= 0
    assert ways.goes_short(topic)
    found = bodies(node, topic, 10)
    assert (found[b"parent's"], found[b"child's"]) == (1, 0)


def test_a_producer_that_is_closed_in_a_wait_tells_who_waits(
    relay: StreamRelay, topic: str
) -> None:
    producer = Producer(f"ipc://{relay.folder}", options=OPTIONS)
    Ways(producer).warm(topic)
    relay.hold()
    future = producer.send(topic, b"x")
    errors: list[LedgerError] = []

    def wait() -> None:
        try:
            future.result()
        except LedgerError as error:
            errors.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    wait_until(lambda: producer._driver._poller == waiting.ident, "the wait")
    producer.close(0)
    waiting.join(PATIENCE_S)

    (error,) = errors
    assert isinstance(error, OutcomeUnknownError)
    with pytest.raises(LedgerError):
        producer.send(topic, b"y")


def test_in_a_loop_pieces_and_cancelled_tasks_lose_nothing(
    relay: StreamRelay, node: Node, topic: str
) -> None:
    async def steps() -> None:
        async with AsyncProducer(f"ipc://{relay.folder}", options=OPTIONS) as producer:
            for _ in range(8):
                await producer.send(topic, b"warm")
            for name in (b"whole", b"given up"):
                relay.hold(30)
                task = asyncio.create_task(producer.send(topic, name))
                stream = producer._pipeline.link.stream
                assert stream is not None
                await asyncio.to_thread(wait_until, lambda one=stream: one.reader.begun, "a piece")
                if name == b"given up":
                    task.cancel()
                relay.go_on()
                if name == b"whole":
                    assert (await task).queue_offset >= 0
                await producer.flush(PATIENCE_S)
                assert (await producer.send(topic, b"after")).queue_offset >= 0

    asyncio.run(steps())

    found = bodies(node, topic, 12)
    assert (found[b"whole"], found[b"given up"], found[b"after"]) == (1, 1, 2)


def test_a_loop_that_is_another_one_is_told_so(node: Node, topic: str) -> None:
    producer = AsyncProducer(f"ipc://{node.runtime}", options=OPTIONS)

    async def begin() -> None:
        await producer.__aenter__()
        for _ in range(8):
            await producer.send(topic, b"warm")

    async def send() -> None:
        with pytest.raises(ConfigError, match="another loop"):
            await producer.send(topic, b"x")

    with asyncio.Runner() as own:
        own.run(begin())
        with asyncio.Runner() as other:
            other.run(send())
        own.run(producer.close(0))


def test_another_leader_answers_what_the_first_one_did_not(
    make_node: Callable[[], Node],
) -> None:
    group = make_group(make_node, ack="majority-memory")
    leader = group.leader()
    acknowledged: list[bytes] = []
    is_over = threading.Event()

    def send() -> None:
        with Producer(group.addresses, options=OPTIONS) as producer:
            while not is_over.is_set():
                body = b"%d" % len(acknowledged)
                producer.send(TOPIC, body).result(PATIENCE_S)
                acknowledged.append(body)

    thread = threading.Thread(target=send)
    thread.start()
    wait_until(lambda: len(acknowledged) > 50, "messages before")
    leader.kill()
    before = len(acknowledged)
    wait_until(lambda: len(acknowledged) > before + 50, "messages after")
    is_over.set()
    thread.join(PATIENCE_S)
    leader.start()
    group.wait_equal()
    group.stop()

    for member in group.members:
        assert Counter(member.bodies()) == Counter(acknowledged)
