"""Who asks, and by which way: five callers at the sockets of one node, each as a client is."""

from __future__ import annotations

import ctypes
import itertools
import os
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

import zmq

from ledgermq.client.core.keys import load_client_keys
from ledgermq.formats.dledger_entry import HEADER_SIZE as ENTRY_HEADER_SIZE
from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.remoting.codes import ResponseCode
from ledgermq.wire.byte_stream import MessageReader, message_head
from ledgermq.wire.header import Kind, decode_header
from ledgermq.wire.pull_frame import Pull, encode_pull
from ledgermq.wire.query_frame import KeyQuery, PositionQuery, encode_query
from ledgermq.wire.send_frame import SendRun, encode_send, encode_tables
from ledgermq.wire.session import SpokenFor, decode_refused, encode_call, encode_hello
from tests.process.remoting_client import RemotingClient
from tests.suite.patience import PATIENCE_S

OWN_TOPIC, OTHER_TOPIC = "orders", "other"
OWN_GROUP, OTHER_GROUP = "billing", "strangers"
SECRET = "12345678"

USERS: Mapping[str, Mapping[str, object]] = {
    "nothing": {},
    "topic": {"topicPerms": [f"{OWN_TOPIC}=PUB|SUB"]},
    "group": {"groupPerms": [f"{OWN_GROUP}=SUB"]},
    "admin": {"admin": True},
}
STRANGER = "stranger"
CALLERS = (STRANGER, *USERS)
FIRST_UID = 60_000
"""Of accounts that no machine has; one for each caller."""

_SYS_SETRESUID = {"x86_64": 117, "aarch64": 147}
ANSWER_MS = round(PATIENCE_S * 1_000)
UNHEARD_MS = 1_500
"""A key that is nobody's is refused at the handshake: nothing is ever answered."""

IPV4_HOST_SIZE = 8
"""Of the stamp in a record; no caller's own, but the node's."""

Got = TypeVar("Got")


def uid_of(caller: str) -> int:
    """The account that a caller has on unix sockets."""
    return FIRST_UID + CALLERS.index(caller)


def address_of(caller: str) -> str:
    """From where a caller connects."""
    return f"127.0.0.{10 + CALLERS.index(caller)}"


def unix_users() -> list[str]:
    """For ``access.unix_users``."""
    return [f"{uid_of(name)}={name}" for name in USERS]


def can_be_others() -> bool:
    """Whether this process may have other accounts on unix sockets."""
    return os.geteuid() == 0 and os.uname().machine in _SYS_SETRESUID


def as_account(uid: int, act: Callable[[], Got]) -> Got:
    """What ``act`` makes in a thread that has another account, and so have its own threads."""
    results: list[Got] = []

    def run() -> None:
        # The library's function would change all threads of the process.
        libc = ctypes.CDLL(None, use_errno=True)
        number = _SYS_SETRESUID[os.uname().machine]
        assert libc.syscall(number, uid, uid, uid) == 0, ctypes.get_errno()
        results.append(act())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert results, "the thread has failed"
    return results[0]


class Outcome(NamedTuple):
    """Whether a right was missing, and what was said."""

    is_let: bool
    text: str


class LocalStream:
    """The writer's stream socket, as a DEALER is: messages of parts."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))
        self._reader = MessageReader(1 << 20)

    def send_multipart(self, parts: list[bytes]) -> None:
        """Send a message."""
        self._socket.sendall(b"".join((message_head(parts)[0], *parts)))

    def poll(self, timeout_ms: int) -> bool:
        """Whether a message comes in time."""
        until = time.monotonic() + timeout_ms / 1_000
        while not self._reader.messages:
            self._socket.settimeout(max(0.001, until - time.monotonic()))
            try:
                data = self._socket.recv(1 << 16)
            except TimeoutError:
                return False
            if not data:
                return False
            self._reader.feed(data)
        return True

    def recv_multipart(self) -> list[bytes]:
        """The next message, which has come."""
        return self._reader.messages.popleft()

    def destroy(self, linger: int) -> None:
        """Disconnect."""
        del linger
        self._socket.close()


class Session:
    """One of our own clients at a socket of its protocol; one that is not let in hears nothing."""

    def __init__(
        self,
        endpoint: str,
        *,
        keys: Path | None = None,
        uid: int | None = None,
        are_known: bool = True,
        speaks_for: SpokenFor | None = None,
    ) -> None:
        """Connect; ``are_known``: the keys are those of a user, who is heard some time."""

        def connect() -> tuple[
            zmq.Context[zmq.Socket[bytes]] | LocalStream, zmq.Socket[bytes] | LocalStream
        ]:
            if endpoint.startswith("/"):
                stream = LocalStream(Path(endpoint))
                return stream, stream
            context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
            made: zmq.Socket[bytes] = context.socket(zmq.DEALER)
            made.setsockopt(zmq.LINGER, 0)
            if keys is not None:
                found = load_client_keys(str(keys))
                made.curve_serverkey = found.server
                made.curve_publickey, made.curve_secretkey = found.public, found.secret
            made.connect(endpoint)
            return context, made

        self._context, self._socket = connect() if uid is None else as_account(uid, connect)
        self._ids = itertools.count(1)
        self._socket.send_multipart(
            encode_hello(0, client="caller", library="test", speaks_for=speaks_for)
        )
        self.is_heard = bool(self._socket.poll(ANSWER_MS if are_known else UNHEARD_MS))

    def call(self, verb: str, arguments: Mapping[str, object]) -> Outcome:
        """Make a call."""
        number = next(self._ids)
        return self._ask(encode_call(number, verb, **arguments), number)

    def pull(self, topic: str) -> Outcome:
        """Ask for messages."""
        number = next(self._ids)
        return self._ask([encode_pull(Pull(number, topic, 0, 0, 1, 1 << 20, 0))], number)

    def send(self, topic: str) -> Outcome:
        """Send a message, which is none: the right is looked at before."""
        number, name, payload = next(self._ids), topic.encode(), bytes(200)
        tables = encode_tables(struct.pack("<I", len(payload)), [SendRun(1, 0, name)])
        head = encode_send(
            number,
            tables=tables,
            records=1,
            runs=1,
            topics_size=len(name),
            payload_size=len(payload),
            checksum=crc32(payload, crc32(tables, 0)),
            entry_header_size=ENTRY_HEADER_SIZE,
            store_host_size=IPV4_HOST_SIZE,
        )
        return self._ask([head, payload], number)

    def query(self, query: KeyQuery | PositionQuery) -> Outcome:
        """Look a message up."""
        number = next(self._ids)
        return self._ask(encode_query(number, query), number)

    def close(self) -> None:
        """End the connection."""
        self._context.destroy(linger=0)

    def _ask(self, parts: list[bytes] | tuple[bytes, ...], number: int) -> Outcome:
        if not self.is_heard:
            return Outcome(False, "not heard")
        self._socket.send_multipart(list(parts))
        while self._socket.poll(ANSWER_MS):
            answer = self._socket.recv_multipart()
            header = decode_header(answer[0])
            if header.request_id != number or header.kind in (Kind.WELCOME, Kind.ROLE):
                continue
            if header.kind is not Kind.REFUSED:
                return Outcome(True, header.kind.name)
            refusal = decode_refused(answer[1])
            return Outcome(refusal.status != "NO_PERMISSION", refusal.reason)
        raise TimeoutError(f"no answer to {parts[-1][:200]!r}")


class Connected:
    """One of RocketMQ's clients."""

    def __init__(self, address: str, caller: str, *, tls: ssl.SSLContext | None = None) -> None:
        signs = None if caller == STRANGER else (caller, SECRET)
        self._client = RemotingClient(address, signs=signs, tls=tls)

    def ask(self, code: int, fields: Mapping[str, object], body: bytes = b"") -> Outcome:
        """Send a request of any code."""
        reply = self._client.ask(code, fields, body)
        return Outcome(reply.code != ResponseCode.NO_PERMISSION, f"{reply.code} {reply.remark}")

    def close(self) -> None:
        """End the connection."""
        self._client.close()
