"""``replay`` job: messages of an archive, sent into topics of a running cluster.

Through the sink each run of the archive is a batch, stored as a whole. The batch has the run's
number, and the sink a name that was drawn when the replay was begun. So the brokers know what is
stored: nothing has to be looked for in the target's queues, and a run that is repeated stores
nothing twice, whenever the one before it died. What of the archive's runs is done is noted, too,
since brokers forget a sink that nobody has written to for long.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from ledgermq.client.sending.outgoing import properties_bytes
from ledgermq.client.staging import SinkClient, StagedRows, StageWriter, staging_producer
from ledgermq.model.errors import ConfigError, CorruptLogError, StorageError, StoreLockedError
from ledgermq.pipeline.archive.archive_folder import ArchiveFolder, existing_archive
from ledgermq.pipeline.archive.archive_layout import PLAIN, ArchivedFile, ArchiveState
from ledgermq.pipeline.archive.archive_store import ArchiveStore
from ledgermq.pipeline.archive.folder_store import FolderStore
from ledgermq.pipeline.archive.replay_layout import ReplayChoice, ReplayFolder, check_name
from ledgermq.pipeline.archive.replay_writer import (
    Outgoing,
    ReplayedPart,
    ReplayTask,
    replay_part,
    rows_of,
)
from ledgermq.pipeline.jobs.job_session import Tasks
from ledgermq.store.files.checked_document import read_document, write_document

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
