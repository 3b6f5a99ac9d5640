"""Environment of a worker: settings, page, inbox and bells, which the simulator replaces.

``node.Surroundings`` is the real one. The simulator has another, with the same workers in it.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from concurrent.futures import Executor
from typing import Protocol

from ledgermq.ipc.append_ring import AppendRing
from ledgermq.ipc.cursor_page import CursorPage, Role
from ledgermq.ipc.loop import Pollable
from ledgermq.ipc.run_fence import RunFence
from ledgermq.model.config.settings import Settings
from ledgermq.process.clock import Clock
from ledgermq.process.runtime_paths import RuntimePaths
from ledgermq.sessions.client_rights import AccessGate
from ledgermq.sessions.client_socket import ClientSocket


class OrderInbox(Protocol):
    """Where a process gets its orders and bells; ``ipc.doorbell.Inbox`` is the real one."""

    @property
    def sources(self) -> list[Pollable]:
        """What wakes the process."""

    def drain(self, ready: Container[Pollable]) -> list[bytes]:
        """All orders that wait, oldest first. Never blocks."""


class OrderBell(Protocol):
    """The way to another process's inbox; ``ipc.doorbell.Bell`` is the real one."""

    def ring(self) -> None:
        """Wake the target if it sleeps; call it after the cursor was published."""

    def rouse(self) -> None:
        """Wake the target even if it listens for no bells now: for what seldom happens."""

    def send(self, order: bytes) -> bool:
        """Hand over ``order``; false when the target is down or its inbox is full."""

    def close(self) -> None:
        """Disconnect."""


class WorkerEnds(Protocol):
    """What any worker has of its node, one too that has no bells: nobody else is there."""

    @property
    def settings(self) -> Settings:
        """The node's."""

    @property
    def paths(self) -> RuntimePaths:
        """Files of the running node."""

    @property
    def page(self) -> CursorPage:
        """What the processes tell one another."""

    @property
    def inbox(self) -> OrderInbox:
        """Orders to this process."""

    @property
    def clock(self) -> Clock:
        """The node's time and chance."""


class Environment(WorkerEnds, Protocol):
    """A process's ends of what the node's processes and its clients share."""

    def bell(self, target: Role) -> OrderBell:
        """The way to wake ``target``."""

    def run_fence(self) -> RunFence:
        """This process's end of the fence between raft and writer; the caller closes it.

        Raises:
            StorageError: the operating system refused.
        """

    def append_ring(self) -> AppendRing:
        """A new ring from raft to the writer, in the place of the one before; the caller closes it.

        Raises:
            StorageError: the operating system refused, or has no room for it.
        """

    def background(self) -> Executor:
        """What runs work beside the process's loop; the caller shuts it down."""

    def produce_socket(
        self, gate: AccessGate, *, message_size_max: int, note_ended: Callable[[], object]
    ) -> ClientSocket:
        """Where producers connect to.

        Args:
            gate: whose keys are let in.
            message_size_max: of one part.
            note_ended: called for each connection that is ended because it holds too much.

        Raises:
            ConfigError: the endpoint of the settings cannot be bound, or its key not read.
        """
