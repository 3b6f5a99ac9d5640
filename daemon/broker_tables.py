"""The broker's tables and their files: topics and groups at once, offsets a moment later.

Group offsets are written by a thread of their own, so that no consumer waits for the disk; at
most one write is under way, and it has the newest content there was when it began.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from ledgermq.broker import group_offsets, groups, topics
from ledgermq.broker.group_offsets import GroupOffsets
from ledgermq.broker.groups import GroupTable
from ledgermq.broker.topics import TopicTable
from ledgermq.daemon.config_file import ConfigFile
from ledgermq.model.errors import StorageError
from ledgermq.model.settings import Settings
from ledgermq.store.config_json import encode_document

logger = logging.getLogger(__name__)

OFFSETS_DELAY_NS = 50_000_000
"""Half of the tenth of a second that a commit may be lost for; the other half is the write's."""

RETRY_NS = 1_000_000_000
WRITE_POLL_MS = 5


class BrokerTables:
    """Topics, groups and group offsets, as loaded at start.

    Invariant: ``_saved_revision <= offsets.revision``; the file has the former.
    """

    def __init__(self, directory: Path, settings: Settings) -> None:
        """Load the tables, and put RocketMQ's own topics and groups in if they are missing.

        Raises:
            ConfigError, CorruptLogError: a file cannot be understood; names file, key and value.
            StorageError: the operating system refused.
        """
        self._topics_file = ConfigFile(directory / topics.FILE)
        self._groups_file = ConfigFile(directory / groups.FILE)
        self._offsets_file = ConfigFile(directory / group_offsets.FILE)
        self.topics = TopicTable.read(self._topics_file.load())
        self.groups = GroupTable.read(self._groups_file.load())
        self.offsets = GroupOffsets.read(self._offsets_file.load())
        self._saved_topics = self.topics.version
        self._saved_groups = self.groups.version
        self._saved_revision = self.offsets.revision
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="offsets")
        self._write: Future[None] | None = None
        self._writing_revision = 0
        self._is_due = False
        self._due_ns = 0
        now_ms = time.time_ns() // 1_000_000
        self.topics.add_builtin(settings.node, settings.topics, now_ms)
        self.groups.add_builtin(now_ms)
        self.save_topics()
        self.save_groups()

    def save_topics(self) -> None:
        """Write the topics if they have changed.

        Raises:
            StorageError: they are still to be written.
        """
        if self.topics.version != self._saved_topics:
            self._topics_file.save(self.topics.to_document())
            self._saved_topics = self.topics.version

    def save_groups(self) -> None:
        """Write the groups if they have changed.

        Raises:
            StorageError: they are still to be written.
        """
        if self.groups.version != self._saved_groups:
            self._groups_file.save(self.groups.to_document())
            self._saved_groups = self.groups.version

    def sleep_ms(self, now_ns: int) -> int | None:
        """How long ``tick`` can wait; ``None`` when there is nothing to write."""
        if not self._is_due:
            return None
        wait_ms = max(0, self._due_ns - now_ns) // 1_000_000
        # The end of a write does not wake the loop.
        return wait_ms if self._write is None else max(wait_ms, WRITE_POLL_MS)

    def note_commit(self, now_ns: int) -> None:
        """An offset was committed: it goes to the file soon."""
        if not self._is_due:
            self._is_due = True
            self._due_ns = now_ns + OFFSETS_DELAY_NS

    def tick(self, now_ns: int) -> None:
        """Begin and end writes of the offsets."""
        if self._write is not None:
            if not self._write.done():
                return
            self._finish_write(now_ns)
        if self._is_due and now_ns >= self._due_ns:
            self._is_due = False
            self._writing_revision = self.offsets.revision
            content = encode_document(self.offsets.to_document())
            self._write = self._thread.submit(self._offsets_file.save_content, content)

    def close(self) -> None:
        """Write what is not written, and end the thread.

        Raises:
            StorageError: offsets are lost as far as they were not in the file before.
        """
        self._thread.shutdown()
        if self._write is not None:
            self._finish_write(0)
        if self.offsets.revision != self._saved_revision:
            self._offsets_file.save(self.offsets.to_document())
            self._saved_revision = self.offsets.revision

    def _finish_write(self, now_ns: int) -> None:
        assert self._write is not None
        write, self._write = self._write, None
        try:
            write.result()
        except StorageError as error:
            logger.error("group offsets not written: %s", error)
            self._is_due = True
            self._due_ns = now_ns + RETRY_NS
            return
        self._saved_revision = self._writing_revision
