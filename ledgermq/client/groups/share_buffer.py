"""Messages that a member of a share group has taken: what is in flight, and what is to be settled.

No socket and no thread here: what is to be asked are steps, for clients that block and clients that
await.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from math import inf
from time import monotonic
from typing import Self

from ledgermq.client.core.questions import ask, asking
from ledgermq.client.core.received import ReceivedMessage
from ledgermq.client.core.requests import Steps
from ledgermq.client.core.wrong_calls import check_whole, told_by_name
from ledgermq.client.reading.start_offsets import checked_group, checked_topic
from ledgermq.model.errors import ConfigError, LedgerError
from ledgermq.model.message_filter import ALL_TAGS, SQL_MARK, FilterKind, MessageFilter
from ledgermq.verbs.shares import (
    DONE,
    HANDLES_MAX,
    INVISIBLE_MS_MAX,
    INVISIBLE_MS_MIN,
    RECEIVE_WAIT_MS_MAX,
    RECEIVED_MAX,
    SETTLED,
    Action,
    ReceiveShared,
    SettleShared,
    SharedRun,
    late_of,
    shared_messages,
)
from ledgermq.verbs.verb import check_arguments

WAIT_S_MAX = RECEIVE_WAIT_MS_MAX / 1_000
"""For so long one question waits for messages."""

SETTLED_AT_ONCE = 32
"""The broker is told at once of so many messages what is to become of them."""

_UNSEEN: tuple[Action, int] = ("return", 0)
"""What becomes of messages that nobody was given."""

_ACCEPTED: tuple[Action, int] = ("accept", 0)


@told_by_name
@dataclass(frozen=True, slots=True, kw_only=True)
class ShareOptions:
    """How a member of a share group takes messages.

    Attributes:
        max_in_flight: messages that it has at most and has not settled.
        invisible_ms: for so long nobody else gets a message that it was given.
        filter: as ``A || B`` of tags, or a ``MessageFilter``. What it leaves out is settled for the
            whole group, whose members all have the same.
    """

    max_in_flight: int = 64
    invisible_ms: int = 30_000
    filter: str | MessageFilter = ALL_TAGS

    def __post_init__(self) -> None:
        for name, least, most in (
            ("max_in_flight", 1, 10_000),
            ("invisible_ms", INVISIBLE_MS_MIN, INVISIBLE_MS_MAX),
        ):
            check_whole(name, getattr(self, name), least, most)
        if not isinstance(self.filter, MessageFilter):
            MessageFilter.by_tags(self.filter)

    @property
    def filter_text(self) -> str:
        """The filter as the broker reads it."""
        of = self.filter
        if isinstance(of, str):
            of = MessageFilter.by_tags(of)
        return f"{SQL_MARK}{of.expression}" if of.kind is FilterKind.SQL92 else of.expression


class TakenMessage(ReceivedMessage):
    """A message that was handed out to a member of a share group.

    Attributes:
        handle: names this delivery of it.
        delivery: how often it was handed out, this time included.
        until: nobody else gets it before, epoch ms, by the leader's clock.
    """

    __slots__ = ("delivery", "handle", "run", "stale_at", "until")

    handle: str
    delivery: int
    until: int
    # With which it was handed out; and when half of its time is over, by the monotonic clock.
    run: SharedRun
    stale_at: float

    @classmethod
    def of(
        cls, topic: str, run: SharedRun, offset: int, record: memoryview, stale_at: float
    ) -> Self:
        """The message that the broker has told.

        Raises:
            CorruptLogError: its record is not one.
        """
        message = cls(topic, record, 0, len(record))
        message.handle, message.run, message.stale_at = run.handle_of(offset), run, stale_at
        message.delivery, message.until = run.delivery, run.until
        return message


class ShareBuffer:
    """What a member has of one topic.

    Invariant: a message is in ``_ready``, in ``_given``, or is settled or about to be.
    """

    def __init__(self, group: str, topic: str, options: ShareOptions) -> None:
        """Nothing is taken.

        Raises:
            ConfigError: group or topic is none.
        """
        self._group = checked_group(group)
        self._topic = checked_topic(topic)
        self._options = options
        self._filter = options.filter_text
        self._ready: deque[TakenMessage] = deque()
        self._accepts_along = False
        self._is_telling = False
        self._given: dict[str, TakenMessage] = {}
        self._said: dict[tuple[Action, int], dict[str, TakenMessage]] = {}

    @property
    def in_flight(self) -> int:
        """Messages that were taken and of which was not said what is to become of them."""
        return len(self._ready) + len(self._given)

    @property
    def is_ready(self) -> bool:
        """Whether there is a message that was not given to anybody."""
        return bool(self._ready)

    @property
    def has_room(self) -> bool:
        """Whether more may be taken before something is settled."""
        return self.in_flight < self._options.max_in_flight

    @property
    def is_due(self) -> bool:
        """Whether the broker is to be told what was said."""
        return sum(map(len, self._said.values())) >= SETTLED_AT_ONCE

    def refresh(self) -> None:
        """Have those given back that were taken too long ago to be given to anybody here: half of
        their time is over, and who is given one needs some of it.
        """
        if self._ready and (now := monotonic()) >= self._ready[0].stale_at:
            self._give_back_unseen(now)

    def give(self, count_max: int | None = None) -> list[TakenMessage]:
        """The next messages, at most so many."""
        count = len(self._ready) if count_max is None else min(count_max, len(self._ready))
        given = [self._ready.popleft() for _ in range(count)]
        self._given.update((message.handle, message) for message in given)
        return given

    def say(self, action: Action, messages: Iterable[TakenMessage], delay_ms: int = 0) -> None:
        """Have these settled with the next ``settle``.

        Raises:
            ConfigError: one was not taken by this member, or was settled.
        """
        named = self._checked(messages)
        check_whole("delay_ms", delay_ms, 0, INVISIBLE_MS_MAX)
        said = self._said.setdefault((action, delay_ms), {})
        for message in named:
            said[message.handle] = self._given.pop(message.handle)

    @property
    def goes_along(self) -> bool:
        """Whether ``receive`` tells the broker all that was said."""
        is_known = self._accepts_along and not self._is_telling and self.has_room
        is_all = self._said.keys() <= {_ACCEPTED}
        return is_known and is_all and len(self._said.get(_ACCEPTED, ())) <= HANDLES_MAX

    def receive(self, wait_ms: int) -> Steps[bool]:
        """Take messages as far as there is room; whether there are any to give. What was accepted
        is told by the same question, where the broker knows that; it is told again by ``settle``
        where that one is not answered.
        """
        room = min(self._options.max_in_flight - self.in_flight, RECEIVED_MAX)
        if room <= 0:
            return bool(self._ready)
        along: list[TakenMessage] = []
        if self.goes_along:
            along = list(self._said.get(_ACCEPTED, {}).values())
        asked = ReceiveShared(
            self._group,
            self._topic,
            room,
            invisible_ms=self._options.invisible_ms,
            wait_ms=wait_ms,
            filter=self._filter,
            accept=_named(along) if along else None,
        )
        check_arguments(asked)
        self._is_telling |= bool(along)
        try:
            answer = yield from ask(asked.NAME, **asked.arguments())
        except LedgerError:
            if not self._ready:
                raise
            # There is something to give, and more may not be had now.
            yield from self.settle()
            return True
        finally:
            if along:
                self._is_telling = False
        self._accepts_along = late_of(answer) is not None
        if self._accepts_along:
            self._note_told(_ACCEPTED, along)
        topic, stale_at = self._topic, monotonic() + self._options.invisible_ms / 2_000
        self._ready.extend(
            TakenMessage.of(topic, *told, stale_at) for told in shared_messages(answer)
        )
        return bool(self._ready)

    def _note_told(self, key: tuple[Action, int], told: Iterable[TakenMessage]) -> None:
        left = self._said.get(key, {})
        for message in told:
            left.pop(message.handle, None)
        if not left:
            self._said.pop(key, None)

    def settle(self) -> Steps[list[TakenMessage]]:
        """Tell the broker what was said; those of which it was too late: others have them, or will
        get them again. What was not told is told with the next call. No two at a time.
        """
        late: list[TakenMessage] = []
        for key in list(self._said):
            action, delay_ms = key
            while left := self._said.get(key):
                messages = list(islice(left.values(), HANDLES_MAX))
                handles = [message.handle for message in messages]
                rows = yield from asking(SettleShared(self._group, action, handles, delay_ms))
                self._note_told(key, messages)
                if key != _UNSEEN:
                    outcomes = zip(messages, rows, strict=True)
                    late += [one for one, row in outcomes if row.outcome not in (DONE, SETTLED)]
        return late

    def extend(self, messages: Iterable[TakenMessage], invisible_ms: int) -> Steps[bool]:
        """Keep messages for longer; false: of one it was too late.

        Raises:
            ConfigError: as of ``say``.
        """
        named = {message.handle: message for message in self._checked(messages)}
        check_whole("invisible_ms", invisible_ms, 0, INVISIBLE_MS_MAX)
        rows = yield from asking(SettleShared(self._group, "extend", list(named), invisible_ms))
        for row in rows:
            if row.outcome == DONE:
                named[row.handle].until = row.until
        return all(row.outcome == DONE for row in rows)

    def give_back(self) -> Steps[None]:
        """Settle what was said, and let others have the rest at once: what was given to nobody as
        if it had never been taken.
        """
        if self._given:
            self.say("release", list(self._given.values()))
        self._give_back_unseen(inf)
        yield from self.settle()

    def _checked(self, messages: Iterable[TakenMessage]) -> list[TakenMessage]:
        """Messages that are in flight here.

        Raises:
            ConfigError: one is not, or is none.
        """
        named = list(messages)
        for message in named:
            if not isinstance(message, TakenMessage):
                raise ConfigError(
                    "what is settled is messages that poll gave, each an argument: accept(*batch)",
                    kind=type(message).__name__,
                )
            if message.handle not in self._given:
                raise ConfigError(
                    "message is not one that this consumer has and has not settled",
                    topic=message.topic,
                    queue=message.queue_id,
                    offset=message.queue_offset,
                )
        return named

    def _give_back_unseen(self, until: float) -> None:
        """Those whose half time is over by then."""
        while self._ready and self._ready[0].stale_at <= until:
            message = self._ready.popleft()
            self._said.setdefault(_UNSEEN, {})[message.handle] = message


def _named(messages: Iterable[TakenMessage]) -> list[str]:
    """Handles of messages, one for those that follow one another and were handed out together."""
    found: list[str] = []
    # In the order in which they were said, which is mostly that of their queues.
    run, first, count = None, 0, 0
    for message in messages:
        offset = message.queue_offset
        if message.run is run and offset == first + count and not run.single:
            count += 1
            continue
        if run is not None:
            found.append(run.handles_of(first, count))
        run, first, count = message.run, offset, 1
    if run is not None:
        found.append(run.handles_of(first, count))
    return found
