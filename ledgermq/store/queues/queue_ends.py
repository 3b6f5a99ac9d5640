"""Table of queue ends as of one log position: ``ROOT/ledgermq/queue-ends``.

A queue's end is the number of its next message. While the log has a message of the queue, the log
says it. When retention has deleted the last one, only the ConsumeQueue's last file does, which is
derived, is not shipped, and is not in a backup: this table is what says it then. The log from
``position`` on and the table together know all ends. So that this is always so, retention keeps the
log from ``position`` on, and the dispatcher writes the table anew when it has come to another file
of the log: it alone writes the file while a node runs, after the units up to ``position`` are on
the disk. The table goes wherever the log goes (docs/decisions/0046-queue-ends-travel.md).

A checked document (``store/files/checked_document.py``):

    {"version": 1, "position": N, "ends": {TOPIC: {QUEUE: END, …}, …}}

Queues that were never used are left out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ledgermq.model.errors import CorruptLogError
from ledgermq.model.names.stored_name import is_file_name
from ledgermq.store.files.checked_document import (
    decode_document,
    encode_document,
    read_document,
    write_document,
)

NAME = "queue-ends"
_VERSION = 1

Queue = tuple[bytes, int]
"""Topic and queue id."""


class QueueEnds(NamedTuple):
    """Ends of all queues.

    Attributes:
        position: messages before it are counted, and no others.
        ends: queue offset behind the last one, by queue; above 0.
    """

    position: int
    ends: Mapping[Queue, int]

    def to_document(self) -> dict[str, object]:
        """The JSON object."""
        topics: dict[str, dict[str, int]] = {}
        for (topic, queue_id), end in self.ends.items():
            topics.setdefault(os.fsdecode(topic), {})[str(queue_id)] = end
        return {"version": _VERSION, "position": self.position, "ends": topics}


def ends_path(root: Path) -> Path:
    """The table of a store."""
    return root / "ledgermq" / NAME


def told_ends_path(root: Path) -> Path:
    """What a leader's snapshot has said that the store's own table lacked; the broker's file."""
    return root / "ledgermq" / f"{NAME}-told"


def read_queue_ends(path: Path) -> QueueEnds | None:
    """The table in the file ``path``; None when there is none.

    Raises:
        CorruptLogError: it is not whole.
        StorageError: it cannot be read.
    """
    document = read_document(path)
    return None if document is None else ends_of_document(document, file=str(path))


def write_queue_ends(path: Path, ends: QueueEnds) -> None:
    """Replace the table; durable on return.

    Raises:
        StorageError: the operating system refused.
    """
    write_document(path, ends.to_document())


def encode_queue_ends(ends: QueueEnds) -> bytes:
    """The content of the file, for who has it written by others."""
    return encode_document(ends.to_document())


def decode_queue_ends(content: bytes, *, file: str) -> QueueEnds:
    """What the content of a file says that was called ``file``.

    Raises:
        CorruptLogError: it is not whole.
    """
    return ends_of_document(decode_document(content, file=file), file=file)


def ends_of_document(document: Mapping[str, object], *, file: str) -> QueueEnds:
    """The table in a JSON object.

    Raises:
        CorruptLogError: it is none.
    """
    position, topics = document.get("position"), document.get("ends")
    if document.get("version") != _VERSION or type(position) is not int or position < 0:
        raise CorruptLogError("table of queue ends of another version, or none", file=file)
    ends: dict[Queue, int] = {}
    for topic, queues in topics.items() if isinstance(topics, dict) else ():
        if not is_file_name(topic) or not isinstance(queues, dict):
            raise CorruptLogError("table of queue ends with a wrong name", file=file, topic=topic)
        name = os.fsencode(topic)
        for queue_id, end in queues.items():
            if not queue_id.isdecimal() or type(end) is not int or end < 0:
                raise CorruptLogError(
                    "table of queue ends with a wrong number",
                    file=file,
                    topic=topic,
                    queue=queue_id,
                    end=str(end),
                )
            ends[name, int(queue_id)] = end
    return QueueEnds(position, ends)
