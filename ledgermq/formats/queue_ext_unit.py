"""ConsumeQueueExt unit codec: tags, bloom filter and store time for consumers that filter by SQL.

Layout, big-endian (RocketMQ ``ConsumeQueueExt.CqExtUnit``):

    offset  size  field            unit
    0       2     size             bytes of the unit, 20 + bitmap_size
    2       8     tags_hash
    10      8     store_timestamp  epoch ms
    18      2     bitmap_size      bytes
    20      n     bitmap           bits of the consumers whose filter the message passes

A file ends with the size -1, for which 4 bytes stay free. A queue unit points here with an address
in the place of its hash: the unit's offset - 2**63, which is below every 32-bit hash.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from ledgermq.model.errors import CorruptLogError

_UNIT = Struct(">hqqh")
_SIZE = Struct(">h")

UNIT_SIZE_MIN = _UNIT.size
UNIT_SIZE_MAX = 32_767
FILE_SIZE = 48 * 1024 * 1024
END_OF_FILE = _SIZE.pack(-1)
END_OF_FILE_RESERVE = 4

_ADDRESS_MAX = -2_147_483_649
_ADDRESS_BASE = -(1 << 63)

assert UNIT_SIZE_MIN == 20  # the on-disk format; changing it is a format version


class QueueExtUnit(NamedTuple):
    """Extension of one queue unit."""

    tags_hash: int
    store_timestamp: int
    bitmap: bytes

    @property
    def size(self) -> int:
        """Bytes of the unit."""
        return UNIT_SIZE_MIN + len(self.bitmap)


def is_ext_address(tags_hash: int) -> bool:
    """Whether a queue unit's ``tags_hash`` is an address."""
    return tags_hash <= _ADDRESS_MAX


def ext_address(offset: int) -> int:
    """What a queue unit holds for the extension unit at ``offset``."""
    assert offset >= 0, offset
    return offset + _ADDRESS_BASE


def ext_offset(address: int) -> int:
    """Offset of the unit that ``address`` points at."""
    assert is_ext_address(address), address
    return address - _ADDRESS_BASE


def encode_ext_unit(unit: QueueExtUnit) -> bytes:
    """The bytes of ``unit``."""
    assert unit.size <= UNIT_SIZE_MAX, unit.size
    head = _UNIT.pack(unit.size, unit.tags_hash, unit.store_timestamp, len(unit.bitmap))
    return head + unit.bitmap


def decode_ext_unit(view: memoryview, at: int = 0, *, file: str = "") -> QueueExtUnit | None:
    """The unit at ``at``; ``None`` at the end of the file's used part.

    Raises:
        CorruptLogError: there is neither a whole unit nor an end.
    """
    if at + _SIZE.size > len(view):
        raise _corrupt("queue extension is cut off", file, at, "size", len(view) - at)
    (size,) = _SIZE.unpack_from(view, at)
    if size in (-1, 0):
        return None
    if size < UNIT_SIZE_MIN or at + size > len(view):
        raise _corrupt("size is impossible", file, at, "size", size)
    _, tags_hash, store_timestamp, bitmap_size = _UNIT.unpack_from(view, at)
    if bitmap_size != size - UNIT_SIZE_MIN:
        raise _corrupt("sizes disagree", file, at + 18, "bitmap_size", bitmap_size)
    bitmap = bytes(view[at + UNIT_SIZE_MIN : at + size])
    return QueueExtUnit(tags_hash, store_timestamp, bitmap)


def _corrupt(text: str, file: str, offset: int, field: str, value: int) -> CorruptLogError:
    return CorruptLogError(text, file=file, offset=offset, field=field, value=value)
