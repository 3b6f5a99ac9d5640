"""Table of pending half messages, as the leader reads it from the log.

It is read from the half queue and the op queue, and belongs to nobody else: a leader that begins
reads it anew, from where the queues' consumer group says (``transactions.GROUP``), as RocketMQ's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import NamedTuple

from ledgermq.model.errors import (
    MessageIllegalError,
    TransactionEndedError,
    TransactionUnknownError,
)
from ledgermq.model.names.transactions import MESSAGES_MAX, SIZE_MAX, Decision
from ledgermq.rules.messages.transactions import Half, Op, Way

ENDED_MAX = 10_000
"""Most transactions that are remembered after their end, to answer who asks again."""


class TransactionKey(NamedTuple):
    """A transaction belongs to a group of producers: those of two groups are never the same."""

    group: str
    transaction: str


class CheckRules(NamedTuple):
    """When to ask, and how often.

    Attributes:
        timeout_ms: a half message is left alone for so long.
        checks_max: one that was asked for so often is discarded.
        age_max_ms: one that is older is discarded.
    """

    timeout_ms: int
    checks_max: int
    age_max_ms: int


class Round(NamedTuple):
    """What one round of checks does, with as many messages as go into one group.

    Attributes:
        again, asked: to be put again, and those of them that are asked for. The others have asked
            for more time; that they were passed over counts as no check.
        discarded: nobody has answered for them.
        floor: no half message below it waits any more, once that is done.
        is_last: there is nothing behind it to look at now.
    """

    again: tuple[Half, ...]
    asked: tuple[Half, ...]
    discarded: tuple[Half, ...]
    floor: int
    is_last: bool


class HalfTable:
    """Half messages by offset and by transaction, and transactions that have ended.

    Invariants: ``_pending`` ascends by offset; each of its messages but strays is in its
    transaction's list;
    ``floor <= next_half``, and no message below ``floor`` is pending; a *stray* is a pending
    message of a transaction that has ended, or one that stands further behind once more, and is in
    no transaction's list.
    """

    def __init__(self, *, next_half: int, next_op: int) -> None:
        """An empty table.

        Args:
            next_half, next_op: queue offsets of the first messages to read.
        """
        self.next_half = next_half
        self.next_op = next_op
        self._pending: dict[int, Half] = {}
        self._by_key: dict[TransactionKey, list[int]] = {}
        self._ended: dict[str, Decision | None] = {}
        self._ops: deque[tuple[int, int]] = deque()
        self._strays: dict[int, None] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def __iter__(self) -> Iterator[Half]:
        """Those that wait, in the order of the queue."""
        return iter(self._pending.values())

    @property
    def newest_ms(self) -> int:
        """When the last one that waits was stored, epoch ms; 0 without any."""
        last = next(reversed(self._pending.values()), None)
        return 0 if last is None else last.stored_ms

    @property
    def floor(self) -> int:
        """No half message below it waits."""
        return next(iter(self._pending), self.next_half)

    def floor_without(self, offsets: Set[int]) -> int:
        """What ``floor`` is once the messages at ``offsets`` wait no more."""
        return next((known for known in self._pending if known not in offsets), self.next_half)

    def op_floor(self, half_floor: int) -> int:
        """No op message below it tells of a half message at or behind ``half_floor``."""
        while self._ops and self._ops[0][1] < half_floor:
            self._ops.popleft()
        return self._ops[0][0] if self._ops else self.next_op

    def take_half(self, half: Half) -> None:
        """The next message of the half queue; those that are no half messages are passed over."""
        assert half.offset >= self.next_half, (half, self.next_half)
        self.next_half = half.offset + 1
        self._pending[half.offset] = half
        if half.transaction in self._ended:
            self._strays[half.offset] = None
            return
        own = self._by_key.setdefault(_key_of(half), [])
        for offset in own:
            if half.unique_id and self._pending[offset].unique_id == half.unique_id:
                own.remove(offset)
                self._strays[offset] = None
                break
        own.append(half.offset)

    def take_op(self, offset: int, op: Op) -> None:
        """The next message of the op queue, once the half messages before it were taken."""
        assert offset >= self.next_op, (offset, self.next_op)
        self.next_op = offset + 1
        self._ops.append((offset, max(op.half_offsets, default=-1)))
        # Behind the last one, what an op message of ours tells without a half message.
        halves = [self._pending.get(one) for one in op.half_offsets] or [None]
        for half in halves:
            transaction = op.transaction or (half.transaction if half is not None else "")
            if half is not None:
                self.forget((half.offset,))
            if transaction and op.is_end:
                self._note_ended(transaction, op.decision)
                if half is not None:
                    self._strays |= dict.fromkeys(self._by_key.pop(_key_of(half), ()))

    def skip_halves(self, offset: int) -> None:
        """The log has no half messages below ``offset`` any more."""
        self.next_half = max(self.next_half, offset)
        self.forget([known for known in self._pending if known < offset])

    def skip_ops(self, offset: int) -> None:
        """The log has no op messages below ``offset`` any more."""
        self.next_op = max(self.next_op, offset)

    def skip_to(self, *, half: int = 0, op: int = 0) -> None:
        """What there was below these offsets was taken; some may have been deleted meanwhile."""
        self.next_half = max(self.next_half, half)
        self.next_op = max(self.next_op, op)

    def forget(self, offsets: Iterable[int]) -> None:
        """These half messages wait no more: they have ended, or stand at the queue's end again."""
        for offset in offsets:
            half = self._pending.pop(offset, None)
            if half is None:
                continue
            self._strays.pop(offset, None)
            own = self._by_key.get(_key_of(half), [])
            if offset in own:
                own.remove(offset)
                if not own:
                    del self._by_key[_key_of(half)]

    def messages_of(self, key: TransactionKey) -> list[Half]:
        """The half messages of a transaction that wait, in the order of the queue."""
        return [self._pending[offset] for offset in self._by_key.get(key, ())]

    def strays(self) -> list[Half]:
        """Messages that are to be dropped: a producer, or RocketMQ, has stored them twice."""
        return [self._pending[offset] for offset in self._strays]

    def plan_end(
        self, key: TransactionKey, decision: Decision, *, messages: int
    ) -> Sequence[Half] | None:
        """The half messages to end; empty when they have ended so, None when some are not here yet.

        Args:
            messages: how many half messages the transaction has.

        Raises:
            TransactionEndedError: it has ended the other way.
            MessageIllegalError: the transaction has more messages, or bytes, than it should or may.
        """
        if key.transaction in self._ended:
            self._check_ended(key.transaction, decision)
            return ()
        halves = self.messages_of(key)
        if not halves or (decision is Decision.COMMIT and len(halves) < messages):
            return None
        if decision is Decision.COMMIT:
            _check_size(key, halves, messages)
        return halves

    def plan_round(self, now_ms: int, rules: CheckRules, *, below: int, limit: int) -> Round:
        """What is to be done with those that wait too long, the oldest first.

        Args:
            below: where the queue ended when the round began: what is behind waits for the next.
            limit: most messages that are moved.
        """
        again: list[Half] = []
        asked: list[Half] = []
        discarded: list[Half] = []
        floor, is_last = self.next_half, True
        for half in self._pending.values():
            way = _way_of(half, now_ms, rules)
            is_young = half.offset >= below or way is None
            if is_young or len(again) + len(discarded) >= limit:
                floor, is_last = half.offset, is_young
                break
            if way is Way.DISCARD:
                discarded.append(half)
            else:
                again.append(half)
                if _is_due(half, now_ms, rules):
                    asked.append(half)
        return Round(tuple(again), tuple(asked), tuple(discarded), floor, is_last)

    def _check_ended(self, transaction: str, decision: Decision) -> None:
        known = self._ended[transaction]
        if known is None:
            raise TransactionEndedError(
                "transaction has ended; RocketMQ does not tell how", transaction=transaction
            )
        if known is not decision:
            raise TransactionEndedError(
                "transaction has ended the other way",
                transaction=transaction,
                decision=known.value,
            )

    def _note_ended(self, transaction: str, decision: Decision | None) -> None:
        # The last to end are remembered; one that is told again does not become younger.
        self._ended.setdefault(transaction, decision)
        if len(self._ended) > ENDED_MAX:
            del self._ended[next(iter(self._ended))]


def unknown(key: TransactionKey) -> TransactionUnknownError:
    """What to tell who ends a transaction that is not there."""
    return TransactionUnknownError(
        "no such transaction waits, and none is remembered",
        transaction=key.transaction,
        group=key.group,
        remembered=ENDED_MAX,
    )


def _check_size(key: TransactionKey, halves: Sequence[Half], messages: int) -> None:
    size = sum(half.size for half in halves)
    for what, found, limit in (
        ("messages than it is to have", len(halves), messages),
        ("messages than a transaction may have", len(halves), MESSAGES_MAX),
        # One message alone may be as large as messages may be.
        ("bytes than a transaction may have", size, SIZE_MAX if len(halves) > 1 else size),
    ):
        if found > limit:
            raise MessageIllegalError(
                f"transaction has more {what}",
                transaction=key.transaction,
                found=found,
                limit=limit,
            )


def _way_of(half: Half, now_ms: int, rules: CheckRules) -> Way | None:
    """What to do with a half message in a round of checks; None when it is too young for any."""
    if half.checks >= rules.checks_max or now_ms - half.stored_ms > rules.age_max_ms:
        return Way.DISCARD
    if _is_due(half, now_ms, rules):
        return Way.AGAIN
    # One that asks for a longer time must not hold up the others behind it.
    has_own = half.immunity_ms is not None
    return Way.AGAIN if has_own and _age_ms(half, now_ms) >= rules.timeout_ms else None


def _is_due(half: Half, now_ms: int, rules: CheckRules) -> bool:
    immunity_ms = rules.timeout_ms if half.immunity_ms is None else half.immunity_ms
    age_ms = _age_ms(half, now_ms)
    # As with RocketMQ: else a clock that was put back would keep all questions for as long.
    return age_ms < 0 or age_ms > immunity_ms


def _age_ms(half: Half, now_ms: int) -> int:
    """How long a message has waited: since it was made, or was stored where its producer's clock is
    ahead, which is to hold up none behind it.
    """
    return now_ms - min(half.born_ms, half.stored_ms)


def _key_of(half: Half) -> TransactionKey:
    return TransactionKey(half.group, half.transaction)
