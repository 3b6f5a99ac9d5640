"""The port: what becomes of clients when others have taken what there is of it."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import ssl
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ledgermq.ipc.cursor_page import COUNTERS_MAX
from ledgermq.observer.http_limits import HttpLimits
from ledgermq.observer.http_port import AGAIN_S, App, HttpPort, listen
from tests.certificates import make_certificate
from tests.suite.patience import PATIENCE_S


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
            hello, listener, array("q", [0] * COUNTERS_MAX), HttpLimits.of(10, 2**27), tls=None
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


def port_of(
    app: App, limits: HttpLimits, tls: ssl.SSLContext | None = None
) -> tuple[HttpPort, tuple[str, int]]:
    """A port that is open, and its address."""
    listener = listen("127.0.0.1:0", None, 0)  # type: ignore[arg-type]
    port = HttpPort(app, listener, array("q", [0] * COUNTERS_MAX), limits, tls=tls)
    port.open()
    return port, listener.getsockname()


async def asked(
    address: tuple[str, int], path: str, *, tls: ssl.SSLContext | None = None, source: str = ""
) -> bytes:
    """The first line of the answer; empty when the connection ended without one."""
    reader, writer = await asyncio.open_connection(
        *address, ssl=tls, local_addr=(source, 0) if source else None
    )
    writer.write(f"GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
    async with asyncio.timeout(PATIENCE_S):
        line = await reader.readline()
    writer.close()
    return line.rstrip()


def test_health_is_told_however_many_others_wait_for_their_answers() -> None:
    async def served() -> tuple[bytes, bytes]:
        begun, can_end = asyncio.Event(), asyncio.Event()

        async def app(scope: object, receive: object, send: object) -> None:
            if not scope["path"].startswith("/health/"):  # type: ignore[index]
                begun.set()
                await can_end.wait()
            await hello(scope, receive, send)

        port, address = port_of(app, HttpLimits(connections=8, connections_per_address=8,
                                                under_way=1, turn_s=0.05))  # fmt: skip
        slow = asyncio.create_task(asked(address, "/slow"))
        async with asyncio.timeout(PATIENCE_S):
            await begun.wait()
        found = await asked(address, "/health/live"), await asked(address, "/other")
        can_end.set()
        assert await slow == b"HTTP/1.1 200"
        # What was told of health has taken nobody's place, and given nobody one.
        assert await asked(address, "/other") == b"HTTP/1.1 200"
        port.close()
        return found

    assert asyncio.run(served()) == (b"HTTP/1.1 200", b"HTTP/1.1 503")


@pytest.mark.slow
def test_who_begins_many_tls_handshakes_leaves_room_for_others(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    ours = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ours.load_cert_chain(certificate, key)
    theirs = ssl.create_default_context()
    theirs.check_hostname, theirs.verify_mode = False, ssl.CERT_NONE

    async def served() -> tuple[bytes, bytes]:
        limits = HttpLimits(connections=4, connections_per_address=2, handshake_s=PATIENCE_S)
        port, address = port_of(hello, limits, ours)
        silent = [await asyncio.open_connection(*address) for _ in range(8)]
        # All but the last two have given way.
        async with asyncio.timeout(PATIENCE_S):
            for reader, _ in silent[:6]:
                assert await reader.read() == b""
        other = await asked(address, "/", tls=theirs, source="127.0.0.2")
        same = await asked(address, "/", tls=theirs)
        for _, writer in silent:
            writer.close()
        port.close()
        return other, same

    assert asyncio.run(served()) == (b"HTTP/1.1 200", b"HTTP/1.1 200")


def test_who_is_silent_at_many_addresses_keeps_nobody_out() -> None:
    async def served() -> set[bytes]:
        limits = HttpLimits(connections=4, connections_per_address=2)
        port, address = port_of(hello, limits)
        told: set[bytes] = set()
        for begins in (
            b"",
            b"GET /slow",
            b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n",
        ):
            held = []
            for number in range(8):
                _, writer = await asyncio.open_connection(
                    *address, local_addr=(f"127.0.0.{2 + number // 2}", 0)
                )
                writer.write(begins)
                held.append(writer)
            told.add(await asked(address, "/health/live"))
            told.add(await asked(address, "/", source="127.0.0.9"))
            for writer in held:
                writer.close()
        port.close()
        return told

    assert asyncio.run(served()) == {b"HTTP/1.1 200"}


def test_health_has_places_that_no_other_question_gets() -> None:
    async def served() -> list[bytes]:
        can_end, begun = asyncio.Event(), asyncio.Semaphore(0)

        async def app(scope: object, receive: object, send: object) -> None:
            if not scope["path"].startswith("/health/"):  # type: ignore[index]
                begun.release()
                await can_end.wait()
            await hello(scope, receive, send)

        limits = HttpLimits(connections=4, connections_per_address=8, under_way=8, health_places=2)
        port, address = port_of(app, limits)
        slow = [asyncio.create_task(asked(address, "/slow")) for _ in range(4)]
        async with asyncio.timeout(PATIENCE_S):
            for _ in slow:
                await begun.acquire()
        silent = [await asyncio.open_connection(*address) for _ in range(8)]
        found = [await asked(address, "/health/live"), await asked(address, "/other")]
        can_end.set()
        assert await asyncio.gather(*slow) == [b"HTTP/1.1 200"] * 4
        for _, writer in silent:
            writer.close()
        port.close()
        return found

    assert asyncio.run(served()) == [b"HTTP/1.1 200", b"HTTP/1.1 503"]


@pytest.mark.slow
def test_an_answer_that_nobody_reads_takes_no_place_of_others() -> None:
    large = bytes(4 * 1024 * 1024)

    async def app(scope: object, receive: object, send: object) -> None:
        del scope, receive
        await send({"type": "http.response.start", "status": 200, "headers": []})  # type: ignore[operator]
        await send({"type": "http.response.body", "body": large})  # type: ignore[operator]

    async def served() -> tuple[set[bytes], int]:
        limits = HttpLimits(
            connections=64,
            connections_per_address=32,
            under_way=2,
            unread_bytes_of_all=12 * len(large),
            unread_bytes_per_address=len(large),
        )
        port, address = port_of(app, limits)
        held = []
        for _ in range(16):
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
            sock.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(sock, address)
            await loop.sock_sendall(sock, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            # It has begun to be answered: what was said before is told nothing of the rest.
            assert await loop.sock_recv(sock, 1)
            held.append(sock)
        told = {await asked(address, "/"), await asked(address, "/", source="127.0.0.2")}
        whole = 0
        async with asyncio.timeout(PATIENCE_S):
            for sock in held:
                size = 0
                # Behind a whole answer nothing ends it.
                while size < len(large) and (part := await loop.sock_recv(sock, 1 << 20)):
                    size += len(part)
                whole += size >= len(large)
        for sock in held:
            sock.close()
        port.close()
        return told, whole

    told, whole = asyncio.run(served())

    assert told == {b"HTTP/1.1 200"}
    # A part of each waits in the kernel, and is not ours to bound.
    assert 0 < whole < 8


def test_one_address_has_a_share_of_the_answers_and_files_and_signing_in_are_none_of_them() -> None:
    async def served() -> list[bytes]:
        can_end = asyncio.Event()

        async def app(scope: object, receive: object, send: object) -> None:
            if scope["path"] in ("/slow", "/sign-in"):  # type: ignore[index]
                await can_end.wait()
            await hello(scope, receive, send)

        limits = HttpLimits(
            connections=64, connections_per_address=32, under_way=4, signing_in=2, turn_s=0.05
        )
        port, address = port_of(app, limits)
        slow = [asyncio.create_task(asked(address, "/slow")) for _ in range(2)]
        signing = asyncio.create_task(asked(address, "/sign-in"))
        async with asyncio.timeout(PATIENCE_S):
            while await asked(address, "/other") != b"HTTP/1.1 503":
                pass
            while await asked(address, "/sign-in?again") != b"HTTP/1.1 503":
                pass
        found = [
            await asked(address, "/static/x.js"),
            await asked(address, "/other", source="127.0.0.2"),
            await asked(address, "/health/live"),
        ]
        can_end.set()
        assert await asyncio.gather(*slow, signing) == [b"HTTP/1.1 200"] * 3
        port.close()
        return found

    assert asyncio.run(served()) == [b"HTTP/1.1 200"] * 3


def test_who_waits_for_a_turn_has_it_as_soon_as_others_who_have_many_have_had_theirs() -> None:
    async def served() -> list[str]:
        order: list[str] = []
        begun = asyncio.Semaphore(0)
        turns = asyncio.Semaphore(0)

        async def app(scope: object, receive: object, send: object) -> None:
            order.append(scope["path"])  # type: ignore[index]
            begun.release()
            await turns.acquire()
            await hello(scope, receive, send)

        limits = HttpLimits(
            connections=64, connections_per_address=32, under_way=4, turn_s=PATIENCE_S
        )
        port, address = port_of(app, limits)
        many = [asyncio.create_task(asked(address, "/many")) for _ in range(8)]
        others = [
            asyncio.create_task(asked(address, "/more", source="127.0.0.3")) for _ in range(8)
        ]
        async with asyncio.timeout(PATIENCE_S):
            for _ in range(4):
                await begun.acquire()
            one = asyncio.create_task(asked(address, "/one", source="127.0.0.2"))
            while len(port._waiting) < 13:
                await asyncio.sleep(0)
            for _ in range(17):
                turns.release()
            assert {await one, *await asyncio.gather(*many, *others)} == {b"HTTP/1.1 200"}
        port.close()
        return order

    order = asyncio.run(served())

    assert sorted(order[:4]) == ["/many", "/many", "/more", "/more"]
    assert order[4] == "/one"
    assert len(order) == 17
