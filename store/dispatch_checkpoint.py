"""Our own checkpoint of dispatch: up to where ConsumeQueues and Index are built and durable.

Layout of ``ROOT/ledgermq/dispatch-checkpoint``, little-endian:

    offset  size  field
    0       4     magic ``LMQD``
    4       4     version, 1
    8       8     position: first one of the log that is not covered
    16      8     position behind the last message that has a queue unit, -1 when none has
    24      16    boot id of the machine when it was written
    40      4     CRC-32 of the bytes before

The boot id tells a killed process from a power failure: only after the latter may what was written
behind the position be damaged.
"""

from __future__ import annotations

import uuid
import zlib
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from ledgermq.store.small_file import read_file

_BODY = Struct("<4sIqq16s")
_CRC = Struct("<I")
_MAGIC = b"LMQD"
_VERSION = 1
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class DispatchCheckpoint(NamedTuple):
    """What the file says; see the module's table."""

    position: int
    last_unit_end: int
    boot_id: bytes


def encode(checkpoint: DispatchCheckpoint) -> bytes:
    """The file's content."""
    body = _BODY.pack(_MAGIC, _VERSION, *checkpoint)
    return body + _CRC.pack(zlib.crc32(body))


def decode(content: bytes) -> DispatchCheckpoint | None:
    """What the file says; None when it is not whole: then the queues themselves are asked."""
    if len(content) != _BODY.size + _CRC.size:
        return None
    body = content[: _BODY.size]
    if _CRC.unpack_from(content, _BODY.size)[0] != zlib.crc32(body):
        return None
    magic, version, *values = _BODY.unpack(body)
    if (magic, version) != (_MAGIC, _VERSION):
        return None
    return DispatchCheckpoint(*values)


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
