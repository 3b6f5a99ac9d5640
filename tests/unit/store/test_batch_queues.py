"""Queues of batches: written as RocketMQ 5.5.1 writes them, and read message by message."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import numpy as np
import pytest

from ledgermq.formats.arrays import BATCH_UNIT
from ledgermq.formats.batch_unit import (
    BATCH_FILE_SIZE,
    BATCH_FOLDER,
    BATCH_TAGS,
    BATCH_UNIT_SIZE,
    batch_numbers,
)
from ledgermq.formats.records.inner_batch import message_at, messages_in
from ledgermq.formats.records.message import INNER_BATCH, NEED_UNWRAP, Message, encode_message
from ledgermq.model.config.settings import LogKind, StoreSection
from ledgermq.model.errors import CorruptLogError
from ledgermq.model.ids import Position, QueueId
from ledgermq.repair.rebuild import rebuild
from ledgermq.store.queues.batch_queue_reader import BatchQueueReader, Recount
from ledgermq.store.queues.batch_topics import batch_topics
from ledgermq.store.queues.dispatch_build import DispatchBuilder
from ledgermq.store.queues.known_ends import ends_in_queues
from ledgermq.store.queues.queue_offsets import QueueOffsets
from ledgermq.store.store_directory import open_directory
from ledgermq.store.store_view import StoreView
from tests.plain_codecs import BatchItem, encode_batch

HOST = ("10.0.0.1", 4711)
TOPIC = "batched"
NOW_MS = 1_700_000_000_000
ROWS = ((0, 4), (4, 4), (8, 1), (9, 0), (10, 0), (11, 3))
"""Offset of a record's first message, and how many; 0 for a single message."""

SECTION = StoreSection(
    path_root_dir=Path(), log=LogKind.COMMITLOG, mapped_file_size_consume_queue=4_000,
    max_hash_slot_num=500, max_index_num=400,
)  # fmt: skip


def record(offset: int, count: int, position: int, *, body: bytes | None = None) -> bytes:
    items = [BatchItem(0, b"%d" % (offset + one), b"TAGS\x01t\x02") for one in range(count)]
    batch = b"INNER_NUM\x01%d\x02INNER_BASE\x01%d\x02" % (count, offset)
    return encode_message(
        Message(
            topic=TOPIC,
            queue_id=1,
            body=body or (encode_batch(items) if count else b"%d" % offset),
            properties=batch if count else b"TAGS\x01t\x02",
            queue_offset=offset,
            physical_offset=position,
            sys_flag=NEED_UNWRAP | INNER_BATCH if count else 0,
            born_timestamp=NOW_MS,
            born_host=HOST,
            store_timestamp=NOW_MS + offset,
            store_host=HOST,
        )
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A plain store of RocketMQ 5 with that log, whose queues are not built."""
    root = tmp_path / "store"
    for folder in ("commitlog", "consumequeue", "index", "config", "ledgermq"):
        (root / folder).mkdir(parents=True)
    (root / "commitlog" / f"{0:020d}").write_bytes(log().ljust(4_096, b"\0"))
    row = {"topicName": TOPIC, "attributes": {"queue.type": "BatchCQ"}}
    table = {"topicConfigTable": {TOPIC: row, "orders": {"topicName": "orders"}}}
    (root / "config" / "topics.json").write_text(json.dumps(table))
    return root


def log() -> bytes:
    found = b""
    for offset, count in ROWS:
        found += record(offset, count, len(found))
    return found


def build(root: Path, upto: int | None = None) -> tuple[DispatchBuilder, int]:
    end = Position(len(log()) if upto is None else upto)
    section = StoreSection(**{**_fields(SECTION), "path_root_dir": root})
    builder = DispatchBuilder.open(section, log_start=Position(0), log_end=end, published=None)
    span = memoryview(log())
    built = builder.build(span, Position(0), end, header_size=0)
    builder.flush()
    return builder, built.units


def _fields(section: StoreSection) -> dict[str, object]:
    return {name: getattr(section, name) for name in section.__dataclass_fields__}


def queue_file(root: Path) -> Path:
    return root / BATCH_FOLDER / TOPIC / "1" / f"{0:020d}"


def test_a_record_has_one_unit_of_46_bytes_in_a_folder_of_its_own(root: Path) -> None:
    builder, units = build(root)
    builder.close()
    content = queue_file(root).read_bytes()
    first = struct.unpack_from(">qiqqqhii", content)
    found = np.frombuffer(content, BATCH_UNIT, 6)

    assert batch_topics(root) == {TOPIC}
    assert (units, len(content), BATCH_UNIT_SIZE) == (14, BATCH_FILE_SIZE, 46)
    assert first == (0, len(record(0, 4, 0)), 0, NOW_MS, 0, 4, -1, 0)
    assert found["base"].tolist() == [0, 4, 8, 9, 10, 11]
    assert found["count"].tolist() == [4, 4, 1, 1, 1, 3]
    assert not any(content[6 * BATCH_UNIT_SIZE :])
    assert list((root / "consumequeue").iterdir()) == []


def test_what_is_there_is_not_put_again_and_what_the_log_lacks_is_taken_away(root: Path) -> None:
    for upto in (None, None):
        builder, _ = build(root, upto)
        builder.close()
    before = queue_file(root).read_bytes()
    cut = len(record(0, 4, 0)) + len(record(4, 4, 0))
    (root / "ledgermq" / "dispatch-checkpoint").unlink()
    builder, _ = build(root, cut)
    ends = builder.queues.ends()
    builder.close()

    assert not any(before[6 * BATCH_UNIT_SIZE :])
    assert ends == {(TOPIC.encode(), 1): 8}
    assert not any(queue_file(root).read_bytes()[2 * BATCH_UNIT_SIZE :])


def test_a_reader_has_a_unit_for_each_message_which_says_which_of_its_record_it_is(
    root: Path,
) -> None:
    build(root)[0].close()
    reader = BatchQueueReader(root / BATCH_FOLDER / TOPIC / "1")
    end = len(log())
    bounds = reader.bounds(end)
    all_units = reader.units(0, 100)
    some = reader.units(6, 3)
    cut = reader.bounds(len(record(0, 4, 0)) + 1, log_first=1)
    behind = reader.bounds(end, log_first=len(record(0, 4, 0)))
    times = [reader.offset_by_time(NOW_MS + ms, lambda *_: -1, 0) for ms in (-1, 0, 4, 5, 99)]
    reader.close()

    assert (bounds, len(all_units)) == ((0, 14), 14)
    assert (all_units["tags"] - BATCH_TAGS).tolist() == [0, 1, 2, 3] * 2 + [0, 0, 0, 0, 1, 2]
    assert len(set(all_units["position"][:4].tolist())) == 1
    assert some.tolist() == all_units[6:9].tolist()
    assert (cut, behind) == ((4, 8), (4, 14))
    assert times == [4, 4, 4, 8, 11]


def test_numbers_that_rocketmq_leaves_out_are_as_gone(root: Path) -> None:
    folder = root / BATCH_FOLDER / TOPIC / "1"
    folder.mkdir(parents=True)
    units = np.zeros(2, BATCH_UNIT)
    units[0] = (0, 100, 0, NOW_MS, 0, 2, -1, 0)
    units[1] = (100, 100, 0, NOW_MS, 1 << 40, 2, -1, 0)
    (folder / f"{0:020d}").write_bytes(units.tobytes().ljust(BATCH_UNIT_SIZE * 10, b"\0"))
    reader = BatchQueueReader(folder)
    bounds = reader.bounds(1_000)
    found = reader.units(1, 3)
    last = reader.units((1 << 40) - 1, 100)
    reader.close()

    assert bounds == (0, (1 << 40) + 2)
    assert found["position"].tolist() == [0, -1, -1]
    assert last["position"].tolist() == [-1, 100, 100]


@pytest.mark.parametrize(("base", "count"), [(-1, 1), (1 << 62, 1), (0, 0), (0, -5)])
def test_numbers_that_no_message_can_have_are_told(root: Path, base: int, count: int) -> None:
    folder = root / BATCH_FOLDER / TOPIC / "1"
    folder.mkdir(parents=True)
    units = np.zeros(1, BATCH_UNIT)
    units[0] = (0, 100, 0, NOW_MS, base, count, -1, 0)
    (folder / f"{0:020d}").write_bytes(units.tobytes().ljust(BATCH_UNIT_SIZE * 10, b"\0"))
    reader = BatchQueueReader(folder)
    with pytest.raises(CorruptLogError, match="numbers of messages"):
        reader.bounds(1_000)
    reader.close()


def test_a_store_shows_each_message_with_its_own_number(root: Path) -> None:
    build(root)[0].close()
    view = StoreView(root)
    found = [(one.queue_offset, one.message) for one in view.messages()]
    bounds = view.queues()
    view.close()

    assert [(one.topic, one.first, one.end) for one in bounds] == [(TOPIC, 0, 14)]
    assert [(number, bytes(one.body)) for number, one in found] == [
        (number, b"%d" % number) for number in range(14)
    ]
    assert all(one.queue_offset == number and one.tags == "t" for number, one in found)
    assert not any(one.sys_flag & (INNER_BATCH | NEED_UNWRAP) for _, one in found)


@pytest.mark.parametrize(
    ("properties", "numbers"),
    [
        ({"INNER_NUM": "4", "INNER_BASE": "8"}, (8, 4)),
        ({"INNER_NUM": "4"}, (7, 4)),
        ({"INNER_BASE": "8"}, (8, 1)),
        ({"INNER_NUM": "0", "INNER_BASE": "x"}, (7, 1)),
        ({"INNER_NUM": "32768", "INNER_BASE": "9" * 19}, (7, 1)),
    ],
)
def test_a_record_says_its_numbers_by_its_properties_else_by_its_offset(
    properties: dict[str, str], numbers: tuple[int, int]
) -> None:
    assert batch_numbers(properties, 7) == numbers


@pytest.mark.parametrize("body", [b"no batch", encode_batch([BatchItem(0, b"a", b"")])[:-1]])
def test_what_is_no_batch_is_shown_as_it_is(body: bytes) -> None:
    message = Message(
        topic=TOPIC, queue_id=0, body=body, queue_offset=5, sys_flag=INNER_BATCH | NEED_UNWRAP
    )

    assert messages_in(message) == [message]
    assert message_at(message, 7).queue_offset == 7
    assert bytes(message_at(message, 7).body) == body
    assert not message_at(message, 7).sys_flag & INNER_BATCH


def test_the_next_message_gets_the_number_behind_those_of_the_last_record(root: Path) -> None:
    dispatched = len(record(0, 4, 0)) + len(record(4, 4, 0))
    build(root, dispatched)[0].close()
    offsets = QueueOffsets(
        root / "consumequeue", file_size=4_000, log_end=Position(len(log())), batch_topics={TOPIC}
    )
    before = offsets.next_offset(TOPIC.encode(), QueueId(2))
    offsets.note_span(memoryview(log())[dispatched:], base=dispatched, header_size=0)
    noted = offsets.next_offset(TOPIC.encode(), QueueId(1))
    alone = QueueOffsets(
        root / "consumequeue", file_size=4_000, log_end=Position(dispatched), batch_topics={TOPIC}
    )

    assert (before, noted) == (0, 14)
    assert alone.next_offset(TOPIC.encode(), QueueId(1)) == 8
    ends = ends_in_queues(root / "consumequeue", 4_000, position=dispatched)
    assert ends.ends == {(TOPIC.encode(), 1): 8}


def test_a_rebuild_makes_the_same_files_and_keeps_the_old_ones_aside(root: Path) -> None:
    build(root)[0].close()
    before = queue_file(root).read_bytes()
    with queue_file(root).open("r+b") as file:
        os.pwrite(file.fileno(), b"\xee" * 8, BATCH_UNIT_SIZE)
    section = StoreSection(**{**_fields(SECTION), "path_root_dir": root})
    rebuilt = rebuild(open_directory(root), section)

    assert queue_file(root).read_bytes() == before
    assert rebuilt.units == 14
    assert any(BATCH_FOLDER in path.name for path in rebuilt.aside)


def test_a_plain_queue_of_such_a_topic_is_kept_aside(root: Path) -> None:
    plain = root / "consumequeue" / TOPIC / "0"
    plain.mkdir(parents=True)
    (plain / f"{0:020d}").write_bytes(bytes(4_000))
    build(root)[0].close()

    assert not plain.exists()


@pytest.mark.parametrize("name", ["..", "../elsewhere", "ELSEWHERE", ""])
def test_a_name_that_leads_elsewhere_is_no_topics(root: Path, name: str) -> None:
    """The table is another's: what is outside of its folders is not moved by a name in it."""
    kept = root / "elsewhere" / "kept"
    kept.parent.mkdir()
    kept.write_bytes(b"here")
    name = name.replace("ELSEWHERE", str(kept.parent))
    table = {"topicConfigTable": {name: {"attributes": {"queue.type": "BatchCQ"}}}}
    (root / "config" / "topics.json").write_text(json.dumps(table))
    build(root)[0].close()

    assert batch_topics(root) == frozenset()
    assert kept.read_bytes() == b"here"


def test_units_of_a_dledger_broker_have_as_many_messages_as_their_records(root: Path) -> None:
    """It says one in each, and the last one's end is told by no other unit."""
    build(root)[0].close()
    units = np.frombuffer(queue_file(root).read_bytes(), BATCH_UNIT).copy()
    counts = [count or 1 for _, count in ROWS]
    places = units["position"][: len(ROWS)].tolist()
    assert units["count"][: len(ROWS)].tolist() == counts
    units["count"][: len(ROWS)] = 1
    queue_file(root).write_bytes(units.tobytes())
    by_place = dict(zip(places, counts, strict=True))
    folder = queue_file(root).parent
    # The first start of a node has put the first two anew, which need no look at their records.
    recount = Recount(places[2], lambda position, _: by_place[position])
    reader = BatchQueueReader(folder, recount=recount)
    without = BatchQueueReader(folder)

    assert reader.bounds(len(log())) == (0, sum(counts))
    assert without.bounds(len(log())) == (0, ROWS[-1][0] + 1)
    found = reader.units(ROWS[2][0], sum(counts))
    assert found["position"].tolist() == [
        place for place, count in list(zip(places, counts, strict=True))[2:] for _ in range(count)
    ]
