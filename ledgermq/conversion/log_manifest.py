"""Log manifest: digests of a plain CommitLog, carried to another host and compared there.

All members of a group that an old log is turned into must have the same one: the group's own log
begins where the old one ends, and what stands before that is never replicated. A manifest is a
checked document (``store/files/checked_document.py``):

    {"version": 1, "group": "g", "self_id": "n0", "file_size": 1073741824, "end": 2147480000,
     "files": {"00000000000000000000": {"used": 1073741211, "blake2b": HEX}, …}}

``used`` is where the last record of the file ends, ``blake2b`` the digest (32 bytes) of what stands
before: RocketMQ leaves behind the blank what was there, so nothing is asked of that. ``end`` is the
position behind the last record; it is the same before and after an upgrade.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, cast

from ledgermq.formats.digest import DIGEST_SIZE
from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.formats.kernels.kernel import verify_span
from ledgermq.formats.records.record_fault import RecordFault
from ledgermq.formats.store_markers import is_blank
from ledgermq.model.config.settings import LogKind
from ledgermq.model.errors import ConfigError, CorruptLogError
from ledgermq.model.ids import NodeId, Position
from ledgermq.store.files.checked_document import read_manifest_file, write_document
from ledgermq.store.files.file_names import file_name
from ledgermq.store.files.mapped_files import MappedFiles

_VERSION = 1
_PROGRESS_STEP = 64 * 1024 * 1024
"""Bytes between two calls of ``progress``."""

_DIFFERENCES_NAMED = 8


class FileDigest(NamedTuple):
    """One file: where its last record ends in it, and the digest of what is before."""

    used: int
    blake2b: str


@dataclass(frozen=True, slots=True)
class LogManifest:
    """An old log that was read from its first byte to its last one, and was whole.

    Attributes:
        end: position behind the last record.
        files: by name, oldest first.
        tail: bytes behind the last record that are not zero: what a crash has left, which recovery
            cuts off.
    """

    group: str
    self_id: NodeId
    file_size: int
    end: Position
    files: Mapping[str, FileDigest]
    tail: int = 0


def make_manifest(
    directory: Path, *, group: str, self_id: NodeId, progress: Callable[[int, int], None]
) -> LogManifest:
    """Read and verify the whole log in ``directory``; nothing is changed.

    Args:
        progress: called with bytes done and bytes to do.

    Raises:
        ConfigError: there is no log.
        CorruptLogError: a record before the last file's end is not whole; names file and offset.
        StorageError: the files cannot be read.
    """
    files = MappedFiles(directory)
    if not files.starts:
        raise ConfigError("no files of a plain CommitLog in it", directory=str(directory))
    digests: dict[str, FileDigest] = {}
    end, following, tail = files.first, files.first, 0
    for start in files.starts:
        if following != start:
            # The log has ended in the file before: RocketMQ makes the next one ahead.
            tail += _used_behind(files, start, 0)
            continue
        digest, is_whole = _digest(files, start, progress)
        digests[file_name(start)] = digest
        end = following = start + digest.used
        if is_whole:
            following = start + files.file_size
        else:
            tail += _used_behind(files, start, digest.used)
        files.release_pages()
    if tail > files.file_size:
        raise CorruptLogError(
            "log ends in the middle: more than a file would have to be dropped",
            file=str(files.path(end)),
            offset=end - files.start_of(end),
            bytes=tail,
            limit=files.file_size,
        )
    return LogManifest(group, self_id, files.file_size, Position(end), digests, tail)


def write_manifest(path: Path, manifest: LogManifest) -> None:
    """Put ``manifest`` at ``path``; it is durable on return.

    Raises:
        StorageError: the operating system refused.
    """
    write_document(
        path,
        {
            "version": _VERSION,
            "group": manifest.group,
            "self_id": manifest.self_id,
            "file_size": manifest.file_size,
            "end": manifest.end,
            "files": {name: digest._asdict() for name, digest in manifest.files.items()},
        },
    )


def read_manifest(path: Path) -> LogManifest:
    """The manifest at ``path``.

    Raises:
        ConfigError: there is none, or of a version that is not known here.
        CorruptLogError: it was changed, or cut off, on its way.
        StorageError: it cannot be read.
    """
    document = read_manifest_file(path, version=_VERSION, lists="files", of="a log")
    files = cast("dict[str, dict[str, str | int]]", document["files"])
    return LogManifest(
        str(document["group"]),
        NodeId(str(document["self_id"])),
        cast("int", document["file_size"]),
        Position(cast("int", document["end"])),
        {
            name: FileDigest(int(digest["used"]), str(digest["blake2b"]))
            for name, digest in sorted(files.items())
        },
    )


def compare(manifests: Sequence[LogManifest]) -> None:
    """Refuse members that do not have the same old log.

    Raises:
        ConfigError: they differ; names the members and the first files in which they do, or says
            that they are of several groups.
    """
    first = manifests[0]
    for other in manifests[1:]:
        if other.group != first.group:
            raise ConfigError(
                "manifests of different groups",
                groups={one.self_id: one.group for one in manifests},
            )
        if other.self_id == first.self_id and other != first:
            raise ConfigError(
                "two manifests of the same member say different things", self_id=other.self_id
            )
        names = sorted(first.files.keys() | other.files.keys())
        different = [name for name in names if first.files.get(name) != other.files.get(name)]
        if different or (other.file_size, other.end) != (first.file_size, first.end):
            raise ConfigError(
                f"members {first.self_id} and {other.self_id} do not have the same old log: copy"
                " commitlog/ from one to the other while both are stopped",
                file_size={one.self_id: one.file_size for one in (first, other)},
                end={one.self_id: one.end for one in (first, other)},
                files={
                    name: {one.self_id: _described(one.files.get(name)) for one in (first, other)}
                    for name in different[:_DIFFERENCES_NAMED]
                },
                files_that_differ=len(different),
            )


def _described(digest: FileDigest | None) -> str:
    return "missing" if digest is None else f"{digest.used} bytes, {digest.blake2b[:16]}…"


def _digest(
    files: MappedFiles, start: int, progress: Callable[[int, int], None]
) -> tuple[FileDigest, bool]:
    """Verify the file at ``start``; its digest, and whether a blank ends it."""
    view = files.view(start, files.file_size)
    reached, _, _, _, _, number = verify_span(
        view, 0, len(view), 0, start, -1, 0, 0, bytearray(), crc32
    )
    file = str(files.path(start))
    is_whole = is_blank(view, reached, log=LogKind.COMMITLOG, file=file) or reached == len(view)
    if not is_whole and start + files.file_size < files.end and _follows(files, start):
        raise CorruptLogError(
            "record is not whole", file=file, offset=reached, field=RecordFault(number).field
        )
    sum_ = hashlib.blake2b(digest_size=DIGEST_SIZE)
    for at in range(0, reached, _PROGRESS_STEP):
        sum_.update(view[at : min(at + _PROGRESS_STEP, reached)])
        progress(start + at - files.first, files.end - files.first)
    progress(start + reached - files.first, files.end - files.first)
    return FileDigest(reached, sum_.hexdigest()), is_whole


def _follows(files: MappedFiles, start: int) -> bool:
    """Whether records stand in a later file than that at ``start``."""
    return any(
        files.view(later, files.file_size)[:8] != bytes(8)
        for later in files.starts
        if later > start
    )


def _used_behind(files: MappedFiles, start: int, at: int) -> int:
    """Bytes from ``at`` to the last one of the file that is not zero."""
    first = last = at
    while at < files.file_size:
        part = bytes(files.view(start + at, min(_PROGRESS_STEP, files.file_size - at)))
        filled = len(part.rstrip(b"\0"))
        if filled:
            last = at + filled
        at += len(part)
    return last - first
