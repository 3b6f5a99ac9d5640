"""All services at once while the power of all fails: each keeps its promises."""

from __future__ import annotations

import random
import time
from collections import Counter

import pytest

from ledgermq.client import Admin
from ledgermq.client.staging import SinkClient
from tests.power.clients import DEAD_TOPIC, SINK, SINK_TOPIC, UNDERTAKERS, Burier, Stager
from tests.power.conftest import MakeMachine
from tests.power.groups import check_unhurt, machines, wait_for_work
from tests.power.machines import (
    Powers,
)
from tests.power.promises import check_content, steady
from tests.process import test_transaction_kills as transactions
from tests.process.conftest import wait_until
from tests.process.group_nodes import TOPIC, Group
from tests.process.service_load import (
    LATER,
    PLAIN,
    STORED,
    Delayer,
    Keeper,
    Load,
    Sender,
    Worker,
)
from tests.process.test_service_kills import (
    RETRIES,
    Till,
    messages_in,
    not_read,
    prepare,
    stored_in,
)
from tests.process.test_state_log import offsets_in_file, wait_same_tables
from tests.suite.patience import PATIENCE_S

pytestmark = [pytest.mark.slow, pytest.mark.power]

SIZES = {"mapped_file_size_commit_log": 1_048_576, "mapped_file_size_consume_queue": 100_000}


class Offices:
    """Clients of delays, timers, transactions, offsets, give-backs, dead letters and sinks."""

    def __init__(self, group: Group, seed: int) -> None:
        addresses = group.addresses
        self.delayer, self.sender = Delayer(addresses, seed), Sender(addresses, seed + 1)
        self.workers = [Worker(addresses, seed + 2 + number, f"w{number}") for number in range(2)]
        self.sender.read = lambda: sum(len(worker.seen) for worker in self.workers)
        self.keeper = Keeper(addresses, seed + 4, 0)
        self.burier, self.stager = Burier(addresses, seed + 5), Stager(addresses, seed + 6)
        self.till = Till(group)
        self.senders: list[Load] = [
            self.delayer, self.sender, self.keeper, self.burier, self.stager,
        ]  # fmt: skip
        self._group = group
        for load in self.all():
            load.start()

    def all(self) -> list[Load]:
        """All but those of transactions, which have no turns."""
        return [*self.senders, *self.workers]

    def wait_for_work(self) -> None:
        """Until each has done something."""
        done = [worker.done for worker in self.till.workers]
        wait_for_work(self.all(), 2)
        wait_until(
            lambda: all(
                worker.done > last or worker.failures
                for worker, last in zip(self.till.workers, done, strict=True)
            ),
            "transactions",
            PATIENCE_S,
        )

    def stop(self) -> None:
        """Let all that is due come, and stop them."""
        for load in self.senders:
            load.stop()
        self.till.stop(self._group)
        wait_until(
            lambda: (
                not not_read(self.sender, self.workers)
                or any(worker.failures for worker in self.workers)
            ),
            "all messages to be read, again if they were given back",
            PATIENCE_S,
        )
        for worker in self.workers:
            worker.stop()
        check_unhurt(self.all())
        wait_until(
            lambda: messages_in(self._group, LATER) >= len(self.delayer.due),
            "what is due",
            PATIENCE_S,
        )
        with SinkClient(self._group.addresses, timeout_s=PATIENCE_S) as sinks:
            steady(lambda: sinks.wait(SINK, self.stager.turns - 1))

    def check(self) -> None:
        """What the stopped members' stores have is what the clients were told."""
        group = self._group
        known = offsets_in_file(group.members[0].node, "keepers", STORED)
        self.till.check(stored_in(group, TOPIC))
        self.delayer.check(stored_in(group, LATER))
        assert stored_in(group, PLAIN) == Counter(self.sender.sent)
        given_back = set().union(*(worker.given_back for worker in self.workers))
        assert given_back <= stored_in(group, RETRIES).keys()
        assert known == {0: self.keeper.acknowledged}
        assert stored_in(group, DEAD_TOPIC) == Counter(self.burier.sent)
        dead = stored_in(group, f"%DLQ%{UNDERTAKERS}")
        assert self.burier.dead <= dead.keys()
        # What was told to be replayed is with the group once more, each dead letter once.
        replayed = stored_in(group, f"%RETRY%{UNDERTAKERS}")
        assert replayed <= dead
        assert replayed.total() >= len(self.burier.replayed)
        rows = stored_in(group, SINK_TOPIC)
        assert rows == Counter(b"%d" % number for number in self.stager.rows)

    def counts(self) -> str:
        """How much there was of each."""
        given_back = sum(len(worker.given_back) for worker in self.workers)
        return (
            f"plain={len(self.sender.sent)} delayed={len(self.delayer.due)}"
            f" in transactions={sum(self.till.ledger.wanted().values())} given back={given_back}"
            f" dead letters={len(self.burier.dead)} replays={len(self.burier.replayed)}"
            f" rows={len(self.stager.rows)} commits={self.keeper.acknowledged}"
        )


def test_all_services_keep_their_promises_when_the_power_fails(
    make_machine: MakeMachine, cuts: int, seed: int
) -> None:
    group = machines(make_machine, prepare=transactions.quick, store=SIZES)
    prepare(group)
    with Admin(group.addresses, timeout_s=PATIENCE_S) as admin:
        admin.create_topic(DEAD_TOPIC, queues=1)
        admin.create_topic(SINK_TOPIC, queues=4)
    powers, chance = Powers(seed), random.Random(seed)
    offices = Offices(group, seed)
    for _ in range(cuts):
        offices.wait_for_work()
        time.sleep(chance.uniform(0, 0.5))  # anywhere within what they do
        powers.fail(group)
        powers.restore(group.members)
        group.leader()
        check_unhurt(offices.all())
        assert offices.till.reader.wrong == []
    offices.stop()
    group.wait_equal()
    wait_same_tables(group)
    assert group.stop() == [0, 0, 0]
    offices.check()
    assert group.has_one_log()
    for member in group.members:
        check_content(member.node.root)
    print(
        f"RESULT services: power failures {powers.failures}, of all {powers.of_all}, lost 0,"
        f" doubled 0; {offices.counts()}"
    )
