"""Doorbells and orders: one inbox a process, a ZeroMQ PULL socket, and PUSH sockets towards it.

An empty message is a bell: look at the cursor page. Any other message is an order or an answer to
one (``orders``). A bell to a process that is down, or whose inbox is full, is dropped: a process
looks at the page whenever it starts and at every tick. Orders are repeated by their sender until
answered, so they may be dropped the same way.
"""

from __future__ import annotations

from pathlib import Path

import zmq

from ledgermq.ipc.cursor_page import CursorPage, Role

INBOX_MESSAGES_MAX = 1_024
RECONNECT_MS = 5


def inbox_endpoint(runtime_dir: Path, role: Role) -> str:
    """Where the inbox of ``role`` is bound."""
    return f"ipc://{runtime_dir}/{role.title}.inbox"


Context = zmq.Context[zmq.Socket[bytes]]


class Inbox:
    """The inbox of this process; ``socket`` goes into its poll set."""

    def __init__(self, context: Context, runtime_dir: Path, role: Role) -> None:
        self.socket: zmq.Socket[bytes] = context.socket(zmq.PULL)
        self.socket.setsockopt(zmq.RCVHWM, INBOX_MESSAGES_MAX)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.bind(inbox_endpoint(runtime_dir, role))

    def drain(self) -> list[bytes]:
        """All orders that wait, oldest first; bells are swallowed. Never blocks."""
        orders: list[bytes] = []
        receive = self.socket.recv
        try:
            for _ in range(INBOX_MESSAGES_MAX):
                message = receive(zmq.NOBLOCK)
                if message:
                    orders.append(message)
        except zmq.Again:
            pass
        return orders

    def close(self) -> None:
        """Unbind."""
        self.socket.close(0)


class Bell:
    """The way to another process's inbox."""

    def __init__(
        self,
        context: Context,
        runtime_dir: Path,
        page: CursorPage,
        target: Role,
    ) -> None:
        self._page = page
        self._target = target
        self._socket: zmq.Socket[bytes] = context.socket(zmq.PUSH)
        self._socket.setsockopt(zmq.SNDHWM, INBOX_MESSAGES_MAX)
        self._socket.setsockopt(zmq.LINGER, 0)
        # Without a peer a send is refused at once: nothing may queue for a process that is down.
        self._socket.setsockopt(zmq.IMMEDIATE, 1)
        self._socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        self._socket.connect(inbox_endpoint(runtime_dir, target))

    def ring(self) -> None:
        """Wake the target if it sleeps; call it after the cursor was published."""
        if self._page.is_asleep(self._target):
            self._page.set_asleep(self._target, False)
            self.send(b"")

    def send(self, order: bytes) -> bool:
        """Hand over ``order``; false when the target is down or its inbox is full."""
        try:
            self._socket.send(order, zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def close(self) -> None:
        """Disconnect."""
        self._socket.close(0)
