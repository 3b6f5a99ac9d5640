"""Questions about half messages on their way to producers: who waits for them, and who is asked.

RocketMQ writes to a connection that a producer has opened. Here a producer asks what there is to be
answered, and its call waits until there is something: a long poll. What nobody has fetched until
the next round of checks is asked anew then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ledgermq.broker.half_table import HalfTable, TransactionKey
from ledgermq.broker.transactions import Half
from ledgermq.model.errors import BusyError, LedgerError
from ledgermq.serving.state_requests import Caller, Reply

CHECKS_PER_ANSWER = 32
WAITING_MAX = 10_000


class Check(NamedTuple):
    """A question: how did this transaction end?

    Attributes:
        positions: of its half messages in the log.
        checks: how often it was asked before.
    """

    key: TransactionKey
    positions: tuple[int, ...]
    checks: int

    def to_fields(self) -> dict[str, object]:
        """As in the answer."""
        return {
            "transaction": self.key.transaction,
            "positions": list(self.positions),
            "checks": self.checks,
        }


class _Waiting(NamedTuple):
    caller: Caller
    until_ms: int


def checks_of(halves: Iterable[Half], table: HalfTable) -> list[Check]:
    """One question for each transaction of these half messages that still waits."""
    found: dict[TransactionKey, int] = {}
    for half in halves:
        key = TransactionKey(half.group, half.transaction)
        found[key] = max(found.get(key, 0), half.checks)
    return [
        Check(key, tuple(half.position for half in waiting), checks)
        for key, checks in found.items()
        if (waiting := table.messages_of(key))
    ]


class CheckDesk:
    """Owned by the broker process.

    Invariant: of a group, either questions wait for producers, or producers for questions.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, deque[_Waiting]] = {}
        self._waiting_count = 0
        self._open: dict[str, deque[Check]] = {}

    def next_deadline_ms(self) -> int | None:
        """When the next producer has waited long enough; None when none waits."""
        return min((one.until_ms for line in self._waiting.values() for one in line), default=None)

    def wait(self, caller: Caller, group: str, until_ms: int) -> Reply | None:
        """The questions for a producer of ``group``, None when it waits for them.

        Raises:
            BusyError: too many wait.
        """
        if self._open.get(group):
            return Reply(caller, self._take(group))
        if self._waiting_count >= WAITING_MAX:
            raise BusyError("too many producers wait for questions", limit=WAITING_MAX)
        self._waiting.setdefault(group, deque()).append(_Waiting(caller, until_ms))
        self._waiting_count += 1
        return None

    def begin_round(self) -> None:
        """What was not fetched is asked anew, if it is still to be asked."""
        self._open.clear()

    def ask(self, checks: Iterable[Check]) -> Iterator[Reply]:
        """Questions to who waits for them, in turns; the others are kept for who comes."""
        groups = set()
        for check in checks:
            self._open.setdefault(check.key.group, deque()).append(check)
            groups.add(check.key.group)
        for group in groups:
            while self._open.get(group) and self._waiting.get(group):
                waiting = self._leave(group)
                yield Reply(waiting.caller, self._take(group))

    def due(self, now_ms: int) -> Iterator[Reply]:
        """Empty answers to who has waited long enough; those of a group wait alike long, nearly."""
        for group in list(self._waiting):
            while group in self._waiting and self._waiting[group][0].until_ms <= now_ms:
                yield Reply(self._leave(group).caller, {"checks": []})

    def end_all(self, error: LedgerError) -> Iterator[Reply]:
        """Refusals of all that wait; no question is open any more."""
        self._open.clear()
        for group in list(self._waiting):
            while group in self._waiting:
                yield Reply(self._leave(group).caller, error)

    def _leave(self, group: str) -> _Waiting:
        line = self._waiting[group]
        waiting = line.popleft()
        self._waiting_count -= 1
        if not line:
            del self._waiting[group]
        return waiting

    def _take(self, group: str) -> dict[str, object]:
        line = self._open[group]
        taken = [line.popleft() for _ in range(min(len(line), CHECKS_PER_ANSWER))]
        if not line:
            del self._open[group]
        return {"checks": [check.to_fields() for check in taken]}
