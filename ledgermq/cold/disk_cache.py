"""Cache on the disk of what was read of pieces: bounded, and what it gives is what was put.

A file is a range of a piece with its CRC-32 behind it. Nothing in it is synced, and any of it may
be deleted at any time: it is read from the place again.
"""

from __future__ import annotations

import logging
import os
import re
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from threading import Lock

from ledgermq.formats.digest import CRC, content_digest, with_crc, without_crc
from ledgermq.model.errors import ConfigError
from ledgermq.store.files.disk_sync import make_directories
from ledgermq.store.files.small_file import create_file, write_all

logger = logging.getLogger(__name__)

_NAME = re.compile(r"[0-9a-f]{32}-[0-9]+-[0-9]+")
_TEMPORARY = ".tmp"


class DiskCache:
    """Ranges of pieces in a folder, of which those that were not asked for longest go first.

    It may be used by several threads, and the folder by one process. Invariant: ``size`` is the sum
    of ``_sizes``, and at most ``_bytes_max`` after each ``put``.
    """

    def __init__(self, folder: Path, bytes_max: int) -> None:
        """Take over what an earlier process has left.

        Raises:
            ConfigError: the folder cannot be made or read.
        """
        self._folder = folder
        self._bytes_max = bytes_max
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._lock = Lock()
        self._is_refused = False
        self.size = 0
        try:
            make_directories(folder, mode=0o700)
            self._take_over()
        except OSError as error:
            raise ConfigError(
                "cache of pieces cannot be used",
                folder=str(folder),
                reason=error.strerror,
                setting="cold.cache_dir",
            ) from error

    def get(self, piece: str, start: int, end: int) -> bytes | None:
        """The bytes from ``start`` to ``end`` of ``piece``; None: they are not here."""
        name = _name(piece, start, end)
        with self._lock:
            if name not in self._sizes:
                return None
            self._sizes.move_to_end(name)
        try:
            content = without_crc((self._folder / name).read_bytes(), end - start)
        except FileNotFoundError:
            content = None
        except OSError as error:
            self._tell(error)
            content = None
        if content is None or len(content) != end - start:
            self._drop([name])
            return None
        return content

    def put(self, piece: str, start: int, end: int, content: bytes) -> None:
        """Keep these bytes, if they fit; a disk that refuses them is told of in the log."""
        name, size = _name(piece, start, end), len(content) + CRC.size
        if size > self._bytes_max:
            return
        fresh = self._folder / (name + _TEMPORARY)
        try:
            with suppress(FileNotFoundError):
                fresh.unlink()
            with create_file(fresh) as file:
                write_all(file.fileno(), with_crc(content))
            fresh.rename(self._folder / name)
        except OSError as error:
            self._tell(error)
            with suppress(OSError):
                fresh.unlink()
            return
        self._is_refused = False
        with self._lock:
            self.size += size - self._sizes.pop(name, 0)
            self._sizes[name] = size
            oldest = iter(list(self._sizes))
            left, gone = self.size, []
            while left > self._bytes_max:
                gone.append(next(oldest))
                left -= self._sizes[gone[-1]]
        self._drop(gone)

    def forget(self, piece: str) -> None:
        """Have no range of ``piece`` any more."""
        mark = _mark(piece)
        with self._lock:
            names = [name for name in self._sizes if name.startswith(mark)]
        self._drop(names)

    def keep(self, pieces: Iterable[str]) -> None:
        """Have no range of any other piece any more: what was deleted there is not to stay here."""
        marks = {_mark(piece) for piece in pieces}
        with self._lock:
            names = [name for name in self._sizes if name.partition("-")[0] not in marks]
        self._drop(names)

    def _drop(self, names: list[str]) -> None:
        for name in names:
            with self._lock:
                self.size -= self._sizes.pop(name, 0)
            try:
                (self._folder / name).unlink(missing_ok=True)
            except OSError as error:
                self._tell(error)

    def _take_over(self) -> None:
        found = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                name = entry.name
                if name.endswith(_TEMPORARY) and _NAME.fullmatch(name.removesuffix(_TEMPORARY)):
                    Path(entry.path).unlink()
                elif _NAME.fullmatch(name):
                    status = entry.stat(follow_symlinks=False)
                    found.append((status.st_mtime_ns, name, status.st_size))
        for _, name, size in sorted(found):
            self._sizes[name] = size
            self.size += size
        # Fewer bytes may be allowed than before.
        oldest = list(self._sizes)
        while self.size > self._bytes_max:
            self._drop([oldest.pop(0)])

    def _tell(self, error: OSError) -> None:
        if not self._is_refused:
            self._is_refused = True
            logger.warning("cache of pieces refused: folder=%s reason=%s", self._folder, error)


def _mark(piece: str) -> str:
    return content_digest(piece.encode()).hex()[:32]


def _name(piece: str, start: int, end: int) -> str:
    return f"{_mark(piece)}-{start}-{end}"
