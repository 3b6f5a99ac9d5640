"""Topics of sends by RocketMQ's clients: looked up, and created where a client may."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from ledgermq.broker.calls import Result
from ledgermq.broker.reading.applied_tables import AppliedTables
from ledgermq.gateway.port_calls import AsksVerbs
from ledgermq.model.errors import (
    BusyError,
    LedgerError,
    MessageIllegalError,
    NoPermissionError,
    ProtocolError,
)
from ledgermq.model.limits import FORBIDDEN_TOPICS, QUEUE_ID_MAX, TOPIC_SIZE_MAX
from ledgermq.model.names.group_topics import RETRY_PREFIX
from ledgermq.model.names.system_topics import TEMPLATE_TOPIC
from ledgermq.remoting.send_request import SendRequest
from ledgermq.rules.tables.topics import Topic, check_topic_name, queues_for_writing

WAITING_MAX = 10_000
WAITING_BYTES_MAX = 64 * 1024 * 1024
"""Requests that wait for their topics to be made, and the bytes of their bodies."""

Then = Callable[[LedgerError | None], None]
"""Is told that a topic is there, or why not."""


class SendTopic(NamedTuple):
    """A topic that may be sent to.

    Attributes:
        name: as on disk.
        sized_name: the same behind its size.
        queues: those that take messages are below this number.
        is_for_retries: it is a consumer group's: what comes may be a dead letter.
    """

    topic: Topic
    name: bytes
    sized_name: bytes
    queues: int
    is_for_retries: bool


class _Waiting(NamedTuple):
    size: int
    then: Then


class SendTopics:
    """Owned by the port.

    Invariant: ``_making`` has, by topic, who waits for it, in the order in which they came.
    """

    def __init__(self, tables: AppliedTables, calls: AsksVerbs) -> None:
        self._tables = tables
        self._calls = calls
        self._known: dict[str, SendTopic] = {}
        self._making: dict[str, list[_Waiting]] = {}
        self._waiting = self._waiting_bytes = 0

    def find(self, name: str) -> SendTopic | None:
        """The topic; None when there is none, or when others wait for it to be made.

        Raises:
            ProtocolError, MessageIllegalError: no topic can have that name.
            NoPermissionError: clients may not send to it.
        """
        topic = self._tables.topics.get(name)
        known = self._known.get(name)
        if known is not None and known.topic is topic and not self._making:
            return known
        if topic is None:
            self._known.pop(name, None)
            _check_name(name)
        if name in FORBIDDEN_TOPICS:
            raise NoPermissionError(f"the topic[{name}] is conflict with system topic.")
        if topic is None or name in self._making:
            return None
        queues = queues_for_writing(topic)
        if not queues:
            raise NoPermissionError(
                "topic may not be written to", topic=name, perm=int(topic.permission)
            )
        data = name.encode()
        self._known[name] = found = SendTopic(
            topic, data, bytes((len(data),)) + data, queues, name.startswith(RETRY_PREFIX)
        )
        return found

    def known(self, name: str) -> SendTopic | None:
        """The topic, if it was found before, is still the same and nobody waits for any."""
        known = self._known.get(name)
        if known is None or self._making or self._tables.topics.get(name) is not known.topic:
            return None
        return known

    def make(
        self,
        name: str,
        request: SendRequest,
        now_ms: int,
        size: int,
        then: Then,
        *,
        owner: str = "",
    ) -> None:
        """Have a topic made as ``request`` would like it; ``then`` is told, now or later, once.

        Args:
            size: bytes that ``then`` keeps.
            owner: whose creations it counts among.

        Raises:
            BusyError: too many wait, or too much.
        """
        if self._waiting >= WAITING_MAX or self._waiting_bytes + size > WAITING_BYTES_MAX:
            raise BusyError(
                "too much waits for topics that are being made: nothing was stored",
                requests=self._waiting,
                limit=WAITING_MAX,
                bytes=self._waiting_bytes + size,
                bytes_limit=WAITING_BYTES_MAX,
            )
        self._waiting += 1
        self._waiting_bytes += size
        if name in self._making:
            self._making[name].append(_Waiting(size, then))
            return
        self._making[name] = [_Waiting(size, then)]
        arguments: dict[str, object] = {
            "topic": name,
            "template": request.default_topic or TEMPLATE_TOPIC,
            "queues": min(max(request.default_queues, 0), QUEUE_ID_MAX),
            "unit_mode": request.unit_mode,
        }
        take = partial(self._take, name)
        self._calls.ask("topic_for_send", arguments, now_ms, take, owner=owner)

    def _take(self, name: str, outcome: Result | LedgerError) -> None:
        waiting = self._making.pop(name)
        self._waiting -= len(waiting)
        self._waiting_bytes -= sum(one.size for one in waiting)
        error = outcome if isinstance(outcome, LedgerError) else None
        for one in waiting:
            one.then(error)


def _check_name(name: str) -> None:
    """Refuse a name as RocketMQ does: one that is too long is an illegal message."""
    try:
        check_topic_name(name)
    except MessageIllegalError as error:
        if len(name) > TOPIC_SIZE_MAX:
            raise
        raise ProtocolError(error.message, **error.details) from error
