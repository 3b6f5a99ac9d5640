"""Digests and checksums of our own files and frames: BLAKE2b, and CRC-32 behind a content."""

from __future__ import annotations

import zlib
from hashlib import blake2b
from struct import Struct

DIGEST_SIZE = 32

CRC = Struct("<I")
"""The checksum behind the content of a small file."""


def content_digest(content: bytes | bytearray | memoryview) -> bytes:
    """The digest of all of ``content``."""
    return blake2b(content, digest_size=DIGEST_SIZE).digest()


def with_crc(body: bytes) -> bytes:
    """``body`` with its checksum behind it."""
    return body + CRC.pack(zlib.crc32(body))


def without_crc(content: bytes, size: int) -> bytes | None:
    """The first ``size`` bytes; None where what stands behind them is not their checksum."""
    body = content[:size]
    return body if content[size : size + CRC.size] == CRC.pack(zlib.crc32(body)) else None
