"""Cold reads out of a real S3 server: how often it is asked, and what its refusals are told as."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path

import pytest

from ledgermq.buckets import amazon_bucket
from ledgermq.ipc.counters import ColdCounter
from ledgermq.model.errors import ColdAwayError
from ledgermq.pipeline.pieces.log_sealing import SealSizes, seal_log
from ledgermq.pipeline.pieces.piece_places import place_at
from ledgermq.store.log_reader import LogReader
from ledgermq.store.store_directory import open_directory
from tests.buckets.object_server import BUCKET, FaultyProxy
from tests.buckets.test_requests import asked_of
from tests.small_store import write_store
from tests.unit.cold.test_cold_reader import Watched, in_log, records_of

pytestmark = pytest.mark.slow

MESSAGES = 30


@pytest.fixture
def store(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    root.mkdir()
    write_store(root, messages=MESSAGES)
    return root


@pytest.fixture(autouse=True)
def one_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amazon_bucket, "TRIES", 1)


@pytest.fixture
def address(request: pytest.FixtureRequest, proxy: FaultyProxy, store: Path) -> str:
    address = f"s3://{BUCKET}/{request.node.name}/pieces"
    with closing(LogReader(open_directory(store))) as log:
        seal_log(place_at(address), log, log.end, sizes=SealSizes(2_000, group_bytes=400))
    proxy.fault = lambda _number, _head: ""
    return address


def test_ten_readers_of_a_queue_take_the_requests_of_one(
    proxy: FaultyProxy, store: Path, address: str, tmp_path: Path
) -> None:
    watched = Watched(place_at(address), tmp_path / "cache")
    with asked_of(proxy) as first:
        assert records_of(watched.ask(0, 0))
    assert first.requests.gets == 3
    found: list[list[bytes]] = []

    def read() -> None:
        mine: list[bytes] = []
        while len(mine) < MESSAGES // 2:
            mine += records_of(watched.ask(0, len(mine)))
        found.append(mine)

    with asked_of(proxy) as many:
        threads = [threading.Thread(target=read) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [in_log(store, 0)] * 10
    with asked_of(proxy) as one:
        alone = Watched(place_at(address), tmp_path / "another")
        offset = 0
        while offset < MESSAGES // 2:
            offset = alone.ask(0, offset).next_offset
    assert many.requests.gets + first.requests.gets == one.requests.gets
    with asked_of(proxy) as cached:
        again = Watched(place_at(address), tmp_path / "cache")
        offset = 0
        while offset < MESSAGES // 2:
            offset = again.ask(0, offset).next_offset
    # The manifest alone: the rest is on the disk.
    assert cached.requests.gets == 1


@pytest.mark.parametrize("fault", ["busy", "gone", "half"])
def test_a_bucket_that_refuses_is_away_until_it_does_not(
    proxy: FaultyProxy,
    store: Path,
    address: str,
    tmp_path: Path,
    fault: str,
) -> None:
    watched = Watched(place_at(address), tmp_path / "cache")
    watched.reader.refresh(0)
    proxy.fault = lambda _number, _head: fault
    with pytest.raises(ColdAwayError, match="cold storage away since") as refused:
        watched.ask(0, 0)
    assert refused.value.details["place"] == f"{address}/"
    assert watched.counts[ColdCounter.AWAY_SINCE] > 0
    proxy.fault = lambda _number, _head: ""
    found = records_of(watched.ask(0, 0))
    assert found == in_log(store, 0)[: len(found)]
    assert watched.counts[ColdCounter.AWAY_SINCE] == 0
