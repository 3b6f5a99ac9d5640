"""Notice of topic changes to the writer, and the answers that wait for it.

A producer who is told of a new topic sends to it at once, and who is told that one is deleted
expects that it takes nothing any more: both are true when the writer has read the table. A new
leader's writer takes nothing before it was told that the tables are those of all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from ledgermq.broker.callers import Caller
from ledgermq.broker.calls import Call, Result
from ledgermq.broker.service import Mailbox, Service
from ledgermq.broker.state.broker_tables import BrokerTables
from ledgermq.broker.state.state_requests import Reply
from ledgermq.ipc.orders import TopicsLoaded
from ledgermq.model.errors import LedgerError, OutcomeUnknownError

CONFIRMATION_MS = 2_000
"""Longest wait for the writer to read a new topic; it is restarted within milliseconds."""

TOPICS_WAITING_MAX = 10_000


class _Waiting(NamedTuple):
    caller: Caller
    topic: str
    answer: Callable[[], Result]
    revision: int
    deadline_ms: int


class Lead(Protocol):
    """What ``StateLog`` knows of this node's lead."""

    @property
    def term(self) -> int: ...

    @property
    def is_held_up(self) -> bool: ...


class WriterNotice(Service):
    """Owned by the broker process.

    Invariant: ``_loaded_revision`` is the newest content of the topic table that the writer has
    told to have read, in the term ``_loaded_term``; a topic that changed later is in
    ``_unconfirmed``.

    Attributes:
        writer_start: how often the writer was started that is told.
    """

    name = "writer's notice"

    def __init__(self, tables: BrokerTables, mailbox: Mailbox, log: Lead) -> None:
        self._tables = tables
        self._log = log
        self._mailbox = mailbox
        self._waiting: list[_Waiting] = []
        self.writer_start = 0
        # Nobody knows what the writer has read before this process was started.
        self._loaded_revision = -1
        self._loaded_term = 0
        self._unconfirmed: dict[str, int] = {}

    @property
    def is_confirmed(self) -> bool:
        """Whether the writer has read the newest topic table, and knows that it is that of all."""
        is_read = self._loaded_revision >= self._tables.topics_revision
        return is_read and self.complete_term in (0, self._loaded_term)

    @property
    def complete_term(self) -> int:
        """Term in which this node leads by tables that have all that was acknowledged before; else
        0.
        """
        is_behind = self._log.is_held_up or self._tables.is_starting
        return 0 if is_behind else self._log.term

    @property
    def known(self) -> int:
        """The newest content of the topic table that the writer knows; -1 when nobody knows."""
        return self._loaded_revision

    def look_at_writer(self, start: int) -> None:
        """A writer that was started anew knows what the files say."""
        if start != self.writer_start:
            self.writer_start = start
            self._loaded_revision = -1

    def order(self) -> bytes | None:
        """What tells the writer of the newest tables; see ``BrokerTables.order_for_writer``."""
        return self._tables.order_for_writer(
            self._loaded_revision, term=self.complete_term, writer_start=self.writer_start
        )

    @property
    def waiting(self) -> int:
        """Answers that wait for the writer."""
        return len(self._waiting)

    def expect(self, topic: str) -> None:
        """``topic`` was changed by the command that is being applied."""
        revision = self._tables.topics_revision + self._tables.has_news
        if revision > self._loaded_revision:
            self._unconfirmed[topic] = revision

    def answer_changed(self, call: Call, topic: str, answer: Callable[[], Result]) -> Result | None:
        """The answer to a call whose command, that is being applied, has changed ``topic``."""
        self.expect(topic)
        return self.answer(call.caller, topic, answer, call.now_ms)

    def answer(
        self, caller: Caller, topic: str, answer: Callable[[], Result], now_ms: int
    ) -> Result | None:
        """The answer, ``None`` when it is given as soon as the writer knows what ``topic`` is now.

        Raises:
            OutcomeUnknownError: too many wait; the topic is changed.
            LedgerError: the answer's own.
        """
        revision = self._unconfirmed.get(topic)
        if revision is None:
            return answer()
        if len(self._waiting) >= TOPICS_WAITING_MAX:
            raise OutcomeUnknownError(
                "topic is changed, and too many wait for the writer to take notice; ask again",
                limit=TOPICS_WAITING_MAX,
            )
        self._waiting.append(_Waiting(caller, topic, answer, revision, now_ms + CONFIRMATION_MS))
        return None

    def confirmed(self, loaded: TopicsLoaded) -> None:
        """The writer knows the topic table of a version: answer who has waited for it.

        Version 0 says that it knows less than it was told to know.
        """
        revision = loaded.version
        if loaded.writer_start != self.writer_start:
            # What an earlier one has known is lost.
            return
        if revision == 0:
            self._loaded_revision = -1
            return
        self._loaded_revision, self._loaded_term = max(self._loaded_revision, revision), loaded.term
        self._unconfirmed = {
            topic: newer for topic, newer in self._unconfirmed.items() if newer > revision
        }
        ready = [waiting for waiting in self._waiting if waiting.revision <= revision]
        self._waiting = [waiting for waiting in self._waiting if waiting.revision > revision]
        self._mailbox += [Reply(waiting.caller, _outcome(waiting)) for waiting in ready]

    def turn(self, now_ms: int) -> None:
        """Refuse the calls that have waited long enough."""
        if not self._waiting or self._waiting[0].deadline_ms > now_ms:
            return
        late = [waiting for waiting in self._waiting if waiting.deadline_ms <= now_ms]
        self._waiting = [waiting for waiting in self._waiting if waiting.deadline_ms > now_ms]
        self._mailbox += [_not_confirmed(waiting) for waiting in late]

    def end_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._mailbox += [_not_confirmed(one) for one in waiting]

    def next_deadline_ms(self) -> int | None:
        """When the next call has waited long enough; ``None`` when none waits."""
        return self._waiting[0].deadline_ms if self._waiting else None


def _outcome(waiting: _Waiting) -> Result | LedgerError:
    try:
        return waiting.answer()
    except LedgerError as error:
        # Deleted before it was confirmed.
        return error


def _not_confirmed(waiting: _Waiting) -> Reply:
    # Not that the node does not lead: who hears that takes the topic for unchanged.
    error = OutcomeUnknownError(
        "topic is changed, and the writer has not taken notice of it; ask again",
        topic=waiting.topic,
        waited_max_ms=CONFIRMATION_MS,
    )
    return Reply(waiting.caller, error)
