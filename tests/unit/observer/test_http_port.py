"""Accepting: what becomes of clients for whom no descriptor is left."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.suite.patience import PATIENCE_S

from ledgermq.ipc.cursor_page import COUNTERS_MAX
from ledgermq.observer.http_limits import HttpLimits
from ledgermq.observer.http_port import AGAIN_S, HttpPort, listen


async def hello(scope: object, receive: object, send: object) -> None:
    """An ASGI application."""
    del scope, receive
    await send({"type": "http.response.start", "status": 200, "headers": []})  # type: ignore[operator]
    await send({"type": "http.response.body", "body": b"hello"})  # type: ignore[operator]


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """The next one that is asked for is refused."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
    taken = [os.dup(0)]
    while taken[-1] <= highest:
        taken.append(os.dup(0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken[-1] + 1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for one in taken:
            os.close(one)


def test_who_comes_while_no_descriptor_is_left_is_served_later_and_wakes_nobody_meanwhile(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def served() -> bytes:
        listener = listen("127.0.0.1:0", None, 0)  # type: ignore[arg-type]
        port = HttpPort(
            hello, listener, array("q", [0] * COUNTERS_MAX), HttpLimits.of(10), tls=None
        )
        port.open()
        client = socket.socket()
        client.setblocking(False)
        loop = asyncio.get_running_loop()
        with no_descriptor_left():
            await loop.sock_connect(client, listener.getsockname())
            async with asyncio.timeout(PATIENCE_S):
                while not caplog.records:
                    await asyncio.sleep(0)
            # The loop has nothing to do now but to try again now and then.
            began = loop.time()
            for _ in range(100):
                await asyncio.sleep(0)
            assert len(caplog.records) <= 2 + (loop.time() - began) / AGAIN_S
        await loop.sock_sendall(client, b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        said = b""
        async with asyncio.timeout(PATIENCE_S):
            while part := await loop.sock_recv(client, 4096):
                said += part
        client.close()
        port.close()
        return said

    said = asyncio.run(served())

    assert said.startswith(b"HTTP/1.1 200") and b"hello" in said
    assert {record.getMessage() for record in caplog.records} == {
        "connection not accepted: Too many open files"
    }
