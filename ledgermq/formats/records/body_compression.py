"""Compression of message bodies: RocketMQ's ``sysFlag`` bits, and the algorithms behind them.

zlib with bit 0 alone is what RocketMQ 4.9 and all its clients read. LZ4 (its frame format) and
Zstandard are RocketMQ 5's, told by bits 8 to 10; they need the packages ``lz4`` and ``zstandard``.
The broker stores what it is given: CRC and limits are those of the compressed bytes.
"""

from __future__ import annotations

import io
import zlib
from enum import Enum
from importlib import import_module
from types import ModuleType
from typing import NamedTuple

from ledgermq.formats.records.message import (
    COMPRESSED,
    COMPRESSION_LZ4,
    COMPRESSION_MASK,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
)
from ledgermq.model.errors import BodyUnreadableError, ConfigError

Body = bytes | bytearray | memoryview

PLAIN_SIZE_MAX = 64 * 1024 * 1024
"""Most bytes that a compressed body may become: sixteen times the largest message."""


class Compression(Enum):
    """How a producer compresses."""

    ZLIB = "zlib"
    LZ4 = "lz4"
    ZSTD = "zstd"

    @property
    def sys_flag(self) -> int:
        """The bits that say so."""
        return _SYS_FLAGS[self]

    @property
    def levels(self) -> range:
        """What may be asked for: the higher, the smaller and the slower."""
        return _LEVELS[self]


_SYS_FLAGS = {
    Compression.ZLIB: COMPRESSED,
    Compression.LZ4: COMPRESSED | COMPRESSION_LZ4,
    Compression.ZSTD: COMPRESSED | COMPRESSION_ZSTD,
}
_LEVELS = {
    Compression.ZLIB: range(10),
    Compression.LZ4: range(17),
    Compression.ZSTD: range(1, 23),
}
_OF_FLAG = {
    0: Compression.ZLIB,
    COMPRESSION_ZLIB: Compression.ZLIB,
    COMPRESSION_LZ4: Compression.LZ4,
    COMPRESSION_ZSTD: Compression.ZSTD,
}
_PACKAGES = {
    Compression.LZ4: ("lz4", "lz4.frame"),
    Compression.ZSTD: ("zstandard", "zstandard"),
}


def check_compression(kind: Compression) -> None:
    """Refuse what this machine cannot do.

    Raises:
        ConfigError: the package that it needs is not installed.
    """
    if kind is not Compression.ZLIB:
        _library(kind)


def compress_body(body: Body, kind: Compression, level: int) -> bytes:
    """The compressed bytes, which may be more than ``body`` has.

    Raises:
        ConfigError: the package that it needs is not installed.
    """
    if kind is Compression.ZLIB:
        return zlib.compress(body, level)
    library = _library(kind)
    if kind is Compression.LZ4:
        packed: bytes = library.compress(bytes(body), compression_level=level)
        return packed
    packed = library.ZstdCompressor(level=level).compress(bytes(body))
    return packed


class BodyStart(NamedTuple):
    """The beginning of a body as the application gave it; ``is_whole``: there is no more of it."""

    content: Body
    is_whole: bool


def body_start(body: Body, sys_flag: int, size_max: int) -> BodyStart:
    """The first ``size_max`` bytes of a body, of which no more than one byte more is made.

    What is broken behind them is not seen.

    Raises:
        BodyUnreadableError: the compressed bytes are broken, of an unknown kind, or need a package
            that is not installed.
    """
    if not sys_flag & COMPRESSED:
        return BodyStart(body[:size_max], len(body) <= size_max)
    kind = _OF_FLAG.get(sys_flag & COMPRESSION_MASK)
    if kind is None:
        raise BodyUnreadableError("body is compressed in an unknown way", sys_flag=sys_flag)
    try:
        plain = _READERS[kind](body, size_max)
    except ConfigError as error:
        raise BodyUnreadableError(error.message, **error.details) from error
    except (zlib.error, RuntimeError, EOFError, OSError, ValueError, MemoryError) as error:
        raise _broken(kind, body, str(error) or type(error).__name__) from error
    if plain is None:
        raise _broken(kind, body, "it ends too early")
    if len(plain) > size_max:
        return BodyStart(plain[:size_max], is_whole=False)
    return BodyStart(plain, is_whole=True)


def plain_body(body: Body, sys_flag: int, *, size_max: int = PLAIN_SIZE_MAX) -> Body:
    """The body as the application gave it; ``body`` itself when it is not compressed.

    Raises:
        BodyUnreadableError: as of ``body_start``, or it would become more than ``size_max``.
    """
    if not sys_flag & COMPRESSED:
        return body
    plain, is_whole = body_start(body, sys_flag, size_max)
    if not is_whole:
        raise BodyUnreadableError(
            "body is too large once it is decompressed",
            compression=_OF_FLAG[sys_flag & COMPRESSION_MASK].value,
            compressed_size=len(body),
            limit=size_max,
        )
    return plain


def _read_zlib(body: Body, size_max: int) -> bytes | None:
    reader = zlib.decompressobj()
    plain = reader.decompress(body, size_max + 1)
    return plain if reader.eof or len(plain) > size_max else None


def _read_lz4(body: Body, size_max: int) -> bytes | None:
    reader = _library(Compression.LZ4).LZ4FrameDecompressor()
    plain: bytes = reader.decompress(bytes(body), size_max + 1)
    return plain if reader.eof or len(plain) > size_max else None


def _read_zstd(body: Body, size_max: int) -> bytes | None:
    library = _library(Compression.ZSTD)
    try:
        source = io.BytesIO(bytes(body))
        with library.ZstdDecompressor().stream_reader(source) as reader:
            parts: list[bytes] = []
            room = size_max + 1
            while room > 0 and (part := reader.read(min(room, 1 << 20))):
                parts.append(part)
                room -= len(part)
        plain = b"".join(parts)
        if len(plain) > size_max:
            return plain
        # The reader does not tell an end that came too early from the right one.
        whole = library.ZstdDecompressor().decompressobj()
        whole.decompress(bytes(body))
    except library.ZstdError as error:
        raise ValueError(str(error)) from error
    return plain if whole.eof else None


_READERS = {
    Compression.ZLIB: _read_zlib,
    Compression.LZ4: _read_lz4,
    Compression.ZSTD: _read_zstd,
}


def _library(kind: Compression) -> ModuleType:
    package, module = _PACKAGES[kind]
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"{kind.value} needs the Python package {package}", compression=kind.value
        ) from error


def _broken(kind: Compression, body: Body, reason: str) -> BodyUnreadableError:
    return BodyUnreadableError(
        "compressed body is broken", compression=kind.value, size=len(body), reason=reason
    )
