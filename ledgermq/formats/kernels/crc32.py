"""CRC-32 by the fastest library that is installed: isal's, else zlib's, with the same result."""

from __future__ import annotations

import ctypes
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


def native_address() -> int:
    """Where isal's C function lies, for compiled loops that call nothing in Python; 0 without isal.

    ``uint32_t crc32_gzip_refl(uint32_t, const uint8_t *, uint64_t)`` (isa-l, ``crc.h``).
    """
    if NAME != "isal":
        return 0
    try:
        function = ctypes.CDLL(isal_zlib.__file__).crc32_gzip_refl
    except (OSError, AttributeError):
        # Built against a library of the system: the callable does the same, a little slower.
        return 0
    return ctypes.cast(function, ctypes.c_void_p).value or 0
