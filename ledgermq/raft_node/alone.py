"""Plain log: no other member has it, and its entries have no terms."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import NoReturn

from ledgermq.ipc.counters import RaftCounter
from ledgermq.ipc.cursor_page import LogCursor, Role
from ledgermq.ipc.loop import Pollable
from ledgermq.ipc.orders import Damaged, Repaired
from ledgermq.ipc.space_slots import HeldBy
from ledgermq.members.roster import Roster, roster_of
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import ConfigError
from ledgermq.model.ids import Index, NodeId, Position, Term
from ledgermq.process.environment import Environment
from ledgermq.raft.effects import AppendEntries, Effects
from ledgermq.raft.entry_terms import EntryTerms
from ledgermq.raft.membership import Membership
from ledgermq.raft.messages import EntryId
from ledgermq.raft_node.entries.membership_log import Told
from ledgermq.raft_node.repair.plain_damage import PlainDamages
from ledgermq.store.files.store_paths import StorePaths

_NO_OTHERS = "a plain CommitLog is not replicated"


class FixedMembership:
    """``MembershipLog`` of a log that is not replicated: this node is the only member, for ever."""

    def __init__(self, roster: Roster) -> None:
        self.current = roster

    def addresses(self, *, commit: Index) -> Mapping[NodeId, str]:
        del commit
        return self.current.addresses

    def becomes_certain(self, commit: Index) -> bool:
        del commit
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
        del log
        return []

    def settled(self, last: EntryId) -> Told:
        del last
        return []

    def written(self, last: Index) -> Told:
        del last
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
        del now_ns
        return None

    def turn(self, ready: Container[Pollable], now_ns: int) -> None:
        del ready
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
        del source, parts
        return False

    def open_at(self, last: Index, position: Position) -> None:
        """Do nothing: no entry is read for another member."""

    def terms(self, last: EntryId) -> EntryTerms | None:
        del last
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
        del within, now_ns
        return wanted, HeldBy.NOBODY

    def forget_before(self, position: Position) -> Index:
        del position
        return Index(-1)
