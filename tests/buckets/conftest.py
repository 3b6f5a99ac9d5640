"""An S3 server that runs, and a bucket of it for each test.

What is stored there comes through pyarrow and PySpark, which a checkout may do without.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import left_out

if TYPE_CHECKING:
    from ledgermq.pipeline.archive.object_store import ObjectStore
    from tests.buckets.object_server import FaultyProxy, ObjectServer

_REASON = left_out.without_spark(needs_java=False)


def pytest_pycollect_makemodule(
    module_path: Path, parent: pytest.Collector
) -> pytest.Module | None:
    """Leave the module out, with the reason, where it cannot be imported."""
    return left_out.module(module_path, parent, _REASON) if _REASON else None


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    """One that runs; without its program the test is left out."""
    from tests.buckets.object_server import served

    with served(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture
def proxy(server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyProxy]:
    """Before the server; what this test asks goes through it."""
    from ledgermq.pipeline.archive import archive_job
    from tests.buckets.object_server import FaultyProxy, forget_clients, use

    monkeypatch.setattr(archive_job, "PART_BYTES_MIN", 600)
    made = FaultyProxy(server.port)
    use(monkeypatch, server, made.port)
    forget_clients()
    yield made
    made.close()
    forget_clients()


@pytest.fixture
def straight(server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    """What this test and its children ask goes to the server itself: no thread is in between."""
    from tests.buckets.object_server import forget_clients, use

    use(monkeypatch, server, server.port)
    forget_clients()
    yield server
    forget_clients()


@pytest.fixture
def root(server: ObjectServer) -> str:
    """Address of the bucket."""
    return server.root


@pytest.fixture
def target(proxy: FaultyProxy, root: str, request: pytest.FixtureRequest) -> ObjectStore:
    """No archive yet, at a place of this test alone."""
    from tests.buckets.bucket_archives import opened

    return opened(f"{root}/{request.node.name}/messages")
