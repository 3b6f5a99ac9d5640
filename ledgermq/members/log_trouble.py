"""Reaction to a damaged log: the damage is noted, and the whole node opened anew.

Opening begins with recovery, which looks at the log from the noted place on, and decides
(docs/decisions/0009). All processes begin again, for the log may be shorter then than what they
have published, dispatched and mapped. A node that is alone has nobody to fetch from: it refuses
what it cannot read, and keeps all that it has.
"""

from __future__ import annotations

import logging

from ledgermq.members.roster import RosterFile, roster_of
from ledgermq.model.config.settings import LogKind, Settings
from ledgermq.model.errors import CorruptLogError
from ledgermq.model.events import Event
from ledgermq.model.ids import Index, NodeId, Position, Term
from ledgermq.store.files.store_paths import StorePaths
from ledgermq.store.recovery.log_damage import LogDamage, damage_path, mark_damage

logger = logging.getLogger(__name__)


class LogDamagedError(CorruptLogError):
    """A damage of the log was noted, and the node is to be opened anew (exit status 4)."""


def has_others(settings: Settings) -> bool:
    """Whether other members hold the log, too: of the settings, or of the last membership known.

    Raises:
        CorruptLogError, StorageError: the list of members cannot be read.
    """
    if settings.store.log is not LogKind.DLEDGER:
        return False
    known = RosterFile(StorePaths.of(settings).members).entries
    roster = known[-1].roster if known else roster_of(settings)
    return bool(roster.membership.members - {NodeId(settings.node.self_id)})


class KnownMembers:
    """Whether there are other members, for a process that reads their list at its start.

    A node that is alone may be joined while it runs: then whoever leads is another one.
    """

    def __init__(self, settings: Settings) -> None:
        """Read the list.

        Raises:
            CorruptLogError, StorageError: it cannot be read.
        """
        self._self_id = settings.node.self_id
        self._were_there = has_others(settings)

    def are_there(self, leader: str) -> bool:
        """Whether there are other members, by the list of then, or by who leads now; ``leader`` is
        empty while nobody does.
        """
        return self._were_there or leader not in ("", self._self_id)


def note_damage(settings: Settings, damage: LogDamage) -> LogDamage:
    """Remember ``damage``, durably; what is remembered now.

    Raises:
        CorruptLogError, StorageError: that failed.
    """
    marked = mark_damage(damage_path(settings.store.path_root_dir), damage)
    logger.error(
        "log damaged, and this node does not lead before it has fetched: %s",
        marked,
        extra={"event": Event.LOG_DAMAGED},
    )
    return marked


def report(
    settings: Settings, fault: CorruptLogError, *, last: tuple[int, int, int]
) -> CorruptLogError:
    """The error to raise for ``fault``, found in a log that ends with ``last`` as far as is known.

    A member notes the damage first.

    Args:
        fault: names the ``position`` of the record that is wrong.
        last: position behind the last entry, its index and its term.
    """
    if not has_others(settings):
        return fault
    end, index, term = last
    position = fault.details.get("position")
    if not isinstance(position, int):
        return fault
    damage = LogDamage(
        Position(position),
        str(fault.details.get("file", "")),
        str(fault.details.get("field", fault.message)),
        Position(end),
        Index(index),
        Term(term),
    )
    note_damage(settings, damage)
    return LogDamagedError(
        "log damaged: the node is opened anew, and follows until it has fetched what it lost",
        position=position,
        cause=str(fault),
    )
