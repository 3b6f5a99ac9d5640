"""Space gate: producers are refused while this node's disk has no room.

Three states: there is room; the watermark ``retention.refuse_above`` is passed; a write was refused
for want of space. In the latter two producers are refused, raft hands the lead over, and the disk
is looked at once a second until it is better. Otherwise it is looked at when a file of the log is
made, and when settings change: an idle node does not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Self

from ledgermq.ipc.cursor_page import CursorPage
from ledgermq.ipc.loop import LOOK_AGAIN_MS, SLEEP_MAX_MS
from ledgermq.ipc.page_slots import SpaceState
from ledgermq.members.log_trouble import has_others
from ledgermq.model.config.amounts import FileSystem, amount
from ledgermq.model.config.settings import RetentionSection
from ledgermq.model.errors import DiskFullError, NotLeaderError
from ledgermq.model.events import Event
from ledgermq.model.ids import Position
from ledgermq.process.clock import NS_PER_MS
from ledgermq.process.node import Surroundings
from ledgermq.sessions.client_socket import ClientSocket
from ledgermq.store.files.disk_space import fill_reserve, measure
from ledgermq.store.files.store_paths import StorePaths
from ledgermq.store.log.log_writer import LogWriter
from ledgermq.writer.retention.log_retention import Retention

logger = logging.getLogger(__name__)

LOOK_NS = 1_000_000_000
TRIES = 3
"""A disk that refuses writes although it has room (a quota, a thin volume) takes so many, one a
look, before it counts as well."""

HAND_OVER_NS = 3_000_000_000
"""In a group clients are sent on for so long: another member is about to lead."""


class NoRoomError(DiskFullError):
    """The disk has no room for a frame: nothing of it was stored; the text has the numbers."""


class SpaceGate:
    """Publishes the state of the disk in the page, and refuses while it is not roomy.

    Attributes:
        state: as it was seen last.
        try_write: asks for blocks, and writes, where the log's next records go: a full disk is left
            when that works, and not by what the file system says of itself.
    """

    def __init__(
        self,
        page: CursorPage,
        root: Path,
        settings: RetentionSection,
        *,
        reserve: Path | None,
        has_others: Callable[[], bool],
        now_ns: Callable[[], int],
        look: Callable[[Path], FileSystem] = measure,
    ) -> None:
        """Nothing is looked at before ``turn``.

        Args:
            root: the store's directory.
            reserve: file of blocks for small files, kept full while there is room; None: none.
            has_others: tells whether other members can lead; asked when the disk gets full, for
                a group may have grown since the start.
            now_ns: monotonic clock.
        """
        self.try_write: Callable[[], None] = lambda: None
        self._page = page
        self._root = root
        self._reserve = reserve
        self._settings = settings
        self._look_for_others = has_others
        self._has_others = False
        self._now_ns = now_ns
        self._measure = look
        self._looked_ns = -LOOK_NS
        self._since_ns = 0
        self._files_made = -1
        self._disk = FileSystem(0, 0, 0)
        self._tries = 0
        # A writer that died of it finds the disk as its predecessor has left it.
        self.state = page.read_space().state
        self._why = "" if self.state is SpaceState.ROOMY else "no space for the log"

    @classmethod
    def of(cls, environment: Surroundings) -> Self:
        """The gate of the store that the settings name."""
        settings, paths = environment.settings, StorePaths.of(environment.settings)
        return cls(
            environment.page,
            paths.root,
            settings.retention,
            reserve=paths.reserve,
            has_others=partial(has_others, settings),
            now_ns=environment.clock.monotonic_ns,
        )

    def take_settings(self, settings: RetentionSection) -> None:
        """The settings have changed: look again."""
        self._settings = settings
        self._files_made = -1

    def turn(self, now_ns: int, files_made: int) -> bool:
        """Look at the disk if it is time; whether there is room again.

        Args:
            files_made: by the log; the disk is looked at when that has changed.

        Raises:
            StorageError: the disk cannot be looked at.
        """
        is_due = self.state is not SpaceState.ROOMY or files_made != self._files_made
        if not is_due or now_ns - self._looked_ns < LOOK_NS:
            return False
        self._files_made = files_made
        return self._look(now_ns)

    def sleep_ms(self, now_ns: int) -> int | None:
        """Milliseconds until ``turn`` has something to do by itself; None while that is never."""
        if self.state is SpaceState.ROOMY:
            return None
        return max(0, (self._looked_ns + LOOK_NS - now_ns) // 1_000_000)

    def check(self) -> None:
        """Refuse what a producer sends while there is no room.

        Raises:
            NotLeaderError: another member is about to lead instead of this one.
            NoRoomError: there is no other one.
        """
        if self.state is not SpaceState.ROOMY:
            raise self._refusal()

    def strike(self, error: DiskFullError) -> NoRoomError | NotLeaderError:
        """A write had no space; what to tell who has sent it."""
        self._looked_ns = self._now_ns()
        self._disk = disk = self._measure(self._root)
        self._tries = 1 if disk.free < self._settings.reserve_bytes else TRIES
        file, reason = (error.details.get(name, "") for name in ("file", "reason"))
        self._change(SpaceState.FULL, f"no space for the log: {file}: {reason}")
        return self._refusal()

    def _look(self, now_ns: int) -> bool:
        self._looked_ns = now_ns
        before = self.state
        self._disk = disk = self._measure(self._root)
        if amount(self._settings.refuse_above).is_passed(disk):
            if before is not SpaceState.FULL:
                self._change(SpaceState.ABOVE, "the disk is fuller than retention.refuse_above")
            return False
        try:
            if self._reserve is not None:
                fill_reserve(self._reserve, self._settings.reserve_bytes)
                self._disk = disk = self._measure(self._root)
        except DiskFullError as error:
            self._change(SpaceState.FULL, f"no space for the reserve: {error.details['file']}")
            return False
        # Not with the first free blocks: the next write would fail again, and the lead go to and
        # fro.
        if before is SpaceState.FULL and (
            disk.free < self._settings.reserve_bytes or not self._is_written()
        ):
            return False
        self._change(SpaceState.ROOMY, "")
        return before is not SpaceState.ROOMY

    def _is_written(self) -> bool:
        """Whether the disk has taken what was tried, often enough."""
        try:
            self.try_write()
        except DiskFullError:
            self._tries = max(self._tries, TRIES)
            return False
        self._tries -= 1
        return self._tries <= 0

    def _change(self, state: SpaceState, why: str) -> None:
        disk = self._disk
        if state is not self.state:
            self._since_ns = self._now_ns()
            self._has_others = self._look_for_others()
            if state is SpaceState.ROOMY:
                logger.info(
                    "disk has room again: free=%d of=%d",
                    disk.free,
                    disk.total,
                    extra={"event": Event.DISK_HAS_ROOM},
                )
            else:
                logger.warning(
                    "disk full, producers are refused: %s; free=%d of=%d used=%d%%"
                    " retention.refuse_above=%s retention.reserve_bytes=%d",
                    why,
                    disk.free,
                    disk.total,
                    disk.used_percent,
                    self._settings.refuse_above,
                    self._settings.reserve_bytes,
                    extra={"event": Event.DISK_FULL},
                )
        self.state, self._why = state, why
        self._page.publish_space(state, disk.free, disk.total, self._since_ns)

    def _refusal(self) -> NoRoomError | NotLeaderError:
        disk, settings = self._disk, self._settings
        text = f"{self._why or 'no space'}: nothing was stored"
        if self.state is SpaceState.ABOVE:
            setting, limit = "retention.refuse_above", settings.refuse_above
        else:
            setting, limit = "retention.reserve_bytes", str(settings.reserve_bytes)
        kind: type[NoRoomError | NotLeaderError] = NoRoomError
        if self._has_others and self._now_ns() - self._since_ns < HAND_OVER_NS:
            kind = NotLeaderError
        return kind(
            text,
            free=disk.free,
            total=disk.total,
            used_percent=disk.used_percent,
            limit=limit,
            setting=setting,
        )


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
