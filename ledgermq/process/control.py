"""Control socket: JSON lines over a unix stream, one answer a request, in order.

    → {"verb": "status"}
    ← {"state": "ready", …}
    → {"verb": "statsu"}
    ← {"error": {"kind": "ProtocolError", "number": 20, "message": "…", "details": {…}}}

Nobody on this socket can hold up the supervisor: nothing blocks, the number of clients and the size
of a request are bounded, and a client that does not read its answer gets no second one. Nor can an
account keep others out by the number of its connections: it makes room for whoever has fewer, and
everybody for operators.
"""

from __future__ import annotations

import json
import logging
import os
import selectors
import socket
import stat
import struct
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ledgermq.model.errors import (
    OUT_OF_DESCRIPTORS,
    BusyError,
    ConfigError,
    LedgerError,
    NoPermissionError,
    NotLeaderError,
    ProtocolError,
    StorageError,
    TimedOutError,
)

audit = logging.getLogger("ledgermq.audit")

ANSWER_TIMEOUT_S = 5.0
CLIENTS_MAX = 16
REQUEST_SIZE_MAX = 4_096
ANSWER_SIZE_MAX = 1024 * 1024
SPOKEN_NAME_SIZE_MAX = 255
"""Longest name of a caller for whom an operator speaks, in characters."""

IDLE_MAX_NS = 30_000_000_000
"""A client that was silent for so long makes room when there is none."""

PATH_SIZE_MAX = 107
"""``sun_path`` of a unix socket's address, without the zero byte."""

Answer = Callable[[str, Mapping[str, object]], Mapping[str, object]]
"""Answers the request with this verb; raises ``LedgerError`` to refuse it."""


@dataclass(slots=True, eq=False)
class _Client:
    socket: socket.socket
    uid: int
    active_ns: int
    received: bytes = b""
    unsent: bytes = b""
    is_leaving: bool = False

    @property
    def has_work(self) -> bool:
        """Whether there is something to do before more is read."""
        return bool(self.unsent) or b"\n" in self.received


class ControlServer:
    """The supervisor's end. Invariant: a client that has work is not read from."""

    def __init__(
        self,
        path: Path,
        mode: int,
        selector: selectors.BaseSelector,
        answer: Answer,
        *,
        audited: frozenset[str] = frozenset(),
    ) -> None:
        """Listen at ``path``; what was there is replaced, so the caller holds the directory's lock.

        Args:
            audited: verbs of operators (root, and the account of this process) alone: whoever may
                produce can reach the socket, too. Each leaves a line in the log.

        Raises:
            ConfigError: the path is too long for a socket.
            StorageError: the socket cannot be made there.
        """
        check_path(path)
        self._path = path
        self._selector = selector
        self._answer = answer
        self._audited = audited
        self._clients: dict[int, _Client] = {}
        self._listener = _listen(path, mode)
        selector.register(self._listener, selectors.EVENT_READ)

    def serve(self, fd: int, now_ns: int) -> None:
        """Do what can be done on a descriptor of ours that is ready."""
        client = self._accept(now_ns) if fd == self._listener.fileno() else self._clients.get(fd)
        if client is None:
            return
        client.active_ns = now_ns
        try:
            if not client.has_work:
                self._receive(client)
            self._work(client)
        except OSError:
            # The client is gone, or might as well be: it can come again.
            self._drop(client)

    def owns(self, fd: int) -> bool:
        """Whether a descriptor is one of ours."""
        return fd == self._listener.fileno() or fd in self._clients

    def close(self) -> None:
        """Stop listening, and remove the socket."""
        self.close_in_child()
        self._path.unlink(missing_ok=True)

    def close_in_child(self) -> None:
        """Close our descriptors; the socket stays, for it is the supervisor's."""
        for client in self._clients.values():
            client.socket.close()
        self._clients.clear()
        self._listener.close()

    def _accept(self, now_ns: int) -> _Client | None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            # Who knocked has left again.
            return None
        except OSError as error:
            if error.errno not in OUT_OF_DESCRIPTORS:
                raise
            # Who knocks is taken when one is free again.
            return None
        connection.setblocking(False)
        client = _Client(connection, _uid_of(connection), now_ns)
        if len(self._clients) >= CLIENTS_MAX and not self._make_room(client.uid, now_ns):
            client.unsent = _encoded(_refusal(BusyError("too many clients", limit=CLIENTS_MAX)))
            client.is_leaving = True
        self._clients[connection.fileno()] = client
        self._selector.register(connection, selectors.EVENT_READ)
        return client

    def _make_room(self, uid: int, now_ns: int) -> bool:
        """Drop a client for a new one of the account ``uid``; false if that has to come again."""
        clients = self._clients.values()
        held = Counter(client.uid for client in clients)
        may_push = _is_operator(uid)

        def must_yield(client: _Client) -> bool:
            has_more = held[client.uid] > held[uid]
            return (has_more and may_push) if _is_operator(client.uid) else (has_more or may_push)

        crowd = [*filter(must_yield, clients)]
        if crowd:
            self._drop(max(crowd, key=lambda client: (held[client.uid], -client.active_ns)))
            return True
        oldest = min(clients, key=lambda client: client.active_ns)
        if now_ns - oldest.active_ns < IDLE_MAX_NS:
            return False
        self._drop(oldest)
        return True

    def _receive(self, client: _Client) -> None:
        try:
            data = client.socket.recv(REQUEST_SIZE_MAX)
        except BlockingIOError:
            return
        if not data:
            raise ConnectionResetError("client has left")
        client.received += data

    def _work(self, client: _Client) -> None:
        """Answer at most one request, so that one client cannot keep the supervisor busy."""
        if not client.unsent:
            line, newline, rest = client.received.partition(b"\n")
            if len(line) > REQUEST_SIZE_MAX:
                error = ProtocolError("request too long", limit=REQUEST_SIZE_MAX)
                client.unsent = _encoded(_refusal(error))
                client.is_leaving = True
            elif newline:
                client.received = rest
                client.unsent = _encoded(self._answer_line(line, client.uid))
        if client.unsent:
            self._send(client)
        if client.is_leaving and not client.unsent:
            self._drop(client)
            return
        wanted = selectors.EVENT_WRITE if client.has_work else selectors.EVENT_READ
        self._selector.modify(client.socket, wanted)

    def _answer_line(self, line: bytes, uid: int) -> Mapping[str, object]:
        try:
            request = _parsed(line)
            verb = request.get("verb")
            if not isinstance(verb, str):
                raise ProtocolError("verb is missing", expected='{"verb": "status"}')
            if verb not in self._audited:
                return self._answer(verb, request)
        except LedgerError as error:
            return _refusal(error)
        subject = str(request.get("node", request.get("target", "")))[:64]
        # Only who may do so is believed for whom it speaks.
        named = request.get("speaks_for") if _is_operator(uid) else None
        who = (
            f"{named[:SPOKEN_NAME_SIZE_MAX]} (uid {uid})"
            if isinstance(named, str)
            else f"uid {uid}"
        )
        act = {"who": who, "act": verb, "on": subject}
        try:
            if not _is_operator(uid):
                raise NoPermissionError(
                    "only root and the node's own account may do that", verb=verb, uid=uid
                )
            answer = self._answer(verb, request)
        except LedgerError as error:
            audit.info("admin act", extra={**act, "outcome": "refused", "reason": str(error)})
            return _refusal(error)
        audit.info("admin act", extra={**act, "outcome": "done"})
        return answer

    def _send(self, client: _Client) -> None:
        try:
            sent = client.socket.send(client.unsent)
        except BlockingIOError:
            return
        client.unsent = client.unsent[sent:]

    def _drop(self, client: _Client) -> None:
        fd = client.socket.fileno()
        if fd < 0:
            return
        self._selector.unregister(client.socket)
        del self._clients[fd]
        client.socket.close()


def check_path(path: Path) -> None:
    """Refuse a path that no unix socket can have.

    Raises:
        ConfigError: it is too long.
    """
    size = len(os.fsencode(path))
    if size > PATH_SIZE_MAX:
        raise ConfigError(
            f"listen.runtime_dir is too long: the path {path} has {size} bytes,"
            f" a socket's may have {PATH_SIZE_MAX}"
        )


def ask(
    path: Path, verb: str, *, timeout_s: float = ANSWER_TIMEOUT_S, **fields: object
) -> dict[str, object]:
    """The node's answer to ``verb``, asked with ``fields``; at most ``timeout_s`` a step.

    Raises:
        StorageError: no node listens there, or this user may not ask it.
        TimedOutError: the process does not answer.
        BusyError: not now, but it may be asked again.
        NotLeaderError: the leader has to be asked, which may be another one by now.
        ProtocolError: it refused the request, or what answers is not a node.
    """
    check_path(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        try:
            connection.connect(os.fspath(path))
            with suppress(BrokenPipeError):
                # Who is refused before it asks can read why.
                connection.sendall(_encoded({"verb": verb, **fields}))
            line = _read_line(connection)
        except TimeoutError as error:
            raise TimedOutError(
                "the node does not answer", path=str(path), timeout_s=timeout_s
            ) from error
        except OSError as error:
            raise StorageError(_not_reached(error), errno=error.errno, path=str(path)) from error
    answer = _parsed(line)
    refusal = answer.get("error")
    if isinstance(refusal, dict):
        for kind in (BusyError, NotLeaderError):
            if refusal.get("kind") == kind.__name__:
                raise kind(str(refusal.get("message")), verb=verb)
        raise ProtocolError(f"the node refused: {refusal.get('message')}", verb=verb)
    return answer


def _listen(path: Path, mode: int) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    # As long as the path itself, which is limited; whoever sees the path can connect to it.
    unborn = path.with_name(path.name[:-1] + "~")
    try:
        unborn.unlink(missing_ok=True)
        before = os.umask(0o777)
        try:
            listener.bind(os.fspath(unborn))
        finally:
            os.umask(before)
        unborn.chmod(stat.S_IMODE(mode))
        listener.listen(CLIENTS_MAX)
        unborn.replace(path)
    except OSError as error:
        listener.close()
        raise StorageError(
            f"control socket not made: {error.strerror}", errno=error.errno, path=str(path)
        ) from error
    return listener


def _read_line(connection: socket.socket) -> bytes:
    received = b""
    while not received.endswith(b"\n"):
        data = connection.recv(65_536)
        if not data:
            raise ConnectionResetError("connection ended before the answer")
        received += data
        if len(received) > ANSWER_SIZE_MAX:
            raise ProtocolError("answer too long", limit=ANSWER_SIZE_MAX)
    return received


def _not_reached(error: OSError) -> str:
    if isinstance(error, FileNotFoundError | ConnectionRefusedError):
        return "no node is running there"
    if isinstance(error, PermissionError):
        return "this user may not ask the node (listen.socket_mode, and the socket's group)"
    return f"the node was not reached: {error.strerror or error}"


def _parsed(line: bytes) -> dict[str, object]:
    try:
        document: object = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ProtocolError("not a line of JSON", line=line[:80]) from error
    if not isinstance(document, dict):
        raise ProtocolError("not a JSON object", line=line[:80])
    return document


def _uid_of(asker: socket.socket) -> int:
    """Whose process the kernel says is at the other end of a unix stream."""
    size = struct.calcsize("3i")
    found = asker.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    _pid, uid, _gid = struct.unpack("3i", found)
    return int(uid)


def _is_operator(uid: int) -> bool:
    return uid in (0, os.geteuid())


def _refusal(error: LedgerError) -> dict[str, object]:
    return {
        "error": {
            "kind": type(error).__name__,
            "number": error.number,
            "message": str(error),
            "details": error.details,
        }
    }


def _encoded(document: Mapping[str, object]) -> bytes:
    return json.dumps(document, default=str, separators=(",", ":")).encode() + b"\n"


class PolledControl:
    """Owned by the worker's process; ``source`` goes into its poll set."""

    def __init__(self, path: Path, mode: int, answer: Answer, *, audited: frozenset[str]) -> None:
        """Listen at ``path``; see ``ControlServer``.

        Raises:
            ConfigError: the path is too long for a socket.
            StorageError: the socket cannot be made there.
        """
        self._selector = selectors.EpollSelector()
        self._server = ControlServer(path, mode, self._selector, answer, audited=audited)

    @property
    def source(self) -> int:
        """A descriptor that can be read while a client waits."""
        return self._selector.fileno()

    def serve(self, now_ns: int) -> None:
        """Do what clients wait for; never blocks."""
        for key, _ in self._selector.select(0):
            self._server.serve(key.fd, now_ns)

    def close(self) -> None:
        """Stop listening, and remove the socket."""
        self._server.close()
        self._selector.close()
