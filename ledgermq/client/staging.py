"""Staged batches: rows staged in bulk, which become messages by one commit.

A *sink* writes batches with rising numbers. Who writes a part of one stages its rows with a
``StageWriter``, as packs of many (``wire/staged_pack.py``); nobody sees them. Then somebody commits
what was staged with ``SinkClient.commit``: all of it becomes messages once, whatever dies, and a
batch that is committed already is not taken again, however it was staged.
"""

from __future__ import annotations

import json
import uuid
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ledgermq.client.blocking.broker import Broker
from ledgermq.client.blocking.producer import Producer
from ledgermq.client.broker_connection import BrokerClient
from ledgermq.client.core.address import DEFAULT_ADDRESS
from ledgermq.client.core.results import SendResult
from ledgermq.client.sending.message_options import QueueChoice
from ledgermq.client.sending.outgoing import (
    Body,
    OutgoingMessage,
    check_unique_id,
    topic_bytes,
)
from ledgermq.client.sending.record_encoder import Column, Form, RecordEncoder, RowColumns, Target
from ledgermq.client.sending.send_future import SendFuture
from ledgermq.client.sending.send_pipeline import ProducerOptions
from ledgermq.client.sending.sender import RECORD_AROUND
from ledgermq.formats.records.message_id import UniqueIdMaker
from ledgermq.formats.records.properties import STAGE
from ledgermq.model.errors import MessageIllegalError, ProtocolError
from ledgermq.model.limits import ENTRY_SIZE_MAX, FRAME_RECORDS_MAX, STAGED_TOPIC
from ledgermq.model.names.stages import Stage, check_sink_name
from ledgermq.model.offset_ranges import ranges_of
from ledgermq.wire.send_frame import SendRun
from ledgermq.wire.session import BODY_SIZE_MAX
from ledgermq.wire.staged_pack import encode_pack

PACK_BYTES = 1024 * 1024
PACK_ROWS_MAX = 4_096
UNANSWERED_PACKS = 16
WAIT_MS = 20_000
TIMEOUT_S = 120.0

_STAGED = QueueChoice(STAGED_TOPIC.encode(), 0)

assert PACK_ROWS_MAX <= FRAME_RECORDS_MAX


def flag_column(flags: Sequence[int]) -> memoryview:
    """The flags of rows, as ``RowColumns`` has them.

    Raises:
        MessageIllegalError: one is no signed 32-bit number; ``record`` is its row.
    """
    try:
        return memoryview(array("i", flags))
    except OverflowError as error:
        record, flag = next(
            (row, flag) for row, flag in enumerate(flags) if not -(2**31) <= flag < 2**31
        )
        raise MessageIllegalError(
            "flag is not a signed 32-bit number", record=record, flag=flag
        ) from error


class StagedRows(NamedTuple):
    """What one writer has staged: stored by a majority, and not visible.

    Attributes:
        offsets: of its packs in the staged queue.
    """

    stage: Stage
    offsets: tuple[int, ...]
    rows: int


class Committed(NamedTuple):
    """The answer to a commit; ``rows`` is 0 when the batch was committed before."""

    rows: int
    is_already: bool


class ConsumedQueues(NamedTuple):
    """How far a group has consumed what a batch was made of.

    Attributes:
        queues: by topic and queue id, up to where the batches before have consumed, and up to
            where this one has; None where nothing was consumed before.
    """

    group: str
    queues: Mapping[tuple[str, int], tuple[int | None, int]]

    def by_topic(self) -> dict[str, dict[str, tuple[int | None, int]]]:
        """The queues as a call has them."""
        found: dict[str, dict[str, tuple[int | None, int]]] = {}
        for (topic, queue_id), place in self.queues.items():
            found.setdefault(topic, {})[str(queue_id)] = place
        return found


def staging_producer(
    address: str | Sequence[str], *, name: str = "sink", timeout_s: float = TIMEOUT_S
) -> Producer:
    """A producer for ``StageWriter``: it waits so long for a leader, and compresses nothing.

    Raises:
        ConfigError, NotLeaderError: as from ``Producer``.
    """
    options = ProducerOptions(timeout_s=timeout_s, compress_above=None)
    return Producer(address, name=name, options=options, one_group=True)


class StageWriter:
    """One attempt to stage a part of a batch; used by one thread.

    Invariant: rows of one queue become messages in the order in which they were added.
    """

    def __init__(
        self, producer: Producer, sink: str, batch: int, *, pack_bytes: int = PACK_BYTES
    ) -> None:
        """Nothing is staged; the name of the stage is drawn here.

        Args:
            producer: from ``staging_producer``; it may serve several writers.
            pack_bytes: of a pack at most, and no more than a message may have.

        Raises:
            NotLeaderError: no node answers.
            ProtocolError: the sink's name is none.
        """
        self.stage = Stage(check_sink_name(sink), batch, uuid.uuid4().hex)
        self._producer = producer
        self._properties = {STAGE: self.stage.label}
        form = producer.form()
        self._host_size = form.store_host_size
        limit = min(form.body_size_max, ENTRY_SIZE_MAX - 1_024)
        self._limit = min(pack_bytes, limit)
        host = producer.born_host
        rows_form = Form(0, form.store_host_size, form.body_size_max)
        self._encoder = RecordEncoder(rows_form, born_host=host, ids=UniqueIdMaker(host[0]))
        self._parts: list[bytearray] = []
        self._sizes = array("I")
        self._runs: list[SendRun] = []
        self._size = 0
        self._rows = 0
        self._offsets: list[int] = []
        self._sent: deque[SendFuture[SendResult]] = deque()

    def add(
        self,
        topic: str,
        queue_id: int,
        bodies: Sequence[Body],
        properties: Sequence[bytes],
        flags: Sequence[int] | None = None,
        *,
        unique_ids: Sequence[str | None] | None = None,
        sys_flag: int = 0,
    ) -> None:
        """Stage rows for one queue; waits for room while too much is under way.

        Args:
            properties: of each row, as ``outgoing.properties_bytes`` encodes them.
            flags: of each row; 0 when left out.
            unique_ids: of each row, None where one is to be drawn; all are when left out.
            sys_flag: how the bodies are compressed, as in the log.

        Raises:
            MessageIllegalError: a row breaks a limit; ``record`` is its number among these.
            LedgerError: rows are not staged, or it is not known; the attempt has failed.
        """
        assert len(bodies) == len(properties), (len(bodies), len(properties))
        drawn = bytearray(b"\1" * len(bodies))
        own = list(properties)
        for number, given in enumerate(unique_ids or ()):
            if given is not None:
                own[number] += check_unique_id(given).encode()
                drawn[number] = 0
        rows = RowColumns(Column.of(bodies), Column.of(own), bytes(drawn))
        if flags is not None:
            rows = rows._replace(flags=flag_column(flags))
        self.add_rows(topic, queue_id, rows, sys_flag=sys_flag)

    def add_rows(self, topic: str, queue_id: int, rows: RowColumns, *, sys_flag: int = 0) -> None:
        """Add columns; see ``add``.

        Raises:
            MessageIllegalError: a row breaks a limit; ``record`` is its number among these.
            LedgerError: rows are not staged, or it is not known; the attempt has failed.
        """
        name = topic_bytes(topic)
        environment = RECORD_AROUND + len(name)
        bodies, properties = rows.bodies.bounds, rows.properties.bounds

        def size(first: int, end: int) -> int:
            """Bytes of these rows, or some more."""
            content = bodies[end] - bodies[first] + properties[end] - properties[first]
            return int(content) + environment * (end - first)

        first, count = 0, len(rows.drawn)
        while first < count:
            room = self._limit - self._size
            last = min(count, first + PACK_ROWS_MAX - len(self._sizes))
            begin = first
            end = bisect_right(range(last), room, lo=first, key=lambda row: size(begin, row + 1))
            if end == first:
                if not self._sizes:
                    raise MessageIllegalError(
                        "row is too large to be staged",
                        record=first,
                        size=size(first, first + 1),
                        limit=self._limit,
                        setting="store.max_message_size",
                    )
                self._send()
                continue
            self._encode(Target(name, queue_id, sys_flag=sys_flag), rows, first, end)
            first = end

    def finish(self) -> StagedRows:
        """What is staged, once a majority has all of it.

        Raises:
            LedgerError: rows are not staged, or it is not known; the attempt has failed.
        """
        if self._sizes:
            self._send()
        while self._sent:
            self._take_answer()
        return StagedRows(self.stage, tuple(self._offsets), self._rows)

    def _encode(self, target: Target, rows: RowColumns, first: int, end: int) -> None:
        records, sizes = self._encoder.encode_rows(target, rows, first, end)
        self._parts.append(records)
        self._sizes += sizes
        self._size += len(records)
        last = self._runs[-1] if self._runs else None
        if last is not None and (last.topic, last.queue_id) == (target.topic, target.queue_id):
            self._runs[-1] = last._replace(records=last.records + end - first)
        else:
            self._runs.append(SendRun(end - first, target.queue_id, target.topic))

    def _send(self) -> None:
        payload = b"".join(self._parts)
        pack = encode_pack(self._host_size, self._sizes.tobytes(), self._runs, payload)
        self._rows += len(self._sizes)
        self._parts, self._sizes, self._runs, self._size = [], array("I"), [], 0
        message = OutgoingMessage(pack, properties=self._properties)
        self._sent.append(self._producer.send_to(_STAGED, message))
        if len(self._sent) > UNANSWERED_PACKS:
            self._take_answer()

    def _take_answer(self) -> None:
        self._offsets.append(self._sent.popleft().result().queue_offset)


def commit_arguments(
    staged: Iterable[StagedRows], consumed: ConsumedQueues | None = None
) -> dict[str, object]:
    """What a commit says of its batch.

    Raises:
        MessageIllegalError: it is too much for one call.
    """
    stages = [[one.stage.name, ranges_of(one.offsets)] for one in staged if one.offsets]
    arguments: dict[str, object] = {"stages": stages}
    if consumed is not None:
        arguments |= {"group": consumed.group, "consumed": consumed.by_topic()}
    size = len(json.dumps(arguments))
    if size > BODY_SIZE_MAX - 4_096:
        raise MessageIllegalError(
            "batch has too many packs for one commit: make larger packs, or smaller batches",
            size=size,
            limit=BODY_SIZE_MAX - 4_096,
        )
    return arguments


class SinkClient(BrokerClient):
    """Commits and drops what was staged; one thread at a time may ask."""

    def __init__(
        self,
        address: str | Sequence[str] = DEFAULT_ADDRESS,
        *,
        name: str = "sink",
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """A connection, which is made with the first call; see ``BrokerClient``."""
        super().__init__(address, name=name, timeout_s=timeout_s)

    def commit(
        self,
        sink: str,
        batch: int,
        staged: Iterable[StagedRows],
        *,
        is_once: bool = False,
        consumed: ConsumedQueues | None = None,
    ) -> Committed:
        """Have what was staged become messages; durable on return, and visible soon.

        It may be asked again: a batch that is committed is not taken again.

        Args:
            batch: higher than all that the sink has committed before, else it counts as one of
                them, and what was staged for it is dropped.
            staged: in the order in which it becomes messages.
            is_once: the sink has no other batch, and need not be remembered for long.
            consumed: a group's offsets, committed by the same command: whoever asks finds both or
                neither. Not looked at when the batch was committed before.

        Raises:
            StagedUnknownError: rows are not staged any more; nothing is committed.
            MessageIllegalError: the group is not where the batch begins, or a queue ends before
                where it is to be; nothing is committed.
            OutcomeUnknownError: no answer; ask again.
            LedgerError: refused; nothing is committed.
        """
        arguments = commit_arguments(staged, consumed)
        verb = "sink_commit" if consumed is None else "sink_commit_consumed"
        answer = self._call(verb, sink=sink, batch=batch, once=is_once, **arguments)
        rows, already = answer.get("rows"), answer.get("already")
        if not isinstance(rows, int) or not isinstance(already, bool):
            raise ProtocolError("not the answer to a commit", found=str(answer)[:200])
        return Committed(0 if already else rows, already)

    def wait(self, sink: str, batch: int) -> None:
        """Return once all rows of a batch are messages.

        Raises:
            StagedUnknownError: it is not committed, or not remembered.
            TimedOutError: no answer; the rows will be messages all the same.
        """
        while not self._call("sink_wait", sink=sink, batch=batch, wait_ms=WAIT_MS).get("done"):
            pass

    def abort(self, sink: str, batch: int, staged: Iterable[StagedRows] | None = None) -> None:
        """Drop what was staged, and is not committed; without ``staged`` all of the batch.

        Raises:
            LedgerError: no answer; it is dropped after its time.
        """
        names = [] if staged is None else [one.stage.name for one in staged]
        if names or staged is None:
            self._call("sink_abort", sink=sink, batch=batch, stages=names)

    def _call(self, verb: str, **arguments: object) -> dict[str, object]:
        broker: Broker = self._broker
        timeout_s = max(broker.timeout_s, WAIT_MS / 1_000 + 10)
        return broker.call(verb, timeout_s, **arguments)
