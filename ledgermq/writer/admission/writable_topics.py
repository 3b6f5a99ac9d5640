"""Writable topics: those that producers may send to, from the broker's table on disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from ledgermq.formats.config_json import choose_document
from ledgermq.formats.records.message import decode_message
from ledgermq.ipc.orders import WritableTopic
from ledgermq.model.errors import LedgerError, NoPermissionError, TopicUnknownError
from ledgermq.model.limits import FORBIDDEN_TOPICS
from ledgermq.model.names.transactions import HALF_TOPIC
from ledgermq.rules.messages.transactions import check_half
from ledgermq.rules.tables.topics import TopicTable, queues_for_writing
from ledgermq.store.files.small_file import read_file

CheckContent = Callable[[memoryview, memoryview, int, int], None]
"""Refuses a run of well-formed records, and tells which one: the run's bytes, the sizes of the
frame's records, the number of the run's first one, and the size of the hole before each."""


class WritableTopics:
    """Queue numbers by topic, as the broker tells them or says to read them.

    They are as old as its file until it does: then no frame is taken.

    Attributes:
        windows: topics whose unique ids count for a while; another object after each change.
        plain: queue numbers of those that are not the broker's own.
    """

    def __init__(self, path: Path) -> None:
        """Read the topics that the file at ``path`` has; raises as ``reload``."""
        self._path = path
        self._stamp: tuple[int, int] | None = None
        self._queues: dict[bytes, int] = {}
        self.plain: dict[bytes, int] = {}
        self.windows: Mapping[bytes, WritableTopic] = {}
        self.reload()

    def take(self, told: Mapping[str, WritableTopic | None]) -> None:
        """What became of some topics; ``None`` for no topic."""
        # What is known is not what the file said any more.
        self._stamp = None
        windows = dict(self.windows)
        for name, topic in told.items():
            windows.pop(name.encode(), None)
            if topic is None:
                self._queues.pop(name.encode(), None)
                self.plain.pop(name.encode(), None)
            else:
                self._queues[name.encode()] = topic.queues
                if name not in FORBIDDEN_TOPICS:
                    self.plain[name.encode()] = topic.queues
                if topic.window_ms:
                    windows[name.encode()] = topic
        if windows != self.windows:
            self.windows = windows

    def read_as_told(self) -> None:
        """Know the table in the file, which the broker says to be the newest.

        The broker repeats that until it is answered; a file that was read is not read again, since
        reading ten thousand topics takes longer than it waits.

        Raises:
            CorruptLogError, ConfigError: it cannot be read; what was known stays.
        """
        if self._stamp is None or self._stat() != self._stamp:
            self.reload()

    def reload(self) -> None:
        """Read the table again.

        Raises:
            CorruptLogError, ConfigError: it cannot be read; what was known stays.
        """
        backup = self._path.with_name(self._path.name + ".bak")
        # Before the content: a file that is replaced between the two is read once more.
        stamp = self._stat()
        document = choose_document(read_file(self._path), read_file(backup), file=str(self._path))
        self._stamp = stamp
        if document is None:
            return
        table = TopicTable.read(document)
        self._queues = {topic.name.encode(): queues_for_writing(topic) for topic in table}
        self.plain = {name: self._queues[name] for name in self._queues.keys() - _FORBIDDEN}
        self.windows = {
            topic.name.encode(): WritableTopic(
                queues_for_writing(topic), topic.deduplication_window_ms, topic.first_offsets
            )
            for topic in table
            if topic.deduplication_window_ms
        }

    def check(self, topic: bytes, queue_id: int) -> CheckContent | None:
        """Refuse a queue that producers may not write to.

        Returns:
            what to look at each record with, where not every message may be written.

        Raises:
            TopicUnknownError: there is no such topic or no such queue of it.
            NoPermissionError: the topic is the broker's own, or not writable.
        """
        queues = self._queues.get(topic)
        if queues is not None and 0 <= queue_id < queues and topic not in _FORBIDDEN:
            return None
        if topic == HALF and queue_id == 0:
            return self._check_halves
        name = topic.decode("utf-8", "replace")
        if topic in _FORBIDDEN:
            raise NoPermissionError("topic is the broker's own", topic=name)
        if queues is None:
            raise TopicUnknownError("topic does not exist", topic=name)
        if queues == 0:
            raise NoPermissionError("topic may not be written to", topic=name)
        raise TopicUnknownError(
            "topic has no such queue", topic=name, queue=queue_id, queues=queues
        )

    def _check_halves(self, run: memoryview, sizes: memoryview, first: int, hole: int) -> None:
        """Take half messages alone, and for queues alone that can be written to."""
        at, number = 0, first
        while at < len(run):
            try:
                topic, queue_id = check_half(decode_message(run, at + hole, check_crc=False))
                if self.check(topic.encode(), queue_id) is not None:
                    raise NoPermissionError("topic is the broker's own", topic=topic)
            except LedgerError as error:
                error.details["record"] = number
                raise
            at += sizes[number]
            number += 1

    def _stat(self) -> tuple[int, int] | None:
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return None
        return status.st_mtime_ns, status.st_ino


HALF = HALF_TOPIC.encode()
_FORBIDDEN = frozenset(name.encode() for name in FORBIDDEN_TOPICS)
