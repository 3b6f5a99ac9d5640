"""Transactions against real nodes: all or nothing, exactly once, whoever dies."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ledgermq.client import (
    Consumer,
    Decision,
    ProducerOptions,
    TransactionalProducer,
    TransactionResult,
    UndecidedTransaction,
)
from ledgermq.client.aio import AsyncTransactionalProducer
from ledgermq.client.core.questions import asking
from ledgermq.client.reading.pull_pipeline import ConsumerOptions
from ledgermq.client.sending.transaction_requests import end_steps
from ledgermq.formats.records.message import TRANSACTION_COMMIT, Message
from ledgermq.formats.records.properties import CHECK_IMMUNITY_TIME
from ledgermq.model.errors import (
    LedgerError,
    MessageIllegalError,
    OutcomeUnknownError,
    TopicUnknownError,
    TransactionEndedError,
    TransactionUnknownError,
)
from ledgermq.model.names.transactions import HALF_TOPIC, OP_TOPIC, UNANSWERED_TOPIC
from ledgermq.store.store_view import StoreView
from ledgermq.verbs.waiting import ListTransactions
from ledgermq.wire.session import Refusal
from tests.process.client_node import start_client_node
from tests.process.conftest import SOURCES, Node, wait_until
from tests.process.node_start import run_command, run_python
from tests.process.raw_producer import RawProducer
from tests.process.running import wait_for
from tests.process.test_state_log import broker_of, offsets_in_file
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

GROUP = "till"
QUICK = {
    "transaction_timeout_ms": 50,
    "transaction_check_interval_ms": 100,
    "transaction_check_max": 100,
}


@pytest.fixture(params=["dledger"])
def node(make_node: Callable[[], Node], request: pytest.FixtureRequest) -> Node:
    made = make_node()
    start_client_node(made, log=request.param)
    return made


both_logs = pytest.mark.parametrize("node", ["dledger", "commitlog"], indirect=True)


@pytest.fixture
def quick_node(make_node: Callable[[], Node]) -> Node:
    """One that asks for half messages soon, and often."""
    made = make_node()
    start_client_node(made, transactions=QUICK)
    return made


@pytest.fixture
def producer(node: Node) -> Iterator[TransactionalProducer]:
    with TransactionalProducer(node.address, group=GROUP) as made:
        yield made


def bodies(node: Node, topic: str, count: int) -> list[bytes]:
    """Bodies of all messages of a topic, once there are so many; in no order of queues."""
    options = ConsumerOptions(hold_ms=200)
    found: list[bytes] = []
    deadline = time.monotonic() + PATIENCE_S
    with Consumer(node.address, topic=topic, start="first", options=options) as consumer:
        while len(found) < count:
            assert time.monotonic() < deadline, (topic, found)
            found += [bytes(message.body) for message in consumer.poll(1.0)]
        # Whatever there is too much of would come together with the rest.
        found += [bytes(message.body) for message in consumer.poll(0.05)]
    return sorted(found)


def messages_of(node: Node, topic: str) -> list[Message]:
    """All messages of a topic in a stopped node's store."""
    view = StoreView(node.root)
    try:
        return [queued.message for queued in view.messages(topic, None)]
    finally:
        view.close()


@both_logs
def test_a_committed_message_comes_once_and_a_rolled_back_one_never(
    node: Node, producer: TransactionalProducer
) -> None:
    with producer.transaction() as kept:
        stored = kept.send("orders", b"kept", tag="A", keys=["k"], flag=7, queue_id=2).result()
    dropped = producer.transaction()
    dropped.send("orders", b"dropped").result()
    gone = dropped.rollback()
    with pytest.raises(ZeroDivisionError), producer.transaction() as failed:
        failed.send("orders", b"failed").result()
        raise ZeroDivisionError
    found = bodies(node, "orders", 1)
    producer.close()
    assert node.stop() == 0
    (message,) = messages_of(node, "orders")
    ops = messages_of(node, OP_TOPIC)

    assert (found, gone.decision) == ([b"kept"], Decision.ROLLBACK)
    assert (message.queue_id, message.flag, message.tags, message.keys) == (2, 7, "A", ("k",))
    # As ``EndTransactionProcessor`` writes it.
    assert message.transaction == TRANSACTION_COMMIT
    assert message.prepared_transaction_offset == stored.physical_offset
    properties = message.parsed_properties()
    assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == ("orders", "2")
    assert (properties["PGROUP"], properties["TRAN_MSG"]) == (GROUP, "true")
    assert [(op.tags, bytes(op.body)) for op in ops] == [("d", b"0"), ("d", b"1"), ("d", b"2")]
    assert offsets_in_file(node, "CID_RMQ_SYS_TRANS", HALF_TOPIC) == {0: 3}


def test_messages_of_several_topics_come_together_or_not_at_all(
    node: Node, producer: TransactionalProducer
) -> None:
    with producer.transaction() as transaction:
        for number in range(100):
            transaction.send(("orders", "other")[number % 2], b"%03d" % number)
    with pytest.raises(ZeroDivisionError), producer.transaction() as failed:
        for _ in range(10):
            failed.send("other", b"failed")
        raise ZeroDivisionError
    with pytest.raises(LedgerError, match="has been ended"):
        transaction.send("orders", b"late")
    with pytest.raises(LedgerError, match="has been ended"):
        transaction.commit()

    assert bodies(node, "orders", 50) == [b"%03d" % number for number in range(0, 100, 2)]
    assert bodies(node, "other", 50) == [b"%03d" % number for number in range(1, 100, 2)]


def test_an_end_is_repeated_as_it_was_and_contradicted_by_nobody(
    node: Node, producer: TransactionalProducer
) -> None:
    transaction = producer.transaction()
    stored = transaction.send("orders", b"kept").result()

    def end(decision: Decision, *, group: str = GROUP, messages: int = 1) -> None:
        with broker_of(node.address) as broker:
            broker.run(
                end_steps(
                    group,
                    transaction.id,
                    decision,
                    messages=messages,
                    offset=stored.queue_offset,
                )
            )

    with pytest.raises(TransactionUnknownError):
        end(Decision.COMMIT, group="others")
    with pytest.raises(TransactionUnknownError):
        end(Decision.COMMIT, messages=2)
    transaction.commit()
    end(Decision.COMMIT)
    with pytest.raises(TransactionEndedError, match="the other way"):
        end(Decision.ROLLBACK)

    assert bodies(node, "orders", 1) == [b"kept"]


def test_an_empty_transaction_ends_and_one_that_is_too_large_is_refused(
    node: Node, producer: TransactionalProducer
) -> None:
    with producer.transaction():
        pass
    with (
        pytest.raises(MessageIllegalError, match="too many messages"),
        producer.transaction() as much,
    ):
        for _ in range(201):
            much.send("orders", b"x")
    with (
        pytest.raises(MessageIllegalError, match="too many bytes"),
        producer.transaction() as large,
    ):
        for _ in range(10):
            large.send("orders", bytes(1_000_000))
    with (
        pytest.raises(MessageIllegalError, match="not the application's"),
        producer.transaction() as strange,
    ):
        strange.send("orders", b"x", properties={"PGROUP": "others"})
    with producer.transaction() as fine:
        fine.send("orders", bytes(900_000))

    assert bodies(node, "orders", 1) == [bytes(900_000)]


def test_nobody_writes_to_the_topics_of_transactions_but_half_messages(node: Node) -> None:
    producer = RawProducer(node.runtime)
    half = {"TRAN_MSG": "true", "PGROUP": "g", "REAL_TOPIC": "orders", "REAL_QID": "0"}
    try:
        plain = [producer.send(b"x", topic=topic) for topic in (OP_TOPIC, UNANSWERED_TOPIC)]  # type: ignore[arg-type]
        wrong = [
            producer.send_one(b"x", topic=HALF_TOPIC, properties=properties)
            for properties in (
                {},
                {**half, "TRAN_MSG": "false"},
                {**half, "PGROUP": ""},
                {**half, "REAL_TOPIC": HALF_TOPIC},
                {**half, "REAL_TOPIC": OP_TOPIC},
                {**half, "REAL_TOPIC": "never-made"},
                {**half, "REAL_QID": "4"},
                {**half, "REAL_QID": "-1"},
                {**half, "TRANSACTION_CHECK_TIMES": "3"},
                {**half, "DELAY": "3"},
            )
        ]
        right = producer.send_one(b"x", topic=HALF_TOPIC, properties=half)
        other_queue = producer.send_one(b"x", topic=HALF_TOPIC, queue_id=1, properties=half)
    finally:
        producer.close()
    refused = [*plain, *wrong, other_queue]

    assert all(isinstance(answer, Refusal) and answer.stored == "no" for answer in refused)
    assert not isinstance(right, Refusal)


def test_a_listener_is_asked_how_the_transactions_of_a_dead_producer_ended(
    quick_node: Node,
) -> None:
    first = TransactionalProducer(quick_node.address, group=GROUP)
    orphan = first.transaction()
    for number in range(3):
        orphan.send("orders", b"%d" % number).result()
    left = first.send("orders", b"left", lambda _: None)
    dropped = first.send("orders", b"dropped", lambda _: None)
    first.close()
    asked: list[UndecidedTransaction] = []
    decisions = {orphan.id: Decision.COMMIT, dropped.id: Decision.ROLLBACK}

    def listener(undecided: UndecidedTransaction) -> Decision | None:
        asked.append(undecided)
        if undecided.id == left.id and undecided.checks >= 3:
            return Decision.COMMIT
        return decisions.get(undecided.id)

    with TransactionalProducer(quick_node.address, group=GROUP, listener=listener):
        found = bodies(quick_node, "orders", 4)
    assert quick_node.stop() == 0
    seen = next(one for one in asked if one.id == orphan.id)

    assert found == [b"0", b"1", b"2", b"left"]
    assert sorted((one.topic, one.body) for one in seen.messages) == [
        ("orders", b"0"),
        ("orders", b"1"),
        ("orders", b"2"),
    ]
    assert left.decision is None
    assert Counter(bytes(one.body) for one in messages_of(quick_node, "orders")) == Counter(found)


def kept_aside(node: Node) -> list[bytes]:
    """The first message that nobody has answered for, once there is one."""
    with broker_of(node.address) as broker:
        wait_until(
            lambda: any(row.topic == UNANSWERED_TOPIC for row in broker.topics()),
            "the message to be kept aside",
            timeout_s=PATIENCE_S,
        )
    return bodies(node, UNANSWERED_TOPIC, 1)


def test_what_nobody_answers_for_is_kept_aside_after_so_many_checks(
    make_node: Callable[[], Node],
) -> None:
    node = make_node()
    start_client_node(node, transactions={**QUICK, "transaction_check_max": 3})
    with TransactionalProducer(node.address, group=GROUP) as producer:
        lost = producer.send("orders", b"lost", lambda _: None)
    found = kept_aside(node)
    with broker_of(node.address) as broker, pytest.raises(TransactionUnknownError):
        broker.run(end_steps(GROUP, lost.id, Decision.COMMIT, messages=1, offset=0))
    assert node.stop() == 0
    (message,) = messages_of(node, UNANSWERED_TOPIC)
    times = [one.parsed_properties() for one in messages_of(node, HALF_TOPIC)]

    assert found == [b"lost"]
    assert message.parsed_properties()["TRANSACTION_CHECK_TIMES"] == "3"
    assert [one.get("TRANSACTION_CHECK_TIMES") for one in times] == [None, "1", "2", "3"]
    assert not (node.root / "consumequeue" / "orders").exists()


def test_rounds_in_which_a_message_asks_to_be_left_alone_count_as_no_checks(
    make_node: Callable[[], Node],
) -> None:
    node = make_node()
    checks_max = 3
    start_client_node(node, transactions={**QUICK, "transaction_check_max": checks_max})
    asked: list[UndecidedTransaction] = []

    def listener(undecided: UndecidedTransaction) -> Decision | None:
        asked.append(undecided)
        return Decision.COMMIT

    with TransactionalProducer(node.address, group=GROUP) as producer:
        # The one behind it that nobody answers for is put aside meanwhile.
        for body, seconds in ((b"patient", "4"), (b"lost", "0")):
            left = producer.transaction()
            left.send("orders", body, properties={CHECK_IMMUNITY_TIME: seconds}).result()
            left.leave_open()
    lost = kept_aside(node)
    with TransactionalProducer(node.address, group=GROUP, listener=listener):
        found = bodies(node, "orders", 1)
    assert node.stop() == 0
    copies = [one for one in messages_of(node, HALF_TOPIC) if one.body == b"patient"]
    times = [one.parsed_properties().get("TRANSACTION_CHECK_TIMES") for one in copies]

    assert (lost, found) == ([b"lost"], [b"patient"])
    assert asked[0].checks == 0
    # It was passed over more often than anybody may be asked for it.
    assert times.count(None) > checks_max
    assert len(messages_of(node, UNANSWERED_TOPIC)) == 1


def test_what_is_left_open_with_a_message_that_failed_is_the_listeners_to_end(
    quick_node: Node,
) -> None:
    asked: list[str] = []

    def listener(undecided: UndecidedTransaction) -> Decision | None:
        asked.append(undecided.id)
        return Decision.ROLLBACK

    with TransactionalProducer(
        quick_node.address, group=GROUP, listener=listener, options=ProducerOptions(timeout_s=1)
    ) as producer:
        left = producer.transaction()
        left.send("orders", b"stored").result()
        writer = quick_node.pid("writer")
        os.kill(writer, signal.SIGSTOP)
        left.send("orders", b"not answered in time")
        with pytest.raises(OutcomeUnknownError):
            left.leave_open()
        os.kill(writer, signal.SIGCONT)
        with broker_of(quick_node.address) as broker:
            wait_until(lambda: not broker.run(asking(ListTransactions(1)))[0], "nothing is open")

    assert set(asked) == {left.id}
    assert bodies(quick_node, "orders", 0) == []


def test_many_threads_have_their_transactions_at_once(
    node: Node, producer: TransactionalProducer
) -> None:
    numbers = itertools.count()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(25):
                with producer.transaction() as transaction:
                    number = next(numbers)
                    transaction.send("orders", b"%d" % number)
                    transaction.send("other", b"%d" % number)
        except LedgerError as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    wanted = sorted(b"%d" % number for number in range(200))

    assert failures == []
    assert bodies(node, "orders", 200) == wanted
    assert bodies(node, "other", 200) == wanted


@both_logs
def test_a_node_that_was_killed_knows_how_transactions_ended(node: Node) -> None:
    with TransactionalProducer(node.address, group=GROUP) as producer:
        with producer.transaction() as kept:
            kept.send("orders", b"kept").result()
        open_ = producer.transaction()
        open_.send("orders", b"later").result()
        for role in ("broker", "writer"):
            os.kill(node.pid(role), signal.SIGKILL)
            wait_until(lambda role=role: role in node.pids(), f"{role} to be back")
        open_.commit()
        with broker_of(node.address) as broker:
            broker.run(end_steps(GROUP, kept.id, Decision.COMMIT, messages=1, offset=0))
            with pytest.raises(TransactionEndedError):
                broker.run(end_steps(GROUP, kept.id, Decision.ROLLBACK, messages=1, offset=0))

    assert bodies(node, "orders", 2) == [b"kept", b"later"]


def test_asyncio_has_the_same_transactions(node: Node) -> None:
    asked: list[str] = []

    async def listener(undecided: UndecidedTransaction) -> Decision | None:
        asked.append(undecided.id)
        return Decision.COMMIT

    async def commits(_: str) -> Decision:
        return Decision.COMMIT

    async def leaves(_: str) -> None:
        return None

    async def work() -> tuple[TransactionResult, TransactionResult]:
        async with AsyncTransactionalProducer(
            node.address, group=GROUP, listener=listener
        ) as producer:
            async with producer.transaction() as both:
                await both.send("orders", b"both")
                await both.send("other", b"both")
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction() as failed:
                    await failed.send("orders", b"failed")
                    raise ZeroDivisionError
            with pytest.raises(TopicUnknownError):
                async with producer.transaction() as wrong:
                    await wrong.send("orders", b"wrong", queue_id=99)
            kept = await producer.send("orders", b"kept", commits)
            return kept, await producer.send("orders", b"left", leaves)

    kept, left = asyncio.run(work())

    assert (kept.decision, left.decision, len(left.messages)) == (Decision.COMMIT, None, 1)
    assert bodies(node, "orders", 2) == [b"both", b"kept"]
    assert bodies(node, "other", 1) == [b"both"]


def test_who_gives_up_waiting_for_a_message_ends_its_transaction_all_the_same(node: Node) -> None:
    async def commits(_: str) -> Decision:
        return Decision.COMMIT

    async def work() -> None:
        async with AsyncTransactionalProducer(node.address, group=GROUP) as producer:
            await producer.send("orders", b"first", commits)
            writer = node.pid("writer")
            os.kill(writer, signal.SIGSTOP)
            try:
                async with producer.transaction() as late:
                    sent = await late.send("orders", b"late")
                    with pytest.raises(TimeoutError):
                        await asyncio.wait_for(sent, 0.01)
                    os.kill(writer, signal.SIGCONT)
            finally:
                os.kill(writer, signal.SIGCONT)

    asyncio.run(work())

    assert bodies(node, "orders", 2) == [b"first", b"late"]


def test_an_asyncio_listener_answers_for_a_dead_producer(quick_node: Node) -> None:
    with TransactionalProducer(quick_node.address, group=GROUP) as first:
        left = first.send("orders", b"left", lambda _: None)

    async def work() -> UndecidedTransaction:
        asked: asyncio.Future[UndecidedTransaction] = asyncio.get_running_loop().create_future()

        async def listener(undecided: UndecidedTransaction) -> Decision | None:
            if not asked.done():
                asked.set_result(undecided)
                # An application's error leaves the answer to the next question.
                raise ZeroDivisionError
            return Decision.COMMIT

        async with AsyncTransactionalProducer(quick_node.address, group=GROUP, listener=listener):
            found = await asyncio.wait_for(asked, PATIENCE_S)
            seen = await asyncio.to_thread(bodies, quick_node, "orders", 1)
            assert seen == [b"left"]
            return found

    assert asyncio.run(work()).id == left.id


def test_the_command_shows_what_waits_and_ends_it(node: Node) -> None:
    def run(*words: str) -> tuple[int, str]:
        done = run_command("transaction", *words, "--address", node.address)
        return done.returncode, done.stdout + done.stderr

    nothing = run("list")
    with TransactionalProducer(node.address, group=GROUP) as producer:
        kept, dropped = (producer.transaction() for _ in range(2))
        kept.send("orders", b"kept").result()
        kept.send("other", b"kept").result()
        dropped.send("orders", b"dropped").result()
        # The list is of what is dispatched, which follows the acknowledgement.
        wait_for(lambda: dropped.id in run("list")[1], "the list to have both")
        status, shown = run("list", "--json")
        table = run("list")
        committed = run("commit", GROUP, kept.id, "2")
        again = run("commit", GROUP, kept.id, "2")
        contradicted = run("rollback", GROUP, kept.id)
        rolled_back = run("rollback", GROUP, dropped.id)
        unknown = run("rollback", "others", "never-made")
    rows = json.loads(shown)["transactions"]

    assert nothing == (0, "no transaction waits for its end\n")
    assert (status, [row["transaction"] for row in rows]) == (0, [kept.id, dropped.id])
    assert rows[0]["topics"] == ["orders", "other"]
    assert (table[0], GROUP in table[1], kept.id in table[1]) == (0, True, True)
    assert committed == (0, "commit: 2 messages\n")
    assert again == (0, "commit: it had ended so before\n")
    assert (contradicted[0], "the other way" in contradicted[1]) == (1, True)
    assert rolled_back == (0, "rollback: 1 messages\n")
    assert unknown[0] == 1
    assert bodies(node, "orders", 1) == [b"kept"]


def test_the_example_books_and_tells(node: Node) -> None:
    example = SOURCES / "examples" / "transactions.py"
    done = run_python(example, node.address, node.folder / "orders.db")
    lines = done.stdout.splitlines()

    assert (done.returncode, done.stderr) == (0, "")
    assert lines[:3] == ["apples: commit", "pears: commit", "apples: rollback"]
    assert bodies(node, "orders", 3) == [b"apples", b"pears", b"plums"]
    assert bodies(node, "stock", 1) == [b"plums: 7 less"]


def test_what_rocketmq_has_left_open_is_asked_for_and_ended(
    make_node: Callable[[], Node], golden_copy: Callable[[str], Path]
) -> None:
    node = make_node()
    node.root = golden_copy("gs1.live")
    node.configure(
        store={
            "path_root_dir": str(node.root),
            "log": "commitlog",
            "max_hash_slot_num": 500,
            "max_index_num": 400,
        },
        transactions={**QUICK, "transaction_check_max": 1_000},
    )
    node.serve()
    wanted = {"tx2": Decision.COMMIT, "tx8": Decision.COMMIT, "tx5": Decision.ROLLBACK}
    asked: dict[str, UndecidedTransaction] = {}

    def listener(undecided: UndecidedTransaction) -> Decision | None:
        (message,) = undecided.messages
        (key,) = message.keys
        asked[key] = undecided
        return wanted.get(key)

    with TransactionalProducer(node.address, group="golden-tx", listener=listener):
        found = bodies(node, "tx", 6)
        with broker_of(node.address) as broker:
            wait_until(
                lambda: broker.run(asking(ListTransactions(10)))[0] == 1 and "tx11" in asked,
                "the end of tx5, and the question for tx11",
                timeout_s=PATIENCE_S,
            )
    with broker_of(node.address) as broker:
        (left,) = broker.run(asking(ListTransactions(10)))[1]
    assert node.stop() == 0
    stored = {one.keys[0]: one for one in messages_of(node, "tx")}

    # RocketMQ had committed four, rolled back four, and put the other four again, three times; its
    # file of offsets is older than the last of that, so that they stand in the queue twice.
    assert sorted(asked) == ["tx11", "tx2", "tx5", "tx8"]
    assert found == [b"tx 0", b"tx 2", b"tx 3", b"tx 6", b"tx 8", b"tx 9"]
    assert (asked["tx2"].checks >= 3, asked["tx2"].messages[0].topic) == (True, "tx")
    assert (left.group, left.messages, left.topics) == ("golden-tx", 1, ("tx",))
    assert stored["tx8"].transaction == stored["tx0"].transaction == TRANSACTION_COMMIT
    assert stored["tx8"].queue_id == 0
