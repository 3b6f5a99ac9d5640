"""Index items of tags, as RocketMQ 5 has them: of each message with a tag one for ``TOPIC#T#TAG``.

They come behind those of the message's keys. RocketMQ 4.9 has none, and neither has an Index of
ours, unless it goes on with one of RocketMQ 5: in that, queries by tag find older messages, and are
to find the newer ones, too. Whether it has them is looked up once, by messages and what the Index
says of them, and then kept as the empty file ``ROOT/ledgermq/index-tags``.
"""

from __future__ import annotations

import logging
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import ExitStack
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
from ledgermq.store.files.file_names import starts_in
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


def has_tag_items(
    root: Path,
    log: LogFamily,
    layout: IndexLayout | None = None,
    *,
    behind: int = -1,
    sign_of_life: Callable[[], None] = lambda: None,
) -> bool:
    """Whether the Index has items of tags: it was noted, or the newest messages show it.

    An Index that cannot be read has none.

    Args:
        log: files with the messages.
        layout: of the Index's files, None to find it out.
        behind: position of the last message whose items are known to be ours.
        sign_of_life: called for each message that is looked at.

    Raises:
        StorageError: a file cannot be read.
    """
    if are_tags_kept(root):
        return True
    try:
        with ExitStack() as opened:
            reader = IndexReader(root / "index", layout=layout)
            opened.callback(reader.close)
            messages = _Messages(log)
            opened.callback(messages.close)
            return _shows_tags(reader, messages, behind, sign_of_life)
    except (ConfigError, CorruptLogError) as error:
        logger.warning("not known whether the index has items of tags: %s", error)
        return False


def _path(root: Path) -> Path:
    return root / "ledgermq" / TAGS_NAME


def _shows_tags(
    reader: IndexReader, messages: _Messages, behind: int, sign_of_life: Callable[[], None]
) -> bool:
    looked = untagged = 0
    for header, view in reader.newest_first():
        assert reader.layout is not None
        for position, hashes in _newest(header, view, reader.layout):
            if looked == _LOOKED_MAX or position <= behind:
                return False
            looked += 1
            sign_of_life()
            message = messages.at(position)
            if message is None or not message.tags:
                continue
            if index_key_hash(tag_key(message.topic, message.tags)) in hashes:
                return True
            untagged += 1
            if untagged == _UNTAGGED_MAX:
                return False
    return False


def _newest(
    header: IndexHeader, view: memoryview, layout: IndexLayout
) -> Iterator[tuple[int, npt.NDArray[np.void]]]:
    """Positions that a file's items have, the highest first, and the hashes of each one's items."""
    first = max(1, header.index_count - _ITEMS_MAX)
    items = np.frombuffer(view, KEY_ITEM, header.index_count - first, layout.item_at(first))
    positions = items["position"].astype(np.int64)
    if not len(positions):
        return
    order = np.argsort(positions, kind="stable")
    begins = [0, *(np.flatnonzero(np.diff(positions[order])) + 1).tolist()]
    for begin, end in zip(begins[::-1], [len(order), *begins[:0:-1]], strict=True):
        yield int(positions[order[begin]]), items["hash"][order[begin:end]]


class _Messages:
    """Messages by their positions; files are listed once, and one after the other is open: most
    messages are in the same file.
    """

    def __init__(self, log: LogFamily) -> None:
        """Nothing is open.

        Raises:
            StorageError: the files cannot be listed.
        """
        # The newest folder first, as ``LogFamily.candidates`` has them.
        self._folders = [(one.path, starts_in(one.path)) for one in reversed(log.folders)]
        self._path: Path | None = None
        self._fd = -1

    def at(self, position: int) -> Message | None:
        """The message at a position; None where there is none: the Index may be of a longer log.

        Raises:
            StorageError: a file cannot be read.
        """
        for folder, starts in self._folders:
            number = bisect_right(starts, position)
            if number:
                start = starts[number - 1]
                message = self._in(folder / f"{start:020d}", position - start)
                if message is not None and message.physical_offset == position:
                    return message
        return None

    def close(self) -> None:
        """Close the file that is open."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._path = -1, None

    def _in(self, path: Path, at: int) -> Message | None:
        try:
            if path != self._path:
                self.close()
                self._fd, self._path = os.open(path, os.O_RDONLY | os.O_CLOEXEC), path
            head = os.pread(self._fd, WORD.size, at)
            size = WORD.unpack(head)[0] if len(head) == WORD.size else 0
            if not SIZE_MIN <= size <= ENTRY_SIZE_MAX:
                return None
            return decode_message(memoryview(os.pread(self._fd, size, at)))
        except (FileNotFoundError, CorruptLogError):
            return None
        except OSError as error:
            raise StorageError.of("log file not read", error, file=path) from error
