"""Transactions while leaders die: all of one or nothing, each message once, none too early."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress

import psutil
import pytest

from ledgermq.client import (
    Consumer,
    Decision,
    ProducerOptions,
    SendResult,
    TransactionalProducer,
    TransactionError,
    UndecidedTransaction,
)
from ledgermq.client.core.questions import asking
from ledgermq.client.reading.pull_pipeline import ConsumerOptions
from ledgermq.client.sending.send_future import SendFuture
from ledgermq.model.errors import LedgerError, OutcomeUnknownError
from ledgermq.model.names.transactions import HALF_TOPIC, OP_TOPIC
from ledgermq.store.store_view import StoreView
from ledgermq.verbs.waiting import ListTransactions
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import TOPIC, Group, Member, make_group, producer
from tests.process.test_state_log import broker_of
from tests.process.test_transactions import QUICK
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("LEDGERMQ_LEADER_KILLS", "2"))
SEED = int(os.environ.get("LEDGERMQ_KILL_SEED", random.randrange(2**32)))
WORKERS = 3


class Ledger:
    """What the application knows: which transactions it wants, and what it has sent in them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._decisions: dict[str, Decision] = {}
        self.sent: dict[str, list[bytes]] = defaultdict(list)
        self.ended = 0

    def decide(self, transaction: str, decision: Decision) -> None:
        """Noted before the broker is told, as an application notes it in its database."""
        with self._lock:
            assert self._decisions.setdefault(transaction, decision) is decision

    def decision(self, transaction: str) -> Decision | None:
        with self._lock:
            return self._decisions.get(transaction)

    def wanted(self) -> Counter[bytes]:
        with self._lock:
            return Counter(
                body
                for transaction, bodies in self.sent.items()
                if self._decisions[transaction] is Decision.COMMIT
                for body in bodies
            )


class Worker:
    """Makes one transaction after the other; what becomes of each is drawn."""

    def __init__(self, addresses: Sequence[str], ledger: Ledger, number: int) -> None:
        self.done = 0
        self.failures: list[str] = []
        self._addresses = addresses
        self._ledger = ledger
        self._number = number
        self._chance = random.Random(SEED + number)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(2 * PATIENCE_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            options = ProducerOptions(timeout_s=PATIENCE_S)
            with TransactionalProducer(self._addresses, group="till", options=options) as made:
                while not self._stop.is_set():
                    self._one(made)
        except (LedgerError, AssertionError) as error:
            self.failures.append(repr(error))

    def _one(self, made: TransactionalProducer) -> None:
        transaction = made.transaction()
        ledger, chance = self._ledger, self._chance
        futures: list[SendFuture[SendResult]] = []
        for part in range(chance.randint(1, 4)):
            body = b"%s:%d:%d:%d" % (transaction.id.encode(), self._number, self.done, part)
            ledger.sent[transaction.id].append(body)
            futures.append(transaction.send(TOPIC, body))
        decision = chance.choice((Decision.COMMIT, Decision.COMMIT, Decision.ROLLBACK))
        is_left = chance.random() < 0.1
        try:
            if is_left:
                transaction.leave_open()
                ledger.decide(transaction.id, decision)
            elif decision is Decision.COMMIT:
                # Noted first: whoever sees a message of it looks there. It is wanted once all of it
                # is stored: else the producer rolls it back.
                if all(future.exception() is None for future in futures):
                    ledger.decide(transaction.id, decision)
                transaction.commit()
            else:
                ledger.decide(transaction.id, decision)
                transaction.rollback()
        except TransactionError:
            ledger.decide(transaction.id, Decision.ROLLBACK)
        except OutcomeUnknownError:
            # Not known to have ended, or to be stored: the broker will ask.
            if ledger.decision(transaction.id) is None:
                ledger.decide(transaction.id, Decision.ROLLBACK)
        self.done += 1


class Reader:
    """Reads the topic all the time; no message may be seen before its transaction was committed."""

    def __init__(self, addresses: Sequence[str], ledger: Ledger) -> None:
        self.seen: Counter[bytes] = Counter()
        self.wrong: list[str] = []
        self._addresses = addresses
        self._ledger = ledger
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(2 * PATIENCE_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        options = ConsumerOptions(hold_ms=200)
        with Consumer(self._addresses, topic=TOPIC, start="first", options=options) as consumer:
            while not self._stop.is_set():
                try:
                    batch = consumer.poll(0.5)
                except LedgerError:
                    # No node leads: what was read stays read.
                    continue
                for message in batch:
                    body = bytes(message.body)
                    self.seen[body] += 1
                    transaction = body.partition(b":")[0].decode()
                    if self._ledger.decision(transaction) is not Decision.COMMIT:
                        self.wrong.append(f"{body!r} at {message.queue_offset}")


def kill(member: Member, chance: random.Random) -> str:
    """End the leader, or one of its processes."""
    role = chance.choice(("node", "node", "broker", "writer"))
    if role == "node":
        member.kill()
        member.start()
    else:
        with suppress(ProcessLookupError, psutil.NoSuchProcess):
            os.kill(member.node.pid(role), signal.SIGKILL)
    return role


def quick(member: Member) -> None:
    """Have it ask for half messages soon."""
    lines = [
        f"{key} = {value}" for key, value in {**QUICK, "transaction_check_max": 10_000}.items()
    ]
    with member.node.config.open("a") as config:
        config.write("\n".join(["[transactions]", *lines, ""]))


@pytest.fixture
def group(make_node: Callable[[], Node]) -> Group:
    return make_group(make_node, ack="majority-fsync", prepare=quick)


def half_messages(group: Group) -> int:
    """How many wait for their end, as the leader says."""
    with broker_of(group.addresses) as broker:
        return broker.run(asking(ListTransactions(1)))[0]


def queues_of(member: Member, topic: str) -> dict[int, list[tuple[int, bytes]]]:
    """Queue offsets and bodies of a stopped member's topic, by queue."""
    view = StoreView(member.node.root)
    found: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
    try:
        for queued in view.messages(topic, None):
            message = queued.message
            found[message.queue_id].append((message.queue_offset, bytes(message.body)))
    finally:
        view.close()
    return found


@pytest.mark.long
def test_each_transaction_is_seen_whole_or_not_at_all_while_leaders_die(group: Group) -> None:
    """``LEDGERMQ_LEADER_KILLS`` leaders, or processes of theirs, die under load."""
    chance = random.Random(SEED)
    ledger = Ledger()

    def listener(undecided: UndecidedTransaction) -> Decision | None:
        return ledger.decision(undecided.id)

    # Three nodes take their time to start beside others; whoever asks sooner is told so.
    for member in group.members:
        member.node.wait_ready()
    group.leader()
    with producer(*group.members, timeout_s=PATIENCE_S) as one:
        one.send(TOPIC, b"first", queue_id=0).result()
    ledger.sent["first"].append(b"first")
    ledger.decide("first", Decision.COMMIT)
    reader = Reader(group.addresses, ledger)
    workers = [Worker(group.addresses, ledger, number) for number in range(WORKERS)]
    told: list[str] = []
    for _ in range(KILLS):
        before = [worker.done for worker in workers]
        wait_until(
            lambda before=before: all(
                worker.done > last + 2 or worker.failures
                for worker, last in zip(workers, before, strict=True)
            ),
            "transactions",
            timeout_s=PATIENCE_S,
        )
        leader = group.leader()
        threading.Event().wait(chance.random() / 20)  # anywhere within a transaction
        told.append(kill(leader, chance))
        group.leader()
    for worker in workers:
        worker.stop()
    options = ProducerOptions(timeout_s=PATIENCE_S)
    with TransactionalProducer(group.addresses, group="till", listener=listener, options=options):
        wait_until(
            lambda: half_messages(group) == 0, "the end of all transactions", timeout_s=PATIENCE_S
        )
    wanted = ledger.wanted()
    wait_until(lambda: len(reader.seen) >= len(wanted), "all messages", timeout_s=PATIENCE_S)
    reader.stop()
    group.wait_equal()
    group.stop()

    assert [worker.failures for worker in workers] == [[]] * WORKERS, (SEED, told)
    assert reader.wrong == [], (SEED, told)
    assert reader.seen == wanted, (SEED, told)
    assert group.has_one_log()
    for topic in (TOPIC, HALF_TOPIC, OP_TOPIC):
        for queue_id, rows in queues_of(group.members[0], topic).items():
            assert [offset for offset, _ in rows] == list(range(len(rows))), (topic, queue_id, SEED)
    stored = Counter(
        body for rows in queues_of(group.members[0], TOPIC).values() for _, body in rows
    )
    assert stored == wanted, (SEED, told)
