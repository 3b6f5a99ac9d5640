"""The dispatch checkpoint's bytes, and how a builder goes on by what it says."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ledgermq.formats.records.message import Message, encode_message
from ledgermq.model.config.settings import StoreSection
from ledgermq.model.ids import Position
from ledgermq.store.files.small_file import replace_file
from ledgermq.store.queues import dispatch_checkpoint
from ledgermq.store.queues.dispatch_build import DispatchBuilder
from ledgermq.store.queues.dispatch_checkpoint import DispatchCheckpoint, boot_id, decode, encode

CHECKPOINT = DispatchCheckpoint(2**40, 2**40 - 7, bytes(range(16)), 2**33, 2**40 - 9)
SIZE = 60


def test_what_is_encoded_is_decoded() -> None:
    assert decode(encode(CHECKPOINT)) == CHECKPOINT


@pytest.mark.parametrize("at", range(SIZE))
def test_no_changed_byte_is_taken(at: int) -> None:
    content = bytearray(encode(CHECKPOINT))
    content[at] ^= 0x10

    assert decode(bytes(content)) is None


@pytest.mark.parametrize("size", [0, 1, 44, SIZE - 1, SIZE + 1])
def test_no_other_size_is_taken(size: int) -> None:
    assert decode(encode(CHECKPOINT).ljust(SIZE + 1, b"\0")[:size]) is None


def test_the_first_version_said_nothing_of_units_and_keys() -> None:
    body = struct.pack("<4sIqq16s", b"LMQD", 1, *CHECKPOINT[:3])

    assert decode(body + struct.pack("<I", zlib.crc32(body))) == CHECKPOINT._replace(
        units=-1, index_end=-1
    )


def test_a_file_that_is_not_there_is_none(tmp_path: Path) -> None:
    assert dispatch_checkpoint.read(tmp_path / "none") is None


class Store:
    """A plain log of ten messages with one key each, and builders over it."""

    def __init__(self, root: Path) -> None:
        self.section = StoreSection(
            path_root_dir=root,
            mapped_file_size_consume_queue=60,
            max_hash_slot_num=11,
            max_index_num=5,
        )
        self.path = root / "ledgermq" / "dispatch-checkpoint"
        self.log = b""
        self.ends = []
        for number in range(10):
            self.log += encode_message(
                Message(
                    topic="T",
                    queue_id=number % 2,
                    body=b"body",
                    properties=f"KEYS\x01k{number}".encode(),
                    queue_offset=number // 2,
                    physical_offset=len(self.log),
                    store_timestamp=1_600_000_000_000 + number,
                )
            )
            self.ends.append(len(self.log))

    def open(self, *, log_start: int = 0, **fields: Any) -> DispatchBuilder:
        return DispatchBuilder.open(
            self.section,
            log_start=Position(log_start),
            log_end=Position(fields.get("log_end", len(self.log))),
            published=fields.get("published"),
        )

    def build(self, builder: DispatchBuilder, end: int) -> None:
        builder.build(memoryview(self.log), Position(0), Position(end), header_size=0)

    def content(self) -> list[bytes]:
        root = self.section.path_root_dir
        paths = [*sorted(root.glob("consumequeue/*/*/*")), *sorted(root.glob("index/*"))]
        return [path.read_bytes() for path in paths]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def whole(tmp_path: Path) -> list[bytes]:
    """What one builder makes of the log in one go."""
    store = Store(tmp_path / "whole")
    builder = store.open()
    store.build(builder, len(store.log))
    builder.close()
    return store.content()


def leave_behind(store: Store, *, flushed: int, built: int) -> None:
    """A dispatcher that was killed: it had built more than it had flushed."""
    builder = store.open()
    store.build(builder, store.ends[flushed - 1])
    builder.flush()
    store.build(builder, store.ends[built - 1])
    builder.close()


def lose_power(store: Store) -> None:
    saved = dispatch_checkpoint.read(store.path)
    assert saved is not None
    replace_file(store.path, encode(saved._replace(boot_id=bytes(16))))


def test_a_killed_builder_goes_on_at_its_checkpoint(store: Store, whole: list[bytes]) -> None:
    leave_behind(store, flushed=3, built=8)
    before = store.content()[:4]
    builder = store.open()
    position, left = builder.position, store.content()[:4]
    store.build(builder, len(store.log))
    builder.close()

    assert position == store.ends[2]
    # Readers of the queues see no unit go.
    assert left == before
    assert store.content() == whole


def test_after_a_power_failure_what_was_not_synced_is_dropped(
    store: Store, whole: list[bytes]
) -> None:
    leave_behind(store, flushed=3, built=8)
    lose_power(store)
    for path in store.section.path_root_dir.glob("consumequeue/T/0/*"):
        # The page with the third unit was lost, the one with the fourth was not.
        content = bytearray(path.read_bytes())
        content[40:60] = bytes(20)
        path.write_bytes(content)
    builder = store.open()
    position, ends = builder.position, [builder.queues.end_of(b"T", n) for n in (0, 1)]
    saved = dispatch_checkpoint.read(store.path)
    store.build(builder, len(store.log))
    builder.close()

    assert position == store.ends[2]
    assert ends == [2, 1]
    assert saved is not None
    assert saved[:4] == (store.ends[2], store.ends[2], boot_id(), 3)
    assert store.content() == whole


def test_the_page_is_believed_before_the_checkpoint(store: Store) -> None:
    leave_behind(store, flushed=3, built=8)
    builder = store.open(published=Position(store.ends[7]))
    builder.close()

    assert builder.position == store.ends[7]


@pytest.mark.parametrize("damage", ["gone", "queues gone"])
def test_without_a_checkpoint_the_queues_are_asked(store: Store, damage: str) -> None:
    leave_behind(store, flushed=3, built=8)
    expected = store.ends[7]
    if damage == "gone":
        store.path.unlink()
    else:
        for path in store.section.path_root_dir.glob("consumequeue/*/*/*"):
            path.unlink()
        expected = 0
    builder = store.open()
    builder.close()

    assert builder.position == expected


def test_what_lies_behind_the_log_is_taken_away(store: Store) -> None:
    leave_behind(store, flushed=8, built=8)
    builder = store.open(log_end=store.ends[4])
    ends = [builder.queues.end_of(b"T", n) for n in (0, 1)]
    builder.close()
    again = store.open()
    again.close()

    assert (builder.truncated, builder.position, ends) == (2, store.ends[4], [3, 2])
    # The checkpoint was written anew: it may not promise what is gone.
    assert again.position == store.ends[4]


def test_a_topic_that_is_no_name_of_a_folder_is_skipped(tmp_path: Path) -> None:
    record = Message(topic="../x", queue_id=0, body=b"", store_timestamp=1)
    log = encode_message(record)
    log += encode_message(replace(record, topic="ok", physical_offset=len(log)))
    builder = Store(tmp_path / "store").open()
    built = builder.build(memoryview(log), Position(0), Position(len(log)), header_size=0)
    builder.close()

    assert (built.messages, built.units, built.skipped) == (2, 1, 1)
    assert [path.name for path in (tmp_path / "store" / "consumequeue").iterdir()] == ["ok"]
