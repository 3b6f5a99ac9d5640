"""What every process of a node opens first: paths of the runtime directory, the page, its bells."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import zmq

from ledgermq.ipc.cursor_page import CursorPage, Role
from ledgermq.ipc.doorbell import Bell, Context, Inbox
from ledgermq.model.settings import Settings


@dataclass(frozen=True, slots=True)
class RuntimePaths:
    """Files and sockets of one running node, all in ``listen.runtime_dir``."""

    directory: Path

    @property
    def cursors(self) -> Path:
        """The cursor page."""
        return self.directory / "cursors"

    @property
    def append_ring(self) -> Path:
        """The ring through which raft hands entries to the writer."""
        return self.directory / "append-ring"

    @property
    def control(self) -> Path:
        """The supervisor's control socket."""
        return self.directory / "control.sock"

    @property
    def raft_control(self) -> Path:
        """The raft process's control socket."""
        return self.directory / "raft.sock"

    @property
    def produce(self) -> Path:
        """The writer's socket for producers."""
        return self.directory / "produce"

    @property
    def consume(self) -> Path:
        """The broker's socket for consumers."""
        return self.directory / "consume"


@dataclass(slots=True)
class Surroundings:
    """A process's ends of what the node's processes share."""

    role: Role
    settings: Settings
    paths: RuntimePaths
    page: CursorPage
    context: Context
    inbox: Inbox

    @classmethod
    def enter(cls, role: Role, settings: Settings) -> Self:
        """Attach to the page, take the slot of ``role``, bind the inbox.

        Raises:
            StaleGenerationError: the supervisor has made no page, or another version has.
        """
        paths = RuntimePaths(settings.listen.runtime_dir)
        page = CursorPage.attach(paths.cursors)
        page.enter_process(role)
        context: Context = zmq.Context(io_threads=1)
        return cls(role, settings, paths, page, context, Inbox(context, paths.directory, role))

    def bell(self, target: Role) -> Bell:
        """The way to wake ``target``."""
        return Bell(self.context, self.paths.directory, self.page, target)

    def leave(self) -> None:
        """Close what was opened; sockets first, so that nothing lingers."""
        self.inbox.close()
        self.context.destroy(linger=0)
        self.page.close()
