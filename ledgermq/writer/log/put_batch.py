"""Batch of frames, or of the node's own records, for one write; taken back when that fails."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from ledgermq.formats.kernels.kernel import spread_records
from ledgermq.formats.records.message import decode_message, queue_of
from ledgermq.ipc.orders import PackRows
from ledgermq.model.errors import (
    CorruptLogError,
    DiskFullError,
    MessageIllegalError,
    ProtocolError,
    StorageError,
)
from ledgermq.model.ids import Position, QueueId, QueueOffset, Term
from ledgermq.process.clock import NS_PER_MS
from ledgermq.store.files.disk_space import with_reserve
from ledgermq.store.log.log_writer import LogWriter, Span, StampedRun
from ledgermq.store.log_family import LogFamily
from ledgermq.store.log_view import LogView
from ledgermq.store.queues.queue_offsets import QueueOffsets
from ledgermq.wire.send_frame import Duplicate, SendRun
from ledgermq.wire.staged_pack import StagedPack, decode_pack
from ledgermq.writer.log.put_lock import PutLockHolder


class Put(NamedTuple):
    """One frame's place in the log; it is stored when the log has reached ``position``.

    ``store_timestamp``: of its records, epoch ms; of a part that was stored before, that of the
    rest. ``duplicates``: records that were stored before, with other messages.
    """

    identity: bytes
    request_id: int
    size: int
    spans: list[Span]
    position: int
    store_timestamp: int
    duplicates: Sequence[Duplicate] = ()


class PutBatch:
    """Used inside the put lock: ``stage`` frames, then ``publish`` them, any number of times."""

    def __init__(
        self, log: LogWriter, offsets: QueueOffsets, *, term: Term, now_ns: Callable[[], int]
    ) -> None:
        """Nothing is staged.

        Args:
            now_ns: epoch; asked for each frame. A frame may come in long after the batch was begun,
                and a message is not to be older in the store than where it was born.
        """
        self.term = term
        self._now_ns = now_ns
        self._timestamp = 0
        self._log = log
        self._offsets = offsets
        self._staged: list[Put] = []
        self._before: dict[tuple[bytes, QueueId], QueueOffset] = {}
        self._begin = log.end

    @property
    def store_timestamp(self) -> int:
        """Store timestamp of the frame that was staged last, epoch ms; before the first one, of
        now.
        """
        return self._timestamp or self._now_ns() // NS_PER_MS

    @property
    def published_end(self) -> Position:
        """Position behind what is written, and can be read."""
        return self._begin.position

    def make_room(self, sizes: memoryview) -> None:
        """Have blocks for a frame of such records; to be called before it is staged.

        Raises:
            DiskFullError: there is no space; nothing has changed.
        """
        self._log.reserve(sizes)

    def stage(
        self,
        identity: bytes,
        request_id: int,
        payload: memoryview | bytes,
        sizes: memoryview,
        runs: Sequence[SendRun],
    ) -> list[Span]:
        """Stamp the records of a frame that was checked; where they will be.

        Raises:
            StorageError: see ``publish``: a file's end was reached, and the write there failed.
        """
        timestamp = self._timestamp = max(self._timestamp, self._now_ns() // NS_PER_MS)
        placed: list[StampedRun] = []
        for run in runs:
            queue_id = QueueId(run.queue_id)
            offset = self._offsets.next_offset(run.topic, queue_id)
            # Before the write, which may fail, and only the first of a queue: ``take_back`` undoes
            # the whole batch.
            self._before.setdefault((run.topic, queue_id), offset)
            placed.append(StampedRun(run.records, offset))
            self._offsets.set_next(run.topic, queue_id, QueueOffset(offset + run.records))
        spans = self._log.put(payload, sizes, placed, term=self.term, store_timestamp=timestamp)
        position = self._log.end.position
        self._staged.append(Put(identity, request_id, len(payload), spans, position, timestamp))
        return spans

    def stage_one(
        self,
        identity: bytes,
        request_id: int,
        record: bytes,
        size: int,
        *,
        topic: bytes,
        queue_id: int,
    ) -> bool:
        """``make_room`` and ``stage`` for a frame of one record; false: not without them.

        Then nothing has changed: the file has no room for it, or no blocks.
        """
        timestamp, queue = self._now_ns() // NS_PER_MS, (topic, QueueId(queue_id))
        if self._timestamp:
            timestamp = max(timestamp, self._timestamp)
        offset = self._offsets.next_offset(*queue)
        span = self._log.put_one(
            record, size, term=self.term, queue_offset=offset, store_timestamp=timestamp
        )
        if span is None:
            return False
        self._timestamp = timestamp
        self._before.setdefault(queue, offset)
        self._offsets.set_next(*queue, QueueOffset(offset + 1))
        end = self._log.end.position
        # As in ``LogWriter``: half the price.
        fields = identity, request_id, size, [span], end, timestamp, ()
        self._staged.append(tuple.__new__(Put, fields))
        return True

    def has_staged(self, identity: bytes, request_id: int) -> bool:
        """Whether a frame is among those that ``publish`` would write."""
        return any((put.identity, put.request_id) == (identity, request_id) for put in self._staged)

    def publish(self) -> list[Put]:
        """Write what was staged; the frames that are in the log now.

        Raises:
            StorageError: none of them may be acknowledged; ``take_back`` says what to answer.
        """
        self._log.publish()
        puts = self._staged
        self._staged = []
        self._before.clear()
        self._begin = self._log.end
        return puts

    def take_back(self, error: StorageError) -> list[Put]:
        """The frames to refuse with ``error`` after a failed write; none of them is stored.

        Raises:
            StorageError: ``error`` again, when the process must not go on writing.
        """
        if not isinstance(error, DiskFullError):
            raise error
        refused = self._staged
        self._staged = []
        if self._log.end == self._begin:
            for (topic, queue_id), offset in self._before.items():
                self._offsets.set_next(topic, queue_id, offset)
            self._before.clear()
            return refused
        # The end of a file lay between: a part of the frames is in the log, and their queue offsets
        # must not be given again. The process starts over from what the log holds.
        raise StorageError("disk full in the middle of a batch", cause=str(error)) from error


class OwnRecords(NamedTuple):
    """Records with their entry header holes, and where each is in ``payload``."""

    payload: memoryview | bytes
    sizes: memoryview
    runs: Sequence[SendRun]


def own_records(
    group: Sequence[bytes | PackRows], log: LogFamily, *, header_size: int
) -> list[OwnRecords]:
    """The records of a group; those of packs are read from ``log``, which has them.

    Args:
        group: whole and well-formed records, each with its entry header hole.

    Raises:
        MessageIllegalError: a pack is not there, or not as it was written.
    """
    packs = LogView(log)
    try:
        return [
            _rows(packs, part, header_size) if isinstance(part, PackRows) else part
            for part in _parts(group, header_size)
        ]
    finally:
        packs.close()


def append_own(
    batch: PutBatch,
    group: Sequence[OwnRecords],
    put_lock: PutLockHolder,
    *,
    has_reserve: bool,
    written: Callable[[], None],
) -> None:
    """Stamp records of any topics and queues one behind the other, and publish them in the log.

    Nothing else stands between them; a crash may leave the first of them without the others.

    Args:
        batch: a fresh one.
        has_reserve: they may take from the reserve of space, as the node's small files do.
        written: called when one of ``group`` is in the log: what comes behind it may take a while.

    Raises:
        DiskFullError: there is no space; nothing has changed.
    """
    sizes = np.concatenate([np.frombuffer(part.sizes, np.uint32) for part in group]).data
    if has_reserve:
        with_reserve(lambda: batch.make_room(sizes))
    else:
        batch.make_room(sizes)
    has_begun = False
    with put_lock:
        try:
            for part in group:
                batch.stage(b"", 0, part.payload, part.sizes, part.runs)
                batch.publish()
                has_begun = True
                written()
        except StorageError as error:
            if has_begun and isinstance(error, DiskFullError):
                # Who asked must not be told that nothing is stored.
                raise StorageError(
                    "disk full in the middle of a group", cause=str(error)
                ) from error
            # For the queue offsets alone: nobody has sent these, and nobody is refused.
            batch.take_back(error)
            raise


def _parts(group: Sequence[bytes | PackRows], header_size: int) -> Iterator[OwnRecords | PackRows]:
    """Records that follow one another together, and packs."""
    for is_pack, run in groupby(group, lambda part: isinstance(part, PackRows)):
        if is_pack:
            yield from (part for part in run if isinstance(part, PackRows))
            continue
        records = [part for part in run if not isinstance(part, PackRows)]
        yield OwnRecords(
            b"".join(records),
            memoryview(array("I", map(len, records))),
            _runs(memoryview(record)[header_size:] for record in records),
        )


def _runs(records: Iterable[memoryview]) -> list[SendRun]:
    return [
        SendRun(sum(1 for _ in run), queue_id, topic)
        for (topic, queue_id), run in groupby(map(queue_of, records))
    ]


def _rows(log: LogView, place: PackRows, header_size: int) -> OwnRecords:
    pack = _pack(log, place)
    if not header_size:
        return OwnRecords(bytes(pack.payload), pack.sizes, pack.runs)
    sizes = (np.frombuffer(pack.sizes, np.uint32) + np.uint32(header_size)).data
    payload = bytearray(len(pack.payload) + header_size * len(sizes))
    spread_records(pack.payload, sizes, header_size, payload)
    return OwnRecords(memoryview(payload), sizes, pack.runs)


def _pack(log: LogView, place: PackRows) -> StagedPack:
    try:
        record = log.record_at(place.position, end=place.position + place.size)
        if record is None:
            raise CorruptLogError("no record where a pack was")
        pack = decode_pack(decode_message(record).body)
    except (CorruptLogError, ProtocolError) as error:
        raise MessageIllegalError(
            "pack is not in the log as it was written", position=place.position, cause=str(error)
        ) from error
    if len(pack.sizes) != place.rows:
        raise MessageIllegalError(
            "pack has another number of rows", rows=len(pack.sizes), expected=place.rows
        )
    return pack
