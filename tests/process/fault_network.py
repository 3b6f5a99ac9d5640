"""Networks between the members of a group that lose what they are told to lose, way by way.

``ProxyNetwork`` needs no rights: a proxy stands on the way from each member to each other one.
``NamespaceNetwork`` (``fault_namespaces.py``) gives each member a network of its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import Any, Protocol

from tests.process.group_nodes import Network, free_port
from tests.suite.patience import PATIENCE_S

CHUNK_SIZE = 65_536


class LossyNetwork(Network, Protocol):
    """One that loses what it is told to lose."""

    def lose(self, source: int, target: int) -> None:
        """Let nothing that ``source`` sends reach ``target``, until ``heal``."""
        ...

    def heal(self) -> None:
        """Lose nothing any more."""
        ...

    def close(self) -> None:
        """Leave nothing behind."""
        ...


class ProxyNetwork:
    """A TCP proxy for each ordered pair of members, in a thread of this process.

    What is to be lost is not read any more, so that its sender is stopped by its full buffers, as
    by a network that answers nothing. It is delivered late if both ends still have the connection
    when the network is whole again, as what TCP repeats is.

    Members have no direct connections here: those would go past the proxies.
    """

    raft: Mapping[str, object] = {"direct": False}

    def __init__(self, members: int) -> None:
        self._members = range(members)
        self._ports = [free_port() for _ in self._members]
        self._ways: dict[tuple[int, int], int] = {}
        self._flows: dict[tuple[int, int], asyncio.Event] = {}
        self._pumps: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxies")
        self._thread.start()
        self._run(self._open())

    def peers(self, member: int) -> list[str]:
        ports = [self._ways.get((member, other), self._ports[other]) for other in self._members]
        return [f"n{other}-127.0.0.1:{port}" for other, port in enumerate(ports)]

    def prefix(self, member: int) -> list[str]:
        del member
        return []

    def lose(self, source: int, target: int) -> None:
        self._loop.call_soon_threadsafe(self._flows[source, target].clear)

    def heal(self) -> None:
        for flow in self._flows.values():
            self._loop.call_soon_threadsafe(flow.set)

    def close(self) -> None:
        self._run(self._shut())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    async def _open(self) -> None:
        for source in self._members:
            for target in self._members:
                if source != target:
                    flow = self._flows[source, target] = asyncio.Event()
                    flow.set()
        for source, target in self._flows:
            await self._listen(source, target)

    async def _listen(self, source: int, target: int) -> None:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._pumps.add(task)
            task.add_done_callback(self._pumps.discard)
            try:
                await self._carry(source, target, reader, writer)
            finally:
                writer.close()

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        self._servers.append(server)
        self._ways[source, target] = server.sockets[0].getsockname()[1]

    async def _carry(
        self, source: int, target: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """One connection that ``source`` has opened to ``target``."""
        forth, back = self._flows[source, target], self._flows[target, source]
        await forth.wait()
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._ports[target])
        except ConnectionRefusedError:
            # That member is not up: the connection ends, as it would without a proxy.
            return
        ways = [
            asyncio.ensure_future(_pump(reader, far_writer, forth)),
            asyncio.ensure_future(_pump(far_reader, writer, back)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            far_writer.close()

    async def _shut(self) -> None:
        for server in self._servers:
            server.close()
        for task in list(self._pumps):
            task.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flow: asyncio.Event
) -> None:
    """Carry bytes one way until an end is closed, while ``flow`` is set."""
    # An end that was killed: the other one is closed, too.
    with suppress(ConnectionError):
        while True:
            await flow.wait()
            chunk = await reader.read(CHUNK_SIZE)
            # What was read when the way was cut waits, too; it has not arrived yet.
            await flow.wait()
            if not chunk:
                return
            writer.write(chunk)
            await writer.drain()
