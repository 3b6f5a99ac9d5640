"""Persistence of the broker's tables: files written with each change, or a little later.

The log is what counts (``rules/state/broker_state.py``); the files are what RocketMQ reads, and
what a start goes on from. Moves, locks and offsets are written by another thread, so that no
consumer waits for the disk; at most one write is under way, and it has the newest content there was
when it began.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from pathlib import Path

from ledgermq.broker.reading.applied_tables import AppliedTables
from ledgermq.broker.reading.readable_store import ReadableStore
from ledgermq.formats.config_json import encode_document, encode_in_steps
from ledgermq.ipc.counters import BrokerCounter, Counts
from ledgermq.ipc.orders import TopicsChanged, WritableTopic, encode
from ledgermq.model.config.settings import LimitsSection, Settings
from ledgermq.model.errors import (
    CorruptLogError,
    DiskFullError,
    MessageIllegalError,
    QuotaError,
    StorageError,
)
from ledgermq.model.events import Event
from ledgermq.model.names.queue_name import QueueName
from ledgermq.process.clock import MACHINE_CLOCK, Clock
from ledgermq.process.table_files import tell_outliers
from ledgermq.rules.access import access
from ledgermq.rules.messages.rate_limits import TokenBucket
from ledgermq.rules.state.outlying_positions import Outlier, find_outliers, put_right
from ledgermq.rules.tables import delays, moves, quotas, shares, sinks, topics
from ledgermq.rules.tables.documents import Document, Steps
from ledgermq.rules.tables.groups import GroupTable
from ledgermq.rules.tables.table_changes import Change, GroupSet, TopicSet
from ledgermq.rules.tables.topics import TopicTable, queues_for_writing
from ledgermq.store.queues.queue_ends import (
    NAME,
    Queue,
    QueueEnds,
    ends_of_document,
    ends_path,
    read_queue_ends,
    told_ends_path,
    write_queue_ends,
)

BURST_S = 20
"""Seconds whose creations may come at once: a client that starts has all its groups made."""

OWNERS_MAX = 10_000
"""Who has created something lately; those longest ago are forgotten."""

CHECK_NS = 10_000_000
"""Positions are looked at for so long in one turn: a queue that nobody has read yet costs a tenth
of a millisecond."""


class ToldEnds:
    """Owned by the broker process, which alone writes the file of what was told."""

    def __init__(self, root: Path) -> None:
        """Nothing is read yet.

        Args:
            root: of the store.
        """
        self._own = ends_path(root)
        self._told = told_ends_path(root)

    def for_snapshot(self) -> Mapping[str, dict[str, object]]:
        """The table to add to a snapshot's; empty where the log says all ends itself."""
        known = self._known()
        return {} if known is None else {NAME: known.to_document()}

    def take(self, document: Document) -> bool:
        """What a snapshot says; whether it was more than the node knows, and is kept.

        Raises:
            StorageError: it could not be kept.
        """
        try:
            told = ends_of_document(document, file=f"{NAME} of a snapshot")
        except CorruptLogError as error:
            logger.error("queue ends of a snapshot passed: %s", error)
            return False
        known = self._known()
        if known is None or told.ends.keys() <= known.ends.keys():
            # Without a table of its own, nothing is gone from this node's log.
            return False
        write_queue_ends(self._told, told)
        logger.info("ends of queues told: queues=%d position=%d", len(told.ends), told.position)
        return True

    def known(self) -> Mapping[Queue, int]:
        """The node's own table; empty where it has none."""
        known = self._known()
        return {} if known is None else known.ends

    def _known(self) -> QueueEnds | None:
        try:
            return read_queue_ends(self._own)
        except (CorruptLogError, StorageError) as error:
            logger.error("table of queue ends passed: %s", error)
            return None


logger = logging.getLogger(__name__)

OFFSETS_DELAY_NS = 1_000_000_000
"""Commits of this long are found again in the log after a crash, and not in RocketMQ's file."""

ROWS_AT_ONCE_MAX = 100
"""Files of topics and groups are written with each change up to this size, larger ones as those of
offsets: consumers wait meanwhile, for the disk, and 10,000 topics are an eighth of a second of work
besides."""

STEP_PAUSE_S = 0.000_2

TOPICS_TOLD_MAX = 5_000
"""More topics that changed are read from their file."""

WRITERS = 16
"""Threads, which begin when all files are written at once."""

RETRY_NS = 1_000_000_000
WRITE_POLL_MS = 5

ACCESS_FILES = (access.FILE, quotas.FILE)
"""Written at once, before those that RocketMQ has."""


def _nobody() -> None:
    pass


def _let_others_go_on() -> None:
    # Until it is over nobody waits for the interpreter's lock: without a pause each call of the
    # loop that lets go of it would have to wait 5 ms to go on.
    time.sleep(STEP_PAUSE_S)


class BrokerTables(AppliedTables):
    """The broker's tables, as loaded at start.

    Invariant: a file of ``_saved_revisions`` has the content of that revision of its table.

    Attributes:
        topics_revision: grows with every content of a file that the writer reads: those of topics,
            users and quotas.
        sign_of_life: called when a file has been written: on a slow disk several take seconds.
    """

    _writes_files = True

    def __init__(
        self,
        directory: Path,
        settings: Settings,
        *,
        clock: Clock = MACHINE_CLOCK,
        background: Executor | None = None,
        rows_at_once_max: int = ROWS_AT_ONCE_MAX,
    ) -> None:
        """Load the tables.

        Args:
            background: writes what changes a lot; shut down with the tables. Threads of their own,
                when nobody gives one.

        Raises:
            ConfigError, CorruptLogError: a file cannot be understood; names file, key and value.
            StorageError: the operating system refused.
        """
        super().__init__(directory, settings)
        self.sign_of_life: Callable[[], None] = _nobody
        stale = self.state.has_stale_access
        self._saved_access = (-1, -1) if stale else self._access_revision
        # Numbers of an earlier process of this machine are lower.
        self.topics_revision = clock.monotonic_ns()
        self._noted = (self.topics.changes, self._access_revision)
        self._rows_at_once_max = rows_at_once_max
        self._told: dict[int, tuple[int, tuple[int, int]]] = {self.topics_revision: self._noted}
        self._saved_revisions = self._revisions()
        self._writing: dict[str, int] = {}
        self._has_shares = self._files[shares.FILE].path.exists()
        self._ends = ToldEnds(directory.parent)
        self._threads = background or ThreadPoolExecutor(WRITERS, thread_name_prefix="tables")
        self._write: Future[None] | None = None
        self._due_ns: int | None = None

    def settle(self) -> bool:
        """Whether each table says now where in the log it stands. Once they do there are files that
        say up to where moves are applied, before any is.

        A missing one is taken to be as new as others, and what is moved twice is there twice.

        Raises:
            ConfigError, CorruptLogError, StorageError: as when they are loaded.
        """
        if not super().settle():
            return False
        for file in (moves.FILE, delays.FILE, sinks.FILE):
            if not self._files[file].path.exists():
                self._save_missing(file)
        for file in self.state.from_first & self._saved_revisions.keys():
            # Written soon, so that the next start need not read the whole queue.
            self._saved_revisions[file] = -1
        return True

    def keep_places(self) -> None:
        """Have the places of all tables in their files, durable on return.

        At once: one after the other they cost two syncs each, and a disk that needs half a second
        for one would have the process killed that stops, or that gives no sign meanwhile.

        Raises:
            StorageError: the operating system refused.
        """
        self._save(self.state.documents())

    def _save(self, documents: Mapping[str, Mapping[str, object]]) -> None:
        """Write these files at once; those that can be are written whatever becomes of the others.

        Raises:
            StorageError: the operating system refused.
        """
        if len(documents) == 1:
            ((file, document),) = documents.items()
            self._files[file].save(document)
            self.sign_of_life()
            return
        pending = {
            self._threads.submit(self._files[file].save_content, encode_document(document))
            for file, document in documents.items()
        }
        failed: list[BaseException] = []
        while pending:
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            self.sign_of_life()
            failed += [error for one in done if (error := one.exception()) is not None]
        if failed:
            raise failed[0]

    @property
    def has_news(self) -> bool:
        """Whether ``save_changed`` will find something that the writer has to know."""
        return (self.topics.changes, self._access_revision) != self._noted

    @property
    def has_unsaved_topics(self) -> bool:
        """Whether a file that the writer reads is older than its table."""
        return self._has_new_topics or self._has_new_access

    def order_for_writer(self, known: int, *, term: int, writer_start: int) -> bytes | None:
        """What tells the writer of the newest ``topics_revision``.

        Args:
            known: the revision that it knows, 0 when nobody knows.
            term, writer_start: see ``TopicsChanged``.

        Returns:
            ``None`` when its file has to be written first, which begins soon.
        """
        at = self._told.get(known)
        if at is not None and at[1] == self._access_revision:
            self._told = {one: mark for one, mark in self._told.items() if one >= known}
            names = self.topics.changed_since(at[0])
            if len(names) <= TOPICS_TOLD_MAX:
                told = {name: self._writable(name) for name in names}
                return encode(TopicsChanged(self.topics_revision, known, term, writer_start, told))
        if self.has_unsaved_topics:
            self._due_ns = 0
            return None
        return encode(TopicsChanged(self.topics_revision, 0, term, writer_start))

    @property
    def _has_new_topics(self) -> bool:
        return self.topics.revision != self._saved_revisions[topics.FILE]

    @property
    def _has_new_access(self) -> bool:
        return self._access_revision != self._saved_access

    @property
    def _access_revision(self) -> tuple[int, int]:
        return self.users.revision, self.quotas.revision

    def begin_term(self, now_ms: int) -> None:
        """This node leads, and its tables are about to be those of all: RocketMQ's own topics and
        groups are in them.
        """
        self.topics.add_builtin(self._settings.node, self._settings.topics, now_ms)
        self.groups.add_builtin(now_ms)

    def snapshot_tables(self) -> dict[str, Mapping[str, object]]:
        """What a snapshot of this node says; rows of large tables are made as they are encoded."""
        return {**self.state.tables_later(), **self._ends.for_snapshot()}

    def known_ends(self) -> Mapping[Queue, int]:
        """Ends that queues have reached, by a table that may be a while old."""
        return self._ends.known()

    def save_changed(self) -> None:
        """Write users, quotas, feature level, cluster and schemas if they have changed, and small
        tables of topics and groups.

        ``topics_revision`` grows when the writer has to know something.

        Raises:
            StorageError: they are still to be written.
        """
        if self.has_news:
            self.topics_revision += 1
            self._noted = (self.topics.changes, self._access_revision)
            self._told[self.topics_revision] = self._noted
        if self._has_new_access:
            # First: where they are missing, they are taken to be as new as what RocketMQ has, too.
            self._save({file: self.state.document(file) for file in ACCESS_FILES})
            self._saved_access = self._access_revision
        # Before the others, too: where one is missing, no command of before has raised a level, or
        # made the group belong to a cluster, or brought a schema.
        for rare in (self.features, self.cluster, self.schemas):
            if rare.revision != self._saved_revisions[rare.file]:
                self._save({rare.file: self.state.document(rare.file)})
                self._saved_revisions[rare.file] = rare.revision
        if not self._has_shares and self.shares.revision != self._saved_revisions[shares.FILE]:
            # Before that of offsets: without it a group would begin again at its offset, and hand
            # out again what was settled above that. From then on it is written with the others.
            self._save({shares.FILE: self.state.document(shares.FILE)})
            self._saved_revisions[shares.FILE] = self.shares.revision
            self._has_shares = True
        fresh: dict[str, int] = {}
        for table in (self.topics, self.groups):
            is_new = table.revision != self._saved_revisions[table.file]
            # While it is being written, the next time is soon enough.
            if is_new and len(table) <= self._rows_at_once_max and table.file not in self._writing:
                fresh[table.file] = table.revision
        if fresh:
            self._save({file: self.state.document(file) for file in fresh})
            self._saved_revisions |= fresh

    def sleep_ms(self, now_ns: int) -> int | None:
        """How long ``tick`` can wait; ``None`` when there is nothing to write."""
        if self._due_ns is None and self._write is None:
            return None
        wait_ms = max(0, (self._due_ns or now_ns) - now_ns) // 1_000_000
        # The end of a write does not wake the loop.
        return wait_ms if self._write is None else max(wait_ms, WRITE_POLL_MS)

    def tick(self, now_ns: int) -> None:
        """Begin and end writes of what changes a lot; keep what a snapshot has told of queues."""
        if (told := self.state.told_ends) is not None:
            self.state.told_ends = None
            self._keep_told(told)
        if self._write is not None:
            if not self._write.done():
                return
            self._finish_write(now_ns)
        if self.state.unsettled:
            # The writer writes them now.
            return
        if self._due_ns is None and self._revisions() != self._saved_revisions:
            self._due_ns = now_ns + OFFSETS_DELAY_NS
        if self._due_ns is not None and now_ns >= self._due_ns:
            self._due_ns = None
            self._begin_write()

    def close(self) -> None:
        """Write what is not written, with its place in the log, and end the thread.

        Raises:
            StorageError: the files are older than the log; a start goes on from there.
        """
        try:
            if self._write is not None:
                self._finish_write(0)
            if not self.state.unsettled:
                self.keep_places()
        finally:
            self._threads.shutdown()

    def _save_missing(self, file: str) -> None:
        try:
            self._save({file: self.state.document(file)})
        except DiskFullError as error:
            logger.warning("file of moves not written: %s", error)
            self._saved_revisions[file] = -1

    def _keep_told(self, told: Document) -> None:
        try:
            self._ends.take(told)
        except StorageError as error:
            # The next snapshot says it again.
            logger.error("ends of queues that were told not kept: %s", error)

    def _revisions(self) -> dict[str, int]:
        """Revisions of tables in the order in which they are written: the largest come last.

        Those of users and quotas have a revision of their own.
        """
        revisions = self.state.revisions()
        return {file: revisions[file] for file in reversed(revisions) if file not in ACCESS_FILES}

    def _writable(self, name: str) -> WritableTopic | None:
        topic = self.topics.get(name)
        if topic is None:
            return None
        return WritableTopic(
            queues_for_writing(topic), topic.deduplication_window_ms, topic.first_offsets
        )

    def _begin_write(self) -> None:
        revisions = self._revisions()
        documents = {
            file: self.state.document_later(file)
            for file, revision in revisions.items()
            if revision != self._saved_revisions[file]
        }

        self._writing = {file: revisions[file] for file in documents}

        def write() -> None:
            for file, document in documents.items():
                self._files[file].save_content(encode_in_steps(document, _let_others_go_on))

        self._write = self._threads.submit(write)

    def _finish_write(self, now_ns: int) -> None:
        assert self._write is not None
        write, self._write = self._write, None
        writing, self._writing = self._writing, {}
        try:
            write.result()
        except StorageError as error:
            logger.error(
                "group offsets, queue locks and moves not written: %s",
                error,
                extra={"event": Event.OFFSETS_NOT_WRITTEN},
            )
            self._due_ns = now_ns + RETRY_NS
            return
        self._saved_revisions |= writing


class TableRoom:
    """What one command may add to the tables: of topics and groups, which stay until deleted.

    Attributes:
        limits: of the settings; may be replaced.
    """

    def __init__(
        self, tables: BrokerTables, limits: LimitsSection, *, clock: Clock, counts: Counts
    ) -> None:
        self.limits = limits
        self._clock = clock
        self._counts = counts
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()
        self._tables = tables
        self._topics: set[str] = set()
        self._groups: set[str] = set()

    def begin(self) -> None:
        """Another command: the tables have what those before it have added."""
        self._topics.clear()
        self._groups.clear()

    def check(self, planned: Sequence[Change], owner: str = "") -> None:
        """Take what is to be changed, too, or refuse it as a whole.

        What is there already can be changed and deleted whatever the limits are.

        Args:
            owner: whose creations it counts among; empty: an operator's, or the node's own.

        Raises:
            MessageIllegalError: names what is too many, the limit and the setting.
            QuotaError: the owner creates too many a second.
        """
        topics = self._fresh(planned, TopicSet, self._tables.topics, self._topics)
        groups = self._fresh(planned, GroupSet, self._tables.groups, self._groups)
        tables, limits = self._tables, self.limits
        for what, there, fresh, limit in (
            ("topics", len(tables.topics) + len(self._topics), topics, limits.topics_max),
            ("groups", len(tables.groups) + len(self._groups), groups, limits.groups_max),
        ):
            if fresh and there + len(fresh) > limit:
                raise MessageIllegalError(
                    f"too many {what}: delete some that nobody uses",
                    there=there,
                    new=min(fresh),
                    limit=limit,
                    setting=f"limits.{what}_max",
                )
        self._charge(owner, len(topics) + len(groups))
        self._topics |= topics
        self._groups |= groups

    def _charge(self, owner: str, count: int) -> None:
        rate = self.limits.creations_per_s
        if not (owner and count and rate):
            return
        now_ns = self._clock.monotonic_ns()
        bucket = self._buckets.pop(owner, None)
        if bucket is None or bucket.rate != rate:
            bucket = TokenBucket(rate, burst=BURST_S * rate, now_ns=now_ns, is_full=True)
        self._buckets[owner] = bucket
        if len(self._buckets) > OWNERS_MAX:
            self._buckets.popitem(last=False)
        wait_ms = bucket.wait_ms(now_ns)
        if wait_ms:
            self._counts[BrokerCounter.CREATIONS_REFUSED] += 1
            raise QuotaError(
                "too many topics and groups are made by one client: nothing was changed",
                owner=owner,
                limit_per_s=rate,
                setting="limits.creations_per_s",
                retry_after_ms=wait_ms,
            )
        bucket.take(count)

    @staticmethod
    def _fresh(
        planned: Sequence[Change],
        kind: type[TopicSet] | type[GroupSet],
        table: TopicTable | GroupTable,
        taken: set[str],
    ) -> set[str]:
        return {
            change.name
            for change in planned
            if isinstance(change, kind)
            and change.fields is not None
            and change.name not in taken
            and table.get(change.name) is None
        }


class PositionCheck:
    """Owned by the broker process.

    RocketMQ's files were put right when they were taken over (``process/table_files.py``); others
    were not: those of an older version, of a log that was cut or replaced, or ones that an operator
    has changed and left their place in. What members commit is within its queue.
    """

    def __init__(
        self, store: ReadableStore, tables: BrokerTables, *, clock: Clock = MACHINE_CLOCK
    ) -> None:
        self._store = store
        self._tables = tables
        self._clock = clock
        self._term = 0
        self._steps: Steps[list[Outlier]] | None = None

    def is_done(self, term: int) -> bool:
        """Look on, for a bounded time; whether all positions are within their queues.

        To be called when everything is applied that was in the log at the begin of ``term``, which
        this node leads, and again until it is true.
        """
        if self._steps is None or term != self._term:
            state = self._tables.state
            self._term = term
            ends = self._tables.known_ends()
            moved = state.delays, state.moves
            self._steps = find_outliers(
                state.offsets, moved, self._end_of, shares=state.shares, at_least=ends
            )
        until_ns = self._clock.monotonic_ns() + CHECK_NS
        try:
            while True:
                next(self._steps)
                if self._clock.monotonic_ns() >= until_ns:
                    return False
        except StopIteration as ended:
            found: list[Outlier] = ended.value
        self._steps = None
        state = self._tables.state
        put_right(found, state.offsets, (state.delays, state.moves), state.shares)
        tell_outliers(found)
        return True

    def _end_of(self, queue: QueueName) -> int | None:
        try:
            return self._store.end(queue)
        except CorruptLogError:
            # Whoever reads it says so; it is repaired, and a later leader looks again.
            return None
