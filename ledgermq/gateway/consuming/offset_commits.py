"""Batching of offset commits by RocketMQ's consumers: one command of the log for many.

Consumers commit with each pull, and all they have every five seconds. The latest offset of a queue
is the one that counts; what the tables have already is not sent at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from ledgermq.broker.administration.offset_calls import ROWS_MAX, OffsetCommit
from ledgermq.broker.calls import Result
from ledgermq.broker.state.broker_tables import BrokerTables
from ledgermq.gateway.parts import PortPart
from ledgermq.gateway.port_calls import PortCalls
from ledgermq.model.errors import BusyError, LedgerError, MessageIllegalError, NotLeaderError
from ledgermq.model.limits import GROUP_SIZE_MAX
from ledgermq.rules.tables.group_offsets import GroupTopic
from ledgermq.wire.session import Standing

PERIOD_MS = 100
"""Shortest time between two writes to the log of offsets that nobody waits for."""

OFFSETS_WAITING_MAX = 10_000

NOTED_MAX = 65_536
"""Queues whose offsets are gathered; what consumers of more say one-way they say again."""


Done = Callable[[LedgerError | None], None]
"""Told once an offset is stored, or why it is not."""


class _Waiting(NamedTuple):
    place: tuple[str, str, int]
    done: Done


class NotesOffsets(Protocol):
    """Takes what consumers have consumed."""

    def note(self, group: str, topic: str, queue_id: int, offset: int, *, owner: str) -> None:
        """Have an offset stored, soon; one that cannot be goes nowhere.

        Args:
            owner: whose creation the group is if there is none yet.
        """
        ...


class OffsetCommits(PortPart):
    """Owned by the port.

    Invariants: one batch is under way at most; an offset is in ``_noted``, or in the batch, or
    known to the tables, or was refused. ``_noted_count`` queues are in ``_noted``, and ``_owners``
    has who has noted something of each of its groups and topics last. While this node does not lead
    there are none.
    """

    def __init__(self, calls: PortCalls, tables: BrokerTables) -> None:
        self._calls = calls
        self._tables = tables
        self._leads = False
        self._noted: dict[GroupTopic, dict[int, int]] = {}
        self._noted_count = 0
        self._owners: dict[GroupTopic, str] = {}
        self._waiting: list[_Waiting] = []
        self._sent: dict[GroupTopic, dict[int, int]] = {}
        self._is_under_way = False
        self._due_ms = 0

    def tell_standing(self, standing: Standing) -> None:
        """Another node may lead now: it is told by the consumers, within seconds."""
        self._leads = standing.leads
        if not standing.leads:
            self._noted.clear()
            self._owners.clear()
            self._noted_count = 0
            waiting, self._waiting = self._waiting, []
            for one in waiting:
                one.done(NotLeaderError("node does not lead now: the offset was not stored"))

    def note(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        done: Done | None = None,
        *,
        owner: str = "",
    ) -> None:
        """Have an offset stored, soon; without ``done`` one that cannot be goes nowhere.

        Args:
            owner: whose creation the group is if there is none yet; empty: nobody's.

        Raises:
            NotLeaderError: this node does not lead, and somebody waits.
            MessageIllegalError: a name is longer than any that there is, and somebody waits.
            BusyError: too many wait, or too many queues are gathered and somebody waits.
        """
        error = self._refusal(group, topic)
        if error is not None:
            if done is not None:
                raise error
            return
        noted = GroupTopic(group, topic)
        if done is not None:
            if len(self._waiting) >= OFFSETS_WAITING_MAX:
                raise BusyError("too many wait for offsets to be stored", limit=OFFSETS_WAITING_MAX)
            self._waiting.append(_Waiting((group, topic, queue_id), done))
        elif self.offset(group, topic, queue_id) == offset:
            return
        self._owners[noted] = owner
        of = self._noted.setdefault(noted, {})
        self._noted_count += queue_id not in of
        of[queue_id] = offset

    def _refusal(self, group: str, topic: str) -> LedgerError | None:
        if not self._leads:
            return NotLeaderError("node does not lead now: the offset was not stored")
        size = max(len(group), len(topic))
        if size > GROUP_SIZE_MAX:
            return MessageIllegalError("name is too long", characters=size, limit=GROUP_SIZE_MAX)
        if self._noted_count >= NOTED_MAX:
            return BusyError("offsets of too many queues wait to be stored", limit=NOTED_MAX)
        return None

    def offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """What a group has committed last, whether it is stored yet or not; None for nothing."""
        owner = GroupTopic(group, topic)
        for gathered in (self._noted, self._sent):
            found = gathered.get(owner, {}).get(queue_id)
            if found is not None:
                return found
        return self._tables.offsets.offset(group, topic, queue_id)

    def next_deadline_ms(self) -> int | None:
        """When ``turn`` has something to send; None while there is nothing, or no way."""
        if not self._noted or self._is_under_way:
            return None
        return 0 if self._waiting else self._due_ms

    def turn(self, now_ms: int) -> None:
        """Send what was noted, if it is time to."""
        due_ms = self.next_deadline_ms()
        if due_ms is None or now_ms < due_ms:
            return
        owners = list(self._noted)[:ROWS_MAX]
        self._sent = {owner: self._noted.pop(owner) for owner in owners}
        self._noted_count -= sum(map(len, self._sent.values()))
        waiting: list[_Waiting] = []
        later: list[_Waiting] = []
        for one in self._waiting:
            (waiting if GroupTopic(*one.place[:2]) in self._sent else later).append(one)
        self._waiting = later
        self._due_ms = now_ms + PERIOD_MS
        self._is_under_way = True
        commits = [
            OffsetCommit(noted.group, noted.topic, of, self._owners.pop(noted))
            for noted, of in self._sent.items()
        ]

        def take(outcome: Result | LedgerError) -> None:
            self._is_under_way = False
            self._sent = {}
            _tell(waiting, outcome)

        self._calls.ask("offsets_store", {"commits": commits}, now_ms, take)


def _tell(waiting: list[_Waiting], outcome: Result | LedgerError) -> None:
    refused: dict[tuple[str, str, int], str] = {}
    if not isinstance(outcome, LedgerError):
        rows = outcome["refused"]
        assert isinstance(rows, list)
        refused = {(group, topic, queue_id): reason for group, topic, queue_id, reason in rows}
    for place, done in waiting:
        if isinstance(outcome, LedgerError):
            done(outcome)
        elif place in refused:
            done(MessageIllegalError(refused[place]))
        else:
            done(None)
