"""Epoch file: which master of RocketMQ 5's controller mode wrote which part of the log.

``ROOT/epochFileCheckpoint`` (``EpochFileCache``, ``CheckpointFile``) has lines of text; a CRC of 0
is not looked at:

    2                    how many epochs
    773307083            CRC-32 of the lines below, without its highest bit
    1-0                  number and start: where the log of its master ended when it was elected
    4-690614
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

from ledgermq.formats.records.message import CRC_MASK
from ledgermq.model.errors import CorruptLogError

EPOCH_FILE = "epochFileCheckpoint"

_HEAD_LINES = 2


class Epoch(NamedTuple):
    """One epoch.

    Attributes:
        number: the controller counts up.
        start: position where its master's log ended when it was elected.
    """

    number: int
    start: int


def decode_epochs(content: bytes) -> tuple[Epoch, ...]:
    """The epochs in an epoch file, in their order; there is one at least.

    Raises:
        CorruptLogError: it is none.
    """
    try:
        lines = content.decode("ascii").splitlines(keepends=True)
        count, crc = (int(line) for line in lines[:_HEAD_LINES])
        rows = lines[_HEAD_LINES:]
        found = tuple(Epoch(*map(int, row.split("-"))) for row in rows)
    except (ValueError, TypeError) as error:
        raise CorruptLogError("no file of epochs", reason=str(error)[:100]) from error
    if not found or len(found) != count:
        raise CorruptLogError("no whole file of epochs", epochs=len(found), expected=count)
    truth = zlib.crc32("".join(rows).encode()) & CRC_MASK
    if crc not in (0, truth):
        raise CorruptLogError("no whole file of epochs", crc=crc, expected=truth)
    if list(found) != sorted(found):
        raise CorruptLogError("epochs that do not follow one another", epochs=found[:3])
    return found
