"""Inventory of a file family, faults included; ``mapped_files`` refuses what this names."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from ledgermq.formats.findings import REBUILD, START_MENDS, Finding, Severity
from ledgermq.model.errors import StorageError
from ledgermq.store.files.file_names import is_position_name
from ledgermq.store.log.first_entry import ZEROS_STEP


@dataclass(frozen=True, slots=True)
class FoundFile:
    """One file: its first position, by its name, and the bytes that it has."""

    path: str
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class FileFamily:
    """What ``directory`` holds; ``file_size`` is 0 where no file tells it."""

    directory: Path
    file_size: int
    files: tuple[FoundFile, ...]

    def file_at(self, position: int) -> FoundFile | None:
        """The file that holds ``position``, None when there is none."""
        for file in self.files:
            if file.start <= position < file.start + self.file_size:
                return file
        return None


def find_family(
    directory: Path, *, root: Path, file_size: int | None, severity: Severity, remedy: str
) -> tuple[FileFamily, list[Finding]]:
    """The files of ``directory``, and what is wrong with their names and sizes.

    Args:
        root: the store's folder; findings name paths below it.
        file_size: as it should be, None to take the one that most files have.
        severity, remedy: of what is wrong with a file of this family.

    Raises:
        StorageError: the directory cannot be read.
    """
    findings: list[Finding] = []
    files: list[FoundFile] = []
    for name in _names(directory):
        path = directory / name
        relative = str(path.relative_to(root))
        if not is_position_name(name):
            findings.append(
                Finding(Severity.NOTE, relative, None, "no file of the store: it is left alone")
            )
            continue
        size = size_of(path)
        if size is not None:
            files.append(FoundFile(str(path), int(name), size))
    expected = file_size or _usual_size(files)
    findings += _wrong_sizes(files, expected, root, severity, remedy)
    for before, after in pairwise(files):
        if expected and after.start != before.start + expected:
            findings.append(
                Finding(
                    severity,
                    str(Path(after.path).relative_to(root)),
                    None,
                    "a file before this one is missing",
                    before.start + expected,
                    after.start,
                    remedy,
                )
            )
    return FileFamily(directory, expected, tuple(files)), findings


def size_of(path: Path) -> int | None:
    """Bytes of a file; None when it has gone, as one does that was deleted for its age.

    Raises:
        StorageError: the operating system refused.
    """
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError.of("file not looked at", error, file=path) from error


def read_padded(path: str, at: int, size: int) -> bytes:
    """``size`` bytes of a file, zeros where it has none, or is not there."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return bytes(size)
    try:
        return os.pread(fd, size, at).ljust(size, b"\0")
    finally:
        os.close(fd)


def derived(  # noqa: PLR0917 - as a finding's own
    name: str,
    offset: int | None,
    what: str,
    expected: object = None,
    found: object = None,
    remedy: str = REBUILD,
) -> Finding:
    """What is wrong with a file that is made from the log, and can be made again."""
    return Finding(Severity.DERIVED, name, offset, what, expected, found, remedy)


def first_nonzero(fd: int, start: int, end: int) -> int | None:
    """Offset of the first byte that is not zero in ``[start, end)``; holes are not read."""
    at = start
    while at < end:
        try:
            at = max(at, os.lseek(fd, at, os.SEEK_DATA))
        except OSError:
            # ENXIO: there is nothing but a hole up to the file's end.
            return None
        if at >= end:
            return None
        content = os.pread(fd, min(ZEROS_STEP, end - at), at)
        if not content:
            return None
        rest = content.lstrip(b"\0")
        if rest:
            return at + len(content) - len(rest)
        at += len(content)
    return None


def _names(directory: Path) -> list[str]:
    try:
        return sorted(path.name for path in directory.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StorageError.of("directory not read", error, file=directory) from error


def _usual_size(files: list[FoundFile]) -> int:
    """The distance of the names, else the size that most files have."""
    sizes = [file.size for file in files if file.size]
    if not sizes:
        return 0
    distances = [after.start - before.start for before, after in pairwise(files)]
    candidates = [size for size in sizes if size in distances] or distances or sizes
    return max(candidates, key=lambda size: (candidates.count(size), size))


def _wrong_sizes(
    files: list[FoundFile], expected: int, root: Path, severity: Severity, remedy: str
) -> list[Finding]:
    findings = []
    for number, file in enumerate(files):
        if file.size == expected and file.size:
            continue
        relative = str(Path(file.path).relative_to(root))
        if not file.size and number == len(files) - 1:
            findings.append(
                Finding(Severity.NOTE, relative, None, "file without content", remedy=START_MENDS)
            )
            continue
        findings.append(
            Finding(severity, relative, None, "file of another size", expected, file.size, remedy)
        )
    return findings
