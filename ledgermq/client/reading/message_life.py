"""Life of a message: what its records, copies and traces tell, in order of time.

The log tells when a message was born and stored, and when a copy of it was there for its group
again, or was given up. All else is told by clients that write traces (``TraceTopic``, or RocketMQ's
clients with theirs switched on), by their own clocks.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from ledgermq.client.core.received import ReceivedMessage
from ledgermq.formats.records.trace_record import (
    STATE_COMMIT,
    TracedDelivery,
    TracedEnd,
    TracedSend,
    TraceRecord,
    traces_naming,
)
from ledgermq.hosts.host_name import host_and_port
from ledgermq.model.errors import LedgerError
from ledgermq.model.names.group_topics import DEAD_LETTER_PREFIX

TRACED_EVENTS_MAX = 1_000
TRACED_GROUPS_MAX = 100
TRACED_RECORDS_MAX = 10_000
TRACED_SIZE_MAX = 16 * 1024 * 1024
"""Most events and groups that are taken from traces, records that are read for them, and bytes of
all trace messages once they are decompressed: whoever the broker knows may write what he likes
there.
"""


class LifeStage(StrEnum):
    """What happened to a message."""

    BORN = "born"
    SENT = "sent"
    SEND_FAILED = "send failed"
    STORED = "stored"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    DELIVERED = "delivered"
    PROCESSED = "processed"
    FAILED = "failed"
    GIVEN_BACK = "given back"
    DEAD = "dead"


_ORDER = {stage: number for number, stage in enumerate(LifeStage)}


class LifeEvent(NamedTuple):
    """One thing that happened.

    Attributes:
        time: epoch ms, by the clock of ``host``.
        by: producer or consumer group; the topic where it was stored.
        host: who says so: address of a client, or of the node that stored it.
        cost_ms: how long that took, if it is told.
        retries: how often the message had been given back.
    """

    time: int
    stage: LifeStage
    by: str
    host: str
    cost_ms: int | None = None
    retries: int | None = None


class MessageLife(NamedTuple):
    """What is known of a message.

    Attributes:
        traces_fault: why traces are missing: the trace topic may not be read, or has too many;
            empty when all are there that were written.
    """

    events: list[LifeEvent]
    traces_fault: str


def traced_id(message: ReceivedMessage) -> str:
    """The id that clients name a message by in their traces."""
    return message.unique_id or message.offset_message_id


class TracedEvents(NamedTuple):
    """What traces tell of one message.

    Attributes:
        fault: why some are missing, empty when none is.
    """

    events: list[LifeEvent]
    fault: str

    @property
    def groups(self) -> set[str]:
        """The consumer groups that are told of as having been given the message."""
        stages = (LifeStage.DELIVERED, LifeStage.PROCESSED, LifeStage.FAILED)
        groups = {event.by for event in self.events if event.stage in stages}
        return set(sorted(groups)[:TRACED_GROUPS_MAX])


def traced_events(id_: str, traces: Iterable[ReceivedMessage]) -> TracedEvents:
    """What trace messages tell of the message with an id; no more than the limits above of them."""
    events: list[LifeEvent] = []
    left, records = TRACED_SIZE_MAX, 0
    for trace in traces:
        try:
            body, is_whole = trace.body_start(left)
            left -= len(body)
            host = host_and_port(*trace.born_host)
            for record in traces_naming(memoryview(body), id_):
                records += 1
                if records > TRACED_RECORDS_MAX:
                    return TracedEvents(events, f"more than {TRACED_RECORDS_MAX} records")
                if record.id != id_:
                    continue
                if len(events) == TRACED_EVENTS_MAX:
                    text = f"more than {TRACED_EVENTS_MAX} events: the others are left out"
                    return TracedEvents(events, text)
                events.append(_event(record, host, trace.born_timestamp))
        except LedgerError:
            continue
        if not is_whole:
            return TracedEvents(events, f"traces of more than {TRACED_SIZE_MAX} bytes")
    return TracedEvents(events, "")


def life_of(
    message: ReceivedMessage, copied: Iterable[LifeEvent], traced: TracedEvents
) -> MessageLife:
    """The life of ``message``.

    Args:
        copied: ``copy_event`` of its copies in retry topics, and among dead letters.
    """
    born = LifeEvent(
        message.born_timestamp, LifeStage.BORN, message.topic, host_and_port(*message.born_host)
    )
    events = [born, _stored(message), *copied, *traced.events]
    events.sort(key=lambda event: (event.time, _ORDER[event.stage]))
    return MessageLife(events, traced.fault)


def _stored(message: ReceivedMessage) -> LifeEvent:
    host = host_and_port(*message.store_host)
    return LifeEvent(message.store_timestamp, LifeStage.STORED, message.stored_topic, host)


def copy_event(copy: ReceivedMessage) -> LifeEvent:
    """What a copy of a message in a retry topic, or among dead letters, tells."""
    topic = copy.stored_topic
    is_dead = topic.startswith(DEAD_LETTER_PREFIX)
    stage = LifeStage.DEAD if is_dead else LifeStage.GIVEN_BACK
    host = host_and_port(*copy.store_host)
    return LifeEvent(copy.store_timestamp, stage, topic, host, retries=copy.reconsume_times)


def _event(record: TraceRecord, host: str, told_at: int) -> LifeEvent:
    if isinstance(record, TracedSend):
        stage = LifeStage.SENT if record.is_success else LifeStage.SEND_FAILED
        return LifeEvent(record.time, stage, record.group, host, record.cost)
    if isinstance(record, TracedDelivery):
        stage = LifeStage.DELIVERED
        return LifeEvent(record.time, stage, record.group, host, retries=record.retries)
    if isinstance(record, TracedEnd):
        is_commit = record.state == STATE_COMMIT
        stage = LifeStage.COMMITTED if is_commit else LifeStage.ROLLED_BACK
        return LifeEvent(record.time, stage, record.group, host)
    stage = LifeStage.PROCESSED if record.is_success else LifeStage.FAILED
    # Old clients do not say when.
    return LifeEvent(record.time or told_at, stage, record.group, host, record.cost)
