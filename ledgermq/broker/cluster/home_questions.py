"""Questions to members of a cluster's home: one at a time, by a thread that ends with its answer.

The home's nodes are asked like by any client, at their consume sockets. A name is resolved, a
connection made and an answer of up to ``HOLD_MS`` awaited beside the broker's loop, which a byte in
``descriptor`` wakes. A group of no cluster has neither thread nor connection.
"""

from __future__ import annotations

import os
import re
import threading
import time
from contextlib import suppress
from typing import NamedTuple, NoReturn, Protocol

import zmq
from zmq.utils.monitor import parse_monitor_message

import ledgermq
from ledgermq.broker.cluster.document_messages import DOCUMENTS_VERB, ask_fields, read_reply
from ledgermq.hosts.host_name import host_and_port, look_up
from ledgermq.hosts.socket_monitor import monitor_of
from ledgermq.ipc.loop import Pollable
from ledgermq.ipc.zmq_flags import POLLIN
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import (
    ConfigError,
    LedgerError,
    NoPermissionError,
    NotLeaderError,
    TimedOutError,
)
from ledgermq.model.ids import NodeId
from ledgermq.rules.cluster.cluster_commands import CLUSTER_KEY
from ledgermq.rules.cluster.document_asker import ANSWER_TIMEOUT_MS, Question
from ledgermq.rules.cluster.document_desk import DocumentReply
from ledgermq.sessions.keys.peer_keys import (
    KEYS_SETTING,
    keys_directory,
    read_public_key,
    read_secret_key,
)
from ledgermq.wire.header import Kind, decode_header, encode_header
from ledgermq.wire.session import (
    BODY_SIZE_MAX,
    decode_body,
    decode_refused,
    encode_call,
    encode_hello,
)

SECRET_FILE = f"{CLUSTER_KEY}.secret"
"""Own secret key, in ``raft.keys_dir``; beside it ``cluster.public``, that of the home's nodes."""

END_S = 2.0
GOODBYE_MS = 100
MEMBER_HEARTBEAT_MS = 2_000
_NODE = re.compile(r"tcp://(?:\[(?P<six>[^\]]+)\]|(?P<host>[^:/\[\]]+)):(?P<port>[0-9]{1,5})")
_CLIENT = "ledgermq cluster"
_ENDED = zmq.EVENT_DISCONNECTED | zmq.EVENT_CONNECT_RETRIED
_ENDED |= zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
_LOCKED_OUT = zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH

Socket = zmq.Socket[bytes]


class Answered(NamedTuple):
    """What came of the question of that number; without a reply, why there is none."""

    number: int
    reply: DocumentReply | None
    failure: str = ""


class HomeLine(Protocol):
    """The way to the home; ``HomeQuestions`` is the real one.

    Attributes:
        descriptor: readable when ``take`` has something.
    """

    descriptor: int

    @property
    def is_free(self) -> bool:
        """Whether another question may be asked."""
        ...

    def ask(self, question: Question) -> None:
        """Begin to ask; ``take`` has what comes of it."""
        ...

    def take(self) -> Answered | None:
        """What has come since the last look."""
        ...

    def close(self) -> None:
        """Let go of what is asked."""
        ...


class HomeQuestions:
    """Owned by the broker process; see ``HomeLine``."""

    def __init__(self, settings: Settings) -> None:
        """Nothing is asked yet."""
        self._settings = settings
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._stopped = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._thread: _Asking | None = None

    @property
    def is_free(self) -> bool:
        return self._thread is None

    def ask(self, question: Question) -> None:
        assert self._thread is None, "one question at a time"
        thread = _Asking(self._settings, question, self.descriptor, self._stopped)
        try:
            thread.start()
        except RuntimeError as error:
            # The machine gives no more threads now.
            thread.answered = Answered(question.number, None, str(error))
            os.eventfd_write(self.descriptor, 1)
        self._thread = thread

    def take(self) -> Answered | None:
        with suppress(BlockingIOError):
            os.eventfd_read(self.descriptor)
        found = self._thread.answered if self._thread is not None else None
        if found is not None:
            self._thread = None
        return found

    def close(self) -> None:
        if self._thread is not None and self._thread.is_alive():
            os.eventfd_write(self._stopped, 1)
            self._thread.join(END_S)
            if self._thread.is_alive():
                # A resolver holds it, and it writes to the descriptor yet.
                return
        os.close(self.descriptor)
        os.close(self._stopped)


class _Asking(threading.Thread):
    """One question; ``answered`` is set once, before the descriptor is written.

    It ends when ``stopped`` can be read.
    """

    def __init__(
        self, settings: Settings, question: Question, descriptor: int, stopped: int
    ) -> None:
        super().__init__(name="ledgermq-cluster", daemon=True)
        self.answered: Answered | None = None
        self._settings = settings
        self._question = question
        self._descriptor = descriptor
        self._stopped = stopped
        self._until = time.monotonic() + (question.hold_ms + ANSWER_TIMEOUT_MS) / 1_000

    def run(self) -> None:
        """Ask, and tell."""
        number = self._question.number
        try:
            self.answered = Answered(number, self._reply())
        except (LedgerError, OSError, zmq.ZMQError) as error:
            self.answered = Answered(number, None, str(error) or type(error).__name__)
        except Exception as error:
            # Who waits for this thread would wait for ever.
            self.answered = Answered(number, None, f"{type(error).__name__}: {error}")
        finally:
            os.eventfd_write(self._descriptor, 1)

    def _reply(self) -> DocumentReply:
        """The answer of the first of the node's addresses at which somebody is."""
        *others, last = _endpoints(self._question.address)
        for endpoint in others:
            try:
                return self._reply_at(endpoint)
            except NotLeaderError:
                continue
        return self._reply_at(last)

    def _reply_at(self, endpoint: str) -> DocumentReply:
        with zmq.Context(io_threads=1) as context, context.socket(zmq.DEALER) as member:
            member.setsockopt(zmq.LINGER, 0)
            member.setsockopt(zmq.IPV6, 1)
            member.setsockopt(zmq.MAXMSGSIZE, BODY_SIZE_MAX + 1_024)
            member.setsockopt(zmq.HEARTBEAT_IVL, MEMBER_HEARTBEAT_MS)
            member.setsockopt(zmq.HEARTBEAT_TIMEOUT, 3 * MEMBER_HEARTBEAT_MS)
            self._set_keys(member)
            # Before it connects: an end that comes at once would be missed.
            monitor = monitor_of(member, _ENDED | _LOCKED_OUT)
            try:
                member.connect(endpoint)
                return self._asked(member, monitor)
            finally:
                member.disable_monitor()
                monitor.close(0)

    def _set_keys(self, member: Socket) -> None:
        folder = keys_directory(self._settings)
        if not (folder / SECRET_FILE).exists():
            return
        secret = read_secret_key(folder / SECRET_FILE, setting=KEYS_SETTING, way_out="")
        server = read_public_key(folder, NodeId(CLUSTER_KEY), others={})
        member.setsockopt(zmq.CURVE_SERVERKEY, server)
        member.setsockopt(zmq.CURVE_PUBLICKEY, zmq.curve_public(secret))
        member.setsockopt(zmq.CURVE_SECRETKEY, secret)

    def _asked(self, member: Socket, monitor: Socket) -> DocumentReply:
        library = f"ledgermq/{ledgermq.__version__}"
        member.send_multipart(encode_hello(1, client=_CLIENT, library=library))
        self._await(member, monitor, Kind.WELCOME, 1)
        document, digest, piece = b"", "", 0
        while True:
            fields = ask_fields(self._question.asked, hold_ms=self._question.hold_ms, piece=piece)
            member.send_multipart(encode_call(2 + piece, DOCUMENTS_VERB, **fields))
            body = self._await(member, monitor, Kind.RESULT, 2 + piece)
            found = read_reply(decode_body(body))
            if piece and found.digest != digest:
                raise ConfigError("cluster document has changed while it was read")
            document, digest, piece = document + found.content, found.digest, piece + 1
            if piece >= found.pieces:
                # Its session makes room for others.
                member.setsockopt(zmq.LINGER, GOODBYE_MS)
                member.send(encode_header(Kind.GOODBYE, 2 + piece))
                return found.reply._replace(document=document or None)

    def _await(self, member: Socket, monitor: Socket, kind: Kind, request_id: int) -> bytes:
        """The body of the awaited message."""
        sources: list[Pollable] = [member, self._stopped, monitor]
        polled = [(source, POLLIN) for source in sources]
        while (left_s := self._until - time.monotonic()) > 0:
            ready: dict[Pollable, int] = dict(zmq.zmq_poll(polled, int(1_000 * left_s) + 1))
            if self._stopped in ready:
                raise TimedOutError("node stops")
            if monitor in ready:
                self._end(parse_monitor_message(monitor.recv_multipart())["event"])
            if member not in ready:
                continue
            parts = member.recv_multipart()
            header = decode_header(parts[0])
            if header.request_id != request_id or len(parts) != 2:
                continue
            if header.kind is Kind.REFUSED:
                raise decode_refused(parts[1]).to_error()
            if header.kind is kind:
                return parts[1]
        raise TimedOutError("node does not answer", address=self._question.address)

    def _end(self, event: int) -> NoReturn:
        """Nobody is there any more, or was at all: the next one is asked."""
        address = self._question.address
        if event & _LOCKED_OUT:
            raise NoPermissionError(
                "node does not let this group in: see cluster.secret and cluster.public",
                address=address,
                setting=KEYS_SETTING,
            )
        raise NotLeaderError("no connection to the node, or it has ended", address=address)


def _endpoints(address: str) -> list[str]:
    """Endpoints of a node with numeric hosts, at least one: ZeroMQ resolves a name where it holds
    others up.
    """
    match = _NODE.fullmatch(address)
    if match is None:
        raise ConfigError("not an address of a node", address=address)
    found = look_up(match["six"] or match["host"])
    if not found.addresses:
        raise ConfigError("name not resolved", address=address, reason=found.failure)
    return [f"tcp://{host_and_port(host, match['port'])}" for host in found.addresses]
