"""Check of queues of no topic here, as light queues: their units against the messages they are of.

RocketMQ puts a message into light queues besides its own: property ``INNER_MULTI_DISPATCH`` has
their names, ``INNER_MULTI_QUEUE_OFFSET`` its number in each, both separated by commas
(``MultiDispatch``, ``ConsumeQueue.multiDispatchLmqQueue``). No node reads or mends these queues, so
all that is found is noted and nothing more.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace

import numpy as np

from ledgermq.formats.arrays import UNIT
from ledgermq.formats.findings import Severity
from ledgermq.formats.java_hash import java_hash
from ledgermq.formats.queue_unit import UNIT_SIZE
from ledgermq.formats.records.message import Message, decode_message
from ledgermq.formats.records.properties import TAGS
from ledgermq.model.errors import CorruptLogError
from ledgermq.model.limits import DELAY_TOPIC
from ledgermq.repair.check.check_units import QueueReport, QueueTask, check_queue
from ledgermq.repair.check.file_family import FileFamily, find_family
from ledgermq.store.queues.queue_end import PREFILL_SIZE

QUEUES = "INNER_MULTI_DISPATCH"
OFFSETS = "INNER_MULTI_QUEUE_OFFSET"
_SEPARATOR = ","
_LEFT = "RocketMQ's queue, of no topic here: it is left alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignQueueTask:
    """One such queue, and the log whose messages its units point to.

    Attributes:
        queue: as of a topic's queue; no unit of it counts as right yet.
        log: the parts of the log, the oldest first.
    """

    queue: QueueTask
    log: Sequence[FileFamily]


def check_foreign_queue(task: ForeignQueueTask) -> QueueReport:
    """Look at all units of the queue, and at the message of each that the log still has."""
    with ExitStack() as opened:
        log = _Log(task.log, opened)
        matched = [(at, at + 1) for at in _right_units(task.queue, log)]
    report = check_queue(replace(task.queue, matched=matched))
    report.findings = [
        replace(one, severity=Severity.NOTE, remedy=_LEFT) for one in report.findings
    ]
    return report


def is_unit_of(
    message: Message, name: str, queue_id: int, offset: int, tags: int, *, any_tags: bool
) -> bool:
    """Whether the unit at ``offset`` of a queue is one that ``message`` has there.

    Args:
        any_tags: the code of the tags is not looked at, for it may be an address instead.
    """
    properties = message.parsed_properties()
    if not (any_tags or message.topic == DELAY_TOPIC or tags == _tags_code(properties)):
        return False
    if (message.topic, message.queue_id, message.queue_offset) == (
        name, queue_id, offset,
    ):  # fmt: skip
        return True
    names = properties.get(QUEUES, "").split(_SEPARATOR)
    offsets = properties.get(OFFSETS, "").split(_SEPARATOR)
    # A light queue is always number 0.
    return queue_id in (0, message.queue_id) and (name, str(offset)) in zip(
        names, offsets, strict=False
    )


def _tags_code(properties: Mapping[str, str]) -> int:
    tags = properties.get(TAGS)
    return java_hash(tags) if tags else 0


def _right_units(task: QueueTask, log: _Log) -> Iterator[int]:
    """Queue offsets of the units that are of a message which says so."""
    name, queue_id = task.folder.parent.name, int(task.folder.name)
    family, _ = find_family(
        task.folder, root=task.root, file_size=task.file_size, severity=Severity.NOTE, remedy=""
    )
    has_extensions = (task.root / "consumequeue_ext").is_dir()
    for file in family.files:
        try:
            with open(file.path, "rb") as opened:
                content = opened.read(file.size - file.size % UNIT_SIZE)
        except FileNotFoundError:
            # Deleted since, for the age of its messages.
            continue
        units = np.frombuffer(content[: len(content) // UNIT_SIZE * UNIT_SIZE], UNIT)
        used = np.flatnonzero((units["size"] > 0) & (units["size"] != PREFILL_SIZE))
        for at in used.tolist():
            position, size, tags = units[at].item()
            message = log.message_at(position, size)
            offset = file.start // UNIT_SIZE + at
            if message is not None and is_unit_of(
                message, name, queue_id, offset, tags, any_tags=has_extensions
            ):
                yield offset


class _Log:
    """The files of a log, one of which is open: units of a queue ascend by position."""

    def __init__(self, parts: Sequence[FileFamily], opened: ExitStack) -> None:
        self._parts = parts
        self._path = ""
        self._fd: int | None = None
        opened.callback(self._close)

    def message_at(self, position: int, size: int) -> Message | None:
        """The message there, of that size; None where there is none."""
        for family in self._parts:
            file = family.file_at(position)
            fd = None if file is None else self._opened(file.path)
            if file is None or fd is None:
                continue
            at = position - file.start
            # A unit may say any size, and as much memory would be taken for it.
            if size > file.size - at or os.pread(fd, 4, at) != size.to_bytes(4, "big"):
                return None
            try:
                message = decode_message(memoryview(os.pread(fd, size, at)), check_crc=False)
            except CorruptLogError:
                return None
            return message if message.physical_offset == position else None
        return None

    def _opened(self, path: str) -> int | None:
        if path != self._path:
            self._close()
            # Deleted since, for the age of its messages.
            with suppress(FileNotFoundError):
                self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self._path = path
        return self._fd

    def _close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
        self._fd = None
