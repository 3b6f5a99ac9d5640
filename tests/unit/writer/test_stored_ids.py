"""Ids in bounded memory: what goes, and when."""

from __future__ import annotations

import numpy as np
import pytest

from ledgermq.writer.duplicates.stored_ids import (
    GENERATIONS_MAX,
    SLOT_SIZE,
    IdsUnknownError,
    StoredIds,
)

SLOTS = 16
MEMORY = GENERATIONS_MAX * SLOT_SIZE * SLOTS
IDS = SLOTS // 2
"""Of one generation."""


def put(table: StoredIds, first: int, last: int) -> None:
    """Ids from ``first`` to ``last``, each at ten times its number, stored at that millisecond."""
    for number in range(first, last):
        one = np.array([number], np.int64)
        table.put(one, one * 10, number)


def found(table: StoredIds, *numbers: int) -> list[int]:
    return table.find(np.array(numbers, np.int64)).tolist()


def test_the_newest_position_of_an_id_is_found() -> None:
    table = StoredIds(MEMORY)
    put(table, 1, 3 * IDS)
    table.put(np.array([0, 2], np.int64), np.array([7_000, 8_000], np.int64), 900)

    assert found(table, 0, 1, 2, 3 * IDS - 1, 3 * IDS) == [-1, 10, 8_000, 30 * IDS - 10, -1]


def test_more_than_a_generation_is_put_at_once() -> None:
    table = StoredIds(MEMORY)
    numbers = np.arange(1, 5 * IDS, dtype=np.int64)
    table.put(numbers, numbers * 10, 1)

    assert table.find(numbers).tolist() == (numbers * 10).tolist()
    assert len(table) == len(numbers)


def test_the_oldest_go_when_memory_is_full_and_the_index_has_them() -> None:
    table = StoredIds(MEMORY)
    table.begin(0, 0)
    for number in range(1, 3 * GENERATIONS_MAX * IDS):
        table.make_room(1, indexed=10 * number, oldest_ms=0)
        put(table, number, number + 1)
    last = 3 * GENERATIONS_MAX * IDS - 1
    oldest = next(number for number in range(1, last) if found(table, number) != [-1])

    assert len(table) <= GENERATIONS_MAX * IDS
    assert len(table) > (GENERATIONS_MAX - 2) * IDS
    assert found(table, last, last - len(table) + 1) != [-1, -1]
    assert table.complete_since_ms == oldest
    assert table.complete_from == 10 * (oldest - 1) + 1


def test_what_the_index_lacks_stays_and_no_more_is_taken() -> None:
    table = StoredIds(MEMORY)
    put(table, 1, GENERATIONS_MAX * IDS + 1)

    with pytest.raises(IdsUnknownError, match="deduplication_memory_bytes"):
        table.make_room(1, indexed=10 * IDS, oldest_ms=0)
    assert found(table, 1) == [10]
    table.make_room(1, indexed=10 * IDS + 1, oldest_ms=0)
    assert found(table, 1, IDS, IDS + 1) == [-1, -1, 10 * IDS + 10]


def test_what_nobody_looks_for_goes_first() -> None:
    table = StoredIds(MEMORY)
    put(table, 1, 4 * IDS + 1)
    table.make_room(1, indexed=0, oldest_ms=2 * IDS + 1)

    assert found(table, 2 * IDS, 2 * IDS + 1) == [-1, 20 * IDS + 10]
    assert table.complete_since_ms == 2 * IDS + 1


def test_a_fresh_beginning_forgets_all() -> None:
    table = StoredIds(MEMORY)
    put(table, 1, 9)
    table.begin(500, 77)

    assert (len(table), table.complete_from, table.complete_since_ms) == (0, 500, 77)
    assert found(table, 1) == [-1]
