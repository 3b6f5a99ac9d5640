"""Attacks on the HTTP port by somebody who reaches it, with a token or without.

| attack | finding of the review |
|---|---|
| ``inflated_looks`` | what is stored costs whoever looks at it more than it shows |
| ``silent_http`` | connections that say nothing, or not all, keep others out |
| ``unread_http`` | answers that nobody reads keep others out |
"""

from __future__ import annotations

import random
import socket
import time
import zlib
from contextlib import ExitStack, suppress

from ledgermq.formats.records.message import COMPRESSED
from ledgermq.remoting.codes import RequestCode as Code
from tests.adversary.target import Target
from tests.process.http_client import read_all
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_steps import NOW_MS

MIB = 1 << 20
ADDRESSES = 6
PER_ADDRESS = 80
HELD_S = 1.5


def _connected(target: Target, number: int, *, reads: bool = True) -> socket.socket | None:
    """A connection from one of several addresses of this machine; None: there was none."""
    made = socket.socket()
    made.settimeout(HELD_S)
    if not reads:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
    try:
        made.bind((f"127.0.0.{3 + number % ADDRESSES}", 0))
        made.connect(target.http)
    except OSError:
        made.close()
        return None
    return made


def _held(target: Target, said: list[bytes], *, reads: bool) -> None:
    """Keep as many connections as there are places, and more, for a while, ever anew."""
    until = time.monotonic() + HELD_S * target.scale
    while time.monotonic() < until:
        with ExitStack() as held:
            for number in range(ADDRESSES * PER_ADDRESS):
                connection = _connected(target, number, reads=reads)
                if connection is None:
                    continue
                held.enter_context(connection)
                with suppress(OSError):
                    connection.send(said[number % len(said)])
            time.sleep(HELD_S / 3)


def silent_http(target: Target, chance: random.Random) -> None:
    begun = b"POST /sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n"
    said = [begun[: chance.randrange(len(begun) + 1)] for _ in range(4)]
    _held(target, [b"", *said], reads=True)


def unread_http(target: Target, chance: random.Random) -> None:
    paths = ["/sign-in", "/health/live", "/metrics", "/api/v1/openapi.json", "/topics"]
    token = chance.choice(("", target.token))
    head = f"Host: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n"
    said = [f"GET {path} HTTP/1.1\r\n{head}".encode() * 40 for path in paths]
    _held(target, said, reads=False)


def inflated_looks(target: Target, chance: random.Random) -> None:
    client = RemotingClient(target.port)
    body = zlib.compress(bytes(chance.choice((1, 16, 64, 65)) * MIB), 9)
    values = ("p", "inflated", "TBW102", 4, 0, COMPRESSED, NOW_MS, 0, "KEYS\x01k\x02", 0, "false")
    fields = dict(zip("abcdefghijk", values, strict=True))
    try:
        for _ in range(16):
            client.ask(Code.SEND_MESSAGE_V2, fields, body)
    except OSError:
        return
    finally:
        client.close()
    looks = [
        "/api/v1/topics/inflated/messages?queue=0&limit=1000&body_max=0",
        "/api/v1/topics/inflated/messages?queue=0&limit=1000&body_max=1048576",
        "/api/v1/topics/inflated/find?key=k&body_max=1048576",
        "/api/v1/topics/inflated/find?begin=1&limit=1000",
        "/messages?topic=inflated",
    ]
    head = f"Host: 127.0.0.1\r\nAuthorization: Bearer {target.token}\r\nConnection: close\r\n\r\n"
    for _ in range(target.scale):
        with ExitStack() as asked:
            reading = []
            for number in range(24):
                connection = _connected(target, number)
                if connection is None:
                    continue
                asked.enter_context(connection)
                with suppress(OSError):
                    connection.sendall(f"GET {chance.choice(looks)} HTTP/1.1\r\n{head}".encode())
                    reading.append(connection)
            for connection in reading[::2]:
                with suppress(OSError):
                    read_all(connection)
