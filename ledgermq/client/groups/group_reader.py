"""Rebalancing rules of a group member: queues to lock, to give up, and to read next.

Never blocks, has no thread and no clock: ``GroupConsumer`` and ``AsyncGroupConsumer`` drive it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ledgermq.client.core.questions import ask, group_commit, group_offset
from ledgermq.client.core.received import MessageBatch, ReceivedMessage
from ledgermq.client.core.requests import RequestPipeline, Steps
from ledgermq.client.groups.allocation import (
    ClusterQueue,
    GroupView,
    Strategy,
    TopicQueue,
    share_of,
)
from ledgermq.client.reading.pull_pipeline import (
    ConsumerOptions,
    OffsetReset,
    PullPipeline,
    advance_all,
)
from ledgermq.client.reading.start_offsets import Start, is_time, starting_offsets
from ledgermq.model.errors import ConfigError, ProtocolError, TopicUnknownError
from ledgermq.model.message_filter import MessageFilter
from ledgermq.model.names.group_topics import RETRY_PREFIX

Offsets = Mapping[TopicQueue, int]

MemberMarks = Offsets | MessageBatch | ReceivedMessage | None
"""What to note as read: queue offsets by queue; a batch or a message, and all before it in its
queue; all that was given so far."""


def offsets_of(marks: MemberMarks) -> Offsets | None:
    """The offsets to commit, by queue.

    Raises:
        ConfigError: they are none.
    """
    if isinstance(marks, MessageBatch):
        topic, offset = marks.topic, marks.next_offset
        if not len(marks):
            return {}
    elif isinstance(marks, ReceivedMessage):
        topic, offset = marks.stored_topic, marks.queue_offset + 1
    else:
        is_map = isinstance(marks, Mapping) and all(isinstance(one, TopicQueue) for one in marks)
        if marks is not None and not is_map:
            raise ConfigError(
                "what is committed is neither a message, a batch, nor offsets by"
                " TopicQueue(topic, queue_id)",
                given=marks,
            )
        return marks
    if marks.broker_group:
        return {ClusterQueue(marks.broker_group, topic, marks.queue_id): offset}
    return {TopicQueue(topic, marks.queue_id): offset}


class Rebalance(NamedTuple):
    """What a member does now to come to its share.

    Attributes:
        lost: queues that somebody else owns already.
        revoked: queues to give away.
        wanted: queues to take, which nobody owns; also its own whose locks may have ended.
    """

    lost: frozenset[TopicQueue]
    revoked: frozenset[TopicQueue]
    wanted: frozenset[TopicQueue]


class GroupReader:
    """The queues that a member reads, of all its topics.

    Invariants: ``queues`` are those that it owns, or all of its topics when it broadcasts. In
    ordered mode a queue whose last batch is not committed gives no other one, and is not given
    away.
    """

    def __init__(
        self,
        requests: RequestPipeline,
        subscription: Mapping[str, MessageFilter],
        options: ConsumerOptions,
        *,
        client: str,
        strategy: Strategy,
        is_ordered: bool,
        broker_group: str = "",
    ) -> None:
        self._broker_group = broker_group
        self._client = client
        self._strategy = strategy
        self._is_ordered = is_ordered
        self._pulls = {
            topic: PullPipeline(requests, topic, wanted, options)
            for topic, wanted in subscription.items()
        }
        self._turn = deque(self._pulls.values())
        self._requests = requests
        self._queues: set[TopicQueue] = set()
        self._committed: dict[TopicQueue, int] = {}
        # The last one of a queue that is taken into account there.
        self._reset: dict[TopicQueue, OffsetReset] = {}
        # Next offset behind the batch that the application works on.
        self._given: dict[TopicQueue, int] = {}

    @property
    def queues(self) -> frozenset[TopicQueue]:
        """Queues that are read."""
        return frozenset(self._queues)

    @property
    def resets(self) -> list[tuple[str, OffsetReset]]:
        """Queues that did not hold what came next, with their topics."""
        return [(pulls.topic, reset) for pulls in self._pulls.values() for reset in pulls.resets]

    def moves(self, view: GroupView) -> Rebalance:
        """What to do now, by what the broker says of the group."""
        mine = self.queues
        lost = {queue for queue in mine if view.owners.get(queue) not in (None, self._client)}
        share = share_of(self._client, view, self._strategy, self._broker_group)
        share = frozenset(queue for queue in share if queue.topic in self._pulls)
        busy = self._given.keys() if self._is_ordered else frozenset()
        revoked = mine - share - lost - busy
        wanted = {queue for queue in share - mine if view.owners.get(queue) in (None, self._client)}
        return Rebalance(frozenset(lost), revoked, frozenset(wanted))

    def broadcast_moves(self, view: GroupView) -> Rebalance:
        """What to do now to read all queues of all topics."""
        every = {
            TopicQueue(topic, queue_id)
            for topic in self._pulls
            for queue_id in range(view.queues.get(topic, 0))
        }
        mine = self.queues
        return Rebalance(frozenset(), mine - every, frozenset(every - mine))

    def add(self, offsets: Offsets, committed: Offsets) -> None:
        """Read these queues, too, from these offsets on.

        Args:
            committed: what the group has committed of them.
        """
        for queue, offset in sorted(offsets.items()):
            self._pulls[queue.topic].add(queue.queue_id, offset)
            self._queues.add(queue)
            # Where nothing was read, there is nothing to commit.
            self._committed[queue] = max(offset, committed.get(queue, offset))

    def remove(self, queues: Iterable[TopicQueue]) -> None:
        """Read these queues no more."""
        for queue in queues:
            self._pulls[queue.topic].remove(queue.queue_id)
            self._queues.discard(queue)
            self._committed.pop(queue, None)
            self._given.pop(queue, None)

    @property
    def has_news(self) -> bool:
        """Whether ``take`` may give a batch, or raise."""
        return any(pulls.has_news for pulls in self._pulls.values())

    def advance(self, now: float) -> None:
        """Ask what can be asked, take what was answered."""
        advance_all(self._pulls.values(), now)

    def take(self) -> MessageBatch | None:
        """The next batch with messages, topics and queues in turn; ``None`` when there is none yet.

        It is to go on to ``note_given``, or to ``put_back``.

        Raises:
            LedgerError: there is no batch, and a queue could not be read.
        """
        for _ in range(len(self._turn)):
            self._turn.rotate(-1)
            pulls = self._turn[-1]
            batch = pulls.take()
            if batch is not None:
                return batch
        return None

    def put_back(self, batch: MessageBatch) -> None:
        self._pulls[batch.topic].put_back(batch)

    def note_given(self, batch: MessageBatch) -> None:
        """``batch`` counts as given: see ``positions``."""
        self._pulls[batch.topic].set_position(batch.queue_id, batch.next_offset)
        if self._is_ordered:
            self._given[TopicQueue(batch.topic, batch.queue_id)] = batch.next_offset
            self._hold_back()

    def messages_of(self, batch: MessageBatch) -> Iterator[ReceivedMessage]:
        """The messages of ``batch``, each counted as given when it is; ends at a ``seek``."""
        queue = TopicQueue(batch.topic, batch.queue_id)
        self._let_go([queue])
        yield from self._pulls[batch.topic].messages_of(batch)

    def positions(self, queues: Iterable[TopicQueue] | None = None) -> dict[TopicQueue, int]:
        """Queue offset of the next message to be given, of ``queues`` or of all that are read."""
        wanted = self._queues if queues is None else set(queues) & self._queues
        read = {topic: pulls.positions() for topic, pulls in self._pulls.items()}
        return {queue: read[queue.topic][queue.queue_id] for queue in sorted(wanted)}

    def uncommitted(self, queues: Iterable[TopicQueue] | None = None) -> dict[TopicQueue, int]:
        """The same without the queues of which that is committed, or more."""
        self._note_resets()
        return {
            queue: offset
            for queue, offset in self.positions(queues).items()
            if offset > self._committed[queue]
        }

    def note_committed(self, offsets: Offsets) -> None:
        """The group has consumed up to these offsets: in ordered mode their queues go on."""
        done = []
        for queue, offset in offsets.items():
            if queue not in self._queues:
                continue
            self._committed[queue] = offset
            # One more than any: a queue of which nothing is worked on has nothing to let go.
            if offset >= self._given.get(queue, offset + 1):
                done.append(queue)
        self._let_go(done)

    def note_all_committed(self) -> None:
        """All that was given is committed, also where the group was further already.

        So a queue that is read again from before the committed offset goes on in ordered mode.
        """
        behind = [queue for queue, end in self._given.items() if end <= self._committed[queue]]
        self._let_go(behind)

    def seek(self, queue: TopicQueue, offset: int) -> None:
        """Go on at ``offset`` of a queue; what was given of it does not count.

        Raises:
            TopicUnknownError: this member does not read the queue.
            ConfigError: the offset is negative.
        """
        self._pulls_of(queue).seek(queue.queue_id, offset)
        self._let_go([queue])

    def pause(self, queue: TopicQueue) -> None:
        """Give nothing of a queue until ``resume``; it stays this member's.

        Raises:
            TopicUnknownError: this member does not read the queue.
        """
        self._pulls_of(queue).pause(queue.queue_id)

    def resume(self, queue: TopicQueue) -> None:
        """Go on with a queue where it was paused.

        Raises:
            TopicUnknownError: this member does not read the queue.
        """
        self._pulls_of(queue).resume(queue.queue_id)

    @property
    def paused(self) -> frozenset[TopicQueue]:
        """Queues that are paused."""
        return frozenset(
            TopicQueue(topic, queue_id)
            for topic, pulls in self._pulls.items()
            for queue_id in pulls.paused
        )

    def _note_resets(self) -> None:
        """What is committed beyond the end of a queue counts for nothing: else nothing that comes
        would be committed before the queue has grown so far.
        """
        for topic, reset in self.resets:
            queue = TopicQueue(topic, reset.queue_id)
            is_beyond = reset.next_offset < reset.wanted
            if is_beyond and queue in self._queues and self._reset.get(queue) is not reset:
                self._reset[queue] = reset
                self._committed[queue] = min(self._committed[queue], reset.next_offset)

    def _pulls_of(self, queue: TopicQueue) -> PullPipeline:
        if not isinstance(queue, TopicQueue):
            raise ConfigError("queue is no TopicQueue(topic, queue_id)", queue=queue)
        pulls = self._pulls.get(queue.topic)
        if pulls is None or queue not in self._queues:
            raise TopicUnknownError(
                "queue is not this consumer's now", topic=queue.topic, queue_id=queue.queue_id,
                assigned=sorted(one.queue_id for one in self._queues if one.topic == queue.topic),
            )  # fmt: skip
        return pulls

    def _let_go(self, queues: Iterable[TopicQueue]) -> None:
        held = [queue for queue in queues if self._given.pop(queue, None) is not None]
        if held:
            self._hold_back()

    def _hold_back(self) -> None:
        for topic, pulls in self._pulls.items():
            pulls.hold_back(queue.queue_id for queue in self._given if queue.topic == topic)


def by_topic(queues: Iterable[TopicQueue]) -> dict[str, list[int]]:
    """Queue ids by topic."""
    found: dict[str, list[int]] = {}
    for queue in sorted(queues):
        found.setdefault(queue.topic, []).append(queue.queue_id)
    return found


def lock_steps(
    group: str, client: str, queues: Iterable[TopicQueue], *, is_ordered: bool
) -> Steps[tuple[frozenset[TopicQueue], str]]:
    """Take the locks of ``queues``; those that the member owns then, and the group's version."""
    result = yield from ask(
        "queue_lock", group=group, client=client, queues=by_topic(queues), ordered=is_ordered
    )
    told = result.get("owned")
    if not isinstance(told, dict):
        raise ProtocolError("field missing or not an object", field="owned")
    owned = (TopicQueue(topic, int(queue_id)) for topic, ids in told.items() for queue_id in ids)
    return frozenset(owned), str(result.get("version", ""))


def unlock_steps(group: str, client: str, queues: Iterable[TopicQueue]) -> Steps[str]:
    """Give the locks of ``queues`` back; the group's version then."""
    result = yield from ask("queue_unlock", group=group, client=client, queues=by_topic(queues))
    return str(result.get("version", ""))


def leave_steps(group: str, client: str, instance: str) -> Steps[None]:
    """Say goodbye to the group."""
    yield from ask("group_leave", group=group, client=client, instance=instance)


def commit_steps(group: str, client: str, offsets: Offsets) -> Steps[None]:
    """Note in the broker what the group has consumed, by its member ``client``."""
    for topic, ids in by_topic(offsets).items():
        of_topic = {one: offsets[TopicQueue(topic, one)] for one in ids}
        yield from group_commit(group, topic, of_topic, client)


def begin_steps(
    group: str, client: str, queues: Iterable[TopicQueue], start: Start
) -> Steps[tuple[dict[TopicQueue, int], dict[TopicQueue, int]]]:
    """Where to begin with each queue, and what is committed of them.

    Where a group begins that does not begin with what is there first is settled once: it is
    committed, so that queues that are added later are read from their beginning.
    """
    begin: dict[TopicQueue, int] = {}
    committed: dict[TopicQueue, int] = {}
    for topic, ids in by_topic(queues).items():
        stored = yield from group_offset(group, topic)
        # A queue that was added since the group began is read from its beginning, and what the
        # group gave back in any case.
        otherwise: Start = "first" if stored or topic.startswith(RETRY_PREFIX) else start
        offsets = yield from starting_offsets(topic, group, ids, stored, otherwise=otherwise)
        begin |= {TopicQueue(topic, one): offset for one, offset in offsets.items()}
        committed |= {TopicQueue(topic, one): stored[one] for one in ids if one in stored}
        fresh = {queue: at for queue, at in begin.items() if queue.topic == topic}
        fresh = {queue: at for queue, at in fresh.items() if queue not in committed}
        if otherwise != "first" and fresh:
            yield from commit_steps(group, client, fresh)
            committed |= fresh
    return begin, committed


def check_begin(start: Start) -> Start:
    """``start`` as a place to begin a queue of which nothing is committed.

    Raises:
        ConfigError: it is none.
    """
    if start not in ("first", "last") and not is_time(start):
        raise ConfigError(
            "start is not a place to begin", start=start, allowed="first, last, a time in epoch ms"
        )
    return start
