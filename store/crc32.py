"""The fastest CRC-32 that is installed: isal's, else zlib's (same polynomial, same result)."""

from __future__ import annotations

import zlib
from collections.abc import Callable

Crc32 = Callable[[bytes | bytearray | memoryview, int], int]

crc32: Crc32
try:
    from isal import isal_zlib
except ImportError:
    crc32 = zlib.crc32
    NAME = "zlib"
else:
    crc32 = isal_zlib.crc32
    NAME = "isal"
