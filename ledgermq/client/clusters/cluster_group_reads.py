"""Membership in a consumer group in all groups of a cluster: all but how a member waits.

Who waits for the answers of all of them calls ``turn`` of each, and tells the application what that
gives it to tell.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import zmq

from ledgermq.client.blocking.heartbeat_thread import HeartbeatThread
from ledgermq.client.clusters.cluster_reads import Nap, Turns, only_group_of
from ledgermq.client.clusters.group_watch import LOOK_S, MOVED_S, GroupWatch, WatchedGroup
from ledgermq.client.core.address import parse_addresses
from ledgermq.client.core.asked import asked
from ledgermq.client.core.connection import Context
from ledgermq.client.core.known_groups import KnownGroups
from ledgermq.client.core.link import NEVER
from ledgermq.client.core.nodes import AnyLink, broker_link
from ledgermq.client.core.questions import queue as ask_queue
from ledgermq.client.core.read_traces import Reader, settling
from ledgermq.client.core.received import MessageBatch, ReceivedMessage, no_messages
from ledgermq.client.core.requests import BACKOFF_S, Request, RequestPipeline, Result, Steps
from ledgermq.client.core.wrong_calls import check_timeout
from ledgermq.client.errand import StepsUnderWay, raise_first
from ledgermq.client.groups.allocation import OF_ALL_GROUPS, ClusterQueue, TopicQueue
from ledgermq.client.groups.group_member import (
    Course,
    GroupMember,
    GroupOptions,
    Notice,
    Subscription,
)
from ledgermq.client.groups.group_reader import MemberMarks, Offsets, offsets_of
from ledgermq.client.groups.heartbeats import GOODBYE_S
from ledgermq.client.groups.rebalance_listener import GroupNotice
from ledgermq.client.groups.subscriber import Subscriber
from ledgermq.client.reading.pull_pipeline import ConsumerOptions, OffsetReset
from ledgermq.client.reading.retries import GivenBack, given_back
from ledgermq.hosts.wake_bell import new_bell
from ledgermq.model.errors import (
    ClosedError,
    ConfigError,
    LedgerError,
    NotLeaderError,
    TopicUnknownError,
)
from ledgermq.model.message_filter import MessageFilter

REFUSED_AGAIN_S = 1.0
"""After what a group has refused, and will again, it is asked again no sooner."""


class Walk(StepsUnderWay[Request | Notice, Result]):
    """Questions and notices of one seat, one after the other; ``go_on`` asks the next one.

    Unlike an ``Errand`` it goes on at no other time: not while queues are being read.

    Attributes:
        notice: what the application is to be told before it goes on.
        begun_at: by ``time.monotonic``.
    """

    def __init__(
        self,
        requests: RequestPipeline,
        steps: Generator[Request | Notice, None, Result],
        *,
        timeout_s: float,
    ) -> None:
        """Take the first step; see ``StepsUnderWay``."""
        super().__init__(requests, steps, timeout_s=timeout_s)
        self.notice: Notice | None = None
        self.begun_at = time.monotonic()
        self._request: Request | None = None
        self._take_step()

    def go_on(self) -> bool:
        """Take the next step if the question before it has its answer; whether it was so."""
        if self.is_done or self._request is None or not self._request.done():
            return False
        self._take_step()
        return True

    def told(self) -> None:
        """The application has been told: take the next step."""
        assert self.notice is not None
        self._take_step()

    def _take_step(self) -> None:
        self.notice = self._request = None
        step = self._next()
        if isinstance(step, Notice):
            self.notice = step
        elif step is not None:
            self._request = step
            self._ask(step)


class GroupSeat:
    """A member of a consumer group in one group of brokers.

    Invariant: while it comes to another share no messages are given: what was given before has been
    worked on when the application is told that a queue goes.

    Attributes:
        name: of the group of brokers.
        is_leaving: it gives its queues away, or has.
        has_left: it has said goodbye, or nobody was there to hear it.
    """

    def __init__(
        self,
        name: str,
        link: AnyLink,
        options: GroupOptions,
        consumer_options: ConsumerOptions,
        *,
        group: str,
        client: str,
        subscription: Subscription,
    ) -> None:
        """A seat over ``link``, which it closes."""
        self.name = name
        self.is_leaving = False
        self.has_left = False
        self.requests = RequestPipeline(link)
        self.member = GroupMember(
            self.requests,
            options,
            consumer_options,
            group=group,
            client=client,
            subscription=subscription,
            broker_group=name,
        )
        self._timeout_s = consumer_options.timeout_s
        self._course: Walk[None] | None = None
        self._walks: list[Walk[Any]] = []
        self._again_at = 0.0
        self._look: Walk[bool] | None = None
        self._look_at = 0.0

    @property
    def answers(self) -> bool:
        """Whether a session stands with its leader's broker."""
        return self.requests.link.welcome is not None

    @property
    def deadline(self) -> float:
        """When ``turn`` has work that no descriptor tells of; by ``time.monotonic``."""
        until = self.requests.deadline
        return min(until, self._again_at) if self._again_at > time.monotonic() else until

    def moves_since(self) -> float | None:
        """Since when it comes to another share; None: it does not, or nobody answers."""
        course = self._course
        return None if course is None or not self.answers else course.begun_at

    def turn(self, now: float) -> Notice | None:
        """Take answers and send questions; what the application is to be told before it goes on.

        Raises:
            LedgerError: the group refuses the member, and will again; no sooner than a second
                after the last time.
        """
        self.advance(now)
        if self._course is None and not self.is_leaving and now >= self._again_at:
            try:
                news = self.member.news(now)
            except LedgerError as error:
                self._rest(now, error)
                return None
            if news is not None:
                self._course = self._begin(self.member.rebalance(news))
        return self._come_to(now)

    def told(self) -> None:
        """The application has been told what ``turn`` gave."""
        assert self._course is not None
        self._course.told()

    def break_off(self) -> None:
        """What the application was told has failed: come to the share anew with the next turn."""
        self._course, self.is_leaving = None, False

    def take(self, now: float) -> MessageBatch | None:
        """The next batch, if there is one, and the queues are surely this member's.

        It is to go on to ``note_given`` of the reader, or to ``put_back``.

        Raises:
            LedgerError: as from ``turn``.
        """
        if self._course is not None or now < self._again_at or not self.member.may_give(now):
            return None
        try:
            return self.member.reader.take()
        except TopicUnknownError:
            # It is gone, which the group's next news tell, too.
            self._again_at = now + REFUSED_AGAIN_S
        except LedgerError as error:
            self._rest(now, error)
        return None

    def leave(self, course: Course, *, timeout_s: float | None = None) -> None:
        """Give the queues away by ``course``, and say goodbye: ``has_left`` says when it has."""
        self.is_leaving = True
        self._course = self._begin(course, timeout_s=timeout_s)

    def farewell(self) -> Course:
        """What a member does that is closed: tell what goes, and let go of it."""
        notice = self.member.last_notice()
        if notice is not None:
            yield notice
        yield from self.member.leave()

    def commit(self, offsets: Offsets | None) -> Walk[None]:
        """Note what was consumed: ``offsets``, or all that was given so far."""
        return self._walk(self.member.commit(offsets))

    def give_back(
        self, messages: Sequence[ReceivedMessage], *, delay_level: int, times_max: int | None
    ) -> Walk[list[GivenBack]]:
        """Give messages back, one after the other.

        Raises:
            ConfigError: a number is out of range.
        """
        requests = self.member.give_back(messages, delay_level=delay_level, times_max=times_max)
        return self._walk(_given_back(requests))

    def has_nothing_left(self, now: float) -> bool:
        """Whether all that the queues have was given, as of the last look; looks once a second."""
        look = self._look
        if self._course is not None:
            return False
        if look is None and now >= self._look_at:
            look = self._look = self._walk(self._is_at_ends())
        if look is None or not look.is_done:
            return False
        self._look, self._look_at = None, now + REFUSED_AGAIN_S
        return look.error is None and look.result()

    def advance(self, now: float) -> None:
        """Take answers, send questions, and go on with what is under way."""
        self.member.reader.advance(now)
        while [walk for walk in self._under_way() if walk.go_on()]:
            self.member.reader.advance(now)
        self._walks = [walk for walk in self._walks if not walk.is_done]

    def close(self) -> None:
        """Close its connection, whatever is under way."""
        self.has_left = True
        self.requests.link.close()

    def _come_to(self, now: float) -> Notice | None:
        """Go on with the course as far as it goes now."""
        course = self._course
        if course is None:
            return None
        self.advance(now)
        if not course.is_done:
            return course.notice
        self._course = None
        if self.is_leaving:
            # Without an answer the next leader lets go of a member that it does not hear of.
            self.has_left = True
        elif course.error is not None:
            self._rest(now, course.error)
        return None

    def _rest(self, now: float, error: LedgerError) -> None:
        """Ask for nothing new for a while after ``error``, and raise it if it is for good."""
        if error.retriable:
            self._again_at = now + BACKOFF_S
            return
        self._again_at = now + REFUSED_AGAIN_S
        error.details["broker_group"] = self.name
        raise error

    def _under_way(self) -> list[Walk[Any]]:
        return self._walks if self._course is None else [self._course, *self._walks]

    def _begin(self, course: Course, *, timeout_s: float | None = None) -> Walk[None]:
        return Walk(self.requests, course, timeout_s=timeout_s or self._timeout_s)

    def _walk(self, steps: Steps[Result]) -> Walk[Result]:
        walk = Walk[Result](self.requests, steps, timeout_s=self._timeout_s)
        self._walks.append(walk)
        return walk

    def _is_at_ends(self) -> Steps[bool]:
        """Whether all queues were given to their ends, and no work on a queue is waited for."""
        positions = self.member.reader.positions()
        if self.member.options.ordered and self.member.reader.uncommitted():
            return False
        for one, offset in positions.items():
            if offset < (yield from ask_queue(one.topic, one.queue_id)).end:
                return False
        return positions == self.member.reader.positions()


def _given_back(requests: Sequence[Request]) -> Steps[list[GivenBack]]:
    found = []
    for request in requests:
        yield request
        found.append(given_back(request))
    return found


SETTLE_S = 0.1
"""While a group's members come to other shares, messages of the other groups wait so long: most are
done by then, and need not wait for the application's next ``poll``."""


class _Place:
    """A seat in a group, as the watch knows that group.

    Attributes:
        answered_at: when it was last seen to answer; by ``time.monotonic``.
    """

    def __init__(self, group: WatchedGroup, seat: GroupSeat) -> None:
        self.group = group
        self.seat = seat
        self.answered_at = time.monotonic()


class ClusterGroupReads:
    """What both forms of group consumer are in a cluster: a member in each group with a topic."""

    def __init__(self, ordinary: Subscriber, told: KnownGroups) -> None:
        """A member in the place of ``ordinary``, in each group of nodes by the same name.

        That is the ordinary one's, from now on with ``@cluster`` behind it.

        Raises:
            ConfigError: it is to broadcast, which is what a ``Consumer`` does.
        """
        self.group = ordinary.group
        self.group_options = ordinary.group_options
        if self.group_options.model != "clustering":
            raise ConfigError(
                "nothing is shared in broadcasting mode: use Consumer",
                model=self.group_options.model,
            )
        self.options = ordinary.options
        self.name = ordinary.name + OF_ALL_GROUPS
        self._listener = ordinary._listener
        self._tracing = ordinary._tracing
        self._reader = Reader(self.group, self.name)
        self._subscriptions = ordinary._subscriptions
        self._topics: dict[str, MessageFilter] = {}
        self._places: dict[str, _Place] = {}
        self._turns: list[str] = []
        self._without: set[str] = set()
        self._is_closed = False
        self._bell = new_bell()
        self._heartbeats: HeartbeatThread | None = None
        self._watch = GroupWatch(
            ordinary._seeds(told),
            client=self.name,
            keys=ordinary._keys,
            reads=True,
            on_news=self._bell.ring,
        )
        ordinary.name = self.name

    def groups(self) -> list[str]:
        """Names of the groups of brokers in which it is a member now."""
        return sorted(self._places)

    @property
    def assignment(self) -> frozenset[ClusterQueue]:
        """The queues that it reads now."""
        return frozenset(
            ClusterQueue(name, *one)
            for name, place in self._places.items()
            for one in place.seat.member.reader.queues
        )

    @property
    def paused(self) -> frozenset[ClusterQueue]:
        """Queues that are paused."""
        return frozenset(
            ClusterQueue(name, *one)
            for name, place in self._places.items()
            for one in place.seat.member.reader.paused
        )

    @property
    def resets(self) -> list[tuple[str, str, OffsetReset]]:
        """Queues that did not hold what came next, with their groups and topics: messages were
        skipped.
        """
        return [
            (name, *reset)
            for name, place in self._places.items()
            for reset in place.seat.member.reader.resets
        ]

    @property
    def warnings(self) -> dict[str, tuple[str, ...]]:
        """Members that do not want the same, as each group of brokers says that has such."""
        told = {name: place.seat.member.heartbeats.news for name, place in self._places.items()}
        return {name: news.warnings for name, news in told.items() if news and news.warnings}

    @asked
    def commit(self, offsets: MemberMarks = None) -> Turns[None]:
        """Note what was consumed, in the group that it is from; see ``GroupConsumer.commit``."""
        noted: dict[str, dict[TopicQueue, int]] = {}
        for queue, offset in (offsets_of(offsets) or {}).items():
            self._seat(queue.group)
            noted.setdefault(queue.group, {})[TopicQueue(*queue)] = offset
        failures: list[LedgerError] = []
        walks: dict[str, Walk[None]] = {}
        with settling(self._tracing, "commit", "", self._reader):
            for name, place in self._places.items():
                seat = place.seat
                wanted = seat.member.reader.uncommitted() if offsets is None else noted.get(name)
                if wanted and not seat.answers:
                    failures.append(NotLeaderError("group does not answer", broker_group=name))
                elif offsets is None or wanted:
                    walks[name] = seat.commit(wanted if offsets is not None else None)
            yield from self._finish(walks)
            raise_first(failures, walks)

    @asked
    def retry_later(
        self,
        message: ReceivedMessage,
        *more: ReceivedMessage,
        delay_level: int = 0,
        times_max: int | None = None,
    ) -> Turns[list[GivenBack]]:
        """Give messages of one group of nodes back to it; see ``GroupConsumer.retry_later``."""
        messages = (message, *more)
        group = only_group_of(messages)
        seat = self._seat(group)
        with settling(self._tracing, "retry_later", message.topic, self._reader, messages):
            walk = seat.give_back(messages, delay_level=delay_level, times_max=times_max)
            yield from self._finish({group: walk})
            return walk.result()

    def positions(self) -> dict[TopicQueue, int]:
        """Queue offset of the next message to be given, by queue."""
        return {
            ClusterQueue(name, *one): offset
            for name, place in self._places.items()
            for one, offset in place.seat.member.reader.positions().items()
        }

    def seek(self, queue: TopicQueue, offset: int) -> None:
        """Go on at ``offset`` of a queue; see ``GroupConsumer.seek``."""
        self._owning(queue).member.reader.seek(TopicQueue(*queue), offset)

    def pause(self, queue: TopicQueue) -> None:
        """Give nothing of a queue until ``resume``; see ``GroupConsumer.pause``."""
        self._owning(queue).member.reader.pause(TopicQueue(*queue))

    def resume(self, queue: TopicQueue) -> None:
        """Go on with a queue where it was paused; see ``GroupConsumer.resume``."""
        self._owning(queue).member.reader.resume(TopicQueue(*queue))

    def messages_of(self, batch: MessageBatch) -> Iterator[ReceivedMessage]:
        """The messages of what ``poll`` gave, each of which counts as read when it is given."""
        if not batch.broker_group:
            return iter(())
        return self._seat(batch.broker_group).member.reader.messages_of(batch)

    def _owning(self, queue: TopicQueue) -> GroupSeat:
        place = self._places.get(queue.group)
        if place is None:
            raise TopicUnknownError(
                "queue is not this consumer's now", group=queue.group, **queue._asdict()
            )
        return place.seat

    def _seat(self, group: str) -> GroupSeat:
        place = self._places.get(group)
        if place is None:
            raise ConfigError("no such group is read now", group=group, read=self.groups())
        return place.seat

    def _poll_steps(self, timeout: float | None) -> Turns[MessageBatch]:
        since_ns = 0 if self._tracing is None else time.time_ns()
        check_timeout(timeout)
        until = NEVER if timeout is None else time.monotonic() + timeout
        while True:
            if self._is_closed:
                raise ClosedError("consumer is closed", group=self.group)
            heartbeats = self._begin()
            heartbeats.note_poll()
            yield from self._find(heartbeats)
            for place in [*self._places.values()]:
                yield from self._turn(place, heartbeats)
            now = time.monotonic()
            batch = None if self._settles(now) else self._take(now, since_ns)
            if batch is not None:
                return batch
            if now >= until:
                return no_messages("")
            seats = [place.seat for place in self._places.values()]
            again_s = SETTLE_S if self._settles(now) else LOOK_S / 2
            nap = self._nap(seats, min(until, now + again_s))
            yield Nap((heartbeats.news, *nap.descriptors), nap.until)

    def _begin(self) -> HeartbeatThread:
        if self._heartbeats is None:
            self._topics = self._subscriptions.fixed()
            self._heartbeats = HeartbeatThread(
                poll_interval_max_s=self.group_options.poll_interval_max_s
            )
            self._heartbeats.start()
        return self._heartbeats

    def _find(self, heartbeats: HeartbeatThread) -> Turns[None]:
        """Be a member in all groups that have a topic, and answer."""
        told = [self._watch.topic_groups(topic) for topic in self._topics]
        names = {name for said in told for name in said.queues}
        unheard = {name for said in told for name in said.unheard}
        known = {group.name for group in self._watch.groups()}
        self._without |= known - names - unheard
        for name in sorted(names | self._places.keys()):
            group, place = self._watch.group(name), self._places.get(name)
            if place is None:
                if group is not None and group.answers:
                    self._places[name] = self._join(group, heartbeats)
                    self._turns.append(name)
            elif group is not None and group.answers and place.group.is_replaced:
                # Under its name it goes on with its queues at once, from what is committed.
                yield from self._drop(place, heartbeats)

    def _join(self, group: WatchedGroup, heartbeats: HeartbeatThread) -> _Place:
        options = self.group_options
        if group.name in self._without:
            # What it has came after this member: as queues that a topic gets in one group.
            options = replace(options, start="first")
        seat = GroupSeat(
            group.name,
            _link_to(group, self.name),
            options,
            self.options,
            group=self.group,
            client=self.name,
            subscription=self._topics,
        )
        heartbeats.add(_link_to(group, f"{self.name} heartbeats"), seat.member.heartbeats)
        return _Place(group, seat)

    def _turn(self, place: _Place, heartbeats: HeartbeatThread) -> Turns[None]:
        """Have a seat go on as far as it can, and tell the application of it."""
        seat, now = place.seat, time.monotonic()
        if seat.answers:
            place.answered_at = now
        if self._watch.group(seat.name) is None and not seat.is_leaving:
            # It was removed: what it has is read to its end.
            if now >= place.answered_at + MOVED_S:
                yield from self._drop(place, heartbeats)
                return
            if seat.has_nothing_left(now):
                seat.leave(seat.member.retire())
        while (notice := seat.turn(time.monotonic())) is not None:
            try:
                yield GroupNotice(seat.name, notice)
            except BaseException:
                seat.break_off()
                raise
            seat.told()
        if seat.has_left:
            self._forget(seat, heartbeats)

    def _drop(self, place: _Place, heartbeats: HeartbeatThread) -> Turns[None]:
        """Leave a group without a word to it."""
        queues = place.seat.member.reader.queues
        self._forget(place.seat, heartbeats)
        if queues:
            yield GroupNotice(place.seat.name, Notice("lost", tuple(sorted(queues))))

    def _forget(self, seat: GroupSeat, heartbeats: HeartbeatThread) -> None:
        del self._places[seat.name]
        self._turns.remove(seat.name)
        heartbeats.drop(seat.member.heartbeats)
        seat.close()

    def _settles(self, now: float) -> bool:
        """Whether a group that answers has begun just now to come to other shares."""
        since = [place.seat.moves_since() for place in self._places.values()]
        return any(begun is not None and now < begun + SETTLE_S for begun in since)

    def _take(self, now: float, since_ns: int) -> MessageBatch | None:
        """The next messages of the group whose turn it is, among those that have some."""
        for name in [*self._turns]:
            seat = self._places[name].seat
            batch = seat.take(now)
            if batch is None:
                continue
            reader = seat.member.reader
            try:
                # The next question leaves before the application works on this answer.
                seat.advance(now)
                if self._tracing is not None:
                    self._tracing.received(batch, self._reader, since_ns)
            except BaseException:
                # Interrupted: a commit would pass over what nobody was given.
                reader.put_back(batch)
                raise
            reader.note_given(batch)
            # All others have their turn before it.
            self._turns.remove(name)
            self._turns.append(name)
            batch.broker_group = name
            return batch
        return None

    def _finish(self, walks: Mapping[str, Walk[Result]]) -> Turns[None]:
        """Return when all have come to an end, each in the group of its name."""
        seats = [self._places[name].seat for name in walks]
        while True:
            now = time.monotonic()
            for seat in seats:
                seat.advance(now)
            if all(walk.is_done for walk in walks.values()):
                return
            yield self._nap(seats, NEVER)

    def _close_steps(self) -> Turns[None]:
        """Give all queues away, in all groups at once; raises what a listener has raised."""
        failure: BaseException | None = None
        seats = [place.seat for place in self._places.values()]
        for seat in seats:
            seat.leave(seat.farewell(), timeout_s=min(self.options.timeout_s, GOODBYE_S))
        while under_way := [seat for seat in seats if not seat.has_left]:
            for seat in under_way:
                while (notice := seat.turn(time.monotonic())) is not None:
                    try:
                        yield GroupNotice(seat.name, notice)
                    except BaseException as error:
                        failure = failure or error
                    seat.told()
            if any(not seat.has_left for seat in under_way):
                yield self._nap(under_way, NEVER)
        if failure is not None:
            raise failure

    def _end(self) -> None:
        """End the threads, and close all connections."""
        self._watch.close()
        for place in self._places.values():
            place.seat.close()
        self._places.clear()
        self._turns.clear()
        if self._heartbeats is not None:
            self._heartbeats.stop()

    def _nap(self, seats: Sequence[GroupSeat], until: float) -> Nap:
        descriptors = [self._bell.descriptor]
        for seat in seats:
            until = min(until, seat.deadline)
            descriptors += seat.requests.link.descriptors
        return Nap(tuple(descriptors), until)


def _link_to(group: WatchedGroup, client: str) -> AnyLink:
    context: Context = zmq.Context.instance()
    return broker_link(context, parse_addresses(group.address), client=client, is_watchful=False)
