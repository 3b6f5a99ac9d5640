"""ZAP authenticator (RFC 27): which CURVE keys may connect, answered in the process's loop."""

from __future__ import annotations

from collections.abc import Callable

import zmq
from zmq.utils import z85

from ledgermq.formats.records.host_address import plain_address
from ledgermq.ipc.doorbell import Context
from ledgermq.ipc.zmq_flags import NOBLOCK, has_input
from ledgermq.model.errors import LedgerError
from ledgermq.sessions.connection_names import metadata_of, new_name
from ledgermq.sessions.refusal_lines import RefusalLines

_ENDPOINT = "inproc://zeromq.zap.01"
_PARTS = 7


class KeyGuard:
    """Answers for all sockets of a context; one in a context.

    The answer to a key that is let in carries a name, which ZeroMQ attaches to each message of that
    connection as ``User-Id``. The connection's routing id is one of ours then, whatever the client
    has chosen (``connection_names``).

    Attributes:
        lines: which refusals are worth a line of the log.
    """

    def __init__(self, context: Context, user_of: Callable[[bytes], bytes | None]) -> None:
        """A guard that is asked before a connection counts; whoever polls calls ``serve``.

        Args:
            user_of: the name for a key (Z85), not empty; None keeps it out. It raises a retriable
                error while nobody can tell: the connection is ended then without a word, and who
                has made it tries again.
        """
        self.lines = RefusalLines()
        self._user_of = user_of
        self.socket: zmq.Socket[bytes] = context.socket(zmq.REP)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.bind(_ENDPOINT)

    def serve(self) -> list[tuple[str, str]]:
        """Answer what waits; address and key (Z85) of those that were refused."""
        refused = []
        while has_input(self.socket):
            request = self.socket.recv_multipart(NOBLOCK)
            assert len(request) == _PARTS, request  # ZeroMQ itself asks
            version, request_id, _domain, address, _id, _mechanism, key = request
            text = z85.encode(key)
            user: bytes | None = None
            status, reason = b"300", b"users are not known yet"
            try:
                user = self._user_of(text)
            except LedgerError as error:
                if not error.retriable:
                    raise
            else:
                status, reason = (b"400", b"unknown key") if user is None else (b"200", b"")
            # What the client has told of itself was read before: this name takes its place.
            metadata = metadata_of(new_name())
            self.socket.send_multipart(
                [version, request_id, status, reason, user or b"", metadata], NOBLOCK
            )
            if status == b"400":
                host = plain_address(address.decode(errors="replace"))
                refused.append((host, text.decode()))
        return refused

    def close(self) -> None:
        """Unbind; the sockets that it guards are closed first: without an answer they let nobody
        in.
        """
        self.socket.close(0)
