"""Note of a restore that moves a store to its place: it is all made, and not all there.

``ROOT/ledgermq/restore.json`` is a checked document,

    {"version": 1, "backup": DIGEST, "self_id": "n0", "cluster": HEX or null, "messages": 12}

with the digest of the backup's manifest, and whose store it becomes; it goes when all is in place.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from ledgermq.model.errors import ConfigError
from ledgermq.store.files.checked_document import read_document, write_document

NAME = "restore.json"
_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreNote:
    """What the note says, as the module's head shows it; ``messages`` are those in the queues."""

    backup: str
    self_id: str | None
    cluster: str | None
    messages: int


def write_note(folder: Path, note: RestoreNote) -> None:
    """Write the note into ``folder``; durable on return.

    Raises:
        StorageError: the operating system refused.
    """
    write_document(folder / NAME, {"version": _VERSION, **asdict(note)})


def messages_of_begun(root: Path, *, backup: str, self_id: str | None, cluster: str | None) -> int:
    """How many messages has what is on its way to its place in ``root``; -1 if nothing is.

    Args:
        backup, self_id, cluster: what is to be restored, as the note has them.

    Raises:
        ConfigError: something else is on its way.
        CorruptLogError: the note is not whole.
        StorageError: it cannot be read.
    """
    document = read_document(root / "ledgermq" / NAME)
    if document is None:
        return -1
    messages = document.get("messages")
    if isinstance(messages, int):
        asked = RestoreNote(backup=backup, self_id=self_id, cluster=cluster, messages=messages)
        if document == {"version": _VERSION, **asdict(asked)}:
            return messages
    raise ConfigError(
        "another restore into this folder was begun and is not done: go on with that one, or empty"
        " the folder",
        directory=str(root),
        begun=document,
        backup=backup,
        self_id=self_id,
        cluster=cluster,
    )


def refuse_unfinished_restore(root: Path) -> None:
    """Refuse a store that is not all in its place.

    Raises:
        ConfigError: the restore must be run again first.
    """
    if (root / "ledgermq" / NAME).exists():
        raise ConfigError(
            "a restore into this folder was begun and is not done: run the same ledgermq backup"
            " restore again",
            directory=str(root),
        )
