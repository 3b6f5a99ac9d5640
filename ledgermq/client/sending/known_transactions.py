"""Memory of a producer's own transactions, for the broker's checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock

from ledgermq.client.core.results import SendResult
from ledgermq.model.errors import LedgerError, OutcomeUnknownError
from ledgermq.model.names.transactions import Decision

UNCONFIRMED_MAX = 100_000
"""Ends remembered that the broker has not confirmed; the oldest are forgotten first."""


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """How a transaction ended.

    Attributes:
        id: of the transaction.
        decision: None when it was left open, for the broker to ask for later.
        messages: where its half messages are stored; not where they become visible.
    """

    id: str
    decision: Decision | None
    messages: Sequence[SendResult]


class TransactionError(LedgerError):
    """The transaction was rolled back, or will be: one of its messages could not be stored.

    ``__cause__`` says why.
    """


def duplicates_error(transaction: str, stored: Sequence[SendResult]) -> TransactionError | None:
    """Why a transaction cannot be committed: topics have messages of its unique ids already."""
    duplicates = tuple(one.unique_id for one in stored if one.is_duplicate)
    if not duplicates:
        return None
    return TransactionError(
        "a message of that unique id is stored already; none of the transaction will be visible",
        transaction=transaction,
        duplicates=duplicates,
    )


class KnownTransactions:
    """Transactions that are open here, and ends that the broker has not confirmed; thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._open: set[str] = set()
        self._unconfirmed: dict[str, Decision] = {}

    def begin(self, transaction: str) -> None:
        """It is open: who asks is told nothing."""
        with self._lock:
            self._open.add(transaction)

    def decide(self, transaction: str, decision: Decision) -> None:
        """It is to end so; from now on who asks is told so."""
        with self._lock:
            self._open.discard(transaction)
            self._unconfirmed[transaction] = decision
            if len(self._unconfirmed) > UNCONFIRMED_MAX:
                del self._unconfirmed[next(iter(self._unconfirmed))]

    def leave(self, transaction: str) -> None:
        """It is open no more, and nothing is known of its end."""
        with self._lock:
            self._open.discard(transaction)

    def confirm(self, transaction: str) -> None:
        """The broker has told that it ended: nobody will ask any more."""
        with self._lock:
            self._unconfirmed.pop(transaction, None)

    def is_open(self, transaction: str) -> bool:
        """Whether it is still worked on here."""
        with self._lock:
            return transaction in self._open

    def decision(self, transaction: str) -> Decision | None:
        """How it is to end, if that is known here."""
        with self._lock:
            return self._unconfirmed.get(transaction)


def no_end(transaction: str, error: LedgerError) -> OutcomeUnknownError | None:
    """What to tell who ends a transaction and is not answered, instead of ``error``; None: nothing.

    A question that was asked of several leaders may have been answered by one of them, whatever the
    last one says of itself.
    """
    if not error.retriable or isinstance(error, OutcomeUnknownError):
        return None
    return OutcomeUnknownError(
        "transaction has not ended, as far as is known; the broker will ask for it",
        transaction=transaction,
        cause=str(error),
    )
