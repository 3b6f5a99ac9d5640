"""Counts of messages in RocketMQ 5's timer wheel and POP, and whether a node can go on with them.

Read-only, and bounded in units and time; for ``store/origin.py``.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from itertools import count

import numpy as np

from ledgermq.formats.arrays import Units
from ledgermq.formats.pop_marks import REVIVE_GROUP
from ledgermq.formats.records.message import MAGIC, SIZE_AND_MAGIC, SIZE_MIN, properties_in
from ledgermq.formats.records.properties import decode_properties
from ledgermq.formats.timer_wheel import (
    REVIVE_PREFIX,
    WHEEL_TOPIC,
    TimerCheck,
    WheelMessage,
    WheelQueue,
)
from ledgermq.model.errors import ConfigError, CorruptLogError
from ledgermq.model.names.group_topics import RETRY_PREFIX
from ledgermq.model.names.strange_uses import StrangeUse
from ledgermq.store.files.file_names import is_queue_folder, own_names
from ledgermq.store.log_reader import LogReader
from ledgermq.store.origin_files import Found, OriginFiles, TooLargeError, bounded_bytes
from ledgermq.store.queues.queue_reader import QueueReader
from ledgermq.store.store_directory import open_directory

UNITS_MAX = 4_000_000
"""Most messages of the wheel's queue, or of one of POP's, that are looked at."""

SECONDS_MAX = 30.0
"""Longest time that this takes, whatever the directory holds."""

_ALL = (1 << 63) - 1
_BLOCK_UNITS = 256
"""Between two looks at the clock: each message may be a read of a slow disk."""
_CHECKPOINT_TAG = 3_176
"""Java's hash of ``ck``, the tag of a checkpoint of POP; the others are acknowledgements."""


class _UnknownError(Exception):
    """Something cannot be read."""


class _TooManyError(_UnknownError):
    """Not all of it was looked at within the bounds."""


def waiting(files: OriginFiles, self_id: str | None, left: frozenset[str]) -> Iterator[Found]:
    """Timers that wait, and what POP has in flight, but for the uses that are ``left``.

    Raises:
        OSError: something cannot be read.
        StorageError: as that.
    """
    asked = [use for use in (StrangeUse.TIMERS, StrangeUse.POP) if use not in left]
    if not asked:
        return
    if not (files.root / "consumequeue").is_dir() or files.has_rocksdb("consumequeue"):
        if "timerwheel" in files.names and StrangeUse.TIMERS in asked:
            what = "whether timers wait cannot be told: their queue is no file"
            yield Found(StrangeUse.TIMERS, what, None)
        return
    with ExitStack() as opened:
        try:
            queues = _Queues(files, self_id, opened)
        except (ConfigError, CorruptLogError) as error:
            for use in asked:
                yield Found(use, f"whether something waits cannot be told: {error}", None)
            return
        yield from queues.found(asked)


class _Queues:
    def __init__(self, files: OriginFiles, self_id: str | None, opened: ExitStack) -> None:
        self._files = files
        self._folder = files.root / "consumequeue"
        self._log = LogReader(open_directory(files.root, self_id=self_id))
        opened.callback(self._log.close)
        self._deadline = time.monotonic() + SECONDS_MAX

    def found(self, asked: list[StrangeUse]) -> Iterator[Found]:
        handed_out: int | None = 0
        try:
            waiting = list(self._in_wheel().values())
        except _TooManyError as error:
            waiting, handed_out = [], None
            if StrangeUse.TIMERS in asked:
                yield Found(StrangeUse.TIMERS, f"timers, not counted: {error}", None, True)
        except (_UnknownError, CorruptLogError) as error:
            for use in asked:
                yield Found(use, f"what waits in the timer wheel cannot be told: {error}", None)
            return
        timers = [one.due_ms for one in waiting if not one.of_pop]
        if timers and StrangeUse.TIMERS in asked:
            last = datetime.fromtimestamp(max(timers) // 1_000, UTC)
            until = f"{last:%Y-%m-%dT%H:%M:%SZ}" if last.timestamp() else "an unknown time"
            what = (
                f"{len(timers)} messages wait for their time in the timer wheel, the last"
                f" until {until}"
            )
            yield Found(StrangeUse.TIMERS, what, len(timers), True)
        if StrangeUse.POP not in asked:
            return
        try:
            if handed_out is None:
                raise _TooManyError(f"{WHEEL_TOPIC} has too many messages")
            handed_out = len(waiting) - len(timers) + self._checkpoints()
            unread = self._unread_retries()
        except _TooManyError as error:
            yield Found(
                StrangeUse.POP, f"messages of POP in flight, not counted: {error}", None, True
            )
            return
        except (_UnknownError, CorruptLogError, TooLargeError) as error:
            yield Found(StrangeUse.POP, f"what POP has in flight cannot be told: {error}", None)
            return
        if handed_out or unread:
            what = (
                f"POP has {handed_out} checkpoints or acknowledgements in flight, and {unread}"
                " messages in its retry topics that were not consumed"
            )
            yield Found(StrangeUse.POP, what, handed_out + unread, True)

    def _in_wheel(self) -> dict[int, WheelMessage]:
        if not (self._folder / WHEEL_TOPIC / "0").is_dir():
            return {}
        with self._queue(WHEEL_TOPIC, 0) as (reader, first, end):
            if first == end:
                return {}
            found = WheelQueue(self._timer_check())
            numbers = count(first)
            for units in self._blocks(reader, first, end):
                pairs = zip(units["position"].tolist(), units["size"].tolist(), strict=True)
                for position, size in pairs:
                    found.take(self._properties(position, size), next(numbers), size)
            return found.waiting

    def _properties(self, position: int, size: int) -> dict[str, str]:
        """Properties of the message of a unit; of millions, so the rest of it is not decoded."""
        part = self._log.part_with(position)
        if part is None or not SIZE_MIN <= size <= part.files.room(position):
            return self._decoded(position, size)
        record = part.files.view(position, size)
        if SIZE_AND_MAGIC.unpack_from(record) != (size, MAGIC):
            return self._decoded(position, size)
        try:
            found = properties_in(record)
        except struct.error:
            return self._decoded(position, size)
        return decode_properties(found) if found else self._decoded(position, size)

    def _decoded(self, position: int, size: int) -> dict[str, str]:
        """The same of one that looks odd: what is wrong with it is told."""
        message = self._log.message_at(position, size, check_crc=False)
        return decode_properties(message.properties)

    def _timer_check(self) -> TimerCheck:
        check = TimerCheck.read(bounded_bytes(self._files.config / "timercheck", 64))
        if check is None:
            raise _UnknownError("config/timercheck, which says what was delivered, is not there")
        return check

    def _checkpoints(self) -> int:
        """Checkpoints of POP behind the last one that was revived, whose own offset is kept."""
        total = 0
        for topic in own_names(self._folder, lambda name: name.startswith(REVIVE_PREFIX)):
            done = self._consumed(topic, REVIVE_GROUP)
            for queue_id in self._queue_ids(topic):
                with self._queue(topic, queue_id) as (reader, first, end):
                    begin = max(first, done.get(queue_id, -1) + 1)
                    for units in self._blocks(reader, begin, end):
                        total += int(np.count_nonzero(units["tags"] == _CHECKPOINT_TAG))
        return total

    def _blocks(self, reader: QueueReader, begin: int, end: int) -> Iterator[Units]:
        """The units from ``begin`` to ``end``, as long as there is time."""
        if end - begin > UNITS_MAX:
            folder = reader.files.directory
            raise _TooManyError(f"{folder} has {end - begin:,} messages, more than {UNITS_MAX:,}")
        for at in range(begin, end, _BLOCK_UNITS):
            self._hurry()
            yield reader.units(at, min(_BLOCK_UNITS, end - at))

    def _unread_retries(self) -> int:
        """Messages in POP's own retry topics, ``%RETRY%GROUP_TOPIC``, behind the group's offset."""
        total = 0
        for topic in own_names(self._folder, lambda name: name.startswith(RETRY_PREFIX)):
            self._hurry()
            group = self._pop_group(topic.removeprefix(RETRY_PREFIX))
            if group is None:
                continue
            done = self._consumed(topic, group)
            for queue_id in self._queue_ids(topic):
                with self._queue(topic, queue_id) as (_, first, end):
                    if first < end and queue_id not in done:
                        raise _UnknownError(f"its group has no offset in {topic}")
                    total += max(0, end - max(first, done.get(queue_id, first)))
        return total

    def _pop_group(self, name: str) -> str | None:
        """The group of a retry topic of POP; None where it is an ordinary one's, named like that.

        Later versions have a ``+`` between the two names.
        """
        if name in self._files.groups:
            return None
        for at, letter in enumerate(name):
            group, topic = name[:at], name[at + 1 :]
            if letter == "+" or (
                letter == "_" and group in self._files.groups and topic in self._files.topics
            ):
                return group
        return None

    def _consumed(self, topic: str, group: str) -> dict[int, int]:
        table = self._files.offsets.get(f"{topic}@{group}")
        return {
            int(queue): offset
            for queue, offset in (table.items() if isinstance(table, dict) else ())
            if is_queue_folder(queue) and isinstance(offset, int)
        }

    def _queue_ids(self, topic: str) -> list[int]:
        folder = self._folder / topic
        names = own_names(folder, is_queue_folder) if folder.is_dir() else []
        return [int(name) for name in names if (folder / name).is_dir()]

    @contextmanager
    def _queue(self, topic: str, queue_id: int) -> Iterator[tuple[QueueReader, int, int]]:
        reader = QueueReader(self._folder / topic / str(queue_id), file_size=None)
        try:
            first, end = reader.bounds(_ALL, log_first=self._log.first)
            yield reader, first, end
        finally:
            # Each of many queues has a map.
            reader.close()

    def _hurry(self) -> None:
        if time.monotonic() > self._deadline:
            raise _TooManyError(f"not all was looked at within {SECONDS_MAX:.0f} s")
