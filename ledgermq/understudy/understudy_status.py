"""Status of an understudy: what its process says of itself each second, for whoever looks."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from pathlib import Path

from ledgermq.conversion.understudy_note import STATUS_NAME
from ledgermq.model.errors import CorruptLogError
from ledgermq.store.files.checked_document import read_document, write_document

_MADE_ANEW = "the status of an understudy is not whole: ledgermq understudy run makes it anew"


class FollowingState(StrEnum):
    """What the process does.

    FOLLOWING: it has a connection. AWAY: it has none, and tries again. REFUSED: it has ended, for
    the master's log is another one, or the master cannot be followed. ENDED: it was told to.
    """

    FOLLOWING = "following"
    AWAY = "away"
    REFUSED = "refused"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnderstudyStatus:
    """What was so when it was told.

    Attributes:
        state: a ``FollowingState``.
        since_ms: from when on it is in this state, epoch ms.
        told_at_ms: when all this was so, epoch ms.
        durable: all of the log before it is on this disk, as the master was told.
        dispatched: all messages before it are in the queues.
        master_end: where the master's log ended when it was asked last; -1: never.
        tables_at_ms: when the tables were asked for that are here, epoch ms; 0: never.
        tables_position: topics of messages before it are among them, unless they were deleted.
        remoting: where the master's clients were when it was in touch last; empty: never.
        confirmed: all before it is confirmed, as an elected master has said last; -1: nobody can
            tell.
        missing: tables that the master does not tell, and why not.
        trouble: the last thing that went wrong; empty while all goes well.
    """

    state: str
    since_ms: int
    told_at_ms: int
    durable: int = 0
    dispatched: int = 0
    master_end: int = -1
    tables_at_ms: int = 0
    tables_position: int = 0
    remoting: str = ""
    confirmed: int = -1
    missing: str = ""
    trouble: str = ""

    @property
    def lag_bytes(self) -> int:
        """Bytes that the master had, when it was asked, and this disk has not."""
        return max(0, self.master_end - self.durable)

    @property
    def unconfirmed_bytes(self) -> int:
        """Bytes on this disk of which an elected master has not said that they are confirmed."""
        return max(0, self.durable - self.confirmed) if self.confirmed >= 0 else 0


def write_status(root: Path, status: UnderstudyStatus) -> None:
    """Replace the status of the folder ``root``.

    Raises:
        StorageError: the operating system refused.
    """
    write_document(root / "ledgermq" / STATUS_NAME, asdict(status))


def read_status(root: Path) -> UnderstudyStatus | None:
    """The status of the folder ``root``; None: its process has never run.

    Raises:
        CorruptLogError: it is not whole; says what to do.
        StorageError: it cannot be read.
    """
    path = root / "ledgermq" / STATUS_NAME
    try:
        document = read_document(path)
    except CorruptLogError as error:
        raise CorruptLogError(_MADE_ANEW, file=str(path), reason=error.message) from error
    if document is None:
        return None
    known = {field.name: str if field.type == "str" else int for field in fields(UnderstudyStatus)}
    if document.keys() != known.keys() or any(
        not isinstance(document[name], kind) for name, kind in known.items()
    ):
        raise CorruptLogError(_MADE_ANEW, file=str(path), reason="not understood")
    return UnderstudyStatus(**document)  # type: ignore[arg-type]
