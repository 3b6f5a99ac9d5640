"""Service of RocketMQ 5's gRPC clients: its calls, and the process that answers them.

A call is answered here where the node leads, and handed on to the leader where it follows; what a
client says of itself each member hears. Refusals are statuses of answers that end well as far as
gRPC sees. One call that meets a bug harms its sender alone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, aclosing
from typing import Any, NamedTuple

import grpc
from google.protobuf.message import DecodeError
from grpc import aio

from ledgermq.client.core.questions import PERMIT_READ
from ledgermq.gateway.rpc.callers import Callers, RpcCaller
from ledgermq.gateway.rpc.clients import RpcClients
from ledgermq.gateway.rpc.definition import RPCS, SERVICE, ClientType, RpcCode, make, message_class
from ledgermq.gateway.rpc.door import Door, make_context, read_again
from ledgermq.gateway.rpc.given_messages import AnswerBytes
from ledgermq.gateway.rpc.leader import LeaderWatch
from ledgermq.gateway.rpc.node_link import NodeLink
from ledgermq.gateway.rpc.reading import ReadingPlaces
from ledgermq.gateway.rpc.receiving import RpcReceives
from ledgermq.gateway.rpc.relay import Relay
from ledgermq.gateway.rpc.routes import any_queue, endpoints_for, queues_of
from ledgermq.gateway.rpc.sending import RpcSends
from ledgermq.gateway.rpc.sent_messages import check_topic_name
from ledgermq.gateway.rpc.statuses import RpcRefusedError, fine, status_of
from ledgermq.gateway.rpc.telemetry import CONSUMERS, WRITE_S, Telemetry, filled
from ledgermq.gateway.rpc.transaction_checks import TransactionChecks
from ledgermq.gateway.transport.listening import open_listeners
from ledgermq.hosts.host_name import host_and_port
from ledgermq.ipc.counters import Counts, GrpcCounter
from ledgermq.ipc.cursor_page import CursorPage, Role
from ledgermq.ipc.loop import LOOK_AGAIN_MS, StopFlag, sleep_max_ms
from ledgermq.model.config.settings import Settings, TlsMode
from ledgermq.model.errors import (
    LedgerError,
    NoPermissionError,
    NotLeaderError,
)
from ledgermq.model.exit_status import EXIT_STOPPED
from ledgermq.model.rights import Right
from ledgermq.process.one_loop import bound_memory, entered_page, live, own_counts
from ledgermq.process.runtime_paths import RuntimePaths
from ledgermq.process.settings import reload
from ledgermq.process.systemd.port_addresses import ANYWHERE
from ledgermq.sessions.request_faults import RequestFaults
from ledgermq.store.files.descriptor_cache import (
    PASSED_FILES,
    connections_allowed,
    users_allowed,
)

logger = logging.getLogger(__name__)

STREAMS_MAX = 256
"""Calls of one connection at once: a push consumer waits with one for each topic, or queue."""

AROUND_BODY = 128 * 1024
"""What a message may have beside its body."""

UNREAD_BYTES = 64 * 1024
"""Bytes that are taken in of a call whose message is not read yet."""

METADATA_MAX = 16 * 1024
_ANY_ADDRESS = ("*", ANYWHERE, "[::]")
GRACE_S = 2.0
"""Calls under way have so long to end when the process is told to stop."""

Answer = Callable[[RpcCaller, Any], Awaitable[Any]]

Serve = Callable[[RpcCaller, Any], Awaitable[None]]
"""Reads a call's message and writes its answers. Raises ``LedgerError``: why there is none."""


class Unary(NamedTuple):
    """A call with one answer.

    Attributes:
        is_leaders: a follower hands it on; else it answers itself, and the leader hears of it, too.
    """

    answer: Answer
    is_leaders: bool = True


class RpcService:
    """What one life of the process serves."""

    def __init__(self, settings: Settings, page: CursorPage, counts: Counts) -> None:
        """Read the files; nothing is open.

        Raises:
            ConfigError, CorruptLogError, StorageError: a file cannot be used.
        """
        address = f"ipc://{settings.listen.runtime_dir}"
        self._settings = settings
        self._counts = counts
        self._faults = RequestFaults(counts, GrpcCounter.REQUESTS_FAILED)
        self._callers = Callers(settings)
        self._node = NodeLink(address, users_max=users_allowed(settings.grpc.users_max))
        self._clients = RpcClients(time.monotonic)
        quotas = self._callers.files.quotas
        self._sending = RpcSends(self._node, self._clients, settings, quotas, counts)
        self._reading = ReadingPlaces()
        self._answers = AnswerBytes()
        self._receiving = RpcReceives(self._node, self._clients, self._answers)
        self._checks = TransactionChecks(address, self._clients, counts)
        self._watch = LeaderWatch(settings, page)
        self._relay = Relay(settings)
        self._telemetry = Telemetry(
            self._clients, self._watch, self._relay, self._fill, self._reading
        )
        self.host_of: Callable[[str], str | None] = lambda _peer: None
        self._unary = {
            "QueryRoute": Unary(self._query_route),
            "QueryAssignment": Unary(self._query_assignment),
            "Heartbeat": Unary(self._heartbeat, is_leaders=False),
            "NotifyClientTermination": Unary(self._leave, is_leaders=False),
            "SendMessage": Unary(self._sending.send),
            "EndTransaction": Unary(self._sending.end_transaction),
            "RecallMessage": Unary(self._sending.recall),
            "AckMessage": Unary(self._receiving.ack),
            "ChangeInvisibleDuration": Unary(self._receiving.change_invisible),
            "ForwardMessageToDeadLetterQueue": Unary(self._receiving.reject),
        }

    async def open(self) -> None:
        """Connect to the node; returns also while that is about to start."""
        await self._node.open()
        await self._checks.open()

    async def close(self) -> None:
        """End all that is under way."""
        await self._checks.close()
        await self._receiving.close()
        await self._relay.close()
        await self._node.close()

    def look(self) -> None:
        """Look who leads, who is gone, and what is to be asked; call it a few times a second."""
        self._watch.look()
        self._clients.expire()
        self._node.tidy()
        self._checks.look(leads=self._watch.leads)
        self._receiving.look()
        self._counts[GrpcCounter.CLIENTS] = len(self._clients)

    def take_settings(self, settings: Settings) -> None:
        """The settings were read again: those of access, quotas and members count from now on."""
        self._settings = settings
        self._callers.take_settings(settings)
        self._sending.take_settings(settings)
        self._watch.take_settings(settings)

    def handlers(self) -> Any:
        """All calls, for gRPC's library, which hands over bytes.

        To the library each is a stream, which is the same on the wire: so a call is looked at
        before its message is read (``ReadingPlaces``).
        """
        answers = {name: self._answering(name) for name in self._unary}
        answers |= {"ReceiveMessage": self._receive, "Telemetry": self._converse}
        assert answers.keys() == RPCS.keys()
        methods = {
            name: grpc.stream_stream_rpc_method_handler(self._contained(name, answer))
            for name, answer in answers.items()
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    def _contained(self, name: str, answer: Serve) -> Callable[[Any, Any], Awaitable[None]]:
        """What serves one call, and tells its client alone why it is refused."""

        async def serve_call(_requests: Any, context: Any) -> None:
            self._counts[GrpcCounter.CALLS] += 1
            try:
                try:
                    await answer(self._caller(context), context)
                except aio.BaseError:
                    raise
                except Exception as error:
                    refused = status_of(self._refusal(error, name))
                    await _write(context, make(RPCS[name].answer, status=refused))
            except aio.BaseError as error:
                logger.debug("gRPC client has gone before its answer: %s: %s", name, error)

        return serve_call

    def _answering(self, name: str) -> Serve:
        unary = self._unary[name]
        request_class = message_class(RPCS[name].request)

        async def answer(caller: RpcCaller, context: Any) -> None:
            data = await self._reading.read(caller.owner, context)
            if unary.is_leaders and not await self._leads(context):
                await _written(context, await self._hand_on(caller, name, data, context))
                return
            answered = await unary.answer(caller, _read(request_class, data))
            if not unary.is_leaders and self._watch.elsewhere and not caller.is_relayed:
                await self._tell_leader(caller, name, data, context)
            await _write(context, answered)

        return answer

    async def _receive(self, caller: RpcCaller, context: Any) -> None:
        data = await self._reading.read(caller.owner, context)
        leads = await self._leads(context)
        time_s = context.time_remaining()
        if not leads:
            address, metadata = self._address_elsewhere(caller), context.invocation_metadata()
            self._counts[GrpcCounter.RELAYED] += 1
            parts = self._relay.stream(address, "ReceiveMessage", data, metadata, time_s)
            async with aclosing(parts):
                async for part in parts:
                    self._answers.check(caller.owner)
                    with self._answers.held(caller.owner, len(part)):
                        await _written(context, part)
            return
        request = _read(message_class("ReceiveMessageRequest"), data)
        answers = self._receiving.receive(caller, request, time_s)
        async with aclosing(answers):
            async for answer in answers:
                await _write(context, answer)

    async def _converse(self, caller: RpcCaller, context: Any) -> None:
        await self._telemetry.serve(caller, context)

    def _caller(self, context: Any) -> RpcCaller:
        host = self.host_of(context.peer())
        if host is None:
            raise RpcRefusedError(RpcCode.UNAUTHORIZED, "call did not come through the port")
        return self._callers.caller(context.invocation_metadata(), host)

    async def _leads(self, context: Any) -> bool:
        """Whether a call is answered here; waits a little while nobody leads."""
        if not self._watch.leads:
            await self._watch.settle(context.time_remaining())
        return self._watch.leads

    async def _hand_on(self, caller: RpcCaller, name: str, data: bytes, context: Any) -> bytes:
        address = self._address_elsewhere(caller)
        self._counts[GrpcCounter.RELAYED] += 1
        metadata, time_s = context.invocation_metadata(), context.time_remaining()
        return await self._relay.call(address, name, data, metadata, time_s)

    async def _tell_leader(self, caller: RpcCaller, name: str, data: bytes, context: Any) -> None:
        """Have the leader hear of a client, if it can be reached: it hears again soon."""
        try:
            await self._hand_on(caller, name, data, context)
        except LedgerError as error:
            logger.debug("leader not told of a gRPC client: %s", error)

    def _address_elsewhere(self, caller: RpcCaller) -> str:
        """Where the leader is asked.

        Raises:
            NotLeaderError: it cannot be.
        """
        address = self._watch.elsewhere
        if not address or caller.is_relayed:
            raise NotLeaderError(
                "node does not lead now, and cannot hand the call on",
                leader=self._watch.leader or "not known",
                setting="grpc.members",
            )
        return address

    def _refusal(self, error: Exception, name: str) -> LedgerError:
        """What a call is refused with."""
        self._counts[GrpcCounter.CALLS_REFUSED] += 1
        if not isinstance(error, LedgerError):
            return self._faults.refusal(error, name)
        is_denied = isinstance(error, NoPermissionError) or (
            isinstance(error, RpcRefusedError) and error.code is RpcCode.UNAUTHORIZED
        )
        self._counts[GrpcCounter.DENIED] += is_denied
        return error

    async def _fill(self, caller: RpcCaller, told: Any) -> Any:
        """The settings of a client, of which only producers' are known without a group."""
        group, body_size_max = told.subscription.group.name, self._sending.body_size_max
        if told.HasField("subscription"):
            caller.check_group(group)
        if not group:
            return filled(told, body_size_max=body_size_max)
        try:
            rules = await self._node.group(group)
        except LedgerError as error:
            # Some clients wait for settings for ever; what comes in order the broker sees to.
            logger.warning("settings without those of the group: group=%s: %s", group, error)
            return filled(told, body_size_max=body_size_max)
        return filled(
            told,
            body_size_max=body_size_max,
            retry_times_max=rules.retry_times_max,
            is_ordered=rules.is_ordered,
        )

    async def _query_route(self, caller: RpcCaller, request: Any) -> Any:
        topic = check_topic_name(request.topic)
        caller.check_topic(topic, Right.PUB | Right.SUB)
        route = await self._node.route(topic)
        queues = queues_of(route, broker=self._broker, endpoints=self._endpoints(request))
        return make("QueryRouteResponse", status=fine(), message_queues=queues)

    async def _query_assignment(self, caller: RpcCaller, request: Any) -> Any:
        topic = check_topic_name(request.topic)
        caller.check_topic(topic, Right.SUB)
        caller.check_group(request.group.name)
        route = await self._node.route(topic)
        if not route.perm & PERMIT_READ:
            raise RpcRefusedError(RpcCode.FORBIDDEN, "topic may not be read", topic=topic)
        queue = any_queue(route, broker=self._broker, endpoints=self._endpoints(request))
        return make(
            "QueryAssignmentResponse", status=fine(), assignments=[{"message_queue": queue}]
        )

    async def _heartbeat(self, caller: RpcCaller, request: Any) -> Any:
        if request.client_type not in (ClientType.PRODUCER, *CONSUMERS):
            raise RpcRefusedError(
                RpcCode.UNRECOGNIZED_CLIENT_TYPE, "clients of this type are not served here",
                type=request.client_type,
            )  # fmt: skip
        if request.client_type != ClientType.PRODUCER:
            caller.check_group(request.group.name)
        self._clients.hear(caller)
        return make("HeartbeatResponse", status=fine())

    async def _leave(self, caller: RpcCaller, _request: Any) -> Any:
        self._clients.forget(caller)
        return make("NotifyClientTerminationResponse", status=fine())

    @property
    def _broker(self) -> str:
        return self._settings.node.broker_name

    def _endpoints(self, request: Any) -> Any:
        own = self._settings.listen.grpc
        assert own is not None
        host, _, port = own.rpartition(":")
        if host in _ANY_ADDRESS:
            # Nobody can connect there.
            own = host_and_port(self._settings.node.broker_ip, int(port))
        return endpoints_for(request.endpoints, own=own, leader=self._watch.address)


async def _write(context: Any, answer: Any) -> None:
    await _written(context, answer.SerializeToString())


async def _written(context: Any, data: bytes) -> None:
    """Have a part of an answer on its way; a client that does not read it is let go.

    Raises:
        CancelledError: so it is. Nothing can be told to it, a status as little as a message.
    """
    try:
        async with asyncio.timeout(WRITE_S):
            await context.write(data)
    except TimeoutError:
        logger.debug("gRPC client does not read its answer: %s", context.peer())
        raise asyncio.CancelledError from None


def _read(kind: Any, data: bytes) -> Any:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise RpcRefusedError(RpcCode.BAD_REQUEST, "request cannot be read") from error


def serve(settings: Settings, stop: StopFlag) -> int:
    """Serve gRPC clients until told to stop; the exit status.

    Raises:
        ConfigError: ``listen.grpc`` cannot be listened at, or a file of ``[grpc]`` cannot be used.
        CorruptLogError, StorageError: users cannot be read.
        StaleGenerationError: the supervisor has made no page, or another version has.
    """
    bound_memory(settings.grpc.memory_bytes_max)
    # What gRPC's library listens at is this account's alone from its first moment.
    os.umask(0o077)
    with ExitStack() as resources:
        paths = RuntimePaths(settings.listen.runtime_dir)
        page = resources.enter_context(entered_page(paths.cursors, Role.GRPC))
        of_now = GrpcCounter.CONNECTIONS, GrpcCounter.CLIENTS
        counts = resources.enter_context(own_counts(page, Role.GRPC, of_now))
        service = RpcService(settings, page, counts)
        asyncio.run(_run(service, settings, page, counts, stop))
    return EXIT_STOPPED


async def _run(
    service: RpcService, settings: Settings, page: CursorPage, counts: Counts, stop: StopFlag
) -> None:
    paths = RuntimePaths(settings.listen.runtime_dir)
    tls = make_context(settings.grpc)
    server = _server(settings)
    server.add_generic_rpc_handlers((service.handlers(),))
    paths.grpc.unlink(missing_ok=True)
    server.add_insecure_port(f"unix:{paths.grpc}")
    door = _door(settings, counts, tls)
    service.host_of = door.host_of
    await service.open()
    await server.start()
    door.open()

    def take_settings() -> None:
        fresh = reload.take_published(settings)
        service.take_settings(fresh)
        door.tls = read_again(fresh.grpc, door.tls)

    stop.on_reload = take_settings
    try:
        sleep_max_s = min(LOOK_AGAIN_MS, sleep_max_ms(settings)) / 1_000
        await live(page, Role.GRPC, stop, sleep_max_s, service.look)
    finally:
        await server.stop(GRACE_S)
        await door.close()
        await service.close()
        paths.grpc.unlink(missing_ok=True)


def _server(settings: Settings) -> aio.Server:
    grpc_settings = settings.grpc
    return aio.server(
        options=(
            ("grpc.max_receive_message_length", settings.store.max_message_size + AROUND_BODY),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_metadata_size", METADATA_MAX),
            ("grpc.absolute_max_metadata_size", METADATA_MAX),
            ("grpc.max_concurrent_streams", STREAMS_MAX),
            # Else the library keeps megabytes of each call that nobody reads yet.
            ("grpc.http2.bdp_probe", 0),
            ("grpc.http2.lookahead_bytes", UNREAD_BYTES),
            ("grpc.max_connection_idle_ms", grpc_settings.idle_ms),
            ("grpc.keepalive_time_ms", grpc_settings.idle_ms),
            ("grpc.keepalive_timeout_ms", 20_000),
            ("grpc.keepalive_permit_without_calls", 1),
            # Clients look after their connections more often than the library expects them to.
            ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
            ("grpc.so_reuseport", 0),
        )
    )


def _door(settings: Settings, counts: Counts, tls: Any) -> Door:
    assert settings.listen.grpc is not None
    host, _, port = settings.listen.grpc.rpartition(":")
    address = (ANYWHERE if host == "*" else host.strip("[]"), int(port))
    connections, share = connections_allowed(
        settings.grpc.connections_max,
        settings.limits.connections_per_address,
        files=PASSED_FILES,
    )
    (listener,) = open_listeners([address], setting="listen.grpc")
    return Door(
        listener,
        RuntimePaths(settings.listen.runtime_dir).grpc,
        counts,
        connections=connections,
        per_address=share,
        tls=tls,
        only_tls=settings.grpc.tls_mode is TlsMode.ENFORCING,
    )
