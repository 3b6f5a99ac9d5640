"""Pieces of a backup stream as objects of a bucket, each put on the condition that there is none.

A piece is put by one request, whole or not at all, whoever is killed when; so nothing is left over
that would have to be swept up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO, RawIOBase
from tempfile import TemporaryFile, gettempdir
from typing import IO, BinaryIO

from ledgermq.buckets.bucket import NO_CONDITIONS
from ledgermq.buckets.bucket_address import BucketPlace
from ledgermq.buckets.bucket_opening import open_bucket
from ledgermq.buckets.object_reader import open_object
from ledgermq.buckets.parts_file import PartsFile
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
