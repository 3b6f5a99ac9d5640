"""Course of a transaction's end, as steps: by its producer, or as an answer to the broker's check.

``TransactionalProducer`` waits for these steps, ``AsyncTransactionalProducer`` awaits them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from ledgermq.client.core.requests import Steps
from ledgermq.client.core.results import SendResult
from ledgermq.client.sending.known_transactions import (
    KnownTransactions,
    TransactionError,
    TransactionResult,
    duplicates_error,
    no_end,
)
from ledgermq.client.sending.transaction_parts import Parts
from ledgermq.client.sending.transaction_requests import (
    TransactionCheck,
    UndecidedTransaction,
    end_steps,
    undecided_steps,
)
from ledgermq.model.errors import LedgerError, TransactionUnknownError
from ledgermq.model.names.transactions import Decision

logger = logging.getLogger(__name__)


OnEnd = Callable[[str, str, Decision, Sequence[SendResult], Sequence[str]], None]
"""Is told group, id and end of a transaction, its messages, and the topics that they belong to."""


class TransactionCourse:
    """The transactions of one producer, from the first message to the end that is confirmed."""

    def __init__(self, group: str, on_end: OnEnd | None = None) -> None:
        """The transactions of a producer of ``group``; ``on_end`` is told of those that end."""
        self.group = group
        self._on_end = on_end
        self._known = KnownTransactions()

    def begin(self) -> Parts:
        """A new transaction; who asks for it is told nothing while it is open."""
        parts = Parts(self.group)
        self._known.begin(parts.id)
        return parts

    def commit(
        self, parts: Parts, stored: Sequence[SendResult], error: LedgerError | None
    ) -> Steps[TransactionResult]:
        """Make all messages visible, or none.

        Args:
            stored: where those are that are stored.
            error: why the first is not that is not.

        Raises:
            LedgerError: see ``Transaction.commit``.
        """
        failed = duplicates_error(parts.id, stored)
        if error is not None:
            failed = TransactionError(
                "a message of the transaction was not stored; none will be visible",
                transaction=parts.id,
                cause=str(error),
            )
        if failed is not None:
            yield from self.end_badly(parts, stored)
            raise failed from error
        return (yield from self.end(parts, Decision.COMMIT, stored))

    def end(
        self, parts: Parts, decision: Decision, stored: Sequence[SendResult]
    ) -> Steps[TransactionResult]:
        """End a transaction whose messages have their outcome.

        Raises:
            LedgerError: see ``Transaction.commit`` and ``rollback``.
        """
        self._known.decide(parts.id, decision)
        if parts.count:
            halves = [one.queue_offset for one in stored if not one.is_duplicate]
            last = max(halves, default=-1)
            try:
                yield from end_steps(
                    self.group, parts.id, decision, messages=len(halves), offset=last
                )
            except TransactionUnknownError:
                if decision is Decision.COMMIT:
                    raise
                # Nothing of it is stored, or no more: as good as rolled back.
            except LedgerError as error:
                unknown = no_end(parts.id, error)
                if unknown is None:
                    raise
                raise unknown from error
        self._known.confirm(parts.id)
        if self._on_end is not None:
            self._on_end(self.group, parts.id, decision, stored, parts.topics)
        return TransactionResult(parts.id, decision, tuple(stored))

    def end_badly(self, parts: Parts, stored: Sequence[SendResult]) -> Steps[None]:
        """Roll back, after an error that is more important than one of the rollback."""
        try:
            yield from self.end(parts, Decision.ROLLBACK, stored)
        except LedgerError as error:
            logger.warning("transaction not rolled back yet: id=%s: %s", parts.id, error)

    def leave(
        self, parts: Parts, stored: Sequence[SendResult], error: LedgerError | None
    ) -> TransactionResult:
        """Let the listener tell how it ended.

        Raises:
            LedgerError: a message is not stored.
        """
        # Also where a message failed: nobody ends it here any more, and it may be stored in part.
        self._known.leave(parts.id)
        if error is not None:
            raise error
        return TransactionResult(parts.id, None, tuple(stored))

    def give_up(self, parts: Parts) -> None:
        """Its producer ends it no more: when the broker asks, the listener tells how it ended."""
        self._known.leave(parts.id)

    def look_up(
        self, check: TransactionCheck, *, has_listener: bool
    ) -> Steps[Decision | UndecidedTransaction | None]:
        """How a transaction ended that the broker asks for; what to ask the listener if unknown.

        ``None``: nothing is to be said now.
        """
        if self._known.is_open(check.transaction):
            return None
        known = self._known.decision(check.transaction)
        if known is not None or not has_listener:
            return known
        return (yield from undecided_steps(check))

    def answer(self, check: TransactionCheck, decision: Decision) -> Steps[None]:
        """Tell the broker how it ended."""
        count = len(check.positions)
        yield from end_steps(self.group, check.transaction, decision, messages=count, offset=-1)
        self._known.confirm(check.transaction)
