"""What a plan counts of requests to a bucket is what a real S3 server is asked."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.bucket_requests import (
    Requests,
    archive_audit,
    archive_run,
    heads_looked_at,
    stream,
    stream_restore,
    upload,
)
from ledgermq.buckets import amazon_bucket
from ledgermq.pipeline.archive import object_store
from ledgermq.pipeline.archive.object_store import ObjectStore
from tests.buckets.bucket_archives import check
from tests.buckets.bucket_streams import BucketStream
from tests.buckets.object_server import FaultyProxy, bucket_of
from tests.unit.conversion.streamed_store import MESSAGES
from tests.unit.pipeline.archives import archived
from tests.unit.pipeline.test_archive_job import grown

pytestmark = pytest.mark.slow


class Asked:
    """Requests that a server was asked, by their prices."""

    def __init__(self) -> None:
        self.requests = Requests()

    def add(self, head: bytes) -> None:
        """One more."""
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0]
        if method == b"POST" and path.endswith(b"?delete"):
            self.requests += Requests(deletes=1)
        elif method == b"GET" and b"list-type=2" not in path and b"?uploads" not in path:
            self.requests += Requests(gets=1)
        else:
            self.requests += Requests(puts=1)


@contextmanager
def asked_of(proxy: FaultyProxy) -> Iterator[Asked]:
    """What is asked within the block."""
    asked = Asked()

    def note(_number: int, head: bytes) -> str:
        asked.add(head)
        return ""

    proxy.fault = note
    yield asked
    proxy.fault = lambda _number, _head: ""


def test_a_run_of_an_archive_and_its_audit(
    tmp_path: Path, proxy: FaultyProxy, target: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Renewals are by the clock.
    monkeypatch.setattr(object_store, "LEASE_S", 3_600)
    files = 0
    for runs_before, count in enumerate((6, 20, 30)):
        with asked_of(proxy) as run:
            found = archived(grown(tmp_path / "store", count), target)
        assert found.run is not None
        added = len(found.run.files)
        files += added
        if runs_before:
            expected = archive_run(files=added, file_size=1, runs_before=runs_before)
            assert run.requests == expected, runs_before
    with asked_of(proxy) as audit:
        assert check(target) == []

    assert files > 6
    assert audit.requests == archive_audit(files=files, runs=3)


def test_a_file_that_goes_in_parts(
    tmp_path: Path, proxy: FaultyProxy, target: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = 8 << 20
    monkeypatch.setattr(amazon_bucket, "PART_BYTES", part)
    (tmp_path / "large").write_bytes(os.urandom(20 << 20))
    for size in (20 << 20, part, part - 1):
        os.truncate(tmp_path / "large", size)
        with asked_of(proxy) as asked:
            bucket_of(target).upload("large", tmp_path / "large")

        assert asked.requests == upload(size, part_bytes=part)


def test_a_stream_and_its_restore(tmp_path: Path, proxy: FaultyProxy) -> None:
    store = BucketStream(tmp_path, "streams/counted")
    store.commit(MESSAGES - 1)
    with asked_of(proxy) as streamed:
        assert store.stream() == 0
    pieces, tables = len(store.opened().log), len(store.opened().tables)
    found = {}
    points = {
        "last": [],
        "index": ["--to-index", str(store.index_of(MESSAGES - 1))],
        "time": ["--to-time", "2100-01-01"],
    }
    for point, words in points.items():
        with asked_of(proxy) as restored:
            assert store.restore(tmp_path / point, *words) == 0
        found[point] = restored.requests

    assert pieces > 3
    assert streamed.requests == stream(pieces_put=pieces, tables=tables)
    expected = [
        stream_restore(pieces=pieces, piece_size=1, tables=tables, heads=heads)
        for heads in (1, heads_looked_at(pieces), pieces + 1)
    ]
    assert found["last"] == expected[0]
    assert found["last"].gets <= found["index"].gets <= expected[1].gets
    assert found["index"].puts == expected[1].puts
    assert found["time"] == expected[2]
