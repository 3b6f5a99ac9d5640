"""Life of a message: what its records, copies and traces tell, in order of time.

The log tells when a message was born and stored, and when a copy of it was there for its group
again, or was given up. All else is told by clients that write traces (``TraceTopic``, or RocketMQ's
clients with theirs switched on), by their own clocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import islice
from typing import NamedTuple

from ledgermq.client.core.received import ReceivedMessage
from ledgermq.formats.records.trace_record import (
    STATE_COMMIT,
    TracedDelivery,
    TracedEnd,
    TracedSend,
    TraceRecord,
    decode_traces,
)
from ledgermq.hosts.host_name import host_and_port
from ledgermq.model.errors import LedgerError
from ledgermq.model.names.group_topics import DEAD_LETTER_PREFIX

TRACED_EVENTS_MAX = 1_000
TRACED_GROUPS_MAX = 100
"""Most events, and groups, that are taken from traces: whoever the broker knows may write what
he likes there.
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


def groups_in(traces: Sequence[ReceivedMessage], id_: str) -> set[str]:
    """The consumer groups that trace messages tell of as having been given a message."""
    told = islice(_all_traced(id_, traces), TRACED_EVENTS_MAX)
    stages = (LifeStage.DELIVERED, LifeStage.PROCESSED, LifeStage.FAILED)
    groups = {event.by for event in told if event.stage in stages}
    return set(sorted(groups)[:TRACED_GROUPS_MAX])


def life_of(
    message: ReceivedMessage,
    copies: Sequence[ReceivedMessage],
    traces: Sequence[ReceivedMessage],
    fault: str = "",
) -> MessageLife:
    """The life of ``message``.

    Args:
        copies: the same message in retry topics, and among dead letters.
        traces: messages of the trace topic that are found by its id.
    """
    born = LifeEvent(
        message.born_timestamp, LifeStage.BORN, message.topic, host_and_port(*message.born_host)
    )
    events = [born, _stored(message), *map(_copied, copies)]
    told = list(islice(_all_traced(traced_id(message), traces), TRACED_EVENTS_MAX + 1))
    if len(told) > TRACED_EVENTS_MAX:
        fault = f"more than {TRACED_EVENTS_MAX} events: the others are left out"
    events += told[:TRACED_EVENTS_MAX]
    events.sort(key=lambda event: (event.time, _ORDER[event.stage]))
    return MessageLife(events, fault)


def _stored(message: ReceivedMessage) -> LifeEvent:
    host = host_and_port(*message.store_host)
    return LifeEvent(message.store_timestamp, LifeStage.STORED, message.stored_topic, host)


def _copied(copy: ReceivedMessage) -> LifeEvent:
    topic = copy.stored_topic
    is_dead = topic.startswith(DEAD_LETTER_PREFIX)
    stage = LifeStage.DEAD if is_dead else LifeStage.GIVEN_BACK
    host = host_and_port(*copy.store_host)
    return LifeEvent(copy.store_timestamp, stage, topic, host, retries=copy.reconsume_times)


def _all_traced(id_: str, traces: Sequence[ReceivedMessage]) -> Iterator[LifeEvent]:
    for trace in traces:
        yield from _traced(id_, trace)


def _traced(id_: str, trace: ReceivedMessage) -> Iterator[LifeEvent]:
    try:
        records = decode_traces(trace.body)
    except LedgerError:
        return
    host = host_and_port(*trace.born_host)
    for record in records:
        if record.id == id_:
            yield _event(record, host, trace.born_timestamp)


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
