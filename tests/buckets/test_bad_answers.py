"""A store that answers badly, late or not at all costs an archive time, and nothing else."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ledgermq.buckets import amazon_bucket, azure_bucket, google_bucket
from ledgermq.buckets.bucket import StoredObject, Stretch
from ledgermq.model.errors import StorageError, StoreLockedError
from ledgermq.pipeline.archive import object_store
from ledgermq.pipeline.archive.archive_folder import ArchiveFolder
from ledgermq.pipeline.archive.object_store import ObjectStore
from tests.buckets.bucket_archives import HEAD, STAGING, check, seen
from tests.buckets.object_server import (
    FaultyProxy,
    ObjectServer,
    bucket_of,
    forget_clients,
    is_put_of,
)
from tests.unit.pipeline.archives import archived
from tests.unit.pipeline.test_archive_job import expected, grown

pytestmark = pytest.mark.slow


def is_put_of_head(head: bytes) -> bool:
    return is_put_of(HEAD, head)


def is_of_object(head: bytes) -> bool:
    """A request whose answer has a checksum: of a whole object, and no list of them."""
    line = head.partition(b"\r\n")[0]
    if b"x-ms-version" in head.lower():
        return line.startswith(b"GET") and b"x-ms-range-get-content-md5" in head.lower()
    is_of_google = b"/storage/v1/" in line
    is_media = b"alt=media" in line if is_of_google else b"list-type" not in line
    return line.startswith(b"GET") and is_media and b"range:" not in head.lower()


@pytest.fixture
def once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that fails is not tried again."""
    monkeypatch.setattr(amazon_bucket, "TRIES", 1)
    monkeypatch.setattr(google_bucket, "RETRY_S", 0.001)
    monkeypatch.setattr(azure_bucket, "RETRIES", 0)
    forget_clients()


FAULTS = {
    "busy": lambda number, _head: "busy" if number % 3 == 0 else "",
    "late": lambda number, _head: "late" if number % 5 == 0 else "",
    "lost": lambda number, _head: "lost" if number % 4 == 0 else "",
    "lost-puts": lambda number, head: "lost" if is_put_of("", head) and number % 2 else "",
    "half": lambda number, _head: "half" if number % 4 == 0 else "",
    "changed": lambda number, head: "changed" if number % 3 and is_of_object(head) else "",
}


@pytest.mark.long(but=1)
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


@pytest.mark.parametrize("kind", ["head", "version"])
def test_an_answer_that_ends_within_its_head_says_nothing(
    tmp_path: Path, proxy: FaultyProxy, target: ObjectStore, kind: str
) -> None:
    """A client takes it for one without a body: no objects, or a copy that is done; and half an
    ETag for one.
    """
    bucket = bucket_of(target)
    version = bucket.put("folder/one", b"content", over=None)
    cut = []

    def fault(number: int, _head: bytes) -> str:
        return kind if number in cut else ""

    def asked(call: Callable[[], object]) -> object:
        cut.append(proxy.count + 1)
        return call()

    proxy.fault = fault

    assert asked(lambda: list(bucket.listed())) == ["folder/one"]
    assert asked(lambda: list(bucket.level(""))) == ["folder/"]
    assert asked(lambda: list(bucket.unended(""))) == []
    assert asked(lambda: bucket.copy("folder/one", "copy")) is True
    asked(lambda: bucket.fetch("copy", tmp_path / "fetched"))
    assert (tmp_path / "fetched").read_bytes() == b"content"
    stored = asked(lambda: bucket.get("folder/one", bytes_max=100))
    assert isinstance(stored, StoredObject)
    assert (stored.content, stored.version) == (b"content", version)
    part = asked(lambda: bucket.stretch("folder/one", 2, 5, version=version))
    assert isinstance(part, Stretch) and part.body is not None
    assert (part.body.read(100), part.size, part.version) == (b"nte", len(b"content"), version)
    part.body.close()
    # Each was asked for once more.
    assert [proxy.faults[number - 1] for number in cut] == [kind] * 7
    assert proxy.count == cut[-1] + 1
    written = asked(lambda: bucket.put("folder/one", b"other", over=version))
    assert bucket.put("folder/one", b"third", over=str(written)) is not None


def test_a_store_that_stays_away_is_told_and_the_next_run_has_everything(
    tmp_path: Path, proxy: FaultyProxy, target: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(amazon_bucket, "TRIES", 2)
    monkeypatch.setattr(google_bucket, "RETRY_S", 0.001)
    monkeypatch.setattr(azure_bucket, "RETRIES", 0)
    forget_clients()
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
            threading.Thread(target=server.start).start()
            return "gone"
        return ""

    proxy.fault = fault
    found = archived(store, target)

    assert killed
    assert found.rows == 30
    assert check(target) == []
    assert seen(target, tmp_path / "mirror") == expected(30)


@pytest.mark.usefixtures("once")
def test_a_renewal_that_was_given_up_and_done_all_the_same_takes_nothing_from_its_writer(
    proxy: FaultyProxy, target: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "LEASE_S", 2)
    with target.written() as writer:
        lost = threading.Event()

        def fault(_number: int, head: bytes) -> str:
            if is_put_of_head(head) and not lost.is_set():
                lost.set()
                return "lost"
            return ""

        proxy.fault = fault
        assert lost.wait(60)
        staged = writer.staging()
        file = staged.create("topic=orders/day=2026-01-01/part.parquet")
        file.write(b"rows")
        file.close()
        writer.commit(object_store.RunDocument(1, {"run": 1}, ""), staged)
    # It is free again at once.
    with target.written():
        pass

    assert len(list(bucket_of(target).listed("_ledgermq/manifest/"))) == 1


@pytest.mark.usefixtures("once")
def test_a_commit_whose_answer_is_lost_for_good_is_told_and_done_once(
    tmp_path: Path, proxy: FaultyProxy, target: ObjectStore
) -> None:
    """The next run can begin at once, and finds it."""
    archived(grown(tmp_path / "store", 6), target)
    store = grown(tmp_path / "store", 30)
    puts = []

    def fault(_number: int, head: bytes) -> str:
        puts.append(is_put_of_head(head))
        # The first one takes the archive, the second one commits.
        return "lost" if puts[-1] and sum(puts) == 2 else ""

    proxy.fault = fault
    with pytest.raises(StorageError, match="object not written") as found:
        archived(store, target)
    proxy.fault = lambda _number, _head: ""

    assert HEAD in str(found.value.details["file"])
    assert ArchiveFolder(target).state.runs == 2
    assert archived(store, target).rows == 0
    assert seen(target, tmp_path / "mirror") == expected(30)
    assert check(target) == []
    assert list(bucket_of(target).listed(STAGING)) == []


def test_a_lease_ends_by_the_clock_of_the_store(
    tmp_path: Path, proxy: FaultyProxy, target: ObjectStore
) -> None:
    """Clocks of hosts may be apart; were the store's wrong, who lost the lease adds nothing."""
    store = grown(tmp_path / "store", 10)
    with target.written() as early:
        staged = early.staging()
        with pytest.raises(StoreLockedError, match="another run writes"):
            archived(store, target)
        proxy.fault = lambda _number, head: "ahead" if head.startswith(b"GET") else ""
        rows = archived(store, target).rows
        proxy.fault = lambda _number, _head: ""
        with pytest.raises(StoreLockedError, match="nothing was added"):
            early.commit(object_store.RunDocument(1, {"run": 1}, ""), staged)

    assert rows == 10
    assert archived(store, target).rows == 0
    assert seen(target, tmp_path / "mirror") == expected(10)
    assert check(target) == []


def test_a_large_file_whose_end_is_not_answered_is_sent_again(
    tmp_path: Path, proxy: FaultyProxy, target: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its parts were put together: who asks for that once more is told that there are none."""
    monkeypatch.setattr(amazon_bucket, "PART_BYTES", 8 << 20)
    content = os.urandom(20 << 20)
    (tmp_path / "large").write_bytes(content)
    bucket = bucket_of(target)
    ends = []

    def fault(_number: int, head: bytes) -> str:
        is_end = head.startswith(b"POST") and b"uploadId=" in head.partition(b"\r\n")[0]
        ends.append(is_end)
        return "lost" if is_end and sum(ends) == 1 else ""

    proxy.fault = fault
    bucket.upload("large", tmp_path / "large")
    bucket.fetch("large", tmp_path / "fetched")

    assert "lost" in proxy.faults
    assert (tmp_path / "fetched").read_bytes() == content
    assert list(bucket.unended("")) == []
