"""Check desk: transaction checks that wait for a producer, and producers that wait for one.

RocketMQ writes to a connection that a producer has opened. Here a producer asks what there is to be
answered, and its call waits until there is something: a long poll. What nobody has fetched until
the next round of checks is asked anew then.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from ledgermq.broker.callers import Caller, Client, OwnClient, PortClient
from ledgermq.broker.state.state_requests import Reply
from ledgermq.model.errors import BusyError, LedgerError
from ledgermq.rules.messages.half_table import HalfTable, TransactionKey
from ledgermq.rules.messages.transactions import Half

CHECKS_PER_ANSWER = 32
QUESTIONS_WAITING_MAX = 10_000
WAITING_PER_CLIENT_MAX = 1_024
"""Most requests of one of our own clients that wait for questions; ``QUESTIONS_WAITING_MAX`` are
the most of all of them."""


class PendingCheck(NamedTuple):
    """A question: how did this transaction end?

    Attributes:
        positions: of its half messages in the log.
        checks: how often it was asked before.
        topics: where its messages belong.
    """

    key: TransactionKey
    positions: tuple[int, ...]
    checks: int
    topics: frozenset[str]

    def to_fields(self) -> dict[str, object]:
        """The question's fields in the answer."""
        return {
            "transaction": self.key.transaction,
            "positions": list(self.positions),
            "checks": self.checks,
        }


May = Callable[[str], bool]
"""Whether a producer may send to a topic."""


class _Waiting(NamedTuple):
    caller: Caller
    until_ms: int
    may: May


def checks_of(halves: Iterable[Half], table: HalfTable) -> list[PendingCheck]:
    """One question for each transaction of these half messages that still waits."""
    found: dict[TransactionKey, int] = {}
    for half in halves:
        key = TransactionKey(half.group, half.transaction)
        found[key] = max(found.get(key, 0), half.checks)
    return [
        PendingCheck(
            key,
            tuple(half.position for half in waiting),
            checks,
            frozenset(half.topic for half in waiting),
        )
        for key, checks in found.items()
        if (waiting := table.messages_of(key))
    ]


class CheckDesk:
    """Owned by the broker process.

    Invariant: of a group, either questions wait for producers, or producers for questions; but for
    producers that may not send to the topics of any question, and are not told of them.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, deque[_Waiting]] = {}
        self._waiting_of: Counter[Client] = Counter()
        self._open: dict[str, deque[PendingCheck]] = {}

    def next_deadline_ms(self) -> int | None:
        """When the next producer has waited long enough; None when none waits."""
        return min((one.until_ms for line in self._waiting.values() for one in line), default=None)

    def wait(self, caller: Caller, group: str, until_ms: int, may: May) -> Reply | None:
        """The questions for a producer of ``group``, None when it waits for them.

        Args:
            may: the producer gets questions alone of whose topics all are such.

        Raises:
            BusyError: too many wait.
        """
        taken = self._take(group, may)
        if taken:
            return _answer(caller, taken)
        if not isinstance(caller.client, PortClient):
            self._check_room(caller.client)
        self._waiting.setdefault(group, deque()).append(_Waiting(caller, until_ms, may))
        self._waiting_of[caller.client] += 1
        return None

    def _check_room(self, client: OwnClient) -> None:
        """RocketMQ's clients wait through the port, which bounds them."""
        mine = self._waiting_of[client]
        if mine >= WAITING_PER_CLIENT_MAX:
            raise BusyError(
                "client waits for too many questions", waiting=mine, limit=WAITING_PER_CLIENT_MAX
            )
        if self._waiting_of.total() >= QUESTIONS_WAITING_MAX:
            raise BusyError("too many producers wait for questions", limit=QUESTIONS_WAITING_MAX)

    def begin_round(self) -> None:
        """What was not fetched is asked anew, if it is still to be asked."""
        self._open.clear()

    def ask(self, checks: Iterable[PendingCheck]) -> Iterator[Reply]:
        """Questions to who waits for them, in turns; the others are kept for who comes."""
        groups = set()
        for check in checks:
            self._open.setdefault(check.key.group, deque()).append(check)
            groups.add(check.key.group)
        for group in groups:
            yield from self._hand_out(group)

    def _hand_out(self, group: str) -> Iterator[Reply]:
        for waiting in tuple(self._waiting.get(group, ())):
            if not self._open.get(group):
                return
            taken = self._take(group, waiting.may)
            if taken:
                self._leave(group, waiting)
                yield _answer(waiting.caller, taken)

    def due(self, now_ms: int) -> Iterator[Reply]:
        """Empty answers to who has waited long enough; those of a group wait alike long, nearly."""
        for group in list(self._waiting):
            while group in self._waiting and self._waiting[group][0].until_ms <= now_ms:
                yield _answer(self._leave(group).caller, [])

    def end_all(self, error: LedgerError) -> Iterator[Reply]:
        """Refusals of all that wait; no question is open any more."""
        self._open.clear()
        for group in list(self._waiting):
            while group in self._waiting:
                yield Reply(self._leave(group).caller, error)

    def _leave(self, group: str, one: _Waiting | None = None) -> _Waiting:
        """Let one go that waits, the first if none is named."""
        line = self._waiting[group]
        waiting = line[0] if one is None else one
        line.remove(waiting)
        self._waiting_of[waiting.caller.client] -= 1
        if not self._waiting_of[waiting.caller.client]:
            del self._waiting_of[waiting.caller.client]
        if not line:
            del self._waiting[group]
        return waiting

    def _take(self, group: str, may: May) -> list[PendingCheck]:
        """Questions for a producer of a group; the others stay."""
        line = self._open.get(group, deque())
        taken: list[PendingCheck] = []
        left: deque[PendingCheck] = deque()
        while line and len(taken) < CHECKS_PER_ANSWER:
            check = line.popleft()
            (taken if all(map(may, check.topics)) else left).append(check)
        left.extend(line)
        if left:
            self._open[group] = left
        else:
            self._open.pop(group, None)
        return taken


def _answer(caller: Caller, taken: Iterable[PendingCheck]) -> Reply:
    return Reply(caller, {"checks": [check.to_fields() for check in taken]})
