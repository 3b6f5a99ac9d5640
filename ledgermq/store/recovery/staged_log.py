"""Shipped log in a folder of its own: it arrives file by file beside the one in use.

    FOLDER/data/POSITION        files that are verified and durable
    FOLDER/index/POSITION       DLedger's index files for them, made here from their entries
    FOLDER/log-checkpoint       the verified end (``store/recovery/log_checkpoint.py``)
    FOLDER/POSITION.part        the file that is arriving

A file moves from ``.part`` to ``data/`` when every entry in it was verified: CRCs, chain, index,
term and position follow those of the file before. The checkpoint is replaced behind that, so what
it says is there after any crash. Invariant: ``data/`` has the files from ``begin`` to ``end``.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import shutil
from pathlib import Path

from ledgermq.formats.digest import DIGEST_SIZE, content_digest
from ledgermq.formats.dledger_entry import HEADER_SIZE as ENTRY_HEADER_SIZE
from ledgermq.formats.dledger_entry import check_entry, decode_entry_header
from ledgermq.formats.dledger_index import FILE_SIZE as INDEX_FILE_SIZE
from ledgermq.formats.dledger_index import ITEM_SIZE
from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.formats.kernels.kernel import verify_span
from ledgermq.formats.records.record_fault import RecordFault
from ledgermq.formats.store_markers import BLANK_SIZE
from ledgermq.model.errors import CorruptLogError, StorageError, refused_as
from ledgermq.model.ids import Index, Position, Term
from ledgermq.store.files.append_files import AppendFiles
from ledgermq.store.files.disk_sync import sync_content, sync_directory, sync_file
from ledgermq.store.files.file_names import file_name
from ledgermq.store.files.small_file import replace_file
from ledgermq.store.log.log_writer import LogEnd
from ledgermq.store.recovery import log_checkpoint
from ledgermq.store.recovery.log_checkpoint import LogCheckpoint, encode

SYNC_STEP = 32 * 1024 * 1024
"""An arriving file is synced in steps: the log in use has its own syncs waiting for the disk."""

_READ_STEP = 1 << 20


class StagedLog:
    """The arriving log in one folder. One thread at a time calls this; each call may take long."""

    def __init__(self, folder: Path, *, file_size: int) -> None:
        """What an earlier process has left counts, as far as it is verified.

        Args:
            file_size: bytes of a file of the log.

        Raises:
            StorageError: the operating system refused.
        """
        self.folder = folder
        self.file_size = file_size
        self._end = self._read_end()

    @property
    def end(self) -> LogEnd | None:
        """Verified end; None before ``restart``."""
        return self._end

    @property
    def is_final(self) -> bool:
        """Whether the last verified file ends within itself: none can follow it."""
        return self._end is not None and self._end.position % self.file_size != 0

    def restart(self, begin: Position, first: Index) -> None:
        """Forget everything; the log is to begin with entry ``first`` at ``begin``.

        Raises:
            StorageError: the operating system refused.
        """
        assert begin % self.file_size == 0, (begin, self.file_size)
        self._end = None
        with refused_as("folder for shipped files not made", file=self.folder):
            if self.folder.exists():
                shutil.rmtree(self.folder)
            for name in ("data", "index"):
                (self.folder / name).mkdir(parents=True)
            sync_directory(self.folder.parent)
        self._keep(LogEnd(begin, Index(first - 1), Term(0), 0))

    def part_size(self) -> int:
        """Bytes of the next file that are there, verified or not.

        Raises:
            StorageError: the operating system refused.
        """
        try:
            return self._part().stat().st_size
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise StorageError.of("shipped file not looked at", error, file=self._part()) from error

    def write(self, offset: int, data: memoryview | bytes) -> None:
        """Put ``data`` at ``offset`` of the next file; not durable before ``finish_file``.

        Raises:
            StorageError: the operating system refused.
        """
        with refused_as("shipped file not written", file=self._part()):
            fd = os.open(self._part(), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                done = 0
                while done < len(data):
                    done += os.pwrite(fd, data[done:], offset + done)
                if offset // SYNC_STEP != (offset + len(data)) // SYNC_STEP:
                    sync_content(fd)
            finally:
                os.close(fd)

    def discard_part(self) -> None:
        """Begin the next file anew.

        Raises:
            StorageError: the operating system refused.
        """
        with refused_as("shipped file not removed", file=self._part()):
            self._part().unlink(missing_ok=True)

    def digest(self, size: int) -> bytes:
        """BLAKE2b of the first ``size`` bytes of the next file.

        Raises:
            StorageError: they cannot be read.
        """
        return file_digest(self._part(), size)

    def finish_file(self, size: int) -> LogEnd:
        """Verify the next file, which has ``size`` bytes, make it and its index items durable.

        The new end of the log. A file that is shorter than a file of the log is the last one.

        Raises:
            CorruptLogError: it does not follow what is there, or an entry is not whole.
            StorageError: the operating system refused.
        """
        before = self._end
        assert before is not None
        part = self._part()
        with refused_as("shipped file not kept", file=part):
            with part.open("r+b") as file:
                # Twice: what an earlier attempt has left behind ``size`` becomes zeros by it.
                file.truncate(size)
                file.truncate(self.file_size)
                with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as map_:
                    view = memoryview(map_)
                    try:
                        end = self._verify(view, size, before)
                    finally:
                        view.release()
                sync_file(file.fileno())
            part.rename(self.folder / "data" / file_name(before.position))
            for folder in (self.folder / "data", self.folder):
                sync_directory(folder)
        self._keep(end)
        return end

    def _verify(self, view: memoryview, size: int, before: LogEnd) -> LogEnd:
        """The log's end behind the entries of ``view``; their index items become durable."""
        files = AppendFiles(
            self.folder / "index",
            file_size=INDEX_FILE_SIZE,
            position=(before.index_ + 1) * ITEM_SIZE,
        )
        try:
            end, at = before, 0
            previous = self.folder / "data" / file_name(max(0, before.position - self.file_size))
            if before.index_ >= 0 and not previous.exists():
                end, item = self._first_entry(view, size, before)
                files.append_over(memoryview(item))
                at = end.position - before.position
            step = _READ_STEP
            while at < size:
                items = bytearray()
                limit = min(size, at + step)
                reached, count, index, term, chain, fault = verify_span(
                    view, at, limit, ENTRY_HEADER_SIZE, end.position, end.index_ + 1, end.term,
                    end.chain, items, crc32,
                )  # fmt: skip
                files.append_over(memoryview(items))
                end = LogEnd(
                    Position(end.position + reached - at), Index(index - 1), Term(term), chain
                )
                at = reached
                if fault == RecordFault.BLANK and self._is_blank_to_the_end(view, at, size):
                    position = Position(before.position + self.file_size)
                    end, at = end._replace(position=position), size
                elif fault != RecordFault.END and limit < size and step < size:
                    # An entry that goes beyond the step, perhaps.
                    step = step if count else 2 * step
                elif fault != RecordFault.END:
                    raise self._fault(RecordFault(fault).field, before.position, at)
            files.sync()
            return end
        finally:
            files.close()

    def _first_entry(self, view: memoryview, size: int, before: LogEnd) -> tuple[LogEnd, bytes]:
        """The end behind the log's first entry, and its item.

        The chain of CRCs begins with an entry that nobody has: its own alone can be checked.
        """
        file = str(self._part())
        if size < ENTRY_HEADER_SIZE:
            raise self._fault("entry size", before.position, 0)
        header = decode_entry_header(view, position=before.position, file=file)
        if header.index != before.index_ + 1 or header.size > size:
            raise self._fault("entry index", before.position, 0)
        check_entry(view, 0, header, previous_chain_crc=None, file=file)
        # An item has the position before the size, the header behind the term.
        item = bytes(view[:4]) + bytes(view[24:32]) + bytes(view[4:8]) + bytes(view[8:24])
        end = LogEnd(
            Position(before.position + header.size), header.index, header.term, header.chain_crc
        )
        return end, item

    def _is_blank_to_the_end(self, view: memoryview, at: int, size: int) -> bool:
        said = int.from_bytes(view[at + 4 : at + BLANK_SIZE], "big")
        return size == self.file_size and said == self.file_size - at

    def _fault(self, field: str, start: Position, at: int) -> CorruptLogError:
        return CorruptLogError(
            "shipped file does not hold the log's entries",
            file=file_name(start),
            offset=at,
            field=field,
        )

    def _part(self) -> Path:
        assert self._end is not None
        return self.folder / f"{file_name(self._end.position)}.part"

    def _keep(self, end: LogEnd) -> None:
        content = encode(LogCheckpoint(end, self.file_size))
        replace_file(self.folder / "log-checkpoint", content)
        self._end = end

    def _read_end(self) -> LogEnd | None:
        checkpoint = log_checkpoint.read(self.folder / "log-checkpoint")
        if checkpoint is None or checkpoint.file_size != self.file_size:
            return None
        return checkpoint.end


def file_digest(path: Path, size: int) -> bytes:
    """BLAKE2b of the first ``size`` bytes at ``path``.

    Raises:
        StorageError: they cannot be read; ``errno`` is ENOENT when there is no such file.
    """
    digest = hashlib.blake2b(digest_size=DIGEST_SIZE)
    with refused_as("file not read", file=path), path.open("rb", buffering=0) as file:
        at = 0
        while at < size:
            part = os.pread(file.fileno(), min(_READ_STEP, size - at), at)
            if not part:
                raise StorageError("file ends too early", file=str(path), offset=at, size=size)
            digest.update(part)
            at += len(part)
    return digest.digest()


def slice_digest(data: memoryview | bytes) -> bytes:
    """BLAKE2b of ``data``."""
    return content_digest(data)
