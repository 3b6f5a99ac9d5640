"""``AsyncTransactionalProducer``: what ``TransactionalProducer`` is, for asyncio."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

import zmq

from ledgermq.client.address import DEFAULT_ADDRESS, parse_addresses
from ledgermq.client.aio_producer import AsyncProducer
from ledgermq.client.group import broker_link
from ledgermq.client.known_transactions import (
    KnownTransactions,
    TransactionError,
    TransactionResult,
    duplicates_error,
    no_end,
)
from ledgermq.client.link import Context
from ledgermq.client.loop_watch import AsyncRequests
from ledgermq.client.outgoing import Body, OutgoingMessage
from ledgermq.client.results import SendResult
from ledgermq.client.send_pipeline import ProducerOptions
from ledgermq.client.transaction_parts import (
    HALF_QUEUES,
    HalfArguments,
    Parts,
    Turns,
    check_group,
)
from ledgermq.client.transaction_requests import (
    Check,
    UndecidedTransaction,
    checks_steps,
    end_steps,
    undecided_steps,
)
from ledgermq.client.transactions import CHECKS_RETRY_S, CHECKS_TIMEOUT_S
from ledgermq.model.errors import ConfigError, LedgerError, TransactionUnknownError
from ledgermq.model.transactions import Decision

logger = logging.getLogger(__name__)

AsyncListener = Callable[[UndecidedTransaction], Awaitable[Decision | None]]
"""See ``transactions.Listener``; awaited in the producer's loop, one question at a time."""


class AsyncTransaction:
    """See ``Transaction``; used by one task at a time, as ``async with producer.transaction()``."""

    def __init__(self, producer: AsyncTransactionalProducer, parts: Parts) -> None:
        """A transaction of ``producer``, which makes them."""
        self._producer = producer
        self._parts = parts
        self._sent: list[asyncio.Future[SendResult]] = []

    @property
    def id(self) -> str:
        """Names it everywhere: in its messages' properties, and to the listener."""
        return self._parts.id

    async def send(
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
    ) -> asyncio.Future[SendResult]:
        """Send one half message once there is room for it; the future of where it is stored.

        Raises:
            LedgerError: as from ``Transaction.send``.
        """
        producer = self._producer
        given = HalfArguments(body, tag, keys, properties, flag, unique_id)
        where = await producer.choose_queue(topic, queue_id=queue_id, key=queue_key)
        future = await producer.send_half(self._parts.add(topic, where, given))
        self._sent.append(future)
        return future

    async def commit(self) -> TransactionResult:
        """See ``Transaction.commit``."""
        self._parts.close()
        stored, error = await self._outcomes()
        if error is not None:
            await self._end_badly(stored)
            raise TransactionError(
                "a message of the transaction was not stored; none will be visible",
                transaction=self.id,
                cause=str(error),
            ) from error
        duplicates = duplicates_error(self.id, stored)
        if duplicates is not None:
            await self._end_badly(stored)
            raise duplicates
        return await self._producer.end(self._parts, Decision.COMMIT, stored)

    async def rollback(self) -> TransactionResult:
        """See ``Transaction.rollback``."""
        self._parts.close()
        stored, _ = await self._outcomes()
        return await self._producer.end(self._parts, Decision.ROLLBACK, stored)

    async def leave_open(self) -> TransactionResult:
        """See ``Transaction.leave_open``."""
        self._parts.close()
        stored, error = await self._outcomes()
        if error is not None:
            raise error
        return self._producer.leave(self._parts, stored)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._parts.is_closed:
            return
        if kind is None:
            await self.commit()
            return
        self._parts.close()
        stored, _ = await self._outcomes()
        await self._end_badly(stored)

    async def _outcomes(self) -> tuple[list[SendResult], LedgerError | None]:
        """Where the messages are that are stored, and why the first that is not is not."""
        stored: list[SendResult] = []
        first: LedgerError | None = None
        for future in self._sent:
            try:
                stored.append(await future)
            except LedgerError as error:
                first = first or error
        return stored, first

    async def _end_badly(self, stored: Sequence[SendResult]) -> None:
        """Roll back, after an error that is more important than one of the rollback."""
        try:
            await self._producer.end(self._parts, Decision.ROLLBACK, stored)
        except LedgerError as error:
            logger.warning("transaction not rolled back yet: id=%s: %s", self.id, error)


class AsyncTransactionalProducer:
    """See ``TransactionalProducer``; used as ``async with AsyncTransactionalProducer(…)``."""

    def __init__(
        self,
        address: str | Sequence[str] = DEFAULT_ADDRESS,
        *,
        group: str,
        listener: AsyncListener | None = None,
        name: str = "transactional-producer",
        options: ProducerOptions | None = None,
    ) -> None:
        """A producer, with the arguments of ``TransactionalProducer``."""
        self.group = check_group(group)
        self._address = address
        self._listener = listener
        self._name = name
        self._known = KnownTransactions()
        self._turns = Turns()
        self._producer = AsyncProducer(address, name=name, options=options)
        self.options = self._producer.options
        self._calls: AsyncRequests | None = None
        self._answering: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._producer.__aenter__()
        context: Context = zmq.Context.instance()
        link = broker_link(context, parse_addresses(self._address), client=self._name)
        self._calls = AsyncRequests(link, timeout_s=self.options.timeout_s)
        self._answering = asyncio.create_task(self._answer_all(self._calls))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def transaction(self) -> AsyncTransaction:
        """Begin a transaction; nothing is sent before its first message."""
        parts = Parts(self.group)
        self._known.begin(parts.id)
        return AsyncTransaction(self, parts)

    async def send(
        self,
        topic: str,
        body: Body,
        local: Callable[[str], Awaitable[Decision | None]],
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

        See ``TransactionalProducer.send``; ``local`` is awaited.
        """
        async with self.transaction() as transaction:
            await (
                await transaction.send(
                    topic,
                    body,
                    tag=tag,
                    keys=keys,
                    properties=properties,
                    queue_id=queue_id,
                    queue_key=queue_key,
                    flag=flag,
                    unique_id=unique_id,
                )
            )
            decision = await local(transaction.id)
            if decision is Decision.COMMIT:
                return await transaction.commit()
            if decision is Decision.ROLLBACK:
                return await transaction.rollback()
            return await transaction.leave_open()

    async def close(self) -> None:
        """Say goodbye; open transactions are asked for later, of other producers of the group."""
        answering, self._answering = self._answering, None
        if answering is not None:
            answering.cancel()
            await asyncio.wait([answering])
        if self._calls is not None:
            self._calls.close()
            self._calls = None
        await self._producer.close()

    async def choose_queue(self, topic: str, *, queue_id: int | None, key: str | None) -> int:
        """The queue for a message of a transaction; for ``AsyncTransaction``."""
        queues = await self._producer.write_queues(topic)
        return self._turns.choose(topic, queues, queue_id=queue_id, key=key)

    async def send_half(self, message: OutgoingMessage) -> asyncio.Future[SendResult]:
        """Store a half message; for ``AsyncTransaction``."""
        return await self._producer.submit_to(HALF_QUEUES, message)

    def leave(self, parts: Parts, stored: Sequence[SendResult]) -> TransactionResult:
        """Let the listener tell how a transaction ended; for ``AsyncTransaction``."""
        self._known.leave(parts.id)
        return TransactionResult(parts.id, None, tuple(stored))

    async def end(
        self, parts: Parts, decision: Decision, stored: Sequence[SendResult]
    ) -> TransactionResult:
        """End a transaction whose messages have their outcome; for ``AsyncTransaction``."""
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
                await self._open().run(steps)
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

    def _open(self) -> AsyncRequests:
        if self._calls is None:
            raise ConfigError("producer is not open: async with AsyncTransactionalProducer(…)")
        return self._calls

    async def _answer_all(self, calls: AsyncRequests) -> None:
        """Wait for questions, and answer them, until the producer is closed."""
        while True:
            try:
                checks = await calls.run(checks_steps(self.group), timeout_s=CHECKS_TIMEOUT_S)
            except LedgerError as error:
                logger.debug("no questions about transactions: %s", error)
                await asyncio.sleep(CHECKS_RETRY_S)
                continue
            for check in checks:
                await self._answer(calls, check)

    async def _answer(self, calls: AsyncRequests, check: Check) -> None:
        try:
            decision = await self._decide(calls, check)
            if decision is None:
                return
            count = len(check.positions)
            await calls.run(
                end_steps(self.group, check.transaction, decision, messages=count, offset=-1)
            )
            self._known.confirm(check.transaction)
        except LedgerError as error:
            logger.warning("transaction not ended: id=%s: %s", check.transaction, error)

    async def _decide(self, calls: AsyncRequests, check: Check) -> Decision | None:
        if self._known.is_open(check.transaction):
            return None
        known = self._known.decision(check.transaction)
        if known is not None or self._listener is None:
            return known
        undecided = await calls.run(undecided_steps(check))
        try:
            return await self._listener(undecided)
        except Exception:
            # The application's error must not end the answers to all others.
            logger.exception("listener failed: transaction=%s", check.transaction)
            return None
