"""Probe: who takes a connection at an endpoint, where none of ours comes to stand there.

ZeroMQ says that a connection was not made, and not why. So a connection of its own is made, which
never blocks and has no thread: the operating system says why nobody takes it, and the first bytes
say who does. Whoever says nothing is asked, in words that remoting and HTTP answer; and where that
is hung up on, once more as HTTP/2 and as TLS begin.
"""

from __future__ import annotations

import errno
import os
import re
import select
import socket
import stat
from pathlib import Path
from typing import Any

from ledgermq.formats.first_bytes import FIRST_BYTES_MAX, Spoken, recognise
from ledgermq.hosts.accounts import account_name, group_name, way_into
from ledgermq.hosts.host_name import socket_address
from ledgermq.model.errors import (
    OUT_OF_DESCRIPTORS,
    ConnectDeniedError,
    LedgerError,
    StrangerError,
    UnreachableError,
)

CAN_PROBE = hasattr(select, "epoll")
"""Elsewhere who reaches nobody waits for its time."""

LISTEN_S = 0.05
"""Who speaks first, as ZeroMQ and HTTP/2 do, has done so after so long."""

PROBE_ANSWER_S = 2.0
"""For an answer, and for the connection: nothing is known of who takes longer."""

_HEADER = b'{"code":105,"language":"OTHER","version":0,"opaque":1,"flag":0}\r\n\r\n'
_REQUEST = (len(_HEADER) + 4).to_bytes(4, "big") + len(_HEADER).to_bytes(4, "big") + _HEADER
"""A request of remoting's (the route of no topic), with lines as HTTP has them."""

_HELLO = bytes.fromhex(
    # A record, and the ClientHello in it; behind the random number: no session, two ciphers that
    # any server has or refuses, no compression, no extensions.
    "160301002f0100002b0303" + "00" * 32 + "000004c02f002f0100"
)
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""How a client begins HTTP/2: who speaks it answers with a frame of settings, too."""

_QUESTIONS = (_REQUEST, _PREFACE, _HELLO)
_GREETING = b"\xff" + bytes(7) + b"\x01\x7f\x03"
"""The beginning of a greeting of ZMTP 3, to which the other side tells all of its own.

With more it might end the connection, and what it has told would be lost with that."""

_GREETING_SIZE = 64
_MECHANISM = slice(12, 32)
_TCP = re.compile(r"tcp://(?P<host>\[[^\]]+\]|[^:/\[\]]+):(?P<port>[0-9]+)")
_NOT_HERE = {
    errno.ECONNREFUSED: "nobody listens at the address of the node: connection refused",
    errno.ENOENT: "there is no such socket: no node has this runtime directory"
    " (listen.runtime_dir), or it does not run",
    errno.ENOTDIR: "there is no such socket: a part of its path is no directory",
    errno.EHOSTUNREACH: "there is no way to the host of the node",
    errno.ENETUNREACH: "there is no way to the network of the node",
    errno.EADDRNOTAVAIL: "this machine has no address to reach the node from",
    errno.EPROTOTYPE: "the socket at this path is of another kind than a node's",
}
_SILENT = "the connection is taken, and nobody says anything"
_HUNG_UP = (
    "the connection is taken, and ended without a word: by a node that has too many, by what"
    " stands in front of one that does not run, or by a stranger"
)


class Probe:
    """One look at an endpoint.

    Attributes:
        is_done: whether there is nothing more to find out.
        error: what was found: nobody, or somebody else; None: a node may be there.
        seen: what was found where that is no error, in words; empty: nothing but a node.
        mechanism: how ZeroMQ's connections are secured there, ``NULL`` (not at all) or ``CURVE``;
            empty while that is not known.
        is_sure: it would be found again: a stranger has said what it is.
        descriptors: of what it waits for; others with each of its connections.
        deadline: when ``look`` has work that no descriptor tells of.
    """

    def __init__(self, endpoint: str, now: float) -> None:
        """Connect."""
        self.is_done = False
        self.error: LedgerError | None = None
        self.seen = self.mechanism = ""
        self._greeting = b""
        self.is_sure = False
        self.descriptors: tuple[int, ...] = ()
        self.deadline = now
        self._endpoint = endpoint
        self._questions = list(_QUESTIONS)
        self._socket: socket.socket | None = None
        self._epoll: select.epoll | None = None
        self._is_connected = self._has_asked = False
        self._connect(now)

    def look(self, now: float) -> bool:
        """Go on with what has come; true when ``descriptors`` are others, or it is done."""
        if self.is_done:
            return False
        assert self._epoll is not None and self._socket is not None
        if self._epoll.poll(0):
            if self._is_connected:
                return self._read(now)
            number = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if number:
                self._end(_why_not(self._endpoint, number))
            else:
                self._take(now)
        elif now >= self.deadline:
            if self._greeting:
                self._end()
            elif self._is_connected and not self._has_asked:
                self._ask(now)
            else:
                self.seen = _SILENT if self._is_connected else "nobody takes the connection"
                self._end()
        return self.is_done

    def close(self) -> None:
        """End it, whatever was found."""
        if self._epoll is not None:
            self._epoll.close()
        if self._socket is not None:
            self._socket.close()
        self._epoll = self._socket = None
        self.descriptors = ()

    def _connect(self, now: float) -> None:
        self._is_connected = self._has_asked = False
        try:
            family, target = _target(self._endpoint)
            self._socket = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            self._epoll = select.epoll()
            number = self._socket.connect_ex(target)
        except OSError as error:
            number = error.errno or errno.EIO
        if number in (0, errno.EINPROGRESS):
            assert self._socket is not None and self._epoll is not None
            self.deadline = now + PROBE_ANSWER_S
            self._epoll.register(self._socket, select.EPOLLOUT | select.EPOLLIN)
            self.descriptors = (self._epoll.fileno(),)
            if not number:
                self._take(now)
        else:
            self._end(_why_not(self._endpoint, number))

    def _take(self, now: float) -> None:
        """The connection stands: who speaks first has his time; who was hung up on, the word."""
        assert self._socket is not None and self._epoll is not None
        self._is_connected = True
        self._epoll.modify(self._socket, select.EPOLLIN)
        self.deadline = now + LISTEN_S
        if len(self._questions) < len(_QUESTIONS):
            self._ask(now)

    def _ask(self, now: float) -> None:
        assert self._socket is not None
        self._has_asked = True
        self.deadline = now + PROBE_ANSWER_S
        try:
            self._socket.send(self._questions.pop(0))
        except OSError:
            # That it was hung up on is read next.
            self.deadline = now

    def _read(self, now: float) -> bool:
        assert self._socket is not None
        try:
            first = self._socket.recv(_GREETING_SIZE)
        except BlockingIOError:
            return False
        except OSError:
            first = b""
        if self._greeting:
            return self._read_greeting(first)
        if first:
            first = first[:FIRST_BYTES_MAX]
            spoken = recognise(first)
            if spoken is Spoken.ZEROMQ:
                return self._greet(first, now)
            self.is_sure = True
            self._end(_stranger(self._endpoint, spoken, first))
        elif self._questions:
            self.close()
            self._connect(now)
        else:
            self.seen = _HUNG_UP
            self._end()
        return True

    def _greet(self, first: bytes, now: float) -> bool:
        """Ask for the rest of a greeting; over a unix socket nobody asks for keys."""
        assert self._socket is not None
        self._greeting = first
        self.deadline = now + PROBE_ANSWER_S
        try:
            if _TCP.fullmatch(self._endpoint):
                self._socket.send(_GREETING)
                return False
        except OSError:
            # It has gone: so much is known of it.
            pass
        self._end()
        return True

    def _read_greeting(self, more: bytes) -> bool:
        """Take more of a greeting; without it what is there speaks ZeroMQ all the same."""
        self._greeting += more
        if more and len(self._greeting) < _GREETING_SIZE:
            return False
        name = self._greeting[_MECHANISM].rstrip(b"\0").decode("ascii", "replace")
        self.mechanism = name if len(self._greeting) >= _GREETING_SIZE else ""
        self._end()
        return True

    def _end(self, error: LedgerError | None = None) -> None:
        self.error = error
        self.is_done = True
        self.close()


def _target(endpoint: str) -> tuple[socket.AddressFamily, Any]:
    match = _TCP.fullmatch(endpoint)
    if match is None:
        return socket.AF_UNIX, endpoint.removeprefix("ipc://")
    return socket_address(match["host"].strip("[]"), int(match["port"]))


def _why_not(endpoint: str, number: int) -> LedgerError | None:
    """What to tell of a connection that the operating system refuses; None: it says nothing of the
    node.
    """
    if number == errno.EACCES and endpoint.startswith("ipc://"):
        return _denied(endpoint, Path(endpoint.removeprefix("ipc://")))
    if number in OUT_OF_DESCRIPTORS or number == errno.EAGAIN:
        # Ours, or a node that is busy.
        return None
    text = _NOT_HERE.get(number, "the node cannot be reached")
    return UnreachableError(text, endpoint=endpoint, reason=os.strerror(number))


def _stranger(endpoint: str, spoken: Spoken, first: bytes) -> StrangerError:
    details: dict[str, object] = {"endpoint": endpoint}
    text = f"what listens at this address is no node of LedgerMQ: it speaks {spoken.value}"
    if spoken is Spoken.REMOTING:
        text += "; a node's own clients use the address of listen.consume, and not listen.remoting"
    elif spoken is Spoken.HTTP:
        text += "; a node's own clients use the address of listen.consume, and not listen.http"
    elif spoken is Spoken.GRPC:
        text += "; a node's own clients use the address of listen.consume, and not listen.grpc"
    elif spoken is Spoken.UNKNOWN:
        details["first_bytes"] = first
    return StrangerError(text, **details)


def _denied(endpoint: str, path: Path) -> ConnectDeniedError:
    """What to tell who may not connect: which group may."""
    # The outermost that keeps this account out is the last of which it may know anything.
    found = Path("/")
    for one in (*reversed(path.parents), path):
        try:
            one.lstat()
        except OSError:
            break
        found = one
    status = found.stat()
    account, owner = account_name(os.geteuid()), account_name(status.st_uid)
    needed = stat.S_IXGRP if found != path else stat.S_IWGRP
    details = {"endpoint": endpoint, "account": account, "path": str(found), "owner": owner}
    text = "this account may not connect to the node"
    if not status.st_mode & needed:
        return ConnectDeniedError(f"{text}: its owner alone may", **details)
    group = group_name(status.st_gid) or str(status.st_gid)
    return ConnectDeniedError(
        f"{text}: join the group that may ({way_into(group)}), and log in again",
        group=group,
        **details,
    )
