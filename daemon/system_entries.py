"""Records that the node writes for itself, on the reserved system topic."""

from __future__ import annotations

import json

from ledgermq.model.ids import NodeId, Term
from ledgermq.model.limits import SYSTEM_TOPIC
from ledgermq.model.settings import Settings
from ledgermq.store.log_writer import ENTRY_HEADER_SIZE
from ledgermq.store.message import Message, encode_message
from ledgermq.store.properties import encode_properties

SYSTEM_QUEUE_ID = 0
TERM_BEGIN_TAG = "term-begin"
MEMBERSHIP_TAG = "membership"


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


def _record(tag: str, body: bytes, settings: Settings, *, now_ms: int) -> bytes:
    address = (settings.node.broker_ip, settings.node.listen_port)
    message = Message(
        topic=SYSTEM_TOPIC,
        queue_id=SYSTEM_QUEUE_ID,
        body=body,
        properties=encode_properties({"TAGS": tag}),
        born_timestamp=now_ms,
        born_host=address,
        store_host=address,
    )
    return bytes(ENTRY_HEADER_SIZE) + encode_message(message)
