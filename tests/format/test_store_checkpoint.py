from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgermq.model.errors import CorruptLogError
from ledgermq.store.files.store_checkpoint import (
    StoreCheckpoint,
    decode_checkpoint,
    encode_checkpoint,
    read_checkpoint,
    with_positions_of,
)

_TIMES = st.integers(0, 2**63 - 1)
_POSITIONS = st.integers(-1, 2**63 - 1)


def test_the_vector_of_the_real_broker_is_written_and_read() -> None:
    data = bytes.fromhex("000001a1fc3c99b8 000001a1fc3c99b8 0000000000000000") + bytes(4_072)
    checkpoint = StoreCheckpoint(0x1A1FC3C99B8, 0x1A1FC3C99B8, 0)

    assert encode_checkpoint(checkpoint) == data
    assert decode_checkpoint(data) == checkpoint


def test_the_checkpoint_of_the_real_broker_is_read(golden: Any) -> None:
    data = (golden("gd0") / "checkpoint").read_bytes()
    checkpoint = decode_checkpoint(data)

    assert checkpoint.log_timestamp == checkpoint.queues_timestamp > 0
    assert encode_checkpoint(checkpoint) == data


@given(_TIMES, _TIMES, _TIMES, st.tuples(_POSITIONS, _POSITIONS, _POSITIONS))
def test_every_checkpoint_is_read_as_it_was_written(
    log: int, queues: int, index: int, positions: tuple[int, int, int]
) -> None:
    checkpoint = StoreCheckpoint(log, queues, index, *positions)

    assert decode_checkpoint(encode_checkpoint(checkpoint)) == checkpoint


def test_positions_of_rocketmq_5_are_taken_from_the_checkpoint_before(tmp_path: Path) -> None:
    old = StoreCheckpoint(1, 2, 3, 4, 5, 6)
    path = tmp_path / "checkpoint"
    fresh = encode_checkpoint(StoreCheckpoint(10, 20, 30, queues_position=60))

    assert with_positions_of(path, fresh) == fresh
    path.write_bytes(encode_checkpoint(old))
    assert with_positions_of(path, fresh) == encode_checkpoint(
        StoreCheckpoint(10, 20, 30, 4, 5, 60)
    )


@pytest.mark.parametrize(
    ("checkpoint", "recovery"),
    [
        (StoreCheckpoint(10_000, 9_000, 20_000), 6_000),
        (StoreCheckpoint(10_000, 9_000, 5_000), 6_000),
        (StoreCheckpoint(1_000, 9_000, 5_000), 0),
    ],
)
def test_recovery_begins_three_seconds_early(checkpoint: StoreCheckpoint, recovery: int) -> None:
    assert checkpoint.recovery_timestamp == recovery


def test_an_empty_file_knows_nothing() -> None:
    assert decode_checkpoint(b"") == StoreCheckpoint(0, 0, 0)


@pytest.mark.parametrize("size", [1, 23, 24, 4_095, 4_097])
def test_a_file_of_another_size_is_corrupt(size: int) -> None:
    with pytest.raises(CorruptLogError, match="size"):
        decode_checkpoint(bytes(size))


@pytest.mark.parametrize(
    ("at", "field"), [(0, "log_timestamp"), (8, "queues_timestamp"), (16, "index_timestamp")]
)
def test_a_negative_time_is_corrupt(at: int, field: str) -> None:
    data = bytearray(4_096)
    data[at] = 0x80
    with pytest.raises(CorruptLogError) as caught:
        decode_checkpoint(data, file="checkpoint")

    details = caught.value.details
    assert (details["file"], details["offset"], details["field"]) == ("checkpoint", at, field)


@pytest.mark.parametrize("content", [b"", b"torn", b"\x80" + bytes(4_095)])
def test_a_file_that_is_not_whole_knows_nothing_and_is_told(
    content: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(content)

    assert read_checkpoint(path) == StoreCheckpoint(0, 0, 0)
    assert bool(content) == (str(path) in caplog.text)


def test_no_file_knows_nothing(tmp_path: Path) -> None:
    assert read_checkpoint(tmp_path / "checkpoint") == StoreCheckpoint(0, 0, 0)
