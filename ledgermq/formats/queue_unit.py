"""Consume-queue unit codec: one 20-byte pointer into the commit log.

Layout, big-endian (RocketMQ ``ConsumeQueue.CQ_STORE_UNIT_SIZE``):

    offset  size  field            unit
    0       8     physical_offset  bytes from the start of the commit log
    8       4     size             bytes of the message pointed at
    12      8     tags_hash        signed; 0 when the message has no tag

A queue file is an array of these units: unit n of a queue lies at ``n * UNIT_SIZE``, and none
straddles two files. In the queues of delayed messages ``tags_hash`` is the time of delivery, and
where a ConsumeQueueExt is kept it may be an address there.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from ledgermq.formats.java_hash import java_hash
from ledgermq.model.errors import CorruptLogError

_UNIT = Struct(">qiq")

UNIT_SIZE = _UNIT.size
UNITS_PER_FILE = 300_000
FILE_SIZE = UNITS_PER_FILE * UNIT_SIZE
"""Size of a queue file unless ``mappedFileSizeConsumeQueue`` says something else."""

assert UNIT_SIZE == 20  # the on-disk format; changing it is a format version


class QueueUnit(NamedTuple):
    """Where one message of one queue lies in the commit log."""

    physical_offset: int
    size: int
    tags_hash: int


PREFILL = QueueUnit(0, 0x7FFF_FFFF, 0)
"""What stands before the first unit of a queue that begins in the middle of a file."""


def tags_hash(tags: str) -> int:
    """The hash of a message's tag as the unit holds it, 0 without one."""
    return java_hash(tags) if tags else 0


def put_unit(page: memoryview, number: int, unit: QueueUnit) -> None:
    """Write ``unit`` in slot ``number`` of the queue file mapped at ``page``.

    The caller owns the order of things: a unit is put only after its message is in the log, so
    that a reader who sees a size can follow the pointer.
    """
    assert 0 <= number < len(page) // UNIT_SIZE, number
    assert unit.size > 0, unit
    assert unit.physical_offset >= 0, unit
    _UNIT.pack_into(page, number * UNIT_SIZE, *unit)


def get_unit(
    page: memoryview, number: int, *, log_end: int | None = None, file: str = ""
) -> QueueUnit | None:
    """Slot ``number`` of the queue file at ``page``; ``None`` when nothing was written there yet.

    Args:
        page: bytes of one queue file.
        number: slot in the file.
        log_end: first position past the commit log; ``None`` takes any pointer.
        file: named in the error.

    Raises:
        CorruptLogError: the slot cannot be a pointer, or points outside the log.
    """
    assert 0 <= number < len(page) // UNIT_SIZE, number
    unit = QueueUnit(*_UNIT.unpack_from(page, number * UNIT_SIZE))
    if unit.size == 0:
        return None
    if unit == PREFILL:
        return unit
    end = unit.physical_offset + unit.size
    if unit.physical_offset >= 0 and unit.size > 0 and (log_end is None or end <= log_end):
        return unit
    raise CorruptLogError(
        "queue unit outside the log",
        file=file,
        offset=number * UNIT_SIZE,
        field="size" if unit.size < 0 else "physical_offset",
        unit=tuple(unit),
        log_end=log_end,
    )
