"""State mark: the log position of the last snapshot, from which retention keeps the log.

``ROOT/ledgermq/state-snapshot`` is written by the broker, and read by who deletes files of the log.
Messages that wait for a time of their own hold it back, too. A store that was put together from
another one begins with 0: nothing is deleted before its broker has looked at what waits.
"""

from __future__ import annotations

from pathlib import Path

from ledgermq.model.errors import CorruptLogError
from ledgermq.model.ids import Position
from ledgermq.store.files.checked_document import read_document, write_document

NAME = "state-snapshot"


def write_state_mark(path: Path, position: int) -> None:
    """Keep the log from ``position`` on; durable on return.

    Raises:
        StorageError: the operating system refused.
    """
    write_document(path, {"position": position})


def read_state_mark(path: Path) -> Position | None:
    """Where the last snapshot begins; None before there was one.

    Raises:
        CorruptLogError: the file is not whole; the next snapshot mends it.
        StorageError: the operating system refused.
    """
    document = read_document(path)
    if document is None:
        return None
    position = document.get("position")
    if type(position) is not int:
        raise CorruptLogError("mark of a snapshot without a position", file=str(path))
    return Position(position)
