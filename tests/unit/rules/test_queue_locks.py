"""The table of locked queues, and whose locks are live."""

from __future__ import annotations

import pytest

from ledgermq.model.errors import ConfigError
from ledgermq.rules.tables.queue_locks import QueueLeases, QueueLocks
from ledgermq.rules.tables.table_changes import Lock

MINUTE = 60_000


def locked(
    leases: QueueLeases, table: QueueLocks, client: str, *queues: int, now: int
) -> list[int]:
    """What ``client`` owns after it has asked for ``queues``."""
    wanted = {"t": queues}
    for topic, locks in leases.plan_lock("g", client, wanted, lease_ms=MINUTE, now_ms=now).items():
        table.set("g", topic, locks)
    leases.renew("g", client, wanted, now)
    return leases.owned("g", client, wanted)["t"]


@pytest.fixture
def table() -> QueueLocks:
    return QueueLocks()


@pytest.fixture
def leases(table: QueueLocks) -> QueueLeases:
    made = QueueLeases(table)
    made.begin(0)
    return made


def test_a_queue_has_one_owner_until_it_gives_it_away(
    leases: QueueLeases, table: QueueLocks
) -> None:
    first = locked(leases, table, "a", 0, 1, now=10)
    second = locked(leases, table, "b", 0, 1, 2, now=20)
    for topic, locks in leases.plan_unlock("g", "a", {"t": [0, 2]}).items():
        table.set("g", topic, locks)
    third = locked(leases, table, "b", 0, 1, now=30)

    assert first == [0, 1]
    assert second == [2]
    assert third == [0]


def test_a_lock_that_is_not_renewed_ends_and_one_that_is_does_not(
    leases: QueueLeases, table: QueueLocks
) -> None:
    locked(leases, table, "a", 0, 1, now=0)
    leases.renew("g", "a", {"t": [0]}, MINUTE - 1)
    leases.renew("g", "b", {"t": [1]}, MINUTE - 1)  # not its own
    owners = leases.owners("g", MINUTE)
    taken = locked(leases, table, "b", 0, 1, now=MINUTE)

    assert owners == {"t": {0: "a"}}
    assert taken == [1]


def test_a_new_leader_takes_all_locks_in_the_log_for_renewed(
    leases: QueueLeases, table: QueueLocks
) -> None:
    locked(leases, table, "a", 0, now=0)
    successor = QueueLeases(table)
    successor.begin(10 * MINUTE)

    assert locked(successor, table, "b", 0, now=11 * MINUTE - 1) == []
    assert locked(successor, table, "b", 0, now=11 * MINUTE) == [0]


def test_dead_locks_are_cleared_and_live_ones_stay(leases: QueueLeases, table: QueueLocks) -> None:
    locked(leases, table, "a", 0, now=0)
    locked(leases, table, "b", 1, now=100)
    dead = leases.forget_dead("g", MINUTE)

    assert dead == {"t": {0: None}}


def test_the_table_is_read_as_it_was_written(table: QueueLocks) -> None:
    table.set("g", "t", {0: Lock("a", 1_000), 5: Lock("b", 2_000)})
    table.set("h", "t", {0: Lock("a", 1_000)})
    table.set("h", "t", {0: None})
    again = QueueLocks.read(table.to_document())

    assert list(again) == list(table)
    assert again.locks("g", "t") == {0: Lock("a", 1_000), 5: Lock("b", 2_000)}
    assert again.of_group("h") == {}


@pytest.mark.parametrize(
    "value",
    [
        {"t@g": 1},
        {"t": {}},
        {"t@g": {"x": ["a", 1]}},
        {"t@g": {"0": ["", 1]}},
        {"t@g": {"0": ["a"]}},
        {"t@g": {"0": ["a", True]}},
    ],
)
def test_a_table_of_another_shape_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match="t"):
        QueueLocks.read({"lockTable": value})
