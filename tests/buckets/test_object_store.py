"""An archive in a bucket of a real S3 server has each message once, whatever happens meanwhile."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ledgermq.buckets import amazon_bucket
from ledgermq.model.errors import ConfigError, CorruptLogError, LedgerError, StoreLockedError
from ledgermq.pipeline.archive import archive_writer, object_store
from ledgermq.pipeline.archive.archive_folder import (
    ArchiveFolder,
    existing_archive,
    store_at,
    writable_archive,
)
from ledgermq.pipeline.archive.object_store import ObjectStore
from tests.buckets.bucket_archives import HEAD, STAGING, check, later, opened, seen
from tests.buckets.object_server import (
    BUCKET,
    KEYS,
    FaultyProxy,
    bucket_of,
    forget_clients,
    mirrored,
)
from tests.unit.pipeline.archives import archived, places, visible_rows
from tests.unit.pipeline.test_archive_job import expected, grown

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slow


def test_a_bucket_has_what_a_folder_would_have(tmp_path: Path, target: ObjectStore) -> None:
    store, folder = tmp_path / "store", tmp_path / "folder"
    runs = []
    for count in (6, 6, 7, 30, 10):
        grown(store, count)
        runs.append(archived(store, target).rows)
        archived(store, folder)
    in_bucket = visible_rows(mirrored(target, tmp_path / "mirror"))
    keys = list(bucket_of(target).listed())

    assert runs == [6, 0, 1, 23, 0]
    assert places(in_bucket) == expected(30)
    assert sorted(map(repr, in_bucket)) == sorted(map(repr, visible_rows(folder)))
    assert check(target) == []
    assert [key for key in keys if key.startswith(STAGING)] == []
    assert [run.number for run in ArchiveFolder(target).runs()] == [1, 2, 3]


def test_of_many_puts_over_the_same_version_one_is_done(target: ObjectStore) -> None:
    bucket = bucket_of(target)
    version = bucket.put("counter", b"begin", over=None)
    for turn in range(10):
        with ThreadPoolExecutor(8) as pool:
            contents = [b"%d-%d" % (turn, number) for number in range(8)]
            done = list(pool.map(partial(bucket.put, "counter", over=version), contents))
        won = [content for content, found in zip(contents, done, strict=True) if found]
        there = bucket.get("counter", bytes_max=100)

        assert there is not None
        assert won == [there.content]

        version = there.version


def test_a_second_writer_is_refused_while_the_first_one_writes(
    tmp_path: Path, target: ObjectStore
) -> None:
    store = grown(tmp_path / "store", 10)
    with (
        writable_archive(target),
        pytest.raises(StoreLockedError, match="another run writes") as found,
    ):
        archived(store, target)

    assert str(os.getpid()) in str(found.value.details["holder"])
    assert archived(store, target).rows == 10


def test_of_runs_that_begin_at_once_each_message_is_there_once(
    tmp_path: Path, target: ObjectStore
) -> None:
    store = grown(tmp_path / "store", 30)
    barrier = threading.Barrier(4)

    def run(_number: int) -> int | None:
        barrier.wait()
        try:
            return archived(store, target).rows
        except StoreLockedError:
            return None

    with ThreadPoolExecutor(4) as pool:
        rows = list(pool.map(run, range(4)))

    # One that begins when another has ended finds nothing new.
    assert rows.count(30) == 1
    assert set(rows) <= {30, 0, None}
    assert seen(target, tmp_path / "mirror") == expected(30)
    assert check(target) == []


def test_a_writer_that_was_held_up_adds_nothing_and_harms_nothing(
    tmp_path: Path, target: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = grown(tmp_path / "store", 10)
    bucket = bucket_of(target)
    with target.written() as held_up:
        old = held_up.staging()
        file = old.create("topic=orders/day=2026-01-01/part-of-the-old.parquet")
        file.write(b"of the one that was held up")
        file.close()
        with monkeypatch.context() as minute:
            later(minute)
            assert archived(store, target).rows == 10
            with target.written() as new:
                young = new.staging().create("topic=orders/part-of-the-new.parquet")
                young.write(b"staged")
                young.close()
                number = existing_archive(target).state.runs + 1
                held_up.discard()
                left = [key for key in bucket.listed(STAGING) if key.endswith(".parquet")]
                document = object_store.RunDocument(1, {"run": 1}, "")
                with pytest.raises(StoreLockedError, match="nothing was added"):
                    held_up.commit(document, old)

    assert number == 2
    assert [key.rpartition("/")[2] for key in left] == ["part-of-the-new.parquet"]
    assert existing_archive(target).state.runs == 1
    assert archived(store, target).rows == 0
    assert seen(target, tmp_path / "mirror") == expected(10)
    assert check(target) == []


def test_a_lease_is_renewed_while_its_holder_lives(
    target: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "LEASE_S", 0.4)
    bucket = bucket_of(target)
    with target.written():
        words = set()
        while len(words) < 3:
            found = bucket.get(HEAD, bytes_max=4096)
            assert found is not None
            words.add(found.version)
    with target.written():
        pass


REQUESTS = range(1, 60)


def deaths_of(store: Path, targets: list[str]) -> list[str]:
    """What became of a run into each of the archives, killed before the request of its number."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.buckets.object_dying", str(store)],
        input="".join(f"{target} {call}\n" for target, call in zip(targets, REQUESTS, strict=True)),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=600,
        check=True,
    )
    return done.stdout.split()


@pytest.mark.long
def test_a_run_that_dies_before_any_request_leaves_nothing_twice(
    tmp_path: Path, proxy: FaultyProxy, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile readers see no row twice, and none of half a run; the next run puts it right."""
    store = tmp_path / "store"
    targets = [f"{root}/deaths/{number}" for number in REQUESTS]
    grown(store, 6)
    for place in targets:
        archived(store, opened(place))
    grown(store, 30)
    outcomes = deaths_of(store, targets)
    later(monkeypatch)
    left = set()
    for place, call in zip(targets, REQUESTS, strict=True):
        target = opened(place)
        rows = seen(target, tmp_path / "mirror")
        state = ArchiveFolder(target).state
        staged = any(key.endswith(".parquet") for key in bucket_of(target).listed(STAGING))
        left.add((state.runs, len(rows) > 6, staged))

        assert len(rows) == len(set(rows)), call
        assert state.runs == 2 or rows == expected(6), call
        assert set(rows) <= set(expected(30)), call

        archived(store, target)

        assert seen(target, tmp_path / "mirror") == expected(30), call
        assert check(target) == [], call
        assert list(bucket_of(target).listed(STAGING)) == [], call

    # Before the head, behind it, among the copies, before the staged ones are deleted, and behind.
    assert {(1, False, True), (2, False, True), (2, True, True), (2, True, False)} <= left
    assert set(outcomes) == {"died", "ended"}


def test_what_is_changed_in_the_bucket_is_found(tmp_path: Path, target: ObjectStore) -> None:
    archived(grown(tmp_path / "store", 6), target)
    archived(grown(tmp_path / "store", 30), target)
    bucket = bucket_of(target)
    one, *_ = target.parquet_paths()
    file = tmp_path / "file"
    bucket.fetch(one, file)
    whole = file.read_bytes()

    def faults_with(content: bytes) -> list[str]:
        file.write_bytes(content)
        bucket.upload(one, file)
        return check(target)

    flipped = bytes([*whole[:100], whole[100] ^ 1, *whole[101:]])
    assert "other bytes" in faults_with(flipped)[0]
    assert "bytes, and not" in faults_with(whole[:-1])[0]
    assert faults_with(whole) == []
    bucket.upload("topic=orders/strange.parquet", file)
    assert check(target)[0].startswith("topic=orders/strange.parquet: not of this archive")
    bucket.delete([one, "topic=orders/strange.parquet"])
    assert check(target) == [f"{one}: missing"]


@pytest.mark.parametrize("prefix", [HEAD, "_ledgermq/manifest/00000001"])
def test_a_flipped_byte_of_head_and_manifest_is_found(
    tmp_path: Path, target: ObjectStore, prefix: str
) -> None:
    archived(grown(tmp_path / "store", 6), target)
    bucket = bucket_of(target)
    (key,) = bucket.listed(prefix)
    found = bucket.get(key, bytes_max=1 << 20)
    assert found is not None
    for at in (0, len(found.content) // 2, len(found.content) - 1):
        content = bytearray(found.content)
        content[at] ^= 1
        (tmp_path / "document").write_bytes(content)
        bucket.upload(key, tmp_path / "document")
        with pytest.raises(CorruptLogError, match="checksum") as raised:
            check(target)

        assert key in str(raised.value.details["file"])
    bucket.delete([key])
    with pytest.raises((CorruptLogError, ConfigError), match=r"lacks a document|no archive"):
        check(target)


def test_a_store_without_conditions_is_refused(
    tmp_path: Path, proxy: FaultyProxy, target: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = bucket_of(target)._client
    store = grown(tmp_path / "store", 6)

    def forget(request: Any, **_rest: Any) -> None:
        for header in ("If-None-Match", "If-Match"):
            del request.headers[header]

    client.meta.events.register("before-sign.s3.PutObject", forget)
    with pytest.raises(ConfigError, match="does not keep to conditions"):
        archived(store, target)
    client.meta.events.unregister("before-sign.s3.PutObject", forget)
    proxy.fault = lambda _number, head: "unable" if b"If-" in head else ""
    with pytest.raises(ConfigError, match="does not keep to conditions"):
        archived(store, target)
    proxy.fault = lambda _number, _head: ""

    assert archived(store, target).rows == 6


def test_a_store_that_does_not_list_uploads_is_taken(
    tmp_path: Path, proxy: FaultyProxy, target: ObjectStore
) -> None:
    proxy.fault = lambda _number, head: "unable" if b"?uploads" in head else ""
    found = archived(grown(tmp_path / "store", 6), target)

    assert found.rows == 6
    assert "unable" in proxy.faults
    assert check(target) == []


def test_large_files_are_several_and_go_in_parts(
    tmp_path: Path, target: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file has no more than a store copies in one go; what is uploaded in parts is whole."""
    monkeypatch.setattr(amazon_bucket, "PART_BYTES", 8 << 20)
    monkeypatch.setattr(archive_writer, "GROUP_BYTES", 1)
    monkeypatch.setattr(archive_writer, "FILE_BYTES_MAX", 1)
    store = grown(tmp_path / "store", 30)
    archived(store, target)
    files = len(target.parquet_paths())
    archived(store, tmp_path / "folder")
    bucket = bucket_of(target)
    large = os.urandom(20 << 20)
    (tmp_path / "large").write_bytes(large)
    bucket.upload("large", tmp_path / "large")
    copied = bucket.copy("large", "copy"), bucket.copy("nothing", "copy-of-nothing")
    bucket.fetch("copy", tmp_path / "fetched")
    bucket.delete(["large", "copy"])

    assert files > 5
    assert seen(target, tmp_path / "mirror") == expected(30)
    assert check(target) == []
    assert len(visible_rows(tmp_path / "folder")) == 30
    assert copied == (True, False)
    assert (tmp_path / "fetched").read_bytes() == large


def test_parts_of_uploads_that_nobody_ends_are_deleted(tmp_path: Path, target: ObjectStore) -> None:
    """Those of killed runs: a newer writer's are its own, and others are none of ours."""
    archived(grown(tmp_path / "store", 6), target)
    bucket = bucket_of(target)
    keys = [f"{STAGING}{epoch:08d}-{'0' * 32}/part.parquet" for epoch in (1, 2, 99)]
    for key in (*keys, "topic=orders/of-another"):
        named = bucket._named(key)
        begun = bucket._client.create_multipart_upload(**named)
        bucket._client.upload_part(
            **named, UploadId=begun["UploadId"], PartNumber=1, Body=b"left" * 1_000
        )
    before = [key for key, _ in bucket.unended("")]
    archived(grown(tmp_path / "store", 7), target)

    assert sorted(before) == sorted([*keys, "topic=orders/of-another"])
    assert sorted(key for key, _ in bucket.unended("")) == [keys[2], "topic=orders/of-another"]


def test_what_is_no_place_of_an_archive_is_refused(tmp_path: Path, target: ObjectStore) -> None:
    store = grown(tmp_path / "store", 6)
    bucket_of(target).put("something", b"else", over=None)
    with pytest.raises(ConfigError, match="not empty, and no archive"):
        archived(store, target)
    with pytest.raises(ConfigError, match="no archive"):
        check(opened(f"s3://{BUCKET}/nothing"))
    with pytest.raises(ConfigError, match="no such bucket") as found:
        archived(store, opened("s3://no-such-bucket/archive"))

    assert "no-such-bucket" in str(found.value.details["file"])

    for place in ("hdfs://host/archive", "ftp://host/a"):
        with pytest.raises(ConfigError, match="buckets of an object store"):
            store_at(place)
    for place in ("s3a:///archive", "s3a://a/../b", "s3a://archives/a//b", "s3a://b/_ledgermq"):
        with pytest.raises(ConfigError, match="not the place") as found:
            store_at(place)

        assert found.value.details["value"] == place
    shutil.rmtree(store)


SECRET = "wJalrXUtnFEMI-of-nobody"


def refusal(store: Path, target: ObjectStore) -> LedgerError:
    forget_clients()
    with pytest.raises(LedgerError) as found:
        archived(store, target)
    return found.value


def test_keys_are_told_nowhere_and_wrong_ones_by_their_setting(
    tmp_path: Path, target: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = grown(tmp_path / "store", 6)
    archived(store, target)
    bucket = bucket_of(target)
    stored = [bucket.get(key, bytes_max=1 << 30) for key in bucket.listed()]
    whole = b"".join(found.content for found in stored if found is not None)
    told = []
    for place in (
        f"s3a://AKIA:{SECRET}@archives/a",
        f"s3a://AKIA:/{SECRET}@archives",
        f"gs://{SECRET}@b",
    ):
        with pytest.raises(ConfigError) as found:
            store_at(place)
        told.append(found.value)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    told.append(refusal(store, target))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    told.append(refusal(store, target))
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    told.append(refusal(store, target))
    url = os.environ["AWS_ENDPOINT_URL_S3"]
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url.replace("//", f"//AKIA:{SECRET}@"))
    forget_clients()
    with pytest.raises(ConfigError, match="endpoint with keys") as found:
        store_at("s3a://archives/a")
    told.append(found.value)

    for text in map(str, told):
        assert SECRET not in text
    assert [type(error) for error in told] == [ConfigError] * len(told)
    for error in told[3:6]:
        assert "AWS_SECRET_ACCESS_KEY" in str(error.details["setting"])
    assert KEYS["ROOT_SECRET_KEY"].encode() not in whole
    assert KEYS["ROOT_ACCESS_KEY"].encode() not in whole
    assert b"run" in whole
