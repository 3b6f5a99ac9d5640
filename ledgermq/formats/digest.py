"""Digests and checksums of our own files and frames: BLAKE2b, and CRC-32 behind a content."""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct

DIGEST_SIZE = 32

CRC = Struct("<I")
"""The checksum behind the content of a small file."""


def content_digest(content: bytes | bytearray | memoryview) -> bytes:
    """The digest of all of ``content``."""
    return blake2b(content, digest_size=DIGEST_SIZE).digest()
