"""``replay`` job: messages of an archive, sent into topics of a running cluster.

Through the sink each run of the archive is a batch, stored as a whole. The batch has the run's
number, and the sink a name that was drawn when the replay was begun. So the brokers know what is
stored: nothing has to be looked for in the target's queues, and a run that is repeated stores
nothing twice, whenever the one before it died. What of the archive's runs is done is noted, too,
since brokers forget a sink that nobody has written to for long.

It goes on where an earlier one was stopped. What that one has stored beyond its last note is found
in the target's queues by a property that each replayed message has, and left out.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ledgermq.client.blocking.producer import Producer
from ledgermq.client.core.results import BatchResult
from ledgermq.client.sending.outgoing import OutgoingMessage, properties_bytes
from ledgermq.client.sending.send_future import SendFuture
from ledgermq.client.sending.send_pipeline import ProducerOptions
from ledgermq.client.staging import SinkClient, StagedRows, StageWriter, staging_producer
from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.formats.records.message import COMPRESSED, COMPRESSION_MASK, CRC_MASK
from ledgermq.formats.records.properties import (
    CHECK_IMMUNITY_TIME,
    CLUSTER,
    DELAY,
    KEYS,
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TAGS,
    TRANSACTION_CHECK_TIMES,
    TRANSACTION_ID,
    TRANSACTION_PREPARED,
    TRANSACTION_PREPARED_QUEUE_OFFSET,
    UNIQ_KEY,
    WAIT,
)
from ledgermq.model.errors import ConfigError, CorruptLogError, StorageError, StoreLockedError
from ledgermq.model.limits import UNIQUE_ID_SIZE_MAX
from ledgermq.pipeline.archive.archive_folder import ArchiveFolder, existing_archive
from ledgermq.pipeline.archive.archive_layout import PLAIN, STORED, ArchivedFile, ArchiveState
from ledgermq.pipeline.archive.archive_store import ArchiveStore
from ledgermq.pipeline.archive.folder_store import FolderStore
from ledgermq.pipeline.archive.replay_layout import (
    ORIGIN,
    Place,
    ReplayChoice,
    ReplayFolder,
    ReplayMark,
    check_name,
    origin,
    place_of,
)
from ledgermq.pipeline.columns.message_schema import MILLISECONDS
from ledgermq.pipeline.columns.queued_records import columns_of
from ledgermq.pipeline.jobs.job_session import Tasks
from ledgermq.pipeline.queue_ranges import MessageRange, Queue
from ledgermq.pipeline.source.node_source import NodeSource
from ledgermq.pipeline.source.split_plan import packed
from ledgermq.store.files.checked_document import read_document, write_document

BATCH_MESSAGES = 256
"""Messages of one frame."""

NOTE_EVERY = 20_000
"""After so many messages it is noted how far their queues are: so many are looked for at most."""

_PARQUET_ROWS = 4_096
_BATCH_BYTES = 1024 * 1024
_COLUMNS = ["queueId", "queueOffset", "tags", "keys", "properties", "body", "sysFlag", "flag"]
_COLUMNS += ["bodyCrc", "storeTimestamp", "crcOk"]

NOT_REPLAYED = frozenset(
    {
        *(TAGS, KEYS, UNIQ_KEY, WAIT, DELAY, REAL_TOPIC, REAL_QUEUE_ID, CLUSTER, ORIGIN),
        *(TRANSACTION_PREPARED, TRANSACTION_ID, TRANSACTION_CHECK_TIMES, PRODUCER_GROUP),
        *(TRANSACTION_PREPARED_QUEUE_OFFSET, CHECK_IMMUNITY_TIME, "MIN_OFFSET", "MAX_OFFSET"),
    }
)
"""Properties that have arguments of their own, or said how the broker was to treat a message."""


@dataclass(frozen=True, slots=True)
class ReplayTask:
    """Some queues of one topic.

    Attributes:
        notes: how far the replay is; the same folder for all tasks.
        files: those that may have something of them, in the order in which they were archived.
        bodies: ``plain`` or ``stored``.
    """

    store: ArchiveStore
    notes: ReplayFolder
    name: str
    nodes: tuple[str, ...]
    timeout_s: float
    choice: ReplayChoice
    topic: str
    queues: tuple[int, ...]
    files: tuple[ArchivedFile, ...]
    bodies: str


class ReplayedPart(NamedTuple):
    """What became of the messages that a task was to replay.

    Attributes:
        sent: stored by this run.
        found: stored by an earlier one that was stopped, beyond what it had noted.
        duplicates: not stored, since the target's window of de-duplication has their unique ids.
        damaged: left out, since their bodies are not what was sent.
    """

    sent: int
    found: int
    duplicates: int
    damaged: int


class Outgoing(NamedTuple):
    """A message to be sent once more; ``place`` is where the archive has it."""

    place: Place
    message: OutgoingMessage


def replay_part(task: ReplayTask) -> ReplayedPart:
    """Send the messages of a task; all are acknowledged, and that is noted.

    Raises:
        LedgerError: the cluster refused, or did not answer in time: to be run again.
        CorruptLogError, StorageError: the archive, or the note of an earlier run, is not readable.
    """
    options = ProducerOptions(timeout_s=task.timeout_s)
    with Producer(list(task.nodes), options=options, one_group=True) as producer:
        sender = _QueueSender(task, producer)
        damaged = 0
        for file in task.files:
            for queue_id, rows, bad in rows_of(task, file):
                damaged += bad
                sender.send(queue_id, rows)
        sender.note()
    return ReplayedPart(sender.sent, sender.found, sender.duplicates, damaged)


class _QueueSender:
    """Sends messages of queues, and notes how far each is.

    Invariant: what is before the noted place of a queue is acknowledged.
    """

    def __init__(self, task: ReplayTask, producer: Producer) -> None:
        self._task = task
        self._producer = producer
        self._topic = task.choice.to_topic or task.topic
        self._write_queues = producer.write_queues(self._topic)
        self._folder = task.notes
        self._marks: dict[int, ReplayMark] = {}
        self._stored: dict[int, set[Place]] = {}
        self._handled: dict[int, Place] = {}
        self._waiting: list[tuple[int, SendFuture[BatchResult]]] = []
        self._unnoted = 0
        self.sent = 0
        self.found = 0
        self.duplicates = 0
        source = NodeSource(task.nodes, timeout_ms=int(task.timeout_s * 1_000))
        try:
            self._settle(source)
            for queue_id in task.queues:
                self._begin(source, queue_id)
        finally:
            source.close()

    def send(self, queue_id: int, rows: Sequence[Outgoing]) -> None:
        """Send what of ``rows``, which ascend, is not stored yet."""
        if not rows:
            return
        mark, stored = self._marks[queue_id], self._stored[queue_id]
        self._handled[queue_id] = rows[-1].place
        wanted = [row for row in rows if row.place >= mark.next]
        new = [row for row in wanted if row.place not in stored]
        self.found += len(wanted) - len(new)
        frames = packed(
            new,
            lambda row: len(row.message.body),
            size_max=_BATCH_BYTES,
            count_max=BATCH_MESSAGES,
        )
        for batch in frames:
            future = self._producer.send_batch(
                self._topic, [row.message for row in batch], queue_id=mark.target_queue
            )
            self._waiting.append((queue_id, future))
            self._unnoted += len(batch)
        if self._unnoted >= NOTE_EVERY:
            self.note()

    def note(self) -> None:
        """Wait for all that was sent, and write down how far the queues are."""
        waiting, self._waiting = self._waiting, []
        for queue_id, future in waiting:
            results = future.result()
            new = [result for result in results if not result.is_duplicate]
            self.sent += len(new)
            self.duplicates += len(results) - len(new)
            mark = self._marks[queue_id]
            # A duplicate is told the place of another message, which may be any.
            behind = max(result.queue_offset + 1 for result in new) if new else 0
            self._marks[queue_id] = mark._replace(scan_from=max(mark.scan_from, behind))
        handled, self._handled = self._handled, {}
        for queue_id, (generation, offset) in sorted(handled.items()):
            mark = self._marks[queue_id]
            place = max(mark.next, (generation, offset + 1))
            self._marks[queue_id] = mark._replace(next=place)
            self._folder.write((self._task.topic, queue_id), self._marks[queue_id])
        self._unnoted = 0

    def _settle(self, source: NodeSource) -> None:
        """Where an earlier run was stopped: wait until what it had sent is in the queues.

        It is in the log at once, and no message that comes behind it is in a queue before it.
        """
        for queue_id in self._task.queues:
            before = self._folder.read((self._task.topic, queue_id))
            if before is not None:
                queue = self._topic, before.target_queue
                source.wait_message(source.bounds([queue])[queue])
                return

    def _begin(self, source: NodeSource, queue_id: int) -> None:
        """Look for what an earlier run has stored behind its note, and note where this one begins.

        Raises:
            DataLossError: retention has deleted what was to be looked at.
        """
        queue = self._task.topic, queue_id
        before = self._folder.read(queue)
        found: set[Place] = set()
        if before is not None:
            held = source.bounds([(self._topic, before.target_queue)])
            end = held[self._topic, before.target_queue].end
            range_ = MessageRange(self._topic, before.target_queue, before.scan_from, end)
            if range_.first < range_.end:
                found = set(_replayed(source, range_, self._task.name, queue))
        self._stored[queue_id] = found
        target = queue_id % self._write_queues
        if before is not None and (before.target_queue == target or found):
            # Places that were found must be found again, should this run be stopped, too.
            self._marks[queue_id] = before
            return
        bounds = source.bounds([(self._topic, target)])
        end = bounds[self._topic, target].end if bounds else 0
        next_place = before.next if before is not None else (0, 0)
        self._marks[queue_id] = ReplayMark(next_place, target, end)
        self._folder.write(queue, self._marks[queue_id])


def _replayed(source: NodeSource, range_: MessageRange, name: str, queue: Queue) -> Iterator[Place]:
    """Places of the messages of a range that this replay has stored there."""
    for part in source.read([range_], fail_on_data_loss=True):
        column = columns_of(part, inflate=False).batch(["properties"]).column(0)
        for properties in column.to_pylist():
            place = place_of(dict(properties).get(ORIGIN, ""), name, queue)
            if place is not None:
                yield place


def rows_of(task: ReplayTask, file: ArchivedFile) -> Iterator[tuple[int, list[Outgoing], int]]:
    """Messages of a file that are wanted, by queue; and how many are left out for their bodies.

    Raises:
        StorageError: the file cannot be read.
    """
    generations = {span.queue_id: span.generation for span in file.spans}
    wanted = [queue_id for queue_id in task.queues if queue_id in generations]
    if not wanted:
        return
    try:
        with task.store.fetched(file.path) as path, pq.ParquetFile(path) as parquet:
            for batch in _batches(parquet):
                chosen = batch.filter(_mask(batch, task.choice, wanted))
                for queue_id in wanted:
                    of_queue = chosen.filter(pc.equal(chosen.column("queueId"), queue_id))
                    if not of_queue.num_rows:
                        continue
                    whole = of_queue.filter(of_queue.column("crcOk"))
                    place = task.topic, queue_id
                    rows = _outgoing(task, place, generations[queue_id], whole)
                    yield queue_id, rows, of_queue.num_rows - whole.num_rows
    except (OSError, pa.ArrowInvalid) as error:
        raise StorageError(
            "file of the archive not read: ledgermq spark archive-verify",
            errno=getattr(error, "errno", None),
            file=f"{task.store.as_text()}/{file.path}",
            reason=str(error)[:300],
        ) from error


def _batches(parquet: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    """Rows of one row group at a time: the bodies of such a one are bounded, those of rows not."""
    for group in range(parquet.num_row_groups):
        yield from parquet.iter_batches(
            batch_size=_PARQUET_ROWS, row_groups=[group], columns=_COLUMNS
        )


def _mask(batch: pa.RecordBatch, choice: ReplayChoice, queues: Sequence[int]) -> pa.BooleanArray:
    mask = pc.is_in(batch.column("queueId"), pa.array(queues, pa.int32()))
    if choice.begin_ms is not None or choice.end_ms is not None:
        times = batch.column("storeTimestamp").cast(MILLISECONDS).cast(pa.int64())
        if choice.begin_ms is not None:
            mask = pc.and_(mask, pc.greater_equal(times, choice.begin_ms))
        if choice.end_ms is not None:
            mask = pc.and_(mask, pc.less(times, choice.end_ms))
    if choice.tag is not None:
        mask = pc.and_(mask, pc.fill_null(pc.equal(batch.column("tags"), choice.tag), False))
    if choice.key is not None:
        keys = pc.binary_join_element_wise(" ", batch.column("keys"), " ", "")
        mask = pc.and_(mask, pc.fill_null(pc.match_substring(keys, f" {choice.key} "), False))
    return mask


def _outgoing(
    task: ReplayTask, queue: Queue, generation: int, batch: pa.RecordBatch
) -> list[Outgoing]:
    """The rows as messages that are sent once more."""
    rows: list[Outgoing] = []
    columns = ("queueOffset", "tags", "keys", "properties", "body", "sysFlag", "flag", "bodyCrc")
    values = (batch.column(name).to_pylist() for name in columns)
    for offset, tag, keys, pairs, body, sys_flag, flag, crc in zip(*values, strict=True):
        place = generation, offset
        given = dict(pairs)
        properties = {name: value for name, value in given.items() if name not in NOT_REPLAYED}
        properties[ORIGIN] = origin(task.name, queue, place)
        # Of an archive of plain bodies, those that could not be inflated are as they are stored.
        is_stored = task.bodies == STORED or (
            bool(sys_flag & COMPRESSED) and crc32(body, 0) & CRC_MASK == crc
        )
        message = OutgoingMessage(
            body,
            tag,
            [key for key in (keys or "").split(" ") if key],
            properties,
            flag,
            sys_flag & (COMPRESSED | COMPRESSION_MASK) if is_stored else 0,
            _unique_id(given.get(UNIQ_KEY, "")),
        )
        rows.append(Outgoing(place, message))
    return rows


def _unique_id(text: str) -> str | None:
    """The message's own unique id, as far as a producer may give it."""
    is_good = 0 < len(text) <= UNIQUE_ID_SIZE_MAX and text.isascii() and text.isprintable()
    return text if is_good and " " not in text else None


FILE = "sink.json"


class StagedTask(NamedTuple):
    """Some queues of one topic in one run of an archive."""

    replay: ReplayTask
    sink: str
    batch: int


class StagedPart(NamedTuple):
    """What a task has staged; ``damaged`` rows are left out, since their bodies are not what was
    sent.
    """

    staged: StagedRows
    damaged: int


class SinkProgress:
    """The sink of one replay, and up to which run of the archive all is stored.

    Document: ``{"sink": NAME, "done": N}``.
    """

    def __init__(self, folder: ReplayFolder) -> None:
        """What an earlier run has noted; a name is drawn, durably, when there was none.

        Raises:
            CorruptLogError: the document is damaged.
            StorageError: the operating system refused.
        """
        self._file = folder.path / FILE
        document = read_document(self._file)
        if document is None:
            self.sink = f"replay-{folder.path.name[:60]}-{uuid.uuid4().hex}"
            self.done = 0
            self._write()
            return
        sink, done = document.get("sink"), document.get("done")
        if not isinstance(sink, str) or not isinstance(done, int):
            raise CorruptLogError("progress of a replay not read", file=str(self._file))
        self.sink, self.done = sink, done

    def note(self, run: int) -> None:
        """All of the archive's runs up to ``run`` are stored; durable on return."""
        self.done = run
        self._write()

    def _write(self) -> None:
        write_document(self._file, {"sink": self.sink, "done": self.done})


def stage_part(task: StagedTask) -> StagedPart:
    """Stage the messages of a task, under a name that is drawn anew.

    Raises:
        LedgerError: they are not staged: to be run again.
        StorageError: the archive is not readable.
    """
    replay = task.replay
    damaged = 0
    with staging_producer(
        list(replay.nodes), name="replay", timeout_s=replay.timeout_s
    ) as producer:
        writer = StageWriter(producer, task.sink, task.batch)
        topic = replay.choice.to_topic or replay.topic
        queues = producer.write_queues(topic)
        for file in replay.files:
            for queue_id, rows, bad in rows_of(replay, file):
                damaged += bad
                _add(writer, topic, queue_id % queues, rows)
        return StagedPart(writer.finish(), damaged)


def commit_run(
    client: SinkClient, progress: SinkProgress, run: int, parts: Sequence[StagedPart]
) -> int:
    """Store what the tasks of a run have staged, and note it; how many messages that were.

    Nothing when an earlier run of the job had committed it: what was staged now is dropped then.

    Raises:
        LedgerError: nothing is stored, or it is not known: to be run again.
    """
    stored = client.commit(progress.sink, run, [part.staged for part in parts])
    client.wait(progress.sink, run)
    progress.note(run)
    return stored.rows


def _add(writer: StageWriter, topic: str, queue_id: int, rows: Sequence[Outgoing]) -> None:
    for sys_flag, group in groupby(rows, key=lambda row: row.message.sys_flag):
        messages = [row.message for row in group]
        writer.add(
            topic,
            queue_id,
            [one.body for one in messages],
            [properties_bytes(one.tag, one.keys, one.properties) for one in messages],
            [one.flag for one in messages],
            unique_ids=[one.unique_id for one in messages],
            sys_flag=sys_flag,
        )


class ReplayOutcome(NamedTuple):
    """What a run has done; see ``ReplayedPart``."""

    sent: int
    found: int
    duplicates: int
    damaged: int
    topics: int
    tasks: int


def replay(
    job: Tasks,
    store: ArchiveStore,
    nodes: Sequence[str],
    choice: ReplayChoice,
    *,
    name: str,
    timeout_s: float,
    progress: Path | None = None,
) -> ReplayOutcome:
    """Send what the archive in ``store`` has of ``choice``, and was not sent by this name yet.

    Args:
        nodes: addresses of the cluster.
        name: of the replay: one that was stopped goes on by its name.
        timeout_s: how long the cluster may be away.
        progress: the folder for notes of how far it is; None for the archive itself.

    Raises:
        ConfigError: no archive, or no folder for notes of one that is in a bucket, a wrong name, a
            topic that it does not have, or a replay of that name was begun otherwise.
        StoreLockedError: this replay runs already.
        LedgerError: the cluster refused, or did not answer in time: to be run again.
        JobFailedError: Spark gave up.
    """
    check_name(name)
    folder = _notes(store, progress, name)
    archive = existing_archive(store)
    _check_topics(archive.state, choice)
    first = ReplayTask(
        store=store,
        notes=folder,
        name=name,
        nodes=tuple(nodes),
        timeout_s=timeout_s,
        choice=choice,
        topic="",
        queues=(),
        files=(),
        bodies=archive.state.bodies or PLAIN,
    )
    with _locked(folder, choice, None if progress is None else store.as_text()):
        if choice.by_sink:
            return _by_sink(job, archive, first, SinkProgress(folder))
        tasks = list(_tasks(archive.state.files, first, job.slots))
        parts = job.each(tasks, replay_part, size=len(tasks), split_bytes=1)
    sums = (
        ReplayedPart(*(sum(column) for column in zip(*parts, strict=True))) if parts else (0,) * 4
    )
    return ReplayOutcome(*sums, topics=len({task.topic for task in tasks}), tasks=len(tasks))


def _notes(store: ArchiveStore, progress: Path | None, name: str) -> ReplayFolder:
    if progress is not None:
        return ReplayFolder(progress / name)
    if isinstance(store, FolderStore):
        return ReplayFolder.within(store.root, name)
    raise ConfigError(
        "replay of an archive in a bucket needs a directory for its notes",
        option="--progress",
        archive=store.as_text(),
    )


def _by_sink(
    job: Tasks, archive: ArchiveFolder, first: ReplayTask, progress: SinkProgress
) -> ReplayOutcome:
    """Store one run of the archive after the other, each as a whole and once."""
    sent = found = damaged = count = 0
    topics: set[str] = set()
    with SinkClient(first.nodes, name="replay", timeout_s=first.timeout_s) as client:
        for run in archive.runs():
            if run.number <= progress.done:
                continue
            tasks = [
                StagedTask(task, progress.sink, run.number)
                for task in _tasks(run.files, first, job.slots)
            ]
            if not tasks:
                progress.note(run.number)
                continue
            parts = job.each(tasks, stage_part, size=len(tasks), split_bytes=1)
            rows = commit_run(client, progress, run.number, parts)
            sent += rows
            found += sum(part.staged.rows for part in parts) - rows
            damaged += sum(part.damaged for part in parts)
            topics |= {task.replay.topic for task in tasks}
            count += len(tasks)
    return ReplayOutcome(sent, found, 0, damaged, topics=len(topics), tasks=count)


def _check_topics(state: ArchiveState, choice: ReplayChoice) -> None:
    known = {topic for topic, _ in state.marks}
    missing = sorted(set(choice.topics or ()) - known)
    if missing:
        raise ConfigError("archive has no such topic", option="--topics", topics=missing)


def _tasks(archived: Sequence[ArchivedFile], first: ReplayTask, slots: int) -> Iterator[ReplayTask]:
    """Topics, each with its queues divided for as many tasks as can run at once.

    A queue is one task's, which keeps its order; each task reads all files of the topic.
    """
    choice = first.choice
    queues: dict[str, set[int]] = {}
    files: dict[str, list[ArchivedFile]] = {}
    for file in archived:
        if choice.has_file(file):
            found = (span.queue_id for span in file.spans if choice.has_queue(span.queue_id))
            queues.setdefault(file.topic, set()).update(found)
            files.setdefault(file.topic, []).append(file)
    for topic, ids in sorted(queues.items()):
        ordered = sorted(ids)
        for number in range(min(slots, len(ordered))):
            own = tuple(ordered[number::slots])
            yield replace(first, topic=topic, queues=own, files=tuple(files[topic]))


@contextmanager
def _locked(folder: ReplayFolder, choice: ReplayChoice, place: str | None) -> Iterator[None]:
    """The replay for this process alone."""
    try:
        folder.begin(choice, archive=place)
        lock = os.open(folder.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    except OSError as error:
        raise StorageError(
            "replay not begun", errno=error.errno, directory=str(folder.path), reason=str(error)
        ) from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreLockedError("replay runs already", directory=str(folder.path)) from error
        yield
    finally:
        os.close(lock)
