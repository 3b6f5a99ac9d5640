"""A server of Google's kind in the place of S3's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.buckets.google.google_server import GoogleServer


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GoogleServer]:
    """One that runs."""
    running = GoogleServer(tmp_path_factory.mktemp("gs"))
    try:
        running.start()
        yield running
    finally:
        running.kill()
