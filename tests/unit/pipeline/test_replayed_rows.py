"""Rows of an archive as messages that are sent once more."""

from __future__ import annotations

import dataclasses
import zlib
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ledgermq.pipeline.archive import replay_job
from ledgermq.pipeline.archive.archive_layout import PLAIN as PLAIN_BODIES
from ledgermq.pipeline.archive.archive_layout import STORED
from ledgermq.pipeline.archive.folder_store import FolderStore
from ledgermq.pipeline.archive.replay_job import ReplayTask
from ledgermq.pipeline.archive.replay_layout import ReplayChoice, ReplayFolder
from ledgermq.pipeline.columns.record_columns import RecordColumns
from tests.unit.pipeline.test_record_columns import PLAIN, records_of

COLUMNS = ["queueId", "queueOffset", "tags", "keys", "properties", "body", "sysFlag", "flag"]
COLUMNS += ["bodyCrc", "storeTimestamp", "crcOk"]


def task_of(folder: Path, bodies: str) -> ReplayTask:
    return ReplayTask(
        store=FolderStore(folder), notes=ReplayFolder(folder / "notes"), name="again", nodes=(),
        timeout_s=1.0, choice=ReplayChoice(topics=None, queues=None), topic="orders", queues=(0,),
        files=(), bodies=bodies,
    )  # fmt: skip


@pytest.mark.parametrize("bodies", [PLAIN_BODIES, STORED])
def test_a_body_that_could_not_be_inflated_goes_as_it_is_stored(
    tmp_path: Path, bodies: str
) -> None:
    """The archive of plain bodies has it so; who receives it is told that it is compressed."""
    broken = dataclasses.replace(PLAIN, body=b"no zlib", sys_flag=1)
    packed = dataclasses.replace(PLAIN, body=zlib.compress(bytes(1_000)), sys_flag=1)
    rows = RecordColumns(records_of([PLAIN, broken, packed]), inflate=bodies == PLAIN_BODIES)
    batch = rows.batch(COLUMNS)

    sent = replay_job._outgoing(task_of(tmp_path, bodies), ("orders", 0), 0, batch)

    assert [one.message.sys_flag for one in sent] == [0, 1, 0 if bodies == PLAIN_BODIES else 1]
    kept = bytes(1_000) if bodies == PLAIN_BODIES else packed.body
    assert [one.message.body for one in sent] == [PLAIN.body, b"no zlib", kept]


def test_a_file_is_read_by_its_row_groups(tmp_path: Path) -> None:
    """A row group has bodies up to a bound; rows of several have any number of bytes together."""
    batch = RecordColumns(records_of([PLAIN] * 5)).batch(COLUMNS)
    with pq.ParquetWriter(tmp_path / "file", batch.schema) as writer:
        for first in range(0, 5, 2):
            writer.write_batch(batch.slice(first, 2))
    with pq.ParquetFile(tmp_path / "file") as parquet:
        assert [one.num_rows for one in replay_job._batches(parquet)] == [2, 2, 1]
