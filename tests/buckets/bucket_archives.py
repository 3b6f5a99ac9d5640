"""Archives in the bucket of a test: what is asked of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgermq.pipeline.archive import object_store
from ledgermq.pipeline.archive.archive_folder import check_archive, store_at
from ledgermq.pipeline.archive.object_store import ObjectStore
from tests.buckets.object_server import mirrored
from tests.unit.pipeline.archives import TasksHere, places, visible_rows

HEAD = "_ledgermq/head.json"
STAGING = "_ledgermq/staging/"


def opened(place: str) -> ObjectStore:
    """The archive at ``s3a://BUCKET/PREFIX``."""
    store = store_at(place)
    assert isinstance(store, ObjectStore)
    return store


def check(target: ObjectStore) -> list[str]:
    """What ``archive-verify`` finds."""
    checked = check_archive(TasksHere(), target, split_bytes=1 << 20)
    return [fault.as_text() for fault in checked.faults]


def seen(target: ObjectStore, folder: Path) -> list[tuple[str, int, int]]:
    """Topic, queue and offset of all rows that readers of the bucket see."""
    return places(visible_rows(mirrored(target, folder)))


def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease of somebody who is gone is over by now."""
    monkeypatch.setattr(object_store, "_is_held", lambda _found: False)
