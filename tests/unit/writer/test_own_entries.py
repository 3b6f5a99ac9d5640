"""What a node writes for itself: records, and rows of packs that its log has."""

from __future__ import annotations

import errno
import os
from array import array
from pathlib import Path

import pytest

from ledgermq.formats.records.message import Message, decode_message, encode_message
from ledgermq.formats.records.properties import encode_properties
from ledgermq.ipc.cursor_page import CursorPage
from ledgermq.ipc.orders import PackRows
from ledgermq.model.errors import DiskFullError, MessageIllegalError, StorageError
from ledgermq.model.ids import QueueOffset, Term
from ledgermq.store.files.append_files import AppendFiles
from ledgermq.store.log.log_writer import StampedRun
from ledgermq.store.log_family import LogFamily, LogFolder
from ledgermq.store.queues.queue_offsets import QueueOffsets
from ledgermq.wire.send_frame import SendRun
from ledgermq.wire.staged_pack import encode_pack
from ledgermq.writer.log.put_batch import PutBatch, append_own, own_records
from ledgermq.writer.log.put_lock import PutLockHolder
from tests.unit.store.records import record
from tests.unit.store.test_log_writer import FILE_SIZE, Log

STAGED = "LEDGERMQ_STAGED"


@pytest.fixture(params=[True, False], ids=["dledger", "commitlog"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Log:
    return Log(tmp_path, entries=request.param)


def row(body: bytes, queue_id: int) -> bytes:
    return record(body, queue_id=queue_id, header_size=0)


def staged(log: Log, rows: dict[int, list[bytes]]) -> PackRows:
    """A pack in the log: bodies of rows by their queue."""
    records = [row(body, queue_id) for queue_id, bodies in rows.items() for body in bodies]
    runs = [SendRun(len(bodies), queue_id, b"orders") for queue_id, bodies in rows.items()]
    sizes = array("I", map(len, records))
    pack = encode_pack(8, sizes.tobytes(), runs, b"".join(records))
    message = encode_message(
        Message(topic=STAGED, queue_id=0, body=pack, properties=encode_properties({"STAGE": "s"}))
    )
    (span,) = log.writer.put(
        bytes(log.header_size) + message,
        memoryview(array("I", [log.header_size + len(message)])),
        [StampedRun(1, QueueOffset(0))],
        term=Term(1),
        store_timestamp=1_700,
    )
    log.writer.publish()
    return PackRows(span.physical_offset, len(message), len(records))


def family(log: Log) -> LogFamily:
    return LogFamily(LogFolder(log.root / "data", log.header_size))


def batch_of(log: Log) -> PutBatch:
    offsets = QueueOffsets(
        log.root / "consumequeue", file_size=FILE_SIZE, log_end=log.writer.end.position
    )
    return PutBatch(log.writer, offsets, term=Term(1), now_ns=lambda: 1_700_000_000)


def put_lock(log: Log) -> PutLockHolder:
    return PutLockHolder(CursorPage.create(log.root / "page"), warn_ms=10_000)


def messages_from(log: Log, position: int) -> list[Message]:
    content = memoryview(log.files()[0].read_bytes())
    found = []
    while position < log.writer.end.position:
        message = decode_message(content, position + log.header_size)
        found.append(message)
        position += log.header_size + message.size
    return found


def test_rows_of_a_pack_are_stamped_between_the_records_that_they_are_named_between(
    log: Log,
) -> None:
    place = staged(log, {0: [b"a", b"bb"], 3: [b"ccc"]})
    begin = log.writer.end.position
    head, tail = (record(body, number=9, header_size=log.header_size) for body in (b"h", b"t"))
    ends = []
    append_own(
        batch_of(log),
        own_records([head, place, tail], family(log), header_size=log.header_size),
        put_lock(log),
        has_reserve=False,
        written=lambda: ends.append(log.writer.end.position),
    )
    found = messages_from(log, begin)

    assert [bytes(one.body) for one in found] == [b"h", b"a", b"bb", b"ccc", b"t"]
    assert [(one.queue_id, one.queue_offset) for one in found] == [
        (0, 0), (0, 1), (0, 2), (3, 0), (0, 3),
    ]  # fmt: skip
    assert {one.topic for one in found} == {"orders"}
    # The log is as recovery wants it, and each part was told of when it was there.
    assert log.recover().end == log.writer.end
    assert ends == sorted(set(ends))
    assert (len(ends), ends[-1]) == (3, log.writer.end.position)


def test_a_pack_that_is_not_what_was_written_is_refused(log: Log) -> None:
    place = staged(log, {0: [b"a" * 100]})
    content = bytearray(log.files()[0].read_bytes())
    content[place.position + place.size // 2] ^= 1
    log.files()[0].write_bytes(content)

    with pytest.raises(MessageIllegalError, match="pack is not in the log"):
        own_records([place], family(log), header_size=log.header_size)


@pytest.mark.parametrize("wrong", [{"position": 8}, {"rows": 2}, {"size": 90}, {"position": 2**40}])
def test_a_place_without_such_a_pack_is_refused(log: Log, wrong: dict[str, int]) -> None:
    place = staged(log, {0: [b"a"]})._replace(**wrong)

    with pytest.raises(MessageIllegalError):
        own_records([place], family(log), header_size=log.header_size)


def test_a_disk_that_gets_full_within_a_group_ends_the_process(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = staged(log, {0: [b"a"]})
    head = record(b"h", header_size=log.header_size)
    group = own_records([head, place], family(log), header_size=log.header_size)
    append = AppendFiles.append

    def fill_up() -> None:
        def full(_files: AppendFiles, _data: memoryview | bytes) -> None:
            raise DiskFullError("no space", errno=errno.ENOSPC, reason=os.strerror(errno.ENOSPC))

        monkeypatch.setattr(AppendFiles, "append", full)

    with pytest.raises(StorageError, match="middle of a group") as caught:
        append_own(batch_of(log), group, put_lock(log), has_reserve=False, written=fill_up)
    monkeypatch.setattr(AppendFiles, "append", append)

    # Whoever is told that the disk is full would have all of it appended once more.
    assert not isinstance(caught.value, DiskFullError)
    assert log.recover().end == log.writer.end
