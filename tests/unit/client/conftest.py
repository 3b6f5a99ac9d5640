"""A peer for each test of a client, and producers and consumers that talk to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.unit.client.peer import Peer, running_peer


@pytest.fixture
def peer() -> Iterator[Peer]:
    with running_peer() as running:
        yield running
