"""Dispatch checkpoint: the log position up to which ConsumeQueues and Index are durable.

Layout of ``ROOT/ledgermq/dispatch-checkpoint``, little-endian:

    offset  size  field
    0       4     magic ``LMQD``
    4       4     version, 2
    8       8     position: first one of the log that is not covered
    16      8     position behind the last message that has a queue unit, -1 when none has
    24      16    boot id of the machine when it was written
    40      8     queue offsets of all queues' ends, summed up
    48      8     position of the last message that has a key in the Index; -1 when none has, -2
                  when no Index was kept
    56      4     CRC-32 of the bytes before

Version 1 ends with its CRC at 40: neither sum nor index are known then, -1.

The boot id tells a killed process from a power failure: only after the latter may what was written
behind the position be damaged. The sum tells that units are missing, wherever that is.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from ledgermq.formats.digest import CRC, with_crc, without_crc
from ledgermq.store.files.small_file import read_file

INDEX_NOT_KEPT = -2

_BODY = Struct("<4sIqq16s")
_MAGIC = b"LMQD"
_LATER = Struct("<qq")
_VERSION = 2
_SIZES = {_BODY.size + CRC.size: 1, _BODY.size + _LATER.size + CRC.size: _VERSION}
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class DispatchCheckpoint(NamedTuple):
    """What the file says; see the module's table."""

    position: int
    last_unit_end: int
    boot_id: bytes
    units: int = -1
    index_end: int = -1


def encode(checkpoint: DispatchCheckpoint) -> bytes:
    """The file's content."""
    body = _BODY.pack(_MAGIC, _VERSION, *checkpoint[:3]) + _LATER.pack(*checkpoint[3:])
    return with_crc(body)


def decode(content: bytes) -> DispatchCheckpoint | None:
    """What the file says; None when it is not whole: then the queues themselves are asked."""
    version = _SIZES.get(len(content))
    if version is None:
        return None
    body = without_crc(content, len(content) - CRC.size)
    if body is None:
        return None
    magic, said, *values = _BODY.unpack_from(body)
    if (magic, said) != (_MAGIC, version):
        return None
    later = _LATER.unpack_from(body, _BODY.size) if version == _VERSION else ()
    return DispatchCheckpoint(*values, *later)


def read(path: Path) -> DispatchCheckpoint | None:
    """The checkpoint at ``path``; None when there is none that is whole.

    Raises:
        StorageError: the file is there and cannot be read.
    """
    content = read_file(path)
    return None if content is None else decode(content)


def boot_id() -> bytes:
    """Sixteen bytes that another start of the machine does not have."""
    return uuid.UUID(_BOOT_ID.read_text(encoding="ascii").strip()).bytes
