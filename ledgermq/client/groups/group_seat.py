"""Seat of a member in one of several groups of brokers: driven without waiting for any of them.

Who waits for the answers of all of them calls ``turn`` of each, and tells the application what that
gives it to tell.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from typing import Any

from ledgermq.client.core.nodes import AnyLink
from ledgermq.client.core.questions import queue
from ledgermq.client.core.received import MessageBatch, ReceivedMessage
from ledgermq.client.core.requests import BACKOFF_S, Request, RequestPipeline, Result, Steps
from ledgermq.client.errand import StepsUnderWay
from ledgermq.client.groups.group_member import (
    Course,
    GroupMember,
    GroupOptions,
    Notice,
    Subscription,
)
from ledgermq.client.groups.group_reader import Offsets
from ledgermq.client.reading.pull_pipeline import ConsumerOptions
from ledgermq.client.reading.retries import GivenBack, given_back
from ledgermq.model.errors import LedgerError, TopicUnknownError

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
            if offset < (yield from queue(one.topic, one.queue_id)).end:
                return False
        return positions == self.member.reader.positions()


def _given_back(requests: Sequence[Request]) -> Steps[list[GivenBack]]:
    found = []
    for request in requests:
        yield request
        found.append(given_back(request))
    return found
