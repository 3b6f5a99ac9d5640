"""What is added to the tables: a rate for each who adds."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgermq.broker.state.broker_tables import BURST_S, BrokerTables, TableRoom
from ledgermq.ipc.counters import BrokerCounter, no_counts
from ledgermq.model.config.settings import LimitsSection, Settings, StoreSection
from ledgermq.model.errors import QuotaError
from ledgermq.process.clock import MachineClock
from ledgermq.rules.tables.table_changes import TopicSet
from ledgermq.rules.tables.topics import Topic
from tests.unit.broker.memory_log import root_of


class SetClock(MachineClock):
    """Its time is set."""

    def __init__(self) -> None:
        self.ns = 0

    def monotonic_ns(self) -> int:
        return self.ns


def topics(first: int, count: int = 1) -> list[TopicSet]:
    return [
        TopicSet(f"t{one}", Topic(f"t{one}", 1, 1).to_fields())
        for one in range(first, first + count)
    ]


def test_who_creates_too_much_waits_and_others_do_not(tmp_path: Path) -> None:
    made = Settings(store=StoreSection(path_root_dir=root_of(tmp_path)))
    clock, counts = SetClock(), no_counts()
    tables = BrokerTables(tmp_path / "config", made)
    room = TableRoom(tables, LimitsSection(creations_per_s=2), clock=clock, counts=counts)
    for number in range(2 * BURST_S + 1):
        room.check(topics(number), "10.0.0.9")
    with pytest.raises(QuotaError, match=r"limits.creations_per_s.*retry_after_ms=500"):
        room.check(topics(900), "10.0.0.9")
    refused = counts[BrokerCounter.CREATIONS_REFUSED]
    room.check(topics(901), "10.0.0.1")
    room.check(topics(902, 500))
    room.check(topics(902, 500), "10.0.0.9")
    clock.ns += 500_000_000
    room.check(topics(2_000), "10.0.0.9")
    room.limits = LimitsSection(creations_per_s=0)
    for number in range(3_000, 3_100):
        room.check(topics(number), "10.0.0.9")

    assert refused == 1
