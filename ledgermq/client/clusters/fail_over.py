"""Fail-over of messages to another group of a cluster, when one has not stored them in time.

Only of topics whose row allows it, and of messages that may go to any queue
(docs/decisions/0088). A message keeps its unique id, so that readers can tell that it is the same.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from ledgermq.client.blocking.send_driver import call_back
from ledgermq.client.clusters.used_group import ClusterSend, GroupSend, UsedGroup
from ledgermq.client.core.results import BatchResult, FrameResult, SendResult
from ledgermq.client.sending.message_options import BatchOptions, WholeMessages, shared_outgoing
from ledgermq.client.sending.outgoing import Body, OutgoingMessage
from ledgermq.client.sending.record_encoder import unique_id_behind
from ledgermq.client.sending.send_future import SendFuture
from ledgermq.formats.records.properties import DELAY
from ledgermq.model.errors import (
    BusyError,
    LedgerError,
    NotLeaderError,
    OutcomeUnknownError,
    QuotaError,
    TimedOutError,
)

logger = logging.getLogger(__name__)

Result = TypeVar("Result", SendResult, BatchResult)

ROOM_S = 0.02
"""While no group has room, all are looked at again so often: another one may have some sooner."""

Choose = Callable[[Collection[str], str], UsedGroup | None]
"""A group that takes the message at once, none of the first ones while another one answers, and the
second one, which had it last, if no other does."""


class FailOver:
    """Messages under way that may fail over, and a thread that sends them elsewhere.

    The thread begins with the first message that has to go elsewhere.
    """

    def __init__(self, *, name: str, window_bytes: int, waits_for_quota: bool) -> None:
        """``window_bytes``: so much waits to be sent elsewhere at most, before others may come."""
        self._name = name
        self._window_bytes = window_bytes
        self._waits_for_quota = waits_for_quota
        self._news = threading.Condition()
        self._waiting: list[FailoverCourse[SendResult] | FailoverCourse[BatchResult]] = []
        self._waiting_bytes = 0
        self._under_way = 0
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def wait_for(self, future: SendFuture[object], timeout: float | None) -> None:
        """Return when ``future`` is done.

        Raises:
            TimedOutError: it is not, after ``timeout`` seconds.
        """
        with self._news:
            if future.done():
                return
            waiter = future.waiter()
        seconds = threading.TIMEOUT_MAX if timeout is None else max(0.0, timeout)
        if not waiter.acquire(timeout=min(seconds, threading.TIMEOUT_MAX)):
            raise TimedOutError("no outcome yet; the message is under way", waited_s=timeout)
        # Others may wait at the same lock.
        waiter.release()

    def wait_for_room(self, size: int, until: float) -> None:
        """Return when a message of ``size`` bytes may come.

        Raises:
            BusyError: it may not at ``until``.
        """
        with self._news:
            seconds = max(0.0, until - time.monotonic())
            if not self._news.wait_for(lambda: not self.is_full(size), seconds):
                raise BusyError(
                    "messages that wait to be sent to another group fill the producer's window",
                    bytes=self._waiting_bytes,
                    limit=self._window_bytes,
                    setting="window_bytes",
                )

    def is_full(self, size: int) -> bool:
        """Whether a message of ``size`` bytes has to wait before it may come."""
        return bool(self._waiting_bytes) and self._waiting_bytes + size > self._window_bytes

    @property
    def is_idle(self) -> bool:
        """Whether every message that may fail over has its outcome."""
        return not self._under_way

    def wait_until_idle(self, until: float) -> bool:
        """Return when every message has its outcome; false when not at ``until``."""
        with self._news:
            seconds = min(max(0.0, until - time.monotonic()), threading.TIMEOUT_MAX)
            return self._news.wait_for(lambda: not self._under_way, seconds)

    def close(self) -> None:
        """Send nothing elsewhere any more; what waits for that fails."""
        with self._news:
            self._is_closed = True
            self._news.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def begins(self) -> None:
        """A message comes."""
        with self._news:
            self._under_way += 1

    def ends(self) -> None:
        """It was not sent after all."""
        with self._news:
            self._under_way -= 1
            self._news.notify_all()

    def take(
        self, course: FailoverCourse[SendResult] | FailoverCourse[BatchResult], error: LedgerError
    ) -> bool:
        """Have a message sent elsewhere that a group has not stored; false: it fails."""
        if not error.retriable or (isinstance(error, QuotaError) and not self._waits_for_quota):
            return False
        with self._news:
            if self._is_closed or time.monotonic() >= course.until:
                return False
            self._waiting.append(course)
            self._waiting_bytes += course.size
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name=f"ledgermq-{self._name}-fail-over", daemon=True
                )
                self._thread.start()
            self._news.notify_all()
        return True

    def settle(self, outcome: SendFuture[Result], found: SendFuture[Result] | LedgerError) -> None:
        """A message has its outcome."""
        with self._news:
            if isinstance(found, LedgerError):
                outcome.settle(found)
            else:
                outcome.settle_as(found)
            self._under_way -= 1
            self._news.notify_all()
        if outcome.callback is not None:
            call_back(outcome)

    def _run(self) -> None:
        try:
            while True:
                with self._news:
                    self._news.wait_for(lambda: self._waiting or self._is_closed)
                    if self._is_closed:
                        return
                    courses = [*self._waiting]
                left = [course for course in courses if not course.go_on()]
                with self._news:
                    self._waiting[: len(courses)] = left
                    self._waiting_bytes = sum(course.size for course in self._waiting)
                    self._news.notify_all()
                    if left and not self._is_closed:
                        self._news.wait(ROOM_S)
        finally:
            with self._news:
                self._is_closed = True
                courses, self._waiting = self._waiting, []
            for course in courses:
                course.give_up()


class FailoverCourse(Generic[Result]):
    """One message, or one batch, from group to group.

    Attributes:
        outcome: what the application waits for.
        until: it is not sent elsewhere after that.
        size: bytes, nearly.
    """

    def __init__(
        self,
        owner: FailOver,
        sending: ClusterSend[Result],
        choose: Choose,
        *,
        until: float,
    ) -> None:
        self.size = sending.size
        self.until = until
        self._owner = owner
        self._send: GroupSend[Result] = sending.send
        self._choose = choose
        self._group = ""
        self._may_be_in: set[str] = set()
        self._error: LedgerError | None = None
        self.outcome: SendFuture[Result] = SendFuture(owner, self._result_of, "", sending.callback)

    def begin(self, used: UsedGroup) -> SendFuture[Result]:
        """Send it to the first group; waits for nothing.

        Raises:
            LedgerError: it was not sent.
        """
        self._owner.begins()
        self._group = used.group.name
        try:
            sent = used.send(self._send, self._settle, block=False)
        except BaseException:
            self._owner.ends()
            raise
        if not self.outcome.unique_id:
            self.outcome.unique_id = sent.unique_id
        return self.outcome

    def go_on(self) -> bool:
        """Send it to another group; false: none takes it now."""
        if time.monotonic() >= self.until:
            self.give_up()
            return True
        used = self._choose(self._may_be_in, self._group)
        if used is None:
            return False
        self._group = used.group.name
        try:
            used.send(self._send, self._settle, block=False, first_id=self.outcome.unique_id)
        except (BusyError, NotLeaderError):
            # Its window was filled just now, or its leader is gone: nothing was sent.
            return False
        except LedgerError as error:
            self._error = error
            self.give_up()
        return True

    def give_up(self) -> None:
        """It has the outcome that it had in the last group, or in one that may have stored it."""
        error = self._error
        assert error is not None, "it has failed in a group"
        if self._may_be_in and not isinstance(error, OutcomeUnknownError):
            error = OutcomeUnknownError(
                "an earlier attempt may be stored", groups=sorted(self._may_be_in), then=str(error)
            )
        self._owner.settle(self.outcome, error)

    def _result_of(self, _answer: FrameResult) -> Result:
        raise AssertionError("where it is stored says the future of the group that has stored it")

    def _settle(self, sent: SendFuture[Result]) -> None:
        """A group has stored it, or not."""
        if not self.outcome.unique_id:
            # It was faster than who has sent it.
            self.outcome.unique_id = sent.unique_id
        error = sent.exception()
        if error is None:
            self._owner.settle(self.outcome, sent)
            return
        self._error = error
        if isinstance(error, OutcomeUnknownError):
            self._may_be_in.add(self._group)
        if not self._owner.take(self, error):
            self.give_up()


def waits(options: BatchOptions, messages: Sequence[Body] | Sequence[OutgoingMessage]) -> bool:
    """Whether messages wait for a time of delivery: they stay in the group where they do, for who
    takes one back asks that one."""
    if options.get("delay_level") or options.get("delay") is not None:
        return True
    if options.get("deliver_at") is not None or DELAY in (options.get("properties") or {}):
        return True
    return any(
        isinstance(one, OutgoingMessage) and DELAY in (one.properties or {}) for one in messages
    )


def kept(
    topic: str,
    messages: Sequence[Body] | Sequence[OutgoingMessage],
    options: BatchOptions,
    first_id: str,
) -> WholeMessages:
    """Messages of a batch that may be sent again: the application may change its buffers.

    Args:
        options: what messages that are bare bodies share.
        first_id: the unique id that the first one has had; empty: it was not sent yet. The others'
            are known by it, unless the application gave it: then they are drawn anew.
    """
    has_own = any(isinstance(one, OutgoingMessage) and one.unique_id for one in messages[:1])
    is_drawn = bool(first_id) and not has_own

    def one(number: int, given: Body | OutgoingMessage) -> OutgoingMessage:
        message = given if isinstance(given, OutgoingMessage) else replace(shared, body=given)
        if type(message.body) is not bytes:
            message = replace(message, body=bytes(message.body))
        if is_drawn and message.unique_id is None:
            message = replace(message, unique_id=unique_id_behind(first_id, number))
        return message

    _, shared = shared_outgoing(topic, messages, "send_batch", **options)
    return WholeMessages(one(number, given) for number, given in enumerate(messages))
