"""``TransactionalProducer``: messages that become visible together, or never.

Its messages are stored at once, as half messages that no consumer sees. ``commit`` makes all of one
transaction visible, ``rollback`` none. When a producer dies between, or the broker's answer is
lost, the broker asks the producers of the group how the transaction ended: that is what the
*listener* is for.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

import zmq

from ledgermq.client.address import DEFAULT_ADDRESS, parse_addresses
from ledgermq.client.call_thread import CallThread
from ledgermq.client.group import broker_link
from ledgermq.client.known_transactions import (
    KnownTransactions,
    TransactionError,
    TransactionResult,
    duplicates_error,
    no_end,
)
from ledgermq.client.link import Context
from ledgermq.client.outgoing import Body, OutgoingMessage
from ledgermq.client.producer import Producer
from ledgermq.client.results import SendResult
from ledgermq.client.send_future import SendFuture
from ledgermq.client.send_pipeline import ProducerOptions
from ledgermq.client.transaction_parts import (
    HALF_QUEUES,
    HalfArguments,
    Parts,
    Turns,
    check_group,
)
from ledgermq.client.transaction_requests import (
    POLL_MS,
    Check,
    UndecidedTransaction,
    checks_steps,
    end_steps,
    undecided_steps,
)
from ledgermq.model.errors import LedgerError, TransactionUnknownError
from ledgermq.model.transactions import Decision

logger = logging.getLogger(__name__)

Listener = Callable[[UndecidedTransaction], Decision | None]
"""How a transaction ended; None when that is not known (yet): it is asked again later. It may be
one of another producer of the group. Called from a thread of the producer."""

CHECKS_TIMEOUT_S = POLL_MS / 1_000 + 10
CHECKS_RETRY_S = 1.0


class Transaction:
    """Messages that are committed or rolled back together; used by one thread at a time.

    As a context it is committed where the block ends, and rolled back when it raises.
    """

    def __init__(self, producer: TransactionalProducer, parts: Parts) -> None:
        """A transaction of ``producer``, which makes them."""
        self._producer = producer
        self._parts = parts
        self._sent: list[SendFuture[SendResult]] = []

    @property
    def id(self) -> str:
        """Names it everywhere: in its messages' properties, and to the listener."""
        return self._parts.id

    def send(
        self,
        topic: str,
        body: Body,
        *,
        tag: str | None = None,
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
        queue_key: str | None = None,
        flag: int = 0,
        unique_id: str | None = None,
    ) -> SendFuture[SendResult]:
        """Store one half message; the future of where. The arguments are those of ``Producer``.

        Raises:
            LedgerError: as from ``Producer.send``; or the transaction is full, or has been ended.
        """
        producer = self._producer
        given = HalfArguments(body, tag, keys, properties, flag, unique_id)
        where = producer.choose_queue(topic, queue_id=queue_id, key=queue_key)
        future = producer.send_half(self._parts.add(topic, where, given))
        self._sent.append(future)
        return future

    def commit(self) -> TransactionResult:
        """Make all messages visible; returns when that is decided, and can be undone by nobody.

        Raises:
            TransactionError: a message was not stored, so all are rolled back; or its topic has one
                of its unique id already (``duplicates`` names them).
            TransactionUnknownError: the broker knows nothing of it: nobody has committed it in all
                the time that the broker asks for, or its messages are older than what is kept.
            TransactionEndedError: the listener of a producer of the group has rolled it back.
            OutcomeUnknownError: no answer in time. It will be committed when the broker asks, if
                this producer, or the listener of another one, is there to answer.
        """
        self._parts.close()
        try:
            stored = [future.result() for future in self._sent]
        except LedgerError as error:
            self._end_badly()
            raise TransactionError(
                "a message of the transaction was not stored; none will be visible",
                transaction=self.id,
                cause=str(error),
            ) from error
        duplicates = duplicates_error(self.id, stored)
        if duplicates is not None:
            self._end_badly()
            raise duplicates
        return self._producer.end(self._parts, Decision.COMMIT, stored)

    def rollback(self) -> TransactionResult:
        """Let no message ever be visible.

        Raises:
            TransactionEndedError: the listener of a producer of the group has committed it.
            OutcomeUnknownError: no answer in time; the broker will ask, and be told.
        """
        self._parts.close()
        stored: list[SendResult] = []
        for future in self._sent:
            # What was not stored needs no rollback; what perhaps was is told when it is asked for.
            if future.exception() is None:
                stored.append(future.result())
        return self._producer.end(self._parts, Decision.ROLLBACK, stored)

    def leave_open(self) -> TransactionResult:
        """End nothing: the broker will ask the listener later."""
        self._parts.close()
        stored = [future.result() for future in self._sent]
        return self._producer.leave(self._parts, stored)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._parts.is_closed:
            return
        if kind is None:
            self.commit()
            return
        self._parts.close()
        self._end_badly()

    def _end_badly(self) -> None:
        """Roll back, after an error that is more important than one of the rollback."""
        stored = [future.result() for future in self._sent if future.exception() is None]
        try:
            self._producer.end(self._parts, Decision.ROLLBACK, stored)
        except LedgerError as error:
            logger.warning("transaction not rolled back yet: id=%s: %s", self.id, error)


class TransactionalProducer:
    """Sends messages in transactions to a node, or to the leader of a group of nodes.

    Safe to share among threads; each transaction belongs to one at a time. It survives a change of
    leader: what was asked is asked of the next one.
    """

    def __init__(
        self,
        address: str | Sequence[str] = DEFAULT_ADDRESS,
        *,
        group: str,
        listener: Listener | None = None,
        name: str = "transactional-producer",
        options: ProducerOptions | None = None,
    ) -> None:
        """A producer, which connects in the background; see ``Producer`` for the other arguments.

        Args:
            group: of producers that may answer for one another: those of one application.
            listener: is asked how a transaction ended that this producer does not know, or no more.
                Without one only this producer's own transactions are answered for.

        Raises:
            ConfigError: the group has no name; or as from ``Producer``.
            NotLeaderError: the broker of the only node does not answer over tcp.
        """
        self.group = check_group(group)
        self._listener = listener
        self._known = KnownTransactions()
        self._turns = Turns()
        self._turns_lock = threading.Lock()
        self._producer = Producer(address, name=name, options=options)
        self.options = self._producer.options
        context: Context = zmq.Context.instance()
        link = broker_link(context, parse_addresses(address), client=name)
        self._calls = CallThread(link, name=f"ledgermq-{name}-calls")
        self._closing = threading.Event()
        self._answering: threading.Thread | None = None
        self._name = name
        if listener is not None:
            self._answer_checks()

    def transaction(self) -> Transaction:
        """Begin a transaction; nothing is sent before its first message."""
        self._answer_checks()
        parts = Parts(self.group)
        self._known.begin(parts.id)
        return Transaction(self, parts)

    def send(
        self,
        topic: str,
        body: Body,
        local: Callable[[str], Decision | None],
        *,
        tag: str | None = None,
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
        queue_key: str | None = None,
        flag: int = 0,
        unique_id: str | None = None,
    ) -> TransactionResult:
        """Store a half message, do what it tells of, and end it as that went.

        Args:
            local: the application's own work, for example a transaction of its database; gets the
                transaction's id, under which it should note what it has done, for the listener.
                None leaves the end open. When it raises, the message is rolled back.

        Raises:
            LedgerError: the message was not stored, and ``local`` was not called; or as from
                ``Transaction.commit`` and ``rollback``.
        """
        with self.transaction() as transaction:
            transaction.send(
                topic,
                body,
                tag=tag,
                keys=keys,
                properties=properties,
                queue_id=queue_id,
                queue_key=queue_key,
                flag=flag,
                unique_id=unique_id,
            ).result()
            decision = local(transaction.id)
            if decision is Decision.COMMIT:
                return transaction.commit()
            if decision is Decision.ROLLBACK:
                return transaction.rollback()
            return transaction.leave_open()

    def close(self, timeout: float | None = None) -> None:
        """Say goodbye; open transactions are asked for later, of other producers of the group."""
        self._closing.set()
        self._calls.close()
        if self._answering is not None:
            self._answering.join()
        self._producer.close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def choose_queue(self, topic: str, *, queue_id: int | None, key: str | None) -> int:
        """The queue for a message of a transaction; for ``Transaction``."""
        queues = self._producer.write_queues(topic)
        with self._turns_lock:
            return self._turns.choose(topic, queues, queue_id=queue_id, key=key)

    def send_half(self, message: OutgoingMessage) -> SendFuture[SendResult]:
        """Store a half message; for ``Transaction``."""
        return self._producer.send_to(HALF_QUEUES, message)

    def leave(self, parts: Parts, stored: Sequence[SendResult]) -> TransactionResult:
        """Let the listener tell how a transaction ended; for ``Transaction``."""
        self._known.leave(parts.id)
        return TransactionResult(parts.id, None, tuple(stored))

    def end(
        self, parts: Parts, decision: Decision, stored: Sequence[SendResult]
    ) -> TransactionResult:
        """End a transaction whose messages have their outcome; for ``Transaction``."""
        self._known.decide(parts.id, decision)
        if parts.count:
            halves = [one.queue_offset for one in stored if not one.is_duplicate]
            steps = end_steps(
                self.group,
                parts.id,
                decision,
                messages=len(halves),
                offset=max(halves, default=-1),
            )
            try:
                self._calls.run(steps, timeout_s=self.options.timeout_s)
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
        return TransactionResult(parts.id, decision, tuple(stored))

    def _answer_checks(self) -> None:
        if self._answering is None:
            with self._turns_lock:
                if self._answering is None:
                    self._answering = threading.Thread(
                        target=self._answer_all, name=f"ledgermq-{self._name}-checks", daemon=True
                    )
                    self._answering.start()

    def _answer_all(self) -> None:
        """Wait for questions, and answer them, until the producer is closed."""
        while not self._closing.is_set():
            try:
                checks = self._calls.run(checks_steps(self.group), timeout_s=CHECKS_TIMEOUT_S)
            except LedgerError as error:
                if not self._closing.is_set():
                    logger.debug("no questions about transactions: %s", error)
                    self._closing.wait(CHECKS_RETRY_S)
                continue
            for check in checks:
                if not self._closing.is_set():
                    self._answer(check)

    def _answer(self, check: Check) -> None:
        try:
            decision = self._decide(check)
            if decision is None:
                return
            steps = end_steps(
                self.group,
                check.transaction,
                decision,
                messages=len(check.positions),
                offset=-1,
            )
            self._calls.run(steps, timeout_s=self.options.timeout_s)
            self._known.confirm(check.transaction)
        except LedgerError as error:
            logger.warning("transaction not ended: id=%s: %s", check.transaction, error)

    def _decide(self, check: Check) -> Decision | None:
        if self._known.is_open(check.transaction):
            return None
        known = self._known.decision(check.transaction)
        if known is not None or self._listener is None:
            return known
        undecided = self._calls.run(undecided_steps(check), timeout_s=self.options.timeout_s)
        try:
            return self._listener(undecided)
        except Exception:
            # The application's error must not end the answers to all others.
            logger.exception("listener failed: transaction=%s", check.transaction)
            return None
