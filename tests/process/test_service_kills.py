"""Everything a broker does at once, while leaders die: nothing lost, nothing twice, nothing early.

``LEDGERMQ_LEADER_KILLS=100 python -m pytest tests/process/test_service_kills.py`` for the long run.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from ledgermq.client import TransactionalProducer
from ledgermq.model.limits import DELAY_TOPIC, TIMER_TOPIC
from ledgermq.model.names.transactions import HALF_TOPIC, OP_TOPIC
from tests.process import test_transaction_kills as transactions
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import TOPIC, Group, make_group, producer
from tests.process.service_load import (
    GROUP,
    LATER,
    OPTIONS,
    PLAIN,
    STORED,
    Delayer,
    Keeper,
    Load,
    Sender,
    Worker,
    wait_for_turns,
)
from tests.process.test_state_log import broker_of, offsets_in_file, wait_same_tables
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("LEDGERMQ_LEADER_KILLS", "2"))
SEED = int(os.environ.get("LEDGERMQ_KILL_SEED", random.randrange(2**32)))
RETRIES = f"%RETRY%{GROUP}"
STORED_COUNT = 40_000
SIZES = {"mapped_file_size_commit_log": 4_194_304, "mapped_file_size_consume_queue": 100_000}


@pytest.fixture
def group(make_node: Callable[[], Node]) -> Group:
    return make_group(make_node, ack="majority-fsync", sizes=SIZES, prepare=transactions.quick)


class Till:
    """Producers of transactions, and a reader of what they make visible."""

    def __init__(self, group: Group) -> None:
        self.ledger = transactions.Ledger()
        self.reader = transactions.Reader(group.addresses, self.ledger)
        self.workers = [
            transactions.Worker(group.addresses, self.ledger, number) for number in range(2)
        ]

    def stop(self, group: Group) -> None:
        """End all transactions, and read what is visible."""
        for worker in self.workers:
            worker.stop()
        with TransactionalProducer(
            group.addresses,
            group="till",
            listener=lambda undecided: self.ledger.decision(undecided.id),
            options=OPTIONS,
        ):
            wait_until(
                lambda: transactions.half_messages(group) == 0,
                "the end of all transactions",
                timeout_s=PATIENCE_S,
            )
        wanted = self.ledger.wanted()
        wait_until(
            lambda: len(self.reader.seen) >= len(wanted), "all messages", timeout_s=PATIENCE_S
        )
        self.reader.stop()

    def check(self, stored: Counter[bytes]) -> None:
        assert [worker.failures for worker in self.workers] == [[]] * len(self.workers)
        assert self.reader.wrong == []
        assert self.reader.seen == self.ledger.wanted() == stored


def prepare(group: Group) -> None:
    """Topics that are there, and messages whose offsets are committed."""
    for member in group.members:
        member.node.wait_ready()
    group.leader()
    with broker_of(group.addresses) as broker:
        for topic, queues in ((LATER, 4), (PLAIN, 4), (STORED, 1)):
            broker.create_topic(topic, queues)
    with producer(*group.members, timeout_s=PATIENCE_S) as one:
        for _ in range(STORED_COUNT // 500):
            one.send_batch(STORED, [b"x"] * 500, queue_id=0).result()


def kill_leaders(group: Group, loads: Sequence[Load], till: Till, chance: random.Random) -> None:
    """Again and again, each time after everybody has done something."""
    for number in range(KILLS):
        begin = time.monotonic()
        done = [worker.done for worker in till.workers]
        wait_for_turns(loads, 3, wait_until)
        wait_until(
            lambda done=done: all(
                worker.done > last or worker.failures
                for worker, last in zip(till.workers, done, strict=True)
            ),
            "transactions",
            timeout_s=PATIENCE_S,
        )
        threading.Event().wait(chance.random() / 10)  # anywhere within what they do
        leader = group.leader()
        leader.kill()
        group.leader(besides=leader)
        leader.start()
        leader.node.wait_ready()
        print(
            f"kill {number + 1}: {leader.name} after {time.monotonic() - begin:.1f} s", flush=True
        )
        assert not any(load.failures for load in loads), [load.failures for load in loads]


def stored_in(group: Group, topic: str) -> Counter[bytes]:
    """Bodies of a stopped group's topic; its queue offsets have neither hole nor twin."""
    queues = transactions.queues_of(group.members[0], topic)
    for queue_id, rows in queues.items():
        assert [offset for offset, _ in rows] == list(range(len(rows))), (topic, queue_id)
    return Counter(body for rows in queues.values() for _, body in rows)


def messages_in(group: Group, topic: str) -> int:
    """How many the leader has."""
    with broker_of(group.addresses) as broker:
        return {row.topic: row.messages for row in broker.topics()}.get(topic, 0)


def not_read(sender: Sender, workers: Sequence[Worker]) -> set[bytes]:
    """What the group has not read, or not again although it gave it back."""
    seen: set[bytes] = set().union(*(worker.seen.copy() for worker in workers))
    again: set[bytes] = set().union(*(worker.again.copy() for worker in workers))
    given_back: set[bytes] = set().union(*(worker.given_back.copy() for worker in workers))
    return {*sender.sent} - seen | given_back - again


@pytest.mark.long
def test_all_services_keep_their_promises_while_leaders_die(group: Group) -> None:
    """``LEDGERMQ_LEADER_KILLS`` leaders die under a load of all that a broker does."""
    print(f"LEDGERMQ_KILL_SEED={SEED} LEDGERMQ_LEADER_KILLS={KILLS}")
    prepare(group)
    addresses = group.addresses
    delayer, sender = Delayer(addresses, SEED), Sender(addresses, SEED + 1)
    workers = [Worker(addresses, SEED + 2 + number, f"w{number}") for number in range(2)]
    sender.read = lambda: sum(len(worker.seen) for worker in workers)
    keeper = Keeper(addresses, SEED + 4, 0)
    loads: list[Load] = [delayer, sender, keeper]
    for load in (*loads, *workers):
        load.start()
    till = Till(group)
    kill_leaders(group, [*loads, *workers], till, random.Random(SEED))
    for load in loads:
        load.stop()
    till.stop(group)
    deadline = time.monotonic() + PATIENCE_S
    while not_read(sender, workers) and time.monotonic() < deadline:
        if any(worker.failures for worker in workers):
            break
        threading.Event().wait(0.1)
    missing = not_read(sender, workers)
    assert not missing, (SEED, [worker.failures for worker in workers], sorted(missing)[:10])
    for worker in workers:
        worker.stop()
    wait_until(
        lambda: messages_in(group, LATER) >= len(delayer.due),
        "what is due",
        timeout_s=PATIENCE_S,
    )
    group.wait_equal()
    wait_same_tables(group)
    statuses = group.stop()
    known = offsets_in_file(group.members[0].node, "keepers", STORED)

    assert [load.failures for load in (*loads, *workers)] == [[]] * 5, SEED
    assert statuses == [0, 0, 0]
    assert group.has_one_log()
    till.check(stored_in(group, TOPIC))
    delayer.check(stored_in(group, LATER))
    assert stored_in(group, PLAIN) == Counter(sender.sent)
    given_back = set().union(*(worker.given_back for worker in workers))
    assert given_back
    assert given_back <= stored_in(group, RETRIES).keys()
    assert known == {0: keeper.acknowledged}
    for topic in (DELAY_TOPIC, TIMER_TOPIC, HALF_TOPIC, OP_TOPIC, STORED):
        assert stored_in(group, topic), topic
    decided = till.ledger.wanted()
    print(
        f"kills={KILLS} plain={len(sender.sent)} delayed={len(delayer.due)}"
        f" cancelled or far={len(delayer.never)} in transactions={sum(decided.values())}"
        f" given back={len(given_back)} commits={keeper.acknowledged}"
    )
