"""The ring hands entries over whole, in order, and never over one that was not released."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.ipc.append_ring import AppendRing, RingEntry
from ledgermq.model.errors import ProtocolError, StaleGenerationError


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=60), st.integers(1, 5))
def test_entries_come_out_as_they_went_in(
    tmp_path_factory: pytest.TempPathFactory, entries: list[bytes], lag: int
) -> None:
    path = tmp_path_factory.mktemp("ring") / "ring"
    producer = AppendRing.create(path, 1_024)
    consumer = AppendRing.attach(path)
    waiting: deque[tuple[RingEntry, bytes]] = deque()
    for entry in entries:
        placed = producer.put(entry)
        while placed is None or len(waiting) > lag:
            oldest, expected = waiting.popleft()

            assert bytes(consumer.take(oldest)) == expected
            consumer.release(oldest)
            placed = placed or producer.put(entry)
        waiting.append((placed, entry))
    for placed, expected in waiting:
        assert bytes(consumer.take(placed)) == expected


def test_a_full_ring_takes_nothing_until_room_is_released(tmp_path: Path) -> None:
    ring = AppendRing.create(tmp_path / "ring", 100)
    first = ring.put(b"a" * 60)
    assert first is not None
    refused = ring.put(b"b" * 60)
    ring.release(first)

    assert refused is None
    assert ring.put(b"b" * 60) is not None


def test_an_entry_outside_the_ring_is_refused(tmp_path: Path) -> None:
    ring = AppendRing.create(tmp_path / "ring", 100)
    for offset, size in ((-1, 10), (95, 10), (0, 0), (0, 101)):
        with pytest.raises(ProtocolError, match="outside the append ring"):
            ring.take(RingEntry(offset, size, 10))


def test_attaching_to_no_ring_is_told(tmp_path: Path) -> None:
    with pytest.raises(StaleGenerationError):
        AppendRing.attach(tmp_path / "none")
    (tmp_path / "other").write_bytes(bytes(200))
    with pytest.raises(StaleGenerationError):
        AppendRing.attach(tmp_path / "other")
