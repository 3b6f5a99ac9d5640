"""A server of Azure's kind in the place of S3's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.buckets.azure.azure_server import AzureServer


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureServer]:
    """One that runs."""
    running = AzureServer(tmp_path_factory.mktemp("abfs"))
    try:
        running.start()
        yield running
    finally:
        running.kill()
