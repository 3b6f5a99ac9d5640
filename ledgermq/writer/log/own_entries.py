"""Appends of the node's own records: terms, members, tables, and moved messages."""

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
from ledgermq.store.files.disk_space import with_reserve
from ledgermq.store.log_family import LogFamily
from ledgermq.store.log_view import LogView
from ledgermq.wire.send_frame import SendRun
from ledgermq.wire.staged_pack import StagedPack, decode_pack
from ledgermq.writer.log.put_batch import PutBatch
from ledgermq.writer.log.put_lock import PutLockHolder


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
