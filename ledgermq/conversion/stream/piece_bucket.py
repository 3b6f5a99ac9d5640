"""Pieces of a backup stream as objects of a bucket, each put on the condition that there is none.

A piece is put by one request, whole or not at all, whoever is killed when; so nothing is left over
that would have to be swept up.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BufferedReader, BytesIO, RawIOBase
from itertools import accumulate
from tempfile import TemporaryFile, gettempdir
from typing import IO, BinaryIO, cast

from ledgermq.buckets.bucket import NO_CONDITIONS, TRIES, Bucket
from ledgermq.buckets.bucket_address import BucketPlace
from ledgermq.buckets.bucket_opening import open_bucket
from ledgermq.conversion.stream.piece_folder import missing_piece
from ledgermq.conversion.stream.sealed_piece import Bytes
from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.model.errors import ConfigError, CorruptLogError, StorageError

MEMORY_BYTES = 16 << 20
"""A piece with more bytes of its own, as encrypted ones have, stands in the temporary folder until
it is put, for it may have to be sent twice; what is a view of the log is sent from there."""

NAMES_MAX = 10_000_000
"""Most names in one folder: 100 TB in the smallest pieces are a sixth of it, and a gigabyte of
memory."""

_TRIAL = ".conditions"
"""An object that every stream puts if there is none."""

FIRST_BYTES = 64 << 10
"""Bytes of the first stretch: a small object is one request."""

BUFFER_BYTES = 1 << 20


class PieceBucket:
    """``PiecePlace`` below the prefix of a bucket: a piece is an object."""

    def __init__(self, place: BucketPlace) -> None:
        """Nothing is asked yet.

        Raises:
            ConfigError: the store's client is not installed, or does not take the place.
        """
        self._bucket = open_bucket(place)

    def as_text(self, name: str = "") -> str:
        """Address of the piece's object."""
        return self._bucket.as_text(name)

    def check_conditions(self) -> None:
        """Have the store show that it refuses what it must.

        Raises:
            ConfigError: it does not, so that two streams would write over each other's pieces.
            StorageError: it refused.
        """
        self._try(b"put")
        if self._try(b"put in spite of it"):
            raise ConfigError(
                NO_CONDITIONS, file=self._bucket.as_text(_TRIAL), condition="If-None-Match"
            )

    def _try(self, content: bytes) -> bool:
        """Whether the store has put it, in the place of nothing."""
        return self._bucket.put_new(_TRIAL, BytesIO(content), crc32(content, 0))

    def names(self, folder: str) -> list[str]:
        """Names of the pieces right below ``folder``, without it, in order.

        Raises:
            CorruptLogError: there are more than ``NAMES_MAX``.
        """
        names = []
        for one in self._bucket.level(f"{folder}/" if folder else ""):
            # A folder that a console has made is an object without a name.
            if one and not one.startswith(".") and "/" not in one:
                names.append(one)
            if len(names) > NAMES_MAX:
                raise CorruptLogError(
                    "too many objects for a backup stream",
                    file=self.as_text(folder),
                    allowed=NAMES_MAX,
                )
        return sorted(names)

    def folders(self) -> Iterator[str]:
        """Names of what may be streams right below.

        Raises:
            StorageError: the place refused.
        """
        return (one.removesuffix("/") for one in self._bucket.level("") if one.endswith("/"))

    def put(self, name: str, parts: Iterable[Bytes]) -> bool:
        """Have the piece, all or nothing; False if there is one of that name, also where an answer
        was lost, and it is this piece.
        """
        try:
            content, crc = _readable(parts)
            with content:
                return self._bucket.put_new(name, content, crc)
        except OSError as error:
            raise StorageError(
                "piece of a backup stream not written",
                errno=error.errno,
                file=self.as_text(name),
                reason=str(error),
                temporary_folder=gettempdir(),
            ) from error

    @contextmanager
    def opened(self, name: str) -> Iterator[BinaryIO]:
        try:
            with open_object(self._bucket, name) as file:
                yield file
        except FileNotFoundError as error:
            raise missing_piece(self.as_text(name)) from error

    def delete(self, name: str) -> None:
        self._bucket.delete([name])


def _readable(parts: Iterable[Bytes]) -> tuple[RawIOBase | IO[bytes], int]:
    """What can be read of the parts, again and again, and their CRC-32.

    Parts that are maps of the log stay where they are; of bytes no more than ``MEMORY_BYTES`` do,
    and with more of them all parts go into a temporary file.
    """
    crc, own, kept, rest = 0, 0, list[Bytes](), iter(parts)
    for part in rest:
        crc = crc32(part, crc)
        kept.append(part)
        own += len(part) if isinstance(part, bytes) else 0
        if own > MEMORY_BYTES:
            break
    else:
        return PartsFile(kept), crc
    file = TemporaryFile()  # noqa: SIM115 - the caller's to close
    try:
        while kept:
            file.write(kept.pop(0))
        for part in rest:
            crc = crc32(part, crc)
            file.write(part)
    except BaseException:
        file.close()
        raise
    return file, crc


def open_object(bucket: Bucket, key: str) -> BufferedReader:
    """The object ``key``, to be read once and closed.

    Raises:
        FileNotFoundError: there is none; while it is read, too:
        StorageError: the store refused, or has another object there meanwhile.
    """
    return BufferedReader(_ObjectBytes(bucket, key), BUFFER_BYTES)


def read_range(bucket: Bucket, key: str, start: int, end: int) -> bytes:
    """Bytes of the object ``key`` from ``start`` to ``end``, fewer where it ends before; one
    request, and another one where an answer was cut off.

    Raises:
        FileNotFoundError, StorageError: as ``open_object``.
    """
    with _ObjectBytes(bucket, key, start, end) as file:
        content = bytearray(end - start)
        view, done = memoryview(content), 0
        while done < len(view) and (count := file.readinto(view[done:])):
            done += count
        return bytes(view[:done])


class _ObjectBytes(RawIOBase):
    """Invariant: what was read ends at ``_at``, where ``_stretch`` goes on, or nothing does."""

    def __init__(self, bucket: Bucket, key: str, start: int = 0, end: int | None = None) -> None:
        self._bucket = bucket
        self._key = key
        self._at = start
        self._end = end
        self._stretches_left = TRIES
        self._reason = "it ends too early"
        self._stretch = bucket.stretch(key, start, end or FIRST_BYTES, version=None)
        size = self._stretch.size
        self._size = size if end is None else min(end, size)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(cast("bytearray", buffer)).cast("B")
        while self._at < self._size:
            try:
                chunk = self._stretch.read(len(view))
            except ConnectionError as error:
                chunk = b""
                self._reason = str(error)
            if chunk:
                view[: len(chunk)] = chunk
                self._at += len(chunk)
                return len(chunk)
            self._go_on()
        return 0

    def _go_on(self) -> None:
        """Have all behind ``_at`` sent."""
        self._stretch.close()
        self._stretches_left -= 1
        if self._stretches_left == 0:
            file = self._bucket.as_text(self._key)
            raise StorageError("object not read", file=file, reason=self._reason)
        version = self._stretch.version
        self._stretch = self._bucket.stretch(self._key, self._at, self._end, version=version)

    def close(self) -> None:
        self._stretch.close()
        super().close()


class PartsFile(io.RawIOBase):
    """Reads parts one after the other, and again after a ``seek``; copies what is read alone."""

    def __init__(self, parts: Iterable[bytes | memoryview]) -> None:
        """The parts stay where they are, and must stay what they are until it is closed."""
        super().__init__()
        self._parts = [memoryview(part) for part in parts if len(part)]
        self._ends = list(accumulate(len(part) for part in self._parts))
        self._at = 0

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        return self._ends[-1] if self._ends else 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Where the next byte is read."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Read on elsewhere.

        Raises:
            ValueError: before the beginning.
        """
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size}[whence]
        if begin + offset < 0:
            raise ValueError(f"no place before the beginning: {begin + offset}")
        self._at = begin + offset
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill ``buffer`` with what is left, over the borders of parts; the number of bytes, 0 at
        the end.
        """
        target = memoryview(buffer).cast("B")
        number, done = bisect_right(self._ends, self._at), 0
        while done < len(target) and number < len(self._parts):
            part, end = self._parts[number], self._ends[number]
            begin = self._at - (end - len(part))
            taken = part[begin : begin + len(target) - done]
            target[done : done + len(taken)] = taken
            done += len(taken)
            self._at += len(taken)
            number += self._at == end
        return done
