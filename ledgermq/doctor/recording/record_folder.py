"""Record folder: the files of a record while they come, and the archive that they become.

What is found goes to files at once, so that a record that is interrupted has what there was. Each
file is bounded, and says where it was cut; what could not be had is noted with its reason.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import tarfile
import tempfile
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple, Self

from ledgermq.model.config.amounts import size_text
from ledgermq.model.errors import StorageError

INTERVAL_S = 1.0
"""A line of samples is added so often."""

FILE_BYTES_MAX = 16 * 1024 * 1024
TOTAL_BYTES_MAX = 192 * 1024 * 1024
"""Most bytes of all files together, before they are compressed."""

NAMES_TRIED = 100


class Missed(NamedTuple):
    """Something that is not in the record, and why."""

    what: str
    why: str


class RecordFolder:
    """Files of one record, in a folder of its own that is gone with the block; a context.

    Any thread may add to it.

    Attributes:
        name: of the archive without its ending, and of the folder within it.
        missed: what could not be had.
    """

    def __init__(self, parent: Path, name: str) -> None:
        """An empty folder beside what will be the archive.

        Raises:
            StorageError: nothing can be written there.
        """
        self.name = name
        self.missed: list[Missed] = []
        self._parent = parent
        self._about: dict[str, str] = {}
        self._lines: dict[str, IO[bytes]] = {}
        self._lock = threading.Lock()
        try:
            self._folder = Path(tempfile.mkdtemp(prefix=".ledgermq-record-", dir=parent))
        except OSError as error:
            raise _not_written(parent, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close_lines()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def about(self) -> Mapping[str, str]:
        """What each file is, by its name, in the order in which they came."""
        with self._lock:
            return dict(self._about)

    def miss(self, what: str, why: str) -> None:
        """Note that something could not be had; the same is noted once."""
        with self._lock:
            missed = Missed(what, why)
            if missed not in self.missed:
                self.missed.append(missed)

    def place(self, name: str, about: str) -> Path:
        """Where somebody else is to write a file; it need not come to be."""
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._lock:
            self._about[name] = about
        return path

    def drop(self, name: str) -> None:
        """Do without a file after all."""
        with self._lock:
            self._about.pop(name, None)

    def put(self, name: str, about: str, content: object) -> None:
        """A whole file: bytes and text as they are, a document of another type as JSON.

        What is too long loses its beginning: what came last tells more.
        """
        if not isinstance(content, str | bytes):
            content = json.dumps(content, indent=1, default=str) + "\n"
        data = content.encode(errors="backslashreplace") if isinstance(content, str) else content
        if len(data) > FILE_BYTES_MAX:
            cut = f"[{len(data) - FILE_BYTES_MAX} bytes before this are left out]\n".encode()
            data = cut + data[-FILE_BYTES_MAX:]
        self.place(name, about).write_bytes(data)

    def add_line(self, name: str, about: str, document: Mapping[str, object]) -> None:
        """One more line of JSON at the end of a file; none once the file is full."""
        line = json.dumps(document, separators=(",", ":"), default=str).encode() + b"\n"
        with self._lock:
            file = self._lines.get(name)
        if file is None:
            file = self.place(name, about).open("ab")
            with self._lock:
                self._lines[name] = file
        if file.tell() + len(line) > FILE_BYTES_MAX:
            self.miss(name, f"lines after the first {size_text(FILE_BYTES_MAX)}: the file is full")
            return
        file.write(line)

    def text_of(self, name: str) -> str | None:
        """A file as it is by now; ``None`` where it did not come to be, or is too long."""
        path = self._folder / name
        if not path.is_file() or path.stat().st_size > FILE_BYTES_MAX:
            return None
        return path.read_text(errors="replace")

    def note_what_does_not_fit(self, first: Iterable[str]) -> None:
        """Note the files that ``pack`` will leave out, for all together are too large."""
        total = 0
        for name in dict.fromkeys((*first, *self.about)):
            path = self._folder / name
            total += path.stat().st_size if path.is_file() else 0
            if total > TOTAL_BYTES_MAX:
                self.miss(name, f"all files have more than {size_text(TOTAL_BYTES_MAX)}")

    def pack(self, first: Iterable[str]) -> Path:
        """Make the archive of what there is; it appears as a whole, and nothing is replaced.

        Args:
            first: names of files that a reader begins with.

        Returns:
            its path: ``NAME.tar.gz``, or ``NAME-2.tar.gz`` where that is taken, and so on.

        Raises:
            StorageError: it cannot be written there.
        """
        self._close_lines()
        unborn = self._parent / f".{self._folder.name}.part"
        try:
            with open(os.open(unborn, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                self._write(file, list(first))
                file.flush()
                os.fsync(file.fileno())
            return self._born(unborn)
        except OSError as error:
            raise _not_written(self._parent, error) from error
        finally:
            unborn.unlink(missing_ok=True)

    def _write(self, file: IO[bytes], first: list[str]) -> None:
        total = 0
        # Without the name and time that gzip keeps of a file: the archive has its own.
        packed = gzip.GzipFile("", "wb", fileobj=file, mtime=0)
        with packed, tarfile.open(fileobj=packed, mode="w") as archive:
            for name in dict.fromkeys((*first, *self._about)):
                path = self._folder / name
                if not path.is_file():
                    continue
                total += path.stat().st_size
                if total <= TOTAL_BYTES_MAX:
                    archive.add(path, f"{self.name}/{name}", filter=_anonymous)

    def _born(self, unborn: Path) -> Path:
        for number in range(1, NAMES_TRIED):
            suffix = "" if number == 1 else f"-{number}"
            path = self._parent / f"{self.name}{suffix}.tar.gz"
            with suppress(FileExistsError):
                # A link is never made over what is there; a rename would.
                os.link(unborn, path)
                return path
        raise FileExistsError(f"{self.name}.tar.gz and {NAMES_TRIED} names like it are taken")

    def _close_lines(self) -> None:
        with self._lock:
            for file in self._lines.values():
                file.close()
            self._lines.clear()


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """The member without names of this machine's accounts; whoever unpacks it alone may read it."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o600
    return member


def _not_written(parent: Path, error: OSError) -> StorageError:
    return StorageError(
        f"the record cannot be written: {error.strerror or error}",
        errno=error.errno,
        path=str(parent),
        option="--output",
    )
