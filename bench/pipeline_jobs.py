"""How many rows a second do ``spark rebuild`` and ``archive`` write, and how fast does audit read?

The log has several files, and in another store one; queues are built with the index and without.

Estimate beforehand, two cores, 1 KiB, page cache: the dispatcher's kernel takes 0.2 µs a message, a
unit and a key 0.1 µs more, so each of two workers builds 2 million rows a second or 2.4 GB/s, and
the page cache is the limit; a job of Spark costs 0.2 s. Audit computes the CRC of each body and a
digest of each byte: 2 GB/s a core, 3 GB/s for both, less what the first job costs. Archive makes
all columns (1 µs a row), checks the CRC, compresses and hashes the file: 2.5 µs a row and core; a
bucket's server takes as much as a fifth of that for what it copies and digests. A table of Iceberg
has the topic as a column, and its rows are sorted: 0.5 µs more, and the commit.

    python -m bench.pipeline_jobs [--smoke] [--directory DIR] [--gib N]
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.machine import spread, write
from bench.made_store import BODY_SIZE, asked_for, build_queues, write_log
from bench.spark_session import spark_session
from ledgermq.model.config.settings import StoreSection
from ledgermq.pipeline.archive.archive_folder import store_at
from ledgermq.pipeline.archive.archive_job import archive, archive_into
from ledgermq.pipeline.archive.folder_store import FolderStore
from ledgermq.pipeline.job_defaults import LEVEL_DEFAULT, SPLIT_BYTES
from ledgermq.pipeline.jobs.audit_job import audit
from ledgermq.pipeline.jobs.job_session import Job
from ledgermq.pipeline.jobs.rebuild_job import rebuild
from ledgermq.pipeline.source_options import parse_options
from ledgermq.pipeline.tables.iceberg_table import IcebergTable
from ledgermq.repair.check.check_store import CheckOptions
from ledgermq.store.store_directory import open_directory
from tests.buckets.object_server import BUCKET, served, variables

REPLICAS = 3
FILE_SIZE = 2**28

Figures = dict[str, object]


def rebuilt_rows_per_s(job: Job, root: Path, *, with_index: bool) -> float:
    """Messages a second of wall time, until everything is written."""
    directory = open_directory(root)
    section = StoreSection(path_root_dir=root, log=directory.log, message_index_enable=with_index)
    begin = time.perf_counter()
    built = rebuild(job, directory, section, root / "derived", split_bytes=SPLIT_BYTES)
    seconds = time.perf_counter() - begin
    shutil.rmtree(root / "derived")
    return built.staged.messages / seconds


def archived_rows_per_s(job: Job, root: Path) -> float:
    """Messages a second of wall time, until files and manifest are durable."""
    target = root / "archive"
    options = parse_options({"path": str(root)}, streaming=False)
    begin = time.perf_counter()
    found = archive(job, options, FolderStore(target), split_bytes=SPLIT_BYTES)
    seconds = time.perf_counter() - begin
    shutil.rmtree(target)
    return found.rows / seconds


def bucket_rows_per_s(job: Job, root: Path, number: int) -> float:
    """Messages a second of wall time, until objects and head are under a prefix of a bucket."""
    options = parse_options({"path": str(root)}, streaming=False)
    target = store_at(f"s3a://{BUCKET}/{number}")
    begin = time.perf_counter()
    found = archive(job, options, target, split_bytes=SPLIT_BYTES)
    return found.rows / (time.perf_counter() - begin)


def archive_rates(job: Job, root: Path, runs: int) -> Figures:
    """Rows a second into each place, in turn, as hosts are not the same for minutes; and what the
    others take in the same turn of what a folder does. A first turn, which is not counted, warms.
    """
    turns = [
        (
            archived_rows_per_s(job, root),
            bucket_rows_per_s(job, root, number),
            tabled_rows_per_s(job, root),
        )
        for number in range(runs + 1)
    ][1:]
    folder, bucket, table = zip(*turns, strict=True)
    return {
        "archive_krows_per_s": spread([rate / 1_000 for rate in folder]),
        "archive_bucket_krows_per_s": spread([rate / 1_000 for rate in bucket]),
        "archive_iceberg_krows_per_s": spread([rate / 1_000 for rate in table]),
        "bucket_of_folder": spread([there / here for here, there, _ in turns]),
        "iceberg_of_folder": spread([there / here for here, _, there in turns]),
    }


@contextmanager
def known_server(folder: Path) -> Iterator[None]:
    """A real S3 server of this machine (versitygw), which all processes begun meanwhile know.

    Spark's workers have the environment with which its session began.
    """
    with served(folder) as server:
        os.environ.update(variables(server.port))
        yield


def tabled_rows_per_s(job: Job, root: Path) -> float:
    """Messages a second of wall time, until a new table has them, of a catalog in SQLite."""
    folder = root / "lake"
    folder.mkdir()
    options = parse_options({"path": str(root)}, streaming=False)
    properties = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}
    table = IcebergTable.at("bench.mq.messages", properties)
    begin = time.perf_counter()
    found = archive_into(job, options, table, split_bytes=SPLIT_BYTES, level=LEVEL_DEFAULT)
    seconds = time.perf_counter() - begin
    shutil.rmtree(folder)
    return found.rows / seconds


def audited_bytes_per_s(job: Job, roots: list[Path]) -> float:
    """Bytes of all logs a second of wall time; the replicas must be clean."""
    begin = time.perf_counter()
    found = audit(job, roots, CheckOptions(), split_bytes=SPLIT_BYTES)
    seconds = time.perf_counter() - begin
    assert not found.faults, found.faults[0].as_text()
    return sum(replica.checked.log_bytes for replica in found.replicas) / seconds


def main() -> None:
    """Make three replicas, run both jobs, write the figures down."""
    asked = asked_for(__doc__, gib=1.0)
    runs = 2 if asked.smoke else 7
    figures: Figures = {"body_size": BODY_SIZE}
    with tempfile.TemporaryDirectory(dir=asked.directory) as scratch:
        folder = Path(scratch)
        roots = [folder / f"n{number}" for number in range(REPLICAS)]
        few = folder / "one-file"
        for root, file_size in ((roots[0], min(asked.size, FILE_SIZE)), (few, asked.size)):
            root.mkdir()
            write_log(root, size=asked.size - BODY_SIZE, file_size=file_size)
        build_queues(roots[0])
        for root in roots[1:]:
            shutil.copytree(roots[0], root)
        with known_server(folder / "s3"), spark_session(folder, slots=2) as session:
            job = Job(session, lambda _done, _all: None)
            # The first of each starts Python's workers and warms the caches.
            rebuilt_rows_per_s(job, roots[0], with_index=True)
            audited_bytes_per_s(job, roots)
            for files, root in (("", roots[0]), ("_one_file", few)):
                for index, with_index in (("", True), ("_no_index", False)):
                    rates = [
                        rebuilt_rows_per_s(job, root, with_index=with_index) for _ in range(runs)
                    ]
                    figures[f"rebuild_krows_per_s{index}{files}"] = spread(
                        [rate / 1_000 for rate in rates]
                    )
            figures |= archive_rates(job, roots[0], runs)
            rates = [audited_bytes_per_s(job, roots) for _ in range(runs)]
            figures["audit_mb_per_s"] = spread([rate / 1_000_000 for rate in rates])
    if asked.smoke:
        print(figures)
    else:
        write("pipeline_jobs", figures)


if __name__ == "__main__":
    main()
