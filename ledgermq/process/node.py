"""Surroundings that every process of a node opens first: page, inbox, bells."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Self

import zmq

from ledgermq.ipc.append_ring import AppendRing
from ledgermq.ipc.cursor_page import CursorPage, Role
from ledgermq.ipc.doorbell import Bell, Context, Inbox
from ledgermq.ipc.run_fence import RunFence
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import ConfigError
from ledgermq.process import log_lines
from ledgermq.process.clock import Clock, MachineClock
from ledgermq.process.runtime_paths import RuntimePaths
from ledgermq.sessions.client_rights import AccessGate
from ledgermq.sessions.client_socket import ClientSocket, open_client_socket
from ledgermq.sessions.joined_sockets import JoinedSockets
from ledgermq.sessions.local_connections import LocalConnections


@dataclass(slots=True)
class Surroundings:
    """A process's ends of what the node's processes share."""

    role: Role
    settings: Settings
    paths: RuntimePaths
    page: CursorPage
    context: Context
    inbox: Inbox
    clock: Clock = field(default_factory=MachineClock)

    @classmethod
    def enter(cls, role: Role, settings: Settings) -> Self:
        """Attach to the page, take the slot of ``role``, bind the inbox.

        Raises:
            StaleGenerationError: the supervisor has made no page, or another version has.
        """
        paths = RuntimePaths(settings.listen.runtime_dir)
        page = CursorPage.attach(paths.cursors)
        page.enter_process(role)
        log_lines.follow(page)
        context: Context = zmq.Context(io_threads=1)
        return cls(role, settings, paths, page, context, Inbox(context, paths.directory, role))

    def bell(self, target: Role) -> Bell:
        """The way to wake ``target``."""
        return Bell(self.context, self.paths.directory, self.page, target)

    def run_fence(self) -> RunFence:
        """That of the runtime directory."""
        return RunFence(self.paths.run_fence)

    def append_ring(self) -> AppendRing:
        """That of the runtime directory."""
        return AppendRing.create(self.paths.append_ring)

    def background(self) -> Executor:
        """One thread, begun with the first work."""
        return ThreadPoolExecutor(1, thread_name_prefix=f"{self.role.title}-background")

    def produce_socket(
        self, gate: AccessGate, *, message_size_max: int, note_ended: Callable[[], object]
    ) -> ClientSocket:
        """Bound as the settings say; see ``open_client_socket``, and ``LocalConnections``."""
        # First: who finds ZeroMQ's socket alone has an older node before it.
        local = LocalConnections(
            self.paths.produce_stream,
            mode=self.settings.listen.socket_mode,
            part_size_max=message_size_max,
            note_ended=note_ended,
        )
        try:
            router = open_client_socket(
                self.context,
                self.paths.produce,
                self.settings.listen.produce,
                settings=self.settings,
                gate=gate,
                message_size_max=message_size_max,
                note_ended=note_ended,
            )
        except ConfigError:
            local.close()
            raise
        return JoinedSockets(router, local)

    def leave(self) -> None:
        """Close what was opened; sockets first, so that nothing lingers."""
        self.inbox.close()
        self.context.destroy(linger=0)
        log_lines.follow(None)
        self.page.close()
