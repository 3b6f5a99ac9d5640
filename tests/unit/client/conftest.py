"""A peer for each test of a client, and producers and consumers that talk to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.process.group_nodes import free_port
from tests.unit.client.known_cluster import MakeCluster, make_known
from tests.unit.client.peer import Peer, running_peer


@pytest.fixture
def peer() -> Iterator[Peer]:
    with running_peer() as running:
        yield running


@pytest.fixture
def make_cluster() -> Iterator[MakeCluster]:
    """Makes a group of one peer for each letter; all know of one another."""
    with ExitStack() as stack:

        def make(names: str) -> dict[str, Peer]:
            peers: dict[str, Peer] = {}
            for name in names:
                # None that a connection may be given while the peer does not listen at it.
                ports = str(free_port()), str(free_port())
                peers[name] = Peer(over_tcp=True, ports=ports)
                stack.callback(peers[name].close)
            make_known(peers)
            return peers

        yield make
