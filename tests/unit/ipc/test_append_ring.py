"""The ring hands records over whole, in order, and never over one that was not released."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.ipc.append_ring import (
    AppendRing,
    LeaderEntries,
    ProposedRecord,
    RepairedBytes,
    RingContent,
    RingRecord,
)
from ledgermq.model.errors import ProtocolError, StaleGenerationError
from ledgermq.model.ids import Index, Position, Term

SIZE = 1_024
PROPOSED = ProposedRecord(Term(1))


def content(record: RingRecord | None) -> tuple[RingContent, bytes] | None:
    return None if record is None else (record.content, bytes(record.data))


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
            RepairedBytes(number, 1, Position(-number)), data[:half], memoryview(data)[half:]
        ):
            take_one()
        waiting.append(data)
    while waiting:
        take_one()

    assert taken == [
        (RepairedBytes(number, 1, Position(-number)), data) for number, data in enumerate(contents)
    ]
    assert consumer.take() is None
    assert consumer.taken == consumer.head[0]


def test_a_full_ring_takes_nothing_until_room_is_released(tmp_path: Path) -> None:
    ring = AppendRing.create(tmp_path / "ring", SIZE)
    assert ring.put(PROPOSED, b"a" * 600)
    refused = ring.put(PROPOSED, b"b" * 600)
    first = ring.take()
    assert first is not None
    still_refused = ring.put(PROPOSED, b"b" * 600)
    ring.release(first)

    assert (refused, still_refused) == (False, False)
    assert ring.put(PROPOSED, b"b" * 300)


def test_an_empty_ring_begins_anew_where_its_first_records_were(tmp_path: Path) -> None:
    producer = AppendRing.create(tmp_path / "ring", SIZE)
    consumer = AppendRing.attach(tmp_path / "ring")
    heads = []
    for number in range(20):
        assert producer.put(PROPOSED, bytes([number]) * 100)
        record = consumer.take()
        assert content(record) == (PROPOSED, bytes([number]) * 100)
        assert record is not None
        heads.append(record.head % SIZE)
        consumer.release(record)

    # 192 bytes each: the second one passes a quarter of the ring.
    assert heads == [192, 384] * 10


def test_a_consumer_that_attaches_again_takes_what_was_not_released(tmp_path: Path) -> None:
    producer = AppendRing.create(tmp_path / "ring", SIZE)
    dead = AppendRing.attach(tmp_path / "ring")
    for data in (b"one", b"two", b"three"):
        producer.put(PROPOSED, data)
    first = dead.take()
    assert first is not None
    dead.release(first)
    dead.take()

    assert content(AppendRing.attach(tmp_path / "ring").take()) == (PROPOSED, b"two")


@pytest.mark.parametrize(
    ("put", "header"),
    [
        (ProposedRecord(Term(7)), (1, 4, 7, 0, 0, 0, 0, 0)),
        (
            LeaderEntries(Position(100), Index(9), Term(7), -3, 64),
            (2, 4, 100, 9, 7, -3, 64, 0),
        ),
        (RepairedBytes(5, 1, Position(100)), (3, 4, 5, 1, 100, 0, 0, 0)),
    ],
)
def test_a_record_is_the_same_bytes_as_ever_and_comes_back(
    tmp_path: Path, put: RingContent, header: tuple[int, ...]
) -> None:
    ring = AppendRing.create(tmp_path / "ring", SIZE)
    ring.put(put, b"data")
    record = ring.take()

    assert (tmp_path / "ring").read_bytes()[64:132] == pack("<2I6q8x", *header) + b"data"
    assert record is not None and type(record.content) is type(put)
    assert content(record) == (put, b"data")


def test_an_unknown_record_is_refused(tmp_path: Path) -> None:
    ring = AppendRing.create(tmp_path / "ring", SIZE)
    ring.put(PROPOSED, b"x")
    with (tmp_path / "ring").open("r+b") as file:
        file.seek(64)
        file.write((99).to_bytes(4, "little"))

    with pytest.raises(ProtocolError, match="unknown record"):
        ring.take()


def test_a_record_that_leaves_the_ring_is_refused(tmp_path: Path) -> None:
    ring = AppendRing.create(tmp_path / "ring", SIZE)
    ring.put(PROPOSED, b"x")
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
