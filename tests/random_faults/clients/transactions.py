"""Transactions over two topics, of which some are rolled back, and some left to be asked for."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

from ledgermq.client import (
    Decision,
    TransactionalProducer,
    TransactionError,
    UndecidedTransaction,
)
from ledgermq.client.broker_connection import connect_broker
from ledgermq.client.core.questions import asking
from ledgermq.model.errors import LedgerError, OutcomeUnknownError
from ledgermq.verbs.waiting import ListTransactions
from tests.random_faults.clients.place import CREDITS, DEBITS, Client, Place
from tests.suite.patience import PATIENCE_S

PARTS_MAX = 3
LEFT_OPEN = 0.15


class TransactionClient(Client):
    """Makes one transaction after the other, and answers for all of them."""

    pause_s = 0.2

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._decisions: dict[str, Decision] = {}
        self._lock = threading.Lock()
        self._producer = self.opened.enter_context(
            TransactionalProducer(
                place.addresses, group=f"till-{place.name}", listener=self._listen,
                name=place.name, options=self.options(),
            )
        )  # fmt: skip

    def turn(self) -> None:
        """One transaction; what becomes of it is drawn, and noted before the broker is told."""
        made = self._producer.transaction()
        values = [self.value() for _ in range(self.chance.randint(1, PARTS_MAX))]
        number = self.records.begin("transaction", id=made.id, values=values)
        futures = []
        try:
            for part, value in enumerate(values):
                topic = (DEBITS, CREDITS)[part % 2]
                futures.append(made.send(topic, self.body(value)))
        except LedgerError as error:
            self._decide(made.id, Decision.ROLLBACK)
            self.records.failed(number, error, is_send=False)
            # Some of it may be stored: while it is open here, nobody is told how it ended.
            with suppress(LedgerError):
                made.leave_open()
            return
        wanted = self.chance.choice((Decision.COMMIT, Decision.COMMIT, Decision.ROLLBACK))
        is_whole = all(future.exception() is None for future in futures)
        try:
            if self.chance.random() < LEFT_OPEN:
                made.leave_open()
                self._decide(made.id, wanted if is_whole else Decision.ROLLBACK)
            elif wanted is Decision.COMMIT:
                if is_whole:
                    self._decide(made.id, Decision.COMMIT)
                made.commit()
            else:
                self._decide(made.id, Decision.ROLLBACK)
                made.rollback()
        except LedgerError as error:
            if isinstance(error, TransactionError | OutcomeUnknownError) or error.retriable:
                # It will be asked for, if it is there at all.
                self._decide_if_open(made.id, Decision.ROLLBACK)
            self.records.failed(number, error, is_send=False)
        else:
            self.records.ok(number)

    def finish(self) -> None:
        """Answer until no transaction is open any more."""
        until = time.monotonic() + PATIENCE_S
        with connect_broker(
            self.place.addresses, name=f"{self.place.name} end", timeout_s=PATIENCE_S
        ) as broker:
            while broker.run(asking(ListTransactions(1)))[0]:
                if time.monotonic() > until:
                    raise AssertionError(f"transactions are still open after {PATIENCE_S} s")
                time.sleep(0.2)

    def _listen(self, undecided: UndecidedTransaction) -> Decision | None:
        with self._lock:
            return self._decisions.get(undecided.id)

    def _decide(self, transaction: str, decision: Decision) -> None:
        self.records.note("decide", id=transaction, decision=decision.name)
        with self._lock:
            assert self._decisions.setdefault(transaction, decision) is decision

    def _decide_if_open(self, transaction: str, decision: Decision) -> None:
        if self._decisions.get(transaction) is None:
            self._decide(transaction, decision)
