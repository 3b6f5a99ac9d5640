"""Received log: a plain CommitLog that grows by the very bytes that a master has sent.

What comes is held in memory until a record of it is whole, compared with its own checksum and
position, and only then appended. So the log on the disk ends with a whole record, or with a file,
whenever the process dies; what a crash tears is cut at the next start.
"""

from __future__ import annotations

from pathlib import Path

from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.formats.kernels.kernel import verify_span
from ledgermq.formats.records.message import SIZE_MIN
from ledgermq.formats.records.record_fault import RecordFault
from ledgermq.formats.store_markers import BLANK, BLANK_SIZE, COMMITLOG_BLANK_MAGIC
from ledgermq.model.errors import ProtocolError, StorageError
from ledgermq.model.ids import Index, Position, Term
from ledgermq.store.files.append_files import AppendFiles
from ledgermq.store.files.file_names import file_name, starts_in
from ledgermq.store.files.mapped_files import MappedFile
from ledgermq.store.files.small_file import replace_file
from ledgermq.store.log.log_writer import LogEnd
from ledgermq.store.log_family import LogFamily, LogFolder
from ledgermq.store.recovery import log_checkpoint
from ledgermq.store.recovery.log_checkpoint import LogCheckpoint
from ledgermq.store.recovery.recovery import recover_log

RECORD_SIZE_MAX = 16 * 1024 * 1024
"""Largest record that is taken; RocketMQ's ``maxMessageSize`` is 4 MiB."""

COMPARED = 64 * 1024
"""Bytes before the log's end that are compared with the master's at each connection."""

_SIZE = BLANK_SIZE
"""Bytes of a record's size and magic number, which a blank has, too."""


class ReceivedLog:
    """The log below one folder; the process that follows is the only one that writes it.

    Attributes:
        first: position of its first byte; None: there is none yet.
        end: all before it is appended, and ends with a whole record or with a file.
        durable: all before it is on the disk.
    """

    def __init__(self, root: Path, *, file_size: int) -> None:
        """Find the log's end, and cut what a crash has left behind it.

        Args:
            file_size: bytes of a file of the master's log, and so of this one.

        Raises:
            CorruptLogError: the log is damaged before what was durable; nothing was cut.
            StorageError: the operating system refused.
        """
        self._root = root
        self._folder = root / "commitlog"
        self.file_size = file_size
        self.family = LogFamily(LogFolder(self._folder, 0))
        self._waiting = bytearray()
        self._needed = _SIZE
        self._noted = -1
        self._data: AppendFiles | None = None
        self.first: Position | None = None
        self.end = self.durable = Position(0)
        if starts_in(self._folder):
            recovered = recover_log(
                self._folder,
                None,
                file_size=file_size,
                checkpoint=log_checkpoint.read(self._checkpoint),
                progress=lambda _done, _all: None,
                # Without a checkpoint of ours nobody vouches for anything: all of it is read.
                certain_before_ms=0,
            )
            self._data = recovered.data
            self.first = recovered.first
            self.end = self.durable = recovered.end.position

    @property
    def is_empty(self) -> bool:
        """Whether no record has come yet: then the log may begin anywhere."""
        return self.first is None or self.end == self.first

    @property
    def _checkpoint(self) -> Path:
        return self._root / "ledgermq" / "log-checkpoint"

    def begin_at(self, position: int) -> None:
        """Let a log that is empty begin at ``position``, the first byte of a file.

        Raises:
            ProtocolError: no file of the master's size begins there.
            StorageError: the operating system refused.
        """
        assert self.is_empty, (self.first, self.end)
        if position < 0 or position % self.file_size:
            raise ProtocolError(
                "the master's log does not begin with a file",
                position=position,
                log_file_size=self.file_size,
            )
        if self._data is not None and position != self.first:
            self._data.close()
            self._data = None
            for start in starts_in(self._folder):
                (self._folder / file_name(start)).unlink()
            self._checkpoint.unlink(missing_ok=True)
            self._noted = -1
        self.first = self.end = self.durable = Position(position)

    def drop_rest(self) -> None:
        """Forget the part of a record that has come: the next bytes are those from ``end`` on."""
        # Not cleared: an error that was raised meanwhile may hold a part of it.
        self._waiting = bytearray()
        self._needed = _SIZE

    def take(self, part: memoryview) -> None:
        """Append the records that are whole now; nothing is durable on return.

        Args:
            part: what follows what was taken before.

        Raises:
            ProtocolError: it is no record that may stand there; names position and field. What is
                whole before it is appended, nothing of it is.
            StorageError: the operating system refused.
        """
        self._waiting += part
        while len(self._waiting) >= self._needed:
            taken = self._append_whole()
            assert taken or len(self._waiting) < self._needed, (self.end, self._needed)
            del self._waiting[:taken]

    def sync(self) -> None:
        """Return when all before ``end`` is on the disk; ``durable`` says so.

        Raises:
            StorageError: the page cache cannot be trusted any more: end the process.
        """
        if self._data is not None and self.durable != self.end:
            self._data.sync()
            self.durable = self.end

    def note_durable(self) -> None:
        """Write the checkpoint, by which the next start finds the log's end without reading it all.

        Raises:
            StorageError: the operating system refused.
        """
        if self._noted != self.durable:
            self._note(self.durable)

    def cut(self, position: int) -> None:
        """Let the log end at ``position``, or with the last record that is whole before it;
        durable on return.

        Raises:
            StorageError: the operating system refused: end the process.
        """
        assert self.first is not None
        assert self._data is not None
        assert self.first < position <= self.end, (self.first, position, self.end)
        self.drop_rest()
        self.sync()
        end = self._whole_before(position)
        # Whenever this dies: it promises nothing that is gone.
        self._note(end)
        self._data.rewind(end)
        self._data.sync()
        self.end = self.durable = end

    def _whole_before(self, position: int) -> Position:
        """Where the last record ends that is whole before ``position``.

        Its own file tells: of one that is cut nobody can, for properties have no checksum.
        """
        start = (position - 1) - (position - 1) % self.file_size
        if position == start + self.file_size:
            return Position(position)
        try:
            with (
                MappedFile(self._folder / file_name(start)) as view,
                view[: position - start] as part,
            ):
                reached, *_ = verify_span(
                    part, 0, len(part), 0, start, -1, 0, 0, bytearray(), crc32
                )
        except OSError as error:
            raise self._unread(start, error) from error
        return Position(start + int(reached))

    def _note(self, position: Position) -> None:
        end = LogEnd(position, Index(position), Term(0), 0)
        replace_file(self._checkpoint, log_checkpoint.encode(LogCheckpoint(end, self.file_size)))
        self._noted = position

    def last_bytes(self) -> bytes:
        """Bytes before ``end`` in its file, by which this log is told from others: more than a
        blank has. None of a log that is empty.

        Raises:
            StorageError: the operating system refused.
        """
        if self.first is None or self.is_empty:
            return b""
        start = (self.end - 1) - (self.end - 1) % self.file_size
        size = COMPARED + (0 if self.end % self.file_size else RECORD_SIZE_MAX)
        begin = max(start, self.first, self.end - size)
        try:
            with MappedFile(self._folder / file_name(start)) as view:
                return bytes(view[begin - start : self.end - start])
        except OSError as error:
            raise self._unread(start, error) from error

    def close(self) -> None:
        """Close the files; nothing is synced."""
        if self._data is not None:
            self._data.close()
            self._data = None

    def _unread(self, start: int, error: OSError) -> StorageError:
        file = str(self._folder / file_name(start))
        return StorageError(
            "log file not read", errno=error.errno, file=file, reason=error.strerror
        )

    def _append_whole(self) -> int:
        """Append what is whole of one file's part of the waiting bytes; how many bytes of them."""
        room = self.file_size - self.end % self.file_size
        with memoryview(self._waiting) as whole, whole[:room] as view:
            reached, *_, fault = verify_span(
                view, 0, len(view), 0, self.end, -1, 0, 0, bytearray(), crc32
            )
            if reached:
                self._append(view[:reached])
                room -= reached
            with view[reached:] as rest:
                taken = reached + self._look_at_rest(rest, room, RecordFault(fault))
        return taken

    def _look_at_rest(self, rest: memoryview, room: int, fault: RecordFault) -> int:
        """Say how much is needed of what begins with ``rest``; a blank is appended when it is
        whole: how many bytes were.

        Args:
            room: bytes from there to the file's end.
        """
        self._needed = _SIZE
        if room < _SIZE:
            # No record leaves less for a blank.
            if len(rest):
                self._refuse(RecordFault.SIZE.field, room)
            return 0
        if len(rest) < _SIZE:
            return 0
        size, magic = BLANK.unpack_from(rest)
        if magic == COMMITLOG_BLANK_MAGIC:
            if size != room or size > RECORD_SIZE_MAX:
                self._refuse(RecordFault.BLANK.field, size)
            self._needed = size
            if len(rest) < size:
                return 0
            self._append(rest[:size])
            self._needed = _SIZE
            return int(size)
        if not SIZE_MIN <= size <= min(RECORD_SIZE_MAX, room - _SIZE):
            self._refuse(RecordFault.SIZE.field, size)
        if len(rest) >= size:
            self._refuse(fault.field, size)
        self._needed = size
        return 0

    def _append(self, data: memoryview) -> None:
        if self._data is None:
            self._data = AppendFiles(self._folder, file_size=self.file_size, position=self.end)
        if self._data.room == 0:
            self._data.roll()
        self._data.append(data)
        self.end = Position(self.end + len(data))

    def _refuse(self, field: str, value: int) -> None:
        raise ProtocolError(
            "the master has sent what is no whole record of its log",
            position=self.end,
            field=field,
            size=value,
            limit=RECORD_SIZE_MAX,
        )
