"""Rare looks of the writer: at connections, the disk and old files, and not with each message."""

from __future__ import annotations

from collections.abc import Callable

from ledgermq.ipc.loop import LOOK_AGAIN_MS, SLEEP_MAX_MS
from ledgermq.ipc.space_slots import SpaceState
from ledgermq.model.ids import Position
from ledgermq.process.clock import NS_PER_MS
from ledgermq.sessions.client_socket import ClientSocket
from ledgermq.store.log.log_writer import LogWriter
from ledgermq.writer.retention.log_retention import Retention
from ledgermq.writer.retention.space_gate import SpaceGate

CLIENTS_LOOK_NS = 20_000_000
"""Connections that hold too much are looked for so often, and what else changes seldom."""


class RareLooks:
    """Owned by the writer; what it looks at is asked in a turn only when it may have changed.

    Attributes:
        due_ns: when to look next, by the monotonic clock.
    """

    def __init__(
        self,
        socket: ClientSocket,
        gate: SpaceGate,
        retention: Retention | None,
        log: LogWriter,
        *,
        forget_before: Callable[[Position], object],
    ) -> None:
        """The first turn looks.

        Args:
            retention: deletes what is old; None: nothing is deleted.
            forget_before: nothing before the position is to be read any more.
        """
        self._socket = socket
        self._gate = gate
        gate.try_write = log.try_write
        self._retention = retention
        self._log = log
        self._forget_before = forget_before
        self._files_made = -1
        self.due_ns = self._wake_ns = 0
        self._rest_ms = SLEEP_MAX_MS

    def turn(self, now_ns: int) -> bool:
        """Look; whether the disk has room again. To be called when it is due, or not roomy.

        Raises:
            StorageError: the disk cannot be looked at, or an old file not be deleted.
        """
        self.due_ns = now_ns + CLIENTS_LOOK_NS
        self._files_made = files_made = self._log.files_made
        self._socket.look(now_ns)
        self._rest_ms = LOOK_AGAIN_MS if self._socket.is_watched else SLEEP_MAX_MS
        has_room = self._gate.turn(now_ns, files_made)
        self._wake_ns = now_ns + SLEEP_MAX_MS * NS_PER_MS
        retention = self._retention
        if retention is not None:
            if retention.turn(now_ns, files_made):
                self._forget_before(retention.wanted)
            due_ms = retention.sleep_ms(now_ns)
            if due_ms is not None:
                self._wake_ns = now_ns + due_ms * NS_PER_MS
            if retention.is_busy:
                # What it waits for comes with a bell, or with none.
                self.due_ns = now_ns
        self.due_ns = min(self.due_ns, self._wake_ns)
        return has_room

    def sleep_ms(self, now_ns: int) -> int:
        """Milliseconds until ``turn`` has something to do although nothing comes."""
        wait = self._rest_ms
        if self._gate.state is not SpaceState.ROOMY:
            wait = min(wait, self._gate.sleep_ms(now_ns) or 0)
        left = (self._wake_ns - now_ns) // NS_PER_MS
        return wait if left >= wait else max(0, left)

    def note_grown(self) -> None:
        """The log has grown: a new file is a reason to look."""
        if self._log.files_made != self._files_made:
            self.hasten()

    def hasten(self) -> None:
        """Have the next turn look, and come at once: settings are others, or somebody connects."""
        self.due_ns = self._wake_ns = 0
