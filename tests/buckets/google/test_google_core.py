"""What is promised of buckets of S3 is true of Google's, too: what shows it in seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.fs as file_systems
import pytest
from pyarrow import dataset
from requests.adapters import HTTPAdapter

from ledgermq.buckets import bucket as bucket_steps
from ledgermq.buckets import google_bucket
from ledgermq.model.errors import ConfigError
from ledgermq.model.exit_status import EXIT_CONFIG
from ledgermq.pipeline.archive.archive_folder import store_at
from ledgermq.pipeline.archive.object_store import ObjectStore
from tests.buckets import test_backup_streams, test_bad_answers, test_object_store
from tests.buckets.bucket_archives import opened
from tests.buckets.bucket_streams import BucketStream
from tests.buckets.object_server import FaultyProxy, forget_clients
from tests.unit.pipeline.archives import archived
from tests.unit.pipeline.test_archive_job import expected, grown

pytestmark = pytest.mark.slow

store, once = test_backup_streams.store, test_bad_answers.once

SHARED = (
    test_object_store.test_a_bucket_has_what_a_folder_would_have,
    test_object_store.test_of_many_puts_over_the_same_version_one_is_done,
    test_bad_answers.test_a_lease_ends_by_the_clock_of_the_store,
    test_backup_streams.test_what_is_restored_is_the_log_that_was_streamed,
    test_backup_streams.test_of_two_puts_of_one_piece_the_first_stays,
)
globals().update({one.__name__: one for one in SHARED})


def test_a_store_without_conditions_is_refused(
    tmp_path: Path,
    target: ObjectStore,
    root: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    messages, stream = grown(tmp_path / "messages", 6), BucketStream(tmp_path, "refused", root=root)
    stream.commit(4)
    send = HTTPAdapter.send

    def forgetting(session: Any, request: Any, **how: Any) -> Any:
        request.url = request.url.replace("&ifGenerationMatch=", "&forgotten=")
        return send(session, request, **how)

    with monkeypatch.context() as forgetful:
        forgetful.setattr(HTTPAdapter, "send", forgetting)
        with pytest.raises(ConfigError, match="does not keep to conditions"):
            archived(messages, target)
        assert stream.stream() == EXIT_CONFIG
        assert "does not keep to conditions" in capsys.readouterr().err

    assert archived(messages, target).rows == 6
    assert stream.stream() == 0


def test_what_is_no_place_of_an_archive_is_refused(
    tmp_path: Path, root: str, proxy: FaultyProxy
) -> None:
    messages = grown(tmp_path / "store", 6)
    with pytest.raises(ConfigError, match="no such bucket"):
        archived(messages, opened("gs://no-such-bucket/archive"))
    for place in ("gs:///archive", "gs://a/../b", f"{root}/a//b"):
        with pytest.raises(ConfigError, match="not the place"):
            store_at(place)


def test_keys_are_told_nowhere_and_missing_ones_by_their_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "keys.json").write_text('{"type": "secret-of-nobody"}')
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "keys.json"))
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    forget_clients()
    with pytest.raises(ConfigError, match="no keys for the object store") as found:
        store_at("gs://archives/a")
    assert "GOOGLE_APPLICATION_CREDENTIALS" in str(found.value.details["setting"])
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://user:secret@127.0.0.1")
    with pytest.raises(ConfigError, match="endpoint with keys") as found:
        store_at("gs://archives/a")
    assert "secret" not in str(found.value)


def test_a_large_object_is_read_in_ranges(
    tmp_path: Path, target: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_steps, "RANGE_BYTES", 1000)
    bucket = google_bucket.GoogleBucket(target.place)
    content = bytes(range(256)) * 10
    assert bucket.put("large", content, over=None) is not None
    stretch = bucket.stretch("large", 5, None, version=None)

    assert b"".join(iter(lambda: stretch.read(700), b"")) == content[5:]
    assert bucket.stretch("large", len(content), None, version=stretch.version).read(1) == b""


def test_arrow_sees_the_rows_and_the_partitions(
    tmp_path: Path, proxy: FaultyProxy, target: ObjectStore
) -> None:
    archived(grown(tmp_path / "store", 30), target)
    there = file_systems.GcsFileSystem(
        anonymous=True, scheme="http", endpoint_override=f"127.0.0.1:{proxy.port}"
    )
    path = target.as_text().partition("://")[2]
    read = dataset.dataset(path, filesystem=there, format="parquet", partitioning="hive")
    rows: list[dict[str, Any]] = read.to_table().to_pylist()

    assert sorted((row["topic"], row["queueId"], row["queueOffset"]) for row in rows) == expected(
        30
    )
