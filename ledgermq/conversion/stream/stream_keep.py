"""Keep rule of a backup stream: how far back its messages go.

As retention does it in a store, whole files of the log go, the oldest first, once their newest
message is older than is asked for. What is left begins later, and every point since then can be
restored; tables from before go, too. Never so much goes that no tables are left that a log can
begin with.
"""

from __future__ import annotations

from ledgermq.conversion.stream.repository import LogPiece, Repository
from ledgermq.conversion.stream.table_pieces import read_tables


def newest_ms(repository: Repository) -> int:
    """When the newest message of the repository was stored, epoch ms; 0 without any.

    Raises:
        ConfigError, CorruptLogError, StorageError: as ``Repository.read``.
    """
    for piece in reversed(repository.log):
        facts = repository.facts(piece)
        if facts.records:
            return facts.max_ms
    return 0


def keep_since(repository: Repository, since_ms: int, *, file_size: int) -> int:
    """Delete what is older than ``since_ms``, epoch ms; how many pieces went.

    Killed at any moment it leaves a repository that is whole, and the next call goes on.

    Args:
        file_size: bytes of a file of the log.

    Raises:
        ConfigError, CorruptLogError, StorageError: as ``Repository.read``.
    """
    old = _old_files(repository, since_ms, file_size)
    while old:
        begin = old[-1][0] + file_size
        first = _first_tables(repository, begin)
        if first is not None:
            break
        old.pop()
    else:
        return 0
    pieces = [piece for _, parts in old for piece in parts]
    for position in [at for at in repository.tables if at < first]:
        repository.delete_tables(position)
    repository.delete_log(pieces)
    return len(pieces)


def _first_tables(repository: Repository, begin: int) -> int | None:
    """The oldest tables for a log that begins at ``begin``; None when there are none."""
    for position in repository.tables:
        if position >= begin and read_tables(repository, position).ends_position >= begin:
            return position
    return None


def _old_files(
    repository: Repository, since_ms: int, file_size: int
) -> list[tuple[int, list[LogPiece]]]:
    """Starts and pieces of the oldest files of the log that are old, but for the last file."""
    found: list[tuple[int, list[LogPiece]]] = []
    last = repository.log[-1].file_start(file_size) if repository.log else 0
    for piece in repository.log:
        start = piece.file_start(file_size)
        if start == last or repository.facts(piece).max_ms >= since_ms:
            while found and found[-1][0] == start:
                found.pop()
            break
        if not found or found[-1][0] != start:
            found.append((start, []))
        found[-1][1].append(piece)
    return found
