"""Pull pipeline of a consumer: one pull a queue in flight, answers kept ahead, positions.

Never blocks, has no thread and no clock: ``Consumer`` and ``AsyncConsumer`` drive it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple, get_args

from ledgermq.client.core.nodes import AnyLink
from ledgermq.client.core.questions import route_of
from ledgermq.client.core.received import MessageBatch, ReceivedMessage
from ledgermq.client.core.requests import Request, RequestPipeline, call_request, call_result
from ledgermq.client.core.wrong_calls import (
    TIMEOUT_S_BOUNDS,
    check_numbers,
    check_one_of,
    check_whole,
    told_by_name,
)
from ledgermq.formats.java_hash import java_hash
from ledgermq.model.errors import ConfigError, LedgerError, TopicUnknownError
from ledgermq.model.limits import QUEUE_OFFSET_MAX
from ledgermq.model.message_filter import ALL_TAGS, MessageFilter
from ledgermq.wire.header import VERSION_MIN, Kind
from ledgermq.wire.pull_frame import (
    BYTES_MAX,
    HOLD_MS_MAX,
    MESSAGES_MAX,
    Pull,
    PullStatus,
    decode_pulled,
    encode_pull,
)

ReadFrom = Literal["leader", "followers"]
RESETS_KEPT = 100
QUEUES_REFRESH_S = 30.0
"""Queues that are added to a topic are found after so long."""


_BELIEVED = frozenset({PullStatus.FOUND, PullStatus.NO_MATCHED_MESSAGE})
"""What a follower says for sure; all else is asked the leader."""


@told_by_name
@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """How a consumer asks.

    Attributes:
        messages_max: most messages of one batch.
        bytes_max: most bytes of one batch; a larger message comes alone.
        hold_ms: how long the broker may wait for messages before it says that there are none.
        prefetch: batches of one queue that are kept ahead.
        timeout_s: how long the broker may be away before ``poll`` raises, and time for each call.
        read_from: ``leader``, or ``followers``: old messages come from the follower that the leader
            suggests, if its address was given, too. Nothing is missed or repeated by that.
    """

    messages_max: int = 1_024
    bytes_max: int = 1024 * 1024
    hold_ms: int = 15_000
    prefetch: int = 2
    timeout_s: float = 15.0
    read_from: ReadFrom = "leader"

    def __post_init__(self) -> None:
        if self.read_from not in get_args(ReadFrom):
            raise ConfigError(
                "read_from is no kind of node", value=self.read_from, allowed=get_args(ReadFrom)
            )
        limits: dict[str, tuple[float, float]] = {
            "messages_max": (1, MESSAGES_MAX),
            "bytes_max": (1, BYTES_MAX),
            "hold_ms": (0, HOLD_MS_MAX),
            "prefetch": (1, 1_000),
            "timeout_s": TIMEOUT_S_BOUNDS,
        }
        check_numbers(self, limits)


class OffsetReset(NamedTuple):
    """A queue did not hold the messages that came next; the consumer went on elsewhere.

    Attributes:
        wanted: queue offset that was asked for.
        begin: first queue offset that the queue holds.
        end: queue offset behind its last message.
        next_offset: where the consumer went on.
    """

    queue_id: int
    wanted: int
    begin: int
    end: int
    next_offset: int


class _Queue:
    """One queue: ``position <= ask_offset`` unless the log was cut.

    ``node`` is the follower to ask next, empty for the leader.
    """

    __slots__ = ("ask_offset", "batches", "node", "position", "queue_id", "request")

    def __init__(self, queue_id: int, offset: int) -> None:
        self.queue_id = queue_id
        self.position = offset
        self.ask_offset = offset
        self.node = ""
        self.request: Request | None = None
        self.batches: deque[MessageBatch] = deque()


class PullPipeline:
    """Pulls of one topic; see the module.

    Attributes:
        resets: the latest queues that had to be begun elsewhere.
        seeks: how often ``seek`` was called; what was taken before is not to be gone on with.
    """

    def __init__(
        self,
        requests: RequestPipeline,
        topic: str,
        wanted: MessageFilter,
        options: ConsumerOptions,
    ) -> None:
        self.requests = requests
        self.topic = topic
        self.filter = wanted
        self.options = options
        self.resets: deque[OffsetReset] = deque(maxlen=RESETS_KEPT)
        self.seeks = 0
        self._hashes = tuple(sorted({java_hash(tag) for tag in wanted.tags}))
        self._queues: dict[int, _Queue] = {}
        self._turn: deque[_Queue] = deque()
        self._held_back: set[int] = set()
        self._paused: set[int] = set()
        self._error: LedgerError | None = None
        self._follows_route = False
        self._refresh_at = 0.0

    def begin(self, offsets: Mapping[int, int], *, follows_route: bool, now: float) -> None:
        """Read these queues from these offsets on.

        Args:
            follows_route: queues that the topic is given later are read, too.
        """
        self._follows_route = follows_route
        self._refresh_at = now + QUEUES_REFRESH_S
        for queue_id, offset in sorted(offsets.items()):
            self._add(queue_id, offset)

    def add(self, queue_id: int, offset: int) -> None:
        """Read a queue, too, from ``offset`` on."""
        assert queue_id not in self._queues, queue_id
        self._add(queue_id, offset)

    def remove(self, queue_id: int) -> None:
        """Read a queue no more; what was kept ahead of it is forgotten."""
        queue = self._queues.pop(queue_id)
        self._turn.remove(queue)
        self._held_back.discard(queue_id)
        self._paused.discard(queue_id)
        # Whoever goes through a batch of it stops there, and sets no position of a queue that is
        # gone.
        self.seeks += 1
        if queue.request is not None:
            self.requests.forget(queue.request)

    def pause(self, queue_id: int) -> None:
        """Neither ask for a queue nor give what was kept ahead, until ``resume``.

        Raises:
            TopicUnknownError: the queue is none of this consumer's.
        """
        self._paused.add(self._queue(queue_id).queue_id)

    def resume(self, queue_id: int) -> None:
        """Go on with a queue where it was paused.

        Raises:
            TopicUnknownError: the queue is none of this consumer's.
        """
        self._paused.discard(self._queue(queue_id).queue_id)

    @property
    def paused(self) -> frozenset[int]:
        """Queues that are paused."""
        return frozenset(self._paused)

    def hold_back(self, queue_ids: Iterable[int]) -> None:
        """Give nothing of these queues, and of all others; they are read ahead all the same."""
        self._held_back = set(queue_ids)

    def positions(self) -> dict[int, int]:
        """Queue offset of the next message to be given, by queue id."""
        return {queue.queue_id: queue.position for queue in self._queues.values()}

    def messages_of(self, batch: MessageBatch) -> Iterator[ReceivedMessage]:
        """The messages of ``batch``, each counted as given when it is; ends at a ``seek``."""
        seeks = self.seeks
        for message in batch:
            self.set_position(batch.queue_id, message.queue_offset + 1)
            yield message
            if self.seeks != seeks:
                return
        if len(batch):
            self.set_position(batch.queue_id, batch.next_offset)

    def set_position(self, queue_id: int, offset: int) -> None:
        """Messages before ``offset`` were given to the application."""
        self._queues[queue_id].position = offset

    def seek(self, queue_id: int, offset: int) -> None:
        """Go on at ``offset``; what was kept ahead is forgotten.

        Raises:
            TopicUnknownError: the queue is none of this consumer's.
        """
        queue = self._queue(queue_id)
        check_whole("offset", offset, 0, QUEUE_OFFSET_MAX)
        self.seeks += 1
        if queue.request is not None:
            self.requests.forget(queue.request)
            queue.request = None
        queue.batches.clear()
        queue.position = queue.ask_offset = offset

    @property
    def has_news(self) -> bool:
        """Whether ``take`` may give a batch, or raise."""
        return self._error is not None or any(
            queue.batches and self._is_given(queue) for queue in self._queues.values()
        )

    @property
    def has_to_ask(self) -> bool:
        """Whether a queue has no question under way, and room for an answer."""
        return self._error is None and any(map(self._is_idle, self._queues.values()))

    def advance(self, now: float) -> None:
        """Ask what can be asked, take what was answered."""
        if self._error is None:
            self._ask_all(now)
        if self._follows_route and now >= self._refresh_at:
            self._refresh_at = now + QUEUES_REFRESH_S
            request = call_request(
                "route",
                {"topic": self.topic, "create": False},
                deadline=now + self.options.timeout_s,
            )
            request.callback = self._take_route
            self.requests.ask(request)
        self.requests.advance(now)
        while self._error is None and self._ask_all(now):
            # An answer made room for the next question of its queue: it leaves at once.
            self.requests.advance(now)

    def take(self) -> MessageBatch | None:
        """The next batch with messages, the queues in turn; ``None`` when there is none yet.

        The position of its queue is left to the caller.

        Raises:
            LedgerError: there is no batch, and a queue could not be read.
        """
        for _ in range(len(self._turn)):
            self._turn.rotate(-1)
            queue = self._turn[-1]
            while queue.batches and self._is_given(queue):
                batch = queue.batches.popleft()
                if len(batch):
                    return batch
                queue.position = batch.next_offset
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        return None

    def put_back(self, batch: MessageBatch) -> None:
        """``batch``, which was taken last, was not given after all: it is the next of its queue."""
        self._queue(batch.queue_id).batches.appendleft(batch)

    def _queue(self, queue_id: int) -> _Queue:
        queue = self._queues.get(queue_id)
        if queue is None:
            raise TopicUnknownError(
                "queue is not read by this consumer",
                topic=self.topic,
                queue_id=queue_id,
                queues=sorted(self._queues),
            )
        return queue

    def _is_given(self, queue: _Queue) -> bool:
        return queue.queue_id not in self._held_back and queue.queue_id not in self._paused

    def _add(self, queue_id: int, offset: int) -> None:
        queue = self._queues[queue_id] = _Queue(queue_id, offset)
        self._turn.append(queue)

    def _ask_all(self, now: float) -> bool:
        idle = [queue for queue in self._queues.values() if self._is_idle(queue)]
        for queue in idle:
            self._ask(queue, now)
        return bool(idle)

    def _is_idle(self, queue: _Queue) -> bool:
        return (
            queue.request is None
            and len(queue.batches) < self.options.prefetch
            and queue.queue_id not in self._paused
        )

    def _ask(self, queue: _Queue, now: float) -> None:
        options = self.options
        pull = Pull(
            0,
            self.topic,
            queue.queue_id,
            queue.ask_offset,
            options.messages_max,
            options.bytes_max,
            # A follower that has nothing more does not wait: the leader has it sooner.
            0 if queue.node else options.hold_ms,
            self._hashes,
            expression=self.filter.sql,
        )
        request = pull_request(
            pull,
            self.requests.link,
            deadline=now + options.hold_ms / 1_000 + options.timeout_s,
            node=queue.node,
        )
        request.callback = partial(self._take_pulled, queue)
        queue.request = request
        self.requests.ask(request)

    def _take_pulled(self, queue: _Queue, request: Request) -> None:
        queue.request = None
        try:
            batch = pulled_batch(self.topic, queue.queue_id, request)
        except LedgerError as error:
            # The queue is asked for again with the next ``advance``.
            self._error = error
            return
        wanted, queue.ask_offset = queue.ask_offset, batch.next_offset
        if queue.node and batch.status not in _BELIEVED:
            # A follower may be behind the leader, and may have lost what the leader has.
            queue.node, queue.ask_offset = "", wanted
            return
        if self.options.read_from == "followers":
            queue.node = batch.suggested
        if batch.status.corrects_offset:
            if batch.status is not PullStatus.NO_MESSAGE_IN_QUEUE and batch.next_offset == wanted:
                queue.ask_offset = batch.next_offset = max(batch.begin, min(wanted, batch.end))
            if batch.next_offset != wanted:
                self.resets.append(
                    OffsetReset(queue.queue_id, wanted, batch.begin, batch.end, batch.next_offset)
                )
        if self.filter.tags and len(batch):
            batch.keep_tags(self.filter.tags)
        # A batch without messages may still say how far the queue was read.
        if len(batch) or batch.next_offset != wanted:
            queue.batches.append(batch)

    def _take_route(self, request: Request) -> None:
        if request.error is not None:
            # Asked for again later; the queues that are known go on.
            return
        route = route_of(call_result(request))
        for queue_id in range(route.read_queues):
            if queue_id not in self._queues:
                # From its beginning: it did not exist when the consumer chose where to begin.
                self._add(queue_id, 0)


def advance_all(pipelines: Collection[PullPipeline], now: float) -> None:
    """Let pipelines go on that share a link, until none has anything to ask.

    Each takes the answers for all: those for one that had its turn before are no wake-up any more.
    """
    for pulls in pipelines:
        pulls.advance(now)
    while any(pulls.has_to_ask for pulls in pipelines):
        for pulls in pipelines:
            pulls.advance(now)


def pull_request(pull: Pull, link: AnyLink, *, deadline: float, node: str = "") -> Request:
    """The question that asks ``pull``, whatever its request id, in the version that is spoken.

    Args:
        link: which it will be sent over.
        node: the member to ask; the leader when empty, or when that one cannot be asked.
    """

    def encode(request_id: int) -> list[bytes]:
        version = link.welcome.version if link.welcome is not None else VERSION_MIN
        return [encode_pull(pull._replace(request_id=request_id, version=version))]

    return Request(encode, Kind.PULLED, deadline=deadline, node=node)


def pulled_batch(topic: str, queue_id: int, request: Request) -> MessageBatch:
    """The messages of an answered pull.

    Raises:
        LedgerError: the broker refused, did not answer, or not with messages.
    """
    parts = request.answer()
    records = memoryview(parts[1]) if len(parts) > 1 else memoryview(b"")
    pulled = decode_pulled(parts[0], records_size=len(records))
    return MessageBatch(topic, queue_id, pulled, records)


def checked_filter(tag: str, wanted: MessageFilter | None) -> MessageFilter:
    """What a consumer was told to want, by either of two arguments.

    Raises:
        ConfigError: both were given.
        FilterIllegalError: there is no tag in ``tag``.
    """
    if wanted is None:
        return MessageFilter.by_tags(tag)
    if not isinstance(wanted, MessageFilter):
        raise ConfigError("filter is no MessageFilter: tag is another argument", filter=wanted)
    if tag != ALL_TAGS:
        check_one_of(ConfigError, tag=tag, filter=wanted.expression)
    return wanted
