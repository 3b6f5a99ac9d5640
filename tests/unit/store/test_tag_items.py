"""Index items of tags: found in RocketMQ 5's index, and put for new messages where it has them."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ledgermq.dispatcher.derived_scrub import DerivedScrub
from ledgermq.formats.arrays import KEY_ITEM
from ledgermq.formats.index_file import IndexLayout
from ledgermq.formats.records.message import Message, encode_message
from ledgermq.model.config.settings import NodeSection, ScrubSection, Settings, StoreSection
from ledgermq.model.ids import Position
from ledgermq.repair.check.check_store import CheckOptions, check_store
from ledgermq.store.files.file_names import starts_in
from ledgermq.store.files.store_checkpoint import read_checkpoint
from ledgermq.store.index import tag_items
from ledgermq.store.index.index_reader import IndexReader
from ledgermq.store.index.tag_items import are_tags_kept, has_tag_items, keep_tags
from ledgermq.store.log_reader import LogReader
from ledgermq.store.queues.dispatch_build import DispatchBuilder
from ledgermq.store.store_directory import open_directory

SIZES = {
    "mapped_file_size_consume_queue": 4_000,
    "max_hash_slot_num": 500,
    "max_index_num": 400,
}
LAYOUT = IndexLayout(slots=500, items=400)
NEW = Message(
    topic="plain", queue_id=0, body=b"x", properties=b"UNIQ_KEY\x01new\x02TAGS\x01TagNew\x02",
    store_timestamp=1_795_950_000_000,
)  # fmt: skip


def opened(root: Path) -> DispatchBuilder:
    """The builder as the dispatcher opens it on a stopped store."""
    directory = open_directory(root)
    with closing(LogReader(directory)) as reader:
        first, end = reader.first, Position(reader.end)
    section = StoreSection(path_root_dir=root, log=directory.log, **SIZES)
    return DispatchBuilder.open(
        section, log_start=first, log_end=end, published=None, log=directory.log_family
    )


def found(root: Path, key: str, topic: str = "plain") -> list[int]:
    with closing(IndexReader(root / "index")) as index:
        return index.query(topic, key)


def put_new(root: Path, builder: DispatchBuilder, *, queue_offset: int = 1_000) -> Position:
    """Store one more message, and dispatch it; its position."""
    at = builder.position
    made = replace(NEW, physical_offset=at, queue_offset=queue_offset)
    record = encode_message(made)
    (name,) = [path for path in (root / "commitlog").iterdir() if path.name == f"{0:020d}"]
    with name.open("r+b") as file:
        file.seek(at)
        file.write(record)
    builder.build(memoryview(record), at, Position(at + len(record)), header_size=0)
    builder.flush()
    return at


def indexed(root: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((root / "index").iterdir())]


def flip_tag_item(root: Path) -> None:
    """Change the hash of the last item of the first message that has three."""
    first = sorted((root / "index").iterdir())[0]
    content = bytearray(first.read_bytes())
    items = np.frombuffer(content, KEY_ITEM, 390, LAYOUT.item_at(1))
    positions = items["position"].tolist()
    number = next(row for row in range(2, 390) if len(set(positions[row - 2 : row + 1])) == 1)
    content[LAYOUT.item_at(1 + number) + 3] ^= 1
    first.write_bytes(content)


@pytest.mark.parametrize("name", ["p551", "p551v2k"])
def test_an_index_of_rocketmq_5_has_them_and_goes_on_with_them(
    golden_copy: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = golden_copy(name)
    assert has_tag_items(root, open_directory(root).log_family)
    assert not are_tags_kept(root)
    with closing(opened(root)) as builder:
        assert builder.with_tags and are_tags_kept(root)
        assert builder.position > 255_000
    # Noted once, and not looked at again.
    monkeypatch.setattr("ledgermq.store.queues.derived_files.has_tag_items", None)
    with closing(opened(root)) as builder:
        assert builder.with_tags
    assert not [one for one in check_store(root, CheckOptions()).findings if one.remedy]


def test_a_new_message_is_found_by_its_tag(golden_copy: Any) -> None:
    root = golden_copy("p551")
    with closing(opened(root)) as builder:
        at = put_new(root, builder)

    assert found(root, "new") == [at]
    assert found(root, "T#TagNew") == [at]
    checked = check_store(root, CheckOptions())
    assert "index" not in "".join(one.file for one in checked.findings)


@pytest.mark.parametrize("name", ["gs1", "gd0", "g6", "l494"])
def test_an_index_of_rocketmq_4_has_none_and_gets_none(golden_copy: Any, name: str) -> None:
    root = golden_copy(name)

    assert not has_tag_items(root, open_directory(root).log_family)
    with closing(opened(root)) as builder:
        assert not builder.with_tags
    assert not are_tags_kept(root)


def test_an_index_that_only_we_have_written_is_not_looked_at(
    golden_copy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = golden_copy("gs1")
    opened(root).close()
    monkeypatch.setattr("ledgermq.store.queues.derived_files.has_tag_items", None)
    with closing(opened(root)) as builder:
        assert not builder.with_tags


def test_an_index_that_cannot_be_read_has_none(
    golden_copy: Any, caplog: pytest.LogCaptureFixture
) -> None:
    root = golden_copy("p551")
    for path in (root / "index").iterdir():
        path.write_bytes(b"\1" * 100)

    assert not has_tag_items(root, open_directory(root).log_family)
    assert "not known whether the index has items of tags" in caplog.text


def test_items_of_tags_are_sound_also_where_others_have_none(golden_copy: Any) -> None:
    root = golden_copy("p551")
    # As with an earlier version, which has put none for what came to it.
    (root / "ledgermq").mkdir()
    with closing(opened(root)) as builder:
        (root / "ledgermq" / "index-tags").unlink()
        builder._tables._with_tags = False
        put_new(root, builder)
    keep_tags(root)

    assert found(root, "T#TagNew") == []
    assert [one for one in check_store(root, CheckOptions()).findings if one.remedy] == []


def test_an_item_of_a_tag_that_its_message_does_not_have_is_found(golden_copy: Any) -> None:
    root = golden_copy("p551")
    flip_tag_item(root)
    options = CheckOptions(index_layout=LAYOUT)
    told = [one.what for one in check_store(root, options).findings if one.remedy]

    assert "item of a key that its message does not have" in told


def test_the_scrub_keeps_them(golden_copy: Any) -> None:
    root = golden_copy("p551")
    builder = opened(root)
    before = indexed(root)
    settings = Settings(
        node=NodeSection(self_id="n0"),
        store=StoreSection(path_root_dir=root, log=open_directory(root).log, **SIZES),
        scrub=ScrubSection(rate_bytes_per_s=1 << 30, every_s=100_000),
    )
    damaged: list[int] = []
    scrub = DerivedScrub(settings, 0, damaged.append)
    now_ns = 0

    def one_pass() -> int:
        nonlocal now_ns
        now_ns += 100_000_000_000_000
        scrub.turn(builder, builder.position, now_ns)
        while scrub._job is not None or builder.keys_from is not None:
            if scrub._job is not None:
                scrub._job.exception()
            now_ns += 1_000_000_000
            scrub.turn(builder, builder.position, now_ns)
        counts = scrub.take_counts()
        assert counts.bytes > 0
        return counts.index_files

    assert one_pass() == 0
    assert indexed(root) == before
    flip_tag_item(root)
    # That file, and the one behind it.
    assert one_pass() == 2
    assert indexed(root) == before
    scrub.close()
    builder.close()
    assert damaged == []


def test_what_rocketmq_5_has_noted_of_its_log_stays_in_the_checkpoint(golden_copy: Any) -> None:
    root = golden_copy("p551")
    path = root / "checkpoint"
    content = bytearray(path.read_bytes())
    content[24:32] = (200_000).to_bytes(8, "big")
    content[32:40] = (1 << 40).to_bytes(8, "big")
    path.write_bytes(content)
    with closing(opened(root)) as builder:
        end = builder.position
    written = read_checkpoint(path)

    assert written.master_flushed == 200_000
    # No more is confirmed than the log has.
    assert written.confirmed == written.queues_position == end
    assert [one for one in check_store(root, CheckOptions()).findings if one.remedy] == []


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Positions of the messages that are looked at, which have no tags."""
    positions, read = list[int](), tag_items._Messages.at

    def noted(messages: tag_items._Messages, position: int) -> Message | None:
        positions.append(position)
        found = read(messages, position)
        return None if found is None else replace(found, properties=b"")

    monkeypatch.setattr(tag_items._Messages, "at", noted)
    return positions


def test_an_index_without_tags_costs_a_start_so_many_looks_and_no_more(
    golden_copy: Any, monkeypatch: pytest.MonkeyPatch, looked: list[int]
) -> None:
    root = golden_copy("gd0")
    signs: list[int] = []
    listed: list[Path] = []

    def listing(folder: Path) -> list[int]:
        listed.append(folder)
        return starts_in(folder)

    monkeypatch.setattr(tag_items, "_LOOKED_MAX", 5)
    monkeypatch.setattr(tag_items, "starts_in", listing)
    log = open_directory(root).log_family

    assert not has_tag_items(root, log, sign_of_life=lambda: signs.append(1))
    assert len(looked) == len(signs) == 5
    assert looked == sorted(looked, reverse=True)
    # However slow the disk is: folders are listed once, and not for each message.
    assert len(listed) == len(log.folders)


def test_behind_a_dispatcher_that_was_killed_only_what_it_has_written_last_is_looked_at(
    golden_copy: Any, looked: list[int]
) -> None:
    root = golden_copy("gs1")
    opened(root).close()
    looked.clear()
    checkpoint = root / "ledgermq" / "dispatch-checkpoint"
    before = checkpoint.read_bytes()
    with closing(opened(root)) as builder:
        at = put_new(root, builder)
    checkpoint.write_bytes(before)
    with closing(opened(root)) as builder:
        assert not builder.with_tags

    assert looked == [at]
