"""The broker's tables as a replicated state machine: same commands, same order, same tables.

Each table has its own place in the log: its file may be older than another one's, and whoever goes
on from the files applies to each table what it lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ledgermq.formats.config_json import APPLIED_KEY
from ledgermq.model.errors import NewerVersionError
from ledgermq.model.features import LEVEL_OF_TABLE
from ledgermq.model.names.queue_name import QueueName
from ledgermq.rules.cluster.cluster_table import QUOTA_KIND, USER_KIND
from ledgermq.rules.given_back import GivenBackTokens, MessageGivenBack
from ledgermq.rules.state import feature_table
from ledgermq.rules.state.state_commands import (
    SNAPSHOT_TAG,
    STATE_TAG,
    Part,
    StateCommand,
    decode_command,
    decode_part,
)
from ledgermq.rules.state.state_tables import (
    ENDS,
    FILES,
    YOUNGER_FILES,
    SnapshotTables,
    read_snapshot,
    read_tables,
)
from ledgermq.rules.tables.documents import Document, Steps, finish, read_integer
from ledgermq.rules.tables.moves import MoveTable
from ledgermq.rules.tables.table import Table

FROM_FIRST = -1
"""Place in the log of a file that has no command yet, where the queue may begin anywhere; else the
queue offset behind the last command that is in it."""


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
        own = {file: _as_told(dict(documents.get(file, {})), file) for file in FILES}
        self._places = {
            file: read_integer(document, APPLIED_KEY, -1 if document else 0, file=file, owner=file)
            for file, document in own.items()
        }
        says = {file for file, document in own.items() if APPLIED_KEY in document}
        missing = {file for file, document in own.items() if not document}
        for document in own.values():
            document.pop(APPLIED_KEY, None)
        tables = finish(read_tables(own))
        self.topics, self.groups, self.offsets, self.locks, self.users = tables[:5]
        self.quotas, self.delays, self.moves, self.sinks, self.archives = tables[5:10]
        self.names, self.features, self.cluster, self.schemas, self.shares = tables[10:]
        self._by_file = tables.by_file()
        self._followed = 0
        self._takers: dict[type, list[Table[Any]]] = {}
        for table in self._by_file.values():
            for kind in table.takes:
                self._takers.setdefault(kind, []).append(table)
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
        self.has_stale_access = self._follow_cluster()
        """The files of users and quotas lack what that of the cluster says."""
        empty = {file for file in says if self._places[file] < 0 and self._is_empty(file)}
        self._unsettled = {file for file, place in self._places.items() if place < 0} - empty
        self._from_first = empty | self._place_younger(missing)

    def _is_empty(self, file: str) -> bool:
        """Whether a table's file has nothing but what that of a new store has."""
        return all(value == {} for value in self._by_file[file].to_document().values())

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
            NewerVersionError: a newer version is needed; nothing of it is applied.
        """
        try:
            applied = self._applied(offset, tag, label, body)
        except NewerVersionError:
            raise
        except BaseException:
            self._count_as_applied(offset)
            raise
        self._count_as_applied(offset)
        return applied

    def _applied(self, offset: int, tag: str, label: str, body: bytes) -> Applied:
        if tag == SNAPSHOT_TAG:
            return self._take_part(offset, decode_part(label, body))
        # Their leader is gone: no file's place is told as before them any more.
        self._parts = []
        if tag != STATE_TAG:
            return Applied()
        command = decode_command(body)
        self._note_tokens(command)
        if not self.needs_snapshot:
            self._apply(offset, command)
        # A leader that finds its own first command and still needs a snapshot knows that there is
        # none in the log: it makes one of what it has.
        return Applied(command.identity)

    def _count_as_applied(self, offset: int) -> None:
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
            self._prepared = offset, part, (yield from read_snapshot(parts))

    def pass_over(self, offset: int) -> None:
        """What stands at ``offset`` of the state queue can be no command: it counts as applied."""
        self._parts = []
        self._count_as_applied(offset)

    def documents(self) -> dict[str, dict[str, object]]:
        """What the files have to say now, with their place in the log."""
        return {file: self.document(file) for file, _ in self._told()}

    def document(self, file: str) -> dict[str, object]:
        """What one file has to say now, with its place in the log.

        In the middle of a snapshot that is its first part: who goes on there reads it whole.
        """
        return {**self._by_file[file].to_document(), APPLIED_KEY: self._place_told(file)}

    def document_later(self, file: str) -> dict[str, object]:
        """The same, whose rows another thread may make (``config_json.encode_in_steps``)."""
        return {**self._by_file[file].to_document_later(), APPLIED_KEY: self._place_told(file)}

    def _place_told(self, file: str) -> int:
        place = self._places[file]
        if self._parts and place == self._next_offset:
            # A table that is further than the parts read so far has what is behind them.
            place = self._next_offset - len(self._parts)
        return place

    def tables(self) -> dict[str, dict[str, object]]:
        """The tables alone, as a snapshot carries them."""
        return {file: table.to_document() for file, table in self._told()}

    def tables_later(self) -> dict[str, dict[str, object]]:
        """The same, of which the rows are made when they are written."""
        return {file: table.to_document_later() for file, table in self._told()}

    def _told(self) -> list[tuple[str, Table[Any]]]:
        """Those of the level in force: members that know no more would not understand another."""
        in_force = self.features.level
        return [
            (file, table)
            for file, table in self._by_file.items()
            if LEVEL_OF_TABLE[file] <= in_force
        ]

    def revisions(self) -> dict[str, int]:
        """Revision of each table, by its file: another one after each change and each snapshot."""
        return {file: table.revision for file, table in self._by_file.items()}

    def moves_of(self, topic: str) -> MoveTable:
        """The table that says how far the queues of ``topic`` are moved."""
        return self.delays if self.delays.has(topic) else self.moves

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
        prepared, self._prepared = self._prepared, None
        try:
            if prepared is None or prepared[:2] != (offset, part):
                fresh = finish(read_snapshot(self._parts))
            else:
                fresh = prepared[2]
        except NewerVersionError:
            # A file's place stays before its first part: a newer version reads it whole.
            self._next_offset = offset
            self._parts.pop()
            raise
        except BaseException:
            self._parts = []
            raise
        self._parts = []
        self._replace(offset, fresh)
        return Applied(fresh.identity, is_snapshot=True)

    def _follows(self, part: Part) -> bool:
        last = self._parts[-1]
        return (part.number, part.parts) == (last.number + 1, last.parts)

    def _replace(self, offset: int, fresh: SnapshotTables) -> None:
        """Have the snapshot's tables, but not where ours has more than the snapshot already."""
        others = fresh.tables.by_file()
        for file, table in self._by_file.items():
            if offset >= self._places[file]:
                table.replace_with(others[file])
        self._follow_cluster()
        self.told_ends = fresh.documents.get(ENDS, self.told_ends)
        self.snapshots += 1
        self.needs_snapshot = False

    def _note_tokens(self, command: StateCommand) -> None:
        for change in command.changes:
            if isinstance(change, MessageGivenBack):
                self.given_back.note(change.token, command.at_ms)

    def _apply(self, offset: int, command: StateCommand) -> None:
        for change in command.changes:
            for table in self._takers.get(type(change), ()):
                if offset >= self._places[table.file]:
                    table.apply(change, offset, command.at_ms)
        if self.cluster.revision != self._followed:
            self._follow_cluster()

    def _follow_cluster(self) -> bool:
        """Have users and quotas as the cluster's rows say; whether that changes anything.

        They are no part of what commands change in those tables, which have places of their own in
        the log: whatever is in the cluster's table now is what holds.
        """
        self._followed = self.cluster.revision
        table = self.cluster.table
        rows, too_old = table.rows, table.rights_too_old
        users = self.users.follow_cluster(dict(rows.of_kind(USER_KIND)), too_old=too_old)
        return self.quotas.follow_cluster(dict(rows.of_kind(QUOTA_KIND))) or users


def _as_told(document: dict[str, object], file: str) -> dict[str, object]:
    """What a file is taken to say: at level 0 nobody keeps the place of that table's."""
    place = document.get(APPLIED_KEY)
    is_old = file == feature_table.FILE and document.keys() == {APPLIED_KEY} and place != FROM_FIRST
    return {} if is_old else document
