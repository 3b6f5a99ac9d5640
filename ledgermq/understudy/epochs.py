"""Epochs of a master that a controller elects: which of them wrote which part of the log.

Each new master begins an epoch where its log ends. So two logs are the same up to where the last
epoch that both have ends in one of them. ``ROOT/ledgermq/understudy-epochs`` is a checked document,
written before the first byte of an epoch:

    {"version": 1, "epochs": [[1, 0], [4, 690614]]}
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from pathlib import Path

from ledgermq.formats.epoch_file import Epoch
from ledgermq.model.errors import CorruptLogError, ProtocolError
from ledgermq.store.files.checked_document import read_document, write_document

EPOCHS_NAME = "understudy-epochs"
EPOCHS_MAX = 1_000
"""RocketMQ's masters have room for as many in a handshake."""

_VERSION = 1


def checked_epochs(epochs: Iterable[Epoch]) -> tuple[Epoch, ...]:
    """The epochs of a master, which begin one behind the other.

    Raises:
        ProtocolError: they do not, or there are too many.
    """
    found = tuple(epochs)
    if len(found) > EPOCHS_MAX:
        raise ProtocolError("the master has too many epochs", epochs=len(found), limit=EPOCHS_MAX)
    before = Epoch(-1, -1)
    for epoch in found:
        if epoch.number <= before.number or epoch.start <= before.start:
            raise ProtocolError(
                "an epoch of the master does not follow the one before",
                epoch=epoch.number,
                start=epoch.start,
                before=before.number,
                before_start=before.start,
            )
        before = epoch
    return found


def common_end(
    ours: Sequence[Epoch], our_end: int, theirs: Sequence[Epoch], their_end: int
) -> int | None:
    """Up to where both logs are the same (``EpochFileCache.findConsistentPoint``); None: nobody
    can tell, for they have no epoch in common.

    Args:
        ours, theirs: epochs in their order; those that begin behind a log's end do not count.
    """
    ends = _ends(theirs, their_end)
    for epoch, end in reversed(_ends(ours, our_end).items()):
        if epoch in ends:
            return min(end, ends[epoch])
    return None


def _ends(epochs: Sequence[Epoch], log_end: int) -> dict[Epoch, int]:
    begun = [epoch for epoch in epochs if epoch.start < log_end]
    return {
        epoch: following.start if following else log_end
        for epoch, following in zip_longest(begun, begun[1:])
    }


def read_epochs(root: Path) -> tuple[Epoch, ...]:
    """Epochs of the log of the folder ``root``; none before it has begun.

    Raises:
        CorruptLogError: the document is not whole.
        StorageError: it cannot be read.
    """
    path = root / "ledgermq" / EPOCHS_NAME
    document = read_document(path)
    if document is None:
        return ()
    rows = document.get("epochs")
    if document.get("version") == _VERSION and isinstance(rows, list):
        try:
            return checked_epochs(Epoch(number, start) for number, start in rows)
        except (ProtocolError, TypeError, ValueError):
            pass
    raise CorruptLogError("the epochs of an understudy are not understood", file=str(path))


def write_epochs(root: Path, epochs: Sequence[Epoch]) -> None:
    """Replace the epochs of the folder ``root``; durable on return.

    Raises:
        StorageError: the operating system refused.
    """
    rows = [list(epoch) for epoch in epochs]
    write_document(root / "ledgermq" / EPOCHS_NAME, {"version": _VERSION, "epochs": rows})
