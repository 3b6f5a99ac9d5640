"""``AsyncTransactionalProducer``: ``TransactionalProducer`` for asyncio."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Self, Unpack

import zmq

from ledgermq.client.aio.contact import AwaitsContact
from ledgermq.client.aio.producer import AsyncProducer
from ledgermq.client.blocking.transactions import CHECKS_RETRY_S, CHECKS_TIMEOUT_S
from ledgermq.client.closing import AsyncClosing
from ledgermq.client.core.address import DEFAULT_ADDRESS, parse_addresses
from ledgermq.client.core.connection import Context
from ledgermq.client.core.known_groups import KnownGroups
from ledgermq.client.core.nodes import broker_link
from ledgermq.client.core.requests import Result, Steps
from ledgermq.client.core.results import SendResult
from ledgermq.client.first_contact import nodes_of
from ledgermq.client.loop_watch import AsyncRequests
from ledgermq.client.sending.known_transactions import TransactionResult
from ledgermq.client.sending.message_options import (
    HalfOptions,
    QueueChoice,
    RequestOptions,
    half_outgoing,
)
from ledgermq.client.sending.outgoing import Body, OutgoingMessage
from ledgermq.client.sending.send_pipeline import ProducerOptions
from ledgermq.client.sending.transaction_course import TransactionCourse
from ledgermq.client.sending.transaction_parts import HALF, Turns, check_group, check_listener
from ledgermq.client.sending.transaction_requests import (
    TransactionCheck,
    UndecidedTransaction,
    checks_steps,
)
from ledgermq.client.tracing.tracing import Tracing
from ledgermq.model.errors import ConfigError, LedgerError
from ledgermq.model.names.transactions import Decision

logger = logging.getLogger(__name__)

AsyncListener = Callable[[UndecidedTransaction], Awaitable[Decision | None]]
"""How a transaction ended; see ``transactions.Listener``. Awaited in the producer's loop, one
question at a time."""


class AsyncTransaction:
    """Messages that are committed or rolled back together; see ``Transaction``.

    Used by one task at a time, as ``async with producer.transaction()``.
    """

    def __init__(
        self,
        producer: AsyncTransactionalProducer,
        course: TransactionCourse,
        *,
        topic: str = "",
        group: str = "",
    ) -> None:
        """A transaction of ``producer``, which makes them; see its ``transaction``."""
        self._producer = producer
        self._begins_in: tuple[str, str] | None = topic, group
        self._course = course
        self._parts = course.begin()
        self._sent: list[asyncio.Future[SendResult]] = []

    @property
    def id(self) -> str:
        """Names it everywhere: in its messages' properties, and to the listener."""
        return self._parts.id

    async def send(
        self, topic: str, body: Body, **options: Unpack[HalfOptions]
    ) -> asyncio.Future[SendResult]:
        """Send one half message once there is room for it; the future of where it is stored.

        Raises:
            LedgerError: as from ``Transaction.send``.
        """
        if self._begins_in is not None:
            begins_at, group = self._begins_in
            self._producer = await self._producer.home(begins_at or topic, {}, group)
            self._begins_in = None
        producer = self._producer
        if producer.tracing is None:
            future = await self._send(topic, body, options)
        else:
            course = producer.tracing.send(
                topic, body, options, client=producer.group, is_half=True
            )
            with course.beginning():
                future = await self._send(topic, body, options)
            future.add_done_callback(course.settle)
        self._sent.append(future)
        return _apart(future)

    async def commit(self) -> TransactionResult:
        """Make all messages visible; see ``Transaction.commit``."""
        self._parts.close()
        stored, error = await self._outcomes()
        return await self._producer.run(self._course.commit(self._parts, stored, error))

    async def rollback(self) -> TransactionResult:
        """Let no message ever be visible; see ``Transaction.rollback``."""
        self._parts.close()
        stored, _ = await self._outcomes()
        return await self._producer.run(self._course.end(self._parts, Decision.ROLLBACK, stored))

    async def leave_open(self) -> TransactionResult:
        """End nothing; see ``Transaction.leave_open``."""
        self._parts.close()
        return self._course.leave(self._parts, *await self._outcomes())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        if self._parts.is_closed:
            return
        if kind is None:
            await self.commit()
            return
        self._parts.close()
        stored, _ = await self._outcomes()
        await self._producer.run(self._course.end_badly(self._parts, stored))

    async def _send(
        self, topic: str, body: Body, options: HalfOptions
    ) -> asyncio.Future[SendResult]:
        choice, message = half_outgoing(topic, body, **options)
        queue_id = await self._producer.choose_queue(topic, choice)
        return await self._producer.send_half(self._parts.add(topic, queue_id, message))

    async def _outcomes(self) -> tuple[list[SendResult], LedgerError | None]:
        """Where the messages are that are stored, and why the first that is not is not."""
        stored: list[SendResult] = []
        first: LedgerError | None = None
        for future in self._sent:
            try:
                stored.append(await future)
            except LedgerError as error:
                first = first or error
            except BaseException:
                # Broken off before it was decided.
                self._course.give_up(self._parts)
                raise
        return stored, first


def _apart(future: asyncio.Future[SendResult]) -> asyncio.Future[SendResult]:
    """A future of the same outcome: to give up waiting for it cancels nothing of the transaction's.

    The end of the transaction tells of the outcome, whether anybody looks at this one or not.
    """
    apart = asyncio.shield(future)
    apart.add_done_callback(lambda done: done.cancelled() or done.exception())
    return apart


class AsyncTransactionalProducer(AwaitsContact, AsyncClosing):
    """Sends messages in transactions; see ``TransactionalProducer``.

    Used as ``async with AsyncTransactionalProducer(…) as producer:``.
    """

    # The end of a transaction has more to do after an error.
    AFTER_CLOSE = frozenset({"run"})

    ASKS_NOBODY = frozenset({"home", "run", "send", "transaction"})

    IN_CLUSTER = "ledgermq.client.aio.cluster_clients:AsyncTransactionalProducerOfGroups"

    def __init__(
        self,
        address: str | Sequence[str] = DEFAULT_ADDRESS,
        *,
        group: str,
        listener: AsyncListener | None = None,
        name: str = "transactional-producer",
        options: ProducerOptions | None = None,
        tracing: Tracing | None = None,
        keys: Mapping[str, str] | None = None,
        one_group: bool = False,
        course: TransactionCourse | None = None,
    ) -> None:
        """A producer, with the arguments of ``TransactionalProducer``."""
        self.group = check_group(group)
        self._address = nodes_of(address)
        check_listener(listener)
        self._listener = listener
        self._name = name
        on_end = None if tracing is None else tracing.ended
        self._course = course or TransactionCourse(self.group, on_end)
        self.tracing = tracing
        self._turns = Turns()
        self._producer = AsyncProducer(
            address, name=name, options=options, keys=keys, one_group=one_group
        )
        self.options = self._producer.options
        self._calls: AsyncRequests | None = None
        self._answering: asyncio.Task[None] | None = None
        self._begin_contact(one_group=one_group)

    async def __aenter__(self) -> Self:
        await self._producer.__aenter__()
        context: Context = zmq.Context.instance()
        link = broker_link(context, parse_addresses(self._address), client=self._name)
        self._calls = AsyncRequests(link, timeout_s=self.options.timeout_s)
        self._open_contact()
        self._answering = asyncio.create_task(self._answer_all(self._calls))
        return self

    def groups(self) -> list[str]:
        """Names of the groups of nodes that are known now."""
        return self._producer.groups()

    def transaction(self, topic: str = "", *, group: str = "") -> AsyncTransaction:
        """Begin a transaction; nothing is sent before its first message.

        See ``TransactionalProducer.transaction``.
        """
        return AsyncTransaction(self, self._course, topic=topic, group=group)

    async def send(
        self,
        topic: str,
        body: Body,
        local: Callable[[str], Awaitable[Decision | None]],
        *,
        group: str = "",
        **options: Unpack[HalfOptions],
    ) -> TransactionResult:
        """Store a half message, do what it tells of, and end it as that went.

        See ``TransactionalProducer.send``; ``local`` is awaited.
        """
        producer = await self.home(topic, options, group)
        async with producer.transaction() as transaction:
            await (await transaction.send(topic, body, **options))
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
        self._end_contact()
        if self._several is not None:
            await self._several.close()
        if self._calls is not None:
            self._calls.close()
            self._calls = None
        await self._producer.close()

    async def home(
        self, topic: str, options: RequestOptions, group: str
    ) -> AsyncTransactionalProducer:
        """The producer of the group that a transaction is in; for ``AsyncTransaction``."""
        if await self._make_contact() is None:
            self._producer.check_group(group)
            return self
        until = time.monotonic() + self.options.timeout_s
        found: AsyncTransactionalProducer
        found = await self._several.chosen(topic, options, group=group, until=until)
        return found

    async def choose_queue(self, topic: str, choice: QueueChoice) -> int:
        """The queue for a message of a transaction; for ``AsyncTransaction``."""
        return self._turns.choose(choice, await self._producer.write_queues(topic))

    async def send_half(self, message: OutgoingMessage) -> asyncio.Future[SendResult]:
        """Store a half message; for ``AsyncTransaction``."""
        return await self._producer.submit_to(HALF, message)

    async def run(self, steps: Steps[Result]) -> Result:
        """What ``steps`` come to; for ``AsyncTransaction``."""
        if self._calls is None:
            raise ConfigError("producer is not open: async with AsyncTransactionalProducer(…)")
        return await self._calls.run(steps)

    async def _answer_all(self, calls: AsyncRequests) -> None:
        """Wait for questions, and answer them, until the producer is closed."""
        while True:
            try:
                if await self._make_contact() is not None:
                    # What it has for each group answers there.
                    return
                checks = await calls.run(checks_steps(self.group), timeout_s=CHECKS_TIMEOUT_S)
            except LedgerError as error:
                logger.debug("no questions about transactions: %s", error)
                await asyncio.sleep(CHECKS_RETRY_S)
                continue
            for check in checks:
                await self._answer(calls, check)

    async def _ask_groups(self) -> KnownGroups | None:
        return await self._producer.contact()

    async def _answer(self, calls: AsyncRequests, check: TransactionCheck) -> None:
        has_listener = self._listener is not None
        try:
            found = await calls.run(self._course.look_up(check, has_listener=has_listener))
            if isinstance(found, UndecidedTransaction):
                found = await self._listened(found)
            if found is not None:
                await calls.run(self._course.answer(check, found))
        except LedgerError as error:
            logger.warning("transaction not ended: id=%s: %s", check.transaction, error)

    async def _listened(self, undecided: UndecidedTransaction) -> Decision | None:
        assert self._listener is not None
        try:
            return await self._listener(undecided)
        except Exception:
            # The application's error must not end the answers to all others.
            logger.exception("listener failed: transaction=%s", undecided.id)
            return None
