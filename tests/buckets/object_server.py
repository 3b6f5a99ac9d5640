"""A real S3 server (versitygw) on loopback, and a proxy before it that answers busily, late or not.

``packaging/install-tools.sh s3`` installs the server; where there is none its tests are left out,
which ``LEDGERMQ_S3=1`` makes a failure.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from email.utils import format_datetime, parsedate_to_datetime
from pathlib import Path

import pytest

from ledgermq.buckets import amazon_bucket, azure_bucket, google_bucket
from ledgermq.buckets.bucket import Bucket
from ledgermq.buckets.bucket_opening import open_bucket
from ledgermq.pipeline.archive.object_store import ObjectStore

IS_REQUIRED = os.environ.get("LEDGERMQ_S3", "") not in ("", "0")
READY_S = 120
KEYS = {"ROOT_ACCESS_KEY": "archiver", "ROOT_SECRET_KEY": "archiver-of-a-test"}
BUCKET = "archives"
HEAD_BYTES_MAX = 1 << 16

_DATE = re.compile(rb"Date: ([^\r]*)\r\n", re.IGNORECASE)
KEPT = (
    "<DeleteResult><Error><Key>some</Key><Code>InternalError</Code>"
    "<Message>kept by a test</Message></Error></DeleteResult>"
)
REFUSALS = {"busy": (503, "SlowDown"), "unable": (501, "NotImplemented")}


def program() -> str | None:
    """The server's program; a failure when it is asked for and there is none."""
    found = shutil.which("versitygw")
    if found is None and IS_REQUIRED:
        pytest.fail("LEDGERMQ_S3=1 asks for versitygw: packaging/install-tools.sh s3")
    return found


class ObjectServer:
    """The server over a folder; it can be killed and started again at the same port."""

    root = f"s3a://{BUCKET}"
    """Address of its bucket."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "store" / BUCKET).mkdir(parents=True)
        (folder / "sidecar").mkdir()
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def file_of(self, key: str) -> Path:
        """Where the server has an object's bytes."""
        return self._folder / "store" / BUCKET / key

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        self._process = subprocess.Popen(
            self._command(),
            env={**os.environ, **KEYS},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + READY_S
        while not _takes_connections(self.port):
            assert self._process.poll() is None, "the server has ended"
            assert time.monotonic() < deadline, "the server takes no connections"
            time.sleep(0.02)

    def _command(self) -> list[str]:
        found = program()
        assert found is not None
        return [
            *(found, "--port", f"127.0.0.1:{self.port}", "--quiet", "posix"),
            *("--sidecar", str(self._folder / "sidecar"), str(self._folder / "store")),
        ]

    def variables(self, port: int) -> dict[str, str]:
        """The environment of clients that ask at that port."""
        return variables(port)

    def kill(self) -> None:
        """Kill it, as a machine that goes."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def served(folder: Path) -> Iterator[ObjectServer]:
    """A server that runs, or a test that is left out."""
    if program() is None:
        pytest.skip("no versitygw here (packaging/install-tools.sh s3)")
    server = ObjectServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.kill()


def use(monkeypatch: pytest.MonkeyPatch, server: ObjectServer, port: int) -> None:
    """Let clients of this process and its children ask at that port."""
    for name, value in server.variables(port).items():
        monkeypatch.setenv(name, value)


def variables(port: int) -> dict[str, str]:
    """The environment of clients that ask at that port."""
    return {
        "AWS_ACCESS_KEY_ID": KEYS["ROOT_ACCESS_KEY"],
        "AWS_SECRET_ACCESS_KEY": KEYS["ROOT_SECRET_KEY"],
        "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{port}",
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def bucket_of(store: ObjectStore) -> Bucket:
    """Its objects."""
    return open_bucket(store.place)


def forget_clients() -> None:
    """Make clients anew, with the settings and the connections of this process."""
    amazon_bucket._client.cache_clear()
    google_bucket._client.cache_clear()
    azure_bucket._service.cache_clear()


def mirrored(store: ObjectStore, folder: Path) -> Path:
    """What readers of the bucket see, as files below a new folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for path in store.parquet_paths():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        bucket_of(store).fetch(path, target)
    return folder


Fault = Callable[[int, bytes], str]
"""What becomes of a request, of its number from 1 and its head: see ``FaultyProxy``."""


def is_put_of(key: str, head: bytes) -> bool:
    """Whether a request puts an object whose key has ``key`` in it."""
    line = head.partition(b"\r\n")[0]
    where = head if b"uploadType=multipart" in line else line
    return line.startswith((b"PUT", b"POST")) and key.encode() in where


class FaultyProxy:
    """A TCP proxy, which has each request in a connection of its own; ``fault`` says of each what
    becomes of it.

    ``""`` nothing; ``busy`` it is answered 503, ``unable`` 501; ``late`` the answer waits half
    a second; ``gone`` it is not even passed on; ``lost`` the request is done, and its answer is
    not handed on; ``half`` nor the second half of it; ``head`` it ends within its first lines,
    ``version`` within its ETag; ``kept`` a deletion of several objects is answered as done, and one
    was not deleted; ``changed`` its last byte is another one; ``ahead`` the server's clock is two
    minutes ahead.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self.fault: Fault = lambda _number, _head: ""
        self.count = 0
        self.faults: list[str] = []
        self._guard = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        # Or the thread that waits would keep the port.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            try:
                self._serve_one(client)
            finally:
                # It is read by another thread yet, which would keep the connection.
                client.shutdown(socket.SHUT_RDWR)

    def _serve_one(self, client: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head and len(head) < HEAD_BYTES_MAX:
            chunk = client.recv(4096)
            if not chunk:
                return
            head += chunk
        # Google's client says the name of what it puts behind the head, as JSON.
        while b"uploadType=multipart" in head and b"}" not in head.partition(b"\r\n\r\n")[2]:
            head += client.recv(4096)
        with self._guard:
            self.count += 1
            fault = self.fault(self.count, head)
            self.faults.append(fault)
        if fault in REFUSALS:
            client.sendall(_refusal(*REFUSALS[fault]))
            return
        if fault == "kept":
            client.sendall(_answer(200, "OK", KEPT))
            return
        if fault == "gone":
            return
        with _connected(self._target) as server:
            server.sendall(head.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
            threading.Thread(target=_pass_on, args=(client, server), daemon=True).start()
            self._answer(server, client, fault)

    def _answer(self, server: socket.socket, client: socket.socket, fault: str) -> None:
        if not fault:
            _pass_on(server, client)
            return
        whole = b""
        while chunk := server.recv(1 << 16):
            if chunk.startswith(b"HTTP/1.1 100"):
                client.sendall(chunk)
                continue
            whole += chunk
        if fault == "late":
            threading.Event().wait(0.5)
            client.sendall(whole)
        elif fault == "half":
            client.sendall(whole[: len(whole) // 2])
        elif fault == "head":
            client.sendall(whole[: whole.index(b"\r\n") + 2])
        elif fault == "version":
            at = whole.lower().find(b"\r\netag: ")
            client.sendall(whole[: at + 12] if at >= 0 else whole[: whole.index(b"\r\n") + 2])
        elif fault == "changed":
            client.sendall(whole[:-1] + bytes([whole[-1] ^ 1]))
        elif fault == "ahead":
            client.sendall(_DATE.sub(_two_minutes_later, whole, count=1))


def _connected(port: int) -> socket.socket:
    """To a server that may be starting again: how long that takes is the machine's."""
    deadline = time.monotonic() + READY_S
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _refusal(status: int, code: str) -> bytes:
    return _answer(
        status, code, f"<Error><Code>{code}</Code><Message>refused by a test</Message></Error>"
    )


def _answer(status: int, reason: str, body: str) -> bytes:
    return (
        f"HTTP/1.1 {status} {reason}\r\nContent-Type: application/xml\r\nConnection: close\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}"
    ).encode()


def _two_minutes_later(found: re.Match[bytes]) -> bytes:
    then = parsedate_to_datetime(found[1].decode()) + timedelta(minutes=2)
    return b"Date: %s\r\n" % format_datetime(then, usegmt=True).encode()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while chunk := source.recv(1 << 16):
            target.sendall(chunk)


def _takes_connections(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
