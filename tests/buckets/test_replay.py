"""``replay`` sends an archive that is in a bucket, once, and notes in a directory how far it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgermq.model.errors import ConfigError
from ledgermq.pipeline.archive.archive_folder import existing_archive, store_at
from ledgermq.pipeline.archive.archive_job import archive
from ledgermq.pipeline.archive.archive_store import ArchiveStore
from ledgermq.pipeline.archive.object_store import ObjectStore
from ledgermq.pipeline.archive.replay_job import ReplayOutcome, replay
from ledgermq.pipeline.archive.replay_layout import ReplayChoice
from tests.buckets.bucket_archives import check
from tests.buckets.object_server import bucket_of, mirrored
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, nodes_made
from tests.suite.patience import PATIENCE_S
from tests.tables.test_typed_table import EARLIER, FIRST, LATER, SECOND, TypedStore
from tests.unit.pipeline.archives import TasksHere, archived, visible_rows
from tests.unit.pipeline.test_archive_job import grown

pytestmark = pytest.mark.slow


@pytest.fixture
def node() -> Iterator[Node]:
    with nodes_made() as make:
        made = make()
        start_client_node(made)
        yield made


def replayed(
    store: ArchiveStore, node: Node, progress: Path | None, *, by_sink: bool = False
) -> ReplayOutcome:
    return replay(
        TasksHere(),
        store,
        [f"ipc://{node.runtime}"],
        ReplayChoice(topics=("orders",), by_sink=by_sink),
        name="by-sink" if by_sink else "again",
        timeout_s=PATIENCE_S,
        progress=progress,
    )


@pytest.mark.long
def test_an_archive_in_a_bucket_is_sent_once(
    tmp_path: Path, target: ObjectStore, node: Node
) -> None:
    store = tmp_path / "store"
    archived(grown(store, 20), target)
    first = replayed(target, node, tmp_path / "notes")
    archived(grown(store, 30), target)
    second = replayed(target, node, tmp_path / "notes")
    third = replayed(target, node, tmp_path / "notes")
    staged = replayed(target, node, tmp_path / "notes", by_sink=True)
    again = replayed(target, node, tmp_path / "notes", by_sink=True)
    files = existing_archive(target).state.files
    rows = sum(file.rows for file in files if file.topic == "orders")

    assert 0 < first.sent < rows
    assert (first.sent + second.sent, third.sent, third.found) == (rows, 0, 0)
    assert (staged.sent, again.sent) == (rows, 0)
    assert list(bucket_of(target).listed("_ledgermq/replays/")) == []

    with pytest.raises(ConfigError, match="needs a directory for its notes") as found:
        replayed(target, node, None)

    assert found.value.details["option"] == "--progress"

    other = store_at(f"{target.as_text()}-of-another")
    archived(store, other)
    with pytest.raises(ConfigError, match="begun otherwise"):
        replayed(other, node, tmp_path / "notes")


@pytest.mark.long
def test_bodies_that_are_fields_too_are_sent_as_they_were(
    tmp_path: Path, target: ObjectStore, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = TypedStore(tmp_path / "store", monkeypatch)
    store.register(FIRST)
    sent = [store.write(EARLIER)]
    for schema, value in ((SECOND, LATER), (SECOND, LATER)):
        archive(TasksHere(), store.options(), target, split_bytes=1 << 20)
        store.register(schema)
        sent.append(store.write(value))
    archive(TasksHere(), store.options(), target, split_bytes=1 << 20)
    rows = visible_rows(mirrored(target, tmp_path / "mirror"))
    replay = replayed(target, node, tmp_path / "notes", by_sink=True)

    assert sorted(row["body"] for row in rows) == sorted(sent)
    assert [row["unparsedWhy"] for row in rows] == [None] * 3
    assert sorted(row["value"]["id"] for row in rows) == [1, 1 << 40, 1 << 40]
    assert check(target) == []
    assert replay.sent == 3
