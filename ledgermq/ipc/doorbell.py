"""Doorbells and orders: the two ways in which a process of a node reaches another one.

A *bell* says: look at the cursor page. It is one byte in a FIFO, ``RUNTIME/<process>.bell``, and is
rung only when the other side sleeps. An *order* (``orders``) is a message to the process's inbox, a
ZeroMQ PULL socket. A bell to a process that is down, or whose FIFO is full, is dropped: a process
looks at the page whenever it starts and at every tick. Orders are repeated by their sender until
answered, so they may be dropped the same way.

Both sides open a FIFO for reading and writing, so it has no end of file and no order of opening.
"""

from __future__ import annotations

import os
from collections.abc import Container
from contextlib import suppress
from pathlib import Path

import zmq

from ledgermq.ipc.cursor_page import CursorPage, Role
from ledgermq.model.errors import refused_as

INBOX_MESSAGES_MAX = 1_024
BELLS_READ_MAX = 4_096
RECONNECT_MS = 5


def inbox_path(runtime_dir: Path, role: Role) -> Path:
    """The socket of the inbox of ``role``."""
    return runtime_dir / f"{role.title}.inbox"


Context = zmq.Context[zmq.Socket[bytes]]


def open_bell(runtime_dir: Path, role: Role) -> int:
    """Descriptor of the FIFO of ``role``, made if it is not there: a byte in it is a bell."""
    path = runtime_dir / f"{role.title}.bell"
    with refused_as("bell not opened", why="", path=path):
        with suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


class Inbox:
    """The inbox and the bell of this process; ``sources`` go into its poll set."""

    def __init__(self, context: Context, runtime_dir: Path, role: Role) -> None:
        self.socket: zmq.Socket[bytes] = context.socket(zmq.PULL)
        self.socket.setsockopt(zmq.RCVHWM, INBOX_MESSAGES_MAX)
        self.socket.setsockopt(zmq.LINGER, 0)
        path = inbox_path(runtime_dir, role)
        self.socket.bind(f"ipc://{path}")
        # Orders cut the log: whatever the umask says, they are for processes of this account alone.
        path.chmod(0o600)
        self._bell = open_bell(runtime_dir, role)

    @property
    def sources(self) -> list[zmq.Socket[bytes] | int]:
        """What wakes the process: the orders' socket, the bell's descriptor."""
        return [self.socket, self._bell]

    @property
    def bell(self) -> int:
        """The bell's descriptor: all that is read of it may be swallowed."""
        return self._bell

    def drain(self, ready: Container[zmq.Socket[bytes] | int]) -> list[bytes]:
        """All orders that wait, oldest first; bells are swallowed. Never blocks.

        Args:
            ready: the sources that can be read.
        """
        if self._bell in ready:
            try:  # noqa: SIM105 - with each message: a context manager costs three calls
                os.read(self._bell, BELLS_READ_MAX)
            except BlockingIOError:
                pass
        orders: list[bytes] = []
        if self.socket in ready:
            with suppress(zmq.Again):
                for _ in range(INBOX_MESSAGES_MAX):
                    orders.append(self.socket.recv(zmq.NOBLOCK))
        return orders

    def close(self) -> None:
        """Unbind."""
        self.socket.close(0)
        os.close(self._bell)


class Bell:
    """The way to another process's inbox."""

    def __init__(
        self,
        context: Context,
        runtime_dir: Path,
        page: CursorPage,
        target: Role,
    ) -> None:
        self._asleep = page.asleep_cell(target)
        self._socket: zmq.Socket[bytes] = context.socket(zmq.PUSH)
        self._socket.setsockopt(zmq.SNDHWM, INBOX_MESSAGES_MAX)
        self._socket.setsockopt(zmq.LINGER, 0)
        # Without a peer a send is refused at once: nothing may queue for a process that is down.
        self._socket.setsockopt(zmq.IMMEDIATE, 1)
        self._socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        self._socket.connect(f"ipc://{inbox_path(runtime_dir, target)}")
        self._bell = open_bell(runtime_dir, target)

    def ring(self) -> None:
        """Wake the target if it sleeps; call it after the cursor was published."""
        if self._asleep[0]:
            # One bell for each sleep: all who ring until it is awake need not.
            self._asleep[0] = 0
            self.rouse()

    def rouse(self) -> None:
        """Wake the target even if it listens for no bells now: for what seldom happens."""
        try:  # noqa: SIM105 - with each message: a context manager costs three calls
            os.write(self._bell, b"\0")
        except BlockingIOError:
            # A full FIFO holds bells enough.
            pass

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
        os.close(self._bell)
