"""Tables of a broker as a piece of a backup stream: documents as of one position of the log.

The documents say themselves which commands of the log are in them (``ledgermqApplied``), and none
has one from behind the piece's position. A store that is restored to a later position applies what
lies between when it starts, and has the tables of that position, neither more nor less.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import cast

from ledgermq.conversion.backup_create import documents_of, queue_ends_of
from ledgermq.conversion.backup_manifest import BackupManifest
from ledgermq.conversion.stream.repository import Repository, tables_name
from ledgermq.model.errors import CorruptLogError
from ledgermq.store.queues.queue_ends import NAME as ENDS_NAME
from ledgermq.store.queues.queue_ends import (
    QueueEnds,
    encode_queue_ends,
    ends_path,
    read_queue_ends,
)
from ledgermq.store.store_directory import StoreDirectory


@dataclass(frozen=True, slots=True)
class TablePiece:
    """What a piece of tables holds.

    Attributes:
        manifest: the store at that moment, without files.
        ends_position: the log from here on tells the end of every queue; 0: the whole log does.
        documents: by their path below the store's folder.
    """

    manifest: BackupManifest
    ends_position: int
    documents: dict[str, bytes]


def put_tables(
    repository: Repository, directory: StoreDirectory, describe: Callable[[], BackupManifest]
) -> int:
    """Put the tables as they are now; the position that they are not ahead of.

    Args:
        describe: the store as it is when this is called.

    Raises:
        CorruptLogError, StorageError: as ``create_backup``.
    """
    # In this order: none may know of what is behind the position that is asked for last.
    ends = queue_ends_of(directory) or _table_of_ends(directory)
    documents = dict(documents_of(directory.root, without=("members",)))
    if ends is not None:
        documents[f"ledgermq/{ENDS_NAME}"] = encode_queue_ends(ends)
    manifest = describe()
    names = sorted(documents)
    header = {
        "manifest": asdict(manifest),
        "ends_position": 0 if ends is None else ends.position,
        "time_ms": time.time_ns() // 1_000_000,
        "sizes": [(name, len(documents[name])) for name in names],
    }
    repository.put_tables(manifest.end, header, b"".join(documents[name] for name in names))
    return manifest.end


def _table_of_ends(directory: StoreDirectory) -> QueueEnds | None:
    """The table also where the log begins at 0: that of the repository may begin later."""
    try:
        return read_queue_ends(ends_path(directory.root))
    except CorruptLogError:
        return None


def read_tables(repository: Repository, position: int) -> TablePiece:
    """The tables as of ``position``.

    Raises:
        ConfigError, CorruptLogError, StorageError: as ``Repository.read``.
    """
    name = tables_name(position)
    with repository.read(name) as piece:
        header = piece.header
        content = b"".join(piece.content)
    documents: dict[str, bytes] = {}
    at = 0
    try:
        for path, size in cast("list[tuple[str, int]]", header["sizes"]):
            documents[path] = content[at : at + size]
            at += size
        stored = cast("dict[str, object]", header["manifest"])
        manifest = BackupManifest(**stored)  # type: ignore[arg-type]
        ends_position = int(str(header["ends_position"]))
        is_whole = at == len(content) and manifest.end == position
    except (KeyError, TypeError, ValueError, AttributeError):
        is_whole = False
    if not is_whole:
        raise CorruptLogError("tables are not what was put", file=repository.place.as_text(name))
    return TablePiece(manifest, ends_position, documents)
