"""Append side of a family of fixed-size files: one append position, one ``pwrite`` a batch.

A file is named by the 20 digits of its first position, is created at its full size, and gets its
blocks reserved ahead of the writes, so that a full disk is an error of a call and not a torn batch.

Invariants: ``first file start <= position <= first file start of the open file + file_size``.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import NamedTuple

from ledgermq.model.errors import NO_SPACE, CorruptLogError, StorageError
from ledgermq.store.files.descriptor_cache import with_descriptors
from ledgermq.store.files.disk_space import storage_error
from ledgermq.store.files.disk_sync import make_folder, sync_content, sync_directory, sync_file
from ledgermq.store.files.file_names import file_name, own_names

RESERVE_STEP = 64 * 1024 * 1024
"""Blocks are reserved in steps of this size, or of a sixteenth of a file if that is less: few
calls, and small stores stay small."""

RESERVE_STEP_MIN = 64 * 1024
"""Least step in which blocks are reserved, on a disk that is nearly full; less would be a call for
every batch."""


TRY_SIZE = 4_096
"""Bytes that are written to see whether a disk takes writes: a block."""

_PUNCH_HOLE_KEEP_SIZE = 0x03
_libc = ctypes.CDLL(None, use_errno=True)


def _punch_hole(fd: int, offset: int, size: int) -> None:
    """Make ``size`` bytes at ``offset`` read as zeros, without a moment of another file size."""
    call = _libc.fallocate
    call.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    if call(fd, _PUNCH_HOLE_KEEP_SIZE, offset, size) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class FileTail(NamedTuple):
    """An open file: position of its first byte, of the next one, and up to where it has blocks."""

    descriptor: int
    start: int
    position: int
    blocks: int


class AppendFiles:
    """The open end of a file family; the process that owns it is the only one that writes it."""

    def __init__(self, directory: Path, *, file_size: int, position: int) -> None:
        """Open for appending at ``position``; the file is created when it is not there.

        Raises:
            StorageError: the operating system refused.
            CorruptLogError: the file is there with another size.
        """
        assert file_size > 0
        assert position >= 0
        self.directory = directory
        self.file_size = file_size
        self.position = position
        make_folder(directory)
        self.files_made = 0
        self._ahead: dict[int, tuple[int, int]] = {}
        self._retired: list[int] = []
        self._start = self._start_for(position)
        self._fd = self._opened(self._start)
        self._reserved = 0

    @property
    def start(self) -> int:
        """Position of the first byte of the open file."""
        return self._start

    @property
    def room(self) -> int:
        """Bytes left in the open file."""
        return self._start + self.file_size - self.position

    @property
    def tail(self) -> FileTail:
        """The open file, for who writes into its blocks at ``position``, and says where it ends."""
        return FileTail(self._fd, self._start, self.position, self._start + self._reserved)

    def has_blocks(self, size: int) -> bool:
        """Whether the open file has blocks for ``size`` bytes more, and need not be asked for any.

        Where it has none, ``reserve`` gets them.
        """
        return self.position + size - self._start <= self._reserved

    def roll(self) -> None:
        """Go on with the next file; ``position`` becomes its start.

        The file that is left stays open for ``sync``.
        """
        left = self._fd
        following = self._start + self.file_size
        fd, reserved = self._ahead.pop(following, (-1, 0))
        if fd < 0:
            fd = self._opened(following)
        # In this order, and with ``sync`` looking in the other one, no sync misses the file left.
        self._retired.append(left)
        self._fd = fd
        self._start += self.file_size
        self._reserved = reserved
        self.position = self._start

    def reserve(self, end: int) -> None:
        """Have blocks for all that is going to be written before the position ``end``.

        Files that are needed for that are made. After it no ``append`` and no ``roll`` before
        ``end`` can fail because the disk is full.

        Raises:
            DiskFullError: there is no space; nothing has changed.
            StorageError: the operating system refused.
        """
        assert end >= self.position, (end, self.position)
        if end - self._start <= self._reserved:
            return
        self._reserve(min(end - self._start, self.file_size))
        start = self._start + self.file_size
        made: list[int] = []
        try:
            while start < end:
                if start not in self._ahead:
                    self._ahead[start] = (self._opened(start), 0)
                    made.append(start)
                fd, reserved = self._ahead[start]
                wanted = min(end - start, self.file_size)
                if wanted > reserved:
                    reserved = self._reserved_in(fd, start, reserved, wanted)
                    self._ahead[start] = (fd, reserved)
                start += self.file_size
        except StorageError:
            for start in reversed(made):
                self._unmake(start)
            raise

    def append(self, data: bytes | bytearray | memoryview) -> None:
        """Write ``data`` at ``position`` and advance; it must fit into the open file.

        Raises:
            StorageError: nothing counts as written; ``position`` is unchanged.
        """
        size = len(data)
        at = self.position - self._start
        assert at + size <= self.file_size, (size, self.room)
        if at + size > self._reserved:
            self._reserve(at + size)
        view = memoryview(data)
        done = 0
        while done < size:
            try:
                done += os.pwrite(self._fd, view[done:], at + done)
            except OSError as error:
                raise self._error("write", error) from error
        self.position += size

    def append_over(self, data: memoryview) -> None:
        """Write ``data`` as ``append`` does, over as many files as it takes.

        Raises:
            StorageError: a part of it may be written, up to ``position``.
        """
        while data.nbytes:
            if self.position == self._start + self.file_size:
                self.roll()
            part = data[: self._start + self.file_size - self.position]
            self.append(part)
            data = data[part.nbytes :]

    def try_write(self) -> None:
        """Write zeros behind ``position``, where nothing counts, to see whether that works.

        Raises:
            StorageError: it does not.
        """
        size = min(TRY_SIZE, self.room)
        try:
            os.pwrite(self._fd, bytes(size), self.position - self._start)
        except OSError as error:
            raise self._error("write", error) from error

    def sync(self) -> None:
        """Return when all that was appended before the call is on the disk. Any thread may call it.

        Raises:
            StorageError: after that the page cache cannot be trusted; the process must end.
        """
        fd = self._fd
        # A roll after this line is no matter: what it leaves behind is ``fd`` itself.
        retired = self._retired[:]
        try:
            for old in retired:
                sync_content(old)
            if fd not in retired:
                sync_content(fd)
        except OSError as error:
            raise self._error("sync", error) from error
        for old in retired:
            self._retired.remove(old)
            os.close(old)

    def cut(self) -> None:
        """Zero what stands behind ``position`` in the open file, and delete later files.

        What a crash left behind a log's end must not be taken for records one day.
        """
        at = self.position - self._start
        try:
            if at < self.file_size:
                _punch_hole(self._fd, at, self.file_size - at)
            later = [name for name in own_names(self.directory) if int(name) > self._start]
            # From the last one on: a crash on the way must leave no gap, at which no node starts.
            for name in reversed(later):
                (self.directory / name).unlink()
            if later:
                sync_directory(self.directory)
        except OSError as error:
            raise self._error("cut", error) from error
        self._reserved = 0

    def rewind(self, position: int) -> None:
        """Go on at ``position``, which is not behind the present one; what stands there is cut.

        No ``sync`` may run meanwhile: files are closed and deleted.

        Raises:
            StorageError: the operating system refused; the process must end.
        """
        assert position <= self.position, (position, self.position)
        for ahead in reversed(list(self._ahead)):
            self._unmake(ahead)
        start = self._start_for(position)
        if start != self._start:
            fd = self._opened(start)
            os.close(self._fd)
            self._fd = fd
            self._start = start
        self.position = position
        self.cut()

    def close(self) -> None:
        """Close all descriptors; nothing is synced."""
        for fd in (*self._retired, self._fd, *(fd for fd, _ in self._ahead.values())):
            os.close(fd)
        self._retired.clear()
        self._ahead.clear()
        self._fd = -1

    def _start_for(self, position: int) -> int:
        """Start of the file to open for appending at ``position``."""
        at = position % self.file_size
        before = position - self.file_size
        # At the very end of a full file the next one is opened by the first append.
        if position > 0 and at == 0 and (self.directory / file_name(before)).exists():
            return before
        return position - at

    def _opened(self, start: int) -> int:
        path = self.directory / file_name(start)
        created = not path.exists()
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            fd = with_descriptors(lambda: os.open(path, flags, 0o600))
            size = os.fstat(fd).st_size
            if size == 0:
                os.ftruncate(fd, self.file_size)
                # Before its name: a power failure may leave a last file without a byte, which is
                # made again, and none in front of another one.
                sync_file(fd)
            if created:
                sync_directory(self.directory)
        except OSError as error:
            raise storage_error("log file not opened", error, file=str(path)) from error
        self.files_made += created
        if size not in (0, self.file_size):
            os.close(fd)
            raise CorruptLogError(
                "log file of a wrong size", file=str(path), size=size, expected=self.file_size
            )
        return fd

    def _reserve(self, end: int) -> None:
        if end > self._reserved:
            self._reserved = self._reserved_in(self._fd, self._start, self._reserved, end)

    def _reserved_in(self, fd: int, start: int, reserved: int, wanted: int) -> int:
        """Place up to which the file from ``start`` on has blocks now, at least ``wanted``."""
        step = max(RESERVE_STEP_MIN, min(RESERVE_STEP, self.file_size // 16))
        while True:
            target = min(self.file_size, -(-wanted // step) * step)
            try:
                os.posix_fallocate(fd, reserved, target - reserved)
            except OSError as error:
                if error.errno in NO_SPACE:
                    # What it got before it failed is of use to others; what was written stays.
                    written = max(reserved, self.position - start if fd == self._fd else 0)
                    if written < self.file_size:
                        _punch_hole(fd, written, self.file_size - written)
                    if step > RESERVE_STEP_MIN:
                        step = max(RESERVE_STEP_MIN, step // 16)
                        continue
                raise storage_error(
                    "no space for the log", error, file=str(self.directory / file_name(start))
                ) from error
            return target

    def _unmake(self, start: int) -> None:
        """Give back the last file that was made ahead; it has nothing in it."""
        fd, _ = self._ahead.pop(start)
        os.close(fd)
        (self.directory / file_name(start)).unlink()
        self.files_made -= 1

    def _error(self, verb: str, error: OSError) -> StorageError:
        file = str(self.directory / file_name(self._start))
        if verb == "sync":
            # Also without space: what was written is in danger, and the process must end.
            return StorageError(
                f"could not {verb} the log", errno=error.errno, file=file, reason=error.strerror
            )
        return storage_error(f"could not {verb} the log", error, file=file)


def overwrite(folder: Path, file_size: int, position: int, data: bytes | memoryview) -> None:
    """Replace bytes of a file of ``folder`` in place; they are durable on return.

    Args:
        file_size: bytes of a file of the family; ``data`` does not cross a file's end.

    Raises:
        StorageError: the operating system refused. A sync that failed must end the process; the
            bytes were damaged before, and may still be.
    """
    offset = position % file_size
    assert offset + len(data) <= file_size, (position, len(data), file_size)
    path = folder / file_name(position - offset)
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            view = memoryview(data)
            done = 0
            while done < len(view):
                done += os.pwrite(fd, view[done:], offset + done)
            view.release()
            sync_content(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise StorageError.of("could not write over the log", error, file=path) from error
