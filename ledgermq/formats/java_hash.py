"""Java's ``String.hashCode``, which RocketMQ stores for tags and index keys."""

from __future__ import annotations

_MASK = 0xFFFF_FFFF
_SIGN = 0x8000_0000

HASH_MIN = -(1 << 31)


def java_hash(text: str) -> int:
    """Java's hash of ``text``: signed 32-bit, over UTF-16 code units."""
    value = 0
    if text.isascii():
        for unit in text.encode("ascii"):
            value = (31 * value + unit) & _MASK
    else:
        # A lone surrogate is a legal character of a Java string.
        data = text.encode("utf-16-be", "surrogatepass")
        for at in range(0, len(data), 2):
            value = (31 * value + (data[at] << 8 | data[at + 1])) & _MASK
    return value - (_MASK + 1) if value & _SIGN else value


def index_key_hash(key: str) -> int:
    """Hash of an index key (``topic#key``), never negative (``IndexFile.indexKeyHashMethod``)."""
    value = abs(java_hash(key))
    # Java's abs of the smallest integer stays negative, and is then replaced by 0.
    return 0 if value == _SIGN else value
