"""The ring hands records over whole, in order, and never over one that was not released."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.ipc.append_ring import AppendRing, RingKind, RingRecord
from ledgermq.model.errors import ProtocolError, StaleGenerationError

SIZE = 1_024


def content(record: RingRecord | None) -> tuple[int, tuple[int, ...], bytes] | None:
    return None if record is None else (record.kind, record.numbers, bytes(record.data))


@given(st.lists(st.binary(max_size=300), max_size=60), st.integers(1, 5))
def test_records_come_out_as_they_went_in(
    tmp_path_factory: pytest.TempPathFactory, contents: list[bytes], lag: int
) -> None:
    path = tmp_path_factory.mktemp("ring") / "ring"
    producer = AppendRing.create(path, SIZE)
    consumer = AppendRing.attach(path)
    waiting: deque[bytes] = deque()
    taken: list[object] = []

    def take_one() -> None:
        record = consumer.take()
        assert record is not None
        taken.append(content(record))
        consumer.release(record)
        waiting.popleft()

    for number, data in enumerate(contents):
        half = len(data) // 2
        while len(waiting) > lag or not producer.put(
            RingKind.APPEND, (number, -number), data[:half], memoryview(data)[half:]
        ):
            take_one()
        waiting.append(data)
    while waiting:
        take_one()

    assert taken == [
        (RingKind.APPEND, (number, -number, 0, 0, 0, 0), data)
        for number, data in enumerate(contents)
    ]
    assert consumer.take() is None
    assert consumer.is_empty


def test_a_full_ring_takes_nothing_until_room_is_released(tmp_path: Path) -> None:
    ring = AppendRing.create(tmp_path / "ring", SIZE)
    assert ring.put(RingKind.PROPOSE, (1,), b"a" * 600)
    refused = ring.put(RingKind.PROPOSE, (1,), b"b" * 600)
    first = ring.take()
    assert first is not None
    still_refused = ring.put(RingKind.PROPOSE, (1,), b"b" * 600)
    ring.release(first)

    assert (refused, still_refused) == (False, False)
    assert ring.put(RingKind.PROPOSE, (1,), b"b" * 300)


def test_a_consumer_that_attaches_again_takes_what_was_not_released(tmp_path: Path) -> None:
    producer = AppendRing.create(tmp_path / "ring", SIZE)
    dead = AppendRing.attach(tmp_path / "ring")
    for data in (b"one", b"two", b"three"):
        producer.put(RingKind.PROPOSE, (), data)
    first = dead.take()
    assert first is not None
    dead.release(first)
    dead.take()

    assert content(AppendRing.attach(tmp_path / "ring").take()) == (1, (0,) * 6, b"two")


def test_a_record_that_leaves_the_ring_is_refused(tmp_path: Path) -> None:
    ring = AppendRing.create(tmp_path / "ring", SIZE)
    ring.put(RingKind.PROPOSE, (), b"x")
    with (tmp_path / "ring").open("r+b") as file:
        file.seek(64 + 4)
        file.write((SIZE * 2).to_bytes(4, "little"))

    with pytest.raises(ProtocolError, match="outside the append ring"):
        ring.take()


def test_attaching_to_no_ring_is_told(tmp_path: Path) -> None:
    with pytest.raises(StaleGenerationError):
        AppendRing.attach(tmp_path / "none")
    (tmp_path / "other").write_bytes(bytes(200))
    with pytest.raises(StaleGenerationError):
        AppendRing.attach(tmp_path / "other")
