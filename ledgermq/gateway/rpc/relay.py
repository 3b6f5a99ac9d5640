"""Relay of gRPC calls from a follower to the leader, as they came, and of the answers.

The leader checks the signature itself: a follower vouches for nobody. Where a call came from is not
told either, so that users who are known by their addresses alone have to ask the leader.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from grpc import aio

from ledgermq.gateway.rpc.callers import RELAYED, Metadata
from ledgermq.gateway.rpc.definition import SERVICE
from ledgermq.model.config.settings import Settings, TlsMode
from ledgermq.model.errors import BusyError, NotLeaderError, OutcomeUnknownError

CALL_S = 30.0
"""For a call of which its client has said no time."""

_PASSED = "x-mq-"
"""What begins the names of metadata that is handed on, beside the signature."""

CALLS_PER_CONNECTION = 200
"""Calls at once: what goes beyond the 256 that a member takes of one connection would wait for
those to end, and polls and Telemetry take their time, or have no end."""

CONNECTIONS_TO_MEMBER_MAX = 64

_CHANNEL = (
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
    # Else all channels to one address share a connection.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)


@dataclass(eq=False)
class _Connection:
    """A connection, and how many calls are under way over it."""

    channel: aio.Channel
    calls: int = 0


class Relay:
    """Owned by the process's loop: connections to each member that has led, as many as the calls
    need that are under way.
    """

    def __init__(self, settings: Settings) -> None:
        """Nobody is connected."""
        self._settings = settings.grpc
        self._connections: dict[str, list[_Connection]] = {}

    async def close(self) -> None:
        """End the connections; calls that are under way are given up."""
        for connections in self._connections.values():
            for one in connections:
                await one.channel.close()
        self._connections.clear()

    async def call(
        self, address: str, name: str, data: bytes, metadata: Metadata, time_s: float | None
    ) -> bytes:
        """The leader's answer to a call.

        Raises:
            NotLeaderError, BusyError: it was not asked.
            OutcomeUnknownError: it was, and has not answered.
        """
        with self._channel(address) as channel:
            method = channel.unary_unary(f"/{SERVICE}/{name}")
            try:
                answer: bytes = await method(
                    data, metadata=_handed_on(metadata), timeout=time_s or CALL_S
                )
            except aio.AioRpcError as error:
                raise _refused(error, address) from error
            return answer

    async def stream(
        self, address: str, name: str, data: bytes, metadata: Metadata, time_s: float | None
    ) -> AsyncGenerator[bytes, None]:
        """The leader's answers to a call of which there are several.

        Raises:
            NotLeaderError, BusyError, OutcomeUnknownError: see ``call``.
        """
        with self._channel(address) as channel:
            method = channel.unary_stream(f"/{SERVICE}/{name}")
            call = method(data, metadata=_handed_on(metadata), timeout=time_s or CALL_S)
            try:
                async for part in call:
                    yield part
            except aio.AioRpcError as error:
                raise _refused(error, address) from error
            finally:
                call.cancel()

    @contextmanager
    def both_ways(self, address: str, name: str, metadata: Metadata) -> Iterator[Any]:
        """A stream in both directions, which ends with the block.

        Raises:
            NotLeaderError, BusyError: there is none.
        """
        with self._channel(address) as channel:
            call = channel.stream_stream(f"/{SERVICE}/{name}")(metadata=_handed_on(metadata))
            try:
                yield call
            finally:
                call.cancel()

    @contextmanager
    def _channel(self, address: str) -> Iterator[aio.Channel]:
        """One that has room for a call, as long as the block lasts."""
        connections = self._connections.setdefault(address, [])
        found = next((one for one in connections if one.calls < CALLS_PER_CONNECTION), None)
        if found is None:
            if len(connections) >= CONNECTIONS_TO_MEMBER_MAX:
                raise BusyError(
                    "too many calls are handed on to the leader",
                    leader=address,
                    limit=CONNECTIONS_TO_MEMBER_MAX * CALLS_PER_CONNECTION,
                )
            found = _Connection(self._connect(address))
            connections.append(found)
        found.calls += 1
        try:
            yield found.channel
        finally:
            found.calls -= 1

    def _connect(self, address: str) -> aio.Channel:
        authorities = self._settings.members_ca_file
        if self._settings.tls_mode is TlsMode.DISABLED or authorities is None:
            return aio.insecure_channel(address, options=_CHANNEL)
        try:
            content = authorities.read_bytes()
        except OSError as error:
            raise NotLeaderError(
                "leader cannot be asked: certificates of authorities not read",
                file=str(authorities),
                setting="grpc.members_ca_file",
                reason=error.strerror,
            ) from error
        return aio.secure_channel(address, grpc.ssl_channel_credentials(content), options=_CHANNEL)


def _handed_on(metadata: Metadata) -> list[tuple[str, str | bytes]]:
    passed = [
        (name, value)
        for name, value in metadata
        if name.startswith(_PASSED) or name == "authorization"
    ]
    return [*passed, (RELAYED, "1")]


def _refused(error: aio.AioRpcError, address: str) -> NotLeaderError | OutcomeUnknownError:
    told = {"leader": address, "reason": f"{error.code().name}: {error.details()}"}
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        # Also of a connection that broke off: what was sent may be stored, and clients send again.
        return NotLeaderError("leader does not answer", **told)
    return OutcomeUnknownError("leader has not answered", **told)
