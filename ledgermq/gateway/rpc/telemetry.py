"""Telemetry: the stream on which a gRPC client tells its settings, and is told what to do.

Clients wait for the answer to their first settings before they send, some of them for ever, and
some read fields without looking whether they are there: over what they told of themselves there
stands what the node has them do. What a member that follows has to say it says itself; questions
about transactions come from the leader, on a stream of the same kind that the follower opens for
the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any

from google.protobuf.message import DecodeError
from grpc import aio

from ledgermq.gateway.rpc.callers import Metadata, RpcCaller
from ledgermq.gateway.rpc.clients import TOPICS_MAX, UNTOLD_MAX, RpcClient, RpcClients
from ledgermq.gateway.rpc.definition import ClientType, RpcCode, make, message_class
from ledgermq.gateway.rpc.leader import LeaderWatch
from ledgermq.gateway.rpc.reading import ReadingPlaces
from ledgermq.gateway.rpc.relay import Relay
from ledgermq.gateway.rpc.sent_messages import check_topic_name
from ledgermq.gateway.rpc.statuses import RpcRefusedError, duration_of, fine, status_of
from ledgermq.model.errors import LedgerError
from ledgermq.process.one_loop import end_all

SEND_ATTEMPTS = 3
BACKOFF_FIRST_MS, BACKOFF_MAX_MS, BACKOFF_FACTOR = 10, 1_000, 2.0
RECEIVE_BATCH = 32
POLLING_MS = 20_000
_S, _MIN, _H = 1_000, 60_000, 3_600_000
RETRY_WAITS_MS = (
    *(_S, 5 * _S, 10 * _S, 30 * _S),
    *(minutes * _MIN for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)),
    *(_H, 2 * _H),
)
"""Those that RocketMQ's proxy tells."""

CONSUMERS = (ClientType.PUSH_CONSUMER, ClientType.SIMPLE_CONSUMER, ClientType.PULL_CONSUMER)


def filled(
    told: Any, *, body_size_max: int, retry_times_max: int = 16, is_ordered: bool = False
) -> Any:
    """The settings that a client is to go by.

    Args:
        told: its own; not changed.
        retry_times_max, is_ordered: of its group, if it consumes.
    """
    settings = make("Settings")
    settings.CopyFrom(told)
    if settings.HasField("subscription") or settings.client_type in CONSUMERS:
        policy = settings.backoff_policy
        policy.Clear()
        policy.max_attempts = retry_times_max + 1
        for wait_ms in RETRY_WAITS_MS:
            policy.customized_backoff.next.add(**duration_of(wait_ms))
        subscription = settings.subscription
        subscription.fifo = is_ordered
        subscription.receive_batch_size = RECEIVE_BATCH
        subscription.long_polling_timeout.seconds = POLLING_MS // 1_000
        subscription.long_polling_timeout.nanos = 0
    else:
        policy = settings.backoff_policy
        policy.Clear()
        policy.max_attempts = SEND_ATTEMPTS
        backoff = policy.exponential_backoff
        backoff.initial.nanos = BACKOFF_FIRST_MS * 1_000_000
        backoff.max.seconds = BACKOFF_MAX_MS // 1_000
        backoff.multiplier = BACKOFF_FACTOR
        settings.publishing.max_body_size = body_size_max
        settings.publishing.validate_message_type = True
    settings.metric.on = False
    return settings


WRITE_S = 30.0
"""For so long a client may leave unread what it is told."""

LISTEN_AGAIN_S = 1.0

Fill = Callable[[RpcCaller, Any], Awaitable[Any]]
"""The settings that a client is to go by, from its own. Raises ``LedgerError``."""


class Telemetry:
    """All streams; owned by the process's loop."""

    def __init__(
        self,
        clients: RpcClients,
        watch: LeaderWatch,
        relay: Relay,
        fill: Fill,
        reading: ReadingPlaces,
    ) -> None:
        """Nobody has a stream.

        Args:
            reading: places for first messages, which are those of all calls.
        """
        self._reading = reading
        # A stream that is read may become as large as any message, whatever it is to say.
        self._later = ReadingPlaces()
        self._clients = clients
        self._watch = watch
        self._relay = relay
        self._fill = fill

    async def serve(self, caller: RpcCaller, context: Any) -> None:
        """One stream, until its client ends it, or reads nothing.

        Raises:
            BusyError: there are too many clients.
        """
        client = self._clients.hear(caller)
        untold: asyncio.Queue[Any] = asyncio.Queue(UNTOLD_MAX)
        client.streams.append(untold)
        writing = asyncio.create_task(self._write(context, untold))
        reading = asyncio.create_task(self._read(caller, client, context, untold))
        told = asyncio.create_task(self._told(reading, untold))
        try:
            await asyncio.wait({writing, told}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            client.streams.remove(untold)
            await end_all((writing, reading, told))

    async def _told(self, reading: asyncio.Task[None], untold: asyncio.Queue[Any]) -> None:
        """Return when the client says no more, and what it is answered is written."""
        await asyncio.wait({reading})
        await untold.join()

    async def _write(self, context: Any, untold: asyncio.Queue[Any]) -> None:
        while True:
            command = await untold.get()
            async with asyncio.timeout(WRITE_S):
                await context.write(command.SerializeToString())
            untold.task_done()

    async def _read(
        self, caller: RpcCaller, client: RpcClient, context: Any, untold: asyncio.Queue[Any]
    ) -> None:
        metadata = tuple(context.invocation_metadata())
        following: asyncio.Task[None] | None = None
        followed: frozenset[str] = frozenset()
        try:
            async with aclosing(self._messages(caller, context)) as messages:
                async for data in messages:
                    self._clients.hear(caller)
                    answer = await self._heard(caller, client, data)
                    del data
                    if answer is not None:
                        await untold.put(answer)
                    if not caller.is_relayed and client.declared != followed:
                        if following is not None:
                            following.cancel()
                        followed = client.declared
                        following = asyncio.create_task(self._follow(followed, metadata, untold))
        except LedgerError as error:
            await untold.put(_refusal(error))
        finally:
            if following is not None:
                following.cancel()

    async def _messages(self, caller: RpcCaller, context: Any) -> AsyncGenerator[bytes, None]:
        """What a client says. Behind their first message only some are read at a time: what the
        topics of others are is seen by what they send.

        Raises:
            BusyError, RpcRefusedError: of the first message, as ``ReadingPlaces.read``.
        """
        yield await self._reading.read(caller.owner, context)
        async with self._later.place(caller.owner):
            while (data := await context.read()) is not aio.EOF:
                yield data
                # Else it stays in memory until the next one comes.
                del data

    async def _heard(self, caller: RpcCaller, client: RpcClient, data: bytes) -> Any:
        """What is answered to one message; None: nothing."""
        try:
            command = message_class("TelemetryCommand").FromString(data)
        except DecodeError:
            return _refusal(RpcRefusedError(RpcCode.BAD_REQUEST, "no such command"))
        if command.WhichOneof("command") != "settings":
            # Answers to commands that are not given here.
            return None
        return await self._answer(caller, client, command.settings)

    async def _answer(self, caller: RpcCaller, client: RpcClient, told: Any) -> Any:
        try:
            if len(told.publishing.topics) > TOPICS_MAX:
                raise RpcRefusedError(
                    RpcCode.BAD_REQUEST, "producer declares too many topics", limit=TOPICS_MAX
                )
            topics = frozenset(map(check_topic_name, told.publishing.topics))
            settings = await self._fill(caller, told)
            self._clients.declare(client, topics)
        except LedgerError as error:
            return _refusal(error)
        return make("TelemetryCommand", status=fine(), settings=settings)

    async def _follow(
        self, topics: frozenset[str], metadata: Metadata, untold: asyncio.Queue[Any]
    ) -> None:
        """Have the leader's questions passed on, while another node leads."""
        while True:
            moved = asyncio.create_task(self._watch.moved())
            listening = asyncio.create_task(
                self._listen(self._watch.elsewhere, topics, metadata, untold)
            )
            try:
                await asyncio.wait({moved, listening}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                moved.cancel()
                listening.cancel()
                await asyncio.gather(moved, listening, return_exceptions=True)

    async def _listen(
        self, leader: str, topics: frozenset[str], metadata: Metadata, untold: asyncio.Queue[Any]
    ) -> None:
        """Hear what the leader asks of who declares ``topics``, until it is another one."""
        if not leader:
            await self._watch.moved()
            return
        settings = make("Settings", client_type=1)
        settings.publishing.topics.extend(make("Resource", name=one) for one in sorted(topics))
        kind = message_class("TelemetryCommand")
        with (
            suppress(aio.AioRpcError, LedgerError),
            self._relay.both_ways(leader, "Telemetry", metadata) as call,
        ):
            await call.write(make("TelemetryCommand", settings=settings).SerializeToString())
            while (data := await call.read()) is not aio.EOF:
                command = kind.FromString(data)
                if command.HasField("recover_orphaned_transaction_command"):
                    await untold.put(command)
        # It has gone: once more, and not at once.
        await asyncio.sleep(LISTEN_AGAIN_S)


def _refusal(error: LedgerError) -> Any:
    return make("TelemetryCommand", status=status_of(error))
