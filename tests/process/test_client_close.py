"""What of a client is done, and told, when it is closed in the midst of something."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import psutil
import pytest

from ledgermq.client import Admin
from ledgermq.client.aio import AsyncConsumer, AsyncProducer
from ledgermq.client.aio.group_consumer import AsyncGroupConsumer
from ledgermq.client.blocking.consumer import Consumer
from ledgermq.client.blocking.group_consumer import GroupConsumer
from ledgermq.client.blocking.producer import Producer
from ledgermq.client.core.read_traces import Reader
from ledgermq.client.core.received import MessageBatch, ReceivedMessage
from ledgermq.client.core.results import SendResult
from ledgermq.client.groups.allocation import TopicQueue
from ledgermq.client.groups.heartbeats import GOODBYE_S
from ledgermq.client.groups.rebalance_listener import RebalanceListener
from ledgermq.client.sending.send_future import SendFuture
from ledgermq.model.errors import ClosedError, LedgerError, OutcomeUnknownError
from tests.process.client_node import own_topic, start_client_node
from tests.process.conftest import Node, wait_until
from tests.suite.intruders import IN_USE, refused
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

GROUPS = {"heartbeat_ms": 500, "member_expiry_ms": 600_000, "lock_expiry_ms": 600_000}
MESSAGES = 40
ALL_READ = dict.fromkeys(range(4), MESSAGES // 4)

NODE = {"groups": GROUPS}


@pytest.fixture
def topic(node: Node, request: pytest.FixtureRequest) -> str:
    """One with as many messages in each of its four queues."""
    name = own_topic(node, request)
    with Producer(node.address) as producer:
        for queue_id in range(4):
            bodies = [b"%d" % number for number in range(MESSAGES // 4)]
            producer.send_batch(name, bodies, queue_id=queue_id).result(PATIENCE_S)
    return name


def read_all(consumer: GroupConsumer) -> None:
    seen = 0

    def is_read() -> bool:
        nonlocal seen
        seen += len(consumer.poll(1.0))
        return seen == MESSAGES

    wait_until(is_read, "all messages", PATIENCE_S)


def committed(node: Node, topic: str, group: str) -> dict[int, int]:
    with Consumer(node.address, topic=topic, group=group) as consumer:
        return consumer.committed()


def owners(node: Node, group: str) -> set[str]:
    with Admin(node.address, timeout_s=PATIENCE_S) as admin:
        return {one.client for one in admin.members(group).queues if one.client is not None}


def test_a_listener_commits_what_was_read_when_its_consumer_is_closed(
    node: Node, topic: str
) -> None:
    class Committing(RebalanceListener):
        def on_revoked(self, queues: Sequence[TopicQueue]) -> None:
            revoked.extend(queues)
            consumer.commit()

    revoked: list[TopicQueue] = []
    consumer = GroupConsumer(node.address, group=topic, listener=Committing())
    consumer.subscribe(topic)
    read_all(consumer)
    consumer.close()
    consumer.close()
    with pytest.raises(ClosedError, match="is closed"):
        consumer.commit()

    assert {one.queue_id for one in revoked if one.topic == topic} == set(range(4))
    assert committed(node, topic, topic) == ALL_READ


def test_a_listener_in_a_loop_has_its_own_time_to_commit_when_its_consumer_is_closed(
    node: Node, topic: str
) -> None:
    class Committing(RebalanceListener):
        async def on_revoked(self, queues: Sequence[TopicQueue]) -> None:
            # Longer than any answer is waited for then.
            await asyncio.sleep(GOODBYE_S + 0.5)
            await consumer.commit()

    consumer = AsyncGroupConsumer(node.address, group=topic, listener=Committing())
    consumer.subscribe(topic)

    async def steps() -> None:
        async with asyncio.timeout(PATIENCE_S), consumer:
            seen = 0
            while seen < MESSAGES:
                seen += len(await consumer.poll(1.0))
        with pytest.raises(ClosedError, match="is closed"):
            await consumer.commit()

    asyncio.run(steps())

    assert committed(node, topic, topic) == ALL_READ
    assert owners(node, topic) == set()


def test_a_member_is_refused_to_another_thread_while_it_is_used(node: Node, topic: str) -> None:
    class Intruded(RebalanceListener):
        def on_assigned(self, queues: Sequence[TopicQueue]) -> None:
            told.extend(refused(lambda: consumer.poll(0), consumer.close))

    told: list[str] = []
    with GroupConsumer(node.address, group=topic, listener=Intruded()) as consumer:
        consumer.subscribe(topic)
        read_all(consumer)
        assert refused(consumer.commit) == [""]

    assert told[:2] == [IN_USE] * 2


def test_queues_are_given_away_although_the_listener_fails(node: Node, topic: str) -> None:
    class Failing(RebalanceListener):
        def on_revoked(self, queues: Sequence[TopicQueue]) -> None:
            raise ArithmeticError("of the application")

    consumer = GroupConsumer(node.address, group=topic, listener=Failing())
    consumer.subscribe(topic)
    read_all(consumer)
    before = owners(node, topic)
    with pytest.raises(ArithmeticError):
        consumer.close()

    assert len(before) == 1
    assert owners(node, topic) == set()


class Interrupting:
    """Traces of a process that is interrupted where a batch is on its way to the application."""

    def received(self, batch: MessageBatch, reader: Reader, since_ns: int) -> None:
        raise KeyboardInterrupt

    def processing(self, message: ReceivedMessage, reader: Reader) -> AbstractContextManager[None]:
        return nullcontext()

    def settling(
        self, name: str, topic: str, reader: Reader, messages: Sequence[ReceivedMessage] = ()
    ) -> AbstractContextManager[None]:
        return nullcontext()


def test_who_is_interrupted_in_a_poll_commits_nothing_that_was_not_given(
    node: Node, topic: str
) -> None:
    interrupted = GroupConsumer(node.address, group=topic, tracing=Interrupting())
    interrupted.subscribe(topic)
    with pytest.raises(KeyboardInterrupt):
        wait_until(lambda: len(interrupted.poll(1.0)), "messages", PATIENCE_S)
    interrupted.commit()
    interrupted.close()
    with GroupConsumer(node.address, group=topic) as consumer:
        consumer.subscribe(topic)
        read_all(consumer)


def test_who_is_interrupted_in_a_poll_is_given_the_same_again(node: Node, topic: str) -> None:
    with Consumer(node.address, topic=topic, start="first", tracing=Interrupting()) as consumer:
        with pytest.raises(KeyboardInterrupt):
            wait_until(lambda: len(consumer.poll(1.0)), "messages", PATIENCE_S)
        consumer._tracing = None
        seen: list[int] = []
        while len(seen) < MESSAGES:
            batch = wait_until(lambda: consumer.poll(1.0), "messages", PATIENCE_S)
            seen += [one.queue_offset for one in batch]

    assert sorted(seen) == sorted(list(range(MESSAGES // 4)) * 4)


CLOSED = "client was closed before the broker answered"


def run(steps: Coroutine[Any, Any, None]) -> None:
    """Run a test's coroutine, not for ever."""
    asyncio.run(asyncio.wait_for(steps, PATIENCE_S))


def test_who_waits_for_an_answer_is_told_when_a_consumer_in_a_loop_is_closed(
    node: Node, topic: str
) -> None:
    async def steps() -> None:
        async with AsyncConsumer(node.address, topic=topic, group=topic) as consumer:
            await consumer.poll(PATIENCE_S)
            committing = asyncio.create_task(consumer.commit())
            asking = asyncio.create_task(consumer.ends())
            await asyncio.sleep(0)
        with pytest.raises(LedgerError, match=CLOSED):
            await committing
        with pytest.raises(LedgerError, match=CLOSED):
            await asking

    run(steps())


def test_who_waits_for_queues_is_told_when_a_producer_in_a_loop_is_closed(node: Node) -> None:
    async def steps() -> None:
        async with AsyncProducer(node.address) as producer:
            sending = asyncio.create_task(producer.send("orders", b"first"))
            await asyncio.sleep(0)
        with pytest.raises(LedgerError, match=CLOSED):
            await sending

    run(steps())


def test_who_flushes_is_let_go_when_a_producer_in_a_loop_is_closed(
    make_node: Callable[[], Node],
) -> None:
    stopped = make_node()
    start_client_node(stopped)

    async def steps() -> None:
        async with AsyncProducer(stopped.address) as producer:
            await producer.send("orders", b"stored")
            os.kill(stopped.pid("writer"), signal.SIGSTOP)
            try:
                unanswered = await producer.submit("orders", b"not answered")
                flushing = asyncio.create_task(producer.flush())
                await asyncio.sleep(0)
                await producer.close(timeout=0.1)
                with pytest.raises(OutcomeUnknownError):
                    await unanswered
                await flushing
            finally:
                os.kill(stopped.pid("writer"), signal.SIGCONT)

    run(steps())


def test_who_waits_for_messages_is_told_when_a_producer_of_threads_is_closed(
    make_node: Callable[[], Node],
) -> None:
    def outcome(future: SendFuture[SendResult]) -> type[BaseException] | None:
        try:
            return type(future.exception())
        except Exception as error:
            return type(error)

    stopped = make_node()
    start_client_node(stopped)
    writer = stopped.pid("writer")
    outcomes: Counter[type[BaseException] | None] = Counter()
    with ThreadPoolExecutor(4) as waiting:
        for _ in range(10):
            producer = Producer(stopped.address)
            producer.send("orders", b"stored").result(PATIENCE_S)
            os.kill(writer, signal.SIGSTOP)
            # The signal is on its way: until it has come a message may still be answered.
            wait_until(lambda: psutil.Process(writer).status() == psutil.STATUS_STOPPED, "its stop")
            try:
                sent = [producer.send("orders", b"not answered") for _ in range(4)]
                told = [waiting.submit(outcome, one) for one in sent]
                producer.close(timeout=0.01)
                outcomes.update(one.result(PATIENCE_S) for one in told)
            finally:
                os.kill(writer, signal.SIGCONT)

    assert outcomes == {OutcomeUnknownError: 40}
