"""The broker's tables as a replicated state machine: same commands, same order, same tables.

Each table has its own place in the log: its file may be older than another one's, and whoever goes
on from the files applies to each table what it lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ledgermq.broker import (
    access,
    archives,
    delays,
    group_offsets,
    groups,
    moves,
    name_values,
    queue_locks,
    quotas,
    sinks,
    topics,
)
from ledgermq.broker.access import User, UserTable
from ledgermq.broker.archives import ArchiveMark, ArchiveTable
from ledgermq.broker.delays import DelayTable
from ledgermq.broker.documents import Document, Steps, finish, read_integer
from ledgermq.broker.given_back import GivenBack, GivenBackTokens
from ledgermq.broker.group_offsets import GroupOffsets
from ledgermq.broker.groups import GroupTable, SubscriptionGroup
from ledgermq.broker.moves import Moved, MoveEnded, MoveTable
from ledgermq.broker.name_values import NameValues
from ledgermq.broker.queue_locks import QueueLocks
from ledgermq.broker.quotas import Quota, QuotaTable
from ledgermq.broker.sinks import SinkMoved, SinkSet, SinkTable
from ledgermq.broker.snapshot_tables import SnapshotTables, read_in_steps
from ledgermq.broker.state_commands import (
    SNAPSHOT_TAG,
    STATE_TAG,
    ArchiveSet,
    Command,
    GroupSet,
    LocksSet,
    NamesSet,
    OffsetsSet,
    Part,
    QuotaSet,
    TableChange,
    TopicSet,
    UserSet,
    decode_command,
    decode_part,
)
from ledgermq.broker.topics import Topic, TopicTable
from ledgermq.model.queue_name import QueueName

APPLIED_KEY = "ledgermqApplied"
"""In each file: the queue offset behind the last command that is in it; ``FROM_FIRST`` where none
is, and the queue may begin anywhere."""

FROM_FIRST = -1

OWN_FILES = (
    queue_locks.FILE,
    access.FILE,
    quotas.FILE,
    moves.FILE,
    sinks.FILE,
    archives.FILE,
    name_values.FILE,
)
"""Tables that RocketMQ does not know; their files are not in its folder."""

ENDS = "queue-ends"
"""In a snapshot beside the tables: the ends of all queues. It is no state of commands, and each
node has its own."""

FILES = (topics.FILE, groups.FILE, group_offsets.FILE, delays.FILE, *OWN_FILES)

YOUNGER_FILES = (delays.FILE, *OWN_FILES)
"""Not in stores from before there were such tables."""


class Applied(NamedTuple):
    """What one message of the state queue did.

    Attributes:
        identity: of the command, or of the snapshot whose last part it was; empty when none ended.
        is_snapshot: all tables are new.
    """

    identity: str = ""
    is_snapshot: bool = False


class BrokerState:
    """The tables, and up to where in the state queue each of them is.

    Invariant: ``applied`` is the lowest of the tables' places; none lacks what is before its own.
    """

    def __init__(self, documents: Mapping[str, Document]) -> None:
        """The tables as their files have them.

        Args:
            documents: by the name of the file; one that is missing or empty is a table to which
                nothing of the log was applied yet. A file without a place in the log comes from
                outside (``unsettled``).

        Raises:
            ConfigError: a document cannot be understood; names file, key and value.
        """
        own = {file: dict(documents.get(file, {})) for file in FILES}
        self._places = {
            file: read_integer(document, APPLIED_KEY, -1 if document else 0, file=file, owner=file)
            for file, document in own.items()
        }
        says = {file for file, document in own.items() if APPLIED_KEY in document}
        missing = {file for file, document in own.items() if not document}
        for document in own.values():
            document.pop(APPLIED_KEY, None)
        self.topics = TopicTable.read(own[topics.FILE])
        self.groups = GroupTable.read(own[groups.FILE])
        self.offsets = GroupOffsets.read(own[group_offsets.FILE])
        self.locks = QueueLocks.read(own[queue_locks.FILE])
        self.users = UserTable.read(own[access.FILE])
        self.quotas = QuotaTable.read(own[quotas.FILE])
        self.delays = DelayTable.read(own[delays.FILE])
        self.moves = MoveTable.read(own[moves.FILE])
        self.sinks = SinkTable.read(own[sinks.FILE])
        self.archives = ArchiveTable.read(own[archives.FILE])
        self.names = NameValues.read(own[name_values.FILE])
        self.given_back = GivenBackTokens()
        self.snapshots = 0
        """How often all tables were replaced."""
        self.told_ends: Document | None = None
        """What the last snapshot says of the ends of queues, for who keeps that."""
        self._parts: list[Part] = []
        self._prepared: tuple[int, Part, SnapshotTables] | None = None
        self._next_offset = -1
        self.needs_snapshot = False
        self._first = 0
        empty = {file for file in says if self._places[file] < 0 and self._is_empty(file)}
        self._unsettled = {file for file, place in self._places.items() if place < 0} - empty
        self._from_first = empty | self._place_younger(missing)

    def _is_empty(self, file: str) -> bool:
        """Whether a table's file has nothing but what that of a new store has."""
        written = self._writers()[file]()
        return all(value == {} for value in written.values())

    def _place_younger(self, missing: set[str]) -> set[str]:
        """Find the places of younger tables that have no file; those that apply the whole log."""
        known = min(at for file, at in self._places.items() if file not in YOUNGER_FILES)
        younger = missing.intersection(YOUNGER_FILES)
        for file in younger:
            # A store from before there was such a table has no command about it either. Beside
            # files from outside nobody can say what there was before them.
            self._places[file] = known
        return younger if known < 0 else set()

    @property
    def unsettled(self) -> frozenset[str]:
        """The files from outside: where in the log they stand has to be settled (``settle``)."""
        return frozenset(self._unsettled)

    @property
    def from_first(self) -> frozenset[str]:
        """The files of tables that apply whatever the log still has."""
        return frozenset(self._from_first)

    def settle(self, file: str, place: int) -> None:
        """A file from outside is newer than all commands before ``place``, and has none behind."""
        assert file in self._unsettled, file
        self._places[file] = place
        self._unsettled.remove(file)

    def place(self, file: str) -> int:
        """The queue offset behind the last command that is in the table; below 0 if unknown."""
        return self._places[file]

    @property
    def applied(self) -> int:
        """Queue offset of the next command to apply; -1 while a table does not say."""
        return min(self._places.values())

    def begin_at(self, first: int, end: int) -> int:
        """Where to go on in a queue that has the offsets from ``first`` to ``end`` for now.

        To be called when all places are settled. When the log has lost what a table lacks,
        everything waits for the next snapshot. A table that is behind the end has what is not known
        to be committed again yet, or is one of another log (``begin_again``).
        """
        assert not self._unsettled, self._unsettled
        self._places |= dict.fromkeys(self._from_first, first)
        self._from_first.clear()
        self.needs_snapshot = self.applied < first
        if self.needs_snapshot:
            # A table that has more keeps it: the next snapshot may be older than its file.
            self._places = {file: max(at, first) for file, at in self._places.items()}
        self._first = first
        return min(self.applied, end)

    def is_behind(self, end: int) -> bool:
        """Whether a table says that the queue goes on behind ``end``."""
        return max(self._places.values()) > end

    def begin_again(self, end: int) -> int:
        """Where to go on when the queue is known to end at ``end``: a table that is said to be
        behind it is that of another log, and all that this one has is applied to it.
        """
        for file, place in self._places.items():
            if place > end:
                self._places[file] = self._first
        return self.applied

    def apply(self, offset: int, tag: str, label: str, body: bytes) -> Applied:
        """Apply the message at ``offset`` of the state queue.

        Args:
            tag: the message's tag; one that is not known changes nothing.
            label: its property ``PART``, empty when it has none.
            body: as stored.

        Raises:
            CorruptLogError: it is not what its tag says; it counts as applied, on every node.
        """
        try:
            if tag == SNAPSHOT_TAG:
                return self._take_part(offset, decode_part(label, body))
            self._parts = []
            if tag != STATE_TAG:
                return Applied()
            command = decode_command(body)
            self._note_tokens(command)
            if self.needs_snapshot:
                return Applied()
            self._apply(offset, command)
            return Applied(command.identity)
        finally:
            self._places = {file: max(at, offset + 1) for file, at in self._places.items()}

    def prepare(self, offset: int, tag: str, label: str, body: bytes) -> Steps[None]:
        """Steps after which ``apply`` of the same takes little time; of most there are none.

        Raises:
            ConfigError, CorruptLogError: as ``apply``.
        """
        if tag != SNAPSHOT_TAG:
            return
        part = decode_part(label, body)
        parts = [part] if part.number == 1 else [*self._parts, part]
        is_whole = part.number == part.parts == len(parts)
        if is_whole and (len(parts) == 1 or (offset == self._next_offset and self._follows(part))):
            self._prepared = offset, part, (yield from read_in_steps(parts))

    def pass_over(self, offset: int) -> None:
        """What stands at ``offset`` of the state queue can be no command: it counts as applied."""
        self._parts = []
        self._places = {file: max(at, offset + 1) for file, at in self._places.items()}

    def documents(self) -> dict[str, dict[str, object]]:
        """What the files have to say now, with their place in the log."""
        return {file: self.document(file) for file in FILES}

    def document(self, file: str) -> dict[str, object]:
        """What one file has to say now, with its place in the log.

        In the middle of a snapshot that is its first part: who goes on there reads it whole.
        """
        return {**self._writers()[file](), APPLIED_KEY: self._place_told(file)}

    def document_later(self, file: str) -> dict[str, object]:
        """The same, whose rows another thread may make (``config_json.encode_in_steps``)."""
        write = {**self._writers(), **self._late_writers()}[file]
        return {**write(), APPLIED_KEY: self._place_told(file)}

    def _place_told(self, file: str) -> int:
        place = self._places[file]
        if self._parts and place == self._next_offset:
            # A table that is further than the parts read so far has what is behind them.
            place = self._next_offset - len(self._parts)
        return place

    def tables(self) -> dict[str, dict[str, object]]:
        """The tables alone, as a snapshot carries them."""
        return {file: write() for file, write in self._writers().items()}

    def tables_later(self) -> dict[str, dict[str, object]]:
        """The same, of which the rows are made when they are written."""
        writers = {**self._writers(), **self._late_writers()}
        return {file: write() for file, write in writers.items()}

    def _late_writers(self) -> dict[str, Callable[[], dict[str, object]]]:
        return {
            topics.FILE: self.topics.to_document_later,
            groups.FILE: self.groups.to_document_later,
            group_offsets.FILE: self.offsets.to_document_later,
        }

    def _writers(self) -> dict[str, Callable[[], dict[str, object]]]:
        return {
            topics.FILE: self.topics.to_document,
            groups.FILE: self.groups.to_document,
            group_offsets.FILE: self.offsets.to_document,
            queue_locks.FILE: self.locks.to_document,
            access.FILE: self.users.to_document,
            quotas.FILE: self.quotas.to_document,
            delays.FILE: self.delays.to_document,
            moves.FILE: self.moves.to_document,
            sinks.FILE: self.sinks.to_document,
            archives.FILE: self.archives.to_document,
            name_values.FILE: self.names.to_document,
        }

    def moves_of(self, topic: str) -> MoveTable:
        """The table that says how far the queues of ``topic`` are moved."""
        return self.delays if topic == delays.TOPIC else self.moves

    def open_moves(self) -> list[tuple[QueueName, int]]:
        """Queues whose last move is not known to be whole, and the place of its command."""
        sources = (*self.delays, *self.moves)
        return [(queue, one.open_at) for queue, one in sources if one.open_at is not None]

    def _take_part(self, offset: int, part: Part) -> Applied:
        if part.number == 1:
            self._parts = [part]
        elif self._parts and offset == self._next_offset and self._follows(part):
            self._parts.append(part)
        else:
            # Its beginning is not here, or a leader died in the middle of it.
            self._parts = []
            return Applied()
        self._next_offset = offset + 1
        if part.number < part.parts:
            return Applied()
        parts, self._parts = self._parts, []
        prepared, self._prepared = self._prepared, None
        if prepared is None or prepared[:2] != (offset, part):
            fresh = finish(read_in_steps(parts))
        else:
            fresh = prepared[2]
        self._replace(offset, fresh)
        return Applied(fresh.identity, is_snapshot=True)

    def _follows(self, part: Part) -> bool:
        last = self._parts[-1]
        return (part.number, part.parts) == (last.number + 1, last.parts)

    def _replace(self, offset: int, fresh: SnapshotTables) -> None:
        """Have the snapshot's tables, but not where ours has more than the snapshot already."""
        if offset >= self._places[topics.FILE]:
            self.topics.replace_with(fresh.topics)
        if offset >= self._places[groups.FILE]:
            self.groups.replace_with(fresh.groups)
        if offset >= self._places[group_offsets.FILE]:
            self.offsets.replace_with(fresh.offsets)
        if offset >= self._places[queue_locks.FILE]:
            self.locks.replace_with(fresh.locks)
        self._replace_own(offset, fresh.users, fresh.quotas, fresh.archives)
        if offset >= self._places[delays.FILE]:
            self.delays.replace_with(fresh.delays)
        if offset >= self._places[moves.FILE]:
            self.moves.replace_with(fresh.moves)
        if offset >= self._places[sinks.FILE]:
            self.sinks.replace_with(fresh.sinks)
        if offset >= self._places[name_values.FILE]:
            self.names.replace_with(fresh.names)
        self.told_ends = fresh.documents.get(ENDS, self.told_ends)
        self.snapshots += 1
        self.needs_snapshot = False

    def _replace_own(
        self, offset: int, users: UserTable, fresh_quotas: QuotaTable, archived: ArchiveTable
    ) -> None:
        if offset >= self._places[access.FILE]:
            self.users.replace_with(users)
        if offset >= self._places[quotas.FILE]:
            self.quotas.replace_with(fresh_quotas)
        if offset >= self._places[archives.FILE]:
            self.archives.replace_with(archived)

    def _note_tokens(self, command: Command) -> None:
        for change in command.changes:
            if isinstance(change, GivenBack):
                self.given_back.note(change.token, command.at_ms)

    def _apply(self, offset: int, command: Command) -> None:
        for change in command.changes:
            if not isinstance(change, GivenBack):
                self._apply_change(offset, change, command.at_ms)

    def _apply_change(self, offset: int, change: TableChange, at_ms: int) -> None:
        if isinstance(change, TopicSet):
            if offset >= self._places[topics.FILE]:
                self._set_topic(change, at_ms)
        elif isinstance(change, GroupSet):
            if offset >= self._places[groups.FILE]:
                self._set_group(change, at_ms)
            if change.fields is None and offset >= self._places[queue_locks.FILE]:
                self.locks.forget_group(change.name)
        elif isinstance(change, OffsetsSet):
            if offset >= self._places[group_offsets.FILE]:
                self.offsets.set(change.group, change.topic, change.offsets)
        elif isinstance(change, LocksSet):
            if offset >= self._places[queue_locks.FILE]:
                self.locks.set(change.group, change.topic, change.locks)
        elif isinstance(change, Moved | MoveEnded):
            self._move(offset, change)
        elif isinstance(change, SinkSet | SinkMoved):
            self._apply_sink(offset, change)
        else:
            self._apply_own(offset, change)

    def _apply_sink(self, offset: int, change: SinkSet | SinkMoved) -> None:
        if offset >= self._places[sinks.FILE]:
            self.sinks.apply(change)

    def _apply_own(self, offset: int, change: UserSet | QuotaSet | ArchiveSet | NamesSet) -> None:
        if isinstance(change, ArchiveSet):
            if offset >= self._places[archives.FILE]:
                self._set_archive(change)
        elif isinstance(change, NamesSet):
            if offset >= self._places[name_values.FILE]:
                self.names.put(change.name, change.fields)
        elif isinstance(change, QuotaSet):
            if offset >= self._places[quotas.FILE]:
                self._set_quota(change)
        elif offset >= self._places[access.FILE]:
            self._set_user(change)

    def _set_user(self, change: UserSet) -> None:
        if change.fields is None:
            self.users.delete(change.name)
        else:
            self.users.put(User.read(change.name, change.fields))

    def _set_quota(self, change: QuotaSet) -> None:
        if change.fields is None:
            self.quotas.delete(change.owner)
        else:
            self.quotas.put(change.owner, Quota.read(change.owner, change.fields))

    def _set_archive(self, change: ArchiveSet) -> None:
        if change.fields is None:
            self.archives.delete(change.name)
        else:
            self.archives.put(change.name, ArchiveMark.read(change.name, change.fields))

    def _set_topic(self, change: TopicSet, at_ms: int) -> None:
        if change.fields is None:
            self.topics.delete(change.name, at_ms)
        else:
            self.topics.put(Topic.read(change.name, change.fields), at_ms)

    def _set_group(self, change: GroupSet, at_ms: int) -> None:
        if change.fields is None:
            self.groups.delete(change.name, at_ms)
        else:
            self.groups.put(SubscriptionGroup.read(change.name, change.fields), at_ms)

    def _move(self, offset: int, change: Moved | MoveEnded) -> None:
        is_delay = change.queue.topic == delays.TOPIC
        if offset >= self._places[delays.FILE if is_delay else moves.FILE]:
            self.moves_of(change.queue.topic).apply(offset, change)
