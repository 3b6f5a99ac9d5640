"""Request and reply messages with RocketMQ's properties, over the cluster's reply topic.

A request is a message of any topic that names who asks (``REPLY_TO_CLIENT``), the request
(``CORRELATION_ID``), and for how long the answer is of use (``TTL``, ms). A reply is a message of
``CLUSTER_REPLY_TOPIC`` that repeats them. Its tag is the name of who asks: so a node hands each
asker its own replies alone.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Mapping
from typing import NamedTuple

from ledgermq.client.core.received import ReceivedMessage
from ledgermq.formats.records.properties import CLUSTER, REPLY_TO_CLIENT
from ledgermq.model.errors import MessageIllegalError, TimedOutError

CORRELATION_ID = "CORRELATION_ID"
TTL = "TTL"
MESSAGE_TYPE = "MSG_TYPE"
REPLY = "reply"
REPLY_TOPIC_SUFFIX = "_REPLY_TOPIC"

REQUEST_TIMEOUT_S = 3.0
"""RocketMQ's time for a request when nothing is said."""

REQUEST_TIMEOUT_S_MAX = 86_400.0

_OWN = frozenset({CORRELATION_ID, REPLY_TO_CLIENT, TTL, MESSAGE_TYPE})


class ReplyTarget(NamedTuple):
    """Where the reply to a message goes, and what it has to carry."""

    topic: str
    tag: str
    properties: dict[str, str]


def reply_topic(cluster: str) -> str:
    """The topic that has the replies of a cluster."""
    return cluster + REPLY_TOPIC_SUFFIX


def client_id() -> str:
    """A name for who asks, which nobody else has."""
    return f"{os.getpid()}@{uuid.uuid4().hex}"


def request_properties(
    properties: Mapping[str, str] | None, *, correlation_id: str, client: str, timeout_s: float
) -> dict[str, str]:
    """The properties of a request.

    Raises:
        MessageIllegalError: ``properties`` has one of them, or the time is none.
    """
    given = check_own(properties)
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float):
        raise MessageIllegalError("timeout of a request is no number of seconds", timeout=timeout_s)
    if not 0 < timeout_s <= REQUEST_TIMEOUT_S_MAX:
        raise MessageIllegalError(
            "timeout of a request out of range", timeout_s=timeout_s, limit=REQUEST_TIMEOUT_S_MAX
        )
    milliseconds = max(1, round(timeout_s * 1_000))
    return given | {CORRELATION_ID: correlation_id, REPLY_TO_CLIENT: client, TTL: str(milliseconds)}


def reply_target(
    request: ReceivedMessage, properties: Mapping[str, str] | None, *, cluster: str
) -> ReplyTarget:
    """Where the reply to ``request`` goes.

    Args:
        properties: the application's own of the reply.
        cluster: the one that is replied to, unless the request tells its own.

    Raises:
        MessageIllegalError: the message asks for no reply, or ``properties`` has one of ours.
    """
    asked = request.properties
    client, correlation = asked.get(REPLY_TO_CLIENT), asked.get(CORRELATION_ID)
    if not client or not correlation:
        raise MessageIllegalError(
            "message asks for no reply",
            topic=request.topic,
            queue_offset=request.queue_offset,
            missing=[name for name in (REPLY_TO_CLIENT, CORRELATION_ID) if not asked.get(name)],
        )
    own = {CORRELATION_ID: correlation, REPLY_TO_CLIENT: client, MESSAGE_TYPE: REPLY}
    if TTL in asked:
        own[TTL] = asked[TTL]
    topic = reply_topic(asked.get(CLUSTER) or cluster)
    return ReplyTarget(topic, client, check_own(properties) | own)


def asks_for_reply(message: ReceivedMessage) -> bool:
    """Whether somebody may still wait for a reply to ``message``, by the clock of this machine."""
    properties = message.properties
    if not properties.get(REPLY_TO_CLIENT) or not properties.get(CORRELATION_ID):
        return False
    ttl = properties.get(TTL, "")
    if not (ttl.isascii() and ttl.isdecimal()):
        return True
    return time.time_ns() // 1_000_000 <= message.born_timestamp + int(ttl)


def check_own(properties: Mapping[str, str] | None) -> dict[str, str]:
    """A copy of the application's properties.

    Raises:
        MessageIllegalError: one of them is ours.
    """
    given = dict(properties or {})
    taken = _OWN & given.keys()
    if taken:
        raise MessageIllegalError("property is that of requests and replies", names=sorted(taken))
    return given


def no_reply(
    topic: str, correlation_id: str, timeout_s: float, cause: BaseException | None
) -> TimedOutError:
    """The error of a request that nobody has replied to in time."""
    error = TimedOutError(
        "no reply in time", topic=topic, correlation_id=correlation_id, waited_s=timeout_s
    )
    if cause is not None:
        error.details["last_error"] = str(cause)
    return error
