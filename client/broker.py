"""What can be asked of a broker, typed: topics, queues, offsets. One thread at a time may ask."""

from __future__ import annotations

import select
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ledgermq.client.group import AnyLink
from ledgermq.client.requests import (
    Request,
    RequestPipeline,
    Result,
    Steps,
    call_request,
    call_result,
)
from ledgermq.client.timers import TimerList, timer_list
from ledgermq.model.errors import NoPermissionError, ProtocolError
from ledgermq.wire.session import Welcome

PERMIT_READ = 4
PERMIT_WRITE = 2


class Route(NamedTuple):
    """The queues of a topic; ``perm`` are RocketMQ's bits."""

    topic: str
    read_queues: int
    write_queues: int
    perm: int


class TopicRow(NamedTuple):
    """A topic in the broker's list; ``messages`` are those that its queues hold.

    ``deduplication_window_ms``: how long unique ids count in it; 0: they do not.
    """

    topic: str
    read_queues: int
    write_queues: int
    perm: int
    system: bool
    messages: int
    deduplication_window_ms: int = 0


class QueueRange(NamedTuple):
    """Queue offsets that a queue holds, half-open."""

    begin: int
    end: int


class Broker:
    """Calls that wait for their answer."""

    def __init__(self, link: AnyLink, *, timeout_s: float) -> None:
        """Calls over ``link``, which nobody else may use meanwhile.

        Args:
            timeout_s: for each call.
        """
        self.requests = RequestPipeline(link)
        self.timeout_s = timeout_s

    def welcome(self) -> Welcome:
        """What the broker tells of itself; waits for it.

        Raises:
            NotLeaderError: no broker answers.
        """
        link = self.requests.link
        until = time.monotonic() + self.timeout_s
        while True:
            now = time.monotonic()
            self.requests.advance(now)
            if link.last_welcome is not None:
                return link.last_welcome
            if link.failure is not None or now >= until:
                raise link.unreachable()
            wait_for_link(link, min(until, self.requests.deadline) - now)

    def route(self, topic: str, *, create: bool, timeout_s: float | None = None) -> Route:
        """The queues of ``topic``.

        Raises:
            TopicUnknownError: there is none, and none may be created.
        """
        return route_of(self.call("route", timeout_s, topic=topic, create=create))

    def write_queues(self, topic: str, *, timeout_s: float | None = None) -> int:
        """Number of queues that ``topic`` takes messages in; it is created if it may be.

        Raises:
            TopicUnknownError: there is no such topic, and none may be created.
            NoPermissionError: the topic takes no messages.
        """
        return writable(self.route(topic, create=True, timeout_s=timeout_s))

    def create_topic(self, topic: str, queues: int) -> Route:
        """Create ``topic``, or give an existing one that many queues."""
        return route_of(self.call("topic_create", topic=topic, queues=queues))

    def topics(self) -> list[TopicRow]:
        """All topics, those of the system too."""
        rows = self.call("topics").get("topics")
        if not isinstance(rows, list):
            raise ProtocolError("field missing or not a list", field="topics")
        return [topic_row(row) for row in rows]

    def queue(self, topic: str, queue_id: int) -> QueueRange:
        """What one queue holds."""
        result = self.call("queue", topic=topic, queue=queue_id)
        return QueueRange(integer(result, "min"), integer(result, "max"))

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """Queue offset of the first message stored at or behind that time."""
        result = self.call("offset_by_time", topic=topic, queue=queue_id, timestamp=timestamp_ms)
        return integer(result, "offset")

    def group_offset(self, group: str, topic: str) -> dict[int, int]:
        """Committed queue offsets by queue id."""
        return offsets_of(self.call("group_offset", group=group, topic=topic))

    def group_commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Commit queue offsets."""
        self.call("group_commit", group=group, topic=topic, offsets=offsets_json(offsets))

    def timers(self, count: int = 100) -> TimerList:
        """The messages that are due next of those that wait for a time of their own."""
        return timer_list(self.call("timers", count=count))

    def cancel_timer(self, unique_id: str) -> None:
        """Take a message back that waits for its time.

        Raises:
            MessageIllegalError: none of that id waits.
        """
        self.call("timer_cancel", id=unique_id)

    def wait(self, request: Request) -> None:
        """Ask, and return when the answer or its time limit is there."""
        self._wait_done([request])

    def wait_asked(self, request: Request) -> None:
        """Return when the answer to what was asked before, or its time limit, is there."""
        while not request.done():
            now = time.monotonic()
            self.requests.advance(now)
            if not request.done():
                wait_for_link(self.requests.link, self.requests.deadline - now)

    def wait_all(self, requests: Sequence[Request]) -> None:
        """Ask all at once, and return when each has its answer or its time is over."""
        until = time.monotonic() + self.timeout_s
        for request in requests:
            request.deadline = until
        self._wait_done(requests)

    def _wait_done(self, requests: Sequence[Request]) -> None:
        for request in requests:
            self.requests.ask(request)
        while True:
            now = time.monotonic()
            self.requests.advance(now)
            if all(request.done() for request in requests):
                return
            wait_for_link(self.requests.link, self.requests.deadline - now)

    def run(self, steps: Steps[Result]) -> Result:
        """What ``steps`` come to, asked one after the other.

        Raises:
            LedgerError: the broker refused one, or did not answer.
        """
        while True:
            try:
                request = next(steps)
            except StopIteration as end:
                result: Result = end.value
                return result
            request.deadline = time.monotonic() + self.timeout_s
            self.wait(request)

    def call(
        self, verb: str, timeout_s: float | None = None, **arguments: object
    ) -> dict[str, object]:
        """The answer to a verb of the client protocol.

        Raises:
            LedgerError: the broker refused, or did not answer.
        """
        deadline = time.monotonic() + (timeout_s or self.timeout_s)
        request = call_request(verb, arguments, deadline=deadline)
        self.wait(request)
        return call_result(request)


def wait_for_link(link: AnyLink, seconds: float, *, also: Sequence[int] = ()) -> None:
    """Sleep until ``link`` may have work, or one of ``also`` can be read, at most so long."""
    poll = select.poll()
    for descriptor in (*link.descriptors, *also):
        poll.register(descriptor, select.POLLIN)
    poll.poll(max(0.0, min(seconds, 60.0)) * 1_000)


def route_of(result: Mapping[str, object]) -> Route:
    """The answer to ``route`` and to ``topic_create``."""
    topic = result.get("topic")
    if not isinstance(topic, str):
        raise ProtocolError("field missing or not a text", field="topic", value=topic)
    return Route(
        topic,
        integer(result, "read_queues"),
        integer(result, "write_queues"),
        integer(result, "perm"),
    )


def writable(route: Route) -> int:
    """Number of queues that take messages.

    Raises:
        NoPermissionError: there are none, or the topic may not be written to.
    """
    if not route.perm & PERMIT_WRITE or route.write_queues < 1:
        raise NoPermissionError(
            "topic takes no messages",
            topic=route.topic,
            perm=route.perm,
            write_queues=route.write_queues,
        )
    return route.write_queues


def offsets_of(result: Mapping[str, object]) -> dict[int, int]:
    """The answer to ``group_offset``."""
    rows = result.get("offsets")
    if not isinstance(rows, dict):
        raise ProtocolError("field missing or not an object", field="offsets", value=rows)
    offsets: dict[int, int] = {}
    for queue, offset in rows.items():
        if not queue.isdecimal() or not isinstance(offset, int):
            raise ProtocolError("not an offset of a queue", queue=queue, offset=offset)
        offsets[int(queue)] = offset
    return offsets


def offsets_json(offsets: Mapping[int, int]) -> dict[str, int]:
    """``offsets`` as in JSON, where every name is a text."""
    return {str(queue): offset for queue, offset in offsets.items()}


def integer(fields: Mapping[str, object], name: str) -> int:
    """The whole number ``name`` of an answer.

    Raises:
        ProtocolError: there is none.
    """
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ProtocolError("field missing or not an integer", field=name, value=value)
    return value


def topic_row(row: object) -> TopicRow:
    """A row of ``topics``."""
    if not isinstance(row, dict):
        raise ProtocolError("row of a topic is not an object", row=row)
    window_ms = integer(row, "deduplication_window_ms") if "deduplication_window_ms" in row else 0
    return TopicRow(*route_of(row), bool(row.get("system")), integer(row, "messages"), window_ms)
