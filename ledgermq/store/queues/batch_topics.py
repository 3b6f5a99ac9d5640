"""Topics whose queues are RocketMQ 5's queues of batches, as the store's table and folders say.

A node makes no such topic, and changes none into one: what is there when a process begins is all.
"""

from __future__ import annotations

from pathlib import Path

from ledgermq.formats.batch_unit import BATCH_FOLDER, OF_BATCHES, QUEUE_TYPE
from ledgermq.formats.config_json import decode_document
from ledgermq.model.errors import CorruptLogError, refused_as
from ledgermq.model.names.stored_name import is_file_name
from ledgermq.store.files.file_names import queue_files
from ledgermq.store.files.small_file import read_file


def batch_topics(root: Path) -> frozenset[str]:
    """The topics of the store in ``root`` that have queues of batches, or are to have some.

    A name that no folder can have is none of them, whatever the table says: folders are looked for,
    made and moved by these names.

    Raises:
        StorageError: a file or a folder cannot be read.
    """
    with refused_as("queues of batches not listed", why="", directory=root):
        found = {path.parent.parent.name for path in queue_files(root / BATCH_FOLDER)}
    for name in ("topics.json", "topics.json.bak"):
        content = read_file(root / "config" / name)
        # Tables are large, and mostly there is none.
        if content is None or OF_BATCHES.encode() not in content.lower():
            continue
        try:
            table = decode_document(content, file=name).get("topicConfigTable")
        except CorruptLogError:
            continue
        rows = table if isinstance(table, dict) else {}
        found |= {topic for topic, row in rows.items() if is_of_batches(row)}
    return frozenset(filter(is_file_name, found))


def is_of_batches(row: object) -> bool:
    """Whether a row of the table of topics says that the queues are of batches."""
    attributes = row.get("attributes") if isinstance(row, dict) else None
    if not isinstance(attributes, dict):
        return False
    return str(attributes.get(QUEUE_TYPE, "")).lower() == OF_BATCHES
