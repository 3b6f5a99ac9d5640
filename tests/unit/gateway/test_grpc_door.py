"""Door of gRPC clients: who keeps a place and calls nothing gives way to who comes."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from ledgermq.gateway.rpc.door import Door
from ledgermq.ipc.counters import GrpcCounter, no_counts

PLACES = 4
WAIT_S = 20.0
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Inner:
    """What stands behind the door: it says who has come, and answers all that it is told."""

    def __init__(self) -> None:
        self.peers: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.peers.append(f"unix-abstract:{writer.get_extra_info('peername')[1:].decode()}")
        while data := await reader.read(4_096):
            writer.write(data)
        writer.close()


async def connect(port: int) -> Ends:
    return await asyncio.open_connection("127.0.0.1", port)


async def speak(port: int) -> Ends:
    reader, writer = await connect(port)
    writer.write(PREFACE)
    assert await reader.readexactly(len(PREFACE)) == PREFACE
    return reader, writer


async def is_open(ends: Ends) -> bool:
    reader, writer = ends
    writer.write(b"ping")
    return await reader.read(4) == b"ping"


def test_who_calls_nothing_gives_way_and_who_has_called_stays(tmp_path: Path) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    port, counts, inner = listener.getsockname()[1], no_counts(), Inner()
    path = tmp_path / "inner"

    async def scene() -> None:
        server = await asyncio.start_unix_server(inner.serve, path)
        door = Door(
            listener, path, counts, connections=PLACES, per_address=PLACES, tls=None, only_tls=False
        )
        door.open()
        async with asyncio.timeout(WAIT_S):
            silent = [await connect(port) for _ in range(3 * PLACES)]
            callers = [await speak(port) for _ in range(PLACES - 1)]
            for peer in inner.peers:
                assert door.host_of(peer) == "127.0.0.1"
            # One that has begun to speak, and calls nothing, keeps the last place for a while.
            begun = await speak(port)
            last = await speak(port)
            gone = [await reader.read() for reader, _ in (*silent, begun)]
            assert gone == [b""] * len(gone)
            assert all([await is_open(one) for one in (*callers, last)])
            # Now all have called, and nobody goes for the next one.
            for peer in inner.peers[-1:]:
                assert door.host_of(peer) == "127.0.0.1"
            late, writer = await connect(port)
            assert await late.read() == b""
            assert all([await is_open(one) for one in (*callers, last)])
            for _, one in [*silent, *callers, begun, last, (late, writer)]:
                one.close()
            await door.close()
        server.close()

    asyncio.run(scene())

    assert counts[GrpcCounter.CONNECTIONS] == 0
