"""Plain log: no other member has it, and its entries have no terms.

Its damage is reported and watched: readers and the dispatcher's scrub say where they found a record
that is not what was written, and nobody has another copy.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np

from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.formats.kernels.kernel import scan_entries, whole_records
from ledgermq.ipc.counters import RaftCounter
from ledgermq.ipc.cursor_page import LogCursor, Role
from ledgermq.ipc.loop import Pollable
from ledgermq.ipc.orders import Damaged, Repaired
from ledgermq.ipc.page_slots import HeldBy
from ledgermq.members.reports import LISTED_MAX, DamageStatus, write_report
from ledgermq.members.roster import Roster, roster_of
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import ConfigError
from ledgermq.model.events import Event
from ledgermq.model.ids import Index, NodeId, Position, Term
from ledgermq.process.environment import Environment
from ledgermq.raft.effects import AppendEntries, Effects
from ledgermq.raft.entry_terms import EntryTerms
from ledgermq.raft.membership import Membership
from ledgermq.raft.messages import EntryId
from ledgermq.raft_node.entries.membership_log import Told
from ledgermq.store.files.file_names import file_name, starts_in
from ledgermq.store.files.store_paths import StorePaths

logger = logging.getLogger(__name__)

LOOK_NS = 15_000_000_000
"""A file may have been put back meanwhile, as far as it can be while the node runs."""

KEPT_MAX = 1_000
REASON = "there is no other member"
_SIZE_FIELD = 4

_NO_OTHERS = "a plain CommitLog is not replicated"


class PlainDamages:
    """What is damaged now, by position.

    Attributes:
        count: how many records.
    """

    def __init__(self, folder: Path, report: Path, now_ns: int) -> None:
        """Nothing is known to be damaged.

        Args:
            folder: the log's files.
            report: the file that tells the operator what is damaged.
        """
        self._folder = folder
        self._report = report
        self._report.unlink(missing_ok=True)
        self._known: dict[int, DamageStatus] = {}
        self.count = 0
        self._due_ns = now_ns + LOOK_NS

    def take(self, position: int) -> None:
        """Somebody says that the record at ``position`` is damaged.

        Raises:
            OSError: the log cannot be read.
        """
        if position in self._known or len(self._known) >= KEPT_MAX:
            return
        found = self._look(position)
        if found is None:
            logger.warning(
                "log is whole where a reader found damage: the queue or index file that led there"
                " may be damaged: position=%d",
                position,
            )
            return
        self._known[position] = found
        self.count = len(self._known)
        logger.error(
            "log stays damaged: file=%s offset=%d position=%d reason=%s",
            found["file"],
            found["offset"],
            position,
            REASON,
            extra={"event": Event.LOG_STAYS_DAMAGED},
        )
        self._tell()

    def turn(self, now_ns: int) -> None:
        """Look at the damaged records again, now and then.

        Raises:
            OSError: the log cannot be read.
        """
        if not self._known or now_ns < self._due_ns:
            return
        self._due_ns = now_ns + LOOK_NS
        whole = [position for position in self._known if self._look(position) is None]
        self.count -= len(whole)
        for position in whole:
            del self._known[position]
            logger.warning(
                "log is whole again, or its file was deleted: position=%d",
                position,
                extra={"event": Event.LOG_REPAIRED},
            )
        if whole:
            self._tell()

    def _look(self, position: int) -> DamageStatus | None:
        """What is wrong with the record at ``position``; None if nothing is, or it is gone."""
        starts = (one for one in starts_in(self._folder) if one <= position)
        start = max(starts, default=None)
        if start is None:
            return None
        path = self._folder / file_name(start)
        try:
            size, is_whole = _record_at(path, position - start, start)
        except FileNotFoundError:
            return None
        if is_whole:
            return None
        return DamageStatus(
            file=str(path),
            offset=position - start,
            position=position,
            first_index=position + size,
            last_index=position + size,
            fault="record",
            unrepairable=REASON,
        )

    def _tell(self) -> None:
        write_report(self._report, list(self._known.values())[:LISTED_MAX])


def _record_at(path: Path, offset: int, start: int) -> tuple[int, bool]:
    """Size of a record by its first field, 0 if that cannot be, and whether it is whole."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        room = os.fstat(fd).st_size - offset
        size = int.from_bytes(os.pread(fd, _SIZE_FIELD, offset), "big")
        if not _SIZE_FIELD < size <= room:
            return 0, False
        data = memoryview(os.pread(fd, size, offset))
    finally:
        os.close(fd)
    starts, sizes = np.zeros(1, np.int64), np.zeros(1, np.int64)
    count, _, _ = scan_entries(data, 0, size, 0, start + offset, starts.data, sizes.data)
    if count != 1 or int(sizes[0]) != size:
        return size, False
    return size, whole_records(data, starts.data, sizes.data, 0, crc32) == 1


class FixedMembership:
    """``MembershipLog`` of a log that is not replicated: this node is the only member, for ever."""

    def __init__(self, roster: Roster) -> None:
        self.current = roster

    def addresses(self, *, commit: Index) -> Mapping[NodeId, str]:
        return self.current.addresses

    def becomes_certain(self, commit: Index) -> bool:
        return False

    def plan(self, node: NodeId, address: str) -> NoReturn:
        """Refuse every change of members.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(f"{_NO_OTHERS}: there are no other members", node=node, address=address)

    def propose(self, membership: Membership, *, term: Term, after: Index, now_ms: int) -> NoReturn:
        """Fail: the core has nobody to propose."""
        raise AssertionError(_NO_OTHERS)

    def recovered(self, log: EntryTerms) -> Told:
        return []

    def settled(self, last: EntryId) -> Told:
        return []

    def written(self, last: Index) -> Told:
        return []


class Alone:
    """``Replicated`` for a log that is not: it has only to tell what of the log is damaged."""

    def __init__(self, environment: Environment) -> None:
        """Nothing is known to be damaged."""
        settings = environment.settings
        self.memberships = FixedMembership(roster_of(settings))
        # As with every turn of the process: there is nothing else to wait for.
        self.wants_turn = True
        self.due_ns = 0
        self._counters = environment.page.counters(Role.RAFT)
        self._damages = PlainDamages(
            StorePaths.of(settings).data, environment.paths.damage, environment.clock.monotonic_ns()
        )

    @property
    def sources(self) -> list[Pollable]:
        return []

    @property
    def end(self) -> EntryId:
        """Fail: only who is sent entries has to know the end."""
        raise AssertionError(_NO_OTHERS)

    def sleep_ms(self, now_ns: int) -> int | None:
        """None: damage is looked at when the process wakes anyway."""
        return None

    def turn(self, ready: Container[Pollable], now_ns: int) -> None:
        self._damages.turn(now_ns)
        self._counters[RaftCounter.DAMAGED_ENTRIES] = self._damages.count

    def take_settings(self, settings: Settings) -> None:
        pass

    def close(self) -> None:
        pass

    def take_order(self, order: Damaged | Repaired) -> None:
        """Note a damaged position of the log; nobody has what would repair it."""
        if isinstance(order, Damaged):
            self._damages.take(order.position)

    def take(self, source: NodeId, parts: list[memoryview]) -> bool:
        return False

    def open_at(self, last: Index, position: Position) -> None:
        """Do nothing: no entry is read for another member."""

    def grown_to(self, last: Index, position: Position) -> NoReturn:
        """Nobody sends entries of a plain log."""
        raise AssertionError(_NO_OTHERS, last, position)

    def terms(self, last: EntryId) -> EntryTerms | None:
        return None

    def granted(self, last: Index) -> None:
        pass

    def replicate(self, effects: Effects) -> NoReturn:
        """Fail: there is no member to send entries to."""
        raise AssertionError(_NO_OTHERS)

    def feed(self, wants: Sequence[tuple[str, int, int]]) -> NoReturn:
        """Fail: there is no member to send entries to."""
        raise AssertionError(_NO_OTHERS)

    def append(
        self, accepted: AppendEntries, entries: memoryview, memberships: Sequence[Index]
    ) -> NoReturn:
        """Fail: there is no member who could send entries."""
        raise AssertionError(_NO_OTHERS)

    def cursor_at(self, index: Index) -> LogCursor:
        """The cursor of a record, whose index is the position of its end."""
        return LogCursor(Position(index), index, Term(0))

    def needed_before(self, wanted: Position, within: int, now_ns: int) -> tuple[Position, HeldBy]:
        return wanted, HeldBy.NOBODY

    def forget_before(self, position: Position) -> Index:
        return Index(-1)
