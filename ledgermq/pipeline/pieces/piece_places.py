"""Places of sealed pieces: a folder or a prefix of a bucket, read by ranges.

    PLACE/pieces/START-END.parquet            a piece: positions of the log that it has
    PLACE/pieces/START-END.EDITION.parquet    what is left of one of which rows were dropped
    PLACE/notes/START-END.EDITION             what was dropped of it message by message
    PLACE/manifest                            which pieces there are, and what is in them

A piece is put whole or not at all, and never written over. The manifest is the one document that is
replaced, on the condition that it is still what was read; all of it can be made anew of the pieces.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from ledgermq.buckets.bucket import OBJECT_BYTES_MAX
from ledgermq.buckets.bucket_address import BucketPlace, is_address, parse_address
from ledgermq.conversion.stream.piece_bucket import PieceBucket, read_range
from ledgermq.conversion.stream.piece_folder import PIECES_MANIFEST, PieceFolder, PiecePlace
from ledgermq.formats.digest import content_digest
from ledgermq.model.errors import CorruptLogError, StorageError, refused_as
from ledgermq.pipeline.pieces.piece_file import Ranges
from ledgermq.store.files.disk_sync import make_directories
from ledgermq.store.files.small_file import read_file, replace_file

MANIFEST = PIECES_MANIFEST
PIECES, NOTES = "pieces", "notes"
LEFT_FOR_S = 3_600
"""A file that is not whole and so old belongs to nobody any more."""

_LOCK = ".lock"
_SUFFIX = ".parquet"
_NAME = re.compile(r"([0-9]{20})-([0-9]{20})(?:\.([1-9][0-9]{0,17}))?\.parquet")


class ReadPlace(Protocol):
    """Sealed pieces, as who only reads them needs a place."""

    def as_text(self, name: str = "") -> str:
        """Where the file ``name`` is, or all of them."""
        ...

    def names(self, folder: str) -> list[str]:
        """Names right below ``folder``; none without it.

        Raises:
            StorageError: the place refused.
        """
        ...

    def ranges(self, name: str, size: int | None = None) -> Ranges:
        """The bytes of a file, of which ``size`` are known to be there; else it is asked for.

        Raises:
            CorruptLogError: there is none.
            StorageError: the place refused.
        """
        ...

    def document(self, name: str) -> tuple[bytes, str] | None:
        """The content of a small file, and its version; None without one.

        Raises:
            CorruptLogError: it is too large.
            StorageError: the place refused.
        """
        ...


class SealedPlace(PiecePlace, ReadPlace, Protocol):
    """Where sealed pieces are, and all that is in a place of a backup stream."""

    def replace(self, name: str, content: bytes, *, over: str | None) -> bool:
        """Replace a small file that is still of version ``over`` (None: that is not there), durable
        on return; False if it is another one by now.

        Raises:
            ConfigError: the store does not keep to conditions.
            StorageError: the place refused.
        """
        ...

    def clear_left(self) -> None:
        """Delete what was left, an hour ago or earlier, by who was killed while it put a file."""
        ...


def place_at(text: str) -> SealedPlace:
    """The place ``text``: a path, or an address as ``s3://BUCKET/PREFIX``.

    Raises:
        ConfigError: it is an address of something else, or the store's client is not installed.
    """
    if is_address(text):
        return SealedBucket(parse_address(text, of="sealed pieces"))
    return SealedFolder(Path(text))


class SealedFolder(PieceFolder):
    """``SealedPlace`` in a folder."""

    def __init__(self, root: Path) -> None:
        """The folder ``root``, which is made when something is put."""
        super().__init__(root)
        self._folder = root

    def ranges(self, name: str, size: int | None = None) -> Ranges:
        return _FileRanges(self._folder / name)

    def document(self, name: str) -> tuple[bytes, str] | None:
        path = self._folder / name
        if path.exists() and path.stat().st_size > OBJECT_BYTES_MAX:
            raise CorruptLogError(
                "file is too large for what it is to be",
                file=str(path),
                bytes=path.stat().st_size,
                allowed=OBJECT_BYTES_MAX,
            )
        content = read_file(path)
        return None if content is None else (content, _version(content))

    def replace(self, name: str, content: bytes, *, over: str | None) -> bool:
        with self._locked():
            found = self.document(name)
            if (found and found[1]) != over:
                return False
            replace_file(self._folder / name, content)
            return True

    def clear_left(self) -> None:
        self.sweep(older_than_s=LEFT_FOR_S)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with refused_as("sealed piece not written", file=self._folder / _LOCK):
            make_directories(self._folder, mode=0o700)
            lock = os.open(self._folder / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


class SealedBucket(PieceBucket):
    """``SealedPlace`` below a prefix of a bucket."""

    def __init__(self, place: BucketPlace) -> None:
        """Nothing is asked yet.

        Raises:
            ConfigError: the store's client is not installed, or does not take the place.
        """
        super().__init__(place)
        self._is_tried = False

    def ranges(self, name: str, size: int | None = None) -> Ranges:
        if size is None:
            try:
                stretch = self._bucket.stretch(name, 0, 1, version=None)
            except FileNotFoundError as error:
                raise _missing(self.as_text(name)) from error
            stretch.close()
            size = stretch.size
        return _ObjectRanges(self, name, size)

    def read(self, name: str, start: int, end: int) -> bytes:
        """Bytes of an object, by one request.

        Raises:
            CorruptLogError: there is no such object.
            StorageError: the store refused.
        """
        try:
            return read_range(self._bucket, name, start, end)
        except FileNotFoundError as error:
            raise _missing(self.as_text(name)) from error

    def document(self, name: str) -> tuple[bytes, str] | None:
        found = self._bucket.get(name, bytes_max=OBJECT_BYTES_MAX)
        return None if found is None else (found.content, found.version)

    def replace(self, name: str, content: bytes, *, over: str | None) -> bool:
        if not self._is_tried:
            self.check_conditions()
            self._is_tried = True
        return self._bucket.put(name, content, over=over) is not None

    def clear_left(self) -> None:
        """Nothing is left: an object is there once all of it is."""


class _FileRanges:
    def __init__(self, path: Path) -> None:
        self._path = path
        self.name = str(path)
        try:
            self.size = path.stat().st_size
        except FileNotFoundError as error:
            raise _missing(self.name) from error
        except OSError as error:
            raise StorageError.of("sealed piece not read", error, file=path) from error

    def read(self, start: int, end: int) -> bytes:
        try:
            with self._path.open("rb", buffering=0) as file:
                return _read_all(file.fileno(), start, end)
        except FileNotFoundError as error:
            raise _missing(self.name) from error
        except OSError as error:
            raise StorageError.of("sealed piece not read", error, file=self._path) from error


class _ObjectRanges:
    def __init__(self, place: SealedBucket, key: str, size: int) -> None:
        self._place = place
        self._key = key
        self.name = place.as_text(key)
        self.size = size

    def read(self, start: int, end: int) -> bytes:
        return self._place.read(self._key, start, end)


def _read_all(fd: int, start: int, end: int) -> bytes:
    content = bytearray()
    while len(content) < end - start:
        chunk = os.pread(fd, end - start - len(content), start + len(content))
        if not chunk:
            break
        content += chunk
    return bytes(content)


def _missing(where: str) -> CorruptLogError:
    return CorruptLogError("sealed piece is missing", file=where)


def _version(content: bytes) -> str:
    return content_digest(content).hex()


class PieceName(NamedTuple):
    """What the name of a piece's file says.

    Attributes:
        edition: 0 of one that was sealed; else the number of the run that has dropped of it.
    """

    start: int
    end: int
    edition: int = 0


def check_name(name: str, *, where: str) -> PieceName:
    """What the name of a piece's file says.

    Raises:
        CorruptLogError: no piece has such a name.
    """
    found = _NAME.fullmatch(name)
    if found is not None:
        piece = PieceName(*(int(number or 0) for number in found.groups()))
        if name == file_name(*piece):
            return piece
    raise CorruptLogError("no sealed piece has such a name", file=where, name=name)


def check_note_name(name: str, *, where: str) -> PieceName:
    """What the name of a note's file says: of which piece it is, and of which run.

    Raises:
        CorruptLogError: no note has such a name.
    """
    return check_name(name + _SUFFIX, where=where)


def file_name(start: int, end: int, edition: int = 0) -> str:
    """Name of the file of a piece that has these positions."""
    return f"{start:020d}-{end:020d}{f'.{edition}' if edition else ''}{_SUFFIX}"


def note_name(start: int, end: int, edition: int) -> str:
    """Name, in the place, of what the run ``edition`` has noted of a piece."""
    return f"{NOTES}/{file_name(start, end, edition).removesuffix(_SUFFIX)}"
