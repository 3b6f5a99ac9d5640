"""Units of RocketMQ 5's queues of batches: 46-byte pointers to records of several messages.

Layout, big-endian (RocketMQ ``BatchConsumeQueue.CQ_STORE_UNIT_SIZE``):

    offset  size  field            unit
    0       8     physical_offset  bytes from the start of the commit log
    8       4     size             bytes of the record pointed at
    12      8     tags_hash        of the record, not of the messages in it
    20      8     store_time       epoch ms
    28      8     base             queue offset of the record's first message
    36      2     count            messages in the record
    38      4     compacted        -1, which RocketMQ does not use
    42      4     reserved         0

The files stand in ``batchconsumequeue/TOPIC/QUEUE/`` and are named by the byte at which they begin.
A unit says itself which queue offsets it has: nothing stands before the first one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

BATCH_FOLDER = "batchconsumequeue"
BATCH_UNIT_SIZE = 46
BATCH_FILE_SIZE = 300_000 * BATCH_UNIT_SIZE
"""RocketMQ's default of ``mapperFileSizeBatchConsumeQueue``, in bytes."""

NOT_COMPACTED = -1
COUNT_MAX = 0x7FFF
BASE_END = 1 << 62
"""No queue offset is as large."""

_DIGITS = 18
"""A number of so many digits fits its field."""

QUEUE_TYPE, OF_BATCHES = "queue.type", "batchcq"
"""Attribute of a topic that has such queues, and its value in small letters."""

INNER_NUM = "INNER_NUM"
INNER_BASE = "INNER_BASE"
"""Properties of a record of several messages: how many, and the queue offset of the first one."""

BATCH_TAGS = -(1 << 63)
"""Code of tags of the first message of a record, as readers of units see it; that of the next one
is one more. What is so far below all hash codes is handed out whatever the tags that are asked for,
as an address in RocketMQ's ConsumeQueueExt is."""


class Numbers(NamedTuple):
    """Queue offsets that one record has: the first one, and how many."""

    base: int
    messages: int


def batch_numbers(properties: Mapping[str, str], queue_offset: int) -> Numbers:
    """What a record of several messages says.

    RocketMQ's DLedger broker writes no ``INNER_BASE``, and takes such a record for one message when
    it makes its unit, though its messages have as many queue offsets.

    Args:
        queue_offset: the record's, which counts where its properties say nothing.
    """
    count = _number(properties.get(INNER_NUM, ""))
    base = _number(properties.get(INNER_BASE, ""))
    return Numbers(
        queue_offset if base is None else base,
        count if count is not None and 0 < count <= COUNT_MAX else 1,
    )


def _number(text: str) -> int | None:
    is_one = text.isascii() and text.isdecimal() and len(text) <= _DIGITS
    return int(text) if is_one else None
