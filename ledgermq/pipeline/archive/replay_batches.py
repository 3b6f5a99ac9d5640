"""Replay through the sink: each run of the archive is a batch, stored as a whole.

The batch has the run's number, and the sink a name that was drawn when the replay was begun. So the
brokers know what is stored: nothing has to be looked for in the target's queues, and a run that is
repeated stores nothing twice, whenever the one before it died. What of the archive's runs is done
is noted, too, since brokers forget a sink that nobody has written to for long.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from ledgermq.client.sending.outgoing import properties_bytes
from ledgermq.client.staging import SinkClient, StagedRows, StageWriter, staging_producer
from ledgermq.model.errors import CorruptLogError
from ledgermq.pipeline.archive.replay_layout import ReplayFolder
from ledgermq.pipeline.archive.replay_writer import Outgoing, ReplayTask, rows_of
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
