"""A log of any topics in memory, as the broker reads it, and the writer's inbox before it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ledgermq.formats.arrays import UNIT
from ledgermq.formats.records.message import Message, decode_message, encode_message
from ledgermq.ipc.orders import PackRows, ProposeState, parse
from ledgermq.model.names.queue_name import QueueName
from ledgermq.rules.messages.pull_rules import ReadableRange
from ledgermq.store.record_parts import RecordParts
from ledgermq.wire.staged_pack import decode_pack

HOLE = 48


@dataclass(frozen=True)
class MemoryFile:
    """What ``LogView.file_of`` tells of a file."""

    start: int
    end: int
    header_size: int


class MemoryLog:
    """Files of ``file_size`` bytes; records are stamped with their place as a writer does it."""

    def __init__(self, file_size: int = 1 << 20) -> None:
        self.log = self
        self.file_size = file_size
        self.records_at: dict[int, bytes] = {}
        self.queues: dict[QueueName, list[int]] = {}
        self.orders: list[bytes] = []
        self._taken: list[ProposeState] = []
        self.end = 0
        self.first_position = 0
        self.is_down = False
        self.is_ready = True
        self.of_batches: frozenset[str] = frozenset()
        self.hidden: set[QueueName] = set()
        self.store_timestamp = 1_000

    # As the broker reads it.

    def bounds(self, queue: QueueName) -> ReadableRange:
        return ReadableRange(0, len(self.queues.get(queue, ())), 0)

    def queue_ids(self, topic: str) -> list[int]:
        return sorted(queue.queue_id for queue in self.queues if queue.topic == topic)

    def topics(self) -> list[str]:
        return sorted({queue.topic for queue in self.queues})

    def topics_changed_ns(self) -> int:
        return len(self.queues)

    def has_all_committed(self) -> bool:
        return True

    def has_caught_up(self) -> bool:
        return True

    def store_time(self, queue: QueueName, offset: int) -> int:
        return self.store_timestamp

    def first_since(self, queue: QueueName, timestamp_ms: int) -> int:
        return 0

    def units(self, queue: QueueName, offset: int, count: int) -> Any:
        in_queue = [] if queue in self.hidden else self.queues.get(queue, [])
        found = in_queue[offset : offset + count]
        units = np.zeros(len(found), UNIT)
        units["position"] = found
        units["size"] = [len(self.records_at[at]) for at in found]
        return units

    def records(self, positions: Any, sizes: Any, *, with_headers: bool = False) -> RecordParts:
        assert not with_headers
        payload = b"".join(self.records_at[int(position)] for position in positions)
        starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
        return RecordParts(
            payload, starts.astype(np.uint32), sizes.astype(np.uint32), int(sizes.sum())
        )

    def record_at(self, position: int) -> memoryview | None:
        record = self.records_at.get(position)
        return None if record is None else memoryview(record)

    def file_of(self, position: int) -> MemoryFile | None:
        if position >= self.end:
            return None
        start = position - position % self.file_size
        return MemoryFile(start, start + self.file_size, HOLE)

    # As it rings the writer.

    def ring(self) -> None:
        return

    def send(self, order: bytes) -> bool:
        if not self.is_down:
            self.orders.append(order)
        return not self.is_down

    def close(self) -> None:
        return

    # What a test does.

    def put(self, record: bytes) -> Message:
        """Append a record that has no hole; how it is stored."""
        message = decode_message(memoryview(record))
        queue = QueueName(message.topic, message.queue_id)
        if self.end % self.file_size + HOLE + len(record) + 8 > self.file_size:
            self.end += self.file_size - self.end % self.file_size
        positions = self.queues.setdefault(queue, [])
        stamped = replace(
            message,
            body=bytes(message.body),
            queue_offset=len(positions),
            physical_offset=self.end + HOLE,
            store_timestamp=self.store_timestamp,
        )
        positions.append(self.end + HOLE)
        self.records_at[self.end + HOLE] = encode_message(stamped)
        self.end += HOLE + len(record)
        return stamped

    def take(self, count: int | None = None) -> int:
        """Have the log the first ``count`` records of the oldest proposal; how many it had."""
        proposal = proposal_of(self.orders.pop(0))
        self._taken.append(proposal)
        records = self.records_of(proposal)
        for record in records[:count]:
            self.put(record)
        return len(records)

    def orders_of(self, act: Callable[[], object]) -> list[ProposeState]:
        """The proposals that were taken while ``act`` ran."""
        before = len(self._taken)
        act()
        return self._taken[before:]

    def records_of(self, proposal: ProposeState) -> list[bytes]:
        """What the writer appends, without holes: the rows of packs as the log has them."""
        found: list[bytes] = []
        for part in proposal.records:
            if isinstance(part, PackRows):
                message = decode_message(memoryview(self.records_at[part.position]))
                rows = [bytes(row) for row in decode_pack(message.body).records()]
                assert len(rows) == part.rows
                found += rows
            else:
                found.append(part[HOLE:])
        return found

    def messages(self, topic: str, queue_id: int = 0) -> list[Message]:
        """What a queue has."""
        positions = self.queues.get(QueueName(topic, queue_id), [])
        return [decode_message(memoryview(self.records_at[at])) for at in positions]


def proposal_of(message: bytes) -> ProposeState:
    """The broker's proposal in an order that it sent to the writer."""
    order = parse(message)
    assert isinstance(order, ProposeState)
    return order


def root_of(directory: Path) -> Path:
    """A store's folder with ``ledgermq`` in it."""
    (directory / "ledgermq").mkdir(parents=True)
    return directory
