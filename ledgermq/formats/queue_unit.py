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
