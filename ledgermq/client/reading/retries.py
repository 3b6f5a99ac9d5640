"""Retries of a group: messages given back, and reads of its retry topic.

A message that is given back comes again by way of the group's retry topic, later and later each
time, and in the end it is a dead letter. Reading goes on behind it meanwhile.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ledgermq.client.core.received import MessageBatch, ReceivedMessage
from ledgermq.client.core.requests import Request, RequestPipeline, Steps, call_request, call_result
from ledgermq.client.core.wrong_calls import check_whole
from ledgermq.client.reading.pull_pipeline import (
    QUEUES_REFRESH_S,
    ConsumerOptions,
    PullPipeline,
    advance_all,
)
from ledgermq.client.reading.start_offsets import checked_group, starting_offsets
from ledgermq.model.errors import ConfigError, LedgerError, TopicUnknownError
from ledgermq.model.limits import LEVEL_MAX, TIMES_MAX
from ledgermq.model.message_filter import EVERYTHING
from ledgermq.model.names.group_topics import DEAD_LETTER_PREFIX, retry_topic
from ledgermq.verbs.answers import integer, text

DEAD = -1
"""Delay level that asks for no retry any more."""


class GivenBack(NamedTuple):
    """What became of a message that was given back.

    Attributes:
        topic: where it is going to be: the group's retry topic, or that of its dead letters; empty
            when the group has no retry queues, and it was dropped.
        delay_level: after which it is there; 0: at once.
        reconsume_times: how often it has been given back now.
        is_repeated: it was stored by an earlier attempt that was not answered.
    """

    topic: str
    delay_level: int
    reconsume_times: int
    is_repeated: bool

    @property
    def is_dead(self) -> bool:
        """Whether it is a dead letter now, and comes no more."""
        return self.topic.startswith(DEAD_LETTER_PREFIX)


def check_received(message: object) -> None:
    """Refuse what a consumer has not given.

    Raises:
        ConfigError: it is none of its messages.
    """
    if not isinstance(message, ReceivedMessage):
        raise ConfigError("what is given back is a message that a consumer gave", given=message)


def give_back_request(
    message: ReceivedMessage, group: str, *, delay_level: int, times_max: int | None
) -> Request:
    """The question that gives ``message`` back; asked again, it is known to be the same.

    Raises:
        ConfigError: a number is out of range, or it is no message.
    """
    check_received(message)
    check_whole("delay_level", delay_level, DEAD, LEVEL_MAX)
    if times_max is not None:
        check_whole("times_max", times_max, 0, TIMES_MAX)
    arguments: dict[str, object] = {
        "group": group,
        "topic": message.stored_topic,
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "position": message.physical_offset,
        "delay_level": delay_level,
        "token": secrets.token_hex(8),
    }
    if times_max is not None:
        arguments["max_reconsume_times"] = times_max
    return call_request("send_back", arguments)


def give_back_requests(
    messages: Sequence[ReceivedMessage], group: str, *, delay_level: int, times_max: int | None
) -> list[Request]:
    """The questions that give ``messages`` back, to be asked all at once.

    Raises:
        ConfigError: a number is out of range.
    """
    return [
        give_back_request(one, group, delay_level=delay_level, times_max=times_max)
        for one in messages
    ]


def given_back(request: Request) -> GivenBack:
    """The answer to ``give_back_request``.

    Raises:
        LedgerError: the broker refused, or did not answer: then it may be stored.
    """
    result = call_result(request)
    return GivenBack(
        text(result, "topic"),
        integer(result, "delay_level"),
        integer(result, "reconsume_times"),
        bool(result.get("repeated")),
    )


class RetryPulls(PullPipeline):
    """Pulls of a group's retry topic, which may come about later than the consumer.

    It begins where the group has committed, and at its first message where it has not.
    """

    def __init__(self, requests: RequestPipeline, group: str, options: ConsumerOptions) -> None:
        super().__init__(requests, retry_topic(group), EVERYTHING, options)
        self._group = group
        self._look_at = 0.0
        self._is_looking = False
        self._now = 0.0

    def look(self) -> None:
        """The topic exists by now: the next ``advance`` looks for it."""
        self._look_at = 0.0

    def advance(self, now: float) -> None:
        """Look for the topic now and then; ask what can be asked, take what was answered."""
        self._now = now
        if not self._queues and not self._is_looking and now >= self._look_at:
            self._is_looking = True
            self._look_at = now + QUEUES_REFRESH_S
            self._go_on(starting_offsets(self.topic, self._group, None, "stored"))
        super().advance(now)

    def take(self) -> MessageBatch | None:
        """The next batch; a topic that was deleted is looked for again."""
        try:
            return super().take()
        except TopicUnknownError:
            self._queues.clear()
            self._turn.clear()
            return None

    def _go_on(self, steps: Steps[dict[int, int]]) -> None:
        """Ask the next question of ``steps``, and read the queues that they end with."""
        try:
            request = next(steps)
        except StopIteration as end:
            self._is_looking = False
            self.begin(end.value, follows_route=True, now=self._now)
            return
        except LedgerError:
            # There is no such topic yet, or nobody answers: it is looked for again.
            self._is_looking = False
            return
        request.deadline = self._now + self.options.timeout_s
        request.callback = lambda _: self._go_on(steps)
        self.requests.ask(request)


class Reading:
    """What a consumer reads: its topic, and in turn with it what its group was given back."""

    def __init__(self, own: PullPipeline, retries: RetryPulls | None) -> None:
        self.own = own
        self.retries = retries
        self._pipelines = [own] if retries is None else [own, retries]

    @property
    def has_news(self) -> bool:
        """Whether ``take`` may give a batch, or raise."""
        return any(pulls.has_news for pulls in self._pipelines)

    def advance(self, now: float) -> None:
        advance_all(self._pipelines, now)

    def take(self) -> MessageBatch | None:
        """The next batch with messages; see ``PullPipeline.take``."""
        for pulls in tuple(self._pipelines):
            batch = pulls.take()
            if batch is not None:
                if pulls is self._pipelines[0]:
                    self._pipelines.reverse()
                return batch
        return None

    def put_back(self, batch: MessageBatch) -> None:
        self._of(batch).put_back(batch)

    def set_position(self, batch: MessageBatch) -> None:
        """All of ``batch`` was given to the application."""
        self._of(batch).set_position(batch.queue_id, batch.next_offset)

    def messages_of(self, batch: MessageBatch) -> Iterator[ReceivedMessage]:
        return self._of(batch).messages_of(batch)

    def positions(self) -> dict[str, dict[int, int]]:
        """Queue offset of the next message to be given, by topic and queue id."""
        found = {pulls.topic: pulls.positions() for pulls in self._pipelines}
        return {topic: offsets for topic, offsets in found.items() if offsets}

    def _of(self, batch: MessageBatch) -> PullPipeline:
        if self.retries is not None and batch.topic == self.retries.topic:
            return self.retries
        return self.own


def reads_retries(group: str | None, queues: Iterable[int] | None, retries: bool | None) -> bool:
    """Whether a consumer reads its group's retry topic.

    Args:
        retries: what the application says; ``None`` leaves it to who reads all queues of a topic
            for a group.

    Raises:
        ConfigError: it wants to, and has no group.
    """
    if retries is None:
        return group is not None and queues is None
    if retries:
        checked_group(group)
    return retries


Marks = Mapping[int, int] | MessageBatch | ReceivedMessage | None
"""What to note as read: queue offsets by queue id of the consumer's topic; a batch or a message,
and all before it in its queue; all that was given so far."""


def marked(
    marks: Marks, topic: str, reading: Callable[[], Reading]
) -> dict[str, Mapping[int, int]]:
    """The offsets to commit, by topic and queue id.

    Raises:
        ConfigError: they are none.
    """
    if marks is None:
        return dict(reading().positions())
    if isinstance(marks, MessageBatch):
        return {marks.topic: {marks.queue_id: marks.next_offset}} if len(marks) else {}
    if isinstance(marks, ReceivedMessage):
        return {marks.stored_topic: {marks.queue_id: marks.queue_offset + 1}}
    if not isinstance(marks, Mapping) or not all(type(one) is int for one in marks):
        raise ConfigError(
            "what is committed is neither a message, a batch, nor offsets by queue id", given=marks
        )
    return {topic: marks}
