"""Consume-queue units: 20-byte pointers into the commit log, which kernels write and read.

Layout, big-endian (RocketMQ ``ConsumeQueue.CQ_STORE_UNIT_SIZE``):

    offset  size  field            unit
    0       8     physical_offset  bytes from the start of the commit log
    8       4     size             bytes of the message pointed at
    12      8     tags_hash        signed; 0 when the message has no tag

A queue file is an array of these units: unit n of a queue lies at ``n * UNIT_SIZE``, and none
straddles two files. What stands before the first unit of a queue that begins in the middle of a
file points at 0, with a size of 0x7FFF_FFFF. In the queues of delayed messages ``tags_hash`` is the
time of delivery, and where a ConsumeQueueExt is kept it may be an address there.
"""

from __future__ import annotations

UNIT_SIZE = 20  # the on-disk format; changing it is a format version
UNITS_PER_FILE = 300_000
FILE_SIZE = UNITS_PER_FILE * UNIT_SIZE
"""Size of a queue file unless ``mappedFileSizeConsumeQueue`` says something else."""
