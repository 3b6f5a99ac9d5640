"""Requests of the broker's services to the state log, and their replies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from ledgermq.broker.callers import Caller
from ledgermq.broker.calls import Call, Result
from ledgermq.ipc.orders import PackRows
from ledgermq.model.errors import LedgerError
from ledgermq.rules.tables.moves import GROUP_RECORDS_MAX, GROUP_SIZE_MAX, Moved, record_sum
from ledgermq.rules.tables.table_changes import Change

GroupPart = bytes | PackRows
"""What follows a command: a record with its entry header hole, or the rows of a pack."""


class Generations(NamedTuple):
    """How often these processes were started: what was meant for an earlier writer is not taken."""

    broker: int
    writer: int


class Encoded(NamedTuple):
    """A result as it goes out: a JSON object."""

    body: bytes


class Reply(NamedTuple):
    """A result, or why there is none."""

    caller: Caller
    outcome: Result | Encoded | LedgerError


class StateRequest(NamedTuple):
    """What somebody wants to be changed.

    Attributes:
        plan: the changes to make, from the tables as they are when it is called; none when all is
            as it is wanted. Raises the refusal.
        touches: what the plan looks at and changes: two of one batch have nothing in common.
        reads: what it looks at and leaves as it is: others of its batch may, too, and change none
            of it.
        answer: the result once the changes are applied; None when it is given later, by others.
        records: called right after the plan, and as often as that: messages of any topics that
            follow the command directly in the log, at most a group (``rules/tables/moves.py``). A
            ``Moved`` of the plan counts its own; of several the records come in their order. None:
            no record ever follows.
        refused: told instead of the caller why nothing came of it, or may come of it.
    """

    caller: Caller
    plan: Callable[[], Sequence[Change]]
    touches: frozenset[str]
    answer: Callable[[], Result | None]
    records: Callable[[], Sequence[GroupPart]] | None = None
    refused: Callable[[LedgerError], None] | None = None
    reads: frozenset[str] = frozenset()


class TakesRequests(Protocol):
    """Has what is asked for in the log; ``StateLog`` does."""

    def check_leads(self) -> None: ...

    def submit(self, request: StateRequest, now_ms: int, /) -> None: ...


def submit_call(
    log: TakesRequests,
    call: Call,
    plan: Callable[[], Sequence[Change]],
    touches: Iterable[str],
    answer: Callable[[], Result | None],
    *,
    tries: bool = False,
) -> Result | None:
    """Have what a call wants in the log; None: it is answered once that is applied.

    Args:
        plan, touches, answer: see ``StateRequest``.
        tries: what cannot be planned now, or not by this node, is refused at once.

    Raises:
        LedgerError: as ``StateLog.submit``, and as the plan where it is tried.
    """
    if tries:
        log.check_leads()
        plan()
    log.submit(StateRequest(call.caller, plan, frozenset(touches), answer), call.now_ms)
    return None


def count_of(parts: Sequence[GroupPart]) -> int:
    """How many records they are."""
    return sum(part.rows if isinstance(part, PackRows) else 1 for part in parts)


def size_of(parts: Sequence[GroupPart]) -> int:
    """Bytes of them, or some more."""
    return sum(part.size if isinstance(part, PackRows) else len(part) for part in parts)


class BatchPlan:
    """The requests of one batch, what they change, and the records that follow the command."""

    def __init__(self) -> None:
        self.requests: list[StateRequest] = []
        self.changes: list[Change] = []
        self.records: list[GroupPart] = []
        self._count = 0
        self._without_sums: list[range] = []
        self._size = 0

    def has_room(self, records: Sequence[GroupPart]) -> bool:
        """Whether the group takes ``records``, too; the first ones always."""
        is_small = (
            self._count + count_of(records) <= GROUP_RECORDS_MAX
            and self._size + size_of(records) <= GROUP_SIZE_MAX
        )
        return is_small or not records or not self.records

    def add(
        self, request: StateRequest, changes: Sequence[Change], records: Sequence[GroupPart]
    ) -> None:
        """Take a request that there is room for."""
        before = self._count
        for change in changes:
            if isinstance(change, Moved):
                self.changes.append(change._replace(before=before))
                if not change.has_sums:
                    self._without_sums.append(range(before, before + change.records))
                before += change.records
            else:
                self.changes.append(change)
        self._count += count_of(records)
        assert before <= self._count, "a move without all of its records"
        self.requests.append(request)
        self.records += records
        self._size += size_of(records)

    def sums(self, hole: int) -> tuple[int, ...]:
        """Sums by which the records are found again; 0 where a move does without."""
        found: list[int] = []
        without = iter(self._without_sums)
        lacking = next(without, range(0))
        for part in self.records:
            number = len(found)
            while number >= lacking.stop and lacking:
                lacking = next(without, range(0))
            if isinstance(part, PackRows):
                assert number in lacking, "rows of a pack have no sums"
                found += [0] * part.rows
            else:
                is_lacking = number in lacking
                found.append(0 if is_lacking else record_sum(memoryview(part)[hole:]))
        return tuple(found)


class WaitingRequest(NamedTuple):
    """A request that is in no batch yet; ``owner`` made it."""

    request: StateRequest
    until_ms: int
    owner: str


class ProposedBatch(NamedTuple):
    """A batch that was handed to the writer, and is awaited in the log."""

    identity: str
    requests: tuple[StateRequest, ...]
    until_ms: int
