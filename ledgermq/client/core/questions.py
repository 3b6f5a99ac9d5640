"""Questions to a broker that several kinds of client ask: topics, queues, offsets, timers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ledgermq.client.core.asked import question
from ledgermq.client.core.requests import Steps, call_request, call_result
from ledgermq.model.errors import NoPermissionError, ProtocolError
from ledgermq.model.message_filter import ALL_TAGS
from ledgermq.verbs.answers import Fields, Row, elements, integer, rows, text
from ledgermq.verbs.topics import ListTopics, TopicRow
from ledgermq.verbs.verb import Told, Verb, check_arguments
from ledgermq.verbs.waiting import CancelTimer, ListTimers, TimerList

PERMIT_READ = 4
PERMIT_WRITE = 2

PAGE = 250


class Route(NamedTuple):
    """The queues of a topic; ``perm`` are RocketMQ's bits.

    ``message_type``: RocketMQ 5's attribute of the topic, by which its gRPC clients go; nodes of
    before tell none.
    """

    topic: str
    read_queues: int
    write_queues: int
    perm: int
    message_type: str = "UNSPECIFIED"


class QueueRange(NamedTuple):
    """Queue offsets that a queue holds, half-open."""

    begin: int
    end: int


def ask(verb: str, **arguments: object) -> Steps[dict[str, object]]:
    """The answer to one call."""
    request = call_request(verb, arguments)
    yield request
    return call_result(request)


def asking(verb: Verb[Told]) -> Steps[Told]:
    """What the broker tells when it is asked a verb of the table.

    Raises:
        MessageIllegalError: an argument is none that a broker takes; nobody is asked.
        LedgerError: it refused, or did not answer.
    """
    check_arguments(verb)
    return verb.told((yield from ask(verb.NAME, **verb.arguments())))


def all_pages(
    page_of: Callable[[int, str | None], Verb[tuple[list[Row], bool]]],
    name_of: Callable[[Row], str],
) -> Steps[list[Row]]:
    """All rows of a list that is told page by page.

    Args:
        page_of: makes the question of how many rows, and behind which name.
    """
    found: list[Row] = []
    while True:
        after = name_of(found[-1]) if found else None
        page, is_more = yield from asking(page_of(PAGE, after))
        found += page
        if not is_more or not page:
            return found


def route(topic: str, *, create: bool) -> Steps[Route]:
    """The queues of ``topic``.

    Raises:
        TopicUnknownError: there is none, and none may be created.
    """
    return route_of((yield from ask("route", topic=topic, create=create)))


def write_queues(topic: str) -> Steps[int]:
    """Number of queues that ``topic`` takes messages in; it is created if it may be.

    Raises:
        TopicUnknownError: there is no such topic, and none may be created.
        NoPermissionError: the topic takes no messages.
    """
    return writable((yield from route(topic, create=True)))


def create_topic(topic: str, queues: int) -> Steps[Route]:
    """Create ``topic``, or give an existing one that many queues."""
    return route_of((yield from ask("topic_create", topic=topic, queues=queues)))


def topics() -> Steps[list[TopicRow]]:
    """All topics by name, those of the system too, with the messages that they hold."""
    return (yield from all_pages(ListTopics, lambda row: row.topic))


def queue(topic: str, queue_id: int) -> Steps[QueueRange]:
    """The queue offsets that a queue holds."""
    result = yield from ask("queue", topic=topic, queue=queue_id)
    return QueueRange(integer(result, "min"), integer(result, "max"))


def offset_by_time(topic: str, queue_id: int, timestamp_ms: int) -> Steps[int]:
    """The queue offset that RocketMQ finds for a time.

    That is the message of exactly that store time, else the nearer one of its two neighbours in
    time; the first or the last one where there is only one neighbour.
    """
    result = yield from ask("offset_by_time", topic=topic, queue=queue_id, timestamp=timestamp_ms)
    return integer(result, "offset")


def offset_since(topic: str, queue_id: int, timestamp_ms: int) -> Steps[int]:
    """The queue offset of the first message that was stored at a time or later; the queue's end
    where there is none, also for a time to come.

    Older nodes answer as ``offset_by_time`` does. Store times are the leaders' clocks: where
    one was put back, messages of a time stand at two places, and either may be found.
    """
    result = yield from ask(
        "offset_by_time", topic=topic, queue=queue_id, timestamp=timestamp_ms, since=True
    )
    return integer(result, "offset")


def group_offset(group: str, topic: str) -> Steps[dict[int, int]]:
    """Committed queue offsets by queue id; queues never committed are left out."""
    return offsets_of((yield from ask("group_offset", group=group, topic=topic)))


def group_commit(
    group: str, topic: str, offsets: Mapping[int, int], client: str | None = None
) -> Steps[None]:
    """Commit queue offsets; of a member, ``client``, only while no other one owns the queues."""
    # In JSON every name is a text.
    told = {str(queue_id): offset for queue_id, offset in offsets.items()}
    yield from ask("group_commit", group=group, topic=topic, offsets=told, client=client)


def timers(count: int = 100) -> Steps[TimerList]:
    """The messages that are due next of those that wait for a time of their own."""
    return (yield from asking(ListTimers(count)))


def cancel_timer(unique_id: str) -> Steps[None]:
    """Take a message back that waits for its time.

    Raises:
        MessageIllegalError: none of that id waits.
    """
    yield from asking(CancelTimer(unique_id))


class BrokerQuestions:
    """The questions as verbs of a connection."""

    route = question(route)
    write_queues = question(write_queues)
    create_topic = question(create_topic)
    topics = question(topics)
    queue = question(queue)
    offset_by_time = question(offset_by_time)
    group_offset = question(group_offset)
    group_commit = question(group_commit)
    timers = question(timers)
    cancel_timer = question(cancel_timer)


def route_of(result: Fields) -> Route:
    """The answer to ``route`` and to ``topic_create``."""
    return Route(
        text(result, "topic"),
        integer(result, "read_queues"),
        integer(result, "write_queues"),
        integer(result, "perm"),
        text(result, "message_type") if "message_type" in result else "UNSPECIFIED",
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


def offsets_of(result: Fields) -> dict[int, int]:
    """The answer to ``group_offset``."""
    told = result.get("offsets")
    if not isinstance(told, dict):
        raise ProtocolError("field missing or not an object", field="offsets", value=told)
    offsets: dict[int, int] = {}
    for queue_id, offset in told.items():
        if not queue_id.isdecimal() or not isinstance(offset, int):
            raise ProtocolError("not an offset of a queue", queue=queue_id, offset=offset)
        offsets[int(queue_id)] = offset
    return offsets


class MemberRow(NamedTuple):
    """One member; see ``GroupOptions``."""

    client: str
    host: str
    model: str
    start: str
    ordered: bool
    strategy: str
    subscription: Mapping[str, str]

    @property
    def subscription_text(self) -> str:
        """Topics, with what is wanted of them where that is not everything."""
        return ", ".join(
            topic if expression == ALL_TAGS else f"{topic} ({expression})"
            for topic, expression in sorted(self.subscription.items())
        )

    @property
    def mode(self) -> str:
        """How it consumes, in a few words."""
        words = [self.model] if self.model != "clustering" else [self.strategy]
        return ", ".join([*words, *(["ordered"] if self.ordered else [])])


class MemberQueue(NamedTuple):
    """One queue of what the group consumes.

    Attributes:
        client: id of its owner, None when nobody has it.
        committed: next offset to consume, None when nothing is committed.
        lag: messages behind that.
    """

    topic: str
    queue_id: int
    client: str | None
    committed: int | None
    lag: int


class GroupMembers(NamedTuple):
    """The members of a group, and their queues.

    Attributes:
        warnings: in what they do not want the same.
    """

    group: str
    members: tuple[MemberRow, ...]
    queues: tuple[MemberQueue, ...]
    warnings: tuple[str, ...]

    def queues_of(self, client: str) -> list[MemberQueue]:
        """The queues that one member has."""
        return [queue for queue in self.queues if queue.client == client]

    def to_fields(self) -> dict[str, object]:
        """The same as a JSON object."""
        return {
            "group": self.group,
            "members": [member._asdict() for member in self.members],
            "queues": [queue._asdict() for queue in self.queues],
            "warnings": list(self.warnings),
        }


def members_of(group: str) -> Steps[GroupMembers]:
    """Who consumes for a group now, and which queues each member has."""
    result = yield from ask("group_members", group=group)
    return GroupMembers(
        group,
        tuple(rows(result, "members", _member)),
        tuple(rows(result, "queues", _queue)),
        tuple(str(one) for one in elements(result, "warnings")),
    )


def _member(row: Mapping[str, object]) -> MemberRow:
    wanted = row.get("subscription")
    if not isinstance(wanted, dict):
        raise ProtocolError("field missing or not an object", field="subscription")
    return MemberRow(
        client=str(row.get("client")),
        host=str(row.get("host")),
        model=str(row.get("model")),
        start=str(row.get("start")),
        ordered=bool(row.get("ordered")),
        strategy=str(row.get("strategy")),
        subscription={topic: str(wanted[topic]) for topic in wanted},
    )


def _queue(row: Mapping[str, object]) -> MemberQueue:
    client = row.get("client")
    return MemberQueue(
        str(row.get("topic")),
        integer(row, "queue"),
        None if client is None else str(client),
        None if row.get("committed") is None else integer(row, "committed"),
        integer(row, "lag"),
    )
