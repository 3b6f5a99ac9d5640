"""Invariants of a sink: all rows of a committed batch become messages once, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.simulator.checks.checker import NodeEntry, require


@dataclass(slots=True)
class Attempt:
    """Somebody stages a batch; somebody else may do so as well.

    Attributes:
        name: of its stage.
        rows: unique ids, in the order in which they are to become messages.
        is_asked: its commit was asked for, and may have come through.
        arrived: so many of the rows are messages.
    """

    name: str
    batch: int
    rows: list[str] = field(default_factory=list)
    is_asked: bool = False
    arrived: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether all rows are messages."""
        return self.arrived == len(self.rows)


class SinkChecker:
    """Knows all attempts at the batches of one sink, numbered from 0.

    Attributes:
        committed: batches whose commit was acknowledged.
        attempts: by name.
    """

    def __init__(self) -> None:
        self.committed: set[int] = set()
        self.attempts: dict[str, Attempt] = {}
        self._attempt_of: dict[str, Attempt] = {}
        self._taken: dict[int, str] = {}

    def plan(self, attempt: Attempt, rows: Sequence[str]) -> None:
        """More rows of ``attempt`` are about to be staged."""
        self.attempts[attempt.name] = attempt
        attempt.rows += rows
        self._attempt_of.update(dict.fromkeys(rows, attempt))

    def commits(self, attempt: Attempt, *, rows: int, is_already: bool) -> None:
        """A commit is acknowledged."""
        self.committed.add(attempt.batch)
        if not is_already:
            require(rows == len(attempt.rows), "a commit counts its rows", attempt, rows)
            taken = self._taken.setdefault(attempt.batch, attempt.name)
            require(taken == attempt.name, "a batch is committed once", attempt, taken)

    def is_row(self, unique_id: str) -> bool:
        """Whether a message was a row that somebody has staged."""
        return unique_id in self._attempt_of

    def arrives(self, unique_id: str, entry: NodeEntry) -> None:
        """A row is a message now."""
        attempt = self._attempt_of[unique_id]
        require(attempt.is_asked, "no row without its commit", unique_id, entry)
        taken = self._taken.setdefault(attempt.batch, attempt.name)
        require(taken == attempt.name, "a batch has rows of one attempt", unique_id, entry, taken)
        require(not attempt.is_whole, "a row becomes a message once", unique_id, entry)
        expected = attempt.rows[attempt.arrived]
        require(unique_id == expected, "rows come in their order", unique_id, entry, expected)
        is_next = attempt.batch == 0 or self.is_visible(attempt.batch - 1)
        require(is_next, "a batch comes behind the one before", unique_id, entry, attempt.batch)
        attempt.arrived += 1

    def is_visible(self, batch: int) -> bool:
        """Whether all rows of a batch are messages."""
        taken = self._taken.get(batch)
        return taken is not None and self.attempts[taken].is_whole

    def missing(self) -> list[str]:
        """Batches that should be messages by now, and are not."""
        return [f"batch {batch}" for batch in sorted(self.committed) if not self.is_visible(batch)]
