"""Tables of a broker as a piece of a backup stream: documents as of one position of the log.

The documents say themselves which commands of the log are in them (``ledgermqApplied``), and none
has one from behind the piece's position. A store that is restored to a later position applies what
lies between when it starts, and has the tables of that position, neither more nor less.

The files of a running node are older than its log: those of offsets by a second, on a full disk by
any time. So the piece says from where on the log is needed with them, by the mark that retention
goes by (``store/state_mark.py``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import cast

from ledgermq.conversion.backup_create import documents_of, queue_ends_of
from ledgermq.conversion.backup_manifest import BackupManifest, checked_manifest
from ledgermq.conversion.stream.repository import Repository, TablePiece, tables_name
from ledgermq.model.errors import CorruptLogError
from ledgermq.model.names.stored_name import is_file_name
from ledgermq.store.queues.queue_ends import NAME as ENDS_NAME
from ledgermq.store.queues.queue_ends import (
    QueueEnds,
    encode_queue_ends,
    ends_path,
    read_queue_ends,
)
from ledgermq.store.state_mark import NAME as MARK_NAME
from ledgermq.store.state_mark import read_state_mark
from ledgermq.store.store_directory import StoreDirectory


def put_tables(
    repository: Repository, directory: StoreDirectory, describe: Callable[[], BackupManifest]
) -> int:
    """Put the tables as they are now; the position that they are not ahead of.

    Args:
        describe: the store as it is when this is called.

    Raises:
        CorruptLogError, StorageError: as ``create_backup``.
    """
    # In this order: the log from the mark on has what the documents lack, and none of them may know
    # of what is behind the position that is asked for last.
    mark = mark_of(directory)
    ends = queue_ends_of(directory) or _table_of_ends(directory)
    documents = dict(documents_of(directory.root, without=("members",)))
    if ends is not None:
        documents[f"ledgermq/{ENDS_NAME}"] = encode_queue_ends(ends)
    manifest = describe()
    names = sorted(documents)
    header = {
        "manifest": asdict(manifest),
        "ends_position": 0 if ends is None else ends.position,
        # Without a mark there was no command yet.
        "needed_from": manifest.end if mark is None else mark,
        "time_ms": time.time_ns() // 1_000_000,
        "sizes": [(name, len(documents[name])) for name in names],
    }
    repository.put_tables(manifest.end, header, b"".join(documents[name] for name in names))
    return manifest.end


def mark_of(directory: StoreDirectory) -> int | None:
    """From where on the log has all that the store's tables may lack; None: they lack nothing.

    Raises:
        StorageError: the operating system refused.
    """
    try:
        return read_state_mark(directory.root / "ledgermq" / MARK_NAME)
    except CorruptLogError:
        # The next snapshot mends it; until then nobody knows.
        return 0


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
    where = repository.place.as_text(name)
    manifest = checked_manifest(header.get("manifest"), said_by=where)
    ends_position, needed_from = header.get("ends_position"), header.get("needed_from")
    documents: dict[str, bytes] = {}
    at = 0
    sizes = header.get("sizes")
    for row in sizes if isinstance(sizes, list) else ():
        path, size = _document(row, said_by=where)
        documents[path] = content[at : at + size]
        at += size
    is_whole = (
        isinstance(sizes, list)
        and at == len(content)
        and manifest.end == position
        and type(ends_position) is int
        and (needed_from is None or type(needed_from) is int)
        and repository.is_of(manifest)
    )
    if not is_whole:
        raise CorruptLogError("tables are not what was put", file=where)
    return TablePiece(
        manifest, cast("int", ends_position), cast("int | None", needed_from), documents
    )


def _document(row: object, *, said_by: str) -> tuple[str, int]:
    """Path and size of a document."""
    path, size = row if isinstance(row, list) and len(row) == 2 else (None, None)
    folder, _, file = path.partition("/") if isinstance(path, str) else ("", "", "")
    if folder not in ("config", "ledgermq") or not is_file_name(file):
        raise CorruptLogError("tables name a file outside of a store", file=said_by, name=path)
    if type(size) is not int or size < 0:
        raise CorruptLogError("tables say not how long a file is", file=said_by, name=path)
    return str(path), size
