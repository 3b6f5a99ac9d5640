"""Frames that go into the log with one write."""

from __future__ import annotations

from pathlib import Path

from ledgermq.formats.records.message import decode_message
from ledgermq.model.ids import Term
from ledgermq.store.queues.queue_offsets import QueueOffsets
from ledgermq.wire.send_frame import SendRun
from ledgermq.writer.log.put_batch import PutBatch
from tests.unit.store.records import frame_of, record
from tests.unit.store.test_log_writer import FILE_SIZE, Log


class Times:
    """A clock that is what it is told."""

    now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms * 1_000_000


def batch_of(log: Log, times: Times) -> PutBatch:
    offsets = QueueOffsets(
        log.root / "consumequeue", file_size=FILE_SIZE, log_end=log.writer.end.position
    )
    return PutBatch(log.writer, offsets, term=Term(1), now_ns=times)


def stage(batch: PutBatch, body: bytes) -> None:
    payload, sizes = frame_of([record(body, header_size=48)])
    batch.stage(b"client", 1, payload, sizes, [SendRun(1, 0, b"orders")])


def store_times(log: Log) -> list[int]:
    (file,) = log.files()
    content = memoryview(file.read_bytes())
    at, found = 48, []
    while int.from_bytes(content[at : at + 4], "big"):
        message = decode_message(content, at)
        found.append(message.store_timestamp)
        at += message.size + 48
    return found


def test_a_frame_has_the_time_at_which_it_was_stamped_however_old_its_batch(tmp_path: Path) -> None:
    log, times = Log(tmp_path), Times()
    batch = batch_of(log, times)
    first = times.now_ms
    stage(batch, b"in the turn's first moment")
    times.now_ms += 200
    # Born while the turn went on: it must not be older in the store than at its producer's.
    stage(batch, b"born 200 ms later")
    puts = batch.publish()

    assert [put.store_timestamp for put in puts] == [first, first + 200]
    assert store_times(log) == [first, first + 200]


def test_a_clock_that_is_set_back_does_not_make_a_batch_go_back(tmp_path: Path) -> None:
    log, times = Log(tmp_path), Times()
    batch = batch_of(log, times)
    stage(batch, b"a")
    times.now_ms -= 5_000
    stage(batch, b"b")
    batch.publish()

    assert store_times(log) == [1_700_000_000_000, 1_700_000_000_000]
