"""Source on a running cluster: pulls over ZeroMQ, answers made columns whole.

The broker shows nothing that is not committed and dispatched. Queue offsets, and with them rows,
are those of the store directories of any member.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from ledgermq.client.blocking.broker import Broker
from ledgermq.client.broker_connection import connect_broker
from ledgermq.client.core.address import parse_addresses
from ledgermq.client.core.requests import Request, call_request, call_result
from ledgermq.client.reading.pull_pipeline import pull_request
from ledgermq.formats.records.message import PHYSICAL_OFFSET_AT, TIMESTAMP, store_fields_at
from ledgermq.model.errors import TimedOutError, TopicUnknownError
from ledgermq.pipeline.columns.queued_records import QueuedRecords
from ledgermq.pipeline.columns.record_columns import RecordBlock
from ledgermq.pipeline.queue_ranges import MessageRange, Queue, Queued
from ledgermq.pipeline.source.data_loss import report_loss
from ledgermq.pipeline.source.file_source import BATCH_ROWS, first_offset
from ledgermq.pipeline.source.split_plan import split_by_count, split_count
from ledgermq.store.files.mapped_files import VanishedError
from ledgermq.verbs.answers import integer
from ledgermq.wire.pull_frame import Pull, Pulled, PullStatus, decode_pulled

BATCH_BYTES = 16 * 1024 * 1024
PULL_BYTES = 8 * 1024 * 1024
HOLD_MS = 1_000
"""Longest that a node may wait for what it has not dispatched yet, as after a change of leaders."""

MESSAGE_SIZE = 1_024
"""A message is taken to be so large when tasks are planned: nodes do not tell."""

CALLS_AT_ONCE = 1_000


class NodeSource:
    """The cluster at ``addresses``."""

    def __init__(
        self, addresses: Sequence[str], *, timeout_ms: int, from_followers: bool = False
    ) -> None:
        """Connect with the first question.

        Args:
            timeout_ms: how long it may be away.
            from_followers: whether old messages come from the follower that the leader suggests.

        Raises:
            ConfigError: an address cannot be one.
        """
        parse_addresses(addresses)
        self._connection = connect_broker(addresses, name="spark", timeout_s=timeout_ms / 1_000)
        self._broker: Broker = self._connection.__enter__()
        self._timeout_s = timeout_ms / 1_000
        self._from_followers = from_followers

    def refresh(self) -> None:
        """Nothing is remembered; each answer is of now."""

    def close(self) -> None:
        """Say goodbye to the nodes."""
        self._connection.__exit__(None, None, None)

    def queues(self) -> list[Queue]:
        """All queues, those of the system, too.

        Raises:
            NotLeaderError: no broker answers.
        """
        rows = self._broker.topics()
        return sorted((row.topic, number) for row in rows for number in range(row.read_queues))

    def consumed(self, group: str, queues: set[Queue]) -> dict[Queue, int]:
        """Where ``group`` is in those of ``queues`` of which it has consumed something.

        Raises:
            LedgerError: the broker refused, or did not answer.
        """
        found: dict[Queue, int] = {}
        for topic in sorted({topic for topic, _ in queues}):
            offsets = self._broker.group_offset(group, topic)
            found |= {(topic, queue_id): offset for queue_id, offset in offsets.items()}
        return {queue: offset for queue, offset in found.items() if queue in queues}

    def bounds(self, queues: Iterable[Queue]) -> dict[Queue, MessageRange]:
        """What each of ``queues`` holds; one whose topic has gone is left out.

        Raises:
            LedgerError: the broker refused, or did not answer.
        """
        wanted = list(queues)
        found: dict[Queue, MessageRange] = {}
        for first in range(0, len(wanted), CALLS_AT_ONCE):
            part = wanted[first : first + CALLS_AT_ONCE]
            requests = [call_request("queue", {"topic": t, "queue": n}) for t, n in part]
            self._broker.wait_all(requests)
            for queue, request in zip(part, requests, strict=True):
                if isinstance(request.error, TopicUnknownError):
                    continue
                result = call_result(request)
                found[queue] = MessageRange(*queue, integer(result, "min"), integer(result, "max"))
        return found

    def offset_at_time(self, range_: MessageRange, timestamp_ms: int) -> int:
        """Queue offset of the first message of a range that was stored at that time or later."""

        def is_older(offset: int) -> bool:
            pulled, records = self._answer(self._ask(range_, offset, offset + 1))
            at = int(pulled.starts[0]) if pulled.status is PullStatus.FOUND else -1
            # What has been deleted meanwhile was older, too.
            return at < 0 or _store_time(records, at) < timestamp_ms

        return first_offset(range_, is_older)

    def position_of(self, range_: MessageRange, offset: int) -> int:
        """Where a message that a range has stands in the log; behind it, where it is gone."""
        pulled, records = self._answer(self._ask(range_, offset, offset + 1))
        if pulled.status is not PullStatus.FOUND:
            raise VanishedError(
                "message was deleted", topic=range_.topic, queueId=range_.queue_id, offset=offset
            )
        at = int(pulled.starts[0]) + PHYSICAL_OFFSET_AT
        return int.from_bytes(records[at : at + 8], "big")

    def wait_message(self, range_: MessageRange) -> bool:
        """Whether a message came behind a range within ``HOLD_MS``; waits for it."""
        pulled, _ = self._answer(self._ask(range_, range_.end, range_.end + 1))
        return pulled.status is PullStatus.FOUND

    def queued(self) -> Queued | None:
        """Position up to which the leader's queues have the log.

        Raises:
            LedgerError: the broker refused, or did not answer.
        """
        answer = self._broker.call("archive_list")
        return Queued(str(answer.get("node")), integer(answer, "queued"))

    def plan(
        self, ranges: Sequence[MessageRange], *, split_bytes: int, splits_min: int
    ) -> list[tuple[MessageRange, ...]]:
        """``ranges`` divided into parts of as many messages."""
        messages = sum(range_.end - range_.first for range_ in ranges)
        if not messages:
            return []
        count = split_count(
            messages * MESSAGE_SIZE,
            split_bytes=split_bytes,
            splits_min=splits_min,
            messages=messages,
        )
        return split_by_count(ranges, count)

    def read(
        self, ranges: Sequence[MessageRange], *, fail_on_data_loss: bool
    ) -> Iterator[QueuedRecords]:
        """The messages of ``ranges``, queue by queue, some thousands at once.

        Raises:
            DataLossError: some were deleted meanwhile, and that is to fail.
            TimedOutError: the cluster does not have them, for as long as it may be away.
        """
        for number, range_ in enumerate(ranges):
            answers = _Answers()
            for pulled, records in self._answers(range_, fail=fail_on_data_loss):
                if answers.rows and answers.header_size != pulled.entry_header_size:
                    # A store that was upgraded has entries from its division on.
                    yield _joined(answers, ranges, number)
                    answers = _Answers()
                answers.add(pulled, records)
                if answers.rows >= BATCH_ROWS or answers.size >= BATCH_BYTES:
                    yield _joined(answers, ranges, number)
                    answers = _Answers()
            if answers.rows:
                yield _joined(answers, ranges, number)

    def _answers(self, range_: MessageRange, *, fail: bool) -> Iterator[tuple[Pulled, memoryview]]:
        """Answers with messages of a range; the next question is under way while one is used."""
        offset, node = range_.first, ""
        progress = time.monotonic()
        request = self._ask(range_, offset, range_.end)
        while offset < range_.end:
            pulled, records = self._answer(request)
            offset_before, offset = offset, self._behind(range_, offset, pulled, fail=fail)
            if offset > offset_before:
                progress = time.monotonic()
            elif time.monotonic() - progress > self._timeout_s:
                raise TimedOutError(
                    "cluster does not have the messages that it said it had",
                    topic=range_.topic,
                    queueId=range_.queue_id,
                    offset=offset,
                    end=pulled.end,
                )
            found = pulled.status is PullStatus.FOUND
            # What a follower lacks is asked the leader.
            node = pulled.suggested if found and self._from_followers else ""
            if offset < range_.end:
                request = self._ask(range_, offset, range_.end, node=node)
            if found:
                yield pulled, records

    def _behind(self, range_: MessageRange, offset: int, pulled: Pulled, *, fail: bool) -> int:
        """Where an answer ends; further on, where what was asked for has been deleted."""
        if pulled.status is PullStatus.FOUND:
            return min(pulled.next_offset, range_.end)
        if pulled.begin > offset:
            oldest = min(pulled.begin, range_.end)
            report_loss(
                fail=fail,
                topic=range_.topic,
                queueId=range_.queue_id,
                wanted=offset,
                oldest=pulled.begin,
                missing=oldest - offset,
            )
            return oldest
        return offset

    def _ask(self, range_: MessageRange, offset: int, end: int, *, node: str = "") -> Request:
        pull = Pull(
            0,
            range_.topic,
            range_.queue_id,
            offset,
            min(end - offset, BATCH_ROWS),
            PULL_BYTES,
            # A follower says at once what it lacks.
            0 if node else HOLD_MS,
            with_headers=True,
        )
        link = self._broker.requests.link
        deadline = time.monotonic() + self._timeout_s
        request = pull_request(pull, link, deadline=deadline, node=node)
        self._broker.requests.ask(request)
        self._broker.requests.advance(time.monotonic())
        return request

    def _answer(self, request: Request) -> tuple[Pulled, memoryview]:
        self._broker.wait_asked(request)
        parts = request.answer()
        records = memoryview(parts[1]) if len(parts) > 1 else memoryview(b"")
        return decode_pulled(parts[0], records_size=len(records)), records


class _Answers:
    """Answers of one queue that become one batch; entries' headers are before all or none."""

    __slots__ = ("header_size", "parts", "rows", "size")

    def __init__(self) -> None:
        self.parts: list[tuple[Pulled, memoryview]] = []
        self.rows = 0
        self.size = 0
        self.header_size = 0

    def add(self, pulled: Pulled, records: memoryview) -> None:
        """Take one more."""
        self.parts.append((pulled, records))
        self.rows += len(pulled.starts)
        self.size += len(records)
        self.header_size = pulled.entry_header_size


def _joined(answers: _Answers, ranges: Sequence[MessageRange], number: int) -> QueuedRecords:
    bases = np.cumsum([0, *(len(records) for _, records in answers.parts)])
    parts = [(base, pulled) for base, (pulled, _) in zip(bases, answers.parts, strict=False)]
    starts = [np.frombuffer(pulled.starts, np.uint32) + base for base, pulled in parts]
    sizes = [np.frombuffer(pulled.sizes, np.uint32) for _, pulled in parts]
    records = answers.parts[0][1]
    if len(answers.parts) > 1:
        records = memoryview(b"".join(records for _, records in answers.parts))
    found = RecordBlock(
        view=records.cast("B"),
        base=None,
        starts=np.concatenate(starts).astype(np.int64),
        sizes=np.concatenate(sizes).astype(np.int64),
        header_size=answers.header_size,
        file=f"{ranges[number].topic}/{ranges[number].queue_id}",
    )
    return QueuedRecords(found, ranges, np.full(answers.rows, number, np.int64))


def _store_time(records: memoryview, at: int) -> int:
    """Store time of the message at ``at``."""
    time_ms: int = TIMESTAMP.unpack_from(records, at + store_fields_at(records[at:])[0])[0]
    return time_ms
