"""Committed part of a plain log, as a slave gets it: pieces of its files, one behind the other."""

from __future__ import annotations

import os
from functools import partial

from ledgermq.ipc.cursor_page import CursorPage
from ledgermq.model.errors import CorruptLogError, ProtocolError, StorageError
from ledgermq.store.files.descriptor_cache import with_descriptors
from ledgermq.store.files.file_names import file_name
from ledgermq.store.log_family import LogFamily

FLAGS = os.O_RDONLY | os.O_CLOEXEC


class CommittedLog:
    """The log of ``family``, as far as the node's page says that it stays as it is."""

    def __init__(self, family: LogFamily, page: CursorPage) -> None:
        """Nothing is read yet."""
        self.family = family
        self._page = page

    @property
    def is_known(self) -> bool:
        """Whether ``end`` can be told: not before the writer has recovered the log."""
        return self._page.has_committed()

    @property
    def begin(self) -> int:
        """First byte of the oldest file; 0 without a file.

        Raises:
            StorageError: the folder cannot be read.
        """
        return self.family.first_file() or 0

    @property
    def end(self) -> int:
        """End of what is committed, and durable: what a crash of this host took away, and a slave
        has, would be followed by other bytes here.
        """
        return min(self._page.read_committed_position(), self._page.read_durable()[0].position)


class SentPart:
    """What one slave gets, from a position on; keeps the file open that it reads.

    Attributes:
        position: of the next byte.
    """

    def __init__(self, log: CommittedLog, position: int) -> None:
        """Nothing is read yet."""
        self.position = position
        self._log = log
        self._start = self._file_end = -1
        self._descriptor = -1

    def next_piece(self, size_max: int) -> bytes:
        """The bytes that come next, all of one file; none while there are no more.

        They are read past the map of the file: a disk that fails costs this reader an error, and
        not its process.

        Raises:
            ProtocolError: the log begins behind them; retention was faster.
            StorageError, CorruptLogError: the file cannot be read.
        """
        room = self._log.end - self.position
        if room <= 0:
            return b""
        if not self._start <= self.position < self._file_end:
            self._open()
        size = min(room, size_max, self._file_end - self.position)
        try:
            piece = os.pread(self._descriptor, size, self.position - self._start)
        except OSError as error:
            raise self._not_read(error) from error
        if len(piece) != size:
            raise CorruptLogError(
                "log file ends before the log does",
                file=file_name(self._start),
                position=self.position,
                size=len(piece),
                expected=size,
            )
        self.position += size
        return piece

    def close(self) -> None:
        """Let go of the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._start = self._file_end = self._descriptor = -1

    def _open(self) -> None:
        self.close()
        for folder, start in self._log.family.candidates(self.position):
            path = folder.path / file_name(start)
            try:
                self._descriptor = with_descriptors(partial(os.open, path, FLAGS))
                self._start, self._file_end = start, start + os.fstat(self._descriptor).st_size
            except FileNotFoundError:
                # Retention was faster.
                break
            except OSError as error:
                raise self._not_read(error) from error
            if self.position < self._file_end:
                return
        raise ProtocolError(
            "the log has no more what the slave lacks: begin again, with an empty store",
            position=self.position,
            begins=self._log.begin,
        )

    def _not_read(self, error: OSError) -> StorageError:
        return StorageError(
            "log not read for a slave",
            errno=error.errno,
            position=self.position,
            reason=error.strerror,
        )
