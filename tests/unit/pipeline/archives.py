"""What tests of archives share: tasks that run in this process, and rows as readers find them."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pyarrow.parquet as pq

from ledgermq.pipeline.archive.archive_job import Archived, archive
from ledgermq.pipeline.archive.archive_store import OWN_FOLDER, ArchiveStore
from ledgermq.pipeline.archive.folder_store import FolderStore
from ledgermq.pipeline.source_options import parse_options

Row = dict[str, Any]
Task = TypeVar("Task")
Result = TypeVar("Result")


class TasksHere:
    """Runs tasks one after the other in this process; they are copied, as on their way to Spark."""

    def __init__(self, slots: int = 2) -> None:
        self.slots = slots

    def each(
        self, work: Sequence[Task], run: Callable[[Task], Result], *, size: int, split_bytes: int
    ) -> list[Result]:
        """What ``run`` made of each piece of work."""
        return [pickle.loads(pickle.dumps(run(pickle.loads(pickle.dumps(one))))) for one in work]


def archived(store: Path, target: Path | ArchiveStore, **options: str) -> Archived:
    """What a run on a store directory has done."""
    place = FolderStore(target) if isinstance(target, Path) else target
    level = int(options.pop("level", "-5"))
    checked = parse_options({"path": str(store), **options}, streaming=False)
    return archive(TasksHere(), checked, place, split_bytes=1 << 20, level=level)


def visible_files(target: Path) -> list[Path]:
    """Files that Spark sees when it reads the folder, in the order of the log."""
    found = [path for path in target.rglob("*.parquet") if OWN_FOLDER not in path.parts]
    return sorted(found, key=lambda path: path.name)


def visible_rows(target: Path) -> list[Row]:
    """What readers of the folder see; the topic is that of the path."""
    rows: list[Row] = []
    for path in visible_files(target):
        topic = path.parent.parent.name.removeprefix("topic=")
        rows += [
            {"topic": topic, **row}
            for row in pq.read_table(str(path), partitioning=None).to_pylist()
        ]
    return rows


def places(rows: list[Row]) -> list[tuple[str, int, int]]:
    """Topic, queue and offset of each row, sorted."""
    return sorted((row["topic"], row["queueId"], row["queueOffset"]) for row in rows)
