"""An archive in a bucket of a real S3 server has each message once, whatever happens meanwhile."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.unit.pipeline.archives import TasksHere, archived, places, visible_rows
from tests.unit.pipeline.object_server import (
    BUCKET,
    FaultyProxy,
    ObjectServer,
    bucket_of,
    mirrored,
    served,
    use,
)
from tests.unit.pipeline.test_archive_job import expected, grown

from ledgermq.model.errors import ConfigError, CorruptLogError, StorageError, StoreLockedError
from ledgermq.pipeline.archive import archive_job, object_store, s3_bucket
from ledgermq.pipeline.archive.archive_check import check_archive
from ledgermq.pipeline.archive.archive_folder import (
    ArchiveFolder,
    existing_archive,
    store_at,
    writable_archive,
)
from ledgermq.pipeline.archive.object_store import ObjectStore

ROOT = Path(__file__).resolve().parents[3]
HEAD = "_ledgermq/head.json"
STAGING = "_ledgermq/staging/"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    with served(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture
def proxy(server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyProxy]:
    """Before the server; what this test asks goes through it."""
    monkeypatch.setattr(archive_job, "PART_BYTES_MIN", 600)
    made = FaultyProxy(server.port)
    use(monkeypatch, made.port)
    s3_bucket._client.cache_clear()
    yield made
    made.close()
    s3_bucket._client.cache_clear()


@pytest.fixture
def target(proxy: FaultyProxy, request: pytest.FixtureRequest) -> ObjectStore:
    return opened(f"s3a://{BUCKET}/{request.node.name}/messages")


def opened(place: str) -> ObjectStore:
    store = store_at(place)
    assert isinstance(store, ObjectStore)
    return store


def check(target: ObjectStore) -> list[str]:
    checked = check_archive(TasksHere(), target, split_bytes=1 << 20)
    return [fault.as_text() for fault in checked.faults]


def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease of somebody who is gone is over by now."""
    now = object_store._now_ms
    monkeypatch.setattr(object_store, "_now_ms", lambda: now() + 2_000 * object_store.LEASE_S)


def seen(target: ObjectStore, folder: Path) -> list[tuple[str, int, int]]:
    return places(visible_rows(mirrored(target, folder)))


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
            done = list(
                pool.map(lambda content: bucket.put("counter", content, over=version), contents)
            )
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


FAULTS = {
    "busy": lambda number, _head: "busy" if number % 3 == 0 else "",
    "late": lambda number, _head: "late" if number % 5 == 0 else "",
    "lost": lambda number, _head: "lost" if number % 4 == 0 else "",
    "lost-puts": lambda number, head: "lost" if head.startswith(b"PUT") and number % 2 else "",
    "half": lambda number, _head: "half" if number % 4 == 0 else "",
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_store_that_answers_badly_costs_time_and_nothing_else(
    tmp_path: Path, proxy: FaultyProxy, target: ObjectStore, name: str
) -> None:
    archived(grown(tmp_path / "store", 6), target)
    proxy.fault = FAULTS[name]
    found = archived(grown(tmp_path / "store", 30), target)
    faults = check(target)
    proxy.fault = lambda _number, _head: ""

    assert found.rows == 24
    assert faults == []
    assert seen(target, tmp_path / "mirror") == expected(30)
    assert sum(bool(fault) for fault in proxy.faults) > 5


def test_a_store_that_stays_away_is_told_and_the_next_run_has_everything(
    tmp_path: Path, proxy: FaultyProxy, target: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_bucket, "TRIES", 2)
    s3_bucket._client.cache_clear()
    store = grown(tmp_path / "store", 30)
    proxy.fault = lambda _number, head: "busy" if b".parquet" in head else ""
    with pytest.raises(StorageError, match="object not written") as found:
        archived(store, target)
    proxy.fault = lambda _number, _head: ""

    assert "SlowDown" in str(found.value.details["reason"])
    assert archived(store, target).rows == 30
    assert seen(target, tmp_path / "mirror") == expected(30)


def test_a_server_that_is_killed_meanwhile_loses_nothing(
    tmp_path: Path, server: ObjectServer, proxy: FaultyProxy, target: ObjectStore
) -> None:
    store = grown(tmp_path / "store", 30)
    killed = []

    def fault(number: int, head: bytes) -> str:
        if b".parquet" in head and not killed:
            killed.append(number)
            server.kill()
            threading.Timer(1, server.start).start()
        return ""

    proxy.fault = fault
    found = archived(store, target)

    assert killed
    assert found.rows == 30
    assert check(target) == []
    assert seen(target, tmp_path / "mirror") == expected(30)


REQUESTS = range(1, 60)


def deaths_of(store: Path, targets: list[str]) -> list[str]:
    """What became of a run into each of the archives, killed before the request of its number."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.pipeline.object_dying", str(store)],
        input="".join(f"{target} {call}\n" for target, call in zip(targets, REQUESTS, strict=True)),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "src"},
        stdout=subprocess.PIPE,
        text=True,
        timeout=600,
        check=True,
    )
    return done.stdout.split()


def test_a_run_that_dies_before_any_request_leaves_nothing_twice(
    tmp_path: Path, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile readers see no row twice, and none of half a run; the next run puts it right."""
    store = tmp_path / "store"
    targets = [f"s3a://{BUCKET}/deaths/{number}" for number in REQUESTS]
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
    tmp_path: Path, target: ObjectStore, monkeypatch: pytest.MonkeyPatch
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

    assert archived(store, target).rows == 6


def test_what_is_no_place_of_an_archive_is_refused(tmp_path: Path, target: ObjectStore) -> None:
    store = grown(tmp_path / "store", 6)
    bucket_of(target).put("something", b"else", over=None)
    with pytest.raises(ConfigError, match="not empty, and no archive"):
        archived(store, target)
    with pytest.raises(ConfigError, match="no archive"):
        check(opened(f"s3://{BUCKET}/nothing"))
    with pytest.raises(StorageError, match=r"NoSuchBucket|does not exist"):
        archived(store, opened("s3://no-such-bucket/archive"))
    with pytest.raises(ConfigError, match="no such kind"):
        store_at("ftp://host/archive")
    with pytest.raises(ConfigError, match="not the place"):
        store_at("s3a:///archive")
    shutil.rmtree(store)
