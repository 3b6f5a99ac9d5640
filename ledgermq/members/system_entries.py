"""System entries: records that the node writes for itself, on the reserved system topic."""

from __future__ import annotations

import json
from collections.abc import Mapping

from ledgermq.formats.dledger_entry import HEADER_SIZE as ENTRY_HEADER_SIZE
from ledgermq.formats.records.message import Message, encode_message
from ledgermq.formats.records.properties import encode_properties
from ledgermq.model.config.settings import LogKind, Settings
from ledgermq.model.ids import NodeId, Term
from ledgermq.model.limits import RECEIPTS_TOPIC, SYSTEM_TOPIC
from ledgermq.rules.state.state_commands import (
    PART_PROPERTY,
    SNAPSHOT_TAG,
    STATE_QUEUE_ID,
    STATE_TAG,
    Part,
)

SYSTEM_QUEUE_ID = 0
TERM_BEGIN_TAG = "term-begin"
MEMBERSHIP_TAG = "membership"
CHECKPOINT_TAG = "checkpoint"


def no_op_record(term: Term, node: NodeId, settings: Settings, *, now_ms: int) -> bytes:
    """The entry that begins ``term``, with its entry header hole, as a client would send it.

    Raft needs an entry of the new term to commit those of older ones by (paper, section 5.4.2).
    To RocketMQ it is an ordinary message of the system topic.

    Args:
        now_ms: epoch milliseconds.
    """
    body = json.dumps({"term": term, "leader": node}).encode()
    return _record(TERM_BEGIN_TAG, body, settings, now_ms=now_ms)


def membership_record(roster: bytes, settings: Settings, *, now_ms: int) -> bytes:
    """The entry that says who belongs to the group, with its entry header hole."""
    return _record(MEMBERSHIP_TAG, roster, settings, now_ms=now_ms)


def command_record(body: bytes, settings: Settings, *, now_ms: int) -> bytes:
    """A command of the broker's state (``broker/state_commands``), with its entry header hole."""
    return _record(STATE_TAG, body, settings, now_ms=now_ms, queue_id=STATE_QUEUE_ID)


def snapshot_record(part: Part, settings: Settings, *, now_ms: int) -> bytes:
    """A part of a snapshot of the broker's state, with its entry header hole."""
    return _record(
        SNAPSHOT_TAG,
        part.content,
        settings,
        now_ms=now_ms,
        queue_id=STATE_QUEUE_ID,
        properties={PART_PROPERTY: part.label},
    )


def checkpoint_record(body: bytes, settings: Settings, *, now_ms: int) -> bytes:
    """A checkpoint of receipts (``formats/receipts/checkpoint.py``), with its entry header hole."""
    return _record(CHECKPOINT_TAG, body, settings, now_ms=now_ms, topic=RECEIPTS_TOPIC)


def _record(
    tag: str,
    body: bytes,
    settings: Settings,
    *,
    now_ms: int,
    queue_id: int = SYSTEM_QUEUE_ID,
    properties: Mapping[str, str] | None = None,
    topic: str = SYSTEM_TOPIC,
) -> bytes:
    address = (settings.node.broker_ip, settings.node.listen_port)
    message = Message(
        topic=topic,
        queue_id=queue_id,
        body=body,
        properties=encode_properties({"TAGS": tag, **(properties or {})}),
        born_timestamp=now_ms,
        born_host=address,
        store_host=address,
    )
    hole = ENTRY_HEADER_SIZE if settings.store.log is LogKind.DLEDGER else 0
    return bytes(hole) + encode_message(message)
