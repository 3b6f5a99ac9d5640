"""Index items of tags, as RocketMQ 5 has them: of each message with a tag one for ``TOPIC#T#TAG``.

They come behind those of the message's keys. RocketMQ 4.9 has none, and neither has an Index of
ours, unless it goes on with one of RocketMQ 5: in that, queries by tag find older messages, and are
to find the newer ones, too. Whether it has them is looked up once, by messages and what the Index
says of them, and then kept as the empty file ``ROOT/ledgermq/index-tags``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ledgermq.formats.arrays import KEY_ITEM
from ledgermq.formats.index_file import IndexHeader, IndexLayout
from ledgermq.formats.java_hash import index_key_hash
from ledgermq.formats.records.message import SIZE_MIN, WORD, Message, decode_message
from ledgermq.model.errors import ConfigError, CorruptLogError, StorageError
from ledgermq.model.limits import ENTRY_SIZE_MAX
from ledgermq.store.files.disk_sync import make_folder
from ledgermq.store.files.small_file import replace_file
from ledgermq.store.index.index_reader import IndexReader
from ledgermq.store.log_family import LogFamily

logger = logging.getLogger(__name__)

TAGS_NAME = "index-tags"

_ITEMS_MAX = 16_384
"""Newest items of a file that are looked at."""

_LOOKED_MAX = 16_384
"""Newest messages that are looked at in all, each by a read of the log: a start waits for it, and
a store may have no tags at all."""

_UNTAGGED_MAX = 3
"""Messages with a tag and without its item that say that there are none: keys of the last message
may just be put, and the last items of a file go on in the next one."""


def tag_key(topic: str, tag: str) -> str:
    """What the item of a tag is the hash of."""
    return f"{topic}#T#{tag}"


def are_tags_kept(root: Path) -> bool:
    """Whether the Index of the store at ``root`` was found to have items of tags."""
    return _path(root).exists()


def keep_tags(root: Path) -> None:
    """From now on messages get items of their tags; durable on return.

    Raises:
        DiskFullError, StorageError: the operating system refused.
    """
    path = _path(root)
    make_folder(path.parent)
    replace_file(path, b"")


def has_tag_items(root: Path, log: LogFamily, layout: IndexLayout | None = None) -> bool:
    """Whether the Index has items of tags: it was noted, or the newest messages show it.

    An Index that cannot be read has none.

    Args:
        log: files with the messages.
        layout: of the Index's files, None to find it out.

    Raises:
        StorageError: a file cannot be read.
    """
    if are_tags_kept(root):
        return True
    try:
        reader = IndexReader(root / "index", layout=layout)
        try:
            return _shows_tags(reader, log)
        finally:
            reader.close()
    except (ConfigError, CorruptLogError) as error:
        logger.warning("not known whether the index has items of tags: %s", error)
        return False


def _path(root: Path) -> Path:
    return root / "ledgermq" / TAGS_NAME


def _shows_tags(reader: IndexReader, log: LogFamily) -> bool:
    looked = untagged = 0
    for header, view in reader.newest_first():
        assert reader.layout is not None
        for message, hashes in _newest(header, view, reader.layout, log):
            if looked == _LOOKED_MAX:
                return False
            looked += 1
            if message is None or not message.tags:
                continue
            if index_key_hash(tag_key(message.topic, message.tags)) in hashes:
                return True
            untagged += 1
            if untagged == _UNTAGGED_MAX:
                return False
    return False


def _newest(
    header: IndexHeader, view: memoryview, layout: IndexLayout, log: LogFamily
) -> Iterator[tuple[Message | None, npt.NDArray[np.void]]]:
    """What a file's items point to, the newest first, and the hashes of a message's items."""
    first = max(1, header.index_count - _ITEMS_MAX)
    items = np.frombuffer(view, KEY_ITEM, header.index_count - first, layout.item_at(first))
    positions = items["position"].astype(np.int64)
    for position in np.unique(positions)[::-1].tolist():
        yield _message_at(log, position), items["hash"][positions == position]


def _message_at(log: LogFamily, position: int) -> Message | None:
    """The message at a position; None where there is none: the Index may be of a longer log."""
    for folder, start in log.candidates(position):
        path = folder.path / f"{start:020d}"
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                head = os.pread(fd, WORD.size, position - start)
                size = WORD.unpack(head)[0] if len(head) == WORD.size else 0
                if not SIZE_MIN <= size <= ENTRY_SIZE_MAX:
                    continue
                record = memoryview(os.pread(fd, size, position - start))
            finally:
                os.close(fd)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StorageError.of("log file not read", error, file=path) from error
        try:
            message = decode_message(record)
        except CorruptLogError:
            continue
        if message.physical_offset == position:
            return message
    return None
